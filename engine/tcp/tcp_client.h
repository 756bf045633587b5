/* SPDX-License-Identifier: Apache-2.0
 * tcp_client.h - the outgoing connections of a peer: shared by tcp_queue.c (fragments), tcp_conn.c (sending and
 * receiving), tcp_connect.c (connecting), tcp_wait.c (waiting threads that receive), and the protocols: tcp_proto.c
 * (ours), upstream_client.c.
 *
 * A request waits in the peer's queue; connections with room cut fragments off it, so the faster connection takes
 * more.  A fragment is an entry of the peer's table; its index and generation are its id on the wire.
 * The number of fragments and bytes in flight on a connection is bounded.
 *
 * Locks: docs/LOCKING.md.  A fragment's req is read under the connection's tx_lock or rx_lock and cleared under
 * both, so a thread that holds one of them may use the request's memory.
 *
 * The life of a fragment; "conn lost" is mce_tcp_conn_lost_locked(), "cancelled" fragment_cancel_locked():
 *
 *	state	on the lists		event				next state
 *	FREE	tcp.free		a connection cuts it off	QUEUED
 *	QUEUED	conn.fragments, txq	a call will send all of it	FLYING
 *					the call has sent a part	SENDING
 *					cancelled			FREE
 *					  while its answer is received	(same) req = NULL; the connection is closed
 *					conn lost			RETRY, or FREE with the request's failure
 *	SENDING	conn.fragments, txq	a call will send the rest	FLYING
 *					cancelled			(same) req = NULL; the connection is cut off
 *					conn lost			RETRY, or FREE with the request's failure
 *	FLYING	conn.fragments		the call has sent less		SENDING or QUEUED
 *					answered			FREE
 *					cancelled			(same) req = NULL; payload is discarded
 *					conn lost			RETRY, or FREE with the request's failure
 *	RETRY	tcp.retry		a connection has room, and a	QUEUED
 *					  WRITE is not fenced any more
 *					cancelled, or queue failed	FREE
 *
 *	flag		set in		meaning
 *	in_call		QUEUED..FLYING	a thread is in sendmsg() with it, without the peer's lock
 *	answered	FLYING		the answer came during that call: the sender ends the fragment with @answer.
 *					  A success although the call has sent less is a protocol error
 *			SENDING, FLYING	in_order: refused; the fragment ends when the peer closes the connection
 *	orphan		SENDING, FLYING	a WRITE whose request has ended: the peer may still carry it out, so the
 *					  connection is in doubt until the answer, after a loss until it is
 *					  greeted again */
#ifndef MCE_TCP_CLIENT_H
#define MCE_TCP_CLIENT_H

#include "common/sys/lock.h"
#include "engine/engine_i.h"
#include "engine/tcp/tcp_rx.h"
#include "engine/tcp/tcp_wire.h"

/* Bytes in flight on a connection, or two fragments if that is more.  Two connections fill a link of
 * 100 Gb/s over 160 us; more would only be evicted from the caches on their way through the sockets. */
#define MCE_TCP_CONN_BYTES (1u << 20)
/* Number of fragments that are allocated together. */
#define MCE_FRAGMENT_CHUNK 32u
/* Sent by one call: a hundred small requests, since a call costs as much as copying several. */
#define MCE_SEND_MAX (512u << 10)
#define MCE_SEND_IOV 256
/* Bytes that a protocol sends behind the payload of a WRITE. */
#define MCE_TRAIL_MAX 24u
/* Connections that a fragment may lose before its request fails. */
#define MCE_FRAGMENT_TRIES 4u

enum mce_fragment_state {
	MCE_FRAGMENT_FREE,
	MCE_FRAGMENT_QUEUED,	/* on a connection, nothing sent */
	MCE_FRAGMENT_SENDING,	/* partly sent */
	MCE_FRAGMENT_FLYING,	/* sent, or a call is sending all the rest */
	MCE_FRAGMENT_RETRY,	/* its connection was lost */
};

/* A position in a request's iov. */
struct mce_iovpos {
	uint32_t idx;
	uint64_t off;
};

