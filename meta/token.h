/* SPDX-License-Identifier: Apache-2.0
 * token.h - the token that clients and servers of metadata share: the variable MC_METADATA_HTTP_TOKEN, or the file
 * that MC_METADATA_HTTP_TOKEN_FILE names. */
#ifndef MCD_TOKEN_H
#define MCD_TOKEN_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "common/err.h"
#include "common/security/secret_file.h"

#define MCD_TOKEN_MAX 4096u

/* Can a header carry this token?  @from: its source.  -EINVAL. */
static inline int mcd_token_check(const char *token, const char *from)
{
	for (const char *p = token; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			return mc_fail(-EINVAL, "%s has a control character, such as a newline", from);
	return 0;
}

/* The first line of the file. */
static inline int mcd_token_read_file(const char *path, char *ret, size_t size)
{
	int r = mc_secret_file_read(path, ret, size);

	if (r < 0)
		return mc_fail(r, "MC_METADATA_HTTP_TOKEN_FILE: %s", mc_err_detail(r));
	if (r && ret[r - 1] == '\n')
		ret[r - 1] = '\0';
	return *ret ? mcd_token_check(ret, path) : mc_fail(-EINVAL, "MC_METADATA_HTTP_TOKEN_FILE: %s is empty", path);
}

/* The token of the environment, malloc'ed; NULL: there is none.  Errors have a detail. */
static inline int mcd_token_read(char **ret)
{
	const char *token = mc_env_str("MC_METADATA_HTTP_TOKEN"), *path = mc_env_str("MC_METADATA_HTTP_TOKEN_FILE");
	char text[MCD_TOKEN_MAX];
	int r;

	*ret = NULL;
	if (!token && !path)
		return 0;
	if (token && path)
		return mc_fail(-EINVAL, "MC_METADATA_HTTP_TOKEN and MC_METADATA_HTTP_TOKEN_FILE are both set: "
			       "unset one");
	r = token ? mcd_token_check(token, "MC_METADATA_HTTP_TOKEN") : mcd_token_read_file(path, text, sizeof(text));
	if (r < 0)
		return r;
	*ret = strdup(token ? token : text);
	explicit_bzero(text, sizeof(text));
	return *ret ? 0 : mc_fail(-ENOMEM, "no memory for a token");
}

#endif
