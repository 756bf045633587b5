/* SPDX-License-Identifier: Apache-2.0
 * heartbeat.h - the intervals in which clients send heartbeats: longer with many clients. */
#ifndef MCM_HEARTBEAT_H
#define MCM_HEARTBEAT_H

#include <stdint.h>

struct mcm;

/* Heartbeat interval of clients that own segments: the current one, and the one for that many owners. */
uint64_t mcm_heartbeat_ms(const struct mcm *m);
uint64_t mcm_heartbeat_of(const struct mcm *m, unsigned owners);
/* The same for clients without segments: never shorter than that of owners. */
uint64_t mcm_heartbeat_idle_ms(const struct mcm *m);
uint64_t mcm_heartbeat_idle_of(const struct mcm *m, unsigned clients);

#endif
