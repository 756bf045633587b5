/* SPDX-License-Identifier: Apache-2.0
 * liveness.c - who is silent, and whether it was us who did not listen.
 *
 * The monitor's thread runs with a known period.  When it finds that much more time has gone by, the
 * whole process did not run (it was stopped, or its machine was): that time is taken out of the
 * master's clock, so nobody's silence and nobody's lease is measured by it.  Until it has run the clock
 * stands, for whichever thread runs before it.
 * A silent client's segments keep their objects, unseen and untouched, until it mounts them again or
 * has been silent for client_forget_ttl.  Coming back is always a mount: only it carries the epoch
 * that proves the memory to be the same. */
#include <config.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/metrics.h"
#include "master/client.h"
#include "master/mcm_i.h"
#include "proto/codec.h"
#include "meta/server_http.h"

#define LOG "liveness"
#define TICK_MAX_MS 200
#define TICK_MIN_MS 20
/* A late thread is no stall; one this late is. */
#define STALL_TICKS 4
/* All owners together send so many, about, and so many all others: of those nothing depends on it but
 * that they learn of another master when they have nothing to ask. */
#define OWNERS_PER_SEC 2500
#define OTHERS_PER_SEC 300
/* Segments dropped in a tick: each is looked for among all, and mounts and listings wait meanwhile. */
#define DROPS 32

MC_COUNTER(pings, "master_ping_requests_total", "", "Heartbeats")
MC_COUNTER(ping_failures, "master_ping_failures_total", "",
	   "Heartbeats of clients that have to mount again")
MC_COUNTER(stalled, "mooncake_master_stalled_ms_total", "",
	   "Time in which the master itself did not run")

uint64_t mcm_tick_ms(const struct mcm *m)
{
	uint64_t ms = m->conf.client_ttl / 20;

	return ms > TICK_MAX_MS ? TICK_MAX_MS : ms < TICK_MIN_MS ? TICK_MIN_MS : ms;
}

static uint64_t interval(const struct mcm *m, unsigned clients, unsigned per_sec, uint64_t most)
{
	uint64_t beat = m->conf.client_ttl / 10, crowd = clients * 1000ull / per_sec;
	/* Connections on which nothing comes are closed then. */
	uint64_t timeout = m->conf.rpc_conn_timeout_seconds, idle = timeout * 2 / 5;

	beat = beat > 1000 ? 1000 : beat < 10 ? 10 : beat;
	if (timeout && most > idle)
		most = idle > beat ? idle : beat;
	crowd = crowd < most ? crowd : most;
	return crowd > beat ? crowd : beat;
}

uint64_t mcm_heartbeat_of(const struct mcm *m, unsigned owners)
{
	/* Several may get lost before the owner is taken for silent; two when there are very many. */
	return interval(m, owners, OWNERS_PER_SEC, m->conf.client_ttl * 2 / 5);
}

uint64_t mcm_heartbeat_idle_of(const struct mcm *m, unsigned clients)
{
	return interval(m, clients, OTHERS_PER_SEC, m->conf.client_ttl * 7 / 2);
}

uint64_t mcm_heartbeat_ms(const struct mcm *m)
{
	uint64_t ms = __atomic_load_n(&m->heartbeat_ms, __ATOMIC_RELAXED);

	return ms ? ms : mcm_heartbeat_of(m, 0);
}

uint64_t mcm_heartbeat_idle_ms(const struct mcm *m)
{
	uint64_t ms = __atomic_load_n(&m->heartbeat_idle_ms, __ATOMIC_RELAXED);

	return ms ? ms : mcm_heartbeat_idle_of(m, 0);
}

/* Time in which a tick was due and none came may be a stall: the clock waits for the next one to say.  After a stall
 * it is where it has waited, so it never goes back. */
static void clock_set(struct mcm *m, uint64_t now_ns, uint64_t lost_ms)
{
	uint64_t ran = now_ns / MC_NS_PER_MS - m->start_ms - m->stalled_ms - lost_ms;

	m->tick_ns = now_ns;
	__atomic_store_n(&m->stalled_ms, m->stalled_ms + lost_ms, __ATOMIC_RELAXED);
	__atomic_store_n(&m->clock_max_ms, ran + mcm_tick_ms(m), __ATOMIC_RELEASE);
}

/* How much more than a tick has gone by. */
static uint64_t lost_ms(const struct mcm *m, uint64_t now_ns)
{
	uint64_t gap = (now_ns - m->tick_ns) / MC_NS_PER_MS, tick = mcm_tick_ms(m);

	return gap > tick ? gap - tick : 0;
}

void mcm_clock_start(struct mcm *m)
{
	uint64_t now = mc_now_ns();

	clock_set(m, now, m->tick_ns ? lost_ms(m, now) : 0);
}

void mcm_clock_tick(struct mcm *m)
{
	uint64_t now = mc_now_ns(), lost = lost_ms(m, now);

	if (lost <= (STALL_TICKS - 1) * mcm_tick_ms(m)) {
		clock_set(m, now, 0);
		return;
	}
	clock_set(m, now, lost);
	mc_metric_add(&stalled, (int64_t)lost);
	mc_warn(LOG, "the master did not run for a while, counting it for nobody ms=%llu",
		(unsigned long long)lost);
}

bool mcm_client_has_tasks(struct mcm *m, struct mcp_id id)
{
	const struct mcm_client *c;

	if (!__atomic_load_n(&m->tasks.n_active, __ATOMIC_RELAXED))
		return false;
	MC_LOCKED(&m->clients.lock);
	c = mcm_client_find(&m->clients, id);
	return c && !mc_list_empty(&c->segments);
}

