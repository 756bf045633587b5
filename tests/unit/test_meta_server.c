/* SPDX-License-Identifier: Apache-2.0
 * test_meta_server.c - table and file of the metadata server: limits,
 * expiry, disk errors. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "meta/server_store_i.h"

static char dir[64], file[96];

static int setup(void **state)
{
	strcpy(dir, "/tmp/test-meta-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(file, sizeof(file), "%s/file", dir);
	return 0;
}

static int teardown(void **state)
{
	mc_fault_set(NULL);
	mc_clock_real();
	unlink(file);
	return rmdir(dir);
}

static struct mcd_store *open_store(const char *path, uint64_t max)
{
	struct mcd_store *s = NULL;
	int r = mcd_store_open(path, max, &s);

	if (r < 0)
		fail_msg("%s", mc_err_detail(r));
	return s;
}

static int put(struct mcd_store *s, const char *key, const char *text)
{
	return mcd_store_put(s, key, text, strlen(text), 0, false);
}

static void expect(struct mcd_store *s, const char *key, const char *wanted)
{
	char *text = NULL;
	size_t len;
	int r = mcd_store_get(s, key, &text, &len);

	assert_int_equal(r, wanted ? 0 : -ENOENT);
	if (wanted)
		assert_string_equal(text, wanted);
	free(text);
}

static void table(void **state)
{
	struct mcd_store *s = open_store(NULL, 1 << 30);
	char key[32], text[32];

	for (unsigned i = 0; i < 20000; i++) {
		snprintf(key, sizeof(key), "key%u", i);
		snprintf(text, sizeof(text), "text%u", i);
		assert_int_equal(put(s, key, text), 0);
	}
	for (unsigned i = 0; i < 20000; i += 3) {
		snprintf(key, sizeof(key), "key%u", i);
		assert_int_equal(mcd_store_del(s, key), 0);
		assert_int_equal(mcd_store_del(s, key), -ENOENT);
	}
	for (unsigned i = 0; i < 20000; i++) {
		snprintf(key, sizeof(key), "key%u", i);
		snprintf(text, sizeof(text), "text%u", i);
		expect(s, key, i % 3 ? text : NULL);
	}
	assert_int_equal(put(s, "key1", "text1"), 1);
	assert_int_equal(mcd_store_put(s, "key1", "other", 5, 0, true), -EEXIST);
	assert_int_equal(mcd_store_put(s, "key1", "text1", 5, 0, true), 1);
	mcd_store_close(s);
}

/* An expired entry is not found, its memory is free for others, and its key can be written again. */
static void an_expired_entry_frees_key_and_memory(void **state)
{
	struct mcd_store *s;
	char key[32];

	mc_clock_fake(1000 * MC_NS_PER_SEC);
	s = open_store(NULL, 1 << 20);
	assert_int_equal(mcd_store_put(s, "rpc_meta", "a", 1, 10, true), 0);
	mc_clock_advance(9 * MC_NS_PER_SEC);
	assert_int_equal(mcd_store_put(s, "rpc_meta", "a", 1, 10, true), 1);
	mc_clock_advance(9 * MC_NS_PER_SEC);
	expect(s, "rpc_meta", "a");
	assert_int_equal(mcd_store_put(s, "rpc_meta", "b", 1, 10, true), -EEXIST);
	mc_clock_advance(MC_NS_PER_SEC);
	expect(s, "rpc_meta", NULL);
	assert_int_equal(mcd_store_del(s, "rpc_meta"), -ENOENT);
	assert_int_equal(mcd_store_put(s, "rpc_meta", "b", 1, 10, true), 0);
	/* in total far more entries than fit */
	for (unsigned i = 0; i < 100000; i++) {
		snprintf(key, sizeof(key), "key%u", i);
		assert_int_equal(mcd_store_put(s, key, "x", 1, 1, false), 0);
		mc_clock_advance(MC_NS_PER_SEC / 1000);
	}
	assert_true(s->n < 3000);
	mcd_store_close(s);
}

static void a_full_table_refuses_texts(void **state)
{
	struct mcd_store *s = open_store(NULL, 10000);
	static char text[9001];

	memset(text, 'x', 9000);
	assert_int_equal(put(s, "a", text), 0);
	assert_int_equal(put(s, "b", text), -ENOSPC);
	/* the new text fits because it replaces the old one */
	text[0] = 'y';
	assert_int_equal(put(s, "a", text), 0);
	assert_int_equal(mcd_store_del(s, "a"), 0);
	assert_int_equal(put(s, "b", text), 0);
	assert_int_equal(s->bytes, 128 + 1 + 9000);
	mcd_store_close(s);
}

