/* SPDX-License-Identifier: Apache-2.0
 * capability.c - capabilities for ranges of segments. */
#include <config.h>

#include "master/security/capability.h"

#include "common/principal.h"
#include "common/security/capability.h"
#include "common/sys/clock.h"
#include "master/mcm_i.h"
#include "master/ops/pin.h"
#include "proto/codec.h"

/* How long a capability to read outlasts a lease; a renewed lease has no new one. */
#define READ_GRACE_MS 30000u

uint64_t mcm_capability_time(const struct mcm *m)
{
	return m->security ? mc_wall_ms() : 0;
}

/* The table of segments is locked.  @c: all but the range of @rep, and the signature. */
static void capability_sign(struct mcm *m, const struct mc_principal *holder, struct mc_capability c, uint64_t size,
			    const struct mcp_seq *replicas)
{
	struct mcp_replica *rep = (struct mcp_replica *)(uintptr_t)replicas->items;

	c.len = mcm_object_reserve(size);
	for (uint32_t i = 0; i < replicas->count; i++) {
		const struct mcm_segment *s = mcm_segments_find(&m->segments, rep[i].segment);

		if (!s || !s->guarded)
			continue;
		c.offset = rep[i].offset;
		mc_capability_sign(s->key, holder ? holder->serial : 0, &c);
		rep[i].expires_s = c.expires_s;
		rep[i].mac = mcp_mac(c.mac);
	}
}

static uint32_t capability_read_end(const struct mcm *m, uint32_t flags)
{
	uint64_t ms = flags & MCP_GET_HOLD ? MCP_CAPABILITY_HELD_S * 1000ull :
		mcm_read_lease_ms(m) + READ_GRACE_MS;

	return (uint32_t)((mc_wall_ms() + ms + 999) / 1000);
}

static uint32_t capability_write_end(const struct mcm *m)
{
	return (uint32_t)((mc_wall_ms() + m->conf.put_start_release_timeout_sec / 4 * 3) / 1000);
}

void mcm_capabilities_read(struct mcm *m, const struct mc_principal *holder, uint32_t flags, struct mcp_object *obj,
			   unsigned n)
{
	struct mc_capability c = { .rights = MC_CAPABILITY_READ, .expires_s = capability_read_end(m, flags) };

	mc_rwlock_rdlock(&m->segments.lock);
	for (unsigned i = 0; i < n; i++) {
		if (!obj[i].pin)
			continue;
		c.generation = obj[i].generation;
		capability_sign(m, holder, c, obj[i].size, &obj[i].replicas);
	}
	mc_rwlock_unlock(&m->segments.lock);
}

void mcm_capabilities_write(struct mcm *m, const struct mc_principal *holder, const struct mcp_put_grant *grant,
			    uint64_t size)
{
	const struct mc_capability c = {
		.rights = MC_CAPABILITY_WRITE, .expires_s = capability_write_end(m), .generation = grant->generation,
	};

	mc_rwlock_rdlock(&m->segments.lock);
	capability_sign(m, holder, c, size, &grant->replicas);
	mc_rwlock_unlock(&m->segments.lock);
}

void mcm_capabilities_copy(struct mcm *m, const struct mc_principal *holder, struct mcp_copy *copy, unsigned n)
{
	struct mc_capability c = { .expires_s = capability_write_end(m) };

	mc_rwlock_rdlock(&m->segments.lock);
	for (unsigned i = 0; i < n; i++) {
		c.generation = copy[i].put;
		c.rights = MC_CAPABILITY_READ;
		capability_sign(m, holder, c, copy[i].size, &copy[i].from);
		c.rights = MC_CAPABILITY_WRITE;
		capability_sign(m, holder, c, copy[i].size, &copy[i].to);
	}
	mc_rwlock_unlock(&m->segments.lock);
}
