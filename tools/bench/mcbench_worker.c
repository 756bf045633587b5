/* SPDX-License-Identifier: Apache-2.0
 * mcbench_worker.c - a request as an inference engine runs it: look up its blocks, load the longest present
 * prefix, store the other blocks. */
#include <config.h>

#include "tools/bench/mcbench_replay.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/sys/clock.h"
#include "tools/bench/mcbench_content.h"

#define KEY_SIZE 96u
#define POISON 0xa5

struct worker {
	struct mcbench_replay *r;
	const struct mcbench_conf *conf;
	size_t block_size;
	unsigned batch;
	const uint64_t *ids;		/* blocks of the present request */
	char *names;			/* KEY_SIZE bytes for each block of a request */
	struct mcs_key *keys;
	uint8_t *present;
	char *buf;			/* batch blocks */
	struct iovec *iov;
	struct mcs_get_item *gets;
	struct mcs_put_item *puts;
	uint32_t *which;		/* block of each item of a batch */
};

static void counter_add(uint64_t *v, uint64_t n)
{
	__atomic_fetch_add(v, n, __ATOMIC_RELAXED);
}

void mcbench_replay_prefix(const struct mcbench_conf *conf, char *buf, size_t len)
{
	/* Contents depend on size and seed, so both are part of the name. */
	snprintf(buf, len, "mcbench/%" PRIu64 "-%" PRId64 "/", conf->block_size, conf->seed);
}

static void worker_free(struct worker *w)
{
	if (w->buf)
		(void)mcs_unregister_buffer(w->r->b->store, w->buf);
	free(w->names);
	free(w->keys);
	free(w->present);
	free(w->buf);
	free(w->iov);
	free(w->gets);
	free(w->puts);
	free(w->which);
}

static int worker_init(struct worker *w, struct mcbench_replay *r)
{
	size_t n = r->trace.max_blocks + 1u;

	memset(w, 0, sizeof(*w));
	w->r = r;
	w->conf = r->b->conf;
	w->block_size = (size_t)w->conf->block_size;
	w->batch = (unsigned)w->conf->batch;
	w->names = malloc(n * KEY_SIZE);
	w->keys = calloc(n, sizeof(*w->keys));
	w->present = calloc(n, 1);
	w->iov = calloc(w->batch, sizeof(*w->iov));
	w->gets = calloc(w->batch, sizeof(*w->gets));
	w->puts = calloc(w->batch, sizeof(*w->puts));
	w->which = calloc(w->batch, sizeof(*w->which));
	if (posix_memalign((void **)&w->buf, 4096, w->batch * w->block_size))
		w->buf = NULL;
	if (!w->names || !w->keys || !w->present || !w->iov || !w->gets || !w->puts || !w->which || !w->buf)
		return -ENOMEM;
	/* Registration is an optimisation; a failure does no harm. */
	(void)mcs_register_buffer(r->b->store, w->buf, w->batch * w->block_size);
	for (unsigned i = 0; i < w->batch; i++) {
		w->iov[i].iov_base = w->buf + i * w->block_size;
		w->iov[i].iov_len = w->block_size;
	}
	return 0;
}

static void name_blocks(struct worker *w, uint32_t n)
{
	char prefix[KEY_SIZE - 24];

	mcbench_replay_prefix(w->conf, prefix, sizeof(prefix));
	for (uint32_t i = 0; i < n; i++) {
		char *name = w->names + i * KEY_SIZE;

		w->keys[i].data = name;
		w->keys[i].len = (size_t)snprintf(name, KEY_SIZE, "%s%" PRIu64, prefix, w->ids[i]);
	}
}

static void look_up(struct worker *w, uint32_t n)
{
	uint64_t begun = mc_now_ns();
	int found;

	memset(w->present, 0, n);
	found = mcs_exist(w->r->b->store, w->keys, n, w->present, -1);
	mcbench_stats_call(&w->r->lookup, mc_now_ns() - begun);
	if (found < 0) {
		mcbench_stats_error(&w->r->lookup, found, n);
		memset(w->present, 0, n);
		return;
	}
	mcbench_stats_items(&w->r->lookup, n, 0);
	counter_add(&w->r->n.present, (uint64_t)found);
}

static void blame_block(struct worker *w, uint32_t block, const struct mcbench_wrong *wrong)
{
	counter_add(&w->r->n.wrong_blocks, 1);
	counter_add(&w->r->n.wrong_bytes, wrong->bytes);
	if (__atomic_fetch_add(&w->r->blamed, 1, __ATOMIC_RELAXED) >= MCBENCH_BLAMED_MAX)
		return;
	mcbench_complain(0, "WRONG BYTES: %s: %" PRIu64 " of %zu bytes, the first at %" PRIu64
			 ", where line %" PRIu64 " of block %" PRIu64 " says it is",
			 w->names + block * KEY_SIZE, wrong->bytes, w->block_size, wrong->first,
			 wrong->line, wrong->id);
}

/* Does the block have the bytes that were put? */
static bool check_block(struct worker *w, uint32_t block, unsigned item, int64_t result)
{
	struct mcbench_wrong wrong = { .bytes = w->block_size, .id = UINT64_MAX,
				       .line = UINT64_MAX };

	if (result == -MCS_ENOOBJECT || result == -MCS_EREPLICA_GONE) {
		w->present[block] = 0;
		counter_add(&w->r->n.gone, 1);
		return false;
	}
	/* -ENOBUFS: the object is larger than the one that was put. */
	if (result < 0 && result != -ENOBUFS) {
		mcbench_stats_error(&w->r->get, (int)result, 1);
		return false;
	}
	if (result >= 0)
		mcbench_stats_items(&w->r->get, 1, (uint64_t)result);
	if (result == (int64_t)w->block_size &&
	    !mcbench_content_check(w->iov[item].iov_base, w->block_size, w->ids[block],
				   (uint64_t)w->conf->seed, &wrong))
		return true;
	blame_block(w, block, &wrong);
	return false;
}

