/* SPDX-License-Identifier: Apache-2.0
 * server.c - the service: sockets, access control, start and stop. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/net/packet.h"
#include "common/security/uids.h"
#include "common/sys/clock.h"
#include "common/sys/random.h"
#include "common/sys/thread.h"
#include "node/node_i.h"

#define BACKLOG 64
#define BUDGET 64		/* packets of one client before the loop serves the next client */
#define ACCEPT_RETRY_MS 100

MC_GAUGE(nconns, "mooncake_node_connections", "", "local clients")
MC_COUNTER(refused, "mooncake_node_refused_total", "", "connections refused: wrong user, or too many")

/* ---- connections ---- */

void mcn_conn_ref(struct mcn_conn *c)
{
	MC_LOCKED(&c->n->lock);
	c->refs++;
}

void mcn_conn_unref(struct mcn_conn *c)
{
	struct mcn *n = c->n;
	bool last;

	mc_mutex_lock(&n->lock);
	last = !--c->refs;
	if (last)
		mc_list_remove(&c->link);
	mc_mutex_unlock(&n->lock);
	if (!last)
		return;
	mcn_conn_free(c);
	mc_metric_add(&nconns, -1);
	mc_mutex_lock(&n->lock);
	n->nconns--;
	mc_cond_broadcast(&n->changed);
	mc_mutex_unlock(&n->lock);
}

void mcn_use_of(struct mcn *n, uid_t uid, struct mcn_use *ret)
{
	struct mc_list *pos;

	*ret = (struct mcn_use){ 0 };
	MC_LOCKED(&n->lock);
	mc_list_for_each(pos, &n->conns) {
		struct mcn_conn *c = mc_container_of(pos, struct mcn_conn, link);

		if (c->uid != uid)
			continue;
		mc_mutex_lock(&c->lock);
		ret->conns++;
		ret->rings += c->nrings;
		ret->buffers += c->nbuffers;
		ret->bytes += c->buffer_bytes;
		mc_mutex_unlock(&c->lock);
	}
}

/* Loop: the client has disconnected or is to be disconnected. */
static void conn_close(struct mcn_conn *c)
{
	mc_evloop_del(c->n->loop, &c->evfd);
	if (c->process.fd >= 0)
		mc_evloop_del(c->n->loop, &c->process);
	mcn_conn_over(c);
	mcn_conn_unref(c);
}

static void process_ended(struct mc_evfd *e, uint32_t events)
{
	conn_close(mc_container_of(e, struct mcn_conn, process));
}

/* A child forked without exec inherits the socket and keeps it open after its parent is killed, so watch the process
 * too.  A process of another PID namespace has no pid here; for it only the socket is watched. */
static void watch_process(struct mcn_conn *c)
{
	int fd = c->pid > 0 ? (int)syscall(SYS_pidfd_open, c->pid, 0) : -1;

	if (c->pid > 0 && fd < 0 && errno == ESRCH) {
		conn_close(c);
		return;
	}
	c->process.fd = fd;
	if (fd >= 0 && mc_evloop_add(c->n->loop, &c->process, EPOLLIN) < 0) {
		c->process.fd = -1;
		close(fd);
	}
}

static void conn_ready(struct mc_evfd *e, uint32_t events)
{
	struct mcn_conn *c = mc_container_of(e, struct mcn_conn, evfd);

	for (int i = 0; i < BUDGET; i++) {
		struct mcfs_msg in = { 0 };
		bool full = mcn_deferred_full(c->n->deferred, c->uid);
		int fd = -1, r = -EPROTO;
		ssize_t n;

		n = mc_packet_recv(e->fd, &in, sizeof(in), full ? NULL : &fd, 0);
		if (n == -EAGAIN)
			return;
		/* A newer client's packets may be longer. */
		if (n >= (ssize_t)sizeof(in))
			r = mcn_conn_serve(c, &in, fd);
		if (fd >= 0)
			mcn_deferred_close(c->n->deferred, c->uid, fd);
		if (n <= 0 || r < 0) {
			if (n > 0)
				mc_debug("node", "connection ended pid=%d: %s", (int)c->pid,
					 mc_err_detail(r));
			conn_close(c);
			return;
		}
	}
}

/* "" and "default" are the same tenant of a daemon; an identity's "" means all. */
static bool tenant_is_served(const struct mcn *n, const char *tenant)
{
	return !*tenant || !strcmp(tenant, *n->tenant ? n->tenant : "default");
}

int mcn_identify(const struct mcn *n, uid_t uid, struct mc_principal *ret)
{
	struct mc_principal p;
	int r = mc_uids_find(n->uids, uid, &p);

	if (r < 0)
		return r;
	if (!tenant_is_served(n, p.tenant))
		return mc_fail(-EACCES, "user %u belongs to tenant \"%s\", and this daemon serves tenant \"%s\"",
			       (unsigned)uid, p.tenant, *n->tenant ? n->tenant : "default");
	*ret = p;
	return 0;
}

