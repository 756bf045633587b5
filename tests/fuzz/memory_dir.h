/* SPDX-License-Identifier: Apache-2.0
 * memory_dir.h - a directory of a fuzz target's process, in memory where the machine has /dev/shm: there fsync(2) costs
 * nothing.  It has no subdirectories.  These functions abort when they fail. */
#ifndef TEST_MEMORY_DIR_H
#define TEST_MEMORY_DIR_H

#include <stddef.h>

/* The path.  The first call makes the directory; it is removed when the process ends without a crash. */
char *memory_dir(void);
/* Make a file with this content, or replace the file of this name. */
void memory_dir_write(const char *name, const void *bytes, size_t len);
/* Remove all files. */
void memory_dir_clear(void);

#endif
