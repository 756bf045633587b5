/* SPDX-License-Identifier: Apache-2.0
 * seal.c - the form of a medium's bytes: plain, or blocks of AES-256-XTS.
 *
 * Header and notes stay plain: they have no keys of objects and no bytes.  The number of a block is its place in the
 * medium.  Threads decrypt each read in its buffer, and encrypt writes into buffers of their own, because the bytes of
 * a write belong to its caller; when all of these are in use, it waits for the end of another one.  Short reads are
 * decrypted by the thread of the I/O.
 *
 * The key of the bytes is random, and in the header, wrapped (tiers/wrap.h).  It is replaced together with the secret
 * of the records among the identity words, which voids all records: then the bytes of that time cannot be read any
 * more, not even with the secrets of the masters. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/security/secret_memory.h"
#include "common/sys/random.h"
#include "common/sys/thread.h"
#include "tiers/ssd/ssd_i.h"

#define SHORT (64u << 10)	/* a read up to that many bytes needs less time than another thread to wake */
#define POOL 3u		/* numbers of identity words, and the ones behind them */
#define RECORD_SECRET 5u

/* ---- the plain form ---------------------------------------------------------------------------- */

static void plain_loaded(struct mct_ssd *d, struct mct_ssd_buffer *b)
{
	mct_ssd_read_over(d, b, 0);
}

static void plain_store(struct mct_ssd *d, struct mct_ssd_write *o)
{
	mct_io_submit(d->io, &o->op);
}

static void plain_stored(struct mct_ssd *d, struct mct_ssd_write *o)
{
	(void)d;
	(void)o;
}

static int plain_unlock(struct mct_ssd *d, mct_keys_fn keys, void *arg)
{
	(void)d;
	(void)keys;
	(void)arg;
	return 0;
}

static int plain_mark(struct mct_ssd *d, uint64_t size, const uint64_t words[MCT_IDENTITY])
{
	return mct_ssd_file_mark(d, size, words, NULL);
}

const struct mct_ssd_form mct_ssd_plain = {
	.readable = true, .loaded = plain_loaded, .store = plain_store, .stored = plain_stored,
	.unlock = plain_unlock, .mark = plain_mark,
};

/* ---- keys -------------------------------------------------------------------------------------- */

/* The key of the bytes; freed by the last of its users. */
struct mct_ssd_key {
	struct mc_xts *xts;
	unsigned refs;		/* guarded by the lock */
};

/* In memory that no core dump has. */
struct mct_ssd_master {
	uint32_t secret;		/* 0: not known */
	uint8_t key[MC_KEY_LEN];	/* wraps the key of the bytes */
	uint8_t bytes[MCT_WRAP_KEY];	/* the key of the bytes */
};

static void key_free(struct mct_ssd_key *k)
{
	if (k)
		mc_xts_free(k->xts);
	free(k);
}

static struct mct_ssd_key *key_get(struct mct_ssd *d)
{
	MC_LOCKED(&d->lock);
	if (d->seal.key)
		d->seal.key->refs++;
	return d->seal.key;
}

static void key_put(struct mct_ssd *d, struct mct_ssd_key *k)
{
	bool last;

	if (!k)
		return;
	mc_mutex_lock(&d->lock);
	last = --k->refs == 0;
	mc_mutex_unlock(&d->lock);
	if (last)
		key_free(k);
}

static int key_new(const uint8_t bytes[MCT_WRAP_KEY], struct mct_ssd_key **ret)
{
	struct mct_ssd_key *k = calloc(1, sizeof(*k));
	int r = k ? mc_xts_new(bytes, &k->xts) : -ENOMEM;

	if (r < 0) {
		free(k);
		return r;
	}
	k->refs = 1;
	*ret = k;
	return 0;
}

/* header_lock held: the bytes have this key from now on. */
static void key_set(struct mct_ssd *d, const uint8_t bytes[MCT_WRAP_KEY], struct mct_ssd_key *k)
{
	struct mct_ssd_key *old;

	memcpy(d->seal.master->bytes, bytes, MCT_WRAP_KEY);
	mc_mutex_lock(&d->lock);
	old = d->seal.key;
	d->seal.key = k;
	mc_mutex_unlock(&d->lock);
	key_put(d, old);
}

