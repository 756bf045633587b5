/* SPDX-License-Identifier: Apache-2.0
 * test_master_quarantine.c - ranges of abandoned puts are reused when the owner of their segment has fenced the
 * writer, never because time has passed. */
#include <config.h>

#include "test_master_journal_fixture.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "common/sys/thread.h"

#define MIB (1u << 20)
#define HOUR 3600000u

static const struct mcp_id owner1 = { 7, 1 }, owner2 = { 7, 2 };

/* Two owners with one segment each, and a writer, client 3. */
static struct mcm_session *two_owners(struct fixture *fx, bool journal)
{
	if (journal)
		jx_up(fx, 1, MIB);
	else
		fx_up(fx, 1, MIB, NULL);
	fx_session(fx, 2);
	assert_int_equal(fx_mount(fx, 2, 2, 102, MIB, NULL), 0);
	return fx_session(fx, 3);
}

/* Begin a put with two copies. */
static struct mcm_put_granted start_two(struct fixture *fx, struct mcm_session *s, const char *key, uint64_t size)
{
	struct mcm_put_request rq = { .copies = 2, .flags = MCP_PUT_ALL_REPLICAS };
	struct mcp_put_item item = { .key = fx_bytes(key), .size = size };
	struct mcm_put_granted g;

	assert_int_equal(mcm_put_start(fx->m, s, &rq, &item, &g), 0);
	assert_int_equal(g.copies, 2);
	return g;
}

static uint64_t used_of(struct fixture *fx, unsigned segment)
{
	return mcm_load_relaxed(&fx->m->segments.at[segment - 1]->used);
}

/* ---- who frees what ---- */

static void each_range_waits_for_its_own_owner(void **state)
{
	struct mcp_fence order[MCP_FENCES_MAX];
	struct mcm_session *writer;
	struct fixture fx;
	uint64_t number;

	(void)state;
	writer = two_owners(&fx, false);
	number = writer->number;
	start_two(&fx, writer, "k", 600 << 10);
	assert_int_equal(fx_orders(&fx, owner1, NULL, 0, order), 0);
	fx_session_end(&fx, writer);
	fx_stays_aside(&fx, HOUR);
	assert_int_equal(fx_metric("mooncake_master_unconfirmed_fences"), 2);
	assert_int_equal(fx_metric("master_put_start_discarded_staging_size"), 2 * (600 << 10));
	assert_int_equal(fx_put(&fx, "other", 600 << 10, 0), -MC_ENOSPACE);
	/* Each owner gets one order, for the writer's engine and session. */
	assert_int_equal(fx_orders(&fx, owner1, NULL, 0, order), 1);
	assert_int_equal(order[0].upto, number);
	assert_true(mcp_id_eq(order[0].engine, (struct mcp_id){ 8, 3 }));
	number = order[0].number;
	assert_int_equal(fx_orders(&fx, owner2, NULL, 0, order), 1);
	assert_int_not_equal(order[0].number, number);
	/* An owner cannot confirm the other's order, nor one that does not exist. */
	assert_int_equal(fx_orders(&fx, owner2, &number, 1, order), 1);
	assert_int_equal(fx_orders(&fx, owner1, (uint64_t[]){ number + 1 }, 1, order), 1);
	fx_stays_aside(&fx, HOUR);
	fx_confirm_of(&fx, owner1);
	assert_int_equal(used_of(&fx, 1), 0);
	assert_true(used_of(&fx, 2) >= 600 << 10);
	assert_int_equal(fx_put(&fx, "in 1", 600 << 10, MCP_PUT_HARD_PIN), 0);
	assert_int_equal(fx_put(&fx, "in 2", 600 << 10, MCP_PUT_HARD_PIN), -MC_ENOSPACE);
	fx_stays_aside(&fx, HOUR);
	fx_confirm_of(&fx, owner2);
	assert_int_equal(used_of(&fx, 2), 0);
	assert_int_equal(fx_put(&fx, "in 2", 600 << 10, MCP_PUT_HARD_PIN), 0);
	assert_int_equal(fx_metric("mooncake_master_unconfirmed_fences"), 0);
	assert_int_equal(fx_metric("master_put_start_discarded_staging_size"), 0);
	fx_down(&fx);
}

