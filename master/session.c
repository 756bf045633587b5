/* SPDX-License-Identifier: Apache-2.0
 * session.c - begin and end of a connection's session. */
#include <config.h>

#include "master/session.h"

#include <errno.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "master/mcm_i.h"
#include "master/ops/pin.h"

int mcm_session_new(struct mcm *m, struct mcp_id client, struct mcm_session **ret)
{
	static unsigned turn;
	struct mcm_session *s;

	s = calloc(1, sizeof(*s));
	if (!s)
		return mc_fail(-ENOMEM, "out of memory for a session");
	s->client = client;
	s->put_shard = __atomic_fetch_add(&turn, 1, __ATOMIC_RELAXED) % MCM_PUT_SHARDS;
	s->number = s->fence = mcm_generation_next(m, 0);
	mc_mutex_init(&s->lock);
	MC_LOCKED(&m->sessions_lock);
	mc_list_push_back(&m->sessions, &s->link);
	*ret = s;
	return 0;
}

void mcm_session_free(struct mcm *m, struct mcm_session *s)
{
	mc_mutex_lock(&m->sessions_lock);
	mc_list_remove(&s->link);
	mc_mutex_unlock(&m->sessions_lock);
	/* Wait for the monitor, which may still use the session; it cannot find it again. */
	mc_mutex_lock(&s->lock);
	mc_mutex_unlock(&s->lock);
	/* Before the pins: ending copies release their own pins. */
	mcm_puts_abandon(m, s);
	mcm_account_puts(m, s);
	mcm_tasks_session_gone(m, s);
	mcm_pins_remove_all(m, s);
	mcm_account_close(m, s);
	mc_mutex_destroy(&s->lock);
	free(s->started);
	free(s->pin);
	mcm_pinned_done(&s->pinned);
	free(s);
}