bool mcm_client_beat(struct mcm *m, struct mcp_id id, uint32_t *ret_ms)
{
	struct mcm_client *c;
	bool reattach = false;
	struct mc_list *at;

	mc_metric_add(&pings, 1);
	*ret_ms = (uint32_t)mcm_heartbeat_ms(m);
	MC_LOCKED(&m->clients.lock);
	c = mcm_client_find(&m->clients, id);
	if (!c || !c->registered) {
		mc_metric_add(&ping_failures, 1);
		return true;
	}
	c->seen_ms = mcm_now_ms(m);
	if (mc_list_empty(&c->segments))
		*ret_ms = (uint32_t)mcm_heartbeat_idle_ms(m);
	c->told_ms = *ret_ms;
	if (!c->hidden)
		return false;
	mc_list_for_each(at, &c->segments)
		reattach |= mcm_segment_state(mc_container_of(at, struct mcm_segment, link)) ==
			MCP_SEG_SILENT;
	c->hidden = reattach;
	if (reattach)
		mc_metric_add(&ping_failures, 1);
	return reattach;
}

enum verdict { STAYS, FALLS_SILENT, IS_FORGOTTEN };

/* When it is to be judged again unless something is heard of it.  Both tables locked. */
static uint64_t due_ms(struct mcm *m, const struct mcm_segment *s)
{
	const struct mcm_client *c;

	switch (mcm_segment_state(s)) {
	case MCP_SEG_OK:
		c = mcm_client_find(&m->clients, s->client);
		return (c ? c->seen_ms : 0) + m->conf.client_ttl;
	case MCP_SEG_SILENT:
		return s->silent_ms + m->conf.client_forget_ttl;
	default:
		return UINT64_MAX;
	}
}

/* Both tables locked. */
static enum verdict judge(struct mcm *m, const struct mcm_segment *s, uint64_t now)
{
	if (now <= due_ms(m, s))
		return STAYS;
	return mcm_segment_state(s) == MCP_SEG_OK ? FALLS_SILENT : IS_FORGOTTEN;
}

/* When the first of them may be due: whoever speaks or comes is later than that. */
static uint64_t first_due_ms(struct mcm *m, uint64_t now)
{
	uint64_t ttl = m->conf.client_ttl, forget = m->conf.client_forget_ttl, due, first;
	struct mcm_segments *ss = &m->segments;
	unsigned i;

	first = now + (ttl < forget ? ttl : forget);
	pthread_rwlock_rdlock(&ss->lock);
	for (i = 0; i < ss->n_live; i++) {
		due = due_ms(m, ss->at[ss->live[i]]);
		first = due < first ? due : first;
	}
	pthread_rwlock_unlock(&ss->lock);
	return first;
}

static void sentence(struct mcm *m, struct mcm_segment *s, enum verdict v, uint64_t now)
{
	unsigned long long objects = mcm_load_relaxed(&s->objects);

	if (v == FALLS_SILENT) {
		struct mcm_client *c = mcm_client_find(&m->clients, s->client);

		s->silent_ms = now;
		mcm_segments_set_silent(&m->segments, s, true);
		if (c)
			c->hidden = true;
		if (m->meta && m->conf.enable_metadata_cleanup_on_timeout)
			(void)mcd_server_forget(m->meta, s->name);
		mc_warn(LOG, "owner is silent, keeping its objects unseen segment=%s objects=%llu",
			s->name, objects);
	} else {
		mc_warn(LOG, "owner was silent for too long, dropping segment=%s objects=%llu",
			s->name, objects);
		mcm_client_drop_segment(m, s);
	}
}

/* Clients' lock held.  Owners whose place was taken before they had time to come back. */
static void drop_replaced(struct mcm *m)
{
	struct mcm_segments *ss = &m->segments;
	unsigned i;

	if (!m->clients.replaced || mcm_restored_holding(m))
		return;
	m->clients.replaced = false;
	pthread_rwlock_wrlock(&ss->lock);
	/* From the end: what takes a dropped one's place in the list was looked at. */
	for (i = ss->n_live; i--;)
		if (i < ss->n_live && mcm_segment_readable(ss->at[ss->live[i]]))
			mcm_client_drop_replaced(m, ss->at[ss->live[i]]);
	pthread_rwlock_unlock(&ss->lock);
}

void mcm_liveness_tick(struct mcm *m)
{
	struct mcm_segments *ss = &m->segments;
	uint64_t now = mcm_now_ms(m);
	unsigned i = 0, dropped = 0;

	mcm_restored_tick(m);
	MC_LOCKED(&m->clients.lock);
	__atomic_store_n(&m->heartbeat_ms, mcm_heartbeat_of(m, m->clients.owners), __ATOMIC_RELAXED);
	__atomic_store_n(&m->heartbeat_idle_ms, mcm_heartbeat_idle_of(m, m->clients.count),
			 __ATOMIC_RELAXED);
	drop_replaced(m);
	if (now <= m->due_ms)
		return;
	m->due_ms = first_due_ms(m, now);
	if (now <= m->due_ms)
		return;
	pthread_rwlock_wrlock(&ss->lock);
	while (i < ss->n_live && dropped < DROPS) {
		struct mcm_segment *s = ss->at[ss->live[i]];
		enum verdict v = judge(m, s, now);

		if (v != STAYS)
			sentence(m, s, v, now);
		/* A dropped one leaves its place in the list to another. */
		if (v == IS_FORGOTTEN)
			dropped++;
		else
			i++;
	}
	pthread_rwlock_unlock(&ss->lock);
	if (dropped)
		mc_stop_kick(&m->evictor_stop);
}
