/* SPDX-License-Identifier: Apache-2.0
 * test_master_ranks.c - near memory, far memory and a disk of one owner: the way of objects down and up, on a master
 * whose clock only the test moves; the test is also the owner that copies. */
#include <config.h>

#include "test_master_fixture.h"
#include "master/liveness.h"
#include "master/task/used.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MIB (1ull << 20)
#define FAR 100			/* ids of the segments */
#define DISK 101
#define OTHER_FAR 102
#define DIRECTORY 103
#define S3 104
#define SIZE 100000

struct fetched {
	struct mcp_copy copy[MCM_FETCH_MAX];
	struct mcp_replica from[MCM_FETCH_MAX], to[MCM_FETCH_MAX];
	unsigned n;
};

static int mount_try(struct fixture *fx, uint64_t client, uint64_t id, uint8_t medium, uint64_t size,
		     struct mcp_mount_reply *ret)
{
	char name[32];
	const struct mcp_mount rq = {
		.segment = { 7, id }, .client = { 7, client }, .epoch = 1, .size = size, .base = id << 50, .rkey = 6,
		.name = mcp_bytes(name, (uint32_t)sprintf(name, "segment-%u", (unsigned)id)),
		.endpoint = fx_bytes("host:1"), .protocol = fx_bytes("tcp"), .medium = medium,
	};

	return mcm_mount(fx->m, rq.client, NULL, &rq, ret);
}

static void mount(struct fixture *fx, uint64_t client, uint64_t id, uint8_t medium, uint64_t size)
{
	struct mcp_mount_reply reply;

	assert_int_equal(mount_try(fx, client, id, medium, size, &reply), 0);
}

static void eager(struct mcm_conf *c)
{
	c->enable_offload = true;
	c->default_kv_lease_ttl = 0;
	c->promotion_on_hit = true;
}

static void forced(struct mcm_conf *c)
{
	eager(c);
	c->offload_force_evict = true;
}

static void on_evict(struct mcm_conf *c)
{
	eager(c);
	c->offload_on_evict = true;
}

static void directory(struct mcm_conf *c)
{
	static char dir[] = "/mnt/shared";

	c->root_fs_dir = dir;
	c->default_kv_lease_ttl = 0;
}

static void cxl(struct mcm_conf *c)
{
	c->default_kv_lease_ttl = 0;
	c->enable_cxl = true;
}

/* 8 MiB of near memory; @far, @disk: MiB of these, 0: none */
static void up(struct fixture *fx, void (*tune)(struct mcm_conf *c), uint64_t far, uint64_t disk)
{
	fx_up(fx, 1, 8 * MIB, tune);
	if (far)
		mount(fx, 1, FAR, MCP_MEDIUM_FAR, far * MIB);
	if (disk)
		mount(fx, 1, DISK, MCP_MEDIUM_DISK, disk * MIB);
}

static unsigned fetch(struct fixture *fx, struct fetched *f)
{
	f->n = mcm_offload_fetch(fx->m, fx->s, MCM_FETCH_MAX, f->copy, f->from, f->to, NULL);
	return f->n;
}

static void copied(struct fixture *fx, const struct mcp_copy *c)
{
	const struct mcp_copied done = { .put = c->put, .crc = c->crc };

	assert_int_equal(mcm_task_copied(fx->m, fx->s, &done), 0);
}

/* Make all copies that the master requests; returns their number. */
static unsigned work(struct fixture *fx)
{
	struct fetched f;
	unsigned n = 0;

	while (fetch(fx, &f)) {
		for (unsigned i = 0; i < f.n; i++)
			copied(fx, &f.copy[i]);
		n += f.n;
	}
	return n;
}

/* One copy is requested, between these media. */
static void one_copy(struct fixture *fx, uint8_t from, uint8_t to)
{
	struct fetched f;

	assert_int_equal(fetch(fx, &f), 1);
	assert_int_equal(f.from[0].medium, from);
	assert_int_equal(f.to[0].medium, to);
	copied(fx, &f.copy[0]);
}

