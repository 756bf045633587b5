/* SPDX-License-Identifier: Apache-2.0
 * test_meta_seat.c - leases of leaders on a store in memory with a clock that only the test moves: terms, expiry, lost
 * and late answers, two candidates.  tests/integ/meta_seat.sh has etcd and redis. */
#include <config.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "meta/leader.h"
#include "meta/meta_i.h"
#include "meta/seat.h"
#include "tests/unit/fake_store.h"

#define MS MC_NS_PER_MS
#define TTL_MS 1000u
#define LEASE_MS (TTL_MS - TTL_MS / 20)		/* by the leader's own clock */
#define LEADER_KEY "mooncake-store/c/master_view"
#define STATE_KEY "mooncake-store/c/master_state"

static struct fake_store *store;
static struct mcd_seat *a, *b;

static struct mcd_seat *seat_open(const char *client)
{
	char conn[64], name[64];
	struct mcd_seat_conf conf = { .conn = conn, .cluster = "c", .name = name, .ttl_ms = TTL_MS, .http_port = 9003 };
	struct mcd_seat *s;

	snprintf(conn, sizeof(conn), "fake://s/%s", client);
	snprintf(name, sizeof(name), "%s:1#0", client);
	assert_int_equal(mcd_seat_open(&conf, &s), 0);
	return s;
}

static int setup(void **state)
{
	(void)state;
	mc_clock_fake(1000 * MC_NS_PER_SEC);
	store = fake_store_new("s");
	a = seat_open("a");
	b = seat_open("b");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	mcd_seat_close(a);
	mcd_seat_close(b);
	fake_store_free(store);
	mc_clock_real();
	return 0;
}

static void pass(uint64_t ms)
{
	mc_clock_advance(ms * MS);
}

static bool leads(const struct mcd_seat *s)
{
	return mc_now_ns() < mcd_seat_until(s);
}

static struct mcd_seat_view look(struct mcd_seat *s)
{
	struct mcd_seat_view v;

	assert_int_equal(mcd_seat_look(s, &v, MC_NEVER), 0);
	return v;
}

/* The result of an attempt to lead, and the term. */
static int take(struct mcd_seat *s, uint64_t *ret_term)
{
	(void)look(s);
	return mcd_seat_take(s, 0, MC_NEVER, ret_term);
}

static void takes(struct mcd_seat *s, uint64_t term)
{
	uint64_t is = 0;

	assert_int_equal(take(s, &is), 0);
	assert_int_equal(is, term);
	assert_true(leads(s));
}

static void sees(struct mcd_seat *s, const char *leader, uint64_t term, unsigned n)
{
	struct mcd_seat_view v = look(s);

	assert_string_equal(v.leader, leader);
	assert_int_equal(v.term, term);
	assert_int_equal(v.n, n);
}

static int set_members(struct mcd_seat *s, const char *other)
{
	const char *member[] = { "a:1#0", other };

	return mcd_seat_set_members(s, member, other ? 2 : 1, MC_NEVER);
}

/* ---- take --------------------------------------------------------------------------------------- */

static void the_first_master_of_a_cluster_leads_with_term_1(void **state)
{
	struct mcd_seat_view v = look(a);

	(void)state;
	assert_false(v.exists);
	assert_int_equal(v.term, 0);
	assert_string_equal(v.leader, "");
	takes(a, 1);
	assert_int_equal(mcd_seat_until(a), mc_now_ns() + LEASE_MS * MS);
	v = look(b);
	assert_true(v.exists);
	assert_int_equal(v.n, 1);
	assert_string_equal(v.member[0], "a:1#0");
	sees(b, "a:1#0", 1, 1);
}

static void of_two_candidates_with_the_same_view_one_leads(void **state)
{
	uint64_t term = 77;

	(void)state;
	(void)look(a);
	(void)look(b);
	assert_int_equal(mcd_seat_take(a, 0, MC_NEVER, &term), 0);
	assert_int_equal(mcd_seat_take(b, 0, MC_NEVER, &term), -EAGAIN);
	assert_int_equal(term, 1);
	assert_true(leads(a) && !leads(b));
	/* Nor after the lease has ended, with the old view: the state has changed. */
	pass(TTL_MS);
	assert_int_equal(mcd_seat_take(b, 0, MC_NEVER, &term), -EAGAIN);
	takes(b, 2);
	assert_false(leads(a));
}

