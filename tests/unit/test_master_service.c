/* SPDX-License-Identifier: Apache-2.0
 * The master over the wire: every message through a real client, in this process and over a socket, and
 * the HTTP service. */
#include <config.h>

#include "tests/unit/test_master_world.h"

#include <curl/curl.h>
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/fault.h"
#include "proto/rpc_client.h"

static void check_objects(struct world *w)
{
	struct mcp_put_grant g;
	struct mcp_replica r, where;
	struct mcp_release release;
	struct mcp_renew renew;
	struct mcp_object o;
	struct mcp_pin pin;

	assert_int_equal(world_start(w, "a", 70000, &g, &r), 0);
	assert_true(mcp_id_eq(r.segment, world_seg));
	assert_int_equal(world_get(w, "a", 0, &o, &where), -MC_ENOOBJECT);
	assert_int_equal(world_end(w, MCP_PUT_END, "a", g.generation), 0);
	assert_int_equal(world_start(w, "a", 1, &g, &r), -MC_EEXISTS);
	assert_int_equal(world_start(w, "b", 1, &g, &r), 0);
	assert_int_equal(world_end(w, MCP_PUT_REVOKE, "b", g.generation), 0);
	assert_int_equal(world_end(w, MCP_PUT_END, "b", g.generation), -MC_ESTALE_PUT);
	assert_int_equal(world_get(w, "a", MCP_GET_LEASE, &o, &where), 0);
	assert_int_equal(o.size, 70000);
	assert_int_equal(o.crc, 77);
	assert_int_equal(o.lease_ms, 10000);
	assert_int_equal(where.offset, 0);
	assert_true(o.mtime_ms > 1600000000000ull);
	assert_int_equal(world_remove(w, "a", 0), -MC_ELEASED);
	pin.pin = o.pin;
	renew.pins = mcp_seq(&pin, 1);
	assert_int_equal(mcp_send(w->c, MCP_RENEW, &renew), 0);
	assert_int_equal(world_remove(w, "a", 0), -MC_ELEASED);
	release.pins = mcp_seq(&pin, 1);
	assert_int_equal(mcp_send(w->c, MCP_RELEASE, &release), 0);
	assert_int_equal(world_remove(w, "a", 0), 0);
	assert_int_equal(world_remove(w, "a", 0), -MC_ENOOBJECT);
}

static void check_names(struct world *w)
{
	struct mcp_rename rename = { .from = fx_bytes("dir/x"), .to = fx_bytes("dir/y") };
	struct mcp_remove_match match = { .prefix = fx_bytes("dir/") };
	struct mcp_list list = { .flags = MCP_LIST_DIR, .limit = 10, .prefix = fx_bytes("dir/") };
	struct mcp_remove_match_reply matched;
	struct mcp_rename_reply renamed;
	struct mcp_list_reply listed;
	struct mcp_reply mem = { 0 };
	struct mcp_entry e;
	struct mcp_iter it;

	world_put(w, "dir/x", 100);
	assert_int_equal(world_call(w->c, MCP_RENAME, &rename, &renamed, NULL), 0);
	assert_int_equal(world_call(w->c, MCP_RENAME, &rename, &renamed, NULL), -MC_ENOOBJECT);
	assert_int_equal(world_call(w->c, MCP_LIST, &list, &listed, &mem), 0);
	assert_int_equal(listed.entries.count, 1);
	assert_int_equal(listed.cursor.len, 0);
	mcp_iter_init(&it, &listed.entries, &mcp_desc_entry);
	assert_true(mcp_iter_next(&it, &e));
	assert_int_equal(e.name.len, 1);
	assert_memory_equal(e.name.data, "y", 1);
	assert_int_equal(e.size, 100);
	mcp_reply_done(&mem);
	match.pattern = fx_bytes("[");
	assert_int_equal(world_call(w->c, MCP_REMOVE_MATCH, &match, &matched, NULL), -MC_EPARAM);
	match.pattern = fx_bytes("y$");
	assert_int_equal(world_call(w->c, MCP_REMOVE_MATCH, &match, &matched, NULL), 0);
	assert_int_equal(matched.removed, 1);
}

