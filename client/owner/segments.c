/* SPDX-License-Identifier: Apache-2.0
 * segments.c - the segments that this process contributes. */
#include <config.h>

#include "client/owner/segments_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/owner/disk_keys.h"
#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/security/capability.h"
#include "common/sys/clock.h"
#include "common/sys/thread.h"
#include "proto/medium.h"
#include "tiers/ssd/record.h"

MC_COUNTER(mounts, "mooncake_client_segment_mounts_total", "", "offers of segments to the master")

#define GONE_MAX 65536u		/* removed objects of a named medium that wait for the sweeper */

int mcs_segments_new(struct mce_engine *engine, struct mcp_id client, struct mcs_segments **ret)
{
	struct mcs_segments *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->engine = engine;
	s->client = client;
	mc_mutex_init(&s->lock);
	mc_cond_init(&s->kept);
	mc_mutex_init(&s->notes_lock);
	*ret = s;
	return 0;
}

static void segment_free(struct mcs_own_segment *at)
{
	mcs_own_segment_close(at);
	free(at);
}

int mcs_segments_add(struct mcs_segments *s, const struct mcs_own_segment_conf *conf, struct mct_medium *medium)
{
	struct mcs_own_segment *at = calloc(1, sizeof(*at));
	int r;

	if (!at) {
		mct_medium_close(medium);
		return -ENOMEM;
	}
	r = mcs_own_segment_open(at, s->engine, conf, medium);
	mc_mutex_lock(&s->lock);
	if (r == 0 && s->n == MCS_SEGMENTS_MAX)
		r = mc_fail(-MC_ELIMIT, "a process has at most %u segments", MCS_SEGMENTS_MAX);
	if (r == 0) {
		s->segment[s->n] = at;
		__atomic_store_n(&s->n, s->n + 1, __ATOMIC_RELEASE);
	}
	mc_mutex_unlock(&s->lock);
	if (r < 0)
		segment_free(at);
	return r;
}

void mcs_segments_close(struct mcs_segments *s)
{
	if (!s)
		return;
	for (unsigned i = 0; i < s->n; i++)
		segment_free(s->segment[i]);
	mc_mutex_destroy(&s->notes_lock);
	mc_cond_destroy(&s->kept);
	mc_mutex_destroy(&s->lock);
	free(s);
}

static bool segments_lost(const struct mcs_own_segment *at)
{
	return __atomic_load_n(&at->lost, __ATOMIC_RELAXED);
}

/* The latest one: this process may have lost a file, and adopted it again. */
static struct mcs_own_segment *segments_find(const struct mcs_segments *s, struct mcp_id id)
{
	for (unsigned i = mcs_segments_count(s); i--;)
		if (mcp_id_eq(s->segment[i]->id, id))
			return s->segment[i];
	return NULL;
}

bool mcs_segments_has(const struct mcs_segments *s, struct mcp_id id)
{
	const struct mcs_own_segment *at = segments_find(s, id);

	return at && !segments_lost(at);
}

static struct mcs_own_segment *segments_near(const struct mcs_segments *s)
{
	for (unsigned i = 0; i < mcs_segments_count(s); i++)
		if (mcp_medium(s->segment[i]->conf.medium)->rank == MCP_RANK_NEAR)
			return s->segment[i];
	mc_fail(-EINVAL, "this process contributes no memory");
	return NULL;
}

unsigned mcs_segments_with(const struct mcs_segments *s, unsigned trait)
{
	unsigned n = 0;

	for (unsigned i = 0; i < mcs_segments_count(s); i++)
		n += mcp_medium_is(s->segment[i]->conf.medium, trait) &&
		     !segments_lost(s->segment[i]);
	return n;
}

bool mcs_segments_offload(const struct mcs_segments *s)
{
	for (unsigned i = 0; i < mcs_segments_count(s); i++)
		if (mcp_medium_is(s->segment[i]->conf.medium, MCP_TRAIT_COPIES))
			return true;
	return false;
}

/* ---- changes of the identity: one thread at a time for each segment ---------------------------------- */

/* The lock is held. */
static void segments_keep_begin(struct mcs_segments *s, struct mcs_own_segment *at)
{
	/* Each call of a medium ends. */
	while (at->keeping)
		mc_cond_wait(&s->kept, &s->lock);
	at->keeping = true;
}