/* Returns the number of correct blocks before the first missing one. */
static unsigned get_blocks(struct worker *w, uint32_t from, unsigned n)
{
	unsigned good = 0;
	uint64_t begun;
	int r;

	/* Old bytes of another block must not pass for bytes that were read. */
	memset(w->buf, POISON, n * w->block_size);
	for (unsigned i = 0; i < n; i++)
		w->gets[i] = (struct mcs_get_item){
			.key = w->keys[from + i], .whole = 1, .iov = &w->iov[i], .iovcnt = 1,
		};
	begun = mc_now_ns();
	r = mcs_get_batch(w->r->b->store, w->gets, n, -1);
	mcbench_stats_call(&w->r->get, mc_now_ns() - begun);
	if (r < 0) {
		mcbench_stats_error(&w->r->get, r, n);
		return 0;
	}
	for (unsigned i = 0; i < n; i++)
		if (check_block(w, from + i, i, w->gets[i].result) && good == i)
			good++;
	return good;
}

static void put_blocks(struct worker *w, unsigned n)
{
	uint64_t begun;
	int r;

	for (unsigned i = 0; i < n; i++) {
		uint32_t block = w->which[i];

		mcbench_content_fill(w->iov[i].iov_base, w->block_size, w->ids[block],
				     (uint64_t)w->conf->seed);
		w->puts[i] = (struct mcs_put_item){
			.key = w->keys[block], .iov = &w->iov[i], .iovcnt = 1,
		};
	}
	begun = mc_now_ns();
	r = mcs_put_batch(w->r->b->store, w->puts, n, NULL, -1);
	mcbench_stats_call(&w->r->put, mc_now_ns() - begun);
	if (r < 0) {
		mcbench_stats_error(&w->r->put, r, n);
		return;
	}
	for (unsigned i = 0; i < n; i++) {
		if (w->puts[i].result < 0)
			mcbench_stats_error(&w->r->put, w->puts[i].result, 1);
		else if (w->puts[i].existed)
			counter_add(&w->r->n.raced, 1);
		else
			mcbench_stats_items(&w->r->put, 1, w->block_size);
	}
}

static void put_absent(struct worker *w, uint32_t n)
{
	unsigned filled = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (w->present[i])
			continue;
		w->which[filled++] = i;
		if (filled == w->batch) {
			put_blocks(w, filled);
			filled = 0;
		}
	}
	if (filled)
		put_blocks(w, filled);
}

static void do_request(struct worker *w, const struct mcbench_request *q)
{
	uint32_t present = 0, prefix = 0;

	w->ids = w->r->trace.ids + q->first;
	if (q->n) {
		name_blocks(w, q->n);
		look_up(w, q->n);
		while (present < q->n && w->present[present])
			present++;
		for (uint32_t i = 0; i < present; i += w->batch) {
			unsigned n = present - i < w->batch ? present - i : w->batch;
			unsigned good = get_blocks(w, i, n);

			/* An engine cannot use the blocks after a missing one. */
			if (prefix == i)
				prefix += good;
		}
		put_absent(w, q->n);
	}
	counter_add(&w->r->n.blocks, q->n);
	counter_add(&w->r->n.prefix, prefix);
	counter_add(&w->r->n.whole, prefix == q->n);
	counter_add(&w->r->n.requests, 1);
}

/* Wait until the request is due; false: the run ended before. */
static bool wait_turn(struct worker *w, const struct mcbench_request *q)
{
	uint64_t due, now, late;

	if (w->conf->speed <= 0)
		return !mc_stop_wait(&w->r->stop, 0);
	due = w->r->begun_ns + (uint64_t)((double)q->time_ms * (double)MC_NS_PER_MS /
					  w->conf->speed);
	while ((now = mc_now_ns()) < due)
		if (mc_stop_wait(&w->r->stop, (due - now + MC_NS_PER_MS - 1) / MC_NS_PER_MS))
			return false;
	late = __atomic_load_n(&w->r->n.late_ns, __ATOMIC_RELAXED);
	while (now - due > late && !__atomic_compare_exchange_n(&w->r->n.late_ns, &late, now - due, true,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	return !mc_stop_wait(&w->r->stop, 0);
}

void *mcbench_replay_worker(void *arg)
{
	struct mcbench_replay *r = arg;
	struct worker w;
	uint64_t i;
	int err = worker_init(&w, r), none = 0;

	if (err < 0)
		__atomic_compare_exchange_n(&r->failed, &none, err, false, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED);
	while (err == 0) {
		i = __atomic_fetch_add(&r->next, 1, __ATOMIC_RELAXED);
		if (i >= r->trace.n_requests || !wait_turn(&w, &r->trace.requests[i]))
			break;
		do_request(&w, &r->trace.requests[i]);
	}
	worker_free(&w);
	if (__atomic_sub_fetch(&r->running, 1, __ATOMIC_ACQ_REL) == 0)
		mc_stop_kick(&r->stop);
	return NULL;
}
