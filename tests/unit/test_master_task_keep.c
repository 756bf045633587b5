/* SPDX-License-Identifier: Apache-2.0
 * test_master_task_keep.c - tasks across a master that is killed. */
#include <config.h>

#include "test_master_journal_fixture.h"

#include <stdio.h>
#include <string.h>

#define MIB (1ull << 20)

static struct mcm_segment *seg(struct fixture *fx, uint64_t id)
{
	struct mcm_segment *s = mcm_segments_find(&fx->m->segments, (struct mcp_id){ 7, id });

	assert_non_null(s);
	return s;
}

static int keep(void *arg, const struct mcm_task *t)
{
	*(struct mcm_task *)arg = *t;
	return 0;
}

static uint8_t status_of(struct fixture *fx, struct mcp_id id)
{
	struct mcm_task t;

	assert_int_equal(mcm_task_each(fx->m, id, keep, &t), 0);
	return t.status;
}

static void again(struct fixture *fx)
{
	struct mcp_mount_reply reply;

	jx_again(fx);
	for (uint64_t i = 1; i <= 2; i++) {
		assert_int_equal(fx_mount(fx, 1, i, 100 + i, 8 * MIB, &reply), 0);
		assert_int_equal(reply.reattached, 1);
	}
	mcm_tasks_tick(fx->m);
}

static unsigned work(struct fixture *fx, unsigned rounds)
{
	struct mcp_replica from[MCM_FETCH_MAX], to[MCM_FETCH_MAX];
	struct mcp_copy copy[MCM_FETCH_MAX];
	unsigned n, sum = 0;

	while (rounds-- && (n = mcm_task_fetch(fx->m, fx->s, 4, copy, from, to))) {
		for (unsigned i = 0; i < n; i++) {
			struct mcp_copied done = { .put = copy[i].put, .crc = copy[i].crc };

			assert_int_equal(mcm_task_copied(fx->m, fx->s, &done), 0);
		}
		sum += n;
	}
	mcm_tasks_tick(fx->m);
	jx_answer(fx);
	return sum;
}

static void a_drain_goes_on_after_a_restart(void **state)
{
	struct mcp_bytes source = fx_bytes("seg-1");
	struct mcm_task_request rq = { .type = MCP_TASK_DRAIN, .source = &source, .n_sources = 1 };
	struct mcp_replica from[4], to[4];
	struct mcp_copy copy[4];
	struct fixture fx;
	struct mcp_id id;
	char key[16];
	uint64_t in_first;
	uint8_t status;

	jx_up(&fx, 2, 8 * MIB);
	for (unsigned i = 0; i < 100; i++) {
		sprintf(key, "k%u", i);
		assert_int_equal(fx_put(&fx, key, 5000, 0), 0);
	}
	in_first = seg(&fx, 1)->objects;
	assert_true(in_first > 20);
	assert_int_equal(mcm_task_create(fx.m, &rq, &id), 0);
	assert_int_equal(work(&fx, 3), 12);
	/* Killed in the middle of some. */
	assert_int_equal(mcm_task_fetch(fx.m, fx.s, 4, copy, from, to), 4);
	jx_answer(&fx);
	again(&fx);
	assert_int_equal(status_of(&fx, id), MCP_TASK_RUNNING);
	assert_int_equal(mcm_segment_shown(seg(&fx, 1)), MCP_SEG_DRAINING);
	assert_int_equal(seg(&fx, 1)->objects, in_first - 12);
	fx_advance(&fx, 1000);
	work(&fx, 1000);
	assert_int_equal(seg(&fx, 2)->objects, 100);
	/* Whatever the killed master's readers and writers may still hold is waited for. */
	for (unsigned i = 0; i < 600 && status_of(&fx, id) == MCP_TASK_RUNNING; i++) {
		bool reattach;

		fx_advance(&fx, 5000);
		reattach = fx_beat(&fx, fx.s->client);
		assert_false(reattach);
		(void)mcm_restored_release(fx.m);
		mcm_tasks_tick(fx.m);
	}
	assert_int_equal(status_of(&fx, id), MCP_TASK_SUCCEEDED);
	assert_int_equal(seg(&fx, 1)->used, 0);
	jx_answer(&fx);

	/* It takes nothing after the next restart either, until somebody says so. */
	again(&fx);
	assert_int_equal(status_of(&fx, id), MCP_TASK_SUCCEEDED);
	assert_int_equal(mcm_segment_shown(seg(&fx, 1)), MCP_SEG_DRAINED);
	for (unsigned i = 0; i < 20; i++) {
		sprintf(key, "new%u", i);
		assert_int_equal(fx_put(&fx, key, 5000, 0), 0);
	}
	assert_int_equal(seg(&fx, 1)->objects, 0);
	assert_int_equal(mcm_task_cancel(fx.m, id, &status), 0);
	jx_answer(&fx);
	again(&fx);
	assert_int_equal(mcm_segment_shown(seg(&fx, 1)), MCP_SEG_OK);
	for (unsigned i = 0; i < 100; i++) {
		sprintf(key, "k%u", i);
		assert_int_equal(fx_stat(&fx, key, NULL), 0);
	}
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_drain_goes_on_after_a_restart, jx_setup, jx_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
