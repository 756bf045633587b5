/* SPDX-License-Identifier: Apache-2.0
 * test_master_rename_dir.c - rename of a directory with everything below it: in the index and the tree of names, for
 * concurrent readers, in the journal. */
#include <config.h>

#include "test_master_journal_fixture.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/sys/thread.h"

#define MIB (1u << 20)
#define MANY 300u

static int rename_flags(struct fixture *fx, const char *from, const char *to, uint32_t flags, uint64_t *moved)
{
	*moved = 0;
	return mcm_rename_dir(fx->m, &(struct mcp_rename_dir){ .flags = flags, .from = fx_bytes(from),
			      .to = fx_bytes(to) }, moved);
}

static int rename_dir(struct fixture *fx, const char *from, const char *to)
{
	uint64_t moved;

	return rename_flags(fx, from, to, 0, &moved);
}

static void mkdir_at(struct fixture *fx, const char *key)
{
	struct mcm_put_request rq = { .copies = 1, .flags = MCP_PUT_COMMIT | MCP_PUT_HARD_PIN };
	struct mcp_put_item item = { .key = fx_bytes(key), .kind = MCP_KIND_DIR };
	struct mcm_put_granted g;

	assert_int_equal(mcm_put_start(fx->m, fx->s, &rq, &item, &g), 0);
}

/* Give @key attributes, extended ones too. */
static void attributes(struct fixture *fx, const char *key, uint32_t mode)
{
	const struct mcp_attrs a = { .set = MCP_ATTR_MODE, .mode = mode };
	const struct mcp_xattr x = { fx_bytes("name"), fx_bytes("value") };
	struct mcp_set_attrs rq, msg = {
		.key = fx_bytes(key), .attrs = mcp_seq(&a, 1), .xattrs = mcp_seq(&x, 1),
	};
	struct mcp_buf b = { 0 };

	assert_int_equal(mcp_encode(&mcp_desc_set_attrs, &msg, &b), 0);
	assert_int_equal(mcp_decode(&mcp_desc_set_attrs, b.data, b.len, &rq), 0);
	assert_int_equal(mcm_set_attrs(fx->m, &rq), 0);
	mcp_buf_free(&b);
}

static uint32_t slot_of(struct fixture *fx, const char *key)
{
	struct mcm_index *ix = &fx->m->index;
	uint32_t len = (uint32_t)strlen(key), hash = mcm_index_hash(ix, key, len);

	return mcm_shard_find(ix, mcm_index_shard(ix, hash), hash, key, len);
}

static struct mcm_attrs_value attributes_of(struct fixture *fx, const char *key)
{
	struct mcm_attrs_value v;

	assert_true(mcm_attrs_get(&fx->m->index, slot_of(fx, key), &v));
	return v;
}

static uint64_t changed_of(struct fixture *fx, const char *dir)
{
	struct mcm_names_stat st;

	assert_true(mcm_names_stat(&fx->m->names, dir, (uint32_t)strlen(dir), &st));
	return st.changed_ms;
}

/* Number of names directly in a directory. */
static unsigned listed(struct fixture *fx, const char *dir)
{
	struct mcm_list_page pg = { 0 };
	struct mcp_list rq = { .flags = MCP_LIST_DIR, .limit = 1000, .prefix = fx_bytes(dir) };
	uint8_t cursor[16];
	unsigned n = 0;

	do {
		assert_int_equal(mcm_list(fx->m, &rq, &pg), 0);
		n += pg.names.count;
		memcpy(cursor, pg.cursor, sizeof(cursor));
		rq.cursor = mcp_bytes(cursor, pg.cursor_len);
	} while (pg.cursor_len);
	mcm_names_page_done(&pg.names);
	return n;
}

/* "a/" with files, implied and empty directories, and more than one page of files in one of them */
static void make_tree(struct fixture *fx)
{
	char key[64];

	mkdir_at(fx, "a/");
	mkdir_at(fx, "a/empty/");
	assert_int_equal(fx_put(fx, "a/file", 5000, 0), 0);
	assert_int_equal(fx_put(fx, "a/implied/x/one", 100, MCP_PUT_HARD_PIN), 0);
	assert_int_equal(fx_put(fx, "a/implied/x/soft", 100, MCP_PUT_SOFT_PIN), 0);
	for (unsigned i = 0; i < MANY; i++) {
		snprintf(key, sizeof(key), "a/many/%u", i);
		assert_int_equal(fx_put(fx, key, i % 3 ? 0 : 64, i % 3 ? MCP_PUT_COMMIT : 0), 0);
	}
}
#define TREE (2 + 3 + MANY)

