/* SPDX-License-Identifier: Apache-2.0
 * test_master_attrs.c - attributes of files: changes, new versions, renames, restarts, directories. */
#include <config.h>

#include "test_master_journal_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "master/index/attrs.h"
#include "master/journal/journal.h"

#define MIB (1ull << 20)
#define SIZE 1000u

static struct mcp_object got;
static struct mcp_attrs attrs;
static struct mcm_xattrs_memory xattrs;

/* Look the key up as a mount does; its attributes are in attrs, zero if it has none. */
static int look(struct fixture *fx, const char *key)
{
	struct mcp_replica replica[MCM_REPLICA_MAX];
	struct mcm_attrs_memory mem = { &attrs, &xattrs };
	unsigned n;

	memset(&attrs, 0, sizeof(attrs));
	return mcm_get_attrs(fx->m, NULL, MCP_GET_DIRS, fx_bytes(key), &got, replica, &n, &mem);
}

/* The operations read the lists of decoded messages. */
static int set(struct fixture *fx, struct mcp_set_attrs msg)
{
	struct mcp_buf b = { 0 };
	struct mcp_set_attrs rq;
	int r;

	assert_int_equal(mcp_encode(&mcp_desc_set_attrs, &msg, &b), 0);
	assert_int_equal(mcp_decode(&mcp_desc_set_attrs, b.data, b.len, &rq), 0);
	r = mcm_set_attrs(fx->m, &rq);
	mcp_buf_free(&b);
	return r;
}

/* A put without bytes that ends at once. */
static int put_item(struct fixture *fx, const struct mcp_put_item *put)
{
	struct mcm_put_request rq = { .flags = MCP_PUT_UPSERT | MCP_PUT_COMMIT, .copies = 1 };
	struct mcm_put_granted granted;
	struct mcp_put_item item;
	struct mcp_buf b = { 0 };
	int r;

	assert_int_equal(mcp_encode(&mcp_desc_put_item, put, &b), 0);
	assert_int_equal(mcp_decode(&mcp_desc_put_item, b.data, b.len, &item), 0);
	r = mcm_put_start(fx->m, fx->s, &rq, &item, &granted);
	mcp_buf_free(&b);
	return r;
}

static int set_mode(struct fixture *fx, const char *key, uint64_t generation, uint32_t mode)
{
	const struct mcp_attrs a = { .set = MCP_ATTR_MODE | MCP_ATTR_UID, .mode = mode, .uid = 7 };

	return set(fx, (struct mcp_set_attrs){
		.key = fx_bytes(key), .generation = generation, .attrs = mcp_seq(&a, 1),
	});
}

static int set_mtime(struct fixture *fx, const char *key, uint64_t ns)
{
	const struct mcp_attrs a = { .set = MCP_ATTR_MTIME, .mtime_ns = ns };

	return set(fx, (struct mcp_set_attrs){ .key = fx_bytes(key), .attrs = mcp_seq(&a, 1) });
}

static int set_xattr(struct fixture *fx, const char *key, const char *name, const void *value, size_t len,
		     uint32_t flags)
{
	const struct mcp_xattr x = { fx_bytes(name), mcp_bytes(value, len) };

	return set(fx, (struct mcp_set_attrs){ .key = fx_bytes(key), .flags = flags, .xattrs = mcp_seq(&x, 1) });
}

/* The value of an extended attribute of the last look-up, as text; NULL: there is none. */
static const char *xattr(const char *name)
{
	static char value[MCP_XATTRS_MAX + 1];

	for (unsigned i = 0; i < attrs.xattrs.count; i++) {
		const struct mcp_xattr *x = &((const struct mcp_xattr *)attrs.xattrs.items)[i];

		if (x->name.len != strlen(name) || memcmp(x->name.data, name, x->name.len) != 0)
			continue;
		memcpy(value, x->value.data, x->value.len);
		value[x->value.len] = '\0';
		return value;
	}
	return NULL;
}

