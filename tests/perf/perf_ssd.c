/* SPDX-License-Identifier: Apache-2.0
 * perf_ssd.c - one owner with a disk, in this process: how fast objects are copied to the disk and read from it, and
 * how long puts take meanwhile.
 *
 *	perf_ssd MASTER DIR BYTES N DEPTH	rates: prints "write MB/s" and "read MB/s"
 *	perf_ssd MASTER shared:DIR BYTES N DEPTH	the same with a shared directory, and "direct MB/s": read by a
 *						node without memory, which opens the owner's file itself
 *	perf_ssd MASTER DIR BYTES N 0 [PAUSE]	latency of puts in us, PAUSE us apart: prints "put P50 P99"; DIR "":
 *						without a disk */
#include <config.h>

#include <mooncake/mcs.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/sys/clock.h"

#define SHARED "shared:"

static size_t bytes;
static unsigned n, depth;
static char *buf;

static void die(const char *what, int r)
{
	fprintf(stderr, "%s: %s\n", what, mcs_error_detail(r));
	exit(1);
}

static struct mcs_key key_of(unsigned i, char name[32])
{
	return (struct mcs_key){ name, (size_t)snprintf(name, 32, "perf/%u", i) };
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static unsigned pause_us;	/* after each put */

static void put_all(mcs_t *s, uint64_t *ns)
{
	struct iovec iov = { buf, bytes };
	char name[32];

	for (unsigned i = 0; i < n; i++) {
		uint64_t begin = mc_now_ns();
		int r;

		memcpy(buf, &i, sizeof(i));
		r = mcs_put(s, key_of(i, name), &iov, 1, NULL, -1);
		if (r < 0)
			die("put", r);
		if (ns)
			ns[i] = mc_now_ns() - begin;
		if (pause_us)
			usleep(pause_us);
	}
}

/* Is the object on the medium, or (@only) there alone? */
static bool is_on(mcs_t *s, unsigned i, unsigned medium, bool only)
{
	struct mcs_info info;
	char name[32];
	unsigned media;

	if (mcs_stat(s, key_of(i, name), &info, -1) < 0)
		return false;
	media = info.flags & (MCS_IN_MEMORY | MCS_ON_DISK | MCS_ON_SHARED);
	return only ? media == medium : media & medium;
}

static void wait_on(mcs_t *s, unsigned medium, bool only)
{
	for (unsigned i = 0; i < n; i++)
		while (!is_on(s, i, medium, only))
			usleep(500);
}

static double read_all(mcs_t *s, unsigned rounds)
{
	struct mcs_get_item *item = calloc(depth, sizeof(*item));
	struct iovec *iov = calloc(depth, sizeof(*iov));
	char (*name)[32] = calloc(depth, sizeof(*name));
	uint64_t begin = mc_now_ns();
	unsigned at = 0, total = n / depth * depth * rounds;

	for (unsigned done = 0; done < total; done += depth) {
		int r;

		for (unsigned i = 0; i < depth; i++) {
			/* 7919 is a prime: an order far from that of the puts */
			at = (at + 7919) % n;
			iov[i] = (struct iovec){ buf + i * bytes, bytes };
			item[i] = (struct mcs_get_item){
				.key = key_of(at, name[i]), .iov = &iov[i], .iovcnt = 1, .whole = 1,
			};
		}
		r = mcs_get_batch(s, item, depth, -1);
		if (r < (int)depth)
			die("get", r);
	}
	free(item);
	free(iov);
	free(name);
	return (double)total * (double)bytes / ((double)(mc_now_ns() - begin) / 1e9);
}

/* @medium: the disk's or the directory's.  @other: another node's session, or NULL. */
static void rates(mcs_t *s, unsigned medium, mcs_t *other)
{
	struct mcs_task_opts evict = { .kind = MCS_TASK_EVICT };
	const char *sources[] = { mcs_hostname(s), NULL };
	char id[MCS_TASK_ID];
	struct mcs_key *key = calloc(n, sizeof(*key));
	char (*name)[32] = calloc(n, sizeof(*name));
	uint64_t begin;
	int r;

	put_all(s, NULL);
	for (unsigned i = 0; i < n; i++)
		key[i] = key_of(i, name[i]);
	/* Ask for all copies at once, so that the puts are not measured. */
	begin = mc_now_ns();
	r = mcs_tier(s, key, n, medium, NULL, -1);
	if (r < (int)n)
		die("tier", r);
	wait_on(s, medium, false);
	printf("write %.1f\n", (double)n * (double)bytes / ((double)(mc_now_ns() - begin) / 1e9) / 1e6);
	evict.sources = sources;
	r = mcs_task_create(s, &evict, id, -1);
	if (r < 0)
		die("evict", r);
	wait_on(s, medium, true);
	printf("read %.1f\n", read_all(s, 2) / 1e6);
	if (other)
		printf("direct %.1f\n", read_all(other, 2) / 1e6);
	free(key);
	free(name);
}

static void latency(mcs_t *s)
{
	uint64_t *ns = calloc(n, sizeof(*ns));

	put_all(s, ns);
	qsort(ns, n, sizeof(*ns), by_value);
	printf("put %.1f %.1f\n", (double)ns[n / 2] / 1e3, (double)ns[n * 99 / 100] / 1e3);
	free(ns);
}

static mcs_t *open_node(const char *master, const char *dir, uint64_t segment)
{
	struct mcs_conf conf;
	mcs_t *s;
	int r;

	mcs_conf_init(&conf);
	conf.master = master;
	if (!strncmp(dir, SHARED, strlen(SHARED)))
		conf.root_fs_dir = dir + strlen(SHARED);
	else
		conf.ssd_path = dir;
	conf.segment_size = segment;
	conf.ssd_format = 1;
	conf.daemon = "off";
	r = mcs_open(&conf, &s);
	if (r < 0)
		die("open", r);
	return s;
}

int main(int argc, char **argv)
{
	mcs_t *s, *other = NULL;
	bool shared;

	if (argc < 6)
		return 2;
	bytes = (size_t)atol(argv[3]);
	n = (unsigned)atoi(argv[4]);
	depth = (unsigned)atoi(argv[5]);
	pause_us = argc > 6 ? (unsigned)atoi(argv[6]) : 0;
	buf = aligned_alloc(4096, bytes * (depth ? depth : 1));
	memset(buf, 'x', bytes * (depth ? depth : 1));
	/* All of it fits, so that nothing but the disk is measured. */
	s = open_node(argv[1], argv[2], (uint64_t)n * (bytes + 8192) * 2 + (64 << 20));
	shared = !strncmp(argv[2], SHARED, strlen(SHARED));
	if (depth && shared)
		other = open_node(argv[1], "", 0);
	if (depth)
		rates(s, shared ? MCS_ON_SHARED : MCS_ON_DISK, other);
	else
		latency(s);
	if (other)
		mcs_close(other);
	mcs_close(s);
	return 0;
}
