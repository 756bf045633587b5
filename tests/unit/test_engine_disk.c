/* SPDX-License-Identifier: Apache-2.0
 * test_engine_disk.c - reading regions whose bytes are on an SSD: in this process, over TCP, with errors and delays. */
#include <config.h>

#include "test_engine_fixture.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/crc32c.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/security/capability.h"
#include "tiers/tier.h"

#define MIB (1ull << 20)
#define LEN (8 * MIB)
#define SEED 5

static char dir[] = "/var/tmp/mc-disk.XXXXXX";
static struct mct_medium *medium;

struct stored {
	struct mct_write w;
	sem_t sem;
};

static void stored_done(struct mct_write *w)
{
	sem_post(&((struct stored *)w)->sem);
}

static int setup(void **state)
{
	const struct mct_conf conf = { .size = LEN, .path = dir, .buffers = 8 * MIB };
	struct stored s = { .w = { .len = MCT_PIECE_MAX, .done = stored_done } };
	void *buf;

	if (!mkdtemp(dir) || mct_medium_open("ssd", &conf, &medium) < 0)
		return -1;
	sem_init(&s.sem, 0, 0);
	if (medium->ops->buffer_get(medium, SECONDS(5), &buf) < 0)
		return -1;
	s.w.buf = buf;
	for (; s.w.off < LEN; s.w.off += MCT_PIECE_MAX) {
		pattern_fill(buf, MCT_PIECE_MAX, SEED, s.w.off);
		medium->ops->write_start(medium, &s.w);
		sem_wait(&s.sem);
		if (s.w.status < 0)
			return -1;
	}
	medium->ops->buffer_put(medium, buf);
	return 0;
}

static int teardown(void **state)
{
	char cmd[80];

	mct_medium_close(medium);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd);
}

/* An owner with the SSD, and a reader: the same engine, or another one. */
struct pair {
	struct side owner, other;
	struct mce_engine *e;
	struct mce_mr *mr;
	struct mce_peer *peer;
	uint64_t base, rkey;
};

static bool admit(void *arg, const struct mc_principal *p)
{
	return true;
}

static void pair_open_as(struct pair *p, bool same, bool guarded)
{
	struct mce_mr_attr attr = {
		.len = LEN, .access = MCE_ACCESS_READ, .fd = -1, .medium = medium, .guarded = guarded,
	};
	struct mce_conf conf = { .force_tcp = true, .peer_admitted = guarded ? admit : NULL };

	side_open(&p->owner, guarded ? &conf : NULL, MIB, MCE_ACCESS_READ | MCE_ACCESS_WRITE, 1);
	assert_int_equal(mce_mr_register(p->owner.e, &attr, &p->mr), 0);
	if (!same)
		side_open(&p->other, &conf, 0, 0, 0);
	p->e = same ? p->owner.e : p->other.e;
	p->base = mce_mr_base(p->mr);
	p->rkey = mce_mr_rkey(p->mr);
	assert_int_equal(mce_peer_get(p->e, mce_engine_endpoint(p->owner.e), &p->peer), 0);
}

static void pair_open(struct pair *p, bool same)
{
	pair_open_as(p, same, false);
}

static void pair_close(struct pair *p)
{
	mce_peer_put(p->peer);
	if (p->e != p->owner.e)
		side_close(&p->other);
	mce_mr_unregister(p->mr);
	side_close(&p->owner);
}

static void reads(bool same, enum mce_path want)
{
	static const uint64_t range[][2] = {
		{ 0, LEN }, { 0, 1 }, { LEN - 1, 1 }, { 4096, 4096 }, { 100, 3 * MIB + 7 }, { MIB - 1, 2 },
	};
	char *mem = malloc(LEN);
	enum mce_path path;
	struct pair p;

	pair_open(&p, same);
	for (unsigned i = 0; i < sizeof(range) / sizeof(range[0]); i++) {
		assert_int_equal(transfer(p.e, p.peer, MCE_READ, p.base + range[i][0], p.rkey, mem, range[i][1],
					  &path), 0);
		assert_int_equal(path, want);
		pattern_check(mem, range[i][1], SEED, range[i][0]);
	}
	assert_int_equal(transfer(p.e, p.peer, MCE_READ, p.base + LEN - 1, p.rkey, mem, 2, &path), -ERANGE);
	assert_int_equal(transfer(p.e, p.peer, MCE_WRITE, p.base, p.rkey, mem, 64, &path), -EACCES);
	/* Memory of the same owner is reached as before. */
	assert_int_equal(transfer(p.e, p.peer, MCE_READ, (uintptr_t)p.owner.mem, mce_mr_rkey(p.owner.mr), mem, 64,
				  &path), 0);
	pair_close(&p);
	free(mem);
}

