/* SPDX-License-Identifier: Apache-2.0
 * event.c - ring of the last changes of keys. */
#include <config.h>

#include "master/event.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/metrics.h"
#include "master/mcm_i.h"
#include "proto/codec.h"

#define SCAN_MAX 4096		/* events examined under the lock */

MC_COUNTER(noted, "mooncake_master_events_total", "", "Events recorded for watchers")
MC_COUNTER(missed, "mooncake_master_events_missed_total", "",
	   "Events overwritten before a watcher read them")

/* Record in the ring, followed by the bytes of both keys and the group; it never crosses the ring's end. */
struct record {
	uint64_t time_ms, size, generation;
	uint16_t key_len, to_len, group_len;
	uint8_t type, kind;
};

void mcm_events_init(struct mcm_events *e)
{
	memset(e, 0, sizeof(*e));
	mc_mutex_init(&e->lock);
	/* Numbers of an earlier master are smaller, so its watchers learn that they missed events. */
	e->first = e->next = mc_wall_ns() / 1000;
}

void mcm_events_done(struct mcm_events *e)
{
	free(e->ring);
	free(e->at);
	mc_mutex_destroy(&e->lock);
}

/* Lock held. */
static int events_enable(struct mcm_events *e)
{
	e->ring = malloc(MCM_EVENTS_BYTES);
	e->at = malloc(MCM_EVENTS_MAX * sizeof(*e->at));
	if (!e->ring || !e->at) {
		free(e->ring);
		free(e->at);
		e->ring = NULL;
		e->at = NULL;
		return mc_fail(-ENOMEM, "no memory for the event ring");
	}
	/* Skip a number: events may have been lost while recording was off. */
	e->first = ++e->next;
	e->end = 0;
	__atomic_store_n(&e->on, true, __ATOMIC_RELAXED);
	return 0;
}

void mcm_events_tick(struct mcm *m)
{
	struct mcm_events *e = &m->events;

	if (!mcm_events_on(e))
		return;
	MC_LOCKED(&e->lock);
	if (mcm_now_ms(m) < e->asked_ms + MCM_EVENTS_IDLE_MS)
		return;
	__atomic_store_n(&e->on, false, __ATOMIC_RELAXED);
	free(e->ring);
	free(e->at);
	e->ring = NULL;
	e->at = NULL;
	e->first = e->next;
}

/* ---- writing ---- */

static uint64_t *event_pos(const struct mcm_events *e, uint64_t n)
{
	return &e->at[n % MCM_EVENTS_MAX];
}

static void event_note(struct mcm *m, const struct record *r, const void *key, const void *to,
		       const void *group)
{
	uint64_t need = (sizeof(*r) + r->key_len + r->to_len + r->group_len + 7) & ~7ull, left;
	struct mcm_events *e = &m->events;
	uint8_t *p;

	MC_LOCKED(&e->lock);
	if (!e->ring)
		return;
	left = MCM_EVENTS_BYTES - e->end % MCM_EVENTS_BYTES;
	if (left < need)
		e->end += left;
	while (e->first < e->next && (e->next - e->first >= MCM_EVENTS_MAX ||
				      *event_pos(e, e->first) + MCM_EVENTS_BYTES < e->end + need))
		e->first++;
	p = e->ring + e->end % MCM_EVENTS_BYTES;
	memcpy(p, r, sizeof(*r));
	memcpy(p + sizeof(*r), key, r->key_len);
	if (r->to_len)
		memcpy(p + sizeof(*r) + r->key_len, to, r->to_len);
	if (r->group_len)
		memcpy(p + sizeof(*r) + r->key_len + r->to_len, group, r->group_len);
	*event_pos(e, e->next++) = e->end;
	e->end += need;
	mc_metric_add(&noted, 1);
}

static struct record event_record(struct mcm *m, enum mcp_event_type type, uint32_t slot,
				  char group[MCP_GROUP_MAX])
{
	const struct mcm_object *o = mcm_object(&m->index, slot);
	struct record r = {
		.time_ms = mc_wall_ns() / MC_NS_PER_MS, .size = mcm_object_size(o),
		.generation = o->generation, .key_len = o->key_len, .type = (uint8_t)type,
		.kind = o->flags & MCM_OBJ_KIND,
	};
	uint32_t id = o->ext ? mcm_ext(&m->index, o->ext)->group : 0;

	/* Only the event publisher needs the group, and the groups' lock is contended. */
	if (id && m->events.groups)
		r.group_len = (uint16_t)mcm_group_name(m, id, group);
	return r;
}

void mcm_event_object(struct mcm *m, enum mcp_event_type type, uint32_t slot)
{
	char group[MCP_GROUP_MAX];
	struct record r;

	if (!mcm_events_on(&m->events))
		return;
	r = event_record(m, type, slot, group);
	event_note(m, &r, mcm_shard_key(&m->index, slot), NULL, group);
}

void mcm_event_rename(struct mcm *m, uint32_t slot, struct mcp_bytes from)
{
	char group[MCP_GROUP_MAX];
	struct record r;

	if (!mcm_events_on(&m->events))
		return;
	r = event_record(m, MCP_EVENT_RENAME, slot, group);
	r.to_len = r.key_len;
	r.key_len = (uint16_t)from.len;
	event_note(m, &r, from.data, mcm_shard_key(&m->index, slot), group);
}

/* ---- reading ---- */

static bool key_begins(struct mcp_bytes key, struct mcp_bytes prefix)
{
	return key.len >= prefix.len && (!prefix.len || !memcmp(key.data, prefix.data, prefix.len));
}

