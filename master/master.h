/* SPDX-License-Identifier: Apache-2.0
 * master.h - a master in this process, as mooncake_master and mcfs --standalone use it. */
#ifndef MCM_MASTER_H
#define MCM_MASTER_H

#include <stdint.h>

#include "master/conf.h"

struct mcm;
struct mcm_audit;
struct mcm_security;

/* This master leads several. */
struct mcm_lead {
	struct mcm_feeders *feeders;
	const char *name;		/* name of this master */
	uint64_t term;
	/* Serve clients only from then on (mc_now_ns() scale): until then the last leader may still answer. */
	uint64_t serve_from;
	/* Clients of the last leader may need this time more than usually to find this one. */
	uint64_t silence_ms;
	uint32_t takeover_ms;		/* after a loss of this master another one leads within this time */
	void (*stopped)(void *arg);	/* called by mcm_stop(): no client is served any more */
	/* Give the lead to a standby soon.  -MC_EMODE with a detail: none could take over. */
	int (*step_down)(void *arg);
	/* The journal cannot be written: give the lead to a standby and end the term (ha/ha.h), or do nothing if there
	 * is none.  Called with the journal's file locked. */
	void (*lost)(void *arg);
	void *arg;
};

struct mcm_listen {
	const char *const *addrs;	/* RPC addresses (net.h), NULL-terminated; may be empty or NULL */
	const char *local_name;		/* address "local:NAME" for clients in this process; NULL: none */
	const char *http_addr;		/* host:port of the admin service; NULL: none */
	struct mcm_audit *audit;	/* security/audit.h; NULL: none */
	struct mcm_security *security;	/* security/security.h; NULL: off */
	const struct mcm_lead *lead;	/* high availability (ha/ha.h); NULL: this master is alone */
};

/* When this returns 0, all services answer.  @conf is copied except for its strings, which must
 * stay valid.  @where replaces the addresses and ports in @conf; the log options are ignored.
 * Errors have a detail; -EADDRINUSE names the address. */
int mcm_start(const struct mcm_conf *conf, const struct mcm_listen *where, struct mcm **ret);
/* Close all connections, stop all threads, free.  NULL is fine. */
void mcm_stop(struct mcm *m);

/* The i-th bound RPC address with its real port, NULL past the end; the HTTP port, 0: none. */
const char *mcm_addr(const struct mcm *m, unsigned i);
int mcm_http_port(const struct mcm *m);
/* Port of the metadata server inside; 0: there is none. */
int mcm_meta_port(const struct mcm *m);

#endif
