/* SPDX-License-Identifier: Apache-2.0
 * test_master_model_run.c - each operation, executed by the master and by the model.
 *
 * The model does not predict which objects are evicted, but knows which may be: a pinned object
 * never, a leased or soft-pinned one only if the put would fail otherwise.  And a put fails only if
 * no run of granules is free of objects that have to stay. */
#include <config.h>

#include "test_master_model_i.h"

#include <string.h>

const char *model_op_name(enum op_kind kind)
{
	static const char *const name[] = {
		"start", "end", "revoke", "get", "release", "renew", "exist", "remove", "remove-match",
		"rename", "list", "session", "confirm", "segment", "grow", "advance",
	};

	return name[kind];
}

static uint32_t key_of(uint32_t n)
{
	return 1 + n % mo.setup->keys;
}

/* ---- puts ---- */

static struct open_put *put_slot(void)
{
	unsigned i;

	for (i = 0; i < PUTS_MAX; i++)
		if (!mo.put[i].open)
			return &mo.put[i];
	return NULL;
}

/* Granted ranges are free, do not overlap, and are on different segments. */
static void put_granted(struct open_put *p, const struct mcm_put_granted *g)
{
	unsigned i, j;

	MUST(g->generation > mo.newest, "generation %llu comes after %llu",
	     (unsigned long long)g->generation, (unsigned long long)mo.newest);
	mo.newest = g->generation;
	p->generation = g->generation;
	p->copies = g->copies;
	for (i = 0; i < g->copies; i++) {
		p->range[i] = range_of(&g->replica[i], p->size);
		MUST(p->range[i].at + p->range[i].granules <= mo.seg[p->range[i].segment].granules,
		     "a range reaches behind the segment");
		MUST(!mcm_alloc_aligns(p->range[i].granules) || p->range[i].at % MCM_PAGE_GRANULES == 0,
		     "a range is not aligned");
		range_take(&p->range[i], WHO_PUT);
		for (j = 0; j < i; j++)
			MUST(p->range[i].segment != p->range[j].segment, "two copies on one segment");
	}
}

/* A committed put is the key's version. */
static void put_commit(struct open_put *p, uint32_t crc)
{
	struct version *v = calloc(1, sizeof(*v)), *old = mo.of_key[p->key];
	unsigned i;

	MUST(v, "out of memory");
	*v = (struct version){
		.size = p->size, .generation = p->generation, .crc = crc, .key = p->key,
		.tenant = tenant_of(p->key), .committed = mc_wall_ns() / MC_NS_PER_MS,
		.kind = p->kind, .hard = !!(p->flags & MCP_PUT_HARD_PIN), .group = p->group,
		.soft_until = p->flags & MCP_PUT_SOFT_PIN ? mcm_tick_after(now_ms() + SOFT_MS) : 0,
	};
	for (i = 0; i < p->copies; i++) {
		if (!range_there(&p->range[i]))
			continue;
		range_take(&p->range[i], WHO_OBJECT);
		v->range[v->copies++] = p->range[i];
	}
	if (old) {
		/* An upsert keeps the pins. */
		v->hard |= old->hard;
		v->group = v->group ? v->group : old->group;
		if (!v->soft_until && old->soft_until > now_tick())
			v->soft_until = old->soft_until;
		version_unindex(old);
	}
	mo.of_key[p->key] = v;
	mo.committed++;
}

static uint64_t op_size(const struct op *op)
{
	uint64_t max = mo.setup->size_max;

	if (op->c % 16 == 0)
		return 0;
	/* Frequent if there are few keys; rare if there are many, because these are to exist at the
	 * same time. */
	if (op->c % 16 == 1 && (mo.setup->keys < 1000 || op->c / 16 % 1024 == 0))
		return 1 + op->c / 16 % (mo.setup->segment_size + 4096);
	return 1 + op->c / 16 % (op->c % 4 ? max / 8 + 1 : max);
}

