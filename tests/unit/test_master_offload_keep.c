/* SPDX-License-Identifier: Apache-2.0
 * test_master_offload_keep.c - objects that stay in memory until they are on a disk, and those for which no disk can
 * take a copy.  The clock moves only by the test, which is also the owner that copies. */
#include <config.h>

#include "test_master_fixture.h"

#include <errno.h>
#include <stdio.h>

#include "master/admin/stats.h"

#define MIB (1ull << 20)
#define DISK 100	/* id of the first disk's segment */
#define SIZE 100000u

struct fetched {
	struct mcp_copy copy[MCM_FETCH_MAX];
	struct mcp_replica from[MCM_FETCH_MAX], to[MCM_FETCH_MAX];
	unsigned n;
};

static int64_t lost_was, pending_was;

static int64_t lost(void)
{
	return fx_metric("mooncake_master_evicted_without_copy_total") - lost_was;
}

static int mount_disk(struct fixture *fx, unsigned number, uint64_t size)
{
	char name[16];
	const struct mcp_mount rq = {
		.segment = { 7, DISK + number }, .client = { 7, 1 }, .epoch = 1, .size = size,
		.base = 1ull << (62 - number), .rkey = 6,
		.name = (sprintf(name, "disk-%u", number), fx_bytes(name)), .endpoint = fx_bytes("host:1"),
		.protocol = fx_bytes("tcp"), .medium = MCP_MEDIUM_DISK,
	};
	struct mcp_mount_reply reply;

	return mcm_mount(fx->m, rq.client, NULL, &rq, &reply);
}

static void keeping(struct mcm_conf *c)
{
	c->enable_offload = true;
	c->default_kv_lease_ttl = 0;
}

/* Memory of 8 MiB, which holds 83 objects, and a disk; @disk 0: none. */
static void up(struct fixture *fx, uint64_t disk, void (*tune)(struct mcm_conf *c))
{
	lost_was = fx_metric("mooncake_master_evicted_without_copy_total");
	pending_was = fx_metric("mooncake_master_offload_pending");
	fx_up(fx, 1, 8 * MIB, tune);
	if (disk)
		assert_int_equal(mount_disk(fx, 0, disk), 0);
}

static void down(struct fixture *fx)
{
	fx_check(fx);
	fx_down(fx);
	assert_int_equal(fx_metric("mooncake_master_offload_pending"), pending_was);
}

/* Fetch copies, and end them with @status; their number. */
static unsigned fetch(struct fixture *fx, int status)
{
	struct fetched f;

	f.n = mcm_offload_fetch(fx->m, fx->s, MCM_FETCH_MAX, f.copy, f.from, f.to, NULL);
	for (unsigned i = 0; i < f.n; i++) {
		const struct mcp_copied done = {
			.put = f.copy[i].put, .status = mc_err_to_wire(status), .crc = f.copy[i].crc,
		};

		assert_int_equal(mcm_task_copied(fx->m, fx->s, &done), status);
	}
	return f.n;
}

static int put(struct fixture *fx, unsigned i, uint64_t size)
{
	char key[16];

	sprintf(key, "k%u", i);
	return fx_put(fx, key, size, 0);
}

static bool is_there(struct fixture *fx, unsigned i)
{
	char key[16];

	sprintf(key, "k%u", i);
	return fx_stat(fx, key, NULL) == 0;
}

static unsigned count(struct fixture *fx, unsigned from, unsigned to)
{
	unsigned n = 0;

	for (; from < to; from++)
		n += is_there(fx, from);
	return n;
}

/* Put objects from number @i on until one is refused; the number of that one. */
static unsigned fill(struct fixture *fx, unsigned i)
{
	unsigned end = i + 1000;
	int r;

	while ((r = put(fx, i, SIZE)) == 0 && i < end) {
		i++;
		fx_advance(fx, 1);
	}
	assert_int_equal(r, -MC_ENOSPACE);
	return i;
}

static void pass(struct fixture *fx, unsigned ms)
{
	for (; ms >= 500; ms -= 500) {
		fx_beat(fx, fx->s->client);
		fx_advance(fx, 500);
	}
}

