/* SPDX-License-Identifier: Apache-2.0
 * test_client_tenant.c - tenants, groups, replicas, and equal keys in one batch, through the C
 * API. */
#include <config.h>

#include "test_client_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void tune(struct mcm_conf *conf)
{
	conf->enable_multi_tenants = true;
}

static mcs_t *store_of(const char *tenant, uint64_t segment)
{
	struct mcs_conf conf;
	mcs_t *s;

	mcs_conf_init(&conf);
	conf.master = FIXTURE_LOCAL;
	conf.tenant = tenant;
	conf.segment_size = segment;
	assert_int_equal(mcs_open(&conf, &s), 0);
	return s;
}

static void tenants_are_apart(void **state)
{
	static const struct mcs_key k = { "k", 1 };
	struct mcs_tenant *list = NULL;
	mcs_t *owner, *a, *b;
	uint8_t present;

	fixture_master(tune);
	owner = store_of(NULL, 64 * MIB);
	a = store_of("alice", 0);
	b = store_of("bob", 0);
	assert_int_equal(fixture_put(a, "k", 1000, 1, 0), -MCS_ENOTENANT);
	assert_int_equal(mcs_quota_set(owner, "alice", 8 * MIB, -1), 0);
	assert_int_equal(mcs_quota_set(owner, "bob", 8 * MIB, -1), 0);
	fixture_put_ok(a, "k", 1000, 1);
	fixture_put_ok(b, "k", 2000, 2);
	fixture_expect(a, "k", 1000, 1);
	fixture_expect(b, "k", 2000, 2);
	assert_int_equal(mcs_exist(owner, &k, 1, &present, -1), 0);
	assert_int_equal(mcs_rename(a, k, fixture_key("moved"), 0, -1), 0);
	fixture_expect(a, "moved", 1000, 1);
	fixture_expect(b, "k", 2000, 2);
	assert_int_equal(mcs_tenants(owner, NULL, &list, -1), 3);
	free(list);
	assert_int_equal(mcs_tenants(owner, "bob", &list, -1), 1);
	assert_string_equal(list->name, "bob");
	assert_int_equal(list->charged, 2000);
	assert_int_equal(list->objects, 1);
	free(list);
	assert_int_equal(mcs_tenants(owner, "carol", &list, -1), -MCS_ENOTENANT);
	assert_int_equal(fixture_put(a, "large", 9 * MIB, 1, 0), -MCS_EQUOTA);
	assert_int_equal(mcs_quota_set(owner, "bob", 0, -1), -MCS_ETENANT_BUSY);
	assert_int_equal(mcs_remove_tenant(owner, "bob", MCS_REMOVE_FORCE, -1), 1);
	assert_int_equal(mcs_quota_set(owner, "bob", 0, -1), 0);
	fixture_expect(a, "moved", 1000, 1);
	assert_int_equal(mcs_remove_tenant(owner, NULL, MCS_REMOVE_FORCE, -1), 1);
	mcs_close(a);
	mcs_close(b);
	mcs_close(owner);
	fixture_master_stop();
}

static void no_tenants_no_quotas(void **state)
{
	struct mcs_tenant *list;
	mcs_t *s;

	fixture_master(NULL);
	s = store_of("alice", 16 * MIB);
	fixture_put_ok(s, "k", 1000, 1);
	assert_int_equal(mcs_tenants(s, NULL, &list, -1), -MCS_EMODE);
	assert_int_equal(mcs_quota_set(s, "alice", 1, -1), -MCS_EMODE);
	mcs_close(s);
	s = store_of("bob", 16 * MIB);
	mcs_close(s);
	fixture_master_stop();
}

