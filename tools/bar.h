/* SPDX-License-Identifier: Apache-2.0
 * bar.h - the drawn part of a progress line, the same in all tools. */
#ifndef MCCTL_BAR_H
#define MCCTL_BAR_H

#include <stdint.h>

#define MCCTL_BAR_LEN 40u		/* with brackets, percentage and end */

/*
 * "[######........................]  20%": @done of @total, which may be smaller than @done (then it is full)
 * but not 0.  Returns @buf.
 */
const char *mcctl_bar(uint64_t done, uint64_t total, char buf[static MCCTL_BAR_LEN]);

#endif
