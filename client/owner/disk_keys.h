/* SPDX-License-Identifier: Apache-2.0
 * disk_keys.h - keys of encrypted media (tiers/wrap.h), asked of the master (DISK_KEY). */
#ifndef MCS_DISK_KEYS_H
#define MCS_DISK_KEYS_H

#include "client/session/session.h"
#include "tiers/wrap.h"

struct mcs_disk_keys {
	struct mcp_client *c;		/* connection to ask over; NULL: @session */
	struct mcs_session *session;
	struct mcp_id segment;
	uint64_t deadline;
};

/* A mct_keys_fn; @arg: a struct mcs_disk_keys. */
int mcs_disk_keys_ask(void *arg, uint32_t secret, struct mct_keys *ret);

#endif
