/* SPDX-License-Identifier: Apache-2.0
 * direct.c - start and end of the direct back end, and its small slots. */
#include <config.h>

#include "client/direct/direct.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/direct/async.h"
#include "client/direct/cache.h"
#include "client/env.h"
#include "client/session/security.h"
#include "common/cleanup.h"
#include "common/env.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/net/guard.h"
#include "common/net/net.h"
#include "common/sys/random.h"

#define MOUNT_MS 5000
#define LAZY_MS 200		/* time of a lazy open for the master; then the background thread tries */
#define SILENCE_MS 20000
#define PROBE_MS 1000

static int direct_open_engine(struct mcs_direct *s)
{
	const struct mcs_conf *c = &s->base.store->conf;
	char host[MC_ADDR_MAX];
	struct mce_conf conf = {
		.net = mcs_security_data_net(s->base.store->security),
		.host = host,
		.io_threads = c->io_threads,
		.force_tcp = c->force_tcp,
		.spin_us = c->spin_us,
		.rdma_wanted = true,
	};
	int r;

	if (s->base.store->security) {
		conf.control_net = mcs_security_control_net(s->base.store->security);
		conf.peer_admitted = mcs_security_admits;
		conf.peer_arg = s->base.store->security;
		conf.has_credential = true;
	}

	if (!strcmp(c->protocol, "rdma") && !c->force_tcp) {
		r = mce_nics_choose(c->rdma_devices, &conf);
		if (r < 0)
			return r;
	}

	/* With RDMA upstream does not copy by default, but a NIC is never faster than memory. */
	if (mcs_env_no_memcpy() && strcmp(c->protocol, "rdma"))
		conf.force_tcp = true;
	r = mc_addr_split(c->hostname, host, sizeof(host), 0, &conf.port);
	if (r < 0)
		return r;
	if (!conf.port)
		mcs_env_ports(&conf.port_min, &conf.port_max);
	mc_guard_library(MC_GUARD_POOL_HARM, c->hostname, conf.peer_admitted || mc_env_on(MC_GUARD_ENV));
	return mce_engine_open(&conf, &s->engine);
}

/* A connection over which no data arrives any more looks unchanged here; the master closes it
 * after a minute (rpc_server.c). */
bool mcs_connected(const struct mcs_direct *s)
{
	uint64_t silence = mc_now_ms() - __atomic_load_n(&s->answered_ms, __ATOMIC_RELAXED);

	return silence < __atomic_load_n(&s->silence_ms, __ATOMIC_RELAXED) ? mcs_session_up(s->base.session) :
		!mcs_session_probe(s->base.session, mc_deadline_ms(PROBE_MS));
}

/* ---- functions that the session and the leases call ---- */

static int direct_attach(struct mcp_client *c, uint64_t epoch, const struct mcs_terms *terms, void *arg)
{
	struct mcs_direct *s = arg;
	int r;

	/* Before anything is granted on the connection. */
	mcs_security_renew(s->base.store->security);
	mce_engine_set_fence(s->engine, terms->fence);
	mcs_leases_epoch(&s->leases, epoch);
	r = s->segments->offer(s, c, terms, mc_deadline_ms(MOUNT_MS));
	/* Reads work without a mounted segment, so keep the connection. */
	if (r < 0)
		mcs_background_remount(s->background);
	mcs_background_connected(s->background);
	return 0;
}

static uint64_t direct_largest_fence(void *arg)
{
	return mce_engine_largest_fence(((struct mcs_direct *)arg)->engine);
}

static void direct_piggyback(struct mcp_buf *b, void *arg)
{
	struct mcs_direct *s = arg;

	mcs_leases_piggyback(&s->leases, b);
}

static void direct_wake(void *arg)
{
	struct mcs_direct *s = arg;

	/* Without a background thread, queued pins are sent with the next request or end with the connection. */
	if (s->background)
		mcs_background_wake(s->background);
}

/* ---- open and close ---- */

static struct mcp_id direct_engine_id(const struct mcs_direct *s)
{
	uint8_t nonce[16];
	struct mcp_id id;

	mce_engine_nonce(s->engine, nonce);
	memcpy(&id, nonce, sizeof(id));
	return (struct mcp_id){ le64toh(id.hi), le64toh(id.lo) };
}

static int direct_open_session(struct mcs_direct *s)
{
	const struct mcs_conf *c = &s->base.store->conf;
	struct mcs_session_conf conf = {
		.addrs = c->master,
		.name = mce_engine_endpoint(s->engine),
		.client = s->client,
		.security = s->base.store->security,
		.engine = direct_engine_id(s),
		.largest_fence = direct_largest_fence,
		.min_version = *c->tenant ? 2 : 1,
		.spin_us = c->spin_us,
		.grace_ms = (uint64_t)c->setup_timeout_ms,
		.attach = direct_attach,
		.piggyback = direct_piggyback,
		.arg = s,
	};
	char why[256];
	int r;

	if (c->segment_fd > 0)
		conf.pool = (struct mcp_id){ c->segment_identity[3], c->segment_identity[4] };
	r = mcs_session_open(&conf, &s->base.session);
	if (r < 0)
		return r;
	mcs_security_session(s->base.store->security, s->base.session);
	r = c->lazy ? mcs_session_probe(s->base.session, mc_deadline_ms(LAZY_MS)) :
		mcs_session_connect(s->base.session, mc_deadline_ms((int64_t)mcs_session_grace_ms(s->base.session)));
	if (r < 0 && c->lazy && (r == -MC_ERPC || r == -MC_ETIMEDOUT))
		return 0;
	if (r < 0) {
		snprintf(why, sizeof(why), "%s", mc_err_detail(r));
		return mc_fail(r, "master %s: %s", c->master, why);
	}
	return 0;
}

