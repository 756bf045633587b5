/* SPDX-License-Identifier: Apache-2.0
 * test_master_model_books.c - the model's state, and its comparison with the master's. */
#include <config.h>

#include "test_master_model_i.h"

#include <string.h>
#include <unistd.h>

struct model mo;

void model_broke(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(mo.pr->why, sizeof(mo.pr->why), fmt, ap);
	va_end(ap);
	_exit(1);
}

/* ---- granules ---- */

bool range_there(const struct range *r)
{
	return mo.seg[r->segment].mounted && mo.seg[r->segment].mount == r->mount;
}

void range_take(const struct range *r, uint32_t who)
{
	struct segment_map *s = &mo.seg[r->segment];
	uint64_t g;

	if (!range_there(r))
		return;
	for (g = r->at; g < r->at + r->granules; g++) {
		MUST(!s->who[g] || who != WHO_PUT, "segment %u: granule %llu was given out twice",
		     r->segment, (unsigned long long)g);
		s->used += !s->who[g];
		s->who[g] = who;
	}
}

void range_give(const struct range *r)
{
	struct segment_map *s = &mo.seg[r->segment];
	uint64_t g;

	if (!range_there(r))
		return;
	for (g = r->at; g < r->at + r->granules; g++)
		s->who[g] = 0;
	s->used -= r->granules;
}

/* ---- ranges of abandoned puts ---- */

static void range_aside(const struct range *r, uint64_t fence, unsigned tenant, uint64_t charged)
{
	if (mo.n_aside == mo.cap_aside) {
		mo.cap_aside = 2 * mo.cap_aside + 64;
		mo.aside = realloc(mo.aside, mo.cap_aside * sizeof(*mo.aside));
		MUST(mo.aside, "out of memory");
	}
	range_take(r, WHO_ASIDE);
	mo.aside[mo.n_aside++] = (struct aside){ fence, false, *r, tenant, charged };
}

void put_abandon(struct open_put *p)
{
	unsigned i;

	for (i = 0; i < p->copies; i++)
		range_aside(&p->range[i], p->fence, tenant_of(p->key), p->size);
	p->open = false;
}

void free_aside(void)
{
	unsigned i, n;

	for (i = n = 0; i < mo.n_aside; i++) {
		if (mo.aside[i].confirmed || !range_there(&mo.aside[i].range))
			range_give(&mo.aside[i].range);
		else
			mo.aside[n++] = mo.aside[i];
	}
	mo.n_aside = n;
}

/* One order for each session and segment that has ranges of it. */
static unsigned expected_orders(void)
{
	unsigned i, j, n = 0;

	for (i = 0; i < mo.n_aside; i++) {
		const struct aside *a = &mo.aside[i];

		if (a->confirmed || !range_there(&a->range))
			continue;
		for (j = 0; j < i; j++)
			if (mo.aside[j].fence == a->fence && !mo.aside[j].confirmed &&
			    mo.aside[j].range.segment == a->range.segment && range_there(&mo.aside[j].range))
				break;
		n += j == i;
	}
	return n;
}

static void mark_confirmed(uint64_t fence)
{
	unsigned i;

	for (i = 0; i < mo.n_aside; i++)
		if (mo.aside[i].fence == fence && range_there(&mo.aside[i].range))
			mo.aside[i].confirmed = true;
}

void confirm(uint32_t which, bool all)
{
	struct mcp_id owner = mo.session[0]->client;
	unsigned n, want = expected_orders(), i, j, done = 0;
	struct mcp_fence order[MCP_FENCES_MAX];
	uint64_t number[MCP_FENCES_MAX];

	MUST(want <= MCP_FENCES_MAX, "the run confirms too seldom");
	n = fx_orders(&mo.fx, owner, NULL, 0, order);
	MUST(n == want, "%u orders, %u were expected", n, want);
	for (i = 0; i < n; i++) {
		for (j = 0; j < mo.n_aside; j++)
			if (mo.aside[j].fence == order[i].upto && range_there(&mo.aside[j].range))
				break;
		MUST(j < mo.n_aside, "an order for session %llu, of which nothing is aside",
		     (unsigned long long)order[i].upto);
		if (!all && order[i].upto != order[which % n].upto)
			continue;
		number[done++] = order[i].number;
		mark_confirmed(order[i].upto);
	}
	n = fx_orders(&mo.fx, owner, number, done, order);
	MUST(n == want - done, "%u orders are left, not %u", n, want - done);
}

