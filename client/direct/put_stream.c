/* SPDX-License-Identifier: Apache-2.0
 * put_stream.c - puts whose bytes arrive one after another: reserve the maximum size first, write
 * bytes as they arrive, and free the unused rest with the commit.
 *
 * A put ends with its connection, and then its range is soon reused.  So a put stream checks
 * the connection before and during each write (put_wait.c), sends a request when the master has not
 * answered for a while, and ends itself before the master could take its writer for dead. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/direct/capability.h"
#include "client/layout.h"
#include "client/direct/put_i.h"
#include "common/cleanup.h"
#include "common/metrics.h"

#define CONFIRM_MS 500
#define AGE_MAX_MS 30000
/* First protocol version in which the end of a put has a size. */
#define TRIM_VERSION 2u

MC_COUNTER(streamed, "mooncake_client_streamed_puts_total", "",
	   "puts committed whose bytes were stored as they arrived")

struct mcs_put_stream {
	/* constant */
	struct mcs_direct *s;
	unsigned flags;
	uint64_t room, generation, epoch, fence, began_ns;
	unsigned n;
	struct mcp_replica *replica;	/* n of them */
	struct mcs_seg **seg;
	struct mcp_attrs attrs;		/* set 0: none; set before the commit */
	uint32_t *crc;			/* CRCs of the chunks; each is set by the thread that writes the chunk */
	/* atomic */
	uint64_t heard_ns;		/* when the master last answered this put */

	size_t key_len;
	char key[];
};

static struct mcs_key put_stream_key(const struct mcs_put_stream *st)
{
	return (struct mcs_key){ st->key, st->key_len };
}

static void put_stream_free(struct mcs_put_stream *st)
{
	for (unsigned i = 0; i < st->n && st->seg; i++)
		mcs_seg_put(st->seg[i]);
	free(st->seg);
	free(st->replica);
	free(st->crc);
	free(st);
}

/* Copy the reservation out of the scratch memory. */
static int put_stream_take_grant(struct mcs_put_stream *st, const struct mcs_put_op *op, uint64_t deadline)
{
	st->generation = op->generation;
	st->epoch = op->epoch;
	st->fence = op->fence;
	st->n = op->n_replicas;
	st->replica = calloc(st->n, sizeof(*st->replica));
	st->seg = calloc(st->n, sizeof(struct mcs_seg *));
	st->crc = malloc(mc_crc_chunks(st->room) * sizeof(*st->crc));
	if (!st->replica || !st->seg || !st->crc)
		return -ENOMEM;
	memcpy(st->replica, op->replica, st->n * sizeof(*st->replica));
	for (unsigned i = 0; i < st->n; i++) {
		const struct mcp_replica *rep = &st->replica[i];
		int r = mcs_segmap_get(st->s->segmap, rep->segment, deadline, &st->seg[i]);

		if (r < 0)
			return r;
		if (rep->offset > st->seg[i]->size ||
		    mcs_stored_size(st->room) > st->seg[i]->size - rep->offset)
			return mc_fail(-MC_EPROTO, "replica lies outside of its segment");
	}
	return 0;
}

static int put_stream_reserve(struct mcs_put_stream *st, const struct mcs_put_opts *opts, uint64_t deadline)
{
	const char *own[2];
	struct mcs_put_item item = { .key = put_stream_key(st) };
	struct mcs_put_op op = { .item = &item, .size = st->room };
	struct mcs_put_request b = {
		.s = st->s, .ops = &op, .n = 1, .deadline = deadline,
		.flags = opts->flags,
		.replicas = opts->replicas ? opts->replicas : 1,
		.soft_pin_ms = opts->soft_pin_ms,
		.kind = opts->kind,
		.soft_pin = mcs_put_soft_pin(opts),
		.data_type = (uint8_t)opts->data_type,
		.group = opts->group,
		.preferred = mcs_put_preferred(st->s, opts, own),
		.sc = mcs_scratch_get(st->s->base.scratch),
	};
	int r = b.sc ? mcs_put_reserve(&b) : -ENOMEM;

	/* A broken reservation must be revoked, whatever the reason. */
	if (r == 0 && op.state == MCS_STEP_BROKEN) {
		st->generation = op.generation;
		st->epoch = op.epoch;
	}
	if (r == 0 && op.state == MCS_STEP_DONE)
		r = item.existed ? -MC_EEXISTS : item.result;
	else if (r == 0 && op.state == MCS_STEP_RESERVE)
		r = op.refused;
	else if (r == 0)
		r = op.state == MCS_STEP_WRITE ? put_stream_take_grant(st, &op, deadline) : op.broken;
	mcs_scratch_put(st->s->base.scratch, b.sc);
	return r;
}

