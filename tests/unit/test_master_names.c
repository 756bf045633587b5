/* SPDX-License-Identifier: Apache-2.0
 * Keys as paths: which directories exist, listings in pages while they change, removal, renames. */
#include <config.h>

#include "test_master_fixture.h"

#include <stdio.h>
#include <string.h>

#define MAX_NAMES 20000

struct names {
	unsigned n;
	char *name[MAX_NAMES];		/* directories with their '/' */
};

static void names_free(struct names *l)
{
	while (l->n)
		free(l->name[--l->n]);
}

static uint32_t hash_of(const struct fixture *fx, const struct mcm_names_item *it)
{
	return it->slot ? mcm_object(&fx->m->index, it->slot)->hash : 0;
}

/* A page has as many entries as requested, except that entries with equal hashes are on the same
 * page (names.h). */
static void check_length(const struct fixture *fx, const struct mcm_names_page *pg, unsigned limit)
{
	for (unsigned i = limit; i < pg->count; i++) {
		assert_int_not_equal(pg->item[i].slot, 0);
		assert_int_equal(hash_of(fx, &pg->item[i]), hash_of(fx, &pg->item[limit - 1]));
	}
}

/* One page; false: it was the last. */
static bool page(struct fixture *fx, const char *prefix, uint32_t flags, unsigned limit,
		 struct mcm_list_page *pg, struct names *l)
{
	struct mcp_list rq = {
		.flags = flags, .limit = limit, .prefix = fx_bytes(prefix),
		.cursor = mcp_bytes(NULL, 0),
	};
	uint8_t cursor[16];
	unsigned i;

	memcpy(cursor, pg->cursor, sizeof(cursor));
	rq.cursor = mcp_bytes(cursor, pg->cursor_len);
	assert_int_equal(mcm_list(fx->m, &rq, pg), 0);
	check_length(fx, &pg->names, limit);
	for (i = 0; i < pg->names.count; i++) {
		const struct mcm_names_item *it = &pg->names.item[i];
		char *s = malloc(it->name_len + 2);

		assert_non_null(s);
		assert_true(l->n < MAX_NAMES);
		memcpy(s, pg->names.text + it->name, it->name_len);
		strcpy(s + it->name_len, flags & MCP_LIST_DIR && !it->slot ? "/" : "");
		l->name[l->n++] = s;
	}
	return pg->cursor_len;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void list_all(struct fixture *fx, const char *prefix, uint32_t flags, unsigned limit,
		     struct names *l)
{
	struct mcm_list_page pg = { 0 };

