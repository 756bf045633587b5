/* SPDX-License-Identifier: Apache-2.0
 * masters.c - how a process finds the master. */
#include <config.h>

#include "client/session/masters.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "meta/leader.h"

struct mcs_masters {
	struct mcd_leader *leader;
	int http_port;			/* atomic: of the leader that was found last, 0: unknown */
};

/* A client has one connecting thread at a time, so this runs on one thread. */
static int masters_find(void *arg, char *ret, size_t size, uint64_t deadline)
{
	struct mcs_masters *m = arg;
	int port = 0, r = mcd_leader_find(m->leader, ret, size, &port, deadline);

	if (r == 0)
		__atomic_store_n(&m->http_port, port, __ATOMIC_RELAXED);

	/* All of them may pass: the store comes back, a master begins to lead. */
	return r < 0 && r != -ENOMEM ? mc_fail(-MC_ERPC, "%s", strdupa(mc_err_detail(r))) : r;
}

int mcs_masters_open(const char *text, struct mcp_client_conf *conf, struct mcs_masters **ret)
{
	struct mcs_masters *m;
	int r;

	*ret = NULL;
	conf->addrs = text;
	if (!mcd_leader_is_store(text))
		return 0;
	m = calloc(1, sizeof(*m));
	if (!m)
		return mc_fail(-ENOMEM, "no memory for the address of a master");
	r = mcd_leader_open(text, &m->leader);
	if (r < 0) {
		free(m);
		return r == -EINVAL ? mc_fail(-MC_EPARAM, "%s", strdupa(mc_err_detail(r))) : r;
	}
	conf->find = masters_find;
	conf->find_arg = m;
	*ret = m;
	return 0;
}

int mcs_masters_http_port(const struct mcs_masters *m)
{
	return m ? __atomic_load_n(&m->http_port, __ATOMIC_RELAXED) : 0;
}

void mcs_masters_close(struct mcs_masters *m)
{
	if (!m)
		return;
	mcd_leader_close(m->leader);
	free(m);
}
