/* SPDX-License-Identifier: Apache-2.0
 * mcctl_key.c - keys as text and back. */
#include <config.h>

#include "tools/mcctl.h"

#include <stdlib.h>
#include <string.h>

#define KEY_MAX 4096

static const char digits[] = "0123456789ABCDEF";

static bool is_odd(unsigned char c)
{
	return c < 0x20 || c == 0x7f || c == '%';
}

/* @ascii: escape all that is not ASCII as well. */
static char *escape(struct mcs_key key, bool ascii, size_t *ret_len)
{
	const unsigned char *in = key.data;
	char *text = malloc(3 * key.len + 1), *p = text;

	if (!text)
		return NULL;
	for (size_t i = 0; i < key.len; i++) {
		if (is_odd(in[i]) || (ascii && in[i] >= 0x80)) {
			*p++ = '%';
			*p++ = digits[in[i] >> 4];
			*p++ = digits[in[i] & 15];
		} else {
			*p++ = (char)in[i];
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
		return escape(key, false, ret_len);
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
	const unsigned char *in = key.data;

	if (raw) {
		fwrite(in, 1, key.len, to);
		return;
	}
	for (size_t i = 0; i < key.len; i++) {
		if (is_odd(in[i]))
			fprintf(to, "%%%02X", in[i]);
		else
			putc(in[i], to);
	}
}

json_t *mcctl_key_json(struct mcs_key key)
{
	json_t *j = NULL;
	size_t len;
	char *text = escape(key, false, &len);

	if (text)
		j = json_stringn(text, len);
	if (text && !j) {
		free(text);
		text = escape(key, true, &len);
		j = text ? json_stringn(text, len) : NULL;
	}
	free(text);
	return j;
}

static int hex(char c)
{
	const char *p;

	if (c >= 'a' && c <= 'f')
		c = (char)(c - 'a' + 'A');
	p = c ? strchr(digits, c) : NULL;
	return p ? (int)(p - digits) : -1;
}

enum mcctl_status mcctl_prefix_parse(const struct mcctl *c, const char *arg, struct mcs_key *ret)
{
	char *data = malloc(strlen(arg) + 1), *p = data;

	if (!data)
		return mcctl_complain(MCCTL_FAILED, "out of memory");
	for (const char *s = arg; *s; s++) {
		if (*s != '%' || c->conf->raw) {
			*p++ = *s;
			continue;
		}
		if (hex(s[1]) < 0 || hex(s[2]) < 0) {
			free(data);
			return mcctl_complain(MCCTL_USAGE, "key \"%s\": two hexadecimal digits "
					      "follow a '%%'; write %%25 for the sign itself, or "
					      "use --raw", arg);
		}
		*p++ = (char)(hex(s[1]) << 4 | hex(s[2]));
		s += 2;
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
