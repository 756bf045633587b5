/* SPDX-License-Identifier: Apache-2.0
 * test_master_confirm.c - objects of a restored snapshot count when their owner has found them in its memory, and not
 * before; the others are dropped. */
#include <config.h>

#include "test_master_journal_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/metrics.h"
#include "master/task/adopt.h"

#define MIB (1u << 20)
#define SIZE (100u << 10)

static const struct mcp_id owner1 = { 7, 1 }, segment1 = { 7, 1 };

/* As fetch.c leaves the directory. */
static void mark(const char *text)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/from-snapshot", jx_dir);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static int mount(struct fixture *fx, uint64_t epoch, unsigned seen, bool confirms, bool unfenced,
		 struct mcp_mount_reply *ret)
{
	const struct mcp_mount rq = {
		.segment = segment1, .client = owner1, .epoch = epoch, .size = MIB, .base = 0x10000 + (1ull << 40),
		.rkey = 5, .name = fx_bytes("seg-1"), .endpoint = fx_bytes("host:1"), .protocol = fx_bytes("tcp"),
		.seen = seen, .confirms = confirms, .unfenced = unfenced,
	};

	return mcm_mount(fx->m, owner1, NULL, &rq, ret);
}

/* A master that has restored @n objects k0, k1, ... from a snapshot of an earlier one. */
static void restored(struct fixture *fx, unsigned n, uint64_t size, const char *text)
{
	char key[16];

	jx_up(fx, 1, MIB);
	for (unsigned i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		assert_int_equal(fx_put(fx, key, size, 0), 0);
	}
	mcm_journal_wait(fx->m);
	jx_killed(fx);
	mark(text);
	jx_started(fx);
}

static void attach(struct fixture *fx)
{
	struct mcp_mount_reply reply;

	assert_int_equal(mount(fx, 101, 0, true, false, &reply), 0);
	assert_int_equal(reply.reattached, 1);
	assert_int_equal(reply.confirm, 1);
}

/* As it arrives. */
static int confirm_by(struct fixture *fx, struct mcp_id client, struct mcp_confirm rq, struct mcp_confirm_reply *ret)
{
	struct mcp_buf b = { 0 };
	int r;

	assert_int_equal(mcp_encode(&mcp_desc_confirm, &rq, &b), 0);
	assert_int_equal(mcp_decode(&mcp_desc_confirm, b.data, b.len, &rq), 0);
	r = mcm_confirm(fx->m, client, &rq, ret);
	mcp_buf_free(&b);
	return r;
}

/* One CONFIRM with @n results, of which that at @bad says that the bytes are others. */
static struct mcp_confirm_reply confirm(struct fixture *fx, uint64_t number, unsigned n, unsigned bad)
{
	static struct mcp_status result[MCM_CONFIRM_ITEMS];
	struct mcp_confirm_reply reply;
	struct mcp_confirm rq = { .segment = segment1, .number = number, .results = mcp_seq(result, n) };

	for (unsigned i = 0; i < n; i++)
		result[i].status = mc_err_to_wire(i == bad ? -MC_ECHECKSUM : 0);
	assert_int_equal(confirm_by(fx, owner1, rq, &reply), 0);
	return reply;
}

static int64_t copies(const char *labels)
{
	int64_t v = 0;

	assert_int_equal(mc_metrics_lookup("mooncake_master_snapshot_copies_total", labels, &v), 0);
	return v;
}

