/* SPDX-License-Identifier: Apache-2.0
 * test_engine_process_vm.c - memory of another process that cannot be mapped: correct bytes and checksums,
 * refusals, denied access, many regions at once, and the end of a region during copies. */
#include <config.h>

#include "test_engine_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/crc32c.h"
#include "common/err.h"
#include "common/fault.h"

#define MIB (1ull << 20)
#define LEN (24 * MIB + 12345)
#define SEED 3
#define REGIONS 600u
#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

static struct owner owner;
static struct side user;
static struct mce_peer *peer;

static int open_pair(void **state)
{
	struct owner_conf conf = { .len = LEN, .access = MCE_ACCESS_READ | MCE_ACCESS_WRITE,
				   .no_fd = true, .seed = SEED };

	assert_int_equal(owner_start(&owner, &conf), 0);
	side_open(&user, NULL, 0, 0, 0);
	return mce_peer_get(user.e, owner.endpoint, &peer);
}

static int close_pair(void **state)
{
	mc_fault_set(NULL);
	mce_peer_put(peer);
	side_close(&user);
	owner_stop(&owner);
	return 0;
}

static enum mce_path read_some(uint64_t off, uint64_t len, int want)
{
	char *mem = malloc(len);
	enum mce_path path;

	assert_non_null(mem);
	assert_int_equal(transfer(user.e, peer, MCE_READ, owner.addr + off, owner.rkey, mem, len, &path), want);
	if (want == 0)
		pattern_check(mem, len, SEED, off);
	free(mem);
	return path;
}

/* More iovec entries and more bytes than one call takes, odd offsets; checksums with a trailer. */
static void bytes_checksums_and_trailer_are_copied(void **state)
{
	uint64_t len = 9 * MIB + 777, n = mc_crc_chunks(len);
	struct iovec iov[300];
	uint32_t *crc = calloc(n, sizeof(*crc)), *tail = calloc(n, sizeof(*crc));
	char *mem = malloc(len);
	struct mce_req req = {
		.op = MCE_READ, .peer = peer, .addr = owner.addr + 5, .rkey = owner.rkey, .iov = iov,
		.iovcnt = 300, .crc = crc, .crc_len = len,
	};
	uint64_t at = 0;

	assert_non_null(crc);
	assert_non_null(tail);
	assert_non_null(mem);
	for (unsigned i = 0; i < 300; i++) {
		iov[i].iov_base = mem + at;
		iov[i].iov_len = i == 299 ? len - at : i % 7 ? len / 300 + i : 0;
		at += iov[i].iov_len;
	}
	assert_int_equal(mce_transfer(user.e, &req, SECONDS(30)), 0);
	assert_int_equal(req.path, MCE_PATH_PROCESS_VM);
	pattern_check(mem, len, SEED, 5);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t off = i * MC_CRC_CHUNK;
		uint64_t run = len - off < MC_CRC_CHUNK ? len - off : MC_CRC_CHUNK;

		assert_int_equal(crc[i], mc_crc32c(mem + off, run));
	}
	/* the same bytes elsewhere, with their checksums behind them */
	req.op = MCE_WRITE;
	req.addr = owner.addr + 12 * MIB;
	req.crc_tail = true;
	assert_int_equal(mce_transfer(user.e, &req, SECONDS(30)), 0);
	assert_int_equal(req.path, MCE_PATH_PROCESS_VM);
	assert_int_equal(transfer(user.e, peer, MCE_READ, req.addr + ((len + 3) & ~3ull), owner.rkey, tail,
				  n * sizeof(*tail), NULL), 0);
	assert_memory_equal(tail, crc, n * sizeof(*tail));
	free(mem);
	free(crc);
	free(tail);
}

static void a_transfer_outside_the_region_is_refused(void **state)
{
	read_some(0, 1, 0);
	read_some(LEN - 1, 1, 0);
	read_some(LEN - 1, 2, -ERANGE);
	read_some((uint64_t)-1, 1, -ERANGE);
	read_some(LEN, 1, -ERANGE);
	owner.rkey++;
	read_some(0, 1, -ESTALE);
	owner.rkey--;
}

