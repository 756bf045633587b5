/* SPDX-License-Identifier: Apache-2.0
 * fake_store.c - a store of leases in memory, and its faults. */
#include <config.h>

#include "tests/unit/fake_store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/sys/clock.h"
#include "common/err.h"
#include "common/sys/thread.h"
#include "meta/meta_i.h"

#define STORES 4
#define KEYS 16
#define CLIENTS 8
#define NAME_MAX_LEN 32

struct store_key {
	char *key, *text;	/* NULL: the place is free */
	uint64_t until;		/* MC_NEVER: no end */
};

struct store_client {
	char name[NAME_MAX_LEN];	/* "": the place is free */
	bool cut;
	unsigned lost_answers;
	uint64_t there, back;
};

struct fake_store {
	char name[NAME_MAX_LEN];
	struct mc_mutex lock;
	/* guarded by lock */
	struct store_key key[KEYS];
	struct store_client client[CLIENTS];
	uint64_t calls;
};

struct store_backend {
	struct mcd_backend base;
	struct fake_store *store;
	char client[NAME_MAX_LEN];
	unsigned ttl_s;
};

static struct fake_store *stores[STORES];

/* ---- keys; the lock is held ---------------------------------------------------------------------- */

static struct store_key *key_find(struct fake_store *s, const char *key)
{
	for (unsigned i = 0; i < KEYS; i++)
		if (s->key[i].key && !strcmp(s->key[i].key, key) && mc_now_ns() < s->key[i].until)
			return &s->key[i];
	return NULL;
}

static const char *key_text(struct fake_store *s, const char *key)
{
	const struct store_key *k = key_find(s, key);

	return k ? k->text : NULL;
}

static void key_clear(struct store_key *k)
{
	free(k->key);
	free(k->text);
	*k = (struct store_key){ .until = 0 };
}

static void key_set(struct fake_store *s, const char *key, const char *text, uint64_t until)
{
	struct store_key *k = NULL;

	for (unsigned i = 0; i < KEYS; i++) {
		struct store_key *at = &s->key[i];

		if (at->key && !strcmp(at->key, key)) {
			k = at;
			break;
		}
		if (!k && (!at->key || mc_now_ns() >= at->until))
			k = at;
	}
	if (!k)
		abort();
	key_clear(k);
	k->key = strdup(key);
	k->text = strdup(text);
	k->until = until;
}

static uint64_t key_end(unsigned ttl_ms)
{
	return mc_now_ns() + ttl_ms * MC_NS_PER_MS;
}

/* ---- calls of clients ---------------------------------------------------------------------------- */

/* The lock is held. */
static struct store_client *client_of(struct fake_store *s, const char *name)
{
	for (unsigned i = 0; i < CLIENTS; i++) {
		struct store_client *c = &s->client[i];

		if (!*c->name)
			snprintf(c->name, sizeof(c->name), "%s", name);
		if (!strcmp(c->name, name))
			return c;
	}
	abort();
}

static struct store_backend *backend_of(struct mcd_backend *b)
{
	return (struct store_backend *)b;
}

/* A request arrives; the caller unlocks the store after it.  Negative: it does not arrive, and nothing is locked. */
static int call_begin(struct mcd_backend *b, const struct mcd_wait *w, struct store_client **ret)
{
	struct store_backend *sb = backend_of(b);
	struct store_client *c;
	int r = mcd_wait_check(w, "fake store");

	if (r < 0)
		return r;
	mc_mutex_lock(&sb->store->lock);
	c = client_of(sb->store, sb->client);
	if (c->cut) {
		mc_mutex_unlock(&sb->store->lock);
		return mc_fail(-ECONNREFUSED, "fake store: cannot connect");
	}
	mc_clock_advance(c->there);
	c->there = 0;
	sb->store->calls++;
	*ret = c;
	return 0;
}

