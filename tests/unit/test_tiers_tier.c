/* SPDX-License-Identifier: Apache-2.0
 * test_tiers_tier.c - the contract of tiers/tier.h, for each tier in the list. */
#include <config.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/err.h"
#include "tiers/tier.h"

#define MIB (1ull << 20)

static void tables_are_complete_and_named_once(void **state)
{
	for (unsigned i = 0; mct_tiers[i]; i++) {
		const struct mct_tier_ops *t = mct_tiers[i];

		assert_non_null(t->name);
		assert_true(t->open && t->memory && t->status && t->grow && t->identity && t->set_identity);
		assert_true(t->read_start && t->read_end && t->buffer_get && t->buffer_put && t->write_start);
		assert_true(t->data_next && t->note && t->sweep && t->close);
		for (unsigned k = 0; k < i; k++)
			assert_string_not_equal(t->name, mct_tiers[k]->name);
	}
	assert_string_equal(mct_tiers[0]->name, "dram");
}

static void a_medium_keeps_the_contract(const char *tier)
{
	const struct mct_conf conf = { .size = 4 * MIB, .reserve = 8 * MIB, .numa_node = -1 };
	struct mct_status before, after;
	struct mct_memory mem;
	struct mct_medium *m;

	assert_int_equal(mct_medium_open(tier, &conf, &m), 0);
	assert_string_equal(m->ops->name, tier);
	m->ops->status(m, &before);
	assert_true(before.size >= conf.size && before.limit >= conf.reserve);
	assert_true(before.ready <= before.size);
	assert_non_null(before.kind);
	assert_int_equal(m->ops->memory(m, &mem), 0);
	assert_int_equal(mem.len, before.limit);
	memset(mem.base, 7, before.size);
	assert_int_equal(m->ops->grow(m, 6 * MIB), 0);
	m->ops->status(m, &after);
	assert_true(after.size >= 6 * MIB && after.limit == before.limit);
	assert_int_equal(((char *)mem.base)[before.size - 1], 7);
	assert_int_equal(m->ops->grow(m, before.limit + 1), -EINVAL);
	assert_int_equal(m->ops->grow(m, before.size / 2), -EINVAL);
	m->ops->status(m, &before);
	assert_int_equal(before.size, after.size);
	mct_medium_close(m);
}

/* test_tiers_ssd.c has the tier that is not addressable. */
static void memory_keeps_the_contract(void **state)
{
	a_medium_keeps_the_contract("dram");
}

static void a_failed_open_leaves_the_output_untouched(void **state)
{
	const struct mct_conf empty = { .numa_node = -1 };
	const struct mct_conf strange = { .size = 4 * MIB, .kind = "paper", .numa_node = -1 };
	struct mct_medium *m = NULL;
	int r;

	for (unsigned i = 0; mct_tiers[i]; i++) {
		assert_int_equal(mct_medium_open(mct_tiers[i]->name, &empty, &m), -EINVAL);
		assert_int_equal(mct_medium_open(mct_tiers[i]->name, &strange, &m), -EINVAL);
	}
	r = mct_medium_open("paper", &strange, &m);
	assert_int_equal(r, -EINVAL);
	assert_non_null(strstr(mc_err_detail(r), "unknown tier 'paper'"));
	assert_null(m);
	mct_medium_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tables_are_complete_and_named_once),
		cmocka_unit_test(memory_keeps_the_contract),
		cmocka_unit_test(a_failed_open_leaves_the_output_untouched),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
