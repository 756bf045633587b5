/* SPDX-License-Identifier: Apache-2.0
 * credentials.h - the file with the user, the password and the TLS files for etcd and Redis.
 *
 * Text, a word and a value per line; the value is the rest of the line, '#' begins a comment line:
 *
 *	user NAME
 *	password PASSWORD
 *	ca /FILE	the authorities, PEM, of which one has signed the server's certificate
 *	cert /FILE	the client's certificate, PEM
 *	key /FILE	its key, PEM
 *
 * A file that its group or others may read is refused, and so is such a key.  The file is read when a connection string
 * is opened; the files that it names are read for each connection, so certificates can be renewed. */
#ifndef MCD_CREDENTIALS_H
#define MCD_CREDENTIALS_H

#include <stdbool.h>
#include <stddef.h>

struct mcd_credentials {
	char *path;			/* NULL: there is no file, and the other members are NULL */
	char *user, *password;		/* NULL: none */
	char *ca, *cert, *key;		/* paths; NULL: none; cert and key only together */
};

/* @path: NULL: the one in MC_STORE_CREDENTIALS; "", or an unset variable: there is none.  -EINVAL, -EACCES, ... with a
 * detail that names the file, and never its values. */
int mcd_credentials_read(const char *path, struct mcd_credentials *ret);
/* Erases the password. */
void mcd_credentials_done(struct mcd_credentials *c);
/* Does the file ask for TLS? */
static inline bool mcd_credentials_tls(const struct mcd_credentials *c)
{
	return c->ca || c->cert;
}

/* A connection string has the password in its part @secret: warn once per process if that is on the command line. */
void mcd_password_seen(const char *secret, size_t len);

/* Add advice to the detail of error @err, from libcurl or OpenSSL, if TLS is the reason; returns @err.  @fresh: a new
 * connection with TLS failed.  @plain, @tls: how addresses without and with TLS begin, as "http://". */
int mcd_tls_advise(int err, const struct mcd_credentials *c, bool fresh, const char *plain, const char *tls);

#endif
