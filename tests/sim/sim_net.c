/* SPDX-License-Identifier: Apache-2.0
 * sim_net.c - streams, listeners and pollers in memory. */
#include <config.h>

#include "tests/sim/sim_net.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/list.h"
#include "common/sys/clock.h"
#include "common/sys/world.h"
#include "tests/sim/sim.h"

#define WINDOW (256u << 10)	/* bytes on their way in one direction */
#define PIECE_MAX (16u << 10)

struct piece {
	struct piece *next;
	uint64_t at;		/* when it arrives */
	size_t len, taken;
	char data[];
};

/* One end of a connection. */
struct end {
	struct mc_list node;	/* of the net, or of a listener's queue */
	struct sim_net *net;
	const struct mc_world *owner;	/* NULL: it waits for accept */
	struct end *peer;	/* NULL: it is closed */
	struct piece *first, **last;	/* received */
	size_t bytes;
	uint64_t arrival;	/* of the last piece; of the connection, before its accept */
	bool sent_end, got_end, reset;
	uint64_t end_at;	/* when the peer's end arrives */
	char name[64];		/* of the peer */
};

struct place {
	struct mc_list node;
	struct sim_net *net;
	const struct mc_world *owner;
	struct mc_list queue;	/* ends that wait for accept */
	char addr[MC_ADDR_MAX];
};

struct sim_net {
	struct mc_net maker;
	struct sim *sim;
	struct mc_list ends, places;
	uint64_t delay_min, delay_max;
	unsigned ports;
};

static uint64_t net_delay(struct sim_net *n)
{
	return n->delay_min + sim_random(n->sim) % (n->delay_max - n->delay_min + 1);
}

/* Something has changed: all fibers that wait for the net check their conditions again. */
static void net_changed(struct sim_net *n)
{
	sim_wake(n->sim, n);
}

/* ---- streams ---- */

static struct end *end_of(const struct mc_stream *s)
{
	return s->state;
}

static bool end_has_bytes(const struct end *e)
{
	return e->first && e->first->at <= sim_now(e->net->sim);
}

static bool end_is_over(const struct end *e)
{
	return !e->first && e->got_end && e->end_at <= sim_now(e->net->sim);
}

static ssize_t end_lost(const struct end *e)
{
	return mc_fail(-ECONNRESET, "connection reset by %s", e->name);
}

static ssize_t sim_send(struct mc_stream *s, const struct iovec *iov, int n)
{
	struct end *e = end_of(s), *p = e->peer;
	size_t sum = 0, room, len, at = 0;
	struct piece *piece;

	if (e->reset)
		return end_lost(e);
	if (!p || e->sent_end)
		return mc_fail(-EPIPE, "connection closed by %s", e->name);
	for (int i = 0; i < n; i++)
		sum += iov[i].iov_len;
	room = WINDOW - p->bytes;
	if (!room)
		return -EAGAIN;
	len = sum < room ? sum : room;
	len = len < PIECE_MAX ? len : 1 + sim_random(e->net->sim) % PIECE_MAX;
	piece = calloc(1, sizeof(*piece) + len);
	if (!piece)
		abort();
	for (int i = 0; at < len; i++) {
		size_t part = iov[i].iov_len < len - at ? iov[i].iov_len : len - at;

		if (part)
			memcpy(piece->data + at, iov[i].iov_base, part);
		at += part;
	}
	piece->len = len;
	piece->at = sim_now(e->net->sim) + net_delay(e->net);
	if (piece->at < p->arrival)
		piece->at = p->arrival;
	p->arrival = piece->at;
	*p->last = piece;
	p->last = &piece->next;
	p->bytes += len;
	net_changed(e->net);
	return (ssize_t)len;
}

static size_t sim_repeat(const struct mc_stream *s)
{
	(void)s;
	return 0;
}

static size_t piece_take(struct piece *p, const struct iovec *iov, int n, size_t skip)
{
	size_t done = 0;

	for (int i = 0; i < n && p->taken < p->len; i++) {
		size_t part;

		if (skip >= iov[i].iov_len) {
			skip -= iov[i].iov_len;
			continue;
		}
		part = iov[i].iov_len - skip;
		part = part < p->len - p->taken ? part : p->len - p->taken;
		memcpy((char *)iov[i].iov_base + skip, p->data + p->taken, part);
		p->taken += part;
		done += part;
		skip = 0;
	}
	return done;
}

