/* SPDX-License-Identifier: Apache-2.0
 * options.c - parsing of the command line, and precedence of the sources of values. */
#include <config.h>

#include "common/options/options.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/options/options_i.h"

#define NAME_SIZE 128

static size_t index_of(const struct mc_options *o, const struct mc_opt_row *row)
{
	return (size_t)(row - o->prog->rows);
}

static void *field_of(void *conf, const struct mc_opt_row *row)
{
	return (char *)conf + row->offset;
}

/* Not for keys of a file and items of a list: --help and the like are only flags. */
static bool is_flag(const char *prefix)
{
	return !strcmp(prefix, "--");
}

int mc_opt_note(struct mc_options *o, const char *fmt, ...)
{
	char **more = realloc(o->notes, (o->n_notes + 1) * sizeof(*more));
	va_list ap;
	int n = -1;

	if (more) {
		o->notes = more;
		va_start(ap, fmt);
		n = vasprintf(&o->notes[o->n_notes], fmt, ap);
		va_end(ap);
	}
	if (n < 0)
		return mc_fail(-ENOMEM, "no memory for the options");
	o->n_notes++;
	return 0;
}

static int options_note_unknown(struct mc_options *o, const char *key)
{
	const char *near = mc_opt_nearest(o->prog, key, false);

	if (near)
		return mc_opt_note(o, "config key %s is unknown and ignored; did you mean %s?", key, near);
	return mc_opt_note(o, "config key %s is unknown and ignored; --help lists the options", key);
}

static int fail_unknown(const struct mc_options *o, const char *prefix, const char *name)
{
	const char *near = mc_opt_nearest(o->prog, name, is_flag(prefix));

	if (near)
		return mc_fail(-EINVAL, "%s%s is unknown; did you mean %s%s?", prefix, name, prefix, near);
	return mc_fail(-EINVAL, "%s%s is unknown; --help lists the options", prefix, name);
}

/* An option that this version lacks is set; @value NULL: without a value. */
static int set_absent(struct mc_options *o, const char *prefix, const char *name, const char *value,
		      const struct mc_opt_absent *absent)
{
	if (mc_opt_absent_harmless(absent, value))
		return 0;
	if (!mc_opt_idle(o->prog, absent))
		return mc_fail(-MC_ENOTSUP, "%s%s is not built into this version: %s", prefix, name, absent->why);
	return mc_opt_note(o, "%s%s has no effect: %s", prefix, name, absent->why);
}

/* ---- the command line ----
 *
 * An option is written behind "--" or "-", or in a list behind -o.  First the common part: */

static int keep_arg(struct mc_options *o, const struct mc_opt_row *row, const char *value)
{
	char *copy = strdup(value);

	if (!copy)
		return mc_fail(-ENOMEM, "no memory for the options");
	free(o->args[index_of(o, row)]);
	o->args[index_of(o, row)] = copy;
	return 0;
}

static bool is_off(const char *value)
{
	bool on;

	return value && !mc_parse_bool(value, &on) && !on;
}

