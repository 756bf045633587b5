/* SPDX-License-Identifier: Apache-2.0
 * test_master_clear.c - CLEAR: copies in one segment are freed, the other copies stay. */
#include <config.h>

#include "test_master_journal_fixture.h"

#define MIB (1ull << 20)
#define SIZE (64ull << 10)

static void put_copies(struct fixture *fx, const char *key, unsigned copies)
{
	struct mcp_put_item item = { .key = fx_bytes(key), .size = SIZE };
	struct mcm_put_request rq = { .copies = copies };
	struct mcm_put_granted g;

	assert_int_equal(mcm_put_start(fx->m, fx->s, &rq, &item, &g), 0);
	assert_int_equal(g.copies, copies);
	assert_int_equal(fx_end(fx, key, g.generation), 0);
}

static int clear(struct fixture *fx, const char *key, const char *segment)
{
	return mcm_clear(fx->m, segment ? fx_bytes(segment) : mcp_bytes(NULL, 0), fx_bytes(key));
}

/* The number of copies; bit n of *@ret_where: one is in segment n. */
static unsigned copies_of(struct fixture *fx, const char *key, unsigned *ret_where)
{
	struct mcp_replica replica[MCM_REPLICA_MAX];
	struct mcp_object o;
	unsigned n = 0;

	*ret_where = 0;
	if (mcm_get(fx->m, NULL, MCP_GET_DESCRIBE, fx_bytes(key), &o, replica, &n) < 0)
		return 0;
	for (unsigned i = 0; i < n; i++)
		*ret_where |= 1u << replica[i].segment.lo;
	return n;
}

static void a_copy_is_freed_and_the_others_stay(void **state)
{
	struct fixture fx;
	unsigned where;

	(void)state;
	fx_up(&fx, 3, MIB, NULL);
	put_copies(&fx, "k", 3);
	assert_int_equal(fx_used(&fx), 3 * SIZE);
	assert_int_equal(clear(&fx, "k", "seg-2"), 0);
	assert_int_equal(copies_of(&fx, "k", &where), 2);
	assert_int_equal(where, 1u << 1 | 1u << 3);
	assert_int_equal(fx_used(&fx), 2 * SIZE);
	assert_int_equal(clear(&fx, "k", "seg-2"), -MC_EREPLICA);
	assert_int_equal(clear(&fx, "k", "seg-1"), 0);
	assert_int_equal(copies_of(&fx, "k", &where), 1);
	assert_int_equal(where, 1u << 3);
	fx_check(&fx);
	fx_down(&fx);
}

static void the_last_copy_takes_the_object_with_it(void **state)
{
	struct fixture fx;

	(void)state;
	fx_up(&fx, 2, MIB, NULL);
	put_copies(&fx, "k", 2);
	assert_int_equal(clear(&fx, "k", "seg-1"), 0);
	assert_int_equal(clear(&fx, "k", "seg-2"), 0);
	assert_int_equal(fx_stat(&fx, "k", NULL), -MC_ENOOBJECT);
	put_copies(&fx, "all", 2);
	assert_int_equal(clear(&fx, "all", NULL), 0);
	assert_int_equal(fx_stat(&fx, "all", NULL), -MC_ENOOBJECT);
	assert_int_equal(fx_used(&fx), 0);
	fx_check(&fx);
	fx_down(&fx);
}

static void a_request_that_cannot_be_met_changes_nothing(void **state)
{
	struct fixture fx;
	unsigned where;

	(void)state;
	fx_up(&fx, 2, MIB, NULL);
	put_copies(&fx, "k", 2);
	assert_int_equal(clear(&fx, "none", "seg-1"), -MC_ENOOBJECT);
	assert_int_equal(clear(&fx, "none", NULL), -MC_ENOOBJECT);
	assert_int_equal(clear(&fx, "", "seg-1"), -MC_EKEY);
	assert_int_equal(clear(&fx, "k", "seg-9"), -MC_EREPLICA);
	assert_int_equal(clear(&fx, "k", "seg-"), -MC_EREPLICA);
	assert_int_equal(copies_of(&fx, "k", &where), 2);
	fx_down(&fx);
}

static void short_leases(struct mcm_conf *conf)
{
	conf->default_kv_lease_ttl = 1000;
}

/* A reader may read from any copy, so the bytes of all copies stay until its pin or lease ends. */
static void copies_of_leased_objects_stay(void **state)
{
	struct mcp_replica replica[MCM_REPLICA_MAX];
	struct mcp_object o;
	struct fixture fx;
	unsigned where;

	(void)state;
	fx_up(&fx, 2, MIB, short_leases);
	put_copies(&fx, "k", 2);
	assert_int_equal(fx_pin(&fx, fx.s, "k", MCP_GET_HOLD, &o, replica), 0);
	fx_advance(&fx, 3000);
	assert_int_equal(clear(&fx, "k", "seg-1"), -MC_ELEASED);
	assert_int_equal(clear(&fx, "k", NULL), -MC_ELEASED);
	fx_release(&fx, fx.s, o.pin);
	assert_int_equal(fx_exist(&fx, "k", 0), 1);
	assert_int_equal(clear(&fx, "k", "seg-1"), -MC_ELEASED);
	assert_int_equal(copies_of(&fx, "k", &where), 2);
	fx_advance(&fx, 2000);
	assert_int_equal(clear(&fx, "k", "seg-1"), 0);
	assert_int_equal(copies_of(&fx, "k", &where), 1);
	fx_check(&fx);
	fx_down(&fx);
}

static void a_freed_copy_stays_freed_after_a_restart(void **state)
{
	struct fixture fx;
	unsigned where;

	(void)state;
	jx_up(&fx, 2, MIB);
	put_copies(&fx, "k", 2);
	assert_int_equal(clear(&fx, "k", "seg-1"), 0);
	jx_again(&fx);
	jx_attach(&fx, 2, MIB);
	assert_int_equal(copies_of(&fx, "k", &where), 1);
	assert_int_equal(where, 1u << 2);
	fx_check(&fx);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_copy_is_freed_and_the_others_stay),
		cmocka_unit_test(the_last_copy_takes_the_object_with_it),
		cmocka_unit_test(a_request_that_cannot_be_met_changes_nothing),
		cmocka_unit_test(copies_of_leased_objects_stay),
		cmocka_unit_test(a_freed_copy_stays_freed_after_a_restart),
	};

	return cmocka_run_group_tests(tests, jx_setup, jx_teardown);
}
