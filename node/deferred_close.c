/* SPDX-License-Identifier: Apache-2.0
 * deferred_close.c - closes descriptors from clients that are not memory files.
 *
 * Such a close() can block as long as the sender wants: a FUSE filesystem gets a FLUSH, a socket lingers.
 * So each one is closed on a thread of its own, up to MCN_DEFERRED_MAX per user. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/sys/thread.h"
#include "node/node_i.h"

struct slot {
	uid_t uid;
	unsigned n;
};

struct mcn_deferred {
	struct mc_mutex lock;
	/* with the lock held */
	unsigned refs;			/* the node's and one per thread */
	struct slot slot[MCN_USERS_MAX];	/* one per user; n 0: free */
};

struct closing {
	struct mcn_deferred *all;
	struct slot *slot;
	int fd;
};

int mcn_deferred_new(struct mcn_deferred **ret)
{
	struct mcn_deferred *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	mc_mutex_init(&s->lock);
	s->refs = 1;
	*ret = s;
	return 0;
}

static void deferred_unref(struct mcn_deferred *s, struct slot *p)
{
	bool last;

	mc_mutex_lock(&s->lock);
	if (p)
		p->n--;
	last = !--s->refs;
	mc_mutex_unlock(&s->lock);
	if (!last)
		return;
	mc_mutex_destroy(&s->lock);
	free(s);
}

void mcn_deferred_free(struct mcn_deferred *s)
{
	if (s)
		deferred_unref(s, NULL);
}

static struct slot *slot_locked(struct mcn_deferred *s, uid_t uid)
{
	struct slot *free = NULL;

	for (unsigned i = 0; i < MCN_USERS_MAX; i++) {
		if (s->slot[i].n && s->slot[i].uid == uid)
			return &s->slot[i];
		if (!s->slot[i].n)
			free = &s->slot[i];
	}
	return free;
}

bool mcn_deferred_full(struct mcn_deferred *s, uid_t uid)
{
	const struct slot *p;

	MC_LOCKED(&s->lock);
	p = slot_locked(s, uid);
	return !p || p->n >= MCN_DEFERRED_MAX;
}

static void *close_it(void *arg)
{
	struct closing *t = arg;

	close(t->fd);
	deferred_unref(t->all, t->slot);
	free(t);
	return NULL;
}

bool mcn_is_memory(int fd)
{
	/* Only memory filesystems support seals; for others the kernel fails without calling the filesystem. */
	return fcntl(fd, F_GET_SEALS) >= 0;
}

void mcn_deferred_close(struct mcn_deferred *s, uid_t uid, int fd)
{
	struct closing *t = mcn_is_memory(fd) ? NULL : malloc(sizeof(*t));
	struct mc_thread thread;

	if (!t) {
		close(fd);
		return;
	}
	t->all = s;
	t->fd = fd;
	mc_mutex_lock(&s->lock);
	t->slot = slot_locked(s, uid);
	if (t->slot) {
		t->slot->uid = uid;
		t->slot->n++;
	}
	s->refs++;
	mc_mutex_unlock(&s->lock);
	/* Without a thread, let the loop block rather than leak the descriptor. */
	if (mc_thread_start(&thread, "mcn-close", close_it, t) < 0)
		(void)close_it(t);
	else
		mc_thread_detach(thread);
}