/* Event @n with texts in the ring, valid while the lock is held. */
static void event_at(const struct mcm_events *e, uint64_t n, struct mcm_event_entry *ret)
{
	const uint8_t *p = e->ring + *event_pos(e, n) % MCM_EVENTS_BYTES, *text = p + sizeof(struct record);
	struct record r;

	memcpy(&r, p, sizeof(r));
	ret->event = (struct mcp_event){
		.sequence = n, .time_ms = r.time_ms, .size = r.size, .generation = r.generation,
		.type = r.type, .kind = r.kind,
		.key = mcm_key_bare(mcp_bytes(text, r.key_len), &ret->tenant),
		.to = { "", 0 },
	};
	if (r.to_len)
		ret->event.to = mcm_key_bare(mcp_bytes(text + r.key_len, r.to_len), NULL);
	ret->group = mcp_bytes(text + r.key_len + r.to_len, r.group_len);
}

static struct mcp_bytes text_copy(struct mcp_bytes from, char **text, size_t *left)
{
	struct mcp_bytes to = mcp_bytes(*text, from.len);

	memcpy(*text, from.data, from.len);
	*text += from.len;
	*left -= from.len;
	return to;
}

/* False: @text has no room for its keys. */
static bool event_take(const struct mcm_events *e, uint64_t n, uint32_t types, uint32_t tenant,
		       struct mcp_bytes prefix, struct mcp_event *ret, char **text, size_t *text_len,
		       bool *ret_taken)
{
	struct mcm_event_entry it;

	*ret_taken = false;
	event_at(e, n, &it);
	if (it.tenant != tenant || (types && !(types & 1u << it.event.type)))
		return true;
	if (!key_begins(it.event.key, prefix) && !(it.event.to.len && key_begins(it.event.to, prefix)))
		return true;
	if (*text_len < (size_t)it.event.key.len + it.event.to.len)
		return false;
	*ret = it.event;
	ret->key = text_copy(it.event.key, text, text_len);
	ret->to = text_copy(it.event.to, text, text_len);
	*ret_taken = true;
	return true;
}

/* Lock held: find the event to continue with; switch recording on if it is off. */
static int read_begin(struct mcm *m, uint64_t since, uint64_t *ret_at, uint64_t *ret_lost)
{
	struct mcm_events *e = &m->events;
	uint64_t at;
	int r = 0;

	e->asked_ms = mcm_now_ms(m);
	if (!e->ring)
		r = events_enable(e);
	if (r < 0)
		return r;
	*ret_lost = 0;
	at = since == UINT64_MAX ? e->next : since + 1;
	/* A number that was not given out yet comes from another master. */
	if (at < e->first || at > e->next) {
		*ret_lost = at < e->first ? e->first - at : 1;
		mc_metric_add(&missed, (int64_t)*ret_lost);
		at = e->first;
	}
	*ret_at = at;
	return 0;
}

uint64_t mcm_events_next(struct mcm *m)
{
	MC_LOCKED(&m->events.lock);
	return m->events.next;
}

/* The first event about the present tenant of this number; numbers are reused. */
static uint64_t tenant_first(const struct mcm *m, uint32_t tenant)
{
	const struct mcm_tenant *t = NULL;

	if (tenant < mcm_load_relaxed(&m->tenants.count))
		t = __atomic_load_n(&m->tenants.at[tenant], __ATOMIC_ACQUIRE);
	return t ? t->first_event : 0;
}

int mcm_events_read(struct mcm *m, uint64_t since, uint32_t types, uint32_t tenant, struct mcp_bytes prefix,
		    struct mcp_event *ret, unsigned max, char *text, size_t text_len,
		    uint64_t *ret_since, uint64_t *ret_lost)
{
	struct mcm_events *e = &m->events;
	unsigned n = 0, scanned;
	uint64_t at, first;
	bool taken;
	int r;

	MC_LOCKED(&e->lock);
	r = read_begin(m, since, &at, ret_lost);
	if (r < 0)
		return r;
	first = tenant_first(m, tenant);
	if (at < first)
		at = first;
	for (scanned = 0; at < e->next && n < max && scanned < SCAN_MAX; scanned++, at++) {
		if (!event_take(e, at, types, tenant, prefix, &ret[n], &text, &text_len, &taken))
			break;
		n += taken;
	}
	*ret_since = at - 1;
	return (int)n;
}

int mcm_events_read_all(struct mcm *m, uint64_t since, uint64_t behind_max,
			struct mcm_event_entry *ret, unsigned max, char *text, size_t text_len,
			uint64_t *ret_since, uint64_t *ret_lost)
{
	struct mcm_events *e = &m->events;
	struct mcm_event_entry it;
	unsigned n = 0;
	uint64_t at;
	int r;

	MC_LOCKED(&e->lock);
	r = read_begin(m, since, &at, ret_lost);
	if (r < 0)
		return r;
	if (behind_max && e->next - at > behind_max) {
		*ret_lost += e->next - at - behind_max;
		at = e->next - behind_max;
	}
	for (; at < e->next && n < max; at++) {
		event_at(e, at, &it);
		/* The event is about an earlier tenant of this number, which has no name any more. */
		if (at < tenant_first(m, it.tenant))
			continue;
		if (text_len < (size_t)it.event.key.len + it.event.to.len + it.group.len)
			break;
		ret[n] = it;
		ret[n].event.key = text_copy(it.event.key, &text, &text_len);
		ret[n].event.to = text_copy(it.event.to, &text, &text_len);
		ret[n++].group = text_copy(it.group, &text, &text_len);
	}
	*ret_since = at - 1;
	return (int)n;
}
