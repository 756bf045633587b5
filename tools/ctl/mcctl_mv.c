/* SPDX-License-Identifier: Apache-2.0
 * mcctl_mv.c - rename an object, or a directory with everything below it. */
#include <config.h>

#include "tools/ctl/mcctl.h"

static bool is_dir(struct mcs_key key)
{
	return key.len && ((const char *)key.data)[key.len - 1] == '/';
}

int mcctl_mv(struct mcctl *c)
{
	unsigned flags = c->conf->noreplace ? MCS_RENAME_NOREPLACE : 0;
	struct mcs_key from = { NULL, 0 }, to = { NULL, 0 };
	enum mcctl_status status;
	int r;

	status = mcctl_key_parse(c, c->argv[0], &from);
	if (status == MCCTL_OK)
		status = mcctl_key_parse(c, c->argv[1], &to);
	if (status == MCCTL_OK && is_dir(from) != is_dir(to))
		status = mcctl_complain(MCCTL_USAGE, "end both names with a slash to rename a directory, or "
					"none to rename an object: %s %s", c->argv[0], c->argv[1]);
	if (status == MCCTL_OK) {
		if (is_dir(from) && is_dir(to))
			r = mcs_rename_dir(c->store, from, to, flags, NULL, -1);
		else
			r = mcs_rename(c->store, from, to, flags, -1);
		if (r < 0)
			status = mcctl_error(r, "cannot rename %s to %s", c->argv[0], c->argv[1]);
		else if (c->conf->json)
			status = mcctl_json_print(json_pack("{s:o*, s:o*}", "from",
							    mcctl_key_json(from), "to",
							    mcctl_key_json(to)));
	}
	mcctl_key_free(&from);
	mcctl_key_free(&to);
	return status;
}
