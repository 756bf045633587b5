/* SPDX-License-Identifier: Apache-2.0
 * adopt.c - descriptions of objects on disks, and objects that are added to the index by them. */
#include <config.h>

#include "master/task/adopt.h"

#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/metrics.h"
#include "master/ops/ops.h"
#include "master/session.h"
#include "master/task/task_i.h"
#include "proto/codec.h"

#define LOG "adopt"

MC_COUNTER(adopted, "mooncake_master_adopted_objects_total", "",
	   "Objects of a lost journal that were found on disks and are in the pool again")

MC_COUNTER(unnoted, "mooncake_master_removals_not_noted_total", "",
	   "Removed objects that their disk was not told of, because there were too many at once")

_Static_assert(MCP_TENANT_MAX <= UINT8_MAX, "the length of a tenant's name is one byte");

uint64_t mcm_adopt_cluster(const struct mcm *m)
{
	uint64_t h = mc_hash(m->conf.cluster_id, strlen(m->conf.cluster_id), 0);

	return h ? h : 1;
}

uint32_t mcm_adopt_describe(const struct mcm *m, uint32_t slot, void *buf, uint64_t *ret_name)
{
	struct mcm_object_record rec;
	struct mcm_packer p = { .bytes = buf };
	struct mcp_bytes key, tenant;
	uint32_t number;

	mcm_object_describe(m, slot, &rec);
	key = mcm_key_bare(mcp_bytes(rec.key, rec.key_len), &number);
	tenant = mcm_tenant_name(m, number);
	rec.key = key.data;
	rec.key_len = key.len;
	if (rec.group.len)
		rec.group = mcm_key_bare(rec.group, NULL);
	rec.reads &= MCM_MARKS_OF_READS;
	rec.copies = 1;
	rec.extent[0] = (struct mcm_extent_record){ .len = 1 };
	*ret_name = mc_hash(key.data, key.len, mc_hash(tenant.data, tenant.len, 0));
	*p.bytes++ = (uint8_t)tenant.len;
	memcpy(p.bytes, tenant.data, tenant.len);
	p.bytes += tenant.len;
	p.cap = MCM_ADOPT_MAX - 1 - tenant.len;
	mcm_pack_object(&p, &rec);
	return p.overflow ? 0 : (uint32_t)(1 + tenant.len + p.len);
}

/* ---- notes ------------------------------------------------------------------------------------- */

/* The segment's lock is held. */
static void gone_push(struct mcm_segment *s, uint64_t offset, uint64_t generation)
{
	struct mcm_gone *g = &s->gone;

	if (!g->ring)
		g->ring = malloc(MCM_GONE_MAX * sizeof(*g->ring));
	if (!g->ring)
		return;
	if (g->n == MCM_GONE_MAX) {
		g->head++;
		g->n--;
		mc_metric_add(&unnoted, 1);
	}
	g->ring[(g->head + g->n) % MCM_GONE_MAX].offset = offset;
	g->ring[(g->head + g->n++) % MCM_GONE_MAX].generation = generation;
}

void mcm_adopt_note(struct mcm *m, struct mcm_extent to, uint64_t generation)
{
	struct mcm_segment *s = mcm_segment(&m->segments, to.segment);

	MC_LOCKED(&s->lock);
	if (!mcm_segment_is(s, MCP_TRAIT_VOLATILE) && mcm_segment_state(s) != MCP_SEG_UNMOUNTING)
		gone_push(s, mcm_range_offset(&s->alloc, to.range), generation);
}

void mcm_adopt_note_gone(struct mcm *m, uint32_t slot)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);
	struct mcm_extent p[MCM_REPLICA_MAX];
	unsigned n = mcm_object_extents(&m->index, o, p);

	for (unsigned i = 0; i < n; i++)
		mcm_adopt_note(m, p[i], o->generation);
}