/* An upsert must not change the group. */
static bool other_group(const struct open_put *p)
{
	const struct version *old = mo.of_key[p->key];

	return old && p->group && p->group != old->group;
}

static int expected_start(const struct open_put *p, unsigned copies, bool fits)
{
	if (!(p->flags & MCP_PUT_UPSERT) && mo.of_key[p->key])
		return -MC_EEXISTS;
	if (other_group(p))
		return -MC_EPARAM;
	if (!within_quota(p, copies, MCM_EVICT_LEASED | (mo.setup->soft_may_go ? MCM_EVICT_SOFT : 0)))
		return -MC_EQUOTA;
	return expected_memory(p, fits);
}

static void op_start(const struct op *op)
{
	struct open_put *p = put_slot(), put = { .open = true };
	struct mcm_put_request rq = { .copies = 1 + op->b % 8 / 6, .soft_ms = SOFT_MS };
	struct mcp_put_item item;
	struct mcm_put_granted g = { 0 };
	unsigned level, quota;
	uint64_t len;
	bool at_once;
	int r, want;

	if (!p)
		return;
	put.session = op->b / 8 % SESSIONS;
	put.key = key_of(op->a);
	put.size = op_size(op);
	put.fence = mo.session[put.session]->number;
	put.began = now_ms();
	put.flags = (op->b / 64 % 2 ? MCP_PUT_UPSERT : 0) | (op->b / 128 % 8 ? 0 : MCP_PUT_SOFT_PIN) |
		    (op->b / 1024 % 64 ? 0 : MCP_PUT_HARD_PIN) | (op->b / 65536 % 2 ? MCP_PUT_COMMIT : 0);
	if (!put.size)
		put.kind = (uint8_t)(op->c / 16 % 3);
	if (mo.setup->groups && put.kind == MCP_KIND_OBJECT && op->b >> 17 & 1)
		put.group = 1 + (op->b >> 18) % GROUPS;
	at_once = !put.size && put.flags & MCP_PUT_COMMIT;
	rq.flags = put.flags;
	item = (struct mcp_put_item){
		.key = key_bytes(put.key), .size = put.size, .kind = put.kind,
		.group = group_name(put.group),
	};
	len = mcm_object_reserve(put.size);
	level = put.size ? window_level(len) : 0;
	want = expected_start(&put, rq.copies, level != NO_LEVEL);
	quota = quota_level(&put, rq.copies);
	r = mcm_put_start(mo.fx.m, mo.session[put.session], &rq, &item, &g);
	/* Before it evicts for the quota, the master asks whether the object can fit. */
	if (want == -MC_EQUOTA && r < 0 && r == expected_memory(&put, level != NO_LEVEL))
		want = r;
	MUST(r == want, "start of %s with %llu bytes: %d, expected %d", mo.name[put.key],
	     (unsigned long long)put.size, r, want);
	look_for_evicted((level == NO_LEVEL ? MCM_EVICT_SOFT | MCM_EVICT_LEASED : level) | quota |
			 (mo.setup->tenants && mo.setup->soft_may_go ? MCM_EVICT_SOFT : 0));
	mo.refused += r == -MC_ENOSPACE;
	mo.over_quota += r == -MC_EQUOTA;
	if (r < 0)
		return;
	put_granted(&put, &g);
	if (at_once)
		put_commit(&put, 0);
	else
		*p = put;
}

/* One of the open puts, or a random generation. */
static struct open_put *put_pick(uint32_t n)
{
	unsigned i;

	for (i = 0; i < PUTS_MAX; i++)
		if (mo.put[(n + i) % PUTS_MAX].open)
			return &mo.put[(n + i) % PUTS_MAX];
	return NULL;
}

