/* SPDX-License-Identifier: Apache-2.0
 * Tenants: names, key spaces, quotas, shares, restarts. */
#include <config.h>

#include "test_master_tenant_fixture.h"

#include <stdio.h>
#include <string.h>

#include "common/sys/clock.h"
#include "master/memory/scratch.h"
#include "master/service/service_i.h"
#include "proto/rpc_i.h"

#define MIB (1ull << 20)

static char journal[64];

/* ---- helpers ---- */

static void tune_journal(struct mcm_conf *conf)
{
	tx_tune(conf);
	conf->journal_dir = journal;
}

/* All names of a listing, in its order, joined by commas. */
static const char *listed(struct fixture *fx, const char *tenant, const char *prefix, uint32_t flags)
{
	struct mcp_list rq = {
		.flags = flags, .limit = 2, .prefix = fx_bytes(prefix), .tenant = fx_bytes(tenant),
	};
	struct mcm_list_page pg = { 0 };
	static char all[4096];
	uint8_t cursor[16];
	unsigned i;

	all[0] = '\0';
	do {
		assert_int_equal(mcm_list(fx->m, &rq, &pg), 0);
		for (i = 0; i < pg.names.count; i++) {
			const struct mcm_names_item *it = &pg.names.item[i];

			snprintf(all + strlen(all), sizeof(all) - strlen(all), "%.*s%s,",
				 (int)it->name_len, pg.names.text + it->name,
				 it->kind == MCP_KIND_DIR ? "/" : "");
		}
		memcpy(cursor, pg.cursor, sizeof(cursor));
		rq.cursor = mcp_bytes(cursor, pg.cursor_len);
	} while (pg.cursor_len);
	mcm_names_page_done(&pg.names);
	return all;
}

/* A removal that matches nothing, in parts: each continues after the one before. */
static uint64_t parts(struct fixture *fx)
{
	struct mcp_remove_match rq = { .sliced = 1, .pattern = fx_bytes("^no such key$") };
	struct mcp_remove_match_reply reply;
	uint64_t sum = 0;

	do {
		assert_int_equal(mcm_remove_part(fx->m, &rq, &reply), 0);
		assert_true(!reply.at || reply.at > rq.at);
		sum += reply.removed;
		rq.at = reply.at;
	} while (rq.at);
	return sum;
}

/* ---- names and keys ---- */

static void names_are_checked(void **state)
{
	char longest[MCP_TENANT_MAX + 2];

	memset(longest, 'x', sizeof(longest));
	assert_int_equal(mcm_tenant_check_name(fx_bytes("alice")), 0);
	assert_int_equal(mcm_tenant_check_name(fx_bytes("a/b \xc3\xa4 \xf0\x9f\x98\x80")), 0);
	assert_int_equal(mcm_tenant_check_name(fx_bytes("a\xff")), -MC_EPARAM);
	assert_int_equal(mcm_tenant_check_name(fx_bytes("a\xc3")), -MC_EPARAM);
	assert_int_equal(mcm_tenant_check_name(fx_bytes("\xc0\xaf")), -MC_EPARAM);
	assert_int_equal(mcm_tenant_check_name(fx_bytes("\xed\xa0\x80")), -MC_EPARAM);
	assert_int_equal(mcm_tenant_check_name(fx_bytes("\xf4\x90\x80\x80")), -MC_EPARAM);
	assert_int_equal(mcm_tenant_check_name(fx_bytes("_x")), -MC_EPARAM);
	assert_int_equal(mcm_tenant_check_name(fx_bytes("a\nb")), -MC_EPARAM);
	assert_int_equal(mcm_tenant_check_name(mcp_bytes("a\0b", 3)), -MC_EPARAM);
	assert_int_equal(mcm_tenant_check_name(fx_bytes("\x7f")), -MC_EPARAM);
	assert_int_equal(mcm_tenant_check_name(mcp_bytes(longest, MCP_TENANT_MAX)), 0);
	assert_int_equal(mcm_tenant_check_name(mcp_bytes(longest, MCP_TENANT_MAX + 1)), -MC_EPARAM);
}

