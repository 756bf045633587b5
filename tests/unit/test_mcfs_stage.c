/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/sys/clock.h"
#include "mcfs/write/stage.h"
#include "tests/lib/fake_mcs.h"

#define S MCFS_SLOT
#define DEADLINE mc_deadline_ms(1000)

struct fixture {
	mcs_t *store;
	struct mcfs_pool *pool;
	struct mcfs_stage st;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->store = fake_mcs_new();
	assert_int_equal(mcfs_pool_new(8 * S, 4, &f->pool), 0);
	mcfs_stage_init(&f->st, f->pool);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	mcfs_stage_clear(&f->st);
	assert_int_equal(mcfs_pool_staged(f->pool), 0);
	mcfs_pool_free(f->pool);
	fake_mcs_free(f->store);
	free(f);
	return 0;
}

/* The expected bytes. */
struct model {
	unsigned char *data;
	size_t size;
};

static void same(struct fixture *f, const struct model *m)
{
	unsigned char *got = malloc(m->size + 1);
	struct iovec *iov;
	size_t at = 0;
	int n;

	assert_int_equal(f->st.size, m->size);
	assert_int_equal(mcfs_stage_read(&f->st, 0, got, m->size + 1, DEADLINE), m->size);
	assert_memory_equal(got, m->data, m->size);
	assert_int_equal(mcfs_stage_vectors(&f->st, DEADLINE, &iov, &n), 0);
	for (int i = 0; i < n; i++) {
		assert_memory_equal(iov[i].iov_base, m->data + at, iov[i].iov_len);
		at += iov[i].iov_len;
	}
	assert_int_equal(at, m->size);
	free(iov);
	free(got);
}

static void put_base(struct fixture *f, const void *data, size_t len)
{
	struct iovec iov = { (void *)(uintptr_t)data, len };
	struct mcs_key key = { "base", 4 };
	struct mcfs_object *o;

	assert_int_equal(mcs_put(f->store, key, &iov, 1, NULL, 0), 0);
	assert_int_equal(mcfs_object_open(f->store, key, DEADLINE, &o), 0);
	mcfs_stage_begin(&f->st, o);
}

static void holes_and_gaps_are_zeros(void **state)
{
	struct fixture *f = *state;
	struct model m = { calloc(1, 4 * S), 0 };

	/* Fill slots of the pool with old bytes, which must not show later. */
	for (size_t i = 0; i < 6; i++) {
		unsigned char *junk = malloc(S);

		memset(junk, 0xee, S);
		assert_int_equal(mcfs_stage_write(&f->st, i * S, junk, S, DEADLINE), 0);
		free(junk);
	}
	mcfs_stage_clear(&f->st);
	assert_int_equal(mcfs_stage_write(&f->st, 100, "abc", 3, DEADLINE), 0);
	memcpy(m.data + 100, "abc", 3);
	m.size = 103;
	same(f, &m);
	assert_int_equal(mcfs_stage_write(&f->st, 2 * S + 7, "def", 3, DEADLINE), 0);
	memcpy(m.data + 2 * S + 7, "def", 3);
	m.size = 2 * S + 10;
	same(f, &m);
	assert_int_equal(mcfs_stage_truncate(&f->st, 101), 0);
	m.size = 101;
	same(f, &m);
	assert_int_equal(mcfs_stage_truncate(&f->st, 3 * S), 0);
	memset(m.data + 101, 0, 4 * S - 101);
	m.size = 3 * S;
	same(f, &m);
	free(m.data);
}

static void the_base_is_copied_on_write(void **state)
{
	struct fixture *f = *state;
	struct model m = { malloc(4 * S), 2 * S + 500 };

	for (size_t i = 0; i < 4 * S; i++)
		m.data[i] = (unsigned char)(i * 31 >> 3);
	put_base(f, m.data, m.size);
	same(f, &m);
	assert_int_equal(mcfs_stage_write(&f->st, S - 1, "xy", 2, DEADLINE), 0);
	memcpy(m.data + S - 1, "xy", 2);
	same(f, &m);
	assert_int_equal(mcfs_stage_truncate(&f->st, 2 * S + 10), 0);
	assert_int_equal(mcfs_stage_truncate(&f->st, 2 * S + 20), 0);
	memset(m.data + 2 * S + 10, 0, 10);
	m.size = 2 * S + 20;
	same(f, &m);
	free(m.data);
}

