/* SPDX-License-Identifier: Apache-2.0
 * standalone.c - a master inside this process, reached without a network. */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "master/mcm.h"
#include "mcfs/mcfs.h"

struct mcfs_standalone {
	struct mcm_conf conf;
	struct mc_options *options;
	struct mcm *master;
	char addr[64];
};

int mcfs_standalone_start(struct mcfs_standalone **ret, const char **ret_addr)
{
	struct mcfs_standalone *s = calloc(1, sizeof(*s));
	struct mcm_listen where = { 0 };
	int r;

	if (!s)
		return -ENOMEM;
	(void)snprintf(s->addr, sizeof(s->addr), "local:mcfs-%d", (int)getpid());
	where.local_name = s->addr + sizeof("local:") - 1;
	r = mcm_conf_defaults(&s->conf, &s->options);
	if (r < 0)
		goto fail;
	r = mcm_start(&s->conf, &where, &s->master);
	if (r < 0)
		goto fail;
	*ret = s;
	*ret_addr = s->addr;
	return 0;
fail:
	mcfs_standalone_stop(s);
	return r;
}

void mcfs_standalone_stop(struct mcfs_standalone *s)
{
	if (!s)
		return;
	mcm_stop(s->master);
	mc_options_free(s->options);
	free(s);
}