/* The lock is held. */
static void segments_keep_end(struct mcs_segments *s, struct mcs_own_segment *at)
{
	at->keeping = false;
	mc_cond_broadcast(&s->kept);
}

/* The lock is held, and the segment is keeping; the lock is free while the medium works.  After an error the state is
 * the same as before. */
static int segments_keep(struct mcs_segments *s, struct mcs_own_segment *at, const struct mcs_own_segment_state *next)
{
	int r;

	mc_mutex_unlock(&s->lock);
	r = mcs_own_segment_write(at, next);
	mc_mutex_lock(&s->lock);
	if (r == 0)
		mcs_own_segment_keep(at, next);
	return r;
}

/* ---- the master --------------------------------------------------------------------------------- */

/* Writers that began under an earlier master may still write where this master will grant memory.  To other media only
 * this process writes. */
static bool segments_fence_earlier(struct mcs_segments *s, const struct mcs_own_segment *at,
				   const struct mcs_terms *terms)
{
	return at->mem.base ? mce_engine_fence(s->engine, NULL, terms->earlier) == 0 :
		mcs_segments_fence(s, terms->earlier);
}

static bool segments_offered(const struct mcs_segments *s, const struct mcs_own_segment *at)
{
	return !(at->durable && __atomic_load_n(&s->removed, __ATOMIC_SEQ_CST)) &&
	       !segments_lost(at);
}

static int segments_unmount_one(const struct mcs_own_segment *at, struct mcs_session *session, bool keep,
				uint64_t deadline)
{
	const struct mcp_unmount msg = { .segment = at->id, .keep = keep };
	struct mcp_unmount_reply reply;
	struct mcp_reply mem = { 0 };
	int r = mcs_call(session, MCP_UNMOUNT, &msg, &reply, &mem, deadline);

	if (r >= 0)
		mcp_reply_done(&mem);
	return r < 0 ? r : 0;
}

/* Another process has the medium. */
static void segments_lose(struct mcs_own_segment *at, struct mcs_session *session, int why, uint64_t deadline)
{
	if (!__atomic_exchange_n(&at->lost, true, __ATOMIC_RELAXED))
		mc_err("client", "%s; this process writes there no more, and gives the segment up",
		       mc_err_detail(why));
	/* Also again, if the master has sent more copies for it. */
	(void)segments_unmount_one(at, session, true, deadline);
}

/* ---- keys of encrypted media ---------------------------------------------------------------------- */

/* The pool has no key for the bytes: an empty segment, of which the master knows no object. */
static int segments_forget(struct mcs_segments *s, struct mcs_own_segment *at)
{
	struct mcs_own_segment_state next;
	int r;

	MC_LOCKED(&s->lock);
	segments_keep_begin(s, at);
	mcs_own_segment_forget(at, &next);
	r = segments_keep(s, at, &next);
	segments_keep_end(s, at);
	return r;
}

/* Are the bytes of the segment lost for this pool?  Other pools may still use a shared medium.  In the segment's own
 * pool, keys that do not fit mean a credential of another tenant, or a master without the newest secret. */
static bool segments_unreadable(struct mcs_segments *s, const struct mcs_own_segment *at, struct mcp_id pool, int r)
{
	if (mcp_medium_is(at->conf.medium, MCP_TRAIT_SHARED) || at->medium->ops->named)
		return false;
	MC_LOCKED(&s->lock);
	return r == -EBADMSG || ((r == -EKEYREJECTED || r == -ENOKEY) && !mcp_id_zero(pool) &&
				 !mcp_id_eq(pool, at->now.pool));
}

/* @quick: -EAGAIN if the medium is encrypted. */
static int segments_unlock(struct mcs_segments *s, struct mcs_own_segment *at, const struct mcs_disk_keys *from,
			   struct mcp_id pool, bool quick)
{
	void *keys = (void *)(uintptr_t)from;
	int r = at->medium->ops->unlock(at->medium, quick ? NULL : mcs_disk_keys_ask, keys);

	if (r == 0 || !segments_unreadable(s, at, pool, r))
		return r;
	mc_warn("client", "%s: its objects are dropped", mc_err_detail(r));
	r = segments_forget(s, at);
	return r < 0 ? r : at->medium->ops->unlock(at->medium, mcs_disk_keys_ask, keys);
}

