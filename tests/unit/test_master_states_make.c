/* SPDX-License-Identifier: Apache-2.0
 * test_master_states_make.c - implementation of test_master_states.h: the parts of states. */
#include <config.h>

#include "test_master_states.h"

#include <stdio.h>
#include <string.h>

#define SEGMENT_SIZE (1u << 20)
#define DISK_SIZE (4u << 20)
#define DISK_ID 100u

const char *const state_parts[PARTS] = {
	[DIRS] = "directories", [EMPTIES] = "empty files", [LINKS] = "links", [FILES] = "files",
	[REPLICAS] = "replicas", [HARD] = "hard pins", [SOFT] = "soft pins", [GROUPS] = "groups",
	[ATTRS] = "attributes", [LARGEST_KEY] = "largest key", [ONE_BYTE] = "one byte", [CHANGES] = "changes",
	[TENANTS] = "tenants", [ON_DISK] = "copies on disk", [DISK_ONLY] = "disk only", [FULL] = "full segment",
	[LIMIT] = "object limit", [TASKS] = "tasks", [UNFINISHED] = "unfinished puts",
	[QUARANTINED] = "quarantined ranges", [CHECKPOINT] = "checkpoint", [LEASED] = "leases",
	[PINNED_ZOMBIE] = "removed but pinned",
};

static const char *const fates[] = {
	[BACK] = "alive", [OTHER_MEMORY] = "other memory", [SILENT_BACK] = "silent, comes back", [SILENT] = "silent",
	[LOST] = "lost", [UNMOUNTED] = "unmounted",
};

const char *state_name(const struct state *st)
{
	static char text[600];
	size_t n = 0;

	*text = '\0';
	for (unsigned i = 0; i < PARTS; i++)
		if (HAS(st, i))
			n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", n ? "+" : "", state_parts[i]);
	snprintf(text + n, sizeof(text) - n, "%s; owners: %s, %s%s", n ? "" : "nothing", fates[st->fate[0]],
		 fates[st->fate[1]], st->defaults ? "; default options" : "");
	return text;
}

void state_tune(const struct state *st, struct mcm_conf *conf)
{
	/* Shorter times than the defaults, so that the test passes all of them in less steps. */
	if (!st->defaults) {
		conf->client_forget_ttl = 60000;
		conf->disk_forget_ttl = 90000;
		conf->default_kv_soft_pin_ttl = 50000;
		conf->put_start_release_timeout_sec = 40000;
	}
	conf->enable_offload = HAS(st, ON_DISK) || HAS(st, DISK_ONLY);
	conf->enable_multi_tenants = HAS(st, TENANTS);
	conf->max_objects = HAS(st, LIMIT) ? 40 : 0;
}

/* ---- keys and puts ---- */

static const char * __attribute__((format(printf, 3, 4)))
key_new(struct state *st, unsigned tenant, const char *fmt, ...)
{
	struct look_key *k = &st->key[st->keys++];
	va_list ap;

	assert_true(st->keys <= KEYS_MAX);
	va_start(ap, fmt);
	assert_true(vasprintf(&k->name, fmt, ap) > 0);
	va_end(ap);
	k->tenant = tenant;
	return k->name;
}

void state_free_keys(struct state *st)
{
	while (st->keys)
		free(st->key[--st->keys].name);
}

struct put {
	unsigned tenant, copies;
	const char *key, *group;
	uint64_t size;
	uint32_t flags;
	uint8_t kind, data_type;
	struct mcm_session *by;
};

static struct mcp_bytes scoped(struct state *st, unsigned tenant, const char *key, char buf[MCM_KEY_MAX])
{
	struct mcm_scope sc = { 0 };

	if (tenant)
		assert_int_equal(mcm_scope_begin(st->fx.m, NULL, fx_bytes(look_tenants[tenant]), false, &sc), 0);
	return mcm_scope_key(sc, fx_bytes(key), buf);
}

static int put_begin(struct state *st, const struct put *p, char buf[MCM_KEY_MAX], struct mcp_bytes *ret_key,
		     struct mcm_put_granted *ret)
{
	struct mcm_put_request rq = {
		.flags = p->flags, .copies = p->copies ? p->copies : 1, .data_type = p->data_type,
		.soft_ms = (uint32_t)st->fx.conf.default_kv_soft_pin_ttl,
		.soft_pin = p->flags & MCP_PUT_SOFT_PIN ? MCP_SOFT_PIN_ENABLE : MCP_SOFT_PIN_PRESERVE,
	};
	struct mcp_put_item item = { .size = p->size, .kind = p->kind };

