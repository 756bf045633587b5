/* SPDX-License-Identifier: Apache-2.0
 * meta.c - client of a metadata server of any kind: publishes texts and refreshes them.
 *
 * Only one call per published key runs at a time, so that an older text cannot overtake a newer one.
 * Lookups and calls for other keys do not wait for it. */
#include <config.h>

#include "meta/meta.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/sys/clock.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/process/fork.h"
#include "common/list.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/thread.h"
#include "common/env.h"
#include "meta/meta_i.h"

#define LOG "metadata"
#define TTL_SEC 30
#define CALL_MS 5000		/* time limit of a refresher's call */
#define RETRY_MS 1000u		/* interval of the refresher while the server does not answer */

MC_COUNTER(calls_failed, "mooncake_engine_metadata_failures_total", "",
	   "Calls to the metadata server that failed");
MC_COUNTER(refreshed, "mooncake_engine_metadata_refreshes_total", "",
	   "Published texts that were kept fresh");

struct entry {
	struct mc_list link;
	char *key, *text;
	char *previous;		/* the last text before @text that the server received, NULL: none */
	bool busy;		/* a call uses the entry, so its text must not change */
	bool deleted;		/* the thread that ends the call frees the entry */
	bool delivered;		/* the server has @text */
	bool arrived;		/* the server has received @text at least once */
	mcd_claim_fn claim;	/* the key belongs to one node; NULL: the last put wins */
	bool removing;		/* unpublished, but the server may still have it */
	char *next;		/* text for the end of the running call, which took too long; NULL: none */
	uint64_t round;		/* the refresher's round that handled the entry last */
};

struct mcd_client {
	/* constant after open */
	struct mcd_backend *backend;
	unsigned ttl_s;
	unsigned fork_depth;	/* fork depth of the process that has the connections and the refresher */
	char server[160];	/* name for messages, without a password */
	/* guarded by lock */
	struct mc_mutex lock;
	struct mc_cond idle;	/* a call with an entry ended */
	struct mc_list entries;
	bool running;		/* the refresher was started */
	char *taken;		/* detail, if another live node has a key that belongs to us; NULL: none has */
	/* used only by the refresher */
	struct mc_stop stop;
	struct mc_thread thread;
	uint64_t round;
	bool down;
	atomic_bool cancel;
	/* atomic */
	atomic_bool unreachable;	/* for the last publication */
};

int mcd_wait_check(const struct mcd_wait *w, const char *server)
{
	if (w->cancel && atomic_load(w->cancel))
		return mc_fail(-ECANCELED, "%s: stopped", server);
	if (mc_deadline_left_ms(w->deadline) == 0)
		return mc_fail(-ETIMEDOUT, "%s: no answer in time", server);
	return 0;
}

/* ---- entries, under the lock ------------------------------------------------------------------- */

static struct entry *entry_find(struct mcd_client *m, const char *key)
{
	struct mc_list *l;

	mc_list_for_each(l, &m->entries) {
		struct entry *e = mc_container_of(l, struct entry, link);

		if (!e->deleted && !strcmp(e->key, key))
			return e;
	}
	return NULL;
}

static void entry_free(struct entry *e)
{
	mc_list_remove(&e->link);
	free(e->key);
	free(e->text);
	free(e->previous);
	free(e->next);
	free(e);
}

static struct entry *entry_new(struct mcd_client *m, const char *key)
{
	struct entry *e = calloc(1, sizeof(*e));

	if (e)
		e->key = strdup(key);
	if (!e || !e->key) {
		free(e);
		return NULL;
	}
	mc_list_push_back(&m->entries, &e->link);
	return e;
}

/* Replace the entry's text; takes over @text. */
static void entry_set_text(struct entry *e, char *text)
{
	if (e->arrived) {
		free(e->previous);
		e->previous = TAKE_PTR(e->text);
	}
	free(e->text);
	e->text = text;
	e->delivered = e->arrived = false;
}

static void entry_release(struct mcd_client *m, struct entry *e)
{
	e->busy = false;
	if (e->next && !e->removing) {
		entry_set_text(e, TAKE_PTR(e->next));
		e->deleted = false;
	}
	if (e->deleted)
		entry_free(e);
	mc_cond_broadcast(&m->idle);
}

/* Find the entry, wait for its running call, and mark it busy.  *ret is NULL if there is none. */
static int entry_claim(struct mcd_client *m, const char *key, uint64_t deadline, struct entry **ret)
{
	struct entry *e;

	while ((e = entry_find(m, key)) && e->busy) {
		if (mc_cond_wait_until(&m->idle, &m->lock, deadline) == -ETIMEDOUT)
			return mc_fail(-ETIMEDOUT, "%s: no answer in time", m->server);
	}
	if (e)
		e->busy = true;
	*ret = e;
	return 0;
}