/* @quick: the medium may be slow, and this thread must not wait for it: -EAGAIN if it would have to. */
static int segments_enter(struct mcs_segments *s, struct mcs_own_segment *at, struct mcp_id pool, bool quick,
			  struct mcs_own_segment_text *text, struct mcp_mount *ret)
{
	struct mcs_own_segment_state next;
	int r;

	MC_LOCKED(&s->lock);
	if (quick && at->keeping)
		return -EAGAIN;
	segments_keep_begin(s, at);
	r = mcs_own_segment_enter(at, pool, &next);
	if (r > 0)
		r = quick ? -EAGAIN : segments_keep(s, at, &next);
	if (r == 0) {
		at->entered |= !mcp_id_zero(pool);
		*ret = mcs_own_segment_describe(at, text);
	}
	segments_keep_end(s, at);
	return r;
}

/* A MOUNT begins: its number.  The master may grant copies before the answer is here, and while it is kept, which may
 * replace the key of the bytes. */
static uint64_t segments_mount_begin(struct mcs_segments *s, struct mcs_own_segment *at)
{
	MC_LOCKED(&s->lock);
	return ++at->mounts;
}

/* May copies be written now?  After a MOUNT without an answer only the next one tells. */
static bool segments_settled(struct mcs_segments *s, const struct mcs_own_segment *at)
{
	MC_LOCKED(&s->lock);
	return !at->conf.open.seal || at->settled == at->mounts;
}

/* The master has answered MOUNT @mount. */
static int segments_mounted(struct mcs_segments *s, struct mcs_own_segment *at, const struct mcp_mount_reply *reply,
			    uint64_t mount, uint64_t answered, bool sure, bool quick)
{
	struct mcs_own_segment_state next;
	int r = 0;

	MC_LOCKED(&s->lock);
	if (quick && at->keeping)
		return -EAGAIN;
	segments_keep_begin(s, at);
	if (!mcs_own_segment_mounted(at, reply, answered, sure, &next))
		mcs_own_segment_keep(at, &next);
	else
		r = quick ? -EAGAIN : segments_keep(s, at, &next);
	at->mounted |= r == 0;
	if (r == 0)
		at->settled = mount;
	segments_keep_end(s, at);
	return r;
}

static int segments_mount_error(int r, const struct mcs_own_segment *at, bool offers)
{
	if (r == -MC_EPARAM && offers && at->medium->ops->named)
		return mc_fail(r, "the S3 segment has objects of a cluster with another cluster_id: give this node "
			       "another prefix, or the master the same --cluster_id");
	if (r == -MC_EOWNER && at->medium->ops->named)
		return mc_fail(r, "another process uses the prefix of the S3 segment: give this node another one");
	return r;
}

static int segments_mount_one(struct mcs_segments *s, struct mcs_own_segment *at, struct mcp_client *c,
			      struct mcs_session *session, struct mcp_id pool, const struct mcs_terms *terms,
			      uint64_t deadline)
{
	bool shared = mcp_medium_is(at->conf.medium, MCP_TRAIT_SHARED), named = at->medium->ops->named;
	bool fenced = segments_fence_earlier(s, at, terms), quick = c && (named || shared);
	const struct mcs_disk_keys keys = { c, session, at->id, deadline };
	int r = named || quick ? 0 : at->medium->ops->hold(at->medium), held = r;
	struct mcp_mount_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcs_own_segment_text text;
	struct mcp_mount msg;
	uint64_t asked_ms;
	uint64_t mount;

	if (r == -ESTALE && shared) {
		segments_lose(at, session, r, deadline);
		return 0;
	}
	/* A shared filesystem that does not answer leaves it open.  Each round of copies asks again. */
	if (r == 0 || r == -MC_EUNAVAILABLE)
		r = segments_unlock(s, at, &keys, pool, quick);
	if (r == -EKEYREJECTED && mcs_segments_leave_file(s, at, pool, r))
		return 0;
	if (r == 0)
		r = segments_enter(s, at, pool, quick, &text, &msg);
	/* The file is of another pool. */
	if (r == -MC_EOWNER && shared && !c) {
		segments_lose(at, session, r, deadline);
		return 0;
	}
	if (r < 0)
		return r;
	msg.client = s->client;
	msg.unfenced = !fenced;
	asked_ms = mc_now_ms();
	mount = segments_mount_begin(s, at);
	r = c ? mcp_call(c, MCP_MOUNT, &msg, &reply, &mem, deadline) :
		mcs_call(session, MCP_MOUNT, &msg, &reply, &mem, deadline);
	if (r == -MC_EOWNER && shared && held < 0) {
		segments_lose(at, session, mc_fail(r, "another process serves a file in the shared directory that this "
						   "one cannot read"), deadline);
		return 0;
	}
	if (r < 0)
		return segments_mount_error(r, at, msg.offers);
	if (reply.now_ms)
		mce_engine_set_time(at->engine, reply.now_ms, asked_ms);
	r = segments_mounted(s, at, &reply, mount, terms->server,
			     !session || mcs_session_terms(session).server == terms->server, quick);
	mc_metric_add(&mounts, 1);
	if (reply.reattached)
		mc_log("client", at->durable ? MC_LOG_INFO : MC_LOG_DEBUG,
		       "the master knows the objects of our segment segment=%s objects=%llu", text.name,
		       (unsigned long long)reply.objects);
	mcp_reply_done(&mem);
	return r;
}

