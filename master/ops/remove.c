/* SPDX-License-Identifier: Apache-2.0
 * remove.c - removal of one key, of its copies in a segment, or of all keys that match.
 *
 * Matching scans the index in steps: keys are copied under the shard's lock, matched without it,
 * and removed if they are unchanged. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <config.h>

#include <errno.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/metrics.h"
#include "master/ops/ops.h"
#include "master/mcm_i.h"
#include "proto/codec.h"

#define PATTERN_MAX 1024	/* bytes */
#define MATCH_LIMIT 100000	/* steps of the matcher per key: a pattern must not block the master */
#define MATCH_HEAP_KIB 256
#define BATCH 256	/* objects copied before the matching ones are removed */
#define BATCH_MATCHED 8	/* the same with a pattern, which may take one or two ms per object */
#define SLICE_NS (500 * 1000)	/* length of one slice of a removal in parts, for which other requests wait */
#define EQUAL 16	/* additional entries for objects with equal hashes */

struct found {
	uint32_t slot;
	uint64_t generation;
	size_t key;		/* in text */
	uint32_t len;
};

MC_COUNTER(removed, "mooncake_master_removed_total", "", "Objects removed by clients")

bool mcm_remove_leased(const struct mcm *m, const struct mcm_object *o)
{
	return mcm_object_leased(o, mcm_now_exact_ms(m)) || mcm_group_leased(m, o);
}

/* shard locked */
static int remove_found(struct mcm *m, struct mcm_shard *sh, uint32_t slot, uint32_t flags)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);
	int r;

	if (!(flags & MCP_REMOVE_FORCE) && mcm_remove_leased(m, o))
		return -MC_ELEASED;
	r = mcm_names_remove_marker(&m->names, slot);
	if (r < 0)
		return r;
	mcm_object_unindex(m, sh, slot, MCM_GONE_REMOVED);
	mc_metric_add(&removed, 1);
	return 0;
}

/* shard locked.  Objects below a matching marker either match too, or keep the directory in existence.  @key: its bare
 * key, or the part that decides, when it was found: an object whose directory was renamed keeps its generation. */
static bool remove_matched(struct mcm *m, struct mcm_shard *sh, const struct found *f, struct mcp_bytes key,
			   uint32_t flags)
{
	const struct mcm_object *o = mcm_object(&m->index, f->slot);
	struct mcp_bytes now;

	if (!(o->flags & MCM_OBJ_LIVE) || o->generation != f->generation)
		return false;
	now = mcm_key_bare(mcp_bytes(mcm_shard_key(&m->index, f->slot), o->key_len), NULL);
	if (now.len < key.len || (key.len && memcmp(now.data, key.data, key.len) != 0))
		return false;
	if (!(flags & MCP_REMOVE_FORCE) && mcm_remove_leased(m, o))
		return false;
	mcm_object_remove(m, sh, f->slot, MCM_GONE_REMOVED);
	mc_metric_add(&removed, 1);
	return true;
}

int mcm_remove(struct mcm *m, uint32_t flags, struct mcp_bytes key)
{
	uint32_t hash, slot;
	struct mcm_shard *sh;
	int r = -MC_ENOOBJECT;

	if (!mcm_key_ok(key))
		return mc_fail(-MC_EKEY, "key has %u bytes", key.len);
	hash = mcm_index_hash(&m->index, key.data, key.len);
	sh = mcm_index_shard(&m->index, hash);
	mc_mutex_lock(&sh->lock);
	slot = mcm_shard_find(&m->index, sh, hash, key.data, key.len);
	if (slot)
		r = remove_found(m, sh, slot, flags);
	else
		mcm_journal_depend(m);
	mc_mutex_unlock(&sh->lock);
	/* A directory without marker may have children too. */
	if (!slot && ((const char *)key.data)[key.len - 1] == '/' &&
	    mcm_names_busy(&m->names, key.data, key.len))
		r = -MC_ENOTEMPTY;
	return r;
}

/* ---- copies ---- */

static bool is_name(const char *is, struct mcp_bytes name)
{
	return strlen(is) == name.len && !memcmp(is, name.data, name.len);
}

/* the segments' table locked */
static bool segment_is_named(const struct mcm_segment *s, struct mcp_bytes name)
{
	return is_name(s->name, name) || (mcm_segment_is(s, MCP_TRAIT_PUTS) && is_name(s->endpoint, name));
}

