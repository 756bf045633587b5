/* SPDX-License-Identifier: Apache-2.0
 * test_client_store.c - puts and gets by key against a real master in this process: once over
 * local memory, once over TCP. */
#include <config.h>

#include "tests/unit/test_client_fixture.h"

#include <errno.h>
#include <sys/mman.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/sys/clock.h"
#include "common/crc32c.h"
#include "common/metrics.h"

static mcs_t *s;		/* owns the segment */
static mcs_t *peer;		/* another store, without memory */
static int force_tcp;

static int setup(void **state)
{
	fixture_master(NULL);
	s = fixture_store_with(64 * MIB, force_tcp, FIXTURE_LOCAL);
	peer = fixture_store_with(0, force_tcp, fixture_master_addr());
	return 0;
}

static int teardown(void **state)
{
	mcs_close(peer);
	mcs_close(s);
	fixture_master_stop();
	return 0;
}

static const size_t sizes[] = {
	0, 1, 7, 4095, 4096, 65535, 65536, 65537, 65540, 131071, 131072, 1000001, 3 * MIB,
};
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void get_returns_the_bytes_of_the_put(void **state)
{
	char key[32];

	for (size_t i = 0; i < N_SIZES; i++) {
		snprintf(key, sizeof(key), "size-%zu", sizes[i]);
		fixture_put_ok(s, key, sizes[i], i);
	}
	for (size_t i = 0; i < N_SIZES; i++) {
		struct mcs_info info;
		void *want = malloc(sizes[i] + 1);

		snprintf(key, sizeof(key), "size-%zu", sizes[i]);
		fixture_expect(s, key, sizes[i], i);
		fixture_expect(peer, key, sizes[i], i);
		assert_int_equal(mcs_stat(peer, fixture_key(key), &info, -1), 0);
		fixture_fill(want, sizes[i], i, 0);
		assert_int_equal(info.size, sizes[i]);
		assert_int_equal(info.crc32c, mc_crc32c(want, sizes[i]));
		assert_int_equal(info.kind, MCS_OBJECT);
		assert_int_equal(info.replicas, sizes[i] ? 1 : 0);
		assert_true(info.mtime_ms > 1600000000000);
		free(want);
	}
}

static void scattered_memory_is_one_object(void **state)
{
	unsigned char *src = malloc(200000), *dst = malloc(200000);
	struct iovec in[] = { { src, 1 }, { src + 1, 0 }, { src + 1, 99999 }, { src + 100000, 100000 } };
	struct iovec out[] = { { dst, 65536 }, { dst + 65536, 3 }, { dst + 65539, 134461 } };

	fixture_fill(src, 200000, 5, 0);
	assert_int_equal(mcs_put(s, fixture_key("sg"), in, 4, NULL, -1), 0);
	memset(dst, 0, 200000);
	assert_int_equal(mcs_get(peer, fixture_key("sg"), out, 3, -1), 200000);
	assert_memory_equal(src, dst, 200000);
	memset(dst, 0, 200000);
	assert_int_equal(mcs_get_range(peer, fixture_key("sg"), 1, out, 3, -1), 199999);
	assert_memory_equal(src + 1, dst, 199999);
	free(src);
	free(dst);
}

/* More pieces than one system call accepts. */
static void thousands_of_pieces(void **state)
{
	enum { N = 5000, LEN = 37 };
	unsigned char *src = malloc(N * LEN), *dst = malloc(N * LEN);
	struct iovec *in = calloc(N, sizeof(*in)), *out = calloc(N, sizeof(*out));

	fixture_fill(src, N * LEN, 6, 0);
	for (int i = 0; i < N; i++) {
		in[i] = (struct iovec){ src + i * LEN, LEN };
		out[N - 1 - i] = (struct iovec){ dst + i * LEN, LEN };
	}
	assert_int_equal(mcs_put(s, fixture_key("pieces"), in, N, NULL, -1), 0);
	assert_int_equal(mcs_get(peer, fixture_key("pieces"), out, N, -1), N * LEN);
	for (int i = 0; i < N; i++)
		assert_memory_equal(src + i * LEN, dst + (N - 1 - i) * LEN, LEN);
	free(src);
	free(dst);
	free(in);
	free(out);
}

