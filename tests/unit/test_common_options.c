/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "common/options/options.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/cleanup.h"
#include "common/err.h"

#define OPTIONS(OPT) \
	OPT(config_path, STR, "", "MC_TEST_CONFIG", 0, 0, "FILE", "Config file") \
	OPT(rpc_port, INT, "50051", "MC_TEST_PORT", 1, 65535, "PORT", "Port of the RPC service") \
	OPT(enable_gc, BOOL, "true", "MC_TEST_GC", 0, 0, "", "Collect garbage") \
	OPT(note, BOOL, "", "", 0, 0, "", "A name that begins like a negation") \
	OPT(size, SIZE, "1gb", "", 4096, 1e13, "", "Bytes that this node gives to the pool, a " \
	    "help text that is so long that it does not fit on one line of any terminal") \
	OPT(ttl, MS, "5s", "", 0, 3600000, "", "Lease of an object") \
	OPT(grace_sec, SEC, "10", "", 0, 0, "", "Time between silence and removal") \
	OPT(ratio, RATIO, "0.95", "", 0, 1, "", "High watermark") \
	OPT(allocator, STR, "offset", "", 0, 0, "NAME", "allocator of upstream; only offset", COMPAT) \
	OPT(protocol, STR, "tcp", "", 0, 0, "NAME", "Transport\\with 'odd' .text")

#define FIELD(...) MC_OPT_FIELD(__VA_ARGS__)
#define ROW(...) MC_OPT_ROW(struct conf, __VA_ARGS__)

struct conf {
	OPTIONS(FIELD)
};

static const struct mc_opt_row rows[] = { OPTIONS(ROW) { 0 } };
static const struct mc_opt_alias aliases[] = {
	{ "port", "rpc_port" }, { "r", "ratio" }, { "cache", "allocator" }, { 0 },
};
static const struct mc_opt_absent absent[] = {
	{ "enable_cxl", "false", "there is no CXL tier" },
	{ "cxl_size", "8589934592", "there is no CXL tier" },
	{ "keep_files", "true", "there are no files" },
	{ "offload", "false", "there is nothing to offload to" },
	{ 0 },
};

static struct mc_program prog = {
	.name = "prog", .synopsis = "[OPTION]... DIR", .summary = "Test the options",
	.rows = rows, .aliases = aliases, .absent = absent,
};

static struct conf conf;
static struct mc_options *opts;
static char said[65536];		/* on stdout and stderr */
static char path[] = "/tmp/mc-options-XXXXXX.yaml";

#define ARGS_MAX 16

/* Parse the words of @line, separated by blanks; a '_' alone stands for an empty word. */
static int parse(const char *line)
{
	char out[] = "/tmp/mc-options-XXXXXX", *argv[ARGS_MAX + 1] = { (char[]){ "prog" } };
	static char empty[1];
	auto_free char *copy = strdup(line);
	int argc = 1, fd, saved[2], r;
	char *rest = copy, *word;
	ssize_t n;

	mc_options_free(opts);
	opts = NULL;
	memset(&conf, 0x55, sizeof(conf));
	while (*line && (word = strsep(&rest, " ")) && argc < ARGS_MAX)
		argv[argc++] = strcmp(word, "_") ? word : empty;

	fflush(stdout);
	fd = mkstemp(out);
	assert_true(fd >= 0);
	unlink(out);
	for (int i = 0; i < 2; i++) {
		saved[i] = dup(i + 1);
		dup2(fd, i + 1);
	}
	r = mc_options_parse(&prog, argc, argv, &conf, &opts);
	if (r == 0)
		mc_options_report(opts);
	fflush(stdout);
	for (int i = 0; i < 2; i++) {
		dup2(saved[i], i + 1);
		close(saved[i]);
	}
	n = pread(fd, said, sizeof(said) - 1, 0);
	said[n > 0 ? n : 0] = '\0';
	close(fd);
	return r;
}