static void check_batches(struct world *w)
{
	struct mcp_put_item item[500];
	struct mcp_key key[501];
	struct mcp_put_start rq = { .replicas = 1, .items = mcp_seq(item, 500) };
	struct mcp_exist exist = { .keys = mcp_seq(key, 501) };
	struct mcp_put_start_reply started;
	struct mcp_exist_reply existing;
	struct mcp_reply mem = { 0 };
	struct mcp_put_grant g;
	char name[501][16];
	struct mcp_iter it;
	unsigned i;

	for (i = 0; i <= 500; i++) {
		sprintf(name[i], "batch-%u", i);
		key[i].key = fx_bytes(name[i]);
		if (i < 500)
			item[i] = (struct mcp_put_item){ .key = key[i].key, .size = 64 };
	}
	/* one key is invalid, and only that put fails */
	item[250].key.len = 0;
	assert_int_equal(world_call(w->c, MCP_PUT_START, &rq, &started, &mem), 0);
	mcp_iter_init(&it, &started.grants, &mcp_desc_put_grant);
	for (i = 0; mcp_iter_next(&it, &g); i++) {
		assert_int_equal(mc_err_from_wire(g.status), i == 250 ? -MC_EKEY : 0);
		if (i != 250)
			assert_int_equal(world_end(w, MCP_PUT_END, name[i], g.generation), 0);
	}
	assert_int_equal(i, 500);
	mcp_reply_done(&mem);
	assert_int_equal(world_call(w->c, MCP_EXIST, &exist, &existing, &mem), 0);
	assert_int_equal(existing.present.len, 501);
	for (i = 0; i <= 500; i++)
		assert_int_equal(((const uint8_t *)existing.present.data)[i], i != 250 && i != 500);
	mcp_reply_done(&mem);
}

static void check_segments(struct world *w, const char *addr)
{
	struct mcp_segments rq = { .segment = { 0, 0 } };
	struct mcp_segments_reply reply;
	struct mcp_stats stats = { 0 };
	struct mcp_stats_reply sums;
	struct mcp_reply mem = { 0 };
	struct mcp_client *other;
	struct mcp_segment s;
	struct mcp_iter it;

	assert_int_equal(world_call(w->c, MCP_SEGMENTS, &rq, &reply, &mem), 0);
	assert_int_equal(reply.segments.count, 1);
	mcp_iter_init(&it, &reply.segments, &mcp_desc_segment);
	assert_true(mcp_iter_next(&it, &s));
	assert_true(mcp_id_eq(s.segment, world_seg) && mcp_id_eq(s.client, world_me));
	assert_int_equal(s.size, 4 * MIB);
	assert_int_equal(s.base, 0x1000);
	assert_int_equal(s.state, MCP_SEG_OK);
	assert_memory_equal(s.endpoint.data, "me:2", 4);
	mcp_reply_done(&mem);
	rq.segment.lo = 77;
	assert_int_equal(world_call(w->c, MCP_SEGMENTS, &rq, &reply, &mem), 0);
	assert_int_equal(reply.segments.count, 0);
	mcp_reply_done(&mem);
	assert_int_equal(world_call(w->c, MCP_STATS, &stats, &sums, NULL), 0);
	assert_int_equal(sums.capacity, 4 * MIB);
	assert_int_equal(sums.segments, 1);
	assert_int_equal(sums.clients, 1);
	assert_int_equal(sums.objects, 499);
	assert_int_equal(sums.used, 499 * 64);
	/* An object of this size really fits. */
	assert_in_range(sums.largest_put, 4 * MIB - 4096, 4 * MIB);
	assert_true(mcm_alloc_round(mcm_object_reserve(sums.largest_put)) * MCM_GRANULE <= 4 * MIB);
	rq.segment = (struct mcp_id){ 0, 0 };
	/* With the owner's client id another program could act as the owner. */
	other = world_connect(addr, (struct mcp_id){ 8, 9 }, MCP_CHANNEL_CONTROL);
	assert_int_equal(world_call(other, MCP_SEGMENTS, &rq, &reply, &mem), 0);
	assert_int_equal(reply.segments.count, 1);
	mcp_iter_init(&it, &reply.segments, &mcp_desc_segment);
	assert_true(mcp_iter_next(&it, &s));
	assert_true(mcp_id_eq(s.segment, world_seg));
	assert_true(mcp_id_zero(s.client));
	mcp_reply_done(&mem);
	mcp_client_close(other);
}

