/* SPDX-License-Identifier: Apache-2.0
 * All operations at once from several threads, then a recount.
 *
 * Meant for ThreadSanitizer, useful without: readers check that their pinned bytes are theirs, by a
 * table of the put that owns each byte. */
#include <config.h>

#include "test_master_fixture.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "common/sys/thread.h"

#define MIB (1u << 20)
#define THREADS 8
#define KEYS 300
#define SEGMENTS 3

static unsigned steps = 20000;
static struct fixture fx;
static bool done;

/* Per segment and granule: the generation to which it was granted last, written by the put's thread
 * between start and end.  A reader with a pin must find its object's generation in all granules. */
static uint64_t *owner[SEGMENTS + 1];

static void key_name(char *key, unsigned k)
{
	/* some in directories, so that directories are created and destroyed */
	sprintf(key, k % 3 ? "d%u/k%u" : "k%u", k % 3 ? k % 7 : k, k);
}

static void stamp(const struct mcp_replica *r, uint64_t size, uint64_t generation)
{
	uint64_t g = r->offset / MCM_GRANULE, end = (r->offset + size + MCM_GRANULE - 1) / MCM_GRANULE;

	for (; g < end; g++)
		__atomic_store_n(&owner[r->segment.lo][g], generation, __ATOMIC_RELAXED);
}

static bool stamped(const struct mcp_replica *r, uint64_t size, uint64_t *generation)
{
	uint64_t g = r->offset / MCM_GRANULE, end = (r->offset + size + MCM_GRANULE - 1) / MCM_GRANULE;

	*generation = __atomic_load_n(&owner[r->segment.lo][g], __ATOMIC_RELAXED);
	for (; g < end; g++)
		if (__atomic_load_n(&owner[r->segment.lo][g], __ATOMIC_RELAXED) != *generation)
			return false;
	return true;
}

static void do_put(struct mcm_session *s, const char *key)
{
	uint64_t size = 1 + rnd() % (rnd() % 4 ? 6000 : 60000);
	struct mcm_put_granted g;
	uint32_t flags = (rnd() % 2 ? MCP_PUT_UPSERT : 0) | (rnd() % 8 ? 0 : MCP_PUT_SOFT_PIN);

	if (fx_start(&fx, s, key, size, flags, &g) < 0)
		return;
	stamp(&g.replica[0], size, g.generation);
	if (rnd() % 16)
		fx_end_by(&fx, s, key, g.generation);
	else if (rnd() % 2)
		fx_revoke_by(&fx, s, key, g.generation);
}

static void do_get(struct mcm_session *s, const char *key)
{
	bool hold = rnd() % 2;
	uint64_t g1, g2;
	struct mcp_replica r;
	struct mcp_object o;

	if (fx_pin(&fx, s, key, hold ? MCP_GET_HOLD : MCP_GET_LEASE, &o, &r) < 0 || !o.size)
		return;
	/* All granules belong to one put and, as long as the pin lasts, to the same one.  Renames
	 * change the object's generation, not its bytes.  Leases are short here and may expire at
	 * any time; the segment that is unmounted and mounted again has other memory each time. */
	if (hold && r.segment.lo != SEGMENTS) {
		assert_true(stamped(&r, o.size, &g1));
		sched_yield();
		assert_true(stamped(&r, o.size, &g2));
		assert_int_equal(g1, g2);
		assert_true(g1 <= o.generation);
	}
	if (rnd() % 8)
		fx_release(&fx, s, o.pin);
}

/* A batch prefetches the index without its locks; a large one holds a lock for several keys. */
static void do_exist(void)
{
	struct mcp_bytes key[160];
	uint8_t present[160];
	char text[160][32];
	unsigned n = rnd() % 2 ? 40 : 160, i;

	for (i = 0; i < n; i++) {
		key_name(text[i], (unsigned)(rnd() % KEYS));
		key[i] = fx_bytes(text[i]);
	}
	mcm_exist(fx.m, 0, key, n, present);
}

