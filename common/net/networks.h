/* SPDX-License-Identifier: Apache-2.0
 * networks.h - lists of networks: "10.0.0.0/24,192.168.7.1,fd00::/8". */
#ifndef MC_NETWORKS_H
#define MC_NETWORKS_H

#include <netinet/in.h>
#include <stdbool.h>

struct mc_networks;

/* Parse @text; "": no network.  -EINVAL with a detail that names @option and the entry; -ENOMEM. */
int mc_networks_parse(const char *option, const char *text, struct mc_networks **ret);
void mc_networks_free(struct mc_networks *n);		/* NULL is fine */
/* Is @addr (IPv4 as ::ffff:a.b.c.d) in one of them, or an address of the loopback?  Any thread. */
bool mc_networks_admit(const struct mc_networks *n, const struct in6_addr *addr);
/* The same for the peer of a connected socket; that of a unix socket is on this host, as is one with the socket's own
 * address. */
bool mc_networks_admit_peer(const struct mc_networks *n, int fd);

#endif
