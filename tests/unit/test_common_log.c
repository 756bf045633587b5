/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "common/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/sys/clock.h"
#include "common/err.h"

/* 2026-11-21 08:30:00.123456 */
#define T0 1795249800123456000ull

static char dir[64];
static char text[65536];

static void fill_path(char *path, size_t len, const char *name)
{
	snprintf(path, len, "%s/%s", dir, name);
}

static const char *read_log(void)
{
	char path[128];
	size_t n;
	FILE *f;

	fill_path(path, sizeof(path), "test.INFO");
	f = fopen(path, "r");
	assert_non_null(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = '\0';
	fclose(f);
	return text;
}

static int count(const char *in, const char *what)
{
	int n = 0;

	for (; (in = strstr(in, what)); in++)
		n++;
	return n;
}

static int files(void)
{
	DIR *d = opendir(dir);
	struct dirent *de;
	int n = 0;

	assert_non_null(d);
	while ((de = readdir(d)))
		n += strstr(de->d_name, ".log") != NULL;
	closedir(d);
	return n;
}

static void open_log(const char *levels, uint64_t max_size, unsigned max_files)
{
	struct mc_log_conf conf = {
		.program = "test", .dir = dir, .levels = levels, .max_file_size = max_size,
		.max_files = max_files,
	};

	assert_int_equal(mc_log_open(&conf), 0);
}

static int make_dir(void **state)
{
	static uint64_t now = T0;

	strcpy(dir, "/tmp/mc-log-XXXXXX");
	/* The clock is never moved back: each log statement remembers the time of its last line. */
	mc_clock_fake(now);
	now += 1000 * MC_NS_PER_SEC;
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	struct dirent *de;
	char path[400];
	DIR *d;

	mc_log_close();
	mc_clock_real();
	d = opendir(dir);
	while ((de = readdir(d)))
		if (strcmp(de->d_name, ".") && strcmp(de->d_name, "..")) {
			fill_path(path, sizeof(path), de->d_name);
			unlink(path);
		}
	closedir(d);
	return rmdir(dir);
}

static void a_line(void **state)
{
	open_log("info", 0, 0);
	mc_warn("segment", "owner is silent, keeping its objects segment=%s silent_ms=%d", "a", 9);
	assert_string_equal(read_log(), "2026-11-21T08:30:00.123456Z warn segment: "
			    "owner is silent, keeping its objects segment=a silent_ms=9\n");
}

static void errno_is_kept_and_shown(void **state)
{
	open_log("info", 0, 0);
	errno = ENOSPC;
	mc_err("disk", "cannot write: %m");
	assert_int_equal(errno, ENOSPC);
	assert_non_null(strstr(read_log(), "err disk: cannot write: No space left on device\n"));
}

static void speak(const char *component, int i)
{
	mc_info(component, "line %d", i);
}

static void one_line_a_second_per_place(void **state)
{
	open_log("info", 0, 0);
	for (int i = 0; i < 10; i++)
		speak("a", i);
	/* Another log statement is not limited. */
	mc_info("a", "elsewhere");
	mc_clock_advance(MC_NS_PER_SEC - 1);
	speak("a", 10);
	mc_clock_advance(1);
	speak("a", 11);
	mc_clock_advance(MC_NS_PER_SEC);
	speak("a", 12);
	read_log();
	assert_int_equal(count(text, "\n"), 4);
	assert_non_null(strstr(text, "info a: line 0\n"));
	assert_non_null(strstr(text, "info a: elsewhere\n"));
	assert_non_null(strstr(text, "info a: line 11 suppressed=10\n"));
	assert_non_null(strstr(text, "info a: line 12\n"));
}

static void levels_by_component(void **state)
{
	open_log("warn,engine=trace,engine.tcp=err,a=debug", 0, 0);
	assert_true(mc_log_on("x", MC_LOG_WARN));
	assert_false(mc_log_on("x", MC_LOG_INFO));
	assert_true(mc_log_on("engine", MC_LOG_TRACE));
	assert_true(mc_log_on("engine.rdma", MC_LOG_TRACE));
	assert_false(mc_log_on("engines", MC_LOG_INFO));
	assert_true(mc_log_on("engine.tcp", MC_LOG_ERR));
	assert_false(mc_log_on("engine.tcp", MC_LOG_WARN));
	assert_true(mc_log_on("a", MC_LOG_DEBUG));
	assert_false(mc_log_on("a", MC_LOG_TRACE));
	mc_debug("x", "unheard");
	mc_debug("a", "heard");
	assert_int_equal(count(read_log(), "\n"), 1);

	open_log(NULL, 0, 0);
	assert_true(mc_log_on("x", MC_LOG_INFO));
	assert_false(mc_log_on("engine", MC_LOG_DEBUG));
}

static void level_names(void **state)
{
	assert_int_equal(mc_log_parse_level("err"), MC_LOG_ERR);
	assert_int_equal(mc_log_parse_level("ERROR"), MC_LOG_ERR);
	assert_int_equal(mc_log_parse_level("Warning"), MC_LOG_WARN);
	assert_int_equal(mc_log_parse_level("INFO"), MC_LOG_INFO);
	assert_int_equal(mc_log_parse_level("debug"), MC_LOG_DEBUG);
	assert_int_equal(mc_log_parse_level("TRACE"), MC_LOG_TRACE);
	assert_true(mc_log_parse_level("loud") < 0);
	assert_true(mc_log_parse_level("") < 0);
}

static void a_bad_conf_changes_nothing(void **state)
{
	static const char *const bad[] = {
		"loud", "info,", "info,=debug", "info,a=", "info,a=loud",
		"info,a-component-with-a-long-name=info",
	};
	struct mc_log_conf conf = { .program = "test", .dir = dir };

	open_log("info", 0, 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		conf.levels = bad[i];
		assert_int_equal(mc_log_open(&conf), -EINVAL);
	}
	conf.levels = "trace";
	conf.dir = "/nonexistent/log";
	assert_int_equal(mc_log_open(&conf), -ENOENT);
	assert_non_null(strstr(mc_err_detail(-ENOENT), "/nonexistent/log"));
	assert_false(mc_log_on("x", MC_LOG_DEBUG));
	mc_info("x", "still here");
	assert_non_null(strstr(read_log(), "still here"));
	assert_int_equal(files(), 1);
}

static void messages_cannot_forge_lines(void **state)
{
	char longer[5000];

	open_log("info", 0, 0);
	mc_info("x", "key=%s", "a\n2026-11-21T08:30:00.1Z err x: fire\033[2J\x7f");
	memset(longer, 'y', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	mc_info("x", "%s", longer);
	read_log();
	assert_int_equal(count(text, "\n"), 2);
	assert_non_null(strstr(text, "key=a?2026"));
	assert_null(strchr(text, '\033'));
	assert_null(strchr(text, '\x7f'));
	assert_true(strlen(text) > 2000 && strlen(text) < 2500);
}

static void write_lines(int n)
{
	for (int i = 0; i < n; i++) {
		mc_clock_advance(MC_NS_PER_SEC);
		mc_info("x", "a line of some length number=%d", i);
	}
}

static void files_rotate_and_old_ones_go(void **state)
{
	char path[200];
	FILE *f;

	/* Not a file of this log: must stay. */
	fill_path(path, sizeof(path), "test.INFO.old.log");
	f = fopen(path, "w");
	assert_non_null(f);
	fclose(f);

	open_log("info", 200, 3);
	write_lines(2);
	assert_int_equal(files(), 1 + 1);
	write_lines(18);
	/* The current file, three rotated ones, and the other one. */
	assert_int_equal(files(), 4 + 1);
	assert_int_equal(access(path, F_OK), 0);
	/* The link points to the newest file. */
	assert_non_null(strstr(read_log(), "number=17\n"));
	assert_true(strlen(text) <= 200);
}

static void all_lines_survive_rotation(void **state)
{
	struct dirent *de;
	char path[400];
	int lines = 0;
	DIR *d;

	open_log("info", 200, 0);
	write_lines(30);
	d = opendir(dir);
	while ((de = readdir(d))) {
		FILE *f;
		int c;

		if (!strstr(de->d_name, ".log"))
			continue;
		fill_path(path, sizeof(path), de->d_name);
		f = fopen(path, "r");
		while ((c = getc(f)) != EOF)
			lines += c == '\n';
		fclose(f);
	}
	closedir(d);
	assert_int_equal(lines, 30);
}

/* Another process of the same name writes to its own file in the same directory. */
static void a_file_in_use_is_not_removed(void **state)
{
	char path[200];
	int fd;

	fill_path(path, sizeof(path), "test.INFO.20200101-000000.000000-1.log");
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(flock(fd, LOCK_SH), 0);
	open_log("info", 200, 1);
	write_lines(10);
	assert_int_equal(access(path, F_OK), 0);
	close(fd);
	write_lines(4);
	assert_int_equal(access(path, F_OK), -1);
}

static void *shout(void *arg)
{
	for (int i = 0; i < 2000; i++)
		speak("t", i);
	return NULL;
}

static void threads_share_it(void **state)
{
	char *line, *rest = text;
	regex_t re;
	pthread_t t[4];
	int n = 0;

	mc_clock_real();
	open_log("trace,t=trace", 4000, 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, shout, NULL), 0);
	for (int i = 0; i < 20; i++)
		open_log(i & 1 ? "info" : "trace,t=debug", 1 << 20, 0);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	mc_err("x", "last");
	assert_int_equal(regcomp(&re, "^[0-9-]{10}T[0-9:]{8}\\.[0-9]{6}Z (info t: line [0-9]+"
				 "( suppressed=[0-9]+)?|err x: last)$", REG_EXTENDED), 0);
	read_log();
	while ((line = strsep(&rest, "\n"))) {
		if (!*line)
			continue;
		assert_int_equal(regexec(&re, line, 0, NULL, 0), 0);
		n++;
	}
	assert_true(n >= 1);
	regfree(&re);
}

/* Without a directory, and before the log is open, lines are written to stderr. */
static void standard_error(void **state)
{
	struct mc_log_conf conf = { .program = "test", .levels = "info" };
	int saved = dup(STDERR_FILENO), fd;
	char path[200];

	fill_path(path, sizeof(path), "test.INFO");
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0 && saved >= 0);
	dup2(fd, STDERR_FILENO);
	mc_log_close();
	mc_warn("x", "before");
	mc_info("x", "unheard");
	assert_int_equal(mc_log_open(&conf), 0);
	mc_info("x", "after");
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(fd);
	read_log();
	assert_int_equal(count(text, "\n"), 2);
	assert_non_null(strstr(text, "warn x: before\n"));
	assert_non_null(strstr(text, "info x: after\n"));
}

