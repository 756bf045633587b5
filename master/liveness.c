/* SPDX-License-Identifier: Apache-2.0
 * liveness.c - detection of silent clients.
 *
 * A silent client's segments keep their objects, hidden and unchanged, until the client mounts them
 * again or has been silent for client_forget_ttl.  Only a mount makes a segment visible again,
 * because only a mount carries the epoch that proves that the memory is the same. */
#include <config.h>

#include <string.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "common/metrics.h"
#include "master/liveness.h"
#include "master/mcm_i.h"
#include "meta/server_http.h"
#include "proto/codec.h"

#define LOG "liveness"
/* Segments dropped per tick: each needs a search of all segments, and mounts and listings wait for the lock. */
#define DROPS 32

MC_COUNTER(pings, "master_ping_requests_total", "", "Heartbeats")
MC_COUNTER(ping_failures, "master_ping_failures_total", "",
	   "Heartbeats of clients that must register or mount again")

MC_COUNTER(suspicions, "master_client_liveness_suspected_transitions_total", "", "Clients that became suspected")
MC_COUNTER(offlines, "master_client_liveness_offline_transitions_total", "", "Clients that became offline")
MC_COUNTER(recoveries, "master_client_liveness_recoveries_total", "",
	   "Clients that became active again with their segments")

bool mcm_client_has_tasks(struct mcm *m, struct mcp_id id)
{
	const struct mcm_client *c;

	if (!__atomic_load_n(&m->tasks.n_active, __ATOMIC_RELAXED))
		return false;
	MC_LOCKED(&m->clients.lock);
	c = mcm_client_find(&m->clients, id);
	return c && !mc_list_empty(&c->segments);
}

static bool is_paused(const struct mcp_seq *paused, struct mcp_id segment)
{
	struct mcp_paused p;
	struct mcp_iter it;

	mcp_iter_init(&it, paused, &mcp_desc_paused);
	while (mcp_iter_next(&it, &p))
		if (mcp_id_eq(p.segment, segment))
			return true;
	return false;
}

/* Store a state that differs from the one in the message, of one segment; its name and new state.  False: all agree. */
static bool pause_next(struct mcm *m, struct mcp_id id, const struct mcp_seq *paused, char name[MCM_NAME_MAX + 1],
		       bool *ret_now)
{
	struct mcm_client *c;
	struct mc_list *at;

	MC_LOCKED(&m->clients.lock);
	c = mcm_client_find(&m->clients, id);
	if (!c)
		return false;
	mc_list_for_each(at, &c->segments) {
		struct mcm_segment *s = mc_container_of(at, struct mcm_segment, link);

		*ret_now = is_paused(paused, s->id);
		if (__atomic_exchange_n(&s->paused, *ret_now, __ATOMIC_RELAXED) == *ret_now)
			continue;
		memcpy(name, s->name, sizeof(s->name));
		return true;
	}
	return false;
}

void mcm_client_pauses(struct mcm *m, struct mcp_id id, const struct mcp_seq *paused)
{
	char name[MCM_NAME_MAX + 1];
	bool now;

	if (!paused->count && !mcm_load_relaxed(&m->clients.pauses))
		return;
	mcm_store_relaxed(&m->clients.pauses, true);
	while (pause_next(m, id, paused, name, &now)) {
		if (now)
			mc_warn(LOG, "a segment is paused, its device does not work (see its owner's log); its objects "
				"stay name=%s", name);
		else
			mc_info(LOG, "a paused segment works again name=%s", name);
	}
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
	c->beat_ms = *ret_ms;
	if (!c->hidden)
		return false;
	mc_list_for_each(at, &c->segments) {
		const struct mcm_segment *s = mc_container_of(at, struct mcm_segment, link);

		reattach |= mcm_segment_state(s) == MCP_SEG_SILENT && !s->left;
	}
	c->hidden = reattach;
	if (reattach) {
		mc_metric_add(&ping_failures, 1);
	} else if (c->suspected) {
		c->suspected = c->offline = false;
		mc_metric_add(&recoveries, 1);
	}
	return reattach;
}

/* Both tables locked.  Is it the first segment of its client that is hidden?  Then it stands for the client. */
static struct mcm_client *hidden_client(struct mcm *m, const struct mcm_segment *s)
{
	struct mcm_client *c = mcm_client_find(&m->clients, s->client);
	struct mc_list *at;