/* Revoke the put; in the background thread if the deadline has passed, or a write may still be carried out. */
static void put_stream_revoke(struct mcs_put_stream *st, uint64_t deadline)
{
	struct mcp_put_done item = {
		.key = mcp_bytes(st->key, (uint32_t)st->key_len), .generation = st->generation,
	};
	struct mcp_put_revoke msg = { .items = mcp_seq(&item, 1), .tenant = st->s->base.tenant };
	struct mcp_put_revoke_reply reply;
	struct mcp_reply mem = { 0 };
	int r = mc_now_ns() >= deadline || !mcs_segs_settled(st->seg, st->n) ? -MC_ETIMEDOUT : 0;

	if (r == 0 && st->generation && mcs_direct_epoch(st->s) == st->epoch)
		r = mcs_call_once(st->s->base.session, MCP_PUT_REVOKE, &msg, &reply, &mem, deadline);
	if (r < 0 && st->generation)
		mcs_background_revoke(st->s->background, st->key, st->key_len, st->generation, st->epoch,
				      TAKE_PTR(st->seg), st->n);
	mcp_reply_done(&mem);
	st->generation = 0;
}

static void put_stream_abort(struct mcs_put_stream *st, uint64_t deadline)
{
	put_stream_revoke(st, deadline);
	put_stream_free(st);
}

int mcs_direct_put_stream_open(struct mcs_backend *b, struct mcs_key key, uint64_t room,
			       const struct mcs_put_opts *opts, struct mcs_put_stream **ret, uint64_t deadline)
{
	struct mcs_put_stream *st;
	unsigned tries = 0;
	int r;

	if (mcs_session_version(b->session) < TRIM_VERSION)
		return mc_fail(-MC_ENOTSUP, "this master takes no streams");
	st = calloc(1, sizeof(*st) + key.len);
	if (!st)
		return -ENOMEM;
	st->s = mcs_direct_of(b);
	st->room = room;
	st->flags = opts->flags;
	st->attrs = mcs_attrs_wire(opts->attrs);
	st->key_len = key.len;
	memcpy(st->key, key.data, key.len);
	st->began_ns = st->heard_ns = mc_now_ns();
	while ((r = put_stream_reserve(st, opts, deadline)) == -MC_ESTALE_PUT && ++tries < MCS_PUT_TRIES)
		put_stream_revoke(st, deadline);
	if (r < 0) {
		put_stream_abort(st, deadline);
		return r;
	}
	*ret = st;
	return 0;
}

uint64_t mcs_stream_room(const struct mcs_put_stream *st)
{
	return st->room;
}

/* Does the range still belong to this put? */
static int put_stream_confirm(struct mcs_put_stream *st, uint64_t deadline)
{
	uint64_t now = mc_now_ns();
	struct mcs_info info;
	int r;

	if (now - st->began_ns > AGE_MAX_MS * MC_NS_PER_MS || mcs_direct_epoch(st->s) != st->epoch)
		return mc_fail(-MC_ESTALE_PUT, "the put was given up");
	if (now - __atomic_load_n(&st->heard_ns, __ATOMIC_RELAXED) < CONFIRM_MS * MC_NS_PER_MS)
		return 0;
	/* Any answer will do. */
	r = mcs_direct_stat_once(&st->s->base, put_stream_key(st), &info, deadline);
	if (r < 0 && r != -MC_ENOOBJECT && r != -MC_ENOTREADY)
		return r;
	if (mcs_direct_epoch(st->s) != st->epoch)
		return mc_fail(-MC_ESTALE_PUT, "the connection that the put belonged to is gone");
	__atomic_store_n(&st->heard_ns, now, __ATOMIC_RELAXED);
	return 0;
}

/* Write the same bytes to all replicas; @crc: receives the CRCs of the chunks, NULL: not wanted. */
static int put_stream_write_all(struct mcs_put_stream *st, uint64_t offset, const struct iovec *iov, int iovcnt,
				uint64_t len, uint32_t *crc, uint64_t deadline)
{
	struct mcs_scratch *sc = mcs_scratch_get(st->s->base.scratch);
	struct mce_req *reqs = sc ? mcs_scratch_alloc(sc, st->n, sizeof(*reqs)) : NULL;
	uint64_t chunks = mc_crc_chunks(len), until = st->began_ns + AGE_MAX_MS * MC_NS_PER_MS;
	struct mce_batch batch;
	int r = reqs ? 0 : -ENOMEM;

	for (unsigned i = 0; i < st->n && r == 0; i++) {
		struct mcs_seg *seg = st->seg[i];

		reqs[i] = (struct mce_req){
			.op = MCE_WRITE, .peer = seg->peer, .rkey = seg->rkey, .fence = st->fence,
			.cap = mcs_capability_new(sc, &st->replica[i], st->room, st->generation, MC_CAPABILITY_WRITE),
			.addr = seg->base + st->replica[i].offset + offset,
			.iov = iov, .iovcnt = (unsigned)iovcnt,
		};
		if (!crc)
			continue;
		reqs[i].crc_len = len;
		reqs[i].crc = i ? mcs_scratch_raw(sc, chunks, sizeof(*crc)) : crc;
		r = reqs[i].crc ? 0 : -ENOMEM;
	}
	if (r == 0) {
		mce_batch_init(&batch);
		mce_submit(st->s->engine, &batch, reqs, st->n);
		until = deadline < until ? deadline : until;
		r = mcs_put_wait(st->s, &batch, reqs, st->n, st->epoch, until);
		/* Other errors are in the status of the requests. */
		r = r == -MC_ESTALE_PUT ? r : 0;
	}
	for (unsigned i = 0; i < st->n && r == 0; i++) {
		if (reqs[i].status < 0) {
			r = mcs_transfer_error(reqs[i].status);
			mcs_segmap_forget(st->s->segmap, st->replica[i].segment);
		} else if (i && crc && memcmp(crc, reqs[i].crc, chunks * sizeof(*crc)) != 0) {
			r = mc_fail(-MC_ETRANSFER, "the bytes changed while they were stored");
		}
	}
	mcs_scratch_put(st->s->base.scratch, sc);
	return r;
}

