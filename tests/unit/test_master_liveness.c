/* SPDX-License-Identifier: Apache-2.0
 * Owners that become silent, return, are forgotten or replaced; and a master that was stopped for a
 * while. */
#include <config.h>

#include "test_master_fixture.h"

#include <stdio.h>
#include <string.h>

#include "master/ops/ops.h"

#define MIB (1u << 20)

static struct mcp_id id_of(uint64_t n)
{
	return (struct mcp_id){ 7, n };
}

static bool beat(struct fixture *fx, uint64_t client)
{
	return fx_beat(fx, id_of(client));
}

/* Advance the clock while client 1 sends heartbeats. */
static void alive_for(struct fixture *fx, uint64_t ms)
{
	uint64_t i;

	for (i = 0; i < ms; i += 1000) {
		fx_advance(fx, 1000);
		assert_false(beat(fx, 1));
	}
}

static uint8_t state_of(struct fixture *fx, uint64_t id)
{
	struct mcm_segment *s = mcm_segments_find(&fx->m->segments, id_of(id));

	return s ? mcm_segment_state(s) : MCM_SEG_NONE;
}

/* The number of keys in a listing of all keys. */
static unsigned listed(struct fixture *fx)
{
	struct mcp_list rq = { .limit = 100 };
	struct mcm_list_page pg = { 0 };
	unsigned n;

	assert_int_equal(mcm_list(fx->m, &rq, &pg), 0);
	n = (unsigned)pg.names.count;
	mcm_names_page_done(&pg.names);
	return n;
}

static void assert_clients(struct fixture *fx, unsigned active, unsigned suspected, unsigned offline)
{
	struct mcm_liveness n = mcm_liveness_counts(fx->m);

	assert_int_equal(n.active, active);
	assert_int_equal(n.suspected, suspected);
	assert_int_equal(n.offline, offline);
}

static void a_silent_client_is_suspected_then_offline_and_recovers(void **state)
{
	int64_t suspicions = fx_metric("master_client_liveness_suspected_transitions_total");
	int64_t offlines = fx_metric("master_client_liveness_offline_transitions_total");
	int64_t recoveries = fx_metric("master_client_liveness_recoveries_total");
	struct mcp_mount_reply reply;
	struct fixture fx;

	(void)state;
	/* two segments: the client counts once */
	fx_up(&fx, 2, MIB, NULL);
	assert_int_equal(fx_put(&fx, "a", 1000, 0), 0);
	assert_clients(&fx, 1, 0, 0);
	fx_advance(&fx, fx.conf.client_ttl + 2 * mcm_tick_ms(fx.m));
	assert_clients(&fx, 0, 1, 0);
	fx_advance(&fx, fx.conf.client_suspicion_ttl_sec + fx.conf.client_ttl);
	assert_clients(&fx, 0, 0, 1);
	assert_int_equal(fx_metric("master_client_liveness_suspected_transitions_total"), suspicions + 1);
	assert_int_equal(fx_metric("master_client_liveness_offline_transitions_total"), offlines + 1);
	/* The objects of an offline client are kept. */
	for (unsigned i = 1; i <= 2; i++)
		assert_int_equal(fx_mount(&fx, 1, i, 100 + i, MIB, &reply), 0);
	assert_false(beat(&fx, 1));
	assert_clients(&fx, 1, 0, 0);
	assert_int_equal(fx_exist(&fx, "a", 0), 1);
	assert_int_equal(fx_metric("master_client_liveness_recoveries_total"), recoveries + 1);
	fx_down(&fx);
}