static void check_liveness(struct world *w, const char *addr)
{
	struct mcp_client *hb = world_connect(addr, world_me, MCP_CHANNEL_HEARTBEAT);
	struct mcp_client *other = world_connect(addr, (struct mcp_id){ 8, 8 }, MCP_CHANNEL_CONTROL);
	struct mcp_heartbeat beat = { .client = world_me, .sequence = 1 };
	struct mcp_unmount unmount = { .segment = world_seg };
	struct mcp_unmount_reply unmounted;
	struct mcp_heartbeat_reply reply;

	assert_int_equal(world_call(hb, MCP_HEARTBEAT, &beat, &reply, NULL), 0);
	assert_int_equal(reply.reattach, 0);
	/* A client may send heartbeats only for itself. */
	beat.client.lo++;
	assert_int_equal(world_call(hb, MCP_HEARTBEAT, &beat, &reply, NULL), -MC_EPARAM);
	assert_int_equal(world_call(other, MCP_UNMOUNT, &unmount, &unmounted, NULL), -MC_EOWNER);
	assert_int_equal(world_call(w->c, MCP_UNMOUNT, &unmount, &unmounted, NULL), 0);
	assert_int_equal(unmounted.objects_lost, 499);
	mcp_client_close(other);
	mcp_client_close(hb);
}

static void all_messages(bool local)
{
	struct world w;

	world_up(&w, local);
	check_objects(&w);
	check_names(&w);
	check_batches(&w);
	check_segments(&w, local ? "local:test" : w.socket);
	check_liveness(&w, local ? "local:test" : w.socket);
	world_down(&w);
}

static void test_socket(void **state)
{
	(void)state;
	all_messages(false);
}

static void test_local(void **state)
{
	(void)state;
	all_messages(true);
}

/* Two programs with one id: requests of the second in this client's name do not affect the
 * first. */
static void test_fenced(void **state)
{
	struct mcp_register reg = { .client = world_me, .name = fx_bytes("second:1") };
	struct mcp_mount mount = {
		.segment = world_seg, .client = world_me, .epoch = 10, .size = 4 * MIB, .name = fx_bytes("second:1"),
		.endpoint = fx_bytes("second:2"), .protocol = fx_bytes("tcp"),
	};
	struct mcp_unmount unmount = { .segment = world_seg };
	struct mcp_task_fetch fetch = { .max = 4 };
	struct mcp_task_fetch_reply fetched;
	struct mcp_register_reply registered;
	struct mcp_unmount_reply unmounted;
	struct mcp_mount_reply mounted;
	struct mcp_client *second;
	struct mcp_replica r;
	struct mcp_object o;
	struct world w;

	(void)state;
	world_up(&w, false);
	world_put(&w, "a", 100);
	second = world_connect(w.socket, world_me, MCP_CHANNEL_CONTROL);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(world_call(second, MCP_MOUNT, &mount, &mounted, NULL), -MC_EOWNER);
		assert_int_equal(world_call(second, MCP_UNMOUNT, &unmount, &unmounted, NULL), -MC_EOWNER);
		assert_int_equal(world_call(second, MCP_TASK_FETCH, &fetch, &fetched, NULL), -MC_EOWNER);
		assert_int_equal(world_call(second, MCP_REGISTER, &reg, &registered, NULL), -MC_EOWNER);
	}
	assert_int_equal(world_get(&w, "a", 0, &o, &r), 0);
	/* A connection that registers with the first program's name belongs to that program. */
	reg.name = fx_bytes("me:1");
	assert_int_equal(world_call(second, MCP_REGISTER, &reg, &registered, NULL), 0);
	assert_int_equal(world_call(second, MCP_UNMOUNT, &unmount, &unmounted, NULL), 0);
	assert_int_equal(unmounted.objects_lost, 1);
	mcp_client_close(second);
	world_down(&w);
}

static void remove_dir(const char *where)
{
	struct dirent *e;
	char path[512];
	DIR *d = opendir(where);

	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", where, e->d_name);
		unlink(path);
	}
	closedir(d);
	rmdir(where);
}

/* A client that reconnects checks the results of its last requests next, so its registration waits
 * until they are in the journal. Registrations of other clients do not wait. */
static void test_comes_back(void **state)
{
	struct mcp_register reg = { .client = { 8, 8 }, .name = fx_bytes("new:1") };
	char dir[] = "/tmp/mc-service.XXXXXX";
	struct mcp_register_reply registered;
	struct mcp_client *new, *again;
	struct world w;

	(void)state;
	world_journal_dir = mkdtemp(dir);
	world_up(&w, false);
	assert_int_equal(mc_fault_set("journal.settle=delay:0"), 0);
	new = world_connect(w.socket, reg.client, MCP_CHANNEL_CONTROL);
	assert_int_equal(world_call(new, MCP_REGISTER, &reg, &registered, NULL), 0);
	assert_int_equal(world_call(new, MCP_REGISTER, &reg, &registered, NULL), 0);
	assert_int_equal(mc_fault_hits("journal.settle"), 0);
	again = world_connect(w.socket, world_me, MCP_CHANNEL_CONTROL);
	reg = (struct mcp_register){ .client = world_me, .name = fx_bytes("me:1") };
	assert_int_equal(world_call(again, MCP_REGISTER, &reg, &registered, NULL), 0);
	assert_int_equal(mc_fault_hits("journal.settle"), 1);
	mc_fault_set(NULL);
	mcp_client_close(again);
	mcp_client_close(new);
	world_down(&w);
	remove_dir(dir);
	world_journal_dir = NULL;
}

