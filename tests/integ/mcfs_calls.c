/* SPDX-License-Identifier: Apache-2.0
 * mcfs_calls.c - calls of programs on files and the results that mcfs(5) promises: every case runs
 * in a new directory below the given one, in a separate process.
 *
 *	mcfs_calls DIR [CASE]... */
#include <config.h>
#include "tests/integ/mcfs_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CASE_SECONDS 60

void check(bool ok, const char *what, const char *file, int line)
{
	if (ok)
		return;
	fprintf(stderr, "%s:%d: not so: %s (errno %s)\n", file, line, what, strerror(errno));
	_exit(1);
}

void check_fails(long result, int err, const char *what, const char *file, int line)
{
	if (result == -1 && errno == err)
		return;
	fprintf(stderr, "%s:%d: %s gave %ld, errno %s; wanted %s\n", file, line, what, result,
		result == -1 ? strerror(errno) : "0", strerror(err));
	_exit(1);
}

const char *pattern(unsigned seed, size_t len)
{
	static unsigned char *buf;
	static size_t size;

	if (len > size) {
		free(buf);
		buf = aligned_alloc(MIB, (len + MIB - 1) & ~(MIB - 1));
		CHECK(buf);
		size = len;
	}
	for (size_t i = 0; i < len; i++)
		buf[i] = (unsigned char)(seed * 37 + i + (i >> 8) * 7 + (i >> 16));
	return (const char *)buf;
}

int opened(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0644);

	CHECK(fd >= 0);
	return fd;
}

void wrote(int fd, const char *data, size_t len)
{
	CHECK(write(fd, data, len) == (ssize_t)len);
}

void put_file(const char *path, const char *data, size_t len)
{
	int fd = opened(path, O_WRONLY | O_CREAT | O_TRUNC);

	wrote(fd, data, len);
	CHECK(close(fd) == 0);
}

void put_text(const char *path, const char *text)
{
	put_file(path, text, strlen(text));
}

void holds(const char *path, const char *data, size_t len)
{
	int fd = opened(path, O_RDONLY);
	char *got = malloc(len + 2);
	struct stat st;
	size_t n = 0;
	ssize_t r;

	CHECK(got);
	CHECK(fstat(fd, &st) == 0 && st.st_size == (off_t)len);
	while ((r = read(fd, got + n, len + 1 - n)) > 0)
		n += (size_t)r;
	CHECK(r == 0);
	CHECK(n == len);
	CHECK(memcmp(got, data, len) == 0);
	CHECK(close(fd) == 0);
	free(got);
}

void holds_text(const char *path, const char *text)
{
	holds(path, text, strlen(text));
}

void absent(const char *path)
{
	struct stat st;

	FAILS(lstat(path, &st), ENOENT);
}

int in_child(void (*fn)(void))
{
	pid_t pid = fork();
	int status;

	CHECK(pid >= 0);
	if (pid == 0) {
		fn();
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	return status;
}

static const struct call_case *const tables[] = { data_cases, writer_cases, name_cases };

static bool wanted(const char *name, int argc, char **argv)
{
	if (argc <= 2)
		return true;
	for (int i = 2; i < argc; i++)
		if (strcmp(argv[i], name) == 0)
			return true;
	return false;
}

static bool run_case(const struct call_case *c)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		alarm(CASE_SECONDS);
		CHECK(mkdir(c->name, 0755) == 0);
		CHECK(chdir(c->name) == 0);
		c->run();
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	printf("%-44s %s\n", c->name, status == 0 ? "ok" : WIFSIGNALED(status) ? "KILLED" : "FAILED");
	return status == 0;
}

int main(int argc, char **argv)
{
	int failed = 0, ran = 0;

	if (argc < 2 || chdir(argv[1]) < 0) {
		fprintf(stderr, "usage: mcfs_calls DIR [CASE]...\n");
		return 2;
	}
	for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++) {
		for (const struct call_case *c = tables[t]; c->name; c++) {
			if (!wanted(c->name, argc, argv))
				continue;
			ran++;
			failed += !run_case(c);
		}
	}
	printf("%d cases, %d failed\n", ran, failed);
	return failed || !ran;
}
