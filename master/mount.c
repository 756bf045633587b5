/* SPDX-License-Identifier: Apache-2.0
 * mount.c - mounting and unmounting of clients' segments. */
#include <config.h>

#include "master/mount.h"

#include <errno.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/metrics.h"
#include "master/mcm_i.h"
#include "master/security/capability.h"
#include "master/snapshot/confirm.h"
#include "master/task/adopt.h"
#include "proto/codec.h"

#define LOG "segment"

MC_COUNTER(mounts, "master_mount_segment_requests_total", "", "Requests to mount a segment")
MC_COUNTER(mount_failures, "master_mount_segment_failures_total", "", "Mount requests that were refused")
MC_COUNTER(remounts, "master_remount_segment_requests_total", "",
	   "Known segments that were mounted again with their objects")
MC_COUNTER(remount_failures, "master_remount_segment_failures_total", "",
	   "Mount requests of known segments that were refused")
MC_COUNTER(unmounts, "master_unmount_segment_requests_total", "", "Requests to unmount a segment")
MC_COUNTER(unmount_failures, "master_unmount_segment_failures_total", "", "Unmount requests that failed")

/* ---- both tables locked ---- */

static int check_mount(struct mcp_id sender, const struct mcp_mount *rq)
{
	int r;

	if (mcp_id_zero(rq->segment) || mcp_id_zero(rq->client))
		return mc_fail(-MC_EPARAM, "a segment needs a nonzero id and client id");
	if (!mcp_id_eq(sender, rq->client))
		return mc_fail(-MC_EOWNER, "a client may mount only its own segments");
	if (rq->medium >= MCP_MEDIA || rq->high > 100 || rq->low > 100 || rq->policy >= MCP_EVICT_POLICIES)
		return mc_fail(-MC_EPARAM, "invalid segment: medium=%u high=%u low=%u policy=%u", rq->medium,
			       rq->high, rq->low, rq->policy);
	if (rq->key.len && rq->key.len != MC_CAPABILITY_KEY)
		return mc_fail(-MC_EPARAM, "invalid segment: a key of %u bytes", rq->key.len);
	if (rq->size < MCM_GRANULE || rq->size > MCM_ALLOC_MAX || rq->base > UINT64_MAX - rq->size)
		return mc_fail(-MC_EPARAM, "invalid segment: size=%llu base=%#llx",
			       (unsigned long long)rq->size, (unsigned long long)rq->base);
	r = mcm_client_check_text("the segment's name", rq->name);
	if (r == 0 && !rq->name.len)
		r = mc_fail(-MC_EPARAM, "the segment's name is empty");
	if (r == 0)
		r = mcm_client_check_text("the endpoint", rq->endpoint);
	if (r == 0)
		r = mcm_client_check_text("the protocol", rq->protocol);
	return r;
}

static bool segment_served(struct mcm *m, const struct mcm_segment *s)
{
	const struct mcm_client *c = mcm_client_find(&m->clients, s->client);

	return c && c->sessions && mcm_segment_attached(s);
}

/* The same disk may be reached in another way than before: its objects stay. */
static bool medium_may_become(uint8_t was, uint8_t is)
{
	const struct mcp_medium_class *a = mcp_medium(was), *b = mcp_medium(is);

	return was == is || (a->rank == b->rank && !((a->traits ^ b->traits) & ~MCP_TRAIT_NOF));
}

/* Does the request conflict with other segments, or with @s, the known segment of the same id
 * (NULL: none)? */