	mc_list_for_each(at, &c->segments)
		if (mcm_segment_state(mc_container_of(at, struct mcm_segment, link)) == MCP_SEG_SILENT)
			return mc_container_of(at, struct mcm_segment, link) == s ? c : NULL;
	return NULL;
}

static bool is_offline(struct mcm *m, const struct mcm_segment *s)
{
	return mcm_now_ms(m) >= s->silent_ms + m->conf.client_suspicion_ttl_sec;
}

struct mcm_liveness mcm_liveness_counts(struct mcm *m)
{
	struct mcm_segments *ss = &m->segments;
	struct mcm_liveness n = { 0, 0, 0 };

	MC_LOCKED(&m->clients.lock);
	mc_rwlock_rdlock(&ss->lock);
	for (unsigned i = 0; mcm_load_relaxed(&ss->n_hidden) && i < ss->n_live; i++) {
		const struct mcm_segment *s = ss->at[ss->live[i]];

		if (mcm_segment_state(s) == MCP_SEG_SILENT && hidden_client(m, s))
			is_offline(m, s) ? n.offline++ : n.suspected++;
	}
	mc_rwlock_unlock(&ss->lock);
	n.active = m->clients.count - n.suspected - n.offline;
	return n;
}

void mcm_orphan(struct mcm *m, uint16_t tenant, unsigned skip, struct mcp_orphan_reply *ret)
{
	uint64_t ttl = m->conf.root_fs_adopt_ttl, now = mcm_now_ms(m);
	struct mcm_segments *ss = &m->segments;

	*ret = (struct mcp_orphan_reply){ { 0, 0 }, 0 };
	if (!ttl || !mcm_load_relaxed(&ss->n_hidden))
		return;
	mc_rwlock_rdlock(&ss->lock);
	for (unsigned i = 0; i < ss->n_live && mcp_id_zero(ret->segment); i++) {
		const struct mcm_segment *s = ss->at[ss->live[i]];

		if (!mcm_segment_is(s, MCP_TRAIT_SHARED) || mcm_segment_state(s) != MCP_SEG_SILENT ||
		    now < s->silent_ms + ttl || (m->security && mcm_load_relaxed(&s->tenant) != tenant))
			continue;
		if (skip)
			skip--;
		else
			*ret = (struct mcp_orphan_reply){ s->id, s->epoch };
	}
	mc_rwlock_unlock(&ss->lock);
}

unsigned mcm_client_fences(struct mcm *m, struct mcp_id id, const struct mcp_seq *confirmed,
			   struct mcp_fence ret[MCP_FENCES_MAX])
{
	struct mcm_client *c;

	if (!__atomic_load_n(&m->puts.quarantine.pending, __ATOMIC_RELAXED))
		return 0;
	MC_LOCKED(&m->clients.lock);
	c = mcm_client_find(&m->clients, id);
	return c ? mcm_quarantine_orders(m, c, confirmed, ret, MCP_FENCES_MAX) : 0;
}

/* Time at which the segment becomes silent or forgotten unless its client sends a heartbeat.  Both
 * tables locked. */
/* Objects on a disk outlive their owner for longer. */
static uint64_t forget_ttl(const struct mcm *m, const struct mcm_segment *s)
{
	uint64_t disk = mcm_segment_is(s, MCP_TRAIT_VOLATILE) ? 0 : m->conf.disk_forget_ttl;

	return disk > m->conf.client_forget_ttl ? disk : m->conf.client_forget_ttl;
}

static uint64_t segment_due_ms(struct mcm *m, const struct mcm_segment *s)
{
	const struct mcm_client *c;
	uint64_t ttl;

	switch (mcm_segment_state(s)) {
	case MCP_SEG_OK:
	case MCP_SEG_CONFIRMING:
		c = mcm_client_find(&m->clients, s->client);
		return (c ? c->seen_ms : 0) + m->conf.client_ttl;
	case MCP_SEG_SILENT:
		c = mcm_client_find(&m->clients, s->client);
		ttl = forget_ttl(m, s);
		if (c && c->suspected && !c->offline && m->conf.client_suspicion_ttl_sec < ttl)
			ttl = m->conf.client_suspicion_ttl_sec;
		return s->silent_ms + ttl;
	default:
		return UINT64_MAX;
	}
}

