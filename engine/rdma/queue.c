/* SPDX-License-Identifier: Apache-2.0
 * queue.c - requests of a peer: they wait here, are cut into slices, and end when all slices have.
 *
 * The life of a slice: free -> cut (its request counts it in x->fragments) -> in the ring of a queue pair -> ended, or
 * lost with its endpoint: on the retry list until another endpoint takes it. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/sys/clock.h"
#include "engine/rdma/rdma_i.h"

#define CHUNK 64u
/* A rest smaller than this fraction of a slice joins the slice before it; upstream's MC_FRAGMENT_RATIO. */
#define REST_RATIO 4u

/* ---- regions of the peer ------------------------------------------------------------------------ */

static struct mce_rdma_remote **remote_at(struct mce_rdma_peer *rp, uint64_t rkey)
{
	struct mce_rdma_remote **pp = &rp->bucket[rkey % MCE_RDMA_BUCKETS];

	while (*pp && (*pp)->rkey != rkey)
		pp = &(*pp)->next;
	return pp;
}

struct mce_rdma_remote *mce_rdma_remote_find_locked(struct mce_rdma_peer *rp, uint64_t rkey)
{
	return *remote_at(rp, rkey);
}

void mce_rdma_remote_put_locked(struct mce_rdma_peer *rp, struct mce_rdma_remote *rem)
{
	struct mce_rdma_remote **pp = remote_at(rp, rem->rkey), *old = *pp;

	rem->next = old ? old->next : NULL;
	*pp = rem;
	free(old);
}

void mce_rdma_remote_drop_locked(struct mce_rdma_peer *rp, uint64_t rkey)
{
	struct mce_rdma_remote **pp = remote_at(rp, rkey), *rem = *pp;

	if (rem)
		*pp = rem->next;
	free(rem);
}

void mce_rdma_remotes_free(struct mce_rdma_peer *rp)
{
	for (unsigned i = 0; i < MCE_RDMA_BUCKETS; i++)
		while (rp->bucket[i]) {
			struct mce_rdma_remote *rem = rp->bucket[i];

			rp->bucket[i] = rem->next;
			free(rem);
		}
}

/* Can the endpoint carry requests for the region?  Either all parts of a region have keys on a NIC, or none.  On iWARP
 * a WRITE needs a READ (post.c). */
static bool ep_carries(const struct mce_rdma_ep *ep, const struct mce_rdma_remote *rem)
{
	return (!ep->nic->iwarp || rem->access & MCE_ACCESS_READ) && ep->remote < rem->nnics &&
		rem->key[ep->remote * rem->nparts];
}

bool mce_rdma_carries_locked(const struct mce_rdma_peer *rp, const struct mce_rdma_remote *rem)
{
	struct mc_list *pos;

	mc_list_for_each(pos, &rp->eps) {
		const struct mce_rdma_ep *ep = mc_container_of(pos, struct mce_rdma_ep, node);

		if (ep->state == MCE_RDMA_EP_UP && ep_carries(ep, rem))
			return true;
	}
	return false;
}

/* ---- slices ------------------------------------------------------------------------------------ */

static struct mce_rdma_slice *slice_new_locked(struct mce_rdma_peer *rp)
{
	struct mce_rdma_slice *s, **more;

	if (mc_list_empty(&rp->free)) {
		more = realloc(rp->chunk, (rp->nchunks + 1) * sizeof(*more));
		if (more)
			rp->chunk = more;
		s = more ? calloc(CHUNK, sizeof(*s)) : NULL;
		if (!s)
			return NULL;
		rp->chunk[rp->nchunks++] = s;
		for (unsigned i = 0; i < CHUNK; i++)
			mc_list_push_back(&rp->free, &s[i].node);
	}
	s = mc_list_first(&rp->free, struct mce_rdma_slice, node);
	mc_list_remove(&s->node);
	s->tries = s->nmr = 0;
	s->stage = NULL;
	s->tail = false;
	return s;
}