/* Returns the session's fence number. */
static uint64_t register_writer(struct mcp_client *c, struct mcp_id id, struct mcp_id engine, const char *name)
{
	struct mcp_register reg = { .client = id, .name = fx_bytes(name), .engine = engine };
	struct mcp_register_reply registered;

	assert_int_equal(world_call(c, MCP_REGISTER, &reg, &registered, NULL), 0);
	return registered.fence;
}

/* A heartbeat of the owner that confirms an order (0: none); returns the number of orders in the answer, @ret: the
 * first. */
static unsigned heartbeat(struct mcp_client *hb, uint64_t confirm, struct mcp_fence *ret)
{
	struct mcp_fenced fenced = { confirm };
	struct mcp_heartbeat beat = { .client = world_me, .fenced = mcp_seq(&fenced, !!confirm) };
	struct mcp_heartbeat_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_iter it;

	assert_int_equal(world_call(hb, MCP_HEARTBEAT, &beat, &reply, &mem), 0);
	mcp_iter_init(&it, &reply.fences, &mcp_desc_fence);
	assert_int_equal(mcp_iter_next(&it, ret), reply.fences.count > 0);
	mcp_reply_done(&mem);
	return reply.fences.count;
}

/* When a connection ends, its pins and puts end, too. */
static void test_connection_ends(void **state)
{
	const struct mcp_id id = { 8, 8 }, engine = { 80, 81 };
	struct mcp_client *second, *hb;
	struct mcp_put_grant g;
	struct mcp_replica r;
	struct mcp_object o;
	struct mcp_fence f;
	struct world w, as_second;
	uint64_t fence;
	int i;

	(void)state;
	world_up(&w, false);
	world_put(&w, "a", 100);
	as_second = w;
	second = as_second.c = world_connect(w.socket, id, MCP_CHANNEL_CONTROL);
	fence = register_writer(second, id, engine, "second:1");
	assert_true(fence > w.fence);
	hb = world_connect(w.socket, world_me, MCP_CHANNEL_HEARTBEAT);
	assert_int_equal(world_get(&as_second, "a", MCP_GET_HOLD, &o, &r), 0);
	assert_int_equal(world_start(&as_second, "b", 100, &g, &r), 0);
	assert_int_equal(world_remove(&w, "a", 0), -MC_ELEASED);
	mcp_client_close(second);
	for (i = 0; i < 1000 && world_remove(&w, "a", 0) == -MC_ELEASED; i++)
		usleep(10000);
	assert_int_equal(world_get(&w, "a", 0, &o, &r), -MC_ENOOBJECT);
	/* Its put was aborted; the owner of the memory gets the order to fence its engine until it has confirmed it. */
	assert_int_equal(world_end(&w, MCP_PUT_END, "b", g.generation), -MC_ESTALE_PUT);
	for (i = 0; i < 3; i++) {
		assert_int_equal(heartbeat(hb, 0, &f), 1);
		assert_int_equal(f.upto, fence);
		assert_true(mcp_id_eq(f.engine, engine));
		assert_int_equal(mcm_load_relaxed(&w.m->segments.at[0]->used), 128);
	}
	assert_int_equal(heartbeat(hb, f.number, &f), 0);
	for (i = 0; i < 1000 && mcm_load_relaxed(&w.m->segments.at[0]->used); i++)
		usleep(10000);
	assert_int_equal(mcm_load_relaxed(&w.m->segments.at[0]->used), 0);
	mcp_client_close(hb);
	world_down(&w);
}

/* The master cannot let an owner fence a client whose engine it does not know: such a client may begin no put and fetch
 * no copy, but all else. */
