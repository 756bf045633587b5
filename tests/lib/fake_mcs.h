/* SPDX-License-Identifier: Apache-2.0
 * fake_mcs.h - an implementation of mcs.h in memory, for tests of the layers above it: versions are
 * immutable and reference-counted, and a put can be made to fail or to wait. */
#ifndef TESTS_LIB_FAKE_MCS_H
#define TESTS_LIB_FAKE_MCS_H

#include <mooncake/mcs.h>

mcs_t *fake_mcs_new(void);
void fake_mcs_free(mcs_t *s);		/* aborts the process when an object is still open */

/* The next @n puts return @err and store nothing. */
void fake_mcs_fail_puts(mcs_t *s, unsigned n, int err);
/* Same for reads of open objects. */
void fake_mcs_fail_reads(mcs_t *s, unsigned n, int err);
/* Call @fn in each put before the object becomes visible; NULL: no call. */
void fake_mcs_on_put(mcs_t *s, void (*fn)(void *arg), void *arg);

unsigned fake_mcs_puts(const mcs_t *s);		/* puts that stored something */
unsigned fake_mcs_open_objects(const mcs_t *s);
/* Number of stream puts among them; number of open streams; number of bytes written to streams. */
unsigned fake_mcs_streamed(const mcs_t *s);
unsigned fake_mcs_open_streams(mcs_t *s);
uint64_t fake_mcs_stream_bytes(mcs_t *s);
/* Flags of the stream that was opened last. */
unsigned fake_mcs_stream_flags(mcs_t *s);
/* Call @fn in each write to a stream before the stream stores the bytes. */
void fake_mcs_on_stream(mcs_t *s, void (*fn)(void *arg), void *arg);
/* The next @n writes to streams return @err. */
void fake_mcs_fail_streams(mcs_t *s, unsigned n, int err);

#endif
