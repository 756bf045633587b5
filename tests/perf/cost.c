/* SPDX-License-Identifier: Apache-2.0
 * cost.c - fixed work of a master and its RPC, whose instructions tests/perf/cost.sh counts.
 *
 * Each function row_NAME() is one row of tests/perf/COST: callgrind counts only inside these functions.  A row's
 * work is the same in each run: one thread, a clock that the program moves, and random numbers from a fixed seed.
 * Client and master are in this process, so that a row has the client's encoding, the dispatch, the handlers and the
 * client's decoding, and no system calls.
 *
 *	cost [ROW]	prints "NAME OPERATIONS" for each row, in the order of the calls */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "master/journal/journal_i.h"
#include "master/mcm_i.h"
#include "master/service/service.h"
#include "proto/rpc_client.h"
#include "proto/rpc_server.h"

#define KEY_LEN 64u
#define BATCH 500u
#define SEGMENTS 1000u
#define LEASED_SEGMENTS 100u
#define WARM 20000u	/* objects put before the count begins */
#define COUNTED 10000u	/* operations of a row */
#define PAGE 1000u	/* entries of one LIST */
#define OBJECT_SIZE 4096u	/* bytes of an object */
#define POOL 1000000u

#define ROW __attribute__((noinline)) void

static const struct mcp_id me = { 1, 2 };

uint64_t __wrap_mc_random_u64(void);
uint64_t __wrap_mc_random_u64(void)
{
	static uint64_t state;

	state += 0x9e3779b97f4a7c15ull;
	return (state ^ state >> 29) * 0xbf58476d1ce4e5b9ull;
}

static void die(const char *what, int err)
{
	fprintf(stderr, "cost: %s: %s\n", what, mc_err_detail(err));
	exit(1);
}

static void must(const char *what, int r)
{
	if (r < 0)
		die(what, r);
}

/* A master and its client. */
struct world {
	struct mcm *m;
	struct mc_options *options;
	struct mcp_server *server;
	struct mcp_client *c;
	char (*text)[KEY_LEN + 1];	/* key texts: 0 .. WARM + 2 * COUNTED - 1 */
	struct mcp_key key[BATCH];
	struct mcp_put_item item[BATCH];
	struct mcp_put_done done[BATCH];
	struct mcp_pin pin[BATCH];
};

static void call(struct world *w, uint16_t type, const void *rq, void *ret, struct mcp_reply *mem)
{
	must("call", mcp_call(w->c, type, rq, ret, mem, MC_NEVER));
}

static void world_mount(struct world *w, unsigned n, uint64_t size)
{
	struct mcp_mount mount = {
		.segment = { 3, 4 + n }, .client = me, .epoch = 1, .size = size,
		.endpoint = mcp_bytes("cost:2", 6), .protocol = mcp_bytes("tcp", 3),
	};
	struct mcp_mount_reply mounted;
	struct mcp_reply mem = { 0 };
	char name[32];

	mount.name = mcp_bytes(name, (size_t)snprintf(name, sizeof(name), "cost-%u:1", n));
	call(w, MCP_MOUNT, &mount, &mounted, &mem);
	mcp_reply_done(&mem);
}

static void world_connect(struct world *w)
{
	struct mcp_client_conf conf = {
		.addrs = "local:cost", .client = me, .channel = MCP_CHANNEL_CONTROL, .software = "cost",
	};
	struct mcp_register reg = { .client = me, .name = mcp_bytes("cost:1", 6), .engine = me };
	struct mcp_register_reply registered;
	struct mcp_reply mem = { 0 };

	must("client", mcp_client_open(&conf, &w->c));
	call(w, MCP_REGISTER, &reg, &registered, &mem);
	mcp_reply_done(&mem);
}

static void durable(void *arg)
{
	mcm_journal_wait(arg);
}

