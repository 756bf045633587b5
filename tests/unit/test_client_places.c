/* SPDX-License-Identifier: Apache-2.0
 * test_client_places.c - probes without leases, places that are read several times, and the variables MC_STORE_*. */
#include <config.h>

#include "test_client_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/metrics.h"

#define LEASE_MS 400

static void tune(struct mcm_conf *conf)
{
	conf->default_kv_lease_ttl = LEASE_MS;
}

static void pass(unsigned ms)
{
	const struct timespec t = { ms / 1000, (long)(ms % 1000) * 1000000 };

	nanosleep(&t, NULL);
}

static int64_t counter(const char *name, const char *labels)
{
	int64_t v;

	assert_int_equal(mc_metrics_lookup(name, labels, &v), 0);
	return v;
}

static void a_probe_leases_nothing(void **state)
{
	const struct mcs_key keys[] = { fixture_key("a"), fixture_key("gone"), { "", 0 }, fixture_key("b") };
	uint8_t present[4] = { 9, 9, 9, 9 };
	mcs_t *s;

	fixture_master(tune);
	s = fixture_store(16 * MIB);
	fixture_put_ok(s, "a", 1000, 1);
	fixture_put_ok(s, "b", 1000, 1);
	assert_int_equal(mcs_probe(s, keys, 4, present, -1), 2);
	assert_memory_equal(present, "\1\0\0\1", 4);
	assert_int_equal(mcs_remove(s, keys[0], 0, -1), 0);
	assert_int_equal(mcs_probe(s, keys, 4, present, -1), 1);
	assert_int_equal(mcs_exist(s, keys + 3, 1, present, -1), 1);
	assert_int_equal(mcs_remove(s, keys[3], 0, -1), -MCS_ELEASED);
	assert_int_equal(mcs_probe(s, NULL, 0, NULL, -1), 0);
	mcs_close(s);
	fixture_master_stop();
}

/* Read 10 bytes from @offset of @key. */
static int64_t read_ten(mcs_t *s, mcs_places_t *p, const char *key, uint64_t offset, unsigned char *buf)
{
	struct iovec iov = { buf, 10 };
	struct mcs_get_item item = { .key = fixture_key(key), .offset = offset, .iov = &iov, .iovcnt = 1 };
	int r = mcs_places_read(s, p, &item, 1, -1);

	assert_true(r == (item.result >= 0) || r == item.result);
	return item.result;
}

static void places_keep_the_version_for_half_the_lease(void **state)
{
	const struct mcs_key keys[] = { fixture_key("b"), fixture_key("a"), fixture_key("a"), fixture_key("gone"),
		{ "", 0 } };
	unsigned char buf[10];
	mcs_places_t *p;
	mcs_t *s, *other;

	fixture_master(tune);
	s = fixture_store(16 * MIB);
	other = fixture_store(0);
	fixture_put_ok(s, "a", 200000, 1);
	fixture_put_ok(s, "b", 100, 2);
	assert_int_equal(mcs_places_find(s, keys, 5, &p, -1), 0);
	assert_int_equal(mcs_remove(s, keys[0], 0, -1), -MCS_ELEASED);
	assert_int_equal(read_ten(s, p, "a", 150000, buf), 10);
	assert_true(fixture_same(buf, 10, 1, 150000));
	assert_int_equal(read_ten(s, p, "b", 95, buf), 5);
	assert_int_equal(read_ten(s, p, "gone", 0, buf), -MCS_ENOOBJECT);
	assert_int_equal(read_ten(s, p, "c", 0, buf), -MCS_EPARAM);
	assert_int_equal(read_ten(other, p, "a", 0, buf), -MCS_EPARAM);
	pass(LEASE_MS * 3 / 2);
	/* The lease has ended, so this version may go, and its memory may get other bytes. */
	assert_int_equal(fixture_put(s, "a", 200000, 3, MCS_PUT_UPSERT), 0);
	assert_int_equal(mcs_remove(s, keys[0], 0, -1), 0);
	fixture_put_ok(s, "c", 100, 4);
	assert_int_equal(read_ten(s, p, "a", 150000, buf), 10);
	assert_true(fixture_same(buf, 10, 3, 150000));
	assert_int_equal(read_ten(s, p, "b", 0, buf), -MCS_ENOOBJECT);
	mcs_close(other);
	mcs_close(s);
	mcs_places_free(p);
	fixture_master_stop();
}

