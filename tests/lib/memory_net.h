/* SPDX-License-Identifier: Apache-2.0
 * memory_net.h - a net (common/net/stream.h) in memory, for tests of one thread: no descriptors, no time, and the test
 * sees and changes each byte on its way.  A stream that waits calls the test. */
#ifndef MEMORY_NET_H
#define MEMORY_NET_H

#include "common/net/stream.h"

#define MEMORY_NOWHERE SIZE_MAX

/* One direction of a connection.  Offsets count all bytes that were ever sent. */
struct memory_pipe {
	uint8_t *bytes;		/* all of them */
	size_t len, read, room;
	size_t limit;		/* most bytes that wait, as a socket's buffer */
	size_t flip_at;		/* this byte is changed */
	size_t cut_at;		/* no byte follows from here on; the reader sees the end */
	bool ended;
	bool mute;		/* bytes that are sent never arrive */
};

struct memory_pair {
	struct memory_pipe up, down;	/* of the connecting side, of the accepting side */
	unsigned ends;			/* streams that use it */
};

const struct mc_net *memory_net(void);

/* The pair of the next connection is made by @before, if it is not NULL; a wait calls @idle.  Both may be NULL. */
void memory_net_hooks(void (*before)(struct memory_pair *pair), void (*idle)(void));

/* The name of all peers from now on, at first "memory". */
void memory_net_name(const char *name);

/* A new pair with both ends, without a listener.  The pair is freed with the last of its streams. */
struct memory_pair *memory_pair_make(struct mc_stream *ret_connecting, struct mc_stream *ret_accepting);
/* Put bytes into a pipe. */
void memory_pipe_put(struct memory_pipe *p, const void *data, size_t len);

#endif
