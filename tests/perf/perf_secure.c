/* SPDX-License-Identifier: Apache-2.0
 * perf_secure.c - the cost of security: the same calls at pools without and with it, in turn.
 *
 *	perf_secure PLAIN SECURE CREDENTIAL	two masters, and a credential for the second
 *	perf_secure tcp PLAIN SECURE CREDENTIAL	the calls over TCP only
 *	perf_secure time MASTER OURS THEIRS N	with the credentials of two tenants, N times exists of a key that the
 *						other tenant has, and of one that no tenant has, in random order
 *
 * perf_secure.sh starts the pools. */
#include <config.h>

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mooncake/mcs.h>

#include "common/err.h"
#include "common/security/tls.h"
#include "common/sys/clock.h"
#include "common/sys/random.h"
#include "tests/perf/row.h"

#define TURNS 15u
#define CALLS (unsigned)perf_n(1000, 10)
#define THREADS 4u
#define CONNECTIONS (unsigned)perf_n(150, 3)
#define SIZE 4096u
#define LARGE (4u << 20)
#define KEYS (unsigned)perf_n(1000, 10)

#define BATCH 32u
#define BATCH_SIZE (1u << 20)

/* CONTROL is the pool of SECURE, and the handle that reads and writes over TCP does not encrypt objects. */
enum { PLAIN, SECURE, CONTROL, POOLS };
enum figure {
	EXISTS, PUT, GET, PUTS, CONNECTS, OPENS, TCP_PUT, TCP_GET, LARGE_PUT, LARGE_GET, BATCH_GET, FIGURES,
	TCP_FIRST = TCP_PUT,
};
static const struct {
	const char *what, *unit;
	bool rate;
} figures[FIGURES] = {
	[EXISTS] = { "exists", "us", false },
	[PUT] = { "put 4 KiB, same host", "us", false },
	[GET] = { "get 4 KiB, same host", "us", false },
	[TCP_PUT] = { "put 4 KiB, over TCP", "us", false },
	[TCP_GET] = { "get 4 KiB, over TCP", "us", false },
	[LARGE_PUT] = { "put 4 MiB, over TCP", "us", false },
	[LARGE_GET] = { "get 4 MiB, over TCP", "us", false },
	[BATCH_GET] = { "get 32 x 1 MiB, over TCP", "us", false },
	[PUTS] = { "puts of 4 KiB, 4 threads", "1/s", true },
	[CONNECTS] = { "connections to the master", "1/s", true },
	[OPENS] = { "handles opened and closed", "1/s", true },
};

struct pool {
	const char *name, *addr, *credential, *encrypt;
	mcs_t *s, *tcp;
	unsigned puts;		/* keys are unique */
};

static struct pool pools[POOLS];
static char value[LARGE];

static void check(const char *what, int r)
{
	if (r < 0) {
		fprintf(stderr, "perf_secure: %s: %s\n", what, mcs_strerror(r));
		exit(1);
	}
}

static mcs_t *open_at(const struct pool *p, int tcp)
{
	struct mcs_conf conf;
	mcs_t *s;

	mcs_conf_init(&conf);
	conf.master = p->addr;
	conf.credential = p->credential;
	conf.daemon = "off";
	conf.force_tcp = tcp;
	conf.encrypt = p->encrypt;
	check(p->addr, mcs_open(&conf, &s));
	return s;
}

static struct mcs_key key_of(char text[32], const char *name, unsigned i)
{
	return (struct mcs_key){ .data = text, .len = (uint32_t)snprintf(text, 32, "%s-%u", name, i) };
}

/* Keys that are read must not be evicted. */
static void put(mcs_t *s, const char *name, unsigned i, size_t size, unsigned flags)
{
	struct mcs_put_opts opts = { .flags = flags };
	struct iovec iov = { value, size };
	char text[32];

	check("put", mcs_put(s, key_of(text, name, i), &iov, 1, &opts, -1));
}

static void get(mcs_t *s, const char *name, unsigned i, size_t size)
{
	static char buf[LARGE];
	char text[32];
	struct iovec iov = { buf, size };
	struct mcs_get_item item = { .key = key_of(text, name, i), .iov = &iov, .iovcnt = 1 };

	check("get", mcs_get_batch(s, &item, 1, -1));
	check("get", item.result < 0 ? (int)item.result : 0);
}

static void get_batch(mcs_t *s)
{
	static char buf[BATCH][BATCH_SIZE], text[BATCH][32];
	struct mcs_get_item item[BATCH];
	struct iovec iov[BATCH];

	for (unsigned i = 0; i < BATCH; i++) {
		iov[i] = (struct iovec){ buf[i], BATCH_SIZE };
		item[i] = (struct mcs_get_item){ .key = key_of(text[i], "batch", i), .iov = &iov[i], .iovcnt = 1 };
	}
	check("get", mcs_get_batch(s, item, BATCH, -1));
	for (unsigned i = 0; i < BATCH; i++)
		check("get", item[i].result < 0 ? (int)item[i].result : 0);
}

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static double median(double *v, unsigned n)
{
	qsort(v, n, sizeof(*v), compare);
	return v[n / 2];
}