/* Access denied from the beginning, or later: other paths are used. */
static void tcp_is_used_when_access_is_denied_at_first(void **state)
{
	assert_int_equal(mc_fault_set("engine.process_vm.probe=error:EPERM"), 0);
	assert_int_equal(read_some(0, MIB, 0), MCE_PATH_TCP);
	assert_int_equal(mc_fault_hits("engine.process_vm.probe"), 1);
}

static void tcp_is_used_when_access_is_denied_later(void **state)
{
	assert_int_equal(read_some(0, MIB, 0), MCE_PATH_PROCESS_VM);
	assert_int_equal(mc_fault_set("engine.process_vm.copy=error:EPERM"), 0);
	assert_int_equal(read_some(7, MIB, 0), MCE_PATH_TCP);
	mc_fault_set(NULL);
	assert_int_equal(read_some(7, MIB, 0), MCE_PATH_TCP);
}

/* Pages that the kernel cannot access: those requests use another path, and after several in a row all requests
 * do. */
static void inaccessible_pages_are_copied_over_tcp(void **state)
{
	assert_int_equal(read_some(0, MIB, 0), MCE_PATH_PROCESS_VM);
	assert_int_equal(mc_fault_set("engine.process_vm.copy=error:EFAULT"), 0);
	for (unsigned i = 0; i < 7; i++)
		assert_int_equal(read_some(7, MIB, 0), MCE_PATH_TCP);
	mc_fault_set(NULL);
	assert_int_equal(read_some(7, MIB, 0), MCE_PATH_PROCESS_VM);
	assert_int_equal(mc_fault_set("engine.process_vm.copy=error:EFAULT"), 0);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(read_some(7, MIB, 0), MCE_PATH_TCP);
	assert_int_equal(mc_fault_hits("engine.process_vm.copy"), 8);
}

/* A request with inaccessible own memory fails on every path. */
static void inaccessible_own_memory_fails_the_request(void **state)
{
	char *mem = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(mem != MAP_FAILED);
	assert_int_equal(mprotect(mem + MIB, MIB, PROT_NONE), 0);
	read_some(0, 64, 0);
	for (unsigned i = 0; i < 6; i++) {
		assert_int_equal(transfer(user.e, peer, i % 2 ? MCE_READ : MCE_WRITE, owner.addr, owner.rkey,
					  mem + MIB - 4096, 8192, NULL), -MC_ETRANSFER);
		assert_int_equal(transfer(user.e, peer, i % 2 ? MCE_READ : MCE_WRITE, owner.addr, owner.rkey,
					  mem + MIB, 64, NULL), -MC_ETRANSFER);
	}
	munmap(mem, 2 * MIB);
	assert_int_equal(transfer(user.e, peer, MCE_READ, owner.addr, owner.rkey, &(char){ 0 }, 1, NULL), 0);
	assert_int_equal(read_some(8192, 64, 0), MCE_PATH_PROCESS_VM);
}