/* Rounds of puts and copies: every put waits until objects are on the disk, and none is lost. */
static void puts_wait_with(void (*tune)(struct mcm_conf *c))
{
	int64_t waits = fx_metric("mooncake_master_put_waits_for_disk_total");
	struct mcp_stats_reply st;
	struct fixture fx;
	unsigned n;

	up(&fx, 64 * MIB, tune);
	n = fill(&fx, 0);
	assert_in_range(n, 75, 83);
	assert_true(fx_metric("mooncake_master_put_waits_for_disk_total") > waits);
	/* The client reads this as: it is worth to wait. */
	mcm_stats(fx.m, &st);
	assert_true(st.evictable > 7 * MIB);
	while (n < 300) {
		assert_true(fetch(&fx, 0) > 0);
		fx_advance(&fx, 300);
		n = fill(&fx, n);
		assert_int_equal(count(&fx, 0, n), n);
	}
	while (fetch(&fx, 0))
		;
	assert_int_equal(lost(), 0);
	down(&fx);
}

static void puts_wait_until_objects_are_on_the_disk(void **state)
{
	puts_wait_with(keeping);
}

static void short_queue(struct mcm_conf *c)
{
	keeping(c);
	c->offloading_queue_limit = 10;
	c->offload_cap_ratio = 1;
}

static void objects_that_find_the_queue_full_stay_too(void **state)
{
	puts_wait_with(short_queue);
}

static void on_evict(struct mcm_conf *c)
{
	keeping(c);
	c->offload_on_evict = true;
}

/* Most of the memory is free, so nothing is copied until the put that needs a whole half of it. */
static void on_eviction_a_waiting_put_begins_the_copies(void **state)
{
	struct fixture fx;
	unsigned n;

	puts_wait_with(on_evict);
	up(&fx, 64 * MIB, on_evict);
	for (n = 0; n < 40; n++)
		assert_int_equal(put(&fx, n, SIZE), 0);
	assert_int_equal(fetch(&fx, 0), 0);
	assert_int_equal(put(&fx, n, 6 * MIB), -MC_ENOSPACE);
	assert_true(fetch(&fx, 0) > 0);
	fx_advance(&fx, 300);
	assert_int_equal(put(&fx, n, 6 * MIB), 0);
	assert_int_equal(count(&fx, 0, n + 1), n + 1);
	assert_int_equal(lost(), 0);
	down(&fx);
}

/* A run of neighbours is evicted for a large object: not before they are on the disk. */
static void a_run_of_neighbours_is_kept_too(void **state)
{
	struct fixture fx;
	unsigned n, tries = 0;

	up(&fx, 64 * MIB, keeping);
	for (n = 0; n < 70; n++)
		assert_int_equal(put(&fx, n, SIZE), 0);
	/* Every second one is on the disk. */
	for (unsigned i = 0; i < n; i += 2) {
		char key[16];

		sprintf(key, "k%u", i);
		assert_int_equal(mcm_offload_tier(fx.m, fx_bytes(key), MCP_MEDIUM_DISK), 0);
	}
	{
		struct fetched f;
		unsigned half = 35;

		f.n = mcm_offload_fetch(fx.m, fx.s, half, f.copy, f.from, f.to, NULL);
		assert_int_equal(f.n, half);
		for (unsigned i = 0; i < f.n; i++)
			assert_int_equal(mcm_task_copied(fx.m, fx.s, &(struct mcp_copied){
				.put = f.copy[i].put, .crc = f.copy[i].crc }), 0);
	}
	while (put(&fx, n, 3 * MIB) == -MC_ENOSPACE && tries++ < 10) {
		assert_int_equal(count(&fx, 0, n), n);
		(void)fetch(&fx, 0);
		fx_advance(&fx, 300);
	}
	assert_true(tries > 0);
	assert_int_equal(count(&fx, 0, n + 1), n + 1);
	assert_int_equal(lost(), 0);
	down(&fx);
}

/* Its objects would wait for ever: they are evicted, and counted, until the disk works again. */
static void a_disk_that_fails_keeps_no_objects(void **state)
{
	struct fixture fx;
	unsigned n, i;

	up(&fx, 64 * MIB, keeping);
	n = fill(&fx, 0);
	assert_true(fetch(&fx, -EIO) >= 8);
	assert_int_equal(fetch(&fx, -EIO), 0);
	fx_advance(&fx, 1);
	for (i = n; i < n + 200; i++) {
		assert_int_equal(put(&fx, i, SIZE), 0);
		fx_advance(&fx, 10);
	}
	assert_true(lost() >= 200);
	assert_true(is_there(&fx, i - 1));
	/* It is tried again after a pause. */
	pass(&fx, 3000);
	assert_true(fetch(&fx, 0) > 0);
	while (fetch(&fx, 0))
		;
	lost_was += lost();
	n = fill(&fx, i);
	assert_int_equal(count(&fx, i, n), n - i);
	assert_int_equal(lost(), 0);
	down(&fx);
}

