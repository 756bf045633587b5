/* SPDX-License-Identifier: Apache-2.0
 * Groups, pins of upserts, data types, strict replica counts, placement by host. */
#include <config.h>

#include "test_master_fixture.h"

#include <string.h>

#define MIB (1ull << 20)

/* ---- helpers ---- */

struct how {
	uint32_t flags;
	const char *group;
	uint8_t soft_pin, data_type;
	uint32_t soft_ms;
	unsigned copies;
	const char *host;
};

static int start(struct fixture *fx, const char *key, uint64_t size, struct how h,
		 struct mcm_put_granted *ret)
{
	struct mcm_put_request rq = {
		.flags = h.flags | (h.soft_pin == MCP_SOFT_PIN_ENABLE ? MCP_PUT_SOFT_PIN : 0),
		.copies = h.copies ? h.copies : 1, .soft_pin = h.soft_pin,
		.soft_ms = h.soft_ms ? h.soft_ms : 1000000, .data_type = h.data_type,
		.host = h.host ? fx_bytes(h.host) : (struct mcp_bytes){ 0 },
	};
	struct mcp_put_item item = { .key = fx_bytes(key), .size = size };

	if (h.group)
		item.group = fx_bytes(h.group);
	return mcm_put_start(fx->m, fx->s, &rq, &item, ret);
}

static int put(struct fixture *fx, const char *key, uint64_t size, struct how h)
{
	struct mcm_put_granted g;
	int r = start(fx, key, size, h, &g);

	return r < 0 ? r : fx_end(fx, key, g.generation);
}

#define PUT(fx, key, size, ...) put(fx, key, size, (struct how){ __VA_ARGS__ })

static const char *group_of(struct fixture *fx, const char *key)
{
	static char name[MCP_GROUP_MAX + 1];

	name[mcm_get_group(fx->m, fx_bytes(key), name)] = '\0';
	return name;
}

static unsigned present(struct fixture *fx, const char *prefix, unsigned n)
{
	unsigned i, sum = 0;
	char key[32];

	for (i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "%s%u", prefix, i);
		sum += fx_stat(fx, key, NULL) == 0;
	}
	return sum;
}

static void fill(struct fixture *fx, const char *prefix, unsigned n, uint64_t size,
		 const char *group)
{
	char key[32];
	unsigned i;

	for (i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "%s%u", prefix, i);
		assert_int_equal(PUT(fx, key, size, .group = group), 0);
	}
}

/* Move the clock while the owner of the memory sends heartbeats. */
static void pass(struct fixture *fx, uint64_t ms)
{
	for (; ms > 1000; ms -= 1000) {
		fx_advance(fx, 1000);
		fx_beat(fx, fx->s->client);
	}
	fx_advance(fx, ms);
}

static void age_one(void *arg, uint32_t slot)
{
	mcm_object(&((struct mcm *)arg)->index, slot)->mtime_lo -= 10 * MCM_RECENT_MIN_MS;
}

/* Existing objects no longer count as recent. */
static void age(struct fixture *fx)
{
	uint64_t pos = 0;

	while (pos < MCM_TABLE_END)
		mcm_index_scan(&fx->m->index, &pos, 100, age_one, fx->m);
}

/* ---- groups ---- */

static void a_group_goes_as_a_whole(void **state)
{
	struct fixture fx;

	fx_up(&fx, 1, 16 * MIB, NULL);
	fill(&fx, "g", 6, MIB, "group");
	fill(&fx, "x", 9, MIB, NULL);
	assert_string_equal(group_of(&fx, "g3"), "group");
	assert_string_equal(group_of(&fx, "x3"), "");
	assert_int_equal(fx.m->groups.table.count, 1);
	assert_int_equal(present(&fx, "g", 6), 6);
	/* Space for one more object is freed by evicting the oldest one and its group, and nothing
	 * else. */
	assert_int_equal(PUT(&fx, "new", 2 * MIB, 0), 0);
	assert_int_equal(present(&fx, "g", 6), 0);
	assert_int_equal(present(&fx, "x", 9), 9);
	assert_int_equal(fx.m->groups.table.count, 0);
	fx_down(&fx);
}

