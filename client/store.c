/* SPDX-License-Identifier: Apache-2.0
 * store.c - open and close a handle. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/direct/async.h"
#include "client/session/heartbeat.h"
#include "client/store_i.h"
#include "common/cleanup.h"
#include "common/fault.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/metrics.h"

#define MOUNT_MS 5000
#define UNMOUNT_MS 2000
#define OWNER_NAP_NS 20000000
#define LAZY_MS 200		/* a lazy open tries so long, the keeper goes on */
#define SILENCE_MS 20000
#define ASK_MS 1000

void mcs_conf_init_size(struct mcs_conf *conf, size_t size)
{
	const struct mcs_conf c = {
		.struct_size = size,
		.master = "127.0.0.1:50051",
		.hostname = "127.0.0.1",
		.protocol = "tcp",
		.segment_kind = "auto",
		.timeout_ms = 30000,
		.setup_timeout_ms = 5000,
		.verify = 1,
	};

	memcpy(conf, &c, size < sizeof(c) ? size : sizeof(c));
	/* What only a newer header knows. */
	if (size > sizeof(c))
		memset((char *)conf + sizeof(c), 0, size - sizeof(c));
}

/* The caller's idea of the struct may be older (shorter) than ours. */
static int take_conf(const struct mcs_conf *from, struct mcs_conf *ret)
{
	struct mcs_conf c;

	mcs_conf_init(&c);
	if (from) {
		if (from->struct_size < offsetof(struct mcs_conf, hostname) ||
		    from->struct_size > 4096)
			return mc_fail(-MC_EPARAM, "mcs_conf was not set up by mcs_conf_init()");
		memcpy(&c, from, from->struct_size < sizeof(c) ? from->struct_size : sizeof(c));
	}
	c.master = c.master ? c.master : "127.0.0.1:50051";
	c.hostname = c.hostname ? c.hostname : "127.0.0.1";
	c.protocol = c.protocol ? c.protocol : "tcp";
	c.segment_kind = c.segment_kind ? c.segment_kind : "auto";
	c.tenant = c.tenant && strcmp(c.tenant, "default") ? c.tenant : "";
	c.daemon = c.daemon ? c.daemon : "";
	if (!*c.master || !*c.hostname)
		return mc_fail(-MC_EPARAM, "the %s is empty",
			       *c.master ? "hostname" : "master's address");
	if (strcmp(c.protocol, "tcp"))
		return mc_fail(-MC_ENOTSUP, "protocol \"%s\" is not supported, only \"tcp\" is "
			       "(which uses shared memory on the same host by itself)", c.protocol);
	if (c.tenant && strlen(c.tenant) > MCP_TENANT_MAX)
		return mc_fail(-MC_EPARAM, "a tenant's name of %zu bytes, %u are allowed",
			       strlen(c.tenant), MCP_TENANT_MAX);
	if (c.timeout_ms < 0 || c.setup_timeout_ms < 0)
		return mc_fail(-MC_EPARAM, "a default timeout must not be negative");
	*ret = c;
	return 0;
}

static int copy_strings(struct mcs_conf *c)
{
	const char **field[] = { &c->master, &c->hostname, &c->protocol, &c->segment_kind,
				  &c->tenant, &c->segment_path, &c->daemon };
	int r = 0;

	for (size_t i = 0; i < sizeof(field) / sizeof(field[0]); i++) {
		if (!*field[i])
			continue;
		*field[i] = strdup(*field[i]);
		if (!*field[i])
			r = -ENOMEM;
	}
	return r;
}

static void free_strings(struct mcs_conf *c)
{
	free((char *)c->master);
	free((char *)c->hostname);
	free((char *)c->protocol);
	free((char *)c->segment_kind);
	free((char *)c->tenant);
	free((char *)c->segment_path);
	free((char *)c->daemon);
}

static int open_engine(struct mcs *s)
{
	char host[MC_ADDR_MAX];
	struct mce_conf conf = {
		.host = host,
		.io_threads = s->conf.io_threads,
		.force_tcp = s->conf.force_tcp,
		.spin_us = s->conf.spin_us,
	};
	int r;

	r = mc_addr_split(s->conf.hostname, host, sizeof(host), 0, &conf.port);
	if (r < 0)
		return r;
	return mce_engine_open(&conf, &s->engine);
}

/* A connection through which nothing comes any more looks as it did; the master lets go of it after a minute
 * (rpc_server.c). */
bool mcs_connected(const struct mcs *s)
{
	uint64_t silence = mc_now_ms() - __atomic_load_n(&s->answered_ms, __ATOMIC_RELAXED);

	return silence < __atomic_load_n(&s->silence_ms, __ATOMIC_RELAXED) ? mcs_session_up(s->session) :
		!mcs_session_probe(s->session, mc_deadline_ms(ASK_MS));
}

/* ---- what the session calls ---- */