static int check_others(struct mcm *m, const struct mcm_segment *s, const struct mcp_mount *rq)
{
	const struct mcm_client *owner = mcm_client_find(&m->clients, rq->client);
	uint64_t name = mc_hash(rq->name.data, rq->name.len, 0);
	const struct mcm_segment *t = NULL;
	struct mc_list *at;

	if (s && !medium_may_become(s->medium, rq->medium))
		return mc_fail(-MC_EPARAM, "a segment cannot move to another medium");
	if (s && s->epoch == rq->epoch && rq->size < s->size)
		return mc_fail(-MC_EPARAM, "a mounted segment cannot shrink: size=%llu requested=%llu",
			       (unsigned long long)s->size, (unsigned long long)rq->size);
	mc_list_for_each(at, &owner->segments) {
		t = mc_container_of(at, struct mcm_segment, link);
		if (t != s && rq->base && t->base && rq->base < t->base + t->size &&
		    t->base < rq->base + rq->size)
			return mc_fail(-MC_ESEGMENT_EXISTS, "the segment overlaps segment %s of this client",
				       t->name);
	}
	for (t = NULL; (t = mcm_segments_named(&m->segments, name, t));)
		if (t != s && !mcp_id_eq(t->client, rq->client) && segment_served(m, t))
			return mc_fail(-MC_ESEGMENT_EXISTS,
				       "another connected client has a segment named %s", t->name);
	return 0;
}

/* Give segment @s to @rq's client.  A client that knows the epoch has the memory; but while the old
 * owner is connected and serves the segment, it keeps the segment. */
static int segment_take_over(struct mcm *m, struct mcm_segment *s, const struct mcp_mount *rq)
{
	struct mcm_client *old = mcm_client_find(&m->clients, s->client);
	struct mcm_client *new = mcm_client_find(&m->clients, rq->client);

	if (mcp_id_eq(s->client, rq->client))
		return 0;
	if (old && old->sessions && mcm_segment_attached(s))
		return s->epoch == rq->epoch ?
			mc_fail(-MC_EOWNER, "the segment's owner is still connected") :
			mc_fail(-MC_ESEGMENT_EXISTS, "another client has a segment with this id");
	mc_list_remove(&s->link);
	if (old) {
		mcm_client_disowned(&m->clients, old);
		mcm_client_unneeded(&m->clients, old);
	}
	mcm_client_own(&m->clients, new, s);
	new->hidden = true;
	mcm_segment_set_client(s, rq->client);
	mcm_store_relaxed(&s->paused, false);
	return 0;
}

static void segment_drop(struct mcm *m, struct mcm_client *c, struct mcm_segment *s)
{
	if (s->unproven)
		mcm_confirm_rest(m, s, MCM_CONFIRM_LOST);
	s->unproven = false;
	mcm_journal_segment_gone(m, s);
	mcm_drain_lost(m, s);
	mcm_segments_remove(&m->segments, s);
	mcm_quarantine_unmounted(m);
	mcm_client_disowned(&m->clients, c);
	mcm_offload_disks_changed(m, c);
}

void mcm_client_drop_segment(struct mcm *m, struct mcm_segment *s)
{
	struct mcm_client *c = mcm_client_find(&m->clients, s->client);

	segment_drop(m, c, s);
	mcm_client_unneeded(&m->clients, c);
}

/* Did another process replace the owner of @t?  Then @t's owner has no connection, and a segment of
 * the same name is served at the same endpoint, with --security=on by the same node.  The caller waits
 * for the end of the grace period, in which the owner may reconnect. */
static bool is_replaced(struct mcm *m, const struct mcm_segment *t, const struct mcm_segment *by)
{
	const struct mcm_client *c = mcm_client_find(&m->clients, t->client);

	/* The node of a restored segment is not known. */
	if (m->security && (t->tenant != by->tenant || (*t->node && strcmp(t->node, by->node) != 0)))
		return false;
	return !mcp_id_eq(t->client, by->client) && !(c && c->sessions) && *by->endpoint &&
	       !strcmp(t->name, by->name) && !strcmp(t->endpoint, by->endpoint);
}

