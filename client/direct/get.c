/* SPDX-License-Identifier: Apache-2.0
 * get.c - read objects by key: ask the master, read, check, and repeat after failures. */
#include <config.h>

#include <errno.h>
#include <time.h>

#include "client/layout.h"
#include "client/direct/cache.h"
#include "client/direct/read.h"
#include "common/fault.h"
#include "common/metrics.h"

/* How often a read asks the master again, for a newer version or after failures. */
#define ROUNDS_MAX 16
/* How often, and for how long each time, a read waits for pins that other reads of this client hold. */
#define LIMIT_WAITS 100u
#define LIMIT_NAP_NS (20 * 1000 * 1000)

MC_COUNTER(gets, "mooncake_client_gets_total", "", "objects asked for")
MC_COUNTER(hits, "mooncake_client_get_hits_total", "", "objects read")
MC_COUNTER(misses, "mooncake_client_get_misses_total", "", "objects that were not there")
MC_COUNTER(errors, "mooncake_client_get_errors_total", "", "objects that could not be read")
MC_COUNTER(bytes, "mooncake_client_get_bytes_total", "", "bytes given to callers")
MC_COUNTER(again, "mooncake_client_retries_total", "cause=\"read\"", "attempts repeated after a failure")
MC_HISTOGRAM(latency, "mooncake_client_get_seconds", "", "time of get calls", 1e-9)

enum get_state { ASK, READ, DONE };

/* The provider of memory; alloc NULL: use the items' iov. */
struct provider {
	mcs_alloc_fn alloc;
	void *arg;
};

struct get_op {
	struct mcs_get_item *item;
	const struct provider *provider;
	unsigned index;		/* number of the item in the caller's batch */
	struct iovec alloc_iov;
	enum get_state state;
	bool not_ready;		/* the master does not know yet whether the object exists */
	unsigned rounds;
	unsigned waits;		/* for pins, since an item of the request was pinned */
	struct mcs_version v;
	struct mcs_part part;
};

static void get_done(struct get_op *op, int64_t result)
{
	op->state = DONE;
	op->item->result = result;
}

/* Decide which bytes of the version to read, and the memory for them. */
static int get_plan(struct mcs_direct *s, struct get_op *op)
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
		.unverified = !s->base.store->conf.verify,
	};
	if (offset < size)
		op->part.len = size - offset < (uint64_t)room ? size - offset : (uint64_t)room;
	return 0;
}

/* Read the version of @op next, if there is something to read.  @plan: it was not read before. */
static void get_begin(struct mcs_direct *s, struct get_op *op, bool plan)
{
	int r = plan ? get_plan(s, op) : 0;

	if (r < 0)
		get_done(op, r);
	else if (!op->part.len)
		get_done(op, 0);
	else if (!mcs_part_left(&op->part, true))
		get_done(op, op->v.n ? mcs_part_verdict(&op->part) : -MC_EREPLICA_GONE);
	else
		op->state = READ;
}

/* Take the master's answer for one key. */
static void get_answered(struct mcs_direct *s, struct get_op *op, const struct mcp_object *obj, uint64_t epoch,
			 uint64_t asked_ns)
{
	struct mcs_version v;
	bool same;
	int r = mcs_version_decode(obj, epoch, asked_ns, &v);

	op->not_ready = r == -MC_ENOTREADY;
	if (r == -MC_ELIMIT && op->waits < LIMIT_WAITS) {
		/* Ask again when the items that were pinned now have been read. */
		op->rounds--;
		op->waits++;
		return;
	}
	if (r < 0) {
		if (!op->not_ready)
			get_done(op, r);
		return;
	}
	same = op->rounds > 1 && mcs_version_same(&op->v, &v);
	op->v = v;
	/* The same version again: keep the record of failed replicas. */
	get_begin(s, op, !same);
}

