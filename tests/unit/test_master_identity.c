/* SPDX-License-Identifier: Apache-2.0
 * test_master_identity.c - requests of peers whose identity has a role or a tenant. */
#include <config.h>

#include "test_master_tenant_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "master/service/service.h"
#include "proto/rpc_client.h"

#define MIB (1u << 20)

static struct fixture fx;
static struct mcp_server *server;
static char addr[64];
/* Identity of the next connection, and the result of its identification. */
static struct mc_principal next;
static int identified;

static int identify(const struct mc_stream_peer *peer, struct mc_principal *ret, void *arg)
{
	assert_true(peer->local && peer->uid == getuid() && arg == fx.m);
	assert_int_equal(ret->roles, MC_ROLES_ALL);
	*ret = next;
	return identified < 0 ? mc_fail(identified, "the test knows no such peer") : 0;
}

/* The last call that was told for records, and their number. */
static struct {
	unsigned n;
	uint16_t type;
	int result;
	uint32_t roles;
} audited;

static void audit(struct mcp_session *s, uint16_t type, const void *body, size_t len, int result, void *arg)
{
	assert_true(arg == fx.m && (body || !len));
	audited.n++;
	audited.type = type;
	audited.result = result;
	audited.roles = mcp_session_principal(s)->roles;
}

static void server_up(void (*tune)(struct mcm_conf *conf))
{
	const char *const addrs[] = { addr, NULL };
	const struct mcp_server_conf conf = {
		.addrs = addrs, .loops = 1, .software = "test", .handlers = mcm_handlers, .local_name = "identity",
		.any_channel = mcm_any_channel, .opened = mcm_session_opened, .closed = mcm_session_closed,
		.identify = identify, .audit = audit,
	};
	struct mcp_server_conf with = conf;

	fx_up(&fx, 1, 4 * MIB, tune);
	mc_clock_real();
	snprintf(addr, sizeof(addr), "unix:@test_master_identity.%d", (int)getpid());
	with.arg = fx.m;
	assert_int_equal(mcp_server_start(&with, &server), 0);
}

static void server_down(void)
{
	mcp_server_stop(server);
	fx_down(&fx);
}

static struct mcp_client *connect_as(uint32_t roles, const char *tenant)
{
	struct mcp_client_conf conf = {
		.addrs = addr, .client = { 70, 1 }, .channel = MCP_CHANNEL_CONTROL, .software = "test",
	};
	struct mcp_client *c;

	next = (struct mc_principal){ .source = MC_PRINCIPAL_USER, .roles = roles };
	strcpy(next.tenant, tenant);
	assert_int_equal(mcp_client_open(&conf, &c), 0);
	return c;
}

static int call(struct mcp_client *c, uint16_t type, const void *msg, void *ret, struct mcp_reply *mem)
{
	return mcp_call(c, type, msg, ret, mem, mc_deadline_ms(10000));
}

/* 1: present, 0: not; an error. */
static int exists(struct mcp_client *c, const char *tenant, const char *name)
{
	struct mcp_key key = { .key = fx_bytes(name) };
	struct mcp_exist rq = { .keys = mcp_seq(&key, 1), .tenant = fx_bytes(tenant) };
	struct mcp_exist_reply reply;
	struct mcp_reply mem = { 0 };
	int r = call(c, MCP_EXIST, &rq, &reply, &mem);

	r = r < 0 ? r : *(const uint8_t *)reply.present.data;
	mcp_reply_done(&mem);
	return r;
}

/* The number of entries; an error. */
static int listed(struct mcp_client *c, const char *tenant, uint32_t flags)
{
	struct mcp_list rq = { .flags = flags, .limit = 100, .tenant = fx_bytes(tenant) };
	struct mcp_list_reply reply;
	struct mcp_reply mem = { 0 };
	int r = call(c, MCP_LIST, &rq, &reply, &mem);

	r = r < 0 ? r : (int)reply.entries.count;
	mcp_reply_done(&mem);
	return r;
}