static enum mcs_segments_which segments_kind(const struct mcs_own_segment *at)
{
	if (at->medium->ops->named)
		return MCS_SEGMENTS_NAMED;
	return mcp_medium_is(at->conf.medium, MCP_TRAIT_SHARED) ? MCS_SEGMENTS_SHARED : MCS_SEGMENTS_PLAIN;
}

/* Memory first, because copies to the others are made from it; without it they are not offered. */
int mcs_segments_mount(struct mcs_segments *s, struct mcp_client *c, struct mcs_session *session, struct mcp_id pool,
		       const struct mcs_terms *terms, uint64_t deadline, enum mcs_segments_which which)
{
	int r = 0;

	for (unsigned i = 0; i < mcs_segments_count(s); i++) {
		struct mcs_own_segment *at = s->segment[i];
		bool named = at->medium->ops->named, shared = mcp_medium_is(at->conf.medium, MCP_TRAIT_SHARED);
		int one = 0;

		if (segments_offered(s, at) && (which == MCS_SEGMENTS_ALL || which == segments_kind(at)))
			one = segments_mount_one(s, at, c, session, pool, terms, deadline);
		/* A master that was restarted does not know that this process has given it up, and asks for it. */
		else if (!c && segments_lost(at) && segments_find(s, at->id) == at)
			(void)segments_unmount_one(at, session, true, deadline);
		if (one < 0 && at->mem.base)
			return one;
		/* Another thread mounts it, so that neither calls nor the other segments wait for its medium. */
		if (one < 0 && c && named) {
			__atomic_store_n(&s->named_due, true, __ATOMIC_RELEASE);
			continue;
		}
		if (shared && (one == -MC_EOWNER || (one < 0 && c))) {
			mcs_segments_shared_later(s);
			continue;
		}
		r = r < 0 ? r : one;
	}
	return r;
}

bool mcs_segments_named_due(struct mcs_segments *s)
{
	return __atomic_exchange_n(&s->named_due, false, __ATOMIC_ACQ_REL);
}

void mcs_segments_named_later(struct mcs_segments *s)
{
	__atomic_store_n(&s->named_due, true, __ATOMIC_RELEASE);
}

bool mcs_segments_shared_due(struct mcs_segments *s)
{
	return __atomic_exchange_n(&s->shared_due, false, __ATOMIC_ACQ_REL);
}

void mcs_segments_shared_later(struct mcs_segments *s)
{
	__atomic_store_n(&s->shared_due, true, __ATOMIC_RELEASE);
}

void mcs_segments_leave(struct mcs_segments *s, struct mcs_session *session, uint64_t deadline)
{
	for (unsigned i = 0; i < mcs_segments_count(s) && mcs_session_up(session); i++)
		if (segments_offered(s, s->segment[i]))
			(void)segments_unmount_one(s->segment[i], session, s->segment[i]->durable, deadline);
}

int mcs_segments_hold(struct mcs_segments *s, struct mcs_session *session, struct mcp_id segment, uint64_t deadline)
{
	struct mcs_own_segment *at = segments_find(s, segment);
	int r = at ? at->medium->ops->hold(at->medium) : 0;

	if (r == 0 && at && !segments_settled(s, at))
		return mc_fail(-ECANCELED, "the segment is being mounted");
	if (r != -ESTALE)
		return r;
	segments_lose(at, session, r, deadline);
	return mc_fail(r, "another process has taken over the medium of the segment");
}