static void test_silent_and_back(void **state)
{
	struct mcp_mount_reply reply;
	struct fixture fx;
	uint64_t used;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "a", 1000, 0), 0);
	assert_int_equal(fx_put(&fx, "z", 0, MCP_PUT_COMMIT), 0);
	alive_for(&fx, 60000);
	assert_int_equal(state_of(&fx, 1), MCP_SEG_OK);
	assert_int_equal(fx_exist(&fx, "a", 0), 1);

	fx_advance(&fx, fx.conf.client_ttl + 2 * mcm_tick_ms(fx.m));
	assert_int_equal(state_of(&fx, 1), MCP_SEG_SILENT);
	assert_int_equal(fx_stat(&fx, "a", NULL), -MC_ENOOBJECT);
	assert_int_equal(fx_exist(&fx, "a", 0), 0);
	assert_int_equal(listed(&fx), 1);
	assert_int_equal(fx_stat(&fx, "z", NULL), 0);
	/* No new object is placed there, and no object is dropped. */
	assert_int_equal(fx_put(&fx, "b", 1000, 0), -MC_ENOSPACE);
	used = fx_used(&fx);
	assert_true(used);
	/* The reply to a heartbeat requests a mount: only a mount carries the epoch. */
	assert_true(beat(&fx, 1));
	assert_int_equal(state_of(&fx, 1), MCP_SEG_SILENT);
	assert_int_equal(fx_mount(&fx, 1, 1, 101, MIB, &reply), 0);
	assert_int_equal(reply.reattached, 1);
	assert_int_equal(reply.objects, 1);
	assert_false(beat(&fx, 1));
	assert_int_equal(fx_used(&fx), used);
	assert_int_equal(fx_stat(&fx, "a", NULL), 0);
	assert_int_equal(fx_put(&fx, "b", 1000, 0), 0);
	fx_down(&fx);
}

static void a_shared_medium_is_read_without_its_owner(void **state)
{
	struct mcp_mount_reply reply;
	struct mcm_segment *s;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "a", 1000, 0), 0);
	fx_advance(&fx, fx.conf.client_ttl + 2 * mcm_tick_ms(fx.m));
	assert_int_equal(fx_stat(&fx, "a", NULL), -MC_ENOOBJECT);
	/* No medium is shared yet. */
	s = mcm_segments_find(&fx.m->segments, id_of(1));
	assert_non_null(s);
	mcm_store_relaxed(&s->traits, s->traits | MCP_TRAIT_SHARED);
	assert_int_equal(state_of(&fx, 1), MCP_SEG_SILENT);
	assert_int_equal(fx_stat(&fx, "a", NULL), 0);
	assert_int_equal(fx_exist(&fx, "a", 0), 1);
	assert_int_equal(listed(&fx), 1);
	/* Only its owner writes there. */
	assert_int_equal(fx_put(&fx, "b", 1000, 0), -MC_ENOSPACE);
	assert_int_equal(fx_mount(&fx, 1, 1, 101, MIB, &reply), 0);
	assert_int_equal(fx_put(&fx, "b", 1000, 0), 0);
	fx_down(&fx);
}

/* A key whose object is hidden can be put again; the hidden object does not return. */
static void test_replaced_while_silent(void **state)
{
	struct mcp_mount_reply reply;
	struct mcp_object o;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "a", 1000, 0), 0);
	assert_int_equal(fx_put(&fx, "b", 1000, 0), 0);
	fx_advance(&fx, fx.conf.client_ttl + 2 * mcm_tick_ms(fx.m));
	fx_session(&fx, 2);
	assert_int_equal(fx_mount(&fx, 2, 2, 202, MIB, NULL), 0);
	assert_int_equal(fx_put(&fx, "a", 2000, 0), 0);
	assert_int_equal(fx_stat(&fx, "a", &o), 0);
	assert_int_equal(o.size, 2000);
	assert_int_equal(fx_mount(&fx, 1, 1, 101, MIB, &reply), 0);
	assert_int_equal(reply.objects, 1);
	assert_int_equal(fx_stat(&fx, "a", &o), 0);
	assert_int_equal(o.size, 2000);
	assert_int_equal(fx_stat(&fx, "b", NULL), 0);
	fx_down(&fx);
}

