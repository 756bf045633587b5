/* SPDX-License-Identifier: Apache-2.0
 * empties.c - objects without bytes. */
#include <config.h>

#include "master/mcm_i.h"

/* Files and directories of a mount, and hard-pinned objects, are never evicted. */
static bool empty_evictable(const struct mcm_object *o)
{
	return !mcm_object_size(o) && !(o->flags & MCM_OBJ_HARD) && (o->flags & MCM_OBJ_KIND) == MCP_KIND_OBJECT;
}

int mcm_empties_cover(struct mcm *m, uint32_t slot)
{
	return empty_evictable(mcm_object(&m->index, slot)) ? mcm_object_lists_cover(m, slot) : 0;
}

void mcm_empties_join(struct mcm *m, uint32_t slot)
{
	if (!empty_evictable(mcm_object(&m->index, slot)))
		return;
	mcm_object_lists_add(m, &m->empties.lists, slot);
	__atomic_fetch_add(&m->empties.objects, 1, __ATOMIC_RELAXED);
}

void mcm_empties_leave(struct mcm *m, uint32_t slot)
{
	if (!empty_evictable(mcm_object(&m->index, slot)))
		return;
	mcm_object_lists_remove(m, &m->empties.lists, slot);
	__atomic_fetch_sub(&m->empties.objects, 1, __ATOMIC_RELAXED);
}

void mcm_empties_relist(struct mcm *m, uint32_t slot)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);

	if (o->flags & MCM_OBJ_LIVE && empty_evictable(o))
		mcm_object_lists_add(m, &m->empties.lists, slot);
}