static void keys_are_mapped_one_to_one(void **state)
{
	static const char *const keys[] = { "a", "\0", "\0\x80\x80/a", "\0\x80\x81/a", "/", "\0/" };
	static const uint32_t lens[] = { 1, 1, 5, 5, 1, 2 };
	struct mcp_bytes in[3][6];
	static char buf[3][6][MCM_KEY_MAX];
	unsigned t, k, u, l;

	for (t = 0; t < 3; t++) {
		for (k = 0; k < 6; k++) {
			struct mcm_scope sc = { t == 2 ? 300 : t };
			struct mcp_bytes key = mcp_bytes(keys[k], lens[k]), bare;
			uint32_t tenant;

			in[t][k] = mcm_scope_key(sc, key, buf[t][k]);
			assert_true(mcm_key_ok(in[t][k]));
			bare = mcm_key_bare(in[t][k], &tenant);
			assert_int_equal(tenant, sc.tenant);
			assert_int_equal(bare.len, key.len);
			assert_memory_equal(bare.data, key.data, key.len);
		}
	}
	for (t = 0; t < 18; t++)
		for (u = 0; u < t; u++) {
			k = t % 6;
			l = u % 6;
			assert_false(in[t / 6][k].len == in[u / 6][l].len &&
				     !memcmp(in[t / 6][k].data, in[u / 6][l].data, in[t / 6][k].len));
		}
	assert_int_equal(mcm_scope_key((struct mcm_scope){ 1 }, mcp_bytes("", 0), buf[0][0]).len, 0);
}

static void tenants_do_not_meet(void **state)
{
	struct fixture fx;
	uint64_t size;

	fx_up(&fx, 1, 16 * MIB, tx_tune);
	tx_quota(&fx, "alice", MIB);
	tx_quota(&fx, "bob", MIB);
	tx_quota(&fx, "default", MIB);
	assert_int_equal(tx_put(&fx, "alice", "d/k", 100, 0), 0);
	assert_int_equal(tx_put(&fx, "bob", "d/k", 200, 0), 0);
	assert_int_equal(tx_put(&fx, "", "d/k", 300, 0), 0);
	assert_int_equal(tx_put(&fx, "default", "d/k", 1, 0), -MC_EEXISTS);
	assert_int_equal(tx_stat(&fx, "alice", "d/k", &size), 0);
	assert_int_equal(size, 100);
	assert_int_equal(tx_stat(&fx, "bob", "d/k", &size), 0);
	assert_int_equal(size, 200);
	assert_int_equal(tx_stat(&fx, "default", "d/k", &size), 0);
	assert_int_equal(size, 300);
	assert_int_equal(tx_put(&fx, "alice", "only", 1, 0), 0);
	assert_int_equal(tx_stat(&fx, "bob", "only", NULL), -MC_ENOOBJECT);
	assert_int_equal(tx_stat(&fx, "", "only", NULL), -MC_ENOOBJECT);
	assert_int_equal(tx_stat(&fx, "nobody", "only", NULL), -MC_ENOOBJECT);
	assert_int_equal(tx_put(&fx, "nobody", "k", 1, 0), -MC_ENOTENANT);
	assert_int_equal(tx_put(&fx, "_x", "k", 1, 0), -MC_EPARAM);
	fx_down(&fx);
}

static void listings_keep_to_their_tenant(void **state)
{
	struct fixture fx;

	fx_up(&fx, 1, 16 * MIB, tx_tune);
	tx_quota(&fx, "alice", MIB);
	tx_quota(&fx, "default", MIB);
	assert_int_equal(tx_put(&fx, "alice", "d/k", 100, 0), 0);
	assert_int_equal(tx_put(&fx, "alice", "top", 100, 0), 0);
	assert_string_equal(listed(&fx, "", "", 0), "");
	assert_string_equal(listed(&fx, "", "", MCP_LIST_DIR), "");
	assert_string_equal(listed(&fx, "alice", "", MCP_LIST_DIR), "d/,top,");
	assert_string_equal(listed(&fx, "alice", "d/", MCP_LIST_DIR), "k,");
	assert_string_equal(listed(&fx, "alice", "d/", 0), "d/k,");
	assert_int_equal(tx_put(&fx, "", "x", 100, 0), 0);
	assert_string_equal(listed(&fx, "", "", 0), "x,");
	assert_string_equal(listed(&fx, "", "", MCP_LIST_DIR), "x,");
	assert_string_equal(listed(&fx, "nobody", "", 0), "");
	fx_down(&fx);
}

