/* SPDX-License-Identifier: Apache-2.0
 * test_master_hot.c - objects that are read often are found, and a task makes another copy. */
#include <config.h>

#include "test_master_fixture.h"

#include <errno.h>
#include <stdio.h>

#define MIB (1ull << 20)
#define THRESHOLD 8		/* 0.8 reads per second in 10 seconds: upstream's defaults */

static char enforce_mode[] = "enforce", observe_mode[] = "observe", other_mode[] = "always";

static void enforce(struct mcm_conf *conf)
{
	conf->dynamic_replication_mode = enforce_mode;
	conf->client_ttl = 3600 * 1000;
}

static void observe(struct mcm_conf *conf)
{
	enforce(conf);
	conf->dynamic_replication_mode = observe_mode;
}

static void three_copies(struct mcm_conf *conf)
{
	enforce(conf);
	conf->dynamic_replication_max_memory_replicas = 3;
}

static void read_it(struct fixture *fx, const char *key, unsigned times)
{
	struct mcp_replica r[MCM_REPLICA_MAX];
	struct mcp_object o;

	for (unsigned i = 0; i < times; i++) {
		assert_int_equal(fx_pin(fx, fx->s, key, MCP_GET_LEASE, &o, r), 0);
		fx_release(fx, fx->s, o.pin);
	}
}

/* The work of the tasks' thread and of the owner; returns the number of copies made. */
static unsigned work(struct fixture *fx)
{
	struct mcp_replica from[MCM_FETCH_MAX], to[MCM_FETCH_MAX];
	struct mcp_copy copy[MCM_FETCH_MAX];
	unsigned n, i;

	mcm_hot_tick(fx->m);
	mcm_tasks_tick(fx->m);
	n = mcm_task_fetch(fx->m, fx->s, MCM_FETCH_MAX, copy, from, to, &(bool){ false });
	for (i = 0; i < n; i++) {
		struct mcp_copied done = { .put = copy[i].put, .crc = copy[i].crc };

		assert_int_equal(mcm_task_copied(fx->m, fx->s, &done), 0);
	}
	mcm_tasks_tick(fx->m);
	return n;
}

static unsigned copies_of(struct fixture *fx, const char *key)
{
	struct mcp_replica r[MCM_REPLICA_MAX];
	struct mcp_object o;
	unsigned n;

	assert_int_equal(mcm_get(fx->m, NULL, 0, fx_bytes(key), &o, r, &n), 0);
	return n;
}

static void an_object_read_often_gets_a_copy(void **state)
{
	struct fixture fx;

	fx_up(&fx, 2, 8 * MIB, enforce);
	assert_int_equal(fx_put(&fx, "hot", 10000, 0), 0);
	read_it(&fx, "hot", THRESHOLD - 1);
	assert_int_equal(work(&fx), 0);
	read_it(&fx, "hot", 1);
	assert_int_equal(work(&fx), 1);
	assert_int_equal(copies_of(&fx, "hot"), 2);
	/* It has the maximal number of copies, however often it is read. */
	read_it(&fx, "hot", 10 * THRESHOLD);
	assert_int_equal(work(&fx), 0);
	fx_advance(&fx, MCM_HOT_REST_MS + 1000);
	read_it(&fx, "hot", 10 * THRESHOLD);
	assert_int_equal(work(&fx), 0);
	assert_int_equal(copies_of(&fx, "hot"), 2);
	fx_check(&fx);
	fx_down(&fx);
}

static void with_tenants(struct mcm_conf *conf)
{
	enforce(conf);
	conf->enable_multi_tenants = true;
}

static uint64_t charged(struct fixture *fx)
{
	struct mcp_tenant t;

	assert_true(mcm_tenant_describe(fx->m, MCM_TENANT_DEFAULT, &t));
	return t.charged;
}

/* Reads after the pause that follows the last attempt; returns the number of copies made. */
static unsigned read_again(struct fixture *fx)
{
	fx_advance(fx, MCM_HOT_REST_MS + 1000);
	read_it(fx, "hot", THRESHOLD);
	return work(fx);
}

