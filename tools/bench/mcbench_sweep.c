/* SPDX-License-Identifier: Apache-2.0
 * mcbench_sweep.c - replay a trace on pools of several sizes, with several eviction policies. */
#include <config.h>

#include "tools/bench/mcbench_sweep.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "tools/bench/mcbench_pool.h"
#include "tools/bench/mcbench_replay.h"

#define DEFAULT_POLICY "default"	/* name of the master's default in results */
#define POOL_BYTES_MAX (1ull << 40)

struct sweep {
	struct mcbench *b;
	struct mcbench_conf conf;	/* options of the present run */
	struct mcbench_trace trace;
	struct mcbench_grid grid;
	char *names;			/* memory of the policies' names */
	bool table;			/* results go to a table */
	unsigned width;			/* columns of a policy in the table */
	FILE *csv;			/* NULL: none */
	json_t *json;			/* NULL: none */
	uint64_t failed, wrong_bytes, wrong_blocks, read_blocks;
	unsigned runs, rows;		/* complete runs; rows of the table that were printed */
};

/* ---- options ---- */

static int parse_pools(struct sweep *s)
{
	uint64_t most = POOL_BYTES_MAX / mcbench_pool_stride(s->b->conf->block_size);
	uint64_t least = 2 * (uint64_t)s->b->conf->threads;
	auto_free char *copy = strdup(s->b->conf->pool_blocks);
	struct mcbench_grid *g = &s->grid;
	char *save = NULL, *end;

	if (!copy)
		return mcbench_complain(MCBENCH_FAILED, "out of memory");
	for (char *t = strtok_r(copy, ",", &save); t; t = strtok_r(NULL, ",", &save)) {
		uint64_t blocks;

		errno = 0;
		blocks = strtoull(t, &end, 10);
		if (!isdigit((unsigned char)*t) || *end || errno)
			return mcbench_complain(MCBENCH_USAGE, "--pool_blocks: \"%s\" is not a number of blocks; "
						"write for example 1000,3000,10000", t);
		/* Every thread needs room for the blocks that it reads or writes. */
		if (blocks < least || blocks > most)
			return mcbench_complain(MCBENCH_USAGE, "--pool_blocks: %s is out of range; with %" PRId64
						" threads and blocks of this size, a pool has %" PRIu64 " to %" PRIu64
						" blocks", t, s->b->conf->threads, least, most);
		if (g->n_pools == MCBENCH_POOLS_MAX)
			return mcbench_complain(MCBENCH_USAGE, "--pool_blocks: more than %u pools",
						MCBENCH_POOLS_MAX);
		g->pools[g->n_pools++] = blocks;
	}
	return g->n_pools ? MCBENCH_OK : mcbench_complain(MCBENCH_USAGE, "--pool_blocks is empty");
}

static int parse_policies(struct sweep *s)
{
	struct mcbench_grid *g = &s->grid;
	char *save = NULL;

	s->names = strdup(s->b->conf->policies);
	if (!s->names)
		return mcbench_complain(MCBENCH_FAILED, "out of memory");
	for (char *t = strtok_r(s->names, ",", &save); t; t = strtok_r(NULL, ",", &save)) {
		if (g->n_policies == MCBENCH_POLICIES_MAX)
			return mcbench_complain(MCBENCH_USAGE, "--policies: more than %u policies",
						MCBENCH_POLICIES_MAX);
		g->policies[g->n_policies++] = t;
	}
	if (!g->n_policies)
		g->policies[g->n_policies++] = DEFAULT_POLICY;
	g->results = calloc(g->n_pools * g->n_policies, sizeof(*g->results));
	return g->results ? MCBENCH_OK : mcbench_complain(MCBENCH_FAILED, "out of memory");
}

static int parse_options(struct sweep *s)
{
	const struct mcbench_conf *conf = s->b->conf;
	bool to_stdout = !strcmp(conf->csv, "-");
	int status = parse_pools(s);

	if (status == MCBENCH_OK)
		status = parse_policies(s);
	if (status != MCBENCH_OK)
		return status;
	if (*conf->plot && !mcbench_plot_name(conf->plot))
		return mcbench_complain(MCBENCH_USAGE, "--plot=%s: the name must end in .png or .svg", conf->plot);
	if (to_stdout && conf->json)
		return mcbench_complain(MCBENCH_USAGE, "--csv=- and --json both use standard output; give --csv a "
					"file");
	s->table = !to_stdout && !conf->json && s->grid.n_pools * s->grid.n_policies > 1;
	s->width = 8;
	for (unsigned j = 0; j < s->grid.n_policies; j++)
		if (strlen(s->grid.policies[j]) + 2 > s->width)
			s->width = (unsigned)strlen(s->grid.policies[j]) + 2;
	return MCBENCH_OK;
}

