/* SPDX-License-Identifier: Apache-2.0
 * user_mem.c - access to registered memory that this process may be unable to touch: it may be read-only,
 * unmapped, or its file truncated.  A plain access would raise a signal and end the process because of a peer's
 * request.  The kernel, which copies here through a file, only returns an error. */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/engine_i.h"

/* Bytes that pass through the file at once. */
#define BOUNCE_BYTES (64u << 10)

/* Is all of it mapped writable, and not from a file that may be truncated?  A region that is registered with its file
 * comes with the promise that the file does not become shorter. */
bool mce_mr_check_plain(const struct mce_mr *mr)
{
	FILE *f = fopen("/proc/self/maps", "re");
	uint64_t at = mr->base, end = mr->base + mr->len;
	unsigned long from, to, inode;
	char line[512], may[8];

	if (!f)
		return false;
	while (at < end && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx %7s %*s %*s %lu", &from, &to, may, &inode) != 4 || to <= at)
			continue;
		if (from > at || may[0] != 'r' || may[1] != 'w' || (inode && !mr->has_file))
			break;
		at = to;
	}
	fclose(f);
	return at >= end;
}

static int bounce_open(struct mce_io *io)
{
	if (io->bounce_fd < 0)
		io->bounce_fd = memfd_create("mooncake-bounce", MFD_CLOEXEC);
	return io->bounce_fd;
}

ssize_t mce_user_write(struct mce_io *io, void *to, const void *from, size_t n)
{
	ssize_t got = -1;

	if (bounce_open(io) >= 0 && pwrite(io->bounce_fd, from, n, 0) == (ssize_t)n)
		got = pread(io->bounce_fd, to, n, 0);
	return got > 0 ? got : -EFAULT;
}

bool mce_user_readable(struct mce_io *io, const void *at, uint64_t len)
{
	const char *p = at;

	while (len) {
		size_t n = len < BOUNCE_BYTES ? len : BOUNCE_BYTES;

		if (bounce_open(io) < 0 || pwrite(io->bounce_fd, p, n, 0) != (ssize_t)n)
			return false;
		p += n;
		len -= n;
	}
	return true;
}
