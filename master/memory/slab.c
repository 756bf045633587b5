/* SPDX-License-Identifier: Apache-2.0
 * slab.c - numbered elements that never move. */
#include <config.h>

#include "master/memory/slab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/cleanup.h"
#include "common/err.h"

#define HUGE (2u << 20)

void mcm_slab_init(struct mcm_slab *s, size_t elem, unsigned shift)
{
	*s = (struct mcm_slab){
		.elem = elem, .shift = shift, .next = 1, .chunk = s->few, .chunks = MCM_SLAB_FEW,
	};
	mc_mutex_init(&s->lock);
}

static size_t chunk_bytes(const struct mcm_slab *s)
{
	return s->elem << s->shift;
}

void mcm_slab_done(struct mcm_slab *s)
{
	char **array = s->chunk, **before;
	uint32_t i;

	for (i = 0; i < s->chunks; i++)
		if (s->chunk[i])
			munmap(s->chunk[i], chunk_bytes(s));
	for (; array != s->few; array = before) {
		before = (char **)(void *)array[-1];
		free(array - 1);
	}
	mc_mutex_destroy(&s->lock);
}

/* Untouched pages cost nothing, so a chunk may be mapped long before it is full.  Huge pages are
 * possible only at multiples of their size.  The kernel maps downwards and merges adjacent mappings
 * into one: the highest aligned address is the one next to the previous chunk. */
static char *chunk_map_aligned(size_t bytes, size_t align)
{
	size_t more = bytes + align, before, behind;
	char *p;

	p = mmap(NULL, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	if (!align)
		return p;
	behind = (uintptr_t)p & (align - 1);
	before = align - behind;
	munmap(p, before);
	if (behind)
		munmap(p + before + bytes, behind);
	return p + before;
}

/* Enlarge the array for chunk @n.  Threads that have read the shorter array may continue to use it. */
static int chunks_grow(struct mcm_slab *s, uint32_t n)
{
	uint32_t cap = s->chunks;
	char **more;

	while (cap <= n)
		cap *= 2;
	more = calloc(cap + 1ul, sizeof(*more));
	if (!more)
		return mc_fail(-ENOMEM, "no memory for %u chunks of metadata", cap);
	*more++ = (void *)s->chunk;
	memcpy(more, s->chunk, s->chunks * sizeof(*more));
	__atomic_store_n(&s->chunk, more, __ATOMIC_RELEASE);
	__atomic_store_n(&s->chunks, cap, __ATOMIC_RELEASE);
	return 0;
}

static int chunk_map(struct mcm_slab *s, uint32_t n)
{
	size_t bytes = chunk_bytes(s);
	char *p;
	int r;

	if (n >= s->chunks) {
		r = chunks_grow(s, n);
		if (r < 0)
			return r;
	}
	p = chunk_map_aligned(bytes, bytes >= HUGE ? HUGE : 0);
	if (!p)
		return mc_fail(-ENOMEM, "no memory for %zu bytes of metadata", bytes);
	if (n && bytes > HUGE)
		(void)madvise(p, bytes, MADV_HUGEPAGE);
	__atomic_store_n(&s->chunk[n], p, __ATOMIC_RELEASE);
	return 0;
}

/* A small master should need few pages, and one with very many segments few mappings: the kernel merges
 * adjacent mappings only when their advice is equal.  So the first chunk gets huge pages late. */
static void first_chunk_use_huge(struct mcm_slab *s)
{
	size_t bytes = chunk_bytes(s);

	s->large = true;
	if (bytes > 2 * HUGE)
		(void)madvise(s->chunk[0] + HUGE, bytes - HUGE, MADV_HUGEPAGE);
}

uint64_t mcm_slab_bytes(struct mcm_slab *s)
{
	MC_LOCKED(&s->lock);
	return (s->next - 1) * s->elem;
}

int mcm_slab_take(struct mcm_slab *s, uint32_t count, uint32_t *ret_first)
{
	uint64_t per = 1ull << s->shift, n, chunk;
	int r;

	MC_LOCKED(&s->lock);
	n = s->next;
	/* Elements of one call are adjacent: skip the rest of a chunk that is too short for them. */
	if (n % per + count > per)
		n += per - n % per;
	if (n + count > UINT32_MAX)
		return mc_fail(-MC_ELIMIT, "slab limit of %u elements reached", UINT32_MAX);
	chunk = n >> s->shift;
	if (chunk >= s->chunks || !s->chunk[chunk]) {
		r = chunk_map(s, (uint32_t)chunk);
		if (r < 0)
			return r;
	}
	s->next = n + count;
	if (!s->large && s->chunk[0] && s->next * s->elem > HUGE)
		first_chunk_use_huge(s);
	*ret_first = (uint32_t)n;
	return 0;
}

int mcm_slab_cover(struct mcm_slab *s, uint32_t id)
{
	uint32_t n = id >> s->shift;
	int r;

	if (n < __atomic_load_n(&s->chunks, __ATOMIC_ACQUIRE) && mcm_slab_at(s, n << s->shift))
		return 0;
	MC_LOCKED(&s->lock);
	if (n < s->chunks && s->chunk[n])
		return 0;
	r = chunk_map(s, n);
	if (r == 0 && !n)
		first_chunk_use_huge(s);
	return r;
}
