/* SPDX-License-Identifier: Apache-2.0
 * quarantine.h - ranges of aborted puts whose writers may still write there.
 *
 * A range is free again when the owner of its segment has confirmed that it has fenced the writer's engine up to the
 * number of the put's session (mce_engine_fence()); never because time has passed.  An owner that does not answer
 * keeps its ranges here.  When a segment is unmounted, its ranges are freed: nothing is allocated there any more.
 *
 * All ranges of one segment and one ended session share an order.  The owner gets it with the answers to its
 * heartbeats until it has confirmed it. */
#ifndef MCM_QUARANTINE_H
#define MCM_QUARANTINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/list.h"
#include "common/sys/lock.h"
#include "master/index/object.h"
#include "master/space/segment.h"
#include "proto/msg.h"

struct mcm;
struct mcm_client;
struct mcm_put;

/* An aborted put, until its last range is free. */
struct mcm_aborted {
	struct mc_list link;		/* mcm_quarantine.aborted */
	uint64_t generation;
	uint64_t size;			/* size of the object */
	uint64_t charged;		/* bytes charged to the tenant for each copy */
	uint32_t tenant;
	uint8_t copies;			/* ranges that are left */
	struct mcm_extent extent[MCM_REPLICA_MAX];
};

struct mcm_fence {
	struct mc_list link;		/* mcm_segment.fences, or mcm_quarantine.confirmed */
	uint64_t number;		/* number of the order */
	struct mcp_id engine;		/* zero: all engines */
	uint64_t upto;
	struct mcm_held_range {
		struct mcm_aborted *put;
		struct mcm_extent extent;
	} *range;
	size_t n, cap;
	uint64_t bytes;			/* bytes of the ranges */
	uint64_t since_ms;		/* the master's clock */
	/* the writer; zero and "": one of an earlier master */
	struct mcp_id client;
	uint64_t account;		/* key of its account; 0: none */
	char name[MCM_NAME_MAX + 1], host[MCM_NAME_MAX + 1];
};

struct mcm_quarantine {
	struct mc_mutex lock;		/* also for mcm_segment.fences */
	struct mc_list aborted;
	struct mc_list confirmed;	/* fences whose ranges the monitor frees */
	unsigned pending;		/* fences that are not confirmed, */
	uint64_t bytes;			/* and their ranges' bytes; atomic */
	bool unmounted;			/* a segment with fences was unmounted; atomic */
	uint64_t restored_upto;		/* numbers up to this one are of earlier masters; atomic */
};

void mcm_quarantine_init(struct mcm *m);
void mcm_quarantine_done(struct mcm *m);

/* Quarantine the ranges of a put that is in no table, and whose writer may still write.  @account: the key of the
 * writer's account (master/account.h); 0: none. */
void mcm_quarantine_put(struct mcm *m, const struct mcm_put *put, uint64_t account);
/* Quarantine a range to which a writer of an earlier master may still write; ranges of one put come one after
 * another.  -ENOMEM. */
int mcm_quarantine_restore(struct mcm *m, uint64_t generation, struct mcm_extent extent);

/* The clients' lock is held.  Note the orders that the owner @c has confirmed, and copy up to @max of those that it
 * has not to @ret; their number. */
unsigned mcm_quarantine_orders(struct mcm *m, struct mcm_client *c, const struct mcp_seq *confirmed,
			       struct mcp_fence *ret, unsigned max);
/* ---- the limit, and an operator's view ----
 *
 * A writer that stands still keeps its ranges out of the pool for as long as it likes.  Further puts of a client are
 * refused while its unconfirmed ranges in segments that are in service have more than --max_client_quarantine_ratio of
 * the pool's memory.  So one client id keeps at most that share, and ranges that it had reserved before it reached the
 * limit.  A process may use several ids: those of one account have the limit together; tenants'
 * quotas limit others, because ranges stay charged. */

/* The unconfirmed bytes of the client and of its account if it may begin no puts now; 0: it may.  @account: 0: none. */
uint64_t mcm_quarantine_over(struct mcm *m, struct mcp_id client, uint64_t account);
/* Bytes that a client may have there. */
uint64_t mcm_quarantine_limit(const struct mcm *m);

struct mcm_quarantined {
	struct mcp_id client;
	char name[MCM_NAME_MAX + 1], host[MCM_NAME_MAX + 1], segment[MCM_NAME_MAX + 1];
	uint64_t bytes, ranges, age_ms;
	bool connected;			/* the client has a connection */
	bool served;			/* the segment's owner is in service */
};
/* The unconfirmed orders, at most @max of them; their number. */
unsigned mcm_quarantine_list(struct mcm *m, struct mcm_quarantined *ret, unsigned max);
/* An operator states that the client's process has ended: free its ranges without the confirmations of owners.
 * -MC_ENOCLIENT: it has none; -MC_EMODE: the client has a connection, so its process lives; -MC_EPARAM: the id is zero,
 * and any client may be one of an earlier master. */
int mcm_quarantine_release(struct mcm *m, struct mcp_id client, uint64_t *ret_ranges, uint64_t *ret_bytes);

/* A segment with fences may have been unmounted: the monitor frees its ranges. */
void mcm_quarantine_unmounted(struct mcm *m);
/* Free the ranges that need to wait no longer. */
void mcm_quarantine_tick(struct mcm *m);

#endif