static void slice_free_locked(struct mce_rdma_peer *rp, struct mce_rdma_slice *s)
{
	for (unsigned i = 0; i < s->nmr; i++)
		mce_mr_unref(s->mr[i]);
	s->nmr = 0;
	if (s->stage)
		mce_rdma_stage_give(rp->r, s->stage);
	s->stage = NULL;
	mc_list_remove(&s->node);
	mc_list_push_front(&rp->free, &s->node);
}

/* Copy between a slot and the program's memory. */
static void stage_copy(struct mce_rdma_slice *s, bool out)
{
	const struct iovec *iov = &s->req->iov[s->iov_idx];
	uint64_t off = s->iov_off, n;
	char *at = s->stage;

	for (uint64_t left = s->len; left; left -= n, at += n, iov++, off = 0) {
		n = iov->iov_len - off < left ? iov->iov_len - off : left;
		if (out)
			memcpy(at, (char *)iov->iov_base + off, n);
		else
			memcpy((char *)iov->iov_base + off, at, n);
	}
}

/* End the request, which has no slice in flight and no bytes left to cut. */
static void req_over_locked(struct mce_req *req, struct mc_list *over)
{
	struct mce_reqx *x = mce_reqx(req);

	mc_list_remove(&x->node);
	x->queued = false;
	mce_req_move(req, MCE_AT_DONE);
	mc_list_push_back(over, &x->node);
}

static void req_check_over_locked(struct mce_req *req, struct mc_list *over)
{
	struct mce_reqx *x = mce_reqx(req);

	if (x->fragments == 0 && (!x->queued || x->status < 0))
		req_over_locked(req, over);
}

void mce_rdma_slice_end_locked(struct mce_rdma_peer *rp, struct mce_rdma_slice *s, int status, struct mc_list *over)
{
	struct mce_req *req = s->req;
	struct mce_reqx *x = mce_reqx(req);

	if (status == 0 && s->stage && !s->write)
		stage_copy(s, false);
	if (x->status == 0)
		x->status = status;
	x->fragments--;
	slice_free_locked(rp, s);
	req_check_over_locked(req, over);
}

void mce_rdma_slice_lost_locked(struct mce_rdma_peer *rp, struct mce_rdma_slice *s, bool counts, struct mc_list *over)
{
	if (mce_reqx(s->req)->status < 0 || (counts && ++s->tries >= MCE_RDMA_TRIES) || mce_closing(rp->p->e))
		mce_rdma_slice_end_locked(rp, s, mce_closing(rp->p->e) ? -ECANCELED : -MC_ETRANSFER, over);
	else
		mc_list_push_back(&rp->retry, &s->node);
}

/* Compute the checksums of a READ from the bytes that have arrived. */
static void read_checksums(struct mce_req *req)
{
	uint64_t pos = 0;

	for (unsigned i = 0; i < req->iovcnt; i++) {
		mce_crc_feed(req, pos, req->iov[i].iov_base, req->iov[i].iov_len);
		pos += req->iov[i].iov_len;
	}
}

void mce_rdma_over(struct mc_list *over)
{
	while (!mc_list_empty(over)) {
		struct mce_req *req = mce_req_of(over->next);
		int status = mce_reqx(req)->status;

		mc_list_remove(over->next);
		if (status == 0 && req->op == MCE_READ && req->crc)
			read_checksums(req);
		mce_complete(req, MCE_PATH_RDMA, status);
	}
}

/* ---- cutting ----------------------------------------------------------------------------------- */

bool mce_rdma_write_waits_locked(struct mce_rdma_peer *rp)
{
	struct mc_list *pos;

	mc_list_for_each(pos, &rp->eps)
		if (mc_container_of(pos, struct mce_rdma_ep, node)->doubt)
			return true;
	return mce_peer_in_doubt_locked(rp->p, MCE_PATH_RDMA);
}

static bool req_is_outdated(const struct mce_rdma_peer *rp, const struct mce_req *req)
{
	return req->op == MCE_WRITE && req->fence && req->fence < __atomic_load_n(&rp->p->e->fence, __ATOMIC_SEQ_CST);
}

