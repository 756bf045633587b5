/* SPDX-License-Identifier: Apache-2.0
 * perf_node.c - the node's daemon: a request over the ring, polling and asleep, and a bare wake-up; an object as
 * memory, at several sizes; puts and gets of 1 MiB in lent memory, against memcpy.  Master, daemon and
 * client are in one process and communicate as between processes.
 *
 *	perf_node [ring|map|copy]	all of it, or one part */
#include <config.h>

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "client/daemon/daemon.h"
#include "common/sys/clock.h"
#include "master/master.h"
#include "node/node.h"
#include "tests/perf/row.h"

#define MIB ((size_t)1 << 20)
#define CALLS_MAX 5000
#define CALLS (unsigned)perf_n(CALLS_MAX, 100)
#define SLEEPS_MAX 500
#define SLEEPS (unsigned)perf_n(SLEEPS_MAX, 20)
#define SLOTS 32		/* number of 1 MiB objects used in turn, so that CPU caches do not help */
#define ROUNDS_MAX 9

static char dir[64], path[96], addr[112];
static struct mcm *master;
static mcs_t *owner;
static struct mcn *range;

static void die(const char *what, int r)
{
	fprintf(stderr, "perf_node: %s: %s\n", what, mcs_error_detail(r));
	exit(1);
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static double quantile(uint64_t *ns, unsigned n, double q)
{
	qsort(ns, n, sizeof(*ns), by_value);
	return (double)ns[(unsigned)((n - 1) * q)] / 1000;
}

static void start(struct mc_options **ret_options)
{
	static struct mcm_conf conf;
	struct mcm_listen where = { .local_name = "perf" };
	struct mcs_conf c;
	int r = mcm_conf_defaults(&conf, ret_options);

	if (r == 0)
		r = mcm_start(&conf, &where, &master);
	if (r < 0)
		die("master", r);
	mcs_conf_init(&c);
	c.master = "local:perf";
	c.segment_size = 384 * MIB;
	r = mcs_open(&c, &owner);
	if (r < 0)
		die("store", r);
}

static void start_node(unsigned spin_us)
{
	struct mcn_conf conf = {
		.store = owner, .master = "local:perf", .path = path, .hot_size = MIB,
		.hot_ms = 60000, .spin_us = spin_us,
	};
	int r = mcn_start(&conf, &range);

	if (r < 0)
		die("daemon", r);
}

/* ---- the ring ---- */

static struct {
	uint32_t asked, answered;	/* atomic; equal when no request is pending */
} bare;

/* Sleep until there is a request, and answer it: the minimum cost of a sleeping daemon. */
static void *bare_sleeper(void *arg)
{
	for (uint32_t n = 0, end = SLEEPS; n < end; n++) {
		while (__atomic_load_n(&bare.asked, __ATOMIC_ACQUIRE) == n)
			(void)syscall(SYS_futex, &bare.asked, FUTEX_WAIT, n, NULL, NULL, 0);
		__atomic_store_n(&bare.answered, n + 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

/* Cost of a bare wake-up on this machine. */
static void bare_rows(void)
{
	static uint64_t ns[SLEEPS_MAX];
	const struct timespec pause = { .tv_nsec = 1000000 };
	pthread_t t;

	if (pthread_create(&t, NULL, bare_sleeper, NULL))
		die("thread", -EAGAIN);
	for (uint32_t i = 0; i < SLEEPS; i++) {
		uint64_t at;

		nanosleep(&pause, NULL);
		at = mc_now_ns();
		__atomic_store_n(&bare.asked, i + 1, __ATOMIC_RELEASE);
		(void)syscall(SYS_futex, &bare.asked, FUTEX_WAKE, 1, NULL, NULL, 0);
		while (__atomic_load_n(&bare.answered, __ATOMIC_ACQUIRE) != i + 1)
			;
		ns[i] = mc_now_ns() - at;
	}
	pthread_join(t, NULL);
	perf_row("bare futex, sleeper woken", "p50", quantile(ns, SLEEPS, 0.5), "us");
	perf_row("bare futex, sleeper woken", "p99", quantile(ns, SLEEPS, 0.99), "us");
}

static void ring_rows(const char *what, bool asleep)
{
	static uint64_t ns[CALLS_MAX];
	const struct timespec pause = { .tv_nsec = 1000000 };
	struct mcs_conf conf;
	struct mcs_daemon *n;
	struct mcs_daemon_conn *c;
	unsigned calls = asleep ? SLEEPS : CALLS;
	int r;

	start_node(asleep ? 0 : 1000);
	mcs_conf_init(&conf);
	conf.tenant = "";
	conf.daemon = addr;
	conf.spin_us = 1000;
	r = mcs_daemon_open(&conf, NULL, &n);
	if (r == 1)
		r = mcs_daemon_conn_get(n, MC_NEVER, &c);
	if (r < 0)
		die("client", r);
	for (unsigned i = 0; i < calls; i++) {
		struct mcs_daemon_req q = { .op = MCFS_RING_NOP };
		uint64_t at;

		if (asleep)
			nanosleep(&pause, NULL);
		at = mc_now_ns();
		r = mcs_daemon_run(c, &q, 1, NULL, MC_NEVER);
		ns[i] = mc_now_ns() - at;
		if (r < 0)
			die("request", r);
	}
	perf_row(what, "p50", quantile(ns, calls, 0.5), "us");
	perf_row(what, "p99", quantile(ns, calls, 0.99), "us");
	mcs_daemon_conn_put(c);
	mcs_daemon_close(n);
	mcn_stop(range);
}

/* ---- lane B ---- */

static mcs_t *client(void)
{
	struct mcs_conf conf;
	mcs_t *s;
	int r;

	mcs_conf_init(&conf);
	conf.daemon = addr;
	conf.daemon_pool = (SLOTS + 1) * MIB;
	conf.spin_us = 1000;
	r = mcs_open(&conf, &s);
	if (r < 0)
		die("client", r);
	return s;
}

static void map_rows(mcs_t *s, const char *name, size_t size, unsigned flags)
{
	static uint64_t ns[CALLS_MAX];
	struct mcs_key key = { name, strlen(name) };
	unsigned char *data = calloc(1, size);
	struct iovec iov = { data, size };
	char what[64];
	int r = mcs_upsert(owner, key, &iov, 1, NULL, -1);

	if (r < 0)
		die("put", r);
	for (unsigned i = 0, end = CALLS; i < end; i++) {
		uint64_t at = mc_now_ns();
		struct mcs_map m;

		r = mcs_map(s, key, flags, &m, -1);
		ns[i] = mc_now_ns() - at;
		if (r < 0)
			die("map", r);
		mcs_unmap(s, &m);
	}
	snprintf(what, sizeof(what), "lane B get %s, %s", name, flags ? "hot" : "asked for");
	perf_row(what, "p50", quantile(ns, CALLS, 0.5), "us");
	perf_row(what, "p99", quantile(ns, CALLS, 0.99), "us");
	free(data);
}

/* ---- lane C ---- */

static uint64_t copy_all(unsigned char *to, const unsigned char *from)
{
	uint64_t at = mc_now_ns();

	for (unsigned i = 0; i < SLOTS; i++)
		memcpy(to + i * MIB, from + i * MIB, MIB);
	return mc_now_ns() - at;
}

static uint64_t move_all(mcs_t *s, unsigned char *p, unsigned round, bool put)
{
	uint64_t at = mc_now_ns();

	for (unsigned i = 0; i < SLOTS; i++) {
		struct iovec iov = { p + i * MIB, MIB };
		char key[32];
		int64_t r;

		snprintf(key, sizeof(key), "c%u.%u", round, i);
		r = put ? mcs_put(s, (struct mcs_key){ key, strlen(key) }, &iov, 1, NULL, -1) :
			mcs_get(s, (struct mcs_key){ key, strlen(key) }, &iov, 1, -1);
		if (r < 0)
			die("lane C", (int)r);
	}
	return mc_now_ns() - at;
}

static void lane_c_rows(mcs_t *s)
{
	uint64_t copy[ROUNDS_MAX], put[ROUNDS_MAX], get[ROUNDS_MAX];
	unsigned rounds = (unsigned)perf_n(ROUNDS_MAX, 1);
	unsigned char *p = mcs_pool_alloc(s, SLOTS * MIB);
	unsigned char *q = mmap(NULL, SLOTS * MIB, PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	double c;

	if (!p || q == MAP_FAILED)
		die("memory", -12);
	memset(p, 7, SLOTS * MIB);
	for (unsigned i = 0; i < rounds; i++) {
		copy[i] = copy_all(q, p);
		put[i] = move_all(s, p, i % 8, true);
		get[i] = move_all(s, p, i % 8, false);
		if (i % 8 == 7)
			(void)mcs_remove_match(owner, (struct mcs_key){ "c", 1 }, NULL,
					       MCS_REMOVE_FORCE, -1);
	}
	c = quantile(copy, rounds, 0.5);
	perf_row("lane C 1 MiB", "memcpy", SLOTS * MIB / c / 1000, "GB/s");
	perf_row("lane C put 1 MiB", "ratio", c / quantile(put, rounds, 0.5), "x memcpy");
	perf_row("lane C get 1 MiB", "ratio", c / quantile(get, rounds, 0.5), "x memcpy");
	munmap(q, SLOTS * MIB);
	mcs_pool_free(s, p);
}

static bool wanted(int argc, char **argv, const char *part)
{
	return argc < 2 || strcmp(argv[1], part) == 0;
}

int main(int argc, char **argv)
{
	struct mc_options *options;
	mcs_t *s;

	snprintf(dir, sizeof(dir), "/tmp/perf-node.XXXXXX");
	if (!mkdtemp(dir))
		die(dir, -1);
	snprintf(path, sizeof(path), "%s/sock", dir);
	snprintf(addr, sizeof(addr), "unix:%s", path);
	start(&options);
	/* Wait: a thread still touches the segment's pages in the background, which uses a CPU. */
	sleep((unsigned)perf_n(1, 0));
	if (wanted(argc, argv, "ring")) {
		ring_rows("ring, polling", false);
		bare_rows();
		ring_rows("ring, daemon asleep", true);
	}
	start_node(1000);
	s = client();
	if (wanted(argc, argv, "map")) {
		map_rows(s, "4 KiB", 4096, MCS_MAP_HOT);
		map_rows(s, "1 MiB", MIB, MCS_MAP_HOT);
		map_rows(s, "64 MiB", 64 * MIB, MCS_MAP_HOT);
		map_rows(s, "1 MiB", MIB, 0);
	}
	if (wanted(argc, argv, "copy"))
		lane_c_rows(s);
	mcs_close(s);
	mcn_stop(range);
	mcs_close(owner);
	mcm_stop(master);
	mc_options_free(options);
	rmdir(dir);
	return 0;
}
