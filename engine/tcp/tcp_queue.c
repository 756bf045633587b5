/* SPDX-License-Identifier: Apache-2.0
 * tcp_queue.c - requests, the pieces cut off them, and their ends.
 *
 * A piece that lost its lane is sent again over another.  A READ may go at once.  A WRITE must not:
 * the peer may still find it in the dead connection's socket later, when the range has been given to
 * somebody else.  It waits until the lost lane was greeted anew, because answering that greeting is how
 * the peer says that nothing of the old connection will be carried out any more. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "common/err.h"
#include "engine/tcp/tcp_client.h"

/* ---- positions --------------------------------------------------------------------------------- */

static void pos_advance(const struct mce_req *req, struct mce_iovpos *pos, uint64_t n)
{
	while (n) {
		uint64_t room = req->iov[pos->idx].iov_len - pos->off;

		if (n < room) {
			pos->off += n;
			return;
		}
		n -= room;
		pos->idx++;
		pos->off = 0;
	}
}

unsigned mce_fragment_iov(const struct mce_fragment *pc, struct iovec *iov, unsigned room, uint32_t max,
		       uint32_t *ret_bytes)
{
	const struct mce_req *req = pc->req;
	struct mce_iovpos pos = pc->at;
	uint32_t left = pc->len - pc->done, bytes = 0;
	unsigned n = 0;

	if (left > max)
		left = max;
	if (pc->tail && left && room) {
		iov[0].iov_base = (char *)req->crc + pc->first.off + pc->done;
		iov[0].iov_len = left;
		*ret_bytes = left;
		return 1;
	}
	for (; left && n < room; pos.idx++, pos.off = 0) {
		const struct iovec *from = &req->iov[pos.idx];
		uint64_t take = from->iov_len - pos.off;

		if (take == 0)
			continue;
		if (take > left)
			take = left;
		iov[n].iov_base = (char *)from->iov_base + pos.off;
		iov[n++].iov_len = take;
		left -= (uint32_t)take;
		bytes += (uint32_t)take;
	}
	*ret_bytes = bytes;
	return n;
}

void mce_fragment_advance(struct mce_fragment *pc, uint32_t n)
{
	pc->done += n;
	if (!pc->tail)
		pos_advance(pc->req, &pc->at, n);
}

/* ---- the table of pieces ----------------------------------------------------------------------- */

bool mce_fragments_grow_locked(struct mce_tcp *t)
{
	struct mce_fragment *pc;

	if (t->nchunks == t->nlanes * MCE_WIRE_WINDOW / MCE_PIECE_CHUNK)
		return false;
	pc = calloc(MCE_PIECE_CHUNK, sizeof(*pc));
	if (!pc)
		return false;
	for (unsigned i = 0; i < MCE_PIECE_CHUNK; i++) {
		pc[i].index = t->nchunks * MCE_PIECE_CHUNK + i;
		pc[i].lane = &t->lanes[0];
		mc_list_init(&pc[i].tx_node);
		mc_list_push_back(&t->free, &pc[i].node);
	}
	t->chunk[t->nchunks++] = pc;
	return true;
}

struct mce_fragment *mce_fragment_find_locked(struct mce_tcp *t, uint32_t index)
{
	if (index / MCE_PIECE_CHUNK >= t->nchunks)
		return NULL;
	return &t->chunk[index / MCE_PIECE_CHUNK][index % MCE_PIECE_CHUNK];
}

static bool have_free_locked(struct mce_tcp *t)
{
	return !mc_list_empty(&t->free) || mce_fragments_grow_locked(t);
}

/* ---- cutting ----------------------------------------------------------------------------------- */

static bool lane_has_room(const struct mce_tcp_conn *l, uint32_t len)
{
	return l->n < l->window && (l->n == 0 || l->bytes + len <= l->t->lane_bytes);
}

static void give_to_lane_locked(struct mce_fragment *pc, struct mce_tcp_conn *l)
{
	pc->gen++;
	pc->lane = l;
	pc->seq = pc->write ? ++l->seq : 0;
	l->t->proto->pack(pc);
	pc->state = MCE_PIECE_QUEUED;
	pc->done = pc->hdr_sent = pc->trail_sent = 0;
	pc->answered = pc->orphan = false;
	pc->at = pc->first;
	mc_list_remove(&pc->node);
	mc_list_push_back(&l->pieces, &pc->node);
	mc_list_push_back(&l->txq, &pc->tx_node);
	l->n++;
	l->bytes += pc->len;
	__atomic_fetch_add(&l->t->p->placed[l->io->place], pc->len, __ATOMIC_RELAXED);
}

