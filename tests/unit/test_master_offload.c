/* SPDX-License-Identifier: Apache-2.0
 * test_master_offload.c - copies between memory and disks on a master whose clock only the test moves; the test is
 * also the owner that copies. */
#include <config.h>

#include "test_master_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "master/admin/stats.h"

#define MIB (1ull << 20)
#define DISK 100	/* id of the disk's segment */

struct fetched {
	struct mcp_copy copy[MCM_FETCH_MAX];
	struct mcp_replica from[MCM_FETCH_MAX], to[MCM_FETCH_MAX];
	unsigned n;
};

/* ends of the entries of backlogs, as differences to the begin of the test */
struct sums {
	int64_t enqueued, rejected, completed, failed, cancelled, pending;
};

static struct sums sums_now(void)
{
	return (struct sums){
		fx_metric("master_offload_enqueued_total"), fx_metric("master_offload_enqueue_rejected_total"),
		fx_metric("master_offload_completed_total"), fx_metric("master_offload_failed_total"),
		fx_metric("master_offload_cancelled_total"), fx_metric("mooncake_master_offload_pending"),
	};
}

static struct sums sums_since(const struct sums *was)
{
	struct sums is = sums_now();

	return (struct sums){
		is.enqueued - was->enqueued, is.rejected - was->rejected, is.completed - was->completed,
		is.failed - was->failed, is.cancelled - was->cancelled, is.pending - was->pending,
	};
}

static void sums_add_up(const struct sums *was)
{
	struct sums d = sums_since(was);

	assert_int_equal(d.enqueued, d.completed + d.failed + d.cancelled + d.pending);
}

static int mount_disk(struct fixture *fx, uint64_t client, uint64_t epoch, uint64_t size, struct mcp_mount_reply *ret)
{
	const struct mcp_mount rq = {
		.segment = { 7, DISK }, .client = { 7, client }, .epoch = epoch, .size = size,
		.base = 1ull << 62, .rkey = 6, .name = fx_bytes("disk"), .endpoint = fx_bytes("host:1"),
		.protocol = fx_bytes("tcp"), .medium = MCP_MEDIUM_DISK,
	};
	struct mcp_mount_reply reply;

	return mcm_mount(fx->m, rq.client, NULL, &rq, ret ? ret : &reply);
}

static void eager(struct mcm_conf *c)
{
	c->enable_offload = true;
	c->default_kv_lease_ttl = 0;
}

static void on_evict(struct mcm_conf *c)
{
	eager(c);
	c->offload_on_evict = true;
}

static void short_queue(struct mcm_conf *c)
{
	eager(c);
	c->offloading_queue_limit = 10;
	c->offload_cap_ratio = 1;
}

static void promoting(struct mcm_conf *c)
{
	eager(c);
	c->promotion_on_hit = true;
}

static void up(struct fixture *fx, void (*tune)(struct mcm_conf *c))
{
	fx_up(fx, 1, 8 * MIB, tune);
	assert_int_equal(mount_disk(fx, 1, 1, 64 * MIB, NULL), 0);
}

static unsigned fetch(struct fixture *fx, struct fetched *f)
{
	f->n = mcm_offload_fetch(fx->m, fx->s, MCM_FETCH_MAX, f->copy, f->from, f->to, NULL);
	return f->n;
}

static int copied(struct fixture *fx, const struct mcp_copy *c, int status)
{
	const struct mcp_copied done = { .put = c->put, .status = mc_err_to_wire(status), .crc = c->crc };

	return mcm_task_copied(fx->m, fx->s, &done);
}

/* Make all copies that the master requests; returns their number. */
static unsigned work(struct fixture *fx)
{
	struct fetched f;
	unsigned n = 0;

	while (fetch(fx, &f)) {
		for (unsigned i = 0; i < f.n; i++)
			assert_int_equal(copied(fx, &f.copy[i], 0), 0);
		n += f.n;
	}
	return n;
}

/* Replicas of a key in memory and on disks; 0: it is gone. */
static unsigned where(struct fixture *fx, const char *key, unsigned *ret_disk)
{
	struct mcp_replica r[MCM_REPLICA_MAX];
	struct mcp_object o;
	unsigned n = 0;

	*ret_disk = 0;
	if (mcm_get(fx->m, NULL, 0, fx_bytes(key), &o, r, &n) < 0)
		return 0;
	for (unsigned i = 0; i < n; i++)
		*ret_disk += r[i].medium == MCP_MEDIUM_DISK;
	/* Those in memory come first. */
	assert_int_equal(r[n - 1].medium == MCP_MEDIUM_DISK, *ret_disk > 0);
	return n - *ret_disk;
}

