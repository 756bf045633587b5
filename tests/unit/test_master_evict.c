/* SPDX-License-Identifier: Apache-2.0
 * Eviction: which objects are evicted, which stay, and that a put fails only when no object is
 * evictable. */
#include <config.h>

#include "common/sys/lock.h"
#include "test_master_fixture.h"

#include "proto/rpc_server.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#define MIB (1u << 20)
#define KIB 1024u

/* Inline eviction only, so that each effect is that of the put. */
static void no_background(struct mcm_conf *conf)
{
	conf->eviction_high_watermark_ratio = 1.0;
	conf->client_ttl = 3600 * 1000;
}

static void strict_order(struct mcm_conf *conf)
{
	static char lru[] = "lru";

	no_background(conf);
	conf->eviction_policy = lru;
}

static const char *key_of(char *buf, unsigned i)
{
	sprintf(buf, "key-%u", i);
	return buf;
}

/* Fill a segment of 1 MiB with 256 objects of 4 KiB, key-0 the oldest. */
static void fill(struct fixture *fx, uint32_t flags)
{
	char key[32];
	unsigned i;

	for (i = 0; i < 256; i++)
		assert_int_equal(fx_put(fx, key_of(key, i), 4 * KIB, flags), 0);
	assert_int_equal(fx_used(fx), MIB);
}

static unsigned present(struct fixture *fx)
{
	unsigned i, n = 0;
	char key[32];

	for (i = 0; i < 256; i++)
		n += fx_exist(fx, key_of(key, i), MCP_EXIST_PEEK);
	return n;
}

static void test_oldest_first(void **state)
{
	struct mcp_object o;
	struct fixture fx;
	char key[32];

	(void)state;
	fx_up(&fx, 1, MIB, strict_order);
	fill(&fx, 0);
	/* A read gives a second chance, a stat does not. */
	assert_int_equal(fx_pin(&fx, fx.s, "key-0", MCP_GET_LEASE, &o, NULL), 0);
	fx_release(&fx, fx.s, o.pin);
	assert_int_equal(fx_stat(&fx, "key-1", NULL), 0);
	assert_int_equal(fx_put(&fx, "new", 12 * KIB, 0), 0);
	assert_int_equal(fx_exist(&fx, "key-0", MCP_EXIST_PEEK), 1);
	assert_int_equal(fx_exist(&fx, key_of(key, 1), MCP_EXIST_PEEK), 0);
	assert_int_equal(fx_exist(&fx, key_of(key, 2), MCP_EXIST_PEEK), 0);
	assert_int_equal(fx_exist(&fx, key_of(key, 3), MCP_EXIST_PEEK), 0);
	assert_int_equal(fx_exist(&fx, key_of(key, 4), MCP_EXIST_PEEK), 1);
	assert_int_equal(present(&fx), 253);
	fx_down(&fx);
}

static void test_pinned_stay(void **state)
{
	struct mcp_object o[256];
	struct fixture fx;
	char key[32];
	unsigned i;

	(void)state;
	fx_up(&fx, 1, MIB, strict_order);
	fill(&fx, 0);
	for (i = 0; i < 256; i++)
		assert_int_equal(fx_pin(&fx, fx.s, key_of(key, i), MCP_GET_LEASE, &o[i], NULL), 0);
	assert_int_equal(fx_put(&fx, "new", 4 * KIB, 0), -MC_ENOSPACE);
	assert_int_equal(present(&fx), 256);
	/* One released pin is enough, although the evictor took all ranges off its lists. */
	fx_release(&fx, fx.s, o[100].pin);
	assert_int_equal(fx_put(&fx, "new", 4 * KIB, 0), 0);
	assert_int_equal(fx_exist(&fx, key_of(key, 100), MCP_EXIST_PEEK), 0);
	assert_int_equal(fx_put(&fx, "new2", 4 * KIB, 0), 0);
	assert_int_equal(fx_exist(&fx, "new", MCP_EXIST_PEEK), 0);
	/* Leases that are not released expire. */
	fx_advance(&fx, fx.conf.default_kv_lease_ttl + 2 * mcm_tick_ms(fx.m));
	for (i = 0; i < 256; i++)
		assert_int_equal(fx_put(&fx, key_of(key, 1000 + i), 4 * KIB, 0), 0);
	/* All objects had been read, so old and new ones are mixed after their second chances. */
	assert_in_range(present(&fx), 0, 32);
	fx_down(&fx);
}

