/* SPDX-License-Identifier: Apache-2.0
 * key.h - the tenant's prefix of a key.
 *
 * Inside the master, keys of the default tenant are unchanged.  A key of another tenant, or one that begins
 * with NUL, has a prefix of MCM_PREFIX_MAX bytes: NUL, two bytes of the tenant's number, '/'.  So keys of
 * different tenants never collide, and each tenant has a directory of its own. */
#ifndef MCM_KEY_H
#define MCM_KEY_H

#include <stdint.h>

#include "master/index/object.h"
#include "proto/msg.h"

#define MCM_TENANT_DEFAULT 0u

/* Make the prefix of a tenant's keys. */
void mcm_tenant_prefix(uint32_t tenant, char ret[MCM_PREFIX_MAX]);
/* Number of the tenant to which a key with prefix belongs. */
static inline uint32_t mcm_key_tenant(const char *key, uint32_t len)
{
	if (len < MCM_PREFIX_MAX || key[0])
		return MCM_TENANT_DEFAULT;
	return ((uint32_t)key[1] & 0x7f) << 7 | ((uint32_t)key[2] & 0x7f);
}
/* Remove the prefix; *ret_tenant may be NULL. */
struct mcp_bytes mcm_key_bare(struct mcp_bytes key, uint32_t *ret_tenant);

#endif