static void a_put_is_copied_to_its_owners_disk(void **state)
{
	struct sums was = sums_now();
	struct fetched f;
	struct fixture fx;
	unsigned disk;

	up(&fx, eager);
	assert_int_equal(fetch(&fx, &f), 0);
	assert_int_equal(fx_put(&fx, "k", 100000, 0), 0);
	assert_int_equal(fetch(&fx, &f), 1);
	assert_int_equal(f.copy[0].size, 100000);
	assert_int_equal(f.from[0].medium, MCP_MEDIUM_MEMORY);
	assert_int_equal(f.to[0].medium, MCP_MEDIUM_DISK);
	assert_int_equal(f.to[0].offset % 4096, 0);
	/* Not before the copy is made. */
	assert_int_equal(where(&fx, "k", &disk), 1);
	assert_int_equal(disk, 0);
	assert_int_equal(copied(&fx, &f.copy[0], 0), 0);
	assert_int_equal(where(&fx, "k", &disk), 1);
	assert_int_equal(disk, 1);
	assert_int_equal(fetch(&fx, &f), 0);
	assert_int_equal(sums_since(&was).completed, 1);
	sums_add_up(&was);
	fx_check(&fx);
	fx_down(&fx);
}

/* Four times as much as the memory holds. */
static void eviction_keeps_the_copy_on_the_disk(void **state)
{
	int64_t lost = fx_metric("mooncake_master_evicted_without_copy_total");
	struct sums was = sums_now();
	struct fixture fx;
	unsigned disk, in_memory = 0;
	char key[16];

	up(&fx, eager);
	for (unsigned i = 0; i < 320; i++) {
		sprintf(key, "k%u", i);
		assert_int_equal(fx_put(&fx, key, 100000, 0), 0);
		work(&fx);
		fx_advance(&fx, 1);
	}
	for (unsigned i = 0; i < 320; i++) {
		sprintf(key, "k%u", i);
		in_memory += where(&fx, key, &disk);
		assert_int_equal(disk, 1);
	}
	assert_in_range(in_memory, 20, 80);
	assert_int_equal(fx_metric("mooncake_master_evicted_without_copy_total"), lost);
	assert_int_equal(sums_since(&was).completed, 320);
	sums_add_up(&was);
	fx_check(&fx);
	fx_down(&fx);
}

static int keep_task(void *arg, const struct mcm_task *t)
{
	*(struct mcm_task *)arg = *t;
	return 0;
}

/* The memory is too small for the objects of a disk: none of them is evicted for the next. */
static void a_drained_disk_loses_nothing(void **state)
{
	struct mcp_bytes source = fx_bytes("disk");
	struct mcm_task_request rq = { .type = MCP_TASK_DRAIN, .source = &source, .n_sources = 1 };
	struct fixture fx;
	struct mcm_task t;
	struct mcp_id id;
	struct fetched f;
	unsigned disk;
	char key[16];
	bool more;

	up(&fx, eager);
	for (unsigned i = 0; i < 320; i++) {
		sprintf(key, "k%u", i);
		assert_int_equal(fx_put(&fx, key, 100000, 0), 0);
		work(&fx);
		fx_advance(&fx, 1);
	}
	assert_int_equal(mcm_task_create(fx.m, &rq, &id), 0);
	for (unsigned i = 0; i < 600; i++) {
		fx_advance(&fx, 50);
		fx_beat(&fx, fx.s->client);
		f.n = mcm_task_fetch(fx.m, fx.s, MCM_FETCH_MAX, f.copy, f.from, f.to, &more);
		for (unsigned k = 0; k < f.n; k++)
			assert_int_equal(copied(&fx, &f.copy[k], 0), 0);
		mcm_tasks_tick(fx.m);
	}
	for (unsigned i = 0; i < 320; i++) {
		sprintf(key, "k%u", i);
		assert_true(where(&fx, key, &disk) + disk > 0);
	}
	assert_int_equal(mcm_task_each(fx.m, id, keep_task, &t), 0);
	assert_int_equal(t.status, MCP_TASK_FAILED);
	assert_int_equal(t.error, -MC_ENOSPACE);
	fx_check(&fx);
	fx_down(&fx);
}

