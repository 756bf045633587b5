/* SPDX-License-Identifier: Apache-2.0
 * task.h - jobs on objects that take a while: copy, move, replicate, drain, evict, rebalance.
 *
 * The master moves no bytes.  A client that owns a segment with something to copy learns that from its
 * heartbeat reply and fetches copies to make.  Each copy (unit) is a put that only the task can end: its range
 * on the target is allocated, and the source is pinned for the session that fetched it.  When the client
 * reports the same CRC as the object's, the version gets the new extent under its shard's lock; for a move, the
 * old extent is freed as soon as no client reads the object. When a session ends, so do its copies.  A copy
 * that is cancelled or takes too long ends at once for its task, but its range stays allocated until the client
 * has reported, because the client may still write there.
 *
 * The objects of a task are found when a client fetches copies, so a drain of millions of objects
 * needs no list.
 *
 * tasks.lock guards the tables (docs/LOCKING.md). */
#ifndef MCM_TASK_H
#define MCM_TASK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/list.h"
#include "common/sys/thread.h"
#include "master/space/evict.h"
#include "master/index/object.h"
#include "proto/msg.h"

struct mcm;
struct mcm_put;
struct mcm_segment;
struct mcm_session;

#define MCM_ID_TEXT 48
#define MCM_TASK_NAMES 1024		/* sources, or targets, of a task */
#define MCM_TASK_TARGETS 8		/* targets of a copy task */
#define MCM_TASK_FAILURES 1024		/* failed objects after which the task fails */
#define MCM_UNIT_TRIES 3
#define MCM_FETCH_MAX 64
#define MCM_FETCH_RANGES 2048		/* ranges of a segment that one part of a fetch visits */

/* Format an id as upstream does. */
const char *mcm_id_text(struct mcp_id id, char buf[MCM_ID_TEXT]);

struct mcm_task_name {
	uint64_t hash;
	char *name;
};

/* An object that could not be copied, and when to retry it. */
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
	unsigned done_targets;		/* copy task: bit i for target[i] */
	unsigned busy_targets;
	unsigned tries;			/* attempts to find room for the object's copy */
	uint64_t retry_ms;
	struct mcm_slice slice;		/* progress of evictions for its copies */
	uint64_t stuck_ms;		/* drain: since when no segment takes its objects; 0: one does */
	bool no_room;			/* drain: no segment had room for an object, and no copy has begun since */
	uint64_t turn;			/* eviction task: number of its last round */
	unsigned max_active;
	uint64_t created_ms, updated_ms;	/* wall clock */
	uint64_t began_ms;		/* the master's clock: begin of the wait for a client, or of a copy; its end */
	uint64_t succeeded, failed, blocked, bytes;
	uint64_t total, total_objects;	/* mcm_task_left() at the beginning */
	uint64_t lost;			/* drain: objects that were in its sources when these went */
	uint64_t given_up;		/* drain: copies that were dropped, since the objects have others */
	/* bytes that were done at measured_ms (0: no measurement yet), and the rate in bytes per second */
	uint64_t measured_ms, measured, rate;
	uint64_t held_ms;		/* drain: when an owner found only copies that readers hold; 0: it found more */
	uint64_t kept_ms, kept;		/* drain: time and count of its last durable value */
	unsigned active;		/* running copies, and other users that keep the struct allocated */
	bool drained;			/* successful drain whose sources still accept no objects */
	struct mcp_id client;
	struct mcm_task_failure *failure;
	unsigned n_failures;
	int error;
	char message[160];
};

/* A running copy.  Owned by its put, which points to it; listed in tasks.units. */
struct mcm_unit {
	struct mc_list link;
	struct mcm_task *task;		/* alive while it has units */
	struct mcm_session *session;	/* NULL: the session has ended, and its pins with it */
	uint64_t put;			/* generation of the put */
	uint64_t version;		/* generation of the object that is copied */
	uint64_t began_ms;
	uint64_t size;
	uint32_t slot;			/* pinned by the session */
	uint32_t crc;
	uint64_t pin;
	struct mcm_extent from, to;
	unsigned target;		/* copy task: index of the target */
	bool move;
	bool described;			/* the owner stores the object's key with the copy */
	uint16_t key_len;		/* length of that key */
	uint32_t hash;
	uint32_t tenant;		/* tenant of the object */
	uint64_t charged;		/* bytes charged to the tenant until the object has the replica */
};

struct mcm_tasks {
	struct mc_mutex lock;
	struct mc_list active, finished;	/* oldest first */
	struct mc_list units;			/* oldest first */
	unsigned n_pending, n_finished, n_units;
	unsigned n_active;			/* length of active; atomic, also read without the lock */
	uint64_t turn;				/* number of rounds of eviction tasks */
	/* Segments that went while they were drained; segments.lock.  A drain takes its own from here. */
	struct mcm_drain_loss {
		uint64_t name, objects;
	} *loss;
	unsigned n_losses;			/* atomic, also read without the lock */
	struct mc_stop stop;
	struct mc_thread thread;
	bool runs;
};

/* Parameters of a new task; names and key are borrowed. */
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

/* ---- requests of clients and operators; no lock held (task.c) ---- */

/* -MC_EPARAM, -MC_ENOOBJECT, -MC_ENOSEGMENT, -MC_EUNAVAILABLE (such a task is active), -MC_ELIMIT,
 * -ENOMEM. */
