/* SPDX-License-Identifier: Apache-2.0
 * reopen.c - threads whose open(2) was too late once, and what is pinned for them.
 * Objects are let go of without the lock, since that may talk to the master. */
#include <config.h>
#include "mcfs/read/reopen.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/thread.h"

void mcfs_reopen_init(struct mcfs_reopen *r)
{
	memset(r, 0, sizeof(*r));
	pthread_mutex_init(&r->lock, NULL);
}

/* lock held: it is over; what was kept */
static struct mcfs_object *end(struct mcfs_reopen *r, struct mcfs_again *a)
{
	struct mcfs_object *o = a->object;

	free(a->key);
	memset(a, 0, sizeof(*a));
	__atomic_fetch_sub(&r->n, 1, __ATOMIC_RELAXED);
	return o;
}

void mcfs_reopen_done(struct mcfs_reopen *r)
{
	for (unsigned i = 0; i < MCFS_REOPEN_MAX; i++)
		if (r->again[i].tid)
			mcfs_object_unref(end(r, &r->again[i]));
	pthread_mutex_destroy(&r->lock);
}

static bool nothing(const struct mcfs_reopen *r)
{
	return !__atomic_load_n(&r->n, __ATOMIC_RELAXED);
}

/* lock held */
static struct mcfs_again *find(struct mcfs_reopen *r, struct mcs_key key, pid_t tid)
{
	for (unsigned i = 0; tid && i < MCFS_REOPEN_MAX; i++) {
		struct mcfs_again *a = &r->again[i];

		if (a->tid == tid && a->key_len == key.len && memcmp(a->key, key.data, key.len) == 0)
			return a;
	}
	return NULL;
}

/* lock held: the one that has waited for longest, or one that is free */
static struct mcfs_again *oldest(struct mcfs_reopen *r)
{
	struct mcfs_again *old = &r->again[0];

	for (unsigned i = 0; i < MCFS_REOPEN_MAX; i++) {
		struct mcfs_again *a = &r->again[i];

		if (!a->tid)
			return a;
		if (a->since_ms < old->since_ms)
			old = a;
	}
	return old;
}

/* One whose thread has not come back. */
static void forget_late(struct mcfs_reopen *r)
{
	struct mcfs_object *o = NULL;
	uint64_t now;

	pthread_mutex_lock(&r->lock);
	now = mc_now_ms();
	for (unsigned i = 0; i < MCFS_REOPEN_MAX && !o; i++)
		if (r->again[i].tid && now - r->again[i].since_ms > MCFS_REOPEN_MS)
			o = end(r, &r->again[i]);
	pthread_mutex_unlock(&r->lock);
	mcfs_object_unref(o);
}

void mcfs_reopen_expect(struct mcfs_reopen *r, struct mcs_key key, pid_t tid)
{
	char *copy = tid ? malloc(key.len + 1) : NULL;
	struct mcfs_object *old = NULL;
	struct mcfs_again *a;

	if (!copy)
		return;
	memcpy(copy, key.data, key.len);
	pthread_mutex_lock(&r->lock);
	a = find(r, key, tid);
	if (!a)
		a = oldest(r);
	if (a->tid)
		old = end(r, a);
	*a = (struct mcfs_again){ .tid = tid, .since_ms = mc_now_ms(), .key_len = key.len, .key = copy };
	__atomic_fetch_add(&r->n, 1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&r->lock);
	mcfs_object_unref(old);
}

bool mcfs_reopen_look(struct mcfs_reopen *r, struct mcs_key key, pid_t tid)
{
	struct mcfs_object *old = NULL;
	struct mcfs_again *a;
	bool again;

	if (nothing(r))
		return false;
	forget_late(r);
	pthread_mutex_lock(&r->lock);
	a = find(r, key, tid);
	again = a && a->looks++ < MCFS_REOPEN_LOOKS;
	if (a && !again)
		old = end(r, a);
	pthread_mutex_unlock(&r->lock);
	mcfs_object_unref(old);
	return again;
}

void mcfs_reopen_keep(struct mcfs_reopen *r, struct mcs_key key, pid_t tid, struct mcfs_object *o)
{
	struct mcfs_object *old = o;
	struct mcfs_again *a;

	pthread_mutex_lock(&r->lock);
	a = find(r, key, tid);
	if (a) {
		old = a->object;
		a->object = o;
	}
	pthread_mutex_unlock(&r->lock);
	mcfs_object_unref(old);
}

bool mcfs_reopen_take(struct mcfs_reopen *r, struct mcs_key key, pid_t tid, uint64_t generation,
		      struct mcfs_object **ret)
{
	struct mcfs_object *o = NULL;
	struct mcfs_again *a;

	*ret = NULL;
	if (nothing(r))
		return false;
	pthread_mutex_lock(&r->lock);
	a = find(r, key, tid);
	if (a)
		o = end(r, a);
	pthread_mutex_unlock(&r->lock);
	if (o && mcfs_object_info(o)->generation == generation)
		*ret = o;
	else
		mcfs_object_unref(o);
	return a;
}
