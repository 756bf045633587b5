/* SPDX-License-Identifier: Apache-2.0
 * exec.c - execution of jobs: consecutive jobs of the same kind form one batch for the store. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/metrics.h"
#include "common/sys/clock.h"
#include "node/node_i.h"

#define SILENT_NS (500 * MC_NS_PER_MS)	/* a query that fails after this time was not answered by the master */

#define OP_COUNTER(var, name) \
	MC_COUNTER(var, "mooncake_node_ops_total", "op=\"" name "\"", "operations of local clients")
OP_COUNTER(n_nop, "nop")
OP_COUNTER(n_get, "get")
OP_COUNTER(n_put, "put")
OP_COUNTER(n_exist, "exist")
OP_COUNTER(n_stat, "stat")
OP_COUNTER(n_pin, "pin")
OP_COUNTER(n_unpin, "unpin")
OP_COUNTER(n_held, "held")
OP_COUNTER(n_remove, "remove")
OP_COUNTER(n_prefetch, "prefetch")

MC_COUNTER(late, "mooncake_node_late_total", "", "operations not started because their deadline had passed")

static int64_t timeout_of(const struct mcn_job *j)
{
	return j->deadline == MC_NEVER ? -1 : mc_deadline_left_ms(j->deadline);
}

static void fail_all(struct mcn_job *jobs, unsigned n, int r)
{
	for (unsigned i = 0; i < n; i++)
		jobs[i].c.result = r;
}

static struct mcs_key *keys_of(const struct mcn_job *jobs, unsigned n)
{
	struct mcs_key *keys = calloc(n, sizeof(*keys));

	for (unsigned i = 0; i < n && keys; i++)
		keys[i] = jobs[i].key;
	return keys;
}

/* ---- one function per kind: @n jobs for which same() holds ---- */

static void do_nop(struct mcn_conn *c, struct mcn_job *jobs, unsigned n)
{
	(void)c;
	fail_all(jobs, n, 0);
}

static void do_get(struct mcn_conn *c, struct mcn_job *jobs, unsigned n)
{
	struct mcs_get_item one, *items = n > 1 ? calloc(n, sizeof(*items)) : &one;

	if (!items) {
		fail_all(jobs, n, -ENOMEM);
		return;
	}
	for (unsigned i = 0; i < n; i++)
		items[i] = (struct mcs_get_item){
			.key = jobs[i].key, .offset = jobs[i].e.offset,
			.whole = jobs[i].e.flags & MCFS_SQE_WHOLE ? 1 : 0,
			.iov = jobs[i].iov, .iovcnt = jobs[i].iovcnt, .result = -EIO,
		};
	(void)mcs_get_batch(c->n->conf.store, items, n, timeout_of(jobs));
	for (unsigned i = 0; i < n; i++)
		jobs[i].c.result = items[i].result;
	if (items != &one)
		free(items);
}

static void do_put(struct mcn_conn *c, struct mcn_job *jobs, unsigned n)
{
	struct mcs_put_item one, *items = n > 1 ? calloc(n, sizeof(*items)) : &one;

	if (!items) {
		fail_all(jobs, n, -ENOMEM);
		return;
	}
	for (unsigned i = 0; i < n; i++)
		items[i] = (struct mcs_put_item){
			.key = jobs[i].key, .iov = jobs[i].iov, .iovcnt = jobs[i].iovcnt,
			.result = -EIO,
		};
	(void)mcs_put_batch(c->n->conf.store, items, n, jobs->put, timeout_of(jobs));
	for (unsigned i = 0; i < n; i++) {
		jobs[i].c.result = items[i].result < 0 ? items[i].result : !items[i].existed;
		/* After a failure too: the put may have taken effect. */
		if (jobs[i].c.result)
			mcn_mapped_forget(c->n->mapped, jobs[i].key);
	}
	if (items != &one)
		free(items);
}

static void do_exist(struct mcn_conn *c, struct mcn_job *jobs, unsigned n)
{
	struct mcs_key *keys = keys_of(jobs, n);
	uint8_t *present = calloc(1, n);
	int r = keys && present ? mcs_exist(c->n->conf.store, keys, n, present, timeout_of(jobs)) :
		-ENOMEM;

	for (unsigned i = 0; i < n; i++)
		jobs[i].c.result = r < 0 ? r : present[i];
	free(keys);
	free(present);
}

static void do_stat(struct mcn_conn *c, struct mcn_job *jobs, unsigned n)
{
	struct mcs_info *infos = calloc(n, sizeof(*infos));
	int *results = calloc(n, sizeof(*results));
	struct mcs_key *keys = keys_of(jobs, n);
	int r = keys && infos && results ?
		mcs_stat_batch(c->n->conf.store, keys, n, infos, results, timeout_of(jobs)) :
		-ENOMEM;

	for (unsigned i = 0; i < n; i++) {
		struct mcfs_cqe *e = &jobs[i].c;

		e->result = r < 0 ? r : results[i];
		if (e->result < 0)
			continue;
		e->generation = infos[i].generation;
		e->size = infos[i].size;
		e->mtime_ms = infos[i].mtime_ms;
		e->offset = infos[i].soft_pin_ms;
		e->crc32c = infos[i].crc32c;
		e->kind = (uint8_t)((unsigned)infos[i].kind | (unsigned)infos[i].data_type << 4);
		e->flags = (uint8_t)infos[i].flags;
		e->replicas = (uint8_t)infos[i].replicas;
	}
	free(keys);
	free(infos);
	free(results);
}

