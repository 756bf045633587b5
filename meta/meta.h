/* SPDX-License-Identifier: Apache-2.0
 * meta.h - client of a metadata server, which keeps small texts under keys for a cluster of transfer engines.
 *
 * The connection string chooses the kind of server:
 *	http://HOST:PORT/metadata, https://...	upstream's HTTP metadata server, or ours
 *	etcd://[USER:PASSWORD@]HOST:PORT[,HOST:PORT...]
 *						etcd 3.4 or later, over its HTTP gateway; also without "etcd://"
 *	redis://[[USER]:PASSWORD@]HOST:PORT[/DB]	redis 4 or later; rediss://... with TLS
 *	P2PHANDSHAKE				no server: mcd_is_p2p(), not for mcd_open()
 *
 * The file that MC_STORE_CREDENTIALS names has user, password and the files for TLS (credentials.h).
 *
 * A published text expires on the server MC_METADATA_TTL_SEC (30 s) after this process stops refreshing
 * it, with etcd, redis and our HTTP server; upstream's HTTP servers keep it until it is unpublished.
 *
 * Errors, with details that name the server: -ENOENT no such key; -EEXIST another node has the key
 * (rpc_meta over HTTP); -MC_EOWNER the refresher found later that another node has it; -EINVAL invalid
 * connection string or answer; -EACCES wrong password; -EMSGSIZE the text is too long for the server;
 * -ETIMEDOUT, -ECONNREFUSED, ... the server cannot be reached.
 * Threads: any, but no call may overlap with mcd_close().  Calls in a forked child fail with -MC_EUNAVAILABLE;
 * mcd_close() does nothing there. */
#ifndef MCD_META_H
#define MCD_META_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MCD_TEXT_MAX (64u << 20)	/* bytes of one text */
#define MCD_KEY_MAX 1024		/* bytes of a key, with its NUL */

struct mcd_client;

/* No network traffic: errors of the server appear at the first use.  -EINVAL with a detail that names the known
 * forms. */
int mcd_open(const char *conn, struct mcd_client **ret);
bool mcd_is_p2p(const char *conn);
/* Stop refreshing, so that published texts expire.  Returns within about two seconds.  NULL is fine. */
void mcd_close(struct mcd_client *m);

/* *ret_text is NUL-terminated; free() it. */
int mcd_get(struct mcd_client *m, const char *key, char **ret_text, uint64_t deadline);

/* Put @text under @key and let a thread of this object refresh it until mcd_unpublish(); the thread
 * sends it again when an unreachable server is back.  Replaces the text that this object published
 * under @key before. Negative: the server does not have the text yet.  The thread keeps trying, except
 * for a new key that the server refused (-EEXIST, -EINVAL, -EACCES, -EMSGSIZE). */
int mcd_publish(struct mcd_client *m, const char *key, const char *text, uint64_t deadline);
/* Callback for a key that belongs to one node, called if the server has @theirs instead of @text.  0:
 * the node that published @theirs is dead, so replace its text; negative: it may be alive. */
typedef int (*mcd_claim_fn)(const char *key, const char *text, const char *theirs, uint64_t deadline);
/* mcd_publish() of such a key.  If the refresher finds later that another live node has the key, all
 * keys of the name may be that node's.  Until that node ends, this object neither publishes nor
 * unpublishes, and mcd_publish() fails with -MC_EOWNER and a detail with the reason. */
int mcd_publish_exclusive(struct mcd_client *m, const char *key, const char *text,
			  mcd_claim_fn claim, uint64_t deadline);
/* True if the refresher retries a publication that failed with @r, because the server cannot be reached. */
bool mcd_will_retry(int r);
/* True if the last publication could not reach the server: a caller can avoid waiting for the next one. */
bool mcd_unreachable(struct mcd_client *m);
/* Remove the key from the server.  On failure the refresher retries until mcd_close(); then the key expires.  A
 * key that this object has not published stays, and so does the text of another node that has replaced ours. */
int mcd_unpublish(struct mcd_client *m, const char *key, uint64_t deadline);

#endif
