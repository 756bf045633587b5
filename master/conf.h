/* SPDX-License-Identifier: Apache-2.0
 * conf.h - the options of a master. */
#ifndef MCM_CONF_H
#define MCM_CONF_H

#include "common/options/options.h"

#define OPT MC_OPT_FIELD
struct mcm_conf {
#include "master/options.def"
};
#undef OPT

/* The program mooncake_master: option rows, aliases, and upstream's options that it refuses. */
extern const struct mc_program mcm_program;

/* For a master inside another program: fill @conf from the defaults and the environment, but keep no journal, because
 * the pool ends with the program.  *ret_owner owns its strings: call
 * mc_options_free() after mcm_stop(). */
int mcm_conf_defaults(struct mcm_conf *conf, struct mc_options **ret_owner);

/* Check names and relations between options, which no single row can check.  0, or -EINVAL with a detail. */
int mcm_conf_check(const struct mcm_conf *conf);
/* Log the values that have no effect, or that of another value. */
void mcm_conf_report(const struct mcm_conf *conf);

#endif
