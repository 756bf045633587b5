/* SPDX-License-Identifier: Apache-2.0
 * perf_alloc.c - the segment allocator: pairs of alloc and free per second, and how full a segment gets before an
 * allocation fails, with random frees and with those of the oldest.  malloc() of the same sizes is the comparison. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/err.h"
#include "master/memory/alloc.h"
#include "tests/perf/row.h"

#define SEGMENT perf_n(16ull << 30, 64u << 20)
#define PAIRS perf_n(4000000, 4000)

/* CPU time of this process: other programs do not disturb it. */
static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

#define SEED 88172645463325252ull

static uint64_t state;

static uint64_t rnd(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static uint64_t size_4k(void)
{
	return 4096;
}

static uint64_t size_1m(void)
{
	return 1 << 20;
}

static uint64_t size_odd(void)
{
	return (1 << 20) - 17;
}

static uint64_t size_64k_more(void)
{
	return (64 << 10) + 17;
}

static uint64_t size_4k_more(void)
{
	return 4096 + 17;
}

static uint64_t size_8k_more(void)
{
	return 8192 + 17;
}

static uint64_t size_36k_more(void)
{
	return (36 << 10) + 17;
}

/* Whole pages beside odd sizes. */
static uint64_t size_pages_and_odd(void)
{
	return rnd() & 1 ? 4096 << rnd() % 4 : 4096 + 17;
}

/* Powers of two from 16 KiB to 8 MiB in equal numbers, with their checksums. */
static uint64_t size_powers(void)
{
	uint64_t len = 16384ull << rnd() % 10;

	return len > 65536 ? len + len / 16384 : len;
}

static uint64_t size_larger(void)
{
	return (1 << 20) * 11 / 10;
}

static uint64_t size_1m_trailer(void)
{
	return (1 << 20) + 64;
}

static uint64_t size_mixed(void)
{
	return 1024 + rnd() % (2 << 20);
}

static uint64_t size_small_mixed(void)
{
	return 64 + rnd() % 65536;
}

/* Two kinds of blocks side by side, as attention variants need. */
static uint64_t size_pairs(void)
{
	return rnd() & 1 ? 3274752 : 658432;
}

struct held {
	uint32_t range;
	uint64_t len;
};

/* Fill until an allocation fails, then free until it fits, at random or the oldest first; repeat.  The ring of
 * held ranges has room for ranges of 4 KiB on average. */
static void utilisation(const char *name, uint64_t (*size)(void), unsigned rounds, bool oldest)
{
	uint64_t segment = SEGMENT, n = 0, first = 0, cap = segment / 4096, len, sum = 0, i, pairs = 0, began;
	struct held *held = calloc(cap, sizeof(*held));
	double low = 1, total = 0, u;
	struct mcm_alloc a;
	uint32_t range;
	char what[64];

	if (!held || mcm_alloc_init(&a, segment) < 0)
		exit(1);
	state = SEED;
	began = 0;
	for (i = 0; i < rounds;) {
		len = size();
		while (mcm_alloc_take(&a, len, &range) < 0) {
			uint64_t victim = (first + (oldest ? 0 : rnd() % n)) % cap;

			if (!began)
				began = cpu_ns();
			u = (double)sum / (double)segment;
			total += u;
			low = u < low ? u : low;
			i++;
			mcm_alloc_free(&a, held[victim].range);
			sum -= held[victim].len;
			held[victim] = held[first];
			first = (first + 1) % cap;
			n--;
			pairs++;
		}
		held[(first + n++) % cap] = (struct held){ range, len };
		sum += len;
	}
	began = cpu_ns() - began;
	(void)snprintf(what, sizeof(what), "utilisation, %s%s", name, oldest ? ", oldest" : "");
	perf_row(what, "least", low * 100, "% of the segment");
	perf_row(what, "mean", total / (double)i * 100, "% of the segment");
	perf_row(what, "when full", (double)pairs * 1e3 / (double)began, "M allocs/s");
	mcm_alloc_done(&a);
	free(held);
}

static double pairs_per_sec(uint64_t (*size)(void), unsigned live)
{
	uint64_t pairs = PAIRS;
	uint32_t *range = calloc(live, sizeof(*range));
	struct mcm_alloc a;
	uint64_t began;
	unsigned i;

	if (!range || mcm_alloc_init(&a, 64 * SEGMENT) < 0)
		exit(1);
	state = SEED;
	for (i = 0; i < live; i++)
		if (mcm_alloc_take(&a, size(), &range[i]) < 0)
			exit(1);
	began = cpu_ns();
	for (i = 0; i < pairs; i++) {
		uint32_t *slot = &range[rnd() % live];

		mcm_alloc_free(&a, *slot);
		if (mcm_alloc_take(&a, size(), slot) < 0)
			exit(1);
	}
	began = cpu_ns() - began;
	mcm_alloc_done(&a);
	free(range);
	return (double)pairs * 1e3 / (double)began;
}

static double malloc_pairs_per_sec(unsigned live)
{
	uint64_t pairs = PAIRS;
	void **p = calloc(live, sizeof(*p));
	uint64_t began;
	unsigned i;

	if (!p)
		exit(1);
	state = SEED;
	began = cpu_ns();
	for (i = 0; i < pairs; i++) {
		void **slot = &p[rnd() % live];

		free(*slot);
		*slot = malloc(64 + rnd() % 4096);
	}
	began = cpu_ns() - began;
	for (i = 0; i < live; i++)
		free(p[i]);
	free(p);
	return (double)pairs * 1e3 / (double)began;
}

int main(void)
{
	static const struct {
		const char *what;
		uint64_t (*size)(void);
		unsigned live;
	} mix[] = {
		{ "alloc+free, 4 KiB, 10000 live", size_4k, 10000 },
		{ "alloc+free, 1 MiB, 10000 live", size_1m, 10000 },
		{ "alloc+free, 64 B..64 KiB mixed, 10000 live", size_small_mixed, 10000 },
		{ "alloc+free, 64 B..64 KiB mixed, 1000000 live", size_small_mixed, 1000000 },
		{ "alloc+free, 1 KiB..2 MiB mixed, 100000 live", size_mixed, 100000 },
	};
	static const struct {
		const char *what;
		uint64_t (*size)(void);
		unsigned rounds;
	} fill[] = {
		{ "4 KiB", size_4k, 100000 }, { "4 KiB + 17", size_4k_more, 100000 },
		{ "8 KiB + 17", size_8k_more, 100000 }, { "36 KiB + 17", size_36k_more, 100000 },
		{ "64 KiB + 17", size_64k_more, 100000 }, { "1 MiB", size_1m, 100000 },
		{ "1 MiB - 17", size_odd, 100000 }, { "1 MiB + 64", size_1m_trailer, 100000 },
		{ "1.1 MiB", size_larger, 100000 }, { "3.1 MiB and 643 KiB", size_pairs, 100000 },
		{ "16 KiB..8 MiB, powers", size_powers, 100000 }, { "1 KiB..2 MiB", size_mixed, 200000 },
		{ "4..32 KiB pages and odd", size_pages_and_odd, 2000000 },
		{ "64 B..64 KiB", size_small_mixed, 2000000 },
	};

	perf_row("malloc+free, 64 B..4 KiB, 10000 live", "rate", malloc_pairs_per_sec(10000),
		 "M pairs/s");
	for (size_t i = 0; i < sizeof(mix) / sizeof(mix[0]); i++)
		perf_row(mix[i].what, "rate",
			 pairs_per_sec(mix[i].size, (unsigned)perf_n(mix[i].live, 1000)), "M pairs/s");
	for (size_t i = 0; i < 2 * sizeof(fill) / sizeof(fill[0]); i++)
		utilisation(fill[i / 2].what, fill[i / 2].size, (unsigned)perf_n(fill[i / 2].rounds, 500), i % 2);
	return 0;
}
