/* SPDX-License-Identifier: Apache-2.0
 * tier.c - the list of tiers, and the choice of one by its name. */
#include <config.h>

#include "tiers/tier.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "common/err.h"
#include "tiers/dram/dram.h"
#include "tiers/ssd/ssd.h"

const struct mct_tier_ops *const mct_tiers[] = { &mct_dram_tier, &mct_ssd_tier, NULL };

int mct_medium_open(const char *tier, const struct mct_conf *conf, struct mct_medium **ret)
{
	for (unsigned i = 0; mct_tiers[i]; i++)
		if (!strcmp(mct_tiers[i]->name, tier))
			return mct_tiers[i]->open(conf, ret);
	return mc_fail(-EINVAL, "unknown tier '%s'", tier);
}

void mct_medium_close(struct mct_medium *m)
{
	if (m)
		m->ops->close(m);
}

/* ---- slots of a tier of memory ----------------------------------------------------------------- */

int mct_no_identity(struct mct_medium *m, uint64_t ret[MCT_IDENTITY])
{
	return -MC_ENOTSUP;
}

int mct_no_set_identity(struct mct_medium *m, const uint64_t words[MCT_IDENTITY])
{
	return -MC_ENOTSUP;
}

int mct_no_unlock(struct mct_medium *m, mct_keys_fn keys, void *arg)
{
	(void)m;
	(void)keys;
	(void)arg;
	return 0;
}

int mct_no_leave(struct mct_medium *m, bool foreign)
{
	(void)m;
	(void)foreign;
	return -MC_ENOTSUP;
}

int mct_no_hold(struct mct_medium *m)
{
	(void)m;
	return 0;
}

void mct_no_read_start(struct mct_medium *m, struct mct_read *r)
{
	r->status = -MC_ENOTSUP;
	r->done(r);
}

void mct_no_read_end(struct mct_medium *m, struct mct_read *r)
{
}

int mct_no_buffer_get(struct mct_medium *m, uint64_t deadline, void **ret)
{
	return -MC_ENOTSUP;
}

void mct_no_buffer_put(struct mct_medium *m, void *buf)
{
}

void mct_no_write_start(struct mct_medium *m, struct mct_write *w)
{
	w->status = -MC_ENOTSUP;
	w->done(w);
}

uint64_t mct_no_data_next(const struct mct_medium *m, uint64_t off, uint64_t *ret_end)
{
	(void)m;
	*ret_end = off;
	return off;
}

int mct_no_note(struct mct_medium *m, unsigned nth, void *buf, bool write)
{
	(void)m;
	(void)nth;
	(void)buf;
	(void)write;
	return mc_fail(-MC_ENOTSUP, "this tier keeps no notes");
}

int mct_no_sweep(struct mct_medium *m, const uint64_t *off, size_t n, mct_used_fn used, void *arg)
{
	(void)m;
	(void)off;
	(void)n;
	(void)used;
	(void)arg;
	return mc_fail(-MC_ENOTSUP, "this tier keeps no names");
}

void mct_no_sweep_stop(struct mct_medium *m)
{
	(void)m;
}
