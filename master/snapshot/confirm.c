/* SPDX-License-Identifier: Apache-2.0
 * confirm.c - owners compare the objects of a restored snapshot with their memory. */
#include <config.h>

#include "master/snapshot/confirm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/metrics.h"
#include "master/journal/journal_i.h"
#include "master/mcm_i.h"
#include "master/memory/scratch.h"
#include "proto/codec.h"

#define LOG "snapshot"
#define LOOKS 16384u		/* entries examined for one request, or in one tick of the monitor */
#define SLOW_SHIFT 12		/* a slow disk reads that power of two of bytes in a millisecond */

#define NAME "mooncake_master_snapshot_copies_total"
#define HELP "Copies of objects of a restored snapshot, by result"
MC_COUNTER(proven, NAME, "result=\"proven\"", HELP)
MC_COUNTER(equal, NAME, "result=\"equal\"", HELP)
MC_COUNTER(changed, NAME, "result=\"changed\"", HELP)
MC_COUNTER(unreadable, NAME, "result=\"unreadable\"", HELP)
MC_COUNTER(lost, NAME, "result=\"lost\"", HELP)
MC_COUNTER(old, NAME, "result=\"old_owner\"", HELP)

static struct mc_metric *const metric[MCM_CONFIRM_RESULTS] = {
	[MCM_CONFIRM_PROVEN] = &proven, [MCM_CONFIRM_EQUAL] = &equal, [MCM_CONFIRM_CHANGED] = &changed,
	[MCM_CONFIRM_UNREADABLE] = &unreadable, [MCM_CONFIRM_LOST] = &lost, [MCM_CONFIRM_OLD] = &old,
};

static void confirm_count(struct mcm *m, enum mcm_confirm_result result, uint64_t n)
{
	mc_metric_add(metric[result], (int64_t)n);
	__atomic_add_fetch(&m->confirmed[result], n, __ATOMIC_RELAXED);
}

/* ---- a batch; the confirmation's lock held ------------------------------------------------------- */

/* Lock the shard of the object that the snapshot had in the entry's range; NULL, and no lock: it is gone. */
static struct mcm_shard *entry_lock(struct mcm *m, const struct mcm_segment *s, struct mcm_confirm_entry e)
{
	struct mcm_shard *sh = mcm_index_lock_slot(&m->index, e.slot);
	const struct mcm_object *o = mcm_object(&m->index, e.slot);

	if (o->flags & MCM_OBJ_LIVE && mcm_load_relaxed(&o->marks) & MCM_MARK_UNCONFIRMED &&
	    mcm_object_has(&m->index, o, (struct mcm_extent){ e.range, s->index }))
		return sh;
	mc_mutex_unlock(&sh->lock);
	return NULL;
}

/* The copy differs from the snapshot. */
static void entry_drop(struct mcm *m, struct mcm_segment *s, struct mcm_shard *sh, struct mcm_confirm_entry e)
{
	(void)mcm_object_remove_copy(m, sh, e.slot, (struct mcm_extent){ e.range, s->index });
}

static void entry_answer(struct mcm *m, struct mcm_segment *s, struct mcm_confirm_entry e, int status)
{
	struct mcm_shard *sh = entry_lock(m, s, e);
	enum mcm_confirm_result result = status == 0 ? MCM_CONFIRM_EQUAL :
		status == -MC_ECHECKSUM ? MCM_CONFIRM_CHANGED : MCM_CONFIRM_UNREADABLE;
	struct mcm_object *o;

	if (!sh)
		return;
	s->confirm.count[result]++;
	confirm_count(m, result, 1);
	o = mcm_object(&m->index, e.slot);
	if (status < 0)
		entry_drop(m, s, sh, e);
	else if (!o->ext || !mcm_ext(&m->index, o->ext)->copies)
		__atomic_fetch_and(&o->marks, (uint8_t)~MCM_MARK_UNCONFIRMED, __ATOMIC_RELAXED);
	mc_mutex_unlock(&sh->lock);
}

