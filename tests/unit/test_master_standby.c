/* SPDX-License-Identifier: Apache-2.0
 * test_master_standby.c - a standby: which feeds it takes, how long it promises not to serve, and that a master that
 * starts with its copy has the objects of the leader.  test_master_gate.c has the feeds that it refuses over a
 * socket. */
#include <config.h>

#include "tests/unit/test_master_lead_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/sys/clock.h"
#include "master/ha/standby.h"
#include "master/journal/journal_i.h"
#include "proto/rpc_client.h"

#define NAME "local:1#1111111111111111"
#define TERM 1u
#define JOIN_OPEN_MS 10000u

/* ---- a standby, and messages of a leader that the test writes ------------------------------------- */

static void remove_files(const char *dir)
{
	char path[512];
	struct dirent *e;
	DIR *d = opendir(dir);

	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		if (*e->d_name != '.')
			unlink(path);
	}
	if (d)
		closedir(d);
}

static struct mcm_standby *standby_start(const char *cluster)
{
	static const char *const none[] = { NULL };
	const struct mcm_standby_conf conf = {
		.addrs = none, .local_name = "1", .copy = { .dir = jx_copy, .cluster = cluster },
	};
	struct mcm_standby *s;

	assert_int_equal(mcm_standby_start(&conf, &s), 0);
	return s;
}

/* With an empty directory, in the term of the store. */
static struct mcm_standby *standby_up(const char *cluster)
{
	struct mcm_standby *s;

	snprintf(jx_copy, sizeof(jx_copy), "%s.copy", jx_dir);
	mkdir(jx_copy, 0700);
	remove_files(jx_copy);
	s = standby_start(cluster);
	assert_false(mcm_standby_whole(s));
	mcm_standby_term(s, TERM);
	return s;
}

static int setup_alone(void **state)
{
	mc_clock_fake(1000 * MC_NS_PER_SEC);
	*state = standby_up("c");
	return 0;
}

static int teardown_alone(void **state)
{
	mcm_standby_stop(*state);
	mc_clock_real();
	return 0;
}

static struct mcp_client *leader_of(uint64_t id)
{
	const struct mcp_client_conf conf = {
		.addrs = "local:1", .channel = MCP_CHANNEL_CONTROL, .software = "test", .client = { id, 1 },
	};
	struct mcp_client *c;

	assert_int_equal(mcp_client_open(&conf, &c), 0);
	return c;
}

static struct mcp_client *leader(void)
{
	return leader_of(MCM_STANDBY_LEADER_ID);
}

static int feed(struct mcp_client *c, uint64_t term, struct mcp_id nonce, uint32_t promise_ms, bool begin)
{
	const struct mcp_feed rq = {
		.term = term, .nonce = nonce, .receiver = fx_bytes(mcp_id_zero(nonce) ? "" : NAME),
		.promise_ms = promise_ms, .begin = begin,
	};
	struct mcp_feed_reply reply;
	int r = mcp_call(c, MCP_FEED, &rq, &reply, NULL, MC_NEVER);

	if (r == 0 && !mcp_id_zero(nonce))
		assert_true(mcp_id_eq(reply.nonce, nonce));
	return r;
}

static const struct mcp_id none = { 0, 0 };

/* When the last promise ends, from now; UINT64_MAX: with the lease. */
static uint64_t promise_left_ms(struct mcm_standby *s)
{
	uint64_t until = mcm_standby_refuse(s);

	mcm_standby_accept(s);
	if (until == MC_NEVER)
		return UINT64_MAX;
	return until > mc_now_ns() ? (until - mc_now_ns()) / MC_NS_PER_MS : 0;
}