static void a_base_that_cannot_be_read_changes_nothing(void **state)
{
	struct fixture *f = *state;
	struct model m = { calloc(1, S), 1000 };

	memset(m.data, 7, 1000);
	put_base(f, m.data, m.size);
	fake_mcs_fail_reads(f->store, 1, -MCS_EREPLICA_GONE);
	assert_int_equal(mcfs_stage_write(&f->st, 500, "x", 1, DEADLINE), -MCS_EREPLICA_GONE);
	same(f, &m);
	free(m.data);
}

static void a_whole_overwrite_needs_no_base(void **state)
{
	struct fixture *f = *state;
	struct model m = { calloc(1, S), 1000 };
	char data[1000];

	put_base(f, m.data, m.size);
	memset(data, 9, sizeof(data));
	fake_mcs_fail_reads(f->store, 1, -EIO);
	assert_int_equal(mcfs_stage_write(&f->st, 0, data, 1000, DEADLINE), 0);
	fake_mcs_fail_reads(f->store, 0, 0);
	memset(m.data, 9, 1000);
	same(f, &m);
	free(m.data);
}

static void slots_are_taken_over(void **state)
{
	struct fixture *f = *state;
	struct model m = { calloc(1, 3 * S), 2 * S };
	void *slot = mcfs_slot_get(f->pool), *was = slot;

	memset(slot, 3, S);
	memset(m.data + S, 3, S);
	assert_int_equal(mcfs_stage_adopt(&f->st, S, S, &slot, DEADLINE), 0);
	assert_ptr_not_equal(slot, was);
	same(f, &m);
	memset(slot, 4, S);
	memset(m.data + S, 4, S);
	assert_int_equal(mcfs_stage_adopt(&f->st, S, S, &slot, DEADLINE), 0);
	assert_ptr_equal(slot, was);
	same(f, &m);
	mcfs_slot_put(f->pool, slot);
	free(m.data);
}

static void a_slot_that_begins_the_end_is_taken_over(void **state)
{
	const size_t part = S - 100, begun = S / 2;
	struct fixture *f = *state;
	struct model m = { calloc(1, 4 * S), S / 3 };
	void *slot = mcfs_slot_get(f->pool);

	memset(m.data, 7, m.size);
	put_base(f, m.data, m.size);
	/* a part of the base would remain behind it; it does not begin at a slot; it is small; it
	 * is larger than a slot */
	assert_false(mcfs_stage_adopts(&f->st, 0, S / 4));
	assert_false(mcfs_stage_adopts(&f->st, 1, S - 1));
	assert_false(mcfs_stage_adopts(&f->st, S, 100));
	assert_false(mcfs_stage_adopts(&f->st, 0, 2 * S));
	/* over all of the base, and behind a gap; the slot's bytes past the end are ignored */
	assert_true(mcfs_stage_adopts(&f->st, 0, begun));
	memset(slot, 3, S);
	memset(m.data, 3, begun);
	m.size = begun;
	assert_int_equal(mcfs_stage_adopt(&f->st, 0, begun, &slot, DEADLINE), 0);
	same(f, &m);
	assert_true(mcfs_stage_adopts(&f->st, 2 * S, part));
	memset(slot, 5, S);
	memset(m.data + 2 * S, 5, part);
	m.size = 2 * S + part;
	assert_int_equal(mcfs_stage_adopt(&f->st, 2 * S, part, &slot, DEADLINE), 0);
	same(f, &m);
	assert_int_equal(mcfs_stage_write(&f->st, m.size, "rest", 4, DEADLINE), 0);
	memcpy(m.data + m.size, "rest", 4);
	m.size += 4;
	same(f, &m);
	assert_int_equal(mcfs_stage_truncate(&f->st, 3 * S), 0);
	m.size = 3 * S;
	same(f, &m);
	mcfs_slot_put(f->pool, slot);
	free(m.data);
}