static int batch_answers(struct mcm *m, struct mcm_segment *s, const struct mcp_seq *results)
{
	struct mcm_confirm *c = &s->confirm;
	struct mcp_status one;
	struct mcp_iter it;
	unsigned i = 0;

	if (results->count != c->n_sent)
		return mc_fail(-MC_EPROTO, "%u results of a comparison of %u objects", results->count, c->n_sent);
	mcp_iter_init(&it, results, &mcp_desc_status);
	while (i < c->n_sent && mcp_iter_next(&it, &one)) {
		entry_answer(m, s, c->sent[i].entry, mc_err_from_wire(one.status));
		i++;
	}
	if (i < c->n_sent)
		return mc_fail(-MC_EPROTO, "results of a comparison that cannot be decoded");
	/* All that is left there is equal. */
	if (c->n_sent)
		__atomic_store_n(&c->upto, (c->sent[c->n_sent - 1].item.offset >> MCM_GRANULE_SHIFT) + 1,
				 __ATOMIC_RELEASE);
	mcm_store_relaxed(&c->next, c->given);
	c->n_sent = 0;
	return 0;
}

static bool batch_add(struct mcm *m, struct mcm_segment *s, struct mcm_confirm_entry e)
{
	struct mcm_shard *sh = entry_lock(m, s, e);
	const struct mcm_object *o = mcm_object(&m->index, e.slot);

	if (!sh)
		return false;
	s->confirm.sent[s->confirm.n_sent++] = (struct mcm_confirm_sent){
		.entry = e,
		.item = { .offset = mcm_range_offset(&s->alloc, e.range), .size = mcm_object_size(o), .crc = o->crc },
	};
	mc_mutex_unlock(&sh->lock);
	return true;
}

static int batch_make(struct mcm *m, struct mcm_segment *s)
{
	struct mcm_confirm *c = &s->confirm;
	uint64_t bytes = 0;

	if (!c->sent)
		c->sent = malloc(MCM_CONFIRM_ITEMS * sizeof(*c->sent));
	if (!c->sent)
		return -ENOMEM;
	if (!c->began_ms)
		c->began_ms = mcm_now_ms(m);
	c->number = mcm_generation_next(m, 0);
	for (unsigned looks = 0; looks < LOOKS && c->given < c->n && c->n_sent < MCM_CONFIRM_ITEMS &&
	     bytes < MCM_CONFIRM_BYTES; looks++)
		if (batch_add(m, s, c->entry[c->given++]))
			bytes += c->sent[c->n_sent - 1].item.size;
	/* Those before are gone. */
	if (!c->n_sent)
		mcm_store_relaxed(&c->next, c->given);
	return 0;
}

static int batch_reply(const struct mcm_confirm *c, struct mcp_confirm_reply *ret)
{
	struct mcp_confirm_item *item = mcm_scratch(MCM_SCRATCH_ITEMS, c->n_sent, sizeof(*item));

	if (!item)
		return -ENOMEM;
	for (unsigned i = 0; i < c->n_sent; i++)
		item[i] = c->sent[i].item;
	*ret = (struct mcp_confirm_reply){
		.number = c->number, .left = c->n_sent || c->next < c->n, .items = mcp_seq(item, c->n_sent),
	};
	return 0;
}

static uint64_t batch_bytes(const struct mcm_confirm *c)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < c->n_sent; i++)
		bytes += c->sent[i].item.size;
	return bytes;
}

/* *@ret_new: it is another batch than that of the last request, and has *@ret_bytes. */
static int confirm_next(struct mcm *m, struct mcm_segment *s, const struct mcp_confirm *rq,
			struct mcp_confirm_reply *ret, bool *ret_new, uint64_t *ret_bytes)
{
	struct mcm_confirm *c = &s->confirm;
	int r = 0;

	MC_LOCKED(&c->lock);
	/* Another connection of the owner, or the monitor, may have ended it. */
	if (mcm_segment_state(s) != MCP_SEG_CONFIRMING || !mcp_id_eq(s->id, rq->segment) || c->refused)
		return 0;
	MC_FAULT_POINT("snapshot.confirm");
	if (c->n_sent && rq->number == c->number)
		r = batch_answers(m, s, &rq->results);
	*ret_new = r == 0 && !c->n_sent;
	if (*ret_new)
		r = batch_make(m, s);
	*ret_bytes = batch_bytes(c);
	return r < 0 ? r : batch_reply(c, ret);
}

/* ---- a segment ----------------------------------------------------------------------------------- */

