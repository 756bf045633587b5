/* SPDX-License-Identifier: Apache-2.0
 * test_master_gate.c - which feed a standby takes, which standby a leader counts, and which one is too slow. */
#include <config.h>

#include "test_master_journal_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/net/socket.h"
#include "master/ha/feeder.h"
#include "master/ha/gate.h"
#include "master/ha/standby.h"
#include "proto/rpc_client.h"
#include "proto/rpc_server.h"

#define MIB (1u << 20)
#define SEC MC_NS_PER_SEC
#define MS MC_NS_PER_MS
#define NAME "127.0.0.1:1#aaaaaaaaaaaaaaaa"

/* ---- a standby ---- */

struct side {
	struct fixture fx;
	struct mcm_standby *s;
	struct mcp_client *c;
	char addr[64];
};

static struct mcp_client *leader(const struct side *d)
{
	const struct mcp_client_conf conf = {
		.addrs = d->addr, .channel = MCP_CHANNEL_CONTROL, .software = "test",
		.client = { MCM_STANDBY_LEADER_ID, 1 },
	};
	struct mcp_client *c;

	assert_int_equal(mcp_client_open(&conf, &c), 0);
	return c;
}

/* The directory has a whole state of an earlier life, and the term in the store is 5. */
static void side_up(struct side *d)
{
	const char *addrs[] = { d->addr, NULL };
	struct mcm_standby_conf conf = { .addrs = addrs };

	jx_up(&d->fx, 1, 4 * MIB);
	jx_answer(&d->fx);
	mc_clock_real();
	snprintf(jx_copy, sizeof(jx_copy), "%s.copy", jx_dir);
	mkdir(jx_copy, 0700);
	jx_copy_dir();
	snprintf(d->addr, sizeof(d->addr), "unix:@test_master_gate.%d", (int)getpid());
	conf.copy = (struct mcm_copy_conf){ .dir = jx_copy, .cluster = d->fx.m->conf.cluster_id };
	assert_int_equal(mcm_standby_start(&conf, &d->s), 0);
	mcm_standby_term(d->s, 5);
	assert_true(mcm_standby_whole(d->s));
	d->c = leader(d);
}

static void side_down(struct side *d)
{
	mcp_client_close(d->c);
	mcm_standby_stop(d->s);
	fx_down(&d->fx);
}

static struct mcp_feed feed(uint64_t term, struct mcp_id nonce, const char *receiver)
{
	return (struct mcp_feed){
		.term = term, .promise_ms = 150, .nonce = nonce, .receiver = mcp_bytes(receiver, strlen(receiver)),
	};
}

static int deliver(struct mcp_client *c, struct mcp_feed msg)
{
	struct mcp_feed_reply reply;

	return mcp_call(c, MCP_FEED, &msg, &reply, NULL, mc_deadline_ms(10000));
}

/* Refused as a part, a begin and an empty one; nothing has changed. */
static void refused(struct side *d, struct mcp_feed msg)
{
	assert_int_equal(deliver(d->c, msg), -MC_EFEED);
	msg.data = mcp_bytes("x", 1);
	assert_int_equal(deliver(d->c, msg), -MC_EFEED);
	msg.data.len = 0;
	msg.begin = 1;
	assert_int_equal(deliver(d->c, msg), -MC_EFEED);
	assert_true(mcm_standby_whole(d->s));
	assert_int_equal(mcm_standby_fed(d->s), 0);
	assert_int_equal(mcm_standby_refuse(d->s), 0);	/* no promise */
	mcm_standby_accept(d->s);
}