static void buffers_larger_and_smaller(void **state)
{
	unsigned char buf[1000];
	struct iovec iov = { buf, sizeof(buf) };

	fixture_put_ok(s, "k", 500, 1);
	memset(buf, 0xee, sizeof(buf));
	assert_int_equal(mcs_get(s, fixture_key("k"), &iov, 1, -1), 500);
	assert_true(fixture_same(buf, 500, 1, 0));
	for (size_t i = 500; i < sizeof(buf); i++)
		assert_int_equal(buf[i], 0xee);
	memset(buf, 0xee, sizeof(buf));
	iov.iov_len = 499;
	assert_int_equal(mcs_get(s, fixture_key("k"), &iov, 1, -1), -ENOBUFS);
	assert_int_equal(mcs_get(s, fixture_key("k"), NULL, 0, -1), -ENOBUFS);
	for (size_t i = 0; i < sizeof(buf); i++)
		assert_int_equal(buf[i], 0xee);
}

static void ranges_are_exact(void **state)
{
	const size_t size = 5 * 65536 + 777;
	unsigned char *buf = malloc(size + 64);
	uint64_t rnd = 12345;

	fixture_put_ok(s, "r", size, 9);
	for (int i = 0; i < 300; i++) {
		size_t off, len, want;
		struct iovec iov[2];

		rnd = rnd * 6364136223846793005ull + 1442695040888963407ull;
		off = (rnd >> 33) % (size + 100);
		len = (rnd >> 13) % (i % 3 ? 70000 : size) + 1;
		if (len > size)
			len = size;
		want = off >= size ? 0 : size - off < len ? size - off : len;
		memset(buf, 0xaa, size + 64);
		iov[0] = (struct iovec){ buf, len / 3 };
		iov[1] = (struct iovec){ buf + len / 3, len - len / 3 };
		assert_int_equal(mcs_get_range(i & 1 ? s : peer, fixture_key("r"), off, iov, 2, -1),
				 want);
		assert_true(fixture_same(buf, want, 9, off));
		for (size_t k = want; k < want + 64; k++)
			assert_int_equal(buf[k], 0xaa);
	}
	free(buf);
}

static void many_keys_are_queried_together(void **state)
{
	const struct mcs_key keys[] = {
		fixture_key("sb/dir/x"), fixture_key("sb/none"), fixture_key("sb/dir/"), fixture_key(""),
		fixture_key("sb/"), fixture_key("sb/none/"), fixture_key("sb/dir"),
	};
	enum { N = sizeof(keys) / sizeof(keys[0]) };
	struct mcs_info infos[N], one;
	int results[N];

	fixture_put_ok(s, "sb/dir/x", 5000, 1);
	assert_int_equal(mcs_stat_batch(peer, keys, N, infos, results, -1), 3);
	assert_int_equal(mcs_stat(peer, keys[0], &one, -1), 0);
	assert_int_equal(results[0], 0);
	assert_int_equal(infos[0].generation, one.generation);
	assert_int_equal(infos[0].size, 5000);
	assert_int_equal(results[1], -MCS_ENOOBJECT);
	assert_int_equal(results[2], 0);
	assert_int_equal(infos[2].kind, MCS_DIR);
	assert_int_equal(infos[2].generation, 0);
	assert_int_equal(results[3], -MCS_EKEY);
	assert_int_equal(results[4], 0);
	assert_int_equal(results[5], -MCS_ENOOBJECT);
	assert_int_equal(results[6], -MCS_ENOOBJECT);
	assert_int_equal(mcs_stat(peer, keys[2], &one, -1), -MCS_ENOOBJECT);
	assert_int_equal(mcs_stat_batch(peer, keys, 0, infos, results, -1), 0);
}

static void a_stat_can_open_the_objects_it_finds(void **state)
{
	const struct mcs_key keys[] = { fixture_key("so/x"), fixture_key("so/"), fixture_key("so/none"),
					fixture_key("") };
	unsigned char got[5000];
	struct iovec iov = { got, sizeof(got) };
	struct mcs_info infos[2];
	mcs_object_t *o;
	int results[2];

	fixture_put_ok(s, "so/x", 5000, 1);
	assert_int_equal(mcs_stat_open(peer, keys, 2, infos, results, &o, -1), 2);
	assert_int_equal(results[0] | results[1], 0);
	assert_int_equal(infos[0].size, 5000);
	assert_int_equal(infos[1].kind, MCS_DIR);
	assert_non_null(o);
	assert_int_equal(mcs_object_info(o)->generation, infos[0].generation);
	/* it is pinned like any open object */
	assert_int_equal(fixture_put(s, "so/x", 70, 2, MCS_PUT_UPSERT), 0);
	assert_int_equal(mcs_object_read(o, 0, &iov, 1, -1), 5000);
	assert_true(fixture_same(got, 5000, 1, 0));
	mcs_object_close(o);
	assert_int_equal(mcs_stat_open(peer, keys + 2, 1, infos, results, &o, -1), 0);
	assert_int_equal(results[0], -MCS_ENOOBJECT);
	assert_null(o);
	/* a directory without a marker is found, and no object is opened */
	assert_int_equal(mcs_stat_open(peer, keys + 1, 2, infos, results, &o, -1), 1);
	assert_int_equal(infos[0].kind, MCS_DIR);
	assert_null(o);
	assert_int_equal(mcs_stat_open(peer, keys + 2, 2, infos, results, &o, -1), -MCS_EKEY);
	assert_int_equal(mcs_errno(mcs_stat_open(peer, keys, 3, infos, results, &o, -1)), EINVAL);
	assert_int_equal(mcs_errno(mcs_stat_open(peer, keys, 0, infos, results, &o, -1)), EINVAL);
}

