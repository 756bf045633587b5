/* SPDX-License-Identifier: Apache-2.0
 * task.h - work on objects that takes a while: copies, moves, drains, evictions, rebalancing.
 *
 * The master moves no bytes.  A client that owns a segment with something to copy learns so from its
 * heartbeat and fetches copies to make.  Each copy is a put that nobody else can end: room is taken on
 * the target, the source is pinned for the session that fetched it, and when the client reports the
 * same CRC as the object's, the version gets the new place under its shard's lock; of a move the old
 * place goes as soon as nobody reads the object.  A session that ends takes its copies with it.  One that is
 * canceled or takes too long is over for its task at once; its room is free when the client has reported, for
 * until then it may write there.
 *
 * What a task has to do is found when a client asks, so a drain of millions needs no list.
 *
 * Locks: tasks.lock guards the tables; it stands before session locks, run locks and shards. */
#ifndef MCM_TASK_H
#define MCM_TASK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/list.h"
#include "common/thread.h"
#include "master/space/evict.h"
#include "master/index/object.h"
#include "proto/msg.h"

struct mcm;
struct mcm_put;
struct mcm_segment;
struct mcm_session;

#define MCM_TASK_NAMES 1024		/* sources, or targets, of a task */
#define MCM_TASK_TARGETS 8		/* of a copy */
#define MCM_TASK_FAILURES 1024		/* objects that a task gives up before it fails itself */
#define MCM_UNIT_TRIES 3
#define MCM_FETCH_MAX 64
#define MCM_FETCH_RANGES 2048		/* of one segment that are looked at for a fetch, or a part of one */

struct mcm_task_name {
	uint64_t hash;
	char *name;
};

/* An object that could not be copied: when to try again, if at all. */
struct mcm_task_failure {
	uint64_t generation;
	uint64_t retry_ms;
	unsigned tries;
};

/* Guarded by tasks.lock. */
struct mcm_task {
	struct mc_list link;
	struct mcp_id id;
	uint8_t type, status;		/* enum mcp_task_type, enum mcp_task_status */
	struct mcm_task_name *source, *target;
	unsigned n_sources, n_targets;
	char *key;
	uint32_t key_len;
	unsigned done_targets;		/* of a copy: bits */
	unsigned busy_targets;
	unsigned tries;			/* of a copy that finds no room */
	uint64_t retry_ms;
	struct mcm_slice slice;		/* where making room for its copies goes on */
	uint64_t turn;			/* of an eviction: the last one that it had */
	unsigned max_active;
	uint64_t created_ms, updated_ms;	/* wall clock */
	uint64_t began_ms;		/* the master's clock; of the wait for a client */
	uint64_t succeeded, failed, blocked, bytes, total;
	unsigned active;		/* copies under way, and who else needs it to stay */
	bool drained;			/* its sources go on taking nothing */
	struct mcp_id client;
	struct mcm_task_failure *failure;
	unsigned n_failures;
	int error;
	char message[160];
};

/* A copy under way.  It belongs to its put, which names it; listed in tasks.units. */
struct mcm_unit {
	struct mc_list link;
	struct mcm_task *task;		/* alive while it has units */
	struct mcm_session *session;	/* NULL: it has ended, its pins with it */
	uint64_t put;			/* generation */
	uint64_t version;		/* generation of what is copied */
	uint64_t began_ms;
	uint64_t size;
	uint32_t slot;			/* pinned by the session */
	uint32_t crc;
	uint64_t pin;
	struct mcm_extent from, to;
	unsigned target;		/* of a copy */
	bool move;
	uint32_t tenant;		/* whose object it is */
	uint64_t charged;		/* to it, until the object has the copy */
};

struct mcm_tasks {
	pthread_mutex_t lock;
	struct mc_list active, finished;	/* oldest first */
	struct mc_list units;			/* oldest first */
	unsigned n_pending, n_finished, n_units;
	unsigned n_active;			/* atomic copy: is there anything to do at all? */
	uint64_t turn;				/* counts rounds of evictions */
	struct mc_stop stop;
	pthread_t thread;
	bool runs;
};

/* What a task is made of; names and key are borrowed. */
struct mcm_task_request {
	uint8_t type;
	struct mcp_bytes key;
	const struct mcp_bytes *source, *target;
	unsigned n_sources, n_targets;
	unsigned max_active;		/* 0: 4 */
};

void mcm_tasks_init(struct mcm_tasks *t);
void mcm_tasks_done(struct mcm *m);
int mcm_tasks_start(struct mcm *m);	/* the thread */
void mcm_tasks_stop(struct mcm *m);

/* ---- what clients and operators ask for; no lock held (task.c) ---- */