/* The copies of an object are in several segments, whose evictors run at the same time: one has
 * taken a range off its list, the other one finds that the last reader has just ended, and the
 * reader checks the mark only then. */
static void test_two_evictors_and_a_reader(void **state)
{
	const struct mcm_range *range;
	struct mcm_object *obj;
	struct mcm_shard *sh;
	struct mcp_object o;
	struct fixture fx;
	uint32_t hash;

	(void)state;
	fx_up(&fx, 1, 64 * KIB, no_background);
	assert_int_equal(fx_put(&fx, "a", 64 * KIB, 0), 0);
	hash = mcm_index_hash(&fx.m->index, "a", 1);
	sh = mcm_index_shard(&fx.m->index, hash);
	obj = mcm_object(&fx.m->index, mcm_shard_find(&fx.m->index, sh, hash, "a", 1));
	assert_int_equal(fx_pin(&fx, fx.s, "a", MCP_GET_HOLD, &o, NULL), 0);
	assert_int_equal(fx_put(&fx, "b", 4 * KIB, 0), -MC_ENOSPACE);
	range = mcm_range(&mcm_segment(&fx.m->segments, obj->segment)->alloc, obj->range);
	assert_false(range->flags & MCM_RANGE_LISTED);
	/* Between the two steps of mcm_object_unpin(). */
	obj->pins = 0;
	assert_false(mcm_object_park(obj));
	obj->pins = 1;
	fx_release(&fx, fx.s, o.pin);
	assert_true(range->flags & MCM_RANGE_LISTED);
	fx_down(&fx);
}

/* A late release by an ended connection does not drop a pin of another connection. */
static void test_pins_of_other_connections(void **state)
{
	uint64_t seen[64];
	struct mcp_object o;
	struct fixture fx;
	unsigned i, k;

	(void)state;
	fx_up(&fx, 1, MIB, no_background);
	assert_int_equal(fx_put(&fx, "a", 4 * KIB, 0), 0);
	for (i = 0; i < 64; i++) {
		/* Its memory is mostly that of the ended session. */
		struct mcm_session *s = fx_session(&fx, 2);

		assert_int_equal(fx_pin(&fx, s, "a", MCP_GET_HOLD, &o, NULL), 0);
		for (k = 0; k < i; k++) {
			assert_true(seen[k] != o.pin);
			fx_release(&fx, s, seen[k]);
		}
		seen[i] = o.pin;
		assert_int_equal(fx_remove(&fx, "a", 0), -MC_ELEASED);
		fx_session_end(&fx, s);
	}
	fx_down(&fx);
}

static void test_renewed(void **state)
{
	struct mcp_object o;
	struct fixture fx;
	unsigned i;

	(void)state;
	fx_up(&fx, 1, 64 * KIB, no_background);
	assert_int_equal(fx_put(&fx, "a", 64 * KIB, 0), 0);
	assert_int_equal(fx_pin(&fx, fx.s, "a", MCP_GET_LEASE, &o, NULL), 0);
	for (i = 0; i < 5; i++) {
		fx_advance(&fx, fx.conf.default_kv_lease_ttl / 2);
		mc_mutex_lock(&fx.s->lock);
		mcm_pin_renew(fx.m, fx.s, o.pin);
		mc_mutex_unlock(&fx.s->lock);
		assert_int_equal(fx_put(&fx, "b", 4 * KIB, 0), -MC_ENOSPACE);
	}
	fx_advance(&fx, fx.conf.default_kv_lease_ttl + 2 * mcm_tick_ms(fx.m));
	assert_int_equal(fx_put(&fx, "b", 4 * KIB, 0), 0);
	/* The pin is unknown now: the release has no effect. */
	fx_release(&fx, fx.s, o.pin);
	fx_down(&fx);
}

static void *expire(void *arg)
{
	struct fixture *fx = arg;

	while (mcm_pins_tick(fx->m))
		;
	return NULL;
}

