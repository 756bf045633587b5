/* SPDX-License-Identifier: Apache-2.0
 * notify.c - short messages between engines over the handshake service. */
#include <config.h>

#include "engine/te/te_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/process/fork.h"
#include "common/sys/clock.h"

/* ---- inbox ------------------------------------------------------------------------------------- */

static int inbox_grow_locked(struct mce_te_inbox *in)
{
	unsigned cap = in->cap ? in->cap * 2 : 16;
	notify_msg_t *more;

	if (in->n < in->cap)
		return 0;
	more = realloc(in->item, cap * sizeof(*more));
	if (!more)
		return -ENOMEM;
	in->item = more;
	in->cap = cap;
	return 0;
}

int mce_te_inbox_add(struct mce_te_inbox *in, const char *name, const char *msg)
{
	uint64_t bytes = strlen(name) + strlen(msg) + 2;
	notify_msg_t item;

	MC_LOCKED(&in->lock);
	if (in->n >= MCE_TE_INBOX_MAX || in->bytes + bytes > MCE_TE_INBOX_BYTES)
		return -ENOBUFS;
	if (inbox_grow_locked(in) < 0)
		return -ENOMEM;
	item.name = strdup(name);
	item.msg = strdup(msg);
	if (!item.name || !item.msg) {
		free(item.name);
		free(item.msg);
		return -ENOMEM;
	}
	in->item[in->n++] = item;
	in->bytes += bytes;
	return 0;
}

int mce_te_inbox_take(struct mce_te_inbox *in, notify_msg_t **ret)
{
	notify_msg_t *list;
	int n;

	MC_LOCKED(&in->lock);
	/* NULL means failure to callers, so return an array even for zero messages. */
	list = in->item ? in->item : malloc(sizeof(*list));
	if (!list)
		return -ENOMEM;
	n = (int)in->n;
	in->item = NULL;
	in->n = in->cap = 0;
	in->bytes = 0;
	*ret = list;
	return n;
}

void mce_te_inbox_free(notify_msg_t *item, int n)
{
	for (int i = 0; item && i < n; i++) {
		free(item[i].name);
		free(item[i].msg);
	}
	free(item);
}

void mce_te_inbox_done(struct mce_te_inbox *in)
{
	mce_te_inbox_free(in->item, (int)in->n);
	mc_mutex_destroy(&in->lock);
}

/* ---- sending ----------------------------------------------------------------------------------- */

static int notify_by_name(struct mce_te *te, const char *segment, const char *name, const char *msg, uint64_t deadline)
{
	uint64_t latest = mce_te_ask_by(te);
	char host[MC_ADDR_MAX];
	int port, r;

	if (!segment || !name || !msg)
		return mc_fail(-EINVAL, "a notification needs a segment, a name and a message");
	/* As at upstream, an engine can notify itself. */
	if (!strcmp(segment, te->name))
		return mce_te_inbox_add(&te->inbox, name, msg);
	if (deadline > latest)
		deadline = latest;
	r = mce_te_rpc_address(te, segment, deadline, host, &port);
	if (r < 0)
		return r;
	return mce_handshake_notify(host, port, name, msg, deadline);
}

int mce_te_notify_name(struct mce_te *te, const char *segment, const char *name, const char *msg)
{
	int r;

	r = mc_fork_check(te->fork_depth);
	return r < 0 ? r : notify_by_name(te, segment, name, msg, MC_NEVER);
}

int mce_te_notify_by(struct mce_te *te, segment_id_t segment, const char *name, const char *msg, uint64_t deadline)
{
	auto_free char *to = NULL;
	int r;

	r = mc_fork_check(te->fork_depth);
	if (r == 0)
		r = mce_te_segment_name(te, segment, &to);
	return r < 0 ? r : notify_by_name(te, to, name, msg, deadline);
}

int mce_te_notify(struct mce_te *te, segment_id_t segment, const char *name, const char *msg)
{
	return mce_te_notify_by(te, segment, name, msg, MC_NEVER);
}

int mce_te_probe(struct mce_te *te, const char *name)
{
	uint64_t deadline = mce_te_ask_by(te);
	char host[MC_ADDR_MAX];
	int port, r;

	r = mc_fork_check(te->fork_depth);
	if (r < 0)
		return r;
	if (!name)
		return mc_fail(-EINVAL, "a segment name is missing");
	if (!strcmp(name, te->name))
		return 0;
	r = mce_te_rpc_address(te, name, deadline, host, &port);
	if (r < 0)
		return r;
	return mce_handshake_probe(host, port, deadline);
}
