/* SPDX-License-Identifier: Apache-2.0
 * soft_pin.c - soft pins of objects that exist, as operators set and end them. */
#include <config.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "master/mcm_i.h"
#include "master/ops/ops.h"

int mcm_soft_pin(struct mcm *m, struct mcp_bytes key, uint64_t ttl_ms)
{
	char buf[MCM_LINK_KEY_MAX];
	uint32_t hash, slot;
	struct mcm_shard *sh;

	key = mcm_link_resolve(m, key, buf);
	if (!mcm_key_ok(key))
		return mc_fail(-MC_EKEY, "key has %u bytes", key.len);
	if (ttl_ms > m->conf.max_kv_soft_pin_ttl)
		return mc_fail(-MC_EPARAM, "a soft pin of %llu ms is above max_kv_soft_pin_ttl (%llu ms)",
			       (unsigned long long)ttl_ms, (unsigned long long)m->conf.max_kv_soft_pin_ttl);
	hash = mcm_index_hash(&m->index, key.data, key.len);
	sh = mcm_index_shard(&m->index, hash);
	MC_LOCKED(&sh->lock);
	slot = mcm_shard_find(&m->index, sh, hash, key.data, key.len);
	if (slot)
		return mcm_object_soft_pin(m, slot, ttl_ms);
	mcm_journal_depend(m);
	return -MC_ENOOBJECT;
}