void mcm_client_drop_replaced(struct mcm *m, const struct mcm_segment *by)
{
	struct mcm_segment *t, *next;

	/* A disk may be mounted by any process of its node. */
	if (!mcm_segment_is(by, MCP_TRAIT_VOLATILE))
		return;
	for (t = mcm_segments_named(&m->segments, by->name_hash, NULL); t; t = next) {
		next = mcm_segments_named(&m->segments, by->name_hash, t);
		if (!is_replaced(m, t, by))
			continue;
		if (mcm_grace_active(m)) {
			m->clients.replaced = true;
			continue;
		}
		mc_info(LOG, "dropping a segment: another process replaced its owner segment=%s objects=%llu",
			t->name, (unsigned long long)mcm_load_relaxed(&t->objects));
		mcm_client_drop_segment(m, t);
		/* The evictor removes its objects. */
		mc_stop_kick(&m->evictor_stop);
	}
}

/* A put may allocate the new memory at once, so append the record first. */
static int segment_grow(struct mcm *m, struct mcm_segment *s, uint64_t size)
{
	int r;

	mcm_journal_segment_grows(m, s, size);
	r = mcm_segments_grow(&m->segments, s, size);
	if (r < 0)
		mcm_journal_segment(m, s);
	return r;
}

/* The size of a disk within --quota_bytes; it never shrinks. */
static uint64_t mount_size(const struct mcm *m, const struct mcm_segment *s, const struct mcp_mount *rq)
{
	uint64_t most = m->conf.quota_bytes;

	if (!mcp_medium_is(rq->medium, MCP_TRAIT_QUOTA) || !most || rq->size <= most)
		return rq->size;
	if (s && s->epoch == rq->epoch && s->size > most)
		most = s->size < rq->size ? s->size : rq->size;
	return most;
}

/* Its objects are from a snapshot, and another master may have served its memory since that was written. */
static bool is_doubtful(const struct mcm *m, const struct mcm_segment *s, const struct mcp_mount *rq)
{
	return s->unproven && (!rq->seen || rq->seen != m->snapshot_proof || s->confirm.doubted);
}

/* The owner of @s is back with the memory. */
static void segment_attach(struct mcm *m, struct mcm_client *c, struct mcm_segment *s, bool confirms)
{
	if (confirms) {
		if (mcm_segment_state(s) != MCP_SEG_CONFIRMING)
			mcm_confirm_allow(m, c, 0);
		mcm_segments_set_confirming(&m->segments, s);
		return;
	}
	if (s->unproven)
		mcm_confirm_rest(m, s, MCM_CONFIRM_PROVEN);
	s->unproven = false;
	mcm_segments_set_silent(&m->segments, s, false);
}

/* Must the owner of the disk offer its objects?  The owner asks for an offer in a pool that is new to the disk.  A
 * restored snapshot may be older than the disk: then the owner offers them too, unless it has been at this master
 * before, or at the one that wrote the snapshot at its end. */
static bool mount_adopts(const struct mcm *m, const struct mcp_mount *rq, const struct mcp_mount_reply *reply)
{
	bool returns = rq->seen && (rq->seen == m->snapshot_proof || rq->seen == m->id.lo);

	if (mcp_medium_is(rq->medium, MCP_TRAIT_VOLATILE) || rq->cluster != reply->cluster)
		return false;
	return rq->offers || (m->from_snapshot && !returns && !reply->objects && !reply->confirm);
}

/* A shared medium of another cluster keeps its objects: the other cluster may still use it. */
static int mount_check_shared(const struct mcm *m, const struct mcp_mount *rq)
{
	if (mcp_medium(rq->medium)->rank != MCP_RANK_SHARED || !rq->offers || rq->cluster == mcm_adopt_cluster(m))
		return 0;
	return mc_fail(-MC_EPARAM, "the segment has objects of a cluster with another cluster_id: give its owner "
		       "another place, or the master the same --cluster_id");
}

/* ---- segments and identities ---- */

