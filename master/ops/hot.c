/* SPDX-License-Identifier: Apache-2.0
 * hot.c - finds objects that are read often. */
#include <config.h>

#include "master/ops/hot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/metrics.h"
#include "master/mcm_i.h"
#include "proto/codec.h"

#define LOG "hot"
#define WAYS 4u			/* entries in which a slot may be counted */
#define BATCH 64u		/* candidates checked per period */

MC_COUNTER(found, "mooncake_master_hot_objects_total", "",
	   "Objects that were read often enough for another copy")
MC_COUNTER(asked, "mooncake_master_hot_copies_total", "", "Copies requested for hot objects")
MC_COUNTER(dropped, "mooncake_master_hot_dropped_total", "",
	   "Hot objects dropped because the queue of candidates was full")

int mcm_hot_check(const struct mcm_conf *c)
{
	const char *mode = c->dynamic_replication_mode;

	if (strcmp(mode, "off") != 0 && strcmp(mode, "observe") != 0 && strcmp(mode, "enforce") != 0)
		return mc_fail(-EINVAL, "dynamic_replication_mode=%s: must be off, observe or enforce",
			       mode);
	if (!(c->dynamic_replication_admission_qps_threshold > 0))
		return mc_fail(-EINVAL, "dynamic_replication_admission_qps_threshold must be above 0");
	return 0;
}

int mcm_hot_init(struct mcm *m)
{
	const struct mcm_conf *c = &m->conf;
	uint64_t window = c->dynamic_replication_heat_window_seconds;
	struct mcm_hot *h = &m->hot;
	double reads;

	mc_mutex_init(&h->lock);
	if (!strcmp(c->dynamic_replication_mode, "off"))
		return 0;
	if (window < 1000)
		window = 1000;
	reads = c->dynamic_replication_admission_qps_threshold * (double)window / 1000;
	h->enforce = !strcmp(c->dynamic_replication_mode, "enforce");
	h->window = mcm_tick(window);
	/* Round up: fewer reads than the threshold are not enough. */
	h->threshold = reads > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)reads;
	if ((double)h->threshold < reads)
		h->threshold++;
	h->copies_max = c->dynamic_replication_max_memory_replicas < 1 ? 1 :
		(unsigned)c->dynamic_replication_max_memory_replicas;
	h->entries = calloc(MCM_SHARDS * MCM_HOT_ENTRIES, sizeof(*h->entries));
	h->queue = calloc(MCM_HOT_QUEUE, sizeof(*h->queue));
	return h->entries && h->queue ? 0 : -ENOMEM;
}

void mcm_hot_done(struct mcm_hot *h)
{
	free(h->entries);
	free(h->queue);
	mc_mutex_destroy(&h->lock);
}

/* ---- reads ---- */

/* Find @slot's counter in its set, or claim a free or expired one.  If the set is full, decay the
 * coldest counter and return NULL. */
static struct mcm_hot_entry *hot_entry(struct mcm_hot *h, unsigned shard, uint32_t slot, uint32_t now)
{
	struct mcm_hot_entry *set, *coldest = NULL;
	uint32_t at = (slot * 0x9e3779b1u >> 16) % (MCM_HOT_ENTRIES / WAYS);

	set = &h->entries[shard * MCM_HOT_ENTRIES + at * WAYS];
	for (unsigned i = 0; i < WAYS; i++) {
		struct mcm_hot_entry *e = &set[i];

		if (e->slot == slot)
			return e;
		if (!e->slot || (now - e->since >= h->window && now >= e->rest)) {
			*e = (struct mcm_hot_entry){ .slot = slot, .since = now };
			return e;
		}
		if (now >= e->rest && (!coldest || e->count < coldest->count))
			coldest = e;
	}
	if (coldest && coldest->count && !--coldest->count)
		coldest->slot = 0;
	return NULL;
}

static void hot_enqueue(struct mcm_hot *h, uint32_t slot, uint64_t generation)
{
	MC_LOCKED(&h->lock);
	if (h->count == MCM_HOT_QUEUE) {
		mc_metric_add(&dropped, 1);
		return;
	}
	h->queue[(h->head + h->count++) % MCM_HOT_QUEUE] = (struct mcm_hot_candidate){
		slot, generation
	};
}

void mcm_hot_read(struct mcm *m, const struct mcm_shard *sh, uint32_t slot)
{
	unsigned shard = (unsigned)(sh - m->index.shard);
	uint32_t now = mcm_now_tick(m);
	struct mcm_hot *h = &m->hot;
	struct mcm_hot_entry *e = hot_entry(h, shard, slot, now);

	if (!e || now < e->rest)
		return;
	if (now - e->since >= h->window) {
		e->since = now;
		e->count = 0;
	}
	if (++e->count < h->threshold)
		return;
	mc_metric_add(&found, 1);
	e->count = 0;
	e->rest = now + mcm_tick(MCM_HOT_REST_MS);
	hot_enqueue(h, slot, mcm_object(&m->index, slot)->generation);
}

/* ---- candidates ---- */

/* Copy the key and return its length, if another copy is still wanted; else 0. */
static uint32_t candidate_key(struct mcm *m, const struct mcm_hot_candidate *c, char key[MCM_KEY_MAX])
{
	struct mcm_shard *sh = mcm_index_lock_slot(&m->index, c->slot);
	const struct mcm_object *o = mcm_object(&m->index, c->slot);
	struct mcm_extent p[MCM_REPLICA_MAX];
	unsigned max = m->hot.copies_max;
	uint32_t len = 0;

	if (max > MCM_REPLICA_MAX)
		max = MCM_REPLICA_MAX;
	if (o->flags & MCM_OBJ_LIVE && o->generation == c->generation && o->range &&
	    mcm_extents_in_memory(m, p, mcm_object_extents(&m->index, o, p)) < max) {
		len = o->key_len;
		memcpy(key, mcm_shard_key(&m->index, c->slot), len);
	}
	mc_mutex_unlock(&sh->lock);
	return len;
}

static bool candidate_next(struct mcm_hot *h, struct mcm_hot_candidate *ret)
{
	MC_LOCKED(&h->lock);
	if (!h->count)
		return false;
	*ret = h->queue[h->head];
	h->head = (h->head + 1) % MCM_HOT_QUEUE;
	h->count--;
	return true;
}

void mcm_hot_tick(struct mcm *m)
{
	struct mcm_hot *h = &m->hot;
	struct mcm_hot_candidate c;
	char key[MCM_KEY_MAX];
	uint32_t len;
	int r;

	for (unsigned n = 0; mcm_hot_on(h) && n < BATCH && candidate_next(h, &c); n++) {
		len = candidate_key(m, &c, key);
		if (!len)
			continue;
		if (!h->enforce) {
			mc_info(LOG, "object is hot; mode is observe, not copying it");
			continue;
		}
		r = mcm_task_replicate(m, mcp_bytes(key, len));
		if (r == 0)
			mc_metric_add(&asked, 1);
		else
			mc_debug(LOG, "cannot copy a hot object: %s", mc_strerror(r));
	}
}
