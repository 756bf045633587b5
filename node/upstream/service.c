/* SPDX-License-Identifier: Apache-2.0
 * service.c - the service for upstream's clients: listeners, users, start and end. */
#include <config.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/clock.h"
#include "node/upstream/upstream_i.h"

#define LOOPBACK "127.0.0.1"
#define BACKLOG 64
#define ACCEPTS 64
#define ACCEPT_RETRY_MS 100
#define SWEEP_MS 1000

MC_COUNTER(refused, "mooncake_node_upstream_refused_total", "",
	   "connections of upstream's clients refused: wrong user, or too many")

/* ---- users ---- */

static struct mcn_up_user *user_find_locked(struct mcn_up *up, uid_t uid)
{
	struct mcn_up_user *empty = NULL;

	for (unsigned i = 0; i < sizeof(up->user) / sizeof(up->user[0]); i++) {
		struct mcn_up_user *u = &up->user[i];
		bool used = u->conns || u->hands;

		if (used && u->uid == uid)
			return u;
		if (!used)
			empty = u;
	}
	if (empty) {
		*empty = (struct mcn_up_user){ .uid = uid };
		mc_list_init(&empty->jobs);
	}
	return empty;
}

struct mcn_up_user *mcn_up_user_enter(struct mcn_up *up, uid_t uid, bool hand)
{
	struct mcn_up_user *u;
	bool fits;

	MC_LOCKED(&up->lock);
	u = user_find_locked(up, uid);
	fits = u && (hand ? up->nhands < MCN_UP_HANDS_MAX && u->hands < MCN_UP_UID_HANDS :
		     up->nconns < MCN_UP_CONNS_MAX && u->conns < MCN_UP_UID_CONNS);
	if (!fits) {
		(void)mc_fail(-ENOBUFS, "there are %u connections, %u of them of user %u",
			      hand ? up->nhands : up->nconns, !u ? 0 : hand ? u->hands : u->conns, (unsigned)uid);
		return NULL;
	}
	u->conns += !hand;
	u->hands += hand;
	up->nhands += hand;
	return u;
}

void mcn_up_user_leave(struct mcn_up *up, struct mcn_up_user *u, bool hand)
{
	MC_LOCKED(&up->lock);
	u->conns -= !hand;
	u->hands -= hand;
	up->nhands -= hand;
}

/* ---- listeners ---- */

static void watch_listeners(struct mcn_up *up, uint32_t events)
{
	for (unsigned i = 0; i < up->nlisteners; i++)
		(void)mc_evloop_mod(up->loop, &up->listener[i].ev, events);
	if (up->hand_listener.fd >= 0)
		(void)mc_evloop_mod(up->loop, &up->hand_listener, events);
}

void mcn_up_pause(struct mcn_up *up)
{
	watch_listeners(up, 0);
	mc_evtimer_arm(up->loop, &up->retry, mc_deadline_ms(ACCEPT_RETRY_MS));
}

static void server_resume(struct mc_evtimer *t)
{
	watch_listeners(mc_container_of(t, struct mcn_up, retry), EPOLLIN);
}

static void listener_ready(struct mc_evfd *e, uint32_t events)
{
	struct mcn_up_listener *l = mc_container_of(e, struct mcn_up_listener, ev);
	struct mc_stream stream;
	uint64_t now;
	int r;

	for (int i = 0; i < ACCEPTS; i++) {
		now = mc_now_ns();
		r = mc_listener_accept(&l->listener, &stream);
		if (r == -EAGAIN) {
			l->empty = now;
			return;
		}
		if (r < 0) {
			mc_warn("node", "cannot accept a connection, will retry: %s", mc_err_detail(r));
			mcn_up_pause(l->up);
			return;
		}
		r = mcn_up_conn_new(l->up, &stream, l->empty);
		if (r < 0) {
			mc_metric_add(&refused, 1);
			mc_warn("node", "upstream's client refused: %s", mc_err_detail(r));
			mc_stream_close(&stream);
		}
	}
}

/* A client may have connected, and sent a request, long before it is accepted. */
static void listener_tick(struct mcn_up_listener *l, uint64_t now)
{
	struct pollfd p = { .fd = l->ev.fd, .events = POLLIN };

	if (poll(&p, 1, 0) == 0)
		l->empty = now;
}

static int listen_at(struct mcn_up *up, const char *host, int port)
{
	struct mcn_up_listener *l = &up->listener[up->nlisteners];
	char addr[MC_ADDR_MAX];
	int r;

	r = mc_addr_join(host, port, addr);
	if (r == 0)
		r = mc_net_listen(mc_net_default(), addr, BACKLOG, &l->listener);
	if (r < 0)
		return r;
	l->up = up;
	l->empty = mc_now_ns();
	mc_evfd_listener(&l->ev, &l->listener);
	l->ev.ready = listener_ready;
	up->nlisteners++;
	return 0;
}