static void keys_that_begin_with_nul(void **state)
{
	struct mcm_scope sc = { MCM_TENANT_DEFAULT };
	struct mcp_list rq = { .flags = MCP_LIST_DIR };
	struct mcm_put_request pr = { .copies = 1 };
	struct mcm_list_page pg = { 0 };
	char buf[MCM_KEY_MAX];
	struct mcp_put_item item = { .size = 10 };
	struct mcm_put_granted g;
	struct fixture fx;

	fx_up(&fx, 1, 16 * MIB, NULL);
	item.key = mcm_scope_key(sc, mcp_bytes("\0x", 2), buf);
	assert_int_equal(mcm_put_start(fx.m, fx.s, &pr, &item, &g), 0);
	assert_int_equal(mcm_put_end(fx.m, fx.s, &(struct mcp_put_done){
				 .key = item.key, .generation = g.generation, .crc = 1 }), 0);
	/* The root lists the key once, in its original form, but on a separate page. */
	assert_int_equal(mcm_list(fx.m, &rq, &pg), 0);
	assert_int_equal(pg.names.count, 0);
	assert_true(pg.cursor_len > 0);
	rq.cursor = mcp_bytes(memcpy(buf, pg.cursor, pg.cursor_len), pg.cursor_len);
	assert_int_equal(mcm_list(fx.m, &rq, &pg), 0);
	assert_int_equal(pg.names.count, 1);
	assert_int_equal(pg.names.item[0].name_len, 2);
	assert_memory_equal(pg.names.text + pg.names.item[0].name, "\0x", 2);
	assert_int_equal(pg.cursor_len, 0);
	mcm_names_page_done(&pg.names);
	fx_down(&fx);
}

static void removal_by_tenant(void **state)
{
	struct fixture fx;

	fx_up(&fx, 1, 16 * MIB, tx_tune);
	tx_quota(&fx, "alice", MIB);
	tx_quota(&fx, "bob", MIB);
	assert_int_equal(tx_put(&fx, "alice", "k1", 1, 0), 0);
	assert_int_equal(tx_put(&fx, "alice", "k2", 1, 0), 0);
	assert_int_equal(tx_put(&fx, "bob", "k1", 1, 0), 0);
	/* A removal in parts, without a match. */
	assert_int_equal(parts(&fx), 0);
	/* The pattern is matched against the key, without the internal prefix. */
	assert_int_equal(tx_remove_match(&fx, "alice", "^k1$", 0), 1);
	assert_int_equal(tx_remove_match(&fx, "nobody", "", 0), 0);
	assert_int_equal(tx_remove_match(&fx, "", "", 0), 0);
	assert_int_equal(tx_remove_match(&fx, "alice", "", 0), 1);
	assert_int_equal(tx_put(&fx, "alice", "k3", 1, 0), 0);
	assert_int_equal(tx_remove_match(&fx, "", "", MCP_REMOVE_TENANTS), 2);
	fx_down(&fx);
}

static void without_tenants_all_is_one(void **state)
{
	uint64_t effective, size;
	struct fixture fx;

	fx_up(&fx, 1, 16 * MIB, NULL);
	assert_int_equal(tx_put(&fx, "alice", "k", 100, 0), 0);
	assert_int_equal(tx_stat(&fx, "_whatever", "k", &size), 0);
	assert_int_equal(size, 100);
	assert_int_equal(mcm_tenant_set_quota(fx.m, fx_bytes("alice"), 1, &effective), -MC_EMODE);
	fx_down(&fx);
}

/* ---- quotas ---- */

