/* SPDX-License-Identifier: Apache-2.0
 * calls_get.c - gets: into memory that a client named, and into its local memory, of which the daemon allocates. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "node/upstream/calls.h"

/* Upstream's code for a buffer that is too small is that of an invalid argument. */
static int64_t get_result(int64_t r)
{
	return r == -ENOBUFS ? -MCS_EPARAM : r;
}

static void get_run(struct mcn_up_run *r, struct mcs_get_item *item, unsigned n, int64_t *result)
{
	int err = n ? mcs_get_batch(r->store, item, n, mcn_up_left_ms(r)) : 0;

	for (unsigned i = 0; i < n; i++)
		result[i] = err < 0 ? err : get_result(item[i].result);
}

static void get_fail(int64_t *result, uint64_t n, int err)
{
	for (uint64_t i = 0; i < n && result; i++)
		result[i] = err;
}

/* ---- into memory that the client named ---- */

/* The arguments: keys, addresses, sizes, and the client's id at @id. */
static void get_places(struct mcn_up_run *r, bool rows, unsigned id)
{
	const struct mcn_up_strings *keys = &r->arg[0].strings;
	auto_free struct mcs_get_item *item = calloc(keys->n + 1, sizeof(*item));
	auto_free int64_t *result = calloc(keys->n + 1, sizeof(*result));
	struct mcn_up_places at = { 0 };
	int err = -ENOMEM;

	if (item && result)
		err = (rows ? mcn_up_places_rows : mcn_up_places_flat)(r, keys->n, 1, 2, r->arg[id].id, &at);
	for (uint64_t i = 0; i < keys->n && err == 0; i++)
		item[i] = (struct mcs_get_item){
			.key = keys->v[i], .whole = 1, .iov = at.iov + at.first[i],
			.iovcnt = (int)(at.first[i + 1] - at.first[i]),
		};
	if (err == 0)
		get_run(r, item, (unsigned)keys->n, result);
	else
		get_fail(result, keys->n, err);
	if (!mcn_up_places_done(r, &at))
		get_fail(result, keys->n, -MCS_ETRANSFER);
	mcn_up_answer_sizes(r, result, keys->n);
}

void mcn_up_run_batch_get(struct mcn_up_run *r)
{
	get_places(r, false, 4);
}

void mcn_up_run_batch_get_multi(struct mcn_up_run *r)
{
	get_places(r, true, 5);
}

/* key, address, its offset, offset in the object, size, whole, verify, id.  All reads here are verified. */
void mcn_up_run_get_range(struct mcn_up_run *r)
{
	const struct mcn_up_arg *a = r->arg;
	uint64_t to = a[1].number + a[2].number, len = a[4].number;
	struct mcn_up_shared *held;
	struct mcn_up_holds holds = { .v = &held, .max = 1 };
	struct iovec iov = { .iov_len = len };
	struct mcs_get_item item = { .key = a[0].text, .offset = a[3].number, .whole = a[5].number != 0, .iov = &iov,
				     .iovcnt = 1 };
	int64_t n = to < a[1].number ? -MCS_EPARAM : 0;

	if (n == 0)
		n = mcn_up_hold(r->dummies, a[7].id, r->uid, to, len, &holds, &iov.iov_base);
	if (n == 0) {
		get_run(r, &item, 1, &n);
		/* A range has to be in the object. */
		if (n >= 0 && !item.whole && (uint64_t)n != len)
			n = -MCS_EPARAM;
	}
	if (!mcn_up_release(r->dummies, &holds) && n >= 0)
		n = -MCS_ETRANSFER;
	mcn_up_answer_begin(r->answer, r->call->answers, 0);
	mcn_up_put_size(r->answer, n);
}

/* ---- ranges of objects ---- */

enum { BASES, KEYS, TO, FROM, SIZES };

struct ranges {
	struct mcs_get_item *item;
	struct iovec *iov;
	int64_t *result;		/* result of every fragment */
	int64_t *read;			/* result of every item */
	unsigned *item_at;		/* item of every fragment; UINT32_MAX: it has none */
	struct mcn_up_holds holds;
	unsigned items, fragments;
	uint64_t most;			/* elements of the longest list */
};

static const struct mcn_up_arg *ranges_row(const struct mcn_up_run *r, unsigned list, uint64_t i)
{
	return i < r->arg[list].rows.n ? &r->arg[list].rows.v[i] : NULL;
}

/* The numbers of fragments of key @k of buffer @i in one list; NULL: it has none. */
static const struct mcn_up_arg *ranges_list(const struct mcn_up_run *r, unsigned list, uint64_t i, uint64_t k)
{
	const struct mcn_up_arg *row = ranges_row(r, list, i);

	return row && k < row->rows.n ? &row->rows.v[k] : NULL;
}

/* As in upstream, the form of the answer is that of the list of destinations; a list that is missing there
 * counts as one element. */
static uint64_t ranges_keys(const struct mcn_up_run *r, uint64_t i)
{
	const struct mcn_up_arg *row = ranges_row(r, KEYS, i);

	return row ? row->strings.n : 1;
}