/* The number of tenants; an error. */
static int tenants(struct mcp_client *c, const char *tenant)
{
	struct mcp_tenants rq = { .tenant = fx_bytes(tenant) };
	struct mcp_tenants_reply reply;
	struct mcp_reply mem = { 0 };
	int r = call(c, MCP_TENANTS, &rq, &reply, &mem);

	r = r < 0 ? r : (int)reply.tenants.count;
	mcp_reply_done(&mem);
	return r;
}

static int tasks(struct mcp_client *c, struct mcp_id id)
{
	struct mcp_tasks rq = { .id = id };
	struct mcp_tasks_reply reply;
	struct mcp_reply mem = { 0 };
	int r = call(c, MCP_TASKS, &rq, &reply, &mem);

	r = r < 0 ? r : (int)reply.tasks.count;
	mcp_reply_done(&mem);
	return r;
}

static int events(struct mcp_client *c, const char *tenant)
{
	struct mcp_events rq = { .tenant = fx_bytes(tenant) };
	struct mcp_events_reply reply;
	struct mcp_reply mem = { 0 };
	int r = call(c, MCP_EVENTS, &rq, &reply, &mem);

	r = r < 0 ? r : (int)reply.events.count;
	mcp_reply_done(&mem);
	return r;
}

static int remove_match(struct mcp_client *c, const char *tenant, uint32_t flags)
{
	struct mcp_remove_match rq = { .flags = flags, .tenant = fx_bytes(tenant) };
	struct mcp_remove_match_reply reply;
	struct mcp_reply mem = { 0 };
	int r = call(c, MCP_REMOVE_MATCH, &rq, &reply, &mem);

	r = r < 0 ? r : (int)reply.removed;
	mcp_reply_done(&mem);
	return r;
}

static int remove_one(struct mcp_client *c, const char *tenant, const char *name)
{
	struct mcp_key key = { .key = fx_bytes(name) };
	struct mcp_remove rq = { .keys = mcp_seq(&key, 1), .tenant = fx_bytes(tenant) };
	struct mcp_remove_reply reply;
	struct mcp_reply mem = { 0 };
	int r = call(c, MCP_REMOVE, &rq, &reply, &mem);

	mcp_reply_done(&mem);
	return r;
}

static struct mcp_id task_about(const char *tenant, const char *name)
{
	struct mcp_bytes target = fx_bytes("seg-2");
	char buf[MCM_KEY_MAX];
	struct mcm_task_request rq = {
		.type = MCP_TASK_COPY, .key = mcm_scope_key(tx_scope(&fx, tenant), fx_bytes(name), buf),
		.target = &target, .n_targets = 1,
	};
	struct mcp_mount_reply mounted;
	struct mcp_id id;

	assert_int_equal(fx_mount(&fx, 1, 2, 1, MIB, &mounted), 0);
	assert_int_equal(mcm_task_create(fx.m, &rq, &id), 0);
	return id;
}

/* Objects: 2 of alice, 1 of bob, 1 of the default tenant. */
static void pool_up(void)
{
	struct mcp_client *all;

	server_up(tx_tune);
	tx_quota(&fx, "alice", MIB);
	tx_quota(&fx, "bob", MIB);
	tx_quota(&fx, "default", MIB);
	/* The first reader of events makes the master record them. */
	all = connect_as(MC_ROLES_ALL, "");
	assert_int_equal(events(all, ""), 0);
	mcp_client_close(all);
	assert_int_equal(tx_put(&fx, "alice", "a1", 1000, 0), 0);
	assert_int_equal(tx_put(&fx, "alice", "a2", 1000, 0), 0);
	assert_int_equal(tx_put(&fx, "bob", "b1", 1000, 0), 0);
	assert_int_equal(tx_put(&fx, "", "d1", 1000, 0), 0);
}