static void test_writes_need_an_engine(void **state)
{
	struct mcp_put_item item[] = { { .key = fx_bytes("b"), .size = 100 }, { .key = fx_bytes("empty") } };
	struct mcp_put_start start = { .flags = MCP_PUT_COMMIT, .replicas = 1, .items = mcp_seq(item, 2) };
	struct mcp_put_done done = { .key = fx_bytes("b"), .generation = 64 };
	struct mcp_put_end end = { .items = mcp_seq(&done, 1) };
	const struct mcp_id id = { 8, 8 }, engine = { 80, 81 };
	struct mcp_task_fetch_reply fetched;
	struct mcp_task_fetch fetch = { .max = 4 };
	struct mcp_put_start_reply started;
	struct mcp_put_end_reply ended;
	struct mcp_reply mem = { 0 };
	struct mcp_replica r;
	struct mcp_object o;
	struct world w, other;

	(void)state;
	world_up(&w, false);
	world_put(&w, "a", 100);
	other = w;
	other.c = world_connect(w.socket, id, MCP_CHANNEL_CONTROL);
	/* Not registered; registered without an engine. */
	for (int i = 0; i < 2; i++) {
		assert_int_equal(world_call(other.c, MCP_PUT_START, &start, &started, NULL), -MC_EVERSION);
		assert_int_equal(world_call(other.c, MCP_TASK_FETCH, &fetch, &fetched, NULL),
				 i ? -MC_EVERSION : -MC_EOWNER);
		assert_int_equal(world_call(other.c, MCP_PUT_END, &end, &ended, &mem), 0);
		mcp_reply_done(&mem);
		assert_int_equal(world_get(&other, "a", MCP_GET_LEASE, &o, &r), 0);
		assert_int_equal(world_remove(&other, i ? "a" : "none", MCP_REMOVE_FORCE), i ? 0 : -MC_ENOOBJECT);
		if (!i)
			(void)register_writer(other.c, id, (struct mcp_id){ 0 }, "other:1");
	}
	assert_int_equal(world_get(&w, "empty", 0, &o, &r), -MC_ENOOBJECT);
	(void)register_writer(other.c, id, engine, "other:1");
	world_put(&other, "c", 100);
	assert_int_equal(world_call(other.c, MCP_TASK_FETCH, &fetch, &fetched, &mem), 0);
	mcp_reply_done(&mem);
	mcp_client_close(other.c);
	world_down(&w);
}

/* ---- requests that take long ---- */

#define MANY 150000u
#define AT_ONCE 1000u

static void put_many(struct world *w)
{
	struct mcp_put_item item[AT_ONCE];
	static char name[AT_ONCE][32];
	struct mcp_put_start rq = {
		.flags = MCP_PUT_COMMIT, .replicas = 1, .items = mcp_seq(item, AT_ONCE),
	};
	struct mcp_put_start_reply reply;
	struct mcp_reply mem = { 0 };
	unsigned i, j;

	for (i = 0; i < MANY; i += AT_ONCE) {
		for (j = 0; j < AT_ONCE; j++) {
			snprintf(name[j], sizeof(name[j]), "many/%u", i + j);
			item[j] = (struct mcp_put_item){ .key = fx_bytes(name[j]) };
		}
		assert_int_equal(mcp_call(w->c, MCP_PUT_START, &rq, &reply, &mem, mc_deadline_ms(60000)), 0);
		mcp_reply_done(&mem);
	}
}

struct removal {
	struct mcp_client *c;
	uint64_t removed;
	int result, done;
};

