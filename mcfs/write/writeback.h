/* SPDX-License-Identifier: Apache-2.0
 * writeback.h - a large file's bytes go to the pool while it is being written, so that its close has little
 * left to do.
 *
 * What is staged stays staged until the close, and is what counts: a slot whose bytes change after it was
 * carried goes once more with the commit.  Whatever fails here - no room, a lost connection - only means that
 * the commit stores everything itself.  Nobody sees anything of it before the commit.
 *
 * A writer's part is guarded by the writer's lock; the room that all hold together is limited, and given up
 * when another put finds none. */
#ifndef MCFS_WRITEBACK_H
#define MCFS_WRITEBACK_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/list.h"
#include <mooncake/mcs.h>

struct mcfs_version_env;
struct mcfs_writer;
struct mcfs_writeback_pool;

struct mcfs_writeback {
	mcs_stream_t *stream;		/* NULL: none */
	uint64_t room;			/* of the stream */
	char *key;			/* what it was begun with */
	size_t key_len;
	unsigned flags, replicas;
	bool *sent;			/* per slot: carried as it is */
	size_t nsent;
	size_t next;			/* slots in front of this one are not looked at any more */
	uint64_t seq;			/* bytes written from the beginning on, one after another */
	uint64_t hint;			/* how large somebody said it will be; 0: nobody did */
	uint64_t last_ns;		/* when something was carried */
	bool busy;			/* a thread of the carrier is at it, without the lock */
	size_t busy_slot;		/* which one it reads; SIZE_MAX: none */
	bool off;			/* no more */
	bool queued;
	pthread_cond_t idle;		/* it is not busy any more */
	struct mc_list link;		/* guarded by the carrier's lock */
};

/* NULL without memory: nothing is carried then.  Its threads begin with the first file. */
struct mcfs_writeback_pool *mcfs_writeback_pool_new(struct mcfs_version_env *env);
/* After all writers have come to their end. */
void mcfs_writeback_pool_free(struct mcfs_writeback_pool *pool);		/* NULL is fine */
/* What the pool has; 0: nothing is carried. */
void mcfs_writeback_pool_set_capacity(struct mcfs_writeback_pool *pool, uint64_t bytes);
/* A put found no room: give up what others hold ahead of their commits.  True: there was something. */
bool mcfs_writeback_pool_yield(struct mcfs_writeback_pool *pool, const struct mcfs_writer *but);

/* ---- with the writer's lock held ---- */

void mcfs_writeback_init(struct mcfs_writer *w);
void mcfs_writeback_done(struct mcfs_writer *w);	/* without the lock: nobody else has it any more */
/* Bytes [@from, @to) are about to change; waits while they are read. */
void mcfs_writeback_touch(struct mcfs_writer *w, uint64_t from, uint64_t to);
/* The size is about to be set. */
void mcfs_writeback_cut(struct mcfs_writer *w, uint64_t size);
/* @len bytes were written at @offset. */
void mcfs_writeback_wrote(struct mcfs_writer *w, uint64_t offset, size_t len);
/* Nothing is carried any more, and what was is forgotten. */
void mcfs_writeback_stop(struct mcfs_writer *w);
/* Publish what is staged under @key.  1: done; 0: it must be put; negative: as of mcs_put(), for good. */
int mcfs_writeback_commit(struct mcfs_writer *w, const void *key, size_t len, unsigned put_flags,
		      uint64_t deadline);

#endif
