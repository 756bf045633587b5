/* SPDX-License-Identifier: Apache-2.0
 * server_store.c - table of texts under keys, with optional expiry. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/sys/clock.h"
#include "meta/server_store_i.h"

#define LOG "metadata"
#define BUCKETS_MIN 1024
#define OVERHEAD 128		/* bytes of an entry besides key and text */
#define SWEEP 16		/* buckets searched for expired entries by each change */
/* The file is rewritten when it is twice as long as its content plus this many bytes. */
#define JOURNAL_SLACK (1u << 20)

/* ---- the table --------------------------------------------------------------------------------- */

static uint64_t key_hash(const char *key, size_t len)
{
	return mc_hash(key, len, 0);
}

/* The pointer to the entry of @key, or the pointer that would hold it. */
static struct mcd_entry **entry_slot(const struct mcd_store *s, const char *key)
{
	size_t len = strlen(key);
	uint64_t hash = key_hash(key, len);
	struct mcd_entry **at = &s->bucket[hash % s->nbuckets];

	while (*at && ((*at)->hash != hash || (*at)->key_len != len || memcmp((*at)->key, key, len)))
		at = &(*at)->next;
	return at;
}

static bool entry_expired(const struct mcd_entry *e, uint64_t now)
{
	return e->due_ns && e->due_ns <= now;
}

static uint64_t entry_cost(size_t key_len, size_t len)
{
	return OVERHEAD + key_len + len;
}

static void entry_drop(struct mcd_store *s, struct mcd_entry **at)
{
	struct mcd_entry *e = *at;

	*at = e->next;
	s->n--;
	s->bytes -= entry_cost(e->key_len, e->len);
	free(e->text);
	free(e);
}

static void store_sweep(struct mcd_store *s)
{
	uint64_t now = mc_now_ns();

	for (unsigned i = 0; i < SWEEP; i++) {
		struct mcd_entry **at = &s->bucket[s->sweep++ % s->nbuckets];

		while (*at) {
			if (entry_expired(*at, now))
				entry_drop(s, at);
			else
				at = &(*at)->next;
		}
	}
}

/* Without memory the table only becomes slower. */
static void store_grow(struct mcd_store *s)
{
	size_t n = s->nbuckets * 2;
	struct mcd_entry **bucket = calloc(n, sizeof(struct mcd_entry *)), *e;

	if (!bucket)
		return;
	for (size_t i = 0; i < s->nbuckets; i++)
		while ((e = s->bucket[i])) {
			s->bucket[i] = e->next;
			e->next = bucket[e->hash % n];
			bucket[e->hash % n] = e;
		}
	free(s->bucket);
	s->bucket = bucket;
	s->nbuckets = n;
}

static struct mcd_entry *entry_new(const char *key, const char *text, size_t len, uint32_t ttl_s)
{
	size_t key_len = strlen(key);
	struct mcd_entry *e = calloc(1, sizeof(*e) + key_len + 1);

	if (e)
		e->text = malloc(len + 1);
	if (!e || !e->text) {
		free(e);
		return NULL;
	}
	memcpy(e->key, key, key_len);
	memcpy(e->text, text, len);
	e->text[len] = '\0';
	e->key_len = key_len;
	e->len = len;
	e->hash = key_hash(key, key_len);
	e->ttl_s = ttl_s;
	e->due_ns = ttl_s ? mc_now_ns() + ttl_s * MC_NS_PER_SEC : 0;
	return e;
}

static void entry_insert(struct mcd_store *s, struct mcd_entry *e)
{
	struct mcd_entry **at = entry_slot(s, e->key);

	if (*at)
		entry_drop(s, at);
	if (s->n >= s->nbuckets)
		store_grow(s);
	at = &s->bucket[e->hash % s->nbuckets];
	e->next = *at;
	*at = e;
	s->n++;
	s->bytes += entry_cost(e->key_len, e->len);
}

/* ---- calls ------------------------------------------------------------------------------------- */

int mcd_store_get(struct mcd_store *s, const char *key, char **ret, size_t *ret_len)
{
	struct mcd_entry *e;
	char *copy;

	MC_LOCKED(&s->lock);
	e = *entry_slot(s, key);
	if (!e || entry_expired(e, mc_now_ns()))
		return -ENOENT;
	copy = malloc(e->len + 1);
	if (!copy)
		return mc_fail(-ENOMEM, "no memory for %zu bytes", e->len);
	memcpy(copy, e->text, e->len + 1);
	*ret = copy;
	*ret_len = e->len;
	return 0;
}

/* Check a put: 1: the same text is there, and its ttl was restarted; 0: store the text; negative. */
static int store_check_put(struct mcd_store *s, const char *key, const char *text, size_t len,
			   uint32_t ttl_s, bool once)
{
	struct mcd_entry *e;
	uint64_t freed = 0;

	MC_LOCKED(&s->lock);
	store_sweep(s);
	e = *entry_slot(s, key);
	if (e && !entry_expired(e, mc_now_ns())) {
		if (e->len == len && !memcmp(e->text, text, len) && e->ttl_s == ttl_s) {
			e->due_ns = ttl_s ? mc_now_ns() + ttl_s * MC_NS_PER_SEC : 0;
			return 1;
		}
		if (once && (e->len != len || memcmp(e->text, text, len)))
			return mc_fail(-EEXIST, "the key has another text");
	}
	if (e)
		freed = entry_cost(e->key_len, e->len);
	else if (s->max_keys && s->n >= s->max_keys)
		return mc_fail(-ENOSPC, "metadata key budget exhausted: there are %zu keys, as many as allowed", s->n);
	if (s->bytes - freed + entry_cost(strlen(key), len) > s->max_bytes)
		return mc_fail(-ENOSPC, "metadata size budget exhausted: %zu texts use all of the %llu bytes allowed",
			       s->n, (unsigned long long)s->max_bytes);
	return 0;
}

