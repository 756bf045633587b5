/* SPDX-License-Identifier: Apache-2.0
 * options_gflags.c - options that gflags gives to every program: flag files, flags from the environment, and flags
 * that may be unknown. */
#include <config.h>

#include "common/options/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/options/options_i.h"

#define FLAGFILE_DEPTH_MAX 4

struct mc_opt_unknown {
	char *name, *why;
	int err;
};

/* ---- flag files ---- */

static int flagfile_line(struct mc_options *o, const char *path, char *line, size_t len)
{
	bool used;
	int r;

	while (len && isspace((unsigned char)line[len - 1]))
		line[--len] = '\0';
	while (isspace((unsigned char)*line))
		line++;
	if (!*line || *line == '#')
		return 0;
	r = *line == '-' ? mc_opt_parse_flag(o, line, NULL, &used) :
		mc_fail(-EINVAL, "\"%s\" is not an option, write --NAME=VALUE", line);
	return r < 0 ? mc_fail(r, "flag file %s: %s", path, mc_err_detail(r)) : r;
}

int mc_opt_flagfile(struct mc_options *o, const char *path)
{
	const char *outer = o->flagfile;
	char *line = NULL;
	size_t size = 0;
	ssize_t n;
	FILE *f;
	int r = 0;

	if (o->flagfile_depth == FLAGFILE_DEPTH_MAX)
		return mc_fail(-ELOOP, "flag file %s: flag files include each other", path);
	f = fopen(path, "re");
	if (!f)
		return mc_fail(-errno, "cannot read flag file %s: %s", path, mc_strerror(errno));
	o->flagfile_depth++;
	o->flagfile = path;
	while (r == 0 && (n = getline(&line, &size, f)) >= 0)
		r = flagfile_line(o, path, line, (size_t)n);
	if (r == 0 && ferror(f))
		r = mc_fail(-EIO, "cannot read flag file %s", path);
	o->flagfile_depth--;
	o->flagfile = outer;
	free(line);
	fclose(f);
	return r;
}

/* ---- lists of names ---- */

/* Call @fn for each name of the list. */
static int names_each(struct mc_options *o, const char *names, int (*fn)(struct mc_options *o, const char *name))
{
	auto_free char *copy = strdup(names);
	char *rest = copy, *name;
	int r = 0;

	if (!copy)
		return mc_fail(-ENOMEM, "no memory for the options");
	while (r == 0 && (name = strsep(&rest, ",")))
		if (*name)
			r = fn(o, name);
	return r;
}

/* ---- flags from the environment ---- */

/* 1: there is no such variable. */
static int env_take(struct mc_options *o, const char *name)
{
	auto_free char *variable = NULL, *token = NULL;
	const char *value;
	bool used;
	int r;

	if (mc_opt_name_equal(name, "fromenv") || mc_opt_name_equal(name, "tryfromenv"))
		return mc_fail(-EINVAL, "--%s cannot be in the environment", name);
	if (asprintf(&variable, "FLAGS_%s", name) < 0)
		return mc_fail(-ENOMEM, "no memory for the options");
	for (char *c = variable; *c; c++)
		*c = *c == '-' ? '_' : *c;
	value = getenv(variable);
	if (!value)
		return 1;
	if (asprintf(&token, "--%s=%s", name, value) < 0)
		return mc_fail(-ENOMEM, "no memory for the options");
	r = mc_opt_parse_flag(o, token, NULL, &used);
	return r < 0 ? mc_fail(r, "environment variable %s: %s", variable, mc_err_detail(r)) : 0;
}

static int env_need(struct mc_options *o, const char *name)
{
	int r = env_take(o, name);

	return r > 0 ? mc_fail(-EINVAL, "--fromenv=%s: the environment variable FLAGS_%s is not set", name, name) : r;
}

static int env_try(struct mc_options *o, const char *name)
{
	int r = env_take(o, name);

	return r > 0 ? 0 : r;
}

int mc_opt_fromenv(struct mc_options *o, const char *names)
{
	return names_each(o, names, env_need);
}

int mc_opt_tryfromenv(struct mc_options *o, const char *names)
{
	return names_each(o, names, env_try);
}

/* ---- flags that may be unknown ---- */

static int undefok_add(struct mc_options *o, const char *name)
{
	char **more = realloc(o->undefok, (o->n_undefok + 1) * sizeof(*more));
	char *copy = strdup(name);

	if (more)
		o->undefok = more;
	if (!more || !copy) {
		free(copy);
		return mc_fail(-ENOMEM, "no memory for the options");
	}
	o->undefok[o->n_undefok++] = copy;
	return 0;
}

int mc_opt_undefok(struct mc_options *o, const char *names)
{
	return names_each(o, names, undefok_add);
}

int mc_opt_unknown_keep(struct mc_options *o, const char *name, int err)
{
	struct mc_opt_unknown *more, u = { .err = err };

	if (o->prog->strict)
		return err;
	if (asprintf(&u.why, "%s%s%s%s", o->flagfile ? "flag file " : "", o->flagfile ? o->flagfile : "",
		     o->flagfile ? ": " : "", mc_err_detail(err)) < 0)
		u.why = NULL;
	u.name = strdup(name);
	more = realloc(o->unknown, (o->n_unknown + 1) * sizeof(*more));
	if (more)
		o->unknown = more;
	if (!more || !u.name || !u.why) {
		free(u.name);
		free(u.why);
		return mc_fail(-ENOMEM, "no memory for the options");
	}
	o->unknown[o->n_unknown++] = u;
	return 0;
}

/* gflags: the name of a switch stands for its negation too. */
static bool unknown_allowed(const struct mc_options *o, const char *name)
{
	const char *off = mc_opt_negated(name);

	for (size_t i = 0; i < o->n_undefok; i++)
		if (mc_opt_name_equal(o->undefok[i], name) || (off && mc_opt_name_equal(o->undefok[i], off)))
			return true;
	return false;
}

int mc_opt_unknown_check(struct mc_options *o)
{
	int r = 0;

	for (size_t i = 0; i < o->n_unknown && r == 0; i++) {
		const struct mc_opt_unknown *u = &o->unknown[i];

		if (unknown_allowed(o, u->name))
			r = mc_opt_note(o, "--%s is ignored, as --undefok says: %s", u->name, u->why);
		else
			r = mc_fail(u->err, "%s", u->why);
	}
	return r;
}

void mc_opt_unknown_free(struct mc_options *o)
{
	for (size_t i = 0; i < o->n_unknown; i++) {
		free(o->unknown[i].name);
		free(o->unknown[i].why);
	}
	for (size_t i = 0; i < o->n_undefok; i++)
		free(o->undefok[i]);
	free(o->unknown);
	free(o->undefok);
}
