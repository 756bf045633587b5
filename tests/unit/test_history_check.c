/* SPDX-License-Identifier: Apache-2.0
 * Histories made by hand: right ones, and for each rule one that breaks it. */
#include <config.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/history/hist_check.h"

static struct hist_rec rec[64];
static size_t n;
static struct hist_report report;

static int start(void **state)
{
	(void)state;
	memset(rec, 0, sizeof(rec));
	n = 0;
	return 0;
}

/* A call on key 1 in the time [inv, ret]; ret 0: it did not return. */
static struct hist_rec *call(enum hist_op op, uint64_t inv, uint64_t ret, int result, uint32_t value)
{
	struct hist_rec *r = &rec[n++];

	*r = (struct hist_rec){
		.op = (uint8_t)op, .key = 1, .inv_ns = inv, .ret_ns = ret, .result = result,
		.value = value ? hist_value(7, value) : 0, .size = value ? 16 + value * 16 : 0, .thread = 7,
	};
	if (op >= HIST_GET && value) {
		r->flags = HIST_LOOKED;
		r->key_in_value = 1;
	}
	return r;
}

static struct hist_rec *with_generation(struct hist_rec *r, uint64_t generation)
{
	r->generation = generation;
	return r;
}

static void check(bool keep)
{
	hist_check(rec, n, keep, NULL, &report);
}

static void is_right(void)
{
	check(true);
	assert_int_equal(report.violations, 0);
	check(false);
	assert_int_equal(report.violations, 0);
}

/* Only this rule is broken, once. */
static void breaks(enum hist_rule rule, bool keep)
{
	check(keep);
	assert_int_equal(report.broken[rule], 1);
	assert_int_equal(report.violations, 1);
}

static void calls_one_after_another_are_right(void **state)
{
	(void)state;
	call(HIST_GET, 1, 2, HIST_ABSENT, 0);
	call(HIST_UPSERT, 3, 4, 0, 1);
	with_generation(call(HIST_MAP, 5, 6, 0, 1), 10);
	with_generation(call(HIST_STAT, 5, 6, 0, 0), 10);
	call(HIST_PUT, 7, 8, 0, 2);			/* changed nothing */
	call(HIST_PUT_EXCL, 7, 8, HIST_EXISTS, 3);
	call(HIST_GET, 9, 10, 0, 1);
	call(HIST_RENAME, 11, 12, 0, 4);
	with_generation(call(HIST_MAP, 13, 14, 0, 4), 11);
	call(HIST_REMOVE, 15, 16, 0, 0);
	call(HIST_EXIST, 17, 18, HIST_ABSENT, 0);
	call(HIST_FINAL, 19, 20, HIST_ABSENT, 0);
	is_right();
}

static void concurrent_calls_may_take_effect_in_any_order(void **state)
{
	(void)state;
	call(HIST_UPSERT, 1, 20, 0, 1);
	call(HIST_UPSERT, 2, 19, 0, 2);
	call(HIST_GET, 3, 4, 0, 2);
	call(HIST_GET, 5, 6, 0, 1);
	call(HIST_REMOVE, 7, 18, 0, 0);
	call(HIST_GET, 8, 9, 0, 1);
	call(HIST_GET, 21, 22, HIST_ABSENT, 0);
	is_right();
}

static void a_failed_write_may_take_effect_later_or_never(void **state)
{
	(void)state;
	call(HIST_UPSERT, 1, 2, 0, 1);
	call(HIST_UPSERT, 3, 4, -110, 2);
	call(HIST_UPSERT, 3, 0, 0, 3);
	call(HIST_GET, 5, 6, 0, 1);
	call(HIST_GET, 7, 8, 0, 2);
	call(HIST_GET, 9, 10, 0, 3);
	is_right();
}

static void a_failed_remove_may_take_effect_later(void **state)
{
	(void)state;
	call(HIST_UPSERT, 1, 2, 0, 1);
	call(HIST_REMOVE, 3, 4, -110, 0);
	call(HIST_GET, 5, 6, 0, 1);
	call(HIST_GET, 7, 8, HIST_ABSENT, 0);
	is_right();
}

