/* SPDX-License-Identifier: Apache-2.0
 * test_master_feeder.c - the leader's side of replication: which standbys become members in the store, and which
 * answers wait for them.  The standbys here confirm, hold, delay or refuse parts as the test says. */
#include <config.h>

#include "tests/unit/test_master_lead_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/sys/clock.h"
#include "common/sys/thread.h"
#include "proto/rpc_server.h"

#define LOG_MAX 4
#define PROMISE_MS (MCM_PROMISE_MS - MCM_PROMISE_MS / 20)	/* as the leader counts it */

static const struct mcp_id nonce = { 7, 8 };

struct message {
	bool begin, named;	/* named: with a nonce and a receiver */
	size_t len;
};

/* A standby of which the test decides everything. */
struct receiver {
	struct mcp_server *server;
	char local_name[8], name[64];
	struct mc_mutex lock;
	struct mc_cond change;
	/* guarded by lock */
	bool hold;		/* a message is not answered until this is false */
	bool stranger;		/* it repeats another nonce */
	bool incomplete;	/* it never has a whole copy */
	int error;		/* the answer to each message; 0: it confirms */
	uint64_t late_ms;	/* time that passes before each answer */
	unsigned held;		/* messages that are not answered yet */
	unsigned sessions, messages, begins;
	size_t records;		/* bytes of journals */
	struct message log[LOG_MAX];
};

/* ---- the receiver -------------------------------------------------------------------------------- */

static int receiver_serve(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *answer, void *arg)
{
	struct mcp_feed_reply reply = { 0 };
	struct receiver *v = arg;
	struct mcp_feed rq;
	int r = mcp_decode(&mcp_desc_feed, body, len, &rq);

	(void)s;
	if (r < 0)
		return r;
	mc_mutex_lock(&v->lock);
	if (v->messages < LOG_MAX)
		v->log[v->messages] = (struct message){ rq.begin, !mcp_id_zero(rq.nonce), rq.data.len };
	v->messages++;
	v->begins += rq.begin;
	v->records += rq.checkpoint ? 0 : rq.data.len;
	v->held++;
	mc_cond_broadcast(&v->change);
	while (v->hold)
		mc_cond_wait(&v->change, &v->lock);
	v->held--;
	mc_cond_broadcast(&v->change);
	mc_clock_advance(v->late_ms * MC_NS_PER_MS);
	reply.nonce = v->stranger ? (struct mcp_id){ 9, 9 } : nonce;
	reply.complete = !v->incomplete;
	r = v->error;
	mc_mutex_unlock(&v->lock);
	return r < 0 ? r : mcp_answer(answer, &mcp_desc_feed_reply, &reply);
}

static int receiver_opened(struct mcp_session *s, void *arg)
{
	struct receiver *v = arg;

	(void)s;
	MC_LOCKED(&v->lock);
	v->sessions++;
	return 0;
}

static void receiver_up(struct receiver *v, unsigned number)
{
	static const struct mcp_handler handlers[] = { { MCP_FEED, receiver_serve }, { 0, NULL } };
	static const char *const none[] = { NULL };
	const struct mcp_server_conf conf = {
		.addrs = none, .local_name = v->local_name, .loops = 1, .software = "test", .handlers = handlers,
		.opened = receiver_opened, .arg = v,
	};

	memset(v, 0, sizeof(*v));
	snprintf(v->local_name, sizeof(v->local_name), "%u", number);
	snprintf(v->name, sizeof(v->name), "local:%u#%016u", number, number);
	mc_mutex_init(&v->lock);
	assert_int_equal(mc_cond_init(&v->change), 0);
	assert_int_equal(mcp_server_start(&conf, &v->server), 0);
}

static void receiver_down(struct receiver *v)
{
	mcp_server_stop(v->server);
	mc_cond_destroy(&v->change);
	mc_mutex_destroy(&v->lock);
}

/* Change a field, under the lock. */
#define receiver_set(v, field, value) do { \
	MC_LOCKED(&(v)->lock); \
	(v)->field = (value); \
	mc_cond_broadcast(&(v)->change); \
} while (0)

#define receiver_get(v, field) ({ \
	MC_LOCKED(&(v)->lock); \
	(v)->field; \
})

/* Hold the next message, and those after it. */
static void receiver_hold(struct receiver *v)
{
	receiver_set(v, hold, true);
}

