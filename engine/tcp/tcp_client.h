/* SPDX-License-Identifier: Apache-2.0
 * tcp_client.h - the outgoing lanes of a peer: shared by tcp_queue.c (what is sent), tcp_lane.c (how),
 * tcp_connect.c (over what), and the protocols: tcp_proto.c (ours), upstream_client.c.
 *
 * A request waits in the peer's queue; lanes with room cut pieces off it, so the faster lane takes
 * more.  A piece has a place in the peer's table, whose index and generation are its id on the wire.
 * What a lane may have under way is bounded in pieces and bytes.
 *
 * Locks: see engine_i.h.  A piece's req is read under the lane's tx_lock or rx_lock and cleared under
 * both, so whoever holds one may use the request's memory. */
#ifndef MCE_TCP_CLIENT_H
#define MCE_TCP_CLIENT_H

#include "engine/engine_i.h"
#include "engine/tcp/tcp_rx.h"
#include "engine/tcp/tcp_wire.h"
#include "engine/upstream/upstream_wire.h"

/* Bytes that a lane may have under way, or two pieces if that is more.  Two lanes of it fill a link of
 * 100 Gb/s over 160 us; more only falls out of the caches on its way through the sockets. */
#define MCE_TCP_CONN_BYTES (1u << 20)
/* Pieces are allocated so many at a time. */
#define MCE_PIECE_CHUNK 32u
/* Sent by one call: a hundred small requests, since a call costs as much as copying several. */
#define MCE_SEND_MAX (512u << 10)
#define MCE_SEND_IOV 256
/* Lanes that a piece may lose before its request fails. */
#define MCE_PIECE_TRIES 4u

enum mce_fragment_state {
	MCE_PIECE_FREE,
	MCE_PIECE_QUEUED,	/* on a lane, nothing sent */
	MCE_PIECE_SENDING,	/* some bytes are out */
	MCE_PIECE_FLYING,	/* all bytes are out, or are being sent right now */
	MCE_PIECE_RETRY,	/* lost its lane */
};

/* A position in a request's iov. */
struct mce_iovpos {
	uint32_t idx;
	uint64_t off;
};

struct mce_fragment {
	struct mc_list node;	/* mce_tcp_conn.pieces, mce_tcp.retry or mce_tcp.free */
	struct mc_list tx_node;	/* mce_tcp_conn.txq until all is sent */
	struct mce_req *req;	/* NULL: cancelled */
	struct mce_tcp_conn *lane;	/* the present or, in retry, the last one */
	uint32_t index, gen;
	uint32_t lost_epoch;	/* in retry: epoch of the lane that was lost */
	uint8_t state, tries;
	bool write, tail;
	bool in_call;		/* a thread is sending of it right now */
	bool orphan;		/* a WRITE that has begun and whose request has ended */
	bool answered;		/* over with @answer as soon as that call is back */
	int answer;
	uint64_t seq;		/* WRITE: its number on the lane */
	uint64_t off;		/* in the transfer */
	uint32_t len;
	uint32_t done;		/* payload bytes sent or received */
	uint32_t hdr_sent, trail_sent;
	uint32_t crc_done;	/* WRITE: payload bytes with a checksum */
	struct mce_iovpos first, at;	/* of the piece, of its byte at done */
	uint8_t hdr[MCE_REQ_SIZE];
	uint8_t trail[MCE_UP_REQ_SIZE];	/* of a WRITE, what goes out behind the payload */
};

struct mce_tcp_conn;

/* What a protocol makes of a lane. */
struct mce_tcp_proto {
	enum mce_path path;
	uint32_t hdr_len;	/* of a request */
	uint32_t trail_len;	/* of a WRITE */
	uint32_t answer_len;	/* of the shortest answer's header; at least 1 */
	/* Answers come in the order of the requests and name none, a refused request ends the connection,
	 * and nothing tells when the peer is through with a lost one. */
	bool in_order;
	/* Resolver thread: say who we are on the new connection.  Fills *ret. */
	int (*greet)(struct mce_tcp_conn *l, int fd, uint32_t epoch, uint64_t deadline,
		     struct mce_greeting *ret);
	/* With the peer's lock: make hdr and trail of a piece that was just given to a lane. */
	void (*pack)(struct mce_fragment *pc);
	/* With rx_lock: take the next answer's header out of the lane's buffer.  1: the piece it is for,
	 * the bytes that follow and, when there are none, how it ended; or NULL, when it was for many and they
	 * have ended.  0: more is needed to tell. */
	int (*answer)(struct mce_tcp_conn *l, struct mce_fragment **ret, uint32_t *ret_len, int *ret_status);
};
extern const struct mce_tcp_proto mce_tcp_proto_ours, mce_tcp_proto_upstream1, mce_tcp_proto_upstream2;

