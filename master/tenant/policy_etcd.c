/* SPDX-License-Identifier: Apache-2.0
 * policy_etcd.c - the quota policy in etcd, under upstream's key "mooncake-store/CLUSTER/tenant_quota_policy".
 *
 * A thread reads the key each second; a text that has changed comes into force.  The policy stays as it is while the
 * text is invalid, the key does not exist or etcd does not answer.  So neither a restart nor a failover takes quotas
 * away, which the journal keeps.  A quota that a request sets replaces only the text that this master has seen. */
#include <config.h>

#include "master/tenant/policy_store.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/sys/clock.h"
#include "common/sys/thread.h"
#include "master/mcm_i.h"
#include "meta/record.h"

#define LOG "tenant"
#define PERIOD_MS 1000
#define LOAD_MS 2000		/* a start does not wait longer for etcd */
#define READ_MS 2000
#define SAVE_MS 3000		/* a request waits for it */
#define KEY "mooncake-store/%s/tenant_quota_policy"
#define KEY_MAX 256

struct mcm_policy_watch {
	struct mcd_record *record;
	char key[KEY_MAX];
	struct mc_stop stop;
	struct mc_thread thread;
	bool runs;
	atomic_bool cancel;
	/* policy_lock */
	char *seen;		/* the last text; NULL: the key did not exist */
	bool known;		/* the key was read */
	bool invalid;		/* @seen is no policy */
	bool down;		/* the last read failed */
	uint64_t saves;		/* a text that was read before the last one is old */
};

/* ---- reading ---- */

static bool has_policy(struct mcm *m)
{
	struct mcm_tenants *ts = &m->tenants;
	bool found = false;

	mc_rwlock_rdlock(&ts->lock);
	for (unsigned i = 0; i < ts->count && !found; i++)
		found = ts->at[i]->explicit_policy;
	mc_rwlock_unlock(&ts->lock);
	return found;
}

/* policy_lock held: the key has the text that was seen last. */
static void watch_apply(struct mcm *m, struct mcm_policy_watch *w)
{
	size_t len = w->seen ? strlen(w->seen) : 0;
	FILE *from;
	int r;

	w->invalid = false;
	if (!w->seen) {
		if (has_policy(m))
			mc_warn(LOG, "no tenant policy in etcd, keeping the old one key=%s", w->key);
		else
			mc_info(LOG, "no tenant policy in etcd yet key=%s", w->key);
		return;
	}
	from = fmemopen(w->seen, len ? len : 1, "r");
	if (!from)
		r = mc_fail(-errno, "no memory for the tenant policy");
	else if (len > MCM_POLICY_MAX)
		r = mc_fail(-MC_EPARAM, "etcd: %s has more than %u bytes", w->key, MCM_POLICY_MAX);
	else
		r = mcm_policy_take(m, from, w->key);
	if (from)
		fclose(from);
	w->invalid = r < 0;
	if (r < 0)
		mc_err(LOG, "cannot use the tenant policy of etcd, keeping the old one: %s", mc_err_detail(r));
}

/* policy_lock held: the result of a read; takes over @text. */
static void watch_read(struct mcm *m, struct mcm_policy_watch *w, int r, char *text)
{
	if (r < 0 && r != -ENOENT) {
		if (!w->down && r != -ECANCELED)
			mc_warn(LOG, "cannot read the tenant policy, keeping the old one: %s key=%s", mc_err_detail(r),
				w->key);
		w->down = true;
		return;
	}
	if (w->down)
		mc_info(LOG, "etcd has answered again key=%s", w->key);
	w->down = false;
	if (w->known && (text && w->seen ? !strcmp(text, w->seen) : !text && !w->seen)) {
		free(text);
		return;
	}
	free(w->seen);
	w->seen = text;
	w->known = true;
	watch_apply(m, w);
}

