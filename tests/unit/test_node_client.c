/* SPDX-License-Identifier: Apache-2.0
 * test_node_client.c - the library through the node's daemon: the same API and the same results. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/fault.h"
#include "common/metrics.h"
#include "tests/unit/node_fixture.h"
#include <mooncake/store_c.h>

static mcs_t *c;		/* through the daemon, with 1 MiB of shared memory and a pool of 4 MiB */

static int setup(void **state)
{
	(void)state;
	c = node_setup();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	node_teardown(c);
	return 0;
}

/* ---- bytes ---- */

static void test_sizes(void **state)
{
	/* around the sizes of chunks, pages and the shared memory */
	static const size_t sizes[] = { 0, 1, 63, 4096, 65535, 65536, 65537, MIB - 1, MIB, MIB + 1,
					3 * MIB + 5 };
	char key[32];

	(void)state;
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		snprintf(key, sizeof(key), "k%u", i);
		fixture_put_ok(c, key, sizes[i], i);
		fixture_expect(node_store(), key, sizes[i], i);
		fixture_expect(c, key, sizes[i], i);
	}
}

static void test_put_semantics(void **state)
{
	(void)state;
	fixture_put_ok(c, "a", 100, 1);
	/* the key exists: success, and the value is unchanged */
	assert_int_equal(fixture_put(c, "a", 100, 2, 0), 0);
	fixture_expect(c, "a", 100, 1);
	assert_int_equal(fixture_put(c, "a", 100, 2, MCS_PUT_EXCL), -MCS_EEXISTS);
	assert_int_equal(fixture_put(c, "a", 100, 2, MCS_PUT_UPSERT), 0);
	fixture_expect(c, "a", 100, 2);
	assert_int_equal(fixture_put(c, "", 100, 2, 0), -MCS_EKEY);
	assert_int_equal(fixture_put(c, "b", 2 * NODE_SEGMENT, 2, 0), -MCS_ETOOBIG);
	assert_int_equal(fixture_put(c, "b", 10, 2, 0x8000), -MCS_EPARAM);
}

static void test_options(void **state)
{
	const char *const preferred[] = { "nowhere:1", mcs_hostname(c), NULL };
	struct mcs_put_opts opts = {
		.flags = MCS_PUT_HARD_PIN, .replicas = 1, .preferred = preferred,
		.kind = MCS_SYMLINK, .data_type = MCS_TYPE_WEIGHT, .group = { "g1", 2 },
	};
	struct iovec iov = { (void *)(uintptr_t)"target", 6 };
	struct mcs_key k = fixture_key("link");
	struct mcs_replicas rep;
	struct mcs_info info;

	(void)state;
	assert_int_equal(mcs_put(c, k, &iov, 1, &opts, -1), 0);
	assert_int_equal(mcs_stat(c, k, &info, -1), 0);
	assert_int_equal(info.kind, MCS_SYMLINK);
	assert_int_equal(info.data_type, MCS_TYPE_WEIGHT);
	assert_int_equal(info.flags & MCS_PUT_HARD_PIN, MCS_PUT_HARD_PIN);
	assert_int_equal(info.size, 6);
	/* calls that the daemon does not serve go to the master directly */
	assert_int_equal(mcs_replicas(c, &k, 1, 0, &rep, -1), 1);
	assert_int_equal(rep.group.len, 2);
	assert_string_equal(rep.replica[0].segment, mcs_hostname(c));
	assert_string_equal(mcs_hostname(c), mcs_hostname(node_store()));
	mcs_replicas_free(&rep, 1);
}

static int64_t nof_missing(void)
{
	int64_t v = 0;

	assert_int_equal(mc_metrics_lookup("mooncake_master_nof_missing_total", "", &v), 0);
	return v;
}

