/* SPDX-License-Identifier: Apache-2.0
 * restore_build.h - the last record of each key, segment and put, from which a master's state is built. */
#ifndef MCM_RESTORE_BUILD_H
#define MCM_RESTORE_BUILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mcm;

#define MCM_JOURNAL_NAME 40u	/* bytes of a file's name in the directory */

/* A file's contents, mapped. */
struct mcm_restored_file {
	void *p;
	size_t len;
	char name[MCM_JOURNAL_NAME];
};

/* Frames of records point into the files. */
struct mcm_restored {
	struct mcm_restored_file *file;		/* owned; in the order in which they were applied */
	size_t files;
	const uint8_t **frame;		/* records of the keys' versions, by slot */
	size_t frames;
	const uint8_t **segment;	/* records of the segments, by number: MCM_SEGMENTS_MAX */
	bool *unmounted;		/* segments by number: the last record says that the segment is gone */
	/* unfinished puts by generation: open addressing, put_cap is a power of two */
	struct mcm_restored_put {
		uint64_t generation;
		const uint8_t *frame;	/* NULL: free */
	} *put;
	size_t put_cap, puts;
	uint64_t generation;		/* the largest in any record */
	/* results */
	uint64_t objects, dropped;
	uint64_t damaged;		/* faults of the files */
	unsigned segments;
	bool uncorrected;		/* the files have claims that were rejected: a checkpoint is needed now */
};

struct mcm_restored *mcm_restored_new(void);
void mcm_restored_done(struct mcm_restored *r);

int mcm_restored_put_set(struct mcm_restored *r, uint64_t generation, const uint8_t *frame);
void mcm_restored_put_drop(struct mcm_restored *r, uint64_t generation);

/* Files are damaged, or contradict each other: count the fault, and log it, or report it to a check.  @file NULL: it is
 * in no single file; @record: its number in the file, 0: unknown. */
void mcm_restored_fault(struct mcm *m, struct mcm_restored *r, const char *file, uint64_t at, uint64_t record,
			const char *fmt, ...) __attribute__((format(printf, 6, 7)));

/* Forget everything that was applied, except the generation. */
void mcm_restored_forget(struct mcm *m, struct mcm_restored *r);
/* Build segments, ranges, objects, names and lists of @m from the records.  -ENOMEM. */
int mcm_restored_build(struct mcm *m, struct mcm_restored *r);

#endif
