/* SPDX-License-Identifier: Apache-2.0
 * observers.h - the parts of the master that follow the life of objects, by event and in their order.
 *
 * master/object/ changes an object and calls the functions in these lists, under the object's shard.  It knows no
 * observer by name, so a new one is a line for each event that it follows.  A list is expanded where the event happens:
 * no pointer is called, and an event that an observer does not follow costs nothing.
 *
 * The order, of the events and in each list:
 *
 *	commit	COVER (can fail), ENTER, the ranges become evictable, JOIN, CHANGED, the directory, PUBLISHED
 *	end	GONE, the directory, the index, EXIT, LEAVE, the ranges become free, FREED
 *
 *	- The journal's record comes first: it precedes every answer, and every reuse of memory that the change frees.
 *	  An event for watchers follows the record of its change.
 *	- The policy learns of an object (ENTER) before it gets the object's ranges.
 *	- A group is joined before the record, which names it, and left after the event, which names it too.
 *	- Ranges return to the allocator last.  The tenant's charge follows, so that a put that the quota admits finds
 *	  their memory.
 *
 * Each function returns void except those of COVER.  They run under the lock of the object's shard, may take only locks
 * that follow it (docs/LOCKING.md), and do not change the state of the object. */
#ifndef MCM_OBSERVERS_H
#define MCM_OBSERVERS_H

#include "master/mcm_i.h"
#include "master/ops/uses.h"
#include "master/task/adopt.h"

/* ---- where an observer's function has other arguments than its event ---- */

static inline int mcm_observe_learn_cover(struct mcm *m, uint32_t slot)
{
	return mcm_learn_cover(&m->learn, slot);
}

static inline void mcm_observe_group_join(struct mcm *m, uint32_t slot, const struct mcm_commit *c)
{
	if (c->group)
		mcm_group_join(m, c->group, slot);
}

static inline void mcm_observe_tenant_join(struct mcm *m, uint32_t slot, const struct mcm_commit *c)
{
	mcm_tenant_join(m, slot, c->charged);
}

static inline void mcm_observe_empties_join(struct mcm *m, uint32_t slot, const struct mcm_commit *c)
{
	(void)c;
	mcm_empties_join(m, slot);
}

static inline void mcm_observe_journal_changed(struct mcm *m, uint32_t slot, enum mcm_changed_what what)
{
	(void)what;
	mcm_journal_object(m, slot);
}

static inline void mcm_observe_event_changed(struct mcm *m, uint32_t slot, enum mcm_changed_what what)
{
	if (what == MCM_CHANGED_ATTRS && mcm_events_on(&m->events))
		mcm_event_object(m, MCP_EVENT_ATTRS, slot);
}

static inline void mcm_observe_event_put(struct mcm *m, uint32_t slot)
{
	if (mcm_events_on(&m->events))
		mcm_event_object(m, MCP_EVENT_PUT, slot);
}

static inline void mcm_observe_journal_gone(struct mcm *m, uint32_t slot, enum mcm_gone_why why)
{
	if (why != MCM_GONE_REPLACED && why != MCM_GONE_RENAMED)
		mcm_journal_object_gone(m, slot);
}

/* A disk keeps the record of an object that eviction drops: the object may return after a loss of the journal. */
static inline void mcm_observe_disk_gone(struct mcm *m, uint32_t slot, enum mcm_gone_why why)
{
	if (why != MCM_GONE_EVICTED && why != MCM_GONE_UNDONE)
		mcm_adopt_gone(m, slot);
}

static inline void mcm_observe_event_gone(struct mcm *m, uint32_t slot, enum mcm_gone_why why)
{
	if (mcm_events_on(&m->events) && (why == MCM_GONE_EVICTED || why == MCM_GONE_REMOVED))
		mcm_event_object(m, why == MCM_GONE_EVICTED ? MCP_EVENT_EVICT : MCP_EVENT_REMOVE, slot);
}

static inline void mcm_observe_journal_renamed(struct mcm *m, uint32_t slot, struct mcp_bytes from,
					       struct mcm_journal_batch *batch)
{
	if (batch)
		mcm_journal_batch_renamed(m, batch, from, slot);
	else
		mcm_journal_renamed(m, from, slot);
}

static inline void mcm_observe_event_renamed(struct mcm *m, uint32_t slot, struct mcp_bytes from,
					     struct mcm_journal_batch *batch)
{
	(void)batch;
	mcm_event_rename(m, slot, from);
}

