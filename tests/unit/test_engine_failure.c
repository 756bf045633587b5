/* SPDX-License-Identifier: Apache-2.0
 * test_engine_failure.c - peers that stop, die, restart, and connections that fail; a call that has returned has
 * released the memory of its caller. */
#include <config.h>

#include "test_engine_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/crc32c.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/metrics.h"
#include "common/net/socket.h"

#define MIB (1ull << 20)
#define LEN (64 * MIB)

static const struct mce_conf tcp_conf = { .force_tcp = true, .progress_timeout_ms = 1000 };
static const struct owner_conf any_owner = {
	.len = LEN, .access = MCE_ACCESS_READ | MCE_ACCESS_WRITE, .seed = 3,
};

static double seconds_since(uint64_t then)
{
	return (double)(mc_now_ns() - then) / 1e9;
}

static int64_t metric(const char *name, const char *labels)
{
	int64_t v = -1;

	assert_int_equal(mc_metrics_lookup(name, labels, &v), 0);
	return v;
}

static void wait_stopped(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
}

/* ---- a peer that is stopped during a transfer ---- */

/* Stop the owner, start a transfer of all memory, wait for @ms. */
static int stopped_in_the_middle(struct mce_engine *e, struct mce_peer *peer, struct owner *o,
				 enum mce_op op, char *mem, unsigned ms)
{
	struct iovec iov = { .iov_base = mem, .iov_len = LEN };
	struct mce_req req = {
		.op = op, .peer = peer, .addr = o->addr, .rkey = o->rkey, .iov = &iov, .iovcnt = 1,
	};
	struct mce_batch b;
	uint64_t began;
	int r;

	mce_batch_init(&b);
	kill(o->pid, SIGSTOP);
	wait_stopped(o->pid);
	began = mc_now_ns();
	mce_submit(e, &b, &req, 1);
	r = mce_batch_wait(e, &b, &req, 1, mc_deadline_ms(ms));
	assert_true(seconds_since(began) >= ms / 1000.0 || r == 0);
	assert_true(seconds_since(began) < ms / 1000.0 + 10);
	assert_int_equal(r, req.status);
	assert_true(mce_batch_done(&b));
	return r;
}

static void stopped_peer(enum mce_op op)
{
	struct mce_conf conf = tcp_conf;
	struct mce_peer *peer;
	struct owner o;
	struct side s;
	char *mem, byte;

	conf.progress_timeout_ms = 30000;
	assert_int_equal(owner_start(&o, &any_owner), 0);
	side_open(&s, &conf, 0, 0, 0);
	assert_int_equal(mce_peer_get(s.e, o.endpoint, &peer), 0);
	/* The connections are up before the peer stops. */
	assert_int_equal(transfer(s.e, peer, MCE_READ, o.addr, o.rkey, &byte, 1, NULL), 0);
	mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(mem != MAP_FAILED);
	assert_int_equal(stopped_in_the_middle(s.e, peer, &o, op, mem, 100), -MC_ETIMEDOUT);
	/* From here on the memory is ours: the engine does not write it when the peer continues... */
	memset(mem, 0x77, LEN);
	kill(o.pid, SIGCONT);
	assert_int_equal(transfer(s.e, peer, MCE_READ, o.addr + LEN - 9, o.rkey, &byte, 1, NULL), 0);
	for (uint64_t i = 0; i < LEN; i += 512)
		assert_int_equal(mem[i], 0x77);
	/* ...and does not read it, so that it may be unmapped. */
	munmap(mem, LEN);
	/* The end of the WRITE was never sent. */
	assert_int_equal(transfer(s.e, peer, MCE_READ, o.addr + LEN - 1, o.rkey, &byte, 1, NULL), 0);
	pattern_check(&byte, 1, 3, LEN - 1);
	mce_peer_put(peer);
	side_close(&s);
	owner_stop(&o);
}

static void a_read_from_a_stopped_peer_times_out(void **state)
{
	stopped_peer(MCE_READ);
}

static void a_write_to_a_stopped_peer_times_out(void **state)
{
	stopped_peer(MCE_WRITE);
}