static void texts_survive_a_restart(void **state)
{
	struct mcd_store *s = open_store(file, 1 << 30), *other;

	assert_int_equal(put(s, "a", "1"), 0);
	assert_int_equal(mcd_store_put(s, "nul", "x\0y", 3, 0, false), 0);
	assert_int_equal(put(s, "b", "1"), 0);
	assert_int_equal(put(s, "b", ""), 0);
	assert_int_equal(mcd_store_del(s, "a"), 0);
	assert_int_equal(mcd_store_open(file, 1 << 30, &other), -EBUSY);
	mcd_store_close(s);
	s = open_store(file, 1 << 30);
	assert_int_equal(s->n, 2);
	expect(s, "a", NULL);
	expect(s, "b", "");
	mcd_store_close(s);
}

static bool odd(const char *key, const void *arg)
{
	return (key[strlen(key) - 1] - '0') % 2;
}

/* The file is rewritten while it grows; it stays locked under its name, and
 * complete. */
static void the_file_is_rewritten_as_it_grows(void **state)
{
	struct mcd_store *s = open_store(file, 1 << 30), *other;
	static char text[50001];
	struct stat st;
	char key[16];

	for (unsigned i = 0; i < 200; i++) {
		memset(text, 'a' + (int)i % 26, 50000);
		snprintf(key, sizeof(key), "key%u", i % 10);
		assert_int_equal(put(s, key, text), 0);
	}
	assert_int_equal(stat(file, &st), 0);
	assert_true(st.st_size < 3 << 20);
	assert_int_equal(mcd_store_open(file, 1 << 30, &other), -EBUSY);
	assert_int_equal(mcd_store_del_if(s, odd, NULL), 5);
	mcd_store_close(s);
	s = open_store(file, 1 << 30);
	assert_int_equal(s->n, 5);
	expect(s, "key9", NULL);
	memset(text, 'a' + 198 % 26, 50000);
	expect(s, "key8", text);
	mcd_store_close(s);
}

/* The disk fails at the n-th write, n = 1, 2, 3...: the change is refused, or it is there after a
 * restart.  Earlier changes are there in any case. */
static void a_failed_write_loses_no_earlier_text(void **state)
{
	struct mcd_store *s;
	char spec[128], text[16];
	unsigned failures = 0;
	int r;

	s = open_store(file, 1 << 30);
	assert_int_equal(put(s, "k", "0"), 0);
	for (unsigned i = 1; i < 40; i++) {
		snprintf(spec, sizeof(spec), "meta.journal.write=error:%s@%u",
			 i % 2 ? "ENOSPC" : "EIO", i % 4 + 1);
		mc_fault_set(spec);
		for (unsigned j = 0; j < 4; j++) {
			snprintf(text, sizeof(text), "%u.%u", i, j);
			r = put(s, "k", text);
			if (r == 0)
				expect(s, "k", text);
			else
				failures++;
		}
		mc_fault_set(NULL);
		snprintf(text, sizeof(text), "%u", i);
		assert_int_equal(put(s, "k", text), 0);
		mcd_store_close(s);
		s = open_store(file, 1 << 30);
		expect(s, "k", text);
	}
	assert_true(failures > 5);
	/* the disk stays full: each change is refused, no text is lost */
	mc_fault_set("meta.journal.write=error:ENOSPC");
	for (unsigned j = 0; j < 5; j++)
		assert_int_equal(put(s, "k", "never"), -ENOSPC);
	assert_int_equal(mcd_store_del(s, "k"), -ENOSPC);
	expect(s, "k", "39");
	mc_fault_set(NULL);
	mcd_store_close(s);
	s = open_store(file, 1 << 30);
	expect(s, "k", "39");
	mcd_store_close(s);
	snprintf(spec, sizeof(spec), "%s.new", file);
	assert_int_not_equal(access(spec, F_OK), 0);
}

/* The file is cut after any number of bytes: all complete records are there. */
static void a_torn_record_is_cut_off(void **state)
{
	struct mcd_store *s = open_store(file, 1 << 30);
	struct stat st;
	off_t first;

	assert_int_equal(put(s, "a", "first"), 0);
	assert_int_equal(stat(file, &st), 0);
	first = st.st_size;
	assert_int_equal(put(s, "b", "second"), 0);
	mcd_store_close(s);
	assert_int_equal(stat(file, &st), 0);
	for (off_t size = st.st_size - 1; size >= 0; size--) {
		assert_int_equal(truncate(file, size), 0);
		s = open_store(file, 1 << 30);
		expect(s, "a", size >= first ? "first" : NULL);
		expect(s, "b", NULL);
		mcd_store_close(s);
		if (size > first)
			assert_int_equal(stat(file, &st) || st.st_size != first, 0);
	}
}

int main(void)
{
	static const struct mc_log_conf quiet = { .levels = "err" };
#define WITH(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
	const struct CMUnitTest tests[] = {
		WITH(table),
		WITH(an_expired_entry_frees_key_and_memory),
		WITH(a_full_table_refuses_texts),
		WITH(texts_survive_a_restart),
		WITH(the_file_is_rewritten_as_it_grows),
		WITH(a_failed_write_loses_no_earlier_text),
		WITH(a_torn_record_is_cut_off),
	};

	mc_log_open(&quiet);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
