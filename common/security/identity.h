/* SPDX-License-Identifier: Apache-2.0
 * identity.h - identities of peers as text that is its own proof, and the keys that belong to them.
 *
 *	mcN/CLUSTER/ROLE/TENANT/NAME/SERIAL/EXPIRY		a credential
 *	mtN/CLUSTER/NODE/ROLE/TENANT/NAME/SERIAL/EXPIRY		a ticket: the holder of a credential at one node
 *
 * N is the number of the cluster's secret (secret.h) under which the key was derived, SERIAL 16 hex digits, EXPIRY the
 * Unix time in seconds from which the identity is invalid.  TENANT "*" is every tenant.  The text is the identity of
 * TLS 1.3's external pre-shared keys, so role, tenant and expiry cannot be changed without another key:
 *
 *	key of a credential	HKDF-SHA256(secret N, "mooncake-fs credential" | text)
 *	key of a node		HKDF-SHA256(secret N, "mooncake-fs node" | CLUSTER "/" NODE)
 *	key of a ticket		HKDF-SHA256(key of the node, "mooncake-fs ticket" | text)
 *	key of a bearer token	HKDF-SHA256(key of the credential, "mooncake-fs bearer" | text)
 *	keys of bytes at rest	HKDF-SHA256(secret N, a purpose | a place), as their users say
 *
 * Masters derive the first two and look nothing up; a node derives keys of tickets for itself only.  All functions are
 * pure; any thread. */
#ifndef MC_IDENTITY_H
#define MC_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/principal.h"

#define MC_KEY_LEN 32u
#define MC_IDENTITY_MAX 383u		/* bytes of the text */
#define MC_CLUSTER_NAME_MAX 48u
#define MC_SECRET_NUMBER_MAX 9999u

struct mc_identity {
	bool ticket;
	uint32_t secret;			/* number of the cluster's secret, from 1 on */
	uint32_t role;				/* one MC_ROLE_* */
	uint64_t serial, expires_s;
	char cluster[MC_CLUSTER_NAME_MAX + 1];
	char node[MC_PRINCIPAL_NAME_MAX + 1];	/* node that the ticket opens; else "" */
	char tenant[MC_PRINCIPAL_TENANT_MAX + 1];
	char name[MC_PRINCIPAL_NAME_MAX + 1];
};

/* May @s be a component of an identity?  1 to @max letters, digits and "._:@+-". */
bool mc_identity_component(const char *s, size_t max);

/* Parse @text, which needs no NUL.  Only the text that mc_identity_format() makes is accepted.  -EINVAL with a detail
 * that has no byte of @text. */
int mc_identity_parse(const char *text, size_t len, struct mc_identity *ret);
/* Write the text and return its length.  -EINVAL with a detail: a component is not one. */
int mc_identity_format(const struct mc_identity *id, char ret[MC_IDENTITY_MAX + 1]);

/* The rights of the holder. */
void mc_identity_principal(const struct mc_identity *id, struct mc_principal *ret);

/* @now_s: Unix time.  0, or -EACCES with a detail. */
int mc_identity_check_time(const struct mc_identity *id, uint64_t now_s);

/* The derivations above; @text is one identity. */
void mc_key_credential(const uint8_t secret[MC_KEY_LEN], const char *text, uint8_t ret[MC_KEY_LEN]);
void mc_key_node(const uint8_t secret[MC_KEY_LEN], const char *cluster, const char *node, uint8_t ret[MC_KEY_LEN]);
void mc_key_ticket(const uint8_t node_key[MC_KEY_LEN], const char *text, uint8_t ret[MC_KEY_LEN]);
void mc_key_bearer(const uint8_t key[MC_KEY_LEN], const char *text, uint8_t ret[MC_KEY_LEN]);
/* The same for another purpose; @info may have any bytes. */
void mc_key_derive(const uint8_t key[MC_KEY_LEN], const char *purpose, const void *info, size_t len,
		   uint8_t ret[MC_KEY_LEN]);

#endif
