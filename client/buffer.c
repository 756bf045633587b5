/* SPDX-License-Identifier: Apache-2.0
 * buffer.c - memory of the program that takes part in transfers. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "client/store_i.h"
#include "common/cleanup.h"

static void free_one(struct mcs_buffer *b)
{
	mce_mr_unregister(b->mr);
	if (b->pool)
		munmap(b->base, b->len);
	free(b);
}

void mcs_buffers_done(struct mcs *s)
{
	while (!mc_list_empty(&s->buffers)) {
		struct mcs_buffer *b = mc_list_first(&s->buffers, struct mcs_buffer, link);

		mc_list_remove(&b->link);
		free_one(b);
	}
}

/* Take the one at @base out of the list; NULL: there is none. */
static struct mcs_buffer *take(struct mcs *s, const void *base, bool pool)
{
	struct mc_list *pos;

	MC_LOCKED(&s->lock);
	mc_list_for_each(pos, &s->buffers) {
		struct mcs_buffer *b = mc_container_of(pos, struct mcs_buffer, link);

		if (b->base != base || b->pool != pool)
			continue;
		mc_list_remove(&b->link);
		return b;
	}
	return NULL;
}

static bool overlaps(struct mcs *s, const char *base, size_t len)
{
	struct mc_list *pos;

	MC_LOCKED(&s->lock);
	mc_list_for_each(pos, &s->buffers) {
		struct mcs_buffer *b = mc_container_of(pos, struct mcs_buffer, link);

		if (!b->pool && base < (char *)b->base + b->len && (char *)b->base < base + len)
			return true;
	}
	return false;
}

static int enter(struct mcs *s, void *base, size_t len, struct mce_mr *mr, bool pool)
{
	struct mcs_buffer *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	*b = (struct mcs_buffer){ .base = base, .len = len, .mr = mr, .pool = pool };
	MC_LOCKED(&s->lock);
	mc_list_push_back(&s->buffers, &b->link);
	return 0;
}

static int register_memory(struct mcs *s, void *buf, size_t len)
{
	struct mce_mr_attr attr = { .base = buf, .len = len, .fd = -1 };
	struct mce_mr *mr = NULL;
	int r = mcs_check_fork(s);

	if (r < 0)
		return r;
	if (!buf || !len)
		return mc_fail(-MC_EPARAM, "an empty buffer cannot be registered");
	/* The daemon does not see it, so that it is copied; that it is registered once is kept track of. */
	if (s->node)
		r = overlaps(s, buf, len) ?
			mc_fail(-EEXIST, "a buffer at %p is registered", buf) : 0;
	else
		r = mce_mr_register(s->engine, &attr, &mr);
	if (r < 0)
		return r;
	r = enter(s, buf, len, mr, false);
	if (r < 0)
		mce_mr_unregister(mr);
	return r;
}

int mcs_register_buffer(struct mcs *s, void *buf, size_t len)
{
	return register_memory(s, buf, len);
}

int mcs_register_memfd(struct mcs *s, void *buf, size_t len, int fd, uint64_t fd_offset)
{
	int r = mcs_check_fork(s);

	if (r < 0)
		return r;
	if (!s->node)
		return register_memory(s, buf, len);
	if (!buf || !len)
		return mc_fail(-MC_EPARAM, "an empty buffer cannot be registered");
	return mcs_daemon_register(s->node, buf, len, fd, fd_offset);
}

int mcs_unregister_buffer(struct mcs *s, void *buf)
{
	struct mcs_buffer *b;
	int r = mcs_check_fork(s);

	if (r < 0)
		return r;
	if (s->node && mcs_daemon_unregister(s->node, buf) > 0)
		return 0;
	b = take(s, buf, false);
	if (!b)
		return mc_fail(-MC_EPARAM, "no buffer is registered at %p", buf);
	free_one(b);
	return 0;
}

void *mcs_pool_alloc(struct mcs *s, size_t len)
{
	void *p;

	if (mcs_check_fork(s) < 0)
		return NULL;
	if (s->node)
		return mcs_daemon_pool_alloc(s->node, len);
	len = len ? len : 1;
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	if (enter(s, p, len, NULL, true) < 0) {
		munmap(p, len);
		return NULL;
	}
	return p;
}

void mcs_pool_free(struct mcs *s, void *p)
{
	struct mcs_buffer *b;

	if (!p || mcs_check_fork(s) < 0)
		return;
	if (s->node) {
		mcs_daemon_pool_free(s->node, p);
		return;
	}
	b = take(s, p, true);
	if (b)
		free_one(b);
}
