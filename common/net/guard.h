/* SPDX-License-Identifier: Apache-2.0
 * guard.h - the rule for listeners that other hosts reach: they need credentials, or the operator's permission.
 *
 * A program checks each address that the user has given before it listens (mc_guard_listen()), and takes the loopback
 * where the user has given none (mc_guard_default()).  A library only warns (mc_guard_library()), because programs that
 * were written for upstream run unmodified.  Each process logs at most one warning of each of the two kinds, "only this
 * host" and "all hosts".  Any thread. */
#ifndef MC_GUARD_H
#define MC_GUARD_H

#include <stdbool.h>

#define MC_GUARD_LOOPBACK "127.0.0.1"
#define MC_GUARD_ENV "MC_ALLOW_INSECURE"	/* environment variable of --allow_insecure */

struct mc_guard {
	const char *harm;	/* possible actions of a peer: "read and change the metadata" */
	const char *secure;	/* how to secure the listener: "use --security=on"; NULL: it cannot be secured */
	const char *shown;	/* value of the option as the user has written it; NULL: the address */
	bool secured;		/* the listener demands credentials */
	bool allowed;		/* --allow_insecure */
	bool strict;		/* @secure is the only remedy: @allowed is ignored, and no advice names it */
};

/* Listeners of a pool. */
#define MC_GUARD_POOL_HARM "read, change and remove all objects"
#define MC_GUARD_POOL_SECURE "use --security=on (docs/SECURITY.md)"

/* Is @host (a numeric address, in brackets or not, or "localhost") the loopback?  Other names are not looked up: no. */
bool mc_host_is_loopback(const char *host);
/* May a program listen at @addr, "HOST[:PORT]" or "unix:...", the value of @option?  0; logs the warning where only
 * @allowed admits it.  -EACCES with a detail that names option, reason and remedies. */
int mc_guard_listen(const struct mc_guard *g, const char *option, const char *addr);
/* The host for an option that the user has not set: @def, after the check of mc_guard_listen(), or MC_GUARD_LOOPBACK
 * with a warning where other hosts could reach @def.  Constant, or @def. */
const char *mc_guard_default(const struct mc_guard *g, const char *option, const char *def);
/* The two halves of mc_guard_default(), for a program that warns when nothing else can fail: must a default @def become
 * MC_GUARD_LOOPBACK?  The warning that it has. */
bool mc_guard_closes(const struct mc_guard *g, const char *def);
void mc_guard_warn_closed(const struct mc_guard *g);
/* A library listens at @addr for @harm: logs the warning, unless it is local, or @allowed. */
void mc_guard_library(const char *harm, const char *addr, bool allowed);

#endif