/* ---- evictable objects ---- */

struct mcp_bytes group_name(unsigned group)
{
	static const char *const name[] = { "", "a", "b", "group c", "d/", "e", "f", "g" };

	return fx_bytes(name[group]);
}

bool version_leased(const struct version *v)
{
	return v->lease_ms && mcm_tick_after(v->lease_ms) > now_tick();
}

static bool soft(const struct version *v)
{
	return v->soft_until > now_tick();
}

static bool may_go(const struct version *v, unsigned level)
{
	return !v->pins && !v->hard && v->kind == MCP_KIND_OBJECT &&
	       (level & MCM_EVICT_SOFT || !soft(v)) &&
	       (level & MCM_EVICT_LEASED || !version_leased(v));
}

/* Has the object not been recent for SETTLE_MS?  Then the master must have noticed it. */
static bool version_settled(struct version *v, const struct segment_map *sm)
{
	uint64_t now = mc_wall_ns() / MC_NS_PER_MS;

	if (v->generation >= sm->recent || v->committed + sm->moment > now)
		v->settled_ms = 0;
	else if (!v->settled_ms)
		v->settled_ms = now;
	return v->settled_ms && now - v->settled_ms >= SETTLE_MS;
}

bool window(uint64_t len, unsigned level)
{
	uint64_t want = mcm_alloc_round(len), g, begin;
	unsigned i, s, k;

	for (s = 1; s <= mo.setup->segments; s++) {
		struct segment_map *sm = &mo.seg[s];
		uint8_t *stays;

		if (!sm->mounted)
			continue;
		stays = calloc(sm->granules, 1);
		MUST(stays, "out of memory");
		for (g = 0; g < sm->granules; g++)
			stays[g] = sm->who[g] != 0;
		for (k = 1; k <= mo.setup->keys; k++) {
			struct version *v = mo.of_key[k];

			if (v && level & MCM_EVICT_KEEP_RECENT && !version_settled(v, sm))
				continue;
			for (i = 0; v && may_go(v, level) && i < v->copies; i++)
				if (v->range[i].segment == s && range_there(&v->range[i]))
					memset(stays + v->range[i].at, 0, v->range[i].granules);
		}
		for (g = begin = 0; g < sm->granules; g++) {
			if (stays[g])
				begin = g + 1;
			else if (mcm_alloc_fits(begin, g + 1 - begin, len))
				break;
		}
		free(stays);
		if (g < sm->granules && want <= sm->granules)
			return true;
	}
	return false;
}

unsigned window_level(uint64_t len)
{
	unsigned soft = mo.setup->soft_may_go ? MCM_EVICT_SOFT : 0, i;
	unsigned settled = mo.promised > now_tick() ? MCM_EVICT_KEEP_RECENT : 0;
	const struct mcm_segments *ss = &mo.fx.m->segments;
	const unsigned level[] = {
		settled, settled | soft, settled | soft | MCM_EVICT_LEASED, soft | MCM_EVICT_LEASED,
	};

	for (i = 0; i < ss->n_live; i++) {
		struct mcm_segment *s = ss->at[ss->live[i]];

		struct mcm_evict_view view = mcm_evict_view_of(mo.fx.m, s);

		mo.seg[s->id.lo].recent = view.recent_generation;
		mo.seg[s->id.lo].moment = view.recent_ms;
	}
	for (i = 0; i < sizeof(level) / sizeof(level[0]); i++)
		if (window(len, level[i]))
			return level[i];
	return NO_LEVEL;
}

