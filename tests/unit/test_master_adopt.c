/* SPDX-License-Identifier: Apache-2.0
 * test_master_adopt.c - objects on disks that a master without their journal takes over; the test is the owner that
 * stores the descriptions. */
#include <config.h>

#include "test_master_journal_fixture.h"

#include <stdio.h>
#include <string.h>

#include "master/ops/ops.h"
#include "master/task/adopt.h"

#define MIB (1ull << 20)
#define CLIENT ((struct mcp_id){ 7, 1 })
#define KEYS 6

/* An object on the disk. */
struct stored {
	struct mcp_adopt_item item;
	char record[MCM_ADOPT_MAX];
	struct mcp_object was;		/* under the first master */
};
static struct stored stored[2 * KEYS];
static unsigned n_stored;
static uint64_t next_offset[2];	/* at which a disk offers its next object */

static const char *key_of(unsigned i)
{
	static char key[32];

	snprintf(key, sizeof(key), "dir/key-%u", i);
	return key;
}

static uint64_t size_of(unsigned i)
{
	static const uint64_t sizes[KEYS] = { 1, 4096 - 64 - 100, 4096, 65536, 65537, 300000 };

	return sizes[i % KEYS];
}

static int mount_disk(struct fixture *fx, uint64_t id, uint64_t epoch, bool offers, uint64_t cluster, bool *ret_adopts)
{
	const struct mcp_mount rq = {
		.segment = { 7, id }, .client = CLIENT, .epoch = epoch, .size = 64 * MIB, .base = id << 56, .rkey = 6,
		.name = fx_bytes(id == 100 ? "disk" : "disk2"), .endpoint = fx_bytes("host:1"),
		.protocol = fx_bytes("tcp"), .medium = MCP_MEDIUM_DISK, .offers = offers,
		.cluster = cluster ? cluster : mcm_adopt_cluster(fx->m),
	};
	struct mcp_mount_reply reply;
	int r = mcm_mount(fx->m, CLIENT, NULL, &rq, &reply);

	if (ret_adopts)
		*ret_adopts = reply.adopts;
	if (r == 0)
		assert_int_equal(reply.cluster, mcm_adopt_cluster(fx->m));
	return r;
}

static void with_offload(struct mcm_conf *c)
{
	c->enable_offload = true;
	c->default_kv_lease_ttl = 0;
}

/* Make the copies that the master wants, and keep their descriptions. */
static unsigned store_copies(struct fixture *fx)
{
	static struct mcp_replica from[MCM_FETCH_MAX], to[MCM_FETCH_MAX];
	static uint8_t record[MCM_FETCH_MAX][MCM_ADOPT_MAX];
	static struct mcp_copy copy[MCM_FETCH_MAX];
	unsigned n = mcm_offload_fetch(fx->m, fx->s, MCM_FETCH_MAX, copy, from, to, record[0]);

	for (unsigned i = 0; i < n; i++) {
		const struct mcp_copied done = { .put = copy[i].put, .crc = copy[i].crc };
		struct stored *st = &stored[n_stored++];
		uint64_t len = mcm_object_reserve(copy[i].size) + MCP_DISK_RECORD_HEAD + copy[i].record.len;

		assert_true(copy[i].record.len && copy[i].record.len <= MCM_ADOPT_MAX);
		assert_true(copy[i].name && copy[i].version);
		memcpy(st->record, copy[i].record.data, copy[i].record.len);
		st->item = (struct mcp_adopt_item){
			.offset = to[i].offset, .length = (len + 4095) / 4096 * 4096, .order = copy[i].put,
			.record = mcp_bytes(st->record, copy[i].record.len),
		};
		assert_int_equal(mcm_task_copied(fx->m, fx->s, &done), 0);
	}
	return n;
}

