/* SPDX-License-Identifier: Apache-2.0
 * audit_line.h - lines of the audit log. */
#ifndef MCM_AUDIT_LINE_H
#define MCM_AUDIT_LINE_H

#include <stddef.h>
#include <stdint.h>

struct mcm_audit_event;

#define MCM_AUDIT_LINE 8192u	/* bytes that the longest line needs; longer texts in it are cut */

/* Make the line of @e, with a newline and no NUL.  @suppressed: failures without a line before it.  Its bytes. */
size_t mcm_audit_line(char ret[MCM_AUDIT_LINE], const struct mcm_audit_event *e, unsigned suppressed);
/* The line about @n lost lines. */
size_t mcm_audit_line_lost(char ret[MCM_AUDIT_LINE], uint64_t n);

#endif
