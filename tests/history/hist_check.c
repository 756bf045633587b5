/* SPDX-License-Identifier: Apache-2.0
 * hist_check.c - checks a history of calls. */
#include <config.h>

#include "tests/history/hist_check.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define DESCRIBED 5			/* violations of each rule */
#define NEVER UINT64_MAX

/* All calls on one value: its zone is [first_end, last_begin]. */
struct zone {
	uint64_t value, first_end, last_begin;
	const struct hist_rec *write, *end, *begin;	/* the calls that set the bounds */
	uint64_t generation;
	const struct hist_rec *seen;	/* a read that tells the generation */
	uint16_t key;
	bool real;			/* the write took effect: it says so, or the value was read */
};

struct check {
	struct hist_rec *rec;
	size_t n;
	bool keep;
	FILE *out;
	struct hist_report *report;
	struct zone *zone;		/* sorted by value */
	size_t n_zones;
	uint64_t t0;
};

const char *hist_rule_name(enum hist_rule rule)
{
	static const char *const name[HIST_RULES] = {
		"wrong bytes", "damaged bytes", "value from nowhere", "value from the future", "generation order",
		"replaced value came back", "removed value came back", "lost value", "unreadable key",
		"lost value of the last rank",
	};

	return name[rule];
}

/* ---- description ---- */

static void describe(const struct check *c, const struct hist_rec *r)
{
	static const char *const op[HIST_OPS] = {
		"none", "put", "put-excl", "upsert", "rename", "remove", "get", "range", "map", "stat", "exist", "list",
		"final",
	};

	fprintf(c->out, "    %-8s key %u by %u.%u at %.6f", op[r->op], r->key, r->thread / 16, r->thread % 16,
		(double)(r->inv_ns - c->t0) / 1e9);
	if (r->ret_ns)
		fprintf(c->out, " to %.6f result %d", (double)(r->ret_ns - c->t0) / 1e9, r->result);
	else
		fprintf(c->out, " open");
	fprintf(c->out, " value %u.%u size %llu generation %llu\n", (unsigned)(r->value >> 32), (unsigned)r->value,
		(unsigned long long)r->size, (unsigned long long)r->generation);
}

/* Count a violation, with the calls that show it; a NULL call is left out. */
static void broken(struct check *c, enum hist_rule rule, const struct hist_rec *a, const struct hist_rec *b,
		   const struct hist_rec *d)
{
	const struct hist_rec *all[] = { a, b, d };

	c->report->violations++;
	if (c->report->broken[rule]++ >= DESCRIBED || !c->out)
		return;
	fprintf(c->out, "VIOLATION: %s\n", hist_rule_name(rule));
	for (unsigned i = 0; i < 3; i++)
		if (all[i] && (i == 0 || all[i] != all[i - 1]))
			describe(c, all[i]);
}

/* ---- properties of records ---- */

static bool is_write(const struct hist_rec *r)
{
	return r->op >= HIST_PUT && r->op <= HIST_RENAME;
}

static bool is_read(const struct hist_rec *r)
{
	return r->op >= HIST_GET;
}

/* A read that saw a version. */
static bool saw_value(const struct hist_rec *r)
{
	return is_read(r) && r->ret_ns && r->result >= 0 && r->value;
}

static bool saw_absence(const struct hist_rec *r)
{
	return is_read(r) && r->ret_ns && r->result == HIST_ABSENT;
}

/* A write that certainly took effect.  A put of an existing key returns 0 too. */
static bool took_effect(const struct hist_rec *r)
{
	return r->ret_ns && r->result == 0 && r->op != HIST_PUT;
}

/* When the effect of a write was in place, if it had one. */
static uint64_t write_end(const struct hist_rec *r)
{
	bool answered = r->ret_ns && (r->result == 0 || r->result == HIST_EXISTS || r->result == HIST_ABSENT);

	return answered ? r->ret_ns : NEVER;
}

static void count(struct check *c)
{
	for (size_t i = 0; i < c->n; i++) {
		const struct hist_rec *r = &c->rec[i];

		c->report->calls++;
		if (!r->ret_ns)
			c->report->open++;
		else if (r->result >= 0 || r->result == HIST_EXISTS)
			c->report->ok++;
		else if (r->result == HIST_ABSENT)
			c->report->absent++;
		else
			c->report->failed++;
		if (r->inv_ns < c->t0)
			c->t0 = r->inv_ns;
	}
}