static void a_directory_moves_with_everything_below(void **state)
{
	uint64_t moved, generation, count, children_ms;
	struct mcp_object o, pinned;
	struct fixture fx;
	char key[64];

	(void)state;
	fx_up(&fx, 2, MIB, NULL);
	make_tree(&fx);
	for (unsigned i = 0; i < MANY; i += 7) {
		snprintf(key, sizeof(key), "a/many/%u", i);
		attributes(&fx, key, i);
	}
	attributes(&fx, "a/", 0700);
	assert_int_equal(fx_pin(&fx, fx.s, "a/file", MCP_GET_HOLD, &pinned, NULL), 0);
	generation = pinned.generation;
	count = fx.m->index.count;
	fx_advance(&fx, 1000);
	children_ms = changed_of(&fx, "a/many/");
	mkdir_at(&fx, "to/");
	assert_int_equal(rename_flags(&fx, "a/", "to/b/", 0, &moved), 0);
	assert_int_equal(moved, TREE);
	fx_check(&fx);
	/* "to/" and its marker came */
	assert_int_equal(fx.m->index.count, count + 2);
	assert_int_equal(fx_stat(&fx, "to/b/file", &o), 0);
	assert_int_equal(o.generation, generation);
	assert_int_equal(fx_stat(&fx, "to/b/implied/x/one", &o), 0);
	assert_int_equal(o.flags, MCP_OBJ_HARD_PIN);
	assert_int_equal(fx_stat(&fx, "to/b/implied/x/soft", &o), 0);
	assert_int_equal(o.flags, MCP_OBJ_SOFT_PIN);
	assert_int_equal(fx_stat(&fx, "to/b/empty/", NULL), 0);
	assert_int_equal(listed(&fx, "to/b/"), 4);
	assert_int_equal(listed(&fx, "to/b/many/"), MANY);
	for (unsigned i = 0; i < MANY; i++) {
		snprintf(key, sizeof(key), "a/many/%u", i);
		assert_int_equal(fx_stat(&fx, key, NULL), -MC_ENOOBJECT);
		snprintf(key, sizeof(key), "to/b/many/%u", i);
		assert_int_equal(fx_stat(&fx, key, NULL), 0);
		if (i % 7 == 0) {
			assert_int_equal(attributes_of(&fx, key).mode, i);
			assert_int_equal(attributes_of(&fx, key).xattrs.len, 3 + strlen("namevalue"));
		}
	}
	assert_int_equal(attributes_of(&fx, "to/b/").mode, 0700);
	/* nothing is left of the old name, and a new directory can have it */
	assert_int_equal(listed(&fx, "a/"), 0);
	assert_false(mcm_names_stat(&fx.m->names, "a/", 2, &(struct mcm_names_stat){ 0 }));
	assert_int_equal(fx_put(&fx, "a/file", 10, 0), 0);
	/* times: only the directory above changed */
	assert_int_equal(changed_of(&fx, "to/b/many/"), children_ms);
	assert_true(changed_of(&fx, "to/") > children_ms);
	/* the reader's pin is that of the moved object */
	assert_int_equal(fx_remove(&fx, "to/b/file", 0), -MC_ELEASED);
	fx_release(&fx, fx.s, pinned.pin);
	assert_int_equal(rename_dir(&fx, "to/b/implied/", "implied/"), 0);
	assert_int_equal(listed(&fx, "to/b/"), 3);
	assert_int_equal(fx_stat(&fx, "implied/x/one", NULL), 0);
	fx_check(&fx);
	fx_down(&fx);
}

