/* SPDX-License-Identifier: Apache-2.0
 * seal.c - the form of parts in a store: plain, or encrypted by AES-256-GCM.
 *
 *	PREFIX/FOLDER/key	the key of all parts in the folder, wrapped (tiers/wrap.h)
 *	a part			chunks of 64 KiB, the last one shorter: salt[16], the bytes, tag[16]
 *
 * All chunks of a part have one salt, which its writer chooses at random, so that each of them can be read without
 * another request.  The key of a part is HKDF-SHA256(key of the folder, "mooncake-fs part" | salt | its name), and the
 * nonce the number of the chunk: nonces repeat only if two parts of the same name get the same 128 random bits.  The
 * length of the part is additional data.  So a chunk of another part, of another place, or of a part that was cut off
 * is refused.
 *
 * A new secret of the records is a new folder with a new key; the old key is deleted, which is the erase.
 *
 * Each key is put by a swap, and read again, because a process that is not the owner may have the same prefix until the
 * master refuses it: the first key stays, and the other process opens that one. */
#include <config.h>

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/security/secret_memory.h"
#include "common/sys/random.h"
#include "tiers/objects/objects_i.h"

#define CHUNK (64u << 10)
#define SALT 16u
#define MORE (SALT + MC_SEAL_TAG)	/* bytes of a chunk besides its own */
#define POOL 3u				/* numbers of identity words, and the ones behind them */
#define SWAPS 3				/* attempts to put a key while others do */

/* ---- the plain form ----------------------------------------------------------------------------- */

static int plain_put(struct mct_objects *o, const char *name, const void *data, size_t len)
{
	return mct_keyed_put(o->keyed, name, data, len);
}

static int plain_get(struct mct_objects *o, const char *name, uint64_t total, uint64_t off, void *buf, size_t len)
{
	(void)total;
	return mct_keyed_get_part(o->keyed, name, off, buf, len);
}

static int plain_unlock(struct mct_objects *o, mct_keys_fn keys, void *arg)
{
	(void)o;
	(void)keys;
	(void)arg;
	return 0;
}

static int plain_renew(struct mct_objects *o, uint64_t folder)
{
	(void)o;
	(void)folder;
	return 0;
}

static void plain_renewed(struct mct_objects *o, uint64_t folder, bool done)
{
	(void)o;
	(void)folder;
	(void)done;
}

static int plain_restore(struct mct_objects *o)
{
	(void)o;
	return 0;
}

static const struct mct_objects_form objects_plain = {
	.put = plain_put, .get = plain_get, .unlock = plain_unlock, .renew = plain_renew, .renewed = plain_renewed,
	.restore = plain_restore,
};

/* ---- keys --------------------------------------------------------------------------------------- */

/* In memory that no core dump has. */
struct mct_objects_keys {
	/* guarded by identity_lock */
	uint32_t secret;		/* 0: not known */
	uint8_t wrapping[MC_KEY_LEN];	/* the master's key */
	uint8_t next[MCT_WRAP_KEY];	/* key of the folder that renew has made */
	/* changed with lock too */
	uint8_t bytes[MCT_WRAP_KEY];	/* key of the folder */
	bool open;			/* it is known */
};

static void key_name(const struct mct_objects *o, uint64_t folder, char ret[MCT_KEYED_NAME_MAX])
{
	snprintf(ret, MCT_KEYED_NAME_MAX, "%s%016" PRIx64 "/key", o->prefix, folder);
}

/* -ENOENT: there is none. */
static int key_read(struct mct_objects *o, uint64_t folder, struct mct_wrap *ret)
{
	char name[MCT_KEYED_NAME_MAX];
	auto_free void *data = NULL;
	size_t len = 0;
	int r;

	key_name(o, folder, name);
	r = mct_keyed_get(o->keyed, name, &data, &len);
	memset(ret, 0, sizeof(*ret));
	if (r == 0 && len == sizeof(*ret))
		memcpy(ret, data, len);
	return r;
}

/* Put @w instead of @was, which is none if its number is 0, or if it was deleted.  *ret: the key that the store has
 * then, @w or the one of another process. */
static int key_put(struct mct_objects *o, uint64_t folder, const struct mct_wrap *was, const struct mct_wrap *w,
		   struct mct_wrap *ret)
{
	bool none = !mct_wrap_secret(was);
	char name[MCT_KEYED_NAME_MAX];
	int r = -ENOENT;

	key_name(o, folder, name);
	for (unsigned i = 0; i < SWAPS && r == -ENOENT; i++, none = true) {
		r = mct_keyed_swap(o->keyed, name, none ? NULL : was, sizeof(*was), w, sizeof(*w));
		/* Also after success: not every store compares. */
		if (r == 0 || r == -EEXIST)
			r = key_read(o, folder, ret);
	}
	return r;
}