int expected_memory(const struct open_put *p, bool fits)
{
	unsigned s;
	uint64_t largest = 0;

	if (!p->size)
		return 0;
	for (s = 1; s <= mo.setup->segments; s++)
		if (mo.seg[s].mounted && mo.seg[s].granules * MCM_GRANULE > largest)
			largest = mo.seg[s].granules * MCM_GRANULE;
	if (largest && mcm_object_reserve(p->size) > largest)
		return -MC_ETOOBIG;
	return fits ? 0 : -MC_ENOSPACE;
}

/* ---- tenants ---- */

uint64_t tenant_charged(unsigned tenant)
{
	uint64_t sum = 0;
	unsigned i, j;

	for (i = 1; i <= mo.setup->keys; i++)
		if (mo.of_key[i] && tenant_of(i) == tenant)
			sum += mo.of_key[i]->size * mo.of_key[i]->copies;
	for (i = 0; i < PUTS_MAX; i++)
		if (mo.put[i].open && tenant_of(mo.put[i].key) == tenant)
			sum += mo.put[i].size * mo.put[i].copies;
	/* Bytes that readers pin, counted once, and quarantined bytes. */
	for (i = 0; i < PINS_MAX; i++) {
		const struct version *v = mo.pin[i].v;

		for (j = 0; v && j < i && mo.pin[j].v != v; j++)
			;
		if (v && j == i && !v->key && v->tenant == tenant)
			sum += v->size * v->copies;
	}
	for (i = 0; i < mo.n_aside; i++)
		if (mo.aside[i].tenant == tenant)
			sum += mo.aside[i].charged;
	return sum;
}

/* The quota that it asked for, or its share of the capacity; the first tenants get the remainders
 * of the divisions. */
uint64_t tenant_share(unsigned tenant)
{
	uint64_t capacity = 0, sum = mo.quota[0] + mo.quota[1], share[2], left;
	unsigned s;

	for (s = 1; s <= mo.setup->segments; s++)
		capacity += mo.seg[s].mounted ? mo.seg[s].size : 0;
	if (sum <= capacity)
		return mo.quota[tenant];
	share[0] = mo.quota[0] * capacity / sum;
	share[1] = mo.quota[1] * capacity / sum;
	left = capacity - share[0] - share[1];
	return share[tenant] + (tenant < left);
}

uint64_t tenant_evictable(unsigned tenant, unsigned level)
{
	uint64_t sum = 0;
	unsigned i;

	for (i = 1; i <= mo.setup->keys; i++) {
		const struct version *v = mo.of_key[i];

		if (v && v->copies && tenant_of(i) == tenant && may_go(v, level))
			sum += v->size * v->copies;
	}
	return sum;
}

void look_at_tenants(void)
{
	struct mcp_tenant t;
	unsigned i;

	for (i = 0; mo.setup->tenants && i < 2; i++) {
		MUST(mcm_tenant_describe(mo.fx.m, i, &t), "tenant %u is not known", i);
		MUST(t.charged == tenant_charged(i), "tenant %u is charged for %llu bytes, not %llu", i,
		     (unsigned long long)t.charged, (unsigned long long)tenant_charged(i));
		MUST(t.effective == tenant_share(i), "tenant %u has a share of %llu bytes, expected %llu", i,
		     (unsigned long long)t.effective, (unsigned long long)tenant_share(i));
	}
}

/* Whether the tenant's quota permits the put, if necessary after evicting its objects at @level. */
bool within_quota(const struct open_put *p, unsigned copies, unsigned level)
{
	unsigned tenant = tenant_of(p->key);
	uint64_t want = p->size * copies, share, charged;

	if (!mo.setup->tenants)
		return true;
	share = tenant_share(tenant);
	charged = tenant_charged(tenant);
	return want <= share && (charged + want <= share ||
				 (level != NO_LEVEL &&
				  tenant_evictable(tenant, level) >= charged + want - share));
}

