/* SPDX-License-Identifier: Apache-2.0
 * test_master_drain.c - how drains end that cannot move everything, on a master whose clock only the test moves. */
#include <config.h>

#include "test_master_fixture.h"

#include <stdio.h>
#include <string.h>

#define MIB (1ull << 20)

/* Make all copies that the master requests of the session; returns their number. */
static unsigned work(struct fixture *fx, struct mcm_session *s)
{
	struct mcp_replica from[MCM_FETCH_MAX], to[MCM_FETCH_MAX];
	struct mcp_copy copy[MCM_FETCH_MAX];
	unsigned n, sum = 0;
	bool more;

	do {
		n = mcm_task_fetch(fx->m, s, MCM_FETCH_MAX, copy, from, to, &more);
		for (unsigned i = 0; i < n; i++) {
			struct mcp_copied done = { .put = copy[i].put, .crc = copy[i].crc };

			assert_int_equal(mcm_task_copied(fx->m, s, &done), 0);
		}
		sum += n;
	} while (n || more);
	mcm_tasks_tick(fx->m);
	return sum;
}

static struct mcp_id drain(struct fixture *fx, const char *a, const char *b)
{
	struct mcp_bytes source[] = { fx_bytes(a), fx_bytes(b ? b : "") };
	struct mcm_task_request rq = { .type = MCP_TASK_DRAIN, .source = source, .n_sources = b ? 2 : 1 };
	struct mcp_id id;

	assert_int_equal(mcm_task_create(fx->m, &rq, &id), 0);
	return id;
}

static int keep(void *arg, const struct mcm_task *t)
{
	*(struct mcm_task *)arg = *t;
	return 0;
}

static struct mcm_task look(struct fixture *fx, struct mcp_id id)
{
	struct mcm_task t;

	assert_int_equal(mcm_task_each(fx->m, id, keep, &t), 0);
	return t;
}

static struct mcm_segment *seg(struct fixture *fx, uint64_t id)
{
	struct mcm_segment *s = mcm_segments_find(&fx->m->segments, (struct mcp_id){ 7, id });

	assert_non_null(s);
	return s;
}

/* The owner of the first segment works for that many seconds; the other clients of the bits send heartbeats. */
static unsigned pass(struct fixture *fx, unsigned seconds, unsigned others)
{
	unsigned n = 0;

	while (seconds--) {
		fx_advance(fx, 1000);
		fx_beat(fx, fx->s->client);
		for (unsigned i = 2; i < 8; i++)
			if (others & 1u << i)
				fx_beat(fx, (struct mcp_id){ 7, i });
		n += work(fx, fx->s);
	}
	return n;
}

static void put_twice(struct fixture *fx, const char *key)
{
	struct mcm_put_request rq = { .copies = 2 };
	struct mcp_put_item item = { .key = fx_bytes(key), .size = 10000 };
	struct mcm_put_granted g;

	assert_int_equal(mcm_put_start(fx->m, fx->s, &rq, &item, &g), 0);
	assert_int_equal(fx_end(fx, key, g.generation), 0);
}

/* Only a copy on another node that serves it survives the end of the drained node. */
static void a_copy_of_the_same_node_is_no_comfort(void **state)
{
	struct mcp_id id;
	struct fixture fx;
	struct mcm_task t;

	(void)state;
	fx_up(&fx, 2, 8 * MIB, NULL);
	put_twice(&fx, "k");
	id = drain(&fx, "seg-1", NULL);
	pass(&fx, 5, 0);
	t = look(&fx, id);
	assert_int_equal(t.status, MCP_TASK_FAILED);
	assert_int_equal(t.error, -MC_ENOSPACE);
	assert_null(strstr(t.message, "none is lost"));
	fx_down(&fx);
}

static void a_copy_of_another_node_is(void **state)
{
	struct mcp_id id;
	struct fixture fx;
	struct mcm_task t;

	(void)state;
	fx_up(&fx, 1, 8 * MIB, NULL);
	fx_session(&fx, 2);
	assert_int_equal(fx_mount(&fx, 2, 2, 1, 8 * MIB, NULL), 0);
	put_twice(&fx, "k");
	id = drain(&fx, "seg-1", NULL);
	pass(&fx, 5, 1 << 2);
	t = look(&fx, id);
	assert_int_equal(t.status, MCP_TASK_FAILED);
	assert_int_equal(t.error, -MC_EEXISTS);
	assert_non_null(strstr(t.message, "1 objects stay; none is lost"));

	/* But not while that node does not answer. */
	fx_advance(&fx, 5000);
	fx_beat(&fx, fx.s->client);
	fx_advance(&fx, 6000);
	fx_beat(&fx, fx.s->client);
	assert_int_equal(mcm_segment_state(seg(&fx, 2)), MCP_SEG_SILENT);
	id = drain(&fx, "seg-1", NULL);
	pass(&fx, 5, 0);
	t = look(&fx, id);
	assert_int_equal(t.status, MCP_TASK_FAILED);
	assert_int_equal(t.error, -MC_ENOSPACE);
	fx_down(&fx);
}