static void key_delete(struct mct_objects *o, uint64_t folder)
{
	char name[MCT_KEYED_NAME_MAX];
	int r;

	key_name(o, folder, name);
	r = mct_keyed_delete(o->keyed, name);
	if (r < 0)
		mc_warn("s3", "the key of old objects is not deleted: %s", mc_err_detail(r));
}

static void key_use(struct mct_objects *o, const uint8_t bytes[MCT_WRAP_KEY], bool open)
{
	MC_LOCKED(&o->lock);
	memcpy(o->seal.keys->bytes, bytes, MCT_WRAP_KEY);
	o->seal.keys->open = open;
}

/* identity_lock held: the key of the folder is @bytes, or the one of another process, which is opened then: *bytes.
 * *wrap: as the store has it, before and after; it changes only when that is certain.  -MC_EUNAVAILABLE: the key in
 * *wrap needs another secret than the newest. */
static int key_wrap(struct mct_objects *o, uint64_t folder, uint8_t bytes[MCT_WRAP_KEY], struct mct_wrap *wrap)
{
	struct mct_keys keys = { .known = true, .newest = o->seal.keys->secret };
	struct mct_wrap w, found = { .secret = 0 };
	int r = mct_wrap_make(keys.newest, o->seal.keys->wrapping, bytes, &w);

	if (r == 0)
		r = key_put(o, folder, wrap, &w, &found);
	if (r == 0 && mct_wrap_secret(&found) && mct_wrap_secret(&found) != keys.newest) {
		r = mc_fail(-MC_EUNAVAILABLE, "another process has put the key of %s", o->path);
		*wrap = found;
	} else if (r == 0 && memcmp(&found, &w, sizeof(w)) != 0) {
		memcpy(keys.newest_key, o->seal.keys->wrapping, MC_KEY_LEN);
		memcpy(keys.key, keys.newest_key, MC_KEY_LEN);
		r = mct_wrap_open(&found, &keys, bytes);
		explicit_bzero(&keys, sizeof(keys));
	}
	if (r == 0)
		*wrap = found;
	return r;
}

/* identity_lock held. */
static int sealed_renew(struct mct_objects *o, uint64_t folder)
{
	struct mct_objects_keys *k = o->seal.keys;
	int r;

	memset(&o->seal.next, 0, sizeof(o->seal.next));
	/* The master's key is not known yet: unlock makes one. */
	if (!k->secret)
		return 0;
	r = mc_random_bytes(k->next, MCT_WRAP_KEY);
	return r < 0 ? r : key_wrap(o, folder, k->next, &o->seal.next);
}

/* identity_lock held.  After an error the store may have the new identity nevertheless, which a later process begins
 * with: its key stays until another identity is stored. */
static void sealed_renewed(struct mct_objects *o, uint64_t folder, bool done)
{
	struct mct_objects_keys *k = o->seal.keys;

	if (done) {
		if (mct_wrap_secret(&o->seal.wrap))
			key_delete(o, o->folder);
		if (o->seal.left && o->seal.left != folder)
			key_delete(o, o->seal.left);
		o->seal.left = 0;
		o->seal.wrap = o->seal.next;
		o->seal.fresh = true;
		key_use(o, k->next, mct_wrap_secret(&o->seal.next));
	} else if (mct_wrap_secret(&o->seal.next)) {
		o->seal.left = folder;
	}
	explicit_bzero(k->next, sizeof(k->next));
}

/* identity_lock held. */
static int sealed_restore(struct mct_objects *o)
{
	const struct mct_wrap none = { .secret = 0 };
	struct mct_wrap found;
	int r;

	if (!mct_wrap_secret(&o->seal.wrap))
		return 0;
	r = key_put(o, o->folder, &none, &o->seal.wrap, &found);
	return r == 0 && memcmp(&found, &o->seal.wrap, sizeof(found)) != 0 ?
		mc_fail(-ESTALE, "another process has replaced the key of %s", o->path) : r;
}

/* identity_lock held: wrap the key again, with the newest secret.  -ESTALE: it is not this process's any more. */
static int seal_rewrap(struct mct_objects *o, const uint8_t bytes[MCT_WRAP_KEY])
{
	struct mct_wrap wrap = o->seal.wrap;
	uint8_t found[MCT_WRAP_KEY];
	int r = mct_objects_identity_find(o);

	memcpy(found, bytes, sizeof(found));
	if (r == 0)
		r = key_wrap(o, o->folder, found, &wrap);
	if (r == 0 && memcmp(found, bytes, sizeof(found)) != 0)
		r = mc_fail(-ESTALE, "another process has replaced the key of %s", o->path);
	if (r == 0)
		o->seal.wrap = wrap;
	explicit_bzero(found, sizeof(found));
	return r;
}