static void test_other_epoch(void **state)
{
	struct mcp_mount_reply reply;
	struct mcp_object held;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "a", 1000, 0), 0);
	assert_int_equal(fx_put(&fx, "held", 1000, 0), 0);
	assert_int_equal(fx_pin(&fx, fx.s, "held", MCP_GET_HOLD, &held, NULL), 0);
	assert_int_equal(fx_mount(&fx, 1, 1, 999, MIB, &reply), 0);
	assert_int_equal(reply.reattached, 0);
	/* Readers miss the object at once, before the segment is swept. */
	assert_int_equal(fx_stat(&fx, "a", NULL), -MC_ENOOBJECT);
	assert_int_equal(fx_used(&fx), 0);
	assert_int_equal(fx_put(&fx, "a", 3000, 0), 0);
	fx_advance(&fx, 0);
	assert_int_equal(mcm_index_count(&fx.m->index), 1);
	assert_int_equal(fx.m->segments.top, 2);
	/* The old segment exists as long as a reader pins an object in it. */
	assert_int_equal(mcm_segment_state(fx.m->segments.at[0]), MCP_SEG_UNMOUNTING);
	fx_release(&fx, fx.s, held.pin);
	fx_advance(&fx, 0);
	assert_int_equal(mcm_segment_state(fx.m->segments.at[0]), MCM_SEG_NONE);
	/* Its number is reused. */
	assert_int_equal(fx_mount(&fx, 1, 5, 5, MIB, NULL), 0);
	assert_int_equal(fx.m->segments.top, 2);
	fx_down(&fx);
}

static void test_unmount(void **state)
{
	struct mcm_put_granted g;
	struct fixture fx;
	uint64_t lost;

	(void)state;
	fx_up(&fx, 2, MIB, NULL);
	assert_int_equal(fx_put(&fx, "a", 1000, 0), 0);
	assert_int_equal(fx_start(&fx, fx.s, "p", 1000, 0, &g), 0);
	assert_int_equal(mcm_unmount(fx.m, id_of(2), id_of(1), &lost), -MC_EOWNER);
	assert_int_equal(mcm_unmount(fx.m, id_of(1), id_of(77), &lost), -MC_ENOSEGMENT);
	assert_int_equal(mcm_unmount(fx.m, id_of(1), id_of(1), &lost), 0);
	assert_int_equal(mcm_unmount(fx.m, id_of(1), id_of(2), &lost), 0);
	assert_int_equal(fx_stat(&fx, "a", NULL), -MC_ENOOBJECT);
	assert_int_equal(fx_end(&fx, "p", g.generation), -MC_EREPLICA_GONE);
	fx_advance(&fx, 0);
	assert_int_equal(mcm_index_count(&fx.m->index), 0);
	assert_int_equal(mcm_segment_state(fx.m->segments.at[0]), MCM_SEG_NONE);
	assert_int_equal(mcm_segment_state(fx.m->segments.at[1]), MCM_SEG_NONE);
	fx_down(&fx);
}

static void test_forgotten(void **state)
{
	struct mcp_mount_reply reply;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "a", 1000, 0), 0);
	fx_advance(&fx, fx.conf.client_forget_ttl);
	assert_int_equal(state_of(&fx, 1), MCP_SEG_SILENT);
	fx_advance(&fx, fx.conf.client_ttl + 2 * mcm_tick_ms(fx.m));
	assert_int_equal(state_of(&fx, 1), MCM_SEG_NONE);
	assert_int_equal(mcm_index_count(&fx.m->index), 0);
	assert_int_equal(fx_mount(&fx, 1, 1, 101, MIB, &reply), 0);
	assert_int_equal(reply.reattached, 0);
	fx_down(&fx);
}

