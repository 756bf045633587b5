/* SPDX-License-Identifier: Apache-2.0
 * vault.h - the form of the state's files on disk: plain, or encrypted with keys of the pool's secret (--security=on).
 *
 * Journals and checkpoints are written and read through here, so the copies of standbys and the pieces of snapshots,
 * which have the bytes of these files, are encrypted too.  A master with security refuses plain files, one without
 * refuses encrypted ones.  An encrypted file is
 *
 *	head, twice	 0 "mc-vault"	 8 u32 number of the secret	12 u32 CRC-32C of the rest, and of the number
 *			16 salt[32], random
 *			48 tag[16] of no bytes, piece 0 of kind 0: is it the secret?
 *	pieces		 0 u32 "MCP1", or "MCE1" for the end mark of a fetched snapshot
 *			 4 u32 length n, a multiple of 8, at most 64 KiB
 *			 8 u64 number, ascending from 1 on
 *			16 n bytes of AES-256-GCM, and the tag[16]; the fields before are additional data
 *
 * little-endian.  The key of a file is HKDF-SHA256(secret, "mooncake-fs journal" | salt); the nonce of a piece is its
 * kind and number.  Nonces never repeat with a key: the process that made the salt writes the file, from the first
 * byte to the last, with rising numbers.  Others append to a fetched copy only an end mark, which has a kind of its own
 * and always the same bytes.
 *
 * Pieces are one stream of records.  A damaged piece counts as damaged records; a piece that was moved, repeated or
 * put into another file is a damaged one.  A file without its last pieces is one that was not written to its end. */
#ifndef MCM_VAULT_H
#define MCM_VAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mc_sealer;
struct mcm_security;
struct mcm_vault_ops;

#define MCM_VAULT_PROOF 80u

struct mcm_vault {
	const struct mcm_vault_ops *ops;
	struct mcm_security *security;
	bool aged;			/* atomic: a file that was read has a key of an older secret */
};

/* A file that is being written; one thread at a time. */
struct mcm_vault_file {
	const struct mcm_vault *vault;
	int fd;				/* -1: none */
	/* the encrypted form has these: */
	struct mc_sealer *sealer;
	uint8_t *buf;
	uint32_t secret;		/* number of the secret of its key */
	uint64_t number;		/* the last piece's */
};

/* Slots as the functions of the same name below. */
struct mcm_vault_ops {
	int (*begin)(struct mcm_vault_file *f);
	int (*write)(struct mcm_vault_file *f, const void *p, size_t len);
	int (*append_end)(const struct mcm_vault *v, int fd, const void *p, size_t len);
	bool (*is_aged)(const struct mcm_vault_file *f);
	int (*map)(struct mcm_vault *v, int fd, size_t len, void **ret, size_t *ret_len);
	int (*decode)(struct mcm_vault *v, const uint8_t *p, size_t len, uint8_t *ret, size_t *ret_len);
	int (*prove)(const struct mcm_vault *v, const char *text, char ret[MCM_VAULT_PROOF]);
	int (*verify)(const struct mcm_vault *v, const char *text, const char *proof);
};

/* @security NULL: the plain form. */
void mcm_vault_init(struct mcm_vault *v, struct mcm_security *security);

/* @fd is a new, empty file, which belongs to @ret from now on, also after an error. */
int mcm_vault_begin(const struct mcm_vault *v, int fd, struct mcm_vault_file *ret);
/* Write @len bytes, a multiple of 8.  -errno. */
int mcm_vault_write(struct mcm_vault_file *f, const void *p, size_t len);
/* Close the file; one without a descriptor is fine. */
void mcm_vault_close(struct mcm_vault_file *f);
/* Was the secret rotated since the file was begun? */
bool mcm_vault_is_aged(const struct mcm_vault_file *f);
/* Append the end record of a fetched snapshot to a file of another process; always the same bytes.  Errors as below. */
int mcm_vault_append_end(const struct mcm_vault *v, int fd, const void *p, size_t len);

/* The contents of a file of @len bytes, which is not empty: *ret is mapped, NULL if they are empty.  -EINVAL: the file
 * has the other form; -EKEYREJECTED: its secret was dropped; -EACCES: it is of another pool, or its secret is newer
 * than those of this master; -MC_EPROTO: its head is damaged; -errno; with a detail that does not name it. */
int mcm_vault_map(struct mcm_vault *v, int fd, size_t len, void **ret, size_t *ret_len);
/* The same for the beginning of a file in memory; @ret: room for @len bytes. */
int mcm_vault_decode(struct mcm_vault *v, const uint8_t *p, size_t len, uint8_t *ret, size_t *ret_len);

/* The proof that @text was written by a master of this pool: "" in the plain form, else the number of a secret and
 * HKDF-SHA256(secret, "mooncake-fs manifest" | text) in hexadecimal. */
int mcm_vault_prove(const struct mcm_vault *v, const char *text, char ret[MCM_VAULT_PROOF]);
/* @proof: "": there is none.  -EINVAL, -EKEYREJECTED, -EACCES as above; -MC_ECHECKSUM: the text was changed. */
int mcm_vault_verify(const struct mcm_vault *v, const char *text, const char *proof);

#endif
