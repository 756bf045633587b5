/* SPDX-License-Identifier: Apache-2.0
 * options.h - one row per option gives the struct field, flag, environment variable, config key
 * (JSON and YAML), default, unit, help and manual text.
 *
 * A program writes its rows in <room>/options.def,
 *
 *	OPT(field, TYPE, "default", "ENV_NAME or empty", min, max, "UNIT", "help sentence")
 *
 * declares its struct with MC_OPT_FIELD and its table with MC_OPT_ROW, and calls
 * mc_options_parse().  Precedence: default < config file (--config_path) < environment < command
 * line; the origin of each value is kept for --print_config.
 *
 * Spellings (gflags, so that upstream's command lines work): -x=1 --x=1 --x 1, --x and --nox for
 * booleans (where the program is not strict also followed by the word true, false, 0 or 1), '-' and
 * '_' alike, --flagfile=FILE; "--" ends the options.  -o a=1,b,noc is a list of options in mount(8)
 * form.  Unknown flags are a warning naming the nearest option; unknown config keys too.  The word
 * behind an unknown flag counts as its value when the program takes no arguments.  An empty
 * environment variable is an unset one.
 * Sizes: 4gb, 512MiB, 1048576, "4 GB", 1.5g (all powers of 1024, as upstream).  Durations: 10s
 * 500ms 2m 1h 1d, a bare number counts in the row's unit. */
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
	size_t offset;		/* of the field in the program's struct */
	const char *def;	/* as a user would write it */
	const char *env;	/* "" when there is none */
	double min, max;	/* bounds of numbers in the field's unit; equal: none */
	const char *unit;	/* shown in help: "BYTES", "MS", "HOST:PORT", ... */
	const char *help;	/* one sentence, no final stop; spaces separate its words */
};

#define MC_OPT_FIELD(field, type, def, env, min, max, unit, help) mc_opt_ctype_##type field;
#define MC_OPT_ROW(stype, field, type, def, env, min, max, unit, help) \
	{ #field, MC_OPT_##type, offsetof(stype, field), def, env, min, max, unit, help },

struct mc_opt_alias {	/* an older or shorter spelling of a row */
	const char *alias, *name;
};

/* An option that upstream has and this version has not. */
struct mc_opt_absent {
	const char *name;
	const char *def;	/* upstream's default: saying that is no error */
	const char *why;
};

/* What a program is: given once, drives parsing, help, man page and --print_config. */
struct mc_program {
	const char *name;
	const char *synopsis;		/* what follows the name: "[OPTION]... MOUNTPOINT" */
	const char *summary;		/* one line */
	const struct mc_opt_row *rows;	/* ends with a row whose name is NULL */
	const struct mc_opt_alias *aliases; /* ends with NULL; may be NULL */
	/* Setting one of them to anything but its default is an error that says so (switching one
	 * off is none).  Ends with a NULL name; may be NULL. */
	const struct mc_opt_absent *absent;
	const char *details;		/* more of --help, whole lines; may be NULL */
	bool strict;			/* an unknown flag is an error, not a warning, and no word behind
					 * a switch its value: for programs that would do harm then */
};

struct mc_options;	/* result of parsing: origins and positional arguments */

/* Parse into @conf (the program's struct; its strings are freed with *ret, NULL on failure).
 * Handles --help, --version, --print_config, --help=man (roff source of the OPTIONS section)
 * itself: prints to stdout and returns 1: the caller then exits with 0.  Returns 0, or negative
 * with mc_err_detail() for a value out of range, an unreadable config file, a missing value, or
 * when what it prints cannot be written.
 * Warnings go to stderr. */
int mc_options_parse(const struct mc_program *prog, int argc, char **argv, void *conf,
		     struct mc_options **ret);
void mc_options_free(struct mc_options *o);

int mc_options_argc(const struct mc_options *o);		/* positional arguments */
const char *mc_options_argv(const struct mc_options *o, int i);
enum mc_opt_origin mc_options_origin(const struct mc_options *o, const char *name);

/* "name = value  # origin" lines of the effective configuration, sorted by name. */
int mc_options_print(const struct mc_options *o, const void *conf, FILE *to);

/* The parsers of values, for other users (Python dictionaries, xattrs).  0 or -EINVAL, *ret
 * untouched on failure.  Overflow and trailing garbage are errors. */
int mc_parse_size(const char *s, uint64_t *ret_bytes);
int mc_parse_duration(const char *s, uint64_t bare_unit_ms, uint64_t *ret_ms);
int mc_parse_bool(const char *s, bool *ret);

/* "1.5 GiB" style into @buf; returns @buf.  For people only. */
const char *mc_format_size(uint64_t bytes, char *buf, size_t len);

#endif