/* Many deadlines that pass while bytes are in flight, with memory that is unmapped at once. A cancelled WRITE may
 * still arrive at the peer, so every WRITE has its own range. */
static void memory_is_free_after_a_deadline_at_any_moment(void **state)
{
	enum { ROUNDS = 300, WRITE = 5 * MC_CRC_CHUNK + 999, ROOM = 6 * MC_CRC_CHUNK };
	struct mce_conf conf = tcp_conf;
	struct mce_peer *peer;
	struct owner o;
	struct side s;
	unsigned late = 0;
	char byte;

	conf.stripe_bytes = MC_CRC_CHUNK;
	assert_int_equal(owner_start(&o, &any_owner), 0);
	side_open(&s, &conf, 0, 0, 0);
	assert_int_equal(mce_peer_get(s.e, o.endpoint, &peer), 0);
	assert_int_equal(transfer(s.e, peer, MCE_READ, o.addr, o.rkey, &byte, 1, NULL), 0);
	for (unsigned i = 0; i < ROUNDS; i++) {
		bool write = i % 2;
		uint64_t len = write ? WRITE : 4 * MIB;
		char *mem = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct iovec iov = { .iov_base = mem, .iov_len = len };
		uint32_t crc[64];
		struct mce_req req = {
			.op = write ? MCE_WRITE : MCE_READ, .peer = peer,
			.addr = o.addr + (write ? 4 * MIB + i / 2 * (uint64_t)ROOM : 0),
			.rkey = o.rkey, .iov = &iov, .iovcnt = 1, .crc = crc, .crc_len = len,
			.crc_tail = i % 4 == 1,
		};
		int r = mce_transfer(s.e, &req, mc_now_ns() + i % 150 * (write ? 3000 : 20000));

		assert_true(r == 0 || r == -MC_ETIMEDOUT);
		late += r < 0;
		munmap(mem, len);
	}
	/* The peer still serves, and the connections are in step. */
	assert_int_equal(transfer(s.e, peer, MCE_READ, o.addr + 17, o.rkey, &byte, 1, NULL), 0);
	pattern_check(&byte, 1, 3, 17);
	assert_true(late > 0);
	mce_peer_put(peer);
	side_close(&s);
	owner_stop(&o);
}

/* The deadline passes while the resolver handles the request: it does not carry it out any more. */
static void a_request_cancelled_in_the_resolver_is_not_carried_out(void **state)
{
	char mem[4096] = { "" };
	struct iovec iov = { mem, sizeof(mem) };
	struct mce_req req = { .op = MCE_WRITE, .iov = &iov, .iovcnt = 1 };
	struct side owner, user;
	struct mce_batch b;

	side_open(&owner, NULL, MIB, MCE_ACCESS_READ | MCE_ACCESS_WRITE, 6);
	side_open(&user, NULL, 0, 0, 0);
	assert_int_equal(mce_peer_get(user.e, mce_engine_endpoint(owner.e), &req.peer), 0);
	req.addr = (uintptr_t)owner.mem;
	req.rkey = mce_mr_rkey(owner.mr);
	assert_int_equal(mc_fault_set("engine.peer.run=delay:1000"), 0);
	mce_batch_init(&b);
	mce_submit(user.e, &b, &req, 1);
	for (uint64_t until = SECONDS(20); mc_fault_hits("engine.peer.run") == 0 && mc_now_ns() < until;)
		usleep(1000);
	assert_int_equal(mce_batch_wait(user.e, &b, &req, 1, mc_now_ns()), -MC_ETIMEDOUT);
	mc_fault_set(NULL);
	pattern_check(owner.mem, sizeof(mem), 6, 0);
	mce_peer_put(req.peer);
	side_close(&user);
	side_close(&owner);
}

/* A WRITE that was cancelled while the peer was stopped is not carried out when it continues: the range may be
 * reused by then. */
