/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "common/metrics.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

MC_COUNTER(puts_ok, "test_puts_total", "result=\"ok\"", "Puts by result")
MC_GAUGE(bytes, "test_bytes", "", "Bytes \\ of\na test")
MC_COUNTER(puts_bad, "test_puts_total", "result=\"bad\"", "Puts by result")
MC_HISTOGRAM(latency, "test_latency_seconds", "op=\"get\"", "Latency of a get", 1e-9)
MC_HISTOGRAM(sizes, "test_size_bytes", "", "Size of an object", 1)

static char *print(void)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	assert_non_null(f);
	assert_int_equal(mc_metrics_print(f), 0);
	fclose(f);
	return text;
}

static int count(const char *in, const char *what)
{
	int n = 0;

	for (; (in = strstr(in, what)); in++)
		n++;
	return n;
}

/* Number behind a line's beginning; the test fails when there is no such line. */
static double sample(const char *in, const char *begin)
{
	const char *at = strstr(in, begin);

	if (!at)
		fail_msg("no line \"%s\"", begin);
	assert_true(at == in || at[-1] == '\n');
	return strtod(at + strlen(begin), NULL);
}

static void counters_and_gauges(void **state)
{
	int64_t v;
	char *t;

	mc_metric_add(&puts_ok, 40);
	mc_metric_add(&puts_ok, 2);
	mc_metric_add(&puts_bad, 1);
	mc_metric_set(&bytes, -7);
	assert_int_equal(mc_metric_get(&puts_ok), 42);
	assert_int_equal(mc_metrics_lookup("test_puts_total", "result=\"bad\"", &v), 0);
	assert_int_equal(v, 1);
	assert_int_equal(mc_metrics_lookup("test_bytes", NULL, &v), 0);
	assert_int_equal(v, -7);
	assert_int_equal(mc_metrics_lookup("test_puts_total", "", &v), -ENOENT);
	assert_int_equal(mc_metrics_lookup("test_size_bytes", "", &v), -ENOENT);

	t = print();
	assert_non_null(strstr(t, "# HELP test_puts_total Puts by result\n"
			       "# TYPE test_puts_total counter\n"
			       "test_puts_total{result=\"bad\"} 1\n"
			       "test_puts_total{result=\"ok\"} 42\n"));
	assert_int_equal(count(t, "# HELP test_puts_total"), 1);
	assert_non_null(strstr(t, "# HELP test_bytes Bytes \\\\ of\\na test\n"
			       "# TYPE test_bytes gauge\ntest_bytes -7\n"));
	free(t);
}

static void histograms_in_text(void **state)
{
	char *t;

	/* Bounds are inclusive: an object of 4096 bytes is no larger than 4096. */
	mc_metric_observe(&sizes, 4096);
	mc_metric_observe(&sizes, 4097);
	mc_metric_observe(&sizes, 1);
	mc_metric_observe(&sizes, 0);
	mc_metric_observe(&sizes, 2);
	mc_metric_observe(&sizes, UINT64_MAX / 4);
	mc_metric_observe(&latency, 1000000);
	t = print();
	assert_true(sample(t, "test_size_bytes_bucket{le=\"1\"} ") == 2);
	assert_true(sample(t, "test_size_bytes_bucket{le=\"4\"} ") == 3);
	assert_true(sample(t, "test_size_bytes_bucket{le=\"1024\"} ") == 3);
	assert_true(sample(t, "test_size_bytes_bucket{le=\"4096\"} ") == 4);
	assert_true(sample(t, "test_size_bytes_bucket{le=\"16384\"} ") == 5);
	assert_true(sample(t, "test_size_bytes_bucket{le=\"1099511627776\"} ") == 5);
	assert_true(sample(t, "test_size_bytes_bucket{le=\"+Inf\"} ") == 6);
	assert_true(sample(t, "test_size_bytes_count ") == 6);
	assert_true(sample(t, "test_latency_seconds_bucket{op=\"get\",le=\"0.000524288\"} ") == 0);
	assert_true(sample(t, "test_latency_seconds_bucket{op=\"get\",le=\"0.001048576\"} ") == 1);
	assert_true(sample(t, "test_latency_seconds_sum{op=\"get\"} ") == 0.001);
	assert_true(sample(t, "test_latency_seconds_count{op=\"get\"} ") == 1);
	assert_int_equal(count(t, "# TYPE test_latency_seconds histogram\n"), 1);
	/* A scrape of many histograms has to stay small. */
	assert_true(count(t, "test_latency_seconds_bucket") < 30);
	free(t);
}

