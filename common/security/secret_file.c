/* SPDX-License-Identifier: Apache-2.0
 * secret_file.c - reading of files with secrets, and the check of their mode. */
#include <config.h>

#include "common/security/secret_file.h"

#include <errno.h>
#include <string.h>

#include "common/err.h"
#include "common/sys/file.h"

static int file_read_all(int fd, const char *path, char *buf, size_t size)
{
	size_t len = 0;
	ssize_t n = 1;

	while (n != 0 && len < size) {
		n = mc_file_read(fd, buf + len, size - len);
		if (n > 0)
			len += (size_t)n;
		else if (n < 0 && errno != EINTR)
			return mc_fail(-errno, "cannot read %s: %s", path, mc_strerror(errno));
	}
	if (len == size)
		return mc_fail(-EFBIG, "%s is longer than %zu bytes", path, size - 1);
	buf[len] = '\0';
	return (int)len;
}

static int small_file_read(const char *path, mode_t forbidden, char *buf, size_t size)
{
	int fd = mc_file_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0), r;
	struct stat st;

	if (fd < 0)
		return mc_fail(-errno, "cannot read %s: %s", path, mc_strerror(errno));
	if (mc_file_fstat(fd, &st) < 0)
		r = mc_fail(-errno, "cannot read %s: %s", path, mc_strerror(errno));
	else if (!S_ISREG(st.st_mode))
		r = mc_fail(-EACCES, "%s is not a regular file", path);
	else if (st.st_mode & forbidden)
		r = mc_fail(-EACCES, "%s must be a file that only its owner can %s: chmod %s %s", path,
			    forbidden & 04 ? "read" : "write", forbidden & 04 ? "600" : "go-w", path);
	else
		r = file_read_all(fd, path, buf, size);
	mc_file_close(fd);
	if (r < 0)
		explicit_bzero(buf, size);
	return r;
}

int mc_secret_file_read(const char *path, char *buf, size_t size)
{
	return small_file_read(path, 077, buf, size);
}

int mc_public_file_read(const char *path, char *buf, size_t size)
{
	return small_file_read(path, 0, buf, size);
}

int mc_trusted_file_read(const char *path, char *buf, size_t size)
{
	return small_file_read(path, 022, buf, size);
}
