/* SPDX-License-Identifier: Apache-2.0
 * mcbench_micro.c - put, get and exists for each size, compared with memcpy and a socket.
 *
 * Each thread has its share of the objects of a size.  A put always stores a new key: a key is removed, outside
 * of the measured time, before it is put again. */
#include <config.h>

#include "tools/bench/mcbench.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/sys/clock.h"
#include "common/sys/random.h"
#include "common/sys/thread.h"
#include "tools/bench/mcbench_content.h"
#include "tools/bench/mcbench_reference.h"
#include "tools/bench/mcbench_stats.h"

#define KEY_SIZE 96u
#define SIZES_MAX 64u
#define REFERENCE_MS 200
#define DURATION_MS 1000
#define OBJECTS_MAX 262144u

enum op { PUT, GET, EXISTS, N_OPS };
static const char *const op_names[N_OPS] = { "put", "get", "exists" };

struct micro {
	struct mcbench *b;
	uint64_t run;			/* number of this run, part of the key names */
	size_t size;
	uint32_t share;			/* objects of each thread, a multiple of the batch */
	uint64_t ms;
	uint64_t wrong_bytes;		/* atomic */
	unsigned blamed;		/* atomic */
	struct mcbench_stats stats[N_OPS];
	double memcpy_rate;		/* bytes per second */
	uint64_t socket_ns, small_ns;	/* round trip with an object, with 64 bytes */
	json_t *rows;			/* NULL: print a table */
	bool failed;			/* some request failed */
};

struct runner {
	struct mc_thread thread;
	struct micro *m;
	enum op op;
	uint32_t first;			/* object */
	uint64_t until_ns;
	unsigned batch;
	char *names, *buf;
	struct mcs_key *keys;
	struct iovec *iov;
	struct mcs_put_item *puts;
	struct mcs_get_item *gets;
	uint8_t *present;
	int err;
};

static void name_batch(struct runner *t, uint32_t from)
{
	for (unsigned i = 0; i < t->batch; i++) {
		char *name = t->names + i * KEY_SIZE;

		t->keys[i].data = name;
		t->keys[i].len = (size_t)snprintf(name, KEY_SIZE, "mcbench/%016" PRIx64 "/%zu/%"
						  PRIu32, t->m->run, t->m->size, from + i);
	}
}

static void put_batch(struct runner *t, uint32_t from, struct mcbench_stats *stats)
{
	size_t size = t->m->size;
	uint64_t begun, ns;
	int r;

	for (unsigned i = 0; i < t->batch; i++) {
		mcbench_content_fill(t->iov[i].iov_base, size, from + i, (uint64_t)t->m->b->conf->seed);
		t->puts[i] = (struct mcs_put_item){
			.key = t->keys[i], .iov = &t->iov[i], .iovcnt = 1,
		};
	}
	begun = mc_now_ns();
	r = mcs_put_batch(t->m->b->store, t->puts, t->batch, NULL, -1);
	ns = mc_now_ns() - begun;
	if (!stats)
		return;
	mcbench_stats_call(stats, ns);
	for (unsigned i = 0; i < t->batch; i++) {
		if (r < 0 || t->puts[i].result < 0)
			mcbench_stats_error(stats, r < 0 ? r : t->puts[i].result, 1);
		else
			mcbench_stats_items(stats, 1, size);
	}
}

static void check_item(struct runner *t, unsigned i, uint32_t object, struct mcbench_stats *stats)
{
	struct mcbench_wrong wrong = { .bytes = t->m->size };
	int64_t r = t->gets[i].result;

	if (r < 0 && r != -ENOBUFS) {
		mcbench_stats_error(stats, (int)r, 1);
		return;
	}
	if (r == (int64_t)t->m->size && !mcbench_content_check(t->iov[i].iov_base, t->m->size, object,
				   (uint64_t)t->m->b->conf->seed, &wrong)) {
		mcbench_stats_items(stats, 1, t->m->size);
		return;
	}
	__atomic_fetch_add(&t->m->wrong_bytes, wrong.bytes, __ATOMIC_RELAXED);
	if (__atomic_fetch_add(&t->m->blamed, 1, __ATOMIC_RELAXED) >= MCBENCH_BLAMED_MAX)
		return;
	mcbench_complain(0, "WRONG BYTES: %s: %" PRIu64 " of %zu bytes", t->names + i * KEY_SIZE,
			 wrong.bytes, t->m->size);
}