/* The media of a key's copies, in the order in which readers try them: "nfd"; "": it is gone. */
static const char *where(struct fixture *fx, const char *key)
{
	static const char letter[MCP_MEDIA] = {
		[MCP_MEDIUM_MEMORY] = 'n', [MCP_MEDIUM_DISK] = 'd', [MCP_MEDIUM_FAR] = 'f',
		[MCP_MEDIUM_DIRECTORY] = 's', [MCP_MEDIUM_S3] = 'o',
	};
	static char text[MCM_REPLICA_MAX + 1];
	struct mcp_replica r[MCM_REPLICA_MAX];
	struct mcp_object o;
	unsigned n = 0;

	if (mcm_get(fx->m, NULL, 0, fx_bytes(key), &o, r, &n) < 0)
		n = 0;
	for (unsigned i = 0; i < n; i++)
		text[i] = letter[r[i].medium];
	text[n] = 0;
	return text;
}

static void put_many(struct fixture *fx, unsigned n)
{
	char key[16];

	for (unsigned i = 0; i < n; i++) {
		sprintf(key, "k%u", i);
		assert_int_equal(fx_put(fx, key, SIZE, 0), 0);
		(void)work(fx);
		fx_advance(fx, 1);
	}
}

/* How many of @n keys have a copy on the medium. */
static unsigned with(struct fixture *fx, unsigned n, char medium)
{
	unsigned some = 0;
	char key[16];

	for (unsigned i = 0; i < n; i++) {
		sprintf(key, "k%u", i);
		some += strchr(where(fx, key), medium) != NULL;
	}
	return some;
}

static void a_copy_goes_down_rank_by_rank(void **state)
{
	struct fixture fx;

	(void)state;
	up(&fx, eager, 16, 64);
	assert_int_equal(fx_put(&fx, "k", SIZE, 0), 0);
	one_copy(&fx, MCP_MEDIUM_MEMORY, MCP_MEDIUM_FAR);
	assert_string_equal(where(&fx, "k"), "nf");
	one_copy(&fx, MCP_MEDIUM_FAR, MCP_MEDIUM_DISK);
	assert_string_equal(where(&fx, "k"), "nfd");
	assert_int_equal(work(&fx), 0);
	fx_check(&fx);
	fx_down(&fx);
}

/* Each rank evicts objects that have a copy further down; the last one keeps all. */
static void nothing_is_lost_on_the_way_down(void **state)
{
	static void (*const tune[])(struct mcm_conf *c) = { eager, forced, on_evict };
	int64_t lost = fx_metric("mooncake_master_evicted_without_copy_total");
	struct fixture fx;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		up(&fx, tune[i], 16, 64);
		put_many(&fx, 320);
		(void)work(&fx);
		assert_in_range(with(&fx, 320, 'n'), 20, 80);
		assert_in_range(with(&fx, 320, 'f'), 40, 160);
		assert_in_range(with(&fx, 320, 'd'), i == 2 ? 100 : 320, 320);
		for (unsigned k = 0; k < 320; k++) {
			char key[16];

			sprintf(key, "k%u", k);
			assert_string_not_equal(where(&fx, key), "");
		}
		fx_check(&fx);
		fx_down(&fx);
	}
	assert_int_equal(fx_metric("mooncake_master_evicted_without_copy_total"), lost);
}

/* Far memory is the last rank: it evicts, also if disks may not. */
static void far_memory_alone_is_a_larger_cache(void **state)
{
	struct fixture fx;

	(void)state;
	up(&fx, eager, 16, 0);
	put_many(&fx, 320);
	assert_in_range(with(&fx, 320, 'f'), 120, 170);
	fx_check(&fx);
	fx_down(&fx);
}

/* No copy is ever carried out: objects are lost, but puts go on. */
static void puts_do_not_stop_without_copies(void **state)
{
	struct fixture fx;
	char key[16];

	(void)state;
	up(&fx, forced, 16, 64);
	for (unsigned i = 0; i < 320; i++) {
		sprintf(key, "k%u", i);
		assert_int_equal(fx_put(&fx, key, SIZE, 0), 0);
	}
	fx_check(&fx);
	fx_down(&fx);
}

