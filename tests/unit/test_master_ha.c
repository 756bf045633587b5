/* SPDX-License-Identifier: Apache-2.0
 * test_master_ha.c - masters of one cluster in one process, with a store in memory: which of them leads, when it is
 * replaced, and how its term ends.  Each is complete, with its threads and sockets, but only the test moves the clock,
 * so a lease ends when the test says so. */
#include <config.h>

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/fault.h"
#include "master/ha/feeder.h"
#include "master/ha/ha.h"
#include "master/ha/identity.h"
#include "master/journal/journal_i.h"
#include "proto/rpc_client.h"
#include "tests/unit/fake_store.h"
#include "tests/unit/test_master_fixture.h"

#define LEADER_KEY "mooncake-store/c/master_view"
#define POLL_MS 100		/* ha.c looks at the store so often */
#define NODES 3

/* A master of the cluster. */
struct node {
	char name[2], dir[64], addr[64], store[16];
	const char *addrs[2];
	struct mc_options *options;
	struct mcm_conf conf;
	struct mcm_listen where;
	struct mcm_ha *ha;
	struct mcm *m;
	unsigned stops, restarts;	/* atomic: the ends of its term */
};

static char base[] = "/tmp/mc-ha.XXXXXX", members[256];
static struct fake_store *store;
static struct node a, b, c;

/* ---- masters ------------------------------------------------------------------------------------- */

static void term_ended(void *arg, enum mcm_ha_end end, const char *why)
{
	struct node *n = arg;

	(void)why;
	__atomic_add_fetch(end == MCM_HA_STOP ? &n->stops : &n->restarts, 1, __ATOMIC_RELEASE);
}

static unsigned restarts(const struct node *n)
{
	return __atomic_load_n(&n->restarts, __ATOMIC_ACQUIRE);
}

static void pass(uint64_t ms)
{
	mc_clock_advance(ms * MC_NS_PER_MS);
}

#define wait_until(condition) do { \
	unsigned waited = 0; \
	while (!(condition)) { \
		assert_true(waited++ < 30000); \
		usleep(1000); \
	} \
} while (0)

/* A new life of the master: the same address and directory. */
static void starts(struct node *n)
{
	const struct mcm_ha_conf conf = { .conf = &n->conf, .where = &n->where, .end = term_ended, .arg = n };

	n->stops = n->restarts = 0;
	n->where.lead = NULL;
	assert_int_equal(mcm_ha_new(&conf, &n->ha), 0);
	assert_int_equal(mcm_ha_start(n->ha), 0);
}

/* One look at the store.  True: the master leads, and serves. */
static bool leads(struct node *n)
{
	int r;

	pass(POLL_MS);
	r = mcm_ha_step(n->ha, &n->where);
	assert_in_range(r, 0, 1);
	if (r == 1)
		assert_int_equal(mcm_start(&n->conf, &n->where, &n->m), 0);
	return r == 1;
}

/* The end of the process: nothing is left in it. */
static void ends(struct node *n)
{
	mcm_stop(n->m);
	n->m = NULL;
	mcm_ha_free(n->ha);
	n->ha = NULL;
}

static struct mcm_feeders *feeders(const struct node *n)
{
	return n->where.lead->feeders;
}

static void joins(struct node *leader, struct node *standby)
{
	unsigned n = mcm_feeders_in_sync(feeders(leader));

	assert_false(leads(standby));
	wait_until(mcm_feeders_in_sync(feeders(leader)) == n + 1);
	/* It learns from the store that it is a member. */
	assert_false(leads(standby));
}

/* A leads, with standby B in sync. */
static void pair_up(void)
{
	starts(&a);
	assert_true(leads(&a));
	starts(&b);
	joins(&a, &b);
}

/* ---- clients ------------------------------------------------------------------------------------- */

static struct mcp_client *client_of(const struct node *n)
{
	const struct mcp_id id = { 5, 6 };
	const struct mcp_client_conf conf = {
		.addrs = n->addr, .client = id, .channel = MCP_CHANNEL_CONTROL, .software = "test",
	};
	const struct mcp_register rq = { .client = id, .name = fx_bytes("me:1"), .engine = { 50, 60 } };
	struct mcp_register_reply reply;
	struct mcp_client *cl;

	assert_int_equal(mcp_client_open(&conf, &cl), 0);
	assert_int_equal(mcp_call(cl, MCP_REGISTER, &rq, &reply, NULL, MC_NEVER), 0);
	return cl;
}

