/* SPDX-License-Identifier: Apache-2.0
 * security.h - the credential of a handle: TLS to the master and to data ports of nodes.
 *
 * With a credential, connections to masters present it, those to data ports present tickets that the master makes from
 * it (proto/msg_security.def), and the data port of this process admits tickets for its own name, if the
 * credential is of role node, and else no peer.  The file is read again for each connection to a master, so it can be
 * replaced while the handle is open. */
#ifndef MCS_SECURITY_H
#define MCS_SECURITY_H

#include "common/net/stream.h"
#include "common/principal.h"
#include "common/security/identity.h"
#include "proto/codec.h"

struct mcs_session;
struct mcs_security;

/* @path: file of a credential; NULL or "": MC_CREDENTIAL of the environment, and *ret NULL if that is not set either.
 * @encrypt: as mcs_conf.encrypt.  Errors have a detail that names the file. */
int mcs_security_open(const char *path, const char *encrypt, struct mcs_security **ret);
/* NULL is fine.  No connection may use its nets. */
void mcs_security_close(struct mcs_security *s);

/* Nets for masters, for data ports, and for connections to data ports that are encrypted also with @encrypt "control";
 * NULL for NULL: the default one. */
const struct mc_net *mcs_security_net(const struct mcs_security *s);
const struct mc_net *mcs_security_data_net(const struct mcs_security *s);
const struct mc_net *mcs_security_control_net(const struct mcs_security *s);

/* The session over which tickets are asked for; before the first transfer, and NULL before the session is closed.
 * NULL @s is fine. */
void mcs_security_session(struct mcs_security *s, struct mcs_session *session);

/* A new session begins: tickets of another credential than the one that was read last are dropped, because capabilities
 * that the master grants from now on are for the holder of the new one.  NULL is fine. */
void mcs_security_renew(struct mcs_security *s);

/* The serial numbers that the master has revoked, in their order: replaces the list before. */
int mcs_security_revoke(struct mcs_security *s, const uint64_t *serials, unsigned n);
/* The holder of a bearer token, as @session's master says; remembered until it expires or is revoked.  -EACCES with a
 * detail: it is not valid. */
int mcs_security_token(struct mcs_security *s, struct mcs_session *session, const char *token, uint64_t deadline,
		       struct mc_identity *ret);
/* Is the holder of a ticket still admitted, and is it of the tenant that this process serves?  @arg: a struct
 * mcs_security.  Any thread. */
bool mcs_security_admits(void *arg, const struct mc_principal *p);

/* About the credential as it was when the handle was opened: the name of its holder; its role, one MC_ROLE_*; the
 * tenant to which it confines its holder, "" for all; the absolute path of its file. */
const char *mcs_security_name(const struct mcs_security *s);
uint32_t mcs_security_role(const struct mcs_security *s);
const char *mcs_security_tenant(const struct mcs_security *s);
const char *mcs_security_path(const struct mcs_security *s);
/* Number of that tenant in headers of encrypted files (mct_conf.tenant); 0 for NULL. */
uint64_t mcs_security_tenant_number(const struct mcs_security *s);
/* Serial number of the session's credential, for which the master makes tickets; 0: a certificate, or NULL. */
uint64_t mcs_security_serial(struct mcs_security *s);
/* 0, or -EACCES with a detail: the credential that was read last has expired. */
int mcs_security_fresh(struct mcs_security *s);

#endif