static void receiver_release(struct receiver *v)
{
	receiver_set(v, hold, false);
}

static void receiver_in_sync(struct lead *l, struct receiver *v)
{
	unsigned n = mcm_feeders_in_sync(l->f);

	assert_int_equal(lead_join(l, v->name, nonce), 0);
	lead_wait(mcm_feeders_in_sync(l->f) == n + 1);
	/* The part that makes its promise short again has arrived. */
	lead_wait(receiver_get(v, messages) >= 5 && receiver_get(v, held) == 0);
}

/* Let the feeders send parts that show that the leader lives. */
static void let_beat(void)
{
	mc_clock_advance(30 * MC_NS_PER_MS);
}

/* ---- joining ------------------------------------------------------------------------------------- */

static void a_standby_that_joins_gets_a_copy_and_becomes_a_member(void **state)
{
	struct receiver v;
	struct lead l;

	(void)state;
	lead_up(&l, 1);
	receiver_up(&v, 1);
	lead_put(&l, "k", 20);
	assert_int_equal(mcm_feeders_in_sync(l.f), 0);
	assert_int_equal(lead_members(&l), 0);
	receiver_in_sync(&l, &v);
	assert_int_equal(lead_members(&l), 1);
	/* The first message takes no copy away, the second one does; both say for which standby they are. */
	assert_true(v.log[0].named && !v.log[0].begin && v.log[0].len == 0);
	assert_true(v.log[1].named && v.log[1].begin && v.log[1].len == 0);
	assert_true(!v.log[2].named && v.log[2].len > 0);
	assert_int_equal(receiver_get(&v, begins), 1);
	assert_true(receiver_get(&v, records) > 0);
	assert_true(mcm_feeders_lead(l.f));
	lead_down(&l);
	receiver_down(&v);
}

static int lead_link(struct lead *l, const char *from, const char *to)
{
	const struct mcp_link_name rq = { .from = fx_bytes(from), .to = fx_bytes(to) };
	uint64_t ino, generation;

	return mcm_link(l->fx.m, &rq, &ino, &generation);
}

/* It skips the records of names, and confirms them nevertheless. */
static void a_standby_of_an_older_version_gets_no_names(void **state)
{
	struct receiver v;
	struct lead l;

	(void)state;
	lead_up(&l, 1);
	receiver_up(&v, 1);
	lead_put(&l, "k", 2);
	receiver_in_sync(&l, &v);
	assert_int_equal(lead_link(&l, "k0", "name"), -MC_ENOTSUP);
	lead_down(&l);
	receiver_down(&v);

	lead_up(&l, 1);
	receiver_up(&v, 1);
	lead_put(&l, "k", 2);
	assert_int_equal(lead_link(&l, "k0", "name"), 0);
	assert_int_equal(lead_join(&l, v.name, nonce), -MC_EJOIN);
	assert_int_equal(fx_remove(&l.fx, "k0", MCP_REMOVE_FORCE), 0);
	assert_int_equal(fx_remove(&l.fx, "name", MCP_REMOVE_FORCE), 0);
	mcm_links_tick(l.fx.m);
	mcm_links_tick(l.fx.m);
	receiver_in_sync(&l, &v);
	lead_down(&l);
	receiver_down(&v);
}

static void twice_the_same_join_is_one_feed(void **state)
{
	struct receiver v;
	struct lead l;

	(void)state;
	lead_up(&l, 1);
	receiver_up(&v, 1);
	receiver_hold(&v);
	assert_int_equal(lead_join(&l, v.name, nonce), 0);
	lead_wait(receiver_get(&v, held) == 1);
	assert_int_equal(lead_join(&l, v.name, nonce), 0);
	receiver_release(&v);
	lead_wait(mcm_feeders_in_sync(l.f) == 1);
	assert_int_equal(lead_join(&l, v.name, nonce), 0);
	/* Nor does another nonce of a standby that is in sync begin a second feed. */
	assert_int_equal(lead_join(&l, v.name, (struct mcp_id){ 1, 1 }), 0);
	lead_down(&l);
	assert_int_equal(v.sessions, 1);
	assert_int_equal(v.begins, 1);
	receiver_down(&v);
}

