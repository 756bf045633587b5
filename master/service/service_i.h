/* SPDX-License-Identifier: Apache-2.0
 * service_i.h - one handler per message of proto/msg.def, and helpers that they share. */
#ifndef MCM_SERVICE_I_H
#define MCM_SERVICE_I_H

#include "proto/rpc_server.h"

struct mcm;
struct mcm_session;

#define MCM_HANDLER(name) \
	int name(struct mcp_session *s, const void *body, size_t len, struct mcp_answer *answer, void *arg)

/* ---- service.c ---- */

/* Only a registered connection may act for its client: another program with the same client id was
 * refused by REGISTER.  -MC_EOWNER. */
int mcm_serve_check_registered(const struct mcp_session *s);
/* May the session write to segments?  -MC_EVERSION. */
int mcm_serve_check_writer(const struct mcm_session *s);
/* May the peer request something that concerns all tenants?  -EACCES with @subject in its detail: its identity belongs
 * to one tenant. */
int mcm_serve_check_tenantless(const struct mcp_session *s, const char *subject);
/* For lists whose elements have a key: prefetch memory for the lookups of the next MCM_PREFETCH_MAX elements.
 * Call it once before each group of that many.  @key: offset of the key in the element's struct. */
void mcm_serve_prefetch(struct mcm *m, struct mcp_iter it, size_t key);

/* ---- service_put.c ---- */
MCM_HANDLER(mcm_serve_put_start);
MCM_HANDLER(mcm_serve_put_end);
MCM_HANDLER(mcm_serve_put_revoke);

/* ---- service_get.c ---- */
MCM_HANDLER(mcm_serve_get);
MCM_HANDLER(mcm_serve_capabilities);
MCM_HANDLER(mcm_serve_release);
MCM_HANDLER(mcm_serve_renew);
MCM_HANDLER(mcm_serve_exist);
MCM_HANDLER(mcm_serve_bad_copy);
MCM_HANDLER(mcm_serve_tier);

/* ---- service_name.c ---- */
MCM_HANDLER(mcm_serve_remove);
MCM_HANDLER(mcm_serve_clear);
MCM_HANDLER(mcm_serve_set_attrs);
MCM_HANDLER(mcm_serve_remove_match);
MCM_HANDLER(mcm_serve_rename);
MCM_HANDLER(mcm_serve_rename_dir);
MCM_HANDLER(mcm_serve_link);
MCM_HANDLER(mcm_serve_list);

/* ---- service_task.c ---- */
MCM_HANDLER(mcm_serve_task_create);
MCM_HANDLER(mcm_serve_tasks);
MCM_HANDLER(mcm_serve_task_cancel);
MCM_HANDLER(mcm_serve_task_fetch);
MCM_HANDLER(mcm_serve_copied);
MCM_HANDLER(mcm_serve_adopt);
MCM_HANDLER(mcm_serve_used);
MCM_HANDLER(mcm_serve_describe);

/* ---- service_event.c ---- */
MCM_HANDLER(mcm_serve_events);

/* ---- service_security.c ---- */
MCM_HANDLER(mcm_serve_ticket);
MCM_HANDLER(mcm_serve_identify);
MCM_HANDLER(mcm_serve_revoked);
MCM_HANDLER(mcm_serve_disk_key);
MCM_HANDLER(mcm_serve_credential_create);
MCM_HANDLER(mcm_serve_credentials);
MCM_HANDLER(mcm_serve_credential_revoke);

/* ---- service_tenant.c ---- */
MCM_HANDLER(mcm_serve_tenants);
MCM_HANDLER(mcm_serve_quota);

#endif