static void a_cancelled_write_is_dropped_by_a_stopped_peer(void **state)
{
	/* Longer than half the owner's progress timeout; the test is about this length. */
	const struct timespec stall = { .tv_sec = 1, .tv_nsec = 500000000 };
	struct mce_peer *peer;
	char mem[4096], byte, command[64];
	struct iovec iov = { mem, sizeof(mem) };
	struct mce_req req = { .op = MCE_WRITE, .iov = &iov, .iovcnt = 1 };
	struct owner o;
	struct side s;
	uint64_t crc;

	assert_int_equal(owner_start(&o, &any_owner), 0);
	side_open(&s, &tcp_conf, 0, 0, 0);
	assert_int_equal(mce_peer_get(s.e, o.endpoint, &peer), 0);
	assert_int_equal(transfer(s.e, peer, MCE_READ, o.addr, o.rkey, &byte, 1, NULL), 0);
	snprintf(command, sizeof(command), "crc 0 %u", (unsigned)sizeof(mem));
	crc = owner_tell(&o, command);
	kill(o.pid, SIGSTOP);
	wait_stopped(o.pid);
	memset(mem, 0x12, sizeof(mem));
	req.peer = peer;
	req.addr = o.addr;
	req.rkey = o.rkey;
	assert_int_equal(mce_transfer(s.e, &req, mc_deadline_ms(20)), -MC_ETIMEDOUT);
	nanosleep(&stall, NULL);
	kill(o.pid, SIGCONT);
	assert_int_equal(transfer(s.e, peer, MCE_READ, o.addr + LEN / 2, o.rkey, &byte, 1, NULL), 0);
	assert_int_equal(owner_tell(&o, command), crc);
	mce_peer_put(peer);
	side_close(&s);
	owner_stop(&o);
}

/* A peer that is stopped for longer than the progress timeout fails only its transfers. */
static void a_stopped_peer_fails_requests_after_the_progress_timeout(void **state)
{
	struct mce_peer *peer;
	struct owner o;
	struct side s;
	char *mem = malloc(LEN);
	uint64_t began;

	assert_int_equal(owner_start(&o, &any_owner), 0);
	side_open(&s, &tcp_conf, 0, 0, 0);
	assert_int_equal(mce_peer_get(s.e, o.endpoint, &peer), 0);
	assert_int_equal(transfer(s.e, peer, MCE_READ, o.addr, o.rkey, mem, 1, NULL), 0);
	kill(o.pid, SIGSTOP);
	wait_stopped(o.pid);
	began = mc_now_ns();
	assert_int_equal(transfer(s.e, peer, MCE_READ, o.addr, o.rkey, mem, LEN, NULL), -MC_ETRANSFER);
	assert_true(seconds_since(began) < 10);
	kill(o.pid, SIGCONT);
	assert_int_equal(transfer(s.e, peer, MCE_READ, o.addr, o.rkey, mem, LEN, NULL), 0);
	pattern_check(mem, LEN, 3, 0);
	mce_peer_put(peer);
	side_close(&s);
	owner_stop(&o);
	free(mem);
}

/* ---- a peer that dies ---- */

static void killed_then_restarted(bool tcp)
{
	struct owner_conf conf = any_owner;
	struct mce_conf econf = tcp_conf;
	struct mce_peer *peer;
	struct owner o, again;
	struct side s;
	char *mem = malloc(LEN);
	uint64_t began, old;
	enum mce_path path;
	int r;

	econf.force_tcp = tcp;
	assert_int_equal(owner_start(&o, &conf), 0);
	side_open(&s, &econf, 0, 0, 0);
	assert_int_equal(mce_peer_get(s.e, o.endpoint, &peer), 0);
	assert_int_equal(transfer(s.e, peer, MCE_READ, o.addr, o.rkey, mem, 100, &path), 0);
	assert_int_equal(path, tcp ? MCE_PATH_TCP : MCE_PATH_MAPPED);
	old = o.rkey;
	owner_kill(&o);
	/* Until its end is noticed, the memory of a mapped peer is readable and correct. */
	began = mc_now_ns();
	do
		r = transfer(s.e, peer, MCE_READ, o.addr, o.rkey, mem, 100, NULL);
	while (r == 0 && seconds_since(began) < 10);
	assert_int_equal(r, -MC_ETRANSFER);
	/* Each request fails at once. */
	began = mc_now_ns();
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(transfer(s.e, peer, MCE_WRITE, o.addr, o.rkey, mem, MIB, NULL),
				 -MC_ETRANSFER);
	assert_true(seconds_since(began) < 5);
	/* The successor on the same port is another engine with other keys. */
	conf.port = atoi(strrchr(o.endpoint, ':') + 1);
	conf.seed = 4;
	assert_int_equal(owner_start(&again, &conf), 0);
	assert_string_equal(again.endpoint, o.endpoint);
	assert_int_equal(transfer(s.e, peer, MCE_READ, again.addr, old, mem, 100, NULL), -ESTALE);
	assert_int_equal(transfer(s.e, peer, MCE_READ, again.addr, again.rkey, mem, LEN, &path), 0);
	assert_int_equal(path, tcp ? MCE_PATH_TCP : MCE_PATH_MAPPED);
	pattern_check(mem, LEN, 4, 0);
	mce_peer_put(peer);
	side_close(&s);
	owner_stop(&again);
	free(mem);
}

