/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "common/options/options_i.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/err.h"

static char got[200000];		/* "key=value;" of each pair */
static const char *refused;		/* key that the callback does not want */

static int on_pair(void *arg, const char *key, const char *value, enum mc_conf_shape shape)
{
	size_t len = strlen(got);

	assert_int_equal(shape == MC_CONF_MAP, value == NULL);
	if (shape == MC_CONF_MAP)
		return 0;

	if (refused && !strcmp(key, refused))
		return mc_fail(-EXDEV, "refused");
	snprintf(got + len, sizeof(got) - len, "%s=%s;", key, value);
	return 0;
}

static int parse(enum mc_conf_format format, const char *text)
{
	size_t len = strlen(text);
	/* The buffer is exactly as long as the text, so that sanitizers detect reads past the
	 * end. */
	char *copy = malloc(len + !len);
	int r;

	assert_non_null(copy);
	memcpy(copy, text, len);
	got[0] = '\0';
	r = mc_conf_parse(copy, len, format, on_pair, NULL);
	free(copy);
	return r;
}

static void expect(enum mc_conf_format format, const char *text, const char *pairs)
{
	int r = parse(format, text);

	if (r)
		fail_msg("%s: %d %s", text, r, mc_err_detail(r));
	assert_string_equal(got, pairs);
}

static void expect_bad(enum mc_conf_format format, const char *text, const char *why)
{
	int r = parse(format, text);

	if (r != -EINVAL || !strstr(mc_err_detail(r), why))
		fail_msg("%s: %d %s", text, r, mc_err_detail(r));
}

static void json(void **state)
{
	expect(MC_CONF_JSON, "{}", "");
	expect(MC_CONF_JSON, "{\"a\": 1, \"b\": true, \"c\": false, \"d\": \"x y\", \"e\": -2.5,"
	       "\"f\": null, \"g\": \"\", \"h\": 9223372036854775807}",
	       "a=1;b=true;c=false;d=x y;e=-2.5;g=;h=9223372036854775807;");
	expect(MC_CONF_JSON, "{\"a\": {\"b\": {\"c\": 1}, \"d\": 2}, \"e\": 3}",
	       "a_b_c=1;a_d=2;e=3;");
	expect(MC_CONF_JSON, "{\"a\": [1, \"b\", true], \"c\": []}", "a=1,b,true;c=;");
}

static void bad_json(void **state)
{
	expect_bad(MC_CONF_JSON, "", "line");
	expect_bad(MC_CONF_JSON, "{", "line 1");
	expect_bad(MC_CONF_JSON, "{\"a\": 1}\n x", "line 2");
	expect_bad(MC_CONF_JSON, "[1]", "not a map");
	expect_bad(MC_CONF_JSON, "{\"a\": 1, \"a\": 2}", "duplicate");
	expect_bad(MC_CONF_JSON, "{\"a\": [[1]]}", "list of \"a\"");
	expect_bad(MC_CONF_JSON, "{\"a\": [{}]}", "list of \"a\"");
	expect_bad(MC_CONF_JSON, "{\"\": 1}", "invalid key");
	expect_bad(MC_CONF_JSON, "{\"a\": \"\\u0000\"}", "line 1");
	expect_bad(MC_CONF_JSON, "{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{}"
		   "}}}}}}}}", "nested too deeply");
}

static void yaml(void **state)
{
	expect(MC_CONF_YAML, "", "");
	expect(MC_CONF_YAML, "# nothing\n---\n", "");
	expect(MC_CONF_YAML, "a: 1\nb: true\n'c': x y # z\nd:\ne: ~\nf: null\ng: ''\nh: 'null'\n"
	       "i: \"x\\ty\"\n", "a=1;b=true;c=x y;g=;h=null;i=x\ty;");
	expect(MC_CONF_YAML, "a:\n  b:\n    c: 1\n  d: 2\ne: 3\n", "a_b_c=1;a_d=2;e=3;");
	expect(MC_CONF_YAML, "a: [1, b]\nc:\n- x\n- y\n", "a=1,b;c=x,y;");
	expect(MC_CONF_YAML, "a: &x 1\nb: *x\n", "a=1;b=1;");
	expect(MC_CONF_YAML, "{a: 1, b: {c: 2}}", "a=1;b_c=2;");
}