static void an_object_comes_up_from_any_rank(void **state)
{
	struct fixture fx;

	(void)state;
	up(&fx, eager, 16, 64);
	assert_int_equal(fx_put(&fx, "k", SIZE, 0), 0);
	assert_int_equal(work(&fx), 2);
	/* The copy in near memory ends. */
	assert_int_equal(mcm_clear(fx.m, fx_bytes("seg-1"), fx_bytes("k")), 0);
	assert_string_equal(where(&fx, "k"), "fd");
	/* From the lowest rank, on request. */
	assert_int_equal(mcm_offload_tier(fx.m, fx_bytes("k"), MCP_MEDIUM_MEMORY), 0);
	one_copy(&fx, MCP_MEDIUM_FAR, MCP_MEDIUM_MEMORY);
	assert_string_equal(where(&fx, "k"), "nfd");
	/* By reads. */
	assert_int_equal(mcm_clear(fx.m, fx_bytes("seg-1"), fx_bytes("k")), 0);
	for (unsigned i = 0; i < 300; i++) {
		struct mcp_replica r[MCM_REPLICA_MAX];
		struct mcp_object o;

		assert_int_equal(fx_pin(&fx, fx.s, "k", MCP_GET_HOLD, &o, r), 0);
		fx_release(&fx, fx.s, o.pin);
	}
	one_copy(&fx, MCP_MEDIUM_FAR, MCP_MEDIUM_MEMORY);
	/* Only the disk has it. */
	assert_int_equal(mcm_clear(fx.m, fx_bytes("seg-1"), fx_bytes("k")), 0);
	assert_int_equal(mcm_clear(fx.m, fx_bytes("segment-100"), fx_bytes("k")), 0);
	assert_string_equal(where(&fx, "k"), "d");
	assert_int_equal(mcm_offload_tier(fx.m, fx_bytes("k"), MCP_MEDIUM_MEMORY), 0);
	one_copy(&fx, MCP_MEDIUM_DISK, MCP_MEDIUM_MEMORY);
	assert_string_equal(where(&fx, "k"), "nd");
	fx_check(&fx);
	fx_down(&fx);
}

/* Far memory leaves with its owner; the copies elsewhere stay. */
static void ranks_come_and_go(void **state)
{
	struct fixture fx;
	uint64_t lost;

	(void)state;
	up(&fx, eager, 16, 64);
	assert_int_equal(fx_put(&fx, "k", SIZE, 0), 0);
	assert_int_equal(work(&fx), 2);
	assert_int_equal(mcm_unmount(fx.m, (struct mcp_id){ 7, 1 }, (struct mcp_id){ 7, FAR }, &lost), 0);
	fx_advance(&fx, 1000);
	assert_string_equal(where(&fx, "k"), "nd");
	/* Straight to the disk. */
	assert_int_equal(fx_put(&fx, "l", SIZE, 0), 0);
	one_copy(&fx, MCP_MEDIUM_MEMORY, MCP_MEDIUM_DISK);
	assert_int_equal(work(&fx), 0);
	/* Objects with a copy further down need none in between. */
	mount(&fx, 1, FAR, MCP_MEDIUM_FAR, 16 * MIB);
	assert_int_equal(work(&fx), 0);
	assert_int_equal(fx_put(&fx, "m", SIZE, 0), 0);
	one_copy(&fx, MCP_MEDIUM_MEMORY, MCP_MEDIUM_FAR);
	one_copy(&fx, MCP_MEDIUM_FAR, MCP_MEDIUM_DISK);
	fx_check(&fx);
	fx_down(&fx);
}

