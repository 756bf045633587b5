/* SPDX-License-Identifier: Apache-2.0
 * mcctl_tier.c - copies of objects on other media. */
#include <config.h>

#include "tools/ctl/mcctl.h"

const char *mcctl_tier_name(unsigned media)
{
	static const char *const name[] = {
		"-", "memory", "far", "memory+far", "disk", "memory+disk", "far+disk", "memory+far+disk",
		"shared", "memory+shared", "far+shared", "memory+far+shared", "disk+shared", "memory+disk+shared",
		"far+disk+shared", "memory+far+disk+shared",
	};

	return name[(media & MCS_IN_MEMORY ? 1 : 0) + (media & MCS_IN_FAR_MEMORY ? 2 : 0) +
		    (media & MCS_ON_DISK ? 4 : 0) + (media & MCS_ON_SHARED ? 8 : 0)];
}

static int tier_all(struct mcctl *c, unsigned medium)
{
	enum mcctl_status status = MCCTL_OK, one;

	for (int i = 0; i < c->argc; i++) {
		struct mcs_key key;
		int r, result = 0;

		one = mcctl_key_parse(c, c->argv[i], &key);
		if (one == MCCTL_OK) {
			r = mcs_tier(c->store, &key, 1, medium, &result, -1);
			if (r >= 0 && result == -MCS_EUNAVAILABLE)
				one = mcctl_complain(MCCTL_NO, "cannot copy %s: the master has no --enable_offload, or "
						     "its node has no disk or too many waiting objects", c->argv[i]);
			else if (r < 0 || result < 0)
				one = mcctl_error(r < 0 ? r : result, "%s", c->argv[i]);
			mcctl_key_free(&key);
		}
		if (one > status)
			status = one;
	}
	return status;
}

int mcctl_offload(struct mcctl *c)
{
	return tier_all(c, MCS_ON_DISK);
}

int mcctl_promote(struct mcctl *c)
{
	return tier_all(c, MCS_IN_MEMORY);
}
