/* SPDX-License-Identifier: Apache-2.0
 * pool.c - the identity of the pool. */
#include <config.h>

#include "master/pool.h"

#include <endian.h>
#include <string.h>

#include "common/log.h"
#include "common/sys/random.h"
#include "master/mcm_i.h"
#include "proto/codec.h"

#define LOG "master"
#define NAME "identity"

static void pool_found(void *arg, const struct mcm_durable_record *r)
{
	struct mcp_id *pool = arg;
	uint64_t v[2];

	if (r->name.len != strlen(NAME) || memcmp(r->name.data, NAME, r->name.len) != 0 ||
	    r->value.len != sizeof(v))
		return;
	memcpy(v, r->value.data, sizeof(v));
	*pool = (struct mcp_id){ le64toh(v[0]), le64toh(v[1]) };
}

static int pool_create(struct mcm *m)
{
	uint64_t v[2];
	int r;

	do
		m->pool = (struct mcp_id){ mc_random_u64(), mc_random_u64() };
	while (mcp_id_zero(m->pool));
	v[0] = htole64(m->pool.hi);
	v[1] = htole64(m->pool.lo);
	r = mcm_durable_set(m, MCM_DURABLE_POOL, mcp_bytes(NAME, strlen(NAME)), mcp_bytes(v, sizeof(v)));
	/* A client may remember the identity as soon as it has received it. */
	if (r == 0)
		mcm_journal_wait(m);
	return r;
}

void mcm_pool_forget(struct mcm *m)
{
	mcm_durable_drop(m, MCM_DURABLE_POOL, mcp_bytes(NAME, strlen(NAME)));
}

int mcm_pool_load(struct mcm *m)
{
	bool is_new;
	int r;

	mcm_durables_each(m, MCM_DURABLE_POOL, pool_found, &m->pool);
	is_new = mcp_id_zero(m->pool);
	r = is_new ? pool_create(m) : 0;
	if (r < 0)
		return r;
	mc_info(LOG, "%s pool=%016llx%016llx", is_new ? "new pool" : "pool restored",
		(unsigned long long)m->pool.hi, (unsigned long long)m->pool.lo);
	return 0;
}