/* An acknowledged put of an object without bytes. */
static void puts_object(struct node *n, const char *key)
{
	struct mcp_put_item item = { .key = fx_bytes(key) };
	const struct mcp_put_start rq = { .flags = MCP_PUT_COMMIT, .replicas = 1, .items = mcp_seq(&item, 1) };
	struct mcp_client *cl = client_of(n);
	struct mcp_put_start_reply reply;
	struct mcp_put_grant grant;
	struct mcp_reply mem = { 0 };
	struct mcp_iter it;

	assert_int_equal(mcp_call(cl, MCP_PUT_START, &rq, &reply, &mem, MC_NEVER), 0);
	mcp_iter_init(&it, &reply.grants, &mcp_desc_put_grant);
	assert_true(mcp_iter_next(&it, &grant));
	assert_int_equal(grant.status, 0);
	mcp_reply_done(&mem);
	mcp_client_close(cl);
}

static bool has_object(struct node *n, const char *key)
{
	struct mcp_key k = { fx_bytes(key) };
	const struct mcp_get rq = { .keys = mcp_seq(&k, 1) };
	struct mcp_client *cl = client_of(n);
	struct mcp_get_reply reply;
	struct mcp_object o;
	struct mcp_reply mem = { 0 };
	struct mcp_iter it;
	int r;

	assert_int_equal(mcp_call(cl, MCP_GET, &rq, &reply, &mem, MC_NEVER), 0);
	mcp_iter_init(&it, &reply.objects, &mcp_desc_object);
	assert_true(mcp_iter_next(&it, &o));
	r = mc_err_from_wire(o.status);
	assert_true(r == 0 || r == -MC_ENOOBJECT);
	mcp_reply_done(&mem);
	mcp_client_close(cl);
	return r == 0;
}

/* ---- the fixture --------------------------------------------------------------------------------- */

static void node_init(struct node *n, const char *name)
{
	unsigned pid = (unsigned)getpid();

	memset(n, 0, sizeof(*n));
	strcpy(n->name, name);
	snprintf(n->dir, sizeof(n->dir), "%s/%s", base, name);
	/* An address of this process alone. */
	snprintf(n->addr, sizeof(n->addr), "127.%u.%u.%u:%d", 64 + (pid >> 16 & 63), pid >> 8 & 255, pid & 255,
		 7000 + *name);
	snprintf(n->store, sizeof(n->store), "s/%s", name);
	n->addrs[0] = n->addr;
	n->where.addrs = n->addrs;
	assert_int_equal(mcm_conf_defaults(&n->conf, &n->options), 0);
	n->conf.enable_ha = true;
	n->conf.enable_metric_reporting = false;
	n->conf.rpc_thread_num = 1;
	n->conf.cluster_id = (char *)"c";
	n->conf.journal_dir = n->dir;
	n->conf.ha_backend_type = (char *)"fake";
	n->conf.ha_backend_connstring = n->store;
	n->conf.ha_members = members;
	n->conf.ha_leader_lease_ttl_sec = 60;
}

