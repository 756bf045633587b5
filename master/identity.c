/* SPDX-License-Identifier: Apache-2.0
 * identity.c - identities of the peers of the master's RPC service. */
#include <config.h>

#include "master/identity.h"

#include <errno.h>

#include "common/err.h"
#include "common/net/stream.h"
#include "common/security/uids.h"
#include "master/mcm_i.h"
#include "master/security/security.h"

static int identity_parse(const struct mcm_conf *c, struct mc_uids **ret)
{
	if (!*c->rpc_socket_uids)
		return 0;
	if (!*c->rpc_socket)
		return mc_fail(-EINVAL, "rpc_socket_uids=%s: there is no rpc_socket to which it applies",
			       c->rpc_socket_uids);
	return mc_uids_parse("rpc_socket_uids", c->rpc_socket_uids,
			     MC_ROLE_READER | MC_ROLE_CLIENT | MC_ROLE_NODE | MC_ROLE_ADMIN, ret);
}

int mcm_identity_check(const struct mcm_conf *c)
{
	struct mc_uids *uids = NULL;
	int r = identity_parse(c, &uids);

	mc_uids_free(uids);
	return r;
}

int mcm_identity_init(struct mcm *m)
{
	return identity_parse(&m->conf, &m->uids);
}

void mcm_identity_done(struct mcm *m)
{
	mc_uids_free(m->uids);
	m->uids = NULL;
}

int mcm_identify(const struct mc_stream_peer *peer, struct mc_principal *ret, void *arg)
{
	const struct mcm *m = arg;

	if (peer->local && m->uids)
		return mc_uids_find(m->uids, (uint32_t)peer->uid, ret);
	return m->security ? mcm_security_identify(peer, ret, m->security) : 0;
}
