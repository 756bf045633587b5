/* SPDX-License-Identifier: Apache-2.0
 * nt_copy.h - copies at memory bandwidth, with checksums at no extra cost. */
#ifndef MCE_NT_COPY_H
#define MCE_NT_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A transfer of at least this size bypasses the caches: it would only evict the data of others. */
#define MCE_NT_MIN (1u << 20)

/* Copy @n bytes.  @nt: by non-temporal stores, which do not read the destination into the cache first. */
void mce_nt_copy(void *dst, const void *src, size_t n, bool nt);

/* Copy MC_CRC_CHUNK bytes and return their CRC-32C.  Each byte is loaded once, so the checksum matches
 * the stored bytes even when the source changes meanwhile. */
uint32_t mce_nt_copy_chunk(void *dst, const void *src, bool nt);

/* The CRC-32C of MC_CRC_CHUNK bytes. */
uint32_t mce_crc_chunk(const void *src);

#endif
