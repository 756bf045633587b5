/* SPDX-License-Identifier: Apache-2.0
 * env.h - the variables of upstream's store (MC_STORE_*) that change a client of this process; mcs(3) lists them. */
#ifndef MCS_ENV_H
#define MCS_ENV_H

#include <stdbool.h>

/* Range of the engine's port when the configuration names none. */
void mcs_env_ports(int *ret_min, int *ret_max);
/* Must bytes of this host go through the transport, as those of other hosts? */
bool mcs_env_no_memcpy(void);
/* Is a segment of kind "auto" to be tried with huge pages first? */
bool mcs_env_huge_pages(void);

/* Write the client's metrics to the log if the process asks for it and its period is over.  Called by the background
 * threads of all handles, at least every second; one of them writes. */
void mcs_report(const char *hostname);

#endif