static void a_lost_answer_to_take_makes_no_leader_until_the_lease_ends(void **state)
{
	uint64_t term;

	(void)state;
	fake_store_lose_answers(store, "a", 1);
	assert_int_equal(take(a, &term), -ETIMEDOUT);
	assert_false(leads(a));
	/* The store has given the lease to a, which does not know its text. */
	sees(b, "a:1#0", 1, 1);
	assert_int_equal(take(b, &term), -EAGAIN);
	assert_int_equal(take(a, &term), -EAGAIN);
	assert_int_equal(mcd_seat_renew(a, MC_NEVER), -MC_EOWNER);
	assert_int_equal(set_members(a, "b:1#0"), -MC_EOWNER);
	pass(TTL_MS);
	takes(a, 2);
}

static void a_request_that_does_not_arrive_changes_nothing(void **state)
{
	uint64_t term, calls = fake_store_calls(store);

	(void)state;
	(void)look(a);
	fake_store_cut(store, "a", true);
	assert_int_equal(mcd_seat_take(a, 0, MC_NEVER, &term), -ECONNREFUSED);
	assert_int_equal(mcd_seat_look(a, &(struct mcd_seat_view){ 0 }, MC_NEVER), -ECONNREFUSED);
	assert_int_equal(fake_store_calls(store), calls + 2);	/* of the first look */
	assert_false(fake_store_has(store, LEADER_KEY) || fake_store_has(store, STATE_KEY));
	takes(b, 1);
	fake_store_cut(store, "a", false);
	assert_int_equal(take(a, &term), -EAGAIN);
}

static void a_lease_counts_from_before_its_request(void **state)
{
	uint64_t begin = mc_now_ns(), term;

	(void)state;
	(void)look(a);
	fake_store_delay(store, "a", 100 * MS, 200 * MS);
	assert_int_equal(mcd_seat_take(a, 0, MC_NEVER, &term), 0);
	assert_int_equal(mc_now_ns(), begin + 300 * MS);
	assert_int_equal(mcd_seat_until(a), begin + LEASE_MS * MS);
	/* An answer after the end of the lease: the store has it for 100 ms more, the leader not any more. */
	fake_store_delay(store, "a", 0, TTL_MS * MS);
	assert_int_equal(mcd_seat_renew(a, MC_NEVER), 0);
	assert_false(leads(a));
}

/* ---- renew -------------------------------------------------------------------------------------- */

static void a_renewed_lease_lasts(void **state)
{
	uint64_t term;

	(void)state;
	takes(a, 1);
	for (unsigned i = 0; i < 10; i++) {
		pass(LEASE_MS - 1);
		assert_true(leads(a));
		assert_int_equal(mcd_seat_renew(a, MC_NEVER), 0);
		assert_int_equal(mcd_seat_until(a), mc_now_ns() + LEASE_MS * MS);
		assert_int_equal(take(b, &term), -EAGAIN);
	}
}

static void a_leader_stops_before_the_store_gives_its_lease_to_another(void **state)
{
	uint64_t term;

	(void)state;
	takes(a, 1);
	pass(LEASE_MS);
	assert_false(leads(a));
	assert_int_equal(take(b, &term), -EAGAIN);
	pass(TTL_MS - LEASE_MS);
	sees(b, "", 1, 1);
	takes(b, 2);
	assert_int_equal(mcd_seat_renew(a, MC_NEVER), -MC_EOWNER);
	assert_int_equal(mcd_seat_until(a), 0);
	assert_int_equal(set_members(a, NULL), -MC_EOWNER);
	sees(a, "b:1#0", 2, 1);
}

static void a_renewal_without_an_answer_leaves_the_lease_as_it_was(void **state)
{
	uint64_t until;

	(void)state;
	takes(a, 1);
	until = mcd_seat_until(a);
	pass(100);
	fake_store_lose_answers(store, "a", 1);
	assert_int_equal(mcd_seat_renew(a, MC_NEVER), -ETIMEDOUT);
	fake_store_cut(store, "a", true);
	assert_int_equal(mcd_seat_renew(a, MC_NEVER), -ECONNREFUSED);
	fake_store_cut(store, "a", false);
	fake_store_delay(store, "a", 500 * MS, 0);
	assert_int_equal(mcd_seat_renew(a, mc_deadline_ms(400)), -ETIMEDOUT);
	assert_int_equal(mcd_seat_until(a), until);
	assert_true(leads(a));
	assert_int_equal(mcd_seat_renew(a, MC_NEVER), 0);
	assert_true(mcd_seat_until(a) > until);
}

