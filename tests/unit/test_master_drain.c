/* SPDX-License-Identifier: Apache-2.0
 * test_master_drain.c - how drains end that cannot move everything, on a master whose clock only the test moves. */
#include <config.h>

#include "test_master_fixture.h"

#include <stdio.h>
#include <string.h>

#include "common/hash.h"

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

static unsigned copies_of(struct fixture *fx, const char *key)
{
	struct mcp_replica rep[MCM_REPLICA_MAX];
	struct mcp_object o;
	unsigned n;

	assert_int_equal(mcm_get(fx->m, NULL, 0, fx_bytes(key), &o, rep, &n), 0);
	return n;
}

/* Two segments of one node. */
static void a_surplus_copy_is_given_up(void **state)
{
	struct mcp_id id;
	struct fixture fx;
	struct mcm_task t;

	(void)state;
	fx_up(&fx, 2, 8 * MIB, NULL);
	put_twice(&fx, "k");
	id = drain(&fx, "seg-1", NULL);
	assert_int_equal(look(&fx, id).total_objects, 1);
	pass(&fx, 1, 0);
	t = look(&fx, id);
	assert_int_equal(t.status, MCP_TASK_SUCCEEDED);
	assert_int_equal(t.given_up, 1);
	assert_int_equal(t.succeeded, 0);
	assert_non_null(strstr(t.message, "1 objects have one copy fewer"));
	assert_int_equal(copies_of(&fx, "k"), 1);
	assert_int_equal(seg(&fx, 1)->used, 0);

	/* It is the last one now: the drain of the other segment has nowhere to move it. */
	id = drain(&fx, "seg-2", NULL);
	pass(&fx, 15, 0);
	t = look(&fx, id);
	assert_int_equal(t.status, MCP_TASK_FAILED);
	assert_int_equal(t.error, -MC_ENOSPACE);
	assert_int_equal(t.given_up, 0);
	assert_int_equal(copies_of(&fx, "k"), 1);
	fx_down(&fx);
}

/* Both copies are in segments that are drained, by one drain or by two. */
static void no_drain_gives_up_the_last_copy(void **state)
{
	struct mcp_id id, other;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 2, 8 * MIB, NULL);
	put_twice(&fx, "k");
	id = drain(&fx, "seg-1", "seg-2");
	pass(&fx, 15, 0);
	assert_int_equal(look(&fx, id).status, MCP_TASK_FAILED);
	assert_int_equal(copies_of(&fx, "k"), 2);
	id = drain(&fx, "seg-1", NULL);
	other = drain(&fx, "seg-2", NULL);
	pass(&fx, 15, 0);
	/* When one has failed, its segment counts again. */
	assert_int_equal(look(&fx, id).given_up + look(&fx, other).given_up, 1);
	assert_int_equal(look(&fx, id).status + look(&fx, other).status, MCP_TASK_FAILED + MCP_TASK_SUCCEEDED);
	assert_int_equal(copies_of(&fx, "k"), 1);
	fx_down(&fx);
}

static void a_copy_of_a_silent_node_is_no_reason(void **state)
{
	struct mcp_id id;
	struct fixture fx;
	struct mcm_task t;

	(void)state;
	fx_up(&fx, 1, 8 * MIB, NULL);
	fx_session(&fx, 2);
	assert_int_equal(fx_mount(&fx, 2, 2, 1, 8 * MIB, NULL), 0);
	put_twice(&fx, "k");
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
	assert_non_null(strstr(t.message, "1 objects stay"));

	/* It is one when the node answers again. */
	fx_beat(&fx, (struct mcp_id){ 7, 2 });
	assert_int_equal(fx_mount(&fx, 2, 2, 1, 8 * MIB, NULL), 0);
	assert_int_equal(mcm_segment_state(seg(&fx, 2)), MCP_SEG_OK);
	assert_int_equal(copies_of(&fx, "k"), 2);
	id = drain(&fx, "seg-1", NULL);
	pass(&fx, 1, 1 << 2);
	assert_int_equal(look(&fx, id).status, MCP_TASK_SUCCEEDED);
	assert_int_equal(copies_of(&fx, "k"), 1);
	fx_down(&fx);
}

/* While a segment without a copy could take it, no copy is given up, also when that segment is full now. */
static void a_copy_that_could_move_is_not_given_up(void **state)
{
	struct mcm_put_request fill = { .copies = 1, .flags = MCP_PUT_HARD_PIN, .n_preferred = 1 };
	struct mcp_put_item item = { .key = fx_bytes("hard"), .size = 6 * MIB - 8192 };
	struct mcm_put_granted g;
	struct mcp_id id;
	struct fixture fx;
	struct mcm_task t;

	(void)state;
	fx_up(&fx, 2, 8 * MIB, NULL);
	put_twice(&fx, "k");
	assert_int_equal(fx_mount(&fx, 1, 3, 1, 6 * MIB, NULL), 0);
	fill.preferred = &(uint64_t){ mc_hash("seg-3", 5, 0) };
	assert_int_equal(mcm_put_start(fx.m, fx.s, &fill, &item, &g), 0);
	assert_int_equal(fx_end(&fx, "hard", g.generation), 0);
	assert_int_equal(seg(&fx, 3)->objects, 1);
	id = drain(&fx, "seg-1", NULL);
	pass(&fx, 5, 0);
	t = look(&fx, id);
	assert_int_equal(t.status, MCP_TASK_RUNNING);
	assert_string_equal(t.message, "the other segments have no free memory for the objects");
	assert_int_equal(copies_of(&fx, "k"), 2);
	assert_int_equal(fx_remove(&fx, "hard", MCP_REMOVE_FORCE), 0);
	pass(&fx, 2, 0);
	t = look(&fx, id);
	assert_int_equal(t.status, MCP_TASK_SUCCEEDED);
	assert_int_equal(t.given_up, 0);
	assert_int_equal(copies_of(&fx, "k"), 2);
	fx_down(&fx);
}

