/* SPDX-License-Identifier: Apache-2.0
 * Which objects are evicted, and which stay, when a tenant needs room inside its quota. */
#include <config.h>

#include "test_master_tenant_fixture.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>

#include "common/fault.h"
#include "proto/rpc_server.h"

#define MIB (1ull << 20)
#define SMALL 4096u

static struct mcp_bytes key_of(struct fixture *fx, const char *key, char *buf)
{
	return mcm_scope_key(tx_scope(fx, "alice"), fx_bytes(key), buf);
}

static unsigned present(struct fixture *fx, const char *prefix, unsigned n)
{
	unsigned i, sum = 0;
	char key[32];

	for (i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "%s%u", prefix, i);
		sum += tx_stat(fx, "alice", key, NULL) == 0;
	}
	return sum;
}

static void fill(struct fixture *fx, const char *prefix, unsigned n, uint64_t size, uint32_t flags)
{
	char key[32];
	unsigned i;

	for (i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "%s%u", prefix, i);
		assert_int_equal(tx_put(fx, "alice", key, size, flags), 0);
	}
}

static void promise(struct fixture *fx, const char *prefix, unsigned n)
{
	char key[32], buf[MCM_KEY_MAX];
	struct mcp_bytes k;
	uint8_t there;
	unsigned i;

	for (i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "%s%u", prefix, i);
		k = key_of(fx, key, buf);
		mcm_exist(fx->m, 0, &k, 1, &there);
		assert_int_equal(there, 1);
	}
}

static uint64_t hold(struct fixture *fx, const char *key)
{
	struct mcp_replica rep[MCM_REPLICA_MAX];
	char buf[MCM_KEY_MAX];
	struct mcp_object o;
	unsigned n;

	mc_mutex_lock(&fx->s->lock);
	assert_int_equal(mcm_get(fx->m, fx->s, MCP_GET_HOLD, key_of(fx, key, buf), &o, rep, &n), 0);
	mc_mutex_unlock(&fx->s->lock);
	return o.pin;
}

/* Pin and release the objects: they keep only the mark that they were read. */
static void read_all(struct fixture *fx, const char *prefix, unsigned n)
{
	char key[32];
	unsigned i;

	for (i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "%s%u", prefix, i);
		fx_release(fx, fx->s, hold(fx, key));
	}
}

static void fill_group(struct fixture *fx, const char *prefix, unsigned n, uint64_t size, const char *group)
{
	struct mcm_put_request rq = { .copies = 1 };
	char key[32], buf[MCM_KEY_MAX], gbuf[MCM_GROUP_NAME_MAX];
	struct mcp_put_item item = { .size = size };
	struct mcm_put_granted g;
	unsigned i;

	for (i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "%s%u", prefix, i);
		item.key = key_of(fx, key, buf);
		item.group = mcm_scope_name(tx_scope(fx, "alice"), fx_bytes(group), MCP_GROUP_MAX, gbuf);
		assert_int_equal(mcm_put_start(fx->m, fx->s, &rq, &item, &g), 0);
		assert_int_equal(mcm_put_end(fx->m, fx->s, &(struct mcp_put_done){
				 .key = item.key, .generation = g.generation, .crc = 1 }), 0);
	}
}

/* Advance the clock while the owner of the memory sends heartbeats. */
static void pass(struct fixture *fx, uint64_t ms)
{
	for (; ms > 1000; ms -= 1000) {
		fx_advance(fx, 1000);
		fx_beat(fx, fx->s->client);
	}
	fx_advance(fx, ms);
}

/* ---- groups ---- */

static void a_group_goes_as_a_whole(void **state)
{
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, 64 * MIB, tx_tune);
	tx_quota(&fx, "alice", 10 * MIB);
	fill_group(&fx, "g", 6, MIB, "team");
	fill(&fx, "x", 4, MIB, 0);
	fill(&fx, "new", 1, 2 * MIB, 0);
	assert_int_equal(present(&fx, "g", 6), 0);
	assert_int_equal(present(&fx, "x", 4), 4);
	/* The group was enough: other victims of the same batch stay. */
	assert_int_equal(tx_figures(&fx, "alice").charged, 6 * MIB);
	fx_down(&fx);
}