static int expected_end(const struct open_put *p)
{
	const struct version *old = mo.of_key[p->key];
	unsigned i, there = 0;

	if (old && !(p->flags & MCP_PUT_UPSERT))
		return -MC_EEXISTS;
	if (old && old->generation > p->generation && now_ms() >= p->began + DISCARD_MS)
		return -MC_ESTALE_PUT;
	if (other_group(p))
		return -MC_EPARAM;
	for (i = 0; i < p->copies; i++)
		there += range_there(&p->range[i]);
	return p->copies && !there ? -MC_EREPLICA_GONE : 0;
}

static void op_end(const struct op *op)
{
	struct open_put *p = put_pick(op->a);
	struct mcp_put_done done = { .generation = mo.newest - op->b % 8, .crc = op->c };
	unsigned i;
	int r, want;

	if (!p || op->b % 32 == 0) {
		/* A put that does not exist, or is of another key. */
		done.key = key_bytes(key_of(op->a));
		for (i = 0; i < PUTS_MAX; i++)
			if (mo.put[i].open && mo.put[i].generation == done.generation &&
			    mo.put[i].key == key_of(op->a))
				return;
		MUST(mcm_put_end(mo.fx.m, mo.session[op->b % SESSIONS], &done) == -MC_ESTALE_PUT, "end of no put");
		return;
	}
	done.key = key_bytes(p->key);
	done.generation = p->generation;
	want = expected_end(p);
	if (op->b % 4 == 1) {
		const struct mcm_session *other = mo.session[(p->session + 1 + op->b / 4 % (SESSIONS - 1)) % SESSIONS];

		MUST(mcm_put_end(mo.fx.m, other, &done) == -MC_ESTALE_PUT, "end by another session");
		MUST(mcm_put_revoke(mo.fx.m, other, &done) == -MC_ESTALE_PUT, "revoke by another session");
	}
	r = mcm_put_end(mo.fx.m, mo.session[p->session], &done);
	MUST(r == want, "end of %s: %d, expected %d", mo.name[p->key], r, want);
	p->open = false;
	if (r == 0)
		put_commit(p, done.crc);
	for (i = 0; r < 0 && i < p->copies; i++)
		range_give(&p->range[i]);
}

static void op_revoke(const struct op *op)
{
	struct open_put *p = put_pick(op->a);
	struct mcp_put_done done = { 0 };
	unsigned i;
	int r;

	if (!p)
		return;
	done.key = key_bytes(p->key);
	done.generation = p->generation;
	r = mcm_put_revoke(mo.fx.m, mo.session[p->session], &done);
	MUST(r == 0, "revoke of %s: %d", mo.name[p->key], r);
	for (i = 0; i < p->copies; i++)
		range_give(&p->range[i]);
	p->open = false;
	MUST(mcm_put_end(mo.fx.m, mo.session[p->session], &done) == -MC_ESTALE_PUT, "end after revoke");
}

/* ---- readers ---- */

static void op_get(const struct op *op)
{
	uint32_t key = key_of(op->a), flags = op->b % 2 ? MCP_GET_HOLD : MCP_GET_LEASE;
	unsigned s = op->b / 2 % SESSIONS, i, n = 0;
	struct mcp_replica rep[MCM_REPLICA_MAX];
	struct version *v = mo.of_key[key];
	struct mcp_object o;
	int r;

	for (i = 0; i < PINS_MAX && mo.pin[i].v; i++)
		;
	if (i == PINS_MAX)
		return;
	look(key, false);
	mc_mutex_lock(&mo.session[s]->lock);
	r = mcm_get(mo.fx.m, mo.session[s], flags, key_bytes(key), &o, rep, &n);
	mc_mutex_unlock(&mo.session[s]->lock);
	MUST(r == (v ? 0 : -MC_ENOOBJECT), "get of %s: %d", mo.name[key], r);
	if (!v)
		return;
	compare_copies(v, rep, n);
	MUST(!o.pin == !v->copies, "get of %s with pin %llu", mo.name[key], (unsigned long long)o.pin);
	if (!o.pin)
		return;
	v->pins++;
	mo.pin[i] = (struct held_pin){
		v, s, o.pin, flags == MCP_GET_HOLD ? 0 : now_ms() + LEASE_MS
	};
}

