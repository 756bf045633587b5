/* SPDX-License-Identifier: Apache-2.0
 * observe.h - calls of the observers of objects (master/observers.h), one function for each event; for object/ only. */
#ifndef MCM_OBSERVE_H
#define MCM_OBSERVE_H

#include "master/observers.h"

static inline int observe_cover(struct mcm *m, uint32_t slot)
{
	int r = 0;

#define ON(fn) r = r < 0 ? r : fn(m, slot);
	MCM_ON_COVER(ON)
#undef ON
	return r;
}

static inline void observe_enter(struct mcm *m, uint32_t slot)
{
#define ON(fn) fn(m, slot);
	MCM_ON_ENTER(ON)
#undef ON
}

static inline void observe_join(struct mcm *m, uint32_t slot, const struct mcm_commit *c)
{
#define ON(fn) fn(m, slot, c);
	MCM_ON_JOIN(ON)
#undef ON
}

static inline void observe_changed(struct mcm *m, uint32_t slot, enum mcm_changed_what what)
{
#define ON(fn) fn(m, slot, what);
	MCM_ON_CHANGED(ON)
#undef ON
}

static inline void observe_published(struct mcm *m, uint32_t slot)
{
#define ON(fn) fn(m, slot);
	MCM_ON_PUBLISHED(ON)
#undef ON
}

static inline void observe_gone(struct mcm *m, uint32_t slot, enum mcm_gone_why why)
{
#define ON(fn) fn(m, slot, why);
	MCM_ON_GONE(ON)
#undef ON
}

static inline void observe_exit(struct mcm *m, uint32_t slot)
{
#define ON(fn) fn(m, slot);
	MCM_ON_EXIT(ON)
#undef ON
}

static inline void observe_leave(struct mcm *m, uint32_t slot)
{
#define ON(fn) fn(m, slot);
	MCM_ON_LEAVE(ON)
#undef ON
}

static inline void observe_renamed(struct mcm *m, uint32_t slot, struct mcp_bytes from, struct mcm_journal_batch *batch)
{
#define ON(fn) fn(m, slot, from, batch);
	MCM_ON_RENAMED(ON)
#undef ON
}

static inline void observe_copy_added(struct mcm *m, uint32_t slot, struct mcm_extent extent)
{
#define ON(fn) fn(m, slot, extent);
	MCM_ON_COPY_ADDED(ON)
#undef ON
}

static inline void observe_copy_gone(struct mcm *m, uint32_t slot, struct mcm_extent extent)
{
#define ON(fn) fn(m, slot, extent);
	MCM_ON_COPY_GONE(ON)
#undef ON
}

static inline void observe_relist(struct mcm *m, uint32_t slot)
{
#define ON(fn) fn(m, slot);
	MCM_ON_RELIST(ON)
#undef ON
}

static inline void observe_aborted(struct mcm *m, uint64_t generation)
{
#define ON(fn) fn(m, generation);
	MCM_ON_ABORTED(ON)
#undef ON
}

static inline void observe_freed(struct mcm *m, struct mcp_bytes key, uint64_t bytes)
{
#define ON(fn) fn(m, key, bytes);
	MCM_ON_FREED(ON)
#undef ON
}

static inline void observe_restored(struct mcm *m, uint32_t slot, uint16_t traits, uint32_t age)
{
#define ON(fn) fn(m, slot, traits, age);
	MCM_ON_RESTORED(ON)
#undef ON
}

#endif
