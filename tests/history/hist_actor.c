/* SPDX-License-Identifier: Apache-2.0
 * hist_actor.c - threads that call the store (or a mount) on a few keys at random, and log every call.
 *
 *	hist_actor --log=FILE --master=ADDR --writer=N [--hostname=HOST] [--threads=N] [--keys=N] [--size=MAX]
 *		[--segment=BYTES] [--far=BYTES] [--disk=DIR --disk_size=BYTES] [--shared=DIR --shared_size=BYTES]
 *		[--pause=US] [--daemon=ADDR] [--tcp] [--hard] [--writes] [--tiers] [--dir=MOUNTPOINT]
 *	hist_actor --final ...		reads each key once it can be read, at most 30 s; logs that
 *
 * SIGUSR1 ends the calls, and the segment stays; SIGTERM ends the process. */
#include <config.h>

#include "tests/history/hist_actor.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/sys/clock.h"

#define THREADS_MAX 15u
#define FINAL_MS 30000
#define MAP_DICE 88
#define FAILED_US 20000			/* pause after a failed call: the next one will mostly fail too */

static const struct hist_calls *calls = &hist_store_calls;
static int quiet, ended;		/* atomic; on_signal sets them */
static struct hist_rec *log_rec;
static uint64_t log_used;

bool hist_stopping(void)
{
	return __atomic_load_n(&quiet, __ATOMIC_RELAXED);
}

uint64_t hist_rnd(struct hist_thread *t)
{
	t->rnd = t->rnd * 6364136223846793005ull + 1442695040888963407ull;
	return t->rnd >> 33;
}

void hist_key(unsigned key, char ret[16])
{
	snprintf(ret, 16, "h%02u", key);
}

void hist_private_key(uint32_t writer, char ret[16])
{
	snprintf(ret, 16, "t%u", writer);
}

/* ---- the log ---- */

static int log_open(const char *path)
{
	size_t size = HIST_LOG_MAX * sizeof(struct hist_rec);
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
		return -errno;
	log_rec = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return log_rec == MAP_FAILED ? -errno : 0;
}

/* The record of a call that begins now.  For the checker it is complete: a call that does not return. */
static struct hist_rec *log_begin(const struct hist_thread *t, enum hist_op op, unsigned key)
{
	uint64_t at = __atomic_fetch_add(&log_used, 1, __ATOMIC_RELAXED);
	struct hist_rec *rec = &log_rec[at];

	if (at >= HIST_LOG_MAX) {
		fprintf(stderr, "the log is full: use fewer seconds\n");
		exit(2);
	}
	rec->thread = t->writer;
	rec->key = (uint16_t)key;
	rec->inv_ns = mc_now_ns();
	__atomic_store_n(&rec->op, (uint8_t)op, __ATOMIC_RELEASE);
	return rec;
}

static void log_end(struct hist_rec *rec, int result)
{
	rec->result = result;
	if (!rec->ret_ns)
		__atomic_store_n(&rec->ret_ns, mc_now_ns(), __ATOMIC_RELEASE);
}

/* ---- values ---- */

static void value_make(void *buf, size_t size, uint32_t writer, uint32_t count, uint32_t key)
{
	struct hist_row *row = buf;

	for (uint32_t i = 0; i < size / sizeof(*row); i++)
		row[i] = (struct hist_row){ writer, count, key, i };
}

int hist_look(struct hist_rec *rec, const void *bytes, size_t n, uint64_t offset)
{
	const struct hist_row *row = bytes;
	struct hist_row want;

	if (n < sizeof(want))
		return 0;
	want = row[0];
	rec->value = hist_value(want.writer, want.count);
	rec->key_in_value = want.key;
	rec->flags |= HIST_LOOKED;
	for (size_t i = 0; i < n / sizeof(want); i++) {
		want.position = (uint32_t)(offset / sizeof(want) + i);
		if (!memcmp(&row[i], &want, sizeof(want)))
			continue;
		rec->where = offset + i * sizeof(want);
		fprintf(stderr, "WRONG BYTES: op %u key %u offset %llu: {%u %u %u %u} in {%u %u %u}\n", rec->op,
			rec->key, (unsigned long long)rec->where, row[i].writer, row[i].count, row[i].key,
			row[i].position, want.writer, want.count, want.key);
		return -1;
	}
	return 0;
}

/* Mostly small values; some of many chunks, so that a stop in the middle of a copy leaves much to be written. */
static size_t value_size(struct hist_thread *t)
{
	size_t max = t->a->size_max >> (hist_rnd(t) % 4 && !t->a->writes ? 6 : 0);

	return (hist_rnd(t) % (max / sizeof(struct hist_row)) + 1) * sizeof(struct hist_row);
}

