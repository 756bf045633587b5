/* SPDX-License-Identifier: Apache-2.0
 * put.c - begin, end and abort of puts. */
#include <config.h>

#include "master/ops/put.h"

#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/metrics.h"
#include "master/mcm_i.h"
#include "master/ops/ops.h"
#include "master/ops/put_charge.h"
#include "master/ops/uses.h"
#include "master/session.h"
#include "master/task/task.h"
#include "proto/codec.h"
#include "proto/rpc_server.h"

#define PUTS_SHIFT 12
#define COPY_KEY mcp_bytes("copy", 4)	/* key of the puts of tasks' copies */

MC_GAUGE(unfinished, "mooncake_master_unfinished_puts", "", "Puts begun and not yet ended")
MC_COUNTER(timed_out, "mooncake_master_puts_timed_out_total", "",
	   "Puts revoked because their time-out expired")
MC_COUNTER(abandoned, "mooncake_master_puts_abandoned_total", "",
	   "Puts revoked because their connection ended")

const struct mcm_table_type mcm_puts_by_generation = {
	.link = offsetof(struct mcm_put, next), .hash = offsetof(struct mcm_put, hash),
	/* Each batch fills it again. */
	.shift = 0, .load = 4, .keep = 9,
};

void mcm_puts_init(struct mcm_puts *ps)
{
	unsigned i;

	memset(ps, 0, sizeof(*ps));
	for (i = 0; i < MCM_PUT_SHARDS; i++) {
		mc_mutex_init(&ps->shard[i].lock);
		mcm_slab_init(&ps->shard[i].slab, sizeof(struct mcm_put), PUTS_SHIFT);
		mcm_keys_init(&ps->shard[i].keys);
	}
}

void mcm_puts_done(struct mcm_puts *ps)
{
	unsigned i;

	for (i = 0; i < MCM_PUT_SHARDS; i++) {
		mcm_table_done(&ps->shard[i].table);
		mcm_keys_done(&ps->shard[i].keys);
		mcm_slab_done(&ps->shard[i].slab);
		mc_mutex_destroy(&ps->shard[i].lock);
	}
}

static uint32_t generation_hash(uint64_t generation)
{
	return (uint32_t)((generation >> MCM_PUT_SHARD_BITS) * 0x9e3779b97f4a7c15ull >> 32);
}

