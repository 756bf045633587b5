/* SPDX-License-Identifier: Apache-2.0
 * standby_http.h - the HTTP server of a standby: health, role, metrics.  It refuses the rest with the leader's name. */
#ifndef MCM_STANDBY_HTTP_H
#define MCM_STANDBY_HTTP_H

#include <stdbool.h>
#include <stdint.h>

#include "meta/seat.h"

struct mc_httpd;
struct mc_httpd_security;

struct mcm_standby_view {
	char leader[MCD_SEAT_NAME_MAX];	/* address of the leader; "": none is known */
	uint64_t term;
	bool ready;			/* this standby could take over now */
};

/* The server's threads call @view.  @security: common/net/httpd.h.  mc_httpd_stop() ends the server. */
int mcm_standby_http_start(const char *addr, void (*view)(void *arg, struct mcm_standby_view *ret), void *arg,
			   const struct mc_httpd_security *security, struct mc_httpd **ret);

#endif
