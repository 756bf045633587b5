/* SPDX-License-Identifier: Apache-2.0
 * put.h - unfinished puts: begun, not committed, invisible to readers.
 *
 * A put is named by its generation, whose low bits select a shard of the table.  All puts of one
 * session are in one shard, whose lock also guards the session's list of puts. */
#ifndef MCM_PUT_H
#define MCM_PUT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sys/lock.h"

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
	uint32_t next;			/* hash chain; free list */
	uint32_t hash;			/* hash of the generation */
	uint64_t generation;
	uint64_t size;
	uint64_t began_ms;		/* the master's clock */
	struct mcm_session *session;	/* may be freed once the put is out of the table */
	struct mcp_id client;
	struct mcp_id engine;		/* engine of the writer */
	uint64_t fence;			/* the writer's fence number: that of its session */
	uint32_t sess_prev, sess_next;	/* list of the session's puts */
	uint32_t age_prev, age_next;	/* list of the shard's puts, oldest first */
	uint32_t soft_ms;
	uint32_t key;
	uint16_t key_len;
	uint8_t flags;			/* MCP_PUT_* */
	uint8_t kind;
	uint8_t copies;
	uint8_t soft_pin;		/* enum mcp_soft_pin */
	uint8_t data_type;
	uint32_t group;			/* with a reference; 0: none */
	uint32_t tenant;
	uint64_t charged;		/* bytes charged to the tenant */
	bool counted;			/* mcm_count_admit() counted the put */
	struct mcm_extent extent[MCM_REPLICA_MAX];
	bool copy;			/* copy for a task: unknown to PUT_END and PUT_REVOKE */
	struct mcm_unit *unit;		/* unit of a copy; NULL: taken back, but the writer may still write */
};

struct mcm_put_shard {
	struct mc_mutex lock;
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
	struct mcm_quarantine quarantine;
};

void mcm_puts_init(struct mcm_puts *ps);
void mcm_puts_done(struct mcm_puts *ps);

/* Common values of the items of one PUT_START. */
struct mcm_put_request {
	uint32_t flags;			/* MCP_PUT_* */
	unsigned copies;
	uint32_t soft_ms;
	const uint64_t *preferred;	/* hashes of segment names, in order */
	unsigned n_preferred;
	struct mcp_bytes host;		/* the writer's host, "": unknown */
	uint8_t soft_pin;		/* enum mcp_soft_pin; for ENABLE, @flags also has MCP_PUT_SOFT_PIN */
	uint8_t data_type;
	uint16_t tenant;		/* segments of this mcm_segment.tenant take it */
	uint64_t same_node;		/* MCP_PUT_SAME_NODE: name of the first item's segment; in and out */
	uint64_t refused;		/* shortest length refused in this request, 0: none; in and out */
	struct mcm_slice slice;		/* in and out, except for its end */
	bool full;			/* private to allocate.c: a search met full segments only */
};

struct mcm_put_granted {
	uint64_t generation;
	unsigned copies;
	struct mcp_replica replica[MCM_REPLICA_MAX];
};

/* Begin a put; with MCP_PUT_COMMIT and size 0 it is committed at once.  Keys, and groups in @item,
 * have the tenant's prefix (tenant.h).  -MC_EKEY, -MC_EPARAM, -MC_EEXISTS, -MC_ENOSPACE,
 * -MC_ETOOBIG, -MC_EQUOTA, -MC_ELIMIT, -ENOMEM; MCP_AGAIN when the slice is over: no put was begun,
 * but space was freed. */
int mcm_put_start(struct mcm *m, struct mcm_session *s, struct mcm_put_request *rq,
		  const struct mcp_put_item *item, struct mcm_put_granted *ret);
/* Commit.  -MC_ESTALE_PUT, -MC_EEXISTS, -MC_EREPLICA_GONE when its segments were unmounted,
 * -MC_EPARAM for a size larger than reserved or for attributes that its kind cannot have, -ENOMEM. */
int mcm_put_end(struct mcm *m, const struct mcm_session *s, const struct mcp_put_done *done);
/* The same for up to MCM_PREFETCH_MAX items in their order, with common prefetches, clock reads and
 * lock holds.  @ret has a result per item; after one with MCP_AGAIN all are. */
void mcm_put_start_many(struct mcm *m, struct mcm_session *s, struct mcm_put_request *rq,
			const struct mcp_put_item *items, unsigned n,
			struct mcm_put_granted *ret_granted, int *ret);
void mcm_put_end_many(struct mcm *m, const struct mcm_session *s, const struct mcp_put_done *done, unsigned n,
		      int *ret);
/* Abort: the writer has ended all of its writes.  -MC_ESTALE_PUT. */
int mcm_put_revoke(struct mcm *m, const struct mcm_session *s, const struct mcp_put_done *done);

/* A client knows the number @seen.  If this master has not reached it (an earlier master had a later clock and left no
 * journal), numbers up to it count as those of earlier masters, and later generations are larger. */
void mcm_generation_seen(struct mcm *m, uint64_t seen);

/* ---- limits that a put meets before it gets memory (put_room.c) ---- */

/* Puts that a session, and its account if it has one, may still begin, and bytes of their keys. */
struct mcm_put_room {
	unsigned puts;
	uint64_t keys;
	uint64_t quarantined;		/* it has reached that limit (quarantine.h); else 0 */
};

/* The requests of a session run one after another, so no other one begins puts now; for an account see account.h. */
struct mcm_put_room mcm_put_room(struct mcm *m, struct mcm_session *s);
/* -MC_ELIMIT: there is no room for a put with such a key. */
int mcm_put_room_check(const struct mcm *m, const struct mcm_put_room *room, uint32_t key_len);

/* For mcm_put_charge(): the quota, unless put->charged is set, or the number of objects needs an eviction. */
int mcm_put_charge_full(struct mcm *m, struct mcm_put_request *rq, const struct mcp_put_item *item, uint64_t bytes,
			struct mcm_put *put);

/* ---- puts of tasks' copies, named by their generation ---- */

/* Register the put of a copy and set unit->put.  -MC_ELIMIT, -ENOMEM. */
int mcm_put_copy(struct mcm *m, struct mcm_session *s, struct mcm_unit *unit);
/* Remove the put of a copy; the caller ends it.  @s: the session that fetched the copy.  If it has no
 * unit, the unit was taken back before, and only the range has to be released.  -MC_ESTALE_PUT. */
int mcm_put_claim_copy(struct mcm *m, const struct mcm_session *s, uint64_t generation,
		       struct mcm_put *ret);
/* Release the range of a copy whose writer has ended its write. */
void mcm_put_release_copy(struct mcm *m, const struct mcm_put *put);
/* The task takes its unit back.  The range stays with the put until the writer reports or its
 * session ends, because no message tells a writer to stop. */
void mcm_put_detach_unit(struct mcm *m, uint64_t generation);

/* The session ends: abort its puts. */
void mcm_puts_abandon(struct mcm *m, struct mcm_session *s);
/* Abort puts of living sessions that are older than put_start_release_timeout (clients write for at most half
 * of its default), take back the units of copies that old, and free quarantined ranges that are due. */
void mcm_puts_tick(struct mcm *m);

/* Call @fn with the record of each unfinished or quarantined put, its lock held (put_records.c). */
struct mcm_put_record;
void mcm_puts_each(struct mcm *m, void (*fn)(void *arg, const struct mcm_put_record *r), void *arg);

#endif