static void an_identity_without_a_tenant_sees_all(void **state)
{
	struct mcp_id task;
	struct mcp_client *c;

	pool_up();
	task = task_about("bob", "b1");
	c = connect_as(MC_ROLES_ALL, "");
	assert_int_equal(exists(c, "", "d1"), 1);
	assert_int_equal(exists(c, "alice", "a1"), 1);
	assert_int_equal(listed(c, "bob", 0), 1);
	assert_int_equal(tenants(c, ""), 3);
	assert_int_equal(tenants(c, "bob"), 1);
	assert_int_equal(tasks(c, task), 1);
	assert_int_equal(events(c, "alice"), 2);
	assert_int_equal(remove_match(c, "", MCP_REMOVE_FORCE | MCP_REMOVE_TENANTS), 4);
	mcp_client_close(c);
	server_down();
}

static void an_identity_of_a_tenant_sees_that_one_only(void **state)
{
	struct mcp_id of_bob, none = { 0, 0 };
	struct mcp_client *c;

	pool_up();
	of_bob = task_about("bob", "b1");
	c = connect_as(MC_ROLE_CLIENT, "alice");
	assert_int_equal(exists(c, "", "a1"), 1);
	assert_int_equal(exists(c, "alice", "a1"), 1);
	assert_int_equal(exists(c, "", "b1"), 0);
	assert_int_equal(exists(c, "", "d1"), 0);
	assert_int_equal(exists(c, "bob", "b1"), -EACCES);
	assert_int_equal(exists(c, "default", "d1"), -EACCES);
	for (uint32_t flags = 0; flags <= MCP_LIST_DIR; flags += MCP_LIST_DIR) {
		assert_int_equal(listed(c, "", flags), 2);
		assert_int_equal(listed(c, "bob", flags), -EACCES);
	}
	assert_int_equal(tenants(c, ""), 1);
	assert_int_equal(tenants(c, "alice"), 1);
	assert_int_equal(tenants(c, "bob"), -EACCES);
	assert_int_equal(tasks(c, none), 0);
	assert_int_equal(tasks(c, of_bob), -MC_ENOTASK);
	assert_int_equal(events(c, ""), 2);
	assert_int_equal(events(c, "bob"), -EACCES);
	assert_int_equal(remove_one(c, "bob", "b1"), -EACCES);
	assert_int_equal(remove_match(c, "bob", MCP_REMOVE_FORCE), -EACCES);
	assert_int_equal(remove_match(c, "", MCP_REMOVE_FORCE | MCP_REMOVE_TENANTS), -EACCES);
	assert_int_equal(remove_match(c, "", MCP_REMOVE_FORCE), 2);
	mcp_client_close(c);
	assert_int_equal(tx_stat(&fx, "bob", "b1", NULL), 0);
	assert_int_equal(tx_stat(&fx, "", "d1", NULL), 0);
	server_down();
}

static void the_own_tasks_are_listed(void **state)
{
	struct mcp_id task, none = { 0, 0 };
	struct mcp_client *c;

	pool_up();
	task = task_about("alice", "a1");
	c = connect_as(MC_ROLE_READER, "alice");
	assert_int_equal(tasks(c, none), 1);
	assert_int_equal(tasks(c, task), 1);
	mcp_client_close(c);
	server_down();
}

static void an_administrator_of_a_tenant_changes_nothing_of_all(void **state)
{
	struct mcp_quota quota = { .tenant = fx_bytes("alice"), .quota = 2 * MIB };
	struct mcp_name name = { .name = fx_bytes("seg-1") };
	struct mcp_task_create drain = { .type = MCP_TASK_DRAIN, .sources = mcp_seq(&name, 1) };
	struct mcp_task_create_reply drained;
	struct mcp_task_cancel_reply cancelled;
	struct mcp_task_cancel cancel = { { 0, 0 } };
	struct mcp_quota_reply effective;
	struct mcp_reply mem = { 0 };
	struct mcp_client *c;

	pool_up();
	cancel.id = task_about("bob", "b1");
	c = connect_as(MC_ROLE_ADMIN, "alice");
	assert_int_equal(call(c, MCP_QUOTA, &quota, &effective, &mem), -EACCES);
	assert_int_equal(call(c, MCP_TASK_CREATE, &drain, &drained, &mem), -EACCES);
	assert_int_equal(call(c, MCP_TASK_CANCEL, &cancel, &cancelled, &mem), -EACCES);
	mcp_client_close(c);
	assert_int_equal(tx_figures(&fx, "alice").requested, MIB);
	server_down();
}

