/* SPDX-License-Identifier: Apache-2.0
 * admin_json.c - parsing and printing of the admin service's JSON. */
#include <config.h>

#include "master/admin/admin_json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "master/tenant/tenant.h"
#include "proto/codec.h"

static const char *parse_number(const char *s, uint64_t *ret)
{
	char *end;

	if (*s < '0' || *s > '9')
		return NULL;
	errno = 0;
	*ret = strtoull(s, &end, 10);
	return errno ? NULL : end;
}

int mcm_id_parse(const char *text, struct mcp_id *ret)
{
	struct mcp_id id;
	const char *s = text ? parse_number(text, &id.hi) : NULL;

	s = s && *s == '-' ? parse_number(s + 1, &id.lo) : NULL;
	if (!s || *s || mcp_id_zero(id))
		return mc_fail(-MC_EPARAM, "not a valid id");
	*ret = id;
	return 0;
}

/* ---- answers ---- */

void mcm_answer_json(struct mc_http_request *rq, int status, json_t *json)
{
	rq->content_type = "application/json; charset=utf-8";
	rq->status = json ? status : 500;
	if (json)
		json_dumpf(json, rq->out, JSON_COMPACT);
	json_decref(json);
}

void mcm_answer_status(struct mc_http_request *rq, const struct mcm_status *st)
{
	json_t *term = st->term ? json_integer((json_int_t)st->term) : json_null();

	if (!strcmp(rq->path, "/health"))
		mcm_answer_json(rq, st->ready || !mc_http_query(rq, "ready") ? 200 : 503,
				json_pack("{s:s, s:s, s:s, s:b, s:s?, s:O}", "status", "ok", "role", st->role,
					  "ha_state", st->state, "service_ready", st->serves, "leader_address",
					  st->leader, "view_version", term));
	else if (!strcmp(rq->path, "/leader"))
		mcm_answer_json(rq, 200, json_pack("{s:b, s:s?, s:O}", "present", st->leader != NULL,
						   "leader_address", st->leader, "view_version", term));
	else
		fputs(!strcmp(rq->path, "/role") ? st->role : st->state, rq->out);
	json_decref(term);
}

static const struct {
	int err, status;
	const char *name;
} errors[] = {
	{ -MC_EPARAM, 400, "INVALID_PARAMS" },
	{ -EACCES, 403, "ACCESS_DENIED" },
	{ -EKEYREJECTED, 403, "ACCESS_DENIED" },
	{ -MC_EKEY, 400, "INVALID_KEY" },
	{ -MC_ENOOBJECT, 404, "OBJECT_NOT_FOUND" },
	{ -MC_ENOSEGMENT, 404, "SEGMENT_NOT_FOUND" },
	{ -MC_ENOTASK, 404, "JOB_NOT_FOUND" },
	{ -MC_ENOTENANT, 404, "TENANT_NOT_REGISTERED" },
	{ -MC_ETENANT_BUSY, 409, "TENANT_NOT_EMPTY" },
	{ -MC_ENOTREADY, 503, "REPLICA_IS_NOT_READY" },
	{ -MC_EUNAVAILABLE, 409, "UNAVAILABLE_IN_CURRENT_STATUS" },
	{ -MC_EMODE, 409, "UNAVAILABLE_IN_CURRENT_MODE" },
	{ -MC_ELIMIT, 500, "TASK_PENDING_LIMIT_EXCEEDED" },
	{ -MC_EQUOTA, 500, "TENANT_QUOTA_EXCEEDED" },
	{ -MC_ENOSPACE, 500, "NO_AVAILABLE_HANDLE" },
	{ 0, 500, "INTERNAL_ERROR" },
};

static unsigned row_of(int err)
{
	unsigned i;

	for (i = 0; errors[i].err && errors[i].err != err; i++)
		;
	return i;
}

const char *mcm_error_name(int err)
{
	return errors[row_of(err)].name;
}

void mcm_answer_error(struct mc_http_request *rq, int err, const char *message)
{
	/* Upstream has a separate error number for an unknown job. */
	int code = err == -MC_ENOTASK ? -1402 : mc_err_to_upstream(err);

	mcm_answer_json(rq, errors[row_of(err)].status,
			json_pack("{s:b, s:i, s:s}", "success", 0, "error_code", code,
				  "error_message", message ? message : mcm_error_name(err)));
}

/* ---- requests ---- */

static int names_of(const json_t *list, const char *what, struct mcp_bytes **ret, unsigned *ret_n)
{
	size_t n = json_array_size(list), i;
	struct mcp_bytes *names;

	if (!list || json_is_null(list))
		return 0;
	if (!json_is_array(list) || n > MCM_ADMIN_NAMES)
		return mc_fail(-MC_EPARAM, "%s is not a list of at most %u names", what, MCM_ADMIN_NAMES);
	if (!n)
		return 0;
	names = calloc(n, sizeof(*names));
	if (!names)
		return -ENOMEM;
	for (i = 0; i < n; i++) {
		const json_t *name = json_array_get(list, i);

		if (!json_is_string(name)) {
			free(names);
			return mc_fail(-MC_EPARAM, "%s contains a value that is not a string", what);
		}
		names[i].data = json_string_value(name);
		names[i].len = (uint32_t)json_string_length(name);
	}
	*ret = names;
	*ret_n = (unsigned)n;
	return 0;
}

