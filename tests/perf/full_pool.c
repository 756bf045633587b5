/* SPDX-License-Identifier: Apache-2.0
 * full_pool.c - puts into a full pool: by the share of objects with a lease, and by the number of segments.
  A part of perf_master.
 *
 * PERF_SECONDS: duration of each case, default 1.  A case needs 16 objects per segment.
 *
 * A master's core without sockets, in one process: puts in batches of 32, in slices as its RPC threads make them.
 * A step is the work on one slice, in CPU time: for
 * that long the thread serves no other client. */
#include <config.h>

#include "tests/perf/full_pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "master/mcm_i.h"
#include "master/ops/ops.h"
#include "master/session.h"
#include "proto/codec.h"
#include "proto/rpc_server.h"
#include "tests/perf/row.h"

#define KEY_LEN 64u
#define BATCH 32u
#define SIZE 4096u
#define SLICE_NS 500000u	/* as service_put.c */
#define STEPS_MAX 4000000u

static const struct mcp_id me = { 1, 2 };
static uint64_t n_objects;
static double seconds;

struct pool {
	struct mcm *m;
	struct mcm_session *s;
	struct mc_options *options;
	uint64_t next;			/* number of the next key */
	char text[BATCH][KEY_LEN + 1];
	struct mcp_bytes key[BATCH];
};

/* What a case measured. */
struct figures {
	double cpu_us, rate, step_p999_ms, step_max_ms, second_min;
	uint64_t refused;
};

static void die(const char *step, int err)
{
	fprintf(stderr, "perf_full: %s: %s\n", step, mc_err_detail(err));
	exit(1);
}

/* 64 bytes, like a prefix hash in hex. */
static void make_key(char key[KEY_LEN + 1], uint64_t n)
{
	uint64_t h = (n + 1) * 0x9e3779b97f4a7c15ull;

	snprintf(key, KEY_LEN + 1, "%016llx%016llx%016llx%016llx", (unsigned long long)h,
		 (unsigned long long)n, (unsigned long long)(h * 3), (unsigned long long)(h * 5));
}

static void keys_from(struct pool *p, uint64_t first)
{
	for (unsigned i = 0; i < BATCH; i++) {
		make_key(p->text[i], first + i);
		p->key[i] = mcp_bytes(p->text[i], KEY_LEN);
	}
}

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * MC_NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

static void mount_all(struct pool *p, unsigned segments)
{
	uint64_t objects = n_objects / segments;

	if (mcm_client_opened(p->m, me) < 0)
		die("client", -MC_EINTERNAL);
	for (unsigned i = 0; i < segments; i++) {
		struct mcp_mount_reply reply;
		char name[32];
		int n = snprintf(name, sizeof(name), "host-%u:1", i);
		struct mcp_mount rq = {
			.segment = { 3, i + 1 }, .client = me, .epoch = 1, .size = objects * SIZE,
			.name = mcp_bytes(name, (size_t)n), .endpoint = mcp_bytes("perf:2", 6),
			.protocol = mcp_bytes("tcp", 3),
		};

		if (mcm_mount(p->m, me, NULL, &rq, &reply) < 0)
			die("mount", -MC_EINTERNAL);
	}
}

static void pool_new(struct pool *p, char *policy, unsigned segments)
{
	struct mcm_conf conf;

	memset(p, 0, sizeof(*p));
	if (mcm_conf_defaults(&conf, &p->options) < 0)
		die("options", -MC_EINTERNAL);
	conf.eviction_high_watermark_ratio = 1;
	conf.client_ttl = 3600 * 1000;
	conf.eviction_policy = policy;
	if (mcm_core_new(&conf, &p->m) < 0 || mcm_session_new(p->m, me, &p->s) < 0)
		die("core", -MC_EINTERNAL);
	mount_all(p, segments);
}

static void pool_free(struct pool *p)
{
	mcm_session_free(p->m, p->s);
	mcm_core_free(p->m);
	mc_options_free(p->options);
}