static void first_put_wins_and_upsert_replaces(void **state)
{
	struct mcs_put_item item = { .key = fixture_key("w") };
	struct iovec iov = { (void *)"abc", 3 };
	struct mcs_info a, b;

	fixture_put_ok(s, "w", 100000, 1);
	assert_int_equal(mcs_stat(s, fixture_key("w"), &a, -1), 0);
	assert_int_equal(fixture_put(peer, "w", 50, 2, 0), 0);
	fixture_expect(s, "w", 100000, 1);
	item.iov = &iov;
	item.iovcnt = 1;
	assert_int_equal(mcs_put_batch(peer, &item, 1, NULL, -1), 1);
	assert_int_equal(item.existed, 1);
	assert_int_equal(fixture_put(s, "w", 50, 2, MCS_PUT_EXCL), -MCS_EEXISTS);
	assert_int_equal(fixture_put(peer, "w", 50, 2, MCS_PUT_UPSERT), 0);
	fixture_expect(s, "w", 50, 2);
	assert_int_equal(mcs_stat(s, fixture_key("w"), &b, -1), 0);
	assert_int_not_equal(a.generation, b.generation);
	assert_int_equal(fixture_put(peer, "w", 0, 0, MCS_PUT_UPSERT), 0);
	fixture_expect(s, "w", 0, 0);
	/* An empty object is a value too. */
	assert_int_equal(fixture_put(s, "w", 0, 0, MCS_PUT_EXCL), -MCS_EEXISTS);
	assert_int_equal(fixture_put(s, "w2", 0, 0, MCS_PUT_EXCL), 0);
	assert_int_equal(fixture_put(s, "w2", 10, 0, 0), 0);
	fixture_expect(s, "w2", 0, 0);
	assert_int_equal(fixture_put(s, "w3", 10, 4, MCS_PUT_EXCL), 0);
	fixture_expect(s, "w3", 10, 4);
}

static void batches_isolate_their_items(void **state)
{
	unsigned char data[4][3000], out[6][4000];
	static char big_key[4097];
	struct iovec iov[4], oiov[6];
	struct mcs_put_item put[4];
	struct mcs_get_item get[6];

	memset(big_key, 'k', sizeof(big_key));
	for (int i = 0; i < 4; i++) {
		fixture_fill(data[i], 3000, 70 + i, 0);
		iov[i] = (struct iovec){ data[i], 3000 };
	}
	fixture_put_ok(s, "b1", 10, 99);
	put[0] = (struct mcs_put_item){ .key = fixture_key("b0"), .iov = &iov[0], .iovcnt = 1, .existed = 9 };
	put[1] = (struct mcs_put_item){ .key = fixture_key("b1"), .iov = &iov[1], .iovcnt = 1, .existed = 9 };
	put[2] = (struct mcs_put_item){ .key = { big_key, 4097 }, .iov = &iov[2], .iovcnt = 1 };
	put[3] = (struct mcs_put_item){ .key = { big_key, 4096 }, .iov = &iov[3], .iovcnt = 1 };
	assert_int_equal(mcs_put_batch(s, put, 4, NULL, -1), 3);
	assert_int_equal(put[0].result, 0);
	assert_int_equal(put[0].existed, 0);
	assert_int_equal(put[1].result, 0);
	assert_int_equal(put[1].existed, 1);
	assert_int_equal(put[2].result, -MCS_EKEY);
	assert_int_equal(put[3].result, 0);

	for (int i = 0; i < 6; i++)
		oiov[i] = (struct iovec){ out[i], sizeof(out[i]) };
	oiov[4].iov_len = 2999;
	get[0] = (struct mcs_get_item){ fixture_key("b0"), 0, 1, &oiov[0], 1, -99 };
	get[1] = (struct mcs_get_item){ fixture_key("missing"), 0, 1, &oiov[1], 1, -99 };
	get[2] = (struct mcs_get_item){ fixture_key("b1"), 4, 0, &oiov[2], 1, -99 };
	get[3] = (struct mcs_get_item){ { big_key, 4096 }, 0, 1, &oiov[3], 1, -99 };
	get[4] = (struct mcs_get_item){ { big_key, 4096 }, 0, 1, &oiov[4], 1, -99 };
	get[5] = (struct mcs_get_item){ { "", 0 }, 0, 1, &oiov[5], 1, -99 };
	assert_int_equal(mcs_get_batch(peer, get, 6, -1), 3);
	assert_int_equal(get[0].result, 3000);
	assert_true(fixture_same(out[0], 3000, 70, 0));
	assert_int_equal(get[1].result, -MCS_ENOOBJECT);
	assert_int_equal(get[2].result, 6);
	assert_true(fixture_same(out[2], 6, 99, 4));
	assert_int_equal(get[3].result, 3000);
	assert_true(fixture_same(out[3], 3000, 73, 0));
	assert_int_equal(get[4].result, -ENOBUFS);
	assert_int_equal(get[5].result, -MCS_EKEY);
	assert_int_equal(mcs_get_batch(peer, get, 0, -1), 0);
	assert_int_equal(mcs_put_batch(peer, put, 0, NULL, -1), 0);
}

