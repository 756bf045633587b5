/* SPDX-License-Identifier: Apache-2.0
 * backlog.c - the queue of objects that wait to be copied. */
#include <config.h>

#include "master/space/backlog.h"

#include <stdlib.h>

#define CAP_MIN 64u

static bool backlog_enlarge(struct mcm_backlog *b, unsigned max)
{
	unsigned cap = b->cap ? 2 * b->cap : CAP_MIN;
	struct mcm_backlog_entry *ring;

	if (cap > max)
		cap = max;
	if (cap <= b->n)
		return false;
	ring = malloc(cap * sizeof(*ring));
	if (!ring)
		return false;
	for (unsigned i = 0; i < b->n; i++)
		ring[i] = b->ring[(b->head + i) % b->cap];
	free(b->ring);
	b->ring = ring;
	b->cap = cap;
	b->head = 0;
	return true;
}

bool mcm_backlog_push(struct mcm_backlog *b, unsigned max, const struct mcm_backlog_entry *e)
{
	if (b->n == b->cap && !backlog_enlarge(b, max))
		return false;
	b->ring[(b->head + b->n++) % b->cap] = *e;
	return true;
}

bool mcm_backlog_push_front(struct mcm_backlog *b, unsigned max, const struct mcm_backlog_entry *e)
{
	if (b->n == b->cap && !backlog_enlarge(b, max))
		return false;
	b->head = (b->head + b->cap - 1) % b->cap;
	b->ring[b->head] = *e;
	b->n++;
	b->urgent++;
	return true;
}

bool mcm_backlog_pop(struct mcm_backlog *b, struct mcm_backlog_entry *ret)
{
	if (!b->n)
		return false;
	*ret = b->ring[b->head];
	b->head = (b->head + 1) % b->cap;
	b->n--;
	b->urgent -= b->urgent > 0;
	return true;
}

unsigned mcm_backlog_clear(struct mcm_backlog *b)
{
	unsigned n = b->n;

	free(b->ring);
	*b = (struct mcm_backlog){ .ring = NULL };
	return n;
}
