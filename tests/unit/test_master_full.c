/* SPDX-License-Identifier: Apache-2.0
 * A full pool in which most objects, or all, have leases or are pinned: a put needs few searches, with any number of
 * segments, and finds each object that has become evictable. */
#include <config.h>

#include "test_master_fixture.h"

#include <stdio.h>
#include <string.h>

#include "proto/rpc_server.h"

#define BLOCK 4096u
#define OBJECTS 1920u		/* divisible by all numbers of segments */
#define PUTS 600u

static char policy_name[16];
static bool soft_may_go = true;

static void tune(struct mcm_conf *conf)
{
	conf->eviction_high_watermark_ratio = 1.0;
	conf->client_ttl = 3600 * 1000;
	conf->eviction_policy = policy_name;
	conf->allow_evict_soft_pinned_objects = soft_may_go;
}

static void up(struct fixture *fx, const char *policy, unsigned segments)
{
	snprintf(policy_name, sizeof(policy_name), "%s", policy);
	fx_up(fx, segments, OBJECTS / segments * BLOCK, tune);
}

static const char *key_of(unsigned i)
{
	static char key[32];

	snprintf(key, sizeof(key), "key-%u", i);
	return key;
}

static void fill(struct fixture *fx, uint32_t flags)
{
	for (unsigned i = 0; i < OBJECTS; i++)
		assert_int_equal(fx_put(fx, key_of(i), BLOCK, flags), 0);
	assert_int_equal(fx_used(fx), OBJECTS * BLOCK);
}

/* Returns the number of objects without a lease that are not recent: recent are the last eighth of the puts. */
static unsigned lease(struct fixture *fx, unsigned percent)
{
	unsigned without = 0;

	for (unsigned i = 0; i < OBJECTS; i++)
		if (i * 37 % 100 < percent)
			assert_int_equal(fx_exist(fx, key_of(i), 0), 1);
		else
			without += i < OBJECTS - OBJECTS / 8 - 2;
	return without;
}

static int64_t searches(void)
{
	return fx_metric("master_attempted_evictions_total");
}

static int64_t broken(void)
{
	return fx_metric("mooncake_master_promises_broken_total");
}

/* Before the fix: up to 15 searches of a put per segment and level. */
static void leased_share(const char *policy, unsigned segments, unsigned percent)
{
	int64_t before, promises;
	struct fixture fx;
	unsigned free;

	up(&fx, policy, segments);
	fill(&fx, 0);
	/* Nothing is recent any more. */
	fx_advance(&fx, 2000);
	free = lease(&fx, percent);
	before = searches();
	promises = broken();
	for (unsigned i = 0; i < PUTS; i++) {
		assert_int_equal(fx_put(&fx, key_of(OBJECTS + i), BLOCK, 0), 0);
		/* No promise is broken while an object without one is evictable. */
		if (i < free && broken() != promises)
			fail_msg("%s, %u segments, %u %% leased: put %u of %u broke a promise", policy, segments,
				 percent, i, free);
		if (i % 50 == 49)
			fx_advance(&fx, 10);
	}
	if (searches() - before > PUTS * 4)
		fail_msg("%s, %u segments, %u %% leased: %lld searches for %u puts", policy, segments, percent,
			 (long long)(searches() - before), PUTS);
	fx_down(&fx);
}

static void a_put_needs_few_searches_whatever_is_leased(void **state)
{
	static const char *const policy[] = { "learn", "lru", "fifo" };
	static const unsigned segments[] = { 1, 8, 96 }, percent[] = { 0, 50, 90, 99, 100 };

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		for (unsigned j = 0; j < 3; j++)
			for (unsigned k = 0; k < 5; k++)
				leased_share(policy[i], segments[j], percent[k]);
}

static void nothing_evictable(const char *policy, unsigned segments, bool hard)
{
	static struct mcp_object o[OBJECTS];
	struct fixture fx;
	int64_t before;

	up(&fx, policy, segments);
	fill(&fx, hard ? MCP_PUT_HARD_PIN : 0);
	for (unsigned i = 0; !hard && i < OBJECTS; i++)
		assert_int_equal(fx_pin(&fx, fx.s, key_of(i), MCP_GET_HOLD, &o[i], NULL), 0);
	/* The first one finds out. */
	assert_int_equal(fx_put(&fx, "first", BLOCK, 0), -MC_ENOSPACE);
	before = searches();
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(fx_put(&fx, "next", BLOCK, 0), -MC_ENOSPACE);
	assert_int_equal(searches(), before);
	/* One object that becomes evictable is found at once. */
	if (hard) {
		assert_int_equal(fx_remove(&fx, key_of(7), MCP_REMOVE_FORCE), 0);
		assert_int_equal(fx_put(&fx, "evictable", BLOCK, 0), 0);
	} else {
		fx_release(&fx, fx.s, o[7].pin);
	}
	assert_int_equal(fx_put(&fx, "next", BLOCK, 0), 0);
	assert_int_equal(fx_exist(&fx, hard ? "evictable" : key_of(7), MCP_EXIST_PEEK), 0);
	fx_down(&fx);
}

