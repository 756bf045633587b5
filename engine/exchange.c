/* SPDX-License-Identifier: Apache-2.0
 * exchange.c - messages of a thread that waits for its peer: greetings, and those of control connections. */
#include <config.h>

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "common/sys/clock.h"
#include "engine/engine_i.h"

/* A wait checks for the engine's end this often. */
#define CLOSE_CHECK_MS 50

int mce_move_all(struct mce_engine *e, int fd, void *buf, size_t len, bool out, uint64_t deadline)
{
	struct pollfd pfd = { .fd = fd, .events = out ? POLLOUT : POLLIN };
	char *at = buf;
	ssize_t n;
	int ms;

	while (len) {
		n = out ? send(fd, at, len, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(fd, at, len, MSG_DONTWAIT);
		if (n == 0)
			return -ECONNRESET;
		if (n > 0) {
			at += n;
			len -= (size_t)n;
			continue;
		}
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return -errno;
		if (mc_now_ns() >= deadline)
			return -ETIMEDOUT;
		if (mce_closing(e))
			return -ECANCELED;
		ms = mc_deadline_left_ms(deadline);
		if (poll(&pfd, 1, ms < CLOSE_CHECK_MS ? ms : CLOSE_CHECK_MS) < 0 && errno != EINTR)
			return -errno;
	}
	return 0;
}