static void reading_one_keeps_all(void **state)
{
	struct fixture fx;

	fx_up(&fx, 1, 16 * MIB, NULL);
	fill(&fx, "g", 6, MIB, "group");
	fill(&fx, "x", 9, MIB, NULL);
	assert_int_equal(fx_exist(&fx, "g5", 0), 1);
	age(&fx);
	assert_int_equal(PUT(&fx, "new", 2 * MIB, 0), 0);
	assert_int_equal(present(&fx, "g", 6), 6);
	assert_true(present(&fx, "x", 9) < 9);
	/* The promise lease has expired, the second chance is used. */
	pass(&fx, fx.conf.default_kv_lease_ttl + 1000);
	fill(&fx, "y", 12, MIB, NULL);
	assert_int_equal(present(&fx, "g", 6), 0);
	fx_down(&fx);
}

static void a_reader_of_one_keeps_all(void **state)
{
	struct mcp_object o;
	struct fixture fx;

	fx_up(&fx, 1, 16 * MIB, NULL);
	fill(&fx, "g", 6, MIB, "group");
	assert_int_equal(fx_pin(&fx, fx.s, "g0", MCP_GET_LEASE | MCP_GET_HOLD, &o, NULL), 0);
	pass(&fx, fx.conf.default_kv_lease_ttl + 1000);
	fill(&fx, "x", 30, MIB, NULL);
	assert_int_equal(present(&fx, "g", 6), 6);
	fx_release(&fx, fx.s, o.pin);
	pass(&fx, fx.conf.default_kv_lease_ttl + 1000);
	fill(&fx, "y", 30, MIB, NULL);
	assert_int_equal(present(&fx, "g", 6), 0);
	fx_down(&fx);
}

/* One connection has more pins than the object itself can count: other connections and the group
 * are not affected. */
static void very_many_readers(void **state)
{
	struct mcm_session *other;
	struct mcp_object o, mine;
	struct fixture fx;
	unsigned i;

	fx_up(&fx, 1, 16 * MIB, NULL);
	other = fx_session(&fx, 2);
	fill(&fx, "g", 2, 4096, "group");
	assert_int_equal(fx_put(&fx, "plain", 4096, 0), 0);
	for (i = 0; i < MCM_PINS_FEW + 100u; i++) {
		assert_int_equal(fx_pin(&fx, fx.s, "g0", MCP_GET_HOLD, &o, NULL), 0);
		assert_int_equal(fx_pin(&fx, fx.s, "plain", MCP_GET_HOLD, &o, NULL), 0);
	}
	assert_int_equal(fx_pin(&fx, other, "g0", MCP_GET_HOLD, &mine, NULL), 0);
	assert_int_equal(fx_pin(&fx, other, "plain", MCP_GET_LEASE, &o, NULL), 0);
	fx_release(&fx, other, o.pin);
	fx_check(&fx);
	assert_int_equal(fx_remove(&fx, "g1", 0), -MC_ELEASED);
	/* The session ends: one reader is left. */
	fx_session_end(&fx, fx.s);
	fx.s = other;
	fx_check(&fx);
	assert_int_equal(fx_remove(&fx, "plain", 0), 0);
	assert_int_equal(fx_remove(&fx, "g1", 0), -MC_ELEASED);
	fx_release(&fx, other, mine.pin);
	assert_int_equal(fx_remove(&fx, "g1", 0), 0);
	assert_int_equal(fx_remove(&fx, "g0", 0), 0);
	assert_int_equal(fx_used(&fx), 0);
	fx_down(&fx);
}

static void a_promise_for_one_keeps_all_from_removal(void **state)
{
	struct mcp_remove_match rq = { 0 };
	struct mcp_object o;
	struct fixture fx;
	uint64_t n;

	fx_up(&fx, 1, 16 * MIB, NULL);
	fill(&fx, "g", 3, 4096, "group");
	fill(&fx, "x", 2, 4096, NULL);
	assert_int_equal(fx_exist(&fx, "g0", 0), 1);
	assert_int_equal(fx_remove(&fx, "g1", 0), -MC_ELEASED);
	assert_int_equal(mcm_remove_match(fx.m, &rq, &n), 0);
	assert_int_equal(n, 2);
	assert_int_equal(present(&fx, "g", 3), 3);
	pass(&fx, fx.conf.default_kv_lease_ttl + 1000);
	/* A pin protects it too, until it is released. */
	assert_int_equal(fx_pin(&fx, fx.s, "g2", MCP_GET_HOLD, &o, NULL), 0);
	assert_int_equal(fx_remove(&fx, "g1", 0), -MC_ELEASED);
	assert_int_equal(fx_remove(&fx, "g0", MCP_REMOVE_FORCE), 0);
	fx_release(&fx, fx.s, o.pin);
	assert_int_equal(fx_remove(&fx, "g1", 0), 0);
	assert_int_equal(present(&fx, "g", 3), 1);
	fx_down(&fx);
}

