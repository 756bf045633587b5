/* SPDX-License-Identifier: Apache-2.0
 * service_event.c - EVENTS. */
#include <config.h>

#include <errno.h>

#include "common/err.h"
#include "master/mcm_i.h"
#include "master/memory/scratch.h"
#include "master/service/service_i.h"

#define EVENTS 512		/* per reply */
#define TEXT (256u << 10)	/* bytes of keys per reply */

int mcm_serve_events(struct mcp_session *s, const void *body, size_t len,
		     struct mcp_answer *answer, void *arg)
{
	struct mcp_events_reply reply = { 0 };
	struct mcm_scope sc;
	struct mcp_event *event;
	struct mcp_events rq;
	unsigned max;
	char *text;
	int r;

	r = mcp_decode(&mcp_desc_events, body, len, &rq);
	if (r < 0)
		return r;
	if (rq.prefix.len > MCP_KEY_MAX)
		return mc_fail(-MC_EPARAM, "the prefix is too long: bytes=%u", rq.prefix.len);
	r = mcm_scope_begin(arg, mcp_session_principal(s), rq.tenant, false, &sc);
	if (r < 0)
		return r;
	max = rq.limit && rq.limit < EVENTS ? rq.limit : EVENTS;
	event = mcm_scratch(MCM_SCRATCH_ITEMS, max, sizeof(*event));
	text = mcm_scratch(MCM_SCRATCH_BYTES, TEXT, 1);
	if (!event || !text)
		return -ENOMEM;
	r = mcm_events_read(arg, rq.since, rq.types, sc.tenant, rq.prefix, event, max, text, TEXT, &reply.next,
			    &reply.lost);
	if (r < 0)
		return r;
	/* The number would count the events of other tenants. */
	if (reply.lost && ((const struct mcm *)arg)->tenants.on && mcp_session_principal(s)->tenant[0])
		reply.lost = 1;
	reply.events = mcp_seq(event, (size_t)r);
	return mcp_answer(answer, &mcp_desc_events_reply, &reply);
}
