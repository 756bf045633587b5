/* SPDX-License-Identifier: Apache-2.0
 * tls_cert.h - the certificate of this side, its authorities, and the identities of peers with certificates. */
#ifndef MC_TLS_CERT_H
#define MC_TLS_CERT_H

#include <openssl/ssl.h>

#include "common/security/tls.h"

struct mc_tls_certs;

/* Read the files of @conf into a context of @make.  Errors have a detail that names the file. */
int mc_tls_certs_new(const struct mc_tls_conf *conf, SSL_CTX *(*make)(void), struct mc_tls_certs **ret);
void mc_tls_certs_free(struct mc_tls_certs *c);		/* NULL is fine */

/* A new SSL with the certificate; the files are read again if they have changed.  If they cannot be read, those that
 * were read last stay, with a line in the log.  NULL: no memory.  Any thread. */
SSL *mc_tls_certs_ssl(struct mc_tls_certs *c);
/* The identity of the peer, whose certificate OpenSSL has verified in the handshake of @ssl.  -EACCES with a detail.
 * Any thread. */
int mc_tls_certs_principal(struct mc_tls_certs *c, const SSL *ssl, struct mc_principal *ret);

#endif
