/* SPDX-License-Identifier: Apache-2.0
 * mountpoint.c - the mount point, and dead mounts that an earlier daemon left there. */
#include <config.h>

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/env.h"
#include "common/err.h"
#include "common/sys/clock.h"
#include "common/sys/process.h"
#include "mcfs/keymap.h"
#include "mcfs/life/life.h"

#define FS_TYPE "fuse.mcfs"
/* timeout of a check whether a mount is alive; the same for a mount that should be dead */
#define PROBE_MS 3000
#define SHORT_PROBE_MS 1000

/* mountinfo escapes blanks and other characters as \ooo. */
static void mountinfo_unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] && s[2] && s[3]) {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}

/* Fields of a line: ID PARENT DEV ROOT MOUNTPOINT OPTIONS [TAGS...] - TYPE SOURCE OPTIONS */
static bool mountinfo_parse(char *line, char **ret_dir, char **ret_type, int *ret_minor)
{
	char *save, *word = strtok_r(line, " ", &save);

	for (int i = 1; word && i < 5; i++) {
		if (i == 3 && sscanf(word, "%*d:%d", ret_minor) != 1)
			*ret_minor = -1;
		word = strtok_r(NULL, " ", &save);
	}
	*ret_dir = word;
	while (word && strcmp(word, "-") != 0)
		word = strtok_r(NULL, " ", &save);
	*ret_type = word ? strtok_r(NULL, " ", &save) : NULL;
	if (!*ret_type)
		return false;
	mountinfo_unescape(*ret_dir);
	return true;
}

int mcfs_mountpoint_connection(const char *path)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	auto_free char *line = NULL;
	char *dir, *type;
	size_t size = 0;
	int found = -ENOENT, minor;

	if (!f)
		return -errno;
	/* The last entry is the topmost mount. */
	while (getline(&line, &size, f) > 0)
		if (mountinfo_parse(line, &dir, &type, &minor) && strcmp(dir, path) == 0)
			found = strcmp(type, FS_TYPE) == 0 ? minor : -ENOENT;
	fclose(f);
	return found;
}

bool mcfs_mountpoint_is_mounted(const char *path)
{
	return mcfs_mountpoint_connection(path) >= 0;
}

/* Result of stat() of a control file. In a child process, because a request to a stopped daemon cannot be
 * cancelled. The kernel never answers for a control file itself, and the daemon answers without the master. */
