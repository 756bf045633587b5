/* SPDX-License-Identifier: Apache-2.0
 * test_master_soft_pin.c - soft pins of objects that exist. */
#include <config.h>

#include "test_master_journal_fixture.h"

#include <stdio.h>

#define MIB (1ull << 20)
#define SIZE (64ull << 10)

static int pin(struct fixture *fx, const char *key, uint64_t ttl_ms)
{
	return mcm_soft_pin(fx->m, fx_bytes(key), ttl_ms);
}

static void keep_pinned(struct mcm_conf *conf)
{
	conf->allow_evict_soft_pinned_objects = false;
	conf->default_kv_lease_ttl = 0;
}

/* Put three times as many objects as the segment has room for. */
static void fill(struct fixture *fx, char round)
{
	char key[16];

	for (unsigned i = 0; i < 3 * MIB / SIZE; i++) {
		snprintf(key, sizeof(key), "%c%u", round, i);
		assert_int_equal(fx_put(fx, key, SIZE, 0), 0);
		fx_beat(fx, (struct mcp_id){ 0, 1 });
		fx_advance(fx, 10);
	}
}

static void a_pin_keeps_an_object_and_its_end_releases_it(void **state)
{
	struct mcp_object o;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, keep_pinned);
	assert_int_equal(fx_put(&fx, "k", SIZE, 0), 0);
	assert_int_equal(pin(&fx, "k", 600000), 0);
	assert_int_equal(fx_metric("master_soft_pin_key_count"), 1);
	fill(&fx, 'a');
	assert_int_equal(fx_stat(&fx, "k", &o), 0);
	assert_true(o.soft_pin_ms > 500000 && o.soft_pin_ms < 600000);
	assert_int_equal(pin(&fx, "k", 0), 0);
	assert_int_equal(fx_metric("master_soft_pin_key_count"), 0);
	assert_int_equal(pin(&fx, "k", 0), 0);
	fill(&fx, 'b');
	assert_int_equal(fx_stat(&fx, "k", NULL), -MC_ENOOBJECT);
	fx_check(&fx);
	fx_down(&fx);
}

static void a_pin_ends_with_its_time(void **state)
{
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, keep_pinned);
	assert_int_equal(fx_put(&fx, "k", SIZE, 0), 0);
	assert_int_equal(pin(&fx, "k", 600000), 0);
	assert_int_equal(pin(&fx, "k", 100), 0);
	fill(&fx, 'a');
	assert_int_equal(fx_stat(&fx, "k", NULL), -MC_ENOOBJECT);
	assert_int_equal(fx_metric("master_soft_pin_key_count"), 0);
	fx_check(&fx);
	fx_down(&fx);
}

static void wrong_requests_are_refused(void **state)
{
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "k", SIZE, 0), 0);
	assert_int_equal(pin(&fx, "none", 1000), -MC_ENOOBJECT);
	assert_int_equal(pin(&fx, "", 1000), -MC_EKEY);
	assert_int_equal(pin(&fx, "k", fx.conf.max_kv_soft_pin_ttl), 0);
	assert_int_equal(pin(&fx, "k", fx.conf.max_kv_soft_pin_ttl + 1), -MC_EPARAM);
	fx_down(&fx);
}

static void pins_and_their_ends_survive_a_restart(void **state)
{
	struct mcp_object o;
	struct fixture fx;

	(void)state;
	jx_up(&fx, 1, MIB);
	assert_int_equal(fx_put(&fx, "pinned", SIZE, 0), 0);
	assert_int_equal(fx_put(&fx, "unpinned", SIZE, 0), 0);
	assert_int_equal(pin(&fx, "pinned", 600000), 0);
	assert_int_equal(pin(&fx, "unpinned", 600000), 0);
	assert_int_equal(pin(&fx, "unpinned", 0), 0);
	jx_again(&fx);
	jx_attach(&fx, 1, MIB);
	assert_int_equal(fx_stat(&fx, "pinned", &o), 0);
	assert_true(o.soft_pin_ms > 500000);
	assert_int_equal(fx_stat(&fx, "unpinned", &o), 0);
	assert_int_equal(o.soft_pin_ms, 0);
	fx_check(&fx);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pin_keeps_an_object_and_its_end_releases_it),
		cmocka_unit_test(a_pin_ends_with_its_time),
		cmocka_unit_test(wrong_requests_are_refused),
		cmocka_unit_test(pins_and_their_ends_survive_a_restart),
	};

	return cmocka_run_group_tests(tests, jx_setup, jx_teardown);
}