static void staging_has_a_limit(void **state)
{
	struct fixture *f = *state;
	struct model m = { calloc(1, 9 * S), 8 * S };

	memset(m.data, 1, 8 * S);
	assert_int_equal(mcfs_stage_write(&f->st, 0, m.data, 8 * S, DEADLINE), 0);
	assert_int_equal(mcfs_stage_write(&f->st, 8 * S, "x", 1, DEADLINE), -ENOSPC);
	same(f, &m);
	assert_int_equal(mcfs_stage_truncate(&f->st, 7 * S), 0);
	m.size = 7 * S;
	assert_int_equal(mcfs_stage_write(&f->st, 7 * S, "x", 1, DEADLINE), 0);
	m.data[m.size++] = 'x';
	same(f, &m);
	free(m.data);
}

/* A write over several slots gets only some of them, which contain bytes of their previous user. */
static void a_write_that_gets_half_of_its_slots_shows_nothing(void **state)
{
	struct fixture *f = *state;
	struct model m = { calloc(1, 8 * S), 2 * S };
	unsigned char *junk = malloc(8 * S);

	memset(junk, 0xAA, 8 * S);
	assert_int_equal(mcfs_stage_write(&f->st, 0, junk, 8 * S, DEADLINE), 0);
	mcfs_stage_clear(&f->st);
	memset(m.data, 7, m.size);
	put_base(f, m.data, m.size);
	/* Space for one slot is left. */
	assert_int_equal(mcfs_pool_charge(f->pool, 7, DEADLINE), 0);
	assert_int_equal(mcfs_stage_write(&f->st, S / 2, junk, S, DEADLINE), -ENOSPC);
	assert_int_equal(mcfs_pool_staged(f->pool), 7 * S);
	mcfs_pool_uncharge(f->pool, 7);
	same(f, &m);
	/* A slot that existed before the failed write stays. */
	mcfs_stage_clear(&f->st);
	put_base(f, m.data, m.size);
	memset(m.data, 1, 10);
	assert_int_equal(mcfs_stage_write(&f->st, 0, m.data, 10, DEADLINE), 0);
	fake_mcs_fail_reads(f->store, 1, -EIO);
	assert_int_equal(mcfs_stage_write(&f->st, S / 2, junk, S, DEADLINE), -EIO);
	same(f, &m);
	free(junk);
	free(m.data);
}

static uint64_t next_random(uint64_t *rng)
{
	*rng ^= *rng << 13;
	*rng ^= *rng >> 7;
	*rng ^= *rng << 17;
	return *rng;
}

static void random_steps_agree_with_a_flat_file(void **state)
{
	struct fixture *f = *state;
	const size_t max = 4 * S;
	struct model m = { malloc(max), S + 12345 };
	unsigned char *data = malloc(max);
	uint64_t rng = 0x9e3779b97f4a7c15ull;

	for (size_t i = 0; i < max; i++)
		m.data[i] = (unsigned char)next_random(&rng);
	put_base(f, m.data, m.size);
	for (int i = 0; i < 150; i++) {
		size_t off = next_random(&rng) % max, len = next_random(&rng) % (max - off + 1);

		if (next_random(&rng) % 4 == 0) {
			assert_int_equal(mcfs_stage_truncate(&f->st, off), 0);
			if (off > m.size)
				memset(m.data + m.size, 0, off - m.size);
			m.size = off;
		} else {
			if (next_random(&rng) % 2)
				len %= 5000;
			memset(data, i, len);
			assert_int_equal(mcfs_stage_write(&f->st, off, data, len, DEADLINE), 0);
			if (len && off > m.size)
				memset(m.data + m.size, 0, off - m.size);
			memcpy(m.data + off, data, len);
			if (len && off + len > m.size)
				m.size = off + len;
		}
		if (i % 10 == 0)
			same(f, &m);
	}
	same(f, &m);
	free(data);
	free(m.data);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(holes_and_gaps_are_zeros),
		TEST(the_base_is_copied_on_write),
		TEST(a_base_that_cannot_be_read_changes_nothing),
		TEST(a_whole_overwrite_needs_no_base),
		TEST(slots_are_taken_over),
		TEST(a_slot_that_begins_the_end_is_taken_over),
		TEST(staging_has_a_limit),
		TEST(a_write_that_gets_half_of_its_slots_shows_nothing),
		TEST(random_steps_agree_with_a_flat_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