static int attach(struct mcp_client *c, uint64_t epoch, void *arg)
{
	struct mcs *s = arg;
	int r;

	mcs_leases_epoch(&s->leases, epoch);
	if (s->node)
		return 0;
	if (__atomic_load_n(&s->attaching, __ATOMIC_ACQUIRE)) {
		r = mcs_owner_mount(s->owner, c, mc_deadline_ms(MOUNT_MS));
		/* Reading works without it, so the connection is kept. */
		if (r < 0)
			mcs_background_remount(s->keeper);
	}
	mcs_background_connected(s->keeper);
	return 0;
}

static void piggyback(struct mcp_buf *b, void *arg)
{
	struct mcs *s = arg;

	mcs_leases_piggyback(&s->leases, b);
}

static void wake_keeper(void *arg)
{
	struct mcs *s = arg;

	/* Without one, what waits rides ahead of the next request or goes with the connection. */
	if (s->keeper)
		mcs_background_wake(s->keeper);
}

/* What a daemon does not do is about the same keys. */
static int take_tenant(struct mcs *s, const char *tenant)
{
	free((char *)s->conf.tenant);
	s->conf.tenant = strdup(tenant);
	if (!s->conf.tenant)
		return -ENOMEM;
	s->tenant = mcp_bytes(s->conf.tenant, strlen(s->conf.tenant));
	return 0;
}

/* For what a daemon does not do; nothing is connected. */
static int open_node_session(struct mcs *s)
{
	int r = take_tenant(s, mcs_daemon_tenant(s->node));
	struct mcs_session_conf conf = {
		.addrs = mcs_daemon_master(s->node),
		.name = mcs_daemon_hostname(s->node),
		.client = s->client,
		.min_version = *mcs_daemon_tenant(s->node) ? 2 : 1,
		.spin_us = s->conf.spin_us,
		.grace_ms = (uint64_t)s->conf.setup_timeout_ms,
		.attach = attach,
		.piggyback = piggyback,
		.arg = s,
	};

	return r < 0 ? r : mcs_session_open(&conf, &s->session);
}

static int open_session(struct mcs *s)
{
	struct mcs_session_conf conf = {
		.addrs = s->conf.master,
		.name = mce_engine_endpoint(s->engine),
		.client = s->client,
		.min_version = *s->conf.tenant ? 2 : 1,
		.spin_us = s->conf.spin_us,
		.grace_ms = (uint64_t)s->conf.setup_timeout_ms,
		.attach = attach,
		.piggyback = piggyback,
		.arg = s,
	};
	char why[256];
	int r;

	r = mcs_session_open(&conf, &s->session);
	if (r < 0)
		return r;
	r = s->conf.lazy ? mcs_session_probe(s->session, mc_deadline_ms(LAZY_MS)) :
		mcs_session_connect(s->session, mc_deadline_ms(s->conf.setup_timeout_ms));
	if (r < 0 && s->conf.lazy && (r == -MC_ERPC || r == -MC_ETIMEDOUT))
		return 0;
	if (r < 0) {
		snprintf(why, sizeof(why), "%s", mc_err_detail(r));
		return mc_fail(r, "master %s: %s", s->conf.master, why);
	}
	return 0;
}

/* The master may not have seen yet that the process before us has died. */
static bool wait_for_end_of_owner(uint64_t deadline)
{
	const struct timespec nap = { .tv_nsec = OWNER_NAP_NS };

	return nanosleep(&nap, NULL) == 0 && mc_now_ns() < deadline;
}

static int open_owner(struct mcs *s)
{
	struct mcs_owner_conf conf = {
		.engine = s->engine,
		.client = s->client,
		.size = s->conf.segment_size,
		.max = s->conf.segment_max,
		.kind = s->conf.segment_kind,
		.path = s->conf.segment_path,
		.path_offset = s->conf.segment_offset,
		.protocol = s->conf.protocol,
		.adopt_fd = s->conf.segment_fd,
	};
	uint64_t deadline;
	int r;

	if (!s->conf.segment_size)
		return 0;
	memcpy(conf.identity, s->conf.segment_identity, sizeof(conf.identity));
	r = mcs_owner_open(&conf, &s->owner);
	if (r < 0)
		return r;
	__atomic_store_n(&s->attaching, true, __ATOMIC_RELEASE);
	if (!mcs_session_ever(s->session))
		return 0;
	MC_FAULT_POINT("client.open.before_mount");
	deadline = mc_deadline_ms(MOUNT_MS);
	do
		r = mcs_owner_remount(s->owner, s->session, deadline);
	while (r == -MC_EOWNER && conf.adopt_fd > 0 && wait_for_end_of_owner(deadline));
	MC_FAULT_POINT("client.open.after_mount");
	return r;
}

/* Which process these metrics are of.  The registry only grows, so the first handle names it. */
static struct mc_metric info = {
	.name = "mooncake_client_info", .help = "name of this process's first store",
	.type = MC_GAUGE_TYPE, .value = 1, .scale = 1,
};

static pthread_mutex_t info_lock = PTHREAD_MUTEX_INITIALIZER;
MC_FORK_KEEP(info_lock, MC_FORK_LEAF)

