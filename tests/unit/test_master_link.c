/* SPDX-License-Identifier: Apache-2.0
 * test_master_link.c - objects with several names: reads through each of them, changes of names, eviction, restarts. */
#include <config.h>

#include "test_master_journal_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fault.h"
#include "common/sys/clock.h"
#include "common/sys/thread.h"
#include "master/index/attrs.h"
#include "master/journal/journal.h"

#define MIB (1ull << 20)
#define SIZE 5000u

static struct mcp_object got;
static struct mcp_attrs attrs;

static int look_key(struct fixture *fx, struct mcp_bytes key)
{
	struct mcp_replica replica[MCM_REPLICA_MAX];
	struct mcm_attrs_memory mem = { &attrs, NULL };
	unsigned n;

	memset(&attrs, 0, sizeof(attrs));
	return mcm_get_attrs(fx->m, NULL, MCP_GET_DIRS, key, &got, replica, &n, &mem);
}

static int look(struct fixture *fx, const char *key)
{
	return look_key(fx, fx_bytes(key));
}

static int link_ino(struct fixture *fx, const char *from, const char *to, uint64_t ino)
{
	const struct mcp_link_name rq = { .from = fx_bytes(from), .to = fx_bytes(to), .ino = ino };
	uint64_t now, generation;
	int r = mcm_link(fx->m, &rq, &now, &generation);

	if (r == 0) {
		assert_int_equal(look(fx, to), 0);
		assert_int_equal(attrs.ino, now);
		assert_int_equal(got.generation, generation);
	}
	return r;
}

static int link_to(struct fixture *fx, const char *from, const char *to)
{
	return link_ino(fx, from, to, 0x1234);
}

/* @key is one of @names names of an object of SIZE bytes; its generation. */
static uint64_t assert_linked(struct fixture *fx, const char *key, unsigned names)
{
	assert_int_equal(look(fx, key), 0);
	assert_int_equal(got.size, SIZE);
	assert_int_equal(got.kind, MCP_KIND_OBJECT);
	assert_int_equal(attrs.set & MCP_ATTR_LINKED, MCP_ATTR_LINKED);
	assert_int_equal(attrs.nlink, names);
	assert_int_equal(fx_exist(fx, key, MCP_EXIST_PEEK), 1);
	return got.generation;
}

static uint64_t keys(struct fixture *fx)
{
	return mcm_index_count(&fx->m->index);
}

/* The shared key of the last look-up. */
static struct mcp_bytes shared_key(void)
{
	static char buf[MCM_LINK_KEY_MAX];

	return mcm_link_key((struct mcm_link_id){ attrs.ino, 0 }, buf);
}

static void names_give_one_object(void **state)
{
	struct fixture fx;
	uint64_t generation;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "a", SIZE, 0), 0);
	assert_int_equal(look(&fx, "a"), 0);
	generation = got.generation;
	assert_int_equal(link_to(&fx, "a", "dir/b"), 0);
	assert_int_equal(assert_linked(&fx, "a", 2), generation);
	assert_int_equal(assert_linked(&fx, "dir/b", 2), generation);
	assert_int_equal(attrs.ino, 0x1234);
	assert_int_equal(look_key(&fx, shared_key()), 0);
	assert_int_equal(got.generation, generation);
	assert_int_equal(keys(&fx), 3);
	/* by a name, and by the shared key */
	assert_int_equal(link_to(&fx, "dir/b", "c"), 0);
	assert_int_equal(link_to(&fx, ".mcfs-links/0000000000001234", "d"), 0);
	assert_int_equal(assert_linked(&fx, "d", 4), generation);
	assert_int_equal(fx_used(&fx), 5056);
	fx_check(&fx);
	fx_down(&fx);
}