static void forced(struct mcm_conf *c)
{
	eager(c);
	c->offload_force_evict = true;
}

/* A put does not wait for the disk: the oldest objects are lost, and counted. */
static void by_force_a_disk_that_does_not_keep_up_costs_objects_not_puts(void **state)
{
	int64_t lost = fx_metric("mooncake_master_evicted_without_copy_total");
	struct sums was = sums_now();
	struct fixture fx;
	unsigned disk;
	char key[16];

	up(&fx, forced);
	for (unsigned i = 0; i < 200; i++) {
		sprintf(key, "k%u", i);
		assert_int_equal(fx_put(&fx, key, 100000, 0), 0);
		fx_advance(&fx, 200);
		fx_beat(&fx, fx.s->client);
	}
	assert_true(fx_metric("mooncake_master_evicted_without_copy_total") > lost + 100);
	assert_int_equal(where(&fx, "k0", &disk), 0);
	assert_int_equal(where(&fx, "k199", &disk), 1);
	work(&fx);
	assert_int_equal(where(&fx, "k199", &disk), 1);
	assert_int_equal(disk, 1);
	assert_int_equal(sums_since(&was).pending, 0);
	sums_add_up(&was);
	fx_check(&fx);
	fx_down(&fx);
}

static void on_eviction_memory_is_copied_when_it_is_needed(void **state)
{
	struct fixture fx;
	struct fetched f;
	unsigned disk;
	char key[16];

	up(&fx, on_evict);
	for (unsigned i = 0; i < 40; i++) {
		sprintf(key, "k%u", i);
		assert_int_equal(fx_put(&fx, key, 100000, 0), 0);
	}
	assert_int_equal(fetch(&fx, &f), 0);
	/* But at once when it is asked for. */
	assert_int_equal(mcm_offload_tier(fx.m, fx_bytes("k30"), MCP_MEDIUM_DISK), 0);
	assert_int_equal(work(&fx), 1);
	(void)where(&fx, "k30", &disk);
	assert_int_equal(disk, 1);
	for (unsigned i = 40; i < 200; i++) {
		sprintf(key, "k%u", i);
		assert_int_equal(fx_put(&fx, key, 100000, 0), 0);
		work(&fx);
		fx_advance(&fx, 1);
	}
	for (unsigned i = 0; i < 200; i++) {
		sprintf(key, "k%u", i);
		assert_true(where(&fx, key, &disk) + disk > 0);
	}
	fx_check(&fx);
	fx_down(&fx);
}

/* Objects that found the queue full, or whose copy failed, are found by a walk. */
static void a_walk_finds_objects_that_the_queue_missed(void **state)
{
	struct sums was = sums_now(), d;
	struct fixture fx;
	struct fetched f;
	unsigned disk;
	char key[16];

	up(&fx, short_queue);
	for (unsigned i = 0; i < 30; i++) {
		sprintf(key, "k%u", i);
		assert_int_equal(fx_put(&fx, key, 10000, 0), 0);
	}
	assert_int_equal(sums_since(&was).rejected, 20);
	assert_true(fetch(&fx, &f) >= 8);
	for (unsigned i = f.n; i-- > 0;)
		assert_int_equal(copied(&fx, &f.copy[i], i < 8 ? -ENOSPC : 0), i < 8 ? -ENOSPC : 0);
	/* After many errors in a row the disk gets a pause. */
	assert_int_equal(fetch(&fx, &f), 0);
	fx_advance(&fx, 3000);
	work(&fx);
	for (unsigned i = 0; i < 30; i++) {
		sprintf(key, "k%u", i);
		(void)where(&fx, key, &disk);
		assert_int_equal(disk, 1);
	}
	assert_int_equal(fetch(&fx, &f), 0);
	d = sums_since(&was);
	assert_int_equal(d.failed, 8);
	assert_int_equal(d.completed, 30);
	sums_add_up(&was);
	fx_check(&fx);
	fx_down(&fx);
}

