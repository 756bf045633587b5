/* SPDX-License-Identifier: Apache-2.0
 * durable.c - a hash table of small named values that survive a restart. */
#include <config.h>

#include "master/journal/durable.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/hash.h"
#include "master/journal/journal_i.h"
#include "master/mcm_i.h"
#include "proto/codec.h"

#define DURABLE_BUCKETS_MIN 64u

_Static_assert(6 + MCM_DURABLE_NAME_MAX + MCM_DURABLE_VALUE_MAX <= MCM_RECORD_BODY_MAX,
	       "every value fits into a record");

struct mcm_durable {
	struct mcm_durable *next;
	uint64_t hash;
	uint16_t kind;
	uint32_t name_len, value_len;
	uint8_t bytes[];		/* name, value */
};

int mcm_durables_init(struct mcm_durables *ds)
{
	*ds = (struct mcm_durables){ .buckets = DURABLE_BUCKETS_MIN };
	mc_mutex_init(&ds->lock);
	ds->bucket = calloc(DURABLE_BUCKETS_MIN, sizeof(*ds->bucket));
	return ds->bucket ? 0 : -ENOMEM;
}

void mcm_durables_done(struct mcm_durables *ds)
{
	struct mcm_durable *d;
	unsigned i;

	for (i = 0; ds->bucket && i < ds->buckets; i++) {
		while ((d = ds->bucket[i])) {
			ds->bucket[i] = d->next;
			free(d);
		}
	}
	free(ds->bucket);
	mc_mutex_destroy(&ds->lock);
}

/* ---- lock held ---- */

static struct mcm_durable **durable_link(struct mcm_durables *ds, uint16_t kind, struct mcp_bytes name,
					 uint64_t hash)
{
	struct mcm_durable **at = &ds->bucket[hash & (ds->buckets - 1)];

	while (*at && ((*at)->hash != hash || (*at)->kind != kind || (*at)->name_len != name.len ||
		       memcmp((*at)->bytes, name.data, name.len) != 0))
		at = &(*at)->next;
	return at;
}

static void durables_grow(struct mcm_durables *ds)
{
	struct mcm_durable **more, *d;
	unsigned i;

	if (ds->count < 2 * ds->buckets)
		return;
	more = calloc(4 * (size_t)ds->buckets, sizeof(*more));
	if (!more)
		return;		/* longer chains until memory is available */
	for (i = 0; i < ds->buckets; i++) {
		while ((d = ds->bucket[i])) {
			struct mcm_durable **to = &more[d->hash & (4 * ds->buckets - 1)];

			ds->bucket[i] = d->next;
			d->next = *to;
			*to = d;
		}
	}
	free(ds->bucket);
	ds->bucket = more;
	ds->buckets *= 4;
}

static struct mcm_durable *durable_new(uint16_t kind, struct mcp_bytes name, struct mcp_bytes value,
				       uint64_t hash)
{
	struct mcm_durable *d = malloc(sizeof(*d) + name.len + value.len);

	if (!d)
		return NULL;
	*d = (struct mcm_durable){ .hash = hash, .kind = kind, .name_len = name.len,
				.value_len = value.len };
	if (name.len)
		memcpy(d->bytes, name.data, name.len);
	if (value.len)
		memcpy(d->bytes + name.len, value.data, value.len);
	return d;
}

/* ---- no lock held ---- */

int mcm_durable_set(struct mcm *m, enum mcm_durable_kind kind, struct mcp_bytes name,
		    struct mcp_bytes value)
{
	uint64_t hash = mc_hash(name.data, name.len, kind);
	struct mcm_durable_record r = { (uint16_t)kind, name, value };
	struct mcm_durables *ds = &m->durables;
	auto_free struct mcm_durable *d = NULL;
	struct mcm_durable **at, *old;

	if (name.len > MCM_DURABLE_NAME_MAX || value.len > MCM_DURABLE_VALUE_MAX)
		return mc_fail(-MC_EPARAM, "durable value too long: name=%u value=%u bytes", name.len,
			       value.len);
	d = durable_new((uint16_t)kind, name, value, hash);
	if (!d)
		return -ENOMEM;
	MC_LOCKED(&ds->lock);
	at = durable_link(ds, (uint16_t)kind, name, hash);
	old = *at;
	if (!old && ds->count == MCM_DURABLES_MAX)
		return mc_fail(-MC_ELIMIT, "more than %u durable values", MCM_DURABLES_MAX);
	d->next = old ? old->next : NULL;
	*at = TAKE_PTR(d);
	free(old);
	ds->count += !old;
	durables_grow(ds);
	mcm_journal_durable(m, &r, false);
	return 0;
}

void mcm_durable_drop(struct mcm *m, enum mcm_durable_kind kind, struct mcp_bytes name)
{
	struct mcm_durable_record r = { .kind = (uint16_t)kind, .name = name };
	struct mcm_durables *ds = &m->durables;
	struct mcm_durable **at, *old;

	MC_LOCKED(&ds->lock);
	at = durable_link(ds, (uint16_t)kind, name, mc_hash(name.data, name.len, kind));
	old = *at;
	if (!old)
		return;
	*at = old->next;
	ds->count--;
	mcm_journal_durable(m, &r, true);
	free(old);
}

void mcm_durables_each(struct mcm *m, uint16_t kind,
		       void (*fn)(void *arg, const struct mcm_durable_record *r), void *arg)
{
	struct mcm_durables *ds = &m->durables;
	const struct mcm_durable *d;
	unsigned i;

	MC_LOCKED(&ds->lock);
	for (i = 0; i < ds->buckets; i++) {
		for (d = ds->bucket[i]; d; d = d->next) {
			struct mcm_durable_record r = {
				d->kind, mcp_bytes(d->bytes, d->name_len),
				mcp_bytes(d->bytes + d->name_len, d->value_len),
			};

			if (!kind || d->kind == kind)
				fn(arg, &r);
		}
	}
}