static void a_reader_changes_nothing(void **state)
{
	struct mcp_put_item item = { .key = fx_bytes("new"), .size = 10 };
	struct mcp_put_start put = { .replicas = 1, .items = mcp_seq(&item, 1) };
	struct mcp_put_start_reply started;
	struct mcp_reply mem = { 0 };
	struct mcp_client *c;

	pool_up();
	c = connect_as(MC_ROLE_READER, "alice");
	assert_int_equal(exists(c, "", "a1"), 1);
	assert_int_equal(call(c, MCP_PUT_START, &put, &started, &mem), -EACCES);
	assert_int_equal(remove_one(c, "", "a1"), -EACCES);
	assert_int_equal(remove_match(c, "", MCP_REMOVE_FORCE), -EACCES);
	assert_int_equal(exists(c, "", "a1"), 1);
	mcp_client_close(c);
	server_down();
}

static void without_tenants_only_the_default_one_may_connect(void **state)
{
	struct mcp_client *c;

	server_up(NULL);
	c = connect_as(MC_ROLE_CLIENT, "alice");
	assert_int_equal(exists(c, "", "x"), -EACCES);
	mcp_client_close(c);
	c = connect_as(MC_ROLE_CLIENT, "default");
	assert_int_equal(exists(c, "", "x"), 0);
	/* As for peers without an identity, names of tenants have no meaning. */
	assert_int_equal(exists(c, "bob", "x"), 0);
	mcp_client_close(c);
	server_down();
}

static void a_peer_that_is_not_identified_is_refused(void **state)
{
	struct mcp_client_conf conf = {
		.addrs = "local:identity", .client = { 70, 2 }, .channel = MCP_CHANNEL_CONTROL, .software = "test",
	};
	struct mcp_client *c;

	server_up(NULL);
	identified = -EACCES;
	c = connect_as(MC_ROLES_ALL, "");
	assert_int_equal(exists(c, "", "x"), -EACCES);
	mcp_client_close(c);
	/* A client in the master's own process is not asked. */
	assert_int_equal(mcp_client_open(&conf, &c), 0);
	assert_int_equal(exists(c, "", "x"), 0);
	mcp_client_close(c);
	identified = 0;
	server_down();
}

/* Segments and sums that a peer sees; -1: an error. */
static int segments_seen(struct mcp_client *c, struct mcp_id id, uint64_t *ret_used)
{
	struct mcp_segments rq = { .segment = id };
	struct mcp_segments_reply reply;
	struct mcp_segment seg;
	struct mcp_reply mem = { 0 };
	struct mcp_iter it;
	int n = 0;

	*ret_used = 0;
	if (call(c, MCP_SEGMENTS, &rq, &reply, &mem) < 0)
		return -1;
	mcp_iter_init(&it, &reply.segments, &mcp_desc_segment);
	for (; mcp_iter_next(&it, &seg); n++)
		*ret_used += seg.used + seg.objects;
	mcp_reply_done(&mem);
	return n;
}

static struct mcp_stats_reply stats_seen(struct mcp_client *c)
{
	struct mcp_stats rq = { 0 };
	struct mcp_stats_reply reply;
	struct mcp_reply mem = { 0 };

	assert_int_equal(call(c, MCP_STATS, &rq, &reply, &mem), 0);
	mcp_reply_done(&mem);
	return reply;
}