/* Puts of one session need one order for a segment, puts of two sessions of one client two. */
static void an_order_is_for_a_session(void **state)
{
	struct mcp_fence order[MCP_FENCES_MAX];
	struct mcm_session *a, *b;
	uint64_t used, number[2];
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	a = fx_session(&fx, 3);
	b = fx_session(&fx, 3);
	number[0] = a->number;
	number[1] = b->number;
	assert_true(number[1] > number[0]);
	assert_int_equal(fx_start(&fx, a, "a1", 4096, 0, NULL), 0);
	assert_int_equal(fx_start(&fx, b, "b1", 8192, 0, NULL), 0);
	assert_int_equal(fx_start(&fx, a, "a2", 4096, 0, NULL), 0);
	used = fx_used(&fx);
	fx_session_end(&fx, a);
	assert_int_equal(fx_orders(&fx, owner1, NULL, 0, order), 1);
	assert_int_equal(order[0].upto, number[0]);
	fx_session_end(&fx, b);
	assert_int_equal(fx_orders(&fx, owner1, &order[0].number, 1, order), 1);
	assert_int_equal(order[0].upto, number[1]);
	mcm_quarantine_tick(fx.m);
	assert_int_equal(fx_used(&fx), used - 8192);
	fx_confirm(&fx);
	assert_int_equal(fx_used(&fx), 0);
	fx_down(&fx);
}

/* ---- orders ---- */

/* @n sessions, each of which ends with a put in @segment. */
static void abandon_many(struct fixture *fx, unsigned n, const char *segment)
{
	uint64_t name = mc_hash(segment, strlen(segment), 0);
	struct mcm_put_request rq = { .copies = 1, .preferred = &name, .n_preferred = 1 };
	struct mcp_put_item item = { .size = 64 };
	struct mcm_put_granted g;
	char key[32];

	for (unsigned i = 0; i < n; i++) {
		struct mcm_session *s = fx_session(fx, 100 + i);

		snprintf(key, sizeof(key), "%s/%u", segment, i);
		item.key = fx_bytes(key);
		assert_int_equal(mcm_put_start(fx->m, s, &rq, &item, &g), 0);
		fx_session_end(fx, s);
	}
}

/* An order is repeated until it is confirmed.  When there are more than one answer can have, those that the owner
 * cannot confirm (a process is still copying) do not hold up the others. */
static void orders_that_cannot_be_confirmed_hold_up_no_others(void **state)
{
	enum { STUCK = 100, ALL = 150 };
	struct mcp_fence order[MCP_FENCES_MAX];
	uint64_t number[MCP_FENCES_MAX], stuck_upto;
	unsigned n, i, done = 0, beats, confirmed = 0;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	abandon_many(&fx, STUCK, "seg-1");
	stuck_upto = mcm_generation_next(fx.m, 0);
	abandon_many(&fx, ALL - STUCK, "seg-1");
	assert_int_equal(fx_used(&fx), ALL * 64);
	for (beats = 0; beats < 10; beats++) {
		n = fx_orders(&fx, owner1, number, done, order);
		assert_int_equal(n, MCP_FENCES_MAX);
		for (i = done = 0; i < n; i++)
			if (order[i].upto > stuck_upto)
				number[done++] = order[i].number;
		confirmed += done;
	}
	assert_int_equal(confirmed, ALL - STUCK);
	mcm_quarantine_tick(fx.m);
	assert_int_equal(fx_used(&fx), STUCK * 64);
	fx_stays_aside(&fx, HOUR);
	fx_confirm(&fx);
	assert_int_equal(fx_used(&fx), 0);
	fx_down(&fx);
}

