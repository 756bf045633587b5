/* SPDX-License-Identifier: Apache-2.0
 * err.h - errors: negative errno superset with a thread-local explanation.
 *
 * Functions return 0 or a count on success and a negative number on failure: -errno, or -MC_E* of
 * errno.def.  The first function that knows the cause records it with mc_fail(); libraries never
 * print, the top of a request or main() logs once. */
#ifndef MC_ERR_H
#define MC_ERR_H

#define MC_ERR(name, value, upstream, err, text) name = value,
enum mc_err {
#include "common/errno.def"
};
#undef MC_ERR

/* Record why and return @err (negative).  The text replaces an earlier one of this thread. */
int mc_fail(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What the last mc_fail() of this thread recorded for @err, else mc_strerror(@err).  The text is
 * valid until the next mc_fail() of this thread. */
const char *mc_err_detail(int err);

/* Text of an error (either sign).  Static storage. */
const char *mc_strerror(int err);

/* Positive errno for a file operation's reply. */
int mc_err_to_errno(int err);

/* Number of upstream's ErrorCode (0 or negative); also what our wire carries as status. */
int mc_err_to_upstream(int err);

/* Inverse of the above for a status that came over the wire; unknown numbers give -MC_EINTERNAL, and so
 * does EINPROGRESS, which is no end of a request. */
int mc_err_from_wire(int status);
/* Wire status for a negative error.  Own numbers that share an upstream number stay distinct on the
 * wire: all but the first of errno.def travel as -(10000 + value), plain errno as
 * -(20000 + errno). */
int mc_err_to_wire(int err);

#endif
