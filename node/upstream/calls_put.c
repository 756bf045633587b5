/* SPDX-License-Identifier: Apache-2.0
 * calls_put.c - puts and upserts: of bytes in the request, and of memory that a client shares. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "node/upstream/calls.h"

/* Several values; memory of one allocation each. */
struct puts {
	struct mcs_put_item *item;
	int *result;
	unsigned n;
};

static int puts_new(uint64_t n, struct puts *ret)
{
	/* The number of elements of a request has a limit. */
	ret->n = (unsigned)n;
	ret->item = calloc(n + 1, sizeof(*ret->item));
	ret->result = calloc(n + 1, sizeof(*ret->result));
	return ret->item && ret->result ? 0 : -ENOMEM;
}

static void puts_done(struct puts *p)
{
	free(p->item);
	free(p->result);
}

static void puts_fail(struct puts *p, int r)
{
	for (unsigned i = 0; i < p->n && p->result; i++)
		p->result[i] = r;
}

/* Store the values; their results. */
static void puts_run(struct mcn_up_run *r, struct puts *p, const struct mcn_up_config *c, bool same_node, bool upsert)
{
	int64_t ms = mcn_up_left_ms(r);
	auto_free const char **lists = NULL;
	struct mcs_put_opts opts;
	int err;

	err = mcn_up_opts(c, p->n, same_node, &opts, &lists);
	for (unsigned i = 0; i < p->n && c->has_groups && err == 0; i++)
		p->item[i].group = c->groups.v[i];
	if (err == 0)
		err = upsert ? mcs_upsert_batch(r->store, p->item, p->n, &opts, ms) :
			mcs_put_batch(r->store, p->item, p->n, &opts, ms);
	if (err < 0)
		puts_fail(p, err);
	for (unsigned i = 0; i < p->n && err >= 0; i++)
		p->result[i] = p->item[i].result;
}

/* Zeros may have been stored for pages that the client removed during the puts, so no value stays.  Another client may
 * have read one before. */
static void puts_undo(struct mcn_up_run *r, struct puts *p)
{
	for (unsigned i = 0; i < p->n && p->result; i++) {
		if (p->result[i] == 0)
			(void)mcs_remove(r->store, p->item[i].key, MCS_REMOVE_FORCE, mcn_up_left_ms(r));
		p->result[i] = -MCS_ETRANSFER;
	}
}

/* The first failure of all, as upstream answers for several values with one result. */
static int puts_first(const struct puts *p)
{
	for (unsigned i = 0; i < p->n; i++)
		if (p->result[i] < 0)
			return p->result[i];
	return 0;
}

/* ---- bytes in the request ---- */

/* One value of @n pieces. */
static void put_pieces(struct mcn_up_run *r, const struct mcs_key *piece, uint64_t n, struct mcn_up_uuid id,
		       const struct mcn_up_config *config, bool upsert)
{
	auto_free struct iovec *iov = calloc(n + 1, sizeof(*iov));
	struct puts p = { 0 };
	int err = puts_new(1, &p);

	if (err == 0)
		err = iov ? mcn_up_client_check(r, id) : -ENOMEM;
	for (uint64_t i = 0; i < n && iov; i++)
		iov[i] = (struct iovec){ (void *)(uintptr_t)piece[i].data, piece[i].len };
	if (err == 0) {
		p.item[0] = (struct mcs_put_item){ .key = r->arg[0].text, .iov = iov, .iovcnt = (int)n };
		puts_run(r, &p, config, false, upsert);
		err = puts_first(&p);
	}
	mcn_up_answer_begin(r->answer, r->call->answers, 0);
	mcn_up_put_result(r->answer, err);
	puts_done(&p);
}

void mcn_up_run_put(struct mcn_up_run *r)
{
	put_pieces(r, &r->arg[1].text, 1, r->arg[3].id, r->arg[2].config, false);
}

void mcn_up_run_upsert(struct mcn_up_run *r)
{
	put_pieces(r, &r->arg[1].text, 1, r->arg[3].id, r->arg[2].config, true);
}

void mcn_up_run_put_parts(struct mcn_up_run *r)
{
	put_pieces(r, r->arg[1].strings.v, r->arg[1].strings.n, r->arg[3].id, r->arg[2].config, false);
}