/* ---- calls ---- */

static int do_write(struct hist_thread *t, enum hist_op op, unsigned key)
{
	struct hist_rec *rec;
	struct hist_rec plan = { .size = value_size(t), .key = (uint16_t)key };
	int r;

	t->count++;
	value_make(t->buf, plan.size, t->writer, t->count, key);
	if (op == HIST_RENAME && (r = calls->stage(t, &plan)) < 0)
		return r;
	rec = log_begin(t, HIST_NONE, key);
	rec->size = plan.size;
	rec->value = hist_value(t->writer, t->count);
	__atomic_store_n(&rec->op, (uint8_t)op, __ATOMIC_RELEASE);
	log_end(rec, calls->write(t, rec));
	return rec->result;
}

static int do_list(struct hist_thread *t)
{
	struct hist_rec all[HIST_KEYS_MAX] = { 0 };
	uint64_t inv_ns = mc_now_ns();
	int r = calls->list(all, t->a->keys);
	uint64_t ret_ns = mc_now_ns();

	for (unsigned k = 0; r >= 0 && k < t->a->keys; k++) {
		struct hist_rec *rec = log_begin(t, HIST_NONE, k);

		rec->inv_ns = inv_ns;
		rec->generation = all[k].generation;
		rec->size = all[k].size;
		rec->ret_ns = ret_ns;
		rec->result = all[k].result;
		__atomic_store_n(&rec->op, HIST_LIST, __ATOMIC_RELEASE);
	}
	return r;
}

static int do_call(struct hist_thread *t)
{
	/* one op for each percent */
	static const struct {
		unsigned upto;
		enum hist_op op;
	} mix[] = {
		{ 18, HIST_UPSERT }, { 26, HIST_PUT }, { 30, HIST_PUT_EXCL }, { 36, HIST_RENAME }, { 39, HIST_REMOVE },
		{ 64, HIST_GET }, { 72, HIST_RANGE }, { MAP_DICE + 1, HIST_MAP }, { 94, HIST_STAT }, { 99, HIST_EXIST },
		{ 100, HIST_LIST },
	};
	unsigned dice = (unsigned)(hist_rnd(t) % 100), key = (unsigned)(hist_rnd(t) % t->a->keys), i = 0;
	struct hist_rec *rec;

	/* The first of several threads mostly watches mapped values, with --writes the others mostly write. */
	if (dice % 4)
		dice = t->watches ? MAP_DICE : t->a->writes ? 0 : dice;
	while (dice >= mix[i].upto)
		i++;
	if (mix[i].op <= HIST_RENAME)
		return do_write(t, mix[i].op, key);
	if (mix[i].op == HIST_LIST)
		return do_list(t);
	rec = log_begin(t, mix[i].op, key);
	log_end(rec, mix[i].op == HIST_REMOVE ? calls->remove(rec) : calls->read(t, rec));
	return rec->result;
}

static void *run(void *arg)
{
	struct hist_thread *t = arg;

	while (!hist_stopping()) {
		int r = do_call(t);

		if (r < 0 && r != HIST_ABSENT && r != HIST_EXISTS)
			usleep(FAILED_US);
		else if (t->a->pause_us)
			usleep((unsigned)(hist_rnd(t) % (2 * t->a->pause_us)));
	}
	return NULL;
}

/* Each key is read until that succeeds or the key is absent. */
static int final(struct hist_thread *t)
{
	uint64_t end = mc_deadline_ms(FINAL_MS);

	for (unsigned k = 0; k < t->a->keys; k++) {
		struct hist_rec *rec;

		do {
			rec = log_begin(t, HIST_FINAL, k);
			log_end(rec, calls->read(t, rec));
		} while (rec->result < 0 && rec->result != HIST_ABSENT && mc_deadline_left_ms(end) && !usleep(50000));
	}
	return 0;
}

/* ---- the process ---- */

static void on_signal(int sig)
{
	__atomic_store_n(&quiet, 1, __ATOMIC_RELAXED);
	if (sig == SIGTERM)
		__atomic_store_n(&ended, 1, __ATOMIC_RELAXED);
}

static void thread_init(struct hist_thread *t, const struct hist_actor *a, unsigned i)
{
	t->a = a;
	t->writer = a->writer * 16 + i;
	t->watches = a->threads > 1 && i == 0;
	t->rnd = t->writer * 0x9e3779b97f4a7c15ull + 1;
	t->buf = aligned_alloc(4096, HIST_SIZE_MAX);
	if (!t->buf)
		exit(2);
}