/* header_lock held: a new key, wrapped; both count when the header was written. */
static int key_make(const struct mct_ssd_master *m, uint8_t bytes[MCT_WRAP_KEY], struct mct_wrap *ret,
		    struct mct_ssd_key **ret_key)
{
	int r = mc_random_bytes(bytes, MCT_WRAP_KEY);

	if (r == 0)
		r = mct_wrap_make(m->secret, m->key, bytes, ret);
	return r < 0 ? r : key_new(bytes, ret_key);
}

/* header_lock held.  A new secret of the records is a new key of the bytes.  While the master's key is not known, the
 * medium has none. */
static int sealed_mark(struct mct_ssd *d, uint64_t size, const uint64_t words[MCT_IDENTITY])
{
	uint64_t tenant = d->seal.tenant;
	bool renews = memcmp(words + RECORD_SECRET, d->words + RECORD_SECRET, 2 * sizeof(*words)) != 0;
	struct mct_wrap w = d->seal.wrap;
	struct mct_ssd_key *k = NULL;
	uint8_t bytes[MCT_WRAP_KEY];
	int r = 0;

	if (__atomic_load_n(&d->left, __ATOMIC_RELAXED))
		return mc_fail(-ESTALE, "%s was left to its owner", d->path);
	if (renews) {
		memset(&w, 0, sizeof(w));
		d->seal.tenant = d->seal.own;
		if (d->seal.master->secret)
			r = key_make(d->seal.master, bytes, &w, &k);
	}
	if (r == 0)
		r = mct_ssd_file_mark(d, size, words, &w);
	if (r == 0) {
		d->seal.wrap = w;
		d->seal.fresh |= renews;
		if (k)
			key_set(d, bytes, TAKE_PTR(k));
	} else {
		d->seal.tenant = tenant;
	}
	key_free(k);
	explicit_bzero(bytes, sizeof(bytes));
	return r;
}

/* header_lock held. */
static int seal_rewrap(struct mct_ssd *d, const uint8_t bytes[MCT_WRAP_KEY])
{
	const struct mct_ssd_master *m = d->seal.master;
	uint64_t tenant = d->seal.tenant;
	struct mct_wrap w;
	int r = mct_wrap_make(m->secret, m->key, bytes, &w);

	d->seal.tenant = d->seal.own;
	if (r == 0)
		r = mct_ssd_file_mark(d, d->size, d->words, &w);
	if (r == 0)
		d->seal.wrap = w;
	else
		d->seal.tenant = tenant;
	return r;
}

/* header_lock held: is the wrap in the header of an older secret, or without its tenant? */
static bool seal_is_old(const struct mct_ssd *d, uint32_t newest)
{
	return mct_wrap_secret(&d->seal.wrap) < newest ||
	       (d->seal.own && d->seal.tenant != d->seal.own);
}

/* header_lock held.  @writable: the error of a write of the header.  Without one the key stays wrapped with the older
 * secret; only the first key has to be stored. */
static int seal_unlock_locked(struct mct_ssd *d, const struct mct_keys *keys, int writable)
{
	struct mct_ssd_master *m = d->seal.master;
	uint8_t bytes[MCT_WRAP_KEY];
	uint32_t secret = mct_wrap_secret(&d->seal.wrap);
	struct mct_ssd_key *k = NULL;
	int r = 0;

	m->secret = keys->newest;
	memcpy(m->key, keys->newest_key, MC_KEY_LEN);
	if (d->seal.key) {
		memcpy(bytes, m->bytes, sizeof(bytes));
	} else {
		/* A medium that was used, and has no key, has lost it. */
		r = !secret && d->seal.fresh ? mc_random_bytes(bytes, sizeof(bytes)) :
			mct_wrap_open(&d->seal.wrap, keys, bytes);
	}
	if (r == 0 && !d->seal.key)
		r = key_new(bytes, &k);
	if (r == 0 && seal_is_old(d, keys->newest)) {
		r = writable < 0 ? writable : seal_rewrap(d, bytes);
		if (r < 0 && secret) {
			mc_log("ssd", d->seal.said == keys->newest ? MC_LOG_DEBUG : MC_LOG_WARN,
			       "the key of %s cannot be stored with the newest secret now: %s", d->path,
			       mc_err_detail(r));
			d->seal.said = keys->newest;
			r = 0;
		}
	}
	if (r == 0 && k)
		key_set(d, bytes, TAKE_PTR(k));
	key_free(k);
	explicit_bzero(bytes, sizeof(bytes));
	return r == -EBADMSG ? mc_fail(r, "%s is encrypted, and its key is lost", d->path) :
		r == -EKEYREJECTED || r == -ENOKEY ?
		mc_fail(r, "%s is encrypted for another pool or tenant, or with secret %u, which the master does not "
			"have", d->path, secret) : r;
}