static void changes_keep_bytes_and_generation(void **state)
{
	struct fixture fx;
	uint64_t generation;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "f", SIZE, 0), 0);
	assert_int_equal(look(&fx, "f"), 0);
	assert_int_equal(got.attrs.count, 0);
	generation = got.generation;
	assert_int_equal(set_mode(&fx, "f", generation, 04755), 0);
	assert_int_equal(set_mtime(&fx, "f", 123456789), 0);
	assert_int_equal(look(&fx, "f"), 0);
	assert_int_equal(got.generation, generation);
	assert_int_equal(got.size, SIZE);
	assert_int_equal(attrs.set, MCP_ATTR_MODE | MCP_ATTR_UID | MCP_ATTR_MTIME | MCP_ATTR_CTIME);
	assert_int_equal(attrs.mode, 04755);
	assert_int_equal(attrs.uid, 7);
	assert_int_equal(attrs.mtime_ns, 123456789);
	assert_true(attrs.ctime_ns / 1000000 >= got.mtime_ms);
	assert_int_equal(set_mode(&fx, "f", generation + 1, 0), -ESTALE);
	assert_int_equal(set_mode(&fx, "none", 0, 0), -MC_ENOOBJECT);
	assert_int_equal(set_mode(&fx, "", 0, 0), -MC_EKEY);
	fx_down(&fx);
}

static int set_mode_of(struct fixture *fx, uint32_t flags, uint32_t owner)
{
	const struct mcp_attrs a = { .set = MCP_ATTR_MODE, .mode = 0600 };

	return set(fx, (struct mcp_set_attrs){
		.key = fx_bytes("f"), .flags = flags, .owner = owner, .attrs = mcp_seq(&a, 1),
	});
}

static void another_owner_than_the_checked_one_is_refused(void **state)
{
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "f", SIZE, 0), 0);
	assert_int_equal(set_mode_of(&fx, MCP_SET_IF_OWNER, 0), -ESTALE);
	assert_string_equal(mc_err_detail(-ESTALE), "the owner of the file has changed");
	assert_int_equal(look(&fx, "f"), 0);
	assert_int_equal(got.attrs.count, 0);
	assert_int_equal(set_mode_of(&fx, MCP_SET_IF_NO_OWNER, 0), 0);
	assert_int_equal(set_mode(&fx, "f", 0, 0644), 0);
	assert_int_equal(set_mode_of(&fx, MCP_SET_IF_NO_OWNER, 7), -ESTALE);
	assert_int_equal(set_mode_of(&fx, MCP_SET_IF_OWNER, 6), -ESTALE);
	assert_int_equal(look(&fx, "f"), 0);
	assert_int_equal(attrs.mode, 0644);
	assert_int_equal(set_mode_of(&fx, MCP_SET_IF_OWNER, 7), 0);
	assert_int_equal(look(&fx, "f"), 0);
	assert_int_equal(attrs.mode, 0600);
	fx_down(&fx);
}

static void a_new_version_keeps_mode_and_owner(void **state)
{
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "f", SIZE, 0), 0);
	assert_int_equal(set_mode(&fx, "f", 0, 06750), 0);
	assert_int_equal(set_mtime(&fx, "f", 5), 0);
	assert_int_equal(set_xattr(&fx, "f", "a", "1", 1, 0), 0);
	assert_int_equal(fx_put(&fx, "f", 2 * SIZE, MCP_PUT_UPSERT), 0);
	assert_int_equal(look(&fx, "f"), 0);
	assert_int_equal(attrs.set, MCP_ATTR_MODE | MCP_ATTR_UID);
	assert_int_equal(attrs.mode, 0750);
	assert_string_equal(xattr("a"), "1");
	assert_int_equal(fx_remove(&fx, "f", MCP_REMOVE_FORCE), 0);
	assert_int_equal(fx_put(&fx, "f", SIZE, 0), 0);
	assert_int_equal(look(&fx, "f"), 0);
	assert_int_equal(got.attrs.count, 0);
	fx_down(&fx);
}

