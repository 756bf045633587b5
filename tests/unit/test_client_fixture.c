/* SPDX-License-Identifier: Apache-2.0
 * test_client_fixture.c - implementation of test_client_fixture.h. */
#include <config.h>

#include "tests/unit/test_client_fixture.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/sys/clock.h"
#include "common/err.h"

static struct mcm *master;
static struct mc_options *owner;

void fixture_master(void (*tweak)(struct mcm_conf *conf))
{
	static const char *const addrs[] = { "127.0.0.1:0", NULL };
	const struct mcm_listen where = { .addrs = addrs, .local_name = "test" };
	struct mcm_conf conf;

	assert_int_equal(mcm_conf_defaults(&conf, &owner), 0);
	if (tweak)
		tweak(&conf);
	assert_int_equal(mcm_start(&conf, &where, &master), 0);
}

void fixture_master_stop(void)
{
	mcm_stop(master);
	master = NULL;
	mc_options_free(owner);
	owner = NULL;
}

const char *fixture_master_addr(void)
{
	return mcm_addr(master, 0);
}

mcs_t *fixture_store_with(uint64_t segment, int force_tcp, const char *addr)
{
	struct mcs_conf conf;
	mcs_t *s = NULL;
	int r;

	mcs_conf_init(&conf);
	conf.master = addr;
	conf.segment_size = segment;
	conf.segment_kind = "memfd";
	conf.force_tcp = force_tcp;
	conf.timeout_ms = 20000;
	r = mcs_open(&conf, &s);
	if (r < 0)
		fail_msg("mcs_open: %s", mcs_error_detail(r));
	return s;
}

mcs_t *fixture_store(uint64_t segment)
{
	return fixture_store_with(segment, 0, FIXTURE_LOCAL);
}

struct mcs_key fixture_key(const char *text)
{
	return (struct mcs_key){ text, strlen(text) };
}

static uint64_t word_at(uint64_t seed, uint64_t i)
{
	uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

void fixture_fill(void *buf, size_t len, uint64_t seed, size_t offset)
{
	unsigned char *p = buf;

	for (size_t i = 0; i < len; i++) {
		size_t at = offset + i;

		p[i] = (unsigned char)(word_at(seed, at / 8) >> at % 8 * 8);
	}
}

int fixture_same(const void *buf, size_t len, uint64_t seed, size_t offset)
{
	unsigned char *want = malloc(len + 1);
	int same;

	fixture_fill(want, len, seed, offset);
	same = !memcmp(buf, want, len);
	free(want);
	return same;
}

int fixture_put(mcs_t *s, const char *key, size_t len, uint64_t seed, unsigned flags)
{
	struct mcs_put_opts opts = { .flags = flags };
	void *buf = malloc(len + 1);
	struct iovec iov = { buf, len };
	int r;

	fixture_fill(buf, len, seed, 0);
	r = mcs_put(s, fixture_key(key), &iov, 1, &opts, -1);
	free(buf);
	return r;
}

void fixture_put_ok(mcs_t *s, const char *key, size_t len, uint64_t seed)
{
	int r = fixture_put(s, key, len, seed, 0);

	if (r)
		fail_msg("put %s: %d %s", key, r, mcs_error_detail(r));
}

void fixture_expect(mcs_t *s, const char *key, size_t len, uint64_t seed)
{
	void *data = NULL;
	int64_t r = mcs_get_alloc(s, fixture_key(key), &data, -1);

	if (r != (int64_t)len)
		fail_msg("get %s: %lld %s", key, (long long)r,
			 r < 0 ? mcs_error_detail((int)r) : "");
	if (!fixture_same(data, len, seed, 0))
		fail_msg("get %s: wrong bytes", key);
	free(data);
}

uint64_t fixture_wait_used(mcs_t *s, uint64_t want)
{
	const struct timespec tick = { .tv_nsec = 5000000 };
	uint64_t end = mc_deadline_ms(20000);
	struct mcs_pool pool = { 0 };

	while (mc_now_ns() < end) {
		assert_int_equal(mcs_pool_stat(s, &pool, -1), 0);
		if (pool.used == want)
			break;
		nanosleep(&tick, NULL);
	}
	return pool.used;
}