/* A first master, with version 1 of all keys and then version 2 of the even ones on the disk. */
static void first_master(void)
{
	struct fixture fx;

	n_stored = 0;
	next_offset[0] = next_offset[1] = 0;
	fx_up(&fx, 1, 8 * MIB, with_offload);
	assert_int_equal(mount_disk(&fx, 100, 1, false, 0, NULL), 0);
	for (unsigned i = 0; i < KEYS; i++)
		assert_int_equal(fx_put(&fx, key_of(i), size_of(i), 0), 0);
	assert_int_equal(store_copies(&fx), KEYS);
	for (unsigned i = 0; i < KEYS; i += 2)
		assert_int_equal(fx_put(&fx, key_of(i), size_of(i + 1), MCP_PUT_UPSERT), 0);
	assert_int_equal(store_copies(&fx), KEYS / 2);
	for (unsigned i = 0; i < KEYS; i++)
		assert_int_equal(fx_stat(&fx, key_of(i), &stored[i].was), 0);
	fx_check(&fx);
	fx_down(&fx);
}

static int adopt(struct fixture *fx, uint64_t disk, const struct mcp_adopt_item *item)
{
	const struct mcp_adopt rq = { .segment = { 7, disk }, .epoch = 2 };
	const struct mcm_session owner = { .client = CLIENT };

	return mcm_adopt(fx->m, &owner, &rq, item);
}

/* At the next offset of a disk: the master takes them in this order. */
static int adopt_next(struct fixture *fx, uint64_t disk, unsigned i)
{
	struct mcp_adopt_item item = stored[i].item;
	int r;

	item.offset = next_offset[disk - 100];
	r = adopt(fx, disk, &item);
	if (r == 0)
		next_offset[disk - 100] += item.length;
	return r;
}

static int adopt_end(struct fixture *fx, uint64_t disk)
{
	const struct mcp_adopt rq = { .segment = { 7, disk }, .epoch = 2, .end = 1 };

	return mcm_adopt_end(fx->m, CLIENT, &rq);
}

static void is_as_before(struct fixture *fx, unsigned i)
{
	struct mcp_object is;

	assert_int_equal(fx_stat(fx, key_of(i), &is), 0);
	assert_int_equal(is.size, stored[i].was.size);
	assert_int_equal(is.crc, stored[i].was.crc);
	assert_int_equal(is.generation, stored[i].was.generation);
	assert_int_equal(is.mtime_ms, stored[i].was.mtime_ms);
	assert_int_equal(is.kind, stored[i].was.kind);
	assert_int_equal(is.flags, stored[i].was.flags);
}

/* Version 2 of the even keys is behind version 1 of all; offered are the odd ones and the new ones. */
static unsigned live(unsigned nth)
{
	return nth < KEYS / 2 ? 2 * nth + 1 : KEYS + nth - KEYS / 2;
}

static void adopted_objects_are_as_before_and_survive_a_restart(void **state)
{
	struct fixture fx;
	bool adopts;

	first_master();
	jx_up(&fx, 1, 8 * MIB);
	assert_int_equal(mount_disk(&fx, 100, 2, true, 0, &adopts), 0);
	assert_true(adopts);
	for (unsigned i = 0; i < KEYS; i++)
		assert_int_equal(adopt_next(&fx, 100, live(i)), 0);
	assert_int_equal(adopt_end(&fx, 100), 0);
	for (unsigned i = 0; i < KEYS; i++)
		is_as_before(&fx, i);
	fx_check(&fx);
	jx_answer(&fx);
	jx_again(&fx);
	jx_attach(&fx, 1, 8 * MIB);
	assert_int_equal(mount_disk(&fx, 100, 2, false, 0, &adopts), 0);
	assert_false(adopts);
	for (unsigned i = 0; i < KEYS; i++)
		is_as_before(&fx, i);
	assert_int_equal(adopt_next(&fx, 100, 1), -MC_ENOSEGMENT);
	fx_check(&fx);
	fx_down(&fx);
}