static void a_miss_may_be_of_a_silent_owner(void **state)
{
	(void)state;
	call(HIST_UPSERT, 1, 2, 0, 1);
	call(HIST_GET, 3, 4, HIST_ABSENT, 0);
	call(HIST_GET, 5, 6, 0, 1);
	check(false);
	assert_int_equal(report.violations, 0);
	check(true);
	assert_int_equal(report.broken[RULE_BACK], 1);
	assert_int_equal(report.broken[RULE_LOST], 1);
}

static void other_bytes_are_wrong(void **state)
{
	(void)state;
	call(HIST_UPSERT, 1, 2, 0, 1);
	call(HIST_MAP, 3, 4, 0, 1)->flags |= HIST_WRONG;
	breaks(RULE_BYTES, false);
}

static void a_bad_checksum_is_damage(void **state)
{
	(void)state;
	call(HIST_UPSERT, 1, 2, 0, 1);
	call(HIST_GET, 3, 4, HIST_DAMAGED, 0);
	breaks(RULE_DAMAGED, false);
}

static void a_value_needs_a_write_of_its_key_and_size(void **state)
{
	(void)state;
	call(HIST_UPSERT, 1, 2, 0, 1);
	call(HIST_GET, 3, 4, 0, 2);
	breaks(RULE_NOWHERE, false);
	rec[1] = rec[0];
	rec[1].op = HIST_GET;
	rec[1].key = 2;
	breaks(RULE_NOWHERE, false);
	rec[1].key = 1;
	is_right();
	rec[1].size -= 16;
	breaks(RULE_NOWHERE, false);
}

static void a_read_cannot_precede_the_write(void **state)
{
	(void)state;
	call(HIST_GET, 1, 2, 0, 1);
	call(HIST_UPSERT, 3, 4, 0, 1);
	breaks(RULE_FUTURE, false);
}

static void a_generation_names_one_value(void **state)
{
	(void)state;
	call(HIST_UPSERT, 1, 2, 0, 1);
	call(HIST_UPSERT, 1, 5, 0, 2);
	with_generation(call(HIST_MAP, 3, 4, 0, 1), 10);
	with_generation(call(HIST_MAP, 6, 7, 0, 2), 10);
	breaks(RULE_GENERATION, false);
	rec[3].generation = 11;
	is_right();
	with_generation(call(HIST_MAP, 8, 9, 0, 2), 12);
	breaks(RULE_GENERATION, false);
}

static void a_stat_is_a_read_of_the_value_with_its_generation(void **state)
{
	(void)state;
	call(HIST_UPSERT, 1, 2, 0, 1);
	with_generation(call(HIST_MAP, 3, 4, 0, 1), 10);
	call(HIST_UPSERT, 5, 6, 0, 2);
	with_generation(call(HIST_STAT, 7, 8, 0, 0), 10);
	breaks(RULE_TWO_VALUES, false);
}

static void generations_grow_also_over_different_keys(void **state)
{
	(void)state;
	call(HIST_UPSERT, 1, 2, 0, 1);
	call(HIST_UPSERT, 3, 4, 0, 2)->key = 2;
	with_generation(call(HIST_MAP, 5, 6, 0, 1), 11);
	with_generation(call(HIST_MAP, 5, 6, 0, 2), 10)->key = 2;
	rec[3].key_in_value = 2;
	breaks(RULE_GENERATION, false);
	rec[0].ret_ns = 4;
	is_right();
}

static void a_replaced_value_does_not_come_back(void **state)
{
	(void)state;
	call(HIST_UPSERT, 1, 2, 0, 1);
	call(HIST_UPSERT, 3, 4, 0, 2);		/* no call reads it */
	call(HIST_GET, 5, 6, 0, 1);
	breaks(RULE_TWO_VALUES, false);
}

