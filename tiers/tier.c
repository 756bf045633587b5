/* SPDX-License-Identifier: Apache-2.0
 * tier.c - the list of tiers, and the choice of one by its name. */
#include <config.h>

#include "tiers/tier.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "common/err.h"
#include "tiers/dram/dram.h"

const struct mct_tier_ops *const mct_tiers[] = { &mct_dram_tier, NULL };

int mct_medium_open(const char *tier, const struct mct_conf *conf, struct mct_medium **ret)
{
	for (unsigned i = 0; mct_tiers[i]; i++)
		if (!strcmp(mct_tiers[i]->name, tier))
			return mct_tiers[i]->open(conf, ret);
	return mc_fail(-EINVAL, "unknown tier '%s'", tier);
}

void mct_medium_close(struct mct_medium *m)
{
	if (m)
		m->ops->close(m);
}
