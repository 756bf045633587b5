/* SPDX-License-Identifier: Apache-2.0
 * quarantine.c - ranges of aborted puts, unused while bytes for them may still be on their way. */
#include <config.h>

#include "master/ops/quarantine.h"

#include <errno.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/metrics.h"
#include "master/mcm_i.h"

MC_COUNTER(discarded, "master_put_start_discard_cnt", "",
	   "Copies of aborted puts whose ranges were quarantined")
MC_COUNTER(released, "master_put_start_release_cnt", "", "Quarantined copies that were freed")
MC_GAUGE(staging, "master_put_start_discarded_staging_size", "", "Bytes in quarantine")

static int quarantine_grow(struct mcm_quarantine *q)
{
	size_t cap = q->cap ? 2 * q->cap : 64, i;
	struct mcm_quarantined *ring = malloc(cap * sizeof(*ring));

	if (!ring)
		return -ENOMEM;
	for (i = 0; i < q->count; i++)
		ring[i] = q->ring[(q->head + i) % q->cap];
	free(q->ring);
	q->ring = ring;
	q->head = 0;
	q->cap = cap;
	return 0;
}

static int quarantine_add(struct mcm_quarantine *q, struct mcm_quarantined range)
{
	int r = q->count == q->cap ? quarantine_grow(q) : 0;

	if (r == 0)
		q->ring[(q->head + q->count++) % q->cap] = range;
	return r;
}

void mcm_quarantine_put(struct mcm *m, const struct mcm_put *put)
{
	struct mcm_quarantined q = {
		.due_ms = mcm_now_ms(m) + m->conf.put_quarantine_ms, .generation = put->generation,
		.tenant = put->tenant, .charged = put->copies ? put->charged / put->copies : 0,
		.size = put->size,
	};
	struct mcm_puts *ps = &m->puts;
	unsigned i, kept = 0;

	pthread_mutex_lock(&ps->quarantine_lock);
	/* Journal it again: a running checkpoint may have read the shard after it left and the
	 * quarantine before it came. */
	mcm_journal_put(m, put->generation, put->extent, put->copies);
	for (; kept < put->copies; kept++) {
		q.extent = put->extent[kept];
		if (quarantine_add(&ps->aborted, q) < 0)
			break;
	}
	pthread_mutex_unlock(&ps->quarantine_lock);
	mc_metric_add(&discarded, kept);
	mc_metric_add(&staging, (int64_t)(kept * put->size));
	mcm_tenant_refund(m, put->tenant, put->charged - kept * q.charged);
	/* Without memory for the ring, free the range: checksums detect a late write, but a leak is for ever. */
	for (i = kept; i < put->copies; i++)
		mcm_extent_free(m, &put->extent[i]);
}

int mcm_quarantine_restore(struct mcm *m, uint64_t generation, struct mcm_extent extent)
{
	/* The record does not name the tenant, so no tenant is charged. */
	return quarantine_add(&m->puts.restored, (struct mcm_quarantined){
		.due_ms = mcm_now_ms(m) + m->conf.restart_quarantine_sec, .generation = generation,
		.extent = extent,
	});
}

static bool quarantine_due(struct mcm *m, struct mcm_quarantine *q, uint64_t now,
			   struct mcm_quarantined *ret)
{
	MC_LOCKED(&m->puts.quarantine_lock);
	if (!q->count || q->ring[q->head].due_ms > now)
		return false;
	*ret = q->ring[q->head];
	q->head = (q->head + 1) % q->cap;
	q->count--;
	mcm_journal_put_gone(m, ret->generation);
	return true;
}

void mcm_quarantine_tick(struct mcm *m, uint64_t now)
{
	struct mcm_quarantined q;

	while (quarantine_due(m, &m->puts.aborted, now, &q)) {
		mc_metric_add(&released, 1);
		mc_metric_add(&staging, -(int64_t)q.size);
		mcm_extent_free(m, &q.extent);
		mcm_tenant_refund(m, q.tenant, q.charged);
	}
	while (quarantine_due(m, &m->puts.restored, now, &q))
		mcm_extent_free(m, &q.extent);
}
