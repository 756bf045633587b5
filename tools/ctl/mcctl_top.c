/* SPDX-License-Identifier: Apache-2.0
 * mcctl_top.c - figures and rates of the pool, printed periodically. */
#include <config.h>

#include "tools/ctl/mcctl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/sys/clock.h"

/* Counters of the master that are shown as rates; single-key and batch counters of an operation are added up. */
static const struct {
	const char *metric, *name, *batch;
} rates[] = {
	{ "total_get_nums_", "gets", NULL },
	{ "valid_get_nums_", "hits", NULL },
	{ "master_exist_key_requests_total", "exists", "master_batch_exist_key_items_total" },
	{ "master_put_end_requests_total", "puts", "master_batch_put_end_items_total" },
	{ "master_evicted_key_count", "evicted", NULL },
	{ "master_put_start_alloc_failures_total", "refused", NULL },
};
#define N_RATES (sizeof(rates) / sizeof(rates[0]))

struct sample {
	uint64_t at_ns;
	double value[N_RATES];
	struct mcs_pool pool;
};

static double metric_of(const char *text, const char *name)
{
	size_t len = strlen(name);

	for (const char *s = text; s && (s = strstr(s, name)); s += len)
		if ((s == text || s[-1] == '\n') && s[len] == ' ')
			return strtod(s + len, NULL);
	return 0;
}

static enum mcctl_status sample_take(struct mcctl *c, struct sample *ret)
{
	auto_free char *text = NULL;
	long code;
	int r;

	r = mcs_pool_stat(c->store, &ret->pool, -1);
	if (r < 0)
		return mcctl_error(r, "cannot ask for the pool");
	r = mcctl_ask_http(c, "/metrics", &code, &text);
	if (r == -EACCES)
		return mcctl_complain(MCCTL_FAILED, "cannot read the metrics: %s", mc_err_detail(r));
	if (r < 0 || code != 200)
		return mcctl_complain(MCCTL_FAILED, "cannot read the metrics: %s\n       does the HTTP server "
				      "use another port?  Give it with --metrics_port",
				      r < 0 ? mc_err_detail(r) : "the master refused");
	ret->at_ns = mc_now_ns();
	for (size_t i = 0; i < N_RATES; i++)
		ret->value[i] = metric_of(text, rates[i].metric) +
			(rates[i].batch ? metric_of(text, rates[i].batch) : 0);
	return MCCTL_OK;
}

static double sample_rate(const struct sample *a, const struct sample *b, size_t i)
{
	double seconds = (double)(b->at_ns - a->at_ns) / (double)MC_NS_PER_SEC;

	return seconds > 0 ? (b->value[i] - a->value[i]) / seconds : 0;
}

static enum mcctl_status print_json(const struct sample *a, const struct sample *b)
{
	json_t *per_second = json_object();
	json_t *j;
	int r;

	for (size_t i = 0; i < N_RATES; i++)
		json_object_set_new(per_second, rates[i].name, json_real(sample_rate(a, b, i)));
	j = json_pack("{s:I, s:I, s:I, s:I, s:I, s:o*}", "capacity", (json_int_t)b->pool.capacity,
		      "used", (json_int_t)b->pool.used, "objects", (json_int_t)b->pool.objects,
		      "segments", (json_int_t)b->pool.segments, "clients",
		      (json_int_t)b->pool.clients, "per_second", per_second);
	r = j ? json_dumpf(j, stdout, JSON_COMPACT) : -1;
	json_decref(j);
	putchar('\n');
	return r < 0 ? mcctl_complain(MCCTL_FAILED, "cannot print JSON") : MCCTL_OK;
}

static void print_line(const struct sample *a, const struct sample *b, int64_t line)
{
	char used[32], size[32];

	if (line % 20 == 0) {
		printf("%10s  %10s  %10s  %8s  %7s", "USED", "OF", "OBJECTS", "SEGMENTS", "CLIENTS");
		for (size_t i = 0; i < N_RATES; i++)
			printf("  %7s/s", rates[i].name);
		putchar('\n');
	}
	printf("%10s  %10s  %10" PRIu64 "  %8u  %7u", mc_format_size(b->pool.used, used, sizeof(used)),
	       mc_format_size(b->pool.capacity, size, sizeof(size)), b->pool.objects,
	       b->pool.segments, b->pool.clients);
	for (size_t i = 0; i < N_RATES; i++)
		printf("  %9.0f", sample_rate(a, b, i));
	putchar('\n');
}

int mcctl_top(struct mcctl *c)
{
	const uint64_t ms = c->conf->interval;
	enum mcctl_status status;
	struct sample last, now;

	status = sample_take(c, &last);
	for (int64_t i = 0; status == MCCTL_OK && (!c->conf->count || i < c->conf->count); i++) {
		mc_sleep_ms(ms);
		status = sample_take(c, &now);
		if (status != MCCTL_OK)
			break;
		if (c->conf->json)
			status = print_json(&last, &now);
		else
			print_line(&last, &now, i);
		if (fflush(stdout))
			break;
		last = now;
	}
	return (int)status;
}
