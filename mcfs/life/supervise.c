/* SPDX-License-Identifier: Apache-2.0
 * supervise.c - the supervisor: starts the next daemon when one dies, with the descriptors that the
 * last one stored. It does little else, so that it survives whatever kills the daemon. */
#include <config.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/err.h"
#include "common/log.h"
#include "common/sys/clock.h"
#include "common/sys/process.h"
#include "common/sys/random.h"
#include "mcfs/life/guard.h"
#include "mcfs/life/life.h"

#define NAME "mcfs-supervisor"
#define FDS 8
#define NAME_LEN 32
/* at most this many restarts in a row of daemons that served for less than SERVED_MS */
#define TRIES 5
#define SERVED_MS 10000
/* pause before a restart, from the second failure in a row on; doubled each time */
#define PAUSE_MS 200

static struct {
	int notify, signals;
	sigset_t mask;			/* signal mask before the supervisor changed it */
	struct { char name[NAME_LEN]; int fd; } kept[FDS];
	unsigned nkept, tries;
	pid_t pid;
	bool ready;			/* the first daemon serves its mount */
	bool ending;			/* SIGTERM or SIGINT received */
	bool background;
	uint64_t started_ns;
} sup = { .notify = -1, .signals = -1 };

/* ---- stored descriptors ---- */

static void kept_drop(const char *name)
{
	for (unsigned i = 0; i < sup.nkept; i++) {
		if (strcmp(sup.kept[i].name, name) != 0)
			continue;
		close(sup.kept[i].fd);
		sup.kept[i] = sup.kept[--sup.nkept];
		return;
	}
}

static void kept_add(const char *name, int fd)
{
	kept_drop(name);
	if (sup.nkept == FDS || strlen(name) >= NAME_LEN) {
		close(fd);
		return;
	}
	(void)strcpy(sup.kept[sup.nkept].name, name);
	sup.kept[sup.nkept++].fd = fd;
}

/* Apply a message: lines of NAME=VALUE, and possibly a descriptor. */
static void message_apply(char *text, int fd)
{
	bool store = false, remove = false;
	char *save, *line, *name = NULL;

	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		store = store || !strcmp(line, "FDSTORE=1");
		remove = remove || !strcmp(line, "FDSTOREREMOVE=1");
		if (!strncmp(line, "FDNAME=", 7))
			name = line + 7;
		if (!strcmp(line, "READY=1") && !sup.ready) {
			sup.ready = true;
			/* A reader that waits for the end of our output has received all of it. */
			if (sup.background)
				mcfs_guard_leave_output(false);
		}
	}
	if (remove && name)
		kept_drop(name);
	if (store && name && fd >= 0)
		kept_add(name, fd);
	else if (fd >= 0)
		close(fd);
}

/* The control buffer's padding may contain more than one descriptor: close all except the first.
 * @fd: the first one from an earlier control message, or -1. */
static int first_descriptor(struct cmsghdr *c, int fd)
{
	size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

	for (size_t i = 0; i < n; i++) {
		int next;

		memcpy(&next, CMSG_DATA(c) + i * sizeof(next), sizeof(next));
		if (fd < 0)
			fd = next;
		else
			close(next);
	}
	return fd;
}

static void message_receive(void)
{
	union {
		char room[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
		struct cmsghdr align;
	} control;
	char text[512];
	struct iovec iov = { text, sizeof(text) - 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control.room, .msg_controllen = sizeof(control.room),
	};
	struct ucred who = { .pid = 0 };
	ssize_t n = recvmsg(sup.notify, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	int fd = -1;

	if (n < 0)
		return;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level != SOL_SOCKET)
			continue;
		if (c->cmsg_type == SCM_RIGHTS)
			fd = first_descriptor(c, fd);
		else if (c->cmsg_type == SCM_CREDENTIALS)
			memcpy(&who, CMSG_DATA(c), sizeof(who));
	}
	text[n] = '\0';
	/* Any process can send to the abstract socket. */
	if (who.pid == sup.pid)
		message_apply(text, fd);
	else if (fd >= 0)
		close(fd);
}

static int open_notify(void)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	char name[80];
	int one = 1, n;

	sup.notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (sup.notify < 0)
		return mc_fail(-errno, "socket: %s", mc_strerror(errno));
	n = snprintf(name, sizeof(name), "@mcfs-supervisor-%d-%llx", (int)getpid(),
		     (unsigned long long)mc_random_u64());
	memcpy(at.sun_path + 1, name + 1, (size_t)n - 1);
	if (setsockopt(sup.notify, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) < 0 ||
	    bind(sup.notify, (void *)&at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
						      (size_t)n)) < 0)
		return mc_fail(-errno, "the supervisor's socket: %s", mc_strerror(errno));
	return setenv("NOTIFY_SOCKET", name, 1) ? -ENOMEM : 0;
}

