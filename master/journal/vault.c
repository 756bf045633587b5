/* SPDX-License-Identifier: Apache-2.0
 * vault.c - the plain and the encrypted form of the state's files. */
#include <config.h>

#include "master/journal/vault.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/crc32c.h"
#include "common/err.h"
#include "common/security/seal.h"
#include "common/sys/file.h"
#include "common/sys/random.h"
#include "master/journal/journal_i.h"
#include "master/security/security.h"

#define SALT 32u
#define PIECE (64u << 10)
#define PIECES 16u		/* in one write */
#define GRAIN 8u		/* pieces and records begin at multiples of this */
#define FORGERIES_MAX 1024u	/* places that look like a piece and are none, of one file: more are not tried */

static const char head_magic[8] = { 'm', 'c', '-', 'v', 'a', 'u', 'l', 't' };

struct head {
	char magic[8];
	uint32_t secret, crc;
	uint8_t salt[SALT];
	uint8_t tag[MC_SEAL_TAG];
};
_Static_assert(sizeof(struct head) == 64, "as in the header");

struct piece {
	char magic[4];
	uint32_t len;
	uint64_t number;
};
_Static_assert(sizeof(struct piece) == 16, "as in the header");
#define PIECE_MORE (sizeof(struct piece) + MC_SEAL_TAG)

enum kind { KIND_RECORDS, KIND_END, KINDS };
static const char piece_magic[KINDS][4] = { { 'M', 'C', 'P', '1' }, { 'M', 'C', 'E', '1' } };

/* ---- keys and pieces --------------------------------------------------------------------------- */

static uint32_t head_crc(const struct head *h)
{
	return mc_crc32c_add(mc_crc32c(&h->secret, sizeof(h->secret)), h->salt, SALT + MC_SEAL_TAG);
}

/* -EKEYREJECTED: the secret was dropped.  -EACCES: this master does not have it yet. */
static int secret_key(struct mcm_security *s, uint32_t secret, const char *purpose, const void *info, size_t len,
		      uint8_t ret[MC_KEY_LEN])
{
	int r = mcm_security_key(s, secret, purpose, info, len, ret);

	return r == -EACCES && secret < mcm_security_newest(s) ? -EKEYREJECTED : r;
}

static int file_sealer(struct mcm_security *s, uint32_t secret, const uint8_t salt[SALT], struct mc_sealer **ret)
{
	uint8_t key[MC_KEY_LEN];
	int r = secret_key(s, secret, "mooncake-fs journal", salt, SALT, key);

	if (r == 0)
		r = mc_sealer_new(key, ret);
	explicit_bzero(key, sizeof(key));
	return r;
}

/* Encrypt @n bytes as piece @number to @to; its bytes. */
static int piece_make(struct mc_sealer *s, enum kind kind, uint64_t number, const void *from, size_t n, uint8_t *to,
		      size_t *ret_len)
{
	struct piece head = { .len = htole32((uint32_t)n), .number = htole64(number) };
	struct mc_piece p = { .aad = to, .aad_len = sizeof(head) };
	int r;

	memcpy(head.magic, piece_magic[kind], sizeof(head.magic));
	memcpy(to, &head, sizeof(head));
	mc_piece_number(&p, kind, number);
	r = mc_seal(s, &p, from, n, to + sizeof(head), to + sizeof(head) + n);
	*ret_len = n + PIECE_MORE;
	return r;
}

/* ---- the plain form ---------------------------------------------------------------------------- */

static int plain_begin(struct mcm_vault_file *f)
{
	(void)f;
	return 0;
}

static int plain_write(struct mcm_vault_file *f, const void *p, size_t len)
{
	return mcm_journal_write(f->fd, p, len);
}

static int plain_append_end(const struct mcm_vault *v, int fd, const void *p, size_t len)
{
	(void)v;
	return mcm_journal_write(fd, p, len);
}

static bool plain_is_aged(const struct mcm_vault_file *f)
{
	(void)f;
	return false;
}

static bool has_head(const uint8_t *p, size_t len)
{
	return (len >= sizeof(head_magic) && !memcmp(p, head_magic, sizeof(head_magic))) ||
	       (len >= 2 * sizeof(struct head) && !memcmp(p + sizeof(struct head), head_magic, sizeof(head_magic)));
}

static int plain_check(const uint8_t *p, size_t len)
{
	return has_head(p, len) ? mc_fail(-EINVAL, "it is encrypted; start the master with --security=on and the "
					  "secret of its pool") : 0;
}

