/* SPDX-License-Identifier: Apache-2.0
 * test_master_lead_fixture.h - a leader of several masters in the test's process: a master with a journal but without
 * threads and sockets, its feeders, and its lease in a store in memory.  Standbys are servers of this process ("local:"
 * addresses), which the feeders' threads call directly.  Only the test moves the clock. */
#ifndef TEST_MASTER_LEAD_FIXTURE_H
#define TEST_MASTER_LEAD_FIXTURE_H

#include <unistd.h>

#include "common/sys/lock.h"

#include "master/ha/feeder.h"
#include "meta/seat.h"
#include "tests/unit/fake_store.h"
#include "tests/unit/test_master_journal_fixture.h"

#define MIB (1u << 20)
#define LEAD_NAME "local:0#aaaaaaaaaaaaaaaa"
#define LEAD_MEMBERS "local:0,local:1,local:2"	/* addresses that may join */
#define LEAD_TTL_MS 60000u
#define LEAD_TIMEOUT_MS 1000u			/* of a standby that does not confirm */

struct lead {
	struct fixture fx;
	struct fake_store *store;	/* client "a" is the leader, "b" another master */
	struct mcd_seat *other;
	struct mcm_feeders *f;
	bool stopped;
	struct mc_mutex lock;
	struct mcd_seat *seat;		/* guarded by lock */
	/* atomic */
	uint64_t until;
	unsigned changes;		/* attempts to change the members */
};

/* The leader has term 1, @segments segments of 4 MiB, and no standby. */
void lead_up(struct lead *l, unsigned segments);
/* End the feeders; standbys may be held no longer. */
void lead_stop(struct lead *l);
void lead_down(struct lead *l);
/* A JOIN of the standby @name, "local:N#ID". */
int lead_join(struct lead *l, const char *name, struct mcp_id nonce);
/* Put objects PREFIX0 ... without waiting for standbys.  Returns the LSN that an answer to the last one waits for. */
uint64_t lead_put(struct lead *l, const char *prefix, unsigned n);
/* The members in the store, without the leader. */
unsigned lead_members(struct lead *l);

/* Wait until @condition is true, which another thread makes so. */
#define lead_wait(condition) do { \
	unsigned lead_ms = 0; \
	while (!(condition)) { \
		assert_true(lead_ms++ < 30000); \
		usleep(1000); \
	} \
} while (0)

#endif