static void large_batches_go_in_several_requests(void **state)
{
	enum { N = 9000 };
	struct mcs_put_item *put = calloc(N, sizeof(*put));
	struct mcs_get_item *get = calloc(N, sizeof(*get));
	struct iovec *iov = calloc(N, sizeof(*iov));
	struct mcs_key *keys = calloc(N, sizeof(*keys));
	uint8_t *present = calloc(1, N);
	uint64_t *val = calloc(N, sizeof(*val)), *got = calloc(N, sizeof(*got));
	char (*name)[16] = calloc(N, sizeof(*name));
	int *results = calloc(N, sizeof(*results));

	for (int i = 0; i < N; i++) {
		snprintf(name[i], sizeof(name[i]), "many-%d", i);
		keys[i] = fixture_key(name[i]);
		val[i] = (uint64_t)i * 77;
		iov[i] = (struct iovec){ &val[i], sizeof(val[i]) };
		put[i] = (struct mcs_put_item){ .key = keys[i], .iov = &iov[i], .iovcnt = 1, .result = -1 };
	}
	assert_int_equal(mcs_put_batch(s, put, N, NULL, -1), N);
	for (int i = 0; i < N; i++) {
		assert_int_equal(put[i].result, 0);
		iov[i].iov_base = &got[i];
		get[i] = (struct mcs_get_item){ keys[i], 0, 1, &iov[i], 1, -1 };
	}
	assert_int_equal(mcs_get_batch(peer, get, N, -1), N);
	assert_memory_equal(val, got, N * sizeof(*val));
	keys[17] = fixture_key("not-there");
	keys[18] = fixture_key("");
	assert_int_equal(mcs_exist(peer, keys, N, present, -1), N - 2);
	for (int i = 0; i < N; i++)
		assert_int_equal(present[i], i != 17 && i != 18);
	assert_int_equal(mcs_remove_batch(peer, keys, N, MCS_REMOVE_FORCE, results, -1), N - 2);
	assert_int_equal(results[17], -MCS_ENOOBJECT);
	assert_int_equal(results[18], -MCS_EKEY);
	assert_int_equal(mcs_exist(peer, keys, N, present, -1), 0);
	free(put);
	free(get);
	free(iov);
	free(keys);
	free(present);
	free(val);
	free(got);
	free(name);
	free(results);
}

static void leases_of_exist_protect_and_finished_reads_do_not(void **state)
{
	const struct mcs_key key = fixture_key("leased");
	uint8_t present;

	fixture_put_ok(s, "leased", 1000, 1);
	fixture_expect(peer, "leased", 1000, 1);
	assert_int_equal(mcs_remove(peer, key, 0, -1), 0);
	assert_int_equal(mcs_remove(peer, key, 0, -1), -MCS_ENOOBJECT);
	fixture_put_ok(s, "leased", 1000, 1);
	assert_int_equal(mcs_exist(peer, &key, 1, &present, -1), 1);
	assert_int_equal(mcs_remove(peer, key, 0, -1), -MCS_ELEASED);
	assert_int_equal(mcs_remove(peer, key, MCS_REMOVE_FORCE, -1), 0);
	assert_int_equal(mcs_exist(peer, &key, 1, &present, -1), 0);
	assert_int_equal(mcs_remove(peer, key, 99, -1), -MCS_EPARAM);
}

