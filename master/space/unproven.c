/* SPDX-License-Identifier: Apache-2.0
 * unproven.c - the objects of a segment that its owner has to compare. */
#include <config.h>

#include "master/space/unproven.h"

#include <errno.h>
#include <stdlib.h>

#include "master/mcm_i.h"

int mcm_confirm_note(struct mcm_segment *s, uint32_t slot, uint32_t range)
{
	struct mcm_confirm *c = &s->confirm;

	if (c->n == c->cap) {
		size_t cap = c->cap ? 2 * c->cap : 1024;
		struct mcm_confirm_entry *more = realloc(c->entry, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		c->entry = more;
		c->cap = cap;
	}
	c->entry[c->n++] = (struct mcm_confirm_entry){ slot, range };
	return 0;
}

void mcm_confirm_clear(struct mcm_confirm *c)
{
	free(c->entry);
	free(c->sent);
	c->entry = NULL;
	c->sent = NULL;
	c->n = c->cap = c->next = c->given = c->n_sent = 0;
	c->refused = false;
}

void mcm_confirm_done(struct mcm_confirm *c)
{
	mcm_confirm_clear(c);
	mc_mutex_destroy(&c->lock);
}

uint8_t mcm_confirm_state(const struct mcm_segment *s, const struct mcm_object *o, uint32_t range)
{
	uint8_t state = mcm_segment_state(s);

	if (state == MCP_SEG_SILENT && mcm_segment_is_public(s))
		return mcm_load_relaxed(&o->marks) & MCM_MARK_UNCONFIRMED ? state : MCP_SEG_OK;
	if (state != MCP_SEG_CONFIRMING)
		return state;
	return !(mcm_load_relaxed(&o->marks) & MCM_MARK_UNCONFIRMED) ||
	       mcm_range_at(mcm_range(&s->alloc, range)) < __atomic_load_n(&s->confirm.upto, __ATOMIC_ACQUIRE) ?
	       MCP_SEG_OK : MCP_SEG_SILENT;
}
