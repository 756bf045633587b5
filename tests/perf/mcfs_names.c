/* SPDX-License-Identifier: Apache-2.0
 * mcfs_names.c - cost of small files on a mount, against a filesystem on libfuse that only answers, and the
 * memory that the daemon keeps.  perf_mcfs_names.sh creates both.
 *
 *	mcfs_names MCFS-DIR BARE-DIR ROUNDS */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "tests/perf/row.h"

#define SIZE 4096
#define OPS (unsigned)perf_n(200, 10)
#define ROUNDS_MAX 51
#define WHAT 3

static char buf[SIZE + 1], path[2][256];

static void die(const char *what)
{
	fprintf(stderr, "mcfs_names: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void create(const char *p)
{
	int fd = open(p, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, buf, SIZE) != SIZE || close(fd) < 0)
		die(p);
}

static void read_whole(const char *p)
{
	int fd = open(p, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || read(fd, buf, sizeof(buf)) != SIZE)
		die(p);
	close(fd);
}

/* Nanoseconds of one operation: create, write and close; open, read and close; stat. */
static void one_round(const char *p, double ret[WHAT])
{
	uint64_t t, sum = 0;
	unsigned ops = OPS;
	struct stat st;

	for (unsigned i = 0; i < ops; i++) {
		t = mc_now_ns();
		create(p);
		sum += mc_now_ns() - t;
		if (i + 1 < ops && unlink(p) < 0)
			die(p);
	}
	ret[0] = (double)sum / ops;
	t = mc_now_ns();
	for (unsigned i = 0; i < ops; i++)
		read_whole(p);
	ret[1] = (double)(mc_now_ns() - t) / ops;
	t = mc_now_ns();
	for (unsigned i = 0; i < ops; i++)
		if (stat(p, &st) < 0)
			die(p);
	ret[2] = (double)(mc_now_ns() - t) / ops;
	if (unlink(p) < 0)
		die(p);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
	static const char *const names[WHAT] = {
		"4 KiB: create, write, close", "4 KiB: open, read, close", "stat",
	};
	static double ns[2][WHAT][ROUNDS_MAX];
	unsigned rounds = argc == 4 ? (unsigned)atoi(argv[3]) : 0;
	double round[WHAT];

	if (!rounds || rounds > ROUNDS_MAX)
		return 2;
	for (unsigned k = 0; k < 2; k++)
		snprintf(path[k], sizeof(path[k]), "%s/file", argv[1 + k]);
	for (unsigned i = 0; i < rounds; i++) {
		for (unsigned k = 0; k < 2; k++) {
			one_round(path[k], round);
			for (unsigned w = 0; w < WHAT; w++)
				ns[k][w][i] = round[w];
		}
	}
	for (unsigned w = 0; w < WHAT; w++) {
		double m[2];

		for (unsigned k = 0; k < 2; k++) {
			qsort(ns[k][w], rounds, sizeof(double), by_value);
			m[k] = ns[k][w][rounds / 2];
		}
		perf_row(names[w], "mcfs", m[0] / 1000, "us");
		perf_row(names[w], "bare libfuse", m[1] / 1000, "us");
		perf_row(names[w], "ratio", m[0] / m[1], "x bare libfuse");
	}
	return 0;
}
