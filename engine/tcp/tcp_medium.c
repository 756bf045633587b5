/* SPDX-License-Identifier: Apache-2.0
 * tcp_medium.c - the bytes of a region on a medium that is not addressable.  Peers only read it. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "engine/tcp/tcp_server.h"
#include "tiers/tier.h"

struct medium_read {
	struct mce_late_read late;
	struct mct_read read;
};

/* The bytes are in a buffer of the medium, which belongs to the region: late.mr is referenced until now. */
static void medium_end(struct mce_late_read *late)
{
	struct medium_read *r = mc_container_of(late, struct medium_read, late);
	struct mct_medium *m = late->mr->medium;

	if (late->status == 0)
		m->ops->read_end(m, &r->read);
	free(r);
}

static void medium_done(struct mct_read *read)
{
	struct medium_read *r = mc_container_of(read, struct medium_read, read);

	mce_late_arrived(&r->late, read->status, read->at);
}

static int medium_read_start(struct mce_serve_conn *c, struct mce_mr *mr, uint64_t id, uint64_t addr, uint64_t len)
{
	struct medium_read *r;

	if (len == 0 || len > MCT_PIECE_MAX)
		return -ERANGE;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->late.end = medium_end;
	mce_late_begin(&r->late, c, mr, id, (uint32_t)len);
	r->read = (struct mct_read){ .off = addr - mr->base, .len = (uint32_t)len, .done = medium_done };
	mr->medium->ops->read_start(mr->medium, &r->read);
	return 0;
}

/* The region's access permits no WRITE, so no WRITE gets to these slots. */
static int medium_no_write(struct mce_serve_conn *c)
{
	return -EACCES;
}

static ssize_t medium_no_take(struct mce_serve_conn *c)
{
	return -EFAULT;
}

const struct mce_bytes_ops mce_bytes_medium = {
	.piece = MCT_PIECE_MAX,
	.read_start = medium_read_start,
	.read_lost = mce_bytes_not_lost,
	.write_begin = medium_no_write,
	.write_take = medium_no_take,
	.write_end = medium_no_write,
	.flush = mce_bytes_no_flush,
	.drop = mce_bytes_no_flush,
};