	*ret_key = item.key = scoped(st, p->tenant, p->key, buf);
	if (p->group)
		item.group = fx_bytes(p->group);
	return mcm_put_start(st->fx.m, p->by ? p->by : st->writer, &rq, &item, ret);
}

static int put_whole(struct state *st, const struct put *p)
{
	struct mcp_put_done done = { .crc = (uint32_t)rnd() };
	struct mcm_put_granted g;
	char buf[MCM_KEY_MAX];
	int r = put_begin(st, p, buf, &done.key, &g);

	if (r < 0 || (!p->size && p->flags & MCP_PUT_COMMIT))
		return r;
	done.generation = g.generation;
	return mcm_put_end(st->fx.m, p->by ? p->by : st->writer, &done);
}

int state_put(struct state *st, const char *key, uint64_t size, uint8_t kind, uint32_t flags)
{
	return put_whole(st, &(struct put){ .key = key, .size = size, .kind = kind, .flags = flags });
}

/* ---- owners ---- */

static void mount_one(struct state *st, unsigned owner, uint64_t id, uint8_t medium)
{
	char name[32];
	struct mcp_mount rq = {
		.segment = { 7, id }, .client = { 7, owner + 1 }, .epoch = 50 + st->epoch[owner],
		.size = medium == MCP_MEDIUM_DISK ? DISK_SIZE : SEGMENT_SIZE, .base = id << 40, .rkey = 5,
		.endpoint = fx_bytes("host:1"), .protocol = fx_bytes("tcp"), .medium = medium,
	};
	struct mcp_mount_reply reply;

	snprintf(name, sizeof(name), "%s-%u", medium == MCP_MEDIUM_DISK ? "disk" : "seg", (unsigned)id);
	rq.name = fx_bytes(name);
	assert_int_equal(mcm_mount(st->fx.m, rq.client, NULL, &rq, &reply), 0);
}

void state_mount(struct state *st, unsigned owner)
{
	mount_one(st, owner, owner + 1, MCP_MEDIUM_MEMORY);
	if (st->fx.conf.enable_offload)
		mount_one(st, owner, DISK_ID + owner, MCP_MEDIUM_DISK);
}

/* All copies that the master wants are made. */
static void disks_work(struct state *st)
{
	struct mcp_replica from[MCM_FETCH_MAX], to[MCM_FETCH_MAX];
	struct mcp_copy copy[MCM_FETCH_MAX];
	unsigned n;

	for (unsigned i = 0; i < OWNERS; i++) {
		while ((n = mcm_offload_fetch(st->fx.m, st->owner[i], MCM_FETCH_MAX, copy, from, to, NULL)))
			for (unsigned k = 0; k < n; k++)
				(void)mcm_task_copied(st->fx.m, st->owner[i], &(struct mcp_copied){
						      .put = copy[k].put, .crc = copy[k].crc });
	}
}

void state_advance(struct state *st, uint64_t ms)
{
	struct mcm *m = st->fx.m;
	uint64_t step;

	for (; ms; ms -= step) {
		step = ms < 2000 ? ms : 2000;
		fx_advance(&st->fx, step);
		for (unsigned i = 0; i < OWNERS; i++)
			if (st->owner[i])
				fx_beat(&st->fx, st->owner[i]->client);
		mcm_events_tick(m);
		mcm_tenants_tick(m);
		mcm_tasks_tick(m);
	}
}

/* ---- parts ---- */

static unsigned few(unsigned most)
{
	return 1 + (unsigned)(rnd() % most);
}

static uint64_t some_size(void)
{
	return rnd() % 3 ? 1 + rnd() % 9000 : 1 + rnd() % 90000;
}

static void make_dirs(struct state *st)
{
	for (unsigned i = few(6); i--;) {
		state_put(st, key_new(st, 0, "d%u/", i), 0, MCP_KIND_DIR, MCP_PUT_COMMIT);
		if (rnd() % 2)
			state_put(st, key_new(st, 0, "d%u/sub%u/", i, i), 0, MCP_KIND_DIR, MCP_PUT_COMMIT);
	}
}

