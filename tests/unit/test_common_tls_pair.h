/* SPDX-License-Identifier: Apache-2.0
 * test_common_tls_pair.h - a connection of TLS in memory, for the tests of its handshake and of its records. */
#ifndef TEST_COMMON_TLS_PAIR_H
#define TEST_COMMON_TLS_PAIR_H

#include "common/security/tls_i.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/err.h"
#include "common/log.h"
#include "common/sys/clock.h"
#include "tests/lib/memory_net.h"

#define NOW_S 1000u

static const uint8_t secret[MC_KEY_LEN] = "a fixed secret, for tests alone";
static struct mc_credential shown;	/* the connecting side presents it */
static struct mc_credential second;	/* ... and this one when it has failed; without a text: none */
static unsigned identified;		/* calls of net_identify() */
static struct mc_tls *tls;
static struct mc_listener listener;
static struct mc_stream a, b;		/* connecting and accepting side */
static struct memory_pair *pair;	/* of a and b */
static size_t flip_up, flip_down, cut_up, cut_down;	/* of the next pair */
static bool mute, dribble;

static int net_identify(void *arg, const char *text, size_t len, uint8_t key[MC_KEY_LEN], struct mc_principal *ret)
{
	char copy[MC_IDENTITY_MAX + 1];
	struct mc_identity id;
	int r = mc_identity_parse(text, len, &id);

	identified++;
	if (r == 0)
		r = mc_identity_check_time(&id, NOW_S);
	if (r == 0 && strcmp(id.cluster, "test"))
		r = mc_fail(-EACCES, "another pool");
	if (r < 0)
		return r;
	memcpy(copy, text, len);
	copy[len] = '\0';
	mc_key_credential(secret, copy, key);
	mc_identity_principal(&id, ret);
	return 0;
}

static int net_present(void *arg, const char *addr, uint64_t deadline, struct mc_credential *ret)
{
	*ret = shown;
	return 0;
}

static bool net_failed(void *arg, const char *addr, const struct mc_credential *c)
{
	assert_string_equal(c->text, shown.text);
	if (!second.text[0])
		return false;
	shown = second;
	second.text[0] = '\0';
	mc_stream_close(&b);
	return true;
}

static void show(const char *text)
{
	memset(&shown, 0, sizeof(shown));
	strcpy(shown.text, text);
	(void)mc_identity_parse(text, strlen(text), &shown.id);
	mc_key_credential(secret, text, shown.key);
}

static void pair_before(struct memory_pair *p)
{
	pair = p;
	p->up.flip_at = flip_up;
	p->down.flip_at = flip_down;
	p->up.cut_at = cut_up;
	p->down.cut_at = cut_down;
	p->down.mute = mute;
}

/* The connecting side waits: let the accepting side work. */
static void pair_idle(void)
{
	static const uint8_t record[] = { 0x16, 3, 3, 0x40, 0 };

	if (dribble) {
		/* So slowly that no record is complete before the deadline. */
		(void)usleep(100);
		pair->down.mute = false;
		memory_pipe_put(&pair->down, &record[pair->down.len < sizeof(record) ? pair->down.len : 3], 1);
		return;
	}
	if (!b.ops)
		(void)mc_listener_accept(&listener, &b);
	if (b.ops && mc_stream_peek(&b) <= 0 && ((struct tls_stream *)b.state)->failed)
		mc_stream_shutdown(&b, SHUT_RDWR);
}

static int setup(void **state)
{
	const struct mc_tls_conf conf = {
		.inner = memory_net(), .identify = net_identify, .present = net_present, .failed = net_failed,
		.service = "test",
	};

	(void)mc_log_open(&(struct mc_log_conf){ .levels = "err" });
	memory_net_hooks(pair_before, pair_idle);
	return mc_tls_new(&conf, &tls) < 0 || mc_net_listen(mc_tls_net(tls), "memory", 1, &listener) < 0;
}

static int teardown(void **state)
{
	mc_listener_close(&listener);
	mc_tls_free(tls);
	return 0;
}

static int begin(void **state)
{
	flip_up = flip_down = cut_up = cut_down = MEMORY_NOWHERE;
	mute = dribble = false;
	second.text[0] = '\0';
	show("mc1/test/client/t1/alice/0000000000000007/2000");
	return 0;
}

static int done(void **state)
{
	mc_stream_close(&a);
	mc_stream_close(&b);
	pair = NULL;
	return 0;
}

/* Make a and b; the result of the connecting side. */
static int pair_connect(unsigned ms)
{
	struct mc_stream s;
	int r;

	done(NULL);
	r = mc_net_connect(mc_tls_net(tls), "memory", mc_deadline_ms(ms), &s);
	if (r == 0)
		a = s;
	return r;
}

static const struct mc_principal *principal(const struct mc_stream *s)
{
	struct mc_stream_peer peer;

	mc_stream_peer(s, &peer);
	return peer.principal;
}

static ssize_t put(struct mc_stream *s, const void *p, size_t len)
{
	const struct iovec iov = { (void *)(uintptr_t)p, len };

	return mc_stream_send(s, &iov, 1);
}

static ssize_t get(struct mc_stream *s, void *p, size_t len)
{
	const struct iovec iov = { p, len };

	return mc_stream_recv(s, &iov, 1);
}

static void assert_works(struct mc_stream *from, struct mc_stream *to)
{
	char in[16];

	assert_int_equal(put(from, "hello", 5), 5);
	assert_int_equal(get(to, in, sizeof(in)), 5);
	assert_memory_equal(in, "hello", 5);
	assert_int_equal(get(to, in, sizeof(in)), -EAGAIN);
}

#define TLS(test) cmocka_unit_test_setup_teardown(test, begin, done)

#endif