/* Is it a word for mount(8) itself, which passes it on in its lists? */
static bool is_mount_word(const char *name)
{
	static const char *const words[] = {
		"defaults", "auto", "noauto", "nofail", "user", "nouser", "users", "owner", "group", "_netdev",
		"comment", "loop", "rw", "exec", "async", "atime", "noatime", "relatime", "strictatime", "diratime",
		"nodiratime", "lazytime", "nolazytime", "silent", "loud", "iversion", "noiversion", "mand", "nomand",
		"nosymfollow",
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (!strcmp(name, words[i]))
			return true;
	return !strncasecmp(name, "x-", 2);
}

/* Is the word behind a switch its value?  Only these words, since others are arguments far more
 * often.  In a strict program every word is an argument. */
static bool is_switch_word(const struct mc_program *prog, const char *s)
{
	return s && !prog->strict &&
		(!strcmp(s, "true") || !strcmp(s, "false") || !strcmp(s, "0") || !strcmp(s, "1"));
}

/* Is the word behind an absent option its value? */
static bool takes_word(const struct mc_program *prog, const struct mc_opt_absent *a, const char *next)
{
	bool on;

	if (is_switch_word(prog, next))
		return true;
	return mc_parse_bool(a->def, &on) && next && next[0] != '-';
}

static int set_unknown(struct mc_options *o, const char *prefix, const char *name,
		       const char *value, const char *next, bool *ret_used)
{
	const struct mc_opt_absent *absent = mc_opt_absent(o->prog, name);
	const char *off = mc_opt_negated(name);
	int r;

	if (absent) {
		*ret_used = !value && takes_word(o->prog, absent, next);
		r = set_absent(o, prefix, name, *ret_used ? next : value, absent);
		return r == -MC_ENOTSUP && is_flag(prefix) ? mc_opt_unknown_keep(o, name, r) : r;
	}
	/* Switching off an option that this version lacks is allowed. */
	if (off && mc_opt_absent(o->prog, off))
		return 0;
	if (prefix[1] == 'o' && is_mount_word(name))
		return 0;
	r = fail_unknown(o, prefix, name);
	return is_flag(prefix) ? mc_opt_unknown_keep(o, name, r) : r;
}

/* One option.  @next is the word behind it, which may be its value, NULL: none. */
static int set_option(struct mc_options *o, const char *prefix, const char *name,
		      const char *value, const char *next, bool *ret_used)
{
	const struct mc_opt_row *row = mc_opt_find(o->prog, name);
	const char *off;

	*ret_used = false;
	if (!row) {
		off = mc_opt_negated(name);
		row = off ? mc_opt_find(o->prog, off) : NULL;
		if (!row || row->type != MC_OPT_BOOL)
			return set_unknown(o, prefix, name, value, next, ret_used);
		return value ? mc_fail(-EINVAL, "%s%s takes no value", prefix, name) :
			       keep_arg(o, row, "false");
	}
	if (!value && row->type == MC_OPT_BOOL) {
		*ret_used = is_switch_word(o->prog, next);
		return keep_arg(o, row, *ret_used ? next : "true");
	}
	if (!value && !next)
		return mc_fail(-EINVAL, "%s%s needs a value, write %s%s=%s", prefix, name, prefix,
			       name, row->unit && *row->unit ? row->unit : "VALUE");
	*ret_used = !value;
	return keep_arg(o, row, value ? value : next);
}

/* Split "name=value"; a name that is too long for any option is truncated. */
static const char *split_arg(const char *s, char name[NAME_SIZE])
{
	size_t n = strcspn(s, "=");

	snprintf(name, NAME_SIZE, "%.*s", n < NAME_SIZE ? (int)n : NAME_SIZE - 1, s);
	return s[n] ? s + n + 1 : NULL;
}

/* A list in the form of mount(8): commas separate items, a backslash quotes the next character. */
static int parse_list(struct mc_options *o, const char *list)
{
	auto_free char *item = malloc(strlen(list) + 1);
	char name[NAME_SIZE];
	const char *value;
	bool used;
	int r = 0;

	if (!item)
		return mc_fail(-ENOMEM, "no memory for the options");
	while (*list && r == 0) {
		size_t n = 0;

		for (; *list && *list != ','; list++) {
			if (*list == '\\' && list[1])
				list++;
			item[n++] = *list;
		}
		item[n] = '\0';
		if (*list)
			list++;
		if (n == 0)
			continue;
		value = split_arg(item, name);
		r = set_option(o, "-o ", name, value, NULL, &used);
	}
	return r;
}

/* Options of every program; 1 when @name is not one of them. */
static int parse_general(struct mc_options *o, const char *name, const char *value,
			 const char *next, bool *ret_used)
{
	const struct mc_opt_general *g = mc_opt_find_general(o->prog, name);

	if (!g)
		return 1;
	switch (g->what) {
	case MC_OPT_LIST:
		*ret_used = !value;
		if (!value && !next)
			return mc_fail(-EINVAL, "-%s needs a value", name);
		return parse_list(o, value ? value : next);
	case MC_OPT_GFLAGS:
		*ret_used = !value;
		if (!value && !next)
			return mc_fail(-EINVAL, "--%s needs a value", g->name);
		return g->read(o, value ? value : next);
	case MC_OPT_PRINT:
		if (o->show == MC_SHOW_NOTHING && !is_off(value))
			o->show = MC_SHOW_CONFIG;
		return 0;
	case MC_OPT_HELP:
		o->show = value && !strcmp(value, "man") ? MC_SHOW_MAN : MC_SHOW_HELP;
		return 0;
	case MC_OPT_VERSION:
		o->show = MC_SHOW_VERSION;
		return 0;
	}
	return 1;
}

int mc_opt_parse_flag(struct mc_options *o, const char *token, const char *next, bool *ret_used)
{
	const char *body = token + (token[1] == '-' ? 2 : 1), *value;
	char name[NAME_SIZE];
	int r;

	*ret_used = false;
	value = split_arg(body, name);
	if (!mc_opt_find(o->prog, name)) {
		r = parse_general(o, name, value, next, ret_used);
		if (r <= 0)
			return r;
		if (body == token + 1 && *body == 'o' && !mc_opt_absent(o->prog, name))
			return parse_list(o, body + 1);
	}
	return set_option(o, "--", name, value, next, ret_used);
}

static int keep_rest(struct mc_options *o, const char *arg)
{
	o->rest[o->n_rest] = strdup(arg);
	if (!o->rest[o->n_rest])
		return mc_fail(-ENOMEM, "no memory for the options");
	o->n_rest++;
	return 0;
}

static int parse_args(struct mc_options *o, int argc, char **argv)
{
	bool flags = true, used;
	int r = 0;

	for (int i = 1; i < argc && r == 0; i++) {
		if (flags && !strcmp(argv[i], "--")) {
			flags = false;
		} else if (flags && argv[i][0] == '-' && argv[i][1]) {
			r = mc_opt_parse_flag(o, argv[i], i + 1 < argc ? argv[i + 1] : NULL, &used);
			i += used;
		} else {
			r = keep_rest(o, argv[i]);
		}
	}
	return r == 0 ? mc_opt_unknown_check(o) : r;
}

/* ---- the sources of values, weakest first ---- */

static int apply_text(struct mc_options *o, void *conf, const struct mc_opt_row *row, const char *text,
		 enum mc_opt_origin origin)
{
	size_t i = index_of(o, row);
	int r = mc_opt_set(row, text, field_of(conf, row), &o->strings[i]);

	if (r == 0)
		o->origins[i] = origin;
	return r;
}

static int apply_defaults(struct mc_options *o, void *conf)
{
	const struct mc_opt_row *row;
	int r;

	for (row = o->prog->rows; row->name; row++) {
		const char *def = row->def ? row->def : "";

		if (!*def && row->type != MC_OPT_STR)
			def = row->type == MC_OPT_BOOL ? "false" : "0";
		r = apply_text(o, conf, row, def, MC_ORIGIN_DEFAULT);
		if (r < 0)
			return mc_fail(r, "default of --%s: %s", row->name, mc_err_detail(r));
	}
	return 0;
}

static const char *from_env(const struct mc_opt_row *row)
{
	const char *v = row->env && *row->env ? getenv(row->env) : NULL;

	return v && *v ? v : NULL;
}

struct file_target {
	struct mc_options *o;
	void *conf;
};

/* The unit of a row shows whether it takes several values. */
static bool takes_list(const struct mc_opt_row *row)
{
	return row->type == MC_OPT_STR && (strstr(row->unit, "[,...]") || !strcmp(row->unit, "LIST") ||
					   !strcmp(row->unit, "LEVELS"));
}

static int apply_pair(void *arg, const char *key, const char *value, enum mc_conf_shape shape)
{
	struct file_target *t = arg;
	const struct mc_opt_row *row = mc_opt_find(t->o->prog, key);
	const struct mc_opt_absent *absent;
	int r;

	if (row && (shape == MC_CONF_MAP || (shape == MC_CONF_LIST && !takes_list(row))))
		return mc_fail(-EINVAL, "%s: expected one value, found a %s", key,
			       shape == MC_CONF_MAP ? "map" : "list");
	if (!row) {
		absent = mc_opt_absent(t->o->prog, key);
		if (absent)
			return set_absent(t->o, "", key, value, absent);
		/* The values in the map are reported under their own names. */
		if (shape == MC_CONF_MAP)
			return 0;
		return options_note_unknown(t->o, key);
	}
	if (t->o->in_file[index_of(t->o, row)])
		return mc_fail(-EINVAL, "%s is set twice", row->name);
	t->o->in_file[index_of(t->o, row)] = true;
	r = apply_text(t->o, t->conf, row, value, MC_ORIGIN_FILE);
	return r < 0 ? mc_fail(r, "%s: %s", key, mc_err_detail(r)) : 0;
}

/* The name of the config file is taken from all sources except the file. */
static int apply_file(struct mc_options *o, void *conf)
{
	const struct mc_opt_row *row = mc_opt_find(o->prog, "config_path");
	struct file_target t = { .o = o, .conf = conf };
	const char *path;

	if (!row || row->type != MC_OPT_STR)
		return 0;
	path = o->args[index_of(o, row)];
	if (!path)
		path = from_env(row);
	if (!path)
		path = row->def;
	if (!path || !*path)
		return 0;
	o->file = strdup(path);
	if (!o->file)
		return mc_fail(-ENOMEM, "no memory for the options");
	return mc_conf_read(path, apply_pair, &t);
}

static int apply_env(struct mc_options *o, void *conf)
{
	for (const struct mc_opt_row *row = o->prog->rows; row->name; row++) {
		const char *v = from_env(row);
		int r = v ? apply_text(o, conf, row, v, MC_ORIGIN_ENV) : 0;

		if (r < 0)
			return mc_fail(r, "environment variable %s: %s", row->env, mc_err_detail(r));
	}
	return 0;
}

static int apply_args(struct mc_options *o, void *conf)
{
	for (const struct mc_opt_row *row = o->prog->rows; row->name; row++) {
		const char *v = o->args[index_of(o, row)];
		int r = v ? apply_text(o, conf, row, v, MC_ORIGIN_ARG) : 0;

		if (r < 0)
			return mc_fail(r, "--%s: %s", row->name, mc_err_detail(r));
	}
	return 0;
}

static int apply_all(struct mc_options *o, void *conf)
{
	int r = apply_defaults(o, conf);

	if (r == 0)
		r = apply_file(o, conf);
	if (r == 0)
		r = apply_env(o, conf);
	return r == 0 ? apply_args(o, conf) : r;
}

/* ---- the result ---- */

static struct mc_options *options_new(const struct mc_program *prog, int argc)
{
	struct mc_options *o = calloc(1, sizeof(*o));
	size_t n = 0;

	if (!o)
		return NULL;
	while (prog->rows[n].name)
		n++;
	o->prog = prog;
	o->n_rows = n;
	o->origins = calloc(n + 1, sizeof(*o->origins));
	o->strings = calloc(n + 1, sizeof(*o->strings));
	o->args = calloc(n + 1, sizeof(*o->args));
	o->in_file = calloc(n + 1, sizeof(*o->in_file));
	o->rest = calloc((size_t)argc + 1, sizeof(*o->rest));
	if (o->origins && o->strings && o->args && o->in_file && o->rest)
		return o;
	mc_options_free(o);
	return NULL;
}

void mc_options_free(struct mc_options *o)
{
	if (!o)
		return;
	for (size_t i = 0; i < o->n_rows; i++) {
		if (o->strings)
			free(o->strings[i]);
		if (o->args)
			free(o->args[i]);
	}
	for (int i = 0; i < o->n_rest; i++)
		free(o->rest[i]);
	for (size_t i = 0; i < o->n_notes; i++)
		free(o->notes[i]);
	mc_opt_unknown_free(o);
	free(o->notes);
	free(o->origins);
	free(o->strings);
	free(o->args);
	free(o->in_file);
	free(o->rest);
	free(o->file);
	free(o);
}

/* 1, or an error if the output could not be written. */
static int show_end(void)
{
	return fflush(stdout) || ferror(stdout) ?
		mc_fail(-EIO, "cannot write to standard output: %s", strerror(errno)) : 1;
}

static int show_text(const struct mc_options *o)
{
	if (o->show == MC_SHOW_HELP)
		mc_opt_help(o->prog, stdout);
	else if (o->show == MC_SHOW_MAN)
		mc_opt_man(o->prog, stdout);
	else
		mc_opt_version(o->prog, stdout);
	return show_end();
}

/* Clear the pointers in @conf to strings that are freed with @o. */
static void forget_strings(const struct mc_options *o, void *conf)
{
	for (const struct mc_opt_row *row = o->prog->rows; row->name; row++)
		if (o->strings[index_of(o, row)])
			*(char **)field_of(conf, row) = NULL;
}

int mc_options_parse(const struct mc_program *prog, int argc, char **argv, void *conf,
		     struct mc_options **ret)
{
	struct mc_options *o = options_new(prog, argc > 0 ? argc : 0);
	int r;

	if (!o)
		return mc_fail(-ENOMEM, "no memory for the options");
	r = parse_args(o, argc, argv);
	/* Show help even if the arguments behind it are invalid. */
	if (o->show != MC_SHOW_NOTHING && o->show != MC_SHOW_CONFIG) {
		r = show_text(o);
		mc_options_free(o);
		return r;
	}
	if (r == 0)
		r = apply_all(o, conf);
	if (r == 0 && o->show == MC_SHOW_CONFIG) {
		r = mc_options_print(o, conf, stdout);
		r = r < 0 ? r : show_end();
	}
	if (r == 0) {
		*ret = o;
		return 0;
	}
	for (size_t i = 0; i < o->n_notes; i++)
		fprintf(stderr, "%s: warning: %s\n", prog->name, o->notes[i]);
	forget_strings(o, conf);
	mc_options_free(o);
	return r;
}

void mc_options_report(const struct mc_options *o)
{
	for (size_t i = 0; i < o->n_notes; i++) {
		struct mc_log_site site = { 0 };

		if (mc_log_on("options", MC_LOG_WARN))
			mc_log_write(&site, "options", MC_LOG_WARN, "%s", o->notes[i]);
	}
}

int mc_options_argc(const struct mc_options *o)
{
	return o->n_rest;
}

const char *mc_options_argv(const struct mc_options *o, int i)
{
	return i >= 0 && i < o->n_rest ? o->rest[i] : NULL;
}

enum mc_opt_origin mc_options_origin(const struct mc_options *o, const char *name)
{
	const struct mc_opt_row *row = mc_opt_find(o->prog, name);

	return row ? o->origins[index_of(o, row)] : MC_ORIGIN_DEFAULT;
}