static void no_object_is_found_before_it_is_confirmed(void **state)
{
	struct mcp_confirm_reply reply;
	const struct mcp_confirm_item *item;
	int64_t equal, changed;
	struct fixture fx;

	(void)state;
	equal = copies("result=\"equal\"");
	changed = copies("result=\"changed\"");
	restored(&fx, 3, SIZE, "notes");
	assert_int_equal(fx_stat(&fx, "k0", NULL), -MC_ENOTREADY);
	attach(&fx);
	assert_int_equal(fx_stat(&fx, "k0", NULL), -MC_ENOTREADY);
	assert_int_equal(fx_exist(&fx, "k0", 0), -MC_ENOTREADY);
	/* No range is given away, not even one that is free. */
	assert_int_equal(fx_put(&fx, "new", 64, 0), -MC_ENOTREADY);
	reply = confirm(&fx, 0, 0, 0);
	assert_int_equal(reply.items.count, 3);
	assert_int_equal(reply.left, 1);
	item = reply.items.items;
	assert_int_equal(item[0].offset, 0);
	assert_int_equal(item[1].size, SIZE);
	assert_int_equal(fx_stat(&fx, "k1", NULL), -MC_ENOTREADY);
	/* A lost answer is repeated, an answer to another batch changes nothing. */
	assert_int_equal(confirm(&fx, 1, 3, 0).number, reply.number);
	reply = confirm(&fx, reply.number, 3, 1);
	assert_int_equal(reply.left, 0);
	assert_int_equal(fx_stat(&fx, "k0", NULL), 0);
	assert_int_equal(fx_stat(&fx, "k1", NULL), -MC_ENOOBJECT);
	assert_int_equal(fx_stat(&fx, "k2", NULL), 0);
	assert_int_equal(fx_put(&fx, "new", 64, 0), 0);
	fx_advance(&fx, 1000);
	assert_null(jx_file(jx_dir, "from-snapshot"));
	assert_int_equal(copies("result=\"equal\""), equal + 2);
	assert_int_equal(copies("result=\"changed\""), changed + 1);
	/* The next restart is an ordinary one. */
	jx_again(&fx);
	jx_attach(&fx, 1, MIB);
	assert_int_equal(fx_stat(&fx, "k0", NULL), 0);
	assert_int_equal(fx_stat(&fx, "k1", NULL), -MC_ENOOBJECT);
	fx_down(&fx);
}

/* More objects than one batch has: those of the first are found while the others wait. */
static void batches_count_one_by_one(void **state)
{
	enum { N = MCM_CONFIRM_ITEMS + 10 };
	struct mcp_confirm_reply reply;
	struct fixture fx;
	char last[16];

	(void)state;
	restored(&fx, N, 64, "notes");
	snprintf(last, sizeof(last), "k%u", N - 1);
	attach(&fx);
	reply = confirm(&fx, 0, 0, 0);
	assert_int_equal(reply.items.count, MCM_CONFIRM_ITEMS);
	reply = confirm(&fx, reply.number, MCM_CONFIRM_ITEMS, N);
	assert_int_equal(reply.items.count, 10);
	assert_int_equal(fx_stat(&fx, "k0", NULL), 0);
	assert_int_equal(fx_stat(&fx, last, NULL), -MC_ENOTREADY);
	/* One of them is removed meanwhile. */
	assert_int_equal(fx_remove(&fx, last, MCP_REMOVE_FORCE), 0);
	reply = confirm(&fx, reply.number, 10, N);
	assert_int_equal(reply.left, 0);
	assert_int_equal(fx_stat(&fx, last, NULL), -MC_ENOOBJECT);
	assert_int_equal(mcm_index_count(&fx.m->index), N - 1);
	fx_down(&fx);
}

static void beats(struct fixture *fx, unsigned seconds)
{
	for (unsigned i = 0; i < seconds; i++) {
		fx_beat(fx, owner1);
		fx_advance(fx, 1000);
	}
}

/* Requests wait as long as for an owner that does not return; the comparison goes on. */
static void waiting_ends_with_the_grace_period(void **state)
{
	struct mcp_confirm_reply reply;
	struct fixture fx;

	(void)state;
	restored(&fx, 3, SIZE, "notes");
	fx.m->conf.client_forget_ttl = 2000000;
	attach(&fx);
	beats(&fx, 1100);
	assert_int_equal(fx_stat(&fx, "k0", NULL), -MC_ENOOBJECT);
	reply = confirm(&fx, 0, 0, 0);
	assert_int_equal(confirm(&fx, reply.number, 3, 3).left, 0);
	assert_int_equal(fx_stat(&fx, "k0", NULL), 0);
	fx_down(&fx);
}