/* A WRITE that waits until its lost lane is greeted anew. */
static bool is_fenced_off(const struct mce_fragment *pc)
{
	return pc->write && !pc->lane->t->proto->in_order && pc->lane->greeted <= pc->lost_epoch;
}

/* ---- doubt --------------------------------------------------------------------------------------
 *
 * A WRITE that has begun and whose request was cancelled, timed out or failed may still be carried out: its bytes are
 * in sockets, for as long as the link is down.  What is written to the same place afterwards must stay.  On the same
 * connection the peer keeps the order, so only the other lanes wait: until the peer has answered it, or, when its lane
 * was lost, until that is greeted anew, by which the peer lets go of the old connection. */

bool mce_tcp_conn_in_doubt_locked(const struct mce_tcp_conn *l)
{
	return l->orphans || (l->doubt_epoch && l->greeted <= l->doubt_epoch);
}

static void doubt_locked(struct mce_tcp_conn *l, uint32_t epoch)
{
	if (l->t->proto->in_order)
		return;
	if (epoch > l->doubt_epoch)
		l->doubt_epoch = epoch;
	l->t->doubts = true;
}

static bool has_begun(const struct mce_fragment *pc)
{
	return pc->write && (pc->state == MCE_PIECE_SENDING || pc->state == MCE_PIECE_FLYING);
}

bool mce_tcp_in_doubt_locked(struct mce_tcp *t)
{
	for (unsigned i = 0; t->doubts && i < t->nlanes; i++)
		if (mce_tcp_conn_in_doubt_locked(&t->lanes[i]))
			return true;
	t->doubts = false;
	return false;
}

/* Must the lane leave @req to others, or to later? */
static bool must_wait_locked(const struct mce_tcp_conn *l, const struct mce_req *req)
{
	struct mce_tcp *t = l->t;
	bool any = false, other = false;

	if (!t->doubts || req->op != MCE_WRITE)
		return false;
	for (unsigned i = 0; i < t->nlanes; i++) {
		bool is = mce_tcp_conn_in_doubt_locked(&t->lanes[i]);

		any |= is;
		other |= is && &t->lanes[i] != l;
	}
	t->doubts = any;
	return other;
}

static struct mce_fragment *retry_locked(struct mce_tcp_conn *l)
{
	struct mc_list *pos;

	mc_list_for_each(pos, &l->t->retry) {
		struct mce_fragment *pc = mc_container_of(pos, struct mce_fragment, node);

		if (is_fenced_off(pc))
			continue;
		return lane_has_room(l, pc->len) ? pc : NULL;
	}
	return NULL;
}

void mce_tcp_queue_locked(struct mce_tcp *t, struct mce_req *req, bool first)
{
	struct mce_reqx *x = mce_reqx(req);
	struct mc_list *queue = &t->queue[x->place + 1];

	x->queued = true;
	if (first)
		mc_list_push_front(queue, &x->node);
	else
		mc_list_push_back(queue, &x->node);
}

bool mce_tcp_queued_locked(const struct mce_tcp *t)
{
	for (unsigned i = 0; i <= t->p->e->nplaces; i++)
		if (!mc_list_empty(&t->queue[i]))
			return true;
	return false;
}

static bool place_has_lane_locked(const struct mce_tcp *t, unsigned place)
{
	for (unsigned i = 0; i < t->nlanes; i++)
		if (t->lanes[i].io->place == place && t->lanes[i].up && mce_tcp_conn_sends(&t->lanes[i]))
			return true;
	return false;
}

/* What the lane takes from: memory of its own place, in turns with what is all the same to it; of other places
 * only when no lane there is up.  NULL: there is nothing for it. */
static struct mc_list *queue_for_locked(struct mce_tcp_conn *l)
{
	struct mc_list *any = &l->t->queue[0], *own = any + 1 + l->io->place;
	unsigned n = l->t->p->e->nplaces;

	if (n == 0)
		return mc_list_empty(any) ? NULL : any;
	if (!mc_list_empty(any) && (l->others_turn || mc_list_empty(own)))
		return any;
	if (!mc_list_empty(own))
		return own;
	for (unsigned i = 0; i < n; i++)
		if (!mc_list_empty(any + 1 + i) && !place_has_lane_locked(l->t, i))
			return any + 1 + i;
	return NULL;
}

static void unqueue_locked(struct mce_reqx *x)
{
	if (x->queued)
		mc_list_remove(&x->node);
	x->queued = false;
}

