/* SPDX-License-Identifier: Apache-2.0
 * tls_bio.c - the stream below one of TLS, as OpenSSL sees it. */
#include <config.h>

#include <errno.h>
#include <string.h>

#include "common/err.h"
#include "common/security/tls_i.h"

/* Most bytes of a ClientHello.  OpenSSL allocates the announced length, up to 128 KiB, before anything is proved. */
#define HELLO_MAX 4096u
#define HELLO_HEADER 9u		/* bytes of the headers of its record and its message */

static int bio_result(BIO *b, struct tls_stream *t, ssize_t n, int retry)
{
	BIO_clear_retry_flags(b);
	if (n == -EAGAIN)
		BIO_set_flags(b, retry | BIO_FLAGS_SHOULD_RETRY);
	else if (n < 0 && !t->inner_err)
		t->inner_err = (int)n;
	return n < 0 ? -1 : (int)n;
}

static int bio_write(BIO *b, const char *data, int len)
{
	struct tls_stream *t = BIO_get_data(b);
	const struct iovec iov = { (void *)(uintptr_t)data, (size_t)len };

	return bio_result(b, t, mc_stream_send(&t->inner, &iov, 1), BIO_FLAGS_WRITE);
}

/* Keep the first bytes of the peer of an accepted stream.  Its ClientHello has to be short, and in one record. */
static void first_keep(struct tls_stream *t, const void *data, size_t len)
{
	size_t part = sizeof(t->first) - t->first_len;
	const uint8_t *f = t->first;

	if (!part)
		return;
	part = len < part ? len : part;
	memcpy(t->first + t->first_len, data, part);
	t->first_len += part;
	if (t->first_len >= HELLO_HEADER && f[0] == MC_TLS_HANDSHAKE) {
		uint32_t record = (uint32_t)f[3] << 8 | f[4], hello = (uint32_t)f[6] << 16 | (uint32_t)f[7] << 8 | f[8];

		if (hello > HELLO_MAX || hello + 4 > record)
			t->stop = "the peer's ClientHello is too long, or not in one record";
	}
}

/* OpenSSL asks for the bytes of one record only; those behind the handshake stay in t->in. */
static int bio_read(BIO *b, char *data, int len)
{
	struct tls_stream *t = BIO_get_data(b);
	size_t had = t->in_len - t->in_at;
	ssize_t n = 1;

	if (!had && !t->stop)
		n = mc_tls_in_fill(t);
	if (!had && n > 0 && t->server)
		first_keep(t, t->in, t->in_len);
	if (t->stop)
		n = mc_fail(-EPROTO, "TLS: %s", t->stop);
	if (n > 0) {
		n = (ssize_t)(t->in_len - t->in_at) < len ? (ssize_t)(t->in_len - t->in_at) : len;
		memcpy(data, t->in + t->in_at, (size_t)n);
		t->in_at += (size_t)n;
	}
	return bio_result(b, t, n, BIO_FLAGS_READ);
}

static long bio_ctrl(BIO *b, int cmd, long num, void *ptr)
{
	return cmd == BIO_CTRL_FLUSH;
}

static int bio_create(BIO *b)
{
	BIO_set_init(b, 1);
	return 1;
}

BIO_METHOD *mc_tls_bio_method(void)
{
	BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "mooncake stream");

	if (m && BIO_meth_set_write(m, bio_write) && BIO_meth_set_read(m, bio_read) && BIO_meth_set_ctrl(m, bio_ctrl) &&
	    BIO_meth_set_create(m, bio_create))
		return m;
	BIO_meth_free(m);
	return NULL;
}
