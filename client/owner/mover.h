/* SPDX-License-Identifier: Apache-2.0
 * mover.h - the owner's thread that copies objects of its segment to other segments when the
 * master has tasks (copy, move, drain, rebalance), and compares objects for it (confirm.h). */
#ifndef MCS_MOVER_H
#define MCS_MOVER_H

struct mcs_direct;
struct mcs_mover;

int mcs_mover_start(struct mcs_direct *s, struct mcs_mover **ret);
void mcs_mover_stop(struct mcs_mover *m);	/* NULL is fine; waits for running copies */
/* The master has copy tasks, or wants a comparison.  Cheap; NULL is fine. */
void mcs_mover_kick(struct mcs_mover *m);

#endif
