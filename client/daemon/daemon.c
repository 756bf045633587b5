/* SPDX-License-Identifier: Apache-2.0
 * daemon.c - find the daemon that a handle uses, open and close its back end, and the table of operations. */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/daemon/daemon_i.h"
#include "client/session/security.h"
#include "common/cleanup.h"
#include "common/log.h"
#include "common/net/net.h"
#include "common/sys/random.h"
#include "common/sys/thread.h"

#define BOUNCE_DEFAULT ((uint64_t)16 << 20)
#define SPIN_US 10		/* default: about the time of one sleep and wake-up */

/* "PORT", "HOST:PORT" or "unix:PATH" as a socket's address. */
static int daemon_address(const char *text, char *ret, size_t size)
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

/* ---- slots that are too small for a file of their own ---- */

static bool daemon_up(struct mcs_daemon *d)
{
	struct mcs_daemon_conn *c;
	bool up = mcs_daemon_conn_get(d, mc_now_ns(), &c) == 0;

	if (up && mcs_daemon_conn_gone(c)) {
		mcs_daemon_conn_put(c);
		up = mcs_daemon_conn_get(d, mc_now_ns(), &c) == 0;
	}
	if (up)
		mcs_daemon_conn_put(c);
	return up;
}

/* A configured daemon is the only way that the program wants.  A daemon that runs may answer
 * -MC_ERPC itself. */
static bool daemon_replaceable(struct mcs_backend *b)
{
	struct mcs_daemon *d = mcs_daemon_of(b);

	return d->found && !daemon_up(d);
}

static int daemon_health(struct mcs_backend *b)
{
	return daemon_up(mcs_daemon_of(b)) ? 0 : 2;
}

static int daemon_segment_grow(struct mcs_backend *b, uint64_t size, uint64_t deadline)
{
	return mc_fail(-EINVAL, "this process contributes no memory");
}

static int daemon_segment_fd(struct mcs_backend *b, uint64_t *ret_size)
{
	return mc_fail(-EINVAL, "this process contributes no memory");
}

static int daemon_disks_remove(struct mcs_backend *b, uint64_t deadline)
{
	return 0;
}

static int daemon_segment_identity(struct mcs_backend *b, uint64_t *identity)
{
	return mc_fail(-EINVAL, "this process contributes no memory");
}

/* The daemon does not see this memory, so its bytes are copied.  The list only detects overlaps. */
static int daemon_register_buffer(struct mcs_backend *b, void *buf, size_t len)
{
	struct mcs_daemon *d = mcs_daemon_of(b);

	if (mcs_buffers_overlap(&d->buffers, buf, len))
		return mc_fail(-EEXIST, "a buffer at %p is registered", buf);
	return mcs_buffers_add(&d->buffers, buf, len, NULL, false);
}

static int daemon_put_stream_open(struct mcs_backend *b, struct mcs_key key, uint64_t room,
				  const struct mcs_put_opts *opts, struct mcs_put_stream **ret, uint64_t deadline)
{
	return mc_fail(-MC_ENOTSUP, "the daemon takes no streams");
}

static void daemon_close(struct mcs_backend *b)
{
	mcs_daemon_close(mcs_daemon_of(b));
}

static const struct mcs_backend_ops daemon_ops = {
	.close = daemon_close,
	.replaceable = daemon_replaceable,
	.health = daemon_health,
	.segment_grow = daemon_segment_grow,
	.segment_fd = daemon_segment_fd,
	.segment_identity = daemon_segment_identity,
	.disks_remove = daemon_disks_remove,
	.register_buffer = daemon_register_buffer,
	.register_memfd = mcs_daemon_register_memfd,
	.unregister_buffer = mcs_daemon_unregister_buffer,
	.pool_alloc = mcs_daemon_pool_alloc,
	.pool_free = mcs_daemon_pool_free,
	.put_batch = mcs_daemon_put_batch,
	.put_stream_open = daemon_put_stream_open,
	.get_batch = mcs_daemon_get_batch,
	.find = mcs_daemon_find,
	.get_found = mcs_daemon_get_found,
	.stat = mcs_daemon_stat,
	.stat_batch = mcs_daemon_stat_batch,
	.exist = mcs_daemon_exist,
	.remove_batch = mcs_daemon_remove_batch,
	.prefetch = mcs_daemon_prefetch,
	.object_open = mcs_daemon_object_open,
	.stat_open = mcs_daemon_stat_open,
	.object_read = mcs_daemon_object_read,
	.object_read_start = mcs_daemon_object_read_start,
	.object_map = mcs_daemon_object_map,
	.object_held = mcs_daemon_object_held,
	.object_offset = mcs_daemon_object_offset,
	.object_verify = mcs_daemon_object_verify,
	.object_close = mcs_daemon_object_close,
	.map_batch = mcs_daemon_map_batch,
};

/* ---- open and close ---- */