static int plain_map(struct mcm_vault *v, int fd, size_t len, void **ret, size_t *ret_len)
{
	void *p = mc_file_map(fd, len);
	int r;

	(void)v;
	if (!p)
		return mc_fail(-errno, "it cannot be read: %s", mc_strerror(errno));
	r = plain_check(p, len);
	if (r < 0) {
		munmap(p, len);
		return r;
	}
	*ret = p;
	*ret_len = len;
	return 0;
}

static int plain_decode(struct mcm_vault *v, const uint8_t *p, size_t len, uint8_t *ret, size_t *ret_len)
{
	int r = plain_check(p, len);

	(void)v;
	if (r == 0 && len)
		memcpy(ret, p, len);
	*ret_len = len;
	return r;
}

static int plain_prove(const struct mcm_vault *v, const char *text, char ret[MCM_VAULT_PROOF])
{
	(void)v;
	(void)text;
	*ret = '\0';
	return 0;
}

static int plain_verify(const struct mcm_vault *v, const char *text, const char *proof)
{
	(void)v;
	(void)text;
	return *proof ? mc_fail(-EINVAL, "it is encrypted; start the master with --security=on and the secret of its "
				"pool") : 0;
}

static const struct mcm_vault_ops vault_plain = {
	.begin = plain_begin, .write = plain_write, .append_end = plain_append_end, .is_aged = plain_is_aged,
	.map = plain_map, .decode = plain_decode, .prove = plain_prove, .verify = plain_verify,
};

/* ---- the encrypted form: writing --------------------------------------------------------------- */

static int sealed_begin(struct mcm_vault_file *f)
{
	struct mc_piece p = { .aad_len = 0 };
	struct head h[2] = { { .crc = 0 } };
	int r = mc_random_bytes(h->salt, SALT);

	f->secret = mcm_security_newest(f->vault->security);
	f->buf = malloc(PIECES * (PIECE + PIECE_MORE));
	if (!f->buf)
		return -ENOMEM;
	memcpy(h->magic, head_magic, sizeof(head_magic));
	h->secret = htole32(f->secret);
	if (r == 0)
		r = file_sealer(f->vault->security, f->secret, h->salt, &f->sealer);
	mc_piece_number(&p, KIND_RECORDS, 0);
	if (r == 0)
		r = mc_seal(f->sealer, &p, NULL, 0, NULL, h->tag);
	h->crc = htole32(head_crc(h));
	h[1] = h[0];
	return r < 0 ? r : mcm_journal_write(f->fd, h, sizeof(h));
}

static int sealed_write(struct mcm_vault_file *f, const void *from, size_t len)
{
	const uint8_t *at = from;
	int r = 0;

	while (len && r == 0) {
		size_t filled = 0, n, made;

		for (unsigned i = 0; i < PIECES && len && r == 0; i++) {
			n = len < PIECE ? len : PIECE;
			r = piece_make(f->sealer, KIND_RECORDS, ++f->number, at, n, f->buf + filled, &made);
			filled += made;
			at += n;
			len -= n;
		}
		if (r == 0)
			r = mcm_journal_write(f->fd, f->buf, filled);
	}
	return r;
}

static bool sealed_is_aged(const struct mcm_vault_file *f)
{
	return f->secret != mcm_security_newest(f->vault->security);
}

/* ---- the encrypted form: reading --------------------------------------------------------------- */

/* The pieces of a file. */
struct reader {
	const uint8_t *p;
	size_t len, at;
	struct mc_sealer *sealer;
	uint64_t number;	/* the last piece's */
	unsigned forgeries;
	uint32_t secret;
};

/* The better copy of the head; NULL: both are damaged. */
static const struct head *head_find(const uint8_t *p, size_t len, struct head *ret)
{
	for (unsigned i = 0; i < 2; i++) {
		if (len < (i + 1) * sizeof(*ret))
			return NULL;
		memcpy(ret, p + i * sizeof(*ret), sizeof(*ret));
		if (!memcmp(ret->magic, head_magic, sizeof(head_magic)) && le32toh(ret->crc) == head_crc(ret))
			return ret;
	}
	return NULL;
}

static bool is_plain(const uint8_t *p, size_t len)
{
	size_t most = len < MCM_JOURNAL_HEAD_MAX ? len : MCM_JOURNAL_HEAD_MAX;

	return !has_head(p, len) && mcm_record_resync(p, most, 0) < most;
}

