/* SPDX-License-Identifier: Apache-2.0
 * backend.c - replaces the back end of a handle while the daemon that it found is dead. */
#include <config.h>

#include "client/backend.h"

#include "client/owner/owner.h"
#include "client/store_i.h"
#include "common/cleanup.h"
#include "common/log.h"

/* After this time calls try the first back end again: the daemon may run again. */
#define RETRY_NS (1000 * MC_NS_PER_MS)

struct mcs_backend *mcs_backend_get(struct mcs *s)
{
	uint64_t until = __atomic_load_n(&s->fallback_until_ns, __ATOMIC_ACQUIRE);

	/* The acquire load makes s->fallback visible, which was set before. */
	return until && mc_now_ns() < until ? s->fallback : s->backend;
}

bool mcs_backend_replace(struct mcs *s, struct mcs_backend **b, int err)
{
	if (err != -MC_ERPC || !(*b)->ops->replaceable(*b))
		return false;
	MC_LOCKED(&s->fallback_lock);
	if (!s->fallback) {
		if (mcs_owner_open(s, &s->fallback) < 0)
			return false;
		mc_warn("client", "the node's daemon has died, going on without it address=%s", (*b)->daemon);
	}
	__atomic_store_n(&s->fallback_until_ns, mc_now_ns() + RETRY_NS, __ATOMIC_RELEASE);
	*b = s->fallback;
	return true;
}
