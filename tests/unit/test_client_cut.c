/* SPDX-License-Identifier: Apache-2.0
 * test_client_cut.c - the connection to the master breaks at each message, before the message or
 * before its reply arrives: each call has the outcome that it reports, and no put or pin is left
 * over. */
#include <config.h>

#include "tests/unit/test_client_fixture.h"
#include "tests/unit/test_client_relay.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/direct/direct.h"
#include "common/cleanup.h"
#include "common/sys/clock.h"
#include "common/fault.h"
#include "common/metrics.h"
#include "common/net/net.h"
#include "proto/codec.h"

/* ---- the tests ---- */

static mcs_t *s, *direct;

static void up(void (*tweak)(struct mcm_conf *conf))
{
	fixture_master(tweak);
	relay_start();
	direct = fixture_store(32 * MIB);
	s = fixture_store_with(0, 0, relay.addr);
}

static int setup(void **state)
{
	up(NULL);
	return 0;
}

static int teardown(void **state)
{
	mcs_close(s);
	mcs_close(direct);
	relay_stop();
	fixture_master_stop();
	return 0;
}

/* After everything has been removed, the pool must be empty. */
static void expect_clean(void)
{
	assert_true(mcs_remove_match(direct, (struct mcs_key){ NULL, 0 }, NULL, MCS_REMOVE_FORCE,
				     -1) >= 0);
	assert_int_equal(fixture_wait_used(direct, 0), 0);
}

static const unsigned put_types[] = { MCP_PUT_START, MCP_PUT_END };

static void puts_are_done_once(void **state)
{
	for (unsigned i = 0; i < 4; i++) {
		relay_cut_at(put_types[i / 2], i % 2);
		assert_int_equal(fixture_put(s, "plain", 100000, 1, 0), 0);
		relay_expect_cut();
		fixture_expect(direct, "plain", 100000, 1);

		/* A put that must be the first recognizes its own value when it finds it. */
		relay_cut_at(put_types[i / 2], i % 2);
		assert_int_equal(fixture_put(s, "excl", 100000, 2, MCS_PUT_EXCL), 0);
		relay_expect_cut();
		fixture_expect(direct, "excl", 100000, 2);
		relay_cut_at(put_types[i / 2], i % 2);
		assert_int_equal(fixture_put(s, "excl0", 0, 2, MCS_PUT_EXCL), 0);
		relay_expect_cut();

		relay_cut_at(put_types[i / 2], i % 2);
		assert_int_equal(fixture_put(s, "plain", 70000, 3, MCS_PUT_UPSERT), 0);
		relay_expect_cut();
		fixture_expect(direct, "plain", 70000, 3);
		expect_clean();
	}
}

static void batches_are_done_once(void **state)
{
	enum { N = 20 };
	unsigned char data[N][5000], out[N][5000];
	struct mcs_put_item put[N];
	struct mcs_get_item get[N];
	struct iovec in[N], to[N];
	char name[N][8];

	for (unsigned i = 0; i < 4; i++) {
		for (unsigned k = 0; k < N; k++) {
			snprintf(name[k], sizeof(name[k]), "b%u", k);
			fixture_fill(data[k], 5000, i * 100 + k, 0);
			in[k] = (struct iovec){ data[k], 5000 };
			to[k] = (struct iovec){ out[k], 5000 };
			put[k] = (struct mcs_put_item){ .key = fixture_key(name[k]), .iov = &in[k],
							.iovcnt = 1, .result = -1, .existed = -1 };
			get[k] = (struct mcs_get_item){ fixture_key(name[k]), 0, 1, &to[k], 1, -1 };
		}
		relay_cut_at(put_types[i / 2], i % 2);
		assert_int_equal(mcs_put_batch(s, put, N, NULL, -1), N);
		relay_expect_cut();
		relay_cut_at(MCP_GET, i % 2);
		assert_int_equal(mcs_get_batch(s, get, N, -1), N);
		relay_expect_cut();
		assert_memory_equal(data, out, sizeof(data));
		expect_clean();
	}
}

