/* SPDX-License-Identifier: Apache-2.0
 * test_mcfs_path.h - the inverse of mcfs_key_to_path(), for round trips. */
#ifndef TEST_MCFS_PATH_H
#define TEST_MCFS_PATH_H

#include <errno.h>
#include <string.h>

#include "mcfs/keymap.h"

static int mcfs_path_to_key(const char *path, void *ret, size_t size)
{
	char name[MCFS_NAME_MAX + 1], *to = ret;
	size_t done = 0;
	bool top = true;

	for (;;) {
		size_t n = strcspn(path, "/");
		int r;

		if (n > MCFS_NAME_MAX)
			return -ENAMETOOLONG;
		if (n == 0 && path[0] == '\0' && !top)
			break;
		memcpy(name, path, n);
		name[n] = '\0';
		r = mcfs_name_decode(name, top, to + done, size - done);
		if (r < 0)
			return r;
		done += (size_t)r;
		if (path[n] == '\0')
			break;
		if (done == size)
			return -ENAMETOOLONG;
		to[done++] = '/';
		path += n + 1;
		top = false;
	}
	return (int)done;
}

#endif