static void an_empty_directory_is_replaced_and_no_other(void **state)
{
	struct fixture fx;
	uint64_t moved;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	make_tree(&fx);
	mkdir_at(&fx, "empty/");
	attributes(&fx, "empty/", 0111);
	mkdir_at(&fx, "full/");
	assert_int_equal(fx_put(&fx, "full/x/y", 1, 0), 0);
	assert_int_equal(rename_dir(&fx, "a/", "full/"), -MC_ENOTEMPTY);
	assert_int_equal(rename_dir(&fx, "a/", "full/x/"), -MC_ENOTEMPTY);
	assert_int_equal(rename_dir(&fx, "full/x/", "full/"), -MC_ENOTEMPTY);
	assert_int_equal(rename_flags(&fx, "a/", "full/x/", MCP_RENAME_NOREPLACE, &moved), -MC_EEXISTS);
	assert_int_equal(rename_flags(&fx, "a/", "empty/", MCP_RENAME_NOREPLACE, &moved), -MC_EEXISTS);
	assert_int_equal(rename_flags(&fx, "a/", "a/", MCP_RENAME_NOREPLACE, &moved), -MC_EEXISTS);
	assert_int_equal(rename_dir(&fx, "a/", "a/"), 0);
	assert_int_equal(listed(&fx, "a/"), 4);
	assert_int_equal(rename_dir(&fx, "a/", "empty/"), 0);
	assert_int_equal(fx_stat(&fx, "empty/implied/x/one", NULL), 0);
	assert_false(mcm_attrs_get(&fx.m->index, slot_of(&fx, "empty/"), &(struct mcm_attrs_value){ 0 }));
	/* by a directory without a marker: its own is removed */
	mkdir_at(&fx, "empty2/");
	assert_int_equal(rename_dir(&fx, "empty/implied/", "empty2/"), 0);
	assert_int_equal(slot_of(&fx, "empty2/"), 0);
	assert_int_equal(fx_stat(&fx, "empty2/x/one", NULL), 0);
	/* an empty one by an empty one */
	mkdir_at(&fx, "e1/");
	assert_int_equal(rename_dir(&fx, "e1/", "empty/empty/"), 0);
	assert_int_equal(listed(&fx, "empty/empty/"), 0);
	fx_check(&fx);
	fx_down(&fx);
}

static void a_refused_rename_changes_nothing(void **state)
{
	char name[MCP_KEY_MAX + 1], deep[300];
	struct jx_dump before, after;
	struct fixture fx;
	uint64_t count;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	make_tree(&fx);
	memset(deep, '/', sizeof(deep));
	for (unsigned i = 0; i < sizeof(deep); i += 2)
		deep[i] = 'd';
	deep[2 * MCM_NAMES_DEPTH] = '\0';
	before = jx_dump(fx.m);
	count = fx.m->index.count;
	assert_int_equal(rename_dir(&fx, "none/", "b/"), -MC_ENOOBJECT);
	assert_int_equal(rename_dir(&fx, "a/file/", "b/"), -MC_ENOOBJECT);
	assert_int_equal(rename_dir(&fx, "a", "b"), -MC_EPARAM);
	assert_int_equal(rename_dir(&fx, "a/", "b"), -MC_EPARAM);
	assert_int_equal(rename_dir(&fx, "", "b/"), -MC_EKEY);
	assert_int_equal(rename_dir(&fx, "a/", ""), -MC_EKEY);
	assert_int_equal(rename_dir(&fx, "a/", "a/b/"), -MC_EPARAM);
	assert_int_equal(rename_dir(&fx, "a/", "a/implied/x/"), -MC_EPARAM);
	/* the longest name with which the keys still fit, and one byte more */
	memset(name, 'n', sizeof(name));
	name[MCP_KEY_MAX - strlen("implied/x/soft")] = '/';
	name[MCP_KEY_MAX - strlen("implied/x/soft") + 1] = '\0';
	assert_int_equal(rename_dir(&fx, "a/", name), -ENAMETOOLONG);
	/* levels: below the last one that directories have, names are not split */
	assert_int_equal(rename_dir(&fx, "a/", deep), -MC_ELIMIT);
	deep[2 * MCM_NAMES_DEPTH - 4] = '\0';
	assert_int_equal(rename_dir(&fx, "a/", deep), -MC_ELIMIT);
	after = jx_dump(fx.m);
	jx_same(&before, &after);
	jx_dump_free(&after);
	assert_int_equal(fx.m->index.count, count);
	fx_check(&fx);
	assert_int_equal(rename_dir(&fx, "a/", name + 1), 0);
	assert_int_equal(rename_dir(&fx, name + 1, "a/"), 0);
	deep[2 * MCM_NAMES_DEPTH - 8] = '\0';
	assert_int_equal(rename_dir(&fx, "a/", deep), 0);
	assert_int_equal(rename_dir(&fx, deep, "a/"), 0);
	after = jx_dump(fx.m);
	jx_same(&before, &after);
	jx_dump_free(&after);
	jx_dump_free(&before);
	fx_check(&fx);
	fx_down(&fx);
}