static uint64_t ranges_fragments(const struct mcn_up_run *r, uint64_t i, uint64_t k)
{
	const struct mcn_up_arg *list = ranges_list(r, TO, i, k);

	return list ? list->numbers.n : 1;
}

static bool ranges_fit(const struct mcn_up_run *r)
{
	uint64_t n = r->arg[BASES].numbers.n;

	return r->arg[KEYS].rows.n == n && r->arg[TO].rows.n == n && r->arg[FROM].rows.n == n &&
	       r->arg[SIZES].rows.n == n;
}

/* The lists of one key are equally long. */
static bool ranges_key_fits(const struct mcn_up_run *r, uint64_t i, uint64_t k)
{
	const struct mcn_up_arg *to = ranges_list(r, TO, i, k), *from = ranges_list(r, FROM, i, k);
	const struct mcn_up_arg *size = ranges_list(r, SIZES, i, k);
	uint64_t keys = ranges_keys(r, i);

	return to && from && size && to->numbers.n == from->numbers.n && to->numbers.n == size->numbers.n &&
	       ranges_row(r, TO, i)->rows.n == keys && ranges_row(r, FROM, i)->rows.n == keys &&
	       ranges_row(r, SIZES, i)->rows.n == keys;
}

static void ranges_count(const struct mcn_up_run *r, struct ranges *g)
{
	uint64_t n = r->arg[BASES].numbers.n, f;

	g->most = n;
	for (uint64_t i = 0; i < n; i++) {
		g->most = ranges_keys(r, i) > g->most ? ranges_keys(r, i) : g->most;
		for (uint64_t k = 0; k < ranges_keys(r, i); k++) {
			f = ranges_fragments(r, i, k);
			g->fragments += (unsigned)f;
			g->most = f > g->most ? f : g->most;
		}
	}
}

static int ranges_new(struct ranges *g)
{
	size_t n = (size_t)g->fragments + 1;

	g->item = calloc(n, sizeof(*g->item));
	g->iov = calloc(n, sizeof(*g->iov));
	g->result = calloc(n, sizeof(*g->result));
	g->read = calloc(n, sizeof(*g->read));
	g->item_at = calloc(n, sizeof(*g->item_at));
	g->holds.v = calloc(n, sizeof(struct mcn_up_shared *));
	g->holds.max = g->fragments;
	return g->item && g->iov && g->result && g->read && g->item_at && g->holds.v ? 0 : -ENOMEM;
}

static void ranges_done(struct ranges *g)
{
	free(g->item);
	free(g->iov);
	free(g->result);
	free(g->read);
	free(g->item_at);
	free(g->holds.v);
}

/* A fragment that is not the client's memory stays without an item. */
static void ranges_add(struct mcn_up_run *r, struct ranges *g, uint64_t i, uint64_t k, uint64_t f, unsigned at)
{
	uint64_t base = r->arg[BASES].numbers.v[i];
	uint64_t to = base + ranges_list(r, TO, i, k)->numbers.v[f];
	uint64_t len = ranges_list(r, SIZES, i, k)->numbers.v[f];
	struct iovec *iov = &g->iov[g->items];

	iov->iov_len = len;
	if (to < base || mcn_up_hold(r->dummies, r->arg[7].id, r->uid, to, len, &g->holds, &iov->iov_base) < 0)
		return;
	g->item[g->items] = (struct mcs_get_item){
		.key = ranges_row(r, KEYS, i)->strings.v[k], .offset = ranges_list(r, FROM, i, k)->numbers.v[f],
		.iov = iov, .iovcnt = 1,
	};
	g->item_at[at] = g->items++;
}

static void ranges_collect(struct mcn_up_run *r, struct ranges *g)
{
	unsigned at = 0;

	for (uint64_t i = 0; i < r->arg[BASES].numbers.n; i++)
		for (uint64_t k = 0; k < ranges_keys(r, i); k++) {
			bool fits = ranges_fit(r) && ranges_key_fits(r, i, k);

			for (uint64_t f = 0; f < ranges_fragments(r, i, k); f++, at++) {
				g->item_at[at] = UINT32_MAX;
				if (fits)
					ranges_add(r, g, i, k, f, at);
			}
		}
}

static void ranges_answer(struct mcn_up_run *r, const struct ranges *g)
{
	unsigned at = 0;

	mcn_up_answer_begin(r->answer, r->call->answers, g->most);
	mcn_up_put_count(r->answer, r->arg[BASES].numbers.n);
	for (uint64_t i = 0; i < r->arg[BASES].numbers.n; i++) {
		mcn_up_put_count(r->answer, ranges_keys(r, i));
		for (uint64_t k = 0; k < ranges_keys(r, i); k++) {
			mcn_up_put_count(r->answer, ranges_fragments(r, i, k));
			for (uint64_t f = 0; f < ranges_fragments(r, i, k); f++)
				mcn_up_put_size(r->answer, g->result[at++]);
		}
	}
}