static void keys_are_removed_by_pattern(void **state)
{
	const struct mcs_key none = { NULL, 0 };
	char key[32];

	for (int i = 0; i < 20; i++) {
		snprintf(key, sizeof(key), "%s/%d", i % 2 ? "odd" : "even", i);
		fixture_put_ok(s, key, 10, 1);
	}
	assert_int_equal(mcs_remove_match(s, none, "^odd/1[0-9]$", 0, -1), 5);
	assert_int_equal(mcs_remove_match(s, none, "[", 0, -1), -MCS_EPARAM);
	assert_int_equal(mcs_remove_match(s, fixture_key("odd/"), NULL, 0, -1), 5);
	assert_int_equal(mcs_remove_match(s, none, NULL, 0, -1), 10);
}

static void rename_moves_and_replaces(void **state)
{
	fixture_put_ok(s, "from", 70000, 1);
	fixture_put_ok(s, "to", 10, 2);
	assert_int_equal(mcs_rename(s, fixture_key("from"), fixture_key("to"),
				    MCS_RENAME_NOREPLACE, -1), -MCS_EEXISTS);
	assert_int_equal(mcs_rename(peer, fixture_key("from"), fixture_key("to"), 0, -1), 0);
	fixture_expect(s, "to", 70000, 1);
	assert_int_equal(mcs_rename(peer, fixture_key("from"), fixture_key("x"), 0, -1),
			 -MCS_ENOOBJECT);
	assert_int_equal(mcs_rename(peer, fixture_key(""), fixture_key("x"), 0, -1), -MCS_EKEY);
	assert_int_equal(mcs_rename(peer, fixture_key("to"), fixture_key("x"), 7, -1),
			 -MCS_EPARAM);
}

static void listings_are_complete(void **state)
{
	enum { N = 3000 };
	static unsigned char seen[N];
	struct mcs_entry e;
	mcs_list_t *l;
	int n = 0, dirs = 0, files = 0, r;
	char key[64];

	memset(seen, 0, sizeof(seen));
	for (int i = 0; i < N; i++) {
		snprintf(key, sizeof(key), "d/%d/f%d", i % 7, i);
		fixture_put_ok(s, key, 8, (uint64_t)i);
	}
	fixture_put_ok(s, "d/file", 123, 1);
	fixture_put_ok(s, "elsewhere", 1, 1);
	assert_int_equal(mcs_list_open(peer, fixture_key("d/"), 0, &l), 0);
	while ((r = mcs_list_next(l, &e, -1)) == 1) {
		char *end;
		long i;

		if (e.name.len == 6 && !memcmp(e.name.data, "d/file", 6))
			continue;
		snprintf(key, sizeof(key), "%.*s", (int)e.name.len, (const char *)e.name.data);
		i = strtol(strchr(key, 'f') + 1, &end, 10);
		assert_true(i >= 0 && i < N && !seen[i]);
		assert_int_equal(e.size, 8);
		assert_int_equal(e.media, MCS_IN_MEMORY);
		seen[i] = 1;
		n++;
	}
	assert_int_equal(r, 0);
	assert_int_equal(n, N);
	mcs_list_close(l);

	assert_int_equal(mcs_list_open(peer, fixture_key("d/"), 1, &l), 0);
	while ((r = mcs_list_next(l, &e, -1)) == 1) {
		if (e.kind == MCS_DIR) {
			assert_int_equal(e.name.len, 1);
			dirs++;
		} else {
			assert_int_equal(e.size, 123);
			assert_int_equal(e.media, MCS_IN_MEMORY);
			files++;
		}
	}
	assert_int_equal(r, 0);
	mcs_list_close(l);
	assert_int_equal(dirs, 7);
	assert_int_equal(files, 1);
	assert_int_equal(mcs_list_open(peer, fixture_key("d"), 1, &l), -MCS_EPARAM);
}

static void a_pool_smaller_than_the_work_takes_every_put(void **state)
{
	char key[32];

	/* Each object is read once after its put: with upstream's leases, three of four puts would
	 * fail. */
	for (int i = 0; i < 200; i++) {
		snprintf(key, sizeof(key), "work-%d", i);
		fixture_put_ok(i & 1 ? s : peer, key, MIB - 100, (uint64_t)i);
		fixture_expect(i & 2 ? s : peer, key, MIB - 100, (uint64_t)i);
	}
}

static void a_batch_larger_than_the_pool_goes_through(void **state)
{
	enum { N = 100 };
	unsigned char *data = malloc(MIB);
	struct mcs_put_item put[N];
	struct iovec iov = { data, MIB };
	char name[N][16];

	fixture_fill(data, MIB, 3, 0);
	for (int i = 0; i < N; i++) {
		snprintf(name[i], sizeof(name[i]), "batch-%d", i);
		put[i] = (struct mcs_put_item){ .key = fixture_key(name[i]), .iov = &iov, .iovcnt = 1,
						 .result = -1 };
	}
	assert_int_equal(mcs_put_batch(s, put, N, NULL, -1), N);
	free(data);
}

