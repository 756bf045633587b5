/* SPDX-License-Identifier: Apache-2.0
 * owner.c - open and close the direct back end with this process's segments, and its table of operations. */
#include <config.h>

#include "client/owner/owner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/direct/async.h"
#include "client/direct/object.h"
#include "client/env.h"
#include "client/owner/directory.h"
#include "client/owner/heartbeat.h"
#include "client/owner/mover.h"
#include "client/owner/offloader.h"
#include "client/owner/sweeper.h"
#include "client/session/security.h"
#include "common/cleanup.h"
#include "common/fault.h"
#include "common/log.h"
#include "tiers/dram/dram.h"
#include "tiers/objects/objects.h"
#include "tiers/ssd/ssd.h"

#define MOUNT_MS 5000
#define UNMOUNT_MS 4000		/* for all segments */
#define OWNER_NAP_NS 20000000

/* ---- the segments of the configuration ---- */

/* The tier of each medium. */
static const struct mcs_own_segment_conf owner_memory = { .tier = &mct_dram_tier, .medium = MCP_MEDIUM_MEMORY };
static const struct mcs_own_segment_conf owner_far = { .tier = &mct_dram_tier, .medium = MCP_MEDIUM_FAR };
static const struct mcs_own_segment_conf owner_disk = { .tier = &mct_ssd_tier, .medium = MCP_MEDIUM_DISK };
static const struct mcs_own_segment_conf owner_s3 = { .tier = &mct_objects_tier, .medium = MCP_MEDIUM_S3 };

static int owner_add_memory(struct mcs_owner *o, const struct mcs_conf *c)
{
	bool ordinary = !c->segment_path && c->segment_fd <= 0 &&
			(!c->segment_kind || !strcmp(c->segment_kind, "auto"));
	struct mcs_own_segment_conf conf = owner_memory;
	int r;

	conf.open = (struct mct_conf){
		.size = c->segment_size, .reserve = c->segment_max, .kind = c->segment_kind, .numa_node = -1,
		.prefault = 1, .path = c->segment_path, .path_offset = c->segment_offset, .adopt_fd = c->segment_fd,
	};
	conf.protocol = mce_engine_has_rdma(o->direct.engine) ? "rdma" : "tcp";
	conf.identity = c->segment_identity;
	if (ordinary && mcs_env_huge_pages()) {
		conf.open.kind = "hugetlb";
		r = mcs_segments_add(o->segments, &conf, NULL);
		if (r == 0)
			return 0;
		mc_warn("client", "MC_STORE_USE_HUGEPAGE: the segment gets ordinary pages: %s", mc_err_detail(r));
		conf.open.kind = c->segment_kind;
	}
	return mcs_segments_add(o->segments, &conf, NULL);
}

static int owner_add_far(struct mcs_owner *o, const struct mcs_conf *c)
{
	struct mcs_own_segment_conf conf = owner_far;

	conf.open = (struct mct_conf){
		.size = c->far_size, .numa_node = mcs_conf_far_device(c) ? -1 : c->far_node, .prefault = 1,
		.path = mcs_conf_far_device(c) ? c->far_path : NULL, .lock = true,
	};
	conf.protocol = mce_engine_has_rdma(o->direct.engine) ? "rdma" : "tcp";
	return mcs_segments_add(o->segments, &conf, NULL);
}

/* Is the disk at @path one that its owner reaches over a network? */
static int owner_disk_medium(const struct mcs_conf *c, const char *path, uint8_t *ret)
{
	const char *nof = c->ssd_nof && *c->ssd_nof ? c->ssd_nof : "auto";

	if (strcmp(nof, "auto") && strcmp(nof, "yes") && strcmp(nof, "no"))
		return mc_fail(-EINVAL, "ssd_offload_nof=%s: use auto, yes or no", nof);
	*ret = !strcmp(nof, "yes") || (!strcmp(nof, "auto") && mct_ssd_is_nof(path, "/sys")) ?
		MCP_MEDIUM_NOF : MCP_MEDIUM_DISK;
	return 0;
}

