/* SPDX-License-Identifier: Apache-2.0
 * guard.c - the daemon's tick counter, and the guard process that watches it and outlives the daemon briefly. */
#include <config.h>
#include "mcfs/life/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/err.h"
#include "common/log.h"
#include "common/sys/clock.h"
#include "common/sys/process.h"
#include "common/sys/thread.h"
#include "mcfs/life/life.h"

/* interval of checks; the daemon ticks twice as often */
#define LOOK_MS 250
#define NAME "mcfs-guard"
/* signal that the kernel sends to the guard when the daemon has died */
#define DEATH SIGUSR1

/* in memory that both processes share */
struct clock {
	uint64_t ticks;		/* atomic */
	int connection;		/* atomic; -1: not mounted */
	int aborted;		/* atomic; the guard aborts, or has aborted, the connection */
	int has_socket;		/* atomic */
	char socket[PATH_MAX];	/* constant once has_socket is set */
};

static struct {
	struct clock *clock;
	pid_t pid;
	struct mc_stop stop;
	struct mc_thread thread;
	bool ticking;
	char dir[PATH_MAX];
} guard;

/* ---- the guard's process ---- */

static bool abort_by_sysfs(int connection)
{
	char path[64];
	bool done;
	int fd;

	(void)snprintf(path, sizeof(path), "/sys/fs/fuse/connections/%d/abort", connection);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	done = write(fd, "1", 1) == 1;
	close(fd);
	return done;
}

/* The kernel aborts the connection first. The mount then stays, because this process uses it: without the
 * mount, programs would write into the directory below. */
static bool abort_by_umount(const char *dir)
{
	int fd = open(dir, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	bool done = umount2(dir, MNT_FORCE | UMOUNT_NOFOLLOW) == 0 || errno == EBUSY;

	if (fd >= 0)
		close(fd);
	return done;
}

static void abort_connection(struct clock *c, const char *dir, uint64_t ms)
{
	int connection = __atomic_load_n(&c->connection, __ATOMIC_ACQUIRE);
	bool done;

	if (mcfs_mountpoint_is_reused(connection)) {
		mc_err("mcfs", "the daemon has stalled, its mount no longer exists dir=%s ms=%llu", dir,
		       (unsigned long long)ms);
		return;
	}
	/* Before the abort: the daemon may continue at any moment and finds the reason of its session's end. */
	__atomic_store_n(&c->aborted, 1, __ATOMIC_SEQ_CST);
	done = abort_by_sysfs(connection);
	if (!done && mcfs_mountpoint_connection(dir) == connection)
		done = abort_by_umount(dir);
	if (!done)
		__atomic_store_n(&c->aborted, 0, __ATOMIC_SEQ_CST);
	mc_err("mcfs", "the daemon has stalled and its mount %s dir=%s ms=%llu",
	       done ? "was aborted" : "cannot be aborted", dir, (unsigned long long)ms);
}

/* Watch until the daemon has died. @stall_ms 0: ignore stalls. */
static void guard_watch(struct clock *c, const char *dir, uint64_t stall_ms, const sigset_t *death)
{
	struct timespec nap = { .tv_nsec = LOOK_MS * MC_NS_PER_MS };
	uint64_t seen = 0, stalled_ms = 0;
	bool acted = false;	/* in this stall */

	while (sigtimedwait(death, NULL, &nap) != DEATH) {
		uint64_t now = __atomic_load_n(&c->ticks, __ATOMIC_RELAXED);

		if (__atomic_load_n(&c->connection, __ATOMIC_ACQUIRE) < 0 || now != seen) {
			seen = now;
			stalled_ms = 0;
			acted = false;
			continue;
		}
		stalled_ms += LOOK_MS;
		if (acted || !stall_ms || stalled_ms < stall_ms)
			continue;
		abort_connection(c, dir, stalled_ms);
		acted = true;
	}
}

static void remove_socket(struct clock *c)
{
	char *end;

	if (!__atomic_load_n(&c->has_socket, __ATOMIC_ACQUIRE))
		return;
	(void)unlink(c->socket);
	end = strrchr(c->socket, '/');
	if (!end)
		return;
	*end = '\0';
	(void)rmdir(c->socket);
}

/* Change the name in ps(1), so that killall(1) does not take the guard for the daemon. */
static void rename_process(int argc, char **argv)
{
	size_t len = (size_t)(argv[argc - 1] + strlen(argv[argc - 1]) - argv[0]);

	(void)prctl(PR_SET_NAME, NAME);
	memset(argv[0], 0, len);
	memcpy(argv[0], NAME, len < strlen(NAME) ? len : strlen(NAME));
}

void mcfs_guard_leave_output(bool keep_stderr)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++)
		if (fd != STDERR_FILENO || !keep_stderr)
			(void)dup2(null, fd);
	if (null > STDERR_FILENO)
		close(null);
}