/* The daemon asks for the copies, for which this pool has no disk, and finds the names of both lists. */
static void test_copies_on_nof_disks(void **state)
{
	const char *const preferred[] = { "nowhere:1", mcs_hostname(c), NULL };
	const char *const disks[] = { "disk-1", "disk-2", NULL };
	struct mcs_put_opts opts = { .flags = MCS_PUT_NOF, .nof_replicas = 2 };
	struct iovec iov = { (void *)(uintptr_t)"bytes", 5 };
	int64_t was = nof_missing();
	struct mcs_replicas rep;
	struct mcs_key k;

	(void)state;
	assert_int_equal(mcs_put(c, fixture_key("nof1"), &iov, 1, &opts, -1), 0);
	assert_int_equal(nof_missing() - was, 2);
	opts.preferred_nof = disks;
	assert_int_equal(mcs_put(c, fixture_key("nof2"), &iov, 1, &opts, -1), 0);
	assert_int_equal(nof_missing() - was, 4);
	opts.preferred = preferred;
	k = fixture_key("nof3");
	assert_int_equal(mcs_put(c, k, &iov, 1, &opts, -1), 0);
	assert_int_equal(nof_missing() - was, 6);
	assert_int_equal(mcs_replicas(c, &k, 1, 0, &rep, -1), 1);
	assert_int_equal(rep.n, 1);
	assert_string_equal(rep.replica[0].segment, mcs_hostname(c));
	mcs_replicas_free(&rep, 1);
	opts.flags = 0;
	assert_int_equal(mcs_put(c, fixture_key("nof4"), &iov, 1, &opts, -1), 0);
	assert_int_equal(nof_missing() - was, 6);
	opts.flags = MCS_PUT_NOF;
	opts.nof_replicas = MCS_NOF_REPLICAS_MAX + 1;
	assert_int_equal(mcs_put(c, fixture_key("nof5"), &iov, 1, &opts, -1), -MCS_EPARAM);
}

/* Items with a group of their own, and items that use the group of the call's options. */
static void test_groups(void **state)
{
	enum { N = 6 };
	static const char *const group[N] = { "a", "", "b", "a", "all", "" };
	const char *const preferred[] = { mcs_hostname(c), NULL };
	const struct mcs_put_opts opts = { .group = { "all", 3 }, .preferred = preferred };
	struct iovec iov = { (void *)(uintptr_t)"bytes", 5 };
	struct mcs_put_item put[N];
	struct mcs_replicas rep[N];
	struct mcs_key keys[N];
	char key[N][8], longer[1025];

	(void)state;
	for (unsigned i = 0; i < N; i++) {
		snprintf(key[i], sizeof(key[i]), "g%u", i);
		keys[i] = fixture_key(key[i]);
		put[i] = (struct mcs_put_item){
			.key = keys[i], .iov = &iov, .iovcnt = 1, .group = fixture_key(group[i]),
		};
	}
	assert_int_equal(mcs_put_batch(c, put, N, &opts, -1), N);
	assert_int_equal(mcs_replicas(c, keys, N, 0, rep, -1), N);
	for (unsigned i = 0; i < N; i++) {
		const char *want = *group[i] ? group[i] : "all";

		assert_int_equal(rep[i].group.len, strlen(want));
		assert_memory_equal(rep[i].group.data, want, strlen(want));
	}
	mcs_replicas_free(rep, N);
	memset(longer, 'x', sizeof(longer));
	put[0] = (struct mcs_put_item){ .key = fixture_key("new0"), .iov = &iov, .iovcnt = 1 };
	put[1] = (struct mcs_put_item){
		.key = fixture_key("new1"), .iov = &iov, .iovcnt = 1,
		.group = { longer, sizeof(longer) },
	};
	assert_int_equal(mcs_put_batch(c, put, 2, NULL, -1), 1);
	assert_int_equal(put[0].result, 0);
	assert_int_equal(put[1].result, -MCS_EPARAM);
}

