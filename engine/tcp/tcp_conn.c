/* SPDX-License-Identifier: Apache-2.0
 * tcp_conn.c - sending and receiving on outgoing connections.
 *
 * The thread that submits a request sends it, on a connection on which no other thread is sending; the I/O thread
 * continues only when the socket is full.  Likewise a thread that waits for completions receives them itself while
 * it polls.  All bytes move in non-blocking calls under the connection's locks, so a thread that holds the locks
 * knows that no call uses a request's memory. */
#include <config.h>

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/metrics.h"
#include "engine/tcp/tcp_client.h"

/* Rounds of sending in a submitting thread before the I/O thread takes over. */
#define PUMP_ROUNDS 64
/* Bytes received before new requests are sent in their place: half of the bytes in flight, so that the
 * peer has data to send meanwhile and is not woken for small amounts.  TURN: before other connections have theirs. */
#define QUANTUM (MCE_TCP_CONN_BYTES / 2)
#define TURN (4u << 20)
/* Consecutive lost connections to an in_order peer after which all waiting requests fail. */
#define LOST_MAX 16u

MC_GAUGE(conns_out, "mooncake_transfer_lanes", "direction=\"out\"", "Open TCP connections between engines")

void mce_tcp_conn_count(int n)
{
	mc_metric_add(&conns_out, n);
}

/* ---- sending ----------------------------------------------------------------------------------- */

/* The part of one fragment that one call sends. */
struct tx_entry {
	struct mce_fragment *frag;
	uint32_t hdr, payload, trail;
	bool whole;		/* all the rest of the fragment */
};

/* The fragments that one call sends. */
struct tx_batch {
	struct iovec iov[MCE_SEND_IOV];
	struct tx_entry entry[MCE_SEND_IOV];
	unsigned niov, n;
	uint32_t bytes;
};

/* Compute the checksums of the bytes that this call will send, which brings them into the cache for it. */
static uint32_t fragment_make_crc(struct mce_fragment *frag, const struct iovec *iov, unsigned n)
{
	const struct mce_req *req = frag->req;
	uint32_t pos = frag->done, made = 0;

	if (!req->crc || frag->tail)
		return 0;
	for (unsigned i = 0; i < n; i++) {
		uint32_t len = (uint32_t)iov[i].iov_len, skip = 0;

		if (pos < frag->crc_done)
			skip = frag->crc_done - pos < len ? frag->crc_done - pos : len;
		mce_crc_feed(frag->req, frag->off + pos + skip, (char *)iov[i].iov_base + skip, len - skip);
		made += len - skip;
		pos += len;
	}
	if (pos > frag->crc_done)
		frag->crc_done = pos;
	return made;
}

/* Add as much of @frag as fits; false when there is no room for more. */
static bool tx_batch_add(struct tx_batch *batch, struct mce_fragment *frag, uint32_t *ret_crc)
{
	const struct mce_tcp_proto *proto = frag->conn->t->proto;
	struct tx_entry *entry = &batch->entry[batch->n];
	unsigned n = 0;

	*ret_crc = 0;
	if (batch->niov + 3 > MCE_SEND_IOV || batch->bytes >= MCE_SEND_MAX)
		return false;
	entry->frag = frag;
	entry->hdr = frag->hdr_len - frag->hdr_sent;
	entry->payload = entry->trail = 0;
	entry->whole = true;
	if (entry->hdr) {
		batch->iov[batch->niov].iov_base = frag->hdr + frag->hdr_sent;
		batch->iov[batch->niov++].iov_len = entry->hdr;
	}
	if (frag->write && frag->req) {
		n = mce_fragment_iov(frag, batch->iov + batch->niov, MCE_SEND_IOV - batch->niov - 1,
					MCE_SEND_MAX - batch->bytes, &entry->payload);
		entry->whole = frag->done + entry->payload == frag->len;
		*ret_crc = fragment_make_crc(frag, batch->iov + batch->niov, n);
	}
	batch->niov += n;
	if (frag->write && entry->whole && proto->trail_len) {
		entry->trail = proto->trail_len - frag->trail_sent;
		batch->iov[batch->niov].iov_base = frag->trail + frag->trail_sent;
		batch->iov[batch->niov++].iov_len = entry->trail;
	}
	batch->bytes += entry->hdr + entry->payload + entry->trail;
	batch->n++;
	return entry->whole;
}