static void a_quota_is_kept_by_evicting_its_own(void **state)
{
	struct fixture fx;
	char key[16];
	unsigned i;

	fx_up(&fx, 1, 64 * MIB, tx_tune);
	tx_quota(&fx, "alice", 8 * MIB);
	tx_quota(&fx, "bob", 8 * MIB);
	assert_int_equal(tx_put(&fx, "bob", "b", MIB, 0), 0);
	for (i = 0; i < 30; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		assert_int_equal(tx_put(&fx, "alice", key, MIB, 0), 0);
		assert_true(tx_figures(&fx, "alice").charged <= 8 * MIB);
		assert_int_equal(tx_stat(&fx, "alice", key, NULL), 0);
	}
	assert_int_equal(tx_figures(&fx, "alice").objects, 8);
	assert_int_equal(tx_figures(&fx, "alice").charged, 8 * MIB);
	assert_int_equal(tx_stat(&fx, "alice", "k22", NULL), 0);
	assert_int_equal(tx_stat(&fx, "alice", "k21", NULL), -MC_ENOOBJECT);
	/* No object of another tenant was evicted. */
	assert_int_equal(tx_stat(&fx, "bob", "b", NULL), 0);
	assert_int_equal(tx_figures(&fx, "bob").charged, MIB);
	fx_down(&fx);
}

static void unevictable_objects_fill_the_quota(void **state)
{
	struct fixture fx;

	fx_up(&fx, 1, 64 * MIB, tx_tune);
	tx_quota(&fx, "alice", 4 * MIB);
	assert_int_equal(tx_put(&fx, "alice", "too large", 5 * MIB, 0), -MC_EQUOTA);
	assert_int_equal(tx_put(&fx, "alice", "h1", 2 * MIB, MCP_PUT_HARD_PIN), 0);
	assert_int_equal(tx_put(&fx, "alice", "h2", 2 * MIB, MCP_PUT_HARD_PIN), 0);
	assert_int_equal(tx_put(&fx, "alice", "k", 1, 0), -MC_EQUOTA);
	assert_int_equal(tx_figures(&fx, "alice").charged, 4 * MIB);
	assert_int_equal(tx_remove_match(&fx, "alice", "h1", 0), 1);
	assert_int_equal(tx_figures(&fx, "alice").charged, 2 * MIB);
	assert_int_equal(tx_put(&fx, "alice", "k", 1, 0), 0);
	/* A larger quota takes effect at once. */
	assert_int_equal(tx_put(&fx, "alice", "h3", 2 * MIB - 1, MCP_PUT_HARD_PIN), 0);
	assert_int_equal(tx_put(&fx, "alice", "h4", 2 * MIB, MCP_PUT_HARD_PIN), -MC_EQUOTA);
	tx_quota(&fx, "alice", 8 * MIB);
	assert_int_equal(tx_put(&fx, "alice", "h4", 2 * MIB, MCP_PUT_HARD_PIN), 0);
	fx_down(&fx);
}