static void large_groups_go_in_the_background(void **state)
{
	struct fixture fx;

	fx_up(&fx, 1, 16 * MIB, NULL);
	fill(&fx, "g", 1000, 4096, "large");
	fill(&fx, "x", 11, MIB, NULL);
	fill(&fx, "y", 3, 600 << 10, NULL);
	assert_in_range(present(&fx, "g", 1000), 1, 960);
	/* A member that is put while the others are evicted stays. */
	assert_int_equal(PUT(&fx, "late", 4096, .group = "large"), 0);
	while (mcm_evict_background(fx.m))
		;
	assert_int_equal(present(&fx, "g", 1000), 0);
	assert_int_equal(fx_stat(&fx, "late", NULL), 0);
	assert_string_equal(group_of(&fx, "late"), "large");
	fx_down(&fx);
}

static void pinned_members_stay(void **state)
{
	struct fixture fx;

	fx_up(&fx, 1, 16 * MIB, NULL);
	assert_int_equal(PUT(&fx, "hard", MIB, .group = "g", .flags = MCP_PUT_HARD_PIN), 0);
	assert_int_equal(PUT(&fx, "soft", MIB, .group = "g", .soft_pin = MCP_SOFT_PIN_ENABLE), 0);
	fill(&fx, "g", 4, MIB, "g");
	fill(&fx, "x", 9, MIB, NULL);
	assert_int_equal(PUT(&fx, "new", 2 * MIB, 0), 0);
	assert_int_equal(present(&fx, "g", 4), 0);
	assert_int_equal(fx_stat(&fx, "hard", NULL), 0);
	assert_int_equal(fx_stat(&fx, "soft", NULL), 0);
	assert_string_equal(group_of(&fx, "hard"), "g");
	fx_down(&fx);
}

static void groups_end_with_their_members(void **state)
{
	struct mcm_put_granted g;
	struct fixture fx;

	fx_up(&fx, 1, 16 * MIB, NULL);
	assert_int_equal(start(&fx, "a", 100, (struct how){ .group = "one" }, &g), 0);
	assert_int_equal(fx.m->groups.table.count, 1);
	assert_int_equal(fx_revoke(&fx, "a", g.generation), 0);
	assert_int_equal(fx.m->groups.table.count, 0);
	assert_int_equal(PUT(&fx, "a", 100, .group = "one"), 0);
	assert_int_equal(PUT(&fx, "b", 100, .group = "one"), 0);
	assert_int_equal(fx_rename(&fx, "a", "c", 0), 0);
	assert_string_equal(group_of(&fx, "c"), "one");
	assert_int_equal(fx_remove(&fx, "b", 0), 0);
	assert_int_equal(fx.m->groups.table.count, 1);
	assert_int_equal(fx_remove(&fx, "c", 0), 0);
	assert_int_equal(fx.m->groups.table.count, 0);
	fx_down(&fx);
}

/* ---- upserts ---- */

