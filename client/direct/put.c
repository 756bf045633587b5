/* SPDX-License-Identifier: Apache-2.0
 * put.c - store objects: reserve at the master, write all replicas, commit.  Puts that were refused
 * or broken go round again as long as that has a chance. */
#include <config.h>

#include "client/direct/put_i.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "client/direct/layout.h"
#include "client/direct/batch_dedup.h"
#include "common/fault.h"
#include "common/metrics.h"

/* A pool that shows nothing evictable may do so between two steps of other writers. */
#define HOPELESS_MAX 5
#define BACKOFF_LAST_MS 50
#define RETURN_MS 3000		/* for owners to find a master that restarted */

MC_COUNTER(asked, "mooncake_client_puts_total", "", "objects to be stored")
MC_COUNTER(existed, "mooncake_client_puts_existed_total", "", "puts of keys that had a value")
MC_COUNTER(errors, "mooncake_client_put_errors_total", "", "puts that failed")
MC_COUNTER(bytes, "mooncake_client_put_bytes_total", "", "bytes taken from callers")
MC_COUNTER(again, "mooncake_client_retries_total", "cause=\"put\"",
	   "attempts repeated after a failure")
MC_COUNTER(waits, "mooncake_client_retries_total", "cause=\"full\"",
	   "attempts repeated after a failure")
MC_HISTOGRAM(latency, "mooncake_client_put_seconds", "", "time of put calls", 1e-9)

void mcs_put_done(struct mcs_put_op *op, int result)
{
	op->state = MCS_STEP_DONE;
	op->item->result = result;
}