/* @text NULL: a deletion.  On a full disk, a rewrite can make the file shorter. */
static int store_journal(struct mcd_store *s, const char *key, const char *text, size_t len, uint32_t ttl_s)
{
	int r = 0;

	if (!s->journal.path)
		return 0;
	if (s->journal.broken || s->journal.size > 2 * s->bytes + JOURNAL_SLACK)
		r = mcd_journal_rewrite(&s->journal, s);
	if (r == 0 || !s->journal.broken)
		r = mcd_journal_add(&s->journal, key, text, len, ttl_s);
	if (r == -ENOSPC || r == -EDQUOT) {
		if (mcd_journal_rewrite(&s->journal, s) == 0)
			r = mcd_journal_add(&s->journal, key, text, len, ttl_s);
	}
	return r;
}

int mcd_store_put(struct mcd_store *s, const char *key, const char *text, size_t len,
		  uint32_t ttl_s, bool once)
{
	struct mcd_entry *e;
	int r;

	MC_LOCKED(&s->write);
	r = store_check_put(s, key, text, len, ttl_s, once);
	if (r)
		return r;
	e = entry_new(key, text, len, ttl_s);
	if (!e)
		return mc_fail(-ENOMEM, "no memory for %zu bytes", len);
	r = store_journal(s, key, text, len, ttl_s);
	if (r < 0) {
		free(e->text);
		free(e);
		return r;
	}
	mc_mutex_lock(&s->lock);
	entry_insert(s, e);
	mc_mutex_unlock(&s->lock);
	return 0;
}

/* Under write. */
static int store_del(struct mcd_store *s, const char *key)
{
	struct mcd_entry **at = entry_slot(s, key);
	bool there;
	int r;

	if (!*at)
		return -ENOENT;
	there = !entry_expired(*at, mc_now_ns());
	r = store_journal(s, key, NULL, 0, 0);
	if (r < 0)
		return r;
	mc_mutex_lock(&s->lock);
	entry_drop(s, at);
	mc_mutex_unlock(&s->lock);
	return there ? 0 : -ENOENT;
}

int mcd_store_del(struct mcd_store *s, const char *key)
{
	MC_LOCKED(&s->write);
	return store_del(s, key);
}

int mcd_store_del_if(struct mcd_store *s, bool (*match)(const char *key, const void *arg), const void *arg)
{
	struct mcd_entry *e, *next;
	int n = 0, r;

	MC_LOCKED(&s->write);
	for (size_t i = 0; i < s->nbuckets; i++)
		for (e = s->bucket[i]; e; e = next) {
			next = e->next;
			if (!match(e->key, arg))
				continue;
			r = store_del(s, e->key);
			if (r < 0 && r != -ENOENT)
				return r;
			n += r == 0;
		}
	return n;
}

/* ---- open and close ---------------------------------------------------------------------------- */

static int load_put(void *arg, const char *key, const char *text, size_t len, uint32_t ttl_s)
{
	struct mcd_entry *e = entry_new(key, text, len, ttl_s);

	if (!e)
		return mc_fail(-ENOMEM, "no memory for %zu bytes", len);
	entry_insert(arg, e);
	return 0;
}

static void load_del(void *arg, const char *key)
{
	struct mcd_entry **at = entry_slot(arg, key);

	if (*at)
		entry_drop(arg, at);
}

void mcd_store_close(struct mcd_store *s)
{
	if (!s)
		return;
	mcd_journal_close(&s->journal);
	for (size_t i = 0; i < s->nbuckets; i++)
		while (s->bucket[i])
			entry_drop(s, &s->bucket[i]);
	free(s->bucket);
	mc_mutex_destroy(&s->lock);
	mc_mutex_destroy(&s->write);
	free(s);
}

int mcd_store_open(const char *persist, uint64_t max_bytes, struct mcd_store **ret)
{
	struct mcd_store *s = calloc(1, sizeof(*s));
	int r = 0;

	if (!s)
		return mc_fail(-ENOMEM, "no memory for a metadata server");
	s->journal.fd = -1;
	s->max_bytes = max_bytes;
	mc_mutex_init(&s->write);
	mc_mutex_init(&s->lock);
	s->bucket = calloc(BUCKETS_MIN, sizeof(struct mcd_entry *));
	s->nbuckets = s->bucket ? BUCKETS_MIN : 0;
	if (!s->bucket)
		r = mc_fail(-ENOMEM, "no memory for a metadata server");
	else if (persist)
		r = mcd_journal_open(&s->journal, persist, load_put, load_del, s);
	if (r < 0) {
		mcd_store_close(s);
		return r;
	}
	if (persist)
		mc_info(LOG, "loaded texts=%zu file=%s", s->n, persist);
	*ret = s;
	return 0;
}