/* With any number of leases, no session waits for the end of all of them. */
static void leases_end_some_at_a_time(void **state)
{
	static const char *const pins = "mooncake_master_pins";
	pthread_t monitor, leaver;
	struct mcm_shard *sh;
	struct mcp_object o;
	struct fixture fx;
	struct fx_ending e;
	int64_t before;
	uint64_t ms;
	unsigned i;

	(void)state;
	fx_up(&fx, 1, 64 * KIB, no_background);
	e = (struct fx_ending){ &fx, fx_session(&fx, 2) };
	before = fx_metric(pins);
	assert_int_equal(fx_put(&fx, "a", 64 * KIB, 0), 0);
	for (i = 0; i < 2500; i++)
		assert_int_equal(fx_pin(&fx, fx.s, "a", MCP_GET_LEASE, &o, NULL), 0);
	for (i = 0; i < 1500; i++)
		assert_int_equal(fx_pin(&fx, e.s, "a", MCP_GET_LEASE, &o, NULL), 0);
	for (ms = 0; ms <= fx.conf.default_kv_lease_ttl; ms += mcm_tick_ms(fx.m)) {
		mc_clock_advance(mcm_tick_ms(fx.m) * MC_NS_PER_MS);
		mcm_clock_tick(fx.m);
	}
	assert_true(mcm_pins_tick(fx.m));
	assert_int_equal(fx_metric(pins) - before, 1500 + 500);

	/* The monitor stops in the middle of one session, then of the other one, which ends. */
	sh = mcm_index_shard(&fx.m->index, mcm_index_hash(&fx.m->index, "a", 1));
	mc_mutex_lock(&sh->lock);
	assert_int_equal(pthread_create(&monitor, NULL, expire, &fx), 0);
	while (fx_metric(pins) - before == 1500 + 500)
		sched_yield();
	assert_int_equal(mc_mutex_trylock(&fx.m->sessions_lock), 0);
	mc_mutex_unlock(&fx.m->sessions_lock);
	assert_int_equal(pthread_create(&leaver, NULL, fx_session_ends, &e), 0);
	mc_mutex_unlock(&sh->lock);
	pthread_join(monitor, NULL);
	pthread_join(leaver, NULL);
	assert_int_equal(fx_metric(pins), before);
	assert_int_equal(fx_put(&fx, "b", 4 * KIB, 0), 0);
	fx_down(&fx);
}

static void test_hard_pins_stay(void **state)
{
	struct mcp_put_item item = { .size = 4 * KIB, .kind = MCP_KIND_SYMLINK };
	struct mcm_put_request rq = { .copies = 1 };
	struct mcm_put_granted g;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, no_background);
	fill(&fx, MCP_PUT_HARD_PIN);
	assert_int_equal(fx_put(&fx, "new", 4 * KIB, 0), -MC_ENOSPACE);
	assert_int_equal(fx_remove(&fx, "key-7", 0), 0);
	item.key = fx_bytes("link");
	assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &item, &g), 0);
	assert_int_equal(fx_end(&fx, "link", g.generation), 0);
	/* A symbolic link is a name of the mount, not cache. */
	assert_int_equal(fx_put(&fx, "new", 4 * KIB, 0), -MC_ENOSPACE);
	fx_down(&fx);
}

static void test_soft_pins_last(void **state)
{
	struct fixture fx;
	char key[32];
	unsigned i;

	(void)state;
	fx_up(&fx, 1, MIB, no_background);
	for (i = 0; i < 256; i++)
		assert_int_equal(fx_put(&fx, key_of(key, i), 4 * KIB, i < 128 ? MCP_PUT_SOFT_PIN : 0),
				 0);
	for (i = 0; i < 128; i++)
		assert_int_equal(fx_put(&fx, key_of(key, 1000 + i), 4 * KIB, MCP_PUT_SOFT_PIN), 0);
	assert_int_equal(present(&fx), 128);
	/* Only soft-pinned objects are left: now they are evicted, the oldest first. */
	assert_int_equal(fx_put(&fx, "new", 4 * KIB, 0), 0);
	assert_int_equal(fx_exist(&fx, "key-0", MCP_EXIST_PEEK), 0);
	assert_int_equal(present(&fx), 127);
	fx_down(&fx);
}

static void soft_never(struct mcm_conf *conf)
{
	no_background(conf);
	conf->allow_evict_soft_pinned_objects = false;
	conf->default_kv_soft_pin_ttl = 60000;
}

