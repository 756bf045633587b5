/* SPDX-License-Identifier: Apache-2.0
 * group.h - objects that are kept together and evicted together.
 *
 * A group exists while it has members or puts that name it.  Reading one member keeps all of them: leases,
 * pins and the evictor's second chance are the group's too.  When the evictor takes the last copy of a
 * member, the others follow: a few at once, a large group's rest in the background; what was put meanwhile
 * is spared, and so is the rest when a reader comes.
 *
 * One lock for all groups, taken under shards' locks; leases and pins are counted without it. */
#ifndef MCM_GROUP_H
#define MCM_GROUP_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "master/memory/keys.h"
#include "master/index/object.h"
#include "master/memory/table.h"

struct mcm;

struct mcm_group {
	uint32_t next;			/* chain; free list */
	uint32_t hash;
	uint32_t name;			/* in the groups' arena */
	uint16_t name_len;
	bool evicting;			/* its members are being evicted */
	uint8_t level;			/* at which */
	uint32_t refs;			/* members, puts, evictors */
	uint32_t members;
	uint32_t first, last;		/* slots, linked through their extensions */
	uint32_t unvisited;			/* members that the evictor has not looked at yet */
	uint32_t queue_next;		/* queue of the background */
	bool queued;
	uint64_t new_generation;		/* generation from which on members are not evicted with it */
	/* atomic */
	bool touched;			/* read since the evictor came by */
	uint32_t lease;			/* tick, as of an object */
	uint32_t pins;			/* of all members */
};

struct mcm_groups {
	pthread_mutex_t lock;
	struct mcm_table table;
	struct mcm_slab slab;
	struct mcm_keys names;
	uint32_t free;
	uint32_t evicting;		/* queue of the background */
};

void mcm_groups_init(struct mcm_groups *gs);
void mcm_groups_done(struct mcm_groups *gs);

/* ---- no lock or a shard's held ---- */

/* Find or create, and keep.  @name: 1..MCM_GROUP_NAME_MAX bytes, the tenant's prefix included.
 * -MC_EPARAM, -ENOMEM. */
int mcm_group_get(struct mcm *m, struct mcp_bytes name, uint32_t *ret_id);
void mcm_group_ref(struct mcm *m, uint32_t id);
void mcm_group_unref(struct mcm *m, uint32_t id);		/* 0 is fine */
/* Its name without the tenant's prefix into @buf of MCP_GROUP_MAX bytes; the length. */
uint32_t mcm_group_name(struct mcm *m, uint32_t id, char *buf);

/* ---- the member's shard is locked ---- */

/* The group's whole name, "" when it is in none; borrowed while it is a member. */
struct mcp_bytes mcm_group_of(const struct mcm *m, const struct mcm_object *o);
void mcm_group_join(struct mcm *m, uint32_t id, uint32_t slot);
void mcm_group_leave(struct mcm *m, uint32_t slot);	/* in no group: fine */
/* A member was promised to a reader until @tick, or read. */
void mcm_group_lease(struct mcm *m, const struct mcm_object *o, uint32_t tick);
void mcm_group_touch(struct mcm *m, const struct mcm_object *o);
/* A member got a reader, or (-1) lost one. */
void mcm_group_pin(struct mcm *m, const struct mcm_object *o, int readers);
/* Does a promise or a reader of any member keep @o?  Of one that readers of an earlier master may hold, whose other
 * members have pins of nobody's too, only promises are known. */
bool mcm_group_leased(const struct mcm *m, const struct mcm_object *o);
/* May the evictor take @o with all of its copies?  If not, @o has a lease now, or its group its second chance.
 * *ret_group is what goes with it, kept, to be given to mcm_group_evict(); 0: nothing. */
bool mcm_group_may_evict(struct mcm *m, struct mcm_object *o, unsigned level, uint32_t *ret_group);
/* The same for one copy: the group is asked about the last one only. */
bool mcm_group_may_evict_copy(struct mcm *m, struct mcm_object *o, unsigned level,
			      uint32_t *ret_group);

/* ---- no lock held ---- */

/* Evict members of a doomed group, the first ones now; their bytes times their copies.  Lets go of it. */
uint64_t mcm_group_evict(struct mcm *m, uint32_t id);
/* Go on with large ones.  True: there is more to do. */
bool mcm_groups_background(struct mcm *m);

#endif
