/* SPDX-License-Identifier: Apache-2.0
 * direct.c - open and close the direct back end, and its table of operations. */
#include <config.h>

#include "client/direct/direct.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/direct/async.h"
#include "client/direct/cache.h"
#include "client/direct/object.h"
#include "client/env.h"
#include "client/session/heartbeat.h"
#include "common/cleanup.h"
#include "common/env.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/net/net.h"
#include "common/sys/random.h"

#define MOUNT_MS 5000
#define UNMOUNT_MS 2000
#define OWNER_NAP_NS 20000000
#define LAZY_MS 200		/* time of a lazy open for the master; then the background thread tries */
#define SILENCE_MS 20000
#define PROBE_MS 1000

/* The NICs to use; NULL: none. */
static const char *direct_nics(const struct mcs_conf *c)
{
	const char *filters = mc_env_str("MC_MS_FILTERS");

	if (strcmp(c->protocol, "rdma") || c->force_tcp)
		return NULL;
	if (c->rdma_devices && *c->rdma_devices)
		return c->rdma_devices;
	return filters ? filters : "";
}

static int direct_open_engine(struct mcs_direct *s)
{
	const struct mcs_conf *c = &s->base.store->conf;
	char host[MC_ADDR_MAX];
	struct mce_conf conf = {
		.host = host,
		.io_threads = c->io_threads,
		.force_tcp = c->force_tcp,
		.spin_us = c->spin_us,
		.rdma_devices = direct_nics(c), .rdma_wanted = true,
	};
	int r;

	/* With RDMA upstream does not copy by default, but a NIC is never faster than memory. */
	if (mcs_env_no_memcpy() && strcmp(c->protocol, "rdma"))
		conf.force_tcp = true;
	r = mc_addr_split(c->hostname, host, sizeof(host), 0, &conf.port);
	if (r < 0)
		return r;
	if (!conf.port)
		mcs_env_ports(&conf.port_min, &conf.port_max);
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
	mce_engine_set_fence(s->engine, terms->fence);
	mcs_leases_epoch(&s->leases, epoch);
	if (__atomic_load_n(&s->attaching, __ATOMIC_ACQUIRE)) {
		r = mcs_owner_mount(s->owner, c, mcs_session_pool(s->base.session), terms,
				    mc_deadline_ms(MOUNT_MS));
		if (r >= 0)
			r = mcs_disks_mount(s->disks, c, NULL, mcs_session_pool(s->base.session), terms,
					    mc_deadline_ms(MOUNT_MS));
		/* Reads work without a mounted segment, so keep the connection. */
		if (r < 0)
			mcs_background_remount(s->background);
	}
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

/* The master may not know yet that the previous owner of the segment has died. */
static bool direct_await_owner(uint64_t deadline)
{
	mc_sleep_ns(OWNER_NAP_NS);
	return mc_now_ns() < deadline;
}

int mcs_direct_mount(struct mcs_direct *s, uint64_t deadline)
{
	struct mcs_session *session = s->base.session;
	const struct mcs_terms terms = mcs_session_terms(session);
	int r;

	r = mcs_owner_remount(s->owner, session, deadline);
	if (r < 0)
		return r;
	return mcs_disks_mount(s->disks, NULL, session, mcs_session_pool(session), &terms, deadline);
}

static int direct_open_disks(struct mcs_direct *s)
{
	const struct mcs_conf *c = &s->base.store->conf;
	const struct mcs_disks_conf conf = {
		.engine = s->engine, .client = s->client, .paths = c->ssd_path, .size = c->ssd_size,
		.buffers = c->ssd_buffers, .threads = c->ssd_threads, .high = c->ssd_high, .low = c->ssd_low,
		.policy = c->ssd_policy, .format = c->ssd_format > 0,
	};

	return c->ssd_path && *c->ssd_path ? mcs_disks_open(&conf, &s->disks) : 0;
}

static int direct_open_segment(struct mcs_direct *s, struct mcs_owner_conf *conf)
{
	bool ordinary = !conf->path && conf->adopt_fd <= 0 && (!conf->kind || !strcmp(conf->kind, "auto"));

	if (ordinary && mcs_env_huge_pages()) {
		const char *kind = conf->kind;
		int r;

		conf->kind = "hugetlb";
		r = mcs_owner_open(conf, &s->owner);
		if (r == 0)
			return 0;
		mc_warn("client", "MC_STORE_USE_HUGEPAGE: the segment gets ordinary pages: %s", mc_err_detail(r));
		conf->kind = kind;
	}
	return mcs_owner_open(conf, &s->owner);
}

static int direct_open_owner(struct mcs_direct *s)
{
	const struct mcs_conf *c = &s->base.store->conf;
	struct mcs_owner_conf conf = {
		.engine = s->engine,
		.client = s->client,
		.size = c->segment_size,
		.max = c->segment_max,
		.kind = c->segment_kind,
		.path = c->segment_path,
		.path_offset = c->segment_offset,
		.protocol = mce_engine_has_rdma(s->engine) ? "rdma" : "tcp",
		.adopt_fd = c->segment_fd,
		.identity = c->segment_identity,
	};
	uint64_t deadline;
	int r;

	r = c->segment_size ? direct_open_segment(s, &conf) : 0;
	if (r == 0)
		r = direct_open_disks(s);
	if (r < 0 || (!s->owner && !s->disks))
		return r;
	__atomic_store_n(&s->attaching, true, __ATOMIC_RELEASE);
	if (!mcs_session_ever(s->base.session))
		return 0;
	MC_FAULT_POINT("client.open.before_mount");
	deadline = mc_deadline_ms(MOUNT_MS);
	do
		r = mcs_direct_mount(s, deadline);
	while (r == -MC_EOWNER && conf.adopt_fd > 0 && direct_await_owner(deadline));
	MC_FAULT_POINT("client.open.after_mount");
	return r;
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

static int direct_start(struct mcs_direct *s)
{
	int r;

	direct_open_cache(s);
	r = mcs_leases_init(&s->leases, direct_wake, s);
	if (r == 0)
		r = direct_open_engine(s);
	if (r == 0)
		r = direct_open_session(s);
	if (r == 0)
		r = mcs_segmap_open(s->engine, s->base.session, s->client, &s->segmap);
	if (r == 0)
		r = direct_open_owner(s);
	if (r == 0)
		r = mcs_background_start(s, &s->background);
	if (r == 0 && (s->owner || s->disks))
		r = mcs_mover_start(s, &s->mover);
	if (r == 0 && s->disks)
		r = mcs_offloader_start(s, &s->offloader);
	if (r == 0)
		r = mcs_async_open(s, &s->async);
	if (r == 0)
		r = mcs_heartbeat_start(s, &s->heartbeat);
	return r;
}

static void direct_close(struct mcs_backend *b)
{
	struct mcs_direct *s = mcs_direct_of(b);

	mcs_async_close(s->async);
	mcs_heartbeat_stop(s->heartbeat);
	mcs_mover_stop(s->mover);
	mcs_offloader_stop(s->offloader);
	mcs_background_stop(s->background);
	s->background = NULL;
	if (s->owner && s->base.session && mcs_session_up(s->base.session))
		(void)mcs_owner_unmount(s->owner, s->base.session, mc_deadline_ms(UNMOUNT_MS));
	if (s->disks && s->base.session && mcs_session_up(s->base.session))
		mcs_disks_leave(s->disks, s->base.session, mc_deadline_ms(UNMOUNT_MS));
	mcs_session_close(s->base.session);
	mcs_owner_close(s->owner);
	mcs_disks_close(s->disks);
	mcs_cache_free(s->cache);
	mcs_buffers_done(&s->buffers);
	mcs_segmap_close(s->segmap);
	mce_engine_close(s->engine);
	mcs_leases_done(&s->leases);
	mc_mutex_destroy(&s->grow_lock);
	mc_mutex_destroy(&s->lock);
	free(s);
}

/* ---- slots that are too small for a file of their own ---- */

static bool direct_replaceable(struct mcs_backend *b)
{
	return false;
}

static int direct_health(struct mcs_backend *b)
{
	struct mcs_direct *s = mcs_direct_of(b);

	if (!mcs_session_ever(b->session))
		return 1;
	return mcs_heartbeat_ok(s->heartbeat) && mcs_session_up(b->session) ? 0 : 2;
}

static int direct_segment_grow(struct mcs_backend *b, uint64_t size, uint64_t deadline)
{
	struct mcs_direct *s = mcs_direct_of(b);

	MC_LOCKED(&s->grow_lock);
	return mcs_owner_grow(s->owner, b->session, size, deadline);
}

static int direct_segment_fd(struct mcs_backend *b, uint64_t *ret_size)
{
	return mcs_owner_fd(mcs_direct_of(b)->owner, ret_size);
}

static int direct_disks_remove(struct mcs_backend *b, uint64_t deadline)
{
	return mcs_disks_unmount(mcs_direct_of(b)->disks, b->session, deadline);
}

static int direct_segment_identity(struct mcs_backend *b, uint64_t *identity)
{
	return mcs_owner_keep_at(mcs_direct_of(b)->owner, identity);
}

static int direct_register_buffer(struct mcs_backend *b, void *buf, size_t len)
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
static int direct_register_memfd(struct mcs_backend *b, void *buf, size_t len, int fd, uint64_t fd_offset)
{
	return direct_register_buffer(b, buf, len);
}

static int direct_unregister_buffer(struct mcs_backend *b, void *buf)
{
	return mcs_buffers_remove(&mcs_direct_of(b)->buffers, buf, false) ? 0 :
		mc_fail(-MC_EPARAM, "no buffer is registered at %p", buf);
}

static void *direct_pool_alloc(struct mcs_backend *b, size_t len)
{
	return mcs_buffers_alloc(&mcs_direct_of(b)->buffers, len);
}

static void direct_pool_free(struct mcs_backend *b, void *p)
{
	(void)mcs_buffers_remove(&mcs_direct_of(b)->buffers, p, true);
}

/* Without a daemon there is no memory of the node to fetch an object into. */
static int direct_prefetch(struct mcs_backend *b, struct mcs_key key, uint64_t deadline)
{
	return 0;
}

static const struct mcs_backend_ops direct_ops = {
	.close = direct_close,
	.replaceable = direct_replaceable,
	.health = direct_health,
	.segment_grow = direct_segment_grow,
	.segment_fd = direct_segment_fd,
	.segment_identity = direct_segment_identity,
	.disks_remove = direct_disks_remove,
	.register_buffer = direct_register_buffer,
	.register_memfd = direct_register_memfd,
	.unregister_buffer = direct_unregister_buffer,
	.pool_alloc = direct_pool_alloc,
	.pool_free = direct_pool_free,
	.put_batch = mcs_direct_put_batch,
	.stream_open = mcs_direct_stream_open,
	.get_batch = mcs_direct_get_batch,
	.find = mcs_direct_find,
	.get_found = mcs_direct_get_found,
	.stat = mcs_direct_stat,
	.stat_batch = mcs_direct_stat_batch,
	.exist = mcs_direct_exist,
	.remove_batch = mcs_direct_remove_batch,
	.prefetch = direct_prefetch,
	.object_open = mcs_direct_object_open,
	.stat_open = mcs_direct_stat_open,
	.object_read = mcs_direct_object_read,
	.object_read_start = mcs_direct_object_read_start,
	.object_map = mcs_direct_object_map,
	.object_held = mcs_direct_object_held,
	.object_offset = mcs_direct_object_offset,
	.object_verify = mcs_direct_object_verify,
	.object_close = mcs_direct_object_close,
	.map_batch = mcs_direct_map_batch,
};

int mcs_direct_open(struct mcs *store, struct mcs_backend **ret)
{
	struct mcs_direct *s = calloc(1, sizeof(*s));
	char why[256];
	int r;

	if (!s)
		return -ENOMEM;
	s->base = (struct mcs_backend){
		.ops = &direct_ops, .store = store, .scratch = &store->scratch,
		.tenant = mcp_bytes(store->conf.tenant, strlen(store->conf.tenant)),
	};
	s->client = (struct mcp_id){ mc_random_u64() | 1, mc_random_u64() };
	s->silence_ms = SILENCE_MS;
	s->answered_ms = mc_now_ms();
	mc_mutex_init(&s->lock);
	mc_mutex_init(&s->grow_lock);
	mc_list_init(&s->objects);
	mcs_buffers_init(&s->buffers);
	r = direct_start(s);
	if (r < 0) {
		snprintf(why, sizeof(why), "%s", mc_err_detail(r));
		direct_close(&s->base);
		return mc_fail(r, "%s", why);
	}
	s->base.hostname = mce_engine_endpoint(s->engine);
	direct_name_metrics(s->base.hostname);
	*ret = &s->base;
	return 0;
}