/* Bytes at rest are encrypted in all of a pool with security, and nowhere else. */
static int mount_check_sealed(const struct mcm *m, const struct mcp_mount *rq)
{
	bool sealed = rq->confirms & MCP_MOUNT_SEALED;

	if (!mcp_medium_is(rq->medium, MCP_TRAIT_BLOCKS) || sealed == m->segments.sealed)
		return 0;
	return sealed ? mc_fail(-EACCES, "segment %.*s is encrypted, and this master has no --security=on",
				(int)rq->name.len, (const char *)rq->name.data) :
		mc_fail(-EACCES, "segment %.*s is not encrypted, and this pool has --security=on: start its owner with "
			"--credential", (int)rq->name.len, (const char *)rq->name.data);
}

int mcm_mount_tenant(struct mcm *m, const struct mc_principal *peer, uint16_t *ret)
{
	struct mcm_scope sc;
	int r;

	*ret = 0;
	if (!m->security)
		return 0;
	r = mcm_scope_begin(m, peer, mcp_bytes("", 0), false, &sc);
	if (r == 0 && sc.tenant == MCM_TENANT_NONE)
		r = mc_fail(-MC_ENOTENANT, "tenant \"%s\" of the node's credential is not in the quota policy",
			    peer->tenant);
	if (r == 0)
		*ret = (uint16_t)(sc.tenant + 1);
	return r;
}

/* Both tables locked.  Memory with objects of one tenant must not become readable for another, and a node of another
 * tenant must not end them with other memory of the same id. */
static int mount_check_tenant(struct mcm *m, const struct mcp_mount *rq, uint16_t tenant)
{
	const struct mcm_segment *s = mcm_segments_find(&m->segments, rq->segment);

	if (!tenant || !s || s->tenant == tenant || !mcm_load_relaxed(&s->objects))
		return 0;
	/* Without tenants all objects are of the default one. */
	if (!s->tenant && !m->tenants.on)
		return 0;
	return mc_fail(-EACCES, "segment %s has objects of %s, and the credential of its owner names another: remove "
		       "the objects first, or give the node another disk or segment", s->name,
		       s->tenant ? "one tenant" : "all tenants, from a time without --security=on");
}

static bool text_is(const char *text, struct mcp_bytes is)
{
	return strlen(text) == is.len && !memcmp(text, is.data, is.len);
}

/* Both tables locked.  With --security=on name and address say whose segment it is, so a node must not take those of
 * another tenant's segment, whose owner may return, nor the address of a node that is there. */
static int mount_check_place(struct mcm *m, const struct mcp_mount *rq, const struct mc_principal *peer,
			     uint16_t tenant)
{
	const struct mcm_segments *ss = &m->segments;

	for (unsigned i = 0; m->security && i < ss->n_live; i++) {
		const struct mcm_segment *t = ss->at[ss->live[i]];
		bool there = rq->endpoint.len && text_is(t->endpoint, rq->endpoint);

		if (mcp_id_eq(t->id, rq->segment) || mcp_id_eq(t->client, rq->client) ||
		    (!there && !text_is(t->name, rq->name)))
			continue;
		if (t->tenant && t->tenant != tenant)
			return mc_fail(-MC_ESEGMENT_EXISTS, "a segment of another tenant has the name %.*s, or its "
				       "address: give the node another address or port, or wait until the master has "
				       "forgotten that segment", (int)rq->name.len, (const char *)rq->name.data);
		if (there && segment_served(m, t) && strcmp(t->node, peer ? peer->name : "") != 0)
			return mc_fail(-MC_ESEGMENT_EXISTS, "node %s is connected with the address %s: give this node "
				       "another address or port", t->node, t->endpoint);
	}
	return 0;
}

static void mount_identify(struct mcm_segment *s, const struct mc_principal *peer, uint16_t tenant)
{
	snprintf(s->node, sizeof(s->node), "%s", peer ? peer->name : "");
	mcm_store_relaxed(&s->node_secret, peer ? peer->secret : 0);
	mcm_store_relaxed(&s->tenant, tenant);
}