static void test_soft_pins_not_allowed(void **state)
{
	struct mcp_object o;
	struct fixture fx;
	char key[32];

	(void)state;
	fx_up(&fx, 1, MIB, soft_never);
	fill(&fx, MCP_PUT_SOFT_PIN);
	assert_int_equal(fx_stat(&fx, "key-9", &o), 0);
	assert_int_equal(o.flags, MCP_OBJ_SOFT_PIN);
	assert_int_equal(fx_put(&fx, "new", 4 * KIB, 0), -MC_ENOSPACE);
	/* Not even leased objects, whose leases could be broken otherwise. */
	assert_int_equal(fx_exist(&fx, key_of(key, 3), 0), 1);
	assert_int_equal(fx_put(&fx, "new", 4 * KIB, 0), -MC_ENOSPACE);
	fx_advance(&fx, 61000);
	assert_int_equal(fx_stat(&fx, "key-9", &o), 0);
	assert_int_equal(o.flags, 0);
	assert_int_equal(fx_put(&fx, "new", 4 * KIB, 0), 0);
	fx_down(&fx);
}

static void test_promises(void **state)
{
	int64_t broken = fx_metric("mooncake_master_promises_broken_total");
	struct fixture fx;
	char key[32];
	unsigned i;

	(void)state;
	fx_up(&fx, 1, MIB, no_background);
	fill(&fx, 0);
	/* All objects below 200 are leased, in the reverse order of their puts. */
	for (i = 200; i-- > 0;) {
		assert_int_equal(fx_exist(&fx, key_of(key, i), 0), 1);
		if (i % 40 == 0)
			fx_advance(&fx, 1000);
	}
	assert_int_equal(fx_remove(&fx, "key-5", 0), -MC_ELEASED);
	for (i = 0; i < 56; i++)
		assert_int_equal(fx_put(&fx, key_of(key, 1000 + i), 4 * KIB, MCP_PUT_HARD_PIN), 0);
	assert_int_equal(fx_metric("mooncake_master_promises_broken_total"), broken);
	for (i = 200; i < 256; i++)
		assert_int_equal(fx_exist(&fx, key_of(key, i), MCP_EXIST_PEEK), 0);
	assert_int_equal(present(&fx), 200);
	/* No other object is left: the oldest leases, 160..199, are broken first, and counted. */
	for (i = 0; i < 40; i++)
		assert_int_equal(fx_put(&fx, key_of(key, 2000 + i), 4 * KIB, MCP_PUT_HARD_PIN), 0);
	assert_int_equal(fx_metric("mooncake_master_promises_broken_total"), broken + 40);
	for (i = 0; i < 160; i++)
		assert_int_equal(fx_exist(&fx, key_of(key, i), MCP_EXIST_PEEK), 1);
	assert_int_equal(present(&fx), 160);
	/* Leases expire. */
	fx_advance(&fx, fx.conf.default_kv_lease_ttl + 200);
	for (i = 0; i < 160; i++)
		assert_int_equal(fx_put(&fx, key_of(key, 3000 + i), 4 * KIB, 0), 0);
	assert_int_equal(fx_metric("mooncake_master_promises_broken_total"), broken + 40);
	fx_down(&fx);
}

static void no_lease(struct mcm_conf *conf)
{
	no_background(conf);
	conf->default_kv_lease_ttl = 0;
}

