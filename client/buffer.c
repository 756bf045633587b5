/* SPDX-License-Identifier: Apache-2.0
 * buffer.c - list of memory that the program registered or allocated. */
#include <config.h>

#include "client/buffer.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "common/cleanup.h"

struct buffer {
	struct mc_list link;
	void *base;
	size_t len;
	struct mce_mr *mr;	/* NULL: only noted */
	bool pool;
};

static void buffer_free(struct buffer *b)
{
	mce_mr_unregister(b->mr);
	if (b->pool)
		munmap(b->base, b->len);
	free(b);
}

void mcs_buffers_init(struct mcs_buffers *l)
{
	mc_mutex_init(&l->lock);
	mc_list_init(&l->list);
}

void mcs_buffers_done(struct mcs_buffers *l)
{
	while (!mc_list_empty(&l->list)) {
		struct buffer *b = mc_list_first(&l->list, struct buffer, link);

		mc_list_remove(&b->link);
		buffer_free(b);
	}
	mc_mutex_destroy(&l->lock);
}

int mcs_buffers_add(struct mcs_buffers *l, void *base, size_t len, struct mce_mr *mr, bool pool)
{
	struct buffer *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	*b = (struct buffer){ .base = base, .len = len, .mr = mr, .pool = pool };
	MC_LOCKED(&l->lock);
	mc_list_push_back(&l->list, &b->link);
	return 0;
}

/* Take the one at @base out of the list; NULL: there is none. */
static struct buffer *buffer_take(struct mcs_buffers *l, const void *base, bool pool)
{
	struct mc_list *pos;

	MC_LOCKED(&l->lock);
	mc_list_for_each(pos, &l->list) {
		struct buffer *b = mc_container_of(pos, struct buffer, link);

		if (b->base != base || b->pool != pool)
			continue;
		mc_list_remove(&b->link);
		return b;
	}
	return NULL;
}

bool mcs_buffers_remove(struct mcs_buffers *l, const void *base, bool pool)
{
	struct buffer *b = buffer_take(l, base, pool);

	if (b)
		buffer_free(b);
	return b;
}

bool mcs_buffers_overlap(struct mcs_buffers *l, const void *buf, size_t len)
{
	const char *base = buf;
	struct mc_list *pos;

	MC_LOCKED(&l->lock);
	mc_list_for_each(pos, &l->list) {
		struct buffer *b = mc_container_of(pos, struct buffer, link);

		if (!b->pool && base < (char *)b->base + b->len && (char *)b->base < base + len)
			return true;
	}
	return false;
}

void *mcs_buffers_alloc(struct mcs_buffers *l, size_t len)
{
	void *p;

	len = len ? len : 1;
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	if (mcs_buffers_add(l, p, len, NULL, true) < 0) {
		munmap(p, len);
		return NULL;
	}
	return p;
}
