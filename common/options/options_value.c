/* SPDX-License-Identifier: Apache-2.0
 * options_value.c - conversion of values from text and to text. */
#include <config.h>

#include "common/options/options.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/options/options_i.h"

#define FRACTION_DIGITS 18

struct unit {
	const char *name;
	uint64_t factor;
};

/* Output uses the last of several names of a unit. */
static const struct unit size_units[] = {
	{ "B", 1 },
	{ "k", 1ull << 10 }, { "kb", 1ull << 10 }, { "KiB", 1ull << 10 },
	{ "m", 1ull << 20 }, { "mb", 1ull << 20 }, { "MiB", 1ull << 20 },
	{ "g", 1ull << 30 }, { "gb", 1ull << 30 }, { "GiB", 1ull << 30 },
	{ "t", 1ull << 40 }, { "tb", 1ull << 40 }, { "TiB", 1ull << 40 },
	{ "p", 1ull << 50 }, { "pb", 1ull << 50 }, { "PiB", 1ull << 50 },
	{ NULL, 0 },
};

static const struct unit time_units[] = {
	{ "ms", 1 }, { "sec", 1000 }, { "s", 1000 }, { "min", 60000 }, { "m", 60000 },
	{ "h", 3600000 }, { "d", 86400000 }, { NULL, 0 },
};

static const char *skip_space(const char *s)
{
	while (isspace((unsigned char)*s))
		s++;
	return s;
}

/* Length of @s without the blanks at its end. */
static size_t trimmed_len(const char *s)
{
	size_t n = strlen(s);

	while (n && isspace((unsigned char)s[n - 1]))
		n--;
	return n;
}

/* NUMBER[.FRACTION][ UNIT], exact.  A fraction is rounded up, so that a small value does not become
 * 0, which often means "off". */
static int parse_scaled(const char *s, const struct unit *units, uint64_t bare, uint64_t *ret)
{
	uint64_t whole = 0, fraction = 0, power = 1, factor = bare, v;
	bool has_fraction = false;
	unsigned __int128 part;
	size_t len;

	s = skip_space(s);
	if (!isdigit((unsigned char)*s))
		return -EINVAL;
	for (; isdigit((unsigned char)*s); s++)
		if (__builtin_mul_overflow(whole, 10, &whole) ||
		    __builtin_add_overflow(whole, (uint64_t)(*s - '0'), &whole))
			return -EINVAL;
	if (*s == '.') {
		has_fraction = true;
		if (!isdigit((unsigned char)*++s))
			return -EINVAL;
		for (int n = 0; isdigit((unsigned char)*s); s++, n++) {
			if (n == FRACTION_DIGITS)
				return -EINVAL;
			fraction = fraction * 10 + (uint64_t)(*s - '0');
			power *= 10;
		}
	}
	s = skip_space(s);
	len = trimmed_len(s);
	if (len) {
		for (; units->name; units++)
			if (strlen(units->name) == len && !strncasecmp(units->name, s, len))
				break;
		if (!units->name)
			return -EINVAL;
		factor = units->factor;
	} else if (has_fraction && bare == 1) {
		return -EINVAL;
	}
	part = ((unsigned __int128)fraction * factor + power - 1) / power;
	if (__builtin_mul_overflow(whole, factor, &v) || __builtin_add_overflow(v, (uint64_t)part, &v))
		return -EINVAL;
	*ret = v;
	return 0;
}

int mc_parse_size(const char *s, uint64_t *ret_bytes)
{
	return parse_scaled(s, size_units, 1, ret_bytes);
}

int mc_parse_duration(const char *s, uint64_t bare_unit_ms, uint64_t *ret_ms)
{
	return parse_scaled(s, time_units, bare_unit_ms, ret_ms);
}

int mc_parse_bool(const char *s, bool *ret)
{
	static const char *const words[] = {
		"false", "true", "0", "1", "no", "yes", "off", "on", "f", "t", "n", "y",
	};
	size_t len;

	s = skip_space(s);
	len = trimmed_len(s);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strlen(words[i]) == len && !strncasecmp(s, words[i], len)) {
			*ret = i & 1;
			return 0;
		}
	return -EINVAL;
}

static int parse_int(const char *s, int64_t *ret)
{
	char *end;
	int64_t v;

	s = skip_space(s);
	errno = 0;
	v = strtoll(s, &end, 10);
	if (errno || end == s || *skip_space(end))
		return -EINVAL;
	*ret = v;
	return 0;
}

static int parse_ratio(const char *s, double *ret)
{
	char *end;
	double v;

	s = skip_space(s);
	/* strtod() also accepts hexadecimal numbers, infinities and NaN. */
	if (!*s || strspn(s, "+-0123456789.eE") != trimmed_len(s))
		return -EINVAL;
	errno = 0;
	v = strtod(s, &end);
	if (end == s || *skip_space(end) || !isfinite(v))
		return -EINVAL;
	*ret = v;
	return 0;
}