static void quantiles_of_few(void **state)
{
	struct mc_hist h = { 0 };

	assert_int_equal(mc_hist_quantile(&h, 0.5), 0);
	mc_hist_add(&h, 1);
	assert_int_equal(mc_hist_quantile(&h, 0), 1);
	assert_int_equal(mc_hist_quantile(&h, 1), 1);
	for (int i = 0; i < 98; i++)
		mc_hist_add(&h, 2);
	mc_hist_add(&h, 1000000007);
	assert_int_equal(mc_hist_quantile(&h, 0.5), 2);
	assert_int_equal(mc_hist_quantile(&h, 1), 1000000007);
	assert_int_equal(mc_hist_quantile(&h, 7), 1000000007);
	assert_int_equal(mc_hist_quantile(&h, -1), 1);
	assert_int_equal(h.count, 100);
	assert_int_equal(h.max, 1000000007);
}

/* A quantile is off by no more than the width of a bucket, an eighth. */
static void quantiles_of_many(void **state)
{
	static struct mc_hist h;
	uint64_t last = 0;

	for (uint64_t v = 1; v <= 100000; v++)
		mc_hist_add(&h, v * 1000);
	for (int i = 1; i < 1000; i++) {
		uint64_t v = mc_hist_quantile(&h, i / 1000.0);
		double exact = i * 100000.0;

		assert_true(v >= last);
		assert_true((double)v > exact * 0.93 && (double)v < exact * 1.07);
		last = v;
	}
}

/* One value alone is its own median, whatever its size. */
static void every_size_has_its_bucket(void **state)
{
	for (unsigned exp = 0; exp < 40; exp++)
		for (int d = -1; d <= 1; d++) {
			uint64_t v = (1ull << exp) + (uint64_t)d, q;
			struct mc_hist h = { 0 };

			if (v == 0)
				continue;
			mc_hist_add(&h, v);
			q = mc_hist_quantile(&h, 0.5);
			assert_true(q <= v && q + q / 8 + 1 >= v);
		}
}

static void set_bytes(void *arg)
{
	mc_metric_set(&bytes, ++*(int *)arg);
}

static void collectors(void **state)
{
	int calls = 10, other = 20;
	int64_t v;

	assert_int_equal(mc_metrics_collector(set_bytes, &calls), 0);
	assert_int_equal(mc_metrics_collector(set_bytes, &other), 0);
	free(print());
	/* In the order of their registration, so the second has the last word. */
	assert_int_equal(mc_metrics_lookup("test_bytes", "", &v), 0);
	assert_int_equal(v, 21);
	mc_metrics_collector_remove(set_bytes, &other);
	mc_metrics_collector_remove(set_bytes, NULL);
	free(print());
	assert_int_equal(mc_metrics_lookup("test_bytes", "", &v), 0);
	assert_int_equal(v, 12);
	mc_metrics_collector_remove(set_bytes, &calls);
	free(print());
	assert_int_equal(calls, 12);
}

static struct mc_hist shared;

static void *hammer(void *arg)
{
	for (int i = 0; i < 20000; i++) {
		mc_metric_add(&puts_ok, 1);
		mc_hist_add(&shared, (uint64_t)i);
		if (i % 4000 == 0)
			free(print());
	}
	return NULL;
}

static void threads(void **state)
{
	int64_t before = mc_metric_get(&puts_ok);
	pthread_t t[4];

	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, hammer, NULL), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(mc_metric_get(&puts_ok) - before, 80000);
	assert_int_equal(shared.count, 80000);
	assert_int_equal(shared.max, 19999);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counters_and_gauges),
		cmocka_unit_test(histograms_in_text),
		cmocka_unit_test(quantiles_of_few),
		cmocka_unit_test(quantiles_of_many),
		cmocka_unit_test(every_size_has_its_bucket),
		cmocka_unit_test(collectors),
		cmocka_unit_test(threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
