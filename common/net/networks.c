/* SPDX-License-Identifier: Apache-2.0
 * networks.c - lists of networks, as IPv6 addresses with the length of a prefix. */
#include <config.h>

#include "common/net/networks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/net/socket.h"

#define MAPPED_BITS 96u		/* ::ffff:0:0/96 */

struct mc_networks {
	unsigned n;
	struct network {
		struct in6_addr addr;
		unsigned bits;
	} at[];
};

static const struct network loopback[] = {
	{ .addr = IN6ADDR_LOOPBACK_INIT, .bits = 128 },
	{ .addr = { { { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 0 } } }, .bits = MAPPED_BITS + 8 },
};

static bool network_has(const struct network *n, const struct in6_addr *a)
{
	unsigned whole = n->bits / 8, rest = n->bits % 8;

	if (memcmp(n->addr.s6_addr, a->s6_addr, whole))
		return false;
	return !rest || !((n->addr.s6_addr[whole] ^ a->s6_addr[whole]) >> (8 - rest));
}

/* One entry, "ADDRESS" or "ADDRESS/BITS". */
static int network_parse(char *text, struct network *ret)
{
	char *slash = strchr(text, '/'), *end;
	struct in_addr v4;
	unsigned long bits, most = 128;

	if (slash)
		*slash++ = '\0';
	if (inet_pton(AF_INET, text, &v4) == 1) {
		most = 32;
		memset(&ret->addr, 0, 10);
		memset(ret->addr.s6_addr + 10, 0xff, 2);
		memcpy(ret->addr.s6_addr + 12, &v4, 4);
	} else if (inet_pton(AF_INET6, text, &ret->addr) != 1) {
		return -EINVAL;
	}
	bits = most;
	if (slash) {
		bits = strtoul(slash, &end, 10);
		if (*end || end == slash || *slash < '0' || *slash > '9' || bits > most)
			return -EINVAL;
	}
	ret->bits = (unsigned)(most == 32 ? MAPPED_BITS + bits : bits);
	return 0;
}

int mc_networks_parse(const char *option, const char *text, struct mc_networks **ret)
{
	auto_free char *copy = strdup(text);
	struct mc_networks *n;
	char *rest = copy, *entry;
	unsigned count = 1;

	for (const char *p = text; *p; p++)
		count += *p == ',';
	n = copy ? calloc(1, sizeof(*n) + count * sizeof(n->at[0])) : NULL;
	if (!n)
		return mc_fail(-ENOMEM, "no memory for a list of networks");
	while (*text && (entry = strsep(&rest, ","))) {
		if (network_parse(entry, &n->at[n->n++]) == 0)
			continue;
		free(n);
		return mc_fail(-EINVAL, "%s=%s: an entry is no network, such as 10.0.0.0/24 or fd00::/8", option, text);
	}
	*ret = n;
	return 0;
}

void mc_networks_free(struct mc_networks *n)
{
	free(n);
}

bool mc_networks_admit(const struct mc_networks *n, const struct in6_addr *addr)
{
	for (unsigned i = 0; i < sizeof(loopback) / sizeof(loopback[0]); i++)
		if (network_has(&loopback[i], addr))
			return true;
	for (unsigned i = 0; i < n->n; i++)
		if (network_has(&n->at[i], addr))
			return true;
	return false;
}

bool mc_networks_admit_peer(const struct mc_networks *n, int fd)
{
	struct in6_addr peer;

	return mc_socket_same_host(fd) || (mc_socket_end(fd, true, &peer) > 0 && mc_networks_admit(n, &peer));
}
