/* SPDX-License-Identifier: Apache-2.0
 * hand.c - the unix socket at which upstream's clients hand over the files of their memory.
 *
 * As in upstream's uds_transport.cpp, pyclient.h: a stream socket in the abstract name space, whose name begins with
 * '@': "@mooncake_client_PORT.sock".  Each connection has one request.  In native byte order:
 *
 *	u32 0, then with a descriptor: u64 id[2], u64 address, u64 size, i32 device, u8 local, 3 bytes of padding
 *		answer: i32 status, 0 or -1
 *	u32 1, u64 id[2], u32 segment, 4 bytes of padding: asks for the daemon's cache
 *		answer: i32 status, 4 bytes of padding, u64 size; always -1 here, so the client reads into its memory */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/err.h"
#include "common/log.h"
#include "common/net/socket.h"
#include "common/sys/clock.h"
#include "node/upstream/upstream_i.h"

#define BACKLOG 64
#define ACCEPTS 64

enum hand_type { HAND_SHARE, HAND_ASK };

struct share_request {
	uint64_t id[2], base, size;
	int32_t device;
	uint8_t local, padding[3];
};

struct ask_request {
	uint64_t id[2];
	uint32_t segment, padding;
};

struct ask_answer {
	int32_t status;
	uint32_t padding;
	uint64_t size;
};

struct hand {
	struct mc_list link;
	struct mc_evfd ev;
	struct mcn_up *up;
	struct mcn_up_user *user;
	uid_t uid;
	pid_t pid;
	uint64_t due;
	int fd;				/* received; -1: none yet */
	union {
		struct {
			uint32_t type;
			union {
				struct share_request share;
				struct ask_request ask;
			};
		} __attribute__((packed)) request;
		uint8_t in[sizeof(uint32_t) + sizeof(struct share_request)];
	};
	size_t have;
};

static void hand_close(struct hand *h)
{
	struct mcn_up *up = h->up;

	mc_evloop_del(up->loop, &h->ev);
	mc_list_remove(&h->link);
	if (h->fd >= 0)
		mcn_deferred_close(up->node->deferred, h->uid, h->fd);
	close(h->ev.fd);
	mcn_up_user_leave(up, h->user, true);
	free(h);
}

