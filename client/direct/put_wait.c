/* SPDX-License-Identifier: Apache-2.0
 * put_wait.c - waiting for bytes on their way to room that the master may give to others.
 *
 * A put dies with its connection, and its room then soon is somebody else's, while the peer that
 * has the room knows nothing of it.  So who waits looks at the connection again and again, and
 * breaks the transfer off while the room is still kept aside. */
#include <config.h>

#include "client/direct/put_i.h"

#include <errno.h>

#include "common/metrics.h"

#define LOOK_MS (MCP_PUT_ASIDE_MS / 2)

MC_COUNTER(given_up, "mooncake_client_writes_given_up_total", "",
	   "writes broken off because the connection that their room belonged to was gone")

bool mcs_put_owned(const struct mcs_direct *s, uint64_t epoch, uint64_t seen_ns)
{
	if (mc_now_ns() - seen_ns >= LOOK_MS * MC_NS_PER_MS && !mcs_connected(s))
		return false;
	return mcs_direct_epoch(s) == epoch;
}

int mcs_put_wait(const struct mcs_direct *s, struct mce_batch *b, struct mce_req *reqs, unsigned n,
		 uint64_t epoch, uint64_t deadline)
{
	bool lost = false;
	uint64_t look;
	int r = -EAGAIN;

	/* What took no time needs no look. */
	while (r == -EAGAIN && !lost && !mce_batch_done(b)) {
		look = mc_deadline_ms(LOOK_MS);
		if (look >= deadline)
			break;
		r = mce_batch_until(s->engine, b, reqs, n, look);
		lost = r == -EAGAIN && !mcs_put_owned(s, epoch, 0);
	}
	r = mce_batch_wait(s->engine, b, reqs, n, lost ? 0 : deadline);
	if (!lost)
		return r;
	mc_metric_add(&given_up, 1);
	return mc_fail(-MC_ESTALE_PUT, "the connection that the put belonged to is gone");
}
