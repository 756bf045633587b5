/* SPDX-License-Identifier: Apache-2.0
 * test_master_fixture.c - a master in the test's process. */
#include <config.h>

#include "test_master_fixture.h"

#include <stdio.h>
#include <string.h>

#include "common/metrics.h"

static __thread uint64_t rnd_state = 0x9e3779b97f4a7c15ull;

void rnd_seed(uint64_t seed)
{
	rnd_state = seed * 0x9e3779b97f4a7c15ull | 1;
}

uint64_t rnd(void)
{
	rnd_state ^= rnd_state << 13;
	rnd_state ^= rnd_state >> 7;
	rnd_state ^= rnd_state << 17;
	return rnd_state >> 11;
}

static struct mcp_id id_of(uint64_t n)
{
	return (struct mcp_id){ 7, n };
}

int fx_mount(struct fixture *fx, uint64_t client, uint64_t id, uint64_t epoch, uint64_t size,
	     struct mcp_mount_reply *ret)
{
	struct mcp_mount_reply reply;
	char name[32];
	struct mcp_mount rq = {
		.segment = id_of(id), .client = id_of(client), .epoch = epoch, .size = size,
		.base = 0x10000 + (id << 40), .rkey = 5, .endpoint = fx_bytes("host:1"), .protocol = fx_bytes("tcp"),
	};
	int r;

	snprintf(name, sizeof(name), "seg-%u", (unsigned)id);
	rq.name = fx_bytes(name);
	r = mcm_mount(fx->m, id_of(client), NULL, &rq, &reply);
	if (ret)
		*ret = reply;
	return r;
}

bool fx_beat(struct fixture *fx, struct mcp_id client)
{
	uint32_t ms;

	return mcm_client_beat(fx->m, client, &ms);
}

struct mcm_session *fx_session(struct fixture *fx, uint64_t client)
{
	struct mcm_session *s;
	struct mcp_register rq = { .client = id_of(client), .name = fx_bytes("test") };

	assert_int_equal(mcm_session_new(fx->m, id_of(client), &s), 0);
	s->engine = (struct mcp_id){ 8, client };
	assert_int_equal(mcm_client_opened(fx->m, id_of(client)), 0);
	assert_int_equal(mcm_client_register(fx->m, &rq, mcp_bytes("local", 5)), 0);
	s->registered = true;
	return s;
}

void fx_session_end(struct fixture *fx, struct mcm_session *s)
{
	struct mcp_id client = s->client;

	mcm_session_free(fx->m, s);
	mcm_client_closed(fx->m, client);
}

void *fx_session_ends(void *ending)
{
	struct fx_ending *e = ending;

	fx_session_end(e->fx, e->s);
	return NULL;
}

void fx_up(struct fixture *fx, unsigned n, uint64_t size, void (*tune)(struct mcm_conf *conf))
{
	unsigned i;

	memset(fx, 0, sizeof(*fx));
	mc_clock_fake(1000 * MC_NS_PER_SEC);
	assert_int_equal(mcm_conf_defaults(&fx->conf, &fx->options), 0);
	fx->conf.enable_metric_reporting = false;
	if (tune)
		tune(&fx->conf);
	assert_int_equal(mcm_core_new(&fx->conf, &fx->m), 0);
	fx->s = fx_session(fx, 1);
	for (i = 1; i <= n; i++)
		assert_int_equal(fx_mount(fx, 1, i, 100 + i, size, NULL), 0);
}

void fx_down(struct fixture *fx)
{
	struct mc_list *pos, *tmp;

	fx_check(fx);
	mc_list_for_each_safe(pos, tmp, &fx->m->sessions)
		fx_session_end(fx, mc_container_of(pos, struct mcm_session, link));
	fx_check(fx);
	mcm_core_free(fx->m);
	mc_options_free(fx->options);
	mc_clock_real();
}

struct mcp_bytes fx_bytes(const char *key)
{
	return mcp_bytes(key, strlen(key));
}