/* Memory that only its own process can access, for a part of the region; the owner is in this process. */
static void secret_memory_of_the_owner_is_copied(void **state)
{
	int fd = (int)syscall(SYS_memfd_secret, 0);
	struct mce_mr_attr attr = { .len = 2 * MIB, .fd = -1, .access = MCE_ACCESS_READ | MCE_ACCESS_WRITE };
	struct mce_peer *to;
	struct mce_mr *mr;
	struct side other;
	char *mem, got[8192];

	if (fd < 0 || ftruncate(fd, 65536)) {
		skip();
		return;
	}
	mem = mmap(NULL, attr.len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(mem != MAP_FAILED);
	assert_true(mmap(mem, 65536, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == mem);
	pattern_fill(mem, attr.len, SEED, 0);
	attr.base = mem;
	side_open(&other, NULL, 0, 0, 0);
	assert_int_equal(mce_mr_register(other.e, &attr, &mr), 0);
	assert_int_equal(mce_peer_get(user.e, mce_engine_endpoint(other.e), &to), 0);
	for (uint64_t at = 65536 - 4096; at <= 65536; at += 4096) {
		assert_int_equal(transfer(user.e, to, MCE_READ, (uintptr_t)mem + at, mce_mr_rkey(mr), got,
					  sizeof(got), NULL), 0);
		pattern_check(got, sizeof(got), SEED, at);
	}
	for (uint64_t at = 0; at <= 65536; at += 4096) {
		pattern_fill(got, sizeof(got), at, 1);
		assert_int_equal(transfer(user.e, to, MCE_WRITE, (uintptr_t)mem + at, mce_mr_rkey(mr), got,
					  sizeof(got), NULL), 0);
		pattern_check(mem + at, sizeof(got), at, 1);
	}
	mce_peer_put(to);
	side_close(&other);
	munmap(mem, attr.len);
	close(fd);
}

/* Only after the copy it shows whether it was the owner's memory. */
static void a_copy_fails_when_the_owner_ends_during_it(void **state)
{
	assert_int_equal(read_some(0, 64, 0), MCE_PATH_PROCESS_VM);
	/* one check before and one after each call */
	assert_int_equal(mc_fault_set("engine.process_vm.ended=error:ESRCH@2"), 0);
	read_some(0, 64, -MC_ETRANSFER);
	assert_int_equal(mc_fault_hits("engine.process_vm.ended"), 2);
	assert_int_equal(mc_fault_set("engine.process_vm.ended=error:ESRCH@4"), 0);
	read_some(0, 9 * MIB, -MC_ETRANSFER);
	assert_int_equal(mc_fault_hits("engine.process_vm.ended"), 4);
}

/* The owner's process executes another program and keeps its id and descriptors, but not its memory; @faults: of
 * the owner. */
static void other_program(const char *faults)
{
	struct owner_conf conf = { .len = LEN, .access = MCE_ACCESS_READ | MCE_ACCESS_WRITE,
				   .no_fd = true, .seed = SEED, .faults = faults };
	char mem[4096];

	assert_int_equal(owner_start(&owner, &conf), 0);
	side_open(&user, NULL, 0, 0, 0);
	assert_int_equal(mce_peer_get(user.e, owner.endpoint, &peer), 0);
	assert_int_equal(read_some(0, 64, 0), MCE_PATH_PROCESS_VM);
	owner_tell(&owner, "exec");
	memset(mem, 0, sizeof(mem));
	for (unsigned op = MCE_READ; op <= MCE_WRITE; op++) {
		assert_int_equal(transfer(user.e, peer, (enum mce_op)op, owner.addr, owner.rkey, mem,
					  sizeof(mem), NULL), -MC_ETRANSFER);
		assert_int_equal(mem[0], 0);
	}
	assert_int_equal(owner_tell(&owner, "count"), 0);
	close_pair(NULL);
}

static void nothing_is_copied_after_the_owner_executes_a_program(void **state)
{
	other_program(NULL);
}

/* An owner without a guard, like an older version, is recognized by its nonce. */
static void nothing_is_copied_after_an_exec_without_a_guard(void **state)
{
	other_program("engine.mapserver.guard=error:EIO");
}

static void an_unregistered_region_is_stale(void **state)
{
	assert_int_equal(read_some(0, MIB, 0), MCE_PATH_PROCESS_VM);
	owner_tell(&owner, "unregister");
	read_some(0, 64, -ESTALE);
	read_some(0, MIB, -ESTALE);
}

struct slow_write {
	struct mce_peer *to;
	uint64_t addr, rkey;
	int status;		/* out */
};

static void *slow_write_main(void *arg)
{
	static char mem[MIB];
	struct slow_write *w = arg;
	struct iovec iov = { mem, sizeof(mem) };
	uint32_t crc[MIB / MC_CRC_CHUNK];
	struct mce_req req = {
		.op = MCE_WRITE, .peer = w->to, .addr = w->addr, .rkey = w->rkey, .iov = &iov, .iovcnt = 1,
		.crc = crc, .crc_len = MIB,
	};

	(void)mce_transfer(user.e, &req, SECONDS(30));
	w->status = req.status;
	return NULL;
}

/* The region ends while checksums are computed, however long that takes: nothing is written. The owner is in this
 * process. */
static void nothing_is_written_after_unregister_returns(void **state)
{
	static char plain[MIB];
	struct mce_mr_attr attr = { .base = plain, .len = MIB, .fd = -1, .access = MCE_ACCESS_READ | MCE_ACCESS_WRITE };
	struct slow_write w = { .addr = (uintptr_t)plain };
	uint64_t end = SECONDS(20);
	struct mce_mr *mr;
	struct side s;
	pthread_t t;
	char byte;

	side_open(&s, NULL, 0, 0, 0);
	assert_int_equal(mce_mr_register(s.e, &attr, &mr), 0);
	assert_int_equal(mce_peer_get(user.e, mce_engine_endpoint(s.e), &w.to), 0);
	w.rkey = mce_mr_rkey(mr);
	assert_int_equal(transfer(user.e, w.to, MCE_READ, w.addr, w.rkey, &byte, 1, NULL), 0);
	memset(plain, SEED, MIB);
	assert_int_equal(mc_fault_set("engine.process_vm.feed=delay:2000"), 0);
	assert_int_equal(pthread_create(&t, NULL, slow_write_main, &w), 0);
	while (mc_fault_hits("engine.process_vm.feed") < 1 && mc_now_ns() < end)
		usleep(1000);
	mce_mr_unregister(mr);
	pthread_join(t, NULL);
	assert_int_equal(mc_fault_hits("engine.process_vm.feed"), 1);
	assert_int_equal(w.status, -ESTALE);
	for (unsigned i = 0; i < MIB; i++)
		assert_int_equal(plain[i], SEED);
	mce_peer_put(w.to);
	side_close(&s);
}

static void a_dead_owner_fails_requests(void **state)
{
	assert_int_equal(read_some(0, MIB, 0), MCE_PATH_PROCESS_VM);
	owner_kill(&owner);
	read_some(0, 64, -MC_ETRANSFER);
	open_pair(state);
}

/* The owner closes the connection of a mapper that does not read, and still runs: the next request connects again. */
static void a_connection_closed_by_the_owner_is_replaced(void **state)
{
	static char plain[4096], got[64];
	struct mce_mr_attr attr = { .base = plain, .len = sizeof(plain), .fd = -1, .access = MCE_ACCESS_READ };
	struct mce_mr *mr, *other;
	struct mce_peer *to;
	enum mce_path path;
	struct side s;
	uint64_t end;

	side_open(&s, NULL, 0, 0, 0);
	assert_int_equal(mce_mr_register(s.e, &attr, &mr), 0);
	assert_int_equal(mce_peer_get(user.e, mce_engine_endpoint(s.e), &to), 0);
	assert_int_equal(transfer(user.e, to, MCE_READ, (uintptr_t)plain, mce_mr_rkey(mr), got, 64, &path), 0);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(mc_fault_set("engine.mapserver.forget=error:ENOBUFS,"
					      "engine.process_vm.probe=error:EIO@9999"), 0);
		attr.base = got;
		attr.len = sizeof(got);
		assert_int_equal(mce_mr_register(s.e, &attr, &other), 0);
		mce_mr_unregister(other);
		end = SECONDS(20);
		while (mc_fault_hits("engine.process_vm.probe") < 1) {
			assert_int_equal(transfer(user.e, to, MCE_READ, (uintptr_t)plain, mce_mr_rkey(mr), got, 64,
						  &path), 0);
			assert_int_equal(path, MCE_PATH_PROCESS_VM);
			assert_true(mc_now_ns() < end);
		}
	}
	mc_fault_set(NULL);
	mce_peer_put(to);
	side_close(&s);
}

/* One batch over many regions that are all unknown before. */
static void one_batch_covers_many_unknown_regions(void **state)
{
	static char mem[REGIONS * 64], got[REGIONS * 64];
	static struct mce_req req[REGIONS * 2];
	static struct iovec iov[REGIONS * 2];
	struct mce_peer *self;
	struct mce_batch b;
	struct side other;

	side_open(&other, NULL, 0, 0, 0);
	assert_int_equal(mce_peer_get(user.e, mce_engine_endpoint(other.e), &self), 0);
	pattern_fill(mem, sizeof(mem), SEED, 0);
	mce_batch_init(&b);
	for (unsigned i = 0; i < REGIONS; i++) {
		struct mce_mr_attr attr = { .base = mem + i * 64, .len = 64, .fd = -1,
					    .access = MCE_ACCESS_READ };
		struct mce_mr *mr;

		assert_int_equal(mce_mr_register(other.e, &attr, &mr), 0);
		/* each twice, and not one after the other */
		for (unsigned k = i; k < 2 * REGIONS; k += REGIONS) {
			iov[k].iov_base = got + i * 64;
			iov[k].iov_len = 64;
			req[k] = (struct mce_req){ .op = MCE_READ, .peer = self, .addr = (uintptr_t)attr.base,
						   .rkey = mce_mr_rkey(mr), .iov = &iov[k], .iovcnt = 1 };
		}
	}
	mce_submit(user.e, &b, req, REGIONS * 2);
	assert_int_equal(mce_batch_wait(user.e, &b, req, REGIONS * 2, SECONDS(30)), 0);
	for (unsigned i = 0; i < REGIONS * 2; i++) {
		assert_int_equal(req[i].status, 0);
		assert_int_equal(req[i].path, MCE_PATH_PROCESS_VM);
	}
	assert_memory_equal(got, mem, sizeof(mem));
	/* the regions are known now: calls over many regions */
	memset(got, 0, sizeof(got));
	mce_batch_init(&b);
	assert_int_equal(mc_fault_set("engine.process_vm.run=error:EIO@9999"), 0);
	mce_submit(user.e, &b, req, REGIONS * 2);
	assert_int_equal(mce_batch_wait(user.e, &b, req, REGIONS * 2, SECONDS(30)), 0);
	assert_int_equal(b.failed, 0);
	assert_in_range(mc_fault_hits("engine.process_vm.run"), 1, REGIONS * 2 / 16);
	assert_memory_equal(got, mem, sizeof(mem));
	mce_peer_put(self);
	side_close(&other);
}

/* ---- many at once ------------------------------------------------------------------------------ */

#define MANY 3000u
#define PIECE 300u
#define STRIDE 5000ull

static struct mce_req many_req[MANY];
static struct iovec many_iov[MANY];
static char many_mem[MANY * PIECE];

/* MANY transfers of PIECE bytes, at STRIDE there. */
static void many_prepare(enum mce_op op)
{
	for (unsigned i = 0; i < MANY; i++) {
		many_iov[i].iov_base = many_mem + i * PIECE;
		many_iov[i].iov_len = PIECE;
		many_req[i] = (struct mce_req){
			.op = op, .peer = peer, .addr = owner.addr + i * STRIDE, .rkey = owner.rkey,
			.iov = &many_iov[i], .iovcnt = 1,
		};
	}
}

static unsigned many_run(void)
{
	struct mce_batch b;

	mce_batch_init(&b);
	mce_submit(user.e, &b, many_req, MANY);
	assert_int_equal(mce_batch_wait(user.e, &b, many_req, MANY, SECONDS(30)), 0);
	return b.failed;
}

/* Check the bytes of all READs, and that they used @path. */
static void many_check(enum mce_path path)
{
	for (unsigned i = 0; i < MANY; i++) {
		assert_int_equal(many_req[i].status, 0);
		assert_int_equal(many_req[i].path, path);
		pattern_check(many_mem + i * PIECE, PIECE, SEED, i * STRIDE);
	}
}

/* The first batch for a peer shares calls like later ones. */
static void the_first_batch_to_a_peer_shares_calls(void **state)
{
	struct mce_peer *known = peer;
	struct side first = user;

	side_open(&user, NULL, 0, 0, 0);
	assert_int_equal(mce_peer_get(user.e, owner.endpoint, &peer), 0);
	assert_int_equal(mc_fault_set("engine.process_vm.run=error:EIO@9999,"
				      "engine.process_vm.copy=error:EIO@9999"), 0);
	many_prepare(MCE_READ);
	assert_int_equal(many_run(), 0);
	many_check(MCE_PATH_PROCESS_VM);
	/* Singly: one at each scan of the requests, the end of a run, and some when the peer was connected between
	 * two scans. */
	assert_in_range(mc_fault_hits("engine.process_vm.run"), 1, 12);
	assert_in_range(mc_fault_hits("engine.process_vm.copy"), 0, 12 + 64);
	mce_peer_put(peer);
	side_close(&user);
	peer = known;
	user = first;
}

/* Requests that were not taken together at first are taken together later. */
static void requests_offered_singly_share_calls_again(void **state)
{
	read_some(0, 64, 0);
	assert_int_equal(mc_fault_set("engine.peer.run=error:EIO@1,engine.process_vm.copy=error:EIO@9999"), 0);
	many_prepare(MCE_READ);
	assert_int_equal(many_run(), 0);
	many_check(MCE_PATH_PROCESS_VM);
	assert_in_range(mc_fault_hits("engine.process_vm.copy"), 1, 64);
}

static void many_requests_share_calls(void **state)
{
	read_some(0, 64, 0);
	assert_int_equal(mc_fault_set("engine.process_vm.run=error:EIO@9999,"
				      "engine.process_vm.copy=error:EIO@9999"), 0);
	many_prepare(MCE_READ);
	assert_int_equal(many_run(), 0);
	many_check(MCE_PATH_PROCESS_VM);
	/* the kernel takes at most 1024 iovec entries */
	assert_int_equal(mc_fault_hits("engine.process_vm.run"), (MANY + 1023) / 1024);
	assert_int_equal(mc_fault_hits("engine.process_vm.copy"), 0);
	/* and write them back in reverse order: one iovec entry each */
	many_prepare(MCE_WRITE);
	for (unsigned i = 0; i < MANY / 2; i++) {
		struct mce_req r = many_req[i];

		many_req[i] = many_req[MANY - 1 - i];
		many_req[MANY - 1 - i] = r;
	}
	assert_int_equal(many_run(), 0);
	memset(many_mem, 0, sizeof(many_mem));
	many_prepare(MCE_READ);
	assert_int_equal(many_run(), 0);
	many_check(MCE_PATH_PROCESS_VM);
	read_some(0, LEN, 0);
}

/* Adjacent requests are one iovec entry, and a long one is copied singly. */
static void adjacent_requests_share_an_iovec_entry(void **state)
{
	read_some(0, 64, 0);
	many_prepare(MCE_READ);
	for (unsigned i = 0; i < MANY; i++)
		many_req[i].addr = owner.addr + i * PIECE;
	many_req[7].iov = &(struct iovec){ malloc(MIB), MIB };
	assert_non_null(many_req[7].iov->iov_base);
	assert_int_equal(many_run(), 0);
	pattern_check(many_req[7].iov->iov_base, MIB, SEED, 7 * PIECE);
	pattern_fill(many_mem + 7 * PIECE, PIECE, SEED, 7 * PIECE);
	pattern_check(many_mem, sizeof(many_mem), SEED, 0);
	free(many_req[7].iov->iov_base);
}

/* An invalid request does not affect the others. */
static void invalid_requests_of_a_batch_fail_alone(void **state)
{
	uint32_t crc = 0;

	read_some(0, 64, 0);
	many_prepare(MCE_READ);
	many_req[5].addr = owner.addr - 1;
	many_req[6].addr = owner.addr + LEN - PIECE + 1;
	many_req[7].addr = UINT64_MAX - 5;
	many_req[1023].iovcnt = 0;
	many_req[1024].rkey++;
	many_req[1025].op = MCE_WRITE;
	pattern_fill(many_mem + 1025 * PIECE, PIECE, SEED, 1025 * STRIDE);
	many_req[1026].crc = &crc;
	many_req[1026].crc_len = PIECE;
	many_req[2999].op = (enum mce_op)9;
	assert_int_equal(many_run(), 5);
	for (unsigned i = 0; i < MANY; i++) {
		int want = i >= 5 && i <= 7 ? -ERANGE : i == 1024 ? -ESTALE : i == 2999 ? -EINVAL : 0;

		assert_int_equal(many_req[i].status, want);
		if (want == 0 && i != 1023)
			pattern_check(many_mem + i * PIECE, PIECE, SEED, i * STRIDE);
	}
	assert_int_equal(crc, mc_crc32c(many_mem + 1026 * PIECE, PIECE));
	read_some(0, LEN, 0);
}

/* The shared call fails: each request gets its own status, or another path. */
static void requests_of_a_failed_call_are_copied_singly(void **state)
{
	read_some(0, 64, 0);
	assert_int_equal(mc_fault_set("engine.process_vm.run=error:EFAULT,"
				      "engine.process_vm.copy=error:EFAULT@2000"), 0);
	many_prepare(MCE_READ);
	assert_int_equal(many_run(), 0);
	/* the one that failed was tried again */
	many_check(MCE_PATH_PROCESS_VM);
	memset(many_mem, 0, sizeof(many_mem));
	assert_int_equal(mc_fault_set("engine.process_vm.run=error:EPERM@2,"
				      "engine.process_vm.copy=error:EPERM"), 0);
	many_prepare(MCE_READ);
	assert_int_equal(many_run(), 0);
	for (unsigned i = 0; i < MANY; i++) {
		assert_int_equal(many_req[i].path, i < 1024 ? MCE_PATH_PROCESS_VM : MCE_PATH_TCP);
		pattern_check(many_mem + i * PIECE, PIECE, SEED, i * STRIDE);
	}
}

static void a_shared_call_fails_when_the_owner_ends(void **state)
{
	read_some(0, 64, 0);
	assert_int_equal(mc_fault_set("engine.process_vm.ended=error:ESRCH@2"), 0);
	many_prepare(MCE_READ);
	assert_int_equal(many_run(), 1024);
	for (unsigned i = 0; i < MANY; i++)
		assert_int_equal(many_req[i].status, i < 1024 ? -MC_ETRANSFER : 0);
}

static void no_request_of_a_batch_is_copied_after_an_exec(void **state)
{
	read_some(0, 64, 0);
	owner_tell(&owner, "exec");
	memset(many_mem, 0, sizeof(many_mem));
	many_prepare(MCE_READ);
	assert_int_equal(many_run(), MANY);
	for (unsigned i = 0; i < MANY * PIECE; i++)
		assert_int_equal(many_mem[i], 0);
	many_prepare(MCE_WRITE);
	assert_int_equal(many_run(), MANY);
	assert_int_equal(owner_tell(&owner, "count"), 0);
}

static void a_batch_to_an_unregistered_region_is_stale(void **state)
{
	read_some(0, 64, 0);
	owner_tell(&owner, "unregister");
	many_prepare(MCE_WRITE);
	assert_int_equal(many_run(), MANY);
	for (unsigned i = 0; i < MANY; i++)
		assert_int_equal(many_req[i].status, -ESTALE);
}

/* ---- several threads --------------------------------------------------------------------------- */

#define THREADS 8u
#define EACH 500u
#define AFTER 20u

struct writer {
	pthread_t thread;
	unsigned n;
	uint32_t before, after;		/* atomic: batches while the region was there, and since it is not */
	bool odd;			/* an invalid status */
};

/* Batches of WRITEs to its own ranges until the region was gone often enough. */
static void *write_main(void *arg)
{
	struct writer *w = arg;
	struct mce_req *req = calloc(EACH, sizeof(*req));
	struct iovec *iov = calloc(EACH, sizeof(*iov));
	char *mem = malloc(EACH * PIECE);
	struct mce_batch b;

	if (!req || !iov || !mem)
		abort();
	memset(mem, (int)w->n, EACH * PIECE);
	while (w->after < AFTER && !w->odd) {
		for (unsigned i = 0; i < EACH; i++) {
			iov[i] = (struct iovec){ mem + i * PIECE, PIECE };
			req[i] = (struct mce_req){ .op = MCE_WRITE, .peer = peer, .rkey = owner.rkey,
				.addr = owner.addr + (i * THREADS + w->n) * STRIDE, .iov = &iov[i],
				.iovcnt = 1 };
		}
		mce_batch_init(&b);
		mce_submit(user.e, &b, req, EACH);
		if (mce_batch_wait(user.e, &b, req, EACH, SECONDS(30)))
			w->odd = true;
		for (unsigned i = 0; i < EACH; i++)
			w->odd |= req[i].status != 0 && req[i].status != -ESTALE;
		__atomic_add_fetch(b.failed == EACH ? &w->after : &w->before, 1, __ATOMIC_RELEASE);
		memset(mem, (int)(w->n + w->before), EACH * PIECE);
	}
	free(req);
	free(iov);
	free(mem);
	return NULL;
}

/* After the owner's unregister has returned, not one byte of its memory changes. */
static void no_thread_writes_after_unregister(void **state)
{
	struct writer w[THREADS] = { { .n = 0 } };
	uint64_t crc;
	char ask[64];

	read_some(0, 64, 0);
	for (unsigned i = 0; i < THREADS; i++) {
		w[i].n = i;
		assert_int_equal(pthread_create(&w[i].thread, NULL, write_main, &w[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		while (__atomic_load_n(&w[i].before, __ATOMIC_ACQUIRE) < 3)
			usleep(100);
	owner_tell(&owner, "unregister");
	snprintf(ask, sizeof(ask), "crc 0 %llu", LEN);
	crc = owner_tell(&owner, ask);
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(w[i].thread, NULL);
		assert_false(w[i].odd);
	}
	assert_int_equal(owner_tell(&owner, ask), crc);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(bytes_checksums_and_trailer_are_copied, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(a_transfer_outside_the_region_is_refused, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(tcp_is_used_when_access_is_denied_at_first, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(tcp_is_used_when_access_is_denied_later, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(inaccessible_pages_are_copied_over_tcp, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(inaccessible_own_memory_fails_the_request, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(secret_memory_of_the_owner_is_copied, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(a_copy_fails_when_the_owner_ends_during_it, open_pair, close_pair),
		cmocka_unit_test(nothing_is_copied_after_the_owner_executes_a_program),
		cmocka_unit_test(nothing_is_copied_after_an_exec_without_a_guard),
		cmocka_unit_test_setup_teardown(an_unregistered_region_is_stale, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(nothing_is_written_after_unregister_returns, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(a_dead_owner_fails_requests, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(a_connection_closed_by_the_owner_is_replaced, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(one_batch_covers_many_unknown_regions, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(the_first_batch_to_a_peer_shares_calls, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(requests_offered_singly_share_calls_again, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(many_requests_share_calls, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(adjacent_requests_share_an_iovec_entry, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(invalid_requests_of_a_batch_fail_alone, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(requests_of_a_failed_call_are_copied_singly, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(a_shared_call_fails_when_the_owner_ends, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(no_request_of_a_batch_is_copied_after_an_exec, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(a_batch_to_an_unregistered_region_is_stale, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(no_thread_writes_after_unregister, open_pair, close_pair),
	};

	owner_main(argc, argv);
	if (path_without_fd() != MCE_PATH_PROCESS_VM) {
		puts("SKIP: this machine keeps processes apart (yama)");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
