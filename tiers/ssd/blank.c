/* SPDX-License-Identifier: Apache-2.0
 * blank.c - a look for foreign content on a device or file that has no header of ours.
 *
 * Filesystems, volume managers, RAID and partition tables keep their superblocks in the first or the last MiB, and few
 * of them at offset 0: btrfs at 64 KiB, md 1.2 and bcache at 4 KiB, md 1.0 and DRBD at the end, ZFS at both ends.  So
 * both MiB have to be zero.  Names of well-known content only make the error message clearer. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "tiers/ssd/ssd_i.h"

#define END_BYTES (1u << 20)	/* examined at each end */

static const struct {
	const char *name, *magic;
	uint32_t at, len;
} known[] = {
	{ "LUKS", "LUKS\xba\xbe", 0, 6 },
	{ "XFS", "XFSB", 0, 4 },
	{ "a GPT partition table", "EFI PART", 512, 8 },
	{ "a GPT partition table", "EFI PART", 4096, 8 },
	{ "LVM2", "LABELONE", 512, 8 },
	{ "swap space", "SWAPSPACE2", 4086, 10 },
	{ "ext2, ext3 or ext4", "\x53\xef", 1080, 2 },
	{ "md RAID", "\xfc\x4e\x2b\xa9", 4096, 4 },
	{ "btrfs", "_BHRfS_M", 65600, 8 },
	{ "a DOS partition table or boot sector", "\x55\xaa", 510, 2 },
};

/* Offset of the first byte that is not 0, @len: there is none. */
static size_t used_at(const unsigned char *p, size_t len)
{
	size_t i = 0;

	/* Equal to itself moved by one byte: all bytes are equal to the first. */
	if (len && !p[0] && !memcmp(p, p + 1, len - 1))
		return len;
	while (i < len && !p[i])
		i++;
	return i;
}

static void content_name(const unsigned char *first, size_t len, uint64_t at, char *ret, size_t ret_len)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].at + known[i].len <= len && !memcmp(first + known[i].at, known[i].magic, known[i].len)) {
			snprintf(ret, ret_len, "%s", known[i].name);
			return;
		}
	snprintf(ret, ret_len, "data at byte %" PRIu64, at);
}

/* Read up to @len bytes, fewer only at the end of the file. */
static int content_read(int fd, unsigned char *buf, size_t len, uint64_t at, size_t *ret)
{
	size_t got = 0;
	ssize_t n;

	while (got < len) {
		n = pread(fd, buf + got, len - got, (off_t)(at + got));
		if (n < 0)
			return -errno;
		got += (size_t)n;
		/* O_DIRECT: the rest would not begin at a block. */
		if (n == 0 || (size_t)n % 512)
			break;
	}
	*ret = got;
	return 0;
}

int mct_ssd_content(int fd, uint64_t size, char *ret, size_t ret_len)
{
	uint64_t last = size > END_BYTES ? (size - END_BYTES) / MCT_BLOCK * MCT_BLOCK : 0;
	auto_free void *mem = NULL;
	unsigned char *buf;
	size_t n, used;
	int r = -posix_memalign(&mem, MCT_BLOCK, END_BYTES + MCT_BLOCK);

	if (r < 0)
		return r;
	buf = mem;
	r = content_read(fd, buf, END_BYTES, 0, &n);
	if (r < 0)
		return r;
	used = used_at(buf, n);
	if (used < n) {
		content_name(buf, n, used, ret, ret_len);
		return 1;
	}
	r = last ? content_read(fd, buf, END_BYTES + MCT_BLOCK, last, &n) : 0;
	if (r < 0)
		return r;
	used = last ? used_at(buf, n) : n;
	if (used == n)
		return 0;
	snprintf(ret, ret_len, "data at byte %" PRIu64 ", near its end", last + used);
	return 1;
}
