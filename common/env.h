/* SPDX-License-Identifier: Apache-2.0
 * env.h - reading of the environment variables of upstream's engine (MC_*), which
 * transfer_engine(7) lists.  As in upstream, an invalid value causes a warning in the log, and the
 * default is used.  An empty variable counts as unset.  Any thread, while no thread calls setenv(). */
#ifndef MC_ENV_H
#define MC_ENV_H

#include <stdbool.h>
#include <stdint.h>

int64_t mc_env_int(const char *name, int64_t def, int64_t min, int64_t max);
/* Bytes, also with a unit, such as 64MB. */
uint64_t mc_env_size(const char *name, uint64_t def, uint64_t min, uint64_t max);
/* Set to anything but 0, false, no or off. */
bool mc_env_on(const char *name);
const char *mc_env_str(const char *name);	/* NULL when unset */
/* For a program at its start, while it has one thread, if no shared library of ours works for it: take the variables
 * with secrets (passwords, tokens and keys of other services) out of the environment, so that neither children nor
 * /proc/PID/environ have them.  mc_env_str() returns them nevertheless. */
void mc_env_hide(void);
/* The same for a program whose libraries read them: erase them in /proc/PID/environ only.  getenv() still returns them,
 * so children get mc_env_public(), the environment without them: a new array whose strings belong to the environment;
 * NULL: no memory. */
void mc_env_scrub(void);
char **mc_env_public(void);
/* The whole environment with them, for a program that runs itself again: a new array, whose other strings belong to
 * the environment; NULL: no memory. */
char **mc_env_revealed(void);
/* The shared directory that upstream's variables name: MOONCAKE_DFS_ROOT_DIR, or its default.  NULL unless
 * MOONCAKE_ENABLE_DFS is on. */
const char *mc_env_dfs(void);
/* A number from 0 to 1; @def when unset, or (with a line in the log) when it is none. */
double mc_env_ratio(const char *name, double def);
/* Name, in one line of the log, all variables of upstream that are set and have no effect in this version.  Only the
 * first call in a process does.  Libraries call it when a store or an engine is opened, programs when their log is
 * open. */
void mc_env_report_inert(void);

#endif