static int mount_locked(struct mcm *m, const struct mcp_mount *asked, const struct mc_principal *peer, uint16_t tenant,
			struct mcp_mount_reply *ret)
{
	struct mcm_segment *s = mcm_segments_find(&m->segments, asked->segment);
	struct mcm_client *c = mcm_client_get(m, asked->client);
	struct mcp_mount capped = *asked;
	const struct mcp_mount *rq = &capped;
	bool doubtful = s && is_doubtful(m, s, asked), confirms = doubtful && s->confirm.n;
	int r;

	if (asked->nof && asked->medium == MCP_MEDIUM_DISK)
		capped.medium = MCP_MEDIUM_NOF;
	capped.size = mount_size(m, s, &capped);
	if (!c)
		return -ENOMEM;
	r = check_others(m, s, rq);
	if (r == 0)
		r = mount_check_shared(m, rq);
	/* A snapshot does not know the ranges of later puts. */
	if (r == 0 && doubtful && rq->unfenced)
		r = mc_fail(-MC_EUNAVAILABLE, "a process on the owner's host is still copying into the segment, which "
			    "is known from a snapshot only");
	if (r == 0 && s)
		r = segment_take_over(m, s, rq);
	/* The same memory, possibly enlarged. */
	if (r == 0 && s && s->epoch == rq->epoch && s->size != rq->size)
		r = segment_grow(m, s, rq->size);
	if (r < 0)
		return r;
	if (confirms && !(rq->confirms & MCP_MOUNT_CONFIRMS) && s->epoch == rq->epoch) {
		mcm_confirm_rest(m, s, MCM_CONFIRM_OLD);
		s->unproven = false;
		s->epoch = ~rq->epoch;
	}
	if (s && s->epoch == rq->epoch) {
		mcm_segments_describe(&m->segments, s, rq);
		__atomic_store_n(&s->connected, c->sessions > 0, __ATOMIC_RELAXED);
		segment_attach(m, c, s, confirms);
		ret->confirm = confirms;
		ret->reattached = 1;
		ret->objects = mcm_load_relaxed(&s->objects);
	} else {
		/* Other memory with the same id: the objects in the old memory are lost. */
		if (s) {
			segment_drop(m, c, s);
			/* The evictor removes its objects. */
			mc_stop_kick(&m->evictor_stop);
		}
		if (rq->unfenced)
			return mc_fail(-MC_EUNAVAILABLE, "a process on the owner's host is still copying into the "
				       "segment, for a put of an earlier master");
		r = mcm_segments_add(&m->segments, rq, &s);
		if (r < 0)
			return r;
		mcm_client_own(&m->clients, c, s);
		__atomic_store_n(&s->connected, c->sessions > 0, __ATOMIC_RELAXED);
		mcm_segment_usable(&m->segments, s);
	}
	s->left = false;
	ret->cluster = mcm_adopt_cluster(m);
	ret->now_ms = mcm_capability_time(m);
	ret->adopts = mount_adopts(m, rq, ret);
	mount_identify(s, peer, tenant);
	mcm_store_relaxed(&s->adopting, ret->adopts);
	mcm_journal_segment(m, s);
	mcm_offload_disks_changed(m, c);
	mcm_client_drop_replaced(m, s);
	/* Until its next heartbeat the client may still use the longer interval of clients without segments. */
	c->seen_ms = mcm_now_ms(m) + (c->beat_ms > mcm_heartbeat_ms(m) ? c->beat_ms : 0);
	return 0;
}

/* Apply the rules of a mount request to a record, which may be damaged. */
static int check_record(const struct mcm_segment_record *rec)
{
	const struct mcp_mount rq = {
		.segment = rec->id, .client = rec->client, .size = rec->size, .name = rec->name,
		.endpoint = rec->endpoint, .protocol = rec->protocol, .medium = rec->medium,
		.high = rec->high, .low = rec->low, .policy = rec->policy,
	};

	return check_mount(rec->client, &rq);
}

