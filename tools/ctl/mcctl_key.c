/* SPDX-License-Identifier: Apache-2.0
 * mcctl_key.c - keys as text and back. */
#include <config.h>

#include "tools/ctl/mcctl.h"

#include <stdlib.h>
#include <string.h>

#define KEY_MAX 4096

static const char digits[] = "0123456789ABCDEF";

static int hex_digit(unsigned char c)
{
	const char *p;

	if (c >= 'a' && c <= 'f')
		c = (unsigned char)(c - 'a' + 'A');
	p = c ? strchr(digits, c) : NULL;
	return p ? (int)(p - digits) : -1;
}

static bool is_control(unsigned char c)
{
	return c < 0x20 || c == 0x7f;
}

/* Does an escape begin at @p: '%', any number of "25", two digits of a byte that is not printable ASCII?
 * Returns the byte or -1; *ret_quoted: it contains a "25". */
static int escape_at(const unsigned char *p, const unsigned char *end, bool *ret_quoted)
{
	int byte;

	if (p == end || *p++ != '%')
		return -1;
	*ret_quoted = false;
	while (end - p >= 4 && p[0] == '2' && p[1] == '5') {
		*ret_quoted = true;
		p += 2;
	}
	if (end - p < 2 || hex_digit(p[0]) < 0 || hex_digit(p[1]) < 0)
		return -1;
	byte = hex_digit(p[0]) << 4 | hex_digit(p[1]);
	return is_control((unsigned char)byte) || byte >= 0x80 ? byte : -1;
}

/* @ascii: escape all bytes that are not ASCII too. */
static char *escape_key(struct mcs_key key, bool ascii, size_t *ret_len)
{
	const unsigned char *in = key.data, *end = in + key.len;
	char *text = malloc(3 * key.len + 1), *p = text;
	bool quoted;

	if (!text)
		return NULL;
	for (; in < end; in++) {
		if (is_control(*in) || (ascii && *in >= 0x80)) {
			*p++ = '%';
			*p++ = digits[*in >> 4];
			*p++ = digits[*in & 15];
			continue;
		}
		*p++ = (char)*in;
		/* A literal "%XX" in the key must not be decoded as an escape. */
		if (*in == '%' && escape_at(in, end, &quoted) >= 0) {
			*p++ = '2';
			*p++ = '5';
		}
	}
	*p = '\0';
	*ret_len = (size_t)(p - text);
	return text;
}

char *mcctl_key_text(bool raw, struct mcs_key key, size_t *ret_len)
{
	char *text;

	if (!raw)
		return escape_key(key, false, ret_len);
	text = malloc(key.len + 1);
	if (!text)
		return NULL;
	if (key.len)
		memcpy(text, key.data, key.len);
	text[key.len] = '\0';
	*ret_len = key.len;
	return text;
}

void mcctl_key_print(bool raw, struct mcs_key key, FILE *to)
{
	size_t len;
	char *text = mcctl_key_text(raw, key, &len);

	/* Out of memory: print the raw bytes rather than nothing. */
	if (text)
		fwrite(text, 1, len, to);
	else
		fwrite(key.data, 1, key.len, to);
	free(text);
}

json_t *mcctl_key_json(struct mcs_key key)
{
	json_t *j = NULL;
	size_t len;
	char *text = escape_key(key, false, &len);

	if (text)
		j = json_stringn(text, len);
	if (text && !j) {
		free(text);
		text = escape_key(key, true, &len);
		j = text ? json_stringn(text, len) : NULL;
	}
	free(text);
	return j;
}

enum mcctl_status mcctl_prefix_parse(const struct mcctl *c, const char *arg, struct mcs_key *ret)
{
	const unsigned char *in = (const unsigned char *)arg, *end = in + strlen(arg);
	char *data = malloc(strlen(arg) + 1), *p = data;
	bool quoted;
	int byte;

	if (!data)
		return mcctl_complain(MCCTL_FAILED, "out of memory");
	while (in < end) {
		byte = c->conf->raw ? -1 : escape_at(in, end, &quoted);
		*p++ = byte < 0 || quoted ? (char)*in : (char)byte;
		in += byte < 0 ? 1 : 3;
	}
	if (p - data > KEY_MAX) {
		free(data);
		return mcctl_complain(MCCTL_USAGE, "key \"%.40s...\" is %zu bytes long, %d are "
				      "allowed", arg, strlen(arg), KEY_MAX);
	}
	ret->data = data;
	ret->len = (size_t)(p - data);
	return MCCTL_OK;
}

enum mcctl_status mcctl_key_parse(const struct mcctl *c, const char *arg, struct mcs_key *ret)
{
	if (!*arg)
		return mcctl_complain(MCCTL_USAGE, "a key cannot be empty");
	return mcctl_prefix_parse(c, arg, ret);
}

void mcctl_key_free(struct mcs_key *key)
{
	free((void *)key->data);
	key->data = NULL;
	key->len = 0;
}