static void impossible_links_change_nothing(void **state)
{
	char longest[MCP_KEY_MAX + 2];
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	memset(longest, 'x', sizeof(longest) - 1);
	longest[MCP_KEY_MAX + 1] = '\0';
	assert_int_equal(link_to(&fx, "none", "b"), -MC_ENOOBJECT);
	assert_int_equal(fx_put(&fx, "a", SIZE, 0), 0);
	assert_int_equal(fx_put(&fx, "b", SIZE, 0), 0);
	assert_int_equal(fx_put(&fx, "dir/f", SIZE, 0), 0);
	assert_int_equal(link_to(&fx, "a", "b"), -MC_EEXISTS);
	assert_int_equal(link_to(&fx, "a", "a"), -MC_EEXISTS);
	assert_int_equal(link_to(&fx, "a", "new/"), -MC_EPARAM);
	assert_int_equal(link_to(&fx, "dir/", "new"), -MC_EPARAM);
	assert_int_equal(link_to(&fx, "a", ""), -MC_EKEY);
	assert_int_equal(link_to(&fx, "a", longest), -MC_EKEY);
	assert_int_equal(look(&fx, "a"), 0);
	assert_int_equal(got.attrs.count, 0);
	assert_int_equal(keys(&fx), 3);
	longest[MCP_KEY_MAX] = '\0';
	assert_int_equal(link_to(&fx, "a", longest), 0);
	assert_int_equal(link_to(&fx, longest, "c"), 0);
	assert_int_equal(link_to(&fx, "a", "c"), -MC_EEXISTS);
	assert_linked(&fx, longest, 3);
	fx_check(&fx);
	fx_down(&fx);
}

static void the_object_goes_with_its_last_name(void **state)
{
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "a", SIZE, 0), 0);
	assert_int_equal(link_to(&fx, "a", "b"), 0);
	assert_int_equal(link_to(&fx, "a", "c"), 0);
	assert_int_equal(fx_remove(&fx, "a", 0), 0);
	mcm_links_tick(fx.m);
	assert_int_equal(look(&fx, "a"), -MC_ENOOBJECT);
	assert_linked(&fx, "b", 2);
	/* a put replaces one name */
	assert_int_equal(fx_put(&fx, "c", 100, MCP_PUT_UPSERT), 0);
	mcm_links_tick(fx.m);
	assert_int_equal(look(&fx, "c"), 0);
	assert_int_equal(got.size, 100);
	assert_int_equal(got.attrs.count, 0);
	assert_linked(&fx, "b", 1);
	assert_int_equal(fx_remove(&fx, "b", 0), 0);
	assert_int_equal(look_key(&fx, shared_key()), 0);
	assert_int_equal(attrs.nlink, 0);
	mcm_links_tick(fx.m);
	assert_int_equal(look_key(&fx, shared_key()), -MC_ENOOBJECT);
	assert_int_equal(keys(&fx), 1);
	assert_int_equal(fx.m->index.links.count, 0);
	fx_check(&fx);
	fx_down(&fx);
}

static void a_rename_moves_a_name(void **state)
{
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "d/a", SIZE, 0), 0);
	assert_int_equal(link_to(&fx, "d/a", "d/b"), 0);
	assert_int_equal(fx_put(&fx, "other", 100, 0), 0);
	assert_int_equal(fx_rename(&fx, "d/a", "c", 0), 0);
	assert_linked(&fx, "c", 2);
	/* as rename(2) */
	assert_int_equal(fx_rename(&fx, "c", "d/b", 0), 0);
	assert_linked(&fx, "c", 2);
	assert_int_equal(fx_rename(&fx, "c", "d/b", MCP_RENAME_NOREPLACE), -MC_EEXISTS);
	for (unsigned i = 0; i < 8; i++) {
		char to[8];
		uint64_t moved;

		snprintf(to, sizeof(to), "e%u/", i);
		assert_int_equal(mcm_rename_dir(fx.m, &(struct mcp_rename_dir){
			.from = fx_bytes(i ? (char[]){ 'e', (char)('0' + i - 1), '/', 0 } : "d/"),
			.to = fx_bytes(to) }, &moved), 0);
		assert_int_equal(moved, 1);
		mcm_links_tick(fx.m);
		assert_linked(&fx, "c", 2);
	}
	assert_linked(&fx, "e7/b", 2);
	assert_int_equal(fx_rename(&fx, "other", "e7/b", 0), 0);
	mcm_links_tick(fx.m);
	assert_linked(&fx, "c", 1);
	assert_int_equal(fx_rename(&fx, "e7/b", "c", 0), 0);
	mcm_links_tick(fx.m);
	assert_int_equal(look_key(&fx, mcp_bytes(".mcfs-links/0000000000001234", 28)), -MC_ENOOBJECT);
	assert_int_equal(keys(&fx), 1);
	fx_check(&fx);
	fx_down(&fx);
}

