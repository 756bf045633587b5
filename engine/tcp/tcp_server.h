/* SPDX-License-Identifier: Apache-2.0
 * tcp_server.h - incoming connections: shared by tcp_server.c (connections), tcp_serve.c (requests), the protocols
 * (tcp_ours.c, upstream/upstream_serve.c) and the kinds of regions (tcp_bytes.h). */
#ifndef MCE_TCP_SERVER_H
#define MCE_TCP_SERVER_H

#include <netinet/in.h>

#include "common/sys/lock.h"

#include "engine/engine_i.h"
#include "engine/tcp/tcp_bytes.h"
#include "engine/tcp/tcp_rx.h"
#include "engine/tcp/tcp_wire.h"

struct mce_answer;

/* The protocol of incoming connections: one const table per protocol, complete, chosen by the listener that accepts a
 * connection.  All slots run on the connection's loop with its lock, and do not block. */
struct mce_serve_proto {
	uint32_t header;	/* bytes of the smallest request */
	/* A connection begins with a greeting.  A client that loses a greeted connection repeats the requests that
	 * it still wants. */
	bool greets;
	/* Answers contain no request id and have the order of the requests.  So none is held back, and a refusal
	 * ends the connection. */
	bool in_order;
	/* Take the request that begins at @at, of which @have bytes are received, and begin it.  The ring has room
	 * for its answer.  1, 0 when more bytes are needed, -MC_EPROTO. */
	int (*take)(struct mce_serve_conn *c, const uint8_t *at, size_t have);
	/* The connection has had a turn: continue a READ that is answered in parts. */
	void (*more)(struct mce_serve_conn *c);
	/* The bytes of a READ have arrived, or @status says why not: answer, and take over @r. */
	void (*late_answer)(struct mce_serve_conn *c, struct mce_late_read *r, int status);
	/* A WRITE is stored (0), or failed: answer.  @id and @seq: those of its c->req. */
	void (*write_answer)(struct mce_serve_conn *c, uint64_t id, uint64_t seq, int status);
	/* The WRITE under way was refused with @status.  0: its payload is discarded, or the refusal is in the
	 * ring.  Else the error that ends the connection. */
	int (*write_failed)(struct mce_serve_conn *c, int status);
	/* No byte of @a, the answer to a READ, is sent: replace it with the error @status and release its region.
	 * False: the protocol cannot. */
	bool (*retract)(struct mce_answer *a, int status);
};
extern const struct mce_serve_proto mce_serve_ours, mce_serve_upstream;

/* One answer that waits to be sent. */
struct mce_answer {
	uint8_t hdr[MCE_RESP_SIZE];
	uint32_t hlen;		/* bytes of hdr */
	uint64_t len;		/* payload at @at, inside @mr */
	const uint8_t *at;
	struct mce_mr *mr;	/* reference, NULL when there is no payload, or with @late */
	struct mce_late_read *late;	/* has the payload, NULL: it is in @mr */
	uint64_t id;
	bool upto;		/* an ACK_UPTO */
};

/* A READ that is answered in parts, each of which is a read of its own. */
struct mce_parts {
	struct mce_mr *mr;	/* its region, referenced until the last part is begun; NULL: there is no such READ */
	uint64_t at, left;	/* the next part */
	bool begun;		/* the first part is answered */
};

/* READs of one connection that have, or wait for, one of the few buffers of their source. */
#define MCE_BUFFERS_CONN 4u

struct mce_serve_conn {
	/* constant */
	struct mce_tcp_server *s;
	struct mce_io *io;
	const struct mce_serve_proto *proto;
	struct in6_addr from;	/* address of the peer, IPv4 as ::ffff:a.b.c.d */
	bool named;		/* MC_UPSTREAM_PEERS admitted its host */
	/* guarded by the server's lock */
	bool yields;		/* it is being closed for another connection */
	struct mc_list node;
	unsigned refs;
	bool greeted;
	bool ending;		/* a fence is closing it */
	bool read_only;		/* its number was fenced when it greeted, or its role only reads; constant since then */
	uint64_t token;
	uint32_t idx, epoch;	/* the peer's number of the connection */
	uint8_t nonce[16];	/* nonce of the peer's engine */
	uint64_t fence;		/* the number that it greeted with */
	/* held by the I/O thread while it carries out requests, and by the thread that fences the connection */
	struct mc_mutex lock;
	bool fenced;
	uint64_t idle_ms;	/* atomic: since when it has neither work nor traffic, 0: it has */
	/* owned by the loop */
	bool closed;
	bool handed_over;	/* another service has the socket */
	struct mc_list io_node;
	struct mc_stream stream;	/* constant until the last reference, or the hand-over */
	struct mc_evfd evfd;
	struct mce_watcher watcher;
	const struct mc_principal *principal;	/* identity that the peer proved, once it has greeted; NULL: none */
	uint64_t begun_ms;
	uint64_t since_ms;	/* time of the last progress */
	uint64_t linger_until_ms;
	uint64_t seen_moved;
	struct mce_rx rx;
	/* The request that is being begun, or the WRITE under way.  A protocol without ids leaves it 0. */
	struct mce_wire_req req;
	bool has_cap;		/* the request has this capability */
	struct mc_capability cap;
	bool v2;		/* upstream's protocol: the version of the last request */
	bool acks_upto;		/* the peer understands one answer to many WRITEs */
	const struct mce_bytes_ops *to;	/* the WRITE under way: where its payload belongs */
	struct mce_mr *mr;	/* its region, with a reference; NULL with mce_bytes_none */
	uint8_t *dst;		/* where its next byte belongs */
	uint64_t left;		/* bytes of its payload to receive */
	int status;		/* why it was refused */
	bool writing;
	const struct mce_bytes_ops *holds;	/* the kind that may hold WRITEs back */
	struct mce_held *held;	/* the WRITEs that this kind holds back, NULL: none */
	unsigned nheld;		/* WRITEs without an answer */
	struct mce_parts parts;
	uint32_t reading;	/* READs whose bytes have not arrived; they will need room in the ring */
	uint32_t buffers;	/* READs that have, or wait for, a buffer */
	uint8_t greeting[MCE_GREETING_SIZE];
	uint32_t greeting_left;
	bool closing;		/* the last answer, or the greeting, is a refusal */
	bool resets;		/* the client learns of the refusal only by a reset */
	bool broken;		/* an answer is sent in part and cannot be completed */
	bool lingering;		/* the refusal is sent: discard the peer's bytes until it closes */
	bool tx_blocked;
	uint64_t tx_moved;
	uint64_t tx_off;	/* bytes of the first answer that are sent; see mce_serve_answer_begun() */
	uint32_t head, n;	/* first answer in ring, number of answers */
	struct mce_answer ring[MCE_WIRE_WINDOW];
};

