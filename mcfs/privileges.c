/* SPDX-License-Identifier: Apache-2.0
 * privileges.c - drop the privileges that a daemon started by root does not need. */
#include <config.h>

#include <errno.h>
#include <linux/capability.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/err.h"
#include "common/log.h"
#include "mcfs/mcfs.h"

/* To mount and unmount, also below other users' directories; to read the exit status of other
 * users' processes; to lock memory; to bind a metrics port below 1024. */
#define KEPT (1ull << CAP_SYS_ADMIN | 1ull << CAP_DAC_READ_SEARCH | 1ull << CAP_SYS_PTRACE | \
	      1ull << CAP_IPC_LOCK | 1ull << CAP_NET_BIND_SERVICE)

int mcfs_privileges_drop(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	if (geteuid() != 0)
		return 0;
	if (syscall(SYS_capget, &head, data) < 0)
		return mc_fail(-errno, "capget: %s", mc_strerror(errno));
	/* Also remove them from the bounding set, so that execve(2) cannot restore them. This needs
	 * CAP_SETPCAP; without it the set stays. */
	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (!(KEPT >> cap & 1))
			(void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	for (unsigned i = 0; i < 2; i++) {
		data[i].permitted &= (uint32_t)(KEPT >> (32 * i));
		data[i].effective &= (uint32_t)(KEPT >> (32 * i));
		data[i].inheritable = 0;
	}
	if (syscall(SYS_capset, &head, data) < 0)
		return mc_fail(-errno, "cannot drop privileges: %s", mc_strerror(errno));
	mc_debug("mcfs", "privileges dropped");
	return 0;
}