/* ---- values ---- */

static int zone_cmp(const void *a, const void *b)
{
	const struct zone *x = a, *y = b;

	return x->value < y->value ? -1 : x->value > y->value;
}

static struct zone *zone_find(const struct check *c, uint64_t value)
{
	struct zone key = { .value = value };

	return bsearch(&key, c->zone, c->n_zones, sizeof(key), zone_cmp);
}

static void zones_make(struct check *c)
{
	for (size_t i = 0; i < c->n; i++) {
		const struct hist_rec *r = &c->rec[i];

		if (is_write(r))
			c->zone[c->n_zones++] = (struct zone){
				.value = r->value, .first_end = write_end(r), .last_begin = r->inv_ns, .key = r->key,
				.write = r, .end = r, .begin = r, .real = took_effect(r),
			};
	}
	qsort(c->zone, c->n_zones, sizeof(*c->zone), zone_cmp);
}

/* Check a read on its own, and let the zone of its value contain it. */
static void zone_read(struct check *c, const struct hist_rec *r)
{
	struct zone *z = zone_find(c, r->value);

	if (!z || z->key != r->key || (r->flags & HIST_LOOKED && r->key_in_value != r->key) ||
	    (r->size && r->size != z->write->size)) {
		broken(c, RULE_NOWHERE, r, z ? z->write : NULL, NULL);
		return;
	}
	if (z->write->inv_ns > r->ret_ns) {
		broken(c, RULE_FUTURE, r, z->write, NULL);
		return;
	}
	z->real = true;
	/* A client whose connection breaks while it commits repeats the call if the key is absent then.  So a value
	 * that was read, replaced and removed while its call had not returned may come once more: it counts from the
	 * return on. */
	if (r->ret_ns < z->first_end && !took_effect(z->write)) {
		z->first_end = r->ret_ns;
		z->end = r;
	}
	if (r->inv_ns > z->last_begin) {
		z->last_begin = r->inv_ns;
		z->begin = r;
	}
}

static void check_reads(struct check *c)
{
	for (size_t i = 0; i < c->n; i++) {
		struct hist_rec *r = &c->rec[i];

		if (!is_read(r))
			continue;
		if (r->flags & HIST_WRONG)
			broken(c, RULE_BYTES, r, NULL, NULL);
		else if (r->result == HIST_DAMAGED)
			broken(c, RULE_DAMAGED, r, NULL, NULL);
		else if (saw_value(r))
			zone_read(c, r);
		if (c->keep && r->op == HIST_FINAL && r->ret_ns && r->result < 0 && r->result != HIST_ABSENT &&
		    (i + 1 == c->n || c->rec[i + 1].op != HIST_FINAL || c->rec[i + 1].key != r->key))
			broken(c, RULE_UNREADABLE, r, NULL, NULL);
	}
}

/* ---- generations ---- */

static int generation_cmp(const void *a, const void *b)
{
	const struct hist_rec *x = *(struct hist_rec *const *)a, *y = *(struct hist_rec *const *)b;

	if (x->generation != y->generation)
		return x->generation < y->generation ? -1 : 1;
	/* records without a value last */
	return !x->value - !y->value;
}

/* The generation of each value, and the value of each generation. */
static void check_generations(struct check *c)
{
	struct hist_rec **by = calloc(c->n + 1, sizeof(*by)), *first = NULL;
	size_t n = 0;

	for (size_t i = 0; i < c->n; i++)
		if (is_read(&c->rec[i]) && c->rec[i].generation && c->rec[i].result >= 0 &&
		    !(c->rec[i].flags & HIST_WRONG))
			by[n++] = &c->rec[i];
	qsort(by, n, sizeof(*by), generation_cmp);
	for (size_t i = 0; i < n; i++) {
		struct zone *z;

		if (!first || first->generation != by[i]->generation)
			first = by[i];
		if (!by[i]->value && first->key == by[i]->key)
			by[i]->value = first->value;
		else if (by[i]->value != first->value)
			broken(c, RULE_GENERATION, first, by[i], NULL);
		z = by[i]->value ? zone_find(c, by[i]->value) : NULL;
		/* a repeated call has two */
		if (!z)
			continue;
		if (z->generation && z->generation != by[i]->generation && z->seen->inv_ns >= write_end(z->write))
			broken(c, RULE_GENERATION, z->write, by[i], NULL);
		z->generation = by[i]->generation;
		z->seen = by[i];
	}
	free(by);
}

