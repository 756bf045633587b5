/* SPDX-License-Identifier: Apache-2.0
 * options_show.c - output of help, manual section and the effective configuration. */
#include <config.h>

#include "common/options/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/options/options_i.h"

#define HELP_COLUMN 32
#define HELP_WIDTH 96

/* Print the words of @text from HELP_COLUMN on; @column is the current column. */
static void print_wrapped(FILE *to, int column, const char *text)
{
	bool first = true;

	if (column + 1 > HELP_COLUMN) {
		putc('\n', to);
		column = 0;
	}
	fprintf(to, "%*s", HELP_COLUMN - column, "");
	column = HELP_COLUMN;
	while (*text) {
		int n = (int)strcspn(text, " ");

		if (!first && column + 1 + n > HELP_WIDTH) {
			fprintf(to, "\n%*s", HELP_COLUMN, "");
			column = HELP_COLUMN;
			first = true;
		}
		column += fprintf(to, first ? "%.*s" : " %.*s", n, text);
		first = false;
		text += n;
		text += strspn(text, " ");
	}
	putc('\n', to);
}

static const char *shown_unit(const struct mc_opt_row *r)
{
	static const char *const by_type[] = {
		[MC_OPT_BOOL] = "", [MC_OPT_INT] = "N", [MC_OPT_SIZE] = "SIZE",
		[MC_OPT_MS] = "MS", [MC_OPT_SEC] = "SECONDS", [MC_OPT_RATIO] = "RATIO",
		[MC_OPT_STR] = "TEXT",
	};

	return r->unit && *r->unit ? r->unit : by_type[r->type];
}

/* Dashes in front of a flag in the form that a user writes; one dash and two mean the same. */
static const char *flag_dashes(const char *name)
{
	return name[0] && name[1] ? "--" : "-";
}

static void help_row(const struct mc_program *prog, const struct mc_opt_row *r, FILE *to)
{
	auto_free char *text = NULL;
	size_t len;
	FILE *f;
	int column;

	f = open_memstream(&text, &len);
	if (!f)
		return;
	fprintf(f, "%s", r->help);
	for (const struct mc_opt_alias *a = prog->aliases; a && a->alias; a++)
		if (mc_opt_find(prog, a->alias) == r)
			fprintf(f, "; also %s%s", flag_dashes(a->alias), a->alias);
	if (r->mark != MC_OPT_MARK_COMPAT)
		fprintf(f, " [%s%s%s%s]", r->def && *r->def ? "default " : "no default", r->def ? r->def : "",
			r->env && *r->env ? ", " : "", r->env ? r->env : "");
	fclose(f);

	column = fprintf(to, r->type == MC_OPT_BOOL ? "  --%s" : "  --%s=%s", r->name, shown_unit(r));
	print_wrapped(to, column, text);
}

/* Show the rows that have the mark COMPAT, or those that do not, with @title before the first one. */
static void show_rows(const struct mc_program *prog, bool compat, const char *title,
		      void (*show)(const struct mc_program *prog, const struct mc_opt_row *r, FILE *to), FILE *to)
{
	for (const struct mc_opt_row *r = prog->rows; r->name; r++) {
		if ((r->mark == MC_OPT_MARK_COMPAT) != compat)
			continue;
		fputs(title, to);
		title = "";
		show(prog, r, to);
	}
}

static bool has_env(const struct mc_program *prog)
{
	for (const struct mc_opt_row *r = prog->rows; r->name; r++)
		if (r->env && *r->env)
			return true;
	return false;
}

void mc_opt_help(const struct mc_program *prog, FILE *to)
{
	fprintf(to, "Usage: %s %s\n%s.\n\n", prog->name,
		prog->synopsis ? prog->synopsis : "[OPTION]...", prog->summary);
	if (prog->details)
		fprintf(to, "%s\n", prog->details);
	fprintf(to, "Options, with their default%s in brackets:\n",
		has_env(prog) ? " and environment variable" : "");
	show_rows(prog, false, "", help_row, to);
	fprintf(to, "\nGeneral:\n");
	for (const struct mc_opt_general *g = mc_opt_general; g->name; g++)
		if (mc_opt_has_general(prog, g))
			print_wrapped(to, fprintf(to, "  %s", g->shown), g->help);
	show_rows(prog, true, "\nAccepted for compatibility:\n", help_row, to);
	fprintf(to, "\n"
		"-x=1, --x=1 and --x 1 are the same, as are '-' and '_' inside a name.  A switch\n"
		"is set by --x and cleared by --nox or --x=false.  SIZE takes units: 512MiB, 4gb\n"
		"(powers of 1024).  Durations take units: 500ms, 10s, 2m, 1h.%s\n",
		mc_opt_find(prog, "config_path") ?
		"  The command line overrides the\n"
		"environment, which overrides the config file." : "");
}

/* Print text as roff, quoted so that no part of it is a request or an escape. */
static void print_roff(FILE *to, const char *s)
{
	if (*s == '.' || *s == '\'')
		fputs("\\&", to);
	for (; *s; s++) {
		if (*s == '\\')
			fputs("\\e", to);
		else if (*s == '-')
			fputs("\\-", to);
		else if (*s == '\n')
			putc(' ', to);
		else
			putc(*s, to);
	}
}

