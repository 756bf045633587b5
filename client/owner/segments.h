/* SPDX-License-Identifier: Apache-2.0
 * segments.h - the segments that this process contributes, on media of any tiers, offered to the master together.
 *
 * Any thread, unless a function says otherwise.  A NULL mcs_segments is an empty set. */
#ifndef MCS_SEGMENTS_H
#define MCS_SEGMENTS_H

#include "client/owner/segment.h"

struct mcs_segments;

/* -ENOMEM. */
int mcs_segments_new(struct mce_engine *engine, struct mcp_id client, struct mcs_segments **ret);
/* Open one more, on @medium if it is not NULL, which then belongs to the set, also after an error.  Any thread;
 * addressable ones first, before the set is offered, by one thread.  The next mcs_segments_mount() offers it.
 * -ENOENT, -ENOSPC, -ENOMEM ..., with a detail; the set is unchanged. */
int mcs_segments_add(struct mcs_segments *s, const struct mcs_own_segment_conf *conf, struct mct_medium *medium);
void mcs_segments_close(struct mcs_segments *s);
/* Does any of them get its bytes from copies that this process writes (offloader.h)? */
bool mcs_segments_offload(const struct mcs_segments *s);

/* How many of them have the trait (proto/medium.h); is this segment one of them?  Not those that another process has
 * taken over. */
unsigned mcs_segments_with(const struct mcs_segments *s, unsigned trait);
bool mcs_segments_has(const struct mcs_segments *s, struct mcp_id id);

/* Fence writers of masters before @terms.earlier, and offer segments to the master of @pool (zero: not known), over
 * @c, or (NULL) the session; repeated offers are harmless.  The first error; -MC_EUNAVAILABLE: such a writer has not
 * ended, and the master does not know the segment; try again later.  Over @c, which all calls wait for, segments of
 * named media and in shared directories are only mounted if their media need not be written to; else, and after an
 * error of theirs, they are due (named_due, shared_due). */
enum mcs_segments_which { MCS_SEGMENTS_ALL, MCS_SEGMENTS_PLAIN, MCS_SEGMENTS_NAMED, MCS_SEGMENTS_SHARED };
int mcs_segments_mount(struct mcs_segments *s, struct mcp_client *c, struct mcs_session *session, struct mcp_id pool,
		       const struct mcs_terms *terms, uint64_t deadline, enum mcs_segments_which which);
/* Is a segment of a named medium to be mounted?  Takes the wish; later: renews it. */
bool mcs_segments_named_due(struct mcs_segments *s);
void mcs_segments_named_later(struct mcs_segments *s);
/* The same for files in a shared directory.  One is also due if the master refuses it with -MC_EOWNER, because its
 * earlier owner still serves it: that owner looks every few seconds whether it has the file. */
bool mcs_segments_shared_due(struct mcs_segments *s);
void mcs_segments_shared_later(struct mcs_segments *s);
/* The process ends: drop the objects of those that end with it; a later process may continue with the durable ones. */
void mcs_segments_leave(struct mcs_segments *s, struct mcs_session *session, uint64_t deadline);
/* Before copies are written to a segment: is this process still the only writer of its medium?  -ESTALE: it is not, and
 * the segment is offered no more; the other process may mount it.  -ECANCELED: the answer to a MOUNT may replace
 * the key of an encrypted medium; try again later.  -EIO, ... */
int mcs_segments_hold(struct mcs_segments *s, struct mcs_session *session, struct mcp_id segment, uint64_t deadline);
/* The same for all files in a shared directory. */
void mcs_segments_hold_shared(struct mcs_segments *s, struct mcs_session *session, uint64_t deadline);
/* Wrap the keys of encrypted media with the newest secret of the pool, if there is a newer one: a process that goes on
 * running during several rotations keeps its bytes.  Blocks for calls of the master and writes of headers. */
void mcs_segments_renew(struct mcs_segments *s, struct mcs_session *session, uint64_t deadline);
/* Remove the durable ones from the pool, with their objects, and offer them no more; returns the first error. */
int mcs_segments_remove_durable(struct mcs_segments *s, struct mcs_session *session, uint64_t deadline);