/* shard locked: move those of the @n copies that are in segments of this name to the front; their number */
static unsigned extents_named(struct mcm *m, struct mcm_extent *p, unsigned n, struct mcp_bytes name)
{
	unsigned k = 0;

	mc_rwlock_rdlock(&m->segments.lock);
	for (unsigned i = 0; i < n; i++)
		if (segment_is_named(mcm_segment(&m->segments, p[i].segment), name))
			p[k++] = p[i];
	mc_rwlock_unlock(&m->segments.lock);
	return k;
}

/* shard locked */
static int clear_found(struct mcm *m, struct mcm_shard *sh, uint32_t slot, struct mcp_bytes segment)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);
	struct mcm_extent p[MCM_REPLICA_MAX];
	unsigned n, k;

	if (!segment.len)
		return remove_found(m, sh, slot, 0);
	n = mcm_object_extents(&m->index, o, p);
	k = extents_named(m, p, n, segment);
	if (!k)
		return -MC_EREPLICA;
	if (k == n)
		return remove_found(m, sh, slot, 0);
	/* Pins of all kinds, also one for readers of an earlier master: the memory is free at once. */
	if (mcm_remove_leased(m, o) || o->pins)
		return -MC_ELEASED;
	while (k--)
		mcm_object_remove_copy(m, sh, slot, p[k]);
	return 0;
}

int mcm_clear(struct mcm *m, struct mcp_bytes segment, struct mcp_bytes key)
{
	uint32_t hash, slot;
	struct mcm_shard *sh;
	int r = -MC_ENOOBJECT;

	if (!mcm_key_ok(key))
		return mc_fail(-MC_EKEY, "key has %u bytes", key.len);
	hash = mcm_index_hash(&m->index, key.data, key.len);
	sh = mcm_index_shard(&m->index, hash);
	mc_mutex_lock(&sh->lock);
	slot = mcm_shard_find(&m->index, sh, hash, key.data, key.len);
	if (slot)
		r = clear_found(m, sh, slot, segment);
	if (r < 0)
		mcm_journal_depend(m);
	mc_mutex_unlock(&sh->lock);
	return r;
}

/* ---- many ---- */

struct match {
	const struct mcm *m;
	struct mcp_bytes prefix;
	struct mcm_scope scope;
	bool all_tenants;
	bool keep_text;
	struct found found[BATCH + EQUAL];
	unsigned n;
	char *text;
	size_t text_len, text_cap;
	int error;
};

static int match_text_add(struct match *mt, const char *key, uint32_t len)
{
	if (mt->text_cap - mt->text_len < len) {
		size_t cap = 2 * mt->text_cap + MCP_KEY_MAX;
		char *text = realloc(mt->text, cap);

		if (!text)
			return -ENOMEM;
		mt->text = text;
		mt->text_cap = cap;
	}
	memcpy(mt->text + mt->text_len, key, len);
	mt->text_len += len;
	return 0;
}

static void match_collect(void *arg, uint32_t slot)
{
	struct match *mt = arg;
	const struct mcm_object *o = mcm_object(&mt->m->index, slot);
	struct mcp_bytes key = mcp_bytes(mcm_shard_key(&mt->m->index, slot), o->key_len);
	uint32_t tenant;

	key = mcm_key_bare(key, &tenant);
	if (mt->error || mt->n == BATCH + EQUAL || key.len < mt->prefix.len ||
	    (tenant != mt->scope.tenant && !mt->all_tenants) ||
	    (mt->prefix.len && memcmp(key.data, mt->prefix.data, mt->prefix.len) != 0))
		return;
	mt->found[mt->n++] = (struct found){ slot, o->generation, mt->text_len, key.len };
	if (mt->keep_text)
		mt->error = match_text_add(mt, key.data, key.len);
}

struct pattern {
	pcre2_code *code;
	pcre2_match_data *data;
	pcre2_match_context *ctx;
};

static void pattern_free(struct pattern *p)
{
	pcre2_match_context_free(p->ctx);
	pcre2_match_data_free(p->data);
	pcre2_code_free(p->code);
}