/* Does the WRITE belong to a session that the peer has fenced? */
static bool req_is_refused(struct mce_rdma_peer *rp, const struct mce_req *req)
{
	if (req->op != MCE_WRITE || !rp->read_only || !req->fence || req->fence > rp->fence)
		return false;
	__atomic_store_n(&rp->p->e->refused_fence, rp->fence, __ATOMIC_RELAXED);
	return true;
}

/* Does the memory at @iov + @off lie in a region of this engine that the NIC can use?  *ret_len is cut at the end of
 * the part of the region. */
static struct mce_mr *piece_region(const struct mce_rdma_ep *ep, const struct iovec *iov, uint64_t off,
				   uint64_t *ret_len)
{
	uint64_t addr = (uintptr_t)iov->iov_base + off, room;
	struct mce_mr *mr;
	uint32_t key;

	if (mce_mr_get_at(ep->rp->p->e, addr, *ret_len, 0, &mr) < 0)
		return NULL;
	if (!mce_rdma_lkey(mr, ep->nic, addr, &key, &room)) {
		mce_mr_unref(mr);
		return NULL;
	}
	if (*ret_len > room)
		*ret_len = room;
	return mr;
}

/* Give the slice as many of @max bytes as possible: pieces of registered memory, or a slot.  False: no slot is free, or
 * its request has failed. */
static bool slice_fill(struct mce_rdma_slice *s, struct mce_rdma_ep *ep, uint64_t max)
{
	const struct iovec *iov = &s->req->iov[s->iov_idx];
	unsigned pieces = s->write ? ep->nic->max_sge : ep->nic->max_sge_rd;
	uint64_t off = s->iov_off, n;

	s->len = 0;
	while (s->nmr < pieces && s->len < max) {
		n = iov->iov_len - off;
		if (n == 0) {
			iov++;
			off = 0;
			continue;
		}
		if (n > max - s->len)
			n = max - s->len;
		s->mr[s->nmr] = piece_region(ep, iov, off, &n);
		if (!s->mr[s->nmr])
			break;
		s->nmr++;
		s->len += (uint32_t)n;
		off += n;
	}
	if (s->nmr)
		return true;
	/* The memory was registered when the request was submitted.  The processor cannot copy it. */
	if (mce_reqx(s->req)->gpu) {
		mce_reqx(s->req)->status = -MC_ETRANSFER;
		return false;
	}
	s->stage = mce_rdma_stage_take(ep->rp->r);
	s->len = (uint32_t)(max < ep->rp->r->stage.slot ? max : ep->rp->r->stage.slot);
	if (s->stage && s->write)
		stage_copy(s, true);
	return s->stage;
}

static void req_advance(struct mce_req *req, uint64_t n)
{
	struct mce_reqx *x = mce_reqx(req);

	for (x->cut += n; n; ) {
		uint64_t left = req->iov[x->iov_idx].iov_len - x->iov_off, step = n < left ? n : left;

		if (req->op == MCE_WRITE)
			mce_crc_feed(req, x->cut - n, (char *)req->iov[x->iov_idx].iov_base + x->iov_off, step);
		x->iov_off += step;
		n -= step;
		if (x->iov_off == req->iov[x->iov_idx].iov_len) {
			x->iov_idx++;
			x->iov_off = 0;
		}
	}
	/* Empty entries at the end of the iov do not matter. */
	while (x->cut < x->total && x->iov_off == req->iov[x->iov_idx].iov_len) {
		x->iov_idx++;
		x->iov_off = 0;
	}
}

/* How many bytes of the transfer from @off on lie in one part of the peer's region, at most a slice and a rest. */
static uint64_t slice_max(const struct mce_rdma_ep *ep, const struct mce_req *req, uint64_t off, uint64_t left,
			  const struct mce_rdma_remote *rem)
{
	uint64_t slice = ep->rp->r->tune.slice, at = req->addr + off - rem->base;
	uint64_t room = rem->nparts > 1 ? rem->part - at % rem->part : rem->len - at;
	uint64_t max = left < slice + slice / REST_RATIO ? left : slice;

	return max < room ? max : room;
}

