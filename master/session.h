/* SPDX-License-Identifier: Apache-2.0
 * session.h - what one connection holds: pins and unfinished puts, all dropped when it ends.
 *
 * A session's requests run one after another; its lock is there for the monitor, which drops pins whose
 * lease has run out. */
#ifndef MCM_SESSION_H
#define MCM_SESSION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/list.h"
#include "proto/msg.h"

struct mcm;
struct mcm_pin;
struct mcm_put_started;

struct mcm_session {
	/* constant */
	struct mcp_id client;
	unsigned put_shard;
	uint64_t number;	/* no other session has it, nor had: what its pins' tags come of */
	/* of whoever runs its requests: it is the client that it says it is; where its removal of many goes
	 * on, and how many it has removed */
	bool registered;
	uint64_t match_at, match_removed;
	/* the same of its PUT_START, by malloc (service_put.c); NULL: none goes on */
	struct mcm_put_started *started;
	unsigned fetch_parts;	/* those of its TASK_FETCH that are done (service_task.c); 0: none goes on */
	/* guarded by the master's sessions_lock */
	struct mc_list link;
	uint64_t turn;		/* of the monitor's, the last one that it had */
	unsigned n_units;	/* copies under way that it has fetched; atomic */
	/* guarded by the put shard's lock */
	uint32_t puts;
	uint32_t n_puts;
	/* guarded by lock */
	pthread_mutex_t lock;
	struct mcm_pin *pin;	/* [0] is not used */
	uint32_t pin_cap, pin_used, pin_free, n_pins;
	uint32_t lease_first, lease_last;
};

int mcm_session_new(struct mcm *m, struct mcp_id client, struct mcm_session **ret);
/* Drop everything that it holds, and itself. */
void mcm_session_free(struct mcm *m, struct mcm_session *s);

#endif
