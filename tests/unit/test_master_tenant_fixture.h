/* SPDX-License-Identifier: Apache-2.0
 * test_master_tenant_fixture.h - helpers for operations of a tenant's clients. */
#ifndef TEST_MASTER_TENANT_FIXTURE_H
#define TEST_MASTER_TENANT_FIXTURE_H

#include "test_master_fixture.h"

/* For cmocka's group: create a temporary directory and write the path of @name in it to @path,
 * which has @size bytes; remove the directory. */
int tx_dir_up(char *path, size_t size, const char *name);
int tx_dir_down(void **state);
/* For fx_up(): enable tenants. */
void tx_tune(struct mcm_conf *conf);

struct mcm_scope tx_scope(struct fixture *fx, const char *tenant);
/* Put an object for a client of @tenant as the service does: start and end. */
int tx_put(struct fixture *fx, const char *tenant, const char *key, uint64_t size, uint32_t flags);
/* 0 or an error; *size may be NULL. */
int tx_stat(struct fixture *fx, const char *tenant, const char *key, uint64_t *size);
struct mcp_tenant tx_figures(struct fixture *fx, const char *tenant);
void tx_quota(struct fixture *fx, const char *tenant, uint64_t bytes);
/* Returns the number of removed objects. */
uint64_t tx_remove_match(struct fixture *fx, const char *tenant, const char *pattern,
			 uint32_t flags);

#endif
