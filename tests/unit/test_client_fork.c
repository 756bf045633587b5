/* SPDX-License-Identifier: Apache-2.0
 * test_client_fork.c - a forked child that uses its parent's handle is refused at once, and
 * sends no byte to any peer; its calls do not end the parent's pins, leases or connections; a
 * handle that the child opens works. */
#include <config.h>

#include "tests/unit/test_client_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <mooncake/store_c.h>

#include "common/sys/clock.h"

#define CHILD_S 20
#define SIZE ((size_t)100000)
#define KEYS 16

static mcs_t *s;		/* owns the segment, over TCP */

static int setup(void **state)
{
	fixture_master(NULL);
	s = fixture_store_with(64 * MIB, 0, fixture_master_addr());
	return 0;
}

static int teardown(void **state)
{
	mcs_close(s);
	fixture_master_stop();
	return 0;
}

/* The exit status of a child tells which check failed. */
#define EXPECT(what) do { \
	if (!(what)) { \
		fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, mcs_error_detail(-MCS_EUNAVAILABLE)); \
		_exit(1); \
	} \
} while (0)

static void child_ends_well(pid_t pid)
{
	int status;

	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* ThreadSanitizer kills a forked child that starts threads. */
static void no_threads_after_fork(void)
{
#ifdef __SANITIZE_THREAD__
	skip();
#endif
}

#ifdef __SANITIZE_ADDRESS__
static bool others_sleep(void)
{
	DIR *d = opendir("/proc/self/task");
	bool all = d;
	struct dirent *de;

	while (d && (de = readdir(d))) {
		char path[300], state = 'S';
		FILE *f;

		if (de->d_name[0] == '.' || atoi(de->d_name) == gettid())
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/stat", de->d_name);
		f = fopen(path, "r");
		if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
			state = 'S';
		if (f)
			fclose(f);
		all = all && state == 'S';
	}
	if (d)
		closedir(d);
	return all;
}
#endif

/* AddressSanitizer's allocator has its own locks; the child finds them locked if another thread was
 * allocating during the fork. */
static pid_t fork_quietly(void)
{
#ifdef __SANITIZE_ADDRESS__
	for (unsigned quiet = 0; quiet < 5; quiet = others_sleep() ? quiet + 1 : 0)
		usleep(2000);
#endif
	return fork();
}

static bool refused(int64_t r)
{
	return r == -MCS_EUNAVAILABLE;
}

static char registered[8192];

static void child_of_handle(mcs_object_t *o, mcs_stream_t *st, mcs_list_t *l, char *shared)
{
	struct mcs_key k = fixture_key("a");
	struct iovec iov = { shared, SIZE };
	const void *data;
	uint8_t present;
	struct mcs_info info;
	struct mcs_entry entry;
	mcs_object_t *other;
	mcs_stream_t *stream;
	mcs_list_t *list;
	struct mcs_replicas rep;
	struct mcs_map map;

	EXPECT(refused(mcs_get(s, k, &iov, 1, -1)));
	EXPECT(refused(mcs_put(s, fixture_key("b"), &iov, 1, NULL, -1)));
	EXPECT(refused(mcs_exist(s, &k, 1, &present, -1)));
	EXPECT(refused(mcs_stat(s, k, &info, -1)));
	EXPECT(refused(mcs_remove(s, k, 0, -1)));
	EXPECT(refused(mcs_rename(s, k, fixture_key("c"), 0, -1)));
	EXPECT(refused(mcs_object_open(s, k, &other, -1)));
	EXPECT(refused(mcs_object_read(o, 0, &iov, 1, -1)));
	EXPECT(refused(mcs_object_map(o, &data, -1)));
	EXPECT(refused(mcs_object_held(o)));
	EXPECT(refused(mcs_object_verify(o)));
	EXPECT(refused(mcs_stream_write(st, 0, &iov, 1, -1)));
	EXPECT(refused(mcs_stream_commit(st, SIZE, -1)));
	mcs_stream_drop(st, -1);
	EXPECT(refused(mcs_list_next(l, &entry, -1)));
	if (mcs_list_open(s, fixture_key(""), 0, &list) == 0)
		EXPECT(refused(mcs_list_next(list, &entry, -1)));
	EXPECT(refused(mcs_segment_grow(s, 64 * MIB, -1)));
	EXPECT(refused(mcs_register_buffer(s, shared, SIZE)));
	EXPECT(refused(mcs_unregister_buffer(s, registered)));
	EXPECT(refused(mcs_stream_open(s, k, SIZE, NULL, &stream, -1)));
	EXPECT(refused(mcs_map(s, k, 0, &map, -1)));
	EXPECT(refused(mcs_replicas(s, &k, 1, 0, &rep, -1)));
	EXPECT(mcs_pool_alloc(s, 4096) == NULL);
	EXPECT(mcs_health(s) == 2);
	mcs_list_close(l);
	mcs_object_close(o);
	mcs_close(s);
}

static void the_handle_is_the_parents(void **state)
{
	uint64_t began = mc_now_ns();
	mcs_object_t *o;
	mcs_stream_t *st;
	mcs_list_t *l;
	char *mem = malloc(SIZE);
	struct iovec iov = { mem, SIZE };
	struct mcs_entry entry;
	pid_t pid;

	fixture_put_ok(s, "a", SIZE, 1);
	assert_int_equal(mcs_object_open(s, fixture_key("a"), &o, -1), 0);
	assert_int_equal(mcs_stream_open(s, fixture_key("stream"), SIZE, NULL, &st, -1), 0);
	assert_int_equal(mcs_list_open(s, fixture_key(""), 0, &l), 0);
	assert_int_equal(mcs_register_buffer(s, registered, sizeof(registered)), 0);
	pid = fork_quietly();
	if (pid == 0) {
		alarm(CHILD_S);
		child_of_handle(o, st, l, mem);
		_exit(0);
	}
	child_ends_well(pid);
	assert_true(mc_now_ns() - began < 10 * MC_NS_PER_SEC);
	/* The parent's state is unchanged. */
	fixture_expect(s, "a", SIZE, 1);
	assert_int_equal(mcs_object_held(o), 0);
	assert_int_equal(mcs_object_read(o, 0, &iov, 1, -1), SIZE);
	assert_true(fixture_same(mem, SIZE, 1, 0));
	fixture_fill(mem, SIZE, 2, 0);
	assert_int_equal(mcs_stream_write(st, 0, &iov, 1, -1), 0);
	assert_int_equal(mcs_stream_commit(st, SIZE, -1), 0);
	fixture_expect(s, "stream", SIZE, 2);
	assert_int_equal(mcs_list_next(l, &entry, -1), 1);
	assert_int_equal(mcs_health(s), 0);
	assert_int_equal(mcs_unregister_buffer(s, registered), 0);
	mcs_list_close(l);
	mcs_object_close(o);
	free(mem);
}

static void a_child_opens_its_own(void **state)
{
	pid_t pid;

	no_threads_after_fork();
	fixture_put_ok(s, "a", SIZE, 1);
	pid = fork_quietly();
	if (pid == 0) {
		mcs_t *own;
		struct iovec iov = { malloc(SIZE), SIZE };
		struct mcs_conf conf;

		alarm(CHILD_S);
		mcs_close(s);
		mcs_conf_init(&conf);
		conf.master = fixture_master_addr();
		EXPECT(mcs_open(&conf, &own) == 0);
		EXPECT(mcs_get(own, fixture_key("a"), &iov, 1, -1) == (int64_t)SIZE);
		EXPECT(fixture_same(iov.iov_base, SIZE, 1, 0));
		mcs_close(own);
		_exit(0);
	}
	child_ends_well(pid);
	fixture_expect(s, "a", SIZE, 1);
}

/* As a program does that becomes a daemon: the parent's numbers of descriptors mean nothing, or another file. */
static void a_child_that_closes_all_descriptors_opens_its_own(void **state)
{
	pid_t pid;

	no_threads_after_fork();
	fixture_put_ok(s, "a", SIZE, 1);
	pid = fork_quietly();
	if (pid == 0) {
		mcs_t *own;
		struct iovec iov = { malloc(SIZE), SIZE };
		struct mcs_conf conf;

		alarm(CHILD_S);
		EXPECT(close_range(3, ~0u, 0) == 0);
		mcs_conf_init(&conf);
		conf.master = fixture_master_addr();
		EXPECT(mcs_open(&conf, &own) == 0);
		EXPECT(mcs_get(own, fixture_key("a"), &iov, 1, -1) == (int64_t)SIZE);
		EXPECT(fixture_same(iov.iov_base, SIZE, 1, 0));
		mcs_close(own);
		_exit(0);
	}
	child_ends_well(pid);
	fixture_expect(s, "a", SIZE, 1);
}

/* Parent and child request different keys at the same time, with handles that would otherwise share
 * one connection. */

static bool stop;

static void *get_all(void *arg)
{
	unsigned char *mem = malloc(SIZE);
	struct iovec iov = { mem, SIZE };
	unsigned long n = 0;
	char key[16];

	for (; !__atomic_load_n(&stop, __ATOMIC_RELAXED); n++) {
		snprintf(key, sizeof(key), "k%lu", n % KEYS);
		if (mcs_get(s, fixture_key(key), &iov, 1, -1) != (int64_t)SIZE ||
		    !fixture_same(mem, SIZE, n % KEYS, 0)) {
			fprintf(stderr, "%s: %s\n", key, mcs_error_detail(-MCS_ERPC));
			free(mem);
			return arg;
		}
	}
	free(mem);
	return NULL;
}

static void each_caller_gets_its_own_answer(void **state)
{
	void *wrong;
	pthread_t t;
	char key[16];

#ifdef __SANITIZE_ADDRESS__
	/* The allocator's own locks may be locked in a child of a process whose threads
	 * allocate. */
	skip();
#endif
	for (unsigned i = 0; i < KEYS; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		fixture_put_ok(s, key, SIZE, i);
	}
	stop = false;
	assert_int_equal(pthread_create(&t, NULL, get_all, &stop), 0);
	for (unsigned i = 0; i < 20; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			static uint8_t present[1];
			static char mem[SIZE];
			struct iovec iov = { mem, SIZE };
			struct mcs_info info;
			struct mcs_key k;

			alarm(CHILD_S);
			/* Locks that the other thread held during the fork stay locked here. */
			for (unsigned n = 0; n < 100; n++) {
				snprintf(key, sizeof(key), "k%u", n % KEYS);
				k = fixture_key(key);
				EXPECT(refused(mcs_exist(s, &k, 1, present, -1)));
				EXPECT(refused(mcs_get(s, k, &iov, 1, -1)));
				EXPECT(refused(mcs_put(s, k, &iov, 1, NULL, -1)));
				EXPECT(refused(mcs_stat(s, k, &info, -1)));
			}
			_exit(0);
		}
		child_ends_well(pid);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(t, &wrong);
	assert_null(wrong);
}

/* ---- store_c.h ---- */

static void upstreams_api(void **state)
{
	char value[64] = "a value";
	mooncake_store_t c;
	pid_t pid;

	no_threads_after_fork();
	c = mooncake_store_create();
	assert_int_equal(mooncake_store_setup(c, "127.0.0.1", "P2PHANDSHAKE", 64 * MIB, 16 * MIB, "tcp", "",
					      fixture_master_addr()), 0);
	assert_int_equal(mooncake_store_put(c, "c", value, sizeof(value), NULL), 0);
	pid = fork_quietly();
	if (pid == 0) {
		char got[64];

		alarm(CHILD_S);
		EXPECT(mooncake_store_is_exist(c, "c") == -600);
		EXPECT(mooncake_store_put(c, "d", value, sizeof(value), NULL) == -600);
		EXPECT(mooncake_store_health_check(c) == 1);
		/* After a new setup, the handle is the child's. */
		EXPECT(mooncake_store_setup(c, "127.0.0.1", "P2PHANDSHAKE", 0, 16 * MIB, "tcp", "",
					    fixture_master_addr()) == 0);
		EXPECT(mooncake_store_get_into(c, "c", got, sizeof(got)) == sizeof(got));
		EXPECT(!memcmp(got, value, sizeof(got)));
		mooncake_store_destroy(c);
		_exit(0);
	}
	child_ends_well(pid);
	assert_int_equal(mooncake_store_is_exist(c, "c"), 1);
	assert_int_equal(mooncake_store_is_exist(c, "d"), 0);
	mooncake_store_destroy(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_handle_is_the_parents, setup, teardown),
		cmocka_unit_test_setup_teardown(a_child_opens_its_own, setup, teardown),
		cmocka_unit_test_setup_teardown(a_child_that_closes_all_descriptors_opens_its_own, setup, teardown),
		cmocka_unit_test_setup_teardown(each_caller_gets_its_own_answer, setup, teardown),
		cmocka_unit_test_setup_teardown(upstreams_api, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