struct mce_fragment {
	struct mc_list node;	/* mce_tcp_conn.fragments, mce_tcp.retry or mce_tcp.free */
	struct mc_list tx_node;	/* mce_tcp_conn.txq until all is sent */
	struct mce_req *req;	/* NULL: cancelled */
	struct mce_tcp_conn *conn;	/* the present or, in RETRY, the last one */
	uint32_t index, gen;
	uint32_t lost_epoch;	/* RETRY: epoch of the lost connection */
	uint8_t state, tries;
	bool write, tail;	/* tail: of the CRC trailer */
	bool in_call, orphan, answered;	/* see above */
	int answer;
	uint64_t seq;		/* WRITE: its number on the connection */
	uint64_t off;		/* in the transfer */
	uint32_t len;
	uint32_t done;		/* payload bytes sent or received */
	uint32_t hdr_sent, trail_sent;
	uint32_t crc_done;	/* WRITE: payload bytes with a checksum */
	struct mce_iovpos first, at;	/* start of the fragment, position of its byte at done */
	uint32_t hdr_len;	/* bytes of hdr; set by pack */
	uint8_t hdr[MCE_REQ_CAP_SIZE];
	uint8_t trail[MCE_TRAIL_MAX];	/* WRITE: sent behind the payload */
};

struct mce_tcp_conn;

/* The protocol of a connection. */
struct mce_tcp_proto {
	enum mce_path path;
	uint32_t trail_len;	/* bytes of a WRITE's trailer */
	uint32_t answer_len;	/* bytes of the shortest answer's header; at least 1 */
	/* Answers come in the order of the requests and contain no id, a refused request ends the connection,
	 * and no message shows when the peer has finished the requests of a lost connection. */
	bool in_order;
	/* The answer to our greeting identifies the peer, and its owner fences the number of the greeting. */
	bool greets;
	/* Resolver thread: identify ourselves on the new connection.  Fills *ret. */
	int (*greet)(struct mce_tcp_conn *conn, struct mc_stream *s, uint32_t epoch, uint64_t fence, uint64_t deadline,
		     struct mce_greeting *ret);
	/* With the peer's lock: make hdr, hdr_len and trail of a fragment that was just assigned to a connection. */
	void (*pack)(struct mce_fragment *frag);
	/* With rx_lock: take the next answer's header out of the connection's buffer.  1: the fragment that it is for,
	 * the length of the payload that follows and, when that is 0, the status; or NULL when it was for many, which
	 * have ended.  0: more bytes are needed. */
	int (*answer)(struct mce_tcp_conn *conn, struct mce_fragment **ret, uint32_t *ret_len, int *ret_status);
};
extern const struct mce_tcp_proto mce_tcp_proto_ours, mce_tcp_proto_upstream1, mce_tcp_proto_upstream2;

struct mce_tcp_conn {
	/* constant after attach */
	struct mce_tcp *t;
	unsigned idx;
	struct mce_io *io;
	/* changed under tx_lock and rx_lock, on the loop */
	struct mc_stream stream;	/* not open: down */
	/* tx_lock */
	struct mc_mutex tx_lock;
	uint64_t tx_moved;
	/* rx_lock */
	struct mc_mutex rx_lock;
	struct mce_rx rx;
	struct mce_fragment *cur;	/* whose payload is being received */
	uint32_t left;		/* bytes of it */
	bool refused;		/* the peer closes the connection because of a request that has ended */
	bool acks_upto;		/* the peer answers many WRITEs at once */
	/* guarded by the peer's lock */
	bool up;
	bool caps;		/* requests have their capabilities */
	uint32_t epoch;		/* epoch of the last greeting that was sent */
	uint32_t greeted;	/* epoch of the last greeting that was answered */
	uint64_t fence;		/* the number in that greeting; the connection carries WRITEs of this number only */
	uint32_t window, len_max;
	uint64_t retry_ms;	/* do not connect before */
	struct mc_list fragments, txq;
	uint32_t n;		/* fragments in flight, bytes of them */
	uint64_t bytes;
	uint64_t seq;		/* number of the last WRITE; never decreases */
	uint32_t orphans;	/* WRITEs in flight whose request has ended */
	uint32_t doubt_epoch;	/* such a WRITE was lost with the connection of this epoch, 0: none; see tcp_queue.c */
	struct mc_evfd wait_ev;	/* for waiting threads; without a stream: down */
	bool watched;		/* mce_tcp.waiter watches it */
	bool any_turn;		/* take the next request from those without a NUMA node */
	/* atomic */
	bool blocked;		/* the socket is full: EPOLLOUT will come */
	bool broken;		/* its loop has to take it down */
	bool draining;		/* in_order: send nothing more, the peer will close it */
	/* owned by the loop */
	struct mc_evfd evfd;
	struct mce_watcher watcher;
	uint64_t since_ms, seen_moved;
	uint64_t owes_ms, seen_received;	/* since when the peer owes an answer and sends nothing */
};