static void do_list(void)
{
	struct mcm_list_page pg = { 0 };
	struct mcp_attrs attrs[KEYS];
	struct mcp_entry entry[KEYS];
	struct mcp_list rq = {
		.flags = rnd() % 2 ? MCP_LIST_DIR : 0, .limit = 50,
		.prefix = fx_bytes(rnd() % 2 ? "" : "d3/"),
	};
	uint8_t cursor[16];

	do {
		assert_int_equal(mcm_list(fx.m, &rq, &pg), 0);
		assert_true(pg.names.count <= KEYS);
		assert_true(mcm_list_entries(fx.m, &rq, &pg, attrs, entry) >= 0);
		memcpy(cursor, pg.cursor, sizeof(cursor));
		rq.cursor = mcp_bytes(cursor, pg.cursor_len);
	} while (pg.cursor_len);
	mcm_names_page_done(&pg.names);
}

static void step(struct mcm_session **s)
{
	char key[32], other[32];
	struct mcp_remove_match all = { .prefix = { "d5/", 3 } };
	uint64_t removed, generation;

	key_name(key, (unsigned)(rnd() % KEYS));
	key_name(other, (unsigned)(rnd() % KEYS));
	switch (rnd() % 40) {
	case 0:
		do_list();
		break;
	case 1:
		fx_session_end(&fx, *s);
		*s = fx_session(&fx, 2);
		break;
	case 2:
		mcm_remove_match(fx.m, &all, &removed);
		break;
	case 3:
	case 4:
		fx_remove(&fx, key, rnd() % 2 ? MCP_REMOVE_FORCE : 0);
		break;
	case 5:
	case 6:
	case 7:
		fx_rename(&fx, key, other, 0);
		break;
	case 8:
	case 9:
	case 10:
		do_exist();
		break;
	case 11:
		fx_put(&fx, "d6/", 0, MCP_PUT_COMMIT | MCP_PUT_UPSERT);
		fx_remove(&fx, "d6/", 0);
		break;
	case 13:
		(void)mcm_rename_dir(fx.m, &(struct mcp_rename_dir){ .from = fx_bytes(rnd() % 2 ? "d1/" : "d6/"),
				     .to = fx_bytes(rnd() % 2 ? "d1/" : "d6/") }, &removed);
		break;
	case 14:
	case 15:
		(void)mcm_link(fx.m, &(struct mcp_link_name){ .from = fx_bytes(key), .to = fx_bytes(other) }, &removed,
			       &generation);
		break;
	case 12:
		/* It gets a time of change. */
		(void)mcm_set_attrs(fx.m, &(struct mcp_set_attrs){ .key = fx_bytes(key) });
		break;
	default:
		if (rnd() % 2)
			do_put(*s, key);
		else
			do_get(*s, key);
		break;
	}
}

static void *worker(void *arg)
{
	struct mcm_session *s = fx_session(&fx, 2);
	unsigned i;

	rnd_seed((uint64_t)(uintptr_t)arg + 1);
	for (i = 0; i < steps; i++)
		step(&s);
	fx_session_end(&fx, s);
	return NULL;
}

/* The work of monitor and evictor, and a segment that is unmounted and mounted again. */
static void *housekeeper(void *arg)
{
	struct mcp_mount_reply reply;
	uint64_t lost;
	unsigned i;

	(void)arg;
	for (i = 1; !__atomic_load_n(&done, __ATOMIC_RELAXED); i++) {
		mcm_monitor_tick(fx.m, mc_now_ms());
		mcm_evict_background(fx.m);
		fx_beat(&fx, fx.s->client);
		fx_confirm(&fx);
		if (i % 32 == 0)
			assert_int_equal(mcm_unmount(fx.m, fx.s->client, (struct mcp_id){ 7, 3 }, &lost),
					 0);
		if (i % 32 == 8 && i > 32)
			assert_int_equal(fx_mount(&fx, 1, 3, i, MIB, &reply), 0);
		sched_yield();
	}
	return NULL;
}

static void quick_leases(struct mcm_conf *conf)
{
	conf->default_kv_lease_ttl = 64;
	conf->client_ttl = 3600 * 1000;
}

