/* SPDX-License-Identifier: Apache-2.0
 * read.h - read parts of object versions and check them.  All bytes that callers get are read here.
 *
 * A part is read in whole chunks; the bytes of the first and last chunk that the caller did not ask for go to
 * scratch memory.  A part that is the whole object is checked against the object's CRC.  Other parts are
 * checked against the CRCs in the trailer, and the trailer against the object's CRC. */
#ifndef MCS_READ_H
#define MCS_READ_H

#include <stdbool.h>

#include "client/direct/direct.h"

#define MCS_REPLICAS_MAX 8	/* further replicas are ignored */

/* A version of an object as the master described it. */
struct mcs_version {
	struct mcs_info info;
	struct mcs_pin pin;
	uint64_t asked_ns;	/* the pin is valid from this time, */
	uint32_t lease_ms;	/* for this time; 0: until it is released */
	unsigned n;
	struct mcp_replica replica[MCS_REPLICAS_MAX];
};

/* @epoch: of the connection that carried the reply.  0, or the object's status if that is an error. */
int mcs_version_decode(const struct mcp_object *obj, uint64_t epoch, uint64_t asked_ns,
		       struct mcs_version *ret);

/* The same version, with the same replicas? */
bool mcs_version_same(const struct mcs_version *a, const struct mcs_version *b);

/* Is the pin still valid, so that the memory of this version cannot have been reused? */
bool mcs_version_pinned(const struct mcs_direct *s, const struct mcs_version *v);

struct mcs_part {
	/* set by the caller; the buffers hold at least @len bytes */
	const struct mcs_version *v;
	uint64_t offset, len;		/* inside the object; len > 0 */
	const struct iovec *iov;
	int iovcnt;
	const uint32_t *trailer;	/* CRCs of its chunks, checked; NULL: fetched when needed */
	bool unverified;		/* the caller wants no checks */

	/* per replica, for all attempts with this version; 0 before the first */
	uint8_t unreachable[MCS_REPLICAS_MAX];	/* failed transfers */
	uint8_t mismatched[MCS_REPLICAS_MAX];	/* failed checks */

	/* filled in */
	int status;			/* 0, -MC_ECHECKSUM, or the error of the transfer */
	unsigned replica;		/* the one that was read */
	enum mce_path path;		/* path of the transfer that read it */
	/* Checked trailer, in the scratch memory; only from a call with one part; NULL: not needed. */
	const uint32_t *fetched;
	bool by_owner;			/* the replica's file failed (shared.h): ask its owner */
	/* while reading */
	struct mcs_seg *seg;
	struct mcs_shared_file *file;	/* NULL: by its owner */
	struct mce_req *req;
	unsigned n_req;
};

/* Is there a replica that was not tried yet, or (@twice) not tried twice? */
bool mcs_part_left(const struct mcs_part *p, bool twice);
/* The error if there is none: -MC_ECHECKSUM if one mismatched twice. */
int mcs_part_verdict(const struct mcs_part *p);

/* One attempt for each part.  Buffers of failed parts have undefined contents.  Status -EAGAIN: the part was
 * read unverified, and its pin expired before the end; the next attempt verifies it. */
void mcs_read(struct mcs_direct *s, struct mcs_scratch *sc, struct mcs_part **parts, unsigned n,
	      uint64_t deadline);

/* The same in steps, for one part, without waiting.  Build its requests; -EAGAIN: the master
 * must be asked first. Then the deadline of the attempt.  After the requests are complete, set
 * the part's status.  @sc must stay valid until then. */
int mcs_read_prepare(struct mcs_direct *s, struct mcs_scratch *sc, struct mcs_part *part);
uint64_t mcs_read_patience(struct mcs_part *part, uint64_t deadline);
void mcs_read_finish(struct mcs_direct *s, struct mcs_part *part);

#endif