static void an_object_too_large_is_refused_at_once(void **state)
{
	struct iovec iov = { malloc(65 * MIB), 65 * MIB };
	uint64_t began;

	memset(iov.iov_base, 1, iov.iov_len);
	began = mc_now_ns();
	assert_int_equal(mcs_put(s, fixture_key("huge"), &iov, 1, NULL, -1), -MCS_ETOOBIG);
	assert_true(mc_now_ns() - began < MC_NS_PER_SEC);
	for (int i = 0; i < 60; i++) {
		char key[16];

		snprintf(key, sizeof(key), "pin-%d", i);
		assert_int_equal(fixture_put(s, key, MIB - 4096, 1, MCS_PUT_HARD_PIN), 0);
	}
	iov.iov_len = 10 * MIB;
	began = mc_now_ns();
	assert_int_equal(mcs_put(s, fixture_key("more"), &iov, 1, NULL, -1), -MCS_ENOSPACE);
	assert_true(mc_now_ns() - began < MC_NS_PER_SEC);
	free(iov.iov_base);
	fixture_expect(s, "pin-0", MIB - 4096, 1);
	fixture_expect(s, "pin-59", MIB - 4096, 1);
}

struct provided {
	unsigned char *data[4];
	uint64_t size[4];
	unsigned calls;
};

static void *provide(void *arg, unsigned index, uint64_t size)
{
	struct provided *p = arg;

	p->calls++;
	p->size[index] = size;
	if (index == 3)
		return NULL;
	free(p->data[index]);
	return p->data[index] = malloc(size + 1);
}

static void memory_is_provided_once_the_size_is_known(void **state)
{
	struct mcs_get_item items[4] = { 0 };
	struct provided p = { 0 };
	unsigned char want[100000];

	fixture_put_ok(s, "a", 100000, 1);
	fixture_put_ok(s, "empty", 0, 1);
	fixture_put_ok(s, "refused", 10, 1);
	items[0].key = fixture_key("a");
	items[1].key = fixture_key("missing");
	items[2].key = fixture_key("empty");
	items[3].key = fixture_key("refused");
	assert_int_equal(mcs_get_batch_alloc(peer, items, 4, provide, &p, -1), 2);
	assert_int_equal(items[0].result, 100000);
	assert_int_equal(items[1].result, -MCS_ENOOBJECT);
	assert_int_equal(items[2].result, 0);
	assert_int_equal(items[3].result, -ENOMEM);
	assert_null(items[0].iov);
	assert_int_equal(p.calls, 3);
	assert_int_equal(p.size[0], 100000);
	assert_int_equal(p.size[3], 10);
	fixture_fill(want, sizeof(want), 1, 0);
	assert_memory_equal(p.data[0], want, sizeof(want));
	for (int i = 0; i < 4; i++)
		free(p.data[i]);
}

static void wrong_arguments_change_nothing(void **state)
{
	struct mcs_put_opts opts = { .flags = 0x400 };
	struct iovec iov = { (void *)"x", 1 }, null = { NULL, 5 };
	struct mcs_info info;
	void *data;

	assert_int_equal(mcs_put(s, fixture_key(""), &iov, 1, NULL, -1), -MCS_EKEY);
	assert_int_equal(mcs_put(s, fixture_key("k"), &iov, 1, &opts, -1), -MCS_EPARAM);
	opts.flags = MCS_PUT_UPSERT | MCS_PUT_EXCL;
	assert_int_equal(mcs_put(s, fixture_key("k"), &iov, 1, &opts, -1), -MCS_EPARAM);
	opts.flags = MCS_PUT_DFS;
	assert_int_equal(mcs_put(s, fixture_key("k"), &iov, 1, &opts, -1), -MCS_ENODFS);
	assert_int_equal(mcs_code(-MCS_ENODFS), -1601);
	opts = (struct mcs_put_opts){ .kind = (enum mcs_kind)9 };
	assert_int_equal(mcs_put(s, fixture_key("k"), &iov, 1, &opts, -1), -MCS_EPARAM);
	assert_int_equal(mcs_put(s, fixture_key("k"), &null, 1, NULL, -1), -EINVAL);
	assert_int_equal(mcs_put(s, fixture_key("k"), NULL, -1, NULL, -1), -EINVAL);
	assert_int_equal(mcs_stat(s, fixture_key("k"), &info, -1), -MCS_ENOOBJECT);
	fixture_put_ok(s, "k", 1, 1);
	assert_int_equal(mcs_get(s, fixture_key("k"), &null, 1, -1), -EINVAL);
	assert_int_equal(mcs_get_alloc(s, fixture_key(""), &data, -1), -MCS_EKEY);
	assert_int_equal(mcs_register_buffer(s, NULL, 5), -MCS_EPARAM);
	assert_int_equal(mcs_unregister_buffer(s, data = malloc(1)), -MCS_EPARAM);
	free(data);
}