static void names_of_an_evicted_object_end(void **state)
{
	struct fixture fx;
	char key[8];

	(void)state;
	fx_up(&fx, 1, 64 * 1024, NULL);
	assert_int_equal(fx_put(&fx, "a", SIZE, 0), 0);
	assert_int_equal(link_to(&fx, "a", "dir/b"), 0);
	for (unsigned i = 0; look(&fx, "a") == 0; i++) {
		assert_true(i < 100);
		snprintf(key, sizeof(key), "%u", i);
		assert_int_equal(fx_put(&fx, key, SIZE, 0), 0);
	}
	/* before the tick too */
	assert_int_equal(look(&fx, "dir/b"), -MC_ENOOBJECT);
	assert_int_equal(fx_exist(&fx, "dir/b", 0), 0);
	assert_int_equal(link_to(&fx, "dir/b", "c"), -MC_ENOOBJECT);
	assert_int_equal(fx_put(&fx, "a", 100, 0), 0);
	assert_int_equal(look(&fx, "a"), 0);
	assert_int_equal(got.size, 100);
	mcm_links_tick(fx.m);
	assert_false(mcm_names_busy(&fx.m->names, "dir/", 4));
	assert_int_equal(fx.m->index.links.count, 0);
	fx_check(&fx);
	fx_down(&fx);
}

/* A program that puts something else under the shared key gives the names no other bytes than those of a shared
 * object. */
static void a_foreign_object_under_the_shared_key_has_no_names(void **state)
{
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "a", SIZE, 0), 0);
	assert_int_equal(link_to(&fx, "a", "b"), 0);
	assert_int_equal(fx_put(&fx, ".mcfs-links/0000000000001234", 100, MCP_PUT_UPSERT), 0);
	assert_int_equal(look(&fx, "a"), 0);
	assert_int_equal(got.size, 100);
	assert_int_equal(attrs.nlink, 2);
	assert_int_equal(fx_remove(&fx, ".mcfs-links/0000000000001234", 0), 0);
	assert_int_equal(fx_put(&fx, ".mcfs-links/0000000000001234", 100, 0), 0);
	assert_int_equal(look(&fx, "a"), -MC_ENOOBJECT);
	mcm_links_tick(fx.m);
	assert_int_equal(keys(&fx), 1);
	/* its number is not used again */
	assert_int_equal(fx_put(&fx, "c", SIZE, 0), 0);
	assert_int_equal(link_to(&fx, "c", "d"), 0);
	assert_linked(&fx, "d", 2);
	assert_true(attrs.ino && attrs.ino != 0x1234);
	fx_check(&fx);
	fx_down(&fx);
}