static void a_large_directory_is_refused_before_other_requests_wait(void **state)
{
	struct fixture fx;
	char key[64];

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	for (unsigned i = 0; i < MCM_RENAME_DIR_MAX; i++) {
		snprintf(key, sizeof(key), "d/s%u/k%u", i % 10, i);
		assert_int_equal(fx_put(&fx, key, 0, MCP_PUT_COMMIT), 0);
	}
	fx_held_reset(MCM_HOLD_SHARD);
	assert_int_equal(rename_dir(&fx, "d/", "e/"), -MC_ELIMIT);
	assert_int_equal(fx_held_most(MCM_HOLD_SHARD), 0);
	assert_int_equal(listed(&fx, "e/"), 0);
	for (unsigned i = 0; i < 11; i++) {
		snprintf(key, sizeof(key), "d/s%u/k%u", i % 10, i);
		assert_int_equal(fx_remove(&fx, key, 0), 0);
	}
	assert_int_equal(rename_dir(&fx, "d/", "e/"), 0);
	assert_int_equal(fx_held_most(MCM_HOLD_SHARD), MCM_RENAME_DIR_MAX - 11);
	fx_check(&fx);
	fx_down(&fx);
}

/* Puts meanwhile must not evict for a tree that is there twice for a moment. */
static void a_tree_counts_once_while_it_moves(void **state)
{
	struct mcm_names_tree t = { 0 };
	struct mcm_names *nm;
	struct fixture fx;
	uint64_t count;
	char key[64];

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	nm = &fx.m->names;
	for (unsigned i = 0; i < 100; i++) {
		snprintf(key, sizeof(key), "d/s%u/k", i);
		assert_int_equal(fx_put(&fx, key, 0, MCP_PUT_COMMIT), 0);
	}
	count = fx.m->index.count;
	assert_int_equal(count, 201);
	mcm_index_lock_all(&fx.m->index);
	mc_rwlock_wrlock(&nm->move_lock);
	assert_int_equal(mcm_names_tree_find(nm, "d/", 2, MCM_RENAME_DIR_MAX, &t), 0);
	assert_int_equal(mcm_names_tree_make(nm, &t, "e/", 2), 0);
	assert_int_equal(fx.m->index.count, count);
	assert_int_equal(nm->count, 203);
	mcm_names_tree_settle(nm, &t, false);
	mc_rwlock_unlock(&nm->move_lock);
	mcm_index_unlock_all(&fx.m->index);
	mcm_names_tree_free(&t);
	assert_int_equal(fx.m->index.count, count);
	assert_int_equal(rename_dir(&fx, "d/", "e/"), 0);
	assert_int_equal(fx.m->index.count, count);
	assert_int_equal(rename_dir(&fx, "e/", "f/g/"), 0);
	assert_int_equal(fx.m->index.count, count + 1);
	fx_check(&fx);
	fx_down(&fx);
}

static char text[4096];

static int events_since(struct fixture *fx, uint64_t since, struct mcp_event *ret, uint64_t *next, uint64_t *lost)
{
	return mcm_events_read(fx->m, since, 0, MCM_TENANT_DEFAULT, fx_bytes(""), ret, 100, text, sizeof(text), next,
			       lost);
}

static void watchers_see_each_object(void **state)
{
	uint64_t next = 0, lost = 0;
	struct mcp_event event[100];
	struct fixture fx;
	int n;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	mkdir_at(&fx, "a/");
	assert_int_equal(fx_put(&fx, "a/s/f", 10, 0), 0);
	assert_int_equal(events_since(&fx, UINT64_MAX, event, &next, &lost), 0);
	assert_int_equal(rename_dir(&fx, "a/", "b/"), 0);
	n = events_since(&fx, next, event, &next, &lost);
	assert_int_equal(n, 2);
	for (int i = 0; i < n; i++) {
		assert_int_equal(event[i].type, MCP_EVENT_RENAME);
		assert_int_equal(event[i].key.len, event[i].to.len);
		assert_memory_equal(event[i].to.data, "b/", 2);
	}
	fx_down(&fx);
}

/* ---- restarts ---- */

static void a_restart_knows_the_new_names(void **state)
{
	struct jx_dump a, b;
	struct fixture fx;

	(void)state;
	jx_up(&fx, 2, MIB);
	make_tree(&fx);
	attributes(&fx, "a/many/1", 0123);
	mkdir_at(&fx, "empty/");
	assert_int_equal(rename_dir(&fx, "a/", "empty/"), 0);
	assert_int_equal(rename_dir(&fx, "empty/implied/", "other/dir/"), 0);
	mkdir_at(&fx, "replaced/");
	assert_int_equal(rename_dir(&fx, "other/dir/", "replaced/"), 0);
	assert_int_equal(fx_put(&fx, "a/file", 5000, 0), 0);
	a = jx_dump(fx.m);
	for (unsigned i = 0; i < 3; i++) {
		jx_again(&fx);
		b = jx_dump(fx.m);
		jx_same(&a, &b);
		jx_dump_free(&b);
		if (i == 1)
			assert_int_equal(mcm_checkpoint(fx.m), 0);
	}
	jx_dump_free(&a);
	fx_check(&fx);
	fx_down(&fx);
}

