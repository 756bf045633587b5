/* SPDX-License-Identifier: Apache-2.0
 * test_common_tls.c - handshakes of TLS with keys of identities, in memory: peers without a right key, bytes that are
 * changed, cut, sent again or never, and floods. */
#include <config.h>

#include "tests/unit/test_common_tls_pair.h"

#include <malloc.h>
#include <openssl/crypto.h>

static size_t ssl_bytes;		/* memory of OpenSSL */

static void *ssl_malloc(size_t len, const char *file, int line)
{
	void *p = malloc(len);

	ssl_bytes += malloc_usable_size(p);
	return p;
}

static void ssl_free(void *p, const char *file, int line)
{
	ssl_bytes -= malloc_usable_size(p);
	free(p);
}

static void *ssl_realloc(void *p, size_t len, const char *file, int line)
{
	ssl_bytes -= malloc_usable_size(p);
	p = realloc(p, len);
	ssl_bytes += malloc_usable_size(p);
	return p;
}

/* A new accepting stream that has received the bytes: its result.  *@ret_identity: has it a principal? */
static int accept_bytes(const void *data, size_t len, bool *ret_identity)
{
	struct mc_stream raw, s;
	struct memory_pair *p;
	int r;

	assert_int_equal(mc_net_connect(memory_net(), "memory", 0, &raw), 0);
	p = pair;
	assert_int_equal(mc_listener_accept(&listener, &s), 0);
	memory_pipe_put(&p->up, data, len);
	r = mc_stream_peek(&s);
	*ret_identity = principal(&s) != NULL;
	mc_stream_close(&s);
	mc_stream_close(&raw);
	return r;
}

/* ---- keys -------------------------------------------------------------------------------------- */

static void a_right_key_gives_its_rights(void **state)
{
	assert_int_equal(pair_connect(1000), 0);
	assert_int_equal(put(&b, "x", 1), -EPIPE);
	assert_null(principal(&b));
	assert_int_equal(mc_stream_peek(&b), -EAGAIN);
	assert_non_null(principal(&b));
	assert_string_equal(principal(&b)->name, "alice");
	assert_string_equal(principal(&b)->tenant, "t1");
	assert_null(principal(&a));
	assert_works(&a, &b);
	assert_works(&b, &a);
}

static void openssl_keeps_no_key_of_a_peer(void **state)
{
	assert_int_equal(pair_connect(1000), 0);
	assert_int_equal(mc_stream_peek(&b), -EAGAIN);
	/* Its sessions with the keys are erased and freed with these. */
	assert_null(((struct tls_stream *)a.state)->ssl);
	assert_null(((struct tls_stream *)b.state)->ssl);
	assert_works(&a, &b);
}

static void assert_refused(void)
{
	char c;

	assert_int_equal(pair_connect(1000), -EACCES);
	assert_non_null(strstr(mc_err_detail(-EACCES), "refused the credential of"));
	assert_null(principal(&b));
	assert_int_equal(mc_stream_peek(&b), ((struct tls_stream *)b.state)->failed);
	assert_true(get(&b, &c, 1) < 0);
	assert_int_equal(put(&b, "x", 1), -EPIPE);
}

static void a_peer_without_a_right_key_is_refused(void **state)
{
	show("mc1/test/client/t1/alice/0000000000000007/1000");	/* expired */
	assert_refused();
	show("mc1/other/client/t1/alice/0000000000000007/2000");
	assert_refused();
	show("no identity");
	assert_refused();
	show("mc1/test/client/t1/alice/0000000000000007/2000");
	for (unsigned i = 0; i < MC_KEY_LEN; i++) {
		shown.key[i] ^= 0x80;
		assert_refused();
		shown.key[i] ^= 0x80;
	}
	/* Another role, with the key of the lesser one. */
	strcpy(shown.text, "mc1/test/admin/t1/alice/0000000000000007/2000");
	assert_refused();
}

static void a_second_credential_is_shown_once(void **state)
{
	show("mc1/test/client/t1/alice/0000000000000007/2000");
	second = shown;
	show("mc1/other/client/t1/alice/0000000000000007/2000");
	assert_int_equal(pair_connect(1000), 0);
	assert_int_equal(mc_stream_peek(&b), -EAGAIN);
	assert_works(&a, &b);
	show("mc1/test/client/t1/alice/0000000000000007/1000");
	second = shown;
	assert_refused();
}

