/* SPDX-License-Identifier: Apache-2.0
 * test_master_sim.c - two masters of a cluster and the session of a client as simulated processes: one thread, virtual
 * time, connections and a store of leases in memory. */
#include <config.h>

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/session/session.h"
#include "common/err.h"
#include "common/sys/clock.h"
#include "common/sys/world.h"
#include "master/ha/feeder.h"
#include "master/ha/ha.h"
#include "master/master.h"
#include "proto/codec.h"
#include "tests/sim/sim.h"
#include "tests/sim/sim_net.h"
#include "tests/unit/fake_store.h"

#define SECOND MC_NS_PER_SEC
#define US 1000u
#define STEP_MS 10		/* between two looks at the store, as mcm_ha_await() */
#define CALL_MS 200		/* between two puts of the client */
#define TTL_S 5

/* A master of the cluster. */
struct node {
	char dir[64], store[16];
	const char *addrs[2];
	struct mc_options *options;
	struct mcm_conf conf;
	bool stop, done;
	unsigned terms, restarts;
};

struct cluster {
	struct sim *sim;
	struct sim_net *net;
	struct fake_store *store;
	struct node node[2];
	char base[64], addrs[64];
	uint64_t seconds;	/* how long the client puts */
	unsigned puts, present;
	unsigned switch_s;	/* when the leader of the beginning ends; 0: never */
};

static struct cluster cl;

/* ---- masters ------------------------------------------------------------------------------------- */

static void term_ended(void *arg, enum mcm_ha_end end, const char *why)
{
	struct node *n = arg;

	(void)why;
	if (end == MCM_HA_RESTART)
		n->restarts++;
	n->stop = true;
}

static void *master_main(void *arg)
{
	struct node *n = arg;
	struct mcm_listen where = { .addrs = n->addrs };
	const struct mcm_ha_conf conf = { .conf = &n->conf, .where = &where, .end = term_ended, .arg = n };
	struct mcm *m = NULL;
	struct mcm_ha *ha;
	int r = 0;

	assert_int_equal(mcm_ha_new(&conf, &ha), 0);
	assert_int_equal(mcm_ha_start(ha), 0);
	while (!n->stop && r == 0) {
		r = mcm_ha_step(ha, &where);
		if (r == 0)
			mc_sleep_ms(STEP_MS);
	}
	if (r == 1) {
		assert_int_equal(mcm_start(&n->conf, &where, &m), 0);
		n->terms++;
	}
	while (!n->stop)
		mc_sleep_ms(STEP_MS);
	mcm_stop(m);
	mcm_ha_free(ha);
	n->done = true;
	return NULL;
}

/* ---- the client ---------------------------------------------------------------------------------- */

static struct mcp_bytes key_of(unsigned i, char buf[16])
{
	return mcp_bytes(buf, (size_t)snprintf(buf, 16, "key-%u", i));
}

/* Put an object without bytes. */
static int put(struct mcs_session *s, unsigned i)
{
	char buf[16];
	struct mcp_put_item item = { .key = key_of(i, buf) };
	const struct mcp_put_start rq = { .flags = MCP_PUT_COMMIT, .replicas = 1, .items = mcp_seq(&item, 1) };
	struct mcp_put_start_reply reply;
	struct mcp_put_grant grant = { .status = 1 };
	struct mcp_reply mem = { 0 };
	struct mcp_iter it;
	int r = mcs_call(s, MCP_PUT_START, &rq, &reply, &mem, mc_deadline_ms(20000));

	if (r < 0)
		return r;
	mcp_iter_init(&it, &reply.grants, &mcp_desc_put_grant);
	assert_true(mcp_iter_next(&it, &grant));
	mcp_reply_done(&mem);
	return mc_err_from_wire(grant.status);
}

static bool is_present(struct mcs_session *s, unsigned i)
{
	char buf[16];
	struct mcp_key k = { key_of(i, buf) };
	const struct mcp_get rq = { .keys = mcp_seq(&k, 1) };
	struct mcp_get_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_object o;
	struct mcp_iter it;

	assert_int_equal(mcs_call(s, MCP_GET, &rq, &reply, &mem, mc_deadline_ms(20000)), 0);
	mcp_iter_init(&it, &reply.objects, &mcp_desc_object);
	assert_true(mcp_iter_next(&it, &o));
	mcp_reply_done(&mem);
	return mc_err_from_wire(o.status) == 0;
}

static uint64_t no_fence(void *arg)
{
	(void)arg;
	return 0;
}

static void *client_main(void *arg)
{
	const struct mcs_session_conf conf = {
		.addrs = cl.addrs, .name = "client:1", .client = { 5, 6 }, .engine = { 50, 60 },
		.largest_fence = no_fence, .grace_ms = 20000,
	};
	uint64_t end = mc_now_ns() + cl.seconds * SECOND, at = mc_now_ns() + cl.switch_s * SECOND;
	struct mcs_session *s;
	bool switched = !cl.switch_s;
	int r;

	(void)arg;
	assert_int_equal(mcs_session_open(&conf, &s), 0);
	assert_int_equal(mcs_session_connect(s, mc_deadline_ms(20000)), 0);
	while (mc_now_ns() < end) {
		r = put(s, cl.puts);
		/* A repeated put may find the object of its first attempt. */
		if (r != 0 && r != -MC_EEXISTS)
			fail_msg("put %u: %s", cl.puts, mc_err_detail(r));
		cl.puts++;
		if (!switched && mc_now_ns() >= at) {
			cl.node[!cl.node[0].terms].stop = true;
			switched = true;
		}
		mc_sleep_ms(CALL_MS);
	}
	for (unsigned i = 0; i < cl.puts; i++)
		cl.present += is_present(s, i);
	mcs_session_close(s);
	cl.node[0].stop = cl.node[1].stop = true;
	return NULL;
}