static void s3_is_the_last_rank(void **state)
{
	struct fixture fx;

	(void)state;
	up(&fx, eager, 0, 64);
	mount(&fx, 1, S3, MCP_MEDIUM_S3, 64 * MIB);
	assert_int_equal(fx_put(&fx, "k", SIZE, 0), 0);
	one_copy(&fx, MCP_MEDIUM_MEMORY, MCP_MEDIUM_DISK);
	one_copy(&fx, MCP_MEDIUM_DISK, MCP_MEDIUM_S3);
	assert_string_equal(where(&fx, "k"), "ndo");
	assert_int_equal(work(&fx), 0);
	/* Only S3 has it. */
	assert_int_equal(mcm_clear(fx.m, fx_bytes("seg-1"), fx_bytes("k")), 0);
	assert_int_equal(mcm_clear(fx.m, fx_bytes("segment-101"), fx_bytes("k")), 0);
	assert_string_equal(where(&fx, "k"), "o");
	assert_int_equal(mcm_offload_tier(fx.m, fx_bytes("k"), MCP_MEDIUM_MEMORY), 0);
	one_copy(&fx, MCP_MEDIUM_S3, MCP_MEDIUM_MEMORY);
	assert_string_equal(where(&fx, "k"), "no");
	fx_check(&fx);
	fx_down(&fx);
}

static void the_owner_learns_which_places_are_in_use(void **state)
{
	const struct mcp_id owner = { 7, 1 }, other = { 7, 2 }, s3 = { 7, S3 };
	uint64_t place[5] = { 0 }, len;
	struct fixture fx;
	struct fetched f;
	uint8_t is[5];

	(void)state;
	up(&fx, eager, 0, 0);
	mount(&fx, 1, S3, MCP_MEDIUM_S3, 64 * MIB);
	assert_int_equal(fx_put(&fx, "k", SIZE, 0), 0);
	assert_int_equal(fx_put(&fx, "l", SIZE, 0), 0);
	assert_int_equal(fetch(&fx, &f), 2);
	copied(&fx, &f.copy[0]);
	/* A copy that has ended, and one that is being made. */
	place[0] = f.to[0].offset;
	place[1] = place[0] + 4096;
	place[2] = f.to[1].offset;
	place[3] = place[2] + 10 * MIB;
	place[4] = 1000 * MIB;
	assert_true(place[1] < place[2]);
	len = fx_used(&fx);
	assert_int_equal(mcm_used(fx.m, owner, s3, 1, place, 5, is), 0);
	assert_memory_equal(is, ((uint8_t[]){ 1, 0, 1, 0, 0 }), 5);
	assert_int_equal(fx_used(&fx), len);
	copied(&fx, &f.copy[1]);
	assert_int_equal(fx_remove(&fx, "k", 0), 0);
	fx_advance(&fx, 1000);
	assert_int_equal(mcm_used(fx.m, owner, s3, 1, place, 5, is), 0);
	assert_memory_equal(is, ((uint8_t[]){ 0, 0, 1, 0, 0 }), 5);
	assert_int_equal(mcm_used(fx.m, owner, s3, 1, place, 0, is), 0);
	/* No one else, and not of other memory. */
	assert_int_equal(mcm_used(fx.m, other, s3, 1, place, 5, is), -MC_ENOSEGMENT);
	assert_int_equal(mcm_used(fx.m, owner, s3, 2, place, 5, is), -MC_ENOSEGMENT);
	fx_check(&fx);
	fx_down(&fx);
}