void mcs_segments_hold_shared(struct mcs_segments *s, struct mcs_session *session, uint64_t deadline)
{
	for (unsigned i = 0; i < mcs_segments_count(s); i++) {
		struct mcs_own_segment *at = s->segment[i];
		bool asks = mcp_medium_is(at->conf.medium, MCP_TRAIT_SHARED) && !segments_lost(at);
		int r = asks ? at->medium->ops->hold(at->medium) : 0;

		if (r == -ESTALE)
			segments_lose(at, session, r, deadline);
	}
}

int mcs_segments_remove_durable(struct mcs_segments *s, struct mcs_session *session, uint64_t deadline)
{
	int r = 0;

	if (!s || __atomic_exchange_n(&s->removed, true, __ATOMIC_SEQ_CST))
		return 0;
	for (unsigned i = 0; i < mcs_segments_count(s); i++) {
		struct mcs_own_segment *at = s->segment[i];
		struct mcs_own_segment_state next;
		int one;

		if (!at->durable)
			continue;
		one = segments_unmount_one(at, session, false, deadline);
		r = r < 0 ? r : one;
		/* Also if the master does not answer: no other pool gets their objects. */
		MC_LOCKED(&s->lock);
		segments_keep_begin(s, at);
		next = at->now;
		mcs_own_segment_void_records(&next);
		next.offers = false;
		if (segments_keep(s, at, &next) < 0)
			mc_warn("client", "objects of a removed disk may come back if the master's journal is lost");
		segments_keep_end(s, at);
	}
	return r;
}

int mcs_segments_keep_at(struct mcs_segments *s, uint64_t *identity)
{
	struct mcs_own_segment *at = segments_near(s);
	int r;

	if (!at)
		return -EINVAL;
	MC_LOCKED(&s->lock);
	segments_keep_begin(s, at);
	at->identity = identity;
	r = mcs_own_segment_write(at, &at->now);
	segments_keep_end(s, at);
	return r;
}

int mcs_segments_fd(const struct mcs_segments *s, uint64_t *ret_size)
{
	const struct mcs_own_segment *at = segments_near(s);

	if (!at)
		return -EINVAL;
	*ret_size = at->mem.len;
	return at->mem.fd;
}

int mcs_segments_grow(struct mcs_segments *s, struct mcs_session *session, uint64_t size, uint64_t deadline)
{
	struct mcs_own_segment *at = segments_near(s);
	struct mcs_terms terms;
	int r;

	if (!at)
		return -EINVAL;
	r = at->medium->ops->grow(at->medium, size);
	if (r < 0)
		return r;
	terms = mcs_session_terms(session);
	return segments_mount_one(s, at, NULL, session, mcs_session_pool(session), &terms, deadline);
}

static bool segments_inside(const struct mcs_own_segment *at, uint64_t offset, uint64_t len)
{
	uint64_t size = mcs_own_segment_size(at);

	return offset <= size && len <= size - offset;
}

bool mcs_segments_in_fd(const struct mcs_segments *s, struct mcp_id segment, uint64_t offset, uint64_t len)
{
	const struct mcs_own_segment *at = segments_find(s, segment);

	return at && mcp_medium(at->conf.medium)->rank == MCP_RANK_NEAR && segments_inside(at, offset, len);
}

const void *mcs_segments_at(const struct mcs_segments *s, struct mcp_id segment, uint64_t offset, uint64_t len)
{
	const struct mcs_own_segment *at = segments_find(s, segment);

	return at && at->mem.base && segments_inside(at, offset, len) ? (const char *)at->mem.base + offset : NULL;
}

struct mct_medium *mcs_segments_medium(const struct mcs_segments *s, struct mcp_id segment, uint64_t offset,
				       uint64_t len)
{
	const struct mcs_own_segment *at = segments_find(s, segment);

	return at && !at->mem.base && segments_inside(at, offset, len) ? at->medium : NULL;
}

const struct mc_capability *mcs_segments_capability(const struct mcs_segments *s, struct mcp_id segment,
						    uint64_t offset, uint64_t len, uint64_t serial,
						    struct mc_capability *mem)
{
	const struct mcs_own_segment *at = segments_find(s, segment);
	uint8_t key[MC_CAPABILITY_KEY];

