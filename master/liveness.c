/* SPDX-License-Identifier: Apache-2.0
 * liveness.c - who is silent, and whether it was us who did not listen.
 *
 * The monitor's thread runs with a known period.  When it finds that much more time has gone by, the
 * whole process did not run (it was stopped, or its machine was): that time is taken out of the
 * master's clock, so nobody's silence and nobody's lease is measured by it.
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
#include "proto/meta_http.h"

#define LOG "liveness"
#define TICK_MAX_MS 200
#define TICK_MIN_MS 20
/* A late thread is no stall; one this late is. */
#define STALL_TICKS 4
/* All clients together send so many, about; their owners' being there is all that they say. */
#define HEARTBEATS_PER_SEC 2500

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

uint64_t mcm_heartbeat_of(const struct mcm *m, unsigned clients)
{
	/* Several may get lost before the client is taken for silent; two when there are very many. */
	uint64_t beat = m->conf.client_ttl / 10, most = m->conf.client_ttl * 2 / 5, crowd;

	beat = beat > 1000 ? 1000 : beat < 10 ? 10 : beat;
	crowd = clients * 1000ull / HEARTBEATS_PER_SEC;
	crowd = crowd < most ? crowd : most;
	return crowd > beat ? crowd : beat;
}

uint64_t mcm_heartbeat_ms(const struct mcm *m)
{
	uint64_t ms = __atomic_load_n(&m->heartbeat_ms, __ATOMIC_RELAXED);

	return ms ? ms : mcm_heartbeat_of(m, 0);
}

void mcm_clock_tick(struct mcm *m)
{
	uint64_t now = mc_now_ns(), gap = (now - m->tick_ns) / MC_NS_PER_MS, lost;
	uint64_t tick = mcm_tick_ms(m);

	m->tick_ns = now;
	if (gap <= STALL_TICKS * tick)
		return;
	lost = gap - tick;
	__atomic_fetch_add(&m->stalled_ms, lost, __ATOMIC_RELAXED);
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
	return c && c->segments;
}

bool mcm_client_heartbeat(struct mcm *m, struct mcp_id id)
{
	struct mcm_client *c;
	bool reattach = false;
	unsigned i;

	mc_metric_add(&pings, 1);
	MC_LOCKED(&m->clients.lock);
	c = mcm_client_find(&m->clients, id);
	if (!c || !c->registered) {
		mc_metric_add(&ping_failures, 1);
		return true;
	}
	c->seen_ms = mcm_now_ms(m);
	if (!c->segments || !__atomic_load_n(&m->segments.n_hidden, __ATOMIC_RELAXED))
		return false;
	pthread_rwlock_rdlock(&m->segments.lock);
	for (i = 0; i < m->segments.n_live; i++) {
		const struct mcm_segment *s = m->segments.at[m->segments.live[i]];

		if (mcp_id_eq(s->client, id) && mcm_segment_state(s) == MCP_SEG_SILENT)
			reattach = true;
	}
	pthread_rwlock_unlock(&m->segments.lock);
	if (reattach)
		mc_metric_add(&ping_failures, 1);
	return reattach;
}

enum verdict { STAYS, FALLS_SILENT, IS_FORGOTTEN };

/* Both tables locked. */
static enum verdict judge(struct mcm *m, const struct mcm_segment *s, uint64_t now)
{
	const struct mcm_client *c = mcm_client_find(&m->clients, s->client);
	uint8_t state = mcm_segment_state(s);

	if (state == MCP_SEG_OK && now > (c ? c->seen_ms : 0) + m->conf.client_ttl)
		return FALLS_SILENT;
	if (state == MCP_SEG_SILENT && now > s->silent_ms + m->conf.client_forget_ttl)
		return IS_FORGOTTEN;
	return STAYS;
}

static bool anybody_due(struct mcm *m, uint64_t now)
{
	struct mcm_segments *ss = &m->segments;
	bool due = false;
	unsigned i;

	pthread_rwlock_rdlock(&ss->lock);
	for (i = 0; i < ss->n_live && !due; i++)
		due = judge(m, ss->at[ss->live[i]], now) != STAYS;
	pthread_rwlock_unlock(&ss->lock);
	return due;
}

static void sentence(struct mcm *m, struct mcm_segment *s, enum verdict v, uint64_t now)
{
	unsigned long long objects = mcm_peek(&s->objects);

	if (v == FALLS_SILENT) {
		s->silent_ms = now;
		mcm_segments_set_silent(&m->segments, s, true);
		if (m->meta && m->conf.enable_metadata_cleanup_on_timeout)
			(void)mcp_meta_http_forget(m->meta, s->name);
		mc_warn(LOG, "owner is silent, keeping its objects unseen segment=%s objects=%llu",
			s->name, objects);
	} else {
		mc_warn(LOG, "owner was silent for too long, dropping segment=%s objects=%llu",
			s->name, objects);
		mcm_client_drop_segment(m, s);
	}
}

void mcm_liveness_tick(struct mcm *m)
{
	struct mcm_segments *ss = &m->segments;
	uint64_t now = mcm_now_ms(m);
	bool dropped = false;
	unsigned i = 0;

	MC_LOCKED(&m->clients.lock);
	__atomic_store_n(&m->heartbeat_ms, mcm_heartbeat_of(m, m->clients.count), __ATOMIC_RELAXED);
	if (!anybody_due(m, now))
		return;
	pthread_rwlock_wrlock(&ss->lock);
	while (i < ss->n_live) {
		struct mcm_segment *s = ss->at[ss->live[i]];
		enum verdict v = judge(m, s, now);

		if (v != STAYS)
			sentence(m, s, v, now);
		/* A dropped one leaves its place in the list to another. */
		if (v == IS_FORGOTTEN)
			dropped = true;
		else
			i++;
	}
	pthread_rwlock_unlock(&ss->lock);
	if (dropped)
		mc_stop_kick(&m->evictor_stop);
}
