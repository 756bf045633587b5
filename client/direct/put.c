/* SPDX-License-Identifier: Apache-2.0
 * put.c - store objects: reserve at the master, write all replicas, commit.  Refused and failed
 * puts are repeated as long as that can succeed. */
#include <config.h>

#include "client/direct/put_i.h"

#include <errno.h>
#include <time.h>

#include "client/layout.h"
#include "common/fault.h"
#include "common/metrics.h"

/* After this many checks in a row without anything evictable, give up.  One check is not enough:
 * it may fall between two steps of other writers. */
#define HOPELESS_MAX 5
#define BACKOFF_LAST_MS 50
#define RETURN_MS 3000		/* time for owners to find a master that restarted */

MC_COUNTER(again, "mooncake_client_retries_total", "cause=\"put\"", "attempts repeated after a failure")
MC_COUNTER(waits, "mooncake_client_retries_total", "cause=\"full\"", "attempts repeated after a failure")

void mcs_put_done(struct mcs_put_op *op, int result)
{
	op->state = MCS_STEP_DONE;
	op->item->result = result;
	op->item->generation = result || op->item->existed ? 0 : op->generation;
}

void mcs_put_lost(const struct mcs_put_request *b, struct mcs_put_op *op)
{
	op->item->existed = 1;
	mcs_put_done(op, b->flags & MCS_PUT_EXCL ? mc_fail(-MC_EEXISTS, "the key has a value") : 0);
}

void mcs_put_again(struct mcs_put_op *op, int err)
{
	if (++op->tries >= MCS_PUT_TRIES) {
		mcs_put_done(op, err);
		return;
	}
	mc_metric_add(&again, 1);
	op->state = MCS_STEP_RESERVE;
}

static int put_check_item(struct mcs_put_op *op)
{
	struct mcs_put_item *item = op->item;
	int64_t len;
	int r;

	item->existed = 0;
	r = mcs_key_check(item->key);
	if (r < 0)
		return r;
	if (item->group.len > MCP_GROUP_MAX)
		return mc_fail(-MC_EPARAM, "a group's name of %zu bytes", item->group.len);
	len = mcs_iov_len(item->iov, item->iovcnt);
	if (len < 0)
		return (int)len;
	op->size = (uint64_t)len;
	return 0;
}

bool mcs_put_any(const struct mcs_put_request *b, enum mcs_put_step state)
{
	for (unsigned i = 0; i < b->n; i++)
		if (b->ops[i].state == state)
			return true;
	return false;
}

static uint64_t put_smallest_refused(const struct mcs_put_request *b)
{
	uint64_t size = UINT64_MAX;

	for (unsigned i = 0; i < b->n; i++)
		if (b->ops[i].state == MCS_STEP_RESERVE && b->ops[i].size < size)
			size = b->ops[i].size;
	return size;
}

/* Can waiting help a put that found no space?  Not if all free and evictable memory of the pool
 * is less than it needs. */
static bool put_hope(struct mcs_put_request *b)
{
	struct mcp_stats msg = { 0 };
	struct mcp_reply mem = { 0 };
	struct mcp_stats_reply reply;
	uint64_t room;
	bool may;

	if (b->held)
		return true;
	if (mcs_call(b->s->base.session, MCP_STATS, &msg, &reply, &mem, b->deadline) < 0)
		return false;
	/* After a restart of the master its owners come back one after another. */
	room = reply.capacity > reply.used ? reply.capacity - reply.used : 0;
	may = (reply.evictable > 0 && reply.evictable + room >= put_smallest_refused(b)) ||
		mcs_session_young(b->s->base.session, RETURN_MS);
	mcp_reply_done(&mem);
	return may;
}

/* Some puts found no space: wait a little, or fail them. */
static void put_wait_for_room(struct mcs_put_request *b)
{
	uint64_t ms = 1ull << (b->rounds < 6 ? b->rounds : 6), left;

	b->rounds++;
	ms = ms < BACKOFF_LAST_MS ? ms : BACKOFF_LAST_MS;
	left = (uint64_t)mc_deadline_left_ms(b->deadline);
	b->hopeless = put_hope(b) ? 0 : b->hopeless + 1;
	if (b->hopeless >= HOPELESS_MAX || ms >= left || b->flags & MCS_PUT_NO_EVICT) {
		for (unsigned i = 0; i < b->n; i++)
			if (b->ops[i].state == MCS_STEP_RESERVE)
				mcs_put_done(&b->ops[i], b->ops[i].refused);
		return;
	}
	mc_metric_add(&waits, 1);
	mc_sleep_ms(ms);
}