static void upserts_keep_group_and_pins(void **state)
{
	struct mcp_object o;
	struct fixture fx;

	fx_up(&fx, 1, 16 * MIB, NULL);
	assert_int_equal(PUT(&fx, "k", 100, .group = "one", .flags = MCP_PUT_HARD_PIN,
			     .soft_pin = MCP_SOFT_PIN_ENABLE, .soft_ms = 5000), 0);
	fx_advance(&fx, 2000);
	assert_int_equal(PUT(&fx, "k", 200, .flags = MCP_PUT_UPSERT), 0);
	assert_int_equal(fx_stat(&fx, "k", &o), 0);
	assert_int_equal(o.size, 200);
	assert_int_equal(o.flags, MCP_OBJ_HARD_PIN | MCP_OBJ_SOFT_PIN);
	/* The rest of its time, up to one tick. */
	assert_in_range(o.soft_pin_ms, 2900, 3100);
	assert_string_equal(group_of(&fx, "k"), "one");
	assert_int_equal(PUT(&fx, "k", 300, .flags = MCP_PUT_UPSERT, .group = "two"), -MC_EPARAM);
	assert_int_equal(PUT(&fx, "k", 300, .flags = MCP_PUT_UPSERT, .group = "one",
			     .soft_pin = MCP_SOFT_PIN_DISABLE), 0);
	assert_int_equal(fx_stat(&fx, "k", &o), 0);
	assert_int_equal(o.size, 300);
	assert_int_equal(o.flags, MCP_OBJ_HARD_PIN);
	assert_int_equal(o.soft_pin_ms, 0);
	assert_int_equal(PUT(&fx, "k", 300, .flags = MCP_PUT_UPSERT,
			     .soft_pin = MCP_SOFT_PIN_ENABLE, .soft_ms = 60000), 0);
	assert_int_equal(fx_stat(&fx, "k", &o), 0);
	assert_in_range(o.soft_pin_ms, 59900, 60100);
	/* An upsert does not put an object without a group into one. */
	assert_int_equal(PUT(&fx, "free", 1, 0), 0);
	assert_int_equal(PUT(&fx, "free", 1, .flags = MCP_PUT_UPSERT, .group = "one"), -MC_EPARAM);
	fx_down(&fx);
}

static void group_changes_between_start_and_end(void **state)
{
	struct mcm_put_granted g;
	struct fixture fx;

	fx_up(&fx, 1, 16 * MIB, NULL);
	assert_int_equal(start(&fx, "k", 100, (struct how){ .flags = MCP_PUT_UPSERT, .group = "a" },
			       &g), 0);
	assert_int_equal(PUT(&fx, "k", 100, .group = "b"), 0);
	assert_int_equal(fx_end(&fx, "k", g.generation), -MC_EPARAM);
	assert_string_equal(group_of(&fx, "k"), "b");
	assert_int_equal(fx.m->groups.table.count, 1);
	fx_down(&fx);
}

static void readers_keep_the_old_version(void **state)
{
	struct mcp_replica before, after;
	struct mcp_object old, new;
	struct fixture fx;

	fx_up(&fx, 1, 16 * MIB, NULL);
	assert_int_equal(PUT(&fx, "k", MIB, .group = "g"), 0);
	assert_int_equal(fx_pin(&fx, fx.s, "k", MCP_GET_LEASE, &old, &before), 0);
	assert_int_equal(PUT(&fx, "k", MIB, .flags = MCP_PUT_UPSERT), 0);
	assert_int_equal(fx_pin(&fx, fx.s, "k", MCP_GET_LEASE, &new, &after), 0);
	assert_true(new.generation > old.generation);
	/* The new version has other memory while a reader pins the old one. */
	assert_int_not_equal(before.offset, after.offset);
	fill(&fx, "x", 14, MIB, NULL);
	fx_release(&fx, fx.s, old.pin);
	fx_release(&fx, fx.s, new.pin);
	fx_down(&fx);
}

static void data_types_travel(void **state)
{
	struct mcp_object o;
	struct fixture fx;
	uint8_t t;

	fx_up(&fx, 1, 16 * MIB, NULL);
	for (t = 0; t < MCP_DATA_TYPES; t++) {
		assert_int_equal(PUT(&fx, "k", 100 + t, .flags = MCP_PUT_UPSERT, .data_type = t), 0);
		assert_int_equal(fx_exist(&fx, "k", 0), 1);
		assert_int_equal(fx_stat(&fx, "k", &o), 0);
		assert_int_equal(o.data_type, t);
		assert_int_equal(o.size, 100 + t);
	}
	fx_down(&fx);
}

/* ---- replicas ---- */

static void all_replicas_or_none(void **state)
{
	struct mcm_put_granted g;
	struct fixture fx;

	fx_up(&fx, 2, 16 * MIB, NULL);
	assert_int_equal(start(&fx, "a", MIB, (struct how){ .copies = 3 }, &g), 0);
	assert_int_equal(g.copies, 2);
	assert_int_equal(fx_revoke(&fx, "a", g.generation), 0);
	fx_advance(&fx, 5000);
	assert_int_equal(fx_used(&fx), 0);
	assert_int_equal(start(&fx, "a", MIB, (struct how){
			 .copies = 3, .flags = MCP_PUT_ALL_REPLICAS }, &g), -MC_ENOSPACE);
	assert_int_equal(fx_used(&fx), 0);
	assert_int_equal(start(&fx, "a", MIB, (struct how){
			 .copies = 2, .flags = MCP_PUT_ALL_REPLICAS }, &g), 0);
	assert_int_equal(g.copies, 2);
	assert_int_equal(fx_end(&fx, "a", g.generation), 0);
	fx_down(&fx);
}

