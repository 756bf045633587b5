/* SPDX-License-Identifier: Apache-2.0
 * tcp_server.h - incoming connections: shared by tcp_server.c (connections),
 * tcp_serve.c (requests) and upstream_serve.c (requests in upstream's protocol). */
#ifndef MCE_TCP_SERVER_H
#define MCE_TCP_SERVER_H

#include <netinet/in.h>

#include "common/sys/lock.h"

#include "engine/engine_i.h"
#include "engine/gpu/gpu_i.h"
#include "engine/tcp/tcp_rx.h"
#include "engine/upstream/upstream_wire.h"

struct mce_medium_read;

/* One answer that waits to be sent. */
struct mce_answer {
	uint8_t hdr[MCE_RESP_SIZE];
	uint32_t hlen;		/* bytes of hdr */
	uint64_t len;		/* payload at @at, inside @mr */
	const uint8_t *at;
	struct mce_mr *mr;	/* reference, NULL when there is no payload, or with @read */
	struct mce_medium_read *read;	/* has the payload, NULL: it is memory */
	uint64_t id;
	bool upto;		/* an ACK_UPTO */
};

struct mce_serve_conn {
	/* constant */
	struct mce_tcp_server *s;
	struct mce_io *io;
	bool upstream;		/* it speaks upstream's protocol */
	struct in6_addr from;	/* address of the peer, IPv4 as ::ffff:a.b.c.d */
	/* guarded by the server's lock */
	bool yields;		/* it is being closed for another connection */
	struct mc_list node;
	unsigned refs;
	bool greeted;
	bool ending;		/* a fence is closing it */
	bool read_only;		/* its number was fenced when it greeted; constant since then */
	uint64_t token;
	uint32_t idx, epoch;	/* the peer's number of the connection */
	uint8_t nonce[16];	/* of the peer's engine */
	uint64_t fence;		/* the number that it greeted with */
	/* held by the I/O thread while it carries out requests, and by the thread that fences the connection */
	struct mc_mutex lock;
	bool fenced;
	uint64_t idle_ms;	/* atomic: since when it has neither work nor traffic, 0: it has */
	/* owned by the loop */
	bool closed;
	bool handed_over;	/* another service has the socket */
	struct mc_list io_node;
	struct mc_evfd evfd;
	struct mce_watcher watcher;
	uint64_t begun_ms;
	uint64_t since_ms;	/* of the last progress */
	uint64_t linger_until_ms;
	uint64_t seen_moved;
	struct mce_rx rx;
	struct mce_wire_req req;	/* the WRITE under way */
	struct mce_up_req up;		/* the same for upstream's protocol */
	uint8_t *dst;
	uint64_t left;		/* bytes of its payload to receive */
	struct mce_mr *mr;	/* its region; NULL with left: refused, payload is discarded */
	int status;
	bool writing;
	uint8_t *gpu_dst;	/* the WRITE is into device memory: where its next bytes belong; NULL: it is not */
	struct mce_gpu_inbox *inbox;	/* NULL: there was no such WRITE */
	struct mce_held *held;	/* WRITEs that are wholly in the inbox, without an answer; MCE_HELD_MAX of them */
	unsigned nheld;
	struct mce_mr *gpu_mr;	/* READ of upstream's of device memory: its region, referenced; NULL: none, */
	uint64_t gpu_at, gpu_left;	/* and its next piece */
	uint32_t gpu_reads;	/* READs of device memory that are not sent */
	bool gpu_begun;		/* its first piece is answered */
	bool broken;		/* it failed after that */
	bool acks_upto;		/* the peer understands one answer to many WRITEs */
	uint8_t greeting[MCE_GREETING_SIZE];
	uint32_t greeting_left;
	bool closing;		/* the last answer, or the greeting, is a refusal */
	bool lingering;		/* the refusal is sent: discard the peer's bytes until it closes */
	bool tx_blocked;
	uint64_t tx_moved;
	uint64_t tx_off;	/* bytes of the first answer that are sent */
	uint32_t head, n;	/* of ring */
	uint32_t reading;	/* READs that a medium has not delivered; they will need room in the ring */
	struct mce_answer ring[MCE_WIRE_WINDOW];
};

/* Was the process stopped since the connection began?  Requests that waited meanwhile may have been cancelled, and
 * their memory reused: the client repeats the requests that it still wants.  Upstream's clients do not repeat. */
bool mce_serve_conn_stale(const struct mce_serve_conn *c);
/* Carry out received requests and send answers; the connection's lock is held.  0: wait for an
 * event.  -EAGAIN: there is more, but it is the turn of other connections.  Else close the connection. */
