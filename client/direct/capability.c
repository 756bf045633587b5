/* SPDX-License-Identifier: Apache-2.0
 * capability.c - capabilities of replicas in scratch memory. */
#include <config.h>

#include "client/direct/capability.h"

#include "client/scratch.h"

const struct mc_capability *mcs_capability_new(struct mcs_scratch *sc, const struct mcp_replica *rep, uint64_t size,
					       uint64_t generation, uint8_t right)
{
	struct mc_capability *mem = rep->expires_s ? mcs_scratch_raw(sc, 1, sizeof(*mem)) : NULL;

	return mem ? mcs_capability(rep, size, generation, right, mem) : NULL;
}
