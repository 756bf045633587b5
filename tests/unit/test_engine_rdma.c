/* SPDX-License-Identifier: Apache-2.0
 * test_engine_rdma.c - transfers over RDMA between two engines of this process, on fake NICs that move real bytes. */
#include <config.h>

#include "test_engine_rdma_pair.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/sys/clock.h"
#include "common/crc32c.h"
#include "common/err.h"
#include "common/fault.h"
#include "engine/engine_i.h"
#include "engine/rdma/rdma_i.h"
#include "tests/lib/fake_verbs.h"

/* ---- bytes ---- */

static void bytes_arrive_over_rdma(void **state)
{
	static const uint64_t len[] = { 1, 7, 64, 65, 4096, 65536, 65537, 81920, 1 << 20, (8 << 20) + 13 };
	char *loose = malloc(9 << 20);
	struct pair p;

	pair_open(&p, 1);
	for (unsigned i = 0; i < sizeof(len) / sizeof(len[0]); i++) {
		assert_int_equal(round_trip(&p, i * 3, p.user.mem + i, len[i], i), MCE_PATH_RDMA);
		/* memory that the program has not registered */
		assert_int_equal(round_trip(&p, i * 5, loose, len[i], 100 + i), MCE_PATH_RDMA);
	}
	pair_close(&p);
	free(loose);
}

static void scattered_memory_and_checksums(void **state)
{
	enum { PIECES = 300, LEN = PIECES * 1000 };
	uint32_t crc[MC_CRC_CHUNK ? LEN / MC_CRC_CHUNK + 1 : 0], want;
	struct iovec iov[PIECES + 2];
	struct mce_req req;
	struct pair p;
	char *loose = malloc(1000);

	pair_open(&p, 2);
	iov[0] = (struct iovec){ p.user.mem, 0 };
	for (unsigned i = 0; i < PIECES; i++)
		iov[1 + i] = (struct iovec){ i == 77 ? loose : p.user.mem + i * 3000, 1000 };
	iov[PIECES + 1] = (struct iovec){ NULL, 0 };
	for (unsigned i = 0; i < PIECES; i++)
		pattern_fill(iov[1 + i].iov_base, 1000, 9, i * 1000);
	req = req_of(&p, MCE_WRITE, 0, iov, PIECES + 2);
	req.crc = crc;
	req.crc_len = LEN;
	req.crc_tail = true;
	assert_int_equal(mce_transfer(p.user.e, &req, soon()), 0);
	assert_int_equal(req.path, MCE_PATH_RDMA);
	pattern_check(p.owner.mem, LEN, 9, 0);
	assert_memory_equal(p.owner.mem + LEN, crc, sizeof(crc));
	for (unsigned i = 0; i < sizeof(crc) / sizeof(crc[0]); i++) {
		uint64_t off = i * MC_CRC_CHUNK, n = LEN - off < MC_CRC_CHUNK ? LEN - off : MC_CRC_CHUNK;

		want = mc_crc32c_add(0, p.owner.mem + off, n);
		assert_int_equal(crc[i], want);
	}
	memset(p.user.mem, 0, PIECES * 3000);
	memset(crc, 0xff, sizeof(crc));
	req = req_of(&p, MCE_READ, 0, iov, PIECES + 2);
	req.crc = crc;
	req.crc_len = LEN;
	assert_int_equal(mce_transfer(p.user.e, &req, soon()), 0);
	for (unsigned i = 0; i < PIECES; i++)
		pattern_check(iov[1 + i].iov_base, 1000, 9, i * 1000);
	assert_memory_equal(p.owner.mem + LEN, crc, sizeof(crc));
	pair_close(&p);
	free(loose);
}

