/* SPDX-License-Identifier: Apache-2.0
 * get.c - read objects by key: ask the master, read, check, and go round again when that failed. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/direct/layout.h"
#include "client/direct/read.h"
#include "common/fault.h"
#include "common/metrics.h"

/* How often a read follows a key to a newer version, or asks again after failures. */
#define ROUNDS_MAX 16

MC_COUNTER(gets, "mooncake_client_gets_total", "", "objects asked for")
MC_COUNTER(hits, "mooncake_client_get_hits_total", "", "objects read")
MC_COUNTER(misses, "mooncake_client_get_misses_total", "", "objects that were not there")
MC_COUNTER(errors, "mooncake_client_get_errors_total", "", "objects that could not be read")
MC_COUNTER(bytes, "mooncake_client_get_bytes_total", "", "bytes given to callers")
MC_COUNTER(again, "mooncake_client_retries_total", "cause=\"read\"",
	   "attempts repeated after a failure")
MC_HISTOGRAM(latency, "mooncake_client_get_seconds", "", "time of get calls", 1e-9)

enum state { ASK, READ, DONE };

/* Who provides the memory; alloc NULL: the items' iov. */
struct provider {
	mcs_alloc_fn alloc;
	void *arg;
};

struct op {
	struct mcs_get_item *item;
	const struct provider *provider;
	unsigned index;		/* of the item in the caller's batch */
	struct iovec alloc_iov;
	enum state state;
	unsigned rounds;
	struct mcs_version v;
	struct mcs_part part;
};

static void done(struct op *op, int64_t result)
{
	op->state = DONE;
	op->item->result = result;
}

/* Decide what of the version to read, and where to. */
static int place(struct mcs *s, struct op *op)
{
	struct mcs_get_item *item = op->item;
	uint64_t size = op->v.info.size, offset = item->whole ? 0 : item->offset;
	int64_t room;

	if (op->provider->alloc) {
		void *p = op->provider->alloc(op->provider->arg, op->index, size);

		if (!p)
			return -ENOMEM;
		op->alloc_iov = (struct iovec){ p, size };
		item->iov = &op->alloc_iov;
		item->iovcnt = 1;
	}
	room = mcs_iov_len(item->iov, item->iovcnt);
	if (room < 0)
		return (int)room;
	if (item->whole && (uint64_t)room < size)
		return mc_fail(-ENOBUFS, "object has %llu bytes, the buffers hold %lld",
			       (unsigned long long)size, (long long)room);
	op->part = (struct mcs_part){
		.v = &op->v, .offset = offset,
		.iov = item->iov, .iovcnt = item->iovcnt,
		.unverified = !s->conf.verify,
	};
	if (offset < size)
		op->part.len = size - offset < (uint64_t)room ? size - offset : (uint64_t)room;
	return 0;
}

/* The master's answer for one key. */
static void answered(struct mcs *s, struct op *op, const struct mcp_object *obj, uint64_t epoch,
		     uint64_t asked_ns)
{
	struct mcs_version v;
	bool same;
	int r = mcs_version_decode(obj, epoch, asked_ns, &v);

	if (r < 0) {
		done(op, r);
		return;
	}
	same = op->rounds > 1 && mcs_version_same(&op->v, &v);
	op->v = v;
	/* The same version again: what failed stays known. */
	if (!same) {
		r = place(s, op);
		if (r < 0) {
			done(op, r);
			return;
		}
	}
	if (!op->part.len)
		done(op, 0);
	else if (!mcs_part_left(&op->part, true))
		done(op, op->v.n ? mcs_part_verdict(&op->part) : -MC_EREPLICA_GONE);
	else
		op->state = READ;
}

/* Look up all that are to be asked for.  @pins gets what was granted. */
static int ask(struct mcs *s, struct mcs_scratch *sc, struct op *ops, unsigned n,
	       struct mcs_pin *pins, unsigned *ret_pins, uint64_t deadline)
{
	struct mcp_key *keys = mcs_scratch_raw(sc, n, sizeof(*keys));
	struct mcp_get msg = { .flags = MCP_GET_LEASE, .tenant = s->tenant };
	uint64_t epoch, asked_ns = mc_now_ns();
	struct mcp_reply mem = { 0 };
	struct mcp_get_reply reply;
	struct mcp_object obj;
	struct mcp_iter it;
	unsigned k = 0;
	int r;

