/* SPDX-License-Identifier: Apache-2.0
 * restore_build.c - building a master's state from the last record of each key.
 *
 * First the claims of objects and of unfinished puts on ranges are sorted by position.  Then each segment's
 * allocator is built from front to back, and claims that overlap are adjacent.  Of two overlapping claims the
 * one with the later record is right: the other owner was gone before its memory was reused, and only the
 * record of that is missing.  Generations do not decide this: a put gets its generation before its ranges, and
 * an object that gets another replica keeps its generation.
 *
 * Objects are built in the order of the index.  They are put on the eviction lists in the order of
 * their generations, which is the order of their puts. */
#include <config.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/err.h"
#include "master/mcm_i.h"
#include "master/journal/journal_i.h"
#include "master/journal/restore_build.h"
#include "proto/codec.h"

#define SCAN 4096
#define AHEAD 16		/* elements prefetched */
#define AT_BITS 40		/* bits of a position in a segment, as in records */
#define DIGIT_BITS 11
#define DIGITS (1u << DIGIT_BITS)
#define KEY_DIGITS ((64 + DIGIT_BITS - 1) / DIGIT_BITS)

/* The claim of an object or put on one range.  Claims of one object are adjacent, in the order of the index. */
struct claim {
	uint64_t where;		/* segment and granule: the order of positions */
	uint64_t generation;
	uint64_t len;		/* granules; 0: no range, or the claim was rejected */
	uint32_t slot;		/* 0: claim of a put */
	uint32_t range;
};

static uint16_t segment_of(const struct claim *p)
{
	return (uint16_t)(p->where >> AT_BITS);
}

static uint64_t at_of(const struct claim *p)
{
	return p->where & ((1ull << AT_BITS) - 1);
}

/* Sorting key of a claim. */
struct order {
	uint64_t key;
	uint32_t claim;
};

struct build {
	struct mcm *m;
	struct mcm_restored *r;
	struct claim *claim;
	size_t n, cap;
	struct mcm_names_dir at;		/* the last object's directory */
	int error;
};

/* The record of a frame, which was checked when it was applied. */
static void record_of(const uint8_t *frame, struct mcm_record *ret)
{
	uint32_t word = (uint32_t)frame[8] | (uint32_t)frame[9] << 8 | (uint32_t)frame[10] << 16 |
		(uint32_t)frame[11] << 24;

	*ret = (struct mcm_record){
		(enum mcm_record_type)(word & 0xff), frame + MCM_RECORD_HEAD, word >> 8
	};
}

static int object_of(const uint8_t *frame, struct mcm_object_record *ret)
{
	struct mcm_record rec;
	struct mcp_bytes from;

	record_of(frame, &rec);
	return rec.type == MCM_REC_RENAMED ? mcm_unpack_renamed(&rec, &from, ret) :
		mcm_unpack_object(&rec, ret);
}

/* ---- the records ---- */

struct mcm_restored *mcm_restored_new(void)
{
	struct mcm_restored *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->segment = calloc(MCM_SEGMENTS_MAX, sizeof(*r->segment));
	r->unmounted = calloc(MCM_SEGMENTS_MAX, sizeof(*r->unmounted));
	if (!r->segment || !r->unmounted) {
		mcm_restored_done(r);
		return NULL;
	}
	return r;
}

void mcm_restored_done(struct mcm_restored *r)
{
	size_t i;

	if (!r)
		return;
	for (i = 0; i < r->files; i++)
		munmap(r->file[i].p, r->file[i].len);
	free(r->file);
	free(r->frame);
	free(r->segment);
	free(r->unmounted);
	free(r->put);
	free(r);
}

static size_t put_home(const struct mcm_restored *r, uint64_t generation)
{
	return (size_t)(generation * 0x9e3779b97f4a7c15ull >> 20) & (r->put_cap - 1);
}

static size_t put_find(const struct mcm_restored *r, uint64_t generation)
{
	size_t i = put_home(r, generation);

	while (r->put[i].frame && r->put[i].generation != generation)
		i = (i + 1) & (r->put_cap - 1);
	return i;
}

static int puts_grow(struct mcm_restored *r)
{
	struct mcm_restored_put *old = r->put;
	size_t cap = r->put_cap, i;

	if (2 * (r->puts + 1) <= cap)
		return 0;
	r->put_cap = cap ? 2 * cap : 1024;
	r->put = calloc(r->put_cap, sizeof(*r->put));
	if (!r->put) {
		r->put = old;
		r->put_cap = cap;
		return -ENOMEM;
	}
	for (i = 0; i < cap; i++)
		if (old[i].frame)
			r->put[put_find(r, old[i].generation)] = old[i];
	free(old);
	return 0;
}