/* ---- results ---- */

static int open_results(struct sweep *s)
{
	const char *path = s->b->conf->csv;

	if (s->b->conf->json) {
		s->json = json_array();
		if (!s->json)
			return mcbench_complain(MCBENCH_FAILED, "out of memory");
	}
	if (!*path)
		return MCBENCH_OK;
	s->csv = strcmp(path, "-") ? fopen(path, "we") : stdout;
	if (!s->csv)
		return mcbench_complain(MCBENCH_FAILED, "cannot create %s: %s", path, mc_strerror(errno));
	fputs("policy,pool_blocks,block_size,threads,requests,blocks,hit_ratio,raw_hit_ratio,seconds\n", s->csv);
	return MCBENCH_OK;
}

static void print_head(const struct sweep *s, const struct mcbench_replay *r)
{
	mcbench_replay_print_trace(r);
	printf("usable hits in percent of all blocks, threads: %" PRId64 "; a pool of unlimited size: %.2f\n\n",
	       s->conf.threads, mcbench_replay_endless(r));
	printf("%12s %12s", "pool blocks", "size");
	for (unsigned j = 0; j < s->grid.n_policies; j++)
		printf("%*s", (int)s->width, s->grid.policies[j]);
	putchar('\n');
}

/* Only whole rows, because a progress bar may use the line. */
static void print_row(struct sweep *s, unsigned pool)
{
	const struct mcbench_sweep_result *r = s->grid.results + pool * s->grid.n_policies;
	uint64_t blocks = s->grid.pools[pool];
	char size[32];

	printf("%12" PRIu64 " %12s", blocks, mc_format_size(blocks * s->conf.block_size, size, sizeof(size)));
	for (unsigned j = 0; j < s->grid.n_policies; j++) {
		if (r[j].complete)
			printf("%*.2f", (int)s->width, r[j].hit_ratio);
		else
			printf("%*s", (int)s->width, "-");
	}
	putchar('\n');
	fflush(stdout);
	s->rows = pool + 1;
}

/* A run is in the results only as a whole: the share of hits of its first requests is another one. */
static int add_result(struct sweep *s, unsigned pool, unsigned policy, const struct mcbench_replay *r)
{
	const char *name = s->grid.policies[policy];
	uint64_t blocks = s->grid.pools[pool];
	json_t *j;

	s->grid.results[pool * s->grid.n_policies + policy] = (struct mcbench_sweep_result){
		.complete = true, .hit_ratio = mcbench_percent(r->n.prefix, r->n.blocks),
	};
	if (s->csv) {
		fprintf(s->csv, "%s,%" PRIu64 ",%" PRIu64 ",%" PRId64 ",", name, blocks, s->conf.block_size,
			s->conf.threads);
		fprintf(s->csv, "%" PRIu64 ",%" PRIu64 ",%.2f,%.2f,%.2f\n", r->n.requests, r->n.blocks,
			mcbench_percent(r->n.prefix, r->n.blocks), mcbench_percent(r->n.present, r->n.blocks),
			mcbench_replay_seconds(r));
		fflush(s->csv);
	}
	if (s->json) {
		j = mcbench_replay_json(r);
		if (!j || json_object_set_new(j, "policy", json_string(name)) ||
		    json_object_set_new(j, "pool_blocks", json_integer((json_int_t)blocks)) ||
		    json_array_append_new(s->json, j))
			return mcbench_complain(MCBENCH_FAILED, "cannot make JSON");
	} else if (s->table) {
		if (!s->runs)
			print_head(s, r);
		if (policy + 1 == s->grid.n_policies)
			print_row(s, pool);
	}
	s->runs++;
	return !s->json && !s->table && s->csv != stdout ? mcbench_replay_report(r) : MCBENCH_OK;
}

static int close_results(struct sweep *s, int status)
{
	bool lost = false;

	/* The row that a signal or an error interrupted. */
	if (s->table && s->runs > s->rows * s->grid.n_policies)
		print_row(s, s->rows);
	if (s->table && s->runs)
		printf("\nerrors: %" PRIu64 "\nwrong bytes: %" PRIu64 " in %" PRIu64 " of %" PRIu64
		       " blocks read\n", s->failed, s->wrong_bytes, s->wrong_blocks, s->read_blocks);
	if (s->json) {
		lost = json_dumpf(s->json, stdout, JSON_INDENT(2)) < 0;
		putchar('\n');
		json_decref(s->json);
	}
	/* main() checks standard output. */
	if (s->csv && s->csv != stdout)
		lost |= ferror(s->csv) | fclose(s->csv);
	return lost ? mcbench_complain(status ? status : MCBENCH_FAILED, "cannot write the results: %s",
				       mc_strerror(errno)) : status;
}