static void name_metrics(const char *hostname)
{
	static char labels[MC_ADDR_MAX + 16];

	MC_LOCKED(&info_lock);
	if (info.labels)
		return;
	snprintf(labels, sizeof(labels), "hostname=\"%s\"", hostname);
	info.labels = labels;
	mc_metric_register(&info);
}

/* With an engine and a connection of its own. */
static int open_alone(struct mcs *s)
{
	int r;

	r = open_engine(s);
	if (r == 0)
		r = open_session(s);
	if (r == 0)
		r = mcs_segmap_open(s->engine, s->session, s->client, &s->segmap);
	if (r == 0)
		r = open_owner(s);
	if (r == 0)
		r = mcs_background_start(s, &s->keeper);
	if (r == 0 && s->owner)
		r = mcs_mover_start(s, &s->mover);
	if (r == 0)
		r = mcs_async_open(s, &s->async);
	if (r == 0)
		r = mcs_heartbeat_start(s, &s->heartbeat);
	if (r == 0)
		name_metrics(mce_engine_endpoint(s->engine));
	return r;
}

int mcs_open(const struct mcs_conf *conf, struct mcs **ret)
{
	struct mcs *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->fork_depth = mc_fork_depth;
	s->silence_ms = SILENCE_MS;
	s->answered_ms = mc_now_ms();
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->grow_lock, NULL);
	pthread_mutex_init(&s->alone_lock, NULL);
	mc_list_init(&s->buffers);
	mc_list_init(&s->objects);
	mcs_scratch_pool_init(&s->scratch);
	r = mcs_leases_init(&s->leases, wake_keeper, s);
	if (r < 0)
		goto fail;
	r = take_conf(conf, &s->conf);
	if (r < 0) {
		s->conf = (struct mcs_conf){ 0 };
		goto fail;
	}
	r = copy_strings(&s->conf);
	if (r < 0)
		goto fail;
	s->tenant = mcp_bytes(s->conf.tenant, strlen(s->conf.tenant));
	s->client = (struct mcp_id){ mc_random_u64() | 1, mc_random_u64() };
	r = mcs_daemon_open(&s->conf, &s->node);
	if (r > 0)
		r = open_node_session(s);
	else if (r == 0)
		r = open_alone(s);
	if (r < 0)
		goto fail;
	*ret = s;
	return 0;
fail:
	mcs_close(s);
	return r;
}

int mcs_segment_grow(struct mcs *s, uint64_t size, int64_t timeout_ms)
{
	int r = mcs_check_fork(s);

	if (r < 0)
		return r;
	MC_LOCKED(&s->grow_lock);
	/* Without one it says so. */
	return mcs_owner_grow(s->owner, s->session, size, mcs_deadline(s, timeout_ms));
}

void mcs_close(struct mcs *s)
{
	/* A child has none of the threads, and nothing of it is the child's to give back. */
	if (!s || mcs_check_fork(s) < 0)
		return;
	mcs_close(s->alone);
	mcs_async_close(s->async);
	mcs_heartbeat_stop(s->heartbeat);
	mcs_mover_stop(s->mover);
	mcs_background_stop(s->keeper);
	s->keeper = NULL;
	if (s->owner && s->session && mcs_session_up(s->session))
		(void)mcs_owner_unmount(s->owner, s->session, mc_deadline_ms(UNMOUNT_MS));
	mcs_session_close(s->session);
	mcs_daemon_close(s->node);
	mcs_owner_close(s->owner);
	mcs_buffers_done(s);
	mcs_segmap_close(s->segmap);
	mce_engine_close(s->engine);
	mcs_leases_done(&s->leases);
	mcs_scratch_pool_done(&s->scratch);
	pthread_mutex_destroy(&s->grow_lock);
	pthread_mutex_destroy(&s->alone_lock);
	pthread_mutex_destroy(&s->lock);
	free_strings(&s->conf);
	free(s);
}

int mcs_segment_fd(struct mcs *s, uint64_t *ret_size)
{
	if (s->conf.segment_path && *s->conf.segment_path)
		return mc_fail(-MC_ENOTSUP, "the segment is part of the program's own file");
	return mcs_owner_fd(s->owner, ret_size);
}

int mcs_segment_identity(struct mcs *s, uint64_t ret[3])
{
	return mcs_owner_identity(s->owner, ret);
}

int mcs_health(struct mcs *s)
{
	struct mcs *alone;

	if (mcs_check_fork(s) < 0)
		return 2;
	if (s->node) {
		if (mcs_daemon_up(s->node))
			return 0;
		alone = mcs_daemon_alone(s, -MC_ERPC);
		return alone ? mcs_health(alone) : 2;
	}
	if (!mcs_session_ever(s->session))
		return 1;
	return mcs_heartbeat_ok(s->heartbeat) && mcs_session_up(s->session) ? 0 : 2;
}

const char *mcs_daemon(struct mcs *s)
{
	return s->node ? mcs_daemon_address(s->node) : NULL;
}

const char *mcs_hostname(struct mcs *s)
{
	return s->node ? mcs_daemon_hostname(s->node) : mce_engine_endpoint(s->engine);
}
