/* SPDX-License-Identifier: Apache-2.0
 * perf_list.c - puts during listing and watching: duration of a put without listings, while other
 * threads page through all keys and through a prefix, and while a watcher reads every event too.
 *
 *	perf_list [KEYS]	default: 10^6 or PERF_OBJECTS; 10^7 need about 1.5 GB
 *
 * The table has the longest put twice: among all puts, and among those during which the kernel did
 * not run another program on the processor, since the machine's other work is not a pause of the
 * master. */
#include <config.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/metrics.h"
#include "common/sys/thread.h"
#include "master/ops/ops.h"
#include "master/mcm_i.h"
#include "master/session.h"
#include "proto/codec.h"
#include "tests/perf/row.h"

#define PUTS perf_n(400000, 2000)
#define EVENTS 4096u
#define EVENT_BYTES (1u << 20)

static const struct mcp_id me = { 1, 2 };
static struct mc_options *options;
static struct mcm *m;
static struct mcm_session *session;
static uint64_t keys, next_key;
static bool enough;
static uint64_t listings, listed, events, lost, longest_page;

static void die(const char *what, int err)
{
	fprintf(stderr, "perf_list: %s: %s\n", what, mc_err_detail(err));
	exit(1);
}

/* One tenth of the keys begins with p/. */
static struct mcp_bytes key_of(char text[40], uint64_t n)
{
	uint64_t h = (n + 1) * 0x9e3779b97f4a7c15ull;
	int len = snprintf(text, 40, "%s%016llx%08llx", n % 10 ? "" : "p/", (unsigned long long)h,
			   (unsigned long long)n);

	return mcp_bytes(text, (size_t)len);
}

static void put(uint64_t n)
{
	struct mcm_put_request rq = { .flags = MCP_PUT_COMMIT, .copies = 1 };
	struct mcm_put_granted granted;
	char text[40];
	struct mcp_put_item item = { .key = key_of(text, n) };
	int r = mcm_put_start(m, session, &rq, &item, &granted);

	if (r < 0)
		die("put", r);
}

/* ---- work concurrent with the puts ---- */

static uint64_t thread_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * MC_NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

static uint64_t list_all(struct mcp_bytes prefix, struct mcm_list_page *pg)
{
	struct mcp_list rq = { .limit = 1000, .prefix = prefix };
	uint8_t cursor[16];
	uint64_t n = 0, took;
	int r;

	do {
		took = thread_ns();
		r = mcm_list(m, &rq, pg);
		if (r < 0)
			die("list", r);
		took = thread_ns() - took;
		longest_page = took > longest_page ? took : longest_page;
		n += pg->names.count;
		memcpy(cursor, pg->cursor, sizeof(cursor));
		rq.cursor = mcp_bytes(cursor, pg->cursor_len);
	} while (pg->cursor_len && !__atomic_load_n(&enough, __ATOMIC_RELAXED));
	return n;
}

static void *lister(void *arg)
{
	struct mcm_list_page pg = { 0 };
	uint64_t i, n;

	for (i = 0; !__atomic_load_n(&enough, __ATOMIC_RELAXED); i++) {
		n = list_all(i % 2 ? mcp_bytes("p/", 2) : mcp_bytes("", 0), &pg);
		__atomic_fetch_add(&listed, n, __ATOMIC_RELAXED);
		__atomic_fetch_add(&listings, 1, __ATOMIC_RELAXED);
		/* A listing contains all keys that existed all the time. */
		if (!__atomic_load_n(&enough, __ATOMIC_RELAXED) && n < (i % 2 ? keys / 10 : keys))
			die("a listing misses keys", -MC_EINTERNAL);
	}
	mcm_names_page_done(&pg.names);
	return arg;
}

