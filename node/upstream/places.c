/* SPDX-License-Identifier: Apache-2.0
 * places.c - lists of addresses in a client's memory. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "common/err.h"
#include "node/upstream/calls.h"

static int places_new(struct mcn_up_places *p, uint64_t n, uint64_t pieces)
{
	p->iov = calloc(pieces + 1, sizeof(*p->iov));
	p->first = calloc(n + 1, sizeof(*p->first));
	p->holds.v = calloc(pieces + 1, sizeof(struct mcn_up_shared *));
	p->holds.max = (unsigned)pieces;
	return p->iov && p->first && p->holds.v ? 0 : -ENOMEM;
}

/* Append the pieces of value @i. */
static int places_add(struct mcn_up_run *r, struct mcn_up_places *p, uint64_t i, struct mcn_up_uuid id,
		      const uint64_t *addr, const uint64_t *size, uint64_t n)
{
	unsigned at = p->first[i];
	int err = 0;

	for (uint64_t k = 0; k < n && err == 0; k++, at++) {
		p->iov[at].iov_len = size[k];
		err = mcn_up_hold(r->dummies, id, r->uid, addr[k], size[k], &p->holds, &p->iov[at].iov_base);
	}
	p->first[i + 1] = at;
	return err;
}

static int places_unequal(void)
{
	return mc_fail(-MCS_EPARAM, "lists of different lengths");
}

int mcn_up_places_flat(struct mcn_up_run *r, uint64_t n, unsigned addrs, unsigned sizes, struct mcn_up_uuid id,
		       struct mcn_up_places *ret)
{
	const struct mcn_up_arg *a = &r->arg[addrs], *s = &r->arg[sizes];
	int err;

	if (a->numbers.n != n || s->numbers.n != n)
		return places_unequal();
	err = mcn_up_client_check(r, id);
	if (err == 0)
		err = places_new(ret, n, n);
	for (uint64_t i = 0; i < n && err == 0; i++)
		err = places_add(r, ret, i, id, &a->numbers.v[i], &s->numbers.v[i], 1);
	return err;
}

int mcn_up_places_rows(struct mcn_up_run *r, uint64_t n, unsigned addrs, unsigned sizes, struct mcn_up_uuid id,
		       struct mcn_up_places *ret)
{
	const struct mcn_up_arg *a = &r->arg[addrs], *s = &r->arg[sizes];
	uint64_t pieces = 0;
	int err;

	if (a->rows.n != n || s->rows.n != n)
		return places_unequal();
	for (uint64_t i = 0; i < n; i++) {
		if (a->rows.v[i].numbers.n != s->rows.v[i].numbers.n)
			return places_unequal();
		pieces += a->rows.v[i].numbers.n;
	}
	err = mcn_up_client_check(r, id);
	if (err == 0)
		err = places_new(ret, n, pieces);
	for (uint64_t i = 0; i < n && err == 0; i++)
		err = places_add(r, ret, i, id, a->rows.v[i].numbers.v, s->rows.v[i].numbers.v, s->rows.v[i].numbers.n);
	return err;
}

bool mcn_up_places_done(struct mcn_up_run *r, struct mcn_up_places *p)
{
	bool whole = mcn_up_release(r->dummies, &p->holds);

	free(p->iov);
	free(p->first);
	free(p->holds.v);
	return whole;
}
