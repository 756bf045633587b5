/* SPDX-License-Identifier: Apache-2.0
 * service.c - sessions; REGISTER, HEARTBEAT, MOUNT, UNMOUNT, SEGMENTS, STATS; the table of handlers. */
#include <config.h>

#include "master/service/service.h"

#include <errno.h>
#include <string.h>

#include "common/err.h"
#include "master/admin/stats.h"
#include "master/ha/feeder.h"
#include "master/mcm_i.h"
#include "master/memory/scratch.h"
#include "master/security/capability.h"
#include "master/service/service_i.h"
#include "master/session.h"

int mcm_session_opened(struct mcp_session *s, void *arg)
{
	const struct mc_principal *identity = mcp_session_principal(s);
	struct mcm_session *ms;
	struct mcp_bytes host;
	struct mcm *m = arg;
	int r;

	if (!m->tenants.on && !mcm_tenant_is_default(mcp_bytes(identity->tenant, strlen(identity->tenant))))
		return mc_fail(-EACCES, "the identity of this peer belongs to tenant \"%s\", and the master was "
			       "started without --enable_multi_tenants", identity->tenant);
	r = mcm_session_new(m, mcp_session_client(s), &ms);
	if (r < 0)
		return r;
	ms->identity = identity;
	host = mcp_session_host(s);
	ms->inside = host.len == 5 && !memcmp(host.data, "local", 5);
	r = mcm_account_open(m, ms, identity);
	if (r == 0)
		r = mcm_client_opened(m, ms->client);
	if (r < 0) {
		mcm_session_free(m, ms);
		return r;
	}
	if (m->security)
		mcm_client_identified(m, ms->client, identity);
	mcp_session_set(s, ms);
	return 0;
}

void mcm_session_closed(struct mcp_session *s, void *arg)
{
	struct mcm_session *ms = mcp_session_get(s);
	struct mcp_id client;

	/* A session that mcm_session_opened() refused has no struct mcm_session. */
	if (!ms)
		return;
	client = ms->client;
	mcm_session_free(arg, ms);
	mcm_client_closed(arg, client);
}

bool mcm_session_keeps(struct mcp_session *s, void *arg)
{
	struct mcm_session *ms = mcp_session_get(s);
	bool busy;

	if (ms->registered)
		return true;
	/* Only a registered session begins puts.  Heartbeats have a connection of their own. */
	if (mcm_client_registered(arg, ms->client))
		return true;
	mc_mutex_lock(&ms->lock);
	busy = ms->n_pins;
	mc_mutex_unlock(&ms->lock);
	return busy;
}

/* The host of a client.  Its connections may use different addresses of the master's own host. */
static struct mcp_bytes session_host(const struct mcp_session *s)
{
	static const char *const here[] = { "local", "unix", "127.", "[::1]", "[::ffff:127." };
	struct mcp_bytes host = mcp_session_host(s);

	for (unsigned i = 0; i < sizeof(here) / sizeof(here[0]); i++)
		if (host.len >= strlen(here[i]) && !memcmp(host.data, here[i], strlen(here[i])))
			return mcp_bytes("this host", 9);
	return host;
}

static int serve_join(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *answer, void *arg)
{
	struct mcp_join_reply reply;
	struct mcp_join rq;
	struct mcm *m = arg;
	int r;

	r = mcp_decode(&mcp_desc_join, body, len, &rq);
	if (r == 0 && !m->feeders)
		r = mc_fail(-MC_ENOTSUP, "this master was started without enable_ha");
	if (r == 0)
		r = mcm_feeders_join(m->feeders, &rq, mcp_session_host(s), &reply.term);
	return r < 0 ? r : mcp_answer(answer, &mcp_desc_join_reply, &reply);
}

static int serve_register(struct mcp_session *s, const void *body, size_t len,
			  struct mcp_answer *answer, void *arg)
{
	struct mcm_session *ms = mcp_session_get(s);
	struct mcp_register_reply reply;
	struct mcp_register rq;
	struct mcm *m = arg;
	bool back;
	int r;

	r = mcp_decode(&mcp_desc_register, body, len, &rq);
	if (r < 0)
		return r;
	if (!mcp_id_eq(rq.client, mcp_session_client(s)))
		return mc_fail(-MC_EPARAM, "the client id differs from that of the connection");
	back = !ms->registered && mcm_client_registered(m, rq.client);
	r = mcm_client_register(m, &rq, session_host(s));
	if (r < 0)
		return r;
	mcm_generation_seen(m, rq.seen);
	if (!ms->registered && ms->fence <= rq.seen)
		ms->fence = mcm_generation_next(m, 0);
	ms->registered = true;
	ms->engine = rq.engine;
	/* A client that lost a connection checks the results of its last requests next. */
	if (back)
		mcm_journal_depend(m);
	reply = (struct mcp_register_reply){
		.client_ttl_ms = (uint32_t)m->conf.client_ttl,
		.heartbeat_ms = (uint32_t)mcm_heartbeat_ms(m),
		.lease_ttl_ms = (uint32_t)mcm_read_lease_ms(m),
		.fence = ms->fence,
		.earlier = __atomic_load_n(&m->puts.quarantine.restored_upto, __ATOMIC_RELAXED),
		.takeover_ms = m->lead ? m->lead->takeover_ms : 0,
	};
	return mcp_answer(answer, &mcp_desc_register_reply, &reply);
}

