/* SPDX-License-Identifier: Apache-2.0
 * blob_i.h - the keyed tiers of this folder. */
#ifndef MCT_BLOB_I_H
#define MCT_BLOB_I_H

#include "tiers/keyed.h"

extern const struct mct_keyed_ops mct_blob_dir, mct_blob_s3;

/* A step of a swap: 1: put @data; 0: it is there already; -EEXIST.  @now: the bytes that the name has, NULL: none. */
int mct_blob_swap_check(const char *where, const char *name, const void *now, size_t now_len, const void *was,
			size_t was_len, const void *data, size_t len);

#define MCT_S3_TOKEN_MAX 1024u	/* bytes of a token or a key, as S3's limit of a key */

/* One page of an answer to ListObjectsV2, at most 16 MiB, public for the fuzzer: calls @fn for each key, and ends with
 * its result if that is not 0.  *ret_next: malloc'ed token of the next page, NULL: this was the last.  -EBADMSG: not
 * such an answer, or a page without the token that it promises. */
int mct_s3_list_decode(const char *text, size_t len, mct_keyed_fn fn, void *arg, char **ret_next);

#endif
