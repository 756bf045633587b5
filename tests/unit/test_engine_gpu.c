/* SPDX-License-Identifier: Apache-2.0
 * test_engine_gpu.c - transfers of device memory on the fake driver, whose memory the processor cannot access: every
 * path, both sides, checksums, few copies for many blocks, failures, cancellation. */
#include <config.h>

#include "test_engine_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/crc32c.h"
#include "common/err.h"
#include "common/gpu/gpu.h"
#include "tests/lib/fake_cuda_use.h"

#ifndef FAKE_CUDA	/* the lint compiles without this test's flags */
#define FAKE_CUDA "libcuda.so.1"
#endif

#define MIB (1ull << 20)
#define LEN (40 * MIB + 12345)
#define SEED 7u
#define RW (MCE_ACCESS_READ | MCE_ACCESS_WRITE)

static const struct mc_gpu_driver *gpu;
static struct side user, owner;		/* @owner has host memory */
static struct mce_peer *peer;
static char *device;			/* LEN bytes, not registered */

/* The bytes of device memory, for the test only. */
static char *shadow(const void *p)
{
	return fake_cuda_at(p);
}

static int load(void **state)
{
	assert_int_equal(fake_cuda_load(FAKE_CUDA), 0);
	gpu = mc_gpu_load();
	return gpu ? 0 : -1;
}

static void open_pair(bool tcp, bool upstream)
{
	struct mce_conf conf = { .force_tcp = tcp, .upstream = upstream, .bind_host = "127.0.0.1" };

	side_open(&owner, &conf, LEN, RW, SEED);
	side_open(&user, &conf, 0, 0, 0);
	assert_int_equal(mce_peer_get(user.e, mce_engine_endpoint(owner.e), &peer), 0);
	device = fake_cuda_new(LEN);
}

static int open_mapped(void **state)
{
	open_pair(false, false);
	return 0;
}

static int open_tcp(void **state)
{
	open_pair(true, true);
	return 0;
}

static int close_pair(void **state)
{
	mce_peer_put(peer);
	side_close(&user);
	side_close(&owner);
	gpu->free(device);
	fake_cuda_set("FAKE_CUDA_FAIL", "");
	return 0;
}

/* One transfer with checksums; @tail: a WRITE with the trailer. */
static int transfer_crc(enum mce_op op, uint64_t off, const struct iovec *iov, unsigned n, bool tail,
			enum mce_path *path)
{
	struct mce_req req = {
		.op = op, .peer = peer, .addr = mce_mr_base(owner.mr) + off, .rkey = mce_mr_rkey(owner.mr), .iov = iov,
		.iovcnt = n, .crc_tail = tail,
	};
	uint64_t len = 0, at = 0;
	int r;

	for (unsigned i = 0; i < n; i++)
		len += iov[i].iov_len;
	req.crc_len = len;
	req.crc = calloc(mc_crc_chunks(len), sizeof(uint32_t));
	assert_non_null(req.crc);
	r = mce_transfer(user.e, &req, SECONDS(30));
	for (uint64_t i = 0; i < mc_crc_chunks(len) && r == 0; i++, at += MC_CRC_CHUNK) {
		uint64_t chunk = len - at < MC_CRC_CHUNK ? len - at : MC_CRC_CHUNK;

		assert_int_equal(req.crc[i], mc_crc32c(owner.mem + off + at, chunk));
	}
	if (r == 0 && tail && mc_crc_chunks(len) > 1)
		assert_memory_equal(owner.mem + off + ((len + 3) & ~3ull), req.crc,
				    mc_crc_chunks(len) * sizeof(uint32_t));
	free(req.crc);
	if (path)
		*path = req.path;
	return r;
}