/* The answer @r leaves.  @changes: the call may have changed a key. */
static int call_end(struct mcd_backend *b, const struct mcd_wait *w, struct store_client *c, bool changes, int r)
{
	bool lost = changes && c->lost_answers;

	mc_clock_advance(c->back);
	c->back = 0;
	c->lost_answers -= lost;
	mc_mutex_unlock(&backend_of(b)->store->lock);
	return lost || mc_now_ns() >= w->deadline ? mc_fail(-ETIMEDOUT, "fake store: no answer in time") : r;
}

static int store_open(const char *where, const struct mcd_open *o, struct mcd_backend **ret);

static void store_close(struct mcd_backend *b)
{
	free(backend_of(b));
}

static int store_get(struct mcd_backend *b, const char *key, const struct mcd_wait *w, char **ret_text)
{
	struct store_client *c;
	const char *text;
	int r = call_begin(b, w, &c);

	if (r < 0)
		return r;
	text = key_text(backend_of(b)->store, key);
	if (text)
		*ret_text = strdup(text);
	return call_end(b, w, c, false, text ? 0 : mc_fail(-ENOENT, "fake store: no %s", key));
}

static int store_put(struct mcd_backend *b, const char *key, const char *text, const struct mcd_wait *w)
{
	struct store_client *c;
	int r = call_begin(b, w, &c);

	if (r < 0)
		return r;
	key_set(backend_of(b)->store, key, text, key_end(backend_of(b)->ttl_s * 1000));
	return call_end(b, w, c, true, 0);
}

static int store_del(struct mcd_backend *b, const char *key, const struct mcd_wait *w)
{
	struct store_client *c;
	struct store_key *k;
	int r = call_begin(b, w, &c);

	if (r < 0)
		return r;
	k = key_find(backend_of(b)->store, key);
	if (k)
		key_clear(k);
	return call_end(b, w, c, true, 0);
}

static int store_beat(struct mcd_backend *b, const struct mcd_wait *w)
{
	struct store_client *c;
	int r = call_begin(b, w, &c);

	return r < 0 ? r : call_end(b, w, c, false, 0);
}

static bool text_is(const char *text, const char *wanted)
{
	return text && wanted ? !strcmp(text, wanted) : text == wanted;
}

/* The lock is held. */
static int turn_locked(struct fake_store *s, const struct mcd_turn *t)
{
	const char *leader = key_text(s, t->leader_key), *state = key_text(s, t->state_key);

	/* A repeated request: the first one has changed the keys. */
	if (text_is(leader, t->mine) && text_is(state, t->state))
		return 0;
	if (!text_is(leader, t->take ? t->instead : t->mine) || !text_is(state, t->seen))
		return mc_fail(-EAGAIN, "another master leads, or the state has changed");
	if (t->take)
		key_set(s, t->leader_key, t->mine, key_end(t->ttl_ms));
	key_set(s, t->state_key, t->state, MC_NEVER);
	return 0;
}

static int store_turn(struct mcd_backend *b, const struct mcd_turn *t, const struct mcd_wait *w)
{
	struct store_client *c;
	int r = call_begin(b, w, &c);

	return r < 0 ? r : call_end(b, w, c, true, turn_locked(backend_of(b)->store, t));
}

static int store_prolong(struct mcd_backend *b, const char *leader_key, const char *mine, unsigned ttl_ms,
			 const struct mcd_wait *w)
{
	struct store_client *c;
	struct store_key *k;
	int r = call_begin(b, w, &c);

	if (r < 0)
		return r;
	k = key_find(backend_of(b)->store, leader_key);
	if (!k || strcmp(k->text, mine) != 0)
		r = mc_fail(-MC_EOWNER, "the lease is lost");
	else
		k->until = key_end(ttl_ms);
	return call_end(b, w, c, true, r);
}