static int act(const struct hist_actor *a)
{
	struct hist_thread t[THREADS_MAX] = { 0 };
	pthread_t id[THREADS_MAX];
	sigset_t mask, old;
	unsigned i;

	sigemptyset(&mask);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGUSR1);
	for (i = 0; i < a->threads; i++) {
		thread_init(&t[i], a, i);
		if (pthread_create(&id[i], NULL, run, &t[i]))
			exit(2);
	}
	puts("ready");
	fflush(stdout);
	pthread_sigmask(SIG_BLOCK, &mask, &old);
	while (!__atomic_load_n(&ended, __ATOMIC_RELAXED))
		sigsuspend(&old);
	for (i = 0; i < a->threads; i++) {
		pthread_join(id[i], NULL);
		free(t[i].buf);
	}
	return 0;
}

static int actor_options(struct hist_actor *a, int argc, char **argv)
{
	static const struct option opts[] = {
		{ "log", 1, NULL, 'l' }, { "master", 1, NULL, 'm' }, { "hostname", 1, NULL, 'h' },
		{ "writer", 1, NULL, 'w' }, { "threads", 1, NULL, 't' }, { "keys", 1, NULL, 'k' },
		{ "size", 1, NULL, 's' }, { "segment", 1, NULL, 'g' }, { "pause", 1, NULL, 'p' },
		{ "daemon", 1, NULL, 'd' }, { "dir", 1, NULL, 'D' }, { "tcp", 0, NULL, 'T' },
		{ "hard", 0, NULL, 'H' }, { "final", 0, NULL, 'F' }, { "disk", 1, NULL, 'o' },
		{ "disk_size", 1, NULL, 'O' }, { "writes", 0, NULL, 'W' }, { "far", 1, NULL, 'f' },
		{ "shared", 1, NULL, 'r' }, { "shared_size", 1, NULL, 'R' }, { "tiers", 0, NULL, 'M' },
		{ NULL, 0, NULL, 0 },
	};
	int c, is_final = 0;

	while ((c = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		switch (c) {
		case 'l': a->log = optarg; break;
		case 'm': a->master = optarg; break;
		case 'h': a->hostname = optarg; break;
		case 'w': a->writer = (unsigned)atoi(optarg); break;
		case 't': a->threads = (unsigned)atoi(optarg); break;
		case 'k': a->keys = (unsigned)atoi(optarg); break;
		case 's': a->size_max = strtoull(optarg, NULL, 0); break;
		case 'g': a->segment = strtoull(optarg, NULL, 0); break;
		case 'p': a->pause_us = (unsigned)atoi(optarg); break;
		case 'd': a->daemon = optarg; break;
		case 'D': a->dir = optarg; break;
		case 'T': a->tcp = true; break;
		case 'H': a->hard = true; break;
		case 'W': a->writes = true; break;
		case 'o': a->disk = optarg; break;
		case 'O': a->disk_size = strtoull(optarg, NULL, 0); break;
		case 'f': a->far = strtoull(optarg, NULL, 0); break;
		case 'r': a->shared = optarg; break;
		case 'R': a->shared_size = strtoull(optarg, NULL, 0); break;
		case 'M': a->tiers = true; break;
		case 'F': is_final = 1; break;
		default: return -EINVAL;
		}
	}
	return a->log && a->keys && a->keys <= HIST_KEYS_MAX && a->threads <= THREADS_MAX &&
	       a->size_max <= HIST_SIZE_MAX && a->size_max >= 1024 ? is_final : -EINVAL;
}

int main(int argc, char **argv)
{
	struct hist_actor a = {
		.master = "127.0.0.1:50051", .hostname = "127.0.0.1", .keys = 16, .threads = 3,
		.size_max = HIST_SIZE_MAX,
	};
	struct hist_thread t = { 0 };
	int is_final = actor_options(&a, argc, argv), r;

	if (is_final < 0) {
		fprintf(stderr, "usage: see the head of tests/history/hist_actor.c\n");
		return 2;
	}
	signal(SIGTERM, on_signal);
	signal(SIGUSR1, on_signal);
	if (a.dir)
		calls = &hist_file_calls;
	r = log_open(a.log);
	if (r < 0) {
		fprintf(stderr, "cannot create the log %s: %s\n", a.log, strerror(-r));
		return 2;
	}
	r = calls->open(&a);
	if (r < 0)
		return 2;
	if (is_final) {
		thread_init(&t, &a, 0);
		r = final(&t);
		free(t.buf);
	} else {
		r = act(&a);
	}
	calls->close();
	return r;
}