/* The earliest time at which any segment may be due.  Heartbeats and mounts only make segments due later. */
static uint64_t segments_due_ms(struct mcm *m, uint64_t now)
{
	uint64_t ttl = m->conf.client_ttl, forget = m->conf.client_forget_ttl, due, first;
	uint64_t suspicion = m->conf.client_suspicion_ttl_sec;
	struct mcm_segments *ss = &m->segments;
	unsigned i;

	ttl = ttl < forget ? ttl : forget;
	first = now + (suspicion < ttl ? suspicion : ttl);
	mc_rwlock_rdlock(&ss->lock);
	for (i = 0; i < ss->n_live; i++) {
		due = segment_due_ms(m, ss->at[ss->live[i]]);
		first = due < first ? due : first;
	}
	mc_rwlock_unlock(&ss->lock);
	return first;
}

/* A due segment: hide it; if it was hidden before, its client is offline, or it is dropped.  True: dropped.  Both
 * tables locked. */
static bool segment_expire(struct mcm *m, struct mcm_segment *s, uint64_t now)
{
	unsigned long long objects = mcm_load_relaxed(&s->objects);
	struct mcm_client *c = mcm_client_find(&m->clients, s->client);

	if (!mcm_segment_attached(s) && now < s->silent_ms + forget_ttl(m, s)) {
		if (c && !c->offline) {
			c->offline = true;
			mc_metric_add(&offlines, 1);
			mc_warn(LOG, "owner is offline, keeping its objects%s segment=%s objects=%llu",
				mcm_segment_is_public(s) ? "" : " hidden", s->name, objects);
		}
		return false;
	}
	if (!mcm_segment_attached(s)) {
		mc_warn(LOG, "owner was silent for too long, dropping segment=%s objects=%llu",
			s->name, objects);
		mcm_client_drop_segment(m, s);
		return true;
	}
	s->silent_ms = now;
	mcm_segments_set_silent(&m->segments, s, true);
	if (c) {
		c->hidden = true;
		if (!c->suspected)
			mc_metric_add(&suspicions, 1);
		c->suspected = true;
		mcm_offload_disks_changed(m, c);
	}
	if (m->meta && m->conf.enable_metadata_cleanup_on_timeout)
		(void)mcd_server_forget(m->meta, s->name);
	mc_warn(LOG, "owner is silent, %s segment=%s objects=%llu", mcm_segment_is_public(s) ?
		"its objects are read without it, by clients that can open its file;" : "hiding its objects", s->name,
		objects);
	return false;
}

/* Clients' lock held.  Drop the segments whose owner was replaced during the grace period. */
static void drop_replaced(struct mcm *m)
{
	struct mcm_segments *ss = &m->segments;
	unsigned i;

	if (!m->clients.replaced || mcm_grace_active(m))
		return;
	m->clients.replaced = false;
	mc_rwlock_wrlock(&ss->lock);
	/* Begin at the end: the segment that moves into a dropped one's position was checked already. */
	for (i = ss->n_live; i--;)
		if (i < ss->n_live && mcm_segment_readable(ss->at[ss->live[i]]))
			mcm_client_drop_replaced(m, ss->at[ss->live[i]]);
	mc_rwlock_unlock(&ss->lock);
}

void mcm_liveness_tick(struct mcm *m)
{
	struct mcm_segments *ss = &m->segments;
	uint64_t now = mcm_now_ms(m);
	unsigned i = 0, dropped = 0;

	mcm_grace_tick(m);
	mcm_confirm_tick(m);
	MC_LOCKED(&m->clients.lock);
	__atomic_store_n(&m->heartbeat_ms, mcm_heartbeat_of(m, m->clients.owners), __ATOMIC_RELAXED);
	__atomic_store_n(&m->heartbeat_idle_ms, mcm_heartbeat_idle_of(m, m->clients.count),
			 __ATOMIC_RELAXED);
	drop_replaced(m);
	if (now <= m->due_ms)
		return;
	m->due_ms = segments_due_ms(m, now);
	if (now <= m->due_ms)
		return;
	mc_rwlock_wrlock(&ss->lock);
	while (i < ss->n_live && dropped < DROPS) {
		struct mcm_segment *s = ss->at[ss->live[i]];

		/* Another segment moves into the position of a dropped one. */
		if (now > segment_due_ms(m, s) && segment_expire(m, s, now))
			dropped++;
		else
			i++;
	}
	mc_rwlock_unlock(&ss->lock);
	if (dropped)
		mc_stop_kick(&m->evictor_stop);
}
