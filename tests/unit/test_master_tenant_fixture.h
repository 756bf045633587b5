/* SPDX-License-Identifier: Apache-2.0
 * test_master_tenant_fixture.h - short ways to do what clients of a tenant do. */
#ifndef TEST_MASTER_TENANT_FIXTURE_H
#define TEST_MASTER_TENANT_FIXTURE_H

#include "test_master_fixture.h"

/* For cmocka's group: a directory of its own, *@path of @size becomes that of @name in it; and its end. */
int tx_dir_up(char *path, size_t size, const char *name);
int tx_dir_down(void **state);
/* For fx_up(): with tenants. */
void tx_tune(struct mcm_conf *conf);

struct mcm_scope tx_scope(struct fixture *fx, const char *tenant);
/* What the service does for a client of @tenant: begin and end. */
int tx_put(struct fixture *fx, const char *tenant, const char *key, uint64_t size, uint32_t flags);
/* 0 or an error; *size may be NULL. */
int tx_stat(struct fixture *fx, const char *tenant, const char *key, uint64_t *size);
struct mcp_tenant tx_figures(struct fixture *fx, const char *tenant);
void tx_quota(struct fixture *fx, const char *tenant, uint64_t bytes);
/* The number removed. */
uint64_t tx_remove_match(struct fixture *fx, const char *tenant, const char *pattern,
			 uint32_t flags);

#endif