static void guard_run(const char *dir, uint64_t stall_ms, pid_t daemon, int argc, char **argv)
{
	sigset_t death;

	sigemptyset(&death);
	sigaddset(&death, DEATH);
	(void)sigprocmask(SIG_BLOCK, &death, NULL);
	(void)prctl(PR_SET_PDEATHSIG, DEATH);
	if (getppid() != daemon)
		mc_process_end(0);
	/* Ignore a terminal's signals: they are for the daemon, and the guard ends with it. */
	(void)signal(SIGINT, SIG_IGN);
	(void)signal(SIGQUIT, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	(void)signal(SIGTERM, SIG_IGN);
	if (chdir("/") < 0)
		mc_debug("mcfs", "chdir /: %s", mc_strerror(errno));
	rename_process(argc, argv);
	guard_watch(guard.clock, dir, stall_ms, &death);
	remove_socket(guard.clock);
	mc_process_end(0);
}

/* ---- the daemon ---- */

int mcfs_guard_fork(const char *dir, uint64_t stall_ms, bool foreground, int argc, char **argv)
{
	pid_t daemon = getpid();
	int r;

	guard.clock = mmap(NULL, sizeof(*guard.clock), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (guard.clock == MAP_FAILED) {
		guard.clock = NULL;
		return mc_fail(-errno, "no memory for the guard: %s", mc_strerror(errno));
	}
	guard.clock->connection = -1;
	(void)snprintf(guard.dir, sizeof(guard.dir), "%s", dir);
	r = mc_stop_init(&guard.stop);
	if (r < 0)
		return r;
	guard.pid = fork();
	if (guard.pid < 0)
		return mc_fail(-errno, "cannot start the guard: %s", mc_strerror(errno));
	if (guard.pid == 0) {
		mcfs_guard_leave_output(foreground);
		guard_run(guard.dir, stall_ms, daemon, argc, argv);
	}
	return 0;
}

void mcfs_guard_socket(const char *path)
{
	size_t len = strlen(path);

	if (guard.pid <= 0 || len >= sizeof(guard.clock->socket))
		return;
	memcpy(guard.clock->socket, path, len + 1);
	__atomic_store_n(&guard.clock->has_socket, 1, __ATOMIC_RELEASE);
}

static void *guard_tick(void *arg)
{
	do
		__atomic_add_fetch(&guard.clock->ticks, 1, __ATOMIC_RELAXED);
	while (!mc_stop_wait(&guard.stop, LOOK_MS / 2));
	return NULL;
}

int mcfs_guard_begin(int connection)
{
	int r;

	if (guard.pid <= 0)
		return 0;
	if (!connection)
		return mc_fail(-ENOENT, "the mount is not in /proc/self/mountinfo");
	r = guard.ticking ? 0 : mc_thread_start(&guard.thread, "mcfs-tick", guard_tick, NULL);
	if (r < 0)
		return r;
	guard.ticking = true;
	__atomic_store_n(&guard.clock->connection, connection, __ATOMIC_RELEASE);
	return 0;
}

bool mcfs_guard_aborted(void)
{
	return guard.pid > 0 && __atomic_load_n(&guard.clock->aborted, __ATOMIC_SEQ_CST);
}

void mcfs_guard_pause(void)
{
	if (guard.pid <= 0)
		return;
	__atomic_store_n(&guard.clock->connection, -1, __ATOMIC_RELEASE);
	__atomic_store_n(&guard.clock->aborted, 0, __ATOMIC_SEQ_CST);
}

void mcfs_guard_end(void)
{
	if (guard.pid <= 0)
		return;
	kill(guard.pid, SIGKILL);
	while (waitpid(guard.pid, NULL, 0) < 0 && errno == EINTR)
		;
	guard.pid = 0;
	if (guard.ticking) {
		mc_stop_set(&guard.stop);
		mc_thread_join(guard.thread);
		guard.ticking = false;
	}
	mc_stop_done(&guard.stop);
	munmap(guard.clock, sizeof(*guard.clock));
	guard.clock = NULL;
}