static int pattern_compile(struct mcp_bytes text, struct pattern *ret)
{
	struct pattern p = { 0 };
	PCRE2_SIZE at;
	PCRE2_UCHAR why[128];
	int e;

	if (text.len > PATTERN_MAX)
		return mc_fail(-MC_EPARAM, "pattern has %u bytes, at most %u are allowed", text.len,
			       PATTERN_MAX);
	p.code = pcre2_compile(text.data, text.len, PCRE2_NEVER_BACKSLASH_C, &e, &at, NULL);
	if (!p.code) {
		pcre2_get_error_message(e, why, sizeof(why));
		return mc_fail(-MC_EPARAM, "bad pattern: %s at byte %zu", (const char *)why, at);
	}
	p.data = pcre2_match_data_create(1, NULL);
	p.ctx = pcre2_match_context_create(NULL);
	if (!p.data || !p.ctx) {
		pattern_free(&p);
		return -ENOMEM;
	}
	pcre2_set_match_limit(p.ctx, MATCH_LIMIT);
	pcre2_set_heap_limit(p.ctx, MATCH_HEAP_KIB);
	*ret = p;
	return 0;
}

/* 1 or 0; -MC_EPARAM when the pattern takes too long. */
static int pattern_match(const struct pattern *p, const char *key, uint32_t len)
{
	int r = pcre2_match(p->code, (PCRE2_SPTR)key, len, 0, 0, p->data, p->ctx);

	if (r >= 0)
		return 1;
	if (r == PCRE2_ERROR_NOMATCH)
		return 0;
	return mc_fail(-MC_EPARAM, "the pattern takes too long to match (%d)", r);
}

static uint64_t remove_batch(struct mcm *m, const struct match *mt, const struct pattern *p,
			     uint32_t flags, int *error)
{
	uint64_t n = 0;
	unsigned i;
	int r;

	for (i = 0; i < mt->n; i++) {
		const struct found *f = &mt->found[i];
		struct mcp_bytes key = mt->prefix;
		struct mcm_shard *sh;

		if (mt->keep_text)
			key = mcp_bytes(mt->text + f->key, f->len);
		r = p->code ? pattern_match(p, mt->text + f->key, f->len) : 1;
		if (r < 0) {
			*error = r;
			return n;
		}
		if (!r)
			continue;
		sh = mcm_index_lock_slot(&m->index, f->slot);
		n += remove_matched(m, sh, f, key, flags);
		mc_mutex_unlock(&sh->lock);
	}
	return n;
}

int mcm_remove_part(struct mcm *m, const struct mcp_remove_match *rq, struct mcp_remove_match_reply *ret)
{
	struct match mt = {
		.m = m, .prefix = rq->prefix, .keep_text = rq->pattern.len,
		.all_tenants = rq->flags & MCP_REMOVE_TENANTS,
	};
	unsigned batch = rq->pattern.len ? BATCH_MATCHED : BATCH;
	uint64_t pos = rq->sliced ? rq->at : 0, began = mc_now_ns();
	struct pattern p = { 0 };
	int r = 0;

	ret->removed = 0;
	ret->at = 0;
	r = mcm_scope_begin(m, NULL, rq->tenant, false, &mt.scope);
	if (r < 0)
		return r;
	if (rq->pattern.len) {
		r = pattern_compile(rq->pattern, &p);
		if (r < 0)
			return r;
	}
	while (r == 0 && pos < MCM_TABLE_END) {
		mt.n = 0;
		mt.text_len = 0;
		mcm_index_scan(&m->index, &pos, batch, match_collect, &mt);
		r = mt.error;
		if (r == 0)
			ret->removed += remove_batch(m, &mt, &p, rq->flags, &r);
		/* Check only after a batch: each part has to make progress. */
		if (rq->sliced && pos < MCM_TABLE_END && mc_now_ns() - began > SLICE_NS) {
			ret->at = pos;
			break;
		}
	}
	/* The answer also covers removals by others, which have to be durable too. */
	mcm_journal_depend(m);
	pattern_free(&p);
	free(mt.text);
	return r;
}

int mcm_remove_match(struct mcm *m, const struct mcp_remove_match *rq, uint64_t *ret_removed)
{
	struct mcp_remove_match whole = *rq;
	struct mcp_remove_match_reply reply;
	int r;

	whole.sliced = 0;
	r = mcm_remove_part(m, &whole, &reply);
	*ret_removed = reply.removed;
	return r;
}