static void extended_attributes(void **state)
{
	const struct mcp_xattr nul = { mcp_bytes("a\0b", 3), mcp_bytes("x", 1) };
	static char large[MCP_XATTRS_MAX];
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "f", SIZE, 0), 0);
	assert_int_equal(set_xattr(&fx, "f", "a", "one", 3, MCP_XATTR_REPLACE), -ENODATA);
	assert_int_equal(set_xattr(&fx, "f", "a", "one", 3, MCP_XATTR_CREATE), 0);
	assert_int_equal(set_xattr(&fx, "f", "a", "two", 3, MCP_XATTR_CREATE), -EEXIST);
	assert_int_equal(set_xattr(&fx, "f", "a", "two", 3, 0), 0);
	assert_int_equal(set_xattr(&fx, "f", "empty", "", 0, 0), 0);
	assert_int_equal(set_xattr(&fx, "f", "b", large, sizeof(large), 0), -ENOSPC);
	assert_int_equal(set_xattr(&fx, "f", "", "x", 1, 0), -ERANGE);
	assert_int_equal(set_xattr(&fx, "f", "mooncake.", "x", 1, 0), -MC_EPARAM);
	assert_int_equal(set_xattr(&fx, "f", "mooncake.crc", "x", 1, 0), -MC_EPARAM);
	assert_non_null(strstr(mc_err_detail(-MC_EPARAM), "reserved"));
	assert_int_equal(set_xattr(&fx, "f", "mooncake", "x", 1, 0), 0);
	assert_int_equal(set_xattr(&fx, "f", "mooncake", "x", 1, MCP_XATTR_REMOVE), 0);
	assert_int_equal(set(&fx, (struct mcp_set_attrs){ .key = fx_bytes("f"), .xattrs = mcp_seq(&nul, 1) }),
			 -MC_EPARAM);
	assert_non_null(strstr(mc_err_detail(-MC_EPARAM), "NUL"));
	assert_int_equal(look(&fx, "f"), 0);
	assert_int_equal(attrs.xattrs.count, 2);
	assert_string_equal(xattr("a"), "two");
	assert_string_equal(xattr("empty"), "");
	assert_int_equal(set_xattr(&fx, "f", "a", "", 0, MCP_XATTR_REMOVE), 0);
	assert_int_equal(set_xattr(&fx, "f", "a", "", 0, MCP_XATTR_REMOVE), -ENODATA);
	/* As many bytes as there is room for: name, value and 3 bytes. */
	assert_int_equal(set_xattr(&fx, "f", "empty", "", 0, MCP_XATTR_REMOVE), 0);
	assert_int_equal(set_xattr(&fx, "f", "b", large, sizeof(large) - 4, 0), 0);
	assert_int_equal(set_xattr(&fx, "f", "c", "", 0, 0), -ENOSPC);
	fx_down(&fx);
}

static void a_rename_keeps_attributes(void **state)
{
	struct fixture fx;
	uint64_t before;
	char to[16];

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "from", SIZE, 0), 0);
	assert_int_equal(set_mode(&fx, "from", 0, 0600), 0);
	assert_int_equal(set_xattr(&fx, "from", "a", "1", 1, 0), 0);
	assert_int_equal(fx_put(&fx, "to 0", SIZE, 0), 0);
	assert_int_equal(set_mode(&fx, "to 0", 0, 0444), 0);
	assert_int_equal(look(&fx, "from"), 0);
	before = attrs.ctime_ns;
	fx_advance(&fx, 1);
	assert_int_equal(fx_rename(&fx, "from", "to 0", 0), 0);
	/* Other shards, and the same one. */
	for (unsigned i = 0; i < 300; i++) {
		char from[16];

		snprintf(from, sizeof(from), "to %u", i);
		snprintf(to, sizeof(to), "to %u", i + 1);
		assert_int_equal(fx_rename(&fx, from, to, 0), 0);
	}
	assert_int_equal(look(&fx, to), 0);
	assert_int_equal(attrs.mode, 0600);
	assert_int_equal(attrs.uid, 7);
	assert_int_equal(attrs.set, MCP_ATTR_MODE | MCP_ATTR_UID | MCP_ATTR_CTIME);
	assert_true(attrs.ctime_ns > before);
	assert_string_equal(xattr("a"), "1");
	/* An object without attributes stays without. */
	assert_int_equal(fx_put(&fx, "plain", SIZE, 0), 0);
	assert_int_equal(fx_rename(&fx, "plain", "plain 2", 0), 0);
	assert_int_equal(look(&fx, "plain 2"), 0);
	assert_int_equal(got.attrs.count, 0);
	fx_down(&fx);
}