/* A timeout while waiting for space is reported as lack of space. */
static int put_why_not(const struct mcs_put_op *op, int r)
{
	return r == -MC_ETIMEDOUT && op->refused ? op->refused : r;
}

/* Repeat the steps until all puts are done.  Objects stored in one round may be evicted in the next. */
static void put_run(struct mcs_put_request *b)
{
	while (mcs_put_any(b, MCS_STEP_RESERVE)) {
		bool progress;
		int r = mcs_put_reserve(b);

		if (r < 0) {
			for (unsigned i = 0; i < b->n; i++)
				if (b->ops[i].state == MCS_STEP_RESERVE)
					mcs_put_done(&b->ops[i], put_why_not(&b->ops[i], r));
			return;
		}
		progress = mcs_put_any(b, MCS_STEP_WRITE) || mcs_put_any(b, MCS_STEP_COMMIT) ||
			mcs_put_any(b, MCS_STEP_BROKEN);
		if (progress) {
			MC_FAULT_POINT("client.put.after_start");
			mcs_put_write(b);
			MC_FAULT_POINT("client.put.after_write");
			mcs_put_commit(b);
		}
		if (mcs_put_any(b, MCS_STEP_RESERVE) && !progress)
			put_wait_for_room(b);
		else
			b->hopeless = 0;
	}
}

/* One request's items.  0, or -ENOMEM: all items have that result. */
static int put_request(struct mcs_direct *s, struct mcs_put_item *items, unsigned n,
		       const struct mcs_put_opts *opts, const struct mcs_dedup *dedup, uint64_t deadline)
{
	const char *own[2];
	struct mcs_put_request b = {
		.s = s, .n = n, .deadline = deadline,
		.flags = opts->flags,
		.replicas = opts->replicas ? opts->replicas : 1,
		.soft_pin_ms = opts->soft_pin_ms,
		.kind = opts->kind,
		.soft_pin = mcs_put_soft_pin(opts),
		.data_type = (uint8_t)opts->data_type,
		.group = opts->group,
		.attrs = mcs_attrs_wire(opts->attrs),
		.preferred = mcs_put_preferred(s, opts, own),
		.nof_replicas = opts->flags & MCS_PUT_NOF ? opts->nof_replicas : 0,
		.preferred_nof = opts->flags & MCS_PUT_NOF ? opts->preferred_nof : NULL,
		.sc = mcs_scratch_get(s->base.scratch),
	};

	b.ops = b.sc ? mcs_scratch_alloc(b.sc, n, sizeof(*b.ops)) : NULL;
	for (unsigned i = 0; i < n && b.ops; i++) {
		int r;

		b.ops[i].item = &items[i];
		r = put_check_item(&b.ops[i]);
		if (r < 0 || mcs_dedup_skip(dedup, &items[i]))
			mcs_put_done(&b.ops[i], r);
	}
	if (b.ops)
		put_run(&b);
	for (unsigned i = 0; i < n && !b.ops; i++)
		items[i].result = -ENOMEM;
	mcs_scratch_put(s->base.scratch, b.sc);
	return b.ops ? 0 : -ENOMEM;
}

int mcs_direct_put_batch(struct mcs_backend *b, struct mcs_put_item *items, unsigned n,
			 const struct mcs_dedup *dedup, const struct mcs_put_opts *opts, uint64_t deadline)
{
	uint64_t began = mc_now_ns();
	int r = 0;

	for (unsigned i = 0; i < n && r >= 0;) {
		unsigned k = mcs_batch_split(n - i, &items[i].key, sizeof(*items));

		r = put_request(mcs_direct_of(b), items + i, k, opts, dedup, deadline);
		i += k;
		for (unsigned j = i; j < n && r < 0; j++) {
			items[j].result = r;
			items[j].existed = 0;
		}
	}
	mcs_dedup_settle(dedup, items);
	mcs_puts_count(items, n, began);
	return r;
}