static void make_empties(struct state *st)
{
	for (unsigned i = few(6); i--;)
		state_put(st, key_new(st, 0, rnd() % 2 ? "d%u/empty" : "empty%u", i), 0, MCP_KIND_OBJECT,
			  rnd() % 2 ? MCP_PUT_COMMIT : 0);
}

static void make_links(struct state *st)
{
	for (unsigned i = few(4); i--;)
		state_put(st, key_new(st, 0, "d%u/link", i), rnd() % 2 ? 0 : few(100), MCP_KIND_SYMLINK, 0);
}

static void make_files(struct state *st)
{
	for (unsigned i = few(8); i--;)
		(void)put_whole(st, &(struct put){ .key = key_new(st, 0, rnd() % 2 ? "d%u/file" : "file%u", i),
						   .size = some_size(), .data_type = (uint8_t)(rnd() % 3) });
}

static void make_replicas(struct state *st)
{
	for (unsigned i = few(4); i--;)
		(void)put_whole(st, &(struct put){ .key = key_new(st, 0, "two%u", i), .size = some_size(),
						   .copies = 2 });
}

static void make_hard(struct state *st)
{
	for (unsigned i = few(4); i--;)
		state_put(st, key_new(st, 0, "hard%u", i), some_size(), MCP_KIND_OBJECT, MCP_PUT_HARD_PIN);
}

static void make_soft(struct state *st)
{
	for (unsigned i = few(4); i--;)
		state_put(st, key_new(st, 0, "soft%u", i), some_size(), MCP_KIND_OBJECT, MCP_PUT_SOFT_PIN);
}

static void make_groups(struct state *st)
{
	for (unsigned i = few(5); i--;)
		(void)put_whole(st, &(struct put){ .key = key_new(st, 0, "group%u", i),
						   .size = rnd() % 2 ? some_size() : 0,
						   .group = i % 2 ? "odd" : "even" });
}

static void attrs_one(struct state *st, const char *key)
{
	const struct mcp_attrs a = {
		.set = (uint16_t)(MCP_ATTR_MODE | (rnd() % 2 ? MCP_ATTR_UID | MCP_ATTR_GID : 0) |
				  (rnd() % 2 ? MCP_ATTR_MTIME : 0)),
		.mode = (uint32_t)(rnd() & 07777), .uid = (uint32_t)rnd(), .gid = 5, .mtime_ns = rnd(),
	};
	const struct mcp_xattr x = { fx_bytes("name"), mcp_bytes("value", (uint32_t)(rnd() % 6)) };
	struct mcp_set_attrs rq, msg = { .key = fx_bytes(key), .attrs = mcp_seq(&a, 1) };
	struct mcp_buf b = { 0 };

	if (rnd() % 2)
		msg.xattrs = mcp_seq(&x, 1);
	assert_int_equal(mcp_encode(&mcp_desc_set_attrs, &msg, &b), 0);
	assert_int_equal(mcp_decode(&mcp_desc_set_attrs, b.data, b.len, &rq), 0);
	(void)mcm_set_attrs(st->fx.m, &rq);
	mcp_buf_free(&b);
}

static void make_attrs(struct state *st)
{
	size_t n = st->keys;

	state_put(st, key_new(st, 0, "attrs/"), 0, MCP_KIND_DIR, MCP_PUT_COMMIT);
	state_put(st, key_new(st, 0, "attrs/file"), 0, MCP_KIND_OBJECT, MCP_PUT_COMMIT);
	for (size_t i = 0; i < st->keys; i++)
		if (i >= n || rnd() % 2)
			attrs_one(st, st->key[i].name);
}

static void make_largest_key(struct state *st)
{
	char name[MCP_KEY_MAX + 1];

	memset(name, 'k', MCP_KEY_MAX);
	name[MCP_KEY_MAX] = '\0';
	state_put(st, key_new(st, 0, "%s", name), rnd() % 2 * 5000, MCP_KIND_OBJECT, 0);
}

static void make_one_byte(struct state *st)
{
	state_put(st, key_new(st, 0, "one"), 1, MCP_KIND_OBJECT, 0);
}

