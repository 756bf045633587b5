/* SPDX-License-Identifier: Apache-2.0
 * exchange.c - messages of a thread that waits for its peer: greetings, and those of control connections. */
#include <config.h>

#include <errno.h>
#include <poll.h>

#include "common/sys/clock.h"
#include "engine/engine_i.h"

/* A wait checks for the engine's end this often. */
#define CLOSE_CHECK_MS 50

int mce_move_all(struct mce_engine *e, struct mc_stream *s, void *buf, size_t len, bool out, uint64_t deadline)
{
	struct iovec left = { buf, len };
	uint64_t check;
	ssize_t n;
	int r;

	while (left.iov_len) {
		n = out ? mc_stream_send(s, &left, 1) : mc_stream_recv(s, &left, 1);
		if (n == 0)
			return -ECONNRESET;
		if (n > 0) {
			left.iov_base = (char *)left.iov_base + n;
			left.iov_len -= (size_t)n;
			continue;
		}
		if (n != -EAGAIN)
			return (int)n;
		if (mc_now_ns() >= deadline)
			return -ETIMEDOUT;
		if (mce_closing(e))
			return -ECANCELED;
		check = mc_deadline_ms(CLOSE_CHECK_MS);
		r = mc_stream_wait(s, out ? POLLOUT : POLLIN, check < deadline ? check : deadline);
		if (r < 0)
			return r;
	}
	return 0;
}