/* Fill the batch with fragments of the connection, taking new ones while there is room. */
static void tx_batch_fill(struct mce_tcp_conn *conn, struct tx_batch *batch)
{
	struct mce_peer *p = conn->t->p;
	struct mce_fragment *frag;
	struct mc_list *pos;
	bool more = true, sums;
	uint32_t crc;

	batch->niov = batch->n = 0;
	batch->bytes = 0;
	mc_mutex_lock(&p->lock);
	pos = conn->txq.next;
	for (;;) {
		if (pos == &conn->txq) {
			if (!more || !mce_fragment_next_locked(conn))
				break;
			pos = conn->txq.prev;
		}
		frag = mc_container_of(pos, struct mce_fragment, tx_node);
		/* Release the lock for the time of a checksum.  The lists may change meanwhile, but not this
		 * fragment's position on txq: that takes tx_lock. */
		sums = frag->write && frag->req && frag->req->crc;
		if (sums)
			mc_mutex_unlock(&p->lock);
		more = tx_batch_add(batch, frag, &crc);
		if (sums)
			mc_mutex_lock(&p->lock);
		if (crc && frag->req)
			mce_crc_made_locked(conn->t, frag->req, crc);
		if (!more)
			break;
		pos = frag->tx_node.next;
	}
	/* The answer may arrive before the call has returned; the request's memory is released only after both. */
	for (unsigned i = 0; i < batch->n; i++) {
		batch->entry[i].frag->in_call = true;
		if (batch->entry[i].whole)
			batch->entry[i].frag->state = MCE_FRAGMENT_FLYING;
	}
	mc_mutex_unlock(&p->lock);
}

/* @n bytes of the entry are sent; @kept: the next call has to begin with the same bytes of it, so it must not be taken
 * back.  -MC_EPROTO when it was answered although bytes are missing. */
static int tx_entry_account(struct tx_entry *entry, uint32_t n, bool kept, struct mc_list *over)
{
	struct mce_fragment *frag = entry->frag;
	uint32_t hdr = n < entry->hdr ? n : entry->hdr;
	uint32_t payload = n - hdr < entry->payload ? n - hdr : entry->payload;
	struct mce_req *req;

	frag->in_call = false;
	frag->hdr_sent += hdr;
	frag->trail_sent += n - hdr - payload;
	/* The position of a READ is that of the received bytes, so leave it alone. */
	if (frag->req && payload)
		mce_fragment_advance(frag, payload);
	if (!entry->whole || n < entry->hdr + entry->payload + entry->trail) {
		frag->state = frag->hdr_sent || kept ? MCE_FRAGMENT_SENDING : MCE_FRAGMENT_QUEUED;
		/* A refusal may come before all bytes are sent. */
		return frag->answered && frag->answer == 0 ? -MC_EPROTO : 0;
	}
	mc_list_remove(&frag->tx_node);
	if (frag->answered) {
		req = mce_fragment_end_locked(frag, frag->answer);
		if (req)
			mc_list_push_back(over, &mce_reqx(req)->node);
	}
	return 0;
}

static bool tcp_is_led(struct mce_tcp *t)
{
	return __atomic_load_n(&t->led, __ATOMIC_SEQ_CST);
}

