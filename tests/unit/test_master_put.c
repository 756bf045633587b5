/* SPDX-License-Identifier: Apache-2.0
 * Two-phase puts: which one wins, which version readers see meanwhile, and when space is freed. */
#include <config.h>

#include "test_master_fixture.h"

#include <string.h>

#define MIB (1u << 20)

static void test_two_phases(void **state)
{
	struct mcm_put_granted g;
	struct mcp_object o;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, 16 * MIB, NULL);
	assert_int_equal(fx_start(&fx, fx.s, "a", 100000, 0, &g), 0);
	assert_int_equal(g.copies, 1);
	assert_int_equal(g.replica[0].offset % 4096, 0);
	/* Invisible until it is committed. */
	assert_int_equal(fx_stat(&fx, "a", NULL), -MC_ENOOBJECT);
	assert_int_equal(fx_exist(&fx, "a", 0), 0);
	assert_int_equal(fx_end(&fx, "b", g.generation), -MC_ESTALE_PUT);
	assert_int_equal(fx_end(&fx, "a", g.generation + 64), -MC_ESTALE_PUT);
	assert_int_equal(fx_end(&fx, "a", g.generation), 0);
	assert_int_equal(fx_end(&fx, "a", g.generation), -MC_ESTALE_PUT);
	assert_int_equal(fx_stat(&fx, "a", &o), 0);
	assert_int_equal(o.size, 100000);
	assert_int_equal(o.generation, g.generation);
	assert_int_equal(o.crc, 42);
	assert_int_equal(o.pin, 0);
	/* The first put wins, and a second one is refused before it writes. */
	assert_int_equal(fx_start(&fx, fx.s, "a", 5, 0, &g), -MC_EEXISTS);
	fx_down(&fx);
}

static void test_two_writers(void **state)
{
	struct mcm_put_granted g1, g2;
	struct mcp_object o;
	struct fixture fx;
	uint64_t used;

	(void)state;
	fx_up(&fx, 1, 16 * MIB, NULL);
	assert_int_equal(fx_start(&fx, fx.s, "a", 100, 0, &g1), 0);
	assert_int_equal(fx_start(&fx, fx.s, "a", 200, 0, &g2), 0);
	assert_true(g2.generation > g1.generation);
	assert_int_not_equal(g1.replica[0].offset, g2.replica[0].offset);
	used = fx_used(&fx);
	assert_int_equal(fx_end(&fx, "a", g2.generation), 0);
	/* The loser's space is freed at once; its value was never visible. */
	assert_int_equal(fx_end(&fx, "a", g1.generation), -MC_EEXISTS);
	assert_int_equal(used - fx_used(&fx), 128);
	assert_int_equal(fx_stat(&fx, "a", &o), 0);
	assert_int_equal(o.size, 200);
	fx_down(&fx);
}

static void test_upsert(void **state)
{
	struct mcp_object o1, o2, o3;
	struct mcp_replica r1, r2;
	struct fixture fx;
	uint64_t used;

	(void)state;
	fx_up(&fx, 1, 16 * MIB, NULL);
	assert_int_equal(fx_put(&fx, "a", 4096, MCP_PUT_UPSERT), 0);
	assert_int_equal(fx_pin(&fx, fx.s, "a", MCP_GET_LEASE, &o1, &r1), 0);
	assert_int_not_equal(o1.pin, 0);
	assert_int_equal(o1.lease_ms, fx.conf.default_kv_lease_ttl);
	assert_int_equal(fx_put(&fx, "a", 8192, MCP_PUT_UPSERT), 0);
	/* New readers get the new version; the old version's memory stays until its reader releases
	 * it. */
	assert_int_equal(fx_pin(&fx, fx.s, "a", MCP_GET_LEASE, &o2, &r2), 0);
	assert_int_equal(o2.size, 8192);
	assert_int_not_equal(r1.offset, r2.offset);
	used = fx_used(&fx);
	assert_int_equal(used, 4096 + 8192);
	fx_check(&fx);
	fx_release(&fx, fx.s, o1.pin);
	assert_int_equal(fx_used(&fx), 8192);
	/* A second release has no effect. */
	fx_release(&fx, fx.s, o1.pin);
	assert_int_equal(fx_stat(&fx, "a", &o3), 0);
	fx_release(&fx, fx.s, o2.pin);
	assert_int_equal(fx_used(&fx), 8192);
	fx_down(&fx);
}