static int write_inv_cmp(const void *a, const void *b)
{
	uint64_t x = (*(struct zone *const *)a)->write->inv_ns, y = (*(struct zone *const *)b)->write->inv_ns;

	return x < y ? -1 : x > y;
}

static int write_end_cmp(const void *a, const void *b)
{
	uint64_t x = write_end((*(struct zone *const *)a)->write), y = write_end((*(struct zone *const *)b)->write);

	return x < y ? -1 : x > y;
}

/* A write that began after another one had ended has the larger generation, whatever their keys. */
static void check_generation_order(struct check *c)
{
	const struct zone **begin = calloc(c->n_zones + 1, sizeof(*begin));
	const struct zone **end = calloc(c->n_zones + 1, sizeof(*end));
	const struct zone *newest = NULL;
	size_t n = 0, e = 0;

	for (size_t i = 0; i < c->n_zones; i++)
		if (c->zone[i].generation)
			begin[n++] = &c->zone[i];
	memcpy(end, begin, n * sizeof(*end));
	qsort(begin, n, sizeof(*begin), write_inv_cmp);
	qsort(end, n, sizeof(*end), write_end_cmp);
	for (size_t i = 0; i < n; i++) {
		for (; e < n && write_end(end[e]->write) < begin[i]->write->inv_ns; e++)
			if (!newest || end[e]->generation > newest->generation)
				newest = end[e];
		if (newest && newest->generation > begin[i]->generation)
			broken(c, RULE_GENERATION, newest->write, begin[i]->write, NULL);
	}
	free(begin);
	free(end);
}

/* ---- ranks ---- */

/* The nearest rank that has a copy; HIST_RANKS: not known. */
static unsigned nearest(const struct hist_rec *r)
{
	unsigned rank = 0;

	while (rank < HIST_RANKS && !(r->flags & HIST_RANK(rank)))
		rank++;
	return rank;
}

static int sighting_cmp(const void *a, const void *b)
{
	const struct hist_rec *x = *(struct hist_rec *const *)a, *y = *(struct hist_rec *const *)b;

	if (x->generation != y->generation)
		return x->generation < y->generation ? -1 : 1;
	return x->inv_ns < y->inv_ns ? -1 : x->inv_ns > y->inv_ns;
}

/* A version moved if two calls, one after the other, saw its nearest copy on two ranks. */
static void count_ranks(struct check *c)
{
	const struct hist_rec **by = calloc(c->n + 1, sizeof(*by)), *last = NULL;
	size_t n = 0;

	for (size_t i = 0; i < c->n; i++) {
		const struct hist_rec *r = &c->rec[i];

		if (!r->ret_ns || r->result < 0 || nearest(r) == HIST_RANKS)
			continue;
		by[n++] = r;
		if (r->flags & HIST_LOOKED)
			c->report->read[nearest(r)]++;
	}
	qsort(by, n, sizeof(*by), sighting_cmp);
	for (size_t i = 0; i < n; i++) {
		bool same = last && last->generation == by[i]->generation;

		if (same && last->ret_ns > by[i]->inv_ns)
			continue;
		if (same && nearest(last) < nearest(by[i]))
			c->report->down[nearest(by[i])]++;
		if (same && nearest(last) > nearest(by[i]))
			c->report->up[nearest(last)]++;
		last = by[i];
	}
	free(by);
}

/* ---- zones of one key ---- */

static int place_cmp(const void *a, const void *b)
{
	const struct zone *x = *(struct zone *const *)a, *y = *(struct zone *const *)b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->first_end < y->first_end ? -1 : x->first_end > y->first_end;
}

/* Forward zones, sorted by key and begin. */
struct forward {
	const struct zone **zone;
	size_t n;
};

static bool is_forward(const struct zone *z)
{
	return z->real && z->first_end < z->last_begin;
}

