/* SPDX-License-Identifier: Apache-2.0
 * user_mem.c - registered memory that this process may be unable to touch: it is for reading only, has been
 * unmapped, or its file was cut short.  A signal would end the process for what a peer has asked; the kernel,
 * which copies here by way of a file, only fails. */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/engine_i.h"
#include "engine/tcp/tcp_rx.h"

/* What mce_mr.kind says. */
enum { ASK, PLAIN, FRAIL };

/* Is all of it mapped, for writing too, and without a file behind it?  A region that was registered with its file has
 * the promise that this does not become shorter. */
static bool lies_plain(const struct mce_mr *mr)
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
		if (from > at || may[0] != 'r' || may[1] != 'w' || (inode && mr->fd < 0))
			break;
		at = to;
	}
	fclose(f);
	return at >= end;
}

bool mce_mr_is_plain(struct mce_mr *mr)
{
	uint8_t kind = __atomic_load_n(&mr->kind, __ATOMIC_RELAXED);

	if (kind == ASK) {
		kind = lies_plain(mr) ? PLAIN : FRAIL;
		__atomic_store_n(&mr->kind, kind, __ATOMIC_RELAXED);
	}
	return kind == PLAIN;
}

static int bounce(struct mce_io *io)
{
	if (io->bounce_fd < 0)
		io->bounce_fd = memfd_create("mooncake-bounce", MFD_CLOEXEC);
	return io->bounce_fd;
}

ssize_t mce_user_write(struct mce_io *io, void *to, const void *from, size_t n)
{
	ssize_t got = -1;

	if (bounce(io) >= 0 && pwrite(io->bounce_fd, from, n, 0) == (ssize_t)n)
		got = pread(io->bounce_fd, to, n, 0);
	return got > 0 ? got : -EFAULT;
}

bool mce_user_readable(struct mce_io *io, const void *at, uint64_t len)
{
	const char *p = at;

	while (len) {
		size_t n = len < MCE_RX_BUF ? len : MCE_RX_BUF;

		if (bounce(io) < 0 || pwrite(io->bounce_fd, p, n, 0) != (ssize_t)n)
			return false;
		p += n;
		len -= n;
	}
	return true;
}
