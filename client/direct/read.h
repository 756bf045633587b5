/* SPDX-License-Identifier: Apache-2.0
 * read.h - read parts of object versions and check them: the one way by which bytes reach a caller.
 *
 * A part is read in whole chunks; what the caller did not ask for of the first and last chunk goes
 * aside.  A part that is the whole object is checked against the object's CRC, others against the
 * CRCs in the trailer, which in turn are checked against the object's. */
#ifndef MCS_READ_H
#define MCS_READ_H

#include <stdbool.h>

#include "client/direct/direct.h"

#define MCS_REPLICAS_MAX 8	/* further ones are not looked at */

/* A version of an object as the master described it. */
struct mcs_version {
	struct mcs_info info;
	struct mcs_pin pin;
	uint64_t asked_ns;	/* the pin is good from here on ... */
	uint32_t lease_ms;	/* ... for so long; 0: until given back */
	unsigned n;
	struct mcp_replica replica[MCS_REPLICAS_MAX];
};

/* @epoch: of the connection that carried the reply.  The object's status when that is an error. */
int mcs_version_decode(const struct mcp_object *obj, uint64_t epoch, uint64_t asked_ns,
		       struct mcs_version *ret);

/* The same version, at the same places? */
bool mcs_version_same(const struct mcs_version *a, const struct mcs_version *b);

/* Is the memory of this version surely not reused yet? */
bool mcs_version_pinned(const struct mcs_direct *s, const struct mcs_version *v);

struct mcs_part {
	/* set by the caller; the buffers hold @len bytes at least */
	const struct mcs_version *v;
	uint64_t offset, len;		/* inside the object; len > 0 */
	const struct iovec *iov;
	int iovcnt;
	const uint32_t *trailer;	/* CRCs of its chunks, checked; NULL: fetched when needed */
	bool unverified;		/* the caller wants no checks */

	/* what happened so far with this version; zero to begin with */
	uint8_t unreachable[MCS_REPLICAS_MAX];	/* failed transfers */
	uint8_t mismatched[MCS_REPLICAS_MAX];	/* failed checks */

	/* filled in */
	int status;			/* 0, -MC_ECHECKSUM, or why the bytes could not be had */
	unsigned replica;		/* the one taken */
	/* Checked trailer, in the scratch; only from a call with one part; NULL: not needed. */
	const uint32_t *fetched;
	/* while reading */
	struct mcs_seg *seg;
	struct mce_req *req;
	unsigned n_req;
};

/* Is there a replica left that was not tried, or (@twice) not tried twice? */
bool mcs_part_left(const struct mcs_part *p, bool twice);
/* Why there is none: -MC_ECHECKSUM when one was wrong twice. */
int mcs_part_verdict(const struct mcs_part *p);

/* One attempt for each of the parts.  Buffers of failed parts have undefined contents.  -EAGAIN: it
 * was read unverified and too late to be sure; verified the next time. */
void mcs_read(struct mcs_direct *s, struct mcs_scratch *sc, struct mcs_part **parts, unsigned n,
	      uint64_t deadline);

/* The same in steps, for one part and who does not wait: requests that are ready to be
 * submitted, of what is known without asking anybody (-EAGAIN otherwise); how long they may
 * take; and, when they are complete, what has become of the part.  @sc stays until then. */
int mcs_read_prepare(struct mcs_direct *s, struct mcs_scratch *sc, struct mcs_part *part);
uint64_t mcs_read_patience(struct mcs_part *part, uint64_t deadline);
void mcs_read_finish(struct mcs_direct *s, struct mcs_part *part);

#endif