static int serve_heartbeat(struct mcp_session *s, const void *body, size_t len,
			   struct mcp_answer *answer, void *arg)
{
	struct mcp_fence fence[MCP_FENCES_MAX];
	struct mcp_heartbeat_reply reply = { 0 };
	struct mcp_heartbeat rq;
	int r;

	r = mcp_decode(&mcp_desc_heartbeat, body, len, &rq);
	if (r < 0)
		return r;
	if (!mcp_id_eq(rq.client, mcp_session_client(s)))
		return mc_fail(-MC_EPARAM, "the client id differs from that of the connection");
	reply.reattach = mcm_client_beat(arg, rq.client, &reply.heartbeat_ms);
	mcm_client_pauses(arg, rq.client, &rq.paused);
	reply.fences = mcp_seq(fence, mcm_client_fences(arg, rq.client, &rq.fenced, fence));
	reply.tasks = mcm_client_has_tasks(arg, rq.client);
	reply.revocations = mcm_credentials_changes(arg);
	reply.now_ms = mcm_capability_time(arg);
	return mcp_answer(answer, &mcp_desc_heartbeat_reply, &reply);
}

int mcm_serve_check_writer(const struct mcm_session *s)
{
	return mcp_id_zero(s->engine) ?
		mc_fail(-MC_EVERSION, "this client cannot be fenced, so it may not write: it has not registered its "
			"transfer engine, or is older than version 3 of the protocol") : 0;
}

int mcm_serve_check_registered(const struct mcp_session *s)
{
	const struct mcm_session *ms = mcp_session_get(s);

	return ms->registered ? 0 :
		mc_fail(-MC_EOWNER, "this connection has not registered its client id");
}

int mcm_serve_check_tenantless(const struct mcp_session *s, const char *subject)
{
	const struct mc_principal *identity = mcp_session_principal(s);

	return identity->tenant[0] ?
		mc_fail(-EACCES, "%s concerns all tenants, and the identity of this peer belongs to tenant \"%s\"",
			subject, identity->tenant) : 0;
}

static int serve_mount(struct mcp_session *s, const void *body, size_t len,
		       struct mcp_answer *answer, void *arg)
{
	struct mcp_mount_reply reply;
	struct mcp_mount rq;
	int r;

	r = mcp_decode(&mcp_desc_mount, body, len, &rq);
	if (r == 0)
		r = mcm_serve_check_registered(s);
	if (r == 0)
		r = mcm_mount(arg, mcp_session_client(s), mcp_session_principal(s), &rq, &reply);
	return r < 0 ? r : mcp_answer(answer, &mcp_desc_mount_reply, &reply);
}

static int serve_unmount(struct mcp_session *s, const void *body, size_t len,
			 struct mcp_answer *answer, void *arg)
{
	struct mcp_unmount_reply reply = { 0 };
	struct mcp_unmount rq;
	int r;

	r = mcp_decode(&mcp_desc_unmount, body, len, &rq);
	if (r == 0)
		r = mcm_serve_check_registered(s);
	if (r == 0)
		r = rq.keep ? mcm_unmount_keep(arg, mcp_session_client(s), rq.segment) :
			mcm_unmount(arg, mcp_session_client(s), rq.segment, &reply.objects_lost);
	return r < 0 ? r : mcp_answer(answer, &mcp_desc_unmount_reply, &reply);
}

static int serve_confirm(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *answer, void *arg)
{
	struct mcp_confirm_reply reply;
	struct mcp_confirm rq;
	int r;

	r = mcp_decode(&mcp_desc_confirm, body, len, &rq);
	if (r == 0)
		r = mcm_serve_check_registered(s);
	if (r == 0)
		r = mcm_confirm(arg, mcp_session_client(s), &rq, &reply);
	return r < 0 ? r : mcp_answer(answer, &mcp_desc_confirm_reply, &reply);
}

/* 1: the peer is confined to tenant *@ret, which is MCM_TENANT_NONE if it is not in the table.  0: it may know about
 * all tenants. */
