/* SPDX-License-Identifier: Apache-2.0
 * disks.h - the segments on disks that this process owns: opened, registered with the engine for reading, offered to
 * the master.  Only this process writes to them (offloader.c).
 *
 * A disk keeps id, epoch and pool of its segment itself, so that any process that opens it continues with its
 * objects.  In another pool it gets another epoch (owner.h).  If that pool's master has the same cluster_id, it lost
 * its journal, and the disk's objects are offered to it (disk_offer.h); else they are lost.  The same holds if a master
 * that restored a snapshot asks for them.  While the master knows the segment, it alone decides which objects the disk
 * has.
 *
 * Any thread, unless a function says otherwise.  A NULL mcs_disks is an empty set. */
#ifndef MCS_DISKS_H
#define MCS_DISKS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/session/session.h"
#include "engine/mce.h"
#include "tiers/tier.h"

struct mcs_disks;

struct mcs_disks_conf {
	struct mce_engine *engine;
	struct mcp_id client;
	const char *paths;		/* directories and block devices, separated by ':' */
	uint64_t size;			/* bytes of each, 0: the tier's default */
	uint64_t buffers;		/* the same, of buffers */
	bool threads;			/* not io_uring */
	bool format;			/* blank devices may be initialised */
	unsigned high, low;		/* percent at which eviction begins and ends, 0: the master's */
	const char *policy;		/* "lru", "fifo", NULL: the master's */
};

/* -ENOENT, -ENOSPC, ..., with a detail. */
int mcs_disks_open(const struct mcs_disks_conf *conf, struct mcs_disks **ret);
void mcs_disks_close(struct mcs_disks *d);

/* Offer all to the master, over @c, or (NULL) the session; as mcs_owner_mount(). */
int mcs_disks_mount(struct mcs_disks *d, struct mcp_client *c, struct mcs_session *s, struct mcp_id pool,
		    const struct mcs_terms *terms, uint64_t deadline);
/* The process ends; a later one may continue. */
void mcs_disks_leave(struct mcs_disks *d, struct mcs_session *s, uint64_t deadline);
/* Remove all from the pool, with their objects, and offer none any more; returns the first error. */
int mcs_disks_unmount(struct mcs_disks *d, struct mcs_session *s, uint64_t deadline);

/* Does the master wish to have the objects of a disk compared (confirm.h)? */
bool mcs_disks_confirm(struct mcs_disks *d);
/* False: there is no @i-th disk.  Take the wish for it: *ret is its segment, zero: there was none; or renew it. */
bool mcs_disks_confirm_take(struct mcs_disks *d, unsigned i, struct mcp_id *ret);
void mcs_disks_confirm_again(struct mcs_disks *d, unsigned i);

/* The medium of a segment, if it has [@offset, @offset + @len); NULL. */
struct mct_medium *mcs_disks_at(const struct mcs_disks *d, struct mcp_id segment, uint64_t offset, uint64_t len);

/* Write the record of an object to the end of @block, for a range of that segment, which is one of these disks. */
struct mct_record;
void mcs_disks_seal(struct mcs_disks *d, struct mcp_id segment, void *block, const struct mct_record *r);

/* Note that records are void: elements of struct mcp_gone.  Blocks while a block is written to each disk. */
void mcs_disks_gone(struct mcs_disks *d, const struct mcp_seq *gone);

/* A disk whose objects are to be offered to the master. */
struct mcs_disk_offered {
	struct mct_medium *medium;
	uint64_t size;
	struct mcp_id segment;
	uint64_t epoch;
	uint64_t secret[2];	/* of its records */
};
/* False: there is none. */
bool mcs_disks_offer_next(struct mcs_disks *d, struct mcs_disk_offered *ret);
/* The master knows all of them. */
void mcs_disks_offer_done(struct mcs_disks *d, const struct mcs_disk_offered *o);

/* Around writes into ranges that were granted with a fence number, by thread @writer.  False: the number was fenced. */
#define MCS_DISK_WRITERS 2u
bool mcs_disks_write_begin(struct mcs_disks *d, unsigned writer, uint64_t fence);
void mcs_disks_write_end(struct mcs_disks *d, unsigned writer);
/* No write with a number up to @upto is carried out after return: true.  False: one is running, ask again. */
bool mcs_disks_fence(struct mcs_disks *d, uint64_t upto);

#endif
