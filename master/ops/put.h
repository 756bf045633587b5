/* SPDX-License-Identifier: Apache-2.0
 * put.h - puts under way: begun, not yet committed, invisible to readers.
 *
 * They are known by their generation, whose low bits name the table's shard; all puts of one session
 * are in one shard, so that its lock guards the session's list of them too. */
#ifndef MCM_PUT_H
#define MCM_PUT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "master/index/object.h"
#include "master/memory/keys.h"
#include "master/memory/table.h"
#include "master/ops/quarantine.h"
#include "master/space/evict.h"

struct mcm;
struct mcm_session;
struct mcm_unit;

#define MCM_PUT_SHARD_BITS 6
#define MCM_PUT_SHARDS (1u << MCM_PUT_SHARD_BITS)

struct mcm_put {
	uint32_t next;			/* chain; free list */
	uint32_t hash;			/* of the generation */
	uint64_t generation;
	uint64_t size;
	uint64_t began_ms;		/* the master's clock */
	struct mcm_session *session;	/* may be gone once the put is out of the table */
	struct mcp_id client;
	uint32_t sess_prev, sess_next;	/* its other puts */
	uint32_t age_prev, age_next;	/* the shard's, oldest first */
	uint32_t soft_ms;
	uint32_t key;
	uint16_t key_len;
	uint8_t flags;			/* MCP_PUT_* */
	uint8_t kind;
	uint8_t copies;
	uint8_t soft_pin;		/* enum mcp_soft_pin */
	uint8_t data_type;
	uint32_t group;			/* kept; 0: none */
	uint32_t tenant;
	uint64_t charged;		/* to the tenant */
	bool counted;			/* mcm_count_admit() */
	struct mcm_extent extent[MCM_REPLICA_MAX];
	bool copy;			/* for a task: PUT_END and PUT_REVOKE do not know it */
	struct mcm_unit *unit;		/* of a copy; NULL: taken back, but its writer may still write */
};

struct mcm_put_shard {
	pthread_mutex_t lock;
	struct mcm_table table;
	struct mcm_slab slab;
	struct mcm_keys keys;
	uint32_t free;
	uint32_t oldest, newest;
} __attribute__((aligned(64)));

extern const struct mcm_table_type mcm_puts_by_generation;
static inline struct mcm_put *mcm_put_at(const struct mcm_put_shard *ps, uint32_t id)
{
	return mcm_slab_at(&ps->slab, id);
}

struct mcm_puts {
	struct mcm_put_shard shard[MCM_PUT_SHARDS];
	pthread_mutex_t quarantine_lock;
	struct mcm_quarantine aborted;
	struct mcm_quarantine restored;		/* of writers whose master was an earlier one */
};

void mcm_puts_init(struct mcm_puts *ps);
void mcm_puts_done(struct mcm_puts *ps);

/* What the items of one PUT_START have in common. */
struct mcm_put_request {
	uint32_t flags;			/* MCP_PUT_* */
	unsigned copies;
	uint32_t soft_ms;
	const uint64_t *preferred;	/* hashes of segment names, in order */
	unsigned n_preferred;
	struct mcp_bytes host;		/* of the writer, "": unknown */
	uint8_t soft_pin;		/* enum mcp_soft_pin; ENABLE is the flag MCP_PUT_SOFT_PIN too */
	uint8_t data_type;
	uint64_t same_node;		/* MCP_PUT_SAME_NODE: name of the first item's segment; updated */
	uint64_t refused;		/* length that found no room already, 0: none; updated */
	struct mcm_slice slice;		/* all but its end is updated */
};

struct mcm_put_granted {
	uint64_t generation;
	unsigned copies;
	struct mcp_replica replica[MCM_REPLICA_MAX];
};

/* Keys, and the groups in @item, are as they are inside the master (tenant.h).  The quota and groups:
 * -MC_EQUOTA, -MC_EPARAM.
 * Begin a put; with MCP_PUT_COMMIT and size 0 it is committed at once.  -MC_EKEY, -MC_EPARAM,
 * -MC_EEXISTS, -MC_ENOSPACE, -MC_ETOOBIG, -MC_ELIMIT, -ENOMEM; MCP_AGAIN when the slice is over: nothing is begun, but
 * there is more room. */
int mcm_put_start(struct mcm *m, struct mcm_session *s, struct mcm_put_request *rq,
		  const struct mcp_put_item *item, struct mcm_put_granted *ret);
/* -MC_ESTALE_PUT, -MC_EEXISTS, -MC_EREPLICA_GONE when its segments went meanwhile, -MC_EPARAM for a size
 * beyond what was reserved, -ENOMEM. */
int mcm_put_end(struct mcm *m, const struct mcp_put_done *done);
/* The same for up to MCM_PREFETCH_MAX items, in their order: what they need of memory is loaded together,
 * clocks are read and locks taken once where that will do.  @ret has an outcome per item; behind one that is MCP_AGAIN
 * there is no other. */
void mcm_put_start_many(struct mcm *m, struct mcm_session *s, struct mcm_put_request *rq,
			const struct mcp_put_item *items, unsigned n,
			struct mcm_put_granted *ret_granted, int *ret);
void mcm_put_end_many(struct mcm *m, const struct mcp_put_done *done, unsigned n, int *ret);
/* -MC_ESTALE_PUT. */
int mcm_put_revoke(struct mcm *m, const struct mcp_put_done *done);

/* A generation never given out before, larger than those before; @shard: of the put, else 0. */
uint64_t mcm_generation_next(struct mcm *m, unsigned shard);

/* ---- for tasks: the put behind a copy, known by its generation ---- */

/* Register the copy's put; unit->put is filled in.  -MC_ELIMIT, -ENOMEM. */
int mcm_put_copy(struct mcm *m, struct mcm_session *s, struct mcm_unit *unit);
/* Whoever takes it out ends it.  @s: the session that fetched it.  Without a unit it was taken back before: only its
 * space is left to be given.  -MC_ESTALE_PUT. */
int mcm_put_claim_copy(struct mcm *m, const struct mcm_session *s, uint64_t generation,
		       struct mcm_put *ret);
/* Give its space back, once bytes on their way cannot hit it any more. */
void mcm_put_release_copy(struct mcm *m, const struct mcm_put *put, bool writer_lives);
/* The unit is taken back.  The space stays the writer's until he reports or his session ends: nobody can tell him
 * to stop. */
void mcm_put_detach_unit(struct mcm *m, uint64_t generation);

/* The session ends. */
void mcm_puts_abandon(struct mcm *m, struct mcm_session *s);
/* Revoke puts of living sessions that are older than put_start_release_timeout (clients write for half of its default
 * at the most; copies are broken), and give quarantined space back that is due. */
void mcm_puts_tick(struct mcm *m);

/* Call @fn with the record of each unfinished or quarantined put, its lock held (put_records.c). */
struct mcm_put_record;
void mcm_puts_each(struct mcm *m, void (*fn)(void *arg, const struct mcm_put_record *r), void *arg);

#endif
