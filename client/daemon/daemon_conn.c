/* SPDX-License-Identifier: Apache-2.0
 * node_conn.c - the connection to the daemon. */
#include <config.h>

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/daemon/daemon_i.h"
#include "common/cleanup.h"
#include "common/net/packet.h"
#include "common/thread.h"

#define ANSWER_MS 10000
#define GRACE_MS 3000		/* after the deadline, as for the answers in rings */
#define FOUND_MS 1000		/* one that nobody has named: who does not answer is not used */
#define LEAST_MS 1000		/* a daemon that is well answers by then */

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
		/* A child that was forked meanwhile has it too. */
		(void)shutdown(c->sock, SHUT_RDWR);
		close(c->sock);
	}
	pthread_mutex_destroy(&c->rings_lock);
	pthread_mutex_destroy(&c->tell_lock);
	pthread_mutex_destroy(&c->ask_lock);
	free(c);
}

/* The daemon learns that it is to end what it does for us.  For writing only: that it has ended is then seen
 * by its closing. */
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

static uint64_t answer_until(const struct mcs_daemon_conn *c, const struct mcfs_msg *msg, uint64_t until)
{
	uint64_t least = mc_deadline_ms(LEAST_MS), found = mc_deadline_ms(FOUND_MS);

	if (msg->type == MCFS_MSG_HELLO && c->n->found && until > found)
		return found;
	return until > least ? until : least;
}

static int exchange(struct mcs_daemon_conn *c, struct mcfs_msg *msg, int fd, uint64_t until, int *ret_fd)
{
	uint64_t deadline = answer_until(c, msg, until);
	uint16_t type = msg->type;
	int got = -1, r;
	ssize_t n;

	/* What comes late would be taken for the answer to something else. */
	if (mcs_daemon_conn_is_lost(c))
		return mc_fail(-MC_ERPC, "the connection to the node's daemon is lost");
	msg->magic = MCFS_RING_MAGIC;
	msg->version = MCFS_RING_VERSION;
	r = mc_packet_send(c->sock, msg, sizeof(*msg), fd, deadline);
	if (r < 0)
		return mc_fail(-MC_ERPC, "the node's daemon has gone: %s", mc_strerror(r));
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

static int no_turn(void)
{
	return mc_fail(-MC_ETIMEDOUT, "the node's daemon has not answered others yet");
}

static int ask_locked(struct mcs_daemon_conn *c, struct mcfs_msg *msg, int fd, uint64_t until, int *ret_fd)
{
	int r = exchange(c, msg, fd, until, ret_fd);

	if (r == -MC_ERPC)
		mcs_daemon_conn_lost(c);
	return r;
}

int mcs_daemon_conn_ask(struct mcs_daemon_conn *c, struct mcfs_msg *msg, int fd, uint64_t until, int *ret_fd)
{
	int r;

	r = mc_fork_check(c->n->fork_depth);
	if (r < 0)
		return r;
	if (mc_lock_until(&c->ask_lock, until) < 0)
		return no_turn();
	r = ask_locked(c, msg, fd, until, ret_fd);
	pthread_mutex_unlock(&c->ask_lock);
	return r;
}

static int greet(struct mcs_daemon *n, struct mcs_daemon_conn *c, uint64_t until)
{
	struct mcfs_msg msg = { .type = MCFS_MSG_HELLO };
	uint64_t asked_ns = mc_now_ns();
	const char *name[2] = { "", "" };	/* the node's, and the tenant's */
	const char *p, *end = msg.text + sizeof(msg.text);
	int r = mcs_daemon_conn_ask(c, &msg, -1, until, NULL);

	if (r < 0)
		return r;
	c->token = msg.token;
	/* In another time namespace the daemon has another one, and an older daemon says nothing. */
	c->one_clock = msg.clock_ns >= asked_ns && msg.clock_ns <= mc_now_ns();
	p = msg.text;
	for (unsigned i = 0; i < 2 && (p += strlen(p) + 1) < end; i++)
		name[i] = p;
	if (*n->master && strcmp(msg.text, n->master))
		return mc_fail(-MC_ERPC, "the daemon at %s serves another master now: %s", n->addr, msg.text);
	if (*n->master && strcmp(name[1], n->tenant))
		return mc_fail(-MC_ERPC, "the daemon at %s serves another tenant now: %s", n->addr,
			       *name[1] ? name[1] : "default");
	if (*n->master)
		return 0;
	memcpy(n->master, msg.text, sizeof(n->master));
	snprintf(n->hostname, sizeof(n->hostname), "%s", name[0]);
	snprintf(n->tenant, sizeof(n->tenant), "%s", name[1]);
	return 0;
}

/* At a port that everybody knows anybody of this host may listen. */
static int trust(const struct mcs_daemon *n, int sock)
{
	struct ucred who;
	socklen_t len = sizeof(who);

	if (!n->found)
		return 0;
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0)
		return mc_fail(-MC_ERPC, "peer credentials: %s", mc_strerror(errno));
	return who.uid == 0 || who.uid == geteuid() ? 0 :
		mc_fail(-MC_ERPC, "the daemon at %s is user %u's, who is not trusted unless it is named",
			n->addr, (unsigned)who.uid);
}