/* Put the keys of the batch from @done on, in one slice.  Returns how many have an answer then. */
static unsigned put_step(struct pool *p, struct mcm_put_request *rq, unsigned done, uint64_t *refused)
{
	struct mcm_put_granted granted[BATCH];
	struct mcp_put_item item[BATCH];
	struct mcp_put_done end[BATCH];
	unsigned n = BATCH - done, granted_n = 0, i;
	int outcome[BATCH];

	memset(item, 0, sizeof(item));
	memset(end, 0, sizeof(end));
	for (i = 0; i < n; i++) {
		item[i].key = p->key[done + i];
		item[i].size = SIZE;
	}
	rq->slice.end_ns = mc_now_ns() + SLICE_NS;
	mcm_put_start_many(p->m, p->s, rq, item, n, granted, outcome);
	for (i = 0; i < n && outcome[i] != MCP_AGAIN; i++) {
		if (outcome[i] == -MC_ENOSPACE)
			++*refused;
		else if (outcome[i] < 0)
			die("put", outcome[i]);
		if (outcome[i] == 0)
			end[granted_n++] = (struct mcp_put_done){
				.key = item[i].key, .generation = granted[i].generation
			};
	}
	mcm_put_end_many(p->m, p->s, end, granted_n, outcome);
	return done + i;
}

static void fill(struct pool *p)
{
	uint64_t refused = 0;

	while (p->next < n_objects) {
		struct mcm_put_request rq = { .copies = 1 };

		keys_from(p, p->next);
		for (unsigned done = 0; done < BATCH;)
			done = put_step(p, &rq, done, &refused);
		p->next += BATCH;
	}
}