static int tx_batch_account(struct mce_tcp_conn *conn, struct tx_batch *batch, size_t sent)
{
	size_t kept = sent + (sent < batch->bytes ? mc_stream_repeat(&conn->stream) : 0);
	struct mce_peer *p = conn->t->p;
	struct mc_list over;
	bool any;
	int r = 0;

	mc_list_init(&over);
	mc_mutex_lock(&p->lock);
	for (unsigned i = 0; i < batch->n; i++) {
		struct tx_entry *entry = &batch->entry[i];
		uint32_t all = entry->hdr + entry->payload + entry->trail, n = sent < all ? (uint32_t)sent : all;

		if (tx_entry_account(entry, n, kept > n, &over) < 0)
			r = -MC_EPROTO;
		sent -= n;
		kept -= kept < all ? kept : all;
	}
	mc_mutex_unlock(&p->lock);
	any = !mc_list_empty(&over);
	mce_complete_list(conn->t, &over);
	/* The thread that waits for them has already received the answers and sleeps now. */
	if (any && tcp_is_led(conn->t))
		mce_tcp_wait_notify(conn->t);
	return r;
}

static ssize_t tx_batch_send(struct mce_tcp_conn *conn, struct tx_batch *batch)
{
	int r = mc_fault("engine.tcp.send");

	return r < 0 ? r : mc_stream_send(&conn->stream, batch->iov, (int)batch->niov);
}

/* One call, with tx_lock.  1: bytes were sent, 0: nothing to send, -EAGAIN: the socket is
 * full, else the connection is lost. */
static int conn_send_some(struct mce_tcp_conn *conn)
{
	struct tx_batch batch;
	ssize_t n;
	int r;

	if (!conn->stream.ops || !mce_tcp_conn_sends(conn))
		return 0;
	tx_batch_fill(conn, &batch);
	if (batch.n == 0)
		return 0;
	n = tx_batch_send(conn, &batch);
	r = n < 0 ? (int)n : 1;
	if (r == -EAGAIN)
		__atomic_store_n(&conn->blocked, true, __ATOMIC_RELEASE);
	if (n > 0)
		conn->tx_moved += (size_t)n;
	return tx_batch_account(conn, &batch, n > 0 ? (size_t)n : 0) < 0 ? -MC_EPROTO : r;
}

void mce_tcp_conn_break(struct mce_tcp_conn *conn)
{
	mce_tcp_conn_mark_broken(conn);
	/* Wakes the loop, which checks the connection. */
	mc_stream_shutdown(&conn->stream, SHUT_RDWR);
}

void mce_tcp_conn_cut_off(struct mce_tcp_conn *conn)
{
	if (!conn->t->proto->in_order) {
		mce_tcp_conn_break(conn);
		return;
	}
	/* The peer then closes the connection, which shows that it carries out nothing more of it. */
	__atomic_store_n(&conn->draining, true, __ATOMIC_RELEASE);
	mc_stream_shutdown(&conn->stream, SHUT_WR);
}

/* Has the peer ended the connection? */
static bool conn_is_peers_end(const struct mce_tcp_conn *conn, int err)
{
	return conn->t->proto->in_order && (err == -ECONNRESET || err == -EPIPE);
}

/* With tx_lock or rx_lock: sending or receiving has failed with @err. */
static void conn_failed(struct mce_tcp_conn *conn, int err)
{
	if (!conn_is_peers_end(conn, err)) {
		mce_tcp_conn_break(conn);
		return;
	}
	/* The loop receives the answers that the peer sent before, and then finds the end. */
	__atomic_store_n(&conn->draining, true, __ATOMIC_RELEASE);
	mc_stream_shutdown(&conn->stream, SHUT_RDWR);
}

/* The connection with work and the fewest bytes in flight that is not in @skip. */
static struct mce_tcp_conn *conn_pick(struct mce_tcp *t, uint32_t skip)
{
	struct mce_tcp_conn *best = NULL;

	MC_LOCKED(&t->p->lock);
	for (unsigned i = 0; i < t->nconns; i++) {
		struct mce_tcp_conn *conn = &t->conns[i];

		if (!(skip & 1u << i) && mce_tcp_conn_has_work_locked(conn) &&
		    (!best || conn->bytes < best->bytes))
			best = conn;
	}
	return best;
}

static void pump_run(void *arg)
{
	mce_tcp_conns_pump(arg);
}

