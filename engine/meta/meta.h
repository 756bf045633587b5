/* SPDX-License-Identifier: Apache-2.0
 * meta.h - the metadata server of a cluster of transfer engines: small texts under keys.
 *
 * A connection string says which:
 *	http://HOST:PORT/metadata, https://...	upstream's HTTP metadata server, or ours
 *	etcd://[USER:PASSWORD@]HOST:PORT[,HOST:PORT...]
 *						etcd 3.4 or later, by its HTTP gateway; also without "etcd://"
 *	redis://[[USER]:PASSWORD@]HOST:PORT[/DB]	redis 4 or later
 *	P2PHANDSHAKE				no server: mce_meta_is_p2p(), not for mce_meta_open()
 *
 * What is published expires on the server when this process stops refreshing it: after MC_METADATA_TTL_SEC
 * (30 s) with etcd, redis and our HTTP server; upstream's HTTP servers keep it until it is taken back.
 *
 * Errors, with details that name the server: -ENOENT no such key; -EEXIST another node has it (rpc_meta over
 * HTTP), -MC_EOWNER it turned out later that it has; -EINVAL the connection string or an answer makes no sense;
 * -EACCES wrong password; -EMSGSIZE the text is too long for the server; -ETIMEDOUT, -ECONNREFUSED, ... it
 * cannot be reached.
 * Threads: any, but nothing may overlap with mce_meta_close().  A forked child is refused (-MC_EUNAVAILABLE); closing
 * does nothing there. */
#ifndef MCE_META_H
#define MCE_META_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MCE_META_TEXT_MAX (64u << 20)	/* bytes of one text */
#define MCE_META_KEY_MAX 1024		/* bytes of a key, with its NUL */

struct mce_meta;

/* No network traffic: the first use says what is wrong with the server.  -EINVAL with a detail that names the
 * known forms. */
int mce_meta_open(const char *conn, struct mce_meta **ret);
bool mce_meta_is_p2p(const char *conn);
/* Stops refreshing; what is still published is left to expire.  Returns within about two seconds.  NULL is fine. */
void mce_meta_close(struct mce_meta *m);

/* *ret_text is NUL-terminated; free() it. */
int mce_meta_get(struct mce_meta *m, const char *key, char **ret_text, uint64_t deadline);

/* Put @text under @key and keep it there, from a thread of this object, until mce_meta_unpublish(); a server
 * that went away gets it again when it is back.  Replaces what this object published under @key before.
 * Negative: the server has not got it yet.  It stays ours all the same and is tried again, but for a key that
 * was not ours before and that was refused (-EEXIST, -EINVAL, -EACCES, -EMSGSIZE). */
int mce_meta_publish(struct mce_meta *m, const char *key, const char *text, uint64_t deadline);
/* For a key that one node alone may have: asked when @theirs is there instead of @text.  0: the node it is of is gone,
 * and it is replaced; negative: that is not sure. */
typedef int (*mce_meta_claim_fn)(const char *key, const char *text, const char *theirs, uint64_t deadline);
/* mce_meta_publish() of such a key.  When the refresher finds, later, that the node that has it lives, everything that
 * belongs to the name is in doubt: until that node goes nothing more is published or taken back, and
 * mce_meta_publish() fails with -MC_EOWNER and a detail that says why. */
int mce_meta_publish_alone(struct mce_meta *m, const char *key, const char *text,
			   mce_meta_claim_fn claim, uint64_t deadline);
/* Publishing failed with @r: is it one of those that go on by themselves, the server being out of reach? */
bool mce_meta_keeps(int r);
/* The last call that published found the server out of reach: who has time for later need not wait for the next. */
bool mce_meta_away(struct mce_meta *m);
/* Take it back from the server.  When that fails it is tried again until close, and expires by itself then.  Nothing
 * happens to a key that this object has not published, nor to what another has put there since: it is its own. */
int mce_meta_unpublish(struct mce_meta *m, const char *key, uint64_t deadline);

/* ---- what engines keep there ------------------------------------------------------------------- */

/* "mooncake/[CLUSTER/]ram/NAME", or "mooncake/NAME" when the name has a slash; CLUSTER is
 * MC_METADATA_CLUSTER_ID.  -EINVAL for a name that is empty or too long. */
int mce_meta_key_segment(const char *name, char ret[MCE_META_KEY_MAX]);
/* "mooncake/[CLUSTER/]rpc_meta/NAME". */
int mce_meta_key_rpc(const char *name, char ret[MCE_META_KEY_MAX]);

#define MCE_META_HOST_MAX 256

/* Where a node's handshake daemon is. */
struct mce_rpc_meta {
	char host[MCE_META_HOST_MAX];
	int port;
};
int mce_rpc_meta_get(struct mce_meta *m, const char *name, struct mce_rpc_meta *ret,
		     uint64_t deadline);
/* Publish it.  A record of another node under that name (which died without taking it back: upstream's HTTP servers
 * never forget) is replaced when it names our own address, when its host refuses the connection, or when a node of
 * another name answers there; else -EEXIST, also when nothing can be found out. */
int mce_rpc_meta_publish(struct mce_meta *m, const char *name, const struct mce_rpc_meta *rpc,
			 uint64_t deadline);
int mce_rpc_meta_unpublish(struct mce_meta *m, const char *name, uint64_t deadline);
int mce_rpc_meta_decode(const char *text, size_t len, struct mce_rpc_meta *ret);

#endif
