/* SPDX-License-Identifier: Apache-2.0
 * hold.c - names that are about to change. */
#include <config.h>
#include "mcfs/write/hold.h"

#include <errno.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/sys/clock.h"
#include "common/sys/thread.h"
#include "mcfs/keymap.h"

/* The names to hold: some, or all that begin with one. */
struct wanted {
	const struct mcs_key *names;
	unsigned n;
	bool below;
};

static bool is_named(const struct mcfs_writer *w, struct mcs_key key)
{
	return w->key_len == key.len && memcmp(w->key, key.data, key.len) == 0;
}

static bool is_below(const struct mcfs_writer *w, struct mcs_key dir)
{
	return w->key_len > dir.len && memcmp(w->key, dir.data, dir.len) == 0;
}

static bool is_wanted(const struct wanted *want, const struct mcfs_writer *w, struct mcs_key key)
{
	return want->below ? is_below(w, key) : is_named(w, key);
}

/* @w's lock is held, and no hold owns @w. */
static void hold_add(struct mcfs_hold *h, struct mcfs_writer *w)
{
	mcfs_writer_ref(w);
	__atomic_store_n(&w->holder, h, __ATOMIC_RELAXED);
	mc_list_push_back(&h->writers, &w->held);
}

/* False: a commit or another hold is active. */
static bool try_hold(struct mcfs_hold *h, struct mcfs_writer *w, const struct wanted *want, struct mcs_key key)
{
	bool done;

	if (__atomic_load_n(&w->holder, __ATOMIC_RELAXED) == h)
		return true;
	if (mc_mutex_trylock(&w->lock))
		return false;
	done = !w->holder;
	/* If the writer was renamed meanwhile, it does not belong to this hold. */
	if (done && is_wanted(want, w, key))
		hold_add(h, w);
	mc_mutex_unlock(&w->lock);
	return done;
}

static struct mcfs_writer *wanted_next(struct mcfs_hold *h, const struct wanted *want, struct mcfs_writer *prev,
				       struct mcs_key key)
{
	return want->below ? mcfs_writer_next_below(h->env, prev, key) : mcfs_writer_next(h->env, prev, key);
}

/* Hold all writers that are free. Returns a busy writer with a reference, *ret_key is its name;
 * NULL: all are held. */
static struct mcfs_writer *hold_or_find_busy(struct mcfs_hold *h, const struct wanted *want, struct mcs_key *ret_key)
{
	for (unsigned i = 0; i < want->n; i++) {
		struct mcfs_writer *w = NULL;

		while ((w = wanted_next(h, want, w, want->names[i]))) {
			if (try_hold(h, w, want, want->names[i]))
				continue;
			*ret_key = want->names[i];
			return w;
		}
	}
	return NULL;
}

/* Wait until the writer is free, then hold it. */
static int hold_busy(struct mcfs_hold *h, struct mcfs_writer *w, const struct wanted *want, struct mcs_key key,
		     uint64_t deadline)
{
	int r = mc_now_ns() < deadline ? mcfs_writer_lock(w, deadline) : -ETIMEDOUT;

	if (r < 0)
		return r;
	while (w->holder && r == 0)
		r = mc_cond_wait_until(&w->hold_ended, &w->lock, deadline);
	if (r == 0 && is_wanted(want, w, key))
		hold_add(h, w);
	mc_mutex_unlock(&w->lock);
	return r;
}

static int hold_all(struct mcfs_hold *h, struct mcfs_version_env *env, const struct wanted *want, uint64_t deadline)
{
	struct mcfs_writer *busy;
	struct mcs_key key;
	int r = 0;

	h->env = env;
	mc_list_init(&h->writers);
	while (r == 0 && (busy = hold_or_find_busy(h, want, &key))) {
		/* Release all writers while waiting, so that their commits proceed and two holds of
		 * the same names do not deadlock. */
		mcfs_hold_end(h);
		r = hold_busy(h, busy, want, key, deadline);
		mcfs_writer_unref(busy);
	}
	return r;
}

int mcfs_hold_begin(struct mcfs_hold *h, struct mcfs_version_env *env, const struct mcs_key *names, unsigned n,
		    uint64_t deadline)
{
	return hold_all(h, env, &(struct wanted){ names, n, false }, deadline);
}

int mcfs_hold_begin_below(struct mcfs_hold *h, struct mcfs_version_env *env, struct mcs_key prefix, uint64_t deadline)
{
	return hold_all(h, env, &(struct wanted){ &prefix, 1, true }, deadline);
}

void mcfs_hold_end(struct mcfs_hold *h)
{
	while (!mc_list_empty(&h->writers)) {
		struct mcfs_writer *w = mc_list_first(&h->writers, struct mcfs_writer, held);

		mc_list_remove(&w->held);
		mc_mutex_lock(&w->lock);
		__atomic_store_n(&w->holder, NULL, __ATOMIC_RELAXED);
		mc_cond_broadcast(&w->hold_ended);
		mc_mutex_unlock(&w->lock);
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

int mcfs_hold_rename_below(const struct mcfs_hold *h, struct mcs_key from, struct mcs_key to)
{
	char key[MCFS_KEY_MAX];
	struct mc_list *pos;
	int r = 0;

	mc_list_for_each(pos, &h->writers) {
		struct mcfs_writer *w = mc_container_of(pos, struct mcfs_writer, held);
		size_t rest = w->key_len - from.len;

		if (r < 0 || !is_below(w, from))
			continue;
		if (to.len + rest > sizeof(key)) {
			/* Its commit fails: it has no name any more. */
			mcfs_writer_unlink(w);
			continue;
		}
		memcpy(key, to.data, to.len);
		memcpy(key + to.len, w->key + from.len, rest);
		/* The versions below keep their generations. */
		r = mcfs_writer_rename(w, key, to.len + rest, 0);
	}
	return r;
}