/* Like a client of version 1, which does not request removals in parts. */
static void *remove_whole(void *arg)
{
	struct mcp_remove_match rq = { .pattern = fx_bytes("^many/[0-9]+$") };
	struct mcp_remove_match_reply reply = { 0 };
	struct removal *rm = arg;
	struct mcp_reply mem = { 0 };

	rm->result = mcp_call(rm->c, MCP_REMOVE_MATCH, &rq, &reply, &mem, mc_deadline_ms(120000));
	rm->removed = reply.removed;
	mcp_reply_done(&mem);
	__atomic_store_n(&rm->done, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void wait_until_begun(struct world *w)
{
	uint64_t end = mc_now_ms() + 60000;

	while (mcm_index_count(&w->m->index) > MANY && mc_now_ms() < end)
		usleep(100);
}

/* The only thread serves both connections in turns. */
static void test_removal_in_one_request(void **state)
{
	struct removal rm = { 0 };
	unsigned answered = 0;
	struct world w, other;
	struct mcp_client *c;
	pthread_t thread;

	(void)state;
	world_threads = 1;
	world_up(&w, false);
	world_threads = 2;
	world_put(&w, "other", 0);
	put_many(&w);
	assert_int_equal(mcm_index_count(&w.m->index), MANY + 1);
	c = world_connect(w.socket, (struct mcp_id){ 9, 9 }, MCP_CHANNEL_CONTROL);
	other = w;
	other.c = c;
	rm.c = w.c;
	assert_int_equal(world_remove(&other, "none", 0), -MC_ENOOBJECT);
	assert_int_equal(pthread_create(&thread, NULL, remove_whole, &rm), 0);
	wait_until_begun(&w);
	while (!__atomic_load_n(&rm.done, __ATOMIC_ACQUIRE)) {
		assert_int_equal(world_remove(&other, "none", 0), -MC_ENOOBJECT);
		answered += mcm_index_count(&w.m->index) > 1;
	}
	pthread_join(thread, NULL);
	assert_int_equal(rm.result, 0);
	assert_int_equal(rm.removed, MANY);
	assert_int_equal(mcm_index_count(&w.m->index), 1);
	print_message("%u requests were answered before the removal had ended\n", answered);
	assert_true(answered >= 5);
	/* The connection remains usable, and its next removal begins at the first key. */
	world_put(&w, "many/1", 0);
	remove_whole(&rm);
	assert_int_equal(rm.removed, 1);
	/* A removal whose connection ends in the middle leaves no state behind. */
	put_many(&w);
	rm.c = c;
	rm.done = 0;
	assert_int_equal(pthread_create(&thread, NULL, remove_whole, &rm), 0);
	wait_until_begun(&w);
	mcp_client_reset(c);
	pthread_join(thread, NULL);
	assert_int_equal(world_remove(&other, "none", 0), -MC_ENOOBJECT);
	mcp_client_close(c);
	world_down(&w);
}

/* One fetch visits many objects that find no room, in parts. */
static void test_fetch_in_parts(void **state)
{
	const struct mcp_task_fetch rq = { .max = 4 };
	struct mcp_mount mount = {
		.segment = { 1, 3 }, .client = world_me, .epoch = 9, .base = 1ull << 40, .size = 64,
		.name = fx_bytes("tiny"), .endpoint = fx_bytes("me:2"), .protocol = fx_bytes("tcp"),
	};
	struct mcp_name source = { .name = fx_bytes("me:1") };
	struct mcp_task_create task = { .type = MCP_TASK_DRAIN, .sources = mcp_seq(&source, 1) };
	struct mcp_task_create_reply created;
	struct mcp_task_fetch_reply reply;
	struct mcp_mount_reply mounted;
	struct mcp_reply mem = { 0 };
	struct world w;
	char key[16];

	(void)state;
	world_up(&w, false);
	for (unsigned i = 0; i < 3 * MCM_FETCH_RANGES; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		world_put(&w, key, 128);
	}
	world_put(&w, "small", 64);
	assert_int_equal(world_call(w.c, MCP_MOUNT, &mount, &mounted, NULL), 0);
	assert_int_equal(world_call(w.c, MCP_TASK_CREATE, &task, &created, NULL), 0);
	assert_int_equal(world_call(w.c, MCP_TASK_FETCH, &rq, &reply, &mem), 0);
	assert_int_equal(reply.copies.count, 1);
	mcp_reply_done(&mem);
	/* A fetch also ends if there is nothing to copy. */
	assert_int_equal(world_call(w.c, MCP_TASK_FETCH, &rq, &reply, NULL), 0);
	assert_int_equal(reply.copies.count, 0);
	world_down(&w);
}

/* ---- HTTP ---- */

struct page {
	char text[262144];
	size_t len;
	long status;
};

static size_t receive(char *data, size_t size, size_t n, void *arg)
{
	struct page *p = arg;

	if (p->len + size * n >= sizeof(p->text))
		return 0;
	memcpy(p->text + p->len, data, size * n);
	p->len += size * n;
	p->text[p->len] = 0;
	return size * n;
}

static void fetch(struct world *w, const char *path, struct page *p)
{
	CURL *c = curl_easy_init();
	char url[256];

	memset(p, 0, sizeof(*p));
	snprintf(url, sizeof(url), "http://127.0.0.1:%d%s", mcm_http_port(w->m), path);
	curl_easy_setopt(c, CURLOPT_URL, url);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, receive);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, p);
	curl_easy_setopt(c, CURLOPT_TIMEOUT, 10L);
	curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
	assert_int_equal(curl_easy_perform(c), CURLE_OK);
	curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &p->status);
	curl_easy_cleanup(c);
}

static void expect(struct world *w, const char *path, long status, const char *text)
{
	static struct page p;

	fetch(w, path, &p);
	assert_int_equal(p.status, status);
	if (!strstr(p.text, text))
		fail_msg("%s: no \"%s\" in \"%s\"", path, text, p.text);
}