static void a_put_that_finds_nothing_fails_without_a_search(void **state)
{
	static const char *const policy[] = { "learn", "lru", "fifo" };

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		for (unsigned segments = 1; segments <= 96; segments *= 96) {
			nothing_evictable(policy[i], segments, true);
			nothing_evictable(policy[i], segments, false);
		}
}

/* Leases that have ended are seen before others are broken. */
static void the_end_of_leases_is_noticed(void **state)
{
	static const char *const policy[] = { "learn", "lru", "fifo" };
	struct fixture fx;
	int64_t promises;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		up(&fx, policy[i], 8);
		fill(&fx, 0);
		fx_advance(&fx, 2000);
		lease(&fx, 100);
		for (unsigned k = 0; k < 100; k++)
			assert_int_equal(fx_put(&fx, key_of(OBJECTS + k), BLOCK, 0), 0);
		assert_true(broken() > 0);
		fx_advance(&fx, fx.conf.default_kv_lease_ttl + 1000);
		promises = broken();
		/* Leases of the last objects only. */
		for (unsigned k = 0; k < 100; k++)
			(void)fx_exist(&fx, key_of(OBJECTS + k), 0);
		for (unsigned k = 0; k < OBJECTS / 2; k++)
			assert_int_equal(fx_put(&fx, key_of(2 * OBJECTS + k), BLOCK, 0), 0);
		assert_int_equal(broken(), promises);
		fx_down(&fx);
	}
}

/* Soft pins that must not be evicted, of different lengths: each is noticed when it ends. */
static void the_end_of_soft_pins_is_noticed(void **state)
{
	struct mcm_put_request rq = { .copies = 1, .flags = MCP_PUT_SOFT_PIN, .soft_pin = MCP_SOFT_PIN_ENABLE };
	struct mcm_put_granted granted;
	struct mcp_put_item item = { .size = BLOCK };
	unsigned ended = 0, puts = 0;
	struct fixture fx;

	(void)state;
	soft_may_go = false;
	up(&fx, "lru", 1);
	for (unsigned i = 0; i < OBJECTS; i++) {
		item.key = fx_bytes(key_of(i));
		/* The first ones of the list end last. */
		rq.soft_ms = 1000 * (OBJECTS - i);
		assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &item, &granted), 0);
		assert_int_equal(fx_end(&fx, key_of(i), granted.generation), 0);
	}
	assert_int_equal(fx_put(&fx, "early", BLOCK, 0), -MC_ENOSPACE);
	for (unsigned i = 0; i < 20; i++) {
		unsigned gone = 0;

		fx_advance(&fx, 1000);
		ended += 1000;
		/* Two may end in the same tick, or one a tick later. */
		if (fx_put(&fx, key_of(OBJECTS + i), BLOCK, MCP_PUT_HARD_PIN) == 0)
			puts++;
		for (unsigned k = 0; k < OBJECTS; k++) {
			bool present = fx_exist(&fx, key_of(k), MCP_EXIST_PEEK);

			gone += !present;
			assert_true(present || ended >= 1000 * (OBJECTS - k));
		}
		assert_int_equal(gone, puts);
		assert_true(puts + 1 >= i);
	}
	fx_down(&fx);
	soft_may_go = true;
}

/* A segment whose owner was away is evicted from again when the owner is back. */
static void a_segment_that_returns_is_searched_again(void **state)
{
	struct mcp_mount_reply reply;
	struct mcm_session *other;
	struct fixture fx;
	uint64_t evicted;

	(void)state;
	up(&fx, "lru", 1);
	other = fx_session(&fx, 2);
	assert_int_equal(fx_mount(&fx, 2, 77, 1, 64 * BLOCK, &reply), 0);
	for (unsigned i = 0; i < OBJECTS + 64; i++)
		assert_int_equal(fx_put(&fx, key_of(i), BLOCK, 0), 0);
	fx_session_end(&fx, other);
	for (unsigned i = 0; i < 50; i++)
		assert_int_equal(fx_put(&fx, key_of(10000 + i), BLOCK, MCP_PUT_HARD_PIN), 0);
	other = fx_session(&fx, 2);
	assert_int_equal(fx_mount(&fx, 2, 77, 1, 64 * BLOCK, &reply), 0);
	assert_true(reply.reattached);
	evicted = 0;
	for (unsigned i = 0; i < OBJECTS + 64 - 50; i++)
		evicted += fx_put(&fx, key_of(20000 + i), BLOCK, MCP_PUT_HARD_PIN) == 0;
	assert_int_equal(evicted, OBJECTS + 64 - 50);
	assert_int_equal(fx_put(&fx, "more", BLOCK, 0), -MC_ENOSPACE);
	fx_session_end(&fx, other);
	fx_down(&fx);
}

