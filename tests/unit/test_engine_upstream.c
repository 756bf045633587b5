/* SPDX-License-Identifier: Apache-2.0
 * test_engine_upstream.c - upstream's protocol between two of our engines: all sizes, refused among valid
 * requests, and many requests at once. */
#include <config.h>

#include "test_engine_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/metrics.h"
#include "common/sys/clock.h"
#include "engine/engine_i.h"
#include "engine/tcp/tcp_client.h"

#define MIB (1ull << 20)
#define LEN (32 * MIB)
#define SEED 5
#define THREADS 8

struct pair {
	struct side owner, user;
	struct mce_peer *peer;
	uint64_t addr;
};

static void pair_open(struct pair *p, unsigned version, unsigned access)
{
	struct mce_conf serve = { .upstream = true, .bind_host = "127.0.0.1" };
	int port;

	side_open(&p->owner, &serve, LEN, access, SEED);
	side_open(&p->user, NULL, 0, 0, 0);
	port = mce_engine_upstream_port(p->owner.e);
	assert_in_range(port, 15000, 17000);
	assert_int_equal(mce_engine_upstream_port(p->user.e), -1);
	assert_int_equal(mce_peer_get_upstream(p->user.e, "127.0.0.1", port, version, &p->peer), 0);
	p->addr = (uintptr_t)p->owner.mem;
}

static void pair_close(struct pair *p)
{
	mce_peer_put(p->peer);
	side_close(&p->user);
	side_close(&p->owner);
}

static int move(struct pair *p, enum mce_op op, uint64_t off, void *mem, uint64_t len)
{
	enum mce_path path = MCE_PATH_NONE;
	int r = transfer(p->user.e, p->peer, op, p->addr + off, 0, mem, len, &path);

	if (r == 0 && len)
		assert_int_equal(path, MCE_PATH_UPSTREAM);
	return r;
}

/* ---- bytes ---- */

static void run_sizes(unsigned version)
{
	static const uint64_t sizes[] = {
		1, 7, 8, 23, 24, 4095, 4096, 65536, 65537, MIB - 1, MIB, 5 * MIB + 3, LEN,
	};
	char *mem = malloc(LEN), *own = malloc(LEN);
	struct pair p;

	pair_open(&p, version, MCE_ACCESS_READ | MCE_ACCESS_WRITE);
	memcpy(own, p.owner.mem, LEN);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t n = sizes[i], off = LEN - n;

		memset(mem, 0xee, n);
		assert_int_equal(move(&p, MCE_READ, off, mem, n), 0);
		assert_memory_equal(mem, own + off, n);
		pattern_fill(mem, n, i + 100, 0);
		assert_int_equal(move(&p, MCE_WRITE, 0, mem, n), 0);
		memcpy(own, mem, n);
		/* Also in version 1 a complete WRITE is stored. */
		assert_memory_equal(p.owner.mem, own, LEN);
	}
	assert_int_equal(move(&p, MCE_READ, 5, mem, 0), 0);
	pair_close(&p);
	free(mem);
	free(own);
}

static void all_sizes_are_moved_with_version_1(void **state)
{
	run_sizes(1);
}

static void all_sizes_are_moved_with_version_2(void **state)
{
	run_sizes(2);
}

/* ---- many at once ---- */

struct worker {
	struct pair *p;
	unsigned n;
	pthread_t thread;
};

enum { PER_BATCH = 300, ROUNDS = 4 };

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	uint64_t room = LEN / THREADS, step = room / PER_BATCH, base = w->n * room;
	struct mce_req *reqs = calloc(PER_BATCH, sizeof(*reqs));
	struct iovec *iov = calloc(PER_BATCH, sizeof(*iov));
	char *mem = malloc(room);
	struct mce_batch b;

	for (unsigned round = 0; round < ROUNDS; round++) {
		bool write = round % 2 == 0;

		if (write)
			pattern_fill(mem, room, w->n + 10, round);
		else
			memset(mem, 0, room);
		memset(reqs, 0, PER_BATCH * sizeof(*reqs));
		for (unsigned i = 0; i < PER_BATCH; i++) {
			iov[i] = (struct iovec){ mem + i * step, 1 + (i * 7919) % step };
			reqs[i] = (struct mce_req){
				.op = write ? MCE_WRITE : MCE_READ, .peer = w->p->peer,
				.addr = w->p->addr + base + i * step, .iov = &iov[i], .iovcnt = 1,
			};
		}
		mce_batch_init(&b);
		mce_submit(w->p->user.e, &b, reqs, PER_BATCH);
		assert_int_equal(mce_batch_wait(w->p->user.e, &b, reqs, PER_BATCH, SECONDS(60)), 0);
		assert_int_equal(b.failed, 0);
		for (unsigned i = 0; !write && i < PER_BATCH; i++)
			pattern_check(iov[i].iov_base, iov[i].iov_len, w->n + 10, round - 1 + i * step);
	}
	free(mem);
	free(iov);
	free(reqs);
	return NULL;
}