static void places_of_a_removed_version_never_give_other_bytes(void **state)
{
	const struct mcs_key key = fixture_key("a");
	unsigned char buf[10];
	mcs_places_t *p;
	mcs_t *s;
	int64_t r;

	fixture_master(tune);
	s = fixture_store(16 * MIB);
	for (unsigned i = 0; i < 20; i++) {
		fixture_put_ok(s, "a", 100, 10);
		assert_int_equal(mcs_places_find(s, &key, 1, &p, -1), 0);
		assert_int_equal(mcs_remove(s, key, MCS_REMOVE_FORCE, -1), 0);
		fixture_put_ok(s, "b", 100, 11);
		r = read_ten(s, p, "a", 0, buf);
		assert_true(r == -MCS_ENOOBJECT || (r == 10 && fixture_same(buf, 10, 10, 0)));
		mcs_places_free(p);
		assert_int_equal(mcs_remove(s, fixture_key("b"), MCS_REMOVE_FORCE, -1), 0);
	}
	mcs_close(s);
	fixture_master_stop();
}

static int port_of(mcs_t *s)
{
	return atoi(strrchr(mcs_hostname(s), ':') + 1);
}

static void the_port_is_in_the_range(void **state)
{
	mcs_t *s, *t;

	fixture_master(NULL);
	s = fixture_store(0);
	assert_in_range(port_of(s), 12300, 14300);
	mcs_close(s);
	setenv("MC_STORE_CLIENT_MIN_PORT", "17200", 1);
	setenv("MC_STORE_CLIENT_MAX_PORT", "17209", 1);
	s = fixture_store(0);
	t = fixture_store(0);
	assert_in_range(port_of(s), 17200, 17209);
	assert_in_range(port_of(t), 17200, 17209);
	assert_int_not_equal(port_of(s), port_of(t));
	mcs_close(t);
	mcs_close(s);
	/* ports of outgoing connections: the default range instead */
	setenv("MC_STORE_CLIENT_MIN_PORT", "40000", 1);
	setenv("MC_STORE_CLIENT_MAX_PORT", "40010", 1);
	s = fixture_store(0);
	assert_in_range(port_of(s), 12300, 14300);
	mcs_close(s);
	unsetenv("MC_STORE_CLIENT_MIN_PORT");
	unsetenv("MC_STORE_CLIENT_MAX_PORT");
	fixture_master_stop();
}

static void memcpy_can_be_turned_off(void **state)
{
	mcs_t *s;

	fixture_master(NULL);
	setenv("MC_STORE_MEMCPY", "0", 1);
	s = fixture_store(16 * MIB);
	fixture_put_ok(s, "far", 100000, 1);
	fixture_expect(s, "far", 100000, 1);
	assert_true(counter("mooncake_transfer_bytes_total", "path=\"tcp\",op=\"read\"") >= 100000);
	mcs_close(s);
	unsetenv("MC_STORE_MEMCPY");
	fixture_master_stop();
}

static void huge_pages_are_a_wish(void **state)
{
	mcs_t *s;

	fixture_master(NULL);
	setenv("MC_STORE_USE_HUGEPAGE", "1", 1);
	s = fixture_store(16 * MIB);
	fixture_put_ok(s, "huge", 100000, 1);
	fixture_expect(s, "huge", 100000, 1);
	mcs_close(s);
	unsetenv("MC_STORE_USE_HUGEPAGE");
	fixture_master_stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_probe_leases_nothing),
		cmocka_unit_test(places_keep_the_version_for_half_the_lease),
		cmocka_unit_test(places_of_a_removed_version_never_give_other_bytes),
		cmocka_unit_test(the_port_is_in_the_range),
		cmocka_unit_test(memcpy_can_be_turned_off),
		cmocka_unit_test(huge_pages_are_a_wish),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
