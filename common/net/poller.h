/* SPDX-License-Identifier: Apache-2.0
 * poller.h - waits for events of many streams, listeners and descriptors behind a table of operations.  The kernel's
 * poller is epoll; it needs their descriptors.  Another implementation may have none: it calls mc_evfd_look() for
 * each entry.  Event loops (evloop.h) wait through a poller. */
#ifndef MC_POLLER_H
#define MC_POLLER_H

#include <stdint.h>
#include <sys/epoll.h>

#include "common/net/stream.h"

struct mc_poller;

/* One watched entry: a stream, a listener, or a descriptor that is neither (eventfd, pidfd, device...).  Embedded in
 * the owner's struct; its address must not change while it is watched.  An entry is watched by one poller at a time. */
struct mc_evfd {
	int fd;				/* descriptor, also of the stream or listener; -1: it has none */
	uint32_t events;		/* EPOLL* now watched */
	/* An event loop calls it on its thread. */
	void (*ready)(struct mc_evfd *e, uint32_t events);
	struct mc_stream *stream;	/* or NULL */
	struct mc_listener *listener;	/* or NULL */
};

static inline void mc_evfd_stream(struct mc_evfd *e, struct mc_stream *s)
{
	e->stream = s;
	e->fd = s->fd;
}

static inline void mc_evfd_listener(struct mc_evfd *e, struct mc_listener *l)
{
	e->listener = l;
	e->fd = l->fd;
}

/* The watched events that hold now, without waiting; for pollers without descriptors.  0: none; a stream or listener
 * that cannot tell has EPOLLERR. */
uint32_t mc_evfd_look(struct mc_evfd *e);

struct mc_poller_ops {
	/* Watch @e->events; EPOLLET only where the poller has descriptors.  -errno with a detail.  Any thread. */
	int (*add)(struct mc_poller *p, struct mc_evfd *e);
	/* @e->events has changed.  -errno with a detail.  Any thread. */
	int (*mod)(struct mc_poller *p, struct mc_evfd *e);
	/* A wait that begins after the return does not report @e, which may not have been watched. */
	void (*del)(struct mc_poller *p, struct mc_evfd *e);
	/* Wait until @deadline (0: do not wait) for at most @n events: their number, with the entries' addresses in
	 * data.ptr; a wake-up has NULL there.  0, also before the deadline.  One thread at a time. */
	int (*wait)(struct mc_poller *p, struct epoll_event *ret, int n, uint64_t deadline);
	/* The wait that runs, or else the next one, returns.  Any thread. */
	void (*wake)(struct mc_poller *p);
	void (*close)(struct mc_poller *p);
};

struct mc_poller {
	const struct mc_poller_ops *ops;
};

/* The kernel's poller, or that of the simulated process, without entries.  -errno with a detail. */
int mc_poller_new(struct mc_poller **ret);

#endif
