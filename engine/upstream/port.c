/* SPDX-License-Identifier: Apache-2.0
 * port.c - listening on a port of upstream's range.
 *
 * The port is chosen at random: operators open the whole range in their firewalls, and engines that
 * start together on one host would all try the same first ports. */
#include <config.h>

#include "engine/upstream/port.h"

#include <errno.h>

#include "common/env.h"
#include "common/err.h"
#include "common/log.h"
#include "common/net/socket.h"
#include "common/sys/random.h"

#define TRIES 500
#define MIN_PORT 15000
#define MAX_PORT 17000

/* Upstream reads these variables in both spellings. */
static int port_limit(const char *name, const char *misspelt, int def)
{
	return (int)mc_env_int(name, mc_env_int(misspelt, def, 1024, 65535), 1024, 65535);
}

void mce_port_range(int *ret_min, int *ret_max)
{
	int min = port_limit("MC_MIN_RPC_PORT", "MC_MIN_PRC_PORT", MIN_PORT);
	int max = port_limit("MC_MAX_RPC_PORT", "MC_MAX_PRC_PORT", MAX_PORT);

	if (min > max) {
		mc_warn("env", "MC_MIN_RPC_PORT=%d is above MC_MAX_RPC_PORT=%d, using %d to %d",
			min, max, MIN_PORT, MAX_PORT);
		min = MIN_PORT;
		max = MAX_PORT;
	}
	*ret_min = min;
	*ret_max = max;
}

static int port_listen_on(const char *host, int port, int backlog)
{
	char addr[MC_ADDR_MAX];
	int r = mc_addr_join(host, port, addr);

	return r < 0 ? r : mc_socket_listen(addr, backlog, 0, NULL);
}

int mce_port_listen(const char *host, int port, int backlog, int *ret_port)
{
	int fd = -EADDRINUSE, at = port, min, max;

	if (!host || !*host)
		host = mc_env_on("MC_USE_IPV6") ? "::" : "0.0.0.0";
	mce_port_range(&min, &max);
	if (port)
		fd = port_listen_on(host, port, backlog);
	for (int i = 0; !port && fd == -EADDRINUSE && i < TRIES; i++) {
		at = min + (int)(mc_random_u64() % (unsigned)(max - min + 1));
		fd = port_listen_on(host, at, backlog);
	}
	if (fd < 0)
		return port || fd != -EADDRINUSE ? fd :
			mc_fail(fd, "no free port found between %d and %d", min, max);
	*ret_port = at;
	return fd;
}
