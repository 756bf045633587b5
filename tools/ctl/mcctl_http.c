/* SPDX-License-Identifier: Apache-2.0
 * mcctl_http.c - ask the master's HTTP server. */
#include <config.h>

#include "tools/ctl/mcctl.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"

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

static CURLcode http_perform(CURL *curl, const char *url, const char *method, const char *text,
			     int64_t timeout_ms, struct body *body, long *ret_code, char *why)
{
	struct curl_slist *json = text ? curl_slist_append(NULL, "Content-Type: application/json") : NULL;
	CURLcode rc;

	if (text && !json)
		return CURLE_OUT_OF_MEMORY;
	if (method) {
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, text ? text : "");
		curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
		curl_easy_setopt(curl, CURLOPT_HTTPHEADER, json);
	}
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	/* No proxy: the master is inside the cluster. */
	curl_easy_setopt(curl, CURLOPT_PROXY, "");
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
	curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, body_add);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, body);
	rc = curl_easy_perform(curl);
	curl_slist_free_all(json);
	if (rc == CURLE_OK)
		rc = curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, ret_code);
	return rc;
}

int mcctl_http_get(const char *host, int port, const char *path, int64_t timeout_ms, long *ret_code,
		   char **ret_body)
{
	return mcctl_http(host, port, NULL, path, NULL, timeout_ms, ret_code, ret_body);
}

int mcctl_http(const char *host, int port, const char *method, const char *path, const char *text,
	       int64_t timeout_ms, long *ret_code, char **ret_body)
{
	bool v6 = strchr(host, ':') && host[0] != '[';
	char url[512], why[CURL_ERROR_SIZE] = "";
	struct body body = { NULL, 0 };
	CURLcode rc = CURLE_FAILED_INIT;
	CURL *curl;

	snprintf(url, sizeof(url), "http://%s%s%s:%d%s", v6 ? "[" : "", host, v6 ? "]" : "", port,
		 path);
	curl = curl_easy_init();
	if (curl)
		rc = http_perform(curl, url, method, text, timeout_ms, &body, ret_code, why);
	curl_easy_cleanup(curl);
	if (rc == CURLE_OK && !body.data)
		body.data = strdup("");
	if (rc != CURLE_OK || !body.data) {
		free(body.data);
		return mc_fail(rc == CURLE_OPERATION_TIMEDOUT ? -ETIMEDOUT : -EIO, "%s",
			       *why ? why : curl_easy_strerror(rc));
	}
	*ret_body = body.data;
	return 0;
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