bool mcn_may_map(const struct mc_principal *p)
{
	return !p->tenant[0];
}

static int conn_new(struct mcn *n, int fd, const struct ucred *who, const struct mc_principal *identity)
{
	struct mcn_conn *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	r = mcn_pins_new(n, !mcn_may_map(identity), &c->pins);
	if (r < 0) {
		free(c);
		return r;
	}
	c->n = n;
	c->token = mc_random_u64();
	c->uid = who->uid;
	c->pid = who->pid;
	c->identity = *identity;
	c->refs = 1;
	c->evfd = (struct mc_evfd){ .fd = fd, .ready = conn_ready };
	c->process = (struct mc_evfd){ .fd = -1, .ready = process_ended };
	mc_mutex_init(&c->lock);
	mc_mutex_lock(&n->lock);
	mc_list_push_back(&n->conns, &c->link);
	n->nconns++;
	mc_mutex_unlock(&n->lock);
	mc_metric_add(&nconns, 1);
	r = mc_evloop_add(n->loop, &c->evfd, EPOLLIN);
	if (r < 0) {
		c->evfd.fd = -1;
		mcn_conn_unref(c);
		return r;
	}
	watch_process(c);
	return 0;
}

/* Send the reason, so that the client can report it. */
static int conn_refuse(struct mcn *n, int fd, int err)
{
	struct mcfs_msg out = {
		.magic = MCFS_RING_MAGIC, .version = MCFS_RING_VERSION, .type = MCFS_MSG_HELLO,
		.status = err,
	};

	mc_metric_add(&refused, 1);
	(void)snprintf(out.text, sizeof(out.text), "%s", mc_err_detail(err));
	(void)mc_packet_send(fd, &out, sizeof(out), -1, 0);
	return err;
}

static int conn_check(struct mcn *n, int fd, struct ucred *ret, struct mc_principal *ret_identity)
{
	socklen_t len = sizeof(*ret);
	struct mcn_use use;
	unsigned now;
	int r;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret, &len) < 0)
		return mc_fail(-errno, "peer credentials: %s", mc_strerror(errno));
	r = mcn_identify(n, ret->uid, ret_identity);
	if (r < 0)
		return r;
	mc_mutex_lock(&n->lock);
	now = n->nconns;
	mc_mutex_unlock(&n->lock);
	if (now >= MCN_CONNS_MAX)
		return mc_fail(-ENOBUFS, "there are %u clients", now);
	mcn_use_of(n, ret->uid, &use);
	return use.conns < MCN_UID_CONNS ? 0 :
		mc_fail(-ENOBUFS, "user %u has %u connections", (unsigned)ret->uid, use.conns);
}

static void watch_listeners(struct mcn *n, uint32_t events)
{
	for (unsigned i = 0; i < n->nlisteners; i++)
		(void)mc_evloop_mod(n->loop, &n->listener[i].evfd, events);
}

/* While the process is out of descriptors, the pending connection would wake the loop continuously. */
static void pause_accepting(struct mcn *n)
{
	watch_listeners(n, 0);
	mc_evtimer_arm(n->loop, &n->retry, mc_deadline_ms(ACCEPT_RETRY_MS));
}

static void resume_accepting(struct mc_evtimer *t)
{
	watch_listeners(mc_container_of(t, struct mcn, retry), EPOLLIN);
}

static void listener_ready(struct mc_evfd *e, uint32_t events)
{
	struct mcn *n = mc_container_of(e, struct mcn_listener, evfd)->n;
	struct mc_principal identity;
	struct ucred who;
	int fd, r;

	MC_FAULT_POINT("node.accept");
	for (int i = 0; i < BUDGET; i++) {
		fd = mc_packet_accept(e->fd);
		if (fd < 0) {
			if (fd == -EAGAIN)
				return;
			mc_warn("node", "cannot accept a connection, will retry: %s", mc_err_detail(fd));
			pause_accepting(n);
			return;
		}
		r = conn_check(n, fd, &who, &identity);
		r = r < 0 ? conn_refuse(n, fd, r) : conn_new(n, fd, &who, &identity);
		if (r < 0) {
			mc_warn("node", "client refused: %s", mc_err_detail(r));
			close(fd);
		}
	}
}

/* ---- start and end ---- */

static void server_sweep(struct mc_evtimer *t)
{
	struct mcn *n = mc_container_of(t, struct mcn, sweep);
	unsigned ms = mcn_mapped_sweep(n->mapped);

	mc_evtimer_arm(n->loop, t, mc_deadline_ms(ms));
}