/* addresses, keys, offsets from the addresses, offsets in the objects, sizes, cached results, device, id */
void mcn_up_run_get_ranges(struct mcn_up_run *r)
{
	struct ranges g = { 0 };

	ranges_count(r, &g);
	if (ranges_new(&g) < 0) {
		r->answer->failed = true;
		ranges_done(&g);
		return;
	}
	ranges_collect(r, &g);
	get_run(r, g.item, g.items, g.read);
	for (unsigned i = 0; i < g.items; i++)
		if (g.read[i] >= 0 && (uint64_t)g.read[i] != g.iov[i].iov_len)
			g.read[i] = -MCS_EPARAM;
	if (!mcn_up_release(r->dummies, &g.holds))
		get_fail(g.read, g.items, -MCS_ETRANSFER);
	for (unsigned i = 0; i < g.fragments; i++)
		g.result[i] = g.item_at[i] == UINT32_MAX ? -MCS_EPARAM : g.read[g.item_at[i]];
	ranges_answer(r, &g);
	ranges_done(&g);
}

/* ---- into the client's local memory ---- */

struct acquire {
	struct mcn_up_run *r;
	struct mcn_up_uuid id;
	struct mcn_up_buffer *buffer;	/* one for each value */
	struct mcn_up_holds holds;
};

/* An object that changed meanwhile is read into another buffer; the first one is released at once, because the
 * library does not use it any more. */
static void *acquire_memory(void *arg, unsigned i, uint64_t size)
{
	struct acquire *q = arg;
	struct mcn_up_run *r = q->r;
	void *p = NULL;

	if (q->buffer[i].ticket)
		mcn_up_buffer_cancel(r->dummies, &q->buffer[i]);
	q->buffer[i].ticket = 0;
	if (mcn_up_buffer_alloc(r->dummies, q->id, r->uid, size, &q->buffer[i]) < 0)
		return NULL;
	if (mcn_up_hold(r->dummies, q->id, r->uid, q->buffer[i].addr, size, &q->holds, &p) < 0)
		return NULL;
	return p;
}

/* Read @n whole objects; result[i] is a size, or negative without a buffer. */
static int acquire_run(struct acquire *q, const struct mcs_key *keys, unsigned n, int64_t *result)
{
	struct mcn_up_run *r = q->r;
	auto_free struct mcs_get_item *item = calloc((size_t)n + 1, sizeof(*item));
	bool whole;
	int err;

	q->buffer = calloc((size_t)n + 1, sizeof(*q->buffer));
	/* A value may be read again when it changes; later ones find no place here, and fail. */
	q->holds.max = 4 * n;
	q->holds.v = calloc((size_t)q->holds.max + 1, sizeof(struct mcn_up_shared *));
	if (!item || !q->buffer || !q->holds.v)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++)
		item[i] = (struct mcs_get_item){ .key = keys[i], .whole = 1 };
	err = mcn_up_client_check(r, q->id);
	if (err == 0 && n)
		err = mcs_get_batch_alloc(r->store, item, n, acquire_memory, q, mcn_up_left_ms(r));
	whole = mcn_up_release(r->dummies, &q->holds);
	for (unsigned i = 0; i < n; i++) {
		result[i] = err < 0 ? err : item[i].result == -ENOMEM ? -MCS_ENOSPACE : item[i].result;
		if (result[i] >= 0 && !whole)
			result[i] = -MCS_ETRANSFER;
		if (result[i] < 0 && q->buffer[i].ticket)
			mcn_up_buffer_cancel(r->dummies, &q->buffer[i]);
	}
	return 0;
}

static void acquire_done(struct acquire *q)
{
	free(q->buffer);
	free(q->holds.v);
}

static void acquire_answer(struct mcn_up_answer *a, int64_t result, uint64_t addr)
{
	if (result < 0) {
		mcn_up_put_error(a, (int)result);
		return;
	}
	mcn_up_put_ok(a);
	mcn_up_put64(a, addr);
	mcn_up_put64(a, (uint64_t)result);
}

void mcn_up_run_acquire(struct mcn_up_run *r)
{
	struct acquire q = { .r = r, .id = r->arg[1].id };
	int64_t result = 0;
	int err = acquire_run(&q, &r->arg[0].text, 1, &result);

	mcn_up_answer_begin(r->answer, r->call->answers, 0);
	acquire_answer(r->answer, err < 0 ? err : result, err < 0 ? 0 : q.buffer[0].addr);
	acquire_done(&q);
}

void mcn_up_run_batch_acquire(struct mcn_up_run *r)
{
	const struct mcn_up_strings *keys = &r->arg[0].strings;
	struct acquire q = { .r = r, .id = r->arg[1].id };
	auto_free int64_t *result = calloc(keys->n + 1, sizeof(*result));
	int err = result ? acquire_run(&q, keys->v, (unsigned)keys->n, result) : -ENOMEM;

	mcn_up_answer_begin(r->answer, r->call->answers, keys->n);
	mcn_up_put_count(r->answer, keys->n);
	for (uint64_t i = 0; i < keys->n; i++)
		acquire_answer(r->answer, err < 0 ? err : result[i], err < 0 ? 0 : q.buffer[i].addr);
	acquire_done(&q);
}
