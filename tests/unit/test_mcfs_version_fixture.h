/* SPDX-License-Identifier: Apache-2.0
 * test_mcfs_version_fixture.h - writers of files, on a fake store. */
#ifndef TEST_MCFS_VERSION_FIXTURE_H
#define TEST_MCFS_VERSION_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/sys/clock.h"
#include "mcfs/write/version.h"
#include "tests/lib/fake_mcs.h"

#define DEADLINE mc_deadline_ms(1000)

struct vx {
	mcs_t *store;
	struct mcfs_pool *pool;
	struct mcfs_version_env env;
	unsigned told;			/* number of reported failures, and the last error */
	int told_err;
};

/* For cmocka: *state is a struct vx. vx_down checks that no writer exists, no byte is staged and no
 * object is open. */
int vx_up(void **state);
int vx_down(void **state);
#define VX_TEST(fn) cmocka_unit_test_setup_teardown(fn, vx_up, vx_down)

/* A writer of the name, based on the current version. */
struct mcfs_writer *vx_open(struct vx *f, const char *key, unsigned flags);
#define vx_create(f, key) vx_open(f, key, MCFS_WRITER_FRESH)
void vx_write(struct mcfs_writer *w, uint64_t at, const char *text);	/* by this process */
int vx_flush(struct mcfs_writer *w);
int vx_release(struct mcfs_writer *w, enum mcfs_fate fate);		/* also drops the reference */

/* A put by another client. */
void vx_put(struct vx *f, const char *key, const char *text);
/* Check the stored bytes; @text NULL: the key does not exist. */
void vx_stored(struct vx *f, const char *key, const char *text);

#endif
