/* SPDX-License-Identifier: Apache-2.0
 * test_client_mover.c - owners that copy objects for the master's tasks: bytes, checksums,
 * readers meanwhile. */
#include <config.h>

#include "tests/unit/test_client_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/store_i.h"
#include "common/fault.h"
#include "common/metrics.h"

#define KEYS 400

static mcs_t *a, *b;		/* owners */
static mcs_t *reader;
static int force_tcp;

/* Ten heartbeats a second, so that owners learn of tasks soon. */
static void quick(struct mcm_conf *conf)
{
	conf->client_ttl = 1000;
}

static int setup(void **state)
{
	fixture_master(quick);
	a = fixture_store_with(128 * MIB, force_tcp, fixture_master_addr());
	b = NULL;
	reader = fixture_store_with(0, force_tcp, fixture_master_addr());
	return 0;
}

static int teardown(void **state)
{
	mcs_close(reader);
	mcs_close(b);
	mcs_close(a);
	fixture_master_stop();
	return 0;
}

static size_t size_of(unsigned i)
{
	static const size_t sizes[] = { 1, 100, 4096, 65536, 65537, 200001, 1000003 };

	return sizes[i % (sizeof(sizes) / sizeof(sizes[0]))];
}

static const char *key_of(unsigned i)
{
	static __thread char key[16];

	snprintf(key, sizeof(key), "key-%u", i);
	return key;
}

static void fill(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		fixture_put_ok(a, key_of(i), size_of(i), i);
}

static struct mcs_task wait_for_task(mcs_t *s, const char *id, const char *wanted)
{
	const struct timespec tick = { .tv_nsec = 10000000 };
	struct mcs_task *t = NULL, got;

	for (unsigned i = 0; i < 3000; i++) {
		free(t);
		assert_int_equal(mcs_tasks(s, id, &t, -1), 1);
		if (strcmp(t->status, "pending") && strcmp(t->status, "running"))
			break;
		nanosleep(&tick, NULL);
	}
	if (strcmp(t->status, wanted))
		fail_msg("task is %s: %s", t->status, t->message);
	got = *t;
	free(t);
	return got;
}

static bool stop_reading;

static void *read_all_the_time(void *arg)
{
	unsigned long n = 0;

	while (!__atomic_load_n(&stop_reading, __ATOMIC_RELAXED)) {
		unsigned i = (unsigned)(n * 7919) % KEYS;

		fixture_expect(reader, key_of(i), size_of(i), i);
		n++;
	}
	*(unsigned long *)arg = n;
	return NULL;
}

