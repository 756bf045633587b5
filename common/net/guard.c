/* SPDX-License-Identifier: Apache-2.0
 * guard.c - the rule for listeners that other hosts reach. */
#include <config.h>

#include "common/net/guard.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/err.h"
#include "common/log.h"
#include "common/net/net.h"

#define LOG "net"
#define HOST_LEN 64	/* a longer one is no numeric address */

static atomic_bool warned_open, warned_closed;

static bool addr4_is_loopback(uint32_t in_network_order)
{
	return ntohl(in_network_order) >> 24 == IN_LOOPBACKNET;
}

bool mc_host_is_loopback(const char *host)
{
	struct in6_addr six;
	struct in_addr four;
	char bare[HOST_LEN];
	size_t len = strlen(host);

	if (len >= sizeof(bare))
		return false;
	strcpy(bare, host);
	if (len > 1 && host[0] == '[' && host[len - 1] == ']') {
		memcpy(bare, host + 1, len - 2);
		bare[len - 2] = '\0';
	}
	if (inet_pton(AF_INET, bare, &four) == 1)
		return addr4_is_loopback(four.s_addr);
	if (inet_pton(AF_INET6, bare, &six) != 1)
		return !strcasecmp(bare, "localhost");
	if (!IN6_IS_ADDR_V4MAPPED(&six))
		return IN6_IS_ADDR_LOOPBACK(&six);
	memcpy(&four, &six.s6_addr[12], sizeof(four));
	return addr4_is_loopback(four.s_addr);
}

static bool addr_is_local(const char *addr)
{
	char host[MC_ADDR_MAX];
	int port;

	if (!strncmp(addr, "unix:", 5) || !strncmp(addr, "local:", 6))
		return true;
	return mc_addr_split(addr, host, sizeof(host), 0, &port) == 0 && mc_host_is_loopback(host);
}

static bool is_first(atomic_bool *warned)
{
	return !atomic_exchange(warned, true);
}

static void warn_open(const struct mc_guard *g, const char *option, const char *addr)
{
	if (is_first(&warned_open))
		mc_warn(LOG, "no security: every host that reaches %s=%s can %s: %s%sadmit only trusted hosts with "
			"a firewall", option, g->shown ? g->shown : addr, g->harm, g->secure ? g->secure : "",
			g->secure ? ", or " : "");
}

int mc_guard_listen(const struct mc_guard *g, const char *option, const char *addr)
{
	if (g->secured || addr_is_local(addr))
		return 0;
	if (g->strict || !g->allowed)
		return mc_fail(-EACCES, "%s=%s: every host that reaches this address could %s: %s%suse %sa loopback "
			       "address such as " MC_GUARD_LOOPBACK, option, g->shown ? g->shown : addr, g->harm,
			       g->secure ? g->secure : "", g->secure ? ", or " : "",
			       g->strict ? "" : "--allow_insecure in a network of trusted hosts, or ");
	warn_open(g, option, addr);
	return 0;
}

bool mc_guard_closes(const struct mc_guard *g, const char *def)
{
	return !g->secured && (g->strict || !g->allowed) && !addr_is_local(def);
}

void mc_guard_warn_closed(const struct mc_guard *g)
{
	if (is_first(&warned_closed))
		mc_warn(LOG, "listening on " MC_GUARD_LOOPBACK " only; for other hosts %s%s",
			g->secure ? g->secure : "use --allow_insecure",
			g->secure && !g->strict ? " or --allow_insecure" : "");
}

const char *mc_guard_default(const struct mc_guard *g, const char *option, const char *def)
{
	if (mc_guard_closes(g, def)) {
		mc_guard_warn_closed(g);
		return MC_GUARD_LOOPBACK;
	}
	(void)mc_guard_listen(g, option, def);
	return def;
}

void mc_guard_library(const char *harm, const char *addr, bool allowed)
{
	if (!allowed && !addr_is_local(addr) && is_first(&warned_open))
		mc_warn(LOG, "no security: every host that reaches %s can %s: admit only trusted hosts with a "
			"firewall, or use a loopback name; " MC_GUARD_ENV "=1 silences this line (docs/SECURITY.md)",
			addr, harm);
}
