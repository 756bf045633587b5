/* SPDX-License-Identifier: Apache-2.0
 * put_records.c - journal records of unfinished puts and quarantined ranges, for a checkpoint. */
#include <config.h>

#include "common/cleanup.h"
#include "master/mcm_i.h"
#include "master/ops/put.h"

#define PUTS_PER_STEP 256	/* chains examined under one lock */

static void put_record_of(const struct mcm *m, uint64_t generation, const struct mcm_extent *extent,
			  unsigned copies, struct mcm_put_record *ret)
{
	unsigned i;

	ret->generation = generation;
	ret->copies = (uint8_t)copies;
	for (i = 0; i < copies; i++)
		ret->extent[i] = mcm_extent_record_of(m, extent[i]);
}

static void quarantine_records(struct mcm *m, void (*fn)(void *arg, const struct mcm_put_record *r), void *arg)
{
	struct mcm_put_record rec;
	struct mc_list *at;

	MC_LOCKED(&m->puts.quarantine.lock);
	mc_list_for_each(at, &m->puts.quarantine.aborted) {
		const struct mcm_aborted *a = mc_container_of(at, struct mcm_aborted, link);

		put_record_of(m, a->generation, a->extent, a->copies, &rec);
		fn(arg, &rec);
	}
}

/* Records of a shard's puts in the order of their hashes, some under one lock. */
static void put_shard_records(struct mcm *m, struct mcm_put_shard *ps,
			      void (*fn)(void *arg, const struct mcm_put_record *r), void *arg)
{
	struct mcm_put_record rec;
	uint64_t pos = 0;
	unsigned n;
	uint32_t id;

	while (pos < MCM_TABLE_END) {
		MC_LOCKED(&ps->lock);
		for (n = 0; n < PUTS_PER_STEP && pos < MCM_TABLE_END; n++) {
			for (id = *mcm_table_head(&ps->table, (uint32_t)pos); id;
			     id = mcm_put_at(ps, id)->next) {
				const struct mcm_put *p = mcm_put_at(ps, id);

				put_record_of(m, p->generation, p->extent, p->copies, &rec);
				if (p->hash >= pos && p->copies)
					fn(arg, &rec);
			}
			pos = mcm_table_chain_end(&ps->table, (uint32_t)pos);
		}
	}
}

void mcm_puts_each(struct mcm *m, void (*fn)(void *arg, const struct mcm_put_record *r), void *arg)
{
	unsigned i;

	for (i = 0; i < MCM_PUT_SHARDS; i++)
		put_shard_records(m, &m->puts.shard[i], fn, arg);
	/* Last, because a put moves from its shard to the quarantine. */
	quarantine_records(m, fn, arg);
}