static unsigned gone_pop(struct mcm_segment *s, unsigned max, struct mcp_gone *ret)
{
	struct mcm_gone *g = &s->gone;
	unsigned n = 0;

	MC_LOCKED(&s->lock);
	for (; mcm_segment_state(s) == MCP_SEG_OK && g->n && n < max; g->n--, n++) {
		unsigned at = g->head++ % MCM_GONE_MAX;

		ret[n] = (struct mcp_gone){ s->id, g->ring[at].offset, g->ring[at].generation };
	}
	return n;
}

unsigned mcm_adopt_fetch_gone(struct mcm *m, struct mcm_session *s, unsigned max, struct mcp_gone *ret)
{
	struct mcm_plan p = { .m = m, .s = s };
	struct mcm_segment *at;
	unsigned i = 0, n = 0;

	MC_LOCKED(&m->tasks.lock);
	while (n < max && (at = mcm_plan_own(&p, &i)))
		if (!mcm_segment_is(at, MCP_TRAIT_VOLATILE))
			n += gone_pop(at, max - n, ret + n);
	return n;
}

/* ---- adding ------------------------------------------------------------------------------------ */

/* A description, with memory for the names that need a prefix. */
struct offered {
	struct mcm_object_record rec;
	struct mcp_bytes key, group;
	char key_buf[MCM_KEY_MAX], group_buf[MCM_GROUP_NAME_MAX];
};

static int offered_parse(struct mcp_bytes bytes, struct mcp_bytes *ret_tenant, struct mcm_object_record *ret)
{
	const uint8_t *p = bytes.data;
	struct mcm_record rec;
	uint32_t skip;
	uint8_t kind;
	int r;

	if (!bytes.len || bytes.len < 1u + p[0])
		return mc_fail(-MC_EPROTO, "a description without a tenant");
	skip = 1u + p[0];
	*ret_tenant = mcp_bytes(p + 1, p[0]);
	if (!mcm_record_next(p + skip, bytes.len - skip, &rec) || rec.type != MCM_REC_OBJECT)
		return mc_fail(-MC_EPROTO, "a description without a record");
	r = mcm_unpack_object(&rec, ret);
	if (r < 0)
		return r;
	kind = ret->flags & MCM_OBJ_KIND;
	if ((kind != MCP_KIND_OBJECT && kind != MCP_KIND_SYMLINK) || !ret->size || !ret->generation ||
	    ret->key_len > MCP_KEY_MAX || ret->group.len > MCP_GROUP_MAX || ret->key[ret->key_len - 1] == '/')
		return mc_fail(-MC_EPROTO, "not a description of an object with bytes");
	return 0;
}

static int offered_open(struct mcm *m, const struct mc_principal *identity, const struct mcp_adopt_item *item,
			struct offered *o)
{
	struct mcp_bytes tenant;
	struct mcm_scope sc;
	int r = offered_parse(item->record, &tenant, &o->rec);

	if (r == 0 && (item->offset % MCM_DISK_BLOCK || item->length % MCM_DISK_BLOCK ||
		       item->length < mcm_object_reserve(o->rec.size)))
		r = mc_fail(-MC_EPROTO, "a range that cannot have the object");
	if (r == 0 && !m->tenants.on && !mcm_tenant_is_default(tenant))
		r = mc_fail(-MC_ENOTENANT, "tenant \"%.*s\", but this master has no tenants", (int)tenant.len,
			    (const char *)tenant.data);
	if (r == 0)
		r = mcm_scope_begin(m, identity, tenant.len ? tenant : mcp_bytes("default", 7), true, &sc);
	if (r < 0)
		return r;
	o->key = mcm_scope_key(sc, mcp_bytes(o->rec.key, o->rec.key_len), o->key_buf);
	o->group = mcm_scope_name(sc, o->rec.group, MCP_GROUP_MAX, o->group_buf);
	return mcm_key_ok(o->key) ? 0 : mc_fail(-MC_EKEY, "key has %u bytes", o->key.len);
}

