/* SPDX-License-Identifier: Apache-2.0
 * test_master_task_keep.c - tasks of a master that is killed and restarted. */
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

	while (rounds-- && (n = mcm_task_fetch(fx->m, fx->s, 4, copy, from, to, &(bool){ false }))) {
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
	/* The master is killed while copies are running. */
	assert_int_equal(mcm_task_fetch(fx.m, fx.s, 4, copy, from, to, &(bool){ false }), 4);
	jx_answer(&fx);
	again(&fx);
	assert_int_equal(status_of(&fx, id), MCP_TASK_RUNNING);
	assert_int_equal(mcm_segment_shown(seg(&fx, 1)), MCP_SEG_DRAINING);
	assert_int_equal(seg(&fx, 1)->objects, in_first - 12);
	fx_advance(&fx, 1000);
	work(&fx, 1000);
	assert_int_equal(seg(&fx, 2)->objects, 100);
	/* The drain waits for grace pins and for fences, because readers and writers of the
	 * killed master may still use the memory. */
	for (unsigned i = 0; i < 600 && status_of(&fx, id) == MCP_TASK_RUNNING; i++) {
		bool reattach;

		fx_advance(&fx, 5000);
		reattach = fx_beat(&fx, fx.s->client);
		assert_false(reattach);
		fx_confirm(&fx);
		(void)mcm_grace_release(fx.m);
		mcm_tasks_tick(fx.m);
	}
	assert_int_equal(status_of(&fx, id), MCP_TASK_SUCCEEDED);
	assert_int_equal(seg(&fx, 1)->used, 0);
	jx_answer(&fx);

	/* After the next restart, too, the segment accepts no objects until the drain is
	 * cancelled. */
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

#define MANY 700u

static struct mcp_bytes many[MANY];

static void mount_many(struct fixture *fx, int width)
{
	static char name[MANY][80];

	for (unsigned i = 0; i < MANY; i++) {
		struct mcp_mount_reply reply;
		struct mcp_mount mount = {
			.segment = { 7, i + 1 }, .client = { 7, 1 }, .epoch = 5, .size = MIB,
			.base = (i + 1ull) << 32, .endpoint = fx_bytes("h:1"), .protocol = fx_bytes("tcp"),
		};

		snprintf(name[i], sizeof(name[i]), "%0*u", width, i);
		mount.name = many[i] = fx_bytes(name[i]);
		assert_int_equal(mcm_mount(fx->m, (struct mcp_id){ 7, 1 }, NULL, &mount, &reply), 0);
	}
}

/* A drain of very many segments continues after a restart, or is refused. */
static void a_drain_of_very_many(void **state)
{
	struct mcm_task_request rq = { .type = MCP_TASK_DRAIN, .source = many, .n_sources = MANY - 1 };
	struct fixture fx;
	struct mcp_id id;

	(void)state;
	jx_up(&fx, 0, 0);
	mount_many(&fx, 28);
	assert_int_equal(fx_put(&fx, "k", 5000, 0), 0);
	assert_int_equal(mcm_task_create(fx.m, &rq, &id), 0);
	jx_again(&fx);
	assert_int_not_equal(status_of(&fx, id), MCP_TASK_FAILED);
	assert_int_not_equal(mcm_load_relaxed(&seg(&fx, MANY - 1)->draining), 0);
	fx_down(&fx);

	jx_up(&fx, 0, 0);
	mount_many(&fx, 70);
	assert_int_equal(mcm_task_create(fx.m, &rq, &id), -MC_ELIMIT);
	assert_non_null(strstr(mc_err_detail(-MC_ELIMIT), "create several tasks"));
	assert_int_equal(mcm_load_relaxed(&seg(&fx, 1)->draining), 0);
	fx_down(&fx);
}

static struct mcp_id drain(struct fixture *fx, const char *a, const char *b)
{
	struct mcp_bytes source[] = { fx_bytes(a), fx_bytes(b ? b : "") };
	struct mcm_task_request rq = {
		.type = MCP_TASK_DRAIN, .source = source, .n_sources = b ? 2 : 1,
	};
	struct mcp_id id;

	assert_int_equal(mcm_task_create(fx->m, &rq, &id), 0);
	work(fx, 1000);
	assert_int_equal(status_of(fx, id), MCP_TASK_SUCCEEDED);
	return id;
}

static void put_some(struct fixture *fx, const char *prefix, unsigned n)
{
	char key[16];

	for (unsigned i = 0; i < n; i++) {
		sprintf(key, "%s%u", prefix, i);
		assert_int_equal(fx_put(fx, key, 5000, 0), 0);
	}
}

/* Mount another segment of client 1 under an existing name. */
static int mount_more(struct fixture *fx, uint64_t id, const char *name)
{
	struct mcp_mount rq = {
		.segment = { 7, id }, .client = fx->s->client, .epoch = id, .size = 8 * MIB,
		.base = id << 40, .name = fx_bytes(name), .endpoint = fx_bytes("host:1"),
		.protocol = fx_bytes("tcp"),
	};
	struct mcp_mount_reply reply;

	return mcm_mount(fx->m, fx->s->client, NULL, &rq, &reply);
}

/* A drain applies to the memory that it emptied, not to memory mounted later in its place under the
 * same name. */
static void a_name_that_is_mounted_anew_takes_objects(void **state)
{
	struct fixture fx;
	struct mcp_id id;
	uint64_t lost;

	jx_up(&fx, 3, 8 * MIB);
	put_some(&fx, "k", 60);
	id = drain(&fx, "seg-1", "seg-2");
	assert_int_equal(mcm_unmount(fx.m, fx.s->client, (struct mcp_id){ 7, 1 }, &lost), 0);
	while (mcm_evict_background(fx.m))
		;
	assert_int_equal(fx_mount(&fx, 1, 1, 201, 8 * MIB, NULL), 0);
	put_some(&fx, "l", 60);
	assert_true(seg(&fx, 1)->objects > 0);
	/* But memory that is mounted beside a drained segment of that name is drained, too. */
	assert_int_equal(mount_more(&fx, 9, "seg-2"), 0);
	assert_int_equal(mcm_segment_shown(seg(&fx, 9)), MCP_SEG_DRAINED);
	jx_again(&fx);
	assert_int_equal(mount_more(&fx, 9, "seg-2"), 0);
	assert_int_equal(mcm_segment_shown(seg(&fx, 9)), MCP_SEG_DRAINED);
	assert_int_equal(fx_mount(&fx, 1, 1, 201, 8 * MIB, NULL), 0);
	assert_int_equal(fx_mount(&fx, 1, 2, 102, 8 * MIB, NULL), 0);
	assert_int_equal(fx_mount(&fx, 1, 3, 103, 8 * MIB, NULL), 0);
	assert_int_equal(mcm_segment_shown(seg(&fx, 1)), MCP_SEG_OK);
	/* The other source is still drained. */
	assert_int_equal(mcm_segment_shown(seg(&fx, 2)), MCP_SEG_DRAINED);
	assert_int_equal(status_of(&fx, id), MCP_TASK_SUCCEEDED);
	/* A cancelled drain leaves no record for the next master. */
	assert_int_equal(mcm_task_cancel(fx.m, id, &(uint8_t){ 0 }), 0);
	assert_int_equal(mcm_segment_shown(seg(&fx, 9)), MCP_SEG_OK);
	assert_int_equal(fx_mount(&fx, 1, 2, 202, 8 * MIB, NULL), 0);
	jx_again(&fx);
	assert_int_equal(fx_mount(&fx, 1, 2, 202, 8 * MIB, NULL), 0);
	assert_int_equal(mcm_segment_shown(seg(&fx, 2)), MCP_SEG_OK);
	fx_down(&fx);
}

/* A cancelled drain is not stored again when one of its sources is replaced. */
static void a_drain_that_was_taken_back_stays_so(void **state)
{
	struct fixture fx;
	struct mcp_id id;

	jx_up(&fx, 3, 8 * MIB);
	put_some(&fx, "k", 20);
	id = drain(&fx, "seg-1", "seg-2");
	assert_int_equal(mcm_task_cancel(fx.m, id, &(uint8_t){ 0 }), 0);
	assert_int_equal(fx_mount(&fx, 1, 1, 201, 8 * MIB, NULL), 0);
	jx_again(&fx);
	assert_int_equal(fx_mount(&fx, 1, 2, 102, 8 * MIB, NULL), 0);
	assert_int_equal(mcm_segment_shown(seg(&fx, 2)), MCP_SEG_OK);
	fx_down(&fx);
}

/* Finished tasks are forgotten after some time, but not a drain whose segment may be wanted
 * again. */
static void a_drain_is_remembered_for_its_segment(void **state)
{
	struct mcp_bytes target = fx_bytes("seg-2");
	struct mcm_task_request copy = {
		.type = MCP_TASK_COPY, .key = fx_bytes("k0"), .target = &target, .n_targets = 1,
	};
	struct mcp_id first, second, id;
	struct mcm_task t;
	struct fixture fx;

	jx_up(&fx, 2, 8 * MIB);
	fx.m->conf.max_total_finished_tasks = 1;
	put_some(&fx, "k", 20);
	first = drain(&fx, "seg-1", NULL);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(mcm_task_create(fx.m, &copy, &id), 0);
		work(&fx, 10);
	}
	assert_int_equal(status_of(&fx, first), MCP_TASK_SUCCEEDED);
	/* One drain of a segment is enough: the older one is forgotten. */
	second = drain(&fx, "seg-1", NULL);
	assert_int_equal(mcm_task_each(fx.m, first, keep, &t), -MC_ENOTASK);
	assert_int_equal(mcm_segment_shown(seg(&fx, 1)), MCP_SEG_DRAINED);
	again(&fx);
	assert_int_equal(mcm_segment_shown(seg(&fx, 1)), MCP_SEG_DRAINED);
	assert_int_equal(mcm_task_cancel(fx.m, second, &t.status), 0);
	assert_int_equal(mcm_segment_shown(seg(&fx, 1)), MCP_SEG_OK);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_drain_goes_on_after_a_restart),
		cmocka_unit_test(a_drain_of_very_many),
		cmocka_unit_test(a_name_that_is_mounted_anew_takes_objects),
		cmocka_unit_test(a_drain_that_was_taken_back_stays_so),
		cmocka_unit_test(a_drain_is_remembered_for_its_segment),
	};

	return cmocka_run_group_tests(tests, jx_setup, jx_teardown);
}