static void the_newest_version_of_all_disks_wins(void **state)
{
	struct mcp_object is;
	struct fixture fx;

	first_master();
	fx_up(&fx, 1, 8 * MIB, with_offload);
	/* A master whose clock is behind that of the first one. */
	fx.m->generation = 1;
	assert_int_equal(mount_disk(&fx, 100, 2, true, 0, NULL), 0);
	assert_int_equal(mount_disk(&fx, 101, 2, true, 0, NULL), 0);
	/* The older one first: it gives way. */
	assert_int_equal(adopt_next(&fx, 100, 0), 0);
	assert_int_equal(adopt_next(&fx, 101, KEYS), 0);
	is_as_before(&fx, 0);
	/* The newer one first: it stays. */
	assert_int_equal(adopt_next(&fx, 101, KEYS + 1), 0);
	assert_int_equal(adopt_next(&fx, 100, 2), -MC_EEXISTS);
	is_as_before(&fx, 2);
	/* A put of this master stays, and replaces adopted versions. */
	assert_int_equal(fx_put(&fx, key_of(5), 100, 0), 0);
	assert_int_equal(adopt_next(&fx, 100, 5), -MC_EEXISTS);
	assert_int_equal(fx_put(&fx, key_of(0), 100, MCP_PUT_UPSERT), 0);
	assert_int_equal(fx_stat(&fx, key_of(0), &is), 0);
	assert_true(is.generation > stored[0].was.generation);
	assert_int_equal(adopt_next(&fx, 100, 0), -MC_EEXISTS);
	fx_check(&fx);
	fx_down(&fx);
}

/* The next master still knows which objects are adopted. */
static void the_newest_version_wins_after_a_restart_too(void **state)
{
	struct fixture fx;

	first_master();
	jx_up(&fx, 1, 8 * MIB);
	assert_int_equal(mount_disk(&fx, 100, 2, true, 0, NULL), 0);
	assert_int_equal(adopt_next(&fx, 100, 0), 0);
	assert_int_equal(adopt_next(&fx, 100, 2), 0);
	assert_int_equal(fx_put(&fx, key_of(2), 100, MCP_PUT_UPSERT), 0);
	for (unsigned i = 0; i < 2; i++) {
		jx_answer(&fx);
		jx_again(&fx);
		jx_attach(&fx, 1, 8 * MIB);
	}
	assert_int_equal(mount_disk(&fx, 100, 2, true, 0, NULL), 0);
	assert_int_equal(mount_disk(&fx, 101, 2, true, 0, NULL), 0);
	assert_int_equal(adopt_next(&fx, 101, KEYS), 0);
	is_as_before(&fx, 0);
	assert_int_equal(adopt_next(&fx, 101, KEYS + 1), -MC_EEXISTS);
	fx_check(&fx);
	fx_down(&fx);
}

static void a_disk_gets_no_copies_until_all_is_offered(void **state)
{
	struct fixture fx;

	first_master();
	fx_up(&fx, 1, 8 * MIB, with_offload);
	assert_int_equal(mount_disk(&fx, 100, 2, true, 0, NULL), 0);
	assert_int_equal(fx_put(&fx, "new", 5000, 0), 0);
	assert_int_equal(store_copies(&fx), 0);
	assert_int_equal(adopt_next(&fx, 100, 3), 0);
	/* Twice, or not in the order of offsets. */
	assert_int_equal(adopt_next(&fx, 100, 3), -MC_EEXISTS);
	next_offset[0] = 0;
	assert_int_equal(adopt_next(&fx, 100, 1), -MC_EEXISTS);
	assert_int_equal(store_copies(&fx), 0);
	assert_int_equal(adopt_end(&fx, 100), 0);
	assert_int_equal(adopt_end(&fx, 100), -MC_ENOSEGMENT);
	assert_int_equal(store_copies(&fx), 1);
	is_as_before(&fx, 3);
	fx_check(&fx);
	fx_down(&fx);
}