/* A link or a rename there would give an object two keys, or names another object. */
static void shared_keys_are_reserved(void **state)
{
	static const char own[] = ".mcfs-links/0000000000001234", free_key[] = ".mcfs-links/0000000000000005";
	struct mcp_rename_dir dir = { .from = fx_bytes(".mcfs-links/"), .to = fx_bytes("d/") };
	struct fixture fx;
	uint64_t moved;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "a", SIZE, 0), 0);
	assert_int_equal(link_ino(&fx, "a", free_key, 5), -MC_EPARAM);
	assert_int_equal(link_ino(&fx, "a", own, 5), -MC_EPARAM);
	assert_int_equal(keys(&fx), 1);
	assert_int_equal(link_to(&fx, "a", "b"), 0);
	assert_int_equal(fx_rename(&fx, own, "c", 0), -MC_EPARAM);
	assert_int_equal(fx_rename(&fx, "a", own, 0), -MC_EPARAM);
	assert_int_equal(fx_rename(&fx, "a", free_key, 0), -MC_EPARAM);
	assert_int_equal(mcm_rename_dir(fx.m, &dir, &moved), -MC_EPARAM);
	dir = (struct mcp_rename_dir){ .from = fx_bytes("d/"), .to = fx_bytes(".mcfs-links/d/") };
	assert_int_equal(fx_put(&fx, "d/f", SIZE, 0), 0);
	assert_int_equal(mcm_rename_dir(fx.m, &dir, &moved), -MC_EPARAM);
	/* neither shared, nor a name */
	assert_int_equal(fx_put(&fx, free_key, SIZE, 0), 0);
	assert_int_equal(link_to(&fx, free_key, "e"), -MC_EPARAM);
	assert_linked(&fx, "a", 2);
	assert_linked(&fx, "b", 2);
	assert_int_equal(keys(&fx), 5);
	fx_check(&fx);
	fx_down(&fx);
}

/* A read through a name, which other requests change before the object is read. */
struct reader {
	struct fixture *fx;
	struct mcp_object got;
	int r;
};

static void *read_a(void *arg)
{
	struct mcp_replica replica[MCM_REPLICA_MAX];
	struct reader *rd = arg;
	unsigned n;

	rd->r = mcm_get(rd->fx->m, NULL, 0, fx_bytes("a"), &rd->got, replica, &n);
	return NULL;
}

static void read_begin(struct reader *rd, struct mc_thread *thread)
{
	assert_int_equal(mc_fault_set("pause.link_get=delay:200@1"), 0);
	assert_int_equal(mc_thread_start(thread, "reader", read_a, rd), 0);
	while (mc_fault_hits("pause.link_get") < 1)
		mc_sleep_ms(1);
}

static void a_read_looks_at_the_name_again(void **state)
{
	struct mc_thread thread;
	struct fixture fx;
	struct reader rd = { .fx = &fx };
	char to[8];

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	/* into another shard, and the object has another version */
	for (unsigned i = 0; i < 4; i++) {
		snprintf(to, sizeof(to), "to%u", i);
		assert_int_equal(fx_put(&fx, "a", SIZE, 0), 0);
		assert_int_equal(link_to(&fx, "a", "b"), 0);
		read_begin(&rd, &thread);
		assert_int_equal(fx_rename(&fx, "a", to, 0), 0);
		assert_int_equal(fx_put(&fx, ".mcfs-links/0000000000001234", 100, MCP_PUT_UPSERT), 0);
		mc_thread_join(thread);
		assert_int_equal(rd.r, -MC_ENOOBJECT);
		assert_int_equal(look(&fx, to), 0);
		assert_int_equal(fx_remove(&fx, to, 0), 0);
		assert_int_equal(fx_remove(&fx, "b", 0), 0);
		mcm_links_tick(fx.m);
		assert_int_equal(keys(&fx), 0);
	}
	/* the same slot is a name of another file */
	assert_int_equal(fx_put(&fx, "a", SIZE, 0), 0);
	assert_int_equal(link_to(&fx, "a", "b"), 0);
	read_begin(&rd, &thread);
	assert_int_equal(fx_remove(&fx, "a", 0), 0);
	assert_int_equal(fx_put(&fx, "a", 100, 0), 0);
	mc_thread_join(thread);
	assert_int_equal(rd.r, 0);
	assert_int_equal(rd.got.size, 100);
	assert_int_equal(mc_fault_set(NULL), 0);
	fx_check(&fx);
	fx_down(&fx);
}

