/* SPDX-License-Identifier: Apache-2.0
 * port.h - listening on a port of upstream's range. */
#ifndef MCE_PORT_H
#define MCE_PORT_H

/* MC_MIN_RPC_PORT and MC_MAX_RPC_PORT; 15000 and 17000 if they are not set or the first is above the second. */
void mce_port_range(int *ret_min, int *ret_max);
/* Listen on a free port of that range, chosen at random as upstream does, or on @port if it is not 0.  The
 * descriptor, or negative. */
int mce_port_listen(const char *host, int port, int backlog, int *ret_port);

#endif
