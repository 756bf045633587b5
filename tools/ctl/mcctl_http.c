/* SPDX-License-Identifier: Apache-2.0
 * mcctl_http.c - ask the master's HTTP server. */
#include <config.h>

#include "tools/ctl/mcctl.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/env.h"
#include "common/err.h"
#include "common/net/guard.h"
#include "common/security/secret.h"

#define BODY_MAX (4u << 20)

struct body {
	char *data;
	size_t len;
};

static size_t body_add(char *data, size_t size, size_t n, void *arg)
{
	struct body *b = arg;
	size_t len = size * n < BODY_MAX - b->len ? size * n : BODY_MAX - b->len;
	char *grown = realloc(b->data, b->len + len + 1);

	if (!grown)
		return 0;
	memcpy(grown + b->len, data, len);
	b->data = grown;
	b->len += len;
	grown[b->len] = '\0';
	return size * n;
}

struct call {
	const char *host;
	int port;
	const char *method, *path, *text;	/* method and text: NULL: GET without a body */
	int64_t timeout_ms;
	const char *token;		/* header line; NULL: there is no credential */
	struct body body;
	long code;
	char why[CURL_ERROR_SIZE];
};

static int add_header(struct curl_slist **list, const char *line)
{
	struct curl_slist *more = curl_slist_append(*list, line);

	if (!more)
		return -ENOMEM;
	*list = more;
	return 0;
}

static CURLcode http_perform(CURL *curl, struct call *c, const char *scheme, struct curl_slist *headers)
{
	bool v6 = strchr(c->host, ':') && c->host[0] != '[';
	const char *ca = mc_env_str("SSL_CERT_FILE");
	char url[512];

	snprintf(url, sizeof(url), "%s://%s%s%s:%d%s", scheme, v6 ? "[" : "", c->host, v6 ? "]" : "", c->port, c->path);
	c->why[0] = '\0';
	if (c->method) {
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, c->text ? c->text : "");
		curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, c->method);
	}
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	/* No proxy: the master is inside the cluster. */
	curl_easy_setopt(curl, CURLOPT_PROXY, "");
	curl_easy_setopt(curl, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	if (ca)
		curl_easy_setopt(curl, CURLOPT_CAINFO, ca);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)c->timeout_ms);
	curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, c->why);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, body_add);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, &c->body);
	return curl_easy_perform(curl);
}

static CURLcode http_try(struct call *c, const char *scheme)
{
	struct curl_slist *headers = NULL;
	CURLcode rc = CURLE_OUT_OF_MEMORY;
	CURL *curl = curl_easy_init();
	int r = 0;

	if (c->text)
		r = add_header(&headers, "Content-Type: application/json");
	if (r == 0 && c->token)
		r = add_header(&headers, c->token);
	if (r == 0 && curl)
		rc = http_perform(curl, c, scheme, headers);
	if (rc == CURLE_OK)
		rc = curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &c->code);
	curl_easy_cleanup(curl);
	curl_slist_free_all(headers);
	return rc;
}

/* Errors of a request without TLS to a server with TLS. */
static bool wants_tls(CURLcode rc)
{
	return rc == CURLE_GOT_NOTHING || rc == CURLE_RECV_ERROR || rc == CURLE_UNSUPPORTED_PROTOCOL ||
	       rc == CURLE_WEIRD_SERVER_REPLY;
}

/* A token goes to another host over TLS only.  Whether the master has TLS is not known before. */
static CURLcode http_run(struct call *c)
{
	CURLcode rc = http_try(c, c->token ? "https" : "http");

	if (c->token ? rc == CURLE_SSL_CONNECT_ERROR && mc_host_is_loopback(c->host) : wants_tls(rc)) {
		free(c->body.data);
		c->body = (struct body){ NULL, 0 };
		rc = http_try(c, c->token ? "http" : "https");
	}
	return rc;
}

/* The header with the token of this process's credential, malloc'ed; NULL: it has none. */
static int http_token(char **ret)
{
	const char *path = mc_credential_path();
	char token[MC_BEARER_MAX];
	struct mc_credential *c;
	int r;

	*ret = NULL;
	if (!path)
		return 0;
	c = mc_credential_new();
	if (!c)
		return -ENOMEM;
	r = mc_credential_load(path, c);
	if (r == 0) {
		mc_bearer_make(c, token);
		if (asprintf(ret, "Authorization: Bearer %s", token) < 0) {
			*ret = NULL;
			r = mc_fail(-ENOMEM, "no memory for a token");
		}
		explicit_bzero(token, sizeof(token));
	}
	mc_credential_free(c);
	return r;
}

/* The server refused the token; errors of a route are JSON. */
static bool is_refusal(const struct call *c)
{
	return c->code == 401 || (c->code == 403 && c->body.data[0] != '{');
}

int mcctl_http_get(const char *host, int port, const char *path, int64_t timeout_ms, long *ret_code,
		   char **ret_body)
{
	return mcctl_http(host, port, NULL, path, NULL, timeout_ms, ret_code, ret_body);
}

int mcctl_http(const char *host, int port, const char *method, const char *path, const char *text,
	       int64_t timeout_ms, long *ret_code, char **ret_body)
{
	struct call c = {
		.host = host, .port = port, .method = method, .path = path, .text = text, .timeout_ms = timeout_ms,
	};
	auto_free char *token = NULL;
	int r = http_token(&token);
	CURLcode rc;

	if (r < 0)
		return r;
	c.token = token;
	rc = http_run(&c);
	if (token)
		explicit_bzero(token, strlen(token));
	if (rc == CURLE_OK && !c.body.data)
		c.body.data = strdup("");
	if (rc != CURLE_OK || !c.body.data) {
		free(c.body.data);
		return mc_fail(rc == CURLE_OPERATION_TIMEDOUT ? -ETIMEDOUT : -EIO, "%s%s",
			       *c.why ? c.why : curl_easy_strerror(rc), rc == CURLE_PEER_FAILED_VERIFICATION ?
			       "; SSL_CERT_FILE can name the file of its authority" : "");
	}
	if (!is_refusal(&c)) {
		*ret_code = c.code;
		*ret_body = c.body.data;
		return 0;
	}
	free(c.body.data);
	return mc_fail(-EACCES, "%s", c.code == 403 ? "the role of the credential does not allow this" : token ?
		       "the master does not accept the credential: it has expired, was revoked, or is of another pool" :
		       "the master asks for a credential: name its file in MC_CREDENTIAL");
}

enum mcctl_status mcctl_http_json(struct mcctl *c, const char *path, const char *list, const char *failed,
				  json_t **ret)
{
	auto_free char *body = NULL;
	const char *why = "the answer does not come from a master";
	enum mcctl_status status;
	json_t *j;
	long code;
	int r;

	*ret = NULL;
	r = mcctl_tell_http(c, list ? NULL : "POST", path, NULL, &code, &body);
	if (r == -EACCES)
		return mcctl_complain(MCCTL_FAILED, "%s: %s", failed, mc_err_detail(r));
	if (r < 0)
		return mcctl_complain(MCCTL_FAILED, "cannot reach the master over HTTP: %s%s", mc_err_detail(r),
				      list ? "" : "\n       does it use another port?  Give it with --metrics_port");
	j = json_loads(body, 0, NULL);
	if (code == 200 && (list ? json_is_array(json_object_get(j, list)) : j != NULL)) {
		*ret = j;
		return MCCTL_OK;
	}
	json_unpack(j, "{s?s}", "error_message", &why);
	status = mcctl_complain(code == 409 ? MCCTL_NO : MCCTL_FAILED, "%s: %s", failed, why);
	json_decref(j);
	return status;
}
