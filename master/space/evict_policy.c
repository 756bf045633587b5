/* SPDX-License-Identifier: Apache-2.0
 * evict_policy.c - table of policies, and functions for slots that have nothing to do. */
#include <config.h>

#include "master/space/evict_policy.h"

#include <string.h>

const struct mcm_evict_ops *mcm_evict_ops_find(const char *name)
{
	static const struct mcm_evict_ops *const all[] = {
		&mcm_evict_lru, &mcm_evict_fifo, &mcm_evict_learn,
	};
	unsigned i;

	for (i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (!strcmp(all[i]->name, name))
			return all[i];
	return NULL;
}

void *mcm_evict_shared_none(struct mcm_learn *learn)
{
	static char nothing;

	(void)learn;
	return &nothing;
}

void mcm_evict_shared_free(void *shared)
{
	(void)shared;
}

void mcm_evict_ignore(void *shared, const struct mcm_victim *victim, uint32_t hash)
{
	(void)shared;
	(void)victim;
	(void)hash;
}
