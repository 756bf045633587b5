/* SPDX-License-Identifier: Apache-2.0
 * candidates.c - sets of segments that may have something to evict. */
#include <config.h>

#include "master/space/candidates.h"

#include <stdlib.h>

#include "master/space/evict_policy.h"

#define ALL ((1u << MCM_CANDIDATE_SETS) - 1)

static unsigned set_of(unsigned level)
{
	return (level & (MCM_EVICT_SOFT | MCM_EVICT_LEASED | MCM_EVICT_KEEP_RECENT)) |
	       (level & MCM_EVICT_WAITING ? 8u : 0);
}

/* A recent object is evictable at the levels of this set. */
static bool set_takes_recent(unsigned set)
{
	return !(set & MCM_EVICT_KEEP_RECENT) || set & 8u;
}

/* Zeroed pages that no segment uses cost nothing. */
struct mcm_candidates *mcm_candidates_new(void)
{
	struct mcm_candidates *c = calloc(1, sizeof(*c));

	for (unsigned set = 0; c && set < MCM_CANDIDATE_SETS; set++)
		c->due[set] = MCM_TICK_NEVER;
	return c;
}

void mcm_candidates_free(struct mcm_candidates *c)
{
	free(c);
}

/* ---- one set ---- */

static void member_add(struct mcm_candidates *c, unsigned set, uint32_t segment)
{
	unsigned w = segment / 64;

	__atomic_fetch_or(&c->member[set][w], 1ull << segment % 64, __ATOMIC_SEQ_CST);
	__atomic_fetch_or(&c->any[set][w / 64], 1ull << w % 64, __ATOMIC_SEQ_CST);
}

static void member_remove(struct mcm_candidates *c, unsigned set, uint32_t segment)
{
	uint64_t bit = 1ull << segment % 64, *any;
	unsigned w = segment / 64;

	if (__atomic_and_fetch(&c->member[set][w], ~bit, __ATOMIC_SEQ_CST))
		return;
	any = &c->any[set][w / 64];
	__atomic_fetch_and(any, ~(1ull << w % 64), __ATOMIC_SEQ_CST);
	/* Another segment of the word may have been added in between. */
	if (__atomic_load_n(&c->member[set][w], __ATOMIC_SEQ_CST))
		__atomic_fetch_or(any, 1ull << w % 64, __ATOMIC_SEQ_CST);
}

static void due_lower(struct mcm_candidates *c, unsigned set, uint32_t tick)
{
	uint32_t due = mcm_load_relaxed(&c->due[set]);

	while (tick < due && !__atomic_compare_exchange_n(&c->due[set], &due, tick, false, __ATOMIC_SEQ_CST,
							  __ATOMIC_RELAXED))
		;
}

/* Return to the set at @tick, at the latest. */
static void retry_lower(struct mcm_candidates *c, unsigned set, uint32_t segment, uint32_t tick)
{
	uint32_t *at = &c->retry[set][segment], now = __atomic_load_n(at, __ATOMIC_SEQ_CST);

	while ((!now || tick < now) && !__atomic_compare_exchange_n(at, &now, tick, false, __ATOMIC_SEQ_CST,
								    __ATOMIC_SEQ_CST))
		;
	due_lower(c, set, tick);
}

/* ---- segments ---- */

void mcm_candidates_all(struct mcm_candidates *c, uint16_t segment)
{
	unsigned left = c->left[segment];

	c->left[segment] = 0;
	for (; left; left &= left - 1)
		member_add(c, (unsigned)__builtin_ctz(left), segment);
}

void mcm_candidates_none(struct mcm_candidates *c, uint16_t segment)
{
	if (segment >= mcm_load_relaxed(&c->top))
		__atomic_store_n(&c->top, segment + 1u, __ATOMIC_RELEASE);
	c->left[segment] = ALL;
	for (unsigned set = 0; set < MCM_CANDIDATE_SETS; set++) {
		/* Most sets are never used: do not touch their memory. */
		if (mcm_load_relaxed(&c->retry[set][segment]))
			__atomic_store_n(&c->retry[set][segment], 0, __ATOMIC_SEQ_CST);
		member_remove(c, set, segment);
	}
}