static void lease(struct pool *p, unsigned percent)
{
	uint8_t present[BATCH];

	for (uint64_t i = 0; i < n_objects; i += BATCH) {
		if (i / BATCH * 37 % 100 >= percent)
			continue;
		keys_from(p, i);
		mcm_exist(p->m, 0, p->key, BATCH, present);
	}
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static struct figures put_for(struct pool *p, double secs)
{
	uint32_t *step = malloc(STEPS_MAX * sizeof(*step));
	uint64_t puts = 0, since = 0, steps = 0, other = 0, cpu = cpu_ns();
	uint64_t began = mc_now_ns(), now = began, at = began, end;
	struct figures f = { .second_min = 1e12 };

	if (!step)
		die("memory", -ENOMEM);
	end = began + (uint64_t)(secs * 1e9);
	while (now < end && steps < STEPS_MAX) {
		struct mcm_put_request rq = { .copies = 1 };
		uint64_t first = mc_now_ns();

		keys_from(p, p->next);
		p->next += BATCH;
		now = mc_now_ns();
		other += now - first;
		for (unsigned done = 0; done < BATCH && steps < STEPS_MAX;) {
			uint64_t before = cpu_ns();

			done = put_step(p, &rq, done, &f.refused);
			step[steps++] = (uint32_t)(cpu_ns() - before);
			now = mc_now_ns();
		}
		puts += BATCH;
		since += BATCH;
		if (now - at > MC_NS_PER_SEC / 4) {
			double rate = (double)since * 1e9 / (double)(now - at);

			f.second_min = rate < f.second_min ? rate : f.second_min;
			since = 0;
			at = now;
		}
	}
	f.cpu_us = (double)(cpu_ns() - cpu - other) / 1e3 / (double)puts;
	f.rate = (double)puts * 1e9 / (double)(now - began - other);
	qsort(step, steps, sizeof(*step), compare);
	f.step_p999_ms = step[steps - 1 - steps / 1000] / 1e6;
	f.step_max_ms = step[steps - 1] / 1e6;
	free(step);
	return f;
}

static void bench_leased(char *policy)
{
	static const unsigned share[] = { 0, 50, 90, 95, 99, 100 }, segments[] = { 1, 100, 1000 };
	char what[96];

	for (unsigned g = 0; g < 3 && segments[g] <= n_objects / 16; g++) {
		double base = 0;

		for (unsigned i = 0; i < 6; i++) {
			struct figures f;
			struct pool p;

			pool_new(&p, policy, segments[g]);
			fill(&p);
			lease(&p, share[i]);
			f = put_for(&p, seconds);
			base = i ? base : f.cpu_us;
			snprintf(what, sizeof(what), "full, %s, %u segments, %u %% leased", policy, segments[g],
				 share[i]);
			perf_row(what, "CPU of a put", f.cpu_us, "us");
			perf_row(what, "speed", base / f.cpu_us, "x without leases");
			perf_row(what, "worst 1/4 s", f.second_min / 1e3, "k puts/s");
			perf_row(what, "step p99.9", f.step_p999_ms, "ms");
			perf_row(what, "longest step", f.step_max_ms, "ms");
			pool_free(&p);
		}
	}
}

static void bench_segments(char *policy)
{
	static const unsigned segments[] = { 1, 10, 100, 1000, 10000 };
	double ten = 0;
	char what[96];

	for (unsigned g = 0; g < 5 && segments[g] <= n_objects / 16; g++) {
		struct figures f;
		struct pool p;

		pool_new(&p, policy, segments[g]);
		fill(&p);
		f = put_for(&p, seconds);
		ten = g == 1 ? f.cpu_us : ten;
		snprintf(what, sizeof(what), "full, %s, %u segments", policy, segments[g]);
		perf_row(what, "CPU of a put", f.cpu_us, "us");
		if (g > 1)
			perf_row(what, "CPU of a put", f.cpu_us / ten, "x 10 segments");
		pool_free(&p);
	}
}

static void hold(struct pool *p, struct mcp_bytes key)
{
	struct mcp_replica replica[MCM_REPLICA_MAX];
	struct mcp_object o;
	unsigned n;
	int r;

	mc_mutex_lock(&p->s->lock);
	r = mcm_get(p->m, p->s, MCP_GET_HOLD, key, &o, replica, &n);
	mc_mutex_unlock(&p->s->lock);
	/* The last puts may be refused, and may evict an object that is not held yet. */
	if (r < 0 && r != -MC_ENOOBJECT)
		die("get", r);
}

/* Nothing is evictable, because all objects are hard-pinned, or being read. */
static void bench_pinned(char *policy, bool hard)
{
	static const unsigned segments[] = { 1, 1000, 10000 };
	char what[96];

	for (unsigned g = 0; g < 3 && segments[g] <= n_objects / 16; g++) {
		struct figures f;
		struct pool p;

		pool_new(&p, policy, segments[g]);
		p.m->conf.max_session_pins = 16777216;
		p.m->conf.max_session_pinned_ratio = 2;
		while (p.next < n_objects) {
			struct mcm_put_request rq = { .copies = 1, .flags = hard ? MCP_PUT_HARD_PIN : 0 };
			uint64_t refused = 0;

			keys_from(&p, p.next);
			for (unsigned done = 0; done < BATCH;)
				done = put_step(&p, &rq, done, &refused);
			for (unsigned i = 0; !hard && i < BATCH; i++)
				hold(&p, p.key[i]);
			p.next += BATCH;
		}
		f = put_for(&p, seconds / 2);
		snprintf(what, sizeof(what), "%s objects only, %s, %u segments", hard ? "hard-pinned" : "read", policy,
			 segments[g]);
		perf_row(what, "refused put", f.cpu_us, "us");
		perf_row(what, "longest step", f.step_max_ms, "ms (batch of 32)");
		pool_free(&p);
	}
}

void perf_full(uint64_t objects, const char *part)
{
	static char lru[] = "lru", learn[] = "learn";
	const char *env = getenv("PERF_SECONDS");

	n_objects = objects / BATCH * BATCH;
	seconds = env ? strtod(env, NULL) : (double)perf_n(1000, 2) / 1000;
	for (int i = 0; i < 2; i++) {
		char *policy = i ? lru : learn;

		if (!*part || !strcmp(part, "leased"))
			bench_leased(policy);
		if (!*part || !strcmp(part, "segments"))
			bench_segments(policy);
		if (!*part || !strcmp(part, "pinned")) {
			bench_pinned(policy, true);
			bench_pinned(policy, false);
		}
	}
}
