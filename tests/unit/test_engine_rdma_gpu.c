/* SPDX-License-Identifier: Apache-2.0
 * test_engine_rdma_gpu.c - memory of a GPU that NICs read and write themselves, and requests that are staged instead:
 * fake NICs and a fake GPU, whose memory the processor cannot access at the device's addresses. */
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
#include "engine/engine_i.h"
#include "engine/rdma/rdma_i.h"
#include "tests/lib/fake_cuda_use.h"
#include "tests/lib/fake_verbs.h"

#ifndef FAKE_CUDA	/* the lint compiles without this test's flags */
#define FAKE_CUDA "libcuda.so.1"
#endif

#define HOST (16u << 20)
#define DEVICE ((16u << 20) + 4096)

/* A side with host memory, and device memory. */
struct pair {
	struct side owner, user;
	struct mce_mr *to_mr, *from_mr;	/* device memory: the owner's, the user's */
	char *to, *from;
	uint64_t to_len;		/* bytes of it; all of the user's is DEVICE */
	struct mce_peer *peer;
};

static void *alias(unsigned long long p)
{
	return fake_cuda_alias(p);
}

/* Work of the program on the GPU: after @ms, fill @n bytes. */
struct work {
	unsigned ms;
	void *at;
	int byte;
	size_t n;
};

static void work_run(void *arg)
{
	struct work *w = arg;

	usleep(w->ms * 1000);
	memset(w->at, w->byte, w->n);
	free(w);
}

static void work_add(unsigned ms, void *p, int byte, size_t n)
{
	struct work *w = malloc(sizeof(*w));

	assert_non_null(w);
	*w = (struct work){ ms, fake_cuda_at(p), byte, n };
	assert_int_equal(mc_gpu()->call_on(0, work_run, w), 0);
}

static const struct mce_conf rdma_conf = { .rdma_devices = "", .force_rdma = true, .force_tcp = true };

static struct mce_mr *device_register(struct mce_engine *e, char *at, uint64_t len, unsigned access)
{
	struct mce_mr_attr attr = { .base = at, .len = len, .access = access, .fd = -1 };
	struct mce_mr *mr;

	assert_int_equal(mce_mr_register(e, &attr, &mr), 0);
	return mr;
}

/* The owner's device region begins @skip bytes after its allocation. */
static void pair_open_at(struct pair *p, uint64_t to_len, uint64_t skip)
{
	memset(p, 0, sizeof(*p));
	mce_verbs_replace(fake_verbs());
	side_open(&p->owner, &rdma_conf, HOST, MCE_ACCESS_READ | MCE_ACCESS_WRITE, 1);
	side_open(&p->user, &rdma_conf, HOST, 0, 2);
	p->to_len = to_len;
	p->to = (char *)fake_cuda_new(skip + to_len) + skip;
	p->from = fake_cuda_new(DEVICE);
	p->to_mr = device_register(p->owner.e, p->to, to_len, MCE_ACCESS_READ | MCE_ACCESS_WRITE);
	p->from_mr = device_register(p->user.e, p->from, DEVICE, 0);
	assert_int_equal(mce_peer_get(p->user.e, mce_engine_endpoint(p->owner.e), &p->peer), 0);
}

static void pair_open(struct pair *p)
{
	pair_open_at(p, DEVICE, 0);
}

static void pair_close(struct pair *p)
{
	mce_peer_put(p->peer);
	side_close(&p->user);
	side_close(&p->owner);
	assert_int_equal(fake_live_objects(), 0);
	fake_reset(0);
	fake_cuda_set("FAKE_CUDA_NO", "");
	mce_verbs_replace(NULL);
	mc_gpu()->free(p->to);
	mc_gpu()->free(p->from);
}

