/* SPDX-License-Identifier: Apache-2.0
 * tcp_queue.c - the queue of requests, and their fragments from cutting to their end.
 *
 * A fragment that lost its connection is sent again over another one.  A READ may be sent at once.  A WRITE must not:
 * the peer may still find the first copy in the dead connection's socket later, when the range has been given to
 * another writer.  It waits until the lost connection was greeted again, because with the answer to that greeting
 * the peer confirms that it will carry out nothing more of the old connection. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "common/err.h"
#include "engine/tcp/tcp_client.h"

/* ---- positions --------------------------------------------------------------------------------- */

static void iovpos_advance(const struct mce_req *req, struct mce_iovpos *pos, uint64_t n)
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

unsigned mce_fragment_iov(const struct mce_fragment *frag, struct iovec *iov, unsigned room, uint32_t max,
		       uint32_t *ret_bytes)
{
	const struct mce_req *req = frag->req;
	struct mce_iovpos pos = frag->at;
	uint32_t left = frag->len - frag->done, bytes = 0;
	unsigned n = 0;

	if (left > max)
		left = max;
	if (frag->tail && left && room) {
		iov[0].iov_base = (char *)req->crc + frag->first.off + frag->done;
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

void mce_fragment_advance(struct mce_fragment *frag, uint32_t n)
{
	frag->done += n;
	if (!frag->tail)
		iovpos_advance(frag->req, &frag->at, n);
}

/* ---- the table of fragments -------------------------------------------------------------------- */

bool mce_fragments_grow_locked(struct mce_tcp *t)
{
	struct mce_fragment *frag;

	if (t->nchunks == t->nconns * MCE_WIRE_WINDOW / MCE_FRAGMENT_CHUNK)
		return false;
	frag = calloc(MCE_FRAGMENT_CHUNK, sizeof(*frag));
	if (!frag)
		return false;
	for (unsigned i = 0; i < MCE_FRAGMENT_CHUNK; i++) {
		frag[i].index = t->nchunks * MCE_FRAGMENT_CHUNK + i;
		frag[i].conn = &t->conns[0];
		mc_list_init(&frag[i].tx_node);
		mc_list_push_back(&t->free, &frag[i].node);
	}
	t->chunk[t->nchunks++] = frag;
	return true;
}

struct mce_fragment *mce_fragment_find_locked(struct mce_tcp *t, uint32_t index)
{
	if (index / MCE_FRAGMENT_CHUNK >= t->nchunks)
		return NULL;
	return &t->chunk[index / MCE_FRAGMENT_CHUNK][index % MCE_FRAGMENT_CHUNK];
}

static bool fragments_have_free_locked(struct mce_tcp *t)
{
	return !mc_list_empty(&t->free) || mce_fragments_grow_locked(t);
}

/* ---- cutting ----------------------------------------------------------------------------------- */

static bool conn_has_room(const struct mce_tcp_conn *conn, uint32_t len)
{
	return conn->n < conn->window && (conn->n == 0 || conn->bytes + len <= conn->t->conn_bytes);
}

static void fragment_give_locked(struct mce_fragment *frag, struct mce_tcp_conn *conn)
{
	frag->gen++;
	frag->conn = conn;
	frag->seq = frag->write ? ++conn->seq : 0;
	conn->t->proto->pack(frag);
	frag->state = MCE_FRAGMENT_QUEUED;
	frag->done = frag->hdr_sent = frag->trail_sent = 0;
	frag->answered = frag->orphan = false;
	frag->at = frag->first;
	mc_list_remove(&frag->node);
	mc_list_push_back(&conn->fragments, &frag->node);
	mc_list_push_back(&conn->txq, &frag->tx_node);
	conn->n++;
	conn->bytes += frag->len;
	__atomic_fetch_add(&conn->t->p->numa_bytes[conn->io->numa], frag->len, __ATOMIC_RELAXED);
}

/* A WRITE that waits until its lost connection is greeted again. */
static bool fragment_is_fenced(const struct mce_fragment *frag)
{
	return frag->write && !frag->conn->t->proto->in_order && frag->conn->greeted <= frag->lost_epoch;
}

/* ---- WRITEs in doubt ----------------------------------------------------------------------------
 *
 * A WRITE that has begun and whose request was cancelled, timed out or failed may still be carried out: its bytes are
 * in sockets, for as long as the link is down.  It must not overwrite later WRITEs to the same range.  On the same
 * connection the peer keeps the order, so only the other connections wait: until the peer has answered the WRITE, or,
 * when its connection was lost, until that is greeted again, which makes the peer drop the old connection. */

bool mce_tcp_conn_in_doubt_locked(const struct mce_tcp_conn *conn)
{
	return conn->orphans || (conn->doubt_epoch && conn->greeted <= conn->doubt_epoch);
}

static void conn_doubt_locked(struct mce_tcp_conn *conn, uint32_t epoch)
{
	if (conn->t->proto->in_order)
		return;
	if (epoch > conn->doubt_epoch)
		conn->doubt_epoch = epoch;
	conn->t->p->doubts = true;
}

static bool fragment_has_begun(const struct mce_fragment *frag)
{
	return frag->write && (frag->state == MCE_FRAGMENT_SENDING || frag->state == MCE_FRAGMENT_FLYING);
}

static bool others_in_doubt_locked(const struct mce_tcp *t, const struct mce_tcp_conn *conn)
{
	for (unsigned i = 0; i < t->nconns; i++)
		if (&t->conns[i] != conn && mce_tcp_conn_in_doubt_locked(&t->conns[i]))
			return true;
	return false;
}

bool mce_tcp_writes_in_doubt(struct mce_peer *p)
{
	return others_in_doubt_locked(mce_tcp_of(p), NULL);
}

/* A WRITE of another session than the connection was greeted for: an owner that fences that session would not find
 * the WRITE on this connection.  mce_tcp_new_fence() ends one of the two. */
static bool conn_is_of_other_session(const struct mce_tcp_conn *conn, const struct mce_req *req)
{
	return req->op == MCE_WRITE && req->fence && req->fence != conn->fence;
}

/* Must the connection leave @req to another one, or wait? */
static bool conn_must_wait_locked(const struct mce_tcp_conn *conn, const struct mce_req *req)
{
	struct mce_tcp *t = conn->t;

	if (conn_is_of_other_session(conn, req))
		return true;
	if (!t->p->doubts || req->op != MCE_WRITE)
		return false;
	return mce_peer_in_doubt_locked(t->p, t->proto->path) || others_in_doubt_locked(t, conn);
}

/* The first fragment to retry that may be sent now, if the connection has room for it. */
static struct mce_fragment *fragment_retry_locked(struct mce_tcp_conn *conn)
{
	struct mc_list *pos;

	mc_list_for_each(pos, &conn->t->retry) {
		struct mce_fragment *frag = mc_container_of(pos, struct mce_fragment, node);

		if (fragment_is_fenced(frag) || conn_is_of_other_session(conn, frag->req))
			continue;
		return conn_has_room(conn, frag->len) ? frag : NULL;
	}
	return NULL;
}

void mce_tcp_queue_locked(struct mce_tcp *t, struct mce_req *req, bool first)
{
	struct mce_reqx *x = mce_reqx(req);
	struct mc_list *queue = &t->queue[x->numa + 1];

	x->queued = true;
	if (first)
		mc_list_push_front(queue, &x->node);
	else
		mc_list_push_back(queue, &x->node);
}

bool mce_tcp_queued_locked(const struct mce_tcp *t)
{
	for (unsigned i = 0; i <= t->p->e->numa_nodes; i++)
		if (!mc_list_empty(&t->queue[i]))
			return true;
	return false;
}

static bool numa_has_conn_locked(const struct mce_tcp *t, unsigned numa)
{
	for (unsigned i = 0; i < t->nconns; i++)
		if (t->conns[i].io->numa == numa && t->conns[i].up && mce_tcp_conn_sends(&t->conns[i]))
			return true;
	return false;
}

/* The queue from which the connection takes: requests of its own NUMA node and those without one in turns; those of
 * another node only when no connection of that node is up.  NULL: there is no request for it. */
static struct mc_list *queue_for_locked(struct mce_tcp_conn *conn)
{
	struct mc_list *any = &conn->t->queue[0], *own = any + 1 + conn->io->numa;
	unsigned n = conn->t->p->e->numa_nodes;

	if (n == 0)
		return mc_list_empty(any) ? NULL : any;
	if (!mc_list_empty(any) && (conn->any_turn || mc_list_empty(own)))
		return any;
	if (!mc_list_empty(own))
		return own;
	for (unsigned i = 0; i < n; i++)
		if (!mc_list_empty(any + 1 + i) && !numa_has_conn_locked(conn->t, i))
			return any + 1 + i;
	return NULL;
}

static void queue_remove_locked(struct mce_reqx *x)
{
	if (x->queued)
		mc_list_remove(&x->node);
	x->queued = false;
}

static uint32_t queue_next_len(struct mce_tcp_conn *conn, struct mce_req *req)
{
	struct mce_reqx *x = mce_reqx(req);
	uint64_t len = x->total - x->cut, max = conn->t->p->e->conf.stripe_bytes;

	if (max > conn->len_max)
		max = conn->len_max;
	if (req->op == MCE_READ && max > MCE_READ_MAX)
		max = MCE_READ_MAX;
	if (len == 0)
		len = mce_tail_len(req) - x->iov_off;
	return (uint32_t)(len < max ? len : max);
}

/* Cut @len bytes, or the trailer when all data is cut, into the free fragment @frag. */
static void fragment_cut_locked(struct mce_req *req, uint32_t len, struct mce_fragment *frag)
{
	struct mce_reqx *x = mce_reqx(req);

	frag->req = req;
	frag->write = req->op == MCE_WRITE;
	frag->tries = 0;
	frag->crc_done = 0;
	frag->len = len;
	frag->tail = x->cut == x->total;
	frag->first.idx = x->iov_idx;
	frag->first.off = x->iov_off;
	x->fragments++;
	if (frag->tail) {
		/* The data's last fragment has left iov_off at 0; now it counts the trailer's bytes. */
		frag->off = mce_tail_off(req) + x->iov_off;
		x->iov_off += len;
		x->tail_left = x->iov_off < mce_tail_len(req);
	} else {
		struct mce_iovpos pos = frag->first;

		frag->off = x->cut;
		iovpos_advance(req, &pos, len);
		x->iov_idx = pos.idx;
		x->iov_off = pos.off;
		x->cut += len;
	}
	/* The trailer is cut when the checksums are computed, see mce_crc_made_locked(). */
	if (x->cut == x->total && (!x->tail_left || x->crc_left))
		queue_remove_locked(x);
}

struct mce_fragment *mce_fragment_next_locked(struct mce_tcp_conn *conn)
{
	struct mce_tcp *t = conn->t;
	struct mc_list *queue;
	struct mce_fragment *frag;
	struct mce_req *req;
	uint32_t len;

	frag = fragment_retry_locked(conn);
	if (!frag) {
		queue = queue_for_locked(conn);
		if (!queue || !fragments_have_free_locked(t))
			return NULL;
		req = mce_req_of(queue->next);
		len = queue_next_len(conn, req);
		if (!conn_has_room(conn, len) || conn_must_wait_locked(conn, req))
			return NULL;
		frag = mc_list_first(&t->free, struct mce_fragment, node);
		fragment_cut_locked(req, len, frag);
		conn->any_turn = queue != &t->queue[0];
	}
	fragment_give_locked(frag, conn);
	return frag;
}

bool mce_tcp_conn_has_work_locked(struct mce_tcp_conn *conn)
{
	struct mce_tcp *t = conn->t;
	struct mc_list *queue;

	if (!conn->up || !mce_tcp_conn_sends(conn) || __atomic_load_n(&conn->blocked, __ATOMIC_ACQUIRE))
		return false;
	if (!mc_list_empty(&conn->txq) || fragment_retry_locked(conn))
		return true;
	queue = queue_for_locked(conn);
	if (!queue || !fragments_have_free_locked(t))
		return false;
	return conn_has_room(conn, queue_next_len(conn, mce_req_of(queue->next))) &&
		!conn_must_wait_locked(conn, mce_req_of(queue->next));
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

static void fragment_take_locked(struct mce_fragment *frag)
{
	struct mce_tcp_conn *conn = frag->conn;

	mc_list_remove(&frag->tx_node);
	mc_list_remove(&frag->node);
	conn->n--;
	conn->bytes -= frag->len;
}

static void fragment_free_locked(struct mce_fragment *frag)
{
	frag->req = NULL;
	frag->state = MCE_FRAGMENT_FREE;
	/* Last in, first out: its lines are in the cache. */
	mc_list_push_front(&frag->conn->t->free, &frag->node);
}

/* The request has one fragment less.  Returns it when that was the last. */
static struct mce_req *fragment_gone_locked(struct mce_req *req, int status)
{
	struct mce_reqx *x = mce_reqx(req);

	x->fragments--;
	if (status < 0 && x->status == 0)
		x->status = status;
	if (x->status < 0) {
		queue_remove_locked(x);
		x->cut = x->total;
		x->tail_left = false;
	}
	if (x->fragments || x->cut < x->total || x->tail_left)
		return NULL;
	mce_req_move(req, MCE_AT_DONE);
	return req;
}

struct mce_req *mce_fragment_end_locked(struct mce_fragment *frag, int status)
{
	struct mce_req *req = frag->req;

	if (frag->orphan)
		frag->conn->orphans--;
	fragment_take_locked(frag);
	fragment_free_locked(frag);
	return req ? fragment_gone_locked(req, status) : NULL;
}

void mce_complete_list(struct mce_tcp *t, struct mc_list *over)
{
	while (!mc_list_empty(over)) {
		struct mce_req *req = mce_req_of(over->next);

		mc_list_remove(over->next);
		mce_complete(req, t->proto->path, mce_reqx(req)->status);
	}
}

static void over_add(struct mce_req *req, struct mc_list *over)
{
	if (req)
		mc_list_push_back(over, &mce_reqx(req)->node);
}

static struct mce_fragment *conn_find_write_locked(struct mce_tcp_conn *conn, uint64_t seq)
{
	struct mc_list *pos;

	/* The list is in the order of the numbers. */
	mc_list_for_each(pos, &conn->fragments) {
		struct mce_fragment *frag = mc_container_of(pos, struct mce_fragment, node);

		if (frag->seq >= seq)
			return frag->seq == seq ? frag : NULL;
	}
	return NULL;
}

int mce_tcp_conn_acked_locked(struct mce_tcp_conn *conn, uint64_t seq, struct mc_list *over)
{
	struct mce_fragment *last = seq ? conn_find_write_locked(conn, seq) : NULL;
	struct mc_list *pos, *next;

	/* The WRITEs before it were sent before it. */
	if (!last || last->state != MCE_FRAGMENT_FLYING || last->answered)
		return mc_fail(-MC_EPROTO, "acknowledgement of a WRITE that was not sent");
	mc_list_for_each_safe(pos, next, &conn->fragments) {
		struct mce_fragment *frag = mc_container_of(pos, struct mce_fragment, node);

		if (frag->seq > seq)
			break;
		if (!frag->write || frag->answered)
			continue;
		if (frag->in_call) {
			frag->answered = true;
			frag->answer = 0;
		} else {
			over_add(mce_fragment_end_locked(frag, 0), over);
		}
	}
	return 0;
}

/* Is the fragment worth another connection?  in_order: the first fragment may have caused the loss, if the peer
 * refused it without an answer.  And unless the peer has closed the connection, it may still carry out the
 * fragments that have begun. */
static bool fragment_try_again(struct mce_tcp_conn *conn, struct mce_fragment *frag, bool first)
{
	if (!conn->t->proto->in_order)
		return ++frag->tries < MCE_FRAGMENT_TRIES;
	/* The connection may have stalled before the fragment was sent on it.  A READ that is carried out twice does no
	 * harm, so it is sent again. */
	if (mce_tcp_conn_broken(conn))
		return frag->state == MCE_FRAGMENT_QUEUED || (!frag->write && ++frag->tries < MCE_FRAGMENT_TRIES);
	return conn->refused || !first || ++frag->tries < MCE_FRAGMENT_TRIES;
}

void mce_tcp_conn_lost_locked(struct mce_tcp_conn *conn, int status, struct mc_list *over)
{
	struct mc_list *pos, *next;
	bool first = true;

	mc_list_for_each_safe(pos, next, &conn->fragments) {
		struct mce_fragment *frag = mc_container_of(pos, struct mce_fragment, node);
		struct mce_reqx *x = frag->req ? mce_reqx(frag->req) : NULL;
		bool again = x && x->status == 0 && status == 0 && !mce_tcp_outdated(conn->t, frag->req) &&
			     fragment_try_again(conn, frag, first);

		first = false;
		if (!again && !frag->answered && fragment_has_begun(frag))
			conn_doubt_locked(conn, conn->epoch);
		if (frag->answered && frag->answer < 0)
			over_add(mce_fragment_end_locked(frag, frag->answer), over);
		else if (!again)
			over_add(mce_fragment_end_locked(frag, status < 0 ? status : -MC_ETRANSFER), over);
		if (!again || (frag->answered && frag->answer < 0))
			continue;
		fragment_take_locked(frag);
		frag->state = MCE_FRAGMENT_RETRY;
		frag->lost_epoch = conn->epoch;
		mc_list_push_back(&conn->t->retry, &frag->node);
	}
}

/* End a fragment of the retry list. */
static struct mce_req *fragment_retry_end_locked(struct mce_fragment *frag, int status)
{
	struct mce_req *req = frag->req;

	if (fragment_is_fenced(frag))
		conn_doubt_locked(frag->conn, frag->lost_epoch);
	mc_list_remove(&frag->node);
	fragment_free_locked(frag);
	return fragment_gone_locked(req, status);
}

/* End a queued request: it is not cut any further. */
static struct mce_req *queue_end_locked(struct mce_req *req, int status)
{
	struct mce_reqx *x = mce_reqx(req);

	x->fragments++;
	if (x->status == 0)
		x->status = status;
	return fragment_gone_locked(req, status);
}

void mce_queue_fail_locked(struct mce_tcp *t, struct mce_tcp_conn *conn, int status, struct mc_list *over)
{
	struct mc_list *pos, *next;

	mc_list_for_each_safe(pos, next, &t->retry) {
		struct mce_fragment *frag = mc_container_of(pos, struct mce_fragment, node);

		if (!conn || (frag->conn == conn && fragment_is_fenced(frag)))
			over_add(fragment_retry_end_locked(frag, status), over);
	}
	for (unsigned i = 0; (!conn || mce_tcp_conn_in_doubt_locked(conn)) && i <= t->p->e->numa_nodes; i++)
		mc_list_for_each_safe(pos, next, &t->queue[i])
			if (!conn || mce_req_of(pos)->op == MCE_WRITE)
				over_add(queue_end_locked(mce_req_of(pos), status), over);
}

void mce_queue_fail(struct mce_tcp *t, struct mce_tcp_conn *conn, int status)
{
	struct mc_list over;

	mc_list_init(&over);
	mc_mutex_lock(&t->p->lock);
	mce_queue_fail_locked(t, conn, status, &over);
	mc_mutex_unlock(&t->p->lock);
	mce_complete_list(t, &over);
	mce_tcp_wait_notify(t);
}

/* End the WRITEs of earlier sessions that wait.  Those that are on a connection end with it: every connection of an
 * earlier session is made again. */
void mce_tcp_new_fence(struct mce_peer *p)
{
	struct mce_tcp *t = mce_tcp_of(p);
	struct mc_list over, *pos, *next;

	mc_list_init(&over);
	mc_mutex_lock(&p->lock);
	/* The owner knows a same-host peer by its TCP connections, so these come first again. */
	p->introduced = false;
	mc_list_for_each_safe(pos, next, &t->retry) {
		struct mce_fragment *frag = mc_container_of(pos, struct mce_fragment, node);

		if (mce_tcp_outdated(t, frag->req))
			over_add(fragment_retry_end_locked(frag, -ESTALE), &over);
	}
	for (unsigned i = 0; i <= p->e->numa_nodes; i++)
		mc_list_for_each_safe(pos, next, &t->queue[i])
			if (mce_tcp_outdated(t, mce_req_of(pos)))
				over_add(queue_end_locked(mce_req_of(pos), -ESTALE), &over);
	mc_mutex_unlock(&p->lock);
	mce_complete_list(t, &over);
	mce_tcp_wait_notify(t);
	mce_tcp_conns_renew(t);
}

/* ---- cancelling -------------------------------------------------------------------------------- */

/* With both locks of the connection: no system call uses the fragment's memory. */
static void fragment_cancel_locked(struct mce_fragment *frag, int status, struct mc_list *over)
{
	struct mce_req *req = frag->req;

	if (frag->state == MCE_FRAGMENT_QUEUED && frag != frag->conn->cur) {
		over_add(mce_fragment_end_locked(frag, status), over);
		return;
	}
	/* The peer answered before the request was sent: it guessed the id, and the sending call took nothing.  The
	 * connection is already receiving into this fragment, so do not reuse the fragment until the connection is
	 * closed. */
	if (frag->state == MCE_FRAGMENT_QUEUED)
		mce_tcp_conn_break(frag->conn);
	/* A partly sent payload cannot be finished without the memory. */
	if (frag->state == MCE_FRAGMENT_SENDING && frag->write && frag->done < frag->len)
		mce_tcp_conn_cut_off(frag->conn);
	/* Payload that still arrives for it is discarded. */
	frag->req = NULL;
	if (frag->write && !frag->answered && !frag->conn->t->proto->in_order) {
		frag->orphan = true;
		frag->conn->orphans++;
		frag->conn->t->p->doubts = true;
	}
	over_add(fragment_gone_locked(req, status), over);
}

static void cancel_on_conn(struct mce_tcp_conn *conn, struct mce_req *req, int status, struct mc_list *over)
{
	struct mc_list *pos, *next;

	mc_mutex_lock(&conn->tx_lock);
	mc_mutex_lock(&conn->rx_lock);
	mc_mutex_lock(&conn->t->p->lock);
	mc_list_for_each_safe(pos, next, &conn->fragments) {
		struct mce_fragment *frag = mc_container_of(pos, struct mce_fragment, node);

		if (frag->req == req)
			fragment_cancel_locked(frag, status, over);
	}
	mc_mutex_unlock(&conn->t->p->lock);
	mc_mutex_unlock(&conn->rx_lock);
	mc_mutex_unlock(&conn->tx_lock);
}

void mce_tcp_cancel(struct mce_peer *p, struct mce_req *req, int status)
{
	struct mce_reqx *x = mce_reqx(req);
	struct mce_tcp *t = mce_tcp_of(p);
	struct mc_list over, *pos, *next;
	bool mine;

	mc_list_init(&over);
	mc_mutex_lock(&p->lock);
	mine = mce_req_at(req) == MCE_AT_TRANSPORT;
	if (mine) {
		/* The request gets no new fragments from here on, and its fragments that lose their connection end. */
		x->fragments++;
		if (x->status == 0)
			x->status = status;
		mc_list_for_each_safe(pos, next, &t->retry) {
			struct mce_fragment *frag = mc_container_of(pos, struct mce_fragment, node);

			if (frag->req == req)
				fragment_retry_end_locked(frag, status);
		}
		over_add(fragment_gone_locked(req, status), &over);
	}
	/* After the unlock the answers to its fragments may end the request; our caller keeps it allocated. */
	mine = mine && mc_list_empty(&over);
	mc_mutex_unlock(&p->lock);
	for (unsigned i = 0; mine && i < t->nconns; i++)
		cancel_on_conn(&t->conns[i], req, status, &over);
	mce_complete_list(t, &over);
	mce_tcp_wait_notify(t);
	/* Threads that could not get a tx_lock meanwhile rely on us to send. */
	mce_tcp_conns_pump(t);
}
