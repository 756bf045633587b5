/* SPDX-License-Identifier: Apache-2.0
 * options_i.h - option table, shared by its files. */
#ifndef MC_OPTIONS_I_H
#define MC_OPTIONS_I_H

#include <stdio.h>

#include "common/options/options.h"

struct mc_options {
	const struct mc_program *prog;
	size_t n_rows;
	enum mc_opt_origin *origins;	/* one per row, as the next three arrays */
	char **strings;			/* memory of MC_OPT_STR fields */
	char **args;			/* value on the command line, NULL: none */
	bool *in_file;
	char *file;			/* config file that was read, NULL: none */
	char **rest;			/* positional arguments */
	int n_rest;
	char **notes;			/* warnings for the log */
	size_t n_notes;
	enum { MC_SHOW_NOTHING, MC_SHOW_HELP, MC_SHOW_MAN, MC_SHOW_VERSION, MC_SHOW_CONFIG } show;
	unsigned flagfile_depth;
	const char *flagfile;		/* that is being read, NULL: none */
	/* options_gflags.c: flags of the command line that the program does not know or lacks, and names that --undefok
	 * allows to be among them */
	struct mc_opt_unknown *unknown;
	size_t n_unknown;
	char **undefok;
	size_t n_undefok;
};

/* ---- options.c ---- */

/* One word of the command line that begins with '-'.  @next: the word behind it, which may be its value, NULL: none.
 * *ret_used: it is. */
int mc_opt_parse_flag(struct mc_options *o, const char *token, const char *next, bool *ret_used);
/* Keep a warning until the program can log it.  -ENOMEM. */
int mc_opt_note(struct mc_options *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- options_gflags.c: options that gflags gives to every program.  0, or negative with a detail. ---- */

/* --flagfile=FILE: one option a line. */
int mc_opt_flagfile(struct mc_options *o, const char *path);
/* --fromenv=NAME,...: the option NAME has the value of the environment variable FLAGS_NAME, which must exist. */
int mc_opt_fromenv(struct mc_options *o, const char *names);
/* --tryfromenv: as before, but variables may be missing. */
int mc_opt_tryfromenv(struct mc_options *o, const char *names);
/* --undefok=NAME,...: these options may be unknown, before and behind it. */
int mc_opt_undefok(struct mc_options *o, const char *names);

/* The flag @name was refused with @err and its detail.  0: --undefok may follow, so mc_opt_unknown_check() decides at
 * the end of the command line.  In a strict program @err at once, with the same detail. */
int mc_opt_unknown_keep(struct mc_options *o, const char *name, int err);
/* Fail for the first one that --undefok does not allow; warn of the others. */
int mc_opt_unknown_check(struct mc_options *o);
void mc_opt_unknown_free(struct mc_options *o);

/* ---- options_value.c ---- */

/* Set the row's field at @field from @text; a new string is stored in *string, and the old one is
 * freed.  0, or -EINVAL/-ERANGE/-ENOMEM with a detail that describes valid values. */
int mc_opt_set(const struct mc_opt_row *row, const char *text, void *field, char **string);

/* The field's value in the form that a user writes: a string field itself, others in @buf. */
const char *mc_opt_format(const struct mc_opt_row *row, const void *field, char *buf, size_t len);

/* ---- options_name.c ---- */

/* '-' and '_' are equal. */
bool mc_opt_name_equal(const char *a, const char *b);
/* Name of the switch that "nox", "no_x" or "no-x" clears, NULL: another name. */
const char *mc_opt_negated(const char *name);

/* Row of a name or alias, NULL when unknown; '-' and '_' are equal. */
const struct mc_opt_row *mc_opt_find(const struct mc_program *prog, const char *name);

/* The option of that name if upstream has it and this version lacks it, else NULL.  Programs that upstream has too
 * (not strict) have the flags of glog and gflags besides those in their tables. */
const struct mc_opt_absent *mc_opt_absent(const struct mc_program *prog, const char *name);
/* Is it one of those that are only reported? */
bool mc_opt_idle(const struct mc_program *prog, const struct mc_opt_absent *a);
/* Does @value (NULL: the bare switch) request only the behaviour that the program has anyway? */
bool mc_opt_absent_harmless(const struct mc_opt_absent *a, const char *value);

/* Flags of glog and gflags without effect, in programs that upstream has too.  Ends with a NULL name. */
extern const struct mc_opt_absent mc_opt_inherited[];

/* Options of every program, only on the command line. */
struct mc_opt_general {
	const char *name;		/* NULL ends the table */
	const char *shown;		/* for help and the manual */
	const char *help;
	enum { MC_OPT_LIST, MC_OPT_GFLAGS, MC_OPT_PRINT, MC_OPT_HELP, MC_OPT_VERSION } what;
	int (*read)(struct mc_options *o, const char *value);	/* MC_OPT_GFLAGS */
	bool inherited;			/* only in programs that upstream has too */
};

extern const struct mc_opt_general mc_opt_general[];

/* Does the program have this row? */
bool mc_opt_has_general(const struct mc_program *prog, const struct mc_opt_general *g);
/* The row of @name in it, NULL: none; '-' and '_' are equal, "h" is help, and so are gflags' variants of it. */
const struct mc_opt_general *mc_opt_find_general(const struct mc_program *prog, const char *name);

/* The known name that is most similar to @name, NULL when none is close.  @general: include the
 * options of every program. */
const char *mc_opt_nearest(const struct mc_program *prog, const char *name, bool general);

/* ---- options_file.c ---- */

enum mc_conf_shape { MC_CONF_SCALAR, MC_CONF_LIST, MC_CONF_MAP };

/* Called for each value of a config file; a negative result ends the reading.  For a map @value is
 * NULL, and the values in it follow. */
typedef int (*mc_conf_pair_fn)(void *arg, const char *key, const char *value, enum mc_conf_shape shape);

enum mc_conf_format { MC_CONF_JSON, MC_CONF_YAML };

/* Read a flat map.  Keys of nested maps are joined with '_', lists of scalars are joined to one
 * value with ',', and nulls are skipped.  0, the negative result of @fn, or -EINVAL with a detail. */
int mc_conf_parse(const char *text, size_t len, enum mc_conf_format format, mc_conf_pair_fn fn, void *arg);

/* The same for a file.  Its name (.json, .yaml, .yml) or else its first byte selects JSON or YAML. */
int mc_conf_read(const char *path, mc_conf_pair_fn fn, void *arg);

/* ---- options_show.c ---- */

void mc_opt_help(const struct mc_program *prog, FILE *to);
void mc_opt_man(const struct mc_program *prog, FILE *to);
void mc_opt_version(const struct mc_program *prog, FILE *to);

#endif
