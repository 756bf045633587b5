/* SPDX-License-Identifier: Apache-2.0
 * sweeper.c - the thread that waits for slow named media: it deletes ranges that are not in use, and mounts their
 * segments if the identity has to be written first. */
#include <config.h>

#include "client/owner/sweeper.h"

#include <errno.h>
#include <stdlib.h>

#include "client/owner/owner.h"
#include "common/cleanup.h"
#include "common/env.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/sys/thread.h"

#define CALL_MS 20000		/* the master walks over all ranges of the segment */
#define LOOK_MS 500		/* between two looks for ranges of removed objects */
#define RETRY_MS 5000		/* after a sweep of everything that failed */

struct mcs_sweeper {
	/* constant after start */
	struct mcs_direct *s;
	uint64_t period_ms;
	struct mc_thread thread;
	struct mc_stop stop;
	/* used by the thread only */
	uint64_t mount_ms;		/* no mount before */
	bool mount_failed;
};

struct question {
	struct mcs_sweeper *w;
	const struct mcs_own_segment_unused *at;
};

/* Ask the master. */
static int sweeper_used(void *arg, const uint64_t *off, size_t n, bool *ret)
{
	const struct question *q = arg;
	auto_free struct mcp_used_item *place = malloc((n + 1) * sizeof(*place));
	struct mcp_used msg = { .segment = q->at->segment, .epoch = q->at->epoch };
	struct mcp_used_reply reply;
	struct mcp_reply mem = { 0 };
	int r = place ? mc_fault("client.sweep.ask") : -ENOMEM;

	if (r == 0 && mc_stop_wait(&q->w->stop, 0))
		r = -ECANCELED;
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++)
		place[i].offset = off[i];
	msg.places = mcp_seq(place, (uint32_t)n);
	r = mcs_call(q->w->s->base.session, MCP_USED, &msg, &reply, &mem, mc_deadline_ms(CALL_MS));
	if (r < 0)
		return r;
	if (reply.used.len != n)
		r = mc_fail(-MC_EPROTO, "protocol error: %u answers to a question about %zu ranges", reply.used.len, n);
	for (size_t i = 0; i < n && r == 0; i++)
		ret[i] = ((const uint8_t *)reply.used.data)[i];
	mcp_reply_done(&mem);
	return r;
}

/* @all: everything.  A negative result: try again. */
static int sweeper_run(struct mcs_sweeper *w, bool all)
{
	struct mcs_segments *segments = mcs_owner_of(w->s)->segments;
	struct mcs_own_segment_unused at;
	int r = 0;

	for (unsigned i = 0; mcs_segments_unused_take(segments, i, &at); i++) {
		auto_free uint64_t *off = at.off;
		struct question q = { w, &at };
		int one = 0;

		if (at.medium && (all || at.all))
			one = at.medium->ops->sweep(at.medium, NULL, 0, sweeper_used, &q);
		else if (at.medium && at.n)
			one = at.medium->ops->sweep(at.medium, off, at.n, sweeper_used, &q);
		/* The segment is given up, with a line in the log. */
		if (one == -ESTALE && mcs_segments_hold(segments, w->s->base.session, at.segment,
							mc_deadline_ms(CALL_MS)) == -ESTALE)
			one = 0;
		r = one < 0 ? one : r;
	}
	return r;
}

static void sweeper_mount(struct mcs_sweeper *w)
{
	struct mcs_session *session = w->s->base.session;
	struct mcs_segments *segments = mcs_owner_of(w->s)->segments;
	struct mcs_terms terms;
	int r;

	if (mc_now_ms() < w->mount_ms || !mcs_session_up(session) || !mcs_segments_named_due(segments))
		return;
	/* After the wish: not older than the connection that it is for. */
	terms = mcs_session_terms(session);
	r = mcs_segments_mount(segments, NULL, session, mcs_session_pool(session), &terms, mc_deadline_ms(CALL_MS),
			       MCS_SEGMENTS_NAMED);
	if (r == 0 && w->mount_failed)
		mc_info("client", "the S3 segment is mounted");
	if (r == 0)
		w->mount_failed = false;
	if (r < 0)
		mcs_segments_named_later(segments);
	/* An earlier writer has not ended, or the master restarts: soon. */
	if (r == 0 || r == -MC_EUNAVAILABLE || r == -MC_ENOTREADY)
		return;
	if (!w->mount_failed)
		mc_warn("client", "the S3 segment is not mounted, will retry: %s", mc_err_detail(r));
	w->mount_failed = true;
	w->mount_ms = mc_now_ms() + RETRY_MS;
}

static void *sweeper_main(void *arg)
{
	struct mcs_sweeper *w = arg;
	uint64_t next_ms = 0;
	bool was_good = true;

	mc_thread_background();
	while (!mc_stop_wait(&w->stop, LOOK_MS)) {
		bool all = mc_now_ms() >= next_ms;
		int r;

		sweeper_mount(w);
		r = mcs_session_up(w->s->base.session) ? sweeper_run(w, all) : -MC_EUNAVAILABLE;

		if (r == -ECANCELED)
			continue;
		if (r < 0 && was_good && r != -MC_ENOTREADY && r != -MC_EUNAVAILABLE)
			mc_warn("client", "cannot delete unused ranges in S3, will retry: %s", mc_err_detail(r));
		was_good = r >= 0 && (all || was_good);
		if (all || r < 0)
			next_ms = mc_now_ms() + (r < 0 ? RETRY_MS : w->period_ms);
	}
	return NULL;
}

int mcs_sweeper_start(struct mcs_direct *s, struct mcs_sweeper **ret)
{
	struct mcs_sweeper *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return -ENOMEM;
	w->s = s;
	w->period_ms = (uint64_t)mc_env_int("MC_S3_SWEEP_SECONDS", 300, 1, 86400) * 1000;
	r = mc_stop_start(&w->stop, &w->thread, "mcs-sweep", sweeper_main, w);
	if (r < 0) {
		free(w);
		return r;
	}
	*ret = w;
	return 0;
}

void mcs_sweeper_stop(struct mcs_sweeper *w)
{
	if (!w)
		return;
	mc_stop_set(&w->stop);
	/* Not after a sweep of a large bucket, which takes minutes. */
	mcs_segments_sweep_stop(mcs_owner_of(w->s)->segments);
	mc_stop_join(&w->stop, w->thread);
	free(w);
}