static void a_bogus_standby_changes_nothing(void **state)
{
	unsigned changes;
	struct receiver v;
	uint64_t lsn;
	struct lead l;

	(void)state;
	lead_up(&l, 1);
	receiver_up(&v, 1);
	changes = l.changes;
	/* Its JOIN names no standby, or one that is not configured. */
	assert_int_equal(lead_join(&l, "", nonce), -MC_EPARAM);
	assert_int_equal(lead_join(&l, "local:1#\"", nonce), -MC_EPARAM);
	assert_int_equal(lead_join(&l, "local:3#0000000000000003", nonce), -MC_EJOIN);
	/* The receiver at that address is another one. */
	receiver_set(&v, stranger, true);
	receiver_hold(&v);
	assert_int_equal(lead_join(&l, v.name, nonce), 0);
	lead_wait(receiver_get(&v, held) == 1);
	lsn = lead_put(&l, "k", 1);
	assert_true(mcm_feeders_have(l.f, lsn));
	receiver_release(&v);
	/* Nothing listens at the address. */
	assert_int_equal(lead_join(&l, "local:2#0000000000000002", nonce), 0);
	lead_down(&l);
	assert_int_equal(v.messages, 1);
	assert_int_equal(v.begins, 0);
	assert_int_equal(l.changes, changes);
	receiver_down(&v);
}

static void answers_do_not_wait_for_a_standby_that_copies(void **state)
{
	struct receiver v;
	struct lead l;

	(void)state;
	lead_up(&l, 1);
	receiver_up(&v, 1);
	receiver_hold(&v);
	assert_int_equal(lead_join(&l, v.name, nonce), 0);
	lead_wait(receiver_get(&v, held) == 1);
	assert_true(mcm_feeders_have(l.f, lead_put(&l, "k", 3)));
	assert_true(mcm_feeders_lead(l.f));
	assert_int_equal(lead_members(&l), 0);
	receiver_release(&v);
	lead_wait(mcm_feeders_in_sync(l.f) == 1);
	lead_down(&l);
	receiver_down(&v);
}

static void a_standby_without_a_whole_copy_is_not_added(void **state)
{
	struct receiver v;
	unsigned changes;
	struct lead l;

	(void)state;
	lead_up(&l, 1);
	receiver_up(&v, 1);
	changes = l.changes;
	receiver_set(&v, incomplete, true);
	/* Another copy begins only after the feed of the last one has ended. */
	lead_wait(lead_join(&l, v.name, nonce) == 0 && receiver_get(&v, begins) >= 3);
	assert_int_equal(__atomic_load_n(&l.changes, __ATOMIC_ACQUIRE), changes);
	assert_int_equal(mcm_feeders_in_sync(l.f), 0);
	receiver_set(&v, incomplete, false);
	lead_wait(lead_join(&l, v.name, nonce) == 0 && mcm_feeders_in_sync(l.f) == 1);
	/* A member that loses its copy is removed. */
	receiver_set(&v, incomplete, true);
	let_beat();
	lead_wait(mcm_feeders_in_sync(l.f) == 0);
	assert_int_equal(lead_members(&l), 0);
	lead_down(&l);
	receiver_down(&v);
}

static void a_standby_that_confirms_after_half_a_promise_is_not_added(void **state)
{
	struct receiver v;
	struct lead l;

	(void)state;
	lead_up(&l, 1);
	receiver_up(&v, 1);
	receiver_set(&v, late_ms, MCM_PROMISE_MS / 2 + 1);
	assert_int_equal(lead_join(&l, v.name, nonce), 0);
	lead_wait(receiver_get(&v, messages) == 1 && receiver_get(&v, held) == 0);
	receiver_set(&v, late_ms, 1);
	lead_wait(lead_join(&l, v.name, nonce) == 0 && mcm_feeders_in_sync(l.f) == 1);
	lead_down(&l);
	/* It kept its copy until it was fast enough. */
	assert_int_equal(v.begins, 1);
	receiver_down(&v);
}

/* ---- answers ------------------------------------------------------------------------------------- */

