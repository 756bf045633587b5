/* SPDX-License-Identifier: Apache-2.0
 * errors.h - the last failures that a program may have missed, for .mcfs/errors: a close whose
 * result was ignored, or a release that has no caller. */
#ifndef MCFS_ERRORS_H
#define MCFS_ERRORS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "common/sys/lock.h"

#include <mooncake/mcs.h>

#define MCFS_ERRORS_KEPT 256u

struct mcfs_error {
	uint64_t wall_ms;
	pid_t pid;
	char *path;		/* relative to the mount point */
	char *what;		/* "close: no space in the pool" */
};

struct mcfs_errors {
	struct mc_mutex lock;
	uint64_t count;		/* total number of failures so far */
	struct mcfs_error ring[MCFS_ERRORS_KEPT];
};

/* Path of @key for a line of text: blanks, control characters and backslashes are octal escapes. The
 * empty key is the empty path; a longer path than @size is truncated. */
void mcfs_key_print(struct mcs_key key, char *ret, size_t size);
/* "2026-11-21T08:30:00.123Z"; 25 bytes are enough. */
void mcfs_format_time(uint64_t wall_ms, char *ret, size_t size);

int mcfs_errors_init(struct mcfs_errors *e);
void mcfs_errors_done(struct mcfs_errors *e);
void mcfs_errors_add(struct mcfs_errors *e, const void *key, size_t len, int err, const char *when,
		     pid_t pid);
/* Oldest first, one per line: time, pid, path, error. */
void mcfs_errors_print(struct mcfs_errors *e, FILE *to);

#endif