static ssize_t sim_recv(struct mc_stream *s, const struct iovec *iov, int n)
{
	struct end *e = end_of(s);
	size_t done = 0, part;

	if (e->reset)
		return end_lost(e);
	while (end_has_bytes(e)) {
		struct piece *p = e->first;

		part = piece_take(p, iov, n, done);
		if (!part)
			break;
		done += part;
		e->bytes -= part;
		if (p->taken < p->len)
			break;
		e->first = p->next;
		if (!e->first)
			e->last = &e->first;
		free(p);
	}
	if (done) {
		net_changed(e->net);
		return (ssize_t)done;
	}
	return end_is_over(e) ? 0 : -EAGAIN;
}

static int sim_peek(struct mc_stream *s)
{
	struct end *e = end_of(s);

	if (e->reset)
		return (int)end_lost(e);
	return end_has_bytes(e) ? 1 : end_is_over(e) ? 0 : -EAGAIN;
}

static size_t sim_pending(const struct mc_stream *s)
{
	(void)s;
	return 0;
}

static int end_events(const struct end *e, short events)
{
	int now = 0;

	if (e->reset)
		return POLLERR | POLLHUP | (events & (POLLIN | POLLOUT | POLLRDHUP));
	if (end_has_bytes(e) || end_is_over(e))
		now |= events & POLLIN;
	if (e->got_end && e->end_at <= sim_now(e->net->sim))
		now |= events & POLLRDHUP;
	if (!e->peer || e->peer->bytes < WINDOW)
		now |= events & POLLOUT;
	return now;
}

/* When something arrives that has been sent already; MC_NEVER: nothing is on its way. */
static uint64_t end_next(const struct end *e)
{
	uint64_t now = sim_now(e->net->sim), at = MC_NEVER;

	if (e->first && e->first->at > now)
		at = e->first->at;
	if (e->got_end && e->end_at > now && e->end_at < at)
		at = e->end_at;
	return at;
}

static int sim_wait(struct mc_stream *s, short events, uint64_t deadline)
{
	struct end *e = end_of(s);
	uint64_t next;
	int now;

	for (;;) {
		now = end_events(e, events);
		if (now || !deadline || mc_now_ns() >= deadline)
			return now;
		next = end_next(e);
		sim_block(e->net->sim, e->net, next < deadline ? next : deadline);
	}
}

static void sim_peer(const struct mc_stream *s, struct mc_stream_peer *ret)
{
	*ret = (struct mc_stream_peer){ .local = false };
	snprintf(ret->name, sizeof(ret->name), "%s", end_of(s)->name);
}

static void sim_tune(struct mc_stream *s, const struct mc_stream_tuning *t)
{
	(void)s;
	(void)t;
}

/* The peer gets an end behind all bytes that were sent. */
static void end_send_end(struct end *e)
{
	struct end *p = e->peer;

	if (!p || e->sent_end)
		return;
	e->sent_end = true;
	p->got_end = true;
	p->end_at = sim_now(e->net->sim) + net_delay(e->net);
	if (p->end_at < p->arrival)
		p->end_at = p->arrival;
}

static void sim_shutdown(struct mc_stream *s, int how)
{
	struct end *e = end_of(s);

	end_send_end(e);
	if (how == SHUT_RDWR) {
		e->got_end = true;
		e->end_at = 0;
	}
	net_changed(e->net);
}

static void end_reset(struct end *e)
{
	if (e->peer)
		e->peer->reset = true;
	e->reset = true;
	net_changed(e->net);
}

static void sim_reset(struct mc_stream *s)
{
	end_reset(end_of(s));
}

static void end_free(struct end *e)
{
	struct piece *p;

	while ((p = e->first)) {
		e->first = p->next;
		free(p);
	}
	if (e->peer) {
		end_send_end(e);
		e->peer->peer = NULL;
	}
	mc_list_remove(&e->node);
	net_changed(e->net);
	free(e);
}

static void sim_close(struct mc_stream *s)
{
	end_free(end_of(s));
}

static const struct mc_stream_ops stream_ops = {
	.send = sim_send,
	.repeat = sim_repeat,
	.recv = sim_recv,
	.peek = sim_peek,
	.pending = sim_pending,
	.wait = sim_wait,
	.peer = sim_peer,
	.tune = sim_tune,
	.shutdown = sim_shutdown,
	.reset = sim_reset,
	.close = sim_close,
};

/* ---- listeners ---- */

static struct end *place_first(struct place *p, uint64_t *ret_next)
{
	struct end *e;

	*ret_next = MC_NEVER;
	if (mc_list_empty(&p->queue))
		return NULL;
	e = mc_list_first(&p->queue, struct end, node);
	if (e->arrival <= sim_now(p->net->sim))
		return e;
	*ret_next = e->arrival;
	return NULL;
}