static struct held_pin *pin_pick(uint32_t n)
{
	unsigned i;

	for (i = 0; i < PINS_MAX; i++)
		if (mo.pin[(n + i) % PINS_MAX].v)
			return &mo.pin[(n + i) % PINS_MAX];
	return NULL;
}

static void op_release(const struct op *op, bool renew)
{
	struct held_pin *p = pin_pick(op->a);
	struct mcm_session *s;

	if (!p)
		return;
	s = mo.session[p->session];
	mc_mutex_lock(&s->lock);
	if (renew)
		mcm_pin_renew(mo.fx.m, s, p->id);
	else
		mcm_pin_release(mo.fx.m, s, p->id);
	mc_mutex_unlock(&s->lock);
	if (!renew)
		unpin(p);
	else if (p->until)
		p->until = now_ms() + LEASE_MS;
}

/* Some keys in one query, a few of them invalid. */
static void op_exist(const struct op *op)
{
	uint32_t flags = op->b % 4 ? 0 : MCP_EXIST_PEEK;
	uint64_t lease = now_ms() + LEASE_MS;
	unsigned n = op->c % 8 ? 1 + op->c / 8 % 3 : 1 + op->c / 8 % 200, i;
	struct mcp_bytes key[200];
	uint8_t present[200];

	for (i = 0; i < n; i++)
		key[i] = (op->b + i) % 97 ? key_bytes(key_of(op->a + i * (op->b % 7))) :
			 (struct mcp_bytes){ "", 0 };
	if (!flags)
		mo.promised = mcm_tick_after(lease);
	mcm_exist(mo.fx.m, flags, key, n, present);
	for (i = 0; i < n; i++) {
		uint32_t k = key_of(op->a + i * (op->b % 7));
		struct version *v = key[i].len ? mo.of_key[k] : NULL;

		MUST(present[i] == (v != NULL), "exist of %s: %u", key[i].len ? mo.name[k] : "no key",
		     present[i]);
		if (v && !flags && v->lease_ms < lease)
			v->lease_ms = lease;
	}
}

/* ---- names ---- */

static bool has_prefix(uint32_t key, const char *prefix)
{
	return !strncmp(mo.name[key], prefix, strlen(prefix));
}

static bool ends_in(const char *name, char c)
{
	return name[strlen(name) - 1] == c;
}

static bool below(uint32_t key)
{
	unsigned k;

	if (!ends_in(mo.name[key], '/'))
		return false;
	for (k = 1; k <= mo.setup->keys; k++)
		if (k != key && mo.of_key[k] && tenant_of(k) == tenant_of(key) && has_prefix(k, mo.name[key]))
			return true;
	return false;
}

static void op_remove(const struct op *op)
{
	uint32_t key = key_of(op->a), flags = op->b % 2 ? MCP_REMOVE_FORCE : 0;
	struct version *v = mo.of_key[key];
	int want = 0, r;

	if (v && !flags && (v->pins || v->lease_ms > now_ms()))
		want = -MC_ELEASED;
	else if (below(key))
		want = -MC_ENOTEMPTY;
	else if (!v)
		want = -MC_ENOOBJECT;
	r = mcm_remove(mo.fx.m, flags, key_bytes(key));
	/* The evictor may have given the object its group's lease. */
	if (r == -MC_ELEASED && v && v->group && !flags)
		return;
	MUST(r == want, "remove of %s: %d, expected %d", mo.name[key], r, want);
	if (r == 0)
		version_unindex(v);
}

