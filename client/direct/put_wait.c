/* SPDX-License-Identifier: Apache-2.0
 * put_wait.c - wait for writes to a reserved range, and cancel them when the reservation ends.
 *
 * A put ends with its connection: its range is reused when the owner of the memory has fenced this engine, and a later
 * write fails.  The waiting thread checks the connection regularly, so that it does not send in vain. */
#include <config.h>

#include "client/direct/put_i.h"

#include <errno.h>

#include "common/metrics.h"

#define CHECK_MS 500

MC_COUNTER(given_up, "mooncake_client_writes_given_up_total", "",
	   "writes cancelled because the connection of their reservation was lost")

bool mcs_put_owned(const struct mcs_direct *s, uint64_t epoch, uint64_t seen_ns)
{
	if (mc_now_ns() - seen_ns >= CHECK_MS * MC_NS_PER_MS && !mcs_connected(s))
		return false;
	return mcs_direct_epoch(s) == epoch;
}

int mcs_put_wait(const struct mcs_direct *s, struct mce_batch *b, struct mce_req *reqs, unsigned n,
		 uint64_t epoch, uint64_t deadline)
{
	bool lost = false;
	uint64_t check;
	int r = -EAGAIN;

	/* Writes that have completed already need no check. */
	while (r == -EAGAIN && !lost && !mce_batch_done(b)) {
		check = mc_deadline_ms(CHECK_MS);
		if (check >= deadline)
			break;
		r = mce_batch_until(s->engine, b, reqs, n, check);
		lost = r == -EAGAIN && !mcs_put_owned(s, epoch, 0);
	}
	r = mce_batch_wait(s->engine, b, reqs, n, lost ? 0 : deadline);
	/* The engine itself ends the writes of an earlier session. */
	lost = lost || (b->failed && mcs_direct_epoch(s) != epoch);
	if (!lost)
		return r;
	mc_metric_add(&given_up, 1);
	return mc_fail(-MC_ESTALE_PUT, "the connection that the put belonged to is gone");
}
