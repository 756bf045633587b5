/* SPDX-License-Identifier: Apache-2.0
 * daemon_conn.c - the connection to the daemon: requests at its socket, and its mapped segments. */
#include <config.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/daemon/daemon_i.h"
#include "common/cleanup.h"
#include "common/net/packet.h"
#include "common/sys/thread.h"

#define ANSWER_MS 10000
#define GRACE_MS 3000		/* wait this much longer than the deadline, as for answers in rings */
#define FOUND_MS 1000		/* greeting time of a daemon that the client found itself */
#define LEAST_MS 1000		/* a healthy daemon answers within this time */

uint64_t mcs_daemon_until(uint64_t deadline)
{
	uint64_t most = mc_deadline_ms(ANSWER_MS), grace = GRACE_MS * MC_NS_PER_MS;

	return deadline < most - grace ? deadline + grace : most;
}

struct mcs_daemon_conn *mcs_daemon_conn_ref(struct mcs_daemon_conn *c)
{
	__atomic_fetch_add(&c->refs, 1, __ATOMIC_RELAXED);
	return c;
}

void mcs_daemon_conn_put(struct mcs_daemon_conn *c)
{
	if (!c || __atomic_sub_fetch(&c->refs, 1, __ATOMIC_ACQ_REL))
		return;
	for (unsigned i = 0; i < MCS_DAEMON_RINGS; i++)
		if (c->ring[i])
			mcs_daemon_ring_free(c->ring[i]);
	for (unsigned i = 0; i < MCS_DAEMON_SEGMENTS; i++)
		if (c->segment[i].base)
			munmap((void *)(uintptr_t)c->segment[i].base, c->segment[i].size);
	if (c->sock >= 0) {
		/* A child that was forked meanwhile has the descriptor too, so closing is not enough. */
		(void)shutdown(c->sock, SHUT_RDWR);
		close(c->sock);
	}
	mc_mutex_destroy(&c->rings_lock);
	mc_mutex_destroy(&c->tell_lock);
	mc_mutex_destroy(&c->ask_lock);
	free(c);
}

/* Shut down for writing, so that the daemon ends its work for us and then closes its side, which we can see. */
void mcs_daemon_conn_lost(struct mcs_daemon_conn *c)
{
	if (!__atomic_exchange_n(&c->lost, true, __ATOMIC_ACQ_REL))
		(void)shutdown(c->sock, SHUT_WR);
}

bool mcs_daemon_conn_is_lost(const struct mcs_daemon_conn *c)
{
	return __atomic_load_n(&c->lost, __ATOMIC_ACQUIRE);
}

bool mcs_daemon_conn_over(const struct mcs_daemon_conn *c)
{
	struct pollfd p = { .fd = c->sock };

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR));
}

bool mcs_daemon_conn_gone(struct mcs_daemon_conn *c)
{
	if (!mcs_daemon_conn_is_lost(c) && mcs_daemon_conn_over(c))
		mcs_daemon_conn_lost(c);
	return mcs_daemon_conn_is_lost(c);
}

/* Until when to wait for an answer: at least LEAST_MS, and not longer than FOUND_MS for the
 * greeting of a found daemon. */
static uint64_t conn_answer_until(const struct mcs_daemon_conn *c, const struct mcfs_msg *msg, uint64_t until)
{
	uint64_t least = mc_deadline_ms(LEAST_MS), found = mc_deadline_ms(FOUND_MS);

	if (msg->type == MCFS_MSG_HELLO && c->d->found && until > found)
		return found;
	return until > least ? until : least;
}

static int conn_exchange(struct mcs_daemon_conn *c, struct mcfs_msg *msg, int fd, uint64_t until, int *ret_fd)
{
	uint64_t deadline = conn_answer_until(c, msg, until);
	uint16_t type = msg->type;
	int got = -1, r;
	ssize_t n;

	/* A late answer on a lost connection would be taken for the answer to another request. */
	if (mcs_daemon_conn_is_lost(c))
		return mc_fail(-MC_ERPC, "the connection to the node's daemon is lost");
	msg->magic = MCFS_RING_MAGIC;
	msg->version = MCFS_RING_VERSION;
	r = mc_packet_send(c->sock, msg, sizeof(*msg), fd, deadline);
	/* A daemon that refuses this user sends its reason, and closes, before it reads the greeting.  The kernel then
	 * reports the reset once, to the send or to the first receive, before it delivers the reason. */
	if (r < 0 && (type != MCFS_MSG_HELLO || (r != -EPIPE && r != -ECONNRESET)))
		return mc_fail(-MC_ERPC, "the node's daemon has gone: %s", mc_strerror(r));
	n = mc_packet_recv(c->sock, msg, sizeof(*msg), &got, deadline);
	if (n == -ECONNRESET && type == MCFS_MSG_HELLO)
		n = mc_packet_recv(c->sock, msg, sizeof(*msg), &got, deadline);
	if (n < (ssize_t)sizeof(*msg) || msg->magic != MCFS_RING_MAGIC || msg->type != type) {
		if (got >= 0)
			close(got);
		return mc_fail(-MC_ERPC, "the node's daemon does not answer: %s",
			       n < 0 ? mc_strerror((int)n) : "connection closed");
	}
	msg->text[sizeof(msg->text) - 1] = '\0';
	if (msg->status < 0) {
		if (got >= 0)
			close(got);
		return mc_fail(msg->status, "node daemon: %s", msg->text);
	}
	if (ret_fd)
		*ret_fd = got;
	else if (got >= 0)
		close(got);
	return 0;
}

