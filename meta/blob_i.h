/* SPDX-License-Identifier: Apache-2.0
 * blob_i.h - the two kinds of blob stores.  Functions as in blob.h; names are valid. */
#ifndef MCD_BLOB_I_H
#define MCD_BLOB_I_H

#include <stdbool.h>

#include "meta/blob.h"

struct mcd_blobs {
	const struct mcd_blob_ops *ops;
	char where[512];
};

typedef int (*mcd_blob_fn)(void *arg, const char *name);

struct mcd_blob_ops {
	void (*close)(struct mcd_blobs *b);
	int (*put)(struct mcd_blobs *b, const char *name, const void *data, size_t len);
	int (*get)(struct mcd_blobs *b, const char *name, void **ret, size_t *ret_len);
	int (*del)(struct mcd_blobs *b, const char *name);
	/* In any order; other names and invalid ones are allowed.  Only the negative results of @fn occur. */
	int (*list)(struct mcd_blobs *b, const char *prefix, mcd_blob_fn fn, void *arg);
};

int mcd_blob_dir_open(const char *dir, struct mcd_blobs **ret);
int mcd_blob_s3_open(struct mcd_blobs **ret);

#define MCD_S3_TOKEN_MAX 1024u	/* bytes of a token or a key, as S3's limit of a key */

/* One page of an answer to ListObjectsV2, at most 16 MiB, public for the fuzzer: calls @fn for each key, and ends with
 * its result if that is not 0.  *ret_next: malloc'ed token of the next page, NULL: this was the last.  -EBADMSG: not
 * such an answer, or a page without the token that it promises. */
int mcd_s3_list_decode(const char *text, size_t len, mcd_blob_fn fn, void *arg, char **ret_next);

#endif
