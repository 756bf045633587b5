/* SPDX-License-Identifier: Apache-2.0
 * client_hunter.c - hunts for wrong bytes: threads put, upsert, remove and rename a few keys in a
 * pool that is much too small, others read them by every call, and every byte that arrives is
 * checked.
 *
 *	client_hunter MASTER SECONDS SEGMENT_MIB ME PROCESSES [tcp]
 *
 * MASTER "self" starts one in this process.  ME is this process's number, below PROCESSES.
 *
 * A value is a sequence of 16-byte records (the last one may be cut): a stamp, made of the writer, the
 * name and the writer's count for this name, and the stamp mixed with the record's position.  So each
 * piece of a value identifies its value.  Only one thread writes a name, with growing stamps, and a
 * reader must not see them decrease; only names of a rename group are renamed, to each other. */
#include <config.h>

#include <mooncake/mcs.h>

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "master/master.h"

#define WRITERS 2
#define READERS 2
#define KEYS 12			/* per writer */
#define MOVING 8		/* names of each writer's rename group */
#define SIZE_MAX_BYTES ((size_t)700 << 10)

static unsigned me, processes;
static uint64_t end_ns, last_ns;
static mcs_t *store[2];		/* store[0] contributes memory, store[1] does not */
static uint64_t hits, misses, puts_done, ranges, maps, failures, renames, wrong;

static bool went_through_everything(void)
{
	const uint64_t *all[] = { &puts_done, &hits, &misses, &ranges, &renames };

	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (!__atomic_load_n(all[i], __ATOMIC_RELAXED))
			return false;
	return true;
}

/* On a slow machine continue longer than requested, until every call has been used. */
static bool goes_on(void)
{
	uint64_t now = mc_now_ns();

	return now < end_ns || (now < last_ns && !went_through_everything());
}

static uint64_t rnd(uint64_t *state)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return *state >> 24;
}

/* ---- values ---- */

struct stamp {			/* packed into 64 bits: name 24, count 40 */
	uint32_t name;
	uint64_t count;
};

static uint64_t pack(struct stamp s)
{
	return (uint64_t)s.name << 40 | s.count;
}

static uint64_t mix(uint64_t stamp, uint64_t record)
{
	uint64_t z = stamp ^ (record + 1) * 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	return z ^ z >> 27;
}

static void make(unsigned char *buf, size_t len, uint64_t stamp, uint64_t first)
{
	for (size_t at = 0; at < len; at += 16) {
		uint64_t rec[2] = { stamp, mix(stamp, first + at / 16) };

		memcpy(buf + at, rec, len - at < 16 ? len - at : 16);
	}
}

static void report(const char *how, const char *key, uint64_t off, size_t at, uint64_t stamp)
{
	__atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
	fprintf(stderr, "WRONG BYTES: %s %s offset %" PRIu64 " + %zu, stamp %" PRIx64 "\n", how, key,
		off, at, stamp);
}

/* Check @len bytes from @off (a multiple of 16) of the value under @name.  Return the stamp's
 * count, or 0 when the piece is too short to contain one. */
static uint64_t check(const char *how, const char *key, uint32_t name, const unsigned char *buf,
		      size_t len, uint64_t off)
{
	unsigned char want[16];
	uint64_t stamp;

	if (len < 16)
		return 0;
	memcpy(&stamp, buf, 8);
	if (stamp >> 40 != name) {
		report(how, key, off, 0, stamp);
		return 0;
	}
	for (size_t at = 0; at < len; at += 16) {
		size_t n = len - at < 16 ? len - at : 16;

		make(want, 16, stamp, (off + at) / 16);
		if (memcmp(want, buf + at, n)) {
			report(how, key, off, at, stamp);
			return 0;
		}
	}
	return stamp & (((uint64_t)1 << 40) - 1);
}

/* ---- names: each writer of each process has KEYS plain names and one rename group ---- */

static uint32_t writer_no(unsigned process, unsigned writer)
{
	return process * WRITERS + writer;
}

static uint32_t plain_name(uint32_t writer, unsigned i, char key[32])
{
	snprintf(key, 32, "w%u/k%u", writer, i);
	return writer * 64 + i;
}