void mce_tcp_conns_pump(struct mce_tcp *t)
{
	struct mce_tcp_conn *conn;
	uint32_t skip = 0;
	unsigned rounds;
	int r;

	for (rounds = 0; rounds < PUMP_ROUNDS && (conn = conn_pick(t, skip)); rounds++) {
		/* The thread that holds the lock looks for work again after releasing it, as this loop does. */
		if (mc_mutex_trylock(&conn->tx_lock)) {
			skip |= 1u << conn->idx;
			continue;
		}
		r = conn_send_some(conn);
		if (r < 0 && r != -EAGAIN)
			conn_failed(conn, r);
		mc_mutex_unlock(&conn->tx_lock);
	}
	/* If the post fails for lack of memory, the next completion or submit pumps again. */
	if (rounds == PUMP_ROUNDS)
		(void)mc_evloop_post(t->conns[0].io->loop, pump_run, t);
}

/* ---- receiving --------------------------------------------------------------------------------- */

/* The fragment is answered, with all of its payload.  1, or the error that ends the connection. */
static int fragment_answered(struct mce_tcp_conn *conn, struct mce_fragment *frag, int status)
{
	struct mce_peer *p = conn->t->p;
	struct mce_req *over = NULL;
	int r = 1;

	mc_mutex_lock(&p->lock);
	if (frag->in_call) {
		frag->answered = true;
		frag->answer = status;
	} else if (frag->state != MCE_FRAGMENT_FLYING) {
		/* A call was sending all of it when the answer's header was checked, and has sent less. */
		r = mc_fail(-MC_EPROTO, "response to a request that was not sent");
	} else {
		over = mce_fragment_end_locked(frag, status);
	}
	if (r > 0 && status == 0)
		conn->t->lost = 0;
	mc_mutex_unlock(&p->lock);
	if (over)
		mce_complete(over, conn->t->proto->path, mce_reqx(over)->status);
	return r;
}

/* A call may be sending the fragment's bytes at this moment, so it ends together with the connection, which ends
 * now. */
static int fragment_refused(struct mce_tcp_conn *conn, struct mce_fragment *frag, int status)
{
	MC_LOCKED(&conn->t->p->lock);
	frag->answered = true;
	frag->answer = status;
	conn->refused = true;
	return -ECONNRESET;
}

static int conn_take_answer(struct mce_tcp_conn *conn)
{
	struct mce_fragment *frag;
	int r, status = 0;
	uint32_t len = 0;

	r = conn->t->proto->answer(conn, &frag, &len, &status);
	if (r < 0)
		return r;
	if (r == 0) {
		if (conn->rx.dry)
			return 0;
		r = mce_rx_headers(&conn->rx);
		return r < 0 ? r : 1;
	}
	conn->rx.small = len <= MCE_RX_SMALL;
	if (len) {
		conn->cur = frag;
		conn->left = len;
		return 1;
	}
	if (!frag)
		return 1;
	if (status < 0 && conn->t->proto->in_order)
		return fragment_refused(conn, frag, status);
	return fragment_answered(conn, frag, status);
}

/* @n bytes have been stored at the fragment's position: add them to the checksums and advance. */
static void fragment_received(struct mce_fragment *frag, const struct iovec *iov, uint32_t n)
{
	uint64_t pos = frag->off + frag->done;
	uint32_t left = n;

	for (unsigned i = 0; left; i++) {
		uint32_t len = iov[i].iov_len < left ? (uint32_t)iov[i].iov_len : left;

		mce_crc_feed(frag->req, pos, iov[i].iov_base, len);
		pos += len;
		left -= len;
	}
	mce_fragment_advance(frag, n);
}