static void op_remove_match(const struct op *op)
{
	static const char *const prefix[] = { "d1/", "d2/e", "d3/k1", "nothing" };
	struct mcp_remove_match rq = {
		.flags = op->b % 2 || mo.setup->groups ? MCP_REMOVE_FORCE : 0,
		.prefix = fx_bytes(prefix[op->a % 4]),
	};
	unsigned k, tenant = op->c % 2;
	uint64_t removed, n = 0;
	int r;

	if (op->b / 2 % 2)
		rq.pattern = fx_bytes("[37]$");
	if (mo.setup->tenants && op->c % 8 > 1)
		rq.tenant = tenant_name(tenant);
	else
		rq.flags |= MCP_REMOVE_TENANTS;
	for (k = 1; k <= mo.setup->keys; k++) {
		struct version *v = mo.of_key[k];

		if (!v || !has_prefix(k, prefix[op->a % 4]) ||
		    (!(rq.flags & MCP_REMOVE_TENANTS) && tenant_of(k) != tenant) ||
		    (rq.pattern.len && !ends_in(mo.name[k], '3') && !ends_in(mo.name[k], '7')) ||
		    (!(rq.flags & MCP_REMOVE_FORCE) && (v->pins || v->lease_ms > now_ms())))
			continue;
		n++;
		version_unindex(v);
	}
	r = mcm_remove_match(mo.fx.m, &rq, &removed);
	MUST(r == 0 && removed == n, "%llu keys matched, expected %llu", (unsigned long long)removed,
	     (unsigned long long)n);
}

/* The same name, of the tenant of @key. */
static uint32_t same_tenant(uint32_t key, uint32_t other)
{
	uint32_t half = mo.setup->keys / 2;

	if (tenant_of(key) == tenant_of(other))
		return other;
	return tenant_of(key) ? other + half : other - half;
}

static void op_rename(const struct op *op)
{
	uint32_t from = key_of(op->a), to = same_tenant(from, key_of(op->b));
	struct version *v = mo.of_key[from], *old = mo.of_key[to];
	struct mcp_rename rq = {
		.flags = op->c % 4 ? 0 : MCP_RENAME_NOREPLACE,
		.from = key_bytes(from), .to = key_bytes(to),
	};
	int want = !v ? -MC_ENOOBJECT : old && rq.flags ? -MC_EEXISTS : 0, r;
	uint64_t was, generation = 0;

	r = mcm_rename(mo.fx.m, &rq, &generation, &was);
	MUST(r == want, "rename of %s to %s: %d, expected %d", mo.name[from], mo.name[to], r, want);
	if (r < 0)
		return;
	if (v == old) {
		MUST(generation == v->generation || mo.setup->mistaken, "a rename to itself");
		MUST(generation != v->generation || !mo.setup->mistaken, "planted mistake");
		return;
	}
	MUST(generation > mo.newest, "generation of a rename");
	/* Generations of puts have the shard's number in their last bits. */
	mo.newest = generation | (MCM_PUT_SHARDS - 1);
	if (old)
		version_unindex(old);
	mo.of_key[from] = NULL;
	mo.of_key[to] = v;
	v->key = to;
	v->generation = generation;
}

