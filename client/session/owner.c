/* SPDX-License-Identifier: Apache-2.0
 * owner.c - this process's segment. */
#include <config.h>

#include "client/session/owner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <mooncake/mcs.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/lock.h"
#include "common/sys/random.h"
#include "tiers/tier.h"

MC_COUNTER(mounts, "mooncake_client_segment_mounts_total", "", "offers of segments to the master")

struct mcs_owner {
	/* constant after open */
	struct mcs_owner_conf conf;
	struct mct_medium *medium;
	struct mct_memory mem;
	struct mce_mr *mr;
	struct mcp_id segment;
	/* guarded by lock */
	struct mc_mutex lock;
	uint64_t epoch;
	struct mcp_id pool;		/* that the segment was last offered to; zero: none, or not known */
	uint64_t server;		/* process of the master that has mounted it, as mcs_terms; 0: none */
	/* atomic */
	bool confirms;			/* the master wants its objects to be compared (confirm.h) */
};

static uint64_t owner_random(void)
{
	uint64_t v;

	do
		v = mc_random_u64();
	while (!v);
	return v;
}

/* The epoch before the pool: if the process dies between the two, its successor changes the epoch once more. */
static void owner_keep_identity(const struct mcs_owner *o)
{
	const uint64_t words[MCS_SEGMENT_IDENTITY] = {
		o->segment.hi, o->segment.lo, o->epoch, o->pool.hi, o->pool.lo,
	};

	for (unsigned i = 0; i < MCS_SEGMENT_IDENTITY && o->conf.identity; i++)
		__atomic_store_n(&o->conf.identity[i], words[i], __ATOMIC_RELEASE);
}

int mcs_owner_open(const struct mcs_owner_conf *conf, struct mcs_owner **ret)
{
	struct mcs_owner *o = calloc(1, sizeof(*o));
	struct mct_conf medium = {
		.size = conf->size, .reserve = conf->max, .kind = conf->kind, .numa_node = -1,
		.prefault = 1, .path = conf->path, .path_offset = conf->path_offset,
		.adopt_fd = conf->adopt_fd,
	};
	struct mce_mr_attr attr = { .access = MCE_ACCESS_READ | MCE_ACCESS_WRITE };
	int r;

	if (!o)
		return -ENOMEM;
	mc_mutex_init(&o->lock);
	o->conf = *conf;
	r = mct_medium_open("dram", &medium, &o->medium);
	if (r == 0)
		r = o->medium->ops->memory(o->medium, &o->mem);
	if (r < 0)
		goto fail;
	attr.base = o->mem.base;
	/* Register all reserved memory at once: the master only uses as much as is mounted. */
	attr.len = o->mem.len;
	attr.fd = o->mem.fd;
	attr.fd_offset = o->mem.fd_offset;
	r = mce_mr_register(conf->engine, &attr, &o->mr);
	if (r < 0)
		goto fail;
	if (conf->adopt_fd > 0) {
		o->segment = (struct mcp_id){ conf->identity[0], conf->identity[1] };
		o->epoch = conf->identity[2];
		o->pool = (struct mcp_id){ conf->identity[3], conf->identity[4] };
	} else {
		o->segment.hi = owner_random();
		o->segment.lo = owner_random();
		o->epoch = owner_random();
		owner_keep_identity(o);
	}
	*ret = o;
	return 0;
fail:
	mcs_owner_close(o);
	return r;
}

void mcs_owner_close(struct mcs_owner *o)
{
	if (!o)
		return;
	if (o->mr)
		mce_mr_unregister(o->mr);
	mct_medium_close(o->medium);
	mc_mutex_destroy(&o->lock);
	free(o);
}

static uint64_t owner_size(const struct mcs_owner *o)
{
	struct mct_status status;

	o->medium->ops->status(o->medium, &status);
	return status.size;
}

/* The epoch of the segment in @pool. */
static uint64_t owner_enter(struct mcs_owner *o, struct mcp_id pool)
{
	MC_LOCKED(&o->lock);
	if (mcp_id_zero(pool) || mcp_id_eq(pool, o->pool))
		return o->epoch;
	if (!mcp_id_zero(o->pool))
		o->epoch = owner_random();
	o->pool = pool;
	owner_keep_identity(o);
	return o->epoch;
}

int mcs_owner_keep_at(struct mcs_owner *o, uint64_t *identity)
{
	if (!o)
		return mc_fail(-EINVAL, "this process contributes no memory");
	MC_LOCKED(&o->lock);
	o->conf.identity = identity;
	owner_keep_identity(o);
	return 0;
}