/* ---- the refresher ----------------------------------------------------------------------------- */

static void refresher_log_state(struct mcd_client *m, int r)
{
	if (r < 0 && r != -ECANCELED && !m->down)
		mc_warn(LOG, "cannot refresh, keeping the known state: %s", mc_err_detail(r));
	if (r >= 0 && m->down)
		mc_info(LOG, "the server is reachable again: server=%s", m->server);
	m->down = r < 0;
}

/* Mark the next entry of this round busy; NULL: none is left. */
static struct entry *refresher_next(struct mcd_client *m)
{
	struct mc_list *l;

	mc_list_for_each(l, &m->entries) {
		struct entry *e = mc_container_of(l, struct entry, link);

		/* Another thread is putting a busy entry. */
		if (e->busy || e->round == m->round || (m->taken && !e->claim))
			continue;
		e->round = m->round;
		e->busy = true;
		return e;
	}
	return NULL;
}

/* Put a text, replacing the text of a dead node. */
static int meta_put(struct mcd_client *m, const char *key, const char *text, mcd_claim_fn claim,
		    const struct mcd_wait *w)
{
	const struct mcd_ops *ops = m->backend->ops;
	auto_free char *theirs = NULL;
	int r;

	r = ops->put(m->backend, key, text, w);
	if (r != -EEXIST || !claim)
		return r;
	r = ops->get(m->backend, key, w, &theirs);
	if (r == 0)
		r = claim(key, text, theirs, w->deadline);
	if (r == 0)
		r = ops->del(m->backend, key, w);
	return r == 0 || r == -ENOENT ? ops->put(m->backend, key, text, w) : r;
}

int mcd_del_own_text(struct mcd_backend *b, const char *key, const char *text, const char *previous,
		     const struct mcd_wait *w)
{
	auto_free char *there = NULL;
	int r;

	r = b->ops->get(b, key, w, &there);
	if (r == 0 && (!strcmp(there, text) || (previous && !strcmp(there, previous))))
		r = b->ops->del(b, key, w);
	return r == -ENOENT ? 0 : r;
}

static int refresher_send(struct mcd_client *m, struct entry *e, bool remove)
{
	struct mcd_wait w = { mc_deadline_ms(CALL_MS), &m->cancel };
	int r;

	if (remove)
		return m->backend->ops->del_own(m->backend, e->key, e->text, e->previous, &w);
	r = -EEXIST;
	if (e->delivered)
		r = m->backend->ops->refresh(m->backend, e->key, e->text, &w);
	/* The old text may have expired, and another node may have put its own. */
	if (!e->delivered || (r == -EEXIST && e->claim))
		r = meta_put(m, e->key, e->text, e->claim, &w);
	if (r == 0)
		mc_metric_add(&refreshed, 1);
	return r;
}

/* The server works but refuses this key. */
static bool meta_refused(int r)
{
	return r == -EEXIST || r == -EINVAL || r == -EACCES || r == -EMSGSIZE;
}

static void entries_undeliver(struct mcd_client *m)
{
	struct mc_list *l;

	mc_list_for_each(l, &m->entries)
		mc_container_of(l, struct entry, link)->delivered = false;
}

/* Under the lock: a key that belongs to us was put (@r 0) or refused.  When the key is ours again, our
 * other texts may have been replaced, so deliver all of them again. */
static void refresher_note_taken(struct mcd_client *m, struct entry *e, int r)
{
	if (r == 0 && m->taken) {
		mc_warn(LOG, "the name is ours again: key=%s", e->key);
		entries_undeliver(m);
	}
	if (r == -EEXIST && !m->taken)
		mc_err(LOG, "another node has our name, peers cannot find this node: %s", mc_err_detail(r));
	if (r == 0 || r == -EEXIST) {
		free(m->taken);
		m->taken = r ? strdup(mc_err_detail(r)) : NULL;
	}
}

/* Refresh or remove a busy entry.  Negative: skip the other entries of this round, the server cannot be
 * reached. */
static int refresher_entry(struct mcd_client *m, struct entry *e)
{
	bool remove = e->removing;
	int r;

	mc_mutex_unlock(&m->lock);
	r = refresher_send(m, e, remove);
	if (meta_refused(r) && !e->claim)
		mc_warn(LOG, "%s key=%s", mc_err_detail(r), e->key);
	mc_mutex_lock(&m->lock);
	if (e->claim && !remove)
		refresher_note_taken(m, e, r);
	if (remove)
		e->deleted = r == 0 || meta_refused(r);
	else
		e->delivered = r == 0;
	e->arrived = e->arrived || e->delivered;
	entry_release(m, e);
	return meta_refused(r) ? 0 : r;
}

