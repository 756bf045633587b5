/* SPDX-License-Identifier: Apache-2.0
 * restore_held.c - the first seconds after a restart.
 *
 * Who had an object pinned is unknown, and may still be reading its memory: through a mapping nobody
 * would notice that it has become another object's.  So each object that was brought back is held by a
 * pin of nobody's until clients have had the time to connect and pin again what they need. */
#include <config.h>

#include "master/journal/journal_i.h"
#include "master/mcm_i.h"

#define STEP 65536u		/* slots looked at before others get their turn */
#define HEARTBEATS 3		/* in which a client that lives has found this master */

void mcm_restored_hold(struct mcm *m, uint32_t slot)
{
	struct mcm_object *o = mcm_object(&m->index, slot);

	/* The first one: it finds room. */
	(void)mcm_object_pin(m, o);
	__atomic_fetch_or(&o->marks, MCM_MARK_RESTORED, __ATOMIC_RELAXED);
	if (slot >= m->held_end)
		m->held_end = slot + 1;
}

void mcm_restored_held(struct mcm *m, uint64_t objects)
{
	m->held_next = 1;
	m->held_from_ms = mcm_now_ms(m);
	/* Their owners are as many as the segments are; of readers there may be more. */
	m->held_until_ms = !objects ? 0 :
		mcm_now_ms(m) + HEARTBEATS * mcm_heartbeat_of(m, m->segments.n_live);
}

/* A slot that was held is nobody else's before this. */
static void release(struct mcm *m, uint32_t slot)
{
	struct mcm_object *o = mcm_object(&m->index, slot);

	if (!(mcm_load_relaxed(&o->marks) & MCM_MARK_RESTORED))
		return;
	__atomic_fetch_and(&o->marks, (uint8_t)~MCM_MARK_RESTORED, __ATOMIC_SEQ_CST);
	mcm_object_unpin(m, slot);
}

/* The more clients there are, the rarer are the heartbeats by which they find this master: those who have come
 * tell of those who will. */
static bool still_held(const struct mcm *m)
{
	uint64_t now = mcm_now_ms(m), beat = mcm_heartbeat_idle_ms(m), again = m->conf.client_ttl * 2 / 5;

	/* Who has not found it once tries again as soon as an owner would. */
	beat += (HEARTBEATS - 1) * (beat < again ? beat : again);
	return now < m->held_until_ms || now < m->held_from_ms + beat;
}

/* By the monitor and after it has looked at the clock: until then a master that was stopped for a while takes
 * that for its clients' time. */
void mcm_restored_tick(struct mcm *m)
{
	if (!m->held_until_ms || still_held(m))
		return;
	m->held_until_ms = 0;
	__atomic_store_n(&m->held_over, true, __ATOMIC_RELEASE);
}

bool mcm_restored_holding(const struct mcm *m)
{
	return m->held_end && !__atomic_load_n(&m->held_over, __ATOMIC_ACQUIRE);
}

bool mcm_restored_release(struct mcm *m)
{
	uint32_t end = m->held_end;

	if (!__atomic_load_n(&m->held_over, __ATOMIC_ACQUIRE))
		return false;
	if (end - m->held_next > STEP)
		end = m->held_next + STEP;
	for (uint32_t slot = m->held_next; slot < end; slot++)
		release(m, slot);
	__atomic_store_n(&m->held_next, end, __ATOMIC_RELAXED);
	return end < m->held_end;
}

bool mcm_restored_holds(const struct mcm *m)
{
	return __atomic_load_n(&m->held_next, __ATOMIC_RELAXED) < m->held_end;
}