/* The first flight of a client of OpenSSL without a key. */
static size_t hello_of(int version, const char *groups, uint8_t *ret, size_t size)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	BIO *out = BIO_new(BIO_s_mem());
	SSL *ssl;
	int n;

	assert_true(SSL_CTX_set_max_proto_version(ctx, version));
	assert_true(SSL_CTX_set1_groups_list(ctx, groups));
	ssl = SSL_new(ctx);
	SSL_set_bio(ssl, BIO_new(BIO_s_mem()), out);
	assert_int_equal(SSL_connect(ssl), -1);
	n = BIO_read(out, ret, (int)size);
	assert_true(n > 0);
	SSL_free(ssl);
	SSL_CTX_free(ctx);
	return (size_t)n;
}

static void other_protocols_are_refused(void **state)
{
	static const uint8_t plain[] = "GET / HTTP/1.0\r\n\r\n", zeros[16];
	uint8_t hello[2048];
	bool identity;
	size_t len;

	assert_int_equal(accept_bytes(plain, sizeof(plain) - 1, &identity), -EPROTO);
	assert_false(identity);
	assert_int_equal(accept_bytes(zeros, sizeof(zeros), &identity), -EPROTO);
	assert_false(identity);
	len = hello_of(TLS1_2_VERSION, "X25519", hello, sizeof(hello));
	assert_int_equal(accept_bytes(hello, len, &identity), -EPROTO);
	assert_false(identity);
	/* TLS 1.3 without a key, which other servers would answer with a certificate. */
	len = hello_of(TLS1_3_VERSION, "X25519", hello, sizeof(hello));
	assert_int_equal(accept_bytes(hello, len, &identity), -EPROTO);
	assert_false(identity);
	/* One that would need a second ClientHello. */
	len = hello_of(TLS1_3_VERSION, "P-384:X25519", hello, sizeof(hello));
	assert_int_equal(accept_bytes(hello, len, &identity), -EPROTO);
	assert_false(identity);
}

/* ---- strange first bytes ----------------------------------------------------------------------- */

static void a_long_hello_costs_no_memory(void **state)
{
	static const uint8_t longest[] = { 0x16, 3, 1, 0x40, 0, 1, 1, 0xff, 0xff };
	static const uint8_t part[] = { 0x16, 3, 1, 0, 1, 1, 0x16, 3, 1, 0 };
	bool identity;

	assert_int_equal(accept_bytes(longest, sizeof(longest), &identity), -EPROTO);
	assert_non_null(strstr(mc_err_detail(-EPROTO), "too long"));
	assert_int_equal(accept_bytes(part, sizeof(part), &identity), -EPROTO);
	assert_non_null(strstr(mc_err_detail(-EPROTO), "not in one record"));
}

static size_t put16(uint8_t *at, size_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
	return 2;
}

/* A ClientHello with @n identities @text. */
static size_t hello_with(const char *text, unsigned n, uint8_t *ret)
{
	static const uint8_t fixed[] = {
		0, 2, 0x13, 1, 1, 0,			/* suites, compression */
		0, 0,					/* length of extensions */
		0, 0x2b, 0, 3, 2, 3, 4,			/* versions */
		0, 0x0a, 0, 4, 0, 2, 0, 0x1d,		/* groups */
		0, 0x0d, 0, 4, 0, 2, 4, 3,		/* signatures */
		0, 0x2d, 0, 2, 1, 1,			/* psk_dhe_ke */
		0, 0x33, 0, 38, 0, 36, 0, 0x1d, 0, 32, 9,	/* a key share, the rest of which is zero */
	};
	size_t head = 9, at = head + 2 + 32 + 1, extensions, psk, len = strlen(text);

	memset(ret, 0, 16384);
	ret[0] = 0x16;
	ret[1] = ret[2] = ret[head] = ret[head + 1] = 3;
	ret[5] = 1;
	memcpy(ret + at, fixed, sizeof(fixed));
	extensions = at + 6;
	at += sizeof(fixed) + 31;
	at += put16(ret + at, 41);
	psk = at;
	at += 2;
	at += put16(ret + at, n * (2 + len + 4));
	for (unsigned i = 0; i < n; i++) {
		at += put16(ret + at, len);
		memcpy(ret + at, text, len);
		at += len + 4;
	}
	at += put16(ret + at, n * 33u);
	for (unsigned i = 0; i < n; i++, at += 33)
		ret[at] = 32;
	put16(ret + psk, at - psk - 2);
	put16(ret + extensions, at - extensions - 2);
	put16(ret + 7, at - head);
	put16(ret + 3, at - 5);
	return at;
}