static void sums_of_other_tenants_are_not_told(void **state)
{
	struct mcp_id all = { 0, 0 };
	struct mcm_segment *s;
	struct mcp_stats_reply st;
	struct mcp_client *c;
	uint64_t used;

	pool_up();
	s = fx.m->segments.at[fx.m->segments.live[0]];
	c = connect_as(MC_ROLE_READER, "");
	assert_int_equal(segments_seen(c, all, &used), 1);
	assert_true(used > 4);
	assert_int_equal(stats_seen(c).objects, 4);
	mcp_client_close(c);
	/* A segment of all tenants: its place is told, but not its sums. */
	c = connect_as(MC_ROLE_READER, "alice");
	assert_int_equal(segments_seen(c, all, &used), 1);
	assert_int_equal(used, 0);
	st = stats_seen(c);
	assert_int_equal(st.objects, 2);
	assert_int_equal(st.used, tx_figures(&fx, "alice").charged);
	assert_int_equal(st.capacity, 4 * MIB);
	assert_int_equal(st.clients + st.evictions + st.puts_refused + st.evictable, 0);
	/* One of another tenant. */
	mcm_store_relaxed(&s->tenant, 60000);
	assert_int_equal(segments_seen(c, all, &used), 0);
	assert_int_equal(segments_seen(c, s->id, &used), 0);
	st = stats_seen(c);
	assert_int_equal(st.capacity + st.segments + st.largest_put, 0);
	mcm_store_relaxed(&s->tenant, 0);
	mcp_client_close(c);
	/* A tenant that does not exist. */
	c = connect_as(MC_ROLE_READER, "unlisted");
	assert_int_equal(stats_seen(c).objects, 0);
	mcp_client_close(c);
	server_down();
}

static void assert_audited(uint16_t type, int result)
{
	assert_int_equal(audited.type, type);
	assert_int_equal(audited.result, result);
	memset(&audited, 0, sizeof(audited));
}

static void refusals_and_calls_of_administrators_are_recorded(void **state)
{
	struct mcp_quota quota = { .tenant = fx_bytes("alice"), .quota = 2 * MIB };
	struct mcp_quota_reply effective;
	struct mcp_reply mem = { 0 };
	struct mcp_client *c;

	pool_up();
	memset(&audited, 0, sizeof(audited));
	c = connect_as(MC_ROLE_READER, "");
	assert_int_equal(exists(c, "alice", "a1"), 1);
	assert_int_equal(audited.n, 0);
	assert_int_equal(remove_one(c, "alice", "a1"), -EACCES);
	assert_int_equal(audited.roles, MC_ROLE_READER);
	assert_audited(MCP_REMOVE, -EACCES);
	mcp_client_close(c);
	/* Refused by the handler, not by the role. */
	c = connect_as(MC_ROLE_ADMIN, "alice");
	assert_int_equal(exists(c, "bob", "b1"), -EACCES);
	assert_audited(MCP_EXIST, -EACCES);
	mcp_client_close(c);
	c = connect_as(MC_ROLE_ADMIN, "");
	assert_int_equal(call(c, MCP_QUOTA, &quota, &effective, &mem), 0);
	mcp_reply_done(&mem);
	assert_audited(MCP_QUOTA, 0);
	mcp_client_close(c);
	identified = -EACCES;
	c = connect_as(MC_ROLE_ADMIN, "");
	assert_int_equal(exists(c, "", "x"), -EACCES);
	identified = 0;
	assert_audited(MCP_HELLO, -EACCES);
	mcp_client_close(c);
	server_down();
}

/* ---- nodes of several tenants ------------------------------------------------------------------- */

#define ENDPOINT "10.0.0.1:4000"

static struct mcp_id id_of(uint64_t n)
{
	return (struct mcp_id){ 7, n };
}

static struct mc_principal node_of(const char *tenant, const char *name)
{
	struct mc_principal p = { .source = MC_PRINCIPAL_CREDENTIAL, .roles = MC_ROLE_NODE, .serial = 1, .secret = 1 };

	strcpy(p.tenant, tenant);
	strcpy(p.name, name);
	return p;
}

/* Client @client, a node called @node, mounts segment @id of medium @medium. */
static int mount_as(const char *tenant, const char *node, uint64_t client, uint64_t id, uint64_t epoch, uint8_t medium,
		    const char *name, const char *endpoint)
{
	const struct mc_principal peer = node_of(tenant, node);
	const struct mcp_mount rq = {
		.segment = id_of(id), .client = id_of(client), .epoch = epoch, .size = MIB, .medium = medium,
		.base = medium ? 0 : 0x10000 + (id << 40), .name = fx_bytes(name), .endpoint = fx_bytes(endpoint),
		.protocol = fx_bytes("tcp"),
	};
	struct mcp_mount_reply reply;

	return mcm_mount(fx.m, rq.client, &peer, &rq, &reply);
}

