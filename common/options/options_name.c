/* SPDX-License-Identifier: Apache-2.0
 * options_name.c - lookup of option names, and the guess for an unknown name. */
#include <config.h>

#include "common/options/options.h"

#include <stdlib.h>
#include <string.h>

#include "common/options/options_i.h"

#define NAME_MAX_LEN 64		/* there is no guess for longer names */

static char name_char(char c)
{
	return c == '-' ? '_' : c;
}

bool mc_opt_name_equal(const char *a, const char *b)
{
	while (*a && name_char(*a) == name_char(*b)) {
		a++;
		b++;
	}
	return !*a && !*b;
}

const char *mc_opt_negated(const char *name)
{
	if (strncmp(name, "no", 2))
		return NULL;
	name += 2;
	return *name == '_' || *name == '-' ? name + 1 : name;
}

const struct mc_opt_row *mc_opt_find(const struct mc_program *prog, const char *name)
{
	for (const struct mc_opt_row *r = prog->rows; r->name; r++)
		if (mc_opt_name_equal(r->name, name))
			return r;
	for (const struct mc_opt_alias *a = prog->aliases; a && a->alias; a++)
		if (mc_opt_name_equal(a->alias, name))
			return mc_opt_name_equal(a->name, name) ? NULL : mc_opt_find(prog, a->name);
	return NULL;
}

const struct mc_opt_general mc_opt_general[] = {
	{ "o", "-o NAME[=VALUE][,...]", "Options as a list, in the form of mount(8)", MC_OPT_LIST, NULL, false },
	{ "flagfile", "--flagfile=FILE", "Read further options from FILE, one a line", MC_OPT_GFLAGS,
	  mc_opt_flagfile, false },
	{ "fromenv", "--fromenv=NAME[,...]", "Take the option NAME from the environment variable FLAGS_NAME",
	  MC_OPT_GFLAGS, mc_opt_fromenv, true },
	{ "tryfromenv", "--tryfromenv=NAME[,...]", "The same for variables that exist; others change nothing",
	  MC_OPT_GFLAGS, mc_opt_tryfromenv, true },
	{ "undefok", "--undefok=NAME[,...]", "Ignore these options, with a warning, if the program does not have them",
	  MC_OPT_GFLAGS, mc_opt_undefok, true },
	{ "print_config", "--print_config", "Print the effective configuration and where each value is from",
	  MC_OPT_PRINT, NULL, false },
	{ "help", "--help", "Print this text; --help=man prints the source of the manual's section", MC_OPT_HELP, NULL,
	  false },
	{ "version", "--version", "Print the version", MC_OPT_VERSION, NULL, false },
	{ NULL, NULL, NULL, MC_OPT_LIST, NULL, false },
};

bool mc_opt_has_general(const struct mc_program *prog, const struct mc_opt_general *g)
{
	return !g->inherited || !prog->strict;
}

const struct mc_opt_general *mc_opt_find_general(const struct mc_program *prog, const char *name)
{
	if (!strcmp(name, "h") || (!prog->strict && (!strcmp(name, "helpfull") || !strcmp(name, "helpshort"))))
		name = "help";
	for (const struct mc_opt_general *g = mc_opt_general; g->name; g++)
		if (mc_opt_has_general(prog, g) && mc_opt_name_equal(g->name, name))
			return g;
	return NULL;
}

static const struct mc_opt_absent *absent_find(const struct mc_opt_absent *list, const char *name)
{
	for (const struct mc_opt_absent *a = list; a && a->name; a++)
		if (mc_opt_name_equal(a->name, name))
			return a;
	return NULL;
}

#define GLOG "the log of this program has its own form and files"
#define UNBUFFERED "each line is written at once"
#define PLAIN "lines have no colours"
#define NO_MAIL "the log is not sent by mail"
#define NO_STACKS "the log has no stack traces"