static int sim_accept(struct mc_listener *l, struct mc_stream *ret)
{
	struct place *p = l->state;
	uint64_t next;
	struct end *e = place_first(p, &next);

	if (!e)
		return -EAGAIN;
	mc_list_remove(&e->node);
	mc_list_push_back(&p->net->ends, &e->node);
	e->owner = p->owner;
	*ret = (struct mc_stream){ &stream_ops, -1, e };
	return 0;
}

static int sim_listener_wait(struct mc_listener *l, uint64_t deadline)
{
	struct place *p = l->state;
	uint64_t next;

	while (!place_first(p, &next)) {
		if (!deadline || mc_now_ns() >= deadline)
			return 0;
		sim_block(p->net->sim, p->net, next < deadline ? next : deadline);
	}
	return 1;
}

static void place_free(struct place *p)
{
	while (!mc_list_empty(&p->queue)) {
		struct end *e = mc_list_first(&p->queue, struct end, node);

		end_reset(e);
		end_free(e);
	}
	mc_list_remove(&p->node);
	free(p);
}

static void sim_listener_close(struct mc_listener *l)
{
	place_free(l->state);
}

static const struct mc_listener_ops listener_ops = {
	.accept = sim_accept,
	.wait = sim_listener_wait,
	.close = sim_listener_close,
};

/* ---- the maker ---- */

static struct place *place_find(struct sim_net *n, const char *addr)
{
	struct mc_list *pos;

	mc_list_for_each(pos, &n->places) {
		struct place *p = mc_container_of(pos, struct place, node);

		if (!strcmp(p->addr, addr))
			return p;
	}
	return NULL;
}

static struct end *end_new(struct sim_net *n, const char *peer)
{
	struct end *e = calloc(1, sizeof(*e));

	if (!e)
		abort();
	e->net = n;
	e->last = &e->first;
	snprintf(e->name, sizeof(e->name), "%s", peer);
	return e;
}

static int net_connect(const struct mc_net *maker, const char *addr, uint64_t deadline, struct mc_stream *ret)
{
	struct sim_net *n = maker->state;
	struct end *mine, *theirs;
	struct place *p;

	(void)deadline;
	/* The first packet, and the answer to it. */
	mc_sleep_ns(2 * net_delay(n));
	p = place_find(n, addr);
	if (!p)
		return mc_fail(-ECONNREFUSED, "cannot connect to %s: connection refused", addr);
	mine = end_new(n, addr);
	theirs = end_new(n, "sim:1");
	mine->owner = mc_world_current();
	mine->peer = theirs;
	theirs->peer = mine;
	theirs->arrival = sim_now(n->sim);
	mc_list_push_back(&n->ends, &mine->node);
	mc_list_push_back(&p->queue, &theirs->node);
	net_changed(n);
	*ret = (struct mc_stream){ &stream_ops, -1, mine };
	return 0;
}

static int net_listen(const struct mc_net *maker, const char *addr, int backlog, struct mc_listener *ret)
{
	struct sim_net *n = maker->state;
	const char *colon = strrchr(addr, ':');
	struct place *p = calloc(1, sizeof(*p));

	(void)backlog;
	if (!p)
		abort();
	if (colon && !strcmp(colon, ":0"))
		snprintf(p->addr, sizeof(p->addr), "%.*s:%u", (int)(colon - addr), addr, 10000 + n->ports++);
	else
		snprintf(p->addr, sizeof(p->addr), "%s", addr);
	if (place_find(n, p->addr)) {
		free(p);
		return mc_fail(-EADDRINUSE, "address already in use: %s", addr);
	}
	p->net = n;
	p->owner = mc_world_current();
	mc_list_init(&p->queue);
	mc_list_push_back(&n->places, &p->node);
	*ret = (struct mc_listener){ .ops = &listener_ops, .fd = -1, .state = p };
	snprintf(ret->addr, sizeof(ret->addr), "%s", p->addr);
	return 0;
}

static const struct mc_net_ops net_ops = { .connect = net_connect, .listen = net_listen };

const struct mc_net *sim_net_maker(struct sim_net *n)
{
	return &n->maker;
}

/* ---- pollers ---- */

struct sim_poller {
	struct mc_poller poller;
	struct sim_net *net;
	struct mc_evfd **watched;
	unsigned n, cap, from;
	bool woken;
};

static struct sim_poller *poller_of(struct mc_poller *p)
{
	return mc_container_of(p, struct sim_poller, poller);
}

