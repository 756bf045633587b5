/* SPDX-License-Identifier: Apache-2.0
 * test_master_recover.c - answers of a restarted master whose owners have not returned yet, and the pool's
 * identity. */
#include <config.h>

#include "test_master_journal_fixture.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MIB (1u << 20)
#define TTL_MS 10000

static int listed(struct fixture *fx, uint32_t flags)
{
	struct mcp_list rq = { .flags = flags, .limit = 100 };
	struct mcm_list_page pg = { 0 };
	int r = mcm_list(fx->m, &rq, &pg);
	int n = (int)pg.names.count;

	mcm_names_page_done(&pg.names);
	return r < 0 ? r : n;
}

/* A master with the objects a (segment 1) and b, and a master started after it was killed. */
static void restarted(struct fixture *fx)
{
	jx_up(fx, 1, MIB);
	assert_int_equal(fx_put(fx, "a", 5000, 0), 0);
	assert_int_equal(fx_put(fx, "b", 5000, 0), 0);
	fx->conf.client_ttl = TTL_MS;
	jx_again(fx);
}

static void a_key_whose_owner_may_return_is_never_reported_missing(void **state)
{
	struct mcp_object o;
	struct fixture fx;

	(void)state;
	restarted(&fx);
	assert_int_equal(fx_stat(&fx, "a", NULL), -MC_ENOTREADY);
	assert_int_equal(fx_pin(&fx, fx.s, "a", MCP_GET_HOLD, &o, NULL), -MC_ENOTREADY);
	assert_int_equal(fx_exist(&fx, "a", 0), -MC_ENOTREADY);
	assert_int_equal(listed(&fx, 0), -MC_ENOTREADY);
	assert_int_equal(listed(&fx, MCP_LIST_DIR), -MC_ENOTREADY);
	/* the first put wins: it may be the one of before the restart */
	assert_int_equal(fx_put(&fx, "a", 100, 0), -MC_ENOTREADY);
	assert_int_equal(fx_rename(&fx, "a", "c", 0), -MC_ENOTREADY);
	/* a key that is not in the index is missing */
	assert_int_equal(fx_stat(&fx, "none", NULL), -MC_ENOOBJECT);
	assert_int_equal(fx_exist(&fx, "none", 0), 0);
	assert_int_equal(fx_remove(&fx, "none", 0), -MC_ENOOBJECT);
	/* a removal needs no owner */
	assert_int_equal(fx_remove(&fx, "b", 0), 0);
	assert_int_equal(fx_stat(&fx, "b", NULL), -MC_ENOOBJECT);
	jx_attach(&fx, 1, MIB);
	assert_int_equal(fx_stat(&fx, "a", NULL), 0);
	assert_int_equal(fx_exist(&fx, "a", 0), 1);
	assert_int_equal(listed(&fx, 0), 1);
	assert_int_equal(fx_put(&fx, "a", 100, 0), -MC_EEXISTS);
	fx_down(&fx);
}

static void a_rename_does_not_replace_a_key_whose_owner_may_return(void **state)
{
	struct fixture fx;

	(void)state;
	restarted(&fx);
	assert_int_equal(fx_put(&fx, "empty", 0, MCP_PUT_COMMIT), 0);
	assert_int_equal(fx_rename(&fx, "empty", "a", MCP_RENAME_NOREPLACE), -MC_ENOTREADY);
	jx_attach(&fx, 1, MIB);
	assert_int_equal(fx_rename(&fx, "empty", "a", MCP_RENAME_NOREPLACE), -MC_EEXISTS);
	fx_down(&fx);
}