static void an_object_that_ends_before_its_copy_is_cancelled(void **state)
{
	struct sums was = sums_now();
	struct fixture fx;
	struct fetched f;
	unsigned disk;

	up(&fx, eager);
	assert_int_equal(fx_put(&fx, "queued", 10000, 0), 0);
	assert_int_equal(fx_remove(&fx, "queued", 0), 0);
	assert_int_equal(fetch(&fx, &f), 0);
	assert_int_equal(sums_since(&was).cancelled, 1);
	assert_int_equal(fx_put(&fx, "running", 10000, 0), 0);
	assert_int_equal(fetch(&fx, &f), 1);
	assert_int_equal(fx_remove(&fx, "running", MCP_REMOVE_FORCE), 0);
	assert_int_equal(fx_put(&fx, "running", 20000, 0), 0);
	assert_int_equal(copied(&fx, &f.copy[0], 0), -MC_ENOOBJECT);
	assert_int_equal(sums_since(&was).cancelled, 2);
	/* The new value is another object. */
	assert_int_equal(where(&fx, "running", &disk), 1);
	assert_int_equal(disk, 0);
	assert_int_equal(work(&fx), 1);
	sums_add_up(&was);
	fx_check(&fx);
	fx_down(&fx);
}

/* A removed object frees its range on the disk, a read one when its reader has ended. */
static void removal_frees_the_disk_after_the_readers(void **state)
{
	struct mcp_replica r[MCM_REPLICA_MAX];
	struct mcp_object o;
	struct fixture fx;
	struct mcm_segment *s;

	up(&fx, eager);
	assert_int_equal(fx_put(&fx, "k", 10000, 0), 0);
	assert_int_equal(work(&fx), 1);
	s = mcm_segments_find(&fx.m->segments, (struct mcp_id){ 7, DISK });
	assert_int_equal(mcm_load_relaxed(&s->used), 12288);
	assert_int_equal(fx_pin(&fx, fx.s, "k", MCP_GET_HOLD, &o, r), 0);
	assert_int_equal(fx_remove(&fx, "k", MCP_REMOVE_FORCE), 0);
	assert_int_equal(mcm_load_relaxed(&s->used), 12288);
	fx_release(&fx, fx.s, o.pin);
	assert_int_equal(mcm_load_relaxed(&s->used), 0);
	fx_check(&fx);
	fx_down(&fx);
}

/* Fill memory and push "k" out of it. */
static void leave_memory(struct fixture *fx)
{
	unsigned disk;
	char key[16];

	assert_int_equal(fx_put(fx, "k", 100000, 0), 0);
	for (unsigned i = 0; i < 200; i++) {
		sprintf(key, "f%u", i);
		assert_int_equal(fx_put(fx, key, 100000, 0), 0);
		work(fx);
		fx_advance(fx, 1);
	}
	assert_int_equal(where(fx, "k", &disk), 0);
	assert_int_equal(disk, 1);
}

static void read_it(struct fixture *fx)
{
	struct mcp_replica r[MCM_REPLICA_MAX];
	struct mcp_object o;

	assert_int_equal(fx_pin(fx, fx->s, "k", MCP_GET_LEASE, &o, r), 0);
	fx_release(fx, fx->s, o.pin);
}

static void objects_are_promoted_by_reads_and_on_request(void **state)
{
	int64_t done = fx_metric("master_promotion_completed_total");
	struct fixture fx;
	struct fetched f;
	unsigned disk;

	up(&fx, promoting);
	leave_memory(&fx);
	read_it(&fx);
	assert_int_equal(fetch(&fx, &f), 0);
	read_it(&fx);
	assert_int_equal(fetch(&fx, &f), 1);
	assert_int_equal(f.from[0].medium, MCP_MEDIUM_DISK);
	assert_int_equal(f.to[0].medium, MCP_MEDIUM_MEMORY);
	assert_int_equal(copied(&fx, &f.copy[0], 0), 0);
	assert_int_equal(where(&fx, "k", &disk), 1);
	assert_int_equal(disk, 1);
	assert_int_equal(fx_metric("master_promotion_completed_total"), done + 1);
	/* In memory: no second time. */
	assert_int_equal(mcm_offload_tier(fx.m, fx_bytes("k"), MCP_MEDIUM_MEMORY), 0);
	assert_int_equal(fetch(&fx, &f), 0);
	assert_int_equal(mcm_offload_tier(fx.m, fx_bytes("f0"), MCP_MEDIUM_MEMORY), 0);
	assert_int_equal(fetch(&fx, &f), 1);
	assert_int_equal(copied(&fx, &f.copy[0], 0), 0);
	assert_int_equal(fx_metric("master_promotion_in_flight"), 0);
	fx_check(&fx);
	fx_down(&fx);
}