static void a_standby_takes_only_the_feed_that_it_asked_for(void **state)
{
	struct mcp_id zero = { 0, 0 }, wrong = { 1, 1 }, nonce, later;
	struct mcp_client *other;
	struct mcp_feed msg;
	struct side d;

	(void)state;
	side_up(&d);
	refused(&d, feed(5, zero, ""));
	refused(&d, feed(5, zero, NAME));
	nonce = mcm_standby_join(d.s, NAME);
	later = mcm_standby_join(d.s, NAME);
	assert_false(mcp_id_eq(nonce, later));
	refused(&d, feed(5, zero, NAME));
	refused(&d, feed(5, wrong, NAME));
	refused(&d, feed(5, nonce, "127.0.0.1:1#bbbbbbbbbbbbbbbb"));
	refused(&d, feed(5, nonce, ""));
	refused(&d, feed(4, nonce, NAME));
	refused(&d, feed(6, nonce, NAME));
	refused(&d, feed(UINT64_MAX, nonce, NAME));
	/* None of them has changed the term; the leader may answer the first of two JOINs. */
	assert_int_equal(deliver(d.c, feed(5, nonce, NAME)), 0);
	assert_true(mcm_standby_whole(d.s) && mcm_standby_fed(d.s) > 0);
	/* A part needs a begin. */
	msg = feed(5, zero, "");
	msg.data = mcp_bytes("x", 1);
	assert_int_equal(deliver(d.c, msg), -MC_EFEED);
	assert_true(mcm_standby_whole(d.s));
	/* Each JOIN is open for one feed, and for one copy. */
	other = leader(&d);
	assert_int_equal(deliver(other, feed(5, nonce, NAME)), -MC_EFEED);
	assert_int_equal(deliver(other, feed(5, later, NAME)), -MC_EFEED);
	msg = feed(5, zero, "");
	msg.begin = 1;
	assert_int_equal(deliver(d.c, msg), 0);
	assert_false(mcm_standby_whole(d.s));
	assert_int_equal(deliver(d.c, msg), -MC_EFEED);
	/* The same connection goes on until the term ends. */
	assert_int_equal(deliver(d.c, feed(5, zero, "")), 0);
	mcm_standby_term(d.s, 6);
	assert_int_equal(deliver(d.c, feed(5, zero, "")), -MC_EFEED);
	mcp_client_close(other);
	side_down(&d);
}

static void a_join_to_the_leader_of_another_term_is_not_open(void **state)
{
	struct mcp_id nonce;
	struct side d;

	(void)state;
	side_up(&d);
	nonce = mcm_standby_join(d.s, NAME);
	mcm_standby_term(d.s, 6);
	refused(&d, feed(5, nonce, NAME));
	refused(&d, feed(6, nonce, NAME));
	/* The operator has deleted the state of the store: the term begins anew. */
	mcm_standby_term(d.s, 1);
	nonce = mcm_standby_join(d.s, NAME);
	assert_int_equal(deliver(d.c, feed(1, nonce, NAME)), 0);
	side_down(&d);
}

/* ---- a leader ---- */

struct lead {
	struct fixture fx;
	struct mcm_feeders *f;
	struct mcp_server *server;	/* of the standby */
	/* atomic */
	bool repeats;			/* the standby has the JOIN's nonce in its replies */
	unsigned incomplete_from;	/* parts after which it has no complete copy */
	unsigned parts, begins;
	unsigned members;		/* in the store */
	uint64_t until;
};

static const struct mcp_id nonce_of_join = { 7, 8 };

static unsigned load(const unsigned *p)
{
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static void repeat(struct lead *l)
{
	__atomic_store_n(&l->repeats, true, __ATOMIC_RELAXED);
}

static void incomplete_from(struct lead *l, unsigned part)
{
	__atomic_store_n(&l->incomplete_from, part, __ATOMIC_RELAXED);
}

static int serve_feed(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *answer, void *arg)
{
	struct lead *l = arg;
	struct mcp_feed_reply reply = { 0 };
	struct mcp_feed rq;
	int r = mcp_decode(&mcp_desc_feed, body, len, &rq);

	(void)s;
	assert_int_equal(r, 0);
	if (rq.begin)
		__atomic_add_fetch(&l->begins, 1, __ATOMIC_RELAXED);
	if (__atomic_load_n(&l->repeats, __ATOMIC_RELAXED))
		reply.nonce = nonce_of_join;
	reply.complete = __atomic_add_fetch(&l->parts, 1, __ATOMIC_RELAXED) < load(&l->incomplete_from);
	return mcp_answer(answer, &mcp_desc_feed_reply, &reply);
}

static int set_members(void *arg, const char *const *member, unsigned n)
{
	struct lead *l = arg;

	(void)member;
	__atomic_store_n(&l->members, n, __ATOMIC_RELAXED);
	return 0;
}

static void lead_up_for(struct lead *l, const char *members, unsigned timeout_ms)
{
	static const struct mcp_handler handlers[] = { { MCP_FEED, serve_feed }, { 0, NULL } };
	static const char *const addrs[] = { "127.0.0.1:0", NULL };
	const struct mcp_server_conf server = {
		.addrs = addrs, .loops = 1, .software = "test", .handlers = handlers, .arg = l,
	};
	const struct mcm_feeders_conf conf = {
		.term = 5, .self = NAME, .timeout_ms = timeout_ms, .slow_ms = 2000, .members = members,
		.until = &l->until, .set_ms = 100, .set_members = set_members, .arg = l,
	};

	*l = (struct lead){ .until = MC_NEVER, .incomplete_from = UINT32_MAX, .members = 1 };
	jx_up(&l->fx, 1, 4 * MIB);
	jx_answer(&l->fx);
	mc_clock_real();
	assert_int_equal(mcp_server_start(&server, &l->server), 0);
	assert_int_equal(mcm_feeders_new(&conf, &l->f), 0);
	mcm_feeders_attach(l->f, l->fx.m);
}

static void lead_up(struct lead *l, const char *members)
{
	lead_up_for(l, members, 5000);
}

static void lead_down(struct lead *l)
{
	mcm_feeders_stop(l->f);
	l->fx.m->feeders = NULL;
	mcm_feeders_free(l->f);
	mcp_server_stop(l->server);
	fx_down(&l->fx);
}

static int join(struct lead *l, const char *addr, const char *id, struct mcp_id nonce, const char *peer)
{
	struct mcp_join rq = { .nonce = nonce };
	char name[128];
	uint64_t term;

	snprintf(name, sizeof(name), "%s#%s", addr ? addr : mcp_server_addr(l->server, 0), id);
	rq.name = mcp_bytes(name, strlen(name));
	return mcm_feeders_join(l->f, &rq, mcp_bytes(peer, strlen(peer)), &term);
}

#define wait_until(condition) do { \
	uint64_t end = mc_deadline_ms(20000); \
	while (!(condition) && mc_now_ns() < end) \
		usleep(1000); \
	assert_true(condition); \
} while (0)

