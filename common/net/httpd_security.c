/* SPDX-License-Identifier: Apache-2.0
 * httpd_security.c - tokens and TLS of the HTTP server. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/err.h"
#include "common/net/guard.h"
#include "common/net/httpd_i.h"
#include "common/net/net.h"
#include "common/security/secret_file.h"

#define CERT_MAX 65536u		/* bytes of the certificate and those of its authorities */
#define KEY_MAX 16384u

static bool is_set(const char *path)
{
	return path && *path;
}

static int check_addr(const struct mc_httpd_security *sec, const char *addr)
{
	char host[MC_ADDR_MAX];
	int port, r = mc_addr_split(addr, host, sizeof(host), 0, &port);

	if (r < 0 || is_set(sec->cert) || !sec->tokens || mc_host_is_loopback(host))
		return r;
	return mc_fail(-EACCES, "an HTTP server at %s would receive the tokens of its clients unencrypted: give it a "
		       "certificate (--http_tls_cert, --http_tls_key), or a loopback address such as "
		       MC_GUARD_LOOPBACK, addr);
}

static int read_key(const char *path, struct mc_httpd_files *ret)
{
	int r;

	ret->key = malloc(KEY_MAX);
	if (!ret->key)
		return mc_fail(-ENOMEM, "no memory for the key of an HTTP server");
	ret->key_size = KEY_MAX;
	r = mc_secret_file_read(path, ret->key, KEY_MAX);
	return r < 0 ? mc_fail(r, "http_tls_key: %s", mc_err_detail(r)) : 0;
}

static int read_cert(const char *path, struct mc_httpd_files *ret)
{
	int r;

	ret->cert = malloc(CERT_MAX);
	if (!ret->cert)
		return mc_fail(-ENOMEM, "no memory for the certificate of an HTTP server");
	r = mc_public_file_read(path, ret->cert, CERT_MAX);
	return r < 0 ? mc_fail(r, "http_tls_cert: %s", mc_err_detail(r)) : 0;
}

int mc_httpd_files_read(const struct mc_httpd_security *sec, const char *addr, struct mc_httpd_files *ret)
{
	int r;

	*ret = (struct mc_httpd_files){ NULL, NULL, 0 };
	if (!sec)
		return 0;
	if (is_set(sec->cert) != is_set(sec->key))
		return mc_fail(-EINVAL, "--http_tls_cert and --http_tls_key are needed together");
	r = check_addr(sec, addr);
	if (r < 0 || !is_set(sec->cert))
		return r;
	r = read_cert(sec->cert, ret);
	if (r == 0)
		r = read_key(sec->key, ret);
	if (r < 0)
		mc_httpd_files_free(ret);
	return r;
}

void mc_httpd_files_free(struct mc_httpd_files *f)
{
	if (f->key)
		explicit_bzero(f->key, f->key_size);
	free(f->key);
	free(f->cert);
	*f = (struct mc_httpd_files){ NULL, NULL, 0 };
}

int mc_httpd_identify(const struct mc_httpd_security *sec, const char *header, struct mc_principal *ret)
{
	static const char scheme[] = "Bearer ";
	const char *token;

	if (!header)
		return mc_fail(-EACCES, "a request has no token");
	if (strncasecmp(header, scheme, sizeof(scheme) - 1))
		return mc_fail(-EACCES, "a request has an Authorization header of another kind than Bearer");
	token = header + sizeof(scheme) - 1;
	token += strspn(token, " ");
	if (!sec->identify)
		return mc_fail(-EACCES, "this server has no master that could check a token");
	return sec->identify(sec->arg, token, ret);
}
