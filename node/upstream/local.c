/* SPDX-License-Identifier: Apache-2.0
 * local.c - allocators of clients' local memory. */
#include <config.h>

#include "node/upstream/local.h"

#include <errno.h>
#include <stdlib.h>

#include <mooncake/mcs.h>

#include "common/err.h"
#include "common/space.h"

#define GRAIN 64u

struct buffer {
	uint64_t at, len, ticket;
};

struct mcn_up_local {
	struct mc_list link;		/* those that were used last are at the end */
	dev_t dev;
	ino_t ino;
	uid_t uid;
	unsigned refs;			/* clients */
	struct mc_space space;
	uint64_t size;
	struct buffer *buffer;
	unsigned n, cap;
};

static void local_free(struct mcn_up_local *l)
{
	mc_list_remove(&l->link);
	mc_space_done(&l->space);
	free(l->buffer);
	free(l);
}

static struct mcn_up_local *local_find(struct mcn_up_locals *all, dev_t dev, ino_t ino)
{
	struct mc_list *pos;

	mc_list_for_each(pos, &all->list) {
		struct mcn_up_local *l = mc_container_of(pos, struct mcn_up_local, link);

		if (l->dev == dev && l->ino == ino)
			return l;
	}
	return NULL;
}

int mcn_up_local_get(struct mcn_up_locals *all, dev_t dev, ino_t ino, uid_t uid, uint64_t size,
		     struct mcn_up_local **ret)
{
	struct mcn_up_local *l = local_find(all, dev, ino);
	int r;

	if (l && l->size != size)
		return mc_fail(-MCS_EPARAM, "local memory of %llu bytes, which had %llu", (unsigned long long)size,
			       (unsigned long long)l->size);
	if (!l) {
		l = calloc(1, sizeof(*l));
		r = l ? mc_space_init(&l->space, size, GRAIN) : -ENOMEM;
		if (r < 0) {
			free(l);
			return r;
		}
		l->dev = dev;
		l->ino = ino;
		l->uid = uid;
		l->size = size;
		mc_list_init(&l->link);
	}
	mc_list_remove(&l->link);
	mc_list_push_back(&all->list, &l->link);
	l->refs++;
	*ret = l;
	return 0;
}

/* Keep a limited number of those without a client. */
static void local_limit(struct mcn_up_locals *all, uid_t uid)
{
	struct mcn_up_local *oldest = NULL;
	struct mc_list *pos;
	unsigned n = 0;

	mc_list_for_each(pos, &all->list) {
		struct mcn_up_local *l = mc_container_of(pos, struct mcn_up_local, link);

		if (l->refs || l->uid != uid)
			continue;
		oldest = oldest ? oldest : l;
		n++;
	}
	if (n > MCN_UP_LOCAL_IDLE)
		local_free(oldest);
}

void mcn_up_local_put(struct mcn_up_locals *all, struct mcn_up_local *l, bool over)
{
	uid_t uid = l->uid;

	if (--l->refs)
		return;
	if (over || !l->n)
		local_free(l);
	else
		local_limit(all, uid);
}

void mcn_up_locals_done(struct mcn_up_locals *all)
{
	while (!mc_list_empty(&all->list))
		local_free(mc_list_first(&all->list, struct mcn_up_local, link));
}

int mcn_up_local_alloc(struct mcn_up_locals *all, struct mcn_up_local *l, uint64_t len, uint64_t *ret_at,
		       uint64_t *ret_ticket)
{
	unsigned cap = l->cap ? 2 * l->cap : 16;
	struct buffer *more;
	int r;

	if (l->n == MCN_UP_LOCAL_BUFFERS)
		return mc_fail(-MCS_ENOSPACE, "a client holds %u buffers", l->n);
	if (l->n == l->cap) {
		more = realloc(l->buffer, cap * sizeof(*more));
		if (!more)
			return -ENOMEM;
		l->buffer = more;
		l->cap = cap;
	}
	r = mc_space_take(&l->space, len, ret_at);
	if (r < 0)
		return r == -ENOBUFS ? mc_fail(-MCS_ENOSPACE, "a client's local memory has no %llu free bytes",
					       (unsigned long long)len) : r;
	*ret_ticket = ++all->tickets;
	l->buffer[l->n++] = (struct buffer){ *ret_at, len, *ret_ticket };
	return 0;
}

static void buffer_give(struct mcn_up_local *l, struct buffer *b)
{
	mc_space_give(&l->space, b->at, b->len);
	*b = l->buffer[--l->n];
}

/* The last ones are released first, as a rule. */
void mcn_up_local_free(struct mcn_up_local *l, uint64_t at)
{
	for (unsigned i = l->n; i-- > 0; )
		if (l->buffer[i].at == at) {
			buffer_give(l, &l->buffer[i]);
			return;
		}
}

void mcn_up_local_cancel(struct mcn_up_locals *all, uint64_t ticket)
{
	struct mc_list *pos;

	for (pos = all->list.prev; pos != &all->list; pos = pos->prev) {
		struct mcn_up_local *l = mc_container_of(pos, struct mcn_up_local, link);

		for (unsigned i = l->n; i-- > 0; ) {
			if (l->buffer[i].ticket != ticket)
				continue;
			buffer_give(l, &l->buffer[i]);
			if (!l->refs && !l->n)
				local_free(l);
			return;
		}
	}
}