/* The same for the segments of one owner. */
static void a_segment_holds_up_no_other_segment(void **state)
{
	struct mcp_fence order[MCP_FENCES_MAX];
	uint64_t number[MCP_FENCES_MAX], last_upto;
	unsigned n, i, done = 0, beats;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 3, MIB, NULL);
	abandon_many(&fx, 2 * MCP_FENCES_MAX, "seg-1");
	abandon_many(&fx, 2 * MCP_FENCES_MAX, "seg-2");
	last_upto = mcm_generation_next(fx.m, 0);
	abandon_many(&fx, 1, "seg-3");
	for (beats = 0; beats < 4; beats++) {
		n = fx_orders(&fx, owner1, number, done, order);
		for (i = done = 0; i < n; i++)
			if (order[i].upto > last_upto)
				number[done++] = order[i].number;
	}
	mcm_quarantine_tick(fx.m);
	assert_int_equal(used_of(&fx, 3), 0);
	assert_int_equal(fx_used(&fx), 4 * MCP_FENCES_MAX * 64);
	fx_confirm(&fx);
	assert_int_equal(fx_used(&fx), 0);
	fx_down(&fx);
}

/* ---- segments that go, and come back ---- */

static void ranges_of_an_unmounted_segment_are_freed(void **state)
{
	struct mcp_fence order[MCP_FENCES_MAX];
	struct mcm_session *writer;
	struct fixture fx;
	uint64_t lost;

	(void)state;
	writer = two_owners(&fx, false);
	/* One put is abandoned before the segment is unmounted, the other after. */
	start_two(&fx, writer, "before", 4096);
	fx_session_end(&fx, writer);
	writer = fx_session(&fx, 3);
	start_two(&fx, writer, "after", 4096);
	fx_stays_aside(&fx, 60000);
	assert_int_equal(mcm_unmount(fx.m, owner2, owner2, &lost), 0);
	fx_advance(&fx, 1000);
	assert_int_equal(mcm_segment_state(fx.m->segments.at[1]), MCP_SEG_UNMOUNTING);
	assert_int_equal(used_of(&fx, 2), 4096);
	fx_session_end(&fx, writer);
	fx_advance(&fx, 1000);
	assert_int_equal(mcm_segment_state(fx.m->segments.at[1]), MCM_SEG_NONE);
	assert_int_equal(fx_orders(&fx, owner2, NULL, 0, order), 0);
	/* The other copies still wait for the other owner. */
	fx_beat(&fx, owner1);
	fx_stays_aside(&fx, HOUR);
	assert_int_equal(used_of(&fx, 1), 2 * 4096);
	fx_confirm(&fx);
	assert_int_equal(fx_used(&fx), 0);
	assert_true(mc_list_empty(&fx.m->puts.quarantine.aborted));
	fx_down(&fx);
}

/* Mounting again the same memory frees nothing; a new owner of it gets the order; other memory frees all. */
static void mounting_again_does_not_free(void **state)
{
	struct mcp_fence order[MCP_FENCES_MAX];
	struct mcp_mount_reply reply;
	struct mcm_session *writer;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	writer = fx_session(&fx, 3);
	assert_int_equal(fx_start(&fx, writer, "k", 4096, 0, NULL), 0);
	fx_session_end(&fx, writer);
	assert_int_equal(fx_mount(&fx, 1, 1, 101, MIB, &reply), 0);
	assert_int_equal(reply.reattached, 1);
	fx_stays_aside(&fx, HOUR);
	fx_session_end(&fx, fx.s);
	fx.s = fx_session(&fx, 2);
	assert_int_equal(fx_mount(&fx, 2, 1, 101, MIB, &reply), 0);
	assert_int_equal(reply.reattached, 1);
	fx_stays_aside(&fx, HOUR);
	assert_int_equal(fx_orders(&fx, owner1, NULL, 0, order), 0);
	assert_int_equal(fx_orders(&fx, owner2, NULL, 0, order), 1);
	assert_int_equal(fx_mount(&fx, 2, 1, 102, MIB, &reply), 0);
	assert_int_equal(reply.reattached, 0);
	fx_advance(&fx, 1000);
	assert_int_equal(fx_used(&fx), 0);
	assert_int_equal(fx_orders(&fx, owner2, NULL, 0, order), 0);
	assert_int_equal(fx.m->puts.quarantine.pending, 0);
	fx_down(&fx);
}

