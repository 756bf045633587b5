/* SPDX-License-Identifier: Apache-2.0
 * stream_copy.h - copies at memory bandwidth, with checksums at no extra cost. */
#ifndef MCE_STREAM_COPY_H
#define MCE_STREAM_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A transfer of at least this size bypasses the caches: it would only evict the data of others. */
#define MCE_STREAM_MIN (1u << 20)

/* Copy @n bytes.  @stream: without reading the destination into the cache first. */
void mce_stream_copy(void *dst, const void *src, size_t n, bool stream);

/* Copy MC_CRC_CHUNK bytes and return their CRC-32C.  Each byte is loaded once, so the checksum matches
 * the stored bytes even when the source changes meanwhile. */
uint32_t mce_stream_copy_chunk(void *dst, const void *src, bool stream);

/* The CRC-32C of MC_CRC_CHUNK bytes. */
uint32_t mce_stream_crc_chunk(const void *src);

#endif
