/* SPDX-License-Identifier: Apache-2.0
 * standalone.c - a master inside this process, reached without a network. */
#include <config.h>

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/err.h"
#include "common/log.h"
#include "master/master.h"
#include "mcfs/life/guard.h"
#include "mcfs/mcfs.h"

struct mcfs_standalone {
	struct mcm_conf conf;
	struct mc_options *options;
	struct mcm *master;
	char addr[64];
	char dir[PATH_MAX];		/* the socket's directory; empty: none */
	char public_addr[PATH_MAX + 16];
};

/* A master does not authenticate its clients: keep its socket in a directory that only our own user
 * and root can enter. */
static int make_dir(struct mcfs_standalone *s)
{
	const char *tmp = getenv("TMPDIR");

	(void)snprintf(s->dir, sizeof(s->dir) - 8, "%s/mcfs-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	if (!mkdtemp(s->dir)) {
		s->dir[0] = '\0';
		return -errno;
	}
	(void)snprintf(s->public_addr, sizeof(s->public_addr), "unix:%s/master", s->dir);
	mcfs_guard_socket(s->public_addr + 5);
	/* Limit of a socket's path (sun_path). */
	return strlen(s->public_addr) - 5 < 108 ? 0 : -ENAMETOOLONG;
}

int mcfs_standalone_start(struct mcfs_standalone **ret, const char **ret_addr, const char **ret_public)
{
	struct mcfs_standalone *s = calloc(1, sizeof(*s));
	const char *addrs[2] = { NULL, NULL };
	struct mcm_listen where = { .addrs = addrs };
	int r;

	if (!s)
		return -ENOMEM;
	(void)snprintf(s->addr, sizeof(s->addr), "local:mcfs-%d", (int)getpid());
	where.local_name = s->addr + sizeof("local:") - 1;
	r = make_dir(s);
	if (r < 0)
		mc_warn("mcfs", "local programs cannot list or rename: cannot create the master's socket "
			"below %s: %s", s->dir, mc_strerror(r));
	else
		addrs[0] = s->public_addr;
	r = mcm_conf_defaults(&s->conf, &s->options);
	if (r < 0)
		goto fail;
	r = mcm_start(&s->conf, &where, &s->master);
	if (r < 0)
		goto fail;
	*ret = s;
	*ret_addr = s->addr;
	*ret_public = addrs[0] ? addrs[0] : s->addr;
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
	if (s->dir[0]) {
		(void)unlink(s->public_addr + 5);
		(void)rmdir(s->dir);
	}
	mc_options_free(s->options);
	free(s);
}
