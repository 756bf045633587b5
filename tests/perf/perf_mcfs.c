/* SPDX-License-Identifier: Apache-2.0
 * perf_mcfs.c - files of a mount against files of tmpfs: reading, and writing new files, by a program
 * that opens, reads or writes 1 MiB at a time, and closes.  Rounds alternate, medians are shown.
 *
 *	perf_mcfs [-r ROUNDS] [-m MOUNT]	MOUNT: an mcfs that is mounted; else one of its own */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/perf/row.h"

#define MIB ((size_t)1 << 20)
#define ROUNDS_MAX 101
#define FUSE_MAGIC 0x65735546
#define TMPFS_DIR "/dev/shm"

static char *buf;
static char shm[64], mnt[64];
static pid_t daemon_pid;

static void clean_up(void)
{
	char cmd[256];

	if (daemon_pid > 0) {
		kill(daemon_pid, SIGTERM);
		waitpid(daemon_pid, NULL, 0);
		rmdir(mnt);
	}
	if (shm[0]) {
		snprintf(cmd, sizeof(cmd), "%s/file", shm);
		unlink(cmd);
		rmdir(shm);
	}
}

static void die(const char *what)
{
	fprintf(stderr, "perf_mcfs: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void skip(const char *why)
{
	printf("SKIP: %s\n", why);
	exit(77);
}

static void write_file(const char *path, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0)
		die(path);
	for (size_t at = 0; at < size; at += MIB) {
		size_t n = size - at < MIB ? size - at : MIB;

		if (write(fd, buf + at, n) != (ssize_t)n)
			die(path);
	}
	if (close(fd) < 0)
		die(path);
}

static void read_file(const char *path, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t at = 0;
	ssize_t n;

	if (fd < 0)
		die(path);
	while ((n = read(fd, buf + at, MIB)) > 0)
		at += (size_t)n;
	if (n < 0 || at != size)
		die(path);
	close(fd);
}

static double gbps(size_t size, uint64_t ns)
{
	return (double)size / (double)ns;
}

/* One file: written new, read twice; the second reading is taken. */
static void one_round(const char *dir, size_t size, double *ret_write, double *ret_read)
{
	char path[256];
	uint64_t t[4];

	snprintf(path, sizeof(path), "%s/file", dir);
	t[0] = mc_now_ns();
	write_file(path, size);
	t[1] = mc_now_ns();
	read_file(path, size);
	t[2] = mc_now_ns();
	read_file(path, size);
	t[3] = mc_now_ns();
	if (unlink(path) < 0)
		die(path);
	*ret_write = gbps(size, t[1] - t[0]);
	*ret_read = gbps(size, t[3] - t[2]);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *v, unsigned n)
{
	qsort(v, n, sizeof(*v), by_value);
	return v[n / 2];
}

static void compare(size_t mib, unsigned rounds)
{
	static double w[2][ROUNDS_MAX], r[2][ROUNDS_MAX];
	const char *dirs[2] = { shm, mnt };
	size_t size = mib * MIB;
	char name[64];
	double m[4];

	for (unsigned i = 0; i < rounds; i++)
		for (unsigned k = 0; k < 2; k++)
			one_round(dirs[k], size, &w[k][i], &r[k][i]);
	for (unsigned k = 0; k < 2; k++) {
		m[k] = median(w[k], rounds);
		m[2 + k] = median(r[k], rounds);
	}
	snprintf(name, sizeof(name), "write new file, %zu MiB", mib);
	perf_row(name, "tmpfs", m[0], "GB/s");
	perf_row(name, "mcfs", m[1], "GB/s");
	perf_row(name, "ratio", m[1] / m[0], "x tmpfs");
	snprintf(name, sizeof(name), "read file, %zu MiB", mib);
	perf_row(name, "tmpfs", m[2], "GB/s");
	perf_row(name, "mcfs", m[3], "GB/s");
	perf_row(name, "ratio", m[3] / m[2], "x tmpfs");
	fflush(stdout);
}

/* Names: a key that is looked up and is not there, one that is, and a small file from create to close. */
static void names(unsigned n)
{
	char path[256];
	uint64_t t;
	struct stat st;

	snprintf(path, sizeof(path), "%s/absent", mnt);
	t = mc_now_ns();
	for (unsigned i = 0; i < n; i++)
		if (stat(path, &st) == 0)
			die(path);
	perf_row("stat of an absent name", "mean", (double)(mc_now_ns() - t) / n / 1000, "us");
	snprintf(path, sizeof(path), "%s/file", mnt);
	write_file(path, 4096);
	t = mc_now_ns();
	for (unsigned i = 0; i < n; i++)
		if (stat(path, &st) < 0)
			die(path);
	perf_row("stat of a file", "mean", (double)(mc_now_ns() - t) / n / 1000, "us");
	t = mc_now_ns();
	for (unsigned i = 0; i < n; i++)
		read_file(path, 4096);
	perf_row("open, read 4 KiB, close", "mean", (double)(mc_now_ns() - t) / n / 1000, "us");
	unlink(path);
	t = mc_now_ns();
	for (unsigned i = 0; i < n; i++) {
		write_file(path, 4096);
		if (unlink(path) < 0)
			die(path);
	}
	perf_row("create, write 4 KiB, close, unlink", "mean", (double)(mc_now_ns() - t) / n / 1000, "us");
}

static bool is_fuse(const char *dir)
{
	struct statfs st;

	return statfs(dir, &st) == 0 && st.f_type == FUSE_MAGIC;
}

static void mount_own(void)
{
	const char *top = getenv("top_builddir");
	uint64_t deadline = mc_deadline_ms(20000);
	char program[4096];
	int status;

	if (access("/dev/fuse", R_OK | W_OK) < 0)
		skip("/dev/fuse cannot be opened here");
	snprintf(program, sizeof(program), "%s/mcfs/mcfs", top ? top : ".");
	snprintf(mnt, sizeof(mnt), "/tmp/perf-mcfs.XXXXXX");
	if (!mkdtemp(mnt))
		die(mnt);
	daemon_pid = fork();
	if (daemon_pid == 0) {
		execl(program, program, "-f", "--standalone", "--global_segment_size=2GiB", "--log=err",
		      mnt, (char *)NULL);
		die(program);
	}
	while (!is_fuse(mnt)) {
		if (waitpid(daemon_pid, &status, WNOHANG) == daemon_pid) {
			daemon_pid = 0;
			rmdir(mnt);
			skip("mcfs does not mount here");
		}
		if (mc_now_ns() > deadline)
			die("mount");
		usleep(10000);
	}
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = { 1, 4, 16, 64 };
	unsigned rounds = 15;
	int c;

	while ((c = getopt(argc, argv, "r:m:")) != -1) {
		if (c == 'r' && atoi(optarg) > 0 && atoi(optarg) <= ROUNDS_MAX)
			rounds = (unsigned)atoi(optarg);
		else if (c == 'm' && strlen(optarg) < sizeof(mnt))
			strcpy(mnt, optarg);
		else
			return 2;
	}
	atexit(clean_up);
	if (!mnt[0])
		mount_own();
	snprintf(shm, sizeof(shm), "%s/perf-mcfs.XXXXXX", TMPFS_DIR);
	if (!mkdtemp(shm)) {
		shm[0] = '\0';
		skip("no tmpfs at " TMPFS_DIR);
	}
	/* One more, since the read that finds the end needs room, too. */
	buf = aligned_alloc(MIB, 65 * MIB);
	if (!buf)
		die("memory");
	memset(buf, 0x5a, 65 * MIB);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		compare(sizes[i], rounds);
	names(2000);
	return 0;
}