/* The segment of near memory, of which a process has one at most; -EINVAL: there is none.
 * keep_at: keep the identity words there from now on.
 * fd: its file, and how many of its bytes may be mapped.
 * in_fd: is it @segment, and has it the @len bytes at @offset?
 * grow: enlarge it to @size bytes and offer all of it.  -EINVAL, -ENOMEM, or the error of the master.  One thread at a
 * time. */
int mcs_segments_keep_at(struct mcs_segments *s, uint64_t *identity);
int mcs_segments_fd(const struct mcs_segments *s, uint64_t *ret_size);
bool mcs_segments_in_fd(const struct mcs_segments *s, struct mcp_id segment, uint64_t offset, uint64_t len);
int mcs_segments_grow(struct mcs_segments *s, struct mcs_session *session, uint64_t size, uint64_t deadline);

/* The @len bytes of an addressable segment at @offset; NULL: not one of these, or out of its bounds. */
const void *mcs_segments_at(const struct mcs_segments *s, struct mcp_id segment, uint64_t offset, uint64_t len);
/* The medium of a segment that is not addressable, if it has these bytes; NULL. */
struct mct_medium *mcs_segments_medium(const struct mcs_segments *s, struct mcp_id segment, uint64_t offset,
				       uint64_t len);

/* A capability to read a range of a segment of this process through its own data port, for its own credential with this
 * serial number; in *@mem.  NULL: none is needed. */
const struct mc_capability *mcs_segments_capability(const struct mcs_segments *s, struct mcp_id segment,
						    uint64_t offset, uint64_t len, uint64_t serial,
						    struct mc_capability *mem);

/* The segments whose device does not work now; at most @max.  Their number. */
unsigned mcs_segments_paused(const struct mcs_segments *s, struct mcp_paused *ret, unsigned max);

/* Does the master wish to have the objects of a segment compared (confirm.h)? */
bool mcs_segments_confirm(struct mcs_segments *s);
/* False: there is no @i-th segment.  Take the wish for it: *ret is its segment, zero: there was none; or renew it. */
bool mcs_segments_confirm_take(struct mcs_segments *s, unsigned i, struct mcp_id *ret, bool *ret_addressable);
void mcs_segments_confirm_again(struct mcs_segments *s, unsigned i);

/* Write the record of an object to the end of @block, for a range of that segment, which is a durable one of these. */
struct mct_record;
void mcs_segments_seal(struct mcs_segments *s, struct mcp_id segment, void *block, const struct mct_record *r);

/* Note that records are void: elements of struct mcp_gone, and those that could not be noted earlier.  Blocks while a
 * block is written to each medium. */
void mcs_segments_gone(struct mcs_segments *s, const struct mcp_seq *gone);

/* Is any of them on a named medium?  Then a sweeper is needed. */
bool mcs_segments_named(const struct mcs_segments *s);
struct mcs_own_segment_unused {
	struct mct_medium *medium;	/* NULL: it is not named, or cannot be swept now */
	struct mcp_id segment;
	uint64_t epoch;
	uint64_t *off;			/* @n places where objects were removed; the caller frees them */
	size_t n;
	bool all;			/* too many were removed: sweep all */
};
/* Sweeps of their media end soon, and none is begun any more. */
void mcs_segments_sweep_stop(struct mcs_segments *s);
/* False: there is no @i-th segment. */
bool mcs_segments_unused_take(struct mcs_segments *s, unsigned i, struct mcs_own_segment_unused *ret);

/* A durable segment whose objects are to be offered to the master. */
struct mcs_own_segment_offered {
	struct mct_medium *medium;
	uint64_t size;
	struct mcp_id segment;
	uint64_t epoch;
	uint64_t secret[2];	/* secret of its records */
};
/* False: there is none. */
bool mcs_segments_offer_next(struct mcs_segments *s, struct mcs_own_segment_offered *ret);
/* The master knows all of them. */
void mcs_segments_offer_done(struct mcs_segments *s, const struct mcs_own_segment_offered *o);

/* Around writes by this process into ranges of media that were granted with a fence number, by thread @writer.  False:
 * the number was fenced. */
#define MCS_SEGMENTS_WRITERS 2u
bool mcs_segments_write_begin(struct mcs_segments *s, unsigned writer, uint64_t fence);
void mcs_segments_write_end(struct mcs_segments *s, unsigned writer);
/* No write with a number up to @upto is carried out after return: true.  False: one is running, ask again. */
bool mcs_segments_fence(struct mcs_segments *s, uint64_t upto);

#endif
