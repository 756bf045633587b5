/* SPDX-License-Identifier: Apache-2.0
 * small_master.h - masters that start in a fraction of a millisecond, for fuzz targets that start one or more with each
 * input.  Link small_master.c with $(small_master_flags): the history of evicted keys and the sample of keys belong
 * to the process (one master at a time), and the rates of the summary line begin without a look at every counter.
 * None of these is a part of the state that a journal keeps. */
#ifndef TEST_SMALL_MASTER_H
#define TEST_SMALL_MASTER_H

#include <stdint.h>

#include "master/mcm_i.h"

/* Default options with a journal in memory_dir(), the same seed of the index in every process, and the policy "lru",
 * which needs the least memory.  Only errors are logged. */
struct mcm_conf *small_master_conf(void);
/* Abort unless the ranges of all segments are consistent.  Returns the number of objects. */
int64_t small_master_check(struct mcm *m);
/* Number of objects that a master with the directory's journal would find (mcm_journal_check()), -1: it fails. */
int64_t small_master_count(const struct mcm_conf *conf);

#endif