/* Writers that began under an earlier master may still write where this master will grant memory. */
static struct mcp_mount owner_mount_msg(struct mcs_owner *o, struct mcp_id pool, const struct mcs_terms *terms)
{
	const char *endpoint = mce_engine_endpoint(o->conf.engine);

	return (struct mcp_mount){
		.segment = o->segment,
		.client = o->conf.client,
		.epoch = owner_enter(o, pool),
		.base = (uintptr_t)o->mem.base,
		.rkey = mce_mr_rkey(o->mr),
		.size = owner_size(o),
		.name = mcp_bytes(endpoint, strlen(endpoint)),
		.endpoint = mcp_bytes(endpoint, strlen(endpoint)),
		.protocol = mcp_bytes(o->conf.protocol, strlen(o->conf.protocol)),
		.unfenced = mce_engine_fence(o->conf.engine, NULL, terms->earlier) < 0,
		.seen = __atomic_load_n(&o->server, __ATOMIC_RELAXED),
		.confirms = 1,
	};
}

/* @server: 0 if another one may have answered. */
static int owner_mounted(struct mcs_owner *o, uint64_t server, const struct mcp_mount_reply *reply,
			 struct mcp_reply *mem)
{
	__atomic_store_n(&o->server, server, __ATOMIC_RELAXED);
	mc_metric_add(&mounts, 1);
	mcs_owner_confirm_set(o, reply->confirm);
	if (reply->reattached)
		mc_debug("client", "the master knows our segment again objects=%llu",
			 (unsigned long long)reply->objects);
	mcp_reply_done(mem);
	return 0;
}

int mcs_owner_mount(struct mcs_owner *o, struct mcp_client *c, struct mcp_id pool, const struct mcs_terms *terms,
		    uint64_t deadline)
{
	struct mcp_mount_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_mount msg;
	int r;

	if (!o)
		return 0;
	msg = owner_mount_msg(o, pool, terms);
	r = mcp_call(c, MCP_MOUNT, &msg, &reply, &mem, deadline);
	return r < 0 ? r : owner_mounted(o, terms->server, &reply, &mem);
}

int mcs_owner_remount(struct mcs_owner *o, struct mcs_session *s, uint64_t deadline)
{
	const struct mcs_terms terms = mcs_session_terms(s);
	struct mcp_mount_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_mount msg;
	int r;

	if (!o)
		return 0;
	msg = owner_mount_msg(o, mcs_session_pool(s), &terms);
	r = mcs_call(s, MCP_MOUNT, &msg, &reply, &mem, deadline);
	if (r < 0)
		return r;
	return owner_mounted(o, mcs_session_terms(s).server == terms.server ? terms.server : 0, &reply, &mem);
}

bool mcs_owner_confirms(const struct mcs_owner *o)
{
	return o && __atomic_load_n(&o->confirms, __ATOMIC_ACQUIRE);
}

bool mcs_owner_confirm_take(struct mcs_owner *o, struct mcp_id *ret)
{
	if (!o || !__atomic_exchange_n(&o->confirms, false, __ATOMIC_ACQ_REL))
		return false;
	*ret = o->segment;
	return true;
}

void mcs_owner_confirm_set(struct mcs_owner *o, bool wish)
{
	__atomic_store_n(&o->confirms, wish, __ATOMIC_RELEASE);
}

const void *mcs_owner_at(const struct mcs_owner *o, struct mcp_id segment, uint64_t offset, uint64_t len)
{
	uint64_t size;

	if (!o || !mcp_id_eq(segment, o->segment))
		return NULL;
	size = owner_size(o);
	if (offset > size || len > size - offset)
		return NULL;
	return (const char *)o->mem.base + offset;
}

int mcs_owner_fd(const struct mcs_owner *o, uint64_t *ret_size)
{
	if (!o)
		return mc_fail(-EINVAL, "this process contributes no memory");
	*ret_size = o->mem.len;
	return o->mem.fd;
}

int mcs_owner_grow(struct mcs_owner *o, struct mcs_session *s, uint64_t size, uint64_t deadline)
{
	int r;

	if (!o)
		return mc_fail(-EINVAL, "this process contributes no memory");
	r = o->medium->ops->grow(o->medium, size);
	return r < 0 ? r : mcs_owner_remount(o, s, deadline);
}

int mcs_owner_unmount(struct mcs_owner *o, struct mcs_session *s, uint64_t deadline)
{
	struct mcp_unmount msg = { .keep = 0 };
	struct mcp_unmount_reply reply;
	struct mcp_reply mem = { 0 };
	int r;

	if (!o)
		return 0;
	msg.segment = o->segment;
	r = mcs_call(s, MCP_UNMOUNT, &msg, &reply, &mem, deadline);
	if (r >= 0)
		mcp_reply_done(&mem);
	return r < 0 ? r : 0;
}