static int setup(void **state)
{
	struct node *const node[NODES] = { &a, &b, &c };
	static const char *const name[NODES] = { "a", "b", "c" };

	(void)state;
	mc_clock_fake(1000 * MC_NS_PER_SEC);
	strcpy(strrchr(base, '.') + 1, "XXXXXX");
	if (!mkdtemp(base))
		return -1;
	store = fake_store_new("s");
	*members = 0;
	for (unsigned i = 0; i < NODES; i++) {
		node_init(node[i], name[i]);
		snprintf(members + strlen(members), sizeof(members) - strlen(members), "%s%s", i ? "," : "",
			 node[i]->addr);
	}
	return 0;
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

static int teardown(void **state)
{
	struct node *const node[NODES] = { &a, &b, &c };

	(void)state;
	for (unsigned i = 0; i < NODES; i++) {
		ends(node[i]);
		mc_options_free(node[i]->options);
		remove_dir(node[i]->dir);
	}
	rmdir(base);
	fake_store_free(store);
	mc_clock_real();
	return 0;
}

/* ---- who leads ----------------------------------------------------------------------------------- */

static void the_first_master_of_a_new_cluster_leads_at_once(void **state)
{
	(void)state;
	starts(&a);
	assert_true(leads(&a));
	assert_int_equal(a.where.lead->term, 1);
	assert_true(mcm_feeders_lead(feeders(&a)));
	puts_object(&a, "k");
	assert_true(has_object(&a, "k"));
	assert_false(has_object(&a, "other"));
	/* It gives the lease back. */
	ends(&a);
	assert_false(fake_store_has(store, LEADER_KEY));
	assert_int_equal(restarts(&a) + a.stops, 0);
}

static void without_its_store_no_master_leads(void **state)
{
	(void)state;
	fake_store_cut(store, "a", true);
	starts(&a);
	for (unsigned i = 0; i < 5; i++)
		assert_false(leads(&a));
	fake_store_cut(store, "a", false);
	assert_true(leads(&a));
}

static void a_standby_takes_over_with_every_acknowledged_object(void **state)
{
	(void)state;
	starts(&a);
	assert_true(leads(&a));
	puts_object(&a, "before");
	starts(&b);
	joins(&a, &b);
	puts_object(&a, "after");
	puts_object(&a, "dir/");
	assert_false(leads(&b));
	ends(&a);
	assert_true(leads(&b));
	assert_int_equal(b.where.lead->term, 2);
	assert_int_equal(b.where.lead->silence_ms, 0);
	assert_true(has_object(&b, "before") && has_object(&b, "after") && has_object(&b, "dir/"));
	assert_false(has_object(&b, "other"));
	/* The last leader becomes its standby, and takes over in turn. */
	starts(&a);
	joins(&b, &a);
	puts_object(&b, "last");
	ends(&b);
	assert_true(leads(&a));
	assert_int_equal(a.where.lead->term, 3);
	assert_true(has_object(&a, "last") && has_object(&a, "before"));
}

static void a_standby_of_an_empty_pool_takes_over(void **state)
{
	(void)state;
	pair_up();
	ends(&a);
	assert_true(leads(&b));
	assert_false(has_object(&b, "k"));
	puts_object(&b, "k");
	assert_true(has_object(&b, "k"));
}

static void a_master_that_is_not_in_sync_never_leads(void **state)
{
	(void)state;
	starts(&a);
	assert_true(leads(&a));
	puts_object(&a, "k");
	ends(&a);
	/* It was not there, so it may lack objects: it waits for the other one, however long that takes. */
	starts(&b);
	for (unsigned i = 0; i < 20; i++) {
		pass(60000);
		assert_false(leads(&b));
	}
	starts(&a);
	assert_true(leads(&a));
	assert_true(has_object(&a, "k"));
	joins(&a, &b);
}

/* ---- the end of a term --------------------------------------------------------------------------- */

static void a_leader_whose_lease_ended_answers_nothing_and_starts_again(void **state)
{
	(void)state;
	/* The thread of the lease wakes four times in it. */
	a.conf.ha_leader_lease_ttl_sec = b.conf.ha_leader_lease_ttl_sec = 1;
	pair_up();
	puts_object(&a, "k");
	fake_store_cut(store, "a", true);
	assert_true(mcm_feeders_lead(feeders(&a)));
	pass(1000);
	assert_false(mcm_feeders_lead(feeders(&a)));
	wait_until(restarts(&a) == 1);
	/* The store knows that the lease has ended, too. */
	wait_until(leads(&b));
	assert_int_equal(b.where.lead->term, 2);
	assert_true(has_object(&b, "k"));
	assert_false(mcm_feeders_lead(feeders(&a)));
	/* Its term has ended already. */
	mcm_journal_lose(a.m, -EIO);
	assert_int_equal(restarts(&a), 1);
	fake_store_cut(store, "a", false);
	ends(&a);
	assert_int_equal(restarts(&a), 1);
	assert_int_equal(a.stops, 0);
	/* Its end leaves the lease of the next leader. */
	assert_true(fake_store_has(store, LEADER_KEY));
	starts(&a);
	joins(&b, &a);
}

static void a_leader_whose_process_ended_is_replaced_before_its_lease_ends(void **state)
{
	(void)state;
	pair_up();
	puts_object(&a, "k");
	/* A killed process gives no lease back. */
	fake_store_cut(store, "a", true);
	ends(&a);
	assert_true(fake_store_has(store, LEADER_KEY));
	/* The loop of the standby finds its connection closed; all this takes less than a second of 60. */
	for (unsigned i = 0; i < 30000 && !b.where.lead; i++) {
		assert_in_range(mcm_ha_step(b.ha, &b.where), 0, 1);
		usleep(1000);
	}
	assert_non_null(b.where.lead);
	assert_int_equal(b.where.lead->term, 2);
	assert_true(b.where.lead->silence_ms > 0);
	/* It waits for the end of its last promise. */
	assert_in_range(b.where.lead->serve_from, mc_now_ns(), mc_now_ns() + MCM_PROMISE_MS * MC_NS_PER_MS);
	assert_int_equal(mcm_start(&b.conf, &b.where, &b.m), 0);
	assert_true(has_object(&b, "k"));
}

/* The leader's next message to its standby is lost, with the connection. */
static void loses_its_connection(void)
{
	assert_int_equal(mc_fault_set("rpc.send=error:EIO@1"), 0);
	pass(30);
	wait_until(mc_fault_hits("rpc.send") > 0);
	assert_int_equal(mc_fault_set(NULL), 0);
}

/* The standby finds its connection closed, asks the store ten times, and does not lead.  While the clock stands still,
 * it asks for no other reason. */
static void does_not_replace(struct node *n)
{
	uint64_t calls = fake_store_calls(store);

	wait_until(mcm_ha_step(n->ha, &n->where) != 0 || fake_store_calls(store) >= calls + 20);
	assert_null(n->where.lead);
}

static void a_standby_that_lost_only_its_connection_replaces_no_leader(void **state)
{
	(void)state;
	pair_up();
	/* The leader cannot remove the standby from the members, so only its open port speaks for it. */
	fake_store_cut(store, "a", true);
	loses_its_connection();
	does_not_replace(&b);
	fake_store_cut(store, "a", false);
	wait_until(mcm_feeders_in_sync(feeders(&a)) == 0);
	/* It joins again when it has not been fed for a while. */
	pass(500);
	joins(&a, &b);
	puts_object(&a, "k");
	assert_true(has_object(&a, "k"));
}

static void a_standby_that_was_removed_replaces_no_leader(void **state)
{
	(void)state;
	pair_up();
	loses_its_connection();
	wait_until(mcm_feeders_in_sync(feeders(&a)) == 0);
	puts_object(&a, "k");
	fake_store_cut(store, "a", true);
	ends(&a);
	does_not_replace(&b);
	/* Nor does it lead when the lease has ended: it lacks the object. */
	pass(60000);
	assert_false(fake_store_has(store, LEADER_KEY));
	assert_false(leads(&b));
	fake_store_cut(store, "a", false);
	starts(&a);
	assert_true(leads(&a));
	assert_true(has_object(&a, "k"));
}

static void a_master_steps_down_for_a_standby_in_sync_only(void **state)
{
	const struct mcm_lead *lead;

	(void)state;
	starts(&a);
	assert_true(leads(&a));
	lead = a.where.lead;
	assert_int_equal(lead->step_down(lead->arg), -MC_EMODE);
	starts(&b);
	joins(&a, &b);
	puts_object(&a, "k");
	assert_int_equal(lead->step_down(lead->arg), 0);
	wait_until(__atomic_load_n(&a.stops, __ATOMIC_ACQUIRE) == 1);
	assert_int_equal(restarts(&a), 0);
	mcm_stop(a.m);
	a.m = NULL;
	assert_true(leads(&b));
	/* The next leader is known, so the old one may begin again. */
	mcm_ha_stay(a.ha);
	assert_int_equal(restarts(&a), 1);
	ends(&a);
	assert_int_equal(a.stops, 1);
	assert_true(has_object(&b, "k"));
}

static void an_orderly_end_is_no_restart(void **state)
{
	(void)state;
	pair_up();
	mcm_stop(a.m);
	a.m = NULL;
	mcm_ha_stay(a.ha);
	ends(&a);
	assert_int_equal(restarts(&a) + a.stops, 0);
}

static void a_leader_that_cannot_write_its_journal_gives_the_lease_to_a_standby(void **state)
{
	(void)state;
	pair_up();
	puts_object(&a, "k");
	mcm_journal_lose(a.m, -EIO);
	assert_int_equal(restarts(&a), 1);
	assert_false(mcm_feeders_lead(feeders(&a)));
	assert_false(fake_store_has(store, LEADER_KEY));
	assert_true(leads(&b));
	assert_true(has_object(&b, "k"));
	ends(&a);
	assert_int_equal(restarts(&a), 1);
}

static void a_leader_without_a_standby_goes_on_without_its_journal(void **state)
{
	(void)state;
	starts(&a);
	assert_true(leads(&a));
	mcm_journal_lose(a.m, -EIO);
	assert_int_equal(restarts(&a), 0);
	puts_object(&a, "k");
	assert_true(has_object(&a, "k"));
}

/* ---- a store that lost its keys ------------------------------------------------------------------ */

static void after_a_loss_of_the_store_the_last_leader_leads_first(void **state)
{
	(void)state;
	pair_up();
	puts_object(&a, "k");
	ends(&b);
	ends(&a);
	fake_store_erase(store);
	starts(&b);
	starts(&a);
	assert_false(leads(&b));
	assert_true(leads(&a));
	assert_int_equal(a.where.lead->term, 2);
	assert_true(has_object(&a, "k"));
	joins(&a, &b);
}

static void after_a_loss_of_the_store_a_member_leads_later_and_others_never(void **state)
{
	(void)state;
	pair_up();
	puts_object(&a, "k");
	starts(&c);
	joins(&a, &c);
	/* C is removed from the members, and learns it when no master leads. */
	ends(&c);
	puts_object(&a, "last");
	wait_until(mcm_feeders_in_sync(feeders(&a)) == 1);
	ends(&b);
	ends(&a);
	starts(&c);
	assert_false(leads(&c));
	fake_store_erase(store);
	starts(&b);
	for (unsigned i = 0; i < 4; i++) {
		assert_false(leads(&b));
		assert_false(leads(&c));
	}
	pass(2 * 60000);
	assert_false(leads(&c));
	assert_true(leads(&b));
	assert_true(has_object(&b, "k") && has_object(&b, "last"));
}

/* ---- identity and options ------------------------------------------------------------------------ */

static void a_directory_makes_the_identity(void **state)
{
	struct mcm_identity me, again;
	char path[128];
	FILE *f;

	(void)state;
	assert_int_equal(mkdir(a.dir, 0700), 0);
	assert_int_equal(mkdir(b.dir, 0700), 0);
	assert_int_equal(mcm_identity_open(a.dir, &me), 0);
	assert_int_equal(me.standing, MCM_NEW);
	assert_int_equal(mcm_identity_note(&me, 7, MCM_MEMBER), 0);
	assert_int_equal(mcm_identity_open(a.dir, &again), 0);
	assert_string_equal(again.id, me.id);
	assert_int_equal(again.term, 7);
	assert_int_equal(again.standing, MCM_MEMBER);
	assert_int_equal(mcm_identity_open(b.dir, &again), 0);
	assert_string_not_equal(again.id, me.id);
	snprintf(path, sizeof(path), "%s/master", a.dir);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs("0123 7 2\n", f);
	fclose(f);
	assert_int_equal(mcm_identity_open(a.dir, &again), -EINVAL);
}

static void refused(const char *why)
{
	const struct mcm_ha_conf conf = { .conf = &a.conf, .where = &a.where, .end = term_ended, .arg = &a };
	struct mcm_ha *ha;

	assert_int_equal(mcm_ha_new(&conf, &ha), -EINVAL);
	if (!strstr(mc_err_detail(-EINVAL), why))
		fail_msg("%s: %s", why, mc_err_detail(-EINVAL));
}

static void options_that_cannot_work_are_refused(void **state)
{
	const struct mcm_conf good = a.conf;

	(void)state;
	a.conf.journal_dir = (char *)"none";
	refused("needs a journal");
	a.conf = good;
	a.conf.ha_backend_type = (char *)"k8s";
	refused("ha_backend_type=k8s is not built into this version, use etcd or redis");
	a.conf = good;
	a.conf.ha_backend_connstring = (char *)"";
	refused("needs etcd_endpoints or ha_backend_connstring");
	a.conf = good;
	a.conf.ha_members = (char *)"10.0.0.1:1,x";
	refused("not a list of HOST:PORT");
	a.conf.ha_members = (char *)"10.0.0.1:1";
	refused("does not have the address of this master");
	a.conf = good;
	strcpy(a.addr, "0.0.0.0:7001");
	refused("cannot be 0.0.0.0:7001");
	strcpy(a.addr, "[::]:7001");
	refused("cannot be [::]:7001");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_first_master_of_a_new_cluster_leads_at_once),
		TEST(without_its_store_no_master_leads),
		TEST(a_standby_takes_over_with_every_acknowledged_object),
		TEST(a_standby_of_an_empty_pool_takes_over),
		TEST(a_master_that_is_not_in_sync_never_leads),
		TEST(a_leader_whose_lease_ended_answers_nothing_and_starts_again),
		TEST(a_leader_whose_process_ended_is_replaced_before_its_lease_ends),
		TEST(a_standby_that_lost_only_its_connection_replaces_no_leader),
		TEST(a_standby_that_was_removed_replaces_no_leader),
		TEST(a_master_steps_down_for_a_standby_in_sync_only),
		TEST(an_orderly_end_is_no_restart),
		TEST(a_leader_that_cannot_write_its_journal_gives_the_lease_to_a_standby),
		TEST(a_leader_without_a_standby_goes_on_without_its_journal),
		TEST(after_a_loss_of_the_store_the_last_leader_leads_first),
		TEST(after_a_loss_of_the_store_a_member_leads_later_and_others_never),
		TEST(a_directory_makes_the_identity),
		TEST(options_that_cannot_work_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
