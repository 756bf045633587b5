/* SPDX-License-Identifier: Apache-2.0
 * slab.c - elements that never move.
 *
 * The elements of chunk k are those whose number plus 2^shift has its highest bit at shift + k: the
 * chunk is found by counting zeros, and no table of chunks has to grow. */
#include <config.h>

#include "master/slab.h"

#include <errno.h>
#include <sys/mman.h>

#include "common/cleanup.h"
#include "common/err.h"

#define HUGE (2u << 20)

void mcm_slab_init(struct mcm_slab *s, size_t elem, unsigned shift)
{
	*s = (struct mcm_slab){ .elem = elem, .shift = shift, .next = 1 };
	pthread_mutex_init(&s->lock, NULL);
}

static size_t chunk_bytes(const struct mcm_slab *s, unsigned chunk)
{
	return s->elem << (s->shift + chunk);
}

void mcm_slab_done(struct mcm_slab *s)
{
	unsigned i;

	for (i = 0; i < MCM_SLAB_CHUNKS; i++)
		if (s->base[i])
			munmap((void *)(s->base[i] + chunk_bytes(s, i)), chunk_bytes(s, i));
	pthread_mutex_destroy(&s->lock);
}

static int map_chunk(struct mcm_slab *s, unsigned chunk)
{
	size_t bytes = chunk_bytes(s, chunk);
	void *p;

	/* Untouched pages cost nothing, so a large chunk may be mapped long before it fills. */
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return mc_fail(-ENOMEM, "no memory for %zu bytes of metadata", bytes);
	if (bytes >= HUGE)
		(void)madvise(p, bytes, MADV_HUGEPAGE);
	/* The first number of the series is 2^(shift + chunk): subtract it once and for all. */
	__atomic_store_n(&s->base[chunk], (uintptr_t)p - bytes, __ATOMIC_RELEASE);
	return 0;
}

int mcm_slab_take(struct mcm_slab *s, uint32_t count, uint32_t *ret_first)
{
	uint64_t n, end;
	unsigned chunk;
	int r;

	MC_LOCKED(&s->lock);
	n = s->next + (1ull << s->shift);
	chunk = 63 - (unsigned)__builtin_clzll(n) - s->shift;
	end = 2ull << (s->shift + chunk);
	if (n + count > end) {
		/* Elements of one call are adjacent: leave the chunk's few last ones alone. */
		n = end;
		chunk++;
	}
	if (n + count - (1ull << s->shift) > UINT32_MAX)
		return mc_fail(-MC_ELIMIT, "more than %u elements", UINT32_MAX);
	if (!s->base[chunk]) {
		r = map_chunk(s, chunk);
		if (r < 0)
			return r;
	}
	s->next = n - (1ull << s->shift) + count;
	*ret_first = (uint32_t)(n - (1ull << s->shift));
	return 0;
}

int mcm_slab_cover(struct mcm_slab *s, uint32_t id)
{
	unsigned chunk = 63 - (unsigned)__builtin_clzll((uint64_t)id + (1ull << s->shift)) - s->shift;

	if (__atomic_load_n(&s->base[chunk], __ATOMIC_ACQUIRE))
		return 0;
	MC_LOCKED(&s->lock);
	return s->base[chunk] ? 0 : map_chunk(s, chunk);
}