static void replicas_are_described(void **state)
{
	const struct mcs_key keys[] = { fixture_key("two"), fixture_key("none"), { NULL, 0 },
					fixture_key("empty") };
	const struct mcs_put_opts opts = {
		.replicas = 2, .flags = MCS_PUT_ALL_REPLICAS, .group = fixture_key("team"),
		.data_type = MCS_TYPE_KVCACHE, .soft_pin = MCS_SOFT_PIN_ENABLE,
		.soft_pin_ms = 60000,
	};
	const struct mcs_put_opts three = { .replicas = 3, .flags = MCS_PUT_ALL_REPLICAS };
	struct mcs_replicas r[4];
	struct iovec iov;
	char data[5000];
	mcs_t *a, *b;

	fixture_master(NULL);
	a = store_of(NULL, 16 * MIB);
	b = store_of(NULL, 16 * MIB);
	fixture_fill(data, sizeof(data), 7, 0);
	iov = (struct iovec){ data, sizeof(data) };
	assert_int_equal(mcs_put(a, fixture_key("x"), &iov, 1, &three, 500), -MCS_ENOSPACE);
	assert_int_equal(mcs_put(a, keys[0], &iov, 1, &opts, -1), 0);
	assert_int_equal(mcs_put(a, keys[3], &iov, 0, NULL, -1), 0);
	assert_int_equal(mcs_replicas(a, keys, 4, MCS_PROMISE, r, -1), 2);
	assert_int_equal(r[0].result, 0);
	assert_int_equal(r[0].n, 2);
	assert_int_equal(r[0].info.replicas, 2);
	assert_int_equal(r[0].info.data_type, MCS_TYPE_KVCACHE);
	assert_in_range(r[0].info.soft_pin_ms, 50000, 60100);
	assert_int_equal(r[0].group.len, 4);
	assert_memory_equal(r[0].group.data, "team", 4);
	for (int i = 0; i < 2; i++) {
		assert_true(r[0].replica[i].readable);
		assert_string_equal(r[0].replica[i].state, "ok");
		assert_int_equal(r[0].replica[i].size, sizeof(data));
		assert_true(r[0].replica[i].address != 0);
	}
	assert_string_not_equal(r[0].replica[0].segment, r[0].replica[1].segment);
	assert_int_equal(r[1].result, -MCS_ENOOBJECT);
	assert_int_equal(r[2].result, -MCS_EKEY);
	assert_int_equal(r[3].result, 0);
	assert_int_equal(r[3].n, 0);
	assert_int_equal(r[3].group.len, 0);
	mcs_replicas_free(r, 4);
	assert_int_equal(mcs_remove(a, keys[0], 0, -1), -MCS_ELEASED);
	/* The other copy is read after one owner has closed. */
	mcs_close(b);
	fixture_expect(a, "two", sizeof(data), 7);
	mcs_close(a);
	fixture_master_stop();
}

static void twins_in_a_batch(void **state)
{
	static const unsigned flags[] = { 0, MCS_PUT_LAST, MCS_PUT_UPSERT,
					  MCS_PUT_UPSERT | MCS_PUT_LAST };
	struct mcs_put_item item[5];
	struct iovec iov[5];
	char data[5][4000], name[8];
	mcs_t *s;

	fixture_master(NULL);
	s = store_of(NULL, 16 * MIB);
	for (unsigned f = 0; f < 4; f++) {
		struct mcs_put_opts opts = { .flags = flags[f] };

		snprintf(name, sizeof(name), "k%u", f);
		for (unsigned i = 0; i < 5; i++) {
			fixture_fill(data[i], sizeof(data[i]), 10 * f + i, 0);
			iov[i] = (struct iovec){ data[i], sizeof(data[i]) };
			item[i] = (struct mcs_put_item){
				.key = fixture_key(i == 2 ? "other" : name), .iov = &iov[i],
				.iovcnt = 1, .result = -1,
			};
		}
		assert_int_equal(mcs_put_batch(s, item, 5, &opts, -1), 5);
		for (unsigned i = 0; i < 5; i++)
			assert_int_equal(item[i].result, 0);
		fixture_expect(s, name, sizeof(data[0]), 10 * f + (flags[f] & MCS_PUT_LAST ? 4 : 0));
	}
	/* The other items with the key have the result of the first one. */
	item[4].iovcnt = -1;
	assert_int_equal(mcs_put_batch(s, item, 5, &(struct mcs_put_opts){
			 .flags = MCS_PUT_LAST | MCS_PUT_UPSERT }, -1), 1);
	assert_true(item[0].result < 0 && item[0].result == item[4].result);
	assert_int_equal(item[2].result, 0);
	assert_int_equal(mcs_upsert(s, fixture_key("other"), &iov[3], 1, NULL, -1), 0);
	fixture_expect(s, "other", sizeof(data[3]), 33);
	mcs_close(s);
	fixture_master_stop();
}

static void matching_keys_are_removed_in_parts(void **state)
{
	enum { N = 20000 };
	struct mcs_put_item *item = calloc(N, sizeof(*item));
	char (*name)[16] = calloc(N, sizeof(*name));
	static const struct mcs_key all;
	char x = 1;
	struct iovec iov = { &x, 1 };
	mcs_t *s;

	fixture_master(NULL);
	s = store_of(NULL, 16 * MIB);
	for (int i = 0; i < N; i++) {
		snprintf(name[i], sizeof(name[i]), "%s-%d", i % 2 ? "odd" : "even", i);
		item[i] = (struct mcs_put_item){
			.key = fixture_key(name[i]), .iov = &iov, .iovcnt = 1,
		};
	}
	assert_int_equal(mcs_put_batch(s, item, N, NULL, -1), N);
	assert_int_equal(mcs_remove_match(s, all, "^odd", 0, -1), N / 2);
	assert_int_equal(mcs_remove_match(s, fixture_key("even-1"), NULL, 0, -1) +
			 mcs_remove_match(s, all, NULL, 0, -1), N / 2);
	assert_true(mcs_remove_match(s, all, "(", 0, -1) < 0);
	mcs_close(s);
	fixture_master_stop();
	free(item);
	free(name);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tenants_are_apart),
		cmocka_unit_test(no_tenants_no_quotas),
		cmocka_unit_test(replicas_are_described),
		cmocka_unit_test(twins_in_a_batch),
		cmocka_unit_test(matching_keys_are_removed_in_parts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