/* An owner whose mover hangs loses the objects that it has not compared, and its memory takes objects again. */
static void a_comparison_without_progress_ends(void **state)
{
	enum { N = 2 * MCM_CONFIRM_ITEMS };
	int64_t unreadable = copies("result=\"unreadable\"");
	struct mcp_confirm_reply reply;
	struct fixture fx;
	char last[16];

	(void)state;
	restored(&fx, N, 64, "notes");
	snprintf(last, sizeof(last), "k%u", N - 1);
	attach(&fx);
	reply = confirm(&fx, 0, 0, 0);
	beats(&fx, 550);
	/* An answer is progress, a request without one is not. */
	reply = confirm(&fx, reply.number, MCM_CONFIRM_ITEMS, N);
	beats(&fx, 550);
	assert_int_equal(confirm(&fx, 0, 0, 0).number, reply.number);
	assert_int_equal(fx_put(&fx, "new", 64, 0), -MC_ENOTREADY);
	beats(&fx, 100);
	assert_int_equal(confirm(&fx, reply.number, MCM_CONFIRM_ITEMS, N).left, 0);
	assert_int_equal(mcm_segment_state(fx.m->segments.at[0]), MCP_SEG_OK);
	assert_int_equal(fx_stat(&fx, "k0", NULL), 0);
	assert_int_equal(fx_stat(&fx, last, NULL), -MC_ENOOBJECT);
	assert_int_equal(mcm_index_count(&fx.m->index), N - MCM_CONFIRM_ITEMS);
	assert_int_equal(copies("result=\"unreadable\""), unreadable + MCM_CONFIRM_ITEMS);
	assert_int_equal(fx_put(&fx, "new", 64, 0), 0);
	jx_again(&fx);
	jx_attach(&fx, 1, MIB);
	assert_int_equal(fx_stat(&fx, "k0", NULL), 0);
	assert_int_equal(fx_stat(&fx, last, NULL), -MC_ENOOBJECT);
	fx_down(&fx);
}

/* A repeated CONFIRM finds the segment hidden; before it ends, the owner mounts the segment again. */
static void a_mount_during_a_confirm_ends_no_comparison(void **state)
{
	struct mcp_confirm_reply reply;
	struct mcm_segment *s;
	struct fixture fx;

	(void)state;
	restored(&fx, 3, SIZE, "notes");
	attach(&fx);
	reply = confirm(&fx, 0, 0, 0);
	s = fx.m->segments.at[0];
	mcm_segments_set_silent(&fx.m->segments, s, true);
	assert_int_equal(confirm(&fx, reply.number, 3, 3).left, 0);
	attach(&fx);
	mcm_confirm_finish(fx.m, s, segment1);
	assert_int_equal(mcm_segment_state(s), MCP_SEG_CONFIRMING);
	/* An owner that was silent is not awaited. */
	assert_int_equal(fx_stat(&fx, "k1", NULL), -MC_ENOOBJECT);
	assert_int_equal(confirm(&fx, reply.number, 3, 0).left, 0);
	assert_int_equal(mcm_segment_state(s), MCP_SEG_OK);
	assert_int_equal(fx_stat(&fx, "k0", NULL), -MC_ENOOBJECT);
	assert_int_equal(fx_stat(&fx, "k1", NULL), 0);
	fx_down(&fx);
}

