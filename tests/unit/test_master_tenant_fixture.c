/* SPDX-License-Identifier: Apache-2.0
 * test_master_tenant_fixture.c - implementation of test_master_tenant_fixture.h. */
#include <config.h>

#include "test_master_tenant_fixture.h"

#include <stdio.h>
#include <stdlib.h>

static char dir[] = "/tmp/mc-tenant-XXXXXX";

int tx_dir_up(char *path, size_t size, const char *name)
{
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, size, "%s/%s", dir, name);
	return 0;
}

int tx_dir_down(void **state)
{
	char cmd[96];

	(void)state;
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd);
}

void tx_tune(struct mcm_conf *conf)
{
	conf->enable_multi_tenants = true;
}

struct mcm_scope tx_scope(struct fixture *fx, const char *tenant)
{
	struct mcm_scope sc;

	assert_int_equal(mcm_scope_begin(fx->m, NULL, fx_bytes(tenant), false, &sc), 0);
	return sc;
}

int tx_put(struct fixture *fx, const char *tenant, const char *key, uint64_t size, uint32_t flags)
{
	struct mcm_put_request rq = { .flags = flags, .copies = 1, .soft_ms = 1000 };
	char buf[MCM_KEY_MAX];
	struct mcp_put_item item = { .size = size };
	struct mcm_put_granted g;
	struct mcm_scope sc;
	int r;

	r = mcm_scope_begin(fx->m, NULL, fx_bytes(tenant), true, &sc);
	if (r < 0)
		return r;
	item.key = mcm_scope_key(sc, fx_bytes(key), buf);
	r = mcm_put_start(fx->m, fx->s, &rq, &item, &g);
	if (r < 0)
		return r;
	return mcm_put_end(fx->m, fx->s, &(struct mcp_put_done){
			   .key = item.key, .generation = g.generation, .crc = 1 });
}

int tx_stat(struct fixture *fx, const char *tenant, const char *key, uint64_t *size)
{
	struct mcp_replica rep[MCM_REPLICA_MAX];
	char buf[MCM_KEY_MAX];
	struct mcp_bytes k = mcm_scope_key(tx_scope(fx, tenant), fx_bytes(key), buf);
	struct mcp_object o;
	unsigned n;
	int r = mcm_get(fx->m, NULL, 0, k, &o, rep, &n);

	if (r == 0 && size)
		*size = o.size;
	return r;
}

struct mcp_tenant tx_figures(struct fixture *fx, const char *tenant)
{
	struct mcp_tenant t;
	uint32_t number;

	assert_int_equal(mcm_tenant_find(fx->m, fx_bytes(tenant), &number), 0);
	assert_true(mcm_tenant_describe(fx->m, number, &t));
	return t;
}

void tx_quota(struct fixture *fx, const char *tenant, uint64_t bytes)
{
	uint64_t effective;

	assert_int_equal(mcm_tenant_set_quota(fx->m, fx_bytes(tenant), bytes, &effective), 0);
}

uint64_t tx_remove_match(struct fixture *fx, const char *tenant, const char *pattern,
			 uint32_t flags)
{
	struct mcp_remove_match rq = {
		.flags = flags, .pattern = fx_bytes(pattern), .tenant = fx_bytes(tenant),
	};
	uint64_t n;

	assert_int_equal(mcm_remove_match(fx->m, &rq, &n), 0);
	return n;
}