/* Thousands of items in one call, two of them with the same key, with keys of all lengths. */
static void test_batches(void **state)
{
	enum { N = 3000, SIZE = 1000 };
	struct mcs_put_item *put = calloc(N, sizeof(*put));
	struct mcs_get_item *get = calloc(N, sizeof(*get));
	struct mcs_key *keys = calloc(N, sizeof(*keys));
	struct iovec *iov = calloc(2 * N, sizeof(*iov));
	unsigned char *in = malloc(N * SIZE), *out = calloc(N, SIZE);
	uint8_t *present = malloc(N);
	int *results = malloc(N * sizeof(*results));

	(void)state;
	fixture_fill(in, N * SIZE, 7, 0);
	for (unsigned i = 0; i < N; i++) {
		size_t len = 8 + i % 97 * 40;
		char *key = malloc(len);

		memset(key, 'k', len);
		memcpy(key, &i, sizeof(i));
		keys[i] = (struct mcs_key){ key, len };
		iov[2 * i] = (struct iovec){ in + i * SIZE, 400 };
		iov[2 * i + 1] = (struct iovec){ in + i * SIZE + 400, SIZE - 400 };
		put[i] = (struct mcs_put_item){ .key = keys[i], .iov = &iov[2 * i], .iovcnt = 2 };
	}
	/* of two items with the same key the last one counts, however far apart they are */
	put[0].key = keys[N - 1];
	assert_int_equal(mcs_put_batch(c, put, N, &(struct mcs_put_opts){ .flags = MCS_PUT_LAST },
				       -1), N);
	assert_int_equal(mcs_exist(c, keys, N, present, -1), N - 1);
	assert_int_equal(present[0], 0);
	for (unsigned i = 0; i < N; i++) {
		iov[2 * i] = (struct iovec){ out + i * SIZE, 10 };
		iov[2 * i + 1] = (struct iovec){ out + i * SIZE + 10, SIZE - 10 };
		get[i] = (struct mcs_get_item){
			.key = keys[i], .whole = 1, .iov = &iov[2 * i], .iovcnt = 2,
		};
	}
	assert_int_equal(mcs_get_batch(c, get, N, -1), N - 1);
	assert_int_equal(get[0].result, -MCS_ENOOBJECT);
	assert_memory_equal(out + SIZE, in + SIZE, (N - 1) * SIZE);
	assert_int_equal(mcs_remove_batch(c, keys, N, MCS_REMOVE_FORCE, results, -1),
			 N - 1);
	assert_int_equal(results[0], -MCS_ENOOBJECT);
	assert_int_equal(mcs_exist(c, keys, N, present, -1), 0);
	for (unsigned i = 0; i < N; i++)
		free((void *)(uintptr_t)keys[i].data);
	free(put), free(get), free(keys), free(iov), free(in), free(out), free(present), free(results);
}

static void test_ranges(void **state)
{
	unsigned char out[300];
	struct iovec iov = { out, sizeof(out) };

	(void)state;
	fixture_put_ok(c, "r", 200000, 3);
	assert_int_equal(mcs_get_range(c, fixture_key("r"), 65500, &iov, 1, -1), 300);
	assert_true(fixture_same(out, 300, 3, 65500));
	assert_int_equal(mcs_get_range(c, fixture_key("r"), 199900, &iov, 1, -1), 100);
	assert_true(fixture_same(out, 100, 3, 199900));
	assert_int_equal(mcs_get_range(c, fixture_key("r"), 200000, &iov, 1, -1), 0);
	/* a whole get does not touch a buffer that is too small */
	memset(out, 0xee, sizeof(out));
	assert_int_equal(mcs_get(c, fixture_key("r"), &iov, 1, -1), -ENOBUFS);
	assert_int_equal(out[0], 0xee);
	assert_int_equal(mcs_get(c, fixture_key("no"), &iov, 1, -1), -MCS_ENOOBJECT);
}

/* ---- zero copy: memory that the daemon sees ---- */

