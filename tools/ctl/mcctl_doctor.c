/* SPDX-License-Identifier: Apache-2.0
 * mcctl_doctor.c - diagnosis of the pool, with advice. */
#include <config.h>

#include "tools/ctl/mcctl_doctor.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/sys/clock.h"

#define TEXT_MAX 400

void mcctl_doctor_find(struct mcctl_report *rp, enum mcctl_level level, const char *advice,
		       const char *fmt, ...)
{
	static const char *const names[] = { "ok", "warning", "problem" };
	char text[TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (level > rp->worst)
		rp->worst = level;
	if (rp->findings)
		json_array_append_new(rp->findings, json_pack("{s:s, s:s, s:s}", "level",
							      names[level], "text", text, "advice",
							      advice));
	else
		printf("%-8s %s%s%s\n", names[level], text, *advice ? "\n         " : "", advice);
}

static void check_http(struct mcctl *c, struct mcctl_report *rp)
{
	auto_free char *body = NULL;
	long code;
	int r;

	if (c->local) {
		mcctl_doctor_find(rp, MCCTL_GOOD, "", "the master of this local pool serves clients");
		return;
	}
	r = mcctl_ask_http(c, "/health", &code, &body);
	if (r < 0)
		mcctl_doctor_find(rp, MCCTL_WARNING, "does it use another port?  Give it with --metrics_port; "
				  "without it there is no monitoring", "the master's HTTP service does not answer: %s",
		     mc_err_detail(r));
	else if (code != 200 || !strstr(body, "\"service_ready\":true"))
		mcctl_doctor_find(rp, MCCTL_BAD, "check its log", "the master reports over HTTP that it is not ready");
	else
		mcctl_doctor_find(rp, MCCTL_GOOD, "", "the master serves clients and HTTP");
}

static void check_pool(const struct mcs_pool *p, struct mcctl_report *rp)
{
	double fill = p->capacity ? 100.0 * (double)p->used / (double)p->capacity : 0;

	if (!p->segments)
		mcctl_doctor_find(rp, MCCTL_BAD, "start mcfs, or a program that opens the store with a "
				  "segment_size, on the nodes", "no process contributes memory: nothing can be stored");
	else
		mcctl_doctor_find(rp, MCCTL_GOOD, "", "%" PRIu32 " segments, %" PRIu64 " objects, %.0f%% used",
		     p->segments, p->objects, fill);
	if (p->puts_refused && p->evictable < p->used / 10)
		mcctl_doctor_find(rp, MCCTL_WARNING, "much is pinned or being read; add memory, or unpin",
		     "%" PRIu64 " puts were refused and only %.0f%% of the used memory is evictable",
		     p->puts_refused, p->used ? 100.0 * (double)p->evictable / (double)p->used : 0);
	else if (p->puts_refused)
		mcctl_doctor_find(rp, MCCTL_WARNING, "larger segments can store larger objects",
		     "%" PRIu64 " puts were refused since the master started", p->puts_refused);
}

static void check_segments(const struct mcs_segment *s, int n, struct mcctl_report *rp)
{
	double least = 100, most = 0, fill;

	for (int i = 0; i < n; i++) {
		fill = s[i].size ? 100.0 * (double)s[i].used / (double)s[i].size : 0;
		if (!strcmp(s[i].state, "silent"))
			mcctl_doctor_find(rp, MCCTL_BAD, "is the node up, and can it reach the master?  "
					  "Reads of its objects miss until then",
					  "the owner of %s does not answer", s[i].name);
		else if (!strcmp(s[i].state, "drained"))
			mcctl_doctor_find(rp, MCCTL_WARNING, "switch the node off, or cancel the drain "
					  "with \"mcctl tasks --cancel\"",
					  "%s is drained and accepts no new objects", s[i].name);
		if (strcmp(s[i].state, "ok"))
			continue;
		least = fill < least ? fill : least;
		most = fill > most ? fill : most;
	}
	if (most > least + 30)
		mcctl_doctor_find(rp, MCCTL_WARNING, "\"mcctl rebalance\" balances them",
		     "segments are between %.0f%% and %.0f%% full", least, most);
}

static void check_tasks(const struct mcs_task *t, int n, struct mcctl_report *rp)
{
	uint64_t now = mc_wall_ns() / MC_NS_PER_MS;

	for (int i = 0; i < n; i++) {
		if (!strcmp(t[i].status, "failed") && now - t[i].updated_ms < 86400000)
			mcctl_doctor_find(rp, MCCTL_WARNING, "\"mcctl tasks\" shows it",
					  "the %s %s failed: %s", t[i].kind, t[i].id, t[i].message);
		else if (!strcmp(t[i].status, "running") && now > t[i].updated_ms + 60000)
			mcctl_doctor_find(rp, MCCTL_WARNING,
					  "do the other segments have free memory?  Is the owner connected?",
					  "the %s %s has made no progress for %" PRIu64 " s", t[i].kind,
					  t[i].id, (now - t[i].updated_ms) / 1000);
	}
}

int mcctl_doctor(struct mcctl *c)
{
	auto_free struct mcs_segment *segments = NULL;
	auto_free struct mcs_task *tasks = NULL;
	struct mcctl_report rp = { .findings = c->conf->json ? json_array() : NULL };
	struct mcs_pool pool;
	int n, r;

	mcctl_doctor_mounts(c, &rp);
	mcctl_doctor_rdma(&rp);
	check_http(c, &rp);
	r = mcs_pool_stat(c->store, &pool, -1);
	if (r < 0) {
		json_decref(rp.findings);
		return (int)mcctl_error(r, "cannot ask for the pool");
	}
	check_pool(&pool, &rp);
	n = mcs_segments(c->store, &segments, -1);
	if (n > 0)
		check_segments(segments, n, &rp);
	if (n >= 0)
		n = mcs_tasks(c->store, NULL, &tasks, -1);
	if (n < 0) {
		json_decref(rp.findings);
		return (int)mcctl_error(n, "cannot ask for %s", segments ? "the tasks" : "the segments and tasks");
	}
	if (n > 0)
		check_tasks(tasks, n, &rp);
	if (rp.findings && mcctl_json_print(rp.findings) != MCCTL_OK)
		return MCCTL_FAILED;
	return rp.worst == MCCTL_BAD ? MCCTL_NO : MCCTL_OK;
}
