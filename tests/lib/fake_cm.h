/* SPDX-License-Identifier: Apache-2.0
 * fake_cm.h - a connection manager for the NICs of fake_verbs.h: the NIC "fakeN" has the address 10.77.0.(11 + N). */
#ifndef FAKE_CM_H
#define FAKE_CM_H

#include <stdbool.h>

#include "engine/rdma/cm.h"

const struct mce_cm *fake_cm(void);
/* The next @n connections are refused. */
void fake_cm_refuse(unsigned n);
/* Requests to connect are lost while this is set. */
void fake_cm_silent(bool silent);
long fake_cm_live(void);	/* identifiers and channels that exist */

#endif
