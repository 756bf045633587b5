/* SPDX-License-Identifier: Apache-2.0
 * kv_events_curve.c - files with keys of CURVE. */
#include <config.h>

#include "master/admin/kv_events_curve.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/security/secret_file.h"
#include "common/sys/file.h"
#include "master/admin/kv_events_zmq.h"

#define SECRET_FILE_MAX 4096u
#define CLIENTS_MAX (1u << 20)	/* bytes of the subscribers' file */
#define HEX_LEN (2 * MCM_KV_CURVE_KEY)
#define Z85_LEN (MCM_KV_CURVE_TEXT - 1)

/* ---- keys -------------------------------------------------------------------------------------- */

/* Z85: five digits of base 85 are four bytes, most significant first (ZeroMQ's RFC 32). */
static bool decode_z85(const char *text, uint8_t *ret)
{
	static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
		".-:+=^!/*?&<>()[]{}@%$#";

	for (unsigned i = 0; i < Z85_LEN; i += 5) {
		uint64_t v = 0;

		for (unsigned k = 0; k < 5; k++) {
			const char *digit = text[i + k] ? strchr(digits, text[i + k]) : NULL;

			if (!digit)
				return false;
			v = v * 85 + (uint64_t)(digit - digits);
		}
		if (v > UINT32_MAX)
			return false;
		for (unsigned k = 0; k < 4; k++)
			*ret++ = (uint8_t)(v >> (24 - 8 * k));
	}
	return true;
}

static bool decode_hex(const char *text, uint8_t *ret)
{
	char two[3] = "";
	unsigned v;

	for (unsigned i = 0; i < HEX_LEN; i += 2) {
		if (!isxdigit((unsigned char)text[i]) || !isxdigit((unsigned char)text[i + 1]))
			return false;
		memcpy(two, text + i, 2);
		sscanf(two, "%x", &v);
		*ret++ = (uint8_t)v;
	}
	return true;
}

bool mcm_kv_curve_decode(const char *text, size_t len, uint8_t ret[MCM_KV_CURVE_KEY])
{
	uint8_t key[MCM_KV_CURVE_KEY];
	bool is = len == Z85_LEN ? decode_z85(text, key) : len == HEX_LEN && decode_hex(text, key);

	if (is)
		memcpy(ret, key, sizeof(key));
	explicit_bzero(key, sizeof(key));
	return is;
}

/* ---- files ------------------------------------------------------------------------------------- */

/* The key in the next line that has one, and advance *at past it.  1; 0: there is no such line; -EINVAL: a line is
 * neither a key nor a comment.  A comment begins with "# ": '#' is also a digit of Z85. */
static int next_key(char **at, uint8_t ret[MCM_KV_CURVE_KEY])
{
	char *line;

	while ((line = strsep(at, "\n"))) {
		size_t len = strcspn(line, " \t\r");

		if (!line[len + strspn(line + len, " \t\r")] && !len)
			continue;
		if (*line == '#' && len == 1)
			continue;
		return mcm_kv_curve_decode(line, len, ret) ? 1 : -EINVAL;
	}
	return 0;
}

int mcm_kv_curve_secret(const char *path, uint8_t ret[MCM_KV_CURVE_KEY])
{
	char text[SECRET_FILE_MAX], *at = text;
	int r = mc_secret_file_read(path, text, sizeof(text));

	if (r < 0)
		return r;
	r = next_key(&at, ret);
	explicit_bzero(text, sizeof(text));
	return r == 1 ? 0 : mc_fail(-EINVAL, "%s has no secret key: it is 40 characters of Z85 or 64 hex digits", path);
}

/* The text of the subscribers' file, NUL-terminated; the caller frees it. */
static int clients_read(const char *path, char **ret)
{
	int fd = mc_file_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0), r = 0;
	char *text = NULL;
	struct stat st;
	ssize_t n;

	if (fd < 0)
		return mc_fail(-errno, "cannot read %s: %s", path, mc_strerror(errno));
	if (mc_file_fstat(fd, &st) < 0)
		r = mc_fail(-errno, "cannot read %s: %s", path, mc_strerror(errno));
	else if (!S_ISREG(st.st_mode) || st.st_mode & 022)
		r = mc_fail(-EACCES, "%s must be a file that only its owner can write: chmod 644 %s", path, path);
	else if (st.st_size > (off_t)CLIENTS_MAX)
		r = mc_fail(-EFBIG, "%s is longer than %u bytes", path, CLIENTS_MAX);
	else if (!(text = calloc(1, (size_t)st.st_size + 1)))
		r = mc_fail(-ENOMEM, "no memory for %s", path);
	if (r == 0) {
		n = mc_file_read(fd, text, (size_t)st.st_size);
		if (n != st.st_size)
			r = mc_fail(n < 0 ? -errno : -EIO, "cannot read %s: %s", path,
				    n < 0 ? mc_strerror(errno) : "it changes");
	}
	mc_file_close(fd);
	if (r < 0) {
		free(text);
		return r;
	}
	*ret = text;
	return 0;
}

int mcm_kv_curve_allows(const char *path, const uint8_t *key)
{
	uint8_t listed[MCM_KV_CURVE_KEY];
	auto_free char *text = NULL;
	bool found = false;
	int r = clients_read(path, &text);
	char *at = text;

	if (r < 0)
		return r;
	while ((r = next_key(&at, listed)) == 1)
		found |= key && !memcmp(key, listed, sizeof(listed));
	if (r < 0)
		return mc_fail(r, "%s has a line without a public key: one is 40 characters of Z85 or 64 hex digits",
			       path);
	return found;
}

/* ---- a new pair -------------------------------------------------------------------------------- */

int mcm_kv_curve_keygen(const char *path, char ret_public[MCM_KV_CURVE_TEXT])
{
	char secret[MCM_KV_CURVE_TEXT], public[MCM_KV_CURVE_TEXT], text[2 * MCM_KV_CURVE_TEXT + 64];
	int r = mcm_zmq_curve_pair(public, secret), fd, n;

	if (r < 0)
		return r;
	fd = mc_file_open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0) {
		explicit_bzero(secret, sizeof(secret));
		return mc_fail(-errno, "cannot create %s: %s", path, mc_strerror(errno));
	}
	n = snprintf(text, sizeof(text), "# secret key of CURVE; its public key is %s\n%s\n", public, secret);
	if (mc_file_write(fd, text, (size_t)n) != n || mc_file_fsync(fd) < 0)
		r = mc_fail(-EIO, "cannot write %s", path);
	mc_file_close(fd);
	explicit_bzero(secret, sizeof(secret));
	explicit_bzero(text, sizeof(text));
	if (r < 0) {
		(void)mc_file_unlink(path);
		return r;
	}
	memcpy(ret_public, public, sizeof(public));
	return 0;
}
