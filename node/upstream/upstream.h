/* SPDX-License-Identifier: Apache-2.0
 * upstream.h - the node daemon's service for upstream's dummy clients: TCP for requests (wire.h, calls.h), and a unix
 * socket for the memory files that they share.  Only users that may use the daemon's own socket are served. */
#ifndef MCN_UP_UPSTREAM_H
#define MCN_UP_UPSTREAM_H

#include "node/node.h"

struct mcn_up;

struct mcn_up_conf {
	struct mcn *node;	/* has to stay until mcn_up_stop(); its users, its store */
	const char *host;	/* listen there besides 127.0.0.1; NULL, "" or a wildcard: not */
	int port;		/* TCP port, also in the name of the unix socket */
};

/* -EADDRINUSE: another process has the port or the name. */
int mcn_up_start(const struct mcn_up_conf *conf, struct mcn_up **ret);
/* Closes all connections and waits for their running calls.  NULL is allowed. */
void mcn_up_stop(struct mcn_up *up);

const char *mcn_up_address(const struct mcn_up *up);	/* "127.0.0.1:50052" */

#endif
