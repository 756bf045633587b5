/* SPDX-License-Identifier: Apache-2.0
 * test_master_fit.c - a put that cannot fit is refused before it evicts; a put with MCP_PUT_NO_EVICT never evicts. */
#include <config.h>

#include "test_master_tenant_fixture.h"

#include <stdio.h>
#include <string.h>

#include "master/admin/stats.h"

#define MIB (1u << 20)
#define KIB 1024u

static void no_background(struct mcm_conf *conf)
{
	conf->eviction_high_watermark_ratio = 1.0;
	conf->client_ttl = 3600 * 1000;
}

static void few_objects(struct mcm_conf *conf)
{
	no_background(conf);
	conf->max_objects = 64;
}

static void tenants(struct mcm_conf *conf)
{
	no_background(conf);
	tx_tune(conf);
}

static struct mcm_segment *seg(struct fixture *fx, uint64_t id)
{
	char name[32];

	snprintf(name, sizeof(name), "seg-%u", (unsigned)id);
	return mcm_segments_named(&fx->m->segments, mc_hash(name, strlen(name), 0), NULL);
}

/* Segments of 4 MiB and 1 MiB, filled with 80 objects of 64 KiB. */
static void up_full(struct fixture *fx, void (*tune)(struct mcm_conf *conf))
{
	char key[32];

	fx_up(fx, 1, 4 * MIB, tune);
	assert_int_equal(fx_mount(fx, 1, 7, 7, MIB, NULL), 0);
	for (unsigned i = 0; i < 80; i++) {
		snprintf(key, sizeof(key), "key-%u", i);
		assert_int_equal(fx_put(fx, key, 64 * KIB, 0), 0);
	}
	assert_int_equal(fx_used(fx), 5 * MIB);
}

static unsigned present(struct fixture *fx)
{
	unsigned n = 0;
	char key[32];

	for (unsigned i = 0; i < 80; i++) {
		snprintf(key, sizeof(key), "key-%u", i);
		n += fx_exist(fx, key, MCP_EXIST_PEEK);
	}
	return n;
}

static int put_copies(struct fixture *fx, const char *key, uint64_t size, unsigned copies, uint32_t flags)
{
	struct mcm_put_request rq = { .flags = flags, .copies = copies, .soft_ms = 1000 };
	struct mcp_put_item item = { .key = fx_bytes(key), .size = size };
	struct mcm_put_granted g;
	int r = mcm_put_start(fx->m, fx->s, &rq, &item, &g);

	return r < 0 ? r : fx_end(fx, key, g.generation);
}

static void mount_disk(struct fixture *fx, uint64_t size)
{
	const struct mcp_mount rq = {
		.segment = { 7, 50 }, .client = { 7, 1 }, .epoch = 50, .size = size, .base = 1ull << 62, .rkey = 6,
		.name = fx_bytes("disk"), .endpoint = fx_bytes("host:1"), .protocol = fx_bytes("tcp"),
		.medium = MCP_MEDIUM_DISK,
	};
	struct mcp_mount_reply reply;

	assert_int_equal(mcm_mount(fx->m, rq.client, NULL, &rq, &reply), 0);
}

static void a_put_larger_than_a_segment_evicts_nothing(void **state)
{
	struct mcp_stats_reply st;
	struct fixture fx;

	(void)state;
	up_full(&fx, no_background);
	mount_disk(&fx, 64 * MIB);
	assert_int_equal(fx_put(&fx, "new", 4 * MIB + 1, 0), -MC_ETOOBIG);
	assert_int_equal(fx_put(&fx, "key-1", 4 * MIB + 1, MCP_PUT_UPSERT), -MC_ETOOBIG);
	/* The segment that could take it accepts no objects, nor does a disk take the object instead. */
	mcm_store_relaxed(&seg(&fx, 1)->draining, MCP_SEG_DRAINING);
	assert_int_equal(fx_put(&fx, "new", 2 * MIB, 0), -MC_ENOSPACE);
	mcm_stats(fx.m, &st);
	assert_in_range(st.largest_put, MIB - 4 * KIB, MIB);
	assert_int_equal(present(&fx), 80);
	mcm_store_relaxed(&seg(&fx, 1)->draining, 0);
	assert_int_equal(fx_put(&fx, "new", 2 * MIB, 0), 0);
	mcm_stats(fx.m, &st);
	assert_in_range(st.largest_put, 4 * MIB - 4 * KIB, 4 * MIB);
	fx_down(&fx);
}

