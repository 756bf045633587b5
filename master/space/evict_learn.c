/* SPDX-License-Identifier: Apache-2.0
 * evict_learn.c - the policy `learn`: of a few candidates the one is evicted that is least likely to be used again
 * for the memory that it occupies (learn/model.h).
 *
 * Candidates are objects that have no other behind them in a chain, because a block without the one before it is of
 * no use to an engine.  A segment has them in an array, from which a few are drawn at random for each victim; the
 * best ones of earlier draws are remembered, and when a victim leaves, the object before it is a candidate next.  So
 * a conversation is mostly evicted from its end, without a search.  An entry of the array that is no candidate any
 * more leaves it when it is drawn, or when the array is twice as long as it has to be.
 *
 * All ranges are on the lists of `lru` too.  That order is used while LRU has more hits on the sampled keys
 * (learn/sample.h), and when no candidate may be evicted. */
#include <config.h>

#include <errno.h>

#include "common/list.h"
#include "master/learn/learn.h"
#include "master/space/evict_lists.h"
#include "master/space/segment.h"

#define IN_ARRAY 0x2u		/* bit of mcm_range.policy */
#define DRAWS 4u		/* candidates that are added to the remembered ones per victim, */
#define DRAWS_MAX 16u		/* out of that many entries at most */
#define BEST 16u
#define ARRAY_SHIFT 16
#define ARRAY_SPARE 1024u	/* entries */

/* A remembered candidate; the objects behind it are victims of the same call. */
struct best {
	uint32_t range;
	bool last;		/* the only object behind it is a victim of this call */
};

struct learn {
	struct mcm_lists lists;
	uint32_t head;
	struct mcm_learn *learn;
	uint16_t segment;
	uint64_t random;
	struct best best[BEST + 1];
	unsigned n_best;
	struct mcm_slab array;		/* of ranges */
	uint32_t n;
	bool has_array;
};

static uint32_t *entry(const struct learn *s, uint32_t at)
{
	return mcm_slab_get(&s->array, at, sizeof(uint32_t), ARRAY_SHIFT);
}

static uint32_t random_below(struct learn *s, uint32_t n)
{
	s->random ^= s->random << 13;
	s->random ^= s->random >> 7;
	s->random ^= s->random << 17;
	return (uint32_t)((s->random >> 32) * n >> 32);
}

static void *learn_shared(struct mcm_learn *learn)
{
	return learn;
}

static void learn_requeue(struct mcm_lists *l, const struct mcm_evict_view *v, uint32_t range)
{
	mcm_list_tail(l, v->a, ((struct learn *)l)->head, range);
}

static int learn_init(void *state, void *shared, struct mcm_alloc *a, uint32_t lease_ticks)
{
	struct learn *s = state;
	int r;

	s->learn = shared;
	s->segment = mc_container_of(a, struct mcm_segment, alloc)->index;
	s->random = 88172645463325252ull + s->segment;
	mcm_slab_init(&s->array, sizeof(uint32_t), ARRAY_SHIFT);
	s->has_array = true;
	r = mcm_leaves_cover(s->learn, s->segment);
	if (r == 0)
		r = mcm_lists_init(&s->lists, a, lease_ticks, learn_requeue);
	return r < 0 ? r : mcm_list_new(a, &s->head);
}

static void learn_done(void *state)
{
	struct learn *s = state;

	if (s->has_array)
		mcm_slab_done(&s->array);
}

/* ---- the array ---- */

static bool is_listed(const struct mcm_evict_view *v, uint32_t range)
{
	uint32_t used = MCM_RANGE_USED | MCM_RANGE_LISTED;

	return (mcm_range(v->a, range)->flags & used) == used;
}