static void test_master_paused(void **state)
{
	struct mcp_object lease;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "a", 1000, 0), 0);
	assert_int_equal(fx_pin(&fx, fx.s, "a", MCP_GET_LEASE, &lease, NULL), 0);
	assert_int_equal(fx_exist(&fx, "a", 0), 1);
	/* SIGSTOP for ten minutes: no owner becomes silent, and no lease expires. */
	mc_clock_advance(600 * MC_NS_PER_SEC);
	fx_advance(&fx, 100);
	assert_int_equal(state_of(&fx, 1), MCP_SEG_OK);
	assert_int_equal(fx_remove(&fx, "a", 0), -MC_ELEASED);
	assert_int_equal(fx_metric("mooncake_master_leases_expired_total"), 0);
	/* Repeated pauses do not add up either. */
	{
		int i;

		for (i = 0; i < 20; i++) {
			mc_clock_advance(60 * MC_NS_PER_SEC);
			fx_advance(&fx, 10);
		}
	}
	assert_int_equal(state_of(&fx, 1), MCP_SEG_OK);
	/* But silence while the master runs counts. */
	fx_advance(&fx, fx.conf.client_ttl + 2 * mcm_tick_ms(fx.m));
	assert_int_equal(state_of(&fx, 1), MCP_SEG_SILENT);
	fx_down(&fx);
}

/* Whichever thread wakes first: it does not know of the stall yet, but nothing expires. */
static void test_paused_until_the_monitor_runs(void **state)
{
	struct mcm_put_granted g;
	int64_t timed_out = fx_metric("mooncake_master_puts_timed_out_total");
	struct fixture fx;
	uint64_t before;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "a", 600000, 0), 0);
	assert_int_equal(fx_exist(&fx, "a", 0), 1);
	assert_int_equal(fx_start(&fx, fx.s, "b", 1000, 0, NULL), 0);
	before = mcm_now_ms(fx.m);
	mc_clock_advance(1200 * MC_NS_PER_SEC);
	assert_true(mcm_now_ms(fx.m) - before <= mcm_tick_ms(fx.m));
	/* The promise lease holds, the put is not aborted, and the clock does not go back. */
	assert_int_equal(fx_remove(&fx, "a", 0), -MC_ELEASED);
	mcm_puts_tick(fx.m);
	before = mcm_now_ms(fx.m);
	mcm_clock_tick(fx.m);
	assert_true(mcm_now_ms(fx.m) >= before);
	assert_true(mcm_now_ms(fx.m) - before <= mcm_tick_ms(fx.m));
	assert_int_equal(fx_remove(&fx, "a", 0), -MC_ELEASED);
	assert_int_equal(fx_metric("mooncake_master_puts_timed_out_total"), timed_out);
	/* A tick that is slightly late is no stall: its time counts. */
	before = mcm_now_ms(fx.m);
	mc_clock_advance(3 * mcm_tick_ms(fx.m) * MC_NS_PER_MS);
	mcm_clock_tick(fx.m);
	assert_int_equal(mcm_now_ms(fx.m) - before, 3 * mcm_tick_ms(fx.m));
	assert_int_equal(fx_start(&fx, fx.s, "c", 1000, 0, &g), 0);
	assert_int_equal(fx_end(&fx, "c", g.generation), 0);
	fx_down(&fx);
}

static void test_client_paused(void **state)
{
	struct mcm_session *other;
	struct mcp_mount_reply reply;
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	other = fx_session(&fx, 2);
	assert_int_equal(fx_mount(&fx, 2, 2, 202, MIB, NULL), 0);
	assert_int_equal(fx_put(&fx, "a", 400000, 0), 0);
	assert_int_equal(fx_put(&fx, "b", 400000, 0), 0);
	assert_int_equal(fx_put(&fx, "c", 400000, 0), 0);
	/* Client 2 is stopped for a minute, but its connection stays. */
	alive_for(&fx, 60000);
	assert_int_equal(state_of(&fx, 1), MCP_SEG_OK);
	assert_int_equal(state_of(&fx, 2), MCP_SEG_SILENT);
	assert_in_range(fx_exist(&fx, "a", 0) + fx_exist(&fx, "b", 0) + fx_exist(&fx, "c", 0), 1, 2);
	assert_true(beat(&fx, 2));
	assert_int_equal(fx_mount(&fx, 2, 2, 202, MIB, &reply), 0);
	assert_int_equal(reply.reattached, 1);
	assert_int_equal(fx_exist(&fx, "a", 0) + fx_exist(&fx, "b", 0) + fx_exist(&fx, "c", 0), 3);
	fx_session_end(&fx, other);
	fx_down(&fx);
}

