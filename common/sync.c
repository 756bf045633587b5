/* SPDX-License-Identifier: Apache-2.0
 * sync.c - durability of directory entries. */
#include <config.h>

#include "common/sync.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"

int mc_sync_entry(const char *path)
{
	auto_free char *copy = strdup(path);
	const char *dir = copy ? dirname(copy) : NULL;
	auto_close int fd = -1;

	if (!dir)
		return mc_fail(-ENOMEM, "no memory to sync the directory of %s", path);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return mc_fail(-errno, "cannot open the directory %s to sync it: %s", dir, mc_strerror(errno));
	if (fsync(fd) < 0 && errno != EINVAL)
		return mc_fail(-errno, "cannot sync the directory %s: %s", dir, mc_strerror(errno));
	return 0;
}