/* The mildest level at which it does. */
unsigned quota_level(const struct open_put *p, unsigned copies)
{
	unsigned soft = mo.setup->soft_may_go ? MCM_EVICT_SOFT : 0, i;
	const unsigned level[] = { NO_LEVEL, MCM_EVICT_PLAIN, soft, soft | MCM_EVICT_LEASED };

	for (i = 0; i < sizeof(level) / sizeof(level[0]); i++)
		if (within_quota(p, copies, level[i]))
			break;
	return i == 0 ? MCM_EVICT_PLAIN : i < 4 ? level[i] : soft | MCM_EVICT_LEASED;
}

/* Quotas that are reached, each alone, and both together when a segment is unmounted. */
void begin_tenants(void)
{
	uint64_t capacity = mo.setup->segments * mo.setup->segment_size, effective;
	struct mcm_scope sc[2];
	unsigned i;

	mo.quota[0] = capacity / 2;
	mo.quota[1] = capacity / 3;
	for (i = 0; i < 2; i++) {
		if (mo.setup->tenants)
			MUST(mcm_tenant_set_quota(mo.fx.m, fx_bytes(i ? "blue" : "default"), mo.quota[i],
						  &effective) == 0, "quota");
		MUST(mcm_scope_begin(mo.fx.m, NULL, tenant_name(i), true, &sc[i]) == 0, "tenant");
	}
	for (i = 1; i <= mo.setup->keys; i++)
		mo.key[i] = mcm_scope_key(sc[tenant_of(i)], fx_bytes(mo.name[i]), mo.inside[i]);
}

/* ---- versions ---- */

static void version_gone(struct version *v)
{
	unsigned i;

	for (i = 0; i < v->copies; i++)
		range_give(&v->range[i]);
	free(v);
}

void version_unindex(struct version *v)
{
	mo.of_key[v->key] = NULL;
	v->key = 0;
	if (!v->pins)
		version_gone(v);
}

void unpin(struct held_pin *p)
{
	struct version *v = p->v;

	p->v = NULL;
	v->pins--;
	if (!v->pins && !v->key)
		version_gone(v);
}

/* ---- comparison with the master ---- */

struct range range_of(const struct mcp_replica *r, uint64_t size)
{
	uint32_t seg = (uint32_t)r->segment.lo;

	MUST(seg >= 1 && seg <= mo.setup->segments && mo.seg[seg].mounted, "a copy in segment %u", seg);
	MUST(r->offset % MCM_GRANULE == 0, "a range at %llu", (unsigned long long)r->offset);
	return (struct range){
		seg, mo.seg[seg].mount, r->offset / MCM_GRANULE,
		mcm_alloc_round(mcm_object_reserve(size)),
	};
}

static bool same_range(const struct range *a, const struct range *b)
{
	return a->segment == b->segment && a->mount == b->mount && a->at == b->at;
}

unsigned compare_copies(struct version *v, const struct mcp_replica *rep, unsigned n)
{
	unsigned i, j, lost = 0;

	for (i = 0; i < v->copies;) {
		for (j = 0; j < n; j++) {
			struct range r = range_of(&rep[j], v->size);

			if (same_range(&r, &v->range[i]))
				break;
		}
		if (j < n) {
			i++;
			continue;
		}
		range_give(&v->range[i]);
		v->range[i] = v->range[--v->copies];
		lost++;
	}
	MUST(v->copies == n, "%s has %u copies, %u were expected", mo.name[v->key], n, v->copies);
	return lost;
}