static void a_put_is_acknowledged_when_all_standbys_in_sync_have_it(void **state)
{
	struct receiver fast, slow;
	size_t records;
	uint64_t lsn;
	struct lead l;

	(void)state;
	lead_up(&l, 1);
	receiver_up(&fast, 1);
	receiver_up(&slow, 2);
	receiver_in_sync(&l, &fast);
	receiver_in_sync(&l, &slow);
	assert_int_equal(lead_members(&l), 2);
	records = receiver_get(&fast, records);
	receiver_hold(&slow);
	lsn = lead_put(&l, "k", 1);
	lead_wait(receiver_get(&fast, records) > records && receiver_get(&fast, held) == 0);
	lead_wait(receiver_get(&slow, held) == 1);
	assert_false(mcm_feeders_have(l.f, lsn));
	receiver_release(&slow);
	mcm_feeders_wait(l.f, lsn);
	assert_true(mcm_feeders_have(l.f, lsn));
	assert_false(mcm_feeders_have(l.f, lsn + 1));
	lead_down(&l);
	receiver_down(&fast);
	receiver_down(&slow);
}

static void a_silent_standby_is_removed_before_answers_go_on(void **state)
{
	static const char *const name = "mooncake_master_standbys_removed_total";
	int64_t removed = fx_metric(name);
	struct receiver v;
	unsigned changes;
	uint64_t lsn;
	struct lead l;

	(void)state;
	lead_up(&l, 1);
	receiver_up(&v, 1);
	receiver_in_sync(&l, &v);
	changes = __atomic_load_n(&l.changes, __ATOMIC_ACQUIRE);
	/* While the store cannot be changed, the standby may lead next, so answers wait for it. */
	fake_store_cut(l.store, "a", true);
	receiver_set(&v, late_ms, LEAD_TIMEOUT_MS);
	receiver_set(&v, error, -MC_ETIMEDOUT);
	lsn = lead_put(&l, "k", 1);
	lead_wait(__atomic_load_n(&l.changes, __ATOMIC_ACQUIRE) > changes);
	assert_false(mcm_feeders_have(l.f, lsn));
	assert_false(mcm_feeders_lead(l.f));
	assert_int_equal(mcm_feeders_in_sync(l.f), 1);
	assert_int_equal(lead_members(&l), 1);
	fake_store_cut(l.store, "a", false);
	mcm_feeders_wait(l.f, lsn);
	assert_int_equal(lead_members(&l), 0);
	assert_int_equal(mcm_feeders_in_sync(l.f), 0);
	assert_true(mcm_feeders_lead(l.f));
	assert_int_equal(fx_metric(name) - removed, 1);
	/* Answers had to wait for a standby of this host: the next one waits a second. */
	receiver_set(&v, late_ms, 0);
	receiver_set(&v, error, 0);
	assert_int_equal(lead_join(&l, v.name, nonce), -MC_EUNAVAILABLE);
	mc_clock_advance(MC_NS_PER_SEC);
	lead_wait(lead_join(&l, v.name, nonce) == 0 && mcm_feeders_in_sync(l.f) == 1);
	lead_down(&l);
	receiver_down(&v);
}

static void a_standby_whose_process_ended_may_join_again_at_once(void **state)
{
	struct receiver v;
	uint64_t lsn;
	struct lead l;

	(void)state;
	lead_up(&l, 1);
	receiver_up(&v, 1);
	receiver_in_sync(&l, &v);
	receiver_down(&v);
	lsn = lead_put(&l, "k", 1);
	mcm_feeders_wait(l.f, lsn);
	assert_int_equal(lead_members(&l), 0);
	receiver_up(&v, 1);
	lead_wait(lead_join(&l, v.name, nonce) == 0 && mcm_feeders_in_sync(l.f) == 1);
	assert_int_equal(lead_members(&l), 1);
	lead_down(&l);
	receiver_down(&v);
}

static void answers_leave_only_while_the_lease_and_all_promises_last(void **state)
{
	struct receiver v;
	struct lead l;

	(void)state;
	lead_up(&l, 1);
	receiver_up(&v, 1);
	receiver_in_sync(&l, &v);
	lead_wait(mcm_feeders_lead(l.f));
	receiver_hold(&v);
	mc_clock_advance((PROMISE_MS - 1) * MC_NS_PER_MS);
	assert_true(mcm_feeders_lead(l.f));
	mc_clock_advance(2 * MC_NS_PER_MS);
	assert_false(mcm_feeders_lead(l.f));
	receiver_release(&v);
	lead_wait(mcm_feeders_lead(l.f));
	/* No more than the lease. */
	__atomic_store_n(&l.until, mc_now_ns(), __ATOMIC_RELEASE);
	assert_false(mcm_feeders_lead(l.f));
	lead_down(&l);
	receiver_down(&v);
}

