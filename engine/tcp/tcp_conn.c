/* SPDX-License-Identifier: Apache-2.0
 * tcp_conn.c - sending and receiving on outgoing lanes.
 *
 * Whoever has something to send sends it, on a lane that nobody else is sending on; only when the
 * socket is full the I/O thread goes on.  Likewise a thread that waits for completions receives them
 * itself while it polls.  All bytes move in non-blocking calls under the lane's locks, so taking the
 * locks is enough to know that no call is in a request's memory. */
#include <config.h>

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/metrics.h"
#include "engine/tcp/tcp_client.h"

/* Rounds of sending in a submitting thread before the I/O thread takes over. */
#define PUMP_ROUNDS 64
/* Bytes received before what they made room for is asked for: half of what a lane has under way, so that the
 * peer has something to send meanwhile and is not woken for little.  And before other lanes have their turn. */
#define QUANTUM (MCE_TCP_CONN_BYTES / 2)
#define TURN (4u << 20)
/* Lanes to an in_order peer that may be lost in a row before everything that waits fails. */
#define LOST_MAX 16u

MC_GAUGE(lanes_out, "mooncake_transfer_lanes", "direction=\"out\"", "Open lanes")

void mce_tcp_conn_count(int n)
{
	mc_metric_add(&lanes_out, n);
}

/* ---- sending ----------------------------------------------------------------------------------- */

/* What one call sends of one piece. */
struct part {
	struct mce_fragment *pc;
	uint32_t hdr, payload, trail;
	bool whole;
};

struct parcel {
	struct iovec iov[MCE_SEND_IOV];
	struct part part[MCE_SEND_IOV];
	unsigned niov, nparts;
	uint32_t bytes;
};

/* Checksums of what goes out with this call, while it is about to be in the cache anyway. */
static uint32_t make_crc(struct mce_fragment *pc, const struct iovec *iov, unsigned n)
{
	const struct mce_req *req = pc->req;
	uint32_t pos = pc->done, made = 0;

	if (!req->crc || pc->tail)
		return 0;
	for (unsigned i = 0; i < n; i++) {
		uint32_t len = (uint32_t)iov[i].iov_len, skip = 0;

		if (pos < pc->crc_done)
			skip = pc->crc_done - pos < len ? pc->crc_done - pos : len;
		mce_crc_feed(pc->req, pc->off + pos + skip, (char *)iov[i].iov_base + skip, len - skip);
		made += len - skip;
		pos += len;
	}
	if (pos > pc->crc_done)
		pc->crc_done = pos;
	return made;
}

/* Put what fits of @pc into the parcel; false when there is no room for more. */
static bool pack(struct parcel *pl, struct mce_fragment *pc, uint32_t *ret_crc)
{
	const struct mce_tcp_proto *proto = pc->lane->t->proto;
	struct part *part = &pl->part[pl->nparts];
	unsigned n = 0;

	*ret_crc = 0;
	if (pl->niov + 3 > MCE_SEND_IOV || pl->bytes >= MCE_SEND_MAX)
		return false;
	part->pc = pc;
	part->hdr = proto->hdr_len - pc->hdr_sent;
	part->payload = part->trail = 0;
	part->whole = true;
	if (part->hdr) {
		pl->iov[pl->niov].iov_base = pc->hdr + pc->hdr_sent;
		pl->iov[pl->niov++].iov_len = part->hdr;
	}
	if (pc->write && pc->req) {
		n = mce_fragment_iov(pc, pl->iov + pl->niov, MCE_SEND_IOV - pl->niov - 1,
				  MCE_SEND_MAX - pl->bytes, &part->payload);
		part->whole = pc->done + part->payload == pc->len;
		*ret_crc = make_crc(pc, pl->iov + pl->niov, n);
	}
	pl->niov += n;
	if (pc->write && part->whole && proto->trail_len) {
		part->trail = proto->trail_len - pc->trail_sent;
		pl->iov[pl->niov].iov_base = pc->trail + pc->trail_sent;
		pl->iov[pl->niov++].iov_len = part->trail;
	}
	pl->bytes += part->hdr + part->payload + part->trail;
	pl->nparts++;
	return part->whole;
}

