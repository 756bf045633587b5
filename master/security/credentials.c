/* SPDX-License-Identifier: Apache-2.0
 * credentials.c - credentials that were made or revoked, as durable values: name: the serial number, value: u8
 * revoked, u64 time of creation, little-endian, then the identity. */
#include <config.h>

#include "master/security/credentials.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/sys/clock.h"
#include "master/mcm_i.h"
#include "proto/codec.h"

#define LOG "security"
#define SERIAL_LEN 16
#define HEAD 9u			/* bytes before the identity */
/* An expired entry is kept this long, so that its clients' late connections are explained in the list. */
#define KEEP_S 86400u

void mcm_credentials_init(struct mcm_credentials *cs)
{
	memset(cs, 0, sizeof(*cs));
	mc_mutex_init(&cs->lock);
}

void mcm_credentials_done(struct mcm_credentials *cs)
{
	for (unsigned i = 0; i < cs->n; i++)
		free(cs->at[i]);
	free(cs->at);
	mc_mutex_destroy(&cs->lock);
}

/* The first entry whose serial number is not below @serial. */
static unsigned entry_find_locked(const struct mcm_credentials *cs, uint64_t serial)
{
	unsigned low = 0, high = cs->n;

	while (low < high) {
		unsigned mid = low + (high - low) / 2;

		if (cs->at[mid]->serial < serial)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static struct mcm_credential_entry *entry_get_locked(struct mcm_credentials *cs, uint64_t serial)
{
	unsigned at = entry_find_locked(cs, serial);

	return at < cs->n && cs->at[at]->serial == serial ? cs->at[at] : NULL;
}

/* A new entry at the index @at; NULL with a detail: -MC_ELIMIT or -ENOMEM. */
static struct mcm_credential_entry *entry_insert_locked(struct mcm_credentials *cs, unsigned at, uint64_t serial,
							int *ret_err)
{
	struct mcm_credential_entry *e;

	if (cs->n == MCM_CREDENTIALS_MAX) {
		*ret_err = mc_fail(-MC_ELIMIT, "the list has %u credentials, which is the limit, until some expire; "
				   "mooncake_master --rotate_security ends all of the older secret", cs->n);
		return NULL;
	}
	if (cs->n == cs->room) {
		unsigned room = cs->room ? 2 * cs->room : 16;
		void *more = realloc(cs->at, room * sizeof(*cs->at));

		if (!more) {
			*ret_err = mc_fail(-ENOMEM, "no memory for the list of credentials");
			return NULL;
		}
		cs->at = more;
		cs->room = room;
	}
	e = calloc(1, sizeof(*e));
	if (!e) {
		*ret_err = mc_fail(-ENOMEM, "no memory for the list of credentials");
		return NULL;
	}
	memmove(cs->at + at + 1, cs->at + at, (cs->n - at) * sizeof(*cs->at));
	cs->n++;
	e->serial = serial;
	e->created_s = mc_wall_ms() / 1000;
	return cs->at[at] = e;
}

/* The entry of @serial, new if there was none; NULL as above. */
static struct mcm_credential_entry *entry_make_locked(struct mcm_credentials *cs, uint64_t serial, int *ret_err)
{
	unsigned at = entry_find_locked(cs, serial);

	return at < cs->n && cs->at[at]->serial == serial ? cs->at[at] : entry_insert_locked(cs, at, serial, ret_err);
}

static void entry_remove_locked(struct mcm_credentials *cs, uint64_t serial)
{
	unsigned at = entry_find_locked(cs, serial);

	if (cs->at[at]->revoked)
		__atomic_sub_fetch(&cs->revoked, 1, __ATOMIC_RELAXED);
	free(cs->at[at]);
	memmove(cs->at + at, cs->at + at + 1, (cs->n - at - 1) * sizeof(*cs->at));
	cs->n--;
}

static int entry_save(struct mcm *m, const struct mcm_credential_entry *e)
{
	uint8_t value[HEAD + MC_IDENTITY_MAX];
	uint64_t created = htole64(e->created_s);
	char name[SERIAL_LEN + 1];
	size_t len = strlen(e->text);

	value[0] = e->revoked;
	memcpy(value + 1, &created, sizeof(created));
	memcpy(value + HEAD, e->text, len);
	snprintf(name, sizeof(name), "%016" PRIx64, e->serial);
	return mcm_durable_set(m, MCM_DURABLE_CREDENTIAL, mcp_bytes(name, SERIAL_LEN), mcp_bytes(value, HEAD + len));
}

static void entry_forget(struct mcm *m, uint64_t serial)
{
	char name[SERIAL_LEN + 1];

	snprintf(name, sizeof(name), "%016" PRIx64, serial);
	mcm_durable_drop(m, MCM_DURABLE_CREDENTIAL, mcp_bytes(name, SERIAL_LEN));
}

struct load {
	struct mcm *m;
	int err;
};

/* Revoked numbers without an identity have no known end. */
static uint64_t text_expires_s(const char *text)
{
	struct mc_identity id;

	return mc_identity_parse(text, strlen(text), &id) < 0 ? 0 : id.expires_s;
}

/* The credentials' lock is held. */
static void entry_load(void *arg, const struct mcm_durable_record *r)
{
	struct load *l = arg;
	struct mcm_credentials *cs = &l->m->credentials;
	struct mcm_credential_entry *e;
	char name[SERIAL_LEN + 1] = "";
	uint64_t created;

	if (r->name.len != SERIAL_LEN || r->value.len < HEAD || r->value.len > HEAD + MC_IDENTITY_MAX)
		return;
	memcpy(name, r->name.data, SERIAL_LEN);
	/* mcm_credentials_load() sorts them. */
	e = entry_insert_locked(cs, cs->n, strtoull(name, NULL, 16), &l->err);
	if (e) {
		const uint8_t *value = r->value.data;

		memcpy(&created, value + 1, sizeof(created));
		e->created_s = le64toh(created);
		e->revoked = value[0];
		memcpy(e->text, value + HEAD, r->value.len - HEAD);
		e->text[r->value.len - HEAD] = '\0';
		e->expires_s = text_expires_s(e->text);
		if (e->revoked)
			cs->revoked++;
	}
}

static int entry_compare(const void *a, const void *b)
{
	const struct mcm_credential_entry *const *x = a, *const *y = b;

	return ((*x)->serial > (*y)->serial) - ((*x)->serial < (*y)->serial);
}

int mcm_credentials_load(struct mcm *m)
{
	struct mcm_credentials *cs = &m->credentials;
	struct load l = { .m = m };

	/* Before the lock of the durables, as in entry_save(). */
	MC_LOCKED(&cs->lock);
	mcm_durables_each(m, MCM_DURABLE_CREDENTIAL, entry_load, &l);
	if (cs->n)
		qsort(cs->at, cs->n, sizeof(*cs->at), entry_compare);
	return l.err;
}

int mcm_credentials_add(struct mcm *m, const struct mc_identity *id, const char *text)
{
	struct mcm_credentials *cs = &m->credentials;
	struct mcm_credential_entry *e;
	int r = 0;

	MC_LOCKED(&cs->lock);
	e = entry_make_locked(cs, id->serial, &r);
	if (!e)
		return r;
	strcpy(e->text, text);
	e->expires_s = id->expires_s;
	r = entry_save(m, e);
	if (r < 0)
		entry_remove_locked(cs, id->serial);
	return r;
}

int mcm_credentials_revoke(struct mcm *m, uint64_t serial)
{
	struct mcm_credentials *cs = &m->credentials;
	struct mcm_credential_entry *e;
	int r = 0;

	if (!m->journal)
		return mc_fail(-MC_EMODE, "this master keeps no journal, so a restart would forget the revocation: "
			       "start it with --journal_dir, or rotate the secret (mooncake_master --rotate_security)");
	MC_LOCKED(&cs->lock);
	e = entry_make_locked(cs, serial, &r);
	if (!e || e->revoked)
		return r;
	e->revoked = true;
	r = entry_save(m, e);
	if (r < 0) {
		e->revoked = false;
		return r;
	}
	__atomic_add_fetch(&cs->changes, 1, __ATOMIC_RELEASE);
	__atomic_add_fetch(&cs->revoked, 1, __ATOMIC_RELEASE);
	mc_info(LOG, "a credential was revoked serial=%016" PRIx64 " identity=%s", serial, e->text[0] ? e->text : "-");
	return 0;
}

bool mcm_credentials_revoked(struct mcm *m, uint64_t serial)
{
	struct mcm_credentials *cs = &m->credentials;
	struct mcm_credential_entry *e;

	if (!__atomic_load_n(&cs->revoked, __ATOMIC_ACQUIRE))
		return false;
	MC_LOCKED(&cs->lock);
	e = entry_get_locked(cs, serial);
	return e && e->revoked;
}

uint64_t mcm_credentials_changes(struct mcm *m)
{
	return __atomic_load_n(&m->credentials.changes, __ATOMIC_ACQUIRE);
}

unsigned mcm_credentials_list(struct mcm *m, uint64_t after, struct mcm_credential_entry *ret, unsigned max)
{
	struct mcm_credentials *cs = &m->credentials;
	unsigned n = 0;

	MC_LOCKED(&cs->lock);
	for (unsigned at = after == UINT64_MAX ? cs->n : entry_find_locked(cs, after + 1); at < cs->n && n < max; at++)
		ret[n++] = *cs->at[at];
	return n;
}

unsigned mcm_credentials_revoked_list(struct mcm *m, uint64_t after, uint64_t *ret, unsigned max)
{
	struct mcm_credentials *cs = &m->credentials;
	unsigned n = 0;

	MC_LOCKED(&cs->lock);
	for (unsigned at = after == UINT64_MAX ? cs->n : entry_find_locked(cs, after + 1); at < cs->n && n < max; at++)
		if (cs->at[at]->revoked)
			ret[n++] = cs->at[at]->serial;
	return n;
}

void mcm_credentials_tick(struct mcm *m)
{
	struct mcm_credentials *cs = &m->credentials;
	uint64_t now_s = mc_wall_ms() / 1000;
	unsigned left = 0;

	MC_LOCKED(&cs->lock);
	for (unsigned i = 0; i < cs->n; i++) {
		struct mcm_credential_entry *e = cs->at[i];

		if (!e->expires_s || now_s < e->expires_s + KEEP_S) {
			cs->at[left++] = e;
			continue;
		}
		if (e->revoked)
			__atomic_sub_fetch(&cs->revoked, 1, __ATOMIC_RELAXED);
		entry_forget(m, e->serial);
		free(e);
	}
	cs->n = left;
}
