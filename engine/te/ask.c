/* SPDX-License-Identifier: Apache-2.0
 * ask.c - fetching the descriptors of several segments for one batch, side by side: who does not answer keeps
 * the others waiting no longer than himself. */
#include <config.h>

#include "engine/te/te_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/fault.h"
#include "common/thread.h"

/* Segments that one batch asks for at a time. */
#define SIDE_BY_SIDE 16u

/* Where @segment is, or belongs. */
static unsigned place_of(const struct mce_te_asks *a, segment_id_t segment)
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

int mce_te_asks_add(struct mce_te_asks *a, segment_id_t segment, const struct mce_te_view *than)
{
	unsigned at = place_of(a, segment), cap = a->cap ? a->cap * 2 : 16;
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
	a->list[at] = (struct mce_te_ask){ .segment = segment, .than = than };
	a->n++;
	return 0;
}

static void *ask_main(void *arg)
{
	struct mce_te_asks *a = arg;
	struct mce_te_batch *b = a->b;
	struct mce_te_view *v;
	unsigned i;

	while ((i = __atomic_fetch_add(&a->next, 1, __ATOMIC_RELAXED)) < a->n) {
		struct mce_te_ask *ask = &a->list[i];

		if (mce_te_batch_stopped(b) || mce_te_stopping(b->te))
			break;
		MC_FAULT_POINT("te.ask");
		if (mce_te_view_newer_by(b->te, ask->segment, ask->than, mce_te_deadline(b), &v) == 0 &&
		    mce_te_batch_keep(b, v) == 0)
			ask->view = v;
	}
	return NULL;
}

void mce_te_asks_run(struct mce_te_asks *a)
{
	pthread_t helper[SIDE_BY_SIDE - 1];
	unsigned helpers = 0;

	/* Fewer of them, or none, only take longer. */
	while (helpers < SIDE_BY_SIDE - 1 && helpers + 1 < a->n &&
	       mc_thread_start(&helper[helpers], "mce-te-ask", ask_main, a) == 0)
		helpers++;
	(void)ask_main(a);
	while (helpers > 0)
		pthread_join(helper[--helpers], NULL);
}

struct mce_te_view *mce_te_asks_view(const struct mce_te_asks *a, segment_id_t segment)
{
	unsigned at = place_of(a, segment);

	return at < a->n && a->list[at].segment == segment ? a->list[at].view : NULL;
}

void mce_te_asks_done(struct mce_te_asks *a)
{
	free(a->list);
	a->list = NULL;
	a->n = a->cap = 0;
}