	l->n = 0;
	while (page(fx, prefix, flags, limit, &pg, l))
		;
	mcm_names_page_done(&pg.names);
	qsort(l->name, l->n, sizeof(l->name[0]), by_text);
}

static struct names l;

/* The names below @prefix are exactly those in @want, a list separated by blanks. */
static void expect(struct fixture *fx, const char *prefix, uint32_t flags, const char *want)
{
	static const unsigned limits[] = { 1, 2, 3, 100 };
	char got[8192];
	unsigned i, j;

	for (j = 0; j < 4; j++) {
		list_all(fx, prefix, flags, limits[j], &l);
		got[0] = 0;
		for (i = 0; i < l.n; i++)
			sprintf(got + strlen(got), "%s%s", i ? " " : "", l.name[i]);
		assert_string_equal(got, want);
		names_free(&l);
	}
}

static void put(struct fixture *fx, const char *key)
{
	assert_int_equal(fx_put(fx, key, 0, MCP_PUT_COMMIT), 0);
}

/* The kind that a get with MCP_GET_DIRS finds, or -1. */
static void found(struct fixture *fx, const char *key, int kind)
{
	struct mcp_replica where[MCM_REPLICA_MAX];
	struct mcp_object o;
	unsigned n;
	int r;

	mc_mutex_lock(&fx->s->lock);
	r = mcm_get(fx->m, fx->s, MCP_GET_DIRS, fx_bytes(key), &o, where, &n);
	mc_mutex_unlock(&fx->s->lock);
	assert_int_equal(r, kind < 0 ? -MC_ENOOBJECT : 0);
	if (r == 0)
		assert_int_equal(o.kind, kind);
}

static void test_tree(void **state)
{
	struct fixture fx;

	(void)state;
	fx_up(&fx, 0, 0, NULL);
	put(&fx, "top");
	put(&fx, "a/x");
	put(&fx, "a/y");
	put(&fx, "a/b/c/deep");
	put(&fx, "a");			/* beside the directory a/ */
	put(&fx, "e/");			/* an empty directory */
	put(&fx, "z//odd");
	put(&fx, "/rooted");
	expect(&fx, "", MCP_LIST_DIR, "/ a a/ e/ top z/");
	expect(&fx, "a/", MCP_LIST_DIR, "b/ x y");
	expect(&fx, "a/b/", MCP_LIST_DIR, "c/");
	expect(&fx, "e/", MCP_LIST_DIR, "");
	expect(&fx, "nothing/", MCP_LIST_DIR, "");
	expect(&fx, "z/", MCP_LIST_DIR, "/");
	expect(&fx, "z//", MCP_LIST_DIR, "odd");
	expect(&fx, "/", MCP_LIST_DIR, "rooted");
	expect(&fx, "a", 0, "a a/b/c/deep a/x a/y");
	expect(&fx, "a/", 0, "a/b/c/deep a/x a/y");
	expect(&fx, "", 0, "/rooted a a/b/c/deep a/x a/y e/ top z//odd");

	/* A get with MCP_GET_DIRS finds them with and without a marker. */
	found(&fx, "a/", MCP_KIND_DIR);
	found(&fx, "a/b/c/", MCP_KIND_DIR);
	found(&fx, "z//", MCP_KIND_DIR);
	found(&fx, "e/", MCP_KIND_OBJECT);	/* a marker keeps its own kind */
	found(&fx, "nothing/", -1);
	found(&fx, "a/b", -1);
	assert_int_equal(fx_pin(&fx, fx.s, "a/", 0, &(struct mcp_object){ 0 }, NULL),
			 -MC_ENOOBJECT);

	/* A directory disappears with its last key, and not before. */
	assert_int_equal(fx_remove(&fx, "a/b/c/", 0), -MC_ENOTEMPTY);
	assert_int_equal(fx_remove(&fx, "a/b/c/deep", 0), 0);
	found(&fx, "a/b/c/", -1);
	found(&fx, "a/b/", -1);
	assert_int_equal(fx_remove(&fx, "a/b/c/", 0), -MC_ENOOBJECT);
	expect(&fx, "a/", MCP_LIST_DIR, "x y");
	fx_check(&fx);
	put(&fx, "e/f");
	assert_int_equal(fx_remove(&fx, "e/", 0), -MC_ENOTEMPTY);
	assert_int_equal(fx_remove(&fx, "e/f", 0), 0);
	expect(&fx, "", MCP_LIST_DIR, "/ a a/ e/ top z/");
	assert_int_equal(fx_remove(&fx, "e/", 0), 0);
	expect(&fx, "", MCP_LIST_DIR, "/ a a/ top z/");
	fx_down(&fx);
}

static void test_marker_replaced(void **state)
{
	struct fixture fx;

	(void)state;
	fx_up(&fx, 0, 0, NULL);
	put(&fx, "d/");
	put(&fx, "d/x");
	assert_int_equal(fx_put(&fx, "d/", 0, MCP_PUT_COMMIT | MCP_PUT_UPSERT), 0);
	assert_int_equal(fx_put(&fx, "d/x", 0, MCP_PUT_COMMIT | MCP_PUT_UPSERT), 0);
	expect(&fx, "d/", MCP_LIST_DIR, "x");
	assert_int_equal(fx_remove(&fx, "d/x", 0), 0);
	expect(&fx, "", MCP_LIST_DIR, "d/");
	assert_int_equal(fx_rename(&fx, "d/", "g/", 0), 0);
	expect(&fx, "", MCP_LIST_DIR, "g/");
	fx_down(&fx);
}

static void test_deep(void **state)
{
	char key[4096], prefix[4096];
	struct fixture fx;

	(void)state;
	fx_up(&fx, 0, 0, NULL);
	memset(key, '/', sizeof(key));
	key[sizeof(key) - 1] = 0;
	put(&fx, key);
	fx_check(&fx);
	/* The number of levels is limited; the rest of the path is one name. */
	assert_in_range(fx.m->names.count, 100, MCM_NAMES_DEPTH + 1);
	memset(prefix, '/', MCM_NAMES_DEPTH);
	prefix[MCM_NAMES_DEPTH] = 0;
	expect(&fx, prefix, MCP_LIST_DIR, key + MCM_NAMES_DEPTH);
	assert_int_equal(fx_remove(&fx, key, 0), 0);
	assert_int_equal(fx.m->names.count, 1);
	fx_down(&fx);
}

static void test_bad_listing(void **state)
{
	struct mcm_list_page pg = { 0 };
	struct mcp_list rq = { .flags = MCP_LIST_DIR, .limit = 1, .prefix = fx_bytes("a") };
	struct fixture fx;

	(void)state;
	fx_up(&fx, 0, 0, NULL);
	assert_int_equal(mcm_list(fx.m, &rq, &pg), -MC_EPARAM);
	rq.prefix = fx_bytes("a/");
	rq.cursor = fx_bytes("rubbish");
	assert_int_equal(mcm_list(fx.m, &rq, &pg), -MC_EPARAM);
	rq.cursor = fx_bytes("dx12345678");
	assert_int_equal(mcm_list(fx.m, &rq, &pg), -MC_EPARAM);
	rq.cursor = mcp_bytes("d\1\377\377\377\377\377\377\377\377", 10);
	assert_int_equal(mcm_list(fx.m, &rq, &pg), -MC_EPARAM);
	mcm_names_page_done(&pg.names);
	fx_down(&fx);
}

/* Keys that exist from the first page to the last are listed once, whatever else changes. */
static void changing(const char *prefix, uint32_t flags)
{
	struct mcm_list_page pg = { 0 };
	struct fixture fx;
	unsigned i, n, round;
	bool more;
	char key[64];

	fx_up(&fx, 0, 0, NULL);
	for (i = 0; i < 3000; i++) {
		sprintf(key, "dir/stay-%u%s", i, i % 5 ? "" : "/below");
		put(&fx, key);
	}
	for (round = 0; round < 3; round++) {
		pg.cursor_len = 0;
		do {
			more = page(&fx, prefix, flags, 1 + (unsigned)(rnd() % 100), &pg, &l);
			for (i = 0; i < 150; i++) {
				sprintf(key, "dir/%s-%u", rnd() % 2 ? "go" : "come",
					(unsigned)(rnd() % 4000));
				if (rnd() % 2)
					fx_put(&fx, key, 0, MCP_PUT_COMMIT | MCP_PUT_UPSERT);
				else
					fx_remove(&fx, key, 0);
			}
		} while (more);
		qsort(l.name, l.n, sizeof(l.name[0]), by_text);
		for (i = n = 0; i < l.n; i++) {
			n += !!strstr(l.name[i], "stay-");
			if (i && strstr(l.name[i], "stay-"))
				assert_string_not_equal(l.name[i], l.name[i - 1]);
		}
		assert_int_equal(n, 3000);
		names_free(&l);
	}
	mcm_names_page_done(&pg.names);
	fx_down(&fx);
}

static void test_changing_dir(void **state)
{
	(void)state;
	changing("dir/", MCP_LIST_DIR);
}

static void test_changing_keys(void **state)
{
	(void)state;
	changing("dir/", 0);
}

static void test_rename(void **state)
{
	struct mcp_object before, after, held, target;
	struct mcp_replica r1, r2;
	struct fixture fx;
	uint64_t used;

	(void)state;
	fx_up(&fx, 1, 1 << 20, NULL);
	assert_int_equal(fx_put(&fx, "tmp/one", 5000, 0), 0);
	assert_int_equal(fx_stat(&fx, "tmp/one", &before), 0);
	assert_int_equal(fx_pin(&fx, fx.s, "tmp/one", MCP_GET_HOLD, &held, &r1), 0);
	assert_int_equal(fx_rename(&fx, "tmp/one", "final", 0), 0);
	assert_int_equal(fx_stat(&fx, "tmp/one", NULL), -MC_ENOOBJECT);
	assert_int_equal(fx_pin(&fx, fx.s, "final", MCP_GET_LEASE, &after, &r2), 0);
	/* The same bytes at the same offset under a new generation; the pin is still valid. */
	assert_int_equal(r1.offset, r2.offset);
	assert_true(after.generation > before.generation);
	assert_int_equal(after.size, 5000);
	assert_int_equal(after.mtime_ms, before.mtime_ms);
	fx_release(&fx, fx.s, after.pin);
	assert_int_equal(fx_remove(&fx, "final", 0), -MC_ELEASED);
	fx_release(&fx, fx.s, held.pin);
	expect(&fx, "", MCP_LIST_DIR, "final");

	/* The target of the rename is replaced; its reader keeps the old version. */
	assert_int_equal(fx_put(&fx, "other", 9000, 0), 0);
	assert_int_equal(fx_pin(&fx, fx.s, "final", MCP_GET_HOLD, &target, NULL), 0);
	assert_int_equal(fx_rename(&fx, "other", "final", MCP_RENAME_NOREPLACE), -MC_EEXISTS);
	assert_int_equal(fx_rename(&fx, "other", "final", 0), 0);
	used = fx_used(&fx);
	fx_release(&fx, fx.s, target.pin);
	assert_int_equal(used - fx_used(&fx), mcm_alloc_round(5000) * MCM_GRANULE);
	assert_int_equal(fx_stat(&fx, "final", &after), 0);
	assert_int_equal(after.size, 9000);
	expect(&fx, "", MCP_LIST_DIR, "final");

	assert_int_equal(fx_rename(&fx, "final", "final", 0), 0);
	assert_int_equal(fx_rename(&fx, "none", "x", 0), -MC_ENOOBJECT);
	assert_int_equal(fx_rename(&fx, "final", "", 0), -MC_EKEY);
	assert_int_equal(fx_rename(&fx, "none", "new/dir/x", 0), -MC_ENOOBJECT);
	assert_int_equal(fx.m->names.count, 1);
	fx_down(&fx);
}

struct hashed {
	uint32_t hash;
	unsigned i;
};

static int by_hash(const void *a, const void *b)
{
	uint32_t x = ((const struct hashed *)a)->hash, y = ((const struct hashed *)b)->hash;

	return x < y ? -1 : x > y;
}

/* Among this many keys two almost surely have the same hash: finds their numbers; false: there are
 * none. */
static bool find_equal(const struct fixture *fx, unsigned ret[2])
{
	enum { TRIED = 400000 };
	struct hashed *h = calloc(TRIED, sizeof(*h));
	unsigned i;
	char key[64];

	assert_non_null(h);
	for (i = 0; i < TRIED; i++) {
		int len = sprintf(key, "dir/%u", i);

		h[i] = (struct hashed){ mcm_index_hash(&fx->m->index, key, (uint32_t)len), i };
	}
	qsort(h, TRIED, sizeof(*h), by_hash);
	for (i = 1; i < TRIED && h[i].hash != h[i - 1].hash; i++)
		;
	if (i < TRIED) {
		ret[0] = h[i - 1].i;
		ret[1] = h[i].i;
	}
	free(h);
	return i < TRIED;
}

/* A cursor never points between equal hashes. */
static void test_equal_hashes(void **state)
{
	struct mcm_list_page pg = { 0 };
	unsigned equal[2], flags, most, before;
	struct fixture fx;
	char key[64];

	fx_up(&fx, 0, 0, NULL);
	while (!find_equal(&fx, equal)) {
		fx_down(&fx);
		fx_up(&fx, 0, 0, NULL);
	}
	for (unsigned i = 0; i < 100; i++) {
		sprintf(key, "dir/%u", i < 2 ? equal[i] : 1000000 + i);
		put(&fx, key);
	}
	for (flags = 0; flags <= MCP_LIST_DIR; flags += MCP_LIST_DIR) {
		pg.cursor_len = 0;
		most = before = 0;
		while (page(&fx, "dir/", flags, 1, &pg, &l)) {
			most = l.n - before > most ? l.n - before : most;
			before = l.n;
		}
		assert_int_equal(most, 2);
		assert_int_equal(l.n, 100);
		qsort(l.name, l.n, sizeof(l.name[0]), by_text);
		for (unsigned i = 1; i < l.n; i++)
			assert_string_not_equal(l.name[i], l.name[i - 1]);
		names_free(&l);
	}
	mcm_names_page_done(&pg.names);
	fx_down(&fx);
}

static void strict_order(struct mcm_conf *conf)
{
	static char lru[] = "lru";

	conf->eviction_policy = lru;
}

/* A renamed object keeps its position in the eviction order. */
static void test_rename_order(void **state)
{
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, 3 * 65536, strict_order);
	fx.m->conf.eviction_high_watermark_ratio = 1;
	assert_int_equal(fx_put(&fx, "a", 65536, 0), 0);
	assert_int_equal(fx_put(&fx, "b", 65536, 0), 0);
	assert_int_equal(fx_put(&fx, "c", 65536, 0), 0);
	assert_int_equal(fx_rename(&fx, "a", "z", 0), 0);
	assert_int_equal(fx_put(&fx, "d", 65536, 0), 0);
	assert_int_equal(fx_stat(&fx, "z", NULL), -MC_ENOOBJECT);
	assert_int_equal(fx_stat(&fx, "b", NULL), 0);
	fx_down(&fx);
}