static int session_confined(struct mcm *m, const struct mcp_session *s, uint32_t *ret)
{
	const struct mc_principal *identity = mcp_session_principal(s);
	struct mcm_scope sc;
	int r;

	/* Without tenants all objects and segments are of the one tenant to which it may be confined. */
	if (!identity->tenant[0] || !m->tenants.on)
		return 0;
	r = mcm_scope_begin(m, identity, mcp_bytes("", 0), false, &sc);
	*ret = sc.tenant;
	return r < 0 ? r : 1;
}

/* @caller: whose segments are described with their client id, which allows to act as their owner. */
static struct mcp_segment segment_describe(struct mcm_segment *s, struct mcp_id caller)
{
	struct mcp_segment d = {
		.segment = s->id, .client = mcp_id_eq(s->client, caller) ? caller : (struct mcp_id){ 0, 0 },
		.base = s->base, .rkey = s->rkey,
		.size = s->size, .used = mcm_load_relaxed(&s->used), .objects = mcm_load_relaxed(&s->objects),
		.state = mcm_segment_shown(s), .medium = s->medium,
		.name = mcp_bytes(s->name, strlen(s->name)),
		.endpoint = mcp_bytes(s->endpoint, strlen(s->endpoint)),
		.protocol = mcp_bytes(s->protocol, strlen(s->protocol)),
	};

	mc_mutex_lock(&s->lock);
	d.largest_free = mcm_alloc_largest_free(&s->alloc);
	mc_mutex_unlock(&s->lock);
	return d;
}

/* The same for a peer that is confined to a tenant; false: it must not know of the segment.  The sums of a segment of
 * all tenants would tell about others. */
static bool segment_describe_confined(struct mcm_segment *s, struct mcp_id caller, uint32_t tenant, bool secure,
				      struct mcp_segment *ret)
{
	uint32_t of = mcm_load_relaxed(&s->tenant);

	if (of != tenant + 1 && (of || secure))
		return false;
	*ret = segment_describe(s, caller);
	if (!of)
		ret->used = ret->objects = ret->largest_free = 0;
	return true;
}

static int serve_segments(struct mcp_session *s, const void *body, size_t len,
			  struct mcp_answer *answer, void *arg)
{
	struct mcp_segments_reply reply = { 0 };
	struct mcm_segments *ss = &((struct mcm *)arg)->segments;
	struct mcm_segment *one;
	struct mcp_segment *seg;
	struct mcp_segments rq;
	const struct mcm_session *ms = mcp_session_get(s);
	struct mcp_id caller = ms->registered ? ms->client : (struct mcp_id){ 0, 0 };
	unsigned i, most, n = 0;
	uint32_t tenant;
	int r, confined;

	r = mcp_decode(&mcp_desc_segments, body, len, &rq);
	confined = r < 0 ? r : session_confined(arg, s, &tenant);
	if (confined < 0)
		return confined;
	mc_rwlock_rdlock(&ss->lock);
	one = mcp_id_zero(rq.segment) ? NULL : mcm_segments_find(ss, rq.segment);
	most = mcp_id_zero(rq.segment) ? ss->n_live : one != NULL;
	seg = mcm_scratch(MCM_SCRATCH_ITEMS, most, sizeof(*seg));
	for (i = 0; seg && i < most; i++) {
		struct mcm_segment *at = one ? one : ss->at[ss->live[i]];

		if (!confined)
			seg[n++] = segment_describe(at, caller);
		else
			n += segment_describe_confined(at, caller, tenant, ((struct mcm *)arg)->security, &seg[n]);
	}
	reply.segments = mcp_seq(seg, n);
	/* The names are borrowed from the table, so encode them under its lock. */
	r = seg ? mcp_answer(answer, &mcp_desc_segments_reply, &reply) : -ENOMEM;
	mc_rwlock_unlock(&ss->lock);
	return r;
}

static int serve_stats(struct mcp_session *s, const void *body, size_t len,
		       struct mcp_answer *answer, void *arg)
{
	struct mcp_stats_reply reply;
	struct mcp_stats rq;
	uint32_t tenant;
	int r;

	r = mcp_decode(&mcp_desc_stats, body, len, &rq);
	if (r == 0)
		r = session_confined(arg, s, &tenant);
	if (r < 0)
		return r;
	if (r)
		mcm_stats_tenant(arg, tenant, &reply);
	else
		mcm_stats(arg, &reply);
	return mcp_answer(answer, &mcp_desc_stats_reply, &reply);
}

static int serve_storage(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *answer, void *arg)
{
	const struct mcm *m = arg;
	const struct mcm_conf *c = &m->conf;
	uint64_t size = c->global_file_segment_size;
	struct mcp_storage_reply reply = {
		.root_fs_dir = mcp_bytes(m->offload.root_fs_dir, (uint32_t)strlen(m->offload.root_fs_dir)),
		.cluster = mcp_bytes(c->cluster_id, (uint32_t)strlen(c->cluster_id)),
	};
	struct mcp_storage rq;
	int r = mcp_decode(&mcp_desc_storage, body, len, &rq);

	if (c->quota_bytes && c->quota_bytes < size)
		size = c->quota_bytes;
	reply.file_size = size < INT64_MAX ? size : 0;
	return r < 0 ? r : mcp_answer(answer, &mcp_desc_storage_reply, &reply);
}