static void a_killed_tcp_peer_is_replaced_by_its_successor(void **state)
{
	killed_then_restarted(true);
}

static void a_killed_mapped_peer_is_replaced_by_its_successor(void **state)
{
	killed_then_restarted(false);
}

struct victim {
	struct owner o;
	unsigned transfers;	/* atomic */
	uint64_t killed_ns;
};

/* Kill the owner while it is being written to. */
static void *kill_soon(void *arg)
{
	struct victim *v = arg;

	while (__atomic_load_n(&v->transfers, __ATOMIC_ACQUIRE) == 0)
		usleep(100);
	v->killed_ns = mc_now_ns();
	kill(v->o.pid, SIGKILL);
	return NULL;
}

static void a_peer_killed_during_writes_fails_them(void **state)
{
	struct mce_peer *peer;
	struct victim v = { .transfers = 0 };
	struct side s;
	char *mem = malloc(LEN);
	uint64_t began, over;
	pthread_t t;
	int r;

	assert_int_equal(owner_start(&v.o, &any_owner), 0);
	side_open(&s, &tcp_conf, 0, 0, 0);
	assert_int_equal(mce_peer_get(s.e, v.o.endpoint, &peer), 0);
	assert_int_equal(transfer(s.e, peer, MCE_READ, v.o.addr, v.o.rkey, mem, 1, NULL), 0);
	assert_int_equal(pthread_create(&t, NULL, kill_soon, &v), 0);
	began = mc_now_ns();
	do {
		r = transfer(s.e, peer, MCE_WRITE, v.o.addr, v.o.rkey, mem, LEN, NULL);
		__atomic_fetch_add(&v.transfers, 1, __ATOMIC_RELEASE);
	} while (r == 0 && seconds_since(began) < 20);
	over = mc_now_ns();
	pthread_join(t, NULL);
	assert_int_equal(r, -MC_ETRANSFER);
	assert_true(over < v.killed_ns + 20 * MC_NS_PER_SEC);
	mce_peer_put(peer);
	side_close(&s);
	owner_kill(&v.o);
	free(mem);
}

/* ---- no peer at the address ---- */

static void a_peer_that_starts_late_is_reached(void **state)
{
	struct mce_conf conf = { .host = "127.0.0.1" }, patient = tcp_conf;
	struct mce_peer *peer;
	char addr[MC_ADDR_MAX], mem[64];
	struct side s, late;
	uint64_t began;
	int fd;

	patient.progress_timeout_ms = 30000;
	side_open(&s, &patient, 0, 0, 0);
	/* A port that was ours and has no listener now. */
	fd = mc_socket_listen("127.0.0.1:0", 1, 0, addr);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(mce_peer_get(s.e, addr, &peer), 0);
	began = mc_now_ns();
	assert_int_equal(transfer(s.e, peer, MCE_READ, 4096, 1, mem, 64, NULL), -MC_ETRANSFER);
	assert_int_equal(transfer(s.e, peer, MCE_READ, 4096, 1, mem, 64, NULL), -MC_ETRANSFER);
	/* Waiting for two connects would take 5 s each. */
	assert_true(seconds_since(began) < 10);
	conf.port = atoi(strrchr(addr, ':') + 1);
	side_open(&late, &conf, MIB, MCE_ACCESS_READ, 8);
	assert_int_equal(transfer(s.e, peer, MCE_READ, (uintptr_t)late.mem, mce_mr_rkey(late.mr), mem, 64,
				  NULL), 0);
	pattern_check(mem, 64, 8, 0);
	mce_peer_put(peer);
	side_close(&s);
	side_close(&late);
}