static void a_join_is_open_for_one_feed_and_some_time(void **state)
{
	struct mcm_standby *s = *state;
	struct mcp_id old, nonce[9];
	struct mcp_client *c = leader();

	/* No JOIN was sent at all. */
	assert_int_equal(feed(c, TERM, (struct mcp_id){ 1, 2 }, 150, false), -MC_EFEED);
	old = mcm_standby_join(s, NAME);
	mc_clock_advance(JOIN_OPEN_MS * MC_NS_PER_MS);
	assert_int_equal(feed(c, TERM, old, 150, false), -MC_EFEED);
	/* The last eight are open. */
	for (unsigned i = 0; i < 9; i++)
		nonce[i] = mcm_standby_join(s, NAME);
	assert_int_equal(feed(c, TERM, nonce[0], 150, false), -MC_EFEED);
	assert_int_equal(mcm_standby_fed(s), 0);
	assert_int_equal(feed(c, TERM, nonce[1], 150, false), 0);
	assert_int_equal(mcm_standby_fed(s), mc_now_ns());
	/* The feed closes the others; its connection needs no nonce any more. */
	assert_int_equal(feed(c, TERM, none, 150, false), 0);
	mcp_client_reset(c);
	assert_int_equal(feed(c, TERM, nonce[8], 150, false), -MC_EFEED);
	mcp_client_close(c);
}

static void only_the_term_of_the_store_feeds(void **state)
{
	struct mcm_standby *s = *state;
	struct mcp_client *old = leader(), *next = leader();
	struct mcp_id nonce = mcm_standby_join(s, NAME);

	assert_int_equal(feed(old, TERM, nonce, 150, true), 0);
	/* Another master leads: the connection that was the feed is none any more, whatever term it says. */
	mcm_standby_term(s, TERM + 1);
	assert_int_equal(feed(old, TERM, none, 150, false), -MC_EFEED);
	assert_int_equal(feed(old, TERM + 1, none, 150, false), -MC_EFEED);
	nonce = mcm_standby_join(s, NAME);
	assert_int_equal(feed(old, TERM, nonce, 150, false), -MC_EFEED);
	assert_int_equal(feed(next, TERM + 2, nonce, 150, false), -MC_EFEED);
	assert_int_equal(feed(next, TERM + 1, nonce, 150, true), 0);
	assert_int_equal(feed(next, TERM + 1, none, 150, false), 0);
	/* The same term again changes nothing. */
	mcm_standby_term(s, TERM + 1);
	assert_int_equal(feed(next, TERM + 1, none, 150, false), 0);
	mcp_client_close(old);
	mcp_client_close(next);
}

static void a_client_is_refused_as_if_nothing_listened(void **state)
{
	struct mcm_standby *s = *state;
	struct mcp_client *c = leader_of(1);

	assert_int_equal(feed(c, TERM, mcm_standby_join(s, NAME), 150, false), -MC_ERPC);
	mcp_client_close(c);
}

/* ---- promises ------------------------------------------------------------------------------------ */

static void each_confirmation_promises_from_its_arrival(void **state)
{
	struct mcm_standby *s = *state;
	struct mcp_client *c = leader();

	assert_int_equal(promise_left_ms(s), 0);
	assert_int_equal(feed(c, TERM, mcm_standby_join(s, NAME), 150, false), 0);
	assert_int_equal(promise_left_ms(s), 150);
	mc_clock_advance(100 * MC_NS_PER_MS);
	assert_int_equal(promise_left_ms(s), 50);
	assert_int_equal(feed(c, TERM, none, 150, false), 0);
	assert_int_equal(promise_left_ms(s), 150);
	/* The leader gives a longer promise up before it sends the next part. */
	assert_int_equal(feed(c, TERM, none, 2000, false), 0);
	assert_int_equal(promise_left_ms(s), 2000);
	assert_int_equal(feed(c, TERM, none, 150, false), 0);
	assert_int_equal(promise_left_ms(s), 150);
	mcp_client_close(c);
}

static void a_longer_promise_outlives_its_connection(void **state)
{
	struct mcm_standby *s = *state;
	struct mcp_client *first = leader(), *second = leader();

	assert_int_equal(feed(first, TERM, mcm_standby_join(s, NAME), 2000, false), 0);
	/* The leader may still count on it, unless it said otherwise on the same connection. */
	assert_int_equal(feed(second, TERM, mcm_standby_join(s, NAME), 150, false), 0);
	assert_int_equal(promise_left_ms(s), 2000);
	/* The leader of another term has ended. */
	mcm_standby_term(s, TERM + 1);
	assert_int_equal(feed(second, TERM + 1, mcm_standby_join(s, NAME), 150, false), 0);
	assert_int_equal(promise_left_ms(s), 150);
	mcp_client_close(first);
	mcp_client_close(second);
}

