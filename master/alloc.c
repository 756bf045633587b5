/* SPDX-License-Identifier: Apache-2.0
 * alloc.c - bins, bitmaps and nodes.
 *
 * Bin (top, sub) holds the free ranges whose length has the same highest bit and the same five bits
 * below it, so lengths in a bin differ by 3 % at the most.  A request looks at a few ranges of its own
 * bin first: that is where ranges of exactly its length lie, which makes equal sizes recycle without
 * loss and without rounding lengths up to a bin's.  Every range of a higher bin is long enough. */
#include <config.h>

#include "master/alloc.h"

#include <errno.h>
#include <string.h>

#include "common/err.h"

#define NODES_SHIFT 7		/* 3 KiB of nodes at first */
#define OWN_BIN_TRIES 4
#define UPPER_BIN_TRIES 4

static void bin_of(uint64_t granules, unsigned *ret_top, unsigned *ret_sub)
{
	unsigned high;

	if (granules < MCM_BIN_SUB) {
		*ret_top = 0;
		*ret_sub = (unsigned)granules;
		return;
	}
	high = 63 - (unsigned)__builtin_clzll(granules);
	*ret_top = high - MCM_BIN_SUB_SHIFT + 1;
	*ret_sub = (unsigned)(granules >> (high - MCM_BIN_SUB_SHIFT)) & (MCM_BIN_SUB - 1);
}

/* Of a free range. */
static uint64_t free_granules(const struct mcm_node *n)
{
	return (uint64_t)(n->flags >> 1) << 32 | n->owner;
}

static void node_resize(struct mcm_node *n, uint64_t granules)
{
	n->owner = (uint32_t)granules;
	n->flags = (uint8_t)(granules >> 32 << 1);
}

static int node_new(struct mcm_alloc *a, uint64_t at, uint64_t granules, uint32_t *ret)
{
	struct mcm_node *n;
	int r;

	if (a->spare) {
		*ret = a->spare;
		a->spare = mcm_node(a, *ret)->next;
	} else {
		if (a->nodes.next >> MCM_NODE_ID_BITS)
			return -MC_ENOSPACE;
		r = mcm_slab_take(&a->nodes, 1, ret);
		if (r < 0)
			return r;
	}
	n = mcm_node(a, *ret);
	memset(n, 0, sizeof(*n));
	n->at_lo = (uint32_t)at;
	n->at_hi = (uint8_t)(at >> 32);
	node_resize(n, granules);
	return 0;
}

static void node_spare(struct mcm_alloc *a, uint32_t id)
{
	mcm_node(a, id)->next = a->spare;
	a->spare = id;
}

static void bin_add(struct mcm_alloc *a, uint32_t id)
{
	struct mcm_node *n = mcm_node(a, id);
	unsigned top, sub;
	uint32_t *head;

	bin_of(free_granules(n), &top, &sub);
	head = &a->bin[top][sub];
	n->list_prev = 0;
	n->list_next = *head;
	if (*head)
		mcm_node(a, *head)->list_prev = id;
	*head = id;
	a->sub_map[top] |= 1u << sub;
	a->top_map |= 1ull << top;
}

static void bin_del(struct mcm_alloc *a, uint32_t id)
{
	struct mcm_node *n = mcm_node(a, id);
	unsigned top, sub;

	if (n->list_next)
		mcm_node(a, n->list_next)->list_prev = n->list_prev;
	if (n->list_prev) {
		mcm_node(a, n->list_prev)->list_next = n->list_next;
	} else {
		bin_of(free_granules(n), &top, &sub);
		a->bin[top][sub] = n->list_next;
		if (!n->list_next) {
			a->sub_map[top] &= ~(1u << sub);
			if (!a->sub_map[top])
				a->top_map &= ~(1ull << top);
		}
	}
	n->list_prev = n->list_next = 0;
}