static int owner_add_disks(struct mcs_owner *o, const struct mcs_conf *c)
{
	auto_free char *paths = strdup(c->ssd_path);
	struct mcs_own_segment_conf conf = owner_disk;
	char *save = NULL;
	int r = paths ? 0 : -ENOMEM, n = 0;

	conf.open = (struct mct_conf){
		.size = c->ssd_size, .buffers = c->ssd_buffers, .kind = c->ssd_threads ? "threads" : NULL,
		.format = c->ssd_format > 0, .seal = o->direct.base.store->security != NULL,
		.tenant = mcs_security_tenant_number(o->direct.base.store->security),
	};
	conf.protocol = "tcp";
	conf.high = (uint8_t)c->ssd_high;
	conf.low = (uint8_t)c->ssd_low;
	if (c->ssd_policy)
		conf.policy = !strcmp(c->ssd_policy, "lru") ? MCP_EVICT_LRU : MCP_EVICT_FIFO;
	for (char *p = paths ? strtok_r(paths, ":", &save) : NULL; p && r == 0; p = strtok_r(NULL, ":", &save), n++) {
		conf.open.path = p;
		r = owner_disk_medium(c, p, &conf.medium);
		if (r == 0)
			r = mcs_segments_add(o->segments, &conf, NULL);
	}
	return r == 0 && !n ? mc_fail(-EINVAL, "no directory for the SSD tier is given") : r;
}

static int owner_add_s3(struct mcs_owner *o, const struct mcs_conf *c)
{
	struct mcs_own_segment_conf conf = owner_s3;

	if (!c->s3_size)
		return mc_fail(-EINVAL, "s3_segment needs s3_segment_size, the bytes that it may use");
	conf.open = (struct mct_conf){
		.path = c->s3_path, .size = c->s3_size, .seal = o->direct.base.store->security != NULL,
	};
	conf.protocol = "tcp";
	conf.import = c->s3_import;
	return mcs_segments_add(o->segments, &conf, NULL);
}

/* The master may not know yet that the previous owner of the segment has died. */
static bool owner_await_previous(uint64_t deadline)
{
	mc_sleep_ns(OWNER_NAP_NS);
	return mc_now_ns() < deadline;
}

static int owner_mount(struct mcs_owner *o, uint64_t deadline)
{
	struct mcs_session *session = o->direct.base.session;
	const struct mcs_terms terms = mcs_session_terms(session);

	return mcs_segments_mount(o->segments, NULL, session, mcs_session_pool(session), &terms, deadline,
				  MCS_SEGMENTS_ALL);
}

static int owner_open_segments(struct mcs_owner *o)
{
	const struct mcs_conf *c = &o->direct.base.store->conf;
	bool disks = c->ssd_path && *c->ssd_path, far = mcs_conf_far(c), s3 = c->s3_path && *c->s3_path;
	bool directory = mcs_conf_shared(c);
	uint64_t deadline;
	int r;

	if (!c->segment_size && !far && !disks && !directory && !s3)
		return 0;
	r = mcs_segments_new(o->direct.engine, o->direct.client, &o->segments);
	if (r == 0 && c->segment_size)
		r = owner_add_memory(o, c);
	o->direct.has_memory = r == 0 && c->segment_size;
	if (r == 0 && far)
		r = owner_add_far(o, c);
	if (r == 0 && disks)
		r = owner_add_disks(o, c);
	if (r == 0 && s3)
		r = owner_add_s3(o, c);
	if (r == 0 && (directory || mcs_conf_asks_shared(c)))
		r = mcs_directory_start(o, &o->directory);
	if (r == 0 && o->directory)
		r = mcs_directory_await(o->directory);
	if (r < 0)
		return r;
	__atomic_store_n(&o->attaching, true, __ATOMIC_RELEASE);
	if (!mcs_session_ever(o->direct.base.session))
		return 0;
	MC_FAULT_POINT("client.open.before_mount");
	deadline = mc_deadline_ms(MOUNT_MS);
	do
		r = owner_mount(o, deadline);
	while (r == -MC_EOWNER && c->segment_fd > 0 && owner_await_previous(deadline));
	MC_FAULT_POINT("client.open.after_mount");
	return r;
}

/* ---- functions that the back end calls ---- */

static int owner_offer(struct mcs_direct *s, struct mcp_client *c, const struct mcs_terms *terms, uint64_t deadline)
{
	struct mcs_owner *o = mcs_owner_of(s);

	if (!__atomic_load_n(&o->attaching, __ATOMIC_ACQUIRE))
		return 0;
	/* The background thread renews leases; the sweeper and the directory wait for slow media. */
	if (!c && mcs_segments_named(o->segments))
		mcs_segments_named_later(o->segments);
	if (!c && o->directory)
		mcs_directory_mount(o->directory);
	return mcs_segments_mount(o->segments, c, c ? NULL : s->base.session, mcs_session_pool(s->base.session),
				  terms, deadline, c ? MCS_SEGMENTS_ALL : MCS_SEGMENTS_PLAIN);
}

static bool owner_has_in_fd(struct mcs_direct *s, struct mcp_id segment, uint64_t offset, uint64_t len)
{
	return mcs_segments_in_fd(mcs_owner_of(s)->segments, segment, offset, len);
}

static const struct mcs_direct_segments owner_segments = { .offer = owner_offer, .in_fd = owner_has_in_fd };

/* ---- slots of the table ---- */