/* A new one, which is the node's when all went well. */
static int connect_to(struct mcs_daemon *n, uint64_t until)
{
	struct mcs_daemon_conn *c = calloc(1, sizeof(*c));
	int r = 0;

	if (!c)
		return -ENOMEM;
	c->n = n;
	c->refs = 1;
	pthread_mutex_init(&c->rings_lock, NULL);
	pthread_mutex_init(&c->tell_lock, NULL);
	pthread_mutex_init(&c->ask_lock, NULL);
	c->sock = mc_packet_connect(n->addr, until);
	if (c->sock < 0)
		r = mc_fail(-MC_ERPC, "no daemon at %s: %s", n->addr, mc_strerror(c->sock));
	if (r == 0)
		r = trust(n, c->sock);
	if (r == 0)
		r = greet(n, c, until);
	if (r == 0)
		r = mcs_daemon_mem_publish(c, until);
	mcs_daemon_conn_put(c);
	return r;
}

/* Be the one that connects. */
static int attempt_locked(struct mcs_daemon *n, uint64_t until)
{
	int r;

	n->connecting = true;
	pthread_mutex_unlock(&n->lock);
	r = connect_to(n, until);
	pthread_mutex_lock(&n->lock);
	n->connecting = false;
	n->attempts++;
	n->attempt_err = r;
	n->attempt_late = mc_now_ns() >= until;
	snprintf(n->attempt_why, sizeof(n->attempt_why), "%s", r < 0 ? mc_err_detail(r) : "");
	pthread_cond_broadcast(&n->changed);
	return r;
}

/* Wait for the one that connects.  Its failure is ours, unless it only had less time than we have. */
static int await_locked(struct mcs_daemon *n, uint64_t until)
{
	unsigned attempt = n->attempts;

	while (n->attempts == attempt)
		if (mc_cond_wait_until(&n->changed, &n->lock, until) < 0 && n->attempts == attempt)
			return mc_fail(-MC_ETIMEDOUT, "no connection to the daemon at %s in time", n->addr);
	return n->attempt_err < 0 && !n->attempt_late ? mc_fail(n->attempt_err, "%s", n->attempt_why) : 0;
}

int mcs_daemon_conn_get(struct mcs_daemon *n, uint64_t deadline, struct mcs_daemon_conn **ret)
{
	uint64_t until = mcs_daemon_until(deadline);
	int r;

	r = mc_fork_check(n->fork_depth);
	if (r < 0)
		return r;
	MC_LOCKED(&n->lock);
	while (r == 0) {
		if (n->conn && mcs_daemon_conn_is_lost(n->conn)) {
			mcs_daemon_conn_put(n->conn);
			n->conn = NULL;
		}
		if (n->conn) {
			*ret = mcs_daemon_conn_ref(n->conn);
			return 0;
		}
		if (mc_now_ns() >= until)
			return mc_fail(-MC_ETIMEDOUT, "no connection to the daemon at %s in time", n->addr);
		r = n->connecting ? await_locked(n, until) : attempt_locked(n, until);
	}
	return r;
}

/* ---- segments ---- */

static int map_segment_locked(struct mcs_daemon_conn *c, unsigned id, uint64_t until)
{
	struct mcfs_msg msg = { .type = MCFS_MSG_SEGMENT, .id = id };
	int fd = -1, r;
	void *p;

	if (c->segment[id].base)
		return 0;
	r = ask_locked(c, &msg, -1, until, &fd);
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

static int map_segment(struct mcs_daemon_conn *c, unsigned id, uint64_t until)
{
	int r;

	if (mc_lock_until(&c->ask_lock, until) < 0)
		return no_turn();
	r = map_segment_locked(c, id, until);
	pthread_mutex_unlock(&c->ask_lock);
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
		r = map_segment(c, segment, mcs_daemon_until(deadline));
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
