/* SPDX-License-Identifier: Apache-2.0
 * arena.c - managed memory: memory files, registered once and divided into blocks by a buddy allocator.  Its
 * data is kept outside of the memory, because peers may write there.  A request larger than the largest block
 * gets an arena of its own. */
#include <config.h>

#include "engine/te/te_i.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/process/fork.h"

#define HUGE_PAGE (2ull << 20)
#define ORDER_MIN 13		/* 8 KiB */
#define ORDER_MAX 28		/* 256 MiB */
#define ORDERS (ORDER_MAX - ORDER_MIN + 1)
/* A sparse file uses no memory until it is written; reserved huge pages, and memory registered on NICs, are taken at
 * once. */
#define SPARSE_BYTES (2ull << 30)
#define RESERVED_BYTES (256ull << 20)
/* The memory of a block of this order or larger is returned to the system when the block is freed.  Not that of NICs,
 * which would go on using the pages that the file has lost. */
#define PUNCH_ORDER 20
#define NONE UINT32_MAX

struct block {
	uint32_t prev, next;	/* on the free list of its order */
	uint8_t order;
	bool head, free;
};

struct mce_te_arena {
	struct mce_te_arena *next;
	char *base;
	uint64_t len;
	int fd, node;
	bool pinned;		/* NICs use its pages */
	struct block *block;	/* one per 8 KiB; NULL: the arena is one block */
	uint32_t list[ORDERS];	/* free blocks by order */
};

/* ---- buddy allocator --------------------------------------------------------------------------- */

static void block_list_push(struct mce_te_arena *a, uint32_t i, unsigned order)
{
	struct block *b = &a->block[i];
	uint32_t *head = &a->list[order - ORDER_MIN];

	b->order = (uint8_t)order;
	b->head = b->free = true;
	b->prev = NONE;
	b->next = *head;
	if (*head != NONE)
		a->block[*head].prev = i;
	*head = i;
}

static void block_list_remove(struct mce_te_arena *a, uint32_t i)
{
	struct block *b = &a->block[i];

	if (b->prev != NONE)
		a->block[b->prev].next = b->next;
	else
		a->list[b->order - ORDER_MIN] = b->next;
	if (b->next != NONE)
		a->block[b->next].prev = b->prev;
	b->free = false;
}

static uint32_t block_span(unsigned order)
{
	return 1u << (order - ORDER_MIN);
}

/* Split the smallest free block that is large enough; NULL if there is none. */
static void *block_get(struct mce_te_arena *a, unsigned order)
{
	unsigned at = order;
	uint32_t i;

	while (at <= ORDER_MAX && a->list[at - ORDER_MIN] == NONE)
		at++;
	if (at > ORDER_MAX)
		return NULL;
	i = a->list[at - ORDER_MIN];
	block_list_remove(a, i);
	for (; at > order; at--)
		block_list_push(a, i + block_span(at - 1), at - 1);
	a->block[i].order = (uint8_t)order;
	return a->base + ((uint64_t)i << ORDER_MIN);
}

static void block_put(struct mce_te_arena *a, uint32_t i)
{
	unsigned order = a->block[i].order;
	uint32_t n = (uint32_t)(a->len >> ORDER_MIN);

	if (order >= PUNCH_ORDER && !a->pinned)
		(void)fallocate(a->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				(off_t)i << ORDER_MIN, (off_t)1 << order);
	while (order < ORDER_MAX) {
		uint32_t buddy = i ^ block_span(order);

		if (buddy + block_span(order) > n || !a->block[buddy].head || !a->block[buddy].free ||
		    a->block[buddy].order != order)
			break;
		block_list_remove(a, buddy);
		a->block[i].head = a->block[buddy].head = false;
		i = i < buddy ? i : buddy;
		order++;
	}
	block_list_push(a, i, order);
}

static int blocks_init(struct mce_te_arena *a)
{
	a->block = calloc(a->len >> ORDER_MIN, sizeof(*a->block));
	if (!a->block)
		return -ENOMEM;
	for (unsigned i = 0; i < ORDERS; i++)
		a->list[i] = NONE;
	/* The block at the lowest address is allocated first. */
	for (uint64_t n = a->len >> ORDER_MAX; n-- > 0;)
		block_list_push(a, (uint32_t)n * block_span(ORDER_MAX), ORDER_MAX);
	return 0;
}

/* ---- memory ------------------------------------------------------------------------------------ */