/* Look up all items in state ASK.  @pins gets the granted pins. */
static int get_ask(struct mcs_direct *s, struct mcs_scratch *sc, struct get_op *ops, unsigned n,
		   struct mcs_pin *pins, unsigned *ret_pins, uint64_t deadline)
{
	struct mcp_key *keys = mcs_scratch_raw(sc, n, sizeof(*keys));
	struct mcp_get msg = { .flags = MCP_GET_LEASE, .tenant = s->base.tenant };
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
			keys[k++].key = mcp_bytes(ops[i].item->key.data, (uint32_t)ops[i].item->key.len);
	msg.keys = mcp_seq(keys, k);
	/* Pins of an unknown connection are not used, and expire: on another connection the same
	 * numbers may be other pins. */
	r = mcs_call_pins(s->base.session, MCP_GET, &msg, &reply, &mem, deadline, false, &epoch);
	if (r < 0)
		return r;
	*ret_pins = 0;
	mcp_iter_init(&it, &reply.objects, &mcp_desc_object);
	for (unsigned i = 0; i < n; i++) {
		if (ops[i].state != ASK)
			continue;
		ops[i].rounds++;
		if (!mcp_iter_next(&it, &obj)) {
			get_done(&ops[i], mc_fail(-MC_EPROTO, "protocol error: reply has fewer results than keys"));
			continue;
		}
		get_answered(s, &ops[i], &obj, epoch, asked_ns);
		if (!obj.status && obj.pin)
			pins[(*ret_pins)++] = (struct mcs_pin){ obj.pin, epoch };
	}
	mcp_reply_done(&mem);
	mcs_leases_granted((int)*ret_pins);
	return 0;
}

/* Set the next state after an attempt. */
static void get_next_state(struct get_op *op, uint64_t deadline)
{
	struct mcs_part *p = &op->part;

	if (!p->status) {
		get_done(op, (int64_t)p->len);
		return;
	}
	if (p->status == -ENOMEM) {
		get_done(op, p->status);
		return;
	}
	if (mc_now_ns() >= deadline) {
		get_done(op, p->status == -MC_ECHECKSUM ? p->status :
			 mc_fail(-MC_ETIMEDOUT, "read did not end in time"));
		return;
	}
	mc_metric_add(&again, 1);
	/* A mismatch may mean that the version is gone, so ask the master.  After an unreachable
	 * replica try the others first. */
	if (p->status != -EAGAIN && (p->status == -MC_ECHECKSUM || !mcs_part_left(p, false)))
		op->state = ASK;
	if (op->rounds >= ROUNDS_MAX)
		get_done(op, mcs_part_verdict(p));
}

/* End the item with bytes from the hot cache, if its version is there. */
static bool get_cached(struct mcs_cache *c, struct get_op *op)
{
	const struct mcs_part *p = &op->part;

	if (!mcs_cache_read(c, op->item->key, &op->v.info, p->offset, p->iov, p->iovcnt, p->len))
		return false;
	get_done(op, (int64_t)p->len);
	return true;
}

/* Offer the hot cache an object that was read whole over a network. */
static void get_offer(struct mcs_cache *c, const struct get_op *op)
{
	const struct mcs_part *p = &op->part;

	if (!p->status && p->len == op->v.info.size && mce_path_distance(p->path) == MCE_DISTANCE_NETWORK)
		mcs_cache_offer(c, op->item->key, &op->v.info, p->iov, p->iovcnt);
}

static unsigned get_gather(struct mcs_direct *s, struct get_op *ops, unsigned n, struct mcs_part **parts)
{
	unsigned k = 0;

	for (unsigned i = 0; i < n; i++)
		if (ops[i].state == READ && !(s->cache && get_cached(s->cache, &ops[i])))
			parts[k++] = &ops[i].part;
	return k;
}

/* Read the items that the last request found, while their leases are held. */
static void get_read_found(struct mcs_direct *s, struct mcs_scratch *sc, struct get_op *ops, unsigned n,
			   struct mcs_part **parts, uint64_t deadline)
{
	unsigned k;

	while ((k = get_gather(s, ops, n, parts)) > 0) {
		mcs_read(s, sc, parts, k, deadline);
		for (unsigned i = 0; i < n; i++) {
			if (ops[i].state != READ)
				continue;
			if (s->cache)
				get_offer(s->cache, &ops[i]);
			get_next_state(&ops[i], deadline);
		}
	}
}

static bool get_must_ask(const struct get_op *ops, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (ops[i].state == ASK)
			return true;
	return false;
}

/* The master has pinned @pins of the items.  Wait if it pins no more for this client now. */
static void get_wait_for_pins(struct get_op *ops, unsigned n, unsigned pins, uint64_t deadline)
{
	bool waits = false;

	for (unsigned i = 0; i < n; i++) {
		if (ops[i].state != ASK || !ops[i].waits)
			continue;
		if (pins)
			ops[i].waits = 0;
		else if (mc_now_ns() >= deadline)
			ops[i].waits = LIMIT_WAITS;
		else
			waits = true;
	}
	if (waits)
		mc_sleep_ns(LIMIT_NAP_NS);
}