static void reading_one_member_keeps_all(void **state)
{
	struct fixture fx;
	uint64_t pin;

	(void)state;
	fx_up(&fx, 1, 64 * MIB, tx_tune);
	tx_quota(&fx, "alice", 10 * MIB);
	fill_group(&fx, "g", 6, MIB, "team");
	fill(&fx, "x", 4, MIB, 0);
	promise(&fx, "g", 1);
	fill(&fx, "y", 3, MIB, 0);
	assert_int_equal(present(&fx, "g", 6), 6);
	assert_int_equal(present(&fx, "x", 4), 1);
	/* A pin on one member keeps the group longer than any promise lease. */
	pin = hold(&fx, "g3");
	pass(&fx, fx.conf.default_kv_lease_ttl + 1000);
	fill(&fx, "z", 8, MIB, 0);
	assert_int_equal(present(&fx, "g", 6), 6);
	fx_release(&fx, fx.s, pin);
	pass(&fx, 2000);
	fill(&fx, "w", 12, MIB, 0);
	assert_int_equal(present(&fx, "g", 6), 0);
	fx_down(&fx);
}

static void those_above_their_share_lose_whole_groups(void **state)
{
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, 16 * MIB, tx_tune);
	tx_quota(&fx, "alice", 15 * MIB);
	fill_group(&fx, "g", 6, MIB, "team");
	fill(&fx, "x", 8, MIB, 0);
	tx_quota(&fx, "bob", 8 * MIB);
	tx_quota(&fx, "alice", 8 * MIB);
	assert_int_equal(tx_put(&fx, "bob", "b", 3 * MIB, 0), 0);
	assert_int_equal(present(&fx, "g", 6), 0);
	assert_int_equal(present(&fx, "x", 8), 8);
	fx_down(&fx);
}

/* ---- order of eviction ---- */

static void plain_ones_go_first(bool promised, unsigned read)
{
	struct fixture fx;

	fx_up(&fx, 1, 256 * MIB, tx_tune);
	tx_quota(&fx, "alice", 20000 * SMALL);
	fill(&fx, "p", read, SMALL, 0);
	fill(&fx, "s", 1000, SMALL, promised ? 0 : MCP_PUT_SOFT_PIN);
	fill(&fx, "q", 19000 - read, SMALL, 0);
	/* The oldest objects were read, and there are many of them. */
	read_all(&fx, "p", read);
	if (promised)
		promise(&fx, "s", 1000);
	fill(&fx, "n", 100, SMALL, 0);
	assert_int_equal(present(&fx, "s", 1000), 1000);
	assert_int_equal(present(&fx, "p", read) + present(&fx, "q", 19000 - read), 18900);
	fx_down(&fx);
}

static void plain_ones_go_before_protected_ones(void **state)
{
	(void)state;
	plain_ones_go_first(false, 5000);
	plain_ones_go_first(true, 8192);
}

static void the_oldest_promise_is_broken_first(void **state)
{
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, 64 * MIB, tx_tune);
	tx_quota(&fx, "alice", 10 * MIB);
	fill(&fx, "late", 4, MIB, 0);
	fill(&fx, "early", 3, MIB, 0);
	fill(&fx, "soft", 1, MIB, MCP_PUT_SOFT_PIN);
	fill(&fx, "read", 1, MIB, 0);
	fill(&fx, "hard", 1, MIB, MCP_PUT_HARD_PIN);
	(void)hold(&fx, "read0");
	promise(&fx, "early", 3);
	mc_clock_advance(500 * MC_NS_PER_MS);
	promise(&fx, "late", 4);
	/* First the soft-pinned object, then promised ones by age; pinned and hard-pinned ones
	 * stay. */
	fill(&fx, "a", 1, MIB, MCP_PUT_HARD_PIN);
	assert_int_equal(present(&fx, "soft", 1), 0);
	fill(&fx, "b", 3, MIB, MCP_PUT_HARD_PIN);
	assert_int_equal(present(&fx, "early", 3), 0);
	assert_int_equal(present(&fx, "late", 4), 4);
	fill(&fx, "c", 4, MIB, MCP_PUT_HARD_PIN);
	assert_int_equal(present(&fx, "late", 4), 0);
	assert_int_equal(tx_put(&fx, "alice", "more", MIB, 0), -MC_EQUOTA);
	assert_int_equal(present(&fx, "read", 1), 1);
	fx_down(&fx);
}

/* ---- objects that must stay ---- */

static void a_put_finds_victims_behind_pinned_objects(void **state)
{
	struct fixture fx;
	uint64_t pin[64];
	char key[32];
	unsigned i;

	(void)state;
	fx_up(&fx, 1, 256 * MIB, tx_tune);
	tx_quota(&fx, "alice", 15000 * SMALL);
	fill(&fx, "h", 14000, SMALL, MCP_PUT_HARD_PIN);
	fill(&fx, "r", 64, SMALL, 0);
	fill(&fx, "q", 936, SMALL, 0);
	for (i = 0; i < 64; i++) {
		snprintf(key, sizeof(key), "r%u", i);
		pin[i] = hold(&fx, key);
	}
	fill(&fx, "n", 936, SMALL, 0);
	assert_int_equal(present(&fx, "q", 936), 0);
	assert_int_equal(present(&fx, "r", 64), 64);
	assert_int_equal(present(&fx, "h", 14000), 14000);
	/* Objects whose readers have released them can be evicted. */
	for (i = 0; i < 64; i++)
		fx_release(&fx, fx.s, pin[i]);
	fill(&fx, "m", 1000, SMALL, MCP_PUT_HARD_PIN);
	assert_int_equal(tx_put(&fx, "alice", "more", SMALL, 0), -MC_EQUOTA);
	fx_down(&fx);
}