static void get_batch(struct runner *t, uint32_t from, struct mcbench_stats *stats)
{
	uint64_t begun;
	int r;

	memset(t->buf, 0xa5, t->batch * t->m->size);
	for (unsigned i = 0; i < t->batch; i++)
		t->gets[i] = (struct mcs_get_item){
			.key = t->keys[i], .whole = 1, .iov = &t->iov[i], .iovcnt = 1,
		};
	begun = mc_now_ns();
	r = mcs_get_batch(t->m->b->store, t->gets, t->batch, -1);
	mcbench_stats_call(stats, mc_now_ns() - begun);
	if (r < 0) {
		mcbench_stats_error(stats, r, t->batch);
		return;
	}
	for (unsigned i = 0; i < t->batch; i++)
		check_item(t, i, from + i, stats);
}

static void exist_batch(struct runner *t, struct mcbench_stats *stats)
{
	uint64_t begun = mc_now_ns();
	int r = mcs_exist(t->m->b->store, t->keys, t->batch, t->present, -1);

	mcbench_stats_call(stats, mc_now_ns() - begun);
	if (r >= 0)
		mcbench_stats_items(stats, t->batch, 0);
	if (r < 0 || (unsigned)r < t->batch)
		mcbench_stats_error(stats, r < 0 ? r : -MCS_ENOOBJECT,
				    r < 0 ? t->batch : t->batch - (unsigned)r);
}

static void remove_batch(struct runner *t)
{
	(void)mcs_remove_batch(t->m->b->store, t->keys, t->batch, MCS_REMOVE_FORCE, NULL, -1);
}

static bool runner_over(const struct runner *t)
{
	return mc_now_ns() >= t->until_ns || mcbench_stopped();
}

static void run_puts(struct runner *t)
{
	uint32_t at = 0;
	bool again = false;

	while (!runner_over(t)) {
		name_batch(t, t->first + at);
		if (again)
			remove_batch(t);
		put_batch(t, t->first + at, &t->m->stats[PUT]);
		at += t->batch;
		if (at == t->m->share) {
			at = 0;
			again = true;
		}
	}
	/* Put the objects for which the time was too short: the gets need all of them. */
	for (; !again && at < t->m->share && !mcbench_stopped(); at += t->batch) {
		name_batch(t, t->first + at);
		put_batch(t, t->first + at, NULL);
	}
}

/* Batches of all threads' objects, in an unpredictable order. */
static void run_reads(struct runner *t)
{
	uint32_t batches = t->m->share / t->batch * (uint32_t)t->m->b->conf->threads, from;
	uint64_t x = mc_random_u64();

	while (!runner_over(t)) {
		x = mc_hash(&x, sizeof(x), 0);
		from = (uint32_t)(x % batches) * t->batch;
		name_batch(t, from);
		if (t->op == GET)
			get_batch(t, from, &t->m->stats[GET]);
		else
			exist_batch(t, &t->m->stats[EXISTS]);
	}
}

static int runner_init(struct runner *t)
{
	t->batch = (unsigned)t->m->b->conf->batch;
	t->names = malloc(t->batch * (size_t)KEY_SIZE);
	t->keys = calloc(t->batch, sizeof(*t->keys));
	t->iov = calloc(t->batch, sizeof(*t->iov));
	t->puts = calloc(t->batch, sizeof(*t->puts));
	t->gets = calloc(t->batch, sizeof(*t->gets));
	t->present = calloc(t->batch, 1);
	if (posix_memalign((void **)&t->buf, 4096, t->batch * t->m->size))
		t->buf = NULL;
	if (!t->names || !t->keys || !t->iov || !t->puts || !t->gets || !t->present || !t->buf)
		return -ENOMEM;
	(void)mcs_register_buffer(t->m->b->store, t->buf, t->batch * t->m->size);
	for (unsigned i = 0; i < t->batch; i++) {
		t->iov[i].iov_base = t->buf + i * t->m->size;
		t->iov[i].iov_len = t->m->size;
	}
	return 0;
}

static void runner_done(struct runner *t)
{
	if (t->buf)
		(void)mcs_unregister_buffer(t->m->b->store, t->buf);
	free(t->names);
	free(t->keys);
	free(t->iov);
	free(t->puts);
	free(t->gets);
	free(t->present);
	free(t->buf);
}

static void *run_thread(void *arg)
{
	struct runner *t = arg;

	t->err = runner_init(t);
	if (t->err == 0) {
		/* The time begins here, after the memory was allocated. */
		t->until_ns = mc_now_ns() + t->m->ms * MC_NS_PER_MS;
		if (t->op == PUT)
			run_puts(t);
		else
			run_reads(t);
	}
	runner_done(t);
	return NULL;
}

static int run_op(struct micro *m, enum op op)
{
	unsigned n = (unsigned)m->b->conf->threads, started;
	struct runner *all = calloc(n, sizeof(*all));
	int err = all ? 0 : -ENOMEM;

	for (started = 0; err == 0 && started < n; started++) {
		all[started].m = m;
		all[started].op = op;
		all[started].first = started * m->share;
		err = mc_thread_start(&all[started].thread, op_names[op], run_thread, &all[started]);
		if (err < 0)
			break;
	}
	for (unsigned i = 0; i < started; i++) {
		mc_thread_join(all[i].thread);
		err = err ? err : all[i].err;
	}
	free(all);
	return err;
}

