/* SPDX-License-Identifier: Apache-2.0
 * pinned.c - the objects that a session has pinned. */
#include <config.h>

#include "master/ops/pinned.h"

#include <errno.h>
#include <stdlib.h>

#include "common/err.h"

#define CAP_MIN 64u

void mcm_pinned_done(struct mcm_pinned *p)
{
	free(p->at);
}

static uint32_t pinned_home(const struct mcm_pinned *p, uint32_t slot)
{
	return (uint32_t)(slot * 0x9e3779b97f4a7c15ull >> 32) & (p->cap - 1);
}

/* Where the object is, or else the free place for it. */
static uint32_t pinned_find(const struct mcm_pinned *p, uint32_t slot)
{
	uint32_t i = pinned_home(p, slot);

	while (p->at[i].slot && p->at[i].slot != slot)
		i = (i + 1) & (p->cap - 1);
	return i;
}

int mcm_pinned_reserve(struct mcm_pinned *p)
{
	struct mcm_pinned more = { .cap = p->cap ? 2 * p->cap : CAP_MIN, .count = p->count, .bytes = p->bytes };
	uint32_t i;

	if (2 * (p->count + 1) <= p->cap)
		return 0;
	more.at = calloc(more.cap, sizeof(*more.at));
	if (!more.at)
		return mc_fail(-ENOMEM, "no memory for %u pinned objects", more.cap);
	for (i = 0; i < p->cap; i++)
		if (p->at[i].slot)
			more.at[pinned_find(&more, p->at[i].slot)] = p->at[i];
	free(p->at);
	*p = more;
	return 0;
}

bool mcm_pinned_has(const struct mcm_pinned *p, uint32_t slot)
{
	return p->cap && p->at[pinned_find(p, slot)].slot;
}

void mcm_pinned_add(struct mcm_pinned *p, uint32_t slot, uint64_t bytes)
{
	struct mcm_pinned_object *o = &p->at[pinned_find(p, slot)];

	if (o->pins++)
		return;
	o->slot = slot;
	o->bytes = bytes;
	p->bytes += bytes;
	p->count++;
}

void mcm_pinned_drop(struct mcm_pinned *p, uint32_t slot)
{
	uint32_t hole = pinned_find(p, slot), i = hole, home, mask = p->cap - 1;

	if (--p->at[hole].pins)
		return;
	p->bytes -= p->at[hole].bytes;
	p->count--;
	/* Move an object into the hole if the hole is between its home and its place. */
	for (i = (i + 1) & mask; p->at[i].slot; i = (i + 1) & mask) {
		home = pinned_home(p, p->at[i].slot);
		if (((i - home) & mask) < ((i - hole) & mask))
			continue;
		p->at[hole] = p->at[i];
		hole = i;
	}
	p->at[hole] = (struct mcm_pinned_object){ 0 };
}