/* Of the owner's device memory. */
static struct mce_req req_of(struct pair *p, enum mce_op op, uint64_t off, struct iovec *iov, unsigned iovcnt)
{
	return (struct mce_req){
		.op = op, .peer = p->peer, .addr = (uintptr_t)p->to + off, .rkey = mce_mr_rkey(p->to_mr),
		.iov = iov, .iovcnt = iovcnt,
	};
}

static int move(struct pair *p, enum mce_op op, uint64_t off, void *mem, uint64_t len, enum mce_path *ret_path)
{
	struct iovec iov = { mem, len };
	struct mce_req req = req_of(p, op, off, &iov, 1);
	int r = mce_transfer(p->user.e, &req, SECONDS(20));

	if (ret_path)
		*ret_path = req.path;
	return r;
}

static char *at(void *mem)
{
	void *device = fake_cuda_at(mem);

	return device ? device : mem;
}

/* Write and read back @len bytes between @mem and the owner's device memory; the path of both. */
static enum mce_path round_trip(struct pair *p, uint64_t off, char *mem, uint64_t len, uint64_t seed)
{
	enum mce_path out, in;

	pattern_fill(at(mem), len, seed, 0);
	assert_int_equal(move(p, MCE_WRITE, off, mem, len, &out), 0);
	pattern_check(at(p->to + off), len, seed, 0);
	memset(at(mem), 0, len);
	assert_int_equal(move(p, MCE_READ, off, mem, len, &in), 0);
	pattern_check(at(mem), len, seed, 0);
	return out == in ? in : MCE_PATH_NONE;
}

/* Both transfers without a copy of the GPU, or both with some. */
static bool is_direct(struct pair *p, uint64_t off, char *mem, uint64_t len, uint64_t seed)
{
	uint64_t before = fake_cuda_count("copies");

	(void)round_trip(p, off, mem, len, seed);
	return fake_cuda_count("copies") == before;
}

/* ---- bytes ---- */

static void bytes_move_without_the_gpu(void **state)
{
	static const uint64_t len[] = { 1, 7, 64, 65, 4096, 65537, 1 << 20, (8 << 20) + 13 };
	uint64_t before = fake_cuda_count("copies");
	struct pair p;

	fake_reset(2);
	pair_open(&p);
	for (unsigned i = 0; i < sizeof(len) / sizeof(len[0]); i++) {
		assert_int_equal(round_trip(&p, i * 3, p.from + i, len[i], i), MCE_PATH_RDMA);
		/* host memory here, device memory there */
		assert_int_equal(round_trip(&p, i * 5, p.user.mem + i, len[i], 100 + i), MCE_PATH_RDMA);
	}
	assert_int_equal(fake_cuda_count("copies"), before);
	assert_true(fake_dmabufs(0) == 2 && fake_dmabufs(1) == 2);
	pair_close(&p);
}

static void device_memory_here_host_memory_there(void **state)
{
	uint64_t before = fake_cuda_count("copies");
	struct iovec iov;
	struct mce_req req;
	struct pair p;

	fake_reset(1);
	pair_open(&p);
	pattern_fill(at(p.from), 1 << 20, 5, 0);
	iov = (struct iovec){ p.from, 1 << 20 };
	req = (struct mce_req){
		.op = MCE_WRITE, .peer = p.peer, .addr = (uintptr_t)p.owner.mem, .rkey = mce_mr_rkey(p.owner.mr),
		.iov = &iov, .iovcnt = 1,
	};
	assert_int_equal(mce_transfer(p.user.e, &req, SECONDS(20)), 0);
	pattern_check(p.owner.mem, 1 << 20, 5, 0);
	assert_int_equal(fake_cuda_count("copies"), before);
	pair_close(&p);
}

