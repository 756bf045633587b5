/* SPDX-License-Identifier: Apache-2.0
 * background.c - the thread behind the calls. */
#include <config.h>

#include "client/session/background.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/direct/object.h"
#include "common/cleanup.h"
#include "common/log.h"
#include "common/thread.h"

/* Puts waiting to be revoked; more means that the master is gone, and with it the puts. */
#define REVOKES_MAX 1024
#define IDLE_MS 1000		/* without anything given back, look only now and then */
#define TICK_MAX_MS 500
#define RETRY_MS 200		/* between attempts to reach the master, or to find what its owners bring */
#define CALL_MS 2000

struct revoke {
	struct mc_list link;
	uint64_t generation, epoch;
	size_t key_len;
	unsigned char key[];
};

struct mcs_background {
	/* constant after start */
	struct mcs_direct *s;
	pthread_t thread;
	struct mc_stop stop;

	pthread_mutex_t lock;
	struct mc_list revokes;		/* with the lock held */
	unsigned n_revokes;

	/* atomic */
	bool idle, remount, repin;

	/* the thread's */
	uint64_t busy_until_ns, retry_ns;
	uint64_t repin_ns;		/* when to look again for open objects, 0: not */
};

static void kick(struct mcs_background *k)
{
	mc_stop_kick(&k->stop);
}

void mcs_background_wake(struct mcs_background *k)
{
	if (!k)
		return;
	/* While it is not idle it looks often enough by itself: no system call per read. */
	if (__atomic_load_n(&k->idle, __ATOMIC_SEQ_CST) &&
	    __atomic_exchange_n(&k->idle, false, __ATOMIC_SEQ_CST))
		kick(k);
}

void mcs_background_connected(struct mcs_background *k)
{
	if (!k)
		return;
	__atomic_store_n(&k->repin, true, __ATOMIC_RELEASE);
	kick(k);
}

void mcs_background_remount(struct mcs_background *k)
{
	if (!k)
		return;
	__atomic_store_n(&k->remount, true, __ATOMIC_RELEASE);
	kick(k);
}

void mcs_background_revoke(struct mcs_background *k, const void *key, size_t key_len, uint64_t generation,
		       uint64_t epoch)
{
	struct revoke *rv = k ? malloc(sizeof(*rv) + key_len) : NULL;
	struct revoke *oldest = NULL;

	if (!rv)
		return;
	*rv = (struct revoke){ .generation = generation, .epoch = epoch, .key_len = key_len };
	memcpy(rv->key, key, key_len);
	pthread_mutex_lock(&k->lock);
	mc_list_push_back(&k->revokes, &rv->link);
	if (++k->n_revokes > REVOKES_MAX) {
		oldest = mc_list_first(&k->revokes, struct revoke, link);
		mc_list_remove(&oldest->link);
		k->n_revokes--;
	}
	pthread_mutex_unlock(&k->lock);
	free(oldest);
	kick(k);
}

static struct revoke *take_revoke(struct mcs_background *k)
{
	struct revoke *rv = NULL;

	MC_LOCKED(&k->lock);
	if (!mc_list_empty(&k->revokes)) {
		rv = mc_list_first(&k->revokes, struct revoke, link);
		mc_list_remove(&rv->link);
		k->n_revokes--;
	}
	return rv;
}

static void give_back_revoke(struct mcs_background *k, struct revoke *rv)
{
	MC_LOCKED(&k->lock);
	mc_list_push_front(&k->revokes, &rv->link);
	k->n_revokes++;
}

/* True while some are left. */
static bool send_revokes(struct mcs_background *k)
{
	struct mcs_session *session = k->s->base.session;
	struct revoke *rv;

	while ((rv = take_revoke(k))) {
		struct mcp_put_done one = {
			.key = mcp_bytes(rv->key, (uint32_t)rv->key_len),
			.generation = rv->generation,
		};
		struct mcp_put_revoke msg = {
			.items = mcp_seq(&one, 1), .tenant = k->s->base.tenant,
		};
		struct mcp_put_revoke_reply reply;
		struct mcp_reply mem = { 0 };
		int r = 0;

		if (rv->epoch == mcs_session_epoch(session))
			r = mcs_call_once(session, MCP_PUT_REVOKE, &msg, &reply, &mem,
					  mc_deadline_ms(CALL_MS));
		mcp_reply_done(&mem);
		if (r == -MC_ETIMEDOUT) {
			give_back_revoke(k, rv);
			return true;
		}
		free(rv);
	}
	return false;
}

