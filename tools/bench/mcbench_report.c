/* SPDX-License-Identifier: Apache-2.0
 * mcbench_report.c - results of a replay. */
#include <config.h>

#include "tools/bench/mcbench_replay.h"

#include <inttypes.h>

double mcbench_percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

uint64_t mcbench_replay_failures(const struct mcbench_replay *r)
{
	return r->lookup.failed + r->get.failed + r->put.failed;
}

double mcbench_replay_seconds(const struct mcbench_replay *r)
{
	return (double)(r->ended_ns - r->begun_ns) / 1e9;
}

/* All blocks but the first of each id. */
double mcbench_replay_endless(const struct mcbench_replay *r)
{
	return mcbench_percent(r->trace.n_ids - r->trace.distinct, r->trace.n_ids);
}

void mcbench_replay_print_trace(const struct mcbench_replay *r)
{
	const struct mcbench_trace *t = &r->trace;
	uint64_t block_size = r->b->conf->block_size;
	char size[32], set[32];

	printf("trace: %zu requests, %zu blocks of %s, %zu different (%s)\n", t->n_requests,
	       t->n_ids, mc_format_size(block_size, size, sizeof(size)), t->distinct,
	       mc_format_size(t->distinct * block_size, set, sizeof(set)));
}

static void print_run(const struct mcbench_replay *r)
{
	const struct mcbench_conf *conf = r->b->conf;

	mcbench_replay_print_trace(r);
	printf("run:   %" PRIu64 " requests in %.2f s, %" PRId64 " threads, ", r->n.requests,
	       mcbench_replay_seconds(r), conf->threads);
	if (conf->speed > 0)
		printf("%g x real time, at most %.3f s late\n", conf->speed, (double)r->n.late_ns / 1e9);
	else
		printf("as fast as possible\n");
}

static void print_hits(const struct mcbench_replay *r)
{
	const struct mcbench_counts *n = &r->n;

	printf("hits:  blocks %.2f%% (%" PRIu64 " of %" PRIu64 "), prefix %.2f%%, whole requests "
	       "%.2f%%", mcbench_percent(n->present, n->blocks), n->present, n->blocks,
	       mcbench_percent(n->prefix, n->blocks), mcbench_percent(n->whole, n->requests));
	/* Only a whole run can be compared with the whole trace. */
	if (n->requests == r->trace.n_requests)
		printf("; a pool of unlimited size: %.2f%%", mcbench_replay_endless(r));
	printf("\n       %" PRIu64 " evicted between look-up and get, %" PRIu64
	       " put by two threads at once\n\n", n->gone, n->raced);
}

static void print_text(const struct mcbench_replay *r)
{
	unsigned threads = (unsigned)r->b->conf->threads;

	print_run(r);
	print_hits(r);
	mcbench_stats_head(stdout);
	mcbench_stats_row(&r->lookup, threads, stdout);
	mcbench_stats_row(&r->get, threads, stdout);
	mcbench_stats_row(&r->put, threads, stdout);
	printf("\nerrors: %" PRIu64 "\n", mcbench_replay_failures(r));
	mcbench_stats_errors(&r->lookup, stdout);
	mcbench_stats_errors(&r->get, stdout);
	mcbench_stats_errors(&r->put, stdout);
	printf("wrong bytes: %" PRIu64 " in %" PRIu64 " of %" PRIu64 " blocks read\n",
	       r->n.wrong_bytes, r->n.wrong_blocks, r->get.items);
}

json_t *mcbench_replay_json(const struct mcbench_replay *r)
{
	unsigned threads = (unsigned)r->b->conf->threads;
	const struct mcbench_counts *n = &r->n;
	json_t *hits;

	hits = json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f}",
			 "blocks", (json_int_t)n->blocks, "present", (json_int_t)n->present,
			 "prefix", (json_int_t)n->prefix, "gone", (json_int_t)n->gone,
			 "raced", (json_int_t)n->raced,
			 "block_ratio", mcbench_percent(n->present, n->blocks) / 100,
			 "prefix_ratio", mcbench_percent(n->prefix, n->blocks) / 100,
			 "endless_pool_ratio", mcbench_replay_endless(r) / 100);
	return json_pack("{s:I, s:I, s:I, s:I, s:i, s:f, s:f, s:o*, s:o*, s:o*, s:o*, s:I, s:I, s:I}",
		      "requests", (json_int_t)n->requests, "trace_requests",
		      (json_int_t)r->trace.n_requests, "distinct_blocks",
		      (json_int_t)r->trace.distinct, "block_size",
		      (json_int_t)r->b->conf->block_size, "threads", (int)threads,
		      "seconds", mcbench_replay_seconds(r), "late_seconds", (double)n->late_ns / 1e9,
		      "hits", hits, "lookup", mcbench_stats_json(&r->lookup, threads),
		      "get", mcbench_stats_json(&r->get, threads),
		      "put", mcbench_stats_json(&r->put, threads),
		      "errors", (json_int_t)mcbench_replay_failures(r),
		      "wrong_blocks", (json_int_t)n->wrong_blocks,
		      "wrong_bytes", (json_int_t)n->wrong_bytes);
}

static int print_json(const struct mcbench_replay *r)
{
	json_t *j = mcbench_replay_json(r);
	int err = j ? json_dumpf(j, stdout, JSON_INDENT(2)) : -1;

	putchar('\n');
	json_decref(j);
	return err;
}

int mcbench_replay_status(const struct mcbench_replay *r)
{
	if (r->n.wrong_bytes)
		return MCBENCH_WRONG;
	return mcbench_replay_failures(r) ? MCBENCH_ERRORS : MCBENCH_OK;
}

int mcbench_replay_report(const struct mcbench_replay *r)
{
	if (r->b->conf->json) {
		if (print_json(r) < 0)
			return mcbench_complain(MCBENCH_FAILED, "cannot print JSON");
	} else {
		print_text(r);
	}
	return mcbench_replay_status(r);
}
