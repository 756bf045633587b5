/* SPDX-License-Identifier: Apache-2.0
 * test_tiers_fixture.h - a medium of the tier "ssd" in a directory, its reads and writes, and the fake of 3FS. */
#ifndef TEST_TIERS_FIXTURE_H
#define TEST_TIERS_FIXTURE_H

#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/lib/fake_hf3fs.h"
#include "tiers/tier.h"

#ifndef FAKE_HF3FS
#define FAKE_HF3FS "tests/lib/.libs/libfake_hf3fs.so"	/* below the build directory, in which tests run */
#endif

#define MIB (1ull << 20)

struct wait_read {
	struct mct_read r;
	sem_t sem;
};

struct wait_write {
	struct mct_write w;
	sem_t sem;
};

/* The directory, new for each group of tests. */
extern char tiers_dir[];
/* Group setup: a new directory; *state: the kind of its media (const char *), NULL: the default. */
int tiers_dir_make(void **state);
int tiers_dir_remove(void **state);
/* The same, and the fake of 3FS has the directory. */
int tiers_3fs_make(void **state);
int tiers_3fs_remove(void **state);
/* The state of the fake of 3FS; fails the program if its library cannot be loaded. */
struct fake_hf3fs *tiers_3fs(void);

struct mct_medium *medium(const char *kind, uint64_t size);
/* Write @len bytes @byte through a buffer of the medium; the status. */
int store(struct mct_medium *m, uint64_t off, uint32_t len, unsigned char byte);
/* Write from @buf, and wait. */
int store_from(struct mct_medium *m, uint64_t off, uint32_t len, const void *buf);
void read_begin(struct mct_medium *m, struct wait_read *r, uint64_t off, uint32_t len);
/* Read, and fail the test unless all bytes are @byte; the status. */
int load(struct mct_medium *m, uint64_t off, uint32_t len, unsigned char byte);

#endif