static void only_the_first_of_many_identities_is_asked_for(void **state)
{
	static const char *const texts[] = { "x", "mc1/test/client/t1/alice/0000000000000007/2000" };
	static uint8_t hello[16384];
	bool identity;

	for (unsigned i = 0; i < 2; i++) {
		identified = 0;
		assert_true(accept_bytes(hello, hello_with(texts[i], i ? 40 : 90, hello), &identity) < 0);
		assert_false(identity);
		assert_int_equal(identified, 1);
	}
}

/* ---- bytes on their way ------------------------------------------------------------------------ */

static void a_handshake_that_is_sent_again_proves_nothing(void **state)
{
	uint8_t *copy;
	bool identity;
	size_t len;
	int r;

	assert_int_equal(pair_connect(1000), 0);
	assert_works(&a, &b);
	len = pair->up.len;
	copy = malloc(len);
	memcpy(copy, pair->up.bytes, len);
	for (size_t n = 0; n <= len; n += n < len - 8 ? 7 : 1) {
		r = accept_bytes(copy, n, &identity);
		assert_true(r < 0);
		assert_false(identity);
	}
	free(copy);
}

/* Exchange "hello" and the end with a changed or cut connection.  True: all arrived, and the ends too. */
static bool try_exchange(void)
{
	char in[16] = "", byte;
	ssize_t n;
	bool all = true;

	if (pair_connect(50) < 0)
		return false;
	for (int up = 1; up >= 0; up--) {
		struct mc_stream *from = up ? &a : &b, *to = up ? &b : &a;

		/* The accepting side sends nothing before it has accepted. */
		(void)put(from, "hello", 5);
		mc_stream_shutdown(from, SHUT_WR);
		n = get(to, in, sizeof(in));
		if (n <= 0) {
			assert_int_not_equal(n, 0);
			return false;
		}
		assert_int_equal(n, 5);
		assert_memory_equal(in, "hello", 5);
		n = get(to, &byte, 1);
		assert_true(n <= 0);
		all &= n == 0;
	}
	return all;
}

static void a_changed_byte_is_an_error(void **state)
{
	size_t up, down, passed = 0;

	assert_true(try_exchange());
	up = pair->up.len;
	down = pair->down.len;
	for (size_t at = 0; at < up; at += 3) {
		flip_up = at;
		passed += try_exchange();
	}
	flip_up = MEMORY_NOWHERE;
	for (size_t at = 0; at < down; at += 2) {
		flip_down = at;
		passed += try_exchange();
	}
	/* Nothing protects the version in the headers of the two first records of each side, and it has no meaning. */
	assert_true(passed <= 8);
}

static void a_cut_is_no_end(void **state)
{
	size_t up, down;

	assert_true(try_exchange());
	up = pair->up.len;
	down = pair->down.len;
	for (size_t at = 0; at < up; at += at < up - 30 ? 11 : 1) {
		cut_up = at;
		assert_false(try_exchange());
	}
	cut_up = MEMORY_NOWHERE;
	for (size_t at = 0; at < down; at += at < down - 30 ? 11 : 1) {
		cut_down = at;
		assert_false(try_exchange());
	}
}

/* ---- peers that stand still -------------------------------------------------------------------- */

static void connecting_ends_at_its_deadline(void **state)
{
	uint64_t begun = mc_now_ns();

	mute = true;
	assert_int_equal(pair_connect(20), -ETIMEDOUT);
	done(NULL);
	dribble = true;
	assert_int_equal(pair_connect(20), -ETIMEDOUT);
	assert_true(mc_now_ns() - begun >= 40 * MC_NS_PER_MS);
	assert_true(mc_now_ns() - begun < 5000 * MC_NS_PER_MS);
}

