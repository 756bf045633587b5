/* SPDX-License-Identifier: Apache-2.0
 * segment.h - one segment that this process contributes, on a medium of any tier: opened, registered with the engine,
 * offered to the master.
 *
 * Its id and epoch do not change, so that a master that restarted or lost the connection finds its objects again.  Only
 * in another pool it has another epoch: the other master may overwrite the objects of the first, which must not be
 * found there again.
 *
 * A durable medium keeps id, epoch and pool of its segment itself, so that any process that opens it continues with its
 * objects.  If the master of another pool has the same cluster_id, it lost its journal, and the segment's objects are
 * offered to it (disk_offer.h); else they are lost.  The same holds if a master that restored a snapshot asks for them.
 * While the master knows the segment, it alone decides which objects the segment has. */
#ifndef MCS_OWN_SEGMENT_H
#define MCS_OWN_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "client/owner/disk_notes.h"
#include "client/session/session.h"
#include "client/session/shared.h"
#include "engine/mce.h"
#include "tiers/tier.h"

struct mcs_own_segment_conf {
	const struct mct_tier_ops *tier;
	uint8_t medium;			/* enum mcp_medium, for the master */
	struct mct_conf open;		/* configuration of the medium */
	const char *protocol;		/* for the master; a string that outlives the segment */
	/* NULL, or memory for MCS_SEGMENT_IDENTITY words that outlives the process: the identity of a segment whose
	 * medium does not keep it, read if one is adopted, and written before the master learns it */
	uint64_t *identity;
	uint8_t high, low;		/* percent at which eviction begins and ends, 0: the master's */
	uint8_t policy;			/* MCP_EVICT_*, 0: the master's */
	bool import;			/* a shared medium of another pool is taken over, with its objects */
};

struct mcs_own_segment_state {
	uint64_t epoch;
	struct mcp_id pool;		/* that the segment was last offered to; zero: none, or not known */
	uint64_t server;		/* process of the master that has mounted it, as mcs_terms; 0: none */
	bool confirms;			/* the master wants its objects to be compared (confirm.h) */
	/* only a durable segment has these: */
	uint64_t secret[2];		/* secret of the objects' records (tiers/ssd/record.h) */
	uint64_t cluster;		/* hash of the cluster_id of the pool's master; 0: not known */
	bool pending;			/* it has objects of an earlier pool that were not offered yet */
	bool offers;			/* the master waits for them */
};

struct mcs_own_segment {
	/* constant after open */
	struct mcs_own_segment_conf conf;	/* without strings of the caller, but for the protocol */
	struct mce_engine *engine;
	struct mct_medium *medium;
	char *path, *kind;		/* conf.open's, of an encrypted one */
	struct mct_memory mem;		/* base NULL: the bytes are not addressable */
	struct mce_mr *mr;
	struct mcp_id id;
	bool durable;			/* the medium keeps the identity, and records of the objects */
	/* guarded by notes_lock of the set */
	struct mcs_disk_notes *notes;	/* durable: its notes of void records; NULL: the tier is named */
	/* named: where objects were removed, until the sweeper takes it */
	uint64_t *gone;
	size_t n_gone;
	bool gone_all;			/* there were too many */
	/* atomic */
	bool lost;			/* the medium is, or may be, another process's: it is not offered any more */
	/* guarded by the lock of the set (segments.h) */
	bool keeping;			/* a thread changes the identity; the others wait for the end (segments.c) */
	bool entered;			/* this process has offered it to the pool */
	bool mounted;			/* a master has accepted that once */
	/* Numbers of the last MOUNT, and of the last one of which this process has carried out all that follows from
	 * the answer. */
	uint64_t mounts, settled;
	uint64_t *identity;
	struct mcs_own_segment_state now;
};

/* Open the medium, or take @medium, and register it.  After an error mcs_own_segment_close() frees the rest. */
int mcs_own_segment_open(struct mcs_own_segment *s, struct mce_engine *engine, const struct mcs_own_segment_conf *conf,
			 struct mct_medium *medium);
void mcs_own_segment_close(struct mcs_own_segment *s);
/* Usable bytes.  Any thread. */
uint64_t mcs_own_segment_size(const struct mcs_own_segment *s);

/* Changes of the identity have three steps: a function below makes the next state, with the lock of the set held;
 * mcs_own_segment_write() keeps it, without the lock, because a medium may be slow; mcs_own_segment_keep() makes it the
 * state of the segment.  Meanwhile the segment is keeping. */

/* Write the identity with this state.  Blocks, without the set's lock.  -ESTALE: another process has the medium. */
int mcs_own_segment_write(const struct mcs_own_segment *s, const struct mcs_own_segment_state *state);
void mcs_own_segment_keep(struct mcs_own_segment *s, const struct mcs_own_segment_state *state);
/* The objects' records do not count any more. */
void mcs_own_segment_void_records(struct mcs_own_segment_state *state);
/* The segment enters @pool (zero: not known): 1: *ret_next is its state then; 0: nothing changes.  Without the written
 * state the segment must not be offered: a medium that cannot keep a new epoch keeps its objects from this pool only.
 * -EINVAL, -MC_EOWNER: the medium is shared, belongs to another pool and is not to be imported. */
int mcs_own_segment_enter(struct mcs_own_segment *s, struct mcp_id pool, struct mcs_own_segment_state *ret_next);
/* The bytes of the segment are lost: *ret_next is its state then, with another epoch. */
void mcs_own_segment_forget(const struct mcs_own_segment *s, struct mcs_own_segment_state *ret_next);
/* The fields of a MOUNT that describe the segment; @text: memory for them. */
struct mcs_own_segment_text {
	char name[300], protocol[MCS_SHARED_PLACE_MAX];
	uint8_t key[16];
};
struct mcp_mount mcs_own_segment_describe(const struct mcs_own_segment *s, struct mcs_own_segment_text *text);
/* The master process @answered has answered a MOUNT; @sure: no other one can have.  *ret_next: the state of the segment
 * then; true: it has to be written before it counts. */
bool mcs_own_segment_mounted(struct mcs_own_segment *s, const struct mcp_mount_reply *reply, uint64_t answered,
			     bool sure, struct mcs_own_segment_state *ret_next);

#endif
