/* SPDX-License-Identifier: Apache-2.0
 * rpc_conn_i.h - sessions on sockets, shared by
 *
 *	rpc_conn.c	life of a connection, received bytes
 *	rpc_partial.c	incomplete requests
 *	rpc_send.c	replies */
#ifndef MCP_RPC_CONN_I_H
#define MCP_RPC_CONN_I_H

#include "common/net/stream.h"
#include "proto/codec_i.h"
#include "proto/rpc_i.h"

/* Period of the checks for connections that make no progress. */
#define MCP_CONN_CHECK_NS MC_NS_PER_SEC

enum mcp_conn_state {
	MCP_CONN_GREETING,	/* no hello yet; on the accept loop */
	MCP_CONN_MOVING,	/* hello received; being handed to its loop */
	MCP_CONN_OPEN,
	MCP_CONN_DRAINING,	/* refused and the reply is sent: drop input until the peer closes */
};

struct mcp_conn {
	struct mcp_session s;
	/* all owned by the loop's thread; while the connection moves, by no other thread */
	struct mcp_loop *loop;
	struct mc_list link;
	struct mc_stream stream;
	struct mc_evfd ev;		/* event source of the stream */
	struct mc_evtimer timer;
	enum mcp_conn_state state;
	bool opened;			/* closed() has to be called */
	bool stalled;			/* not read from: too many replies are unread */
	bool kept;			/* its place is not to be taken */
	bool fresh;			/* kept because it is new */
	bool again;			/* not read from: the first request of @in returned MCP_AGAIN */
	struct mcp_place place;
	struct mc_list leave_link;	/* in the loop's leaving; guarded by the places' lock */
	uint32_t hello_id;
	uint64_t born_ns;		/* when it was accepted */
	uint64_t active_ns;		/* last time when bytes were sent or received */
	struct mcp_buf in;		/* begins with an incomplete frame, or with any frame when stalled or again */
	struct mcp_buf out;		/* bytes that the socket has not taken yet, from @out_sent on */
	size_t out_sent;
	struct mc_list unread_link;	/* in the loop's unread */
	size_t unread;			/* bytes of @out that are included in the server's counter */
	uint64_t taken, taken_seen;	/* bytes that the socket took; value at the last check, UINT64_MAX: none yet */
	/* state of the incomplete request in @in */
	struct mc_list partial_link;	/* in the loop's partials or waiting */
	struct mcp_reservation reservation;
	uint64_t partial_ns;		/* when its reservation was granted */
	size_t partial_seen;		/* its bytes at the last check, 0: none yet */
	/* The end of @out is held back behind gates, which open when the server says that their
	 * marks are durable. */
	struct mc_list gate_link;
	struct mc_list again_link;
	struct gate {
		size_t len;		/* bytes behind it; 0: open */
		uint64_t mark;
	} first, second;
};

static inline size_t mcp_conn_pending(const struct mcp_conn *c)
{
	return c->out.len - c->out_sent;
}

static inline bool mcp_conn_takes_frames(const struct mcp_conn *c)
{
	return !c->stalled && !c->again && (c->state == MCP_CONN_GREETING || c->state == MCP_CONN_OPEN);
}

static inline int mcp_conn_watch(struct mcp_conn *c, uint32_t events)
{
	return events == c->ev.events ? 0 : mc_evloop_mod(c->loop->ev, &c->ev, events);
}

/* All functions below: loop's thread only.  Negative: the caller closes the connection, unless
 * stated otherwise. */

/* ---- rpc_conn.c ---- */

void mcp_conn_close(struct mcp_conn *c);
/* Handle the frames in @in. */
int mcp_conn_feed_kept(struct mcp_conn *c);
/* Begin or stop to receive from the peer. */
int mcp_conn_read_on(struct mcp_conn *c, bool on);

/* ---- rpc_partial.c ---- */

/* Length of the frame that @in begins with; of its header while that is incomplete. */
size_t mcp_conn_request_len(const struct mcp_buf *in);
/* After frames were handled: does @in begin with an incomplete request, and is memory reserved for
 * it?  @more: bytes were received, but they completed no request. */
int mcp_conn_partial_update(struct mcp_conn *c, bool more);
/* There is no incomplete request any more. */
void mcp_conn_partial_end(struct mcp_conn *c);
/* Call mcp_conn_tick() in at most @ns. */
void mcp_conn_tick_in(struct mcp_loop *l, uint64_t ns);

/* ---- rpc_send.c ---- */

/* Append to a buffer that comes from the loop's pool and returns to it. */
int mcp_conn_keep(struct mcp_loop *l, struct mcp_buf *b, const uint8_t *p, size_t len);
void mcp_conn_return_buf(struct mcp_loop *l, struct mcp_buf *b);
/* Send the replies in the loop's buffer, all of which are this connection's; behind pending replies queue them. */
int mcp_conn_flush(struct mcp_conn *c);
/* Send pending bytes; those that the socket does not take wait for EPOLLOUT. */
int mcp_conn_send_pending(struct mcp_conn *c);
/* Limit of pending bytes above which requests of this connection wait. */
uint64_t mcp_conn_outstanding_max(const struct mcp_conn *c);
/* After pending bytes were sent: read from a stalled peer again if few enough are left. */
int mcp_conn_resume(struct mcp_conn *c);
/* The connection is being closed: drop pending bytes. */
void mcp_conn_send_end(struct mcp_conn *c);
/* While the unread replies of all connections exceed max_unread, close those that take nothing. */
void mcp_conn_check_unread(struct mcp_loop *l);

#endif
