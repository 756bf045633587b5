/* SPDX-License-Identifier: Apache-2.0
 * identity.c - which master this is. */
#include <config.h>

#include "master/ha/identity.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/sys/file.h"
#include "common/sys/random.h"

#define FILE_NAME "master"
#define FORMAT "%16[0-9a-f] %" SCNu64 " %u\n"

static int file_write(const struct mcm_identity *me)
{
	auto_file int dir = mc_file_open(me->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0), fd = -1;
	char text[64];
	int n = snprintf(text, sizeof(text), "%s %" PRIu64 " %u\n", me->id, me->term, (unsigned)me->standing);

	if (dir >= 0)
		fd = mc_file_openat(dir, FILE_NAME ".tmp", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return mc_fail(-errno, "cannot write %s/" FILE_NAME, me->dir);
	errno = ENOSPC;		/* the error after a short write, which sets none */
	if (mc_file_write(fd, text, (size_t)n) != n || mc_file_fsync(fd) < 0 ||
	    mc_file_renameat(dir, FILE_NAME ".tmp", dir, FILE_NAME) < 0 || mc_file_fsync(dir) < 0)
		return mc_fail(-errno, "cannot write %s/" FILE_NAME, me->dir);
	return 0;
}

int mcm_identity_open(const char *dir, struct mcm_identity *ret)
{
	struct mcm_identity me = { .dir = dir };
	auto_file int fd = -1;
	unsigned standing = 0;
	char path[4096], text[65];
	ssize_t n;

	if (snprintf(path, sizeof(path), "%s/" FILE_NAME, dir) >= (int)sizeof(path))
		return mc_fail(-ENAMETOOLONG, "path too long: %s", dir);
	fd = mc_file_open(path, O_RDONLY | O_CLOEXEC, 0);
	n = fd < 0 ? -1 : mc_file_read(fd, text, sizeof(text) - 1);
	if (n < 0 && (fd >= 0 || errno != ENOENT))
		return mc_fail(-errno, "cannot read %s", path);
	if (fd < 0) {
		snprintf(me.id, sizeof(me.id), "%016" PRIx64, mc_random_u64());
		*ret = me;
		return file_write(ret);
	}
	text[n] = '\0';
	if (sscanf(text, FORMAT, me.id, &me.term, &standing) != 3 ||
	    strlen(me.id) != sizeof(me.id) - 1 || standing > MCM_LEADER)
		return mc_fail(-EINVAL, "%s is damaged; without it this master would be a new one, without the "
			       "state", path);
	me.standing = (enum mcm_standing)standing;
	*ret = me;
	return 0;
}

int mcm_identity_note(struct mcm_identity *me, uint64_t term, enum mcm_standing standing)
{
	if (me->term == term && me->standing == standing)
		return 0;
	me->term = term;
	me->standing = standing;
	return file_write(me);
}
