/* SPDX-License-Identifier: Apache-2.0
 * hist_main.c - hist_check cache|keep|shared LOG...: check the logs of one run.  0: no violation, 1: violations.
 * The last line has the numbers of calls, and with copies on other ranks than near memory those of the ranks too. */
#include <config.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/history/hist_check.h"

/* Append the records of a log to @all; returns their new number. */
static size_t load(const char *path, struct hist_rec **all, size_t n)
{
	size_t size = HIST_LOG_MAX * sizeof(**all), used = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	const struct hist_rec *rec = fd < 0 ? MAP_FAILED : mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

	if (rec == MAP_FAILED) {
		fprintf(stderr, "cannot read the log %s\n", path);
		exit(2);
	}
	/* Up to 15 threads may have been killed between taking a record and setting its inv_ns. */
	for (size_t i = 0; i < HIST_LOG_MAX && i < used + 16; i++)
		if (rec[i].inv_ns)
			used = i + 1;
	*all = realloc(*all, (n + used + 1) * sizeof(**all));
	if (!*all)
		exit(2);
	for (size_t i = 0; i < used; i++)
		if (rec[i].op)
			(*all)[n++] = rec[i];
	munmap((void *)rec, size);
	close(fd);
	return n;
}

static void print_ranks(const struct hist_report *rp)
{
	static const char *const name[HIST_RANKS] = { "near", "far", "disk", "shared" };
	unsigned long others = 0;

	for (unsigned i = 1; i < HIST_RANKS; i++)
		others += rp->read[i] + rp->down[i] + rp->up[i];
	for (unsigned i = 0; others && i < HIST_RANKS; i++)
		printf("read_%s=%lu ", name[i], rp->read[i]);
	for (unsigned i = 1; others && i < HIST_RANKS; i++)
		printf("to_%s=%lu from_%s=%lu ", name[i], rp->down[i], name[i], rp->up[i]);
}

int main(int argc, char **argv)
{
	struct hist_report rp;
	struct hist_rec *all = NULL;
	size_t n = 0;
	unsigned promises = 0;

	if (argc >= 3 && !strcmp(argv[1], "keep"))
		promises = HIST_KEEP;
	else if (argc >= 3 && !strcmp(argv[1], "shared"))
		promises = HIST_SHARED;
	else if (argc < 3 || strcmp(argv[1], "cache") != 0)
		return fprintf(stderr, "usage: hist_check cache|keep|shared LOG...\n"), 2;
	for (int i = 2; i < argc; i++)
		n = load(argv[i], &all, n);
	hist_check(all, n, promises, stdout, &rp);
	for (unsigned i = 0; i < HIST_RULES; i++)
		if (rp.broken[i])
			printf("%s: %lu\n", hist_rule_name(i), rp.broken[i]);
	print_ranks(&rp);
	if (promises & HIST_SHARED)
		printf("safe=%lu ", rp.safe);
	printf("calls=%lu ok=%lu absent=%lu failed=%lu open=%lu violations=%lu\n", rp.calls, rp.ok, rp.absent,
	       rp.failed, rp.open, rp.violations);
	free(all);
	return rp.violations ? 1 : 0;
}