/* Lines of the log on stderr while @fn runs. */
static void read_stderr(void (*fn)(void), char *ret, size_t size)
{
	char out[] = "/tmp/mc-log-XXXXXX";
	int fd = mkstemp(out), saved = dup(STDERR_FILENO);
	ssize_t n;

	assert_true(fd >= 0 && saved >= 0);
	unlink(out);
	fflush(stderr);
	dup2(fd, STDERR_FILENO);
	fn();
	fflush(stderr);
	dup2(saved, STDERR_FILENO);
	close(saved);
	n = pread(fd, ret, size - 1, 0);
	ret[n > 0 ? n : 0] = '\0';
	close(fd);
}

static void write_each_level(void)
{
	mc_err("test", "an err");
	mc_warn("test", "a warn");
	mc_info("test", "an info");
	mc_debug("test", "a debug");
	mc_log_fatal("prog", "test", "a fatal");
}

static void severe_lines_are_on_stderr_too(void **state)
{
	static const struct {
		bool also;
		int64_t threshold;
		const char *levels;	/* of the lines on stderr */
	} rows[] = {
		{ false, 2, "an err" }, { false, 1, "a warn" }, { false, 0, "a debug" }, { false, -1, "a debug" },
		{ false, 3, "" }, { false, 100, "" }, { true, 3, "a debug" }, { true, 2, "a debug" },
	};
	static const char *const texts[] = { "an err", "a warn", "an info", "a debug" };
	char said[4096];
	uint64_t now = mc_now_ns();

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct mc_log_conf conf = {
			.program = "test", .dir = dir, .levels = mc_log_levels(0, 1, ""),
			.to_stderr = mc_log_to_stderr(rows[i].also, rows[i].threshold),
		};
		bool wanted = *rows[i].levels;
		const char *fatal;

		now += 2 * MC_NS_PER_SEC;
		mc_clock_fake(now);
		assert_int_equal(mc_log_open(&conf), 0);
		read_stderr(write_each_level, said, sizeof(said));
		for (size_t k = 0; k < 4; k++) {
			if (!strstr(said, texts[k]) == wanted)
				fail_msg("row %zu: %s: %s", i, texts[k], said);
			if (!strcmp(rows[i].levels, texts[k]))
				wanted = false;
		}
		/* The reason of the end is there once, whatever the threshold. */
		fatal = strstr(said, "prog: a fatal\n");
		assert_non_null(fatal);
		assert_null(strstr(fatal + 8, "a fatal"));
	}
}

