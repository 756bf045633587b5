/* SPDX-License-Identifier: Apache-2.0
 * tenant_policy.c - the quota policy, a YAML text in upstream's format:
 *
 *	version: 1
 *	tenants:
 *	  - name: alice
 *	    quota: "200GB"
 *
 * policy_store.h has the places where it may be stored.  Quotas set by requests are stored there too. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/options/options.h"
#include "master/journal/journal.h"
#include "master/mcm_i.h"
#include "master/tenant/policy_store.h"
#include "proto/codec.h"

#define LOG "tenant"
#define SET_TRIES 3	/* while the stored policy changes */

/* ---- reading ---- */

static const char *yaml_text(yaml_document_t *doc, int id)
{
	const yaml_node_t *n = yaml_document_get_node(doc, id);

	if (!n || n->type != YAML_SCALAR_NODE)
		return NULL;
	/* "a\0b" is not "a". */
	return strlen((const char *)n->data.scalar.value) == n->data.scalar.length ?
		(const char *)n->data.scalar.value : NULL;
}

static const yaml_node_t *yaml_member(yaml_document_t *doc, const yaml_node_t *map, const char *name,
				      int *ret_id)
{
	const yaml_node_pair_t *p;

	for (p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
		const char *key = yaml_text(doc, p->key);

		if (key && !strcmp(key, name)) {
			*ret_id = p->value;
			return yaml_document_get_node(doc, p->value);
		}
	}
	return NULL;
}

