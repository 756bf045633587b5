/* SPDX-License-Identifier: Apache-2.0
 * mount.h - mounting and unmounting of clients' segments. */
#ifndef MCM_MOUNT_H
#define MCM_MOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/principal.h"
#include "proto/msg.h"

struct mcm;
struct mcm_segment;
struct mcm_segment_record;

/* @sender: the client of the connection; it may mount only its own segments.  A segment that is
 * still known with the same epoch gets its objects back, and grows when the request has a larger
 * size.  -MC_EOWNER; -MC_ESEGMENT_EXISTS when the id, the name or the memory belongs to a served
 * segment; -MC_EPARAM, -MC_ELIMIT, -ENOMEM.
 *
 * With --security=on the segment serves the tenant of @peer, the default one for a peer of all tenants; -EACCES when it
 * has objects of another tenant; -MC_ESEGMENT_EXISTS when a known segment of another tenant has its name or endpoint,
 * or a connected node of another name its endpoint.  NULL: an identity without a tenant. */
int mcm_mount(struct mcm *m, struct mcp_id sender, const struct mc_principal *peer, const struct mcp_mount *rq,
	      struct mcp_mount_reply *ret);

/* The tenant that segments of @peer serve, as mcm_segment.tenant.  -EACCES, -MC_ENOTENANT. */
int mcm_mount_tenant(struct mcm *m, const struct mc_principal *peer, uint16_t *ret);

/* The node that serves the data port @endpoint, and may serve @peer: it has a segment of the peer's tenant.  Of several
 * the one that is connected; -EACCES if that does not tell.  -MC_ENOSEGMENT; -EACCES with a detail. */
struct mcm_node_identity {
	char name[MC_PRINCIPAL_NAME_MAX + 1];
	uint32_t secret;	/* number of the pool's secret of its credential */
};
int mcm_mount_node(struct mcm *m, struct mcp_bytes endpoint, const struct mc_principal *peer,
		   struct mcm_node_identity *ret);
/* -MC_ENOSEGMENT, -MC_EOWNER. */
int mcm_unmount(struct mcm *m, struct mcp_id sender, struct mcp_id segment, uint64_t *ret_lost);
/* The same, but a later owner may mount the segment again with its objects, as if this owner had fallen silent. */
int mcm_unmount_keep(struct mcm *m, struct mcp_id sender, struct mcp_id segment);

/* Add a segment that the journal knows: silent from now on, until its owner mounts it.  @unproven: its objects may have
 * changed (snapshot/confirm.h).  -MC_EPARAM, -ENOMEM. */
int mcm_segment_restore(struct mcm *m, const struct mcm_segment_record *rec, bool unproven);

/* ---- clients' lock and the segments' lock for writing held ---- */

void mcm_client_drop_segment(struct mcm *m, struct mcm_segment *s);
/* Drop the segments of processes that @by's owner has replaced; during the grace period of a
 * restart only remember that there are some (mcm_clients.replaced). */
void mcm_client_drop_replaced(struct mcm *m, const struct mcm_segment *by);

#endif