struct mce_tcp_conn {
	/* constant after attach */
	struct mce_tcp *t;
	unsigned idx;
	struct mce_io *io;
	/* changed under tx_lock and rx_lock, on the loop */
	int fd;			/* -1: down */
	/* tx_lock */
	pthread_mutex_t tx_lock;
	uint64_t tx_moved;
	/* rx_lock */
	pthread_mutex_t rx_lock;
	struct mce_rx rx;
	struct mce_fragment *cur;	/* whose payload is coming */
	uint32_t left;		/* bytes of it */
	bool refused;		/* the peer closes it because of a request that has ended */
	bool acks_upto;		/* the peer answers many WRITEs at once */
	/* guarded by the peer's lock */
	bool up;
	uint32_t epoch;		/* of the last greeting that was sent */
	uint32_t greeted;	/* of the last one that was answered */
	uint32_t window, len_max;
	uint64_t retry_ms;	/* not to be connected before */
	struct mc_list pieces, txq;
	uint32_t n;
	uint64_t bytes;
	uint64_t seq;		/* of the last WRITE; never goes back */
	uint32_t orphans;	/* WRITEs under way whose request has ended */
	uint32_t doubt_epoch;	/* such a one was lost with that connection, 0: none; see tcp_queue.c */
	int look_fd;		/* what a thread that waits looks at, -1: down */
	bool looked_at;		/* it is among what mce_tcp.wait_fd watches */
	bool others_turn;	/* the next request is one whose place does not matter */
	/* atomic */
	bool blocked;		/* the socket is full: EPOLLOUT will come */
	bool broken;		/* to be taken down by its loop */
	bool draining;		/* in_order: nothing more is sent, the peer will close it */
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
	unsigned nlanes;
	uint64_t lane_bytes;
	struct mce_tcp_conn *lanes;
	/* atomic */
	bool led;		/* a waiting thread receives, see tcp_wait.c */
	bool fresh;		/* a request was queued and nobody has begun to send since */
	/* of who has set led */
	uint64_t poll_ns;	/* so long a waiting thread polls before it sleeps */
	/* guarded by the peer's lock */
	struct mce_fragment *chunk[MCE_TCP_CONNS_MAX * MCE_WIRE_WINDOW / MCE_PIECE_CHUNK];
	unsigned nchunks;
	unsigned up, wanted;	/* lanes */
	int wait_fd;		/* epoll of the lanes that are up, -1: none; constant for its users */
	unsigned wait_users;
	unsigned lost;		/* in_order: lanes since a request succeeded */
	bool doubts;		/* some lane may be in doubt */
	struct mce_fence *fence;	/* there from the beginning: at the end it must not fail */
	/* Requests with something to cut: those whose place does not matter, and then those of each place. */
	struct mc_list queue[MCE_NUMA_MAX + 1];
	struct mc_list retry, free;
};

static inline bool mce_tcp_conn_broken(const struct mce_tcp_conn *l)
{
	return __atomic_load_n(&l->broken, __ATOMIC_ACQUIRE);
}

static inline bool mce_tcp_conn_sends(const struct mce_tcp_conn *l)
{
	return !mce_tcp_conn_broken(l) && !__atomic_load_n(&l->draining, __ATOMIC_ACQUIRE);
}

/* Nothing is sent or received any more; its loop takes it down at the next tick. */
static inline void mce_tcp_conn_mark_broken(struct mce_tcp_conn *l)
{
	__atomic_store_n(&l->broken, true, __ATOMIC_RELEASE);
}

/* tcp_queue.c; _locked: with the peer's lock. */

