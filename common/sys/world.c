/* SPDX-License-Identifier: Apache-2.0
 * world.c - the simulated process of a thread. */
#include <config.h>

#include "common/sys/world.h"

#include "common/sys/sys_i.h"

bool mc_world_simulated;
struct mc_world_local *mc_world_locals;

static __thread struct mc_world *world_of_thread;

void mc_world_simulate(bool on)
{
	mc_world_simulated = on;
	mc_clock_replaced = on;
	mc_lock_simulate(on);
}

struct mc_world *mc_world_current(void)
{
	return world_of_thread;
}

void mc_world_enter(struct mc_world *w)
{
	world_of_thread = w;
}