static int ticket_for(const char *tenant, const char *endpoint, char *ret)
{
	const struct mc_principal peer = node_of(tenant, "reader");
	struct mcm_node_identity node = { .name = "" };
	int r = mcm_mount_node(fx.m, fx_bytes(endpoint), &peer, &node);

	strcpy(ret, node.name);
	return r;
}

static bool known(uint64_t id)
{
	return mcm_segments_find(&fx.m->segments, id_of(id));
}

/* Client 1 is alice's node, with memory that has an object, at ENDPOINT; client 2 is bob's, elsewhere. */
static void nodes_up(void)
{
	struct mcm_segment *s;
	uint16_t alice;

	fx_up(&fx, 0, 0, tx_tune);
	tx_quota(&fx, "alice", MIB);
	tx_quota(&fx, "bob", MIB);
	fx.m->security = (struct mcm_security *)&fx;	/* it is only compared with NULL */
	assert_int_equal(mount_as("alice", "a", 1, 1, 10, MCP_MEDIUM_MEMORY, ENDPOINT, ENDPOINT), 0);
	s = mcm_segments_find(&fx.m->segments, id_of(1));
	/* Puts of the fixture are as without security. */
	alice = mcm_load_relaxed(&s->tenant);
	mcm_store_relaxed(&s->tenant, 0);
	assert_int_equal(tx_put(&fx, "alice", "a1", 1000, 0), 0);
	assert_int_equal(mcm_load_relaxed(&s->objects), 1);
	mcm_store_relaxed(&s->tenant, alice);
	(void)fx_session(&fx, 2);
	assert_int_equal(mount_as("bob", "b", 2, 2, 10, MCP_MEDIUM_MEMORY, "10.0.0.2:1", "10.0.0.2:1"), 0);
}

static void nodes_down(void)
{
	fx.m->security = NULL;
	fx_down(&fx);
}

static void a_node_ends_no_objects_of_another_tenant(void **state)
{
	nodes_up();
	(void)fx_session(&fx, 3);
	assert_int_equal(mount_as("alice", "other", 3, 4, 10, MCP_MEDIUM_MEMORY, "x", ENDPOINT), -MC_ESEGMENT_EXISTS);
	fx_session_end(&fx, fx.s);
	/* The id of the segment with the epoch, and with another one, which would be other memory. */
	assert_int_equal(mount_as("bob", "b", 2, 1, 10, MCP_MEDIUM_MEMORY, "x", "10.0.0.2:1"), -EACCES);
	assert_int_equal(mount_as("bob", "b", 2, 1, 11, MCP_MEDIUM_MEMORY, "x", "10.0.0.2:1"), -EACCES);
	/* Name and address of the segment; one of the two. */
	assert_int_equal(mount_as("bob", "b", 2, 3, 10, MCP_MEDIUM_MEMORY, ENDPOINT, ENDPOINT), -MC_ESEGMENT_EXISTS);
	assert_int_equal(mount_as("bob", "b", 2, 3, 10, MCP_MEDIUM_MEMORY, ENDPOINT, "other:1"), -MC_ESEGMENT_EXISTS);
	assert_int_equal(mount_as("bob", "b", 2, 3, 10, MCP_MEDIUM_MEMORY, "x", ENDPOINT), -MC_ESEGMENT_EXISTS);
	assert_int_equal(tx_stat(&fx, "alice", "a1", NULL), 0);
	/* A node of the tenant with another name: it may work there, but it has not replaced the first one. */
	assert_int_equal(mount_as("alice", "other", 3, 4, 10, MCP_MEDIUM_MEMORY, ENDPOINT, ENDPOINT), 0);
	assert_true(known(1));
	/* The first one's successor: the memory of the killed process is gone, as without security. */
	(void)fx_session(&fx, 4);
	assert_int_equal(mcm_unmount(fx.m, id_of(3), id_of(4), &(uint64_t){ 0 }), 0);
	assert_int_equal(mount_as("alice", "a", 4, 5, 10, MCP_MEDIUM_MEMORY, ENDPOINT, ENDPOINT), 0);
	assert_false(known(1));
	fx.s = fx_session(&fx, 1);
	nodes_down();
}

