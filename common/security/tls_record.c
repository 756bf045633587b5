/* SPDX-License-Identifier: Apache-2.0
 * tls_record.c - records of TLS 1.3 after the handshake (RFC 8446, 4.6.3, 5, 6.1 and 7), with AES-128-GCM.
 *
 * OpenSSL makes the handshake, and could make the same records.  It takes 17,000 instructions for a short one, copies
 * all bytes, and is not for two threads.  Here a record takes 3,000 with ipsec-mb and 8,000 with OpenSSL's ciphers, is
 * encrypted from the caller's memory and decrypted into it, up to BATCH of them move in one call of the stream below,
 * and each direction works alone.
 *
 * Bytes of a record that turns out to be forged may already be in the caller's buffers, beyond those that recv has
 * returned; the stream has ended then. */
#include <config.h>

#include <errno.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/security/tls_i.h"

#define HEADER 5u
#define CONTENT 16384u			/* most bytes of content in a record */
#define TAG MC_GCM_TAG
#define OVERHEAD (HEADER + 1 + TAG)	/* with the type of the content */
#define BATCH 4u			/* records in one read or write */
#define BATCH_BYTES (BATCH * (CONTENT + OVERHEAD))
#define FIRST_BYTES 4096u		/* most bytes of a read before the peer has proved anything */
#define RECORD_EXTRA 256u		/* the encrypted part of a record may exceed its content by that */
/* Shorter records are decrypted beside the caller's buffers: those without data are short. */
#define DIRECT 256u
/* A key changes after this many records: AES-GCM may encrypt 2^24.5 with one (RFC 8446, 5.5). */
#define REKEY_RECORDS (1ull << 24)
/* Most records without data (changes of keys, empty ones) between two with data. */
#define MESSAGES_MAX 32u

enum { ALERT = 21, HANDSHAKE = 22, DATA = 23 };
enum { UNEXPECTED_MESSAGE = 10, BAD_RECORD_MAC = 20, RECORD_OVERFLOW = 22, USER_CANCELED = 90 };
enum { KEY_UPDATE = 24 };

/* ---- keys -------------------------------------------------------------------------------------- */

/* HKDF-Expand-Label with an empty context; @len is at most the length of a secret, so one HMAC is enough. */
static bool key_expand(const uint8_t secret[MC_TLS_SECRET_LEN], const char *label, uint8_t *ret, size_t len)
{
	uint8_t info[64] = { 0, (uint8_t)len }, full[EVP_MAX_MD_SIZE];
	size_t n = strlen(label);
	unsigned full_len;

	info[2] = (uint8_t)(6 + n);
	memcpy(info + 3, "tls13 ", 6);
	memcpy(info + 9, label, n);
	info[9 + n + 1] = 1;
	if (!HMAC(EVP_sha256(), secret, MC_TLS_SECRET_LEN, info, 9 + n + 2, full, &full_len))
		return false;
	memcpy(ret, full, len);
	OPENSSL_cleanse(full, sizeof(full));
	return true;
}

/* Use the key of d->secret. */
static bool direction_start(struct tls_direction *d)
{
	uint8_t key[MC_GCM_KEY];
	bool good = key_expand(d->secret, "key", key, sizeof(key)) &&
		    key_expand(d->secret, "iv", d->iv, sizeof(d->iv)) && d->gcm->ops->key(d->gcm, key);

	OPENSSL_cleanse(key, sizeof(key));
	d->seq = 0;
	return good;
}

static bool direction_update(struct tls_direction *d)
{
	return key_expand(d->secret, "traffic upd", d->secret, sizeof(d->secret)) && direction_start(d);
}

/* Begin the next record. */
static bool direction_next(struct tls_direction *d, const uint8_t header[HEADER])
{
	uint8_t nonce[MC_GCM_NONCE];

	memcpy(nonce, d->iv, sizeof(nonce));
	for (unsigned i = 0; i < 8; i++)
		nonce[MC_GCM_NONCE - 1 - i] ^= (uint8_t)(d->seq >> (8 * i));
	d->seq++;
	return d->gcm->ops->begin(d->gcm, nonce, header, HEADER);
}