static void check_zero_copy(unsigned char *p, size_t len, const char *key)
{
	struct iovec iov[2] = { { p, len / 2 }, { p + len / 2, len - len / 2 } };

	fixture_fill(p, len, 11, 0);
	assert_int_equal(mcs_put(c, fixture_key(key), iov, 2, NULL, -1), 0);
	memset(p, 0, len);
	assert_int_equal(mcs_get(c, fixture_key(key), iov, 2, -1), len);
	assert_true(fixture_same(p, len, 11, 0));
	memset(p, 0, len);
	assert_int_equal(mcs_get_range(c, fixture_key(key), 5, iov, 1, -1), len / 2);
	assert_true(fixture_same(p, len / 2, 11, 5));
}

static void test_registered(void **state)
{
	size_t len = 2 * MIB;
	struct mcn_counts counts;
	unsigned char *p;
	int fd = hand_memfd(len, &p);

	(void)state;
	assert_int_equal(mcs_register_memfd(c, p, len, fd, 0), 0);
	assert_int_equal(mcs_register_memfd(c, p + 4096, 4096, fd, 4096), -EEXIST);
	check_zero_copy(p, len, "z1");
	/* at the end of the buffer */
	check_zero_copy(p + len - 777, 777, "z2");
	mcn_count(node_daemon(), &counts);
	assert_int_equal(counts.buffers, 3);
	/* the file is sealed: it must not shrink while the daemon maps it */
	assert_int_equal(ftruncate(fd, 4096), -1);
	assert_int_equal(mcs_unregister_buffer(c, p), 0);
	assert_int_equal(mcs_unregister_buffer(c, p), -MCS_EPARAM);
	mcn_count(node_daemon(), &counts);
	assert_int_equal(counts.buffers, 2);
	/* unregistered memory can be used like any other */
	check_zero_copy(p, 5000, "z3");
	munmap(p, len);
	close(fd);
	/* ordinary memory can be registered, too; its bytes are copied */
	p = malloc(10000);
	assert_int_equal(mcs_register_buffer(c, p, 10000), 0);
	assert_int_equal(mcs_register_buffer(c, p + 1, 10), -EEXIST);
	check_zero_copy(p, 10000, "z4");
	assert_int_equal(mcs_unregister_buffer(c, p), 0);
	free(p);
	/* memory without access cannot */
	p = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(p != MAP_FAILED);
	assert_int_equal(mcs_register_buffer(c, p, 4096), -EFAULT);
	munmap(p, 4096);
}

