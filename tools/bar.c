/* SPDX-License-Identifier: Apache-2.0
 * bar.c - the drawn part of a progress line. */
#include <config.h>

#include "tools/bar.h"

#include <stdio.h>
#include <string.h>

#define WIDTH 30u

const char *mcctl_bar(uint64_t done, uint64_t total, char buf[static MCCTL_BAR_LEN])
{
	double part = done < total ? (double)done / (double)total : 1;
	unsigned n = (unsigned)(part * WIDTH);
	char bar[WIDTH + 1];

	memset(bar, '#', n);
	memset(bar + n, '.', WIDTH - n);
	bar[WIDTH] = '\0';
	snprintf(buf, MCCTL_BAR_LEN, "[%s] %3u%%", bar, (unsigned)(part * 100));
	return buf;
}