static int sealed_unlock(struct mct_ssd *d, mct_keys_fn keys, void *arg)
{
	struct mct_keys got = { .known = false };
	int r, writable = 0;
	uint32_t secret;
	bool old = false;

	if (!keys)
		return -EAGAIN;
	mc_mutex_lock(&d->header_lock);
	secret = mct_wrap_secret(&d->seal.wrap);
	mc_mutex_unlock(&d->header_lock);
	r = keys(arg, secret, &got);
	if (r == 0) {
		mc_mutex_lock(&d->header_lock);
		old = seal_is_old(d, got.newest);
		mc_mutex_unlock(&d->header_lock);
	}
	if (old) {
		writable = mct_ssd_health_check(d);
		if (writable == 0)
			writable = mct_ssd_shared_hold(d);
	}
	if (r == 0) {
		mc_mutex_lock(&d->header_lock);
		r = seal_unlock_locked(d, &got, writable);
		mc_mutex_unlock(&d->header_lock);
	}
	explicit_bzero(&got, sizeof(got));
	return r;
}

/* ---- blocks ------------------------------------------------------------------------------------ */

/* Decrypt the buffer, and answer its readers. */
static void seal_open(struct mct_ssd *d, struct mct_ssd_buffer *b)
{
	struct mct_ssd_key *k = key_get(d);
	uint64_t first = (b->op.off - MCT_SSD_DATA_AT) / MCT_BLOCK;
	int r = k ? mc_xts_decrypt(k->xts, first, b->mem, b->mem, b->op.len) : -EAGAIN;

	key_put(d, k);
	/* The bytes may be good: the owner has no key yet, or no memory. */
	mct_ssd_read_over(d, b, r < 0 ? -MC_EUNAVAILABLE : 0);
}

/* Encrypt into the write's buffer, and write that. */
static void seal_submit(struct mct_ssd *d, struct mct_ssd_write *o)
{
	struct mct_ssd_key *k = key_get(d);
	uint64_t first = (o->op.off - MCT_SSD_DATA_AT) / MCT_BLOCK;
	int r = k ? mc_xts_encrypt(k->xts, first, o->op.buf, o->bounce, o->op.len) : -EAGAIN;

	key_put(d, k);
	if (r < 0) {
		o->op.status = -MC_EUNAVAILABLE;
		o->op.done(&o->op);
		return;
	}
	o->op.buf = o->bounce;
	mct_io_submit(d->io, &o->op);
}

/* On a thread of the I/O, which has other transfers to begin: a long read is for another thread. */
static void sealed_loaded(struct mct_ssd *d, struct mct_ssd_buffer *b)
{
	bool now = b->op.len <= SHORT;

	mc_mutex_lock(&d->lock);
	now |= d->seal.stopping;
	if (!now) {
		mc_list_push_back(&d->seal.loads, &b->op.node);
		mc_cond_signal(&d->seal.work);
	}
	mc_mutex_unlock(&d->lock);
	if (now)
		seal_open(d, b);
}

static void sealed_store(struct mct_ssd *d, struct mct_ssd_write *o)
{
	MC_LOCKED(&d->lock);
	mc_list_push_back(&d->seal.waiting, &o->op.node);
	mc_cond_signal(&d->seal.work);
}

static void sealed_stored(struct mct_ssd *d, struct mct_ssd_write *o)
{
	MC_LOCKED(&d->lock);
	d->seal.free[d->seal.n_free++] = o->bounce;
	if (!mc_list_empty(&d->seal.waiting))
		mc_cond_signal(&d->seal.work);
}

/* Lock held: the next buffer or write to work on; both NULL: there is none. */
static void seal_take_locked(struct mct_ssd *d, struct mct_ssd_buffer **ret_load, struct mct_ssd_write **ret_write)
{
	struct mct_ssd_seal *s = &d->seal;

	*ret_load = NULL;
	*ret_write = NULL;
	if (!mc_list_empty(&s->loads)) {
		*ret_load = mc_container_of(s->loads.next, struct mct_ssd_buffer, op.node);
		mc_list_remove(s->loads.next);
	} else if (!mc_list_empty(&s->waiting) && s->n_free) {
		*ret_write = mc_container_of(s->waiting.next, struct mct_ssd_write, op.node);
		mc_list_remove(s->waiting.next);
		(*ret_write)->bounce = s->free[--s->n_free];
	}
}