static int serve_orphan(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *answer, void *arg)
{
	struct mcp_orphan_reply reply = { { 0, 0 }, 0 };
	uint16_t tenant = 0;
	struct mcp_orphan rq;
	int r = mcp_decode(&mcp_desc_orphan, body, len, &rq);

	if (r == 0)
		r = mcm_serve_check_registered(s);
	if (r == 0)
		r = mcm_mount_tenant(arg, mcp_session_principal(s), &tenant);
	if (r == 0)
		mcm_orphan(arg, tenant, rq.skip, &reply);
	return r < 0 ? r : mcp_answer(answer, &mcp_desc_orphan_reply, &reply);
}

void mcm_serve_prefetch(struct mcm *m, struct mcp_iter it, size_t key)
{
	uint32_t hash[MCM_PREFETCH_MAX];
	unsigned n = 0;
	union {
		struct mcp_key key;
		struct mcp_put_item item;
		struct mcp_put_done done;
	} elem;

	while (n < MCM_PREFETCH_MAX && mcp_iter_next(&it, &elem)) {
		const struct mcp_bytes *k = (const void *)((const char *)&elem + key);

		hash[n++] = mcm_index_hash(&m->index, k->data, k->len);
	}
	if (n > 1)
		mcm_index_prefetch(&m->index, hash, n, NULL);
}

const struct mcp_handler mcm_handlers[] = {
	{ MCP_REGISTER, serve_register },
	{ MCP_HEARTBEAT, serve_heartbeat },
	{ MCP_MOUNT, serve_mount },
	{ MCP_UNMOUNT, serve_unmount },
	{ MCP_SEGMENTS, serve_segments },
	{ MCP_STATS, serve_stats },
	{ MCP_STORAGE, serve_storage },
	{ MCP_ORPHAN, serve_orphan },
	{ MCP_PUT_START, mcm_serve_put_start },
	{ MCP_PUT_END, mcm_serve_put_end },
	{ MCP_PUT_REVOKE, mcm_serve_put_revoke },
	{ MCP_GET, mcm_serve_get },
	{ MCP_CAPABILITIES, mcm_serve_capabilities },
	{ MCP_RELEASE, mcm_serve_release },
	{ MCP_RENEW, mcm_serve_renew },
	{ MCP_EXIST, mcm_serve_exist },
	{ MCP_REMOVE, mcm_serve_remove },
	{ MCP_REMOVE_MATCH, mcm_serve_remove_match },
	{ MCP_RENAME, mcm_serve_rename },
	{ MCP_RENAME_DIR, mcm_serve_rename_dir },
	{ MCP_LINK, mcm_serve_link },
	{ MCP_LIST, mcm_serve_list },
	{ MCP_TENANTS, mcm_serve_tenants },
	{ MCP_QUOTA, mcm_serve_quota },
	{ MCP_TASK_CREATE, mcm_serve_task_create },
	{ MCP_TASKS, mcm_serve_tasks },
	{ MCP_TASK_CANCEL, mcm_serve_task_cancel },
	{ MCP_TASK_FETCH, mcm_serve_task_fetch },
	{ MCP_COPIED, mcm_serve_copied },
	{ MCP_ADOPT, mcm_serve_adopt },
	{ MCP_USED, mcm_serve_used },
	{ MCP_DESCRIBE, mcm_serve_describe },
	{ MCP_EVENTS, mcm_serve_events },
	{ MCP_TIER, mcm_serve_tier },
	{ MCP_CLEAR, mcm_serve_clear },
	{ MCP_SET_ATTRS, mcm_serve_set_attrs },
	{ MCP_BAD_COPY, mcm_serve_bad_copy },
	{ MCP_NODE_TICKET, mcm_serve_ticket },
	{ MCP_IDENTIFY, mcm_serve_identify },
	{ MCP_REVOKED, mcm_serve_revoked },
	{ MCP_DISK_KEY, mcm_serve_disk_key },
	{ MCP_CREDENTIAL_CREATE, mcm_serve_credential_create },
	{ MCP_CREDENTIALS, mcm_serve_credentials },
	{ MCP_CREDENTIAL_REVOKE, mcm_serve_credential_revoke },
	{ MCP_JOIN, serve_join },
	{ MCP_CONFIRM, serve_confirm },
	{ 0, NULL },
};

const uint16_t mcm_any_channel[] = { MCP_HEARTBEAT, MCP_REVOKED, 0 };
