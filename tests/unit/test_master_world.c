/* SPDX-License-Identifier: Apache-2.0
 * test_master_world.c - implementation of test_master_world.h. */
#include <config.h>

#include "tests/unit/test_master_world.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/sys/clock.h"


unsigned world_threads = 2;
char *world_journal_dir;
const struct mcp_id world_me = { 5, 6 }, world_seg = { 1, 2 };

struct mcp_client *world_connect(const char *addr, struct mcp_id id, enum mcp_channel channel)
{
	struct mcp_client_conf conf = {
		.addrs = addr, .client = id, .channel = channel, .software = "test",
	};
	struct mcp_client *c;

	assert_int_equal(mcp_client_open(&conf, &c), 0);
	return c;
}

int world_call(struct mcp_client *c, uint16_t type, const void *msg, void *ret,
		struct mcp_reply *mem)
{
	struct mcp_reply own = { 0 };
	int r = mcp_call(c, type, msg, ret, mem ? mem : &own, mc_deadline_ms(10000));

	mcp_reply_done(&own);
	return r;
}

void world_up(struct world *w, bool local)
{
	const char *addrs[2] = { NULL, NULL };
	struct mcm_listen where = { .addrs = addrs, .local_name = "test", .http_addr = "127.0.0.1:0" };
	struct mcp_register reg = { .client = world_me, .name = fx_bytes("me:1"), .engine = { 50, 60 } };
	struct mcp_register_reply registered;
	struct mcp_mount mount = {
		.segment = world_seg, .client = world_me, .epoch = 9, .base = 0x1000, .size = 4 * MIB,
		.name = fx_bytes("me:1"), .endpoint = fx_bytes("me:2"), .protocol = fx_bytes("tcp"),
	};
	struct mcp_mount_reply mounted;

	memset(w, 0, sizeof(*w));
	snprintf(w->socket, sizeof(w->socket), "unix:@mcm-test-%d", (int)getpid());
	addrs[0] = w->socket;
	assert_int_equal(mcm_conf_defaults(&w->conf, &w->options), 0);
	w->conf.enable_metric_reporting = false;
	w->conf.rpc_thread_num = world_threads;
	w->conf.journal_dir = world_journal_dir ? world_journal_dir : w->conf.journal_dir;
	assert_int_equal(mcm_start(&w->conf, &where, &w->m), 0);
	assert_string_equal(mcm_addr(w->m, 0), w->socket);
	w->c = world_connect(local ? "local:test" : w->socket, world_me, MCP_CHANNEL_CONTROL);
	assert_int_equal(world_call(w->c, MCP_REGISTER, &reg, &registered, NULL), 0);
	assert_true(registered.fence > registered.earlier && registered.earlier > 0);
	w->fence = registered.fence;
	assert_int_equal(registered.client_ttl_ms, 10000);
	assert_int_equal(registered.heartbeat_ms, 1000);
	assert_int_equal(registered.lease_ttl_ms, 10000);
	assert_int_equal(world_call(w->c, MCP_MOUNT, &mount, &mounted, NULL), 0);
	assert_int_equal(mounted.reattached, 0);
}

void world_down(struct world *w)
{
	mcp_client_close(w->c);
	mcm_stop(w->m);
	mc_options_free(w->options);
}

int world_start(struct world *w, const char *key, uint64_t size, struct mcp_put_grant *ret,
		 struct mcp_replica *replica)
{
	struct mcp_put_item item = { .key = fx_bytes(key), .size = size };
	struct mcp_put_start rq = { .replicas = 1, .items = mcp_seq(&item, 1) };
	struct mcp_put_start_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_iter it;

	assert_int_equal(world_call(w->c, MCP_PUT_START, &rq, &reply, &mem), 0);
	assert_int_equal(reply.grants.count, 1);
	mcp_iter_init(&it, &reply.grants, &mcp_desc_put_grant);
	assert_true(mcp_iter_next(&it, ret));
	if (!ret->status && size) {
		mcp_iter_init(&it, &ret->replicas, &mcp_desc_replica);
		assert_true(mcp_iter_next(&it, replica));
	}
	mcp_reply_done(&mem);
	return mc_err_from_wire(ret->status);
}

int world_end(struct world *w, uint16_t type, const char *key, uint64_t generation)
{
	struct mcp_put_done done = { .key = fx_bytes(key), .generation = generation, .crc = 77 };
	struct mcp_put_end rq = { .items = mcp_seq(&done, 1) };
	struct mcp_put_end_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_status st;
	struct mcp_iter it;

	assert_int_equal(world_call(w->c, type, &rq, &reply, &mem), 0);
	mcp_iter_init(&it, &reply.results, &mcp_desc_status);
	assert_true(mcp_iter_next(&it, &st));
	mcp_reply_done(&mem);
	return mc_err_from_wire(st.status);
}

int world_get(struct world *w, const char *key, uint32_t flags, struct mcp_object *ret,
	       struct mcp_replica *replica)
{
	struct mcp_key k = { fx_bytes(key) };
	struct mcp_get rq = { .flags = flags, .keys = mcp_seq(&k, 1) };
	struct mcp_get_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_iter it;

	assert_int_equal(world_call(w->c, MCP_GET, &rq, &reply, &mem), 0);
	mcp_iter_init(&it, &reply.objects, &mcp_desc_object);
	assert_true(mcp_iter_next(&it, ret));
	mcp_iter_init(&it, &ret->replicas, &mcp_desc_replica);
	if (ret->replicas.count)
		assert_true(mcp_iter_next(&it, replica));
	mcp_reply_done(&mem);
	return mc_err_from_wire(ret->status);
}

int world_remove(struct world *w, const char *key, uint32_t flags)
{
	struct mcp_key k = { fx_bytes(key) };
	struct mcp_remove rq = { .flags = flags, .keys = mcp_seq(&k, 1) };
	struct mcp_remove_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_status st;
	struct mcp_iter it;

	assert_int_equal(world_call(w->c, MCP_REMOVE, &rq, &reply, &mem), 0);
	mcp_iter_init(&it, &reply.results, &mcp_desc_status);
	assert_true(mcp_iter_next(&it, &st));
	mcp_reply_done(&mem);
	return mc_err_from_wire(st.status);
}

void world_put(struct world *w, const char *key, uint64_t size)
{
	struct mcp_put_grant g;
	struct mcp_replica r;

	assert_int_equal(world_start(w, key, size, &g, &r), 0);
	assert_int_equal(world_end(w, MCP_PUT_END, key, g.generation), 0);
}
