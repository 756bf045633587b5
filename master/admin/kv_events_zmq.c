/* SPDX-License-Identifier: Apache-2.0
 * kv_events_zmq.c - a PUB socket of libzmq.
 *
 * libzmq is loaded at run time, because a master that publishes nothing must start without it.  Its
 * interface has not changed since version 3.2. */
#include <config.h>

#include "master/admin/kv_events_zmq.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#include "common/err.h"

/* constants of zmq.h */
#define ZMQ_PUB 1
#define ZMQ_DONTWAIT 1
#define ZMQ_SNDMORE 2
#define ZMQ_LINGER 17
#define ZMQ_SNDHWM 23
#define ZMQ_LAST_ENDPOINT 32

#define HIGH_WATER 10000	/* messages queued for a slow subscriber */
#define ENDPOINT_MAX 256

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
};

static int zmq_load(struct mcm_zmq *z)
{
	struct {
		const char *name;
		void *at;
	} symbols[] = {
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
	for (unsigned i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		*(void **)symbols[i].at = dlsym(z->lib, symbols[i].name);
		if (!*(void **)symbols[i].at)
			return mc_fail(-ENOENT, "libzmq has no %s", symbols[i].name);
	}
	return 0;
}

/* libzmq's error numbers are those of errno, except for some of its own above them. */
static int zmq_fail(const struct mcm_zmq *z, const char *what, const char *with)
{
	int e = z->err();

	return mc_fail(e > 0 && e < 4096 ? -e : -EIO, "cannot %s %s: %s", what, with, z->text(e));
}

int mcm_zmq_open(const char *endpoint, struct mcm_zmq **ret)
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
	if (z->context)
		(void)z->ctx_term(z->context);
	/* Do not unload the library: its threads may still run its code for a moment. */
	free(z);
}

const char *mcm_zmq_endpoint(const struct mcm_zmq *z)
{
	return z->endpoint;
}

int mcm_zmq_send(struct mcm_zmq *z, const void *part, size_t len, bool more)
{
	if (z->send(z->socket, part, len, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) < 0)
		return zmq_fail(z, "publish at", z->endpoint);
	return 0;
}