static void questions_are_asked_again(void **state)
{
	const struct mcs_key key = fixture_key("q");
	struct mcs_segment *seg;
	struct mcs_info info;
	struct mcs_pool pool;
	struct mcs_entry e;
	mcs_object_t *o;
	uint8_t present;
	mcs_list_t *l;

	fixture_put_ok(direct, "q", 200000, 1);
	for (unsigned reply = 0; reply < 2; reply++) {
		relay_cut_at(MCP_GET, reply);
		fixture_expect(s, "q", 200000, 1);
		relay_expect_cut();
		relay_cut_at(MCP_GET, reply);
		assert_int_equal(mcs_stat(s, key, &info, -1), 0);
		relay_expect_cut();
		relay_cut_at(MCP_GET, reply);
		assert_int_equal(mcs_object_open(s, key, &o, -1), 0);
		relay_expect_cut();
		assert_int_equal(mcs_object_verify(o), 0);
		mcs_object_close(o);
		relay_cut_at(MCP_EXIST, reply);
		assert_int_equal(mcs_exist(s, &key, 1, &present, -1), 1);
		relay_expect_cut();
		relay_cut_at(MCP_STATS, reply);
		assert_int_equal(mcs_pool_stat(s, &pool, -1), 0);
		relay_expect_cut();
		relay_cut_at(MCP_SEGMENTS, reply);
		assert_int_equal(mcs_segments(s, &seg, -1), 1);
		free(seg);
		relay_expect_cut();
		relay_cut_at(MCP_LIST, reply);
		assert_int_equal(mcs_list_open(s, fixture_key(""), 0, &l), 0);
		assert_int_equal(mcs_list_next(l, &e, -1), 1);
		relay_expect_cut();
		mcs_list_close(l);
	}
	expect_clean();
}

/* A query of several parts, all of which are in flight when the connection ends. */
static void long_questions_are_asked_again(void **state)
{
	enum { MANY = 5000 };
	static char name[MANY][8];
	struct mcs_key *key = calloc(MANY, sizeof(*key));
	uint8_t *present = malloc(MANY);

	assert_non_null(key);
	assert_non_null(present);
	for (unsigned i = 0; i < MANY; i++) {
		snprintf(name[i], sizeof(name[i]), "m%u", i);
		/* every seventh key is invalid */
		key[i] = (struct mcs_key){ name[i], i % 7 ? strlen(name[i]) : 0 };
		if (i % 500 == 1)
			fixture_put_ok(direct, name[i], 100, 1);
	}
	for (unsigned reply = 0; reply < 3; reply++) {
		if (reply < 2)
			relay_cut_at(MCP_EXIST, reply);
		memset(present, 7, MANY);
		assert_int_equal(mcs_exist(s, key, MANY, present, -1), 8);
		for (unsigned i = 0; i < MANY; i++)
			assert_int_equal(present[i], i % 7 && i % 500 == 1);
		if (reply < 2)
			relay_expect_cut();
	}
	expect_clean();
	free(key);
	free(present);
}

static void removes_say_what_is(void **state)
{
	for (unsigned reply = 0; reply < 2; reply++) {
		fixture_put_ok(direct, "r", 1000, 1);
		relay_cut_at(MCP_REMOVE, reply);
		assert_int_equal(mcs_remove(s, fixture_key("r"), 0, -1), 0);
		relay_expect_cut();
		assert_int_equal(mcs_remove(s, fixture_key("r"), 0, -1), -MCS_ENOOBJECT);
	}
	expect_clean();
}

/* A rename cannot be repeated; whatever it returns, the object exists under exactly one name. */
static void renames_never_lose_the_object(void **state)
{
	for (unsigned reply = 0; reply < 2; reply++) {
		struct mcs_info info;
		bool from, to;
		int r;

		fixture_put_ok(direct, "from", 1000, reply);
		relay_cut_at(MCP_RENAME, reply);
		r = mcs_rename(s, fixture_key("from"), fixture_key("to"), 0, -1);
		relay_expect_cut();
		assert_true(r == 0 || r == -MCS_ERPC);
		from = !mcs_stat(direct, fixture_key("from"), &info, -1);
		to = !mcs_stat(direct, fixture_key("to"), &info, -1);
		assert_true(from != to);
		assert_true(r != 0 || to);
		fixture_expect(direct, from ? "from" : "to", 1000, reply);
		assert_true(mcs_remove_match(direct, (struct mcs_key){ NULL, 0 }, NULL, 0, -1) == 1);
	}
	expect_clean();
}

static int64_t repins(void)
{
	int64_t n = 0;

	assert_int_equal(mc_metrics_lookup("mooncake_client_repins_total", "", &n), 0);
	return n;
}

