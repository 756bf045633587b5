/* SPDX-License-Identifier: Apache-2.0
 * test_client_relay.c - implementation of test_client_relay.h. */
#include <config.h>

#include "tests/unit/test_client_fixture.h"
#include "tests/unit/test_client_relay.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/net/socket.h"
#include "common/sys/clock.h"
#include "common/net/net.h"
#include "proto/codec.h"

struct relay relay;
struct mc_mutex relay_dialling = MC_MUTEX_INIT;

static bool stopping(void)
{
	return __atomic_load_n(&relay.stop, __ATOMIC_SEQ_CST);
}

struct pump {
	int fd[2];		/* client, master */
};

static bool read_full(int fd, void *buf, size_t len)
{
	for (size_t n = 0; n < len;) {
		struct pollfd p = { fd, POLLIN, 0 };
		ssize_t r;

		if (poll(&p, 1, 100) < 0 || stopping())
			return false;
		r = recv(fd, (char *)buf + n, len - n, MSG_DONTWAIT);
		if (r == 0 || (r < 0 && errno != EAGAIN))
			return false;
		n += r > 0 ? (size_t)r : 0;
	}
	return true;
}

static bool write_full(int fd, const void *buf, size_t len)
{
	for (size_t n = 0; n < len;) {
		ssize_t r = send(fd, (const char *)buf + n, len - n, MSG_NOSIGNAL | MSG_DONTWAIT);
		struct pollfd p = { fd, POLLOUT, 0 };

		if (r < 0 && errno != EAGAIN)
			return false;
		if (r < 0)
			(void)poll(&p, 1, 100);
		n += r > 0 ? (size_t)r : 0;
	}
	return true;
}

/* Forward one frame from side @from to the other; false ends the connection. */
static bool pass(struct pump *p, int from)
{
	uint8_t head[MCP_FRAME_HEADER], *body;
	struct mcp_frame f;
	unsigned type;
	bool ok;

	if (!read_full(p->fd[from], head, sizeof(head)) ||
	    mcp_frame_unpack(head, MCP_FRAME_MAX, &f) < 0)
		return false;
	body = malloc(f.length + 1);
	ok = read_full(p->fd[from], body, f.length);
	type = __atomic_load_n(&relay.type, __ATOMIC_SEQ_CST);
	if (ok && type == f.type && __atomic_load_n(&relay.reply, __ATOMIC_SEQ_CST) == (from == 1)) {
		__atomic_store_n(&relay.type, 0, __ATOMIC_SEQ_CST);
		__atomic_add_fetch(&relay.cuts, 1, __ATOMIC_SEQ_CST);
		if (relay.meanwhile)
			relay.meanwhile();
		ok = false;
	}
	ok = ok && write_full(p->fd[!from], head, sizeof(head)) &&
		write_full(p->fd[!from], body, f.length);
	free(body);
	return ok;
}

static void *pump_main(void *arg)
{
	struct pump *p = arg;
	bool ok = true;

	while (ok && !stopping() && !__atomic_load_n(&relay.cut_all, __ATOMIC_SEQ_CST)) {
		struct pollfd fds[2] = { { p->fd[0], POLLIN, 0 }, { p->fd[1], POLLIN, 0 } };

		if (__atomic_load_n(&relay.hush, __ATOMIC_SEQ_CST)) {
			(void)poll(NULL, 0, 10);
			continue;
		}
		(void)poll(fds, 2, 50);
		for (int i = 0; i < 2 && ok; i++)
			if (fds[i].revents)
				ok = pass(p, i);
	}
	close(p->fd[0]);
	close(p->fd[1]);
	free(p);
	return NULL;
}

/* Connect to the master behind the relay; negative while all connections are cut. */
static int dial(void)
{
	MC_LOCKED(&relay_dialling);
	return __atomic_load_n(&relay.cut_all, __ATOMIC_SEQ_CST) ? -ECONNREFUSED :
		mc_socket_connect(fixture_master_addr(), mc_deadline_ms(5000));
}

static void *relay_main(void *arg)
{
	pthread_t pumps[256];
	unsigned n = 0;

	while (!stopping()) {
		struct pollfd fds = { relay.listener, POLLIN, 0 };
		struct pump *p;
		int fd, master;

		(void)poll(&fds, 1, 50);
		fd = mc_socket_accept(relay.listener);
		if (fd < 0 || n == 256)
			continue;
		master = dial();
		if (master == -ECONNREFUSED) {
			close(fd);
			continue;
		}
		assert_true(master >= 0);
		p = malloc(sizeof(*p));
		*p = (struct pump){ { fd, master } };
		assert_int_equal(pthread_create(&pumps[n++], NULL, pump_main, p), 0);
	}
	while (n)
		pthread_join(pumps[--n], NULL);
	return NULL;
}

void relay_cut_at(unsigned type, bool reply)
{
	__atomic_store_n(&relay.reply, reply, __ATOMIC_SEQ_CST);
	__atomic_store_n(&relay.cuts, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&relay.type, type, __ATOMIC_SEQ_CST);
}

void relay_expect_cut(void)
{
	assert_int_equal(__atomic_load_n(&relay.cuts, __ATOMIC_SEQ_CST), 1);
}

void relay_start(void)
{
	memset(&relay, 0, sizeof(relay));
	relay.listener = mc_socket_listen("127.0.0.1:0", 16, 0, relay.addr);
	assert_true(relay.listener >= 0);
	assert_int_equal(pthread_create(&relay.thread, NULL, relay_main, NULL), 0);
}

void relay_stop(void)
{
	__atomic_store_n(&relay.stop, true, __ATOMIC_SEQ_CST);
	pthread_join(relay.thread, NULL);
	close(relay.listener);
}
