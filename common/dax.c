/* SPDX-License-Identifier: Apache-2.0
 * dax.c - devices of memory. */
#include <config.h>

#include "common/dax.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/err.h"
#include "common/sys/clock.h"
#include "common/sys/file.h"

#define CLAIM_MS 5000
#define CLAIM_NAP_NS 20000000

/* A number in the device's directory in sysfs; 0: there is none. */
static uint64_t dax_number(const struct stat *st, const char *name)
{
	char path[96], text[32];
	auto_file int fd = -1;
	ssize_t n;

	snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/%s", major(st->st_rdev), minor(st->st_rdev), name);
	fd = mc_file_open(path, O_RDONLY | O_CLOEXEC, 0);
	n = fd < 0 ? -1 : mc_file_read(fd, text, sizeof(text) - 1);
	if (n < 0)
		return 0;
	text[n] = 0;
	return strtoull(text, NULL, 10);
}

static bool dax_is(const struct stat *st)
{
	char path[96], to[256];
	const char *name;
	ssize_t n;

	snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/subsystem", major(st->st_rdev), minor(st->st_rdev));
	n = readlink(path, to, sizeof(to) - 1);
	if (n < 0)
		return false;
	to[n] = 0;
	name = strrchr(to, '/');
	return name && !strcmp(name + 1, "dax");
}

int mc_dax_lock(int fd, const char *path)
{
	uint64_t deadline = mc_deadline_ms(CLAIM_MS);

	while (mc_file_flock(fd, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return mc_fail(-errno, "%s: cannot lock it: %s", path, strerror(errno));
		if (mc_now_ns() >= deadline)
			return mc_fail(-EBUSY, "%s is in use by another process, or a program still has the memory of "
				       "an earlier owner mapped; end it, or give this owner another one", path);
		mc_sleep_ns(CLAIM_NAP_NS);
	}
	return 0;
}

int mc_dax_claim(int fd, const char *path, struct mc_dax *ret)
{
	struct stat st;
	int r;

	if (mc_file_fstat(fd, &st))
		return mc_fail(-errno, "%s: %s", path, strerror(errno));
	if (!S_ISCHR(st.st_mode) || !dax_is(&st))
		return mc_fail(-EINVAL, "%s is neither a regular file nor a DAX device (/dev/daxX.Y, mode devdax)",
			       path);
	r = mc_dax_lock(fd, path);
	if (r < 0)
		return r;
	*ret = (struct mc_dax){ .size = dax_number(&st, "size"), .align = dax_number(&st, "align") };
	if (!ret->size)
		return mc_fail(-EINVAL, "%s: the kernel does not tell its size (/sys/dev/char/%u:%u/size)", path,
			       major(st.st_rdev), minor(st.st_rdev));
	/* Kernels before 5.10 do not tell it: the default of ndctl and daxctl. */
	if (!ret->align)
		ret->align = 2u << 20;
	return 0;
}

int64_t mc_dax_mappable(int fd)
{
	struct stat st;

	if (mc_file_fstat(fd, &st))
		return -errno;
	return S_ISCHR(st.st_mode) && dax_is(&st) ? (int64_t)dax_number(&st, "size") : (int64_t)st.st_size;
}
