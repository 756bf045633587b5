/* SPDX-License-Identifier: Apache-2.0
 * fuzz_common_tls.c - the accepting side of TLS with arbitrary bytes.  The first byte chooses: 's' feeds the bytes to a
 * stranger's stream; else a peer with a key is connected, and the input is a list of its actions and of changes to the
 * bytes on their way. */
#include <config.h>

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/log.h"
#include "common/security/tls_i.h"
#include "common/sys/clock.h"
#include "tests/lib/memory_net.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TEXT "mc1/test/client/t1/alice/0000000000000007/2000"

static const uint8_t secret[MC_KEY_LEN] = "a fixed secret, for tests alone";
static struct mc_listener listener;
static struct mc_stream accepted;
static struct memory_pair *pair;
static bool may_prove;		/* the peer has the key */

static int net_identify(void *arg, const char *text, size_t len, uint8_t key[MC_KEY_LEN], struct mc_principal *ret)
{
	struct mc_identity id;
	int r = mc_identity_parse(text, len, &id);

	if (r < 0)
		return r;
	mc_key_credential(secret, TEXT, key);
	/* A stranger may send the right text, and has another key. */
	key[0] ^= !may_prove;
	mc_identity_principal(&id, ret);
	return 0;
}

static int net_present(void *arg, const char *addr, uint64_t deadline, struct mc_credential *ret)
{
	strcpy(ret->text, TEXT);
	mc_key_credential(secret, TEXT, ret->key);
	return mc_identity_parse(TEXT, strlen(TEXT), &ret->id);
}

static void pair_before(struct memory_pair *p)
{
	pair = p;
}

static void pair_idle(void)
{
	if (!accepted.ops)
		(void)mc_listener_accept(&listener, &accepted);
	if (accepted.ops && mc_stream_peek(&accepted) != -EAGAIN)
		mc_stream_shutdown(&accepted, SHUT_RDWR);
}

static const struct mc_net *fuzz_net(void)
{
	const struct mc_tls_conf conf = { .inner = memory_net(), .identify = net_identify, .present = net_present };
	static struct mc_tls *tls;

	if (!tls) {
		(void)mc_log_open(&(struct mc_log_conf){ .levels = "err" });
		memory_net_hooks(pair_before, pair_idle);
		if (mc_tls_new(&conf, &tls) < 0 || mc_net_listen(mc_tls_net(tls), "memory", 1, &listener) < 0)
			abort();
	}
	return mc_tls_net(tls);
}

/* All that the stream returns now; each byte has to continue the numbers of the peer. */
static void receive(struct mc_stream *s, uint8_t *next)
{
	uint8_t in[300];
	const struct iovec iov[] = { { in, 1 }, { in + 1, sizeof(in) - 1 } };
	unsigned rounds = 0;
	ssize_t n;

	while ((n = mc_stream_recv(s, iov, 2)) > 0) {
		for (ssize_t i = 0; i < n; i++)
			if (in[i] != (*next)++)
				abort();
		/* The inputs are too short for more rounds. */
		if (++rounds > 100000)
			abort();
	}
	if (n != -EAGAIN && mc_stream_recv(s, iov, 2) > 0)
		abort();
}

static void fuzz_stranger(const uint8_t *data, size_t size)
{
	struct mc_stream raw, s;
	struct mc_stream_peer peer;
	uint8_t next = 0;

	may_prove = false;
	if (mc_net_connect(memory_net(), "memory", 0, &raw) < 0 || mc_listener_accept(&listener, &s) < 0)
		abort();
	/* In two parts, so that OpenSSL waits in the middle. */
	memory_pipe_put(&pair->up, data, size / 2);
	receive(&s, &next);
	memory_pipe_put(&pair->up, data + size / 2, size - size / 2);
	pair->up.ended = true;
	receive(&s, &next);
	mc_stream_peer(&s, &peer);
	if (next || peer.principal || mc_stream_peek(&s) == 1)
		abort();
	mc_stream_close(&s);
	mc_stream_close(&raw);
}

static void send_numbers(struct mc_stream *s, size_t len, uint8_t *next)
{
	uint8_t out[256];
	const struct iovec iov = { out, len < sizeof(out) ? len : sizeof(out) };

	for (size_t i = 0; i < iov.iov_len; i++)
		out[i] = (uint8_t)(*next + i);
	if (mc_stream_send(s, &iov, 1) > 0)
		*next += (uint8_t)iov.iov_len;
}

static void update_keys(struct tls_stream *t, bool ask)
{
	mc_mutex_lock(&t->lock);
	if (t->complete && !t->out && !t->ended)
		(void)mc_tls_update(t, ask);
	mc_mutex_unlock(&t->lock);
}

static void fuzz_step(struct mc_stream *from, struct mc_stream *to, struct memory_pipe *p, uint8_t op, uint8_t value,
		      uint8_t *sent, uint8_t *got)
{
	switch (op % 8) {
	case 0:
	case 1:
		send_numbers(from, value, sent);
		break;
	case 2:
		update_keys(from->state, value & 1);
		break;
	case 3:
		p->flip_at = p->len + value;
		break;
	case 4:		/* bytes of an attacker between the records */
		memory_pipe_put(p, &value, 1);
		break;
	case 5:		/* records that are lost */
		p->mute = value & 1;
		break;
	case 6:		/* all that was sent, again */
		if (p->len < 4096) {
			uint8_t copy[4096];
			size_t len = p->len;

			memcpy(copy, p->bytes, len);
			memory_pipe_put(p, copy, len);
		}
		break;
	default:
		receive(to, got);
	}
}

static void fuzz_peer(const uint8_t *data, size_t size)
{
	uint8_t sent[2] = { 0 }, got[2] = { 0 };
	struct mc_stream s = { .ops = NULL };

	may_prove = true;
	if (mc_net_connect(fuzz_net(), "memory", mc_deadline_ms(60000), &s) < 0 || mc_stream_peek(&accepted) != -EAGAIN)
		abort();
	for (; size >= 2; data += 2, size -= 2) {
		bool up = data[0] & 0x80;

		if (up)
			fuzz_step(&s, &accepted, &pair->up, data[0], data[1], &sent[0], &got[0]);
		else
			fuzz_step(&accepted, &s, &pair->down, data[0], data[1], &sent[1], &got[1]);
	}
	receive(&accepted, &got[0]);
	receive(&s, &got[1]);
	mc_stream_close(&s);
	mc_stream_close(&accepted);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	(void)fuzz_net();
	if (!size)
		return 0;
	if (data[0] == 's')
		fuzz_stranger(data + 1, size - 1);
	else
		fuzz_peer(data + 1, size - 1 < 400 ? size - 1 : 400);
	return 0;
}