static void a_receiver_that_does_not_repeat_the_nonce_is_sent_nothing(void **state)
{
	const struct mcp_id nonce = nonce_of_join;
	struct lead l;

	(void)state;
	lead_up(&l, "");
	/* It keeps its copy: the first message is an empty one. */
	assert_int_equal(join(&l, NULL, "0000000000000000", nonce, "127.0.0.1"), 0);
	wait_until(load(&l.parts));
	repeat(&l);
	wait_until(join(&l, NULL, "1111111111111111", nonce, "127.0.0.1") == 0 && mcm_feeders_in_sync(l.f) == 1);
	assert_true(load(&l.begins) >= 1);
	assert_int_equal(load(&l.members), 2);
	lead_down(&l);
}

static void a_standby_without_a_complete_copy_does_not_count(void **state)
{
	const struct mcp_id nonce = nonce_of_join;
	struct lead l;

	(void)state;
	lead_up(&l, "");
	repeat(&l);
	incomplete_from(&l, 1);
	/* The leader ends the first copy, and begins another one after the next JOIN. */
	wait_until(join(&l, NULL, "0000000000000000", nonce, "127.0.0.1") == 0 && load(&l.begins) >= 2);
	assert_int_equal(mcm_feeders_in_sync(l.f), 0);
	/* It is not added; the next one loses its copy while it is in sync. */
	incomplete_from(&l, UINT32_MAX);
	wait_until(join(&l, NULL, "0000000000000000", nonce, "127.0.0.1") == 0 && mcm_feeders_in_sync(l.f) == 1);
	assert_true(load(&l.begins) >= 2);
	incomplete_from(&l, 1);
	wait_until(mcm_feeders_in_sync(l.f) == 0);
	assert_int_equal(load(&l.members), 1);
	lead_down(&l);
}

/* It would take the objects of a restored snapshot for true before their owners have compared them. */
static void an_older_standby_is_not_fed_an_unproven_state(void **state)
{
	const struct mcp_id nonce = nonce_of_join, none = { 0, 0 };
	struct lead l;

	(void)state;
	lead_up(&l, "");
	repeat(&l);
	mcm_store_relaxed(&l.fx.m->unproven, true);
	assert_int_equal(join(&l, NULL, "1", none, "127.0.0.1"), -MC_EUNAVAILABLE);
	assert_int_equal(load(&l.parts), 0);
	assert_int_equal(join(&l, NULL, "2", nonce, "127.0.0.1"), 0);
	wait_until(mcm_feeders_in_sync(l.f) == 1);
	lead_down(&l);
	lead_up(&l, "");
	assert_int_equal(join(&l, NULL, "1", none, "127.0.0.1"), 0);
	lead_down(&l);
}