static int conn_busy(void)
{
	return mc_fail(-MC_ETIMEDOUT, "the node's daemon has not answered other threads yet");
}

static int conn_ask_locked(struct mcs_daemon_conn *c, struct mcfs_msg *msg, int fd, uint64_t until, int *ret_fd)
{
	int r = conn_exchange(c, msg, fd, until, ret_fd);

	if (r == -MC_ERPC)
		mcs_daemon_conn_lost(c);
	return r;
}

int mcs_daemon_conn_ask(struct mcs_daemon_conn *c, struct mcfs_msg *msg, int fd, uint64_t until, int *ret_fd)
{
	int r;

	r = mc_fork_check(c->d->fork_depth);
	if (r < 0)
		return r;
	if (mc_mutex_lock_until(&c->ask_lock, until) < 0)
		return conn_busy();
	r = conn_ask_locked(c, msg, fd, until, ret_fd);
	mc_mutex_unlock(&c->ask_lock);
	return r;
}

static int conn_greet(struct mcs_daemon *d, struct mcs_daemon_conn *c, uint64_t until)
{
	struct mcfs_msg msg = { .type = MCFS_MSG_HELLO };
	uint64_t asked_ns = mc_now_ns();
	const char *name[2] = { "", "" };	/* names of the host and of the tenant */
	const char *p, *end = msg.text + sizeof(msg.text);
	int r = mcs_daemon_conn_ask(c, &msg, -1, until, NULL);

	if (r < 0)
		return r;
	c->token = msg.token;
	/* A daemon in another time namespace has another clock; an older daemon does not send its clock. */
	c->one_clock = msg.clock_ns >= asked_ns && msg.clock_ns <= mc_now_ns();
	p = msg.text;
	for (unsigned i = 0; i < 2 && (p += strlen(p) + 1) < end; i++)
		name[i] = p;
	if (*d->master && strcmp(msg.text, d->master))
		return mc_fail(-MC_ERPC, "the daemon at %s serves another master now: %s", d->addr, msg.text);
	if (*d->master && strcmp(name[1], d->tenant))
		return mc_fail(-MC_ERPC, "the daemon at %s serves another tenant now: %s", d->addr,
			       *name[1] ? name[1] : "default");
	if (*d->master)
		return 0;
	memcpy(d->master, msg.text, sizeof(d->master));
	snprintf(d->hostname, sizeof(d->hostname), "%s", name[0]);
	snprintf(d->tenant, sizeof(d->tenant), "%s", name[1]);
	return 0;
}

/* Any user of this host may listen at the well-known port, so a found daemon must run as root or as this user. */
static int conn_trust(const struct mcs_daemon *d, int sock)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (!d->found)
		return 0;
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return mc_fail(-MC_ERPC, "peer credentials: %s", mc_strerror(errno));
	return peer.uid == 0 || peer.uid == geteuid() ? 0 :
		mc_fail(-MC_ERPC, "the daemon at %s runs as user %u: not trusted unless daemon= names it",
			d->addr, (unsigned)peer.uid);
}

/* Make a new connection; it becomes the current one when all memory is handed over. */
static int conn_open(struct mcs_daemon *d, uint64_t until)
{
	struct mcs_daemon_conn *c = calloc(1, sizeof(*c));
	int r = 0;

	if (!c)
		return -ENOMEM;
	c->d = d;
	c->refs = 1;
	mc_mutex_init(&c->rings_lock);
	mc_mutex_init(&c->tell_lock);
	mc_mutex_init(&c->ask_lock);
	c->sock = mc_packet_connect(d->addr, until);
	if (c->sock < 0)
		r = mc_fail(-MC_ERPC, "no daemon at %s: %s", d->addr, mc_strerror(c->sock));
	if (r == 0)
		r = conn_trust(d, c->sock);
	if (r == 0)
		r = conn_greet(d, c, until);
	if (r == 0)
		r = mcs_daemon_mem_publish(c, until);
	mcs_daemon_conn_put(c);
	return r;
}

