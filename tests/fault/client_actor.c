/* SPDX-License-Identifier: Apache-2.0
 * client_actor.c - one step of a client, for tests that interrupt it.
 *
 *	client_actor MASTER TIMEOUT_MS own MIB			holds memory until its input ends
 *	client_actor MASTER TIMEOUT_MS put KEY BYTES SEED [upsert|excl]
 *	client_actor MASTER TIMEOUT_MS get KEY BYTES SEED	0 hit, 1 miss, 2 other, 3 WRONG BYTES
 *	client_actor MASTER TIMEOUT_MS hold KEY BYTES SEED	opens it; each line of input: reads and maps it
 *	client_actor MASTER TIMEOUT_MS rm KEY
 *	client_actor MASTER TIMEOUT_MS stat WHAT		used, objects, capacity, segments, silent
 *
 * Prints the result and the duration: "ok 12 ms", "error -1022 text 300 ms". */
#include <config.h>

#include <mooncake/mcs.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/sys/clock.h"

static mcs_t *s;
static uint64_t began_ns;

static void make(unsigned char *p, size_t len, uint64_t seed)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (unsigned char)((seed + i / 8 * 0x9e3779b97f4a7c15ull) >> i % 8 * 8);
}

static int say(int64_t r)
{
	uint64_t ms = (mc_now_ns() - began_ns) / MC_NS_PER_MS;

	if (r < 0)
		printf("error %" PRId64 " %s %" PRIu64 " ms\n", r, mcs_error_detail((int)r), ms);
	else
		printf("ok %" PRIu64 " ms\n", ms);
	fflush(stdout);
	return r >= 0 ? 0 : r == -MCS_ENOOBJECT ? 1 : 2;
}

static int own(void)
{
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}

static int put(struct mcs_key key, size_t len, uint64_t seed, const char *how)
{
	struct mcs_put_opts opts = { 0 };
	unsigned char *buf = malloc(len + 1);
	struct iovec iov = { buf, len };
	int r;

	if (how)
		opts.flags = !strcmp(how, "upsert") ? MCS_PUT_UPSERT : MCS_PUT_EXCL;
	make(buf, len, seed);
	r = mcs_put(s, key, &iov, 1, &opts, -1);
	free(buf);
	return say(r);
}

static int same(const void *data, int64_t n, size_t len, uint64_t seed)
{
	unsigned char *want = malloc(len + 1);
	int ok;

	make(want, len, seed);
	ok = n == (int64_t)len && !memcmp(data, want, len);
	free(want);
	if (!ok)
		puts("WRONG BYTES");
	return ok;
}

static int get(struct mcs_key key, size_t len, uint64_t seed)
{
	void *data = NULL;
	int64_t r = mcs_get_alloc(s, key, &data, -1);
	int status = say(r);

	if (r >= 0 && !same(data, r, len, seed))
		status = 3;
	free(data);
	return status;
}

static int hold(struct mcs_key key, size_t len, uint64_t seed)
{
	void *data = malloc(len);
	struct iovec iov = { data, len };
	int r, c, status = 0;
	mcs_object_t *o;

	r = mcs_object_open(s, key, &o, -1);
	if (say(r))
		return 2;
	while (!status && (c = getchar()) != EOF) {
		const void *map;
		int64_t n;

		if (c != '\n')
			continue;
		began_ns = mc_now_ns();
		n = mcs_object_read(o, 0, &iov, 1, -1);
		if (n >= 0 && !same(data, n, len, seed))
			status = 3;
		/* A map shows the bytes that are in memory now; verify tells whether they are still
		 * the object's. */
		if (!mcs_object_map(o, &map, -1) && !mcs_object_verify(o) &&
		    !same(map, (int64_t)len, len, seed))
			status = 3;
		/* If the object is still held after the comparison, the bytes are right without verify. */
		if (!mcs_object_map(o, &map, -1) && !same(map, (int64_t)len, len, seed) &&
		    !mcs_object_held(o))
			status = 3;
		say(n);
	}
	mcs_object_close(o);
	free(data);
	return status;
}

static int stat_of(const char *what)
{
	struct mcs_segment *seg = NULL;
	struct mcs_pool pool;
	int n, silent = 0;

	n = mcs_pool_stat(s, &pool, -1);
	if (!n)
		n = mcs_segments(s, &seg, -1);
	if (n < 0)
		return say(n);
	for (int i = 0; i < n; i++)
		silent += !strcmp(seg[i].state, "silent");
	free(seg);
	printf("%" PRIu64 "\n",
	       !strcmp(what, "used") ? pool.used : !strcmp(what, "objects") ? pool.objects :
	       !strcmp(what, "capacity") ? pool.capacity :
	       !strcmp(what, "silent") ? (uint64_t)silent : (uint64_t)pool.segments);
	return 0;
}

int main(int argc, char **argv)
{
	const char *role = argc > 3 ? argv[3] : "", *arg = argc > 4 ? argv[4] : "";
	const struct mcs_key key = { arg, strlen(arg) };
	size_t len = argc > 5 ? strtoull(argv[5], NULL, 0) : 0;
	uint64_t seed = argc > 6 ? strtoull(argv[6], NULL, 0) : 0;
	struct mcs_conf conf;
	int r;

	if (argc < 5) {
		fprintf(stderr, "usage: client_actor MASTER TIMEOUT_MS ROLE ARG...\n");
		return 2;
	}
	mcs_conf_init(&conf);
	conf.master = argv[1];
	conf.timeout_ms = atoi(argv[2]);
	conf.setup_timeout_ms = 5000;
	conf.force_tcp = !!getenv("ACTOR_TCP");
	if (!strcmp(role, "own"))
		conf.segment_size = strtoull(arg, NULL, 0) << 20;
	began_ns = mc_now_ns();
	r = mcs_open(&conf, &s);
	if (r < 0)
		return say(r);
	began_ns = mc_now_ns();
	if (!strcmp(role, "own"))
		r = own();
	else if (!strcmp(role, "put"))
		r = put(key, len, seed, argc > 7 ? argv[7] : NULL);
	else if (!strcmp(role, "get"))
		r = get(key, len, seed);
	else if (!strcmp(role, "hold"))
		r = hold(key, len, seed);
	else if (!strcmp(role, "rm"))
		r = say(mcs_remove(s, key, 0, -1));
	else
		r = stat_of(arg);
	mcs_close(s);
	return r;
}
