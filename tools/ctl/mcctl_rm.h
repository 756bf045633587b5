/* SPDX-License-Identifier: Apache-2.0
 * mcctl_rm.h - the two ways of removing. */
#ifndef MCCTL_RM_H
#define MCCTL_RM_H

#include "tools/ctl/mcctl.h"

/* Remove all keys that begin with --prefix and match --match, after counting them and asking the user. */
int mcctl_rm_matching(struct mcctl *c);

#endif
