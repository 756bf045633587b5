/* SPDX-License-Identifier: Apache-2.0
 * security.h - the security of a master's process: --security=on.
 *
 * One object for the process, which a standby and the leader that it becomes share.  It has the pool's secret, from
 * which it derives the keys of all peers (common/security/identity.h), and makes the net of the RPC port.  Revoked
 * credentials are in the state of the leader (credentials.h). */
#ifndef MCM_SECURITY_H
#define MCM_SECURITY_H

#include "common/net/httpd.h"
#include "common/net/stream.h"
#include "common/security/secret.h"
#include "master/conf.h"

struct mcm;
struct mcm_audit;
struct mcm_security;

/* Names in --security_dir. */
#define MCM_SECRET_FILE "secret"
#define MCM_ADMIN_FILE "admin.credential"

/* --init_security: make the directory, a secret, and a credential of role admin.  --rotate_security: a new secret.
 * Both print the names of the files that they made. */
int mcm_security_init(const struct mcm_conf *conf);
int mcm_security_rotate(const struct mcm_conf *conf);

/* Read the secret.  0 and NULL with --security=off.  @audit records refused connections; NULL: no record.
 * Errors have a detail. */
int mcm_security_open(const struct mcm_conf *conf, struct mcm_audit *audit, struct mcm_security **ret);
void mcm_security_close(struct mcm_security *s);	/* NULL is fine; no server or client may use its net */

/* The net of RPC listeners and of connections to other masters; NULL for NULL: the default one. */
const struct mc_net *mcm_security_net(const struct mcm_security *s);
/* For mcp_server_conf.identify, with @arg an object of this kind.  Any thread, as the functions below. */
int mcm_security_identify(const struct mc_stream_peer *peer, struct mc_principal *ret, void *arg);
/* The principal of a bearer token.  -EACCES with a detail. */
int mcm_security_bearer(void *arg, const char *token, struct mc_principal *ret);

/* For the HTTP servers: tokens unless @s is NULL, TLS if @conf has files for it. */
struct mc_httpd_security mcm_security_http(struct mcm_security *s, const struct mcm_conf *conf);

/* The leader whose list of revoked credentials counts from now on; NULL: none. */
void mcm_security_attach(struct mcm_security *s, struct mcm *m);
/* Read the secret again if its file has changed.  True: a secret was dropped or the list of revoked credentials has
 * changed since the last call, so connections have to be checked again. */
bool mcm_security_changed(struct mcm_security *s);
/* Is the principal still valid: neither revoked nor expired, nor made with a secret that was dropped? */
bool mcm_security_valid(struct mcm_security *s, const struct mc_principal *p);

/* Keys of bytes at rest: the number of the newest secret, and a key under secret @number (mc_key_derive()).  -EACCES
 * with a detail: that one is not accepted. */
uint32_t mcm_security_newest(struct mcm_security *s);
int mcm_security_key(struct mcm_security *s, uint32_t number, const char *purpose, const void *info, size_t len,
		     uint8_t ret[MC_KEY_LEN]);

/* Make a credential, as --init_security and `mcctl credential create` do; @id.serial, secret and cluster are set here.
 * -EINVAL with a detail. */
int mcm_security_make(struct mcm_security *s, struct mc_identity *id, struct mc_credential *ret);
/* Make a ticket for the data port of @node, whose own credential was made with secret @secret, for @holder. */
int mcm_security_ticket(struct mcm_security *s, uint32_t secret, const char *node, const struct mc_principal *holder,
			struct mc_credential *ret);

#endif