/* Cut the trailer of checksums of a WRITE, after all its bytes. */
static bool tail_fill(struct mce_rdma_slice *s, struct mce_rdma_ep *ep, const struct mce_rdma_remote *rem)
{
	struct mce_reqx *x = mce_reqx(s->req);
	uint64_t len = mce_tail_len(s->req), done = x->cut - x->total;
	uint64_t max = slice_max(ep, s->req, mce_tail_off(s->req) + done, len - done, rem);

	s->tail = true;
	s->off = mce_tail_off(s->req) + done;
	s->stage = mce_rdma_stage_take(ep->rp->r);
	if (!s->stage)
		return false;
	s->len = (uint32_t)(max < ep->rp->r->stage.slot ? max : ep->rp->r->stage.slot);
	memcpy(s->stage, (char *)s->req->crc + done, s->len);
	x->cut += s->len;
	return true;
}

static struct mce_rdma_slice *req_cut_locked(struct mce_rdma_ep *ep, struct mce_req *req,
					     const struct mce_rdma_remote *rem)
{
	struct mce_rdma_slice *s = slice_new_locked(ep->rp);
	struct mce_reqx *x = mce_reqx(req);
	bool filled;

	if (!s)
		return NULL;
	s->req = req;
	s->write = req->op == MCE_WRITE;
	s->off = x->cut;
	s->iov_idx = x->iov_idx;
	s->iov_off = x->iov_off;
	if (x->cut < x->total) {
		filled = slice_fill(s, ep, slice_max(ep, req, s->off, x->total - s->off, rem));
		if (filled)
			req_advance(req, s->len);
	} else {
		filled = tail_fill(s, ep, rem);
	}
	if (!filled) {
		slice_free_locked(ep->rp, s);
		return NULL;
	}
	x->fragments++;
	if (x->cut == x->total + mce_tail_len(req)) {
		mc_list_remove(&x->node);
		x->queued = false;
	}
	return s;
}

/* The error with which the WRITE ends instead of being posted; 0: it may be posted. */
static int req_ended(struct mce_rdma_peer *rp, const struct mce_req *req)
{
	return req_is_outdated(rp, req) ? -ESTALE : req_is_refused(rp, req) ? -MC_ESTALE_PUT : 0;
}

/* Take a slice that was lost with another endpoint. */
static struct mce_rdma_slice *retry_take_locked(struct mce_rdma_ep *ep, bool writes, struct mc_list *over)
{
	struct mc_list *pos, *next;

	mc_list_for_each_safe(pos, next, &ep->rp->retry) {
		struct mce_rdma_slice *s = mc_container_of(pos, struct mce_rdma_slice, node);
		const struct mce_rdma_remote *rem = mce_rdma_remote_find_locked(ep->rp, s->req->rkey);
		int r = req_ended(ep->rp, s->req);

		if (r == 0 && ((s->write && !writes) || !rem || rem->stale || !ep_carries(ep, rem)))
			continue;
		mc_list_remove(pos);
		if (r == 0)
			return s;
		mce_rdma_slice_end_locked(ep->rp, s, r, over);
	}
	return NULL;
}

/* Cut no further slices of the request: it ends with its last slice in flight. */
static void req_unqueue_locked(struct mce_req *req, struct mc_list *over)
{
	mc_list_remove(&mce_reqx(req)->node);
	mce_reqx(req)->queued = false;
	req_check_over_locked(req, over);
}

struct mce_rdma_slice *mce_rdma_cut_locked(struct mce_rdma_ep *ep, struct mc_list *over)
{
	bool writes = !mce_rdma_write_waits_locked(ep->rp);
	struct mce_rdma_slice *s = retry_take_locked(ep, writes, over);
	struct mc_list *pos, *next;
	int r;

	if (s)
		return s;
	mc_list_for_each_safe(pos, next, &ep->rp->queue) {
		struct mce_req *req = mce_req_of(pos);
		const struct mce_rdma_remote *rem;

		r = req_ended(ep->rp, req);
		if (r < 0) {
			mce_reqx(req)->status = r;
			req_unqueue_locked(req, over);
			continue;
		}
		rem = mce_rdma_remote_find_locked(ep->rp, req->rkey);
		if (!rem || rem->stale || (!writes && req->op == MCE_WRITE) || !ep_carries(ep, rem))
			continue;
		s = req_cut_locked(ep, req, rem);
		if (s || mce_reqx(req)->status == 0)
			return s;
		req_unqueue_locked(req, over);
	}
	return NULL;
}

