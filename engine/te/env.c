/* SPDX-License-Identifier: Apache-2.0
 * env.c - upstream's environment variables, read once per engine, and addresses of interfaces. */
#include <config.h>

#include "engine/te/te_i.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <string.h>

#include "common/env.h"

/* Upstream renamed some variables: @name if it is set, else @alias. */
static const char *env_either(const char *name, const char *alias)
{
	return mc_env_str(name) ? name : alias;
}

void mce_te_env_load(struct mce_te_env *env)
{
	const char *text;

	memset(env, 0, sizeof(*env));
	env->force_tcp = mc_env_on("MC_FORCE_TCP");
	env->force_hca = mc_env_on("MC_FORCE_HCA");
	env->ipv6 = mc_env_on("MC_USE_IPV6");
	env->legacy_binding = mc_env_on("MC_LEGACY_RPC_PORT_BINDING");
	env->no_metacache = mc_env_on("MC_DISABLE_METACACHE");
	env->proto_v1 = mc_env_int("MC_TCP_PROTO", 2, 1, 2) == 1;
	text = mc_env_str("MC_TCP_BIND_ADDRESS");
	if (text && strlen(text) < sizeof(env->bind_address))
		strcpy(env->bind_address, text);
	env->handshake_port = (int)mc_env_int("MC_HANDSHAKE_PORT", 12001, 1, 65535);
	env->ask_ms = mce_handshake_ask_ms();
	mce_port_range(&env->port_min, &env->port_max);
	env->conns = (unsigned)mc_env_int(
		env_either("MC_TCP_LANES_PER_PEER", "MC_TCP_MAX_CONNECTIONS_PER_PEER"), 0, 1,
		MCE_TCP_CONNS_MAX);
	env->io_threads = (unsigned)mc_env_int("MC_NUM_TCP_IO_THREADS", 0, 1, MCE_IO_MAX);
	env->progress_ms =
		(uint64_t)mc_env_int("MC_TCP_PROGRESS_TIMEOUT_SEC", 0, 1, 86400) * 1000;
	env->status_ms = (uint64_t)mc_env_int("MC_TCP_STATUS_TIMEOUT_SEC", 0, 1, 86400) * 1000;
	env->refresh_ms =
		(uint64_t)mc_env_int("MC_TE_METADATA_REFRESH_INTERVAL_SECONDS", 0, 0, 86400) * 1000;
	env->max_mr = (uint64_t)mc_env_int("MC_MAX_MR_SIZE", 1ll << 40, 1, INT64_MAX);
}

void mce_te_own_address(bool ipv6, char ret[MC_ADDR_MAX])
{
	int family = ipv6 ? AF_INET6 : AF_INET;
	struct ifaddrs *all, *i;

	strcpy(ret, ipv6 ? "::1" : "127.0.0.1");
	if (getifaddrs(&all))
		return;
	for (i = all; i; i = i->ifa_next) {
		const void *at;

		if (!i->ifa_addr || i->ifa_addr->sa_family != family || !(i->ifa_flags & IFF_UP) ||
		    (i->ifa_flags & IFF_LOOPBACK))
			continue;
		if (ipv6) {
			const struct sockaddr_in6 *sa = (const struct sockaddr_in6 *)i->ifa_addr;

			/* A link-local address is useless without the interface. */
			if (IN6_IS_ADDR_LINKLOCAL(&sa->sin6_addr))
				continue;
			at = &sa->sin6_addr;
		} else {
			at = &((const struct sockaddr_in *)i->ifa_addr)->sin_addr;
		}
		if (inet_ntop(family, at, ret, MC_ADDR_MAX))
			break;
	}
	freeifaddrs(all);
}

void mce_te_interface_of(const char *host, char ret[IF_NAMESIZE])
{
	struct ifaddrs *all, *i;
	char text[INET6_ADDRSTRLEN];

	ret[0] = 0;
	if (getifaddrs(&all))
		return;
	for (i = all; i && !*ret; i = i->ifa_next) {
		int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
		const void *at = NULL;

		if (family == AF_INET)
			at = &((const struct sockaddr_in *)i->ifa_addr)->sin_addr;
		else if (family == AF_INET6)
			at = &((const struct sockaddr_in6 *)i->ifa_addr)->sin6_addr;
		if (at && inet_ntop(family, at, text, sizeof(text)) && !strcmp(text, host) &&
		    strlen(i->ifa_name) < IF_NAMESIZE)
			strcpy(ret, i->ifa_name);
	}
	freeifaddrs(all);
}