static int listen_at(struct mcn *n, const char *addr)
{
	struct mcn_listener *l = &n->listener[n->nlisteners];
	int fd;

	if (strlen(addr) >= sizeof(l->addr))
		return mc_fail(-EINVAL, "the socket's name is too long: %s", addr);
	fd = mc_packet_listen(addr, BACKLOG);
	if (fd < 0)
		return fd;
	strcpy(l->addr, addr);
	/* mcn_identify() checks the peer's user id, so the file's mode need not restrict access. */
	if (addr[5] != '@')
		(void)chmod(addr + 5, 0666);
	l->n = n;
	l->evfd = (struct mc_evfd){ .fd = fd, .ready = listener_ready };
	n->nlisteners++;
	return 0;
}

static int listen_all(struct mcn *n, const struct mcn_conf *conf)
{
	char addr[160];
	int r = 0;

	if (conf->port) {
		(void)snprintf(addr, sizeof(addr), "unix:@" MCFS_SOCKET_FORMAT, conf->port);
		r = listen_at(n, addr);
	}
	if (r == 0 && conf->path && *conf->path) {
		if (strlen(conf->path) > 107)
			return mc_fail(-EINVAL, "the socket's path is too long: %s", conf->path);
		(void)snprintf(addr, sizeof(addr), "unix:%s", conf->path);
		r = listen_at(n, addr);
	}
	return r;
}

/* Open the own segment read-only, with a mode that keeps receivers of the descriptor from reopening it for writing. */
static int open_segment(struct mcn *n)
{
	char path[64];
	int fd = mcs_segment_fd(n->conf.store, &n->segment_size);

	n->segment_fd = -1;
	/* This node contributes no memory. */
	if (fd < 0)
		return 0;
	(void)fchmod(fd, 0400);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n->segment_fd = open(path, O_RDONLY | O_CLOEXEC);
	return n->segment_fd < 0 ? mc_fail(-errno, "the segment cannot be opened for reading: %s",
					   mc_strerror(errno)) : 0;
}

static int server_start(struct mcn *n)
{
	int r;

	r = mc_uids_parse("--allow_uids", n->conf.uids, MC_ROLE_READER | MC_ROLE_CLIENT, &n->uids);
	if (r == 0)
		r = mcn_deferred_new(&n->deferred);
	if (r == 0)
		r = open_segment(n);
	if (r == 0)
		r = mcn_mapped_new(n->conf.store, n->conf.hot_size, n->conf.hot_ms, &n->mapped);
	if (r == 0)
		r = listen_all(n, &n->conf);
	if (r == 0)
		r = mc_evloop_new("mcn-node", 0, &n->loop);
	for (unsigned i = 0; i < n->nlisteners && r == 0; i++)
		r = mc_evloop_add(n->loop, &n->listener[i].evfd, EPOLLIN);
	if (r < 0)
		return r;
	n->sweep.fire = server_sweep;
	n->retry.fire = resume_accepting;
	mc_evtimer_arm(n->loop, &n->sweep, mc_deadline_ms(0));
	r = mc_evloop_start(n->loop);
	n->started = r == 0;
	return r;
}

int mcn_start(const struct mcn_conf *conf, struct mcn **ret)
{
	struct mcn *n = calloc(1, sizeof(*n));
	int r;

	if (!n)
		return -ENOMEM;
	n->conf = *conf;
	n->segment_fd = -1;
	mc_mutex_init(&n->lock);
	(void)mc_cond_init(&n->changed);
	mc_list_init(&n->conns);
	n->master = strdup(conf->master ? conf->master : "");
	n->tenant = strdup(conf->tenant && strcmp(conf->tenant, "default") ? conf->tenant : "");
	r = n->master && n->tenant ? server_start(n) : -ENOMEM;
	if (r < 0) {
		mcn_stop(n);
		return r;
	}
	*ret = n;
	return 0;
}

/* Loop: stop accepting and close all connections. */
static void close_all(void *arg)
{
	struct mcn *n = arg;

	mc_evtimer_disarm(n->loop, &n->retry);
	for (unsigned i = 0; i < n->nlisteners; i++)
		mc_evloop_del(n->loop, &n->listener[i].evfd);
	for (;;) {
		struct mcn_conn *found = NULL;
		struct mc_list *pos;

		mc_mutex_lock(&n->lock);
		mc_list_for_each(pos, &n->conns) {
			struct mcn_conn *c = mc_container_of(pos, struct mcn_conn, link);

			/* The others are already closing. */
			if (!c->over) {
				found = c;
				break;
			}
		}
		mc_mutex_unlock(&n->lock);
		if (!found)
			return;
		conn_close(found);
	}
}

