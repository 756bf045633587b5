/* SPDX-License-Identifier: Apache-2.0
 * object.h - open objects of the direct back end. */
#ifndef MCS_DIRECT_OBJECT_H
#define MCS_DIRECT_OBJECT_H

#include "client/direct/direct.h"
#include "client/direct/read.h"
#include "common/sys/lock.h"

struct mcs_direct_object {
	struct mcs_object base;

	/* constant after open, except for the version's pin and the capabilities of its replicas */
	struct mcs_version v;
	struct mcs_key key;
	bool guarded;			/* the owners of its segments want capabilities */

	/* guarded by the back end's lock */
	struct mc_list link;
	unsigned refs;

	struct mc_mutex lock;
	/* with the lock held */
	struct mcs_pin pin;
	bool missed;			/* on the connection of @pin: the master was asked and did not find it */
	uint64_t asked_ns;		/* when it was last asked */
	uint32_t *trailer;		/* set once, then constant */
	uint64_t caps_ns, caps_generation;	/* the capabilities in v: since when, and their generation */
	struct mcs_seg *mapped;		/* keeps the mapping; set once */
	const void *map;

	unsigned char key_bytes[];
};

static inline struct mcs_direct_object *mcs_direct_object_of(struct mcs_object *o)
{
	return mc_container_of(o, struct mcs_direct_object, base);
}

static inline struct mcs_direct *mcs_direct_object_owner(const struct mcs_direct_object *o)
{
	return mcs_direct_of(o->base.backend);
}

void mcs_direct_object_ref(struct mcs_direct_object *o);
/* The last reference releases the pin and frees the object. */
void mcs_direct_object_unref(struct mcs_direct_object *o);
/* The version for a read, with capabilities that last for a while: in @sc if they are needed.  NULL: they must be
 * renewed first, or there is no memory. */
const struct mcs_version *mcs_direct_object_version(struct mcs_direct_object *o, struct mcs_scratch *sc);
/* The checked CRCs of its chunks, NULL: not known. */
const uint32_t *mcs_direct_object_trailer(struct mcs_direct_object *o);
/* Keep a copy of a trailer that was read and checked. */
void mcs_direct_object_keep_trailer(struct mcs_direct_object *o, const uint32_t *trailer);
/* Count bytes that were read. */
void mcs_direct_object_count(uint64_t n);

/* Background thread, after a new connection: pin the open objects again.  True: some were not found, but may be
 * found when their owners have come back to a master that restarted; call again later. */
bool mcs_direct_repin(struct mcs_direct *s);

/* ---- slots of the table (client/backend.h) ---- */

int mcs_direct_object_open(struct mcs_backend *b, struct mcs_key key, struct mcs_object **ret, uint64_t deadline);
int mcs_direct_stat_open(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, struct mcs_info *infos,
			 int *results, struct mcs_object **ret, uint64_t deadline);
int64_t mcs_direct_object_read(struct mcs_object *o, uint64_t offset, const struct iovec *iov, int iovcnt,
			       uint64_t deadline);
int mcs_direct_object_map(struct mcs_object *o, const void **ret_data, uint64_t deadline);
int mcs_direct_object_held(struct mcs_object *o);
int mcs_direct_object_offset(struct mcs_object *o, uint64_t *ret_offset);
int mcs_direct_object_verify(struct mcs_object *o);
void mcs_direct_object_close(struct mcs_object *o);
int mcs_direct_map_batch(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, unsigned flags,
			 struct mcs_map *ret, int *results, uint64_t deadline);

#endif