static inline void mcm_observe_tenant_copy(struct mcm *m, uint32_t slot, struct mcm_extent extent)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);

	if (!mcm_extents_in_memory(m, &extent, 1))
		return;
	mcm_tenant_add(m, mcm_key_tenant(mcm_shard_key(&m->index, slot), o->key_len), mcm_object_size(o));
	mcm_tenant_relist(m, slot);
}

static inline void mcm_observe_learn_copy_gone(struct mcm *m, uint32_t slot, struct mcm_extent extent)
{
	(void)extent;
	if (!mcm_object_in_memory(mcm_object(&m->index, slot)))
		mcm_uses_left_memory(m, slot);
}

/* A later end of the object does not find this place any more. */
static inline void mcm_observe_disk_copy_gone(struct mcm *m, uint32_t slot, struct mcm_extent extent)
{
	mcm_adopt_note(m, extent, mcm_object(&m->index, slot)->generation);
}

static inline void mcm_observe_tenant_freed(struct mcm *m, struct mcp_bytes key, uint64_t bytes)
{
	mcm_tenant_refund(m, mcm_key_tenant(key.data, key.len), bytes);
}

static inline void mcm_observe_empties_restored(struct mcm *m, uint32_t slot, uint16_t traits, uint32_t age)
{
	(void)traits;
	(void)age;
	mcm_empties_join(m, slot);
}

/* ---- the lists ---- */

/* (m, slot): allocate the notes of the observer on the object, whose fields are set.  0, -ENOMEM.  Not undone. */
#define MCM_ON_COVER(ON) \
	ON(mcm_tenant_cover) \
	ON(mcm_observe_learn_cover) \
	ON(mcm_empties_cover)
/* (m, slot): it gets its ranges next.  EXIT undoes it. */
#define MCM_ON_ENTER(ON) \
	ON(mcm_uses_put)
/* (m, slot, struct mcm_commit *): it has its ranges.  LEAVE undoes it. */
#define MCM_ON_JOIN(ON) \
	ON(mcm_observe_group_join) \
	ON(mcm_observe_tenant_join) \
	ON(mcm_observe_empties_join)
/* (m, slot, enum mcm_changed_what): something of it is new, which a restart has to restore. */
#define MCM_ON_CHANGED(ON) \
	ON(mcm_observe_journal_changed) \
	ON(mcm_observe_event_changed)
/* (m, slot): clients find the new version from now on. */
#define MCM_ON_PUBLISHED(ON) \
	ON(mcm_observe_event_put)
/* (m, slot, enum mcm_gone_why): it is its key's version no longer, and still has key and copies. */
#define MCM_ON_GONE(ON) \
	ON(mcm_observe_journal_gone) \
	ON(mcm_observe_disk_gone) \
	ON(mcm_observe_event_gone)
#define MCM_ON_EXIT(ON) \
	ON(mcm_uses_gone)
#define MCM_ON_LEAVE(ON) \
	ON(mcm_group_leave) \
	ON(mcm_tenant_leave) \
	ON(mcm_empties_leave)
/* (m, slot, from, batch): it has another key, hash and generation; @batch NULL: the record is one of its own. */
#define MCM_ON_RENAMED(ON) \
	ON(mcm_observe_journal_renamed) \
	ON(mcm_observe_event_renamed)
/* (m, slot, extent): it has one more copy; CHANGED follows. */
#define MCM_ON_COPY_ADDED(ON) \
	ON(mcm_observe_tenant_copy)
/* (m, slot, extent): it has one copy less, whose range is free next; after CHANGED. */
#define MCM_ON_COPY_GONE(ON) \
	ON(mcm_observe_learn_copy_gone) \
	ON(mcm_observe_disk_copy_gone)
/* (m, slot): a live object may be evicted again. */
#define MCM_ON_RELIST(ON) \
	ON(mcm_tenant_relist) \
	ON(mcm_empties_relist)
/* (m, generation): the commit of a put that has ranges fails; they are free next. */
#define MCM_ON_ABORTED(ON) \
	ON(mcm_journal_put_gone)
/* (m, key, bytes): ranges in memory of an object or put with this key, of @bytes together, are free. */
#define MCM_ON_FREED(ON) \
	ON(mcm_observe_tenant_freed)
/* (m, slot, traits, age): it was restored, with the notes of a checkpoint on its uses; after COVER. */
#define MCM_ON_RESTORED(ON) \
	ON(mcm_uses_restored) \
	ON(mcm_observe_empties_restored)

#endif