static uint32_t next_len(struct mce_tcp_conn *l, struct mce_req *req)
{
	struct mce_reqx *x = mce_reqx(req);
	uint64_t len = x->total - x->cut, max = l->t->p->e->conf.stripe_bytes;

	if (max > l->len_max)
		max = l->len_max;
	if (len == 0)
		len = mce_tail_len(req) - x->iov_off;
	return (uint32_t)(len < max ? len : max);
}

/* Cut @len bytes, or the trailer when all data is cut, into the free piece @pc. */
static void cut_locked(struct mce_req *req, uint32_t len, struct mce_fragment *pc)
{
	struct mce_reqx *x = mce_reqx(req);

	pc->req = req;
	pc->write = req->op == MCE_WRITE;
	pc->tries = 0;
	pc->crc_done = 0;
	pc->len = len;
	pc->tail = x->cut == x->total;
	pc->first.idx = x->iov_idx;
	pc->first.off = x->iov_off;
	x->pieces++;
	if (pc->tail) {
		/* The data's last piece has left iov_off at 0; now it counts the trailer's bytes. */
		pc->off = mce_tail_off(req) + x->iov_off;
		x->iov_off += len;
		x->tail_left = x->iov_off < mce_tail_len(req);
	} else {
		struct mce_iovpos pos = pc->first;

		pc->off = x->cut;
		pos_advance(req, &pos, len);
		x->iov_idx = pos.idx;
		x->iov_off = pos.off;
		x->cut += len;
	}
	/* The trailer follows when the checksums are made, see mce_crc_made_locked(). */
	if (x->cut == x->total && (!x->tail_left || x->crc_left))
		unqueue_locked(x);
}

struct mce_fragment *mce_fragment_next_locked(struct mce_tcp_conn *l)
{
	struct mce_tcp *t = l->t;
	struct mc_list *queue;
	struct mce_fragment *pc;
	struct mce_req *req;
	uint32_t len;

	pc = retry_locked(l);
	if (!pc) {
		queue = queue_for_locked(l);
		if (!queue || !have_free_locked(t))
			return NULL;
		req = mce_req_of(queue->next);
		len = next_len(l, req);
		if (!lane_has_room(l, len) || must_wait_locked(l, req))
			return NULL;
		pc = mc_list_first(&t->free, struct mce_fragment, node);
		cut_locked(req, len, pc);
		l->others_turn = queue != &t->queue[0];
	}
	give_to_lane_locked(pc, l);
	return pc;
}

bool mce_tcp_conn_has_work_locked(struct mce_tcp_conn *l)
{
	struct mce_tcp *t = l->t;
	struct mc_list *queue;

	if (!l->up || !mce_tcp_conn_sends(l) || __atomic_load_n(&l->blocked, __ATOMIC_ACQUIRE))
		return false;
	if (!mc_list_empty(&l->txq) || retry_locked(l))
		return true;
	queue = queue_for_locked(l);
	if (!queue || !have_free_locked(t))
		return false;
	return lane_has_room(l, next_len(l, mce_req_of(queue->next))) &&
		!must_wait_locked(l, mce_req_of(queue->next));
}

void mce_crc_made_locked(struct mce_tcp *t, struct mce_req *req, uint64_t bytes)
{
	struct mce_reqx *x = mce_reqx(req);

	x->crc_left -= bytes;
	if (x->crc_left || !x->tail_left || x->cut < x->total || x->queued)
		return;
	mce_tcp_queue_locked(t, req, true);
}

/* ---- ending ------------------------------------------------------------------------------------ */

static void take_from_lane_locked(struct mce_fragment *pc)
{
	struct mce_tcp_conn *l = pc->lane;

	mc_list_remove(&pc->tx_node);
	mc_list_remove(&pc->node);
	l->n--;
	l->bytes -= pc->len;
}

static void free_locked(struct mce_fragment *pc)
{
	pc->req = NULL;
	pc->state = MCE_PIECE_FREE;
	/* Last used, first used again: its lines are in the cache. */
	mc_list_push_front(&pc->lane->t->free, &pc->node);
}

/* The request lost one piece, by its end or by cancelling. */
static struct mce_req *piece_gone_locked(struct mce_req *req, int status)
{
	struct mce_reqx *x = mce_reqx(req);

	x->pieces--;
	if (status < 0 && x->status == 0)
		x->status = status;
	if (x->status < 0) {
		unqueue_locked(x);
		x->cut = x->total;
		x->tail_left = false;
	}
	if (x->pieces || x->cut < x->total || x->tail_left)
		return NULL;
	mce_req_move(req, MCE_AT_DONE);
	return req;
}