static int read_with(const struct pair *p, struct mce_mr *of, uint64_t offset, uint64_t len)
{
	struct mc_capability cap = {
		.offset = offset, .len = len, .generation = 5, .rights = MC_CAPABILITY_READ,
		.expires_s = (uint32_t)(mc_wall_ms() / 1000) + 60,
	};
	static char mem[4096];
	struct iovec iov = { mem, sizeof(mem) };
	struct mce_req req = {
		.op = MCE_READ, .peer = p->peer, .addr = p->base + 4096, .rkey = p->rkey, .iov = &iov, .iovcnt = 1,
	};
	uint8_t key[MC_CAPABILITY_KEY];

	if (of) {
		assert_true(mce_mr_capability_key(of, key));
		/* These connections have no credential. */
		mc_capability_sign(key, 0, &cap);
		req.cap = &cap;
	}
	return mce_transfer(p->e, &req, SECONDS(30));
}

static void a_range_of_a_disk_needs_its_capability(void **state)
{
	const struct mce_mr_attr attr = {
		.len = LEN, .access = MCE_ACCESS_READ, .fd = -1, .medium = medium, .guarded = true,
	};
	struct mce_mr *other;
	struct pair p;

	pair_open_as(&p, false, true);
	assert_int_equal(mce_mr_register(p.owner.e, &attr, &other), 0);
	assert_int_equal(read_with(&p, NULL, 0, 0), -EACCES);
	/* Of another segment, such as another tenant's; of another range. */
	assert_int_equal(read_with(&p, other, 4096, 4096), -EACCES);
	assert_int_equal(read_with(&p, p.mr, 0, 4096), -EACCES);
	assert_int_equal(read_with(&p, p.mr, 4096, 4096), 0);
	mce_mr_unregister(other);
	pair_close(&p);
}

static void this_process_reads(void **state)
{
	reads(true, MCE_PATH_DISK);
}

static void another_engine_reads_over_tcp(void **state)
{
	reads(false, MCE_PATH_TCP);
}

static void checksums_are_of_the_bytes(void **state)
{
	const uint64_t len = 2 * MIB + 100;
	char *mem = malloc(len);
	uint32_t crc[33];
	struct pair p;

	for (unsigned same = 0; same < 2; same++) {
		struct iovec iov[2] = { { mem, 70000 }, { mem + 70000, len - 70000 } };
		struct mce_req req = {
			.op = MCE_READ, .iov = iov, .iovcnt = 2, .crc = crc, .crc_len = len,
		};

		pair_open(&p, same);
		req.peer = p.peer;
		req.rkey = p.rkey;
		req.addr = p.base + 64;
		assert_int_equal(mce_transfer(p.e, &req, SECONDS(10)), 0);
		pattern_check(mem, len, SEED, 64);
		for (uint64_t i = 0; i < 33; i++) {
			uint64_t n = len - i * MC_CRC_CHUNK < MC_CRC_CHUNK ? len - i * MC_CRC_CHUNK : MC_CRC_CHUNK;

			assert_int_equal(crc[i], mc_crc32c(mem + i * MC_CRC_CHUNK, n));
		}
		pair_close(&p);
	}
	free(mem);
}

static void a_failed_device_is_unavailable_until_it_works(void **state)
{
	int r;

	enum mce_path path;
	struct pair p;
	char mem[64];

	for (unsigned same = 0; same < 2; same++) {
		pair_open(&p, same);
		assert_int_equal(mc_fault_set("tiers.ssd.read=error:EIO"), 0);
		assert_int_equal(transfer(p.e, p.peer, MCE_READ, p.base, p.rkey, mem, 64, &path), -MC_EUNAVAILABLE);
		assert_int_equal(mc_fault_set(NULL), 0);
		while ((r = transfer(p.e, p.peer, MCE_READ, p.base, p.rkey, mem, 64, &path)) == -MC_EUNAVAILABLE)
			mc_sleep_ms(5);
		assert_int_equal(r, 0);
		pair_close(&p);
	}
}

