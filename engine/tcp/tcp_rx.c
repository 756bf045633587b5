/* SPDX-License-Identifier: Apache-2.0
 * tcp_rx.c - receiving headers and payloads from a connection, see tcp_rx.h. */
#include <config.h>

#include "engine/tcp/tcp_rx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int mce_rx_init(struct mce_rx *rx, struct mc_stream *stream, size_t header)
{
	uint8_t *buf = rx->buf ? rx->buf : malloc(MCE_RX_BUF);

	if (!buf)
		return -ENOMEM;
	memset(rx, 0, sizeof(*rx));
	rx->buf = buf;
	rx->stream = stream;
	rx->header = header;
	return 0;
}

void mce_rx_done(struct mce_rx *rx)
{
	free(rx->buf);
	rx->buf = NULL;
}

size_t mce_rx_copy(struct mce_rx *rx, void *to, size_t n)
{
	if (n > mce_rx_have(rx))
		n = mce_rx_have(rx);
	memcpy(to, mce_rx_peek(rx), n);
	rx->start += n;
	return n;
}

static ssize_t rx_receive(struct mce_rx *rx, struct iovec *iov, unsigned iovcnt, size_t want)
{
	ssize_t n = mc_stream_recv(rx->stream, iov, (int)iovcnt);

	if (n == 0)
		return -ECONNRESET;
	if (n < 0 && n != -EAGAIN)
		return n;
	if (n < 0)
		n = 0;
	rx->dry = n == 0 || ((size_t)n < want && !rx->ending && !mc_stream_pending(rx->stream));
	rx->moved += (size_t)n;
	return n;
}

int mce_rx_headers(struct mce_rx *rx)
{
	struct iovec iov;
	ssize_t n;

	if (rx->start) {
		memmove(rx->buf, rx->buf + rx->start, mce_rx_have(rx));
		rx->end -= rx->start;
		rx->start = 0;
	}
	iov.iov_base = rx->buf + rx->end;
	iov.iov_len = MCE_RX_BUF - rx->end;
	/* A header longer than the smallest one takes a second call. */
	if (!rx->small && rx->end < rx->header)
		iov.iov_len = rx->header - rx->end;
	else if (!rx->small)
		iov.iov_len = rx->header;
	n = rx_receive(rx, &iov, 1, iov.iov_len);
	if (n < 0)
		return (int)n;
	rx->end += (size_t)n;
	return 0;
}

ssize_t mce_rx_payload(struct mce_rx *rx, const struct iovec *iov, unsigned iovcnt, size_t want)
{
	size_t ahead = rx->small ? MCE_RX_BUF : rx->header;
	struct iovec all[MCE_RX_IOV];
	ssize_t n;

	memcpy(all, iov, iovcnt * sizeof(*iov));
	all[iovcnt].iov_base = rx->buf;
	all[iovcnt].iov_len = ahead;
	n = rx_receive(rx, all, iovcnt + 1, want + ahead);
	if (n < 0)
		return n;
	rx->start = 0;
	rx->end = (size_t)n > want ? (size_t)n - want : 0;
	return n - (ssize_t)rx->end;
}

ssize_t mce_rx_drain(struct mce_rx *rx, size_t n)
{
	uint8_t scratch[16384];
	struct iovec iov = { .iov_base = scratch };

	if (mce_rx_have(rx)) {
		if (n > mce_rx_have(rx))
			n = mce_rx_have(rx);
		rx->start += n;
		return (ssize_t)n;
	}
	iov.iov_len = n < sizeof(scratch) ? n : sizeof(scratch);
	return rx_receive(rx, &iov, 1, iov.iov_len);
}