/* A bucket of another cluster is refused; one of this cluster, whose journal was lost, offers its objects. */
static void a_shared_medium_of_another_cluster_is_refused(void **state)
{
	const struct mcp_id owner = { 7, 1 }, s3 = { 7, S3 };
	struct mcp_mount rq = {
		.segment = s3, .client = owner, .epoch = 1, .size = 64 * MIB, .base = 1ull << 60, .rkey = 6,
		.name = fx_bytes("s3"), .endpoint = fx_bytes("host:1"), .protocol = fx_bytes("tcp"),
		.medium = MCP_MEDIUM_S3, .offers = 1, .cluster = 12345,
	};
	struct mcp_mount_reply reply;
	struct fixture fx;
	uint8_t is;

	(void)state;
	up(&fx, eager, 0, 0);
	assert_int_equal(mcm_mount(fx.m, owner, NULL, &rq, &reply), -MC_EPARAM);
	rq.medium = MCP_MEDIUM_DISK;
	assert_int_equal(mcm_mount(fx.m, owner, NULL, &rq, &reply), 0);
	assert_int_equal(reply.adopts, 0);
	rq.medium = MCP_MEDIUM_S3;
	rq.segment.lo++;
	rq.base = 1ull << 61;
	rq.cluster = reply.cluster;
	assert_int_equal(mcm_mount(fx.m, owner, NULL, &rq, &reply), 0);
	assert_int_equal(reply.adopts, 1);
	/* Not all objects are known yet. */
	assert_int_equal(mcm_used(fx.m, owner, rq.segment, 1, &(uint64_t){ 0 }, 1, &is), -MC_ENOTREADY);
	fx_down(&fx);
}

/* Put a key in two copies. */
static void put_twice(struct fixture *fx, const char *key)
{
	struct mcm_put_request rq = { .copies = 2 };
	struct mcp_put_item item = { .key = fx_bytes(key), .size = SIZE };
	struct mcm_put_granted granted;

	assert_int_equal(mcm_put_start(fx->m, fx->s, &rq, &item, &granted), 0);
	assert_int_equal(fx_end(fx, key, granted.generation), 0);
}

/* --allocation_strategy=cxl: new objects are in far memory, near memory gets the rest. */
static void by_cxl_puts_go_to_far_memory(void **state)
{
	struct fixture fx;
	char key[16];
	unsigned n;

	(void)state;
	up(&fx, cxl, 0, 0);
	assert_int_equal(fx_put(&fx, "before", SIZE, 0), 0);
	mount(&fx, 1, FAR, MCP_MEDIUM_FAR, 4 * MIB);
	assert_int_equal(fx_put(&fx, "k", SIZE, 0), 0);
	assert_string_equal(where(&fx, "before"), "n");
	assert_string_equal(where(&fx, "k"), "f");
	/* It evicts before near memory is used. */
	put_many(&fx, 100);
	assert_int_equal(with(&fx, 100, 'n'), 0);
	assert_in_range(with(&fx, 100, 'f'), 20, 42);
	/* Near and far memory of one owner would lose both copies together. */
	put_twice(&fx, "one owner");
	assert_string_equal(where(&fx, "one owner"), "f");
	mount(&fx, 1, OTHER_FAR, MCP_MEDIUM_FAR, 4 * MIB);
	put_twice(&fx, "still one owner");
	assert_string_equal(where(&fx, "still one owner"), "f");
	/* Full of objects that cannot be evicted. */
	for (n = 0; n < 100; n++) {
		sprintf(key, "p%u", n);
		assert_int_equal(fx_put(&fx, key, SIZE, MCP_PUT_HARD_PIN), 0);
		if (*where(&fx, key) == 'n')
			break;
	}
	assert_in_range(n, 60, 84);
	fx_check(&fx);
	fx_down(&fx);
}

static void a_shared_directory_is_the_last_rank(void **state)
{
	struct fixture fx;

	(void)state;
	up(&fx, directory, 0, 0);
	mount(&fx, 1, DIRECTORY, MCP_MEDIUM_DIRECTORY, 64 * MIB);
	assert_int_equal(fx_put(&fx, "k", SIZE, 0), 0);
	one_copy(&fx, MCP_MEDIUM_MEMORY, MCP_MEDIUM_DIRECTORY);
	assert_string_equal(where(&fx, "k"), "ns");
	put_many(&fx, 200);
	assert_int_equal(with(&fx, 200, 's'), 200);
	fx_check(&fx);
	fx_down(&fx);
	up(&fx, directory, 0, 64);
	mount(&fx, 1, DIRECTORY, MCP_MEDIUM_DIRECTORY, 64 * MIB);
	assert_int_equal(fx_put(&fx, "k", SIZE, 0), 0);
	one_copy(&fx, MCP_MEDIUM_MEMORY, MCP_MEDIUM_DISK);
	one_copy(&fx, MCP_MEDIUM_DISK, MCP_MEDIUM_DIRECTORY);
	assert_string_equal(where(&fx, "k"), "nds");
	fx_check(&fx);
	fx_down(&fx);
}