/* One segment is full of plain objects, the other of protected ones. */
static void all_replicas_evict_as_needed(void **state)
{
	uint64_t name;
	struct fixture fx;
	unsigned i, j;
	char key[16];

	for (i = 0; i < 2; i++) {
		fx_up(&fx, 2, 16 * MIB, NULL);
		for (j = 0; j < 32; j++) {
			struct mcm_put_request rq = {
				.flags = !i && j >= 16 ? MCP_PUT_SOFT_PIN : 0, .copies = 1, .soft_ms = 1000000,
				.preferred = &name, .n_preferred = 1,
			};
			struct mcm_put_granted g;

			snprintf(key, sizeof(key), "k%u", j);
			name = mc_hash(j < 16 ? "seg-1" : "seg-2", 5, 0);
			assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &(struct mcp_put_item){
					 .key = fx_bytes(key), .size = MIB - 4096 }, &g), 0);
			assert_int_equal(fx_end(&fx, key, g.generation), 0);
			if (i && j >= 16)
				assert_int_equal(fx_exist(&fx, key, 0), 1);
		}
		age(&fx);
		assert_int_equal(PUT(&fx, "r", MIB - 4096, .copies = 2, .flags = MCP_PUT_ALL_REPLICAS), 0);
		assert_int_equal(present(&fx, "k", 32), 30);
		/* Fewer copies than requested are enough for this one. */
		assert_int_equal(PUT(&fx, "s", MIB - 4096, .copies = 2), 0);
		assert_int_equal(present(&fx, "k", 32), 29);
		fx_down(&fx);
	}
}

