/* SPDX-License-Identifier: Apache-2.0
 * client.h - who is connected, who owns memory, and who has fallen silent.
 *
 * A client is known as long as it has a connection or a segment.  Silence is measured on the master's
 * own clock (mcm_now_ms()), which stands still while the master does. */
#ifndef MCM_CLIENT_H
#define MCM_CLIENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "master/space/segment.h"
#include "proto/msg.h"

struct mcm;

#define MCM_CLIENT_BUCKETS 16384u

struct mcm_client {
	struct mcm_client *next;
	struct mcp_id id;
	char name[MCM_NAME_MAX + 1];
	bool registered;	/* has sent REGISTER to this master */
	bool hidden;		/* a segment of it may be silent; false: none is */
	unsigned sessions;
	struct mc_list segments;	/* what it owns; changed under the segments' lock too */
	uint64_t seen_ms;	/* ahead of now: it need not speak before */
	uint64_t told_ms;	/* it was asked for its next heartbeat after so long */
};

struct mcm_clients {
	pthread_mutex_t lock;
	unsigned count, owners;	/* those of them that have a segment */
	bool replaced;		/* segments are to be dropped when a restart's hold ends */
	struct mcm_client *bucket[MCM_CLIENT_BUCKETS];
};

void mcm_clients_init(struct mcm_clients *cs);
void mcm_clients_done(struct mcm_clients *cs);

/* A connection of client @id begins or ends.  An id of zero is nobody.  -ENOMEM. */
int mcm_client_opened(struct mcm *m, struct mcp_id id);
void mcm_client_closed(struct mcm *m, struct mcp_id id);

/* -MC_EPARAM for a bad name, -MC_EOWNER when the id belongs to a client of another name that is connected,
 * -ENOMEM. */
int mcm_client_register(struct mcm *m, const struct mcp_register *rq);
bool mcm_client_registered(struct mcm *m, struct mcp_id id);
/* A heartbeat; *@ret_ms gets when it is to send the next one.  True: the client has to register and mount
 * again. */
bool mcm_client_beat(struct mcm *m, struct mcp_id id, uint32_t *ret_ms);
/* Should it ask for copies to make? */
bool mcm_client_has_tasks(struct mcm *m, struct mcp_id id);
unsigned mcm_client_count(struct mcm *m);

/* ---- segments of clients ---- */

/* @sender: the client of the connection; it may only mount its own.  A mounted segment of the same epoch
 * is taken back with its objects, and grows when the request's size is larger.
 * -MC_EOWNER, -MC_ESEGMENT_EXISTS when it, its name or its memory belongs to a segment that is there,
 * -MC_EPARAM, -MC_ELIMIT, -ENOMEM. */
int mcm_mount(struct mcm *m, struct mcp_id sender, const struct mcp_mount *rq,
	      struct mcp_mount_reply *ret);
/* -MC_ENOSEGMENT, -MC_EOWNER. */
int mcm_unmount(struct mcm *m, struct mcp_id sender, struct mcp_id segment, uint64_t *ret_lost);

/* A segment of an earlier master: known, silent since now, waiting for its owner.  -MC_EPARAM, -ENOMEM. */
struct mcm_segment_record;
int mcm_segment_restore(struct mcm *m, const struct mcm_segment_record *rec);

/* ---- for liveness.c; clients' lock held, for the last one the segments' for writing too ---- */

struct mcm_client *mcm_client_find(struct mcm_clients *cs, struct mcp_id id);
/* Forget a client that has neither connection nor segment. */
void mcm_client_unneeded(struct mcm_clients *cs, struct mcm_client *c);
void mcm_client_drop_segment(struct mcm *m, struct mcm_segment *s);
/* Segments of processes in whose place @by's owner is now; while the hold of a restart lasts they are noted
 * only (mcm_clients.replaced).  Segments' lock for writing. */
void mcm_client_drop_replaced(struct mcm *m, const struct mcm_segment *by);

/* ---- the monitor (liveness.c) ---- */

/* The monitor is about to run: what went before was not for clients to be measured by. */
void mcm_clock_start(struct mcm *m);
/* Notice how long the master itself stood still.  Called with a period of mcm_tick_ms(). */
void mcm_clock_tick(struct mcm *m);
uint64_t mcm_tick_ms(const struct mcm *m);
/* How often owners of segments are asked to send one; how often so many would be. */
uint64_t mcm_heartbeat_ms(const struct mcm *m);
uint64_t mcm_heartbeat_of(const struct mcm *m, unsigned owners);
/* The same for clients that own nothing: never more often than owners. */
uint64_t mcm_heartbeat_idle_ms(const struct mcm *m);
uint64_t mcm_heartbeat_idle_of(const struct mcm *m, unsigned clients);
/* After it: segments of silent clients stop being served, those of long forgotten ones go; the hold of a
 * restart ends. */
void mcm_liveness_tick(struct mcm *m);

#endif