void mcn_stop(struct mcn *n)
{
	if (!n)
		return;
	if (n->started)
		(void)mc_evloop_call(n->loop, close_all, n);
	mc_mutex_lock(&n->lock);
	while (n->nconns)
		mc_cond_wait(&n->changed, &n->lock);
	mc_mutex_unlock(&n->lock);
	mc_evloop_free(n->loop);
	for (unsigned i = 0; i < n->nlisteners; i++) {
		/* Unlink before close: after it another daemon may own the path. */
		if (n->listener[i].addr[5] != '@')
			(void)unlink(n->listener[i].addr + 5);
		close(n->listener[i].evfd.fd);
	}
	mcn_mapped_free(n->mapped);
	mcn_deferred_free(n->deferred);
	if (n->segment_fd >= 0)
		close(n->segment_fd);
	mc_cond_destroy(&n->changed);
	mc_mutex_destroy(&n->lock);
	mc_uids_free(n->uids);
	free(n->master);
	free(n->tenant);
	free(n);
}

/* ---- for the mount ---- */

const char *mcn_address(const struct mcn *n)
{
	return n->nlisteners ? n->listener[0].addr : "";
}

void mcn_count(struct mcn *n, struct mcn_counts *ret)
{
	mc_mutex_lock(&n->lock);
	ret->connections = n->nconns;
	ret->rings = n->nrings;
	mc_mutex_unlock(&n->lock);
	ret->buffers = __atomic_load_n(&n->nbuffers, __ATOMIC_RELAXED);
	ret->pins = __atomic_load_n(&n->npins, __ATOMIC_RELAXED);
}

int mcn_segment(struct mcn *n, unsigned id, uint64_t *ret_size)
{
	int fd = id == 0 ? n->segment_fd : id == 1 ? mcn_mapped_fd(n->mapped) : -1;

	if (fd < 0)
		return mc_fail(-ENOENT, "there is no segment %u", id);
	*ret_size = id == 0 ? n->segment_size : mcn_mapped_size(n->mapped);
	return fd;
}

struct hold {
	struct mcn_conn *conn;
	struct mcn_buffer *buffer;
};

static struct mcn_conn *conn_find_locked(struct mcn *n, uint64_t token)
{
	struct mc_list *pos;

	mc_list_for_each(pos, &n->conns) {
		struct mcn_conn *c = mc_container_of(pos, struct mcn_conn, link);

		if (c->token == token)
			return c;
	}
	return NULL;
}

int mcn_io_begin(struct mcn *n, const struct mcn_io *io, void **ret_hold, struct iovec *ret)
{
	struct hold *h = calloc(1, sizeof(*h));
	int r = 0;

	if (!h)
		return -ENOMEM;
	mc_mutex_lock(&n->lock);
	h->conn = conn_find_locked(n, io->token);
	/* To another user a token must look unknown. */
	if (!h->conn || (io->uid && io->uid != h->conn->uid))
		r = mc_fail(-ENOENT, "no connection has that token");
	else
		h->conn->refs++;
	mc_mutex_unlock(&n->lock);
	if (r == 0) {
		r = mcn_buffer_get(h->conn, io->buffer, io->at, io->len, &h->buffer, &ret->iov_base);
		if (r == 0 && !mcn_memory_is_present(ret->iov_base, io->len)) {
			mcn_buffer_put(h->conn, h->buffer);
			r = mc_fail(-EFAULT, "a buffer has pages that the client has never touched");
		}
		if (r < 0)
			mcn_conn_unref(h->conn);
	}
	if (r < 0) {
		free(h);
		return r;
	}
	ret->iov_len = io->len;
	*ret_hold = h;
	return 0;
}

void mcn_io_end(struct mcn *n, void *hold)
{
	struct hold *h = hold;

	mcn_buffer_put(h->conn, h->buffer);
	mcn_conn_unref(h->conn);
	free(h);
}

unsigned mcn_buffers(struct mcn *n, uid_t uid, struct mcn_buffer_info *ret, unsigned max)
{
	struct mc_list *pos;
	unsigned k = 0;

	MC_LOCKED(&n->lock);
	mc_list_for_each(pos, &n->conns) {
		struct mcn_conn *c = mc_container_of(pos, struct mcn_conn, link);

		if (uid && uid != c->uid)
			continue;
		mc_mutex_lock(&c->lock);
		for (unsigned i = 0; i < MCN_CONN_BUFFERS && k < max; i++)
			if (c->buffer[i])
				ret[k++] = (struct mcn_buffer_info){
					.token = c->token, .size = c->buffer[i]->size,
					.id = i + 1, .uid = c->uid, .pid = c->pid,
				};
		mc_mutex_unlock(&c->lock);
	}
	return k;
}