static bool direction_crypt(struct tls_direction *d, uint8_t *to, const uint8_t *from, size_t len)
{
	return d->gcm->ops->crypt(d->gcm, to, from, len);
}

int mc_tls_records_start(struct tls_stream *t)
{
	t->rx.gcm = t->tls->gcm->make(false);
	t->tx.gcm = t->tls->gcm->make(true);
	if (t->secrets != 3 || !t->rx.gcm || !t->tx.gcm || !direction_start(&t->rx) || !direction_start(&t->tx))
		return mc_fail(-ENOMEM, "no keys for the records of a TLS connection");
	t->rekey_at = REKEY_RECORDS;
	return 0;
}

void mc_tls_records_free(struct tls_stream *t)
{
	if (t->rx.gcm)
		t->rx.gcm->ops->free(t->rx.gcm);
	if (t->tx.gcm)
		t->tx.gcm->ops->free(t->tx.gcm);
	OPENSSL_cleanse(&t->rx, sizeof(t->rx));
	OPENSSL_cleanse(&t->tx, sizeof(t->tx));
	free(t->in);
	free(t->out);
}

/* ---- parts of iovecs --------------------------------------------------------------------------- */

struct cursor {
	const struct iovec *iov;
	int n;
	size_t skip;	/* bytes of the first iovec that are done */
};

static void cursor_trim(struct cursor *c)
{
	for (; c->n && c->skip >= c->iov->iov_len; c->iov++, c->n--)
		c->skip -= c->iov->iov_len;
}

/* The next bytes that are together, up to @max; 0: there are none. */
static size_t cursor_part(struct cursor *c, size_t max, uint8_t **ret)
{
	size_t part;

	cursor_trim(c);
	*ret = NULL;
	if (!c->n)
		return 0;
	*ret = (uint8_t *)c->iov->iov_base + c->skip;
	part = c->iov->iov_len - c->skip;
	part = part < max ? part : max;
	c->skip += part;
	return part;
}

/* The bytes that are left, counted up to @max. */
static size_t cursor_left(const struct cursor *c, size_t max)
{
	size_t left = 0;

	for (int i = 0; i < c->n && left < max + c->skip; i++)
		left += c->iov[i].iov_len;
	left = left > c->skip ? left - c->skip : 0;
	return left < max ? left : max;
}

/* ---- buffers ----------------------------------------------------------------------------------- */

/* Most calls need a buffer of BATCH_BYTES until they return.  malloc() gives such a large block back to its heap, and
 * sometimes to the kernel, each time: that took as long as a short record.  So a few wait here for the next call of any
 * stream, which looks at one place only. */
#define SPARES 16u

static struct {
	uint8_t *buf;	/* atomic */
} __attribute__((aligned(64))) spares[SPARES];

static uint8_t **spare_of(const struct tls_stream *t)
{
	return &spares[(uint64_t)(uintptr_t)t * 0x9e3779b97f4a7c15ull >> 60].buf;
}

/* A buffer of BATCH_BYTES, or NULL. */
static uint8_t *buffer_get(const struct tls_stream *t)
{
	uint8_t *buf = __atomic_exchange_n(spare_of(t), NULL, __ATOMIC_ACQUIRE);

	return buf ? buf : malloc(BATCH_BYTES);
}

static void buffer_put(const struct tls_stream *t, uint8_t *buf)
{
	free(__atomic_exchange_n(spare_of(t), buf, __ATOMIC_ACQ_REL));
}

/* ---- receiving --------------------------------------------------------------------------------- */

static size_t rx_whole(const struct tls_stream *t);

/* A peer that sends a part of a record and then nothing must not keep a whole buffer. */
static void in_shrink(struct tls_stream *t)
{
	size_t size = t->in_len - t->in_at;
	uint8_t *in;

	memmove(t->in, t->in + t->in_at, size);
	t->in_len = size;
	t->in_at = 0;
	size = size < FIRST_BYTES ? FIRST_BYTES : size;
	in = realloc(t->in, size);
	if (!in)
		return;
	t->in = in;
	t->in_size = size;
}