static int store_leave(struct mcd_backend *b, const char *leader_key, const char *mine, const struct mcd_wait *w)
{
	struct store_client *c;
	struct store_key *k;
	int r = call_begin(b, w, &c);

	if (r < 0)
		return r;
	k = key_find(backend_of(b)->store, leader_key);
	if (k && !strcmp(k->text, mine))
		key_clear(k);
	return call_end(b, w, c, true, 0);
}

static const struct mcd_ops store_kind = {
	.scheme = "fake",
	.has_leases = true,
	.open = store_open,
	.close = store_close,
	.get = store_get,
	.put = store_put,
	.del = store_del,
	.del_own = mcd_del_own_text,
	.beat = store_beat,
	.refresh = store_put,
	.turn = store_turn,
	.prolong = store_prolong,
	.leave = store_leave,
};

static int store_open(const char *where, const struct mcd_open *o, struct mcd_backend **ret)
{
	const char *client = strchr(where, '/');
	struct store_backend *b = NULL;

	if (!client || !client[1])
		return mc_fail(-EINVAL, "fake store: %s is not STORE/CLIENT", where);
	for (unsigned i = 0; i < STORES && !b; i++) {
		if (!stores[i] || strlen(stores[i]->name) != (size_t)(client - where) ||
		    memcmp(stores[i]->name, where, (size_t)(client - where)) != 0)
			continue;
		b = calloc(1, sizeof(*b));
		if (!b)
			return -ENOMEM;
		b->store = stores[i];
	}
	if (!b)
		return mc_fail(-EINVAL, "fake store: there is no store %s", where);
	b->base.ops = &store_kind;
	b->ttl_s = o->ttl_s;
	snprintf(b->client, sizeof(b->client), "%s", client + 1);
	*ret = &b->base;
	return 0;
}

/* ---- the test's side ----------------------------------------------------------------------------- */

struct fake_store *fake_store_new(const char *name)
{
	struct fake_store *s = calloc(1, sizeof(*s));

	if (!s)
		abort();
	mcd_kind_add(&store_kind);
	snprintf(s->name, sizeof(s->name), "%s", name);
	mc_mutex_init(&s->lock);
	for (unsigned i = 0; i < STORES; i++)
		if (!stores[i]) {
			stores[i] = s;
			return s;
		}
	abort();
}

void fake_store_free(struct fake_store *s)
{
	for (unsigned i = 0; i < STORES; i++)
		if (stores[i] == s)
			stores[i] = NULL;
	fake_store_erase(s);
	mc_mutex_destroy(&s->lock);
	free(s);
}

void fake_store_cut(struct fake_store *s, const char *client, bool cut)
{
	MC_LOCKED(&s->lock);
	client_of(s, client)->cut = cut;
}

void fake_store_lose_answers(struct fake_store *s, const char *client, unsigned n)
{
	MC_LOCKED(&s->lock);
	client_of(s, client)->lost_answers = n;
}

void fake_store_delay(struct fake_store *s, const char *client, uint64_t there, uint64_t back)
{
	MC_LOCKED(&s->lock);
	client_of(s, client)->there = there;
	client_of(s, client)->back = back;
}

void fake_store_erase(struct fake_store *s)
{
	MC_LOCKED(&s->lock);
	for (unsigned i = 0; i < KEYS; i++)
		key_clear(&s->key[i]);
}

void fake_store_remove(struct fake_store *s, const char *key)
{
	struct store_key *k;

	MC_LOCKED(&s->lock);
	k = key_find(s, key);
	if (k)
		key_clear(k);
}

void fake_store_put(struct fake_store *s, const char *key, const char *text)
{
	MC_LOCKED(&s->lock);
	key_set(s, key, text, MC_NEVER);
}

bool fake_store_has(struct fake_store *s, const char *key)
{
	MC_LOCKED(&s->lock);
	return key_find(s, key) != NULL;
}

uint64_t fake_store_calls(struct fake_store *s)
{
	MC_LOCKED(&s->lock);
	return s->calls;
}