static int refresher_round(struct mcd_client *m)
{
	struct mcd_wait w = { mc_deadline_ms(CALL_MS), &m->cancel };
	struct entry *e;
	int r, lost;

	r = lost = m->backend->ops->beat(m->backend, &w);
	mc_mutex_lock(&m->lock);
	if (lost > 0)
		entries_undeliver(m);
	m->round++;
	/* The key that belongs to us was published first, so it is refreshed first; without it the other keys
	 * may not be ours. */
	while (r >= 0 && (e = refresher_next(m)))
		r = refresher_entry(m, e);
	mc_mutex_unlock(&m->lock);
	if (r < 0)
		mc_metric_add(&calls_failed, 1);
	atomic_store(&m->unreachable, r < 0);
	return r < 0 ? r : 0;
}

static void *refresher_main(void *arg)
{
	struct mcd_client *m = arg;
	unsigned every = m->ttl_s * 1000 / 3;
	int r = 0;

	while (!mc_stop_wait(&m->stop, r < 0 && RETRY_MS < every ? RETRY_MS : every)) {
		r = refresher_round(m);
		refresher_log_state(m, r);
	}
	return NULL;
}

static int refresher_start(struct mcd_client *m)
{
	int r;

	if (m->running)
		return 0;
	r = mc_fault("meta.client.refresher");
	if (r == 0)
		r = mc_thread_start(&m->thread, "mce-metadata", refresher_main, m);
	m->running = r == 0;
	return r;
}

/* ---- calls ------------------------------------------------------------------------------------- */

static int meta_count(int r)
{
	if (r < 0 && r != -ENOENT)
		mc_metric_add(&calls_failed, 1);
	return r;
}

int mcd_get(struct mcd_client *m, const char *key, char **ret_text, uint64_t deadline)
{
	struct mcd_wait w = { .deadline = deadline };
	int r;

	r = mc_fork_check(m->fork_depth);
	if (r < 0)
		return r;
	return meta_count(m->backend->ops->get(m->backend, key, &w, ret_text));
}

/* Under the lock: the running call takes too long; @text is sent after it. */
static void entry_follow(struct mcd_client *m, const char *key, const char *text)
{
	struct entry *e = entry_find(m, key);
	char *copy = e ? strdup(text) : NULL;

	if (!copy)
		return;
	free(e->next);
	e->next = copy;
	e->removing = false;
}

/* Under the lock: create or find the entry of @key, set @text and mark it busy. */
static int entry_prepare(struct mcd_client *m, const char *key, const char *text, uint64_t deadline,
			 struct entry **ret, bool *ret_new)
{
	struct entry *e;
	char *copy;
	int r;

	r = refresher_start(m);
	/* Not -EAGAIN, which would mean an unreachable server that the refresher asks again. */
	if (r < 0)
		return mc_fail(-ENOMEM, "cannot start a thread to refresh %s: %s", key, mc_strerror(r));
	r = entry_claim(m, key, deadline, &e);
	if (r < 0) {
		entry_follow(m, key, text);
		return r;
	}
	copy = strdup(text);
	*ret_new = !e;
	if (!e)
		e = entry_new(m, key);
	if (!e || !copy) {
		free(copy);
		if (e) {
			e->deleted = *ret_new;
			entry_release(m, e);
		}
		return mc_fail(-ENOMEM, "no memory to publish %s", key);
	}
	entry_set_text(e, copy);
	free(e->next);
	e->next = NULL;
	e->busy = true;
	e->removing = false;
	*ret = e;
	return 0;
}

static int meta_publish(struct mcd_client *m, const char *key, const char *text, mcd_claim_fn claim,
			uint64_t deadline)
{
	struct mcd_wait w = { .deadline = deadline };
	struct entry *e = NULL;
	bool is_new = false;
	int r;

	r = mc_fork_check(m->fork_depth);
	if (r < 0)
		return r;
	if (strlen(key) >= MCD_KEY_MAX)
		return mc_fail(-EINVAL, "the key is too long: %zu bytes", strlen(key));
	if (strlen(text) > MCD_TEXT_MAX)
		return mc_fail(-EMSGSIZE, "%s: the text is too long: %zu bytes", key, strlen(text));
	mc_mutex_lock(&m->lock);
	if (m->taken && !claim)
		r = mc_fail(-MC_EOWNER, "%s", m->taken);
	else
		r = entry_prepare(m, key, text, deadline, &e, &is_new);
	mc_mutex_unlock(&m->lock);
	if (r < 0)
		return r;
	e->claim = claim;
	r = meta_put(m, key, text, claim, &w);
	mc_mutex_lock(&m->lock);
	e->delivered = r == 0;
	e->arrived = e->arrived || r == 0;
	if (is_new && meta_refused(r))
		e->deleted = true;
	entry_release(m, e);
	mc_mutex_unlock(&m->lock);
	atomic_store(&m->unreachable, mcd_will_retry(r));
	if (r < 0)
		mc_stop_kick(&m->stop);
	return meta_count(r);
}