/* -MC_EPARAM, -MC_ENOOBJECT, -MC_ENOSEGMENT, -MC_EUNAVAILABLE (drained already), -MC_ELIMIT, -ENOMEM. */
int mcm_task_create(struct mcm *m, const struct mcm_task_request *rq, struct mcp_id *ret);
/* -MC_ENOTASK. */
int mcm_task_cancel(struct mcm *m, struct mcp_id id, uint8_t *ret_status);
/* Call @fn for the task, or (@id zero) for all, newest first, tasks.lock held.  -MC_ENOTASK. */
int mcm_task_each(struct mcm *m, struct mcp_id id,
		  int (*fn)(void *arg, const struct mcm_task *t), void *arg);
/* Bytes still in a task's sources. */
uint64_t mcm_task_left(struct mcm *m, const struct mcm_task *t);
/* An object is read often: give it another copy (a task), unless it has one under way. */
int mcm_task_replicate(struct mcm *m, struct mcp_bytes key);

/* Period of the thread, for nobody else: sources that came back, time-outs, evictions, ends. */
void mcm_tasks_tick(struct mcm *m);

/* ---- across a restart (task_keep.c) ---- */

/* After the journal was read. */
void mcm_tasks_restore(struct mcm *m);
/* tasks.lock held: note how it stands, or that it is over. */
void mcm_task_keep(struct mcm *m, const struct mcm_task *t);
/* Is there a journal that has no room for all its names?  Later there will be no more of them.  -MC_ELIMIT, -ENOMEM. */
int mcm_task_can_be_kept(const struct mcm *m, const struct mcm_task *t);
void mcm_task_drop(struct mcm *m, struct mcp_id id);
/* Does this finished drain keep a segment from taking objects, and no later one does? */
bool mcm_task_keeps_drained(struct mcm *m, const struct mcm_task *t);
/* No lock held: a segment was mounted that is not one of before.  A drain that had emptied one of its name is
 * not about this one. */
void mcm_tasks_mounted(struct mcm *m, struct mcp_bytes name);
/* One that was noted, before the master has threads.  -MC_EPARAM, -ENOMEM. */
int mcm_task_restore(struct mcm *m, const struct mcp_task *msg);

/* ---- copies (task_plan.c, task_unit.c) ---- */

/* Up to @max copies for the owner behind @s; their number.  *ret_more: none were found in what one call looks at or
 * evicts, so that nobody waits for the tasks for long; the next one goes on where this one ended. */
unsigned mcm_task_fetch(struct mcm *m, struct mcm_session *s, unsigned max, struct mcp_copy *ret,
			struct mcp_replica *ret_from, struct mcp_replica *ret_to, bool *ret_more);
/* The client is done with one that it fetched over @s.  -MC_ESTALE_PUT, also over another session, or why
 * it is not kept. */
int mcm_task_copied(struct mcm *m, const struct mcm_session *s, const struct mcp_copied *c);
/* For task_plan.c: a copy was begun, or could not be. */
void mcm_unit_started(bool move, int result);
/* For put.c: the unit was taken back or its put broken off; the space is the put's. */
void mcm_unit_revoked(struct mcm *m, struct mcm_unit *u);
/* The session has no puts any more and is about to drop its pins. */
void mcm_tasks_session_gone(struct mcm *m, const struct mcm_session *s);

/* Is some segment (@s: this one) so much fuller than the others that objects should move away? */
bool mcm_rebalance_wanted(struct mcm *m, const struct mcm_segment *s);

/* ---- shared by the task files ---- */

/* No lock held: one turn of all evictions (task_evict.c).  For the tasks' thread. */
void mcm_tasks_evict(struct mcm *m);
/* The @i-th source that is mounted; NULL at the end. */
struct mcm_segment *mcm_task_next_source(struct mcm *m, const struct mcm_task *t, unsigned *i);

/* tasks.lock held for these: */

/* The target of a move has a copy already: only the source goes. */
void mcm_task_move_within(struct mcm *m, struct mcm_task *t, uint32_t slot, uint64_t generation,
			  struct mcm_extent from);
void mcm_unit_unmark(struct mcm *m, const struct mcm_unit *u);
bool mcm_task_names(const struct mcm_task_name *names, unsigned n, uint64_t hash);
void mcm_task_end(struct mcm *m, struct mcm_task *t, uint8_t status, int error, const char *why);
/* Note that an object could not be copied. */
void mcm_task_object_failed(struct mcm *m, struct mcm_task *t, uint64_t generation, int why);
/* May this object be tried (again) now? */
bool mcm_task_object_due(const struct mcm *m, const struct mcm_task *t, uint64_t generation);

#endif
