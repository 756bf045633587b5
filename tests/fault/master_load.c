/* SPDX-License-Identifier: Apache-2.0
 * master_load.c - a client that knows which objects must exist.
 *
 *	master_load MASTER SEED SECONDS keep|cache FILE
 *
 * Puts, removes and renames until FILE exists, for at most SECONDS.  Meanwhile the test kills the
 * master, creates FILE and starts another master.  Then waits until the pool is back and checks every key
 * before another program changes it: the effect of an acknowledged call must be there, whole; after a failed
 * call the key may have the old or the new state.  "cache": objects may be missing, since the pool is small,
 * but never wrong.  Exit status 0: no error found. */
#include <config.h>

#include <mooncake/mcs.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/sys/clock.h"

#define KEYS 120u
#define SIZE_MAX_ 60000u
#define MAYBE 64u

/* Versions that a key may have; 0: no object. */
struct state {
	uint64_t may[MAYBE];
	unsigned n;
};

static struct state state[KEYS];
static mcs_t *s;
static uint64_t rnd_state, versions, unknown, done;
static int cache;

static uint64_t rnd(void)
{
	rnd_state ^= rnd_state << 13;
	rnd_state ^= rnd_state >> 7;
	rnd_state ^= rnd_state << 17;
	return rnd_state >> 11;
}

static void set(struct state *st, uint64_t v)
{
	st->may[0] = v;
	st->n = 1;
}

static int has(const struct state *st, uint64_t v)
{
	for (unsigned i = 0; i < st->n; i++)
		if (st->may[i] == v)
			return 1;
	return 0;
}

static void add(struct state *st, uint64_t v)
{
	if (has(st, v))
		return;
	if (st->n == MAYBE) {
		fprintf(stderr, "too many calls failed\n");
		exit(1);
	}
	st->may[st->n++] = v;
}

static struct mcs_key key_of(unsigned i, char name[32])
{
	return (struct mcs_key){ name, (size_t)snprintf(name, 32, "dir%u/key%u", i % 5, i) };
}

static size_t size_of(uint64_t v)
{
	return 16 + v * 0x9e3779b97f4a7c15ull % SIZE_MAX_;
}

static void fill(unsigned char *p, uint64_t v)
{
	size_t len = size_of(v);

	for (size_t i = 0; i < len; i++)
		p[i] = (unsigned char)((v + i / 8 * 0x9e3779b97f4a7c15ull) >> i % 8 * 8);
}

static void put(unsigned i)
{
	static unsigned char buf[SIZE_MAX_ + 16];
	struct mcs_put_opts opts = { .flags = MCS_PUT_UPSERT };
	uint64_t v = ++versions;
	struct iovec iov = { buf, size_of(v) };
	char name[32];
	int r;

	fill(buf, v);
	r = mcs_put(s, key_of(i, name), &iov, 1, &opts, -1);
	if (r < 0) {
		if (!unknown++)
			fprintf(stderr, "a put: %s\n", mcs_error_detail(r));
		add(&state[i], v);
	} else {
		set(&state[i], v);
	}
}

static void drop(unsigned i)
{
	char name[32];
	int r = mcs_remove(s, key_of(i, name), MCS_REMOVE_FORCE, -1);

	/* Not found: the object did not exist, or the first attempt of a repeated call removed it.
	 * If it certainly existed and its owner has not attached again yet, it may still appear. */
	if (r >= 0)
		set(&state[i], 0);
	else
		add(&state[i], 0);
}

static void move(unsigned from, unsigned to)
{
	char a[32], b[32];
	int r = mcs_rename(s, key_of(from, a), key_of(to, b), 0, -1);

	if (from == to)
		return;
	if (r >= 0) {
		state[to] = state[from];
		for (unsigned i = 0; i < state[to].n; i++)
			if (!state[to].may[i])
				state[to].may[i--] = state[to].may[--state[to].n];
		set(&state[from], 0);
		return;
	}
	for (unsigned i = 0; i < state[from].n; i++)
		if (state[from].may[i])
			add(&state[to], state[from].may[i]);
	add(&state[from], 0);
}

