/* SPDX-License-Identifier: Apache-2.0
 * env.h - the environment variables of upstream's engine (MC_*), each read where it is used and listed in
 * transfer_engine(7).  As upstream does it, a value that makes no sense is a warning in the log, and the default
 * holds.  An empty variable is an unset one.  Any thread, as long as nobody calls setenv(). */
#ifndef MC_ENV_H
#define MC_ENV_H

#include <stdbool.h>
#include <stdint.h>

int64_t mc_env_int(const char *name, int64_t def, int64_t min, int64_t max);
/* Set to anything but 0, false, no or off. */
bool mc_env_on(const char *name);
/* The same for what is on unless it is switched off. */
bool mc_env_not_off(const char *name);
const char *mc_env_str(const char *name);	/* NULL when unset */

#endif
