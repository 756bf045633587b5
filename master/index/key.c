/* SPDX-License-Identifier: Apache-2.0
 * key.c - the tenant's prefix of a key. */
#include <config.h>

#include "master/index/key.h"

#include "proto/codec.h"

void mcm_tenant_prefix(uint32_t tenant, char ret[MCM_PREFIX_MAX])
{
	ret[0] = '\0';
	/* Neither NUL nor '/'. */
	ret[1] = (char)(0x80 | tenant >> 7);
	ret[2] = (char)(0x80 | (tenant & 0x7f));
	ret[3] = '/';
}

struct mcp_bytes mcm_key_bare(struct mcp_bytes key, uint32_t *ret_tenant)
{
	const char *p = key.data;

	if (ret_tenant)
		*ret_tenant = mcm_key_tenant(p, key.len);
	if (key.len < MCM_PREFIX_MAX || p[0])
		return key;
	return mcp_bytes(p + MCM_PREFIX_MAX, key.len - MCM_PREFIX_MAX);
}
