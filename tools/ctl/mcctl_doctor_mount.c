/* SPDX-License-Identifier: Apache-2.0
 * mcctl_doctor_mount.c - health of the mounts of this machine, and kernel features that make them fast. */
#include <config.h>

#include "tools/ctl/mcctl_doctor.h"

#include <errno.h>
#include <limits.h>
#include <mntent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/sys/clock.h"
#include "common/sys/process.h"
#include "tools/ctl/mcctl_pool.h"

#define PROBE_MS 3000
#define NAP_MS 20
#define MEMLOCK_WANTED ((rlim_t)64 << 20)

/* stat() of a mount, in a child process because it may hang: 0, an errno, or ETIMEDOUT. */
static int probe_mount(const char *dir)
{
	uint64_t deadline = mc_deadline_ms(PROBE_MS);
	char path[PATH_MAX + 32];
	pid_t pid, r;
	int status;

	snprintf(path, sizeof(path), "%s/.mcfs/version", dir);
	pid = fork();
	if (pid < 0)
		return errno;
	if (pid == 0) {
		struct stat st;

		mc_process_end(stat(path, &st) == 0 ? 0 : errno);
	}
	while ((r = waitpid(pid, &status, WNOHANG)) == 0) {
		if (mc_now_ns() >= deadline) {
			/* A hanging child ends when the mount is removed. */
			kill(pid, SIGKILL);
			return ETIMEDOUT;
		}
		mc_sleep_ms(NAP_MS);
	}
	return r > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

/* The state in .mcfs/health. */
static void check_health(struct mcctl_report *rp, enum mcctl_level bad, const char *dir)
{
	char path[PATH_MAX + 32], text[128] = "";
	FILE *f;

	snprintf(path, sizeof(path), "%s/.mcfs/health", dir);
	f = fopen(path, "re");
	if (!f || !fgets(text, sizeof(text), f))
		mcctl_doctor_find(rp, MCCTL_WARNING, "may you read it?  Mounts are for their user only, "
				  "unless allow_other is given", "%s does not report its health: %s", dir,
				  mc_strerror(errno));
	else if (!strstr(text, "\"code\":0"))
		mcctl_doctor_find(rp, bad, "is the master up, and can this node reach it?",
				  "the mount %s does not reach its master", dir);
	else
		mcctl_doctor_find(rp, MCCTL_GOOD, "", "the mount %s serves", dir);
	if (f)
		fclose(f);
}

/* @bad: the level to report when the mount does not serve. */
static void check_mount(struct mcctl_report *rp, enum mcctl_level bad, const char *dir)
{
	int err = probe_mount(dir);

	if (err == ENOTCONN || err == ECONNABORTED)
		mcctl_doctor_find(rp, bad, "a stopped daemon mounts again when it continues; after a kill start "
				  "mcfs there again, or unmount it with \"umount -l\" (or \"fusermount3 -uz\")",
				  "the mount %s is dead: its daemon was killed, or makes no progress", dir);
	else if (err == ETIMEDOUT)
		mcctl_doctor_find(rp, bad, "is its daemon stopped, or out of memory?  \"umount -f\" aborts "
				  "the mount, and all waiting processes get an error",
				  "the mount %s does not answer", dir);
	else if (err == EACCES)
		mcctl_doctor_find(rp, MCCTL_WARNING, "run this as the user who mounted it, or mount with "
				  "allow_other", "the mount %s belongs to another user", dir);
	else if (err)
		mcctl_doctor_find(rp, bad, "check the daemon's log", "the mount %s fails: %s", dir,
				  mc_strerror(err));
	else
		check_health(rp, bad, dir);
}

static bool is_named(const struct mcctl *c, const char *dir)
{
	for (int i = 0; i < c->argc; i++)
		if (mcctl_pool_is_path(c->argv[i], dir))
			return true;
	return false;
}

static unsigned check_mounts(struct mcctl *c, struct mcctl_report *rp)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	char buf[2 * PATH_MAX];
	struct mntent m;
	unsigned n = 0;

	if (!f)
		return 0;
	while (getmntent_r(f, &m, buf, sizeof(buf))) {
		if (strcmp(m.mnt_type, "fuse.mcfs") != 0)
			continue;
		if (c->argc && !is_named(c, m.mnt_dir))
			continue;
		n++;
		check_mount(rp, c->argc ? MCCTL_BAD : MCCTL_WARNING, m.mnt_dir);
	}
	endmntent(f);
	if (n < (unsigned)c->argc)
		mcctl_doctor_find(rp, MCCTL_BAD, "mcfs MASTER DIR, or mount -t mcfs MASTER DIR",
				  "%u of the %d directories are mounts of mcfs", n, c->argc);
	return n;
}

