/* SPDX-License-Identifier: Apache-2.0
 * transport.h - the asking side of a path to a peer.  One const table per
 * transport, complete: a transport that has nothing to do in a slot has a function that does nothing.  The owner's
 * side is in service.h.
 *
 * A request is offered to its peer's transports in their order of preference until one takes it.  submit never
 * blocks; the work that has to block (connecting, fetching a descriptor) is done by connect and prepare, which the
 * peer's resolver thread runs before it offers the request again.
 *
 * A transport keeps its part of a peer in mce_peer.tp[], at its path.  (process_vm uses that of mapped; upstream,
 * which is TCP with another protocol, that of tcp.)  The path's name, distance and counters come from this table. */
#ifndef MCE_TRANSPORT_H
#define MCE_TRANSPORT_H

#include "engine/mce.h"

struct mce_transport {
	const char *name;	/* also the path label of the counters */
	enum mce_path path;
	enum mce_distance distance;
	/* submit and submit_run take requests with device memory in their iov (mce_reqx.gpu); other transports leave
	 * them to the path "staged". */
	bool gpu;
	/* Allocate and free this transport's part of a peer.  attach runs with the engine's lock and does not
	 * connect.  detach runs on any thread but an I/O thread; requests that the transport still has (the engine
	 * is closing) end with -ECANCELED.  detach accepts a peer that is half attached. */
	int (*attach)(struct mce_peer *p);
	void (*detach)(struct mce_peer *p);
	/* Resolver thread: make the transport usable for this peer by @deadline.  0 when it is, or when
	 * it cannot be used for this peer at all (submit then says so). */
	int (*connect)(struct mce_peer *p, uint64_t deadline);
	/* Resolver thread: make region @rkey reachable.  0, or the error that its requests fail with. */
	int (*prepare)(struct mce_peer *p, uint64_t rkey, uint64_t deadline);
	/* Take the request: 0, and mce_complete() runs for it exactly once, maybe before return.
	 * -EAGAIN: not before connect and prepare.  -MC_ENOTSUP: not over this path, try the next.
	 * No other value.  Does not block.  A WRITE waits or is refused while another transport of the peer has WRITEs
	 * in doubt (mce_peer_in_doubt_locked()). */
	int (*submit)(struct mce_peer *p, struct mce_req *req);
	/* Take the first ones of @reqs together, an array of requests of this peer that no other thread
	 * uses: how many it took, each as submit would.  0: offer the first to submit. */
	unsigned (*submit_run)(struct mce_peer *p, struct mce_req *reqs, unsigned n);
	/* All requests of a batch are submitted: send.  Does not block. */
	void (*flush)(struct mce_peer *p);
	/* Process completions on behalf of a thread that waits for one.  Does not block. */
	void (*poll)(struct mce_peer *p);
	/* Receive in the calling thread until @b is done or @deadline: 0.  -EAGAIN, at once: other threads do it
	 * better now.  All of @b's requests are with this peer. */
	int (*lead)(struct mce_peer *p, const struct mce_batch *b, uint64_t deadline);
	/* End a request taken by submit with @status and release its memory, unless the request completes
	 * within the call.  Takes no longer than a non-blocking system call. */
	void (*cancel)(struct mce_peer *p, struct mce_req *req, int status);
	/* With the peer's lock: may the peer still carry out a WRITE whose request has ended?  Called only
	 * after the transport has set mce_peer.doubts. */
	bool (*writes_in_doubt)(struct mce_peer *p);
	/* The last handle of the peer is being put: note which WRITEs are in doubt.  Another thread may take a handle
	 * meanwhile; then the peer stays.  Otherwise keep_doubts follows, with the engine's lock, and then detach: keep
	 * the notes for the attach of the next peer of this endpoint. */
	void (*note_doubts)(struct mce_peer *p);
	void (*keep_doubts)(struct mce_peer *p);
	/* The engine has a new fence number (mce_engine_set_fence()): from return on no WRITE with a lower one is
	 * begun, and none waits.  Any thread but an I/O thread. */
	void (*new_fence)(struct mce_peer *p);
	/* A direct pointer to [@addr, @addr + @len) for reading.  0, -EAGAIN and -MC_ENOTSUP as submit,
	 * or the error. */
	int (*map)(struct mce_peer *p, uint64_t addr, uint64_t rkey, uint64_t len, const void **ret);
};

extern const struct mce_transport mce_local_transport, mce_disk_transport, mce_mapped_transport,
	mce_process_vm_transport,
	mce_follow_transport, mce_rdma_transport, mce_staged_transport, mce_tcp_transport;
extern const struct mce_transport mce_upstream_transport;

/* Best first; ends with NULL: those of our own peers, and of upstream's nodes, with TCP and with RDMA. */
extern const struct mce_transport *const mce_transports[];
extern const struct mce_transport *const mce_upstream_transports[], *const mce_upstream_rdma_transports[];

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
bool mce_no_doubt(struct mce_peer *p);
void mce_no_doubts(struct mce_peer *p);
void mce_no_fence(struct mce_peer *p);
int mce_no_map(struct mce_peer *p, uint64_t addr, uint64_t rkey, uint64_t len, const void **ret);

/* Count a request that ended on @path, in this process's metrics. */
void mce_path_count(enum mce_path path, enum mce_op op, int status, uint64_t bytes);

#endif
