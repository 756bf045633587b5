/* SPDX-License-Identifier: Apache-2.0
 * test_engine_te_gpu.c - the descriptor of an engine with memory of a GPU that its NICs can access, and transfers by
 * such a descriptor: fake NICs and a fake GPU. */
#include <config.h>

#include "test_engine_fixture.h"

#include <stdlib.h>
#include <string.h>

#include <mooncake/mce_te.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/gpu/gpu.h"
#include "engine/rdma/rdma_i.h"
#include "engine/te/te_i.h"
#include "engine/upstream/segdesc.h"
#include "tests/lib/fake_cuda_use.h"
#include "tests/lib/fake_verbs.h"

#ifndef FAKE_CUDA	/* the lint compiles without this test's flags */
#define FAKE_CUDA "libcuda.so.1"
#endif

#define GIB (1ull << 30)
#define LEN (2 * GIB + 300000)
#define HOST (1u << 20)

static struct mce_te *te_open(void)
{
	struct mce_te_conf conf = {
		.size = sizeof(conf), .metadata = "P2PHANDSHAKE", .name = "127.0.0.1", .protocol = "rdma",
		.nic_priority_matrix = "{\"cpu:0\": [[\"fake0\"], [\"fake1\"]], "
				       "\"cuda:0\": [[\"fake1\"], [\"fake0\"]]}",
	};
	struct mce_te *te;

	assert_int_equal(mce_te_open(&conf, &te), 0);
	return te;
}

/* Each buffer's name is @name, or "cpu:0" for that at @host; it lies in one part, and has keys if @keys. */
static void describe_check(struct mce_te *te, const void *host, const char *name, bool keys, size_t n)
{
	struct mce_segdesc *d;
	char *text;

	assert_int_equal(mce_te_mem_describe(te, &text), 0);
	assert_int_equal(mce_segdesc_decode(text, strlen(text), &d), 0);
	assert_string_equal(d->protocol, "rdma");
	assert_int_equal(d->nbuffers, n);
	for (size_t i = 0; i < n; i++) {
		const struct mce_segdesc_buffer *b = &d->buffers[i];
		bool device = b->addr != (uintptr_t)host;

		assert_string_equal(b->name, device ? name : "cpu:0");
		assert_true(b->length <= GIB || !keys);
		for (unsigned k = 0; k < 2; k++)
			assert_int_equal(b->rkeys[k] && b->lkeys[k], keys || !device);
		/* Our own nodes find each piece by the same number. */
		assert_true(b->rkey != 0);
	}
	mce_segdesc_free(d);
	free(text);
}

static void device_memory_is_described(void **state)
{
	char *host = aligned_alloc(4096, HOST), *device = fake_cuda_new(LEN);
	struct mce_te *te;

	fake_reset(2);
	mce_verbs_replace(fake_verbs());
	te = te_open();
	assert_int_equal(mce_te_register(te, host, HOST, "cpu:0", 1), 0);
	assert_int_equal(mce_te_register(te, device, LEN, "*", 1), 0);
	describe_check(te, host, "cuda:0", true, 4);
	assert_int_equal(te->mem[1].mr->nics, 2);
	assert_int_equal(mce_te_unregister(te, device), 0);
	/* the program's location */
	assert_int_equal(mce_te_register(te, device, LEN, "cuda:0", 1), 0);
	describe_check(te, host, "cuda:0", true, 4);
	assert_int_equal(mce_te_unregister(te, device), 0);
	/* without keys, like host memory that cannot be registered */
	fake_cuda_set("FAKE_CUDA_NO", "cuMemGetHandleForAddressRange");
	assert_int_equal(mce_te_register(te, device, LEN, "*", 1), 0);
	fake_cuda_set("FAKE_CUDA_NO", "");
	describe_check(te, host, "cuda:0", false, 2);
	assert_int_equal(mce_te_unregister(te, device), 0);
	describe_check(te, host, "", true, 1);
	mce_te_close(te);
	assert_int_equal(fake_live_objects(), 0);
	fake_reset(0);
	mce_verbs_replace(NULL);
	mc_gpu()->free(device);
	free(host);
}

