/* SPDX-License-Identifier: Apache-2.0
 * confirm.h - the owner compares its memory and its disks with the objects of a snapshot that the master has restored.
 *
 * A mount's reply asks for it (mount_reply.confirm).  After the next heartbeat the mover's thread fetches batches of
 * objects (CONFIRM), computes their checksums, and answers, one batch after another; copies for the master wait
 * meanwhile. */
#ifndef MCS_CONFIRM_H
#define MCS_CONFIRM_H

#include <stdbool.h>

struct mc_stop;
struct mcs_direct;

/* Any thread: does the master want that? */
bool mcs_confirm_wanted(struct mcs_direct *s);
/* Compare the objects that the master asks for, in all segments of this process; there may be none.  The mover's
 * thread.  0; -ECANCELED: @stop is set; or the error of a request, of little memory or of a busy disk: it is wanted
 * again, from the last batch on. */
int mcs_confirm(struct mcs_direct *s, struct mc_stop *stop);

#endif