static void test_disconnected(void **state)
{
	struct mcm_put_granted g;
	struct mcm_session *other;
	struct fixture fx;
	char key[16];
	int i;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	other = fx_session(&fx, 2);
	assert_int_equal(fx_mount(&fx, 2, 2, 202, MIB, NULL), 0);
	fx_session_end(&fx, other);
	/* New objects are placed on connected owners only. */
	for (i = 0; i < 40; i++) {
		sprintf(key, "k%d", i);
		assert_int_equal(fx_start(&fx, fx.s, key, 1000, 0, &g), 0);
		assert_int_equal(g.replica[0].segment.lo, 1);
		assert_int_equal(fx_end(&fx, key, g.generation), 0);
	}
	fx_session(&fx, 2);
	for (i = 0; i < 100; i++) {
		sprintf(key, "n%d", i);
		assert_int_equal(fx_start(&fx, fx.s, key, 1000, 0, &g), 0);
		if (g.replica[0].segment.lo == 2)
			break;
	}
	assert_true(i < 100);
	fx_down(&fx);
}

static void test_owners(void **state)
{
	struct mcp_mount_reply reply;
	struct mcp_register rq = { .client = id_of(9), .name = fx_bytes("n") };
	struct fixture fx;

	(void)state;
	fx_up(&fx, 1, MIB, NULL);
	assert_int_equal(fx_put(&fx, "a", 1000, 0), 0);
	fx_session(&fx, 2);
	/* Another client cannot mount the memory of a connected owner, with its epoch or
	 * another. */
	assert_int_equal(fx_mount(&fx, 2, 1, 101, MIB, NULL), -MC_EOWNER);
	assert_int_equal(fx_mount(&fx, 2, 1, 999, MIB, NULL), -MC_ESEGMENT_EXISTS);
	/* A daemon that restarted and kept its memory is a new client. */
	fx_session_end(&fx, fx.s);
	fx.s = fx_session(&fx, 3);
	assert_int_equal(fx_mount(&fx, 3, 1, 101, MIB, &reply), 0);
	assert_int_equal(reply.reattached, 1);
	assert_int_equal(fx_stat(&fx, "a", NULL), 0);
	assert_int_equal(mcm_client_count(fx.m), 2);
	/* A client that is unknown or has not registered is asked to register. */
	assert_true(beat(&fx, 9));
	assert_int_equal(mcm_client_register(fx.m, &rq, mcp_bytes("local", 5)), -MC_ENOCLIENT);
	assert_int_equal(mcm_client_opened(fx.m, id_of(9)), 0);
	assert_true(beat(&fx, 9));
	assert_int_equal(mcm_client_register(fx.m, &rq, mcp_bytes("local", 5)), 0);
	assert_false(beat(&fx, 9));
	mcm_client_closed(fx.m, id_of(9));
	fx_down(&fx);
}

static void test_bad_mounts(void **state)
{
	struct mcp_mount rq = {
		.segment = id_of(3), .client = id_of(1), .epoch = 1, .size = MIB,
		.name = fx_bytes("n"), .endpoint = fx_bytes("h:1"), .protocol = fx_bytes("tcp"),
	}, bad;
	struct mcp_mount_reply reply;
	struct fixture fx;
	char name[300];

	(void)state;
	fx_up(&fx, 0, 0, NULL);
	bad = rq;
	bad.client = id_of(2);
	assert_int_equal(mcm_mount(fx.m, id_of(1), NULL, &bad, &reply), -MC_EOWNER);
	bad = rq;
	bad.segment = (struct mcp_id){ 0, 0 };
	assert_int_equal(mcm_mount(fx.m, id_of(1), NULL, &bad, &reply), -MC_EPARAM);
	bad = rq;
	bad.size = 10;
	assert_int_equal(mcm_mount(fx.m, id_of(1), NULL, &bad, &reply), -MC_EPARAM);
	bad.size = UINT64_MAX;
	assert_int_equal(mcm_mount(fx.m, id_of(1), NULL, &bad, &reply), -MC_EPARAM);
	bad = rq;
	bad.name = fx_bytes("");
	assert_int_equal(mcm_mount(fx.m, id_of(1), NULL, &bad, &reply), -MC_EPARAM);
	bad.name = fx_bytes("a b\n");
	assert_int_equal(mcm_mount(fx.m, id_of(1), NULL, &bad, &reply), -MC_EPARAM);
	memset(name, 'n', 299);
	name[299] = 0;
	bad.name = fx_bytes(name);
	assert_int_equal(mcm_mount(fx.m, id_of(1), NULL, &bad, &reply), -MC_EPARAM);
	assert_int_equal(fx.m->segments.n_live, 0);
	assert_int_equal(mcm_mount(fx.m, id_of(1), NULL, &rq, &reply), 0);
	fx_down(&fx);
}