static void a_copy_in_a_directory_is_accepted_where_there_is_one(void **state)
{
	struct mcs_put_opts opts = { .flags = MCS_PUT_DFS };
	struct iovec iov = { (void *)"x", 1 };

	assert_int_equal(setenv("MOONCAKE_ENABLE_DFS", "1", 1), 0);
	assert_int_equal(mcs_put(peer, fixture_key("dfs"), &iov, 1, &opts, -1), 0);
	assert_int_equal(setenv("MOONCAKE_ENABLE_DFS", "false", 1), 0);
	assert_int_equal(mcs_put(peer, fixture_key("dfs2"), &iov, 1, &opts, -1), -MCS_ENODFS);
	assert_int_equal(unsetenv("MOONCAKE_ENABLE_DFS"), 0);
}

static void registered_buffers_serve_both_ways(void **state)
{
	unsigned char *buf = aligned_alloc(4096, 2 * MIB);
	struct iovec in = { buf, MIB }, out = { buf + MIB, MIB };

	assert_int_equal(mcs_register_buffer(peer, buf, 2 * MIB), 0);
	assert_int_equal(mcs_register_buffer(peer, buf + 4096, 4096), -EEXIST);
	fixture_fill(buf, MIB, 8, 0);
	assert_int_equal(mcs_put(peer, fixture_key("reg"), &in, 1, NULL, -1), 0);
	assert_int_equal(mcs_get(peer, fixture_key("reg"), &out, 1, -1), MIB);
	assert_memory_equal(buf, buf + MIB, MIB);
	assert_int_equal(mcs_unregister_buffer(peer, buf), 0);
	assert_int_equal(mcs_unregister_buffer(peer, buf), -MCS_EPARAM);
	free(buf);
}