/* The zone of @key that contains the whole of [begin, end]; NULL: none. */
static const struct zone *forward_around(const struct forward *f, uint16_t key, uint64_t begin, uint64_t end)
{
	size_t lo = 0, hi = f->n;

	/* the last one that begins before @begin */
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		const struct zone *z = f->zone[mid];

		if (z->key < key || (z->key == key && z->first_end < begin))
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo || f->zone[lo - 1]->key != key || f->zone[lo - 1]->last_begin <= end)
		return NULL;
	return f->zone[lo - 1];
}

static void check_zones(struct check *c, struct forward *f)
{
	const struct zone *last = NULL;

	for (size_t i = 0; i < c->n_zones; i++)
		if (is_forward(&c->zone[i]))
			f->zone[f->n++] = &c->zone[i];
	qsort(f->zone, f->n, sizeof(*f->zone), place_cmp);
	for (size_t i = 0; i < f->n; i++) {
		const struct zone *z = f->zone[i];

		if (last && last->key == z->key && last->last_begin > z->first_end)
			broken(c, RULE_TWO_VALUES, last->end, z->end, last->begin);
		if (!last || last->key != z->key || last->last_begin < z->last_begin)
			last = z;
	}
	for (size_t i = 0; i < c->n_zones; i++) {
		const struct zone *z = &c->zone[i], *around;

		if (!z->real || is_forward(z))
			continue;
		around = forward_around(f, z->key, z->last_begin, z->first_end);
		if (around)
			broken(c, RULE_TWO_VALUES, around->end, z->write, around->begin);
	}
}

static void check_absences(struct check *c, const struct forward *f)
{
	for (size_t i = 0; i < c->n; i++) {
		const struct hist_rec *r = &c->rec[i];
		const struct zone *around;

		if (!(r->op == HIST_REMOVE && r->ret_ns && r->result == 0) && !(c->keep && saw_absence(r)))
			continue;
		around = forward_around(f, r->key, r->inv_ns, r->ret_ns);
		if (around)
			broken(c, RULE_BACK, around->end, r, around->begin);
	}
}

/* ---- keep: absence needs a cause ---- */

enum event_kind { REMOVER_BEGINS, WRITE_ENDS, ABSENCE };

struct event {
	uint64_t at;
	const struct hist_rec *rec;
	uint16_t key;
	enum event_kind kind;
};

static int event_cmp(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	if (x->at != y->at)
		return x->at < y->at ? -1 : 1;
	return (int)x->kind - (int)y->kind;
}

static uint64_t remover_end(const struct hist_rec *r)
{
	return r->ret_ns && (r->result == 0 || r->result == HIST_ABSENT) ? r->ret_ns : NEVER;
}

/* For each absence: the last acknowledged write that ended before, and a remove that may have come after it.  The
 * removers that matter began before the absence ended, and ended after the write began. */
static void check_lost(struct check *c)
{
	struct event *ev = calloc(2 * c->n + 1, sizeof(*ev));
	const struct hist_rec **write_before = calloc(c->n + 1, sizeof(*write_before)), *write = NULL;
	uint64_t removed_upto = 0;
	size_t n = 0;

	/* first by the begins of the absences, for their writes; then by their ends, for their removers */
	for (unsigned pass = 0; pass < 2; pass++) {
		n = 0;
		for (size_t i = 0; i < c->n; i++) {
			const struct hist_rec *r = &c->rec[i];

			if (saw_absence(r))
				ev[n++] = (struct event){ pass ? r->ret_ns : r->inv_ns, r, r->key, ABSENCE };
			else if (!pass && is_write(r) && took_effect(r))
				ev[n++] = (struct event){ r->ret_ns, r, r->key, WRITE_ENDS };
			else if (pass && r->op == HIST_REMOVE)
				ev[n++] = (struct event){ r->inv_ns, r, r->key, REMOVER_BEGINS };
		}
		qsort(ev, n, sizeof(*ev), event_cmp);
		for (size_t i = 0; i < n; i++) {
			const struct hist_rec *r = ev[i].rec, *w;

			if (!i || ev[i].key != ev[i - 1].key) {
				write = NULL;
				removed_upto = 0;
			}
			if (ev[i].kind == WRITE_ENDS && (!write || r->inv_ns > write->inv_ns))
				write = r;
			if (ev[i].kind == REMOVER_BEGINS && remover_end(r) > removed_upto)
				removed_upto = remover_end(r);
			if (ev[i].kind != ABSENCE)
				continue;
			if (!pass) {
				write_before[r - c->rec] = write;
				continue;
			}
			w = write_before[r - c->rec];
			if (w && removed_upto <= w->inv_ns)
				broken(c, RULE_LOST, w, r, NULL);
		}
	}
	free(ev);
	free(write_before);
}