static void pieces_of_both_kinds_in_one_request(void **state)
{
	enum { PIECES = 40, LEN = PIECES * 3001 };
	uint64_t before = fake_cuda_count("copies");
	struct iovec iov[PIECES + 1];
	struct mce_req req;
	struct pair p;

	fake_reset(2);
	pair_open(&p);
	iov[0] = (struct iovec){ NULL, 0 };
	for (unsigned i = 0; i < PIECES; i++) {
		iov[1 + i] = (struct iovec){ (i % 3 ? p.from : p.user.mem) + i * 9000, 3001 };
		pattern_fill(at(iov[1 + i].iov_base), 3001, 4, i * 3001);
	}
	req = req_of(&p, MCE_WRITE, 11, iov, PIECES + 1);
	assert_int_equal(mce_transfer(p.user.e, &req, SECONDS(20)), 0);
	pattern_check(at(p.to + 11), LEN, 4, 0);
	for (unsigned i = 0; i < PIECES; i++)
		memset(at(iov[1 + i].iov_base), 0, 3001);
	req = req_of(&p, MCE_READ, 11, iov, PIECES + 1);
	assert_int_equal(mce_transfer(p.user.e, &req, SECONDS(20)), 0);
	for (unsigned i = 0; i < PIECES; i++)
		pattern_check(at(iov[1 + i].iov_base), 3001, 4, i * 3001);
	assert_int_equal(req.path, MCE_PATH_RDMA);
	assert_int_equal(fake_cuda_count("copies"), before);
	pair_close(&p);
}

/* Also the first ones, which wait for the connection. */
static void a_batch_is_not_staged(void **state)
{
	enum { N = 5000 };
	struct mce_req *reqs = calloc(N, sizeof(*reqs));
	struct iovec *iov = calloc(N, sizeof(*iov));
	uint64_t before = fake_cuda_count("copies");
	struct mce_batch b;
	struct pair p;

	fake_reset(2);
	pair_open(&p);
	for (unsigned round = 0; round < 2; round++) {
		pattern_fill(at(p.from), N * 640, round, 0);
		for (unsigned i = 0; i < N; i++) {
			iov[i] = (struct iovec){ p.from + i * 640, 640 };
			reqs[i] = req_of(&p, MCE_WRITE, i * 640, &iov[i], 1);
		}
		mce_batch_init(&b);
		mce_submit(p.user.e, &b, reqs, N);
		assert_int_equal(mce_batch_wait(p.user.e, &b, reqs, N, SECONDS(30)), 0);
		assert_int_equal(b.failed, 0);
		pattern_check(at(p.to), N * 640, round, 0);
	}
	assert_int_equal(fake_cuda_count("copies"), before);
	pair_close(&p);
	free(reqs);
	free(iov);
}

/* ---- registration ---- */

static void large_memory_is_registered_in_parts(void **state)
{
	static const uint64_t GIB = 1ull << 30;
	static const uint64_t off[] = { 0, GIB - 5000, 4 * GIB - 40000, 4 * GIB + 123, 5 * GIB - 70000 };
	uint32_t rkeys[2], lkeys[2], first[2];
	struct pair p;

	fake_reset(2);
	pair_open_at(&p, 5 * GIB + 777, 3 * 4096 + 512);
	for (unsigned i = 0; i < sizeof(off) / sizeof(off[0]); i++) {
		assert_int_equal(round_trip(&p, off[i], p.from + i, 70777, i), MCE_PATH_RDMA);
		pattern_fill(at(p.from), 70777, 50 + i, 0);
		assert_int_equal(move(&p, MCE_WRITE, off[i], p.from, 70777, NULL), 0);
	}
	for (unsigned i = 0; i < sizeof(off) / sizeof(off[0]); i++)
		pattern_check(at(p.to + off[i]), i + 1 < 5 ? 40000 : 70777, 50 + i, 0);
	assert_true(fake_dmabuf_longest() <= GIB);
	assert_true(fake_dmabuf_offset() < 65536);
	/* the six parts, and the user's memory */
	assert_int_equal(fake_dmabufs(0), 7);
	assert_int_equal(mce_mr_nic_part(p.to_mr), GIB);
	mce_mr_nic_keys(p.to_mr, 0, first, lkeys);
	mce_mr_nic_keys(p.to_mr, 5 * GIB, rkeys, lkeys);
	assert_true(rkeys[0] && rkeys[1] && rkeys[0] != first[0] && rkeys[1] != first[1]);
	p.to -= 3 * 4096 + 512;
	pair_close(&p);
}

