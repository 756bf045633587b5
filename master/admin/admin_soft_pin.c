/* SPDX-License-Identifier: Apache-2.0
 * admin_soft_pin.c - /api/v1/soft_pin and /api/v1/soft_unpin, in upstream's form. */
#include <config.h>

#include <jansson.h>
#include <string.h>

#include "common/err.h"
#include "master/admin/admin.h"
#include "master/admin/admin_json.h"
#include "master/mcm_i.h"
#include "master/ops/ops.h"
#include "proto/codec.h"

/* Upstream's number of the result. */
static int pin_key(struct mcm *m, struct mcm_scope sc, const json_t *name, uint64_t ttl_ms)
{
	struct mcp_bytes key = mcp_bytes(json_string_value(name), (uint32_t)json_string_length(name));
	char buf[MCM_KEY_MAX];
	int r = -MC_EPARAM;

	if (key.len)
		r = mcm_soft_pin(m, mcm_scope_key(sc, key, buf), ttl_ms);
	return r < 0 ? mc_err_to_upstream(r) : 0;
}

void mcm_admin_soft_pin(struct mc_http_request *rq, void *arg)
{
	json_t *results = json_array(), *name;
	struct mcm_pin_body body;
	struct mcm_scope sc;
	size_t i;
	int r;

	r = mcm_pin_body_parse(rq->body, rq->body_len, !strcmp(rq->path, "/api/v1/soft_pin"), &body);
	if (r == 0)
		r = mcm_scope_begin(arg, &rq->principal, body.tenant, false, &sc);
	if (r < 0) {
		mcm_answer_error(rq, r, mc_err_detail(r));
		json_decref(results);
	} else {
		json_array_foreach(body.keys, i, name)
			json_array_append_new(results, json_pack("{s:O, s:i}", "key", name, "error_code",
								 pin_key(arg, sc, name, body.ttl_ms)));
		mcm_answer_json(rq, 200, json_pack("{s:o}", "results", results));
	}
	json_decref(body.json);
}