/* With a lease of 0, an existence query leases nothing, and a read is as safe as ever. */
static void test_no_promises(void **state)
{
	int64_t broken = fx_metric("mooncake_master_promises_broken_total");
	struct mcp_object o;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, no_lease);
	fill(&fx, 0);
	assert_int_equal(fx_exist(&fx, "key-0", 0), 1);
	assert_int_equal(fx_stat(&fx, "key-0", &o), 0);
	assert_int_equal(o.lease_ms, 0);
	assert_int_equal(fx_remove(&fx, "key-0", 0), 0);
	assert_int_equal(fx_put(&fx, "key-0", 4 * KIB, 0), 0);
	/* Nevertheless the query was counted: the object is not the oldest any more. */
	assert_int_equal(fx_exist(&fx, "key-1", 0), 1);
	assert_int_equal(fx_put(&fx, "new", 4 * KIB, 0), 0);
	assert_int_equal(fx_exist(&fx, "key-1", MCP_EXIST_PEEK), 1);
	assert_int_equal(fx_exist(&fx, "key-2", MCP_EXIST_PEEK), 0);
	/* A lease that is renewed in time lasts; a lease of 0 in the reply would mean that it has
	 * no end. */
	assert_int_equal(fx_pin(&fx, fx.s, "key-1", MCP_GET_LEASE, &o, NULL), 0);
	assert_int_equal(o.lease_ms, MCM_READ_LEASE_MIN_MS);
	fx_advance(&fx, MCM_READ_LEASE_MIN_MS - 1);
	mc_mutex_lock(&fx.s->lock);
	mcm_pin_renew(fx.m, fx.s, o.pin);
	mc_mutex_unlock(&fx.s->lock);
	fx_advance(&fx, MCM_READ_LEASE_MIN_MS - 1);
	assert_int_equal(fx_remove(&fx, "key-1", 0), -MC_ELEASED);
	assert_int_equal(fx_put(&fx, "large", 255 * 4 * KIB, 0), -MC_ENOSPACE);
	fx_advance(&fx, MCM_READ_LEASE_MIN_MS);
	assert_int_equal(fx_remove(&fx, "key-1", 0), 0);
	assert_int_equal(fx_metric("mooncake_master_promises_broken_total"), broken);
	fx_check(&fx);
	fx_down(&fx);
}

/* The free space is fragmented: the evictor has to make a long run of adjacent ranges. */
static void test_fragmented(void **state)
{
	struct mcp_object o[256];
	struct fixture fx;
	char key[32];
	unsigned i;

	(void)state;
	fx_up(&fx, 1, MIB, no_background);
	fill(&fx, 0);
	/* Remove every other object: no two free pages are adjacent. */
	for (i = 0; i < 256; i += 2)
		assert_int_equal(fx_remove(&fx, key_of(key, i), 0), 0);
	assert_int_equal(fx_put(&fx, "big", 64 * KIB, 0), 0);
	/* That many bytes were free already, so about as many more as the object needs may have
	 * been evicted. */
	assert_in_range(present(&fx), 128 - 16 - 16, 127);
	assert_int_equal(fx_remove(&fx, "big", 0), 0);
	fx_down(&fx);

	/* The same with every 32nd page pinned: runs of at most 31 pages can be made. */
	fx_up(&fx, 1, MIB, no_background);
	fill(&fx, 0);
	for (i = 0; i < 256; i += 32)
		assert_int_equal(fx_pin(&fx, fx.s, key_of(key, i), MCP_GET_HOLD, &o[i], NULL), 0);
	assert_int_equal(fx_put(&fx, "big", 31 * 4 * KIB - 128, 0), 0);
	assert_int_equal(fx_put(&fx, "bigger", 32 * 4 * KIB, 0), -MC_ENOSPACE);
	for (i = 0; i < 256; i += 32)
		assert_int_equal(fx_exist(&fx, key_of(key, i), MCP_EXIST_PEEK), 1);
	fx_release(&fx, fx.s, o[64].pin);
	assert_int_equal(fx_put(&fx, "bigger", 32 * 4 * KIB, 0), 0);
	fx_down(&fx);
}

/* A large object among many tiny ones evicts about its own bytes, not twice as many. */
static void test_large_among_tiny(void **state)
{
	struct fixture fx;
	char key[32];
	unsigned i;

	(void)state;
	fx_up(&fx, 1, MIB, no_background);
	for (i = 0; i < 4096; i++)
		assert_int_equal(fx_put(&fx, key_of(key, i), 256, 0), 0);
	assert_int_equal(fx_used(&fx), MIB);
	assert_int_equal(fx_put(&fx, "large", 256 * KIB, 0), 0);
	assert_in_range(mcm_index_count(&fx.m->index), 4096 - 1024 - 32, 4096 - 1024 + 1);
	fx_down(&fx);
}

static void test_whole_pool(void **state)
{
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, no_background);
	fill(&fx, 0);
	/* As large as the segment, checksums included; a larger object never fits. */
	assert_int_equal(fx_put(&fx, "all", MIB - 64, 0), 0);
	assert_int_equal(fx_put(&fx, "all2", MIB - 64, 0), 0);
	assert_int_equal(fx_put(&fx, "all3", MIB, 0), -MC_ETOOBIG);
	assert_int_equal(present(&fx), 0);
	fx_down(&fx);
}