void mcm_confirm_finish(struct mcm *m, struct mcm_segment *s, struct mcp_id id)
{
	struct mcm_segments *ss = &m->segments;
	const struct mcm_confirm *c = &s->confirm;
	bool ends;

	mc_mutex_lock(&m->clients.lock);
	mc_rwlock_wrlock(&ss->lock);
	/* The batch found the segment hidden if it was mounted again only now: then nothing of it was compared. */
	ends = mcm_segment_state(s) == MCP_SEG_CONFIRMING && mcp_id_eq(s->id, id) && s->unproven &&
	       mcm_load_relaxed(&c->next) >= c->n;
	if (ends) {
		bool refused = mcm_load_relaxed(&c->refused);

		s->unproven = false;
		mcm_segments_set_silent(ss, s, false);
		mcm_journal_segment(m, s);
		mcm_offload_disks_changed(m, mcm_client_find(&m->clients, s->client));
		mc_log(LOG, refused ? MC_LOG_WARN : MC_LOG_INFO, "%s segment=%s equal=%llu changed=%llu "
			"unreadable=%llu ms=%llu", refused ?
			"dropped objects of the snapshot, because the owner does not go on comparing them" :
			"the owner has compared the objects of the snapshot with its memory", s->name,
			(unsigned long long)c->count[MCM_CONFIRM_EQUAL],
			(unsigned long long)c->count[MCM_CONFIRM_CHANGED],
			(unsigned long long)c->count[MCM_CONFIRM_UNREADABLE],
			(unsigned long long)(mcm_now_ms(m) - c->began_ms));
	}
	mc_rwlock_unlock(&ss->lock);
	mc_mutex_unlock(&m->clients.lock);
	if (ends)
		mc_stop_kick(&m->evictor_stop);
}

void mcm_confirm_allow(const struct mcm *m, struct mcm_client *c, uint64_t bytes)
{
	uint64_t due = mcm_now_ms(m) + m->conf.client_forget_ttl + (bytes >> SLOW_SHIFT);

	c->confirm_due_ms = due > c->confirm_due_ms ? due : c->confirm_due_ms;
}

static void owner_allow(struct mcm *m, struct mcp_id id, uint64_t bytes)
{
	struct mcm_client *c;

	MC_LOCKED(&m->clients.lock);
	c = mcm_client_find(&m->clients, id);
	if (c)
		mcm_confirm_allow(m, c, bytes);
}

int mcm_confirm(struct mcm *m, struct mcp_id sender, const struct mcp_confirm *rq, struct mcp_confirm_reply *ret)
{
	struct mcm_segments *ss = &m->segments;
	struct mcm_segment *s;
	bool is_new = false;
	uint64_t bytes = 0;
	int r = 0;

	*ret = (struct mcp_confirm_reply){ 0 };
	mc_rwlock_rdlock(&ss->lock);
	s = mcm_segments_find(ss, rq->segment);
	if (!s)
		r = mc_fail(-MC_ENOSEGMENT, "no segment with this id is mounted");
	else if (!mcp_id_eq(s->client, sender))
		r = mc_fail(-MC_EOWNER, "the segment belongs to another client");
	mc_rwlock_unlock(&ss->lock);
	if (r == 0)
		r = confirm_next(m, s, rq, ret, &is_new, &bytes);
	if (is_new)
		owner_allow(m, sender, bytes);
	if (r == 0 && !ret->left)
		mcm_confirm_finish(m, s, rq->segment);
	return r;
}

void mcm_confirm_rest(struct mcm *m, struct mcm_segment *s, enum mcm_confirm_result result)
{
	const struct mcm_confirm *c = &s->confirm;
	uint64_t n = c->n - mcm_load_relaxed(&c->next);

	confirm_count(m, result, n);
	if (result != MCM_CONFIRM_PROVEN && n)
		mc_warn(LOG, "dropping the objects of the snapshot in a segment: %s segment=%s copies=%llu",
			result == MCM_CONFIRM_OLD ? "its owner is too old to compare them with its memory" :
			"its owner has other memory, or did not return", s->name, (unsigned long long)n);
}

/* A segment whose owner is too slow, and its id. */
static struct mcm_segment *confirm_overdue(struct mcm *m, struct mcp_id *ret)
{
	struct mcm_segments *ss = &m->segments;
	struct mcm_segment *found = NULL;