struct mce_req *mce_fragment_end_locked(struct mce_fragment *pc, int status)
{
	struct mce_req *req = pc->req;

	if (pc->orphan)
		pc->lane->orphans--;
	take_from_lane_locked(pc);
	free_locked(pc);
	return req ? piece_gone_locked(req, status) : NULL;
}

void mce_complete_list(struct mce_tcp *t, struct mc_list *over)
{
	while (!mc_list_empty(over)) {
		struct mce_req *req = mce_req_of(over->next);

		mc_list_remove(over->next);
		mce_complete(req, t->proto->path, mce_reqx(req)->status);
	}
}

static void note_over(struct mce_req *req, struct mc_list *over)
{
	if (req)
		mc_list_push_back(over, &mce_reqx(req)->node);
}

static struct mce_fragment *find_write_locked(struct mce_tcp_conn *l, uint64_t seq)
{
	struct mc_list *pos;

	/* In the order of their numbers. */
	mc_list_for_each(pos, &l->pieces) {
		struct mce_fragment *pc = mc_container_of(pos, struct mce_fragment, node);

		if (pc->seq >= seq)
			return pc->seq == seq ? pc : NULL;
	}
	return NULL;
}

int mce_tcp_conn_acked_locked(struct mce_tcp_conn *l, uint64_t seq, struct mc_list *over)
{
	struct mce_fragment *last = seq ? find_write_locked(l, seq) : NULL;
	struct mc_list *pos, *next;

	/* Those before it were sent before it. */
	if (!last || last->state != MCE_PIECE_FLYING || last->answered)
		return mc_fail(-MC_EPROTO, "acknowledgement of what was not sent");
	mc_list_for_each_safe(pos, next, &l->pieces) {
		struct mce_fragment *pc = mc_container_of(pos, struct mce_fragment, node);

		if (pc->seq > seq)
			break;
		if (!pc->write || pc->answered)
			continue;
		if (pc->in_call) {
			pc->answered = true;
			pc->answer = 0;
		} else {
			note_over(mce_fragment_end_locked(pc, 0), over);
		}
	}
	return 0;
}

/* Is it worth another lane?  In order only the first may be to blame, by being refused without a word;
 * and unless it was the peer who closed the lane, nobody knows what it will carry out later. */
static bool try_again(struct mce_tcp_conn *l, struct mce_fragment *pc, bool first)
{
	if (!l->t->proto->in_order)
		return ++pc->tries < MCE_PIECE_TRIES;
	if (mce_tcp_conn_broken(l))
		return pc->state == MCE_PIECE_QUEUED;
	return l->refused || !first || ++pc->tries < MCE_PIECE_TRIES;
}

void mce_tcp_conn_lost_locked(struct mce_tcp_conn *l, int status, struct mc_list *over)
{
	struct mc_list *pos, *next;
	bool first = true;

	mc_list_for_each_safe(pos, next, &l->pieces) {
		struct mce_fragment *pc = mc_container_of(pos, struct mce_fragment, node);
		struct mce_reqx *x = pc->req ? mce_reqx(pc->req) : NULL;
		bool again = x && x->status == 0 && status == 0 && try_again(l, pc, first);

		first = false;
		if (!again && !pc->answered && has_begun(pc))
			doubt_locked(l, l->epoch);
		if (pc->answered && pc->answer < 0)
			note_over(mce_fragment_end_locked(pc, pc->answer), over);
		else if (!again)
			note_over(mce_fragment_end_locked(pc, status < 0 ? status : -MC_ETRANSFER), over);
		if (!again || (pc->answered && pc->answer < 0))
			continue;
		take_from_lane_locked(pc);
		pc->state = MCE_PIECE_RETRY;
		pc->lost_epoch = l->epoch;
		mc_list_push_back(&l->t->retry, &pc->node);
	}
}

/* A piece of the retry list ends. */
static struct mce_req *retry_end_locked(struct mce_fragment *pc, int status)
{
	struct mce_req *req = pc->req;

	if (is_fenced_off(pc))
		doubt_locked(pc->lane, pc->lost_epoch);
	mc_list_remove(&pc->node);
	free_locked(pc);
	return piece_gone_locked(req, status);
}

/* A queued request is not cut any further. */
static struct mce_req *queue_end_locked(struct mce_req *req, int status)
{
	struct mce_reqx *x = mce_reqx(req);

	x->pieces++;
	if (x->status == 0)
		x->status = status;
	return piece_gone_locked(req, status);
}

