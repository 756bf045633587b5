/* SPDX-License-Identifier: Apache-2.0
 * stream_copy.h - copies that are as fast as the memory, and checksums that come with them for free. */
#ifndef MCE_STREAM_COPY_H
#define MCE_STREAM_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* From here on a transfer goes past the caches: it would only push out what others use. */
#define MCE_STREAM_MIN (1u << 20)

/* Copy @n bytes.  @stream: without reading the destination into the cache first. */
void mce_stream_copy(void *dst, const void *src, size_t n, bool stream);

/* Copy MC_CRC_CHUNK bytes and return their CRC-32C.  Each byte is loaded once, so the checksum is of
 * what was stored even when the source changes meanwhile. */
uint32_t mce_stream_copy_chunk(void *dst, const void *src, bool stream);

#endif