/* Drop entries of ranges that were freed or used again; a range may have several entries. */
static void array_compact(struct learn *s, const struct mcm_evict_view *v)
{
	uint32_t n = 0, range;

	for (uint32_t i = 0; i < s->n; i++) {
		range = *entry(s, i);
		if (!is_listed(v, range) || !(mcm_range(v->a, range)->policy & IN_ARRAY))
			continue;
		mcm_range(v->a, range)->policy &= ~IN_ARRAY;
		*entry(s, n++) = range;
	}
	s->n = n;
	for (uint32_t i = 0; i < n; i++)
		mcm_range(v->a, *entry(s, i))->policy |= IN_ARRAY;
}

static void array_add(struct learn *s, const struct mcm_evict_view *v, uint32_t range)
{
	if (mcm_range(v->a, range)->policy & IN_ARRAY)
		return;
	if (s->n > 2 * (s->lists.count[0] + s->lists.count[1]) + ARRAY_SPARE)
		array_compact(s, v);
	/* Without memory the object is found through the lists. */
	if (mcm_slab_cover(&s->array, s->n) < 0)
		return;
	*entry(s, s->n++) = range;
	mcm_range(v->a, range)->policy |= IN_ARRAY;
}

static void array_drop(struct learn *s, const struct mcm_evict_view *v, uint32_t at)
{
	uint32_t range = *entry(s, at);

	if (is_listed(v, range))
		mcm_range(v->a, range)->policy &= ~IN_ARRAY;
	*entry(s, at) = *entry(s, --s->n);
}

static void learn_insert(void *state, const struct mcm_evict_view *v, uint32_t range, bool fresh)
{
	struct learn *s = state;

	(void)fresh;
	mcm_lists_insert(&s->lists, v, range);
	array_add(s, v, range);
}

static void learn_remove(void *state, const struct mcm_evict_view *v, uint32_t range)
{
	mcm_lists_del(state, v->a, range);
}

/* ---- candidates ---- */

static uint32_t owner_of(const struct mcm_evict_view *v, uint32_t range)
{
	return mcm_range(v->a, range)->owner;
}

static void remember(struct learn *s, uint32_t range, bool last)
{
	for (unsigned i = 0; i < s->n_best; i++)
		if (s->best[i].range == range)
			return;
	if (s->n_best <= BEST)
		s->best[s->n_best++] = (struct best){ range, last };
}

/* The range of an object in this segment, if it may be evicted; 0: none.  The object may change at any time. */
static uint32_t range_of(const struct learn *s, const struct mcm_evict_view *v, uint32_t slot)
{
	const struct mcm_object *o = mcm_object(v->ix, slot);
	uint32_t range = mcm_load_relaxed(&o->range);

	if (!range || range >= v->a->slab.next || mcm_load_relaxed(&o->segment) != s->segment ||
	    !is_listed(v, range) || owner_of(v, range) != slot)
		return 0;
	return range;
}

/* Objects that have no other behind them any more. */
static void leaves_take(struct learn *s, const struct mcm_evict_view *v)
{
	uint32_t slot, range;

	while ((slot = mcm_leaves_take(s->learn, s->segment))) {
		range = range_of(s, v, slot);
		if (!range)
			continue;
		array_add(s, v, range);
		remember(s, range, false);
	}
}

static bool may_evict(const struct mcm_evict_view *v, unsigned level, uint32_t range)
{
	const struct mcm_object *o = mcm_evict_owner(v, range);

	if (mcm_evict_owner_state(v, o) > MCM_OWNER_TOUCHED || mcm_evict_soft(v->ix, o, v->now))
		return false;
	return !(level & MCM_EVICT_KEEP_RECENT) || !mcm_evict_recent(v, o);
}

static void draw(struct learn *s, const struct mcm_evict_view *v)
{
	uint32_t at[DRAWS_MAX];
	unsigned good = 0;

	for (unsigned i = 0; i < DRAWS_MAX && good < DRAWS && s->n && s->n_best <= BEST; i++) {
		/* The cache misses of the first draws overlap. */
		for (unsigned k = 0; i == 0 && k < DRAWS; k++) {
			at[k] = random_below(s, s->n);
			__builtin_prefetch(mcm_range(v->a, *entry(s, at[k])));
		}
		if (i >= DRAWS)
			at[i] = random_below(s, s->n);
		else if (at[i] >= s->n)
			continue;
		if (is_listed(v, *entry(s, at[i])) && !mcm_learn_inner(s->learn, owner_of(v, *entry(s, at[i])))) {
			remember(s, *entry(s, at[i]), false);
			good++;
		} else {
			array_drop(s, v, at[i]);
		}
	}
}