/* ---- requests ---------------------------------------------------------------------------------- */

/* Bits of the NICs near the first bytes of the request. */
static uint16_t req_nics(const struct mce_rdma_peer *rp, const struct mce_req *req)
{
	const struct iovec *iov = &req->iov[mce_reqx((struct mce_req *)(uintptr_t)req)->iov_idx];
	struct mce_mr *mr;
	uint16_t nics;

	if (mce_mr_get_at(rp->p->e, (uintptr_t)iov->iov_base, 1, 0, &mr) < 0)
		return 0;
	nics = (uint16_t)mr->nics;
	mce_mr_unref(mr);
	return nics;
}

void mce_rdma_enqueue_locked(struct mce_rdma_peer *rp, struct mce_req *req)
{
	struct mce_reqx *x = mce_reqx(req);

	x->cut = x->iov_off = 0;
	x->iov_idx = x->fragments = 0;
	x->queued = true;
	/* Skip empty entries at the beginning. */
	while (req->iov[x->iov_idx].iov_len == 0)
		x->iov_idx++;
	x->nics = req->nics;
	if (!x->nics && __atomic_load_n(&rp->r->picky, __ATOMIC_RELAXED))
		x->nics = req_nics(rp, req);
	mc_list_push_back(&rp->queue, &x->node);
	x->owner = &mce_rdma_transport;
	mce_req_move(req, MCE_AT_TRANSPORT);
	__atomic_store_n(&rp->fresh, true, __ATOMIC_RELAXED);
}

void mce_rdma_fail_locked(struct mce_rdma_peer *rp, int status, bool outdated_only, struct mc_list *over)
{
	struct mc_list *pos, *next;

	mc_list_for_each_safe(pos, next, &rp->retry) {
		struct mce_rdma_slice *s = mc_container_of(pos, struct mce_rdma_slice, node);

		if (outdated_only && !req_is_outdated(rp, s->req))
			continue;
		mc_list_remove(pos);
		mce_rdma_slice_end_locked(rp, s, status, over);
	}
	mc_list_for_each_safe(pos, next, &rp->queue) {
		struct mce_req *req = mce_req_of(pos);

		if (outdated_only && !req_is_outdated(rp, req))
			continue;
		if (mce_reqx(req)->status == 0)
			mce_reqx(req)->status = status;
		req_unqueue_locked(req, over);
	}
}

void mce_rdma_fail_region_locked(struct mce_rdma_peer *rp, uint64_t rkey, int status, struct mc_list *over)
{
	struct mc_list *pos, *next;

	mc_list_for_each_safe(pos, next, &rp->retry) {
		struct mce_rdma_slice *s = mc_container_of(pos, struct mce_rdma_slice, node);

		if (s->req->rkey != rkey)
			continue;
		mc_list_remove(pos);
		mce_rdma_slice_end_locked(rp, s, status, over);
	}
	mc_list_for_each_safe(pos, next, &rp->queue) {
		struct mce_req *req = mce_req_of(pos);

		if (req->rkey != rkey)
			continue;
		mce_reqx(req)->status = status;
		req_unqueue_locked(req, over);
	}
}

/* Return the request to the resolver's queue, as if no transport had taken it. */
static void req_return_locked(struct mce_rdma_peer *rp, struct mce_req *req)
{
	struct mce_reqx *x = mce_reqx(req);

	mc_list_remove(&x->node);
	x->queued = false;
	x->cut = x->iov_off = 0;
	x->iov_idx = 0;
	mce_req_move(req, MCE_AT_PENDING);
	mc_list_push_back(&rp->p->pending, &x->node);
}

