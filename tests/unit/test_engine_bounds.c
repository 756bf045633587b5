/* SPDX-License-Identifier: Apache-2.0
 * test_engine_bounds.c - a peer cannot access memory without permission, on any path. */
#include <config.h>

#include "test_engine_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/crc32c.h"
#include "common/err.h"
#include "common/fault.h"

#define LEN (1ull << 20)
#define SEED 5

struct pair {
	struct side owner, user;
	struct mce_engine *from;
	struct mce_peer *peer;
	enum mce_path path;
};

static const enum mce_path paths[] = { MCE_PATH_LOCAL, MCE_PATH_MAPPED, MCE_PATH_TCP };

static void pair_open(struct pair *p, enum mce_path path, unsigned access)
{
	struct mce_conf conf = { .force_tcp = path == MCE_PATH_TCP };

	p->path = path;
	side_open(&p->owner, &conf, LEN, access, SEED);
	side_open(&p->user, &conf, 0, 0, 0);
	p->from = path == MCE_PATH_LOCAL ? p->owner.e : p->user.e;
	assert_int_equal(mce_peer_get(p->from, mce_engine_endpoint(p->owner.e), &p->peer), 0);
}

static void pair_close(struct pair *p)
{
	mce_peer_put(p->peer);
	side_close(&p->user);
	side_close(&p->owner);
}

static int try(struct pair *p, enum mce_op op, uint64_t addr, uint64_t rkey, void *mem, uint64_t len)
{
	enum mce_path path;
	int r = transfer(p->from, p->peer, op, addr, rkey, mem, len, &path);

	assert_true(path == p->path || (r < 0 && path == MCE_PATH_NONE));
	return r;
}

static void a_transfer_outside_the_region_is_refused(void **state)
{
	char *mem = malloc(2 * LEN);
	uint64_t base, key;
	struct pair p;

	for (unsigned i = 0; i < 3; i++) {
		pair_open(&p, paths[i], MCE_ACCESS_READ | MCE_ACCESS_WRITE);
		base = (uintptr_t)p.owner.mem;
		key = mce_mr_rkey(p.owner.mr);
		for (int op = MCE_READ; op <= MCE_WRITE; op++) {
			enum mce_op o = (enum mce_op)op;

			memset(mem, 0x11, 2 * LEN);
			assert_int_equal(try(&p, o, base - 1, key, mem, 2), -ERANGE);
			assert_int_equal(try(&p, o, base + LEN - 1, key, mem, 2), -ERANGE);
			assert_int_equal(try(&p, o, base + LEN, key, mem, 1), -ERANGE);
			assert_int_equal(try(&p, o, base - 1, key, mem, LEN + 2), -ERANGE);
			assert_int_equal(try(&p, o, UINT64_MAX, key, mem, 1), -ERANGE);
			assert_int_equal(try(&p, o, UINT64_MAX - 7, key, mem, 16), -ERANGE);
			assert_int_equal(try(&p, o, 0, key, mem, 16), -ERANGE);
			assert_int_equal(try(&p, o, base, key ^ 1, mem, 16), -ESTALE);
			assert_int_equal(try(&p, o, base, 0, mem, 16), -ESTALE);
			assert_int_equal(mem[0], 0x11);
			assert_int_equal(mem[2 * LEN - 1], 0x11);
		}
		pattern_check(p.owner.mem, LEN, SEED, 0);
		/* The last byte is inside. */
		assert_int_equal(try(&p, MCE_READ, base + LEN - 1, key, mem, 1), 0);
		pattern_check(mem, 1, SEED, LEN - 1);
		pair_close(&p);
	}
	free(mem);
}