/* A few failures are repeated, and lose nothing. */
static void a_copy_that_fails_is_made_again(void **state)
{
	struct fixture fx;

	up(&fx, 64 * MIB, keeping);
	for (unsigned i = 0; i < 7; i++)
		assert_int_equal(put(&fx, i, SIZE), 0);
	assert_int_equal(fetch(&fx, -EIO), 7);
	assert_int_equal(fetch(&fx, 0), 7);
	assert_int_equal(fill(&fx, 7) > 7, 1);
	assert_int_equal(lost(), 0);
	down(&fx);
}

/* The owner sends heartbeats, but its threads hang in the disk. */
static void a_disk_that_hangs_holds_puts_for_half_a_minute(void **state)
{
	struct fixture fx;
	struct fetched f;
	unsigned n, i;

	up(&fx, 64 * MIB, keeping);
	n = fill(&fx, 0);
	f.n = mcm_offload_fetch(fx.m, fx.s, 10, f.copy, f.from, f.to, NULL);
	assert_int_equal(f.n, 10);
	pass(&fx, 25000);
	assert_int_equal(put(&fx, n, SIZE), -MC_ENOSPACE);
	assert_int_equal(lost(), 0);
	pass(&fx, 6000);
	for (i = n; i < n + 100; i++) {
		assert_int_equal(put(&fx, i, SIZE), 0);
		fx_advance(&fx, 10);
	}
	assert_true(lost() >= 100);
	fx_check(&fx);
	fx_down(&fx);
}

/* A client that fetches copies and ends none has a limited number of them, and so delays no other one. */
static void copies_that_never_end_are_few(void **state)
{
	struct fixture fx;
	struct fetched f;
	unsigned n = 0, i;

	up(&fx, 64 * MIB, keeping);
	for (i = 0; i < 1000; i++)
		assert_int_equal(put(&fx, i, 10), 0);
	do {
		f.n = mcm_offload_fetch(fx.m, fx.s, MCM_FETCH_MAX, f.copy, f.from, f.to, NULL);
		n += f.n;
	} while (f.n);
	assert_int_equal(n, 4 * MCM_FETCH_MAX);
	n = fill(&fx, i);
	/* It asks for more, in vain: its memory does not wait for the copies for ever. */
	for (i = 0; i < 31; i++) {
		pass(&fx, 1000);
		assert_int_equal(mcm_offload_fetch(fx.m, fx.s, MCM_FETCH_MAX, f.copy, f.from, f.to, NULL), 0);
	}
	assert_int_equal(put(&fx, n, SIZE), 0);
	assert_true(lost() > 0);
	fx_check(&fx);
	fx_down(&fx);
}

static void few_copies(struct mcm_conf *c)
{
	keeping(c);
	c->max_total_processing_tasks = 10;
}

/* Copies of another client that never end. */
static void copies_that_bar_others_hold_puts_for_half_a_minute(void **state)
{
	struct fixture fx;
	struct fetched f;
	unsigned n, i;

	up(&fx, 64 * MIB, few_copies);
	n = fill(&fx, 0);
	f.n = mcm_offload_fetch(fx.m, fx.s, MCM_FETCH_MAX, f.copy, f.from, f.to, NULL);
	assert_int_equal(f.n, 10);
	for (i = 0; i < 30; i++) {
		assert_int_equal(put(&fx, n, SIZE), -MC_ENOSPACE);
		pass(&fx, 1000);
		assert_int_equal(fetch(&fx, 0), 0);
	}
	assert_int_equal(put(&fx, n, SIZE), 0);
	assert_true(lost() > 0);
	fx_check(&fx);
	fx_down(&fx);
}