/* The key has a value that this put must not replace. */
void mcs_put_lost(const struct mcs_put_group *b, struct mcs_put_op *op)
{
	op->item->existed = 1;
	mcs_put_done(op, b->flags & MCS_PUT_EXCL ?
		     mc_fail(-MC_EEXISTS, "the key has a value") : 0);
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

static int check_item(struct mcs_put_op *op)
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

static bool any(const struct mcs_put_group *b, enum mcs_put_step state)
{
	for (unsigned i = 0; i < b->n; i++)
		if (b->ops[i].state == state)
			return true;
	return false;
}

static uint64_t smallest_refused(const struct mcs_put_group *b)
{
	uint64_t size = UINT64_MAX;

	for (unsigned i = 0; i < b->n; i++)
		if (b->ops[i].state == MCS_STEP_RESERVE && b->ops[i].size < size)
			size = b->ops[i].size;
	return size;
}

/* Would waiting help a put that found no room?  Not when all that is free or may be evicted, in the
 * whole pool, is less than it needs. */
static bool hope(struct mcs_put_group *b)
{
	struct mcp_stats msg = { 0 };
	struct mcp_reply mem = { 0 };
	struct mcp_stats_reply reply;
	uint64_t room;
	bool may;

	if (b->held)
		return true;
	if (mcs_call(b->s->session, MCP_STATS, &msg, &reply, &mem, b->deadline) < 0)
		return false;
	/* After a restart of the master its owners come one after another. */
	room = reply.capacity > reply.used ? reply.capacity - reply.used : 0;
	may = (reply.evictable > 0 && reply.evictable + room >= smallest_refused(b)) ||
		mcs_session_young(b->s->session, RETURN_MS);
	mcp_reply_done(&mem);
	return may;
}

/* Puts that found no room: wait a little, or let them fail. */
static void wait_for_room(struct mcs_put_group *b)
{
	uint64_t ms = 1ull << (b->rounds < 6 ? b->rounds : 6), left;
	struct timespec t;

	b->rounds++;
	ms = ms < BACKOFF_LAST_MS ? ms : BACKOFF_LAST_MS;
	left = (uint64_t)mc_deadline_left_ms(b->deadline);
	b->hopeless = hope(b) ? 0 : b->hopeless + 1;
	if (b->hopeless >= HOPELESS_MAX || ms >= left) {
		for (unsigned i = 0; i < b->n; i++)
			if (b->ops[i].state == MCS_STEP_RESERVE)
				mcs_put_done(&b->ops[i], b->ops[i].refused);
		return;
	}
	mc_metric_add(&waits, 1);
	t = (struct timespec){ .tv_nsec = (long)(ms * MC_NS_PER_MS) };
	nanosleep(&t, NULL);
}

/* Time that ran out while waiting for room is a lack of room. */
static int why_not(const struct mcs_put_op *op, int r)
{
	return r == -MC_ETIMEDOUT && op->refused ? op->refused : r;
}

/* Round and round until all are done.  Objects written in one round make room for the next. */
static void run(struct mcs_put_group *b)
{
	while (any(b, MCS_STEP_RESERVE)) {
		bool progress;
		int r = mcs_put_reserve(b);

		if (r < 0) {
			for (unsigned i = 0; i < b->n; i++)
				if (b->ops[i].state == MCS_STEP_RESERVE)
					mcs_put_done(&b->ops[i], why_not(&b->ops[i], r));
			return;
		}
		progress = any(b, MCS_STEP_WRITE) || any(b, MCS_STEP_COMMIT) ||
			any(b, MCS_STEP_BROKEN);
		if (progress) {
			MC_FAULT_POINT("client.put.after_start");
			mcs_put_write(b);
			MC_FAULT_POINT("client.put.after_write");
			mcs_put_commit(b);
		}
		if (any(b, MCS_STEP_RESERVE) && !progress)
			wait_for_room(b);
		else
			b->hopeless = 0;
	}
}

static enum mcs_soft_pin soft_pin_of(const struct mcs_put_opts *opts)
{
	return opts->flags & MCS_PUT_SOFT_PIN ? MCS_SOFT_PIN_ENABLE : opts->soft_pin;
}

static const char *const *default_preferred(struct mcs *s, const char **own)
{
	own[0] = s->owner ? mce_engine_endpoint(s->engine) : NULL;
	own[1] = NULL;
	return own;
}

/* Everything that stores comes through here. */
static int put_group(struct mcs *s, struct mcs_put_item *items, unsigned n,
		     const struct mcs_put_opts *opts, const struct mcs_dedup *tw, uint64_t deadline)
{
	const char *own[2];
	struct mcs_put_group b = {
		.s = s, .n = n, .deadline = deadline,
		.flags = opts->flags,
		.replicas = opts->replicas ? opts->replicas : 1,
		.soft_pin_ms = opts->soft_pin_ms,
		.kind = opts->kind,
		.soft_pin = soft_pin_of(opts),
		.data_type = (uint8_t)opts->data_type,
		.group = opts->group,
		.preferred = opts->preferred ? opts->preferred : default_preferred(s, own),
		.sc = mcs_scratch_get(&s->scratch),
	};
	int ok = 0;

	b.ops = b.sc ? mcs_scratch_alloc(b.sc, n, sizeof(*b.ops)) : NULL;
	for (unsigned i = 0; i < n && b.ops; i++) {
		int r;

		b.ops[i].item = &items[i];
		r = check_item(&b.ops[i]);
		if (r < 0 || mcs_dedup_skip(tw, &items[i]))
			mcs_put_done(&b.ops[i], r);
	}
	if (b.ops)
		run(&b);
	for (unsigned i = 0; i < n; i++) {
		if (!b.ops)
			items[i].result = -ENOMEM;
		ok += !items[i].result;
	}
	mcs_scratch_put(&s->scratch, b.sc);
	return b.ops ? ok : -ENOMEM;
}

static int check_opts(const struct mcs_put_opts *opts)
{
	const unsigned all = MCS_PUT_UPSERT | MCS_PUT_HARD_PIN | MCS_PUT_SOFT_PIN | MCS_PUT_EXCL |
		MCS_PUT_ALL_REPLICAS | MCS_PUT_SAME_NODE | MCS_PUT_LAST;

	if (opts->flags & ~all)
		return mc_fail(-MC_EPARAM, "unknown put flags 0x%x", opts->flags & ~all);
	if ((opts->flags & MCS_PUT_UPSERT) && (opts->flags & MCS_PUT_EXCL))
		return mc_fail(-MC_EPARAM, "a put is either UPSERT or EXCL");
	if (opts->replicas > UINT16_MAX)
		return mc_fail(-MC_EPARAM, "%u replicas", opts->replicas);
	if ((unsigned)opts->kind > MCS_SYMLINK)
		return mc_fail(-MC_EPARAM, "unknown kind %u", (unsigned)opts->kind);
	if ((unsigned)opts->data_type >= MCP_DATA_TYPES)
		return mc_fail(-MC_EPARAM, "unknown data type %u", (unsigned)opts->data_type);
	if ((unsigned)opts->soft_pin > MCS_SOFT_PIN_DISABLE ||
	    ((opts->flags & MCS_PUT_SOFT_PIN) && opts->soft_pin == MCS_SOFT_PIN_DISABLE))
		return mc_fail(-MC_EPARAM, "contradictory or unknown soft pin");
	if (opts->group.len > MCP_GROUP_MAX)
		return mc_fail(-MC_EPARAM, "a group's name of %zu bytes", opts->group.len);
	return 0;
}

static struct mcs_key key_of(const void *items, unsigned i)
{
	return ((const struct mcs_put_item *)items)[i].key;
}

static void count(const struct mcs_put_item *items, unsigned n, uint64_t began_ns)
{
	int64_t bad = 0, old = 0, sum = 0;

	for (unsigned i = 0; i < n; i++) {
		bad += items[i].result < 0;
		old += items[i].existed;
		if (!items[i].result && !items[i].existed)
			sum += mcs_iov_len(items[i].iov, items[i].iovcnt);
	}
	mc_metric_add(&asked, n);
	mc_metric_add(&errors, bad);
	mc_metric_add(&existed, old);
	mc_metric_add(&bytes, sum);
	mc_metric_observe(&latency, mc_now_ns() - began_ns);
}

/* A put that was done already is success when it is repeated, but where that would be an error: then the
 * daemon is looked at before. */
static int put_by_node(struct mcs *s, struct mcs_put_item *items, unsigned n,
		       const struct mcs_put_opts *opts, uint64_t deadline)
{
	bool excl = opts->flags & MCS_PUT_EXCL;
	struct mcs *alone = mcs_daemon_bypass(s);
	bool lost = false;
	int r = 0;

	if (!alone && excl && mcs_daemon_found(s->node) && !mcs_daemon_up(s->node))
		alone = mcs_daemon_alone(s, -MC_ERPC);
	if (!alone) {
		r = mcs_daemon_put_batch(s, items, n, opts, deadline);
		for (unsigned i = 0; i < n && !excl; i++)
			lost = lost || items[i].result == -MC_ERPC;
		alone = lost ? mcs_daemon_alone(s, -MC_ERPC) : NULL;
	}
	return alone ? mcs_put_batch(alone, items, n, opts, mc_deadline_left_ms(deadline)) : r;
}

int mcs_put_batch(struct mcs *s, struct mcs_put_item *items, unsigned n,
		  const struct mcs_put_opts *opts, int64_t timeout_ms)
{
	static const struct mcs_put_opts defaults;
	uint64_t began = mc_now_ns(), deadline = mcs_deadline(s, timeout_ms);
	struct mcs_scratch *sc = NULL;
	struct mcs_dedup tw = { 0 };
	int r, ok = 0;

	opts = opts ? opts : &defaults;
	r = mcs_check_fork(s);
	if (!r)
		r = check_opts(opts);
	if (!r && s->node)
		return put_by_node(s, items, n, opts, deadline);
	if (!r && n > 1)
		sc = mcs_scratch_get(&s->scratch);
	if (!r && n > 1)
		r = sc ? mcs_dedup_find(sc, items, n, opts->flags & MCS_PUT_LAST, &tw) : -ENOMEM;
	for (unsigned i = 0; i < n && r < 0; i++) {
		items[i].result = r;
		items[i].existed = 0;
	}
	for (unsigned i = 0; i < n && r >= 0;) {
		unsigned k = mcs_batch_split(n - i, key_of, items + i);

		r = put_group(s, items + i, k, opts, &tw, deadline);
		ok += r > 0 ? r : 0;
		i += k;
		for (unsigned j = i; j < n && r < 0; j++) {
			items[j].result = r;
			items[j].existed = 0;
		}
	}
	ok += mcs_dedup_settle(&tw, items);
	mcs_scratch_put(&s->scratch, sc);
	count(items, n, began);
	return r < 0 && !ok ? r : ok;
}

int mcs_put(struct mcs *s, struct mcs_key key, const struct iovec *iov, int iovcnt,
	    const struct mcs_put_opts *opts, int64_t timeout_ms)
{
	struct mcs_put_item item = { .key = key, .iov = iov, .iovcnt = iovcnt };

	(void)mcs_put_batch(s, &item, 1, opts, timeout_ms);
	return item.result;
}

int mcs_upsert_batch(struct mcs *s, struct mcs_put_item *items, unsigned n,
		     const struct mcs_put_opts *opts, int64_t timeout_ms)
{
	struct mcs_put_opts o = { 0 };

	if (opts)
		o = *opts;
	o.flags |= MCS_PUT_UPSERT;
	return mcs_put_batch(s, items, n, &o, timeout_ms);
}

int mcs_upsert(struct mcs *s, struct mcs_key key, const struct iovec *iov, int iovcnt,
	       const struct mcs_put_opts *opts, int64_t timeout_ms)
{
	struct mcs_put_item item = { .key = key, .iov = iov, .iovcnt = iovcnt };

	(void)mcs_upsert_batch(s, &item, 1, opts, timeout_ms);
	return item.result;
}
