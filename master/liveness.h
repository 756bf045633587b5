/* SPDX-License-Identifier: Apache-2.0
 * liveness.h - heartbeats, and segments whose owner is silent. */
#ifndef MCM_LIVENESS_H
#define MCM_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/msg.h"

struct mcm;

/* Process a heartbeat.  *@ret_ms gets the time until the client's next one.  True: the client must
 * register and mount again. */
bool mcm_client_beat(struct mcm *m, struct mcp_id id, uint32_t *ret_ms);
/* Note the orders that the client confirms, and copy those that it has to carry out to @ret; their number. */
unsigned mcm_client_fences(struct mcm *m, struct mcp_id id, const struct mcp_seq *confirmed,
			   struct mcp_fence ret[MCP_FENCES_MAX]);
/* The client says of which of its segments the device does not work: of these, and of no others. */
void mcm_client_pauses(struct mcm *m, struct mcp_id id, const struct mcp_seq *paused);
/* Should the client fetch copies to make? */
bool mcm_client_has_tasks(struct mcm *m, struct mcp_id id);

/* Clients by state: active; suspected, whose segments are hidden; offline, for which they are hidden for longer than
 * client_suspicion_ttl_sec. */
struct mcm_liveness {
	unsigned active, suspected, offline;
};

struct mcm_liveness mcm_liveness_counts(struct mcm *m);

/* The file in a shared directory, after @skip others, whose owner was silent for root_fs_adopt_ttl, or ended that long
 * ago; no segment in *ret: there is none.  Only one of @tenant, the node's that asks (mcm_mount_tenant()). */
void mcm_orphan(struct mcm *m, uint16_t tenant, unsigned skip, struct mcp_orphan_reply *ret);

/* ---- the monitor thread ---- */

/* Call after mcm_clock_tick(): hide segments of silent owners, drop segments that were hidden for
 * too long, end the grace period of a restart. */
void mcm_liveness_tick(struct mcm *m);

#endif
