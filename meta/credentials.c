/* SPDX-License-Identifier: Apache-2.0
 * credentials.c - the file with the credentials for etcd and Redis, and advice when TLS fails. */
#include <config.h>

#include "meta/credentials.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/env.h"
#include "common/err.h"
#include "common/log.h"
#include "common/security/secret_file.h"
#include "common/sys/file.h"

#define LOG "metadata"
#define VARIABLE "MC_STORE_CREDENTIALS"
#define FILE_MAX 16384u
#define KEY_FILE_MAX (256u << 10)
#define COMMAND_LINE_MAX (256u << 10)

/* ---- the file ---------------------------------------------------------------------------------- */

static char **value_of(struct mcd_credentials *c, const char *word)
{
	return !strcmp(word, "user") ? &c->user : !strcmp(word, "password") ? &c->password :
		!strcmp(word, "ca") ? &c->ca : !strcmp(word, "cert") ? &c->cert : !strcmp(word, "key") ? &c->key : NULL;
}

static int line_take(struct mcd_credentials *c, char *line, unsigned number)
{
	char *value = line + strcspn(line, " \t"), **to;

	line[strcspn(line, "\r")] = '\0';
	if (!*line || *line == '#')
		return 0;
	if (*value)
		*value++ = '\0';
	to = value_of(c, line);
	if (!to || !*value || *to)
		return mc_fail(-EINVAL, "%s, line %u: %s; known are user, password, ca, cert and key", c->path, number,
			       !to ? "unknown word" : *to ? "the same word for the second time" : "no value");
	if (to != &c->user && to != &c->password && *value != '/')
		return mc_fail(-EINVAL, "%s, line %u: the path must begin with /", c->path, number);
	*to = strdup(value);
	return *to ? 0 : -ENOMEM;
}

/* Is the PEM file there, so that a wrong path is an error at the start? */
static int pem_check(const struct mcd_credentials *c, const char *word, const char *path)
{
	int fd = path ? mc_file_open(path, O_RDONLY | O_CLOEXEC, 0) : -1;

	if (path && fd < 0)
		return mc_fail(-errno, "%s: cannot read %s %s: %s", c->path, word, path, mc_strerror(errno));
	if (fd >= 0)
		mc_file_close(fd);
	return 0;
}

static int key_check(const struct mcd_credentials *c)
{
	auto_free char *text = c->key ? malloc(KEY_FILE_MAX) : NULL;
	int r;

	if (!c->key)
		return 0;
	r = text ? mc_secret_file_read(c->key, text, KEY_FILE_MAX) : -ENOMEM;
	if (text)
		explicit_bzero(text, KEY_FILE_MAX);
	return r < 0 ? r : 0;
}

static int credentials_check(const struct mcd_credentials *c)
{
	int r;

	if (!c->cert != !c->key)
		return mc_fail(-EINVAL, "%s: cert and key belong together, %s is missing", c->path,
			       c->cert ? "key" : "cert");
	if (c->user && !c->password)
		return mc_fail(-EINVAL, "%s: a user needs a password", c->path);
	r = pem_check(c, "ca", c->ca);
	if (r == 0)
		r = pem_check(c, "cert", c->cert);
	return r < 0 ? r : key_check(c);
}

int mcd_credentials_read(const char *path, struct mcd_credentials *ret)
{
	struct mcd_credentials c = { .path = NULL };
	char text[FILE_MAX], *next = text, *line;
	unsigned number = 0;
	int r;

	path = path ? path : mc_env_str(VARIABLE);
	if (!path || !*path) {
		*ret = c;
		return 0;
	}
	r = mc_secret_file_read(path, text, sizeof(text));
	if (r < 0)
		return r;
	c.path = strdup(path);
	r = !c.path ? -ENOMEM : strlen(text) != (size_t)r ? mc_fail(-EINVAL, "%s is not text", path) : 0;
	while (r == 0 && (line = strsep(&next, "\n")))
		r = line_take(&c, line, ++number);
	explicit_bzero(text, sizeof(text));
	if (r == 0)
		r = credentials_check(&c);
	if (r < 0) {
		mcd_credentials_done(&c);
		return r == -ENOMEM ? mc_fail(r, "no memory for %s", path) : r;
	}
	*ret = c;
	return 0;
}

void mcd_credentials_done(struct mcd_credentials *c)
{
	if (c->password)
		explicit_bzero(c->password, strlen(c->password));
	free(c->path);
	free(c->user);
	free(c->password);
	free(c->ca);
	free(c->cert);
	free(c->key);
	*c = (struct mcd_credentials){ .path = NULL };
}

/* ---- the command line -------------------------------------------------------------------------- */