static void hand_answer(struct hand *h, const void *data, size_t len)
{
	/* The socket's buffer is empty: it takes all of it. */
	(void)send(h->ev.fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void hand_share(struct hand *h)
{
	const struct share_request q = h->request.share;
	struct mcn_up_share s = { .id = { q.id[0], q.id[1] }, .base = q.base, .size = q.size, .local = q.local != 0,
				  .uid = h->uid, .pid = h->pid };
	bool is_new = false;
	int32_t status;
	int r;

	r = mcn_up_dummy_share(h->up->dummies, &s, h->fd, &is_new);
	if (r < 0)
		mc_warn("node", "memory of upstream's client refused pid=%d: %s", (int)h->pid, mc_err_detail(r));
	else if (is_new)
		mc_info("node", "upstream's client connected pid=%d user=%u", (int)h->pid, (unsigned)h->uid);
	status = r < 0 ? -1 : 0;
	hand_answer(h, &status, sizeof(status));
}

static void hand_ask(struct hand *h)
{
	static const struct ask_answer none = { .status = -1 };

	hand_answer(h, &none, sizeof(none));
}

/* Bytes of the request, as far as its type is known; 0: no such type. */
static size_t hand_size(const struct hand *h)
{
	if (h->have < sizeof(uint32_t))
		return sizeof(uint32_t);
	return h->request.type == HAND_SHARE ? sizeof(uint32_t) + sizeof(struct share_request) :
		h->request.type == HAND_ASK ? sizeof(uint32_t) + sizeof(struct ask_request) : 0;
}

/* The first four bytes and the rest are separate messages of the sender; the descriptor is with the second. */
static ssize_t hand_recv(struct hand *h, size_t size)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = { h->in + h->have, size - h->have };
	/* Without padding: the place for a second descriptor.  The kernel drops further ones, without their flush, for
	 * which a hostile filesystem can let the loop wait. */
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
			      .msg_controllen = CMSG_LEN(sizeof(int)) };
	bool full = mcn_deferred_full(h->up->node->deferred, h->uid);
	ssize_t n;
	int fd;

	if (full) {
		msg.msg_control = NULL;
		msg.msg_controllen = 0;
	}
	n = recvmsg(h->ev.fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return -errno;
	fd = mc_take_fd(&msg);
	if (fd >= 0 && h->fd >= 0)
		mcn_deferred_close(h->up->node->deferred, h->uid, fd);
	else if (fd >= 0)
		h->fd = fd;
	h->have += (size_t)n;
	return n;
}

static void hand_ready(struct mc_evfd *e, uint32_t events)
{
	struct hand *h = mc_container_of(e, struct hand, ev);
	size_t size = hand_size(h);
	ssize_t n;

	while (size > h->have) {
		n = hand_recv(h, size);
		if (n == -EAGAIN)
			return;
		if (n <= 0)
			break;
		size = hand_size(h);
	}
	if (size && h->have == size) {
		if (h->request.type == HAND_SHARE)
			hand_share(h);
		else
			hand_ask(h);
	}
	hand_close(h);
}

static int hand_new(struct mcn_up *up, int fd)
{
	socklen_t len = sizeof(struct ucred);
	struct mc_principal identity;
	struct ucred who;
	struct hand *h;
	int r;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0)
		return mc_fail(-errno, "peer credentials: %s", mc_strerror(errno));
	r = mcn_identify(up->node, who.uid, &identity);
	if (r < 0)
		return r;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->user = mcn_up_user_enter(up, who.uid, true);
	if (!h->user) {
		free(h);
		return -ENOBUFS;
	}
	h->up = up;
	h->uid = who.uid;
	h->pid = who.pid;
	h->fd = -1;
	h->due = mc_deadline_ms(MCN_UP_HAND_MS);
	h->ev = (struct mc_evfd){ .fd = fd, .ready = hand_ready };
	r = mc_evloop_add(up->loop, &h->ev, EPOLLIN);
	if (r < 0) {
		mcn_up_user_leave(up, h->user, true);
		free(h);
		return r;
	}
	mc_list_push_back(&up->hands, &h->link);
	return 0;
}

static void hand_accept(struct mc_evfd *e, uint32_t events)
{
	struct mcn_up *up = mc_container_of(e, struct mcn_up, hand_listener);

	for (int i = 0; i < ACCEPTS; i++) {
		int fd = mc_socket_accept(e->fd), r;

		if (fd == -EAGAIN)
			return;
		if (fd < 0) {
			mc_warn("node", "cannot accept a connection, will retry: %s", mc_err_detail(fd));
			mcn_up_pause(up);
			return;
		}
		r = hand_new(up, fd);
		if (r < 0) {
			mc_warn("node", "upstream's client refused: %s", mc_err_detail(r));
			close(fd);
		}
	}
}

int mcn_up_hand_listen(struct mcn_up *up, int port)
{
	char addr[MC_ADDR_MAX];
	int fd;

	(void)snprintf(addr, sizeof(addr), "unix:@@" MCFS_SOCKET_FORMAT, port);
	fd = mc_socket_listen(addr, BACKLOG, 0, NULL);
	if (fd < 0)
		return fd;
	up->hand_listener = (struct mc_evfd){ .fd = fd, .ready = hand_accept };
	return 0;
}

void mcn_up_hand_tick(struct mcn_up *up, uint64_t now)
{
	struct mc_list *pos, *tmp;

	mc_list_for_each_safe(pos, tmp, &up->hands) {
		struct hand *h = mc_container_of(pos, struct hand, link);

		if (now > h->due)
			hand_close(h);
	}
}

void mcn_up_hand_close_all(struct mcn_up *up)
{
	while (!mc_list_empty(&up->hands))
		hand_close(mc_list_first(&up->hands, struct hand, link));
}