/* The watermark does not count objects that cannot be evicted: little space beside them does not
 * evict new objects. */
static void test_watermark_beside_pinned(void **state)
{
	struct fixture fx;
	char key[32];
	unsigned i;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	for (i = 0; i < 248; i++)
		assert_int_equal(fx_put(&fx, key_of(key, 1000 + i), 4 * KIB, MCP_PUT_HARD_PIN), 0);
	for (i = 0; i < 7; i++)
		assert_int_equal(fx_put(&fx, key_of(key, i), 4 * KIB, 0), 0);
	fx_advance(&fx, 100);
	assert_int_equal(present(&fx), 7);
	/* Above nine tenths of those 32 KiB. */
	assert_int_equal(fx_put(&fx, key_of(key, 7), 4 * KIB, 0), 0);
	fx_advance(&fx, 100);
	assert_in_range(present(&fx), 6, 7);
	fx_down(&fx);
}

/* A put for which even all evictable bytes are not enough evicts nothing. */
static void test_hopeless_put(void **state)
{
	struct fixture fx;
	char key[32];
	unsigned i;

	(void)state;
	fx_up(&fx, 1, MIB, no_background);
	for (i = 0; i < 200; i++)
		assert_int_equal(fx_put(&fx, key_of(key, 1000 + i), 4 * KIB, MCP_PUT_HARD_PIN), 0);
	for (i = 0; i < 56; i++)
		assert_int_equal(fx_put(&fx, key_of(key, i), 4 * KIB, 0), 0);
	assert_int_equal(fx_put(&fx, "new", 57 * 4 * KIB, 0), -MC_ENOSPACE);
	assert_int_equal(present(&fx), 56);
	assert_int_equal(fx_put(&fx, "new", 56 * 4 * KIB - 64, 0), 0);
	assert_int_equal(present(&fx), 0);
	fx_down(&fx);
}

/* This many objects of 4 KiB fill a segment of which eight may be evicted ahead of need. */
#define MANY 32768u

static void put_many(struct fixture *fx, unsigned first, unsigned n)
{
	char key[32];
	unsigned i;

	for (i = first; i < first + n; i++)
		assert_int_equal(fx_put(fx, key_of(key, i), 4 * KIB, 0), 0);
}

static unsigned present_of(struct fixture *fx, unsigned first, unsigned n)
{
	unsigned i, found = 0;
	char key[32];

	for (i = first; i < first + n; i++)
		found += fx_exist(fx, key_of(key, i), MCP_EXIST_PEEK);
	return found;
}

/* Small objects are evicted in batches, so that not every put has to evict: a few more than needed,
 * the oldest ones. */
static void test_ahead(void **state)
{
	int64_t asked, gone;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MANY * 4 * KIB, strict_order);
	put_many(&fx, 0, MANY);
	asked = fx_metric("mooncake_master_inline_evictions_total");
	gone = fx_metric("master_evicted_key_count");
	put_many(&fx, MANY, 1000);
	assert_in_range(fx_metric("mooncake_master_inline_evictions_total") - asked, 1, 1000 / 8);
	assert_in_range(fx_metric("master_evicted_key_count") - gone, 1000, 1000 + 8);
	assert_int_equal(present_of(&fx, 0, 1000), 0);
	assert_in_range(present_of(&fx, 1000, 8), 0, 8);
	assert_int_equal(present_of(&fx, 1008, MANY - 8), MANY - 8);
	/* A leased object is evicted only when it has to be. */
	for (unsigned i = 1000; i < MANY + 1000; i++) {
		char key[32];

		fx_exist(&fx, key_of(key, i), 0);
	}
	put_many(&fx, MANY + 1000, 100);
	assert_int_equal(fx_used(&fx), MANY * 4 * KIB);
	fx_check(&fx);
	fx_down(&fx);
}