static void op_list(const struct op *op)
{
	static const char *const prefix[] = { "", "d1/", "d2/e", "k" };
	struct mcp_list rq = { .limit = 1 + op->b % 50, .prefix = fx_bytes(prefix[op->a % 4]) };
	uint8_t cursor[16], *seen = calloc(mo.setup->keys + 1, 1);
	struct mcm_list_page pg = { 0 };
	unsigned i, k, tenant = mo.setup->tenants && op->c / 16 % 2;
	uint64_t n = 0;

	if (mo.setup->tenants)
		rq.tenant = tenant_name(tenant);
	/* The model looks up each name among all of its own. */
	if (mo.setup->keys > 1000 && op->c % 16) {
		free(seen);
		return;
	}
	MUST(seen, "out of memory");
	do {
		MUST(mcm_list(mo.fx.m, &rq, &pg) == 0, "list");
		n += pg.names.count;
		for (i = 0; i < pg.names.count; i++) {
			const struct mcp_bytes name = {
				pg.names.text + pg.names.item[i].name, pg.names.item[i].name_len
			};

			for (k = 1; k <= mo.setup->keys; k++)
				if (strlen(mo.name[k]) == name.len && tenant_of(k) == tenant &&
				    !memcmp(mo.name[k], name.data, name.len))
					break;
			MUST(k <= mo.setup->keys && mo.of_key[k] && !seen[k] &&
			     pg.names.item[i].generation == mo.of_key[k]->generation,
			     "listed: %.*s", (int)name.len, (const char *)name.data);
			seen[k] = 1;
		}
		memcpy(cursor, pg.cursor, sizeof(cursor));
		rq.cursor = mcp_bytes(cursor, pg.cursor_len);
	} while (pg.cursor_len);
	for (k = 1; k <= mo.setup->keys; k++)
		n -= mo.of_key[k] && tenant_of(k) == tenant && has_prefix(k, prefix[op->a % 4]);
	MUST(!n, "a listing misses something");
	mcm_names_page_done(&pg.names);
	free(seen);
}

/* ---- operations on sessions and segments ---- */

static void op_session(const struct op *op)
{
	/* The first session stays: without one, the owner's segments accept no objects. */
	unsigned s = 1 + op->a % (SESSIONS - 1), i;

	fx_session_end(&mo.fx, mo.session[s]);
	for (i = 0; i < PINS_MAX; i++)
		if (mo.pin[i].v && mo.pin[i].session == s)
			unpin(&mo.pin[i]);
	for (i = 0; i < PUTS_MAX; i++)
		if (mo.put[i].open && mo.put[i].session == s)
			put_abandon(&mo.put[i]);
	mo.client[s] = 1 + op->b % 2;
	mo.session[s] = fx_session(&mo.fx, mo.client[s]);
}

static void evict_in_background(void)
{
	while (mcm_evict_background(mo.fx.m))
		;
	look_for_evicted((mo.promised > now_tick() ? MCM_EVICT_KEEP_RECENT : 0) |
			 (mo.setup->soft_may_go ? MCM_EVICT_SOFT : 0));
}

/* The last segment is unmounted, or mounted again empty. */
static void op_segment(const struct op *op)
{
	unsigned id = mo.setup->segments, k, i;
	struct segment_map *s = &mo.seg[id];
	uint64_t lost;

	(void)op;
	if (!s->mounted) {
		s->epoch = 1000 + ++mo.epochs;
		s->size = mo.setup->segment_size;
		s->granules = s->size / MCM_GRANULE;
		MUST(fx_mount(&mo.fx, 1, id, s->epoch, mo.setup->segment_size, NULL) == 0, "mount");
		s->mounted = true;
		s->mount++;
		s->used = 0;
		/* It may have been larger in its last mount. */
		memset(s->who, 0, 2 * s->granules * sizeof(*s->who));
		return;
	}
	MUST(mcm_unmount(mo.fx.m, mo.session[0]->client, (struct mcp_id){ 7, id }, &lost) == 0, "unmount");
	s->mounted = false;
	for (k = 1; k <= mo.setup->keys; k++) {
		struct version *v = mo.of_key[k];
		unsigned had = v ? v->copies : 0;

		for (i = 0; i < had && i < v->copies;) {
			if (range_there(&v->range[i]))
				i++;
			else
				v->range[i] = v->range[--v->copies];
		}
		if (had && !v->copies) {
			v->copies = 1;	/* the last copy stays for its readers */
			version_unindex(v);
		}
	}
	evict_in_background();
}