static void charges_follow_puts(void **state)
{
	struct mcm_put_request rq = { .copies = 3 };
	char buf[MCM_KEY_MAX];
	struct mcp_put_item item = { .size = MIB };
	struct mcm_put_granted g;
	struct fixture fx;

	fx_up(&fx, 2, 16 * MIB, tx_tune);
	tx_quota(&fx, "alice", 8 * MIB);
	item.key = mcm_scope_key(tx_scope(&fx, "alice"), fx_bytes("k"), buf);
	assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &item, &g), 0);
	assert_int_equal(g.copies, 2);
	assert_int_equal(tx_figures(&fx, "alice").charged, 2 * MIB);
	assert_int_equal(mcm_put_revoke(fx.m, fx.s, &(struct mcp_put_done){
				 .key = item.key, .generation = g.generation, .crc = 1 }), 0);
	assert_int_equal(tx_figures(&fx, "alice").charged, 0);
	assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &item, &g), 0);
	assert_int_equal(mcm_put_end(fx.m, fx.s, &(struct mcp_put_done){
				 .key = item.key, .generation = g.generation, .crc = 1 }), 0);
	assert_int_equal(tx_figures(&fx, "alice").charged, 2 * MIB);
	assert_int_equal(tx_figures(&fx, "alice").objects, 1);
	/* During an upsert both versions are charged. */
	rq.flags = MCP_PUT_UPSERT;
	assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &item, &g), 0);
	assert_int_equal(tx_figures(&fx, "alice").charged, 4 * MIB);
	assert_int_equal(mcm_put_end(fx.m, fx.s, &(struct mcp_put_done){
				 .key = item.key, .generation = g.generation, .crc = 1 }), 0);
	assert_int_equal(tx_figures(&fx, "alice").charged, 2 * MIB);
	/* After its writer's connection has ended, a put is charged until its writer is fenced. */
	assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &item, &g), 0);
	mcm_puts_abandon(fx.m, fx.s);
	assert_int_equal(tx_figures(&fx, "alice").charged, 4 * MIB);
	assert_int_equal(fx_used(&fx), 4 * (MIB + 4096));
	fx_beat(&fx, fx.s->client);
	fx_advance(&fx, 1000);
	fx_stays_aside(&fx, 600000);
	assert_int_equal(tx_figures(&fx, "alice").charged, 4 * MIB);
	fx_confirm(&fx);
	assert_int_equal(tx_figures(&fx, "alice").charged, 2 * MIB);
	/* The segment of one replica is unmounted. */
	assert_int_equal(mcm_unmount(fx.m, fx.s->client, mcm_segment(&fx.m->segments, 0)->id,
				     &(uint64_t){ 0 }), 0);
	mcm_evict_background(fx.m);
	assert_int_equal(tx_figures(&fx, "alice").charged, MIB);
	assert_int_equal(tx_remove_match(&fx, "alice", "", 0), 1);
	assert_int_equal(tx_figures(&fx, "alice").charged, 0);
	fx_down(&fx);
}

static void shares_of_a_pool_that_is_too_small(void **state)
{
	struct fixture fx;

	fx_up(&fx, 1, 16 * MIB, tx_tune);
	tx_quota(&fx, "alice", 30 * MIB);
	assert_int_equal(tx_figures(&fx, "alice").effective, 16 * MIB);
	tx_quota(&fx, "bob", 10 * MIB);
	assert_int_equal(tx_figures(&fx, "alice").effective, 12 * MIB);
	assert_int_equal(tx_figures(&fx, "bob").effective, 4 * MIB);
	assert_int_equal(fx_mount(&fx, 1, 2, 2, 48 * MIB, NULL), 0);
	assert_int_equal(tx_figures(&fx, "alice").effective, 30 * MIB);
	assert_int_equal(tx_figures(&fx, "bob").effective, 10 * MIB);
	tx_quota(&fx, "carol", INT64_MAX);
	tx_quota(&fx, "dave", INT64_MAX);
	assert_true(tx_figures(&fx, "carol").effective + tx_figures(&fx, "dave").effective <= 64 * MIB);
	fx_down(&fx);
}

/* ---- shares ---- */

static void count_keys(struct fixture *fx, const char *tenant, char letter, unsigned n,
		       unsigned *ret)
{
	char key[32];

	*ret = 0;
	for (unsigned i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "%c%u", letter, i);
		*ret += tx_stat(fx, tenant, key, NULL) == 0;
	}
}

/* If others need room, a tenant above its share is evicted first, even if its objects are newer,
 * but only down to its share. */
