/* SPDX-License-Identifier: Apache-2.0
 * meta.h - the metadata server of a cluster of transfer engines: small texts under keys.
 *
 * A connection string says which:
 *	http://HOST:PORT/metadata, https://...	upstream's HTTP metadata server, or ours
 *	etcd://[USER:PASSWORD@]HOST:PORT[,HOST:PORT...]
 *						etcd 3.4 or later, by its HTTP gateway; also without "etcd://"
 *	redis://[[USER]:PASSWORD@]HOST:PORT[/DB]	redis 4 or later
 *	P2PHANDSHAKE				no server: mcd_is_p2p(), not for mcd_open()
 *
 * What is published expires on the server when this process stops refreshing it: after MC_METADATA_TTL_SEC
 * (30 s) with etcd, redis and our HTTP server; upstream's HTTP servers keep it until it is taken back.
 *
 * Errors, with details that name the server: -ENOENT no such key; -EEXIST another node has it (rpc_meta over
 * HTTP), -MC_EOWNER it turned out later that it has; -EINVAL the connection string or an answer makes no sense;
 * -EACCES wrong password; -EMSGSIZE the text is too long for the server; -ETIMEDOUT, -ECONNREFUSED, ... it
 * cannot be reached.
 * Threads: any, but nothing may overlap with mcd_close().  A forked child is refused (-MC_EUNAVAILABLE); closing
 * does nothing there. */
#ifndef MCD_META_H
#define MCD_META_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MCD_TEXT_MAX (64u << 20)	/* bytes of one text */
#define MCD_KEY_MAX 1024		/* bytes of a key, with its NUL */

struct mcd_client;

/* No network traffic: the first use says what is wrong with the server.  -EINVAL with a detail that names the
 * known forms. */
int mcd_open(const char *conn, struct mcd_client **ret);
bool mcd_is_p2p(const char *conn);
/* Stops refreshing; what is still published is left to expire.  Returns within about two seconds.  NULL is fine. */
void mcd_close(struct mcd_client *m);

/* *ret_text is NUL-terminated; free() it. */
int mcd_get(struct mcd_client *m, const char *key, char **ret_text, uint64_t deadline);

/* Put @text under @key and keep it there, from a thread of this object, until mcd_unpublish(); a server
 * that went away gets it again when it is back.  Replaces what this object published under @key before.
 * Negative: the server has not got it yet.  It stays ours all the same and is tried again, but for a key that
 * was not ours before and that was refused (-EEXIST, -EINVAL, -EACCES, -EMSGSIZE). */
int mcd_publish(struct mcd_client *m, const char *key, const char *text, uint64_t deadline);
/* For a key that one node alone may have: asked when @theirs is there instead of @text.  0: the node it is of is gone,
 * and it is replaced; negative: that is not sure. */
typedef int (*mcd_claim_fn)(const char *key, const char *text, const char *theirs, uint64_t deadline);
/* mcd_publish() of such a key.  When the refresher finds, later, that the node that has it lives, everything that
 * belongs to the name is in doubt: until that node goes nothing more is published or taken back, and
 * mcd_publish() fails with -MC_EOWNER and a detail that says why. */
int mcd_publish_alone(struct mcd_client *m, const char *key, const char *text,
			   mcd_claim_fn claim, uint64_t deadline);
/* Publishing failed with @r: is it one of those that go on by themselves, the server being out of reach? */
bool mcd_keeps(int r);
/* The last call that published found the server out of reach: who has time for later need not wait for the next. */
bool mcd_away(struct mcd_client *m);
/* Take it back from the server.  When that fails it is tried again until close, and expires by itself then.  Nothing
 * happens to a key that this object has not published, nor to what another has put there since: it is its own. */
int mcd_unpublish(struct mcd_client *m, const char *key, uint64_t deadline);

#endif