/* One batch: few doorbells, few completions, and all bytes. */
static void many_small_requests_share_doorbells(void **state)
{
	enum { N = 100000 };
	struct mce_req *reqs = calloc(N, sizeof(*reqs));
	struct iovec *iov = calloc(N, sizeof(*iov));
	struct mce_batch b;
	struct pair p;

	pair_open(&p, 2);
	pattern_fill(p.user.mem, N * 64, 3, 0);
	/* connected before the counters are read */
	assert_int_equal(move(&p, MCE_WRITE, 0, p.user.mem, 64, NULL), 0);
	for (unsigned i = 0; i < N; i++) {
		iov[i] = (struct iovec){ p.user.mem + i * 64, 64 };
		reqs[i] = req_of(&p, MCE_WRITE, (uint64_t)(N - 1 - i) * 64, &iov[i], 1);
	}
	mce_batch_init(&b);
	mce_submit(p.user.e, &b, reqs, N);
	assert_int_equal(mce_batch_wait(p.user.e, &b, reqs, N, SECONDS(30)), 0);
	assert_int_equal(b.failed, 0);
	for (unsigned i = 0; i < N; i += 997)
		assert_memory_equal(p.owner.mem + (uint64_t)(N - 1 - i) * 64, p.user.mem + i * 64, 64);
	assert_true(fake_doorbells(0) + fake_doorbells(1) < N / 4);
	assert_true(fake_cqes(0) + fake_cqes(1) < N / 4);
	pair_close(&p);
	free(reqs);
	free(iov);
}

/* ---- several NICs ---- */

static void nics_share_the_bytes(void **state)
{
	struct pair p;

	pair_open(&p, 4);
	for (unsigned i = 0; i < 4; i++)
		fake_delay(i, 20);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(round_trip(&p, 0, p.user.mem, 16 << 20, i), MCE_PATH_RDMA);
	for (unsigned i = 0; i < 4; i++)
		assert_true(fake_bytes(i) > 32 << 20);
	pair_close(&p);
}

/* Far ones only help when there is much to do. */
static void near_nics_come_first(void **state)
{
	struct mce_mr_attr attr = { .len = REGION, .fd = -1, .nics = 1u << 1 };
	uint64_t far;
	struct pair p;

	pair_open(&p, 2);
	mce_mr_unregister(p.user.mr);
	attr.base = p.user.mem;
	assert_int_equal(mce_mr_register(p.user.e, &attr, &p.user.mr), 0);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(round_trip(&p, 0, p.user.mem, 256 << 10, i), MCE_PATH_RDMA);
	far = fake_bytes(0);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(round_trip(&p, 0, p.user.mem, 256 << 10, i), MCE_PATH_RDMA);
	/* on a busy machine the near NIC can be seen as late for a moment */
	assert_true(fake_bytes(0) - far <= 512 << 10);
	far = fake_bytes(0);
	fake_delay(1, 500);
	assert_int_equal(round_trip(&p, 0, p.user.mem, 16 << 20, 9), MCE_PATH_RDMA);
	assert_true(fake_bytes(0) > far);
	pair_close(&p);
}

static enum mce_path hinted(struct pair *p, enum mce_path prefer, uint16_t nics)
{
	struct iovec iov = { p->user.mem, 256 << 10 };
	struct mce_req req = req_of(p, MCE_WRITE, 0, &iov, 1);

	req.prefer = prefer;
	req.nics = nics;
	assert_int_equal(mce_transfer(p->user.e, &req, SECONDS(20)), 0);
	return req.path;
}

static void a_hint_chooses_path_and_nic(void **state)
{
	struct pair p;

	pair_open(&p, 2);
	assert_int_equal(hinted(&p, MCE_PATH_TCP, 0), MCE_PATH_TCP);
	assert_int_equal(hinted(&p, MCE_PATH_RDMA, 0), MCE_PATH_RDMA);
	assert_int_equal(hinted(&p, MCE_PATH_MAPPED, 0), MCE_PATH_RDMA);
	/* the NICs are connected one after the other */
	for (unsigned i = 0; i < 1000 && !(fake_bytes(0) && fake_bytes(1)); i++)
		(void)hinted(&p, MCE_PATH_NONE, (uint16_t)(1u << i % 2));
	for (unsigned nic = 0; nic < 2; nic++) {
		uint64_t near = fake_bytes(nic), far = fake_bytes(!nic);

		for (unsigned i = 0; i < 16; i++)
			assert_int_equal(hinted(&p, MCE_PATH_NONE, (uint16_t)(1u << nic)), MCE_PATH_RDMA);
		assert_true(fake_bytes(nic) - near > 2 * (fake_bytes(!nic) - far));
	}
	pair_close(&p);
}