int mcm_task_create(struct mcm *m, const struct mcm_task_request *rq, struct mcp_id *ret);
/* A malloc'ed array of the names in a message, NULL if there are none; they are borrowed from it.
 * -MC_EPARAM: too many, -ENOMEM. */
int mcm_task_names_decode(const struct mcp_seq *list, struct mcp_bytes **ret, unsigned *ret_n);
/* -MC_ENOTASK. */
int mcm_task_cancel(struct mcm *m, struct mcp_id id, uint8_t *ret_status);
/* Call @fn for the task, or (@id zero) for all tasks, newest first, with tasks.lock held.
 * -MC_ENOTASK. */
int mcm_task_each(struct mcm *m, struct mcp_id id,
		  int (*fn)(void *arg, const struct mcm_task *t), void *arg);
struct mcm_task_left {
	uint64_t bytes, objects;
};
/* The use of the task's sources; of a task on one object: the copies yet to be made. */
struct mcm_task_left mcm_task_left(struct mcm *m, const struct mcm_task *t);
/* segments.lock held for writing: the segment goes; a drain must tell about its objects (task_drain.c). */
void mcm_drain_lost(struct mcm *m, const struct mcm_segment *s);
/* Create a task that gives a hot object another replica.  -MC_EUNAVAILABLE if a task of the object is active. */
int mcm_task_replicate(struct mcm *m, struct mcp_bytes key);

/* One period of the tasks' thread, which alone calls it: time-outs, evictions, ends of tasks. */
void mcm_tasks_tick(struct mcm *m);

/* ---- tasks across a restart (task_keep.c) ---- */

/* Restore the tasks after the journal was read. */
void mcm_tasks_restore(struct mcm *m);
/* tasks.lock held: store the task's state as a durable value, or delete that value. */
void mcm_task_keep(struct mcm *m, const struct mcm_task *t);
void mcm_task_drop(struct mcm *m, struct mcp_id id);
/* Check that the task fits into a durable value if there is a journal; a task gets no more names
 * later.  -MC_ELIMIT, -ENOMEM. */
int mcm_task_can_be_kept(const struct mcm *m, const struct mcm_task *t);
/* Is this finished drain the last one that keeps some mounted segment from accepting objects? */
bool mcm_task_keeps_drained(struct mcm *m, const struct mcm_task *t);
/* No lock held: a new segment was mounted.  Drains that have emptied an earlier segment of its name
 * do not apply to it, unless another segment of the name is mounted and drained. */
void mcm_tasks_mounted(struct mcm *m, struct mcp_bytes name);
/* Add a stored task, before the master has threads (task.c).  -MC_EPARAM, -ENOMEM. */
int mcm_task_restore(struct mcm *m, const struct mcp_task *msg);

/* ---- copies (task_plan.c, task_unit.c) ---- */

/* Begin up to @max copies for the client of session @s; returns their number.  One call visits and
 * evicts only so much that other threads do not wait long for tasks.lock.  *ret_more: it found no
 * copy within that limit; the next call continues there. */
unsigned mcm_task_fetch(struct mcm *m, struct mcm_session *s, unsigned max, struct mcp_copy *ret,
			struct mcp_replica *ret_from, struct mcp_replica *ret_to, bool *ret_more);
/* The client reports the end of a copy.  -MC_ESTALE_PUT: unknown, or not fetched over @s; otherwise
 * the reason why the copy is not used. */
int mcm_task_copied(struct mcm *m, const struct mcm_session *s, const struct mcp_copied *c);
/* For task_plan.c: count the begin of a copy, or its failure. */
void mcm_unit_started(bool move, int result);
/* For put.c: the unit was revoked, or its put aborted, because the session ended or for another reason; the put has the
 * range. */
void mcm_unit_revoked(struct mcm *m, struct mcm_unit *u, bool session_ended);
/* The session has no more puts, and drops its pins next. */
void mcm_tasks_session_gone(struct mcm *m, const struct mcm_session *s);

/* Is segment @s (NULL: any segment) so much fuller than the average that objects should be moved away? */
bool mcm_rebalance_wanted(struct mcm *m, const struct mcm_segment *s);

/* ---- shared by the task files ---- */

/* No lock held: one round of all eviction tasks (task_evict.c).  For the tasks' thread. */
void mcm_tasks_evict(struct mcm *m);
/* The next mounted source after position *@i, which it advances; NULL at the end. */
struct mcm_segment *mcm_task_next_source(struct mcm *m, const struct mcm_task *t, unsigned *i);

/* tasks.lock held for these: */

/* Move task whose target already has a replica: only remove the source. */
void mcm_task_move_within(struct mcm *m, struct mcm_task *t, uint32_t slot, uint64_t generation,
			  struct mcm_extent from);
void mcm_unit_unmark(struct mcm *m, const struct mcm_unit *u);
bool mcm_task_names(const struct mcm_task_name *names, unsigned n, uint64_t hash);
void mcm_task_end(struct mcm *m, struct mcm_task *t, uint8_t status, int error, const char *why);
/* Record that an object could not be copied. */
void mcm_task_object_failed(struct mcm *m, struct mcm_task *t, uint64_t generation, int why);
/* May this object be tried or retried now? */
bool mcm_task_object_due(const struct mcm *m, const struct mcm_task *t, uint64_t generation);

#endif
