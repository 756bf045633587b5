/* SPDX-License-Identifier: Apache-2.0
 * mcctl_pool.h - the master of a pool that is mounted on this machine. A local pool is that of "mcfs --standalone":
 * its master has only a unix socket, which its user and root may use. */
#ifndef MCCTL_POOL_H
#define MCCTL_POOL_H

#include <stdbool.h>

#include "tools/ctl/mcctl.h"

#define MCCTL_POOL_ADDR 1024	/* bytes of an address, or list of addresses, with its NUL */

/* Is @path the mount point @dir?  Compares text only: a system call on the mount may hang. */
bool mcctl_pool_is_path(const char *path, const char *dir);
/* The master of the pool that is mounted on @dir.  MCCTL_OK, or the exit status after a message. */
enum mcctl_status mcctl_pool_of_mount(const char *dir, char ret[MCCTL_POOL_ADDR], bool *ret_local);
/* The user named no master.  If none answers at the default address @master, and this user has local pools, name them:
 * MCCTL_FAILED after a message.  Otherwise MCCTL_OK. */
enum mcctl_status mcctl_pool_check_default(const char *master);

#endif