static void expect_kept(struct fixture *fx)
{
	assert_int_equal(look(fx, "f"), 0);
	assert_int_equal(attrs.mode, 0640);
	assert_int_equal(attrs.mtime_ns, UINT64_MAX);
	assert_string_equal(xattr("x"), "value");
	assert_int_equal(look(fx, "moved"), 0);
	assert_int_equal(attrs.mode, 0604);
	assert_int_equal(look(fx, "plain"), 0);
	assert_int_equal(got.attrs.count, 0);
	assert_int_equal(look(fx, "d/"), 0);
	assert_int_equal(attrs.mode, 0700);
	assert_int_equal(attrs.mtime_ns, UINT64_MAX - 1);
}

static void they_survive_kills_and_checkpoints(void **state)
{
	struct fixture fx;

	(void)state;
	jx_up(&fx, 1, MIB);
	assert_int_equal(fx_put(&fx, "f", SIZE, 0), 0);
	assert_int_equal(fx_put(&fx, "m", SIZE, 0), 0);
	assert_int_equal(fx_put(&fx, "plain", SIZE, 0), 0);
	assert_int_equal(fx_put(&fx, "d/", 0, 0), 0);
	assert_int_equal(set_mode(&fx, "f", 0, 0640), 0);
	assert_int_equal(set_mtime(&fx, "f", UINT64_MAX), 0);
	assert_int_equal(set_xattr(&fx, "f", "x", "value", 5, 0), 0);
	assert_int_equal(set_mtime(&fx, "d/", UINT64_MAX - 1), 0);
	assert_int_equal(set_mode(&fx, "d/", 0, 0700), 0);
	assert_int_equal(set_mode(&fx, "m", 0, 0604), 0);
	assert_int_equal(fx_rename(&fx, "m", "moved", 0), 0);
	jx_again(&fx);
	jx_attach(&fx, 1, MIB);
	expect_kept(&fx);
	assert_int_equal(mcm_checkpoint(fx.m), 0);
	jx_again(&fx);
	jx_attach(&fx, 1, MIB);
	expect_kept(&fx);
	fx_down(&fx);
}

static void a_directory_has_times_and_links(void **state)
{
	struct fixture fx;
	uint64_t before;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "d/", 0, 0), 0);
	assert_int_equal(look(&fx, "d/"), 0);
	assert_int_equal(attrs.nlink, 2);
	assert_int_equal(attrs.set, MCP_ATTR_MTIME | MCP_ATTR_CTIME);
	assert_int_equal(set_mtime(&fx, "d/", 5), 0);
	assert_int_equal(look(&fx, "d/"), 0);
	assert_int_equal(attrs.mtime_ns, 5);
	before = attrs.ctime_ns;
	/* A child is a later change than the time that was set. */
	fx_advance(&fx, 1000);
	assert_int_equal(fx_put(&fx, "d/sub/", 0, 0), 0);
	assert_int_equal(look(&fx, "d/"), 0);
	assert_int_equal(attrs.nlink, 3);
	assert_true(attrs.mtime_ns >= before);
	/* Without a marker. */
	assert_int_equal(fx_put(&fx, "e/f/g", SIZE, 0), 0);
	assert_int_equal(look(&fx, "e/"), 0);
	assert_int_equal(got.kind, MCP_KIND_DIR);
	assert_int_equal(attrs.nlink, 3);
	assert_int_equal(look(&fx, "e/f/"), 0);
	assert_int_equal(attrs.nlink, 2);
	assert_true(attrs.mtime_ns > 0);
	fx_down(&fx);
}

static uint64_t mtime_of(struct fixture *fx, const char *key)
{
	assert_int_equal(look(fx, key), 0);
	assert_true(attrs.set & MCP_ATTR_MTIME);
	return attrs.mtime_ns;
}

/* The directory changed since the last call, in which all time is the same. */
static void expect_changed(struct fixture *fx, const char *key)
{
	assert_int_equal(mtime_of(fx, key) / MC_NS_PER_MS, mc_wall_ms());
	fx_advance(fx, 10);
}

