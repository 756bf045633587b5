/* SPDX-License-Identifier: Apache-2.0
 * test_master_nof.c - copies on NoF disks of other owners, on a master whose clock only the test moves; the test also
 * acts as the owners that copy.  Client 1 has the near memory and sends the puts. */
#include <config.h>

#include "test_master_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/hash.h"
#include "common/metrics.h"
#include "master/liveness.h"

#define MIB (1ull << 20)
#define SIZE 100000u

struct fetched {
	struct mcp_copy copy[MCM_FETCH_MAX];
	struct mcp_replica from[MCM_FETCH_MAX], to[MCM_FETCH_MAX];
	unsigned n;
};

/* ends of the wanted copies, as differences to the begin of the test */
struct sums {
	int64_t wanted, missing, ok, failed, cancelled, pending;
};

static int64_t ended(const char *labels)
{
	int64_t v = 0;

	assert_int_equal(mc_metrics_lookup("mooncake_master_nof_copies_total", labels, &v), 0);
	return v;
}

static struct sums sums_now(void)
{
	return (struct sums){
		fx_metric("mooncake_master_nof_wanted_total"), fx_metric("mooncake_master_nof_missing_total"),
		ended("result=\"ok\""), ended("result=\"failed\""), ended("result=\"cancelled\""),
		fx_metric("mooncake_master_nof_pending"),
	};
}

static struct sums sums_since(const struct sums *was)
{
	struct sums is = sums_now();

	is.wanted -= was->wanted;
	is.missing -= was->missing;
	is.ok -= was->ok;
	is.failed -= was->failed;
	is.cancelled -= was->cancelled;
	is.pending -= was->pending;
	/* Each wanted copy ends once. */
	assert_int_equal(is.wanted, is.missing + is.ok + is.failed + is.cancelled + is.pending);
	return is;
}

static int mount_disk(struct fixture *fx, uint64_t client, uint64_t id, uint64_t size, bool nof)
{
	char name[32];
	const struct mcp_mount rq = {
		.segment = { 7, id }, .client = { 7, client }, .epoch = 1, .size = size, .base = id << 50, .rkey = 6,
		.name = mcp_bytes(name, (uint32_t)sprintf(name, "disk-%u", (unsigned)id)),
		.endpoint = fx_bytes("host:1"), .protocol = fx_bytes("tcp"), .medium = MCP_MEDIUM_DISK, .nof = nof,
	};
	struct mcp_mount_reply reply;

	return mcm_mount(fx->m, rq.client, NULL, &rq, &reply);
}

/* Disk @id of client @id / 10. */
static void disk(struct fixture *fx, uint64_t id, uint64_t mib)
{
	assert_int_equal(mount_disk(fx, id / 10, id, mib * MIB, true), 0);
}

static void up(struct fixture *fx, void (*tune)(struct mcm_conf *c), struct mcm_session *s[4])
{
	fx_up(fx, 1, 8 * MIB, tune);
	s[1] = fx->s;
	s[2] = fx_session(fx, 2);
	s[3] = fx_session(fx, 3);
}

static void down(struct fixture *fx, struct mcm_session *s[4])
{
	fx_check(fx);
	fx_session_end(fx, s[2]);
	fx_session_end(fx, s[3]);
	fx_down(fx);
}

static uint64_t generation_of(struct fixture *fx, const char *key)
{
	struct mcp_object o;

	assert_int_equal(fx_stat(fx, key, &o), 0);
	return o.generation;
}

/* Ask for @n copies of a key, as its put by @client does; @first, @second: names of preferred disks, or NULL. */
static unsigned want(struct fixture *fx, uint64_t client, const char *key, unsigned n, const char *first,
		     const char *second)
{
	const char *const name[] = { first, second };
	struct mcm_nof_request rq = { .n = n, .client = { 7, client } };
	uint64_t preferred[2];

	for (unsigned i = 0; i < 2; i++)
		if (name[i])
			preferred[rq.n_preferred++] = mc_hash(name[i], strlen(name[i]), 0);
	rq.preferred = preferred;
	return mcm_nof_want(fx->m, &rq, fx_bytes(key), generation_of(fx, key));
}

static unsigned put_wanting(struct fixture *fx, const char *key, unsigned n)
{
	assert_int_equal(fx_put(fx, key, SIZE, 0), 0);
	return want(fx, 1, key, n, NULL, NULL);
}

static unsigned fetch(struct fixture *fx, struct mcm_session *s, struct fetched *f)
{
	f->n = mcm_offload_fetch(fx->m, s, MCM_FETCH_MAX, f->copy, f->from, f->to, NULL);
	return f->n;
}

