/* SPDX-License-Identifier: Apache-2.0
 * group.h - objects that are evicted together.
 *
 * A group exists while it has members or puts that name it.  Reading one member protects all of them: leases,
 * pins and the evictor's second chance belong to the group too.  When the evictor evicts the last copy of a
 * member, it evicts the other members as well: a few at once, the rest of a large group in the background.
 * Members put after that began are kept, and so are the remaining ones when a reader pins or leases a member.
 *
 * One lock for all groups, taken under shards' locks; leases and pins are counted without it. */
#ifndef MCM_GROUP_H
#define MCM_GROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sys/lock.h"

#include "master/index/object.h"
#include "master/memory/keys.h"
#include "master/memory/table.h"

struct mcm;

struct mcm_group {
	uint32_t next;			/* hash chain; free list */
	uint32_t hash;
	uint32_t name;			/* in the groups' arena */
	uint16_t name_len;
	bool evicting;			/* its members are being evicted */
	uint8_t level;			/* the level of that eviction */
	uint32_t refs;			/* references of members, puts, evictors */
	uint32_t members;
	uint32_t first, last;		/* slots, linked through their extensions */
	uint32_t unvisited;		/* members that the eviction has not visited yet */
	uint32_t queue_next;		/* queue of the background evictor */
	bool queued;
	/* members from this generation on are newer than the eviction and stay */
	uint64_t new_generation;
	/* atomic */
	bool touched;			/* read since the evictor last checked */
	uint64_t lease_ms;		/* end of the last lease */
	uint32_t pins;			/* sum over all members */
};

struct mcm_groups {
	struct mc_mutex lock;
	struct mcm_table table;
	struct mcm_slab slab;
	struct mcm_keys names;
	uint32_t free;
	uint32_t evicting;		/* first of the background evictor's queue */
};

void mcm_groups_init(struct mcm_groups *gs);
void mcm_groups_done(struct mcm_groups *gs);

/* ---- no lock held, or a shard's ---- */

/* Find or create a group and reference it.  @name: 1..MCM_GROUP_NAME_MAX bytes, the tenant's prefix
 * included.  -MC_EPARAM, -ENOMEM. */
int mcm_group_get(struct mcm *m, struct mcp_bytes name, uint32_t *ret_id);
void mcm_group_unref(struct mcm *m, uint32_t id);		/* @id may be 0 */
/* Copy the name without the tenant's prefix into @buf of MCP_GROUP_MAX bytes; returns its length. */
uint32_t mcm_group_name(struct mcm *m, uint32_t id, char *buf);

/* ---- the member's shard is locked ---- */

/* The group's name with the tenant's prefix, "" without a group; valid while @o is a member. */
struct mcp_bytes mcm_group_of(const struct mcm *m, const struct mcm_object *o);
void mcm_group_join(struct mcm *m, uint32_t id, uint32_t slot);
void mcm_group_leave(struct mcm *m, uint32_t slot);	/* may be in no group */
/* A member has a promise lease until @ms, or was read. */
void mcm_group_lease(struct mcm *m, const struct mcm_object *o, uint64_t ms);
void mcm_group_touch(struct mcm *m, const struct mcm_object *o);
/* Add @readers, which may be -1, to the group's pins. */
void mcm_group_pin(struct mcm *m, const struct mcm_object *o, int readers);
/* Whether a promise lease or a pin of any member protects @o.  If @o has MCM_MARK_RESTORED, only leases
 * count: the group's pins then include those that stand for possible readers of an earlier master. */
bool mcm_group_leased(const struct mcm *m, const struct mcm_object *o);
/* Whether the evictor may evict @o with all of its copies.  If not, @o now has the group's lease, or its group
 * has used its second chance.  If so, *ret_group is its group with a reference, for mcm_group_evict(); 0: none. */
bool mcm_group_may_evict(struct mcm *m, struct mcm_object *o, unsigned level, uint32_t *ret_group);
/* The same for one copy of @o: the group decides about the last copy only. */
bool mcm_group_may_evict_copy(struct mcm *m, struct mcm_object *o, unsigned level, uint32_t *ret_group);

/* ---- no lock held ---- */

/* Evict members of the group, the first ones now, and drop the reference.  Returns their bytes
 * times their copies. */
uint64_t mcm_group_evict(struct mcm *m, uint32_t id);
/* Continue the eviction of large groups.  True: there is more to do. */
bool mcm_groups_background(struct mcm *m);

#endif
