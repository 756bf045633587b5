/* SPDX-License-Identifier: Apache-2.0
 * tls_net.h - TLS between programs of a test, which share a fixed secret. */
#ifndef TLS_NET_H
#define TLS_NET_H

#include "common/net/stream.h"
#include "common/security/secret.h"

/* TLS over the kernel's sockets.  Connections present the credential "test" of role admin, unless
 * tls_net_present() was called. */
const struct mc_net *tls_net(void);

/* A credential under the fixed secret of cluster "test". */
void tls_net_make(struct mc_credential *ret, uint32_t role, const char *tenant, const char *name, uint64_t expires_s);
/* Give it another serial number than 7. */
void tls_net_serial(struct mc_credential *c, uint64_t serial);
/* The next connections present @c, which the caller keeps; NULL: the default. */
void tls_net_present(const struct mc_credential *c);

#endif