struct mce_tcp {
	/* constant after attach */
	struct mce_peer *p;
	const struct mce_tcp_proto *proto;
	const struct mc_net *net;	/* makes the connections */
	unsigned nconns;
	uint64_t conn_bytes;
	struct mce_tcp_conn *conns;
	/* atomic */
	bool led;		/* a waiting thread receives, see tcp_wait.c */
	bool fresh;		/* a request was queued and no thread has begun to send since */
	/* owned by the thread that has set led */
	uint64_t poll_ns;	/* how long a waiting thread polls before it sleeps */
	/* guarded by the peer's lock */
	struct mce_fragment *chunk[MCE_TCP_CONNS_MAX * MCE_WIRE_WINDOW / MCE_FRAGMENT_CHUNK];
	unsigned nchunks;
	unsigned up, wanted;	/* connections */
	struct mc_poller *waiter;	/* polls the connections that are up, NULL: none; constant while it has users */
	unsigned wait_users;
	unsigned lost;		/* in_order: connections lost since a request succeeded */
	struct mce_fence *fence;	/* allocated in advance: closing a peer must not fail */
	bool noted;		/* fence has WRITEs in doubt */
	/* Requests that are not cut completely: those without a NUMA node, then those of each node. */
	struct mc_list queue[MCE_NUMA_MAX + 1];
	struct mc_list retry, free;
};
/* The TCP state of a peer of our own or of upstream's. */
static inline struct mce_tcp *mce_tcp_of(const struct mce_peer *p)
{
	return p->tp[MCE_PATH_TCP];
}

static inline bool mce_tcp_conn_broken(const struct mce_tcp_conn *conn)
{
	return __atomic_load_n(&conn->broken, __ATOMIC_ACQUIRE);
}

static inline bool mce_tcp_conn_sends(const struct mce_tcp_conn *conn)
{
	return !mce_tcp_conn_broken(conn) && !__atomic_load_n(&conn->draining, __ATOMIC_ACQUIRE);
}

/* No more bytes are sent or received; its loop takes it down at the next tick. */
static inline void mce_tcp_conn_mark_broken(struct mce_tcp_conn *conn)
{
	__atomic_store_n(&conn->broken, true, __ATOMIC_RELEASE);
}

/* tcp_queue.c; _locked: with the peer's lock. */

/* Allocate more free fragments; false when there are as many as the connections can use, or no memory. */
bool mce_fragments_grow_locked(struct mce_tcp *t);
struct mce_fragment *mce_fragment_find_locked(struct mce_tcp *t, uint32_t index);
/* Queue a request that has bytes to cut, behind the others or before them. */
void mce_tcp_queue_locked(struct mce_tcp *t, struct mce_req *req, bool first);
bool mce_tcp_queued_locked(const struct mce_tcp *t);
/* May the peer still carry out a WRITE of the connection whose request has ended?  Then no other connection takes a
 * WRITE, and no other path either (writes_in_doubt). */
bool mce_tcp_conn_in_doubt_locked(const struct mce_tcp_conn *conn);
bool mce_tcp_writes_in_doubt(struct mce_peer *p);
/* The next fragment for a connection with room, on the connection's lists; NULL. */
struct mce_fragment *mce_fragment_next_locked(struct mce_tcp_conn *conn);
bool mce_tcp_conn_has_work_locked(struct mce_tcp_conn *conn);
/* End the fragment.  Returns its request when that has ended too: the caller must call mce_complete() with
 * x->status. */
struct mce_req *mce_fragment_end_locked(struct mce_fragment *frag, int status);
/* The checksums of @bytes more bytes of the request are computed. */
void mce_crc_made_locked(struct mce_tcp *t, struct mce_req *req, uint64_t bytes);
/* The connection is lost: its fragments wait for another one, or end with @status < 0.  Requests that have ended are
 * appended to @over (by their node).  in_order: broken means that it was not the peer that closed it. */
void mce_tcp_conn_lost_locked(struct mce_tcp_conn *conn, int status, struct mc_list *over);
/* Fail all queued requests, or only those that wait until @conn is greeted again.  _locked: requests that have ended
 * are appended to @over. */
