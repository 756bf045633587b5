/* SPDX-License-Identifier: Apache-2.0
 * writeback.h - a large file's bytes are copied to the pool while it is being written, so that the
 * close has little left to do.
 *
 * Staged bytes stay staged until the close and are authoritative: the commit sends a slot again if
 * its bytes changed after the copy. If a copy fails - no space, a lost connection - the commit
 * stores all bytes itself. No reader sees the copied bytes before the commit.
 *
 * A writer's writeback is guarded by the writer's lock. The space that all writers reserve is
 * limited, and released when another put finds none. */
#ifndef MCFS_WRITEBACK_H
#define MCFS_WRITEBACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/list.h"
#include "common/sys/lock.h"
#include <mooncake/mcs.h>

struct mcfs_version_env;
struct mcfs_writer;
struct mcfs_writeback_pool;

struct mcfs_writeback {
	mcs_stream_t *stream;		/* NULL: none */
	uint64_t room;			/* bytes allocated for the stream */
	char *key;			/* key and options that the stream was opened with */
	size_t key_len;
	unsigned flags, replicas;
	bool *sent;			/* per slot: the copy is up to date */
	size_t nsent;
	size_t next;			/* threads have processed the slots before this one */
	uint64_t seq;			/* number of bytes written sequentially from the start */
	uint64_t hint;			/* size that the program announced, by fallocate(2) or ftruncate(2); 0: none */
	uint64_t last_ns;		/* time of the last copy */
	bool busy;			/* a thread is executing a step, without the lock */
	size_t busy_slot;		/* slot that the thread reads; SIZE_MAX: none */
	bool off;			/* no more steps */
	bool queued;
	struct mc_cond idle;		/* busy has become false */
	struct mc_list link;		/* guarded by the pool's lock */
};

/* NULL: no memory; then files are stored by their commits. The threads start with the first large file. */
struct mcfs_writeback_pool *mcfs_writeback_pool_new(struct mcfs_version_env *env);
/* All writers have ended. */
void mcfs_writeback_pool_free(struct mcfs_writeback_pool *pool);		/* NULL is fine */
/* Capacity of the object pool; 0: no writeback. */
void mcfs_writeback_pool_set_capacity(struct mcfs_writeback_pool *pool, uint64_t bytes);
/* A put found no space: release the space reserved by other writers. True: some was released. */
bool mcfs_writeback_pool_yield(struct mcfs_writeback_pool *pool, const struct mcfs_writer *but);

/* ---- with the writer's lock held ---- */

void mcfs_writeback_init(struct mcfs_writer *w);
/* called without the lock, when no other thread uses the writer */
void mcfs_writeback_done(struct mcfs_writer *w);
/* Bytes [@from, @to) are about to change: wait while a thread reads them. */
void mcfs_writeback_touch(struct mcfs_writer *w, uint64_t from, uint64_t to);
/* The size is about to change. */
void mcfs_writeback_cut(struct mcfs_writer *w, uint64_t size);
/* @len bytes were written at @offset. */
void mcfs_writeback_wrote(struct mcfs_writer *w, uint64_t offset, size_t len);
/* Stop writeback and drop the stream. */
void mcfs_writeback_stop(struct mcfs_writer *w);
/* Publish the staged bytes under @key. 1: done; 0: the caller must put them; negative: an error of
 * mcs_put() that the caller reports. */
int mcfs_writeback_commit(struct mcfs_writer *w, const void *key, size_t len, unsigned put_flags,
		      uint64_t deadline);

#endif