/* An owner that is silent for a while keeps its orders. */
static void a_silent_owner_keeps_its_ranges_aside(void **state)
{
	struct mcm_session *writer;
	struct fixture fx;
	unsigned i;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	writer = fx_session(&fx, 3);
	assert_int_equal(fx_start(&fx, writer, "k", 4096, 0, NULL), 0);
	fx_session_end(&fx, writer);
	for (i = 0; i < 60; i++) {
		fx_advance(&fx, 1000);
		assert_int_equal(fx_used(&fx), 4096);
	}
	assert_int_equal(mcm_segment_state(fx.m->segments.at[0]), MCP_SEG_SILENT);
	assert_int_equal(fx_mount(&fx, 1, 1, 101, MIB, NULL), 0);
	fx_stays_aside(&fx, HOUR);
	fx_confirm(&fx);
	assert_int_equal(fx_used(&fx), 0);
	fx_down(&fx);
}

/* ---- the limit, and an operator's release ---- */

/* A session of client 3 that ends in the middle of a put. */
static int stand_still(struct fixture *fx, const char *key, uint64_t size)
{
	struct mcm_session *s = fx_session(fx, 3);
	int r = fx_start(fx, s, key, size, 0, NULL);

	fx_session_end(fx, s);
	return r;
}

/* A client whose writers stand still keeps a quarter of the pool, and the put that reached the limit; other clients are
 * not affected. */
static void a_client_keeps_a_limited_part_of_the_pool(void **state)
{
	struct mcm_quarantined q[4];
	struct mcm_session *other;
	int64_t refused;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	refused = fx_metric("mooncake_master_quarantine_refused_puts_total");
	assert_int_equal(mcm_quarantine_limit(fx.m), MIB / 4);
	assert_int_equal(stand_still(&fx, "a", 200 << 10), 0);
	assert_int_equal(stand_still(&fx, "b", 200 << 10), 0);
	assert_int_equal(stand_still(&fx, "c", 64), -MC_ELIMIT);
	fx_stays_aside(&fx, HOUR);
	assert_int_equal(stand_still(&fx, "c", 64), -MC_ELIMIT);
	other = fx_session(&fx, 4);
	assert_int_equal(fx_start(&fx, other, "d", 200 << 10, 0, NULL), 0);
	assert_int_equal(fx_metric("mooncake_master_quarantine_refused_puts_total"), refused + 2);
	assert_true(fx_metric("mooncake_master_quarantined_bytes") >= 400 << 10);
	assert_int_equal(mcm_quarantine_list(fx.m, q, 4), 2);
	assert_true(mcp_id_eq(q[0].client, (struct mcp_id){ 7, 3 }));
	assert_true(q[0].bytes >= 200 << 10 && q[0].ranges == 1 && q[0].age_ms >= HOUR);
	assert_true(q[0].served && !q[0].connected);
	assert_string_equal(q[0].segment, "seg-1");
	/* When its writers are fenced, it is a client like others. */
	fx_confirm(&fx);
	assert_int_equal(fx_metric("mooncake_master_quarantined_bytes"), 0);
	assert_int_equal(stand_still(&fx, "c", 64), 0);
	fx_down(&fx);
}