/* After a restart the comparison begins again, also in a standby, which has the journal but not the mark. */
static void a_comparison_is_not_forgotten(void **state)
{
	struct mcp_confirm_reply reply;
	struct fixture fx;

	(void)state;
	for (int standby = 0; standby < 2; standby++) {
		restored(&fx, 3, SIZE, "notes");
		attach(&fx);
		reply = confirm(&fx, 0, 0, 0);
		jx_again(&fx);
		assert_non_null(jx_file(jx_dir, "from-snapshot"));
		if (standby) {
			jx_killed(&fx);
			remove(jx_file(jx_dir, "from-snapshot"));
			jx_started(&fx);
		}
		attach(&fx);
		assert_int_equal(fx_stat(&fx, "k0", NULL), -MC_ENOTREADY);
		assert_int_equal(confirm(&fx, reply.number, 3, 3).items.count, 3);
		assert_int_equal(fx_stat(&fx, "k0", NULL), -MC_ENOTREADY);
		reply = confirm(&fx, 0, 0, 0);
		assert_int_equal(confirm(&fx, reply.number, 3, 0).left, 0);
		assert_int_equal(fx_stat(&fx, "k0", NULL), -MC_ENOOBJECT);
		assert_int_equal(fx_stat(&fx, "k1", NULL), 0);
		fx_down(&fx);
	}
}

static void no_comparison_without_fences(void **state)
{
	struct mcp_mount_reply reply;
	struct fixture fx;

	(void)state;
	restored(&fx, 3, SIZE, "notes");
	assert_int_equal(mount(&fx, 101, 0, true, true, &reply), -MC_EUNAVAILABLE);
	assert_int_equal(fx_stat(&fx, "k0", NULL), -MC_ENOTREADY);
	attach(&fx);
	fx_down(&fx);
	/* Nor is memory given away in which the snapshot has no object. */
	restored(&fx, 0, SIZE, "notes");
	assert_int_equal(mount(&fx, 101, 0, true, true, &reply), -MC_EUNAVAILABLE);
	assert_int_equal(mount(&fx, 101, 0, true, false, &reply), 0);
	assert_int_equal(reply.confirm, 0);
	assert_int_equal(fx_put(&fx, "new", 64, 0), 0);
	fx_down(&fx);
}

/* An owner of an older version, and one with other memory: nothing of the snapshot is there, and puts work. */
static void an_owner_that_cannot_compare_loses_the_objects(void **state)
{
	int64_t was = copies("result=\"old_owner\"");
	struct mcp_mount_reply reply;
	struct fixture fx;

	(void)state;
	for (int old = 0; old < 2; old++) {
		restored(&fx, 3, SIZE, "notes");
		assert_int_equal(mount(&fx, old ? 101 : 999, 0, !old, false, &reply), 0);
		assert_int_equal(reply.reattached, 0);
		assert_int_equal(reply.confirm, 0);
		fx_advance(&fx, 1000);
		assert_int_equal(fx_stat(&fx, "k0", NULL), -MC_ENOOBJECT);
		assert_int_equal(fx_put(&fx, "k0", SIZE, 0), 0);
		assert_int_equal(copies("result=\"old_owner\""), was + 3 * old);
		fx_down(&fx);
	}
}

/* The last snapshot of a master needs no comparison with owners that know no later one. */
static void a_proof_replaces_the_comparison(void **state)
{
	struct mcp_mount_reply reply;
	struct fixture fx;

	(void)state;
	restored(&fx, 3, SIZE, "last 00000000000000ab");
	assert_int_equal(mount(&fx, 101, 0xab, true, false, &reply), 0);
	assert_int_equal(reply.reattached, 1);
	assert_int_equal(reply.confirm, 0);
	assert_int_equal(fx_stat(&fx, "k0", NULL), 0);
	fx_down(&fx);
	restored(&fx, 3, SIZE, "last 00000000000000ab");
	assert_int_equal(mount(&fx, 101, 0xac, true, false, &reply), 0);
	assert_int_equal(reply.confirm, 1);
	fx_down(&fx);
}