/* The owner ends, and another process comes back with the disk. */
static void a_disk_outlives_its_owner(void **state)
{
	struct mcp_mount_reply reply;
	struct mcm_session *other;
	struct fixture fx;
	unsigned disk;

	up(&fx, eager);
	leave_memory(&fx);
	other = fx_session(&fx, 2);
	/* Not while the owner serves it. */
	assert_int_equal(mount_disk(&fx, 2, 1, 64 * MIB, &reply), -MC_EOWNER);
	assert_int_equal(mcm_unmount_keep(fx.m, (struct mcp_id){ 7, 1 }, (struct mcp_id){ 7, DISK }), 0);
	assert_int_equal(fx_stat(&fx, "k", NULL), -MC_ENOOBJECT);
	fx_session_end(&fx, fx.s);
	fx.s = other;
	/* Longer than memory would be kept. */
	fx_advance(&fx, 2 * 600 * 1000);
	assert_int_equal(mount_disk(&fx, 2, 1, 64 * MIB, &reply), 0);
	assert_int_equal(reply.reattached, 1);
	assert_int_equal(where(&fx, "k", &disk), 0);
	assert_int_equal(disk, 1);
	/* Another epoch: other content. */
	assert_int_equal(mount_disk(&fx, 2, 9, 64 * MIB, &reply), 0);
	assert_int_equal(reply.reattached, 0);
	fx_advance(&fx, 1);
	assert_int_equal(fx_stat(&fx, "k", NULL), -MC_ENOOBJECT);
	fx_check(&fx);
	fx_down(&fx);
}

/* A reader reports a copy that it cannot use: other readers keep their range, and the object its other copies. */
static void a_bad_copy_is_dropped(void **state)
{
	struct mcp_replica r[MCM_REPLICA_MAX];
	struct mcp_object o;
	struct fixture fx;
	unsigned disk;

	up(&fx, eager);
	assert_int_equal(fx_put(&fx, "both", 10000, 0), 0);
	assert_int_equal(work(&fx), 1);
	assert_int_equal(fx_pin(&fx, fx.s, "both", MCP_GET_HOLD, &o, r), 0);
	mcm_pin_bad_copy(fx.m, fx.s, o.pin, (struct mcp_id){ 7, 1 }, true);
	mcm_pin_bad_copy(fx.m, fx.s, o.pin + 1, (struct mcp_id){ 7, DISK }, true);
	assert_int_equal(where(&fx, "both", &disk), 1);
	assert_int_equal(disk, 1);
	mcm_pin_bad_copy(fx.m, fx.s, o.pin, (struct mcp_id){ 7, DISK }, true);
	fx_release(&fx, fx.s, o.pin);
	assert_int_equal(where(&fx, "both", &disk), 1);
	assert_int_equal(disk, 0);
	leave_memory(&fx);
	assert_int_equal(fx_pin(&fx, fx.s, "k", MCP_GET_HOLD, &o, r), 0);
	mcm_pin_bad_copy(fx.m, fx.s, o.pin, (struct mcp_id){ 7, DISK }, false);
	assert_int_equal(fx_stat(&fx, "k", NULL), 0);
	mcm_pin_bad_copy(fx.m, fx.s, o.pin, (struct mcp_id){ 7, DISK }, true);
	assert_int_equal(fx_stat(&fx, "k", NULL), -MC_ENOOBJECT);
	fx_release(&fx, fx.s, o.pin);
	fx_check(&fx);
	fx_down(&fx);
}

static void puts_get_memory_only(void **state)
{
	struct mcp_stats_reply st;
	struct mcp_object o;
	struct fixture fx;

	up(&fx, NULL);
	mcm_stats(fx.m, &st);
	assert_int_equal(st.capacity, 8 * MIB);
	assert_int_equal(st.disk_capacity, 64 * MIB);
	assert_int_equal(fx_start(&fx, fx.s, "big", 9 * MIB, 0, NULL), -MC_ETOOBIG);
	/* Without --enable_offload the disk stays empty. */
	assert_int_equal(fx_put(&fx, "k", 10000, 0), 0);
	assert_int_equal(work(&fx), 0);
	assert_int_equal(fx_stat(&fx, "k", &o), 0);
	fx_check(&fx);
	fx_down(&fx);
}

