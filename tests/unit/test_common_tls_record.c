/* SPDX-License-Identifier: Apache-2.0
 * test_common_tls_record.c - records of TLS, in memory: changes of keys, records that our side does not send, OpenSSL
 * as the peer, and bytes of every size. */
#include <config.h>

#include "tests/unit/test_common_tls_pair.h"

#include <openssl/core_names.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <stdio.h>

/* ---- changes of keys --------------------------------------------------------------------------- */

static int request_update(struct mc_stream *s)
{
	struct tls_stream *t = s->state;
	int r;

	mc_mutex_lock(&t->lock);
	r = mc_tls_update(t, true);
	mc_mutex_unlock(&t->lock);
	return r;
}

static void a_peer_can_ask_for_new_keys(void **state)
{
	assert_int_equal(pair_connect(1000), 0);
	assert_works(&a, &b);
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(request_update(i % 2 ? &a : &b), 0);
		assert_works(&a, &b);
		assert_works(&b, &a);
	}
}

static void a_flood_of_new_keys_ends_the_stream(void **state)
{
	char c;

	assert_int_equal(pair_connect(1000), 0);
	assert_works(&a, &b);
	for (unsigned i = 0; i < 2000; i++)
		assert_int_equal(request_update(&a), 0);
	assert_int_equal(get(&b, &c, 1), -EPROTO);
	assert_non_null(strstr(mc_err_detail(-EPROTO), "changes of keys"));
	assert_int_equal(get(&b, &c, 1), -EPROTO);
	assert_int_equal(mc_stream_peek(&b), -EPROTO);
	assert_int_equal(put(&b, "x", 1), -EPROTO);
}

static void new_keys_for_a_full_stream_stop_no_receiver(void **state)
{
	static uint8_t block[20000], in[20000];
	struct tls_stream *t;
	size_t sent = 0, got = 0;
	ssize_t n;

	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = (uint8_t)(i * 7);
	for (size_t room = 0; room < 60; room += 7) {
		assert_int_equal(pair_connect(1000), 0);
		assert_works(&a, &b);
		assert_works(&b, &a);
		t = b.state;
		t->rekey_at = t->tx.seq;
		pair->down.limit = pair->down.len - pair->down.read + room;
		assert_int_equal(put(&b, block, sizeof(block)), -EAGAIN);
		assert_true(t->tx.seq <= 2);
		t->rekey_at = 1u << 24;
		/* The other direction works. */
		assert_int_equal(request_update(&a), 0);
		assert_works(&a, &b);
		pair->down.limit = SIZE_MAX;
		for (sent = got = 0; sent < sizeof(block); sent += (size_t)n) {
			n = put(&b, block + sent, sizeof(block) - sent);
			assert_true(n > 0);
		}
		while (got < sent) {
			n = get(&a, in + got, sizeof(in) - got);
			assert_true(n > 0);
			got += (size_t)n;
		}
		assert_memory_equal(in, block, sizeof(block));
		assert_works(&b, &a);
	}
}

/* ---- records that our side does not send -------------------------------------------------------- */

static uint8_t traffic[32];	/* secret of the connecting side's records */

/* HKDF-Expand-Label of RFC 8446, 7.1. */
static void expand(const char *label, uint8_t *ret, size_t len)
{
	EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
	EVP_KDF_CTX *ctx = EVP_KDF_CTX_new(kdf);
	int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY, n;
	char info[32];

	n = snprintf(info, sizeof(info), "%c%c%ctls13 %s%c", 0, (int)len, (int)strlen(label) + 6, label, 0);
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)(uintptr_t)"SHA256", 0),
		OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, traffic, sizeof(traffic)),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info, (size_t)n),
		OSSL_PARAM_construct_end(),
	};
	assert_int_equal(EVP_KDF_derive(ctx, ret, len, params), 1);
	EVP_KDF_CTX_free(ctx);
	EVP_KDF_free(kdf);
}

/* Send the record with number @seq of the connecting side. */
static void send_record(uint8_t seq, uint8_t type, const uint8_t *data, uint8_t len)
{
	uint8_t key[16], iv[12], record[64] = { 0x17, 3, 3, 0, (uint8_t)(len + 17) }, plain[32];
	EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
	int n;

	expand("key", key, sizeof(key));
	expand("iv", iv, sizeof(iv));
	iv[11] ^= seq;
	if (len)
		memcpy(plain, data, len);
	plain[len] = type;
	assert_true(EVP_EncryptInit_ex(c, EVP_aes_128_gcm(), NULL, key, iv));
	assert_true(EVP_EncryptUpdate(c, NULL, &n, record, 5));
	assert_true(EVP_EncryptUpdate(c, record + 5, &n, plain, len + 1));
	assert_true(EVP_EncryptFinal_ex(c, record + 5 + n, &n));
	assert_true(EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_GET_TAG, 16, record + 5 + len + 1));
	EVP_CIPHER_CTX_free(c);
	memory_pipe_put(&pair->up, record, 5 + len + 17u);
}