static void test_revoke(void **state)
{
	struct mcm_put_granted g;
	struct mcm_session *other;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, 16 * MIB, NULL);
	/* A writer revokes when all of its writes have ended: the memory is freed at once, its own and another's. */
	assert_int_equal(fx_start(&fx, fx.s, "a", 4096, 0, &g), 0);
	assert_int_equal(fx_revoke(&fx, "a", g.generation), 0);
	assert_int_equal(fx_revoke(&fx, "a", g.generation), -MC_ESTALE_PUT);
	assert_int_equal(fx_end(&fx, "a", g.generation), -MC_ESTALE_PUT);
	assert_int_equal(fx_used(&fx), 0);
	other = fx_session(&fx, 2);
	assert_int_equal(fx_start(&fx, other, "a", 4096, 0, &g), 0);
	assert_int_equal(fx_revoke_by(&fx, other, "a", g.generation), 0);
	assert_int_equal(fx_used(&fx), 0);
	assert_int_equal(fx.m->puts.quarantine.pending, 0);
	fx_down(&fx);
}

/* Another session knows key and generation (generations can be guessed), or has the same client's id: it ends no
 * put. */
static void test_only_its_session_ends_a_put(void **state)
{
	struct mcm_session *other, *same;
	struct mcm_put_granted g;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, 16 * MIB, NULL);
	other = fx_session(&fx, 2);
	same = fx_session(&fx, 1);
	assert_int_equal(fx_start(&fx, fx.s, "a", 4096, 0, &g), 0);
	assert_int_equal(fx_end_by(&fx, other, "a", g.generation), -MC_ESTALE_PUT);
	assert_int_equal(fx_revoke_by(&fx, other, "a", g.generation), -MC_ESTALE_PUT);
	assert_int_equal(fx_end_by(&fx, same, "a", g.generation), -MC_ESTALE_PUT);
	assert_int_equal(fx_revoke_by(&fx, same, "a", g.generation), -MC_ESTALE_PUT);
	assert_int_equal(fx_stat(&fx, "a", NULL), -MC_ENOOBJECT);
	assert_int_equal(fx_used(&fx), 4096);
	assert_int_equal(fx_end(&fx, "a", g.generation), 0);
	assert_int_equal(fx_stat(&fx, "a", NULL), 0);
	fx_down(&fx);
}

static void test_session_ends(void **state)
{
	struct mcm_session *other;
	struct mcp_object o;
	struct fixture fx;
	char key[16];
	int i;

	(void)state;
	fx_up(&fx, 1, 16 * MIB, NULL);
	assert_int_equal(fx_put(&fx, "held", 4096, 0), 0);
	other = fx_session(&fx, 2);
	for (i = 0; i < 100; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		assert_int_equal(fx_start(&fx, other, key, 10000, 0, NULL), 0);
	}
	assert_int_equal(fx_pin(&fx, other, "held", MCP_GET_HOLD, &o, NULL), 0);
	assert_int_equal(o.lease_ms, 0);
	assert_int_equal(fx_remove(&fx, "held", 0), -MC_ELEASED);
	assert_int_equal(fx_remove(&fx, "held", MCP_REMOVE_FORCE), 0);
	assert_int_equal(fx_stat(&fx, "held", NULL), -MC_ENOOBJECT);
	fx_session_end(&fx, other);
	fx_advance(&fx, 1000);
	assert_in_range(fx_used(&fx), 100 * 10000, 16 * MIB);
	fx_stays_aside(&fx, 600000);
	fx_confirm(&fx);
	assert_int_equal(fx_used(&fx), 0);
	fx_down(&fx);
}