/* A listener that never answers: the waiter's deadline counts, not that of connecting. */
static void a_silent_listener_delays_no_longer_than_the_deadline(void **state)
{
	struct mce_peer *peer;
	char addr[MC_ADDR_MAX], mem[64];
	struct iovec iov = { mem, sizeof(mem) };
	struct mce_req req = { .op = MCE_READ, .addr = 4096, .rkey = 1, .iov = &iov, .iovcnt = 1 }, pair[2] = { req };
	struct mce_conf conf = tcp_conf;
	struct mce_batch b;
	struct side s;
	uint64_t began;
	int fd;

	conf.progress_timeout_ms = 20000;
	side_open(&s, &conf, 0, 0, 0);
	fd = mc_socket_listen("127.0.0.1:0", 8, 0, addr);
	assert_true(fd >= 0);
	assert_int_equal(mce_peer_get(s.e, addr, &peer), 0);
	req.peer = peer;
	began = mc_now_ns();
	/* The batch has a second request, which failed at once because it names no peer. */
	pair[1] = req;
	mce_batch_init(&b);
	mce_submit(s.e, &b, pair, 2);
	assert_int_equal(mce_batch_wait(s.e, &b, pair, 2, mc_deadline_ms(50)), -MC_ETIMEDOUT);
	assert_int_equal(pair[0].status, -EINVAL);
	assert_int_equal(mce_transfer(s.e, &req, mc_deadline_ms(50)), -MC_ETIMEDOUT);
	/* Connecting takes 5 s. */
	assert_true(seconds_since(began) < 4);
	assert_int_equal(mce_transfer(s.e, &req, MC_NEVER), -MC_ETRANSFER);
	mce_peer_put(peer);
	side_close(&s);
	close(fd);
}

/* ---- connections that fail ---- */

static void broken_conns(const char *fault)
{
	struct mce_conf conf = tcp_conf;
	struct side owner, user;
	struct mce_peer *peer;
	char *mem = malloc(16 * MIB);
	int64_t before;

	conf.progress_timeout_ms = 30000;
	side_open(&owner, &conf, 16 * MIB, MCE_ACCESS_READ | MCE_ACCESS_WRITE, 6);
	side_open(&user, &conf, 0, 0, 0);
	assert_int_equal(mce_peer_get(user.e, mce_engine_endpoint(owner.e), &peer), 0);
	before = metric("mooncake_transfer_reconnects_total", "");
	assert_int_equal(transfer(user.e, peer, MCE_READ, (uintptr_t)owner.mem, mce_mr_rkey(owner.mr), mem,
				  MIB, NULL), 0);
	for (unsigned i = 1; i < 12; i++) {
		char spec[128];
		uint32_t crc[256];
		struct iovec iov = { .iov_base = mem, .iov_len = 16 * MIB - 1024 };
		struct mce_req req = {
			.op = MCE_WRITE, .peer = peer, .addr = (uintptr_t)owner.mem,
			.rkey = mce_mr_rkey(owner.mr), .iov = &iov, .iovcnt = 1,
			.crc = crc, .crc_len = iov.iov_len, .crc_tail = true,
		};

		snprintf(spec, sizeof(spec), "%s=error:EPIPE@%u", fault, i);
		assert_int_equal(mc_fault_set(spec), 0);
		pattern_fill(mem, iov.iov_len, i, 0);
		assert_int_equal(mce_transfer(user.e, &req, SECONDS(30)), 0);
		assert_true(mc_fault_hits(fault) >= 1);
		mc_fault_set(NULL);
		pattern_check(owner.mem, iov.iov_len, i, 0);
		assert_memory_equal(owner.mem + iov.iov_len, crc, sizeof(crc));

		assert_int_equal(mc_fault_set(spec), 0);
		memset(mem, 0, iov.iov_len);
		memset(crc, 0, sizeof(crc));
		req.op = MCE_READ;
		req.crc_tail = false;
		assert_int_equal(mce_transfer(user.e, &req, SECONDS(30)), 0);
		mc_fault_set(NULL);
		pattern_check(mem, iov.iov_len, i, 0);
		assert_int_equal(crc[0], mc_crc32c(mem, MC_CRC_CHUNK));
		assert_int_equal(crc[255], mc_crc32c(mem + 255 * MC_CRC_CHUNK,
						     iov.iov_len - 255 * MC_CRC_CHUNK));
	}
	assert_true(metric("mooncake_transfer_reconnects_total", "") > before + 5);
	mce_peer_put(peer);
	side_close(&user);
	side_close(&owner);
	free(mem);
}