void mc_tls_in_release(struct tls_stream *t)
{
	if (t->plain_len)
		return;
	if (t->in_at < t->in_len) {
		if (t->in_size > FIRST_BYTES + CONTENT && !rx_whole(t))
			in_shrink(t);
		return;
	}
	if (t->in_size == BATCH_BYTES)
		buffer_put(t, t->in);
	else
		free(t->in);
	t->in = NULL;
	t->in_size = t->in_at = t->in_len = 0;
}

ssize_t mc_tls_in_fill(struct tls_stream *t)
{
	size_t size = t->complete ? BATCH_BYTES : FIRST_BYTES;
	struct iovec iov;
	ssize_t n;

	if (t->in_at) {
		memmove(t->in, t->in + t->in_at, t->in_len - t->in_at);
		t->in_len -= t->in_at;
		t->in_at = 0;
	}
	if (t->in_size < size) {
		uint8_t *in = t->in || size != BATCH_BYTES ? realloc(t->in, size) : buffer_get(t);

		if (!in)
			return mc_fail(-ENOMEM, "no memory for records of TLS");
		t->in = in;
		t->in_size = size;
	}
	iov = (struct iovec){ t->in + t->in_len, t->in_size - t->in_len };
	n = mc_stream_recv(&t->inner, &iov, 1);
	t->drained = n < (ssize_t)iov.iov_len;
	if (n <= 0)
		return n;
	t->in_len += (size_t)n;
	return 1;
}

/* The peer has sent a record that ends the stream. */
static int rx_refuse(struct tls_stream *t, uint8_t alert, const char *why)
{
	mc_mutex_lock(&t->lock);
	mc_tls_alert(t, alert);
	mc_mutex_unlock(&t->lock);
	return mc_tls_fail(t, mc_fail(-EPROTO, "TLS: %s", why));
}

static int rx_alert(struct tls_stream *t, const uint8_t *data, size_t len)
{
	if (len != 2)
		return rx_refuse(t, UNEXPECTED_MESSAGE, "the peer has sent a wrong alert");
	if (data[1] == MC_TLS_CLOSE_NOTIFY) {
		t->rx_ended = true;
		return 0;
	}
	return data[1] == USER_CANCELED ? 0 :
	       mc_tls_fail(t, mc_fail(-EPROTO, "TLS: the peer has ended the connection: %s",
				      SSL_alert_desc_string_long(data[1])));
}

/* A change of the peer's key, alone in its record. */
static int rx_handshake(struct tls_stream *t, const uint8_t *data, size_t len)
{
	if (len != 5 || data[0] != KEY_UPDATE || data[1] || data[2] || data[3] != 1 || data[4] > 1)
		return rx_refuse(t, UNEXPECTED_MESSAGE, "the peer has sent a message that is no change of keys");
	if (data[4])
		__atomic_store_n(&t->update_wanted, true, __ATOMIC_RELAXED);
	if (!direction_update(&t->rx))
		return mc_tls_fail(t, mc_fail(-ENOMEM, "no memory for the key of a TLS connection"));
	return 0;
}

/* Take over a record of @type whose content is at @at in t->in. */
static int rx_content(struct tls_stream *t, uint8_t type, size_t at, size_t len)
{
	if ((type != DATA || !len) && ++t->messages > MESSAGES_MAX)
		return rx_refuse(t, UNEXPECTED_MESSAGE, "the peer sends too many changes of keys, or empty records");
	switch (type) {
	case DATA:
		if (len)
			t->messages = 0;
		t->plain_at = at;
		t->plain_len = len;
		return 0;
	case ALERT:
		return rx_alert(t, t->in + at, len);
	case HANDSHAKE:
		return rx_handshake(t, t->in + at, len);
	default:
		return rx_refuse(t, UNEXPECTED_MESSAGE, "the peer has sent a record of another type");
	}
}

/* The length of the next record's encrypted part if all of it has arrived; 0: not yet, or not a right one. */
static size_t rx_whole(const struct tls_stream *t)
{
	const uint8_t *h = t->in + t->in_at;
	size_t have = t->in_len - t->in_at, len;

	if (have < HEADER)
		return 0;
	len = (size_t)h[3] << 8 | h[4];
	return h[0] == DATA && len > TAG && len <= CONTENT + RECORD_EXTRA && have >= HEADER + len ? len : 0;
}