/* @objects: room of the segments together. */
static void world_up(struct world *w, uint64_t objects, unsigned segments, char *journal_dir)
{
	static const char *const none[] = { NULL };
	struct mcp_server_conf conf = {
		.addrs = none, .local_name = "cost", .loops = 1, .software = "cost", .handlers = mcm_handlers,
		.any_channel = mcm_any_channel, .opened = mcm_session_opened, .closed = mcm_session_closed,
		.keeps = mcm_session_keeps, .make_durable = durable,
	};
	struct mcm_conf mc;
	unsigned i;

	memset(w, 0, sizeof(*w));
	mc_clock_fake(1000 * MC_NS_PER_SEC);
	must("options", mcm_conf_defaults(&mc, &w->options));
	mc.journal_dir = journal_dir ? journal_dir : mc.journal_dir;
	must("master", mcm_core_new(&mc, &w->m));
	conf.arg = w->m;
	/* As few keys are sampled as in a pool of this many objects. */
	mcm_sample_pool(&w->m->learn.sample, POOL * (uint64_t)OBJECT_SIZE, 0, POOL);
	must("server", mcp_server_start(&conf, &w->server));
	world_connect(w);
	for (i = 0; i < segments; i++)
		world_mount(w, i, objects / segments * OBJECT_SIZE);
	w->text = malloc((WARM + 2 * COUNTED) * sizeof(*w->text));
	if (!w->text)
		die("memory", -ENOMEM);
	for (i = 0; i < WARM + 2 * COUNTED; i++) {
		uint64_t h = (i + 1) * 0x9e3779b97f4a7c15ull;

		snprintf(w->text[i], sizeof(*w->text), "%016llx%016llx%016llx%016llx", (unsigned long long)h,
			 (unsigned long long)i, (unsigned long long)(h * 3), (unsigned long long)(h * 5));
	}
}

static void world_down(struct world *w)
{
	mcp_client_close(w->c);
	mcp_server_stop(w->server);
	mcm_core_free(w->m);
	mc_options_free(w->options);
	free(w->text);
}

/* ---- operations, in batches ---- */

/* The batch's keys: @first, @first + @step ... modulo @wrap. */
static void keys_set(struct world *w, unsigned first, unsigned step, unsigned wrap)
{
	unsigned i;

	for (i = 0; i < BATCH; i++) {
		w->key[i].key = mcp_bytes(w->text[(first + i * step) % wrap], KEY_LEN);
		w->item[i] = (struct mcp_put_item){ .key = w->key[i].key, .size = OBJECT_SIZE };
	}
}

static void put_batch(struct world *w, unsigned first)
{
	struct mcp_put_start rq = { .replicas = 1, .items = mcp_seq(w->item, BATCH) };
	struct mcp_put_end end = { .items = mcp_seq(w->done, BATCH) };
	struct mcp_put_start_reply started;
	struct mcp_put_end_reply ended;
	struct mcp_reply mem = { 0 };
	struct mcp_put_grant g;
	struct mcp_status st;
	struct mcp_iter it;
	unsigned i = 0;

	keys_set(w, first, 1, UINT32_MAX);
	call(w, MCP_PUT_START, &rq, &started, &mem);
	mcp_iter_init(&it, &started.grants, &mcp_desc_put_grant);
	for (; mcp_iter_next(&it, &g); i++) {
		if (g.status)
			die("put", mc_err_from_wire(g.status));
		w->done[i] = (struct mcp_put_done){ .key = w->key[i].key, .generation = g.generation, .crc = 1 };
	}
	mcp_reply_done(&mem);
	call(w, MCP_PUT_END, &end, &ended, &mem);
	mcp_iter_init(&it, &ended.results, &mcp_desc_status);
	while (mcp_iter_next(&it, &st))
		if (st.status)
			die("put", mc_err_from_wire(st.status));
	mcp_reply_done(&mem);
	mc_clock_advance(MC_NS_PER_MS);
}

static void put_all(struct world *w, unsigned from, unsigned to)
{
	for (; from < to; from += BATCH)
		put_batch(w, from);
}