/* Such as addresses of a GPU's memory, which its driver reserves. */
static void memory_without_access_is_not_registered(void **state)
{
	unsigned char *p = mmap(NULL, MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	assert_int_equal(mcs_register_buffer(peer, p, MIB), -EFAULT);
	assert_non_null(strstr(mcs_error_detail(-EFAULT), "cannot access"));
	assert_int_equal(mcs_code(-EFAULT), -600);
	assert_int_equal(mcs_register_memfd(peer, p, MIB, 0, 0), -EFAULT);
	assert_int_equal(mcs_unregister_buffer(peer, p), -MCS_EPARAM);
	munmap(p, MIB);
	assert_int_equal(mcs_register_buffer(peer, p, MIB), -EFAULT);
}

static void pool_and_segments_are_reported(void **state)
{
	struct mcs_segment *seg;
	struct mcs_pool pool;
	char *text;

	fixture_put_ok(s, "k", MIB, 1);
	assert_int_equal(mcs_pool_stat(peer, &pool, -1), 0);
	assert_int_equal(pool.capacity, 64 * MIB);
	assert_int_equal(pool.objects, 1);
	assert_true(pool.used >= MIB && pool.used < 2 * MIB);
	assert_int_equal(pool.segments, 1);
	assert_int_equal(mcs_segments(peer, &seg, -1), 1);
	assert_string_equal(seg->name, mcs_hostname(s));
	assert_string_equal(seg->state, "ok");
	assert_int_equal(seg->size, 64 * MIB);
	assert_non_null(strchr(seg->id, '-'));
	free(seg);
	assert_int_equal(mcs_health(s), 0);
	text = mcs_metrics_text();
	assert_non_null(strstr(text, "mooncake_client_puts_total"));
	assert_non_null(strstr(text, "mooncake_checksum_errors_total 0\n"));
	assert_non_null(strstr(text, "mooncake_client_info{hostname=\"127.0.0.1:"));
	free(text);
}

static struct mcs_segment segment_of(mcs_t *of)
{
	struct mcs_segment *all, found = { .name = "" };
	int n = mcs_segments(s, &all, -1), i;

	for (i = 0; i < n; i++)
		if (!strcmp(all[i].name, mcs_hostname(of)))
			found = all[i];
	free(all);
	assert_non_null(found.state);
	return found;
}

/* One object is put before the segment grows, another one after it; both are read. */
static void segments_grow(void **state)
{
	struct mcs_conf conf;
	const char *preferred[2] = { NULL, NULL };
	struct mcs_put_opts opts = { .preferred = preferred };
	char *data = malloc(6 * MIB);
	mcs_t *g;

	mcs_conf_init(&conf);
	conf.master = fixture_master_addr();
	conf.segment_size = 4 * MIB;
	conf.segment_max = 16 * MIB;
	conf.segment_kind = "memfd";
	conf.force_tcp = force_tcp;
	assert_int_equal(mcs_open(&conf, &g), 0);
	preferred[0] = mcs_hostname(g);
	fixture_fill(data, 6 * MIB, 1, 0);
	assert_int_equal(mcs_put(peer, fixture_key("first"), &(struct iovec){ data, 3 * MIB }, 1, &opts,
				 -1), 0);
	fixture_expect(peer, "first", 3 * MIB, 1);
	assert_in_range(segment_of(g).used, 3 * MIB, 4 * MIB);

	assert_int_equal(mcs_errno(mcs_segment_grow(g, 2 * MIB, -1)), EINVAL);
	assert_int_equal(mcs_errno(mcs_segment_grow(g, 17 * MIB, -1)), EINVAL);
	assert_int_equal(mcs_errno(mcs_segment_grow(peer, 17 * MIB, -1)), EINVAL);
	assert_int_equal(segment_of(g).size, 4 * MIB);
	assert_int_equal(mcs_segment_grow(g, 12 * MIB, -1), 0);
	assert_int_equal(segment_of(g).size, 12 * MIB);

	assert_int_equal(mcs_put(g, fixture_key("second"), &(struct iovec){ data, 6 * MIB }, 1, &opts,
				 -1), 0);
	assert_in_range(segment_of(g).used, 9 * MIB, 10 * MIB);
	fixture_expect(peer, "second", 6 * MIB, 1);
	fixture_expect(peer, "first", 3 * MIB, 1);
	fixture_expect(g, "second", 6 * MIB, 1);
	mcs_close(g);
	free(data);
}

/* The program was compiled with an older or a newer header than the library. */
static void structs_of_other_versions(void **state)
{
	const size_t older = offsetof(struct mcs_conf, segment_path), newer = sizeof(struct mcs_conf) + 64;
	unsigned char mem[sizeof(struct mcs_conf) + 128];
	struct mcs_conf *conf = (void *)mem;
	mcs_t *other;

	memset(mem, 0x5a, sizeof(mem));
	mcs_conf_init_size(conf, older);
	assert_int_equal(conf->struct_size, older);
	assert_int_equal(conf->timeout_ms, 30000);
	for (size_t i = older; i < sizeof(mem); i++)
		assert_int_equal(mem[i], 0x5a);
	conf->master = FIXTURE_LOCAL;
	assert_int_equal(mcs_open(conf, &other), 0);
	mcs_close(other);

	memset(mem, 0x5a, sizeof(mem));
	mcs_conf_init_size(conf, newer);
	assert_int_equal(mem[newer - 1], 0);
	assert_int_equal(mem[newer], 0x5a);
	conf->master = FIXTURE_LOCAL;
	assert_int_equal(mcs_open(conf, &other), 0);
	mcs_close(other);
}

static int run_all(const char *name)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(get_returns_the_bytes_of_the_put), T(scattered_memory_is_one_object),
		T(thousands_of_pieces),
		T(buffers_larger_and_smaller), T(ranges_are_exact),
		T(first_put_wins_and_upsert_replaces), T(batches_isolate_their_items),
		T(many_keys_are_queried_together),
		T(a_stat_can_open_the_objects_it_finds),
		T(large_batches_go_in_several_requests),
		T(leases_of_exist_protect_and_finished_reads_do_not),
		T(keys_are_removed_by_pattern), T(rename_moves_and_replaces),
		T(listings_are_complete), T(a_pool_smaller_than_the_work_takes_every_put),
		T(a_batch_larger_than_the_pool_goes_through),
		T(an_object_too_large_is_refused_at_once),
		T(memory_is_provided_once_the_size_is_known), T(wrong_arguments_change_nothing),
		T(a_copy_in_a_directory_is_accepted_where_there_is_one),
		T(structs_of_other_versions),
		T(registered_buffers_serve_both_ways), T(memory_without_access_is_not_registered),
		T(segments_grow), T(pool_and_segments_are_reported),
	};

	return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int main(void)
{
	int failed = run_all("memory");

	force_tcp = 1;
	return failed + run_all("tcp");
}