static ssize_t conn_take_payload(struct mce_tcp_conn *conn)
{
	struct iovec iov[MCE_RX_IOV - 1];
	struct mce_fragment *frag = conn->cur;
	unsigned niov;
	uint32_t want;
	ssize_t n = 0;

	if (mce_rx_have(&conn->rx) == 0 && conn->rx.dry)
		return 0;
	if (!frag->req) {
		n = mce_rx_drain(&conn->rx, conn->left);
	} else {
		niov = mce_fragment_iov(frag, iov, MCE_RX_IOV - 1, conn->left, &want);
		if (mce_rx_have(&conn->rx))
			for (unsigned i = 0; i < niov && mce_rx_have(&conn->rx); i++)
				n += (ssize_t)mce_rx_copy(&conn->rx, iov[i].iov_base, iov[i].iov_len);
		else
			n = mce_rx_payload(&conn->rx, iov, niov, want);
		if (n > 0)
			fragment_received(frag, iov, (uint32_t)n);
	}
	if (n <= 0)
		return n;
	conn->left -= (uint32_t)n;
	if (conn->left == 0) {
		int r;

		conn->cur = NULL;
		r = fragment_answered(conn, frag, 0);
		if (r < 0)
			return r;
	}
	return n;
}

/* With rx_lock.  0: the socket is empty, -EAGAIN: there is more, else the connection is lost. */
static int conn_receive(struct mce_tcp_conn *conn)
{
	uint64_t until = conn->rx.moved + QUANTUM;
	ssize_t n;
	int r;

	if (!conn->stream.ops || mce_tcp_conn_broken(conn))
		return 0;
	r = mc_fault("engine.tcp.recv");
	if (r < 0)
		return r;
	do {
		n = conn->left ? conn_take_payload(conn) : conn_take_answer(conn);
		if (n <= 0)
			return (int)n;
		/* No event reports bytes that are left in a buffer. */
	} while (conn->rx.moved < until || mce_rx_have(&conn->rx) || mc_stream_pending(&conn->stream));
	return -EAGAIN;
}

void mce_tcp_poll(struct mce_peer *p)
{
	struct mce_tcp *t = mce_tcp_of(p);
	uint64_t moved;
	int r;

	for (unsigned i = 0; i < t->nconns; i++) {
		struct mce_tcp_conn *conn = &t->conns[i];

		if (mc_mutex_trylock(&conn->rx_lock))
			continue;
		moved = conn->rx.moved;
		conn->rx.dry = false;
		r = conn_receive(conn);
		moved = conn->rx.moved - moved;
		if (r < 0 && r != -EAGAIN)
			conn_failed(conn, r);
		mc_mutex_unlock(&conn->rx_lock);
		if (moved)
			mce_tcp_conns_pump(t);
		if (moved && tcp_is_led(t))
			mce_tcp_wait_notify(t);
	}
}

void mce_tcp_conn_drain(struct mce_tcp_conn *conn)
{
	int r;

	MC_LOCKED(&conn->rx_lock);
	conn->rx.dry = false;
	do
		r = conn_receive(conn);
	while (r == -EAGAIN);
	if (r < 0)
		conn_failed(conn, r);
}

/* ---- on the I/O thread ------------------------------------------------------------------------- */

/* Would waiting requests fail, too?  Connection after connection was lost without a success between them, or
 * the peer is stopped and all connections timed out; some of them may be connected again, because the kernel of a
 * stopped peer accepts connections. */
static bool conn_is_hopeless_locked(struct mce_tcp_conn *conn)
{
	struct mce_tcp *t = conn->t;

	if (!t->proto->in_order || conn->n == 0 || conn->refused)
		return false;
	if (++t->lost < LOST_MAX && !(mce_tcp_conn_broken(conn) && (t->up == 0 || t->lost >= t->nconns)))
		return false;
	t->lost = 0;
	return true;
}

/* While answers are outstanding reset the connection, so that the kernel stops sending.  Do not rely on close() for
 * the reset or the end, because a forked child may still have the socket. */
static void conn_hang_up(struct mce_tcp_conn *conn)
{
	bool owed;

	mc_mutex_lock(&conn->t->p->lock);
	owed = conn->n > 0 && !conn->t->proto->in_order;
	mce_tcp_wait_del_locked(conn);
	mc_mutex_unlock(&conn->t->p->lock);
	if (owed)
		mc_stream_reset(&conn->stream);
	else
		mc_stream_shutdown(&conn->stream, SHUT_RDWR);
	mc_stream_close(&conn->stream);
}

