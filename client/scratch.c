/* SPDX-License-Identifier: Apache-2.0
 * scratch.c - memory of one operation: a stack of blocks. */
#include <config.h>

#include "client/scratch.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"

#define ALIGN 64
#define BLOCK_MIN ((size_t)32 << 10)
#define BLOCK_KEPT ((size_t)4 << 20)	/* larger blocks are freed after use */
#define POOL_MAX 32			/* free scratches that are kept */

/* Positions are counted through all blocks of a scratch; this one begins at @start. */
struct block {
	struct block *prev;
	size_t start, cap;
	_Alignas(ALIGN) unsigned char mem[];
};

struct mcs_scratch {
	struct mcs_scratch *next;
	struct block *top;
	size_t used;		/* position after the last allocation */
};

void mcs_scratch_pool_init(struct mcs_scratch_pool *p)
{
	mc_mutex_init(&p->lock);
	p->free = NULL;
	p->n_free = 0;
}

static void scratch_free_blocks(struct mcs_scratch *s)
{
	while (s->top) {
		struct block *b = s->top;

		s->top = b->prev;
		free(b);
	}
	s->used = 0;
}

void mcs_scratch_pool_done(struct mcs_scratch_pool *p)
{
	while (p->free) {
		struct mcs_scratch *s = p->free;

		p->free = s->next;
		scratch_free_blocks(s);
		free(s);
	}
	mc_mutex_destroy(&p->lock);
}

struct mcs_scratch *mcs_scratch_get(struct mcs_scratch_pool *p)
{
	struct mcs_scratch *s;

	mc_mutex_lock(&p->lock);
	s = p->free;
	if (s) {
		p->free = s->next;
		p->n_free--;
	}
	mc_mutex_unlock(&p->lock);
	return s ? s : calloc(1, sizeof(*s));
}

static struct block *scratch_block_new(size_t start, size_t cap)
{
	struct block *b = NULL;

	if (cap > SIZE_MAX - sizeof(*b) - ALIGN)
		return NULL;
	cap = (cap + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	b = aligned_alloc(ALIGN, sizeof(*b) + cap);
	if (b)
		*b = (struct block){ .start = start, .cap = cap };
	return b;
}

void mcs_scratch_put(struct mcs_scratch_pool *p, struct mcs_scratch *s)
{
	if (!s)
		return;
	/* Several blocks: the first was too small.  Replace them by one that is large enough for all. */
	if (s->top && s->top->prev) {
		size_t need = s->top->start + s->top->cap;

		scratch_free_blocks(s);
		if (need <= BLOCK_KEPT)
			s->top = scratch_block_new(0, need);
	} else if (s->top && s->top->cap > BLOCK_KEPT) {
		scratch_free_blocks(s);
	}
	s->used = 0;

	mc_mutex_lock(&p->lock);
	if (p->n_free < POOL_MAX) {
		s->next = p->free;
		p->free = s;
		p->n_free++;
		s = NULL;
	}
	mc_mutex_unlock(&p->lock);
	if (s) {
		scratch_free_blocks(s);
		free(s);
	}
}

void *mcs_scratch_raw(struct mcs_scratch *s, size_t n, size_t size)
{
	struct block *b = s->top;
	size_t bytes, at;

	if (__builtin_mul_overflow(n, size, &bytes) || bytes > SIZE_MAX / 2)
		return NULL;
	bytes = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	if (!b || bytes > b->start + b->cap - s->used) {
		size_t cap = bytes > BLOCK_MIN ? bytes : BLOCK_MIN;

		if (b && cap < b->cap)
			cap = b->cap;
		b = scratch_block_new(s->top ? s->top->start + s->top->cap : 0, cap);
		if (!b)
			return NULL;
		b->prev = s->top;
		s->top = b;
		s->used = b->start;
	}
	at = s->used - b->start;
	s->used += bytes;
	return b->mem + at;
}

void *mcs_scratch_alloc(struct mcs_scratch *s, size_t n, size_t size)
{
	void *p = mcs_scratch_raw(s, n, size);

	if (p)
		memset(p, 0, n * size);
	return p;
}