static void tenants_above_their_share_are_evicted_first(void **state)
{
	unsigned alice, bob;
	struct fixture fx;
	char key[32];

	fx_up(&fx, 2, 4 * MIB, tx_tune);
	tx_quota(&fx, "alice", 4 * MIB);
	tx_quota(&fx, "bob", 4 * MIB);
	for (unsigned i = 0; i < 31; i++) {
		snprintf(key, sizeof(key), "a%u", i);
		assert_int_equal(tx_put(&fx, "alice", key, 65536 * 2, 0), 0);
	}
	for (unsigned i = 0; i < 28; i++) {
		snprintf(key, sizeof(key), "b%u", i);
		assert_int_equal(tx_put(&fx, "bob", key, 65536 * 2, 0), 0);
	}
	tx_quota(&fx, "bob", 2 * MIB);
	tx_quota(&fx, "alice", 6 * MIB);
	/* No put needs room yet. */
	assert_true(tx_figures(&fx, "bob").charged > tx_figures(&fx, "bob").effective);
	for (unsigned i = 31; i < 44; i++) {
		snprintf(key, sizeof(key), "a%u", i);
		assert_int_equal(tx_put(&fx, "alice", key, 65536 * 2, 0), 0);
	}
	count_keys(&fx, "alice", 'a', 44, &alice);
	count_keys(&fx, "bob", 'b', 28, &bob);
	assert_int_equal(alice, 44);
	assert_true(bob >= 15 && bob <= 18);
	assert_true(tx_figures(&fx, "bob").charged <= tx_figures(&fx, "bob").effective + 65536 * 4);
	/* The background evictor has evicted, too. */
	fx_advance(&fx, 1000);
	assert_true(mcm_tenant_counts(fx.m, 2).evicted_bytes + mcm_tenant_counts(fx.m, 1).evicted_bytes >
		    0);
	fx_check(&fx);
	fx_down(&fx);
}

/* The background evictor, too, takes from tenants above their share first. */
static void the_background_takes_from_them_first(void **state)
{
	unsigned alice, bob;
	struct fixture fx;
	char key[32];

	fx_up(&fx, 1, 8 * MIB, tx_tune);
	tx_quota(&fx, "alice", 4 * MIB);
	tx_quota(&fx, "bob", 4 * MIB);
	for (unsigned i = 0; i < 63; i++) {
		snprintf(key, sizeof(key), "a%u", i);
		assert_int_equal(tx_put(&fx, "alice", key, 60000, 0), 0);
	}
	for (unsigned i = 0; i < 63; i++) {
		snprintf(key, sizeof(key), "b%u", i);
		assert_int_equal(tx_put(&fx, "bob", key, 60000, 0), 0);
	}
	tx_quota(&fx, "bob", 3 * MIB);
	fx_advance(&fx, 1000);
	count_keys(&fx, "alice", 'a', 63, &alice);
	count_keys(&fx, "bob", 'b', 63, &bob);
	/* Only bob loses objects, because his charge exceeds his share. */
	assert_int_equal(alice, 63);
	assert_true(bob < 63 && bob >= 50);
	fx_check(&fx);
	fx_down(&fx);
}

/* ---- restarts ---- */

static void tenants_and_groups_survive_a_restart(void **state)
{
	struct mcm_put_request rq = { .copies = 1, .data_type = 5 };
	char buf[MCM_KEY_MAX], gbuf[MCM_GROUP_NAME_MAX], name[MCP_GROUP_MAX];
	struct mcp_put_item item = { .size = 1000 };
	struct mcm_put_granted g;
	struct mcp_replica rep[MCM_REPLICA_MAX];
	struct mcp_object o;
	struct fixture fx;
	uint32_t before;
	unsigned n;

	fx_up(&fx, 1, 64 * MIB, tune_journal);
	tx_quota(&fx, "zed", MIB);
	tx_quota(&fx, "alice", 8 * MIB);
	assert_int_equal(tx_put(&fx, "alice", "k", MIB, 0), 0);
	item.key = mcm_scope_key(tx_scope(&fx, "alice"), fx_bytes("grouped"), buf);
	item.group = mcm_scope_name(tx_scope(&fx, "alice"), fx_bytes("team"), MCP_GROUP_MAX, gbuf);
	assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &item, &g), 0);
	assert_int_equal(mcm_put_end(fx.m, fx.s, &(struct mcp_put_done){
				 .key = item.key, .generation = g.generation, .crc = 1 }), 0);
	before = tx_scope(&fx, "alice").tenant;
	assert_int_equal(mcm_checkpoint(fx.m), 0);
	mcm_journal_wait(fx.m);
	fx_down(&fx);
	fx_up(&fx, 1, 64 * MIB, tune_journal);
	assert_int_equal(tx_scope(&fx, "alice").tenant, before);
	assert_int_equal(tx_figures(&fx, "alice").requested, 8 * MIB);
	assert_int_equal(tx_figures(&fx, "alice").charged, MIB + 1000);
	assert_int_equal(tx_figures(&fx, "alice").objects, 2);
	/* Its owner mounts the segment again. */
	assert_int_equal(fx_mount(&fx, 1, 1, 101, 64 * MIB, NULL), 0);
	assert_int_equal(tx_stat(&fx, "alice", "k", NULL), 0);
	assert_int_equal(mcm_get(fx.m, NULL, 0, item.key, &o, rep, &n), 0);
	assert_int_equal(o.data_type, 5);
	assert_int_equal(mcm_get_group(fx.m, item.key, name), 4);
	assert_memory_equal(name, "team", 4);
	/* Until the grace period ends, a reader may still use the memory: it stays charged. */
	assert_int_equal(tx_remove_match(&fx, "alice", "", MCP_REMOVE_FORCE), 2);
	assert_int_equal(tx_figures(&fx, "alice").charged, MIB + 1000);
	assert_int_equal(fx.m->groups.table.count, 0);
	fx_advance(&fx, 4000);
	assert_int_equal(tx_figures(&fx, "alice").charged, 0);
	fx_down(&fx);
}