static void a_shared_file_outlives_its_owner(void **state)
{
	struct mcp_mount_reply reply;
	struct fixture fx;

	(void)state;
	up(&fx, directory, 0, 64);
	mount(&fx, 1, DIRECTORY, MCP_MEDIUM_DIRECTORY, 64 * MIB);
	assert_int_equal(fx_put(&fx, "k", SIZE, 0), 0);
	one_copy(&fx, MCP_MEDIUM_MEMORY, MCP_MEDIUM_DISK);
	one_copy(&fx, MCP_MEDIUM_DISK, MCP_MEDIUM_DIRECTORY);
	(void)fx_session(&fx, 2);
	assert_int_equal(mount_try(&fx, 2, DIRECTORY, MCP_MEDIUM_DIRECTORY, 64 * MIB, &reply), -MC_EOWNER);
	/* Memory and disk of the silent owner are hidden, the shared file is read without it. */
	fx_advance(&fx, fx.conf.client_ttl + 2 * mcm_tick_ms(fx.m));
	assert_string_equal(where(&fx, "k"), "s");
	assert_int_equal(fx_exist(&fx, "k", 0), 1);
	/* Another node continues with the file; the first owner gets it back only after that one. */
	assert_int_equal(mount_try(&fx, 2, DIRECTORY, MCP_MEDIUM_DIRECTORY, 64 * MIB, &reply), 0);
	assert_int_equal(reply.reattached, 1);
	assert_int_equal(reply.objects, 1);
	assert_string_equal(where(&fx, "k"), "s");
	assert_int_equal(mount_try(&fx, 1, DIRECTORY, MCP_MEDIUM_DIRECTORY, 64 * MIB, &reply), -MC_EOWNER);
	fx_advance(&fx, fx.conf.client_ttl + 2 * mcm_tick_ms(fx.m));
	assert_string_equal(where(&fx, "k"), "s");
	assert_int_equal(mount_try(&fx, 1, DIRECTORY, MCP_MEDIUM_DIRECTORY, 64 * MIB, &reply), 0);
	assert_int_equal(reply.objects, 1);
	/* It gives the file up, and is not asked to mount it again; the file stays readable for all. */
	assert_int_equal(fx_mount(&fx, 1, 1, 101, 8 * MIB, NULL), 0);
	mount(&fx, 1, DISK, MCP_MEDIUM_DISK, 64 * MIB);
	assert_int_equal(mcm_unmount_keep(fx.m, (struct mcp_id){ 7, 1 }, (struct mcp_id){ 7, DIRECTORY }), 0);
	assert_false(fx_beat(&fx, (struct mcp_id){ 7, 1 }));
	assert_non_null(strchr(where(&fx, "k"), 's'));
	assert_int_equal(mount_try(&fx, 2, DIRECTORY, MCP_MEDIUM_DIRECTORY, 64 * MIB, &reply), 0);
	assert_int_equal(reply.objects, 1);
	/* No owner returns. */
	fx_advance(&fx, fx.conf.disk_forget_ttl + fx.conf.client_ttl);
	fx_advance(&fx, 2 * mcm_tick_ms(fx.m));
	assert_string_equal(where(&fx, "k"), "");
	fx_down(&fx);
}

/* The number of files that may be adopted. */
static unsigned orphans_of(struct fixture *fx, uint16_t tenant)
{
	struct mcp_orphan_reply reply;
	unsigned n = 0;

	for (;; n++) {
		mcm_orphan(fx->m, tenant, n, &reply);
		if (mcp_id_zero(reply.segment))
			return n;
		assert_true(reply.segment.lo == DIRECTORY || reply.segment.lo == DIRECTORY + 100);
		assert_int_equal(reply.epoch, 1);
	}
}

static unsigned orphans(struct fixture *fx)
{
	return orphans_of(fx, 0);
}