static void a_renewal_that_arrives_after_the_end_is_refused(void **state)
{
	(void)state;
	takes(a, 1);
	fake_store_delay(store, "a", TTL_MS * MS, 0);
	assert_int_equal(mcd_seat_renew(a, MC_NEVER), -MC_EOWNER);
	assert_int_equal(mcd_seat_until(a), 0);
}

static void a_removed_key_ends_the_lease(void **state)
{
	(void)state;
	takes(a, 1);
	fake_store_remove(store, LEADER_KEY);
	assert_int_equal(mcd_seat_renew(a, MC_NEVER), -MC_EOWNER);
	assert_false(leads(a));
	takes(b, 2);
}

static void a_store_that_lost_its_keys_gives_no_earlier_term(void **state)
{
	uint64_t term;

	(void)state;
	takes(a, 1);
	assert_int_equal(mcd_seat_leave(a, MC_NEVER), 0);
	takes(b, 2);
	fake_store_erase(store);
	assert_int_equal(mcd_seat_renew(b, MC_NEVER), -MC_EOWNER);
	assert_false(look(a).exists);
	/* a has seen term 2 and remembers it (identity.h). */
	assert_int_equal(mcd_seat_take(a, 3, MC_NEVER, &term), 0);
	assert_int_equal(term, 3);
	sees(b, "a:1#0", 3, 1);
}

/* ---- members ------------------------------------------------------------------------------------ */

static void only_the_leader_sets_the_members(void **state)
{
	struct mcd_seat_view v;

	(void)state;
	assert_int_equal(set_members(b, "b:1#0"), -MC_EOWNER);
	takes(a, 1);
	assert_int_equal(set_members(a, "b:1#0"), 0);
	v = look(b);
	assert_int_equal(v.n, 2);
	assert_string_equal(v.member[1], "b:1#0");
	assert_int_equal(set_members(b, "b:1#0"), -MC_EOWNER);
	assert_int_equal(set_members(a, "x,y"), -EINVAL);
	/* The members stay when another master leads, and when none does. */
	assert_int_equal(mcd_seat_leave(a, MC_NEVER), 0);
	sees(b, "", 1, 2);
	takes(b, 2);
	sees(a, "b:1#0", 2, 2);
}

static void a_repeated_change_of_the_members_succeeds_if_the_first_did(void **state)
{
	(void)state;
	takes(a, 1);
	fake_store_lose_answers(store, "a", 1);
	assert_int_equal(set_members(a, "b:1#0"), -ETIMEDOUT);
	assert_int_equal(set_members(a, "b:1#0"), 0);
	sees(b, "a:1#0", 1, 2);
	assert_true(leads(a));
	/* Another change instead would replace a state that the leader has not seen: its term ends. */
	fake_store_lose_answers(store, "a", 1);
	assert_int_equal(set_members(a, NULL), -ETIMEDOUT);
	assert_int_equal(set_members(a, "c:1#0"), -MC_EOWNER);
	assert_false(leads(a));
	sees(b, "a:1#0", 1, 1);
}

/* ---- replace and leave -------------------------------------------------------------------------- */

static void a_leader_is_replaced_only_as_it_was_seen(void **state)
{
	uint64_t term = 0;

	(void)state;
	(void)look(b);
	assert_int_equal(mcd_seat_replace(b, MC_NEVER, &term), -EAGAIN);
	takes(a, 1);
	(void)look(b);
	assert_int_equal(set_members(a, "b:1#0"), 0);
	assert_int_equal(mcd_seat_replace(b, MC_NEVER, &term), -EAGAIN);
	(void)look(b);
	assert_int_equal(mcd_seat_replace(b, MC_NEVER, &term), 0);
	assert_int_equal(term, 2);
	assert_true(leads(b));
	/* By its own clock a leads; the store says otherwise as soon as it is asked. */
	assert_true(leads(a));
	assert_int_equal(set_members(a, NULL), -MC_EOWNER);
	assert_false(leads(a));
	sees(a, "b:1#0", 2, 2);
}

