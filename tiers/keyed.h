/* SPDX-License-Identifier: Apache-2.0
 * keyed.h - the table of functions of a keyed tier: named pieces of data, which are put and deleted whole, and read
 * whole or in part.  Two tiers: "local", a directory, and "s3", a bucket of an S3 server.  Snapshots and the ranges of
 * a segment (tiers/objects/) are stored there.
 *
 * Names are paths: 1 to 512 letters, digits, '.', '_', '-' and '/', relative, without empty parts, "." and "..": else
 * -EINVAL.  A portable name has parts of at most 255 bytes and is not the beginning "a/b" of another name "a/b/c": a
 * directory refuses these two, S3 does not.
 *
 * S3 takes its configuration from the environment; the first name that is set counts (MOONCAKE_OSS_ is for the API of
 * Alibaba's OSS that is compatible with S3):
 *	endpoint	MOONCAKE_S3_ENDPOINT, MOONCAKE_OSS_ENDPOINT, MOONCAKE_AWS_S3_ENDPOINT; default Amazon's of the
 *			region
 *	region		MOONCAKE_S3_REGION, MOONCAKE_OSS_REGION, MOONCAKE_AWS_REGION; default us-east-1
 *	bucket		MOONCAKE_S3_BUCKET, MOONCAKE_OSS_BUCKET, MOONCAKE_AWS_BUCKET_NAME
 *	keys		MOONCAKE_S3_ACCESS_KEY_ID, MOONCAKE_S3_SECRET_ACCESS_KEY, MOONCAKE_S3_SESSION_TOKEN;
 *			MOONCAKE_OSS_ACCESS_KEY_ID, MOONCAKE_OSS_ACCESS_KEY_SECRET, MOONCAKE_OSS_SECURITY_TOKEN;
 *			MOONCAKE_AWS_ACCESS_KEY_ID, MOONCAKE_AWS_SECRET_ACCESS_KEY
 *	path style	MOONCAKE_S3_PATH_STYLE=1, MOONCAKE_OSS_PATH_STYLE=1 or MOONCAKE_AWS_USE_VIRTUAL_ADDRESSING=0:
 *			the bucket is in the path of the URL, not in the host.  If none is set: also if the endpoint is
 *			an address or localhost, and for https and a bucket with a dot, which no certificate covers
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
 * that does not exist; -EMSGSIZE: more than MCT_KEYED_MAX bytes; -ENOSPC; -EAGAIN: the server is overloaded;
 * -ETIMEDOUT, -ECONNREFUSED, -EHOSTUNREACH ...; -EIO.  Threads: any, also several processes on one directory. */
#ifndef MCT_KEYED_H
#define MCT_KEYED_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define MCT_KEYED_NAME_MAX 513u		/* with the NUL */
#define MCT_KEYED_MAX (64u << 20)	/* bytes of one */
#define MCT_KEYED_LIST_MAX (1u << 18)

struct mct_keyed_ops;

/* An open store, the first member of each tier's own structure. */
struct mct_keyed {
	const struct mct_keyed_ops *ops;
	char where[512];	/* for messages */
	/* The opener may set these before the first call: */
	unsigned limit_ms;	/* limit of one call to a server, with its attempts; 0: 10 minutes for each of them */
	const atomic_bool *cancel;	/* true ends calls to a server soon, with -ECANCELED; NULL: not used */
};

typedef int (*mct_keyed_fn)(void *arg, const char *name);

/* One const table per tier, complete.  Callers use the functions below, which check names, sizes and order. */
struct mct_keyed_ops {
	const char *name;
	/* As mct_keyed_open(). */
	int (*open)(const char *dir, struct mct_keyed **ret);
	void (*close)(struct mct_keyed *k);
	/* As the functions of the same name; names are valid. */
	int (*put)(struct mct_keyed *k, const char *name, const void *data, size_t len);
	int (*get)(struct mct_keyed *k, const char *name, void **ret, size_t *ret_len);
	int (*get_part)(struct mct_keyed *k, const char *name, uint64_t off, void *buf, size_t len);
	int (*swap)(struct mct_keyed *k, const char *name, const void *was, size_t was_len, const void *data,
		    size_t len);
	int (*del)(struct mct_keyed *k, const char *name);
	/* In any order; other names and invalid ones are allowed.  Only the negative results of @fn occur. */
	int (*list)(struct mct_keyed *k, const char *prefix, mct_keyed_fn fn, void *arg);
};

/* All keyed tiers; ends with NULL. */
extern const struct mct_keyed_ops *const mct_keyed_tiers[];

/* @tier: "local", with the root directory @place, which is created, and freed of unfinished puts of dead processes; or
 * "s3", with the bucket @place (NULL: that of the environment).  No network traffic.  -EINVAL: there is none of that
 * name. */
int mct_keyed_open(const char *tier, const char *place, struct mct_keyed **ret);
void mct_keyed_close(struct mct_keyed *k);		/* NULL is fine */
/* Where it is, for messages. */
const char *mct_keyed_where(const struct mct_keyed *k);

/* Whole or not at all, and durable when this returns 0.  Replaces. */
int mct_keyed_put(struct mct_keyed *k, const char *name, const void *data, size_t len);
/* *ret is malloc'ed, with a NUL behind its bytes. */
int mct_keyed_get(struct mct_keyed *k, const char *name, void **ret, size_t *ret_len);
/* Read @len bytes (1 or more) at @off into @buf.  -ERANGE: it is shorter. */
int mct_keyed_get_part(struct mct_keyed *k, const char *name, uint64_t off, void *buf, size_t len);
/* Put @data if the name has exactly these @was_len bytes now, or (@was NULL) if it does not exist; of several callers
 * at the same time one succeeds.  0 also if it has the bytes of @data.  -EEXIST: it has other bytes, or none.
 * S3: by conditional requests.  A server that refuses or ignores them stores the bytes after a comparison: then two
 * callers at the same time may both succeed, and the later put stays. */
int mct_keyed_swap(struct mct_keyed *k, const char *name, const void *was, size_t was_len, const void *data,
		   size_t len);
/* 0 also if there is none.  Durable when this returns 0. */
int mct_keyed_delete(struct mct_keyed *k, const char *name);
/* Call @fn for each name that begins with @prefix ("": all), in ascending order of the bytes.  A result other than 0 of
 * @fn ends the list and is returned; @fn may delete.  Files and objects without a valid name are not listed.
 * -EMSGSIZE: more than MCT_KEYED_LIST_MAX names. */
int mct_keyed_list(struct mct_keyed *k, const char *prefix, mct_keyed_fn fn, void *arg);
/* The same for any number of names: in any order, maybe a name twice, without a copy of the list.  @fn must not call
 * the store. */
int mct_keyed_walk(struct mct_keyed *k, const char *prefix, mct_keyed_fn fn, void *arg);

#endif
