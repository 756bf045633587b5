/* SPDX-License-Identifier: Apache-2.0
 * evict_learn.c - the policy `learn`: of a few candidates the one is evicted that is least likely to be used again
 * for the memory that it occupies (learn/model.h).
 *
 * Candidates are objects that have no other behind them in a chain, because a block without the one before it is of
 * no use to an engine.  They are on a list, from whose head a few are looked at for each victim and moved to its
 * tail; so all are looked at in turn, in an order in which neighbours are mostly near each other in memory too.  The
 * best ones are remembered, and when a victim leaves, the object before it is a candidate next.  So a conversation is
 * mostly evicted from its end, without a search.  An object that has another behind it is moved to a second list when
 * it is looked at, and comes back when it is a candidate again.
 *
 * While LRU has more hits on the sampled keys (learn/sample.h), the candidate used longest ago is evicted instead. */
#include <config.h>

#include "common/list.h"
#include "master/learn/learn.h"
#include "master/space/evict_lists.h"
#include "master/space/segment.h"

#define INNER MCM_LIST_CLASS	/* it is on the list of objects that have another behind them */
/* Candidates that are added to the remembered ones per victim, and objects that are looked at for them.  In a small
 * segment all of them are in the processor's cache. */
#define DRAWS_SMALL 8u
#define DRAWS_LARGE 2u
#define DRAWS_REST 4u		/* in a large one, there is a draw per that many victims while enough are remembered */
#define SMALL 4096u		/* candidates */
#define DRAWS_MAX 16u
#define INNER_SHARE 8u		/* an object with others behind it is looked at per call, and per that many victims */
#define BEST 16u
#define LAST_STEPS 32		/* for objects that are evicted because there is no other */

/* A remembered candidate. */
struct best {
	uint32_t range;
	float value;		/* when it was looked at last */
	bool last;		/* the only object behind it is a victim of this call */
};

struct learn {
	struct mcm_lists lists;
	uint32_t head, inner;
	struct mcm_learn *learn;
	uint16_t segment;
	struct best best[BEST + 1];
	unsigned n_best, turn;
	uint64_t fruitless;		/* objects looked at since the last victim */
	bool by_age;		/* the values are those of LRU */
	bool young_too;		/* there is nothing else to evict */
};

static void *learn_shared(struct mcm_learn *learn)
{
	return learn;
}

static void learn_requeue(struct mcm_lists *l, const struct mcm_evict_view *v, uint32_t range, bool newest)
{
	struct learn *s = (struct learn *)l;
	struct mcm_range *n = mcm_range(v->a, range);
	bool inner = mcm_learn_inner(s->learn, n->owner);

	(void)newest;
	n->policy = inner ? n->policy | INNER : n->policy & ~INNER;
	mcm_list_tail(l, v->a, inner ? s->inner : s->head, range);
}

static int learn_init(void *state, void *shared, struct mcm_alloc *a, uint32_t lease_ticks)
{
	struct learn *s = state;
	int r;

	s->learn = shared;
	s->segment = mc_container_of(a, struct mcm_segment, alloc)->index;
	r = mcm_leaves_cover(s->learn, s->segment);
	if (r == 0)
		r = mcm_lists_init(&s->lists, a, lease_ticks, learn_requeue);
	if (r == 0)
		r = mcm_list_new(a, &s->head);
	return r < 0 ? r : mcm_list_new(a, &s->inner);
}

static void learn_remove(void *state, const struct mcm_evict_view *v, uint32_t range)
{
	mcm_lists_del(state, v->a, range);
}

/* ---- candidates ---- */

static bool is_listed(const struct mcm_evict_view *v, uint32_t range)
{
	uint32_t used = MCM_RANGE_USED | MCM_RANGE_LISTED;

	return (mcm_range(v->a, range)->flags & used) == used;
}

static uint32_t owner_of(const struct mcm_evict_view *v, uint32_t range)
{
	return mcm_range(v->a, range)->owner;
}