/* A put of an empty object with attributes, or conditions. */
static int put_attrs(struct fixture *fx, const char *key, const struct mcp_attrs *a)
{
	struct mcm_put_request rq = { .flags = MCP_PUT_UPSERT | MCP_PUT_COMMIT, .copies = 1 };
	struct mcp_put_item put = { .key = fx_bytes(key), .attrs = mcp_seq(a, 1) }, item;
	struct mcm_put_granted granted;
	struct mcp_buf b = { 0 };
	int r;

	assert_int_equal(mcp_encode(&mcp_desc_put_item, &put, &b), 0);
	assert_int_equal(mcp_decode(&mcp_desc_put_item, b.data, b.len, &item), 0);
	r = mcm_put_start(fx->m, fx->s, &rq, &item, &granted);
	mcp_buf_free(&b);
	return r;
}

/* link(2) names a file, and its key may have got another one meanwhile. */
static void another_file_gets_no_name(void **state)
{
	const struct mcp_attrs numbered = { .set = MCP_ATTR_INO, .ino = 9 };
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(put_attrs(&fx, "a", &numbered), 0);
	assert_int_equal(link_ino(&fx, "a", "b", 8), -ESTALE);
	assert_int_equal(link_ino(&fx, "a", "b", 9), 0);
	assert_int_equal(link_ino(&fx, "a", "c", 8), -ESTALE);
	assert_int_equal(link_ino(&fx, "b", "c", 0), 0);
	assert_int_equal(keys(&fx), 4);
	fx_check(&fx);
	fx_down(&fx);
}

/* A user's process may replace the names of its files, and those of others only if it may write these. */
static void a_put_of_a_name_checks_the_files_owner(void **state)
{
	const struct mcp_attrs owned = { .set = MCP_ATTR_UID, .uid = 7 };
	const struct mcp_attrs by_7 = { .set = MCP_ATTR_IF_OWNER, .owner = 7 };
	const struct mcp_attrs by_8 = { .set = MCP_ATTR_IF_OWNER, .owner = 8 };
	const struct mcp_attrs no_owner = { .set = MCP_ATTR_IF_NO_OWNER };
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(put_attrs(&fx, "a", &owned), 0);
	assert_int_equal(link_to(&fx, "a", "b"), 0);
	assert_int_equal(link_to(&fx, "a", "c"), 0);
	assert_int_equal(put_attrs(&fx, "b", &by_8), -EPERM);
	assert_int_equal(put_attrs(&fx, "b", &no_owner), -EPERM);
	assert_int_equal(put_attrs(&fx, "b", &by_7), 0);
	assert_int_equal(look(&fx, "a"), 0);
	assert_int_equal(attrs.nlink, 2);
	fx_check(&fx);
	fx_down(&fx);
}

/* Clients that rely on a lease read the bytes without a pin: the memory must not get other bytes. */
static void a_lease_keeps_an_object_without_names(void **state)
{
	struct fixture fx;
	struct mcp_bytes shared;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "a", SIZE, 0), 0);
	assert_int_equal(link_to(&fx, "a", "b"), 0);
	shared = shared_key();
	assert_int_equal(fx_exist(&fx, "a", 0), 1);
	assert_int_equal(fx_remove(&fx, "b", 0), 0);
	assert_int_equal(fx_remove(&fx, "a", MCP_REMOVE_FORCE), 0);
	mcm_links_tick(fx.m);
	assert_int_equal(look_key(&fx, shared), 0);
	fx_advance(&fx, fx.conf.default_kv_lease_ttl + 2 * mcm_tick_ms(fx.m));
	mcm_links_tick(fx.m);
	assert_int_equal(keys(&fx), 0);
	fx_check(&fx);
	fx_down(&fx);
}