static void without_dma_buf_peer_memory_is_used(void **state)
{
	struct pair p;

	fake_reset(2);
	fake_peer_memory(alias);
	fake_cuda_set("FAKE_CUDA_NO", "cuMemGetHandleForAddressRange");
	pair_open(&p);
	assert_true(is_direct(&p, 0, p.from, 3 << 20, 1));
	assert_int_equal(fake_dmabufs(0), 0);
	pair_close(&p);
	/* the NIC, not the GPU, has none */
	fake_reset(2);
	fake_peer_memory(alias);
	fake_dmabuf_error(0, EOPNOTSUPP, 0);
	pair_open(&p);
	assert_true(is_direct(&p, 0, p.from, 3 << 20, 2));
	assert_true(fake_dmabufs(0) == 0 && fake_dmabufs(1) == 2);
	pair_close(&p);
	/* the user's choice */
	setenv("WITH_NVIDIA_PEERMEM", "1", 1);
	fake_reset(1);
	fake_peer_memory(alias);
	pair_open(&p);
	assert_true(is_direct(&p, 0, p.from, 3 << 20, 3));
	assert_int_equal(fake_dmabufs(0), 0);
	pair_close(&p);
	/* which is not possible */
	fake_reset(1);
	pair_open(&p);
	unsetenv("WITH_NVIDIA_PEERMEM");
	assert_true(is_direct(&p, 0, p.from, 3 << 20, 4));
	assert_int_equal(fake_dmabufs(0), 2);
	pair_close(&p);
}

/* ---- what is staged ---- */

static void memory_that_no_nic_can_access_is_staged(void **state)
{
	uint32_t rkeys[2], lkeys[2];
	struct pair p;

	fake_reset(2);
	fake_cuda_set("FAKE_CUDA_NO", "cuMemGetHandleForAddressRange");
	pair_open(&p);
	assert_false(is_direct(&p, 5, p.from, 3 << 20, 1));
	/* the owner's is reached over TCP */
	assert_int_equal(round_trip(&p, 5, p.user.mem, 3 << 20, 2), MCE_PATH_TCP);
	mce_mr_nic_keys(p.to_mr, 0, rkeys, lkeys);
	assert_true(!rkeys[0] && !rkeys[1] && !lkeys[0] && !lkeys[1]);
	pair_close(&p);
}

static void the_user_may_switch_it_off(void **state)
{
	struct pair p;

	setenv("MC_DISABLE_GPU_DIRECT_RDMA", "1", 1);
	fake_reset(1);
	pair_open(&p);
	unsetenv("MC_DISABLE_GPU_DIRECT_RDMA");
	assert_false(is_direct(&p, 0, p.from, 1 << 20, 1));
	assert_int_equal(fake_dmabufs(0), 0);
	pair_close(&p);
}

/* One part of a region fails on one NIC: that NIC has nothing of it. */
static void a_nic_has_all_parts_or_none(void **state)
{
	uint32_t rkeys[2], lkeys[2];
	struct pair p;

	fake_reset(2);
	fake_dmabuf_error(1, ENOMEM, 3);
	pair_open_at(&p, 3ull << 30, 0);
	mce_mr_nic_keys(p.to_mr, 0, rkeys, lkeys);
	assert_true(rkeys[0] && !rkeys[1]);
	/* The NIC that has it carries all. */
	for (unsigned i = 0; i < 8; i++)
		assert_true(is_direct(&p, i * 7777, p.from, 4 << 20, i));
	pair_close(&p);
	/* Here any NIC may have to carry it. */
	fake_reset(2);
	fake_dmabuf_error(1, ENOMEM, 2);
	pair_open(&p);
	assert_false(is_direct(&p, 0, p.from, 1 << 20, 1));
	assert_int_equal(round_trip(&p, 0, p.user.mem, 1 << 20, 2), MCE_PATH_RDMA);
	pair_close(&p);
}