static void a_lost_answer_to_replace_ends_both_terms(void **state)
{
	uint64_t term;

	(void)state;
	takes(a, 1);
	(void)look(b);
	fake_store_lose_answers(store, "b", 1);
	assert_int_equal(mcd_seat_replace(b, MC_NEVER, &term), -ETIMEDOUT);
	assert_false(leads(b));
	assert_int_equal(mcd_seat_renew(a, MC_NEVER), -MC_EOWNER);
	assert_false(leads(a));
	pass(TTL_MS);
	takes(b, 3);
}

static void a_lease_that_was_given_back_is_free_at_once(void **state)
{
	(void)state;
	takes(a, 1);
	assert_int_equal(mcd_seat_leave(a, MC_NEVER), 0);
	assert_false(leads(a));
	assert_int_equal(mcd_seat_leave(a, MC_NEVER), 0);
	takes(b, 2);
	assert_int_equal(mcd_seat_leave(a, MC_NEVER), 0);
	sees(a, "b:1#0", 2, 1);
	/* A lost answer: the leader has stopped before it asked. */
	fake_store_lose_answers(store, "b", 1);
	assert_int_equal(mcd_seat_leave(b, MC_NEVER), -ETIMEDOUT);
	assert_false(leads(b));
	takes(a, 3);
}

static void the_end_of_a_replaced_leader_leaves_the_next_lease(void **state)
{
	uint64_t term;

	(void)state;
	takes(a, 1);
	(void)look(b);
	assert_int_equal(mcd_seat_replace(b, MC_NEVER, &term), 0);
	assert_int_equal(mcd_seat_leave(a, MC_NEVER), 0);
	sees(a, "b:1#0", 2, 1);
	assert_int_equal(mcd_seat_renew(b, MC_NEVER), 0);
}

/* ---- texts and kinds ---------------------------------------------------------------------------- */

static void an_unknown_content_is_an_error(void **state)
{
	static const char *const bad[] = {
		"", "x", "{}", "[]", "{\"term\":0,\"members\":[]}", "{\"term\":1}", "{\"term\":1,\"members\":[1]}",
		"{\"term\":1,\"members\":[\"a b\"]}", "{\"term\":-1,\"members\":[]}",
	};
	struct mcd_seat_view v;

	(void)state;
	takes(a, 1);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		fake_store_put(store, STATE_KEY, bad[i]);
		assert_int_equal(mcd_seat_look(b, &v, MC_NEVER), -EINVAL);
	}
	fake_store_put(store, STATE_KEY, "{\"term\":1,\"members\":[]}");
	assert_int_equal(look(b).n, 0);
	for (unsigned i = 0; i < 4; i++) {
		fake_store_put(store, LEADER_KEY, bad[i]);
		assert_int_equal(mcd_seat_look(b, &v, MC_NEVER), -EINVAL);
	}
}

static void a_client_finds_the_leader(void **state)
{
	struct mcd_leader *l;
	char addr[32] = "";
	int port = 0;

	(void)state;
	setenv("MC_STORE_CLUSTER_ID", "c", 1);
	assert_int_equal(mcd_leader_open("fake://s/client", &l), 0);
	assert_int_equal(mcd_leader_find(l, addr, sizeof(addr), &port, MC_NEVER), -ENOENT);
	takes(a, 1);
	assert_int_equal(mcd_leader_find(l, addr, sizeof(addr), &port, MC_NEVER), 0);
	assert_string_equal(addr, "a:1");
	assert_int_equal(port, 9003);
	assert_int_equal(mcd_leader_find(l, addr, 3, &port, MC_NEVER), -EINVAL);
	pass(TTL_MS);
	assert_int_equal(mcd_leader_find(l, addr, sizeof(addr), &port, MC_NEVER), -ENOENT);
	mcd_leader_close(l);
}

static void the_kind_decides_what_an_address_means(void **state)
{
	static const struct { const char *type, *where, *conn; } good[] = {
		{ "etcd", "h:1", "etcd://h:1" }, { "etcd", "http://h:1", "etcd://http://h:1" },
		{ "etcd", "etcd://u:p@h:1", "etcd://u:p@h:1" }, { "redis", "h:1", "redis://h:1" },
		{ "redis", "redis://h:1/2", "redis://h:1/2" }, { "fake", "s/a", "fake://s/a" },
	};
	static const char *const bad[] = { "k8s", "http", "", "etc", "etcd:" };
	char *conn;

	(void)state;
	for (unsigned i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(mcd_seat_conn(good[i].type, good[i].where, &conn), 0);
		assert_string_equal(conn, good[i].conn);
		free(conn);
	}
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(mcd_seat_conn(bad[i], "h:1", &conn), -EINVAL);
	assert_true(mcd_leader_is_store("etcd://h:1") && mcd_leader_is_store("redis://h:1"));
	assert_false(mcd_leader_is_store("h:1") || mcd_leader_is_store("http://h:1") || mcd_leader_is_store("etcd:h"));
}