/* Its bytes are there for the reader only: a name that clients cannot read does not exist. */
static void a_removed_object_that_is_read_has_no_names(void **state)
{
	struct mcp_replica replica[MCM_REPLICA_MAX];
	struct mcp_object held;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "a", SIZE, 0), 0);
	assert_int_equal(link_to(&fx, "a", "b"), 0);
	assert_int_equal(fx_pin(&fx, fx.s, "a", 0, &held, replica), 0);
	assert_int_equal(fx_remove(&fx, ".mcfs-links/0000000000001234", MCP_REMOVE_FORCE), 0);
	assert_int_equal(look(&fx, "a"), -MC_ENOOBJECT);
	assert_int_equal(fx_exist(&fx, "a", MCP_EXIST_PEEK), 0);
	assert_int_equal(fx_put(&fx, "a", 100, 0), 0);
	mcm_links_tick(fx.m);
	assert_int_equal(keys(&fx), 1);
	assert_int_equal(fx.m->index.links.count, 0);
	fx_release(&fx, fx.s, held.pin);
	fx_check(&fx);
	fx_down(&fx);
}

/* A write through the mount: a put of the shared key, which has to exist. */
static void a_put_of_the_shared_key_needs_the_object(void **state)
{
	static const char key[] = ".mcfs-links/0000000000001234";
	const struct mcp_attrs a = { .set = MCP_ATTR_LINKED };
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "a", SIZE, 0), 0);
	assert_int_equal(link_to(&fx, "a", "b"), 0);
	assert_int_equal(put_attrs(&fx, key, &a), 0);
	assert_int_equal(look(&fx, "a"), 0);
	assert_int_equal(got.size, 0);
	assert_int_equal(attrs.nlink, 2);
	assert_int_equal(fx_remove(&fx, "a", 0), 0);
	assert_int_equal(fx_remove(&fx, "b", 0), 0);
	mcm_links_tick(fx.m);
	assert_int_equal(put_attrs(&fx, key, &a), -MC_ENOOBJECT);
	assert_int_equal(keys(&fx), 0);
	fx_down(&fx);
}

static void a_restart_keeps_names_and_counts(void **state)
{
	struct jx_dump a, b;
	struct fixture fx;

	(void)state;
	jx_up(&fx, 1, MIB);
	assert_int_equal(fx_put(&fx, "a", SIZE, 0), 0);
	assert_int_equal(link_to(&fx, "a", "b"), 0);
	assert_int_equal(link_to(&fx, "a", "c"), 0);
	assert_int_equal(fx_remove(&fx, "c", 0), 0);
	assert_int_equal(fx_put(&fx, "gone", SIZE, 0), 0);
	assert_int_equal(link_ino(&fx, "gone", "gone2", 77), 0);
	assert_int_equal(fx_remove(&fx, "gone", 0), 0);
	assert_int_equal(fx_remove(&fx, "gone2", 0), 0);
	for (unsigned i = 0; i < 2; i++) {
		jx_again(&fx);
		/* Nothing ends while the owner is awaited. */
		mcm_links_tick(fx.m);
		assert_int_equal(look(&fx, "a"), -MC_ENOTREADY);
		assert_int_equal(fx_exist(&fx, "a", 0), -MC_ENOTREADY);
		assert_int_equal(fx_exist(&fx, "a", MCP_EXIST_PEEK), -MC_ENOTREADY);
		assert_int_equal(link_to(&fx, "a", "new"), -MC_ENOTREADY);
		jx_attach(&fx, 1, MIB);
		assert_linked(&fx, "a", 2);
		assert_linked(&fx, "b", 2);
		mcm_links_tick(fx.m);
		assert_int_equal(look_key(&fx, mcp_bytes(".mcfs-links/000000000000004d", 28)), -MC_ENOOBJECT);
		assert_int_equal(keys(&fx), 3);
		a = jx_dump(fx.m);
		assert_int_equal(mcm_checkpoint(fx.m), 0);
		jx_again(&fx);
		b = jx_dump(fx.m);
		jx_same(&a, &b);
		jx_dump_free(&a);
		jx_dump_free(&b);
	}
	fx_check(&fx);
	fx_down(&fx);
}

