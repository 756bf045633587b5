/* SPDX-License-Identifier: Apache-2.0
 * deferred_close.c - descriptors that came from clients and are no memory.
 *
 * Closing one can wait for who sent it, as long as he likes: a FUSE filesystem is asked to flush, a socket lingers.
 * So each is closed on a thread of its own, of which a user has a few. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/thread.h"
#include "node/node_i.h"

struct place {
	uid_t uid;
	unsigned n;
};

struct mcn_deferred {
	pthread_mutex_t lock;
	/* with the lock held */
	unsigned refs;			/* the node's, and each thread's */
	struct place place[MCN_UIDS_MAX + 2];	/* one for everybody who may connect; n 0: free */
};

struct stray {
	struct mcn_deferred *all;
	struct place *place;
	int fd;
};

int mcn_deferred_new(struct mcn_deferred **ret)
{
	struct mcn_deferred *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	pthread_mutex_init(&s->lock, NULL);
	s->refs = 1;
	*ret = s;
	return 0;
}

static void leave(struct mcn_deferred *s, struct place *p)
{
	bool last;

	pthread_mutex_lock(&s->lock);
	if (p)
		p->n--;
	last = !--s->refs;
	pthread_mutex_unlock(&s->lock);
	if (!last)
		return;
	pthread_mutex_destroy(&s->lock);
	free(s);
}

void mcn_deferred_free(struct mcn_deferred *s)
{
	if (s)
		leave(s, NULL);
}

static struct place *place_locked(struct mcn_deferred *s, uid_t uid)
{
	struct place *free = NULL;

	for (unsigned i = 0; i < MCN_UIDS_MAX + 2; i++) {
		if (s->place[i].n && s->place[i].uid == uid)
			return &s->place[i];
		if (!s->place[i].n)
			free = &s->place[i];
	}
	return free;
}

bool mcn_deferred_full(struct mcn_deferred *s, uid_t uid)
{
	const struct place *p;

	MC_LOCKED(&s->lock);
	p = place_locked(s, uid);
	return !p || p->n >= MCN_STRAYS_MAX;
}

static void *close_it(void *arg)
{
	struct stray *t = arg;

	close(t->fd);
	leave(t->all, t->place);
	free(t);
	return NULL;
}

bool mcn_is_memory(int fd)
{
	/* No filesystem but those of memory is asked. */
	return fcntl(fd, F_GET_SEALS) >= 0;
}

void mcn_deferred_close(struct mcn_deferred *s, uid_t uid, int fd)
{
	struct stray *t = mcn_is_memory(fd) ? NULL : malloc(sizeof(*t));
	pthread_t thread;

	if (!t) {
		close(fd);
		return;
	}
	t->all = s;
	t->fd = fd;
	pthread_mutex_lock(&s->lock);
	t->place = place_locked(s, uid);
	if (t->place) {
		t->place->uid = uid;
		t->place->n++;
	}
	s->refs++;
	pthread_mutex_unlock(&s->lock);
	/* Rather a loop that may have to wait than a descriptor that is lost for ever. */
	if (mc_thread_start(&thread, "mcn-close", close_it, t) < 0)
		(void)close_it(t);
	else
		pthread_detach(thread);
}
