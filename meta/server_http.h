/* SPDX-License-Identifier: Apache-2.0
 * meta_http.h - the metadata server of transfer engines over HTTP: texts under keys, in memory or also in a
 * file.
 *
 *	GET    /metadata?key=K		200 and the text, 404 "metadata not found"
 *	PUT    /metadata?key=K[&ttl=S]	200 "metadata updated"; with ttl it goes after S seconds without
 *					another PUT (an extension: upstream's servers keep it)
 *	DELETE /metadata?key=K		200 "metadata deleted", 404
 *	GET    /health			"OK"; GET /metrics
 * A missing or blank key is 400.  A key with "rpc_meta" in it is written once: the same text again is 200
 * "metadata unchanged", another is 400 until it is deleted or has expired. */
#ifndef MCD_SERVER_HTTP_H
#define MCD_SERVER_HTTP_H

#include <stddef.h>
#include <stdint.h>

struct mcd_server;

struct mcd_server_conf {
	const char *addr;	/* "host:port", port 0: a free one */
	unsigned threads;	/* 0: 4 */
	const char *persist;	/* file to keep everything in over a restart; NULL: none */
	uint64_t max_bytes;	/* of keys and texts together, 507 beyond; 0: 1 GiB */
};

/* -EBUSY: another server has the file; -EINVAL: it is not one of ours. */
int mcd_server_start(const struct mcd_server_conf *conf, int *ret_port,
			struct mcd_server **ret);
void mcd_server_stop(struct mcd_server *m);	/* NULL is fine */

/* For the master, which knows when a node is gone.  0, or -ENOENT; any thread. */
int mcd_server_delete(struct mcd_server *m, const char *key);
/* Both records of a segment, also with a cluster id in their keys; how many there were. */
int mcd_server_forget(struct mcd_server *m, const char *segment_name);

#endif
