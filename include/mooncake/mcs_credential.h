/* SPDX-License-Identifier: Apache-2.0
 * mcs_credential.h - credentials of a pool with security: make, list and revoke them.  See mcs.h for errors and
 * timeouts; all need the role admin, except mcs_credential_token(). */
#ifndef MOONCAKE_MCS_CREDENTIAL_H
#define MOONCAKE_MCS_CREDENTIAL_H

#include <stddef.h>
#include <stdint.h>

#include <mooncake/mcs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Make a credential and write it to the new file @path, mode 0600.  @role: "admin", "node", "client", "reader" or
 * "metrics"; @tenant: NULL or "": "default", "*": all; @ttl_s: its life in seconds.  *ret_serial, if not NULL, gets its
 * serial number.  When the file cannot be written, the credential is revoked again. */
int mcs_credential_create(mcs_t *s, const char *role, const char *tenant, const char *name, uint64_t ttl_s,
			  const char *path, uint64_t *ret_serial, int64_t timeout_ms);

struct mcs_credential {
	uint64_t serial;
	uint64_t created_s, expires_s;	/* Unix time; expires_s 0: not known */
	int revoked;
	char role[16], tenant[128], name[128];	/* "": not known */
};
/* Array of the credentials that the master has made or revoked; free() it.  Number of them. */
int mcs_credentials(mcs_t *s, struct mcs_credential **ret, int64_t timeout_ms);
/* Refuse it, and close its connections. */
int mcs_credential_revoke(mcs_t *s, uint64_t serial, int64_t timeout_ms);

/* Check a bearer token that a peer has sent, by asking the master; answers are remembered while the master does not
 * revoke them.  -EACCES: it is not valid. */
struct mcs_holder {
	char role[16], tenant[97], name[65];	/* tenant "*": all */
	uint64_t serial, expires_s;
};
int mcs_credential_check(mcs_t *s, const char *token, struct mcs_holder *ret, int64_t timeout_ms);

/* The token for HTTP ("Authorization: Bearer TOKEN") of the credential in a file; NULL: MC_CREDENTIAL of the
 * environment.  Its length. */
#define MCS_CREDENTIAL_TOKEN_MAX 512
int mcs_credential_token(const char *path, char *ret, size_t size);

#ifdef __cplusplus
}
#endif
#endif
