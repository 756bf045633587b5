/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tools/mcctl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct mcctl_conf conf;
static struct mcctl ctl = { .conf = &conf };

static void every_byte_comes_back(void **state)
{
	unsigned char bytes[512];
	struct mcs_key key = { bytes, sizeof(bytes) }, again;
	size_t len;
	char *text;

	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)(i * 7);
	conf.raw = false;
	text = mcctl_key_text(false, key, &len);
	assert_non_null(text);
	assert_int_equal(strlen(text), len);
	for (size_t i = 0; i < len; i++)
		assert_true((unsigned char)text[i] >= 0x20 && text[i] != 0x7f);
	assert_int_equal(mcctl_key_parse(&ctl, text, &again), MCCTL_OK);
	assert_int_equal(again.len, key.len);
	assert_memory_equal(again.data, key.data, key.len);
	mcctl_key_free(&again);
	free(text);
}

static void text_is_that_of_mcfs(void **state)
{
	static const struct {
		const char *key, *text;
	} rows[] = {
		{ "a/b@c", "a/b@c" }, { "100%", "100%25" }, { "a\nb\x7f", "a%0Ab%7F" },
		{ "\xc3\xa9 \xff", "\xc3\xa9 \xff" },
	};
	size_t len;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct mcs_key key = { rows[i].key, strlen(rows[i].key) };
		char *text = mcctl_key_text(false, key, &len), *printed = NULL;
		FILE *f = open_memstream(&printed, &len);

		mcctl_key_print(false, key, f);
		fclose(f);
		assert_string_equal(text, rows[i].text);
		assert_string_equal(printed, rows[i].text);
		free(text);
		free(printed);
	}
}

static void arguments_are_checked(void **state)
{
	static const char *const bad[] = { "", "%", "a%4", "%zz", "%%", "a%2" };
	struct mcs_key key;
	char *longest = malloc(4098);

	conf.raw = false;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(mcctl_key_parse(&ctl, bad[i], &key), MCCTL_USAGE);
	assert_int_equal(mcctl_key_parse(&ctl, "%2f%2F", &key), MCCTL_OK);
	assert_int_equal(key.len, 2);
	assert_memory_equal(key.data, "//", 2);
	mcctl_key_free(&key);
	assert_int_equal(mcctl_prefix_parse(&ctl, "", &key), MCCTL_OK);
	assert_int_equal(key.len, 0);
	mcctl_key_free(&key);

	memset(longest, 'k', 4097);
	longest[4097] = '\0';
	assert_int_equal(mcctl_key_parse(&ctl, longest, &key), MCCTL_USAGE);
	assert_int_equal(mcctl_key_parse(&ctl, longest + 1, &key), MCCTL_OK);
	mcctl_key_free(&key);
	free(longest);
}

static void raw_keys_are_taken_as_they_are(void **state)
{
	struct mcs_key key;
	size_t len;
	char *text;

	conf.raw = true;
	assert_int_equal(mcctl_key_parse(&ctl, "50%", &key), MCCTL_OK);
	assert_int_equal(key.len, 3);
	text = mcctl_key_text(true, key, &len);
	assert_string_equal(text, "50%");
	free(text);
	mcctl_key_free(&key);
}

static void json_is_always_unicode(void **state)
{
	struct mcs_key utf8 = { "\xc3\xa9%", 3 }, other = { "\xff\xc3\xa9", 3 };
	json_t *j = mcctl_key_json(utf8);

	assert_string_equal(json_string_value(j), "\xc3\xa9%25");
	json_decref(j);
	j = mcctl_key_json(other);
	assert_string_equal(json_string_value(j), "%FF%C3%A9");
	json_decref(j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_byte_comes_back),
		cmocka_unit_test(text_is_that_of_mcfs),
		cmocka_unit_test(arguments_are_checked),
		cmocka_unit_test(raw_keys_are_taken_as_they_are),
		cmocka_unit_test(json_is_always_unicode),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