/* Items whose owner may return to a restarted master: wait a little before the master is asked again, or fail them. */
static void get_await_owners(struct mcs_direct *s, struct get_op *ops, unsigned n, struct mcs_patience *owner,
			     uint64_t deadline)
{
	bool any = false, waited;

	for (unsigned i = 0; i < n; i++)
		any |= ops[i].state == ASK && ops[i].not_ready;
	waited = any && mcs_session_await_owner(s->base.session, owner, deadline);
	for (unsigned i = 0; i < n && any && !waited; i++)
		if (ops[i].state == ASK && ops[i].not_ready)
			get_done(&ops[i], -MC_ENOTREADY);
}

static int get_run(struct mcs_direct *s, struct mcs_scratch *sc, struct get_op *ops, unsigned n,
		   uint64_t deadline)
{
	struct mcs_part **parts = mcs_scratch_raw(sc, n, sizeof(struct mcs_part *));
	struct mcs_pin *pins = mcs_scratch_raw(sc, n, sizeof(*pins));
	struct mcs_patience owner = { 0 };
	struct mcs_reading reading;
	unsigned n_pins;
	int r;

	if (!parts || !pins)
		return -ENOMEM;
	/* the versions that were known before */
	get_read_found(s, sc, ops, n, parts, deadline);
	while (get_must_ask(ops, n)) {
		uint64_t asked_ns = mc_now_ns();

		r = get_ask(s, sc, ops, n, pins, &n_pins, deadline);
		if (r < 0)
			return r;
		mcs_leases_begin(&s->leases, &reading, pins, n_pins, asked_ns);
		MC_FAULT_POINT("client.get.after_query");
		get_read_found(s, sc, ops, n, parts, deadline);
		mcs_leases_end(&s->leases, &reading);
		get_wait_for_pins(ops, n, n_pins, deadline);
		get_await_owners(s, ops, n, &owner, deadline);
	}
	return 0;
}

static void get_count(const struct mcs_get_item *items, unsigned n)
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
}

/* One request's items; the first one is number @first of the caller's batch.  @known: versions to read without
 * asking the master, NULL for those that are not known; NULL: none is.  Negative: items without an own result have
 * this one. */
static int get_request(struct mcs_direct *s, struct mcs_get_item *items, const struct mcs_version *const *known,
		       unsigned n, unsigned first, const struct provider *provider, uint64_t deadline)
{
	struct mcs_scratch *sc = mcs_scratch_get(s->base.scratch);
	struct get_op *ops = sc ? mcs_scratch_alloc(sc, n, sizeof(*ops)) : NULL;
	int r;

	for (unsigned i = 0; i < n && ops; i++) {
		ops[i].item = &items[i];
		ops[i].provider = provider;
		ops[i].index = first + i;
		r = mcs_key_check(items[i].key);
		if (r < 0) {
			get_done(&ops[i], r);
		} else if (known && known[i]) {
			ops[i].rounds = 1;
			ops[i].v = *known[i];
			get_begin(s, &ops[i], true);
		}
	}
	r = ops ? get_run(s, sc, ops, n, deadline) : -ENOMEM;
	for (unsigned i = 0; i < n; i++)
		if (!ops || ops[i].state != DONE)
			items[i].result = r;
	mcs_scratch_put(s->base.scratch, sc);
	get_count(items, n);
	return r;
}

static int get_all(struct mcs_backend *b, struct mcs_get_item *items, const struct mcs_version *const *known,
		   unsigned n, const struct provider *provider, uint64_t deadline)
{
	uint64_t began = mc_now_ns();
	int r = 0;

	for (unsigned from = 0, to; from < n; from = to) {
		unsigned most;

		to = from + 1;
		if (items[from].result != -MC_ERPC)
			continue;
		most = mcs_batch_split(n - from, &items[from].key, sizeof(*items));
		while (to < n && to - from < most && items[to].result == -MC_ERPC)
			to++;
		r = get_request(mcs_direct_of(b), items + from, known ? known + from : NULL, to - from, from, provider,
				deadline);
	}
	mc_metric_observe(&latency, mc_now_ns() - began);
	return r;
}

int mcs_direct_get_batch(struct mcs_backend *b, struct mcs_get_item *items, unsigned n, mcs_alloc_fn alloc,
			 void *arg, uint64_t deadline)
{
	const struct provider provider = { alloc, arg };

	return get_all(b, items, NULL, n, &provider, deadline);
}

int mcs_direct_get_known(struct mcs_backend *b, struct mcs_get_item *items, const struct mcs_version *const *known,
			 unsigned n, uint64_t deadline)
{
	const struct provider provider = { NULL, NULL };

	return get_all(b, items, known, n, &provider, deadline);
}
