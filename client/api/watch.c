/* SPDX-License-Identifier: Apache-2.0
 * watch.c - events of keys, by polling.  The master keeps the latest events, and the watch knows
 * the number of the last one that it saw, so a lost connection alone loses no event. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/store_i.h"

#define EVENTS 256
#define WAIT_FIRST_MS 5
#define WAIT_LAST_MS 100
#define ASK_MIN_MS 1000		/* the master gets at least this time to answer, however short the timeout */

_Static_assert((int)MCS_EVENT_ATTRS == (int)MCP_EVENT_ATTRS &&
	       (int)MCS_EVENT_GAP == (int)MCP_EVENT_TYPES, "types are sent unchanged");

struct mcs_watch {
	/* constant */
	struct mcs *s;
	uint32_t types;

	uint64_t since;
	uint64_t lost;			/* missed events, to be reported first */
	struct mcp_reply page;		/* the reply that @it iterates over */
	struct mcp_iter it;
	bool any;
	uint64_t wait_ms;

	size_t prefix_len;
	unsigned char prefix[];
};

static int watch_ask(struct mcs_watch *w, uint64_t deadline)
{
	const struct mcp_events msg = {
		.since = w->since, .types = w->types, .limit = EVENTS,
		.prefix = mcp_bytes(w->prefix, w->prefix_len), .tenant = w->s->tenant,
	};
	struct mcp_events_reply reply;
	struct mcp_reply mem = { 0 };
	int r;

	r = mcs_call(w->s->session, MCP_EVENTS, &msg, &reply, &mem, deadline);
	if (r < 0)
		return r;
	mcp_reply_done(&w->page);
	w->page = mem;
	mcp_iter_init(&w->it, &reply.events, &mcp_desc_event);
	w->any = true;
	w->since = reply.next;
	w->lost = reply.lost;
	return reply.events.count || reply.lost ? 1 : 0;
}

int mcs_watch_open(struct mcs *s, struct mcs_key prefix, unsigned types, struct mcs_watch **ret,
		   int64_t timeout_ms)
{
	struct mcs_watch *w;
	int r;

	if (prefix.len > MCP_KEY_MAX || (prefix.len && !prefix.data))
		return mc_fail(-MC_EKEY, "the prefix has %zu bytes", prefix.len);
	if (types >= 1u << MCP_EVENT_TYPES)
		return mc_fail(-MC_EPARAM, "unknown types of events %#x", types);
	w = calloc(1, sizeof(*w) + prefix.len);
	if (!w)
		return -ENOMEM;
	w->s = s;
	w->types = types;
	w->since = UINT64_MAX;
	w->prefix_len = prefix.len;
	if (prefix.len)
		memcpy(w->prefix, prefix.data, prefix.len);
	/* The watch sees all events from now on. */
	r = watch_ask(w, mcs_deadline(s, timeout_ms));
	if (r < 0) {
		mcs_watch_close(w);
		return r;
	}
	*ret = w;
	return 0;
}

void mcs_watch_close(struct mcs_watch *w)
{
	if (!w)
		return;
	mcp_reply_done(&w->page);
	free(w);
}

static bool watch_next_known(struct mcs_watch *w, struct mcs_event *ret)
{
	struct mcp_event e;

	memset(ret, 0, sizeof(*ret));
	if (w->lost) {
		ret->type = MCS_EVENT_GAP;
		ret->lost = w->lost;
		w->lost = 0;
		return true;
	}
	if (!w->any || !mcp_iter_next(&w->it, &e))
		return false;
	*ret = (struct mcs_event){
		.type = e.type < MCP_EVENT_TYPES ? (enum mcs_event_type)e.type : MCS_EVENT_GAP,
		.key = { e.key.data, e.key.len }, .to = { e.to.data, e.to.len },
		.sequence = e.sequence, .time_ms = e.time_ms, .size = e.size,
		.generation = e.generation, .kind = (enum mcs_kind)e.kind,
	};
	return true;
}

/* False: the deadline has passed. */
static bool watch_nap(struct mcs_watch *w, uint64_t deadline)
{
	uint64_t now = mc_now_ns(), ns;

	if (now >= deadline)
		return false;
	w->wait_ms = w->wait_ms ? 2 * w->wait_ms : WAIT_FIRST_MS;
	if (w->wait_ms > WAIT_LAST_MS)
		w->wait_ms = WAIT_LAST_MS;
	ns = w->wait_ms * MC_NS_PER_MS;
	if (ns > deadline - now)
		ns = deadline - now;
	mc_sleep_ns(ns);
	return true;
}

int mcs_watch_next(struct mcs_watch *w, struct mcs_event *ret, int64_t timeout_ms)
{
	uint64_t until = mcs_deadline(w->s, timeout_ms);
	struct mcs_event e;
	int r;

	while (!watch_next_known(w, &e)) {
		/* The last request is sent just before the deadline. */
		uint64_t least = mc_deadline_ms(ASK_MIN_MS);

		r = watch_ask(w, until > least ? until : least);
		if (r < 0)
			return r;
		if (r)
			w->wait_ms = 0;
		else if (!watch_nap(w, until))
			return 0;
	}
	*ret = e;
	return 1;
}