/* A snapshot may be older than a disk: its owner offers the objects, unless it proves that the master knew all. */
static void a_disk_that_the_snapshot_does_not_know_is_offered(void **state)
{
	static const struct {
		const char *mark;
		uint64_t seen, other_cluster;
		bool adopts;
	} cases[] = {
		{ "notes", 0, 0, true }, { "notes", 0xab, 0, true },
		{ "notes", 0, 1, false }, { "notes", 0xcd, 0, false },
		{ "last 00000000000000ab", 0xab, 0, false }, { "last 00000000000000ab", 0xac, 0, true },
		{ NULL, 0, 0, false },
	};
	struct mcp_mount_reply reply;
	struct fixture fx;

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct mcp_mount rq = {
			.segment = { 7, 100 }, .client = owner1, .epoch = 1, .size = MIB, .base = 1ull << 50, .rkey = 6,
			.name = fx_bytes("disk"), .endpoint = fx_bytes("host:1"), .protocol = fx_bytes("tcp"),
			.medium = MCP_MEDIUM_DISK, .seen = cases[i].seen,
		};

		if (cases[i].mark)
			restored(&fx, 1, SIZE, cases[i].mark);
		else
			jx_up(&fx, 1, MIB);
		fx.m->id.lo = 0xcd;
		rq.cluster = mcm_adopt_cluster(fx.m) + cases[i].other_cluster;
		assert_int_equal(mcm_mount(fx.m, owner1, NULL, &rq, &reply), 0);
		assert_int_equal(reply.adopts, cases[i].adopts);
		fx_down(&fx);
	}
}

/* A master that ends in an orderly way before owners have compared their objects has proven nothing. */
static void an_orderly_end_proves_no_doubted_object(void **state)
{
	struct mcp_mount_reply reply;
	struct fixture fx;

	(void)state;
	restored(&fx, 3, SIZE, "notes");
	attach(&fx);
	mcm_journal_wait(fx.m);
	jx_killed(&fx);
	mark("last 00000000000000ab");
	jx_started(&fx);
	assert_int_equal(mount(&fx, 101, 0xab, true, false, &reply), 0);
	assert_int_equal(reply.confirm, 1);
	assert_int_equal(fx_stat(&fx, "k0", NULL), -MC_ENOTREADY);
	fx_down(&fx);
}

static void wrong_requests_are_refused(void **state)
{
	struct mcp_confirm rq = { .segment = { 7, 9 } };
	struct mcp_confirm_reply reply;
	struct mcp_status one = { 0 };
	struct fixture fx;

	(void)state;
	restored(&fx, 3, SIZE, "notes");
	assert_int_equal(confirm_by(&fx, owner1, rq, &reply), -MC_ENOSEGMENT);
	rq.segment = segment1;
	/* Before the mount there is nothing to compare. */
	assert_int_equal(confirm_by(&fx, owner1, rq, &reply), 0);
	assert_int_equal(reply.left, 0);
	attach(&fx);
	assert_int_equal(confirm_by(&fx, (struct mcp_id){ 7, 2 }, rq, &reply), -MC_EOWNER);
	reply = confirm(&fx, 0, 0, 0);
	rq.number = reply.number;
	rq.results = mcp_seq(&one, 1);
	assert_int_equal(confirm_by(&fx, owner1, rq, &reply), -MC_EPROTO);
	assert_int_equal(fx_stat(&fx, "k0", NULL), -MC_ENOTREADY);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_object_is_found_before_it_is_confirmed),
		cmocka_unit_test(batches_count_one_by_one),
		cmocka_unit_test(waiting_ends_with_the_grace_period),
		cmocka_unit_test(a_comparison_without_progress_ends),
		cmocka_unit_test(a_mount_during_a_confirm_ends_no_comparison),
		cmocka_unit_test(a_comparison_is_not_forgotten),
		cmocka_unit_test(no_comparison_without_fences),
		cmocka_unit_test(an_owner_that_cannot_compare_loses_the_objects),
		cmocka_unit_test(a_proof_replaces_the_comparison),
		cmocka_unit_test(a_disk_that_the_snapshot_does_not_know_is_offered),
		cmocka_unit_test(an_orderly_end_proves_no_doubted_object),
		cmocka_unit_test(wrong_requests_are_refused),
	};

	return cmocka_run_group_tests(tests, jx_setup, jx_teardown);
}
