/* SPDX-License-Identifier: Apache-2.0
 * journal_batch.c - records of one change of many objects.
 *
 * They are appended in one piece behind a record that has their length, so they are in one file, and a restart that
 * finds fewer bytes ignores all of them: such a change was not answered.  The records are ordinary ones, so a master
 * that does not know the first record reads them one by one. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "master/journal/journal_i.h"
#include "master/mcm_i.h"
#include "proto/codec.h"

#define OTHERS_MAX (1u << 20)	/* records that threads without a shard's lock append during a batch */

static size_t batch_pack_head(uint8_t *bytes, size_t cap, size_t len)
{
	struct mcm_packer p = { .bytes = bytes, .cap = cap };

	mcm_pack_number(&p, MCM_REC_BATCH, len);
	return p.len;
}

void mcm_journal_batch_room(struct mcm *m)
{
	struct mcm_journal *j = m->journal;
	bool full;

	if (!j)
		return;
	mc_mutex_lock(&j->lock);
	full = j->len > (MCM_JOURNAL_BUFFER - MCM_JOURNAL_BATCH_MAX) / 2;
	mc_mutex_unlock(&j->lock);
	if (full)
		mcm_journal_flush(m);
}

/* All shards are locked until the batch is appended, so no other batch takes the space. */
static bool batch_fits(struct mcm_journal *j, size_t cap)
{
	MC_LOCKED(&j->lock);
	return MCM_JOURNAL_BUFFER - j->len >= cap + OTHERS_MAX;
}

int mcm_journal_batch_begin(struct mcm *m, size_t bytes, struct mcm_journal_batch *ret)
{
	*ret = (struct mcm_journal_batch){ .cap = bytes + MCM_JOURNAL_BATCH_EACH };
	if (!m->journal)
		return 0;
	if (ret->cap > MCM_JOURNAL_BATCH_MAX)
		return mc_fail(-MC_ELIMIT, "%zu bytes of keys and attributes are too many for one change", bytes);
	if (!batch_fits(m->journal, ret->cap))
		return mc_fail(-MC_EUNAVAILABLE, "the journal's disk is slow, its buffer is full");
	ret->bytes = malloc(ret->cap);
	if (!ret->bytes)
		return -ENOMEM;
	ret->len = batch_pack_head(ret->bytes, ret->cap, 0);
	return 0;
}

static struct mcm_packer batch_rest(const struct mcm_journal_batch *b)
{
	return (struct mcm_packer){ .bytes = b->bytes + b->len, .cap = b->cap - b->len };
}

static void batch_took(struct mcm_journal_batch *b, const struct mcm_packer *p)
{
	b->overflow |= p->overflow;
	b->len += p->len;
}

void mcm_journal_batch_object(struct mcm *m, struct mcm_journal_batch *b, uint32_t slot)
{
	struct mcm_object_record r;
	struct mcm_packer p;

	if (!b->bytes)
		return;
	mcm_object_describe(m, slot, &r);
	p = batch_rest(b);
	mcm_pack_object(&p, &r);
	batch_took(b, &p);
}

void mcm_journal_batch_renamed(struct mcm *m, struct mcm_journal_batch *b, struct mcp_bytes from, uint32_t slot)
{
	struct mcm_object_record r;
	struct mcm_packer p;

	if (!b->bytes)
		return;
	mcm_object_describe(m, slot, &r);
	p = batch_rest(b);
	mcm_pack_renamed(&p, from, &r);
	batch_took(b, &p);
}

void mcm_journal_batch_object_gone(struct mcm *m, struct mcm_journal_batch *b, uint32_t slot)
{
	struct mcm_packer p;

	if (!b->bytes)
		return;
	p = batch_rest(b);
	mcm_pack_object_gone(&p, mcp_bytes(mcm_shard_key(&m->index, slot), mcm_object(&m->index, slot)->key_len));
	batch_took(b, &p);
}

void mcm_journal_batch_end(struct mcm *m, struct mcm_journal_batch *b)
{
	struct mcm_packer p = { .bytes = b->bytes, .cap = b->cap, .len = b->len, .overflow = b->overflow };
	size_t head;

	if (!b->bytes)
		return;
	head = batch_pack_head(b->bytes, b->cap, 0);
	(void)batch_pack_head(b->bytes, b->cap, b->len - head);
	mcm_journal_append(m->journal, &p);
}

void mcm_journal_renamed_name(struct mcm *m, struct mcp_bytes from, uint32_t slot)
{
	uint8_t mem[2 * MCM_RECORD_OBJECT_MAX];
	struct mcm_journal_batch b = { .bytes = mem, .cap = sizeof(mem) };

	b.len = batch_pack_head(b.bytes, b.cap, 0);
	mcm_journal_batch_object_gone(m, &b, slot);
	mcm_journal_batch_renamed(m, &b, from, slot);
	mcm_journal_batch_end(m, &b);
}

void mcm_journal_batch_free(struct mcm_journal_batch *b)
{
	free(b->bytes);
	b->bytes = NULL;
}
