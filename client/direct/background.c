/* SPDX-License-Identifier: Apache-2.0
 * background.c - the background thread. */
#include <config.h>

#include "client/direct/background.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/direct/object.h"
#include "client/env.h"
#include "common/cleanup.h"
#include "common/log.h"
#include "common/sys/thread.h"

/* Maximum of puts that wait to be revoked.  More wait only if the master is down, and then the puts
 * end with its connection. */
#define REVOKES_MAX 1024
#define IDLE_MS 1000		/* after this time without released pins the thread checks less often */
#define TICK_MAX_MS 500
#define RETRY_MS 200		/* between attempts to reach the master, or to pin open objects again */
/* Where another master takes over, and at first, owners return to it sooner: requests for their objects wait. */
#define RETURN_MS 50
#define RETURNS_MS 2000
#define CALL_MS 2000

struct revoke {
	struct mc_list link;
	uint64_t generation, epoch;
	struct mcs_seg **seg;		/* where its writes may still be carried out */
	unsigned n_segs;
	size_t key_len;
	unsigned char key[];
};

struct mcs_background {
	/* constant after start */
	struct mcs_direct *s;
	struct mc_thread thread;
	struct mc_stop stop;

	struct mc_mutex lock;
	struct mc_list revokes;		/* with the lock held */
	unsigned n_revokes;

	/* atomic */
	bool idle, remount, repin;

	/* used by the thread only */
	uint64_t busy_until_ns, retry_ns;
	uint64_t up_ns;		/* when the connection to the master was last seen */
	uint64_t repin_ns;		/* when to pin open objects again, 0: never */
};

static void background_kick(struct mcs_background *b)
{
	mc_stop_kick(&b->stop);
}

void mcs_background_wake(struct mcs_background *b)
{
	if (!b)
		return;
	/* A thread that is not idle checks often enough: this saves a system call per read. */
	if (__atomic_load_n(&b->idle, __ATOMIC_SEQ_CST) &&
	    __atomic_exchange_n(&b->idle, false, __ATOMIC_SEQ_CST))
		background_kick(b);
}

void mcs_background_connected(struct mcs_background *b)
{
	if (!b)
		return;
	__atomic_store_n(&b->repin, true, __ATOMIC_RELEASE);
	background_kick(b);
}

void mcs_background_remount(struct mcs_background *b)
{
	if (!b)
		return;
	__atomic_store_n(&b->remount, true, __ATOMIC_RELEASE);
	background_kick(b);
}

bool mcs_segs_settled(struct mcs_seg *const *seg, unsigned n)
{
	bool settled = true;

	for (unsigned i = 0; i < n && seg; i++)
		settled = settled && (!seg[i] || mce_peer_settle(seg[i]->peer));
	return settled;
}

static void segs_put(struct mcs_seg **seg, unsigned n)
{
	for (unsigned i = 0; i < n && seg; i++)
		mcs_seg_put(seg[i]);
	free(seg);
}

static void revoke_free(struct revoke *rv)
{
	if (rv)
		segs_put(rv->seg, rv->n_segs);
	free(rv);
}

void mcs_background_revoke(struct mcs_background *b, const void *key, size_t key_len, uint64_t generation,
			   uint64_t epoch, struct mcs_seg **seg, unsigned n)
{
	struct revoke *rv = b ? malloc(sizeof(*rv) + key_len) : NULL;
	struct revoke *oldest = NULL;

	if (!rv) {
		/* The put ends with the connection. */
		if (b)
			mcs_session_taint(b->s->base.session, epoch);
		segs_put(seg, n);
		return;
	}
	*rv = (struct revoke){
		.generation = generation, .epoch = epoch, .seg = seg, .n_segs = n, .key_len = key_len,
	};
	memcpy(rv->key, key, key_len);
	mc_mutex_lock(&b->lock);
	mc_list_push_back(&b->revokes, &rv->link);
	if (++b->n_revokes > REVOKES_MAX) {
		oldest = mc_list_first(&b->revokes, struct revoke, link);
		mc_list_remove(&oldest->link);
		b->n_revokes--;
	}
	mc_mutex_unlock(&b->lock);
	if (oldest)
		mcs_session_taint(b->s->base.session, oldest->epoch);
	revoke_free(oldest);
	background_kick(b);
}

static struct revoke *background_take_revoke(struct mcs_background *b)
{
	struct revoke *rv = NULL;

	MC_LOCKED(&b->lock);
	if (!mc_list_empty(&b->revokes)) {
		rv = mc_list_first(&b->revokes, struct revoke, link);
		mc_list_remove(&rv->link);
		b->n_revokes--;
	}
	return rv;
}

static void background_requeue_revoke(struct mcs_background *b, struct revoke *rv)
{
	MC_LOCKED(&b->lock);
	mc_list_push_back(&b->revokes, &rv->link);
	b->n_revokes++;
}

static unsigned background_count_revokes(struct mcs_background *b)
{
	MC_LOCKED(&b->lock);
	return b->n_revokes;
}

/* True: some are left. */
static bool background_send_revokes(struct mcs_background *b)
{
	struct mcs_session *session = b->s->base.session;
	unsigned n = background_count_revokes(b);
	struct revoke *rv;

	for (; n && (rv = background_take_revoke(b)); n--) {
		struct mcp_put_done one = {
			.key = mcp_bytes(rv->key, (uint32_t)rv->key_len),
			.generation = rv->generation,
		};
		struct mcp_put_revoke msg = {
			.items = mcp_seq(&one, 1), .tenant = b->s->base.tenant,
		};
		struct mcp_put_revoke_reply reply;
		struct mcp_reply mem = { 0 };
		int r = 0;

		if (rv->epoch == mcs_session_epoch(session) && !mcs_segs_settled(rv->seg, rv->n_segs)) {
			background_requeue_revoke(b, rv);
			continue;
		}
		if (rv->epoch == mcs_session_epoch(session))
			r = mcs_call_once(session, MCP_PUT_REVOKE, &msg, &reply, &mem,
					  mc_deadline_ms(CALL_MS));
		mcp_reply_done(&mem);
		if (r == -MC_ETIMEDOUT) {
			background_requeue_revoke(b, rv);
			return true;
		}
		revoke_free(rv);
	}
	return background_count_revokes(b);
}

