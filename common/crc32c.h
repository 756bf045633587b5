/* SPDX-License-Identifier: Apache-2.0
 * crc32c.h - CRC-32C (Castagnoli, RFC 3720 §12.1), computed by ISA-L.  mc_crc32c("123456789", 9) is 0xe3069283.
 *
 * An object has one CRC per chunk of MC_CRC_CHUNK bytes (the last chunk may be shorter) and one of
 * the whole object, which is combined from the chunks' CRCs without a second pass. */
#ifndef MC_CRC32C_H
#define MC_CRC32C_H

#include <stddef.h>
#include <stdint.h>

#define MC_CRC_CHUNK 65536u

/* Continue @crc (0 to begin) over @len bytes. */
uint32_t mc_crc32c_add(uint32_t crc, const void *p, size_t len);
static inline uint32_t mc_crc32c(const void *p, size_t len)
{
	return mc_crc32c_add(0, p, len);
}

/* Copy @len bytes and return the CRC of the stored bytes, continued from @crc.  It is correct even
 * if the source changes during the copy. */
uint32_t mc_crc32c_copy(uint32_t crc, void *dst, const void *src, size_t len);

/* CRC of A followed by B from their CRCs and B's length.  O(log len); table-driven and O(1) for MC_CRC_CHUNK. */
uint32_t mc_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t len_b);

/* Number of chunks, which is the number of CRCs in a trailer, of an object of @size bytes. */
static inline uint64_t mc_crc_chunks(uint64_t size)
{
	return (size + MC_CRC_CHUNK - 1) / MC_CRC_CHUNK;
}

#endif
