/* SPDX-License-Identifier: Apache-2.0
 * ioctl.c - no command is known.  Terminals' commands arrive here all day: every open() of Python asks
 * TCGETS, and ENOTTY is the only answer that says "this is a file". */
#include <config.h>

#include <errno.h>

#include "mcfs/ops/ops.h"

void mcfs_do_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg,
		   struct fuse_file_info *fi, unsigned flags, const void *in_buf, size_t in_size,
		   size_t out_size)
{
	struct mcfs_op op;

	if (mcfs_op_begin(&op, req, MCFS_OP_ioctl, 0, NULL))
		(void)mcfs_reply_err(&op, -ENOTTY);
}