static void a_failed_send_is_repeated_on_another_connection(void **state)
{
	broken_conns("engine.tcp.send");
}

static void a_failed_receive_is_repeated_on_another_connection(void **state)
{
	broken_conns("engine.tcp.recv");
}

/* Every connection fails every time: the transfer fails, and does not continue forever. */
static void a_request_fails_when_every_connection_fails(void **state)
{
	struct side owner, user;
	struct mce_peer *peer;
	char mem[4096];

	side_open(&owner, &tcp_conf, MIB, MCE_ACCESS_READ | MCE_ACCESS_WRITE, 6);
	side_open(&user, &tcp_conf, 0, 0, 0);
	assert_int_equal(mce_peer_get(user.e, mce_engine_endpoint(owner.e), &peer), 0);
	assert_int_equal(mc_fault_set("engine.tcp.send=error:EPIPE"), 0);
	assert_int_equal(transfer(user.e, peer, MCE_WRITE, (uintptr_t)owner.mem, mce_mr_rkey(owner.mr), mem,
				  sizeof(mem), NULL), -MC_ETRANSFER);
	mc_fault_set(NULL);
	mce_peer_put(peer);
	side_close(&user);
	side_open(&user, &tcp_conf, 0, 0, 0);
	assert_int_equal(mc_fault_set("engine.tcp.connect=error:ENETUNREACH"), 0);
	assert_int_equal(mce_peer_get(user.e, mce_engine_endpoint(owner.e), &peer), 0);
	assert_int_equal(transfer(user.e, peer, MCE_READ, (uintptr_t)owner.mem, mce_mr_rkey(owner.mr), mem,
				  sizeof(mem), NULL), -MC_ETRANSFER);
	mc_fault_set(NULL);
	assert_int_equal(transfer(user.e, peer, MCE_READ, (uintptr_t)owner.mem, mce_mr_rkey(owner.mr), mem,
				  sizeof(mem), NULL), 0);
	pattern_check(mem, sizeof(mem), 6, 0);
	mce_peer_put(peer);
	side_close(&user);
	side_close(&owner);
}

/* ---- closing ---- */

static void closing_the_engine_cancels_requests(void **state)
{
	char *mem = malloc(LEN);
	struct iovec iov = { .iov_base = mem, .iov_len = LEN };
	struct mce_req req = { .op = MCE_READ, .iov = &iov, .iovcnt = 1 };
	struct mce_conf conf = tcp_conf;
	struct mce_peer *peer;
	struct mce_batch b;
	struct owner o;
	struct side s;

	conf.progress_timeout_ms = 30000;
	assert_int_equal(owner_start(&o, &any_owner), 0);
	side_open(&s, &conf, 0, 0, 0);
	assert_int_equal(mce_peer_get(s.e, o.endpoint, &peer), 0);
	assert_int_equal(transfer(s.e, peer, MCE_READ, o.addr, o.rkey, mem, 1, NULL), 0);
	kill(o.pid, SIGSTOP);
	wait_stopped(o.pid);
	req.peer = peer;
	req.addr = o.addr;
	req.rkey = o.rkey;
	mce_batch_init(&b);
	mce_submit(s.e, &b, &req, 1);
	assert_false(mce_batch_done(&b));
	mce_engine_close(s.e);
	assert_true(mce_batch_done(&b));
	assert_int_equal(req.status, -ECANCELED);
	assert_int_equal(b.failed, 1);
	kill(o.pid, SIGCONT);
	owner_stop(&o);
	free(mem);
}