/* ---- the table ---- */

static void print_head(void)
{
	printf("%-9s %-7s %12s %8s %9s %9s %9s  %8s %8s\n", "size", "", "objects/s", "GB/s", "p50",
	       "p99", "max", "x memcpy", "x socket");
}

/* Speed relative to memcpy; 0: no reference. */
static double against_memcpy(const struct micro *m, enum op op)
{
	double rate = mcbench_stats_bytes_rate(&m->stats[op], (unsigned)m->b->conf->threads);

	return op == EXISTS ? 0 : rate / m->memcpy_rate;
}

static double against_socket(const struct micro *m, enum op op)
{
	uint64_t ns = mc_hist_quantile(&m->stats[op].ns, 0.5);
	uint64_t trip = op == EXISTS ? m->small_ns : m->socket_ns;

	return ns ? (double)trip * (double)m->b->conf->batch / (double)ns : 0;
}

static void print_row(struct micro *m, enum op op)
{
	struct mcbench_stats *s = &m->stats[op];
	unsigned threads = (unsigned)m->b->conf->threads;
	char size[32], p50[32], p99[32], max[32];

	printf("%-9s %-7s %12.0f ", mc_format_size(m->size, size, sizeof(size)), s->name,
	       mcbench_stats_items_rate(s, threads));
	if (op == EXISTS)
		printf("%8s ", "-");
	else
		printf("%8.3f ", mcbench_stats_bytes_rate(s, threads) / 1e9);
	printf("%9s %9s %9s ", mcbench_time_text(mc_hist_quantile(&s->ns, 0.5), p50, sizeof(p50)),
	       mcbench_time_text(mc_hist_quantile(&s->ns, 0.99), p99, sizeof(p99)),
	       mcbench_time_text(s->ns.max, max, sizeof(max)));
	if (op == EXISTS)
		printf(" %8s", "-");
	else
		printf(" %8.2f", against_memcpy(m, op));
	printf(" %8.2f\n", against_socket(m, op));
	fflush(stdout);
}

static void keep_row(struct micro *m, enum op op)
{
	json_t *j = mcbench_stats_json(&m->stats[op], (unsigned)m->b->conf->threads);

	json_object_set_new(j, "op", json_string(op_names[op]));
	json_object_set_new(j, "size", json_integer((json_int_t)m->size));
	if (op != EXISTS)
		json_object_set_new(j, "x_memcpy", json_real(against_memcpy(m, op)));
	json_object_set_new(j, "x_socket", json_real(against_socket(m, op)));
	json_object_set_new(j, "memcpy_bytes_per_second", json_real(m->memcpy_rate));
	json_object_set_new(j, "socket_ns", json_integer((json_int_t)(op == EXISTS ? m->small_ns :
								       m->socket_ns)));
	json_array_append_new(m->rows, j);
}

static void show_row(struct micro *m, enum op op)
{
	if (m->stats[op].failed)
		m->failed = true;
	if (m->rows) {
		keep_row(m, op);
		return;
	}
	print_row(m, op);
	mcbench_stats_errors(&m->stats[op], stdout);
}

/* ---- the run ---- */

static void remove_objects(struct micro *m)
{
	char name[KEY_SIZE];
	struct mcs_key prefix = { name, 0 };
	int64_t r;

	prefix.len = (size_t)snprintf(name, sizeof(name), "mcbench/%016" PRIx64 "/", m->run);
	r = mcs_remove_match(m->b->store, prefix, NULL, MCS_REMOVE_FORCE, -1);
	if (r < 0)
		mcbench_complain(0, "cannot remove the objects of this run: %s; use \"mcctl rm "
				 "--prefix=%s\"", mcs_error_detail((int)r), name);
}

static int measure_references(struct micro *m)
{
	unsigned threads = (unsigned)m->b->conf->threads;
	int err = mcbench_reference_memcpy(m->size, (size_t)m->b->conf->working_set, threads,
					   REFERENCE_MS, &m->memcpy_rate);

	if (err == 0)
		err = mcbench_reference_socket(m->size, REFERENCE_MS, &m->socket_ns);
	if (err == 0)
		err = mcbench_reference_socket(64, REFERENCE_MS, &m->small_ns);
	return err < 0 ? mcbench_complain(MCBENCH_FAILED, "cannot measure the machine: %s",
					  mc_err_detail(err)) : MCBENCH_OK;
}

