/* SPDX-License-Identifier: Apache-2.0
 * err.h - errors: a superset of negative errno, with a detail text per thread.
 *
 * Functions return 0 or a count on success and a negative number on failure: -errno, or -MC_E* of
 * errno.def.  The first function that knows the cause records it with mc_fail().  Libraries never
 * print; the top of a request or main() logs once. */
#ifndef MC_ERR_H
#define MC_ERR_H

#define MC_ERR(name, value, upstream, err, text) name = value,
enum mc_err {
#include "common/errno.def"
};
#undef MC_ERR

/* Record the cause and return @err (negative).  The text replaces an earlier one of this thread. */
int mc_fail(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The text of the last mc_fail() of this thread if it was for @err, else mc_strerror(@err).  Valid
 * until the next mc_fail() of this thread. */
const char *mc_err_detail(int err);

/* Text of an error (either sign).  Static storage. */
const char *mc_strerror(int err);

/* Positive errno for a file operation's reply. */
int mc_err_to_errno(int err);

/* Number of upstream's ErrorCode (0 or negative). */
int mc_err_to_upstream(int err);

/* Error for a status from the wire (0 or negative).  Unknown numbers give -MC_EINTERNAL, and so
 * does EINPROGRESS, which is not the result of a request. */
int mc_err_from_wire(int status);
/* Wire status for a negative error: the upstream number.  Of several own numbers with the same
 * upstream number only the first of errno.def is sent so, the others as -(10000 + value); plain
 * errno is sent as -(20000 + errno). */
int mc_err_to_wire(int err);

#endif