static bool kernel_is(int major, int minor)
{
	struct utsname u;
	int a = 0, b = 0;

	return uname(&u) == 0 && sscanf(u.release, "%d.%d", &a, &b) == 2 &&
		(a > major || (a == major && b >= minor));
}

static void check_kernel(struct mcctl_report *rp)
{
	if (access("/dev/fuse", F_OK) < 0)
		mcctl_doctor_find(rp, MCCTL_BAD, "modprobe fuse; a container needs the device "
				  "(--device /dev/fuse)", "/dev/fuse does not exist: mounting is impossible");
	else if (access("/dev/fuse", R_OK | W_OK) < 0)
		mcctl_doctor_find(rp, MCCTL_BAD, "chmod 666 /dev/fuse, as distributions do, or mount as root",
				  "/dev/fuse cannot be opened by this user");
	if (!kernel_is(6, 9))
		mcctl_doctor_find(rp, MCCTL_WARNING, "Linux 6.9 and later have it",
				  "this kernel has no passthrough: reads copy files once more");
	else if (geteuid() != 0)
		mcctl_doctor_find(rp, MCCTL_WARNING, "mount as root to use it",
				  "passthrough needs CAP_SYS_ADMIN, which this user does not have");
	else
		mcctl_doctor_find(rp, MCCTL_GOOD, "", "this kernel has passthrough");
	if (!kernel_is(6, 6))
		mcctl_doctor_find(rp, MCCTL_WARNING, "mount with -o nodirect_io where programs map files, or take "
				  "Linux 6.6", "files cannot be mapped shared and writable");
}

/* "always within_size [advise] never" has the chosen word in brackets. */
static bool is_chosen(const char *path, const char *word)
{
	char text[256] = "", want[64];
	FILE *f = fopen(path, "re");

	if (!f)
		return false;
	if (!fgets(text, sizeof(text), f))
		text[0] = '\0';
	fclose(f);
	snprintf(want, sizeof(want), "[%s]", word);
	return strstr(text, want) != NULL;
}

static void check_memory(struct mcctl_report *rp)
{
	static const char dir[] = "/sys/kernel/mm/transparent_hugepage";
	struct rlimit lim;

	if (access(dir, F_OK) < 0)
		mcctl_doctor_find(rp, MCCTL_WARNING, "use a kernel with CONFIG_TRANSPARENT_HUGEPAGE, or "
				  "reserve pages with vm.nr_hugepages and mount with segment_kind=hugetlb",
				  "no huge pages: segments are mapped in small pages");
	else if (is_chosen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "deny"))
		mcctl_doctor_find(rp, MCCTL_WARNING, "echo advise >/sys/kernel/mm/transparent_hugepage/"
				  "shmem_enabled", "huge pages are denied to shared memory");
	else
		mcctl_doctor_find(rp, MCCTL_GOOD, "", "huge pages are available to segments");
	if (getrlimit(RLIMIT_MEMLOCK, &lim) == 0 && lim.rlim_cur != RLIM_INFINITY &&
	    lim.rlim_cur < MEMLOCK_WANTED)
		mcctl_doctor_find(rp, MCCTL_WARNING, "ulimit -l unlimited, LimitMEMLOCK=infinity in the unit, or "
				  "memlock in /etc/security/limits.conf",
				  "only %llu KiB may be locked in memory",
				  (unsigned long long)(lim.rlim_cur >> 10));
}

void mcctl_doctor_mounts(struct mcctl *c, struct mcctl_report *rp)
{
	/* Without a mount, found or named, advice on mounts is useless. */
	if (!check_mounts(c, rp) && !c->argc)
		return;
	check_kernel(rp);
	check_memory(rp);
}