static void do_pin(struct mcn_conn *c, struct mcn_job *jobs, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct mcfs_cqe *e = &jobs[i].c;
		struct mcn_extent p;

		e->result = mcn_pin(c->pins, jobs[i].key, jobs[i].e.flags & MCFS_SQE_HOT,
				    timeout_of(&jobs[i]), &p);
		if (e->result < 0)
			continue;
		e->pin = p.pin;
		e->offset = p.offset;
		e->size = p.size;
		e->generation = p.generation;
		e->mtime_ms = p.mtime_ms;
		e->crc32c = p.crc32c;
		e->segment = p.segment;
		e->kind = p.kind;
		e->flags = p.flags;
		e->replicas = p.replicas;
	}
}

static void do_unpin(struct mcn_conn *c, struct mcn_job *jobs, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		jobs[i].c.result = mcn_unpin(c->pins, jobs[i].e.pin);
}

/* Each query to a silent master takes a second.  After one timeout, fail the rest of the batch, so that the client
 * does not give up on the daemon. */
static void do_held(struct mcn_conn *c, struct mcn_job *jobs, unsigned n)
{
	bool silent = false;

	for (unsigned i = 0; i < n; i++) {
		uint64_t began = mc_now_ns();

		jobs[i].c.result = silent ? -MCS_EREPLICA_GONE : mcn_held(c->pins, jobs[i].e.pin);
		silent = silent || (jobs[i].c.result < 0 && mc_now_ns() - began >= SILENT_NS);
	}
}

static void do_remove(struct mcn_conn *c, struct mcn_job *jobs, unsigned n)
{
	unsigned flags = jobs->e.flags & MCFS_SQE_FORCE ? MCS_REMOVE_FORCE : 0;
	int *results = calloc(n, sizeof(*results));
	struct mcs_key *keys = keys_of(jobs, n);
	int r = -ENOMEM;

	for (unsigned i = 0; i < n; i++)
		mcn_mapped_release(c->n->mapped, jobs[i].key);
	if (keys && results)
		r = mcs_remove_batch(c->n->conf.store, keys, n, flags, results, timeout_of(jobs));

	for (unsigned i = 0; i < n; i++) {
		jobs[i].c.result = r < 0 ? r : results[i];
		mcn_mapped_forget(c->n->mapped, jobs[i].key);
	}
	free(keys);
	free(results);
}

static void do_prefetch(struct mcn_conn *c, struct mcn_job *jobs, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		jobs[i].c.result = mcn_prefetch(c->n, jobs[i].key, !mcn_may_map(&c->identity), timeout_of(&jobs[i]));
}

static const struct kind {
	void (*run)(struct mcn_conn *c, struct mcn_job *jobs, unsigned n);
	struct mc_metric *count;
	uint32_t roles;
} kinds[MCFS_RING_OPS] = {
	[MCFS_RING_NOP] = { do_nop, &n_nop, MC_MAY_READ },
	[MCFS_RING_GET] = { do_get, &n_get, MC_MAY_READ },
	[MCFS_RING_PUT] = { do_put, &n_put, MC_MAY_WRITE },
	[MCFS_RING_EXIST] = { do_exist, &n_exist, MC_MAY_READ },
	[MCFS_RING_STAT] = { do_stat, &n_stat, MC_MAY_READ },
	[MCFS_RING_PIN] = { do_pin, &n_pin, MC_MAY_READ },
	[MCFS_RING_UNPIN] = { do_unpin, &n_unpin, MC_MAY_READ },
	[MCFS_RING_HELD] = { do_held, &n_held, MC_MAY_READ },
	[MCFS_RING_REMOVE] = { do_remove, &n_remove, MC_MAY_WRITE },
	[MCFS_RING_PREFETCH] = { do_prefetch, &n_prefetch, MC_MAY_READ },
};

static bool same_group(const struct mcs_key *a, const struct mcs_key *b)
{
	return a->len == b->len && (!a->len || !memcmp(a->data, b->data, a->len));
}

static bool same_put(const struct mcs_put_opts *a, const struct mcs_put_opts *b)
{
	if (!a || !b)
		return a == b;
	return a->flags == b->flags && a->replicas == b->replicas && a->kind == b->kind &&
		a->soft_pin_ms == b->soft_pin_ms && a->soft_pin == b->soft_pin &&
		a->data_type == b->data_type && !a->preferred && !b->preferred &&
		a->nof_replicas == b->nof_replicas && !a->preferred_nof && !b->preferred_nof &&
		same_group(&a->group, &b->group);
}

/* Can both be part of one batch? */
static bool exec_same(const struct mcn_job *a, const struct mcn_job *b)
{
	return !b->done && a->e.op == b->e.op && a->deadline == b->deadline &&
		(a->e.op != MCFS_RING_REMOVE || a->e.flags == b->e.flags) &&
		same_put(a->put, b->put);
}

unsigned mcn_exec(struct mcn_conn *c, struct mcn_job *jobs, unsigned n)
{
	int r;

	for (unsigned i = 0, k; i < n; i += k) {
		k = 1;
		if (mcn_conn_is_over(c))
			return i;
		if (jobs[i].done)
			continue;
		while (i + k < n && exec_same(&jobs[i], &jobs[i + k]))
			k++;
		/* After its deadline the client may have reused the memory or retried the request. */
		if (!timeout_of(&jobs[i])) {
			mc_metric_add(&late, k);
			fail_all(&jobs[i], k, -MCS_ETIMEDOUT);
			continue;
		}
		r = mc_principal_check(&c->identity, kinds[jobs[i].e.op].roles);
		if (r < 0) {
			fail_all(&jobs[i], k, r);
			continue;
		}
		mc_metric_add(kinds[jobs[i].e.op].count, k);
		kinds[jobs[i].e.op].run(c, &jobs[i], k);
	}
	return n;
}
