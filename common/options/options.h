/* SPDX-License-Identifier: Apache-2.0
 * options.h - options of a program: one row per option defines the struct field, flag, environment
 * variable, config key (JSON and YAML), default, unit, help and manual text.
 *
 * A program writes its rows in <room>/options.def,
 *
 *	OPT(field, TYPE, "default", "ENV_NAME or empty", min, max, "UNIT", "help sentence")
 *	OPT(..., "phrase", COMPAT)
 *
 * (COMPAT: accepted because upstream has the option, without effect or with one valid value; help and manual list such
 * options in a section of their own),
 * declares its struct with MC_OPT_FIELD and its table with MC_OPT_ROW, and calls
 * mc_options_parse().  Precedence: default < config file (--config_path) < environment < command
 * line; the origin of each value is kept for --print_config.
 *
 * Spellings are those of gflags, so that upstream's command lines work: -x=1, --x=1, --x 1; --x and
 * --nox for booleans (in a program that is not strict also followed by the word true, false, 0 or
 * 1); '-' and '_' are equal; --flagfile=FILE, --fromenv=NAME, --tryfromenv=NAME; "--" ends the options.  -o a=1,b,noc
 * is a list of options in mount(8) form.  An unknown flag is an error unless --undefok names it, and an unknown config
 * key a warning; both name the nearest option.  Flags of glog and gflags that have no effect cause a warning.  An empty
 * environment variable counts as unset.  Sizes: 4gb, 512MiB, 1048576, "4 GB", 1.5g (all powers of 1024,
 * as in upstream).  Durations: 10s, 500ms, 2m, 1h, 1d; a bare number is in the row's unit. */
#ifndef MC_OPTIONS_H
#define MC_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum mc_opt_type {
	MC_OPT_BOOL,		/* bool */
	MC_OPT_INT,		/* int64_t */
	MC_OPT_SIZE,		/* uint64_t, bytes */
	MC_OPT_MS,		/* uint64_t, milliseconds; a bare number is ms */
	MC_OPT_SEC,		/* uint64_t, milliseconds; a bare number is seconds */
	MC_OPT_RATIO,		/* double */
	MC_OPT_STR,		/* char *, never NULL */
};

typedef bool mc_opt_ctype_BOOL;
typedef int64_t mc_opt_ctype_INT;
typedef uint64_t mc_opt_ctype_SIZE;
typedef uint64_t mc_opt_ctype_MS;
typedef uint64_t mc_opt_ctype_SEC;
typedef double mc_opt_ctype_RATIO;
typedef char *mc_opt_ctype_STR;

enum mc_opt_origin { MC_ORIGIN_DEFAULT, MC_ORIGIN_FILE, MC_ORIGIN_ENV, MC_ORIGIN_ARG };

struct mc_opt_row {
	const char *name;	/* flag and config key, with underscores */
	enum mc_opt_type type;
	size_t offset;		/* the field's, in the program's struct */
	const char *def;	/* in the form that a user writes */
	const char *env;	/* "": none */
	double min, max;	/* bounds of numbers in the field's unit; equal: no bounds */
	const char *unit;	/* shown in help: "BYTES", "MS", "HOST:PORT", ... */
	const char *help;	/* one sentence without a final full stop */
	enum { MC_OPT_MARK_, MC_OPT_MARK_COMPAT } mark;
};

#define MC_OPT_FIELD(field, type, ...) mc_opt_ctype_##type field;
#define MC_OPT_ROW(stype, field, type, def, env, min, max, unit, help, ...) \
	{ #field, MC_OPT_##type, offsetof(stype, field), def, env, min, max, unit, help, MC_OPT_MARK_##__VA_ARGS__ },

struct mc_opt_alias {	/* an older or shorter spelling of a row */
	const char *alias, *name;
};

/* An option of upstream that this version lacks. */
struct mc_opt_absent {
	const char *name;
	const char *def;	/* upstream's default, which may be set */
	const char *why;
};

/* Description of a program, for parsing, help, man page and --print_config. */
struct mc_program {
	const char *name;
	const char *synopsis;		/* without the name: "[OPTION]... MOUNTPOINT" */
	const char *summary;		/* one line */
	const struct mc_opt_row *rows;	/* ends with a row whose name is NULL */
	const struct mc_opt_alias *aliases; /* ends with NULL; may be NULL */
	/* Setting one of them to another value than its default is an error with a detail that says
	 * so; switching one off is allowed.  Ends with a NULL name; may be NULL. */
	const struct mc_opt_absent *absent;
	/* The same for options of which another value is only reported, because it would change no result. */
	const struct mc_opt_absent *idle;
	const char *details;		/* further text of --help, whole lines; may be NULL */
	/* For a program that upstream does not have: flags of glog and gflags are unknown, and the word behind a
	 * switch is never its value. */
	bool strict;
};

/* Exit status of a program after a failure of mc_options_parse(), or after a wrong number of arguments. */
#define MC_OPTIONS_STATUS 2

struct mc_options;	/* result of parsing: origins and positional arguments */

/* Parse into @conf, the program's struct; its strings are freed with *ret and are NULL on failure.
 * --help, --version, --print_config and --help=man (roff source of the OPTIONS section) are printed
 * to stdout; the result is 1 then, and the caller exits with status 0.  Otherwise 0, or negative
 * with mc_err_detail() for an unknown flag, a value out of range, a missing value, an unreadable config
 * file, or a failed write to stdout.  Warnings are kept for mc_options_report() if the result is 0, else
 * printed to stderr. */
int mc_options_parse(const struct mc_program *prog, int argc, char **argv, void *conf,
		     struct mc_options **ret);
/* Log the warnings.  Every program calls it once, when its log is open. */
void mc_options_report(const struct mc_options *o);
void mc_options_free(struct mc_options *o);

int mc_options_argc(const struct mc_options *o);		/* positional arguments */
const char *mc_options_argv(const struct mc_options *o, int i);
enum mc_opt_origin mc_options_origin(const struct mc_options *o, const char *name);

/* "name = value  # origin" lines of the effective configuration, sorted by name. */
int mc_options_print(const struct mc_options *o, const void *conf, FILE *to);

/* The parsers of values, for other users (Python dictionaries, xattrs).  0 or -EINVAL; *ret is
 * untouched on failure.  Overflow and trailing characters are errors. */
int mc_parse_size(const char *s, uint64_t *ret_bytes);
int mc_parse_duration(const char *s, uint64_t bare_unit_ms, uint64_t *ret_ms);
int mc_parse_bool(const char *s, bool *ret);

/* Write a text like "1.5 GiB" into @buf; returns @buf.  Only for display. */
const char *mc_format_size(uint64_t bytes, char *buf, size_t len);

#endif