/* A rename during the copy: the record has the old key, so the copy is made once more. */
static void a_record_has_the_last_key(void **state)
{
	static struct mcp_replica from[MCM_FETCH_MAX], to[MCM_FETCH_MAX];
	static uint8_t record[MCM_FETCH_MAX][MCM_ADOPT_MAX];
	static struct mcp_copy copy[MCM_FETCH_MAX];
	struct mcp_copied done;
	struct fixture fx;

	n_stored = next_offset[0] = 0;
	fx_up(&fx, 1, 8 * MIB, with_offload);
	assert_int_equal(mount_disk(&fx, 100, 1, false, 0, NULL), 0);
	assert_int_equal(fx_put(&fx, "before", 5000, 0), 0);
	assert_int_equal(mcm_offload_fetch(fx.m, fx.s, MCM_FETCH_MAX, copy, from, to, record[0]), 1);
	assert_int_equal(fx_rename(&fx, "before", "after", 0), 0);
	done = (struct mcp_copied){ .put = copy[0].put, .crc = copy[0].crc };
	assert_int_equal(mcm_task_copied(fx.m, fx.s, &done), -MC_ENOOBJECT);
	assert_int_equal(store_copies(&fx), 1);
	assert_int_equal(store_copies(&fx), 0);
	fx_check(&fx);
	fx_down(&fx);
	fx_up(&fx, 1, 8 * MIB, with_offload);
	assert_int_equal(mount_disk(&fx, 100, 2, true, 0, NULL), 0);
	assert_int_equal(adopt_next(&fx, 100, 0), 0);
	assert_int_equal(fx_stat(&fx, "after", NULL), 0);
	assert_int_equal(fx_stat(&fx, "before", NULL), -MC_ENOOBJECT);
	fx_down(&fx);
}

/* The same with the rename of a directory, and the record of a copy that was made before it is void. */
static void a_directory_s_records_have_the_last_keys(void **state)
{
	static struct mcp_replica from[MCM_FETCH_MAX], to[MCM_FETCH_MAX];
	static uint8_t record[MCM_FETCH_MAX][MCM_ADOPT_MAX];
	static struct mcp_copy copy[MCM_FETCH_MAX];
	static struct mcp_gone gone[4];
	const struct mcp_rename_dir rq = { .from = fx_bytes("before/"), .to = fx_bytes("after/") };
	struct mcp_copied done;
	struct mcp_object o;
	struct fixture fx;
	uint64_t moved;

	n_stored = 0;
	fx_up(&fx, 1, 8 * MIB, with_offload);
	assert_int_equal(mount_disk(&fx, 100, 1, false, 0, NULL), 0);
	assert_int_equal(fx_put(&fx, "before/a", 5000, 0), 0);
	assert_int_equal(fx_stat(&fx, "before/a", &o), 0);
	assert_int_equal(store_copies(&fx), 1);
	assert_int_equal(fx_put(&fx, "before/b", 5000, 0), 0);
	assert_int_equal(mcm_offload_fetch(fx.m, fx.s, MCM_FETCH_MAX, copy, from, to, record[0]), 1);
	assert_int_equal(mcm_rename_dir(fx.m, &rq, &moved), 0);
	assert_int_equal(moved, 2);
	assert_int_equal(mcm_adopt_fetch_gone(fx.m, fx.s, 4, gone), 1);
	assert_int_equal(gone[0].offset, stored[0].item.offset);
	assert_int_equal(gone[0].generation, o.generation);
	done = (struct mcp_copied){ .put = copy[0].put, .crc = copy[0].crc };
	assert_int_equal(mcm_task_copied(fx.m, fx.s, &done), -MC_ENOOBJECT);
	assert_int_equal(mcm_adopt_fetch_gone(fx.m, fx.s, 4, gone), 1);
	assert_int_equal(gone[0].offset, to[0].offset);
	assert_int_equal(store_copies(&fx), 1);
	assert_int_equal(store_copies(&fx), 0);
	fx_check(&fx);
	fx_down(&fx);
	fx_up(&fx, 1, 8 * MIB, with_offload);
	assert_int_equal(mount_disk(&fx, 100, 2, true, 0, NULL), 0);
	next_offset[0] = 0;
	assert_int_equal(adopt_next(&fx, 100, 1), 0);
	assert_int_equal(fx_stat(&fx, "after/b", NULL), 0);
	assert_int_equal(fx_stat(&fx, "before/b", NULL), -MC_ENOOBJECT);
	fx_down(&fx);
}