static void checksums_are_staged(void **state)
{
	enum { LEN = 3 * MC_CRC_CHUNK + 100 };
	uint64_t before = fake_cuda_count("copies");
	uint32_t crc[4];
	struct iovec iov;
	struct mce_req req;
	struct pair p;

	fake_reset(1);
	pair_open(&p);
	pattern_fill(at(p.from), LEN, 6, 0);
	iov = (struct iovec){ p.from, LEN };
	req = req_of(&p, MCE_WRITE, 0, &iov, 1);
	req.crc = crc;
	req.crc_len = LEN;
	assert_int_equal(mce_transfer(p.user.e, &req, SECONDS(20)), 0);
	pattern_check(at(p.to), LEN, 6, 0);
	assert_int_equal(crc[0], mc_crc32c_add(0, at(p.from), MC_CRC_CHUNK));
	assert_int_equal(crc[3], mc_crc32c_add(0, at(p.from + 3 * MC_CRC_CHUNK), 100));
	assert_true(fake_cuda_count("copies") > before);
	pair_close(&p);
}

static void unregistered_memory_is_staged(void **state)
{
	struct iovec iov[2];
	struct mce_req req;
	uint64_t before;
	char *loose;
	struct pair p;

	fake_reset(1);
	pair_open(&p);
	loose = malloc(5000);
	pattern_fill(loose, 5000, 7, 0);
	pattern_fill(at(p.from), 5000, 7, 5000);
	iov[0] = (struct iovec){ loose, 5000 };
	iov[1] = (struct iovec){ p.from, 5000 };
	req = req_of(&p, MCE_WRITE, 0, iov, 2);
	before = fake_cuda_count("copies");
	assert_int_equal(mce_transfer(p.user.e, &req, SECONDS(20)), 0);
	pattern_check(at(p.to), 10000, 7, 0);
	assert_true(fake_cuda_count("copies") > before);
	free(loose);
	loose = fake_cuda_new(1 << 20);
	assert_false(is_direct(&p, 0, loose, 1 << 20, 8));
	mc_gpu()->free(loose);
	pair_close(&p);
}

/* ---- order, errors ---- */

static void nics_follow_the_default_stream(void **state)
{
	struct iovec iov;
	struct mce_req req;
	uint64_t begin;
	struct pair p;

	fake_reset(1);
	pair_open(&p);
	for (unsigned round = 0; round < 2; round++) {
		work_add(200, p.from, 'a' + (int)round, 100000);
		assert_int_equal(move(&p, MCE_WRITE, 0, p.from, 100000, NULL), 0);
		assert_true(at(p.to)[0] == 'a' + (int)round && at(p.to)[99999] == 'a' + (int)round);
		/* The READ overwrites the bytes of this work. */
		work_add(200, p.from, 'x', 100000);
		assert_int_equal(move(&p, MCE_READ, 0, p.from, 100000, NULL), 0);
		assert_true(at(p.from)[0] == 'a' + (int)round && at(p.from)[99999] == 'a' + (int)round);
	}
	begin = mc_now_ms();
	work_add(1000, p.from, 'z', 10);
	iov = (struct iovec){ p.from, 100 };
	req = req_of(&p, MCE_WRITE, 0, &iov, 1);
	req.ordered = true;
	assert_int_equal(mce_transfer(p.user.e, &req, SECONDS(20)), 0);
	assert_true(mc_now_ms() - begin < 900);
	assert_int_equal(at(p.to)[0], 'b');
	/* the work ends before its memory does */
	assert_int_equal(move(&p, MCE_WRITE, 0, p.from, 10, NULL), 0);
	assert_int_equal(at(p.to)[0], 'z');
	pair_close(&p);
}

