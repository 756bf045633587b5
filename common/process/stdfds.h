/* SPDX-License-Identifier: Apache-2.0
 * stdfds.h - standard descriptors (0 to 2) of a program. */
#ifndef MC_STDFDS_H
#define MC_STDFDS_H

/* Open /dev/null on those that are closed; reading and writing there fail as before.  Otherwise the
 * next file that the program opens would get such a number, and log lines could be written into a
 * journal.  First in main(). */
void mc_stdfds_open(void);

#endif