/* Names the process in its metrics.  The registry only grows, so the first handle sets the name. */
static struct mc_metric info = {
	.name = "mooncake_client_info", .help = "name of this process's first store",
	.type = MC_GAUGE_TYPE, .value = 1, .scale = 1,
};

static struct mc_mutex info_lock = MC_MUTEX_INIT;
MC_FORK_KEEP(info_lock, MC_FORK_LEAF)

static void direct_name_metrics(const char *hostname)
{
	static char labels[2 * MC_ADDR_MAX + 32];
	const char *cluster = mc_env_str("MC_STORE_CLUSTER_ID");

	MC_LOCKED(&info_lock);
	if (info.labels)
		return;
	/* A quote or a backslash would end the label. */
	if (cluster && strlen(cluster) < MC_ADDR_MAX && !strpbrk(cluster, "\"\\\n"))
		snprintf(labels, sizeof(labels), "hostname=\"%s\",cluster_id=\"%s\"", hostname, cluster);
	else
		snprintf(labels, sizeof(labels), "hostname=\"%s\"", hostname);
	info.labels = labels;
	mc_metric_register(&info);
}

static void direct_open_cache(struct mcs_direct *s)
{
	struct mcs_cache_conf conf;

	if (!mcs_cache_wanted(&conf))
		return;
	s->cache = mcs_cache_new(&conf);
	if (!s->cache)
		mc_warn("client", "MC_STORE_LOCAL_HOT_CACHE_SIZE: no memory for the hot cache, continuing without");
}

int mcs_direct_start(struct mcs_direct *s)
{
	int r;

	direct_open_cache(s);
	r = mcs_leases_init(&s->leases, direct_wake, s);
	if (r == 0)
		r = direct_open_engine(s);
	if (r < 0)
		return r;
	s->base.hostname = mce_engine_endpoint(s->engine);
	r = direct_open_session(s);
	if (r == 0)
		r = mcs_segmap_open(s->engine, s->base.session, s->client, &s->segmap);
	return r < 0 ? r : mcs_shared_open(s->engine, s->base.session, &s->shared);
}

int mcs_direct_run(struct mcs_direct *s)
{
	int r = mcs_background_start(s, &s->background);

	if (r == 0)
		r = mcs_async_open(s, &s->async);
	if (r == 0)
		direct_name_metrics(s->base.hostname);
	return r;
}

void mcs_direct_done(struct mcs_direct *s)
{
	mcs_cache_free(s->cache);
	mcs_buffers_done(&s->buffers);
	mcs_segmap_close(s->segmap);
	mcs_shared_close(s->shared);
	mce_engine_close(s->engine);
	mcs_leases_done(&s->leases);
	mc_mutex_destroy(&s->lock);
}

/* ---- slots that are too small for a file of their own ---- */

bool mcs_direct_replaceable(struct mcs_backend *b)
{
	return false;
}

int mcs_direct_register_buffer(struct mcs_backend *b, void *buf, size_t len)
{
	struct mcs_direct *s = mcs_direct_of(b);
	struct mce_mr_attr attr = { .base = buf, .len = len, .fd = -1 };
	struct mce_mr *mr;
	int r;

	r = mce_mr_register(s->engine, &attr, &mr);
	if (r < 0)
		return r;
	r = mcs_buffers_add(&s->buffers, buf, len, mr, false);
	if (r < 0)
		mce_mr_unregister(mr);
	return r;
}

/* The engine reads and writes all memory of this process: the descriptor is not needed. */
int mcs_direct_register_memfd(struct mcs_backend *b, void *buf, size_t len, int fd, uint64_t fd_offset)
{
	return mcs_direct_register_buffer(b, buf, len);
}

int mcs_direct_unregister_buffer(struct mcs_backend *b, void *buf)
{
	return mcs_buffers_remove(&mcs_direct_of(b)->buffers, buf, false) ? 0 :
		mc_fail(-MC_EPARAM, "no buffer is registered at %p", buf);
}

void *mcs_direct_pool_alloc(struct mcs_backend *b, size_t len)
{
	return mcs_buffers_alloc(&mcs_direct_of(b)->buffers, len);
}

void mcs_direct_pool_free(struct mcs_backend *b, void *p)
{
	(void)mcs_buffers_remove(&mcs_direct_of(b)->buffers, p, true);
}

/* Without a daemon there is no memory of the node to fetch an object into. */
int mcs_direct_prefetch(struct mcs_backend *b, struct mcs_key key, uint64_t deadline)
{
	return 0;
}

void mcs_direct_init(struct mcs_direct *s, struct mcs *store, const struct mcs_backend_ops *ops,
		     const struct mcs_direct_segments *segments)
{
	s->base = (struct mcs_backend){
		.ops = ops, .store = store, .scratch = &store->scratch,
		.tenant = mcp_bytes(store->conf.tenant, strlen(store->conf.tenant)),
	};
	s->segments = segments;
	s->client = (struct mcp_id){ mc_random_u64() | 1, mc_random_u64() };
	s->silence_ms = SILENCE_MS;
	s->answered_ms = mc_now_ms();
	mc_mutex_init(&s->lock);
	mc_list_init(&s->objects);
	mcs_buffers_init(&s->buffers);
}