	if (!mcm_load_relaxed(&ss->n_confirming))
		return NULL;
	MC_LOCKED(&m->clients.lock);
	mc_rwlock_rdlock(&ss->lock);
	for (unsigned i = 0; i < ss->n_live && !found; i++) {
		struct mcm_segment *s = ss->at[ss->live[i]];
		const struct mcm_client *c;

		if (mcm_segment_state(s) != MCP_SEG_CONFIRMING)
			continue;
		c = mcm_client_find(&m->clients, s->client);
		if (!mcm_load_relaxed(&s->confirm.refused) && c && mcm_now_ms(m) <= c->confirm_due_ms)
			continue;
		found = s;
		*ret = s->id;
	}
	mc_rwlock_unlock(&ss->lock);
	return found;
}

/* Drop some of the objects that were not compared. */
static void rest_drop(struct mcm *m, struct mcm_segment *s, struct mcp_id id)
{
	struct mcm_confirm *c = &s->confirm;

	MC_LOCKED(&c->lock);
	if (mcm_segment_state(s) != MCP_SEG_CONFIRMING || !mcp_id_eq(s->id, id))
		return;
	mcm_store_relaxed(&c->refused, true);
	c->n_sent = 0;
	c->given = c->next;
	for (unsigned looks = 0; looks < LOOKS && c->given < c->n; looks++)
		entry_answer(m, s, c->entry[c->given++], -MC_EUNAVAILABLE);
	mcm_store_relaxed(&c->next, c->given);
}

static void refuse_overdue(struct mcm *m)
{
	struct mcp_id id;
	struct mcm_segment *s = confirm_overdue(m, &id);

	if (!s)
		return;
	rest_drop(m, s, id);
	mcm_confirm_finish(m, s, id);
}

/* ---- the state --------------------------------------------------------------------------------- */

void mcm_confirm_begin(struct mcm *m)
{
	struct mcm_segments *ss = &m->segments;

	for (unsigned i = 0; i < ss->n_live; i++)
		m->unproven |= ss->at[ss->live[i]]->unproven;
}

static bool any_unproven(struct mcm *m)
{
	struct mcm_segments *ss = &m->segments;
	bool any = false;

	mc_rwlock_rdlock(&ss->lock);
	for (unsigned i = 0; i < ss->n_live && !any; i++)
		any = ss->at[ss->live[i]]->unproven;
	mc_rwlock_unlock(&ss->lock);
	return any;
}

static void free_all(struct mcm *m)
{
	for (unsigned i = 0; i < m->segments.top; i++) {
		struct mcm_confirm *c = &mcm_segment(&m->segments, (uint16_t)i)->confirm;

		MC_LOCKED(&c->lock);
		mcm_confirm_clear(c);
	}
}

void mcm_confirm_tick(struct mcm *m)
{
	const uint64_t *n = m->confirmed;
	int r = 0;

	if (!m->unproven)
		return;
	refuse_overdue(m);
	if (any_unproven(m))
		return;
	mcm_store_relaxed(&m->unproven, false);
	free_all(m);
	mc_info(LOG, "no object of the snapshot is in doubt any more: copies back=%llu (%llu proven, %llu compared) "
		"gone=%llu (%llu changed, %llu unreadable, %llu without their owner's memory, %llu of old owners)",
		(unsigned long long)(n[MCM_CONFIRM_PROVEN] + n[MCM_CONFIRM_EQUAL]),
		(unsigned long long)n[MCM_CONFIRM_PROVEN], (unsigned long long)n[MCM_CONFIRM_EQUAL],
		(unsigned long long)(n[MCM_CONFIRM_CHANGED] + n[MCM_CONFIRM_UNREADABLE] + n[MCM_CONFIRM_LOST] +
				     n[MCM_CONFIRM_OLD]),
		(unsigned long long)n[MCM_CONFIRM_CHANGED], (unsigned long long)n[MCM_CONFIRM_UNREADABLE],
		(unsigned long long)n[MCM_CONFIRM_LOST], (unsigned long long)n[MCM_CONFIRM_OLD]);
	if (!m->journal)
		return;
	mcm_journal_catch_up(m);
	if (m->journal->origin != MCM_ORIGIN_JOURNAL)
		r = mcm_origin_write(m->journal->dirfd, MCM_ORIGIN_JOURNAL);
	if (r < 0)
		mc_warn(LOG, "%s", mc_err_detail(r));
	m->journal->origin = MCM_ORIGIN_JOURNAL;
}