static void copies_are_within_the_quota(void **state)
{
	struct mcp_replica from[MCM_FETCH_MAX], to[MCM_FETCH_MAX];
	struct mcp_copy copy[MCM_FETCH_MAX];
	struct mcm_session *mover;
	struct fixture fx;
	uint64_t effective, used;

	fx_up(&fx, 2, 8 * MIB, with_tenants);
	assert_int_equal(mcm_tenant_set_quota(fx.m, fx_bytes("default"), 25000, &effective), 0);
	assert_int_equal(fx_put(&fx, "hot", 10000, 0), 0);
	assert_int_equal(fx_put(&fx, "other", 10000, 0), 0);
	used = fx_used(&fx);
	/* The quota refuses it like a put, and nothing is evicted for it, not even of this
	 * tenant. */
	assert_int_equal(read_again(&fx), 0);
	assert_int_equal(copies_of(&fx, "hot"), 1);
	assert_int_equal(copies_of(&fx, "other"), 1);
	assert_int_equal(charged(&fx), 20000);
	assert_int_equal(mcm_tenant_counts(fx.m, MCM_TENANT_DEFAULT).rejected, 1);
	assert_int_equal(fx_used(&fx), used);
	assert_int_equal(mcm_tenant_set_quota(fx.m, fx_bytes("default"), 30000, &effective), 0);
	/* The copy is charged from its begin, so that no put takes its share of the quota. */
	fx_advance(&fx, MCM_HOT_REST_MS + 1000);
	read_it(&fx, "hot", THRESHOLD);
	mcm_hot_tick(fx.m);
	mcm_tasks_tick(fx.m);
	mover = fx_session(&fx, 1);
	assert_int_equal(mcm_task_fetch(fx.m, mover, MCM_FETCH_MAX, copy, from, to, &(bool){ false }), 1);
	assert_int_equal(charged(&fx), 30000);
	/* The session that makes the copy ends, and the charge is refunded. */
	fx_session_end(&fx, mover);
	assert_int_equal(charged(&fx), 20000);
	fx_advance(&fx, 60000);
	assert_int_equal(read_again(&fx), 1);
	assert_int_equal(copies_of(&fx, "hot"), 2);
	assert_int_equal(charged(&fx), 30000);
	assert_int_equal(fx_remove(&fx, "hot", MCP_REMOVE_FORCE), 0);
	assert_int_equal(charged(&fx), 10000);
	fx_check(&fx);
	fx_down(&fx);
}

static void each_further_copy_takes_its_time(void **state)
{
	struct fixture fx;

	fx_up(&fx, 3, 8 * MIB, three_copies);
	assert_int_equal(fx_put(&fx, "hot", 10000, 0), 0);
	read_it(&fx, "hot", 5 * THRESHOLD);
	assert_int_equal(work(&fx), 1);
	read_it(&fx, "hot", 5 * THRESHOLD);
	assert_int_equal(work(&fx), 0);
	fx_advance(&fx, MCM_HOT_REST_MS + 1000);
	read_it(&fx, "hot", THRESHOLD);
	assert_int_equal(work(&fx), 1);
	assert_int_equal(copies_of(&fx, "hot"), 3);
	fx_check(&fx);
	fx_down(&fx);
}

static void a_window_that_is_over_does_not_count(void **state)
{
	struct fixture fx;

	fx_up(&fx, 2, 8 * MIB, enforce);
	assert_int_equal(fx_put(&fx, "warm", 10000, 0), 0);
	for (unsigned i = 0; i < 5; i++) {
		read_it(&fx, "warm", THRESHOLD - 1);
		assert_int_equal(work(&fx), 0);
		fx_advance(&fx, 11000);
	}
	/* Existence queries are not reads. */
	for (unsigned i = 0; i < 10 * THRESHOLD; i++)
		assert_int_equal(fx_exist(&fx, "warm", 0), 1);
	assert_int_equal(work(&fx), 0);
	fx_down(&fx);
}