/* The table's lock is held: the segment, if it adopts objects of this client. */
static int adopt_segment(struct mcm *m, struct mcp_id client, const struct mcp_adopt *rq, struct mcm_segment **ret)
{
	struct mcm_segment *s = mcm_segments_find(&m->segments, rq->segment);

	if (!s || !mcm_load_relaxed(&s->adopting) || s->epoch != rq->epoch || !mcp_id_eq(s->client, client))
		return mc_fail(-MC_ENOSEGMENT, "the segment adopts no objects");
	if (mcm_segment_state(s) != MCP_SEG_OK)
		return mc_fail(-MC_ENOTREADY, "the segment's owner has to mount it again");
	*ret = s;
	return 0;
}

static int adopt_take(struct mcm *m, struct mcp_id client, const struct mcp_adopt *rq,
		      const struct mcp_adopt_item *item, struct mcm_extent *ret)
{
	struct mcm_segment *s;
	int r;

	mc_rwlock_rdlock(&m->segments.lock);
	r = adopt_segment(m, client, rq, &s);
	if (r == 0) {
		mc_mutex_lock(&s->lock);
		r = mcm_alloc_take_at(&s->alloc, item->offset >> MCM_GRANULE_SHIFT, item->length >> MCM_GRANULE_SHIFT,
				      &ret->range);
		mcm_segment_used(s);
		mc_mutex_unlock(&s->lock);
		ret->segment = s->index;
	}
	mc_rwlock_unlock(&m->segments.lock);
	return r == -MC_EINTERNAL ? -MC_EEXISTS : r;
}

/* An older version that was adopted from another disk gives way. */
static bool adopt_replaces(const struct mcm *m, uint32_t old, const struct mcm_object_record *rec)
{
	const struct mcm_object *o = mcm_object(&m->index, old);

	return o->ext && mcm_ext(&m->index, o->ext)->adopted && o->generation < rec->generation;
}

static uint32_t soft_left(const struct mcm *m, const struct mcm_object_record *rec, uint64_t wall)
{
	uint64_t left = rec->flags & MCM_OBJ_SOFT && rec->soft_until_ms > wall ? rec->soft_until_ms - wall : 0;
	uint64_t most = m->conf.max_kv_soft_pin_ttl < UINT32_MAX ? m->conf.max_kv_soft_pin_ttl : UINT32_MAX;

	return (uint32_t)(left < most ? left : most);
}

/* The object takes over the extent, or it is freed. */
static int adopt_commit(struct mcm *m, const struct offered *of, struct mcm_extent extent, uint32_t group)
{
	const struct mcm_object_record *rec = &of->rec;
	uint32_t hash = mcm_index_hash(&m->index, of->key.data, of->key.len), old;
	struct mcm_shard *sh = mcm_index_shard(&m->index, hash);
	struct mcm_commit c = {
		.key = of->key.data, .len = of->key.len, .hash = hash, .crc = rec->crc, .size = rec->size,
		.generation = rec->generation, .group = group, .data_type = rec->data_type,
		.flags = rec->flags & (MCM_OBJ_KIND | MCM_OBJ_HARD), .now_ms = mcm_now_ms(m), .wall_ms = rec->mtime_ms,
		.attrs = rec->attrs.set || rec->attrs.xattrs.len ? &rec->attrs : NULL, .adopted = true, .counted = true,
		.copies = 1, .extent = { extent },
	};

	c.soft_ms = soft_left(m, rec, mc_wall_ns() / MC_NS_PER_MS);
	c.flags |= c.soft_ms ? MCM_OBJ_SOFT : 0;
	MC_LOCKED(&sh->lock);
	old = mcm_shard_find(&m->index, sh, hash, of->key.data, of->key.len);
	if (old && !adopt_replaces(m, old, rec)) {
		mcm_extent_free(m, &extent);
		mcm_journal_depend(m);
		return mc_fail(-MC_EEXISTS, "the key exists");
	}
	return mcm_object_commit(m, sh, &c, old);
}

