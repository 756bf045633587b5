/* SPDX-License-Identifier: Apache-2.0
 * tenant.c - names and numbers of tenants, key prefixes, quotas and charges. */
#include <config.h>

#include "master/tenant/tenant.h"

#include <errno.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/hash.h"
#include "master/mcm_i.h"
#include "proto/codec.h"
#include "proto/rpc_server.h"

/* As upstream: number of evictions without a victim after which a put gives up. */
#define EVICT_TRIES 3
/* Number of times that other puts may take the room that a put has freed: the loop must end even
 * without a time slice. */
#define ROUNDS_MAX 1000

/* ---- names and keys ---- */

uint32_t mcm_utf8_len(const unsigned char *p, uint32_t left)
{
	uint32_t n = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 :
		p[0] < 0xf5 ? 4 : 0, i;

	if (!n || n > left)
		return 0;
	for (i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
	    (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
		return 0;
	return n;
}

int mcm_tenant_check_name(struct mcp_bytes name)
{
	const unsigned char *p = name.data;
	uint32_t i, n;

	if (name.len > MCP_TENANT_MAX)
		return mc_fail(-MC_EPARAM, "a tenant's name is too long: bytes=%u maximum=%u", name.len,
			       MCP_TENANT_MAX);
	if (name.len && p[0] == '_')
		return mc_fail(-MC_EPARAM, "a tenant's name must not begin with '_'");
	for (i = 0; i < name.len; i += n) {
		n = mcm_utf8_len(p + i, name.len - i);
		if (!n)
			return mc_fail(-MC_EPARAM, "a tenant's name is not UTF-8");
		if (p[i] < 0x20 || p[i] == 0x7f)
			return mc_fail(-MC_EPARAM, "a tenant's name must not contain control characters");
	}
	return 0;
}

bool mcm_tenant_is_default(struct mcp_bytes name)
{
	return !name.len || (name.len == 7 && !memcmp(name.data, "default", 7));
}

static struct mcm_tenant *tenant_at(const struct mcm *m, uint32_t i)
{
	return __atomic_load_n(&m->tenants.at[i], __ATOMIC_ACQUIRE);
}

static uint16_t *name_bucket(const struct mcm_tenants *ts, const void *name, size_t len)
{
	return &ts->by_name[mc_hash(name, len, 0) % MCM_TENANT_BUCKETS];
}

/* lock held */
uint32_t mcm_tenant_lookup(const struct mcm *m, struct mcp_bytes name)
{
	const struct mcm_tenant *t;
	uint32_t i;

	if (mcm_tenant_is_default(name))
		return MCM_TENANT_DEFAULT;
	for (i = *name_bucket(&m->tenants, name.data, name.len); i; i = t->next_name) {
		t = tenant_at(m, i);
		if (strlen(t->name) == name.len && !memcmp(t->name, name.data, name.len))
			return i;
	}
	return MCM_TENANT_NONE;
}

static void tenant_unlink_name(const struct mcm_tenants *ts, const struct mcm_tenant *t)
{
	uint16_t *head = name_bucket(ts, t->name, strlen(t->name));
	uint32_t i = *head;

	if (i == t->number) {
		*head = (uint16_t)t->next_name;
		return;
	}
	while (ts->at[i]->next_name != t->number)
		i = ts->at[i]->next_name;
	ts->at[i]->next_name = t->next_name;
}

void mcm_tenant_set_name(struct mcm *m, struct mcm_tenant *t, const char *name, size_t len)
{
	struct mcm_tenants *ts = &m->tenants;
	uint16_t *head;

	if (t->name[0])
		tenant_unlink_name(ts, t);
	memcpy(t->name, name, len);
	t->name[len] = '\0';
	head = name_bucket(ts, name, len);
	t->next_name = *head;
	*head = (uint16_t)t->number;
}

int mcm_tenant_confine(const struct mcm *m, const struct mc_principal *peer, struct mcp_bytes *tenant)
{
	size_t len;

	if (!m->tenants.on || !peer || !peer->tenant[0])
		return 0;
	len = strlen(peer->tenant);
	if (tenant->len && (tenant->len != len || memcmp(tenant->data, peer->tenant, len) != 0))
		return mc_fail(-EACCES, "the identity of this peer belongs to tenant \"%s\", so it may not name "
			       "another", peer->tenant);
	*tenant = mcp_bytes(peer->tenant, len);
	return 0;
}

int mcm_scope_begin(struct mcm *m, const struct mc_principal *peer, struct mcp_bytes tenant, bool write,
		    struct mcm_scope *ret)
{
	struct mcm_tenants *ts = &m->tenants;
	bool may;
	int r;

	ret->tenant = MCM_TENANT_DEFAULT;
	if (!ts->on)
		return 0;
	r = mcm_tenant_confine(m, peer, &tenant);
	if (r == 0)
		r = mcm_tenant_check_name(tenant);
	if (r < 0)
		return r;
	mc_rwlock_rdlock(&ts->lock);
	ret->tenant = mcm_tenant_lookup(m, tenant);
	may = ret->tenant != MCM_TENANT_NONE && tenant_at(m, ret->tenant)->explicit_policy;
	if (!may && ret->tenant != MCM_TENANT_NONE)
		mcm_store_relaxed(&tenant_at(m, ret->tenant)->seen_ms, mcm_now_ms(m));
	mc_rwlock_unlock(&ts->lock);
	if (write && !may)
		return mc_fail(-MC_ENOTENANT, "tenant \"%.*s\" is not in the quota policy",
			       (int)tenant.len, tenant.len ? (const char *)tenant.data : "");
	return 0;
}

struct mcp_bytes mcm_scope_name(struct mcm_scope sc, struct mcp_bytes name, uint32_t max, char *buf)
{
	if (!name.len || name.len > max)
		return (struct mcp_bytes){ "", 0 };
	if (mcm_scope_plain(sc, name))
		return name;
	mcm_tenant_prefix(sc.tenant, buf);
	memcpy(buf + MCM_PREFIX_MAX, name.data, name.len);
	return mcp_bytes(buf, MCM_PREFIX_MAX + name.len);
}

/* ---- quotas ---- */

void mcm_tenants_update_quotas(struct mcm *m)
{
	struct mcm_tenants *ts = &m->tenants;
	uint64_t capacity = mcm_load_relaxed(&m->segments.capacity), left = capacity;
	unsigned __int128 sum = 0;
	unsigned i;

	for (i = 0; i < ts->count; i++)
		if (ts->at[i]->explicit_policy)
			sum += ts->at[i]->requested;
	mcm_store_relaxed(&ts->quota_capacity, capacity);
	for (i = 0; i < ts->count; i++) {
		struct mcm_tenant *t = ts->at[i];
		uint64_t share = t->explicit_policy ? t->requested : 0;

		if (sum > capacity)
			share = (uint64_t)((unsigned __int128)share * capacity / sum);
		mcm_store_relaxed(&t->effective, share);
		left -= share < left ? share : left;
		if (t->explicit_policy && mcm_load_relaxed(&t->charged) > share)
			__atomic_store_n(&ts->above, true, __ATOMIC_RELAXED);
	}
	/* Distribute the remainder of the divisions: one byte each to the first tenants. */
	for (i = 0; i < ts->count && left && sum > capacity; i++) {
		if (!ts->at[i]->explicit_policy)
			continue;
		mcm_store_relaxed(&ts->at[i]->effective, ts->at[i]->effective + 1);
		left--;
	}
}

/* The capacity may have changed with the segments. */
static void update_quotas(struct mcm *m)
{
	struct mcm_tenants *ts = &m->tenants;

	if (mcm_load_relaxed(&m->segments.capacity) == mcm_load_relaxed(&ts->quota_capacity))
		return;
	mc_rwlock_wrlock(&ts->lock);
	mcm_tenants_update_quotas(m);
	mc_rwlock_unlock(&ts->lock);
}

static bool try_charge(struct mcm_tenant *t, uint64_t bytes)
{
	uint64_t old = mcm_load_relaxed(&t->charged), limit = mcm_load_relaxed(&t->effective);

	do {
		if (bytes > limit || old > limit - bytes)
			return false;
	} while (!__atomic_compare_exchange_n(&t->charged, &old, old + bytes, true, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED));
	return true;
}

/* Restored objects may become evictable in a few seconds, so the put may succeed later. */
static int grace_error(const struct mcm_tenant *t)
{
	return mc_fail(-MC_EUNAVAILABLE, "the quota of tenant %s is full, and its objects cannot be "
		       "evicted until clients have reconnected after the restart", t->name);
}

/* The tenant's objects become evictable when they are on a disk. */
static int kept_error(struct mcm_tenant *t)
{
	__atomic_fetch_add(&t->counts.rejected, 1, __ATOMIC_RELAXED);
	return mc_fail(-MC_EUNAVAILABLE, "the quota of tenant %s is full until its objects in memory are on a disk",
		       t->name);
}

static int quota_error(struct mcm_tenant *t)
{
	__atomic_fetch_add(&t->counts.rejected, 1, __ATOMIC_RELAXED);
	return mc_fail(-MC_EQUOTA, "the quota of tenant %s is full: bytes=%llu", t->name,
		       (unsigned long long)mcm_load_relaxed(&t->effective));
}

int mcm_tenant_charge(struct mcm *m, uint32_t tenant, uint64_t bytes, const struct mcm_slice *sl)
{
	unsigned rounds, failures = 0;
	struct mcm_tenant *t;
	bool kept = false;

	if (!m->tenants.on)
		return 0;
	update_quotas(m);
	t = tenant_at(m, tenant);
	for (rounds = 0; !try_charge(t, bytes); rounds++) {
		uint64_t limit = mcm_load_relaxed(&t->effective), charged = mcm_load_relaxed(&t->charged);

		if (bytes <= limit && failures == EVICT_TRIES && kept)
			return kept_error(t);
		if (bytes > limit || failures == EVICT_TRIES || rounds == ROUNDS_MAX)
			return bytes <= limit && mcm_grace_pins_left(m) ? grace_error(t) : quota_error(t);
		if (charged + bytes > limit && !mcm_tenant_evict(m, tenant, charged + bytes - limit, sl, &kept))
			failures++;
		if (mcm_slice_over(sl))
			return try_charge(t, bytes) ? 0 : MCP_AGAIN;
	}
	return 0;
}

bool mcm_tenant_charge_free(struct mcm *m, uint32_t tenant, uint64_t bytes)
{
	if (!m->tenants.on)
		return true;
	update_quotas(m);
	return try_charge(tenant_at(m, tenant), bytes);
}

int mcm_tenant_charge_copy(struct mcm *m, uint32_t tenant, uint64_t bytes)
{
	struct mcm_tenant *t;

	if (!m->tenants.on)
		return 0;
	update_quotas(m);
	t = tenant_at(m, tenant);
	return try_charge(t, bytes) ? 0 : quota_error(t);
}

void mcm_tenant_add(struct mcm *m, uint32_t tenant, uint64_t bytes)
{
	struct mcm_tenant *t;

	if (!m->tenants.on)
		return;
	t = tenant_at(m, tenant);
	if (__atomic_add_fetch(&t->charged, bytes, __ATOMIC_RELAXED) > mcm_load_relaxed(&t->effective))
		__atomic_store_n(&m->tenants.above, true, __ATOMIC_RELAXED);
}

void mcm_tenant_refund(struct mcm *m, uint32_t tenant, uint64_t bytes)
{
	if (m->tenants.on)
		__atomic_fetch_sub(&tenant_at(m, tenant)->charged, bytes, __ATOMIC_RELAXED);
}

/* ---- queries ---- */

bool mcm_tenants_over_quota(struct mcm *m)
{
	if (!m->tenants.on)
		return false;
	update_quotas(m);
	return __atomic_load_n(&m->tenants.above, __ATOMIC_RELAXED);
}

bool mcm_tenant_describe(struct mcm *m, unsigned i, struct mcp_tenant *ret)
{
	struct mcm_tenants *ts = &m->tenants;
	const struct mcm_tenant *t;

	update_quotas(m);
	mc_rwlock_rdlock(&ts->lock);
	t = i < ts->count ? tenant_at(m, i) : NULL;
	if (t)
		*ret = (struct mcp_tenant){
			.name = mcp_bytes(t->name, strlen(t->name)),
			.requested = t->requested, .effective = t->effective,
			.charged = mcm_load_relaxed(&t->charged), .objects = mcm_load_relaxed(&t->objects),
			.explicit_policy = t->explicit_policy,
			.admission_closed = !t->explicit_policy,
		};
	mc_rwlock_unlock(&ts->lock);
	return t;
}

struct mcp_bytes mcm_tenant_name(const struct mcm *m, uint32_t tenant)
{
	const struct mcm_tenant *t = tenant_at(m, tenant);

	return t ? mcp_bytes(t->name, strlen(t->name)) : mcp_bytes("", 0);
}

struct mcm_tenant_counts mcm_tenant_counts(struct mcm *m, unsigned i)
{
	const struct mcm_tenant *t = tenant_at(m, i);

	return (struct mcm_tenant_counts){
		mcm_load_relaxed(&t->counts.rejected), mcm_load_relaxed(&t->counts.evicted_bytes),
	};
}

int mcm_tenant_find(struct mcm *m, struct mcp_bytes name, uint32_t *ret)
{
	mc_rwlock_rdlock(&m->tenants.lock);
	*ret = mcm_tenant_lookup(m, name);
	mc_rwlock_unlock(&m->tenants.lock);
	return *ret == MCM_TENANT_NONE ? mc_fail(-MC_ENOTENANT, "no such tenant") : 0;
}

/* ---- numbers ---- */

/* The longest time that a request, or a put between its two requests, may last. */
static uint64_t number_reuse_ms(const struct mcm *m)
{
	return m->conf.put_start_release_timeout_sec;
}

/* The tenant whose number may be reused; NULL: none. */
static struct mcm_tenant *longest_unused(const struct mcm *m)
{
	const struct mcm_tenants *ts = &m->tenants;
	uint64_t best = UINT64_MAX;
	struct mcm_tenant *ret = NULL;

	for (unsigned i = 1; i < ts->count; i++) {
		struct mcm_tenant *t = ts->at[i];
		uint64_t seen = mcm_load_relaxed(&t->seen_ms);

		if (t->explicit_policy || mcm_load_relaxed(&t->objects) || mcm_load_relaxed(&t->charged) ||
		    seen >= best)
			continue;
		best = seen;
		ret = t;
	}
	return ret && mcm_now_ms(m) - best >= number_reuse_ms(m) ? ret : NULL;
}

/* Keep the struct for a while: another thread may still be printing the name. */
static void tenant_retire(struct mcm *m, struct mcm_tenant *t)
{
	struct mcm_tenants *ts = &m->tenants;
	struct mcm_tenant **at = &ts->retired, *old;

	while ((old = *at) && mcm_now_ms(m) - old->seen_ms < number_reuse_ms(m))
		at = &old->retired;
	*at = NULL;
	mcm_tenants_free(old);
	mcm_durable_drop(m, MCM_DURABLE_TENANT, mcp_bytes(t->name, strlen(t->name)));
	tenant_unlink_name(ts, t);
	t->seen_ms = mcm_now_ms(m);
	t->retired = ts->retired;
	ts->retired = t;
}

void mcm_tenants_free(struct mcm_tenant *t)
{
	struct mcm_tenant *next;

	for (; t; t = next) {
		next = t->retired;
		mc_mutex_destroy(&t->lists.lock);
		free(t);
	}
}

int mcm_tenant_make(struct mcm *m, struct mcp_bytes name, struct mcm_tenant **ret)
{
	struct mcm_tenants *ts = &m->tenants;
	uint32_t i = mcm_tenant_lookup(m, name);
	struct mcm_tenant *t, *gone = NULL;

	if (i != MCM_TENANT_NONE) {
		*ret = tenant_at(m, i);
		return 0;
	}
	if (ts->count == MCM_TENANTS_MAX)
		gone = longest_unused(m);
	if (ts->count == MCM_TENANTS_MAX && !gone)
		return mc_fail(-MC_ELIMIT, "more than %u tenants", MCM_TENANTS_MAX);
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->number = gone ? gone->number : ts->count;
	t->seen_ms = mcm_now_ms(m);
	t->first_event = mcm_events_next(m);
	mcm_object_lists_init(&t->lists);
	if (gone)
		tenant_retire(m, gone);
	mcm_tenant_set_name(m, t, name.data, name.len);
	__atomic_store_n(&ts->at[t->number], t, __ATOMIC_RELEASE);
	if (!gone)
		__atomic_store_n(&ts->count, ts->count + 1, __ATOMIC_RELAXED);
	mcm_tenant_save(m, t);
	*ret = t;
	return 0;
}
