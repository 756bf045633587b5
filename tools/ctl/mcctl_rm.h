/* SPDX-License-Identifier: Apache-2.0
 * mcctl_rm.h - the two ways of removing. */
#ifndef MCCTL_RM_H
#define MCCTL_RM_H

#include "tools/ctl/mcctl.h"

/* All keys with --prefix that --match matches; counts them and asks first. */
int mcctl_rm_matching(struct mcctl *c);

#endif