static void subdirectories_change_the_directory_above(void **state)
{
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "a/", 0, 0), 0);
	assert_int_equal(fx_put(&fx, "b/", 0, 0), 0);
	fx_advance(&fx, 10);
	assert_int_equal(fx_put(&fx, "a/sub/", 0, 0), 0);
	expect_changed(&fx, "a/");
	assert_int_equal(fx_rename(&fx, "a/sub/", "b/sub/", 0), 0);
	assert_int_equal(mtime_of(&fx, "a/"), mtime_of(&fx, "b/"));
	expect_changed(&fx, "b/");
	/* The moved directory itself did not change. */
	assert_true(mtime_of(&fx, "b/sub/") < mtime_of(&fx, "b/"));
	assert_int_equal(fx_put(&fx, "b/other/", 0, 0), 0);
	fx_advance(&fx, 10);
	assert_int_equal(fx_rename(&fx, "b/sub/", "b/other/", 0), 0);
	expect_changed(&fx, "b/");
	assert_int_equal(fx_remove(&fx, "b/other/", 0), 0);
	expect_changed(&fx, "b/");
	/* Without markers. */
	assert_int_equal(fx_put(&fx, "b/x/y/f", SIZE, 0), 0);
	assert_int_equal(mtime_of(&fx, "b/x/"), mtime_of(&fx, "b/"));
	expect_changed(&fx, "b/");
	assert_int_equal(fx_rename(&fx, "b/x/y/f", "a/z/f", 0), 0);
	assert_int_equal(look(&fx, "b/x/"), -MC_ENOOBJECT);
	assert_int_equal(mtime_of(&fx, "a/"), mtime_of(&fx, "b/"));
	expect_changed(&fx, "a/");
	/* Children keep a directory without its marker. */
	assert_int_equal(fx_put(&fx, "a/z/", 0, 0), 0);
	expect_changed(&fx, "a/");
	assert_int_equal(fx_rename(&fx, "a/z/", "b/z/", 0), 0);
	assert_int_equal(mtime_of(&fx, "a/z/"), mtime_of(&fx, "a/"));
	expect_changed(&fx, "a/");
	fx_down(&fx);
}

/* All of it within one millisecond, in which only the order of the events decides. */
static void the_later_of_children_and_attributes_sets_the_time(void **state)
{
	const struct mcp_attrs a = { .set = MCP_ATTR_MTIME, .mtime_ns = 9 };
	const struct mcp_put_item put = { .key = fx_bytes("e/"), .kind = MCP_KIND_DIR, .attrs = mcp_seq(&a, 1) };
	struct fixture fx;
	uint64_t now;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "d/", 0, 0), 0);
	fx_advance(&fx, 10);
	now = mc_wall_ms() * MC_NS_PER_MS;
	assert_int_equal(set_mtime(&fx, "d/", 5), 0);
	assert_int_equal(fx_put(&fx, "d/f", SIZE, 0), 0);
	assert_int_equal(mtime_of(&fx, "d/"), now);
	assert_int_equal(set_mode(&fx, "d/", 0, 0700), 0);
	assert_int_equal(mtime_of(&fx, "d/"), now);
	assert_true(attrs.ctime_ns > now);
	assert_int_equal(set_mtime(&fx, "d/", 6), 0);
	assert_int_equal(mtime_of(&fx, "d/"), 6);
	assert_int_equal(set_mode(&fx, "d/", 0, 0711), 0);
	assert_int_equal(mtime_of(&fx, "d/"), 6);
	assert_int_equal(fx_remove(&fx, "d/f", 0), 0);
	assert_int_equal(mtime_of(&fx, "d/"), now);
	/* A change that fails changes no time. */
	assert_int_equal(set_xattr(&fx, "d/", "a", "", 0, MCP_XATTR_REMOVE), -ENODATA);
	assert_int_equal(mtime_of(&fx, "d/"), now);
	/* A rename of the directory itself does not change it. */
	fx_advance(&fx, 10);
	assert_int_equal(fx_rename(&fx, "d/", "moved/", 0), 0);
	assert_int_equal(mtime_of(&fx, "moved/"), now);
	assert_int_equal(set_mtime(&fx, "moved/", 7), 0);
	assert_int_equal(fx_rename(&fx, "moved/", "again/", 0), 0);
	assert_int_equal(mtime_of(&fx, "again/"), 7);
	/* A directory that already had children gets its marker. */
	assert_int_equal(fx_put(&fx, "e/f", SIZE, 0), 0);
	assert_int_equal(put_item(&fx, &put), 0);
	assert_int_equal(mtime_of(&fx, "e/"), 9);
	fx_down(&fx);
}

