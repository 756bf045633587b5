/* SPDX-License-Identifier: Apache-2.0
 * ha.h - one of several masters, for the program: wait for the lease as a standby, lead, and stop in time.
 *
 * A master leads only with the whole state: it is a member in the store (meta/seat.h).  Its answers leave only while
 * its own clock says that the lease is valid.  When the lease is lost the program starts itself again, as a standby:
 * nothing of the old term is left in the process. */
#ifndef MCM_HA_H
#define MCM_HA_H

#include "master/conf.h"
#include "master/master.h"

struct mcm_ha;

/* Check the options.  @where: the addresses of this master; the first one is its name, by which clients and other
 * masters reach it. */
int mcm_ha_new(const struct mcm_conf *conf, const struct mcm_listen *where, char **argv, struct mcm_ha **ret);
void mcm_ha_free(struct mcm_ha *ha);
/* Be a standby until this master leads: 1, and @where has got the member for mcm_start().  0: SIGINT or SIGTERM. */
int mcm_ha_await(struct mcm_ha *ha, struct mcm_listen *where);
/* After mcm_stop(): start the program again, as a standby, if the end was a request to step down; else return. */
void mcm_ha_stay(struct mcm_ha *ha);

#endif