/* Its client has lost the connection while it committed, and repeats the call when the key is absent. */
static void a_value_may_come_back_before_its_call_returns(void **state)
{
	(void)state;
	call(HIST_UPSERT, 1, 8, 0, 1);
	with_generation(call(HIST_MAP, 2, 3, 0, 1), 10);
	call(HIST_UPSERT, 4, 5, 0, 2);
	call(HIST_REMOVE, 6, 7, 0, 0);
	with_generation(call(HIST_MAP, 8, 9, 0, 1), 12);
	is_right();
	call(HIST_UPSERT, 10, 11, 0, 3);
	call(HIST_GET, 12, 13, 0, 1);
	breaks(RULE_TWO_VALUES, false);
}

static void two_values_do_not_alternate(void **state)
{
	(void)state;
	call(HIST_UPSERT, 1, 0, 0, 1);
	call(HIST_UPSERT, 1, 0, 0, 2);
	call(HIST_GET, 2, 3, 0, 1);
	call(HIST_GET, 4, 5, 0, 2);
	is_right();
	call(HIST_GET, 6, 7, 0, 1);
	breaks(RULE_TWO_VALUES, false);
}

static void a_removed_value_does_not_come_back(void **state)
{
	(void)state;
	call(HIST_UPSERT, 1, 2, 0, 1);
	call(HIST_REMOVE, 3, 4, 0, 0);
	call(HIST_GET, 5, 6, 0, 1);
	breaks(RULE_BACK, false);
}

static void an_acknowledged_value_is_not_lost(void **state)
{
	(void)state;
	call(HIST_REMOVE, 1, 2, 0, 0);
	call(HIST_UPSERT, 3, 4, 0, 1);
	call(HIST_FINAL, 5, 6, HIST_ABSENT, 0);
	breaks(RULE_LOST, true);
	check(false);
	assert_int_equal(report.violations, 0);
	/* a remove that was running together with the write is a cause */
	rec[0].ret_ns = 4;
	is_right();
}

static void a_put_that_may_have_found_a_value_promises_nothing(void **state)
{
	(void)state;
	call(HIST_PUT, 1, 2, 0, 1);
	call(HIST_GET, 3, 4, HIST_ABSENT, 0);
	is_right();
}

static void every_key_can_be_read_in_the_end(void **state)
{
	(void)state;
	call(HIST_UPSERT, 1, 2, 0, 1);
	call(HIST_FINAL, 3, 4, -5, 0);
	call(HIST_FINAL, 5, 6, 0, 1);
	is_right();
	call(HIST_FINAL, 7, 8, -5, 0)->key = 2;
	breaks(RULE_UNREADABLE, true);
}

static struct hist_rec *with_ranks(struct hist_rec *r, unsigned first, unsigned second)
{
	r->flags |= HIST_RANK(first) | HIST_RANK(second);
	return r;
}

static void ways_between_ranks_are_counted(void **state)
{
	(void)state;
	call(HIST_UPSERT, 1, 2, 0, 1);
	with_ranks(with_generation(call(HIST_MAP, 3, 4, 0, 1), 10), 0, 1);
	with_ranks(with_generation(call(HIST_STAT, 5, 7, 0, 0), 10), 1, 3);
	/* at the same time as the call before: no way is known */
	with_ranks(with_generation(call(HIST_STAT, 6, 9, 0, 0), 10), 0, 3);
	with_ranks(with_generation(call(HIST_MAP, 10, 11, 0, 1), 10), 3, 3);
	with_ranks(with_generation(call(HIST_MAP, 12, 13, 0, 1), 10), 0, 3);
	/* another version */
	with_ranks(with_generation(call(HIST_STAT, 14, 15, 0, 0), 11), 3, 3)->key = 2;
	check(false);
	assert_int_equal(report.read[0], 2);
	assert_int_equal(report.read[1], 0);
	assert_int_equal(report.read[3], 1);
	assert_int_equal(report.down[1], 1);
	assert_int_equal(report.down[3], 1);
	assert_int_equal(report.up[3], 1);
	assert_int_equal(report.up[1], 0);
}