static void exist_all(struct world *w, unsigned n)
{
	struct mcp_exist rq = { .keys = mcp_seq(w->key, BATCH) };
	struct mcp_exist_reply reply;
	struct mcp_reply mem = { 0 };
	unsigned i;

	for (i = 0; i < n; i += BATCH) {
		/* in an order that does not favour the index */
		keys_set(w, i * 7919, 4729, WARM);
		call(w, MCP_EXIST, &rq, &reply, &mem);
		if (memchr(reply.present.data, 0, reply.present.len))
			die("a key is missing", -MC_ENOOBJECT);
		mcp_reply_done(&mem);
		mc_clock_advance(MC_NS_PER_MS);
	}
}

/* Not all objects are present any more: the background evictor kept to its watermark. */
static void lease_all(struct world *w)
{
	struct mcp_exist rq = { .keys = mcp_seq(w->key, BATCH) };
	struct mcp_exist_reply reply;
	struct mcp_reply mem = { 0 };

	for (unsigned i = 0; i < WARM; i += BATCH) {
		keys_set(w, i, 1, WARM);
		call(w, MCP_EXIST, &rq, &reply, &mem);
		mcp_reply_done(&mem);
	}
}

static void get_all(struct world *w, unsigned n)
{
	struct mcp_get rq = { .flags = MCP_GET_LEASE, .keys = mcp_seq(w->key, BATCH) };
	struct mcp_release release = { .pins = mcp_seq(w->pin, BATCH) };
	struct mcp_get_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_object o;
	struct mcp_iter it;
	unsigned i, k;

	for (i = 0; i < n; i += BATCH) {
		keys_set(w, i * 7919, 4729, WARM);
		call(w, MCP_GET, &rq, &reply, &mem);
		mcp_iter_init(&it, &reply.objects, &mcp_desc_object);
		for (k = 0; mcp_iter_next(&it, &o); k++) {
			if (o.status)
				die("get", mc_err_from_wire(o.status));
			w->pin[k].pin = o.pin;
		}
		mcp_reply_done(&mem);
		must("release", mcp_send(w->c, MCP_RELEASE, &release));
		mc_clock_advance(MC_NS_PER_MS);
	}
}

static void one_exist_all(struct world *w, unsigned n)
{
	struct mcp_exist rq = { .keys = mcp_seq(w->key, 1) };
	struct mcp_exist_reply reply;
	struct mcp_reply mem = { 0 };
	unsigned i;

	for (i = 0; i < n; i++) {
		w->key[0].key = mcp_bytes(w->text[i * 7919 % WARM], KEY_LEN);
		call(w, MCP_EXIST, &rq, &reply, &mem);
		mcp_reply_done(&mem);
	}
}

static void list_all(struct world *w, unsigned pages)
{
	struct mcp_list rq = { .flags = MCP_LIST_DIR, .limit = PAGE };
	struct mcp_list_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_entry e;
	struct mcp_iter it;
	uint8_t cursor[64];

	while (pages--) {
		call(w, MCP_LIST, &rq, &reply, &mem);
		mcp_iter_init(&it, &reply.entries, &mcp_desc_entry);
		while (mcp_iter_next(&it, &e))
			;
		if (reply.entries.count != PAGE)
			die("listing", -MC_EINTERNAL);
		memcpy(cursor, reply.cursor.data, reply.cursor.len);
		rq.cursor = mcp_bytes(cursor, reply.cursor.len);
		mcp_reply_done(&mem);
	}
}

/* ---- rows ---- */

ROW row_put(struct world *w);
ROW row_put(struct world *w)
{
	put_all(w, WARM, WARM + COUNTED);
}

ROW row_put_evict(struct world *w);
ROW row_put_evict(struct world *w)
{
	put_all(w, WARM + COUNTED, WARM + 2 * COUNTED);
}

ROW row_put_segments(struct world *w);
ROW row_put_segments(struct world *w)
{
	put_all(w, WARM + COUNTED, WARM + 2 * COUNTED);
}

ROW row_put_leased(struct world *w);
ROW row_put_leased(struct world *w)
{
	put_all(w, WARM, WARM + COUNTED);
}

ROW row_put_journal(struct world *w);
ROW row_put_journal(struct world *w)
{
	put_all(w, WARM, WARM + COUNTED);
}