int fx_start(struct fixture *fx, struct mcm_session *s, const char *key, uint64_t size,
	     uint32_t flags, struct mcm_put_granted *ret)
{
	struct mcm_put_request rq = {
		.flags = flags, .copies = 1, .soft_ms = (uint32_t)fx->conf.default_kv_soft_pin_ttl,
	};
	struct mcp_put_item item = { .key = fx_bytes(key), .size = size };
	struct mcm_put_granted granted;

	return mcm_put_start(fx->m, s, &rq, &item, ret ? ret : &granted);
}

int fx_end_by(struct fixture *fx, const struct mcm_session *s, const char *key, uint64_t generation)
{
	struct mcp_put_done done = { .key = fx_bytes(key), .generation = generation, .crc = 42 };

	return mcm_put_end(fx->m, s, &done);
}

int fx_end(struct fixture *fx, const char *key, uint64_t generation)
{
	return fx_end_by(fx, fx->s, key, generation);
}

int fx_revoke_by(struct fixture *fx, const struct mcm_session *s, const char *key, uint64_t generation)
{
	struct mcp_put_done done = { .key = fx_bytes(key), .generation = generation };

	return mcm_put_revoke(fx->m, s, &done);
}

int fx_revoke(struct fixture *fx, const char *key, uint64_t generation)
{
	return fx_revoke_by(fx, fx->s, key, generation);
}

int fx_put(struct fixture *fx, const char *key, uint64_t size, uint32_t flags)
{
	struct mcm_put_granted g;
	int r;

	r = fx_start(fx, fx->s, key, size, flags, &g);
	if (r < 0 || (!size && flags & MCP_PUT_COMMIT))
		return r;
	return fx_end(fx, key, g.generation);
}

int fx_stat(struct fixture *fx, const char *key, struct mcp_object *ret)
{
	struct mcp_replica replica[MCM_REPLICA_MAX];
	struct mcp_object o;
	unsigned n;

	return mcm_get(fx->m, NULL, 0, fx_bytes(key), ret ? ret : &o, replica, &n);
}

int fx_pin(struct fixture *fx, struct mcm_session *s, const char *key, uint32_t flags,
	   struct mcp_object *ret, struct mcp_replica *ret_replica)
{
	struct mcp_replica replica[MCM_REPLICA_MAX];
	unsigned n;
	int r;

	mc_mutex_lock(&s->lock);
	r = mcm_get(fx->m, s, flags, fx_bytes(key), ret, replica, &n);
	mc_mutex_unlock(&s->lock);
	if (r == 0 && ret_replica)
		*ret_replica = replica[0];
	return r;
}

void fx_release(struct fixture *fx, struct mcm_session *s, uint64_t pin)
{
	mc_mutex_lock(&s->lock);
	mcm_pin_release(fx->m, s, pin);
	mc_mutex_unlock(&s->lock);
}

int fx_exist(struct fixture *fx, const char *key, uint32_t flags)
{
	struct mcp_bytes k = fx_bytes(key);
	uint8_t present;
	int r = mcm_exist(fx->m, flags, &k, 1, &present);

	return r < 0 ? r : present;
}

int fx_remove(struct fixture *fx, const char *key, uint32_t flags)
{
	return mcm_remove(fx->m, flags, fx_bytes(key));
}

int fx_rename(struct fixture *fx, const char *from, const char *to, uint32_t flags)
{
	struct mcp_rename rq = { .flags = flags, .from = fx_bytes(from), .to = fx_bytes(to) };
	uint64_t was, generation;

	return mcm_rename(fx->m, &rq, &generation, &was);
}

void fx_advance(struct fixture *fx, uint64_t ms)
{
	uint64_t tick = mcm_tick_ms(fx->m), step;

	for (; ms; ms -= step) {
		step = ms < tick ? ms : tick;
		mc_clock_advance(step * MC_NS_PER_MS);
		while (mcm_monitor_tick(fx->m, mc_now_ms()))
			;
	}
	while (mcm_evict_background(fx->m))
		;
}

unsigned fx_orders(struct fixture *fx, struct mcp_id client, const uint64_t *done, unsigned n,
		   struct mcp_fence ret[MCP_FENCES_MAX])
{
	struct mcp_fenced fenced[MCP_FENCES_MAX];
	struct mcp_heartbeat beat = { .client = client, .fenced = mcp_seq(fenced, n) };
	struct mcp_buf b = { 0 };
	unsigned i;

