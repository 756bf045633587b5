/* SPDX-License-Identifier: Apache-2.0
 * heartbeat.h - heartbeats to the master: a thread and a connection of their own, so that no
 * other request can delay them. */
#ifndef MCS_HEARTBEAT_H
#define MCS_HEARTBEAT_H

#include <stdbool.h>
#include <stdint.h>

struct mcs_direct;
struct mcs_heartbeat;

int mcs_heartbeat_start(struct mcs_direct *s, struct mcs_heartbeat **ret);
void mcs_heartbeat_stop(struct mcs_heartbeat *h);	/* NULL is fine */
/* Was the last heartbeat answered? */
bool mcs_heartbeat_ok(const struct mcs_heartbeat *h);

#endif
