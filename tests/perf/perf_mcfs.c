/* SPDX-License-Identifier: Apache-2.0
 * perf_mcfs.c - files of a mount against files of tmpfs, and of tmpfs seen through bindfs where that is
 * installed: reading, and writing new files, by a program that opens, reads or writes 1 MiB at a time, and
 * closes; and the segment's memory as a passthrough file.  Rounds alternate; the table shows
 * medians.
 *
 *	perf_mcfs [-r ROUNDS] [-m MOUNT]	MOUNT: a mounted mcfs; default: mount one */
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

#include "common/sys/clock.h"
#include "tests/perf/row.h"

#define MIB ((size_t)1 << 20)
#define ROUNDS_MAX 101
#define FUSE_MAGIC 0x65735546
#define TMPFS_DIR "/dev/shm"

static char *buf;
static char shm[64], mnt[64], bound[64];	/* bound: shm through bindfs, "" if there is none */
static pid_t daemon_pid, bindfs_pid;

static void clean_up(void)
{
	char cmd[256];

	if (daemon_pid > 0) {
		kill(daemon_pid, SIGTERM);
		waitpid(daemon_pid, NULL, 0);
		rmdir(mnt);
	}
	if (bindfs_pid > 0) {
		kill(bindfs_pid, SIGTERM);
		waitpid(bindfs_pid, NULL, 0);
		rmdir(bound);
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

/* @size: length of the read; @rest: length after it; @step: distance in memory between the parts read. */
static void read_part(const char *path, size_t size, size_t rest, size_t step)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t at = 0;
	ssize_t n = 0;

	if (fd < 0)
		die(path);
	while (at < size + rest && (n = read(fd, buf + at / MIB * step, MIB)) > 0)
		at += (size_t)n;
	if (n < 0 || at != size)
		die(path);
	close(fd);
}

static void read_file(const char *path, size_t size)
{
	/* read until the end of the file */
	read_part(path, size, 1, MIB);
}

static double gbps(size_t size, uint64_t ns)
{
	return (double)size / (double)ns;
}

/* One file: written once, read twice; the second read counts. */
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

/* @m: tmpfs, mcfs and bindfs. */
static void show(const char *name, const double m[3])
{
	perf_row(name, "tmpfs", m[0], "GB/s");
	perf_row(name, "mcfs", m[1], "GB/s");
	perf_row(name, "ratio", m[1] / m[0], "x tmpfs");
	if (!bound[0])
		return;
	perf_row(name, "bindfs", m[2], "GB/s");
	perf_row(name, "ratio", m[1] / m[2], "x bindfs");
}

static void compare(size_t mib, unsigned rounds)
{
	static double w[3][ROUNDS_MAX], r[3][ROUNDS_MAX];
	const char *dirs[3] = { shm, mnt, bound };
	unsigned n = bound[0] ? 3 : 2;
	double mw[3], mr[3];
	char name[64];

	for (unsigned i = 0; i < rounds; i++)
		for (unsigned k = 0; k < n; k++)
			one_round(dirs[k], mib * MIB, &w[k][i], &r[k][i]);
	for (unsigned k = 0; k < n; k++) {
		mw[k] = median(w[k], rounds);
		mr[k] = median(r[k], rounds);
	}
	snprintf(name, sizeof(name), "write new file, %zu MiB", mib);
	show(name, mw);
	snprintf(name, sizeof(name), "read file, %zu MiB", mib);
	show(name, mr);
}

/* The node's memory as a file, read through the kernel's passthrough, without requests to the
 * daemon: into one buffer, as cat does, and into a buffer as long as the file. */
static void passed_through(size_t mib, unsigned rounds, size_t step)
{
	static double r[2][ROUNDS_MAX];
	char path[2][128], name[96];
	uint64_t t;
	int fd;

	snprintf(path[0], sizeof(path[0]), "%s/file", shm);
	snprintf(path[1], sizeof(path[1]), "%s/.mcfs/segments/0", mnt);
	fd = open(path[1], O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		printf("# no passthrough: %s\n", strerror(errno));
		return;
	}
	close(fd);
	write_file(path[0], mib * MIB);
	for (unsigned i = 0; i < rounds; i++) {
		for (unsigned k = 0; k < 2; k++) {
			t = mc_now_ns();
			read_part(path[k], mib * MIB, 0, step);
			r[k][i] = gbps(mib * MIB, mc_now_ns() - t);
		}
	}
	unlink(path[0]);
	snprintf(name, sizeof(name), "read .mcfs/segments/0, %zu MiB%s", mib, step ? "" : ", one buffer");
	perf_row(name, "tmpfs", median(r[0], rounds), "GB/s");
	perf_row(name, "passthrough", median(r[1], rounds), "GB/s");
	perf_row(name, "ratio", median(r[1], rounds) / median(r[0], rounds), "x tmpfs");
}

/* Names: a lookup of a missing key, of an existing key, and a small file from create to close. */
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

/* bindfs over the tmpfs directory, the usual choice for a second view of a directory. */
static void mount_bindfs(void)
{
	uint64_t deadline = mc_deadline_ms(5000);
	int status;

	snprintf(bound, sizeof(bound), "/tmp/perf-bindfs.XXXXXX");
	if (!mkdtemp(bound))
		die(bound);
	bindfs_pid = fork();
	if (bindfs_pid == 0) {
		execlp("bindfs", "bindfs", "-f", "--no-allow-other", shm, bound, (char *)NULL);
		_exit(127);
	}
	while (!is_fuse(bound)) {
		if (mc_now_ns() > deadline)
			kill(bindfs_pid, SIGKILL);
		if (waitpid(bindfs_pid, &status, WNOHANG) == bindfs_pid) {
			printf("# without bindfs: %s\n", WIFEXITED(status) && WEXITSTATUS(status) == 127 ?
			       "it is not installed" : "it does not mount here");
			bindfs_pid = 0;
			rmdir(bound);
			bound[0] = '\0';
			return;
		}
		usleep(10000);
	}
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = { 1, 4, 16, 64 };
	unsigned rounds = (unsigned)perf_n(15, 1);
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
	mount_bindfs();
	/* One MiB more, since the read that finds the end needs a buffer too. */
	buf = aligned_alloc(MIB, 65 * MIB);
	if (!buf)
		die("memory");
	memset(buf, 0x5a, 65 * MIB);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		compare(sizes[i], rounds);
	passed_through(16, rounds, MIB);
	passed_through(16, rounds, 0);
	names((unsigned)perf_n(2000, 20));
	return 0;
}
