/* SPDX-License-Identifier: Apache-2.0
 * host.h - the address at which other nodes reach this one. */
#ifndef MCN_HOST_H
#define MCN_HOST_H

#include <mooncake/mcs.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/net/httpd.h"
#include "common/net/net.h"

/* Copies @host; if that is a wildcard address ("0.0.0.0"), uses the source address of the route to the first
 * address in @master. */
void mcn_host_of(const char *host, const char *master, char *ret, size_t size);

/* May the daemon listen at the address that mcn_host_of() gives?  @given: the user has set @host; @secured:
 * the daemon has a credential, so its peers prove theirs; @allowed: --allow_insecure.  0, or -EACCES
 * with a detail (common/net/guard.h). */
int mcn_host_check(const char *host, const char *master, bool given, bool secured, bool allowed);

/* Options of the daemon's HTTP server. */
struct mcn_http {
	const char *host;		/* --host; its port is not used */
	int port;
	bool given;			/* the user has set @host */
	bool allowed;			/* --allow_insecure */
	const char *cert, *key;		/* --http_tls_cert, --http_tls_key; "": none */
};

/* Make the server's address; a wildcard that the user has not set becomes the loopback, with a warning, unless it is
 * allowed, or the server has tokens and TLS.  0, or a negative error with a detail. */
int mcn_http_addr(const struct mcn_http *h, char ret[MC_ADDR_MAX]);
/* Its security: a daemon with a credential asks for tokens.  @store is used until the server has stopped. */
struct mc_httpd_security mcn_http_security(const struct mcn_http *h, mcs_t *store);

#endif