/* A full disk drops its copy, and the object is removed from memory later. */
static void a_copy_that_left_the_disk_before_the_removal_is_void(void **state)
{
	static struct mcp_gone gone[4];
	struct mcm_extent p[MCM_REPLICA_MAX];
	struct mcm_shard *sh;
	struct mcp_object o;
	struct fixture fx;
	uint32_t hash, slot;

	n_stored = 0;
	fx_up(&fx, 1, 8 * MIB, with_offload);
	assert_int_equal(mount_disk(&fx, 100, 1, false, 0, NULL), 0);
	assert_int_equal(fx_put(&fx, "key", 5000, 0), 0);
	assert_int_equal(fx_stat(&fx, "key", &o), 0);
	assert_int_equal(store_copies(&fx), 1);
	hash = mcm_index_hash(&fx.m->index, "key", 3);
	sh = mcm_index_shard(&fx.m->index, hash);
	mc_mutex_lock(&sh->lock);
	slot = mcm_shard_find(&fx.m->index, sh, hash, "key", 3);
	assert_int_equal(mcm_object_extents(&fx.m->index, mcm_object(&fx.m->index, slot), p), 2);
	assert_true(mcm_object_remove_copy(fx.m, sh, slot, p[1]));
	mc_mutex_unlock(&sh->lock);
	assert_int_equal(fx_remove(&fx, "key", 0), 0);
	assert_int_equal(mcm_adopt_fetch_gone(fx.m, fx.s, 4, gone), 1);
	assert_int_equal(gone[0].offset, stored[0].item.offset);
	assert_int_equal(gone[0].generation, o.generation);
	fx_check(&fx);
	fx_down(&fx);
}

/* The note is about the @nth object that was stored. */
static void told(const struct mcp_gone *g, unsigned nth, uint64_t generation)
{
	assert_int_equal(g->segment.lo, 100);
	assert_int_equal(g->offset, stored[nth].item.offset);
	assert_int_equal(g->generation, generation);
}