static void move(struct mce_te *te, segment_id_t segment, int opcode, void *here, char *there, size_t len)
{
	struct transfer_request r = { opcode, here, segment, (uintptr_t)there, len };
	struct mce_te_batch_status st;
	batch_id_t b;

	assert_int_equal(mce_te_batch_new(te, 1, &b), 0);
	assert_int_equal(mce_te_submit(te, b, &r, 1, NULL), 0);
	assert_int_equal(mce_te_wait(te, b, 20000), 0);
	assert_int_equal(mce_te_batch_status(te, b, &st), 0);
	assert_int_equal(st.status, STATUS_COMPLETED);
	assert_int_equal(mce_te_batch_free(te, b), 0);
}

/* Across the border of two pieces of the descriptor. */
static void pieces_are_joined_by_readers(void **state)
{
	char *there = fake_cuda_new(LEN), *here = fake_cuda_new(HOST);
	uint64_t before = fake_cuda_count("copies");
	struct mce_te *owner, *user;
	segment_id_t segment;

	setenv("MC_RDMA_SAME_HOST", "1", 1);
	fake_reset(2);
	mce_verbs_replace(fake_verbs());
	owner = te_open();
	user = te_open();
	unsetenv("MC_RDMA_SAME_HOST");
	assert_int_equal(mce_te_register(owner, there, LEN, "*", 1), 0);
	assert_int_equal(mce_te_register(user, here, HOST, "*", 0), 0);
	assert_int_equal(mce_te_open_segment(user, mce_te_name(owner), 0, &segment), 0);
	for (uint64_t at = GIB - 70000; at < LEN; at += GIB) {
		pattern_fill(fake_cuda_at(here), 140000, at, 0);
		move(user, segment, OPCODE_WRITE, here, there + at, 140000);
		pattern_check(fake_cuda_at(there + at), 140000, at, 0);
		memset(fake_cuda_at(here), 0, 140000);
		move(user, segment, OPCODE_READ, here, there + at, 140000);
		pattern_check(fake_cuda_at(here), 140000, at, 0);
	}
	assert_int_equal(fake_cuda_count("copies"), before);
	mce_te_close(user);
	mce_te_close(owner);
	assert_int_equal(fake_live_objects(), 0);
	fake_reset(0);
	mce_verbs_replace(NULL);
	mc_gpu()->free(there);
	mc_gpu()->free(here);
}

/* A loss makes the engine forget the keys of the peer's regions.  The descriptor that the retry fetches has the same
 * peer and the same keys. */
static void a_task_gets_the_same_descriptor_again(void **state)
{
	char *there = aligned_alloc(4096, HOST), *here = aligned_alloc(4096, HOST), *key;
	struct mce_te *owner, *user;
	segment_id_t segment;

	setenv("MC_RDMA_SAME_HOST", "1", 1);
	fake_reset(2);
	mce_verbs_replace(fake_verbs());
	owner = te_open();
	user = te_open();
	unsetenv("MC_RDMA_SAME_HOST");
	assert_int_equal(mce_te_register(owner, there, HOST, "cpu:0", 1), 0);
	assert_int_equal(mce_te_register(user, here, HOST, "cpu:0", 0), 0);
	/* as if the owner were a node of upstream's */
	assert_int_equal(mce_te_mem_describe(owner, &key), 0);
	free(key);
	key = strstr(owner->text, "\"mc_endpoint\"");
	assert_non_null(key);
	memcpy(key, "\"xx\"", 4);
	memset(key + 4, ' ', strlen("\"mc_endpoint\"") - 4);
	assert_int_equal(mce_te_open_segment(user, mce_te_name(owner), 0, &segment), 0);
	pattern_fill(there, HOST, 1, 0);
	for (unsigned i = 0; i < 3; i++) {
		memset(here, 0, HOST);
		fake_wc_error(0, IBV_WC_RETRY_EXC_ERR, i > 0);
		move(user, segment, OPCODE_READ, here, there, HOST);
		pattern_check(here, HOST, 1, 0);
	}
	mce_te_close(user);
	mce_te_close(owner);
	assert_int_equal(fake_live_objects(), 0);
	fake_reset(0);
	mce_verbs_replace(NULL);
	free(there);
	free(here);
}

static int load(void **state)
{
	return fake_cuda_load(FAKE_CUDA) < 0 || !mc_gpu_load() ? -1 : 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(device_memory_is_described),
		cmocka_unit_test(pieces_are_joined_by_readers),
		cmocka_unit_test(a_task_gets_the_same_descriptor_again),
	};

	return cmocka_run_group_tests(tests, load, NULL);
}