void mcm_candidates_put(struct mcm_candidates *c, uint16_t segment, uint32_t old)
{
	unsigned left = c->left[segment], set;

	for (; left; left &= left - 1) {
		set = (unsigned)__builtin_ctz(left);
		if (!set_takes_recent(set)) {
			retry_lower(c, set, segment, old);
			continue;
		}
		c->left[segment] &= (uint16_t)~(1u << set);
		member_add(c, set, segment);
	}
}

void mcm_candidates_leave(struct mcm_candidates *c, uint16_t segment, unsigned level, uint32_t retry)
{
	unsigned set = set_of(level);

	c->left[segment] |= (uint16_t)(1u << set);
	/* The tick first: mcm_candidates_turn() may run at any time, and must not leave the segment out of the set
	 * without a tick. */
	__atomic_store_n(&c->retry[set][segment], retry == MCM_TICK_NEVER ? 0 : retry, __ATOMIC_SEQ_CST);
	member_remove(c, set, segment);
	if (retry != MCM_TICK_NEVER)
		due_lower(c, set, retry);
}

/* ---- time ---- */

static void set_turn(struct mcm_candidates *c, unsigned set, uint32_t now)
{
	/* Entries that change from here on are noted in due again. */
	__atomic_store_n(&c->due[set], MCM_TICK_NEVER, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (uint32_t i = 0, top = __atomic_load_n(&c->top, __ATOMIC_ACQUIRE); i < top; i++) {
		uint32_t tick = mcm_load_relaxed(&c->retry[set][i]);

		if (!tick)
			continue;
		if (tick > now)
			due_lower(c, set, tick);
		else if (__atomic_compare_exchange_n(&c->retry[set][i], &tick, 0, false, __ATOMIC_SEQ_CST,
						     __ATOMIC_SEQ_CST))
			member_add(c, set, i);
	}
}

void mcm_candidates_turn(struct mcm_candidates *c, uint32_t now)
{
	if (mcm_load_relaxed(&c->turned) == now || __atomic_exchange_n(&c->turned, now, __ATOMIC_RELAXED) == now)
		return;
	for (unsigned set = 0; set < MCM_CANDIDATE_SETS; set++)
		if (mcm_load_relaxed(&c->due[set]) <= now)
			set_turn(c, set, now);
}

/* ---- searching ---- */

bool mcm_candidates_has(const struct mcm_candidates *c, uint16_t segment, unsigned level)
{
	return mcm_load_relaxed(&c->member[set_of(level)][segment / 64]) & 1ull << segment % 64;
}

/* Index of the first bit at @from or behind it; 64: none. */
static unsigned bit_from(uint64_t word, unsigned from)
{
	word &= ~0ull << from;
	return word ? (unsigned)__builtin_ctzll(word) : 64;
}

/* The first word at @w or behind it that has members; MCM_CANDIDATES_WORDS: none. */
static unsigned word_next(const uint64_t *any, unsigned w)
{
	unsigned bit, from = w % 64;

	for (unsigned a = w / 64; a < MCM_CANDIDATES_WORDS / 64; a++, from = 0) {
		bit = bit_from(mcm_load_relaxed(&any[a]), from);
		if (bit < 64)
			return a * 64 + bit;
	}
	return MCM_CANDIDATES_WORDS;
}

uint32_t mcm_candidates_next(const struct mcm_candidates *c, unsigned level, uint32_t from)
{
	unsigned set = set_of(level), w = from / 64, bit;

	if (w >= MCM_CANDIDATES_WORDS)
		return MCM_NO_SEGMENT;
	bit = bit_from(mcm_load_relaxed(&c->member[set][w]), from % 64);
	while (bit == 64) {
		w = word_next(c->any[set], w + 1);
		if (w == MCM_CANDIDATES_WORDS)
			return MCM_NO_SEGMENT;
		bit = bit_from(mcm_load_relaxed(&c->member[set][w]), 0);
	}
	return w * 64 + bit;
}