static int rx_check_header(struct tls_stream *t)
{
	const uint8_t *h = t->in + t->in_at;
	size_t len;

	if (t->in_len - t->in_at < HEADER)
		return -EAGAIN;
	len = (size_t)h[3] << 8 | h[4];
	if (h[0] != DATA || len <= TAG)
		return rx_refuse(t, UNEXPECTED_MESSAGE, "the peer has sent a record that is not encrypted");
	if (len > CONTENT + RECORD_EXTRA)
		return rx_refuse(t, RECORD_OVERFLOW, "the peer has sent a record that is too long");
	return -EAGAIN;
}

static bool rx_is_genuine(struct tls_stream *t, const uint8_t *tag)
{
	return t->rx.gcm->ops->verify(t->rx.gcm, tag);
}

/* Decrypt a record into the caller's buffers, which have room for it.  The bytes of content, or an error. */
static ssize_t rx_direct(struct tls_stream *t, size_t len, struct cursor *to)
{
	const uint8_t *h = t->in + t->in_at, *from = h + HEADER;
	size_t left = len - TAG - 1, part;
	bool good = direction_next(&t->rx, h);
	uint8_t type, *at;

	while (good && left) {
		part = cursor_part(to, left, &at);
		good = direction_crypt(&t->rx, at, from, part);
		from += part;
		left -= part;
	}
	good = good && direction_crypt(&t->rx, &type, from, 1) && rx_is_genuine(t, from + 1);
	if (!good)
		return rx_refuse(t, BAD_RECORD_MAC, "a record was changed on its way");
	if (type != DATA)
		return rx_refuse(t, UNEXPECTED_MESSAGE, type ? "the peer has sent a long message" :
				 "the peer pads its records");
	t->in_at += HEADER + len;
	t->messages = 0;
	return (ssize_t)(len - TAG - 1);
}

/* Decrypt a record in its place. */
static int rx_in_place(struct tls_stream *t, size_t len)
{
	uint8_t *h = t->in + t->in_at, *body = h + HEADER;
	size_t content = len - TAG, at = t->in_at + HEADER;

	if (!direction_next(&t->rx, h) || !direction_crypt(&t->rx, body, body, content) ||
	    !rx_is_genuine(t, body + content))
		return rx_refuse(t, BAD_RECORD_MAC, "a record was changed on its way");
	t->in_at += HEADER + len;
	while (content && !body[content - 1])
		content--;
	if (!content)
		return rx_refuse(t, UNEXPECTED_MESSAGE, "the peer has sent a record without a type");
	if (content - 1 > CONTENT)
		return rx_refuse(t, RECORD_OVERFLOW, "the peer has sent a record that is too long");
	return rx_content(t, body[content - 1], at, content - 1);
}

/* The next record that has arrived.  >0: the number of its bytes, in the caller's buffers; 0: its content is in t->in,
 * or it has none; -EAGAIN; -errno. */
static ssize_t rx_record(struct tls_stream *t, struct cursor *to)
{
	size_t len = rx_whole(t);

	if (!len)
		return rx_check_header(t);
	if (to && len >= DIRECT && cursor_left(to, len) >= len - TAG - 1)
		return rx_direct(t, len, to);
	return rx_in_place(t, len);
}

static int rx_inner_end(struct tls_stream *t, ssize_t r)
{
	if (r < 0)
		return (int)r;
	return __atomic_load_n(&t->closed, __ATOMIC_ACQUIRE) ? 0 :
	       mc_fail(-ECONNRESET, "the peer has closed the connection");
}

/* The next bytes: >0 in the caller's buffers; 1 without @to: there are some; 0: the end; -EAGAIN; -errno.  With @more
 * the caller has bytes already, and does not want another read of a stream that is drained. */
