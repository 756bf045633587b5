/* SPDX-License-Identifier: Apache-2.0
 * mcctl_snapshot.c - a checkpoint of the master's index. */
#include <config.h>

#include "tools/ctl/mcctl.h"

#include <stdlib.h>

#include "common/cleanup.h"
#include "common/err.h"

enum mcctl_status mcctl_order(struct mcctl *c, const char *path, const char *failed, json_t **ret)
{
	auto_free char *body = NULL;
	const char *why = "the answer does not come from a master";
	enum mcctl_status status;
	json_t *j;
	long code;
	int r;

	*ret = NULL;
	r = mcctl_tell_http(c, "POST", path, NULL, &code, &body);
	if (r < 0)
		return mcctl_complain(MCCTL_FAILED, "cannot reach the master over HTTP: %s\n       "
				      "does it use another port?  Give it with --metrics_port", mc_err_detail(r));
	j = json_loads(body, 0, NULL);
	if (code == 200 && j) {
		*ret = j;
		return MCCTL_OK;
	}
	json_unpack(j, "{s?s}", "error_message", &why);
	status = mcctl_complain(code == 409 ? MCCTL_NO : MCCTL_FAILED, "%s: %s", failed, why);
	json_decref(j);
	return status;
}

int mcctl_snapshot(struct mcctl *c)
{
	json_t *j;
	enum mcctl_status status = mcctl_order(c, "/api/v1/snapshot", "no checkpoint was written", &j);

	if (status == MCCTL_OK && c->conf->json)
		return (int)mcctl_json_print(j);
	if (status == MCCTL_OK)
		puts("checkpoint written");
	json_decref(j);
	return (int)status;
}
