/* SPDX-License-Identifier: Apache-2.0
 * crc32c.c - CRC-32C by ISA-L, a copy that computes the CRC, and combination of CRCs.
 *
 * A CRC is a polynomial over GF(2) modulo P, stored bit-reversed: bit 31 is x^0.  Appending n bytes
 * multiplies the polynomial by x^(8n), so combining CRCs needs a product and a table of powers. */
#include <config.h>

#include "common/crc32c.h"

#include <isa-l/crc.h>
#include <stdbool.h>
#include <string.h>
#ifdef __x86_64__
#include <nmmintrin.h>
#endif

#define POLY 0x82f63b78u	/* 0x1edc6f41 reversed */
#define ISAL_MAX (1u << 30)	/* ISA-L counts in int */

/* The fused copy runs three independent streams, because the latency of the processor's CRC instruction is
 * three times its throughput.  Their length is a compromise: streams shorter than some KiB confuse the
 * prefetcher (half the speed from memory), and 4 * 3 * 5440 is just below MC_CRC_CHUNK. */
#define STREAM 5440u
#define FUSED (3 * STREAM)

/* Without the fused copy: small enough that a copied block is still in the first-level cache when
 * its CRC is computed. */
#define COPY_BLOCK 16384u

static uint32_t pow_x8[64];		/* x^(8 * 2^i) */
static uint32_t chunk_shift[4][256];	/* v << 8i, times x^(8 * MC_CRC_CHUNK) */
static uint32_t stream_shift[4][256];	/* v << 8i, times x^(8 * STREAM) */
static bool have_fused;

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

static void shift_table(uint32_t table[4][256], uint64_t bytes)
{
	for (unsigned i = 0; i < 4; i++)
		for (uint32_t v = 0; v < 256; v++)
			table[i][v] = gf2_shift_bytes(v << (8 * i), bytes);
}

static inline uint32_t table_shift(uint32_t table[4][256], uint32_t crc)
{
	return table[0][crc & 255] ^ table[1][crc >> 8 & 255] ^ table[2][crc >> 16 & 255] ^
	       table[3][crc >> 24];
}

__attribute__((constructor)) static void tables_init(void)
{
	pow_x8[0] = 1u << (31 - 8);
	for (unsigned i = 1; i < 64; i++)
		pow_x8[i] = gf2_mul(pow_x8[i - 1], pow_x8[i - 1]);
	shift_table(chunk_shift, MC_CRC_CHUNK);
	shift_table(stream_shift, STREAM);
#ifdef __x86_64__
	have_fused = __builtin_cpu_supports("sse4.2");
#endif
}

uint32_t mc_crc32c_add(uint32_t crc, const void *p, size_t len)
{
	/* ISA-L takes and returns the CRC without the final inversion, and does not write to the buffer. */
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

#ifdef __x86_64__
/* Copy a word and return @crc continued over it.  The word is loaded once, so that the CRC is that
 * of the stored bytes even if the source changes meanwhile. */
__attribute__((target("sse4.2")))
static inline uint64_t copy_word(uint64_t crc, unsigned char *to, const unsigned char *from)
{
	uint64_t word;

	memcpy(&word, from, sizeof(word));
	/* Without this the compiler could load it again for its second use. */
	__asm__("" : "+r"(word));
	memcpy(to, &word, sizeof(word));
	return _mm_crc32_u64(crc, word);
}

__attribute__((target("sse4.2")))
static uint32_t copy_fused(uint32_t reg, unsigned char *to, const unsigned char *from)
{
	uint64_t a = reg, b = 0, c = 0;

	/* Unrolled by hand: the loop's instructions would cost a sixth of its speed. */
	for (const unsigned char *end = from + STREAM; from < end; from += 32, to += 32) {
		a = copy_word(a, to, from);
		b = copy_word(b, to + STREAM, from + STREAM);
		c = copy_word(c, to + 2 * STREAM, from + 2 * STREAM);
		a = copy_word(a, to + 8, from + 8);
		b = copy_word(b, to + STREAM + 8, from + STREAM + 8);
		c = copy_word(c, to + 2 * STREAM + 8, from + 2 * STREAM + 8);
		a = copy_word(a, to + 16, from + 16);
		b = copy_word(b, to + STREAM + 16, from + STREAM + 16);
		c = copy_word(c, to + 2 * STREAM + 16, from + 2 * STREAM + 16);
		a = copy_word(a, to + 24, from + 24);
		b = copy_word(b, to + STREAM + 24, from + STREAM + 24);
		c = copy_word(c, to + 2 * STREAM + 24, from + 2 * STREAM + 24);
	}
	reg = table_shift(stream_shift, (uint32_t)a) ^ (uint32_t)b;
	return table_shift(stream_shift, reg) ^ (uint32_t)c;
}
#else
static uint32_t copy_fused(uint32_t reg, unsigned char *to, const unsigned char *from)
{
	memcpy(to, from, FUSED);
	return crc32_iscsi(to, FUSED, reg);
}
#endif

uint32_t mc_crc32c_copy(uint32_t crc, void *dst, const void *src, size_t len)
{
	const unsigned char *from = src;
	unsigned char *to = dst;
	uint32_t reg = ~crc;

	for (; have_fused && len >= FUSED; len -= FUSED, to += FUSED, from += FUSED)
		reg = copy_fused(reg, to, from);
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
	return table_shift(chunk_shift, crc_a) ^ crc_b;
}