/* identity_lock held: the key of a folder without bytes. */
static int seal_first(struct mct_objects *o, uint8_t bytes[MCT_WRAP_KEY])
{
	int r = mc_random_bytes(bytes, MCT_WRAP_KEY);

	return r < 0 ? r : key_wrap(o, o->folder, bytes, &o->seal.wrap);
}

/* identity_lock held. */
static int seal_unlock_locked(struct mct_objects *o, const struct mct_keys *keys)
{
	struct mct_objects_keys *k = o->seal.keys;
	uint32_t secret = mct_wrap_secret(&o->seal.wrap);
	uint8_t bytes[MCT_WRAP_KEY];
	int r = 0;

	k->secret = keys->newest;
	memcpy(k->wrapping, keys->newest_key, MC_KEY_LEN);
	if (k->open)
		memcpy(bytes, k->bytes, sizeof(bytes));
	else
		r = !secret && o->seal.fresh ? seal_first(o, bytes) : mct_wrap_open(&o->seal.wrap, keys, bytes);
	if (r == 0 && mct_wrap_secret(&o->seal.wrap) < keys->newest) {
		r = seal_rewrap(o, bytes);
		if (r < 0 && r != -ESTALE && k->open) {
			mc_log("s3", o->seal.said == keys->newest ? MC_LOG_DEBUG : MC_LOG_WARN,
			       "the key of %s has an older secret, and cannot be stored with the newest one now: %s",
			       o->path, mc_err_detail(r));
			o->seal.said = keys->newest;
			r = 0;
		}
	}
	if (r == 0)
		key_use(o, bytes, true);
	explicit_bzero(bytes, sizeof(bytes));
	return r == -EBADMSG ? mc_fail(r, "%s is encrypted, and its key is lost: give this node another prefix, or "
				       "remove these objects", o->path) :
		r == -EKEYREJECTED || r == -ENOKEY ?
		mc_fail(r, "%s is encrypted for another pool or tenant, or with secret %u, which the master does not "
			"have", o->path, secret) : r;
}

static int sealed_unlock(struct mct_objects *o, mct_keys_fn keys, void *arg)
{
	struct mct_keys got = { .known = false };
	uint32_t secret;
	int r;

	if (!keys)
		return -EAGAIN;
	mc_mutex_lock(&o->identity_lock);
	secret = mct_wrap_secret(&o->seal.wrap);
	mc_mutex_unlock(&o->identity_lock);
	r = keys(arg, secret, &got);
	if (r == 0) {
		mc_mutex_lock(&o->identity_lock);
		r = seal_unlock_locked(o, &got);
		mc_mutex_unlock(&o->identity_lock);
	}
	explicit_bzero(&got, sizeof(got));
	return r;
}

/* ---- parts -------------------------------------------------------------------------------------- */

static int part_sealer(struct mct_objects *o, const char *name, const uint8_t salt[SALT], struct mc_sealer **ret)
{
	uint8_t info[SALT + MCT_KEYED_NAME_MAX], folder[MCT_WRAP_KEY], key[MC_KEY_LEN];
	size_t len = strlen(name);
	bool open;
	int r;

	mc_mutex_lock(&o->lock);
	open = o->seal.keys->open;
	memcpy(folder, o->seal.keys->bytes, sizeof(folder));
	mc_mutex_unlock(&o->lock);
	if (!open)
		return mc_fail(-MC_EUNAVAILABLE, "%s is encrypted, and its owner has no key yet", o->path);
	memcpy(info, salt, SALT);
	memcpy(info + SALT, name, len);
	mc_key_derive(folder, "mooncake-fs part", info, SALT + len, key);
	r = mc_sealer_new(key, ret);
	explicit_bzero(folder, sizeof(folder));
	explicit_bzero(key, sizeof(key));
	return r;
}