void mce_tcp_conn_down(struct mce_tcp_conn *conn, int status)
{
	struct mce_tcp *t = conn->t;
	struct mce_peer *p = t->p;
	struct mc_list over;
	bool hopeless;

	mc_list_init(&over);
	mc_mutex_lock(&conn->tx_lock);
	mc_mutex_lock(&conn->rx_lock);
	if (conn->stream.ops) {
		mc_evloop_del(conn->io->loop, &conn->evfd);
		mce_io_unwatch(conn->io, &conn->watcher);
		conn_hang_up(conn);
		mce_tcp_conn_count(-1);
		/* A peer that never returns keeps no buffer. */
		mce_rx_done(&conn->rx);
	}
	conn->cur = NULL;
	conn->left = 0;
	mc_mutex_lock(&p->lock);
	if (conn->up)
		t->up--;
	conn->up = false;
	mce_tcp_wait_drop_locked(t);
	p->introduced = p->introduced && t->up > 0;
	hopeless = status == 0 && conn_is_hopeless_locked(conn);
	mce_tcp_conn_lost_locked(conn, status, &over);
	/* Here, not later: a thread that sees these requests fail may queue new ones, which must not fail. */
	if (hopeless)
		mce_queue_fail_locked(t, NULL, -MC_ETRANSFER, &over);
	if (status == 0 && (!mc_list_empty(&t->retry) || mce_tcp_queued_locked(t)))
		mce_peer_resolve_later_locked(p);
	mc_mutex_unlock(&p->lock);
	mc_mutex_unlock(&conn->rx_lock);
	mc_mutex_unlock(&conn->tx_lock);
	mce_complete_list(t, &over);
	mce_tcp_wait_notify(t);
	if (status == 0)
		mce_tcp_conns_pump(t);
}

static void renew_run(void *arg)
{
	struct mce_tcp_conn *conn = arg;
	struct mce_peer *p = conn->t->p;
	bool old;

	mc_mutex_lock(&p->lock);
	old = conn->up && conn->fence != __atomic_load_n(&p->e->fence, __ATOMIC_SEQ_CST);
	mc_mutex_unlock(&p->lock);
	if (old)
		mce_tcp_conn_down(conn, 0);
}

void mce_tcp_conns_renew(struct mce_tcp *t)
{
	for (unsigned i = 0; i < t->nconns; i++)
		mce_io_call(t->conns[i].io, renew_run, &t->conns[i]);
}

/* A turn of receiving, and of sending requests in the place of completed ones.  Returns as conn_receive(). */
static int conn_take_turn(struct mce_tcp_conn *conn)
{
	uint64_t moved, until = 0;
	int r;

	for (;;) {
		mc_mutex_lock(&conn->rx_lock);
		if (until == 0)
			until = conn->rx.moved + TURN;
		r = conn_receive(conn);
		moved = conn->rx.moved;
		mc_mutex_unlock(&conn->rx_lock);
		if (r != -EAGAIN || moved >= until)
			return r;
		mce_tcp_conns_pump(conn->t);
	}
}

static void conn_run(struct mce_tcp_conn *conn)
{
	int r = conn_take_turn(conn);

	if (r == -EAGAIN)
		mce_io_resume_later(conn->io, &conn->watcher);
	if ((r < 0 && r != -EAGAIN) || mce_tcp_conn_broken(conn)) {
		if (r < 0 && conn->t->proto->in_order && !conn_is_peers_end(conn, r))
			mce_tcp_conn_mark_broken(conn);
		mc_debug("engine", "connection lost: %s peer=%s conn=%u", mc_err_detail(r), conn->t->p->endpoint,
			 conn->idx);
		mce_tcp_conn_down(conn, 0);
		return;
	}
	mce_tcp_conns_pump(conn->t);
	/* A thread may have begun to wait meanwhile. */
	if (tcp_is_led(conn->t))
		mce_tcp_wait_notify(conn->t);
}

