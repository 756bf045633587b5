/* SPDX-License-Identifier: Apache-2.0
 * secret.h - files with secrets: the cluster's secret, and credentials.
 *
 * Both are text, a word and a value per line; '#' begins a comment line.  A file that its group or others may read is
 * refused.  Values are kept in memory that is not swapped and not in core dumps, and are erased when freed.
 *
 *	the cluster's secret, of the masters only	a credential
 *	cluster NAME					identity mc1/NAME/node/default/gpu17/0123456789abcdef/1790000000
 *	secret 2 HEX					key HEX
 *	secret 1 HEX					node_key HEX		(role node only)
 *
 * The first secret makes new credentials; the second one, with a lower number, is still accepted. */
#ifndef MC_SECRET_H
#define MC_SECRET_H

#include "common/security/identity.h"
#include "common/security/secret_file.h"

#define MC_SECRETS_MAX 2u

struct mc_secrets;

/* Make a file with a new secret, mode 0600; an existing file is an error.  @cluster: the pool's name. */
int mc_secrets_init(const char *path, const char *cluster);
/* Put a new secret before the newest one of the file, drop all but these two, and replace the file at once. */
int mc_secrets_rotate(const char *path);
/* Read the file.  Errors have a detail that names it. */
int mc_secrets_load(const char *path, struct mc_secrets **ret);
void mc_secrets_free(struct mc_secrets *s);	/* NULL is fine */

const char *mc_secrets_cluster(const struct mc_secrets *s);
uint32_t mc_secrets_newest(const struct mc_secrets *s);		/* its number */
bool mc_secrets_accepts(const struct mc_secrets *s, uint32_t number);

/* The key of the credential @text, which has been parsed to @id.  -EACCES with a detail: another cluster, a secret
 * that is not known, or a ticket. */
int mc_secrets_key(const struct mc_secrets *s, const struct mc_identity *id, const char *text, uint8_t ret[MC_KEY_LEN]);
/* A key under secret @number for another purpose, as mc_key_derive().  -EACCES. */
int mc_secrets_derive(const struct mc_secrets *s, uint32_t number, const char *purpose, const void *info, size_t len,
		      uint8_t ret[MC_KEY_LEN]);
/* The key of node @node under the secret with number @secret.  -EACCES. */
int mc_secrets_node_key(const struct mc_secrets *s, uint32_t secret, const char *node, uint8_t ret[MC_KEY_LEN]);

struct mc_credential {
	struct mc_identity id;
	char text[MC_IDENTITY_MAX + 1];
	uint8_t key[MC_KEY_LEN];
	bool has_node_key;
	uint8_t node_key[MC_KEY_LEN];
};

/* The files that a credential names instead of an identity and a key, for a client with a certificate (tls.h). */
#define MC_CERT_PATH_MAX 512u
struct mc_credential_files {
	char cert[MC_CERT_PATH_MAX], key[MC_CERT_PATH_MAX], ca[MC_CERT_PATH_MAX], map[MC_CERT_PATH_MAX];
};

/* Read lines "cert FILE", "key_file FILE", "ca FILE" and "map FILE", each once, of absolute names.  1: *@ret has them;
 * 0: the file begins with another line, so it is mc_credential_load()'s; -errno with a detail that names the file. */
int mc_credential_files_load(const char *path, struct mc_credential_files *ret);

/* Memory for one, all zero, in its own pages: locked and not in core dumps.  NULL with a detail. */
struct mc_credential *mc_credential_new(void);
void mc_credential_free(struct mc_credential *c);	/* erases it; NULL is fine */

/* Read the file into @ret.  Errors have a detail that names it. */
int mc_credential_load(const char *path, struct mc_credential *ret);
/* Set identity and key of @c, which a master has sent, and nothing else.  -MC_EPROTO, or -EINVAL with a detail. */
int mc_credential_set(struct mc_credential *c, const void *text, size_t len, const void *key, size_t key_len);
/* Write it to a new file of mode 0600; an existing file is an error. */
int mc_credential_save(const struct mc_credential *c, const char *path);
/* The text of the file.  Returns its length, -ENOBUFS. */
int mc_credential_text(const struct mc_credential *c, char *ret, size_t size);

/* The file of this process's credential, from MC_CREDENTIAL; NULL: it has none. */
const char *mc_credential_path(void);
/* For a program at its start, while it has one thread: the value of its option credential becomes that variable, as an
 * absolute path, because a daemon changes its directory, and the process writes no core dump (its soft limit becomes 0;
 * prlimit(1) can raise it).  "": the variable is removed. */
void mc_credential_use(const char *path);

/* The bearer token of a credential, for HTTP: its identity, ".", and the derived key in hex. */
#define MC_BEARER_MAX (MC_IDENTITY_MAX + 2 + 2 * MC_KEY_LEN)
void mc_bearer_make(const struct mc_credential *c, char ret[MC_BEARER_MAX]);
/* Check a token against the secrets, and its expiry.  -EACCES with a detail. */
int mc_bearer_check(const struct mc_secrets *s, const char *token, uint64_t now_s, struct mc_identity *ret);

#endif