/* A process of one credential gains nothing from another client id. */
static void an_identity_keeps_a_limited_part_of_the_pool(void **state)
{
	const struct mc_principal p = { .source = MC_PRINCIPAL_CREDENTIAL, .serial = 5 };
	const struct mc_principal q = { .source = MC_PRINCIPAL_CREDENTIAL, .serial = 7 };
	struct mcm_session *s;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	for (uint64_t client = 3; client < 7; client++) {
		s = fx_session(&fx, client);
		fx.m->security = (struct mcm_security *)&fx;	/* it is only compared with NULL */
		assert_int_equal(mcm_account_open(fx.m, s, client == 6 ? &q : &p), 0);
		fx.m->security = NULL;
		assert_int_equal(fx_start(&fx, s, client == 3 ? "a" : client == 4 ? "b" : "c", 200 << 10, 0, NULL),
				 client == 5 ? -MC_ELIMIT : 0);
		/* The second one stands still until the monitor aborts its put. */
		if (client == 4)
			fx_stays_aside(&fx, HOUR);
		else
			fx_session_end(&fx, s);
	}
	fx_down(&fx);
}

/* That an owner is silent is not its writers' fault. */
static void ranges_of_silent_owners_do_not_count(void **state)
{
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	fx_session(&fx, 2);
	assert_int_equal(stand_still(&fx, "a", 600 << 10), 0);
	for (unsigned i = 0; i < 30; i++)
		fx_advance(&fx, 1000);
	assert_int_equal(mcm_segment_state(fx.m->segments.at[0]), MCP_SEG_SILENT);
	assert_int_equal(fx_mount(&fx, 2, 2, 102, MIB, NULL), 0);
	assert_int_equal(stand_still(&fx, "b", 64), 0);
	assert_int_equal(fx_mount(&fx, 1, 1, 101, MIB, NULL), 0);
	assert_int_equal(stand_still(&fx, "c", 64), -MC_ELIMIT);
	fx_down(&fx);
}

static void an_operator_ends_the_quarantine_of_the_dead(void **state)
{
	const struct mcp_id writer = { 7, 3 }, other = { 7, 4 };
	uint64_t ranges = 0, bytes = 0;
	struct mcm_session *s;
	struct fixture fx;

	(void)state;
	jx_up(&fx, 1, MIB);
	assert_int_equal(stand_still(&fx, "a", 600 << 10), 0);
	s = fx_session(&fx, 4);
	assert_int_equal(fx_start(&fx, s, "b", 64, 0, NULL), 0);
	fx_session_end(&fx, s);
	assert_int_equal(fx_put(&fx, "other", 600 << 10, 0), -MC_ENOSPACE);
	/* A process with a connection lives. */
	s = fx_session(&fx, 3);
	assert_int_equal(mcm_quarantine_release(fx.m, writer, &ranges, &bytes), -MC_EMODE);
	fx_session_end(&fx, s);
	assert_int_equal(mcm_quarantine_release(fx.m, (struct mcp_id){ 7, 5 }, &ranges, &bytes), -MC_ENOCLIENT);
	assert_int_equal(mcm_quarantine_release(fx.m, writer, &ranges, &bytes), 0);
	assert_int_equal(ranges, 1);
	assert_true(bytes >= 600 << 10);
	fx_advance(&fx, 1000);
	assert_int_equal(fx_used(&fx), 64);
	assert_int_equal(fx_put(&fx, "other", 600 << 10, 0), 0);
	assert_int_equal(mcm_quarantine_release(fx.m, writer, &ranges, &bytes), -MC_ENOCLIENT);
	/* After a restart the master does not know the client of the rest. */
	jx_again(&fx);
	jx_attach(&fx, 1, MIB);
	assert_int_equal(mcm_quarantine_release(fx.m, other, &ranges, &bytes), -MC_ENOCLIENT);
	/* Nor whether that lives. */
	ranges = mcm_load_relaxed(&fx.m->puts.quarantine.bytes);
	assert_true(ranges >= 64);
	assert_int_equal(mcm_quarantine_release(fx.m, (struct mcp_id){ 0, 0 }, &ranges, &bytes), -MC_EPARAM);
	assert_int_equal(mcm_load_relaxed(&fx.m->puts.quarantine.bytes), ranges);
	fx_down(&fx);
}