/* Rename a directory; everything below it has other keys then. */
static void rename_dir(struct state *st, const char *name)
{
	size_t len = strlen(name), n = st->keys;
	uint64_t moved;
	char to[32];

	snprintf(to, sizeof(to), "moved%zu/", n);
	if (mcm_rename_dir(st->fx.m, &(struct mcp_rename_dir){ .from = fx_bytes(name), .to = fx_bytes(to) },
			   &moved) < 0)
		return;
	for (size_t i = 0; i < n && st->keys < KEYS_MAX - 60; i++)
		if (!st->key[i].tenant && !strncmp(st->key[i].name, name, len))
			(void)key_new(st, 0, "%s%s", to, st->key[i].name + len);
}

/* Keys that were removed, renamed and replaced. */
static void make_changes(struct state *st)
{
	uint64_t was, generation;

	for (unsigned i = few(10); i-- && st->keys;) {
		struct look_key k = st->key[rnd() % st->keys];

		if (k.tenant)
			continue;
		state_advance(st, rnd() % 100);
		switch (rnd() % 3) {
		case 0:
			(void)fx_remove(&st->fx, k.name, MCP_REMOVE_FORCE);
			break;
		case 1:
			if (k.name[strlen(k.name) - 1] == '/') {
				rename_dir(st, k.name);
				break;
			}
			(void)mcm_rename(st->fx.m, &(struct mcp_rename){ .from = fx_bytes(k.name),
					 .to = fx_bytes(key_new(st, 0, "renamed%zu", st->keys)) }, &generation, &was);
			break;
		default:
			if (k.name[strlen(k.name) - 1] != '/')
				state_put(st, k.name, some_size(), MCP_KIND_OBJECT, MCP_PUT_UPSERT);
		}
	}
}

static void make_tenants(struct state *st)
{
	for (unsigned t = 1; t < LOOK_TENANTS; t++)
		for (unsigned i = few(4); i--;)
			(void)put_whole(st, &(struct put){ .key = key_new(st, t, i % 2 ? "x%u" : "dir/x%u", i),
							   .tenant = t, .size = rnd() % 2 ? some_size() : 0 });
}

static void make_disk_only(struct state *st)
{
	char buf[MCM_KEY_MAX];

	make_files(st);
	disks_work(st);
	for (size_t i = 0; i < st->keys; i++)
		for (unsigned s = 1; s <= OWNERS; s++) {
			char name[16];

			snprintf(name, sizeof(name), "seg-%u", s);
			(void)mcm_clear(st->fx.m, fx_bytes(name), scoped(st, st->key[i].tenant, st->key[i].name, buf));
		}
}

static void make_full(struct state *st)
{
	uint32_t flags = rnd() % 3 ? MCP_PUT_HARD_PIN : 0;
	unsigned i = 0;

	while (i < 60 && st->keys < KEYS_MAX - 60 &&
	       state_put(st, key_new(st, 0, "full%u", i), 50000 + rnd() % 3000, MCP_KIND_OBJECT, flags) == 0)
		i++;
	for (i = 0; i < 20 && state_put(st, key_new(st, 0, "rest%u", i), 3000, MCP_KIND_OBJECT, flags) == 0; i++)
		;
}

static void make_limit(struct state *st)
{
	for (unsigned i = 0; i < 60 && st->keys < KEYS_MAX - 60; i++)
		state_put(st, key_new(st, 0, "limit%u", i), 0, MCP_KIND_OBJECT, i % 2 ? MCP_PUT_HARD_PIN : 0);
}

static void make_tasks(struct state *st)
{
	struct mcp_bytes source = fx_bytes(rnd() % 2 ? "seg-1" : "seg-2");
	struct mcm_task_request rq = { .type = MCP_TASK_DRAIN, .source = &source, .n_sources = 1 };
	struct mcp_id id;

	(void)mcm_task_create(st->fx.m, &rq, &id);
	mcm_tasks_tick(st->fx.m);
}

static void make_unfinished(struct state *st)
{
	struct mcm_put_granted g;
	struct mcp_bytes key;
	char buf[MCM_KEY_MAX];

	for (unsigned i = few(3); i--;)
		(void)put_begin(st, &(struct put){ .key = key_new(st, 0, "begun%u", i), .size = some_size(),
						   .copies = few(2) }, buf, &key, &g);
}