/* A forked child has the listening socket, too, but does not listen. */
static void a_closed_port_is_free_though_a_child_has_the_socket(void **state)
{
	struct mce_conf conf = tcp_conf;
	struct side s;
	pid_t pid;

	side_open(&s, &conf, 0, 0, 0);
	conf.port = atoi(strrchr(mce_engine_endpoint(s.e), ':') + 1);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	side_close(&s);
	side_open(&s, &conf, 0, 0, 0);
	side_close(&s);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* The path of another READ; on a slow machine of several, until one is mapped. */
static enum mce_path read_path(struct mce_engine *e, struct mce_peer *peer, const struct owner *o)
{
	uint64_t began = mc_now_ns();
	enum mce_path path;
	char byte;

	for (;;) {
		assert_int_equal(transfer(e, peer, MCE_READ, o->addr, o->rkey, &byte, 1, &path), 0);
		if (path == MCE_PATH_MAPPED || seconds_since(began) >= 20)
			return path;
		usleep(1000);
	}
}

/* Answers that arrive after their wait has ended do not end the mapped path. */
static void late_answers_of_the_owner_keep_the_mapped_path(void **state)
{
	struct mce_conf conf = { .progress_timeout_ms = 2000 };
	struct mce_peer *peer;
	struct owner o;
	struct side s;
	char byte;

	assert_int_equal(owner_start(&o, &any_owner), 0);
	side_open(&s, &conf, 0, 0, 0);
	assert_int_equal(mce_peer_get(s.e, o.endpoint, &peer), 0);
	assert_int_equal(read_path(s.e, peer, &o), MCE_PATH_MAPPED);
	kill(o.pid, SIGSTOP);
	wait_stopped(o.pid);
	for (unsigned i = 1; i < 4; i++)
		assert_true(transfer(s.e, peer, MCE_READ, o.addr, o.rkey + i, &byte, 1, NULL) < 0);
	kill(o.pid, SIGCONT);
	/* Its answer follows all of them; if it is late itself, TCP is used. */
	assert_true(transfer(s.e, peer, MCE_READ, o.addr, o.rkey + 4, &byte, 1, NULL) < 0);
	assert_int_equal(read_path(s.e, peer, &o), MCE_PATH_MAPPED);
	mce_peer_put(peer);
	side_close(&s);
	owner_stop(&o);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_read_from_a_stopped_peer_times_out),
		cmocka_unit_test(a_write_to_a_stopped_peer_times_out),
		cmocka_unit_test(memory_is_free_after_a_deadline_at_any_moment),
		cmocka_unit_test(a_request_cancelled_in_the_resolver_is_not_carried_out),
		cmocka_unit_test(a_cancelled_write_is_dropped_by_a_stopped_peer),
		cmocka_unit_test(a_stopped_peer_fails_requests_after_the_progress_timeout),
		cmocka_unit_test(a_killed_tcp_peer_is_replaced_by_its_successor),
		cmocka_unit_test(a_killed_mapped_peer_is_replaced_by_its_successor),
		cmocka_unit_test(a_peer_killed_during_writes_fails_them),
		cmocka_unit_test(a_peer_that_starts_late_is_reached),
		cmocka_unit_test(a_silent_listener_delays_no_longer_than_the_deadline),
		cmocka_unit_test(a_failed_send_is_repeated_on_another_connection),
		cmocka_unit_test(a_failed_receive_is_repeated_on_another_connection),
		cmocka_unit_test(a_request_fails_when_every_connection_fails),
		cmocka_unit_test(closing_the_engine_cancels_requests),
		cmocka_unit_test(a_closed_port_is_free_though_a_child_has_the_socket),
		cmocka_unit_test(late_answers_of_the_owner_keep_the_mapped_path),
	};

	owner_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