static void test_timeouts(void **state)
{
	struct mcm_put_granted g1, g2;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, 16 * MIB, NULL);
	/* An old upsert does not replace a version that was put after it began. */
	assert_int_equal(fx_start(&fx, fx.s, "a", 100, MCP_PUT_UPSERT, &g1), 0);
	assert_int_equal(fx_put(&fx, "a", 200, MCP_PUT_UPSERT), 0);
	assert_int_equal(fx_start(&fx, fx.s, "a", 300, MCP_PUT_UPSERT, &g2), 0);
	fx.m->conf.client_ttl = 3600 * 1000;
	fx_advance(&fx, 31000);
	assert_int_equal(fx_end(&fx, "a", g1.generation), -MC_ESTALE_PUT);
	/* An upsert that began later does, however long it takes. */
	assert_int_equal(fx_end(&fx, "a", g2.generation), 0);
	/* A stuck writer loses its put, and the space is free when it is fenced. */
	assert_int_equal(fx_start(&fx, fx.s, "b", 4096, 0, &g1), 0);
	fx_advance(&fx, fx.conf.put_start_release_timeout_sec - 1000);
	assert_int_equal(fx_used(&fx), 320 + 4096);
	fx_advance(&fx, 1000 + 3 * mcm_tick_ms(fx.m));
	assert_int_equal(fx.m->puts.quarantine.pending, 1);
	fx_stays_aside(&fx, 600000);
	assert_int_equal(fx_used(&fx), 320 + 4096);
	fx_confirm(&fx);
	assert_int_equal(fx_used(&fx), 320);
	assert_int_equal(fx_end(&fx, "b", g1.generation), -MC_ESTALE_PUT);
	fx_down(&fx);
}

static void test_empty_objects(void **state)
{
	struct mcm_put_granted g;
	struct mcp_object o;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 0, 0, NULL);
	/* An object without bytes needs no memory. */
	assert_int_equal(fx_start(&fx, fx.s, "e", 0, 0, &g), 0);
	assert_int_equal(fx_stat(&fx, "e", NULL), -MC_ENOOBJECT);
	assert_int_equal(fx_end(&fx, "e", g.generation), 0);
	assert_int_equal(fx_put(&fx, "f", 0, MCP_PUT_COMMIT), 0);
	assert_int_equal(fx_put(&fx, "f", 0, MCP_PUT_COMMIT), -MC_EEXISTS);
	assert_int_equal(fx_put(&fx, "f", 0, MCP_PUT_COMMIT | MCP_PUT_UPSERT), 0);
	assert_int_equal(fx_pin(&fx, fx.s, "f", MCP_GET_LEASE, &o, NULL), 0);
	assert_int_equal(o.size, 0);
	assert_int_equal(o.pin, 0);
	assert_int_equal(fx_exist(&fx, "f", 0), 1);
	assert_int_equal(fx_put(&fx, "g", 1, 0), -MC_ENOSPACE);
	fx_down(&fx);
}

static void test_bad_input(void **state)
{
	struct mcm_put_request rq = { .copies = 1 };
	struct mcp_put_item item = { .size = 1 };
	struct mcm_put_granted g;
	struct fixture fx;
	char key[4097];

	(void)state;
	fx_up(&fx, 1, 16 * MIB, NULL);
	memset(key, 'k', sizeof(key));
	item.key = mcp_bytes(key, 0);
	assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &item, &g), -MC_EKEY);
	item.key = mcp_bytes(key, 4097);
	assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &item, &g), -MC_EKEY);
	assert_int_equal(mcm_remove(fx.m, 0, item.key), -MC_EKEY);
	item.key = mcp_bytes(key, 4096);
	assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &item, &g), 0);
	item.kind = 3;
	assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &item, &g), -MC_EPARAM);
	item.kind = 0;
	item.size = 16 * MIB + 1;
	assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &item, &g), -MC_ETOOBIG);
	item.size = UINT64_MAX;
	assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &item, &g), -MC_ETOOBIG);
	fx_down(&fx);
}

static void two_puts(struct mcm_conf *conf)
{
	conf->max_session_puts = 2;
	conf->max_session_pins = 2;
	conf->max_objects = 256;
}