/* 1: the file has no bytes, because its process was killed when it began it. */
static int reader_open(struct mcm_security *s, const uint8_t *p, size_t len, struct reader *ret)
{
	struct mc_piece none = { .aad_len = 0 };
	struct head mem;
	const struct head *h = head_find(p, len, &mem);
	int r;

	*ret = (struct reader){ .p = p, .len = len, .at = 2 * sizeof(*h) };
	if (is_plain(p, len))
		return mc_fail(-EINVAL, "it is not encrypted, because it was written without --security=on; use "
			       "another directory, or remove it with the state of that time");
	if (!h)
		return len < 2 * sizeof(*h) ? 1 : mc_fail(-MC_EPROTO, "its head is damaged");
	ret->secret = le32toh(h->secret);
	r = file_sealer(s, ret->secret, h->salt, &ret->sealer);
	if (r < 0)
		return r;
	mc_piece_number(&none, KIND_RECORDS, 0);
	if (mc_unseal(ret->sealer, &none, NULL, 0, h->tag, NULL) == 0)
		return 0;
	mc_sealer_free(ret->sealer);
	ret->sealer = NULL;
	return mc_fail(-EACCES, "it is encrypted with the secret of another pool");
}

/* The plain bytes of the piece at the reader's place; 0: there is none. */
static size_t reader_piece(struct reader *rd, uint8_t *to)
{
	const uint8_t *at = rd->p + rd->at;
	size_t left = rd->len - rd->at, len;
	struct mc_piece p = { .aad = at, .aad_len = sizeof(struct piece) };
	unsigned kind = 0;
	struct piece head;
	uint64_t number;

	if (left < PIECE_MORE || rd->forgeries > FORGERIES_MAX)
		return 0;
	memcpy(&head, at, sizeof(head));
	while (kind < KINDS && memcmp(head.magic, piece_magic[kind], sizeof(head.magic)) != 0)
		kind++;
	len = le32toh(head.len);
	number = le64toh(head.number);
	if (kind == KINDS || !len || len > PIECE || len % GRAIN || len > left - PIECE_MORE || number <= rd->number)
		return 0;
	mc_piece_number(&p, kind, number);
	if (mc_unseal(rd->sealer, &p, at + sizeof(head), len, at + sizeof(head) + len, to) < 0) {
		rd->forgeries++;
		return 0;
	}
	rd->number = number;
	return len;
}

/* All pieces, and zeros, which are no record, in place of other bytes. */
static size_t reader_run(struct reader *rd, uint8_t *to)
{
	size_t n = 0, len;

	while (rd->at < rd->len) {
		len = reader_piece(rd, to + n);
		if (len) {
			rd->at += len + PIECE_MORE;
		} else {
			len = rd->len - rd->at < GRAIN ? rd->len - rd->at : GRAIN;
			memset(to + n, 0, len);
			rd->at += len;
		}
		n += len;
	}
	return n;
}

static int sealed_decode(struct mcm_vault *v, const uint8_t *p, size_t len, uint8_t *ret, size_t *ret_len)
{
	struct reader rd;
	int r = reader_open(v->security, p, len, &rd);

	if (r != 0) {
		*ret_len = 0;
		return r < 0 ? r : 0;
	}
	if (rd.secret != mcm_security_newest(v->security))
		__atomic_store_n(&v->aged, true, __ATOMIC_RELAXED);
	*ret_len = reader_run(&rd, ret);
	mc_sealer_free(rd.sealer);
	return 0;
}

static int sealed_map(struct mcm_vault *v, int fd, size_t len, void **ret, size_t *ret_len)
{
	uint8_t *raw = mc_file_map(fd, len), *to;
	size_t n = 0;
	int r;

	if (!raw)
		return mc_fail(-errno, "it cannot be read: %s", mc_strerror(errno));
	to = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	r = to == MAP_FAILED ? -ENOMEM : sealed_decode(v, raw, len, to, &n);
	munmap(raw, len);
	/* The caller unmaps @n bytes. */
	if (to != MAP_FAILED && (r < 0 || !n)) {
		munmap(to, len);
		to = NULL;
	} else if (to != MAP_FAILED) {
		to = mremap(to, len, n, 0);
	}
	if (r == 0) {
		*ret = to;
		*ret_len = n;
	}
	return r;
}