int mcs_stream_write(struct mcs_put_stream *st, uint64_t offset, const struct iovec *iov, int iovcnt,
		     int64_t timeout_ms)
{
	uint64_t deadline = mcs_deadline(st->s->base.store, timeout_ms);
	int64_t len = mcs_iov_len(iov, iovcnt);
	int r;

	r = mcs_check_fork(st->s->base.store);
	if (r < 0)
		return r;
	if (len < 0)
		return (int)len;
	if (offset % MC_CRC_CHUNK || offset > st->room || (uint64_t)len > st->room - offset)
		return mc_fail(-MC_EPARAM, "%lld bytes at %llu of a stream with room for %llu",
			       (long long)len, (unsigned long long)offset, (unsigned long long)st->room);
	if (!len)
		return 0;
	r = put_stream_confirm(st, deadline);
	if (r < 0)
		return r;
	return put_stream_write_all(st, offset, iov, iovcnt, (uint64_t)len, st->crc + offset / MC_CRC_CHUNK,
				    deadline);
}

/* The reply to the commit was lost: ask the master for the outcome. */
static int put_stream_find_out(const struct mcs_put_stream *st, uint64_t deadline)
{
	struct mcs_info info;
	int r = mcs_direct_stat(&st->s->base, put_stream_key(st), &info, deadline);

	if (r == 0 && info.generation == st->generation)
		return 0;
	if (r == 0 && !(st->flags & MCS_PUT_UPSERT))
		return -MC_EEXISTS;
	/* A higher generation need not be a later value: ours is as old as the stream, so the
	 * other put may have ended before this commit began. */
	return r == 0 || r == -MC_ENOOBJECT ? -MC_ESTALE_PUT : r;
}

static int put_stream_end(struct mcs_put_stream *st, uint64_t size, uint32_t crc, uint64_t deadline)
{
	struct mcp_put_done item = {
		.key = mcp_bytes(st->key, (uint32_t)st->key_len),
		.generation = st->generation, .crc = crc, .size = size, .attrs = mcs_put_attrs(&st->attrs),
	};
	struct mcp_put_end msg = { .items = mcp_seq(&item, 1), .tenant = st->s->base.tenant };
	struct mcp_put_end_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_status status;
	struct mcp_iter it;
	int r;

	r = mcs_call_once(st->s->base.session, MCP_PUT_END, &msg, &reply, &mem, deadline);
	if (r == -MC_ERPC)
		return put_stream_find_out(st, deadline);
	if (r < 0)
		return r;
	mcp_iter_init(&it, &reply.results, &mcp_desc_status);
	r = mcp_iter_next(&it, &status) ? mc_err_from_wire(status.status) :
		mc_fail(-MC_EPROTO, "protocol error: reply has fewer results than puts");
	mcp_reply_done(&mem);
	return r;
}

int mcs_stream_commit(struct mcs_put_stream *st, uint64_t size, int64_t timeout_ms)
{
	uint64_t deadline = mcs_deadline(st->s->base.store, timeout_ms), trailer = mcs_trailer_size(size);
	struct iovec iov = { st->crc, trailer };
	int r;

	/* In a forked child the range belongs to the parent, which may have freed it: write and free nothing. */
	r = mcs_check_fork(st->s->base.store);
	if (r < 0)
		return r;
	r = size && size <= st->room ? put_stream_confirm(st, deadline) :
		mc_fail(-MC_EPARAM, "%llu bytes of a stream", (unsigned long long)size);
	if (r == 0 && trailer)
		r = put_stream_write_all(st, mcs_trailer_offset(size), &iov, 1, trailer, NULL, deadline);
	if (r == 0)
		r = put_stream_end(st, size, mcs_crc_of_chunks(st->crc, size), deadline);
	if (r < 0) {
		put_stream_abort(st, deadline);
		return r;
	}
	mc_metric_add(&streamed, 1);
	put_stream_free(st);
	return 0;
}

uint64_t mcs_stream_generation(const struct mcs_put_stream *st)
{
	return st->generation;
}

void mcs_stream_set_attrs(struct mcs_put_stream *st, const struct mcs_attrs *attrs)
{
	st->attrs = mcs_attrs_wire(attrs);
}

void mcs_stream_drop(struct mcs_put_stream *st, int64_t timeout_ms)
{
	if (!st || mcs_check_fork(st->s->base.store) < 0)
		return;
	put_stream_abort(st, mcs_deadline(st->s->base.store, timeout_ms));
}