static int match(struct fixture *fx, const char *prefix, const char *pattern, uint32_t flags,
		 uint64_t *removed)
{
	struct mcp_remove_match rq = {
		.flags = flags, .prefix = fx_bytes(prefix), .pattern = fx_bytes(pattern),
	};

	return mcm_remove_match(fx->m, &rq, removed);
}

static void test_remove_match(void **state)
{
	struct mcp_object o;
	struct fixture fx;
	uint64_t removed;
	char key[64], *pattern;
	unsigned i;

	(void)state;
	fx_up(&fx, 1, 1 << 20, NULL);
	for (i = 0; i < 3000; i++) {
		sprintf(key, "%s/%u", i % 3 ? "p" : "q", i);
		put(&fx, key);
	}
	put(&fx, "q/");
	assert_int_equal(match(&fx, "p/", "", 0, &removed), 0);
	assert_int_equal(removed, 2000);
	assert_int_equal(match(&fx, "", "^q/[0-9]*9$", 0, &removed), 0);
	assert_int_equal(removed, 100);
	assert_int_equal(match(&fx, "q/3", "0$", 0, &removed), 0);
	assert_int_equal(removed, 5);
	assert_int_equal(match(&fx, "", "(", 0, &removed), -MC_EPARAM);
	assert_non_null(strstr(mc_err_detail(-MC_EPARAM), "pattern"));
	pattern = calloc(1, 2000);
	memset(pattern, 'x', 1999);
	assert_int_equal(match(&fx, "", pattern, 0, &removed), -MC_EPARAM);
	free(pattern);
	/* A pattern that would match almost for ever is stopped. */
	put(&fx, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab");
	assert_int_equal(match(&fx, "", "^(a+)+(a+)+(a+)+$", 0, &removed), -MC_EPARAM);
	/* A pattern that would be huge is refused when it is compiled. */
	assert_int_equal(match(&fx, "", "(((x{1000}){1000}){1000}){1000}", 0, &removed), -MC_EPARAM);
	/* Leased objects stay unless the removal is forced. */
	assert_int_equal(fx_put(&fx, "r", 10, 0), 0);
	assert_int_equal(fx_pin(&fx, fx.s, "r", MCP_GET_HOLD, &o, NULL), 0);
	assert_int_equal(match(&fx, "", "", 0, &removed), 0);
	assert_int_equal(mcm_index_count(&fx.m->index), 1);
	assert_int_equal(match(&fx, "", "", MCP_REMOVE_FORCE, &removed), 0);
	assert_int_equal(removed, 1);
	assert_int_equal(fx.m->names.count, 1);
	fx_down(&fx);
}

/* ---- how long locks are held ---- */

#define CROWD 100000u
/* One hold of a lock examines a limited number of chains and objects, however many there are: with
 * a quarter of a microsecond each, it stays far below a millisecond. */
#define HELD_MOST 1400u

static void crowd_put(struct fixture *fx, unsigned first, unsigned n)
{
	struct mcm_put_request rq = { .flags = MCP_PUT_COMMIT, .copies = 1 };
	struct mcm_put_granted granted;
	char key[32];
	unsigned i;

	for (i = first; i < first + n; i++) {
		struct mcp_put_item item = { 0 };

		sprintf(key, "crowd/%u", i);
		item.key = fx_bytes(key);
		assert_int_equal(mcm_put_start(fx->m, fx->s, &rq, &item, &granted), 0);
	}
}

/* All operations that scan all objects, with the largest steps that clients may request. */
static void walk_everything(struct fixture *fx, uint64_t objects)
{
	const uint32_t how[] = { MCP_LIST_DIR, 0 };
	struct mcm_list_page pg = { 0 };
	uint64_t n, removed;
	uint8_t cursor[16];
	unsigned i;

	for (i = 0; i < 2; i++) {
		n = pg.cursor_len = 0;
		do {
			struct mcp_list rq = { .flags = how[i], .limit = 8192, .prefix = fx_bytes("crowd/") };

			memcpy(cursor, pg.cursor, sizeof(cursor));
			rq.cursor = mcp_bytes(cursor, pg.cursor_len);
			assert_int_equal(mcm_list(fx->m, &rq, &pg), 0);
			n += pg.names.count;
		} while (pg.cursor_len);
		assert_int_equal(n, objects);
	}
	mcm_names_page_done(&pg.names);
	assert_int_equal(match(fx, "", "^no such key$", 0, &removed), 0);
	assert_int_equal(removed, 0);
}

static void held_at_most(unsigned most)
{
	assert_in_range(fx_held_most(MCM_HOLD_NAMES), 1, most);
	assert_in_range(fx_held_most(MCM_HOLD_SHARD), 1, most);
	fx_held_reset(MCM_HOLD_NAMES);
	fx_held_reset(MCM_HOLD_SHARD);
}

static void test_short_holds(void **state)
{
	struct fixture fx;
	uint64_t removed;

	(void)state;
	fx_up(&fx, 1, 1 << 20, NULL);
	fx_held_reset(MCM_HOLD_NAMES);
	fx_held_reset(MCM_HOLD_SHARD);
	crowd_put(&fx, 0, CROWD / 10);
	walk_everything(&fx, CROWD / 10);
	held_at_most(HELD_MOST);
	crowd_put(&fx, CROWD / 10, CROWD - CROWD / 10);
	walk_everything(&fx, CROWD);
	held_at_most(HELD_MOST);
	/* Few of many objects are left: the tables are large and almost empty. */
	assert_int_equal(match(&fx, "crowd/", "[1-9]$", MCP_REMOVE_FORCE, &removed), 0);
	assert_int_equal(removed, CROWD / 10 * 9);
	assert_int_equal(match(&fx, "crowd/", "[1-9]0$", MCP_REMOVE_FORCE, &removed), 0);
	walk_everything(&fx, CROWD / 100);
	held_at_most(HELD_MOST);
	fx_down(&fx);
}

/* Each key costs the maximal time of a pattern: others do not wait for hundreds of keys. */
static void test_remove_in_parts(void **state)
{
	struct mcp_remove_match rq = { .pattern = fx_bytes("^[0-9]+/(a|aa)+$"), .sliced = 1 };
	struct mcp_remove_match_reply reply;
	unsigned keys = 256, parts = 0, i;
	struct fixture fx;
	char key[64];

	(void)state;
	fx_up(&fx, 1, 1 << 20, NULL);
	for (i = 0; i < keys; i++) {
		sprintf(key, "%u/aaaaaaaaaaaaaaaaaaaa%c", i, i ? 'b' : 'a');
		assert_int_equal(fx_put(&fx, key, 0, 0), 0);
	}
	mc_clock_real();
	do {
		assert_int_equal(mcm_remove_part(fx.m, &rq, &reply), 0);
		rq.at = reply.at;
		parts++;
	} while (reply.at);
	mc_clock_fake(1000 * MC_NS_PER_SEC);
	assert_in_range(parts, keys / 16, keys);
	assert_int_equal(mcm_index_count(&fx.m->index), keys - 1);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tree),
		cmocka_unit_test(test_marker_replaced),
		cmocka_unit_test(test_deep),
		cmocka_unit_test(test_bad_listing),
		cmocka_unit_test(test_changing_dir),
		cmocka_unit_test(test_changing_keys),
		cmocka_unit_test(test_rename),
		cmocka_unit_test(test_equal_hashes),
		cmocka_unit_test(test_rename_order),
		cmocka_unit_test(test_remove_match),
		cmocka_unit_test(test_short_holds),
		cmocka_unit_test(test_remove_in_parts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