static void a_standby_that_takes_over_confirms_nothing(void **state)
{
	struct mcm_standby *s = *state;
	struct mcp_client *c = leader();

	assert_int_equal(feed(c, TERM, mcm_standby_join(s, NAME), 150, true), 0);
	assert_int_equal(mcm_standby_refuse(s), mc_now_ns() + 150 * MC_NS_PER_MS);
	assert_int_equal(feed(c, TERM, none, 150, false), -MC_EMODE);
	mc_clock_advance(100 * MC_NS_PER_MS);
	assert_int_equal(promise_left_ms(s), 50);
	mcm_standby_accept(s);
	assert_int_equal(feed(c, TERM, none, 150, false), 0);
	mcp_client_close(c);
}

static void the_end_of_the_leader_s_connection_is_a_sign(void **state)
{
	struct mcm_standby *s = *state;
	struct mcp_client *c = leader();
	uint64_t term = 0, since = 0;

	assert_false(mcm_standby_lost(s, &term, &since));
	assert_int_equal(feed(c, TERM, mcm_standby_join(s, NAME), 150, false), 0);
	assert_false(mcm_standby_lost(s, &term, &since));
	mc_clock_advance(MC_NS_PER_MS);
	mcp_client_reset(c);
	assert_true(mcm_standby_lost(s, &term, &since));
	assert_int_equal(term, TERM);
	assert_int_equal(since, mc_now_ns());
	/* It has connected again. */
	assert_int_equal(feed(c, TERM, mcm_standby_join(s, NAME), 150, false), 0);
	assert_false(mcm_standby_lost(s, &term, &since));
	/* A leader that counts on no promise answers until its lease ends, so it is not replaced before. */
	assert_int_equal(feed(c, TERM, none, 0, false), 0);
	assert_int_equal(promise_left_ms(s), UINT64_MAX);
	mcp_client_close(c);
	assert_false(mcm_standby_lost(s, &term, &since));
}

static void the_end_of_another_connection_is_no_sign(void **state)
{
	struct mcm_standby *s = *state;
	struct mcp_client *c = leader(), *other = leader();
	uint64_t term, since;

	assert_int_equal(feed(c, TERM, mcm_standby_join(s, NAME), 150, false), 0);
	assert_int_equal(feed(other, TERM, (struct mcp_id){ 1, 2 }, 150, false), -MC_EFEED);
	mcp_client_close(other);
	assert_false(mcm_standby_lost(s, &term, &since));
	assert_int_equal(feed(c, TERM, none, 150, false), 0);
	mcp_client_close(c);
}

/* ---- copies of a leader -------------------------------------------------------------------------- */

static void standby_in_sync(struct lead *l, struct mcm_standby *s)
{
	lead_wait(lead_join(l, NAME, mcm_standby_join(s, NAME)) == 0 && mcm_feeders_in_sync(l->f) == 1);
	assert_true(mcm_standby_whole(s));
	assert_int_equal(lead_members(l), 1);
}

/* The standby takes over: a master that starts with its directory has the objects of the leader. */
static void takes_over(struct lead *l, struct mcm_standby *s, unsigned objects)
{
	struct jx_dump is = jx_dump(l->fx.m), was;
	struct mcm *m;

	mcm_standby_stop(s);
	m = jx_open_copy(&l->fx, 0);
	was = jx_dump(m);
	jx_same(&is, &was);
	assert_int_equal(was.n, objects);
	jx_dump_free(&is);
	jx_dump_free(&was);
	mcm_core_free(m);
}

static void a_standby_that_takes_over_has_every_acknowledged_object(void **state)
{
	struct mcm_standby *s;
	struct lead l;

	(void)state;
	lead_up(&l, 1);
	lead_put(&l, "before", 40);
	s = standby_up(l.fx.conf.cluster_id);
	standby_in_sync(&l, s);
	lead_put(&l, "after", 40);
	assert_int_equal(fx_remove(&l.fx, "before0", 0), 0);
	/* Returns when the standby has the records. */
	jx_answer(&l.fx);
	takes_over(&l, s, 79);
	lead_down(&l);
}