static void connect_with_secret(void)
{
	assert_int_equal(pair_connect(1000), 0);
	assert_int_equal(mc_stream_peek(&b), -EAGAIN);
	memcpy(traffic, ((struct tls_stream *)b.state)->rx.secret, sizeof(traffic));
}

static void a_part_of_a_message_ends_the_stream(void **state)
{
	static const uint8_t header[] = { SSL3_MT_KEY_UPDATE, 0, 0, 1 };
	char in[4];

	connect_with_secret();
	send_record(0, 0x17, (const uint8_t *)"abc", 3);
	assert_int_equal(get(&b, in, sizeof(in)), 3);
	assert_memory_equal(in, "abc", 3);
	send_record(1, 0x16, header, sizeof(header));
	assert_int_equal(get(&b, in, sizeof(in)), -EPROTO);
	assert_int_equal(put(&b, "x", 1), -EPROTO);
	assert_int_equal(get(&b, in, sizeof(in)), -EPROTO);
}

static void empty_records_end_the_stream(void **state)
{
	char c;

	connect_with_secret();
	for (unsigned i = 0; i < 40; i++)
		send_record((uint8_t)i, 0x17, NULL, 0);
	assert_int_equal(get(&b, &c, 1), -EPROTO);
	assert_int_equal(mc_stream_pending(&b), 0);
}

/* ---- OpenSSL as the peer ----------------------------------------------------------------------- */

/* Give the bytes that OpenSSL has written to b, and those of b to OpenSSL. */
static void openssl_pump(SSL *ssl, struct mc_stream *raw)
{
	uint8_t buf[4096];
	int n;

	while ((n = BIO_read(SSL_get_wbio(ssl), buf, sizeof(buf))) > 0)
		assert_int_equal(put(raw, buf, (size_t)n), n);
	while ((n = (int)get(raw, buf, sizeof(buf))) > 0)
		assert_int_equal(BIO_write(SSL_get_rbio(ssl), buf, n), n);
}

static void openssl_connect(SSL *ssl)
{
	int r;

	for (unsigned i = 0; (r = SSL_connect(ssl)) != 1; i++) {
		assert_int_equal(SSL_get_error(ssl, r), SSL_ERROR_WANT_READ);
		assert_true(i < 10);
		openssl_pump(ssl, &a);
		(void)mc_stream_peek(&b);
	}
	openssl_pump(ssl, &a);
}