void mce_tcp_conn_ready(struct mc_evfd *e, uint32_t events)
{
	struct mce_tcp_conn *conn = mc_container_of(e, struct mce_tcp_conn, evfd);
	bool ending = events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);

	if (events & EPOLLOUT) {
		/* Only after a thread that just found the socket full has stored that. */
		mc_mutex_lock(&conn->tx_lock);
		__atomic_store_n(&conn->blocked, false, __ATOMIC_RELEASE);
		mc_mutex_unlock(&conn->tx_lock);
	}
	if (tcp_is_led(conn->t) && !ending) {
		/* Other threads may have tried to send while we had the lock. */
		if (events & EPOLLOUT)
			mce_tcp_conns_pump(conn->t);
		return;
	}
	mc_mutex_lock(&conn->rx_lock);
	conn->rx.dry = false;
	if (ending)
		conn->rx.ending = true;
	mc_mutex_unlock(&conn->rx_lock);
	conn_run(conn);
}

void mce_tcp_conn_resume(struct mce_watcher *w)
{
	struct mce_tcp_conn *conn = mc_container_of(w, struct mce_tcp_conn, watcher);

	if (!tcp_is_led(conn->t))
		conn_run(conn);
}

/* An outstanding answer has its own time limit, and bytes that are sent meanwhile do not extend it. */
static void conn_check_answer(struct mce_tcp_conn *conn, uint64_t now_ms)
{
	struct mce_peer *p = conn->t->p;
	uint64_t received;
	bool owes = false;

	if (!conn->t->proto->in_order)
		return;
	mc_mutex_lock(&conn->rx_lock);
	received = conn->rx.moved;
	mc_mutex_unlock(&conn->rx_lock);
	mc_mutex_lock(&p->lock);
	if (!mc_list_empty(&conn->fragments))
		owes = mc_list_first(&conn->fragments, struct mce_fragment, node)->state == MCE_FRAGMENT_FLYING;
	mc_mutex_unlock(&p->lock);
	if (!owes || received != conn->seen_received || mce_io_stalled(conn->io))
		conn->owes_ms = now_ms;
	conn->seen_received = received;
	if (now_ms - conn->owes_ms <= p->e->conf.status_timeout_ms)
		return;
	mc_warn("engine", "no answer, closing the connection peer=%s conn=%u", p->endpoint, conn->idx);
	mce_tcp_conn_mark_broken(conn);
}

void mce_tcp_conn_tick(struct mce_watcher *w, uint64_t now_ms)
{
	struct mce_tcp_conn *conn = mc_container_of(w, struct mce_tcp_conn, watcher);
	struct mce_peer *p = conn->t->p;
	uint64_t moved;
	bool busy;

	mc_mutex_lock(&conn->tx_lock);
	moved = conn->tx_moved;
	mc_mutex_unlock(&conn->tx_lock);
	mc_mutex_lock(&conn->rx_lock);
	moved += conn->rx.moved;
	mc_mutex_unlock(&conn->rx_lock);
	mc_mutex_lock(&p->lock);
	busy = conn->n > 0;
	mc_mutex_unlock(&p->lock);
	if (!busy || moved != conn->seen_moved) {
		conn->seen_moved = moved;
		conn->since_ms = now_ms;
	}
	/* After a stall of this process the elapsed time says nothing about the peer. */
	if (mce_io_stalled(conn->io))
		conn->since_ms = now_ms;
	if (now_ms - conn->since_ms > p->e->conf.progress_timeout_ms) {
		mc_warn("engine", "no progress, closing the connection peer=%s conn=%u", p->endpoint,
			conn->idx);
		mce_tcp_conn_mark_broken(conn);
	}
	conn_check_answer(conn, now_ms);
	if (mce_tcp_conn_broken(conn))
		mce_tcp_conn_down(conn, 0);
	else
		mce_tcp_conns_pump(conn->t);
}