	if (!keys)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++)
		if (ops[i].state == ASK)
			keys[k++].key = mcp_bytes(ops[i].item->key.data,
						  (uint32_t)ops[i].item->key.len);
	msg.keys = mcp_seq(keys, k);
	/* Pins of an unknown connection are not believed in, and run out by themselves: on another one
	 * their numbers are somebody else's. */
	r = mcs_call_pins(s->session, MCP_GET, &msg, &reply, &mem, deadline, false, &epoch);
	if (r < 0)
		return r;
	*ret_pins = 0;
	mcp_iter_init(&it, &reply.objects, &mcp_desc_object);
	for (unsigned i = 0; i < n; i++) {
		if (ops[i].state != ASK)
			continue;
		ops[i].rounds++;
		if (!mcp_iter_next(&it, &obj)) {
			done(&ops[i], mc_fail(-MC_EPROTO, "master answered for too few keys"));
			continue;
		}
		answered(s, &ops[i], &obj, epoch, asked_ns);
		if (!obj.status && obj.pin)
			pins[(*ret_pins)++] = (struct mcs_pin){ obj.pin, epoch };
	}
	mcp_reply_done(&mem);
	mcs_leases_granted((int)*ret_pins);
	return 0;
}

/* What to do after an attempt. */
static void settle(struct op *op, uint64_t deadline)
{
	struct mcs_part *p = &op->part;

	if (!p->status) {
		done(op, (int64_t)p->len);
		return;
	}
	if (p->status == -ENOMEM) {
		done(op, p->status);
		return;
	}
	if (mc_now_ns() >= deadline) {
		done(op, p->status == -MC_ECHECKSUM ? p->status :
			 mc_fail(-MC_ETIMEDOUT, "read did not end in time"));
		return;
	}
	mc_metric_add(&again, 1);
	/* A mismatch may mean that the version is gone, so the master is asked.  A replica that
	 * cannot be reached says nothing about the others. */
	if (p->status != -EAGAIN &&
	    (p->status == -MC_ECHECKSUM || !mcs_part_left(p, false)))
		op->state = ASK;
	if (op->rounds >= ROUNDS_MAX)
		done(op, mcs_part_verdict(p));
}

static unsigned gather(struct op *ops, unsigned n, struct mcs_part **parts)
{
	unsigned k = 0;

	for (unsigned i = 0; i < n; i++)
		if (ops[i].state == READ)
			parts[k++] = &ops[i].part;
	return k;
}

/* Read what the last question found; the leases are held from begin to end of it. */
static void read_found(struct mcs *s, struct mcs_scratch *sc, struct op *ops, unsigned n,
		       struct mcs_part **parts, uint64_t deadline)
{
	unsigned k;

	while ((k = gather(ops, n, parts)) > 0) {
		mcs_read(s, sc, parts, k, deadline);
		for (unsigned i = 0; i < n; i++)
			if (ops[i].state == READ)
				settle(&ops[i], deadline);
	}
}

static bool any_to_ask(const struct op *ops, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (ops[i].state == ASK)
			return true;
	return false;
}

static int run(struct mcs *s, struct mcs_scratch *sc, struct op *ops, unsigned n,
	       uint64_t deadline)
{
	struct mcs_part **parts = mcs_scratch_raw(sc, n, sizeof(struct mcs_part *));
	struct mcs_pin *pins = mcs_scratch_raw(sc, n, sizeof(*pins));
	struct mcs_reading reading;
	unsigned n_pins;
	int r;

	if (!parts || !pins)
		return -ENOMEM;
	while (any_to_ask(ops, n)) {
		uint64_t asked_ns = mc_now_ns();

		r = ask(s, sc, ops, n, pins, &n_pins, deadline);
		if (r < 0)
			return r;
		mcs_leases_begin(&s->leases, &reading, pins, n_pins, asked_ns);
		MC_FAULT_POINT("client.get.after_query");
		read_found(s, sc, ops, n, parts, deadline);
		mcs_leases_end(&s->leases, &reading);
	}
	return 0;
}

/* Everything that gets by key comes through here. */
static int get_group(struct mcs *s, struct mcs_get_item *items, unsigned n, unsigned first,
		     const struct provider *provider, uint64_t deadline)
{
	struct mcs_scratch *sc = mcs_scratch_get(&s->scratch);
	struct op *ops = sc ? mcs_scratch_alloc(sc, n, sizeof(*ops)) : NULL;
	int r = ops ? 0 : -ENOMEM, ok = 0;

	for (unsigned i = 0; i < n && ops; i++) {
		ops[i].item = &items[i];
		ops[i].provider = provider;
		ops[i].index = first + i;
		r = mcs_key_check(items[i].key);
		if (r < 0)
			done(&ops[i], r);
	}
	r = ops ? run(s, sc, ops, n, deadline) : -ENOMEM;
	for (unsigned i = 0; i < n; i++) {
		if (!ops || ops[i].state != DONE)
			items[i].result = r;
		ok += items[i].result >= 0;
	}
	mcs_scratch_put(&s->scratch, sc);
	return r < 0 && !ok ? r : ok;
}

static void count(const struct mcs_get_item *items, unsigned n, uint64_t began_ns)
{
	int64_t hit = 0, miss = 0, sum = 0;

	for (unsigned i = 0; i < n; i++) {
		hit += items[i].result >= 0;
		miss += items[i].result == -MC_ENOOBJECT;
		sum += items[i].result > 0 ? items[i].result : 0;
	}
	mc_metric_add(&gets, n);
	mc_metric_add(&hits, hit);
	mc_metric_add(&misses, miss);
	mc_metric_add(&errors, n - hit - miss);
	mc_metric_add(&bytes, sum);
	mc_metric_observe(&latency, mc_now_ns() - began_ns);
}