void mce_queue_fail_locked(struct mce_tcp *t, struct mce_tcp_conn *l, int status, struct mc_list *over)
{
	struct mc_list *pos, *next;

	mc_list_for_each_safe(pos, next, &t->retry) {
		struct mce_fragment *pc = mc_container_of(pos, struct mce_fragment, node);

		if (!l || (pc->lane == l && is_fenced_off(pc)))
			note_over(retry_end_locked(pc, status), over);
	}
	for (unsigned i = 0; (!l || mce_tcp_conn_in_doubt_locked(l)) && i <= t->p->e->nplaces; i++)
		mc_list_for_each_safe(pos, next, &t->queue[i])
			if (!l || mce_req_of(pos)->op == MCE_WRITE)
				note_over(queue_end_locked(mce_req_of(pos), status), over);
}

void mce_queue_fail(struct mce_tcp *t, struct mce_tcp_conn *l, int status)
{
	struct mc_list over;

	mc_list_init(&over);
	pthread_mutex_lock(&t->p->lock);
	mce_queue_fail_locked(t, l, status, &over);
	pthread_mutex_unlock(&t->p->lock);
	mce_complete_list(t, &over);
	mce_tcp_wait_tell(t);
}

/* ---- cancelling -------------------------------------------------------------------------------- */

/* With both locks of the lane: no system call is in the piece's memory. */
static void cancel_piece_locked(struct mce_fragment *pc, int status, struct mc_list *over)
{
	struct mce_req *req = pc->req;

	if (pc->state == MCE_PIECE_QUEUED && pc != pc->lane->cur) {
		note_over(mce_fragment_end_locked(pc, status), over);
		return;
	}
	/* Answered before it was asked for, since the call that was to send it took nothing.  The lane receives into
	 * it, so it is not to be another's until the lane has gone. */
	if (pc->state == MCE_PIECE_QUEUED)
		mce_tcp_conn_break(pc->lane);
	/* A payload that is half sent cannot be finished without the memory. */
	if (pc->state == MCE_PIECE_SENDING && pc->write && pc->done < pc->len)
		mce_tcp_conn_cut_off(pc->lane);
	/* What still comes for it is thrown away. */
	pc->req = NULL;
	if (pc->write && !pc->answered && !pc->lane->t->proto->in_order) {
		pc->orphan = true;
		pc->lane->orphans++;
		pc->lane->t->doubts = true;
	}
	note_over(piece_gone_locked(req, status), over);
}

static void cancel_on_lane(struct mce_tcp_conn *l, struct mce_req *req, int status, struct mc_list *over)
{
	struct mc_list *pos, *next;

	pthread_mutex_lock(&l->tx_lock);
	pthread_mutex_lock(&l->rx_lock);
	pthread_mutex_lock(&l->t->p->lock);
	mc_list_for_each_safe(pos, next, &l->pieces) {
		struct mce_fragment *pc = mc_container_of(pos, struct mce_fragment, node);

		if (pc->req == req)
			cancel_piece_locked(pc, status, over);
	}
	pthread_mutex_unlock(&l->t->p->lock);
	pthread_mutex_unlock(&l->rx_lock);
	pthread_mutex_unlock(&l->tx_lock);
}

void mce_tcp_cancel(struct mce_peer *p, struct mce_req *req, int status)
{
	struct mce_reqx *x = mce_reqx(req);
	struct mce_tcp *t = p->tcp;
	struct mc_list over, *pos, *next;
	bool mine;

	mc_list_init(&over);
	pthread_mutex_lock(&p->lock);
	mine = mce_req_at(req) == MCE_AT_TRANSPORT;
	if (mine) {
		/* From here on it gets no new pieces, and those that lose their lane end. */
		x->pieces++;
		if (x->status == 0)
			x->status = status;
		mc_list_for_each_safe(pos, next, &t->retry) {
			struct mce_fragment *pc = mc_container_of(pos, struct mce_fragment, node);

			if (pc->req == req)
				retry_end_locked(pc, status);
		}
		note_over(piece_gone_locked(req, status), &over);
	}
	/* Only the pieces' locks keep the request from ending meanwhile; it is still the caller's. */
	mine = mine && mc_list_empty(&over);
	pthread_mutex_unlock(&p->lock);
	for (unsigned i = 0; mine && i < t->nlanes; i++)
		cancel_on_lane(&t->lanes[i], req, status, &over);
	mce_complete_list(t, &over);
	mce_tcp_wait_tell(t);
	/* Who wanted to send meanwhile has left it to us. */
	mce_tcp_conns_pump(t);
}