static off_t size_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_size;
}

/* However much of the records a kill leaves, the directory has one name. */
static void a_torn_rename_did_not_happen(void **state)
{
	struct jx_dump before, after, now;
	struct fixture fx;
	off_t small, large;
	unsigned whole = 0, cuts = 0;

	(void)state;
	jx_up(&fx, 1, MIB);
	mkdir_at(&fx, "a/");
	assert_int_equal(fx_put(&fx, "a/file", 5000, 0), 0);
	assert_int_equal(fx_put(&fx, "a/sub/file", 5000, 0), 0);
	assert_int_equal(fx_put(&fx, "a/sub/file2", 0, MCP_PUT_COMMIT), 0);
	mkdir_at(&fx, "b/");
	jx_answer(&fx);
	jx_copy_dir();
	small = size_of(jx_file(jx_copy, "journal-"));
	before = jx_dump(fx.m);
	assert_int_equal(rename_dir(&fx, "a/", "b/"), 0);
	after = jx_dump(fx.m);
	jx_answer(&fx);
	jx_copy_dir();
	large = size_of(jx_file(jx_copy, "journal-"));
	assert_true(large > small + 300);
	for (off_t at = small; !whole; at = at + 5 < large ? at + 5 : large) {
		struct mcm *m;

		jx_copy_dir();
		assert_int_equal(truncate(jx_file(jx_copy, "journal-"), at), 0);
		m = jx_open_copy(&fx, 0);
		now = jx_dump(m);
		jx_same(at == large ? &after : &before, &now);
		jx_dump_free(&now);
		mcm_core_free(m);
		whole += at == large;
		cuts++;
	}
	assert_true(whole == 1 && cuts > 50);
	jx_dump_free(&before);
	jx_dump_free(&after);
	fx_down(&fx);
}

/* While the disk stalls: a batch that does not fit is refused before the first change, so no record is lost. */
static void a_full_journal_refuses_a_batch_before_it_begins(void **state)
{
	struct mcm_journal_batch b;
	struct mcm_journal_stats st;
	struct fixture fx;
	unsigned n = 0;
	int r;

	(void)state;
	jx_up(&fx, 1, MIB);
	mcm_index_lock_all(&fx.m->index);
	while ((r = mcm_journal_batch_begin(fx.m, 30 * MIB, &b)) == 0 && n++ < 10) {
		memset(b.bytes + b.len, 0, b.cap - b.len);
		b.len = b.cap;
		mcm_journal_batch_end(fx.m, &b);
		mcm_journal_batch_free(&b);
	}
	mcm_index_unlock_all(&fx.m->index);
	assert_int_equal(r, -MC_EUNAVAILABLE);
	assert_int_equal(n, 2);
	mcm_journal_batch_room(fx.m);
	mcm_journal_stats(fx.m, &st);
	assert_false(st.lost);
	mkdir_at(&fx, "a/");
	assert_int_equal(rename_dir(&fx, "a/", "b/"), 0);
	assert_int_equal(mcm_journal_batch_begin(fx.m, 30 * MIB, &b), 0);
	mcm_journal_batch_free(&b);
	fx_down(&fx);
}

/* ---- other threads ---- */

static struct fixture shared;
static bool done;
static uint64_t round_nr;	/* odd: from before the rename from "a/" to "b/" to before the one back */

#define FILES 40u

static int exist(const char *dir, unsigned i)
{
	struct mcp_bytes key;
	char name[32];
	uint8_t present;

	snprintf(name, sizeof(name), "%s/f%u", dir, i);
	key = fx_bytes(name);
	assert_int_equal(mcm_exist(shared.m, MCP_EXIST_PEEK, &key, 1, &present), 0);
	return present;
}

