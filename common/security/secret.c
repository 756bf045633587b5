/* SPDX-License-Identifier: Apache-2.0
 * secret.c - the files of the cluster's secret and of credentials, and bearer tokens. */
#include <config.h>

#include "common/security/secret.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/env.h"
#include "common/err.h"
#include "common/security/secret_memory.h"
#include "common/sys/clock.h"
#include "common/sys/file.h"
#include "common/sys/random.h"

#define FILE_MAX_BYTES 4096u

struct mc_secrets {
	char cluster[MC_CLUSTER_NAME_MAX + 1];
	unsigned n;
	struct {
		uint32_t number;
		uint8_t key[MC_KEY_LEN];
	} at[MC_SECRETS_MAX];		/* newest first */
};

/* ---- hexadecimal keys -------------------------------------------------------------------------- */

static void key_to_hex(const uint8_t key[MC_KEY_LEN], char ret[2 * MC_KEY_LEN + 1])
{
	for (unsigned i = 0; i < MC_KEY_LEN; i++)
		snprintf(ret + 2 * i, 3, "%02x", key[i]);
}

static bool key_from_hex(const char *hex, uint8_t ret[MC_KEY_LEN])
{
	static const char digits[] = "0123456789abcdef";

	if (strlen(hex) != 2 * MC_KEY_LEN || strspn(hex, digits) != 2 * MC_KEY_LEN)
		return false;
	for (unsigned i = 0; i < MC_KEY_LEN; i++)
		ret[i] = (uint8_t)((strchr(digits, hex[2 * i]) - digits) << 4 |
				   (strchr(digits, hex[2 * i + 1]) - digits));
	return true;
}

/* ---- files ------------------------------------------------------------------------------------- */