/* As long as the silence of an owner is tolerated at other times, and at least for the grace period. */
static void an_owner_is_awaited_for_its_time_to_live(void **state)
{
	struct fixture fx;

	(void)state;
	restarted(&fx);
	fx_advance(&fx, TTL_MS - 1000);
	assert_int_equal(fx_stat(&fx, "a", NULL), -MC_ENOTREADY);
	fx_advance(&fx, 2000);
	assert_int_equal(fx_stat(&fx, "a", NULL), -MC_ENOOBJECT);
	assert_int_equal(fx_exist(&fx, "a", 0), 0);
	assert_int_equal(listed(&fx, 0), 0);
	/* it is only hidden */
	jx_attach(&fx, 1, MIB);
	assert_int_equal(fx_stat(&fx, "a", NULL), 0);
	fx_down(&fx);
}

/* The owner has other memory now: its objects are gone. */
static void the_objects_of_an_owner_that_lost_its_memory_are_missing(void **state)
{
	struct fixture fx;

	(void)state;
	restarted(&fx);
	assert_int_equal(fx_mount(&fx, 1, 1, 999, MIB, NULL), 0);
	assert_int_equal(fx_stat(&fx, "a", NULL), -MC_ENOOBJECT);
	fx_down(&fx);
}

/* An owner that falls silent later is not awaited. */
static void silence_without_a_restart_hides_objects(void **state)
{
	struct fixture fx;

	(void)state;
	restarted(&fx);
	jx_attach(&fx, 1, MIB);
	fx_advance(&fx, 2 * TTL_MS);
	assert_int_equal(fx_stat(&fx, "a", NULL), -MC_ENOOBJECT);
	fx_down(&fx);
}

/* No object has memory, so none has a grace pin. */
static void a_pool_without_bytes_survives_the_grace_period(void **state)
{
	static const char *const keys[] = { "dir/", "file" };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct fixture fx;

		jx_up(&fx, 1, MIB);
		assert_int_equal(fx_put(&fx, keys[i], 0, MCP_PUT_COMMIT), 0);
		for (unsigned starts = 0; starts < 2; starts++) {
			jx_again(&fx);
			jx_attach(&fx, 1, MIB);
			fx_advance(&fx, 2 * TTL_MS);
			assert_true(fx.m->grace_over);
			assert_false(mcm_grace_pins_left(fx.m));
			assert_int_equal(fx_stat(&fx, keys[i], NULL), 0);
		}
		fx_down(&fx);
	}
}

static void a_put_waits_for_the_owner_of_an_empty_segment(void **state)
{
	struct fixture fx;

	(void)state;
	jx_up(&fx, 1, MIB);
	fx.conf.client_ttl = TTL_MS;
	jx_again(&fx);
	/* It is connected, but its memory is not mounted yet. */
	assert_int_equal(fx_put(&fx, "a", 5000, 0), -MC_ENOTREADY);
	jx_attach(&fx, 1, MIB);
	assert_int_equal(fx_put(&fx, "a", 5000, 0), 0);
	assert_int_equal(fx_remove(&fx, "a", 0), 0);
	jx_again(&fx);
	fx_session_end(&fx, fx.s);
	fx.s = fx_session(&fx, 2);
	assert_int_equal(fx_put(&fx, "b", 5000, 0), -MC_ENOTREADY);
	/* It does not come. */
	fx_advance(&fx, 2 * TTL_MS);
	assert_int_equal(fx_put(&fx, "b", 5000, 0), -MC_ENOSPACE);
	fx_down(&fx);
}

static int put_twice(struct fixture *fx, const char *key)
{
	struct mcm_put_request rq = { .copies = 2, .flags = MCP_PUT_ALL_REPLICAS };
	struct mcp_put_item item = { .key = fx_bytes(key), .size = 5000 };
	struct mcm_put_granted g;
	int r = mcm_put_start(fx->m, fx->s, &rq, &item, &g);

	return r < 0 ? r : fx_end(fx, key, g.generation);
}

/* The master was killed after an unmount, before it had removed the objects from its index.  The next one gives the
 * number of the unmounted segment to another one, in which the records of these objects must not count. */