static void open_objects_are_pinned_again(void **state)
{
	const struct timespec tick = { .tv_nsec = 5000000 };
	mcs_object_t *kept, *gone;
	struct mcs_info info;
	int64_t before = repins();

	fixture_put_ok(direct, "kept", 300000, 1);
	fixture_put_ok(direct, "gone", 300000, 2);
	assert_int_equal(mcs_object_open(s, fixture_key("kept"), &kept, -1), 0);
	assert_int_equal(mcs_object_open(s, fixture_key("gone"), &gone, -1), 0);
	assert_int_equal(mcs_remove(direct, fixture_key("gone"), MCS_REMOVE_FORCE, -1), 0);
	relay_cut_at(MCP_GET, true);
	assert_int_equal(mcs_stat(s, fixture_key("kept"), &info, -1), 0);
	relay_expect_cut();
	/* Two pins were lost with the connection; one of them is restored automatically. */
	for (int i = 0; i < 400 && repins() == before; i++)
		nanosleep(&tick, NULL);
	assert_int_equal(mcs_remove(direct, fixture_key("kept"), 0, -1), -MCS_ELEASED);
	/* The memory of the other object was reused, so it cannot be read, and never returns wrong
	 * bytes. */
	for (int i = 0; i < 64; i++) {
		char key[16];

		snprintf(key, sizeof(key), "fill-%d", i);
		fixture_put_ok(direct, key, MIB, 9);
	}
	assert_int_equal(mcs_object_verify(gone), -MCS_EREPLICA_GONE);
	assert_int_equal(mcs_object_verify(kept), 0);
	mcs_object_close(kept);
	mcs_object_close(gone);
	expect_clean();
}

/* ---- a reader that finds a restarted master before an owner does ---- */

static char journal[] = "/tmp/mc-cut-XXXXXX";

static void keep_journal(struct mcm_conf *conf)
{
	conf->journal_dir = journal;
	conf->client_ttl = 100000;	/* the wait for owners is long enough for a slow machine */
}

static bool held_in_time(mcs_object_t *o)
{
	uint64_t until = mc_deadline_ms(60000);

	while (mcs_object_held(o) && mc_now_ns() < until)
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	return !mcs_object_held(o);
}

static bool looked_for_both(void)
{
	uint64_t until = mc_deadline_ms(60000);

	while (mc_fault_hits("client.object.looked") < 2 && mc_now_ns() < until)
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	return mc_fault_hits("client.object.looked") >= 2;
}

static void restart_master(void)
{
	MC_LOCKED(&relay_dialling);
	fixture_master_stop();
	fixture_master(keep_journal);
}

static void an_owner_comes_back_after_its_reader(void **state)
{
	struct mcs_put_opts opts = { .replicas = 2 };
	static char mem[300000];
	struct iovec iov = { mem, sizeof(mem) };
	mcs_object_t *one, *both;
	mcs_t *owner;

	assert_non_null(mkdtemp(journal));
	teardown(state);
	up(keep_journal);
	/* The owner that returns late has the only replica of "one"; "both" has a second
	 * replica. */
	owner = fixture_store_with(32 * MIB, 0, relay.addr);
	fixture_fill(mem, sizeof(mem), 1, 0);
	assert_int_equal(mcs_put(owner, fixture_key("both"), &iov, 1, &opts, -1), 0);
	fixture_put_ok(owner, "one", sizeof(mem), 2);
	assert_int_equal(mcs_object_open(direct, fixture_key("one"), &one, -1), 0);
	assert_int_equal(mcs_object_open(direct, fixture_key("both"), &both, -1), 0);
	__atomic_store_n(&relay.cut_all, true, __ATOMIC_SEQ_CST);
	assert_int_equal(mc_fault_set("client.object.looked=delay:0"), 0);
	restart_master();
	assert_true(looked_for_both());
	assert_int_equal(mcs_object_held(one), -MCS_EREPLICA_GONE);
	assert_int_equal(mcs_object_held(both), -MCS_EREPLICA_GONE);
	__atomic_store_n(&relay.cut_all, false, __ATOMIC_SEQ_CST);
	assert_true(held_in_time(one));
	assert_true(held_in_time(both));
	assert_int_equal(mc_fault_set(NULL), 0);
	assert_int_equal(mcs_remove(direct, fixture_key("one"), 0, -1), -MCS_ELEASED);
	mcs_object_close(one);
	mcs_object_close(both);
	mcs_close(owner);
}

/* A mapped pointer is valid while the connection exists; checking that needs no call to the
 * master. */
