/* SPDX-License-Identifier: Apache-2.0
 * test_master_restart.c - what a master keeps for clients that have not come back yet. */
#include <config.h>

#include "test_master_journal_fixture.h"

#define MIB (1u << 20)

/* Whoever had it mapped gets the time to say so. */
static void t_held(void **state)
{
	struct mcp_object o;
	struct fixture fx;

	(void)state;
	jx_up(&fx, 1, MIB);
	assert_int_equal(fx_put(&fx, "a", 500 << 10, 0), 0);
	assert_int_equal(fx_put(&fx, "b", 400 << 10, 0), 0);
	jx_again(&fx);
	jx_attach(&fx, 1, MIB);
	assert_int_equal(fx_put(&fx, "c", 500 << 10, 0), -MC_ENOSPACE);
	/* nobody's pin is in nobody's way */
	assert_int_equal(fx_remove(&fx, "b", 0), 0);
	assert_int_equal(fx_put(&fx, "c", 450 << 10, 0), -MC_ENOSPACE);
	assert_int_equal(fx_pin(&fx, fx.s, "a", MCP_GET_HOLD, &o, NULL), 0);
	fx_advance(&fx, 4000);
	assert_int_equal(fx_put(&fx, "c", 450 << 10, 0), 0);
	assert_int_equal(fx_put(&fx, "d", 600 << 10, 0), -MC_ENOSPACE);
	fx_release(&fx, fx.s, o.pin);
	assert_int_equal(fx_put(&fx, "d", 600 << 10, 0), 0);
	fx_down(&fx);
}

/* Very many clients come rarely: readers find the new master later than the owners, who are few. */
static void t_held_for_many(void **state)
{
	static struct mcm_session *crowd[10000];
	struct fixture fx;
	unsigned i, n = 0;

	jx_up(&fx, 1, MIB);
	assert_int_equal(fx_put(&fx, "a", 500 << 10, 0), 0);
	jx_again(&fx);
	jx_attach(&fx, 1, MIB);
	fx.m->conf.client_ttl = 10000;
	/* Their heartbeats are 33 1/3 seconds apart, and four when one has failed. */
	for (i = 1; i <= 43; i++) {
		for (; n < i * 300 && n < 10000; n++)
			crowd[n] = fx_session(&fx, 1000 + n);
		fx_advance(&fx, 1000);
		fx_beat(&fx, fx.s->client);
		assert_int_equal(fx_put(&fx, "c", 600 << 10, 0), i < 42 ? -MC_ENOSPACE : i == 42 ? 0 : -MC_EEXISTS);
	}
	while (n)
		fx_session_end(&fx, crowd[--n]);
	fx_down(&fx);
}

/* A master that was stopped does not take the time for its clients': whoever of its threads runs first. */
static void t_held_over_a_stall(void **state)
{
	struct fixture fx;

	jx_up(&fx, 1, MIB);
	assert_int_equal(fx_put(&fx, "a", 500 << 10, 0), 0);
	jx_again(&fx);
	jx_attach(&fx, 1, MIB);
	mc_clock_advance(60 * MC_NS_PER_SEC);
	while (mcm_evict_background(fx.m))
		;
	assert_int_equal(fx_put(&fx, "c", 600 << 10, 0), -MC_ENOSPACE);
	fx_advance(&fx, 1000);
	assert_int_equal(fx_put(&fx, "c", 600 << 10, 0), -MC_ENOSPACE);
	fx_advance(&fx, 3000);
	assert_int_equal(fx_put(&fx, "c", 600 << 10, 0), 0);
	fx_down(&fx);
}

static int put_in_group(struct fixture *fx, const char *key, uint64_t size)
{
	struct mcm_put_request rq = { .copies = 1 };
	struct mcp_put_item item = { .key = fx_bytes(key), .size = size, .group = fx_bytes("g") };
	struct mcm_put_granted g;
	int r = mcm_put_start(fx->m, fx->s, &rq, &item, &g);

	return r < 0 ? r : fx_end(fx, key, g.generation);
}

static uint64_t evict_all(struct fixture *fx)
{
	struct mcp_bytes source = fx_bytes("seg-1");
	struct mcm_task_request rq = { .type = MCP_TASK_EVICT, .source = &source, .n_sources = 1 };
	struct mcp_id id;

	assert_int_equal(mcm_task_create(fx->m, &rq, &id), 0);
	mcm_tasks_tick(fx->m);
	return mcm_index_count(&fx->m->index);
}

/* Nobody's pins are a group's too, and no longer than its members'. */
static void t_group_held(void **state)
{
	struct fixture fx;

	jx_up(&fx, 1, MIB);
	assert_int_equal(put_in_group(&fx, "a", 5000), 0);
	assert_int_equal(put_in_group(&fx, "b", 5000), 0);
	jx_again(&fx);
	jx_attach(&fx, 1, MIB);
	fx_check(&fx);
	assert_int_equal(evict_all(&fx), 2);
	fx_advance(&fx, 4000);
	fx_check(&fx);
	assert_int_equal(evict_all(&fx), 0);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(t_held), cmocka_unit_test(t_held_for_many),
		cmocka_unit_test(t_held_over_a_stall), cmocka_unit_test(t_group_held),
	};

	return cmocka_run_group_tests(tests, jx_setup, jx_teardown);
}
