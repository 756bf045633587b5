/* SPDX-License-Identifier: Apache-2.0
 * account.c - pins and unfinished puts of all sessions of one identity together. */
#include <config.h>

#include "master/account.h"

#include <errno.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/hash.h"
#include "master/mcm_i.h"
#include "master/session.h"

/* Serial numbers of credentials are odd. */
static uint64_t account_key(const struct mcm *m, const struct mc_principal *p)
{
	if (!m->security && !m->uids)
		return 0;
	switch (p->source) {
	case MC_PRINCIPAL_CREDENTIAL:
		return p->serial;
	case MC_PRINCIPAL_USER:
		return ((uint64_t)p->uid + 1) << 1;
	case MC_PRINCIPAL_LOCAL:
	case MC_PRINCIPAL_ANYONE:
		break;
	}
	return 0;
}

static struct mcm_account **account_link_locked(struct mcm *m, uint64_t key)
{
	struct mcm_account **at = &m->accounts[mc_hash(&key, sizeof(key), 0) % MCM_ACCOUNT_BUCKETS];

	while (*at && (*at)->key != key)
		at = &(*at)->next;
	return at;
}

int mcm_account_open(struct mcm *m, struct mcm_session *s, const struct mc_principal *p)
{
	uint64_t key = account_key(m, p);
	struct mcm_account **at;

	if (!key)
		return 0;
	s->share = calloc(1, sizeof(*s->share));
	if (!s->share)
		return mc_fail(-ENOMEM, "out of memory for a session");
	MC_LOCKED(&m->sessions_lock);
	at = account_link_locked(m, key);
	if (!*at) {
		*at = calloc(1, sizeof(**at));
		if (!*at)
			return mc_fail(-ENOMEM, "out of memory for a session");
		(*at)->key = key;
	}
	(*at)->sessions++;
	s->share->account = *at;
	return 0;
}

void mcm_account_close(struct mcm *m, struct mcm_session *s)
{
	auto_free struct mcm_account_share *share = TAKE_PTR(s->share);
	struct mcm_account *a = share ? share->account : NULL;

	if (!a)
		return;
	MC_LOCKED(&m->sessions_lock);
	if (--a->sessions)
		return;
	*account_link_locked(m, a->key) = a->next;
	free(a);
}

/* Differences may be negative: the sums wrap around. */
static void account_move(uint64_t *sum, uint64_t *counted, uint64_t now)
{
	if (*counted == now)
		return;
	__atomic_add_fetch(sum, now - *counted, __ATOMIC_RELAXED);
	*counted = now;
}

void mcm_account_pins(const struct mcm_session *s)
{
	struct mcm_account_share *share = s->share;

	account_move(&share->account->pins, &share->pins, s->n_pins);
	account_move(&share->account->pinned_bytes, &share->pinned_bytes, s->pinned.bytes);
}

void mcm_account_puts_locked(const struct mcm_session *s)
{
	struct mcm_account_share *share = s->share;

	if (!share)
		return;
	account_move(&share->account->puts, &share->puts, s->n_puts);
	account_move(&share->account->put_keys, &share->put_keys, s->put_keys);
}

void mcm_account_puts(struct mcm *m, const struct mcm_session *s)
{
	if (!s->share)
		return;
	MC_LOCKED(&m->puts.shard[s->put_shard].lock);
	mcm_account_puts_locked(s);
}

uint64_t mcm_account_key(const struct mcm_session *s)
{
	return s->share ? s->share->account->key : 0;
}