/* ---- daemons ---- */

/* The fork copied the descriptors with their numbers. */
int mcfs_supervise_kept(const char *name)
{
	for (unsigned i = 0; i < sup.nkept; i++)
		if (strcmp(sup.kept[i].name, name) == 0)
			return sup.kept[i].fd;
	return -ENOENT;
}

/* 1: in the daemon; 0: in the supervisor; negative: fork failed. */
static int start_daemon(void)
{
	sup.started_ns = mc_now_ns();
	sup.pid = fork();
	if (sup.pid < 0)
		return mc_fail(-errno, "fork: %s", mc_strerror(errno));
	if (sup.pid == 0) {
		(void)prctl(PR_SET_NAME, "mcfs");
		(void)sigprocmask(SIG_SETMASK, &sup.mask, NULL);
		close(sup.notify);
		close(sup.signals);
		return 1;
	}
	return 0;
}

/* A daemon has ended: should another one be started? */
static bool daemon_restarts(int status)
{
	uint64_t lived_ms = (mc_now_ns() - sup.started_ns) / MC_NS_PER_MS;

	/* Process the messages that it sent before its end. */
	for (int i = 0; i < 64; i++)
		message_receive();
	/* The daemon ended voluntarily, or never mounted. */
	if (sup.ending || !sup.ready || (WIFEXITED(status) && (!WEXITSTATUS(status) || !sup.tries)))
		return false;
	sup.tries = lived_ms >= SERVED_MS ? 1 : sup.tries + 1;
	if (sup.tries > TRIES) {
		mc_err("mcfs", "daemons die repeatedly, giving up tries=%u", TRIES);
		return false;
	}
	if (WIFSIGNALED(status))
		mc_err("mcfs", "the daemon was killed, starting another one signal=%d pid=%d",
		       WTERMSIG(status), (int)sup.pid);
	else
		mc_err("mcfs", "the daemon failed, starting another one pid=%d", (int)sup.pid);
	mc_sleep_ms(sup.tries > 1 ? PAUSE_MS << (sup.tries - 2) : 0);
	return true;
}

static void signal_forward(void)
{
	struct signalfd_siginfo si;

	if (read(sup.signals, &si, sizeof(si)) != sizeof(si) || si.ssi_signo == SIGCHLD)
		return;
	if (si.ssi_signo == SIGTERM || si.ssi_signo == SIGINT)
		sup.ending = true;
	(void)kill(sup.pid, (int)si.ssi_signo);
}

static int exit_status(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The mount ends with the supervisor, which holds the last copy of its descriptor. */
static void supervisor_end(int status)
{
	for (unsigned i = 0; i < sup.nkept; i++)
		close(sup.kept[i].fd);
	mc_log_close();
	mc_process_end(exit_status(status));
}

static int open_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGUSR1);
	if (sigprocmask(SIG_BLOCK, &set, &sup.mask) < 0)
		return mc_fail(-errno, "sigprocmask: %s", mc_strerror(errno));
	sup.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return sup.signals < 0 ? mc_fail(-errno, "signalfd: %s", mc_strerror(errno)) : 0;
}

int mcfs_supervise(int *parent)
{
	struct pollfd pfd[2];
	int status, r = open_notify();

	if (r == 0)
		r = open_signals();
	if (r == 0)
		r = start_daemon();
	if (r != 0)
		return r < 0 ? r : 0;
	if (*parent >= 0)
		close(*parent);
	sup.background = *parent >= 0;
	*parent = -1;
	if (chdir("/") < 0)
		mc_debug("mcfs", "chdir /: %s", mc_strerror(errno));
	(void)prctl(PR_SET_NAME, NAME);
	for (;;) {
		pfd[0] = (struct pollfd){ .fd = sup.notify, .events = POLLIN };
		pfd[1] = (struct pollfd){ .fd = sup.signals, .events = POLLIN };
		(void)poll(pfd, 2, -1);
		if (pfd[0].revents & POLLIN)
			message_receive();
		if (pfd[1].revents & POLLIN)
			signal_forward();
		if (waitpid(sup.pid, &status, WNOHANG) != sup.pid)
			continue;
		if (!daemon_restarts(status))
			supervisor_end(status);
		r = start_daemon();
		if (r < 0)
			supervisor_end(status);
		if (r > 0)
			return 0;
	}
}
