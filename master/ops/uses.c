/* SPDX-License-Identifier: Apache-2.0
 * uses.c - uses of keys, for learning. */
#include <config.h>

#include "master/ops/uses.h"

#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/log.h"
#include "master/mcm_i.h"
#include "proto/codec.h"

#define LOG "learn"
#define COUNTS (2 * MCM_AGE_BINS)
#define COUNT_MAX 1e9f

/* Bytes of a segment that the object occupies; its shard is locked. */
static uint64_t object_bytes(const struct mcm *m, uint32_t slot)
{
	return mcm_alloc_round(mcm_object_reserve(mcm_object_size(mcm_object(&m->index, slot)))) << MCM_GRANULE_SHIFT;
}

/* Does it have bytes that the policy may evict? */
static bool object_counts(const struct mcm_object *o)
{
	return mcm_object_size(o) && (o->flags & MCM_OBJ_KIND) == MCP_KIND_OBJECT;
}

/* The share of the memory that objects use when the pool is full, on average. */
static double share_used(const struct mcm *m)
{
	double high = m->conf.eviction_high_watermark_ratio, low = high - m->conf.eviction_ratio;

	return high >= 1 ? 1 : (high + (low > 0 ? low : 0)) / 2;
}

static void pool_size(struct mcm *m)
{
	uint64_t memory = mcm_load_relaxed(&m->segments.capacity), disk = mcm_load_relaxed(&m->segments.disk_capacity);
	double share = share_used(m);

	mcm_learn_pool(&m->learn, (uint64_t)((double)memory * share), (uint64_t)((double)disk * share));
}

/* Tell the policy of its segment that the object has no other behind it any more. */
static void leaf_add(struct mcm *m, uint32_t slot)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);

	if (mcm_load_relaxed(&o->range))
		mcm_leaves_add(&m->learn, mcm_load_relaxed(&o->segment), slot);
}

void mcm_uses_describe(struct mcm *m, uint32_t slot, struct mcm_asked *ret)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);

	*ret = (struct mcm_asked){
		o->hash, slot, mcm_learn_samples(&m->learn, o->hash) ? object_bytes(m, slot) : 0, o->generation
	};
}

void mcm_uses_asked(struct mcm *m, const struct mcm_asked *keys, unsigned n)
{
	struct mcm_left left = { .n = 0 };

	pool_size(m);
	mcm_learn_asked(&m->learn, keys, n, &left);
	while (left.n)
		leaf_add(m, left.slot[--left.n]);
}

void mcm_uses_puts(struct mcm *m, const uint32_t *hash, unsigned n, const int *outcome)
{
	struct mcm_asked asked[MCM_PREFETCH_MAX];
	unsigned k = 0;

	for (unsigned i = 0; i < n; i++)
		if (outcome[i] == 0)
			asked[k++] = (struct mcm_asked){ .hash = hash[i] };
	pool_size(m);
	mcm_learn_puts(&m->learn, asked, k);
}

void mcm_uses_read(struct mcm *m, uint32_t slot)
{
	struct mcm_asked key;

	mcm_uses_describe(m, slot, &key);
	mcm_learn_read(&m->learn, &key);
}

void mcm_uses_put(struct mcm *m, uint32_t slot)
{
	struct mcm_asked key;

	if (!object_counts(mcm_object(&m->index, slot)))
		return;
	mcm_uses_describe(m, slot, &key);
	mcm_learn_put(&m->learn, &key);
}

void mcm_uses_left_memory(struct mcm *m, uint32_t slot)
{
	uint32_t before = mcm_learn_left(&m->learn, slot);

	if (before)
		leaf_add(m, before);
}

void mcm_uses_gone(struct mcm *m, uint32_t slot)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);

	mcm_uses_left_memory(m, slot);
	mcm_learn_gone(&m->learn, slot, object_counts(o) ? o->hash : 0);
}

void mcm_uses_restored(struct mcm *m, uint32_t slot, uint16_t traits, uint32_t age)
{
	if (object_counts(mcm_object(&m->index, slot)))
		mcm_learn_restored(&m->learn, slot, traits, age);
}

/* ---- the model across restarts ---- */

/* The value is COUNTS floats, little-endian: objects that reached each age, then those used at it. */
static bool save_class(struct mcm *m, unsigned class)
{
	float reached[MCM_AGE_BINS], used[MCM_AGE_BINS];
	uint32_t value[COUNTS], bits;
	char name[16];
	int len;

	mcm_sample_save(&m->learn.sample, class, reached, used);
	if (!(reached[0] > 0))
		return true;
	for (unsigned i = 0; i < COUNTS; i++) {
		memcpy(&bits, i < MCM_AGE_BINS ? &reached[i] : &used[i - MCM_AGE_BINS], sizeof(bits));
		value[i] = htole32(bits);
	}
	len = snprintf(name, sizeof(name), "%u", class);
	return mcm_durable_set(m, MCM_DURABLE_LEARNED, mcp_bytes(name, (uint32_t)len),
			       mcp_bytes(value, sizeof(value))) == 0;
}

void mcm_uses_save(struct mcm *m)
{
	if (!m->learn.tracks)
		return;
	for (unsigned class = 0; class < MCM_CLASSES; class++)
		if (!save_class(m, class)) {
			mc_warn(LOG, "the counts of the policy learn are not kept across restarts error=\"%s\"",
				mc_err_detail(-ENOMEM));
			return;
		}
}

static void load_class(void *arg, const struct mcm_durable_record *r)
{
	float count[COUNTS];
	uint32_t bits;
	char name[16], *end;
	unsigned long class;

	if (!r->name.len || r->name.len >= sizeof(name) || r->value.len != sizeof(count))
		return;
	memcpy(name, r->name.data, r->name.len);
	name[r->name.len] = '\0';
	class = strtoul(name, &end, 10);
	if (*end || name[0] < '0' || name[0] > '9')
		return;
	for (unsigned i = 0; i < COUNTS; i++) {
		memcpy(&bits, (const char *)r->value.data + i * sizeof(bits), sizeof(bits));
		bits = le32toh(bits);
		memcpy(&count[i], &bits, sizeof(bits));
		if (!isfinite(count[i]) || count[i] < 0 || count[i] > COUNT_MAX)
			return;
	}
	if (class < MCM_CLASSES)
		mcm_sample_load(arg, (unsigned)class, count, count + MCM_AGE_BINS);
}

void mcm_uses_load(struct mcm *m)
{
	if (!m->learn.tracks)
		return;
	mcm_durables_each(m, MCM_DURABLE_LEARNED, load_class, &m->learn.sample);
	mcm_sample_loaded(&m->learn.sample);
}
