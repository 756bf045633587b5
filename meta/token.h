/* SPDX-License-Identifier: Apache-2.0
 * token.h - the token that clients and servers of metadata share: the variable MC_METADATA_HTTP_TOKEN. */
#ifndef MCD_TOKEN_H
#define MCD_TOKEN_H

#include <errno.h>

#include "common/err.h"

/* Can a header carry this token?  -EINVAL. */
static inline int mcd_token_check(const char *token)
{
	for (const char *p = token; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			return mc_fail(-EINVAL, "MC_METADATA_HTTP_TOKEN has a control character, such as a newline");
	return 0;
}

#endif