/* READ and WRITE of @len bytes between one buffer of device memory and the owner's host memory. */
static void both_ways(uint64_t len, enum mce_path want)
{
	struct iovec iov = { device + 3, len };
	enum mce_path path;

	memset(shadow(device), 'x', len + 6);
	assert_int_equal(transfer_crc(MCE_READ, 5, &iov, 1, false, &path), 0);
	assert_int_equal(path, want);
	pattern_check(shadow(device) + 3, len, SEED, 5);
	assert_memory_equal(shadow(device), "xxx", 3);
	assert_memory_equal(shadow(device) + 3 + len, "xxx", 3);
	pattern_fill(shadow(device) + 3, len, SEED + 1, 0);
	assert_int_equal(transfer_crc(MCE_WRITE, 8, &iov, 1, true, NULL), 0);
	pattern_check(owner.mem + 8, len, SEED + 1, 0);
	pattern_fill(owner.mem, owner.len, SEED, 0);
}

static void sizes_are_copied(enum mce_path want)
{
	static const uint64_t sizes[] = { 1, 4096, 65536, 65537, MIB, 3 * MIB + 17, 33 * MIB + 1 };
	uint64_t pageable = fake_cuda_count("pageable");

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		both_ways(sizes[i], want);
	/* All host memory that took part was pinned. */
	assert_int_equal(fake_cuda_count("pageable"), pageable);
}

static void mapped_memory_is_copied_once(void **state)
{
	uint64_t before = fake_cuda_count("bytes_to_host") + fake_cuda_count("bytes_to_device"), sum = 0;

	sizes_are_copied(MCE_PATH_MAPPED);
	sum = 2 * (1 + 4096 + 65536 + 65537 + MIB + 3 * MIB + 17 + 33 * MIB + 1);
	assert_int_equal(fake_cuda_count("bytes_to_host") + fake_cuda_count("bytes_to_device") - before, sum);
}

static void tcp_goes_through_slots(void **state)
{
	sizes_are_copied(MCE_PATH_TCP);
}

/* Buffers of the host and of the GPU in one request, as a read of a part with its checksums has them. */
static void mixed_buffers_are_copied(void **state)
{
	char head[777], tail[65536 + 1];
	struct iovec iov[] = {
		{ head, sizeof(head) }, { device, 2 * MIB + 3 }, { tail, sizeof(tail) }, { device + 3 * MIB, 9 },
	};

	assert_int_equal(transfer_crc(MCE_READ, 0, iov, 4, false, NULL), 0);
	pattern_check(head, sizeof(head), SEED, 0);
	pattern_check(shadow(device), 2 * MIB + 3, SEED, sizeof(head));
	pattern_check(tail, sizeof(tail), SEED, sizeof(head) + 2 * MIB + 3);
	pattern_check(shadow(device) + 3 * MIB, 9, SEED, sizeof(head) + 2 * MIB + 3 + sizeof(tail));
	memset(owner.mem, 0, 4 * MIB);
	assert_int_equal(transfer_crc(MCE_WRITE, 0, iov, 4, true, NULL), 0);
	pattern_check(owner.mem, sizeof(head) + 2 * MIB + 3 + sizeof(tail) + 9, SEED, 0);
	pattern_fill(owner.mem, owner.len, SEED, 0);
}

#define BLOCKS 2000u
#define BLOCK 8192u
/* Blocks in reverse order; how many copies the GPU made. */
static uint64_t many_blocks(enum mce_op op)
{
	struct mce_req *req = calloc(BLOCKS, sizeof(*req));
	struct iovec *iov = calloc(BLOCKS, sizeof(*iov));
	uint64_t copies = fake_cuda_count("copies");
	struct mce_batch b;

	assert_true(req && iov);
	for (unsigned i = 0; i < BLOCKS; i++) {
		iov[i] = (struct iovec){ device + (uint64_t)(BLOCKS - 1 - i) * BLOCK, BLOCK };
		req[i] = (struct mce_req){
			.op = op, .peer = peer, .addr = mce_mr_base(owner.mr) + (uint64_t)i * BLOCK,
			.rkey = mce_mr_rkey(owner.mr), .iov = &iov[i], .iovcnt = 1,
		};
	}
	mce_batch_init(&b);
	mce_submit(user.e, &b, req, BLOCKS);
	assert_int_equal(mce_batch_wait(user.e, &b, req, BLOCKS, SECONDS(30)), 0);
	assert_int_equal(b.failed, 0);
	for (unsigned i = 0; i < BLOCKS; i++)
		assert_memory_equal(owner.mem + (uint64_t)i * BLOCK,
				    shadow(device) + (uint64_t)(BLOCKS - 1 - i) * BLOCK, BLOCK);
	free(req);
	free(iov);
	return fake_cuda_count("copies") - copies;
}

