/* SPDX-License-Identifier: Apache-2.0
 * session.h - the pins and unfinished puts of one connection, which end with it.
 *
 * A session's requests run one after another.  Its lock protects the pins from the monitor, which
 * drops expired leases. */
#ifndef MCM_SESSION_H
#define MCM_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "common/list.h"
#include "common/sys/lock.h"
#include "master/ops/pinned.h"
#include "proto/msg.h"

struct mc_principal;
struct mcm;
struct mcm_account_share;
struct mcm_pin;
struct mcm_put_started;

struct mcm_session {
	/* constant */
	struct mcp_id client;
	const struct mc_principal *identity;	/* the peer's; NULL: of no tenant */
	unsigned put_shard;
	bool inside;		/* the client is in the master's process: it may pin all bytes */
	struct mcm_account_share *share;	/* in the account of its identity; NULL: it has none (account.h) */
	uint64_t number;	/* never reused; the tags of its pins are derived from it */
	/* owned by the thread that runs the requests */
	bool registered;	/* REGISTER was granted */
	struct mcp_id engine;	/* that writes for it; zero: it may not begin puts */
	uint64_t fence;		/* number of its writes (mce_engine_fence()); constant when it is registered */
	/* progress of a REMOVE_MATCH between slices */
	uint64_t match_at, match_removed;
	/* progress of a PUT_START between slices (service_put.c), malloc'ed; NULL: none */
	struct mcm_put_started *started;
	unsigned fetch_parts;	/* finished parts of a TASK_FETCH (service_task.c); 0: none runs */
	/* guarded by the master's sessions_lock */
	struct mc_list link;
	uint64_t turn;		/* the monitor's last round that visited the session */
	unsigned n_units;	/* running copies that it has fetched; atomic */
	/* guarded by the put shard's lock */
	uint32_t puts;
	uint32_t n_puts;
	uint64_t put_keys;	/* bytes of their keys */
	/* guarded by lock */
	struct mc_mutex lock;
	struct mcm_pin *pin;	/* [0] is not used */
	uint32_t pin_cap, pin_used, pin_free, n_pins;
	struct mcm_pinned pinned;
	uint32_t lease_first, lease_last;
};

int mcm_session_new(struct mcm *m, struct mcp_id client, struct mcm_session **ret);
/* Drop its pins and puts, and free it. */
void mcm_session_free(struct mcm *m, struct mcm_session *s);

#endif
