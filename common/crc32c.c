/* SPDX-License-Identifier: Apache-2.0
 * crc32c.c - CRC-32C by ISA-L, fused with the copy, and its algebra.
 *
 * A CRC is a polynomial over GF(2) modulo P, held bit-reversed: bit 31 is x^0.  Appending n bytes
 * multiplies what came before by x^(8n), so combining needs a product and a table of powers. */
#include <config.h>

#include "common/crc32c.h"

#include <isa-l/crc.h>
#include <string.h>

#define POLY 0x82f63b78u	/* 0x1edc6f41 reversed */
#define ISAL_MAX (1u << 30)	/* ISA-L counts in int */

/* Small enough that a block is still in the first-level cache when it is read back, large enough
 * that the calls cost nothing; 8 to 16 KiB measure alike, smaller and larger ones worse. */
#define COPY_BLOCK 16384u

static uint32_t pow_x8[64];		/* x^(8 * 2^i) */
static uint32_t chunk_shift[4][256];	/* v << 8i, times x^(8 * MC_CRC_CHUNK) */

static uint32_t gf2_mul(uint32_t a, uint32_t b)
{
	uint32_t sum = 0;

	for (uint32_t bit = 1u << 31; bit; bit >>= 1) {
		if (a & bit)
			sum ^= b;
		b = b & 1 ? (b >> 1) ^ POLY : b >> 1;
	}
	return sum;
}

static uint32_t gf2_shift_bytes(uint32_t crc, uint64_t n)
{
	for (unsigned i = 0; n; i++, n >>= 1)
		if (n & 1)
			crc = gf2_mul(crc, pow_x8[i]);
	return crc;
}

__attribute__((constructor)) static void tables_init(void)
{
	pow_x8[0] = 1u << (31 - 8);
	for (unsigned i = 1; i < 64; i++)
		pow_x8[i] = gf2_mul(pow_x8[i - 1], pow_x8[i - 1]);
	for (unsigned i = 0; i < 4; i++)
		for (uint32_t v = 0; v < 256; v++)
			chunk_shift[i][v] = gf2_shift_bytes(v << (8 * i), MC_CRC_CHUNK);
}

uint32_t mc_crc32c_add(uint32_t crc, const void *p, size_t len)
{
	/* ISA-L takes and gives the register without the final inversion, and does not write. */
	unsigned char *at = (unsigned char *)(uintptr_t)p;
	uint32_t reg = ~crc;

	while (len) {
		size_t n = len < ISAL_MAX ? len : ISAL_MAX;

		reg = crc32_iscsi(at, (int)n, reg);
		at += n;
		len -= n;
	}
	return ~reg;
}

uint32_t mc_crc32c_copy(uint32_t crc, void *dst, const void *src, size_t len)
{
	const unsigned char *from = src;
	unsigned char *to = dst;
	uint32_t reg = ~crc;

	while (len) {
		size_t n = len < COPY_BLOCK ? len : COPY_BLOCK;

		memcpy(to, from, n);
		reg = crc32_iscsi(to, (int)n, reg);
		to += n;
		from += n;
		len -= n;
	}
	return ~reg;
}

uint32_t mc_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t len_b)
{
	if (len_b != MC_CRC_CHUNK)
		return gf2_shift_bytes(crc_a, len_b) ^ crc_b;
	return chunk_shift[0][crc_a & 255] ^ chunk_shift[1][crc_a >> 8 & 255] ^
	       chunk_shift[2][crc_a >> 16 & 255] ^ chunk_shift[3][crc_a >> 24] ^ crc_b;
}