static void test_watermark(void **state)
{
	struct fixture fx;
	char key[32];
	unsigned i;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	for (i = 0; i < 230; i++)
		assert_int_equal(fx_put(&fx, key_of(key, i), 4 * KIB, 0), 0);
	fx_advance(&fx, 0);
	/* Below the watermark nothing is evicted. */
	assert_int_equal(present(&fx), 230);
	assert_int_equal(fx_put(&fx, key_of(key, i), 4 * KIB, 0), 0);
	fx_advance(&fx, 0);
	assert_in_range(fx_used(&fx), MIB * 80 / 100, MIB * 85 / 100);
	fx_down(&fx);
}

/* ---- the law: a put does not fail while evictable bytes exist ---- */

#define KEYS 400

struct model {
	struct mcp_object held[KEYS];
	bool is_held[KEYS], hard[KEYS];
};

/* Length of the longest run of bytes that are free or can be freed, according to the allocator. */
static uint64_t longest_run(struct fixture *fx, unsigned seg)
{
	struct mcm_segment *s = fx->m->segments.at[seg];
	uint64_t run = 0, best = 0;
	uint32_t id;

	for (id = s->alloc.first; id != s->alloc.end; id = mcm_range_next(mcm_range(&s->alloc, id))) {
		const struct mcm_range *n = mcm_range(&s->alloc, id);
		bool stays = n->flags & MCM_RANGE_USED &&
			(!(n->flags & MCM_RANGE_EVICTABLE) || mcm_object(&fx->m->index, n->owner)->pins);

		run = stays ? 0 : run + mcm_range_granules(&s->alloc, n) * MCM_GRANULE;
		/* alignment at both ends may cost a page */
		best = run > best ? run : best;
	}
	return best;
}

static void law_step(struct fixture *fx, struct model *md)
{
	unsigned k = (unsigned)(rnd() % KEYS), i;
	uint64_t len, run = 0;
	char key[32];
	int r;

	key_of(key, k);
	switch (rnd() % 8) {
	case 0:
	case 1:
		if (!md->is_held[k] && !fx_pin(fx, fx->s, key, MCP_GET_HOLD, &md->held[k], NULL))
			md->is_held[k] = true;
		break;
	case 2:
		if (md->is_held[k])
			fx_release(fx, fx->s, md->held[k].pin);
		md->is_held[k] = false;
		break;
	case 3:
		fx_exist(fx, key, 0);
		break;
	case 4:
		if (!md->is_held[k])
			fx_remove(fx, key, MCP_REMOVE_FORCE);
		break;
	default:
		len = 1 + rnd() % (rnd() % 4 ? 20 * KIB : 200 * KIB);
		for (i = 0; i < 2; i++)
			run = longest_run(fx, i) > run ? longest_run(fx, i) : run;
		r = fx_put(fx, key, len, MCP_PUT_UPSERT |
			   (rnd() % 50 ? 0 : MCP_PUT_HARD_PIN) | (rnd() % 5 ? 0 : MCP_PUT_SOFT_PIN));
		if (r == -MC_ENOSPACE)
			assert_true(run < mcm_object_reserve(len) + 2 * 4096);
		else
			assert_int_equal(r, 0);
		break;
	}
}

static void test_law(void **state)
{
	int64_t refused = fx_metric("master_put_start_alloc_failures_total");
	static struct model md;
	struct fixture fx;
	unsigned i;

	(void)state;
	fx_up(&fx, 2, MIB, no_background);
	for (i = 0; i < 30000; i++) {
		law_step(&fx, &md);
		if (i % 1000 == 0)
			fx_check(&fx);
		if (i % 100 == 0)
			mc_clock_advance(20 * MC_NS_PER_MS);
	}
	assert_true(fx_metric("master_evicted_key_count") > 1000);
	/* Both results occurred. */
	assert_true(fx_metric("master_put_start_alloc_failures_total") > refused + 100);
	fx_down(&fx);
}

