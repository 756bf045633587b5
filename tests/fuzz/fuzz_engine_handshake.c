/* SPDX-License-Identifier: Apache-2.0
 * fuzz_engine_handshake.c - handshake daemon and client: the first byte chooses which of them receives
 * the rest.  The daemon sends one whole frame or nothing and closes; the client ends with an answer or
 * an error. */
#include <config.h>

#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/log.h"
#include "common/net/socket.h"
#include "engine/upstream/handshake.h"

#define HOST "127.0.0.1"
#define LIMIT_MS 20000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char daemon_addr[64];
static int liar_fd, liar_port;

static void check(int ok)
{
	if (!ok)
		abort();
}

static int on_text(void *arg, const char *text, size_t len, char **ret_text)
{
	check(text[len] == '\0');
	*ret_text = strdup("{}");
	return *ret_text ? 0 : -1;
}

static int on_notify(void *arg, const char *name, const char *msg)
{
	check(name && msg);
	return 0;
}

static void start(void)
{
	static const struct mc_log_conf quiet = { .levels = "err" };
	struct mce_handshake_conf conf = {
		.host = HOST, .metadata = on_text, .notify = on_notify, .connection = on_text,
	};
	char bound[MC_ADDR_MAX], host[MC_ADDR_MAX];
	struct mce_handshake *h;

	mc_log_open(&quiet);
	check(mce_handshake_open(&conf, &h) == 0);
	snprintf(daemon_addr, sizeof(daemon_addr), HOST ":%d", mce_handshake_port(h));
	liar_fd = mc_socket_listen(HOST ":0", 8, 0, bound);
	check(liar_fd >= 0 && mc_addr_split(bound, host, sizeof(host), 0, &liar_port) == 0);
}

static void say(int fd, const uint8_t *data, size_t size)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	ssize_t n;

	while (size) {
		n = send(fd, data, size, MSG_NOSIGNAL);
		if (n < 0 && poll(&p, 1, LIMIT_MS) > 0 && (p.revents & (POLLERR | POLLHUP)))
			return;
		if (n > 0) {
			data += n;
			size -= (size_t)n;
		}
	}
}

/* Read until the peer closes. */
static size_t hear(int fd, uint8_t *buf, size_t size)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	size_t len = 0;
	ssize_t n;

	for (;;) {
		check(poll(&p, 1, LIMIT_MS) > 0);
		n = recv(fd, buf + len, size - len, 0);
		if (n <= 0)
			return len;
		len += (size_t)n;
	}
}

static void ask_daemon(const uint8_t *data, size_t size)
{
	int fd = mc_socket_connect(daemon_addr, mc_deadline_ms(LIMIT_MS));
	uint8_t buf[4096];
	uint64_t need;
	size_t n;

	check(fd >= 0);
	say(fd, data, size);
	shutdown(fd, SHUT_WR);
	n = hear(fd, buf, sizeof(buf));
	if (n) {
		check(n > sizeof(need));
		memcpy(&need, buf, sizeof(need));
		check(need == n - sizeof(need));
	}
	close(fd);
}

struct lie {
	const uint8_t *data;
	size_t size;
};

static void *lie_main(void *arg)
{
	const struct lie *lie = arg;
	struct pollfd p = { .fd = liar_fd, .events = POLLIN };
	uint8_t buf[256];
	int fd;

	check(poll(&p, 1, LIMIT_MS) > 0);
	fd = mc_socket_accept(liar_fd);
	check(fd >= 0);
	say(fd, lie->data, lie->size);
	shutdown(fd, SHUT_WR);
	hear(fd, buf, sizeof(buf));
	close(fd);
	return NULL;
}

static void be_asked(const uint8_t *data, size_t size)
{
	struct lie lie = { data, size };
	char *reply = NULL;
	pthread_t thread;
	int r;

	check(pthread_create(&thread, NULL, lie_main, &lie) == 0);
	r = mce_handshake_call(HOST, liar_port, MCE_HANDSHAKE_METADATA, "{}", mc_deadline_ms(LIMIT_MS),
			       &reply);
	pthread_join(thread, NULL);
	check(r <= 0 && (r < 0) == !reply);
	if (reply)
		check(strlen(reply) < size);
	free(reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, start);
	if (size && data[0] % 4)
		ask_daemon(data + 1, size - 1);
	else if (size)
		be_asked(data + 1, size - 1);
	return 0;
}