/* Take pieces for the lane and make a parcel of them. */
static void fill(struct mce_tcp_conn *l, struct parcel *pl)
{
	struct mce_peer *p = l->t->p;
	struct mce_fragment *pc;
	struct mc_list *pos;
	bool more = true, sums;
	uint32_t crc;

	pl->niov = pl->nparts = 0;
	pl->bytes = 0;
	pthread_mutex_lock(&p->lock);
	pos = l->txq.next;
	for (;;) {
		if (pos == &l->txq) {
			if (!more || !mce_fragment_next_locked(l))
				break;
			pos = l->txq.prev;
		}
		pc = mc_container_of(pos, struct mce_fragment, tx_node);
		/* A checksum takes its time.  The lists may change meanwhile, but not this piece's place on txq:
		 * that takes tx_lock. */
		sums = pc->write && pc->req && pc->req->crc;
		if (sums)
			pthread_mutex_unlock(&p->lock);
		more = pack(pl, pc, &crc);
		if (sums)
			pthread_mutex_lock(&p->lock);
		if (crc && pc->req)
			mce_crc_made_locked(l->t, pc->req, crc);
		if (!more)
			break;
		pos = pc->tx_node.next;
	}
	/* The answer may be here before this thread is back from the call; the request's memory is
	 * let go of only after both. */
	for (unsigned i = 0; i < pl->nparts; i++) {
		pl->part[i].pc->in_call = true;
		if (pl->part[i].whole)
			pl->part[i].pc->state = MCE_PIECE_FLYING;
	}
	pthread_mutex_unlock(&p->lock);
}

/* @n bytes of the part are sent.  -MC_EPROTO when it was answered although bytes are missing. */
static int account_part(struct part *part, uint32_t n, struct mc_list *over)
{
	struct mce_fragment *pc = part->pc;
	uint32_t hdr = n < part->hdr ? n : part->hdr;
	uint32_t payload = n - hdr < part->payload ? n - hdr : part->payload;
	struct mce_req *req;

	pc->in_call = false;
	pc->hdr_sent += hdr;
	pc->trail_sent += n - hdr - payload;
	/* A READ's position is that of what is received, and none of our business. */
	if (pc->req && payload)
		mce_fragment_advance(pc, payload);
	if (!part->whole || n < part->hdr + part->payload + part->trail) {
		pc->state = pc->hdr_sent ? MCE_PIECE_SENDING : MCE_PIECE_QUEUED;
		/* A refusal need not wait for the bytes. */
		return pc->answered && pc->answer == 0 ? -MC_EPROTO : 0;
	}
	mc_list_remove(&pc->tx_node);
	if (pc->answered) {
		req = mce_fragment_end_locked(pc, pc->answer);
		if (req)
			mc_list_push_back(over, &mce_reqx(req)->node);
	}
	return 0;
}

static bool is_led(struct mce_tcp *t)
{
	return __atomic_load_n(&t->led, __ATOMIC_SEQ_CST);
}

static int account(struct mce_tcp_conn *l, struct parcel *pl, size_t sent)
{
	struct mce_peer *p = l->t->p;
	struct mc_list over;
	bool any;
	int r = 0;

	mc_list_init(&over);
	pthread_mutex_lock(&p->lock);
	for (unsigned i = 0; i < pl->nparts; i++) {
		struct part *part = &pl->part[i];
		uint32_t all = part->hdr + part->payload + part->trail, n = sent < all ? (uint32_t)sent : all;

		sent -= n;
		if (account_part(part, n, &over) < 0)
			r = -MC_EPROTO;
	}
	pthread_mutex_unlock(&p->lock);
	any = !mc_list_empty(&over);
	mce_complete_list(l->t, &over);
	/* Who waits for them received the answers himself, and sleeps. */
	if (any && is_led(l->t))
		mce_tcp_wait_tell(l->t);
	return r;
}