/* One item of a batch cannot fit: the others are stored, and only for them objects are evicted. */
static void a_large_item_of_a_batch_evicts_nothing(void **state)
{
	struct mcp_put_item item[3] = {
		{ .key = fx_bytes("a"), .size = 64 * KIB - 64 }, { .key = fx_bytes("b"), .size = 5 * MIB },
		{ .key = fx_bytes("c"), .size = 64 * KIB - 64 },
	};
	struct mcm_put_request rq = { .copies = 1 };
	struct mcm_put_granted g[3];
	struct fixture fx;
	int r[3];

	(void)state;
	up_full(&fx, no_background);
	mcm_put_start_many(fx.m, fx.s, &rq, item, 3, g, r);
	assert_int_equal(r[0], 0);
	assert_int_equal(r[1], -MC_ETOOBIG);
	assert_int_equal(r[2], 0);
	assert_in_range(present(&fx), 78, 79);
	fx_down(&fx);
}

/* Two copies are required, but only one segment is large enough for one. */
static void copies_that_cannot_all_fit_evict_nothing(void **state)
{
	struct fixture fx;

	(void)state;
	up_full(&fx, no_background);
	assert_int_equal(put_copies(&fx, "new", 2 * MIB, 2, MCP_PUT_ALL_REPLICAS), -MC_ENOSPACE);
	assert_int_equal(put_copies(&fx, "new", 64 * KIB, 3, MCP_PUT_ALL_REPLICAS), -MC_ENOSPACE);
	assert_int_equal(present(&fx), 80);
	/* Those that are possible are enough without that flag. */
	assert_int_equal(put_copies(&fx, "new", 2 * MIB, 2, 0), 0);
	assert_in_range(present(&fx), 80 - 66, 80 - 32);
	assert_int_equal(put_copies(&fx, "two", 64 * KIB - 64, 2, MCP_PUT_ALL_REPLICAS), 0);
	fx_down(&fx);
}

static void the_limit_of_objects_evicts_nothing_for_it(void **state)
{
	struct fixture fx;
	char key[32];

	(void)state;
	fx_up(&fx, 1, 4 * MIB, few_objects);
	for (unsigned i = 0; i < 64; i++) {
		snprintf(key, sizeof(key), "key-%u", i);
		assert_int_equal(fx_put(&fx, key, 4 * KIB, 0), 0);
	}
	assert_int_equal(fx_put(&fx, "new", 5 * MIB, 0), -MC_ETOOBIG);
	assert_int_equal(fx_put(&fx, "new", 4 * KIB, MCP_PUT_NO_EVICT), -MC_ENOSPACE);
	assert_int_equal(present(&fx), 64);
	assert_int_equal(mcm_index_count(&fx.m->index), 64);
	assert_int_equal(fx_put(&fx, "new", 4 * KIB, 0), 0);
	assert_int_equal(present(&fx), 63);
	fx_down(&fx);
}

static void a_tenant_keeps_its_objects(void **state)
{
	struct mcp_tenant was;
	struct fixture fx;
	char key[32];

	(void)state;
	fx_up(&fx, 1, 4 * MIB, tenants);
	assert_int_equal(fx_mount(&fx, 1, 7, 7, 8 * MIB, NULL), 0);
	tx_quota(&fx, "alice", 6 * MIB);
	tx_quota(&fx, "bob", 6 * MIB);
	for (unsigned i = 0; i < 48; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		assert_int_equal(tx_put(&fx, "alice", key, 128 * KIB - 64, 0), 0);
		if (i < 47)
			assert_int_equal(tx_put(&fx, "bob", key, 128 * KIB - 64, 0), 0);
	}
	was = tx_figures(&fx, "alice");
	/* Within its quota, but no segment could hold it. */
	mcm_store_relaxed(&seg(&fx, 7)->draining, MCP_SEG_DRAINING);
	assert_int_equal(tx_put(&fx, "alice", "new", 5 * MIB, 0), -MC_ENOSPACE);
	assert_int_equal(tx_figures(&fx, "alice").objects, was.objects);
	assert_int_equal(tx_figures(&fx, "alice").charged, was.charged);
	/* The same when another tenant is above its share, and would lose objects first. */
	tx_quota(&fx, "bob", MIB);
	tx_quota(&fx, "alice", 11 * MIB);
	assert_true(tx_figures(&fx, "bob").charged > tx_figures(&fx, "bob").effective);
	assert_int_equal(tx_put(&fx, "alice", "new", 4 * MIB + 64, 0), -MC_ENOSPACE);
	assert_int_equal(tx_figures(&fx, "bob").objects, 47);
	mcm_store_relaxed(&seg(&fx, 7)->draining, 0);
	assert_int_equal(tx_put(&fx, "alice", "new", 4 * MIB + 64, 0), 0);
	assert_in_range(tx_figures(&fx, "bob").objects, 1, 46);
	fx_down(&fx);
}

