/* SPDX-License-Identifier: Apache-2.0
 * restore_i.h - what was read of a journal, until it has become a master's state. */
#ifndef MCM_RESTORE_I_H
#define MCM_RESTORE_I_H

#include "master/journal/journal_i.h"
#include "master/space/segment.h"

/* A file's contents, mapped. */
struct mcm_restored_file {
	void *p;
	size_t len;
};

/* Frames of records are borrowed from the files. */
struct mcm_restored {
	struct mcm_restored_file *file;		/* owned; in the order in which they were applied */
	size_t files;
	const uint8_t **frame;		/* by slot: the record of the key's version */
	size_t frames;
	const uint8_t **segment;	/* by number, MCM_SEGMENTS_MAX of them */
	/* puts under way by generation: open addressing, a power of two */
	struct mcm_restored_put {
		uint64_t generation;
		const uint8_t *frame;	/* NULL: free */
	} *put;
	size_t put_cap, puts;
	uint64_t generation;		/* the largest met */
	/* what has become of it */
	uint64_t objects, dropped;
	unsigned segments;
};

struct mcm_restored *mcm_restored_new(void);
void mcm_restored_done(struct mcm_restored *r);

int mcm_restored_put_set(struct mcm_restored *r, uint64_t generation, const uint8_t *frame);
void mcm_restored_put_drop(struct mcm_restored *r, uint64_t generation);

/* Everything that was applied is not to be used after all; generations stay. */
void mcm_restored_forget(struct mcm *m, struct mcm_restored *r);
/* Segments, ranges, objects, names, lists of @m from what was read.  -ENOMEM. */
int mcm_restored_build(struct mcm *m, struct mcm_restored *r);

#endif