static ssize_t send_parcel(struct mce_tcp_conn *l, struct parcel *pl)
{
	struct msghdr msg = { .msg_iov = pl->iov, .msg_iovlen = pl->niov };
	ssize_t n;

	n = mc_fault("engine.tcp.send");
	if (n < 0)
		return n;
	do
		n = sendmsg(l->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

/* One call's worth, with tx_lock.  1: something went out, 0: nothing to send, -EAGAIN: the socket is
 * full, else the lane is lost. */
static int send_some(struct mce_tcp_conn *l)
{
	struct parcel pl;
	ssize_t n;
	int r;

	if (l->fd < 0 || !mce_tcp_conn_sends(l))
		return 0;
	fill(l, &pl);
	if (pl.nparts == 0)
		return 0;
	n = send_parcel(l, &pl);
	r = n < 0 ? (int)n : 1;
	if (r == -EAGAIN)
		__atomic_store_n(&l->blocked, true, __ATOMIC_RELEASE);
	if (n > 0)
		l->tx_moved += (size_t)n;
	return account(l, &pl, n > 0 ? (size_t)n : 0) < 0 ? -MC_EPROTO : r;
}

void mce_tcp_conn_break(struct mce_tcp_conn *l)
{
	mce_tcp_conn_mark_broken(l);
	/* Wakes the loop, which looks at it. */
	shutdown(l->fd, SHUT_RDWR);
}

void mce_tcp_conn_cut_off(struct mce_tcp_conn *l)
{
	if (!l->t->proto->in_order) {
		mce_tcp_conn_break(l);
		return;
	}
	/* The peer then closes, and by that tells that it carries out nothing more of it. */
	__atomic_store_n(&l->draining, true, __ATOMIC_RELEASE);
	shutdown(l->fd, SHUT_WR);
}

/* Was it the peer who ended the connection? */
static bool is_peers_end(const struct mce_tcp_conn *l, int err)
{
	return l->t->proto->in_order && (err == -ECONNRESET || err == -EPIPE);
}

/* With tx_lock or rx_lock: sending or receiving has failed. */
static void lane_failed(struct mce_tcp_conn *l, int err)
{
	if (!is_peers_end(l, err)) {
		mce_tcp_conn_break(l);
		return;
	}
	/* The loop takes what the peer said before, and then finds the end. */
	__atomic_store_n(&l->draining, true, __ATOMIC_RELEASE);
	shutdown(l->fd, SHUT_RDWR);
}

/* The lane with work and the least under way that is not in @skip. */
static struct mce_tcp_conn *pick_lane(struct mce_tcp *t, uint32_t skip)
{
	struct mce_tcp_conn *best = NULL;

	MC_LOCKED(&t->p->lock);
	for (unsigned i = 0; i < t->nlanes; i++) {
		struct mce_tcp_conn *l = &t->lanes[i];

		if (!(skip & 1u << i) && mce_tcp_conn_has_work_locked(l) &&
		    (!best || l->bytes < best->bytes))
			best = l;
	}
	return best;
}

static void pump_run(void *arg)
{
	mce_tcp_conns_pump(arg);
}

void mce_tcp_conns_pump(struct mce_tcp *t)
{
	struct mce_tcp_conn *l;
	uint32_t skip = 0;
	unsigned rounds;
	int r;

	for (rounds = 0; rounds < PUMP_ROUNDS && (l = pick_lane(t, skip)); rounds++) {
		/* Who holds the lane looks for work again after letting go of it, as this loop does. */
		if (pthread_mutex_trylock(&l->tx_lock)) {
			skip |= 1u << l->idx;
			continue;
		}
		r = send_some(l);
		if (r < 0 && r != -EAGAIN)
			lane_failed(l, r);
		pthread_mutex_unlock(&l->tx_lock);
	}
	/* Out of memory the next completion or submit pumps again. */
	if (rounds == PUMP_ROUNDS)
		(void)mc_evloop_post(t->lanes[0].io->loop, pump_run, t);
}

/* ---- receiving --------------------------------------------------------------------------------- */

/* 1, or the lane's end. */
static int end_piece(struct mce_tcp_conn *l, struct mce_fragment *pc, int status)
{
	struct mce_peer *p = l->t->p;
	struct mce_req *over = NULL;
	int r = 1;

	pthread_mutex_lock(&p->lock);
	if (pc->in_call) {
		pc->answered = true;
		pc->answer = status;
	} else if (pc->state != MCE_PIECE_FLYING) {
		/* All of it was being sent when the answer's header was looked at, and the call took less. */
		r = mc_fail(-MC_EPROTO, "answer to what was not sent");
	} else {
		over = mce_fragment_end_locked(pc, status);
	}
	if (r > 0 && status == 0)
		l->t->lost = 0;
	pthread_mutex_unlock(&p->lock);
	if (over)
		mce_complete(over, l->t->proto->path, mce_reqx(over)->status);
	return r;
}

/* Its bytes may be on their way out at this moment; the lane's end, which comes now, is its end. */
static int refused(struct mce_tcp_conn *l, struct mce_fragment *pc, int status)
{
	MC_LOCKED(&l->t->p->lock);
	pc->answered = true;
	pc->answer = status;
	l->refused = true;
	return -ECONNRESET;
}

static int take_answer(struct mce_tcp_conn *l)
{
	struct mce_fragment *pc;
	int r, status = 0;
	uint32_t len = 0;

	r = l->t->proto->answer(l, &pc, &len, &status);
	if (r < 0)
		return r;
	if (r == 0) {
		if (l->rx.dry)
			return 0;
		r = mce_rx_headers(&l->rx);
		return r < 0 ? r : 1;
	}
	l->rx.small = len <= MCE_RX_SMALL;
	if (len) {
		l->cur = pc;
		l->left = len;
		return 1;
	}
	if (!pc)
		return 1;
	if (status < 0 && l->t->proto->in_order)
		return refused(l, pc, status);
	return end_piece(l, pc, status);
}

/* @n bytes are at the piece's position: checksum, and go on. */
static void account_payload(struct mce_fragment *pc, const struct iovec *iov, uint32_t n)
{
	uint64_t pos = pc->off + pc->done;
	uint32_t left = n;

	for (unsigned i = 0; left; i++) {
		uint32_t len = iov[i].iov_len < left ? (uint32_t)iov[i].iov_len : left;

		mce_crc_feed(pc->req, pos, iov[i].iov_base, len);
		pos += len;
		left -= len;
	}
	mce_fragment_advance(pc, n);
}

static ssize_t take_payload(struct mce_tcp_conn *l)
{
	struct iovec iov[MCE_RX_IOV - 1];
	struct mce_fragment *pc = l->cur;
	unsigned niov;
	uint32_t want;
	ssize_t n = 0;

	if (mce_rx_have(&l->rx) == 0 && l->rx.dry)
		return 0;
	if (!pc->req) {
		n = mce_rx_drain(&l->rx, l->left);
	} else {
		niov = mce_fragment_iov(pc, iov, MCE_RX_IOV - 1, l->left, &want);
		if (mce_rx_have(&l->rx))
			for (unsigned i = 0; i < niov && mce_rx_have(&l->rx); i++)
				n += (ssize_t)mce_rx_copy(&l->rx, iov[i].iov_base, iov[i].iov_len);
		else
			n = mce_rx_payload(&l->rx, iov, niov, want);
		if (n > 0)
			account_payload(pc, iov, (uint32_t)n);
	}
	if (n <= 0)
		return n;
	l->left -= (uint32_t)n;
	if (l->left == 0) {
		int r;

		l->cur = NULL;
		r = end_piece(l, pc, 0);
		if (r < 0)
			return r;
	}
	return n;
}

/* With rx_lock.  0: the socket is dry, -EAGAIN: there is more, else the lane is lost. */
static int receive(struct mce_tcp_conn *l)
{
	uint64_t until = l->rx.moved + QUANTUM;
	ssize_t n;
	int r;

	if (l->fd < 0 || mce_tcp_conn_broken(l))
		return 0;
	r = mc_fault("engine.tcp.recv");
	if (r < 0)
		return r;
	do {
		n = l->left ? take_payload(l) : take_answer(l);
		if (n <= 0)
			return (int)n;
		/* Nobody is told of bytes that are left in the buffer. */
	} while (l->rx.moved < until || mce_rx_have(&l->rx));
	return -EAGAIN;
}

void mce_tcp_poll(struct mce_peer *p)
{
	struct mce_tcp *t = p->tcp;
	uint64_t moved;
	int r;

	for (unsigned i = 0; i < t->nlanes; i++) {
		struct mce_tcp_conn *l = &t->lanes[i];

		if (pthread_mutex_trylock(&l->rx_lock))
			continue;
		moved = l->rx.moved;
		l->rx.dry = false;
		r = receive(l);
		moved = l->rx.moved - moved;
		if (r < 0 && r != -EAGAIN)
			lane_failed(l, r);
		pthread_mutex_unlock(&l->rx_lock);
		if (moved)
			mce_tcp_conns_pump(t);
		if (moved && is_led(t))
			mce_tcp_wait_tell(t);
	}
}

void mce_tcp_conn_look(struct mce_tcp_conn *l)
{
	int r;

	MC_LOCKED(&l->rx_lock);
	l->rx.dry = false;
	do
		r = receive(l);
	while (r == -EAGAIN);
	if (r < 0)
		lane_failed(l, r);
}

/* ---- the loop's side --------------------------------------------------------------------------- */

/* Nothing that waits would fare better: lane after lane was lost without a success between them, or
 * the peer stands still and all were given up, some of which may have been connected again: its kernel does
 * that for it. */
static bool is_hopeless_locked(struct mce_tcp_conn *l)
{
	struct mce_tcp *t = l->t;

	if (!t->proto->in_order || l->n == 0 || l->refused)
		return false;
	if (++t->lost < LOST_MAX && !(mce_tcp_conn_broken(l) && (t->up == 0 || t->lost >= t->nlanes)))
		return false;
	t->lost = 0;
	return true;
}

/* The kernel does not go on delivering what nobody waits for any more: a reset.  Neither this nor the end is left to
 * close(), since a forked child may have the socket still. */
static void hang_up(struct mce_tcp_conn *l)
{
	const struct sockaddr nobody = { .sa_family = AF_UNSPEC };
	bool owed;

	pthread_mutex_lock(&l->t->p->lock);
	owed = l->n > 0 && !l->t->proto->in_order;
	mce_tcp_wait_del_locked(l);
	pthread_mutex_unlock(&l->t->p->lock);
	if (!owed || connect(l->fd, &nobody, sizeof(nobody)))
		shutdown(l->fd, SHUT_RDWR);
	close(l->fd);
	l->fd = -1;
}

void mce_tcp_conn_down(struct mce_tcp_conn *l, int status)
{
	struct mce_tcp *t = l->t;
	struct mce_peer *p = t->p;
	struct mc_list over;
	bool hopeless;

	mc_list_init(&over);
	pthread_mutex_lock(&l->tx_lock);
	pthread_mutex_lock(&l->rx_lock);
	if (l->fd >= 0) {
		mc_evloop_del(l->io->loop, &l->evfd);
		mce_io_unwatch(l->io, &l->watcher);
		hang_up(l);
		mce_tcp_conn_count(-1);
		/* Peers that never come back keep nothing. */
		mce_rx_done(&l->rx);
	}
	l->cur = NULL;
	l->left = 0;
	pthread_mutex_lock(&p->lock);
	if (l->up)
		t->up--;
	l->up = false;
	mce_tcp_wait_drop_locked(t);
	p->introduced = t->up > 0 && !p->upstream;
	hopeless = status == 0 && is_hopeless_locked(l);
	mce_tcp_conn_lost_locked(l, status, &over);
	/* Not what is queued later, by who sees these end. */
	if (hopeless)
		mce_queue_fail_locked(t, NULL, -MC_ETRANSFER, &over);
	if (status == 0 && (!mc_list_empty(&t->retry) || mce_tcp_queued_locked(t)))
		mce_peer_resolve_later_locked(p);
	pthread_mutex_unlock(&p->lock);
	pthread_mutex_unlock(&l->rx_lock);
	pthread_mutex_unlock(&l->tx_lock);
	mce_complete_list(t, &over);
	mce_tcp_wait_tell(t);
	if (status == 0)
		mce_tcp_conns_pump(t);
}

/* A turn of receiving, and of sending what that makes room for.  As receive(). */
static int take_turn(struct mce_tcp_conn *l)
{
	uint64_t moved, until = 0;
	int r;

	for (;;) {
		pthread_mutex_lock(&l->rx_lock);
		if (until == 0)
			until = l->rx.moved + TURN;
		r = receive(l);
		moved = l->rx.moved;
		pthread_mutex_unlock(&l->rx_lock);
		if (r != -EAGAIN || moved >= until)
			return r;
		mce_tcp_conns_pump(l->t);
	}
}

static void lane_run(struct mce_tcp_conn *l)
{
	int r = take_turn(l);

	if (r == -EAGAIN)
		mce_io_resume_later(l->io, &l->watcher);
	if ((r < 0 && r != -EAGAIN) || mce_tcp_conn_broken(l)) {
		if (r < 0 && l->t->proto->in_order && !is_peers_end(l, r))
			mce_tcp_conn_mark_broken(l);
		mc_debug("engine", "lane lost, peer=%s lane=%u cause=%s", l->t->p->endpoint, l->idx,
			 mc_err_detail(r));
		mce_tcp_conn_down(l, 0);
		return;
	}
	mce_tcp_conns_pump(l->t);
	/* It may have begun to wait since we looked. */
	if (is_led(l->t))
		mce_tcp_wait_tell(l->t);
}

void mce_tcp_conn_ready(struct mc_evfd *e, uint32_t events)
{
	struct mce_tcp_conn *l = mc_container_of(e, struct mce_tcp_conn, evfd);
	bool ending = events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);

	if (events & EPOLLOUT) {
		/* Not before a thread that just found the socket full has said so. */
		pthread_mutex_lock(&l->tx_lock);
		__atomic_store_n(&l->blocked, false, __ATOMIC_RELEASE);
		pthread_mutex_unlock(&l->tx_lock);
	}
	if (is_led(l->t) && !ending) {
		/* Others may have wanted to send while we had the lock. */
		if (events & EPOLLOUT)
			mce_tcp_conns_pump(l->t);
		return;
	}
	pthread_mutex_lock(&l->rx_lock);
	l->rx.dry = false;
	if (ending)
		l->rx.ending = true;
	pthread_mutex_unlock(&l->rx_lock);
	lane_run(l);
}

void mce_tcp_conn_resume(struct mce_watcher *w)
{
	struct mce_tcp_conn *l = mc_container_of(w, struct mce_tcp_conn, watcher);

	if (!is_led(l->t))
		lane_run(l);
}

/* An answer that is owed has its own limit, and what is sent meanwhile does not count. */
static void look_for_answer(struct mce_tcp_conn *l, uint64_t now_ms)
{
	struct mce_peer *p = l->t->p;
	uint64_t received;
	bool owes = false;

	if (!l->t->proto->in_order)
		return;
	pthread_mutex_lock(&l->rx_lock);
	received = l->rx.moved;
	pthread_mutex_unlock(&l->rx_lock);
	pthread_mutex_lock(&p->lock);
	if (!mc_list_empty(&l->pieces))
		owes = mc_list_first(&l->pieces, struct mce_fragment, node)->state == MCE_PIECE_FLYING;
	pthread_mutex_unlock(&p->lock);
	if (!owes || received != l->seen_received || mce_io_stalled(l->io))
		l->owes_ms = now_ms;
	l->seen_received = received;
	if (now_ms - l->owes_ms <= p->e->conf.status_timeout_ms)
		return;
	mc_warn("engine", "no answer, dropping the lane peer=%s lane=%u", p->endpoint, l->idx);
	mce_tcp_conn_mark_broken(l);
}

void mce_tcp_conn_tick(struct mce_watcher *w, uint64_t now_ms)
{
	struct mce_tcp_conn *l = mc_container_of(w, struct mce_tcp_conn, watcher);
	struct mce_peer *p = l->t->p;
	uint64_t moved;
	bool busy;

	pthread_mutex_lock(&l->tx_lock);
	moved = l->tx_moved;
	pthread_mutex_unlock(&l->tx_lock);
	pthread_mutex_lock(&l->rx_lock);
	moved += l->rx.moved;
	pthread_mutex_unlock(&l->rx_lock);
	pthread_mutex_lock(&p->lock);
	busy = l->n > 0;
	pthread_mutex_unlock(&p->lock);
	if (!busy || moved != l->seen_moved) {
		l->seen_moved = moved;
		l->since_ms = now_ms;
	}
	/* A tick that comes late says nothing about the peer. */
	if (mce_io_stalled(l->io))
		l->since_ms = now_ms;
	if (now_ms - l->since_ms > p->e->conf.progress_timeout_ms) {
		mc_warn("engine", "lane makes no progress, dropping it peer=%s lane=%u", p->endpoint,
			l->idx);
		mce_tcp_conn_mark_broken(l);
	}
	look_for_answer(l, now_ms);
	if (mce_tcp_conn_broken(l))
		mce_tcp_conn_down(l, 0);
	else
		mce_tcp_conns_pump(l->t);
}
