/* SPDX-License-Identifier: Apache-2.0
 * writers.c - fencing, the owner's side: the engines that may not write here any more; and this engine's own number.
 *
 * A number is never given out again, so an entry could be forgotten only when its engine has ended, which the owner
 * cannot know.  When the table is full, the oldest entry's number therefore counts for all engines: clients whose
 * sessions are older get a refusal, and then begin a new session. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/sys/thread.h"
#include "engine/engine_i.h"

int mce_slot_take(uint64_t slots[], unsigned n, uint64_t value, unsigned *ret)
{
	/* Threads begin at different slots, so that they seldom write to one cache line. */
	static __thread unsigned first;

	if (!first)
		first = 1 + (unsigned)gettid() * 8;
	for (unsigned i = 0; i < n; i++) {
		unsigned at = (first + i) % n;
		uint64_t none = 0;

		if (__atomic_compare_exchange_n(&slots[at], &none, value, false, __ATOMIC_SEQ_CST,
						__ATOMIC_RELAXED)) {
			*ret = at;
			return 0;
		}
	}
	return -EBUSY;
}

void mce_slot_clear(uint64_t slots[], unsigned slot)
{
	__atomic_store_n(&slots[slot], 0, __ATOMIC_SEQ_CST);
}

int mce_writers_init(struct mce_writers *w)
{
	w->table = calloc(MCE_WRITERS_MAX, sizeof(*w->table));
	if (!w->table)
		return -ENOMEM;
	mc_mutex_init(&w->lock);
	return 0;
}

void mce_writers_done(struct mce_writers *w)
{
	if (!w->table)
		return;
	free(w->table);
	mc_mutex_destroy(&w->lock);
}

bool mce_fence_matches(const uint8_t nonce[16], uint64_t upto, const uint8_t of[16], uint64_t fence)
{
	return fence && fence <= upto && (!nonce || !memcmp(nonce, of, 16));
}

static struct mce_writer *writer_find_locked(struct mce_writers *w, const uint8_t nonce[16])
{
	for (unsigned i = 0; i < w->used; i++)
		if (!memcmp(w->table[i].nonce, nonce, 16))
			return &w->table[i];
	return NULL;
}

static void writers_add(struct mce_writers *w, const uint8_t nonce[16], uint64_t upto)
{
	struct mce_writer *one;

	MC_LOCKED(&w->lock);
	w->seen = upto > w->seen ? upto : w->seen;
	if (!nonce) {
		w->upto_all = upto > w->upto_all ? upto : w->upto_all;
		return;
	}
	one = writer_find_locked(w, nonce);
	if (!one) {
		one = &w->table[w->next++ % MCE_WRITERS_MAX];
		if (w->used < MCE_WRITERS_MAX)
			w->used++;
		if (one->upto > w->upto_all)
			w->upto_all = one->upto;
		memcpy(one->nonce, nonce, 16);
		one->upto = 0;
	}
	if (upto > one->upto)
		one->upto = upto;
}

bool mce_writer_is_fenced(struct mce_engine *e, const uint8_t nonce[16], uint64_t fence)
{
	const struct mce_writer *one;

	if (!fence)
		return false;
	MC_LOCKED(&e->writers.lock);
	if (fence > e->writers.seen)
		e->writers.seen = fence;
	one = writer_find_locked(&e->writers, nonce);
	return fence <= e->writers.upto_all || (one && fence <= one->upto);
}

/* ---- this engine's WRITEs to its own memory ----------------------------------------------------- */

static int own_fence(struct mce_engine *e, uint64_t upto)
{
	struct mce_writers *w = &e->writers;
	uint64_t number;

	if (upto > __atomic_load_n(&w->upto_own, __ATOMIC_SEQ_CST))
		__atomic_store_n(&w->upto_own, upto, __ATOMIC_SEQ_CST);
	for (unsigned i = 0; i < MCE_SLOTS; i++) {
		number = __atomic_load_n(&w->copies[i], __ATOMIC_SEQ_CST);
		if (number && number <= upto)
			return -EAGAIN;
	}
	return 0;
}

int mce_own_write_begin(struct mce_engine *e, uint64_t fence, unsigned *ret_slot)
{
	struct mce_writers *w = &e->writers;

	/* As many threads as slots are copying: each of them ends soon. */
	while (mce_slot_take(w->copies, MCE_SLOTS, fence, ret_slot) < 0)
		mc_thread_yield();
	if (fence > __atomic_load_n(&w->upto_own, __ATOMIC_SEQ_CST))
		return 0;
	mce_slot_clear(w->copies, *ret_slot);
	return -ESTALE;
}

/* ---- the interface ------------------------------------------------------------------------------ */

void mce_engine_nonce(const struct mce_engine *e, uint8_t ret[16])
{
	memcpy(ret, e->id.nonce, 16);
}

void mce_engine_set_fence(struct mce_engine *e, uint64_t fence)
{
	struct mce_peer *p = NULL;

	if (__atomic_exchange_n(&e->fence, fence, __ATOMIC_SEQ_CST) == fence)
		return;
	while ((p = mce_peer_next(e, p)))
		for (const struct mce_transport *const *t = p->transports; *t; t++)
			(*t)->new_fence(p);
}

uint64_t mce_engine_largest_fence(struct mce_engine *e)
{
	uint64_t own = __atomic_load_n(&e->fence, __ATOMIC_SEQ_CST);

	MC_LOCKED(&e->writers.lock);
	return own > e->writers.seen ? own : e->writers.seen;
}

bool mce_engine_is_fenced(const struct mce_engine *e)
{
	uint64_t refused = __atomic_load_n(&e->refused_fence, __ATOMIC_RELAXED);

	return refused && refused == __atomic_load_n(&e->fence, __ATOMIC_RELAXED);
}

int mce_engine_fence(struct mce_engine *e, const uint8_t nonce[16], uint64_t upto)
{
	int r, own = 0;

	writers_add(&e->writers, nonce, upto);
	r = mce_services_fence(e, nonce, upto);
	if (!nonce || !memcmp(nonce, e->id.nonce, 16))
		own = own_fence(e, upto);
	return r < 0 ? r : own;
}
