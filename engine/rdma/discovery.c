/* SPDX-License-Identifier: Apache-2.0
 * discovery.c - upstream's MC_MS_AUTO_DISC and MC_MS_FILTERS: whether NICs are named or discovered, and which. */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "common/err.h"
#include "common/log.h"
#include "engine/rdma/rdma_i.h"

enum mce_discovery mce_nics_discovery(void)
{
	const char *v = mc_env_str("MC_MS_AUTO_DISC");

	return v && !strcmp(v, "1") ? MCE_DISCOVERY_ON : v && !strcmp(v, "0") ? MCE_DISCOVERY_OFF : MCE_DISCOVERY_UNSET;
}

int mce_nics_choose(const char *named, struct mce_conf *conf)
{
	const char *filter = mc_env_str("MC_MS_FILTERS"), *disc = mc_env_str("MC_MS_AUTO_DISC");
	enum mce_discovery d = mce_nics_discovery();
	int r = mce_rdma_check_permission(conf);

	conf->rdma_devices = conf->rdma_filter = NULL;
	if (r <= 0)
		return r;
	if (disc && d == MCE_DISCOVERY_UNSET)
		mc_warn("rdma", "neither 0 nor 1, taken as unset: MC_MS_AUTO_DISC=%s", disc);
	if (!named)
		named = "";
	conf->rdma_devices = "";
	conf->rdma_filter = filter;
	if (d == MCE_DISCOVERY_ON) {
		if (*named)
			mc_warn("rdma", "MC_MS_AUTO_DISC=1: NICs are discovered, the named ones are ignored names=%s "
				"filter=%s", named, filter ? filter : "");
		return 0;
	}
	if (d == MCE_DISCOVERY_UNSET && !*named)
		return 0;
	if (!*named && conf->rdma_wanted)
		return mc_fail(-EINVAL,
			       "MC_MS_AUTO_DISC=0 and no NIC is named (rdma_devices, device_name, --device_names)");
	conf->rdma_devices = *named ? named : NULL;
	conf->rdma_filter = NULL;
	if (filter)
		mc_warn("rdma", "MC_MS_FILTERS is ignored: NICs are %s MC_MS_FILTERS=%s",
			*named ? "named" : "not discovered (MC_MS_AUTO_DISC=0)", filter);
	return 0;
}

const char *mce_nics_next(const char *at, char ret[MCE_RDMA_NAME_MAX])
{
	const char *begin = at + strspn(at, ", \t"), *end = begin + strcspn(begin, ","), *last = end;

	if (begin == end)
		return NULL;
	while (last[-1] == ' ' || last[-1] == '\t')
		last--;
	snprintf(ret, MCE_RDMA_NAME_MAX, "%.*s", (int)(last - begin), begin);
	return end;
}

bool mce_nics_listed(const char *list, const char *name)
{
	char one[MCE_RDMA_NAME_MAX];

	for (const char *at = list; (at = mce_nics_next(at, one)); )
		if (!strcmp(one, name))
			return true;
	return false;
}