void mce_queue_fail_locked(struct mce_tcp *t, struct mce_tcp_conn *conn, int status, struct mc_list *over);
void mce_queue_fail(struct mce_tcp *t, struct mce_tcp_conn *conn, int status);
/* The peer has stored all WRITEs of the connection up to number @seq, which is in flight: requests that have ended are
 * appended to @over.  -MC_EPROTO when there is no such WRITE. */
int mce_tcp_conn_acked_locked(struct mce_tcp_conn *conn, uint64_t seq, struct mc_list *over);
void mce_complete_list(struct mce_tcp *t, struct mc_list *over);
void mce_tcp_cancel(struct mce_peer *p, struct mce_req *req, int status);
/* Does the WRITE belong to an older session than the present one?  Then it must not be sent any more. */
static inline bool mce_tcp_outdated(const struct mce_tcp *t, const struct mce_req *req)
{
	return req->op == MCE_WRITE && req->fence &&
	       req->fence < __atomic_load_n(&t->p->e->fence, __ATOMIC_SEQ_CST);
}
void mce_tcp_new_fence(struct mce_peer *p);
/* iov of the fragment's payload from frag->at on, at most @max bytes; number of entries. */
unsigned mce_fragment_iov(const struct mce_fragment *frag, struct iovec *iov, unsigned room, uint32_t max,
			  uint32_t *ret_bytes);
void mce_fragment_advance(struct mce_fragment *frag, uint32_t n);

/* tcp_conn.c */

/* Send on all connections that have room. */
void mce_tcp_conns_pump(struct mce_tcp *t);
/* Take down the connections that were not greeted with the engine's present fence number; requests make new ones. */
void mce_tcp_conns_renew(struct mce_tcp *t);
/* Mark it broken and wake its loop: with the connection's tx_lock or rx_lock. */
void mce_tcp_conn_break(struct mce_tcp_conn *conn);
/* With tx_lock: send nothing more, since a partly sent payload cannot be finished. */
void mce_tcp_conn_cut_off(struct mce_tcp_conn *conn);
void mce_tcp_conn_down(struct mce_tcp_conn *conn, int status);	/* loop */
void mce_tcp_conn_ready(struct mc_evfd *e, uint32_t events);
void mce_tcp_conn_tick(struct mce_watcher *w, uint64_t now_ms);
void mce_tcp_conn_resume(struct mce_watcher *w);
void mce_tcp_poll(struct mce_peer *p);
/* Receive all that has arrived; waits for another thread that is doing so. */
void mce_tcp_conn_drain(struct mce_tcp_conn *conn);
void mce_tcp_conn_count(int n);	/* gauge of open connections */

/* tcp_wait.c */

int mce_tcp_lead(struct mce_peer *p, const struct mce_batch *b, uint64_t deadline);
/* With the peer's lock: a connection is up; is about to close its stream; close the poller if it is unused and no
 * connection is up. */
void mce_tcp_wait_add_locked(struct mce_tcp_conn *conn);
void mce_tcp_wait_del_locked(struct mce_tcp_conn *conn);
void mce_tcp_wait_drop_locked(struct mce_tcp *t);
/* Wake the waiting threads: another thread has ended requests of the peer, or may have. */
void mce_tcp_wait_notify(struct mce_tcp *t);

/* tcp_proto.c: send the greeting @g, whose features, token, conn, epoch and fence are set, and receive the answer. */
int mce_tcp_greet(struct mce_engine *e, struct mc_stream *s, struct mce_greeting *g, uint64_t deadline,
		  struct mce_greeting *ret);

/* tcp_fence.c: state that the next handle of an endpoint needs from the last one.  The two slots are those of our own
 * protocol. */
struct mce_fence *mce_fence_new(void);		/* NULL: no memory */
void mce_tcp_note_doubts(struct mce_peer *p);
void mce_tcp_keep_doubts(struct mce_peer *p);
/* With the engine's lock: for a new peer, if there is a record of its endpoint. */
void mce_fence_take_locked(struct mce_peer *p);
void mce_fences_close(struct mce_engine *e);

/* tcp_connect.c */

int mce_tcp_attach(struct mce_peer *p, const struct mce_tcp_proto *proto, const struct mc_net *net);
void mce_tcp_detach(struct mce_peer *p);
int mce_tcp_connect(struct mce_peer *p, uint64_t deadline);
int mce_tcp_submit(struct mce_peer *p, struct mce_req *req);
void mce_tcp_flush(struct mce_peer *p);

#endif