static void a_mapped_object_knows_when_it_is_lost(void **state)
{
	const struct timespec tick = { .tv_nsec = 5000000 };
	mcs_object_t *kept, *gone;
	const void *map, *map_gone;
	int lost = 0;
	char key[16];

	fixture_put_ok(direct, "kept", 300000, 1);
	fixture_put_ok(direct, "gone", 300000, 2);
	assert_int_equal(mcs_object_open(s, fixture_key("kept"), &kept, -1), 0);
	assert_int_equal(mcs_object_open(s, fixture_key("gone"), &gone, -1), 0);
	assert_int_equal(mcs_object_map(kept, &map, -1), 0);
	assert_int_equal(mcs_object_map(gone, &map_gone, -1), 0);
	assert_int_equal(mcs_remove(direct, fixture_key("gone"), MCS_REMOVE_FORCE, -1), 0);
	assert_int_equal(mcs_object_held(kept), 0);
	assert_int_equal(mcs_object_held(gone), 0);
	/* While the object is held, its memory is not reused. */
	for (int i = 0; i < 64; i++) {
		snprintf(key, sizeof(key), "fill-%d", i);
		fixture_put_ok(direct, key, MIB, 9);
	}
	assert_true(fixture_same(map_gone, 300000, 2, 0));
	assert_int_equal(mcs_object_held(gone), 0);

	__atomic_store_n(&relay.cut_all, true, __ATOMIC_SEQ_CST);
	for (int i = 0; i < 2000 && fixture_same(map_gone, 300000, 2, 0); i++) {
		snprintf(key, sizeof(key), "more-%d", i);
		fixture_put_ok(direct, key, 300000, 9);
		lost += mcs_object_held(kept) != 0;
	}
	assert_false(fixture_same(map_gone, 300000, 2, 0));
	assert_int_equal(mcs_object_held(gone), -MCS_EREPLICA_GONE);
	assert_int_not_equal(lost, 0);
	__atomic_store_n(&relay.cut_all, false, __ATOMIC_SEQ_CST);
	/* The object may have been evicted while it had no pin; otherwise it is pinned again. */
	for (int i = 0; i < 400 && mcs_object_held(kept); i++) {
		struct mcs_info info;

		if (mcs_stat(direct, fixture_key("kept"), &info, -1))
			break;
		nanosleep(&tick, NULL);
	}
	if (!fixture_same(map, 300000, 1, 0))
		assert_int_equal(mcs_object_held(kept), -MCS_EREPLICA_GONE);
	assert_int_equal(mcs_object_held(gone), -MCS_EREPLICA_GONE);
	mcs_object_close(kept);
	mcs_object_close(gone);
	expect_clean();
}

/* ---- writes in flight when the connection ends ---- */

enum { SLOW = 4 * 1048576, OTHERS = 4 };

struct writer {
	mcs_t *s;
	mcs_stream_t *st;	/* NULL: a put */
	int result;
};

static void *writer_main(void *arg)
{
	struct writer *w = arg;
	char *data;

	if (!w->st) {
		w->result = fixture_put(w->s, "slow", SLOW, 1, 0);
		return NULL;
	}
	data = malloc(SLOW);
	fixture_fill(data, SLOW, 1, 0);
	w->result = mcs_stream_write(w->st, 0, &(struct iovec){ data, SLOW }, 1, -1);
	free(data);
	return NULL;
}

static int64_t given_up(void)
{
	int64_t n = 0;

	assert_int_equal(mc_metrics_lookup("mooncake_client_writes_given_up_total", "", &n), 0);
	return n;
}

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
}

/* As after a call of another thread that timed out without a reply. */
static void taint(struct writer *w)
{
	mcs_session_taint(w->s->session, mcs_session_epoch(w->s->session));
}

/* From now on the relay forwards nothing, not even the end of the connection. */
static void hush(struct writer *w)
{
	__atomic_store_n(&mcs_direct_of(w->s->backend)->silence_ms, 300, __ATOMIC_SEQ_CST);
	__atomic_store_n(&relay.hush, true, __ATOMIC_SEQ_CST);
}

/* No byte is sent, and the memory of the put is granted to another put: the write ends before its
 * bytes can arrive there. */
