/* SPDX-License-Identifier: Apache-2.0
 * admin_http.h - health, metrics and queries over HTTP, under upstream's routes and shapes. */
#ifndef MCM_ADMIN_HTTP_H
#define MCM_ADMIN_HTTP_H

#include "common/httpd.h"

#define MCM_HTTP_THREADS 4
#define MCM_HTTP_BODY_MAX 65536

/* Their argument is the struct mcm. */
extern const struct mc_http_route mcm_http_routes[];

#endif
