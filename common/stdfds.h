/* SPDX-License-Identifier: Apache-2.0
 * stdfds.h - descriptors 0 to 2 of a program. */
#ifndef MC_STDFDS_H
#define MC_STDFDS_H

/* Occupy those that are closed with /dev/null, at which reading and writing fail as before: what is opened
 * next would be taken for them, a journal for standard error.  First in main(). */
void mc_stdfds_open(void);

#endif