static float value_of(const struct learn *s, const struct mcm_evict_view *v, uint32_t range)
{
	uint64_t granules = mcm_range_granules(v->a, mcm_range(v->a, range));

	return mcm_learn_value(s->learn, owner_of(v, range), granules, s->by_age);
}

static void best_remember(struct learn *s, const struct mcm_evict_view *v, uint32_t range, bool last)
{
	for (unsigned i = 0; i < s->n_best; i++)
		if (s->best[i].range == range)
			return;
	if (s->n_best <= BEST)
		s->best[s->n_best++] = (struct best){ range, value_of(s, v, range), last };
}

/* The range of an object in this segment, if it is on a list; 0: none.  The object may change at any time. */
static uint32_t range_of(const struct learn *s, const struct mcm_evict_view *v, uint32_t slot)
{
	const struct mcm_object *o = mcm_object(v->ix, slot);
	uint32_t range = mcm_load_relaxed(&o->range);

	if (!range || range >= v->a->slab.next || mcm_load_relaxed(&o->segment) != s->segment ||
	    !is_listed(v, range) || owner_of(v, range) != slot)
		return 0;
	return range;
}

/* Move it between the lists of candidates and inner objects, unless it is on one of leases or soft pins. */
static void set_inner(struct learn *s, const struct mcm_evict_view *v, uint32_t range, bool inner)
{
	struct mcm_range *n = mcm_range(v->a, range);

	if (!(n->policy & INNER) == !inner)
		return;
	if (n->policy & (MCM_LIST_WHEEL | MCM_LIST_SOFT | MCM_LIST_RECENT))
		return;
	mcm_lists_del(&s->lists, v->a, range);
	n->policy ^= INNER;
	mcm_list_tail(&s->lists, v->a, inner ? s->inner : s->head, range);
}

/* The object before it is no candidate any more; its records are in the cache now. */
static void learn_insert(void *state, const struct mcm_evict_view *v, uint32_t range, bool fresh)
{
	struct learn *s = state;
	uint32_t before = fresh ? mcm_learn_before(s->learn, owner_of(v, range)) : 0;
	uint32_t inner = before ? range_of(s, v, before) : 0;

	if (inner)
		set_inner(s, v, inner, true);
	mcm_lists_insert(&s->lists, v, range, fresh);
}

/* Objects that have no other behind them any more. */
static void leaves_take(struct learn *s, const struct mcm_evict_view *v)
{
	uint32_t slot, range;

	while ((slot = mcm_leaves_take(s->learn, s->segment))) {
		range = range_of(s, v, slot);
		if (!range)
			continue;
		set_inner(s, v, range, false);
		best_remember(s, v, range, false);
	}
}

static bool may_evict(const struct learn *s, const struct mcm_evict_view *v, unsigned level, uint32_t range)
{
	const struct mcm_object *o = mcm_evict_owner(v, range);

	if (!s->young_too && mcm_learn_young(s->learn, owner_of(v, range)))
		return false;
	if (mcm_evict_owner_state(v, o) > MCM_OWNER_TOUCHED || mcm_evict_soft(v->ix, o, v->now))
		return false;
	return !(level & MCM_EVICT_KEEP_RECENT) || !mcm_evict_recent(v, o);
}