/* A writer ended in the middle of its puts. */
static void make_quarantined(struct state *st)
{
	struct mcm_session *s = fx_session(&st->fx, 9);
	struct mcm_put_granted g;
	struct mcp_bytes key;
	char buf[MCM_KEY_MAX];

	for (unsigned i = few(3); i--;)
		(void)put_begin(st, &(struct put){ .key = key_new(st, 0, "aborted%u", i), .size = some_size(),
						   .copies = few(2), .by = s }, buf, &key, &g);
	fx_session_end(&st->fx, s);
}

static void make_checkpoint(struct state *st)
{
	assert_int_equal(mcm_checkpoint(st->fx.m), 0);
}

static void make_leases(struct state *st)
{
	char buf[MCM_KEY_MAX];
	struct mcp_object o;

	for (size_t i = 0; i < st->keys; i++) {
		struct mcp_bytes k = scoped(st, st->key[i].tenant, st->key[i].name, buf);
		uint8_t present;

		(void)mcm_exist(st->fx.m, 0, &k, 1, &present);
		if (rnd() % 2 && !st->key[i].tenant)
			(void)fx_pin(&st->fx, st->reader, st->key[i].name, rnd() % 2 ? MCP_GET_HOLD : MCP_GET_LEASE,
				     &o, NULL);
	}
}

static void make_zombies(struct state *st)
{
	struct mcp_object o;

	for (unsigned i = few(3); i--;) {
		const char *key = key_new(st, 0, "zombie%u", i);

		if (state_put(st, key, some_size(), MCP_KIND_OBJECT, 0) < 0)
			continue;
		(void)fx_pin(&st->fx, st->reader, key, MCP_GET_HOLD, &o, NULL);
		(void)fx_remove(&st->fx, key, MCP_REMOVE_FORCE);
	}
}

/* In this order; an owner's fate comes after ON_DISK. */
static void (*const make[PARTS])(struct state *st) = {
	[DIRS] = make_dirs, [EMPTIES] = make_empties, [LINKS] = make_links, [FILES] = make_files,
	[REPLICAS] = make_replicas, [HARD] = make_hard, [SOFT] = make_soft, [GROUPS] = make_groups,
	[ATTRS] = make_attrs, [LARGEST_KEY] = make_largest_key, [ONE_BYTE] = make_one_byte, [CHANGES] = make_changes,
	[TENANTS] = make_tenants, [ON_DISK] = disks_work, [DISK_ONLY] = make_disk_only, [FULL] = make_full,
	[LIMIT] = make_limit, [TASKS] = make_tasks, [UNFINISHED] = make_unfinished,
	[QUARANTINED] = make_quarantined, [CHECKPOINT] = make_checkpoint, [LEASED] = make_leases,
	[PINNED_ZOMBIE] = make_zombies,
};

static void owner_goes(struct state *st, unsigned owner)
{
	uint64_t lost;

	if (st->fate[owner] == UNMOUNTED) {
		for (unsigned d = 0; d < 2; d++)
			(void)mcm_unmount(st->fx.m, st->owner[owner]->client,
					  (struct mcp_id){ 7, d ? DISK_ID + owner : owner + 1 }, &lost);
		/* Whether its objects were removed from the index when the master stops, is chance. */
		if (rnd() % 2)
			while (mcm_evict_background(st->fx.m))
				;
	} else if (st->fate[owner] == SILENT || st->fate[owner] == SILENT_BACK) {
		fx_session_end(&st->fx, st->owner[owner]);
		st->owner[owner] = NULL;
		state_advance(st, st->fx.conf.client_ttl + 1000);
	}
}

void state_make(struct state *st)
{
	uint64_t effective;

	st->writer = fx_session(&st->fx, 3);
	st->reader = fx_session(&st->fx, 4);
	st->owner[0] = st->fx.s;
	st->owner[1] = fx_session(&st->fx, 2);
	for (unsigned i = 0; i < OWNERS; i++)
		state_mount(st, i);
	for (unsigned t = 0; HAS(st, TENANTS) && t < LOOK_TENANTS; t++)
		assert_int_equal(mcm_tenant_set_quota(st->fx.m, fx_bytes(look_tenants[t]), 600000, &effective), 0);
	for (unsigned i = 0; i < PARTS; i++) {
		if (i == CHECKPOINT)
			for (unsigned k = 0; k < OWNERS; k++)
				owner_goes(st, k);
		if (HAS(st, i))
			make[i](st);
		if (i == FILES && rnd() % 4 == 0)
			state_advance(st, rnd() % 3000);
	}
}