static bool host_is_wildcard(const char *host)
{
	return !host || !*host || !strcmp(host, "0.0.0.0") || !strcmp(host, "::");
}

/* The address of other nodes is a second way for clients of this host: guides give it to them.  One that is not an
 * address of this machine (behind a NAT) is none. */
static int listen_all(struct mcn_up *up, const struct mcn_up_conf *conf)
{
	int r = listen_at(up, LOOPBACK, conf->port);

	if (r == 0)
		r = mcn_up_hand_listen(up, conf->port);
	if (r < 0 || host_is_wildcard(conf->host) || !strcmp(conf->host, LOOPBACK) || !strcmp(conf->host, "localhost"))
		return r;
	r = listen_at(up, conf->host, conf->port);
	if (r < 0)
		mc_warn("node", "upstream's clients reach this daemon at %s only: %s", mcn_up_address(up),
			mc_err_detail(r));
	return 0;
}

/* ---- start and end ---- */

static void server_sweep(struct mc_evtimer *t)
{
	struct mcn_up *up = mc_container_of(t, struct mcn_up, sweep);
	uint64_t now = mc_now_ns();
	struct mc_list *pos, *tmp;

	for (unsigned i = 0; i < up->nlisteners; i++)
		listener_tick(&up->listener[i], now);
	mcn_up_dummies_sweep(up->dummies);
	mcn_up_hand_tick(up, now);
	mc_list_for_each_safe(pos, tmp, &up->conns)
		mcn_up_conn_tick(mc_container_of(pos, struct mcn_up_conn, link), now);
	mcn_up_conns_retry(up);
	mc_evtimer_arm(up->loop, t, mc_deadline_ms(SWEEP_MS));
}

static int server_start(struct mcn_up *up, const struct mcn_up_conf *conf)
{
	int r;

	r = mcn_up_dummies_new(&up->dummies);
	if (r == 0)
		r = listen_all(up, conf);
	if (r == 0)
		r = mc_evloop_new("mcn-upstream", 0, &up->loop);
	for (unsigned i = 0; i < up->nlisteners && r == 0; i++)
		r = mc_evloop_add(up->loop, &up->listener[i].ev, EPOLLIN);
	if (r == 0)
		r = mc_evloop_add(up->loop, &up->hand_listener, EPOLLIN);
	if (r < 0)
		return r;
	up->sweep.fire = server_sweep;
	up->retry.fire = server_resume;
	mc_evtimer_arm(up->loop, &up->sweep, mc_deadline_ms(SWEEP_MS));
	r = mc_evloop_start(up->loop);
	up->started = r == 0;
	return r;
}

int mcn_up_start(const struct mcn_up_conf *conf, struct mcn_up **ret)
{
	struct mcn_up *up = calloc(1, sizeof(*up));
	int r;

	if (!up)
		return -ENOMEM;
	up->node = conf->node;
	up->store = conf->node->conf.store;
	up->hand_listener.fd = -1;
	mc_mutex_init(&up->lock);
	(void)mc_cond_init(&up->work);
	(void)mc_cond_init(&up->changed);
	mc_list_init(&up->conns);
	mc_list_init(&up->hands);
	r = server_start(up, conf);
	if (r < 0) {
		mcn_up_stop(up);
		return r;
	}
	*ret = up;
	return 0;
}

/* Loop. */
static void close_all(void *arg)
{
	struct mcn_up *up = arg;

	mc_evtimer_disarm(up->loop, &up->retry);
	for (unsigned i = 0; i < up->nlisteners; i++)
		mc_evloop_del(up->loop, &up->listener[i].ev);
	mc_evloop_del(up->loop, &up->hand_listener);
	while (!mc_list_empty(&up->conns))
		mcn_up_conn_close(mc_list_first(&up->conns, struct mcn_up_conn, link));
	mcn_up_hand_close_all(up);
}

void mcn_up_stop(struct mcn_up *up)
{
	if (!up)
		return;
	if (up->started)
		(void)mc_evloop_call(up->loop, close_all, up);
	mc_mutex_lock(&up->lock);
	while (up->nconns)
		mc_cond_wait(&up->changed, &up->lock);
	mc_mutex_unlock(&up->lock);
	mcn_up_work_stop(up);
	mc_evloop_free(up->loop);
	for (unsigned i = 0; i < up->nlisteners; i++)
		mc_listener_close(&up->listener[i].listener);
	if (up->hand_listener.fd >= 0)
		close(up->hand_listener.fd);
	mcn_up_dummies_free(up->dummies);
	mc_cond_destroy(&up->work);
	mc_cond_destroy(&up->changed);
	mc_mutex_destroy(&up->lock);
	free(up);
}

const char *mcn_up_address(const struct mcn_up *up)
{
	return up->nlisteners ? up->listener[0].listener.addr : "";
}