static int probe_within(const char *path, int64_t ms)
{
	char file[PATH_MAX + 32];
	uint64_t deadline = mc_deadline_ms(ms);
	auto_close int fd = -1;
	struct pollfd pfd;
	struct stat st;
	int status;
	pid_t pid;

	(void)snprintf(file, sizeof(file), "%s/" MCFS_CONTROL_NAME "/version", path);
	pid = fork();
	if (pid < 0)
		return errno;
	if (pid == 0)
		mc_process_end(stat(file, &st) == 0 ? 0 : errno);
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	pfd = (struct pollfd){ .fd = fd, .events = POLLIN };
	if (fd < 0 || poll(&pfd, 1, mc_deadline_left_ms(deadline)) != 1) {
		/* The child dies when its request is answered. */
		kill(pid, SIGKILL);
		(void)waitpid(pid, &status, WNOHANG);
		return ETIMEDOUT;
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

int mcfs_mountpoint_probe(const char *path)
{
	return probe_within(path, PROBE_MS);
}

bool mcfs_mountpoint_is_reused(int connection)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	auto_free char *line = NULL, *where = NULL;
	bool ours = true, found = false;
	char *dir, *type;
	size_t size = 0;
	int minor;

	if (!f)
		return false;
	while (!found && getline(&line, &size, f) > 0) {
		found = mountinfo_parse(line, &dir, &type, &minor) && minor == connection;
		ours = !found || strcmp(type, FS_TYPE) == 0;
	}
	if (found && ours)
		where = strdup(dir);
	fclose(f);
	return !ours || (where && probe_within(where, SHORT_PROBE_MS) == 0);
}

/* fusermount3 -u -z, which unmounts without privileges. */
static void detach_by_helper(const char *path)
{
	static char name[] = "fusermount3", unmount[] = "-u", lazy[] = "-z", quiet[] = "-q", end[] = "--";
	auto_free char *dir = strdup(path);
	char *argv[] = { name, unmount, lazy, quiet, end, dir, NULL };
	auto_free char **env = mc_env_public();
	pid_t pid;

	if (!dir || !env || posix_spawnp(&pid, name, NULL, NULL, argv, env))
		return;
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

void mcfs_mountpoint_detach(const char *path)
{
	if (!mcfs_mountpoint_is_mounted(path))
		return;
	if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
		return;
	detach_by_helper(path);
}

/* Absolute path of @dir without accessing @dir itself, which may be a dead mount. */
static int absolute_path(const char *dir, char *ret, size_t size)
{
	auto_free char *copy = strdup(dir), *parent = NULL;
	char *slash, *last;
	size_t n;

	if (!copy)
		return -ENOMEM;
	n = strlen(copy);
	while (n > 1 && copy[n - 1] == '/')
		copy[--n] = '\0';
	slash = strrchr(copy, '/');
	last = slash ? slash + 1 : copy;
	if (!*last || strcmp(last, ".") == 0 || strcmp(last, "..") == 0) {
		parent = realpath(copy, NULL);
		last = NULL;
	} else if (!slash) {
		parent = realpath(".", NULL);
	} else {
		*slash = '\0';
		parent = realpath(slash == copy ? "/" : copy, NULL);
	}
	if (!parent)
		return mc_fail(-errno, "mount point %s: %s", dir, mc_strerror(errno));
	if ((size_t)snprintf(ret, size, "%s%s%s", parent, last && parent[1] ? "/" : "",
			     last ? last : "") >= size)
		return mc_fail(-ENAMETOOLONG, "mount point %s: its path is too long", dir);
	return 0;
}

/* A mount of mcfs is at @path: remove it if it is dead. */
static int clear_old_mount(const char *path)
{
	int err = mcfs_mountpoint_probe(path);

	if (err == ENOTCONN || err == ECONNABORTED) {
		mcfs_mountpoint_detach(path);
		if (mcfs_mountpoint_is_mounted(path))
			return mc_fail(-EBUSY, "mount point %s: a dead mount cannot be removed", path);
		return 0;
	}
	if (err == ETIMEDOUT)
		return mc_fail(-EBUSY, "mount point %s: mcfs is mounted there and does not answer", path);
	return mc_fail(-EBUSY, "mount point %s: mcfs is mounted there already", path);
}

int mcfs_mountpoint_prepare(const char *dir, char **ret_path)
{
	char path[PATH_MAX];
	struct stat st;
	char *real;
	int r;

	r = absolute_path(dir, path, sizeof(path));
	if (r < 0)
		return r;
	/* Several dead mounts may be stacked. */
	while (mcfs_mountpoint_is_mounted(path)) {
		r = clear_old_mount(path);
		if (r < 0)
			return r;
	}
	if (stat(path, &st) < 0)
		return mc_fail(-errno, "mount point %s: %s", dir, mc_strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return mc_fail(-ENOTDIR, "mount point %s is not a directory", dir);
	if (geteuid() != 0 && access(path, W_OK) < 0)
		return mc_fail(-EACCES, "mount point %s is not writable", dir);
	real = realpath(path, NULL);
	if (!real)
		return mc_fail(-errno, "mount point %s: %s", dir, mc_strerror(errno));
	/* @dir is a symbolic link. */
	if (strcmp(real, path) != 0 && mcfs_mountpoint_is_mounted(real)) {
		r = clear_old_mount(real);
		if (r < 0) {
			free(real);
			return r;
		}
	}
	*ret_path = real;
	return 0;
}