static void emptiest_disks(struct mcm_conf *c)
{
	static char name[] = "ssd_free_ratio_first";

	eager(c);
	c->allocation_strategy = name;
}

/* Memory whose node has the emptiest disk, or none, is used first, however full the memory is. */
static void puts_go_where_the_disk_is_emptiest(void **state)
{
	struct mcp_mount_reply reply;
	struct fixture fx;
	uint64_t used;
	char key[16];

	up(&fx, emptiest_disks);
	assert_int_equal(fx_put(&fx, "first", 100000, 0), 0);
	assert_int_equal(work(&fx), 1);
	fx_session(&fx, 2);
	assert_int_equal(fx_mount(&fx, 2, 200, 9, 4 * MIB, &reply), 0);
	used = mcm_load_relaxed(&fx.m->segments.at[0]->used);
	for (unsigned i = 0; i < 30; i++) {
		sprintf(key, "k%u", i);
		assert_int_equal(fx_put(&fx, key, 100000, 0), 0);
	}
	assert_int_equal(mcm_load_relaxed(&fx.m->segments.at[0]->used), used);
	/* The other memory is full. */
	for (unsigned i = 30; i < 60; i++) {
		sprintf(key, "k%u", i);
		assert_int_equal(fx_put(&fx, key, 100000, 0), 0);
	}
	assert_true(mcm_load_relaxed(&fx.m->segments.at[0]->used) > used);
	work(&fx);
	fx_check(&fx);
	fx_down(&fx);
}

static void tenants_promoting(struct mcm_conf *c)
{
	promoting(c);
	c->enable_multi_tenants = true;
}

/* A full quota is an error at once, although the tenant has objects that are not pinned, and eviction goes on with an
 * object that is in memory again. */
static void objects_on_disks_only_make_no_room_in_a_quota(void **state)
{
	uint64_t effective;
	struct fixture fx;
	unsigned disk;

	(void)state;
	up(&fx, tenants_promoting);
	assert_int_equal(mcm_tenant_set_quota(fx.m, fx_bytes("default"), 1000000, &effective), 0);
	assert_int_equal(fx_put(&fx, "on disk", 300000, 0), 0);
	assert_int_equal(work(&fx), 1);
	assert_int_equal(mcm_clear(fx.m, fx_bytes("seg-1"), fx_bytes("on disk")), 0);
	assert_int_equal(where(&fx, "on disk", &disk), 0);
	assert_int_equal(disk, 1);
	assert_int_equal(fx_put(&fx, "pinned", 600000, MCP_PUT_HARD_PIN), 0);
	assert_int_equal(fx_put(&fx, "new", 500000, 0), -MC_EQUOTA);
	assert_int_equal(where(&fx, "on disk", &disk), 0);
	assert_int_equal(disk, 1);
	assert_int_equal(mcm_offload_tier(fx.m, fx_bytes("on disk"), MCP_MEDIUM_MEMORY), 0);
	assert_true(work(&fx) > 0);
	assert_int_equal(where(&fx, "on disk", &disk), 1);
	assert_int_equal(fx_put(&fx, "new", 400000, 0), 0);
	assert_int_equal(where(&fx, "on disk", &disk), 0);
	assert_int_equal(disk, 1);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_put_is_copied_to_its_owners_disk),
		cmocka_unit_test(eviction_keeps_the_copy_on_the_disk),
		cmocka_unit_test(a_drained_disk_loses_nothing),
		cmocka_unit_test(by_force_a_disk_that_does_not_keep_up_costs_objects_not_puts),
		cmocka_unit_test(on_eviction_memory_is_copied_when_it_is_needed),
		cmocka_unit_test(a_walk_finds_objects_that_the_queue_missed),
		cmocka_unit_test(an_object_that_ends_before_its_copy_is_cancelled),
		cmocka_unit_test(removal_frees_the_disk_after_the_readers),
		cmocka_unit_test(objects_are_promoted_by_reads_and_on_request),
		cmocka_unit_test(a_disk_outlives_its_owner),
		cmocka_unit_test(a_bad_copy_is_dropped),
		cmocka_unit_test(puts_get_memory_only),
		cmocka_unit_test(puts_go_where_the_disk_is_emptiest),
		cmocka_unit_test(objects_on_disks_only_make_no_room_in_a_quota),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