/* The memory of a cancelled request belongs to the caller; other requests are not delayed. */
static void a_slow_device_delays_only_its_requests(void **state)
{
	enum mce_path path;
	struct pair p;
	char mem[64], other[64];

	for (unsigned same = 0; same < 2; same++) {
		struct iovec iov = { mem, sizeof(mem) };
		struct mce_req req = { .op = MCE_READ, .iov = &iov, .iovcnt = 1 };
		uint64_t begin;

		pair_open(&p, same);
		assert_int_equal(transfer(p.e, p.peer, MCE_READ, (uintptr_t)p.owner.mem, mce_mr_rkey(p.owner.mr),
					  other, sizeof(other), &path), 0);
		assert_int_equal(mc_fault_set("tiers.ssd.read=delay:600@1"), 0);
		req.peer = p.peer;
		req.rkey = p.rkey;
		req.addr = p.base;
		memset(mem, 0, sizeof(mem));
		assert_int_equal(mce_transfer(p.e, &req, mc_deadline_ms(50)), -MC_ETIMEDOUT);
		memset(mem, 'x', sizeof(mem));
		begin = mc_now_ms();
		assert_int_equal(transfer(p.e, p.peer, MCE_READ, (uintptr_t)p.owner.mem, mce_mr_rkey(p.owner.mr),
					  other, sizeof(other), &path), 0);
		assert_true(mc_now_ms() - begin < 300);
		assert_int_equal(transfer(p.e, p.peer, MCE_READ, p.base + 4096, p.rkey, other, sizeof(other),
					  &path), 0);
		pattern_check(other, sizeof(other), SEED, 4096);
		for (unsigned i = 0; i < sizeof(mem); i++)
			assert_int_equal(mem[i], 'x');
		assert_int_equal(mc_fault_set(NULL), 0);
		pair_close(&p);
	}
}

/* More requests than buffers and than the window of a connection. */
static void many_reads_at_once(void **state)
{
	enum { N = 2000 };
	struct mce_req *req = calloc(N, sizeof(*req));
	struct iovec *iov = calloc(N, sizeof(*iov));
	char *mem = malloc(N * 512);
	struct mce_batch b;
	struct pair p;

	for (unsigned same = 0; same < 2; same++) {
		pair_open(&p, same);
		for (unsigned i = 0; i < N; i++) {
			iov[i] = (struct iovec){ mem + i * 512, 512 };
			req[i] = (struct mce_req){
				.op = MCE_READ, .peer = p.peer, .rkey = p.rkey, .addr = p.base + i * 4096 % LEN + 100,
				.iov = &iov[i], .iovcnt = 1,
			};
		}
		mce_batch_init(&b);
		mce_submit(p.e, &b, req, N);
		assert_int_equal(mce_batch_wait(p.e, &b, req, N, SECONDS(30)), 0);
		for (unsigned i = 0; i < N; i++) {
			assert_int_equal(req[i].status, 0);
			pattern_check(mem + i * 512, 512, SEED, i * 4096 % LEN + 100);
		}
		pair_close(&p);
	}
	free(mem);
	free(iov);
	free(req);
}

/* A medium that takes its time to end a read. */
static struct mct_medium *real;
static int answered, late;

static void slow_read_start(struct mct_medium *m, struct mct_read *r)
{
	(void)m;
	real->ops->read_start(real, r);
	mc_sleep_ms(20);
}

static void slow_read_end(struct mct_medium *m, struct mct_read *r)
{
	(void)m;
	mc_sleep_ms(60);
	__atomic_fetch_add(&late, __atomic_load_n(&answered, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
	real->ops->read_end(real, r);
}

/* The read is memory of the request's job, which ends with the answer. */
static void a_request_ends_after_the_reads_of_its_pieces(void **state)
{
	struct mct_tier_ops ops = *medium->ops;
	struct mct_medium slow = { &ops };
	enum mce_path path;
	struct pair p;
	char mem[64];

	ops.read_start = slow_read_start;
	ops.read_end = slow_read_end;
	real = medium;
	medium = &slow;
	pair_open(&p, true);
	assert_int_equal(transfer(p.e, p.peer, MCE_READ, p.base, p.rkey, mem, sizeof(mem), &path), 0);
	__atomic_store_n(&answered, 1, __ATOMIC_RELAXED);
	assert_int_equal(path, MCE_PATH_DISK);
	pattern_check(mem, sizeof(mem), SEED, 0);
	pair_close(&p);
	medium = real;
	/* The medium's own thread, if it was late, has read freed memory by now. */
	mc_sleep_ms(100);
	assert_int_equal(late, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(this_process_reads),
		cmocka_unit_test(another_engine_reads_over_tcp),
		cmocka_unit_test(a_range_of_a_disk_needs_its_capability),
		cmocka_unit_test(checksums_are_of_the_bytes),
		cmocka_unit_test(a_failed_device_is_unavailable_until_it_works),
		cmocka_unit_test(a_slow_device_delays_only_its_requests),
		cmocka_unit_test(many_reads_at_once),
		cmocka_unit_test(a_request_ends_after_the_reads_of_its_pieces),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