static void drain_while_everything_is_read(void **state)
{
	const char *from[] = { NULL, NULL };
	struct mcs_task_opts opts = { .kind = MCS_TASK_DRAIN, .sources = from };
	struct mcs_segment *segs = NULL;
	char id[MCS_TASK_ID], name[256];
	unsigned long reads = 0;
	struct mcs_task t;
	pthread_t thread;
	int n;

	fill(KEYS);
	snprintf(name, sizeof(name), "%s", mcs_hostname(a));
	from[0] = name;
	b = fixture_store_with(128 * MIB, force_tcp, fixture_master_addr());
	__atomic_store_n(&stop_reading, false, __ATOMIC_RELAXED);
	assert_int_equal(pthread_create(&thread, NULL, read_all_the_time, &reads), 0);
	assert_int_equal(mcs_task_create(reader, &opts, id, -1), 0);
	t = wait_for_task(reader, id, "succeeded");
	__atomic_store_n(&stop_reading, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	assert_true(reads > 0);
	assert_int_equal(t.succeeded, KEYS);
	assert_int_equal(t.left, 0);
	n = mcs_segments(reader, &segs, -1);
	assert_int_equal(n, 2);
	for (int i = 0; i < n; i++) {
		bool old = !strcmp(segs[i].name, name);

		assert_int_equal(segs[i].objects, old ? 0 : KEYS);
		assert_string_equal(segs[i].state, old ? "drained" : "ok");
	}
	free(segs);
	/* The owner closes, and no object is lost. */
	mcs_close(a);
	a = NULL;
	for (unsigned i = 0; i < KEYS; i++)
		fixture_expect(reader, key_of(i), size_of(i), i);
}

static void copy_and_move(void **state)
{
	const char *to[] = { NULL, NULL }, *from[] = { NULL, NULL };
	struct mcs_task_opts opts = { .kind = MCS_TASK_COPY, .targets = to };
	char id[MCS_TASK_ID], name[256];
	struct mcs_info info;

	fixture_put_ok(a, "one", 3 * MIB, 77);
	b = fixture_store_with(64 * MIB, force_tcp, fixture_master_addr());
	snprintf(name, sizeof(name), "%s", mcs_hostname(b));
	to[0] = name;
	opts.key = fixture_key("one");
	assert_int_equal(mcs_task_create(reader, &opts, id, -1), 0);
	wait_for_task(reader, id, "succeeded");
	assert_int_equal(mcs_stat(reader, opts.key, &info, -1), 0);
	assert_int_equal(info.replicas, 2);
	opts.kind = MCS_TASK_MOVE;
	from[0] = mcs_hostname(a);
	opts.sources = from;
	assert_int_equal(mcs_task_create(reader, &opts, id, -1), 0);
	wait_for_task(reader, id, "succeeded");
	mcs_close(a);
	a = NULL;
	fixture_expect(reader, "one", 3 * MIB, 77);
}

static int64_t given_up(void)
{
	int64_t n = 0;

	assert_int_equal(mc_metrics_lookup("mooncake_client_writes_given_up_total", "", &n), 0);
	return n;
}

/* The grant of a mover ends with its connection, so the mover aborts its transfer and begins
 * again. */
static void a_copy_ends_with_its_connection(void **state)
{
	const struct timespec tick = { .tv_nsec = 10000000 };
	const char *from[] = { NULL, NULL };
	struct mcs_task_opts opts = { .kind = MCS_TASK_DRAIN, .sources = from };
	int64_t before = given_up();
	char id[MCS_TASK_ID];

	if (!force_tcp)
		skip();		/* without a wait */
	fixture_put_ok(a, "one", 3 * MIB, 77);
	from[0] = mcs_hostname(a);
	b = fixture_store_with(64 * MIB, force_tcp, fixture_master_addr());
	assert_int_equal(mc_fault_set("engine.tcp.send=error:EAGAIN"), 0);
	assert_int_equal(mcs_task_create(reader, &opts, id, -1), 0);
	for (unsigned i = 0; i < 3000 && mc_fault_hits("engine.tcp.send") < 1; i++)
		nanosleep(&tick, NULL);
	mcs_session_taint(a->session, mcs_session_epoch(a->session));
	for (unsigned i = 0; i < 6000 && given_up() == before; i++)
		nanosleep(&tick, NULL);
	assert_true(given_up() > before);
	assert_int_equal(mc_fault_set(NULL), 0);
	wait_for_task(reader, id, "succeeded");
	mcs_close(a);
	a = NULL;
	fixture_expect(reader, "one", 3 * MIB, 77);
}

static void hot(struct mcm_conf *conf)
{
	static char enforce[] = "enforce";

	quick(conf);
	conf->dynamic_replication_mode = enforce;
	conf->dynamic_replication_admission_qps_threshold = 2;
}

static int setup_hot(void **state)
{
	fixture_master(hot);
	a = fixture_store_with(64 * MIB, force_tcp, fixture_master_addr());
	b = fixture_store_with(64 * MIB, force_tcp, fixture_master_addr());
	reader = fixture_store_with(0, force_tcp, fixture_master_addr());
	return 0;
}

/* No client requests the copy: the object is read often, so an owner copies it. */
static void an_object_read_often_gets_a_copy(void **state)
{
	const struct timespec tick = { .tv_nsec = 10000000 };
	struct mcs_info info = { 0 };

	fixture_put_ok(a, "hot", 3 * MIB + 5, 78);
	fixture_put_ok(a, "cold", 3 * MIB + 5, 79);
	for (unsigned i = 0; i < 30; i++)
		fixture_expect(reader, "hot", 3 * MIB + 5, 78);
	for (unsigned i = 0; i < 3000 && info.replicas != 2; i++) {
		nanosleep(&tick, NULL);
		assert_int_equal(mcs_stat(reader, fixture_key("hot"), &info, -1), 0);
	}
	assert_int_equal(info.replicas, 2);
	assert_int_equal(mcs_stat(reader, fixture_key("cold"), &info, -1), 0);
	assert_int_equal(info.replicas, 1);
	/* When either owner closes, the other owner's copy remains. */
	mcs_close(a);
	a = NULL;
	fixture_expect(reader, "hot", 3 * MIB + 5, 78);
}

static void questions_that_have_no_answer(void **state)
{
	struct mcs_task_opts opts = { .kind = MCS_TASK_DRAIN };
	const char *nobody[] = { "nobody:1", NULL };
	struct mcs_task *t = NULL;
	char id[MCS_TASK_ID];

	assert_int_equal(mcs_task_create(reader, &opts, id, -1), -MCS_EPARAM);
	opts.sources = nobody;
	assert_int_equal(mcs_code(mcs_task_create(reader, &opts, id, -1)), -101);
	assert_int_equal(mcs_tasks(reader, NULL, &t, -1), 0);
	free(t);
	assert_int_equal(mcs_code(mcs_tasks(reader, "1-2", &t, -1)), -1400);
	assert_int_equal(mcs_tasks(reader, "x", &t, -1), -MCS_EPARAM);
	assert_int_equal(mcs_code(mcs_task_cancel(reader, "1-2", -1)), -1400);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(drain_while_everything_is_read, setup, teardown),
		cmocka_unit_test_setup_teardown(copy_and_move, setup, teardown),
		cmocka_unit_test_setup_teardown(a_copy_ends_with_its_connection, setup, teardown),
		cmocka_unit_test_setup_teardown(an_object_read_often_gets_a_copy, setup_hot,
						teardown),
		cmocka_unit_test_setup_teardown(questions_that_have_no_answer, setup, teardown),
	};

	if (cmocka_run_group_tests_name("same host", tests, NULL, NULL))
		return 1;
	force_tcp = 1;
	return cmocka_run_group_tests_name("tcp", tests, NULL, NULL);
}
