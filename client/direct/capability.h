/* SPDX-License-Identifier: Apache-2.0
 * capability.h - capabilities of replicas, as the engine sends them (common/security/capability.h). */
#ifndef MCS_CAPABILITY_H
#define MCS_CAPABILITY_H

#include "client/layout.h"
#include "common/fault.h"
#include "common/security/capability.h"
#include "proto/codec.h"

struct mcs_scratch;

/* The capability that the master gave for @rep: the copy of an object of @size bytes, or the place of a put or copy of
 * @size bytes, with that generation.  In *@mem; NULL: there is none. */
static inline const struct mc_capability *mcs_capability(const struct mcp_replica *rep, uint64_t size,
							 uint64_t generation, uint8_t right,
							 struct mc_capability *mem)
{
	if (!rep->expires_s || mc_fault("client.capability"))
		return NULL;
	*mem = (struct mc_capability){
		.offset = rep->offset, .len = mcs_stored_size(size), .generation = generation,
		.expires_s = rep->expires_s, .rights = right,
	};
	mcp_mac_get(rep->mac, mem->mac);
	return mem;
}
/* The same in scratch memory.  Without memory NULL: then the owner refuses the request. */
const struct mc_capability *mcs_capability_new(struct mcs_scratch *sc, const struct mcp_replica *rep, uint64_t size,
					       uint64_t generation, uint8_t right);

#endif
