/* SPDX-License-Identifier: Apache-2.0
 * test_engine_process_vm.c - memory that cannot be mapped, of an owner in another process: right bytes and
 * checksums, what is refused, what happens when the kernel does not let us, many regions at once, and the end of
 * a region during copies. */
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

#include "common/clock.h"
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

/* More parts than one call takes, more bytes than one call takes, odd places; checksums with a trailer. */
static void bytes(void **state)
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

static void ranges(void **state)
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

/* Not allowed from the beginning, and all of a sudden: other paths go on. */
static void not_allowed(void **state)
{
	assert_int_equal(mc_fault_set("engine.process_vm.probe=error:EPERM"), 0);
	assert_int_equal(read_some(0, MIB, 0), MCE_PATH_TCP);
	assert_int_equal(mc_fault_hits("engine.process_vm.probe"), 1);
}

static void no_longer_allowed(void **state)
{
	assert_int_equal(read_some(0, MIB, 0), MCE_PATH_PROCESS_VM);
	assert_int_equal(mc_fault_set("engine.process_vm.copy=error:EPERM"), 0);
	assert_int_equal(read_some(7, MIB, 0), MCE_PATH_TCP);
	mc_fault_set(NULL);
	assert_int_equal(read_some(7, MIB, 0), MCE_PATH_TCP);
}

/* Pages that the kernel does not take hold of: those requests go another way, and after some in a row all. */
static void missing_pages(void **state)
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

/* What is wrong with the request's own memory is wrong on every path. */
static void own_pages_missing(void **state)
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

/* Memory that only its own process can use, half of it; the owner is of this process. */
static void secret_pages(void **state)
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

/* Whether it was the owner's memory that was read shows afterwards. */
static void ended_meanwhile(void **state)
{
	assert_int_equal(read_some(0, 64, 0), MCE_PATH_PROCESS_VM);
	/* one look before and one after each call */
	assert_int_equal(mc_fault_set("engine.process_vm.ended=error:ESRCH@2"), 0);
	read_some(0, 64, -MC_ETRANSFER);
	assert_int_equal(mc_fault_hits("engine.process_vm.ended"), 2);
	assert_int_equal(mc_fault_set("engine.process_vm.ended=error:ESRCH@4"), 0);
	read_some(0, 9 * MIB, -MC_ETRANSFER);
	assert_int_equal(mc_fault_hits("engine.process_vm.ended"), 4);
}

/* The owner's process goes on as another program, with all that tells of it but its memory; @faults: the owner's. */
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

static void exec_of_owner(void **state)
{
	other_program(NULL);
}

/* Of an owner that has no guard, as of a version before this, the nonce is looked at. */
static void exec_of_owner_without_guard(void **state)
{
	other_program("engine.mapserver.guard=error:EIO");
}

static void unregistered(void **state)
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

/* The region ends while its bytes are being summed, however long that takes: nothing of them is written.  The owner
 * is of this process. */
static void ended_before_copy(void **state)
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

static void dead(void **state)
{
	assert_int_equal(read_some(0, MIB, 0), MCE_PATH_PROCESS_VM);
	owner_kill(&owner);
	read_some(0, 64, -MC_ETRANSFER);
	open_pair(state);
}

/* The owner closes to who does not read what it tells, and is there all the same: the next request connects anew. */
static void closed_for_a_moment(void **state)
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
static void many_regions(void **state)
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
	/* known now: calls over many regions */
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

/* Bytes of those that were read, all by @path. */
static void many_check(enum mce_path path)
{
	for (unsigned i = 0; i < MANY; i++) {
		assert_int_equal(many_req[i].status, 0);
		assert_int_equal(many_req[i].path, path);
		pattern_check(many_mem + i * PIECE, PIECE, SEED, i * STRIDE);
	}
}

/* A batch for a peer that nobody has talked to yet goes as those after it do. */
static void first_batch(void **state)
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
	/* One that was found alone each time that the requests were looked at, the end of a run, and some when the
	 * peer was connected between two looks. */
	assert_in_range(mc_fault_hits("engine.process_vm.run"), 1, 12);
	assert_in_range(mc_fault_hits("engine.process_vm.copy"), 0, 12 + 64);
	mce_peer_put(peer);
	side_close(&user);
	peer = known;
	user = first;
}

/* What is not taken together at first is later on: nothing tells those that go alone by then. */
static void together_again(void **state)
{
	read_some(0, 64, 0);
	assert_int_equal(mc_fault_set("engine.peer.run=error:EIO@1,engine.process_vm.copy=error:EIO@9999"), 0);
	many_prepare(MCE_READ);
	assert_int_equal(many_run(), 0);
	many_check(MCE_PATH_PROCESS_VM);
	assert_in_range(mc_fault_hits("engine.process_vm.copy"), 1, 64);
}

static void share_calls(void **state)
{
	read_some(0, 64, 0);
	assert_int_equal(mc_fault_set("engine.process_vm.run=error:EIO@9999,"
				      "engine.process_vm.copy=error:EIO@9999"), 0);
	many_prepare(MCE_READ);
	assert_int_equal(many_run(), 0);
	many_check(MCE_PATH_PROCESS_VM);
	/* 1024 parts are the most that the kernel takes */
	assert_int_equal(mc_fault_hits("engine.process_vm.run"), (MANY + 1023) / 1024);
	assert_int_equal(mc_fault_hits("engine.process_vm.copy"), 0);
	/* and back, to where it was taken from, backwards: one part each */
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

/* What lies side by side is one part, and a long one goes alone. */
static void side_by_side(void **state)
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

/* What is wrong with one is its own affair. */
static void wrong_ones_among(void **state)
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

/* The call for all fails: each gets its own status, or another path. */
static void call_fails(void **state)
{
	read_some(0, 64, 0);
	assert_int_equal(mc_fault_set("engine.process_vm.run=error:EFAULT,"
				      "engine.process_vm.copy=error:EFAULT@2000"), 0);
	many_prepare(MCE_READ);
	assert_int_equal(many_run(), 0);
	/* the one that failed was tried once more */
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

static void many_ended_meanwhile(void **state)
{
	read_some(0, 64, 0);
	assert_int_equal(mc_fault_set("engine.process_vm.ended=error:ESRCH@2"), 0);
	many_prepare(MCE_READ);
	assert_int_equal(many_run(), 1024);
	for (unsigned i = 0; i < MANY; i++)
		assert_int_equal(many_req[i].status, i < 1024 ? -MC_ETRANSFER : 0);
}

static void many_after_exec(void **state)
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

static void many_unregistered(void **state)
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
	bool odd;			/* a status that cannot be */
};

/* Batches of writes to places of its own until it has found the region gone often enough. */
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
static void threads_and_unregister(void **state)
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
		cmocka_unit_test_setup_teardown(bytes, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(ranges, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(not_allowed, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(no_longer_allowed, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(missing_pages, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(own_pages_missing, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(secret_pages, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(ended_meanwhile, open_pair, close_pair),
		cmocka_unit_test(exec_of_owner),
		cmocka_unit_test(exec_of_owner_without_guard),
		cmocka_unit_test_setup_teardown(unregistered, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(ended_before_copy, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(dead, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(closed_for_a_moment, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(many_regions, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(first_batch, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(together_again, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(share_calls, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(side_by_side, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(wrong_ones_among, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(call_fails, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(many_ended_meanwhile, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(many_after_exec, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(many_unregistered, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(threads_and_unregister, open_pair, close_pair),
	};

	owner_main(argc, argv);
	if (path_without_fd() != MCE_PATH_PROCESS_VM) {
		puts("SKIP: this machine keeps processes apart (yama)");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