static void a_leader_asks_which_host_a_standby_is_of(void **state)
{
	const struct mcp_id nonce = nonce_of_join, none = { 0, 0 };
	char members[64], addr[64];
	struct lead l;

	(void)state;
	lead_up(&l, "");
	repeat(&l);
	assert_int_equal(join(&l, NULL, "0", nonce, "127.0.0.2"), -MC_EJOIN);
	assert_int_equal(join(&l, NULL, "0", nonce, "unix:0"), -MC_EJOIN);
	assert_int_equal(join(&l, "10.0.0.1:50051", "0", nonce, "127.0.0.1"), -MC_EJOIN);
	assert_int_equal(join(&l, "127.0.0.1:1 \n", "0", nonce, "127.0.0.1"), -MC_EPARAM);
	assert_int_equal(load(&l.parts), 0);
	/* A name is looked up. */
	snprintf(addr, sizeof(addr), "localhost%s", strrchr(mcp_server_addr(l.server, 0), ':'));
	assert_int_equal(join(&l, addr, "0", nonce, "127.0.0.1"), 0);
	wait_until(mcm_feeders_in_sync(l.f) == 1);
	/* An older version at the address of another one: it could not refuse the feed. */
	assert_int_equal(join(&l, addr, "1", none, "127.0.0.1"), -MC_EJOIN);
	assert_int_equal(join(&l, addr, "0", none, "127.0.0.1"), 0);
	snprintf(members, sizeof(members), "10.0.0.1:50051,%s", mcp_server_addr(l.server, 0));
	lead_down(&l);

	lead_up(&l, "10.0.0.1:50051,10.0.0.2:50051");
	assert_int_equal(join(&l, NULL, "0", nonce, "127.0.0.1"), -MC_EJOIN);
	assert_int_equal(join(&l, "10.0.0.1:5005", "0", nonce, "127.0.0.1"), -MC_EJOIN);
	assert_int_equal(join(&l, "10.0.0.1:500511", "0", nonce, "127.0.0.1"), -MC_EJOIN);
	lead_down(&l);
	assert_int_equal(mcm_gate_address(members, "10.0.0.1:50051", "127.0.0.1", 0), 0);
}

static void a_host_has_a_limit_of_standbys(void **state)
{
	const struct mcp_id none = { 0, 0 };
	char addr[MCM_GATE_PER_HOST + 2][MC_ADDR_MAX];
	int fd[MCM_GATE_PER_HOST + 2];
	struct lead l;

	(void)state;
	lead_up_for(&l, "", 1000);
	/* They accept connections and are silent. */
	for (unsigned i = 0; i < MCM_GATE_PER_HOST + 2; i++) {
		fd[i] = mc_socket_listen(i > MCM_GATE_PER_HOST ? "127.0.0.3:0" : "127.0.0.1:0", 8, 0, addr[i]);
		assert_true(fd[i] >= 0);
		assert_int_equal(join(&l, addr[i], "0", none, i > MCM_GATE_PER_HOST ? "127.0.0.3" : "127.0.0.1"),
				 i == MCM_GATE_PER_HOST ? -MC_ELIMIT : 0);
	}
	/* Twice the same is one. */
	assert_int_equal(join(&l, addr[0], "0", none, "127.0.0.1"), 0);
	lead_down(&l);
	for (unsigned i = 0; i < MCM_GATE_PER_HOST + 2; i++)
		close(fd[i]);
}

/* ---- limits, with their own clock ---- */

static void a_late_host_waits_longer_each_time(void **state)
{
	struct mcm_gate g = { 0 };
	uint64_t now = SEC;
	char host[32];

	(void)state;
	assert_int_equal(mcm_gate_wait(&g, "10.0.0.1", now), 0);
	for (unsigned i = 0; i < 8; i++) {
		uint64_t pause = SEC << (i < 5 ? i : 5);

		mcm_gate_late(&g, "10.0.0.1", now);
		assert_int_equal(mcm_gate_wait(&g, "10.0.0.1", now + pause - 1), -MC_EUNAVAILABLE);
		assert_int_equal(mcm_gate_wait(&g, "10.0.0.2", now), 0);
		now += pause;
		assert_int_equal(mcm_gate_wait(&g, "10.0.0.1", now), 0);
	}
	/* Five good minutes. */
	now += 300 * SEC + 1;
	mcm_gate_late(&g, "10.0.0.1", now);
	assert_int_equal(mcm_gate_wait(&g, "10.0.0.1", now + SEC), 0);
	/* More hosts than places: the one whose pause ended first is forgotten. */
	for (unsigned i = 0; i < 2 * MCM_GATE_HOSTS; i++) {
		snprintf(host, sizeof(host), "10.1.0.%u", i);
		mcm_gate_late(&g, host, now + i);
		assert_int_equal(mcm_gate_wait(&g, host, now + i), -MC_EUNAVAILABLE);
	}
	assert_int_equal(mcm_gate_wait(&g, "10.1.0.1", now + 1), 0);
}

