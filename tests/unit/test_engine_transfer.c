/* SPDX-License-Identifier: Apache-2.0
 * test_engine_transfer.c - every path moves the right bytes and computes the right checksums. */
#include <config.h>

#include "test_engine_fixture.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/crc32c.h"
#include "common/err.h"
#include "common/metrics.h"
#include "tests/lib/xor_net.h"

#define MIB (1ull << 20)
#define REGION (64 * MIB + 256 * 1024)
#define SEED 7
#define IOV_MAX_PARTS 5000

/* A pair of engines, or one with itself, and the path that their transfers take. */
struct pair {
	struct side owner, user;
	struct side *from;	/* who transfers */
	struct mce_peer *peer;
	enum mce_path path;
};

static void pair_open(struct pair *p, enum mce_path path)
{
	struct mce_conf conf = { .force_tcp = path == MCE_PATH_TCP, .spin_us = 20 };

	p->path = path;
	side_open(&p->owner, &conf, REGION, MCE_ACCESS_READ | MCE_ACCESS_WRITE, SEED);
	p->from = &p->owner;
	if (path != MCE_PATH_LOCAL) {
		side_open(&p->user, &conf, 0, 0, 0);
		p->from = &p->user;
	}
	assert_int_equal(mce_peer_get(p->from->e, mce_engine_endpoint(p->owner.e), &p->peer), 0);
}

static void pair_close(struct pair *p)
{
	mce_peer_put(p->peer);
	if (p->from == &p->user)
		side_close(&p->user);
	side_close(&p->owner);
}

static uint64_t addr_of(struct pair *p, uint64_t off)
{
	return (uint64_t)(uintptr_t)p->owner.mem + off;
}

/* Cut [mem, mem + len) into parts of odd sizes, some of them empty. */
static unsigned scatter(struct iovec *iov, char *mem, uint64_t len, unsigned parts)
{
	unsigned n = 0;

	while (len) {
		uint64_t take = parts > n + 1 ? (len / (parts - n)) | 1 : len;

		if (take > len)
			take = len;
		iov[n].iov_base = mem;
		iov[n].iov_len = n % 7 == 3 ? 0 : take;
		len -= iov[n].iov_len;
		mem += iov[n].iov_len;
		n++;
		assert_true(n < IOV_MAX_PARTS + IOV_MAX_PARTS / 4);
	}
	return n;
}

static void check_crc(const uint32_t *crc, const char *mem, uint64_t len)
{
	for (uint64_t i = 0; i < mc_crc_chunks(len); i++) {
		uint64_t off = i * MC_CRC_CHUNK, n = len - off;

		assert_int_equal(crc[i], mc_crc32c(mem + off, n < MC_CRC_CHUNK ? n : MC_CRC_CHUNK));
	}
}

/* One transfer with all trimmings. */
static void move(struct pair *p, enum mce_op op, uint64_t off, char *mem, uint64_t len,
		 unsigned parts, uint64_t crc_len, bool tail)
{
	struct iovec *iov = calloc(IOV_MAX_PARTS + IOV_MAX_PARTS / 4, sizeof(*iov));
	uint32_t *crc = calloc(mc_crc_chunks(crc_len) + 1, sizeof(*crc));
	struct mce_req req = {
		.op = op, .peer = p->peer, .addr = addr_of(p, off), .rkey = mce_mr_rkey(p->owner.mr),
		.iov = iov, .crc = crc_len ? crc : NULL, .crc_len = crc_len, .crc_tail = tail,
	};

	req.iovcnt = scatter(iov, mem, len, parts);
	assert_int_equal(mce_transfer(p->from->e, &req, SECONDS(60)), 0);
	assert_int_equal(req.path, p->path);
	assert_int_equal(req.status, 0);
	if (crc_len)
		check_crc(crc, mem, crc_len);
	if (tail && mc_crc_chunks(crc_len) > 1)
		assert_memory_equal(p->owner.mem + off + ((crc_len + 3) & ~3ull), crc,
				    mc_crc_chunks(crc_len) * 4);
	free(crc);
	free(iov);
}

static const uint64_t sizes[] = {
	1, 2, 63, 64, 4095, 4096, 8193, 65535, 65536, 65537, 131073, 512 * 1024, 512 * 1024 + 1,
	MIB, MIB + 3, 5 * MIB + 77, 16 * MIB, 64 * MIB,
};

