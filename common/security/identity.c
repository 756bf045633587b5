/* SPDX-License-Identifier: Apache-2.0
 * identity.c - the text of identities, and the derivation of their keys. */
#include <config.h>

#include "common/security/identity.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"

#define PARTS_MAX 8u

bool mc_identity_component(const char *s, size_t max)
{
	size_t len = strlen(s);

	return len && len <= max &&
	       strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:@+-") == len;
}

static bool identity_tenant_ok(const char *s)
{
	return !strcmp(s, "*") || mc_identity_component(s, MC_PRINCIPAL_TENANT_MAX);
}

int mc_identity_format(const struct mc_identity *id, char ret[MC_IDENTITY_MAX + 1])
{
	int n;

	if (!mc_identity_component(id->cluster, MC_CLUSTER_NAME_MAX))
		return mc_fail(-EINVAL, "the name of the cluster must have 1 to %u letters, digits or ._:@+-",
			       MC_CLUSTER_NAME_MAX);
	if (!identity_tenant_ok(id->tenant))
		return mc_fail(-EINVAL, "the tenant must be * or 1 to %u letters, digits or ._:@+-",
			       MC_PRINCIPAL_TENANT_MAX);
	if (!mc_identity_component(id->name, MC_PRINCIPAL_NAME_MAX) ||
	    (id->ticket && !mc_identity_component(id->node, MC_PRINCIPAL_NAME_MAX)))
		return mc_fail(-EINVAL, "the name must have 1 to %u letters, digits or ._:@+-", MC_PRINCIPAL_NAME_MAX);
	if (!id->secret || id->secret > MC_SECRET_NUMBER_MAX || !id->serial || !id->expires_s)
		return mc_fail(-EINVAL, "an identity needs the number of a secret, a serial number and an expiry");
	n = snprintf(ret, MC_IDENTITY_MAX + 1, "m%c%u/%s/%s%s%s/%s/%s/%016" PRIx64 "/%" PRIu64, id->ticket ? 't' : 'c',
		     id->secret, id->cluster, id->ticket ? id->node : "", id->ticket ? "/" : "",
		     mc_role_name(id->role), id->tenant, id->name, id->serial, id->expires_s);
	return n <= (int)MC_IDENTITY_MAX ? n :
		mc_fail(-EINVAL, "the identity is longer than %u bytes", MC_IDENTITY_MAX);
}

/* Copy a component; an oversized one gives false. */
static bool identity_take(char *to, size_t size, const char *from)
{
	size_t len = strlen(from);

	if (len >= size)
		return false;
	memcpy(to, from, len + 1);
	return true;
}

static bool identity_parse_parts(char **part, struct mc_identity *ret)
{
	unsigned at = ret->ticket ? 3 : 2;

	ret->secret = (uint32_t)strtoul(part[0] + 2, NULL, 10);
	if (!identity_take(ret->cluster, sizeof(ret->cluster), part[1]))
		return false;
	if (ret->ticket && !identity_take(ret->node, sizeof(ret->node), part[2]))
		return false;
	ret->role = mc_role_parse(part[at]);
	if (!ret->role || !identity_take(ret->tenant, sizeof(ret->tenant), part[at + 1]) ||
	    !identity_take(ret->name, sizeof(ret->name), part[at + 2]))
		return false;
	ret->serial = strtoull(part[at + 3], NULL, 16);
	ret->expires_s = strtoull(part[at + 4], NULL, 10);
	return true;
}

int mc_identity_parse(const char *text, size_t len, struct mc_identity *ret)
{
	char copy[MC_IDENTITY_MAX + 1], again[MC_IDENTITY_MAX + 1];
	char *part[PARTS_MAX], *rest = copy;
	unsigned n = 0;

	memset(ret, 0, sizeof(*ret));
	if (!len || len > MC_IDENTITY_MAX || memchr(text, 0, len))
		return mc_fail(-EINVAL, "not an identity: it has %zu bytes, or a NUL", len);
	memcpy(copy, text, len);
	copy[len] = '\0';
	while (n < PARTS_MAX && rest)
		part[n++] = strsep(&rest, "/");
	ret->ticket = !strncmp(copy, "mt", 2);
	/* The text is checked as a whole: it has to be the one that the parsed values give. */
	if (rest || n != (ret->ticket ? 8u : 7u) || !identity_parse_parts(part, ret) ||
	    mc_identity_format(ret, again) != (int)len || memcmp(again, text, len))
		return mc_fail(-EINVAL, "not an identity of this version");
	return 0;
}

void mc_identity_principal(const struct mc_identity *id, struct mc_principal *ret)
{
	*ret = (struct mc_principal){
		.source = MC_PRINCIPAL_CREDENTIAL, .roles = id->role, .secret = id->secret, .serial = id->serial,
		.expires_s = id->expires_s,
	};
	if (strcmp(id->tenant, "*"))
		strcpy(ret->tenant, id->tenant);
	strcpy(ret->name, id->name);
}

int mc_identity_check_time(const struct mc_identity *id, uint64_t now_s)
{
	if (now_s >= id->expires_s)
		return mc_fail(-EACCES, "the credential of %s has expired %" PRIu64 " s ago; make a new one with mcctl "
			       "credential create", id->name, now_s - id->expires_s);
	return 0;
}

/* HKDF cannot fail with valid arguments, except without memory: then nothing may go on with a key that is known. */
void mc_key_derive(const uint8_t key[MC_KEY_LEN], const char *purpose, const void *info, size_t len,
		   uint8_t ret[MC_KEY_LEN])
{
	EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
	EVP_KDF_CTX *ctx = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)(uintptr_t)"SHA256", 0),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)(uintptr_t)key, MC_KEY_LEN),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, (void *)(uintptr_t)purpose, strlen(purpose)),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, (void *)(uintptr_t)info, len),
		OSSL_PARAM_construct_end(),
	};

	if (!ctx || EVP_KDF_derive(ctx, ret, MC_KEY_LEN, params) <= 0)
		abort();
	EVP_KDF_CTX_free(ctx);
	EVP_KDF_free(kdf);
}

void mc_key_credential(const uint8_t secret[MC_KEY_LEN], const char *text, uint8_t ret[MC_KEY_LEN])
{
	mc_key_derive(secret, "mooncake-fs credential", text, strlen(text), ret);
}

void mc_key_node(const uint8_t secret[MC_KEY_LEN], const char *cluster, const char *node, uint8_t ret[MC_KEY_LEN])
{
	char text[MC_CLUSTER_NAME_MAX + MC_PRINCIPAL_NAME_MAX + 2];

	snprintf(text, sizeof(text), "%s/%s", cluster, node);
	mc_key_derive(secret, "mooncake-fs node", text, strlen(text), ret);
}

void mc_key_ticket(const uint8_t node_key[MC_KEY_LEN], const char *text, uint8_t ret[MC_KEY_LEN])
{
	mc_key_derive(node_key, "mooncake-fs ticket", text, strlen(text), ret);
}

void mc_key_bearer(const uint8_t key[MC_KEY_LEN], const char *text, uint8_t ret[MC_KEY_LEN])
{
	mc_key_derive(key, "mooncake-fs bearer", text, strlen(text), ret);
}
