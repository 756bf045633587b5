/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mcfs/keymap.h"
#include "tests/unit/test_mcfs_path.h"

static void shows(const char *comp, size_t len, bool top, const char *name)
{
	char got[3 * MCFS_KEY_MAX + 1], back[MCFS_KEY_MAX];
	int n = mcfs_name_encode(comp, len, top, got, sizeof(got));

	assert_int_equal(n, strlen(name));
	assert_string_equal(got, name);
	n = mcfs_name_decode(got, top, back, sizeof(back));
	assert_int_equal(n, len);
	assert_memory_equal(back, comp, len);
}

static void plain_names_stand_for_themselves(void **state)
{
	static const char *const names[] = {
		"a", "100%", "%", "%2f", "%2F", "%252F", "meta-llama%2FLlama", "vllm@x@1@0@ab.bin", ".tmpXYZ", "...",
		"%25", "% 00", "\x01\x7f\xff", "a\nb", "%2", "%0", "x%2E", "%2Ex",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		shows(names[i], strlen(names[i]), true, names[i]);
		shows(names[i], strlen(names[i]), false, names[i]);
	}
	shows(".mcfs", 5, false, ".mcfs");
	shows("%2Emcfs", 7, false, "%2Emcfs");
}

static void odd_components_are_escaped(void **state)
{
	shows("", 0, false, "%_");
	shows(".", 1, false, "%2E");
	shows("..", 2, false, "%2E%2E");
	shows(".mcfs", 5, true, "%2Emcfs");
	shows("\0", 1, false, "%00");
	shows("a\0b", 3, false, "a%00b");
	shows("%\0", 2, false, "%%00");
	shows("%25\0", 4, false, "%25%00");
}

static void literal_escapes_are_quoted(void **state)
{
	shows("%_", 2, false, "%25_");
	shows("%25_", 4, false, "%2525_");
	shows("%2E", 3, false, "%252E");
	shows("%2E%2E", 6, false, "%252E%2E");
	shows("%2Emcfs", 7, true, "%252Emcfs");
	shows("%00", 3, false, "%2500");
	shows("x%00y", 5, false, "x%2500y");
	shows("%2500", 5, false, "%252500");
	shows("%0025", 5, false, "%250025");
}

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Bytes that occur in escapes are frequent. */
static size_t random_text(uint64_t *rng, char *to, size_t max, const char *alphabet, size_t n)
{
	size_t len = next_random(rng) % max;

	for (size_t i = 0; i < len; i++)
		to[i] = alphabet[next_random(rng) % n];
	return len;
}

static void every_key_comes_back(void **state)
{
	static const char alphabet[] = "%%%2255500E__..\0/a.mcfs";
	char key[24], path[256], back[64];
	uint64_t rng = 88172645463325252ull;

	for (int i = 0; i < 300000; i++) {
		size_t len = random_text(&rng, key, sizeof(key), alphabet, sizeof(alphabet) - 1);
		int n;

		if (!len)
			continue;
		n = mcfs_key_to_path(key, len, path, sizeof(path));
		assert_true(n > 0);
		assert_int_equal(strlen(path), n);
		n = mcfs_path_to_key(path, back, sizeof(back));
		assert_int_equal(n, len);
		assert_memory_equal(back, key, len);
	}
}

static void every_name_comes_back(void **state)
{
	static const char alphabet[] = "%%%2255500E__..a.mcfs";
	char name[24], comp[64], back[256];
	uint64_t rng = 362436069ull;

	for (int i = 0; i < 300000; i++) {
		size_t len = random_text(&rng, name, sizeof(name) - 1, alphabet, sizeof(alphabet) - 1);
		bool top = i & 1;
		int n;

		name[len] = '\0';
		/* These cannot be file names. */
		if (!len || !strcmp(name, ".") || !strcmp(name, "..") ||
		    (top && !strcmp(name, MCFS_CONTROL_NAME)))
			continue;
		n = mcfs_name_decode(name, top, comp, sizeof(comp));
		assert_true(n >= 0);
		assert_null(memchr(comp, '/', (size_t)n));
		assert_int_equal(mcfs_name_encode(comp, (size_t)n, top, back, sizeof(back)), len);
		assert_string_equal(back, name);
	}
}

