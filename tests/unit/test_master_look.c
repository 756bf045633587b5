/* SPDX-License-Identifier: Apache-2.0
 * test_master_look.c - implementation of test_master_look.h. */
#include <config.h>

#include "test_master_look.h"

#include <stdio.h>
#include <string.h>

#include "master/admin/stats.h"
#include "master/journal/record.h"

const char *const look_tenants[LOOK_TENANTS] = { "default", "t1", "t2" };

static struct mcp_attrs attrs_mem;
static struct mcm_xattrs_memory xattrs_mem;

static void __attribute__((format(printf, 2, 3))) line_add(struct look *l, const char *fmt, ...)
{
	va_list ap;
	char *text;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	assert_true(n > 0);
	if (l->n == l->cap) {
		l->cap = l->cap ? 2 * l->cap : 256;
		l->line = realloc(l->line, l->cap * sizeof(*l->line));
		assert_non_null(l->line);
	}
	l->line[l->n++] = text;
}

/* ---- durable properties ---- */

static char *name_of(const char *key, uint32_t len)
{
	uint32_t tenant;
	struct mcp_bytes bare = mcm_key_bare(mcp_bytes(key, len), &tenant);
	char *text;

	assert_true(asprintf(&text, "%.*s@%u", (int)bare.len, (const char *)bare.data, tenant) > 0);
	return text;
}

struct dump {
	struct fixture *fx;
	struct look *l;
};

static void dump_object(void *arg, uint32_t slot)
{
	static char copies[512], xattrs[2 * MCP_XATTRS_MAX + 1];
	struct dump *d = arg;
	struct mcm_object_record r;
	size_t n = 0;
	char *name;

	mcm_object_describe(d->fx->m, slot, &r);
	*copies = *xattrs = '\0';
	for (unsigned i = 0; i < r.copies; i++)
		n += (size_t)snprintf(copies + n, sizeof(copies) - n, " %u:%llu+%llu", r.extent[i].segment,
				      (unsigned long long)r.extent[i].at, (unsigned long long)r.extent[i].len);
	for (unsigned i = 0; i < r.attrs.xattrs.len; i++)
		sprintf(xattrs + 2 * i, "%02x", ((const uint8_t *)r.attrs.xattrs.data)[i]);
	name = name_of(r.key, r.key_len);
	line_add(d->l, "index %s\tgeneration=%llx size=%llu crc=%x mtime=%llu kind=%u hard=%d type=%u group=%.*s "
		 "attrs=%x/%o/%u/%u/%u/%llu/%llu xattrs=%s |%s", name, (unsigned long long)r.generation,
		 (unsigned long long)r.size, r.crc, (unsigned long long)r.mtime_ms, r.flags & MCM_OBJ_KIND,
		 !!(r.flags & MCM_OBJ_HARD), r.data_type, (int)r.group.len, (const char *)r.group.data, r.attrs.set,
		 r.attrs.mode, r.attrs.uid, r.attrs.gid, r.attrs.rdev, (unsigned long long)r.attrs.mtime_ns,
		 (unsigned long long)r.attrs.ctime_ns, xattrs, copies);
	free(name);
}

/* ---- keys ---- */

static void attrs_text(const struct mcp_seq *list, bool durable_times, char *buf, size_t cap)
{
	const struct mcp_attrs *a = list->items;
	size_t n = 0;

	*buf = '\0';
	if (!list->count)
		return;
	n = (size_t)snprintf(buf, cap, " set=%x mode=%o uid=%u gid=%u rdev=%u nlink=%u",
			     durable_times ? a->set : a->set & ~(MCP_ATTR_MTIME | MCP_ATTR_CTIME), a->mode, a->uid,
			     a->gid, a->rdev, a->nlink);
	if (durable_times)
		n += (size_t)snprintf(buf + n, cap - n, " times=%llu/%llu", (unsigned long long)a->mtime_ns,
				      (unsigned long long)a->ctime_ns);
	snprintf(buf + n, cap - n, " xattrs=%u", a->xattrs.count);
}

