/* SPDX-License-Identifier: Apache-2.0
 * space.c - first-fit allocation. */
#include <config.h>

#include "common/space.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int mc_space_init(struct mc_space *s, uint64_t size, uint64_t grain)
{
	*s = (struct mc_space){ .grain = grain, .size = size & ~(grain - 1), .cap = 16 };
	s->free = calloc(s->cap, sizeof(*s->free));
	if (!s->free)
		return -ENOMEM;
	if (s->size)
		s->free[s->n++] = (struct mc_extent){ 0, s->size };
	return 0;
}

void mc_space_done(struct mc_space *s)
{
	free(s->free);
	s->free = NULL;
}

static uint64_t space_rounded(const struct mc_space *s, uint64_t len)
{
	return len ? (len + s->grain - 1) & ~(s->grain - 1) : s->grain;
}

/* Freeing must not fail, so the array always has space for one more extent than allocations. */
static int space_reserve(struct mc_space *s)
{
	unsigned want = s->taken + 3;
	struct mc_extent *more;

	if (want <= s->cap)
		return 0;
	more = realloc(s->free, 2 * (size_t)want * sizeof(*more));
	if (!more)
		return -ENOMEM;
	s->free = more;
	s->cap = 2 * want;
	return 0;
}

int mc_space_take(struct mc_space *s, uint64_t len, uint64_t *ret_at)
{
	uint64_t need = space_rounded(s, len);

	if (need < len || need > s->size - s->used)
		return -ENOBUFS;
	if (space_reserve(s) < 0)
		return -ENOMEM;
	for (unsigned i = 0; i < s->n; i++) {
		struct mc_extent *e = &s->free[i];

		if (e->len < need)
			continue;
		*ret_at = e->at;
		e->at += need;
		e->len -= need;
		if (!e->len)
			memmove(e, e + 1, (--s->n - i) * sizeof(*e));
		s->used += need;
		s->taken++;
		return 0;
	}
	return -ENOBUFS;
}

/* Index of the first free extent behind @at. */
static unsigned space_next_free(const struct mc_space *s, uint64_t at)
{
	unsigned lo = 0, hi = s->n;

	while (lo < hi) {
		unsigned mid = lo + (hi - lo) / 2;

		if (s->free[mid].at > at)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

void mc_space_give(struct mc_space *s, uint64_t at, uint64_t len)
{
	uint64_t size = space_rounded(s, len);
	unsigned i = space_next_free(s, at);
	struct mc_extent *next = i < s->n ? &s->free[i] : NULL;
	struct mc_extent *prev = i ? &s->free[i - 1] : NULL;

	s->used -= size;
	s->taken--;
	if (next && at + size == next->at) {
		next->at = at;
		next->len += size;
		if (prev && prev->at + prev->len == at) {
			prev->len += next->len;
			memmove(next, next + 1, (--s->n - i) * sizeof(*next));
		}
	} else if (prev && prev->at + prev->len == at) {
		prev->len += size;
	} else {
		memmove(&s->free[i + 1], &s->free[i], (s->n++ - i) * sizeof(*s->free));
		s->free[i] = (struct mc_extent){ at, size };
	}
}