static void expect_times(struct fixture *fx, uint64_t late)
{
	assert_int_equal(mtime_of(fx, "late/"), late);
	assert_int_equal(mtime_of(fx, "early/"), 5);
	assert_int_equal(mtime_of(fx, "kept/"), late);
	assert_int_equal(mtime_of(fx, "moved/"), late);
	assert_int_equal(mtime_of(fx, "put/"), 9);
	assert_int_equal(mtime_of(fx, "i/"), late);
	assert_int_equal(mtime_of(fx, "i/j/"), late);
	assert_int_equal(mtime_of(fx, "up/"), late);
	assert_int_equal(attrs.ctime_ns, late);
}

static void directories_have_times_after_a_restart(void **state)
{
	const struct mcp_attrs a = { .set = MCP_ATTR_MTIME, .mtime_ns = 9 };
	const struct mcp_put_item put = { .key = fx_bytes("put/"), .kind = MCP_KIND_DIR, .attrs = mcp_seq(&a, 1) };
	struct fixture fx;
	uint64_t late;

	(void)state;
	jx_up(&fx, 1, MIB);
	assert_int_equal(fx_put(&fx, "late/", 0, 0), 0);
	assert_int_equal(fx_put(&fx, "early/", 0, 0), 0);
	assert_int_equal(fx_put(&fx, "kept/", 0, 0), 0);
	assert_int_equal(fx_put(&fx, "m/", 0, 0), 0);
	assert_int_equal(fx_put(&fx, "up/", 0, 0), 0);
	assert_int_equal(fx_put(&fx, "put/f", SIZE, 0), 0);
	fx_advance(&fx, 10);
	late = mc_wall_ms() * MC_NS_PER_MS;
	/* All within a millisecond: a time that is set before or after the last child. */
	assert_int_equal(set_mtime(&fx, "late/", 5), 0);
	assert_int_equal(fx_put(&fx, "late/f", SIZE, 0), 0);
	assert_int_equal(fx_put(&fx, "early/f", SIZE, 0), 0);
	assert_int_equal(set_mtime(&fx, "early/", 5), 0);
	assert_int_equal(set_mode(&fx, "early/", 0, 0700), 0);
	assert_int_equal(put_item(&fx, &put), 0);
	/* The change of attributes keeps the time of a removal. */
	assert_int_equal(set_mtime(&fx, "kept/", 5), 0);
	assert_int_equal(fx_put(&fx, "kept/f", SIZE, 0), 0);
	assert_int_equal(fx_remove(&fx, "kept/f", 0), 0);
	assert_int_equal(set_mode(&fx, "kept/", 0, 0700), 0);
	/* So does a rename of the directory. */
	assert_int_equal(set_mtime(&fx, "m/", 5), 0);
	assert_int_equal(fx_put(&fx, "m/f", SIZE, 0), 0);
	assert_int_equal(fx_remove(&fx, "m/f", 0), 0);
	assert_int_equal(fx_rename(&fx, "m/", "moved/", 0), 0);
	/* Without markers. */
	assert_int_equal(fx_put(&fx, "i/j/f", SIZE, 0), 0);
	assert_int_equal(fx_put(&fx, "up/i/j/f", SIZE, 0), 0);
	expect_times(&fx, late);
	fx_advance(&fx, 1000);
	jx_again(&fx);
	jx_attach(&fx, 1, MIB);
	expect_times(&fx, late);
	assert_int_equal(mcm_checkpoint(fx.m), 0);
	jx_again(&fx);
	jx_attach(&fx, 1, MIB);
	expect_times(&fx, late);
	fx_down(&fx);
}

static int put_special(struct fixture *fx, uint16_t mask, uint32_t mode)
{
	const struct mcp_attrs a = { .set = mask, .mode = mode };

	return put_item(fx, &(struct mcp_put_item){
		.key = fx_bytes("s"), .kind = MCP_KIND_SPECIAL, .attrs = mcp_seq(&a, mask != 0),
	});
}

