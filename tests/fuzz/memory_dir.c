/* SPDX-License-Identifier: Apache-2.0
 * memory_dir.c - a directory of a fuzz target's process, in memory. */
#include <config.h>

#include "tests/fuzz/memory_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char path[64];

void memory_dir_clear(void)
{
	DIR *d = opendir(path);
	struct dirent *e;

	if (!d)
		abort();
	while ((e = readdir(d)))
		if (e->d_name[0] != '.' && unlinkat(dirfd(d), e->d_name, 0) < 0)
			abort();
	closedir(d);
}

static void dir_remove(void)
{
	memory_dir_clear();
	rmdir(path);
}

char *memory_dir(void)
{
	if (path[0])
		return path;
	snprintf(path, sizeof(path), "%s/mc-fuzz.XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	if (!mkdtemp(path) || atexit(dir_remove))
		abort();
	return path;
}

void memory_dir_write(const char *name, const void *bytes, size_t len)
{
	char file[256];
	int fd;

	snprintf(file, sizeof(file), "%s/%s", memory_dir(), name);
	fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, bytes, len) != (ssize_t)len)
		abort();
	close(fd);
}
