/* SPDX-License-Identifier: Apache-2.0
 * inherited.c - descriptors that a daemon inherited from the process that started it. */
#include <config.h>

#include "common/process/inherited.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define FIRST_FD 3		/* also that of LISTEN_FDS */
#define UNKNOWN_MAX 65536	/* descriptors to try without /proc */

static struct {
	int *fd;
	size_t n, cap;
} noted;

/* Without memory a descriptor stays open. */
static void note_add(int fd)
{
	if (noted.n == noted.cap) {
		size_t cap = noted.cap ? 2 * noted.cap : 64;
		int *more = realloc(noted.fd, cap * sizeof(*more));

		if (!more)
			return;
		noted.fd = more;
		noted.cap = cap;
	}
	noted.fd[noted.n++] = fd;
}

static void note_each_possible(void)
{
	struct rlimit lim;
	int max = getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur < UNKNOWN_MAX ? (int)lim.rlim_cur : UNKNOWN_MAX;

	for (int fd = FIRST_FD; fd < max; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			note_add(fd);
}

void mc_inherited_note(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *e;

	if (!dir) {
		note_each_possible();
		return;
	}
	while ((e = readdir(dir))) {
		int fd = atoi(e->d_name);

		if (fd >= FIRST_FD && fd != dirfd(dir))
			note_add(fd);
	}
	closedir(dir);
}

static bool is_systemds(int fd)
{
	const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");

	/* A daemon that has forked is not the process that LISTEN_PID names, but its child. */
	return pid && count && (atol(pid) == (long)getpid() || atol(pid) == (long)getppid()) &&
		fd < FIRST_FD + atoi(count);
}

static bool arg_names(const char *arg, int fd)
{
	static const char *const dirs[] = { "/dev/fd/", "/proc/self/fd/" };
	const char *value = strchr(arg, '=');
	char *end;

	if (arg[0] == '-' && value)
		arg = value + 1;
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		size_t len = strlen(dirs[i]);

		if (strncmp(arg, dirs[i], len) == 0 && strtol(arg + len, &end, 10) == fd && end != arg + len)
			return true;
	}
	return false;
}

static bool is_named(int fd, int argc, char *const *argv)
{
	for (int i = 1; i < argc; i++)
		if (arg_names(argv[i], fd))
			return true;
	return false;
}

void mc_inherited_close(int argc, char *const *argv)
{
	for (size_t i = 0; i < noted.n; i++)
		if (!is_systemds(noted.fd[i]) && !is_named(noted.fd[i], argc, argv))
			close(noted.fd[i]);
	free(noted.fd);
	noted.fd = NULL;
	noted.n = noted.cap = 0;
}