static void expect_without(struct world *w, const char *path, const char *text)
{
	static struct page p;

	fetch(w, path, &p);
	if (strstr(p.text, text))
		fail_msg("%s: \"%s\" in \"%s\"", path, text, p.text);
}

/* Linked instead of the real function. short_slices: each slice ends after one batch of victims.
 * answered_between: after the first slice the thread answers another request, then there is no
 * space. */
static bool short_slices, answered_between;
static unsigned slices;

void __wrap_mcm_put_start_many(struct mcm *m, struct mcm_session *s, struct mcm_put_request *rq,
			       const struct mcp_put_item *items, unsigned n,
			       struct mcm_put_granted *ret_granted, int *ret);
void __real_mcm_put_start_many(struct mcm *m, struct mcm_session *s, struct mcm_put_request *rq,
			       const struct mcp_put_item *items, unsigned n,
			       struct mcm_put_granted *ret_granted, int *ret);

void __wrap_mcm_put_start_many(struct mcm *m, struct mcm_session *s, struct mcm_put_request *rq,
			       const struct mcp_put_item *items, unsigned n,
			       struct mcm_put_granted *ret_granted, int *ret)
{
	if (answered_between && slices) {
		(void)mcm_journal_pending_lsn(m);
		for (unsigned i = 0; i < n; i++)
			ret[i] = -MC_ENOSPACE;
		return;
	}
	if (short_slices) {
		slices += rq->slice.end_ns != 0;
		rq->slice.end_ns = 1;
	}
	__real_mcm_put_start_many(m, s, rq, items, n, ret_granted, ret);
}

static void fill(struct world *w)
{
	struct mcp_put_grant g;
	struct mcp_replica rep;
	char key[16];

	for (unsigned i = 0; i < 1000; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		assert_int_equal(world_start(w, key, 4096, &g, &rep), 0);
		assert_int_equal(world_end(w, MCP_PUT_END, key, g.generation), 0);
	}
}

/* One request that evicts in slices: the reply has all grants, also those from before a pause. */
static void test_put_in_slices(void **state)
{
	static const uint64_t size[] = { 100, MIB, 0, 5000, 17 * MIB, MIB, 300 };
	enum { N = sizeof(size) / sizeof(size[0]) };
	struct mcp_put_item item[N];
	struct mcp_put_start rq = { .replicas = 1, .items = mcp_seq(item, N) };
	struct mcp_put_start_reply reply;
	struct mcp_replica rep[N], again;
	struct mcp_reply mem = { 0 };
	struct mcp_put_grant g[N];
	struct mcp_object o;
	struct mcp_iter it, parts;
	char key[N][8];
	struct world w;
	unsigned i, j;

	(void)state;
	world_up(&w, false);
	fill(&w);
	slices = 0;
	for (i = 0; i < N; i++) {
		snprintf(key[i], sizeof(key[i]), "b%u", i);
		item[i] = (struct mcp_put_item){ .key = fx_bytes(i == 2 ? "" : key[i]), .size = size[i] };
	}
	short_slices = true;
	assert_int_equal(world_call(w.c, MCP_PUT_START, &rq, &reply, &mem), 0);
	short_slices = false;
	assert_in_range(slices, 5, 40);
	assert_int_equal(reply.grants.count, N);
	mcp_iter_init(&it, &reply.grants, &mcp_desc_put_grant);
	for (i = 0; i < N; i++) {
		assert_true(mcp_iter_next(&it, &g[i]));
		assert_int_equal(mc_err_from_wire(g[i].status), i == 2 ? -MC_EKEY : i == 4 ? -MC_ETOOBIG : 0);
		assert_int_equal(g[i].replicas.count, !g[i].status);
		mcp_iter_init(&parts, &g[i].replicas, &mcp_desc_replica);
		if (!g[i].status)
			assert_true(mcp_iter_next(&parts, &rep[i]));
		for (j = 0; j < i && !g[i].status; j++)
			assert_true(g[j].status || rep[j].offset + size[j] <= rep[i].offset ||
				    rep[i].offset + size[i] <= rep[j].offset);
	}
	for (i = 0; i < N; i++) {
		if (g[i].status)
			continue;
		assert_int_equal(world_end(&w, MCP_PUT_END, key[i], g[i].generation), 0);
		assert_int_equal(world_get(&w, key[i], 0, &o, &again), 0);
		assert_int_equal(o.size, size[i]);
		assert_int_equal(again.offset, rep[i].offset);
	}
	mcp_reply_done(&mem);
	world_down(&w);
}