static const char *format_number(enum mc_opt_type type, double v, char *buf, size_t len)
{
	if (type == MC_OPT_SIZE && v >= 0 && v < 0x1p63)
		return mc_format_size((uint64_t)v, buf, len);
	snprintf(buf, len, "%.15g%s", v, type == MC_OPT_MS || type == MC_OPT_SEC ? " ms" : "");
	return buf;
}

static int check_bounds(const struct mc_opt_row *row, double v, const char *text)
{
	char min[40], max[40];

	/* Equal bounds: no bounds. */
	if (row->min == row->max || (v >= row->min && v <= row->max))
		return 0;
	format_number(row->type, row->min, min, sizeof(min));
	format_number(row->type, row->max, max, sizeof(max));
	return mc_fail(-ERANGE, "\"%s\" is out of range, allowed is %s to %s", text, min, max);
}

static int bad_value(const char *text, const char *what)
{
	return mc_fail(-EINVAL, "\"%s\" is not %s", text, what);
}

static int set_number(const struct mc_opt_row *row, const char *text, void *field)
{
	int64_t i = 0;
	uint64_t u = 0;
	double d = 0;
	int r;

	switch (row->type) {
	case MC_OPT_INT:
		if (parse_int(text, &i) < 0)
			return bad_value(text, "a whole number");
		d = (double)i;
		break;
	case MC_OPT_SIZE:
		if (mc_parse_size(text, &u) < 0)
			return bad_value(text, "a size; write bytes or a unit, for example "
					 "1048576, 512MiB or 4GB");
		d = (double)u;
		break;
	case MC_OPT_MS:
	case MC_OPT_SEC:
		if (mc_parse_duration(text, row->type == MC_OPT_MS ? 1 : 1000, &u) < 0)
			return bad_value(text, row->type == MC_OPT_MS ?
					 "a duration; write milliseconds or a unit, for example "
					 "500, 500ms or 10s" :
					 "a duration; write seconds or a unit, for example "
					 "10, 500ms or 2m");
		d = (double)u;
		break;
	default:
		if (parse_ratio(text, &d) < 0)
			return bad_value(text, "a number, for example 0.95");
	}
	r = check_bounds(row, d, text);
	if (r < 0)
		return r;
	if (row->type == MC_OPT_INT)
		*(int64_t *)field = i;
	else if (row->type == MC_OPT_RATIO)
		*(double *)field = d;
	else
		*(uint64_t *)field = u;
	return 0;
}

int mc_opt_set(const struct mc_opt_row *row, const char *text, void *field, char **string)
{
	char *copy;

	if (row->type == MC_OPT_BOOL)
		return mc_parse_bool(text, field) < 0 ?
			bad_value(text, "true or false") : 0;
	if (row->type != MC_OPT_STR)
		return set_number(row, text, field);
	copy = strdup(text);
	if (!copy)
		return mc_fail(-ENOMEM, "no memory for a value");
	free(*string);
	*string = *(char **)field = copy;
	return 0;
}

static const char *format_exact(uint64_t v, const struct unit *units, char *buf, size_t len)
{
	const struct unit *best = units;

	for (; units->name; units++)
		if (units->factor >= best->factor && v && v % units->factor == 0)
			best = units;
	snprintf(buf, len, "%" PRIu64 "%s", v / best->factor, best->name);
	return buf;
}

const char *mc_opt_format(const struct mc_opt_row *row, const void *field, char *buf, size_t len)
{
	switch (row->type) {
	case MC_OPT_BOOL:
		return *(const bool *)field ? "true" : "false";
	case MC_OPT_INT:
		snprintf(buf, len, "%" PRId64, *(const int64_t *)field);
		return buf;
	case MC_OPT_SIZE:
		return format_exact(*(const uint64_t *)field, size_units, buf, len);
	case MC_OPT_MS:
	case MC_OPT_SEC:
		return format_exact(*(const uint64_t *)field, time_units, buf, len);
	case MC_OPT_RATIO:
		snprintf(buf, len, "%.15g", *(const double *)field);
		return buf;
	case MC_OPT_STR:
		break;
	}
	return *(char *const *)field;
}

const char *mc_format_size(uint64_t bytes, char *buf, size_t len)
{
	static const char names[][4] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	unsigned i = 0;
	double v;

	while (i < 6 && bytes >> (10 * (i + 1)))
		i++;
	v = (double)bytes / (double)(1ull << (10 * i));
	/* 1023.96 KiB must not be shown as 1024.0 KiB. */
	if (v >= 1023.95 && i < 6) {
		v = 1;
		i++;
	}
	if (bytes % (1ull << (10 * i)) == 0)
		snprintf(buf, len, "%.0f %s", v, names[i]);
	else
		snprintf(buf, len, "%.1f %s", v, names[i]);
	return buf;
}