	if (!at || !mce_mr_capability_key(at->mr, key))
		return NULL;
	*mem = (struct mc_capability){
		.offset = offset, .len = len, .expires_s = UINT32_MAX, .rights = MC_CAPABILITY_READ,
	};
	mc_capability_sign(key, serial, mem);
	return mem;
}

unsigned mcs_segments_paused(const struct mcs_segments *s, struct mcp_paused *ret, unsigned max)
{
	struct mct_status status;
	unsigned n = 0;

	for (unsigned i = 0; i < mcs_segments_count(s) && n < max; i++) {
		s->segment[i]->medium->ops->status(s->segment[i]->medium, &status);
		if (status.paused)
			ret[n++].segment = s->segment[i]->id;
	}
	return n;
}

bool mcs_segments_confirm(struct mcs_segments *s)
{
	bool any = false;

	if (!s)
		return false;
	MC_LOCKED(&s->lock);
	for (unsigned i = 0; i < mcs_segments_count(s); i++)
		any |= s->segment[i]->now.confirms;
	return any;
}

bool mcs_segments_confirm_take(struct mcs_segments *s, unsigned i, struct mcp_id *ret, bool *ret_addressable)
{
	if (i >= mcs_segments_count(s))
		return false;
	MC_LOCKED(&s->lock);
	*ret = s->segment[i]->now.confirms ? s->segment[i]->id : (struct mcp_id){ 0, 0 };
	*ret_addressable = s->segment[i]->mem.base;
	s->segment[i]->now.confirms = false;
	return true;
}

void mcs_segments_confirm_again(struct mcs_segments *s, unsigned i)
{
	MC_LOCKED(&s->lock);
	s->segment[i]->now.confirms = true;
}

/* ---- records ----------------------------------------------------------------------------------- */

static void segments_secret(struct mcs_segments *s, const struct mcs_own_segment *at, uint64_t ret[2])
{
	MC_LOCKED(&s->lock);
	memcpy(ret, at->now.secret, sizeof(at->now.secret));
}

void mcs_segments_seal(struct mcs_segments *s, struct mcp_id segment, void *block, const struct mct_record *r)
{
	uint64_t secret[2];

	segments_secret(s, segments_find(s, segment), secret);
	mct_record_seal(block, r, secret);
}

/* The notes lock is held: keep where objects were removed from a named medium. */
static void segments_gone_named(struct mcs_own_segment *at, const struct mcp_seq *gone)
{
	struct mcp_gone g;
	struct mcp_iter it;
	uint64_t *more;

	if (!at->medium->ops->named || !gone->count)
		return;
	more = at->n_gone + gone->count > GONE_MAX ? NULL :
		realloc(at->gone, (at->n_gone + gone->count) * sizeof(*more));
	at->gone_all |= !more;
	if (!more)
		return;
	at->gone = more;
	mcp_iter_init(&it, gone, &mcp_desc_gone);
	while (mcp_iter_next(&it, &g))
		if (mcp_id_eq(g.segment, at->id))
			at->gone[at->n_gone++] = g.offset;
}

bool mcs_segments_unused_take(struct mcs_segments *s, unsigned i, struct mcs_own_segment_unused *ret)
{
	struct mcs_own_segment *at;

	if (i >= mcs_segments_count(s))
		return false;
	at = s->segment[i];
	*ret = (struct mcs_own_segment_unused){
		.medium = at->medium->ops->named ? at->medium : NULL, .segment = at->id,
	};
	MC_LOCKED(&s->notes_lock);
	MC_LOCKED(&s->lock);
	ret->epoch = at->now.epoch;
	/* Until its objects are offered the master does not know them. */
	if (!at->mounted || at->now.pending || at->now.offers || __atomic_load_n(&at->lost, __ATOMIC_RELAXED)) {
		ret->medium = NULL;
		return true;
	}
	ret->off = TAKE_PTR(at->gone);
	ret->n = at->n_gone;
	ret->all = at->gone_all;
	at->n_gone = 0;
	at->gone_all = false;
	return true;
}

bool mcs_segments_named(const struct mcs_segments *s)
{
	for (unsigned i = 0; i < mcs_segments_count(s); i++)
		if (s->segment[i]->medium->ops->named)
			return true;
	return false;
}

