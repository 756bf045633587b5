/* SPDX-License-Identifier: Apache-2.0
 * leader.h - the client's side of seat.h: the address of the master that leads, read from etcd or Redis.
 *
 * Threads: one at a time for each object. */
#ifndef MCD_LEADER_H
#define MCD_LEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mcd_leader;

/* Does @addrs name a store with leases (etcd://..., redis://...), and not masters? */
bool mcd_leader_is_store(const char *addrs);
/* No network traffic.  The cluster is MC_STORE_CLUSTER_ID, or the masters' default.  -EINVAL with a detail. */
int mcd_leader_open(const char *conn, struct mcd_leader **ret);
/* NULL is fine. */
void mcd_leader_close(struct mcd_leader *l);
/* *ret_http_port: of the leader's HTTP server, 0: the leader does not name it.  -ENOENT: no master leads now; errors of
 * meta.h. */
int mcd_leader_find(struct mcd_leader *l, char *ret, size_t size, int *ret_http_port, uint64_t deadline);

#endif
