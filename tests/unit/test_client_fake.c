/* SPDX-License-Identifier: Apache-2.0
 * test_client_fake.c - implementation of test_client_fake.h. */
#include <config.h>

#include "tests/unit/test_client_fake.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/sys/lock.h"

#define OBJECTS 256

struct fake fake;

struct entry {
	char key[64];
	uint64_t size, generation, offset;
	uint32_t crc;
	bool committed, used;
};

static struct mcp_server *server;
struct mc_mutex fake_lock = MC_MUTEX_INIT;
static struct entry entries[OBJECTS];
static struct mcp_mount mounted;
static char endpoint[128];
static uint64_t next_offset, next_generation, next_pin;

unsigned fake_count(const unsigned *counter)
{
	MC_LOCKED(&fake_lock);
	return *counter;
}

static bool take(unsigned *times)
{
	if (!*times)
		return false;
	--*times;
	return true;
}

/* Whether this request shall fail; called with the lock held. */
static int met(uint16_t type)
{
	fake.calls[type]++;
	return type == fake.fail_type && take(&fake.fail_times) ? fake.fail_err : 0;
}

static struct entry *find(struct mcp_bytes key, bool committed)
{
	for (int i = 0; i < OBJECTS; i++)
		if (entries[i].used && entries[i].committed == committed &&
		    strlen(entries[i].key) == key.len &&
		    !memcmp(entries[i].key, key.data, key.len))
			return &entries[i];
	return NULL;
}

static struct entry *find_put(struct mcp_bytes key, uint64_t generation)
{
	for (int i = 0; i < OBJECTS; i++)
		if (entries[i].used && !entries[i].committed &&
		    entries[i].generation == generation)
			return &entries[i];
	return NULL;
}

static struct entry *add(struct mcp_bytes key, uint64_t size, bool committed)
{
	for (int i = 0; i < OBJECTS; i++) {
		struct entry *e = &entries[i];

		if (e->used)
			continue;
		*e = (struct entry){ .size = size, .generation = ++next_generation,
				     .offset = next_offset, .committed = committed, .used = true };
		snprintf(e->key, sizeof(e->key), "%.*s", (int)key.len, (const char *)key.data);
		next_offset += (size + 65536) & ~(uint64_t)4095;
		return e;
	}
	return NULL;
}

static unsigned count_list(unsigned n)
{
	return n && take(&fake.short_lists) ? n - 1 : n;
}

static struct mcp_replica replica_of(const struct entry *e)
{
	struct mcp_replica r = {
		.segment = mounted.segment, .offset = e->offset + fake.add_offset,
	};

	if (fake.unknown_segment)
		r.segment.lo ^= 1;
	return r;
}

static int do_register(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *a,
		       void *arg)
{
	struct mcp_register_reply reply = { .client_ttl_ms = 10000, .heartbeat_ms = 20, .lease_ttl_ms = 1000 };

	MC_LOCKED(&fake_lock);
	if (fake.ttl_ms)
		reply.client_ttl_ms = fake.ttl_ms;
	return met(MCP_REGISTER) ? fake.fail_err : mcp_answer(a, &mcp_desc_register_reply, &reply);
}

static int do_heartbeat(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *a,
			void *arg)
{
	struct mcp_heartbeat_reply reply = { 0 };

	MC_LOCKED(&fake_lock);
	reply.heartbeat_ms = fake.heartbeat_ms;
	reply.reattach = take(&fake.reattach);
	return met(MCP_HEARTBEAT) ? fake.fail_err : mcp_answer(a, &mcp_desc_heartbeat_reply, &reply);
}

static int do_mount(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *a,
		    void *arg)
{
	struct mcp_mount_reply reply = { 0 };

	MC_LOCKED(&fake_lock);
	if (met(MCP_MOUNT))
		return fake.fail_err;
	if (mcp_decode(&mcp_desc_mount, body, len, &mounted))
		return -MC_EPROTO;
	snprintf(endpoint, sizeof(endpoint), "%.*s", (int)mounted.endpoint.len,
		 (const char *)mounted.endpoint.data);
	return mcp_answer(a, &mcp_desc_mount_reply, &reply);
}

static int do_unmount(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *a,
		      void *arg)
{
	struct mcp_unmount_reply reply = { 0 };

	return mcp_answer(a, &mcp_desc_unmount_reply, &reply);
}

