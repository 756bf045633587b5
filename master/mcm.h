/* SPDX-License-Identifier: Apache-2.0
 * mcm.h - a master in this process: what mooncake_master's main() and mcfs --standalone use. */
#ifndef MCM_MCM_H
#define MCM_MCM_H

#include "common/options/options.h"

#define OPT MC_OPT_FIELD
struct mcm_conf {
#include "master/options.def"
};
#undef OPT

/* mooncake_master as a program: rows, aliases, what is absent. */
extern const struct mc_program mcm_program;

/* @conf with the defaults (and what the environment says); its strings belong to *ret_owner, to be
 * freed with mc_options_free() after mcm_stop(). */
int mcm_conf_defaults(struct mcm_conf *conf, struct mc_options **ret_owner);

/* What no single row can say: names of strategies, one value against another.  0, or -EINVAL with a
 * detail. */
int mcm_conf_check(const struct mcm_conf *conf);

struct mcm;

struct mcm_listen {
	const char *const *addrs;	/* RPC addresses as net.h, NULL-ended; may be empty or NULL */
	const char *local_name;		/* for "local:NAME" clients of this process, NULL: none */
	const char *http_addr;		/* host:port of the admin service, NULL: none */
};

/* Everything answers when this returns 0.  @conf is copied but for its strings, which have to stay;
 * its own addresses and ports and its log options are not looked at: @where says it.  Errors have a
 * detail; -EADDRINUSE names the address. */
int mcm_start(const struct mcm_conf *conf, const struct mcm_listen *where, struct mcm **ret);
/* End all connections, stop all threads, free.  NULL is fine. */
void mcm_stop(struct mcm *m);

/* The i-th bound RPC address with its real port, NULL past the end; the HTTP port, 0: none. */
const char *mcm_addr(const struct mcm *m, unsigned i);
int mcm_http_port(const struct mcm *m);

#endif