const struct mc_opt_absent mc_opt_inherited[] = {
	{ "alsologtoemail", "", NO_MAIL },
	{ "alsologtostderr", "false", GLOG },
	{ "colorlogtostderr", "false", PLAIN },
	{ "colorlogtostdout", "false", PLAIN },
	{ "drop_log_memory", "true", GLOG },
	{ "log_backtrace_at", "", NO_STACKS },
	{ "log_dir", "", GLOG },
	{ "log_link", "", GLOG },
	{ "log_prefix", "true", GLOG },
	{ "log_utc_time", "false", "times in the log are always UTC" },
	{ "log_year_in_prefix", "true", GLOG },
	{ "logbuflevel", "0", UNBUFFERED },
	{ "logbufsecs", "30", UNBUFFERED },
	{ "logcleansecs", "300", "--max_log_files limits the number of files" },
	{ "logemaillevel", "999", NO_MAIL },
	{ "logfile_mode", "436", GLOG },
	{ "logmailer", "", NO_MAIL },
	{ "logtostderr", "false", GLOG },
	{ "logtostdout", "false", "the log is written to standard error or to files" },
	{ "max_log_size", "1800", GLOG },
	{ "minloglevel", "0", GLOG },
	{ "stderrthreshold", "2", GLOG },
	{ "stop_logging_if_full_disk", "false", GLOG },
	{ "symbolize_stacktrace", "true", NO_STACKS },
	{ "timestamp_in_logfile_name", "true", GLOG },
	{ "v", "0", GLOG },
	{ "vmodule", "", "the levels of components are those of --log=COMPONENT=LEVEL,..." },
	{ "tab_completion_columns", "80", "there is no completion by the program" },
	{ "tab_completion_word", "", "there is no completion by the program" },
	{ NULL, NULL, NULL },
};

const struct mc_opt_absent *mc_opt_absent(const struct mc_program *prog, const char *name)
{
	const struct mc_opt_absent *a = absent_find(prog->absent, name);

	if (!a)
		a = absent_find(prog->idle, name);
	return a || prog->strict ? a : absent_find(mc_opt_inherited, name);
}

bool mc_opt_idle(const struct mc_program *prog, const struct mc_opt_absent *a)
{
	return absent_find(prog->absent, a->name) != a;
}

static bool same_number(const char *a, const char *b)
{
	char *end_a, *end_b;
	double x = strtod(a, &end_a), y = strtod(b, &end_b);

	return end_a != a && !*end_a && end_b != b && !*end_b && x == y;
}

bool mc_opt_absent_harmless(const struct mc_opt_absent *a, const char *value)
{
	bool on;

	if (!value)
		return !strcmp(a->def, "true");
	if (!strcmp(value, a->def) || same_number(value, a->def))
		return true;
	return !mc_parse_bool(value, &on) && (!on || !strcmp(a->def, "true"));
}

static unsigned distance_min(unsigned a, unsigned b, unsigned c)
{
	unsigned m = a < b ? a : b;

	return m < c ? m : c;
}

/* Damerau-Levenshtein distance (restricted: edits do not overlap): number of letters to insert,
 * delete, replace or swap with their neighbour. */
static unsigned name_distance(const char *a, const char *b)
{
	unsigned rows[3][NAME_MAX_LEN + 1];
	size_t n = strlen(a), m = strlen(b);
	unsigned *before = rows[0], *last = rows[1], *now = rows[2], *tmp;

	if (n > NAME_MAX_LEN || m > NAME_MAX_LEN)
		return NAME_MAX_LEN;
	for (unsigned j = 0; j <= m; j++)
		last[j] = j;
	for (unsigned i = 1; i <= n; i++) {
		now[0] = i;
		for (unsigned j = 1; j <= m; j++) {
			char x = name_char(a[i - 1]), y = name_char(b[j - 1]);

			now[j] = distance_min(now[j - 1] + 1, last[j] + 1, last[j - 1] + (x != y));
			if (i > 1 && j > 1 && x == name_char(b[j - 2]) && name_char(a[i - 2]) == y &&
			    before[j - 2] + 1 < now[j])
				now[j] = before[j - 2] + 1;
		}
		tmp = before;
		before = last;
		last = now;
		now = tmp;
	}
	return last[m];
}

static void nearest_consider(const char *name, const char *known, const char **best, unsigned *best_d)
{
	unsigned d = name_distance(name, known);

	if (d < *best_d) {
		*best_d = d;
		*best = known;
	}
}

const char *mc_opt_nearest(const struct mc_program *prog, const char *name, bool general)
{
	/* Up to a third of the letters wrong: a slip; more: another word. */
	unsigned best_d = (unsigned)strlen(name) / 3 + 1;
	const char *best = NULL;

	for (const struct mc_opt_row *r = prog->rows; r->name; r++)
		nearest_consider(name, r->name, &best, &best_d);
	for (const struct mc_opt_alias *a = prog->aliases; a && a->alias; a++)
		nearest_consider(name, a->alias, &best, &best_d);
	for (const struct mc_opt_general *g = mc_opt_general; general && g->name; g++)
		if (mc_opt_has_general(prog, g))
			nearest_consider(name, g->name, &best, &best_d);
	return best;
}