static uint32_t moving_name(uint32_t writer, unsigned i, char key[32])
{
	snprintf(key, 32, "w%u/m%u", writer, i);
	return writer * 64 + 63;
}

static struct mcs_key key_of(const char *key)
{
	return (struct mcs_key){ key, strlen(key) };
}

/* Errors that may occur under memory pressure; any other error is a finding. */
static void expected(const char *how, const char *key, int64_t r)
{
	switch (r) {
	case -MCS_ENOOBJECT:
		__atomic_add_fetch(&misses, 1, __ATOMIC_RELAXED);
		return;
	case -MCS_ELEASED:
	case -MCS_EREPLICA_GONE:
		__atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
		return;
	}
	__atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
	fprintf(stderr, "UNEXPECTED: %s %s: %" PRId64 " %s\n", how, key, r,
		mcs_error_detail((int)r));
}

static void hit(uint64_t *counter)
{
	__atomic_add_fetch(&hits, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
}

/* ---- writers ---- */

struct writer {
	pthread_t thread;
	uint32_t no;
	uint64_t state, count;
	unsigned char *buf;
};

static void write_one(struct writer *w, mcs_t *s, const char *key, uint32_t name, unsigned flags)
{
	const struct mcs_put_opts opts = { .flags = flags };
	size_t len = rnd(&w->state) % 8 ? rnd(&w->state) % SIZE_MAX_BYTES :
		rnd(&w->state) % 4096;
	uint64_t count = ++w->count;
	struct iovec iov[2];
	struct mcs_info info;
	int64_t r;

	make(w->buf, len, pack((struct stamp){ name, count }), 0);
	iov[0] = (struct iovec){ w->buf, len / 3 };
	iov[1] = (struct iovec){ w->buf + len / 3, len - len / 3 };
	r = mcs_put(s, key_of(key), iov, 2, &opts, -1);
	if (r < 0) {
		expected("put", key, r);
		return;
	}
	__atomic_add_fetch(&puts_done, 1, __ATOMIC_RELAXED);
	/* Only this thread writes the name, so the key now has this value or none. */
	if (!(flags & MCS_PUT_UPSERT) || mcs_stat(s, key_of(key), &info, -1) < 0)
		return;
	iov[0].iov_len = 16;
	r = mcs_get_range(s, key_of(key), 0, iov, 1, -1);
	if (r == 16 && check("own", key, name, w->buf, 16, 0) != count)
		report("own value is not the last one put:", key, 0, 0, count);
	else if (r < 0)
		expected("own", key, r);
}

static void move_one(struct writer *w, mcs_t *s)
{
	char from[32], to[32];
	uint32_t name = moving_name(w->no, (unsigned)(rnd(&w->state) % MOVING), from);
	int r;

	(void)moving_name(w->no, (unsigned)(rnd(&w->state) % MOVING), to);
	if (!strcmp(from, to) || rnd(&w->state) % 3 == 0) {
		write_one(w, s, from, name, MCS_PUT_UPSERT);
		return;
	}
	r = mcs_rename(s, key_of(from), key_of(to), 0, -1);
	if (r < 0)
		expected("rename", from, r);
	else
		__atomic_add_fetch(&renames, 1, __ATOMIC_RELAXED);
}

static void *writer_main(void *arg)
{
	struct writer *w = arg;

	while (goes_on()) {
		mcs_t *s = store[rnd(&w->state) % 2];
		unsigned what = (unsigned)(rnd(&w->state) % 16);
		char key[32];
		uint32_t name = plain_name(w->no, (unsigned)(rnd(&w->state) % KEYS), key);
		int r;

		if (what < 5) {
			write_one(w, s, key, name, MCS_PUT_UPSERT);
		} else if (what < 10) {
			write_one(w, s, key, name, 0);
		} else if (what < 13) {
			r = mcs_remove(s, key_of(key), what & 1 ? MCS_REMOVE_FORCE : 0, -1);
			if (r < 0)
				expected("remove", key, r);
		} else {
			move_one(w, s);
		}
	}
	return NULL;
}

/* ---- readers ---- */

struct reader {
	pthread_t thread;
	uint64_t state;
	unsigned char *buf;
	uint64_t *seen;		/* newest count per name */
};

static void saw(struct reader *rd, const char *key, uint32_t name, bool moving, uint64_t count)
{
	if (!count || moving)
		return;
	if (count < rd->seen[name])
		report("an older value came back:", key, 0, 0, count);
	rd->seen[name] = count;
}

static void read_whole(struct reader *rd, mcs_t *s, const char *key, uint32_t name, bool moving)
{
	struct iovec iov = { rd->buf, SIZE_MAX_BYTES };
	int64_t r = mcs_get(s, key_of(key), &iov, 1, -1);
	static uint64_t whole;

	if (r < 0) {
		expected("get", key, r);
		return;
	}
	hit(&whole);
	saw(rd, key, name, moving, check("get", key, name, rd->buf, (size_t)r, 0));
}

static void read_range(struct reader *rd, mcs_t *s, const char *key, uint32_t name, bool moving)
{
	uint64_t off = rnd(&rd->state) % SIZE_MAX_BYTES & ~(uint64_t)15;
	struct iovec iov = { rd->buf, rnd(&rd->state) % 200000 + 16 };
	int64_t r = mcs_get_range(s, key_of(key), off, &iov, 1, -1);

	if (r < 0) {
		expected("range", key, r);
		return;
	}
	hit(&ranges);
	saw(rd, key, name, moving, check("range", key, name, rd->buf, (size_t)r, off));
}

static void read_open(struct reader *rd, mcs_t *s, const char *key, uint32_t name, bool moving)
{
	const void *map = NULL;
	mcs_object_t *o;
	uint64_t size, count = 0;
	int64_t r = mcs_object_open(s, key_of(key), &o, -1);

	if (r < 0) {
		expected("open", key, r);
		return;
	}
	size = mcs_object_info(o)->size;
	if (!mcs_object_map(o, &map, -1) && !mcs_object_verify(o)) {
		count = check("map", key, name, map, size, 0);
		hit(&maps);
	}
	for (uint64_t off = 0; off < size; off += 100000 & ~15) {
		struct iovec iov = { rd->buf, 120000 };
		uint64_t c;

		r = mcs_object_read(o, off, &iov, 1, -1);
		if (r < 0) {
			expected("read", key, r);
			break;
		}
		c = check("read", key, name, rd->buf, (size_t)r, off);
		if (c && count && c != count)
			report("an open object changed:", key, off, 0, c);
		count = count ? count : c;
	}
	mcs_object_close(o);
	saw(rd, key, name, moving, count);
}

static void read_batch(struct reader *rd, mcs_t *s, uint32_t writer)
{
	struct mcs_get_item item[4];
	struct iovec iov[4];
	uint32_t name[4];
	char key[4][32];
	static uint64_t batched;

	for (unsigned i = 0; i < 4; i++) {
		name[i] = plain_name(writer, (unsigned)(rnd(&rd->state) % KEYS), key[i]);
		iov[i] = (struct iovec){ rd->buf + i * SIZE_MAX_BYTES, SIZE_MAX_BYTES };
		item[i] = (struct mcs_get_item){ key_of(key[i]), 0, 1, &iov[i], 1, 0 };
	}
	(void)mcs_get_batch(s, item, 4, -1);
	for (unsigned i = 0; i < 4; i++) {
		if (item[i].result < 0) {
			expected("batch", key[i], item[i].result);
			continue;
		}
		hit(&batched);
		(void)check("batch", key[i], name[i], iov[i].iov_base, (size_t)item[i].result, 0);
	}
}

static void *reader_main(void *arg)
{
	struct reader *rd = arg;

	while (goes_on()) {
		mcs_t *s = store[rnd(&rd->state) % 2];
		uint32_t writer = (uint32_t)(rnd(&rd->state) % (processes * WRITERS));
		bool moving = rnd(&rd->state) % 4 == 0;
		unsigned i = (unsigned)(rnd(&rd->state) % (moving ? MOVING : KEYS));
		char key[32];
		uint32_t name = moving ? moving_name(writer, i, key) : plain_name(writer, i, key);

		switch (rnd(&rd->state) % 4) {
		case 0:
			read_whole(rd, s, key, name, moving);
			break;
		case 1:
			read_range(rd, s, key, name, moving);
			break;
		case 2:
			read_open(rd, s, key, name, moving);
			break;
		default:
			read_batch(rd, s, writer);
		}
	}
	return NULL;
}

/* ---- all together ---- */

static int open_stores(const char *master, uint64_t segment, bool tcp)
{
	for (int i = 0; i < 2; i++) {
		struct mcs_conf conf;
		int r;

		mcs_conf_init(&conf);
		conf.master = master;
		conf.segment_size = i ? 0 : segment;
		conf.segment_kind = "memfd";
		conf.force_tcp = tcp;
		r = mcs_open(&conf, &store[i]);
		if (r < 0) {
			fprintf(stderr, "mcs_open: %s\n", mcs_error_detail(r));
			return r;
		}
	}
	return 0;
}

static struct mcm *start_master(struct mc_options **owner)
{
	const struct mcm_listen where = { .local_name = "self" };
	struct mcm_conf conf;
	struct mcm *m = NULL;
	int r;

	r = mcm_conf_defaults(&conf, owner);
	if (!r)
		r = mcm_start(&conf, &where, &m);
	if (r < 0)
		fprintf(stderr, "master: %s\n", mc_err_detail(r));
	return m;
}

static void hunt(void)
{
	static struct writer writer[WRITERS];
	static struct reader reader[READERS];

	for (unsigned i = 0; i < WRITERS; i++) {
		writer[i].no = writer_no(me, i);
		writer[i].state = 77 + writer[i].no;
		writer[i].buf = malloc(SIZE_MAX_BYTES);
		pthread_create(&writer[i].thread, NULL, writer_main, &writer[i]);
	}
	for (unsigned i = 0; i < READERS; i++) {
		reader[i].state = 999 + me * READERS + i;
		reader[i].buf = malloc(4 * SIZE_MAX_BYTES);
		reader[i].seen = calloc(processes * WRITERS * 64, sizeof(uint64_t));
		pthread_create(&reader[i].thread, NULL, reader_main, &reader[i]);
	}
	for (unsigned i = 0; i < WRITERS; i++) {
		pthread_join(writer[i].thread, NULL);
		free(writer[i].buf);
	}
	for (unsigned i = 0; i < READERS; i++) {
		pthread_join(reader[i].thread, NULL);
		free(reader[i].buf);
		free(reader[i].seen);
	}
}

int main(int argc, char **argv)
{
	struct mc_options *owner = NULL;
	struct mcs_pool pool = { 0 };
	struct mcm *m = NULL;
	const char *master;
	bool self;

	if (argc < 6) {
		fprintf(stderr, "usage: client_hunter MASTER SECONDS SEGMENT_MIB ME PROCESSES [tcp]\n");
		return 2;
	}
	self = !strcmp(argv[1], "self");
	master = self ? "local:self" : argv[1];
	me = (unsigned)atoi(argv[4]);
	processes = (unsigned)atoi(argv[5]);
	if (self && !(m = start_master(&owner)))
		return 1;
	if (open_stores(master, (uint64_t)atoi(argv[3]) << 20, argc > 6) < 0)
		return 1;
	end_ns = mc_now_ns() + (uint64_t)atoi(argv[2]) * MC_NS_PER_SEC;
	last_ns = end_ns + 10 * (uint64_t)atoi(argv[2]) * MC_NS_PER_SEC;
	hunt();
	(void)mcs_pool_stat(store[1], &pool, -1);
	mcs_close(store[1]);
	mcs_close(store[0]);
	mcm_stop(m);
	mc_options_free(owner);
	printf("puts %" PRIu64 " renames %" PRIu64 " hits %" PRIu64 " (ranges %" PRIu64 " maps %" PRIu64
	       ") misses %" PRIu64 " refused %" PRIu64 " evictions %" PRIu64 " wrong %" PRIu64 "\n",
	       puts_done, renames, hits, ranges, maps, misses, failures, pool.evictions, wrong);
	/* A run that did not use every call proves nothing. */
	if (!went_through_everything() || !pool.evictions) {
		fprintf(stderr, "the run did not use every call\n");
		return 1;
	}
	return wrong ? 1 : 0;
}
