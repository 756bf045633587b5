/* SPDX-License-Identifier: Apache-2.0
 * transport.h - what a path to a peer has to offer.  One const table per transport, complete: a
 * transport that has nothing to do in a slot gives a function that does nothing.
 *
 * A request is offered to its peer's transports in their order of preference until one takes it.  submit
 * never blocks; what has to block (connecting, fetching a descriptor) is done by connect and prepare, which
 * the peer's resolver thread runs before it offers the request again. */
#ifndef MCE_TRANSPORT_H
#define MCE_TRANSPORT_H

#include "engine/mce.h"

struct mce_transport {
	const char *name;
	enum mce_path path;
	/* Allocate and free this transport's part of a peer.  attach does not connect.  detach runs on any
	 * thread but an I/O thread; what is still under way (the engine is closing) ends with
	 * -ECANCELED.  Half-attached is fine. */
	int (*attach)(struct mce_peer *p);
	void (*detach)(struct mce_peer *p);
	/* Resolver thread: make the transport usable for this peer by @deadline.  0 when it is, or when
	 * it cannot be used for this peer at all (submit says which). */
	int (*connect)(struct mce_peer *p, uint64_t deadline);
	/* Resolver thread: make region @rkey reachable.  0, or the error that its requests fail with. */
	int (*prepare)(struct mce_peer *p, uint64_t rkey, uint64_t deadline);
	/* Take the request: 0, and mce_complete() runs for it exactly once, maybe before return.
	 * -EAGAIN: not before connect and prepare.  -MC_ENOTSUP: not over this path, try the next.
	 * Nothing else.  Does not block. */
	int (*submit)(struct mce_peer *p, struct mce_req *req);
	/* Take more than one at a time, from the first of @reqs on, an array of requests of this peer that nobody
	 * else takes: how many it took, each as submit would.  0: offer the first to submit. */
	unsigned (*submit_run)(struct mce_peer *p, struct mce_req *reqs, unsigned n);
	/* All requests of a batch are handed over: send.  Does not block. */
	void (*flush)(struct mce_peer *p);
	/* Look for completions on behalf of a thread that waits for one.  Does not block. */
	void (*poll)(struct mce_peer *p);
	/* Receive in the calling thread until @b is done or @deadline: 0.  -EAGAIN, at once: others do it
	 * better now.  @b's requests are all with this peer. */
	int (*lead)(struct mce_peer *p, const struct mce_batch *b, uint64_t deadline);
	/* End a request taken by submit with @status and let go of its memory, unless it completes by
	 * itself within the call.  Bounded by what a non-blocking system call takes. */
	void (*cancel)(struct mce_peer *p, struct mce_req *req, int status);
	/* A direct pointer to [@addr, @addr + @len) for reading.  0, -EAGAIN and -MC_ENOTSUP as submit,
	 * or the error. */
	int (*map)(struct mce_peer *p, uint64_t addr, uint64_t rkey, uint64_t len, const void **ret);
};

extern const struct mce_transport mce_local_transport, mce_mapped_transport, mce_process_vm_transport,
	mce_tcp_transport;
extern const struct mce_transport mce_upstream_transport;

/* Best first; ends with NULL: those of our own peers, and of peers that speak upstream's protocol. */
extern const struct mce_transport *const mce_transports[];
extern const struct mce_transport *const mce_upstream_transports[];

/* For slots with nothing to do. */
int mce_no_attach(struct mce_peer *p);
void mce_no_detach(struct mce_peer *p);
int mce_no_connect(struct mce_peer *p, uint64_t deadline);
int mce_no_prepare(struct mce_peer *p, uint64_t rkey, uint64_t deadline);
unsigned mce_no_run(struct mce_peer *p, struct mce_req *reqs, unsigned n);
void mce_no_flush(struct mce_peer *p);
void mce_no_poll(struct mce_peer *p);
int mce_no_lead(struct mce_peer *p, const struct mce_batch *b, uint64_t deadline);
void mce_no_cancel(struct mce_peer *p, struct mce_req *req, int status);
int mce_no_map(struct mce_peer *p, uint64_t addr, uint64_t rkey, uint64_t len, const void **ret);

#endif
