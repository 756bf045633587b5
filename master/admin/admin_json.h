/* SPDX-License-Identifier: Apache-2.0
 * admin_json.h - JSON in and out of the admin service, in upstream's shapes. */
#ifndef MCM_ADMIN_JSON_H
#define MCM_ADMIN_JSON_H

#include <jansson.h>
#include <stdbool.h>

#include "common/net/httpd.h"
#include "proto/msg.h"

#define MCM_ADMIN_NAMES 1024	/* segments in a request */
#define MCM_ADMIN_KEYS 65536	/* keys in a request */
#define MCM_ADMIN_PINS 4096	/* keys in a request about soft pins */

/* The id of a text that mcm_id_text() made.  -MC_EPARAM. */
int mcm_id_parse(const char *text, struct mcp_id *ret);

/* Send @json and free it; NULL (out of memory) sends status 500. */
void mcm_answer_json(struct mc_http_request *rq, int status, json_t *json);
/* {"success":false,"error_code":...,"error_message":...} with upstream's status and number. */
void mcm_answer_error(struct mc_http_request *rq, int err, const char *message);
/* A master's part in the election, as its routes show it. */
struct mcm_status {
	const char *role, *state;
	bool serves;			/* it serves clients */
	bool ready;			/* the answer to /health?ready, as a Kubernetes probe asks: 200, or 503 */
	const char *leader;		/* the leader's address; NULL: none is known, or this master is alone */
	uint64_t term;			/* 0: none */
};
/* Answer GET /health, /leader, /role or /ha_status. */
void mcm_answer_status(struct mc_http_request *rq, const struct mcm_status *st);
/* Upstream's name of an error, such as OBJECT_NOT_FOUND. */
const char *mcm_error_name(int err);

/* ---- parsing of requests, which are untrusted ---- */

/* The body of POST /api/v1/drain_jobs. */
struct mcm_drain_body {
	json_t *json;			/* owns the names */
	struct mcp_bytes *source, *target;
	unsigned n_sources, n_targets;
	unsigned max_active;
};
/* -MC_EPARAM with a detail.  Call mcm_drain_body_done() afterwards in any case. */
int mcm_drain_body_parse(const char *body, size_t len, struct mcm_drain_body *ret);
void mcm_drain_body_done(struct mcm_drain_body *b);

/* The body of POST /api/v1/soft_pin and /api/v1/soft_unpin. */
struct mcm_pin_body {
	json_t *json;			/* owns the strings; the caller releases it in any case */
	const json_t *keys;		/* a list of strings */
	struct mcp_bytes tenant;
	uint64_t ttl_ms;		/* 0 to end pins */
};
/* @pin: the body must have a duration; else it must not.  -MC_EPARAM with upstream's text. */
int mcm_pin_body_parse(const char *body, size_t len, bool pin, struct mcm_pin_body *ret);

/* The body of PUT /api/v1/tenant_quotas.  -MC_EPARAM. */
int mcm_quota_body_parse(const char *body, size_t len, uint64_t *ret_bytes);

/* "true" and "1" are true, as upstream does it. */
bool mcm_flag_parse(const char *text);

/* Call @fn for each part of a comma-separated list, at most MCM_ADMIN_KEYS times.  Parts may be
 * empty and contain any other bytes.  Returns the number of parts, 0 for an empty text. */
unsigned mcm_list_parse(const char *text, size_t len,
			void (*fn)(void *arg, const char *part, size_t len), void *arg);

#endif
