/* SPDX-License-Identifier: Apache-2.0
 * grace.c - the grace period after a restart.
 *
 * The new master does not know which objects clients had pinned.  A client may still be reading
 * such an object's memory through a mapping, and would not notice that the memory was reused for
 * another object.  So each restored object has a grace pin, which belongs to no client, until
 * clients have had time to reconnect and to repeat their pins.
 *
 * A restored object also cannot be read before its owner has mounted its segment again.  Until then the segment is
 * awaited, at most for client_ttl or the grace period, whichever is longer: requests for the object are answered
 * with -MC_ENOTREADY, because "no such object" is final. */
#include <config.h>

#include "common/err.h"
#include "common/log.h"
#include "master/mcm_i.h"

#define LOG "journal"
#define STEP 65536u		/* slots checked per call, between which the evictor does its other work */
#define HEARTBEATS 3		/* heartbeat intervals in which a live client finds this master */

void mcm_grace_pin(struct mcm *m, uint32_t slot)
{
	struct mcm_object *o = mcm_object(&m->index, slot);

	/* Cannot fail: it is the object's first pin. */
	(void)mcm_object_pin(m, o);
	__atomic_fetch_or(&o->marks, MCM_MARK_RESTORED, __ATOMIC_RELAXED);
	if (slot >= m->grace_end)
		m->grace_end = slot + 1;
}

void mcm_grace_begin(struct mcm *m, uint64_t objects)
{
	m->grace_next = 1;
	m->grace_from_ms = mcm_now_ms(m);
	m->awaits = objects > 0;
	m->grace_until_ms = 0;
	if (!objects && !m->segments.n_live)
		return;
	/* Objects without bytes have no pins, and the owners of empty segments need time too. */
	if (!m->grace_end)
		m->grace_end = m->grace_next;
	/* There is at most one owner per segment, but any number of readers. */
	m->grace_until_ms = mcm_now_ms(m) + HEARTBEATS * mcm_heartbeat_of(m, m->segments.n_live);
}

void mcm_grace_extend(struct mcm *m, uint64_t ms)
{
	m->grace_from_ms += ms;
	m->grace_until_ms += m->grace_until_ms ? ms : 0;
}

/* A slot with a grace pin is not reused before this. */
static void unpin_slot(struct mcm *m, uint32_t slot)
{
	struct mcm_object *o = mcm_object(&m->index, slot);

	if (!(mcm_load_relaxed(&o->marks) & MCM_MARK_RESTORED))
		return;
	__atomic_fetch_and(&o->marks, (uint8_t)~MCM_MARK_RESTORED, __ATOMIC_SEQ_CST);
	mcm_object_unpin(m, slot);
}

/* The more clients there are, the longer is the heartbeat interval after which they find this
 * master.  The number of clients that have reconnected is an estimate of those that will. */
static bool clients_may_come(const struct mcm *m)
{
	uint64_t now = mcm_now_ms(m), beat = mcm_heartbeat_idle_ms(m), again = m->conf.client_ttl * 2 / 5;

	/* After a failed heartbeat a client retries with the interval of an owner. */
	beat += (HEARTBEATS - 1) * (beat < again ? beat : again);
	return now < m->grace_until_ms || now < m->grace_from_ms + beat;
}

/* An owner that has not returned in the time after which the silence of any owner hides its objects is not
 * awaited any more: clients are told that its objects are missing. */
static void await_end(struct mcm *m)
{
	struct mcm_segments *ss = &m->segments;
	unsigned i;

	if (!m->awaits || clients_may_come(m) || mcm_now_ms(m) < m->grace_from_ms + m->conf.client_ttl)
		return;
	m->awaits = false;
	mc_rwlock_rdlock(&ss->lock);
	for (i = 0; i < ss->n_live; i++)
		mcm_store_relaxed(&ss->at[ss->live[i]]->awaited, false);
	mc_rwlock_unlock(&ss->lock);
}

/* Called by the monitor after it has updated the clock; before that, time in which the master was
 * stopped would count as time that clients had. */
void mcm_grace_tick(struct mcm *m)
{
	await_end(m);
	if (!m->grace_until_ms || clients_may_come(m))
		return;
	m->grace_until_ms = 0;
	__atomic_store_n(&m->grace_over, true, __ATOMIC_RELEASE);
}

bool mcm_grace_active(const struct mcm *m)
{
	return m->grace_end && !__atomic_load_n(&m->grace_over, __ATOMIC_ACQUIRE);
}

bool mcm_grace_release(struct mcm *m)
{
	uint32_t next = m->grace_next, end = m->grace_end;

	if (!__atomic_load_n(&m->grace_over, __ATOMIC_ACQUIRE) || m->grace_released)
		return false;
	/* @next may be behind the end: no object has a grace pin. */
	if (next < end && end - next > STEP)
		end = next + STEP;
	for (; next < end; next++)
		unpin_slot(m, next);
	__atomic_store_n(&m->grace_next, next, __ATOMIC_RELAXED);
	m->grace_released = next >= m->grace_end;
	if (m->grace_released)
		mc_info(LOG, "grace period after the start is over: restored objects can be evicted");
	return !m->grace_released;
}

bool mcm_grace_pins_left(const struct mcm *m)
{
	return __atomic_load_n(&m->grace_next, __ATOMIC_RELAXED) < m->grace_end;
}
