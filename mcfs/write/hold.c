/* SPDX-License-Identifier: Apache-2.0
 * hold.c - names that are about to change. */
#include <config.h>
#include "mcfs/write/hold.h"

#include <errno.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/thread.h"

static bool is_named(const struct mcfs_writer *w, struct mcs_key key)
{
	return w->key_len == key.len && memcmp(w->key, key.data, key.len) == 0;
}

/* @w's lock is held, and no hold owns @w. */
static void hold_add(struct mcfs_hold *h, struct mcfs_writer *w)
{
	mcfs_writer_ref(w);
	__atomic_store_n(&w->holder, h, __ATOMIC_RELAXED);
	mc_list_push_back(&h->writers, &w->held);
}

/* False: a commit or another hold is active. */
static bool try_hold(struct mcfs_hold *h, struct mcfs_writer *w, struct mcs_key key)
{
	bool done;

	if (__atomic_load_n(&w->holder, __ATOMIC_RELAXED) == h)
		return true;
	if (pthread_mutex_trylock(&w->lock))
		return false;
	done = !w->holder;
	/* If the writer was renamed meanwhile, it does not belong to this hold. */
	if (done && is_named(w, key))
		hold_add(h, w);
	pthread_mutex_unlock(&w->lock);
	return done;
}

/* Hold all writers that are free. Returns a busy writer with a reference, *ret_key is its name;
 * NULL: all are held. */
static struct mcfs_writer *hold_or_find_busy(struct mcfs_hold *h, const struct mcs_key *names, unsigned n,
					     struct mcs_key *ret_key)
{
	for (unsigned i = 0; i < n; i++) {
		struct mcfs_writer *w = NULL;

		while ((w = mcfs_writer_next(h->env, w, names[i]))) {
			if (try_hold(h, w, names[i]))
				continue;
			*ret_key = names[i];
			return w;
		}
	}
	return NULL;
}

/* Wait until the writer is free, then hold it. */
static int hold_busy(struct mcfs_hold *h, struct mcfs_writer *w, struct mcs_key key, uint64_t deadline)
{
	int r = mc_now_ns() < deadline ? mcfs_writer_lock(w, deadline) : -ETIMEDOUT;

	if (r < 0)
		return r;
	while (w->holder && r == 0)
		r = mc_cond_wait_until(&w->hold_ended, &w->lock, deadline);
	if (r == 0 && is_named(w, key))
		hold_add(h, w);
	pthread_mutex_unlock(&w->lock);
	return r;
}

int mcfs_hold_begin(struct mcfs_hold *h, struct mcfs_version_env *env, const struct mcs_key *names, unsigned n,
		    uint64_t deadline)
{
	struct mcfs_writer *busy;
	struct mcs_key key;
	int r = 0;

	h->env = env;
	mc_list_init(&h->writers);
	while (r == 0 && (busy = hold_or_find_busy(h, names, n, &key))) {
		/* Release all writers while waiting, so that their commits proceed and two holds of
		 * the same names do not deadlock. */
		mcfs_hold_end(h);
		r = hold_busy(h, busy, key, deadline);
		mcfs_writer_unref(busy);
	}
	return r;
}

void mcfs_hold_end(struct mcfs_hold *h)
{
	while (!mc_list_empty(&h->writers)) {
		struct mcfs_writer *w = mc_list_first(&h->writers, struct mcfs_writer, held);

		mc_list_remove(&w->held);
		pthread_mutex_lock(&w->lock);
		__atomic_store_n(&w->holder, NULL, __ATOMIC_RELAXED);
		pthread_cond_broadcast(&w->hold_ended);
		pthread_mutex_unlock(&w->lock);
		mcfs_writer_unref(w);
	}
}

bool mcfs_hold_pending(const struct mcfs_hold *h, struct mcs_key key, bool to_rename)
{
	struct mc_list *pos;

	mc_list_for_each(pos, &h->writers) {
		struct mcfs_writer *w = mc_container_of(pos, struct mcfs_writer, held);

		if (is_named(w, key) && mcfs_writer_pending(w) && !(to_rename && mcfs_writer_is_apart(w)))
			return true;
	}
	return false;
}

void mcfs_hold_unlink(const struct mcfs_hold *h, struct mcs_key key)
{
	struct mc_list *pos;

	mc_list_for_each(pos, &h->writers) {
		struct mcfs_writer *w = mc_container_of(pos, struct mcfs_writer, held);

		if (is_named(w, key))
			mcfs_writer_unlink(w);
	}
}

int mcfs_hold_rename(const struct mcfs_hold *h, struct mcs_key from, struct mcs_key to, uint64_t generation)
{
	struct mc_list *pos;
	int r = 0;

	mc_list_for_each(pos, &h->writers) {
		struct mcfs_writer *w = mc_container_of(pos, struct mcfs_writer, held);

		if (r == 0 && is_named(w, from) && !mcfs_writer_is_apart(w))
			r = mcfs_writer_rename(w, to.data, to.len, generation);
	}
	return r;
}

void mcfs_hold_rebase(const struct mcfs_hold *h, struct mcs_key from, uint64_t generation, bool noreplace)
{
	struct mc_list *pos;

	mc_list_for_each(pos, &h->writers) {
		struct mcfs_writer *w = mc_container_of(pos, struct mcfs_writer, held);

		if (is_named(w, from) && !mcfs_writer_is_apart(w))
			mcfs_writer_rebase(w, generation, noreplace);
	}
}