ROW row_exists(struct world *w);
ROW row_exists(struct world *w)
{
	exist_all(w, COUNTED);
}

ROW row_get(struct world *w);
ROW row_get(struct world *w)
{
	get_all(w, COUNTED);
}

ROW row_message(struct world *w);
ROW row_message(struct world *w)
{
	one_exist_all(w, COUNTED);
}

ROW row_list(struct world *w);
ROW row_list(struct world *w)
{
	list_all(w, COUNTED / PAGE);
}

ROW row_evict(struct world *w);
ROW row_evict(struct world *w)
{
	while (mcm_evict_background(w->m))
		;
}

ROW row_journal(struct world *w, const uint32_t *slot);
ROW row_journal(struct world *w, const uint32_t *slot)
{
	unsigned i;

	for (i = 0; i < COUNTED; i++) {
		mcm_journal_object(w->m, slot[i]);
		if (i % BATCH == BATCH - 1)
			mcm_journal_wait(w->m);
	}
}

/* ---- masters ---- */

static void told(const char *row, uint64_t operations)
{
	printf("%s %llu\n", row, (unsigned long long)operations);
}

/* Room for all. */
static void cost_roomy(void)
{
	struct world w;

	world_up(&w, 4 * (WARM + COUNTED), 1, NULL);
	put_all(&w, 0, WARM);
	row_put(&w);
	told("put", COUNTED);
	exist_all(&w, 2 * COUNTED);
	row_exists(&w);
	told("exists", COUNTED);
	get_all(&w, COUNTED);
	row_get(&w);
	told("get", COUNTED);
	one_exist_all(&w, BATCH);
	row_message(&w);
	told("message", COUNTED);
	list_all(&w, 1);
	row_list(&w);
	told("list", COUNTED);
	world_down(&w);
}

/* A full pool. */
static void cost_full(void)
{
	uint64_t objects;
	struct world w;

	world_up(&w, WARM, 1, NULL);
	/* After the leases. */
	mc_clock_advance(60 * MC_NS_PER_SEC);
	put_all(&w, 0, WARM + COUNTED);
	row_put_evict(&w);
	told("put_evict", COUNTED);
	objects = mcm_index_count(&w.m->index);
	row_evict(&w);
	told("evict", objects - mcm_index_count(&w.m->index));
	world_down(&w);
}

/* The same, in many segments, and with leases for all objects. */
static void cost_full_many(void)
{
	struct world w;

	world_up(&w, WARM, SEGMENTS, NULL);
	put_all(&w, 0, WARM + COUNTED);
	row_put_segments(&w);
	told("put_segments", COUNTED);
	world_down(&w);
}

static void cost_full_leased(void)
{
	struct world w;

	world_up(&w, WARM, LEASED_SEGMENTS, NULL);
	put_all(&w, 0, WARM);
	mc_clock_advance(2 * MC_NS_PER_SEC);
	lease_all(&w);
	row_put_leased(&w);
	told("put_leased", COUNTED);
	world_down(&w);
}

static void add_slot(void *arg, uint32_t slot)
{
	uint32_t **at = arg;

	*(*at)++ = slot;
}

static void cost_journal(void)
{
	char dir[] = "cost-journal.XXXXXX";
	uint32_t slot[COUNTED], *at = slot;
	uint64_t pos = 0;
	struct world w;

	if (!mkdtemp(dir))
		die("journal", -errno);
	world_up(&w, 4 * (WARM + COUNTED), 1, dir);
	put_all(&w, 0, WARM);
	row_put_journal(&w);
	told("put_journal", COUNTED);
	if (mcm_index_scan(&w.m->index, &pos, COUNTED, add_slot, &at) != COUNTED)
		die("scan", -MC_EINTERNAL);
	row_journal(&w, slot);
	told("journal", COUNTED);
	world_down(&w);
}

int main(void)
{
	cost_roomy();
	cost_full();
	cost_full_many();
	cost_full_leased();
	cost_journal();
	return 0;
}
