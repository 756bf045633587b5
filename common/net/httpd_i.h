/* SPDX-License-Identifier: Apache-2.0
 * httpd_i.h - tokens and TLS of the HTTP server, private to it. */
#ifndef MC_HTTPD_I_H
#define MC_HTTPD_I_H

#include <stddef.h>

#include "common/net/httpd.h"

/* The texts of the two PEM files; NULL without TLS. */
struct mc_httpd_files {
	char *cert, *key;
	size_t key_size;
};

/* May a server with @sec (NULL: none) listen at @addr?  Reads the files.  Errors have a detail that names options. */
int mc_httpd_files_read(const struct mc_httpd_security *sec, const char *addr, struct mc_httpd_files *ret);
void mc_httpd_files_free(struct mc_httpd_files *f);	/* erases the key */

/* The principal of a request with this Authorization header; NULL: there is none.  -EACCES with a detail. */
int mc_httpd_identify(const struct mc_httpd_security *sec, const char *header, struct mc_principal *ret);

#endif
