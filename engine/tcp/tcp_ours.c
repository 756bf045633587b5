/* SPDX-License-Identifier: Apache-2.0
 * tcp_ours.c - our protocol on incoming connections: requests and answers.  tcp_server.c has the greeting. */
#include <config.h>

#include <errno.h>

#include "common/err.h"
#include "common/metrics.h"
#include "common/principal.h"
#include "engine/tcp/tcp_server.h"

MC_COUNTER(refused_caps, "mooncake_transfer_capabilities_refused_total", "reason=\"invalid\"",
	   "requests of peers that were refused, because they had no capability for the range")
MC_COUNTER(expired_caps, "mooncake_transfer_capabilities_refused_total", "reason=\"expired\"",
	   "requests of peers that were refused, because they had no capability for the range")

/* ---- answers ----------------------------------------------------------------------------------- */

static void ours_fill(struct mce_answer *a, const struct mce_wire_resp *resp, const void *at, struct mce_mr *mr,
		      struct mce_late_read *late)
{
	a->id = resp->id;
	a->at = at;
	a->len = resp->len;
	a->mr = mr;
	a->late = late;
	a->hlen = MCE_RESP_SIZE;
	mce_resp_pack(a->hdr, resp);
}

static void ours_data(struct mce_serve_conn *c, uint64_t id, const void *at, uint32_t len, struct mce_mr *mr,
		      struct mce_late_read *late)
{
	struct mce_wire_resp resp = { .type = MCE_FRAME_DATA, .id = id, .len = len };

	ours_fill(mce_serve_answer(c), &resp, at, mr, late);
}

static void ours_error(struct mce_serve_conn *c, enum mce_frame type, uint64_t id, int status)
{
	struct mce_wire_resp resp = { .type = type, .id = id, .status = status < 0 ? mc_err_to_wire(status) : 0 };

	ours_fill(mce_serve_answer(c), &resp, NULL, NULL, NULL);
}

/* The WRITE is stored, and the WRITEs before it are stored or refused.  If the last answer in the ring is an ACK_UPTO
 * of which no byte is sent, extend it to this WRITE. */
static void ours_acknowledge(struct mce_serve_conn *c, uint64_t seq)
{
	struct mce_wire_resp resp = { .type = MCE_FRAME_ACK_UPTO, .id = seq };
	struct mce_answer *a = &c->ring[(c->head + c->n - 1) % MCE_WIRE_WINDOW];

	if (c->n == 0 || !a->upto || mce_serve_answer_begun(c, c->n - 1))
		a = mce_serve_answer(c);
	ours_fill(a, &resp, NULL, NULL, NULL);
	a->upto = true;
}

static void ours_late_answer(struct mce_serve_conn *c, struct mce_late_read *r, int status)
{
	if (status == 0) {
		ours_data(c, r->id, r->at, r->len, NULL, r);
		return;
	}
	ours_error(c, MCE_FRAME_DATA, r->id, status);
	mce_late_end(r);
}

static void ours_write_answer(struct mce_serve_conn *c, uint64_t id, uint64_t seq, int status)
{
	if (c->acks_upto && seq && status == 0)
		ours_acknowledge(c, seq);
	else
		ours_error(c, MCE_FRAME_ACK, id, status);
}

static bool ours_retract(struct mce_answer *a, int status)
{
	struct mce_wire_resp resp = { .type = MCE_FRAME_DATA, .id = a->id, .status = mc_err_to_wire(status) };

	mce_mr_unref(a->mr);
	ours_fill(a, &resp, NULL, NULL, NULL);
	return true;
}

/* ---- requests ---------------------------------------------------------------------------------- */

/* A WRITE with an expired capability must be refused before the quarantine of its range can end, after which another
 * object may have the range.  The master keeps the range of an unfinished put for put_start_release_timeout at least,
 * if its session lives, and signs the capability for three quarters of that.  A range that is freed earlier, because
 * the session has ended, stays in quarantine until its owners have fenced the number of the session, and its WRITEs
 * are refused with any capability.  Clocks: of all times that the master's clock may show now, a WRITE is
 * compared with the latest one (mce_engine_set_time()), so the master's own clock is never ahead.  A READ is compared
 * with the earliest one, so that a late answer of the master refuses no valid reader. */
static int ours_check_capability(const struct mce_serve_conn *c, const struct mce_mr *mr, uint8_t right)
{
	const struct mce_wire_req *q = &c->req;
	uint64_t now_ms = mce_engine_time(mr->e, right == MC_CAPABILITY_WRITE);
	int r = -EACCES;

	if (c->has_cap)
		r = mc_capability_check(mr->cap_key, c->principal ? c->principal->serial : 0, &c->cap, right,
					q->whole - mr->base, q->whole_len, now_ms);
	if (r < 0)
		mc_metric_add(r == -EACCES ? &refused_caps : &expired_caps, 1);
	return r;
}

static int ours_find_region(struct mce_serve_conn *c, unsigned access, struct mce_mr **ret)
{
	const struct mce_wire_req *q = &c->req;
	struct mce_mr *mr;
	int r;

	r = mce_range_check(q->whole, q->whole_len, q->addr, q->len);
	if (r == 0)
		r = mce_mr_get(c->io->e, q->rkey, q->whole, q->whole_len, access, &mr);
	if (r == 0 && mr->guarded) {
		r = ours_check_capability(c, mr, access & MCE_ACCESS_WRITE ? MC_CAPABILITY_WRITE : MC_CAPABILITY_READ);
		if (r < 0)
			mce_mr_unref(mr);
	}
	if (r == 0)
		*ret = mr;
	return r;
}

static void ours_write(struct mce_serve_conn *c)
{
	struct mce_mr *mr = NULL;
	int r = c->read_only ? -MC_ESTALE_PUT : ours_find_region(c, MCE_ACCESS_WRITE, &mr);

	mce_serve_write(c, mr, r, c->req.addr, c->req.len);
}

static void ours_read(struct mce_serve_conn *c)
{
	const struct mce_wire_req *q = &c->req;
	struct mce_mr *mr;
	int r;

	c->holds->flush(c);
	r = ours_find_region(c, MCE_ACCESS_READ | MCE_ACCESS_MEDIUM, &mr);
	if (r == 0) {
		r = mce_bytes_of(mr)->read_start(c, mr, q->id, q->addr, q->len);
		if (r < 0)
			mce_mr_unref(mr);
	}
	if (r < 0)
		ours_error(c, MCE_FRAME_DATA, q->id, r);
	else if (r == MCE_BYTES_HERE)
		ours_data(c, q->id, (const void *)(uintptr_t)q->addr, q->len, mr, NULL);
}

static int ours_take(struct mce_serve_conn *c, const uint8_t *at, size_t have)
{
	int r = mce_req_unpack(at, have, &c->req);

	if (r <= 0)
		return r;
	c->has_cap = mce_req_unpack_cap(at, c->req.hlen, &c->cap);
	mce_rx_use(&c->rx, (size_t)r);
	c->rx.small = true;
	if (c->req.type == MCE_FRAME_READ)
		ours_read(c);
	else
		ours_write(c);
	return 1;
}

/* A READ is short enough for one answer. */
static void ours_more(struct mce_serve_conn *c)
{
}

static int ours_write_failed(struct mce_serve_conn *c, int status)
{
	return 0;
}

const struct mce_serve_proto mce_serve_ours = {
	.header = MCE_REQ_SIZE,
	.greets = true,
	.take = ours_take,
	.more = ours_more,
	.late_answer = ours_late_answer,
	.write_answer = ours_write_answer,
	.write_failed = ours_write_failed,
	.retract = ours_retract,
};