void mcn_up_run_upsert_parts(struct mcn_up_run *r)
{
	put_pieces(r, r->arg[1].strings.v, r->arg[1].strings.n, r->arg[3].id, r->arg[2].config, true);
}

static void put_batch(struct mcn_up_run *r, bool upsert)
{
	const struct mcn_up_strings *keys = &r->arg[0].strings, *values = &r->arg[1].strings;
	auto_free struct iovec *iov = calloc(keys->n + 1, sizeof(*iov));
	struct puts p = { 0 };
	int err = puts_new(keys->n, &p);

	if (err == 0)
		err = iov ? mcn_up_client_check(r, r->arg[3].id) : -ENOMEM;
	if (err == 0 && keys->n != values->n)
		err = mc_fail(-MCS_EPARAM, "%llu values for %llu keys", (unsigned long long)values->n,
			      (unsigned long long)keys->n);
	if (err == 0) {
		for (uint64_t i = 0; i < keys->n; i++) {
			iov[i] = (struct iovec){ (void *)(uintptr_t)values->v[i].data, values->v[i].len };
			p.item[i] = (struct mcs_put_item){ .key = keys->v[i], .iov = &iov[i], .iovcnt = 1 };
		}
		puts_run(r, &p, r->arg[2].config, true, upsert);
		err = puts_first(&p);
	}
	mcn_up_answer_begin(r->answer, r->call->answers, 0);
	mcn_up_put_result(r->answer, err);
	puts_done(&p);
}

void mcn_up_run_put_batch(struct mcn_up_run *r)
{
	put_batch(r, false);
}

void mcn_up_run_upsert_batch(struct mcn_up_run *r)
{
	put_batch(r, true);
}

/* ---- memory of the client ---- */

void mcn_up_run_upsert_from(struct mcn_up_run *r)
{
	struct mcn_up_shared *held;
	struct mcn_up_holds holds = { .v = &held, .max = 1 };
	struct iovec iov = { .iov_len = r->arg[2].number };
	struct puts p = { 0 };
	int err = puts_new(1, &p);

	if (err == 0)
		err = mcn_up_hold(r->dummies, r->arg[4].id, r->uid, r->arg[1].number, iov.iov_len, &holds,
				  &iov.iov_base);
	if (err == 0) {
		p.item[0] = (struct mcs_put_item){ .key = r->arg[0].text, .iov = &iov, .iovcnt = 1 };
		puts_run(r, &p, r->arg[3].config, false, true);
		err = puts_first(&p);
	}
	if (!mcn_up_release(r->dummies, &holds) && err == 0) {
		puts_undo(r, &p);
		err = puts_first(&p);
	}
	mcn_up_answer_begin(r->answer, r->call->answers, 0);
	mcn_up_put_result(r->answer, err);
	puts_done(&p);
}

/* The arguments: keys, addresses, sizes, options, and the client's id at @id. */
static void put_places(struct mcn_up_run *r, bool rows, unsigned id, bool upsert)
{
	const struct mcn_up_strings *keys = &r->arg[0].strings;
	struct mcn_up_places at = { 0 };
	struct puts p = { 0 };
	int err = puts_new(keys->n, &p);

	if (err == 0)
		err = (rows ? mcn_up_places_rows : mcn_up_places_flat)(r, keys->n, 1, 2, r->arg[id].id, &at);
	if (err < 0) {
		puts_fail(&p, err);
	} else {
		for (unsigned i = 0; i < p.n; i++)
			p.item[i] = (struct mcs_put_item){
				.key = keys->v[i], .iov = at.iov + at.first[i],
				.iovcnt = (int)(at.first[i + 1] - at.first[i]),
			};
		puts_run(r, &p, r->arg[3].config, true, upsert);
	}
	if (!mcn_up_places_done(r, &at))
		puts_undo(r, &p);
	mcn_up_answer_results(r, p.result, keys->n);
	puts_done(&p);
}

void mcn_up_run_batch_put_from(struct mcn_up_run *r)
{
	put_places(r, false, 5, false);
}

void mcn_up_run_batch_upsert_from(struct mcn_up_run *r)
{
	put_places(r, false, 4, true);
}

void mcn_up_run_batch_put_multi(struct mcn_up_run *r)
{
	put_places(r, true, 5, false);
}

void mcn_up_run_batch_upsert_multi(struct mcn_up_run *r)
{
	put_places(r, true, 5, true);
}