	assert_in_range(n, 0, MCP_FENCES_MAX);
	for (i = 0; i < n; i++)
		fenced[i].number = done[i];
	assert_int_equal(mcp_encode(&mcp_desc_heartbeat, &beat, &b), 0);
	assert_int_equal(mcp_decode(&mcp_desc_heartbeat, b.data, b.len, &beat), 0);
	n = mcm_client_fences(fx->m, client, &beat.fenced, ret);
	mcp_buf_free(&b);
	assert_in_range(n, 0, MCP_FENCES_MAX);
	return n;
}

void fx_confirm_of(struct fixture *fx, struct mcp_id client)
{
	struct mcp_fence order[MCP_FENCES_MAX];
	uint64_t number[MCP_FENCES_MAX];
	unsigned n = 0, i;

	while ((n = fx_orders(fx, client, number, n, order)))
		for (i = 0; i < n; i++)
			number[i] = order[i].number;
	mcm_quarantine_tick(fx->m);
}

void fx_confirm(struct fixture *fx)
{
	unsigned i;

	for (i = 0; i < fx->m->segments.n_live; i++)
		fx_confirm_of(fx, fx->m->segments.at[fx->m->segments.live[i]]->client);
}

void fx_stays_aside(struct fixture *fx, uint64_t ms)
{
	uint64_t used = fx_used(fx), step;
	unsigned i;

	for (; ms; ms -= step) {
		step = ms < 1000 ? ms : 1000;
		fx_advance(fx, step);
		for (i = 0; i < fx->m->segments.n_live; i++)
			fx_beat(fx, fx->m->segments.at[fx->m->segments.live[i]]->client);
		assert_int_equal(fx_used(fx), used);
	}
}

uint64_t fx_used(struct fixture *fx)
{
	uint64_t used = 0;
	unsigned i;

	for (i = 0; i < fx->m->segments.n_live; i++)
		used += mcm_load_relaxed(&fx->m->segments.at[fx->m->segments.live[i]]->used);
	return used;
}

int64_t fx_metric(const char *name)
{
	int64_t v = 0;

	assert_int_equal(mc_metrics_lookup(name, "", &v), 0);
	return v;
}

/* ---- recounting ---- */

struct recount {
	struct fixture *fx;
	uint64_t objects;
	uint64_t named;
};

/* A group's pins are the sum of its members'.  Checked once per group: at its first member. */
static void check_group(struct mcm *m, uint32_t slot)
{
	const struct mcm_object *o = mcm_object(&m->index, slot);
	const struct mcm_object_ext *e = o->ext ? mcm_ext(&m->index, o->ext) : NULL;
	const struct mcm_group *g;
	uint32_t pins = 0, members = 0;

	if (!e || !e->group || e->group_prev)
		return;
	g = mcm_slab_at(&m->groups.slab, e->group);
	for (slot = g->first; slot; slot = mcm_ext(&m->index, o->ext)->group_next) {
		o = mcm_object(&m->index, slot);
		pins += mcm_object_pins(m, o);
		members++;
	}
	assert_int_equal(g->members, members);
	assert_int_equal(g->pins, pins);
}

static void count_object(void *arg, uint32_t slot)
{
	struct recount *rc = arg;
	struct mcm *m = rc->fx->m;
	const struct mcm_object *o = mcm_object(&m->index, slot);
	struct mcm_extent p[MCM_REPLICA_MAX];
	unsigned n = mcm_object_extents(&m->index, o, p), i;

	rc->objects++;
	assert_true(o->flags & MCM_OBJ_LIVE);
	assert_int_equal(o->hash, mcm_index_hash(&m->index, mcm_shard_key(&m->index, slot), o->key_len));
	assert_true(n || !mcm_object_size(o));
	check_group(m, slot);
	for (i = 0; i < n; i++) {
		const struct mcm_segment *s = mcm_segment(&m->segments, p[i].segment);
		const struct mcm_range *range = mcm_range(&s->alloc, p[i].range);

		assert_int_equal(range->owner, slot);
		assert_true(range->flags & MCM_RANGE_USED);
		assert_true(mcm_range_granules(&s->alloc, range) >=
			    mcm_alloc_round(mcm_object_reserve(mcm_object_size(o))));
		/* An evictable range is on no list only while its object is pinned, or waits for a copy to a disk. */
		if (range->flags & MCM_RANGE_EVICTABLE && !(range->flags & MCM_RANGE_LISTED) && !m->conf.enable_offload)
			assert_true(o->pins);
	}
}