/* Once one file has its new name, all have; and a listing has all files or none. */
static void *reader(void *arg)
{
	uint64_t *seen = arg;

	while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE)) {
		uint64_t nr = __atomic_load_n(&round_nr, __ATOMIC_ACQUIRE);
		unsigned first = (unsigned)(rnd() % FILES), found = 0, n;

		n = listed(&shared, rnd() % 2 ? "a/" : "b/");
		assert_true(n == 0 || n == FILES);
		if (nr % 2 == 0 || !exist("b", first))
			continue;
		for (unsigned i = 0; i < FILES; i++)
			found += (unsigned)exist("b", i) + (unsigned)exist("a", i) * 1000;
		if (__atomic_load_n(&round_nr, __ATOMIC_ACQUIRE) != nr)
			continue;
		assert_int_equal(found, FILES);
		__atomic_add_fetch(seen, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void readers_see_one_name_of_the_whole_directory(void **state)
{
	struct mc_thread thread[2];
	uint64_t seen = 0;
	char key[32];

	(void)state;
	done = false;
	fx_up(&shared, 1, MIB, NULL);
	for (unsigned i = 0; i < FILES; i++) {
		snprintf(key, sizeof(key), "a/f%u", i);
		assert_int_equal(fx_put(&shared, key, 10, 0), 0);
	}
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(mc_thread_start(&thread[i], "reader", reader, &seen), 0);
	for (unsigned i = 0; i < 300 || (i < 100000 && __atomic_load_n(&seen, __ATOMIC_RELAXED) < 20); i++) {
		__atomic_add_fetch(&round_nr, 1, __ATOMIC_ACQ_REL);
		assert_int_equal(rename_dir(&shared, "a/", "b/"), 0);
		sched_yield();
		__atomic_add_fetch(&round_nr, 1, __ATOMIC_ACQ_REL);
		assert_int_equal(rename_dir(&shared, "b/", "a/"), 0);
	}
	__atomic_store_n(&done, true, __ATOMIC_RELEASE);
	for (unsigned i = 0; i < 2; i++)
		mc_thread_join(thread[i]);
	assert_true(seen > 0);
	fx_check(&shared);
	fx_down(&shared);
}

static void *remover(void *arg)
{
	struct mcp_remove_match rq = { .flags = MCP_REMOVE_FORCE, .prefix = { "a/", 2 } };
	uint64_t removed;

	(void)arg;
	while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE))
		assert_int_equal(mcm_remove_match(shared.m, &rq, &removed), 0);
	return NULL;
}

/* Objects that have left a directory are not removed with it. */
static void a_removal_by_prefix_spares_renamed_objects(void **state)
{
	struct mc_thread thread;
	uint64_t moved, kept = 0;
	char key[32], to[32];

	(void)state;
	done = false;
	fx_up(&shared, 1, MIB, NULL);
	assert_int_equal(mc_thread_start(&thread, "remover", remover, NULL), 0);
	for (unsigned i = 0; i < 4000; i++) {
		for (unsigned k = 0; k < 20; k++) {
			snprintf(key, sizeof(key), "a/%u", k);
			assert_int_equal(fx_put(&shared, key, 0, MCP_PUT_COMMIT | MCP_PUT_UPSERT), 0);
		}
		snprintf(to, sizeof(to), "kept%u/", i);
		if (rename_flags(&shared, "a/", to, 0, &moved) < 0)
			continue;
		kept += moved;
		if (i % 64 == 0)
			sched_yield();
	}
	__atomic_store_n(&done, true, __ATOMIC_RELEASE);
	mc_thread_join(thread);
	for (unsigned k = 0; k < 20; k++) {
		snprintf(key, sizeof(key), "a/%u", k);
		(void)fx_remove(&shared, key, MCP_REMOVE_FORCE);
	}
	assert_true(kept > 0);
	assert_int_equal(mcm_index_count(&shared.m->index), kept);
	fx_check(&shared);
	fx_down(&shared);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_directory_moves_with_everything_below),
		cmocka_unit_test(an_empty_directory_is_replaced_and_no_other),
		cmocka_unit_test(a_refused_rename_changes_nothing),
		cmocka_unit_test(a_large_directory_is_refused_before_other_requests_wait),
		cmocka_unit_test(a_tree_counts_once_while_it_moves),
		cmocka_unit_test(watchers_see_each_object),
		cmocka_unit_test(a_restart_knows_the_new_names),
		cmocka_unit_test(a_torn_rename_did_not_happen),
		cmocka_unit_test(a_full_journal_refuses_a_batch_before_it_begins),
		cmocka_unit_test(readers_see_one_name_of_the_whole_directory),
		cmocka_unit_test(a_removal_by_prefix_spares_renamed_objects),
	};

	return cmocka_run_group_tests(tests, jx_setup, jx_teardown);
}
