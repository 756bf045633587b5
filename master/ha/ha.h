/* SPDX-License-Identifier: Apache-2.0
 * ha.h - one of several masters, for the program: wait for the lease as a standby, lead, and stop in time.
 *
 * A master leads only with the whole state: it is a member in the store (meta/seat.h).  Its answers leave only while
 * its own clock says that the lease is valid.  When its term ends before the program does, nothing of that term may
 * stay in the process: the program starts itself again, as a standby.
 *
 * Order of calls: mcm_ha_new(), mcm_ha_await(), mcm_start(), mcm_stop(), mcm_ha_stay(), mcm_ha_free(). */
#ifndef MCM_HA_H
#define MCM_HA_H

#include "master/conf.h"
#include "master/master.h"

struct mcm_ha;

enum mcm_ha_end {
	MCM_HA_STOP,	/* the master steps down: stop it as at the end of the program, then call mcm_ha_stay() */
	MCM_HA_RESTART,	/* another master may lead: leave everything, and begin again with mcm_ha_new() */
};

struct mcm_ha_conf {
	const struct mcm_conf *conf;	/* must stay */
	/* The addresses of this master; the first one is its name, by which clients and other masters reach it.  Must
	 * stay. */
	const struct mcm_listen *where;
	/* The term ends, because of @why: once with MCM_HA_RESTART, before it perhaps with MCM_HA_STOP.  Called on the
	 * thread of the lease, on one that writes the journal (and has its file locked), or by mcm_ha_stay().  For
	 * MCM_HA_RESTART it need not return.  If it does, no answer leaves this master any more, and mcm_stop() and
	 * mcm_ha_free() may follow, on another thread. */
	void (*end)(void *arg, enum mcm_ha_end end, const char *why);
	void *arg;
};

/* Check the options.  -EINVAL with a detail.  @conf is copied. */
int mcm_ha_new(const struct mcm_ha_conf *conf, struct mcm_ha **ret);
/* NULL is fine. */
void mcm_ha_free(struct mcm_ha *ha);
/* Be a standby until this master leads: 1, and @where has got the member for mcm_start().  0: SIGINT or SIGTERM. */
int mcm_ha_await(struct mcm_ha *ha, struct mcm_listen *where);
/* The same in parts, for tests.  mcm_ha_start() once: serve as a standby.  Then mcm_ha_step() again and again, with
 * pauses of 10 ms: ask the store and the leader, if it is time, and take the lease, if this master may.  1: it leads;
 * 0: not yet. */
int mcm_ha_start(struct mcm_ha *ha);
int mcm_ha_step(struct mcm_ha *ha, struct mcm_listen *where);
/* After mcm_stop(): wait for the next leader and end the term with MCM_HA_RESTART, if the master stepped down; else, or
 * after SIGINT or SIGTERM, only return. */
void mcm_ha_stay(struct mcm_ha *ha);

#endif
