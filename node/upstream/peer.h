/* SPDX-License-Identifier: Apache-2.0
 * peer.h - the user of the process at the other end of a TCP connection. */
#ifndef MCN_UP_PEER_H
#define MCN_UP_PEER_H

#include <stdio.h>
#include <sys/types.h>

#include "common/net/stream.h"

/* The user that made the peer's socket, as the kernel knows it in this network namespace.  -EACCES: the peer is not a
 * process of this host and namespace, or has closed its socket already.  Any thread. */
int mcn_up_peer_uid(const struct mc_stream *s, uid_t *ret);

/* The same in a table of the form of /proc/net/tcp or tcp6: the connected socket whose own and remote address, as that
 * table writes them, are these.  0, or -ENOENT. */
int mcn_up_peer_find(FILE *table, const char *own, const char *remote, uid_t *ret);

#endif
