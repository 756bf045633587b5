/* SPDX-License-Identifier: Apache-2.0
 * test_engine_user_mem.c - registered memory that its own process cannot access: requests for it fail, the
 * process survives, and other requests are not affected. Our protocol, and both versions of upstream's. */
#include <config.h>

#include "test_engine_fixture.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/err.h"

#define HALF (1ull << 20)
#define LEN (2 * HALF)
#define SEED 6
#define MANY 40u

/* Both engines are of this process. */
struct pair {
	struct side owner, user;
	struct mce_peer *peer[3];	/* our lanes, upstream's versions 1 and 2 */
	struct mce_mr *mr;
	char *mem;
	int fd;
};
#define PEERS 3u

/* @fd: a file that the owner's engine does not know. */
static void pair_open(struct pair *p, bool fd, int prot)
{
	struct mce_conf serve = { .upstream = true, .bind_host = "127.0.0.1" }, ask = { .force_tcp = true };
	struct mce_mr_attr attr = { .len = LEN, .access = MCE_ACCESS_READ | MCE_ACCESS_WRITE, .fd = -1 };
	int port;

	side_open(&p->owner, &serve, 0, 0, 0);
	side_open(&p->user, &ask, 0, 0, 0);
	port = mce_engine_upstream_port(p->owner.e);
	assert_int_equal(mce_peer_get(p->user.e, mce_engine_endpoint(p->owner.e), &p->peer[0]), 0);
	for (unsigned v = 1; v < PEERS; v++)
		assert_int_equal(mce_peer_get_upstream(p->user.e, "127.0.0.1", port, v, &p->peer[v]), 0);
	p->fd = fd ? memfd_create("test", MFD_CLOEXEC) : -1;
	assert_true(!fd || (p->fd >= 0 && ftruncate(p->fd, LEN) == 0));
	p->mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE, fd ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, p->fd, 0);
	assert_true(p->mem != MAP_FAILED);
	pattern_fill(p->mem, LEN, SEED, 0);
	assert_int_equal(mprotect(p->mem, LEN, prot), 0);
	attr.base = p->mem;
	assert_int_equal(mce_mr_register(p->owner.e, &attr, &p->mr), 0);
}

static void pair_close(struct pair *p)
{
	for (unsigned i = 0; i < PEERS; i++)
		mce_peer_put(p->peer[i]);
	side_close(&p->user);
	side_close(&p->owner);
	munmap(p->mem, LEN);
	if (p->fd >= 0)
		close(p->fd);
}

static int move(struct pair *p, unsigned to, enum mce_op op, uint64_t off, void *mem, uint64_t len)
{
	return transfer(p->user.e, p->peer[to], op, (uintptr_t)p->mem + off, mce_mr_rkey(p->mr), mem, len, NULL);
}

/* A transfer of @len bytes at @off fails, and the bytes before HALF are unchanged. */
static void fails(struct pair *p, unsigned to, enum mce_op op, uint64_t off, uint64_t len)
{
	char *mem = calloc(1, len), small[64];
	int r;

	assert_non_null(mem);
	r = move(p, to, op, off, mem, len);
	assert_true(to == 0 ? r == -MC_ETRANSFER : r < 0);
	assert_int_equal(move(p, to, MCE_READ, HALF - 64, small, sizeof(small)), 0);
	pattern_check(small, sizeof(small), SEED, HALF - 64);
	free(mem);
}

static void a_write_to_protected_memory_fails(void **state)
{
	struct pair p;

	pair_open(&p, false, PROT_READ);
	for (unsigned to = 0; to < PEERS; to++) {
		fails(&p, to, MCE_WRITE, 0, 64);
		fails(&p, to, MCE_WRITE, 4000, 8192);
		fails(&p, to, MCE_WRITE, 0, LEN);
	}
	pattern_check(p.mem, LEN, SEED, 0);
	pair_close(&p);
}

/* Memory of a file can be read and written until the file is truncated. */
static void a_transfer_beyond_a_truncated_file_fails(void **state)
{
	char mem[4096];
	struct pair p;

	pair_open(&p, true, PROT_READ | PROT_WRITE);
	for (unsigned to = 0; to < PEERS; to++) {
		pattern_fill(mem, sizeof(mem), to, 5);
		assert_int_equal(move(&p, to, MCE_WRITE, HALF + to * 5000, mem, sizeof(mem)), 0);
		memset(mem, 0, sizeof(mem));
		assert_int_equal(move(&p, to, MCE_READ, HALF + to * 5000, mem, sizeof(mem)), 0);
		pattern_check(mem, sizeof(mem), to, 5);
		pattern_check(p.mem + HALF + to * 5000, sizeof(mem), to, 5);
	}
	assert_int_equal(ftruncate(p.fd, HALF), 0);
	for (unsigned to = 0; to < PEERS; to++) {
		fails(&p, to, MCE_WRITE, HALF, 64);
		fails(&p, to, MCE_WRITE, HALF + 1, 8192);
		fails(&p, to, MCE_READ, HALF, 64);
		fails(&p, to, MCE_READ, LEN - 8192, 8192);
	}
	pair_close(&p);
}

/* Some unreadable ranges among many readable ones: only requests for those fail. */
static void unreadable_memory_fails_only_its_requests(void **state)
{
	struct mce_req req[MANY];
	struct iovec iov[MANY];
	char *mem = malloc(MANY * HALF);
	struct mce_batch b;
	struct pair p;

	assert_non_null(mem);
	pair_open(&p, false, PROT_READ | PROT_WRITE);
	assert_int_equal(mprotect(p.mem + HALF, HALF, PROT_NONE), 0);
	for (unsigned to = 0; to < PEERS; to++) {
		fails(&p, to, MCE_READ, LEN - 64, 64);
		fails(&p, to, MCE_READ, HALF - 4096, 8192);
		/* most of it is sent when the error is found */
		fails(&p, to, MCE_READ, 64, LEN - 64);
	}
	for (unsigned i = 0; i < MANY; i++) {
		uint64_t off = i % 5 == 4 ? HALF - 64 : i * 64;

		iov[i] = (struct iovec){ mem + i * HALF, i % 2 ? 128 : HALF - i * 64 };
		if (i % 5 == 4)
			iov[i].iov_len = i % 2 ? 128 : HALF;
		req[i] = (struct mce_req){ .op = MCE_READ, .peer = p.peer[0], .addr = (uintptr_t)p.mem + off,
					   .rkey = mce_mr_rkey(p.mr), .iov = &iov[i], .iovcnt = 1 };
	}
	mce_batch_init(&b);
	mce_submit(p.user.e, &b, req, MANY);
	assert_int_equal(mce_batch_wait(p.user.e, &b, req, MANY, SECONDS(30)), 0);
	for (unsigned i = 0; i < MANY; i++) {
		assert_int_equal(req[i].status, i % 5 == 4 ? -MC_ETRANSFER : 0);
		if (i % 5 != 4)
			pattern_check(iov[i].iov_base, iov[i].iov_len, SEED, i * 64);
	}
	pair_close(&p);
	free(mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_write_to_protected_memory_fails),
		cmocka_unit_test(a_transfer_beyond_a_truncated_file_fails),
		cmocka_unit_test(unreadable_memory_fails_only_its_requests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