void mce_rdma_return_locked(struct mce_rdma_peer *rp, struct mc_list *over)
{
	struct mc_list *pos, *next;

	mc_list_for_each_safe(pos, next, &rp->retry) {
		struct mce_rdma_slice *s = mc_container_of(pos, struct mce_rdma_slice, node);
		struct mce_req *req = s->req;
		struct mce_reqx *x = mce_reqx(req);

		mc_list_remove(pos);
		if (x->status < 0) {
			mce_rdma_slice_end_locked(rp, s, x->status, over);
			continue;
		}
		x->fragments--;
		slice_free_locked(rp, s);
		/* Otherwise the loop meets another slice of the request, or the next loop returns it. */
		if (x->fragments == 0 && !x->queued)
			req_return_locked(rp, req);
	}
	mc_list_for_each_safe(pos, next, &rp->queue)
		if (mce_reqx(mce_req_of(pos))->fragments == 0)
			req_return_locked(rp, mce_req_of(pos));
}

static bool stranded_locked(struct mce_rdma_peer *rp, const struct mce_req *req)
{
	const struct mce_rdma_remote *rem = mce_rdma_remote_find_locked(rp, req->rkey);

	return rem && !rem->stale && !mce_rdma_carries_locked(rp, rem);
}

void mce_rdma_return_stranded_locked(struct mce_rdma_peer *rp, struct mc_list *over)
{
	struct mc_list *pos, *next;

	mc_list_for_each_safe(pos, next, &rp->retry) {
		struct mce_rdma_slice *s = mc_container_of(pos, struct mce_rdma_slice, node);

		if (!stranded_locked(rp, s->req))
			continue;
		mc_list_remove(pos);
		mce_rdma_slice_end_locked(rp, s, -MC_ETRANSFER, over);
	}
	mc_list_for_each_safe(pos, next, &rp->queue)
		if (mce_reqx(mce_req_of(pos))->fragments == 0 && stranded_locked(rp, mce_req_of(pos)))
			req_return_locked(rp, mce_req_of(pos));
}

/* ---- slots of the transport --------------------------------------------------------------------- */

static bool same_host_locked(const struct mce_rdma_peer *rp)
{
	const struct mce_peer *p = rp->p;

	return p->local || (p->introduced && mce_id_same_host(&p->id, &p->e->id));
}

/* Returns 0, -EAGAIN, -MC_ENOTSUP, or ENDS: the request ends with *ret_status. */
enum { ENDS = 1 };
static int submit_locked(struct mce_rdma_peer *rp, struct mce_req *req, int *ret_status)
{
	const struct mce_rdma_remote *rem;
	struct mce_reqx *x = mce_reqx(req);

	*ret_status = x->status;
	if (rp->state == MCE_RDMA_OFF && x->status == 0 && rp->proto->only_path && mc_now_ms() >= rp->retry_ms)
		return -EAGAIN;
	if (rp->state == MCE_RDMA_OFF || x->total == 0 || (same_host_locked(rp) && !rp->p->e->conf.force_rdma))
		return -MC_ENOTSUP;
	if (x->status < 0)
		return ENDS;
	if (rp->state == MCE_RDMA_NEW)
		return -EAGAIN;
	rem = mce_rdma_remote_find_locked(rp, req->rkey);
	if (!rem)
		return -EAGAIN;
	*ret_status = mce_range_check(rem->base, rem->len, req->addr, mce_req_span(req));
	if (*ret_status == 0 && (rem->access & mce_req_access(req)) == 0)
		*ret_status = -EACCES;
	if (*ret_status == 0)
		*ret_status = req_ended(rp, req);
	if (*ret_status < 0)
		return ENDS;
	if (rem->nnics == 0 || (rp->nup && !rem->stale && !mce_rdma_carries_locked(rp, rem)))
		return -MC_ENOTSUP;
	mce_rdma_enqueue_locked(rp, req);
	/* A new session has no endpoint yet: connect. */
	if (rp->nup == 0)
		mce_rdma_kick_locked(rp);
	return 0;
}

/* The peer does not use RDMA now: traffic starts the next attempt when its time has come. */
static void probe_locked(struct mce_rdma_peer *rp)
{
	if (rp->state == MCE_RDMA_OFF && mc_now_ms() >= rp->retry_ms)
		mce_rdma_kick_locked(rp);
}

