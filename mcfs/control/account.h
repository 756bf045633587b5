/* SPDX-License-Identifier: Apache-2.0
 * account.h - account of the callers' operations: a line for .mcfs/trace, and the table of .mcfs/top. */
#ifndef MCFS_ACCOUNT_H
#define MCFS_ACCOUNT_H

#include <stdio.h>

#include "mcfs/reply.h"

/* @op was answered with errno @err. Any thread. */
void mcfs_account(const struct mcfs_op *op, const char *name, int err);
/* The processes that use the mount, busiest first. */
void mcfs_account_print(FILE *to);

#endif