static void special_files_need_their_type(void **state)
{
	static const uint32_t good[] = { S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK };
	static const uint32_t bad[] = { 0, S_IFREG, S_IFDIR, S_IFLNK };
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(put_special(&fx, 0, 0), -MC_EPARAM);
	assert_string_equal(mc_err_detail(-MC_EPARAM), "a special file needs a mode");
	assert_int_equal(put_special(&fx, MCP_ATTR_UID, S_IFIFO), -MC_EPARAM);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(put_special(&fx, MCP_ATTR_MODE, bad[i] | 0600), -MC_EPARAM);
		assert_non_null(strstr(mc_err_detail(-MC_EPARAM), "not of type"));
	}
	assert_int_equal(look(&fx, "s"), -MC_ENOOBJECT);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(put_special(&fx, MCP_ATTR_MODE, good[i] | 0600), 0);
		assert_int_equal(look(&fx, "s"), 0);
		assert_int_equal(attrs.mode, good[i] | 0600);
	}
	/* The type stays when the mode changes. */
	assert_int_equal(set_mode(&fx, "s", 0, S_IFREG | 0640), 0);
	assert_int_equal(look(&fx, "s"), 0);
	assert_int_equal(attrs.mode, S_IFBLK | 0640);
	/* Nothing of refused puts is left. */
	assert_int_equal(put_special(&fx, 0, 0), -MC_EPARAM);
	assert_int_equal(look(&fx, "s"), 0);
	fx_down(&fx);
}

/* ---- listings ---- */

#define ENTRIES 8

static struct mcp_entry entry[ENTRIES];
static struct mcp_attrs entry_attrs[ENTRIES];
static struct mcm_list_page pg;

/* One page has all entries. */
static struct mcp_list list_begin(struct fixture *fx, const char *prefix, uint32_t flags)
{
	struct mcp_list rq = { .flags = flags, .prefix = fx_bytes(prefix) };

	assert_int_equal(mcm_list(fx->m, &rq, &pg), 0);
	assert_int_equal(pg.cursor_len, 0);
	assert_true(pg.names.count <= ENTRIES);
	return rq;
}

static int list(struct fixture *fx, const char *prefix, uint32_t flags)
{
	struct mcp_list rq = list_begin(fx, prefix, flags);

	return mcm_list_entries(fx->m, &rq, &pg, entry_attrs, entry);
}

/* The attributes of an entry among @n, NULL if it has none. */
static const struct mcp_attrs *entry_of(const char *name, int n)
{
	for (int i = 0; i < n; i++)
		if (entry[i].name.len == strlen(name) && !memcmp(entry[i].name.data, name, strlen(name)))
			return entry[i].attrs.count ? entry[i].attrs.items : NULL;
	fail_msg("no entry %s", name);
	return NULL;
}

/* The entry has the attributes that a look-up of its key finds, except extended attributes. */
static void expect_same(struct fixture *fx, const char *name, const char *key, int n)
{
	const struct mcp_attrs *a = entry_of(name, n);

	assert_int_equal(look(fx, key), 0);
	assert_int_equal(got.attrs.count, a != NULL);
	if (!a)
		return;
	assert_int_equal(a->xattrs.count, 0);
	attrs.xattrs = a->xattrs;
	assert_memory_equal(a, &attrs, sizeof(attrs));
}

