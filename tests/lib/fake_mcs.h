/* SPDX-License-Identifier: Apache-2.0
 * fake_mcs.h - the store of mcs.h in memory, for tests of what stands on it: versions are immutable and
 * counted, a put can be made to fail or to wait. */
#ifndef TESTS_LIB_FAKE_MCS_H
#define TESTS_LIB_FAKE_MCS_H

#include <mooncake/mcs.h>

mcs_t *fake_mcs_new(void);
void fake_mcs_free(mcs_t *s);		/* fails the process when an object is still open */

/* The next @n puts give @err and store nothing. */
void fake_mcs_fail_puts(mcs_t *s, unsigned n, int err);
/* The same for reads of open objects. */
void fake_mcs_fail_reads(mcs_t *s, unsigned n, int err);
/* Called in each put before it becomes visible; NULL: nothing. */
void fake_mcs_on_put(mcs_t *s, void (*fn)(void *arg), void *arg);

unsigned fake_mcs_puts(const mcs_t *s);		/* puts that stored something */
unsigned fake_mcs_open_objects(const mcs_t *s);
/* Of those, puts of streams; streams that are open; bytes that were written to streams. */
unsigned fake_mcs_streamed(const mcs_t *s);
unsigned fake_mcs_open_streams(mcs_t *s);
uint64_t fake_mcs_stream_bytes(mcs_t *s);
/* Called in each write to a stream before it takes the bytes. */
void fake_mcs_on_stream(mcs_t *s, void (*fn)(void *arg), void *arg);
/* The next @n writes to streams give @err. */
void fake_mcs_fail_streams(mcs_t *s, unsigned n, int err);

#endif