int mcm_segment_restore(struct mcm *m, const struct mcm_segment_record *rec, bool unproven)
{
	struct mcm_segment *s;
	struct mcm_client *c;
	int r;

	r = check_record(rec);
	if (r < 0)
		return r;
	if (mcm_segments_find(&m->segments, rec->id))
		return mc_fail(-MC_EPARAM, "another segment has the same id");
	c = mcm_client_get(m, rec->client);
	if (!c)
		return -ENOMEM;
	r = mcm_segments_restore(&m->segments, rec, &s);
	if (r < 0) {
		mcm_client_unneeded(&m->clients, c);
		return r;
	}
	s->left = false;
	s->unproven = unproven;
	s->confirm.doubted = rec->unproven;
	s->silent_ms = mcm_now_ms(m);
	c->hidden = true;
	mcm_client_own(&m->clients, c, s);
	return 0;
}

/* Only copies would be written there, and there are none. */
static void warn_unused(const struct mcm *m, const struct mcp_mount *rq)
{
	uint8_t rank = mcp_medium(rq->medium)->rank;

	if (m->offload.on && rank == MCP_RANK_FAR && !mcm_load_relaxed(&m->segments.capacity))
		mc_warn(LOG, "the pool has far memory, which takes only copies, and no near memory: puts fail until a "
			"node has --global_segment_size, or start the master with --allocation_strategy=cxl name=%.*s",
			(int)rq->name.len, (const char *)rq->name.data);
	if (m->offload.on || rank == MCP_RANK_NEAR || (rank == MCP_RANK_FAR && m->segments.puts_far) || rq->nof)
		return;
	mc_warn(LOG, "a segment stays unused, start the master with --enable_offload%s name=%.*s",
		rank == MCP_RANK_FAR ? " or --allocation_strategy=cxl" : "", (int)rq->name.len,
		(const char *)rq->name.data);
}

/* An earlier node at the same address may still be known. */
static bool node_is_there(const struct mcm_segment *s)
{
	return __atomic_load_n(&s->connected, __ATOMIC_RELAXED) && mcm_segment_attached(s);
}

int mcm_mount_node(struct mcm *m, struct mcp_bytes endpoint, const struct mc_principal *peer,
		   struct mcm_node_identity *ret)
{
	const struct mcm_segment *s, *found = NULL, *other = NULL;
	struct mcm_segments *ss = &m->segments;
	int r = mc_fail(-MC_ENOSEGMENT, "no segment is served there");
	uint16_t tenant;

	if (mcm_mount_tenant(m, peer, &tenant) < 0)
		return -MC_ENOSEGMENT;
	mc_rwlock_rdlock(&ss->lock);
	for (unsigned i = 0; i < ss->n_live; i++) {
		s = ss->at[ss->live[i]];
		/* Nodes copy for all tenants' sake, but only between segments of one tenant. */
		if (!text_is(s->endpoint, endpoint) || (peer->tenant[0] && s->tenant != tenant))
			continue;
		if (!s->node[0]) {
			r = mc_fail(-EACCES, "the node at this address has no credential of role node");
		} else if (!found || node_is_there(s) > node_is_there(found)) {
			found = s;
			other = NULL;
		} else if (node_is_there(s) == node_is_there(found) && strcmp(s->node, found->node) != 0) {
			other = s;
		}
	}
	if (found && other) {
		mc_warn(LOG, "two nodes claim one address, so no client gets a ticket for it address=%s nodes=%s,%s",
			found->endpoint, found->node, other->node);
		r = mc_fail(-EACCES, "nodes %s and %s claim this address", found->node, other->node);
	} else if (found) {
		strcpy(ret->name, found->node);
		ret->secret = mcm_load_relaxed(&found->node_secret);
		r = 0;
	}
	mc_rwlock_unlock(&ss->lock);
	return r;
}

int mcm_mount(struct mcm *m, struct mcp_id sender, const struct mc_principal *peer, const struct mcp_mount *rq,
	      struct mcp_mount_reply *ret)
{
	uint16_t tenant;
	int r;