static void the_owner_learns_of_void_records(void **state)
{
	static struct mcp_replica from[MCM_FETCH_MAX], to[MCM_FETCH_MAX];
	static uint8_t record[MCM_FETCH_MAX][MCM_ADOPT_MAX];
	static struct mcp_copy copy[MCM_FETCH_MAX];
	static struct mcp_gone gone[MCM_GONE_MAX + 1];
	struct mcp_copied done;
	uint64_t generation[4];
	struct mcp_object o;
	struct fixture fx;

	n_stored = 0;
	fx_up(&fx, 1, 8 * MIB, with_offload);
	assert_int_equal(mount_disk(&fx, 100, 1, false, 0, NULL), 0);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(fx_put(&fx, key_of(i), 5000, 0), 0);
		assert_int_equal(fx_stat(&fx, key_of(i), &o), 0);
		generation[i] = o.generation;
		assert_int_equal(store_copies(&fx), 1);
	}
	assert_int_equal(mcm_adopt_fetch_gone(fx.m, fx.s, 10, gone), 0);
	assert_int_equal(fx_remove(&fx, key_of(0), 0), 0);
	assert_int_equal(fx_put(&fx, key_of(1), 5000, MCP_PUT_UPSERT), 0);
	/* The renamed one, and the one that it replaces. */
	assert_int_equal(fx_rename(&fx, key_of(2), "dir/key-3", 0), 0);
	assert_int_equal(mcm_adopt_fetch_gone(fx.m, fx.s, 3, gone), 3);
	assert_int_equal(mcm_adopt_fetch_gone(fx.m, fx.s, 10, gone + 3), 1);
	for (unsigned i = 0; i < 4; i++)
		told(&gone[i], i, generation[i]);
	assert_int_equal(mcm_adopt_fetch_gone(fx.m, fx.s, 10, gone), 0);
	/* Removed while the copy is being made. */
	assert_int_equal(mcm_offload_fetch(fx.m, fx.s, MCM_FETCH_MAX, copy, from, to, record[0]), 1);
	assert_int_equal(fx_remove(&fx, key_of(1), MCP_REMOVE_FORCE), 0);
	done = (struct mcp_copied){ .put = copy[0].put, .crc = copy[0].crc };
	assert_int_equal(mcm_task_copied(fx.m, fx.s, &done), -MC_ENOOBJECT);
	assert_int_equal(mcm_adopt_fetch_gone(fx.m, fx.s, 10, gone), 1);
	assert_int_equal(gone[0].offset, to[0].offset);
	assert_int_equal(gone[0].generation, copy[0].version);
	/* Objects in memory only concern no disk; of very many the latest are kept. */
	assert_int_equal(fx_put(&fx, "m", 100, 0), 0);
	assert_int_equal(fx_remove(&fx, "m", 0), 0);
	assert_int_equal(mcm_adopt_fetch_gone(fx.m, fx.s, 10, gone), 0);
	n_stored = 0;
	for (unsigned i = 0; i < MCM_GONE_MAX + 3; i++) {
		assert_int_equal(fx_put(&fx, "many", 100, MCP_PUT_UPSERT), 0);
		assert_int_equal(store_copies(&fx), 1);
		n_stored = 0;
	}
	assert_int_equal(mcm_adopt_fetch_gone(fx.m, fx.s, MCM_GONE_MAX + 1, gone), MCM_GONE_MAX);
	assert_true(fx_metric("mooncake_master_removals_not_noted_total") >= 2);
	fx_check(&fx);
	fx_down(&fx);
}

static void few_objects(struct mcm_conf *c)
{
	with_offload(c);
	c->max_objects = 3;	/* one of them is the directory */
}

static void offers_that_are_not_permitted_are_refused(void **state)
{
	const struct mcp_adopt wrong_epoch = { .segment = { 7, 100 }, .epoch = 1 };
	const struct mcp_adopt right = { .segment = { 7, 100 }, .epoch = 2 };
	struct mcp_adopt_item item;
	const struct mcm_session owner = { .client = CLIENT }, other = { .client = { 7, 2 } };
	struct fixture fx;
	bool adopts;

	first_master();
	fx_up(&fx, 1, 8 * MIB, few_objects);
	assert_int_equal(mount_disk(&fx, 100, 2, true, mcm_adopt_cluster(fx.m) + 1, &adopts), 0);
	assert_false(adopts);
	assert_int_equal(adopt_next(&fx, 100, 1), -MC_ENOSEGMENT);
	assert_int_equal(mount_disk(&fx, 100, 2, true, 0, &adopts), 0);
	assert_true(adopts);
	assert_int_equal(mcm_adopt(fx.m, &other, &right, &stored[1].item), -MC_ENOSEGMENT);
	assert_int_equal(mcm_adopt(fx.m, &owner, &wrong_epoch, &stored[1].item), -MC_ENOSEGMENT);
	item = stored[1].item;
	item.offset = 64 * MIB;
	assert_int_equal(adopt(&fx, 100, &item), -MC_EEXISTS);
	item.offset = UINT64_MAX - 4095;
	assert_int_equal(adopt(&fx, 100, &item), -MC_EEXISTS);
	item.offset = 4097;
	assert_int_equal(adopt(&fx, 100, &item), -MC_EPROTO);
	item = stored[5].item;
	item.length = 4096;
	assert_int_equal(adopt(&fx, 100, &item), -MC_EPROTO);
	item.length = 0;
	assert_int_equal(adopt(&fx, 100, &item), -MC_EPROTO);
	item = stored[1].item;
	item.order = UINT64_MAX;
	assert_int_equal(adopt(&fx, 100, &item), -MC_EPROTO);
	assert_int_equal(fx_stat(&fx, key_of(1), NULL), -MC_ENOOBJECT);
	/* --max_objects evicts nothing for them. */
	assert_int_equal(adopt_next(&fx, 100, 1), 0);
	assert_int_equal(adopt_next(&fx, 100, 3), 0);
	assert_int_equal(adopt_next(&fx, 100, 5), -MC_ENOSPACE);
	is_as_before(&fx, 1);
	is_as_before(&fx, 3);
	fx_check(&fx);
	fx_down(&fx);
}