int mcm_alloc_init(struct mcm_alloc *a, uint64_t size)
{
	int r;

	memset(a, 0, sizeof(*a));
	if (size < MCM_GRANULE || size > MCM_ALLOC_MAX)
		return mc_fail(-MC_EPARAM, "segment of %llu bytes", (unsigned long long)size);
	mcm_slab_init(&a->nodes, sizeof(struct mcm_node), NODES_SHIFT);
	a->granules = size >> MCM_GRANULE_SHIFT;
	r = node_new(a, 0, a->granules, &a->first);
	if (r == 0)
		r = node_new(a, a->granules, 0, &a->end);
	if (r < 0) {
		mcm_alloc_done(a);
		return r;
	}
	mcm_node(a, a->end)->flags = MCM_NODE_USED;
	mcm_node(a, a->end)->owner = 0;
	mcm_node(a, a->end)->prev = a->first;
	mcm_node(a, a->first)->next = a->end;
	a->hand = a->first;
	bin_add(a, a->first);
	return 0;
}

void mcm_alloc_done(struct mcm_alloc *a)
{
	if (!a->nodes.elem)
		return;
	mcm_slab_done(&a->nodes);
	memset(a, 0, sizeof(*a));
}

int mcm_alloc_grow(struct mcm_alloc *a, uint64_t size)
{
	uint64_t more, granules = size >> MCM_GRANULE_SHIFT;
	struct mcm_node *end = mcm_node(a, a->end);
	uint32_t last = end->prev, id;
	int r;

	if (granules < a->granules || size > MCM_ALLOC_MAX)
		return mc_fail(-MC_EPARAM, "a segment of %llu bytes cannot have %llu",
			       (unsigned long long)a->granules << MCM_GRANULE_SHIFT,
			       (unsigned long long)size);
	more = granules - a->granules;
	if (!more)
		return 0;
	if (mcm_node(a, last)->flags & MCM_NODE_USED) {
		r = node_new(a, a->granules, more, &id);
		if (r < 0)
			return r;
		mcm_node(a, id)->prev = last;
		mcm_node(a, id)->next = a->end;
		mcm_node(a, last)->next = id;
		end->prev = id;
	} else {
		id = last;
		bin_del(a, id);
		node_resize(mcm_node(a, id), free_granules(mcm_node(a, id)) + more);
	}
	bin_add(a, id);
	a->granules = granules;
	end->at_lo = (uint32_t)granules;
	end->at_hi = (uint8_t)(granules >> 32);
	return 0;
}

uint64_t mcm_alloc_round(uint64_t len)
{
	uint64_t g = (len + MCM_GRANULE - 1) >> MCM_GRANULE_SHIFT, pages;

	if (!g)
		g = 1;
	if (g < MCM_PAGE_GRANULES)
		return g;
	/* A tail that is small beside the object is not worth a node of its own. */
	pages = (g + MCM_PAGE_GRANULES - 1) & ~(uint64_t)(MCM_PAGE_GRANULES - 1);
	return (pages - g) * 64 <= g ? pages : g;
}

static uint64_t start_in(uint64_t at, uint64_t want)
{
	if (want < MCM_PAGE_GRANULES)
		return at;
	return (at + MCM_PAGE_GRANULES - 1) & ~(uint64_t)(MCM_PAGE_GRANULES - 1);
}

static bool fits(uint64_t at, uint64_t granules, uint64_t want)
{
	return start_in(at, want) + want <= at + granules;
}

bool mcm_alloc_fits(uint64_t at, uint64_t granules, uint64_t len)
{
	return fits(at, granules, mcm_alloc_round(len));
}

/* First non-empty bin at or above (top, sub). */
static bool bin_next(const struct mcm_alloc *a, unsigned *top, unsigned *sub)
{
	uint32_t subs = 0;
	uint64_t tops;

	if (*top >= MCM_BIN_TOP)
		return false;
	if (*sub < MCM_BIN_SUB)
		subs = a->sub_map[*top] & ~0u << *sub;
	if (!subs) {
		tops = a->top_map & ~1ull << *top;
		if (!tops)
			return false;
		*top = (unsigned)__builtin_ctzll(tops);
		subs = a->sub_map[*top];
	}
	*sub = (unsigned)__builtin_ctz(subs);
	return true;
}

