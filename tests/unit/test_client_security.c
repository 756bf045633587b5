/* SPDX-License-Identifier: Apache-2.0
 * test_client_security.c - which tickets the data port of a process with a credential admits, and until when. */
#include <config.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "client/session/security.h"
#include "common/err.h"
#include "common/security/tls.h"
#include "common/sys/clock.h"
#include "engine/mce.h"
#include "tests/lib/tls_net.h"
#include "tests/lib/transfer.h"

#define LEN 4096u

static const uint8_t node_key[MC_KEY_LEN] = "the key of a node";
static char dir[] = "/tmp/test_client_security.XXXXXX", path[64];
static char memory[LEN], buf[LEN];

/* ---- the node ---- */

static struct mcs_security *security;
static struct mce_engine *node;
static struct mce_mr *mr;

/* Replace the file of the node's credential. */
static void node_credential(const char *tenant, uint64_t serial)
{
	struct mc_credential c;

	tls_net_make(&c, MC_ROLE_NODE, tenant, "node", UINT64_MAX);
	tls_net_serial(&c, serial);
	c.has_node_key = true;
	memcpy(c.node_key, node_key, sizeof(node_key));
	(void)unlink(path);
	assert_int_equal(mc_credential_save(&c, path), 0);
}

static void node_open(const char *tenant)
{
	const struct mce_mr_attr attr = { .base = memory, .len = LEN, .access = MCE_ACCESS_READ, .fd = -1 };
	struct mce_conf conf = { .force_tcp = true, .progress_timeout_ms = 1000 };

	node_credential(tenant, 1);
	assert_int_equal(mcs_security_open(path, NULL, &security), 0);
	conf.net = mcs_security_data_net(security);
	conf.peer_admitted = mcs_security_admits;
	conf.peer_arg = security;
	assert_int_equal(mce_engine_open(&conf, &node), 0);
	assert_int_equal(mce_mr_register(node, &attr, &mr), 0);
}

static void node_close(void)
{
	mce_engine_close(node);
	mcs_security_close(security);
}

/* ---- a client ---- */

static int present(void *arg, const char *addr, uint64_t deadline, struct mc_credential *ret)
{
	*ret = *(const struct mc_credential *)arg;
	return 0;
}

/* Its engine listens, too, and no peer connects. */
static int admit_none(void *arg, const char *text, size_t len, uint8_t key[MC_KEY_LEN], struct mc_principal *ret)
{
	return -EACCES;
}

struct client {
	struct mc_credential ticket;
	struct mc_tls *tls;
	struct mce_engine *e;
	struct mce_peer *peer;
};

static void client_open(struct client *c, const char *tenant, uint64_t serial)
{
	struct mc_tls_conf tls = { .present = present, .identify = admit_none, .arg = &c->ticket, .service = "test" };
	struct mce_conf conf = { .force_tcp = true, .conns = 1 };	/* none is made later */

	memset(c, 0, sizeof(*c));
	c->ticket.id = (struct mc_identity){
		.ticket = true, .secret = 1, .role = MC_ROLE_CLIENT, .serial = serial, .expires_s = UINT64_MAX,
		.cluster = "test", .node = "node", .name = "client",
	};
	strcpy(c->ticket.id.tenant, tenant);
	assert_true(mc_identity_format(&c->ticket.id, c->ticket.text) > 0);
	mc_key_ticket(node_key, c->ticket.text, c->ticket.key);
	assert_int_equal(mc_tls_new(&tls, &c->tls), 0);
	conf.net = mc_tls_net(c->tls);
	assert_int_equal(mce_engine_open(&conf, &c->e), 0);
	assert_int_equal(mce_peer_get(c->e, mce_engine_endpoint(node), &c->peer), 0);
}

static int client_read(struct client *c)
{
	struct iovec iov = { buf, LEN };
	struct mce_req req = {
		.op = MCE_READ, .peer = c->peer, .addr = mce_mr_base(mr), .rkey = mce_mr_rkey(mr), .iov = &iov,
		.iovcnt = 1,
	};
	int r;

	memset(buf, 0, LEN);
	memset(memory, 'm', LEN);
	r = mce_transfer(c->e, &req, mc_deadline_ms(20000));
	assert_int_equal(memcmp(buf, memory, LEN) == 0, r == 0);
	return r;
}

