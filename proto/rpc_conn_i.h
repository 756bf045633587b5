/* SPDX-License-Identifier: Apache-2.0
 * rpc_conn_i.h - insides of sessions on sockets, shared by
 *
 *	rpc_conn.c	from the first byte to the end; what comes in
 *	rpc_part.c	requests of which only a part has come
 *	rpc_send.c	replies */
#ifndef MCP_RPC_CONN_I_H
#define MCP_RPC_CONN_I_H

#include "common/net/stream.h"
#include "proto/codec_i.h"
#include "proto/rpc_i.h"

/* How often connections are looked at that do not go on. */
#define MCP_CONN_LOOK_NS MC_NS_PER_SEC

enum mcp_conn_state {
	MCP_CONN_GREETING,	/* no hello yet; on the lane loop */
	MCP_CONN_ARRIVING,	/* hello heard, on the way to its loop */
	MCP_CONN_OPEN,
	MCP_CONN_DRAINING,	/* refused: the reply is out, what comes is dropped until the peer closes */
};

struct mcp_conn {
	struct mcp_session s;
	/* all owned by the loop's thread; while it arrives by nobody else */
	struct mcp_loop *loop;
	struct mc_list link;
	struct mc_stream stream;
	struct mc_evfd ev;		/* of the stream's descriptor */
	struct mc_evtimer timer;
	enum mcp_conn_state state;
	bool opened;			/* closed() is due */
	bool stalled;			/* not read from: see above */
	bool again;			/* nor now: the first request of @in is done in parts */
	uint32_t hello_id;
	uint64_t active_ns;		/* when bytes moved last */
	struct mcp_buf in;		/* begins with a frame that is not complete, or when stalled */
	struct mcp_buf out;		/* what the socket did not take */
	size_t out_sent;
	struct mc_list unread_link;	/* of the loop's unread */
	size_t unread;			/* bytes of @out that are counted */
	uint64_t taken, taken_seen;	/* bytes that the socket took; at the last look, UINT64_MAX: none */
	/* of the unfinished request in @in */
	struct mc_list part_link;	/* of the loop's parts or waiters */
	struct mcp_share share;
	uint64_t part_ns;		/* since when it is read */
	size_t part_seen;		/* bytes of it at the last look, 0: none yet */
	/* the end of it, behind gates that open when the server has settled their marks */
	struct mc_list gate_link;
	struct mc_list again_link;
	struct gate {
		size_t len;		/* 0: open */
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

/* All of these by the loop's thread; negative: the connection is to be closed, unless it says otherwise. */

/* ---- rpc_conn.c ---- */

void mcp_conn_close(struct mcp_conn *c);
/* Handle what was kept of earlier input. */
int mcp_conn_feed_kept(struct mcp_conn *c);
/* Receive from the peer from now on, or do not. */
int mcp_conn_read_on(struct mcp_conn *c, bool on);

/* ---- rpc_part.c ---- */

/* The length of the request that @in begins with, as far as that is known. */
size_t mcp_conn_whole(const struct mcp_buf *in);
/* After frames were handled: is there a part of one, and does it have room?  @more: bytes came, but no request
 * has ended. */
int mcp_conn_part(struct mcp_conn *c, bool more);
/* There is no unfinished request any more. */
void mcp_conn_part_over(struct mcp_conn *c);
/* mcp_conn_tick() in @ns at the latest. */
void mcp_conn_look_in(struct mcp_loop *l, uint64_t ns);

/* ---- rpc_send.c ---- */

/* Append to a buffer that comes from the loop's pool, and goes back there. */
int mcp_conn_keep(struct mcp_loop *l, struct mcp_buf *b, const uint8_t *p, size_t len);
void mcp_conn_return_buf(struct mcp_loop *l, struct mcp_buf *b);
/* Send the loop's replies, which are all this connection's.  Behind unsent ones they have to queue. */
int mcp_conn_flush(struct mcp_conn *c);
/* Send what is pending; what the socket does not take waits for EPOLLOUT. */
int mcp_conn_send_pending(struct mcp_conn *c);
/* So many bytes may be pending before requests wait. */
uint64_t mcp_conn_outstanding_max(const struct mcp_conn *c);
/* Replies have gone: is the peer read from again? */
int mcp_conn_resume(struct mcp_conn *c);
/* It sends nothing any more. */
void mcp_conn_send_over(struct mcp_conn *c);
/* Close those who do not read, when all together do not read too much. */
void mcp_conn_look_unread(struct mcp_loop *l);

#endif