/* The index of the peer's NIC that our first NIC is connected to. */
static unsigned first_pair(struct pair *p)
{
	const struct mce_rdma_peer *rp = mce_rdma_peer_of(p->peer);
	unsigned remote = MCE_NICS_MAX;
	struct mc_list *pos;

	MC_LOCKED(&p->peer->lock);
	mc_list_for_each(pos, &rp->eps)
		if (mc_container_of(pos, struct mce_rdma_ep, node)->nic->index == 0)
			remote = mc_container_of(pos, struct mce_rdma_ep, node)->remote;
	return remote;
}

static void the_affinity_of_nics_is_the_users(void **state)
{
	struct pair p;

	setenv("MC_ENABLE_HCA_PEER_AFFINITY", "1", 1);
	setenv("MC_NIC_PEER_AFFINITY", "fake1=fake0;fake0=nosuch,fake2,fake1", 1);
	pair_open(&p, 3);
	unsetenv("MC_ENABLE_HCA_PEER_AFFINITY");
	unsetenv("MC_NIC_PEER_AFFINITY");
	settle(&p);
	assert_int_equal(first_pair(&p), 2);
	pair_close(&p);
}

/* A list for each rank of a program that has several. */
static void the_list_of_nics_may_be_by_rank(void **state)
{
	struct pair p;

	nics_new(2);
	setenv("LOCAL_RANK", "1", 1);
	pair_open_on(&p, "{\"0\": \"fake0\", \"1\": \"fake1\"}", "fake1");
	unsetenv("LOCAL_RANK");
	settle(&p);
	assert_int_equal(mce_rdma_of(p.owner.e)->nnics, 1);
	assert_string_equal(mce_rdma_of(p.owner.e)->nic[0].addr.name, "fake1");
	pair_close(&p);
}

struct stream {
	struct pair *p;
	pthread_t thread;
	bool stop;
	unsigned done, failed, wrong, over_tcp;
};

