/* SPDX-License-Identifier: Apache-2.0
 * identity.h - identities of the peers of the master's RPC service. */
#ifndef MCM_IDENTITY_H
#define MCM_IDENTITY_H

struct mc_principal;
struct mc_stream_peer;
struct mcm;
struct mcm_conf;

/* -EINVAL: rpc_socket_uids is malformed, or has no socket to apply to. */
int mcm_identity_check(const struct mcm_conf *c);
/* Parse the option of @m; mcm_identity_done() frees the result.  As mcm_identity_check(); -ENOMEM. */
int mcm_identity_init(struct mcm *m);
void mcm_identity_done(struct mcm *m);
/* For mcp_server_conf.identify; @master is a struct mcm.  -EACCES: rpc_socket_uids does not name the user. */
int mcm_identify(const struct mc_stream_peer *peer, struct mc_principal *ret, void *master);

#endif
