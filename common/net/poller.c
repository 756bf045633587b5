/* SPDX-License-Identifier: Apache-2.0
 * poller.c - epoll as a poller. */
#include <config.h>

#include "common/net/poller.h"
#include "common/sys/lock.h"
#include "common/sys/world.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/list.h"
#include "common/process/fork.h"
#include "common/sys/clock.h"

/* A descriptor that is always readable, for all pollers: enabling its event once wakes a poller, and no thread has to
 * read anything afterwards.  It exists while there are pollers. */
static struct {
	struct mc_mutex lock;
	unsigned users;
	unsigned depth;		/* mc_fork_depth of the process that opened @fd */
	int fd;
} ready = { .lock = MC_MUTEX_INIT };
MC_FORK_KEEP(ready.lock, MC_FORK_LEAF)

struct epoll_poller {
	struct mc_poller poller;
	/* constant */
	int epfd;
	int wakefd;		/* the one of @ready */
	unsigned depth;		/* mc_fork_depth of the process that made the poller */
};

static int ready_ref(void)
{
	MC_LOCKED(&ready.lock);
	/* A forked child may have closed the descriptors of its parent. */
	if (ready.depth != mc_fork_depth)
		ready.users = 0;
	ready.depth = mc_fork_depth;
	if (!ready.users) {
		ready.fd = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
		if (ready.fd < 0)
			return -errno;
	}
	ready.users++;
	return ready.fd;
}

static void ready_unref(void)
{
	MC_LOCKED(&ready.lock);
	if (!--ready.users)
		close(ready.fd);
}

static struct epoll_poller *epoll_poller(struct mc_poller *p)
{
	return mc_container_of(p, struct epoll_poller, poller);
}

static int epoll_control(struct mc_poller *p, int op, struct mc_evfd *e)
{
	struct epoll_event ev = { .events = e->events, .data.ptr = e };

	if (epoll_ctl(epoll_poller(p)->epfd, op, e->fd, &ev) < 0)
		return mc_fail(-errno, "cannot watch descriptor %d: %s", e->fd, mc_strerror(errno));
	return 0;
}

static int epoll_add(struct mc_poller *p, struct mc_evfd *e)
{
	return epoll_control(p, EPOLL_CTL_ADD, e);
}

static int epoll_mod(struct mc_poller *p, struct mc_evfd *e)
{
	return epoll_control(p, EPOLL_CTL_MOD, e);
}

static void epoll_del(struct mc_poller *p, struct mc_evfd *e)
{
	struct epoll_event unused;

	epoll_ctl(epoll_poller(p)->epfd, EPOLL_CTL_DEL, e->fd, &unused);
}

static int epoll_wait_until(struct mc_poller *p, struct epoll_event *ret, int n, uint64_t deadline)
{
	int ms = !deadline ? 0 : deadline == MC_NEVER ? -1 : mc_deadline_left_ms(deadline);

	n = epoll_wait(epoll_poller(p)->epfd, ret, n, ms);
	return n < 0 ? 0 : n;
}

static void epoll_wake(struct mc_poller *p)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLONESHOT };
	struct epoll_poller *ep = epoll_poller(p);

	(void)epoll_ctl(ep->epfd, EPOLL_CTL_MOD, ep->wakefd, &ev);
}

static void epoll_close(struct mc_poller *p)
{
	struct epoll_poller *ep = epoll_poller(p);

	if (ep->wakefd >= 0 && ep->depth == mc_fork_depth)
		ready_unref();
	if (ep->epfd >= 0)
		close(ep->epfd);
	free(ep);
}

static int epoll_new(struct mc_poller **ret)
{
	static const struct mc_poller_ops ops = {
		.add = epoll_add, .mod = epoll_mod, .del = epoll_del,
		.wait = epoll_wait_until, .wake = epoll_wake, .close = epoll_close,
	};
	struct epoll_event ev = { .events = EPOLLONESHOT };
	struct epoll_poller *ep = calloc(1, sizeof(*ep));
	int r;

	if (!ep)
		return mc_fail(-ENOMEM, "no memory to watch descriptors");
	ep->poller.ops = &ops;
	ep->epfd = -1;
	ep->depth = mc_fork_depth;
	r = ep->wakefd = ready_ref();
	if (r >= 0)
		r = ep->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (r >= 0)
		r = epoll_ctl(ep->epfd, EPOLL_CTL_ADD, ep->wakefd, &ev);
	if (r < 0) {
		r = mc_fail(ep->wakefd < 0 ? ep->wakefd : -errno, "cannot watch descriptors: %s", mc_strerror(errno));
		epoll_close(&ep->poller);
		return r;
	}
	*ret = &ep->poller;
	return 0;
}

uint32_t mc_evfd_look(struct mc_evfd *e)
{
	int r;

	/* A listener's result 1 is POLLIN. */
	_Static_assert(POLLIN == 1 && POLLIN == EPOLLIN, "events of poll and epoll");
	if (e->stream)
		r = mc_stream_wait(e->stream, (short)e->events, 0);
	else if (e->listener)
		r = mc_listener_wait(e->listener, 0);
	else
		r = -ENOTSUP;
	return r < 0 ? EPOLLERR : (uint32_t)r & (e->events | EPOLLERR | EPOLLHUP);
}

int mc_poller_new(struct mc_poller **ret)
{
	struct mc_world *w = mc_world();

	return w ? w->ops->poller_new(w, ret) : epoll_new(ret);
}