static void call(enum figure f, struct pool *p, unsigned i)
{
	char text[32];
	struct mcs_key key;
	uint8_t present;

	switch (f) {
	case EXISTS:
		key = key_of(text, "get", i % 10);
		check("exists", mcs_exist(p->s, &key, 1, &present, -1));
		break;
	case PUT:
	case TCP_PUT:
		put(f == PUT ? p->s : p->tcp, "put", p->puts++, SIZE, 0);
		break;
	case LARGE_PUT:
		put(p->tcp, "large", p->puts++, LARGE, 0);
		break;
	case LARGE_GET:
		get(p->tcp, "large-get", i % 2, LARGE);
		break;
	case BATCH_GET:
		get_batch(p->tcp);
		break;
	default:
		get(f == GET ? p->s : p->tcp, "get", i % 10, SIZE);
	}
}

/* ---- rates ---- */

struct putter {
	struct pool *p;
	char name[16];
};

static void *putter_run(void *arg)
{
	struct putter *t = arg;
	unsigned i;

	for (i = 0; i < CALLS; i++)
		put(t->p->s, t->name, i, SIZE, 0);
	return NULL;
}

static double puts_rate(struct pool *p)
{
	struct putter putter[THREADS];
	pthread_t thread[THREADS];
	uint64_t start = mc_now_ns();
	unsigned i;

	for (i = 0; i < THREADS; i++) {
		putter[i].p = p;
		snprintf(putter[i].name, sizeof(putter[i].name), "r%u-%u", p->puts++, i);
		if (pthread_create(&thread[i], NULL, putter_run, &putter[i]))
			check("thread", -EAGAIN);
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	return THREADS * CALLS * 1e9 / (double)(mc_now_ns() - start);
}

static int present(void *arg, const char *addr, uint64_t deadline, struct mc_credential *ret)
{
	(void)addr;
	(void)deadline;
	return mc_credential_load(arg, ret);
}

static double connects_rate(struct pool *p)
{
	const struct mc_tls_conf conf = {
		.inner = mc_net_plain(), .present = present, .arg = (void *)(uintptr_t)p->credential,
	};
	const struct mc_net *net = mc_net_plain();
	struct mc_tls *tls = NULL;
	struct mc_stream s;
	uint64_t start;
	unsigned i;

	if (p->credential) {
		check("tls", mc_tls_new(&conf, &tls));
		net = mc_tls_net(tls);
	}
	start = mc_now_ns();
	for (i = 0; i < CONNECTIONS; i++) {
		check("connect", mc_net_connect(net, p->addr, mc_deadline_ms(5000), &s));
		mc_stream_close(&s);
	}
	start = mc_now_ns() - start;
	mc_tls_free(tls);
	return CONNECTIONS * 1e9 / (double)start;
}

static double opens_rate(struct pool *p)
{
	uint64_t start = mc_now_ns();
	unsigned i;

	for (i = 0; i < CONNECTIONS / 3; i++)
		mcs_close(open_at(p, 0));
	return CONNECTIONS / 3 * 1e9 / (double)(mc_now_ns() - start);
}

/* One turn of one figure: the median of its calls in us, or the rate. */
static double turn(enum figure f, struct pool *p)
{
	unsigned n = f == BATCH_GET ? CALLS / 200 + 1 : f == LARGE_PUT || f == LARGE_GET ? CALLS / 40 + 1 : CALLS;
	static double took[100000];
	uint64_t start;
	unsigned i;

	if (f == PUTS)
		return puts_rate(p);
	if (f == CONNECTS)
		return connects_rate(p);
	if (f == OPENS)
		return opens_rate(p);
	for (i = 0; i < n; i++) {
		start = mc_now_ns();
		call(f, p, i);
		took[i] = (double)(mc_now_ns() - start) / 1e3;
	}
	return median(took, n);
}

static void compare_pools(unsigned first)
{
	static double got[FIGURES][POOLS][TURNS];
	unsigned t, f, k, turns = (unsigned)perf_n(TURNS, 1);

	for (k = 0; k < POOLS; k++) {
		pools[k].s = open_at(&pools[k], 0);
		pools[k].tcp = open_at(&pools[k], 1);
		if (k == CONTROL)
			continue;
		for (t = 0; t < 2; t++)
			put(pools[k].s, "large-get", t, LARGE, MCS_PUT_HARD_PIN);
		for (t = 0; t < BATCH; t++)
			put(pools[k].s, "batch", t, BATCH_SIZE, MCS_PUT_HARD_PIN);
		for (t = 0; t < 10; t++)
			put(pools[k].s, "get", t, SIZE, MCS_PUT_HARD_PIN);
	}
	for (t = 0; t < turns; t++)
		for (f = first; f < FIGURES; f++)
			for (k = 0; k < POOLS; k++)
				got[f][(k + t) % POOLS][t] = turn(f, &pools[(k + t) % POOLS]);
	for (f = first; f < FIGURES; f++) {
		double plain = median(got[f][PLAIN], turns);

		for (k = 0; k < POOLS; k++) {
			double value_of = median(got[f][k], turns);

			perf_row(figures[f].what, pools[k].name, value_of, figures[f].unit);
			if (k != PLAIN)
				perf_row(figures[f].what, "x plain", value_of / plain,
					 figures[f].rate ? "rate" : "time");
		}
	}
	for (k = 0; k < POOLS; k++) {
		mcs_close(pools[k].s);
		mcs_close(pools[k].tcp);
	}
}

/* ---- the time of exists of other tenants' keys ---- */

/* The largest distance of the two distributions, times the square root of n/2: above 1.63 in 1 % of runs with equal
 * ones (Kolmogorov and Smirnov). */
static double distance(const double *a, const double *b, unsigned n)
{
	unsigned i = 0, j = 0;
	double d, most = 0, root = 1;

	while (i < n && j < n) {
		double at = a[i] < b[j] ? a[i] : b[j];

		while (i < n && a[i] <= at)
			i++;
		while (j < n && b[j] <= at)
			j++;
		d = i > j ? (double)(i - j) / n : (double)(j - i) / n;
		most = d > most ? d : most;
	}
	while (root * root < n / 2.0)
		root += 0.01;
	return most * root;
}

static void compare_times(const struct pool *p, const struct pool *other, unsigned n)
{
	double *took[2] = { calloc(n, sizeof(double)), calloc(n, sizeof(double)) };
	static const char *const names[2] = { "theirs", "no-ones" };
	unsigned done[2] = { 0, 0 }, which;
	mcs_t *s = open_at(p, 0), *theirs = open_at(other, 0);
	struct mcs_key key;
	uint64_t start;
	uint8_t present_;
	char text[32];
	unsigned i;

	for (i = 0; i < KEYS; i++)
		put(theirs, names[0], i, SIZE, MCS_PUT_HARD_PIN);
	while (done[0] < n || done[1] < n) {
		which = (unsigned)(mc_random_u64() & 1);
		which = done[which] < n ? which : !which;
		key = key_of(text, names[which], (unsigned)(mc_random_u64() % KEYS));
		start = mc_now_ns();
		check("exists", mcs_exist(s, &key, 1, &present_, -1));
		took[which][done[which]++] = (double)(mc_now_ns() - start) / 1e3;
		if (present_)
			check("exists tells of another tenant's key", -EPERM);
	}
	for (which = 0; which < 2; which++)
		qsort(took[which], n, sizeof(double), compare);
	for (which = 0; which < 2; which++) {
		const char *what = which ? "exists, no tenant's key" : "exists, another tenant's key";

		perf_row(what, "p10", took[which][n / 10], "us");
		perf_row(what, "p50", took[which][n / 2], "us");
		perf_row(what, "p90", took[which][n - 1 - n / 10], "us");
	}
	perf_row("exists, both distributions", "distance", distance(took[0], took[1], n),
		 "more than 1.63: differ (1 %)");
	mcs_close(theirs);
	mcs_close(s);
	free(took[0]);
	free(took[1]);
}

int main(int argc, char **argv)
{
	unsigned first = 0;

	if (argc == 6 && !strcmp(argv[1], "time")) {
		compare_times(&(struct pool){ .addr = argv[2], .credential = argv[3] },
			      &(struct pool){ .addr = argv[2], .credential = argv[4] }, (unsigned)atoi(argv[5]));
		return 0;
	}
	memset(value, 1, sizeof(value));
	if (argc == 5 && !strcmp(argv[1], "tcp")) {
		argc--;
		argv++;
		first = TCP_FIRST;
	}
	if (argc != 4) {
		fprintf(stderr, "usage: perf_secure [tcp] PLAIN SECURE CREDENTIAL | time MASTER OURS THEIRS N\n");
		return 77;
	}
	pools[PLAIN] = (struct pool){ .name = "plain", .addr = argv[1] };
	pools[SECURE] = (struct pool){ .name = "secure", .addr = argv[2], .credential = argv[3] };
	pools[CONTROL] = pools[SECURE];
	pools[CONTROL].name = "control";
	pools[CONTROL].encrypt = "control";
	pools[CONTROL].puts = 1u << 30;
	compare_pools(first);
	return 0;
}