static void run_sizes(enum mce_path path)
{
	char *mem = malloc(64 * MIB + 16);
	struct pair p;

	pair_open(&p, path);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t len = sizes[i], off = i * 4096;
		unsigned parts = i % 3 == 0 ? 1 : i % 3 == 1 ? 13 : 1000;

		memset(mem, 0xee, len + 16);
		pattern_fill(p.owner.mem + off, len + 8192, SEED, off);
		move(&p, MCE_READ, off, mem, len, parts, i % 2 ? len : len / 2, false);
		pattern_check(mem, len, SEED, off);
		for (unsigned k = 0; k < 16; k++)
			assert_int_equal((unsigned char)mem[len + k], 0xee);

		pattern_fill(mem, len, SEED + 1, len);
		move(&p, MCE_WRITE, off, mem, len, parts, len, i % 2);
		pattern_check(p.owner.mem + off, len, SEED + 1, len);
		/* A transfer without a trailer touches nothing behind its end. */
		if (i % 2 == 0)
			pattern_check(p.owner.mem + off + len, 8192, SEED, off + len);
		move(&p, MCE_WRITE, off, mem, len, 1, 0, false);
	}
	pair_close(&p);
	free(mem);
}

static void all_sizes_are_moved_locally(void **state)
{
	run_sizes(MCE_PATH_LOCAL);
}

static void all_sizes_are_moved_mapped(void **state)
{
	run_sizes(MCE_PATH_MAPPED);
}

static void all_sizes_are_moved_over_tcp(void **state)
{
	run_sizes(MCE_PATH_TCP);
}

/* ---- many at once ---- */

#define THREADS 8
#define SLICE (4 * MIB)

struct worker {
	struct pair *p;
	unsigned n;
};

/* Each thread owns a slice of the region and writes, reads back and compares batches in it. */
static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct pair *p = w->p;
	enum { REQS = 24 };
	static const uint32_t lens[] = { 4096, 100, 65536, 700000, 12288, 1 };
	char *out = malloc(SLICE), *in = malloc(SLICE);
	struct iovec iov[REQS];
	struct mce_req reqs[REQS];
	struct mce_batch b;

	for (unsigned round = 0; round < 10; round++) {
		uint64_t at = 0;

		pattern_fill(out, SLICE, w->n * 100 + round, 0);
		memset(in, 0, SLICE);
		for (int op = MCE_WRITE; op >= MCE_READ; op--) {
			at = 0;
			memset(reqs, 0, sizeof(reqs));
			for (unsigned i = 0; i < REQS; i++) {
				uint32_t len = lens[(i + w->n) % 6];

				iov[i].iov_base = (op == MCE_WRITE ? out : in) + at;
				iov[i].iov_len = len;
				reqs[i].op = (enum mce_op)op;
				reqs[i].peer = p->peer;
				reqs[i].addr = addr_of(p, w->n * SLICE + at);
				reqs[i].rkey = mce_mr_rkey(p->owner.mr);
				reqs[i].iov = &iov[i];
				reqs[i].iovcnt = 1;
				at += len;
			}
			mce_batch_init(&b);
			mce_submit(p->from->e, &b, reqs, REQS / 2);
			mce_submit(p->from->e, &b, reqs + REQS / 2, REQS / 2);
			if (mce_batch_wait(p->from->e, &b, reqs, REQS, SECONDS(60)) || b.failed)
				return (void *)1;
			if (!mce_batch_done(&b))
				return (void *)2;
		}
		if (memcmp(in, out, at))
			return (void *)3;
	}
	free(in);
	free(out);
	return NULL;
}