static void many_blocks_share_copies(void **state)
{
	both_ways(1, MCE_PATH_TCP);
	memset(shadow(device), 0, (size_t)BLOCKS * BLOCK);
	assert_in_range(many_blocks(MCE_READ), 1, BLOCKS / 16);
	pattern_fill(shadow(device), (uint64_t)BLOCKS * BLOCK, SEED + 2, 0);
	assert_in_range(many_blocks(MCE_WRITE), 1, BLOCKS / 16);
}

static void many_mapped_blocks_share_copies(void **state)
{
	both_ways(1, MCE_PATH_MAPPED);
	memset(shadow(device), 0, (size_t)BLOCKS * BLOCK);
	assert_in_range(many_blocks(MCE_READ), 1, BLOCKS / 16);
	pattern_fill(shadow(device), (uint64_t)BLOCKS * BLOCK, SEED + 2, 0);
	assert_in_range(many_blocks(MCE_WRITE), 1, BLOCKS / 16);
}

/* ---- the owner's memory is a GPU's ---- */

static void owner_serves_device_memory(struct mce_peer *p, uint64_t rkey, char *theirs, uint64_t len)
{
	char *mem = malloc(len);
	uint64_t base = (uintptr_t)theirs;

	assert_non_null(mem);
	pattern_fill(shadow(theirs), len, SEED, 0);
	assert_int_equal(transfer(user.e, p, MCE_READ, base, rkey, mem, len, NULL), 0);
	pattern_check(mem, len, SEED, 0);
	pattern_fill(mem, len, SEED + 1, 0);
	assert_int_equal(transfer(user.e, p, MCE_WRITE, base, rkey, mem, len, NULL), 0);
	pattern_check(shadow(theirs), len, SEED + 1, 0);
	/* From GPU to GPU. */
	pattern_fill(shadow(device), len, SEED + 2, 0);
	assert_int_equal(transfer(user.e, p, MCE_WRITE, base, rkey, device, len, NULL), 0);
	pattern_check(shadow(theirs), len, SEED + 2, 0);
	memset(shadow(device), 0, len);
	assert_int_equal(transfer(user.e, p, MCE_READ, base, rkey, device, len, NULL), 0);
	pattern_check(shadow(device), len, SEED + 2, 0);
	assert_int_equal(transfer(user.e, p, MCE_WRITE, base + 1, rkey, mem, len, NULL), -ERANGE);
	free(mem);
}

static void device_regions_are_served(void **state)
{
	uint64_t len = 9 * MIB + 33;
	char *theirs = fake_cuda_new(len);
	struct mce_mr_attr attr = { .base = theirs, .len = len, .access = RW, .fd = -1 };
	int port = mce_engine_upstream_port(owner.e);
	struct mce_peer *self, *up;
	struct mce_mr *mr;

	assert_int_equal(mce_mr_register(owner.e, &attr, &mr), 0);
	owner_serves_device_memory(peer, mce_mr_rkey(mr), theirs, len);
	if (port > 0) {
		assert_int_equal(mce_peer_get_upstream(user.e, "127.0.0.1", port, 2, &up), 0);
		owner_serves_device_memory(up, 0, theirs, len);
		mce_peer_put(up);
	}
	mce_mr_unregister(mr);
	/* Its own. */
	assert_int_equal(mce_mr_register(user.e, &attr, &mr), 0);
	assert_int_equal(mce_peer_get(user.e, mce_engine_endpoint(user.e), &self), 0);
	owner_serves_device_memory(self, mce_mr_rkey(mr), theirs, len);
	mce_peer_put(self);
	mce_mr_unregister(mr);
	gpu->free(theirs);
}

/* ---- failures ---- */