static int sealed_put(struct mct_objects *o, const char *name, const void *data, size_t len)
{
	size_t chunks = (len + CHUNK - 1) / CHUNK;
	auto_free uint8_t *stored = malloc(len + chunks * MORE);
	const uint64_t total = htole64(len);
	struct mc_piece p = { .aad = &total, .aad_len = sizeof(total) };
	struct mc_sealer *s = NULL;
	uint8_t salt[SALT];
	int r = stored ? mc_random_bytes(salt, SALT) : -ENOMEM;

	if (r == 0)
		r = part_sealer(o, name, salt, &s);
	for (size_t i = 0; i < chunks && r == 0; i++) {
		size_t n = len - i * CHUNK < CHUNK ? len - i * CHUNK : CHUNK;
		uint8_t *to = stored + i * (CHUNK + MORE);

		memcpy(to, salt, SALT);
		mc_piece_number(&p, 0, i);
		r = mc_seal(s, &p, (const uint8_t *)data + i * CHUNK, n, to + SALT, to + SALT + n);
	}
	mc_sealer_free(s);
	return r < 0 ? r : mct_keyed_put(o->keyed, name, stored, len + chunks * MORE);
}

/* Decrypt the chunks of @total bytes that @stored begins with, the first one with number @first, and copy the bytes
 * from @skip on. */
static int chunks_open(struct mc_sealer *s, uint8_t *stored, uint64_t total, uint64_t first, uint64_t skip,
		       uint8_t *buf, size_t len)
{
	const uint64_t aad = htole64(total);
	struct mc_piece p = { .aad = &aad, .aad_len = sizeof(aad) };
	uint8_t *at = stored;
	int r = 0;

	for (uint64_t i = first; len && r == 0; i++, skip = 0) {
		uint64_t left = total - i * CHUNK, n = left < CHUNK ? left : CHUNK, take;

		mc_piece_number(&p, 0, i);
		r = memcmp(at, stored, SALT) ? -EBADMSG : mc_unseal(s, &p, at + SALT, n, at + SALT + n, at + SALT);
		if (r < 0)
			break;
		take = n - skip < len ? n - skip : len;
		memcpy(buf, at + SALT + skip, take);
		buf += take;
		len -= take;
		at += n + MORE;
	}
	return r;
}

static int sealed_get(struct mct_objects *o, const char *name, uint64_t total, uint64_t off, void *buf, size_t len)
{
	uint64_t first = off / CHUNK, end = (off + len + CHUNK - 1) / CHUNK * CHUNK;
	uint64_t plain = (end < total ? end : total) - first * CHUNK;
	uint64_t bytes = plain + (plain + CHUNK - 1) / CHUNK * MORE;
	auto_free uint8_t *stored = NULL;
	struct mc_sealer *s = NULL;
	uint8_t salt[SALT];
	int r;

	if (!len || off >= total || len > total - off)
		return mc_fail(-ERANGE, "%s has no %zu bytes at %" PRIu64, name, len, off);
	stored = malloc(bytes);
	r = stored ? mct_keyed_get_part(o->keyed, name, first * (CHUNK + MORE), stored, bytes) : -ENOMEM;
	if (r < 0)
		return r;
	memcpy(salt, stored, SALT);
	r = part_sealer(o, name, salt, &s);
	if (r == 0)
		r = chunks_open(s, stored, total, first, off - first * CHUNK, buf, len);
	mc_sealer_free(s);
	/* A store may have its own -EBADMSG. */
	return r == -EBADMSG ? mc_fail(-MC_ECHECKSUM, "%s: %s was changed", o->path, name) : r;
}

static const struct mct_objects_form objects_sealed = {
	.put = sealed_put, .get = sealed_get, .unlock = sealed_unlock, .renew = sealed_renew,
	.renewed = sealed_renewed, .restore = sealed_restore,
};

/* ---- open and close ----------------------------------------------------------------------------- */

int mct_objects_seal_open(struct mct_objects *o, bool seal)
{
	o->form = seal ? &objects_sealed : &objects_plain;
	o->seal.keys = seal ? mc_secret_alloc(sizeof(*o->seal.keys)) : NULL;
	return seal && !o->seal.keys ? -ENOMEM : 0;
}

int mct_objects_seal_found(struct mct_objects *o)
{
	bool known = o->words[0] | o->words[1], used = o->words[POOL] | o->words[POOL + 1], sealed;
	int r = known ? key_read(o, o->folder, &o->seal.wrap) : -ENOENT;

	if (r < 0 && r != -ENOENT)
		return r;
	sealed = r == 0;
	o->seal.fresh = !used;
	if (sealed && !o->seal.keys)
		return mc_fail(-EACCES, "%s is encrypted, because its pool has --security=on; this node needs the "
			       "--credential of a node of that pool", o->path);
	if (!sealed && used && o->seal.keys)
		return mc_fail(-EACCES, "%s has objects that are not encrypted, from a time without --credential; give "
			       "this node another prefix, or remove them", o->path);
	return 0;
}

void mct_objects_seal_close(struct mct_objects *o)
{
	mc_secret_free(o->seal.keys, sizeof(*o->seal.keys));
}
