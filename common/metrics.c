/* SPDX-License-Identifier: Apache-2.0
 * metrics.c - registry of metrics, histograms, output in Prometheus format. */
#include <config.h>

#include "common/metrics.h"
#include "common/sys/lock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/process/fork.h"

#define LAST_BUCKET (MC_HIST_BUCKETS - 1)

struct collector {
	struct collector *next;
	void (*fn)(void *arg);
	void *arg;
};

static struct mc_metric *registry;	/* atomic; newest first */
static struct mc_metric_part *parts;	/* constant after the constructors */
static struct mc_mutex collectors_lock = MC_MUTEX_INIT;
static struct collector *collectors;	/* with collectors_lock held */
MC_FORK_KEEP(collectors_lock, MC_FORK_COLLECTORS)

void mc_metric_register(struct mc_metric *m)
{
	m->next = __atomic_load_n(&registry, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&registry, &m->next, m, false, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED))
		;
}

void mc_metric_part_register(struct mc_metric_part *p)
{
	p->next = parts;
	parts = p;
}

static bool is_shown(const struct mc_metric *m)
{
	for (const struct mc_metric_part *p = parts; p; p = p->next) {
		if (__atomic_load_n(&p->shown, __ATOMIC_RELAXED))
			continue;
		for (const char *const *prefix = p->prefixes; *prefix; prefix++)
			if (!strncmp(m->name, *prefix, strlen(*prefix)))
				return false;
	}
	return true;
}

/* ---- histograms ----
 *
 * A bucket counts the values v with low < v <= high, so that the inclusive bounds that Prometheus
 * expects are exact: most sizes are powers of two.  Therefore the exponent of v - 1 and the three
 * bits below its leading one select the bucket.  0 and 1 share bucket 0, 2 has bucket 1. */

static unsigned bucket_of(uint64_t v)
{
	unsigned exp, sub;

	if (v <= 2)
		return v == 2;
	v--;
	exp = 63 - (unsigned)__builtin_clzll(v);
	sub = exp >= 3 ? v >> (exp - 3) & 7 : v << (3 - exp) & 7;
	return exp * MC_HIST_SUB + sub < LAST_BUCKET ? exp * MC_HIST_SUB + sub : LAST_BUCKET;
}

/* Smallest v - 1 of a bucket (2 or higher); a fraction where no integer is in the bucket. */
static double bucket_low(unsigned b)
{
	return (double)(1ull << (b / MC_HIST_SUB)) * (1 + (b % MC_HIST_SUB) / 8.0);
}

void mc_hist_add(struct mc_hist *h, uint64_t v)
{
	mc_hist_add_many(h, v, 1);
}

void mc_hist_add_many(struct mc_hist *h, uint64_t v, uint64_t n)
{
	uint64_t max = __atomic_load_n(&h->max, __ATOMIC_RELAXED);

	if (!n)
		return;
	__atomic_fetch_add(&h->count, n, __ATOMIC_RELAXED);
	__atomic_fetch_add(&h->sum, v * n, __ATOMIC_RELAXED);
	__atomic_fetch_add(&h->bucket[bucket_of(v)], n, __ATOMIC_RELAXED);
	while (v > max && !__atomic_compare_exchange_n(&h->max, &max, v, true, __ATOMIC_RELAXED,
						       __ATOMIC_RELAXED))
		;
}

static uint64_t bucket_count(const struct mc_hist *h, unsigned b)
{
	return __atomic_load_n(&h->bucket[b], __ATOMIC_RELAXED);
}

static uint64_t value_in_bucket(unsigned b, double part)
{
	double low;

	if (b < 2)
		return b + 1;
	low = bucket_low(b);
	return (uint64_t)(low + 1 + part * (bucket_low(b + 1) - low));
}

uint64_t mc_hist_quantile(const struct mc_hist *h, double q)
{
	uint64_t max = __atomic_load_n(&h->max, __ATOMIC_RELAXED), total = 0, seen = 0, v;
	double rank;

	for (unsigned b = 0; b < MC_HIST_BUCKETS; b++)
		total += bucket_count(h, b);
	if (total == 0)
		return 0;
	if (q >= 1)
		return max;
	rank = q > 0 ? q * (double)total : 0;
	for (unsigned b = 0; b < MC_HIST_BUCKETS; b++) {
		uint64_t n = bucket_count(h, b);

		if (n && rank < (double)(seen + n)) {
			v = value_in_bucket(b, (rank - (double)seen) / (double)n);
			return v < max ? v : max;
		}
		seen += n;
	}
	return max;
}

/* ---- collectors ---- */

int mc_metrics_collector(void (*fn)(void *arg), void *arg)
{
	struct collector *c = malloc(sizeof(*c)), **at;

	if (!c)
		return mc_fail(-ENOMEM, "no memory for a collector of metrics");
	c->next = NULL;
	c->fn = fn;
	c->arg = arg;
	MC_LOCKED(&collectors_lock);
	for (at = &collectors; *at; at = &(*at)->next)
		;
	*at = c;
	return 0;
}

void mc_metrics_collector_remove(void (*fn)(void *arg), void *arg)
{
	struct collector **at, *c;

	/* The lock waits for a running print, so @arg may be freed after return. */
	MC_LOCKED(&collectors_lock);
	for (at = &collectors; (c = *at); at = &c->next)
		if (c->fn == fn && c->arg == arg) {
			*at = c->next;
			free(c);
			return;
		}
}