static void a_standby_whose_promises_are_always_over_is_removed(void **state)
{
	struct receiver v;
	uint64_t begin;
	struct lead l;

	(void)state;
	lead_up(&l, 1);
	receiver_up(&v, 1);
	receiver_in_sync(&l, &v);
	begin = mc_now_ns();
	receiver_set(&v, late_ms, MCM_PROMISE_MS);
	let_beat();
	lead_wait(mcm_feeders_in_sync(l.f) == 0);
	assert_true(mc_now_ns() - begin > LEAD_TIMEOUT_MS * MC_NS_PER_MS);
	assert_int_equal(lead_members(&l), 0);
	lead_wait(mcm_feeders_lead(l.f));
	lead_down(&l);
	receiver_down(&v);
}

static void a_leader_that_was_replaced_acknowledges_nothing(void **state)
{
	struct receiver v;
	uint64_t lsn, term;
	struct lead l;

	(void)state;
	lead_up(&l, 1);
	receiver_up(&v, 1);
	receiver_in_sync(&l, &v);
	assert_int_equal(lead_members(&l), 1);
	assert_int_equal(mcd_seat_replace(l.other, MC_NEVER, &term), 0);
	/* From now on the standby refuses this leader; the store lets it remove no member. */
	receiver_set(&v, error, -MC_EFEED);
	lsn = lead_put(&l, "k", 1);
	lead_wait(__atomic_load_n(&l.until, __ATOMIC_ACQUIRE) == 0);
	assert_false(mcm_feeders_have(l.f, lsn));
	assert_false(mcm_feeders_lead(l.f));
	assert_int_equal(lead_members(&l), 1);
	lead_down(&l);
	receiver_down(&v);
}

/* ---- the end ------------------------------------------------------------------------------------- */

static void *waits(void *arg)
{
	const struct lead *l = arg;

	mcm_feeders_wait(l->f, UINT64_MAX - 1);
	return NULL;
}

static void *stops(void *arg)
{
	lead_stop(arg);
	return NULL;
}

static void at_the_end_threads_wake_and_answers_do_not_leave(void **state)
{
	pthread_t waiter, stopper;
	struct receiver v;
	uint64_t lsn;
	struct lead l;

	(void)state;
	lead_up(&l, 1);
	receiver_up(&v, 1);
	receiver_in_sync(&l, &v);
	receiver_hold(&v);
	lsn = lead_put(&l, "k", 1);
	lead_wait(receiver_get(&v, held) == 1);
	assert_int_equal(pthread_create(&waiter, NULL, waits, &l), 0);
	assert_int_equal(pthread_create(&stopper, NULL, stops, &l), 0);
	/* It returns although the standby still has the part. */
	pthread_join(waiter, NULL);
	assert_false(mcm_feeders_have(l.f, lsn));
	assert_int_equal(lead_join(&l, "local:2#0000000000000002", nonce), 0);
	receiver_release(&v);
	pthread_join(stopper, NULL);
	assert_false(mcm_feeders_have(l.f, lsn));
	/* The members in the store stay: one of them leads next. */
	assert_int_equal(lead_members(&l), 1);
	lead_down(&l);
	receiver_down(&v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_standby_that_joins_gets_a_copy_and_becomes_a_member),
		cmocka_unit_test(a_standby_of_an_older_version_gets_no_names),
		cmocka_unit_test(twice_the_same_join_is_one_feed),
		cmocka_unit_test(a_bogus_standby_changes_nothing),
		cmocka_unit_test(answers_do_not_wait_for_a_standby_that_copies),
		cmocka_unit_test(a_standby_without_a_whole_copy_is_not_added),
		cmocka_unit_test(a_standby_that_confirms_after_half_a_promise_is_not_added),
		cmocka_unit_test(a_put_is_acknowledged_when_all_standbys_in_sync_have_it),
		cmocka_unit_test(a_silent_standby_is_removed_before_answers_go_on),
		cmocka_unit_test(a_standby_whose_process_ended_may_join_again_at_once),
		cmocka_unit_test(answers_leave_only_while_the_lease_and_all_promises_last),
		cmocka_unit_test(a_standby_whose_promises_are_always_over_is_removed),
		cmocka_unit_test(a_leader_that_was_replaced_acknowledges_nothing),
		cmocka_unit_test(at_the_end_threads_wake_and_answers_do_not_leave),
	};

	return cmocka_run_group_tests(tests, jx_setup, jx_teardown);
}
