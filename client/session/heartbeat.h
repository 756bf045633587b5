/* SPDX-License-Identifier: Apache-2.0
 * heartbeat.h - tell the master that this process lives: own thread, own connection, so that
 * nothing else can delay it. */
#ifndef MCS_HEARTBEAT_H
#define MCS_HEARTBEAT_H

#include <stdbool.h>
#include <stdint.h>

struct mcs_direct;
struct mcs_heartbeat;

int mcs_heartbeat_start(struct mcs_direct *s, struct mcs_heartbeat **ret);
void mcs_heartbeat_stop(struct mcs_heartbeat *h);	/* NULL is fine */
/* Did the last one get its answer? */
bool mcs_heartbeat_ok(const struct mcs_heartbeat *h);

#endif