static int do_segments(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *a,
		       void *arg)
{
	static char long_name[1024];
	struct mcp_segments_reply reply;
	struct mcp_segment seg, both[2];

	MC_LOCKED(&fake_lock);
	if (met(MCP_SEGMENTS))
		return fake.fail_err;
	seg = (struct mcp_segment){
		.segment = mounted.segment, .client = { 5, 5 }, .base = mounted.base,
		.rkey = mounted.rkey, .size = mounted.size,
		.name = mcp_bytes(endpoint, strlen(endpoint)),
		.endpoint = mcp_bytes(endpoint, strlen(endpoint)), .state = MCP_SEG_OK,
	};
	memset(long_name, 'x', sizeof(long_name));
	if (fake.endpoint_bytes)
		seg.endpoint = mcp_bytes(long_name, fake.endpoint_bytes);
	both[0] = both[1] = seg;
	both[0].segment.lo ^= 2;
	both[0].endpoint = mcp_bytes("x", 1);
	reply.segments = fake.odd_segment ? mcp_seq(both, 2) : mcp_seq(&seg, mounted.size ? 1 : 0);
	return mcp_answer(a, &mcp_desc_segments_reply, &reply);
}

static int do_stats(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *a,
		    void *arg)
{
	struct mcp_stats_reply reply = { 0 };

	MC_LOCKED(&fake_lock);
	reply.evictable = fake.evictable;
	return met(MCP_STATS) ? fake.fail_err : mcp_answer(a, &mcp_desc_stats_reply, &reply);
}

static int grant(const struct mcp_put_start *msg, const struct mcp_put_item *item,
		 struct mcp_put_grant *g, struct mcp_replica *rep)
{
	struct entry *e;

	*g = (struct mcp_put_grant){ 0 };
	if (take(&fake.grant_times))
		return fake.grant_err;
	if (!(msg->flags & MCP_PUT_UPSERT) && find(item->key, true))
		return -MC_EEXISTS;
	e = add(item->key, item->size, !item->size && (msg->flags & MCP_PUT_COMMIT));
	if (!e)
		return -MC_ENOSPACE;
	fake.open_puts += !e->committed;
	*rep = replica_of(e);
	g->generation = e->generation;
	g->replicas = mcp_seq(rep, e->size && !fake.no_replicas ? 1 : 0);
	return 0;
}

static int do_put_start(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *a,
			void *arg)
{
	struct mcp_put_grant grants[64];
	struct mcp_replica reps[64];
	struct mcp_put_start_reply reply;
	struct mcp_put_start msg;
	struct mcp_put_item item;
	struct mcp_iter it;
	unsigned n = 0;

	MC_LOCKED(&fake_lock);
	if (met(MCP_PUT_START))
		return fake.fail_err;
	if (mcp_decode(&mcp_desc_put_start, body, len, &msg))
		return -MC_EPROTO;
	mcp_iter_init(&it, &msg.items, &mcp_desc_put_item);
	for (; n < 64 && mcp_iter_next(&it, &item); n++)
		grants[n].status = mc_err_to_wire(grant(&msg, &item, &grants[n], &reps[n]));
	reply.grants = mcp_seq(grants, count_list(n));
	return mcp_answer(a, &mcp_desc_put_start_reply, &reply);
}

static int end_one(const struct mcp_put_done *item)
{
	struct entry *e = find_put(item->key, item->generation), *old = find(item->key, true);

	if (!e)
		return -MC_ESTALE_PUT;
	fake.open_puts--;
	if (take(&fake.end_times)) {
		e->used = false;
		return fake.end_err;
	}
	if (old)
		old->used = false;
	e->crc = item->crc;
	e->committed = true;
	return 0;
}

static int do_put_end(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *a,
		      void *arg)
{
	struct mcp_put_end_reply reply;
	struct mcp_status st[64];
	struct mcp_put_done item;
	struct mcp_put_end msg;
	struct mcp_iter it;
	unsigned n = 0;

	MC_LOCKED(&fake_lock);
	if (met(MCP_PUT_END))
		return fake.fail_err;
	if (mcp_decode(&mcp_desc_put_end, body, len, &msg))
		return -MC_EPROTO;
	mcp_iter_init(&it, &msg.items, &mcp_desc_put_done);
	for (; n < 64 && mcp_iter_next(&it, &item); n++)
		st[n].status = mc_err_to_wire(end_one(&item));
	reply.results = mcp_seq(st, count_list(n));
	return mcp_answer(a, &mcp_desc_put_end_reply, &reply);
}

static int do_put_revoke(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *a,
			 void *arg)
{
	struct mcp_put_revoke_reply reply;
	struct mcp_status st[64] = { { 0 } };
	struct mcp_put_revoke msg;
	struct mcp_put_done item;
	struct mcp_iter it;
	unsigned n = 0;

	MC_LOCKED(&fake_lock);
	if (met(MCP_PUT_REVOKE))
		return fake.fail_err;
	if (mcp_decode(&mcp_desc_put_revoke, body, len, &msg))
		return -MC_EPROTO;
	mcp_iter_init(&it, &msg.items, &mcp_desc_put_done);
	for (; n < 64 && mcp_iter_next(&it, &item); n++) {
		struct entry *e = find_put(item.key, item.generation);

		if (!e)
			continue;
		e->used = false;
		fake.open_puts--;
		fake.revoked++;
	}
	reply.results = mcp_seq(st, n);
	return mcp_answer(a, &mcp_desc_put_revoke_reply, &reply);
}

