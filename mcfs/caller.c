/* SPDX-License-Identifier: Apache-2.0
 * caller.c - fate of the process behind a request. The last thread of an ending process closes its files:
 * PF_EXITING shows that it is ending, exit_code shows how. PF_SIGNALED does not: exit(0) of one thread also
 * ends the other threads with a signal. */
#include <config.h>
#include "mcfs/caller.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"

/* The kernel's include/linux/sched.h defines it; /proc/PID/stat shows it, so it is ABI. */
#define PF_EXITING_BIT 0x4ul

/* Every kernel gives the machine's first pid namespace this number: include/linux/proc_ns.h. */
#define FIRST_PID_NAMESPACE "pid:[4026531836]"

bool mcfs_caller_all_seen(void)
{
	char buf[sizeof(FIRST_PID_NAMESPACE)] = "";

	return readlink("/proc/self/ns/pid", buf, sizeof(buf) - 1) > 0 &&
		strcmp(buf, FIRST_PID_NAMESPACE) == 0;
}

static ssize_t read_proc(pid_t tid, const char *name, char *buf, size_t size)
{
	char path[64];
	auto_close int fd = -1;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)tid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = read(fd, buf, size - 1);
	if (n < 0)
		return -errno;
	buf[n] = '\0';
	return n;
}

/* Thread @tid exists in process @pid. */
static bool thread_of(pid_t pid, pid_t tid)
{
	return syscall(SYS_tgkill, pid, tid, 0) == 0 || errno != ESRCH;
}

pid_t mcfs_caller_process(pid_t tid)
{
	char buf[2048], *p;

	if (tid <= 0 || thread_of(tid, tid))
		return tid;
	if (read_proc(tid, "status", buf, sizeof(buf)) <= 0)
		return tid;
	p = strstr(buf, "\nTgid:");
	return p ? (pid_t)atoi(p + strlen("\nTgid:")) : tid;
}

bool mcfs_caller_is(pid_t pid, pid_t tid)
{
	if (pid == tid)
		return true;
	return pid > 0 && tid > 0 && thread_of(pid, tid);
}

/* Field @n of a /proc/PID/stat line, counted from 1. @p points behind the command name, which is
 * field 2 and may contain any byte. */
static const char *stat_field(const char *p, int n)
{
	for (int i = 3; i < n && p; i++) {
		p = strchr(p, ' ');
		if (p)
			p++;
	}
	return p;
}

/* An ending process has released its memory before it closes its files. A process in execve(2)
 * still has memory: it may be closing files of ours, and the kernel (6.18) blocks readers of its
 * stat until that is done, so do not read stat here. */
static bool has_memory(pid_t tid)
{
	char buf[4096];

	return read_proc(tid, "status", buf, sizeof(buf)) > 0 && strstr(buf, "\nVmSize:");
}

/* The kernel shows exit code 0 to a process that may not trace @tid. Such a process may not see the
 * namespaces of @tid either. */
bool mcfs_caller_hides_end(pid_t tid)
{
	char path[64], buf[sizeof(FIRST_PID_NAMESPACE)];

	(void)snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)tid);
	return readlink(path, buf, sizeof(buf)) < 0 && errno == EACCES;
}

enum mcfs_fate mcfs_caller_fate(pid_t tid)
{
	char buf[2048], *name_end, state;
	const char *p;
	unsigned long flags;
	bool hidden;
	long code;

	if (tid <= 0 || has_memory(tid))
		return MCFS_ALIVE;
	hidden = mcfs_caller_hides_end(tid);
	if (read_proc(tid, "stat", buf, sizeof(buf)) <= 0)
		return MCFS_GONE;
	name_end = strrchr(buf, ')');
	if (!name_end || name_end[1] != ' ')
		return MCFS_GONE;
	state = name_end[2];
	p = stat_field(name_end + 2, 9);
	flags = p ? strtoul(p, NULL, 10) : 0;
	if (!(flags & PF_EXITING_BIT) && state != 'Z' && state != 'X')
		return MCFS_ALIVE;
	p = stat_field(name_end + 2, 52);
	code = p ? strtol(p, NULL, 10) : 0;
	return code || hidden ? MCFS_DIED : MCFS_EXITED;
}

bool mcfs_caller_ended(pid_t pid)
{
	const char *state, *threads;
	char buf[4096];

	if (pid <= 0)
		return false;
	if (read_proc(pid, "status", buf, sizeof(buf)) <= 0)
		return true;
	state = strstr(buf, "\nState:\t");
	threads = strstr(buf, "\nThreads:\t");
	if (!state || !threads)
		return false;
	state += strlen("\nState:\t");
	/* The first thread may end before the others. */
	return (*state == 'Z' || *state == 'X') && atoi(threads + strlen("\nThreads:\t")) <= 1;
}

/* The signal mask in the line "@name:\t<hex>" of a status file. */
static unsigned long long mask_of(const char *status, const char *name)
{
	const char *p = strstr(status, name);

	return p ? strtoull(p + strlen(name), NULL, 16) : 0;
}

bool mcfs_caller_all_ends_seen(void)
{
	char buf[4096];

	return read_proc(getpid(), "status", buf, sizeof(buf)) > 0 &&
		mask_of(buf, "\nCapEff:\t") >> CAP_SYS_PTRACE & 1;
}

bool mcfs_caller_killed(pid_t tid)
{
	const unsigned long long sigkill = 1ull << (9 - 1);
	char buf[4096];

	if (tid <= 0)
		return false;
	if (read_proc(tid, "status", buf, sizeof(buf)) <= 0)
		return true;
	/* The kernel sends each thread of a dying process its own SIGKILL. */
	return (mask_of(buf, "\nSigPnd:\t") | mask_of(buf, "\nShdPnd:\t")) & sigkill;
}
