/* SPDX-License-Identifier: Apache-2.0
 * perf_journal.c - cost of the journal and of a restart.  Runs the master's core in this process,
 * without a wire: puts without a journal, with one that is written and with one that is synced, in turn;
 * then the time of a checkpoint, the longest time that it held a lock, and the time until a killed
 * master has its index back.
 *
 *	perf_journal [OBJECTS [DIR [restart]]]	default: 10^6 in /tmp; "restart": only the restart */
#include <config.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/metrics.h"
#include "master/journal/journal_i.h"
#include "master/mcm_i.h"
#include "master/session.h"
#include "proto/codec.h"
#include "tests/perf/row.h"

#define KEY_LEN 64u
#define ROUNDS 5
#define PUTS perf_n(100000, 1000)	/* of a round */
#define SYNCED perf_n(20, 1)	/* answers of a round when each is synced */

static const struct mcp_id me = { 1, 2 };
static char dir[256];

static void die(const char *what, int err)
{
	fprintf(stderr, "perf_journal: %s: %s\n", what, mc_err_detail(err));
	exit(1);
}

static void empty_dir(void)
{
	struct dirent *e;
	DIR *d = opendir(dir);

	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.')
			(void)unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
}

struct one {
	struct mc_options *options;
	struct mcm_conf conf;
	struct mcm *m;
	struct mcm_session *s;
	uint64_t next;		/* key */
	uint64_t best;		/* ns per put */
};

static void start(struct one *o)
{
	struct mcp_register reg = { .client = me, .name = mcp_bytes("perf", 4) };
	int r = mcm_core_new(&o->conf, &o->m);

	if (r == 0)
		r = mcm_session_new(o->m, me, &o->s);
	if (r == 0)
		r = mcm_client_opened(o->m, me);
	if (r == 0)
		r = mcm_client_register(o->m, &reg, mcp_bytes("local", 5));
	if (r < 0)
		die("start", r);
}

static void up(struct one *o, const char *sync, uint64_t objects)
{
	struct mcp_mount mount = {
		.segment = { 3, 4 }, .client = me, .epoch = 1, .size = objects * 4096 + (1 << 20),
		.name = mcp_bytes("perf:1", 6), .endpoint = mcp_bytes("perf:2", 6),
		.protocol = mcp_bytes("tcp", 3),
	};
	struct mcp_mount_reply mounted;
	int r;

	memset(o, 0, sizeof(*o));
	o->best = UINT64_MAX;
	if (mcm_conf_defaults(&o->conf, &o->options) < 0)
		die("options", -MC_EPARAM);
	o->conf.eviction_high_watermark_ratio = 1;
	if (sync) {
		empty_dir();
		o->conf.journal_dir = dir;
		o->conf.journal_sync = (char *)sync;
	}
	start(o);
	r = mcm_mount(o->m, me, NULL, &mount, &mounted);
	if (r < 0)
		die("mount", r);
}

static void down(struct one *o)
{
	mcm_session_free(o->m, o->s);
	mcm_client_closed(o->m, me);
	mcm_core_free(o->m);
	mc_options_free(o->options);
}

/* @n puts, with one answer per @per_answer puts: the batches of one request. */
static void puts_of(struct one *o, uint64_t n, unsigned per_answer)
{
	struct mcm_put_request rq = { .copies = 1 };
	char text[KEY_LEN + 1];
	struct mcm_put_granted g;
	uint64_t i, h;
	int r;

	for (i = 0; i < n; i++, o->next++) {
		struct mcp_put_item item = { .size = 4096 };
		struct mcp_put_done done;

		h = (o->next + 1) * 0x9e3779b97f4a7c15ull;
		snprintf(text, sizeof(text), "%016llx%016llx%016llx%016llx", (unsigned long long)h,
			 (unsigned long long)(h * 3), (unsigned long long)(h * 5),
			 (unsigned long long)o->next);
		item.key = mcp_bytes(text, KEY_LEN);
		r = mcm_put_start(o->m, o->s, &rq, &item, &g);
		if (r == 0) {
			done = (struct mcp_put_done){ .key = item.key, .generation = g.generation };
			r = mcm_put_end(o->m, o->s, &done);
		}
		if (r < 0)
			die("put", r);
		if ((i + 1) % per_answer == 0)
			mcm_journal_wait(o->m);
	}
}

/* CPU time, which other programs disturb less than wall-clock time. */
static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * MC_NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

static void round_of(struct one *o, uint64_t n, unsigned per_answer, uint64_t (*clock)(void))
{
	uint64_t began = clock(), took;

	puts_of(o, n, per_answer);
	took = (clock() - began) / n;
	if (took < o->best)
		o->best = took;
}

static void bench_puts(unsigned per_answer)
{
	struct one off, on, synced;
	char what[64];
	unsigned i;

	snprintf(what, sizeof(what), "put start+end, %u per answer", per_answer);
	up(&off, NULL, ROUNDS * PUTS);
	up(&on, "write", ROUNDS * PUTS);
	for (i = 0; i < ROUNDS; i++) {
		round_of(&off, PUTS, per_answer, cpu_ns);
		round_of(&on, PUTS, per_answer, cpu_ns);
	}
	perf_row(what, "no journal", 1e3 / (double)off.best, "M/s per core");
	perf_row(what, "write", 1e3 / (double)on.best, "M/s per core");
	perf_row(what, "write / none", (double)off.best / (double)on.best, "x");
	down(&on);
	down(&off);
	up(&synced, "fdatasync", ROUNDS * PUTS);
	for (i = 0; i < ROUNDS; i++)
		round_of(&synced, per_answer * SYNCED, per_answer, mc_now_ns);
	perf_row(what, "fdatasync", (double)synced.best / 1e3, "us each");
	down(&synced);
}

static void bench_restart(uint64_t objects)
{
	struct one o;
	uint64_t began, cpu, count;
	int r;

	up(&o, "write", objects);
	o.conf.journal_checkpoint_size = 1ull << 40;
	puts_of(&o, objects, 500);
	began = mc_now_ns();
	r = mcm_checkpoint(o.m);
	if (r < 0)
		die("checkpoint", r);
	perf_row("checkpoint", "time", (double)(mc_now_ns() - began) / 1e6, "ms");
	perf_row("checkpoint", "longest lock", (double)o.m->journal->longest_ns / 1e3, "us");
	perf_row("checkpoint", "CPU time of it", (double)o.m->journal->longest_cpu_ns / 1e3,
		 "us at most");
	mcm_session_free(o.m, o.s);
	mcm_client_closed(o.m, me);
	mcm_core_free(o.m);
	began = mc_now_ns();
	cpu = cpu_ns();
	start(&o);
	count = mcm_index_count(&o.m->index);
	perf_row("restart", "objects", (double)count, "");
	perf_row("restart", "until serving", (double)(mc_now_ns() - began) / 1e6, "ms");
	perf_row("restart", "CPU time of it", (double)(cpu_ns() - cpu) / 1e6, "ms");
	if (count != objects)
		die("objects are missing", -MC_EINTERNAL);
	down(&o);
}

int main(int argc, char **argv)
{
	uint64_t objects = argc > 1 ? strtoull(argv[1], NULL, 10) : perf_n(1000000, 2000);

	snprintf(dir, sizeof(dir), "%s/mc-perf-journal-%d", argc > 2 ? argv[2] : "/tmp", (int)getpid());
	if (argc < 4) {
		bench_puts(500);
		bench_puts(1);
	}
	bench_restart(objects ? objects : 1);
	empty_dir();
	rmdir(dir);
	return 0;
}
