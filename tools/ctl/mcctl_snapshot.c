/* SPDX-License-Identifier: Apache-2.0
 * mcctl_snapshot.c - a checkpoint of the master's index. */
#include <config.h>

#include "tools/ctl/mcctl.h"

#include <stdlib.h>

#include "common/cleanup.h"
#include "common/err.h"

int mcctl_snapshot(struct mcctl *c)
{
	auto_free char *body = NULL;
	const char *why = "the answer does not come from a master";
	enum mcctl_status status;
	json_t *j;
	long code;
	int r;

	r = mcctl_tell_http(c, "POST", "/api/v1/snapshot", NULL, &code, &body);
	if (r < 0)
		return (int)mcctl_complain(MCCTL_FAILED, "cannot reach the master over HTTP: %s\n       "
					   "does it use another port?  Give it with --metrics_port",
					   mc_err_detail(r));
	j = json_loads(body, 0, NULL);
	if (code == 200 && j) {
		if (c->conf->json)
			return (int)mcctl_json_print(j);
		puts("checkpoint written");
		status = MCCTL_OK;
	} else {
		json_unpack(j, "{s?s}", "error_message", &why);
		status = mcctl_complain(code == 409 ? MCCTL_NO : MCCTL_FAILED,
					"no checkpoint was written: %s", why);
	}
	json_decref(j);
	return (int)status;
}
