/* SPDX-License-Identifier: Apache-2.0
 * kv_events_zmq.c - a PUB socket of libzmq.
 *
 * libzmq is loaded at run time, because a master that publishes nothing must start without it.  Its
 * interface has not changed since version 3.2; CURVE needs 4.3.
 *
 * With CURVE, libzmq asks a socket of this process about each new subscriber (ZAP, ZeroMQ's RFC 27), which a thread
 * answers.  Only this thread uses that socket. */
#include <config.h>

#include "master/admin/kv_events_zmq.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/log.h"
#include "common/sys/thread.h"

/* constants of zmq.h */
#define ZMQ_PUB 1
#define ZMQ_REP 4
#define ZMQ_DONTWAIT 1
#define ZMQ_SNDMORE 2
#define ZMQ_LINGER 17
#define ZMQ_SNDHWM 23
#define ZMQ_LAST_ENDPOINT 32
#define ZMQ_RCVMORE 13
#define ZMQ_CURVE_SERVER 47
#define ZMQ_CURVE_SECRETKEY 49
#define ZMQ_ZAP_DOMAIN 55
#define ZMQ_ZAP_ENFORCE_DOMAIN 93

#define HIGH_WATER 10000	/* messages queued for a slow subscriber */
#define ENDPOINT_MAX 256
#define LOG "kv-events"
#define ZAP_ENDPOINT "inproc://zeromq.zap.01"
#define ZAP_DOMAIN "kv-events"
#define ZAP_VERSION "1.0"
#define ZAP_PARTS 7u
#define ZAP_PART_MAX 256u

struct mcm_zmq {
	void *lib, *context, *socket;
	char endpoint[ENDPOINT_MAX];
	void *(*ctx_new)(void);
	int (*ctx_term)(void *context);
	void *(*new_socket)(void *context, int type);
	int (*close)(void *socket);
	int (*bind)(void *socket, const char *endpoint);
	int (*set)(void *socket, int option, const void *value, size_t len);
	int (*get)(void *socket, int option, void *value, size_t *len);
	int (*send)(void *socket, const void *part, size_t len, int flags);
	int (*err)(void);
	const char *(*text)(int err);
	/* for CURVE */
	int (*recv)(void *socket, void *part, size_t len, int flags);
	int (*has)(const char *what);
	int (*pair)(char *public, char *secret);
	int (*public_of)(char *public, const char *secret);
	char *(*z85)(char *text, const uint8_t *key, size_t len);
	char public[MCM_KV_CURVE_TEXT];
	char *clients;			/* file of the subscribers' keys */
	void *zap;			/* socket, used by the thread until it ends */
	struct mc_thread thread;
	bool runs;
};

struct symbol {
	const char *name;
	void *at;
};

static int zmq_find(struct mcm_zmq *z, const struct symbol *symbols, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		*(void **)symbols[i].at = dlsym(z->lib, symbols[i].name);
		if (!*(void **)symbols[i].at)
			return mc_fail(-ENOENT, "libzmq has no %s", symbols[i].name);
	}
	return 0;
}

static int zmq_load(struct mcm_zmq *z)
{
	const struct symbol symbols[] = {
		{ "zmq_ctx_new", &z->ctx_new },
		{ "zmq_ctx_term", &z->ctx_term },
		{ "zmq_socket", &z->new_socket },
		{ "zmq_close", &z->close },
		{ "zmq_bind", &z->bind },
		{ "zmq_setsockopt", &z->set },
		{ "zmq_getsockopt", &z->get },
		{ "zmq_send", &z->send },
		{ "zmq_errno", &z->err },
		{ "zmq_strerror", &z->text },
	};

	z->lib = dlopen("libzmq.so.5", RTLD_NOW | RTLD_LOCAL);
	if (!z->lib)
		return mc_fail(-ENOENT, "KV events need libzmq (Debian's package libzmq5): %s", dlerror());
	return zmq_find(z, symbols, sizeof(symbols) / sizeof(symbols[0]));
}

static int zmq_load_curve(struct mcm_zmq *z)
{
	const struct symbol symbols[] = {
		{ "zmq_recv", &z->recv },
		{ "zmq_has", &z->has },
		{ "zmq_curve_keypair", &z->pair },
		{ "zmq_curve_public", &z->public_of },
		{ "zmq_z85_encode", &z->z85 },
	};
	int r = zmq_find(z, symbols, sizeof(symbols) / sizeof(symbols[0]));

	if (r < 0)
		return r;
	return z->has("curve") ? 0 : mc_fail(-ENOTSUP, "this libzmq was built without CURVE: install Debian's libzmq5");
}