static uint64_t background_retry_ms(const struct mcs_background *b)
{
	bool soon = mcs_session_terms(b->s->base.session).takeover_ms &&
		    mc_now_ns() - b->up_ns < RETURNS_MS * MC_NS_PER_MS;

	return soon ? RETURN_MS : RETRY_MS;
}

/* Try to reach the master if the connection is down.  True: it is up. */
static bool background_reach_master(struct mcs_background *b)
{
	uint64_t now = mc_now_ns();

	if (mcs_session_up(b->s->base.session)) {
		b->up_ns = now;
		return true;
	}
	if (now < b->retry_ns)
		return false;
	b->retry_ns = now + background_retry_ms(b) * MC_NS_PER_MS;
	return mcs_session_probe(b->s->base.session, mc_deadline_ms(CALL_MS)) >= 0;
}

static void background_do_remount(struct mcs_background *b)
{
	struct mcs_terms terms;
	int r;

	if (!__atomic_exchange_n(&b->remount, false, __ATOMIC_ACQ_REL))
		return;
	/* After the flag: not older than the connection that set it. */
	terms = mcs_session_terms(b->s->base.session);
	r = b->s->segments->offer(b->s, NULL, &terms, mc_deadline_ms(CALL_MS));
	if (r >= 0)
		return;
	mc_warn("client", "the master did not accept the segment, will retry error=\"%s\"",
		mc_err_detail(r));
	__atomic_store_n(&b->remount, true, __ATOMIC_RELEASE);
}

static void background_do_repin(struct mcs_background *b, uint64_t now)
{
	bool due = b->repin_ns && now >= b->repin_ns;

	if (!__atomic_exchange_n(&b->repin, false, __ATOMIC_ACQ_REL) && !due)
		return;
	b->repin_ns = mcs_direct_repin(b->s) ? mc_now_ns() + RETRY_MS * MC_NS_PER_MS : 0;
}

static uint64_t background_tick_ms(const struct mcs_background *b, bool work)
{
	uint64_t ms = mcs_session_terms(b->s->base.session).lease_ttl_ms / 4;

	if (work)
		return MCS_RELEASE_MS / 2;
	if (!mcs_session_up(b->s->base.session))
		ms = background_retry_ms(b);
	if (ms > TICK_MAX_MS)
		ms = TICK_MAX_MS;
	/* The end of the connection is noticed at the next tick. */
	if (mcs_session_terms(b->s->base.session).takeover_ms && ms > RETURN_MS)
		ms = background_retry_ms(b);
	if (b->repin_ns && ms > RETRY_MS)
		ms = RETRY_MS;
	return ms ? ms : 1;
}

static void *background_main(void *arg)
{
	struct mcs_background *b = arg;
	struct mcs_direct *s = b->s;
	uint64_t wait_ms = 0;

	while (!mc_stop_wait(&b->stop, wait_ms)) {
		bool work = mcs_leases_flush(&s->leases, s->base.session);
		uint64_t now = mc_now_ns();

		/* An owner takes no writes of this session any more. */
		if (mce_engine_is_fenced(s->engine))
			mcs_session_taint(s->base.session, mcs_session_epoch(s->base.session));
		mcs_session_cleanse(s->base.session);
		mcs_report(mce_engine_endpoint(s->engine));
		mcs_leases_renew(&s->leases, s->base.session,
				 mcs_session_terms(s->base.session).lease_ttl_ms);
		if (background_reach_master(b)) {
			background_do_remount(b);
			background_do_repin(b, now);
			work |= background_send_revokes(b);
		}
		if (work)
			b->busy_until_ns = now + IDLE_MS * MC_NS_PER_MS;
		work = now < b->busy_until_ns;
		/* Set idle before the last check, so that a pin released now either wakes the
		 * thread or is seen. */
		if (!work) {
			__atomic_store_n(&b->idle, true, __ATOMIC_SEQ_CST);
			work = mcs_leases_flush(&s->leases, s->base.session);
		}
		if (work)
			__atomic_store_n(&b->idle, false, __ATOMIC_SEQ_CST);
		wait_ms = background_tick_ms(b, work);
	}
	return NULL;
}

int mcs_background_start(struct mcs_direct *s, struct mcs_background **ret)
{
	struct mcs_background *b = calloc(1, sizeof(*b));
	int r;

	if (!b)
		return -ENOMEM;
	b->s = s;
	mc_mutex_init(&b->lock);
	mc_list_init(&b->revokes);
	r = mc_stop_init(&b->stop);
	if (r < 0)
		goto fail;
	*ret = b;	/* now: the thread and its callbacks find it through the back end */
	r = mc_thread_start(&b->thread, "mcs-background", background_main, b);
	if (!r)
		return 0;
	*ret = NULL;
	mc_stop_done(&b->stop);
fail:
	mc_mutex_destroy(&b->lock);
	free(b);
	return r;
}

void mcs_background_stop(struct mcs_background *b)
{
	struct revoke *rv;

	if (!b)
		return;
	mc_stop_set(&b->stop);
	mc_thread_join(b->thread);
	while ((rv = background_take_revoke(b)))
		revoke_free(rv);
	mc_stop_done(&b->stop);
	mc_mutex_destroy(&b->lock);
	free(b);
}