/* Look at up to @tries ranges of a bin. */
static uint32_t bin_try(const struct mcm_alloc *a, uint32_t id, unsigned tries, uint64_t want)
{
	for (; id && tries; tries--) {
		const struct mcm_node *n = mcm_node(a, id);

		if (fits(mcm_node_at(n), free_granules(n), want))
			return id;
		id = n->list_next;
	}
	return 0;
}

/* A free range for @want granules, 0 when none is found. */
static uint32_t find(const struct mcm_alloc *a, uint64_t want)
{
	unsigned top, sub, i;
	uint64_t sure = want;
	uint32_t id;

	bin_of(want, &top, &sub);
	id = bin_try(a, a->bin[top][sub], OWN_BIN_TRIES, want);
	for (i = 0; !id && i < UPPER_BIN_TRIES; i++) {
		sub++;
		if (!bin_next(a, &top, &sub))
			break;
		id = bin_try(a, a->bin[top][sub], 1, want);
	}
	if (id)
		return id;
	/* Long enough whatever its alignment: the first range of any bin above this length. */
	if (want >= MCM_PAGE_GRANULES)
		sure += MCM_PAGE_GRANULES - 1;
	bin_of(sure, &top, &sub);
	sub++;
	if (bin_next(a, &top, &sub))
		return a->bin[top][sub];
	/* The evictor leaves the hand on the run that it has emptied for this request. */
	if (!(mcm_node(a, a->hand)->flags & MCM_NODE_USED))
		return bin_try(a, a->hand, 1, want);
	return 0;
}

/* A free range in its bin gets another length; it stays where it is in the list while its bin is the
 * same, which saves the look at its neighbours there. */
static void bin_resize(struct mcm_alloc *a, uint32_t id, uint64_t granules)
{
	struct mcm_node *n = mcm_node(a, id);
	unsigned top, sub, new_top, new_sub;

	bin_of(free_granules(n), &top, &sub);
	bin_of(granules, &new_top, &new_sub);
	if (top == new_top && sub == new_sub) {
		node_resize(n, granules);
		return;
	}
	bin_del(a, id);
	node_resize(n, granules);
	bin_add(a, id);
}

static void node_move(struct mcm_node *n, uint64_t at)
{
	n->at_lo = (uint32_t)at;
	n->at_hi = (uint8_t)(at >> 32);
}

/* @id, a new node, between two neighbours; @prev may be 0. */
static void chain_between(struct mcm_alloc *a, uint32_t prev, uint32_t id, uint32_t next)
{
	struct mcm_node *n = mcm_node(a, id);

	n->prev = prev;
	n->next = next;
	mcm_node(a, next)->prev = id;
	if (prev)
		mcm_node(a, prev)->next = id;
	else
		a->first = id;
}

/* The range @id is part of @into from now on. */
static void chain_drop(struct mcm_alloc *a, uint32_t id, uint32_t into)
{
	const struct mcm_node *n = mcm_node(a, id);

	mcm_node(a, n->next)->prev = n->prev;
	if (n->prev)
		mcm_node(a, n->prev)->next = n->next;
	else
		a->first = n->next;
	if (a->hand == id)
		a->hand = into;
	node_spare(a, id);
}

static void node_use(struct mcm_alloc *a, uint32_t id, uint64_t granules)
{
	struct mcm_node *n = mcm_node(a, id);

	n->flags = MCM_NODE_USED;
	n->owner = 0;
	a->used += granules;
	a->ranges++;
}

