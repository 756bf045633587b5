/* SPDX-License-Identifier: Apache-2.0
 * client.h - the known clients.
 *
 * A client is known while it has a connection or a segment.  Silence is measured on the master's
 * own clock (mcm_now_ms()), which stops while the master is stopped. */
#ifndef MCM_CLIENT_H
#define MCM_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sys/lock.h"

#include "master/space/segment.h"
#include "proto/msg.h"

struct mcm;

#define MCM_CLIENT_BUCKETS 16384u

struct mcm_client {
	struct mcm_client *next;
	struct mcp_id id;
	char name[MCM_NAME_MAX + 1];
	char host[MCM_NAME_MAX + 1];	/* where it registered from */
	bool registered;	/* has sent REGISTER to this master */
	bool hidden;		/* a segment of this client may be silent; false: none is */
	bool suspected, offline;	/* states of the client that were counted (liveness.h) */
	unsigned sessions;
	struct mc_list segments;	/* owned by the client; changed under the segments' lock too */
	uint64_t seen_ms;	/* last heartbeat; in the future: the next heartbeat is not due before */
	uint64_t confirm_due_ms;	/* it must compare objects of a snapshot before (snapshot/confirm.h) */
	uint64_t beat_ms;	/* heartbeat interval in the last reply to the client */
	unsigned fence_turn;	/* which of its segments comes first in the next list of orders (quarantine.h) */
};

struct mcm_clients {
	struct mc_mutex lock;
	unsigned count, owners;	/* clients; clients that have a segment */
	bool pauses;		/* a client has paused a segment; atomic */
	bool replaced;		/* drop replaced segments when the grace period of a restart ends */
	struct mcm_client *bucket[MCM_CLIENT_BUCKETS];
};

void mcm_clients_init(struct mcm_clients *cs);
void mcm_clients_done(struct mcm_clients *cs);

/* A connection of client @id begins or ends.  No client has the id zero.  -ENOMEM. */
int mcm_client_opened(struct mcm *m, struct mcp_id id);
/* The connection has proved @identity.  A node that shows a credential of a newer secret has read it again, maybe over
 * another connection than that of its mounts: tickets for its data port are made with that secret from now on. */
void mcm_client_identified(struct mcm *m, struct mcp_id id, const struct mc_principal *identity);
void mcm_client_closed(struct mcm *m, struct mcp_id id);

/* @host: where the connection comes from.  -MC_EPARAM for a bad name, -MC_EOWNER when the id
 * belongs to a connected client with another name or at another address, -MC_ENOCLIENT. */
int mcm_client_register(struct mcm *m, const struct mcp_register *rq, struct mcp_bytes host);
bool mcm_client_registered(struct mcm *m, struct mcp_id id);
unsigned mcm_client_count(struct mcm *m);

/* ---- clients' lock held ---- */

struct mcm_client *mcm_client_find(struct mcm_clients *cs, struct mcp_id id);
/* Forget the client unless it has a connection or a segment. */
void mcm_client_unneeded(struct mcm_clients *cs, struct mcm_client *c);
/* The client, which is made if it is not known.  NULL: no memory. */
struct mcm_client *mcm_client_get(struct mcm *m, struct mcp_id id);
/* Add a segment to its owner's list; call the second one after a segment was removed from the list.  The segments' lock
 * for writing is held too. */
void mcm_client_own(struct mcm_clients *cs, struct mcm_client *c, struct mcm_segment *s);
void mcm_client_disowned(struct mcm_clients *cs, const struct mcm_client *c);

/* Refuse a text that cannot be printed into logs, metrics and JSON.  @name: the name of its field.  -MC_EPARAM. */
int mcm_client_check_text(const char *name, struct mcp_bytes text);

#endif
