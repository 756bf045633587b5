/* SPDX-License-Identifier: Apache-2.0
 * reopen.c - versions between the two halves of an open(2) that was too late once. */
#include <config.h>
#include "mcfs/reopen.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/thread.h"

void mcfs_reopen_init(struct mcfs_reopen *r)
{
	memset(r, 0, sizeof(*r));
	pthread_mutex_init(&r->lock, NULL);
}

/* lock held */
static struct mcfs_object *take(struct mcfs_reopen *r, struct mcfs_kept *k)
{
	struct mcfs_object *o = k->object;

	free(k->key);
	memset(k, 0, sizeof(*k));
	__atomic_fetch_sub(&r->n, 1, __ATOMIC_RELAXED);
	return o;
}

void mcfs_reopen_done(struct mcfs_reopen *r)
{
	for (unsigned i = 0; i < MCFS_REOPEN_MAX; i++)
		if (r->kept[i].object)
			mcfs_object_unref(take(r, &r->kept[i]));
	pthread_mutex_destroy(&r->lock);
}

/* lock held: one whose thread has not come back, NULL when there is none.  To be let go of without the
 * lock, since that may talk to the master. */
static struct mcfs_object *forgotten(struct mcfs_reopen *r)
{
	uint64_t now = mc_now_ms();

	for (unsigned i = 0; i < MCFS_REOPEN_MAX; i++)
		if (r->kept[i].object && now - r->kept[i].since_ms > MCFS_REOPEN_MS)
			return take(r, &r->kept[i]);
	return NULL;
}

/* lock held */
static struct mcfs_kept *find(struct mcfs_reopen *r, struct mcs_key key, pid_t tid)
{
	for (unsigned i = 0; i < MCFS_REOPEN_MAX; i++) {
		struct mcfs_kept *k = &r->kept[i];

		if (k->object && k->tid == tid && k->key_len == key.len &&
		    memcmp(k->key, key.data, key.len) == 0)
			return k;
	}
	return NULL;
}

void mcfs_reopen_keep(struct mcfs_reopen *r, struct mcs_key key, pid_t tid, struct mcfs_object *o)
{
	struct mcfs_object *old = NULL, *late = NULL;
	char *copy = tid ? malloc(key.len + 1) : NULL;
	struct mcfs_kept *k;
	bool looks;

	if (!copy) {
		mcfs_object_unref(o);
		return;
	}
	memcpy(copy, key.data, key.len);
	pthread_mutex_lock(&r->lock);
	late = forgotten(r);
	k = find(r, key, tid);
	looks = !k || k->shown;
	if (!k)
		k = &r->kept[r->next++ % MCFS_REOPEN_MAX];
	if (k->object)
		old = take(r, k);
	if (looks) {
		*k = (struct mcfs_kept){ tid, mc_now_ms(), 0, key.len, copy, o };
		__atomic_fetch_add(&r->n, 1, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&r->lock);
	mcfs_object_unref(old);
	mcfs_object_unref(late);
	if (!looks) {
		mcfs_object_unref(o);
		free(copy);
	}
}

static bool nothing(const struct mcfs_reopen *r)
{
	return !__atomic_load_n(&r->n, __ATOMIC_RELAXED);
}

bool mcfs_reopen_peek(struct mcfs_reopen *r, struct mcs_key key, pid_t tid, struct mcs_info *ret)
{
	struct mcfs_object *late;
	struct mcfs_kept *k;
	bool show;

	if (nothing(r))
		return false;
	pthread_mutex_lock(&r->lock);
	late = forgotten(r);
	k = find(r, key, tid);
	show = k && k->shown < MCFS_REOPEN_LOOKS;
	if (show) {
		*ret = *mcfs_object_info(k->object);
		k->shown++;
	}
	pthread_mutex_unlock(&r->lock);
	mcfs_object_unref(late);
	return show;
}

struct mcfs_object *mcfs_reopen_take(struct mcfs_reopen *r, struct mcs_key key, pid_t tid,
				     uint64_t generation)
{
	struct mcfs_object *o = NULL;
	struct mcfs_kept *k;

	if (nothing(r))
		return NULL;
	pthread_mutex_lock(&r->lock);
	k = find(r, key, tid);
	if (k && mcfs_object_info(k->object)->generation == generation)
		o = take(r, k);
	pthread_mutex_unlock(&r->lock);
	return o;
}