/* ---- memory and reply of a listing; linked instead of the real functions ---- */

void *__wrap_mcm_scratch(enum mcm_scratch_use use, size_t count, size_t size);
void *__real_mcm_scratch(enum mcm_scratch_use use, size_t count, size_t size);
int __wrap_mcp_answer(struct mcp_answer *a, const struct mcp_desc *d, const void *msg);

static struct {
	struct fixture *fx;		/* a tenant is created here meanwhile; NULL: none */
	size_t room, listed;
} listing;

void *__wrap_mcm_scratch(enum mcm_scratch_use use, size_t count, size_t size)
{
	if (listing.fx) {
		listing.room = count;
		tx_quota(listing.fx, "late", MIB);
		count++;
	}
	return __real_mcm_scratch(use, count, size);
}

int __wrap_mcp_answer(struct mcp_answer *a, const struct mcp_desc *d, const void *msg)
{
	assert_ptr_equal(d, &mcp_desc_tenants_reply);
	listing.listed = ((const struct mcp_tenants_reply *)msg)->tenants.count;
	return 0;
}

static void a_tenant_that_comes_meanwhile(void **state)
{
	struct mcp_session session = { 0 };
	struct mcp_tenants rq = { 0 };
	struct mcp_buf b = { 0 };
	struct fixture fx;

	fx_up(&fx, 1, 64 * MIB, tx_tune);
	tx_quota(&fx, "early", MIB);
	assert_int_equal(mcp_encode(&mcp_desc_tenants, &rq, &b), 0);
	for (unsigned i = 0; i < 2; i++) {
		listing.fx = i ? NULL : &fx;
		assert_int_equal(mcm_serve_tenants(&session, b.data, b.len, NULL, fx.m), 0);
		assert_int_equal(listing.listed, 2 + i);
		assert_int_equal(listing.room, 2);
	}
	mcp_buf_free(&b);
	fx_down(&fx);
}

static int up(void **state)
{
	(void)state;
	return tx_dir_up(journal, sizeof(journal), "journal");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_checked),
		cmocka_unit_test(keys_are_mapped_one_to_one),
		cmocka_unit_test(tenants_do_not_meet),
		cmocka_unit_test(listings_keep_to_their_tenant),
		cmocka_unit_test(keys_that_begin_with_nul),
		cmocka_unit_test(removal_by_tenant),
		cmocka_unit_test(without_tenants_all_is_one),
		cmocka_unit_test(a_quota_is_kept_by_evicting_its_own),
		cmocka_unit_test(unevictable_objects_fill_the_quota),
		cmocka_unit_test(charges_follow_puts),
		cmocka_unit_test(shares_of_a_pool_that_is_too_small),
		cmocka_unit_test(tenants_above_their_share_are_evicted_first),
		cmocka_unit_test(the_background_takes_from_them_first),
		cmocka_unit_test(tenants_and_groups_survive_a_restart),
		cmocka_unit_test(a_tenant_that_comes_meanwhile),
	};

	return cmocka_run_group_tests(tests, up, tx_dir_down);
}