static int report(struct fixture *fx, struct mcm_session *s, const struct mcp_copy *c, int status)
{
	const struct mcp_copied done = { .put = c->put, .status = mc_err_to_wire(status), .crc = c->crc };

	return mcm_task_copied(fx->m, s, &done);
}

/* One copy is fetched by the owner of disk @id, and ends with @status. */
static void one_copy(struct fixture *fx, struct mcm_session *s, uint64_t id, int status)
{
	struct fetched f;

	assert_int_equal(fetch(fx, s, &f), 1);
	assert_int_equal(f.to[0].segment.lo, id);
	assert_int_equal(f.to[0].medium, MCP_MEDIUM_NOF);
	assert_int_equal(report(fx, s, &f.copy[0], status), status);
}

static void no_copy(struct fixture *fx, struct mcm_session *s)
{
	struct fetched f;

	assert_int_equal(fetch(fx, s, &f), 0);
}

static unsigned copies_of(struct fixture *fx, const char *key, struct mcp_replica r[MCM_REPLICA_MAX])
{
	struct mcp_object o;
	unsigned n = 0;

	return mcm_get(fx->m, NULL, 0, fx_bytes(key), &o, r, &n) < 0 ? 0 : n;
}

/* The disks that have a copy of the key, as a sum of 1 << (id - 10). */
static unsigned disks_of(struct fixture *fx, const char *key)
{
	struct mcp_replica r[MCM_REPLICA_MAX];
	unsigned n = copies_of(fx, key, r), sum = 0;

	for (unsigned i = 0; i < n; i++)
		sum += r[i].medium == MCP_MEDIUM_NOF ? 1u << (r[i].segment.lo - 10) : 0;
	return sum;
}
#define ON(id) (1u << ((id) - 10))

static void pause(struct fixture *fx, uint64_t client, uint64_t id)
{
	const struct mcp_paused p = { { 7, id } };
	struct mcp_heartbeat beat = { .client = { 7, client }, .paused = mcp_seq(&p, id != 0) }, got;
	struct mcp_buf b = { 0 };

	assert_int_equal(mcp_encode(&mcp_desc_heartbeat, &beat, &b), 0);
	assert_int_equal(mcp_decode(&mcp_desc_heartbeat, b.data, b.len, &got), 0);
	mcm_client_pauses(fx->m, got.client, &got.paused);
	mcp_buf_free(&b);
}

static uint8_t shown(struct fixture *fx, uint64_t id)
{
	uint8_t state;

	mc_rwlock_rdlock(&fx->m->segments.lock);
	state = mcm_segment_shown(mcm_segments_find(&fx->m->segments, (struct mcp_id){ 7, id }));
	mc_rwlock_unlock(&fx->m->segments.lock);
	return state;
}

static void eager(struct mcm_conf *c)
{
	c->enable_offload = true;
	c->default_kv_lease_ttl = 0;
}

static void full_disks(struct mcm_conf *c)
{
	c->enable_disk_eviction = false;
	c->default_kv_lease_ttl = 0;
}

static void no_leases(struct mcm_conf *c)
{
	c->default_kv_lease_ttl = 0;
}

static void the_choice_needs_disks_of_other_owners(void **state)
{
	struct sums was = sums_now();
	struct mcm_session *s[4];
	struct fixture fx;

	(void)state;
	up(&fx, NULL, s);
	assert_int_equal(put_wanting(&fx, "none", 1), 0);
	assert_int_equal(mount_disk(&fx, 2, 29, 64 * MIB, false), 0);
	assert_int_equal(put_wanting(&fx, "a disk of the node", 1), 0);
	disk(&fx, 10, 64);
	assert_int_equal(put_wanting(&fx, "its own", 1), 0);
	/* Client 2 sends the put, and the near copy is client 1's. */
	disk(&fx, 20, 64);
	assert_int_equal(want(&fx, 2, "its own", 1, "disk-20", "disk-10"), 0);
	assert_int_equal(fx_put(&fx, "empty", 0, 0), 0);
	assert_int_equal(want(&fx, 1, "empty", 1, NULL, NULL), 0);
	assert_int_equal(sums_since(&was).missing, 4);
	for (unsigned i = 1; i < 4; i++)
		no_copy(&fx, s[i]);
	down(&fx, s);
}

