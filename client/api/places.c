/* SPDX-License-Identifier: Apache-2.0
 * places.c - the public calls about keys that are looked up once and read several times. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/store_i.h"
#include "common/cleanup.h"
#include "common/sys/lock.h"

/* One look-up; the last reader frees it. */
struct shot {
	struct mcs_found *found;
	unsigned refs;			/* under the lock of its places */
};

struct mcs_places {
	/* constant */
	struct mcs *store;
	unsigned n;
	struct mcs_key *key;		/* sorted, without repetitions; the bytes follow */
	struct mc_mutex lock;
	struct shot *shot;		/* the latest; under lock */
};

static int places_compare(const void *a, const void *b)
{
	const struct mcs_key *x = a, *y = b;
	int r = memcmp(x->data, y->data, x->len < y->len ? x->len : y->len);

	return r ? r : (x->len > y->len) - (x->len < y->len);
}

static struct mcs_places *places_new(struct mcs *s, const struct mcs_key *keys, unsigned n)
{
	struct mcs_places *p;
	size_t bytes = 0;
	char *text;

	for (unsigned i = 0; i < n; i++)
		bytes += mcs_key_good(keys[i]) ? keys[i].len : 0;
	p = calloc(1, sizeof(*p) + n * sizeof(*keys) + bytes);
	if (!p)
		return NULL;
	p->store = s;
	p->key = (struct mcs_key *)(p + 1);
	text = (char *)(p->key + n);
	for (unsigned i = 0; i < n; i++) {
		if (!mcs_key_good(keys[i]))
			continue;
		memcpy(text, keys[i].data, keys[i].len);
		p->key[p->n++] = (struct mcs_key){ text, keys[i].len };
		text += keys[i].len;
	}
	qsort(p->key, p->n, sizeof(*p->key), places_compare);
	n = 0;
	for (unsigned i = 0; i < p->n; i++)
		if (!n || places_compare(&p->key[n - 1], &p->key[i]))
			p->key[n++] = p->key[i];
	p->n = n;
	mc_mutex_init(&p->lock);
	return p;
}

/* Lock held. */
static void shot_unref_locked(struct shot *shot)
{
	if (!shot || --shot->refs)
		return;
	free(shot->found);
	free(shot);
}

static void places_unref(struct mcs_places *p, struct shot *shot)
{
	MC_LOCKED(&p->lock);
	shot_unref_locked(shot);
}

/* The latest look-up if it is fresh, with a reference; NULL: look up again. */
static struct shot *places_fresh(struct mcs_places *p, const struct mcs_backend *b)
{
	MC_LOCKED(&p->lock);
	if (!p->shot || p->shot->found->backend != b || mc_now_ns() >= p->shot->found->until_ns)
		return NULL;
	p->shot->refs++;
	return p->shot;
}

/* Look all keys up.  *ret gets a reference. */
static int places_look(struct mcs_places *p, struct mcs_backend *b, struct shot **ret, uint64_t deadline)
{
	struct shot *shot = calloc(1, sizeof(*shot));
	int r = shot ? b->ops->find(b, p->key, p->n, &shot->found, deadline) : -ENOMEM;

	if (r < 0) {
		free(shot);
		return r;
	}
	shot->refs = 2;
	mc_mutex_lock(&p->lock);
	shot_unref_locked(p->shot);
	p->shot = shot;
	mc_mutex_unlock(&p->lock);
	*ret = shot;
	return 0;
}

int mcs_places_find(struct mcs *s, const struct mcs_key *keys, unsigned n, struct mcs_places **ret, int64_t timeout_ms)
{
	uint64_t deadline = mcs_deadline(s, timeout_ms);
	struct mcs_backend *b = mcs_backend_get(s);
	struct mcs_places *p;
	struct shot *shot;
	int r = mcs_check_fork(s);

	if (r < 0)
		return r;
	p = places_new(s, keys, n);
	if (!p)
		return -ENOMEM;
	do
		r = places_look(p, b, &shot, deadline);
	while (mcs_backend_replace(s, &b, r));
	if (r < 0) {
		mcs_places_free(p);
		return r;
	}
	places_unref(p, shot);
	*ret = p;
	return 0;
}

/* Read the items; those of unknown keys get -MC_EPARAM. */
static int places_get(struct mcs_places *p, struct shot *shot, struct mcs_get_item *items, unsigned n,
		      uint64_t deadline)
{
	struct mcs_get_item *some = calloc((size_t)n + 1, sizeof(*some));
	unsigned *which = calloc((size_t)n + 1, sizeof(*which)), k = 0;
	const struct mcs_key *key = NULL;
	int r = 0;

	for (unsigned i = 0; i < n && (!some || !which); i++)
		items[i].result = r = -ENOMEM;
	for (unsigned i = 0; i < n && r == 0; i++) {
		/* Parts of one object are mostly neighbours. */
		if (!key || places_compare(key, &items[i].key))
			key = bsearch(&items[i].key, p->key, p->n, sizeof(*key), places_compare);
		items[i].result = key ? -MC_ERPC : -MC_EPARAM;
		if (!key)
			continue;
		which[k] = (unsigned)(key - p->key);
		some[k++] = items[i];
	}
	if (k)
		r = shot->found->backend->ops->get_found(shot->found, which, some, k, deadline);
	k = 0;
	for (unsigned i = 0; i < n && some && which; i++)
		if (items[i].result == -MC_ERPC)
			items[i].result = some[k++].result;
	free(some);
	free(which);
	return r;
}

int mcs_places_read(struct mcs *s, struct mcs_places *p, struct mcs_get_item *items, unsigned n, int64_t timeout_ms)
{
	uint64_t deadline = mcs_deadline(s, timeout_ms);
	struct mcs_backend *b = mcs_backend_get(s);
	struct shot *shot = NULL;
	int r = mcs_check_fork(s), ok = 0;

	if (r == 0 && s != p->store)
		r = mc_fail(-MC_EPARAM, "the places belong to another handle");
	if (r == 0)
		shot = places_fresh(p, b);
	while (r == 0 && !shot) {
		r = places_look(p, b, &shot, deadline);
		if (mcs_backend_replace(s, &b, r))
			r = 0;
	}
	for (unsigned i = 0; i < n; i++)
		items[i].result = r;
	if (r == 0)
		r = places_get(p, shot, items, n, deadline);
	if (shot)
		places_unref(p, shot);
	for (unsigned i = 0; i < n; i++)
		ok += items[i].result >= 0;
	return r < 0 && !ok ? r : ok;
}

void mcs_places_free(struct mcs_places *p)
{
	if (!p)
		return;
	if (p->shot) {
		free(p->shot->found);
		free(p->shot);
	}
	mc_mutex_destroy(&p->lock);
	free(p);
}