/* A reader keeps the bytes that it reads, and the drain says that it waits for it. */
static void a_copy_that_is_read_stays_until_then(void **state)
{
	struct mcp_replica rep[MCM_REPLICA_MAX];
	struct mcm_session *reader;
	struct mcp_object o;
	struct mcp_id id;
	struct fixture fx;
	struct mcm_task t;

	(void)state;
	fx_up(&fx, 2, 8 * MIB, NULL);
	reader = fx_session(&fx, 2);
	put_twice(&fx, "k");
	assert_int_equal(fx_pin(&fx, reader, "k", MCP_GET_HOLD, &o, rep), 0);
	id = drain(&fx, "seg-1", NULL);
	pass(&fx, 3, 0);
	t = look(&fx, id);
	assert_int_equal(t.status, MCP_TASK_RUNNING);
	assert_string_equal(t.message, "1 objects are read or leased; their old copies stay until that ends");
	assert_int_equal(copies_of(&fx, "k"), 2);
	fx_release(&fx, reader, o.pin);
	pass(&fx, 1, 0);
	t = look(&fx, id);
	assert_int_equal(t.status, MCP_TASK_SUCCEEDED);
	assert_int_equal(t.given_up, 1);
	assert_int_equal(copies_of(&fx, "k"), 1);
	fx_session_end(&fx, reader);
	fx_down(&fx);
}

/* A hard pin keeps the object, not each of its copies. */
static void hard_pins_keep_the_last_copy(void **state)
{
	struct mcm_put_request rq = { .copies = 2, .flags = MCP_PUT_HARD_PIN };
	struct mcp_put_item item = { .key = fx_bytes("k"), .size = 10000 };
	struct mcm_put_granted g;
	struct mcp_id id;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 2, 8 * MIB, NULL);
	assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &item, &g), 0);
	assert_int_equal(fx_end(&fx, "k", g.generation), 0);
	id = drain(&fx, "seg-2", NULL);
	pass(&fx, 1, 0);
	assert_int_equal(look(&fx, id).status, MCP_TASK_SUCCEEDED);
	assert_int_equal(copies_of(&fx, "k"), 1);
	fx_down(&fx);
}

static void tune_tenants(struct mcm_conf *conf)
{
	conf->enable_multi_tenants = true;
}

/* The tenant is no longer charged for the copy. */
static void the_quota_of_the_copy_is_free_again(void **state)
{
	struct mcp_tenant figures;
	struct fixture fx;
	uint64_t effective;
	struct mcp_id id;

	(void)state;
	fx_up(&fx, 2, 8 * MIB, tune_tenants);
	assert_int_equal(mcm_tenant_set_quota(fx.m, fx_bytes("default"), MIB, &effective), 0);
	put_twice(&fx, "k");
	assert_true(mcm_tenant_describe(fx.m, 0, &figures));
	assert_int_equal(figures.charged, 20000);
	id = drain(&fx, "seg-1", NULL);
	pass(&fx, 1, 0);
	assert_int_equal(look(&fx, id).status, MCP_TASK_SUCCEEDED);
	assert_true(mcm_tenant_describe(fx.m, 0, &figures));
	assert_int_equal(figures.charged, 10000);
	fx_down(&fx);
}

/* The measure is the use of the sources, which removed objects leave too. */
static void progress_is_measured(void **state)
{
	struct mcp_id id;
	struct fixture fx;
	struct mcm_task t;

	(void)state;
	fx_up(&fx, 1, 8 * MIB, NULL);
	for (unsigned i = 0; i < 4; i++) {
		char key[16];

		snprintf(key, sizeof(key), "k%u", i);
		assert_int_equal(fx_put(&fx, key, MIB, 0), 0);
	}
	assert_int_equal(fx_mount(&fx, 1, 2, 1, 3 * MIB, NULL), 0);
	id = drain(&fx, "seg-1", NULL);
	t = look(&fx, id);
	assert_int_equal(t.total_objects, 4);
	assert_true(t.total >= 4 * MIB);
	assert_int_equal(t.rate, 0);
	/* Removed objects are done, too. */
	assert_int_equal(fx_remove(&fx, "k0", MCP_REMOVE_FORCE), 0);
	fx_advance(&fx, 2000);
	mcm_tasks_tick(fx.m);
	t = look(&fx, id);
	assert_in_range(t.rate, MIB / 2, MIB / 2 + 5000);
	assert_int_equal(mcm_task_left(fx.m, &t).objects, 3);
	pass(&fx, 3, 0);
	assert_int_equal(look(&fx, id).status, MCP_TASK_SUCCEEDED);
	assert_int_equal(mcm_task_left(fx.m, &t).objects, 0);
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
	assert_string_equal(t.message, "the other segments have no free memory for the objects");
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
		cmocka_unit_test(a_surplus_copy_is_given_up),
		cmocka_unit_test(no_drain_gives_up_the_last_copy),
		cmocka_unit_test(a_copy_of_a_silent_node_is_no_reason),
		cmocka_unit_test(a_copy_that_could_move_is_not_given_up),
		cmocka_unit_test(a_copy_that_is_read_stays_until_then),
		cmocka_unit_test(hard_pins_keep_the_last_copy),
		cmocka_unit_test(the_quota_of_the_copy_is_free_again),
		cmocka_unit_test(progress_is_measured),
		cmocka_unit_test(a_drain_without_room_ends),
		cmocka_unit_test(a_source_that_goes_is_no_success),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