static void test_limits(void **state)
{
	struct mcp_object o[3];
	struct fixture fx;
	char key[16];
	int i, r = 0;

	(void)state;
	fx_up(&fx, 1, 16 * MIB, two_puts);
	assert_int_equal(fx_put(&fx, "x", 100, 0), 0);
	assert_int_equal(fx_start(&fx, fx.s, "a", 1, 0, NULL), 0);
	assert_int_equal(fx_start(&fx, fx.s, "b", 1, 0, NULL), 0);
	assert_int_equal(fx_start(&fx, fx.s, "c", 1, 0, NULL), -MC_ELIMIT);
	assert_int_equal(fx_pin(&fx, fx.s, "x", MCP_GET_LEASE, &o[0], NULL), 0);
	assert_int_equal(fx_pin(&fx, fx.s, "x", MCP_GET_HOLD, &o[1], NULL), 0);
	assert_int_equal(fx_pin(&fx, fx.s, "x", MCP_GET_LEASE, &o[2], NULL), -MC_ELIMIT);
	fx_release(&fx, fx.s, o[0].pin);
	assert_int_equal(fx_pin(&fx, fx.s, "x", MCP_GET_LEASE, &o[2], NULL), 0);
	for (i = 0; i < 100000 && r == 0; i++) {
		snprintf(key, sizeof(key), "n%d", i);
		r = fx_put(&fx, key, 0, MCP_PUT_COMMIT | MCP_PUT_HARD_PIN);
	}
	/* No object is evictable: x is pinned, the others are hard-pinned or unfinished. */
	assert_int_equal(r, -MC_ENOSPACE);
	assert_int_equal(mcm_index_count(&fx.m->index), 254);
	fx_down(&fx);
}

static void a_thousand(struct mcm_conf *conf)
{
	conf->max_objects = 1000;
}

static void test_max_objects(void **state)
{
	struct mcm_put_granted g;
	struct fixture fx;
	char key[16];
	unsigned i;

	(void)state;
	fx_up(&fx, 3, 16 * MIB, a_thousand);
	for (i = 0; i < 500; i++) {
		snprintf(key, sizeof(key), "h%u", i);
		assert_int_equal(fx_put(&fx, key, 64, MCP_PUT_HARD_PIN), 0);
	}
	for (i = 0; i < 5000; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		assert_int_equal(fx_put(&fx, key, i % 2 ? 64 : 100, 0), 0);
		assert_in_range(mcm_index_count(&fx.m->index), 1, 1000);
	}
	assert_int_equal(mcm_index_count(&fx.m->index), 1000);
	/* Unfinished puts are counted too, so that they can be committed. */
	assert_int_equal(fx_start(&fx, fx.s, "late", 64, 0, &g), 0);
	assert_int_equal(mcm_index_count(&fx.m->index), 999);
	assert_int_equal(fx_put(&fx, "more", 64, 0), 0);
	assert_int_equal(mcm_index_count(&fx.m->index), 999);
	assert_int_equal(fx_end(&fx, "late", g.generation), 0);
	assert_int_equal(mcm_index_count(&fx.m->index), 1000);
	/* A smaller limit after a restart: each put reduces the number of objects. */
	fx.m->index.max = 600;
	for (i = 0; i < 20; i++) {
		snprintf(key, sizeof(key), "r%u", i);
		assert_int_equal(fx_put(&fx, key, 64, 0), 0);
	}
	assert_int_equal(mcm_index_count(&fx.m->index), 600);
	/* If no object is evictable, only a put that replaces an object succeeds. */
	for (i = 500; i < 600; i++) {
		snprintf(key, sizeof(key), "h%u", i);
		assert_int_equal(fx_put(&fx, key, 64, MCP_PUT_HARD_PIN), 0);
	}
	assert_int_equal(fx_put(&fx, "no", 64, 0), -MC_ENOSPACE);
	assert_int_equal(fx_put(&fx, "no", 64, MCP_PUT_UPSERT), -MC_ENOSPACE);
	assert_int_equal(fx_put(&fx, "h7", 64, MCP_PUT_UPSERT), 0);
	assert_int_equal(mcm_index_count(&fx.m->index), 600);
	assert_int_equal(fx_start(&fx, fx.s, "h8", 64, MCP_PUT_UPSERT, &g), 0);
	assert_int_equal(fx_revoke(&fx, "h8", g.generation), 0);
	assert_int_equal(fx_remove(&fx, "h8", 0), 0);
	assert_int_equal(fx_put(&fx, "yes", 64, 0), 0);
	assert_int_equal(fx.m->index.count, 600);
	fx_down(&fx);
}