static int submit_one(struct mce_rdma_peer *rp, struct mce_req *req, int *ret_status)
{
	int r;

	MC_LOCKED(&rp->p->lock);
	r = submit_locked(rp, req, ret_status);
	if (r == ENDS)
		mce_req_move(req, MCE_AT_DONE);
	if (r == -MC_ENOTSUP)
		probe_locked(rp);
	return r;
}

int mce_rdma_submit(struct mce_peer *p, struct mce_req *req)
{
	struct mce_rdma_peer *rp = mce_rdma_peer_of(p);
	int r, status = 0;

	if (!rp || (mce_reqx(req)->gpu && !mce_rdma_direct(rp->r, req)))
		return -MC_ENOTSUP;
	r = submit_one(rp, req, &status);
	if (r != ENDS)
		return r;
	mce_complete(req, MCE_PATH_RDMA, status);
	return 0;
}

unsigned mce_rdma_submit_run(struct mce_peer *p, struct mce_req *reqs, unsigned n)
{
	struct mce_rdma_peer *rp = mce_rdma_peer_of(p);
	unsigned i = 0, direct = 0;
	int status;

	if (!rp)
		return 0;
	if (n && mce_reqx(reqs)->gpu) {
		while (direct < n && mce_rdma_direct(rp->r, &reqs[direct]))
			direct++;
		n = direct;
	}
	MC_LOCKED(&p->lock);
	/* The first request that is not queued here is offered again by itself. */
	while (i < n && mce_reqx(&reqs[i])->total && submit_locked(rp, &reqs[i], &status) == 0)
		i++;
	return i;
}

void mce_rdma_flush(struct mce_peer *p)
{
	struct mce_rdma_peer *rp = mce_rdma_peer_of(p);

	if (!rp || !__atomic_load_n(&rp->fresh, __ATOMIC_RELAXED))
		return;
	__atomic_store_n(&rp->fresh, false, __ATOMIC_RELAXED);
	mce_rdma_pump(rp);
}

static bool ep_has_locked(const struct mce_rdma_ep *ep, const struct mce_req *req)
{
	for (unsigned i = 0; i < ep->nqps; i++) {
		const struct mce_rdma_qp *qp = &ep->qp[i];

		for (uint32_t at = qp->tail; at != qp->head; at++)
			if (qp->ring[at & (qp->depth - 1)]->req == req)
				return true;
	}
	return false;
}

/* The NIC may be using the request's memory: break the endpoints that carry it.  The request ends when they are
 * flushed. */
void mce_rdma_cancel(struct mce_peer *p, struct mce_req *req, int status)
{
	struct mce_rdma_peer *rp = mce_rdma_peer_of(p);
	struct mce_reqx *x = mce_reqx(req);
	struct mc_list over, *pos, *next;

	mc_list_init(&over);
	mc_mutex_lock(&p->lock);
	if (mce_req_at(req) != MCE_AT_TRANSPORT || x->owner->path != MCE_PATH_RDMA)
		goto out;
	if (x->status == 0)
		x->status = status;
	if (x->queued) {
		mc_list_remove(&x->node);
		x->queued = false;
	}
	if (x->fragments == 0) {
		req_over_locked(req, &over);
		goto out;
	}
	mc_list_for_each_safe(pos, next, &rp->retry) {
		struct mce_rdma_slice *s = mc_container_of(pos, struct mce_rdma_slice, node);

		if (s->req != req)
			continue;
		mc_list_remove(pos);
		mce_rdma_slice_end_locked(rp, s, status, &over);
	}
	if (!mc_list_empty(&over))
		goto out;
	mc_list_for_each(pos, &rp->eps) {
		struct mce_rdma_ep *ep = mc_container_of(pos, struct mce_rdma_ep, node);

		if (ep_has_locked(ep, req))
			mce_rdma_ep_break_locked(ep);
	}
out:
	mc_mutex_unlock(&p->lock);
	mce_rdma_over(&over);
}