/* ---- runs ---- */

static const char *policy_option(const struct sweep *s, unsigned policy)
{
	return *s->b->conf->policies ? s->grid.policies[policy] : NULL;
}

/* The worse status: wrong bytes, then a run that could not be made, then failed requests. */
static int worse_status(int a, int b)
{
	static const int order[] = { MCBENCH_WRONG, MCBENCH_FAILED, MCBENCH_USAGE, MCBENCH_ERRORS };

	for (unsigned i = 0; i < sizeof(order) / sizeof(order[0]); i++)
		if (a == order[i] || b == order[i])
			return order[i];
	return MCBENCH_OK;
}

static int replay_pool(struct sweep *s, struct mcbench_pool *p, unsigned pool, unsigned policy)
{
	struct mcbench b = *s->b;
	struct mcbench_replay *r;
	int status;

	b.conf = &s->conf;
	b.store = p->store;
	r = mcbench_replay_new(&b, &s->trace);
	if (!r)
		return MCBENCH_FAILED;
	status = mcbench_replay_run(r);
	s->failed += mcbench_replay_failures(r);
	s->wrong_bytes += r->n.wrong_bytes;
	s->wrong_blocks += r->n.wrong_blocks;
	s->read_blocks += r->get.items;
	if (status != MCBENCH_FAILED && !mcbench_stopped())
		status = worse_status(status, add_result(s, pool, policy, r));
	free(r);
	return status;
}

static int run_one(struct sweep *s, unsigned pool, unsigned policy)
{
	uint64_t blocks = s->grid.pools[pool], batch = blocks / (2 * (uint64_t)s->conf.threads);
	struct mcbench_pool p;
	int status = mcbench_pool_start(&p, &s->conf, policy_option(s, policy));

	/* Blocks that are read or written at the moment cannot be evicted: at most half of the pool. */
	s->conf.batch = s->b->conf->batch;
	if (batch < (uint64_t)s->conf.batch)
		s->conf.batch = (int64_t)batch;
	if (status == MCBENCH_OK && !mcbench_stopped())
		status = mcbench_pool_open(&p, &s->conf, blocks);
	if (status == MCBENCH_OK && p.store)
		status = replay_pool(s, &p, pool, policy);
	mcbench_pool_stop(&p);
	return status;
}

/* Find an unknown policy before the first replay, which may take hours.  That one finds out about the first policy. */
static int check_policies(struct sweep *s)
{
	int status = MCBENCH_OK;

	for (unsigned i = 1; i < s->grid.n_policies && status == MCBENCH_OK; i++) {
		struct mcbench_pool p;

		status = mcbench_pool_start(&p, &s->conf, policy_option(s, i));
		mcbench_pool_stop(&p);
	}
	return status;
}

static int run_all(struct sweep *s)
{
	unsigned n = s->grid.n_pools * s->grid.n_policies;
	int last = check_policies(s), status = last;

	for (unsigned i = 0; i < n && last != MCBENCH_FAILED && !mcbench_stopped(); i++) {
		last = run_one(s, i / s->grid.n_policies, i % s->grid.n_policies);
		status = worse_status(status, last);
	}
	if (mcbench_stopped())
		mcbench_complain(0, "stopped: %u of %u runs are complete", s->runs, n);
	return status;
}

int mcbench_sweep(struct mcbench *b)
{
	struct sweep *s = calloc(1, sizeof(*s));
	int status;

	if (!s)
		return mcbench_complain(MCBENCH_FAILED, "out of memory");
	s->b = b;
	s->conf = *b->conf;
	status = parse_options(s);
	if (status == MCBENCH_OK)
		status = mcbench_replay_load(b, &s->trace);
	if (status == MCBENCH_OK)
		status = open_results(s);
	if (status == MCBENCH_OK)
		status = run_all(s);
	status = close_results(s, status);
	if (*b->conf->plot && s->runs)
		status = worse_status(status, mcbench_plot(&s->grid, b->conf->plot));
	mcbench_trace_free(&s->trace);
	free(s->grid.results);
	free(s->names);
	free(s);
	return status;
}
