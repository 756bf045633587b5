/* SPDX-License-Identifier: Apache-2.0
 * fuzz_master_policy.c - the file of tenants and quotas. */
#include <config.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "master/mcm_i.h"
#include "proto/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	FILE *from = size ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;
	struct mcm_tenant_policy p = { 0 };

	if (!from)
		return 0;
	if (mcm_tenant_policy_read(from, &p) == 0) {
		if (p.count >= MCM_TENANTS_MAX)
			abort();
		for (size_t i = 0; i < p.count; i++) {
			if (!p.at[i].quota || p.at[i].quota > INT64_MAX ||
			    mcm_tenant_check_name(mcp_bytes(p.at[i].name, strlen(p.at[i].name))) < 0)
				abort();
			for (size_t k = 0; k < i; k++)
				if (!strcmp(p.at[i].name, p.at[k].name))
					abort();
		}
	}
	free(p.at);
	fclose(from);
	return 0;
}