/* A large put above the quota evicts small objects in slices. */
static void a_large_put_goes_in_slices(void **state)
{
	struct mcm_put_request rq = { .copies = 1, .slice = { .end_ns = 1 } };
	char buf[MCM_KEY_MAX];
	struct mcp_put_item item = { .size = MIB };
	struct mcm_put_granted g;
	struct fixture fx;
	unsigned n = 0;
	int r;

	(void)state;
	fx_up(&fx, 1, 64 * MIB, tx_tune);
	tx_quota(&fx, "alice", 2 * MIB);
	fill(&fx, "k", 512, SMALL, 0);
	item.key = key_of(&fx, "big", buf);
	while ((r = mcm_put_start(fx.m, fx.s, &rq, &item, &g)) == MCP_AGAIN)
		assert_int_equal(tx_figures(&fx, "alice").charged, 2 * MIB - 32 * SMALL * ++n);
	assert_int_equal(r, 0);
	assert_int_equal(n, 256 / 32 - 1);
	assert_int_equal(present(&fx, "k", 512), 256);
	assert_int_equal(tx_figures(&fx, "alice").charged, 2 * MIB);
	fx_down(&fx);
}

/* ---- other requests of the tenant ---- */

/* A thread that charges bytes to the tenant whenever there is room, at most @most times. */
struct taker {
	struct fixture *fx;
	uint32_t tenant;
	unsigned most, took;
	uint64_t highest;		/* maximum of the tenant's charge */
	bool ready, done;
};

static void *take(void *arg)
{
	struct taker *k = arg;
	uint64_t charged;

	__atomic_store_n(&k->ready, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&k->done, __ATOMIC_ACQUIRE)) {
		if (k->took < k->most && mcm_tenant_charge_copy(k->fx->m, k->tenant, SMALL) == 0)
			k->took++;
		charged = mcm_load_relaxed(&k->fx->m->tenants.at[k->tenant]->charged);
		if (charged > k->highest)
			k->highest = charged;
	}
	return NULL;
}

static pthread_t take_begin(struct taker *k)
{
	pthread_t t;

	k->ready = k->done = false;
	assert_int_equal(pthread_create(&t, NULL, take, k), 0);
	while (!__atomic_load_n(&k->ready, __ATOMIC_ACQUIRE))
		sched_yield();
	return t;
}

static void take_end(struct taker *k, pthread_t t)
{
	__atomic_store_n(&k->done, true, __ATOMIC_RELEASE);
	pthread_join(t, NULL);
	mcm_tenant_refund(k->fx->m, k->tenant, k->took * (uint64_t)SMALL);
}

/* Others repeatedly take the room that a put has freed: the put is not refused while there are more
 * objects to evict. */
static void memory_taken_by_others_is_freed_again(void **state)
{
	unsigned took = 0, round;
	struct fixture fx;
	char key[32];

	(void)state;
	fx_up(&fx, 1, 64 * MIB, tx_tune);
	tx_quota(&fx, "alice", 256 * SMALL);
	fill(&fx, "k", 256, SMALL, 0);
	for (round = 0; round < 300; round++) {
		struct taker k = { .fx = &fx, .tenant = tx_scope(&fx, "alice").tenant, .most = 32 };
		pthread_t t = take_begin(&k);

		snprintf(key, sizeof(key), "n%u", round);
		assert_int_equal(tx_put(&fx, "alice", key, SMALL, 0), 0);
		take_end(&k, t);
		took = k.took > took ? k.took : took;
		snprintf(key, sizeof(key), "r%u-", round);
		fill(&fx, key, (unsigned)(256 - tx_figures(&fx, "alice").charged / SMALL), SMALL, 0);
	}
	print_message("others took room up to %u times during a put\n", took);
	fx_down(&fx);
}

/* The charge of a put becomes that of its object in one step: no other request gets room in
 * between, which would exceed the tenant's quota. */