static void man_row(const struct mc_program *prog, const struct mc_opt_row *r, FILE *to)
{
	fputs(".TP\n\\fB\\-\\-", to);
	print_roff(to, r->name);
	fputs("\\fR", to);
	if (r->type != MC_OPT_BOOL) {
		fputs("=\\fI", to);
		print_roff(to, shown_unit(r));
		fputs("\\fR", to);
	}
	for (const struct mc_opt_alias *a = prog->aliases; a && a->alias; a++)
		if (mc_opt_find(prog, a->alias) == r) {
			fputs(", \\fB", to);
			print_roff(to, flag_dashes(a->alias));
			print_roff(to, a->alias);
			fputs("\\fR", to);
		}
	putc('\n', to);
	print_roff(to, r->help);
	fputs(".\n", to);
	if (r->mark == MC_OPT_MARK_COMPAT)
		return;
	if (r->def && *r->def) {
		fputs("Default: \\fB", to);
		print_roff(to, r->def);
		fputs("\\fR.\n", to);
	}
	if (r->env && *r->env) {
		fputs("Environment: \\fB", to);
		print_roff(to, r->env);
		fputs("\\fR.\n", to);
	}
}

static void man_absent(const struct mc_opt_absent *list, FILE *to)
{
	for (const struct mc_opt_absent *a = list; a && a->name; a++) {
		fputs(".TP\n\\fB\\-\\-", to);
		print_roff(to, a->name);
		fputs("\\fR\n", to);
		print_roff(to, a->why);
		fputs(".\nDefault: \\fB", to);
		print_roff(to, *a->def ? a->def : "(empty)");
		fputs("\\fR.\n", to);
	}
}

/* The names in one paragraph, without those that the program has. */
static void man_inherited(const struct mc_program *prog, FILE *to)
{
	const char *sep = "Flags of glog and gflags:\n";

	fputs(".PP\n", to);
	for (const struct mc_opt_absent *a = mc_opt_inherited; a->name; a++) {
		if (mc_opt_find(prog, a->name))
			continue;
		fprintf(to, "%s\\fB%s", sep, flag_dashes(a->name)[1] ? "\\-\\-" : "\\-");
		print_roff(to, a->name);
		fputs("\\fR", to);
		sep = ",\n";
	}
	fputs(".\n", to);
}

void mc_opt_man(const struct mc_program *prog, FILE *to)
{
	fputs(".SH OPTIONS\n", to);
	show_rows(prog, false, "", man_row, to);
	for (const struct mc_opt_general *g = mc_opt_general; g->name; g++) {
		if (!mc_opt_has_general(prog, g))
			continue;
		fputs(".TP\n\\fB", to);
		print_roff(to, g->shown);
		fputs("\\fR\n", to);
		print_roff(to, g->help);
		fputs(".\n", to);
	}
	show_rows(prog, true, ".SS Accepted for compatibility\n", man_row, to);
	if (prog->absent && prog->absent->name)
		fputs(".SH OPTIONS OF UPSTREAM THAT THIS VERSION LACKS\n"
		      "Setting one of these to anything but its default is an error that says \\(lqnot built into\n"
		      "this version\\(rq and gives the reason.\n", to);
	man_absent(prog->absent, to);
	if (!prog->strict || (prog->idle && prog->idle->name))
		fputs(".SH UPSTREAM OPTIONS WITHOUT EFFECT\n"
		      "Setting one of these to anything but its default is a warning in the log, which gives the\n"
		      "reason.\n", to);
	man_absent(prog->idle, to);
	if (!prog->strict)
		man_inherited(prog, to);
}

void mc_opt_version(const struct mc_program *prog, FILE *to)
{
	fprintf(to, "%s (%s) %s\n", prog->name, PACKAGE_NAME, PACKAGE_VERSION);
}

static int by_name(const void *a, const void *b)
{
	const struct mc_opt_row *x = *(const struct mc_opt_row *const *)a;
	const struct mc_opt_row *y = *(const struct mc_opt_row *const *)b;

	return strcmp(x->name, y->name);
}

static void print_value(const char *v, FILE *to)
{
	if (*v && !v[strcspn(v, " \t\n\"#\\")]) {
		fputs(v, to);
		return;
	}
	putc('"', to);
	for (; *v; v++) {
		if (*v == '"' || *v == '\\')
			putc('\\', to);
		if (*v == '\n')
			fputs("\\n", to);
		else
			putc(*v, to);
	}
	putc('"', to);
}

static void print_origin(const struct mc_options *o, const struct mc_opt_row *r, FILE *to)
{
	switch (mc_options_origin(o, r->name)) {
	case MC_ORIGIN_DEFAULT:
		fputs("default", to);
		break;
	case MC_ORIGIN_FILE:
		fprintf(to, "file %s", o->file);
		break;
	case MC_ORIGIN_ENV:
		fprintf(to, "environment %s", r->env);
		break;
	case MC_ORIGIN_ARG:
		fputs("command line", to);
		break;
	}
}

int mc_options_print(const struct mc_options *o, const void *conf, FILE *to)
{
	auto_free const struct mc_opt_row **rows = calloc(o->n_rows + 1, sizeof(*rows));
	char buf[64];

	if (!rows)
		return mc_fail(-ENOMEM, "no memory to print the configuration");
	for (size_t i = 0; i < o->n_rows; i++)
		rows[i] = &o->prog->rows[i];
	qsort(rows, o->n_rows, sizeof(*rows), by_name);
	for (size_t i = 0; i < o->n_rows; i++) {
		const char *field = (const char *)conf + rows[i]->offset;

		fprintf(to, "%s = ", rows[i]->name);
		print_value(mc_opt_format(rows[i], field, buf, sizeof(buf)), to);
		fputs("  # ", to);
		print_origin(o, rows[i], to);
		putc('\n', to);
	}
	return ferror(to) ? mc_fail(-EIO, "cannot write the configuration to standard output") : 0;
}