static off_t size_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_size;
}

/* However much of the records a kill leaves, the file has both names or the first one. */
static void a_torn_link_did_not_happen(void **state)
{
	struct jx_dump before, after, now;
	struct fixture fx;
	off_t small, large;
	unsigned whole = 0, cuts = 0;

	(void)state;
	jx_up(&fx, 1, MIB);
	assert_int_equal(fx_put(&fx, "a", SIZE, 0), 0);
	jx_answer(&fx);
	jx_copy_dir();
	small = size_of(jx_file(jx_copy, "journal-"));
	before = jx_dump(fx.m);
	assert_int_equal(link_to(&fx, "a", "b"), 0);
	after = jx_dump(fx.m);
	jx_answer(&fx);
	jx_copy_dir();
	large = size_of(jx_file(jx_copy, "journal-"));
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

/* Is @key that of an object for a master that skips the records of names? */
static bool is_object_without_names(const char *key)
{
	static uint8_t bytes[1 << 16];
	FILE *f = fopen(jx_file(jx_copy, "journal-"), "r");
	struct mcm_object_record o;
	struct mcm_record rec;
	struct mcp_bytes gone;
	bool is = false;
	size_t len, n;

	assert_non_null(f);
	len = fread(bytes, 1, sizeof(bytes), f);
	fclose(f);
	for (size_t at = 0; (n = mcm_record_next(bytes + at, len - at, &rec)); at += n) {
		if (rec.type == MCM_REC_OBJECT && mcm_unpack_object(&rec, &o) == 0 && o.key_len == strlen(key) &&
		    !memcmp(o.key, key, o.key_len) && !(o.attrs.set & MCM_ATTR_NAME))
			is = true;
		else if (rec.type == MCM_REC_OBJECT_GONE && mcm_unpack_key(&rec, &gone) == 0 &&
			 gone.len == strlen(key) && !memcmp(gone.data, key, gone.len))
			is = false;
	}
	return is;
}

/* The memory of an object that a name replaces is free: a master that skips the name must not have the object. */
static void earlier_masters_lose_an_object_that_a_name_replaces(void **state)
{
	struct fixture fx;

	(void)state;
	jx_up(&fx, 1, MIB);
	assert_int_equal(fx_put(&fx, "a", SIZE, 0), 0);
	assert_int_equal(fx_put(&fx, "c", 100, 0), 0);
	assert_int_equal(link_to(&fx, "a", "b"), 0);
	jx_answer(&fx);
	jx_copy_dir();
	assert_true(is_object_without_names("c"));
	assert_int_equal(fx_rename(&fx, "a", "c", 0), 0);
	jx_answer(&fx);
	jx_copy_dir();
	assert_false(is_object_without_names("c"));
	jx_again(&fx);
	jx_attach(&fx, 1, MIB);
	assert_linked(&fx, "c", 2);
	assert_int_equal(keys(&fx), 3);
	fx_check(&fx);
	fx_down(&fx);
}

/* An earlier master knows three flags: it refuses a name instead of serving an empty file. */
static void earlier_masters_refuse_the_record_of_a_name(void **state)
{
	uint8_t bytes[512];
	struct mcm_packer p = { .bytes = bytes, .cap = sizeof(bytes) };
	struct mcm_object_record r = {
		.key = "b", .key_len = 1, .flags = MCP_KIND_SPECIAL, .generation = 1,
		.attrs = { .set = MCP_ATTR_INO | MCM_ATTR_NAME, .ino = 5 },
	}, ret;
	struct mcm_record rec;

	(void)state;
	mcm_pack_object(&p, &r);
	assert_true(mcm_record_next(bytes, p.len, &rec));
	/* behind generation, size, time and CRC */
	assert_int_equal(rec.body[28], MCP_KIND_SPECIAL | MCM_RECORD_NAME);
	assert_int_equal(mcm_unpack_object(&rec, &ret), 0);
	assert_int_equal(ret.flags, MCP_KIND_SPECIAL);
	assert_int_equal(ret.attrs.set, MCP_ATTR_INO | MCM_ATTR_NAME);
	assert_int_equal(ret.attrs.ino, 5);
	r.attrs.ino = 0;
	mcm_pack_object(&p, &r);
	assert_true(mcm_record_next(bytes, p.len, &rec));
	assert_int_equal(mcm_unpack_object(&rec, &ret), -MC_EPROTO);
}

/* An earlier master keeps the bit when it drops the number, or renames the object: the object must not be lost. */
static void a_shared_object_without_its_key_is_an_object(void **state)
{
	static const char *const key[] = { "x", ".mcfs-links/0000000000000005", ".mcfs-links/0000000000000005" };
	static const uint64_t ino[] = { 5, 0, 5 };
	uint8_t bytes[512];
	struct mcm_object_record r = { .generation = 1 }, ret;
	struct mcm_record rec;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		struct mcm_packer p = { .bytes = bytes, .cap = sizeof(bytes) };

		r.key = key[i];
		r.key_len = (uint32_t)strlen(key[i]);
		r.attrs = (struct mcm_attrs_value){ .set = MCP_ATTR_INO | MCP_ATTR_LINKED, .ino = ino[i] };
		mcm_pack_object(&p, &r);
		assert_true(mcm_record_next(bytes, p.len, &rec));
		assert_int_equal(mcm_unpack_object(&rec, &ret), 0);
		assert_int_equal(!!(ret.attrs.set & MCP_ATTR_LINKED), i == 2);
		assert_int_equal(ret.attrs.ino, ino[i]);
	}
}