/* Look for the master when it is gone.  True when it is there. */
static bool reach_master(struct mcs_background *k)
{
	uint64_t now = mc_now_ns();

	if (mcs_session_up(k->s->base.session))
		return true;
	if (now < k->retry_ns)
		return false;
	k->retry_ns = now + RETRY_MS * MC_NS_PER_MS;
	return mcs_session_probe(k->s->base.session, mc_deadline_ms(CALL_MS)) >= 0;
}

static void remount(struct mcs_background *k)
{
	int r;

	if (!__atomic_exchange_n(&k->remount, false, __ATOMIC_ACQ_REL))
		return;
	r = mcs_owner_remount(k->s->owner, k->s->base.session, mc_deadline_ms(CALL_MS));
	if (r >= 0)
		return;
	mc_warn("client", "the master did not take our segment, going on trying error=\"%s\"",
		mc_err_detail(r));
	__atomic_store_n(&k->remount, true, __ATOMIC_RELEASE);
}

static void repin(struct mcs_background *k, uint64_t now)
{
	bool due = k->repin_ns && now >= k->repin_ns;

	if (!__atomic_exchange_n(&k->repin, false, __ATOMIC_ACQ_REL) && !due)
		return;
	k->repin_ns = mcs_direct_repin(k->s) ? mc_now_ns() + RETRY_MS * MC_NS_PER_MS : 0;
}

static uint64_t tick_ms(const struct mcs_background *k, bool work)
{
	uint64_t ms = mcs_session_terms(k->s->base.session).lease_ttl_ms / 4;

	if (work)
		return MCS_RELEASE_MS / 2;
	if (!mcs_session_up(k->s->base.session))
		ms = RETRY_MS;
	if (ms > TICK_MAX_MS)
		ms = TICK_MAX_MS;
	if (k->repin_ns && ms > RETRY_MS)
		ms = RETRY_MS;
	return ms ? ms : 1;
}

static void *keeper_main(void *arg)
{
	struct mcs_background *k = arg;
	struct mcs_direct *s = k->s;
	uint64_t wait_ms = 0;

	while (!mc_stop_wait(&k->stop, wait_ms)) {
		bool work = mcs_leases_flush(&s->leases, s->base.session);
		uint64_t now = mc_now_ns();

		mcs_session_cleanse(s->base.session);
		mcs_leases_renew(&s->leases, s->base.session,
				 mcs_session_terms(s->base.session).lease_ttl_ms);
		if (reach_master(k)) {
			remount(k);
			repin(k, now);
			work |= send_revokes(k);
		}
		if (work)
			k->busy_until_ns = now + IDLE_MS * MC_NS_PER_MS;
		work = now < k->busy_until_ns;
		/* Said before the last look, so that a pin that comes now wakes us or is seen. */
		if (!work) {
			__atomic_store_n(&k->idle, true, __ATOMIC_SEQ_CST);
			work = mcs_leases_flush(&s->leases, s->base.session);
		}
		if (work)
			__atomic_store_n(&k->idle, false, __ATOMIC_SEQ_CST);
		wait_ms = tick_ms(k, work);
	}
	return NULL;
}

int mcs_background_start(struct mcs_direct *s, struct mcs_background **ret)
{
	struct mcs_background *k = calloc(1, sizeof(*k));
	int r;

	if (!k)
		return -ENOMEM;
	k->s = s;
	pthread_mutex_init(&k->lock, NULL);
	mc_list_init(&k->revokes);
	r = mc_stop_init(&k->stop);
	if (r < 0)
		goto fail;
	*ret = k;	/* the thread and the callbacks it makes find it in the handle */
	r = mc_thread_start(&k->thread, "mcs-keeper", keeper_main, k);
	if (!r)
		return 0;
	*ret = NULL;
	mc_stop_done(&k->stop);
fail:
	pthread_mutex_destroy(&k->lock);
	free(k);
	return r;
}

void mcs_background_stop(struct mcs_background *k)
{
	struct revoke *rv;

	if (!k)
		return;
	mc_stop_set(&k->stop);
	pthread_join(k->thread, NULL);
	while ((rv = take_revoke(k)))
		free(rv);
	mc_stop_done(&k->stop);
	pthread_mutex_destroy(&k->lock);
	free(k);
}
