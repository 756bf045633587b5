/* SPDX-License-Identifier: Apache-2.0
 * capability.h - capabilities for ranges of segments (common/security/capability.h), with --security=on.
 *
 * The owner of a segment tells its key with each MOUNT.  So the key is only in memory: after a restart, or in another
 * leader, no object of the segment is readable before its owner has mounted it again, and told the key.
 *
 * A capability to read lasts longer than the lease that was granted with it, by READ_GRACE_MS, or for
 * MCP_CAPABILITY_HELD_S if the object is held.  A reader that keeps its pin for longer asks for a new one
 * (CAPABILITIES, or GET again).  Until it expires, a hostile reader that has released its pin can read the range, also
 * if that belongs to another object of the tenant by then.
 *
 * A capability to write lasts three quarters of put_start_release_timeout.  An unfinished put keeps its range for the
 * whole timeout; clients write for at most half of it (client/direct/put_steps.c).  Until it expires, a hostile writer
 * that has ended its put can write to the range, also if that belongs to another object of the tenant by then. */
#ifndef MCM_CAPABILITY_H
#define MCM_CAPABILITY_H

#include <stdint.h>

#include "proto/msg.h"

struct mc_principal;
struct mcm;

/* Add capabilities for @holder (NULL: no credential) to the replicas of @n objects that were pinned for it with @flags,
 * MCP_GET_*.  The lists are arrays.  No lock held, as below. */
void mcm_capabilities_read(struct mcm *m, const struct mc_principal *holder, uint32_t flags, struct mcp_object *obj,
			   unsigned n);
/* Add those to write to the replicas of a granted put of @size bytes. */
void mcm_capabilities_write(struct mcm *m, const struct mc_principal *holder, const struct mcp_put_grant *grant,
			    uint64_t size);
/* Add those to read and to write to the two replicas of each copy. */
void mcm_capabilities_copy(struct mcm *m, const struct mc_principal *holder, struct mcp_copy *copy, unsigned n);
/* The time of the master, by which they expire; 0 without security. */
uint64_t mcm_capability_time(const struct mcm *m);

#endif