static void watermark(struct mcm_conf *conf)
{
	conf->eviction_high_watermark_ratio = 0.9;
	conf->client_ttl = 3600 * 1000;
}

/* With MCP_PUT_NO_EVICT a put takes free space only, and only below the watermark: the background evictor must not
 * free as many bytes again. */
static void no_evict_takes_free_space_only(void **state)
{
	struct mcm_put_granted g[2];
	struct fixture fx;
	char key[32];

	(void)state;
	fx_up(&fx, 1, 4 * MIB, watermark);
	for (unsigned i = 0; i < 32; i++) {
		snprintf(key, sizeof(key), "key-%u", i);
		assert_int_equal(fx_put(&fx, key, 64 * KIB - 64, 0), 0);
	}
	assert_int_equal(fx_start(&fx, fx.s, "new", 2 * MIB - 4 * KIB, MCP_PUT_NO_EVICT, NULL), -MC_ENOSPACE);
	assert_int_equal(fx_start(&fx, fx.s, "new", MIB, MCP_PUT_NO_EVICT, &g[0]), 0);
	assert_int_equal(fx_start(&fx, fx.s, "more", MIB - 4 * KIB, MCP_PUT_NO_EVICT, NULL), -MC_ENOSPACE);
	assert_int_equal(fx_start(&fx, fx.s, "more", MIB / 2, MCP_PUT_NO_EVICT, &g[1]), 0);
	fx_advance(&fx, 1000);
	assert_int_equal(present(&fx), 32);
	assert_int_equal(fx_revoke(&fx, "new", g[0].generation), 0);
	assert_int_equal(fx_end(&fx, "more", g[1].generation), 0);
	assert_int_equal(fx_put(&fx, "larger than all", 5 * MIB, MCP_PUT_NO_EVICT), -MC_ETOOBIG);
	/* Without the flag the same size evicts. */
	assert_int_equal(fx_put(&fx, "new", 3 * MIB, 0), 0);
	assert_in_range(present(&fx), 0, 31);
	fx_down(&fx);
}

static void no_evict_keeps_to_the_free_quota(void **state)
{
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, 16 * MIB, tenants);
	tx_quota(&fx, "alice", 4 * MIB);
	assert_int_equal(tx_put(&fx, "alice", "a", 3 * MIB, 0), 0);
	assert_int_equal(tx_put(&fx, "alice", "b", 2 * MIB, MCP_PUT_NO_EVICT), -MC_EQUOTA);
	assert_int_equal(tx_stat(&fx, "alice", "a", NULL), 0);
	assert_int_equal(tx_put(&fx, "alice", "b", MIB, MCP_PUT_NO_EVICT), 0);
	assert_int_equal(tx_figures(&fx, "alice").charged, 4 * MIB);
	assert_int_equal(tx_put(&fx, "alice", "c", 2 * MIB, 0), 0);
	assert_int_equal(tx_stat(&fx, "alice", "a", NULL), -MC_ENOOBJECT);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_put_larger_than_a_segment_evicts_nothing),
		cmocka_unit_test(a_large_item_of_a_batch_evicts_nothing),
		cmocka_unit_test(copies_that_cannot_all_fit_evict_nothing),
		cmocka_unit_test(the_limit_of_objects_evicts_nothing_for_it),
		cmocka_unit_test(a_tenant_keeps_its_objects),
		cmocka_unit_test(no_evict_takes_free_space_only),
		cmocka_unit_test(no_evict_keeps_to_the_free_quota),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
