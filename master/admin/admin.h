/* SPDX-License-Identifier: Apache-2.0
 * admin.h - the admin service: its HTTP routes, with upstream's paths and shapes, and their handlers. */
#ifndef MCM_ADMIN_H
#define MCM_ADMIN_H

#include <stdbool.h>

#include "common/net/httpd.h"

#define MCM_HTTP_THREADS 4
#define MCM_HTTP_BODY_MAX (4 << 20)	/* MCM_ADMIN_PINS keys of 1 KiB */

/* The handlers' argument is the struct mcm.  Until the master is ready, routes about its health and
 * metrics answer, and all others return 503. */
extern const struct mc_http_route mcm_http_routes[];

/* ---- admin_guard.c ---- */
struct mcm;
/* Refuse a request that a page of another site may have caused: its Origin is not its Host, its Host is neither an
 * address nor a private nor a configured name (any Host is accepted with @any_host), or its body is not JSON.  True:
 * the error was sent. */
bool mcm_admin_refused(struct mc_http_request *rq, const struct mcm *m, bool any_host);

/* ---- admin_keys.c ---- */
void mcm_admin_all_keys(struct mc_http_request *rq, void *arg);
void mcm_admin_key(struct mc_http_request *rq, void *arg);
void mcm_admin_batch_keys(struct mc_http_request *rq, void *arg);

/* ---- admin_jobs.c ---- */
void mcm_admin_drain_create(struct mc_http_request *rq, void *arg);
void mcm_admin_drain_query(struct mc_http_request *rq, void *arg);
void mcm_admin_drain_cancel(struct mc_http_request *rq, void *arg);
void mcm_admin_segment_status(struct mc_http_request *rq, void *arg);
void mcm_admin_remove_all(struct mc_http_request *rq, void *arg);
void mcm_admin_snapshot(struct mc_http_request *rq, void *arg);
void mcm_admin_snapshots(struct mc_http_request *rq, void *arg);
void mcm_admin_snapshot_verify(struct mc_http_request *rq, void *arg);
void mcm_admin_snapshot_restore(struct mc_http_request *rq, void *arg);
void mcm_admin_failover(struct mc_http_request *rq, void *arg);

/* ---- admin_quarantine.c ---- */
void mcm_admin_quarantine(struct mc_http_request *rq, void *arg);
void mcm_admin_quarantine_release(struct mc_http_request *rq, void *arg);

/* ---- admin_soft_pin.c ---- */
void mcm_admin_soft_pin(struct mc_http_request *rq, void *arg);

/* ---- admin_tenants.c ---- */
void mcm_admin_tenants(struct mc_http_request *rq, void *arg);

/* ---- admin_whatif.c ---- */
void mcm_admin_whatif(struct mc_http_request *rq, void *arg);

#endif
