/* SPDX-License-Identifier: Apache-2.0
 * test_engine_process_vm.c - memory that cannot be mapped, of an owner in another process: right bytes and
 * checksums, what is refused, what happens when the kernel does not let us, many regions at once, and the end of
 * a region during copies. */
#include <config.h>

#include "test_engine_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/crc32c.h"
#include "common/err.h"
#include "common/fault.h"

#define MIB (1ull << 20)
#define LEN (24 * MIB + 12345)
#define SEED 3
#define REGIONS 600u

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

/* Pages that are not there end the request, not the path. */
static void missing_pages(void **state)
{
	assert_int_equal(read_some(0, MIB, 0), MCE_PATH_PROCESS_VM);
	assert_int_equal(mc_fault_set("engine.process_vm.copy=error:EFAULT"), 0);
	read_some(7, MIB, -MC_ETRANSFER);
	mc_fault_set(NULL);
	assert_int_equal(read_some(7, MIB, 0), MCE_PATH_PROCESS_VM);
}

static void unregistered(void **state)
{
	assert_int_equal(read_some(0, MIB, 0), MCE_PATH_PROCESS_VM);
	owner_tell(&owner, "unregister");
	read_some(0, 64, -ESTALE);
	read_some(0, MIB, -ESTALE);
}

static void dead(void **state)
{
	assert_int_equal(read_some(0, MIB, 0), MCE_PATH_PROCESS_VM);
	owner_kill(&owner);
	read_some(0, 64, -MC_ETRANSFER);
	open_pair(state);
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
	mce_peer_put(self);
	side_close(&other);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(bytes, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(ranges, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(not_allowed, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(no_longer_allowed, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(missing_pages, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(unregistered, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(dead, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(many_regions, open_pair, close_pair),
	};

	owner_main(argc, argv);
	if (path_without_fd() != MCE_PATH_PROCESS_VM) {
		puts("SKIP: this machine keeps processes apart (yama)");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
