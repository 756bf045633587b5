/* SPDX-License-Identifier: Apache-2.0
 * blob.h - a store of named pieces of data, for snapshots: a local directory, or a bucket of an S3 server.
 *
 * Names are paths: 1 to 512 letters, digits, '.', '_', '-' and '/', relative, without empty parts, "." and "..": else
 * -EINVAL.  A portable name has parts of at most 255 bytes and is not the beginning "a/b" of another name "a/b/c": a
 * directory refuses these two, S3 does not.
 *
 * S3 takes its configuration from the environment; the first name that is set counts:
 *	endpoint	MOONCAKE_S3_ENDPOINT, MOONCAKE_AWS_S3_ENDPOINT; default Amazon's of the region
 *	region		MOONCAKE_S3_REGION, MOONCAKE_AWS_REGION; default us-east-1
 *	bucket		MOONCAKE_S3_BUCKET, MOONCAKE_AWS_BUCKET_NAME
 *	keys		MOONCAKE_S3_ACCESS_KEY_ID, MOONCAKE_S3_SECRET_ACCESS_KEY, MOONCAKE_S3_SESSION_TOKEN;
 *			MOONCAKE_AWS_ACCESS_KEY_ID, MOONCAKE_AWS_SECRET_ACCESS_KEY
 *	path style	MOONCAKE_S3_PATH_STYLE=1 or MOONCAKE_AWS_USE_VIRTUAL_ADDRESSING=0: the bucket is in the path of
 *			the URL, not in the host.  If neither is set: also if the endpoint is an address or localhost,
 *			and for https and a bucket with a dot, which no certificate covers
 *	https		MOONCAKE_AWS_USE_HTTPS (default 1), for an endpoint without http:// or https://
 *	timeouts	MOONCAKE_AWS_CONNECT_TIMEOUT_MS (10000) to connect, MOONCAKE_AWS_REQUEST_TIMEOUT_MS (30000)
 *			without progress, to a second.  Three attempts are made
 * A proxy is used only with MC_METADATA_USE_PROXY.
 *
 * The signature of a put covers the bytes only through TLS (x-amz-content-sha256 is UNSIGNED-PAYLOAD).  Over plain http
 * the caller has to verify them.
 *
 * Errors have a detail that names the directory, or the server and bucket, and S3's error code; never a key.  -ENOENT:
 * there is no such name; -EACCES: the keys are wrong, or do not allow it; -EINVAL: name, configuration, or a bucket
 * that does not exist; -EMSGSIZE: more than MCD_BLOB_MAX bytes; -ENOSPC; -EAGAIN: the server is overloaded;
 * -ETIMEDOUT, -ECONNREFUSED, -EHOSTUNREACH ...; -EIO.  Threads: any, also several processes on one directory. */
#ifndef MCD_BLOB_H
#define MCD_BLOB_H

#include <stddef.h>
#include <stdint.h>

#define MCD_BLOB_NAME_MAX 513u		/* with the NUL */
#define MCD_BLOB_MAX (64u << 20)	/* bytes of one */
#define MCD_BLOB_LIST_MAX (1u << 18)

struct mcd_blobs;

/* @type: "local", with the root directory @dir, which is created, and freed of unfinished puts of dead processes; or
 * "s3".  No network traffic. */
int mcd_blobs_open(const char *type, const char *dir, struct mcd_blobs **ret);
void mcd_blobs_close(struct mcd_blobs *b);		/* NULL is fine */
/* Where it is, for messages. */
const char *mcd_blobs_where(const struct mcd_blobs *b);

/* Whole or not at all, and durable when this returns 0.  Replaces. */
int mcd_blob_put(struct mcd_blobs *b, const char *name, const void *data, size_t len);
/* *ret is malloc'ed, with a NUL behind its bytes. */
int mcd_blob_get(struct mcd_blobs *b, const char *name, void **ret, size_t *ret_len);
/* 0 also if there is none.  Durable when this returns 0. */
int mcd_blob_delete(struct mcd_blobs *b, const char *name);
/* Call @fn for each name that begins with @prefix ("": all), in ascending order of the bytes.  A result other than 0 of
 * @fn ends the list and is returned; @fn may delete.  Files and objects without a valid name are not listed.
 * -EMSGSIZE: more than MCD_BLOB_LIST_MAX names. */
int mcd_blob_list(struct mcd_blobs *b, const char *prefix, int (*fn)(void *arg, const char *name), void *arg);

#endif