/* Make more free pieces; false when there are as many as lanes can have, or no memory. */
bool mce_fragments_grow_locked(struct mce_tcp *t);
struct mce_fragment *mce_fragment_find_locked(struct mce_tcp *t, uint32_t index);
/* A request with something to cut comes in, behind the others or before them. */
void mce_tcp_queue_locked(struct mce_tcp *t, struct mce_req *req, bool first);
bool mce_tcp_queued_locked(const struct mce_tcp *t);
/* May the peer still carry out a WRITE of the lane whose request has ended?  Then no other lane takes one. */
bool mce_tcp_conn_in_doubt_locked(const struct mce_tcp_conn *l);
/* Is there such a lane?  Then WRITEs take no other path either. */
bool mce_tcp_in_doubt_locked(struct mce_tcp *t);
/* The next piece for a lane with room, on the lane's lists; NULL. */
struct mce_fragment *mce_fragment_next_locked(struct mce_tcp_conn *l);
bool mce_tcp_conn_has_work_locked(struct mce_tcp_conn *l);
/* The piece is over.  Returns its request when that is over too: the caller owes mce_complete() with
 * x->status. */
struct mce_req *mce_fragment_end_locked(struct mce_fragment *pc, int status);
/* @bytes of the request's checksums are made. */
void mce_crc_made_locked(struct mce_tcp *t, struct mce_req *req, uint64_t bytes);
/* The lane is lost: its pieces wait for another, or end with @status < 0.  Requests that are over go
 * to @over (by their node).  in_order: broken says that it was not the peer who closed it. */
void mce_tcp_conn_lost_locked(struct mce_tcp_conn *l, int status, struct mc_list *over);
/* Fail what is queued, or only what waits for @l to be greeted anew.  _locked: requests that are over go to @over. */
void mce_queue_fail_locked(struct mce_tcp *t, struct mce_tcp_conn *l, int status, struct mc_list *over);
void mce_queue_fail(struct mce_tcp *t, struct mce_tcp_conn *l, int status);
/* All WRITEs of the lane up to number @seq, which is under way, are stored: requests that are over go to @over.
 * -MC_EPROTO when that makes no sense. */
int mce_tcp_conn_acked_locked(struct mce_tcp_conn *l, uint64_t seq, struct mc_list *over);
void mce_complete_list(struct mce_tcp *t, struct mc_list *over);
void mce_tcp_cancel(struct mce_peer *p, struct mce_req *req, int status);
/* iov of the piece's payload from pc->at on, at most @max bytes; number of entries. */
unsigned mce_fragment_iov(const struct mce_fragment *pc, struct iovec *iov, unsigned room, uint32_t max,
		       uint32_t *ret_bytes);
void mce_fragment_advance(struct mce_fragment *pc, uint32_t n);

/* tcp_lane.c */

/* Send on all lanes that have room. */
void mce_tcp_conns_pump(struct mce_tcp *t);
/* The same as marking it broken, and now: with the lane's tx_lock or rx_lock. */
void mce_tcp_conn_break(struct mce_tcp_conn *l);
/* With tx_lock: send nothing more, since a payload that is half sent cannot be finished. */
void mce_tcp_conn_cut_off(struct mce_tcp_conn *l);
void mce_tcp_conn_down(struct mce_tcp_conn *l, int status);	/* loop */
void mce_tcp_conn_ready(struct mc_evfd *e, uint32_t events);
void mce_tcp_conn_tick(struct mce_watcher *w, uint64_t now_ms);
void mce_tcp_conn_resume(struct mce_watcher *w);
void mce_tcp_poll(struct mce_peer *p);
/* Take all that has come, waiting for a thread that does so already. */
void mce_tcp_conn_look(struct mce_tcp_conn *l);
void mce_tcp_conn_count(int n);	/* gauge of open lanes */

/* tcp_wait.c */

int mce_tcp_lead(struct mce_peer *p, const struct mce_batch *b, uint64_t deadline);
/* A lane has come up with @fd, or is about to close it; the peer's last one may have gone.  With the peer's lock. */
void mce_tcp_wait_add_locked(struct mce_tcp_conn *l, int fd);
void mce_tcp_wait_del_locked(struct mce_tcp_conn *l);
void mce_tcp_wait_drop_locked(struct mce_tcp *t);
/* Somebody else than the thread that waits has ended requests of the peer, or may have. */
void mce_tcp_wait_tell(struct mce_tcp *t);

/* tcp_connect.c */

int mce_tcp_attach(struct mce_peer *p, const struct mce_tcp_proto *proto);
void mce_tcp_detach(struct mce_peer *p);
int mce_tcp_connect(struct mce_peer *p, uint64_t deadline);
int mce_tcp_submit(struct mce_peer *p, struct mce_req *req);
void mce_tcp_flush(struct mce_peer *p);

#endif