/* Was the process stopped since the connection began?  Requests that waited meanwhile may have been cancelled, and
 * their memory reused.  Then the client repeats the requests that it still wants, if the protocol says so. */
bool mce_serve_conn_stale(const struct mce_serve_conn *c);
/* Carry out received requests and send answers; the connection's lock is held.  0: wait for an
 * event.  -EAGAIN: there is more, but it is the turn of other connections.  Else close the connection. */
int mce_serve(struct mce_serve_conn *c);
/* The next entry of the ring of answers, which has room. */
static inline struct mce_answer *mce_serve_answer(struct mce_serve_conn *c)
{
	struct mce_answer *a = &c->ring[(c->head + c->n++) % MCE_WIRE_WINDOW];

	a->upto = false;
	return a;
}
/* Begin a WRITE of @len bytes to @addr of @mr, whose reference it takes over; NULL: it is refused with @status. */
void mce_serve_write(struct mce_serve_conn *c, struct mce_mr *mr, int status, uint64_t addr, uint64_t len);
/* The WRITE under way is refused with @status: release its region, and discard the rest of its payload. */
void mce_serve_refuse(struct mce_serve_conn *c, int status);
/* Has a byte of answer @i of the ring been sent, or does the stream want to send it again?  Then it must not change. */
bool mce_serve_answer_begun(const struct mce_serve_conn *c, uint32_t i);
/* Release @mr.  False: the connection is within its bytes and has to be closed. */
bool mce_serve_revoke(struct mce_serve_conn *c, struct mce_mr *mr);
/* Release all regions. */
void mce_serve_done(struct mce_serve_conn *c);
/* Are requests or answers under way? */
static inline bool mce_serve_busy(const struct mce_serve_conn *c)
{
	return c->left || c->n || c->reading || c->greeting_left || c->lingering || mce_rx_have(&c->rx);
}

/* The ring has no room for another request's answer, or the connection has its share of buffers. */
static inline bool mce_serve_full(const struct mce_serve_conn *c)
{
	return c->n + c->reading + c->nheld >= MCE_WIRE_WINDOW || c->buffers >= MCE_BUFFERS_CONN;
}

/* tcp_server.c, for those that continue a connection on its loop */
void mce_serve_conn_ref(struct mce_serve_conn *c);
void mce_serve_conn_unref(struct mce_serve_conn *c);
void mce_serve_conn_resume(struct mce_serve_conn *c);
/* The queue of its I/O thread. */
struct mce_late_queue *mce_serve_late_queue(const struct mce_serve_conn *c);

/* tcp_idle.c: a connection without work gives way to a new one, the longest idle one first, from three quarters of the
 * limit on, when its address has half of the limit, or when the process has no free descriptor.  A peer that still
 * needs it connects again.  _locked: with the server's lock. */

/* Loop, at each tick. */
void mce_idle_tick(struct mce_serve_conn *c, bool moved, uint64_t now_ms);
void mce_idle_address(const struct mc_stream *s, struct in6_addr *ret);
/* Mark the connection that is idle for the longest time, of all or of those @from one address, and return it; NULL:
 * none is idle. */
struct mce_serve_conn *mce_idle_pick_locked(const struct mc_list *conns, const struct in6_addr *from, uint64_t now_ms);
/* May a further connection @from this address be accepted?  0 or -MC_ELIMIT.  *ret_yields is then marked as above, or
 * NULL. */
int mce_idle_admit_locked(const struct mc_list *conns, unsigned max, const struct in6_addr *from, uint64_t now_ms,
			  struct mce_serve_conn **ret_yields);
/* Tune a connection, incoming or outgoing. */
void mce_tcp_tune(struct mc_stream *s, uint64_t timeout_ms);

#endif