/* ---- the cluster --------------------------------------------------------------------------------- */

static void node_init(struct node *n, const char *name, const char *addr)
{
	memset(n, 0, sizeof(*n));
	snprintf(n->dir, sizeof(n->dir), "%s/%s", cl.base, name);
	snprintf(n->store, sizeof(n->store), "s/%s", name);
	n->addrs[0] = addr;
	assert_int_equal(mcm_conf_defaults(&n->conf, &n->options), 0);
	n->conf.enable_ha = true;
	n->conf.enable_metric_reporting = false;
	n->conf.rpc_thread_num = 1;
	n->conf.cluster_id = (char *)"c";
	n->conf.journal_dir = n->dir;
	n->conf.ha_backend_type = (char *)"fake";
	n->conf.ha_backend_connstring = n->store;
	n->conf.ha_members = cl.addrs;
	n->conf.ha_leader_lease_ttl_sec = TTL_S;
}

static void remove_dir(const char *dir)
{
	char path[512];
	struct dirent *e;
	DIR *d = opendir(dir);

	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			unlink(path);
	}
	if (d)
		closedir(d);
	rmdir(dir);
}

/* Run the cluster for @seconds of puts.  The trace. */
static uint64_t run(uint64_t seed, uint64_t seconds, unsigned switch_s, uint64_t *ret_ns)
{
	static const char *const addr[2] = { "10.0.0.1:1", "10.0.0.2:1" };
	uint64_t began = mc_now_ns(), trace;

	memset(&cl, 0, sizeof(cl));
	strcpy(cl.base, "/tmp/mc-sim.XXXXXX");
	assert_non_null(mkdtemp(cl.base));
	snprintf(cl.addrs, sizeof(cl.addrs), "%s,%s", addr[0], addr[1]);
	cl.seconds = seconds;
	cl.switch_s = switch_s;
	cl.store = fake_store_new("s");
	cl.sim = sim_new(seed);
	cl.net = sim_net_new(cl.sim, 50 * US, 300 * US);
	for (unsigned i = 0; i < 2; i++) {
		node_init(&cl.node[i], i ? "b" : "a", addr[i]);
		sim_thread(sim_process(cl.sim, i ? "b" : "a", sim_net_maker(cl.net)), "main", master_main, &cl.node[i]);
	}
	sim_thread(sim_process(cl.sim, "client", sim_net_maker(cl.net)), "main", client_main, NULL);
	sim_run(cl.sim, (seconds + 120) * SECOND);
	assert_true(cl.node[0].done && cl.node[1].done);
	trace = sim_trace(cl.sim);
	*ret_ns = sim_now(cl.sim);
	printf("seed %llu: %.1f s of virtual time in %.3f s, %llu switches, %u puts, terms %u and %u\n",
	       (unsigned long long)seed, (double)*ret_ns / 1e9, (double)(mc_now_ns() - began) / 1e9,
	       (unsigned long long)sim_switches(cl.sim), cl.puts, cl.node[0].terms, cl.node[1].terms);
	sim_net_free(cl.net);
	sim_free(cl.sim);
	fake_store_free(cl.store);
	for (unsigned i = 0; i < 2; i++) {
		mc_options_free(cl.node[i].options);
		remove_dir(cl.node[i].dir);
	}
	rmdir(cl.base);
	return trace;
}

static void a_minute_of_leases_passes_in_a_moment(void **state)
{
	uint64_t ns;

	(void)state;
	run(1, 60, 0, &ns);
	assert_true(ns >= 60 * SECOND);
	assert_int_equal(cl.node[0].terms + cl.node[1].terms, 1);
	assert_true(cl.puts >= 200);
	assert_int_equal(cl.present, cl.puts);
}

static void the_same_seed_gives_the_same_trace(void **state)
{
	uint64_t ns, other, first = run(2, 10, 0, &ns);

	(void)state;
	assert_int_equal(run(2, 10, 0, &other), first);
	assert_int_equal(other, ns);
	assert_int_not_equal(run(3, 10, 0, &other), first);
}

static void a_standby_takes_over_with_every_acknowledged_put(void **state)
{
	uint64_t ns;

	(void)state;
	for (uint64_t seed = 10; seed < 14; seed++) {
		run(seed, 20, 8, &ns);
		assert_int_equal(cl.node[0].terms + cl.node[1].terms, 2);
		assert_int_equal(cl.node[0].restarts + cl.node[1].restarts, 0);
		assert_int_equal(cl.present, cl.puts);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_minute_of_leases_passes_in_a_moment),
		cmocka_unit_test(the_same_seed_gives_the_same_trace),
		cmocka_unit_test(a_standby_takes_over_with_every_acknowledged_put),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