void mcm_generation_seen(struct mcm *m, uint64_t seen)
{
	uint64_t n = seen >> MCM_PUT_SHARD_BITS, now = __atomic_load_n(&m->generation, __ATOMIC_RELAXED);
	uint64_t upto = __atomic_load_n(&m->puts.quarantine.restored_upto, __ATOMIC_RELAXED);

	/* The upper half stays free, so that no client can use up the numbers. */
	if (n < now || n > UINT64_MAX >> (MCM_PUT_SHARD_BITS + 1))
		return;
	while (n >= now && !__atomic_compare_exchange_n(&m->generation, &now, n + 1, false, __ATOMIC_RELAXED,
							__ATOMIC_RELAXED))
		;
	while (seen > upto && !__atomic_compare_exchange_n(&m->puts.quarantine.restored_upto, &upto, seen, false,
							   __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

/* ---- the table; the put shard's lock held ---- */

static uint32_t put_find(struct mcm_put_shard *ps, uint64_t generation)
{
	uint32_t id = *mcm_table_head(&ps->table, mcm_table_pos(&mcm_puts_by_generation,
								 generation_hash(generation)));

	while (id && mcm_put_at(ps, id)->generation != generation)
		id = mcm_put_at(ps, id)->next;
	return id;
}

static void age_append(struct mcm_put_shard *ps, uint32_t id)
{
	struct mcm_put *p = mcm_put_at(ps, id);

	p->age_next = 0;
	p->age_prev = ps->newest;
	if (ps->newest)
		mcm_put_at(ps, ps->newest)->age_next = id;
	else
		ps->oldest = id;
	ps->newest = id;
}

static void age_unlink(struct mcm_put_shard *ps, uint32_t id)
{
	const struct mcm_put *p = mcm_put_at(ps, id);

	if (p->age_next)
		mcm_put_at(ps, p->age_next)->age_prev = p->age_prev;
	else
		ps->newest = p->age_prev;
	if (p->age_prev)
		mcm_put_at(ps, p->age_prev)->age_next = p->age_next;
	else
		ps->oldest = p->age_next;
}

static int put_insert(struct mcm *m, struct mcm_put_shard *ps, const struct mcm_put *put,
		      struct mcp_bytes key)
{
	struct mcm_session *s = put->session;
	struct mcm_put *p;
	uint32_t id;
	int r;

	if (ps->free) {
		id = ps->free;
	} else {
		r = mcm_slab_take(&ps->slab, 1, &id);
		if (r < 0)
			return r;
		mcm_put_at(ps, id)->next = 0;
		ps->free = id;
	}
	p = mcm_put_at(ps, id);
	ps->free = p->next;
	*p = *put;
	r = mcm_keys_add(&ps->keys, key.data, key.len, &p->key);
	if (r < 0) {
		p->next = ps->free;
		ps->free = id;
		return r;
	}
	p->key_len = (uint16_t)key.len;
	p->hash = generation_hash(p->generation);
	mcm_table_insert(&ps->table, &mcm_puts_by_generation, &ps->slab, id);
	p->sess_prev = 0;
	p->sess_next = s->puts;
	if (s->puts)
		mcm_put_at(ps, s->puts)->sess_prev = id;
	s->puts = id;
	s->n_puts++;
	s->put_keys += key.len;
	age_append(ps, id);
	mcm_journal_put(m, p->generation, p->extent, p->copies);
	return 0;
}

/* Remove a put from its table; the copy in @ret, with the ranges, belongs to the caller. */
static void put_remove(struct mcm_put_shard *ps, uint32_t id, struct mcm_put *ret)
{
	struct mcm_put *p = mcm_put_at(ps, id);

	mcm_table_remove(&ps->table, &mcm_puts_by_generation, &ps->slab, id);
	if (p->sess_next)
		mcm_put_at(ps, p->sess_next)->sess_prev = p->sess_prev;
	if (p->sess_prev)
		mcm_put_at(ps, p->sess_prev)->sess_next = p->sess_next;
	else
		p->session->puts = p->sess_next;
	p->session->n_puts--;
	p->session->put_keys -= p->key_len;
	age_unlink(ps, id);
	*ret = *p;
	mcm_keys_del(&ps->keys, p->key, p->key_len);
	p->next = ps->free;
	ps->free = id;
}

static struct mcm_put_shard *put_shard_of(struct mcm *m, uint64_t generation)
{
	return &m->puts.shard[generation & (MCM_PUT_SHARDS - 1)];
}

/* Only the session that began a put may end it. */
static int put_claim_locked(struct mcm_put_shard *ps, const struct mcm_session *s,
			    const struct mcp_put_done *done, struct mcm_put *ret)
{
	const struct mcm_put *p;
	uint32_t id;

	id = put_find(ps, done->generation);
	p = mcm_put_at(ps, id);
	if (!id || p->copy || p->session != s || p->key_len != done->key.len ||
	    memcmp(mcm_keys_at(&ps->keys, p->key), done->key.data, done->key.len) != 0)
		return mc_fail(-MC_ESTALE_PUT, "no unfinished put of this connection has this key and generation");
	put_remove(ps, id, ret);
	return 0;
}

static int put_claim(struct mcm *m, const struct mcm_session *s, const struct mcp_put_done *done,
		     struct mcm_put *ret)
{
	struct mcm_put_shard *ps = put_shard_of(m, done->generation);
	int r;

	mc_mutex_lock(&ps->lock);
	r = put_claim_locked(ps, s, done, ret);
	mc_mutex_unlock(&ps->lock);
	mcm_account_puts(m, s);
	if (r == 0)
		mc_metric_add(&unfinished, -1);
	return r;
}

/* The puts of a session are in one shard: it is mostly locked once. */
static void put_claim_many(struct mcm *m, const struct mcm_session *s, const struct mcp_put_done *done,
			   unsigned n, struct mcm_put *put, int *ret)
{
	struct mcm_put_shard *ps = NULL, *next;
	unsigned i, claimed = 0;

	for (i = 0; i < n; i++) {
		next = put_shard_of(m, done[i].generation);
		if (next != ps) {
			if (ps)
				mc_mutex_unlock(&ps->lock);
			ps = next;
			mc_mutex_lock(&ps->lock);
		}
		ret[i] = put_claim_locked(ps, s, &done[i], &put[i]);
		claimed += ret[i] == 0;
	}
	if (ps)
		mc_mutex_unlock(&ps->lock);
	if (s->share)
		mcm_account_puts(m, s);
	mc_metric_add(&unfinished, -(int64_t)claimed);
}

/* ---- space ---- */

static void put_free_ranges(struct mcm *m, const struct mcm_put *put)
{
	unsigned i;

	if (put->copies)
		mcm_journal_put_gone(m, put->generation);
	for (i = 0; i < put->copies; i++)
		mcm_extent_free(m, &put->extent[i]);
}

/* Release the count, group reference and quota of a put, but not its ranges. */
static void put_release_charges(struct mcm *m, const struct mcm_put *put)
{
	if (put->counted)
		mcm_count_leave(m, put->key_len);
	mcm_group_unref(m, put->group);
	mcm_tenant_refund(m, put->tenant, put->charged);
}

/* The writer has ended all of its writes. */
static void put_cancel(struct mcm *m, const struct mcm_put *put)
{
	put_free_ranges(m, put);
	put_release_charges(m, put);
}

/* The writer, of the account with the key @account, is gone or stands still: it may still write. */
static void put_abandon(struct mcm *m, const struct mcm_put *put, uint64_t account)
{
	if (!put->copies) {
		put_cancel(m, put);
		return;
	}
	if (put->counted)
		mcm_count_leave(m, put->key_len);
	mcm_group_unref(m, put->group);
	mcm_quarantine_put(m, put, account);
}

/* ---- start ---- */

static uint8_t put_object_flags(uint32_t put_flags, uint8_t kind)
{
	return (uint8_t)(kind | (put_flags & MCP_PUT_HARD_PIN ? MCM_OBJ_HARD : 0) |
			 (put_flags & MCP_PUT_SOFT_PIN ? MCM_OBJ_SOFT : 0));
}

static int put_check_item(const struct mcp_put_item *item)
{
	if (!mcm_key_ok(item->key))
		return mc_fail(-MC_EKEY, "key has %u bytes, must have 1 to %u", item->key.len, MCP_KEY_MAX);
	if (item->kind > MCP_KIND_SPECIAL || (item->kind == MCP_KIND_SPECIAL && item->size))
		return mc_fail(-MC_EPARAM, "unknown object kind %u, or a special file with bytes", item->kind);
	if (item->size > MCM_SIZE_MAX)
		return mc_fail(-MC_ETOOBIG, "object has %llu bytes", (unsigned long long)item->size);
	return 0;
}

static int put_check_absent(struct mcm *m, struct mcp_bytes key, uint32_t hash)
{
	struct mcm_shard *sh = mcm_index_shard(&m->index, hash);
	uint32_t slot;

	MC_LOCKED(&sh->lock);
	slot = mcm_shard_find(&m->index, sh, hash, key.data, key.len);
	if (!slot)
		return 0;
	if (mcm_object_readable(m, mcm_object(&m->index, slot)))
		return -MC_EEXISTS;
	return mcm_object_missing(m, mcm_object(&m->index, slot)) == -MC_ENOTREADY ? -MC_ENOTREADY : 0;
}

/* An upsert must not change the group of an object. */
static int put_check_group(const struct mcm *m, const struct mcm_object *o, uint32_t group)
{
	uint32_t is = o->ext ? mcm_ext(&m->index, o->ext)->group : 0;

	if (group && group != is && mcm_object_readable(m, o))
		return mc_fail(-MC_EPARAM, "the object is in another group");
	return 0;
}

static int put_check_upsert(struct mcm *m, struct mcp_bytes key, uint32_t group)
{
	uint32_t hash = mcm_index_hash(&m->index, key.data, key.len), slot;
	struct mcm_shard *sh = mcm_index_shard(&m->index, hash);

	MC_LOCKED(&sh->lock);
	slot = mcm_shard_find(&m->index, sh, hash, key.data, key.len);
	return slot ? put_check_group(m, mcm_object(&m->index, slot), group) : 0;
}

/* Take over from the version that an upsert replaces: hard pin, group, preserved soft pin. */
static void commit_inherit(const struct mcm *m, const struct mcm_put *put, const struct mcm_object *o,
			   struct mcm_commit *c)
{
	c->flags |= o->flags & MCM_OBJ_HARD;
	if (o->ext && !c->group)
		c->group = mcm_ext(&m->index, o->ext)->group;
	if (put->soft_pin == MCP_SOFT_PIN_PRESERVE && !(c->flags & MCM_OBJ_SOFT) &&
	    mcm_evict_soft(&m->index, o, mcm_now_tick(m))) {
		c->flags |= MCM_OBJ_SOFT;
		c->soft_until = mcm_ext(&m->index, o->ext)->soft_until;
	}
}

/* Common values of the puts that are published together. */
struct publication {
	uint64_t now_ms, wall_ms;
	struct mcm_names_dir at;		/* directory of most of the keys; .dir 0: not opened */
};

static struct publication publication_now(const struct mcm *m)
{
	return (struct publication){ .now_ms = mcm_now_ms(m), .wall_ms = mc_wall_ns() / MC_NS_PER_MS };
}

/* Publish a put that was claimed or never registered.  Its ranges are used or freed. */
static int put_publish(struct mcm *m, const struct publication *pb, const struct mcm_put *put,
		       struct mcp_bytes key, uint32_t hash, uint32_t crc, const struct mcp_seq *attrs)
{
	struct mcm_shard *sh = mcm_index_shard(&m->index, hash);
	struct mcm_commit c = {
		.key = key.data, .len = key.len, .hash = hash, .crc = crc, .size = put->size,
		.now_ms = pb->now_ms, .wall_ms = pb->wall_ms,
		.dir = mcm_names_dir_contains(&pb->at, key.data, key.len) ? pb->at.dir : 0,
		.generation = put->generation, .soft_ms = put->soft_ms,
		.flags = put_object_flags(put->flags, put->kind), .copies = put->copies,
		.group = put->group, .data_type = put->data_type, .charged = put->charged,
		.counted = put->counted,
	};
	struct mcm_attrs_value has;
	const struct mcm_object *o;
	uint32_t old, replaced = 0, keeps = 0;
	int r = 0;

	memcpy(c.extent, put->extent, put->copies * sizeof(c.extent[0]));
	mc_mutex_lock(&sh->lock);
	old = mcm_shard_find(&m->index, sh, hash, key.data, key.len);
	if (old) {
		o = mcm_object(&m->index, old);
		if (!mcm_object_readable(m, o))
			;	/* readers have lost it: any version may replace it */
		else if (!(put->flags & MCP_PUT_UPSERT))
			r = -MC_EEXISTS;
		else if (o->generation > put->generation &&
			 pb->now_ms >= put->began_ms + m->conf.put_start_discard_timeout_sec)
			r = mc_fail(-MC_ESTALE_PUT, "a newer version was committed meanwhile");
		else
			r = put_check_group(m, o, put->group);
		if (r == 0 && mcm_object_readable(m, o)) {
			commit_inherit(m, put, o, &c);
			replaced = old;
			keeps = mcm_load_relaxed(&o->marks) & MCM_MARK_ATTRS ? old : 0;
		}
	}
	if (r == 0 && (keeps || attrs->count || put->kind == MCP_KIND_SPECIAL)) {
		r = mcm_attrs_of_put(m, attrs, put->kind, replaced, &has);
		c.attrs = &has;
	}
	if (r == 0) {
		r = mcm_object_commit(m, sh, &c, old);
	} else {
		put_free_ranges(m, put);
		mcm_tenant_refund(m, put->tenant, put->charged);
		mcm_journal_depend(m);
	}
	mc_mutex_unlock(&sh->lock);
	if (r < 0 && put->counted)
		mcm_count_leave(m, put->key_len);
	mcm_group_unref(m, put->group);
	return r;
}

/* Count the object.  Above the limit, an upsert of an existing key goes uncounted, because it
 * replaces an object. */
static int put_count(struct mcm *m, const struct mcm_put_request *rq, struct mcp_bytes key, uint32_t hash,
		     struct mcm_put *put)
{
	int r = mcm_count_admit(m, key.len);

	put->counted = r == 0;
	return r == -MC_ENOSPACE && rq->flags & MCP_PUT_UPSERT && put_check_absent(m, key, hash) < 0 ? 0 : r;
}

/* Acquire the resources of a put: group, quota, object count, memory. */
static int put_acquire(struct mcm *m, struct mcm_put_request *rq, const struct mcp_put_item *item,
		       uint32_t hash, struct mcm_put *put)
{
	uint64_t want = item->size * rq->copies;
	unsigned copies = 0;
	int r;

	if (item->group.len) {
		r = mcm_group_get(m, item->group, &put->group);
		if (r == 0 && rq->flags & MCP_PUT_UPSERT)
			r = put_check_upsert(m, item->key, put->group);
		if (r < 0)
			goto fail;
	}
	put->key_len = (uint16_t)item->key.len;
	put->tenant = mcm_key_tenant(item->key.data, item->key.len);
	r = mcm_put_charge(m, rq, item, want, put);
	if (r < 0)
		goto fail;
	r = put_count(m, rq, item->key, hash, put);
	if (r == 0 && item->size)
		r = mcm_allocate(m, rq, mcm_object_reserve(item->size), put->extent, &copies);
	if (r < 0)
		goto fail;
	put->copies = (uint8_t)copies;
	/* Fewer copies than requested cost less. */
	put->charged = item->size * copies;
	mcm_tenant_refund(m, put->tenant, want - put->charged);
	return 0;
fail:
	put_release_charges(m, put);
	return r;
}

/* Tell the writer where to write. */
static void put_grant(const struct mcm *m, const struct mcm_put *put, struct mcm_put_granted *ret)
{
	unsigned i;

	ret->generation = put->generation;
	ret->copies = put->copies;
	for (i = 0; i < put->copies; i++) {
		struct mcm_segment *seg = mcm_segment(&m->segments, put->extent[i].segment);

		mcp_replica_set(&ret->replica[i], seg->id, mcm_range_offset(&seg->alloc, put->extent[i].range), 0, 0);
	}
}

static bool put_at_once(const struct mcm_put_request *rq, const struct mcp_put_item *item)
{
	return !item->size && rq->flags & MCP_PUT_COMMIT;
}

/* Check an item and acquire its resources; an item that commits at once is published. */
static int put_begin(struct mcm *m, struct mcm_put_request *rq, const struct mcp_put_item *item,
		     uint32_t hash, struct mcm_put_room *room, struct mcm_put *put)
{
	struct publication pb;
	int r;

	put->size = item->size;
	put->kind = item->kind;
	r = put_check_item(item);
	if (r == 0 && !(rq->flags & MCP_PUT_UPSERT))
		r = put_check_absent(m, item->key, hash);
	/* The client treats it as a put that succeeded, so the existing object has to be durable. */
	if (r == -MC_EEXISTS)
		mcm_journal_depend(m);
	if (r == 0 && !put_at_once(rq, item))
		r = mcm_put_room_check(m, room, item->key.len);
	if (r == 0)
		r = put_acquire(m, rq, item, hash, put);
	if (r < 0)
		return r;
	if (put_at_once(rq, item)) {
		pb = publication_now(m);
		return put_publish(m, &pb, put, item->key, hash, 0, &item->attrs);
	}
	room->puts--;
	room->keys -= item->key.len;
	return 0;
}

/* Register the begun puts; readers do not see them yet. */
static void put_insert_many(struct mcm *m, const struct mcm_put_request *rq,
			    const struct mcp_put_item *items, unsigned n, struct mcm_put *put, int *ret)
{
	struct mcm_put_shard *ps = &m->puts.shard[put->session->put_shard];
	bool lost[MCM_PREFETCH_MAX] = { false };
	unsigned i, inserted = 0;

	mc_mutex_lock(&ps->lock);
	for (i = 0; i < n; i++) {
		if (ret[i] < 0 || put_at_once(rq, &items[i]))
			continue;
		ret[i] = put_insert(m, ps, &put[i], items[i].key);
		lost[i] = ret[i] < 0;
		inserted += !lost[i];
	}
	if (put->session->share)
		mcm_account_puts_locked(put->session);
	mc_mutex_unlock(&ps->lock);
	mc_metric_add(&unfinished, inserted);
	for (i = 0; i < n; i++)
		if (lost[i])
			put_cancel(m, &put[i]);
}

void mcm_put_start_many(struct mcm *m, struct mcm_session *s, struct mcm_put_request *rq,
			const struct mcp_put_item *items, unsigned n,
			struct mcm_put_granted *ret_granted, int *ret)
{
	uint64_t first = __atomic_fetch_add(&m->generation, n, __ATOMIC_RELAXED);
	uint64_t now = mcm_now_ms(m);
	struct mcm_put put[MCM_PREFETCH_MAX];
	struct mcm_put_room room = mcm_put_room(m, s);
	unsigned i;
	uint32_t hash[MCM_PREFETCH_MAX];
	bool again = false;

	for (i = 0; i < n; i++) {
		hash[i] = mcm_index_hash(&m->index, items[i].key.data, items[i].key.len);
		mcm_learn_prefetch(&m->learn, hash[i]);
	}
	if (n > 1)
		mcm_index_prefetch(&m->index, hash, n, NULL);
	for (i = 0; i < n; i++) {
		ret[i] = MCP_AGAIN;
		if (again)
			continue;
		put[i] = (struct mcm_put){
			.generation = (first + i) << MCM_PUT_SHARD_BITS | s->put_shard,
			.began_ms = now, .session = s, .client = s->client, .engine = s->engine,
			.fence = s->fence,
			.soft_ms = rq->soft_ms, .soft_pin = rq->soft_pin,
			.data_type = rq->data_type, .flags = (uint8_t)rq->flags,
		};
		ret[i] = put_begin(m, rq, &items[i], hash[i], &room, &put[i]);
		again = ret[i] == MCP_AGAIN;
	}
	put_insert_many(m, rq, items, n, put, ret);
	mcm_uses_puts(m, hash, n, ret);
	for (i = 0; i < n; i++)
		if (ret[i] == 0)
			put_grant(m, &put[i], &ret_granted[i]);
}

int mcm_put_start(struct mcm *m, struct mcm_session *s, struct mcm_put_request *rq,
		  const struct mcp_put_item *item, struct mcm_put_granted *ret)
{
	int r;

	mcm_put_start_many(m, s, rq, item, 1, ret, &r);
	return r;
}

/* ---- end ---- */

/* Prefetch the memory that publishing these will write to: the shards' next objects and keys, and
 * the first key's directory, which mostly is the directory of all. */
static void put_prefetch(struct mcm *m, const struct mcp_put_done *done, const uint32_t *hash, unsigned n,
			 struct publication *pb)
{
	uint32_t len[MCM_PREFETCH_MAX];
	unsigned i;

	for (i = 0; i < n; i++)
		len[i] = done[i].key.len;
	mcm_index_prefetch(&m->index, hash, n, len);
	for (i = 0; i < n; i++) {
		mcm_learn_prefetch(&m->learn, hash[i]);
		mcm_learn_prefetch_object(&m->learn, mcm_shard_next(&m->index, hash[i]));
	}
	mcm_names_open(&m->names, done[0].key.data, done[0].key.len, &pb->at);
	if (pb->at.dir)
		mcm_names_prefetch(&m->names, pb->at.dir, hash, n);
}

/* Reduce a claimed put to the bytes that were written. */
static int put_trim(struct mcm *m, struct mcm_put *put, uint64_t size)
{
	uint64_t len = mcm_object_reserve(size);
	unsigned i;

	if (!size || size == put->size)
		return 0;
	if (size > put->size) {
		put_cancel(m, put);
		return mc_fail(-MC_EPARAM, "size exceeds the reserved size");
	}
	mcm_journal_put_trimmed(m, put->generation, put->extent, put->copies, mcm_alloc_round(len));
	for (i = 0; i < put->copies; i++)
		mcm_extent_trim(m, &put->extent[i], len);
	put->size = size;
	return 0;
}

void mcm_put_end_many(struct mcm *m, const struct mcm_session *s, const struct mcp_put_done *done, unsigned n,
		      int *ret)
{
	struct publication pb = publication_now(m);
	struct mcm_put put[MCM_PREFETCH_MAX];
	uint32_t hash[MCM_PREFETCH_MAX];
	unsigned i;

	for (i = 0; i < n; i++)
		hash[i] = mcm_index_hash(&m->index, done[i].key.data, done[i].key.len);
	put_claim_many(m, s, done, n, put, ret);
	if (n > 1 && ret[0] == 0)
		put_prefetch(m, done, hash, n, &pb);
	for (i = 0; i < n; i++) {
		if (ret[i] == 0)
			ret[i] = put_trim(m, &put[i], done[i].size);
		if (ret[i] == 0)
			ret[i] = put_publish(m, &pb, &put[i], done[i].key, hash[i], done[i].crc, &done[i].attrs);
	}
	mcm_names_close(&m->names, &pb.at);
}

int mcm_put_end(struct mcm *m, const struct mcm_session *s, const struct mcp_put_done *done)
{
	int r;

	mcm_put_end_many(m, s, done, 1, &r);
	return r;
}

int mcm_put_revoke(struct mcm *m, const struct mcm_session *s, const struct mcp_put_done *done)
{
	struct mcm_put put;
	int r = put_claim(m, s, done, &put);

	if (r == 0)
		put_cancel(m, &put);
	return r;
}

/* ---- copies of tasks ---- */

int mcm_put_copy(struct mcm *m, struct mcm_session *s, struct mcm_unit *unit)
{
	struct mcm_put_shard *ps = &m->puts.shard[s->put_shard];
	struct mcm_put put = {
		.size = unit->size, .began_ms = mcm_now_ms(m), .session = s, .client = s->client,
		.engine = s->engine, .fence = s->fence, .copies = 1, .extent = { unit->to }, .copy = true,
		.unit = unit,
	};
	struct mcm_put_room room = mcm_put_room(m, s);
	int r;

	r = mcm_put_room_check(m, &room, COPY_KEY.len);
	if (r < 0)
		return r;
	put.generation = unit->put = mcm_generation_next(m, s->put_shard);
	mc_mutex_lock(&ps->lock);
	r = put_insert(m, ps, &put, COPY_KEY);
	mcm_account_puts_locked(s);
	mc_mutex_unlock(&ps->lock);
	if (r == 0)
		mc_metric_add(&unfinished, 1);
	return r;
}

int mcm_put_claim_copy(struct mcm *m, const struct mcm_session *s, uint64_t generation, struct mcm_put *ret)
{
	struct mcm_put_shard *ps = &m->puts.shard[generation & (MCM_PUT_SHARDS - 1)];
	uint32_t id;

	MC_LOCKED(&ps->lock);
	id = put_find(ps, generation);
	if (!id || !mcm_put_at(ps, id)->copy || mcm_put_at(ps, id)->session != s)
		return -MC_ESTALE_PUT;
	put_remove(ps, id, ret);
	mcm_account_puts_locked(s);
	mc_metric_add(&unfinished, -1);
	return 0;
}

void mcm_put_release_copy(struct mcm *m, const struct mcm_put *put)
{
	put_cancel(m, put);
}

void mcm_put_detach_unit(struct mcm *m, uint64_t generation)
{
	struct mcm_put_shard *ps = put_shard_of(m, generation);
	struct mcm_unit *u = NULL;
	uint32_t id;

	mc_mutex_lock(&ps->lock);
	id = put_find(ps, generation);
	if (id)
		u = TAKE_PTR(mcm_put_at(ps, id)->unit);
	mc_mutex_unlock(&ps->lock);
	if (u)
		mcm_unit_revoked(m, u, false);
}

void mcm_puts_abandon(struct mcm *m, struct mcm_session *s)
{
	struct mcm_put_shard *ps = &m->puts.shard[s->put_shard];
	struct mcm_put put;
	bool found;

	do {
		mc_mutex_lock(&ps->lock);
		found = s->puts;
		if (found)
			put_remove(ps, s->puts, &put);
		mc_mutex_unlock(&ps->lock);
		if (found) {
			mc_metric_add(&unfinished, -1);
			mc_metric_add(&abandoned, 1);
			put_abandon(m, &put, mcm_account_key(s));
			if (put.unit)
				mcm_unit_revoked(m, put.unit, true);
		}
	} while (found);
}

/* Claim the shard's oldest put if it began before @before.  Of a task's copy, take only the unit;
 * its put is checked again as if it began @now. */
static bool put_take_old(struct mcm_put_shard *ps, uint64_t before, uint64_t now, struct mcm_put *ret,
			 uint64_t *ret_account)
{
	const struct mcm_session *s;
	uint32_t id;

	MC_LOCKED(&ps->lock);
	id = ps->oldest;
	if (!id || mcm_put_at(ps, id)->began_ms >= before)
		return false;
	s = mcm_put_at(ps, id)->session;
	*ret_account = mcm_account_key(s);
	if (!mcm_put_at(ps, id)->copy) {
		put_remove(ps, id, ret);
		mcm_account_puts_locked(s);
		return true;
	}
	*ret = *mcm_put_at(ps, id);
	mcm_put_at(ps, id)->unit = NULL;
	age_unlink(ps, id);
	mcm_put_at(ps, id)->began_ms = now;
	age_append(ps, id);
	return true;
}

void mcm_puts_tick(struct mcm *m)
{
	uint64_t now = mcm_now_ms(m), limit = m->conf.put_start_release_timeout_sec, account;
	struct mcm_put put;
	unsigned i;

	mcm_quarantine_tick(m);
	for (i = 0; i < MCM_PUT_SHARDS && now > limit; i++) {
		while (put_take_old(&m->puts.shard[i], now - limit, now, &put, &account)) {
			if (put.unit) {
				mcm_unit_revoked(m, put.unit, false);
			} else if (!put.copy) {
				mc_metric_add(&unfinished, -1);
				mc_metric_add(&timed_out, 1);
				put_abandon(m, &put, account);
			}
		}
	}
}
