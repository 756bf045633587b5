/* SPDX-License-Identifier: Apache-2.0
 * notes.c - small named values that survive a restart; their owners keep state of their own and tell it
 * here when it changes. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/hash.h"
#include "master/journal/journal_i.h"
#include "master/mcm_i.h"
#include "proto/codec.h"

#define BUCKETS_MIN 64u

_Static_assert(6 + MCM_NOTE_NAME_MAX + MCM_NOTE_VALUE_MAX <= MCM_RECORD_BODY_MAX,
	       "no note may be too long for a record");

int mcm_notes_init(struct mcm_notes *ns)
{
	*ns = (struct mcm_notes){ .buckets = BUCKETS_MIN };
	pthread_mutex_init(&ns->lock, NULL);
	ns->bucket = calloc(BUCKETS_MIN, sizeof(*ns->bucket));
	return ns->bucket ? 0 : -ENOMEM;
}

void mcm_notes_done(struct mcm_notes *ns)
{
	struct mcm_note *n;
	unsigned i;

	for (i = 0; ns->bucket && i < ns->buckets; i++) {
		while ((n = ns->bucket[i])) {
			ns->bucket[i] = n->next;
			free(n);
		}
	}
	free(ns->bucket);
	pthread_mutex_destroy(&ns->lock);
}

/* ---- lock held ---- */

static struct mcm_note **place_of(struct mcm_notes *ns, uint16_t kind, struct mcp_bytes name,
				  uint64_t hash)
{
	struct mcm_note **at = &ns->bucket[hash & (ns->buckets - 1)];

	while (*at && ((*at)->hash != hash || (*at)->kind != kind || (*at)->name_len != name.len ||
		       memcmp((*at)->bytes, name.data, name.len) != 0))
		at = &(*at)->next;
	return at;
}

static void grow(struct mcm_notes *ns)
{
	struct mcm_note **more, *n;
	unsigned i;

	if (ns->count < 2 * ns->buckets)
		return;
	more = calloc(4 * (size_t)ns->buckets, sizeof(*more));
	if (!more)
		return;		/* longer chains until memory comes back */
	for (i = 0; i < ns->buckets; i++) {
		while ((n = ns->bucket[i])) {
			struct mcm_note **to = &more[n->hash & (4 * ns->buckets - 1)];

			ns->bucket[i] = n->next;
			n->next = *to;
			*to = n;
		}
	}
	free(ns->bucket);
	ns->bucket = more;
	ns->buckets *= 4;
}

static struct mcm_note *note_new(uint16_t kind, struct mcp_bytes name, struct mcp_bytes value,
				 uint64_t hash)
{
	struct mcm_note *n = malloc(sizeof(*n) + name.len + value.len);

	if (!n)
		return NULL;
	*n = (struct mcm_note){ .hash = hash, .kind = kind, .name_len = name.len,
				.value_len = value.len };
	if (name.len)
		memcpy(n->bytes, name.data, name.len);
	if (value.len)
		memcpy(n->bytes + name.len, value.data, value.len);
	return n;
}

/* ---- no lock held ---- */

int mcm_note_set(struct mcm *m, enum mcm_note_kind kind, struct mcp_bytes name,
		 struct mcp_bytes value)
{
	uint64_t hash = mc_hash(name.data, name.len, kind);
	struct mcm_note_record r = { (uint16_t)kind, name, value };
	struct mcm_notes *ns = &m->notes;
	auto_free struct mcm_note *n = NULL;
	struct mcm_note **at, *old;

	if (name.len > MCM_NOTE_NAME_MAX || value.len > MCM_NOTE_VALUE_MAX)
		return mc_fail(-MC_EPARAM, "a note of %u and %u bytes", name.len, value.len);
	n = note_new((uint16_t)kind, name, value, hash);
	if (!n)
		return -ENOMEM;
	MC_LOCKED(&ns->lock);
	at = place_of(ns, (uint16_t)kind, name, hash);
	old = *at;
	if (!old && ns->count == MCM_NOTES_MAX)
		return mc_fail(-MC_ELIMIT, "more than %u notes", MCM_NOTES_MAX);
	n->next = old ? old->next : NULL;
	*at = TAKE_PTR(n);
	free(old);
	ns->count += !old;
	grow(ns);
	mcm_journal_note(m, &r, false);
	return 0;
}

void mcm_note_drop(struct mcm *m, enum mcm_note_kind kind, struct mcp_bytes name)
{
	struct mcm_note_record r = { .kind = (uint16_t)kind, .name = name };
	struct mcm_notes *ns = &m->notes;
	struct mcm_note **at, *old;

	MC_LOCKED(&ns->lock);
	at = place_of(ns, (uint16_t)kind, name, mc_hash(name.data, name.len, kind));
	old = *at;
	if (!old)
		return;
	*at = old->next;
	ns->count--;
	mcm_journal_note(m, &r, true);
	free(old);
}

void mcm_notes_pack(struct mcm_notes *ns, void (*fn)(void *arg, const struct mcm_note *n), void *arg)
{
	const struct mcm_note *n;
	unsigned i;

	MC_LOCKED(&ns->lock);
	for (i = 0; i < ns->buckets; i++)
		for (n = ns->bucket[i]; n; n = n->next)
			fn(arg, n);
}

struct each {
	uint16_t kind;
	void (*fn)(void *arg, struct mcp_bytes name, struct mcp_bytes value);
	void *arg;
};

static void one_of(void *arg, const struct mcm_note *n)
{
	struct each *e = arg;

	if (n->kind == e->kind)
		e->fn(e->arg, mcp_bytes(n->bytes, n->name_len),
		      mcp_bytes(n->bytes + n->name_len, n->value_len));
}

void mcm_notes_each(struct mcm *m, enum mcm_note_kind kind,
		    void (*fn)(void *arg, struct mcp_bytes name, struct mcp_bytes value), void *arg)
{
	struct each e = { (uint16_t)kind, fn, arg };

	mcm_notes_pack(&m->notes, one_of, &e);
}
