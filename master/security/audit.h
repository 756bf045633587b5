/* SPDX-License-Identifier: Apache-2.0
 * audit.h - the audit log of a master's process: --audit_log.
 *
 * One line of JSON for each refusal, each call of an administrator, each credential that was made or revoked, and
 * each MOUNT, UNMOUNT, JOIN and begin of a FEED.  docs/SECURITY.md describes the fields.  A line has no secrets,
 * tokens, keys of objects or values.
 *
 * A thread writes the lines; the functions below only copy them to memory and never wait for a disk.  When that memory
 * is full, or a line cannot be written, the line is lost and counted.  Failures of one identity beyond ten per second
 * are only counted: the next line of the identity has their number. */
#ifndef MCM_AUDIT_H
#define MCM_AUDIT_H

#include "common/net/httpd.h"
#include "common/principal.h"
#include "master/conf.h"
#include "proto/rpc_server.h"

struct mcm_audit;

/* Open the log that the options name.  0 and NULL: there is none.  Errors have a detail. */
int mcm_audit_open(const struct mcm_conf *conf, struct mcm_audit **ret);
/* Write the lines that wait, and end.  When the disk takes none of them for 2 s, the log gives up: a master must end
 * then, too.  NULL is fine here and below. */
void mcm_audit_close(struct mcm_audit *a);
/* Open the file again, because it was renamed.  Does not wait. */
void mcm_audit_reopen(struct mcm_audit *a);

/* ---- events; any thread ---- */

struct mcm_audit_event {
	const char *event;		/* "refused", "call" ... */
	const struct mc_principal *who;	/* NULL: not known */
	struct mcp_bytes peer;		/* its address; the port is not counted as a part of an identity */
	const char *channel;		/* "rpc", "unix", "local" or "http" */
	const char *call;		/* message or route; NULL: none */
	int64_t keys;			/* number of keys; negative: not known */
	struct mcp_bytes subject;	/* the thing concerned: a segment, a standby, a credential; empty: none */
	int result;			/* 0 or more: done; or the error */
};
void mcm_audit_write(struct mcm_audit *a, const struct mcm_audit_event *e);

/* A request of type @type, with @body of @len bytes, has ended with @result. */
void mcm_audit_request(struct mcm_audit *a, struct mcp_session *s, uint16_t type, const void *body, size_t len,
		       int result);
/* The message types, besides those of administrators, whose requests are events; ends with 0. */
extern const uint16_t mcm_audited[];
/* The credential @identity was made at the request of @s. */
void mcm_audit_credential(struct mcm_audit *a, struct mcp_session *s, const char *identity);
/* For mc_tls_conf.refused; @audit: a struct mcm_audit. */
void mcm_audit_connect_refused(void *audit, const char *peer, const char *why);
/* For mc_httpd_security.refused. */
void mcm_audit_http_refused(struct mcm_audit *a, const struct mc_http_request *rq, const char *why);
/* A request to a route for peers with one of @roles was answered by its handler; @rq->status is final. */
void mcm_audit_http(struct mcm_audit *a, const struct mc_http_request *rq, uint32_t roles);

#endif
