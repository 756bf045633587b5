/* SPDX-License-Identifier: Apache-2.0
 * segment_view.c - copies of mounted segments' descriptions, for display.
 *
 * Puts wait for a mount, and a mount waits for every reader of the table: so some descriptions are
 * copied under the lock at a time, and printed without it. */
#include <config.h>

#include "master/space/segment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "master/lock_hold.h"

#define LOOKS 256u		/* numbers examined under one lock */

static void view_copy(struct mcm_segment_view *v, const struct mcm_segment *s)
{
	v->id = s->id;
	v->base = s->base;
	v->size = s->size;
	v->used = mcm_load_relaxed(&s->used);
	v->objects = mcm_load_relaxed(&s->objects);
	v->shown = mcm_segment_shown(s);
	memcpy(v->name, s->name, strlen(s->name) + 1);
	memcpy(v->endpoint, s->endpoint, strlen(s->endpoint) + 1);
	memcpy(v->protocol, s->protocol, strlen(s->protocol) + 1);
}

bool mcm_segments_view(struct mcm_segments *ss, unsigned *next, struct mcm_segment_view *v, unsigned *n)
{
	unsigned looks = 0;
	bool more;

	*n = 0;
	mc_rwlock_rdlock(&ss->lock);
	for (; *next < ss->top && *n < MCM_SEGMENT_VIEWS && looks < LOOKS; ++*next, looks++) {
		const struct mcm_segment *s = ss->at[*next];

		/* It is mounted if the live table has it at the index that it says. */
		if (s->live_at < ss->n_live && ss->live[s->live_at] == s->index)
			view_copy(&v[(*n)++], s);
	}
	more = *next < ss->top;
	mc_rwlock_unlock(&ss->lock);
	mcm_lock_held(MCM_HOLD_SEGMENTS, looks);
	return more;
}

static int sums_by_name(const void *a, const void *b)
{
	return strcmp(((const struct mcm_segment_sum *)a)->name, ((const struct mcm_segment_sum *)b)->name);
}

/* Merge the entries of one name. */
static unsigned sums_merge(struct mcm_segment_sum *sum, unsigned n)
{
	unsigned i, to = 0;

	if (n)
		qsort(sum, n, sizeof(*sum), sums_by_name);
	for (i = 1; i < n; i++) {
		if (strcmp(sum[to].name, sum[i].name)) {
			sum[++to] = sum[i];
			continue;
		}
		sum[to].size += sum[i].size;
		sum[to].used += sum[i].used;
		sum[to].objects += sum[i].objects;
	}
	return n ? to + 1 : 0;
}

static struct mcm_segment_sum *sums_reserve(struct mcm_segment_sum **sum, unsigned *room, unsigned n)
{
	unsigned want = 2 * *room > n ? 2 * *room : n;
	struct mcm_segment_sum *p;

	if (n <= *room)
		return *sum;
	p = realloc(*sum, want * sizeof(*p));
	if (!p)
		return NULL;
	*sum = p;
	*room = want;
	return p;
}

int mcm_segments_sums(struct mcm_segments *ss, struct mcm_segment_sum **ret, unsigned *ret_n)
{
	struct mcm_segment_view *v = malloc(MCM_SEGMENT_VIEWS * sizeof(*v));
	unsigned next = 0, got, i, n = 0, room = 0;
	struct mcm_segment_sum *sum = NULL;
	bool more = v;

	while (more) {
		more = mcm_segments_view(ss, &next, v, &got);
		if (got && !sums_reserve(&sum, &room, n + got)) {
			free(v);
			v = NULL;
			break;
		}
		for (i = 0; i < got; i++, n++) {
			sum[n] = (struct mcm_segment_sum){
				.size = v[i].size, .used = v[i].used, .objects = v[i].objects,
			};
			memcpy(sum[n].name, v[i].name, sizeof(sum[n].name));
		}
	}
	if (!v) {
		free(sum);
		return -ENOMEM;
	}
	free(v);
	*ret_n = sums_merge(sum, n);
	*ret = sum;
	return 0;
}