/* Each level of eviction on all segments before the next level on any, for many segments as for
 * one. */
static void test_max_objects_by_kind(void **state)
{
	struct fixture fx;
	char key[16];
	unsigned i, soft = 0, plain = 0;

	(void)state;
	fx_up(&fx, 3, 16 * MIB, a_thousand);
	for (i = 0; i < 1000; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		assert_int_equal(fx_put(&fx, key, 64, i < 400 ? MCP_PUT_SOFT_PIN : 0), 0);
	}
	for (i = 0; i < 500; i++) {
		snprintf(key, sizeof(key), "n%u", i);
		assert_int_equal(fx_put(&fx, key, 64, MCP_PUT_HARD_PIN), 0);
	}
	for (i = 0; i < 1000; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		if (i < 400)
			soft += fx_stat(&fx, key, NULL) == 0;
		else
			plain += fx_stat(&fx, key, NULL) == 0;
	}
	assert_int_equal(soft, 400);
	assert_int_equal(plain, 100);
	fx_down(&fx);
}

/* Begin or end @n puts in one call. */
static void many(struct fixture *fx, const char *const *key, unsigned n,
		 struct mcm_put_granted *g, int *ret)
{
	struct mcm_put_request rq = { .copies = 1 };
	struct mcp_put_item item[MCM_PREFETCH_MAX];
	unsigned i;

	for (i = 0; i < n; i++)
		item[i] = (struct mcp_put_item){ .key = fx_bytes(key[i]), .size = 100 + i };
	mcm_put_start_many(fx->m, fx->s, &rq, item, n, g, ret);
}

static void end_many(struct fixture *fx, const char *const *key, unsigned n,
		     const struct mcm_put_granted *g, int *ret)
{
	struct mcp_put_done done[MCM_PREFETCH_MAX];
	unsigned i;

	for (i = 0; i < n; i++)
		done[i] = (struct mcp_put_done){ .key = fx_bytes(key[i]), .generation = g[i].generation, .crc = i };
	mcm_put_end_many(fx->m, fx->s, done, n, ret);
}

/* Each item of a batch has its own result, whatever the results of the others. */
static void test_many(void **state)
{
	static const char *const key[] = {
		"d/a", "d/b", "d/", "a", "there", "e/f/g", "", "d/a", "d/c",
	};
	enum { N = sizeof(key) / sizeof(key[0]) };
	struct mcm_put_granted g[N] = { 0 };
	struct mcp_object o;
	struct fixture fx;
	unsigned i;
	int r[N];

	(void)state;
	fx_up(&fx, 1, 16 * MIB, NULL);
	assert_int_equal(fx_put(&fx, "there", 5, 0), 0);
	many(&fx, key, N, g, r);
	for (i = 0; i < N; i++)
		assert_int_equal(r[i], i == 4 ? -MC_EEXISTS : i == 6 ? -MC_EKEY : 0);
	g[4].generation = 77;
	g[6].generation = g[5].generation;
	g[1].generation++;
	end_many(&fx, key, N, g, r);
	for (i = 0; i < N; i++)
		assert_int_equal(r[i], i == 1 || i == 4 || i == 6 ? -MC_ESTALE_PUT :
				 i == 7 ? -MC_EEXISTS : 0);
	assert_int_equal(fx_stat(&fx, "d/a", &o), 0);
	assert_int_equal(o.size, 100);
	assert_int_equal(o.crc, 0);
	assert_int_equal(fx_stat(&fx, "d/c", &o), 0);
	assert_int_equal(o.size, 108);
	assert_int_equal(o.crc, 8);
	assert_int_equal(fx_stat(&fx, "d/b", NULL), -MC_ENOOBJECT);
	assert_true(mcm_names_busy(&fx.m->names, "e/f/", 4));
	fx_check(&fx);
	/* A directory that was only opened by a batch does not stay. */
	assert_int_equal(fx_remove(&fx, "e/f/g", 0), 0);
	assert_int_equal(fx_remove(&fx, "d/a", 0), 0);
	assert_int_equal(fx_remove(&fx, "d/c", 0), 0);
	assert_int_equal(fx_remove(&fx, "d/", 0), 0);
	assert_int_equal(fx.m->names.count, 1);
	g[1].generation--;
	assert_int_equal(fx_end(&fx, "d/b", g[1].generation), 0);
	fx_check(&fx);
	fx_down(&fx);
}

