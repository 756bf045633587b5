/* SPDX-License-Identifier: Apache-2.0
 * keymap.c - conversion of keys to paths. The mapping is injective: an escape that a key contains literally
 * gets "25" inserted after its '%', and an escape that already has "25" gets one more. An escape therefore is
 * '%', any number of "25", and its tail. */
#include <config.h>
#include "mcfs/keymap.h"

#include <errno.h>
#include <string.h>

/* Components that a path cannot contain, and the tails of their escapes. */
static const struct special {
	const char *comp, *tail;
	bool top_only;
} specials[] = {
	{ "", "_", false },
	{ ".", "2E", false },
	{ "..", "2E%2E", false },
	{ MCFS_CONTROL_NAME, "2Emcfs", true },
};
#define NSPECIALS (sizeof(specials) / sizeof(specials[0]))

/* Count the "25" from @p on, up to @end; *ret_rest points behind them. */
static size_t escape_quotes(const char *p, const char *end, const char **ret_rest)
{
	size_t n = 0;

	while (end - p >= 2 && p[0] == '2' && p[1] == '5') {
		p += 2;
		n++;
	}
	*ret_rest = p;
	return n;
}

/* Is [p, end) '%' + "25"* + the tail of a special component? *ret_quotes: the number of "25". */
static const struct special *whole_escape(const char *p, const char *end, bool top, size_t *ret_quotes)
{
	const char *rest;

	if (p == end || *p != '%')
		return NULL;
	*ret_quotes = escape_quotes(p + 1, end, &rest);
	for (size_t i = 0; i < NSPECIALS; i++) {
		size_t len = strlen(specials[i].tail);

		if (specials[i].top_only && !top)
			continue;
		if ((size_t)(end - rest) == len && memcmp(rest, specials[i].tail, len) == 0)
			return &specials[i];
	}
	return NULL;
}

/* Does a '%' at @p begin an escape of NUL, plain or quoted? */
static bool nul_escape(const char *p, const char *end, size_t *ret_quotes)
{
	const char *rest;

	*ret_quotes = escape_quotes(p + 1, end, &rest);
	return end - rest >= 2 && rest[0] == '0' && rest[1] == '0';
}

struct out {
	char *to;
	size_t len, size;
};

static void out_put(struct out *o, const char *s, size_t len)
{
	if (o->len + len <= o->size)
		memcpy(o->to + o->len, s, len);
	o->len += len;
}

int mcfs_name_encode(const void *comp, size_t len, bool top, char *ret, size_t size)
{
	const char *p = comp, *end = p + len;
	struct out o = { ret, 0, size - 1 };
	size_t n;

	for (size_t i = 0; i < NSPECIALS; i++) {
		if ((specials[i].top_only && !top) || strlen(specials[i].comp) != len ||
		    memcmp(specials[i].comp, p, len) != 0)
			continue;
		out_put(&o, "%", 1);
		out_put(&o, specials[i].tail, strlen(specials[i].tail));
		p = end;
		goto done;
	}
	if (whole_escape(p, end, top, &n)) {
		out_put(&o, "%25", 3);
		p++;
	}
	for (; p < end; p++) {
		if (*p == '\0')
			out_put(&o, "%00", 3);
		else if (*p == '%' && nul_escape(p, end, &n))
			out_put(&o, "%25", 3);
		else
			out_put(&o, p, 1);
	}
done:
	if (o.len > o.size)
		return -ENAMETOOLONG;
	ret[o.len] = '\0';
	return (int)o.len;
}

int mcfs_name_decode(const char *name, bool top, void *ret, size_t size)
{
	const char *p = name, *end = p + strlen(name);
	struct out o = { ret, 0, size };
	const struct special *sp;
	size_t n;

	sp = whole_escape(p, end, top, &n);
	if (sp && n == 0) {
		out_put(&o, sp->comp, strlen(sp->comp));
		p = end;
	} else if (sp) {
		out_put(&o, "%", 1);
		p += 3;
	}
	while (p < end) {
		if (*p != '%' || !nul_escape(p, end, &n)) {
			out_put(&o, p++, 1);
		} else if (n == 0) {
			out_put(&o, "", 1);
			p += 3;
		} else {
			out_put(&o, "%", 1);
			p += 3;
		}
	}
	return o.len > o.size ? -ENAMETOOLONG : (int)o.len;
}

/* ---- one name for a whole key ---- */

/* Would the unescaped name mean another file? */
static bool is_dotted(const char *p, size_t len, bool top)
{
	const size_t control = strlen(MCFS_CONTROL_NAME);

	return (len == 1 && p[0] == '.') || (len == 2 && p[0] == '.' && p[1] == '.') ||
		(top && len == control && memcmp(p, MCFS_CONTROL_NAME, control) == 0);
}

int mcfs_flat_encode(const void *key, size_t len, bool top, char *ret, size_t size)
{
	const char *p = key;
	struct out o = { ret, 0, size - 1 };
	bool dots = is_dotted(p, len, top);

	for (size_t i = 0; i < len; i++) {
		switch (p[i]) {
		case '/': out_put(&o, "%2F", 3); break;
		case '%': out_put(&o, "%25", 3); break;
		case '\0': out_put(&o, "%00", 3); break;
		case '.': out_put(&o, dots ? "%2E" : ".", dots ? 3 : 1); break;
		default: out_put(&o, p + i, 1); break;
		}
	}
	if (o.len > o.size)
		return -ENAMETOOLONG;
	ret[o.len] = '\0';
	return (int)o.len;
}

int mcfs_flat_decode(const char *name, bool top, void *ret, size_t size)
{
	static const struct { char tail[3]; char byte; } escapes[] = {
		{ "2F", '/' }, { "25", '%' }, { "00", '\0' }, { "2E", '.' },
	};
	struct out o = { ret, 0, size };
	bool dotted = false;

	for (const char *p = name; *p; p++) {
		size_t i = 0;

		if (*p != '%') {
			out_put(&o, p, 1);
			continue;
		}
		while (i < 4 && strncmp(p + 1, escapes[i].tail, 2) != 0)
			i++;
		if (i == 4)
			return -ENOENT;
		out_put(&o, &escapes[i].byte, 1);
		dotted = dotted || i == 3;
		p += 2;
	}
	if (o.len > o.size)
		return -ENAMETOOLONG;
	/* Each key has exactly one name: dots are escaped only in the dotted names. */
	if (dotted != is_dotted(ret, o.len, top) || (dotted && strchr(name, '.')))
		return -ENOENT;
	return (int)o.len;
}

int mcfs_key_to_path(const void *key, size_t len, char *ret, size_t size)
{
	const char *p = key, *end = p + len;
	size_t done = 0;
	bool top = true;

	for (;;) {
		const char *slash = memchr(p, '/', (size_t)(end - p));
		const char *stop = slash ? slash : end;
		int r;

		/* A key that ends in '/' is shown as a directory, and the path ends there. */
		if (stop == end && p == end && !top)
			break;
		r = mcfs_name_encode(p, (size_t)(stop - p), top, ret + done, size - done);
		if (r < 0)
			return r;
		done += (size_t)r;
		if (!slash)
			break;
		if (size - done < 2)
			return -ENAMETOOLONG;
		ret[done++] = '/';
		p = slash + 1;
		top = false;
	}
	ret[done] = '\0';
	return (int)done;
}