static void flags_of_glog_are_levels(void **state)
{
	assert_string_equal(mc_log_levels(0, 0, ""), "info");
	assert_string_equal(mc_log_levels(-5, 0, ""), "info");
	assert_string_equal(mc_log_levels(1, 0, ""), "warn");
	assert_string_equal(mc_log_levels(2, 0, ""), "err");
	assert_string_equal(mc_log_levels(4, 0, ""), "err");
	assert_string_equal(mc_log_levels(1, 1, ""), "debug");
	assert_string_equal(mc_log_levels(0, 11, ""), "trace");
	assert_string_equal(mc_log_levels(0, -1, ""), "info");
	assert_string_equal(mc_log_levels(3, 2, "warn,a=debug"), "warn,a=debug");
}

#define LOGGED(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LOGGED(a_line),
		LOGGED(errno_is_kept_and_shown),
		LOGGED(one_line_a_second_per_place),
		LOGGED(levels_by_component),
		LOGGED(level_names),
		LOGGED(a_bad_conf_changes_nothing),
		LOGGED(messages_cannot_forge_lines),
		LOGGED(files_rotate_and_old_ones_go),
		LOGGED(all_lines_survive_rotation),
		LOGGED(a_file_in_use_is_not_removed),
		LOGGED(threads_share_it),
		LOGGED(standard_error),
		LOGGED(severe_lines_are_on_stderr_too),
		LOGGED(flags_of_glog_are_levels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