static void an_object_is_paid_for_by_its_put(void **state)
{
	struct taker k = { .most = 32 };
	struct fixture fx;
	unsigned i;
	pthread_t t;

	(void)state;
	fx_up(&fx, 1, 64 * MIB, tx_tune);
	tx_quota(&fx, "alice", 32 * SMALL);
	fill(&fx, "h", 31, SMALL, MCP_PUT_HARD_PIN);
	k.fx = &fx;
	k.tenant = tx_scope(&fx, "alice").tenant;
	for (i = 0; i < 500; i++) {
		char buf[MCM_KEY_MAX];
		struct mcp_put_item item = { .key = key_of(&fx, "k", buf), .size = SMALL };
		struct mcm_put_request rq = { .copies = 1 };
		struct mcm_put_granted g;

		assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &item, &g), 0);
		k.took = 0;
		t = take_begin(&k);
		assert_int_equal(mcm_put_end(fx.m, fx.s, &(struct mcp_put_done){
					 .key = item.key, .generation = g.generation, .crc = 1 }), 0);
		take_end(&k, t);
		assert_int_equal(k.took, 0);
		assert_int_equal(k.highest, 32 * SMALL);
		assert_int_equal(tx_remove_match(&fx, "alice", "^k$", 0), 1);
		assert_int_equal(tx_figures(&fx, "alice").charged, 31 * SMALL);
	}
	fx_down(&fx);
}

/* After a failed commit nothing is charged. */
static void a_failed_commit_costs_nothing(void **state)
{
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, 64 * MIB, tx_tune);
	tx_quota(&fx, "alice", 4 * MIB);
	assert_int_equal(mc_fault_set("master.commit=error:ENOMEM"), 0);
	assert_int_equal(tx_put(&fx, "alice", "k", MIB, 0), -ENOMEM);
	assert_int_equal(mc_fault_set(NULL), 0);
	assert_int_equal(tx_figures(&fx, "alice").charged, 0);
	assert_int_equal(tx_put(&fx, "alice", "k", MIB, 0), 0);
	assert_int_equal(tx_figures(&fx, "alice").charged, MIB);
	fx_down(&fx);
}

/* ---- charges for pinned versions ---- */

static void readers_keep_their_versions_paid_for(void **state)
{
	struct fixture fx;
	uint64_t pin[4];
	unsigned i;

	(void)state;
	fx_up(&fx, 1, 64 * MIB, tx_tune);
	tx_quota(&fx, "alice", 4 * MIB);
	for (i = 0; i < 4; i++) {
		assert_int_equal(tx_put(&fx, "alice", "k", MIB, MCP_PUT_UPSERT), 0);
		pin[i] = hold(&fx, "k");
	}
	assert_int_equal(tx_figures(&fx, "alice").charged, 4 * MIB);
	assert_int_equal(tx_figures(&fx, "alice").objects, 1);
	assert_int_equal(tx_put(&fx, "alice", "k", MIB, MCP_PUT_UPSERT), -MC_EQUOTA);
	fx_release(&fx, fx.s, pin[1]);
	assert_int_equal(tx_figures(&fx, "alice").charged, 3 * MIB);
	/* After a removal, pinned versions stay charged, too. */
	assert_int_equal(tx_remove_match(&fx, "alice", "", MCP_REMOVE_FORCE), 1);
	assert_int_equal(tx_figures(&fx, "alice").objects, 0);
	assert_int_equal(tx_figures(&fx, "alice").charged, 3 * MIB);
	assert_int_equal(tx_put(&fx, "alice", "other", 2 * MIB, 0), -MC_EQUOTA);
	fx_release(&fx, fx.s, pin[0]);
	assert_int_equal(tx_put(&fx, "alice", "other", 2 * MIB, 0), 0);
	fx_release(&fx, fx.s, pin[2]);
	fx_release(&fx, fx.s, pin[3]);
	assert_int_equal(tx_figures(&fx, "alice").charged, 2 * MIB);
	assert_int_equal(tx_remove_match(&fx, "alice", "", 0), 1);
	assert_int_equal(tx_figures(&fx, "alice").charged, 0);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_group_goes_as_a_whole),
		cmocka_unit_test(reading_one_member_keeps_all),
		cmocka_unit_test(those_above_their_share_lose_whole_groups),
		cmocka_unit_test(plain_ones_go_before_protected_ones),
		cmocka_unit_test(the_oldest_promise_is_broken_first),
		cmocka_unit_test(a_put_finds_victims_behind_pinned_objects),
		cmocka_unit_test(a_large_put_goes_in_slices),
		cmocka_unit_test(memory_taken_by_others_is_freed_again),
		cmocka_unit_test(an_object_is_paid_for_by_its_put),
		cmocka_unit_test(a_failed_commit_costs_nothing),
		cmocka_unit_test(readers_keep_their_versions_paid_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