/* Feed @n parts, @slow of each hundred slowly; one each @every_ms.  The first part that ends it, or 0. */
static unsigned paced(unsigned n, unsigned slow, unsigned every_ms)
{
	struct mcm_pace p = { .limit_ms = 200 };

	for (unsigned i = 0; i < n; i++) {
		uint64_t sent = SEC + i * every_ms * MS;

		if (mcm_pace_add(&p, sent, sent + (i % 100 < slow ? 201 : 200) * MS) < 0)
			return i + 1;
	}
	return 0;
}

static void a_slow_standby_is_noticed_after_ten_seconds(void **state)
{
	struct mcm_pace p = { .limit_ms = 200 };

	(void)state;
	assert_int_equal(paced(1000, 100, 500), 21);
	assert_int_equal(paced(100000, 20, 10), 981);
	/* Less than a tenth is not enough; nor are few parts, however slow. */
	assert_int_equal(paced(100000, 9, 100), 0);
	assert_int_equal(paced(7, 100, 5000), 0);
	assert_int_equal(paced(8, 100, 5000), 8);
	/* Few of many, but a quarter of the time. */
	p.from = SEC;
	for (unsigned i = 0; i < 990; i++)
		assert_int_equal(mcm_pace_add(&p, SEC + i * MS, SEC + (i + 1) * MS), 0);
	for (unsigned i = 1; i < 7; i++)
		assert_int_equal(mcm_pace_add(&p, (5 + i) * SEC, (5 + i) * SEC + 450 * MS), i < 6 ? 0 : -ETIMEDOUT);
	p = (struct mcm_pace){ .limit_ms = 200 };
	/* Before it counts: half. */
	assert_false(mcm_pace_slow(&p));
	assert_int_equal(mcm_pace_add(&p, SEC, SEC + 450 * MS), 0);
	assert_true(mcm_pace_slow(&p));
	assert_int_equal(mcm_pace_add(&p, SEC, SEC + MS), 0);
	assert_false(mcm_pace_slow(&p));
}

static void an_address_is_of_a_host(void **state)
{
	(void)state;
	assert_int_equal(mc_addr_is_of("10.0.0.1:5", "10.0.0.1", 0), 1);
	assert_int_equal(mc_addr_is_of("10.0.0.1:5", "10.0.0.2", 0), 0);
	assert_int_equal(mc_addr_is_of("10.0.0.1:5", "::ffff:10.0.0.1", 0), 1);
	assert_int_equal(mc_addr_is_of("[::1]:5", "[::1]", 0), 1);
	assert_int_equal(mc_addr_is_of("[::1]:5", "[::2]", 0), 0);
	assert_int_equal(mc_addr_is_of("[::1]:5", "127.0.0.1", 0), 0);
	assert_int_equal(mc_addr_is_of("localhost:5", "127.0.0.1", 0), -EAGAIN);
	assert_int_equal(mc_addr_is_of("localhost:5", "127.0.0.1", mc_deadline_ms(10000)), 1);
	assert_int_equal(mc_addr_is_of("localhost:5", "192.0.2.1", mc_deadline_ms(10000)), 0);
	assert_int_equal(mc_addr_is_of("10.0.0.1:5", "unix:0", 0), 0);
	assert_int_equal(mc_addr_is_of("10.0.0.1", "10.0.0.1", 0), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_standby_takes_only_the_feed_that_it_asked_for),
		cmocka_unit_test(a_join_to_the_leader_of_another_term_is_not_open),
		cmocka_unit_test(a_receiver_that_does_not_repeat_the_nonce_is_sent_nothing),
		cmocka_unit_test(a_standby_without_a_complete_copy_does_not_count),
		cmocka_unit_test(an_older_standby_is_not_fed_an_unproven_state),
		cmocka_unit_test(a_leader_asks_which_host_a_standby_is_of),
		cmocka_unit_test(a_host_has_a_limit_of_standbys),
		cmocka_unit_test(a_late_host_waits_longer_each_time),
		cmocka_unit_test(a_slow_standby_is_noticed_after_ten_seconds),
		cmocka_unit_test(an_address_is_of_a_host),
	};

	return cmocka_run_group_tests(tests, jx_setup, jx_teardown);
}