/* Another segment exists, but has no room, or its owner is silent: the drain ends, too. */
static void a_drain_without_room_ends(void **state)
{
	struct mcp_id id;
	struct fixture fx;
	struct mcm_task t;

	(void)state;
	fx_up(&fx, 1, 8 * MIB, NULL);
	assert_int_equal(fx_put(&fx, "k", 4 * MIB, 0), 0);
	assert_int_equal(fx_mount(&fx, 1, 2, 1, 6 * MIB, NULL), 0);
	assert_int_equal(fx_put(&fx, "hard", 4 * MIB, MCP_PUT_HARD_PIN), 0);
	assert_int_equal(seg(&fx, 2)->objects, 1);
	id = drain(&fx, "seg-1", NULL);
	assert_int_equal(pass(&fx, 8, 0), 0);
	t = look(&fx, id);
	assert_int_equal(t.status, MCP_TASK_RUNNING);
	assert_string_equal(t.message, "no other segment takes the objects");
	/* Room appears just in time. */
	assert_int_equal(fx_remove(&fx, "hard", MCP_REMOVE_FORCE), 0);
	assert_int_equal(pass(&fx, 1, 0), 1);
	pass(&fx, 10, 0);
	assert_int_equal(look(&fx, id).status, MCP_TASK_SUCCEEDED);
	fx_down(&fx);

	fx_up(&fx, 1, 8 * MIB, NULL);
	assert_int_equal(fx_put(&fx, "k", 4 * MIB, 0), 0);
	fx_session(&fx, 2);
	assert_int_equal(fx_mount(&fx, 2, 2, 1, 8 * MIB, NULL), 0);
	for (unsigned i = 0; i < 12; i++) {
		fx_advance(&fx, 1000);
		fx_beat(&fx, fx.s->client);
	}
	assert_int_equal(mcm_segment_state(seg(&fx, 2)), MCP_SEG_SILENT);
	id = drain(&fx, "seg-1", NULL);
	pass(&fx, 12, 0);
	t = look(&fx, id);
	assert_int_equal(t.status, MCP_TASK_FAILED);
	assert_int_equal(t.error, -MC_ENOSPACE);
	assert_int_equal(mcm_segment_shown(seg(&fx, 1)), MCP_SEG_OK);
	fx_down(&fx);
}

/* A source that goes with objects makes the drain fail; one that goes when it is empty does not. */
static void a_source_that_goes_is_no_success(void **state)
{
	struct mcm_session *other;
	struct mcp_id id;
	struct fixture fx;
	struct mcm_task t;
	uint64_t lost;

	(void)state;
	fx_up(&fx, 1, 8 * MIB, NULL);
	assert_int_equal(fx_put(&fx, "a", 1000, 0), 0);
	assert_int_equal(fx_put(&fx, "b", 1000, 0), 0);
	other = fx_session(&fx, 2);
	assert_int_equal(fx_mount(&fx, 2, 2, 1, 8 * MIB, NULL), 0);
	id = drain(&fx, "seg-1", NULL);
	assert_int_equal(mcm_unmount(fx.m, fx.s->client, (struct mcp_id){ 7, 1 }, &lost), 0);
	assert_int_equal(lost, 2);
	fx_advance(&fx, 100);
	mcm_tasks_tick(fx.m);
	t = look(&fx, id);
	assert_int_equal(t.status, MCP_TASK_FAILED);
	assert_non_null(strstr(t.message, "2 objects were lost with their node"));

	/* The loss counts once. */
	assert_int_equal(fx_mount(&fx, 1, 1, 9, 8 * MIB, NULL), 0);
	assert_int_equal(fx_put(&fx, "c", 1000, 0), 0);
	id = drain(&fx, "seg-1", NULL);
	pass(&fx, 1, 1 << 2);
	assert_int_equal(look(&fx, id).status, MCP_TASK_SUCCEEDED);
	assert_int_equal(mcm_task_cancel(fx.m, id, &t.status), 0);

	/* Its owner is silent, and then forgotten. */
	for (unsigned i = 0; i < 100 && !seg(&fx, 1)->objects; i++) {
		char key[16];

		snprintf(key, sizeof(key), "d%u", i);
		assert_int_equal(fx_put(&fx, key, 1000, 0), 0);
	}
	assert_true(seg(&fx, 1)->objects > 0);
	id = drain(&fx, "seg-1", NULL);
	for (unsigned i = 0; i < 30; i++) {
		fx_advance(&fx, 1000);
		fx_beat(&fx, (struct mcp_id){ 7, 2 });
		mcm_tasks_tick(fx.m);
	}
	t = look(&fx, id);
	assert_int_equal(t.status, MCP_TASK_RUNNING);
	assert_string_equal(t.message, "the node of seg-1 does not answer");
	for (unsigned i = 0; i < 700; i++) {
		fx_advance(&fx, 1000);
		fx_beat(&fx, (struct mcp_id){ 7, 2 });
		mcm_tasks_tick(fx.m);
	}
	t = look(&fx, id);
	assert_int_equal(t.status, MCP_TASK_FAILED);
	assert_non_null(strstr(t.message, "objects were lost with their node"));
	fx_session_end(&fx, other);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_copy_of_the_same_node_is_no_comfort),
		cmocka_unit_test(a_copy_of_another_node_is),
		cmocka_unit_test(a_drain_without_room_ends),
		cmocka_unit_test(a_source_that_goes_is_no_success),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