static void each_owner_gets_one_copy(void **state)
{
	struct sums was = sums_now();
	struct mcm_session *s[4];
	struct fixture fx;

	(void)state;
	up(&fx, NULL, s);
	disk(&fx, 20, 64);
	disk(&fx, 21, 32);
	assert_int_equal(put_wanting(&fx, "a", 2), 1);
	disk(&fx, 30, 64);
	assert_int_equal(put_wanting(&fx, "b", 2), 2);
	one_copy(&fx, s[3], 30, 0);
	assert_int_equal(disks_of(&fx, "b"), ON(30));
	{
		struct fetched f;

		/* The source is the near copy of client 1. */
		assert_int_equal(fetch(&fx, s[2], &f), 2);
		assert_int_equal(f.from[0].medium, MCP_MEDIUM_MEMORY);
		assert_int_equal(report(&fx, s[2], &f.copy[0], 0), 0);
		assert_int_equal(report(&fx, s[2], &f.copy[1], 0), 0);
	}
	assert_int_equal(disks_of(&fx, "b") | ON(20) | ON(21), ON(20) | ON(21) | ON(30));
	assert_true(disks_of(&fx, "a") == ON(20) || disks_of(&fx, "a") == ON(21));
	/* Those that have a copy get no second one. */
	assert_int_equal(want(&fx, 1, "b", 2, NULL, NULL), 0);
	assert_int_equal(sums_since(&was).ok, 3);
	down(&fx, s);
}

/* The nearest copy is gone: the one on the disk remains, and a further one is made from it. */
static void the_copy_outlives_the_near_one(void **state)
{
	struct mcp_replica r[MCM_REPLICA_MAX];
	struct mcm_session *s[4];
	struct fixture fx;
	struct fetched f;

	(void)state;
	up(&fx, no_leases, s);
	disk(&fx, 20, 64);
	assert_int_equal(put_wanting(&fx, "k", 1), 1);
	one_copy(&fx, s[2], 20, 0);
	for (unsigned i = 0; i < 200; i++) {
		char key[16];

		sprintf(key, "other%u", i);
		assert_int_equal(fx_put(&fx, key, SIZE, 0), 0);
		fx_advance(&fx, 1);
	}
	assert_int_equal(copies_of(&fx, "k", r), 1);
	assert_int_equal(disks_of(&fx, "k"), ON(20));
	disk(&fx, 30, 64);
	assert_int_equal(want(&fx, 1, "k", 1, NULL, NULL), 1);
	assert_int_equal(fetch(&fx, s[3], &f), 1);
	assert_int_equal(f.from[0].segment.lo, 20);
	assert_int_equal(report(&fx, s[3], &f.copy[0], 0), 0);
	assert_int_equal(disks_of(&fx, "k"), ON(20) | ON(30));
	down(&fx, s);
}

static void preferred_disks_come_first_then_the_emptiest(void **state)
{
	struct mcm_session *s[4];
	struct fixture fx;

	(void)state;
	up(&fx, NULL, s);
	disk(&fx, 20, 64);
	disk(&fx, 30, 64);
	disk(&fx, 31, 64);
	assert_int_equal(fx_put(&fx, "k", SIZE, 0), 0);
	assert_int_equal(want(&fx, 1, "k", 1, "disk-99", "disk-31"), 1);
	one_copy(&fx, s[3], 31, 0);
	assert_int_equal(fx_put(&fx, "l", SIZE, 0), 0);
	assert_int_equal(want(&fx, 1, "l", 1, "disk-31", "disk-30"), 1);
	one_copy(&fx, s[3], 31, 0);
	/* Two disks of client 3: the first one, and then the other owner. */
	assert_int_equal(fx_put(&fx, "m", SIZE, 0), 0);
	assert_int_equal(want(&fx, 1, "m", 2, "disk-31", "disk-30"), 2);
	one_copy(&fx, s[3], 31, 0);
	one_copy(&fx, s[2], 20, 0);
	/* No preferred one exists: 30 is empty, 20 and 31 are not. */
	assert_int_equal(fx_put(&fx, "n", SIZE, 0), 0);
	assert_int_equal(want(&fx, 1, "n", 1, "disk-98", "disk-99"), 1);
	one_copy(&fx, s[3], 30, 0);
	down(&fx, s);
}

