/* SPDX-License-Identifier: Apache-2.0
 * store_put.c - the public calls that store objects. */
#include <config.h>

#include <errno.h>

#include "client/layout.h"
#include "client/store_i.h"
#include "common/env.h"
#include "common/metrics.h"

MC_COUNTER(asked, "mooncake_client_puts_total", "", "objects to be stored")
MC_COUNTER(existed, "mooncake_client_puts_existed_total", "", "puts of keys that had a value")
MC_COUNTER(errors, "mooncake_client_put_errors_total", "", "puts that failed")
MC_COUNTER(bytes, "mooncake_client_put_bytes_total", "", "bytes taken from callers")
MC_HISTOGRAM(latency, "mooncake_client_put_seconds", "", "time of put calls", 1e-9)

static const struct mcs_put_opts put_defaults;

#define PUT_FLAGS (MCS_PUT_UPSERT | MCS_PUT_HARD_PIN | MCS_PUT_SOFT_PIN | MCS_PUT_EXCL | MCS_PUT_ALL_REPLICAS | \
		   MCS_PUT_SAME_NODE | MCS_PUT_LAST | MCS_PUT_NO_EVICT | MCS_PUT_NOF)

/* A put with another flag. */
static int put_check_rare(unsigned flags)
{
	flags &= ~PUT_FLAGS;
	if (flags & ~MCS_PUT_DFS)
		return mc_fail(-MC_EPARAM, "unknown put flags 0x%x", flags & ~MCS_PUT_DFS);
	return mc_env_dfs() ? 0 : mc_fail(-MC_ENODFS, "MCS_PUT_DFS needs a shared directory: set "
					  "MOONCAKE_ENABLE_DFS=1, here and for the owners of memory");
}

static int put_check_opts(const struct mcs_put_opts *opts)
{
	if (opts->flags & ~PUT_FLAGS) {
		int r = put_check_rare(opts->flags);

		if (r < 0)
			return r;
	}
	if ((opts->flags & MCS_PUT_UPSERT) && (opts->flags & MCS_PUT_EXCL))
		return mc_fail(-MC_EPARAM, "a put is either UPSERT or EXCL");
	if (opts->replicas > UINT16_MAX)
		return mc_fail(-MC_EPARAM, "%u replicas", opts->replicas);
	if (opts->flags & MCS_PUT_NOF && opts->nof_replicas > MCS_NOF_REPLICAS_MAX)
		return mc_fail(-MC_EPARAM, "%u copies on NoF disks, %u at most", opts->nof_replicas,
			       MCS_NOF_REPLICAS_MAX);
	if ((unsigned)opts->kind > MCS_SPECIAL)
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

void mcs_puts_count(const struct mcs_put_item *items, unsigned n, uint64_t began_ns)
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

/* Run the batch; on another back end once more if the first one lost puts. */
static int put_run(struct mcs *s, struct mcs_put_item *items, unsigned n, const struct mcs_dedup *dedup,
		   const struct mcs_put_opts *opts, uint64_t deadline)
{
	struct mcs_backend *b = mcs_backend_get(s);
	bool excl = opts->flags & MCS_PUT_EXCL, lost;
	int r;

	/* A repeated put succeeds if the first attempt stored the value.  With EXCL that would
	 * be an error, so check the back end before, and do not repeat. */
	if (excl)
		(void)mcs_backend_replace(s, &b, -MC_ERPC);
	do {
		r = b->ops->put_batch(b, items, n, dedup, opts, deadline);
		lost = false;
		for (unsigned i = 0; i < n && !excl; i++)
			lost = lost || items[i].result == -MC_ERPC;
	} while (lost && mcs_backend_replace(s, &b, -MC_ERPC));
	return r;
}

int mcs_put_batch(struct mcs *s, struct mcs_put_item *items, unsigned n,
		  const struct mcs_put_opts *opts, int64_t timeout_ms)
{
	uint64_t deadline = mcs_deadline(s, timeout_ms);
	struct mcs_scratch *sc = NULL;
	struct mcs_dedup dedup = { 0 };
	int r, ok = 0;

	opts = opts ? opts : &put_defaults;
	for (unsigned i = 0; i < n; i++)
		items[i].generation = 0;
	r = mcs_check_fork(s);
	if (r == 0)
		r = put_check_opts(opts);
	if (r == 0 && n > 1) {
		sc = mcs_scratch_get(&s->scratch);
		r = sc ? mcs_dedup_find(sc, items, n, opts->flags & MCS_PUT_LAST, &dedup) : -ENOMEM;
	}
	for (unsigned i = 0; i < n && r < 0; i++) {
		items[i].result = r;
		items[i].existed = 0;
	}
	if (r == 0)
		r = put_run(s, items, n, &dedup, opts, deadline);
	else
		mcs_puts_count(items, n, mc_now_ns());
	mcs_scratch_put(&s->scratch, sc);
	for (unsigned i = 0; i < n; i++)
		ok += !items[i].result;
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
	struct mcs_put_opts o = opts ? *opts : put_defaults;

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

int mcs_stream_open(struct mcs *s, struct mcs_key key, uint64_t room, const struct mcs_put_opts *opts,
		    struct mcs_put_stream **ret, int64_t timeout_ms)
{
	uint64_t deadline = mcs_deadline(s, timeout_ms);
	int r = mcs_check_fork(s);

	if (!r)
		r = mcs_key_check(key);
	if (r < 0)
		return r;
	if (!room || room > MCS_SIZE_MAX)
		return mc_fail(-MC_EPARAM, "room for %llu bytes", (unsigned long long)room);
	if (opts && opts->flags & MCS_PUT_NOF)
		return mc_fail(-MC_ENOTSUP, "a stream makes no copies on NoF disks: use mcs_put()");
	/* Not of a fallback: whether a handle has streams must not change. */
	return s->backend->ops->put_stream_open(s->backend, key, room, opts ? opts : &put_defaults, ret, deadline);
}