static void a_failed_copy_fails_its_request(void **state)
{
	struct iovec iov = { device, 2 * MIB };
	static const char *const names[] = {
		"cuMemcpyAsync:*:2,cuMemcpy:*:2", "cuEventRecord:*:999", "cuEventSynchronize:*:999",
		"cuStreamWaitEvent:*:999",
	};

	for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++) {
		fake_cuda_set("FAKE_CUDA_FAIL", names[i]);
		assert_true(transfer_crc(MCE_READ, 0, &iov, 1, false, NULL) < 0);
		assert_true(transfer_crc(MCE_WRITE, 0, &iov, 1, true, NULL) < 0);
		fake_cuda_set("FAKE_CUDA_FAIL", "");
	}
	pattern_fill(owner.mem, owner.len, SEED, 0);
	both_ways(2 * MIB, mce_peer_on_numa_node(peer, 0) ? MCE_PATH_TCP : MCE_PATH_MAPPED);
}

static void *release_later(void *arg)
{
	usleep(400 * 1000);
	fake_cuda_hold(0);
	return NULL;
}

/* A request whose time is over ends when no copy touches its memory any more. */
static void a_cancelled_request_leaves_its_memory(void **state)
{
	uint64_t begun = mc_now_ms();
	struct iovec iov = { device, 8 * MIB };
	struct mce_req req = {
		.op = MCE_READ, .peer = peer, .addr = mce_mr_base(owner.mr), .rkey = mce_mr_rkey(owner.mr), .iov = &iov,
		.iovcnt = 1,
	};
	pthread_t t;

	fake_cuda_hold(1);
	assert_int_equal(pthread_create(&t, NULL, release_later, NULL), 0);
	assert_int_equal(mce_transfer(user.e, &req, mc_deadline_ms(100)), -MC_ETIMEDOUT);
	assert_in_range(mc_now_ms() - begun, 350, 5000);
	pthread_join(t, NULL);
	memset(shadow(device), 'z', 8 * MIB);
	usleep(50 * 1000);
	for (uint64_t i = 0; i < 8 * MIB; i += 4096)
		assert_int_equal(shadow(device)[i], 'z');
	both_ways(2 * MIB, MCE_PATH_TCP);
}

static void *close_later(void *arg)
{
	usleep(200 * 1000);
	fake_cuda_hold(0);
	return NULL;
}

/* Closing an engine ends requests that wait for copies. */
static void an_engine_closes_with_copies_under_way(void **state)
{
	struct iovec iov[2] = { { device, 8 * MIB }, { device + 16 * MIB, 8 * MIB } };
	struct mce_req req[2];
	struct mce_batch b;
	struct side other;
	struct mce_conf conf = { .force_tcp = true };
	struct mce_peer *p;
	pthread_t t;

	side_open(&other, &conf, 0, 0, 0);
	assert_int_equal(mce_peer_get(other.e, mce_engine_endpoint(owner.e), &p), 0);
	for (unsigned i = 0; i < 2; i++)
		req[i] = (struct mce_req){
			.op = i ? MCE_WRITE : MCE_READ, .peer = p, .addr = mce_mr_base(owner.mr) + i * 16 * MIB,
			.rkey = mce_mr_rkey(owner.mr), .iov = &iov[i], .iovcnt = 1,
		};
	fake_cuda_hold(1);
	mce_batch_init(&b);
	mce_submit(other.e, &b, req, 2);
	assert_int_equal(pthread_create(&t, NULL, close_later, NULL), 0);
	side_close(&other);
	pthread_join(t, NULL);
	assert_int_equal(mce_batch_left(&b), 0);
	assert_int_equal(req[0].status, -ECANCELED);
	assert_int_equal(req[1].status, -ECANCELED);
	pattern_fill(owner.mem, owner.len, SEED, 0);
}

/* ---- work of the program ---- */

static bool gate;

static void gate_wait(void *arg)
{
	while (!__atomic_load_n(&gate, __ATOMIC_SEQ_CST))
		usleep(1000);
	if (arg)
		memset(arg, 'N', MIB);
}