static void check_the_last_rank(unsigned long safe, unsigned long violations)
{
	hist_check(rec, n, HIST_SHARED, NULL, &report);
	assert_int_equal(report.safe, safe);
	assert_int_equal(report.violations, violations);
	assert_int_equal(report.broken[RULE_SHARED], violations);
}

static void a_value_of_the_last_rank_is_not_lost(void **state)
{
	(void)state;
	call(HIST_UPSERT, 1, 2, 0, 1);
	with_ranks(with_generation(call(HIST_MAP, 3, 5, 0, 1), 10), 0, 3);
	/* it began before */
	call(HIST_GET, 4, 6, HIST_ABSENT, 0);
	check_the_last_rank(1, 0);
	call(HIST_GET, 6, 7, HIST_ABSENT, 0);
	check_the_last_rank(1, 1);
	check(false);
	assert_int_equal(report.violations, 0);
	/* a remove that runs at the same time, or failed before, is a cause */
	call(HIST_REMOVE, 6, 7, 0, 0);
	check_the_last_rank(1, 0);
	rec[n - 1] = (struct hist_rec){ .op = HIST_REMOVE, .key = 1, .inv_ns = 2, .ret_ns = 3, .result = -110 };
	check_the_last_rank(0, 0);
}

static void a_value_that_may_have_been_replaced_can_be_lost(void **state)
{
	(void)state;
	call(HIST_UPSERT, 1, 2, 0, 1);
	with_ranks(with_generation(call(HIST_MAP, 3, 5, 0, 1), 10), 0, 3);
	call(HIST_UPSERT, 6, 7, 0, 2);
	call(HIST_GET, 8, 9, HIST_ABSENT, 0);
	check_the_last_rank(1, 0);
	with_ranks(with_generation(call(HIST_STAT, 10, 11, 0, 2), 11), 3, 3);
	call(HIST_STAT, 12, 13, HIST_ABSENT, 0);
	check_the_last_rank(2, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(calls_one_after_another_are_right, start),
		cmocka_unit_test_setup(concurrent_calls_may_take_effect_in_any_order, start),
		cmocka_unit_test_setup(a_failed_write_may_take_effect_later_or_never, start),
		cmocka_unit_test_setup(a_failed_remove_may_take_effect_later, start),
		cmocka_unit_test_setup(a_miss_may_be_of_a_silent_owner, start),
		cmocka_unit_test_setup(other_bytes_are_wrong, start),
		cmocka_unit_test_setup(a_bad_checksum_is_damage, start),
		cmocka_unit_test_setup(a_value_needs_a_write_of_its_key_and_size, start),
		cmocka_unit_test_setup(a_read_cannot_precede_the_write, start),
		cmocka_unit_test_setup(a_generation_names_one_value, start),
		cmocka_unit_test_setup(a_stat_is_a_read_of_the_value_with_its_generation, start),
		cmocka_unit_test_setup(generations_grow_also_over_different_keys, start),
		cmocka_unit_test_setup(a_replaced_value_does_not_come_back, start),
		cmocka_unit_test_setup(a_value_may_come_back_before_its_call_returns, start),
		cmocka_unit_test_setup(two_values_do_not_alternate, start),
		cmocka_unit_test_setup(a_removed_value_does_not_come_back, start),
		cmocka_unit_test_setup(an_acknowledged_value_is_not_lost, start),
		cmocka_unit_test_setup(a_put_that_may_have_found_a_value_promises_nothing, start),
		cmocka_unit_test_setup(every_key_can_be_read_in_the_end, start),
		cmocka_unit_test_setup(ways_between_ranks_are_counted, start),
		cmocka_unit_test_setup(a_value_of_the_last_rank_is_not_lost, start),
		cmocka_unit_test_setup(a_value_that_may_have_been_replaced_can_be_lost, start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
