/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "common/err.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct {
	int value, upstream, err;
} rows[] = {
#define MC_ERR(name, value, upstream, err, text) { name, upstream, err },
#include "common/errno.def"
#undef MC_ERR
};

#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

static void numbers_have_no_gap(void **state)
{
	for (size_t i = 0; i < N_ROWS; i++)
		assert_int_equal(rows[i].value, 1001 + i);
}

static void detail_belongs_to_its_error(void **state)
{
	assert_int_equal(mc_fail(-EIO, "disk %s: block %d", "sda", 7), -EIO);
	assert_string_equal(mc_err_detail(-EIO), "disk sda: block 7");
	assert_string_equal(mc_err_detail(-ENOENT), "no such file or directory");
	assert_string_equal(mc_err_detail(0), mc_strerror(0));
}

static void detail_may_quote_itself_and_keeps_errno(void **state)
{
	char longer[2000];
	int r = mc_fail(-EPIPE, "cause");

	errno = EINTR;
	mc_fail(r, "while sending: %s", mc_err_detail(r));
	assert_int_equal(errno, EINTR);
	assert_string_equal(mc_err_detail(-EPIPE), "while sending: cause");

	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	mc_fail(-EIO, "%s", longer);
	assert_true(strlen(mc_err_detail(-EIO)) > 100);
	assert_true(strlen(mc_err_detail(-EIO)) < 600);
}

static void *other_thread(void *arg)
{
	mc_fail(-EIO, "of the other thread");
	return NULL;
}

static void detail_is_the_threads_own(void **state)
{
	pthread_t t;

	mc_fail(-EIO, "mine");
	assert_int_equal(pthread_create(&t, NULL, other_thread, NULL), 0);
	pthread_join(t, NULL);
	assert_string_equal(mc_err_detail(-EIO), "mine");
}

static void texts(void **state)
{
	assert_string_equal(mc_strerror(-MC_ECHECKSUM), "checksum mismatch");
	assert_string_equal(mc_strerror(MC_ECHECKSUM), "checksum mismatch");
	assert_string_equal(mc_strerror(-EADDRINUSE), "address already in use");
	assert_string_equal(mc_strerror(EIO), "input/output error");
	assert_string_equal(mc_strerror(-99999), "unknown error");
	assert_string_equal(mc_strerror(INT_MIN), "unknown error");
	for (int e = 1; e < 134; e++)
		assert_true(*mc_strerror(e) != '\0');
}

static void file_operations_get_an_errno(void **state)
{
	for (size_t i = 0; i < N_ROWS; i++)
		assert_int_equal(mc_err_to_errno(-rows[i].value), rows[i].err);
	assert_int_equal(mc_err_to_errno(-ENOENT), ENOENT);
	assert_int_equal(mc_err_to_errno(0), 0);
	assert_int_equal(mc_err_to_errno(-5000), EIO);
	assert_int_equal(mc_err_to_errno(INT_MIN), EIO);
}

static void upstream_numbers(void **state)
{
	for (size_t i = 0; i < N_ROWS; i++)
		assert_int_equal(mc_err_to_upstream(-rows[i].value), rows[i].upstream);
	assert_int_equal(mc_err_to_upstream(0), 0);
	assert_int_equal(mc_err_to_upstream(17), 0);
	assert_int_equal(mc_err_to_upstream(-EINVAL), -600);
	assert_int_equal(mc_err_to_upstream(-ENOENT), -704);
	assert_int_equal(mc_err_to_upstream(-ECONNRESET), -900);
	assert_int_equal(mc_err_to_upstream(-ETIMEDOUT), -901);
	assert_int_equal(mc_err_to_upstream(-EXDEV), -1);
	assert_int_equal(mc_err_to_upstream(INT_MIN), -1);
}

static void errors_survive_the_wire(void **state)
{
	for (size_t i = 0; i < N_ROWS; i++) {
		int status = mc_err_to_wire(-rows[i].value);

		assert_true(status < 0);
		assert_int_equal(mc_err_from_wire(status), -rows[i].value);
		for (size_t j = 0; j < i; j++)
			assert_int_not_equal(status, mc_err_to_wire(-rows[j].value));
	}
	for (int e = 1; e < 134; e++)
		assert_int_equal(mc_err_from_wire(mc_err_to_wire(-e)), e == EINPROGRESS ? -MC_EINTERNAL : -e);
	assert_int_equal(mc_err_to_wire(-MC_ENOOBJECT), -704);
	assert_int_equal(mc_err_to_wire(-MC_ETOOBIG), -11026);
	assert_int_equal(mc_err_to_wire(-EIO), -20000 - EIO);
	assert_int_equal(mc_err_to_wire(0), 0);
	assert_int_equal(mc_err_from_wire(0), 0);
}

static void nonsense_from_the_wire_is_an_error(void **state)
{
	static const int bad[] = {
		1, 600, INT_MAX, INT_MIN, -2, -10000, -10001, -12000, -20000, -20200, -99999,
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(mc_err_from_wire(bad[i]), -MC_EINTERNAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_have_no_gap),
		cmocka_unit_test(detail_belongs_to_its_error),
		cmocka_unit_test(detail_may_quote_itself_and_keeps_errno),
		cmocka_unit_test(detail_is_the_threads_own),
		cmocka_unit_test(texts),
		cmocka_unit_test(file_operations_get_an_errno),
		cmocka_unit_test(upstream_numbers),
		cmocka_unit_test(errors_survive_the_wire),
		cmocka_unit_test(nonsense_from_the_wire_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