static void *gate_open_later(void *arg)
{
	usleep(300 * 1000);
	__atomic_store_n(&gate, true, __ATOMIC_SEQ_CST);
	return NULL;
}

/* A transfer has the bytes of work that was given to the default stream before it. */
static void work_of_the_program_comes_first(void **state)
{
	struct iovec iov = { device, MIB };
	pthread_t t;

	memset(shadow(device), 'O', MIB);
	gate = false;
	assert_int_equal(gpu->call_on(0, gate_wait, shadow(device)), 0);
	assert_int_equal(pthread_create(&t, NULL, gate_open_later, NULL), 0);
	assert_int_equal(transfer_crc(MCE_WRITE, 0, &iov, 1, false, NULL), 0);
	pthread_join(t, NULL);
	for (uint64_t i = 0; i < MIB; i += 512)
		assert_int_equal(owner.mem[i], 'N');
	pattern_fill(owner.mem, owner.len, SEED, 0);
}

/* Work of the program waits for an ordered transfer, and another transfer for that work. */
static void an_ordered_transfer_passes_those_that_wait(void **state)
{
	struct iovec iov[2] = { { device, MIB }, { device + 8 * MIB, MIB } };
	struct mce_req req[2];
	struct mce_batch b;

	both_ways(1, MCE_PATH_TCP);
	gate = false;
	assert_int_equal(gpu->call_on(0, gate_wait, NULL), 0);
	for (unsigned i = 0; i < 2; i++)
		req[i] = (struct mce_req){
			.op = MCE_WRITE, .peer = peer, .addr = mce_mr_base(owner.mr) + i * 8 * MIB,
			.rkey = mce_mr_rkey(owner.mr), .iov = &iov[i], .iovcnt = 1, .ordered = i == 1,
		};
	mce_batch_init(&b);
	mce_submit(user.e, &b, &req[0], 1);
	assert_int_equal(mce_transfer(user.e, &req[1], SECONDS(10)), 0);
	assert_int_equal(mce_req_status(&req[0]), -EINPROGRESS);
	__atomic_store_n(&gate, true, __ATOMIC_SEQ_CST);
	assert_int_equal(mce_batch_wait(user.e, &b, req, 1, SECONDS(10)), 0);
	assert_int_equal(req[0].status, 0);
	pattern_fill(owner.mem, owner.len, SEED, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(mapped_memory_is_copied_once, open_mapped, close_pair),
		cmocka_unit_test_setup_teardown(many_mapped_blocks_share_copies, open_mapped, close_pair),
		cmocka_unit_test_setup_teardown(device_regions_are_served, open_mapped, close_pair),
		cmocka_unit_test_setup_teardown(mixed_buffers_are_copied, open_mapped, close_pair),
		cmocka_unit_test_setup_teardown(a_failed_copy_fails_its_request, open_mapped, close_pair),
		cmocka_unit_test_setup_teardown(work_of_the_program_comes_first, open_mapped, close_pair),
		cmocka_unit_test_setup_teardown(tcp_goes_through_slots, open_tcp, close_pair),
		cmocka_unit_test_setup_teardown(many_blocks_share_copies, open_tcp, close_pair),
		cmocka_unit_test_setup_teardown(device_regions_are_served, open_tcp, close_pair),
		cmocka_unit_test_setup_teardown(mixed_buffers_are_copied, open_tcp, close_pair),
		cmocka_unit_test_setup_teardown(a_failed_copy_fails_its_request, open_tcp, close_pair),
		cmocka_unit_test_setup_teardown(work_of_the_program_comes_first, open_tcp, close_pair),
		cmocka_unit_test_setup_teardown(an_ordered_transfer_passes_those_that_wait, open_tcp, close_pair),
		cmocka_unit_test_setup_teardown(a_cancelled_request_leaves_its_memory, open_tcp, close_pair),
		cmocka_unit_test_setup_teardown(an_engine_closes_with_copies_under_way, open_tcp, close_pair),
	};

	return cmocka_run_group_tests(tests, load, NULL);
}