static void a_node_keeps_its_address(void **state)
{
	struct mcm_session *second;
	char name[MC_PRINCIPAL_NAME_MAX + 1];

	nodes_up();
	assert_int_equal(ticket_for("alice", ENDPOINT, name), 0);
	assert_string_equal(name, "a");
	assert_int_equal(ticket_for("bob", ENDPOINT, name), -MC_ENOSEGMENT);
	/* Of the same tenant, under another name. */
	second = fx_session(&fx, 3);
	assert_int_equal(mount_as("alice", "other", 3, 3, 10, MCP_MEDIUM_MEMORY, "x", ENDPOINT), -MC_ESEGMENT_EXISTS);
	/* Another process of the node's credential, or a second segment. */
	assert_int_equal(mount_as("alice", "a", 3, 3, 10, MCP_MEDIUM_MEMORY, "x", ENDPOINT), 0);
	assert_int_equal(mount_as("alice", "a", 1, 6, 10, MCP_MEDIUM_MEMORY, "y", ENDPOINT), 0);
	fx_session_end(&fx, second);
	fx_session_end(&fx, fx.s);
	/* While it is away the address may go to another node: tickets are for the one that is connected. */
	second = fx_session(&fx, 5);
	assert_int_equal(mount_as("alice", "other", 5, 4, 10, MCP_MEDIUM_MEMORY, "z", ENDPOINT), 0);
	assert_int_equal(ticket_for("alice", ENDPOINT, name), 0);
	assert_string_equal(name, "other");
	assert_int_equal(ticket_for("", ENDPOINT, name), 0);
	assert_string_equal(name, "other");
	/* Both are away: the master cannot tell whose the address is. */
	fx_session_end(&fx, second);
	assert_int_equal(ticket_for("alice", ENDPOINT, name), -EACCES);
	assert_int_equal(ticket_for("", ENDPOINT, name), -EACCES);
	fx.s = fx_session(&fx, 1);
	assert_int_equal(ticket_for("", ENDPOINT, name), 0);
	assert_string_equal(name, "a");
	nodes_down();
}

static void without_security_nodes_have_no_names(void **state)
{
	nodes_up();
	fx.m->security = NULL;
	(void)fx_session(&fx, 3);
	assert_int_equal(mount_as("bob", "other", 3, 3, 10, MCP_MEDIUM_MEMORY, "x", ENDPOINT), 0);
	fx_session_end(&fx, fx.s);
	assert_int_equal(mount_as("bob", "other", 3, 4, 10, MCP_MEDIUM_MEMORY, ENDPOINT, ENDPOINT), 0);
	assert_false(known(1));
	fx.s = fx_session(&fx, 1);
	nodes_down();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_identity_without_a_tenant_sees_all),
		cmocka_unit_test(an_identity_of_a_tenant_sees_that_one_only),
		cmocka_unit_test(the_own_tasks_are_listed),
		cmocka_unit_test(an_administrator_of_a_tenant_changes_nothing_of_all),
		cmocka_unit_test(a_reader_changes_nothing),
		cmocka_unit_test(without_tenants_only_the_default_one_may_connect),
		cmocka_unit_test(a_peer_that_is_not_identified_is_refused),
		cmocka_unit_test(sums_of_other_tenants_are_not_told),
		cmocka_unit_test(refusals_and_calls_of_administrators_are_recorded),
		cmocka_unit_test(a_node_ends_no_objects_of_another_tenant),
		cmocka_unit_test(a_node_keeps_its_address),
		cmocka_unit_test(without_security_nodes_have_no_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