static void the_number_of_names_is_limited(void **state)
{
	struct fixture fx;
	char key[16];
	unsigned n = 1;
	int r = 0;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "a", SIZE, 0), 0);
	while (r == 0 && n < 100000) {
		snprintf(key, sizeof(key), "%u", n);
		r = link_to(&fx, "a", key);
		n += r == 0;
	}
	assert_int_equal(r, -EMLINK);
	assert_int_equal(n, 65000);
	assert_linked(&fx, "64999", n);
	/* The tick ends them in steps. */
	assert_int_equal(fx_remove(&fx, ".mcfs-links/0000000000001234", MCP_REMOVE_FORCE), 0);
	for (n = 0; keys(&fx); n++)
		mcm_links_tick(fx.m);
	assert_in_range(n, 60, 70);
	fx_check(&fx);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_give_one_object),
		cmocka_unit_test(impossible_links_change_nothing),
		cmocka_unit_test(the_object_goes_with_its_last_name),
		cmocka_unit_test(a_rename_moves_a_name),
		cmocka_unit_test(names_of_an_evicted_object_end),
		cmocka_unit_test(a_foreign_object_under_the_shared_key_has_no_names),
		cmocka_unit_test(a_put_of_the_shared_key_needs_the_object),
		cmocka_unit_test(another_file_gets_no_name),
		cmocka_unit_test(a_put_of_a_name_checks_the_files_owner),
		cmocka_unit_test(a_lease_keeps_an_object_without_names),
		cmocka_unit_test(a_removed_object_that_is_read_has_no_names),
		cmocka_unit_test(earlier_masters_lose_an_object_that_a_name_replaces),
		cmocka_unit_test(shared_keys_are_reserved),
		cmocka_unit_test(a_read_looks_at_the_name_again),
		cmocka_unit_test(a_shared_object_without_its_key_is_an_object),
		cmocka_unit_test(a_restart_keeps_names_and_counts),
		cmocka_unit_test(a_torn_link_did_not_happen),
		cmocka_unit_test(the_number_of_names_is_limited),
		cmocka_unit_test(earlier_masters_refuse_the_record_of_a_name),
	};

	return cmocka_run_group_tests(tests, jx_setup, jx_teardown);
}