/* The only free space is on one of many segments without anything evictable. */
static void free_space_is_found_on_any_segment(void **state)
{
	struct fixture fx;

	(void)state;
	up(&fx, "learn", 320);
	for (unsigned i = 0; i < OBJECTS; i++)
		assert_int_equal(fx_put(&fx, key_of(i), BLOCK, MCP_PUT_HARD_PIN), 0);
	for (unsigned i = 0; i < 200; i++) {
		assert_int_equal(fx_remove(&fx, key_of(i), MCP_REMOVE_FORCE), 0);
		assert_int_equal(fx_put(&fx, key_of(OBJECTS + i), BLOCK, MCP_PUT_HARD_PIN), 0);
	}
	fx_down(&fx);
}

/* Leases that have ended are found behind many that were renewed. */
static void renewed_leases_hide_no_ended_ones(void **state)
{
	struct fixture fx;
	int64_t promises;

	(void)state;
	up(&fx, "lru", 1);
	fill(&fx, 0);
	fx_advance(&fx, 2000);
	lease(&fx, 100);
	/* A search moves all of them to the wheel. */
	assert_int_equal(fx_put(&fx, "one", BLOCK, 0), 0);
	fx_advance(&fx, 1000);
	for (unsigned i = 0; i < 1500; i++)
		(void)fx_exist(&fx, key_of(i), 0);
	fx_advance(&fx, fx.conf.default_kv_lease_ttl - 400);
	promises = broken();
	for (unsigned k = 0; k < 20; k++)
		assert_int_equal(fx_put(&fx, key_of(OBJECTS + k), BLOCK, 0), 0);
	assert_int_equal(broken(), promises);
	fx_down(&fx);
}

static int put_soft(struct fixture *fx, const char *key, uint32_t ms)
{
	struct mcm_put_request rq = {
		.copies = 1, .flags = MCP_PUT_SOFT_PIN, .soft_pin = MCP_SOFT_PIN_ENABLE, .soft_ms = ms
	};
	struct mcp_put_item item = { .size = BLOCK, .key = fx_bytes(key) };
	struct mcm_put_granted granted;
	int r = mcm_put_start(fx->m, fx->s, &rq, &item, &granted);

	return r ? r : fx_end(fx, key, granted.generation);
}

/* A soft pin that is given during a walk over all of them. */
static void a_soft_pin_behind_a_walk_is_noticed(void **state)
{
	struct fixture fx;

	(void)state;
	soft_may_go = false;
	up(&fx, "lru", 1);
	for (unsigned i = 0; i < OBJECTS; i++)
		assert_int_equal(put_soft(&fx, key_of(i), i == 500 ? 1000 : 3600 * 1000), 0);
	fx_advance(&fx, 2000);
	assert_int_equal(put_soft(&fx, "short", 10 * 1000), 0);
	assert_int_equal(fx_exist(&fx, key_of(500), MCP_EXIST_PEEK), 0);
	fx_advance(&fx, 1000);
	assert_int_equal(fx_put(&fx, "early", BLOCK, 0), -MC_ENOSPACE);
	fx_advance(&fx, 15000);
	assert_int_equal(fx_put(&fx, "late", BLOCK, 0), 0);
	assert_int_equal(fx_exist(&fx, "short", MCP_EXIST_PEEK), 0);
	soft_may_go = true;
	fx_down(&fx);
}

/* A large put among small objects makes progress from slice to slice. */
static void a_large_put_ends(void **state)
{
	struct mcm_put_request rq = { .copies = 1 };
	struct mcp_put_item item = { .size = 64 * BLOCK, .key = fx_bytes("large") };
	struct mcm_put_granted granted;
	unsigned slices = 0;
	struct fixture fx;
	int r;

	(void)state;
	snprintf(policy_name, sizeof(policy_name), "lru");
	fx_up(&fx, 20, 80 * BLOCK, tune);
	for (unsigned i = 0; fx_used(&fx) + 512 <= 20 * 80 * BLOCK; i++)
		assert_int_equal(fx_put(&fx, key_of(i), 512, 0), 0);
	fx_advance(&fx, 2000);
	for (unsigned i = 0; i < 20 * 80 * BLOCK / 512; i++)
		(void)fx_exist(&fx, key_of(i), 0);
	do {
		/* Each slice is over as soon as it may end. */
		rq.slice.end_ns = 1;
		r = mcm_put_start(fx.m, fx.s, &rq, &item, &granted);
	} while (r == MCP_AGAIN && ++slices < 1000);
	assert_int_equal(r, 0);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_put_needs_few_searches_whatever_is_leased),
		cmocka_unit_test(a_put_that_finds_nothing_fails_without_a_search),
		cmocka_unit_test(the_end_of_leases_is_noticed),
		cmocka_unit_test(the_end_of_soft_pins_is_noticed),
		cmocka_unit_test(a_segment_that_returns_is_searched_again),
		cmocka_unit_test(free_space_is_found_on_any_segment),
		cmocka_unit_test(renewed_leases_hide_no_ended_ones),
		cmocka_unit_test(a_soft_pin_behind_a_walk_is_noticed),
		cmocka_unit_test(a_large_put_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