static void a_standby_of_an_empty_pool_takes_over(void **state)
{
	struct mcm_standby *s;
	struct lead l;

	(void)state;
	lead_up(&l, 0);
	s = standby_up(l.fx.conf.cluster_id);
	standby_in_sync(&l, s);
	takes_over(&l, s, 0);
	lead_down(&l);
}

static void a_standby_of_a_pool_with_directories_only_takes_over(void **state)
{
	static const char *const dir[] = { "a/", "a/b/", "a/b/c/", "d/" };
	struct mcm_standby *s = NULL;
	struct lead l;

	(void)state;
	lead_up(&l, 0);
	for (unsigned i = 0; i < 4; i++) {
		/* Half of them before the copy. */
		if (i == 2) {
			s = standby_up(l.fx.conf.cluster_id);
			standby_in_sync(&l, s);
		}
		assert_int_equal(fx_put(&l.fx, dir[i], 0, MCP_PUT_COMMIT), 0);
	}
	jx_answer(&l.fx);
	takes_over(&l, s, 4);
	lead_down(&l);
}

static void a_standby_that_starts_again_has_the_state_of_its_last_life(void **state)
{
	struct mcm_standby *s;
	struct lead l;

	(void)state;
	lead_up(&l, 1);
	lead_put(&l, "k", 10);
	s = standby_up(l.fx.conf.cluster_id);
	standby_in_sync(&l, s);
	mcm_standby_stop(s);
	/* Its copy lacks these records, but is whole. */
	lead_put(&l, "more", 3);
	lead_wait(lead_members(&l) == 0);
	s = standby_start(l.fx.conf.cluster_id);
	assert_true(mcm_standby_whole(s));
	mcm_standby_term(s, TERM);
	standby_in_sync(&l, s);
	jx_answer(&l.fx);
	takes_over(&l, s, 13);
	lead_down(&l);
}

/* The leader of an old term has a standby that knows the new one. */
static void a_standby_of_the_next_term_has_no_later_record_of_the_old_leader(void **state)
{
	struct jx_dump before, copy;
	struct mcm_standby *s;
	uint64_t lsn, term;
	struct lead l;
	struct mcm *m;

	(void)state;
	lead_up(&l, 1);
	lead_put(&l, "k", 10);
	s = standby_up(l.fx.conf.cluster_id);
	standby_in_sync(&l, s);
	before = jx_dump(l.fx.m);
	assert_int_equal(mcd_seat_replace(l.other, MC_NEVER, &term), 0);
	mcm_standby_term(s, term);
	lsn = lead_put(&l, "late", 1);
	lead_wait(__atomic_load_n(&l.until, __ATOMIC_ACQUIRE) == 0);
	assert_false(mcm_feeders_have(l.f, lsn));
	assert_false(mcm_feeders_lead(l.f));
	mcm_standby_stop(s);
	m = jx_open_copy(&l.fx, 0);
	copy = jx_dump(m);
	jx_same(&before, &copy);
	jx_dump_free(&before);
	jx_dump_free(&copy);
	mcm_core_free(m);
	lead_down(&l);
}

#define ALONE(name) cmocka_unit_test_setup_teardown(name, setup_alone, teardown_alone)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(a_join_is_open_for_one_feed_and_some_time),
		ALONE(only_the_term_of_the_store_feeds),
		ALONE(a_client_is_refused_as_if_nothing_listened),
		ALONE(each_confirmation_promises_from_its_arrival),
		ALONE(a_longer_promise_outlives_its_connection),
		ALONE(a_standby_that_takes_over_confirms_nothing),
		ALONE(the_end_of_the_leader_s_connection_is_a_sign),
		ALONE(the_end_of_another_connection_is_no_sign),
		cmocka_unit_test(a_standby_that_takes_over_has_every_acknowledged_object),
		cmocka_unit_test(a_standby_of_an_empty_pool_takes_over),
		cmocka_unit_test(a_standby_of_a_pool_with_directories_only_takes_over),
		cmocka_unit_test(a_standby_that_starts_again_has_the_state_of_its_last_life),
		cmocka_unit_test(a_standby_of_the_next_term_has_no_later_record_of_the_old_leader),
	};

	return cmocka_run_group_tests(tests, jx_setup, jx_teardown);
}