static struct mcp_object describe(const struct entry *e, uint32_t flags, struct mcp_replica *rep)
{
	struct mcp_object o = { .status = mc_err_to_wire(-MC_ENOOBJECT) };

	if (!e)
		return o;
	*rep = replica_of(e);
	o = (struct mcp_object){
		.size = e->size + fake.add_size, .crc = e->crc ^ fake.flip_crc,
		.generation = e->generation, .lease_ms = 1000,
		.replicas = mcp_seq(rep, e->size && !fake.no_replicas ? 1 : 0),
	};
	if (take(&fake.new_generation))
		o.generation = ++next_generation;
	if (flags & (MCP_GET_LEASE | MCP_GET_HOLD)) {
		o.pin = ++next_pin;
		fake.pins++;
	}
	return o;
}

static int do_get(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *a,
		  void *arg)
{
	struct mcp_replica reps[64];
	struct mcp_object objs[64];
	struct mcp_get_reply reply;
	struct mcp_get msg;
	struct mcp_key key;
	struct mcp_iter it;
	unsigned n = 0;

	MC_LOCKED(&fake_lock);
	if (met(MCP_GET))
		return fake.fail_err;
	if (mcp_decode(&mcp_desc_get, body, len, &msg))
		return -MC_EPROTO;
	mcp_iter_init(&it, &msg.keys, &mcp_desc_key);
	for (; n < 64 && mcp_iter_next(&it, &key); n++)
		objs[n] = describe(find(key.key, true), msg.flags, &reps[n]);
	reply.objects = mcp_seq(objs, count_list(n));
	return mcp_answer(a, &mcp_desc_get_reply, &reply);
}

static int do_exist(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *a,
		    void *arg)
{
	static const uint8_t ones[64] = { 1, 1, 1, 1 };
	struct mcp_exist_reply reply;
	struct mcp_exist msg;

	MC_LOCKED(&fake_lock);
	if (mcp_decode(&mcp_desc_exist, body, len, &msg))
		return -MC_EPROTO;
	reply.present = mcp_bytes(ones, count_list(msg.keys.count));
	return mcp_answer(a, &mcp_desc_exist_reply, &reply);
}

static int do_release(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *a,
		      void *arg)
{
	struct mcp_release msg;

	MC_LOCKED(&fake_lock);
	if (mcp_decode(&mcp_desc_release, body, len, &msg))
		return -MC_EPROTO;
	fake.pins -= msg.pins.count;
	return 0;
}

static int do_list(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *a,
		   void *arg)
{
	struct mcp_entry e = { .name = mcp_bytes("n", 1), .kind = MCP_KIND_DIR };
	struct mcp_list_reply reply = {
		.entries = mcp_seq(&e, 1), .cursor = mcp_bytes("same", 4),
	};

	return mcp_answer(a, &mcp_desc_list_reply, &reply);
}

void fake_start(void)
{
	static const struct mcp_handler handlers[] = {
		{ MCP_REGISTER, do_register },
		{ MCP_HEARTBEAT, do_heartbeat },
		{ MCP_MOUNT, do_mount },
		{ MCP_UNMOUNT, do_unmount },
		{ MCP_SEGMENTS, do_segments },
		{ MCP_STATS, do_stats },
		{ MCP_PUT_START, do_put_start },
		{ MCP_PUT_END, do_put_end },
		{ MCP_PUT_REVOKE, do_put_revoke },
		{ MCP_GET, do_get },
		{ MCP_EXIST, do_exist },
		{ MCP_RELEASE, do_release },
		{ MCP_RENEW, do_release },
		{ MCP_LIST, do_list },
		{ 0, NULL },
	};
	static const uint16_t any_channel[] = { MCP_HEARTBEAT, 0 };
	static const char *const none[] = { NULL };
	const struct mcp_server_conf conf = {
		.addrs = none, .local_name = "fake", .loops = 1, .software = "fake",
		.handlers = handlers, .any_channel = any_channel,
	};

	memset(&fake, 0, sizeof(fake));
	memset(entries, 0, sizeof(entries));
	memset(&mounted, 0, sizeof(mounted));
	next_offset = 0;
	assert_int_equal(mcp_server_start(&conf, &server), 0);
}

void fake_stop(void)
{
	mcp_server_stop(server);
	server = NULL;
}