/* A segment is enlarged, up to twice its size; sometimes it is asked to shrink. */
static void op_grow(const struct op *op)
{
	unsigned id = 1 + op->a % mo.setup->segments;
	struct segment_map *s = &mo.seg[id];
	uint64_t most = 2 * mo.setup->segment_size, size = s->size;
	struct mcp_mount_reply reply;

	if (!s->mounted)
		return;
	if (op->b % 8 == 0) {
		MUST(fx_mount(&mo.fx, 1, id, s->epoch, size - MCM_GRANULE, NULL) == -MC_EPARAM,
		     "a segment shrank");
		return;
	}
	size += op->c % (most / 8);
	size = size < most ? size : most;
	MUST(fx_mount(&mo.fx, 1, id, s->epoch, size, &reply) == 0 && reply.reattached, "growing");
	s->size = size;
	s->granules = size / MCM_GRANULE;
}

static void op_advance(const struct op *op)
{
	uint64_t ms = 1 + op->a % (op->b % 8 ? 20 : 3 * mcm_tick_ms(mo.fx.m)), now;
	unsigned i;

	mc_clock_advance(ms * MC_NS_PER_MS);
	mcm_clock_tick(mo.fx.m);
	fx_beat(&mo.fx, mo.session[0]->client);
	mcm_liveness_tick(mo.fx.m);
	mcm_pins_tick(mo.fx.m);
	now = now_ms();
	for (i = 0; i < PINS_MAX; i++)
		if (mo.pin[i].v && mo.pin[i].until && mo.pin[i].until <= now)
			unpin(&mo.pin[i]);
	mcm_puts_tick(mo.fx.m);
	free_aside();
	for (i = 0; i < PUTS_MAX; i++)
		if (mo.put[i].open && mo.put[i].began + RELEASE_MS < now)
			put_abandon(&mo.put[i]);
	look_at_used();
	evict_in_background();
}

/* ---- a run ---- */

/* Linked instead of the real function: hashes and strategies behave the same in every run of a
 * seed. */
uint64_t __wrap_mc_random_u64(void);
static uint64_t random_n;

uint64_t __wrap_mc_random_u64(void)
{
	return ++random_n * 0x9e3779b97f4a7c15ull;
}

static void tune(struct mcm_conf *conf)
{
	conf->eviction_policy = (char *)mo.setup->policy;
	conf->eviction_high_watermark_ratio = mo.setup->watermark;
	conf->allow_evict_soft_pinned_objects = mo.setup->soft_may_go;
	conf->default_kv_lease_ttl = LEASE_MS;
	conf->default_kv_soft_pin_ttl = SOFT_MS;
	conf->put_start_discard_timeout_sec = DISCARD_MS;
	conf->put_start_release_timeout_sec = RELEASE_MS;
	conf->enable_multi_tenants = mo.setup->tenants;
	conf->max_session_pinned_ratio = 1;	/* test_master_limits.c tests it */
	conf->max_client_quarantine_ratio = 1;	/* test_master_quarantine.c tests it */
}

static void begin(void)
{
	unsigned i;

	for (i = 1; i <= mo.setup->keys; i++) {
		if (tenant_of(i))
			strcpy(mo.name[i], mo.name[i - mo.setup->keys / 2]);
		else if (i <= 4)
			sprintf(mo.name[i], "d%u/", i);
		else if (i % 4 == 0)
			sprintf(mo.name[i], "k%u", i);
		else
			sprintf(mo.name[i], i % 4 == 3 ? "d%u/e/k%u" : "d%u/k%u", i % 7, i);
	}
	fx_up(&mo.fx, mo.setup->segments, mo.setup->segment_size, tune);
	/* The operations of a seed do not depend on how many numbers the start has taken. */
	random_n = 100;
	begin_tenants();
	mo.session[0] = mo.fx.s;
	mo.client[0] = 1;
	for (i = 1; i < SESSIONS; i++) {
		mo.client[i] = 1 + i % 2;
		mo.session[i] = fx_session(&mo.fx, mo.client[i]);
	}
	for (i = 1; i <= mo.setup->segments; i++) {
		mo.seg[i].mounted = true;
		mo.seg[i].size = mo.setup->segment_size;
		mo.seg[i].granules = mo.setup->segment_size / MCM_GRANULE;
		mo.seg[i].epoch = 100 + i;
		mo.seg[i].who = calloc(2 * mo.seg[i].granules, sizeof(uint32_t));
		MUST(mo.seg[i].who, "out of memory");
	}
	mo.evicted = fx_metric("master_evicted_key_count");
	mo.broken = fx_metric("mooncake_master_promises_broken_total");
}