static int read_entry(yaml_document_t *doc, const yaml_node_t *map, struct mcm_tenant_policy *p)
{
	const char *name, *quota;
	uint64_t bytes;
	int id, r;

	if (!map || map->type != YAML_MAPPING_NODE)
		return mc_fail(-MC_EPARAM, "an entry of \"tenants\" is not a mapping");
	name = yaml_member(doc, map, "name", &id) ? yaml_text(doc, id) : NULL;
	quota = yaml_member(doc, map, "quota", &id) ? yaml_text(doc, id) : NULL;
	if (!name || !*name || !quota)
		return mc_fail(-MC_EPARAM, "a tenant needs a name and a quota");
	r = mcm_tenant_check_name(mcp_bytes(name, strlen(name)));
	if (r < 0)
		return r;
	if (mc_parse_size(quota, &bytes) < 0 || !bytes || bytes > INT64_MAX)
		return mc_fail(-MC_EPARAM, "tenant %s: invalid quota \"%s\"", name, quota);
	snprintf(p->at[p->count].name, sizeof(p->at->name), "%s", name);
	p->at[p->count++].quota = bytes;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_unique(const struct mcm_tenant_policy *p)
{
	const char **name = calloc(p->count + 1, sizeof(*name));
	size_t i;
	int r = 0;

	if (!name)
		return -ENOMEM;
	for (i = 0; i < p->count; i++)
		name[i] = p->at[i].name;
	qsort(name, p->count, sizeof(*name), by_name);
	for (i = 1; i < p->count && r == 0; i++)
		if (!strcmp(name[i - 1], name[i]))
			r = mc_fail(-MC_EPARAM, "tenant %s is listed twice", name[i]);
	free(name);
	return r;
}

static int read_document(yaml_document_t *doc, struct mcm_tenant_policy *p)
{
	const yaml_node_t *root = yaml_document_get_root_node(doc), *list;
	const yaml_node_item_t *it;
	const char *version;
	size_t n;
	int id, r;

	if (!root || root->type != YAML_MAPPING_NODE)
		return mc_fail(-MC_EPARAM, "the document is not a mapping");
	version = yaml_member(doc, root, "version", &id) ? yaml_text(doc, id) : NULL;
	if (!version || strcmp(version, "1"))
		return mc_fail(-MC_EPARAM, "\"version: 1\" is missing");
	list = yaml_member(doc, root, "tenants", &id);
	if (!list || list->type != YAML_SEQUENCE_NODE)
		return mc_fail(-MC_EPARAM, "\"tenants\" is not a list");
	n = (size_t)(list->data.sequence.items.top - list->data.sequence.items.start);
	if (n >= MCM_TENANTS_MAX)
		return mc_fail(-MC_ELIMIT, "more than %u tenants", MCM_TENANTS_MAX - 1);
	p->at = calloc(n + 1, sizeof(*p->at));
	if (!p->at)
		return -ENOMEM;
	for (it = list->data.sequence.items.start; it < list->data.sequence.items.top; it++) {
		r = read_entry(doc, yaml_document_get_node(doc, *it), p);
		if (r < 0)
			return r;
	}
	return check_unique(p);
}

int mcm_tenant_policy_read(FILE *from, struct mcm_tenant_policy *p)
{
	yaml_document_t doc;
	yaml_parser_t parser;
	int r;

	if (!yaml_parser_initialize(&parser))
		return -ENOMEM;
	yaml_parser_set_input_file(&parser, from);
	if (yaml_parser_load(&parser, &doc)) {
		r = read_document(&doc, p);
		yaml_document_delete(&doc);
	} else {
		r = mc_fail(-MC_EPARAM, "line %zu: %s", parser.problem_mark.line + 1,
			    parser.problem ? parser.problem : "not YAML");
	}
	yaml_parser_delete(&parser);
	return r;
}

/* ---- the policy in force; policy_lock held ---- */

/* Tenants' lock held for writing. */
static int policy_add(struct mcm *m, const struct mcm_tenant_policy *p)
{
	struct mcm_tenant *t;
	int r = 0;

	for (size_t j = 0; j < p->count && r == 0; j++) {
		r = mcm_tenant_make(m, mcp_bytes(p->at[j].name, strlen(p->at[j].name)), &t);
		if (r < 0)
			break;
		t->explicit_policy = true;
		t->requested = p->at[j].quota;
		mcm_tenant_save(m, t);
	}
	return r;
}

static int policy_apply(struct mcm *m, const struct mcm_tenant_policy *p)
{
	struct mcm_tenants *ts = &m->tenants;
	auto_free bool *was = calloc(MCM_TENANTS_MAX, sizeof(*was));
	struct mcm_tenant *t;
	unsigned i;
	size_t j;
	int r = 0;

	if (!was)
		return -ENOMEM;
	mc_rwlock_wrlock(&ts->lock);
	/* Nothing changes when there is no room for all. */
	for (j = 0; j < p->count && r == 0; j++)
		r = mcm_tenant_make(m, mcp_bytes(p->at[j].name, strlen(p->at[j].name)), &t);
	for (i = 0; i < ts->count && r == 0; i++) {
		was[i] = ts->at[i]->explicit_policy;
		if (was[i])
			mcm_store_relaxed(&ts->at[i]->seen_ms, mcm_now_ms(m));
		ts->at[i]->explicit_policy = false;
	}
	if (r == 0)
		r = policy_add(m, p);
	/* A restart must not bring back those that left the policy: its store may not answer then. */
	for (i = 0; i < ts->count && r == 0; i++)
		if (was[i] && !ts->at[i]->explicit_policy)
			mcm_tenant_save(m, ts->at[i]);
	mcm_tenants_update_quotas(m);
	mc_rwlock_unlock(&ts->lock);
	return r;
}

int mcm_policy_take(struct mcm *m, FILE *from, const char *where)
{
	struct mcm_tenant_policy p = { 0 };
	char why[256];
	int r = mcm_tenant_policy_read(from, &p);

	if (r < 0) {
		snprintf(why, sizeof(why), "%s", mc_err_detail(r));
		r = mc_fail(r, "%s: %s", where, why);
	} else {
		r = policy_apply(m, &p);
	}
	if (r == 0)
		mc_info(LOG, "tenant policy read from=%s tenants=%zu", where, p.count);
	free(p.at);
	return r;
}

/* ---- the store ---- */

const struct mcm_policy_ops *mcm_policy_find(const char *type)
{
	static const struct mcm_policy_ops *const all[] = { &mcm_policy_file, &mcm_policy_etcd };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (!strcmp(all[i]->type, type))
			return all[i];
	return NULL;
}

int mcm_policy_check(const struct mcm_conf *c)
{
	const struct mcm_policy_ops *ops = mcm_policy_find(c->tenant_quota_connector_type);

	if (!ops)
		return mc_fail(-EINVAL, "tenant_quota_connector_type=%s: unknown, use file or etcd",
			       c->tenant_quota_connector_type);
	if (ops != &mcm_policy_file && c->enable_multi_tenants && !*c->tenant_quota_connector_uri)
		return mc_fail(-EINVAL, "tenant_quota_connector_type=%s needs tenant_quota_connector_uri=HOST:PORT",
			       ops->type);
	return 0;
}

const struct mcm_policy_ops *mcm_policy_store(const struct mcm *m)
{
	const char *uri = m->conf.tenant_quota_connector_uri;

	return m->tenants.on && uri && *uri ? mcm_policy_find(m->conf.tenant_quota_connector_type) : NULL;
}

void mcm_tenants_tick(struct mcm *m)
{
	const struct mcm_policy_ops *store = mcm_policy_store(m);

	if (store)
		store->tick(m);
}

int mcm_tenants_start(struct mcm *m)
{
	const struct mcm_policy_ops *store = mcm_policy_store(m);

	return store ? store->start(m) : 0;
}

void mcm_tenants_stop(struct mcm *m)
{
	const struct mcm_policy_ops *store = mcm_policy_store(m);

	if (store)
		store->stop(m);
}

/* ---- writing ---- */

static uint32_t utf8_char(const unsigned char *p, uint32_t n)
{
	uint32_t c = n == 1 ? p[0] : p[0] & (0x7fu >> n);

	for (uint32_t i = 1; i < n; i++)
		c = c << 6 | (p[i] & 0x3f);
	return c;
}

/* Is the character special in a quoted YAML scalar, a line break, or not allowed in YAML? */
static bool needs_escape(uint32_t c)
{
	return c == '"' || c == '\\' || c < 0x20 || (c >= 0x7f && c < 0xa0) ||
		c == 0x2028 || c == 0x2029 || c == 0xfeff || c == 0xfffe || c == 0xffff;
}

static void print_name(FILE *to, const char *name)
{
	const unsigned char *p = (const unsigned char *)name;
	uint32_t left = (uint32_t)strlen(name), n, c;

	fputs("  - name: \"", to);
	for (; left; p += n, left -= n) {
		n = mcm_utf8_len(p, left);
		n = n ? n : 1;
		c = utf8_char(p, n);
		if (needs_escape(c))
			fprintf(to, "\\u%04" PRIx32, c);
		else
			fwrite(p, 1, n, to);
	}
	fputs("\"\n", to);
}

static void print_policy(struct mcm *m, FILE *to)
{
	struct mcm_tenants *ts = &m->tenants;
	unsigned i, n = 0;

	fputs("version: 1\ntenants:", to);
	mc_rwlock_rdlock(&ts->lock);
	for (i = 0; i < ts->count; i++) {
		if (!ts->at[i]->explicit_policy)
			continue;
		fputs(n++ ? "" : "\n", to);
		print_name(to, ts->at[i]->name);
		fprintf(to, "    quota: \"%" PRIu64 "\"\n", ts->at[i]->requested);
	}
	mc_rwlock_unlock(&ts->lock);
	/* A list, where nothing would be a null. */
	fputs(n ? "" : " []\n", to);
}

static int policy_save(struct mcm *m)
{
	const struct mcm_policy_ops *store = mcm_policy_store(m);
	auto_free char *text = NULL;
	size_t len = 0;
	FILE *to;
	int r;

	if (!store)
		return 0;
	to = open_memstream(&text, &len);
	if (!to)
		return -ENOMEM;
	print_policy(m, to);
	if (fclose(to))
		return -ENOMEM;
	r = store->save(m, text, len);
	/* The answer to a request over RPC has only the number. */
	if (r < 0 && r != -EAGAIN)
		mc_warn(LOG, "cannot store the tenant policy: %s", mc_err_detail(r));
	return r;
}

/* One tenant's entry in the policy. */
struct quota_terms {
	bool explicit_policy;
	uint64_t requested;
};

/* tenants' lock held for writing, here and below */
static void tenant_set_terms(struct mcm *m, struct mcm_tenant *t, struct quota_terms terms)
{
	t->explicit_policy = terms.explicit_policy;
	t->requested = terms.requested;
	mcm_store_relaxed(&t->seen_ms, mcm_now_ms(m));
	mcm_tenant_save(m, t);
	mcm_tenants_update_quotas(m);
}

static int policy_change(struct mcm *m, struct mcp_bytes name, uint64_t quota, struct mcm_tenant **ret,
			 struct quota_terms *ret_was)
{
	struct mcm_tenant *t;
	int r;

	if (!quota) {
		uint32_t i = mcm_tenant_lookup(m, name);

		t = i == MCM_TENANT_NONE ? NULL : m->tenants.at[i];
		if (!t || !t->explicit_policy)
			return mc_fail(-MC_ENOTENANT, "the tenant is not in the policy");
		if (mcm_load_relaxed(&t->objects))
			return mc_fail(-MC_ETENANT_BUSY, "tenant %s still has objects: objects=%llu", t->name,
				       (unsigned long long)mcm_load_relaxed(&t->objects));
	} else {
		r = mcm_tenant_make(m, name, &t);
		if (r < 0)
			return r;
	}
	*ret = t;
	*ret_was = (struct quota_terms){ t->explicit_policy, t->requested };
	tenant_set_terms(m, t, (struct quota_terms){ quota > 0, quota });
	return 0;
}

/* policy_lock held.  -EAGAIN: another policy is stored now. */
static int quota_set(struct mcm *m, struct mcp_bytes name, uint64_t quota, uint64_t *ret_effective)
{
	struct mcm_tenants *ts = &m->tenants;
	struct mcm_tenant *t = NULL;
	struct quota_terms was = { 0 };
	uint64_t effective = 0;
	int r;

	mc_rwlock_wrlock(&ts->lock);
	r = policy_change(m, name, quota, &t, &was);
	if (r == 0)
		effective = t->effective;
	mc_rwlock_unlock(&ts->lock);
	if (r < 0)
		return r;
	r = policy_save(m);
	if (r == 0) {
		*ret_effective = effective;
		return 0;
	}
	/* A change that could not be written must not stay in force. */
	mc_rwlock_wrlock(&ts->lock);
	tenant_set_terms(m, t, was);
	mc_rwlock_unlock(&ts->lock);
	return r;
}

int mcm_tenant_set_quota(struct mcm *m, struct mcp_bytes name, uint64_t quota, uint64_t *ret_effective)
{
	int r;

	if (!m->tenants.on)
		return mc_fail(-MC_EMODE, "the master was started without --enable_multi_tenants");
	if (!name.len)
		name = mcp_bytes("default", 7);
	r = mcm_tenant_check_name(name);
	if (r == 0 && quota > INT64_MAX)
		r = mc_fail(-MC_EPARAM, "quota out of range: bytes=%llu", (unsigned long long)quota);
	if (r < 0)
		return r;
	MC_LOCKED(&m->tenants.policy_lock);
	for (unsigned i = 0; i < SET_TRIES; i++) {
		r = quota_set(m, name, quota, ret_effective);
		if (r != -EAGAIN)
			return r;
		/* The change is made to the policy that is stored now. */
		(void)mcm_policy_store(m)->load(m);
	}
	return mc_fail(-MC_EUNAVAILABLE, "the stored tenant policy changes all the time");
}

/* ---- across restarts ---- */

#define VALUE_BYTES 13	/* length of the durable value: u64 quota, u32 number, u8 explicit_policy */

void mcm_tenant_save(struct mcm *m, const struct mcm_tenant *t)
{
	uint64_t quota = t->requested;
	uint8_t v[VALUE_BYTES];
	unsigned i;

	for (i = 0; i < 8; i++)
		v[i] = (uint8_t)(quota >> 8 * i);
	for (i = 0; i < 4; i++)
		v[8 + i] = (uint8_t)(t->number >> 8 * i);
	v[12] = t->explicit_policy;
	/* Without the value a restart cannot assign the keys to the tenant. */
	if (mcm_durable_set(m, MCM_DURABLE_TENANT, mcp_bytes(t->name, strlen(t->name)),
			    mcp_bytes(v, sizeof(v))) < 0)
		mc_err(LOG, "cannot make tenant %s survive a restart: %s", t->name, mc_err_detail(-ENOMEM));
}

/* If only keys of objects mention the number, the tenant gets a name that no valid tenant name can equal. */
static int tenant_make_number(struct mcm *m, uint32_t number, const char *name, size_t len,
			      struct mcm_tenant **ret)
{
	struct mcm_tenants *ts = &m->tenants;
	struct mcm_tenant *t = ts->at[number];
	char lost[32];

	if (!t) {
		t = calloc(1, sizeof(*t));
		if (!t)
			return -ENOMEM;
		mcm_object_lists_init(&t->lists);
		t->number = number;
		t->seen_ms = mcm_now_ms(m);
		ts->at[number] = t;
	}
	if (number >= ts->count)
		ts->count = number + 1;
	if (!name || len > MCP_TENANT_MAX)
		name = t->name[0] ? NULL : lost;
	if (name == lost)
		len = (size_t)snprintf(lost, sizeof(lost), "_lost-%u", number);
	if (name && number != MCM_TENANT_DEFAULT)
		mcm_tenant_set_name(m, t, name, len);
	*ret = t;
	return 0;
}

struct loading {
	struct mcm *m;
	int error;
};

static void load_value(void *arg, const struct mcm_durable_record *d)
{
	struct loading *l = arg;
	const uint8_t *v = d->value.data;
	struct mcm_tenant *t;
	uint32_t number = 0;
	uint64_t quota = 0;
	unsigned i;

	if (l->error || d->value.len < VALUE_BYTES || !d->name.len)
		return;
	for (i = 0; i < 8; i++)
		quota |= (uint64_t)v[i] << 8 * i;
	for (i = 0; i < 4; i++)
		number |= (uint32_t)v[8 + i] << 8 * i;
	if (number >= MCM_TENANTS_MAX || (!number) != (d->name.len == 7 && !memcmp(d->name.data, "default", 7)))
		return;
	l->error = tenant_make_number(l->m, number, d->name.data, d->name.len, &t);
	if (l->error < 0)
		return;
	t->requested = quota;
	t->explicit_policy = v[12];
}

/* Shard locked. */
static void load_object(void *arg, uint32_t slot)
{
	struct loading *l = arg;
	const struct mcm_object *o = mcm_object(&l->m->index, slot);
	uint32_t number = mcm_key_tenant(mcm_shard_key(&l->m->index, slot), o->key_len);
	struct mcm_tenant *t;

	if (l->error || number >= MCM_TENANTS_MAX)
		return;
	if (!l->m->tenants.at[number])
		l->error = tenant_make_number(l->m, number, NULL, 0, &t);
	if (l->error == 0)
		mcm_tenant_join(l->m, slot, 0);
}

int mcm_tenants_load(struct mcm *m)
{
	const struct mcm_policy_ops *store = mcm_policy_store(m);
	struct mcm_tenants *ts = &m->tenants;
	struct loading l = { .m = m };
	struct mcm_tenant *t;
	uint64_t pos = 0;
	uint32_t i;

	mcm_durables_each(m, MCM_DURABLE_TENANT, load_value, &l);
	while (ts->on && pos < MCM_TABLE_END && l.error == 0)
		mcm_index_scan(&m->index, &pos, 4096, load_object, &l);
	for (i = 0; i < ts->count && l.error == 0; i++)
		if (!ts->at[i])
			l.error = tenant_make_number(m, i, NULL, 0, &t);
	mcm_tenants_update_quotas(m);
	if (l.error == 0 && store)
		l.error = store->open(m);
	if (l.error == 0 && store) {
		MC_LOCKED(&ts->policy_lock);
		l.error = store->load(m);
	}
	return l.error;
}

/* ---- begin and end ---- */

int mcm_tenants_init(struct mcm *m)
{
	struct mcm_tenants *ts = &m->tenants;
	struct mcm_tenant *t;

	mc_rwlock_init(&ts->lock);
	mc_mutex_init(&ts->policy_lock);
	ts->at = calloc(MCM_TENANTS_MAX, sizeof(*ts->at));
	ts->by_name = calloc(MCM_TENANT_BUCKETS, sizeof(*ts->by_name));
	t = calloc(1, sizeof(*t));
	if (!ts->at || !ts->by_name || !t) {
		free(t);
		return -ENOMEM;
	}
	strcpy(t->name, "default");
	mcm_object_lists_init(&t->lists);
	ts->at[ts->count++] = t;
	ts->on = m->conf.enable_multi_tenants;
	return 0;
}

void mcm_tenants_done(struct mcm *m)
{
	const struct mcm_policy_ops *store = mcm_policy_store(m);
	struct mcm_tenants *ts = &m->tenants;
	unsigned i;

	if (store)
		store->close(m);
	for (i = 0; ts->at && i < ts->count; i++) {
		if (!ts->at[i])
			continue;
		mcm_tenants_free(ts->at[i]);
	}
	mcm_tenants_free(ts->retired);
	free(ts->at);
	free(ts->by_name);
	mc_mutex_destroy(&ts->policy_lock);
	mc_rwlock_destroy(&ts->lock);
}
