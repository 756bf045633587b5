/* SPDX-License-Identifier: Apache-2.0
 * nt_copy.c - copying at memory bandwidth, see nt_copy.h.
 *
 * A plain copy reads every line of its destination before it overwrites it; non-temporal stores avoid
 * that third of the traffic.  They leave nothing in the cache for a later checksum, so the checksum is computed
 * from the registers during the copy.  The crc32 instruction has a throughput of one per cycle and a latency of
 * three, hence three interleaved strands of the chunk; as several strands of loads also keep
 * more memory requests in flight, this copies faster with a checksum than memcpy without. */
#include <config.h>

#include "engine/nt_copy.h"

#include <pthread.h>
#include <string.h>

#include "common/crc32c.h"

#ifdef __x86_64__

#include <nmmintrin.h>

#define LINE 64u
/* Three strands of whole lines; the rest of the chunk follows them. */
#define STRAND (MC_CRC_CHUNK / 3 / LINE * LINE)
/* Lines ahead; the hardware's own prefetchers stop at the end of a page. */
#define AHEAD (8 * LINE)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool have_crc32;
/* Tables that shift a checksum, byte by byte, over the length of one strand and of two. */
static uint32_t shift[2][4][256];

static uint32_t crc_shift(unsigned strands, uint32_t crc)
{
	const uint32_t (*t)[256] = (const uint32_t (*)[256])shift[strands - 1];

	return t[0][crc & 255] ^ t[1][crc >> 8 & 255] ^ t[2][crc >> 16 & 255] ^ t[3][crc >> 24];
}

/* On first use: mc_crc32c_combine() works only after all constructors have run. */
static void tables_init(void)
{
	uint32_t bit[32];

	have_crc32 = __builtin_cpu_supports("sse4.2");
	for (unsigned s = 0; s < 2; s++) {
		for (unsigned i = 0; i < 32; i++)
			bit[i] = mc_crc32c_combine(1u << i, 0, (uint64_t)STRAND * (s + 1));
		for (unsigned i = 0; i < 4; i++)
			for (unsigned v = 0; v < 256; v++)
				for (unsigned b = 0; b < 8; b++)
					if (v >> b & 1)
						shift[s][i][v] ^= bit[8 * i + b];
	}
}

/* Where the bytes of a chunk go. */
enum sink { CACHED, NON_TEMPORAL, NOWHERE };

static inline __attribute__((always_inline)) void store(char *to, __m128i v, enum sink sink)
{
	if (sink == NON_TEMPORAL)
		_mm_stream_si128((__m128i *)(void *)to, v);
	else if (sink == CACHED)
		_mm_store_si128((__m128i *)(void *)to, v);
}

static inline __attribute__((always_inline, target("sse4.2")))
uint64_t crc_step(uint64_t reg, char *dst, const char *src, enum sink sink)
{
	__m128i v = _mm_loadu_si128((const __m128i *)(const void *)src);

	store(dst, v, sink);
	reg = _mm_crc32_u64(reg, (uint64_t)_mm_cvtsi128_si64(v));
	return _mm_crc32_u64(reg, (uint64_t)_mm_cvtsi128_si64(_mm_unpackhi_epi64(v, v)));
}

static inline __attribute__((always_inline, target("sse4.2")))
uint64_t crc_line(uint64_t reg, char *dst, const char *src, enum sink sink)
{
	_mm_prefetch(src + AHEAD, _MM_HINT_T0);
	for (unsigned i = 0; i < LINE; i += 16)
		reg = crc_step(reg, dst + i, src + i, sink);
	return reg;
}

static inline __attribute__((always_inline, target("sse4.2")))
uint32_t copy_chunk(char *dst, const char *src, enum sink sink)
{
	uint64_t a = UINT32_MAX, b = UINT32_MAX, c = UINT32_MAX;

	for (size_t i = 0; i < STRAND; i += LINE) {
		a = crc_line(a, dst + i, src + i, sink);
		b = crc_line(b, dst + STRAND + i, src + STRAND + i, sink);
		c = crc_line(c, dst + 2 * STRAND + i, src + 2 * STRAND + i, sink);
	}
	/* Combine the strands' checksums and continue with the rest. */
	c = ~(crc_shift(2, ~(uint32_t)a) ^ crc_shift(1, ~(uint32_t)b) ^ ~(uint32_t)c);
	for (size_t i = 3 * STRAND; i < MC_CRC_CHUNK; i += 16)
		c = crc_step(c, dst + i, src + i, sink);
	return ~(uint32_t)c;
}

__attribute__((target("sse4.2"))) static uint32_t copy_chunk_cached(char *dst, const char *src)
{
	return copy_chunk(dst, src, CACHED);
}

__attribute__((target("sse4.2"))) static uint32_t copy_chunk_nt(char *dst, const char *src)
{
	uint32_t crc = copy_chunk(dst, src, NON_TEMPORAL);

	/* A thread that is notified of the bytes must see them: nothing else orders these stores. */
	_mm_sfence();
	return crc;
}

__attribute__((target("sse4.2"))) static uint32_t crc_chunk(const char *src)
{
	return copy_chunk((char *)(uintptr_t)src, src, NOWHERE);
}

uint32_t mce_crc_chunk(const void *src)
{
	pthread_once(&once, tables_init);
	return have_crc32 ? crc_chunk(src) : mc_crc32c(src, MC_CRC_CHUNK);
}

uint32_t mce_nt_copy_chunk(void *dst, const void *src, bool nt)
{
	pthread_once(&once, tables_init);
	if (!have_crc32 || (uintptr_t)dst % 16)
		return mc_crc32c_copy(0, dst, src, MC_CRC_CHUNK);
	return nt ? copy_chunk_nt(dst, src) : copy_chunk_cached(dst, src);
}

void mce_nt_copy(void *dst, const void *src, size_t n, bool nt)
{
	size_t head = -(uintptr_t)dst % LINE, body;
	const char *from = src;
	char *to = dst;

	if (!nt || n < head + LINE) {
		memcpy(dst, src, n);
		return;
	}
	memcpy(to, from, head);
	to += head;
	from += head;
	body = (n - head) / LINE * LINE;
	for (size_t i = 0; i < body; i += LINE) {
		_mm_prefetch(from + i + AHEAD, _MM_HINT_T0);
		for (unsigned k = 0; k < LINE; k += 16)
			store(to + i + k, _mm_loadu_si128((const __m128i *)(const void *)(from + i + k)),
			      NON_TEMPORAL);
	}
	memcpy(to + body, from + body, n - head - body);
	_mm_sfence();
}

#else

uint32_t mce_crc_chunk(const void *src)
{
	return mc_crc32c(src, MC_CRC_CHUNK);
}

uint32_t mce_nt_copy_chunk(void *dst, const void *src, bool nt)
{
	return mc_crc32c_copy(0, dst, src, MC_CRC_CHUNK);
}

void mce_nt_copy(void *dst, const void *src, size_t n, bool nt)
{
	memcpy(dst, src, n);
}

#endif