/* The version that the key has; 0: none, UINT64_MAX: cannot be read now. */
static uint64_t look(unsigned i)
{
	static unsigned char want[SIZE_MAX_ + 16];
	void *data = NULL;
	char name[32];
	uint64_t v;
	int64_t n = mcs_get_alloc(s, key_of(i, name), &data, -1);

	if (n == -MCS_ENOOBJECT)
		return 0;
	if (n < 0) {
		fprintf(stderr, "%s: %s\n", name, mcs_error_detail((int)n));
		return UINT64_MAX;
	}
	memcpy(&v, data, n >= 8 ? 8 : 0);
	if (n < 16 || (size_t)n != size_of(v) || v > versions)
		v = UINT64_MAX - 1;
	else
		fill(want, v);
	if (v <= versions && memcmp(data, want, (size_t)n) != 0)
		v = UINT64_MAX - 1;
	free(data);
	return v;
}

static int check(void)
{
	int bad = 0;

	for (unsigned i = 0; i < KEYS; i++) {
		uint64_t v = look(i);

		if (has(&state[i], v) || (cache && !v))
			continue;
		printf("key %u: ", i);
		if (v == UINT64_MAX - 1)
			printf("WRONG BYTES");
		else if (v == UINT64_MAX)
			printf("cannot be read");
		else
			printf("has version %" PRIu64, v);
		printf(", may have");
		for (unsigned k = 0; k < state[i].n; k++)
			printf(" %" PRIu64, state[i].may[k]);
		printf("\n");
		bad++;
	}
	return bad;
}

static int pool_is_back(void)
{
	struct mcs_segment *seg = NULL;
	int n = mcs_segments(s, &seg, -1), ok = n > 0;

	for (int i = 0; i < n; i++)
		ok &= !strcmp(seg[i].state, "ok");
	free(seg);
	return ok;
}

static void step(void)
{
	unsigned i = (unsigned)(rnd() % KEYS);

	switch (rnd() % 10) {
	case 0:
		drop(i);
		break;
	case 1:
	case 2:
		move(i, (unsigned)(rnd() % KEYS));
		break;
	default:
		put(i);
	}
	done++;
}

int main(int argc, char **argv)
{
	struct mcs_conf conf;
	uint64_t end;
	int r, bad;

	if (argc != 6) {
		fprintf(stderr, "usage: master_load MASTER SEED SECONDS keep|cache FILE\n");
		return 2;
	}
	mcs_conf_init(&conf);
	conf.master = argv[1];
	conf.timeout_ms = 10000;
	conf.setup_timeout_ms = 10000;
	rnd_state = strtoull(argv[2], NULL, 0) * 0x9e3779b97f4a7c15ull | 1;
	/* ignore objects of an earlier run */
	versions = (uint64_t)getpid() << 32;
	cache = !strcmp(argv[4], "cache");
	r = mcs_open(&conf, &s);
	if (r < 0) {
		fprintf(stderr, "%s\n", mcs_error_detail(r));
		return 2;
	}
	for (unsigned i = 0; i < KEYS; i++)
		add(&state[i], 0);
	mcs_remove_match(s, (struct mcs_key){ "", 0 }, NULL, MCS_REMOVE_FORCE, -1);
	printf("ready\n");
	fflush(stdout);
	end = mc_now_ns() + (uint64_t)(atof(argv[3]) * 1e9);
	while (mc_now_ns() < end && access(argv[5], F_OK) < 0)
		step();
	end = mc_now_ns() + 20 * MC_NS_PER_SEC;
	while (!pool_is_back() && mc_now_ns() < end)
		usleep(20000);
	bad = check();
	printf("%" PRIu64 " steps, %" PRIu64 " puts of unknown outcome, %d wrong\n", done, unknown, bad);
	mcs_close(s);
	return bad ? 1 : 0;
}
