/* SPDX-License-Identifier: Apache-2.0
 * record.c - records of objects on a disk. */
#include <config.h>

#include "tiers/ssd/record.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "common/hash.h"

#define RECORD_VERSION 1u

static const char record_magic[8] = { 'm', 'c', 'o', 'b', 'j', 'e', 'c', 't' };

struct head {
	char magic[8];
	uint16_t version, body_len;
	uint32_t zero;
	uint64_t off, len, order, generation, name;
	uint64_t check;
} __attribute__((packed));
_Static_assert(sizeof(struct head) == MCT_RECORD_HEAD, "as in the header");

/* Body and head are adjacent: the checksum of both without its own field. */
static uint64_t record_check(const struct head *h, uint32_t body_len, const uint64_t secret[2])
{
	const unsigned char *from = (const unsigned char *)h - body_len;
	uint64_t seed = mc_hash(&secret[1], sizeof(secret[1]), secret[0]);

	return mc_hash(from, body_len + offsetof(struct head, check), seed);
}

void mct_record_seal(void *block, const struct mct_record *r, const uint64_t secret[2])
{
	struct head *h = (struct head *)((char *)block + MCT_BLOCK - MCT_RECORD_HEAD);

	*h = (struct head){
		.version = htole16(RECORD_VERSION), .body_len = htole16((uint16_t)r->body_len),
		.off = htole64(r->off), .len = htole64(r->len), .order = htole64(r->order),
		.generation = htole64(r->generation), .name = htole64(r->name),
	};
	memcpy(h->magic, record_magic, sizeof(record_magic));
	if (r->body_len)
		memcpy((char *)h - r->body_len, r->body, r->body_len);
	h->check = htole64(record_check(h, r->body_len, secret));
}

bool mct_record_open(const void *block, uint64_t end, const uint64_t secret[2], struct mct_record *ret)
{
	const struct head *h = (const struct head *)((const char *)block + MCT_BLOCK - MCT_RECORD_HEAD);
	uint32_t body_len = le16toh(h->body_len);
	uint64_t off = le64toh(h->off), len = le64toh(h->len);

	if (memcmp(h->magic, record_magic, sizeof(record_magic)) || le16toh(h->version) != RECORD_VERSION ||
	    body_len > MCT_RECORD_BODY_MAX || le64toh(h->check) != record_check(h, body_len, secret))
		return false;
	if (off % MCT_BLOCK || len % MCT_BLOCK || !len || off > end || len != end - off)
		return false;
	*ret = (struct mct_record){
		.off = off, .len = len, .order = le64toh(h->order), .generation = le64toh(h->generation),
		.name = le64toh(h->name), .body = (const char *)h - body_len, .body_len = body_len,
	};
	return true;
}

/* ---- notes ---- */

struct notes {
	char magic[8];
	uint64_t sequence, n, check;
	struct mct_note note[MCT_NOTES];
};
_Static_assert(sizeof(struct notes) == MCT_BLOCK, "as in the header");
static const char notes_magic[8] = { 'm', 'c', '-', 'g', 'o', 'n', 'e', '1' };

static uint64_t notes_check(const struct notes *b, size_t n, const uint64_t secret[2])
{
	uint64_t head = mc_hash(b, offsetof(struct notes, check), mc_hash(&secret[1], sizeof(secret[1]), secret[0]));

	return mc_hash(b->note, n * sizeof(b->note[0]), head);
}

void mct_notes_seal(void *block, uint64_t sequence, const struct mct_note *note, size_t n, const uint64_t secret[2])
{
	struct notes *b = block;

	memset(b, 0, sizeof(*b));
	memcpy(b->magic, notes_magic, sizeof(notes_magic));
	b->sequence = htole64(sequence);
	b->n = htole64(n);
	for (size_t i = 0; i < n; i++)
		b->note[i] = (struct mct_note){ htole64(note[i].off), htole64(note[i].generation) };
	b->check = htole64(notes_check(b, n, secret));
}

size_t mct_notes_open(const void *block, const uint64_t secret[2], uint64_t *ret_sequence,
		      struct mct_note ret[MCT_NOTES])
{
	const struct notes *b = block;
	uint64_t n = le64toh(b->n);

	*ret_sequence = 0;
	if (memcmp(b->magic, notes_magic, sizeof(notes_magic)) || n > MCT_NOTES ||
	    le64toh(b->check) != notes_check(b, n, secret))
		return 0;
	*ret_sequence = le64toh(b->sequence);
	for (size_t i = 0; i < n; i++)
		ret[i] = (struct mct_note){ le64toh(b->note[i].off), le64toh(b->note[i].generation) };
	return n;
}

/* ---- the records of a medium ---- */

static int by_name(const void *a, const void *b)
{
	const struct mct_found *x = a, *y = b;

	if (x->name != y->name)
		return x->name < y->name ? -1 : 1;
	if (x->generation != y->generation)
		return x->generation > y->generation ? -1 : 1;
	return x->order > y->order ? -1 : x->order < y->order;
}

static int by_place(const void *a, const void *b)
{
	const struct mct_found *x = a, *y = b;

	if (x->off != y->off)
		return x->off < y->off ? -1 : 1;
	return x->len < y->len ? -1 : x->len > y->len;
}

/* A record with length 0 is dropped at the end of a step. */
static size_t found_pack(struct mct_found *f, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++)
		if (f[i].len)
			f[kept++] = f[i];
	return kept;
}

/* If ranges overlap, only the one that was written last has its bytes.  The ranges that may still overlap the next
 * one are at most as many as records that older ranges left between others: few. */
static size_t drop_overwritten(struct mct_found *f, size_t n)
{
	size_t *open = calloc(n ? n : 1, sizeof(*open)), opened = 0, kept;
	unsigned char *dead = calloc(n ? n : 1, 1);

	for (size_t i = 0; open && dead && i < n; i++) {
		kept = 0;
		for (size_t k = 0; k < opened; k++) {
			const struct mct_found *o = &f[open[k]];

			if (o->off + o->len <= f[i].off)
				continue;
			dead[o->order < f[i].order ? open[k] : i] = 1;
			open[kept++] = open[k];
		}
		opened = kept;
		open[opened++] = i;
	}
	for (size_t i = 0; i < n; i++)
		if (!open || !dead || dead[i])
			f[i].len = 0;
	free(open);
	free(dead);
	return found_pack(f, n);
}

static int by_note(const void *a, const void *b)
{
	const struct mct_note *x = a, *y = b;

	if (x->off != y->off)
		return x->off < y->off ? -1 : 1;
	return x->generation < y->generation ? -1 : x->generation > y->generation;
}

size_t mct_records_live(struct mct_found *f, size_t n, struct mct_note *note, size_t notes)
{
	/* @f may be NULL then, which qsort() does not take. */
	if (!n)
		return 0;
	qsort(f, n, sizeof(*f), by_place);
	n = drop_overwritten(f, n);
	qsort(f, n, sizeof(*f), by_name);
	for (size_t i = n; i-- > 1;)
		if (f[i].name == f[i - 1].name)
			f[i].len = 0;
	if (notes)
		qsort(note, notes, sizeof(*note), by_note);
	for (size_t i = 0; notes && i < n; i++) {
		const struct mct_note key = { f[i].off, f[i].generation };

		if (bsearch(&key, note, notes, sizeof(*note), by_note))
			f[i].len = 0;
	}
	n = found_pack(f, n);
	qsort(f, n, sizeof(*f), by_place);
	return n;
}
