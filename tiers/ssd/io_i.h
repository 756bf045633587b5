/* SPDX-License-Identifier: Apache-2.0
 * io_i.h - the part of struct mct_io that its ways share. */
#ifndef MCT_IO_I_H
#define MCT_IO_I_H

#include "common/sys/lock.h"
#include "tiers/ssd/io.h"

struct mct_io {
	/* constant after start */
	const struct mct_io_ops *ops;
	unsigned depth;
	void *part;		/* state of the way: its ring or its threads */
	char *pool;
	size_t pool_len;
	/* guarded by lock */
	struct mc_mutex lock;
	struct mc_list queue;	/* ops that are not begun */
	bool stopping;
};

/* Ordinary memory as io->pool; -ENOMEM. */
int mct_io_pool_new(struct mct_io *io, const struct mct_io_conf *conf);
void mct_io_pool_free(struct mct_io *io);
/* The next op that is not begun, NULL. */
struct mct_io_op *mct_io_next(struct mct_io *io);
/* The kernel has moved @n bytes (negative: an error).  True: the rest has to be submitted again; else done has run. */
bool mct_io_moved(struct mct_io_op *op, int n);

#endif
