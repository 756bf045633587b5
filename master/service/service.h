/* SPDX-License-Identifier: Apache-2.0
 * service.h - the master's RPC service: sessions and the table of handlers. */
#ifndef MCM_SERVICE_H
#define MCM_SERVICE_H

#include "proto/rpc_server.h"

/* Ends with type 0; the handlers' argument is the struct mcm. */
extern const struct mcp_handler mcm_handlers[];
extern const uint16_t mcm_any_channel[];	/* message types that the heartbeat channel accepts too */

int mcm_session_opened(struct mcp_session *s, void *arg);
void mcm_session_closed(struct mcp_session *s, void *arg);
/* Does the session have a registered client or pins? */
bool mcm_session_keeps(struct mcp_session *s, void *arg);

#endif