/* Peers of other users map the file too (engine/shm/map_wire.h), so it is sealed against truncation. */
static int arena_map_file(struct mce_te_arena *a, uint64_t len, unsigned flags)
{
	auto_close int fd = memfd_create("mooncake-te", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
	char *at;

	if (fd < 0 || fchmod(fd, 0600) || ftruncate(fd, (off_t)len) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return -errno;
	at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return -errno;
	a->base = at;
	a->len = len;
	a->fd = TAKE_FD(fd);
	return 0;
}

static void arena_free(struct mce_te_arena *a)
{
	if (a->base)
		munmap(a->base, a->len);
	if (a->fd >= 0)
		close(a->fd);
	free(a->block);
	free(a);
}

/* @whole: length of an arena that is a single block; 0: an arena for many blocks. */
static int arena_make(struct mce_te *te, uint64_t whole, int node, struct mce_te_arena **ret)
{
	struct mce_te_arena *a;
	int r;

	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->fd = -1;
	a->node = node;
	a->pinned = mce_engine_has_rdma(te->engine);
	whole = (whole + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	r = arena_map_file(a, whole ? whole : RESERVED_BYTES, MFD_HUGETLB);
	if (r < 0) {
		r = arena_map_file(a, whole ? whole : a->pinned ? RESERVED_BYTES : SPARSE_BYTES, 0);
		if (r == 0)
			(void)madvise(a->base, a->len, MADV_HUGEPAGE);
	}
	if (r < 0)
		r = mc_fail(r, "cannot create a memory file of %llu bytes", (unsigned long long)whole);
	if (r == 0 && !whole)
		r = blocks_init(a);
	if (r < 0) {
		arena_free(a);
		return r;
	}
	mce_te_numa_bind(te->numa, a->base, a->len, node);
	*ret = a;
	return 0;
}

/* ---- public ------------------------------------------------------------------------------------ */

static int arena_add(struct mce_te *te, uint64_t whole, int node, struct mce_te_arena **ret)
{
	struct mce_mr_attr attr = { .access = MCE_ACCESS_READ | MCE_ACCESS_WRITE };
	char location[32] = "*";
	struct mce_te_arena *a;
	int r;

	if (node >= 0)
		snprintf(location, sizeof(location), "cpu:%d", node);
	r = arena_make(te, whole, node, &a);
	if (r < 0)
		return r;
	attr.base = a->base;
	attr.len = a->len;
	attr.fd = a->fd;
	attr.numa = mce_te_location_numa_index(te->numa, location);
	r = mce_te_mem_add(te, &attr, location);
	if (r < 0) {
		arena_free(a);
		return r;
	}
	r = mce_te_mem_publish(te, true);
	if (r < 0) {
		(void)mce_te_mem_remove(te, (uintptr_t)a->base, NULL);
		arena_free(a);
		return r;
	}
	mc_mutex_lock(&te->arena_lock);
	a->next = te->arenas;
	te->arenas = a;
	mc_mutex_unlock(&te->arena_lock);
	*ret = a;
	return 0;
}

static void *arena_block_get(struct mce_te *te, unsigned order, int node)
{
	void *at = NULL;

	MC_LOCKED(&te->arena_lock);
	for (struct mce_te_arena *a = te->arenas; a && !at; a = a->next)
		if (a->block && a->node == node)
			at = block_get(a, order);
	return at;
}

int mce_te_manage(struct mce_te *te, size_t len, int numa_node, void **ret)
{
	unsigned order = ORDER_MIN;
	struct mce_te_arena *a;
	void *at;
	int r;

	r = mc_fork_check(te->fork_depth);
	if (r < 0)
		return r;
	if (len == 0 || len > SIZE_MAX / 2)
		return mc_fail(-EINVAL, "cannot allocate managed memory of %zu bytes", len);
	if (numa_node < 0)
		numa_node = mce_te_numa_here(te->numa);
	if (len > 1ull << ORDER_MAX) {
		r = arena_add(te, len, numa_node, &a);
		if (r == 0)
			*ret = a->base;
		return r;
	}
	while (len > 1ull << order)
		order++;
	/* Other threads may take all blocks of a new arena first. */
	while (!(at = arena_block_get(te, order, numa_node))) {
		r = arena_add(te, 0, numa_node, &a);
		if (r < 0)
			return r;
	}
	*ret = at;
	return 0;
}

/* Free the block at @addr.  If it is a whole arena, remove the arena from the list and return it. */
static int block_free(struct mce_te *te, char *addr, struct mce_te_arena **ret_whole)
{
	struct mce_te_arena **pp, *a;
	uint64_t off;

	MC_LOCKED(&te->arena_lock);
	for (pp = &te->arenas; (a = *pp); pp = &a->next)
		if (addr >= a->base && addr < a->base + a->len)
			break;
	if (a && !a->block && addr == a->base) {
		*pp = a->next;
		*ret_whole = a;
		return 0;
	}
	off = a ? (uint64_t)(addr - a->base) : 1;
	if (!a || !a->block || off & ((1u << ORDER_MIN) - 1) || !a->block[off >> ORDER_MIN].head ||
	    a->block[off >> ORDER_MIN].free)
		return mc_fail(-ENOENT, "no managed memory begins at %p", (void *)addr);
	block_put(a, (uint32_t)(off >> ORDER_MIN));
	return 0;
}

int mce_te_unmanage(struct mce_te *te, void *addr)
{
	struct mce_te_arena *whole = NULL;
	int r;

	r = mc_fork_check(te->fork_depth);
	if (r < 0)
		return r;
	r = block_free(te, addr, &whole);
	if (r < 0 || !whole)
		return r;
	r = mce_te_unregister(te, whole->base);
	arena_free(whole);
	return r;
}

void mce_te_arenas_done(struct mce_te *te)
{
	while (te->arenas) {
		struct mce_te_arena *a = te->arenas;

		te->arenas = a->next;
		arena_free(a);
	}
	mc_mutex_destroy(&te->arena_lock);
}
