/* SPDX-License-Identifier: Apache-2.0
 * kv_events_zmq.h - a ZeroMQ PUB socket.  libzmq is loaded only when a socket is opened. */
#ifndef MCM_KV_EVENTS_ZMQ_H
#define MCM_KV_EVENTS_ZMQ_H

#include <stdbool.h>
#include <stddef.h>

#include "master/admin/kv_events_curve.h"

struct mcm_zmq;

/* Open a socket and bind it to @endpoint (zmq_tcp(7), zmq_ipc(7)).  @curve: encrypt, and admit only its subscribers;
 * their file is read again for each new connection.  NULL: any host may subscribe.  Not thread-safe: used by the
 * opening thread, then by one other. */
int mcm_zmq_open(const char *endpoint, const struct mcm_kv_curve *curve, struct mcm_zmq **ret);
/* Wait up to @linger_ms until sent messages have left.  NULL is fine. */
void mcm_zmq_close(struct mcm_zmq *z, int linger_ms);
/* The bound endpoint, with the real port if it was given as *. */
const char *mcm_zmq_endpoint(const struct mcm_zmq *z);
/* The public key of the socket in Z85, "": it does not encrypt. */
const char *mcm_zmq_public(const struct mcm_zmq *z);
/* Never waits: a slow subscriber loses the messages for which its queue has no room.  -errno. */
int mcm_zmq_send(struct mcm_zmq *z, const void *part, size_t len, bool more);

/* A new pair of keys in Z85.  -ENOENT: libzmq is missing; -ENOTSUP: it was built without CURVE; with a detail. */
int mcm_zmq_curve_pair(char ret_public[MCM_KV_CURVE_TEXT], char ret_secret[MCM_KV_CURVE_TEXT]);

#endif
