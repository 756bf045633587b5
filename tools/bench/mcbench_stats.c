/* SPDX-License-Identifier: Apache-2.0
 * mcbench_stats.c - counters and their display. */
#include <config.h>

#include "tools/bench/mcbench_stats.h"

#include <inttypes.h>
#include <stdbool.h>

#include <mooncake/mcs.h>

static const struct {
	const char *name;
	double q;
} quantiles[] = {
	{ "p50", 0.5 }, { "p90", 0.9 }, { "p99", 0.99 }, { "p99.9", 0.999 }, { "max", 1 },
};

#define N_QUANTILES (sizeof(quantiles) / sizeof(quantiles[0]))

static uint64_t counter_get(const uint64_t *v)
{
	return __atomic_load_n(v, __ATOMIC_RELAXED);
}

static void counter_add(uint64_t *v, uint64_t n)
{
	__atomic_fetch_add(v, n, __ATOMIC_RELAXED);
}

void mcbench_stats_call(struct mcbench_stats *s, uint64_t ns)
{
	mc_hist_add(&s->ns, ns);
}

void mcbench_stats_items(struct mcbench_stats *s, uint64_t items, uint64_t bytes)
{
	counter_add(&s->items, items);
	counter_add(&s->bytes, bytes);
}

void mcbench_stats_error(struct mcbench_stats *s, int err, uint64_t items)
{
	unsigned i;

	counter_add(&s->failed, items);
	for (i = 0; i < MCBENCH_ERRORS_MAX - 1; i++) {
		int code = 0;

		if (__atomic_compare_exchange_n(&s->code[i], &code, err, false, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED) || code == err)
			break;
	}
	if (i == MCBENCH_ERRORS_MAX - 1)
		__atomic_store_n(&s->code[i], err, __ATOMIC_RELAXED);
	counter_add(&s->count[i], items);
}

uint64_t mcbench_stats_busy_ns(const struct mcbench_stats *s)
{
	return counter_get(&s->ns.sum);
}

static double stats_rate(uint64_t n, uint64_t busy_ns, unsigned threads)
{
	return busy_ns ? (double)n * 1e9 / (double)busy_ns * threads : 0;
}

double mcbench_stats_items_rate(const struct mcbench_stats *s, unsigned threads)
{
	return stats_rate(counter_get(&s->items), mcbench_stats_busy_ns(s), threads);
}

double mcbench_stats_bytes_rate(const struct mcbench_stats *s, unsigned threads)
{
	return stats_rate(counter_get(&s->bytes), mcbench_stats_busy_ns(s), threads);
}

const char *mcbench_time_text(uint64_t ns, char *buf, size_t len)
{
	if (ns < 1000)
		snprintf(buf, len, "%" PRIu64 " ns", ns);
	else if (ns < 1000000)
		snprintf(buf, len, "%.1f us", (double)ns / 1e3);
	else if (ns < 1000000000)
		snprintf(buf, len, "%.1f ms", (double)ns / 1e6);
	else
		snprintf(buf, len, "%.2f s", (double)ns / 1e9);
	return buf;
}

void mcbench_stats_head(FILE *to)
{
	fprintf(to, "%-8s %10s %12s %8s", "", "calls", "objects/s", "GB/s");
	for (size_t i = 0; i < N_QUANTILES; i++)
		fprintf(to, " %9s", quantiles[i].name);
	putc('\n', to);
}

void mcbench_stats_row(const struct mcbench_stats *s, unsigned threads, FILE *to)
{
	char buf[32];

	fprintf(to, "%-8s %10" PRIu64 " %12.0f", s->name, counter_get(&s->ns.count),
		mcbench_stats_items_rate(s, threads));
	if (counter_get(&s->bytes))
		fprintf(to, " %8.3f", mcbench_stats_bytes_rate(s, threads) / 1e9);
	else
		fprintf(to, " %8s", "-");
	for (size_t i = 0; i < N_QUANTILES; i++)
		fprintf(to, " %9s", mcbench_time_text(mc_hist_quantile(&s->ns, quantiles[i].q),
						      buf, sizeof(buf)));
	putc('\n', to);
}

void mcbench_stats_errors(const struct mcbench_stats *s, FILE *to)
{
	for (unsigned i = 0; i < MCBENCH_ERRORS_MAX; i++)
		if (counter_get(&s->count[i]))
			fprintf(to, "  %s: %" PRIu64 " x %s\n", s->name, counter_get(&s->count[i]),
				mcs_strerror(__atomic_load_n(&s->code[i], __ATOMIC_RELAXED)));
}

json_t *mcbench_stats_json(const struct mcbench_stats *s, unsigned threads)
{
	json_t *errors = json_object(), *latency = json_object();

	for (unsigned i = 0; i < MCBENCH_ERRORS_MAX; i++) {
		const char *text = mcs_strerror(__atomic_load_n(&s->code[i], __ATOMIC_RELAXED));
		json_int_t n = (json_int_t)counter_get(&s->count[i]);

		/* Two error numbers may have the same text. */
		if (n)
			json_object_set_new(errors, text, json_integer(n +
				json_integer_value(json_object_get(errors, text))));
	}
	for (size_t i = 0; i < N_QUANTILES; i++)
		json_object_set_new(latency, quantiles[i].name, json_integer((json_int_t)
				    mc_hist_quantile(&s->ns, quantiles[i].q)));
	return json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:o*, s:o*}",
			 "calls", (json_int_t)counter_get(&s->ns.count), "objects",
			 (json_int_t)counter_get(&s->items), "bytes", (json_int_t)counter_get(&s->bytes),
			 "failed", (json_int_t)counter_get(&s->failed),
			 "objects_per_second", mcbench_stats_items_rate(s, threads),
			 "bytes_per_second", mcbench_stats_bytes_rate(s, threads),
			 "latency_ns", latency, "errors", errors);
}