/* Write and read back until told to stop. */
static void *stream_main(void *arg)
{
	struct stream *s = arg;
	uint64_t len = 1 << 20;

	for (uint64_t i = 0; !__atomic_load_n(&s->stop, __ATOMIC_RELAXED); i++) {
		enum mce_path path = MCE_PATH_NONE;

		memset(s->p->user.mem, (int)i, len);
		s->failed += move(s->p, MCE_WRITE, 0, s->p->user.mem, len, &path) < 0;
		s->over_tcp += path == MCE_PATH_TCP;
		memset(s->p->user.mem, ~(int)i, len);
		s->failed += move(s->p, MCE_READ, 0, s->p->user.mem, len, NULL) < 0;
		for (uint64_t k = 0; k < len; k++)
			if (s->p->user.mem[k] != (char)i) {
				s->wrong++;
				break;
			}
		__atomic_fetch_add(&s->done, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void stream_start(struct stream *s, struct pair *p)
{
	memset(s, 0, sizeof(*s));
	s->p = p;
	assert_int_equal(pthread_create(&s->thread, NULL, stream_main, s), 0);
}

/* Wait until it has done @n more. */
static void stream_more(struct stream *s, unsigned n)
{
	unsigned begin = __atomic_load_n(&s->done, __ATOMIC_RELAXED);
	uint64_t until = soon();

	while (__atomic_load_n(&s->done, __ATOMIC_RELAXED) - begin < n) {
		assert_true(mc_now_ns() < until);
		usleep(1000);
	}
}

static void stream_end(struct stream *s)
{
	__atomic_store_n(&s->stop, true, __ATOMIC_RELAXED);
	pthread_join(s->thread, NULL);
	assert_int_equal(s->failed, 0);
	assert_int_equal(s->wrong, 0);
}

static void a_nic_that_goes_down_loses_nothing(void **state)
{
	uint64_t before, until = soon();
	struct stream s;
	struct pair p;

	pair_open(&p, 2);
	stream_start(&s, &p);
	for (unsigned i = 0; i < 3; i++) {
		stream_more(&s, 5);
		fake_port(1, false);
		stream_more(&s, 10);
		fake_port(1, true);
		stream_more(&s, 5);
	}
	/* It is used again. */
	before = fake_bytes(1);
	while (fake_bytes(1) == before && mc_now_ns() < until)
		usleep(1000);
	assert_true(fake_bytes(1) > before);
	stream_end(&s);
	assert_int_equal(s.over_tcp, 0);
	pair_close(&p);
}

/* A cut that no event reports. */
static void a_silent_nic_is_left_out(void **state)
{
	struct stream s;
	struct pair p;

	pair_open(&p, 2);
	stream_start(&s, &p);
	stream_more(&s, 5);
	fake_port_silent(0, false);
	stream_more(&s, 10);
	fake_port_silent(0, true);
	stream_more(&s, 5);
	stream_end(&s);
	pair_close(&p);
}

static void without_nics_tcp_carries_on(void **state)
{
	struct stream s;
	struct pair p;

	pair_open(&p, 1);
	stream_start(&s, &p);
	stream_more(&s, 5);
	fake_port(0, false);
	stream_more(&s, 10);
	fake_port(0, true);
	stream_end(&s);
	assert_true(s.over_tcp > 0);
	/* and RDMA again, when it is tried the next time */
	settle(&p);
	pair_close(&p);
}

/* ---- errors ---- */

static void each_error_class_ends_well(void **state)
{
	static const enum ibv_wc_status again[] = {
		IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_RESP_TIMEOUT_ERR, IBV_WC_FATAL_ERR,
		IBV_WC_GENERAL_ERR, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR,
	};
	struct pair p;

	pair_open(&p, 2);
	for (unsigned i = 0; i < sizeof(again) / sizeof(again[0]); i++) {
		(void)round_trip(&p, 0, p.user.mem, 1 << 20, i);
		fake_wc_error(i % 2, again[i], 3);
		(void)round_trip(&p, 0, p.user.mem, 4 << 20, 50 + i);
	}
	/* The request's own fault: it fails, and others do not. */
	settle(&p);
	fake_wc_error(0, IBV_WC_LOC_PROT_ERR, 1);
	fake_wc_error(1, IBV_WC_LOC_PROT_ERR, 1);
	assert_int_equal(move(&p, MCE_WRITE, 0, p.user.mem, 1 << 20, NULL), -MC_ETRANSFER);
	fake_wc_error(0, IBV_WC_SUCCESS, 0);
	fake_wc_error(1, IBV_WC_SUCCESS, 0);
	(void)round_trip(&p, 0, p.user.mem, 1 << 20, 99);
	pair_close(&p);
}

static void limits_of_regions_are_kept(void **state)
{
	struct mce_mr_attr attr = { .len = REGION, .access = MCE_ACCESS_READ, .fd = -1 };
	char *mem = malloc(4096);
	struct pair p;

	pair_open(&p, 1);
	assert_int_equal(move(&p, MCE_READ, REGION - 100, mem, 101, NULL), -ERANGE);
	assert_int_equal(move(&p, MCE_READ, REGION - 100, mem, 100, NULL), 0);
	mce_mr_unregister(p.owner.mr);
	attr.base = p.owner.mem;
	assert_int_equal(mce_mr_register(p.owner.e, &attr, &p.owner.mr), 0);
	assert_int_equal(move(&p, MCE_WRITE, 0, mem, 10, NULL), -EACCES);
	assert_int_equal(move(&p, MCE_READ, 0, mem, 10, NULL), 0);
	pair_close(&p);
	free(mem);
}

/* Bytes stand still.  While the peer answers they are waited for; when it does not, its machine is lost. */
static void a_silent_peer_is_noticed(void **state)
{
	struct iovec iov;
	struct mce_batch b;
	struct mce_req req;
	struct pair p;
	uint64_t begin;

	pair_open(&p, 1);
	settle(&p);
	iov = (struct iovec){ p.user.mem, 1 << 20 };
	req = req_of(&p, MCE_WRITE, 0, &iov, 1);
	fake_repeat(0, true);
	mce_batch_init(&b);
	mce_submit(p.user.e, &b, &req, 1);
	usleep(1500000);
	assert_int_equal(b.left, 1);
	fake_repeat(0, false);
	assert_int_equal(mce_batch_wait(p.user.e, &b, &req, 1, SECONDS(20)), 0);
	assert_int_equal(req.status, 0);
	fake_repeat(0, true);
	assert_int_equal(mc_fault_set("engine.rdma.call=error:ETIMEDOUT"), 0);
	begin = mc_now_ms();
	assert_true(move(&p, MCE_WRITE, 0, p.user.mem, 1 << 20, NULL) < 0);
	assert_true(mc_now_ms() - begin < 8000);	/* 3 s on an idle machine */
	mc_fault_set(NULL);
	fake_repeat(0, false);
	usleep(1100000);
	settle(&p);
	pair_close(&p);
}

static void a_stale_key_is_refused(void **state)
{
	struct mce_mr_attr attr = { .len = REGION, .access = MCE_ACCESS_READ | MCE_ACCESS_WRITE, .fd = -1 };
	struct iovec iov;
	struct mce_req req;
	struct pair p;

	pair_open(&p, 1);
	(void)round_trip(&p, 0, p.user.mem, 4096, 1);
	iov = (struct iovec){ p.user.mem, 4096 };
	req = req_of(&p, MCE_WRITE, 0, &iov, 1);
	mce_mr_unregister(p.owner.mr);
	attr.base = p.owner.mem;
	assert_int_equal(mce_mr_register(p.owner.e, &attr, &p.owner.mr), 0);
	memset(p.owner.mem, 'o', 4096);
	memset(p.user.mem, 'w', 4096);
	assert_int_equal(mce_transfer(p.user.e, &req, soon()), -ESTALE);
	for (unsigned i = 0; i < 4096; i++)
		assert_int_equal(p.owner.mem[i], 'o');
	(void)round_trip(&p, 0, p.user.mem, 4096, 2);
	pair_close(&p);
}

/* A packet that is late in the network: the owner has destroyed its queue pair before the write is repeated. */
static void a_late_write_changes_nothing(void **state)
{
	struct pair p;

	pair_open(&p, 2);
	assert_int_equal(round_trip(&p, 0, p.user.mem, 65536, 1), MCE_PATH_RDMA);
	fake_late_writes(0, true);
	fake_late_writes(1, true);
	for (unsigned i = 0; i < 4; i++) {
		memset(p.user.mem, 'a' + (int)i, 65536);
		fake_wc_error(0, IBV_WC_RETRY_EXC_ERR, 1);
		fake_wc_error(1, IBV_WC_RETRY_EXC_ERR, 1);
		assert_int_equal(move(&p, MCE_WRITE, 0, p.user.mem, 65536, NULL), 0);
		fake_wc_error(0, IBV_WC_SUCCESS, 0);
		fake_wc_error(1, IBV_WC_SUCCESS, 0);
		memset(p.user.mem, 'z', 65536);
		assert_int_equal(move(&p, MCE_WRITE, 0, p.user.mem, 65536, NULL), 0);
		usleep(120000);
		for (unsigned k = 0; k < 65536; k++)
			assert_int_equal(p.owner.mem[k], 'z');
	}
	pair_close(&p);
}

/* The call returns when the NIC no longer uses the memory, not before. */
static void a_deadline_returns_the_memory(void **state)
{
	struct iovec iov;
	struct mce_req req;
	uint64_t begin;
	struct pair p;

	pair_open(&p, 1);
	assert_int_equal(round_trip(&p, 0, p.user.mem, 1 << 20, 1), MCE_PATH_RDMA);
	memset(p.owner.mem, 'o', 1 << 20);
	fake_stop(0, true);
	iov = (struct iovec){ p.user.mem, 1 << 20 };
	req = req_of(&p, MCE_READ, 0, &iov, 1);
	begin = mc_now_ns();
	assert_int_equal(mce_transfer(p.user.e, &req, mc_deadline_ms(100)), -MC_ETIMEDOUT);
	assert_true(mc_now_ns() - begin < 5 * MC_NS_PER_SEC);
	memset(p.user.mem, 'u', 1 << 20);
	fake_stop(0, false);
	usleep(50000);
	for (unsigned i = 0; i < 1 << 20; i++)
		assert_int_equal(p.user.mem[i], 'u');
	(void)round_trip(&p, 0, p.user.mem, 1 << 20, 2);
	pair_close(&p);
}

/* ---- sessions and lives ---- */

static int write_as(struct pair *p, uint64_t fence, char byte)
{
	struct iovec iov = { p->user.mem, 65536 };
	struct mce_req req = req_of(p, MCE_WRITE, 0, &iov, 1);

	req.fence = fence;
	memset(p->user.mem, byte, 65536);
	return mce_transfer(p->user.e, &req, soon());
}

static void a_fenced_session_writes_no_more(void **state)
{
	struct pair p;

	pair_open(&p, 2);
	mce_engine_set_fence(p.user.e, 5);
	assert_int_equal(write_as(&p, 5, 'a'), 0);
	assert_int_equal(mce_engine_fence(p.owner.e, p.nonce, 5), 0);
	assert_true(write_as(&p, 5, 'b') < 0);
	assert_int_equal(p.owner.mem[0], 'a');
	assert_true(mce_engine_is_fenced(p.user.e));
	assert_int_equal(move(&p, MCE_READ, 0, p.user.mem, 4096, NULL), 0);
	mce_engine_set_fence(p.user.e, 6);
	assert_int_equal(write_as(&p, 5, 'c'), -ESTALE);
	assert_int_equal(write_as(&p, 6, 'd'), 0);
	assert_int_equal(p.owner.mem[0], 'd');
	pair_close(&p);
}

/* The order comes while bytes are on their way: none is stored after the confirmation. */
static void nothing_is_stored_after_the_fence(void **state)
{
	struct mce_batch b;
	struct iovec iov;
	struct mce_req req;
	struct pair p;

	pair_open(&p, 2);
	mce_engine_set_fence(p.user.e, 5);
	assert_int_equal(write_as(&p, 5, 'a'), 0);
	fake_delay(0, 2000);
	fake_delay(1, 2000);
	memset(p.user.mem, 'w', 8 << 20);
	iov = (struct iovec){ p.user.mem, 8 << 20 };
	req = req_of(&p, MCE_WRITE, 0, &iov, 1);
	req.fence = 5;
	mce_batch_init(&b);
	mce_submit(p.user.e, &b, &req, 1);
	usleep(20000);
	assert_int_equal(mce_engine_fence(p.owner.e, p.nonce, 5), 0);
	memset(p.owner.mem, 'o', 8 << 20);
	(void)mce_batch_wait(p.user.e, &b, &req, 1, SECONDS(10));
	usleep(100000);
	assert_true(req.status < 0);
	for (unsigned i = 0; i < 8 << 20; i += 511)
		assert_int_equal(p.owner.mem[i], 'o');
	pair_close(&p);
}

static void a_restarted_peer_is_found_again(void **state)
{
	char endpoint[MC_ADDR_MAX], host[MC_ADDR_MAX];
	struct mce_conf conf = rdma_conf;
	struct iovec iov;
	struct mce_req req;
	struct pair p;

	pair_open(&p, 2);
	assert_int_equal(round_trip(&p, 0, p.user.mem, 1 << 20, 1), MCE_PATH_RDMA);
	iov = (struct iovec){ p.user.mem, 4096 };
	req = req_of(&p, MCE_READ, 0, &iov, 1);
	strcpy(endpoint, mce_engine_endpoint(p.owner.e));
	side_close(&p.owner);
	/* an error at once, not at the deadline */
	assert_int_equal(mce_transfer(p.user.e, &req, soon()), -MC_ETRANSFER);
	assert_int_equal(mc_addr_split(endpoint, host, sizeof(host), -1, &conf.port), 0);
	side_open(&p.owner, &conf, REGION, MCE_ACCESS_READ | MCE_ACCESS_WRITE, 7);
	/* the old key */
	assert_int_equal(mce_transfer(p.user.e, &req, soon()), -ESTALE);
	(void)round_trip(&p, 0, p.user.mem, 1 << 20, 2);
	pair_close(&p);
}

/* ---- devices ---- */

static void regions_are_registered_in_parts(void **state)
{
	struct pair p;

	nics_new(1);
	fake_max_mr(0, 1 << 20);
	pair_open_on(&p, "", "");
	assert_int_equal(round_trip(&p, (1 << 20) - 77, p.user.mem + 4091, 5 << 20, 1), MCE_PATH_RDMA);
	pair_close(&p);
}

/* The owner's NIC cannot register it. */
static void a_region_that_no_nic_has_goes_over_tcp(void **state)
{
	struct pair p;

	nics_new(2);
	fake_reg_error(0, ENOMEM, 1);
	pair_open_on(&p, "fake0", "fake1");
	assert_int_equal(round_trip(&p, 0, p.user.mem, 1 << 20, 1), MCE_PATH_TCP);
	pair_close(&p);
	/* one of two NICs has it: that one carries all */
	nics_new(4);
	fake_reg_error(0, ENOMEM, 1);
	pair_open_on(&p, "fake0,fake1", "fake2,fake3");
	settle(&p);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(round_trip(&p, 0, p.user.mem, 4 << 20, 2 + i), MCE_PATH_RDMA);
	pair_close(&p);
}

/* Its bytes are copied to slots. */
static void memory_need_not_be_registered(void **state)
{
	struct pair p;

	pair_open(&p, 1);
	mce_mr_unregister(p.user.mr);
	fake_reg_error(0, ENOMEM, 1);
	assert_int_equal(mce_mr_register(p.user.e, &(struct mce_mr_attr){ .base = p.user.mem, .len = REGION, .fd = -1 },
					 &p.user.mr), 0);
	assert_int_equal(round_trip(&p, 0, p.user.mem, 3 << 20, 1), MCE_PATH_RDMA);
	pair_close(&p);
}

static void the_smaller_packet_size_is_used(void **state)
{
	struct pair p;

	nics_new(2);
	fake_mtu(1, IBV_MTU_1024);
	pair_open_on(&p, "fake0", "fake1");
	assert_int_equal(round_trip(&p, 0, p.user.mem, 1 << 20, 1), MCE_PATH_RDMA);
	pair_close(&p);
}

static void the_number_of_nics_is_limited(void **state)
{
	struct pair p;

	setenv("MC_RDMA_MAX_NICS", "2", 1);
	pair_open(&p, 4);
	unsetenv("MC_RDMA_MAX_NICS");
	assert_int_equal(mce_rdma_of(p.owner.e)->nnics, 2);
	assert_int_equal(round_trip(&p, 0, p.user.mem, 1 << 20, 1), MCE_PATH_RDMA);
	pair_close(&p);
}

static void without_a_nic_the_engine_uses_tcp(void **state)
{
	struct pair p;

	nics_new(1);
	pair_open_on(&p, "", "nosuch0");
	assert_int_equal(round_trip(&p, 0, p.user.mem, 1 << 20, 1), MCE_PATH_TCP);
	pair_close(&p);
}

static void settings_are_read(void **state)
{
	static const char *const set[][2] = {
		{ "MC_IB_PORT", "2" }, { "MC_GID_INDEX", "3" }, { "MC_PKEY_INDEX", "4" }, { "MC_IB_TC", "106" },
		{ "MC_IB_SL", "5" }, { "MC_IB_PCI_RELAXED_ORDERING", "0" }, { "MC_NUM_QP_PER_EP", "6" },
		{ "MC_MAX_WR", "64" }, { "MC_MAX_INLINE", "128" }, { "MC_MAX_CQE_PER_CTX", "1024" },
		{ "MC_SLICE_SIZE", "32768" }, { "MC_MTU", "1024" }, { "MC_RDMA_ACK_TIMEOUT", "10" },
		{ "MC_RDMA_ACK_RETRIES", "2" }, { "MC_RDMA_SAME_HOST", "1" }, { "MC_MAX_MR_SIZE", "1048576" },
		{ "MC_MAX_EP_PER_CTX", "77" }, { "MC_RDMA_MAX_NICS", "5" }, { "MC_RDMA_CM", "1" },
	};
	struct mce_rdma_tune t;

	mce_rdma_tune_read(&t);
	assert_int_equal(t.gid_index, -1);
	assert_int_equal(t.retry, 3);
	setenv("NCCL_IB_GID_INDEX", "7", 1);
	mce_rdma_tune_read(&t);
	assert_int_equal(t.gid_index, 7);
	for (unsigned i = 0; i < sizeof(set) / sizeof(set[0]); i++)
		setenv(set[i][0], set[i][1], 1);
	mce_rdma_tune_read(&t);
	for (unsigned i = 0; i < sizeof(set) / sizeof(set[0]); i++)
		unsetenv(set[i][0]);
	unsetenv("NCCL_IB_GID_INDEX");
	assert_true(t.port == 2 && t.gid_index == 3 && t.pkey == 4 && t.tc == 106 && t.sl == 5 && t.relaxed == 0);
	assert_true(t.qps == 6 && t.max_wr == 64 && t.max_inline == 128 && t.cqe == 1024 && t.slice == 32768);
	assert_true(t.mtu == 1024 && t.timeout == 10 && t.retry == 2 && t.same_host && t.max_mr == 1048576);
	assert_int_equal(t.max_eps, 77);
	assert_int_equal(t.max_nics, 5);
	assert_true(t.cm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_arrive_over_rdma),
		cmocka_unit_test(scattered_memory_and_checksums),
		cmocka_unit_test(many_small_requests_share_doorbells),
		cmocka_unit_test(nics_share_the_bytes),
		cmocka_unit_test(near_nics_come_first),
		cmocka_unit_test(a_hint_chooses_path_and_nic),
		cmocka_unit_test(the_affinity_of_nics_is_the_users),
		cmocka_unit_test(the_list_of_nics_may_be_by_rank),
		cmocka_unit_test(a_nic_that_goes_down_loses_nothing),
		cmocka_unit_test(a_silent_nic_is_left_out),
		cmocka_unit_test(without_nics_tcp_carries_on),
		cmocka_unit_test(each_error_class_ends_well),
		cmocka_unit_test(limits_of_regions_are_kept),
		cmocka_unit_test(a_silent_peer_is_noticed),
		cmocka_unit_test(a_stale_key_is_refused),
		cmocka_unit_test(a_late_write_changes_nothing),
		cmocka_unit_test(a_deadline_returns_the_memory),
		cmocka_unit_test(a_fenced_session_writes_no_more),
		cmocka_unit_test(nothing_is_stored_after_the_fence),
		cmocka_unit_test(a_restarted_peer_is_found_again),
		cmocka_unit_test(regions_are_registered_in_parts),
		cmocka_unit_test(a_region_that_no_nic_has_goes_over_tcp),
		cmocka_unit_test(memory_need_not_be_registered),
		cmocka_unit_test(the_smaller_packet_size_is_used),
		cmocka_unit_test(the_number_of_nics_is_limited),
		cmocka_unit_test(without_a_nic_the_engine_uses_tcp),
		cmocka_unit_test(settings_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
