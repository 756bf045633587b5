/* SPDX-License-Identifier: Apache-2.0
 * async.h - reads of open objects without a waiting thread: mcs_object_read_start().
 *
 * The engine's thread that completes the transfer only queues it.  A few threads, started when
 * there is work, check the bytes and call back.  They repeat a failed read, replica after
 * replica as mcs_object_read() does, within the deadline. */
#ifndef MCS_ASYNC_H
#define MCS_ASYNC_H

#include "client/direct/direct.h"

struct mcs_async;

int mcs_async_open(struct mcs_direct *s, struct mcs_async **ret);
/* Waits for the reads that run; their deadlines end them.  NULL is fine. */
void mcs_async_close(struct mcs_async *a);

/* A slot of the table (client/backend.h). */
int mcs_direct_object_read_start(struct mcs_object *o, uint64_t offset, void *buf, size_t len, uint64_t deadline,
				 mcs_read_done_fn done, void *arg);

#endif