static void records_of_an_unmounted_segment_do_not_count_for_the_next_one(void **state)
{
	struct mcp_id seg = { 7, 1 };
	struct mcm_session *writer;
	struct fixture fx;
	uint64_t lost;

	(void)state;
	for (unsigned checkpoint = 0; checkpoint < 2; checkpoint++) {
		jx_up(&fx, 2, MIB);
		writer = fx_session(&fx, 3);
		assert_int_equal(put_twice(&fx, "two"), 0);
		for (unsigned i = 0; i < 20; i++) {
			char key[16];

			snprintf(key, sizeof(key), "k%u", i);
			assert_int_equal(fx_put(&fx, key, 5000, 0), 0);
			snprintf(key, sizeof(key), "begun%u", i);
			assert_int_equal(fx_start(&fx, writer, key, 5000, 0, NULL), 0);
		}
		assert_int_equal(mcm_unmount(fx.m, seg, seg, &lost), 0);
		if (checkpoint)
			assert_int_equal(mcm_checkpoint(fx.m), 0);
		jx_again(&fx);
		assert_int_equal(fx_mount(&fx, 1, 2, 102, MIB, NULL), 0);
		fx_confirm(&fx);
		assert_int_equal(fx_mount(&fx, 1, 7, 999, MIB, NULL), 0);
		assert_int_equal(mcm_segments_find(&fx.m->segments, (struct mcp_id){ 7, 7 })->index, 0);
		jx_again(&fx);
		assert_int_equal(fx_mount(&fx, 1, 2, 102, MIB, NULL), 0);
		assert_int_equal(fx_mount(&fx, 1, 7, 999, MIB, NULL), 0);
		assert_int_equal(fx.m->segments.at[0]->objects, 0);
		assert_int_equal(fx.m->segments.at[0]->used, 0);
		assert_int_equal(fx_stat(&fx, "two", NULL), 0);
		fx_down(&fx);
	}
}

static void the_identity_of_the_pool_is_that_of_its_journal(void **state)
{
	struct mcp_id pool;
	struct fixture fx;

	(void)state;
	jx_up(&fx, 1, MIB);
	pool = fx.m->pool;
	assert_false(mcp_id_zero(pool));
	/* nothing else was written to the journal */
	jx_killed(&fx);
	jx_started(&fx);
	assert_true(mcp_id_eq(fx.m->pool, pool));
	/* from a checkpoint */
	assert_int_equal(mcm_checkpoint(fx.m), 0);
	jx_killed(&fx);
	jx_started(&fx);
	assert_true(mcp_id_eq(fx.m->pool, pool));
	fx_down(&fx);
	/* a new directory: a new pool */
	jx_up(&fx, 1, MIB);
	assert_false(mcp_id_zero(fx.m->pool));
	assert_false(mcp_id_eq(fx.m->pool, pool));
	fx_down(&fx);
}

static void a_master_without_a_journal_has_an_identity_of_its_own(void **state)
{
	struct mcp_id pool;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 0, 0, NULL);
	assert_null(fx.m->journal);
	pool = fx.m->pool;
	assert_false(mcp_id_zero(pool));
	fx_down(&fx);
	fx_up(&fx, 0, 0, NULL);
	assert_false(mcp_id_eq(fx.m->pool, pool));
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_key_whose_owner_may_return_is_never_reported_missing),
		cmocka_unit_test(a_rename_does_not_replace_a_key_whose_owner_may_return),
		cmocka_unit_test(an_owner_is_awaited_for_its_time_to_live),
		cmocka_unit_test(the_objects_of_an_owner_that_lost_its_memory_are_missing),
		cmocka_unit_test(silence_without_a_restart_hides_objects),
		cmocka_unit_test(a_pool_without_bytes_survives_the_grace_period),
		cmocka_unit_test(a_put_waits_for_the_owner_of_an_empty_segment),
		cmocka_unit_test(records_of_an_unmounted_segment_do_not_count_for_the_next_one),
		cmocka_unit_test(the_identity_of_the_pool_is_that_of_its_journal),
		cmocka_unit_test(a_master_without_a_journal_has_an_identity_of_its_own),
	};

	return cmocka_run_group_tests(tests, jx_setup, jx_teardown);
}
