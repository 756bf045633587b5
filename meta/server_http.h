/* SPDX-License-Identifier: Apache-2.0
 * server_http.h - HTTP metadata server for transfer engines: texts under keys, in memory and optionally in a
 * file.
 *
 *	GET    /metadata?key=K		200 and the text, 404 "metadata not found"
 *	PUT    /metadata?key=K[&ttl=S]	200 "metadata updated"; with ttl the text expires S seconds after the
 *					last PUT (an extension: upstream's servers keep it)
 *	DELETE /metadata?key=K		200 "metadata deleted", 404
 *	GET    /health			"OK"; GET /metrics
 * A missing or blank key is 400.  A key with "rpc_meta" in it is written once: the same text again is 200
 * "metadata unchanged", another text is 400 until the key is deleted or expires. */
#ifndef MCD_SERVER_HTTP_H
#define MCD_SERVER_HTTP_H

#include <stddef.h>
#include <stdint.h>

struct mc_httpd_security;
struct mcd_server;

struct mcd_server_conf {
	const char *addr;	/* "host:port", port 0: any free port */
	unsigned threads;	/* 0: 4 */
	const char *persist;	/* file that keeps all texts for a restart; NULL: none */
	uint64_t max_bytes;	/* limit for keys and texts, status 507 above it; 0: 1 GiB */
	uint64_t max_keys;	/* limit of keys, status 507 above it; 0: none */
	uint64_t max_body;	/* limit of one text, status 413 above it; 0: 64 MiB, the most */
	const struct mc_httpd_security *security;	/* tokens and TLS (common/net/httpd.h), copied; NULL: none */
	const char *token;	/* for "Authorization: Bearer", else /metadata answers 401; NULL: none is needed */
};

/* The token of the environment (meta/token.h), malloc'ed; NULL: there is none.  Errors have a detail. */
int mcd_server_token(char **ret);

/* -EBUSY: another server uses the file; -EINVAL: it is not a metadata file. */
int mcd_server_start(const struct mcd_server_conf *conf, int *ret_port, struct mcd_server **ret);
void mcd_server_stop(struct mcd_server *m);	/* NULL is fine */

/* Delete both records of a segment, also with a cluster id in their keys; returns their number. */
int mcd_server_forget(struct mcd_server *m, const char *segment_name);

#endif