/* The checksum trailer must fit, too. */
static void the_crc_trailer_must_fit_into_the_region(void **state)
{
	uint64_t len = 3 * MC_CRC_CHUNK, base, key;
	char *mem = malloc(len);
	struct iovec iov = { .iov_base = mem, .iov_len = len };
	uint32_t crc[3];
	struct mce_req req = {
		.op = MCE_WRITE, .iov = &iov, .iovcnt = 1, .crc = crc, .crc_len = len, .crc_tail = true,
	};
	struct pair p;

	memset(mem, 0x22, len);
	for (unsigned i = 0; i < 3; i++) {
		pair_open(&p, paths[i], MCE_ACCESS_READ | MCE_ACCESS_WRITE);
		base = (uintptr_t)p.owner.mem;
		key = mce_mr_rkey(p.owner.mr);
		req.peer = p.peer;
		req.rkey = key;
		req.addr = base + LEN - len - sizeof(crc);
		assert_int_equal(mce_transfer(p.from, &req, SECONDS(30)), 0);
		assert_memory_equal(p.owner.mem + LEN - sizeof(crc), crc, sizeof(crc));
		req.addr += 4;
		assert_int_equal(mce_transfer(p.from, &req, SECONDS(30)), -ERANGE);
		pair_close(&p);
	}
	free(mem);
}

static void access_bits_hold_on_every_path(void **state)
{
	static const unsigned rights[] = { 0, MCE_ACCESS_READ, MCE_ACCESS_WRITE };
	uint64_t base, key;
	struct pair p;
	char mem[64];
	int err, want;

	for (unsigned i = 0; i < 3; i++) {
		for (unsigned k = 0; k < 3; k++) {
			memset(mem, 0x33, sizeof(mem));
			pair_open(&p, paths[i], rights[k]);
			base = (uintptr_t)p.owner.mem;
			key = mce_mr_rkey(p.owner.mr);
			want = rights[k] & MCE_ACCESS_WRITE ? 0 : -EACCES;
			assert_int_equal(try(&p, MCE_WRITE, base, key, mem, sizeof(mem)), want);
			want = rights[k] & MCE_ACCESS_READ ? 0 : -EACCES;
			assert_int_equal(try(&p, MCE_READ, base, key, mem, sizeof(mem)), want);
			if (!(rights[k] & MCE_ACCESS_WRITE))
				pattern_check(p.owner.mem, LEN, SEED, 0);
			if (!(rights[k] & MCE_ACCESS_READ))
				assert_null(mce_peer_map(p.peer, base, key, 1, SECONDS(30), &err));
			pair_close(&p);
		}
	}
}

/* A peer that maps a region without WRITE gets a descriptor that cannot be written through. */
static void a_region_without_write_access_cannot_be_mapped_writable(void **state)
{
	struct pair p;
	const char *at;
	int err;

	pair_open(&p, MCE_PATH_MAPPED, MCE_ACCESS_READ);
	at = mce_peer_map(p.peer, (uintptr_t)p.owner.mem, mce_mr_rkey(p.owner.mr), LEN, SECONDS(30), &err);
	assert_non_null(at);
	assert_int_equal(mprotect((void *)(uintptr_t)at, LEN, PROT_READ | PROT_WRITE), -1);
	assert_int_equal(errno, EACCES);
	pair_close(&p);
}

static void an_unregistered_region_is_stale_at_once(void **state)
{
	struct mce_mr_attr attr = { .len = LEN, .access = MCE_ACCESS_READ | MCE_ACCESS_WRITE };
	uint64_t base, old, key;
	struct pair p;
	char mem[64];

	for (unsigned i = 0; i < 3; i++) {
		pair_open(&p, paths[i], attr.access);
		base = (uintptr_t)p.owner.mem;
		old = mce_mr_rkey(p.owner.mr);
		assert_int_equal(try(&p, MCE_READ, base, old, mem, 64), 0);
		mce_mr_unregister(p.owner.mr);
		/* At once, on every path, before peers are notified. */
		assert_int_equal(try(&p, MCE_READ, base, old, mem, 64), -ESTALE);
		assert_int_equal(try(&p, MCE_WRITE, base, old, mem, 64), -ESTALE);
		pattern_check(p.owner.mem, LEN, SEED, 0);
		/* The same memory gets a new key, and the old key stays invalid. */
		attr.base = p.owner.mem;
		attr.fd = p.owner.fd;
		assert_int_equal(mce_mr_register(p.owner.e, &attr, &p.owner.mr), 0);
		key = mce_mr_rkey(p.owner.mr);
		assert_true(key != old);
		assert_int_equal(try(&p, MCE_READ, base, old, mem, 64), -ESTALE);
		assert_int_equal(try(&p, MCE_READ, base + 9, key, mem, 64), 0);
		pattern_check(mem, 64, SEED, 9);
		pair_close(&p);
	}
}