/* Forget those that are no candidates any more. */
static void best_check(struct learn *s, const struct mcm_evict_view *v)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->n_best; i++)
		if (is_listed(v, s->best[i].range) &&
		    (s->best[i].last || !mcm_learn_inner(s->learn, owner_of(v, s->best[i].range))))
			s->best[n++] = s->best[i];
	s->n_best = n;
}

/* The candidate of the lowest value, which is remembered no more; 0: none may be evicted. */
static uint32_t choose(struct learn *s, const struct mcm_evict_view *v, unsigned level)
{
	float value[BEST + 1], lowest = 0, highest = 0;
	unsigned best = BEST + 1, worst = 0;
	uint32_t range;

	best_check(s, v);
	draw(s, v);
	for (unsigned i = 0; i < s->n_best; i++) {
		range = s->best[i].range;
		value[i] = mcm_learn_value(s->learn, owner_of(v, range), mcm_range_granules(v->a, mcm_range(v->a, range)));
		if (value[i] >= highest) {
			highest = value[i];
			worst = i;
		}
		if ((best > BEST || value[i] < lowest) && may_evict(v, level, range)) {
			lowest = value[i];
			best = i;
		}
	}
	if (best > BEST) {
		/* The next call finds others. */
		s->n_best = 0;
		return 0;
	}
	range = s->best[best].range;
	s->best[best].range = 0;
	/* Room for new candidates. */
	if (s->n_best > BEST - DRAWS && worst != best)
		s->best[worst].range = 0;
	for (unsigned i = s->n_best; i-- > 0;)
		if (!s->best[i].range)
			s->best[i] = s->best[--s->n_best];
	return range;
}

static void take(struct mcm_selection *h, struct learn *s, const struct mcm_evict_view *v, uint32_t range)
{
	uint32_t before = mcm_learn_before(s->learn, owner_of(v, range));
	uint32_t next = before && mcm_learn_only_one(s->learn, before) ? range_of(s, v, before) : 0;

	mcm_selection_take(h, &s->lists, v, range);
	if (next)
		remember(s, next, true);
}

static unsigned learn_victims(void *state, const struct mcm_evict_view *v, unsigned level, uint64_t want,
			      struct mcm_victim *ret, unsigned max, bool *ret_more)
{
	struct learn *s = state;
	struct mcm_selection h = mcm_selection_begin(&s->lists, v, level, want, ret, max);
	uint32_t id;

	if (mcm_learn_ahead(s->learn)) {
		for (unsigned i = 0; i < s->n_best; i++)
			s->best[i].last = false;
		leaves_take(s, v);
		while (!mcm_selection_full(&h) && (id = choose(s, v, level)))
			take(&h, s, v, id);
	}
	while ((id = mcm_selection_next(&h, &s->lists, v, s->head))) {
		if (mcm_evict_touched(v, id) && h.chances-- > 0) {
			mcm_evict_untouch(v, id);
			mcm_lists_del(&s->lists, v->a, id);
			mcm_list_tail(&s->lists, v->a, s->head, id);
		} else {
			mcm_selection_take(&h, &s->lists, v, id);
		}
	}
	return mcm_selection_end(&h, &s->lists, v, level, ret_more);
}

const struct mcm_evict_ops mcm_evict_learn = {
	.name = "learn",
	.state_size = sizeof(struct learn),
	.shared_new = learn_shared,
	.shared_free = mcm_evict_shared_free,
	.init = learn_init,
	.done = learn_done,
	.insert = learn_insert,
	.remove = learn_remove,
	.victims = learn_victims,
	.evicted = mcm_evict_ignore,
};