static int daemon_open_at(const struct mcs_conf *conf, const char *where, bool found, struct mcs_daemon **ret)
{
	struct mcs_daemon *d = calloc(1, sizeof(*d));
	struct mcs_daemon_conn *c;
	int r;

	if (!d)
		return -ENOMEM;
	mc_mutex_init(&d->lock);
	(void)mc_cond_init(&d->changed);
	mcs_buffers_init(&d->buffers);
	d->base.ops = &daemon_ops;
	d->fork_depth = mc_fork_depth;
	d->found = found;
	d->spin_us = sysconf(_SC_NPROCESSORS_ONLN) < 2 ? 0 : conf->spin_us ? conf->spin_us : SPIN_US;
	d->bounce_size = conf->daemon_buffer ? conf->daemon_buffer : BOUNCE_DEFAULT;
	d->pool_size = conf->daemon_pool;
	r = daemon_address(where, d->addr, sizeof(d->addr));
	if (r == 0)
		r = mcs_daemon_mem_open(d);
	if (r == 0)
		r = mcs_daemon_conn_get(d, MC_NEVER, &c);
	if (r < 0) {
		mcs_daemon_close(d);
		return r;
	}
	mcs_daemon_conn_put(c);
	*ret = d;
	return 1;
}

/* Does the daemon serve the tenant of the credential?  Without one, only a daemon that was configured may serve another
 * tenant than the default one. */
static bool daemon_serves(const struct mcs_daemon *d, const char *tenant, bool found)
{
	if (!*tenant)
		return !found || !*d->tenant;
	return !strcmp(*d->tenant ? d->tenant : "default", tenant);
}

int mcs_daemon_open(const struct mcs_conf *conf, const struct mcs_security *security, struct mcs_daemon **ret)
{
	const char *tenant = security ? mcs_security_tenant(security) : "";
	bool contributes = mcs_conf_contributes(conf);
	const char *say = conf->daemon && *conf->daemon ? conf->daemon : contributes ? "off" : "auto";
	bool found = !strcmp(say, "auto");
	char port[16];
	int r;

	if (!strcmp(say, "off"))
		return 0;
	if (contributes || *conf->tenant)
		return found ? 0 : mc_fail(-MC_EPARAM, "daemon=%s cannot be combined with segment_size or tenant",
					   say);
	if (found && (conf->force_tcp || !strncmp(conf->master, "local:", 6)))
		return 0;
	/* A daemon works with its own credential, which has more rights than a reader's. */
	if (found && security && !(mcs_security_role(security) & MC_MAY_WRITE))
		return 0;
	(void)snprintf(port, sizeof(port), "%d", MCFS_SOCKET_PORT);
	r = daemon_open_at(conf, found ? port : say, found, ret);
	if (r < 0)
		return found ? 0 : r;
	if (found && (strcmp((*ret)->master, conf->master) || !daemon_serves(*ret, tenant, found))) {
		mcs_daemon_close(TAKE_PTR(*ret));
		return 0;
	}
	if (!daemon_serves(*ret, tenant, found)) {
		r = mc_fail(-EACCES, "the daemon at %s serves tenant \"%s\", and the credential is of tenant \"%s\"",
			    (*ret)->addr, *(*ret)->tenant ? (*ret)->tenant : "default", tenant);
		mcs_daemon_close(TAKE_PTR(*ret));
		return r;
	}
	mc_debug("client", "going through the node's daemon address=%s", (*ret)->addr);
	return 1;
}

int mcs_daemon_backend_open(struct mcs *store, struct mcs_backend **ret)
{
	struct mcs_session_conf conf = {
		.client = { mc_random_u64() | 1, mc_random_u64() },
		.security = store->security,
		.spin_us = store->conf.spin_us,
		.grace_ms = (uint64_t)store->conf.setup_timeout_ms,
	};
	struct mcs_daemon *d;
	int r = mcs_daemon_open(&store->conf, store->security, &d);

	if (r <= 0)
		return r;
	d->base.store = store;
	d->base.scratch = &store->scratch;
	d->base.hostname = d->hostname;
	d->base.daemon = d->addr;
	d->base.tenant = mcp_bytes(d->tenant, strlen(d->tenant));
	conf.addrs = d->master;
	conf.name = d->hostname;
	conf.min_version = *d->tenant ? 2 : 1;
	/* For requests that the daemon does not take; it connects with the first one. */
	r = mcs_session_open(&conf, &d->base.session);
	if (r < 0) {
		mcs_daemon_close(d);
		return r;
	}
	*ret = &d->base;
	return 1;
}

void mcs_daemon_close(struct mcs_daemon *d)
{
	if (!d || mc_fork_check(d->fork_depth) < 0)
		return;
	mcs_session_close(d->base.session);
	mcs_daemon_conn_put(d->conn);
	mcs_daemon_mem_close(d);
	mcs_buffers_done(&d->buffers);
	mc_cond_destroy(&d->changed);
	mc_mutex_destroy(&d->lock);
	free(d);
}
