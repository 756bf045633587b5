/* SPDX-License-Identifier: Apache-2.0
 * tcp_memory.c - the bytes of a region of host memory: peers' bytes move between the socket and the region itself.
 *
 * The kernel reports memory that the program has protected, unmapped or truncated, but a copy by this process would
 * raise a signal.  So payload that came together with a header is copied only to plain memory:
 *
 *	kind	replaced by	event
 *	memory	plain, frail	the first such payload: the mappings are examined (user_mem.c)
 *	any	holes		some of the region could not be read
 *
 * and goes through the kernel to frail memory and to memory with holes.  Memory with holes is checked before an answer
 * from it is queued.  The file has the kind "none" as well: payload without a region is discarded. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "engine/tcp/tcp_server.h"

static const struct mce_bytes_ops bytes_plain, bytes_frail, bytes_holes;

bool mce_bytes_not_lost(struct mce_serve_conn *c, struct mce_mr *mr, const void *at, uint64_t len)
{
	return false;
}

void mce_bytes_no_flush(struct mce_serve_conn *c)
{
}

/* ---- reads ------------------------------------------------------------------------------------- */

static int memory_read_start(struct mce_serve_conn *c, struct mce_mr *mr, uint64_t id, uint64_t addr, uint64_t len)
{
	return MCE_BYTES_HERE;
}

/* An in-order protocol cannot report the error: the client learns it when the bytes cannot be sent. */
static int holes_read_start(struct mce_serve_conn *c, struct mce_mr *mr, uint64_t id, uint64_t addr, uint64_t len)
{
	if (c->proto->in_order || mce_user_readable(c->io, (const void *)(uintptr_t)addr, len))
		return MCE_BYTES_HERE;
	return -MC_ETRANSFER;
}

static bool memory_read_lost(struct mce_serve_conn *c, struct mce_mr *mr, const void *at, uint64_t len)
{
	if (mce_user_readable(c->io, at, len))
		return false;
	mce_bytes_set(mr, &bytes_holes);
	return true;
}

/* ---- writes ------------------------------------------------------------------------------------ */

static int memory_write_begin(struct mce_serve_conn *c)
{
	c->holds->flush(c);
	return 0;
}

/* Receive straight into the region. */
static ssize_t memory_receive(struct mce_serve_conn *c)
{
	struct iovec iov = { .iov_base = c->dst, .iov_len = c->left };
	ssize_t n = mce_rx_payload(&c->rx, &iov, 1, c->left);

	if (n > 0)
		c->dst += n;
	return n;
}

static ssize_t plain_write_take(struct mce_serve_conn *c)
{
	size_t n;

	if (mce_rx_have(&c->rx) == 0)
		return memory_receive(c);
	n = mce_rx_copy(&c->rx, c->dst, c->left);
	c->dst += n;
	return (ssize_t)n;
}

static ssize_t frail_write_take(struct mce_serve_conn *c)
{
	size_t have = mce_rx_have(&c->rx);
	ssize_t n;

	if (have == 0)
		return memory_receive(c);
	n = mce_user_write(c->io, c->dst, mce_rx_peek(&c->rx), have < c->left ? have : c->left);
	if (n > 0) {
		mce_rx_use(&c->rx, (size_t)n);
		c->dst += n;
	}
	return n;
}

/* Another thread may have found holes meanwhile. */
static void memory_settle(struct mce_mr *mr)
{
	void *from = (void *)(uintptr_t)&mce_bytes_memory;
	const struct mce_bytes_ops *to = mce_mr_check_plain(mr) ? &bytes_plain : &bytes_frail;

	__atomic_compare_exchange_n(&mr->service[MCE_PATH_TCP], &from, (void *)(uintptr_t)to, false, __ATOMIC_RELAXED,
				    __ATOMIC_RELAXED);
}

static ssize_t memory_write_take(struct mce_serve_conn *c)
{
	if (mce_rx_have(&c->rx) == 0)
		return memory_receive(c);
	memory_settle(c->mr);
	c->to = mce_bytes_of(c->mr);
	return c->to->write_take(c);
}

/* The bytes are stored before the answer is sent, so the region may be released now. */
static int memory_write_end(struct mce_serve_conn *c)
{
	mce_mr_unref(c->mr);
	c->mr = NULL;
	return 0;
}

#define MEMORY(read, take) {				\
	.piece = UINT64_MAX,				\
	.read_start = read,				\
	.read_lost = memory_read_lost,			\
	.write_begin = memory_write_begin,		\
	.write_take = take,				\
	.write_end = memory_write_end,			\
	.flush = mce_bytes_no_flush,			\
	.drop = mce_bytes_no_flush,			\
}

const struct mce_bytes_ops mce_bytes_memory = MEMORY(memory_read_start, memory_write_take);
static const struct mce_bytes_ops bytes_plain = MEMORY(memory_read_start, plain_write_take);
static const struct mce_bytes_ops bytes_frail = MEMORY(memory_read_start, frail_write_take);
static const struct mce_bytes_ops bytes_holes = MEMORY(holes_read_start, frail_write_take);

/* ---- no region --------------------------------------------------------------------------------- */

static int none_read_start(struct mce_serve_conn *c, struct mce_mr *mr, uint64_t id, uint64_t addr, uint64_t len)
{
	return -MC_EINTERNAL;
}

static ssize_t none_write_take(struct mce_serve_conn *c)
{
	return mce_rx_drain(&c->rx, c->left);
}

static int none_write_end(struct mce_serve_conn *c)
{
	return c->status;
}

const struct mce_bytes_ops mce_bytes_none = {
	.piece = UINT64_MAX,
	.read_start = none_read_start,
	.read_lost = mce_bytes_not_lost,
	.write_begin = memory_write_begin,
	.write_take = none_write_take,
	.write_end = none_write_end,
	.flush = mce_bytes_no_flush,
	.drop = mce_bytes_no_flush,
};