static void count_names(struct recount *rc)
{
	struct mcm_names *nm = &rc->fx->m->names;
	uint64_t dirs = 0, pos;
	uint32_t id;
	unsigned i;

	for (i = 0; i < MCM_NAMES_STRIPES; i++) {
		struct mcm_table *t = &nm->stripe[i].table;

		for (pos = 0; pos < MCM_TABLE_END; pos = mcm_table_chain_end(t, (uint32_t)pos)) {
			for (id = *mcm_table_head(t, (uint32_t)pos); id; id = mcm_dir(nm, id)->next) {
				const struct mcm_dir *d = mcm_dir(nm, id);

				dirs++;
				rc->named += d->objects.count + !!d->marker;
				assert_int_equal(d->refs, 0);
				assert_true(id == nm->root || d->objects.count || d->dirs.count ||
					    d->marker);
			}
		}
	}
	assert_int_equal(dirs, nm->count);
}

/* Totals and look-up tables, against the segments themselves. */
static void check_segments(struct mcm_segments *ss)
{
	uint64_t capacity = 0, disks = 0, largest = 0, usable;
	unsigned i, hidden = 0, live = 0, found;

	for (i = 0; i < ss->top; i++) {
		struct mcm_segment *s = ss->at[i], *t;
		uint8_t state = mcm_segment_state(s);

		hidden += state == MCP_SEG_SILENT || state == MCP_SEG_UNMOUNTING || state == MCP_SEG_CONFIRMING;
		if (state != MCP_SEG_OK && state != MCP_SEG_SILENT && state != MCP_SEG_CONFIRMING)
			continue;
		live++;
		usable = s->size / MCM_GRANULE * MCM_GRANULE;
		if (!mcm_segment_is(s, MCP_TRAIT_PUTS)) {
			disks += s->size;
			usable = 0;
		} else {
			capacity += s->size;
		}
		largest = usable > largest ? usable : largest;
		assert_ptr_equal(mcm_segments_find(ss, s->id), s);
		for (t = NULL, found = 0; (t = mcm_segments_named(ss, s->name_hash, t));)
			found += t == s;
		assert_int_equal(found, 1);
		assert_int_equal(ss->live[s->live_at], i);
	}
	assert_int_equal(ss->n_live, live);
	assert_int_equal(ss->n_by_host, live);
	assert_int_equal(ss->n_hidden, hidden);
	assert_int_equal(ss->capacity, capacity);
	assert_int_equal(ss->disk_capacity, disks);
	assert_int_equal(ss->largest, largest);
}

void fx_check(struct fixture *fx)
{
	struct recount rc = { .fx = fx };
	struct mcm *m = fx->m;
	uint64_t pos = 0;
	unsigned i;

	while (pos < MCM_TABLE_END)
		mcm_index_scan(&m->index, &pos, 10000, count_object, &rc);
	assert_int_equal(rc.objects, mcm_index_count(&m->index));
	count_names(&rc);
	assert_int_equal(rc.named, rc.objects);
	check_segments(&m->segments);
	for (i = 0; i < m->segments.top; i++) {
		const struct mcm_segment *s = m->segments.at[i];

		if (mcm_segment_state(s) == MCM_SEG_NONE)
			continue;
		if (mcm_alloc_check(&s->alloc) < 0)
			fail_msg("%s", mc_err_detail(-MC_EINTERNAL));
		assert_int_equal(mcm_load_relaxed(&s->used), s->alloc.used << MCM_GRANULE_SHIFT);
	}
}

uint64_t fx_held_most(enum mcm_lock_hold which)
{
	return mcm_load_relaxed(&mcm_lock_hold[which].hist->max);
}

uint64_t fx_held_sum(enum mcm_lock_hold which)
{
	return mcm_load_relaxed(&mcm_lock_hold[which].hist->sum);
}

void fx_held_reset(enum mcm_lock_hold which)
{
	memset(mcm_lock_hold[which].hist, 0, sizeof(*mcm_lock_hold[which].hist));
}