static void only_files_without_an_owner_are_adopted(void **state)
{
	struct mcp_mount_reply reply;
	struct fixture fx;
	uint64_t ttl;

	(void)state;
	up(&fx, directory, 0, 64);
	ttl = fx.conf.root_fs_adopt_ttl;
	assert_true(ttl > fx.conf.client_ttl);
	assert_int_equal(orphans(&fx), 0);
	mount(&fx, 1, DIRECTORY, MCP_MEDIUM_DIRECTORY, 64 * MIB);
	(void)fx_session(&fx, 2);
	mount(&fx, 2, DIRECTORY + 100, MCP_MEDIUM_DIRECTORY, 64 * MIB);
	/* Silent, but not for long. */
	fx_advance(&fx, fx.conf.client_ttl + 2 * mcm_tick_ms(fx.m));
	assert_int_equal(orphans(&fx), 0);
	/* Its memory and disk are no files that others could open. */
	fx_advance(&fx, ttl);
	assert_int_equal(orphans(&fx), 2);
	/* One was adopted, the other one is given up by its owner in order: the time counts from then. */
	assert_int_equal(mount_try(&fx, 2, DIRECTORY, MCP_MEDIUM_DIRECTORY, 64 * MIB, &reply), 0);
	assert_int_equal(mount_try(&fx, 2, DIRECTORY + 100, MCP_MEDIUM_DIRECTORY, 64 * MIB, &reply), 0);
	assert_int_equal(orphans(&fx), 0);
	assert_int_equal(mcm_unmount_keep(fx.m, (struct mcp_id){ 7, 2 }, (struct mcp_id){ 7, DIRECTORY + 100 }), 0);
	assert_int_equal(orphans(&fx), 0);
	for (uint64_t ms = 0; ms < ttl; ms += fx.conf.client_ttl / 2) {
		fx_advance(&fx, fx.conf.client_ttl / 2);
		(void)fx_beat(&fx, (struct mcp_id){ 7, 2 });
	}
	assert_int_equal(orphans(&fx), 1);
	fx_down(&fx);
}

static void files_of_other_tenants_are_not_named(void **state)
{
	struct mcm_segment *s;
	struct fixture fx;

	up(&fx, directory, 0, 64);
	mount(&fx, 1, DIRECTORY, MCP_MEDIUM_DIRECTORY, 64 * MIB);
	s = mcm_segments_find(&fx.m->segments, (struct mcp_id){ 7, DIRECTORY });
	mcm_store_relaxed(&s->tenant, 3);
	fx_advance(&fx, fx.conf.client_ttl + 2 * mcm_tick_ms(fx.m));
	fx_advance(&fx, fx.conf.root_fs_adopt_ttl);
	assert_int_equal(orphans_of(&fx, 2), 1);
	fx.m->security = (struct mcm_security *)&fx;	/* it is only compared with NULL */
	assert_int_equal(orphans_of(&fx, 2), 0);
	assert_int_equal(orphans_of(&fx, 3), 1);
	fx.m->security = NULL;
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_copy_goes_down_rank_by_rank),
		cmocka_unit_test(nothing_is_lost_on_the_way_down),
		cmocka_unit_test(far_memory_alone_is_a_larger_cache),
		cmocka_unit_test(puts_do_not_stop_without_copies),
		cmocka_unit_test(an_object_comes_up_from_any_rank),
		cmocka_unit_test(ranks_come_and_go),
		cmocka_unit_test(s3_is_the_last_rank),
		cmocka_unit_test(the_owner_learns_which_places_are_in_use),
		cmocka_unit_test(a_shared_medium_of_another_cluster_is_refused),
		cmocka_unit_test(by_cxl_puts_go_to_far_memory),
		cmocka_unit_test(a_shared_directory_is_the_last_rank),
		cmocka_unit_test(a_shared_file_outlives_its_owner),
		cmocka_unit_test(only_files_without_an_owner_are_adopted),
		cmocka_unit_test(files_of_other_tenants_are_not_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