/* The heartbeat interval that the master requests of client @n. */
static uint32_t asked(struct fixture *fx, uint64_t n)
{
	uint32_t ms = 0;

	assert_false(mcm_client_beat(fx->m, id_of(n), &ms));
	return ms;
}

static void join(struct fixture *fx, uint64_t n)
{
	struct mcp_register rq = { .client = id_of(n), .name = fx_bytes("n") };

	assert_int_equal(mcm_client_opened(fx->m, id_of(n)), 0);
	assert_int_equal(mcm_client_register(fx->m, &rq, mcp_bytes("local", 5)), 0);
}

static struct mcp_mount mount_of(uint64_t n, char name[16])
{
	snprintf(name, 16, "n%llu", (unsigned long long)n);
	return (struct mcp_mount){
		.segment = id_of(n), .client = id_of(n), .epoch = 1, .size = MIB,
		.name = fx_bytes(name), .endpoint = fx_bytes("h:1"), .protocol = fx_bytes("tcp"),
	};
}

/* The more owners there are, the longer is their heartbeat interval, but never so long that one
 * lost heartbeat matters. */
static void test_many_owners_beat_less_often(void **state)
{
	struct fixture fx;

	(void)state;
	fx_up(&fx, 0, MIB, NULL);
	assert_int_equal(mcm_heartbeat_ms(fx.m), 1000);
	assert_int_equal(mcm_heartbeat_of(fx.m, 2500), 1000);
	assert_int_equal(mcm_heartbeat_of(fx.m, 5000), 2000);
	assert_int_equal(mcm_heartbeat_of(fx.m, 10000), 4000);
	assert_int_equal(mcm_heartbeat_of(fx.m, 1000000), fx.conf.client_ttl * 2 / 5);
	fx.m->clients.owners += 5000;
	mcm_liveness_tick(fx.m);
	assert_in_range(mcm_heartbeat_ms(fx.m), 2000, 2010);
	fx.m->clients.owners -= 5000;
	mcm_liveness_tick(fx.m);
	assert_int_equal(mcm_heartbeat_ms(fx.m), 1000);
	fx_down(&fx);
}

/* Ten thousand clients without segments send fewer than 350 heartbeats a second together, which
 * takes about 1 % of a core; owners among them keep their interval. */
static void test_idle_clients_beat_rarely(void **state)
{
	struct mcp_mount_reply reply;
	struct fixture fx;
	struct mcp_mount rq;
	double per_sec = 0;
	char name[16];
	uint64_t i;

	(void)state;
	fx_up(&fx, 0, 0, NULL);
	for (i = 100; i < 10100; i++)
		join(&fx, i);
	for (i = 100; i < 110; i++) {
		rq = mount_of(i, name);
		assert_int_equal(mcm_mount(fx.m, id_of(i), NULL, &rq, &reply), 0);
	}
	mcm_liveness_tick(fx.m);
	for (i = 100; i < 110; i++)
		assert_int_equal(asked(&fx, i), 1000);
	for (i = 110; i < 10100; i++)
		per_sec += 1000.0 / asked(&fx, i);
	assert_true(per_sec < 350);
	/* However many they are, they find a new master within three and a half times the TTL. */
	assert_int_equal(mcm_heartbeat_idle_of(fx.m, 1000000), fx.conf.client_ttl * 7 / 2);
	/* A client that unmounts its memory is one of them; when nearly all have left, the interval
	 * of the rest is short again. */
	for (i = 100; i < 110; i++)
		assert_int_equal(mcm_unmount(fx.m, id_of(i), id_of(i), &(uint64_t){ 0 }), 0);
	assert_int_equal(fx.m->clients.owners, 0);
	assert_true(asked(&fx, 100) > 10000);
	for (i = 102; i < 10100; i++)
		mcm_client_closed(fx.m, id_of(i));
	mcm_liveness_tick(fx.m);
	assert_int_equal(asked(&fx, 100), 1000);
	fx_down(&fx);
}