static int measure_size(struct micro *m, uint64_t size)
{
	const struct mcbench_conf *conf = m->b->conf;
	uint64_t each = (uint64_t)conf->batch * size, all = conf->working_set;
	int status, err;

	if (all > OBJECTS_MAX * size)
		all = OBJECTS_MAX * size;
	m->size = (size_t)size;
	m->share = (uint32_t)(all / (uint64_t)conf->threads / each * (uint64_t)conf->batch);
	if (!m->share)
		return mcbench_complain(MCBENCH_USAGE, "a working set of %" PRIu64 " bytes is smaller than "
					"one batch of %" PRId64 " x %" PRIu64 " bytes for each of "
					"%" PRId64 " threads; set --working_set, --batch or "
					"--threads", conf->working_set, conf->batch, size,
					conf->threads);
	status = measure_references(m);
	for (int op = 0; op < N_OPS && status == MCBENCH_OK && !mcbench_stopped(); op++) {
		memset(&m->stats[op], 0, sizeof(m->stats[op]));
		m->stats[op].name = op_names[op];
		err = run_op(m, (enum op)op);
		if (err < 0)
			status = mcbench_complain(MCBENCH_FAILED, "cannot start %" PRId64
						  " threads with %" PRIu64 " bytes each: %s",
						  conf->threads, each, mc_err_detail(err));
		else
			show_row(m, (enum op)op);
	}
	remove_objects(m);
	return status;
}

static int parse_sizes(const char *list, uint64_t sizes[SIZES_MAX], unsigned *ret_n)
{
	auto_free char *copy = strdup(list);
	char *save = NULL;
	unsigned n = 0;

	if (!copy)
		return mcbench_complain(MCBENCH_FAILED, "out of memory");
	for (char *s = strtok_r(copy, ",", &save); s; s = strtok_r(NULL, ",", &save)) {
		if (n == SIZES_MAX)
			return mcbench_complain(MCBENCH_USAGE, "--sizes: more than %u sizes", SIZES_MAX);
		if (mc_parse_size(s, &sizes[n]) < 0 || !sizes[n] || sizes[n] > 1ull << 40)
			return mcbench_complain(MCBENCH_USAGE, "--sizes: \"%s\" is not a size; "
						"write for example 4KiB,1MiB", s);
		n++;
	}
	*ret_n = n;
	return n ? MCBENCH_OK : mcbench_complain(MCBENCH_USAGE, "--sizes is empty");
}

/* If objects were evicted, gets would measure misses. */
static int check_room(struct mcbench *b)
{
	char want[32], have[32];
	struct mcs_pool pool;
	int r = mcs_pool_stat(b->store, &pool, -1);

	if (r < 0)
		return mcbench_complain(MCBENCH_FAILED, "cannot ask for the pool: %s", mcs_error_detail(r));
	if (b->conf->working_set <= pool.capacity / 4 * 3)
		return MCBENCH_OK;
	return mcbench_complain(MCBENCH_FAILED, "a working set of %s does not fit into three "
				"quarters of the pool, which has %s; set --working_set, or add "
				"memory by --segment_size",
				mc_format_size(b->conf->working_set, want, sizeof(want)),
				mc_format_size(pool.capacity, have, sizeof(have)));
}

static int micro_finish(struct micro *m, int status)
{
	int err = 0;

	if (m->rows) {
		err = json_dumpf(m->rows, stdout, JSON_INDENT(2));
		putchar('\n');
		json_decref(m->rows);
	}
	if (m->wrong_bytes)
		return MCBENCH_WRONG;
	if (status == MCBENCH_OK && err < 0)
		return mcbench_complain(MCBENCH_FAILED, "cannot print JSON");
	return status == MCBENCH_OK && m->failed ? MCBENCH_ERRORS : status;
}

int mcbench_micro(struct mcbench *b)
{
	auto_free struct micro *m = calloc(1, sizeof(*m));
	uint64_t sizes[SIZES_MAX];
	unsigned n = 0;
	int status;

	if (!m)
		return mcbench_complain(MCBENCH_FAILED, "out of memory");
	status = parse_sizes(b->conf->sizes, sizes, &n);
	if (status == MCBENCH_OK)
		status = check_room(b);
	if (status != MCBENCH_OK)
		return status;
	m->b = b;
	m->run = mc_random_u64();
	m->ms = b->conf->duration ? b->conf->duration : DURATION_MS;
	m->rows = b->conf->json ? json_array() : NULL;
	if (!m->rows) {
		printf("%" PRId64 " threads, batches of %" PRId64 ", %" PRIu64 " ms each; x memcpy "
		       "and x socket: times as fast\n", b->conf->threads, b->conf->batch, m->ms);
		print_head();
	}
	for (unsigned i = 0; i < n && status == MCBENCH_OK && !mcbench_stopped(); i++)
		status = measure_size(m, sizes[i]);
	return micro_finish(m, status);
}
