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

#include "client/node_i.h"
#include "common/cleanup.h"
#include "common/packet.h"

#define CONNECT_MS 5000
#define ANSWER_MS 10000
#define FOUND_MS 1000		/* one that nobody has named: who does not answer is not used */

struct mcs_node_conn *mcs_node_conn_ref(struct mcs_node_conn *c)
{
	__atomic_fetch_add(&c->refs, 1, __ATOMIC_RELAXED);
	return c;
}

void mcs_node_conn_put(struct mcs_node_conn *c)
{
	if (!c || __atomic_sub_fetch(&c->refs, 1, __ATOMIC_ACQ_REL))
		return;
	for (unsigned i = 0; i < MCS_NODE_RINGS; i++)
		if (c->ring[i])
			mcs_node_ring_free(c->ring[i]);
	for (unsigned i = 0; i < MCS_NODE_SEGMENTS; i++)
		if (c->segment[i].base)
			munmap((void *)(uintptr_t)c->segment[i].base, c->segment[i].size);
	if (c->sock >= 0) {
		/* A child that was forked meanwhile has it too. */
		(void)shutdown(c->sock, SHUT_RDWR);
		close(c->sock);
	}
	pthread_mutex_destroy(&c->rings_lock);
	pthread_mutex_destroy(&c->ask_lock);
	free(c);
}

/* The daemon learns that it is to end what it does for us.  For writing only: that it has ended is then seen
 * by its closing. */
void mcs_node_conn_lost(struct mcs_node_conn *c)
{
	if (!__atomic_exchange_n(&c->lost, true, __ATOMIC_ACQ_REL))
		(void)shutdown(c->sock, SHUT_WR);
}

bool mcs_node_conn_is_lost(const struct mcs_node_conn *c)
{
	return __atomic_load_n(&c->lost, __ATOMIC_ACQUIRE);
}

bool mcs_node_conn_over(const struct mcs_node_conn *c)
{
	struct pollfd p = { .fd = c->sock };

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR));
}

bool mcs_node_conn_gone(struct mcs_node_conn *c)
{
	if (!mcs_node_conn_is_lost(c) && mcs_node_conn_over(c))
		mcs_node_conn_lost(c);
	return mcs_node_conn_is_lost(c);
}

static int exchange(struct mcs_node_conn *c, struct mcfs_msg *msg, int fd, int *ret_fd)
{
	bool first = msg->type == MCFS_MSG_HELLO;
	uint64_t deadline = mc_deadline_ms(first && c->n->found ? FOUND_MS : ANSWER_MS);
	uint16_t type = msg->type;
	int got = -1, r;
	ssize_t n;

	/* What comes late would be taken for the answer to something else. */
	if (mcs_node_conn_is_lost(c))
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

int mcs_node_conn_ask(struct mcs_node_conn *c, struct mcfs_msg *msg, int fd, int *ret_fd)
{
	int r;

	r = mc_fork_check(c->n->fork_depth);
	if (r < 0)
		return r;
	MC_LOCKED(&c->ask_lock);
	r = exchange(c, msg, fd, ret_fd);
	if (r == -MC_ERPC)
		mcs_node_conn_lost(c);
	return r;
}

static int greet(struct mcs_node *n, struct mcs_node_conn *c)
{
	struct mcfs_msg msg = { .type = MCFS_MSG_HELLO };
	uint64_t asked_ns = mc_now_ns();
	const char *name[2] = { "", "" };	/* the node's, and the tenant's */
	const char *p, *end = msg.text + sizeof(msg.text);
	int r = mcs_node_conn_ask(c, &msg, -1, NULL);

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
static int trust(const struct mcs_node *n, int sock)
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

/* The node's lock is held. */
static int connect_locked(struct mcs_node *n, struct mcs_node_conn **ret)
{
	struct mcs_node_conn *c = calloc(1, sizeof(*c));
	int r = 0;

	if (!c)
		return -ENOMEM;
	c->n = n;
	c->refs = 1;
	pthread_mutex_init(&c->rings_lock, NULL);
	pthread_mutex_init(&c->ask_lock, NULL);
	c->sock = mc_packet_connect(n->addr, mc_deadline_ms(CONNECT_MS));
	if (c->sock < 0)
		r = mc_fail(-MC_ERPC, "no daemon at %s: %s", n->addr, mc_strerror(c->sock));
	if (r == 0)
		r = trust(n, c->sock);
	if (r == 0)
		r = greet(n, c);
	for (unsigned i = 0; i < MCS_NODE_MEMS && r == 0; i++)
		if (n->mem[i].base)
			r = mcs_node_mem_tell_locked(c, i);
	if (r < 0)
		mcs_node_conn_put(c);
	else
		*ret = c;
	return r;
}

int mcs_node_conn_get(struct mcs_node *n, struct mcs_node_conn **ret)
{
	int r;

	r = mc_fork_check(n->fork_depth);
	if (r < 0)
		return r;
	MC_LOCKED(&n->lock);
	if (n->conn && mcs_node_conn_is_lost(n->conn)) {
		mcs_node_conn_put(n->conn);
		n->conn = NULL;
	}
	if (!n->conn)
		r = connect_locked(n, &n->conn);
	if (r == 0)
		*ret = mcs_node_conn_ref(n->conn);
	return r;
}

/* ---- segments ---- */

static int map_segment(struct mcs_node_conn *c, unsigned id)
{
	struct mcfs_msg msg = { .type = MCFS_MSG_SEGMENT, .id = id };
	int fd = -1, r;
	void *p;

	MC_LOCKED(&c->ask_lock);
	if (c->segment[id].base)
		return 0;
	r = exchange(c, &msg, -1, &fd);
	if (r == -MC_ERPC)
		mcs_node_conn_lost(c);
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

const void *mcs_node_conn_at(struct mcs_node_conn *c, unsigned segment, uint64_t offset,
			     uint64_t size, int *ret_err)
{
	const unsigned char *base;
	int r = 0;

	if (!size)
		return "";
	if (segment >= MCS_NODE_SEGMENTS) {
		*ret_err = mc_fail(-MC_EPROTO, "segment %u", segment);
		return NULL;
	}
	base = __atomic_load_n(&c->segment[segment].base, __ATOMIC_ACQUIRE);
	if (!base)
		r = map_segment(c, segment);
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