static void unreadable_replicas_are_told(void **state)
{
	struct mcp_replica rep[MCM_REPLICA_MAX];
	struct mcm_session *s2;
	struct mcp_object o;
	struct fixture fx;
	unsigned n;

	fx_up(&fx, 1, 16 * MIB, NULL);
	s2 = fx_session(&fx, 2);
	assert_int_equal(fx_mount(&fx, 2, 9, 9, 16 * MIB, NULL), 0);
	assert_int_equal(PUT(&fx, "k", MIB, .copies = 2), 0);
	fx_session_end(&fx, s2);
	pass(&fx, fx.conf.client_ttl + 2000);
	assert_int_equal(mcm_get(fx.m, fx.s, 0, fx_bytes("k"), &o, rep, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(mcm_get(fx.m, fx.s, MCP_GET_DESCRIBE, fx_bytes("k"), &o, rep, &n), 0);
	assert_int_equal(n, 2);
	assert_int_equal((rep[0].state == MCP_SEG_OK) + (rep[1].state == MCP_SEG_OK), 1);
	assert_int_equal((rep[0].state == MCP_SEG_SILENT) + (rep[1].state == MCP_SEG_SILENT), 1);
	fx_down(&fx);
}

static void promises_with_get(void **state)
{
	struct mcp_object o;
	struct fixture fx;

	fx_up(&fx, 1, 16 * MIB, NULL);
	assert_int_equal(PUT(&fx, "k", 100, 0), 0);
	assert_int_equal(fx_pin(&fx, fx.s, "k", MCP_GET_PROMISE, &o, NULL), 0);
	assert_int_equal(o.pin, 0);
	assert_true(o.lease_ms > 0);
	assert_int_equal(fx_remove(&fx, "k", 0), -MC_ELEASED);
	pass(&fx, fx.conf.default_kv_lease_ttl + 1000);
	assert_int_equal(fx_remove(&fx, "k", 0), 0);
	fx_down(&fx);
}

/* ---- local_first ---- */

static void tune_local(struct mcm_conf *conf)
{
	conf->allocation_strategy = (char *)"local_first";
}

static int mount_on(struct fixture *fx, uint64_t id, const char *name)
{
	struct mcp_mount rq = {
		.segment = { 7, id }, .client = fx->s->client, .epoch = id, .size = 4 * MIB, .base = id << 32,
		.name = fx_bytes(name), .endpoint = fx_bytes(name), .protocol = fx_bytes("tcp"),
	};
	struct mcp_mount_reply reply;

	return mcm_mount(fx->m, fx->s->client, NULL, &rq, &reply);
}

/* Segments on which the next objects of a writer on @host may be placed: their numbers as a
 * string. */
static void expect_at(struct fixture *fx, const char *host, uint32_t flags, const char *allowed)
{
	struct mcm_put_granted g;
	int i;

	for (i = 0; i < 20; i++) {
		assert_int_equal(start(fx, "probe", 1000, (struct how){ .host = host, .flags = flags },
				       &g), 0);
		assert_non_null(strchr(allowed, (char)('0' + g.replica[0].segment.lo)));
		assert_int_equal(fx_revoke(fx, "probe", g.generation), 0);
	}
}

static void local_first_goes_around_the_hosts(void **state)
{
	struct fixture fx;

	fx_up(&fx, 0, 0, tune_local);
	assert_int_equal(mount_on(&fx, 1, "beta:1"), 0);
	assert_int_equal(mount_on(&fx, 2, "alpha:1"), 0);
	assert_int_equal(mount_on(&fx, 3, "delta:1"), 0);
	assert_int_equal(mount_on(&fx, 4, "beta:2"), 0);
	expect_at(&fx, "beta:99", 0, "14");
	expect_at(&fx, "alpha:1", 0, "2");
	expect_at(&fx, "charlie", 0, "3");
	expect_at(&fx, "zulu:3", 0, "2");
	expect_at(&fx, "", 0, "1234");
	expect_at(&fx, "127.0.0.1:5", 0, "1234");
	/* The host is full: the next host follows. */
	assert_int_equal(PUT(&fx, "full", 3 * MIB + MIB / 2, .host = "delta:7",
			     .flags = MCP_PUT_HARD_PIN), 0);
	assert_int_equal(PUT(&fx, "next", 3 * MIB, .host = "delta:7"), 0);
	expect_at(&fx, "delta", 0, "3");
	fx_down(&fx);
}

static void a_batch_stays_on_one_node(void **state)
{
	struct mcm_put_request rq = {
		.flags = MCP_PUT_SAME_NODE, .copies = 1, .soft_ms = 1, .host = fx_bytes("beta"),
	};
	struct mcm_put_granted g;
	struct fixture fx;
	uint64_t first = 0;
	int i;

	fx_up(&fx, 0, 0, NULL);
	assert_int_equal(mount_on(&fx, 1, "beta:1"), 0);
	assert_int_equal(mount_on(&fx, 2, "alpha:1"), 0);
	assert_int_equal(mount_on(&fx, 3, "beta:2"), 0);
	for (i = 0; i < 20; i++) {
		char key[16];
		struct mcp_put_item item = { .size = 1000 };

		snprintf(key, sizeof(key), "k%d", i);
		item.key = fx_bytes(key);
		assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &item, &g), 0);
		first = first ? first : g.replica[0].segment.lo;
		assert_int_equal(g.replica[0].segment.lo, first);
		assert_int_not_equal(first, 2);
		assert_int_equal(fx_end(&fx, key, g.generation), 0);
	}
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_group_goes_as_a_whole),
		cmocka_unit_test(reading_one_keeps_all),
		cmocka_unit_test(a_reader_of_one_keeps_all),
		cmocka_unit_test(very_many_readers),
		cmocka_unit_test(a_promise_for_one_keeps_all_from_removal),
		cmocka_unit_test(large_groups_go_in_the_background),
		cmocka_unit_test(pinned_members_stay),
		cmocka_unit_test(groups_end_with_their_members),
		cmocka_unit_test(upserts_keep_group_and_pins),
		cmocka_unit_test(group_changes_between_start_and_end),
		cmocka_unit_test(readers_keep_the_old_version),
		cmocka_unit_test(data_types_travel),
		cmocka_unit_test(all_replicas_or_none),
		cmocka_unit_test(all_replicas_evict_as_needed),
		cmocka_unit_test(unreadable_replicas_are_told),
		cmocka_unit_test(promises_with_get),
		cmocka_unit_test(local_first_goes_around_the_hosts),
		cmocka_unit_test(a_batch_stays_on_one_node),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
