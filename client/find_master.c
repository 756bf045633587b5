/* SPDX-License-Identifier: Apache-2.0
 * find_master.c - which of several masters serves now. */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/session/masters.h"
#include "client/session/security.h"
#include "client/store_i.h"
#include "common/cleanup.h"
#include "common/err.h"
#include "common/net/net.h"
#include "common/sys/clock.h"
#include "common/sys/random.h"

/* The first master that accepts clients: a standby refuses them.  The address is all that is wanted. */
static int master_found(struct mcp_client *c, const struct mcp_hello_reply *hello, void *arg)
{
	(void)hello;
	snprintf(arg, MC_ADDR_MAX, "%s", mcp_client_greeting(c));
	return -ECANCELED;
}

int mcs_find_master(const char *master, char *ret, size_t size, int64_t timeout_ms)
{
	int port;

	return mcs_find_master_http(master, NULL, ret, size, &port, timeout_ms);
}

int mcs_find_master_http(const char *master, const char *credential, char *ret, size_t size, int *ret_port,
			 int64_t timeout_ms)
{
	char addr[MC_ADDR_MAX] = "", why[256];
	struct mcp_client_conf conf = {
		.channel = MCP_CHANNEL_CONTROL, .software = "libmooncake_store", .connected = master_found, .arg = addr,
		.client = { mc_random_u64() | 1, mc_random_u64() },
	};
	const struct mcp_stats msg = { 0 };
	struct mcs_security *security;
	struct mcs_masters *masters;
	struct mcp_client *c;
	int r, port;

	r = mcs_security_open(credential, NULL, &security);
	if (r < 0)
		return r;
	conf.net = mcs_security_net(security);
	r = mcs_masters_open(master, &conf, &masters);
	if (r < 0) {
		mcs_security_close(security);
		return r;
	}
	r = mcp_client_open(&conf, &c);
	if (r < 0) {
		mcs_masters_close(masters);
		mcs_security_close(security);
		return r;
	}
	r = mcp_call(c, MCP_STATS, &msg, NULL, NULL, mc_deadline_ms(timeout_ms));
	snprintf(why, sizeof(why), "%s", mc_err_detail(r));
	mcp_client_close(c);
	mcs_security_close(security);
	port = mcs_masters_http_port(masters);
	mcs_masters_close(masters);
	if (!*addr)
		return mc_fail(r < 0 ? r : -MC_ERPC, "%s", why);
	if (strlen(addr) >= size)
		return mc_fail(-MC_EPARAM, "an address of %zu bytes does not fit", strlen(addr));
	strcpy(ret, addr);
	*ret_port = port;
	return 0;
}