/* Later generations are larger than @generation of another pool: of a version that is put from now on, and of a copy
 * that is written over this range. */
static int generation_above(struct mcm *m, uint64_t generation)
{
	uint64_t n = generation >> MCM_PUT_SHARD_BITS, now = __atomic_load_n(&m->generation, __ATOMIC_RELAXED);

	/* The upper half stays free, so that no client can use up the numbers. */
	if (n > UINT64_MAX >> (MCM_PUT_SHARD_BITS + 1))
		return mc_fail(-MC_EPROTO, "no master has assigned the generation %llu",
			       (unsigned long long)generation);
	while (n >= now && !__atomic_compare_exchange_n(&m->generation, &now, n + 1, false, __ATOMIC_RELAXED,
							__ATOMIC_RELAXED))
		;
	return 0;
}

int mcm_adopt_read(const struct mcm *m, struct mcp_bytes record, struct mcm_attrs_memory *mem,
		   struct mcp_describe_reply *ret)
{
	struct mcm_object_record rec;
	struct mcp_bytes tenant;
	int r = offered_parse(record, &tenant, &rec);

	if (r < 0)
		return r;
	*ret = (struct mcp_describe_reply){
		.tenant = tenant, .key = mcp_bytes(rec.key, rec.key_len), .group = rec.group, .size = rec.size,
		.crc = rec.crc, .kind = rec.flags & MCM_OBJ_KIND, .data_type = rec.data_type,
		.flags = rec.flags & MCM_OBJ_HARD ? MCP_OBJ_HARD_PIN : 0,
		.soft_pin_ms = soft_left(m, &rec, mc_wall_ns() / MC_NS_PER_MS),
	};
	ret->flags |= ret->soft_pin_ms ? MCP_OBJ_SOFT_PIN : 0;
	if (!rec.attrs.set && !rec.attrs.xattrs.len)
		return 0;
	mcm_attrs_to_wire(&rec.attrs, mem);
	ret->attrs = mcp_seq(mem->attrs, 1);
	return 0;
}

int mcm_adopt(struct mcm *m, const struct mcm_session *s, const struct mcp_adopt *rq,
	      const struct mcp_adopt_item *item)
{
	struct mcm_extent extent;
	struct offered of;
	uint32_t group = 0;
	int r;

	r = offered_open(m, s->identity, item, &of);
	if (r == 0)
		r = generation_above(m, of.rec.generation > item->order ? of.rec.generation : item->order);
	if (r == 0 && mcm_count_full(m, of.key.len))
		r = mc_fail(-MC_ENOSPACE, "object limit %llu reached", (unsigned long long)m->index.max);
	if (r == 0)
		r = mcm_count_admit(m, of.key.len);
	if (r < 0)
		return r;
	if (of.group.len)
		r = mcm_group_get(m, of.group, &group);
	if (r == 0)
		r = adopt_take(m, s->client, rq, item, &extent);
	if (r == 0)
		r = adopt_commit(m, &of, extent, group);
	mcm_group_unref(m, group);
	if (r < 0)
		mcm_count_leave(m, of.key.len);
	else
		mc_metric_add(&adopted, 1);
	return r;
}

int mcm_adopt_end(struct mcm *m, struct mcp_id client, const struct mcp_adopt *rq)
{
	char name[MCM_NAME_MAX + 1];
	struct mcm_segment *s;
	uint64_t objects = 0;
	int r;

	mc_rwlock_wrlock(&m->segments.lock);
	r = adopt_segment(m, client, rq, &s);
	if (r == 0) {
		mcm_store_relaxed(&s->adopting, false);
		objects = mcm_load_relaxed(&s->objects);
		memcpy(name, s->name, sizeof(name));
	}
	mc_rwlock_unlock(&m->segments.lock);
	if (r < 0)
		return r;
	mc_info(LOG, "a disk of another pool has offered its objects segment=%s objects=%llu", name,
		(unsigned long long)objects);
	return 0;
}