static void disks_that_cannot_take_it_are_left_out(void **state)
{
	struct mcm_session *s[4];
	struct fixture fx;
	char key[16];

	(void)state;
	up(&fx, full_disks, s);
	disk(&fx, 20, 1);
	for (unsigned i = 0; i < 10; i++) {
		sprintf(key, "k%u", i);
		assert_int_equal(put_wanting(&fx, key, 1), 1);
		one_copy(&fx, s[2], 20, 0);
	}
	/* Nothing is evicted from the disk, and it is full. */
	assert_int_equal(put_wanting(&fx, "l", 1), 0);
	disk(&fx, 30, 1);
	assert_int_equal(fx_put(&fx, "large", 2 * MIB, 0), 0);
	assert_int_equal(want(&fx, 1, "large", 2, NULL, NULL), 0);
	assert_int_equal(put_wanting(&fx, "m", 2), 1);
	one_copy(&fx, s[3], 30, 0);
	down(&fx, s);
}

static void a_paused_disk_is_shown_and_gets_no_copies(void **state)
{
	struct mcm_session *s[4];
	struct fixture fx;

	(void)state;
	up(&fx, NULL, s);
	disk(&fx, 20, 64);
	assert_int_equal(put_wanting(&fx, "before", 1), 1);
	assert_int_equal(shown(&fx, 20), MCP_SEG_OK);
	pause(&fx, 2, 20);
	assert_int_equal(shown(&fx, 20), MCP_SEG_PAUSED);
	assert_int_equal(put_wanting(&fx, "k", 1), 0);
	no_copy(&fx, s[2]);
	/* The same client may mount again, as after a loss of its connection. */
	disk(&fx, 20, 64);
	assert_int_equal(shown(&fx, 20), MCP_SEG_PAUSED);
	/* Another client says nothing about it. */
	pause(&fx, 3, 0);
	assert_int_equal(shown(&fx, 20), MCP_SEG_PAUSED);
	pause(&fx, 2, 0);
	assert_int_equal(shown(&fx, 20), MCP_SEG_OK);
	assert_int_equal(put_wanting(&fx, "l", 1), 1);
	{
		struct fetched f;

		assert_int_equal(fetch(&fx, s[2], &f), 2);
		assert_int_equal(report(&fx, s[2], &f.copy[0], 0), 0);
		assert_int_equal(report(&fx, s[2], &f.copy[1], 0), 0);
	}
	assert_int_equal(disks_of(&fx, "before"), ON(20));
	assert_int_equal(disks_of(&fx, "k"), 0);
	down(&fx, s);
}

/* A paused disk of the node is not waited for: memory does not keep its objects for it. */
static void puts_do_not_wait_for_a_paused_disk(void **state)
{
	struct mcm_session *s[4];
	struct fixture fx;
	struct fetched f;
	char key[16];

	(void)state;
	up(&fx, eager, s);
	assert_int_equal(mount_disk(&fx, 1, 10, 64 * MIB, true), 0);
	pause(&fx, 1, 10);
	(void)fetch(&fx, fx.s, &f);
	for (unsigned i = 0; i < 200; i++) {
		sprintf(key, "k%u", i);
		assert_int_equal(fx_put(&fx, key, SIZE, 0), 0);
		assert_int_equal(fetch(&fx, fx.s, &f), 0);
		fx_advance(&fx, 1);
	}
	pause(&fx, 1, 0);
	assert_true(fetch(&fx, fx.s, &f) > 0);
	for (unsigned i = 0; i < f.n; i++)
		assert_int_equal(report(&fx, fx.s, &f.copy[i], 0), 0);
	down(&fx, s);
}

static void a_failed_copy_is_tried_again_a_few_times(void **state)
{
	struct sums was = sums_now(), is;
	struct mcm_session *s[4];
	struct fixture fx;

	(void)state;
	up(&fx, NULL, s);
	disk(&fx, 20, 64);
	assert_int_equal(put_wanting(&fx, "k", 1), 1);
	one_copy(&fx, s[2], 20, -EIO);
	one_copy(&fx, s[2], 20, 0);
	assert_int_equal(disks_of(&fx, "k"), ON(20));
	assert_int_equal(put_wanting(&fx, "l", 1), 1);
	for (unsigned i = 0; i < MCM_NOF_TRIES; i++)
		one_copy(&fx, s[2], 20, -MC_EREPLICA_GONE);
	no_copy(&fx, s[2]);
	is = sums_since(&was);
	assert_int_equal(is.failed, 1);
	assert_int_equal(is.ok, 1);
	/* The disk was not to blame for sources that cannot be read. */
	assert_int_equal(put_wanting(&fx, "m", 1), 1);
	one_copy(&fx, s[2], 20, 0);
	down(&fx, s);
}