/* ---- the journal ---- */

/* After a restart, a master knows neither engines nor sessions of the last one: all engines are fenced, up to a number
 * that is larger than those of all earlier sessions and smaller than those of its own. */
static void restarted(struct fixture *fx, unsigned segments)
{
	struct mcp_fence order[MCP_FENCES_MAX];
	struct mcm_session *s = fx_session(fx, 9);
	struct mcp_id owner;
	unsigned i;

	for (i = 1; i <= 2; i++) {
		owner = (struct mcp_id){ 7, i };
		if (!(segments & i)) {
			assert_int_equal(fx_orders(fx, owner, NULL, 0, order), 0);
			continue;
		}
		assert_int_equal(fx_orders(fx, owner, NULL, 0, order), 1);
		assert_true(mcp_id_zero(order[0].engine));
		assert_int_equal(order[0].upto, fx->m->puts.quarantine.restored_upto);
		assert_true(order[0].upto < s->number && order[0].upto < fx->s->number);
	}
	fx_session_end(fx, s);
}

/* The journal keeps a put until the last of its owners has confirmed. */
static void the_journal_keeps_unconfirmed_ranges(void **state)
{
	struct mcm_session *writer;
	struct mcm_put_granted g;
	struct fixture fx;
	uint64_t number;

	(void)state;
	for (int checkpoint = 0; checkpoint < 2; checkpoint++) {
		writer = two_owners(&fx, true);
		g = start_two(&fx, writer, "k", 600 << 10);
		number = writer->number;
		fx_session_end(&fx, writer);
		fx_stays_aside(&fx, 60000);
		if (checkpoint)
			assert_int_equal(mcm_checkpoint(fx.m), 0);
		jx_again(&fx);
		assert_true(fx.m->puts.quarantine.restored_upto > number);
		assert_true(fx.m->puts.quarantine.restored_upto > g.generation);
		restarted(&fx, 3);
		jx_attach(&fx, 1, MIB);
		fx_session(&fx, 2);
		assert_int_equal(fx_mount(&fx, 2, 2, 102, MIB, NULL), 0);
		fx_stays_aside(&fx, HOUR);
		fx_confirm_of(&fx, owner1);
		assert_int_equal(used_of(&fx, 1), 0);
		if (checkpoint)
			assert_int_equal(mcm_checkpoint(fx.m), 0);
		jx_again(&fx);
		restarted(&fx, 2);
		assert_int_equal(used_of(&fx, 1), 0);
		assert_true(used_of(&fx, 2) >= 600 << 10);
		jx_attach(&fx, 1, MIB);
		fx_session(&fx, 2);
		assert_int_equal(fx_mount(&fx, 2, 2, 102, MIB, NULL), 0);
		fx_stays_aside(&fx, HOUR);
		fx_confirm_of(&fx, owner2);
		assert_int_equal(fx_used(&fx), 0);
		jx_again(&fx);
		restarted(&fx, 0);
		assert_int_equal(fx_used(&fx), 0);
		fx_down(&fx);
	}
}

/* ---- no memory ---- */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);

/* The allocation with this number fails, and all after it; 0: none. */
static __thread unsigned fails_at;
static __thread unsigned failed;

static bool fails(void)
{
	if (!fails_at || --fails_at)
		return false;
	fails_at = 1;
	failed++;
	return true;
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return fails() ? NULL : __real_realloc(p, size);
}