int mcd_publish(struct mcd_client *m, const char *key, const char *text, uint64_t deadline)
{
	return meta_publish(m, key, text, NULL, deadline);
}

int mcd_publish_exclusive(struct mcd_client *m, const char *key, const char *text,
			  mcd_claim_fn claim, uint64_t deadline)
{
	return meta_publish(m, key, text, claim, deadline);
}

bool mcd_will_retry(int r)
{
	return r < 0 && !meta_refused(r) && r != -MC_EOWNER && r != -ENOMEM && r != -ECANCELED;
}

bool mcd_unreachable(struct mcd_client *m)
{
	return atomic_load(&m->unreachable);
}

int mcd_unpublish(struct mcd_client *m, const char *key, uint64_t deadline)
{
	struct mcd_wait w = { .deadline = deadline };
	struct entry *e = NULL;
	bool taken;
	int r;

	r = mc_fork_check(m->fork_depth);
	if (r < 0)
		return r;
	mc_mutex_lock(&m->lock);
	r = entry_claim(m, key, deadline, &e);
	/* In any case the refresher must not put the key again but remove it: with a live lease it would never
	 * expire. */
	if (r < 0)
		e = entry_find(m, key);
	if (e)
		e->removing = true;
	/* Do not remove another node's texts. */
	taken = m->taken != NULL;
	if (r == 0 && e && taken) {
		e->deleted = true;
		if (e->claim) {
			free(m->taken);
			m->taken = NULL;
		}
		entry_release(m, e);
	}
	mc_mutex_unlock(&m->lock);
	if (r < 0 || !e || taken)
		return meta_count(r);
	r = m->backend->ops->del_own(m->backend, key, e->text, e->previous, &w);
	mc_mutex_lock(&m->lock);
	e->deleted = r == 0;
	entry_release(m, e);
	mc_mutex_unlock(&m->lock);
	return meta_count(r);
}

/* ---- open and close ---------------------------------------------------------------------------- */

bool mcd_is_p2p(const char *conn)
{
	return !strcmp(conn, "P2PHANDSHAKE");
}

/* The server's name for messages: without the part before an '@', which may be a password. */
static void meta_server_name(const char *conn, char *buf, size_t len)
{
	const char *sep = strstr(conn, "://"), *from = sep ? sep + 3 : conn, *at = strrchr(from, '@');

	snprintf(buf, len, "%.*s%s", sep ? (int)(from - conn) : 0, conn, at ? at + 1 : from);
}

static void meta_free(struct mcd_client *m)
{
	while (!mc_list_empty(&m->entries))
		entry_free(mc_list_first(&m->entries, struct entry, link));
	if (m->backend)
		m->backend->ops->close(m->backend);
	free(m->taken);
	mc_stop_done(&m->stop);
	mc_cond_destroy(&m->idle);
	mc_mutex_destroy(&m->lock);
	free(m);
}

static int meta_new(struct mcd_client **ret)
{
	struct mcd_client *m = calloc(1, sizeof(*m));

	if (!m || mc_stop_init(&m->stop) < 0) {
		free(m);
		return mc_fail(-ENOMEM, "no memory for a metadata client");
	}
	mc_mutex_init(&m->lock);
	(void)mc_cond_init(&m->idle);
	mc_list_init(&m->entries);
	m->fork_depth = mc_fork_depth;
	m->ttl_s = (unsigned)mc_env_int("MC_METADATA_TTL_SEC", TTL_SEC, 2, 86400);
	*ret = m;
	return 0;
}

int mcd_open(const char *conn, struct mcd_client **ret)
{
	struct mcd_client *m = NULL;
	int r = meta_new(&m);

	if (r < 0)
		return r;
	meta_server_name(conn, m->server, sizeof(m->server));
	r = mcd_backend_open(conn, &(const struct mcd_open){ m->ttl_s, NULL }, &m->backend);
	if (r < 0) {
		meta_free(m);
		return r;
	}
	*ret = m;
	return 0;
}

void mcd_close(struct mcd_client *m)
{
	if (!m || mc_fork_check(m->fork_depth) < 0)
		return;
	atomic_store(&m->cancel, true);
	mc_stop_set(&m->stop);
	if (m->running)
		mc_thread_join(m->thread);
	meta_free(m);
}