static ssize_t rx_next(struct tls_stream *t, struct cursor *to, bool more)
{
	uint8_t *at;
	ssize_t r;

	for (;;) {
		if (t->plain_len && !to)
			return 1;
		if (t->plain_len) {
			size_t part = cursor_part(to, t->plain_len, &at);

			memcpy(at, t->in + t->plain_at, part);
			t->plain_at += part;
			t->plain_len -= part;
			return (ssize_t)part;
		}
		if (t->rx_ended)
			return 0;
		r = mc_tls_failed(t);
		if (r < 0)
			return r;
		r = t->in ? rx_record(t, to) : -EAGAIN;
		if (r == 0)
			continue;
		if (r != -EAGAIN || (t->drained && more))
			return r;
		r = mc_tls_in_fill(t);
		if (r == -EAGAIN)
			return r;
		if (r <= 0)
			return rx_inner_end(t, r);
	}
}

ssize_t mc_tls_records_recv(struct tls_stream *t, const struct iovec *iov, int n)
{
	struct cursor to = { iov, n, 0 };
	size_t got = 0;
	ssize_t r = 0;

	t->tail = t->drained = false;
	for (cursor_trim(&to); to.n; cursor_trim(&to)) {
		r = rx_next(t, &to, got > 0);
		if (r <= 0)
			break;
		got += (size_t)r;
	}
	t->tail = got && to.n && r != -EAGAIN;
	mc_tls_in_release(t);
	return got ? (ssize_t)got : r;
}

int mc_tls_records_peek(struct tls_stream *t)
{
	int r;

	t->tail = t->drained = false;
	r = (int)rx_next(t, NULL, false);
	mc_tls_in_release(t);
	return r;
}

size_t mc_tls_records_pending(const struct tls_stream *t)
{
	if (t->plain_len)
		return t->plain_len;
	return t->tail || (!t->rx_ended && t->in && rx_whole(t) && !__atomic_load_n(&t->failed, __ATOMIC_RELAXED));
}

/* ---- sending ----------------------------------------------------------------------------------- */

/* Encrypt @len bytes from @from as one record at @to.  Returns the record's length, 0: OpenSSL failed. */
static size_t tx_record(struct tls_stream *t, uint8_t type, struct cursor *from, size_t len, uint8_t *to)
{
	size_t body = len + 1 + TAG, left = len, part;
	uint8_t *at, *p = to + HEADER;
	bool good;

	to[0] = DATA;
	to[1] = to[2] = 3;
	to[3] = (uint8_t)(body >> 8);
	to[4] = (uint8_t)body;
	good = direction_next(&t->tx, to);
	while (good && left) {
		part = cursor_part(from, left, &at);
		good = direction_crypt(&t->tx, p, at, part);
		p += part;
		left -= part;
	}
	good = good && direction_crypt(&t->tx, p, &type, 1) && t->tx.gcm->ops->seal(t->tx.gcm, p + 1);
	return good ? HEADER + body : 0;
}

/* The stream below has taken @n more bytes of t->out: the bytes of data in the records that are complete. */
static size_t tx_sent(struct tls_stream *t, size_t n)
{
	size_t taken = 0, content;

	for (; n >= t->out_record; n -= content) {
		content = t->out_plain < CONTENT ? t->out_plain : CONTENT;
		taken += content;
		t->out_plain -= content;
		content = t->out_record;
		if (!t->out_plain)
			return taken;
		t->out_record = (t->out_plain < CONTENT ? t->out_plain : CONTENT) + OVERHEAD;
	}
	t->out_record -= n;
	return taken;
}

/* Send @len bytes of records at @buf, with @plain bytes of data.  Returns how many of these are sent; the other records
 * are kept in t->out. */
static ssize_t tx_write(struct tls_stream *t, const uint8_t *buf, size_t len, size_t plain)
{
	struct iovec iov = { (void *)(uintptr_t)buf, len };
	ssize_t n = mc_stream_send(&t->inner, &iov, 1);

	if (n == (ssize_t)len)
		return (ssize_t)plain;
	if (n < 0 && n != -EAGAIN)
		return n;
	n = n < 0 ? 0 : n;
	t->out = malloc(len - (size_t)n);
	if (!t->out)
		return mc_tls_fail(t, mc_fail(-ENOMEM, "no memory for records of TLS"));
	t->out_at = 0;
	t->out_len = len - (size_t)n;
	t->out_plain = plain;
	t->out_record = plain ? (plain < CONTENT ? plain : CONTENT) + OVERHEAD : len;
	memcpy(t->out, buf + n, t->out_len);
	return (ssize_t)tx_sent(t, (size_t)n);
}