/* Whatever cannot be noted is not reused: neither when the owners confirm, nor after any time. */
static void without_memory_a_range_stays_unused(void **state)
{
	struct mcm_session *writer;
	unsigned at, held;
	struct fixture fx;
	uint64_t lost;

	(void)state;
	/* The put; the order of the first copy, and its ranges; the same of the second one. */
	for (at = 1; at <= 6; at++) {
		writer = two_owners(&fx, false);
		start_two(&fx, writer, "k", 600 << 10);
		failed = 0;
		fails_at = at;
		mcm_puts_abandon(fx.m, writer);
		fails_at = 0;
		assert_int_equal(failed > 0, at <= 5);
		fx_stays_aside(&fx, 60000);
		fx_confirm(&fx);
		held = (at < 6) + (at < 4);
		assert_int_equal((used_of(&fx, 1) > 0) + (used_of(&fx, 2) > 0), held);
		for (unsigned i = 0; i < 2; i++)
			(void)fx_put(&fx, i ? "x" : "y", 600 << 10, MCP_PUT_HARD_PIN);
		assert_int_equal(mcm_index_count(&fx.m->index), 2 - held);
		fx_stays_aside(&fx, HOUR);
		fx_confirm(&fx);
		assert_int_equal(mcm_index_count(&fx.m->index), 2 - held);
		/* Nothing is allocated in an unmounted segment. */
		assert_int_equal(mcm_unmount(fx.m, owner1, owner1, &lost), 0);
		assert_int_equal(mcm_unmount(fx.m, owner2, owner2, &lost), 0);
		fx_advance(&fx, 1000);
		assert_int_equal(fx_used(&fx), 0);
		fx_down(&fx);
	}
}

static void no_room(struct mcm_conf *conf)
{
	conf->max_client_quarantine_ratio = 0;
}

static bool mounted;

/* Reads the table of segments without its lock, as a put does. */
static void *reader(void *arg)
{
	struct fixture *fx = arg;

	while (!__atomic_load_n(&mounted, __ATOMIC_RELAXED)) {
		assert_true(mcm_quarantine_over(fx->m, (struct mcp_id){ 7, 3 }, 0) > 0);
		sched_yield();
	}
	return NULL;
}

/* In a build with ThreadSanitizer this fails whenever the number of segments is set before the new segment. */
static void puts_count_while_segments_are_mounted(void **state)
{
	struct mc_thread thread;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, no_room);
	assert_int_equal(stand_still(&fx, "k", 600 << 10), 0);
	assert_int_equal(mc_thread_start(&thread, "reader", reader, &fx), 0);
	for (unsigned i = 2; i < 100; i++)
		assert_int_equal(fx_mount(&fx, 1, i, 100 + i, MIB, NULL), 0);
	__atomic_store_n(&mounted, true, __ATOMIC_RELAXED);
	mc_thread_join(thread);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_range_waits_for_its_own_owner),
		cmocka_unit_test(an_order_is_for_a_session),
		cmocka_unit_test(orders_that_cannot_be_confirmed_hold_up_no_others),
		cmocka_unit_test(a_segment_holds_up_no_other_segment),
		cmocka_unit_test(ranges_of_an_unmounted_segment_are_freed),
		cmocka_unit_test(mounting_again_does_not_free),
		cmocka_unit_test(a_silent_owner_keeps_its_ranges_aside),
		cmocka_unit_test(a_client_keeps_a_limited_part_of_the_pool),
		cmocka_unit_test(an_identity_keeps_a_limited_part_of_the_pool),
		cmocka_unit_test(ranges_of_silent_owners_do_not_count),
		cmocka_unit_test(an_operator_ends_the_quarantine_of_the_dead),
		cmocka_unit_test(the_journal_keeps_unconfirmed_ranges),
		cmocka_unit_test(without_memory_a_range_stays_unused),
		cmocka_unit_test(puts_count_while_segments_are_mounted),
	};

	return cmocka_run_group_tests(tests, jx_setup, jx_teardown);
}
