/* SPDX-License-Identifier: Apache-2.0
 * mcfs_calls.h - system calls on files of a mount, one case per function; see mcfs_calls.c. */
#ifndef TESTS_INTEG_MCFS_CALLS_H
#define TESTS_INTEG_MCFS_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

#define MIB ((size_t)1 << 20)

/* All paths are relative to the directory under test, which is the working directory. */

/* End the case with a message unless @ok. */
#define CHECK(ok) check((ok), #ok, __FILE__, __LINE__)
/* The call must fail with the errno @err. */
#define FAILS(call, err) check_fails((long)(call), err, #call, __FILE__, __LINE__)

void check(bool ok, const char *what, const char *file, int line);
void check_fails(long result, int err, const char *what, const char *file, int line);

/* At least @len bytes that depend on @seed and their position; valid until the next call. */
const char *pattern(unsigned seed, size_t len);
void put_file(const char *path, const char *data, size_t len);
void put_text(const char *path, const char *text);
/* The file holds exactly these bytes. */
void holds(const char *path, const char *data, size_t len);
void holds_text(const char *path, const char *text);
void absent(const char *path);
int opened(const char *path, int flags);	/* opens the file, new files with mode 0644; failure ends the case */
void wrote(int fd, const char *data, size_t len);

/* Run @fn in a child process and wait until it ends; returns the wait status. */
int in_child(void (*fn)(void));

struct call_case {
	const char *name;
	void (*run)(void);
};
extern const struct call_case data_cases[], writer_cases[], name_cases[];	/* end with NULL */

#endif