static void *seal_main(void *arg)
{
	struct mct_ssd *d = arg;
	struct mct_ssd_buffer *load;
	struct mct_ssd_write *write;

	mc_mutex_lock(&d->lock);
	for (;;) {
		seal_take_locked(d, &load, &write);
		if (!load && !write) {
			if (d->seal.stopping && mc_list_empty(&d->seal.waiting))
				break;
			mc_cond_wait(&d->seal.work, &d->lock);
			continue;
		}
		mc_mutex_unlock(&d->lock);
		if (load)
			seal_open(d, load);
		else
			seal_submit(d, write);
		mc_mutex_lock(&d->lock);
	}
	/* For the other threads. */
	mc_cond_broadcast(&d->seal.work);
	mc_mutex_unlock(&d->lock);
	return NULL;
}

const struct mct_ssd_form mct_ssd_sealed = {
	.bounces = MCT_SSD_BOUNCES, .threads = MCT_SSD_SEALERS, .loaded = sealed_loaded, .store = sealed_store,
	.stored = sealed_stored, .unlock = sealed_unlock, .mark = sealed_mark,
};

/* ---- open and close ---------------------------------------------------------------------------- */

int mct_ssd_seal_open(struct mct_ssd *d, const struct mct_conf *conf)
{
	mc_list_init(&d->seal.waiting);
	mc_list_init(&d->seal.loads);
	(void)mc_cond_init(&d->seal.work);
	d->form = conf->seal ? &mct_ssd_sealed : &mct_ssd_plain;
	d->seal.own = conf->tenant;
	d->seal.master = conf->seal ? mc_secret_alloc(sizeof(*d->seal.master)) : NULL;
	return d->seal.master || !conf->seal ? 0 : -ENOMEM;
}

int mct_ssd_seal_found(struct mct_ssd *d, const struct mct_ssd_header *h)
{
	bool used = h->words[POOL] | h->words[POOL + 1];

	if (h->none || !h->size) {
		d->seal.fresh = true;
		d->seal.tenant = d->seal.own;
		return 0;
	}
	if (h->sealed && d->form != &mct_ssd_sealed)
		return mc_fail(-EACCES, "%s is encrypted, because its pool has --security=on; this node needs the "
			       "--credential of a node of that pool", d->path);
	if (!h->sealed && used && d->form == &mct_ssd_sealed)
		return mc_fail(-EACCES, "%s has objects that are not encrypted, from a time without --credential; if "
			       "they are not needed, %s", d->path,
			       d->device ? "erase it (blkdiscard -z)" : "remove it");
	/* A device was named for this owner. */
	if (!d->device && d->seal.own && (h->tenant ? h->tenant != d->seal.own : h->refused == d->seal.own))
		return mc_fail(-EPERM, "it has bytes of another tenant; if that is gone, remove the file");
	d->seal.wrap = h->wrap;
	d->seal.tenant = h->tenant;
	d->seal.refused = h->refused;
	d->seal.fresh = !used;
	return 0;
}

int mct_ssd_seal_start(struct mct_ssd *d, char *mem)
{
	int r = 0;

	for (unsigned i = 0; i < d->form->bounces; i++)
		d->seal.free[d->seal.n_free++] = mem + (size_t)i * MCT_PIECE_MAX;
	for (unsigned i = 0; i < d->form->threads && r == 0; i++) {
		r = mc_thread_start(&d->seal.thread[i], "mct-seal", seal_main, d);
		d->seal.threads += r == 0;
	}
	return r;
}

void mct_ssd_seal_stop(struct mct_ssd *d)
{
	mc_mutex_lock(&d->lock);
	d->seal.stopping = true;
	mc_cond_broadcast(&d->seal.work);
	mc_mutex_unlock(&d->lock);
	while (d->seal.threads)
		mc_thread_join(d->seal.thread[--d->seal.threads]);
}

void mct_ssd_seal_close(struct mct_ssd *d)
{
	mc_cond_destroy(&d->seal.work);
	key_free(d->seal.key);
	mc_secret_free(d->seal.master, sizeof(*d->seal.master));
}
