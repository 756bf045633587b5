/* SPDX-License-Identifier: Apache-2.0
 * protocol.c - names of transport protocols. */
#include <config.h>

#include "common/net/protocol.h"

#include <stdbool.h>
#include <string.h>

#include "common/env.h"
#include "common/err.h"
#include "common/log.h"

/* Upstream's protocols that TCP and shared memory replace; python/mooncake/_setup.py has the same list. */
static const char *const replaced[] = {
	"efa", "nvmeof", "nvlink", "musa", "nvlink_intra", "hip", "barex", "cxl", "cxi", "ascend", "ub",
	"ubshmem", "maca", "sunrise_link", "flagcx", "shm",
};
#define REPLACED (sizeof(replaced) / sizeof(replaced[0]))

int mc_protocol_parse(const char *name)
{
	static struct mc_log_site site[REPLACED];
	static bool warned[REPLACED];	/* atomic */

	if (!strcmp(name, "tcp"))
		return MC_PROTOCOL_TCP;
	if (!strcmp(name, "rpc_only"))
		return MC_PROTOCOL_RPC_ONLY;
	if (!strcmp(name, "rdma"))
		return MC_PROTOCOL_RDMA;
	for (size_t i = 0; i < REPLACED; i++) {
		if (strcmp(name, replaced[i]))
			continue;
		if (mc_log_on("protocol", MC_LOG_WARN) && !__atomic_exchange_n(&warned[i], true, __ATOMIC_RELAXED))
			mc_log_write(&site[i], "protocol", MC_LOG_WARN, "\"%s\" is not available, continuing with tcp "
				     "(and shared memory on the same host)", name);
		return MC_PROTOCOL_TCP;
	}
	return mc_fail(-MC_EPARAM, "unknown protocol \"%s\", use tcp or rdma", name);
}

int mc_protocol_parse_store(const char *name)
{
	if (!strcmp(name, "cxl") && (mc_env_str("MC_CXL_DEV_PATH") || mc_env_str("MC_CXL_DEV_SIZE")))
		return MC_PROTOCOL_CXL;
	return mc_protocol_parse(name);
}