static void step(const struct op *op)
{
	switch ((enum op_kind)op->kind) {
	case OP_START:
		op_start(op);
		break;
	case OP_END:
		op_end(op);
		break;
	case OP_REVOKE:
		op_revoke(op);
		break;
	case OP_GET:
		op_get(op);
		break;
	case OP_RELEASE:
	case OP_RENEW:
		op_release(op, op->kind == OP_RENEW);
		break;
	case OP_EXIST:
		op_exist(op);
		break;
	case OP_REMOVE:
		op_remove(op);
		break;
	case OP_REMOVE_MATCH:
		op_remove_match(op);
		break;
	case OP_RENAME:
		op_rename(op);
		break;
	case OP_LIST:
		op_list(op);
		break;
	case OP_SESSION:
		op_session(op);
		break;
	case OP_CONFIRM:
		confirm(op->a, false);
		break;
	case OP_SEGMENT:
		op_segment(op);
		break;
	case OP_GROW:
		op_grow(op);
		break;
	case OP_ADVANCE:
	case OP_KINDS:
		op_advance(op);
		break;
	}
	look_at_used();
	look_at_tenants();
}

/* Release everything; nothing must be left. */
static void finish(void)
{
	struct mcp_remove_match all = { .flags = MCP_REMOVE_FORCE | MCP_REMOVE_TENANTS };
	uint64_t removed;
	unsigned i;

	for (i = 1; i < SESSIONS; i++)
		op_session(&(struct op){ .a = i - 1 });
	for (i = 0; i < PUTS_MAX; i++)
		if (mo.put[i].open)
			op_revoke(&(struct op){ .a = i });
	for (i = 0; i < PINS_MAX; i++)
		if (mo.pin[i].v)
			op_release(&(struct op){ .a = i }, false);
	for (i = 1; i <= mo.setup->keys; i++)
		if (mo.of_key[i])
			version_unindex(mo.of_key[i]);
	MUST(mcm_remove_match(mo.fx.m, &all, &removed) == 0, "removing all");
	/* Time alone frees nothing, and the last confirmation everything. */
	for (i = 0; i < 100; i++)
		op_advance(&(struct op){ .a = 0, .b = 1 });
	while (mo.n_aside) {
		confirm(0, true);
		op_advance(&(struct op){ .a = 0, .b = 1 });
	}
	look_at_all();
	MUST(!mo.fx.m->groups.table.count, "%u groups are left", (unsigned)mo.fx.m->groups.table.count);
	MUST(!fx_used(&mo.fx), "%llu bytes are left", (unsigned long long)fx_used(&mo.fx));
	fx_down(&mo.fx);
	free(mo.aside);
	for (i = 1; i <= mo.setup->segments; i++)
		free(mo.seg[i].who);
}

void model_run(const struct model_setup *setup, const struct op *op, unsigned n,
	       struct model_progress *pr)
{
	unsigned every = 64 + setup->keys * 4;

	memset(&mo, 0, sizeof(mo));
	mo.setup = setup;
	mo.pr = pr;
	begin();
	for (pr->at = 0; pr->at < n; pr->at++) {
		step(&op[pr->at]);
		if (pr->at % every == 0)
			look_at_all();
	}
	finish();
	snprintf(pr->why, sizeof(pr->why),
		 "agreed: %u puts, %u refused, %u over quota, %lld evictions, %lld promises broken",
		 mo.committed, mo.refused, mo.over_quota, (long long)mo.evicted, (long long)mo.broken);
}