int mce_serve(struct mce_serve_conn *c);
/* Begin the request c->up. */
void mce_upstream_begin(struct mce_serve_conn *c);
/* Refuse the request c->up and close the connection. */
void mce_upstream_refuse(struct mce_serve_conn *c);
/* All bytes of the WRITE c->up are stored. */
void mce_upstream_end_write(struct mce_serve_conn *c);
/* The next entry of the ring of answers, which has room. */
struct mce_answer *mce_serve_answer(struct mce_serve_conn *c);
/* Release @mr.  False: the connection is within its bytes and has to be closed. */
bool mce_serve_revoke(struct mce_serve_conn *c, struct mce_mr *mr);
/* Release all regions. */
void mce_serve_done(struct mce_serve_conn *c);
/* Are requests or answers under way? */
static inline bool mce_serve_busy(const struct mce_serve_conn *c)
{
	return c->left || c->n || c->reading || c->greeting_left || c->lingering || mce_rx_have(&c->rx);
}

/* READs of device memory of one connection that have, or wait for, one of the few buffers. */
#define MCE_GPU_READS_CONN 4u
/* The ring has no room for another request's answer, or the connection has its share of buffers. */
static inline bool mce_serve_full(const struct mce_serve_conn *c)
{
	return c->n + c->reading + c->nheld >= MCE_WIRE_WINDOW || c->gpu_reads >= MCE_GPU_READS_CONN;
}

/* tcp_gpu.c: WRITEs into device memory.  They are answered when a flush has copied them. */
#define MCE_HELD_MAX 256u
struct mce_held {
	struct mce_mr *mr;	/* with a reference */
	uint64_t id, seq;
};
/* The WRITE c->req, or c->up, begins; c->mr is its region.  -ENOMEM. */
int mce_gpu_write_begin(struct mce_serve_conn *c, uint64_t addr, uint64_t len);
/* Receive payload, as serve_take_payload(). */
ssize_t mce_gpu_write_payload(struct mce_serve_conn *c);
/* All of it is in the inbox: hold its answer back, and take over the reference to c->mr. */
void mce_gpu_write_end(struct mce_serve_conn *c);
/* Copy the bytes in the inbox to their places, and answer. */
void mce_gpu_flush(struct mce_serve_conn *c);
void mce_gpu_drop(struct mce_serve_conn *c);	/* at the end of the connection */
/* READs of upstream's: c->up begins, of @mr, whose reference it takes over. */
void mce_gpu_upstream_read(struct mce_serve_conn *c, struct mce_mr *mr);
void mce_gpu_upstream_next(struct mce_serve_conn *c);	/* its next piece, when there is room */
/* A piece of it has been copied, or not: answer; @read owns its @len bytes. */
void mce_gpu_upstream_piece(struct mce_serve_conn *c, int status, const void *at, uint32_t len,
			    struct mce_medium_read *read);

/* tcp_serve.c: answers to a WRITE. */
void mce_serve_answer_write(struct mce_serve_conn *c, uint64_t id, int status);
void mce_serve_acknowledge(struct mce_serve_conn *c, uint64_t seq);

/* tcp_server.c, for those that continue a connection on its loop */
void mce_serve_conn_ref(struct mce_serve_conn *c);
void mce_serve_conn_unref(struct mce_serve_conn *c);
void mce_serve_conn_resume(struct mce_serve_conn *c);

/* tcp_medium.c: begin a READ of [@off, @off + @len) of @mr, a medium or device memory, whose reference it takes over.
 * -ERANGE, -ENOMEM: it does not. */
int mce_serve_medium(struct mce_serve_conn *c, struct mce_mr *mr, uint64_t id, uint64_t off, uint64_t len);
/* The answer is sent, or will not be. */
void mce_medium_read_end(struct mce_medium_read *r);
/* Of each I/O thread: READs that their media have delivered. */
struct mce_medium_ready {
	struct mc_mutex lock;
	struct mc_list list;
	bool posted;
};
struct mce_medium_ready *mce_serve_medium_ready(const struct mce_serve_conn *c);
/* tcp_serve.c: the answer to a READ; @read: owner of the payload, NULL without one. */
void mce_serve_answer_read(struct mce_serve_conn *c, uint64_t id, int status, const void *at, uint32_t len,
			   struct mce_medium_read *read);

/* tcp_idle.c: a connection without work gives way to a new one, the longest idle one first, from three quarters of the
 * limit on, when its address has half of the limit, or when the process has no free descriptor.  A peer that still
 * needs it connects again.  _locked: with the server's lock. */

/* Loop, at each tick. */
void mce_idle_tick(struct mce_serve_conn *c, bool moved, uint64_t now_ms);
void mce_idle_address(int fd, struct in6_addr *ret);
/* Mark the connection that is idle for the longest time, of all or of those @from one address, and return it; NULL:
 * none is idle. */
struct mce_serve_conn *mce_idle_pick_locked(const struct mc_list *conns, const struct in6_addr *from, uint64_t now_ms);
/* May a further connection @from this address be accepted?  0 or -MC_ELIMIT.  *ret_yields is then marked as above, or
 * NULL. */
int mce_idle_admit_locked(const struct mc_list *conns, unsigned max, const struct in6_addr *from, uint64_t now_ms,
			  struct mce_serve_conn **ret_yields);
/* Set the socket options of a connection, incoming or outgoing. */
void mce_tcp_tune(int fd, uint64_t timeout_ms);

#endif
