/* SPDX-License-Identifier: Apache-2.0
 * task_i.h - the parts of a plan of copies that task_plan.c and offload.c share.  tasks.lock is held for all. */
#ifndef MCM_TASK_I_H
#define MCM_TASK_I_H

#include "master/task/task.h"

/* One fetch of a client. */
struct mcm_plan {
	struct mcm *m;
	struct mcm_session *s;
	struct mcm_task *t;
	unsigned max, n;
	uint64_t bytes;
	struct mcp_copy *copy;
	struct mcp_replica *from, *to;
	uint8_t *record;	/* MCM_ADOPT_MAX bytes for each copy; NULL: the owner stores no records */
	uint64_t until_ns;	/* end of the time for evictions */
	bool cut;		/* the limits of one fetch stopped the search */
	bool held;		/* some copies stay for their readers only */
	/* for the current segment: ranges that may still be visited, objects that may still fail;
	 * objects of at least too_long bytes found no room */
	unsigned ranges, misses;
	uint64_t too_long;
};

/* A copy to begin. */
struct mcm_copy_spec {
	uint32_t tenant;
	uint32_t slot;
	struct mcm_extent from;
	uint64_t generation, size;
	uint32_t crc;
	uint64_t target;		/* hash of the only segment it may go to, 0: any */
	unsigned target_index;
	bool move;
	uint32_t record_len;		/* length of the description in plan.record; 0: none */
	uint32_t hash;			/* hash of the key, and its length */
	uint16_t key_len;
	uint64_t name;			/* hash of tenant and key, if there is one */
	uint64_t have[MCM_REPLICA_MAX];	/* names of the segments that have a copy */
	unsigned n_have;
};

struct mcm_plan mcm_plan_begin(struct mcm *m, struct mcm_session *s, unsigned max, struct mcp_copy *ret,
			       struct mcp_replica *ret_from, struct mcp_replica *ret_to);
bool mcm_plan_full(const struct mcm_plan *p);
/* Running copies, of this session or of all, bar further ones. */
bool mcm_plan_barred(const struct mcm_plan *p);
/* Shard locked: describe the object, except its source. */
void mcm_plan_describe(const struct mcm *m, const struct mcm_object *o, uint32_t slot, struct mcm_copy_spec *c);
/* Count the objects that are left in the sources of a drain, and end it when it can do no more (task_drain.c). */
void mcm_drain_step(struct mcm *m, struct mcm_task *t);
/* Number of objects in sources that went since the last call. */
uint64_t mcm_drain_losses(struct mcm *m, const struct mcm_task *t);
/* All mounted segments of its sources: MCP_SEG_DRAINING, _DRAINED, or 0 (task.c). */
void mcm_task_set_draining(struct mcm *m, const struct mcm_task *t, uint8_t state);
/* Is there any segment, perhaps of a silent owner, that a drain may move objects to? */
bool mcm_drain_has_target(struct mcm *m, const struct mcm_task *t);
/* Begin the copy: allocate its range, pin its source, add it to the reply.  MCP_AGAIN: the time for evictions is over;
 * -MC_ENOSPACE, -MC_ENOOBJECT, -ENOMEM, ... */
int mcm_plan_copy(struct mcm_plan *p, const struct mcm_copy_spec *c);
/* Committed objects of @s from its cursor on, at most @max; the segment's run_lock is held.  *ret_end: the walk has
 * come to the end, and the cursor is at the beginning. */
unsigned mcm_plan_walk(struct mcm_plan *p, struct mcm_segment *s, struct mcm_victim *v, unsigned max, bool *ret_end);
/* The next segment in service of this client after position *@i; NULL at the end. */
struct mcm_segment *mcm_plan_own(const struct mcm_plan *p, unsigned *i);

#endif