	mc_metric_add(&mounts, 1);
	*ret = (struct mcp_mount_reply){ 0 };
	r = check_mount(sender, rq);
	if (r == 0)
		r = mount_check_sealed(m, rq);
	if (r == 0)
		r = mcm_mount_tenant(m, peer, &tenant);
	if (r == 0) {
		struct mcm_client *c;

		mc_mutex_lock(&m->clients.lock);
		mc_rwlock_wrlock(&m->segments.lock);
		r = mount_check_tenant(m, rq, tenant);
		if (r == 0)
			r = mount_check_place(m, rq, peer, tenant);
		if (r == 0)
			r = mount_locked(m, rq, peer, tenant, ret);
		if (r < 0 && mcm_segments_find(&m->segments, rq->segment))
			mc_metric_add(&remount_failures, 1);
		mc_rwlock_unlock(&m->segments.lock);
		c = r < 0 ? mcm_client_find(&m->clients, rq->client) : NULL;
		if (c)
			mcm_client_unneeded(&m->clients, c);
		mc_mutex_unlock(&m->clients.lock);
	}
	if (r < 0) {
		mc_metric_add(&mount_failures, 1);
		mc_warn(LOG, "cannot mount a segment: %s", mc_err_detail(r));
		return r;
	}
	if (ret->reattached)
		mc_metric_add(&remounts, 1);
	else
		mcm_tasks_mounted(m, rq->name);
	if (!ret->reattached)
		warn_unused(m, rq);
	mc_info(LOG, "%s name=%.*s size=%llu objects=%llu",
		ret->confirm ? "segment mounted again, its owner compares the objects of the snapshot" :
		ret->reattached ? "segment mounted again with its objects" : "segment mounted",
		(int)rq->name.len, (const char *)rq->name.data, (unsigned long long)rq->size,
		(unsigned long long)ret->objects);
	return 0;
}

/* Both tables locked.  A later owner may mount it again. */
static void segment_keep(struct mcm *m, struct mcm_segment *s)
{
	struct mcm_client *c = mcm_client_find(&m->clients, s->client);

	s->silent_ms = mcm_now_ms(m);
	s->left = true;
	mcm_segments_set_silent(&m->segments, s, true);
	c->hidden = true;
	mcm_offload_disks_changed(m, c);
}

static int client_unmount(struct mcm *m, struct mcp_id sender, struct mcp_id segment, bool keep, uint64_t *ret_lost)
{
	char name[MCM_NAME_MAX + 1] = "";
	struct mcm_segment *s;
	int r = 0;

	mc_metric_add(&unmounts, 1);
	mc_mutex_lock(&m->clients.lock);
	mc_rwlock_wrlock(&m->segments.lock);
	s = mcm_segments_find(&m->segments, segment);
	if (!s) {
		r = mc_fail(-MC_ENOSEGMENT, "no segment with this id is mounted");
		mcm_journal_depend(m);
	} else if (!mcp_id_eq(s->client, sender)) {
		r = mc_fail(-MC_EOWNER, "the segment belongs to another client");
	} else {
		memcpy(name, s->name, sizeof(name));
		*ret_lost = keep ? 0 : mcm_load_relaxed(&s->objects);
		if (keep)
			segment_keep(m, s);
		else
			mcm_client_drop_segment(m, s);
	}
	mc_rwlock_unlock(&m->segments.lock);
	mc_mutex_unlock(&m->clients.lock);
	if (r < 0) {
		mc_metric_add(&unmount_failures, 1);
		return r;
	}
	mc_stop_kick(&m->evictor_stop);
	mc_info(LOG, "segment unmounted name=%s objects=%llu", name, (unsigned long long)*ret_lost);
	return 0;
}

int mcm_unmount(struct mcm *m, struct mcp_id sender, struct mcp_id segment, uint64_t *ret_lost)
{
	return client_unmount(m, sender, segment, false, ret_lost);
}

int mcm_unmount_keep(struct mcm *m, struct mcp_id sender, struct mcp_id segment)
{
	uint64_t lost;

	return client_unmount(m, sender, segment, true, &lost);
}