static void records_of_openssl_are_understood(void **state)
{
	static uint8_t block[50000], in[50000];
	struct tls_stream fake = { .tls = tls, .credential = &shown };
	SSL *ssl = SSL_new(tls->ctx);
	size_t got = 0, all = 0;
	ssize_t n;

	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = (uint8_t)(i * 11 + i / 251);
	assert_int_equal(mc_net_connect(memory_net(), "memory", 0, &a), 0);
	assert_int_equal(mc_listener_accept(&listener, &b), 0);
	SSL_set_app_data(ssl, &fake);
	SSL_set_bio(ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
	openssl_connect(ssl);
	assert_int_equal(mc_stream_peek(&b), -EAGAIN);
	assert_non_null(principal(&b));
	for (unsigned round = 0; round < 6; round++) {
		/* New keys of each side, asked for by the other one. */
		if (round > 1) {
			assert_int_equal(SSL_key_update(ssl, round % 2 ? SSL_KEY_UPDATE_REQUESTED :
							     SSL_KEY_UPDATE_NOT_REQUESTED), 1);
			assert_int_equal(round % 2 ? 0 : request_update(&b), 0);
		}
		assert_int_equal(SSL_write_ex(ssl, block, sizeof(block), &all), 1);
		openssl_pump(ssl, &a);
		for (got = 0; got < all; got += (size_t)n) {
			n = get(&b, in + got, sizeof(in) - got);
			assert_true(n > 0);
		}
		assert_memory_equal(in, block, all);
		memset(in, 0, sizeof(in));
		assert_int_equal(put(&b, block, sizeof(block)), sizeof(block));
		openssl_pump(ssl, &a);
		for (got = 0; got < sizeof(block); got += all)
			assert_int_equal(SSL_read_ex(ssl, in + got, sizeof(in) - got, &all), 1);
		assert_memory_equal(in, block, sizeof(block));
	}
	assert_true(SSL_shutdown(ssl) >= 0);
	openssl_pump(ssl, &a);
	assert_int_equal(get(&b, in, 1), 0);
	mc_stream_shutdown(&b, SHUT_WR);
	openssl_pump(ssl, &a);
	assert_int_equal(SSL_shutdown(ssl), 1);
	SSL_free(ssl);
}

/* ---- plain bytes ------------------------------------------------------------------------------- */

static bool travels_as_it_is(struct memory_pipe *p, struct mc_stream *from, struct mc_stream *to)
{
	static const char text[] = "a value that a host on the path can read";
	char in[sizeof(text)];

	assert_int_equal(put(from, text, sizeof(text)), sizeof(text));
	assert_int_equal(get(to, in, 3), 3);
	assert_int_equal(mc_stream_peek(to), 1);
	assert_int_equal(get(to, in + 3, sizeof(in) - 3), sizeof(in) - 3);
	assert_memory_equal(in, text, sizeof(text));
	assert_int_equal(mc_stream_pending(to), 0);
	return memmem(p->bytes, p->len, text, sizeof(text)) != NULL;
}

/* The bytes are plain only if both sides want that, and the peers have proved their identities in any case. */
static void bytes_are_plain_if_both_sides_agree(void **state)
{
	struct mc_tls_conf conf = {
		.inner = memory_net(), .identify = net_identify, .present = net_present, .service = "test",
	};
	struct mc_tls *side[2];		/* [1]: wants plain bytes */
	struct mc_tls *old = tls;
	struct mc_listener old_listener = listener;
	char byte;

	assert_int_equal(mc_tls_new(&conf, &side[0]), 0);
	conf.plain_data = true;
	assert_int_equal(mc_tls_new(&conf, &side[1]), 0);
	for (unsigned i = 0; i < 4; i++) {
		bool both = i == 3;

		assert_int_equal(mc_net_listen(mc_tls_net(side[i / 2]), "memory", 1, &listener), 0);
		tls = side[i % 2];
		assert_int_equal(pair_connect(1000), 0);
		/* These bytes arrive together with the end of the handshake. */
		assert_int_equal(travels_as_it_is(&pair->up, &a, &b), both);
		assert_string_equal(principal(&b)->name, "alice");
		assert_int_equal(travels_as_it_is(&pair->down, &b, &a), both);
		mc_stream_shutdown(&a, SHUT_WR);
		assert_int_equal(get(&b, &byte, 1), 0);
		show("mc1/test/admin/t1/alice/0000000000000007/2000");
		shown.key[0] ^= 1;
		assert_int_equal(pair_connect(1000), -EACCES);
		begin(NULL);
		done(NULL);
		mc_listener_close(&listener);
	}
	mc_tls_free(side[0]);
	mc_tls_free(side[1]);
	tls = old;
	listener = old_listener;
}

/* ---- every size -------------------------------------------------------------------------------- */

static uint32_t draw(uint32_t *seed, uint32_t below)
{
	*seed = *seed * 1664525u + 1013904223u;
	return (*seed >> 8) % below;
}

static uint32_t draw_size(uint32_t *seed)
{
	static const uint32_t below[] = { 4, 40, 300, 5000, 17000, 90000 };

	return draw(seed, below[draw(seed, 6)]);
}

/* Split @len bytes at @p into up to 4 parts. */
static int draw_parts(uint32_t *seed, uint8_t *p, size_t len, struct iovec iov[4])
{
	int n = 0;

	for (; n < 3; n++) {
		iov[n] = (struct iovec){ p, draw(seed, (uint32_t)len + 1) };
		p += iov[n].iov_len;
		len -= iov[n].iov_len;
	}
	iov[n++] = (struct iovec){ p, len };
	return n;
}

static void bytes_of_every_size_arrive_in_order(void **state)
{
	enum { ALL = 3000000 };
	uint8_t *from = malloc(ALL), *to = malloc(ALL);
	struct iovec iov[4];
	size_t sent, got;
	uint32_t seed = 7;
	ssize_t n;

	for (size_t i = 0; i < ALL; i++)
		from[i] = (uint8_t)draw(&seed, 256);
	assert_int_equal(pair_connect(1000), 0);
	assert_works(&a, &b);
	for (sent = got = 0; got < ALL;) {
		size_t some = draw_size(&seed), kept = mc_stream_repeat(&a);

		/* The next send has to begin with the bytes of records that were not sent. */
		some = some > kept ? some : kept;
		some = some < ALL - sent ? some : ALL - sent;
		pair->up.limit = pair->up.len - pair->up.read + draw_size(&seed);
		n = some ? mc_stream_send(&a, iov, draw_parts(&seed, from + sent, some, iov)) : 0;
		assert_true(n >= 0 || n == -EAGAIN);
		sent += n > 0 ? (size_t)n : 0;
		some = draw_size(&seed) + 1u;
		some = some < ALL - got ? some : ALL - got;
		if (draw(&seed, 4) == 0)
			assert_true(mc_stream_peek(&b) == 1 || mc_stream_pending(&b) == 0);
		n = mc_stream_recv(&b, iov, draw_parts(&seed, to + got, some, iov));
		assert_true(n >= 0 || n == -EAGAIN);
		got += n > 0 ? (size_t)n : 0;
	}
	assert_memory_equal(from, to, ALL);
	pair->up.limit = SIZE_MAX;
	assert_works(&a, &b);
	free(from);
	free(to);
}

/* ---- libraries --------------------------------------------------------------------------------- */

static size_t from_hex(const char *hex, uint8_t *ret, size_t size)
{
	size_t len;

	assert_true(OPENSSL_hexstr2buf_ex(ret, size, &len, hex, '\0'));
	return len;
}

/* Test case 4 of the specification of GCM (McGrew and Viega, 2005). */
static void assert_gcm_is_right(const struct mc_gcm_ops *ops)
{
	uint8_t key[16], nonce[12], aad[20], plain[60], cipher[60], tag[16], out[60], got[16];
	struct mc_gcm *g = ops->make(true), *back = ops->make(false);

	from_hex("feffe9928665731c6d6a8f9467308308", key, sizeof(key));
	from_hex("cafebabefacedbaddecaf888", nonce, sizeof(nonce));
	from_hex("feedfacedeadbeeffeedfacedeadbeefabaddad2", aad, sizeof(aad));
	from_hex("d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16a"
		 "edf5aa0de657ba637b39", plain, sizeof(plain));
	from_hex("42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac84aa051ba3"
		 "0b396a0aac973d58e091", cipher, sizeof(cipher));
	from_hex("5bc94fbc3221a5db94fae95ae7121a47", tag, sizeof(tag));
	assert_true(ops->key(g, key) && ops->key(back, key));
	for (unsigned at = 0; at <= sizeof(plain); at++) {
		assert_true(ops->begin(g, nonce, aad, sizeof(aad)));
		assert_true(ops->crypt(g, out, plain, at) && ops->crypt(g, out + at, plain + at, sizeof(plain) - at));
		assert_memory_equal(out, cipher, sizeof(cipher));
		assert_true(ops->seal(g, got));
		assert_memory_equal(got, tag, sizeof(tag));
		for (unsigned wrong = 0; wrong < 2; wrong++) {
			memcpy(out, cipher, sizeof(out));
			out[at % sizeof(out)] ^= (uint8_t)wrong;
			assert_true(ops->begin(back, nonce, aad, sizeof(aad)));
			assert_true(ops->crypt(back, out, out, sizeof(out)));
			assert_int_equal(ops->verify(back, tag), !wrong);
		}
	}
	ops->free(g);
	ops->free(back);
}

static void libraries_compute_the_same(void **state)
{
	assert_gcm_is_right(mc_gcm_openssl());
	if (mc_gcm_ipsec())
		assert_gcm_is_right(mc_gcm_ipsec());
	print_message("records with %s\n", mc_gcm_best()->name);
}

static int setup_openssl(void **state)
{
	int r = setup(state);

	if (r == 0)
		tls->gcm = mc_gcm_openssl();
	return r;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TLS(a_peer_can_ask_for_new_keys),
		TLS(a_flood_of_new_keys_ends_the_stream),
		TLS(new_keys_for_a_full_stream_stop_no_receiver),
		TLS(a_part_of_a_message_ends_the_stream),
		TLS(empty_records_end_the_stream),
		TLS(records_of_openssl_are_understood),
		TLS(bytes_are_plain_if_both_sides_agree),
		TLS(bytes_of_every_size_arrive_in_order),
		cmocka_unit_test(libraries_compute_the_same),
	};
	int failed = cmocka_run_group_tests_name("OpenSSL's ciphers", tests, setup_openssl, teardown);

	return failed + cmocka_run_group_tests_name("the best ciphers", tests, setup, teardown);
}