static int file_write_all(int fd, const char *text, size_t len)
{
	while (len) {
		ssize_t n = mc_file_write(fd, text, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		text += n;
		len -= (size_t)n;
	}
	return mc_file_fsync(fd);
}

/* Write a file of mode 0600 that does not exist. */
static int file_create(const char *path, const char *text, size_t len)
{
	int fd = mc_file_open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int err;

	if (fd < 0)
		return mc_fail(-errno, "cannot create %s: %s", path, mc_strerror(errno));
	if (file_write_all(fd, text, len) == 0) {
		mc_file_close(fd);
		return 0;
	}
	err = errno;
	mc_file_close(fd);
	(void)mc_file_unlink(path);
	return mc_fail(-err, "cannot write %s: %s", path, mc_strerror(err));
}

/* The words of the next line that is neither empty nor a comment; *@text advances.  Number of words, 0: the end. */
static unsigned line_words(char **text, char *word[], unsigned max)
{
	char *line, *w;
	unsigned n = 0;

	while (!n && (line = strsep(text, "\n"))) {
		if (*line == '#')
			continue;
		while ((w = strsep(&line, " \t\r")))
			if (*w && n++ < max)
				word[n - 1] = w;
	}
	return n;
}

/* ---- the cluster's secret ---------------------------------------------------------------------- */

static int secrets_save(const struct mc_secrets *s, const char *path)
{
	char text[512], hex[2 * MC_KEY_LEN + 1];
	int n, r;

	n = snprintf(text, sizeof(text), "# The secret of a mooncake-fs pool, for its masters only.\ncluster %s\n",
		     s->cluster);
	for (unsigned i = 0; i < s->n; i++) {
		key_to_hex(s->at[i].key, hex);
		n += snprintf(text + n, sizeof(text) - (size_t)n, "secret %u %s\n", s->at[i].number, hex);
	}
	r = file_create(path, text, (size_t)n);
	OPENSSL_cleanse(text, sizeof(text));
	OPENSSL_cleanse(hex, sizeof(hex));
	return r;
}

int mc_secrets_init(const char *path, const char *cluster)
{
	struct mc_secrets s = { .n = 1, .at[0].number = 1 };
	int r;

	if (!mc_identity_component(cluster, MC_CLUSTER_NAME_MAX))
		return mc_fail(-EINVAL, "the name of the pool (cluster_id) must have 1 to %u letters, digits or ._:@+-",
			       MC_CLUSTER_NAME_MAX);
	strcpy(s.cluster, cluster);
	r = mc_random_bytes(s.at[0].key, MC_KEY_LEN);
	if (r == 0)
		r = secrets_save(&s, path);
	/* Without this file nothing that the pool encrypts can be read. */
	if (r == 0)
		r = mc_file_sync_entry(path);
	OPENSSL_cleanse(&s, sizeof(s));
	return r;
}

int mc_secrets_rotate(const char *path)
{
	struct mc_secrets *s;
	char temporary[4096];
	int r;

	if ((size_t)snprintf(temporary, sizeof(temporary), "%s.new", path) >= sizeof(temporary))
		return mc_fail(-ENAMETOOLONG, "the name %s is too long", path);
	r = mc_secrets_load(path, &s);
	if (r < 0)
		return r;
	if (s->at[0].number == MC_SECRET_NUMBER_MAX)
		r = mc_fail(-ERANGE, "%s has secret %u, the last number: make a new pool secret (--init_security)",
			    path, MC_SECRET_NUMBER_MAX);
	s->at[1] = s->at[0];
	s->n = 2;
	s->at[0].number++;
	if (r == 0)
		r = mc_random_bytes(s->at[0].key, MC_KEY_LEN);
	if (r == 0)
		r = secrets_save(s, temporary);
	mc_secrets_free(s);
	if (r == 0 && mc_file_rename(temporary, path) < 0) {
		r = mc_fail(-errno, "cannot rename %s to %s: %s", temporary, path, mc_strerror(errno));
		(void)mc_file_unlink(temporary);
	}
	/* Credentials of the new secret must not outlive it. */
	return r < 0 ? r : mc_file_sync_entry(path);
}

/* The number of a secret in its only form: no sign, no leading zero.  0: it is not one. */
static uint32_t secret_number(const char *s)
{
	size_t digits = strspn(s, "0123456789");
	unsigned long n = digits <= 4 ? strtoul(s, NULL, 10) : 0;

	return s[digits] || *s == '0' || n > MC_SECRET_NUMBER_MAX ? 0 : (uint32_t)n;
}

static int secrets_parse(struct mc_secrets *s, char *text, const char *path)
{
	char *word[3];
	unsigned n;

	while ((n = line_words(&text, word, 3))) {
		unsigned at = s->n;

		if (n == 2 && !strcmp(word[0], "cluster") && !s->cluster[0] &&
		    mc_identity_component(word[1], MC_CLUSTER_NAME_MAX)) {
			strcpy(s->cluster, word[1]);
			continue;
		}
		if (n != 3 || strcmp(word[0], "secret") || at == MC_SECRETS_MAX)
			return mc_fail(-EINVAL, "%s: a line is neither the only \"cluster NAME\" nor one of at most %u "
				       "lines \"secret NUMBER HEX\"", path, MC_SECRETS_MAX);
		s->at[at].number = secret_number(word[1]);
		if (!s->at[at].number || (at && s->at[at].number >= s->at[at - 1].number) ||
		    !key_from_hex(word[2], s->at[at].key))
			return mc_fail(-EINVAL, "%s: secrets need falling numbers, 1 to %u, and 64 lower-case hex "
				       "digits", path, MC_SECRET_NUMBER_MAX);
		s->n++;
	}
	if (!s->n || !s->cluster[0])
		return mc_fail(-EINVAL, "%s has no secret, or no cluster; mooncake_master --init_security makes such a "
			       "file", path);
	return 0;
}

int mc_secrets_load(const char *path, struct mc_secrets **ret)
{
	struct mc_secrets *s = mc_secret_alloc(sizeof(*s));
	char *text = mc_secret_alloc(FILE_MAX_BYTES);
	int r = -ENOMEM;

	if (s && text)
		r = mc_secret_file_read(path, text, FILE_MAX_BYTES);
	if (r >= 0)
		r = secrets_parse(s, text, path);
	mc_secret_free(text, FILE_MAX_BYTES);
	if (r < 0) {
		mc_secrets_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

void mc_secrets_free(struct mc_secrets *s)
{
	mc_secret_free(s, sizeof(*s));
}

const char *mc_secrets_cluster(const struct mc_secrets *s)
{
	return s->cluster;
}

uint32_t mc_secrets_newest(const struct mc_secrets *s)
{
	return s->at[0].number;
}

bool mc_secrets_accepts(const struct mc_secrets *s, uint32_t number)
{
	for (unsigned i = 0; i < s->n; i++)
		if (s->at[i].number == number)
			return true;
	return false;
}

static const uint8_t *secrets_find(const struct mc_secrets *s, uint32_t number)
{
	for (unsigned i = 0; i < s->n; i++)
		if (s->at[i].number == number)
			return s->at[i].key;
	mc_fail(-EACCES, "made with secret %u of the pool, which is not accepted any more", number);
	return NULL;
}

int mc_secrets_key(const struct mc_secrets *s, const struct mc_identity *id, const char *text, uint8_t ret[MC_KEY_LEN])
{
	const uint8_t *secret;

	if (id->ticket)
		return mc_fail(-EACCES, "a ticket for the data port of node %s, which opens no other port", id->node);
	if (strcmp(id->cluster, s->cluster))
		return mc_fail(-EACCES, "a credential of pool %s, and this is pool %s", id->cluster, s->cluster);
	secret = secrets_find(s, id->secret);
	if (!secret)
		return -EACCES;
	mc_key_credential(secret, text, ret);
	return 0;
}

int mc_secrets_node_key(const struct mc_secrets *s, uint32_t number, const char *node, uint8_t ret[MC_KEY_LEN])
{
	const uint8_t *secret = secrets_find(s, number);

	if (!secret)
		return -EACCES;
	mc_key_node(secret, s->cluster, node, ret);
	return 0;
}

int mc_secrets_derive(const struct mc_secrets *s, uint32_t number, const char *purpose, const void *info, size_t len,
		      uint8_t ret[MC_KEY_LEN])
{
	const uint8_t *secret = secrets_find(s, number);

	if (!secret)
		return -EACCES;
	mc_key_derive(secret, purpose, info, len, ret);
	return 0;
}

/* ---- credentials ------------------------------------------------------------------------------- */

struct mc_credential *mc_credential_new(void)
{
	return mc_secret_alloc(sizeof(struct mc_credential));
}

void mc_credential_free(struct mc_credential *c)
{
	mc_secret_free(c, sizeof(*c));
}

static int credential_parse(struct mc_credential *c, char *text, const char *path)
{
	bool has_key = false;
	char *word[2];
	unsigned n;
	int r;

	while ((n = line_words(&text, word, 2))) {
		bool good = n == 2;

		if (good && !strcmp(word[0], "identity") && !c->text[0]) {
			r = mc_identity_parse(word[1], strlen(word[1]), &c->id);
			if (r < 0)
				return mc_fail(r, "%s: %s", path, strdupa(mc_err_detail(r)));
			strcpy(c->text, word[1]);
		} else if (good && !strcmp(word[0], "key") && !has_key) {
			has_key = good = key_from_hex(word[1], c->key);
		} else if (good && !strcmp(word[0], "node_key") && !c->has_node_key) {
			c->has_node_key = good = key_from_hex(word[1], c->node_key);
		} else {
			good = false;
		}
		if (!good)
			return mc_fail(-EINVAL, "%s: a line is not \"identity TEXT\", \"key HEX\" or \"node_key "
				       "HEX\", or comes twice", path);
	}
	if (!c->text[0] || !has_key)
		return mc_fail(-EINVAL, "%s is not a credential: it needs an identity and a key (mcctl credential "
			       "create)", path);
	return 0;
}

int mc_credential_load(const char *path, struct mc_credential *ret)
{
	char *text = mc_secret_alloc(FILE_MAX_BYTES);
	int r = text ? mc_secret_file_read(path, text, FILE_MAX_BYTES) : -ENOMEM;

	OPENSSL_cleanse(ret, sizeof(*ret));
	if (r >= 0)
		r = credential_parse(ret, text, path);
	mc_secret_free(text, FILE_MAX_BYTES);
	if (r < 0)
		OPENSSL_cleanse(ret, sizeof(*ret));
	return r < 0 ? r : 0;
}

static char *files_field(struct mc_credential_files *f, const char *word)
{
	return !strcmp(word, "cert") ? f->cert : !strcmp(word, "key_file") ? f->key : !strcmp(word, "ca") ? f->ca :
		!strcmp(word, "map") ? f->map : NULL;
}

static int files_parse(struct mc_credential_files *f, char *text, const char *path)
{
	char *word[2];
	unsigned n, lines = 0;

	for (; (n = line_words(&text, word, 2)); lines++) {
		char *to = files_field(f, word[0]);

		if (!lines && !to)
			return 0;
		if (n != 2 || !to || *to || word[1][0] != '/' || strlen(word[1]) >= MC_CERT_PATH_MAX)
			return mc_fail(-EINVAL, "%s: with certificates it has the lines cert, key_file, ca, map, each "
				       "once and with the absolute name of a file", path);
		strcpy(to, word[1]);
	}
	if (lines && lines != 4)
		return mc_fail(-EINVAL, "%s: a line cert, key_file, ca or map is missing", path);
	return lines != 0;
}

int mc_credential_files_load(const char *path, struct mc_credential_files *ret)
{
	char *text = mc_secret_alloc(FILE_MAX_BYTES);
	int r = text ? mc_secret_file_read(path, text, FILE_MAX_BYTES) : -ENOMEM;

	memset(ret, 0, sizeof(*ret));
	if (r >= 0)
		r = files_parse(ret, text, path);
	mc_secret_free(text, FILE_MAX_BYTES);
	return r;
}

int mc_credential_text(const struct mc_credential *c, char *ret, size_t size)
{
	char key[2 * MC_KEY_LEN + 1], node_key[2 * MC_KEY_LEN + 1] = "";
	int n;

	key_to_hex(c->key, key);
	if (c->has_node_key)
		key_to_hex(c->node_key, node_key);
	n = snprintf(ret, size, "# A credential of a mooncake-fs pool: role %s, tenant %s, name %s.  Keep it secret.\n"
		     "identity %s\nkey %s\n%s%s%s", mc_role_name(c->id.role), c->id.tenant, c->id.name, c->text, key,
		     c->has_node_key ? "node_key " : "", node_key, c->has_node_key ? "\n" : "");
	OPENSSL_cleanse(key, sizeof(key));
	OPENSSL_cleanse(node_key, sizeof(node_key));
	return n < (int)size ? n : mc_fail(-ENOBUFS, "the text of a credential needs %d bytes", n + 1);
}

int mc_credential_set(struct mc_credential *c, const void *text, size_t len, const void *key, size_t key_len)
{
	int r;

	if (len > MC_IDENTITY_MAX || key_len != MC_KEY_LEN)
		return mc_fail(-MC_EPROTO, "a credential or ticket of the master has a wrong size");
	r = mc_identity_parse(text, len, &c->id);
	if (r < 0)
		return r;
	memcpy(c->text, text, len);
	c->text[len] = '\0';
	memcpy(c->key, key, MC_KEY_LEN);
	return 0;
}

int mc_credential_save(const struct mc_credential *c, const char *path)
{
	char text[1024];
	int r = mc_credential_text(c, text, sizeof(text));

	if (r > 0)
		r = file_create(path, text, (size_t)r);
	OPENSSL_cleanse(text, sizeof(text));
	return r;
}

/* ---- bearer tokens ----------------------------------------------------------------------------- */

const char *mc_credential_path(void)
{
	return mc_env_str("MC_CREDENTIAL");
}

void mc_credential_use(const char *path)
{
	auto_free char *dir = *path && *path != '/' ? getcwd(NULL, 0) : NULL;
	auto_free char *whole = NULL;
	struct rlimit core;

	if (!*path)
		(void)unsetenv("MC_CREDENTIAL");
	else if (dir && asprintf(&whole, "%s/%s", dir, path) > 0)
		(void)setenv("MC_CREDENTIAL", whole, 1);
	else
		(void)setenv("MC_CREDENTIAL", path, 1);
	/* OpenSSL keeps values in its memory from which a peer's key follows. */
	if (*path && getrlimit(RLIMIT_CORE, &core) == 0) {
		core.rlim_cur = 0;
		(void)setrlimit(RLIMIT_CORE, &core);
	}
}

void mc_bearer_make(const struct mc_credential *c, char ret[MC_BEARER_MAX])
{
	uint8_t key[MC_KEY_LEN];
	size_t len = strlen(c->text);

	mc_key_bearer(c->key, c->text, key);
	memcpy(ret, c->text, len);
	ret[len] = '.';
	key_to_hex(key, ret + len + 1);
	OPENSSL_cleanse(key, sizeof(key));
}

int mc_bearer_check(const struct mc_secrets *s, const char *token, uint64_t now_s, struct mc_identity *ret)
{
	const char *dot = strrchr(token, '.');
	uint8_t want[MC_KEY_LEN], got[MC_KEY_LEN];
	char text[MC_IDENTITY_MAX + 1];
	int r;

	if (!dot || (size_t)(dot - token) > MC_IDENTITY_MAX || !key_from_hex(dot + 1, got))
		return mc_fail(-EACCES, "not a token of mcctl credential token");
	memcpy(text, token, (size_t)(dot - token));
	text[dot - token] = '\0';
	if (mc_identity_parse(text, strlen(text), ret) < 0)
		return mc_fail(-EACCES, "not a token of mcctl credential token");
	r = mc_secrets_key(s, ret, text, want);
	if (r == 0) {
		mc_key_bearer(want, text, want);
		if (CRYPTO_memcmp(want, got, MC_KEY_LEN))
			r = mc_fail(-EACCES, "the token has a wrong key");
		OPENSSL_cleanse(want, sizeof(want));
	}
	return r < 0 ? r : mc_identity_check_time(ret, now_s);
}
