/* SPDX-License-Identifier: Apache-2.0
 * base64.c - base64 by RFC 4648, with padding. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "meta/meta_i.h"

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *mcd_base64_encode(const void *p, size_t len)
{
	const unsigned char *in = p;
	char *text = malloc((len + 2) / 3 * 4 + 1), *out = text;
	unsigned v;

	if (!text)
		return NULL;
	for (size_t i = 0; i < len; i += 3) {
		v = (unsigned)in[i] << 16;
		if (i + 1 < len)
			v |= (unsigned)in[i + 1] << 8;
		if (i + 2 < len)
			v |= in[i + 2];
		*out++ = digits[v >> 18];
		*out++ = digits[v >> 12 & 63];
		*out++ = i + 1 < len ? digits[v >> 6 & 63] : '=';
		*out++ = i + 2 < len ? digits[v & 63] : '=';
	}
	*out = '\0';
	return text;
}

static int digit_value(char c)
{
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

int mcd_base64_decode(const char *text, char **ret, size_t *ret_len)
{
	size_t len = strlen(text), padding = 0, n = 0;
	unsigned v = 0;
	char *out;
	int d;

	while (padding < 2 && len && text[len - 1] == '=') {
		len--;
		padding++;
	}
	if ((len + padding) % 4)
		return mc_fail(-EINVAL, "invalid base64: %zu characters", len + padding);
	out = malloc(len / 4 * 3 + 4);
	if (!out)
		return mc_fail(-ENOMEM, "no memory for %zu bytes of base64", len);
	for (size_t i = 0; i < len; i++) {
		d = digit_value(text[i]);
		if (d < 0) {
			free(out);
			return mc_fail(-EINVAL, "invalid base64: character 0x%02x", (unsigned char)text[i]);
		}
		v = v << 6 | (unsigned)d;
		if (i % 4)
			out[n++] = (char)(v >> (6 - 2 * (i % 4)));
	}
	out[n] = '\0';
	*ret = out;
	*ret_len = n;
	return 0;
}