/* ---- text ---- */

static void print_name(FILE *to, const struct mc_metric *m, const char *suffix, const char *label)
{
	const char *labels = m->labels ? m->labels : "";

	fprintf(to, "%s%s", m->name, suffix);
	if (*labels || *label)
		fprintf(to, "{%s%s%s}", labels, *labels && *label ? "," : "", label);
	putc(' ', to);
}

static void print_bucket(FILE *to, const struct mc_metric *m, const char *le, uint64_t n)
{
	char label[48];

	snprintf(label, sizeof(label), "le=\"%s\"", le);
	print_name(to, m, "_bucket", label);
	fprintf(to, "%" PRIu64 "\n", n);
}

/* Bounds of times are every power of two from about 1 us to half a minute, other bounds every
 * second power: enough for quantiles, few enough for a scrape of hundreds of histograms. */
static void print_histogram(FILE *to, const struct mc_metric *m)
{
	bool is_time = m->scale < 1;
	unsigned first = is_time ? 10 : 0, last = is_time ? 35 : 40, step = is_time ? 1 : 2;
	uint64_t below = bucket_count(m->hist, 0);
	unsigned b = 1;
	char le[32];

	for (unsigned exp = 0; exp <= last; exp++) {
		for (; b < exp * MC_HIST_SUB; b++)
			below += bucket_count(m->hist, b);
		if (exp < first || (exp - first) % step)
			continue;
		snprintf(le, sizeof(le), "%.15g", (double)(1ull << exp) * m->scale);
		print_bucket(to, m, le, below);
	}
	for (; b < MC_HIST_BUCKETS; b++)
		below += bucket_count(m->hist, b);
	print_bucket(to, m, "+Inf", below);
	print_name(to, m, "_sum", "");
	fprintf(to, "%.15g\n", (double)__atomic_load_n(&m->hist->sum, __ATOMIC_RELAXED) * m->scale);
	/* The buckets' total, not @count: the two must agree even while values are added concurrently. */
	print_name(to, m, "_count", "");
	fprintf(to, "%" PRIu64 "\n", below);
}

static void print_head(FILE *to, const struct mc_metric *m)
{
	static const char *const types[] = { "counter", "gauge", "histogram" };

	fprintf(to, "# HELP %s ", m->name);
	for (const char *s = m->help; *s; s++) {
		if (*s == '\\')
			fputs("\\\\", to);
		else if (*s == '\n')
			fputs("\\n", to);
		else
			putc(*s, to);
	}
	fprintf(to, "\n# TYPE %s %s\n", m->name, types[m->type]);
}

static void print_metric(FILE *to, const struct mc_metric *m)
{
	if (m->type == MC_HISTOGRAM_TYPE) {
		print_histogram(to, m);
		return;
	}
	print_name(to, m, "", "");
	if (m->scale == 1)
		fprintf(to, "%" PRId64 "\n", mc_metric_get(m));
	else
		fprintf(to, "%.15g\n", (double)mc_metric_get(m) * m->scale);
}

static int by_name_and_labels(const void *a, const void *b)
{
	const struct mc_metric *x = *(struct mc_metric *const *)a;
	const struct mc_metric *y = *(struct mc_metric *const *)b;
	int c = strcmp(x->name, y->name);

	return c ? c : strcmp(x->labels ? x->labels : "", y->labels ? y->labels : "");
}

static void metrics_collect(void)
{
	MC_LOCKED(&collectors_lock);
	for (struct collector *c = collectors; c; c = c->next)
		c->fn(c->arg);
}

int mc_metrics_print(FILE *to)
{
	struct mc_metric *first, *m;
	auto_free struct mc_metric **sorted = NULL;
	size_t n = 0, i;

	metrics_collect();
	first = __atomic_load_n(&registry, __ATOMIC_ACQUIRE);
	for (m = first; m; m = m->next)
		n++;
	sorted = calloc(n + 1, sizeof(*sorted));
	if (!sorted)
		return mc_fail(-ENOMEM, "no memory to print the metrics");
	n = 0;
	for (m = first; m; m = m->next)
		if (is_shown(m))
			sorted[n++] = m;
	/* All samples of a name have to be adjacent. */
	qsort(sorted, n, sizeof(*sorted), by_name_and_labels);
	for (i = 0; i < n; i++) {
		if (i == 0 || strcmp(sorted[i]->name, sorted[i - 1]->name))
			print_head(to, sorted[i]);
		print_metric(to, sorted[i]);
	}
	return ferror(to) ? mc_fail(-EIO, "cannot print the metrics") : 0;
}

int mc_metrics_lookup(const char *name, const char *labels, int64_t *ret)
{
	struct mc_metric *m = __atomic_load_n(&registry, __ATOMIC_ACQUIRE);

	for (; m; m = m->next)
		if (m->type != MC_HISTOGRAM_TYPE && !strcmp(m->name, name) &&
		    !strcmp(m->labels ? m->labels : "", labels ? labels : "")) {
			*ret = mc_metric_get(m);
			return 0;
		}
	return -ENOENT;
}
