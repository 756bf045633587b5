/* SPDX-License-Identifier: Apache-2.0
 * ask.c - parallel fetch of several segments' descriptors for one batch: a segment that does not answer
 * does not delay the others. */
#include <config.h>

#include "engine/te/te_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/fault.h"
#include "common/sys/thread.h"

/* Requests of one batch that run at the same time. */
#define PARALLEL_MAX 16u

/* The index of @segment in the list, or the index at which to insert it. */
static unsigned ask_index(const struct mce_te_asks *a, segment_id_t segment)
{
	unsigned lo = 0, hi = a->n;

	while (lo < hi) {
		unsigned mid = lo + (hi - lo) / 2;

		if (a->list[mid].segment < segment)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

int mce_te_asks_add(struct mce_te_asks *a, segment_id_t segment, const struct mce_te_view *known)
{
	unsigned at = ask_index(a, segment), cap = a->cap ? a->cap * 2 : 16;
	struct mce_te_ask *more;

	if (at < a->n && a->list[at].segment == segment)
		return 0;
	if (a->n == a->cap) {
		more = realloc(a->list, cap * sizeof(*more));
		if (!more)
			return -ENOMEM;
		a->list = more;
		a->cap = cap;
	}
	memmove(a->list + at + 1, a->list + at, (a->n - at) * sizeof(a->list[0]));
	a->list[at] = (struct mce_te_ask){ .segment = segment, .known = known, .err = -ECANCELED };
	a->n++;
	return 0;
}

static int ask_one(const struct mce_te_asks *a, struct mce_te_ask *ask)
{
	struct mce_te_batch *b = a->b;
	struct mce_te_view *v;
	int r;

	MC_FAULT_POINT("te.ask");
	if (a->uncached)
		r = mce_te_view_get(b->te, ask->segment, mce_te_deadline(b), &v);
	else
		r = mce_te_view_refetch_by(b->te, ask->segment, ask->known, mce_te_deadline(b), &v);
	if (r == 0)
		r = mce_te_batch_keep(b, v);
	if (r == 0)
		ask->view = v;
	return r;
}

static void *ask_main(void *arg)
{
	struct mce_te_asks *a = arg;
	unsigned i;

	while ((i = __atomic_fetch_add(&a->next, 1, __ATOMIC_RELAXED)) < a->n) {
		if (mce_te_batch_stopped(a->b) || mce_te_stopping(a->b->te))
			break;
		a->list[i].err = ask_one(a, &a->list[i]);
	}
	return NULL;
}

void mce_te_asks_run(struct mce_te_asks *a)
{
	struct mc_thread helper[PARALLEL_MAX - 1];
	unsigned helpers = 0;

	/* If threads cannot be started, the requests only take longer. */
	while (helpers < PARALLEL_MAX - 1 && helpers + 1 < a->n &&
	       mc_thread_start(&helper[helpers], "mce-te-ask", ask_main, a) == 0)
		helpers++;
	(void)ask_main(a);
	while (helpers > 0)
		mc_thread_join(helper[--helpers]);
}

int mce_te_asks_view(const struct mce_te_asks *a, segment_id_t segment, struct mce_te_view **ret)
{
	unsigned at = ask_index(a, segment);

	if (at == a->n || a->list[at].segment != segment)
		return -ENOMEM;
	if (a->list[at].err == 0)
		*ret = a->list[at].view;
	return a->list[at].err;
}

void mce_te_asks_done(struct mce_te_asks *a)
{
	free(a->list);
	a->list = NULL;
	a->n = a->cap = 0;
}
