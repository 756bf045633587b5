/* SPDX-License-Identifier: Apache-2.0
 * hist_check.h - the rules that a history of calls must obey.
 *
 * Each key is a register that may lose its value.  Each value is written at most once, so a register is atomic if the
 * zones of its values fit (Gibbons and Korach): the zone of a value lasts from the first end of its calls (its write,
 * or a read) to the last begin.  If that is a positive time ("forward zone"), the register certainly had the value
 * meanwhile, so another value, or an observed absence, must not lie within.  A call that failed or did not return may
 * take effect at any time after its begin, or never.  O(n log n). */
#ifndef HIST_CHECK_H
#define HIST_CHECK_H

#include <stdbool.h>
#include <stdio.h>

#include "tests/history/hist.h"

enum hist_rule {
	RULE_BYTES,		/* rows that are not of the value */
	RULE_DAMAGED,		/* bytes in memory that do not match their checksum */
	RULE_NOWHERE,		/* a value that no call wrote to this key, or of another size */
	RULE_FUTURE,		/* a value that was read before its write began */
	RULE_GENERATION,	/* one generation of two values, two of one, or against the order of the writes */
	RULE_TWO_VALUES,	/* a value that was replaced came back */
	RULE_BACK,		/* a value that was removed (keep: or missed) came back */
	RULE_LOST,		/* keep: a value is gone, but no call removed it */
	RULE_UNREADABLE,	/* keep: a key cannot be read after the end of all faults */
	RULE_SHARED,		/* shared: a value of the last rank is gone, but no call removed or replaced it */
	HIST_RULES
};

struct hist_report {
	unsigned long broken[HIST_RULES], violations;
	unsigned long calls, ok, absent, failed, open;	/* open: did not return */
	/* Calls that tell the ranks of a version's copies: reads of bytes whose nearest copy was on this rank; versions
	 * whose nearest copy came to this rank from a nearer one, and went from this rank to a nearer one. */
	unsigned long read[HIST_RANKS], down[HIST_RANKS], up[HIST_RANKS];
	unsigned long safe;		/* shared: calls after which the value must stay */
};

/* Further promises of the pool of a run.
 * HIST_KEEP: it lost no memory, so values stay until they are removed.
 * HIST_SHARED: the last rank has room for all, and works; so values that have got there stay, also when processes are
 * killed. */
#define HIST_KEEP 0x1u
#define HIST_SHARED 0x2u

/* Check the records of all logs of a run.  They are changed: the values of STAT and LIST are filled in from their
 * generations.  @promises: without any, a miss may be that of an object whose owner is silent, which comes back.  The
 * first violations of each rule are described on @out (NULL: none). */
void hist_check(struct hist_rec *rec, size_t n, unsigned promises, FILE *out, struct hist_report *ret);
const char *hist_rule_name(enum hist_rule rule);

#endif