unsigned look(uint32_t key, bool may_be_gone)
{
	struct mcp_replica rep[MCM_REPLICA_MAX];
	struct version *v = mo.of_key[key];
	struct mcp_object o;
	unsigned n, lost;
	int r;

	r = mcm_get(mo.fx.m, NULL, 0, key_bytes(key), &o, rep, &n);
	MUST(r == 0 || r == -MC_ENOOBJECT, "stat of %s: %d", mo.name[key], r);
	if (!v) {
		MUST(r < 0, "%s should not exist", mo.name[key]);
		return 0;
	}
	if (r < 0) {
		MUST(may_be_gone && v->copies, "%s has vanished", mo.name[key]);
		lost = v->copies;
		version_unindex(v);
		return lost;
	}
	MUST(o.size == v->size && o.generation == v->generation && o.crc == v->crc && o.kind == v->kind,
	     "%s is generation %llu of %llu bytes, expected %llu of %llu", mo.name[key],
	     (unsigned long long)o.generation, (unsigned long long)o.size,
	     (unsigned long long)v->generation, (unsigned long long)v->size);
	MUST(!(o.flags & MCP_OBJ_SOFT_PIN) == !soft(v), "%s: soft pin", mo.name[key]);
	if (mo.setup->groups) {
		struct mcp_bytes want = group_name(v->group);
		char is[MCP_GROUP_MAX];

		MUST(mcm_get_group(mo.fx.m, key_bytes(key), is) == want.len &&
		     !memcmp(is, want.data, want.len), "%s is not in its group", mo.name[key]);
	}
	lost = compare_copies(v, rep, n);
	MUST(may_be_gone || !lost, "%s has lost a copy", mo.name[key]);
	return lost;
}

void look_for_evicted(unsigned level)
{
	int64_t now = fx_metric("master_evicted_key_count");
	int64_t broken = fx_metric("mooncake_master_promises_broken_total");
	unsigned k, lost = 0, lost_leased = 0, n;

	/* Members of a group are evicted at the level at which the first member was, perhaps some
	 * time ago. */
	if (mo.setup->groups)
		level = MCM_EVICT_LEASED | (mo.setup->soft_may_go ? MCM_EVICT_SOFT : 0);
	if (now == mo.evicted) {
		MUST(broken == mo.broken, "a promise was broken without evicting");
		return;
	}
	for (k = 1; k <= mo.setup->keys; k++) {
		struct version *v = mo.of_key[k];
		bool was_leased = v && version_leased(v), went = v && may_go(v, level);

		if (!v)
			continue;
		n = look(k, true);
		MUST(!n || went, "%s was evicted, but it had to stay", mo.name[k]);
		lost += n;
		lost_leased += was_leased ? n : 0;
	}
	/* An object evicted with its group or for its quota loses all copies and counts once, also
	 * if its memory was unmounted just before. */
	MUST(lost == now - mo.evicted || mo.setup->groups || mo.setup->tenants,
	     "%u objects have gone, %lld were counted", lost,
	     (long long)(now - mo.evicted));
	MUST(lost_leased == broken - mo.broken || mo.setup->groups || mo.setup->tenants,
	     "%u promises broken, %lld were counted", lost_leased, (long long)(broken - mo.broken));
	mo.evicted = now;
	mo.broken = broken;
}

void look_at_used(void)
{
	uint64_t used = 0;
	unsigned s;

	for (s = 1; s <= mo.setup->segments; s++)
		used += mo.seg[s].mounted ? mo.seg[s].used : 0;
	MUST(used * MCM_GRANULE == fx_used(&mo.fx), "%llu bytes are used, %llu were expected",
	     (unsigned long long)fx_used(&mo.fx), (unsigned long long)used * MCM_GRANULE);
}

void look_at_all(void)
{
	uint64_t n = 0;
	unsigned k;

	for (k = 1; k <= mo.setup->keys; k++) {
		look(k, false);
		n += mo.of_key[k] != NULL;
	}
	MUST(n == mcm_index_count(&mo.fx.m->index), "%llu objects, %llu were expected",
	     (unsigned long long)mcm_index_count(&mo.fx.m->index), (unsigned long long)n);
	fx_check(&mo.fx);
}