/* libzmq's error numbers are those of errno, except for some of its own above them. */
static int zmq_fail(const struct mcm_zmq *z, const char *what, const char *with)
{
	int e = z->err();

	return mc_fail(e > 0 && e < 4096 ? -e : -EIO, "cannot %s %s: %s", what, with, z->text(e));
}

/* ---- CURVE ------------------------------------------------------------------------------------- */

struct zap_request {
	char part[ZAP_PARTS][ZAP_PART_MAX];
	size_t len[ZAP_PARTS];
	unsigned n;		/* parts, also those that were dropped */
};

/* Version, request, domain, address, identity, mechanism, key. */
enum { PART_VERSION, PART_REQUEST, PART_DOMAIN, PART_ADDRESS, PART_IDENTITY, PART_MECHANISM, PART_KEY };

/* False: the socket's context ends. */
static bool zap_receive(struct mcm_zmq *z, struct zap_request *q)
{
	int more = 1, n;
	size_t len;

	q->n = 0;
	while (more) {
		char dropped[ZAP_PART_MAX], *to = q->n < ZAP_PARTS ? q->part[q->n] : dropped;

		n = z->recv(z->zap, to, ZAP_PART_MAX, 0);
		if (n < 0 && z->err() == EINTR)
			continue;
		if (n < 0)
			return false;
		if (q->n < ZAP_PARTS)
			q->len[q->n] = (size_t)n;
		q->n++;
		len = sizeof(more);
		if (z->get(z->zap, ZMQ_RCVMORE, &more, &len) < 0)
			return false;
	}
	return true;
}

static bool zap_part_is(const struct zap_request *q, unsigned i, const char *text)
{
	return q->len[i] == strlen(text) && !memcmp(q->part[i], text, q->len[i]);
}

static bool zap_allows(const struct mcm_zmq *z, const struct zap_request *q)
{
	int r;

	if (q->n != ZAP_PARTS || !zap_part_is(q, PART_VERSION, ZAP_VERSION) ||
	    !zap_part_is(q, PART_DOMAIN, ZAP_DOMAIN) || !zap_part_is(q, PART_MECHANISM, "CURVE") ||
	    q->len[PART_KEY] != MCM_KV_CURVE_KEY)
		return false;
	r = mcm_kv_curve_allows(z->clients, (const uint8_t *)q->part[PART_KEY]);
	if (r < 0)
		mc_warn(LOG, "refusing a subscriber: %s", mc_err_detail(r));
	else if (r == 0)
		mc_warn(LOG, "refusing a subscriber: its key is not in the file peer=%.*s file=%s",
			q->len[PART_ADDRESS] < 64 ? (int)q->len[PART_ADDRESS] : 64, q->part[PART_ADDRESS], z->clients);
	return r > 0;
}

static int zap_answer(struct mcm_zmq *z, const struct zap_request *q, bool allowed)
{
	const struct {
		const void *data;
		size_t len;
	} part[] = {
		{ ZAP_VERSION, strlen(ZAP_VERSION) },
		{ q->part[PART_REQUEST], q->n > PART_REQUEST && q->len[PART_REQUEST] <= ZAP_PART_MAX ?
					  q->len[PART_REQUEST] : 0 },
		{ allowed ? "200" : "400", 3 }, { "", 0 }, { "", 0 }, { "", 0 },
	};
	const unsigned n = sizeof(part) / sizeof(part[0]);

	for (unsigned i = 0; i < n; i++)
		while (z->send(z->zap, part[i].data, part[i].len, i + 1 < n ? ZMQ_SNDMORE : 0) < 0)
			if (z->err() != EINTR)
				return -1;
	return 0;
}

static void *zap_run(void *arg)
{
	struct zap_request q;
	struct mcm_zmq *z = arg;

	/* zmq_ctx_term() makes the calls fail, and waits then until this socket is closed. */
	while (zap_receive(z, &q) && zap_answer(z, &q, zap_allows(z, &q)) == 0)
		;
	(void)z->close(z->zap);
	return NULL;
}

/* Before the PUB socket is bound.  ENFORCE_DOMAIN (libzmq 4.3): without an answering socket no key is admitted; else
 * all would be. */