static void look_key(struct fixture *fx, const struct look_key *key, struct look *l)
{
	struct mcm_scope sc = { 0 };
	struct mcp_replica copy[MCM_REPLICA_MAX];
	struct mcm_attrs_memory mem = { &attrs_mem, &xattrs_mem };
	char buf[MCM_KEY_MAX], copies[512] = "", attrs[512];
	size_t len = strlen(key->name), at = 0;
	struct mcp_object o = { 0 };
	struct mcp_bytes k;
	uint8_t present = 0;
	unsigned n = 0;
	int r;

	if (key->tenant)
		assert_int_equal(mcm_scope_begin(fx->m, NULL, fx_bytes(look_tenants[key->tenant]), false, &sc), 0);
	k = mcm_scope_key(sc, mcp_bytes(key->name, (uint32_t)len), buf);
	r = mcm_exist(fx->m, MCP_EXIST_PEEK, &k, 1, &present);
	line_add(l, "exist %s@%u\t%d", key->name, sc.tenant, r < 0 ? r : present);
	memset(&attrs_mem, 0, sizeof(attrs_mem));
	r = mcm_get_attrs(fx->m, NULL, MCP_GET_DIRS, k, &o, copy, &n, &mem);
	if (r < 0) {
		line_add(l, "stat %s@%u\terror=%d", key->name, sc.tenant, r);
		return;
	}
	attrs_text(&o.attrs, !len || key->name[len - 1] != '/', attrs, sizeof(attrs));
	line_add(l, "stat %s@%u\tsize=%llu generation=%llx mtime=%llu crc=%x kind=%u flags=%x type=%u%s", key->name,
		 sc.tenant, (unsigned long long)o.size, (unsigned long long)o.generation,
		 (unsigned long long)o.mtime_ms, o.crc, o.kind, o.flags & ~MCP_OBJ_SOFT_PIN, o.data_type, attrs);
	for (unsigned i = 0; i < n; i++)
		at += (size_t)snprintf(copies + at, sizeof(copies) - at, " %llu:%llx/%u",
				       (unsigned long long)copy[i].segment.lo, (unsigned long long)copy[i].offset,
				       copy[i].medium);
	line_add(l, "copies %s@%u\t%s", key->name, sc.tenant, copies);
}

/* ---- listings ---- */

static void list_entry(const struct mcp_list *rq, unsigned tenant, const struct mcp_entry *e, struct look *l)
{
	bool dir = e->name.len && ((const char *)e->name.data)[e->name.len - 1] == '/';
	char attrs[512];

	/* In a directory's listing the name of a subdirectory has no slash. */
	dir |= rq->flags & MCP_LIST_DIR && e->kind == MCP_KIND_DIR;
	attrs_text(&e->attrs, !dir, attrs, sizeof(attrs));
	line_add(l, "%s %.*s%.*s@%u\tsize=%llu generation=%llx mtime=%llu kind=%u media=%u%s",
		 rq->flags & MCP_LIST_DIR ? "entry" : "all", (int)rq->prefix.len, (const char *)rq->prefix.data,
		 (int)e->name.len, (const char *)e->name.data, tenant, (unsigned long long)e->size,
		 (unsigned long long)e->generation, (unsigned long long)(dir ? 0 : e->mtime_ms), e->kind, e->media,
		 attrs);
}

static int list_pages(struct fixture *fx, struct mcp_list *rq, unsigned tenant, struct look *l)
{
	struct mcm_list_page pg = { 0 };
	struct mcp_attrs *attrs;
	struct mcp_entry *entry;
	int r;

	do {
		r = mcm_list(fx->m, rq, &pg);
		if (r < 0)
			break;
		attrs = calloc(pg.names.count + 1, sizeof(*attrs));
		entry = calloc(pg.names.count + 1, sizeof(*entry));
		r = mcm_list_entries(fx->m, rq, &pg, attrs, entry);
		for (int i = 0; i < r; i++)
			list_entry(rq, tenant, &entry[i], l);
		free(attrs);
		free(entry);
		rq->cursor = mcp_bytes(pg.cursor, pg.cursor_len);
	} while (r >= 0 && pg.cursor_len);
	mcm_names_page_done(&pg.names);
	return r;
}

static void look_list(struct fixture *fx, const char *dir, uint32_t flags, unsigned tenant, uint32_t number,
		      struct look *l)
{
	struct mcp_list rq = {
		.flags = flags, .limit = 20, .prefix = fx_bytes(dir),
		.tenant = fx_bytes(tenant ? look_tenants[tenant] : ""),
	};
	int r = list_pages(fx, &rq, number, l);

	line_add(l, "%s %s@%u\t%d", flags & MCP_LIST_DIR ? "list" : "listall", dir, number, r < 0 ? r : 0);
}

const char *look_dir(const char *key)
{
	static char dir[MCP_KEY_MAX + 1];
	size_t len = strlen(key);

	len -= len && key[len - 1] == '/';
	while (len && key[len - 1] != '/')
		len--;
	memcpy(dir, key, len);
	dir[len] = '\0';
	return dir;
}

