/* SPDX-License-Identifier: Apache-2.0
 * async.h - reads that nobody waits for: mcs_object_read_start().
 *
 * The engine's thread that ends the transfer only queues it; a few threads, which are started when there
 * is something to do, check the bytes and call back.  What failed is read again by them, replica after
 * replica as mcs_object_read() does it, within the deadline. */
#ifndef MCS_ASYNC_H
#define MCS_ASYNC_H

#include "client/direct/read.h"

struct mcs_async;
struct mcs_object;

int mcs_async_open(struct mcs *s, struct mcs_async **ret);
/* Waits for what is under way, whose deadlines end it.  NULL is fine. */
void mcs_async_close(struct mcs_async *a);

/* ---- what object.c does for it ---- */

struct mcs *mcs_object_store(struct mcs_object *o);
/* The version, and the CRCs of its chunks when they are known. */
const struct mcs_version *mcs_object_version(struct mcs_object *o, const uint32_t **ret_trailer);
/* A trailer that was fetched and checked, in memory that goes away. */
void mcs_object_keep_trailer(struct mcs_object *o, const uint32_t *trailer);
void mcs_object_hold(struct mcs_object *o);
void mcs_object_let_go(struct mcs_object *o);
/* Count bytes that were read. */
void mcs_object_count(uint64_t n);

#endif