static int poller_add(struct mc_poller *p, struct mc_evfd *e)
{
	struct sim_poller *sp = poller_of(p);

	if (!e->stream && !e->listener)
		abort();
	if (sp->n == sp->cap) {
		sp->cap = 2 * sp->cap + 16;
		sp->watched = realloc(sp->watched, sp->cap * sizeof(struct mc_evfd *));
		if (!sp->watched)
			abort();
	}
	sp->watched[sp->n++] = e;
	net_changed(sp->net);
	return 0;
}

static int poller_mod(struct mc_poller *p, struct mc_evfd *e)
{
	(void)e;
	net_changed(poller_of(p)->net);
	return 0;
}

static void poller_del(struct mc_poller *p, struct mc_evfd *e)
{
	struct sim_poller *sp = poller_of(p);

	for (unsigned i = 0; i < sp->n; i++)
		if (sp->watched[i] == e) {
			sp->watched[i] = sp->watched[--sp->n];
			return;
		}
}

static uint64_t entry_next(const struct mc_evfd *e)
{
	uint64_t next;

	if (e->stream)
		return end_next(end_of(e->stream));
	(void)place_first(e->listener->state, &next);
	return next;
}

/* Events of the entries, beginning with another one each time. */
static int poller_collect(struct sim_poller *sp, struct epoll_event *ret, int max)
{
	int n = 0;

	if (sp->woken)
		ret[n++] = (struct epoll_event){ .events = EPOLLIN, .data.ptr = NULL };
	sp->woken = false;
	sp->from++;
	for (unsigned i = 0; i < sp->n && n < max; i++) {
		struct mc_evfd *e = sp->watched[(sp->from + i) % sp->n];
		uint32_t events = mc_evfd_look(e);

		if (events)
			ret[n++] = (struct epoll_event){ .events = events, .data.ptr = e };
	}
	return n;
}

static int poller_wait(struct mc_poller *p, struct epoll_event *ret, int max, uint64_t deadline)
{
	struct sim_poller *sp = poller_of(p);

	for (;;) {
		uint64_t until = deadline;
		int n = poller_collect(sp, ret, max);

		if (n || !deadline || mc_now_ns() >= deadline)
			return n;
		for (unsigned i = 0; i < sp->n; i++) {
			uint64_t next = entry_next(sp->watched[i]);

			until = next < until ? next : until;
		}
		sim_block(sp->net->sim, sp->net, until);
	}
}

static void poller_wake(struct mc_poller *p)
{
	poller_of(p)->woken = true;
	net_changed(poller_of(p)->net);
}

static void poller_close(struct mc_poller *p)
{
	struct sim_poller *sp = poller_of(p);

	free(sp->watched);
	free(sp);
}

static const struct mc_poller_ops poller_ops = {
	.add = poller_add,
	.mod = poller_mod,
	.del = poller_del,
	.wait = poller_wait,
	.wake = poller_wake,
	.close = poller_close,
};

static int net_poller_new(void *net, struct mc_poller **ret)
{
	struct sim_poller *sp = calloc(1, sizeof(*sp));

	if (!sp)
		abort();
	sp->poller.ops = &poller_ops;
	sp->net = net;
	*ret = &sp->poller;
	return 0;
}

/* ---- life ---- */

struct sim_net *sim_net_new(struct sim *s, uint64_t delay_min_ns, uint64_t delay_max_ns)
{
	struct sim_net *n = calloc(1, sizeof(*n));

	if (!n)
		abort();
	n->maker = (struct mc_net){ .ops = &net_ops, .state = n };
	n->sim = s;
	n->delay_min = delay_min_ns;
	n->delay_max = delay_max_ns;
	mc_list_init(&n->ends);
	mc_list_init(&n->places);
	sim_set_pollers(s, net_poller_new, n);
	return n;
}

void sim_net_kill(struct sim_net *n, const struct mc_world *w)
{
	struct mc_list *pos, *next;

	for (pos = n->places.next; pos != &n->places; pos = next) {
		struct place *p = mc_container_of(pos, struct place, node);

		next = pos->next;
		if (p->owner == w)
			place_free(p);
	}
	for (pos = n->ends.next; pos != &n->ends; pos = next) {
		struct end *e = mc_container_of(pos, struct end, node);

		next = pos->next;
		if (e->owner != w)
			continue;
		end_reset(e);
		end_free(e);
	}
}

void sim_net_free(struct sim_net *n)
{
	if (!mc_list_empty(&n->ends) || !mc_list_empty(&n->places)) {
		fprintf(stderr, "sim: connections are left open\n");
		abort();
	}
	free(n);
}