/* Is @secret in an argument of this process? */
static bool on_command_line(const char *secret, size_t len)
{
	int fd = mc_file_open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC, 0);
	auto_free char *text = fd < 0 ? NULL : malloc(COMMAND_LINE_MAX);
	size_t got = 0;
	ssize_t n = 1;
	bool is;

	while (text && n > 0 && got < COMMAND_LINE_MAX) {
		n = mc_file_read(fd, text + got, COMMAND_LINE_MAX - got);
		got += n > 0 ? (size_t)n : 0;
	}
	if (fd >= 0)
		mc_file_close(fd);
	is = text && memmem(text, got, secret, len);
	if (text)
		explicit_bzero(text, got);
	return is;
}

void mcd_password_seen(const char *secret, size_t len)
{
	static atomic_flag warned = ATOMIC_FLAG_INIT;

	if (on_command_line(secret, len) && !atomic_flag_test_and_set(&warned))
		mc_warn(LOG, "the password on the command line is visible to every user in /proc: write it to a file, "
			"and name that in " VARIABLE);
}

/* ---- advice ------------------------------------------------------------------------------------ */

enum advice { CERT, CERT_OLD, CERT_NAME, CA, NAMES, AGE, NO_TLS, WANTS_TLS, CLOSED };

/* Parts of texts of libcurl, OpenSSL (1.1 to 3) and Go's servers; the first that is found decides. */
static const struct {
	const char *part;
	enum advice advice;
} advices[] = {
	{ "alert certificate expired", CERT_OLD },
	{ "certificate has expired", AGE },
	{ "certificate is not yet valid", AGE },
	{ "CommonName of client", CERT_NAME },
	{ "alert certificate required", CERT },
	{ "alert bad certificate", CERT },
	{ "alert unknown ca", CERT },
	{ "alert handshake failure", CERT },
	{ "local issuer", CA },
	{ "self-signed", CA },
	{ "self signed", CA },
	{ "subject name", NAMES },
	{ "ostname mismatch", NAMES },
	{ "IP address mismatch", NAMES },
	{ "wrong version number", NO_TLS },
	{ "packet length too long", NO_TLS },
	{ "SSL_connect: SSL_ERROR_SYSCALL", NO_TLS },
	{ "SSL connection timeout", NO_TLS },
	{ "HTTP request to an HTTPS server", WANTS_TLS },
	{ "Empty reply from server", WANTS_TLS },
};

/* One of the texts, "": none fits. */
static void advice_text(enum advice a, const struct mcd_credentials *c, const char *plain, const char *tls, char *ret,
			size_t size)
{
	const char *file = c->path ? c->path : "the file that " VARIABLE " names", *cert = c->cert ? c->cert : "";

	switch (a) {
	case CERT:
		if (c->cert)
			snprintf(ret, size, "the server refuses the client's certificate %s: its authority must have "
				 "signed it", cert);
		else
			snprintf(ret, size, "the server wants a client's certificate: name cert and key in %s", file);
		break;
	case CERT_OLD:
		snprintf(ret, size, "renew the client's certificate %s", cert);
		break;
	case CERT_NAME:
		snprintf(ret, size, "with users, etcd's gateway takes only client certificates without a CommonName; "
			 "change %s", c->cert ? cert : "the client's");
		break;
	case AGE:
		snprintf(ret, size, "renew the server's certificate, or correct the clock");
		break;
	case CA:
		snprintf(ret, size, "the authority of the server's certificate must be the ca in %s", file);
		break;
	case NAMES:
		snprintf(ret, size, "use a name or an address that is in the server's certificate");
		break;
	case NO_TLS:
		snprintf(ret, size, "does the server speak TLS? Without it, write %s", plain);
		break;
	case WANTS_TLS:
		snprintf(ret, size, "does the server want TLS? Then write %s", tls);
		break;
	case CLOSED:
		snprintf(ret, size, "does the server speak TLS? Without it, write %s; %s%s", plain, c->cert ?
			 "else perhaps it refuses the client's certificate " :
			 "if it wants a client's certificate, name cert and key in ", c->cert ? cert : file);
		break;
	}
}

int mcd_tls_advise(int err, const struct mcd_credentials *c, bool fresh, const char *plain, const char *tls)
{
	char said[512], advice[512] = "";

	snprintf(said, sizeof(said), "%s", mc_err_detail(err));
	for (unsigned i = 0; i < sizeof(advices) / sizeof(advices[0]) && !*advice; i++)
		if (strstr(said, advices[i].part) && (!fresh || advices[i].advice != WANTS_TLS))
			advice_text(advices[i].advice, c, plain, tls, advice, sizeof(advice));
	/* A server without TLS, and one that refuses the client's certificate, may close the connection before anything
	 * that it has sent is read. */
	if (!*advice && fresh && (err == -ECONNRESET || err == -EPIPE || strstr(said, "eset by peer")))
		advice_text(CLOSED, c, plain, tls, advice, sizeof(advice));
	return *advice ? mc_fail(err, "%s: %s", said, advice) : err;
}
