/* SPDX-License-Identifier: Apache-2.0
 * origin.c - the mark of the state in a journal's directory. */
#include <config.h>

#include "master/journal/origin.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/sys/file.h"

#define MARK "from-snapshot"
#define UNPROVEN "unproven"

int mcm_origin_mark(int dirfd, const char *text)
{
	auto_file int fd = mc_file_openat(dirfd, MARK ".tmp", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	errno = fd < 0 ? errno : ENOSPC;	/* ENOSPC: a short write sets no errno */
	if (fd < 0 || mc_file_write(fd, text, strlen(text)) != (ssize_t)strlen(text) || mc_file_fsync(fd) < 0 ||
	    mc_file_renameat(dirfd, MARK ".tmp", dirfd, MARK) < 0 || mc_file_fsync(dirfd) < 0)
		return mc_fail(-errno, "cannot write " MARK " into the journal's directory");
	return 0;
}

int mcm_origin_write(int dirfd, enum mcm_origin origin)
{
	if (origin == MCM_ORIGIN_UNPROVEN)
		return mcm_origin_mark(dirfd, UNPROVEN);
	if ((mc_file_unlinkat(dirfd, MARK, 0) < 0 && errno != ENOENT) || mc_file_fsync(dirfd) < 0)
		return mc_fail(-errno, "cannot remove " MARK " from the journal's directory");
	return 0;
}

int mcm_origin_read(int dirfd, enum mcm_origin *ret, uint64_t *ret_server)
{
	auto_file int fd = mc_file_openat(dirfd, MARK, O_RDONLY | O_CLOEXEC, 0);
	char text[32] = "";

	*ret = MCM_ORIGIN_JOURNAL;
	if (fd < 0)
		return errno == ENOENT ? 0 : mc_fail(-errno, "cannot read " MARK " in the journal's directory");
	if (mc_file_read(fd, text, sizeof(text) - 1) < 0)
		return mc_fail(-errno, "cannot read " MARK " in the journal's directory");
	*ret = !strcmp(text, UNPROVEN) ? MCM_ORIGIN_UNPROVEN : MCM_ORIGIN_SNAPSHOT;
	if (sscanf(text, "last %16" SCNx64, ret_server) != 1)
		*ret_server = 0;
	return 0;
}