/* The record's own checksum covers it; a master without tenants takes objects of the default one only. */
static void damaged_descriptions_are_refused(void **state)
{
	char bytes[MCM_ADOPT_MAX];
	struct mcp_adopt_item item;
	struct fixture fx;

	first_master();
	fx_up(&fx, 1, 8 * MIB, with_offload);
	assert_int_equal(mount_disk(&fx, 100, 2, true, 0, NULL), 0);
	item = stored[1].item;
	memcpy(bytes, item.record.data, item.record.len);
	for (uint32_t len = 0; len < stored[1].item.record.len; len++) {
		item.record = mcp_bytes(bytes, len);
		assert_int_equal(adopt(&fx, 100, &item), -MC_EPROTO);
	}
	item.record = mcp_bytes(bytes, stored[1].item.record.len);
	/* without the padding behind the record, which has no meaning */
	for (uint32_t i = 0; i + 8 < item.record.len; i++) {
		bytes[i] ^= 0x10;
		assert_true(adopt(&fx, 100, &item) < 0);
		bytes[i] ^= 0x10;
	}
	assert_int_equal(fx_stat(&fx, key_of(1), NULL), -MC_ENOOBJECT);
	assert_int_equal(adopt(&fx, 100, &item), 0);
	fx_check(&fx);
	fx_down(&fx);
}

/* A client that imports objects itself has their properties from the master of any pool. */
static void a_description_is_decoded_for_a_client(void **state)
{
	struct mcm_xattrs_memory xattrs;
	struct mcp_attrs attrs;
	struct mcm_attrs_memory mem = { &attrs, &xattrs };
	struct mcp_describe_reply d;
	struct mcp_bytes record;
	struct fixture fx;

	first_master();
	fx_up(&fx, 1, 8 * MIB, NULL);
	record = stored[1].item.record;
	assert_int_equal(mcm_adopt_read(fx.m, record, &mem, &d), 0);
	assert_int_equal(d.key.len, strlen(key_of(1)));
	assert_memory_equal(d.key.data, key_of(1), d.key.len);
	assert_true(d.size && d.crc);
	assert_int_equal(d.kind, MCP_KIND_OBJECT);
	for (uint32_t len = 0; len < record.len; len++)
		assert_int_equal(mcm_adopt_read(fx.m, mcp_bytes(record.data, len), &mem, &d), -MC_EPROTO);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(adopted_objects_are_as_before_and_survive_a_restart),
		cmocka_unit_test(the_newest_version_of_all_disks_wins),
		cmocka_unit_test(the_newest_version_wins_after_a_restart_too),
		cmocka_unit_test(a_disk_gets_no_copies_until_all_is_offered),
		cmocka_unit_test(a_record_has_the_last_key),
		cmocka_unit_test(a_directory_s_records_have_the_last_keys),
		cmocka_unit_test(a_copy_that_left_the_disk_before_the_removal_is_void),
		cmocka_unit_test(the_owner_learns_of_void_records),
		cmocka_unit_test(offers_that_are_not_permitted_are_refused),
		cmocka_unit_test(damaged_descriptions_are_refused),
		cmocka_unit_test(a_description_is_decoded_for_a_client),
	};

	return cmocka_run_group_tests(tests, jx_setup, jx_teardown);
}