static void run_threads(enum mce_path path)
{
	struct worker w[THREADS];
	pthread_t t[THREADS];
	struct pair p;
	void *result;

	pair_open(&p, path);
	for (unsigned i = 0; i < THREADS; i++) {
		w[i].p = &p;
		w[i].n = i;
		assert_int_equal(pthread_create(&t[i], NULL, worker_main, &w[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(t[i], &result);
		assert_null(result);
	}
	pair_close(&p);
}

static void threads_move_batches_locally(void **state)
{
	run_threads(MCE_PATH_LOCAL);
}

static void threads_move_batches_mapped(void **state)
{
	run_threads(MCE_PATH_MAPPED);
}

static void threads_move_batches_over_tcp(void **state)
{
	run_threads(MCE_PATH_TCP);
}

/* More small requests than connections may have in flight. */
static void a_batch_larger_than_the_window_is_moved(void **state)
{
	enum { N = 4096 };
	struct mce_req *reqs = calloc(N, sizeof(*reqs));
	struct iovec *iov = calloc(N, sizeof(*iov));
	char *mem = malloc(N * 4096);
	struct mce_batch b;
	struct pair p;

	pair_open(&p, MCE_PATH_TCP);
	for (unsigned i = 0; i < N; i++) {
		iov[i].iov_base = mem + i * 4096;
		iov[i].iov_len = 4096;
		reqs[i].op = MCE_READ;
		reqs[i].peer = p.peer;
		reqs[i].addr = addr_of(&p, (uint64_t)(N - 1 - i) * 4096);
		reqs[i].rkey = mce_mr_rkey(p.owner.mr);
		reqs[i].iov = &iov[i];
		reqs[i].iovcnt = 1;
	}
	mce_batch_init(&b);
	mce_submit(p.from->e, &b, reqs, N);
	assert_int_equal(mce_batch_wait(p.from->e, &b, reqs, N, SECONDS(60)), 0);
	assert_int_equal(b.failed, 0);
	for (unsigned i = 0; i < N; i++)
		pattern_check(mem + i * 4096, 4096, SEED, (uint64_t)(N - 1 - i) * 4096);
	pair_close(&p);
	free(mem);
	free(iov);
	free(reqs);
}

/* ---- the same between processes ---- */

static void run_owner(struct owner_conf conf, bool force_tcp, enum mce_path want)
{
	struct mce_conf econf = { .net = test_net(), .force_tcp = force_tcp };
	char *mem = malloc(3 * MIB), command[64];
	struct mce_peer *peer;
	enum mce_path path;
	struct owner o;
	struct side s;

	conf.len = 8 * MIB;
	conf.access = MCE_ACCESS_READ | MCE_ACCESS_WRITE;
	conf.seed = 3;
	if (owner_start(&o, &conf) == 77) {
		free(mem);
		skip();
	}
	side_open(&s, &econf, 0, 0, 0);
	assert_int_equal(mce_peer_get(s.e, o.endpoint, &peer), 0);
	assert_int_equal(transfer(s.e, peer, MCE_READ, o.addr + 5, o.rkey, mem, 3 * MIB, &path), 0);
	assert_int_equal(path, want);
	pattern_check(mem, 3 * MIB, 3, 5);
	pattern_fill(mem, 3 * MIB, 99, 0);
	assert_int_equal(transfer(s.e, peer, MCE_WRITE, o.addr + MIB, o.rkey, mem, 3 * MIB, &path), 0);
	snprintf(command, sizeof(command), "crc %llu %llu", MIB, 3 * MIB);
	assert_int_equal(owner_tell(&o, command), mc_crc32c(mem, 3 * MIB));
	mce_peer_put(peer);
	side_close(&s);
	owner_stop(&o);
	free(mem);
}

static void memory_of_another_process_is_mapped(void **state)
{
	run_owner((struct owner_conf){ .len = 0 }, false, MCE_PATH_MAPPED);
}

static void force_tcp_uses_tcp_between_processes(void **state)
{
	run_owner((struct owner_conf){ .len = 0 }, true, MCE_PATH_TCP);
}

static void memory_without_a_descriptor_is_copied(void **state)
{
	run_owner((struct owner_conf){ .no_fd = true }, false, path_without_fd());
}

/* The address does not show that it is the same host... */
static void the_same_host_is_recognized_behind_a_relay(void **state)
{
	run_owner((struct owner_conf){ .relay = true }, false, MCE_PATH_MAPPED);
}

/* ...and the same host is not enough: in another network namespace its socket is unreachable. */
static void another_network_namespace_uses_tcp(void **state)
{
	run_owner((struct owner_conf){ .relay = true, .netns = true }, false, MCE_PATH_TCP);
}

/* ---- polling, counting ---- */

static void a_batch_completes_without_waiting(void **state)
{
	uint64_t end = mc_deadline_ms(30000);
	struct iovec iov;
	struct mce_req req = { .op = MCE_READ, .iov = &iov, .iovcnt = 1 };
	struct mce_batch b;
	struct pair p;
	char mem[512];

	pair_open(&p, MCE_PATH_TCP);
	iov.iov_base = mem;
	iov.iov_len = sizeof(mem);
	req.peer = p.peer;
	req.addr = addr_of(&p, 0);
	req.rkey = mce_mr_rkey(p.owner.mr);
	mce_batch_init(&b);
	mce_submit(p.from->e, &b, &req, 1);
	while (!mce_batch_done(&b) && mc_now_ns() < end)
		usleep(100);
	assert_true(mce_batch_done(&b));
	assert_int_equal(req.status, 0);
	pattern_check(mem, sizeof(mem), SEED, 0);
	pair_close(&p);
}

static void transfers_are_counted(void **state)
{
	static const char labels[] = "path=\"mapped\",op=\"read\"";
	int64_t bytes, requests, now;
	char mem[1000];
	struct pair p;

	pair_open(&p, MCE_PATH_MAPPED);
	assert_int_equal(mc_metrics_lookup("mooncake_transfer_bytes_total", labels, &bytes), 0);
	assert_int_equal(mc_metrics_lookup("mooncake_transfer_requests_total", labels, &requests), 0);
	assert_int_equal(transfer(p.from->e, p.peer, MCE_READ, addr_of(&p, 0),
				  mce_mr_rkey(p.owner.mr), mem, sizeof(mem), NULL), 0);
	assert_int_equal(mc_metrics_lookup("mooncake_transfer_bytes_total", labels, &now), 0);
	assert_int_equal(now - bytes, sizeof(mem));
	assert_int_equal(mc_metrics_lookup("mooncake_transfer_requests_total", labels, &now), 0);
	assert_int_equal(now - requests, 1);
	assert_int_equal(mc_metrics_lookup("mooncake_transfer_peers", "", &now), 0);
	assert_int_equal(now, 1);
	pair_close(&p);
	assert_int_equal(mc_metrics_lookup("mooncake_transfer_peers", "", &now), 0);
	assert_int_equal(now, 0);
	assert_int_equal(mc_metrics_lookup("mooncake_transfer_mapped_bytes", "", &now), 0);
	assert_int_equal(now, 0);
}

/* The peer is this engine under another name. */
static void the_own_engine_is_recognized_by_another_address(void **state)
{
	struct mce_conf conf = { .bind_host = "0.0.0.0", .host = "127.0.0.1" };
	struct mce_peer *peer;
	enum mce_path path;
	char alias[64], mem[256];
	struct side s;

	side_open(&s, &conf, MIB, MCE_ACCESS_READ, SEED);
	snprintf(alias, sizeof(alias), "127.0.0.2%s", strrchr(mce_engine_endpoint(s.e), ':'));
	assert_int_equal(mce_peer_get(s.e, alias, &peer), 0);
	assert_int_equal(transfer(s.e, peer, MCE_READ, (uintptr_t)s.mem, mce_mr_rkey(s.mr), mem,
				  sizeof(mem), &path), 0);
	assert_int_equal(path, MCE_PATH_LOCAL);
	pattern_check(mem, sizeof(mem), SEED, 0);
	mce_peer_put(peer);
	side_close(&s);
}

static void a_mapped_pointer_stays_readable_until_the_handle_is_put(void **state)
{
	static const enum mce_path paths[] = { MCE_PATH_LOCAL, MCE_PATH_MAPPED, MCE_PATH_TCP };
	const char *at;
	struct pair p;
	int err;

	for (unsigned i = 0; i < 3; i++) {
		pair_open(&p, paths[i]);
		err = 0;
		at = mce_peer_map(p.peer, addr_of(&p, 777), mce_mr_rkey(p.owner.mr), 5000, SECONDS(30),
				  &err);
		if (paths[i] == MCE_PATH_TCP) {
			assert_null(at);
			assert_int_equal(err, -MC_ENOTSUP);
		} else {
			assert_non_null(at);
			pattern_check(at, 5000, SEED, 777);
			assert_null(mce_peer_map(p.peer, addr_of(&p, REGION - 4), mce_mr_rkey(p.owner.mr),
						 5, SECONDS(30), &err));
			assert_true(err < 0);
		}
		/* It may be read until the handle is put. */
		mce_mr_unregister(p.owner.mr);
		if (at && paths[i] == MCE_PATH_MAPPED)
			pattern_check(at, 5000, SEED, 777);
		pair_close(&p);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_sizes_are_moved_locally),
		cmocka_unit_test(all_sizes_are_moved_mapped),
		cmocka_unit_test(all_sizes_are_moved_over_tcp),
		cmocka_unit_test(threads_move_batches_locally),
		cmocka_unit_test(threads_move_batches_mapped),
		cmocka_unit_test(threads_move_batches_over_tcp),
		cmocka_unit_test(a_batch_larger_than_the_window_is_moved),
		cmocka_unit_test(memory_of_another_process_is_mapped),
		cmocka_unit_test(force_tcp_uses_tcp_between_processes),
		cmocka_unit_test(memory_without_a_descriptor_is_copied),
		cmocka_unit_test(the_same_host_is_recognized_behind_a_relay),
		cmocka_unit_test(another_network_namespace_uses_tcp),
		cmocka_unit_test(a_batch_completes_without_waiting),
		cmocka_unit_test(transfers_are_counted),
		cmocka_unit_test(the_own_engine_is_recognized_by_another_address),
		cmocka_unit_test(a_mapped_pointer_stays_readable_until_the_handle_is_put),
	};

	owner_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