static void bad_yaml(void **state)
{
	char deep[200] = "", bomb[4000] = "a0: &a0 [x,x,x,x,x,x,x,x]\n";

	expect_bad(MC_CONF_YAML, "a: [\n", "line 2");
	expect_bad(MC_CONF_YAML, "a: 1\n\tb: 2\n", "line 2");
	expect_bad(MC_CONF_YAML, "- a\n", "not a map");
	expect_bad(MC_CONF_YAML, "just text", "not a map");
	expect_bad(MC_CONF_YAML, "? [a]\n: 1\n", "not plain text");
	expect_bad(MC_CONF_YAML, "a: [[1]]\n", "list of \"a\"");
	expect_bad(MC_CONF_YAML, "a: *nowhere\n", "undefined alias");
	expect_bad(MC_CONF_YAML, "a: \"x\\0y\"\n", "not text");
	expect_bad(MC_CONF_YAML, "\"a\\0b\": 1\n", "invalid key");
	expect_bad(MC_CONF_YAML, "&x a:\n  b: 1\n  c: &y {d: *y}\n", "");
	for (int i = 0; i < 9; i++)
		strcat(deep, "{a: ");
	expect_bad(MC_CONF_YAML, strcat(strcat(deep, "1"), "}}}}}}}}}"), "nested too deeply");
	/* Six levels of nine aliases each describe half a million maps. */
	for (int i = 1; i < 7; i++) {
		size_t len = strlen(bomb);

		len += (size_t)sprintf(bomb + len, "b%d: &b%d {", i, i);
		for (int j = 0; j < 9; j++)
			len += i > 1 ? (size_t)sprintf(bomb + len, "k%d: *b%d, ", j, i - 1) :
				       (size_t)sprintf(bomb + len, "k%d: 1, ", j);
		strcpy(bomb + len, "}\n");
	}
	expect_bad(MC_CONF_YAML, bomb, "more than 20000 values");
}

static void long_keys(void **state)
{
	char text[700];

	memset(text, 'k', sizeof(text));
	strcpy(text + 300, ": 1\n");
	expect_bad(MC_CONF_YAML, text, "too long");
	memset(text, 'k', sizeof(text));
	memcpy(text + 150, ":\n  ", 4);
	strcpy(text + 300, ": 1\n");
	expect_bad(MC_CONF_YAML, text, "too long");
}

static void the_callback_may_refuse(void **state)
{
	refused = "a_c";
	assert_int_equal(parse(MC_CONF_JSON, "{\"a\":{\"b\":1,\"c\":2},\"d\":3}"), -EXDEV);
	assert_string_equal(got, "a_b=1;");
	assert_int_equal(parse(MC_CONF_YAML, "a:\n  b: 1\n  c: [2]\nd: 3\n"), -EXDEV);
	assert_string_equal(got, "a_b=1;");
	refused = NULL;
}

static void read_as(const char *suffix, const char *text, const char *pairs)
{
	char path[64];
	int fd, r;

	snprintf(path, sizeof(path), "/tmp/mc-conf-XXXXXX%s", suffix);
	fd = mkstemps(path, (int)strlen(suffix));
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	got[0] = '\0';
	r = mc_conf_read(path, on_pair, NULL);
	unlink(path);
	if (pairs) {
		assert_int_equal(r, 0);
		assert_string_equal(got, pairs);
	} else {
		assert_int_equal(r, -EINVAL);
		assert_non_null(strstr(mc_err_detail(r), path));
	}
}

static void files_by_name_or_first_byte(void **state)
{
	read_as(".json", "{\"a\": 1}", "a=1;");
	read_as(".yaml", "a: 1\n", "a=1;");
	read_as(".yml", "a: 1\n", "a=1;");
	read_as(".conf", " \n{\"a\": 1}", "a=1;");
	read_as("", "a: 1\n", "a=1;");
	read_as("", "", "");
	read_as(".json", "a: 1\n", NULL);
	read_as(".conf", "{\"a\": ", NULL);
}

static void unreadable_files(void **state)
{
	assert_int_equal(mc_conf_read("/nonexistent.yaml", on_pair, NULL), -ENOENT);
	assert_int_equal(mc_conf_read("/", on_pair, NULL), -EISDIR);
	assert_int_equal(mc_conf_read("/dev/zero", on_pair, NULL), -EFBIG);
	assert_non_null(strstr(mc_err_detail(-EFBIG), "/dev/zero"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(json),
		cmocka_unit_test(bad_json),
		cmocka_unit_test(yaml),
		cmocka_unit_test(bad_yaml),
		cmocka_unit_test(long_keys),
		cmocka_unit_test(the_callback_may_refuse),
		cmocka_unit_test(files_by_name_or_first_byte),
		cmocka_unit_test(unreadable_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