static void *watcher(void *arg)
{
	static struct mcp_event ev[EVENTS];
	static char text[EVENT_BYTES];
	uint64_t since = UINT64_MAX, missed;
	int n;

	while (!__atomic_load_n(&enough, __ATOMIC_RELAXED)) {
		n = mcm_events_read(m, since, 0, 0, mcp_bytes("", 0), ev, EVENTS, text, EVENT_BYTES, &since,
				    &missed);
		if (n < 0)
			die("events", n);
		events += (uint64_t)n;
		lost += missed;
		if (!n)
			sched_yield();
	}
	return arg;
}

/* ---- the puts ---- */

static long preemptions(void)
{
	struct rusage ru;

	getrusage(RUSAGE_THREAD, &ru);
	return ru.ru_nivcsw;
}

static void bench_puts(const char *what, bool lists, bool watches)
{
	struct mc_hist *h = calloc(1, sizeof(*h));
	uint64_t began, took, most = 0, undisturbed = 0, i, puts = PUTS;
	struct mc_thread thread[2];
	unsigned n = 0;

	enough = false;
	listings = listed = events = lost = longest_page = 0;
	if (!h || (lists && mc_thread_start(&thread[n++], "list", lister, NULL) < 0) ||
	    (watches && mc_thread_start(&thread[n++], "watch", watcher, NULL) < 0))
		die("threads", -ENOMEM);
	for (i = 0; i < puts; i++) {
		long before = preemptions();

		began = mc_now_ns();
		put(next_key++);
		took = mc_now_ns() - began;
		mc_hist_add(h, took);
		most = took > most ? took : most;
		if (preemptions() == before && took > undisturbed)
			undisturbed = took;
	}
	__atomic_store_n(&enough, true, __ATOMIC_RELAXED);
	while (n)
		mc_thread_join(thread[--n]);
	perf_row(what, "p50", (double)mc_hist_quantile(h, 0.5) / 1e3, "us");
	perf_row(what, "p99.9", (double)mc_hist_quantile(h, 0.999) / 1e3, "us");
	perf_row(what, "longest", (double)most / 1e3, "us");
	perf_row(what, "undisturbed", (double)undisturbed / 1e3, "us, the longest of them");
	if (lists)
		perf_row(what, "listed", (double)listed, "keys meanwhile");
	/* A page takes several locks one after the other, so it takes longer than any of them is held. */
	if (lists)
		perf_row(what, "page", (double)longest_page / 1e3, "us of CPU time, the longest one");
	if (watches)
		perf_row(what, "events", (double)events, "seen meanwhile");
	if (watches)
		perf_row(what, "events", (double)lost, "missed");
	free(h);
}

int main(int argc, char **argv)
{
	struct mcm_conf conf;
	uint64_t began;
	int r;

	keys = perf_n(1000000, 10000);
	if (argc > 1 || getenv("PERF_OBJECTS"))
		keys = strtoull(argc > 1 ? argv[1] : getenv("PERF_OBJECTS"), NULL, 10);
	r = mcm_conf_defaults(&conf, &options);
	if (r == 0)
		r = mcm_core_new(&conf, &m);
	if (r == 0)
		r = mcm_client_opened(m, me);
	if (r == 0)
		r = mcm_session_new(m, me, &session);
	if (r < 0)
		die("master", r);
	for (next_key = 0; next_key < keys;)
		put(next_key++);
	perf_row("listing beside puts", "keys", (double)keys, "");
	{
		struct mcm_list_page pg = { 0 };

		began = mc_now_ns();
		if (list_all(mcp_bytes("", 0), &pg) != keys)
			die("a listing is wrong", -MC_EINTERNAL);
		perf_row("listing of all keys, pages of 1000", "in total",
			 (double)(mc_now_ns() - began) / 1e9, "s");
		mcm_names_page_done(&pg.names);
	}
	bench_puts("put, without other work", false, false);
	bench_puts("put, while all keys are listed", true, false);
	bench_puts("put, while listing and watching", true, true);
	mcm_session_free(m, session);
	mcm_core_free(m);
	mc_options_free(options);
	return 0;
}