/* Use [start, start + want) of the free range @id.  The free node goes on as what is left of it. */
static int carve(struct mcm_alloc *a, uint32_t id, uint64_t start, uint64_t want, uint32_t *ret)
{
	struct mcm_node *n = mcm_node(a, id);
	uint64_t at = mcm_node_at(n), end = at + free_granules(n), behind = start + want;
	uint32_t used, rest = 0;
	int r;

	if (start == at && behind == end) {
		bin_del(a, id);
		node_use(a, id, want);
		*ret = id;
		return 0;
	}
	r = node_new(a, start, want, &used);
	if (r == 0 && start > at && behind < end) {
		r = node_new(a, behind, end - behind, &rest);
		if (r < 0)
			node_spare(a, used);
	}
	if (r < 0)
		return r;
	if (start == at) {
		node_move(n, behind);
		bin_resize(a, id, end - behind);
		chain_between(a, n->prev, used, id);
	} else {
		bin_resize(a, id, start - at);
		chain_between(a, id, used, n->next);
	}
	if (rest) {
		chain_between(a, used, rest, mcm_node(a, used)->next);
		bin_add(a, rest);
	}
	node_use(a, used, want);
	*ret = used;
	return 0;
}

int mcm_alloc_take(struct mcm_alloc *a, uint64_t len, uint32_t *ret_node)
{
	uint64_t want = mcm_alloc_round(len);
	uint32_t id;

	if (want > a->granules - a->used)
		return -MC_ENOSPACE;
	id = find(a, want);
	if (!id)
		return -MC_ENOSPACE;
	return carve(a, id, start_in(mcm_node_at(mcm_node(a, id)), want), want, ret_node);
}

int mcm_alloc_take_at(struct mcm_alloc *a, uint64_t at, uint64_t granules, uint32_t *ret_node)
{
	uint32_t id = mcm_node(a, a->end)->prev;
	const struct mcm_node *n = mcm_node(a, id);

	if (!granules || n->flags & MCM_NODE_USED || at < mcm_node_at(n) ||
	    granules > free_granules(n) || at - mcm_node_at(n) > free_granules(n) - granules)
		return mc_fail(-MC_EINTERNAL, "the range at %llu is not free", (unsigned long long)at);
	return carve(a, id, at, granules, ret_node);
}

static bool is_free(const struct mcm_alloc *a, uint32_t id)
{
	return id && !(mcm_node(a, id)->flags & MCM_NODE_USED);
}

void mcm_alloc_give(struct mcm_alloc *a, uint32_t id)
{
	struct mcm_node *n = mcm_node(a, id);
	uint32_t prev = n->prev, next = n->next;
	uint64_t granules;
	bool before, behind;

	/* Both at once: they lie anywhere. */
	__builtin_prefetch(mcm_node(a, prev), 1);
	granules = mcm_node_granules(a, n);
	a->used -= granules;
	a->ranges--;
	node_resize(n, granules);
	before = is_free(a, prev);
	behind = is_free(a, next);
	if (before) {
		if (behind) {
			granules += free_granules(mcm_node(a, next));
			bin_del(a, next);
			chain_drop(a, next, prev);
		}
		chain_drop(a, id, prev);
		bin_resize(a, prev, free_granules(mcm_node(a, prev)) + granules);
	} else if (behind) {
		node_move(mcm_node(a, next), mcm_node_at(n));
		chain_drop(a, id, next);
		bin_resize(a, next, free_granules(mcm_node(a, next)) + granules);
	} else {
		bin_add(a, id);
	}
}

uint32_t mcm_alloc_largest(const struct mcm_alloc *a)
{
	unsigned top, sub, i;
	uint64_t best = 0;
	uint32_t id, ret = 0;

	if (!a->top_map)
		return 0;
	top = 63 - (unsigned)__builtin_clzll(a->top_map);
	sub = 31 - (unsigned)__builtin_clz(a->sub_map[top]);
	id = a->bin[top][sub];
	for (i = 0; id && i < 16; i++, id = mcm_node(a, id)->list_next) {
		uint64_t g = free_granules(mcm_node(a, id));

		if (g > best) {
			best = g;
			ret = id;
		}
	}
	return ret;
}

uint64_t mcm_alloc_largest_free(const struct mcm_alloc *a)
{
	uint32_t id = mcm_alloc_largest(a);
	uint64_t at, g, pad;

	if (!id)
		return 0;
	at = mcm_node_at(mcm_node(a, id));
	g = free_granules(mcm_node(a, id));
	pad = start_in(at, g) - at;
	return (pad < g ? g - pad : g) << MCM_GRANULE_SHIFT;
}
