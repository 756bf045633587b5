/* SPDX-License-Identifier: Apache-2.0
 * service.h - the master behind the wire: one handler per message. */
#ifndef MCM_SERVICE_H
#define MCM_SERVICE_H

#include "proto/rpc_server.h"

/* Ends with type 0; the handlers' argument is the struct mcm. */
extern const struct mcp_handler mcm_handlers[];
extern const uint16_t mcm_any_channel[];	/* those of them that the lane of heartbeats takes */

int mcm_session_opened(struct mcp_session *s, void *arg);
void mcm_session_closed(struct mcp_session *s, void *arg);

/* May this connection act for the client of its hello?  Only when REGISTER has been granted: another program
 * that has the same id was refused it.  -MC_EOWNER. */
int mcm_serve_acts(const struct mcp_session *s);
/* For lists whose elements have a key: load what looking up the next MCM_PREFETCH_MAX of them will need.
 * To be called before the first of each so many.  @key: offset of the key in the element's struct. */
struct mcm;
void mcm_serve_prefetch(struct mcm *m, struct mcp_iter it, size_t key);

/* service_put.c */
int mcm_serve_put_start(struct mcp_session *s, const void *body, size_t len,
			struct mcp_answer *answer, void *arg);
int mcm_serve_put_end(struct mcp_session *s, const void *body, size_t len,
		      struct mcp_answer *answer, void *arg);
int mcm_serve_put_revoke(struct mcp_session *s, const void *body, size_t len,
			 struct mcp_answer *answer, void *arg);
/* service_get.c */
int mcm_serve_get(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *answer,
		  void *arg);
int mcm_serve_release(struct mcp_session *s, const void *body, size_t len,
		      struct mcp_answer *answer, void *arg);
int mcm_serve_renew(struct mcp_session *s, const void *body, size_t len,
		    struct mcp_answer *answer, void *arg);
int mcm_serve_exist(struct mcp_session *s, const void *body, size_t len,
		    struct mcp_answer *answer, void *arg);
/* service_name.c */
int mcm_serve_remove(struct mcp_session *s, const void *body, size_t len,
		     struct mcp_answer *answer, void *arg);
int mcm_serve_remove_match(struct mcp_session *s, const void *body, size_t len,
			   struct mcp_answer *answer, void *arg);
int mcm_serve_rename(struct mcp_session *s, const void *body, size_t len,
		     struct mcp_answer *answer, void *arg);
int mcm_serve_list(struct mcp_session *s, const void *body, size_t len,
		   struct mcp_answer *answer, void *arg);
/* service_task.c */
int mcm_serve_task_create(struct mcp_session *s, const void *body, size_t len,
			  struct mcp_answer *answer, void *arg);
int mcm_serve_tasks(struct mcp_session *s, const void *body, size_t len,
		    struct mcp_answer *answer, void *arg);
int mcm_serve_task_cancel(struct mcp_session *s, const void *body, size_t len,
			  struct mcp_answer *answer, void *arg);
int mcm_serve_task_fetch(struct mcp_session *s, const void *body, size_t len,
			 struct mcp_answer *answer, void *arg);
int mcm_serve_copied(struct mcp_session *s, const void *body, size_t len,
		     struct mcp_answer *answer, void *arg);
/* service_event.c */
int mcm_serve_events(struct mcp_session *s, const void *body, size_t len,
		     struct mcp_answer *answer, void *arg);

/* service_tenant.c */
int mcm_serve_tenants(struct mcp_session *s, const void *body, size_t len,
		      struct mcp_answer *answer, void *arg);
int mcm_serve_quota(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *answer,
		    void *arg);

#endif