/* A put above the limit of its connection acquires nothing. */
static void test_many_limit(void **state)
{
	static const char *const key[] = { "a", "b", "c", "d" };
	struct mcm_put_granted g[4] = { 0 };
	struct fixture fx;
	uint64_t used;
	int r[4];

	(void)state;
	fx_up(&fx, 1, 16 * MIB, two_puts);
	many(&fx, key, 4, g, r);
	assert_int_equal(r[0], 0);
	assert_int_equal(r[1], 0);
	assert_int_equal(r[2], -MC_ELIMIT);
	assert_int_equal(r[3], -MC_ELIMIT);
	used = fx_used(&fx);
	assert_int_equal(used, 256);
	end_many(&fx, key, 4, g, r);
	assert_int_equal(r[0], 0);
	assert_int_equal(r[1], 0);
	many(&fx, key + 2, 2, g, r);
	assert_int_equal(r[0], 0);
	assert_int_equal(r[1], 0);
	end_many(&fx, key + 2, 2, g, r);
	assert_int_equal(r[1], 0);
	fx_check(&fx);
	fx_down(&fx);
}

/* Copies are placed on segments of different names; fewer copies are a success. */
static void test_copies(void **state)
{
	struct mcm_put_request rq = { .copies = 3 };
	struct mcp_put_item item = { .key = { "c", 1 }, .size = 10000 };
	struct mcp_replica replica[MCM_REPLICA_MAX];
	struct mcm_put_granted g;
	struct mcp_object o;
	struct fixture fx;
	unsigned n;

	(void)state;
	fx_up(&fx, 4, MIB, NULL);
	assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &item, &g), 0);
	assert_int_equal(g.copies, 3);
	assert_false(mcp_id_eq(g.replica[0].segment, g.replica[1].segment));
	assert_false(mcp_id_eq(g.replica[0].segment, g.replica[2].segment));
	assert_false(mcp_id_eq(g.replica[1].segment, g.replica[2].segment));
	assert_int_equal(fx_end(&fx, "c", g.generation), 0);
	assert_int_equal(mcm_get(fx.m, NULL, 0, item.key, &o, replica, &n), 0);
	assert_int_equal(n, 3);
	rq.copies = 8;
	item.key = fx_bytes("d");
	assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &item, &g), 0);
	assert_int_equal(g.copies, 4);
	/* One segment fewer is one copy fewer. */
	fx_advance(&fx, 0);
	{
		uint64_t lost;

		assert_int_equal(mcm_unmount(fx.m, fx.s->client, g.replica[0].segment, &lost), 0);
		assert_int_equal(fx_end(&fx, "d", g.generation), 0);
		fx_advance(&fx, 0);
		assert_int_equal(mcm_get(fx.m, NULL, 0, item.key, &o, replica, &n), 0);
		assert_int_equal(n, 3);
	}
	fx_down(&fx);
}

