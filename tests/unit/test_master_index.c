/* SPDX-License-Identifier: Apache-2.0
 * The index against a plain array: tables that grow and shrink, key arenas, scans of the whole
 * index. */
#include <config.h>

#include "test_master_fixture.h"

#include <stdio.h>
#include <string.h>

#define UNIVERSE 60000u

static unsigned make_key(char *buf, unsigned i)
{
	/* lengths from 1 to about 100, with the number in front */
	return (unsigned)sprintf(buf, "%u%.*s", i, (int)(i * 7 % 93),
				 "-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
				 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
}

static uint32_t insert(struct mcm_index *ix, unsigned i)
{
	char key[128];
	unsigned len = make_key(key, i);
	uint32_t hash = mcm_index_hash(ix, key, len), slot;
	struct mcm_shard *sh = mcm_index_shard(ix, hash);

	mc_mutex_lock(&sh->lock);
	assert_int_equal(mcm_shard_new(ix, sh, hash, key, len, &slot), 0);
	mcm_object(ix, slot)->crc = i;
	mcm_shard_link(ix, sh, slot);
	mc_mutex_unlock(&sh->lock);
	return slot;
}

static uint32_t find(struct mcm_index *ix, unsigned i)
{
	char key[128];
	unsigned len = make_key(key, i);
	uint32_t hash = mcm_index_hash(ix, key, len);

	return mcm_shard_find(ix, mcm_index_shard(ix, hash), hash, key, len);
}

static void erase(struct mcm_index *ix, uint32_t slot)
{
	struct mcm_shard *sh = mcm_index_lock_slot(ix, slot);

	mcm_shard_unlink(ix, sh, slot);
	mcm_shard_free(ix, sh, slot);
	mc_mutex_unlock(&sh->lock);
}

struct seen {
	struct mcm_index *ix;
	uint8_t times[UNIVERSE];
};

static void see(void *arg, uint32_t slot)
{
	struct seen *s = arg;

	s->times[mcm_object(s->ix, slot)->crc]++;
}

static struct mcm_index *index_new(uint64_t max)
{
	void *mem = NULL;

	assert_int_equal(posix_memalign(&mem, 64, sizeof(struct mcm_index)), 0);
	mcm_index_init(mem, max);
	return mem;
}

static void index_free(struct mcm_index *ix)
{
	mcm_index_done(ix);
	free(ix);
}

static void test_model(void **state)
{
	static uint32_t model[UNIVERSE];
	struct mcm_index *ix = index_new(0);
	unsigned i, n = 0, k, phase;

	(void)state;
	/* Phases of mostly inserts and of mostly removals, so that tables grow and shrink. */
	for (phase = 0; phase < 6; phase++) {
		for (i = 0; i < 100000; i++) {
			bool add = rnd() % 10 < (phase % 2 ? 2 : 8);

			k = (unsigned)(rnd() % UNIVERSE);
			assert_int_equal(find(ix, k), model[k]);
			if (add && !model[k]) {
				model[k] = insert(ix, k);
				n++;
			} else if (!add && model[k]) {
				erase(ix, model[k]);
				model[k] = 0;
				n--;
			}
		}
		assert_int_equal(mcm_index_count(ix), n);
		for (k = 0; k < UNIVERSE; k++)
			assert_int_equal(find(ix, k), model[k]);
	}
	index_free(ix);
}

/* A scan meets every key that stays exactly once, while others are inserted and removed and tables
 * are resized. */
static void test_walk(void **state)
{
	static uint32_t model[UNIVERSE];
	struct seen *seen = calloc(1, sizeof(*seen));
	struct mcm_index *ix = index_new(0);
	unsigned i, k, round;
	uint64_t pos;

	(void)state;
	assert_non_null(seen);
	seen->ix = ix;
	/* multiples of 3 stay */
	for (k = 0; k < UNIVERSE; k += 3)
		model[k] = insert(ix, k);
	for (round = 0; round < 4; round++) {
		memset(seen->times, 0, sizeof(seen->times));
		for (pos = 0; pos < MCM_TABLE_END;) {
			unsigned max = 1 + (unsigned)(rnd() % 200);

			assert_true(mcm_index_scan(ix, &pos, max, see, seen) <= max + 1);
			for (i = 0; i < 300; i++) {
				k = (unsigned)(rnd() % UNIVERSE);
				if (k % 3 == 0)
					continue;
				if (round % 2 == 0 && !model[k]) {
					model[k] = insert(ix, k);
				} else if (round % 2 && model[k]) {
					erase(ix, model[k]);
					model[k] = 0;
				}
			}
		}
		for (k = 0; k < UNIVERSE; k++) {
			if (k % 3 == 0)
				assert_int_equal(seen->times[k], 1);
			else
				assert_in_range(seen->times[k], 0, 2);
		}
	}
	free(seen);
	index_free(ix);
}

/* Two arenas share a pool; at the end, all blocks are merged again. */
static void test_keys(void **state)
{
	static struct { uint32_t ref, len; } held[2000];
	static struct mcm_key_pool pool;
	static struct mcm_keys keys[2];
	static char text[MCM_KEYS_MAX];
	unsigned i, j, k;

	(void)state;
	mcm_key_pool_init(&pool);
	mcm_keys_init_in(&keys[0], &pool);
	mcm_keys_init_in(&keys[1], &pool);
	for (i = 0; i < 100000; i++) {
		j = (unsigned)(rnd() % 2000);
		if (held[j].ref) {
			const char *p = mcm_keys_at(&keys[j % 2], held[j].ref);

			/* no other string was written into it */
			for (k = 0; k < held[j].len; k++)
				assert_int_equal((unsigned char)p[k], (j + k) % 251);
			mcm_keys_del(&keys[j % 2], held[j].ref, held[j].len);
			held[j].ref = 0;
			continue;
		}
		held[j].len = 1 + (uint32_t)(rnd() % (rnd() % 8 ? 100 : MCM_KEYS_MAX));
		for (k = 0; k < held[j].len; k++)
			text[k] = (char)((j + k) % 251);
		assert_int_equal(mcm_keys_add(&keys[j % 2], text, held[j].len, &held[j].ref), 0);
	}
	for (j = 0; j < 2000; j++)
		if (held[j].ref)
			mcm_keys_del(&keys[j % 2], held[j].ref, held[j].len);
	/* Each arena keeps one block, the very first block is half of a pair, and all others are
	 * merged. */
	for (i = 0; i < 2; i++)
		for (k = 0; k <= MCM_BLOCK; k++)
			assert_int_equal(keys[i].free[k], 0);
	assert_in_range(pool.pooled, pool.blocks - 3, pool.blocks - 1);
	for (k = 0, i = pool.free[2]; i; i = *(uint32_t *)mcm_slab_at(&pool.units, i << MCM_BLOCK_SHIFT))
		k++;
	assert_true(k * 4 + 12 >= pool.blocks);
	mcm_key_pool_done(&pool);
}

/* Longer keys reuse the memory of shorter ones before them. */
static void test_keys_grow_longer(void **state)
{
	static struct mcm_keys keys;
	static char text[MCM_KEYS_MAX];
	uint32_t ref[100], len, i;

	(void)state;
	mcm_keys_init(&keys);
	for (len = 1; len <= MCM_KEYS_MAX; len++) {
		for (i = 0; i < 100; i++)
			assert_int_equal(mcm_keys_add(&keys, text, len, &ref[i]), 0);
		for (i = 0; i < 100; i++)
			mcm_keys_del(&keys, ref[i], len);
	}
	/* Enough for a hundred of the longest keys, and a little more. */
	assert_in_range(keys.own.blocks, 300, 450);
	mcm_keys_done(&keys);
}

/* Two elements allocated together are adjacent: the end of a chunk is skipped, not straddled. */
static void test_slab(void **state)
{
	struct mcm_slab s;
	uint32_t first, i, n;

	(void)state;
	mcm_slab_init(&s, 24, 4);
	for (i = 0; i < 2000; i++) {
		n = 1 + i % 16;
		assert_int_equal(mcm_slab_take(&s, n, &first), 0);
		assert_int_not_equal(first, 0);
		assert_ptr_equal((char *)mcm_slab_at(&s, first) + 24 * (n - 1),
				 mcm_slab_at(&s, first + n - 1));
		memset(mcm_slab_at(&s, first), 0xff, 24 * n);
	}
	mcm_slab_done(&s);
}

/* With a limit, the index counts its objects. */
static void test_max(void **state)
{
	struct mcm_index *ix = index_new(1);
	uint32_t slot[100];
	unsigned i;

	(void)state;
	for (i = 0; i < 100; i++)
		slot[i] = insert(ix, i);
	assert_int_equal(ix->count, 100);
	while (i--)
		erase(ix, slot[i]);
	assert_int_equal(ix->count, 0);
	index_free(ix);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slab),
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_keys_grow_longer),
		cmocka_unit_test(test_model),
		cmocka_unit_test(test_walk),
		cmocka_unit_test(test_max),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
