/* SPDX-License-Identifier: Apache-2.0
 * masters.h - how a process finds the master: a list of addresses, or the store of a cluster of masters. */
#ifndef MCS_MASTERS_H
#define MCS_MASTERS_H

#include "proto/rpc_client.h"

struct mcs_masters;

/* Set the addresses in @conf from @text, the caller's setting, which must stay valid.  *ret must stay until the client
 * of @conf is closed; NULL for a list of addresses. */
int mcs_masters_open(const char *text, struct mcp_client_conf *conf, struct mcs_masters **ret);
/* Port of the HTTP server of the master that was found last, as the store names it; 0: unknown. */
int mcs_masters_http_port(const struct mcs_masters *m);
void mcs_masters_close(struct mcs_masters *m);		/* NULL is fine */

#endif
