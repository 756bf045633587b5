/* SPDX-License-Identifier: Apache-2.0
 * admin_quarantine.c - ranges of aborted puts whose writers may still write there: list, and an operator's release. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "master/admin/admin.h"
#include "master/admin/admin_json.h"
#include "master/mcm_i.h"

#define ROWS 1000u

static json_t *one_json(const struct mcm_quarantined *q)
{
	char id[33];

	snprintf(id, sizeof(id), "%016" PRIx64 "%016" PRIx64, q->client.hi, q->client.lo);
	return json_pack("{s:s, s:s, s:s, s:b, s:s, s:b, s:I, s:I, s:I}", "client", id, "name", q->name, "host",
			 q->host, "connected", q->connected, "segment", q->segment, "served", q->served,
			 "bytes", (json_int_t)q->bytes, "ranges", (json_int_t)q->ranges,
			 "age_ms", (json_int_t)q->age_ms);
}

void mcm_admin_quarantine(struct mc_http_request *rq, void *arg)
{
	auto_free struct mcm_quarantined *q = malloc(ROWS * sizeof(*q));
	json_t *all = json_array();
	struct mcm *m = arg;
	unsigned n = q ? mcm_quarantine_list(m, q, ROWS) : 0;

	for (unsigned i = 0; i < n; i++)
		(void)json_array_append_new(all, one_json(&q[i]));
	if (!q || !all) {
		json_decref(all);
		mcm_answer_error(rq, -ENOMEM, "no memory for the list");
		return;
	}
	mcm_answer_json(rq, 200, json_pack("{s:b, s:I, s:I, s:o}", "success", 1, "limit",
					   (json_int_t)mcm_quarantine_limit(m), "bytes",
					   (json_int_t)mcm_load_relaxed(&m->puts.quarantine.bytes), "writers", all));
}

static int id_parse(const char *text, struct mcp_id *ret)
{
	char half[17];

	if (!text || strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32)
		return mc_fail(-MC_EPARAM, "client: not the id of a client, which has 32 hexadecimal digits");
	snprintf(half, sizeof(half), "%.16s", text);
	ret->hi = strtoull(half, NULL, 16);
	ret->lo = strtoull(text + 16, NULL, 16);
	return 0;
}

void mcm_admin_quarantine_release(struct mc_http_request *rq, void *arg)
{
	uint64_t ranges = 0, bytes = 0;
	struct mcp_id client;
	int r = id_parse(mc_http_query(rq, "client"), &client);

	if (r == 0)
		r = mcm_quarantine_release(arg, client, &ranges, &bytes);
	if (r < 0)
		mcm_answer_error(rq, r, mc_err_detail(r));
	else
		mcm_answer_json(rq, 200, json_pack("{s:b, s:I, s:I}", "success", 1, "ranges", (json_int_t)ranges,
						   "bytes", (json_int_t)bytes));
}
