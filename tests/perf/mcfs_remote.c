/* SPDX-License-Identifier: Apache-2.0
 * mcfs_remote.c - reads one object of another node by the store, in pieces and whole, and its file by
 * read(2), in turn.  perf_mcfs_remote.sh creates the nodes.
 *
 *	mcfs_remote MASTER HOST KEY FILE ROUNDS */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "tests/perf/row.h"
#include <mooncake/mcs.h>

#define MIB ((size_t)1 << 20)
#define ROUNDS_MAX 51
#define WAYS 4

static char *buf;
static mcs_t *store;

static void die(const char *what, const char *why)
{
	fprintf(stderr, "mcfs_remote: %s: %s\n", what, why);
	exit(1);
}

/* Read the whole object at once, as fast as the engine can. */
static uint64_t by_engine(const char *key, size_t size)
{
	struct mcs_key k = { key, strlen(key) };
	struct iovec iov = { buf, size };
	uint64_t t = mc_now_ns();
	mcs_object_t *o;
	int64_t n;

	if (mcs_object_open(store, k, &o, -1) < 0)
		die(key, "cannot be opened");
	n = mcs_object_read(o, 0, &iov, 1, 30000);
	if (n != (int64_t)size)
		die(key, "cannot be read");
	mcs_object_close(o);
	return mc_now_ns() - t;
}

static uint64_t by_file(const char *path, size_t size, size_t piece)
{
	uint64_t t = mc_now_ns();
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t at = 0;
	ssize_t n;

	if (fd < 0)
		die(path, strerror(errno));
	while (at < size && (n = read(fd, buf + at, piece)) > 0)
		at += (size_t)n;
	if (at != size)
		die(path, "cannot be read");
	close(fd);
	return mc_now_ns() - t;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static double rate(uint64_t *ns, unsigned n, size_t size)
{
	qsort(ns, n, sizeof(*ns), by_value);
	return (double)size / (double)ns[n / 2];
}

int main(int argc, char **argv)
{
	static const size_t piece[WAYS] = { 0, 128 << 10, 1 << 20, 16 << 20 };
	static const char *const name[WAYS] = { "engine", "read(2) 128 KiB", "read(2) 1 MiB", "read(2) 16 MiB" };
	static uint64_t ns[WAYS][ROUNDS_MAX];
	unsigned rounds = argc == 6 ? (unsigned)atoi(argv[5]) : 0;
	struct mcs_conf conf;
	struct mcs_info info;
	double engine = 0;
	size_t size;

	if (!rounds || rounds > ROUNDS_MAX)
		return 2;
	mcs_conf_init(&conf);
	conf.master = argv[1];
	conf.hostname = argv[2];
	if (mcs_open(&conf, &store) < 0)
		die("mcs_open", mcs_error_detail(-1));
	if (mcs_stat(store, (struct mcs_key){ argv[3], strlen(argv[3]) }, &info, -1) < 0)
		die(argv[3], "not there");
	size = (size_t)info.size;
	buf = aligned_alloc(MIB, (size / MIB + 1) * MIB);
	if (!buf)
		die("memory", strerror(errno));
	memset(buf, 1, size);
	for (unsigned i = 0; i < rounds; i++)
		for (unsigned w = 0; w < WAYS; w++)
			ns[w][i] = w ? by_file(argv[4], size, piece[w]) : by_engine(argv[3], size);
	for (unsigned w = 0; w < WAYS; w++) {
		double r = rate(ns[w], rounds, size);

		perf_row("remote cold read, between namespaces", name[w], r, "GB/s");
		if (w)
			perf_row("remote cold read, between namespaces", name[w], r / engine,
				 "x engine");
		else
			engine = r;
	}
	mcs_close(store);
	free(buf);
	return 0;
}
