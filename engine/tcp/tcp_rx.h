/* SPDX-License-Identifier: Apache-2.0
 * tcp_rx.h - receiving from a connection: headers through a small buffer, payload straight into its
 * destination.
 *
 * One receive takes the rest of a payload and, behind it, the next headers.  While payloads are large
 * only one header's bytes are received, so that no byte of the next payload lands in the buffer; while
 * they are small the buffer takes many requests at once, since copying 4 KiB costs less than a call. */
#ifndef MCE_TCP_RX_H
#define MCE_TCP_RX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "common/net/stream.h"

#define MCE_RX_BUF (64u << 10)
/* Payloads up to this many bytes are "small". */
#define MCE_RX_SMALL 8192u
#define MCE_RX_IOV 64

struct mce_rx {
	struct mc_stream *stream;
	uint8_t *buf;
	size_t start, end;	/* range in buf of the bytes received and not yet used */
	size_t header;		/* bytes of the smallest header */
	bool small;
	bool dry;		/* the stream had no more bytes */
	bool ending;		/* the other side has closed: read on until the end */
	uint64_t moved;		/* bytes received since the start, to detect progress */
};

/* @header: number of bytes received ahead while payloads are large.  -ENOMEM. */
int mce_rx_init(struct mce_rx *rx, struct mc_stream *stream, size_t header);
void mce_rx_done(struct mce_rx *rx);

static inline size_t mce_rx_have(const struct mce_rx *rx)
{
	return rx->end - rx->start;
}
static inline const uint8_t *mce_rx_peek(const struct mce_rx *rx)
{
	return rx->buf + rx->start;
}
static inline void mce_rx_use(struct mce_rx *rx, size_t n)
{
	rx->start += n;
}
/* Copy up to @n buffered bytes out; how many. */
size_t mce_rx_copy(struct mce_rx *rx, void *to, size_t n);
/* Receive headers.  0 (dry says whether the stream was empty), or -ECONNRESET, -errno. */
int mce_rx_headers(struct mce_rx *rx);
/* Receive into @iov (at most MCE_RX_IOV - 1 entries, @want bytes in all) and behind it into the
 * buffer, which is empty.  Bytes that went into @iov, or an error as above. */
ssize_t mce_rx_payload(struct mce_rx *rx, const struct iovec *iov, unsigned iovcnt, size_t want);
/* Discard up to @n bytes; how many, or an error. */
ssize_t mce_rx_drain(struct mce_rx *rx, size_t n);

#endif