/* Memory that the program has never written holds zeros for a put, and is allocated for a get, by the program. */
static void test_unwritten(void **state)
{
	int fd = memfd_create("unwritten", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	size_t len = 3 * MIB;
	unsigned char *p, *zeros = calloc(1, len);
	struct iovec iov[2];

	(void)state;
	assert_int_equal(ftruncate(fd, (off_t)(2 * len)), 0);
	p = mmap(NULL, 2 * len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(p != MAP_FAILED);
	assert_int_equal(mcs_register_memfd(c, p, 2 * len, fd, 0), 0);
	iov[0] = (struct iovec){ p, 1000 };
	iov[1] = (struct iovec){ p + MIB, len - 1000 };
	assert_int_equal(mcs_put(c, fixture_key("unwritten"), iov, 2, NULL, -1), 0);
	fixture_put_ok(c, "written", len, 5);
	iov[0] = (struct iovec){ p + len + 4097, len - 4097 };
	assert_int_equal(mcs_get_range(c, fixture_key("written"), 0, iov, 1, -1), len - 4097);
	assert_true(fixture_same(p + len + 4097, len - 4097, 5, 0));
	iov[0] = (struct iovec){ p, len };
	assert_int_equal(mcs_get(c, fixture_key("unwritten"), iov, 1, -1), len);
	assert_memory_equal(p, zeros, len);
	assert_int_equal(mcs_unregister_buffer(c, p), 0);
	munmap(p, 2 * len);
	free(zeros);
	close(fd);
}

static void test_pool(void **state)
{
	unsigned char *p = mcs_pool_alloc(c, 3 * MIB), *q;

	(void)state;
	assert_non_null(p);
	assert_null(mcs_pool_alloc(c, 2 * MIB));
	check_zero_copy(p, 3 * MIB, "pool");
	mcs_pool_free(c, p);
	q = mcs_pool_alloc(c, 4 * MIB);
	assert_ptr_equal(p, q);
	mcs_pool_free(c, q);
	mcs_pool_free(c, NULL);
}

/* ---- names and the rest of the API ---- */

static void test_names(void **state)
{
	const struct mcs_attrs mode = { .set = MCS_ATTR_MODE, .mode = 0600 };
	struct mcs_entry e;
	struct mcs_info info;
	struct mcs_pool pool;
	struct mcs_key k[3] = { { "d/a", 3 }, { "d/", 2 }, { "none", 4 } };
	struct mcs_info infos[3];
	int results[3];
	mcs_list_t *l;

	(void)state;
	fixture_put_ok(c, "d/a", 10, 1);
	assert_int_equal(mcs_stat_batch(c, k, 3, infos, results, -1), 2);
	assert_int_equal(infos[1].kind, MCS_DIR);
	assert_int_equal(results[2], -MCS_ENOOBJECT);
	assert_int_equal(mcs_stat(c, k[1], &info, -1), -MCS_ENOOBJECT);
	assert_int_equal(mcs_rename(c, k[0], fixture_key("d/b"), 0, -1), 0);
	fixture_expect(c, "d/b", 10, 1);
	assert_int_equal(mcs_set_attrs(c, fixture_key("d/b"), 0, 0, NULL, &mode, NULL, NULL, -1), 0);
	assert_int_equal(mcs_list_open(c, fixture_key("d/"), 1, &l), 0);
	assert_int_equal(mcs_list_next(l, &e, -1), 1);
	assert_int_equal(e.name.len, 1);
	assert_int_equal(e.attrs.set, 0);
	mcs_list_close(l);
	assert_int_equal(mcs_pool_stat(c, &pool, -1), 0);
	assert_int_equal(pool.capacity, NODE_SEGMENT);
	assert_int_equal(mcs_remove_match(c, fixture_key("d/"), NULL, MCS_REMOVE_FORCE, -1), 1);
	assert_int_equal(mcs_health(c), 0);
	assert_int_equal(mcs_segment_grow(c, MIB, -1), -EINVAL);
}

static void *worker(void *arg)
{
	unsigned id = (unsigned)(uintptr_t)arg;
	char key[32];

	for (unsigned i = 0; i < 60; i++) {
		struct mcs_map m;

		snprintf(key, sizeof(key), "t%u.%u", id, i % 7);
		if (fixture_put(c, key, 1000 + i, i, MCS_PUT_UPSERT) != 0)
			return arg;
		if (mcs_map(c, fixture_key(key), 0, &m, -1) != 0)
			return arg;
		if (m.size != 1000 + i || !fixture_same(m.data, m.size, i, 0))
			return arg;
		mcs_unmap(c, &m);
	}
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t t[8];

	(void)state;
	for (uintptr_t i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&t[i], NULL, worker, (void *)(i + 1)), 0);
	for (unsigned i = 0; i < 8; i++) {
		void *r;

		pthread_join(t[i], &r);
		assert_null(r);
	}
}

/* A program that is killed leaves no pins and no connection behind. */
static void test_kill(void **state)
{
	int status, fds[2];
	char ready;
	pid_t pid;

	(void)state;
	fixture_put_ok(c, "k1", 5000, 1);
	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (pid == 0) {
		/* fork without exec: the child only calls the client API, on a handle of its own */
		mcs_t *mine = node_client(MIB, MIB);
		struct mcs_map m[3];

		for (unsigned i = 0; i < 3; i++)
			if (mcs_map(mine, fixture_key("k1"), 0, &m[i], -1))
				_exit(1);
		if (write(fds[1], "x", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	assert_int_equal(read(fds[0], &ready, 1), 1);
	node_wait_counts(3, 2);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	node_wait_counts(0, 1);
	close(fds[0]);
	close(fds[1]);
}

/* Rings, shared memory and pins belong to the parent; a forked child must not use them. */
static void test_fork(void **state)
{
	struct mcs_map m;
	int status;
	pid_t pid;

	(void)state;
	fixture_put_ok(c, "k1", 5000, 1);
	assert_int_equal(mcs_map(c, fixture_key("k1"), 0, &m, -1), 0);
	pid = fork();
	if (pid == 0) {
		static char mem[5000];
		struct iovec iov = { mem, sizeof(mem) };
		int bad = 0;

		alarm(20);
		bad |= mcs_put(c, fixture_key("k2"), &iov, 1, NULL, -1) != -MCS_EUNAVAILABLE;
		bad |= (mcs_get(c, fixture_key("k1"), &iov, 1, -1) != -MCS_EUNAVAILABLE) << 1;
		bad |= (mcs_map_held(c, &m) != -MCS_EUNAVAILABLE) << 2;
		bad |= (mcs_pool_alloc(c, 4096) != NULL) << 3;
		bad |= (mcs_register_buffer(c, mem, sizeof(mem)) != -MCS_EUNAVAILABLE) << 4;
		bad |= (mcs_unregister_buffer(c, mem) != -MCS_EUNAVAILABLE) << 5;
		mcs_unmap(c, &m);
		mcs_close(c);
		_exit(bad);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(mcs_map_held(c, &m), 0);
	assert_true(fixture_same(m.data, m.size, 1, 0));
	fixture_put_ok(c, "k2", 5000, 2);
	fixture_expect(c, "k2", 5000, 2);
	node_wait_counts(1, 1);
	mcs_unmap(c, &m);
}

/* A child that lives on has the parent's socket, too; the connection ends nevertheless when the
 * parent closes it. */
static void test_fork_outlives(void **state)
{
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		alarm(60);
		for (;;)
			pause();
	}
	mcs_close(c);
	c = NULL;
	node_wait_counts(0, 0);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* The connection also ends when the parent is killed and cannot close it. */
static void test_fork_outlives_kill(void **state)
{
	pid_t pid, child;
	int fds[2];

	(void)state;
	fixture_put_ok(c, "k1", 5000, 1);
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	pid = fork();
	if (pid == 0) {
		mcs_t *mine = node_client(MIB, MIB);
		struct mcs_map m;

		if (mcs_map(mine, fixture_key("k1"), 0, &m, -1))
			_exit(1);
		child = fork();
		if (child && write(fds[1], &child, sizeof(child)) != sizeof(child))
			_exit(1);
		alarm(60);
		for (;;)
			pause();
	}
	assert_int_equal(read(fds[0], &child, sizeof(child)), sizeof(child));
	node_wait_counts(1, 2);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	node_wait_counts(0, 1);
	/* the child is still running */
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
	close(fds[0]);
	close(fds[1]);
}

/* The daemon restarts: calls continue, and buffers are registered again. */
static void test_restart(void **state)
{
	unsigned char *p = mcs_pool_alloc(c, MIB);
	struct mcs_map m;

	(void)state;
	fixture_put_ok(c, "gone", 1000, 1);
	assert_int_equal(mcs_map(c, fixture_key("gone"), 0, &m, -1), 0);
	node_down();
	assert_true(fixture_same(m.data, m.size, 1, 0));
	assert_int_equal(mcs_health(c), 2);
	assert_int_equal(fixture_put(c, "x", 1000, 1, 0), -MCS_ERPC);
	node_up(NODE_SEGMENT);
	assert_int_equal(mcs_health(c), 0);
	check_zero_copy(p, MIB, "again");
	/* the old daemon's memory stays mapped, but the new daemon does not hold it */
	assert_true(fixture_same(m.data, m.size, 1, 0));
	assert_int_equal(mcs_map_held(c, &m), -MCS_EREPLICA_GONE);
	mcs_unmap(c, &m);
	assert_int_equal(mcs_map(c, fixture_key("gone"), 0, &m, -1), -MCS_ENOOBJECT);
}

/* The first call after the restart reads a range, into memory that the daemon does not see. */
static void test_restart_part(void **state)
{
	mcs_t *other = fixture_store_with(16 * MIB, 1, FIXTURE_LOCAL);
	const char *there[] = { mcs_hostname(other), NULL };
	const struct mcs_put_opts opts = { .preferred = there };
	unsigned char out[1000];
	struct iovec iov = { out, sizeof(out) };

	(void)state;
	fixture_fill(out, sizeof(out), 5, 0);
	assert_int_equal(mcs_put(other, fixture_key("part"), &iov, 1, &opts, -1), 0);
	iov.iov_len = 500;
	assert_int_equal(mcs_get_range(c, fixture_key("part"), 100, &iov, 1, -1), 500);
	node_down();
	node_up(NODE_SEGMENT);
	memset(out, 0, sizeof(out));
	assert_int_equal(mcs_get_range(c, fixture_key("part"), 300, &iov, 1, -1), 500);
	assert_true(fixture_same(out, 500, 5, 300));
	mcs_close(other);
}

/* A daemon of another master runs at the old address: the client must not use its objects. */
static void test_other_master(void **state)
{
	char first[64];

	(void)state;
	fixture_put_ok(c, "x", 1000, 1);
	node_down();
	snprintf(first, sizeof(first), "%s", fixture_master_addr());
	/* The kernel may choose the same port again, which is then no other master for the client. */
	do {
		fixture_master_stop();
		fixture_master(NULL);
	} while (strcmp(first, fixture_master_addr()) == 0);
	node_up(NODE_SEGMENT);
	assert_int_equal(fixture_put(c, "y", 1000, 1, 0), -MCS_ERPC);
	assert_int_equal(mcs_health(c), 2);
}

static void *put_and_get(void *arg)
{
	size_t len = 700000;
	unsigned char *mem = malloc(len);
	struct iovec iov = { mem, len };
	char key[32];
	int bad = 0;

	fixture_fill(mem, len, (uintptr_t)arg, 0);
	for (unsigned i = 0; i < 40 && !bad; i++) {
		snprintf(key, sizeof(key), "b%u", (unsigned)(uintptr_t)arg);
		bad = mcs_upsert(c, fixture_key(key), &iov, 1, NULL, -1) != 0 ||
			mcs_get_range(c, fixture_key(key), 5, &iov, 1, -1) != (int64_t)len - 5 ||
			!fixture_same(mem, len - 5, (uintptr_t)arg, 5);
		fixture_fill(mem, len, (uintptr_t)arg, 0);
	}
	free(mem);
	return bad ? arg : NULL;
}

/* The shared memory has space for one caller at a time. */
static void test_crowded(void **state)
{
	unsigned failed = 0;
	pthread_t t[6];

	(void)state;
	for (uintptr_t i = 0; i < 6; i++)
		assert_int_equal(pthread_create(&t[i], NULL, put_and_get, (void *)(i + 1)), 0);
	for (unsigned i = 0; i < 6; i++) {
		void *bad;

		pthread_join(t[i], &bad);
		failed += bad != NULL;
	}
	assert_int_equal(failed, 0);
}

struct room {
	struct mcs_get_item item;
	unsigned char *p;
	uint64_t size;
};

static void *make_room(void *arg, unsigned i, uint64_t size)
{
	struct room *room = arg;

	(void)i;
	room->size = size;
	room->p = realloc(room->p, size);
	return room->p;
}

static void *get_slowly(void *arg)
{
	struct room *room = arg;

	(void)mcs_get_batch_alloc(c, &room->item, 1, make_room, room, -1);
	return NULL;
}

static void put_there(mcs_t *other, size_t len, uint64_t seed)
{
	const char *there[] = { mcs_hostname(other), NULL };
	struct mcs_put_opts opts = { .preferred = there };
	struct iovec iov = { malloc(len), len };

	fixture_fill(iov.iov_base, len, seed, 0);
	assert_int_equal(mcs_upsert(other, fixture_key("big"), &iov, 1, &opts, -1), 0);
	free(iov.iov_base);
}

/* The object is too large for the daemon to map, and changes while it is read: the buffer is
 * allocated for the bytes that arrive. */
static void test_changing(void **state)
{
	static const size_t then[] = { 9 * MIB, 13 * MIB };
	mcs_t *other = fixture_store_with(NODE_SEGMENT, 1, FIXTURE_LOCAL);
	const struct timespec tick = { .tv_nsec = 1000000 };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct room room = { .item.key = fixture_key("big") };
		pthread_t t;

		put_there(other, 11 * MIB, 1);
		assert_int_equal(mc_fault_set("client.node.after_stat=delay:2000@1"), 0);
		assert_int_equal(pthread_create(&t, NULL, get_slowly, &room), 0);
		while (mc_fault_hits("client.node.after_stat") < 1)
			nanosleep(&tick, NULL);
		put_there(other, then[i], 2);
		pthread_join(t, NULL);
		assert_true(room.item.result == (int64_t)(11 * MIB) ||
			    room.item.result == (int64_t)then[i]);
		assert_int_equal(room.item.result, room.size);
		assert_true(fixture_same(room.p, room.size, room.size == then[i] ? 2 : 1, 0));
		assert_int_equal(mc_fault_set(NULL), 0);
		free(room.p);
	}
	mcs_close(other);
}

static void test_store_c(void **state)
{
	mooncake_store_t s = mooncake_store_create();
	char out[100];
	void *p;

	(void)state;
	assert_null(mooncake_store_alloc_from_mem_pool(s, 100));
	assert_int_equal(mooncake_store_setup_dummy(s, MIB, MIB, "unix:/nonexistent/socket"), -1);
	assert_int_equal(mooncake_store_setup_dummy(s, MIB, MIB, node_address()), 0);
	p = mooncake_store_alloc_from_mem_pool(s, 100);
	assert_non_null(p);
	memcpy(p, "hello", 6);
	assert_int_equal(mooncake_store_put_from(s, "c", p, 6, NULL), 0);
	assert_int_equal(mooncake_store_get_into(s, "c", out, sizeof(out)), 6);
	assert_string_equal(out, "hello");
	assert_int_equal(mooncake_store_get_size(s, "c"), 6);
	assert_int_equal(mooncake_store_is_exist(s, "c"), 1);
	assert_int_equal(mooncake_store_remove(s, "c", 1), 0);
	assert_int_equal(mooncake_store_health_check(s), 0);
	mooncake_store_destroy(s);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_sizes),
		TEST(test_put_semantics),
		TEST(test_options),
		TEST(test_copies_on_nof_disks),
		TEST(test_groups),
		TEST(test_batches),
		TEST(test_ranges),
		TEST(test_registered),
		TEST(test_unwritten),
		TEST(test_pool),
		TEST(test_names),
		TEST(test_threads),
		TEST(test_kill),
		TEST(test_fork),
		TEST(test_fork_outlives),
		TEST(test_fork_outlives_kill),
		TEST(test_restart),
		TEST(test_restart_part),
		TEST(test_other_master),
		TEST(test_crowded),
		TEST(test_changing),
		TEST(test_store_c),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