static void look_lists(struct fixture *fx, const struct look_key *keys, size_t n, unsigned tenant, struct look *l)
{
	struct mcm_scope sc = { 0 };
	char seen[64][64];
	unsigned dirs = 0, i;

	if (tenant)
		assert_int_equal(mcm_scope_begin(fx->m, NULL, fx_bytes(look_tenants[tenant]), false, &sc), 0);
	look_list(fx, "", 0, tenant, sc.tenant, l);
	look_list(fx, "", MCP_LIST_DIR, tenant, sc.tenant, l);
	for (size_t k = 0; k < n; k++) {
		const char *dir = look_dir(keys[k].name);

		if (keys[k].tenant != tenant || !*dir || strlen(dir) >= sizeof(seen[0]))
			continue;
		for (i = 0; i < dirs && strcmp(seen[i], dir) != 0; i++)
			;
		if (i < dirs || dirs == 64)
			continue;
		strcpy(seen[dirs++], dir);
		look_list(fx, dir, MCP_LIST_DIR, tenant, sc.tenant, l);
	}
}

/* ---- the rest ---- */

static int look_task(void *arg, const struct mcm_task *t)
{
	line_add(arg, "task %llx%llx\ttype=%u status=%u", (unsigned long long)t->id.hi, (unsigned long long)t->id.lo,
		 t->type, t->status);
	return 0;
}

static void look_segments(struct fixture *fx, struct look *l)
{
	struct mcm_segments *ss = &fx->m->segments;

	for (unsigned i = 0; i < ss->n_live; i++) {
		struct mcm_segment *s = ss->at[ss->live[i]];

		line_add(l, "segment %u\tname=%s size=%llu epoch=%llu base=%llx medium=%u state=%u draining=%u "
			 "used=%llu objects=%llu", s->index, s->name, (unsigned long long)s->size,
			 (unsigned long long)s->epoch, (unsigned long long)s->base, s->medium, mcm_segment_state(s),
			 s->draining, (unsigned long long)s->used, (unsigned long long)s->objects);
	}
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void look_take(struct fixture *fx, const struct look_key *keys, size_t n, bool tenants, struct look *ret)
{
	struct dump d = { fx, ret };
	struct mcp_tenant t = { 0 };
	struct mcp_stats_reply st;
	uint64_t pos = 0;

	*ret = (struct look){ 0 };
	while (pos < MCM_TABLE_END)
		mcm_index_scan(&fx->m->index, &pos, 1000, dump_object, &d);
	for (size_t i = 0; i < n; i++)
		look_key(fx, &keys[i], ret);
	for (unsigned i = 0; i < (tenants ? LOOK_TENANTS : 1); i++)
		look_lists(fx, keys, n, i, ret);
	look_segments(fx, ret);
	for (unsigned i = 0; mcm_tenant_describe(fx->m, i, &t); i++)
		line_add(ret, "tenant %.*s\tnumber=%u requested=%llu effective=%llu objects=%llu charged=%llu "
			 "closed=%u", (int)t.name.len, (const char *)t.name.data, i, (unsigned long long)t.requested,
			 (unsigned long long)t.effective, (unsigned long long)t.objects,
			 (unsigned long long)t.charged, t.admission_closed);
	assert_int_equal(mcm_task_each(fx->m, (struct mcp_id){ 0, 0 }, look_task, ret), 0);
	mcm_stats(fx->m, &st);
	line_add(ret, "count objects\t%llu", (unsigned long long)st.objects);
	line_add(ret, "count directories\t%llu", (unsigned long long)fx->m->names.count);
	line_add(ret, "count segments\t%u", st.segments);
	line_add(ret, "count capacity\t%llu", (unsigned long long)st.capacity);
	line_add(ret, "count disk_capacity\t%llu", (unsigned long long)st.disk_capacity);
	line_add(ret, "count largest_put\t%llu", (unsigned long long)st.largest_put);
	line_add(ret, "count pool\t%llx%llx", (unsigned long long)fx->m->pool.hi, (unsigned long long)fx->m->pool.lo);
	qsort(ret->line, ret->n, sizeof(*ret->line), by_text);
}

void look_free(struct look *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->line[i]);
	free(l->line);
	*l = (struct look){ 0 };
}

/* Compare a line's subject with @subject: order of the lines. */
static int subject_cmp(const char *line, const char *subject, size_t len)
{
	int r = strncmp(line, subject, len);

	return r ? r : (unsigned char)line[len] - '\t';
}

const char *look_at(const struct look *l, const char *fmt, ...)
{
	static char subject[2 * MCP_KEY_MAX + 64];
	size_t lo = 0, hi = l->n, mid, len;
	va_list ap;
	int r;

	va_start(ap, fmt);
	vsnprintf(subject, sizeof(subject), fmt, ap);
	va_end(ap);
	len = strlen(subject);
	while (lo < hi) {
		mid = (lo + hi) / 2;
		r = subject_cmp(l->line[mid], subject, len);
		if (r == 0)
			return l->line[mid] + len + 1;
		if (r < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

uint64_t look_number(const char *answer, const char *name)
{
	const char *at = strstr(answer, name);

	if (!at)
		fail_msg("no %s in: %s", name, answer);
	return strtoull(at + strlen(name), NULL, 10);
}
