/* SPDX-License-Identifier: Apache-2.0
 * mcctl_pool.c - the master of a pool that is mounted on this machine. */
#include <config.h>

#include "tools/ctl/mcctl_pool.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <mntent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/net/stream.h"
#include "common/sys/clock.h"
#include "common/sys/process.h"

#define ANSWER_MS 3000
#define CONNECT_MS 1000
#define POOLS_MAX 64

/* A mount of mcfs, from /proc/self/mounts. */
struct mount {
	char dir[PATH_MAX];
	bool standalone;
	uid_t uid;		/* the user that mounted it */
	gid_t gid;
};

bool mcctl_pool_is_path(const char *path, const char *dir)
{
	char at[PATH_MAX] = "/", real[PATH_MAX], *last;
	auto_free char *copy = strdup(path);
	size_t n = copy ? strlen(copy) : 0;

	while (n > 1 && copy[n - 1] == '/')
		copy[--n] = '\0';
	if (!copy || strcmp(copy, dir) == 0)
		return copy;
	last = strrchr(copy, '/');
	if (last)
		*last++ = '\0';
	else
		last = copy;
	if (!realpath(last == copy ? "." : *copy ? copy : "/", real))
		return false;
	n = (size_t)snprintf(at, sizeof(at), "%s/%s", strcmp(real, "/") ? real : "", last);
	return n < sizeof(at) && strcmp(at, dir) == 0;
}

/* The next mount of mcfs; false: none is left. */
static bool mount_next(FILE *f, struct mount *ret)
{
	char buf[2 * PATH_MAX];
	struct mntent m;

	while (getmntent_r(f, &m, buf, sizeof(buf))) {
		const char *uid = hasmntopt(&m, "user_id"), *gid = hasmntopt(&m, "group_id");

		if (strcmp(m.mnt_type, "fuse.mcfs") != 0 || strlen(m.mnt_dir) >= sizeof(ret->dir) || !uid || !gid)
			continue;
		strcpy(ret->dir, m.mnt_dir);
		ret->standalone = strcmp(m.mnt_fsname, "standalone") == 0;
		ret->uid = (uid_t)strtoul(uid + strlen("user_id="), NULL, 10);
		ret->gid = (gid_t)strtoul(gid + strlen("group_id="), NULL, 10);
		return true;
	}
	return false;
}