void mcs_segments_sweep_stop(struct mcs_segments *s)
{
	for (unsigned i = 0; i < mcs_segments_count(s); i++)
		s->segment[i]->medium->ops->sweep_stop(s->segment[i]->medium);
}

void mcs_segments_gone(struct mcs_segments *s, const struct mcp_seq *gone)
{
	auto_free struct mct_note *note = malloc((gone->count + 1) * sizeof(*note));
	struct mcp_gone g;
	struct mcp_iter it;
	uint64_t secret[2];

	if (!note)
		return;
	MC_LOCKED(&s->notes_lock);
	for (unsigned i = 0; i < mcs_segments_count(s); i++) {
		struct mcs_own_segment *at = s->segment[i];
		size_t n = 0;
		int r;

		if (!at->notes) {
			segments_gone_named(at, gone);
			continue;
		}
		mcp_iter_init(&it, gone, &mcp_desc_gone);
		while (mcp_iter_next(&it, &g))
			if (mcp_id_eq(g.segment, at->id))
				note[n++] = (struct mct_note){ g.offset, g.generation };
		if (!n && !at->notes->n_wait)
			continue;
		segments_secret(s, at, secret);
		r = mcs_disk_notes_add(at->notes, note, n, secret);
		if (r < 0 && r != -MC_EUNAVAILABLE)
			mc_warn("client", "cannot note removed objects on our disk, will retry; until then they may "
				"come back if the master's journal is lost error=\"%s\"", mc_err_detail(r));
	}
}

bool mcs_segments_offer_next(struct mcs_segments *s, struct mcs_own_segment_offered *ret)
{
	MC_LOCKED(&s->lock);
	for (unsigned i = 0; i < mcs_segments_count(s); i++) {
		const struct mcs_own_segment *at = s->segment[i];

		if (!at->now.offers)
			continue;
		*ret = (struct mcs_own_segment_offered){
			at->medium, mcs_own_segment_size(at), at->id, at->now.epoch,
			{ at->now.secret[0], at->now.secret[1] }
		};
		return true;
	}
	return false;
}

void mcs_segments_offer_done(struct mcs_segments *s, const struct mcs_own_segment_offered *o)
{
	struct mcs_own_segment *at = segments_find(s, o->segment);
	struct mcs_own_segment_state next;
	int r = 0;

	MC_LOCKED(&s->lock);
	segments_keep_begin(s, at);
	next = at->now;
	next.offers = next.pending = false;
	/* Else it was mounted in yet another pool meanwhile. */
	if (next.epoch == o->epoch) {
		r = segments_keep(s, at, &next);
		/* They are offered again to the next pool, or by the next process. */
		at->now.offers = false;
	}
	segments_keep_end(s, at);
	if (r < 0)
		mc_warn("client", "%s", mc_err_detail(r));
}

/* ---- fencing ------------------------------------------------------------------------------------
 *
 * The writer announces its number and then looks whether it was fenced; the fence does both in the other order, so
 * one of the two sees the other. */

bool mcs_segments_write_begin(struct mcs_segments *s, unsigned writer, uint64_t fence)
{
	__atomic_store_n(&s->writing[writer], fence, __ATOMIC_SEQ_CST);
	if (fence > __atomic_load_n(&s->fenced, __ATOMIC_SEQ_CST))
		return true;
	mcs_segments_write_end(s, writer);
	return false;
}

void mcs_segments_write_end(struct mcs_segments *s, unsigned writer)
{
	__atomic_store_n(&s->writing[writer], 0, __ATOMIC_SEQ_CST);
}

bool mcs_segments_fence(struct mcs_segments *s, uint64_t upto)
{
	uint64_t was, writing;
	bool running = false;

	if (!s)
		return true;
	was = __atomic_load_n(&s->fenced, __ATOMIC_SEQ_CST);
	while (was < upto && !__atomic_compare_exchange_n(&s->fenced, &was, upto, false, __ATOMIC_SEQ_CST,
							  __ATOMIC_SEQ_CST))
		;
	for (unsigned i = 0; i < MCS_SEGMENTS_WRITERS; i++) {
		writing = __atomic_load_n(&s->writing[i], __ATOMIC_SEQ_CST);
		running |= writing && writing <= upto;
	}
	return !running;
}