/* A put that has to evict very many objects does so in slices, between which other puts run. */
static void test_slices(void **state)
{
	struct mcm_put_request rq = { .copies = 1, .slice = { .end_ns = 1 } };
	struct mcp_put_item item = { .key = fx_bytes("big"), .size = 4 * MIB };
	struct mcm_put_granted g;
	unsigned i, slices = 0, before;
	struct fixture fx;
	char key[16];
	int r;

	(void)state;
	fx_up(&fx, 2, 8 * MIB, NULL);
	for (i = 0; i < 4096; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		assert_int_equal(fx_put(&fx, key, 4096, i % 1500 == 7 ? MCP_PUT_HARD_PIN : 0), 0);
	}
	before = (unsigned)mcm_index_count(&fx.m->index);
	mc_clock_advance(1000 * MC_NS_PER_MS);
	while ((r = mcm_put_start(fx.m, fx.s, &rq, &item, &g)) == MCP_AGAIN) {
		assert_true(rq.slice.segment && slices < 100);
		snprintf(key, sizeof(key), "n%u", slices++);
		assert_int_equal(fx_put(&fx, key, 4096, 0), 0);
	}
	assert_int_equal(r, 0);
	assert_int_equal(rq.slice.segment, 0);
	/* 1024 objects in batches of 32, and the objects that the other puts have evicted
	 * meanwhile. */
	assert_in_range(slices, 32, 40);
	assert_in_range(before + slices - mcm_index_count(&fx.m->index), 1024, 1024 + 2 * 40);
	assert_int_equal(fx_end(&fx, "big", g.generation), 0);
	/* Without a time limit it needs one slice. */
	rq.slice.end_ns = 0;
	item.key = fx_bytes("big2");
	assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &item, &g), 0);
	assert_int_equal(fx_revoke(&fx, "big2", g.generation), 0);
	fx_down(&fx);
}

/* A search for a run among very many ranges releases the lock regularly, whatever ranges it
 * meets. */
static void test_short_holds(void **state)
{
	enum { RANGES = 2 * MIB / 64, APART = 10000 };
	struct fixture fx;
	char key[32];
	unsigned i;

	(void)state;
	fx_up(&fx, 1, 2 * MIB, no_background);
	fx_held_reset(MCM_HOLD_SEGMENT);
	for (i = 0; i < RANGES; i++)
		assert_int_equal(fx_put(&fx, key_of(key, i), 32, i % APART == 5 ? MCP_PUT_HARD_PIN : 0), 0);
	assert_int_equal(fx_used(&fx), 2 * MIB);
	mc_clock_advance(1000 * MC_NS_PER_MS);
	/* No such run exists: all ranges are examined.  Then a run between two objects that
	 * stay. */
	assert_int_equal(fx_put(&fx, "hopeless", APART * 64, 0), -MC_ENOSPACE);
	assert_int_equal(mcm_index_count(&fx.m->index), RANGES);
	assert_in_range(fx_held_most(MCM_HOLD_SEGMENT), 1, 2048);
	assert_int_equal(fx_put(&fx, "run", (APART - 200) * 64, 0), 0);
	assert_in_range(RANGES - mcm_index_count(&fx.m->index), APART - 300, APART);
	/* A free range that is widened by very many ranges on both sides. */
	for (i = 25000; i < 25400; i++)
		assert_int_equal(fx_remove(&fx, key_of(key, i), 0), 0);
	assert_int_equal(fx_put(&fx, "widened", 8000 * 64, 0), 0);
	assert_int_equal(fx_stat(&fx, key_of(key, 22000), NULL), -MC_ENOOBJECT);
	assert_int_equal(fx_stat(&fx, key_of(key, 28000), NULL), -MC_ENOOBJECT);
	assert_in_range(fx_held_most(MCM_HOLD_SEGMENT), 2048, 2048);
	fx_check(&fx);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_oldest_first),
		cmocka_unit_test(test_pinned_stay),
		cmocka_unit_test(test_two_evictors_and_a_reader),
		cmocka_unit_test(test_slices),
		cmocka_unit_test(test_short_holds),
		cmocka_unit_test(test_pins_of_other_connections),
		cmocka_unit_test(test_renewed),
		cmocka_unit_test(leases_end_some_at_a_time),
		cmocka_unit_test(test_hard_pins_stay),
		cmocka_unit_test(test_soft_pins_last),
		cmocka_unit_test(test_soft_pins_not_allowed),
		cmocka_unit_test(test_promises),
		cmocka_unit_test(test_no_promises),
		cmocka_unit_test(test_fragmented),
		cmocka_unit_test(test_large_among_tiny),
		cmocka_unit_test(test_whole_pool),
		cmocka_unit_test(test_hopeless_put),
		cmocka_unit_test(test_ahead),
		cmocka_unit_test(test_watermark),
		cmocka_unit_test(test_watermark_beside_pinned),
		cmocka_unit_test(test_law),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