/* In a child process. The kernel refuses a mount to all users except its own, also to root: become that user. */
static int master_read(const struct mount *m, char *text, size_t size)
{
	char path[PATH_MAX + 16];
	ssize_t n;
	int fd;

	if (geteuid() == 0 && m->uid &&
	    (setgroups(0, NULL) < 0 || setresgid(m->gid, m->gid, m->gid) < 0 || setresuid(m->uid, m->uid, m->uid) < 0))
		return errno;
	(void)snprintf(path, sizeof(path), "%s/.mcfs/master", m->dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno;
	n = read(fd, text, size - 1);
	if (n < 0)
		return errno;
	text[n] = '\0';
	return 0;
}

/* The address in "ADDRESS STATE\n", from a child process because the mount may hang: 0, an errno, or ETIMEDOUT. */
static int mount_master(const struct mount *m, char ret[MCCTL_POOL_ADDR])
{
	char text[MCCTL_POOL_ADDR + 32] = "", *end;
	struct pollfd pfd = { .events = POLLIN };
	int fds[2], status = 0;
	bool answered;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return errno;
	pid = fork();
	if (pid == 0) {
		int err = master_read(m, text, sizeof(text));

		mc_process_end(!err && write(fds[1], text, strlen(text)) < 0 ? errno : err);
	}
	close(fds[1]);
	pfd.fd = fds[0];
	answered = pid > 0 && poll(&pfd, 1, ANSWER_MS) == 1;
	/* A hanging child ends when the mount is removed. */
	if (pid > 0 && !answered)
		kill(pid, SIGKILL);
	if (answered && read(fds[0], text, sizeof(text) - 1) < 0)
		text[0] = '\0';
	close(fds[0]);
	if (pid < 0)
		return EAGAIN;
	(void)waitpid(pid, &status, answered ? 0 : WNOHANG);
	if (!answered)
		return ETIMEDOUT;
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
	end = strrchr(text, ' ');
	if (!end || end == text || (size_t)(end - text) >= MCCTL_POOL_ADDR)
		return EPROTO;
	*end = '\0';
	strcpy(ret, text);
	return 0;
}

static bool is_unix(const char *addr)
{
	return strncmp(addr, "unix:", 5) == 0;
}

static enum mcctl_status complain_mount(const struct mount *m, int err)
{
	const char *advice = err == EACCES ? "run mcctl as the user who mounted it, or as root" :
		err == ENOTCONN || err == ECONNABORTED ? "its daemon is dead; start mcfs there again" :
		"is its daemon stopped?  \"mcctl doctor\" checks mounts";

	return mcctl_complain(MCCTL_FAILED, "cannot ask the mount %s for its master: %s\n       %s", m->dir,
			      mc_strerror(err), advice);
}

enum mcctl_status mcctl_pool_of_mount(const char *dir, char ret[MCCTL_POOL_ADDR], bool *ret_local)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	struct mount m, found = { .dir = "" };
	int err;

	/* The last entry is the topmost mount. */
	while (f && mount_next(f, &m))
		if (mcctl_pool_is_path(dir, m.dir))
			found = m;
	if (f)
		endmntent(f);
	if (!found.dir[0])
		return mcctl_complain(MCCTL_USAGE, "%s is not a mount of mcfs; \"mcctl --mount=DIR\" needs the "
				      "directory that was given to mcfs", dir);
	err = mount_master(&found, ret);
	if (err)
		return complain_mount(&found, err);
	if (found.standalone && !is_unix(ret))
		return mcctl_complain(MCCTL_FAILED, "the pool of %s has no socket: mcfs could not create one in "
				      "$TMPDIR or /tmp; its log has the reason", found.dir);
	if (found.standalone && geteuid() != 0 && geteuid() != found.uid)
		return mcctl_complain(MCCTL_FAILED, "the pool of %s belongs to another user\n       run mcctl as user "
				      "%u, or as root", found.dir, (unsigned)found.uid);
	*ret_local = found.standalone;
	return MCCTL_OK;
}

static bool pool_is_known(char (*known)[MCCTL_POOL_ADDR], unsigned n, const char *addr)
{
	for (unsigned i = 0; i < n; i++)
		if (strcmp(known[i], addr) == 0)
			return true;
	return false;
}

/* Local pools of this user; a mount that does not answer is none. Returns their number; *ret_dirs has a line for
 * each, free() it. */
static unsigned pools_find(char (*pools)[MCCTL_POOL_ADDR], char **ret_dirs)
{
	FILE *f = setmntent("/proc/self/mounts", "re"), *dirs;
	char addr[MCCTL_POOL_ADDR];
	unsigned n = 0;
	struct mount m;
	size_t len;

	*ret_dirs = NULL;
	dirs = open_memstream(ret_dirs, &len);
	while (f && dirs && n < POOLS_MAX && mount_next(f, &m)) {
		if (!m.standalone || m.uid != geteuid() || mount_master(&m, addr) || !is_unix(addr) ||
		    pool_is_known(pools, n, addr))
			continue;
		strcpy(pools[n++], addr);
		fprintf(dirs, "%s%s", n > 1 ? "\n" : "", m.dir);
	}
	if (f)
		endmntent(f);
	if (dirs)
		fclose(dirs);
	return n;
}

enum mcctl_status mcctl_pool_check_default(const char *master)
{
	static char pools[POOLS_MAX][MCCTL_POOL_ADDR];
	auto_free char *dirs = NULL;
	struct mc_stream s;
	unsigned n;

	if (mc_net_connect(mc_net_default(), master, mc_deadline_ms(CONNECT_MS), &s) == 0) {
		mc_stream_close(&s);
		return MCCTL_OK;
	}
	n = pools_find(pools, &dirs);
	if (!n)
		return MCCTL_OK;
	return mcctl_complain(MCCTL_FAILED, "no master answers at %s; local pools are on\n%s\n"
			      "       choose one with --mount=DIR, or give a master with --master=HOST:PORT", master,
			      dirs);
}
