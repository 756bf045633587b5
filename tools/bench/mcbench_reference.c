/* SPDX-License-Identifier: Apache-2.0
 * mcbench_reference.c - memcpy and a plain socket. */
#include <config.h>

#include "tools/bench/mcbench_reference.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/err.h"
#include "common/metrics.h"
#include "common/net/socket.h"
#include "common/sys/clock.h"
#include "common/sys/thread.h"

#define QUESTION 64u
#define PEER_TIMEOUT_MS 10000

struct copier {
	struct mc_thread thread;
	const char *from;
	size_t size, total, first;
	uint64_t until_ns, bytes;
	int err;
};

static void *copy_pieces(void *arg)
{
	struct copier *c = arg;
	size_t at = c->first;
	char *to = malloc(c->size);

	if (!to) {
		c->err = -ENOMEM;
		return NULL;
	}
	memset(to, 0, c->size);
	while (mc_now_ns() < c->until_ns) {
		memcpy(to, c->from + at, c->size);
		/* Keep the compiler from removing the copy as unused. */
		__asm__ volatile("" : : "r"(to) : "memory");
		c->bytes += c->size;
		at += c->size;
		if (at + c->size > c->total)
			at = 0;
	}
	free(to);
	return NULL;
}

int mcbench_reference_memcpy(size_t size, size_t total, unsigned threads, uint64_t ms,
			     double *ret_bytes_per_second)
{
	struct copier *all = calloc(threads, sizeof(*all));
	uint64_t begun, bytes = 0;
	char *from = NULL;
	unsigned n;
	int err = 0;

	if (total < size)
		total = size;
	from = malloc(total);
	if (!all || !from) {
		free(all);
		free(from);
		return mc_fail(-ENOMEM, "out of memory for the memcpy reference");
	}
	memset(from, 1, total);
	begun = mc_now_ns();
	for (n = 0; n < threads && err == 0; n++) {
		all[n] = (struct copier){
			.from = from, .size = size, .total = total,
			.first = total / size * n / threads * size,
			.until_ns = begun + ms * MC_NS_PER_MS,
		};
		err = mc_thread_start(&all[n].thread, "memcpy", copy_pieces, &all[n]);
		if (err < 0)
			break;
	}
	for (unsigned i = 0; i < n; i++) {
		mc_thread_join(all[i].thread);
		bytes += all[i].bytes;
		err = err ? err : all[i].err;
	}
	if (err == 0)
		*ret_bytes_per_second = (double)bytes * 1e9 / (double)(mc_now_ns() - begun);
	free(all);
	free(from);
	return err;
}

/* ---- the socket ---- */

struct peer {
	struct mc_thread thread;
	int fd;
	char *buf;
	size_t size;
};

/* Exactly @len bytes, waiting in poll(); -EPIPE at the end of the stream. */
static int peer_transfer(int fd, char *p, size_t len, short event)
{
	struct pollfd pfd = { .fd = fd, .events = event };
	ssize_t n;

	while (len) {
		n = event == POLLIN ? recv(fd, p, len, 0) : send(fd, p, len, MSG_NOSIGNAL);
		if (n == 0)
			return -EPIPE;
		if (n > 0) {
			p += n;
			len -= (size_t)n;
			continue;
		}
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		if (errno == EAGAIN && poll(&pfd, 1, PEER_TIMEOUT_MS) == 0)
			return -ETIMEDOUT;
	}
	return 0;
}

static void *peer_answer(void *arg)
{
	struct peer *p = arg;
	char question[QUESTION];

	while (peer_transfer(p->fd, question, QUESTION, POLLIN) == 0 &&
	       peer_transfer(p->fd, p->buf, p->size, POLLOUT) == 0)
		;
	return NULL;
}

static int peer_accept(int listener)
{
	struct pollfd pfd = { .fd = listener, .events = POLLIN };

	if (poll(&pfd, 1, PEER_TIMEOUT_MS) <= 0)
		return -ETIMEDOUT;
	return mc_socket_accept(listener);
}

static int peer_ask(int fd, char *buf, size_t size, uint64_t ms, struct mc_hist *hist)
{
	uint64_t until = mc_now_ns() + ms * MC_NS_PER_MS, begun;
	char question[QUESTION] = { 0 };
	int err = 0;

	while (err == 0 && (begun = mc_now_ns()) < until) {
		err = peer_transfer(fd, question, QUESTION, POLLOUT);
		if (err == 0)
			err = peer_transfer(fd, buf, size, POLLIN);
		mc_hist_add(hist, mc_now_ns() - begun);
	}
	return err;
}

static int peer_talk(int fd, struct peer *p, char *buf, uint64_t ms, struct mc_hist *hist)
{
	int err = mc_thread_start(&p->thread, "socket", peer_answer, p);

	if (err < 0)
		return err;
	err = peer_ask(fd, buf, p->size, ms, hist);
	shutdown(fd, SHUT_RDWR);
	mc_thread_join(p->thread);
	return err;
}

int mcbench_reference_socket(size_t size, uint64_t ms, uint64_t *ret_ns)
{
	struct mc_hist *hist = calloc(1, sizeof(*hist));
	struct peer p = { .fd = -1, .size = size };
	char addr[MC_ADDR_MAX], *buf = malloc(size);
	int listener = -1, fd = -1, err = -ENOMEM;

	p.buf = calloc(1, size);
	if (!hist || !buf || !p.buf)
		goto end;
	listener = err = mc_socket_listen("127.0.0.1:0", 1, 0, addr);
	if (err < 0)
		goto end;
	fd = err = mc_socket_connect(addr, mc_deadline_ms(PEER_TIMEOUT_MS));
	if (err < 0)
		goto end;
	p.fd = err = peer_accept(listener);
	if (err < 0)
		goto end;
	err = peer_talk(fd, &p, buf, ms, hist);
	if (err == 0)
		*ret_ns = mc_hist_quantile(hist, 0.5);
end:
	if (p.fd >= 0)
		close(p.fd);
	if (fd >= 0)
		close(fd);
	if (listener >= 0)
		close(listener);
	free(p.buf);
	free(buf);
	free(hist);
	return err;
}