/* Send t->out; it is NULL afterwards if all of it is sent.  Returns the bytes of data in records that are complete. */
static ssize_t tx_flush(struct tls_stream *t)
{
	size_t taken = 0;

	while (t->out_at < t->out_len) {
		struct iovec iov = { t->out + t->out_at, t->out_len - t->out_at };
		ssize_t n = mc_stream_send(&t->inner, &iov, 1);

		if (n < 0)
			return n == -EAGAIN ? (ssize_t)taken : n;
		t->out_at += (size_t)n;
		taken += tx_sent(t, (size_t)n);
	}
	free(t->out);
	t->out = NULL;
	t->out_at = t->out_len = t->out_plain = 0;
	return (ssize_t)taken;
}

static int tx_broken(struct tls_stream *t)
{
	return mc_tls_fail(t, mc_fail(-EPROTO, "TLS: a record cannot be encrypted"));
}

/* Encrypt and send up to BATCH records.  As tx_write(). */
static ssize_t tx_batch(struct tls_stream *t, struct cursor *from, size_t left)
{
	uint8_t small[DIRECT + OVERHEAD], *buf = small;
	size_t len = 0, plain = 0, one;
	ssize_t r = 0;

	if (left > DIRECT) {
		buf = buffer_get(t);
		if (!buf)
			return mc_tls_fail(t, mc_fail(-ENOMEM, "no memory for records of TLS"));
	}
	while (r == 0 && plain < left) {
		size_t content = left - plain < CONTENT ? left - plain : CONTENT;

		one = tx_record(t, DATA, from, content, buf + len);
		if (!one)
			r = tx_broken(t);
		len += one;
		plain += content;
	}
	if (r == 0)
		r = tx_write(t, buf, len, plain);
	if (buf != small)
		buffer_put(t, buf);
	return r;
}

int mc_tls_update(struct tls_stream *t, bool ask)
{
	uint8_t message[] = { KEY_UPDATE, 0, 0, 1, ask }, record[sizeof(message) + OVERHEAD];
	const struct iovec iov = { message, sizeof(message) };
	struct cursor from = { &iov, 1, 0 };
	size_t len;

	len = tx_record(t, HANDSHAKE, &from, sizeof(message), record);
	if (!len || !direction_update(&t->tx))
		return tx_broken(t);
	return (int)tx_write(t, record, len, 0);
}

void mc_tls_alert(struct tls_stream *t, uint8_t description)
{
	uint8_t message[] = { description == MC_TLS_CLOSE_NOTIFY ? 1 : 2, description };
	uint8_t record[sizeof(message) + OVERHEAD];
	const struct iovec iov = { message, sizeof(message) };
	struct iovec to = { record, 0 };
	struct cursor from = { &iov, 1, 0 };

	if (!t->ended && !t->out && !__atomic_load_n(&t->failed, __ATOMIC_RELAXED)) {
		to.iov_len = tx_record(t, ALERT, &from, sizeof(message), record);
		if (to.iov_len)
			(void)mc_stream_send(&t->inner, &to, 1);
	}
	t->ended = true;
}

ssize_t mc_tls_records_send(struct tls_stream *t, const struct iovec *iov, int n)
{
	struct cursor from = { iov, n, 0 };
	size_t taken = 0, left;
	ssize_t r;

	for (;;) {
		if (t->out) {
			r = tx_flush(t);
			if (r < 0)
				return r;
			/* The caller's bytes begin with those of the records. */
			taken += (size_t)r;
			from.skip += (size_t)r;
		}
		cursor_trim(&from);
		left = cursor_left(&from, BATCH * CONTENT);
		if (t->out || !left)
			return taken || !left ? (ssize_t)taken : -EAGAIN;
		r = 0;
		if (t->tx.seq >= t->rekey_at || __atomic_exchange_n(&t->update_wanted, false, __ATOMIC_RELAXED))
			r = mc_tls_update(t, false);
		if (r == 0 && !t->out)
			r = tx_batch(t, &from, left);
		if (r < 0)
			return r;
		taken += (size_t)r;
		if (t->out)
			return taken ? (ssize_t)taken : -EAGAIN;
	}
}