/* Grants of an early slice are in the journal before the reply is sent, also if the thread has
 * answered other requests meanwhile and the last slice changed nothing. */
static void test_slices_are_journaled(void **state)
{
	struct mcp_put_item item[] = { { .key = fx_bytes("a"), .size = 100 }, { .key = fx_bytes("b"), .size = MIB } };
	struct mcp_put_start rq = { .replicas = 1, .items = mcp_seq(item, 2) };
	static const int want[] = { 0, -MC_ENOSPACE };
	char dir[] = "/tmp/mc-service.XXXXXX";
	struct mcp_put_start_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_put_grant g;
	struct mcp_iter it;
	struct world w;

	(void)state;
	world_journal_dir = mkdtemp(dir);
	world_up(&w, false);
	fill(&w);
	assert_int_equal(mc_fault_set("journal.settle=delay:0"), 0);
	slices = 0;
	short_slices = answered_between = true;
	assert_int_equal(world_call(w.c, MCP_PUT_START, &rq, &reply, &mem), 0);
	short_slices = answered_between = false;
	mcp_iter_init(&it, &reply.grants, &mcp_desc_put_grant);
	for (unsigned i = 0; i < 2; i++) {
		assert_true(mcp_iter_next(&it, &g));
		assert_int_equal(mc_err_from_wire(g.status), want[i]);
	}
	assert_int_equal(mc_fault_hits("journal.settle"), 2);
	mc_fault_set(NULL);
	mcp_reply_done(&mem);
	world_down(&w);
	remove_dir(dir);
	world_journal_dir = NULL;
}

static void test_http(void **state)
{
	struct world w;

	(void)state;
	world_up(&w, true);
	world_put(&w, "key/1", 4000);
	world_put(&w, "key 2", 5000);
	expect(&w, "/health", 200, "\"status\":\"ok\"");
	expect(&w, "/role", 200, "leader");
	expect(&w, "/get_all_segments", 200, "me:1\n");
	expect(&w, "/get_all_keys", 200, "key/1\n");
	expect(&w, "/get_all_keys", 200, "key 2\n");
	expect(&w, "/query_key?key=key%202", 200,
	       "{\"success\":true,\"data\":[{\"size_\":5000,\"buffer_address_\":");
	expect(&w, "/query_key?key=key/1", 200, "\"protocol_\":\"tcp\",\"transport_endpoint_\":\"me:2\"");
	expect(&w, "/query_key?key=none", 404, "\"error_code\":-704");
	expect(&w, "/query_key", 404, "\"error_message\":\"OBJECT_NOT_FOUND\"");
	expect(&w, "/query_segment?segment=me:1", 200, "me:1\nUsed(bytes): ");
	expect(&w, "/query_segment?segment=none", 500, "");
	expect(&w, "/get_segments_detail", 200, "{\"total_segments\":1,\"segments\":[{\"segment_name\":"
	       "\"me:1\",\"segment_id\":\"1-2\",\"client_id\":\"");
	/* With the owner's client id 5-6 another program could act as the owner. */
	expect_without(&w, "/get_segments_detail", "\"5-6\"");
	expect(&w, "/get_segments_detail", 200, "\"base_address\":\"0x1000\","
	       "\"size_bytes\":4194304,\"size_human\":\"0.00390625 GiB\",\"te_endpoint\":\"me:2\","
	       "\"protocol\":\"tcp\",\"status\":\"OK\",\"allocator_used_bytes\":");
	expect(&w, "/metrics", 200, "\nmaster_key_count 2\n");
	expect(&w, "/metrics", 200, "\nsegment_total_capacity_bytes{segment=\"me:1\"} 4194304\n");
	expect(&w, "/metrics", 200, "# TYPE master_value_size_bytes histogram");
	expect(&w, "/metrics/summary", 200, "role=leader, state=serving, service_ready=true, master={Mem Storage: ");
	world_down(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_socket),
		cmocka_unit_test(test_local),
		cmocka_unit_test(test_fenced),
		cmocka_unit_test(test_comes_back),
		cmocka_unit_test(test_connection_ends),
		cmocka_unit_test(test_writes_need_an_engine),
		cmocka_unit_test(test_removal_in_one_request),
		cmocka_unit_test(test_put_in_slices),
		cmocka_unit_test(test_slices_are_journaled),
		cmocka_unit_test(test_fetch_in_parts),
		cmocka_unit_test(test_http),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
