/* SPDX-License-Identifier: Apache-2.0
 * principal.h - the identity of a peer, and the one check of the calls that it may make.
 *
 * A server gives each connection a principal when it accepts it; each row of its tables of requests and routes names
 * the roles that may call it.  Without security every peer has all roles. */
#ifndef MC_PRINCIPAL_H
#define MC_PRINCIPAL_H

#include <stdbool.h>
#include <stdint.h>

#define MC_ROLE_READER 0x01u	/* reads objects and their names */
#define MC_ROLE_CLIENT 0x02u	/* puts, changes and removes objects; reads */
#define MC_ROLE_NODE 0x04u	/* contributes segments and copies objects; a client too */
#define MC_ROLE_ADMIN 0x08u	/* quotas, tasks, snapshots, failover: everything */
#define MC_ROLE_MASTER 0x10u	/* copies the journal and leads */
#define MC_ROLE_METRICS 0x20u	/* health and metrics */
#define MC_ROLES_ALL 0x3fu

/* Roles of a row.  A role includes the lesser ones by being named in their rows. */
#define MC_MAY_READ (MC_ROLE_READER | MC_ROLE_CLIENT | MC_ROLE_NODE | MC_ROLE_ADMIN)
#define MC_MAY_WRITE (MC_ROLE_CLIENT | MC_ROLE_NODE | MC_ROLE_ADMIN)
#define MC_MAY_OWN (MC_ROLE_NODE | MC_ROLE_ADMIN)
#define MC_MAY_ADMINISTER MC_ROLE_ADMIN
#define MC_MAY_REPLICATE MC_ROLE_MASTER
#define MC_MAY_WATCH MC_ROLES_ALL
/* A route that needs no identity (mc_httpd_start()); no peer has the flag. */
#define MC_OPEN 0x40u
#define MC_MAY_ANYONE (MC_OPEN | MC_ROLES_ALL)

enum mc_principal_source {
	MC_PRINCIPAL_ANYONE,	/* a connection without an identity */
	MC_PRINCIPAL_USER,	/* the user of a unix socket's peer, by SO_PEERCRED */
	MC_PRINCIPAL_LOCAL,	/* code of this process */
	MC_PRINCIPAL_CREDENTIAL, /* the holder of a credential (common/security/identity.h) */
};

/* Longest names that a credential can hold, in bytes; a tenant with a longer name gets none. */
#define MC_PRINCIPAL_TENANT_MAX 96
#define MC_PRINCIPAL_NAME_MAX 64

struct mc_principal {
	enum mc_principal_source source;
	uint32_t roles;		/* MC_ROLE_* */
	uint32_t uid;		/* USER */
	uint64_t serial;	/* CREDENTIAL: its serial number, never 0; else 0 */
	uint32_t secret;	/* CREDENTIAL: number of the pool's secret that proves it */
	uint64_t expires_s;	/* CREDENTIAL: Unix time from which it is invalid; 0: never */
	/* Tenant to which the peer's requests are confined; "": they may name any tenant. */
	char tenant[MC_PRINCIPAL_TENANT_MAX + 1];
	char name[MC_PRINCIPAL_NAME_MAX + 1];	/* CREDENTIAL: name of its holder, for logs; else "" */
};

/* The principal of a connection's peer; @uid: of the peer's process, or -1 if the connection does not tell. */
static inline struct mc_principal mc_principal_of_peer(int64_t uid)
{
	return (struct mc_principal){
		.source = uid < 0 ? MC_PRINCIPAL_ANYONE : MC_PRINCIPAL_USER,
		.roles = MC_ROLES_ALL, .uid = uid < 0 ? 0 : (uint32_t)uid,
	};
}

static inline struct mc_principal mc_principal_local(void)
{
	return (struct mc_principal){ .source = MC_PRINCIPAL_LOCAL, .roles = MC_ROLES_ALL };
}

/* Name of the lowest role in @roles ("reader"), "none"; the MC_ROLE_* of a name, 0: unknown. */
const char *mc_role_name(uint32_t roles);
uint32_t mc_role_parse(const char *name);

int mc_principal_refuse(const struct mc_principal *p, uint32_t roles);	/* slow path of mc_principal_check() */

/* May @p call a request or route that needs one of @roles?  0, or -EACCES with a detail. */
static inline int mc_principal_check(const struct mc_principal *p, uint32_t roles)
{
	return __builtin_expect(p->roles & roles, 1) ? 0 : mc_principal_refuse(p, roles);
}

#endif