/* Adjacent memory in two regions: no transfer spans both. */
static void no_transfer_spans_adjacent_regions(void **state)
{
	struct mce_mr_attr attr = { .len = LEN / 2, .access = MCE_ACCESS_READ };
	struct mce_mr *low, *high, *none = NULL;
	uint64_t base;
	struct pair p;
	char mem[64];

	for (unsigned i = 0; i < 3; i++) {
		pair_open(&p, paths[i], MCE_ACCESS_READ);
		base = (uintptr_t)p.owner.mem;
		mce_mr_unregister(p.owner.mr);
		attr.fd = p.owner.fd;
		attr.base = p.owner.mem;
		attr.fd_offset = 0;
		assert_int_equal(mce_mr_register(p.owner.e, &attr, &low), 0);
		attr.base = p.owner.mem + LEN / 2;
		attr.fd_offset = LEN / 2;
		assert_int_equal(mce_mr_register(p.owner.e, &attr, &high), 0);
		assert_int_equal(try(&p, MCE_READ, base + LEN / 2 - 8, mce_mr_rkey(low), mem, 64), -ERANGE);
		assert_int_equal(try(&p, MCE_READ, base + LEN / 2 - 8, mce_mr_rkey(high), mem, 64),
				 -ERANGE);
		assert_int_equal(try(&p, MCE_READ, base + LEN / 2 + 3, mce_mr_rkey(high), mem, 64), 0);
		pattern_check(mem, 64, SEED, LEN / 2 + 3);
		assert_int_equal(mce_mr_register(p.owner.e, &attr, &none), -EEXIST);
		attr.base = p.owner.mem + 4096;
		attr.fd_offset = 4096;
		assert_int_equal(mce_mr_register(p.owner.e, &attr, &none), -EEXIST);
		pair_close(&p);
	}
}

static void invalid_registrations_are_refused(void **state)
{
	struct mce_mr_attr good = { .access = MCE_ACCESS_READ, .len = LEN, .fd = -1 }, a;
	struct mce_mr *mr = NULL;
	struct side s;

	side_open(&s, NULL, LEN, MCE_ACCESS_READ, SEED);
	mce_mr_unregister(s.mr);
	good.base = s.mem;
	a = good;
	a.len = 0;
	assert_int_equal(mce_mr_register(s.e, &a, &mr), -EINVAL);
	a = good;
	a.len = UINT64_MAX;
	assert_int_equal(mce_mr_register(s.e, &a, &mr), -EINVAL);
	a = good;
	a.base = NULL;
	assert_int_equal(mce_mr_register(s.e, &a, &mr), -EINVAL);
	a = good;
	a.access = 8;
	assert_int_equal(mce_mr_register(s.e, &a, &mr), -EINVAL);
	a = good;
	a.fd = s.fd;
	a.fd_offset = 100;
	assert_int_equal(mce_mr_register(s.e, &a, &mr), -EINVAL);
	a = good;
	a.fd = s.fd;
	a.fd_offset = 4096;	/* the file ends before the region */
	assert_int_equal(mce_mr_register(s.e, &a, &mr), -EINVAL);
	a = good;
	a.fd = 9999;
	assert_int_equal(mce_mr_register(s.e, &a, &mr), -EBADF);
	assert_null(mr);
	assert_int_equal(mce_mr_register(s.e, &good, &mr), 0);
	mce_mr_unregister(mr);
	mce_mr_unregister(NULL);
	side_close(&s);
}