static void objects_that_are_gone_are_not_copied(void **state)
{
	struct sums was = sums_now();
	struct mcm_session *s[4];
	struct fixture fx;
	struct fetched f;

	(void)state;
	up(&fx, NULL, s);
	disk(&fx, 20, 64);
	assert_int_equal(put_wanting(&fx, "removed", 1), 1);
	assert_int_equal(put_wanting(&fx, "replaced", 1), 1);
	assert_int_equal(fx_remove(&fx, "removed", MCP_REMOVE_FORCE), 0);
	assert_int_equal(fx_put(&fx, "replaced", SIZE, MCP_PUT_UPSERT), 0);
	assert_int_equal(mcm_nof_want(fx.m, &(struct mcm_nof_request){ .n = 1 }, fx_bytes("replaced"), 1), 0);
	no_copy(&fx, s[2]);
	assert_int_equal(disks_of(&fx, "replaced"), 0);
	/* Removed while it is copied. */
	assert_int_equal(put_wanting(&fx, "k", 1), 1);
	assert_int_equal(fetch(&fx, s[2], &f), 1);
	assert_int_equal(fx_remove(&fx, "k", MCP_REMOVE_FORCE), 0);
	assert_int_equal(report(&fx, s[2], &f.copy[0], 0), -MC_ENOOBJECT);
	assert_int_equal(sums_since(&was).pending, 0);
	down(&fx, s);
}

static void the_end_of_an_owner_ends_its_copies(void **state)
{
	struct sums was = sums_now();
	struct mcm_session *s[4], *other;
	struct fixture fx;
	struct fetched f;

	(void)state;
	up(&fx, NULL, s);
	disk(&fx, 20, 64);
	assert_int_equal(put_wanting(&fx, "k", 1), 1);
	assert_int_equal(put_wanting(&fx, "l", 1), 1);
	/* The connection ends during the copies: they are tried again over the next one. */
	other = fx_session(&fx, 2);
	assert_int_equal(fetch(&fx, other, &f), 2);
	fx_session_end(&fx, other);
	fx_confirm(&fx);
	assert_int_equal(fetch(&fx, s[2], &f), 2);
	assert_int_equal(report(&fx, s[2], &f.copy[0], 0), 0);
	assert_int_equal(report(&fx, s[2], &f.copy[1], 0), 0);
	/* The disk is removed while copies wait for it. */
	assert_int_equal(put_wanting(&fx, "m", 1), 1);
	{
		uint64_t lost;

		assert_int_equal(mcm_unmount(fx.m, (struct mcp_id){ 7, 2 }, (struct mcp_id){ 7, 20 }, &lost), 0);
		assert_int_equal(lost, 2);
	}
	fx_advance(&fx, 1000);
	assert_int_equal(sums_since(&was).pending, 0);
	assert_int_equal(disks_of(&fx, "k"), 0);
	assert_int_equal(fx_stat(&fx, "k", NULL), 0);
	down(&fx, s);
}

/* The same disk may become a NoF disk, and no longer be one; its objects stay. */
static void a_disk_becomes_a_nof_disk(void **state)
{
	struct mcp_replica r[MCM_REPLICA_MAX];
	struct mcm_session *s[4];
	struct fixture fx;

	(void)state;
	up(&fx, NULL, s);
	assert_int_equal(mount_disk(&fx, 2, 20, 64 * MIB, false), 0);
	assert_int_equal(put_wanting(&fx, "j", 1), 0);
	disk(&fx, 20, 64);
	assert_int_equal(put_wanting(&fx, "k", 1), 1);
	one_copy(&fx, s[2], 20, 0);
	assert_int_equal(mount_disk(&fx, 2, 20, 64 * MIB, false), 0);
	assert_int_equal(put_wanting(&fx, "l", 1), 0);
	assert_int_equal(copies_of(&fx, "k", r), 2);
	down(&fx, s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_choice_needs_disks_of_other_owners),
		cmocka_unit_test(each_owner_gets_one_copy),
		cmocka_unit_test(the_copy_outlives_the_near_one),
		cmocka_unit_test(preferred_disks_come_first_then_the_emptiest),
		cmocka_unit_test(disks_that_cannot_take_it_are_left_out),
		cmocka_unit_test(a_paused_disk_is_shown_and_gets_no_copies),
		cmocka_unit_test(puts_do_not_wait_for_a_paused_disk),
		cmocka_unit_test(a_failed_copy_is_tried_again_a_few_times),
		cmocka_unit_test(objects_that_are_gone_are_not_copied),
		cmocka_unit_test(the_end_of_an_owner_ends_its_copies),
		cmocka_unit_test(a_disk_becomes_a_nof_disk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