static void end_while_it_writes(struct writer *w, void (*end)(struct writer *w))
{
	int64_t before = given_up();
	uint64_t until = mc_deadline_ms(60000);
	pthread_t thread;
	char key[16];

	assert_int_equal(mc_fault_set("engine.tcp.send=error:EAGAIN"), 0);
	assert_int_equal(pthread_create(&thread, NULL, writer_main, w), 0);
	while (mc_fault_hits("engine.tcp.send") < 1 && mc_now_ns() < until)
		nap();
	assert_true(mc_fault_hits("engine.tcp.send") > 0);
	end(w);
	while (given_up() == before && mc_now_ns() < until)
		nap();
	assert_true(given_up() > before);
	__atomic_store_n(&relay.hush, false, __ATOMIC_SEQ_CST);
	for (int i = 0; i < OTHERS; i++) {
		snprintf(key, sizeof(key), "other-%d", i);
		fixture_put_ok(direct, key, SLOW, 10 + (unsigned)i);
	}
	assert_int_equal(mc_fault_set(NULL), 0);
	pthread_join(thread, NULL);
	for (int i = 0; i < OTHERS; i++) {
		snprintf(key, sizeof(key), "other-%d", i);
		fixture_expect(direct, key, SLOW, 10 + (unsigned)i);
	}
}

static void a_write_ends_with_its_connection(void **state)
{
	struct writer w = { .s = fixture_store_with(0, 1, relay.addr) };

	fixture_put_ok(w.s, "first", SLOW, 3);
	assert_int_equal(mcs_remove(direct, fixture_key("first"), MCS_REMOVE_FORCE, -1), 0);
	end_while_it_writes(&w, taint);
	assert_int_equal(w.result, 0);
	fixture_expect(direct, "slow", SLOW, 1);
	expect_clean();
	end_while_it_writes(&w, hush);
	assert_int_equal(w.result, 0);
	fixture_expect(direct, "slow", SLOW, 1);
	expect_clean();
	assert_int_equal(mcs_stream_open(w.s, fixture_key("stream"), SLOW, NULL, &w.st, -1), 0);
	end_while_it_writes(&w, taint);
	assert_int_equal(mcs_errno(w.result), ESTALE);
	assert_int_equal(mcs_errno(mcs_stream_commit(w.st, SLOW, -1)), ESTALE);
	expect_clean();
	mcs_close(w.s);
}

/* The connection is replaced when the first reply has arrived; true if that was in time. */
static void *change_connection(void *arg)
{
	uint64_t epoch = mcs_session_epoch(s->session), until = mc_deadline_ms(60000);

	while (mc_fault_hits("client.put.granted") < 1 && mc_now_ns() < until)
		nap();
	mcs_session_taint(s->session, epoch);
	while (mcs_session_epoch(s->session) == epoch && mc_now_ns() < until)
		nap();
	__atomic_store_n((bool *)arg, true, __ATOMIC_SEQ_CST);
	return NULL;
}

/* Memory that was granted on one connection is not used for a put on the other connection. */
static void a_grant_belongs_to_a_connection(void **state)
{
	bool changed = false, in_time = false;
	struct iovec iov = { NULL, SLOW };
	pthread_t thread;
	mcs_stream_t *st;

	iov.iov_base = malloc(SLOW);
	fixture_fill(iov.iov_base, SLOW, 1, 0);
	fixture_put_ok(s, "first", 1000, 3);
	for (unsigned i = 0; i < 10 && !in_time; i++) {
		changed = false;
		assert_int_equal(mc_fault_set("client.put.granted=delay:2000@1"), 0);
		assert_int_equal(pthread_create(&thread, NULL, change_connection, &changed), 0);
		assert_int_equal(mcs_stream_open(s, fixture_key("k"), SLOW, NULL, &st, -1), 0);
		in_time = __atomic_load_n(&changed, __ATOMIC_SEQ_CST);
		pthread_join(thread, NULL);
		if (!in_time)
			mcs_stream_drop(st, -1);
	}
	assert_int_equal(mc_fault_set(NULL), 0);
	assert_true(in_time);
	assert_int_equal(mcs_stream_write(st, 0, &iov, 1, -1), 0);
	assert_int_equal(mcs_stream_commit(st, SLOW, -1), 0);
	fixture_expect(direct, "k", SLOW, 1);
	free(iov.iov_base);
	expect_clean();
}

static void replace_k(void)
{
	fixture_put(direct, "k", 500, 9, MCS_PUT_UPSERT);
}

/* Its commit is lost, before or after it arrives, and the key holds the value of another put, which
 * began before the commit. */