static void watch_poll(struct mcm *m, struct mcm_policy_watch *w)
{
	struct mcm_tenants *ts = &m->tenants;
	char *text = NULL;
	uint64_t saves;
	int r;

	mc_mutex_lock(&ts->policy_lock);
	saves = w->saves;
	mc_mutex_unlock(&ts->policy_lock);
	/* Requests do not wait for this one. */
	r = mcd_record_get(w->record, &w->cancel, mc_deadline_ms(READ_MS), &text);
	MC_LOCKED(&ts->policy_lock);
	if (saves == w->saves)
		watch_read(m, w, r, text);
	else
		free(text);
}

static void *watch_run(void *arg)
{
	struct mcm *m = arg;

	while (!mc_stop_wait(&m->tenants.watch->stop, PERIOD_MS))
		watch_poll(m, m->tenants.watch);
	return NULL;
}

/* ---- the table ---- */

static int etcd_open(struct mcm *m)
{
	const char *cluster = *m->conf.cluster_id ? m->conf.cluster_id : "mooncake_cluster";
	struct mcm_policy_watch *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	m->tenants.watch = w;
	mc_stop_init(&w->stop);
	if ((size_t)snprintf(w->key, sizeof(w->key), KEY, cluster) >= sizeof(w->key))
		return mc_fail(-EINVAL, "cluster_id=%.100s is too long", cluster);
	return mcd_record_open(m->conf.tenant_quota_connector_uri, m->conf.store_credentials, w->key,
			       &w->record);
}

static void etcd_close(struct mcm *m)
{
	struct mcm_policy_watch *w = m->tenants.watch;

	if (!w)
		return;
	mcd_record_close(w->record);
	mc_stop_done(&w->stop);
	free(w->seen);
	free(w);
	m->tenants.watch = NULL;
}

/* A master starts without etcd: its objects and the quotas of its journal are there. */
static int etcd_load(struct mcm *m)
{
	struct mcm_policy_watch *w = m->tenants.watch;
	char *text = NULL;
	int r = mcd_record_get(w->record, NULL, mc_deadline_ms(LOAD_MS), &text);

	watch_read(m, w, r, text);
	return 0;
}

static int etcd_start(struct mcm *m)
{
	struct mcm_policy_watch *w = m->tenants.watch;
	int r = mc_thread_start(&w->thread, "mc-policy", watch_run, m);

	w->runs = r == 0;
	return r;
}

static void etcd_stop(struct mcm *m)
{
	struct mcm_policy_watch *w = m->tenants.watch;

	atomic_store(&w->cancel, true);
	mc_stop_set(&w->stop);
	if (w->runs)
		mc_thread_join(w->thread);
	w->runs = false;
}

static void etcd_tick(struct mcm *m)
{
	(void)m;
}

static int etcd_save(struct mcm *m, const char *text, size_t len)
{
	struct mcm_policy_watch *w = m->tenants.watch;
	char *copy;
	int r;

	(void)len;
	if (w->down || !w->known)
		return mc_fail(-MC_EUNAVAILABLE, "etcd does not answer, so the tenant policy cannot be changed key=%s",
			       w->key);
	if (w->invalid)
		return mc_fail(-MC_EUNAVAILABLE, "the tenant policy in etcd is invalid; correct it first key=%s",
			       w->key);
	copy = strdup(text);
	if (!copy)
		return mc_fail(-ENOMEM, "no memory for the tenant policy");
	w->saves++;
	r = mcd_record_swap(w->record, w->seen, text, mc_deadline_ms(SAVE_MS));
	if (r == 0) {
		free(w->seen);
		w->seen = copy;
		return 0;
	}
	free(copy);
	return r;
}

const struct mcm_policy_ops mcm_policy_etcd = {
	.type = "etcd",
	.open = etcd_open,
	.close = etcd_close,
	.load = etcd_load,
	.start = etcd_start,
	.stop = etcd_stop,
	.tick = etcd_tick,
	.save = etcd_save,
};