/* Connect in this thread. */
static int conn_attempt_locked(struct mcs_daemon *d, uint64_t until)
{
	int r;

	d->connecting = true;
	mc_mutex_unlock(&d->lock);
	r = conn_open(d, until);
	mc_mutex_lock(&d->lock);
	d->connecting = false;
	d->attempts++;
	d->attempt_err = r;
	d->attempt_late = mc_now_ns() >= until;
	snprintf(d->attempt_why, sizeof(d->attempt_why), "%s", r < 0 ? mc_err_detail(r) : "");
	mc_cond_broadcast(&d->changed);
	return r;
}

/* Wait for the thread that connects.  Its failure is this thread's too, unless it only ran out of time sooner. */
static int conn_await_locked(struct mcs_daemon *d, uint64_t until)
{
	unsigned attempt = d->attempts;

	while (d->attempts == attempt)
		if (mc_cond_wait_until(&d->changed, &d->lock, until) < 0 && d->attempts == attempt)
			return mc_fail(-MC_ETIMEDOUT, "no connection to the daemon at %s in time", d->addr);
	return d->attempt_err < 0 && !d->attempt_late ? mc_fail(d->attempt_err, "%s", d->attempt_why) : 0;
}

int mcs_daemon_conn_get(struct mcs_daemon *d, uint64_t deadline, struct mcs_daemon_conn **ret)
{
	uint64_t until = mcs_daemon_until(deadline);
	int r;

	r = mc_fork_check(d->fork_depth);
	if (r < 0)
		return r;
	MC_LOCKED(&d->lock);
	while (r == 0) {
		if (d->conn && mcs_daemon_conn_is_lost(d->conn)) {
			mcs_daemon_conn_put(d->conn);
			d->conn = NULL;
		}
		if (d->conn) {
			*ret = mcs_daemon_conn_ref(d->conn);
			return 0;
		}
		if (mc_now_ns() >= until)
			return mc_fail(-MC_ETIMEDOUT, "no connection to the daemon at %s in time", d->addr);
		r = d->connecting ? conn_await_locked(d, until) : conn_attempt_locked(d, until);
	}
	return r;
}

/* ---- segments ---- */

static int conn_map_segment_locked(struct mcs_daemon_conn *c, unsigned id, uint64_t until)
{
	struct mcfs_msg msg = { .type = MCFS_MSG_SEGMENT, .id = id };
	int fd = -1, r;
	void *p;

	if (c->segment[id].base)
		return 0;
	r = conn_ask_locked(c, &msg, -1, until, &fd);
	if (r < 0)
		return r;
	if (fd < 0)
		return mc_fail(-MC_EPROTO, "a segment without a descriptor");
	p = mmap(NULL, msg.size, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		return mc_fail(-errno, "segment %u of %llu bytes cannot be mapped: %s", id,
			       (unsigned long long)msg.size, mc_strerror(errno));
	c->segment[id].size = msg.size;
	__atomic_store_n(&c->segment[id].base, p, __ATOMIC_RELEASE);
	return 0;
}

static int conn_map_segment(struct mcs_daemon_conn *c, unsigned id, uint64_t until)
{
	int r;

	if (mc_mutex_lock_until(&c->ask_lock, until) < 0)
		return conn_busy();
	r = conn_map_segment_locked(c, id, until);
	mc_mutex_unlock(&c->ask_lock);
	return r;
}

const void *mcs_daemon_conn_at(struct mcs_daemon_conn *c, unsigned segment, uint64_t offset,
			       uint64_t size, uint64_t deadline, int *ret_err)
{
	const unsigned char *base;
	int r = 0;

	if (!size)
		return "";
	if (segment >= MCS_DAEMON_SEGMENTS) {
		*ret_err = mc_fail(-MC_EPROTO, "segment %u", segment);
		return NULL;
	}
	base = __atomic_load_n(&c->segment[segment].base, __ATOMIC_ACQUIRE);
	if (!base)
		r = conn_map_segment(c, segment, mcs_daemon_until(deadline));
	if (r < 0) {
		*ret_err = r;
		return NULL;
	}
	base = c->segment[segment].base;
	if (offset > c->segment[segment].size || size > c->segment[segment].size - offset) {
		*ret_err = mc_fail(-MC_EPROTO, "an object outside of its segment");
		return NULL;
	}
	return base + offset;
}
