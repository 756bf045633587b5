/* SPDX-License-Identifier: Apache-2.0
 * journal_auto.c - the journal's directory without an option: one per RPC port. */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/sys/file.h"
#include "master/conf.h"
#include "master/journal/journal_i.h"

#define LOG "journal"

/* The directory below which programs keep their state.  XDG_STATE_HOME counts for root too, so that an environment can
 * direct all state elsewhere. */
static int state_home(char *ret, size_t len)
{
	const char *xdg = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	int n;

	/* The specification of XDG base directories ignores relative paths. */
	if (xdg && *xdg == '/')
		n = snprintf(ret, len, "%s", xdg);
	else if (geteuid() == 0)
		n = snprintf(ret, len, "/var/lib");
	else if (home && *home == '/')
		n = snprintf(ret, len, "%s/.local/state", home);
	else
		return mc_fail(-ENOENT, "neither XDG_STATE_HOME nor HOME is set");
	return n < 0 || (size_t)n >= len ? mc_fail(-ENAMETOOLONG, "the path of the state directory is too long") : 0;
}

/* Create the parents of @path; the journal creates @path itself. */
static int make_parents(char *path)
{
	char *at = path;

	while ((at = strchr(at + 1, '/'))) {
		int r;

		*at = 0;
		r = mc_file_mkdir(path, 0700) < 0 && errno != EEXIST ? mc_fail(-errno, "cannot create %s", path) : 0;
		*at = '/';
		if (r < 0)
			return r;
	}
	return 0;
}

static int auto_dir(const struct mcm_conf *conf, char path[MCM_JOURNAL_PATH_MAX])
{
	int64_t port = conf->rpc_port ? conf->rpc_port : conf->port;
	auto_file int dir = -1, lock = -1;
	size_t len;
	int r;

	if (!port)
		return mc_fail(-EINVAL, "the RPC port changes with each start");
	r = state_home(path, MCM_JOURNAL_PATH_MAX - 32);
	if (r < 0)
		return r;
	len = strlen(path);
	snprintf(path + len, MCM_JOURNAL_PATH_MAX - len, "/mooncake/%lld", (long long)port);
	r = make_parents(path);
	/* Try it.  The start locks it again. */
	return r < 0 ? r : mcm_journal_dir_open(path, &dir, &lock);
}

void mcm_journal_auto(struct mcm_conf *conf, char path[MCM_JOURNAL_PATH_MAX])
{
	const char *dir;
	int r;

	if (strcmp(conf->journal_dir, "auto") != 0 || mcm_journal_wanted(conf, &dir) > 0)
		return;
	r = auto_dir(conf, path);
	if (r == 0) {
		conf->journal_dir = path;
		return;
	}
	mc_warn(LOG, "running without a journal, a restart of this master loses all objects of the pool: %s "
		"(set journal_dir to a directory, or to none)", mc_err_detail(r));
	snprintf(path, MCM_JOURNAL_PATH_MAX, "none");
	conf->journal_dir = path;
}