/* A preferred segment gets the object as long as it has space. */
static void test_preferred(void **state)
{
	uint64_t preferred = mc_hash("seg-3", 5, 0);
	struct mcm_put_request rq = { .copies = 1, .preferred = &preferred, .n_preferred = 1 };
	struct mcm_put_granted g;
	struct fixture fx;
	unsigned i, other = 0;
	char key[16];

	(void)state;
	fx_up(&fx, 4, MIB, NULL);
	for (i = 0; i < 20; i++) {
		struct mcp_put_item item = { .size = 65536 };

		snprintf(key, sizeof(key), "p%u", i);
		item.key = fx_bytes(key);
		assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &item, &g), 0);
		if (g.replica[0].segment.lo != 3)
			other++;
	}
	assert_int_equal(other, 4);
	fx_down(&fx);
}

static void free_ratio_first(struct mcm_conf *conf)
{
	static char name[] = "free_ratio_first";

	conf->allocation_strategy = name;
}

/* The emptiest of few segments is found each time, so they fill evenly. */
static void test_free_ratio(void **state)
{
	struct fixture fx;
	unsigned i;
	char key[16];

	(void)state;
	fx_up(&fx, 3, MIB, free_ratio_first);
	assert_int_equal(fx_mount(&fx, 1, 9, 9, 2 * MIB, NULL), 0);
	for (i = 0; i < 80; i++) {
		snprintf(key, sizeof(key), "f%u", i);
		assert_int_equal(fx_put(&fx, key, 32768, 0), 0);
	}
	/* 80 of 160 objects fit: every segment is half full. */
	for (i = 0; i < 4; i++) {
		const struct mcm_segment *s = fx.m->segments.at[i];

		assert_in_range(mcm_load_relaxed(&s->used) * 100 / s->size, 45, 55);
	}
	fx_down(&fx);
}

static void any_segment(struct mcm_conf *conf)
{
	static char name[] = "random";

	conf->allocation_strategy = name;
}

/* Every segment gets some of many objects, whatever its fill level and position. */
static void test_random(void **state)
{
	struct fixture fx;
	unsigned i;
	char key[16];

	(void)state;
	fx_up(&fx, 4, MIB, any_segment);
	for (i = 0; i < 400; i++) {
		snprintf(key, sizeof(key), "r%u", i);
		assert_int_equal(fx_put(&fx, key, 4096, 0), 0);
	}
	/* About 100 each: the standard deviation is below 9. */
	for (i = 0; i < 4; i++)
		assert_in_range(mcm_load_relaxed(&fx.m->segments.at[i]->used) / 4096, 40, 160);
	fx_down(&fx);
}

/* Thousands of keys in one query, some of them twice, some invalid: each answer has the index of
 * its key. */
static void test_many_exist(void **state)
{
	enum { N = 5000 };
	static struct mcp_bytes key[N];
	static uint8_t present[N];
	static char text[N][12];
	struct fixture fx;
	unsigned i;

	(void)state;
	fx_up(&fx, 1, 64 * MIB, NULL);
	for (i = 0; i < N; i++) {
		/* 100 of each 1,000 are repeated in the next */
		snprintf(text[i], sizeof(text[i]), "e%u", i % 1000 < 100 ? i % 1000 : i);
		key[i] = i % 13 ? fx_bytes(text[i]) : (struct mcp_bytes){ "", 0 };
		if (i % 3 == 0 && fx_stat(&fx, text[i], NULL) < 0)
			assert_int_equal(fx_put(&fx, text[i], 64, 0), 0);
		present[i] = 7;
	}
	mcm_exist(fx.m, MCP_EXIST_PEEK, key, N, present);
	for (i = 0; i < N; i++)
		assert_int_equal(present[i], i % 13 && fx_stat(&fx, text[i], NULL) == 0);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two_phases),
		cmocka_unit_test(test_two_writers),
		cmocka_unit_test(test_upsert),
		cmocka_unit_test(test_revoke),
		cmocka_unit_test(test_only_its_session_ends_a_put),
		cmocka_unit_test(test_session_ends),
		cmocka_unit_test(test_timeouts),
		cmocka_unit_test(test_empty_objects),
		cmocka_unit_test(test_bad_input),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_max_objects), cmocka_unit_test(test_max_objects_by_kind),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_many_limit),
		cmocka_unit_test(test_copies),
		cmocka_unit_test(test_preferred),
		cmocka_unit_test(test_free_ratio),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_many_exist),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