static void write_config(const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void expect_ok(const char *line)
{
	int r = parse(line);

	if (r)
		fail_msg("\"%s\": %d %s", line, r, mc_err_detail(r));
}

/* Expect failure with @err and a text that contains both parts. */
static void expect_error(const char *line, int err, const char *a, const char *b)
{
	int r = parse(line);

	if (r != err || !strstr(mc_err_detail(r), a) || !strstr(mc_err_detail(r), b))
		fail_msg("\"%s\": %d %s", line, r, mc_err_detail(r));
	assert_null(opts);
	/* No value may point to freed memory. */
	assert_true(!conf.protocol || !memcmp(&conf.protocol, "\x55\x55\x55\x55", 4));
}

static void expect_said(const char *part)
{
	if (!strstr(said, part))
		fail_msg("\"%s\" is not in: %.2000s", part, said);
}

static int clean(void **state)
{
	mc_options_free(opts);
	opts = NULL;
	unlink(path);
	unsetenv("MC_TEST_CONFIG");
	unsetenv("MC_TEST_PORT");
	unsetenv("MC_TEST_GC");
	prog.synopsis = "[OPTION]... DIR";
	prog.details = NULL;
	prog.strict = false;
	return 0;
}

static void defaults(void **state)
{
	expect_ok("");
	assert_string_equal(said, "");
	assert_string_equal(conf.config_path, "");
	assert_int_equal(conf.rpc_port, 50051);
	assert_true(conf.enable_gc);
	assert_false(conf.note);
	assert_int_equal(conf.size, 1ull << 30);
	assert_int_equal(conf.ttl, 5000);
	assert_int_equal(conf.grace_sec, 10000);
	assert_true(conf.ratio == 0.95);
	assert_string_equal(conf.protocol, "tcp");
	assert_int_equal(mc_options_argc(opts), 0);
	assert_int_equal(mc_options_origin(opts, "ttl"), MC_ORIGIN_DEFAULT);
}

static void spellings_of_a_value(void **state)
{
	static const char *const lines[] = {
		"--rpc_port=7", "--rpc-port=7", "-rpc_port=7", "-rpc-port=7", "--rpc_port 7",
		"-rpc-port 7", "--port=7", "-port 7", "-o rpc_port=7", "-orpc-port=7",
		"--o=rpc_port=7", "-o ttl=1s,port=7,noenable_gc", "--rpc_port=8 --rpc_port=7",
		"-o _netdev,rpc_port=7,x-systemd.automount,defaults,nofail", "--port 7 --",
		"-o ,,rpc_port=7,,",
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		expect_ok(lines[i]);
		assert_int_equal(conf.rpc_port, 7);
		assert_int_equal(mc_options_origin(opts, "rpc-port"), MC_ORIGIN_ARG);
		assert_int_equal(mc_options_argc(opts), 0);
		assert_string_equal(said, "");
	}
}

static void spellings_of_a_switch(void **state)
{
	static const struct {
		const char *line;
		bool on;
		int args;
	} lines_of_switch[] = {
		{ "--noenable_gc", false, 0 }, { "--no-enable-gc", false, 0 },
		{ "--no_enable_gc", false, 0 }, { "-noenable-gc", false, 0 },
		{ "--enable_gc=false", false, 0 }, { "--enable_gc=no", false, 0 },
		{ "--enable_gc false", false, 0 }, { "--enable_gc 0", false, 0 },
		{ "-o noenable_gc", false, 0 }, { "-o enable_gc=0", false, 0 },
		{ "--noenable_gc --enable_gc", true, 0 }, { "--enable_gc true", true, 0 },
		{ "--enable_gc 1", true, 0 }, { "--enable_gc=ON", true, 0 },
		{ "-o enable_gc", true, 0 },
		/* Other words are arguments, also after a switch. */
		{ "--enable_gc no", true, 1 }, { "--noenable_gc true", false, 1 },
	};

	for (size_t i = 0; i < sizeof(lines_of_switch) / sizeof(lines_of_switch[0]); i++) {
		expect_ok(lines_of_switch[i].line);
		assert_int_equal(conf.enable_gc, lines_of_switch[i].on);
		assert_int_equal(mc_options_argc(opts), lines_of_switch[i].args);
	}
	/* "note" is a name of its own, not the negation of "te". */
	expect_ok("--note");
	assert_true(conf.note);
	expect_ok("--note --nonote");
	assert_false(conf.note);
}

static void arguments_stay_in_order(void **state)
{
	expect_ok("a --port 7 b - --enable_gc c -- --port d --");
	assert_int_equal(mc_options_argc(opts), 7);
	assert_string_equal(mc_options_argv(opts, 0), "a");
	assert_string_equal(mc_options_argv(opts, 1), "b");
	assert_string_equal(mc_options_argv(opts, 2), "-");
	assert_string_equal(mc_options_argv(opts, 3), "c");
	assert_string_equal(mc_options_argv(opts, 4), "--port");
	assert_string_equal(mc_options_argv(opts, 6), "--");
	assert_null(mc_options_argv(opts, 7));
	assert_null(mc_options_argv(opts, -1));
}

static void strings_are_taken_as_they_are(void **state)
{
	expect_ok("-r 0.5");
	assert_true(conf.ratio == 0.5);
	expect_ok("--protocol=a=b,c");
	assert_string_equal(conf.protocol, "a=b,c");
	expect_ok("--protocol _");
	assert_string_equal(conf.protocol, "");
	expect_ok("--protocol=");
	assert_string_equal(conf.protocol, "");
	expect_ok("--protocol --enable_gc");
	assert_string_equal(conf.protocol, "--enable_gc");
	expect_ok("-o protocol=a\\,b\\\\c,port=7");
	assert_string_equal(conf.protocol, "a,b\\c");
	assert_int_equal(conf.rpc_port, 7);
}

static void bad_values_say_what_is_wrong(void **state)
{
	expect_error("--rpc_port=x", -EINVAL, "--rpc_port: \"x\"", "whole number");
	expect_error("--rpc_port=", -EINVAL, "--rpc_port", "whole number");
	expect_error("--rpc_port=1.5", -EINVAL, "1.5", "whole number");
	expect_error("--rpc_port=99999999999999999999", -EINVAL, "--rpc_port", "whole number");
	expect_error("--port 70000", -ERANGE, "--rpc_port: \"70000\"", "1 to 65535");
	expect_error("--port 0", -ERANGE, "\"0\"", "1 to 65535");
	expect_error("--rpc_port", -EINVAL, "needs a value", "--rpc_port=PORT");
	expect_error("-o rpc_port", -EINVAL, "needs a value", "-o rpc_port=PORT");
	expect_error("-o", -EINVAL, "-o", "needs a value");
	expect_error("--enable_gc=maybe", -EINVAL, "\"maybe\"", "true or false");
	expect_error("--noenable_gc=1", -EINVAL, "--noenable_gc", "takes no value");
	expect_error("--size=4x", -EINVAL, "\"4x\" is not a size", "512MiB");
	expect_error("--size=1k", -ERANGE, "out of range", "4 KiB to ");
	expect_error("--ttl=5y", -EINVAL, "\"5y\" is not a duration", "500ms");
	expect_error("--ttl=2h", -ERANGE, "out of range", "3600000 ms");
	expect_error("--ratio=1.01", -ERANGE, "out of range", "0 to 1");
	expect_error("--ratio=nan", -EINVAL, "\"nan\"", "not a number");
	expect_error("--ratio=0x1", -EINVAL, "\"0x1\"", "not a number");
}

static void unknown_options_are_refused(void **state)
{
	expect_error("--rpc_prot=1 --port 7", -EINVAL, "--rpc_prot is unknown; did you mean --rpc_port?", "");
	expect_error("--wholly-different", -EINVAL, "--wholly-different is unknown; --help lists the options", "");
	expect_error("-o ration=1", -EINVAL, "-o ration is unknown; did you mean -o ratio?", "");
	expect_error("-o port=7,ro", -EINVAL, "-o ro is unknown", "");
	/* Two swapped neighbours are one typing mistake: a word with two wrong letters of five
	 * would get no suggestion. */
	expect_error("--tlt=1", -EINVAL, "did you mean --ttl?", "");
	/* Options that every program has are suggested as flags, not as items of the list. */
	expect_error("--versin", -EINVAL, "--versin is unknown; did you mean --version?", "");
	expect_error("--hlep=man", -EINVAL, "--hlep is unknown; did you mean --help?", "");
	expect_error("-o versin", -EINVAL, "-o versin is unknown; --help lists the options", "");
	/* A warning is not lost when an error follows. */
	expect_error("--logbufsecs=1 --rpc_prot=1", -EINVAL, "--rpc_prot is unknown", "");
	expect_said("prog: warning: --logbufsecs has no effect: ");
}

static void flags_of_glog_are_named_and_ignored(void **state)
{
	expect_ok("--alsologtostderr --stderrthreshold 1 --port 7 -vmodule=a=1");
	expect_said("--alsologtostderr has no effect: ");
	expect_said("--stderrthreshold has no effect: ");
	expect_said("--vmodule has no effect: ");
	assert_int_equal(conf.rpc_port, 7);
	assert_int_equal(mc_options_argc(opts), 0);
	/* glog's own defaults, and the last option is one that the program has */
	expect_ok("--noalsologtostderr --stderrthreshold=2 --log_prefix --ratio=1");
	assert_string_equal(said, "");
}

static void fromenv_takes_flags_from_the_environment(void **state)
{
	char line[100];

	setenv("FLAGS_rpc_port", "7", 1);
	setenv("FLAGS_enable_gc", "false", 1);
	expect_ok("--fromenv=rpc_port,enable-gc --tryfromenv=ttl,,grace_sec");
	assert_int_equal(conf.rpc_port, 7);
	assert_false(conf.enable_gc);
	assert_int_equal(conf.ttl, 5000);
	/* The later one wins, as with every flag. */
	expect_ok("--fromenv rpc_port --port=8");
	assert_int_equal(conf.rpc_port, 8);
	expect_ok("--port=8 --tryfromenv rpc_port");
	assert_int_equal(conf.rpc_port, 7);
	expect_error("--fromenv=rpc_port,ttl", -EINVAL, "--fromenv=ttl", "FLAGS_ttl is not set");
	expect_error("--fromenv=fromenv", -EINVAL, "--fromenv cannot be in the environment", "");
	expect_error("--fromenv", -EINVAL, "--fromenv needs a value", "");
	setenv("FLAGS_rpc_prot", "7", 1);
	expect_error("--fromenv=rpc_prot", -EINVAL, "--rpc_prot is unknown", "--rpc_port");
	setenv("FLAGS_rpc_port", "many", 1);
	expect_error("--fromenv=rpc_port", -EINVAL, "--rpc_port", "\"many\"");
	/* in a flag file, and a flag file from the environment */
	setenv("FLAGS_rpc_port", "9", 1);
	setenv("FLAGS_flagfile", path, 1);
	write_config("--tryfromenv=rpc_port,absent\n");
	snprintf(line, sizeof(line), "--flagfile=%s", path);
	expect_ok(line);
	assert_int_equal(conf.rpc_port, 9);
	expect_ok("--fromenv=flagfile");
	assert_int_equal(conf.rpc_port, 9);
	write_config("--tryfromenv=flagfile\n");
	expect_error("--fromenv=flagfile", -ELOOP, "include each other", "");
	unsetenv("FLAGS_rpc_port");
	unsetenv("FLAGS_enable_gc");
	unsetenv("FLAGS_rpc_prot");
	unsetenv("FLAGS_flagfile");
}

static void undefok_allows_unknown_flags(void **state)
{
	char line[100];

	expect_ok("--undefok=alien,-,foreign --alien=1 --noforeign --port=7");
	expect_said("--alien is ignored, as --undefok says: --alien is unknown");
	expect_said("--noforeign is ignored, as --undefok says: ");
	assert_int_equal(conf.rpc_port, 7);
	/* behind the flag too, and for an option that this version lacks */
	expect_ok("--alien --enable_cxl --undefok alien,enable-cxl");
	expect_said("--enable_cxl is ignored, as --undefok says: ");
	/* It allows no wrong value of a known one, and no other name. */
	expect_error("--undefok=port,alien --port=many", -EINVAL, "--rpc_port", "\"many\"");
	expect_error("--undefok=alien --alien2 --rpc_prot=1", -EINVAL, "--alien2 is unknown", "");
	expect_error("--undefok=alien --enable_cxl", -MC_ENOTSUP, "--enable_cxl", "no CXL tier");
	expect_error("--undefok", -EINVAL, "--undefok needs a value", "");
	write_config("--alien=2\n");
	snprintf(line, sizeof(line), "--flagfile=%s", path);
	expect_error(line, -EINVAL, path, "--alien is unknown");
	strcat(line, " --undefok=alien");
	expect_ok(line);
	expect_said("--alien is ignored");
}

static void strict_programs_know_only_their_own(void **state)
{
	prog.strict = true;
	expect_error("--rpc_prot=1", -EINVAL, "--rpc_prot is unknown", "did you mean --rpc_port?");
	expect_error("--wholly-different", -EINVAL, "--wholly-different is unknown", "--help");
	expect_error("-o ro", -EINVAL, "-o ro is unknown", "");
	expect_error("--enable_cxl", -MC_ENOTSUP, "--enable_cxl", "there is no CXL tier");
	expect_error("--alsologtostderr", -EINVAL, "--alsologtostderr is unknown", "");
	expect_error("--undefok=alien --alien", -EINVAL, "--undefok is unknown", "");
	expect_error("--fromenv=port", -EINVAL, "--fromenv is unknown", "");
	expect_ok("--port=7 -o nofail --noenable_cxl");
	/* "rm --dry_run 0" must not remove. */
	expect_ok("--enable_gc 0 1 --noenable_gc false");
	assert_int_equal(mc_options_argc(opts), 3);
	assert_false(conf.enable_gc);
	expect_ok("--noenable_gc --enable_gc 0");
	assert_true(conf.enable_gc);
	assert_string_equal(mc_options_argv(opts, 0), "0");
}

static void absent_options_are_refused_with_the_reason(void **state)
{
	expect_error("--enable_cxl", -MC_ENOTSUP, "--enable_cxl", "there is no CXL tier");
	expect_error("--enable-cxl=true", -MC_ENOTSUP, "not built into this version", "no CXL tier");
	expect_error("--enable_cxl 5", -MC_ENOTSUP, "not built into this version", "no CXL tier");
	expect_error("-o enable_cxl", -MC_ENOTSUP, "-o enable_cxl", "no CXL tier");
	/* no list that begins with "ffload" */
	expect_error("-offload=true", -MC_ENOTSUP, "--offload", "nothing to offload to");
	expect_ok("--noenable_cxl --enable_cxl=false --enable_cxl false");
	assert_string_equal(said, "");
	assert_int_equal(mc_options_argc(opts), 0);
	write_config("enable_cxl: true\n");
	setenv("MC_TEST_CONFIG", path, 1);
	expect_error("", -MC_ENOTSUP, path, "no CXL tier");
	write_config("enable_cxl: false\n");
	expect_ok("");
	/* The default value is accepted although the feature is missing. */
	expect_error("--cxl_size=4096", -MC_ENOTSUP, "--cxl_size", "no CXL tier");
	expect_error("--cxl_size 4096", -MC_ENOTSUP, "--cxl_size", "no CXL tier");
	expect_error("--keep_files=7", -MC_ENOTSUP, "--keep_files", "no files");
	expect_ok("--cxl_size=8589934592 --cxl_size 8589934592 --keep_files=true --nokeep_files");
	write_config("cxl_size: 8589934592\nkeep_files: true\n");
	expect_ok("");
	write_config("cxl_size: 1\n");
	expect_error("", -MC_ENOTSUP, "cxl_size", "no CXL tier");
}

static void the_nearer_source_wins(void **state)
{
	char line[100];

	write_config("rpc_port: 1\nttl: 1s\nenable-gc: false\n");
	snprintf(line, sizeof(line), "--config_path=%s", path);
	expect_ok(line);
	assert_int_equal(conf.rpc_port, 1);
	assert_int_equal(conf.ttl, 1000);
	assert_false(conf.enable_gc);
	assert_int_equal(mc_options_origin(opts, "rpc_port"), MC_ORIGIN_FILE);
	assert_int_equal(mc_options_origin(opts, "config_path"), MC_ORIGIN_ARG);
	assert_int_equal(mc_options_origin(opts, "size"), MC_ORIGIN_DEFAULT);

	setenv("MC_TEST_PORT", "2", 1);
	setenv("MC_TEST_GC", "", 1);
	expect_ok(line);
	assert_int_equal(conf.rpc_port, 2);
	assert_false(conf.enable_gc);
	assert_int_equal(mc_options_origin(opts, "rpc_port"), MC_ORIGIN_ENV);

	strcat(line, " --port=3");
	expect_ok(line);
	assert_int_equal(conf.rpc_port, 3);

	setenv("MC_TEST_CONFIG", path, 1);
	expect_ok("");
	assert_int_equal(conf.ttl, 1000);
	assert_int_equal(mc_options_origin(opts, "config_path"), MC_ORIGIN_ENV);
}

static void other_sources_name_themselves_in_errors(void **state)
{
	setenv("MC_TEST_PORT", "many", 1);
	/* Also when the command line has priority: a wrong value is always reported. */
	expect_error("--port 7", -EINVAL, "environment variable MC_TEST_PORT", "\"many\"");
	unsetenv("MC_TEST_PORT");
	setenv("MC_TEST_CONFIG", path, 1);
	write_config("rpc_port: 0\n");
	expect_error("", -ERANGE, path, "rpc_port: \"0\" is out of range");
	write_config("rpc_port: 7\nport: 7\n");
	expect_error("", -EINVAL, path, "rpc_port is set twice");
	write_config("rpc_port: [\n");
	expect_error("", -EINVAL, path, "line 2");
	write_config("rpc_prot: 7\n");
	expect_ok("");
	expect_said("config key rpc_prot is unknown and ignored; did you mean rpc_port?");
	expect_error("--config_path=/nonexistent", -ENOENT, "cannot read config file /nonexistent",
		     "no such file");
}

static void flagfiles(void **state)
{
	char line[100];

	write_config("# comment\n\n  --rpc_port=7  \n--noenable_gc\n");
	snprintf(line, sizeof(line), "--flagfile=%s", path);
	expect_ok(line);
	assert_int_equal(conf.rpc_port, 7);
	assert_false(conf.enable_gc);
	write_config("rpc_port=7\n");
	expect_error(line, -EINVAL, path, "write --NAME=VALUE");
	write_config("--rpc_port\n");
	expect_error(line, -EINVAL, path, "needs a value");
	snprintf(said, sizeof(said), "--flagfile=%s\n", path);
	write_config(said);
	expect_error(line, -ELOOP, path, "include each other");
	expect_error("--flagfile=/nonexistent", -ENOENT, "/nonexistent", "cannot read");
}

static void help(void **state)
{
	size_t longest = 0;
	char *line, *rest;

	assert_int_equal(parse("--help"), 1);
	expect_said("Usage: prog [OPTION]... DIR\nTest the options.\n");
	expect_said("  --rpc_port=PORT ");
	expect_said("Port of the RPC service; also --port [default 50051,\n"
		    "                                MC_TEST_PORT]\n");
	expect_said("High watermark; also -r [default 0.95]");
	expect_said("  --enable_gc ");
	expect_said("  --size=SIZE ");
	expect_said("[no default, MC_TEST_CONFIG]");
	rest = said;
	while ((line = strsep(&rest, "\n")))
		longest = strlen(line) > longest ? strlen(line) : longest;
	assert_true(longest > 80 && longest <= 100);
	assert_null(opts);
	prog.details = "Commands:\n  ls  list keys\n";
	assert_int_equal(parse("-h"), 1);
	expect_said("Test the options.\n\nCommands:\n  ls  list keys\n\nOptions,");
	/* --help works even if a wrong option follows it. */
	assert_int_equal(parse("--help --rpc_port"), 1);
}

static void manual(void **state)
{
	assert_int_equal(parse("--help=man"), 1);
	assert_int_equal(strncmp(said, ".SH OPTIONS\n.TP\n", 16), 0);
	expect_said(".TP\n\\fB\\-\\-rpc_port\\fR=\\fIPORT\\fR, \\fB\\-\\-port\\fR\n"
		    "Port of the RPC service.\nDefault: \\fB50051\\fR.\n"
		    "Environment: \\fBMC_TEST_PORT\\fR.\n");
	expect_said("Transport\\ewith 'odd' .text.\n");
	expect_said("\\fB\\-\\-version\\fR\n");
	expect_said(".TP\n\\fB\\-\\-enable_cxl\\fR\nthere is no CXL tier.\n");
}

/* They are options like others, but help and manual list them behind those that do something. */
static void options_for_compatibility_have_a_section(void **state)
{
	const char *section;

	assert_int_equal(parse("--help"), 1);
	section = strstr(said, "\nAccepted for compatibility:\n"
			 "  --allocator=NAME              allocator of upstream; only offset; also --cache\n");
	assert_non_null(section);
	assert_null(strstr(section + 1, "[default"));
	assert_true(strstr(said, "--allocator") > section);
	assert_int_equal(parse("--help=man"), 1);
	section = strstr(said, ".SS Accepted for compatibility\n.TP\n\\fB\\-\\-allocator\\fR=\\fINAME\\fR, "
			 "\\fB\\-\\-cache\\fR\nallocator of upstream; only offset.\n.SH OPTIONS OF UPSTREAM");
	assert_non_null(section);
	assert_true(strstr(said, "\\-allocator") > section);
	expect_ok("--cache=offset");
	assert_string_equal(conf.allocator, "offset");
	assert_int_equal(mc_options_origin(opts, "allocator"), MC_ORIGIN_ARG);
}

static void version(void **state)
{
	assert_int_equal(parse("--version"), 1);
	assert_string_equal(said, "prog (" PACKAGE_NAME ") " PACKAGE_VERSION "\n");
}

static void print_config(void **state)
{
	write_config("ttl: 90000\nprotocol: \"a b\"\n");
	setenv("MC_TEST_GC", "no", 1);
	snprintf(said, sizeof(said), "--print_config --config_path=%s --size=1.5m --port=7", path);
	assert_int_equal(parse(strdupa(said)), 1);
	expect_said("enable_gc = false  # environment MC_TEST_GC\n");
	expect_said("grace_sec = 10s  # default\n");
	expect_said("note = false  # default\n");
	expect_said("protocol = \"a b\"  # file /tmp/");
	expect_said("ratio = 0.95  # default\n");
	expect_said("rpc_port = 7  # command line\n");
	expect_said("size = 1536KiB  # command line\n");
	expect_said("ttl = 90s  # file /tmp/");
	/* Sorted. */
	assert_true(strstr(said, "enable_gc") < strstr(said, "note ="));
	assert_true(strstr(said, "note =") < strstr(said, "rpc_port ="));
	assert_null(conf.protocol);
}

#define CASE(f) cmocka_unit_test_teardown(f, clean)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(defaults),
		CASE(spellings_of_a_value),
		CASE(spellings_of_a_switch),
		CASE(arguments_stay_in_order),
		CASE(strings_are_taken_as_they_are),
		CASE(bad_values_say_what_is_wrong),
		CASE(unknown_options_are_refused),
		CASE(flags_of_glog_are_named_and_ignored),
		CASE(strict_programs_know_only_their_own),
		CASE(absent_options_are_refused_with_the_reason),
		CASE(fromenv_takes_flags_from_the_environment),
		CASE(undefok_allows_unknown_flags),
		CASE(the_nearer_source_wins),
		CASE(other_sources_name_themselves_in_errors),
		CASE(flagfiles),
		CASE(help),
		CASE(manual),
		CASE(options_for_compatibility_have_a_section),
		CASE(version),
		CASE(print_config),
	};
	int fd = mkstemps(path, 5);

	if (fd < 0)
		return 2;
	close(fd);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