static struct mcs_key key_of(const void *items, unsigned i)
{
	return ((const struct mcs_get_item *)items)[i].key;
}

/* Those that have no answer, with their places in the batch. */
static int get_rest(struct mcs *alone, struct mcs_get_item *items, unsigned n,
		    const struct provider *provider, uint64_t deadline)
{
	unsigned from, to;
	int r = 0, ok = 0;

	for (from = 0; from < n && r >= 0; from = to) {
		unsigned most;

		to = from + 1;
		if (items[from].result != -MC_ERPC)
			continue;
		most = mcs_batch_split(n - from, key_of, items + from);
		while (to < n && to - from < most && items[to].result == -MC_ERPC)
			to++;
		r = get_group(alone, items + from, to - from, from, provider, deadline);
	}
	for (unsigned i = 0; i < n; i++)
		ok += items[i].result >= 0;
	return r < 0 && !ok ? r : ok;
}

static int get_by_node(struct mcs *s, struct mcs_get_item *items, unsigned n,
		       const struct provider *provider, uint64_t deadline)
{
	struct mcs *alone = mcs_daemon_bypass(s);
	bool lost = false;
	int r = 0;

	for (unsigned i = 0; i < n && alone; i++)
		items[i].result = -MC_ERPC;
	if (!alone) {
		r = mcs_daemon_get_batch(s, items, n, provider->alloc, provider->arg, deadline);
		for (unsigned i = 0; i < n; i++)
			lost = lost || items[i].result == -MC_ERPC;
		alone = lost ? mcs_daemon_alone(s, -MC_ERPC) : NULL;
	}
	return alone ? get_rest(alone, items, n, provider, deadline) : r;
}

static int get_batch(struct mcs *s, struct mcs_get_item *items, unsigned n,
		     const struct provider *provider, int64_t timeout_ms)
{
	uint64_t began = mc_now_ns(), deadline = mcs_deadline(s, timeout_ms);
	int r = mcs_check_fork(s), ok = 0;

	for (unsigned i = 0; i < n && r < 0; i++)
		items[i].result = r;
	if (r < 0)
		return r;
	if (s->node)
		return get_by_node(s, items, n, provider, deadline);
	for (unsigned i = 0; i < n;) {
		unsigned k = mcs_batch_split(n - i, key_of, items + i);

		r = get_group(s, items + i, k, i, provider, deadline);
		ok += r > 0 ? r : 0;
		i += k;
	}
	count(items, n, began);
	return r < 0 && !ok ? r : ok;
}

int mcs_get_batch(struct mcs *s, struct mcs_get_item *items, unsigned n, int64_t timeout_ms)
{
	static const struct provider none;

	return get_batch(s, items, n, &none, timeout_ms);
}

int mcs_get_batch_alloc(struct mcs *s, struct mcs_get_item *items, unsigned n, mcs_alloc_fn alloc,
			void *arg, int64_t timeout_ms)
{
	const struct provider provider = { alloc, arg };
	int r;

	for (unsigned i = 0; i < n; i++) {
		items[i].whole = 1;
		items[i].iov = NULL;
		items[i].iovcnt = 0;
	}
	r = get_batch(s, items, n, &provider, timeout_ms);
	/* They point into our own memory. */
	for (unsigned i = 0; i < n; i++) {
		items[i].iov = NULL;
		items[i].iovcnt = 0;
	}
	return r;
}

int64_t mcs_get(struct mcs *s, struct mcs_key key, const struct iovec *iov, int iovcnt,
		int64_t timeout_ms)
{
	struct mcs_get_item item = { .key = key, .whole = 1, .iov = iov, .iovcnt = iovcnt };

	(void)mcs_get_batch(s, &item, 1, timeout_ms);
	return item.result;
}

int64_t mcs_get_range(struct mcs *s, struct mcs_key key, uint64_t offset, const struct iovec *iov,
		      int iovcnt, int64_t timeout_ms)
{
	struct mcs_get_item item = { .key = key, .offset = offset, .iov = iov, .iovcnt = iovcnt };

	(void)mcs_get_batch(s, &item, 1, timeout_ms);
	return item.result;
}

static void *realloc_one(void *arg, unsigned index, uint64_t size)
{
	void **data = arg, *p = realloc(*data, size ? size : 1);

	if (p)
		*data = p;
	return p;
}

int64_t mcs_get_alloc(struct mcs *s, struct mcs_key key, void **ret_data, int64_t timeout_ms)
{
	struct mcs_get_item item = { .key = key };
	void *data = NULL;

	(void)mcs_get_batch_alloc(s, &item, 1, realloc_one, &data, timeout_ms);
	if (item.result < 0)
		free(data);
	else
		*ret_data = data;
	return item.result;
}