static void owner_close(struct mcs_backend *b)
{
	struct mcs_direct *s = mcs_direct_of(b);
	struct mcs_owner *o = mcs_owner_of(s);

	mcs_async_close(s->async);
	/* Before the others, because it starts one of them. */
	mcs_directory_stop(o->directory);
	mcs_heartbeat_stop(o->heartbeat);
	mcs_mover_stop(o->mover);
	mcs_offloader_stop(o->offloader);
	mcs_sweeper_stop(o->sweeper);
	mcs_background_stop(s->background);
	s->background = NULL;
	if (b->session)
		mcs_segments_leave(o->segments, b->session, mc_deadline_ms(UNMOUNT_MS));
	mcs_security_session(b->store->security, NULL);
	mcs_session_close(b->session);
	mcs_directory_close(o->directory);
	mcs_segments_close(o->segments);
	mcs_direct_done(s);
	mc_mutex_destroy(&o->grow_lock);
	free(o);
}

static int owner_health(struct mcs_backend *b)
{
	if (!mcs_session_ever(b->session))
		return 1;
	return mcs_heartbeat_ok(mcs_owner_of(mcs_direct_of(b))->heartbeat) && mcs_session_up(b->session) ? 0 : 2;
}

static int owner_segment_grow(struct mcs_backend *b, uint64_t size, uint64_t deadline)
{
	struct mcs_owner *o = mcs_owner_of(mcs_direct_of(b));

	MC_LOCKED(&o->grow_lock);
	return mcs_segments_grow(o->segments, b->session, size, deadline);
}

static int owner_segment_fd(struct mcs_backend *b, uint64_t *ret_size)
{
	return mcs_segments_fd(mcs_owner_of(mcs_direct_of(b))->segments, ret_size);
}

static int owner_disks_remove(struct mcs_backend *b, uint64_t deadline)
{
	return mcs_segments_remove_durable(mcs_owner_of(mcs_direct_of(b))->segments, b->session, deadline);
}

static int owner_segment_identity(struct mcs_backend *b, uint64_t *identity)
{
	return mcs_segments_keep_at(mcs_owner_of(mcs_direct_of(b))->segments, identity);
}

static const struct mcs_backend_ops owner_ops = {
	.has_attrs = true,
	.close = owner_close,
	.replaceable = mcs_direct_replaceable,
	.health = owner_health,
	.segment_grow = owner_segment_grow,
	.segment_fd = owner_segment_fd,
	.segment_identity = owner_segment_identity,
	.disks_remove = owner_disks_remove,
	.register_buffer = mcs_direct_register_buffer,
	.register_memfd = mcs_direct_register_memfd,
	.unregister_buffer = mcs_direct_unregister_buffer,
	.pool_alloc = mcs_direct_pool_alloc,
	.pool_free = mcs_direct_pool_free,
	.put_batch = mcs_direct_put_batch,
	.put_stream_open = mcs_direct_put_stream_open,
	.get_batch = mcs_direct_get_batch,
	.find = mcs_direct_find,
	.get_found = mcs_direct_get_found,
	.stat = mcs_direct_stat,
	.stat_batch = mcs_direct_stat_batch,
	.exist = mcs_direct_exist,
	.remove_batch = mcs_direct_remove_batch,
	.prefetch = mcs_direct_prefetch,
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

static int owner_start(struct mcs_owner *o)
{
	int r = mcs_direct_start(&o->direct);

	if (r == 0)
		r = owner_open_segments(o);
	if (r == 0)
		r = mcs_direct_run(&o->direct);
	if (r == 0 && o->segments)
		r = mcs_mover_start(&o->direct, &o->mover);
	if (r == 0 && mcs_segments_offload(o->segments))
		r = mcs_offloader_start(&o->direct, &o->offloader);
	if (r == 0 && mcs_segments_named(o->segments))
		r = mcs_sweeper_start(&o->direct, &o->sweeper);
	if (r == 0)
		r = mcs_heartbeat_start(&o->direct, &o->heartbeat);
	if (r == 0)
		mcs_directory_run(o->directory);
	return r;
}

int mcs_owner_open(struct mcs *store, struct mcs_backend **ret)
{
	struct mcs_owner *o = calloc(1, sizeof(*o));
	char why[256];
	int r;

	if (!o)
		return -ENOMEM;
	mc_mutex_init(&o->grow_lock);
	mcs_direct_init(&o->direct, store, &owner_ops, &owner_segments);
	r = owner_start(o);
	if (r < 0) {
		snprintf(why, sizeof(why), "%s", mc_err_detail(r));
		owner_close(&o->direct.base);
		return mc_fail(r, "%s", why);
	}
	*ret = &o->direct.base;
	return 0;
}
