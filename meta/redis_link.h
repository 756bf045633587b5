/* SPDX-License-Identifier: Apache-2.0
 * redis_link.h - a connection to redis, with TLS or without.
 *
 * hiredis 0.14 knows no TLS, and its calls have a time limit per system call but no deadline; so the sockets are ours.
 * OpenSSL works on memory, and the bytes pass through the same two functions as without TLS.
 *
 * Errors are those of meta.h, with a detail that names the server.  One thread at a time. */
#ifndef MCD_REDIS_LINK_H
#define MCD_REDIS_LINK_H

#include <stddef.h>
#include <sys/types.h>

struct mcd_credentials;
struct mcd_link;
struct mcd_wait;

/* Connect to @addr ("host:port"); both pointers must outlive the link.  @tls: the files for TLS; NULL: none. */
int mcd_link_open(const char *addr, const struct mcd_credentials *tls, const struct mcd_wait *w, struct mcd_link **ret);
void mcd_link_close(struct mcd_link *l);	/* NULL is fine */
int mcd_link_send(struct mcd_link *l, const char *p, size_t len, const struct mcd_wait *w);
/* The number of bytes, at least 1.  -ECONNRESET: the server has closed the connection. */
ssize_t mcd_link_recv(struct mcd_link *l, char *buf, size_t size, const struct mcd_wait *w);

#endif