int mcm_restored_put_set(struct mcm_restored *r, uint64_t generation, const uint8_t *frame)
{
	int e = puts_grow(r);
	size_t i;

	if (e < 0)
		return e;
	i = put_find(r, generation);
	r->puts += !r->put[i].frame;
	r->put[i] = (struct mcm_restored_put){ generation, frame };
	return 0;
}

void mcm_restored_put_drop(struct mcm_restored *r, uint64_t generation)
{
	size_t i, next, home;

	if (!r->puts)
		return;
	i = put_find(r, generation);
	if (!r->put[i].frame)
		return;
	r->puts--;
	/* Move up later entries that could not use this position because of the removed one. */
	for (next = (i + 1) & (r->put_cap - 1); r->put[next].frame;
	     next = (next + 1) & (r->put_cap - 1)) {
		home = put_home(r, r->put[next].generation);
		if (((next - home) & (r->put_cap - 1)) >= ((next - i) & (r->put_cap - 1))) {
			r->put[i] = r->put[next];
			i = next;
		}
	}
	r->put[i].frame = NULL;
}

/* A fault of the record at @frame. */
static void __attribute__((format(printf, 3, 4))) restored_fault(struct build *b, const uint8_t *frame,
								 const char *fmt, ...)
{
	const struct mcm_restored_file *f = b->r->file, *end = f + b->r->files;
	char why[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	while (f < end && (frame < (const uint8_t *)f->p || frame >= (const uint8_t *)f->p + f->len))
		f++;
	if (f < end)
		mcm_restored_fault(b->m, b->r, f->name, (uint64_t)(frame - (const uint8_t *)f->p), 0, "%s", why);
	else
		mcm_restored_fault(b->m, b->r, NULL, 0, 0, "%s", why);
}

/* ---- collecting ---- */

static int add_claim(struct build *b, const struct claim *p)
{
	if (b->n == b->cap) {
		size_t cap = b->cap ? 2 * b->cap : 4096;
		struct claim *more = realloc(b->claim, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		b->claim = more;
		b->cap = cap;
	}
	b->claim[b->n++] = *p;
	return 0;
}

static void add_extents(struct build *b, uint32_t slot, uint64_t generation,
			const struct mcm_extent_record *e, unsigned n)
{
	unsigned i;

	for (i = 0; i < n && !b->error; i++) {
		/* Both numbers have AT_BITS in a record. */
		struct claim p = {
			(uint64_t)e[i].segment << AT_BITS | e[i].at, generation, e[i].len, slot, 0
		};

		b->error = add_claim(b, &p);
	}
}

static void collect_object(void *arg, uint32_t slot)
{
	struct mcm_object_record o;
	struct build *b = arg;
	struct claim none = { .slot = slot };

	if (b->error || object_of(b->r->frame[slot], &o) < 0)
		return;
	none.generation = o.generation;
	if (o.copies)
		add_extents(b, slot, o.generation, o.extent, o.copies);
	else
		b->error = add_claim(b, &none);
}

static void collect_puts(struct build *b)
{
	struct mcm_put_record p;
	struct mcm_record rec;
	size_t i;

	for (i = 0; i < b->r->put_cap && !b->error; i++) {
		if (!b->r->put[i].frame)
			continue;
		record_of(b->r->put[i].frame, &rec);
		if (mcm_unpack_put(&rec, &p) == 0)
			add_extents(b, 0, p.generation, p.extent, p.copies);
	}
}

/* ---- segments ---- */

static int make_segment(struct build *b, const struct mcm_segment_record *s)
{
	bool unproven = b->m->journal->origin == MCM_ORIGIN_SNAPSHOT || s->unproven;
	int r = 0;

	for (unsigned i = 0; i < mcm_parts_n && r == 0; i++)
		r = mcm_parts[i].segment(b->m, s, unproven);
	return r;
}

static int make_segments(struct build *b)
{
	struct mcm_segment_record s;
	struct mcm_record rec;
	unsigned i;
	int r;

	for (i = 0; i < MCM_SEGMENTS_MAX; i++) {
		if (!b->r->segment[i])
			continue;
		record_of(b->r->segment[i], &rec);
		r = mcm_unpack_segment(&rec, &s);
		if (r == 0)
			r = make_segment(b, &s);
		if (r == -ENOMEM)
			return r;
		if (r < 0)
			restored_fault(b, b->r->segment[i], "cannot restore segment %u: %s", i, mc_err_detail(r));
		else
			b->r->segments++;
	}
	return 0;
}

/* ---- ranges ---- */

/* Sort by one digit; keys that are equal in it keep their order. */
static void sort_digit(const struct order *from, struct order *to, size_t n, unsigned shift,
		       const size_t *count)
{
	size_t at[DIGITS], i, sum = 0;

	for (i = 0; i < DIGITS; i++) {
		at[i] = sum;
		sum += count[i];
	}
	for (i = 0; i < n; i++)
		to[at[from[i].key >> shift & (DIGITS - 1)]++] = from[i];
}

/* Radix sort from the lowest digit.  Digits that all keys have in common, usually the upper ones,
 * are skipped.  *o gets the result. */
static int sort_orders(struct order **o, size_t n)
{
	size_t (*count)[DIGITS] = calloc(KEY_DIGITS, sizeof(*count)), i;
	struct order *from = *o, *to = malloc((n + 1) * sizeof(*to)), *tmp;
	unsigned d;

	for (i = 0; count && i < n; i++)
		for (d = 0; d < KEY_DIGITS; d++)
			count[d][from[i].key >> d * DIGIT_BITS & (DIGITS - 1)]++;
	for (d = 0; count && to && n && d < KEY_DIGITS; d++) {
		if (count[d][from[0].key >> d * DIGIT_BITS & (DIGITS - 1)] == n)
			continue;
		sort_digit(from, to, n, d * DIGIT_BITS, count[d]);
		tmp = from;
		from = to;
		to = tmp;
	}
	*o = from;
	i = count && to;
	free(count);
	free(to);
	return i ? 0 : -ENOMEM;
}

/* All claims with a range, sorted by position or by generation; NULL: out of memory. */
static struct order *order_of(const struct build *b, bool by_position, size_t *ret_n)
{
	struct order *o = malloc((b->n + 1) * sizeof(*o));
	size_t i, n = 0;

	for (i = 0; o && i < b->n; i++) {
		const struct claim *p = &b->claim[i];

		if (p->len)
			o[n++] = (struct order){ by_position ? p->where : p->generation, (uint32_t)i };
	}
	if (o && sort_orders(&o, n) < 0) {
		free(o);
		o = NULL;
	}
	*ret_n = n;
	return o;
}

static const uint8_t *frame_of(const struct mcm_restored *r, const struct claim *p)
{
	return p->slot ? r->frame[p->slot] : r->put[put_find(r, p->generation)].frame;
}

/* Is the range in a mounted segment?  If its segment was unmounted, the master was killed before it had removed the
 * object; else the files are wrong. */
static bool in_segment(struct build *b, const struct claim *p)
{
	const struct mcm_segment *s = segment_of(p) < b->m->segments.top ?
		b->m->segments.at[segment_of(p)] : NULL;
	bool mounted = s && mcm_segment_state(s) == MCP_SEG_SILENT;
	/* A damaged record may have a number that no segment gets. */
	bool unmounted = segment_of(p) < MCM_SEGMENTS_MAX && b->r->unmounted[segment_of(p)];

	if (mounted && at_of(p) < s->alloc.granules && p->len <= s->alloc.granules - at_of(p))
		return true;
	if (mounted || !unmounted)
		restored_fault(b, frame_of(b->r, p), "%s memory %s segment %u, which is dropped: granules %llu to %llu",
			       p->slot ? "an object has" : "an unfinished put has",
			       mounted ? "behind the end of" : "in the unmounted", segment_of(p),
			       (unsigned long long)at_of(p), (unsigned long long)(at_of(p) + p->len - 1));
	return false;
}

static int take_range(struct build *b, struct claim *p)
{
	struct mcm_segment *s = mcm_segment(&b->m->segments, segment_of(p));
	int r = mcm_alloc_take_at(&s->alloc, at_of(p), p->len, &p->range);

	mcm_segment_used(s);
	if (r == 0 && s->unproven && p->slot)
		r = mcm_confirm_note(s, p->slot, p->range);
	return r;
}

/* Position of the claim's record among all records, in the order in which they were applied. */
static uint64_t record_position(const struct mcm_restored *r, const struct claim *p)
{
	const uint8_t *frame = frame_of(r, p);
	uint64_t before = 0;
	size_t i;

	for (i = 0; i < r->files; i++) {
		const uint8_t *file = r->file[i].p;

		if (frame >= file && frame < file + r->file[i].len)
			return before + (uint64_t)(frame - file);
		before += r->file[i].len;
	}
	return 0;
}

/* Allocate the claimed ranges from front to back.  Of two overlapping claims reject the one with
 * the earlier record. */
static int take_ranges(struct build *b, const struct order *o, size_t n)
{
	struct claim *last = NULL;
	size_t i;
	int r = 0;

	for (i = 0; i < n && r == 0; i++) {
		struct claim *p = &b->claim[o[i].claim];

		__builtin_prefetch(&b->claim[o[i + AHEAD < n ? i + AHEAD : i].claim], 1);
		if (!in_segment(b, p)) {
			p->len = 0;
			continue;
		}
		/* Only claims of the same segment can overlap: no range reaches beyond its segment. */
		if (last && last->where + last->len > p->where) {
			restored_fault(b, frame_of(b->r, p), "two records claim the same memory, of which the later "
				       "one counts: segment %u, granule %llu", segment_of(p),
				       (unsigned long long)at_of(p));
			if (record_position(b->r, last) > record_position(b->r, p)) {
				p->len = 0;
				continue;
			}
			last->len = 0;
			last = NULL;
		}
		if (last)
			r = take_range(b, last);
		last = p;
	}
	if (r == 0 && last)
		r = take_range(b, last);
	return r;
}

static int make_ranges(struct build *b)
{
	struct order *o;
	size_t n;
	int r;

	if (b->n > UINT32_MAX)
		return -MC_ELIMIT;
	o = order_of(b, true, &n);
	r = o ? take_ranges(b, o, n) : -ENOMEM;
	free(o);
	return r;
}

/* ---- rejected claims ---- */

/* The files still have the records of rejected claims.  Once their segments' numbers, or their memory, are used again,
 * the next start would restore these claims: foreign bytes.  So later records correct them, and where there are too
 * many for the journal's buffer, a checkpoint does. */
static bool may_correct(struct build *b)
{
	struct mcm_journal *j = b->m->journal;
	bool room = j->len < MCM_JOURNAL_BUFFER / 2;

	b->r->uncorrected |= !room;
	return room;
}

/* Claims of one put are adjacent. */
static void correct_puts(struct build *b)
{
	struct mcm_extent left[MCM_REPLICA_MAX];
	size_t i, end;
	unsigned n;

	for (i = 0; i < b->n; i = end) {
		const struct claim *p = &b->claim[i];

		n = 0;
		for (end = i; end < b->n && !b->claim[end].slot; end++) {
			if (b->claim[end].generation != p->generation)
				break;
			if (b->claim[end].len)
				left[n++] = (struct mcm_extent){ b->claim[end].range, segment_of(&b->claim[end]) };
		}
		if (end == i)
			end++;
		else if (n < end - i && may_correct(b))
			n ? mcm_journal_put(b->m, p->generation, left, n) : mcm_journal_put_gone(b->m, p->generation);
	}
}

/* ---- objects ---- */

static void drop_object(struct build *b, uint32_t slot)
{
	struct mcm_index *ix = &b->m->index;
	struct mcm_shard *sh = mcm_index_shard(ix, mcm_object(ix, slot)->hash);

	mcm_shard_unlink(ix, sh, slot);
	mcm_shard_free(ix, sh, slot);
	b->r->dropped++;
}

static void set_extent(struct build *b, uint32_t slot, const struct claim *p, unsigned nth)
{
	struct mcm *m = b->m;
	struct mcm_object *o = mcm_object(&m->index, slot);
	struct mcm_object_ext *e;

	if (mcm_segment(&m->segments, segment_of(p))->unproven)
		__atomic_fetch_or(&o->marks, MCM_MARK_UNCONFIRMED, __ATOMIC_RELAXED);
	if (nth == 0) {
		mcm_store_relaxed(&o->range, p->range);
		o->segment = segment_of(p);
	} else {
		e = mcm_ext(&m->index, o->ext);
		e->range[e->copies] = p->range;
		e->segment[e->copies++] = segment_of(p);
	}
}

/* Link the object into its directory, which usually is that of the object before. */
static int link_name(struct build *b, uint32_t slot)
{
	struct mcm_names *nm = &b->m->names;
	const struct mcm_object *o = mcm_object(&b->m->index, slot);
	int r;

	if (mcm_names_dir_contains(&b->at, mcm_shard_key(&b->m->index, slot), o->key_len)) {
		mcm_names_link_open(nm, slot, b->at.dir);
		return 0;
	}
	r = mcm_names_add(nm, slot);
	if (r == 0)
		b->at = mcm_names_dir_of(nm, slot);
	return r;
}

/* Build an object from those of its @n claims that were not rejected. */
static int make_object(struct build *b, const struct claim *p, size_t n)
{
	uint32_t slot = p->slot;
	struct mcm_object_record o;
	unsigned copies = 0, had;
	size_t i;
	int r;

	r = object_of(b->r->frame[slot], &o);
	if (r < 0)
		return r;
	had = o.copies;
	for (i = 0; i < n; i++)
		copies += p[i].len != 0;
	if (o.size && !copies) {
		if (may_correct(b))
			mcm_journal_object_gone(b->m, slot);
		drop_object(b, slot);
		return 0;
	}
	o.copies = (uint8_t)copies;
	r = mcm_object_restore(b->m, slot, &o);
	if (r == 0)
		r = link_name(b, slot);
	if (r < 0)
		return r;
	for (i = 0, copies = 0; i < n; i++)
		if (p[i].len)
			set_extent(b, slot, &p[i], copies++);
	if (copies < had && may_correct(b))
		mcm_journal_object(b->m, slot);
	if (copies)
		mcm_grace_pin(b->m, slot);
	b->r->objects++;
	return 0;
}

static int make_objects(struct build *b)
{
	size_t i, end;
	int r = 0;

	for (i = 0; i < b->n && r == 0; i = end) {
		const struct claim *p = &b->claim[i];

		end = i + 1;
		if (!p->slot)
			continue;
		while (end < b->n && b->claim[end].slot == p->slot)
			end++;
		r = make_object(b, p, end - i);
	}
	return r;
}

static int make_put(struct build *b, const struct claim *p, struct mcm_extent extent)
{
	int r = 0;

	for (unsigned i = 0; i < mcm_parts_n && r == 0; i++)
		r = mcm_parts[i].put(b->m, p->generation, extent);
	return r;
}

/* Add objects to the eviction lists, oldest first, and ranges of puts to the quarantine. */
static int make_lists(struct build *b)
{
	struct mcm *m = b->m;
	struct order *o;
	size_t i, n;
	int r = 0;

	o = order_of(b, false, &n);
	if (!o)
		return -ENOMEM;
	for (i = 0; i < n && r == 0; i++) {
		const struct claim *p = &b->claim[o[i].claim];
		const struct claim *next = &b->claim[o[i + AHEAD < n ? i + AHEAD : i].claim];
		struct mcm_extent extent = { p->range, segment_of(p) };

		__builtin_prefetch(mcm_object(&m->index, next->slot), 1);
		__builtin_prefetch(mcm_range(&mcm_segment(&m->segments, segment_of(next))->alloc,
					    next->range), 1);
		if (p->slot)
			mcm_object_attach(m, p->slot, extent);
		else
			r = make_put(b, p, extent);
	}
	free(o);
	return r;
}

static void collect_slot(void *arg, uint32_t slot)
{
	struct build *b = arg;
	struct claim p = { .slot = slot };

	if (!b->error)
		b->error = add_claim(b, &p);
}

void mcm_restored_forget(struct mcm *m, struct mcm_restored *r)
{
	struct build b = { .m = m, .r = r };
	uint64_t pos = 0;
	size_t i;

	while (pos < MCM_TABLE_END)
		mcm_index_scan(&m->index, &pos, SCAN, collect_slot, &b);
	for (i = 0; i < b.n; i++)
		drop_object(&b, b.claim[i].slot);
	free(b.claim);
	memset(r->segment, 0, MCM_SEGMENTS_MAX * sizeof(*r->segment));
	memset(r->unmounted, 0, MCM_SEGMENTS_MAX * sizeof(*r->unmounted));
	free(r->put);
	r->put = NULL;
	r->put_cap = r->puts = 0;
	r->dropped = 0;
}

int mcm_restored_build(struct mcm *m, struct mcm_restored *r)
{
	struct build b = { .m = m, .r = r };
	uint64_t pos = 0, next = (r->generation >> MCM_PUT_SHARD_BITS) + 1;

	/* Generations must increase even if the wall clock went back. */
	if (m->generation < next)
		m->generation = next;
	/* Every session that may still write has a put with a larger number than its own. */
	m->puts.quarantine.restored_upto = mcm_generation_next(m, 0);
	b.error = make_segments(&b);
	while (pos < MCM_TABLE_END && !b.error)
		mcm_index_scan(&m->index, &pos, SCAN, collect_object, &b);
	if (!b.error)
		collect_puts(&b);
	if (!b.error)
		b.error = make_ranges(&b);
	if (!b.error)
		b.error = make_objects(&b);
	mcm_names_restored(&m->names);
	if (!b.error)
		b.error = make_lists(&b);
	if (!b.error)
		correct_puts(&b);
	free(b.claim);
	if (b.error)
		return mc_fail(b.error, "cannot restore the index from %s: %s", m->journal->path,
			       mc_err_detail(b.error));
	mcm_grace_begin(m, r->objects);
	return 0;
}
