/* SPDX-License-Identifier: Apache-2.0
 * mcbench_replay.c - run a trace: start the workers, watch them, stop them. */
#include <config.h>

#include "tools/bench/mcbench_replay.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/err.h"
#include "common/sys/clock.h"
#include "tools/bar.h"

#define LOOK_MS 200

static uint64_t counter_get(const uint64_t *v)
{
	return __atomic_load_n(v, __ATOMIC_RELAXED);
}

void mcbench_replay_progress(const struct mcbench_replay *r)
{
	unsigned threads = (unsigned)r->b->conf->threads;
	uint64_t blocks = counter_get(&r->n.blocks), requests = counter_get(&r->n.requests);
	char bar[MCCTL_BAR_LEN];

	fprintf(stderr, "\r%s of %zu requests, %.1f%% hits, get %.2f GB/s, put %.2f GB/s, "
		"%" PRIu64 " errors, %" PRIu64 " wrong bytes\033[K",
		mcctl_bar(requests, r->trace.n_requests, bar), r->trace.n_requests,
		blocks ? 100.0 * (double)counter_get(&r->n.prefix) / (double)blocks : 0,
		mcbench_stats_bytes_rate(&r->get, threads) / 1e9,
		mcbench_stats_bytes_rate(&r->put, threads) / 1e9,
		counter_get(&r->lookup.failed) + counter_get(&r->get.failed) + counter_get(&r->put.failed),
		counter_get(&r->n.wrong_bytes));
	fflush(stderr);
}

/* Wait until all workers have ended, the time is over, or a signal arrived. */
static void replay_watch(struct mcbench_replay *r)
{
	uint64_t end = r->b->conf->duration ? mc_deadline_ms((int64_t)r->b->conf->duration) :
		       MC_NEVER;
	bool terminal = isatty(STDERR_FILENO);

	while (__atomic_load_n(&r->running, __ATOMIC_ACQUIRE)) {
		int left = mc_deadline_left_ms(end);

		if (left == 0 || mcbench_stopped())
			break;
		mc_stop_wait(&r->stop, left < LOOK_MS ? (uint64_t)left : LOOK_MS);
		if (terminal)
			mcbench_replay_progress(r);
	}
	mc_stop_set(&r->stop);
	if (terminal)
		fputs("\r\033[K", stderr);
}

static int run_workers(struct mcbench_replay *r)
{
	unsigned n = (unsigned)r->b->conf->threads, started;
	struct mc_thread *threads = calloc(n, sizeof(*threads));
	int err = 0;

	if (!threads)
		return -ENOMEM;
	r->running = n;
	r->begun_ns = mc_now_ns();
	for (started = 0; started < n; started++) {
		err = mc_thread_start(&threads[started], "replay", mcbench_replay_worker, r);
		if (err < 0)
			break;
	}
	if (err == 0)
		replay_watch(r);
	else
		mc_stop_set(&r->stop);
	for (unsigned i = 0; i < started; i++)
		mc_thread_join(threads[i]);
	r->ended_ns = mc_now_ns();
	free(threads);
	return err < 0 ? err : r->failed;
}

static void clean_up(struct mcbench_replay *r)
{
	struct mcs_key prefix;
	char name[96];
	int64_t n;

	if (r->b->conf->keep)
		return;
	mcbench_replay_prefix(r->b->conf, name, sizeof(name));
	prefix.data = name;
	prefix.len = strlen(name);
	n = mcs_remove_match(r->b->store, prefix, NULL, MCS_REMOVE_FORCE, -1);
	if (n < 0)
		mcbench_complain(0, "cannot remove the objects of this run: %s; use \"mcctl rm "
				 "--prefix=%s\"", mcs_error_detail((int)n), name);
}

int mcbench_replay_run(struct mcbench_replay *r)
{
	int err = mc_stop_init(&r->stop);

	if (err < 0)
		return mcbench_complain(MCBENCH_FAILED, "%s", mc_err_detail(err));
	err = run_workers(r);
	mc_stop_done(&r->stop);
	if (err < 0)
		return mcbench_complain(MCBENCH_FAILED, "cannot start %" PRId64 " threads with "
					"%" PRId64 " x %" PRIu64 " bytes each: %s",
					r->b->conf->threads, r->b->conf->batch,
					r->b->conf->block_size, mc_err_detail(err));
	return mcbench_replay_status(r);
}

static int replay_run(struct mcbench_replay *r)
{
	int status = mcbench_replay_run(r), printed = MCBENCH_OK;

	if (status != MCBENCH_FAILED)
		printed = mcbench_replay_report(r);
	/* Wrong bytes are the worst, also when a thread failed. */
	if (r->n.wrong_bytes)
		status = MCBENCH_WRONG;
	else if (printed != MCBENCH_OK)
		status = printed;
	clean_up(r);
	return status;
}

int mcbench_replay_load(const struct mcbench *b, struct mcbench_trace *ret)
{
	int err;

	if (b->conf->requests < 0)
		err = mc_fail(-EINVAL, "--requests cannot be negative");
	else
		err = mcbench_trace_load(b->argv[0], (uint64_t)b->conf->requests, ret);
	if (err < 0)
		return mcbench_complain(err == -EINVAL ? MCBENCH_USAGE : MCBENCH_FAILED, "%s",
					mc_err_detail(err));
	return MCBENCH_OK;
}

struct mcbench_replay *mcbench_replay_new(struct mcbench *b, const struct mcbench_trace *trace)
{
	struct mcbench_replay *r = calloc(1, sizeof(*r));

	if (!r) {
		mcbench_complain(0, "out of memory");
		return NULL;
	}
	r->b = b;
	r->trace = *trace;
	r->lookup.name = "lookup";
	r->get.name = "get";
	r->put.name = "put";
	return r;
}

int mcbench_replay(struct mcbench *b)
{
	struct mcbench_trace trace = { .requests = NULL };
	struct mcbench_replay *r;
	int status = mcbench_replay_load(b, &trace);

	if (status == MCBENCH_OK) {
		r = mcbench_replay_new(b, &trace);
		status = r ? replay_run(r) : MCBENCH_FAILED;
		free(r);
	}
	mcbench_trace_free(&trace);
	return status;
}