static void lost_endpoints_and_nics_lose_nothing(void **state)
{
	uint64_t until = mc_deadline_ms(20000);
	struct pair p;

	fake_reset(2);
	pair_open(&p);
	for (unsigned i = 0; i < 4; i++) {
		(void)round_trip(&p, 0, p.from, 1 << 20, i);
		fake_wc_error(i % 2, i < 2 ? IBV_WC_RETRY_EXC_ERR : IBV_WC_REM_ACCESS_ERR, 3);
		(void)round_trip(&p, 0, p.from, 8 << 20, 50 + i);
		fake_port(i % 2, false);
		(void)round_trip(&p, 0, p.from, 8 << 20, 100 + i);
		fake_port(i % 2, true);
	}
	/* All are gone: the bytes are staged, and go over TCP. */
	fake_port(0, false);
	fake_port(1, false);
	assert_int_equal(round_trip(&p, 0, p.from, 8 << 20, 200), MCE_PATH_TCP);
	fake_port(0, true);
	fake_port(1, true);
	while (!is_direct(&p, 0, p.from, 4096, 201))
		assert_true(mc_now_ns() < until);
	pair_close(&p);
}

static void *unregister_main(void *arg)
{
	mce_mr_unregister(arg);
	return NULL;
}

/* The rest of a request whose memory is unregistered is not copied by the processor, which would end the process. */
static void memory_that_is_unregistered_too_early_fails(void **state)
{
	struct mce_batch b;
	struct iovec iov;
	struct mce_req req;
	pthread_t thread;
	struct pair p;

	fake_reset(1);
	pair_open(&p);
	(void)round_trip(&p, 0, p.from, 4096, 1);
	fake_stop(0, true);
	iov = (struct iovec){ p.from, 16 << 20 };
	req = req_of(&p, MCE_WRITE, 0, &iov, 1);
	/* Else it waits for the GPU first, and is staged. */
	req.ordered = true;
	mce_batch_init(&b);
	mce_submit(p.user.e, &b, &req, 1);
	assert_int_equal(pthread_create(&thread, NULL, unregister_main, p.from_mr), 0);
	usleep(100000);
	fake_stop(0, false);
	assert_int_equal(mce_batch_wait(p.user.e, &b, &req, 1, SECONDS(20)), 0);
	assert_int_equal(req.status, -MC_ETRANSFER);
	pthread_join(thread, NULL);
	/* and the next one is staged */
	assert_false(is_direct(&p, 0, p.from, 4096, 2));
	pair_close(&p);
}

static int load(void **state)
{
	return fake_cuda_load(FAKE_CUDA) < 0 || !mc_gpu_load() ? -1 : 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_move_without_the_gpu),
		cmocka_unit_test(device_memory_here_host_memory_there),
		cmocka_unit_test(pieces_of_both_kinds_in_one_request),
		cmocka_unit_test(a_batch_is_not_staged),
		cmocka_unit_test(large_memory_is_registered_in_parts),
		cmocka_unit_test(without_dma_buf_peer_memory_is_used),
		cmocka_unit_test(memory_that_no_nic_can_access_is_staged),
		cmocka_unit_test(the_user_may_switch_it_off),
		cmocka_unit_test(a_nic_has_all_parts_or_none),
		cmocka_unit_test(checksums_are_staged),
		cmocka_unit_test(unregistered_memory_is_staged),
		cmocka_unit_test(nics_follow_the_default_stream),
		cmocka_unit_test(lost_endpoints_and_nics_lose_nothing),
		cmocka_unit_test(memory_that_is_unregistered_too_early_fails),
	};

	return cmocka_run_group_tests(tests, load, NULL);
}