static void a_stream_does_not_take_anothers_value_for_its_own(void **state)
{
	struct iovec iov = { (char [1000]){ 0 }, 1000 };
	struct mcs_put_opts opts = { 0 };
	mcs_stream_t *st;

	relay.meanwhile = replace_k;
	for (unsigned i = 0; i < 4; i++) {
		opts.flags = i / 2 ? MCS_PUT_UPSERT : 0;
		assert_int_equal(mcs_stream_open(s, fixture_key("k"), 1000, &opts, &st, -1), 0);
		assert_int_equal(mcs_stream_write(st, 0, &iov, 1, -1), 0);
		replace_k();
		relay_cut_at(MCP_PUT_END, i % 2);
		assert_int_equal(mcs_errno(mcs_stream_commit(st, 1000, -1)), i / 2 ? ESTALE : EEXIST);
		relay_expect_cut();
		fixture_expect(direct, "k", 500, 9);
		expect_clean();
	}
}

static mcs_t *trusting;		/* checks only objects that are not held */

static void *get_first(void *arg)
{
	static char mem[300000];
	struct iovec iov = { mem, sizeof(mem) };
	int64_t r = mcs_get(trusting, fixture_key("first"), &iov, 1, -1);

	return r == -MCS_ENOOBJECT || (r == sizeof(mem) && fixture_same(mem, sizeof(mem), 1, 0)) ?
		NULL : arg;
}

/* A reply arrives, and before the client processes it, a new connection exists: the pin that the
 * reply granted ended with the old connection. */
static void an_answer_of_the_old_connection(void **state)
{
	const struct timespec tick = { .tv_nsec = 1000000 };
	struct mcs_key k = fixture_key("first");
	struct mcs_conf conf;
	uint8_t present;
	void *wrong;
	pthread_t t;
	char key[16];

	mcs_conf_init(&conf);
	conf.master = relay.addr;
	conf.verify = 0;
	assert_int_equal(mcs_open(&conf, &trusting), 0);
	fixture_put_ok(direct, "first", 300000, 1);
	assert_int_equal(mc_fault_set("client.pins.after_answer=delay:3000@1"), 0);
	assert_int_equal(pthread_create(&t, NULL, get_first, &trusting), 0);
	while (mc_fault_hits("client.pins.after_answer") < 1)
		nanosleep(&tick, NULL);
	relay_cut_at(MCP_EXIST, true);
	assert_int_equal(mcs_exist(trusting, &k, 1, &present, -1), 1);
	relay_expect_cut();
	assert_int_equal(mcs_remove(direct, k, MCS_REMOVE_FORCE, -1), 0);
	for (int i = 0; i < 64; i++) {
		snprintf(key, sizeof(key), "fill-%d", i);
		fixture_put_ok(direct, key, MIB, 9);
	}
	pthread_join(t, &wrong);
	assert_null(wrong);
	assert_int_equal(mc_fault_set(NULL), 0);
	mcs_close(trusting);
	expect_clean();
}

/* A short wait for an event does not wait until the master is back. */
static void an_event_is_not_waited_for_longer(void **state)
{
	struct mcs_conf conf;
	struct mcs_event e;
	uint64_t began;
	mcs_watch_t *w;
	mcs_t *patient;

	mcs_conf_init(&conf);
	conf.master = relay.addr;
	conf.timeout_ms = conf.setup_timeout_ms = 60000;
	assert_int_equal(mcs_open(&conf, &patient), 0);
	assert_int_equal(mcs_watch_open(patient, fixture_key(""), 0, &w, -1), 0);
	assert_int_equal(mcs_watch_next(w, &e, 0), 0);
	__atomic_store_n(&relay.cut_all, true, __ATOMIC_SEQ_CST);
	began = mc_now_ns();
	while (mcs_watch_next(w, &e, 50) >= 0)
		;
	assert_true(mc_now_ns() - began < 30 * MC_NS_PER_SEC);
	__atomic_store_n(&relay.cut_all, false, __ATOMIC_SEQ_CST);
	while (mcs_watch_next(w, &e, 1000) < 0)
		;
	mcs_watch_close(w);
	mcs_close(patient);
}

static int remove_journal(void **state)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", journal);
	return system(command);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(puts_are_done_once), T(batches_are_done_once), T(questions_are_asked_again),
		T(long_questions_are_asked_again), T(removes_say_what_is), T(renames_never_lose_the_object),
		T(open_objects_are_pinned_again), T(an_owner_comes_back_after_its_reader),
		T(a_mapped_object_knows_when_it_is_lost), T(a_write_ends_with_its_connection),
		T(a_grant_belongs_to_a_connection), T(a_stream_does_not_take_anothers_value_for_its_own),
		T(an_answer_of_the_old_connection), T(an_event_is_not_waited_for_longer),
	};

	return cmocka_run_group_tests(tests, NULL, remove_journal);
}
