/* SPDX-License-Identifier: Apache-2.0
 * check.h - reading a journal without serving, and reporting its faults (mooncake_master --check_journal).
 *
 * The check is a start: the same code reads the same files into an empty master.  It reports the faults that a start
 * would log, and changes nothing.  Then it compares the ranges, objects and sums of the restored state.
 *
 * No lock is taken, so that a master can start, run and write checkpoints meanwhile.  If the files have changed since
 * they were listed, the check begins again. */
#ifndef MCM_CHECK_H
#define MCM_CHECK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct mcm;
struct mcm_conf;
struct mcm_restored;

#define MCM_CHECK_KEPT 1000u	/* faults whose text is kept */

struct mcm_check {
	char **fault;			/* "FILE offset=N record=N: reason"; the first MCM_CHECK_KEPT; owned */
	uint64_t faults;
	/* the files that were read */
	bool empty;			/* there is no file of a journal: a start begins an empty pool */
	uint64_t checkpoint, first, last;	/* numbers; 0: none */
	uint64_t records, bytes;
	uint64_t torn_bytes;		/* behind the last whole record of a file, as a killed process leaves them */
	bool ended;			/* the last master ended in an orderly way */
	/* the state */
	uint64_t objects, object_bytes, empties, directories, links;
	uint64_t segments, disks, capacity, disk_capacity, used, disk_used;
	uint64_t dropped;		/* objects whose segments were unmounted */
	uint64_t puts;			/* unfinished */
	uint64_t tenants, tasks;
};

/* Check the directory @dir; the other options are @conf's.  *ret is initialized, and @ret->faults tells whether the
 * journal is good.  -ENOENT, -EACCES, ...: the files cannot be read; -EINVAL: they belong to another cluster_id;
 * -MC_EVERSION: a later version wrote them; -ENOMEM. */
int mcm_journal_check(const struct mcm_conf *conf, const char *dir, struct mcm_check *ret);
void mcm_check_done(struct mcm_check *c);
/* Print the faults and a summary of "name value" lines. */
void mcm_check_print(const struct mcm_check *c, const char *dir, FILE *to);

/* ---- for the files that restore ---- */

/* Add a fault; @file NULL: of the state.  @record 0: unknown. */
void mcm_check_fault(struct mcm_check *c, const char *file, uint64_t at, uint64_t record, const char *why);
/* Read the journal in @dir into the empty master @m, which keeps none. */
int mcm_check_read(struct mcm *m, const char *dir, struct mcm_check *c);

#endif