/* No interval is so long that the server closes the connection as idle. */
static void test_beats_keep_connections(void **state)
{
	struct fixture fx;

	(void)state;
	fx_up(&fx, 0, 0, NULL);
	fx.m->conf.rpc_conn_timeout_seconds = 5000;
	assert_int_equal(mcm_heartbeat_idle_of(fx.m, 1000000), 2000);
	assert_int_equal(mcm_heartbeat_of(fx.m, 1000000), 2000);
	fx.m->conf.rpc_conn_timeout_seconds = 1;
	assert_int_equal(mcm_heartbeat_idle_of(fx.m, 1000000), 1000);
	fx_down(&fx);
}

/* A client with a long interval that mounts memory does not count as silent before that interval is
 * over; from its next heartbeat on it is treated like any owner. */
static void test_idle_client_becomes_owner(void **state)
{
	struct mcp_mount_reply reply;
	struct fixture fx;
	struct mcp_mount rq;
	uint32_t told;
	char name[16];

	(void)state;
	fx_up(&fx, 0, 0, NULL);
	join(&fx, 5);
	fx.m->clients.count += 100000;
	mcm_liveness_tick(fx.m);
	told = asked(&fx, 5);
	assert_true(told > fx.conf.client_ttl);
	rq = mount_of(5, name);
	assert_int_equal(mcm_mount(fx.m, id_of(5), NULL, &rq, &reply), 0);
	fx_advance(&fx, told);
	assert_int_equal(state_of(&fx, 5), MCP_SEG_OK);
	assert_int_equal(asked(&fx, 5), 1000);
	fx_advance(&fx, fx.conf.client_ttl + 2 * mcm_tick_ms(fx.m));
	assert_int_equal(state_of(&fx, 5), MCP_SEG_SILENT);
	/* A new owner that never sends a heartbeat becomes silent, too. */
	join(&fx, 6);
	told = asked(&fx, 6);
	rq = mount_of(6, name);
	assert_int_equal(mcm_mount(fx.m, id_of(6), NULL, &rq, &reply), 0);
	fx_advance(&fx, told + fx.conf.client_ttl + 2 * mcm_tick_ms(fx.m));
	assert_int_equal(state_of(&fx, 6), MCP_SEG_SILENT);
	fx.m->clients.count -= 100000;
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_silent_client_is_suspected_then_offline_and_recovers),
		cmocka_unit_test(test_silent_and_back),
		cmocka_unit_test(a_shared_medium_is_read_without_its_owner),
		cmocka_unit_test(test_replaced_while_silent),
		cmocka_unit_test(test_other_epoch),
		cmocka_unit_test(test_unmount),
		cmocka_unit_test(test_forgotten),
		cmocka_unit_test(test_master_paused),
		cmocka_unit_test(test_paused_until_the_monitor_runs),
		cmocka_unit_test(test_client_paused),
		cmocka_unit_test(test_disconnected),
		cmocka_unit_test(test_owners),
		cmocka_unit_test(test_bad_mounts),
		cmocka_unit_test(test_many_owners_beat_less_often),
		cmocka_unit_test(test_idle_clients_beat_rarely),
		cmocka_unit_test(test_beats_keep_connections),
		cmocka_unit_test(test_idle_client_becomes_owner),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