static int zmq_secure(struct mcm_zmq *z, const struct mcm_kv_curve *curve)
{
	char secret[MCM_KV_CURVE_TEXT];
	const int on = 1;
	int r = zmq_load_curve(z);

	if (r < 0)
		return r;
	z->clients = strdup(curve->clients);
	if (!z->clients)
		return -ENOMEM;
	z->z85(secret, curve->secret, MCM_KV_CURVE_KEY);
	r = z->public_of(z->public, secret);
	explicit_bzero(secret, sizeof(secret));
	if (r < 0 || z->set(z->socket, ZMQ_CURVE_SERVER, &on, sizeof(on)) < 0 ||
	    z->set(z->socket, ZMQ_CURVE_SECRETKEY, curve->secret, MCM_KV_CURVE_KEY) < 0 ||
	    z->set(z->socket, ZMQ_ZAP_DOMAIN, ZAP_DOMAIN, strlen(ZAP_DOMAIN)) < 0 ||
	    z->set(z->socket, ZMQ_ZAP_ENFORCE_DOMAIN, &on, sizeof(on)) < 0)
		return zmq_fail(z, "use", "the secret key for KV events");
	z->zap = z->new_socket(z->context, ZMQ_REP);
	if (!z->zap || z->bind(z->zap, ZAP_ENDPOINT) < 0)
		return zmq_fail(z, "open", ZAP_ENDPOINT);
	r = mc_thread_start(&z->thread, "mc-kv-zap", zap_run, z);
	z->runs = r == 0;
	return r;
}

int mcm_zmq_curve_pair(char ret_public[MCM_KV_CURVE_TEXT], char ret_secret[MCM_KV_CURVE_TEXT])
{
	struct mcm_zmq z = { .lib = NULL };
	int r = zmq_load(&z);

	if (r == 0)
		r = zmq_load_curve(&z);
	if (r == 0 && z.pair(ret_public, ret_secret) < 0)
		r = zmq_fail(&z, "make", "a pair of keys");
	return r;
}

/* ---- the socket -------------------------------------------------------------------------------- */

int mcm_zmq_open(const char *endpoint, const struct mcm_kv_curve *curve, struct mcm_zmq **ret)
{
	const int high_water = HIGH_WATER;
	size_t len = ENDPOINT_MAX;
	struct mcm_zmq *z;
	int r;

	z = calloc(1, sizeof(*z));
	if (!z)
		return -ENOMEM;
	r = zmq_load(z);
	if (r < 0)
		goto fail;
	z->context = z->ctx_new();
	z->socket = z->context ? z->new_socket(z->context, ZMQ_PUB) : NULL;
	if (!z->socket) {
		r = zmq_fail(z, "create", "a ZeroMQ socket");
		goto fail;
	}
	r = curve ? zmq_secure(z, curve) : 0;
	if (r < 0)
		goto fail;
	if (z->set(z->socket, ZMQ_SNDHWM, &high_water, sizeof(high_water)) < 0 ||
	    z->bind(z->socket, endpoint) < 0 ||
	    z->get(z->socket, ZMQ_LAST_ENDPOINT, z->endpoint, &len) < 0) {
		r = zmq_fail(z, "publish KV events at", endpoint);
		goto fail;
	}
	*ret = z;
	return 0;
fail:
	mcm_zmq_close(z, 0);
	return r;
}

void mcm_zmq_close(struct mcm_zmq *z, int linger_ms)
{
	if (!z)
		return;
	if (z->socket) {
		(void)z->set(z->socket, ZMQ_LINGER, &linger_ms, sizeof(linger_ms));
		(void)z->close(z->socket);
	}
	if (z->zap && !z->runs)
		(void)z->close(z->zap);
	if (z->context)
		(void)z->ctx_term(z->context);
	if (z->runs)
		mc_thread_join(z->thread);
	/* Do not unload the library: its threads may still run its code for a moment. */
	free(z->clients);
	free(z);
}

const char *mcm_zmq_endpoint(const struct mcm_zmq *z)
{
	return z->endpoint;
}

const char *mcm_zmq_public(const struct mcm_zmq *z)
{
	return z->public;
}

int mcm_zmq_send(struct mcm_zmq *z, const void *part, size_t len, bool more)
{
	if (z->send(z->socket, part, len, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) < 0)
		return zmq_fail(z, "publish at", z->endpoint);
	return 0;
}