/* ---- shared: a value on the last rank stays ---- */

enum moment_kind { CHANGE_BEGINS, CALL_BEGINS, CALL_ENDS, CHANGE_ENDS };

struct moment {
	uint64_t at;
	struct hist_rec *rec;
	enum moment_kind kind;
};

static int moment_cmp(const void *a, const void *b)
{
	const struct moment *x = a, *y = b;

	if (x->rec->key != y->rec->key)
		return x->rec->key < y->rec->key ? -1 : 1;
	if (x->at != y->at)
		return x->at < y->at ? -1 : 1;
	return (int)x->kind - (int)y->kind;
}

static bool saw_shared(const struct hist_rec *r)
{
	return is_read(r) && r->ret_ns && r->result >= 0 && r->flags & HIST_RANK(HIST_RANKS - 1);
}

static size_t moments_make(const struct check *c, struct moment *m)
{
	size_t n = 0;

	for (size_t i = 0; i < c->n; i++) {
		struct hist_rec *r = &c->rec[i];
		bool change = is_write(r) || r->op == HIST_REMOVE;

		if (!change && !saw_shared(r) && !saw_absence(r))
			continue;
		m[n++] = (struct moment){ r->inv_ns, r, change ? CHANGE_BEGINS : CALL_BEGINS };
		m[n++] = (struct moment){
			change ? is_write(r) ? write_end(r) : remover_end(r) : r->ret_ns, r,
			change ? CHANGE_ENDS : CALL_ENDS,
		};
	}
	qsort(m, n, sizeof(*m), moment_cmp);
	return n;
}

/* A call that saw the value on the last rank, while no call ran that changes the key, makes it safe until the next such
 * call begins.  Calls that failed never end. */
static void check_shared(struct check *c)
{
	struct moment *m = calloc(2 * c->n + 1, sizeof(*m));
	uint64_t *begun_at = calloc(c->n + 1, sizeof(*begun_at)), begun = 1, running = 0, safe = 0;
	size_t n = moments_make(c, m);
	const struct hist_rec *by = NULL;

	for (size_t i = 0; i < n; i++) {
		struct hist_rec *r = m[i].rec;
		uint64_t *at = &begun_at[r - c->rec];

		if (!i || r->key != m[i - 1].rec->key) {
			begun++;
			running = 0;
		}
		switch (m[i].kind) {
		case CHANGE_BEGINS:
			begun++;
			running++;
			break;
		case CHANGE_ENDS:
			running -= m[i].at != NEVER;
			break;
		case CALL_BEGINS:
			*at = saw_absence(r) ? (safe == begun ? begun : 0) : running ? 0 : begun;
			break;
		case CALL_ENDS:
			if (*at != begun)
				break;
			if (saw_absence(r)) {
				broken(c, RULE_SHARED, by, r, NULL);
				break;
			}
			safe = begun;
			by = r;
			c->report->safe++;
			break;
		}
	}
	free(begun_at);
	free(m);
}

void hist_check(struct hist_rec *rec, size_t n, unsigned promises, FILE *out, struct hist_report *ret)
{
	struct check c = {
		.rec = rec, .n = n, .keep = promises & HIST_KEEP, .out = out, .report = ret, .t0 = NEVER,
	};
	struct forward f = { .zone = calloc(n + 1, sizeof(*f.zone)) };

	memset(ret, 0, sizeof(*ret));
	c.zone = calloc(n + 1, sizeof(*c.zone));
	count(&c);
	count_ranks(&c);
	zones_make(&c);
	check_generations(&c);
	check_generation_order(&c);
	check_reads(&c);
	check_zones(&c, &f);
	check_absences(&c, &f);
	if (c.keep)
		check_lost(&c);
	if (promises & HIST_SHARED)
		check_shared(&c);
	free(c.zone);
	free(f.zone);
}