static void client_close(struct client *c)
{
	mce_peer_put(c->peer);
	mce_engine_close(c->e);
	mc_tls_free(c->tls);
}

/* ---- tests ---- */

static void a_node_serves_the_tenant_of_its_credential(void **state)
{
	static const struct {
		const char *own, *tenant;
		bool served;
	} row[] = {
		{ "alice", "alice", true }, { "alice", "*", true }, { "alice", "bob", false },
		{ "alice", "default", false }, { "alice", "alic", false }, { "default", "default", true },
		{ "default", "alice", false }, { "*", "default", true }, { "*", "*", true }, { "*", "alice", false },
	};
	struct client c;

	for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		node_open(row[i].own);
		client_open(&c, row[i].tenant, 7);
		assert_int_equal(client_read(&c) == 0, row[i].served);
		client_close(&c);
		node_close();
	}
}

static struct mc_principal principal(const char *tenant, uint64_t serial, uint64_t expires_s)
{
	struct mc_principal p = { .roles = MC_ROLE_CLIENT, .serial = serial, .expires_s = expires_s };

	strcpy(p.tenant, tenant);
	return p;
}

static void a_peer_is_admitted_until_it_expires_or_is_revoked(void **state)
{
	static const uint64_t revoked[] = { 3, 7, 9 };
	uint64_t now_s = mc_wall_ms() / 1000;
	struct mc_principal p = principal("alice", 7, now_s + 60), late = principal("alice", 8, now_s);

	node_open("alice");
	assert_true(mcs_security_admits(security, &p));
	assert_false(mcs_security_admits(security, &late));
	assert_int_equal(mcs_security_revoke(security, revoked, 3), 0);
	assert_false(mcs_security_admits(security, &p));
	p.serial = 8;
	assert_true(mcs_security_admits(security, &p));
	assert_int_equal(mcs_security_revoke(security, NULL, 0), 0);
	p.serial = 7;
	assert_true(mcs_security_admits(security, &p));
	node_close();
}

/* The node reads its credential again when it connects to a master. */
static void another_tenant_of_the_node_ends_connections(void **state)
{
	struct client alice, bob;
	struct mce_conf conf = { .net = tls_net(), .force_tcp = true };
	struct mce_engine *master;
	struct mc_stream s;

	node_open("alice");
	client_open(&alice, "alice", 7);
	client_open(&bob, "bob", 8);
	assert_int_equal(client_read(&alice), 0);
	assert_true(client_read(&bob) < 0);
	node_credential("bob", 2);
	assert_int_equal(mce_engine_open(&conf, &master), 0);
	assert_int_equal(mc_net_connect(mcs_security_net(security), mce_engine_endpoint(master), mc_deadline_ms(20000),
					&s), 0);
	mc_stream_close(&s);
	/* At the next tick, and then not again. */
	for (uint64_t until = mc_deadline_ms(20000); client_read(&alice) == 0; usleep(10000))
		assert_true(mc_now_ns() < until);
	assert_int_equal(client_read(&bob), 0);
	assert_true(client_read(&alice) < 0);
	client_close(&alice);
	client_close(&bob);
	mce_engine_close(master);
	node_close();
}

/* With "control" one net sends plain bytes, and control connections have another one. */
static void control_connections_are_always_encrypted(void **state)
{
	node_credential("alice", 1);
	assert_int_equal(mcs_security_open(path, "all", &security), 0);
	assert_ptr_equal(mcs_security_control_net(security), mcs_security_data_net(security));
	mcs_security_close(security);
	assert_int_equal(mcs_security_open(path, "control", &security), 0);
	assert_ptr_not_equal(mcs_security_control_net(security), mcs_security_data_net(security));
	mcs_security_close(security);
	assert_null(mcs_security_control_net(NULL));
}

static int setup(void **state)
{
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/node", dir);
	return 0;
}

static int teardown(void **state)
{
	(void)unlink(path);
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_node_serves_the_tenant_of_its_credential),
		cmocka_unit_test(a_peer_is_admitted_until_it_expires_or_is_revoked),
		cmocka_unit_test(another_tenant_of_the_node_ends_connections),
		cmocka_unit_test(control_connections_are_always_encrypted),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