static void a_kind_without_leases_refuses_them(void **state)
{
	static const struct mcd_ops *const kind[] = { &mcd_http, &mcd_https };
	const struct mcd_wait w = { .deadline = MC_NEVER };
	const struct mcd_turn t = { .leader_key = "l", .state_key = "s", .mine = "m", .state = "t", .ttl_ms = 1 };
	struct mcd_seat_conf conf = { .cluster = "c", .name = "a:1#0", .ttl_ms = TTL_MS };
	struct mcd_seat *s;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct mcd_backend *backend;

		conf.conn = i ? "https://127.0.0.1:1/metadata" : "http://127.0.0.1:1/metadata";
		assert_int_equal(mcd_seat_open(&conf, &s), -EINVAL);
		assert_non_null(strstr(mc_err_detail(-EINVAL), "servers have no leases: use etcd or redis"));
		assert_int_equal(mcd_backend_open(conf.conn, &(const struct mcd_open){ 1, NULL }, &backend), 0);
		assert_int_equal(kind[i]->turn(backend, &t, &w), -EINVAL);
		assert_int_equal(kind[i]->prolong(backend, "l", "m", 1, &w), -EINVAL);
		assert_int_equal(kind[i]->leave(backend, "l", "m", &w), -EINVAL);
		kind[i]->close(backend);
	}
}

static void a_seat_needs_a_name_a_cluster_and_time(void **state)
{
	const struct mcd_seat_conf good = { .conn = "fake://s/a", .cluster = "c", .name = "a:1#0", .ttl_ms = TTL_MS };
	struct mcd_seat_conf conf;
	char cluster[MCD_SEAT_CLUSTER_MAX + 2];
	struct mcd_seat *s;

	(void)state;
	memset(cluster, 'c', sizeof(cluster));
	cluster[sizeof(cluster) - 1] = 0;
	conf = good, conf.name = "a,b";
	assert_int_equal(mcd_seat_open(&conf, &s), -EINVAL);
	conf = good, conf.cluster = "";
	assert_int_equal(mcd_seat_open(&conf, &s), -EINVAL);
	conf = good, conf.cluster = cluster;
	assert_int_equal(mcd_seat_open(&conf, &s), -EINVAL);
	conf = good, conf.ttl_ms = 99;
	assert_int_equal(mcd_seat_open(&conf, &s), -EINVAL);
	conf = good, conf.conn = "fake://other/a";
	assert_int_equal(mcd_seat_open(&conf, &s), -EINVAL);
	conf = good, conf.conn = "P2PHANDSHAKE";
	assert_int_equal(mcd_seat_open(&conf, &s), -EINVAL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_first_master_of_a_cluster_leads_with_term_1),
		TEST(of_two_candidates_with_the_same_view_one_leads),
		TEST(a_lost_answer_to_take_makes_no_leader_until_the_lease_ends),
		TEST(a_request_that_does_not_arrive_changes_nothing),
		TEST(a_lease_counts_from_before_its_request),
		TEST(a_renewed_lease_lasts),
		TEST(a_leader_stops_before_the_store_gives_its_lease_to_another),
		TEST(a_renewal_without_an_answer_leaves_the_lease_as_it_was),
		TEST(a_renewal_that_arrives_after_the_end_is_refused),
		TEST(a_removed_key_ends_the_lease),
		TEST(a_store_that_lost_its_keys_gives_no_earlier_term),
		TEST(only_the_leader_sets_the_members),
		TEST(a_repeated_change_of_the_members_succeeds_if_the_first_did),
		TEST(a_leader_is_replaced_only_as_it_was_seen),
		TEST(a_lost_answer_to_replace_ends_both_terms),
		TEST(a_lease_that_was_given_back_is_free_at_once),
		TEST(the_end_of_a_replaced_leader_leaves_the_next_lease),
		TEST(an_unknown_content_is_an_error),
		TEST(a_client_finds_the_leader),
		TEST(the_kind_decides_what_an_address_means),
		TEST(a_kind_without_leases_refuses_them),
		TEST(a_seat_needs_a_name_a_cluster_and_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
