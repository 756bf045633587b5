/* SPDX-License-Identifier: Apache-2.0
 * mcbench_content.c - fill and check contents. */
#include <config.h>

#include "tools/bench/mcbench_content.h"

#include <string.h>

#define LINE 64u
#define WORDS 8u

static uint64_t content_mix(uint64_t x)
{
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ull;
	x ^= x >> 29;
	return x;
}

static void content_line(uint64_t w[WORDS], uint64_t id, uint64_t line, uint64_t seed)
{
	uint64_t x = content_mix(seed + 0x9e3779b97f4a7c15ull) ^ (id * 0xbf58476d1ce4e5b9ull);

	x += line * (0x94d049bb133111ebull * WORDS);
	w[0] = id;
	w[1] = line;
	for (unsigned i = 2; i < WORDS; i++)
		w[i] = content_mix(x + i * 0x94d049bb133111ebull);
}

void mcbench_content_fill(void *buf, size_t len, uint64_t id, uint64_t seed)
{
	uint64_t w[WORDS];
	char *p = buf;

	for (uint64_t line = 0; len; line++) {
		size_t n = len < LINE ? len : LINE;

		content_line(w, id, line, seed);
		memcpy(p, w, n);
		p += n;
		len -= n;
	}
}

/* Details of a wrong line. */
static void content_blame(const unsigned char *p, size_t n, const uint64_t w[WORDS], uint64_t offset,
			  struct mcbench_wrong *ret)
{
	const unsigned char *expected = (const unsigned char *)w;

	for (size_t i = 0; i < n; i++) {
		if (p[i] == expected[i])
			continue;
		if (ret->bytes++)
			continue;
		ret->first = offset + i;
		ret->id = ret->line = UINT64_MAX;
		if (n >= 2 * sizeof(uint64_t)) {
			memcpy(&ret->id, p, sizeof(ret->id));
			memcpy(&ret->line, p + sizeof(ret->id), sizeof(ret->line));
		}
	}
}

uint64_t mcbench_content_check(const void *buf, size_t len, uint64_t id, uint64_t seed,
			       struct mcbench_wrong *ret)
{
	struct mcbench_wrong wrong = { .bytes = 0 };
	const unsigned char *p = buf;
	uint64_t w[WORDS], offset = 0;

	for (uint64_t line = 0; offset < len; line++) {
		size_t n = len - offset < LINE ? len - offset : LINE;

		content_line(w, id, line, seed);
		if (memcmp(p + offset, w, n))
			content_blame(p + offset, n, w, offset, &wrong);
		offset += n;
	}
	if (wrong.bytes)
		*ret = wrong;
	return wrong.bytes;
}