static int sealed_append_end(const struct mcm_vault *v, int fd, const void *p, size_t len)
{
	struct mcm_vault own = *v;
	struct reader rd = { .sealer = NULL };
	uint8_t made[256], *raw = NULL, *to = NULL;
	struct stat st;
	size_t n;
	int r = mc_file_fstat(fd, &st) < 0 ? -errno : 0;

	if (r == 0 && (!st.st_size || len > sizeof(made) - PIECE_MORE))
		return mc_fail(-EINVAL, "a journal without a beginning");
	raw = r < 0 ? NULL : mc_file_map(fd, (size_t)st.st_size);
	to = raw ? malloc((size_t)st.st_size) : NULL;
	if (!to)
		r = r < 0 ? r : raw ? -ENOMEM : -errno;
	if (r == 0)
		r = reader_open(own.security, raw, (size_t)st.st_size, &rd);
	if (r > 0)
		r = mc_fail(-MC_EPROTO, "a journal without a head");
	if (r == 0) {
		(void)reader_run(&rd, to);
		r = piece_make(rd.sealer, KIND_END, rd.number + 1, p, len, made, &n);
	}
	if (r == 0)
		r = mcm_journal_write(fd, made, n);
	mc_sealer_free(rd.sealer);
	free(to);
	if (raw)
		munmap(raw, (size_t)st.st_size);
	return r;
}

static int proof_make(const struct mcm_vault *v, uint32_t secret, const char *text, char ret[MCM_VAULT_PROOF])
{
	uint8_t key[MC_KEY_LEN];
	int r = secret_key(v->security, secret, "mooncake-fs manifest", text, strlen(text), key), n;

	if (r < 0)
		return r;
	n = snprintf(ret, MCM_VAULT_PROOF, "%u ", secret);
	for (unsigned i = 0; i < MC_KEY_LEN; i++)
		n += snprintf(ret + n, MCM_VAULT_PROOF - (size_t)n, "%02x", key[i]);
	return 0;
}

static int sealed_prove(const struct mcm_vault *v, const char *text, char ret[MCM_VAULT_PROOF])
{
	return proof_make(v, mcm_security_newest(v->security), text, ret);
}

static int sealed_verify(const struct mcm_vault *v, const char *text, const char *proof)
{
	char want[MCM_VAULT_PROOF];
	int r;

	if (!*proof)
		return mc_fail(-EINVAL, "it was written without --security=on");
	r = proof_make(v, (uint32_t)strtoul(proof, NULL, 10), text, want);
	/* Time tells nothing: forgers do not see the answer to each of many attempts. */
	return r < 0 ? r : strcmp(proof, want) ? mc_fail(-MC_ECHECKSUM, "it was changed, or is of another pool") : 0;
}

static const struct mcm_vault_ops vault_sealed = {
	.begin = sealed_begin, .write = sealed_write, .append_end = sealed_append_end, .is_aged = sealed_is_aged,
	.map = sealed_map, .decode = sealed_decode, .prove = sealed_prove, .verify = sealed_verify,
};

/* ---- both -------------------------------------------------------------------------------------- */

void mcm_vault_init(struct mcm_vault *v, struct mcm_security *security)
{
	*v = (struct mcm_vault){ .ops = security ? &vault_sealed : &vault_plain, .security = security };
}

int mcm_vault_begin(const struct mcm_vault *v, int fd, struct mcm_vault_file *ret)
{
	*ret = (struct mcm_vault_file){ .vault = v, .fd = fd };
	return v->ops->begin(ret);
}

int mcm_vault_write(struct mcm_vault_file *f, const void *p, size_t len)
{
	return f->vault->ops->write(f, p, len);
}

void mcm_vault_close(struct mcm_vault_file *f)
{
	if (f->fd >= 0)
		mc_file_close(f->fd);
	mc_sealer_free(f->sealer);
	free(f->buf);
	*f = (struct mcm_vault_file){ .fd = -1 };
}

bool mcm_vault_is_aged(const struct mcm_vault_file *f)
{
	return f->vault && f->vault->ops->is_aged(f);
}

int mcm_vault_append_end(const struct mcm_vault *v, int fd, const void *p, size_t len)
{
	return v->ops->append_end(v, fd, p, len);
}

int mcm_vault_map(struct mcm_vault *v, int fd, size_t len, void **ret, size_t *ret_len)
{
	return v->ops->map(v, fd, len, ret, ret_len);
}

int mcm_vault_decode(struct mcm_vault *v, const uint8_t *p, size_t len, uint8_t *ret, size_t *ret_len)
{
	return v->ops->decode(v, p, len, ret, ret_len);
}

int mcm_vault_prove(const struct mcm_vault *v, const char *text, char ret[MCM_VAULT_PROOF])
{
	return v->ops->prove(v, text, ret);
}

int mcm_vault_verify(const struct mcm_vault *v, const char *text, const char *proof)
{
	return v->ops->verify(v, text, proof);
}