static void test_hammer(void **state)
{
	struct mcp_remove_match all = { .flags = MCP_REMOVE_FORCE };
	struct mc_thread thread[THREADS], keeper;
	uint64_t removed;
	uintptr_t i;

	(void)state;
	if (getenv("MASTER_TEST_STEPS"))
		steps = (unsigned)atoi(getenv("MASTER_TEST_STEPS"));
	fx_up(&fx, SEGMENTS, MIB, quick_leases);
	mc_clock_real();
	fx.m->start_ms = mc_now_ms();
	fx.m->tick_ns = mc_now_ns();
	for (i = 1; i <= SEGMENTS; i++)
		owner[i] = calloc(MIB / MCM_GRANULE, sizeof(uint64_t));
	assert_int_equal(mc_thread_start(&keeper, "keeper", housekeeper, NULL), 0);
	for (i = 0; i < THREADS; i++)
		assert_int_equal(mc_thread_start(&thread[i], "worker", worker, (void *)i), 0);
	for (i = 0; i < THREADS; i++)
		mc_thread_join(thread[i]);
	__atomic_store_n(&done, true, __ATOMIC_RELAXED);
	mc_thread_join(keeper);

	/* All sessions of the workers have ended: nothing is pinned, unfinished or lost. */
	fx_check(&fx);
	assert_int_equal(mcm_remove_match(fx.m, &all, &removed), 0);
	assert_int_equal(mcm_index_count(&fx.m->index), 0);
	fx_confirm(&fx);
	assert_int_equal(fx.m->puts.quarantine.pending, 0);
	assert_true(mc_list_empty(&fx.m->puts.quarantine.aborted));
	mcm_evict_background(fx.m);
	assert_int_equal(fx_used(&fx), 0);
	assert_int_equal(fx_metric("mooncake_master_zombies"), 0);
	assert_int_equal(fx_metric("mooncake_master_pins"), 0);
	assert_int_equal(fx_metric("mooncake_master_unfinished_puts"), 0);
	assert_int_equal(fx_metric("master_soft_pin_key_count"), 0);
	for (i = 0; i < SEGMENTS; i++)
		assert_int_equal(mcm_load_relaxed(&fx.m->segments.at[i]->evictable), 0);
	assert_int_equal(fx.m->names.count, 1);
	for (i = 1; i <= SEGMENTS; i++)
		free(owner[i]);
	fx_down(&fx);
}

/* ---- the target of replacing renames exists at any time ---- */

static void *watcher(void *arg)
{
	struct mcm_list_page pg = { 0 };
	struct mcp_list rq = { .flags = MCP_LIST_DIR, .limit = 10, .prefix = fx_bytes("dir/") };
	uint64_t last = 0;
	struct mcp_object o;
	unsigned i, n;

	(void)arg;
	while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
		assert_int_equal(fx_stat(&fx, "dir/target", &o), 0);
		assert_true(o.generation >= last);
		last = o.generation;
		assert_int_equal(mcm_list(fx.m, &rq, &pg), 0);
		for (i = n = 0; i < pg.names.count; i++)
			n += pg.names.item[i].name_len == 6 &&
				!memcmp(pg.names.text + pg.names.item[i].name, "target", 6);
		assert_int_equal(n, 1);
	}
	mcm_names_page_done(&pg.names);
	return NULL;
}

static void test_renames(void **state)
{
	struct mc_thread thread[3];
	char key[32];
	unsigned i;

	(void)state;
	done = false;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "dir/target", 1000, 0), 0);
	for (i = 0; i < 3; i++)
		assert_int_equal(mc_thread_start(&thread[i], "watcher", watcher, NULL), 0);
	for (i = 0; i < steps; i++) {
		/* from the same directory and from others, from any shard */
		sprintf(key, "%s/tmp-%u", i % 2 ? "dir" : "other", i % 100);
		assert_int_equal(fx_put(&fx, key, 1000, 0), 0);
		assert_int_equal(fx_rename(&fx, key, "dir/target", 0), 0);
	}
	__atomic_store_n(&done, true, __ATOMIC_RELAXED);
	for (i = 0; i < 3; i++)
		mc_thread_join(thread[i]);
	assert_int_equal(mcm_index_count(&fx.m->index), 1);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hammer),
		cmocka_unit_test(test_renames),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