/* A count belongs to a version, and a removed object is not copied. */
static void a_removed_object_is_not_copied(void **state)
{
	struct fixture fx;

	fx_up(&fx, 2, 8 * MIB, enforce);
	assert_int_equal(fx_put(&fx, "gone", 10000, 0), 0);
	assert_int_equal(fx_put(&fx, "new", 10000, 0), 0);
	read_it(&fx, "gone", THRESHOLD);
	read_it(&fx, "new", THRESHOLD);
	assert_int_equal(fx_remove(&fx, "gone", MCP_REMOVE_FORCE), 0);
	assert_int_equal(fx_put(&fx, "new", 20000, MCP_PUT_UPSERT), 0);
	assert_int_equal(work(&fx), 0);
	fx_check(&fx);
	fx_down(&fx);
}

static void one_among_many_is_found(void **state)
{
	struct fixture fx;
	char key[16];

	fx_up(&fx, 2, 64 * MIB, enforce);
	assert_int_equal(fx_put(&fx, "hot", 4096, 0), 0);
	for (unsigned i = 0; i < 20000; i++) {
		sprintf(key, "k%u", i);
		assert_int_equal(fx_put(&fx, key, 64, 0), 0);
	}
	/* Other objects are read, more of them than the table has entries. */
	for (unsigned i = 0; i < 20000; i++) {
		sprintf(key, "k%u", i);
		read_it(&fx, key, 1);
		if (i % 100 == 0)
			read_it(&fx, "hot", 1);
	}
	assert_true(work(&fx) >= 1);
	assert_int_equal(copies_of(&fx, "hot"), 2);
	fx_down(&fx);
}

static void for_a_copy_nothing_is_evicted(void **state)
{
	struct fixture fx;
	char key[16];
	unsigned n = 0;

	fx_up(&fx, 2, 4 * MIB, enforce);
	while (fx_used(&fx) < 7 * MIB + 512 * 1024) {
		sprintf(key, "k%u", n++);
		assert_int_equal(fx_put(&fx, key, 65536, 0), 0);
	}
	for (unsigned i = 0; i < n; i++) {
		sprintf(key, "k%u", i);
		read_it(&fx, key, THRESHOLD);
	}
	assert_int_equal(work(&fx), 0);
	for (unsigned i = 0; i < n; i++) {
		sprintf(key, "k%u", i);
		assert_int_equal(copies_of(&fx, key), 1);
	}
	fx_check(&fx);
	fx_down(&fx);
}

static void observing_changes_nothing(void **state)
{
	int64_t before = fx_metric("mooncake_master_hot_objects_total");
	struct fixture fx;

	fx_up(&fx, 2, 8 * MIB, observe);
	assert_int_equal(fx_put(&fx, "hot", 10000, 0), 0);
	read_it(&fx, "hot", THRESHOLD);
	assert_int_equal(work(&fx), 0);
	assert_int_equal(fx_metric("mooncake_master_hot_objects_total"), before + 1);
	fx_down(&fx);
	fx_up(&fx, 2, 8 * MIB, NULL);
	assert_false(mcm_hot_on(&fx.m->hot));
	assert_int_equal(fx_put(&fx, "hot", 10000, 0), 0);
	read_it(&fx, "hot", 10 * THRESHOLD);
	assert_int_equal(work(&fx), 0);
	fx_down(&fx);
}

static void options_that_make_no_sense(void **state)
{
	struct mc_options *owner;
	struct mcm_conf conf;

	assert_int_equal(mcm_conf_defaults(&conf, &owner), 0);
	assert_int_equal(mcm_conf_check(&conf), 0);
	conf.dynamic_replication_mode = other_mode;
	assert_int_equal(mcm_conf_check(&conf), -EINVAL);
	conf.dynamic_replication_mode = enforce_mode;
	conf.dynamic_replication_admission_qps_threshold = 0;
	assert_int_equal(mcm_conf_check(&conf), -EINVAL);
	mc_options_free(owner);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_object_read_often_gets_a_copy),
		cmocka_unit_test(copies_are_within_the_quota),
		cmocka_unit_test(each_further_copy_takes_its_time),
		cmocka_unit_test(a_window_that_is_over_does_not_count),
		cmocka_unit_test(a_removed_object_is_not_copied),
		cmocka_unit_test(one_among_many_is_found),
		cmocka_unit_test(for_a_copy_nothing_is_evicted),
		cmocka_unit_test(observing_changes_nothing),
		cmocka_unit_test(options_that_make_no_sense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