/* Of two disks, one offers its objects: only the other one takes copies until then. */
static void memory_waits_for_disks_in_service_only(void **state)
{
	struct mcm_segment *memory;
	struct fixture fx;

	up(&fx, 64 * MIB, keeping);
	assert_int_equal(mount_disk(&fx, 1, MIB), 0);
	memory = mcm_segment(&fx.m->segments, 0);
	mcm_store_relaxed(&mcm_segment(&fx.m->segments, 1)->adopting, true);
	(void)fetch(&fx, 0);
	assert_int_equal(memory->copy_max, MIB);
	mcm_store_relaxed(&mcm_segment(&fx.m->segments, 1)->adopting, false);
	(void)fetch(&fx, 0);
	assert_int_equal(memory->copy_max, 64 * MIB);
	down(&fx);
}

/* The owner asks for copies, but gets none until it has offered the objects of its disk; that may take long. */
static void a_disk_whose_objects_are_offered_holds_puts_for_half_a_minute(void **state)
{
	struct fixture fx;
	unsigned n, i;

	up(&fx, 64 * MIB, keeping);
	mcm_store_relaxed(&mcm_segment(&fx.m->segments, 1)->adopting, true);
	n = fill(&fx, 0);
	for (i = 0; i < 25; i++) {
		pass(&fx, 1000);
		assert_int_equal(fetch(&fx, 0), 0);
	}
	assert_int_equal(put(&fx, n, SIZE), -MC_ENOSPACE);
	assert_int_equal(lost(), 0);
	for (i = 0; i < 6; i++) {
		pass(&fx, 1000);
		assert_int_equal(fetch(&fx, 0), 0);
	}
	assert_int_equal(put(&fx, n, SIZE), 0);
	assert_true(lost() > 0);
	mcm_store_relaxed(&mcm_segment(&fx.m->segments, 1)->adopting, false);
	fx_advance(&fx, 300);
	assert_true(fetch(&fx, 0) > 0);
	n = (unsigned)lost();
	for (i = 1000; i < 1100; i++)
		if (put(&fx, i, SIZE) == -MC_ENOSPACE)
			(void)fetch(&fx, 0);
	assert_int_equal(lost(), n);
	fx_check(&fx);
	fx_down(&fx);
}

/* Such an object is evicted as without a disk, and does not disturb the others. */
static void an_object_that_no_disk_can_take_is_not_kept(void **state)
{
	struct fixture fx;
	unsigned n;

	up(&fx, 2 * MIB, keeping);
	assert_int_equal(put(&fx, 0, 3 * MIB), 0);
	assert_int_equal(put(&fx, 1, SIZE), 0);
	assert_int_equal(fetch(&fx, 0), 1);
	n = fill(&fx, 2);
	assert_false(is_there(&fx, 0));
	assert_int_equal(lost(), 1);
	assert_int_equal(count(&fx, 1, n), n - 1);
	/* Twice, and the largest that a second disk takes. */
	assert_int_equal(mount_disk(&fx, 1, 4 * MIB), 0);
	while (fetch(&fx, 0))
		;
	fx_advance(&fx, 300);
	assert_int_equal(put(&fx, 1000, 3 * MIB), 0);
	assert_int_equal(fetch(&fx, 0), 1);
	n = fill(&fx, 2000);
	assert_true(is_there(&fx, 1000));
	assert_int_equal(lost(), 1);
	down(&fx);
}

/* Eviction could free its space, but not in one piece: others do not wait behind it, and are kept; it is not. */
static void an_object_that_finds_no_piece_of_the_disk_delays_no_others(void **state)
{
	const struct mcm_segment *disk;
	struct mcp_object pinned;
	struct fixture fx;
	char key[16];
	unsigned n, i;

	up(&fx, 2 * MIB, keeping);
	for (i = 0; i < 20; i++) {
		sprintf(key, "k%u", i);
		assert_int_equal(put(&fx, i, SIZE), 0);
		assert_int_equal(fetch(&fx, 0), 1);
		if (i % 2)
			assert_int_equal(fx_pin(&fx, fx.s, key, MCP_GET_HOLD, &pinned, NULL), 0);
	}
	disk = mcm_segment(&fx.m->segments, 1);
	fx_advance(&fx, 300);
	assert_int_equal(put(&fx, 100, 500000), 0);
	for (n = 101; n < 104; n++)
		assert_int_equal(put(&fx, n, SIZE), 0);
	assert_int_equal(fetch(&fx, 0), 0);
	pass(&fx, 1000);
	assert_int_equal(fetch(&fx, 0), 3);
	for (i = 0; i < 20 && !disk->unfit_ms; i++) {
		pass(&fx, 1000);
		assert_int_equal(put(&fx, n++, SIZE), 0);
		(void)fetch(&fx, 0);
	}
	assert_in_range(i, 6, 16);
	assert_true(is_there(&fx, 100));
	assert_int_equal(lost(), 0);
	pass(&fx, 1000);
	(void)fetch(&fx, 0);
	n = fill(&fx, n);
	assert_false(is_there(&fx, 100));
	assert_int_equal(lost(), 1);
	down(&fx);
}