static void half_handshakes_cost_little(void **state)
{
	enum { MANY = 2000 };
	static struct mc_stream raw[MANY], half[MANY];
	static uint8_t hello[16384];
	size_t len = hello_with("x", 1, hello), before, each;

	assert_int_equal(pair_connect(1000), 0);
	assert_works(&a, &b);
	before = ssl_bytes;
	for (unsigned i = 0; i < MANY; i++) {
		struct memory_pair *mine = pair;

		assert_int_equal(mc_net_connect(memory_net(), "memory", 0, &raw[i]), 0);
		assert_int_equal(mc_listener_accept(&listener, &half[i]), 0);
		memory_pipe_put(&pair->up, hello, len - 1);
		assert_int_equal(mc_stream_peek(&half[i]), -EAGAIN);
		assert_int_equal(mc_stream_pending(&half[i]), 0);
		pair = mine;
	}
	each = (ssl_bytes - before) / MANY;
	print_message("%zu bytes for each half handshake\n", each);
	assert_in_range(each, 1000, 80000);
	assert_works(&a, &b);
	assert_works(&b, &a);
	for (unsigned i = 0; i < MANY; i++) {
		mc_stream_close(&half[i]);
		mc_stream_close(&raw[i]);
	}
}

/* A connection without a byte from its peer: the result of accept. */
static int accept_silent(struct mc_stream *ret_raw, struct mc_stream *ret)
{
	assert_int_equal(mc_net_connect(memory_net(), "memory", 0, ret_raw), 0);
	return mc_listener_accept(&listener, ret);
}

static void the_oldest_half_handshake_gives_way(void **state)
{
	static struct mc_stream raw[MC_TLS_UNPROVEN_MAX + 1], half[MC_TLS_UNPROVEN_MAX + 1];
	unsigned n = 0;

	/* The listener's limit follows that of the descriptors. */
	for (; n <= MC_TLS_UNPROVEN_MAX / 2 && (!n || mc_stream_peek(&half[0]) == -EAGAIN); n++)
		assert_int_equal(accept_silent(&raw[n], &half[n]), 0);
	assert_in_range(n, 9, MC_TLS_UNPROVEN_MAX / 2 + 1);
	assert_int_equal(mc_stream_peek(&half[0]), -ECONNRESET);
	assert_int_equal(mc_stream_peek(&half[1]), -EAGAIN);
	assert_int_equal(pair_connect(1000), 0);
	assert_int_equal(mc_stream_peek(&b), -EAGAIN);
	assert_int_equal(accept_silent(&raw[n], &half[n]), 0);
	n++;
	assert_works(&a, &b);
	while (n--) {
		mc_stream_close(&half[n]);
		mc_stream_close(&raw[n]);
	}
}

static void an_address_with_too_many_handshakes_is_refused(void **state)
{
	struct mc_stream raw, s;
	unsigned n = 0;
	int r;

	memory_net_name("10.0.0.1:5");
	while ((r = accept_silent(&raw, &s)) == 0 && n++ < 4 * MC_TLS_BURST) {
		mc_stream_close(&s);
		mc_stream_close(&raw);
	}
	assert_int_equal(r, -EAGAIN);
	assert_true(n >= MC_TLS_BURST);
	assert_int_not_equal(mc_stream_peek(&raw), -EAGAIN);
	mc_stream_close(&raw);
	memory_net_name("10.0.0.2:5");
	assert_int_equal(pair_connect(1000), 0);
	memory_net_name("memory");
}

static void an_idle_connection_keeps_no_buffers(void **state)
{
	size_t before = ssl_bytes, each;

	assert_int_equal(pair_connect(1000), 0);
	assert_works(&a, &b);
	assert_works(&b, &a);
	each = (ssl_bytes - before) / 2;
	print_message("%zu bytes for each side of an idle connection\n", each);
	assert_in_range(each, 0, 20000);	/* 0: the keys are in memory of another library */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TLS(a_right_key_gives_its_rights),
		TLS(a_peer_without_a_right_key_is_refused),
		TLS(a_second_credential_is_shown_once),
		TLS(other_protocols_are_refused),
		TLS(a_long_hello_costs_no_memory),
		TLS(only_the_first_of_many_identities_is_asked_for),
		TLS(a_handshake_that_is_sent_again_proves_nothing),
		TLS(a_changed_byte_is_an_error),
		TLS(a_cut_is_no_end),
		TLS(connecting_ends_at_its_deadline),
		TLS(openssl_keeps_no_key_of_a_peer),
		TLS(half_handshakes_cost_little),
		TLS(the_oldest_half_handshake_gives_way),
		TLS(an_address_with_too_many_handshakes_is_refused),
		TLS(an_idle_connection_keeps_no_buffers),
	};

	/* Before OpenSSL allocates anything. */
	if (!CRYPTO_set_mem_functions(ssl_malloc, ssl_realloc, ssl_free))
		return 1;
	return cmocka_run_group_tests(tests, setup, teardown);
}
