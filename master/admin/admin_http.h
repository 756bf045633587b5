/* SPDX-License-Identifier: Apache-2.0
 * admin_http.h - health, metrics and queries over HTTP, under upstream's routes and shapes. */
#ifndef MCM_ADMIN_HTTP_H
#define MCM_ADMIN_HTTP_H

#include "common/net/httpd.h"

#define MCM_HTTP_THREADS 4
#define MCM_HTTP_BODY_MAX 65536

/* Their argument is the struct mcm.  Before the master is ready only what is about its health answers;
 * the rest says 503. */
extern const struct mc_http_route mcm_http_routes[];

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
void mcm_admin_tenants(struct mc_http_request *rq, void *arg);

#endif