static void invalid_requests_are_refused(void **state)
{
	char mem[128];
	struct iovec iov[2] = { { mem, 64 }, { mem + 64, 64 } };
	struct mce_peer *none = NULL;
	uint32_t crc[2];
	struct mce_req good = { .op = MCE_READ, .iov = iov, .iovcnt = 2 }, r;
	struct pair p;

	pair_open(&p, MCE_PATH_MAPPED, MCE_ACCESS_READ | MCE_ACCESS_WRITE);
	good.peer = p.peer;
	good.addr = (uintptr_t)p.owner.mem;
	good.rkey = mce_mr_rkey(p.owner.mr);
	r = good;
	r.op = (enum mce_op)7;
	assert_int_equal(mce_transfer(p.from, &r, SECONDS(9)), -EINVAL);
	r = good;
	r.iov = NULL;
	assert_int_equal(mce_transfer(p.from, &r, SECONDS(9)), -EINVAL);
	r = good;
	r.crc = crc;
	r.crc_len = 129;
	assert_int_equal(mce_transfer(p.from, &r, SECONDS(9)), -EINVAL);
	r = good;
	r.crc = crc;
	r.crc_len = 128;
	r.crc_tail = true;	/* of a READ */
	assert_int_equal(mce_transfer(p.from, &r, SECONDS(9)), -EINVAL);
	r = good;
	r.op = MCE_WRITE;
	r.crc_tail = true;
	assert_int_equal(mce_transfer(p.from, &r, SECONDS(9)), -EINVAL);
	iov[1].iov_len = SIZE_MAX - 8;
	r = good;
	assert_int_equal(mce_transfer(p.from, &r, SECONDS(9)), -EINVAL);
	iov[1].iov_len = 64;
	/* A request without bytes succeeds. */
	r = good;
	r.iovcnt = 0;
	assert_int_equal(mce_transfer(p.from, &r, SECONDS(9)), 0);
	r = good;
	assert_int_equal(mce_transfer(p.from, &r, SECONDS(9)), 0);
	assert_true(mce_peer_get(p.from, "no port", &none) < 0);
	assert_true(mce_peer_get(p.from, "h:99999", &none) < 0);
	assert_null(none);
	pair_close(&p);
}

/* Memory that cannot be mapped is copied over another path. */
static void a_region_that_cannot_be_mapped_is_copied(void **state)
{
	enum mce_path path;
	struct pair p;
	char mem[64];

	assert_int_equal(mc_fault_set("engine.mapped.map=error:ENOMEM"), 0);
	pair_open(&p, MCE_PATH_MAPPED, MCE_ACCESS_READ);
	assert_int_equal(transfer(p.from, p.peer, MCE_READ, (uintptr_t)p.owner.mem,
				  mce_mr_rkey(p.owner.mr), mem, 64, &path), 0);
	assert_int_equal(path, path_without_fd());
	assert_int_equal(mc_fault_hits("engine.mapped.map"), 1);
	pattern_check(mem, 64, SEED, 0);
	mc_fault_set(NULL);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_transfer_outside_the_region_is_refused),
		cmocka_unit_test(the_crc_trailer_must_fit_into_the_region),
		cmocka_unit_test(access_bits_hold_on_every_path),
		cmocka_unit_test(a_region_without_write_access_cannot_be_mapped_writable),
		cmocka_unit_test(an_unregistered_region_is_stale_at_once),
		cmocka_unit_test(no_transfer_spans_adjacent_regions),
		cmocka_unit_test(invalid_registrations_are_refused),
		cmocka_unit_test(invalid_requests_are_refused),
		cmocka_unit_test(a_region_that_cannot_be_mapped_is_copied),
	};

	owner_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
