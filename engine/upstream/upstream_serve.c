/* SPDX-License-Identifier: Apache-2.0
 * upstream_serve.c - upstream's protocol on incoming connections.
 *
 * A version 1 WRITE has no answer, so its sender considers it complete when its last byte is in
 * a socket: a READ over another connection may see it partly stored.  That is upstream's protocol, and the
 * reason for its version 2.
 *
 * A READ has any length.  A region whose bytes arrive later delivers pieces, each of which is a part of the answer. */
#include <config.h>

#include <errno.h>

#include "common/metrics.h"
#include "engine/tcp/tcp_server.h"
#include "engine/upstream/upstream_wire.h"

MC_COUNTER(refused, "mooncake_transfer_upstream_refused_total", "",
	   "Requests of upstream's nodes refused: not wholly inside one region that allows it")

/* @status: the answer begins with @code, if the version has one. */
static void upstream_answer(struct mce_serve_conn *c, bool status, uint32_t code, const void *at, uint64_t len,
			    struct mce_mr *mr, struct mce_late_read *late)
{
	struct mce_answer *a = mce_serve_answer(c);

	a->id = 0;
	a->at = at;
	a->len = len;
	a->mr = mr;
	a->late = late;
	a->hlen = status && c->v2 ? MCE_UP_STATUS_SIZE : 0;
	mce_up_status_pack(a->hdr, code);
}

/* The status, if the version has one, and the end of the connection tell the client. */
static void upstream_refuse(struct mce_serve_conn *c)
{
	mc_metric_add(&refused, 1);
	c->closing = true;
	c->resets = !c->v2;
	if (c->v2)
		upstream_answer(c, true, MCE_UP_REFUSED, NULL, 0, NULL, NULL);
}

/* ---- reads ------------------------------------------------------------------------------------- */

/* The READ ends.  Only closing the connection tells the client that an answer which has begun is not completed. */
static void upstream_read_over(struct mce_serve_conn *c, int r)
{
	if (c->parts.left)
		mce_mr_unref(c->parts.mr);
	c->parts.mr = NULL;
	if (r < 0 && c->parts.begun)
		c->broken = true;
	else if (r < 0)
		upstream_refuse(c);
}

/* Begin the next part.  The last one takes over the reference of c->parts. */
static void upstream_read_next(struct mce_serve_conn *c)
{
	struct mce_mr *mr = c->parts.mr;
	uint64_t piece = mce_bytes_of(mr)->piece, at = c->parts.at, n = c->parts.left < piece ? c->parts.left : piece;
	int r;

	c->parts.at += n;
	c->parts.left -= n;
	if (c->parts.left)
		__atomic_fetch_add(&mr->refs, 1, __ATOMIC_RELAXED);
	r = mce_bytes_of(mr)->read_start(c, mr, 0, at, n);
	if (r < 0) {
		mce_mr_unref(mr);
		upstream_read_over(c, r);
	}
}

/* Begin the next part, if none is under way and the ring has room for its answer. */
static void upstream_more(struct mce_serve_conn *c)
{
	if (c->parts.mr && !c->reading && c->parts.left && !mce_serve_full(c))
		upstream_read_next(c);
}

static void upstream_late_answer(struct mce_serve_conn *c, struct mce_late_read *r, int status)
{
	if (status < 0) {
		mce_late_end(r);
		upstream_read_over(c, status);
		return;
	}
	upstream_answer(c, !c->parts.begun, MCE_UP_OK, r->at, r->len, NULL, r);
	c->parts.begun = true;
	if (c->parts.left == 0)
		upstream_read_over(c, 0);
	else
		upstream_more(c);
}

/* Takes over the reference to @mr. */
static void upstream_read(struct mce_serve_conn *c, struct mce_mr *mr, uint64_t addr, uint64_t size)
{
	const struct mce_bytes_ops *ops = mce_bytes_of(mr);
	uint64_t n = size < ops->piece ? size : ops->piece;
	int r = ops->read_start(c, mr, 0, addr, n);

	if (r == MCE_BYTES_HERE) {
		upstream_answer(c, true, MCE_UP_OK, (const void *)(uintptr_t)addr, size, mr, NULL);
	} else if (r < 0) {
		mce_mr_unref(mr);
		upstream_refuse(c);
	} else {
		/* The part under way has a reference until it is answered on this loop. */
		c->parts = (struct mce_parts){ .mr = mr, .at = addr + n, .left = size - n };
		if (c->parts.left)
			__atomic_fetch_add(&mr->refs, 1, __ATOMIC_RELAXED);
	}
}

/* ---- writes ------------------------------------------------------------------------------------ */

static void upstream_write_answer(struct mce_serve_conn *c, uint64_t id, uint64_t seq, int status)
{
	if (status < 0)
		upstream_refuse(c);
	else if (c->v2)
		upstream_answer(c, true, MCE_UP_OK, NULL, 0, NULL, NULL);
}

/* A region that was unregistered ends the connection, whatever its requests do. */
static int upstream_write_failed(struct mce_serve_conn *c, int status)
{
	if (status == -ESTALE)
		return status;
	c->writing = false;
	c->left = 0;
	upstream_refuse(c);
	return 0;
}

/* ---- requests ---------------------------------------------------------------------------------- */

static int upstream_take(struct mce_serve_conn *c, const uint8_t *at, size_t have)
{
	struct mce_up_req q;
	struct mce_mr *mr;
	int r = mce_up_req_unpack(at, have, &q);

	if (r <= 0)
		return r;
	mce_rx_use(&c->rx, (size_t)r);
	c->rx.small = true;
	c->v2 = q.v2;
	r = mce_mr_get_at(c->io->e, q.addr, q.size, q.op == MCE_UP_WRITE ? MCE_ACCESS_WRITE : MCE_ACCESS_READ, &mr);
	if (r < 0) {
		upstream_refuse(c);
	} else if (q.op == MCE_UP_WRITE) {
		mce_serve_write(c, mr, 0, q.addr, q.size);
	} else {
		upstream_read(c, mr, q.addr, q.size);
	}
	return 1;
}

/* Answers contain no request id and a connection carries one request at a time, so only closing the connection can
 * report the error. */
static bool upstream_retract(struct mce_answer *a, int status)
{
	return false;
}

const struct mce_serve_proto mce_serve_upstream = {
	.header = MCE_UP_REQ_SIZE,
	.in_order = true,
	.take = upstream_take,
	.more = upstream_more,
	.late_answer = upstream_late_answer,
	.write_answer = upstream_write_answer,
	.write_failed = upstream_write_failed,
	.retract = upstream_retract,
};