static json_t *object_of(const char *body, size_t len, size_t flags)
{
	json_error_t why;
	json_t *json = json_loadb(body, len, flags, &why);

	if (!json)
		mc_fail(-MC_EPARAM, "Invalid JSON body: %s", why.text);
	else if (!json_is_object(json))
		mc_fail(-MC_EPARAM, "Invalid JSON body: not an object");
	else
		return json;
	json_decref(json);
	return NULL;
}

int mcm_drain_body_parse(const char *body, size_t len, struct mcm_drain_body *ret)
{
	const json_t *active;
	int r;

	memset(ret, 0, sizeof(*ret));
	ret->json = object_of(body, len, 0);
	if (!ret->json)
		return -MC_EPARAM;
	r = names_of(json_object_get(ret->json, "segments"), "segments", &ret->source, &ret->n_sources);
	if (r == 0)
		r = names_of(json_object_get(ret->json, "target_segments"), "target_segments",
			     &ret->target, &ret->n_targets);
	if (r < 0)
		return r;
	active = json_object_get(ret->json, "max_concurrency");
	if (active && (!json_is_integer(active) || json_integer_value(active) < 1 ||
		       json_integer_value(active) > 1024))
		return mc_fail(-MC_EPARAM, "max_concurrency is not a number from 1 to 1024");
	ret->max_active = active ? (unsigned)json_integer_value(active) : 0;
	return 0;
}

void mcm_drain_body_done(struct mcm_drain_body *b)
{
	free(b->source);
	free(b->target);
	json_decref(b->json);
}

/* A member of the right kind, NULL: none.  -MC_EPARAM. */
static int pin_member(const json_t *body, const char *name, json_type type, const json_t **ret)
{
	const json_t *json = json_object_get(body, name);

	*ret = json_is_null(json) ? NULL : json;
	if (!*ret || json_typeof(*ret) == type)
		return 0;
	return mc_fail(-MC_EPARAM, "Invalid JSON body: %s is not %s", name, type == JSON_ARRAY ? "a list" :
		       type == JSON_INTEGER ? "a number from 0 to 2^63-1" : "a string");
}

static int pin_keys_check(const json_t *keys)
{
	const json_t *key;
	size_t i;

	json_array_foreach(keys, i, key)
		if (!json_is_string(key))
			return mc_fail(-MC_EPARAM, "Invalid JSON body: keys has a value that is not a string");
	return 0;
}

int mcm_pin_body_parse(const char *body, size_t len, bool pin, struct mcm_pin_body *ret)
{
	const json_t *tenant = NULL, *ttl = NULL;
	int r;

	memset(ret, 0, sizeof(*ret));
	/* A key may have a NUL. */
	ret->json = object_of(body, len, JSON_ALLOW_NUL);
	r = ret->json ? pin_member(ret->json, "keys", JSON_ARRAY, &ret->keys) : -MC_EPARAM;
	if (r == 0)
		r = pin_keys_check(ret->keys);
	if (r == 0)
		r = pin_member(ret->json, "tenant_id", JSON_STRING, &tenant);
	if (r == 0)
		r = pin_member(ret->json, "ttl_ms", JSON_INTEGER, &ttl);
	if (r == 0 && ttl && json_integer_value(ttl) < 0)
		r = mc_fail(-MC_EPARAM, "Invalid JSON body: ttl_ms is not a number from 0 to 2^63-1");
	if (r < 0)
		return r;
	if (tenant)
		ret->tenant = mcp_bytes(json_string_value(tenant), (uint32_t)json_string_length(tenant));
	if (!json_array_size(ret->keys) || json_array_size(ret->keys) > MCM_ADMIN_PINS || pin != (ttl != NULL) ||
	    mcm_tenant_check_name(ret->tenant) < 0)
		return mc_fail(-MC_EPARAM, "Expected 1..%u keys, a valid tenant, and ttl_ms only for soft_pin",
			       MCM_ADMIN_PINS);
	ret->ttl_ms = ttl ? (uint64_t)json_integer_value(ttl) : 0;
	return 0;
}

int mcm_quota_body_parse(const char *body, size_t len, uint64_t *ret_bytes)
{
	json_t *json = object_of(body, len, 0);
	const json_t *bytes = json ? json_object_get(json, "requested_quota_bytes") : NULL;
	int r = -MC_EPARAM;

	if (bytes && json_is_integer(bytes) && json_integer_value(bytes) >= 1) {
		*ret_bytes = (uint64_t)json_integer_value(bytes);
		r = 0;
	} else if (json) {
		mc_fail(r, "requested_quota_bytes is not a number from 1 to 2^63-1");
	}
	json_decref(json);
	return r;
}

bool mcm_flag_parse(const char *text)
{
	return text && (!strcmp(text, "true") || !strcmp(text, "1"));
}

unsigned mcm_list_parse(const char *text, size_t len,
			void (*fn)(void *arg, const char *part, size_t len), void *arg)
{
	const char *end = text + len, *comma;
	unsigned n = 0;

	if (!len)
		return 0;
	/* There is one part more than commas; the last one may be empty. */
	do {
		comma = memchr(text, ',', (size_t)(end - text));
		fn(arg, text, (size_t)((comma ? comma : end) - text));
		n++;
		if (comma)
			text = comma + 1;
	} while (comma && n < MCM_ADMIN_KEYS);
	return n;
}