static void a_listing_has_the_attributes_of_a_look_up(void **state)
{
	struct fixture fx;
	int n;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "d/file", SIZE, 0), 0);
	assert_int_equal(fx_put(&fx, "d/plain", SIZE, 0), 0);
	assert_int_equal(fx_put(&fx, "d/marked/", 0, 0), 0);
	assert_int_equal(fx_put(&fx, "d/marked/x", SIZE, 0), 0);
	assert_int_equal(fx_put(&fx, "d/implied/x", SIZE, 0), 0);
	assert_int_equal(fx_put(&fx, "d/implied/sub/x", SIZE, 0), 0);
	assert_int_equal(set_mode(&fx, "d/file", 0, 0640), 0);
	assert_int_equal(set_xattr(&fx, "d/file", "a", "1", 1, 0), 0);
	assert_int_equal(set_mode(&fx, "d/marked/", 0, 0700), 0);
	n = list(&fx, "d/", MCP_LIST_DIR);
	assert_int_equal(n, 4);
	assert_null(entry_of("plain", n));
	assert_int_equal(entry_of("file", n)->set, MCP_ATTR_MODE | MCP_ATTR_UID | MCP_ATTR_CTIME);
	assert_int_equal(entry_of("file", n)->mode, 0640);
	assert_int_equal(entry_of("file", n)->uid, 7);
	assert_int_equal(entry_of("marked", n)->mode, 0700);
	assert_int_equal(entry_of("marked", n)->nlink, 2);
	assert_int_equal(entry_of("implied", n)->set, MCP_ATTR_MTIME | MCP_ATTR_CTIME);
	assert_int_equal(entry_of("implied", n)->nlink, 3);
	assert_true(entry_of("implied", n)->mtime_ns > 0);
	expect_same(&fx, "plain", "d/plain", n);
	expect_same(&fx, "file", "d/file", n);
	expect_same(&fx, "marked", "d/marked/", n);
	expect_same(&fx, "implied", "d/implied/", n);
	/* In a listing of whole keys a marker is an object like others. */
	n = list(&fx, "d/", 0);
	assert_int_equal(n, 6);
	assert_null(entry_of("d/plain", n));
	assert_int_equal(entry_of("d/file", n)->mode, 0640);
	assert_int_equal(entry_of("d/marked/", n)->mode, 0700);
	assert_int_equal(entry_of("d/marked/", n)->nlink, 0);
	mcm_names_page_done(&pg.names);
	fx_down(&fx);
}

static void an_entry_with_attributes_is_of_the_present_version(void **state)
{
	struct mcp_list rq;
	struct fixture fx;
	int n;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "d/replaced", SIZE, 0), 0);
	assert_int_equal(fx_put(&fx, "d/removed", SIZE, 0), 0);
	assert_int_equal(fx_put(&fx, "d/gone/x", SIZE, 0), 0);
	assert_int_equal(set_mode(&fx, "d/replaced", 0, 0640), 0);
	assert_int_equal(set_mode(&fx, "d/removed", 0, 0640), 0);
	rq = list_begin(&fx, "d/", MCP_LIST_DIR);
	assert_int_equal(pg.names.count, 3);
	/* Between the walk over the directory and the look-ups. */
	assert_int_equal(fx_put(&fx, "d/replaced", 2 * SIZE, MCP_PUT_UPSERT), 0);
	assert_int_equal(set_mode(&fx, "d/replaced", 0, 0604), 0);
	assert_int_equal(fx_remove(&fx, "d/removed", MCP_REMOVE_FORCE), 0);
	assert_int_equal(fx_remove(&fx, "d/gone/x", MCP_REMOVE_FORCE), 0);
	n = mcm_list_entries(fx.m, &rq, &pg, entry_attrs, entry);
	assert_int_equal(n, 1);
	assert_int_equal(entry_of("replaced", n)->mode, 0604);
	assert_int_equal(look(&fx, "d/replaced"), 0);
	assert_int_equal(entry[0].size, 2 * SIZE);
	assert_int_equal(entry[0].generation, got.generation);
	mcm_names_page_done(&pg.names);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(changes_keep_bytes_and_generation),
		cmocka_unit_test(another_owner_than_the_checked_one_is_refused),
		cmocka_unit_test(a_new_version_keeps_mode_and_owner),
		cmocka_unit_test(extended_attributes),
		cmocka_unit_test(a_rename_keeps_attributes),
		cmocka_unit_test(special_files_need_their_type),
		cmocka_unit_test(they_survive_kills_and_checkpoints),
		cmocka_unit_test(a_directory_has_times_and_links),
		cmocka_unit_test(subdirectories_change_the_directory_above),
		cmocka_unit_test(directories_have_times_after_a_restart),
		cmocka_unit_test(the_later_of_children_and_attributes_sets_the_time),
		cmocka_unit_test(a_listing_has_the_attributes_of_a_look_up),
		cmocka_unit_test(an_entry_with_attributes_is_of_the_present_version),
	};

	return cmocka_run_group_tests(tests, jx_setup, jx_teardown);
}
