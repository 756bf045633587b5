/* SPDX-License-Identifier: Apache-2.0
 * rpc_local.c - sessions of clients in the server's own process: frames are passed in buffers, and
 * handlers run on the caller's thread.
 *
 * The registry's lock guards names, lists and reference counts, and is never held while code of the
 * application runs.  A session's lock serialises its handlers and its end: when client and server
 * end it at the same time, one waits there until the other has run closed(). */
#include <config.h>

#include "proto/rpc_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/process/fork.h"
#include "common/sys/clock.h"
#include "common/sys/thread.h"

struct mcp_local {
	/* guarded by the registry's lock */
	struct mc_list link;		/* server's locals */
	unsigned refs;
	/* guarded by lock */
	struct mc_mutex lock;
	struct mcp_session s;
	bool greeted;			/* closed() has to be called */
	/* atomic; set with lock */
	atomic_bool ended;		/* s.server must not be used any more */
};

static struct mc_mutex registry_lock = MC_MUTEX_INIT;
static struct mc_list registry = { &registry, &registry };
MC_FORK_KEEP(registry_lock, MC_FORK_LEAF)

static struct mcp_server *local_find_locked(const char *name)
{
	struct mc_list *pos;

	mc_list_for_each(pos, &registry) {
		struct mcp_server *s = mc_container_of(pos, struct mcp_server, named);

		if (!strcmp(s->local_name, name))
			return s;
	}
	return NULL;
}

int mcp_local_publish(struct mcp_server *s)
{
	MC_LOCKED(&registry_lock);
	if (local_find_locked(s->local_name))
		return mc_fail(-EEXIST, "address already in use: local:%s", s->local_name);
	mc_list_push_back(&registry, &s->named);
	return 0;
}

static void local_unref(struct mcp_local *l)
{
	bool last;

	mc_mutex_lock(&registry_lock);
	last = --l->refs == 0;
	mc_mutex_unlock(&registry_lock);
	if (!last)
		return;
	mc_mutex_destroy(&l->lock);
	free(l);
}

/* End the session; only the first call has an effect.  The session leaves the server's list after
 * closed() has run: a server whose list is empty may be freed. */
static void local_end(struct mcp_local *l)
{
	struct mcp_server *s = l->s.server;

	mc_mutex_lock(&l->lock);
	if (!l->ended) {
		l->ended = true;
		if (l->greeted && s->conf.closed)
			s->conf.closed(&l->s, s->conf.arg);
	}
	mc_mutex_unlock(&l->lock);
	mc_mutex_lock(&registry_lock);
	mc_list_remove(&l->link);
	mc_mutex_unlock(&registry_lock);
}

static struct mcp_local *local_first(struct mcp_server *s)
{
	struct mcp_local *l;

	MC_LOCKED(&registry_lock);
	if (mc_list_empty(&s->locals))
		return NULL;
	l = mc_list_first(&s->locals, struct mcp_local, link);
	l->refs++;
	return l;
}

void mcp_local_retire(struct mcp_server *s)
{
	struct mcp_local *l;

	mc_mutex_lock(&registry_lock);
	mc_list_remove(&s->named);
	mc_mutex_unlock(&registry_lock);
	while ((l = local_first(s))) {
		local_end(l);
		local_unref(l);
	}
}

int mcp_local_open(const char *name, struct mcp_local **ret)
{
	struct mcp_server *s;
	struct mcp_local *l;

	l = calloc(1, sizeof(*l));
	if (!l)
		return mc_fail(-ENOMEM, "no memory for a local session");
	mc_mutex_init(&l->lock);
	l->refs = 1;
	strcpy(l->s.peer, "local");

	mc_mutex_lock(&registry_lock);
	s = local_find_locked(name);
	if (s) {
		l->s.server = s;
		l->s.principal = mc_principal_local();
		mc_list_push_back(&s->locals, &l->link);
	}
	mc_mutex_unlock(&registry_lock);
	if (!s) {
		local_unref(l);
		return mc_fail(-MC_ERPC, "no server has the name local:%s", name);
	}
	*ret = l;
	return 0;
}

static int local_greet(struct mcp_local *l, const struct mcp_frame *f, const void *body,
		 struct mcp_buf *out)
{
	const struct mcp_server_conf *conf = &l->s.server->conf;
	int r = mcp_serve_hello(&l->s, f, body);

	if (r == 0 && conf->opened) {
		r = conf->opened(&l->s, conf->arg);
		r = r < 0 ? r : 0;
	}
	l->greeted = r == 0;
	return mcp_serve_welcome(&l->s, f->id, r, out);
}

static int local_exchange_locked(struct mcp_local *l, const struct mcp_buf *in, struct mcp_buf *out)
{
	uint64_t now = mc_now_ns();
	struct mcp_frame f;
	size_t at = 0;
	int r = 0;

	if (l->ended)
		return mc_fail(-MC_ERPC, "the server has stopped");
	while (r == 0 && in->len - at >= MCP_FRAME_HEADER) {
		const uint8_t *body = in->data + at + MCP_FRAME_HEADER;

		r = mcp_frame_unpack(in->data + at, l->s.server->conf.max_frame, &f);
		if (r < 0 || f.length > in->len - at - MCP_FRAME_HEADER)
			return mc_fail(-MC_EPARAM, "request exceeds the server's limit of %u bytes",
				       l->s.server->conf.max_frame);
		/* No other session waits for this thread, so repeat at once. */
		do {
			r = l->greeted ? mcp_serve_request(&l->s, &f, body, out, &now) :
				local_greet(l, &f, body, out);
		} while (r == MCP_AGAIN);
		at += MCP_FRAME_HEADER + f.length;
	}
	return r;
}

int mcp_local_exchange(struct mcp_local *l, const struct mcp_buf *in, struct mcp_buf *out,
		       uint64_t deadline)
{
	int r;

	if (mc_mutex_lock_until(&l->lock, deadline) < 0)
		return mc_fail(-MC_ETIMEDOUT, "deadline exceeded, an earlier request is still running");
	r = local_exchange_locked(l, in, out);
	if (!l->ended)
		mcp_serve_make_durable(&l->s);
	mc_mutex_unlock(&l->lock);
	return r;
}

bool mcp_local_up(struct mcp_local *l)
{
	return !l->ended;
}

void mcp_local_close(struct mcp_local *l)
{
	local_end(l);
	local_unref(l);
}