static void full_disks(struct mcm_conf *c)
{
	keeping(c);
	c->enable_disk_eviction = false;
}

/* A full disk that evicts nothing takes no copies: the pool works as without it. */
static void a_full_disk_without_eviction_keeps_no_objects(void **state)
{
	struct fixture fx;
	unsigned i;

	up(&fx, 2 * MIB, full_disks);
	for (i = 0; i < 300; i++) {
		assert_int_equal(put(&fx, i, SIZE), 0);
		(void)fetch(&fx, 0);
		fx_advance(&fx, 10);
	}
	assert_true(lost() > 150);
	assert_true(count(&fx, 0, 19) >= 18);
	down(&fx);
}

static void an_owner_without_a_disk_keeps_no_objects(void **state)
{
	struct fixture fx;
	uint64_t objects;
	unsigned n, i;

	up(&fx, 0, keeping);
	for (i = 0; i < 200; i++) {
		assert_int_equal(put(&fx, i, SIZE), 0);
		fx_advance(&fx, 1);
	}
	assert_true(lost() > 100);
	/* A disk comes, and is removed again. */
	assert_int_equal(mount_disk(&fx, 0, 64 * MIB), 0);
	lost_was += lost();
	n = fill(&fx, i);
	assert_int_equal(lost(), 0);
	assert_int_equal(mcm_unmount(fx.m, (struct mcp_id){ 7, 1 }, (struct mcp_id){ 7, DISK }, &objects), 0);
	for (i = n; i < n + 100; i++) {
		assert_int_equal(put(&fx, i, SIZE), 0);
		fx_advance(&fx, 1);
	}
	assert_true(lost() >= 100);
	down(&fx);
}

static void tenants(struct mcm_conf *c)
{
	keeping(c);
	c->enable_multi_tenants = true;
}

/* -MC_EUNAVAILABLE: the client waits. */
static void a_full_quota_waits_for_the_disk(void **state)
{
	uint64_t effective;
	struct fixture fx;
	unsigned i, n = 0;
	int r;

	up(&fx, 64 * MIB, tenants);
	assert_int_equal(mcm_tenant_set_quota(fx.m, fx_bytes("default"), 20 * SIZE, &effective), 0);
	for (i = 0; i < 100; i++) {
		while ((r = put(&fx, i, SIZE)) == -MC_EUNAVAILABLE && n++ < 1000)
			assert_true(fetch(&fx, 0) > 0);
		assert_int_equal(r, 0);
	}
	assert_true(n > 0);
	assert_int_equal(count(&fx, 0, 100), 100);
	assert_int_equal(lost(), 0);
	while (fetch(&fx, 0))
		;
	down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(puts_wait_until_objects_are_on_the_disk),
		cmocka_unit_test(objects_that_find_the_queue_full_stay_too),
		cmocka_unit_test(on_eviction_a_waiting_put_begins_the_copies),
		cmocka_unit_test(a_run_of_neighbours_is_kept_too),
		cmocka_unit_test(a_disk_that_fails_keeps_no_objects),
		cmocka_unit_test(a_copy_that_fails_is_made_again),
		cmocka_unit_test(a_disk_that_hangs_holds_puts_for_half_a_minute),
		cmocka_unit_test(copies_that_never_end_are_few),
		cmocka_unit_test(copies_that_bar_others_hold_puts_for_half_a_minute),
		cmocka_unit_test(memory_waits_for_disks_in_service_only),
		cmocka_unit_test(a_disk_whose_objects_are_offered_holds_puts_for_half_a_minute),
		cmocka_unit_test(an_object_that_no_disk_can_take_is_not_kept),
		cmocka_unit_test(an_object_that_finds_no_piece_of_the_disk_delays_no_others),
		cmocka_unit_test(a_full_disk_without_eviction_keeps_no_objects),
		cmocka_unit_test(an_owner_without_a_disk_keeps_no_objects),
		cmocka_unit_test(a_full_quota_waits_for_the_disk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
