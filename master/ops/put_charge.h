/* SPDX-License-Identifier: Apache-2.0
 * put_charge.h - the limits of quota and number of objects, which nearly every put passes without a call. */
#ifndef MCM_PUT_CHARGE_H
#define MCM_PUT_CHARGE_H

#include "master/mcm_i.h"

/* Charge @bytes to put->tenant (put->charged).  If this, or counting the object, has to evict objects, check first
 * that the object can fit at all: errors as of mcm_tenant_charge() and mcm_allocate().  With MCP_PUT_NO_EVICT,
 * -MC_EQUOTA or -MC_ENOSPACE instead. */
static inline int mcm_put_charge(struct mcm *m, struct mcm_put_request *rq, const struct mcp_put_item *item,
				 uint64_t bytes, struct mcm_put *put)
{
	bool charged = !m->tenants.on || mcm_tenant_charge_free(m, put->tenant, bytes);

	put->charged = charged ? bytes : 0;
	return charged && !mcm_count_full(m, item->key.len) ? 0 : mcm_put_charge_full(m, rq, item, bytes, put);
}

#endif