static void run_threads(unsigned version)
{
	struct worker w[THREADS];
	struct pair p;

	pair_open(&p, version, MCE_ACCESS_READ | MCE_ACCESS_WRITE);
	for (unsigned i = 0; i < THREADS; i++) {
		w[i] = (struct worker){ .p = &p, .n = i };
		assert_int_equal(pthread_create(&w[i].thread, NULL, worker_main, &w[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(w[i].thread, NULL);
	pair_close(&p);
}

static void threads_move_batches_with_version_1(void **state)
{
	run_threads(1);
}

static void threads_move_batches_with_version_2(void **state)
{
	run_threads(2);
}

/* ---- refusals ---- */

static void a_transfer_outside_the_region_is_refused(void **state)
{
	for (unsigned version = 1; version <= 2; version++) {
		int want = version == 2 ? -ERANGE : -MC_ETRANSFER;
		char byte[64] = { 0 };
		struct pair p;

		pair_open(&p, version, MCE_ACCESS_READ | MCE_ACCESS_WRITE);
		for (enum mce_op op = MCE_READ; op <= MCE_WRITE; op++) {
			assert_int_equal(move(&p, op, (uint64_t)-1, byte, 2), want);
			assert_int_equal(move(&p, op, LEN - 1, byte, 2), want);
			assert_int_equal(move(&p, op, LEN, byte, 1), want);
			assert_int_equal(move(&p, op, (uint64_t)-1 - p.addr, byte, 64), want);
			assert_int_equal(move(&p, op, LEN - 1, byte, 1), 0);
			assert_int_equal(move(&p, op, 0, byte, 1), 0);
		}
		mce_mr_unregister(p.owner.mr);
		assert_int_equal(move(&p, MCE_READ, 0, byte, 1), want);
		pair_close(&p);
	}
}

/* As many refusals as fail all waiting requests, and then a valid one, which was not waiting then. */
static void a_valid_request_after_refused_ones_succeeds(void **state)
{
	char byte[64] = { 0 };
	struct pair p;

	pair_open(&p, 1, MCE_ACCESS_READ | MCE_ACCESS_WRITE);
	for (unsigned i = 0; i < 1000; i++) {
		for (unsigned k = 0; k < 4; k++)
			assert_int_equal(move(&p, MCE_READ, LEN, byte, 1), -MC_ETRANSFER);
		assert_int_equal(move(&p, MCE_READ, LEN - 1, byte, 1), 0);
	}
	pair_close(&p);
}

static void access_bits_hold(void **state)
{
	char byte = 1;
	struct pair p;

	pair_open(&p, 2, MCE_ACCESS_READ);
	assert_int_equal(move(&p, MCE_WRITE, 3, &byte, 1), -ERANGE);
	pattern_check(p.owner.mem, 64, SEED, 0);
	assert_int_equal(move(&p, MCE_READ, 3, &byte, 1), 0);
	pair_close(&p);
	pair_open(&p, 2, MCE_ACCESS_WRITE);
	assert_int_equal(move(&p, MCE_READ, 3, &byte, 1), -ERANGE);
	assert_int_equal(move(&p, MCE_WRITE, 3, &byte, 1), 0);
	pair_close(&p);
	pair_open(&p, 2, 0);
	assert_int_equal(move(&p, MCE_READ, 3, &byte, 1), -ERANGE);
	pair_close(&p);
}

/* A refusal ends its connection; other requests on it must not fail. */
static void refused_requests_fail_alone(void **state)
{
	enum { N = 400, EACH = 5000 };
	struct mce_req *reqs = calloc(N, sizeof(*reqs));
	struct iovec *iov = calloc(N, sizeof(*iov));
	char *mem = malloc(N * EACH);
	struct mce_batch b;
	struct pair p;

	pair_open(&p, 2, MCE_ACCESS_READ | MCE_ACCESS_WRITE);
	for (enum mce_op op = MCE_READ; op <= MCE_WRITE; op++) {
		pattern_fill(mem, N * EACH, 77, 0);
		memset(reqs, 0, N * sizeof(*reqs));
		for (unsigned i = 0; i < N; i++) {
			iov[i] = (struct iovec){ mem + i * EACH, EACH };
			reqs[i] = (struct mce_req){
				.op = op, .peer = p.peer, .iov = &iov[i], .iovcnt = 1,
				.addr = p.addr + (i % 40 == 7 ? LEN - 1 : i * EACH),
			};
		}
		mce_batch_init(&b);
		mce_submit(p.user.e, &b, reqs, N);
		assert_int_equal(mce_batch_wait(p.user.e, &b, reqs, N, SECONDS(60)), 0);
		assert_int_equal(b.failed, N / 40);
		for (unsigned i = 0; i < N; i++) {
			assert_int_equal(reqs[i].status, i % 40 == 7 ? -ERANGE : 0);
			if (i % 40 == 7)
				continue;
			assert_memory_equal(mem + i * EACH, p.owner.mem + i * EACH, EACH);
		}
	}
	pair_close(&p);
	free(mem);
	free(iov);
	free(reqs);
}

/* ---- ends ---- */

/* The node restarts on the same port with its memory elsewhere. */
static void a_restarted_node_is_reached_on_the_same_port(void **state)
{
	struct mce_conf again = { .upstream = true, .bind_host = "127.0.0.1" };
	char *mem = malloc(MIB);
	struct side kept;
	uint64_t old;
	struct pair p;

	pair_open(&p, 2, MCE_ACCESS_READ | MCE_ACCESS_WRITE);
	assert_int_equal(move(&p, MCE_READ, 0, mem, MIB), 0);
	old = p.addr;
	again.upstream_port = mce_engine_upstream_port(p.owner.e);
	mce_engine_close(p.owner.e);
	assert_int_equal(move(&p, MCE_WRITE, 0, mem, MIB), -MC_ETRANSFER);
	/* The old region is still mapped here, and must not be reached any more. */
	p.owner.e = NULL;
	kept = p.owner;
	side_open(&p.owner, &again, LEN, MCE_ACCESS_READ | MCE_ACCESS_WRITE, SEED + 1);
	p.addr = (uintptr_t)p.owner.mem;
	assert_true(p.addr != old);
	assert_int_equal(move(&p, MCE_READ, 0, mem, MIB), 0);
	pattern_check(mem, MIB, SEED + 1, 0);
	p.addr = old;
	assert_int_equal(move(&p, MCE_WRITE, 0, mem, MIB), -ERANGE);
	p.addr = (uintptr_t)p.owner.mem;
	assert_int_equal(move(&p, MCE_WRITE, 0, mem, MIB), 0);
	pattern_check(kept.mem, MIB, SEED, 0);
	pair_close(&p);
	side_close(&kept);
	free(mem);
}

static unsigned count_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* A thousand short-lived handles, some of them put after a cancelled transfer. */
static void a_thousand_peers_leave_no_descriptor(void **state)
{
	char *mem = malloc(MIB);
	unsigned files;
	struct pair p;
	uint64_t end;
	int port;

	pair_open(&p, 2, MCE_ACCESS_READ | MCE_ACCESS_WRITE);
	port = mce_engine_upstream_port(p.owner.e);
	assert_int_equal(move(&p, MCE_READ, 0, mem, MIB), 0);
	mce_peer_put(p.peer);
	files = count_files();
	for (unsigned i = 0; i < 1000; i++) {
		struct iovec iov = { mem, MIB };
		struct mce_req req = { .op = i % 2 ? MCE_WRITE : MCE_READ, .iov = &iov, .iovcnt = 1 };
		int r;

		assert_int_equal(mce_peer_get_upstream(p.user.e, "127.0.0.1", port, 1 + i / 2 % 2, &p.peer), 0);
		req.peer = p.peer;
		req.addr = p.addr;
		r = mce_transfer(p.user.e, &req, mc_deadline_ms(i % 3 ? 10000 : 0));
		assert_true(r == 0 || (i % 3 == 0 && r == -MC_ETIMEDOUT));
		mce_peer_put(p.peer);
	}
	end = SECONDS(10);
	while (count_files() > files) {
		assert_true(mc_now_ns() < end);
		poll(NULL, 0, 5);
	}
	p.peer = NULL;
	pair_close(&p);
	free(mem);
}

static unsigned connections_up(struct mce_peer *p)
{
	MC_LOCKED(&p->lock);
	return mce_tcp_of(p)->up;
}

/* A READ on a connection that stalls is sent again on another one, and fails when that stalls too. */
static void a_read_survives_a_stalled_connection(void **state)
{
	static char mem[MIB];
	int64_t before, after;
	uint64_t end = SECONDS(20);
	struct pair p;

	pair_open(&p, 2, MCE_ACCESS_READ | MCE_ACCESS_WRITE);
	/* A peer whose only connection stalls is taken as stopped. */
	while (connections_up(p.peer) < 2)
		assert_int_equal(transfer(p.user.e, p.peer, MCE_READ, p.addr, 0, mem, sizeof(mem), NULL), 0);
	assert_int_equal(mc_metrics_lookup("mooncake_transfer_reconnects_total", "", &before), 0);
	assert_int_equal(mc_fault_set("engine.tcp.recv=error:ETIMEDOUT@1"), 0);
	assert_int_equal(transfer(p.user.e, p.peer, MCE_READ, p.addr, 0, mem, sizeof(mem), NULL), 0);
	assert_memory_equal(mem, p.owner.mem, sizeof(mem));
	assert_int_equal(mc_fault_set("engine.tcp.recv=error:ETIMEDOUT"), 0);
	assert_int_equal(transfer(p.user.e, p.peer, MCE_READ, p.addr, 0, mem, sizeof(mem), NULL), -MC_ETRANSFER);
	mc_fault_set(NULL);
	do {
		assert_true(mc_now_ns() < end);
		assert_int_equal(transfer(p.user.e, p.peer, MCE_READ, p.addr, 0, mem, sizeof(mem), NULL), 0);
		assert_int_equal(mc_metrics_lookup("mooncake_transfer_reconnects_total", "", &after), 0);
	} while (after <= before);
	pair_close(&p);
}

/* ---- names ---- */

static void handles_are_shared_per_address_and_version(void **state)
{
	struct mce_peer *a, *b, *c, *ours;
	struct pair p;
	int port;

	pair_open(&p, 2, MCE_ACCESS_READ);
	port = mce_engine_upstream_port(p.owner.e);
	assert_int_equal(mce_peer_get_upstream(p.user.e, "127.0.0.1", port, 2, &a), 0);
	assert_int_equal(mce_peer_get_upstream(p.user.e, "127.0.0.1", port, 3, &b), 0);
	assert_int_equal(mce_peer_get_upstream(p.user.e, "127.0.0.1", port, 0, &c), 0);
	assert_ptr_equal(a, p.peer);
	assert_ptr_equal(a, b);
	assert_ptr_not_equal(a, c);
	/* The same address may be one of our engines, too. */
	assert_int_equal(mce_peer_get(p.user.e, mce_engine_endpoint(p.owner.e), &ours), 0);
	assert_ptr_not_equal(ours, a);
	assert_int_equal(mce_peer_get_upstream(p.user.e, "127.0.0.1", 0, 2, &b), -EINVAL);
	assert_int_equal(mce_peer_get_upstream(p.user.e, "127.0.0.1", 65536, 2, &b), -EINVAL);
	mce_peer_put(a);
	mce_peer_put(a);
	mce_peer_put(c);
	mce_peer_put(ours);
	pair_close(&p);
}

/* One free port in the range, then none. */
static void the_port_is_taken_from_the_range(void **state)
{
	struct mce_conf conf = { .upstream = true, .bind_host = "127.0.0.1" };
	struct mce_engine *a, *b;
	int port;

	assert_int_equal(mce_engine_open(&conf, &a), 0);
	port = mce_engine_upstream_port(a);
	conf.upstream_port_min = conf.upstream_port_max = port;
	assert_int_equal(mce_engine_open(&conf, &b), -EADDRINUSE);
	conf.upstream_port = port;
	assert_int_equal(mce_engine_open(&conf, &b), -EADDRINUSE);
	mce_engine_close(a);
	assert_int_equal(mce_engine_open(&conf, &b), 0);
	assert_int_equal(mce_engine_upstream_port(b), port);
	mce_engine_close(b);
	conf.upstream_port_max = port - 1;
	assert_int_equal(mce_engine_open(&conf, &b), -EINVAL);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_sizes_are_moved_with_version_1),
		cmocka_unit_test(all_sizes_are_moved_with_version_2),
		cmocka_unit_test(threads_move_batches_with_version_1),
		cmocka_unit_test(threads_move_batches_with_version_2),
		cmocka_unit_test(a_transfer_outside_the_region_is_refused),
		cmocka_unit_test(a_valid_request_after_refused_ones_succeeds),
		cmocka_unit_test(access_bits_hold),
		cmocka_unit_test(refused_requests_fail_alone),
		cmocka_unit_test(a_restarted_node_is_reached_on_the_same_port),
		cmocka_unit_test(a_thousand_peers_leave_no_descriptor),
		cmocka_unit_test(a_read_survives_a_stalled_connection),
		cmocka_unit_test(handles_are_shared_per_address_and_version),
		cmocka_unit_test(the_port_is_taken_from_the_range),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