/* Look at the next objects of the list. */
static void best_draw(struct mcm_selection *h, struct learn *s, const struct mcm_evict_view *v)
{
	unsigned good = 0, draws = s->lists.count[0] < SMALL ? DRAWS_SMALL : DRAWS_LARGE;
	uint32_t id;

	if (draws == DRAWS_LARGE && s->n_best >= BEST / 2 && ++s->turn % DRAWS_REST)
		return;
	for (unsigned i = 0; i < DRAWS_MAX && good < draws && s->n_best <= BEST; i++) {
		id = mcm_selection_next(h, &s->lists, v, s->head);
		if (!id)
			return;
		if (mcm_learn_inner(s->learn, owner_of(v, id))) {
			set_inner(s, v, id, true);
			continue;
		}
		mcm_lists_del(&s->lists, v->a, id);
		mcm_list_tail(&s->lists, v->a, s->head, id);
		best_remember(s, v, id, false);
		good++;
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

/* The lower value comes first.  If values are equal, as in a new pool: fewer reads, then the older object. */
static bool comes_first(const struct learn *s, const struct mcm_evict_view *v, unsigned a, unsigned b)
{
	const struct mcm_object *oa, *ob;
	unsigned ra, rb;

	if (s->best[a].value < s->best[b].value || s->best[a].value > s->best[b].value)
		return s->best[a].value < s->best[b].value;
	ra = mcm_evict_reads(v, s->best[a].range);
	rb = mcm_evict_reads(v, s->best[b].range);
	oa = mcm_evict_owner(v, s->best[a].range);
	ob = mcm_evict_owner(v, s->best[b].range);
	return ra < rb || (ra == rb && mcm_load_relaxed(&oa->generation) < mcm_load_relaxed(&ob->generation));
}

/* Find the lowest value, of those that may be evicted, and the highest; BEST + 1: there is none. */
static void best_ends(const struct learn *s, const struct mcm_evict_view *v, unsigned level, unsigned *low,
		      unsigned *high)
{
	*low = *high = BEST + 1;
	for (unsigned i = 0; i < s->n_best; i++) {
		if (*high > BEST || s->best[i].value >= s->best[*high].value)
			*high = i;
		if ((*low > BEST || comes_first(s, v, i, *low)) && may_evict(s, v, level, s->best[i].range))
			*low = i;
	}
}

/* The candidate of the lowest value, which is remembered no more; 0: none may be evicted. */
static uint32_t best_choose(struct mcm_selection *h, struct learn *s, const struct mcm_evict_view *v, unsigned level)
{
	unsigned low, high;
	uint32_t range;
	float value;

	best_check(s, v);
	best_draw(h, s, v);
	best_ends(s, v, level, &low, &high);
	/* It may have been used since it was looked at. */
	while (low <= BEST && (value = value_of(s, v, s->best[low].range)) > s->best[low].value) {
		s->best[low].value = value;
		best_ends(s, v, level, &low, &high);
	}
	if (low > BEST) {
		/* The next round finds others. */
		s->n_best = 0;
		return 0;
	}
	range = s->best[low].range;
	s->best[low].range = 0;
	/* Room for new candidates. */
	if (s->n_best > BEST - DRAWS_SMALL && high != low)
		s->best[high].range = 0;
	for (unsigned i = s->n_best; i-- > 0;)
		if (!s->best[i].range)
			s->best[i] = s->best[--s->n_best];
	return range;
}

/* Look at the next objects of the second list: one may have lost the last object behind it without notice. */
static void look_at_inner(struct learn *s, const struct mcm_evict_view *v, unsigned looks)
{
	uint32_t id;

	while (looks-- && (id = mcm_range(v->a, s->inner)->list_next) != s->inner) {
		if (!mcm_learn_inner(s->learn, owner_of(v, id))) {
			set_inner(s, v, id, false);
			continue;
		}
		mcm_lists_del(&s->lists, v->a, id);
		mcm_list_tail(&s->lists, v->a, s->inner, id);
	}
}

/* No candidate may be evicted, because their chains go on in other segments, or are being put.  Of the next objects
 * that have others behind them, the one of the lowest value; 0: none. */
static uint32_t choose_inner(struct mcm_selection *h, struct learn *s, const struct mcm_evict_view *v, unsigned level)
{
	uint32_t id, best = 0;
	float value, lowest = 0;

	for (unsigned i = 0; i < DRAWS_MAX && (id = mcm_selection_next(h, &s->lists, v, s->inner)); i++) {
		mcm_lists_del(&s->lists, v->a, id);
		mcm_list_tail(&s->lists, v->a, s->inner, id);
		value = value_of(s, v, id);
		if ((!best || value < lowest) && may_evict(s, v, level, id)) {
			best = id;
			lowest = value;
		}
	}
	return best;
}

static void victim_take(struct mcm_selection *h, struct learn *s, const struct mcm_evict_view *v, uint32_t range)
{
	uint32_t before = mcm_learn_before(s->learn, owner_of(v, range));
	uint32_t next = before && mcm_learn_only_one(s->learn, before) ? range_of(s, v, before) : 0;
	uint32_t later = next ? mcm_learn_before(s->learn, before) : 0;

	/* Mostly the next victims. */
	if (later) {
		mcm_learn_prefetch_object(s->learn, later);
		__builtin_prefetch(mcm_object(v->ix, later));
	}
	mcm_selection_take(h, &s->lists, v, range);
	if (next)
		best_remember(s, v, next, true);
}

/* False: all objects were looked at, in this call and those before, and none may be evicted. */
static bool victim_find(struct mcm_selection *h, struct learn *s, const struct mcm_evict_view *v, unsigned level)
{
	int steps = h->steps;
	uint64_t others;
	uint32_t id;

	id = best_choose(h, s, v, level);
	if (!id)
		id = choose_inner(h, s, v, level);
	if (id) {
		victim_take(h, s, v, id);
		s->fruitless = 0;
		return true;
	}
	s->fruitless += (uint64_t)(steps - h->steps);
	others = s->lists.waiting + (uint64_t)s->lists.softs + s->lists.recents;
	if (h->steps < steps && s->fruitless + others <= s->lists.count[0] + s->lists.count[1])
		return true;
	s->fruitless = 0;
	return false;
}

/* As lru does it, with a second chance for objects that were read. */
static void take_in_order(struct mcm_selection *h, struct learn *s, const struct mcm_evict_view *v, uint32_t head)
{
	uint32_t id;

	while ((id = mcm_selection_next(h, &s->lists, v, head))) {
		if (mcm_evict_touched(v, id) && h->chances-- > 0) {
			mcm_evict_untouch(v, id);
			mcm_lists_del(&s->lists, v->a, id);
			mcm_list_tail(&s->lists, v->a, head, id);
		} else {
			mcm_selection_take(h, &s->lists, v, id);
		}
	}
}

static unsigned learn_victims(void *state, const struct mcm_evict_view *v, unsigned level, uint64_t want,
			      struct mcm_victim *ret, unsigned max, bool *ret_more)
{
	struct learn *s = state;
	struct mcm_selection h = mcm_selection_begin(&s->lists, v, level, want, ret, max);
	bool by_age = !mcm_learn_ahead(s->learn), none = false;
	uint32_t id;

	if (by_age != s->by_age)
		s->n_best = 0;
	s->by_age = by_age;
	for (unsigned i = 0; i < s->n_best; i++)
		s->best[i].last = false;
	leaves_take(s, v);
	s->young_too = false;
	while (!mcm_selection_full(&h) && !none)
		none = !victim_find(&h, s, v, level);
	look_at_inner(s, v, 1 + h.n / INNER_SHARE);
	if (none) {
		/* All were looked at: then those that clients are using now. */
		s->young_too = true;
		h.steps = h.steps < LAST_STEPS ? LAST_STEPS : h.steps;
		while (!mcm_selection_full(&h) && (id = best_choose(&h, s, v, level)))
			victim_take(&h, s, v, id);
		take_in_order(&h, s, v, s->head);
		take_in_order(&h, s, v, s->inner);
	}
	return mcm_selection_end(&h, &s->lists, v, level, ret_more);
}

const struct mcm_evict_ops mcm_evict_learn = {
	.name = "learn",
	.state_size = sizeof(struct learn),
	.shared_new = learn_shared,
	.shared_free = mcm_evict_shared_free,
	.init = learn_init,
	.insert = learn_insert,
	.remove = learn_remove,
	.victims = learn_victims,
	.retry = mcm_lists_retry,
	.evicted = mcm_evict_ignore,
};
