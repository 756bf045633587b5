/* SPDX-License-Identifier: Apache-2.0
 * node.c - is there a daemon, and is it the right one? */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/daemon/daemon_i.h"
#include "common/cleanup.h"
#include "common/log.h"
#include "common/thread.h"

#define BUFFER_DEFAULT ((uint64_t)16 << 20)
#define SPIN_US 10		/* where the caller says nothing; sleeping and waking takes about that */

/* "PORT", "HOST:PORT" and "unix:PATH" as a socket's address. */
static int address_of(const char *text, char *ret, size_t size)
{
	char host[MC_ADDR_MAX];
	int port = 0, n;
	char *end;

	if (!strncmp(text, "unix:", 5)) {
		n = snprintf(ret, size, "%s", text);
	} else {
		port = (int)strtol(text, &end, 10);
		if ((*end || end == text) &&
		    mc_addr_split(text, host, sizeof(host), MCFS_SOCKET_PORT, &port) < 0)
			return -MC_EPARAM;
		if (port < 1 || port > 65535)
			return mc_fail(-MC_EPARAM, "%s: no port of a node daemon", text);
		n = snprintf(ret, size, "unix:@" MCFS_SOCKET_FORMAT, port);
	}
	return n < (int)size ? 0 : mc_fail(-MC_EPARAM, "the daemon's address is too long");
}

static int open_at(const struct mcs_conf *conf, const char *where, bool found, struct mcs_daemon **ret)
{
	struct mcs_daemon *n = calloc(1, sizeof(*n));
	struct mcs_daemon_conn *c;
	int r;

	if (!n)
		return -ENOMEM;
	pthread_mutex_init(&n->lock, NULL);
	(void)mc_cond_init(&n->changed);
	n->fork_depth = mc_fork_depth;
	n->found = found;
	n->spin_us = sysconf(_SC_NPROCESSORS_ONLN) < 2 ? 0 : conf->spin_us ? conf->spin_us : SPIN_US;
	n->bounce_size = conf->daemon_buffer ? conf->daemon_buffer : BUFFER_DEFAULT;
	n->pool_size = conf->daemon_pool;
	r = address_of(where, n->addr, sizeof(n->addr));
	if (r == 0)
		r = mcs_daemon_mem_open(n);
	if (r == 0)
		r = mcs_daemon_conn_get(n, MC_NEVER, &c);
	if (r < 0) {
		mcs_daemon_close(n);
		return r;
	}
	mcs_daemon_conn_put(c);
	*ret = n;
	return 1;
}

int mcs_daemon_open(const struct mcs_conf *conf, struct mcs_daemon **ret)
{
	const char *say = conf->daemon && *conf->daemon ? conf->daemon :
		conf->segment_size ? "off" : "auto";
	bool found = !strcmp(say, "auto");
	char port[16];
	int r;

	if (!strcmp(say, "off"))
		return 0;
	if (conf->segment_size || *conf->tenant)
		return found ? 0 : mc_fail(-MC_EPARAM, "who contributes memory or has a tenant of "
					   "its own does not go through the node's daemon");
	if (found && (conf->force_tcp || !strncmp(conf->master, "local:", 6)))
		return 0;
	(void)snprintf(port, sizeof(port), "%d", MCFS_SOCKET_PORT);
	r = open_at(conf, found ? port : say, found, ret);
	if (r < 0)
		return found ? 0 : r;
	if (found && (strcmp((*ret)->master, conf->master) || *(*ret)->tenant)) {
		mcs_daemon_close(TAKE_PTR(*ret));
		return 0;
	}
	mc_debug("client", "going through the node's daemon address=%s", (*ret)->addr);
	return 1;
}

void mcs_daemon_close(struct mcs_daemon *n)
{
	if (!n || mc_fork_check(n->fork_depth) < 0)
		return;
	mcs_daemon_conn_put(n->conn);
	mcs_daemon_mem_close(n);
	pthread_cond_destroy(&n->changed);
	pthread_mutex_destroy(&n->lock);
	free(n);
}

const char *mcs_daemon_master(const struct mcs_daemon *n)
{
	return n->master;
}

const char *mcs_daemon_hostname(const struct mcs_daemon *n)
{
	return n->hostname;
}

const char *mcs_daemon_tenant(const struct mcs_daemon *n)
{
	return n->tenant;
}

const char *mcs_daemon_address(const struct mcs_daemon *n)
{
	return n->addr;
}

bool mcs_daemon_found(const struct mcs_daemon *n)
{
	return n->found;
}

bool mcs_daemon_up(struct mcs_daemon *n)
{
	struct mcs_daemon_conn *c;
	bool up = mcs_daemon_conn_get(n, mc_now_ns(), &c) == 0;

	if (up && mcs_daemon_conn_gone(c)) {
		mcs_daemon_conn_put(c);
		up = mcs_daemon_conn_get(n, mc_now_ns(), &c) == 0;
	}
	if (up)
		mcs_daemon_conn_put(c);
	return up;
}
