/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tools/ctl/mcctl.h"

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

static void text_is_the_key_wherever_possible(void **state)
{
	static const struct {
		const char *key, *text;
	} rows[] = {
		{ "a/b@c", "a/b@c" }, { "100%", "100%" }, { "a%2Fb%20", "a%2Fb%20" },
		{ "a\nb\x7f", "a%0Ab%7F" }, { "\xc3\xa9 \xff", "\xc3\xa9 \xff" },
		{ "%25", "%25" }, { "%0A", "%250A" }, { "%0a", "%250a" },
		{ "%250A", "%25250A" }, { "%ff", "%25ff" }, { "%2525", "%2525" },
		{ "%%0A%", "%%250A%" }, { "%2", "%2" }, { "%0", "%0" },
	};
	struct mcs_key again;
	size_t len;

	conf.raw = false;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct mcs_key key = { rows[i].key, strlen(rows[i].key) };
		char *text = mcctl_key_text(false, key, &len), *printed = NULL;
		FILE *f = open_memstream(&printed, &len);

		mcctl_key_print(false, key, f);
		fclose(f);
		assert_string_equal(text, rows[i].text);
		assert_string_equal(printed, rows[i].text);
		assert_int_equal(mcctl_key_parse(&ctl, text, &again), MCCTL_OK);
		assert_int_equal(again.len, key.len);
		assert_memory_equal(again.data, key.data, key.len);
		mcctl_key_free(&again);
		free(text);
		free(printed);
	}
}

/* Keys made of pieces that could be mistaken for escapes, as text and as JSON. */
static void any_mixture_comes_back(void **state)
{
	static const char *const pieces[] = {
		"%", "2", "5", "25", "0", "A", "0A", "7f", "\n", "\xff", "%25", "%00", "/", "z",
	};
	const size_t n = sizeof(pieces) / sizeof(pieces[0]);
	char key[64];

	conf.raw = false;
	for (size_t i = 0; i < n * n * n * n; i++) {
		struct mcs_key k = { key, 0 }, again;
		char *text;
		json_t *j;

		snprintf(key, sizeof(key), "%s%s%s%s", pieces[i % n], pieces[i / n % n],
			 pieces[i / n / n % n], pieces[i / n / n / n]);
		k.len = strlen(key);
		text = mcctl_key_text(false, k, &again.len);
		j = mcctl_key_json(k);
		for (int way = 0; way < 2; way++) {
			assert_int_equal(mcctl_key_parse(&ctl, way ? json_string_value(j) : text,
							 &again), MCCTL_OK);
			if (again.len != k.len || memcmp(again.data, key, k.len))
				fail_msg("%s -> %s", key, way ? json_string_value(j) : text);
			mcctl_key_free(&again);
		}
		json_decref(j);
		free(text);
	}
}

static void arguments_are_checked(void **state)
{
	struct mcs_key key;
	char *longest = malloc(4098);

	conf.raw = false;
	assert_int_equal(mcctl_key_parse(&ctl, "", &key), MCCTL_USAGE);
	assert_int_equal(mcctl_key_parse(&ctl, "%00x%0a", &key), MCCTL_OK);
	assert_int_equal(key.len, 3);
	assert_memory_equal(key.data, "\0x\n", 3);
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
	assert_int_equal(mcctl_key_parse(&ctl, "5%0A", &key), MCCTL_OK);
	assert_int_equal(key.len, 4);
	text = mcctl_key_text(true, key, &len);
	assert_string_equal(text, "5%0A");
	free(text);
	mcctl_key_free(&key);
}

static void json_is_always_unicode(void **state)
{
	struct mcs_key utf8 = { "\xc3\xa9%", 3 }, other = { "\xff\xc3\xa9", 3 };
	json_t *j = mcctl_key_json(utf8);

	assert_string_equal(json_string_value(j), "\xc3\xa9%");
	json_decref(j);
	j = mcctl_key_json(other);
	assert_string_equal(json_string_value(j), "%FF%C3%A9");
	json_decref(j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_byte_comes_back),
		cmocka_unit_test(text_is_the_key_wherever_possible),
		cmocka_unit_test(any_mixture_comes_back),
		cmocka_unit_test(arguments_are_checked),
		cmocka_unit_test(raw_keys_are_taken_as_they_are),
		cmocka_unit_test(json_is_always_unicode),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