static void sizes_are_checked(void **state)
{
	char small[4], big[64];

	assert_int_equal(mcfs_name_encode("abcd", 4, false, small, 4), -ENAMETOOLONG);
	assert_int_equal(mcfs_name_encode("abc", 3, false, small, 4), 3);
	assert_int_equal(mcfs_name_encode("a\0", 2, false, small, 4), -ENAMETOOLONG);
	assert_int_equal(mcfs_name_decode("abcde", false, small, 4), -ENAMETOOLONG);
	assert_int_equal(mcfs_key_to_path("a/b", 3, small, 3), -ENAMETOOLONG);
	assert_int_equal(mcfs_path_to_key("a/bcd", small, 4), -ENAMETOOLONG);
	assert_int_equal(mcfs_path_to_key("a/b", big, sizeof(big)), 3);
}

static void directories_end_in_a_slash(void **state)
{
	char path[64], key[64];

	assert_int_equal(mcfs_key_to_path("a/b/", 4, path, sizeof(path)), 4);
	assert_string_equal(path, "a/b/");
	assert_int_equal(mcfs_path_to_key("a/b/", key, sizeof(key)), 4);
	assert_int_equal(mcfs_key_to_path("/", 1, path, sizeof(path)), 3);
	assert_string_equal(path, "%_/");
	assert_int_equal(mcfs_key_to_path("a//b", 4, path, sizeof(path)), 6);
	assert_string_equal(path, "a/%_/b");
}

static void a_whole_key_is_one_name(void **state)
{
	static const struct { const char *key; size_t len; const char *name; } rows[] = {
		{ "plain.name", 10, "plain.name" }, { "a/b//c", 6, "a%2Fb%2F%2Fc" },
		{ "100%", 4, "100%25" }, { "%2F", 3, "%252F" }, { ".", 1, "%2E" }, { "..", 2, "%2E%2E" },
		{ "./.", 3, ".%2F." }, { "a\0b", 3, "a%00b" },
	};
	static const char *const none[] = { "%", "%2", "%2f", "%41", "a%2Eb", ".%2E", "%2E.", "x%", "%2Emcfs2" };
	char name[64], key[64];

	for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
		bool top = i % 2;

		assert_true(mcfs_flat_encode(rows[i / 2].key, rows[i / 2].len, top, name, sizeof(name)) > 0);
		assert_string_equal(name, rows[i / 2].name);
		assert_int_equal(mcfs_flat_decode(name, top, key, sizeof(key)), rows[i / 2].len);
		assert_memory_equal(key, rows[i / 2].key, rows[i / 2].len);
	}
	for (size_t i = 0; i < 2 * sizeof(none) / sizeof(none[0]); i++)
		assert_int_equal(mcfs_flat_decode(none[i / 2], i % 2, key, sizeof(key)), -ENOENT);
	assert_int_equal(mcfs_flat_encode("a/b", 3, false, name, 5), -ENAMETOOLONG);
	assert_int_equal(mcfs_flat_decode("abc", false, key, 2), -ENAMETOOLONG);
}

/* In the directory that contains .mcfs, the key of that name has another file name. */
static void the_control_name_is_escaped_at_the_top(void **state)
{
	char name[64], key[64];

	assert_int_equal(mcfs_flat_encode(".mcfs", 5, false, name, sizeof(name)), 5);
	assert_string_equal(name, ".mcfs");
	assert_int_equal(mcfs_flat_decode(".mcfs", false, key, sizeof(key)), 5);
	assert_int_equal(mcfs_flat_decode("%2Emcfs", false, key, sizeof(key)), -ENOENT);
	assert_int_equal(mcfs_flat_encode(".mcfs", 5, true, name, sizeof(name)), 7);
	assert_string_equal(name, "%2Emcfs");
	assert_int_equal(mcfs_flat_decode("%2Emcfs", true, key, sizeof(key)), 5);
	assert_memory_equal(key, ".mcfs", 5);
	assert_int_equal(mcfs_flat_decode(".mcfs", true, key, sizeof(key)), -ENOENT);
	assert_int_equal(mcfs_flat_encode(".mcfs2", 6, true, name, sizeof(name)), 6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain_names_stand_for_themselves),
		cmocka_unit_test(odd_components_are_escaped),
		cmocka_unit_test(literal_escapes_are_quoted),
		cmocka_unit_test(every_key_comes_back),
		cmocka_unit_test(every_name_comes_back),
		cmocka_unit_test(sizes_are_checked),
		cmocka_unit_test(directories_end_in_a_slash),
		cmocka_unit_test(a_whole_key_is_one_name),
		cmocka_unit_test(the_control_name_is_escaped_at_the_top),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
