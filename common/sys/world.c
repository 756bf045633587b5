/* SPDX-License-Identifier: Apache-2.0
 * world.c - the simulated process of a thread. */
#include <config.h>

#include "common/sys/world.h"

bool mc_world_simulated;
struct mc_world_local *mc_world_locals;

static __thread struct mc_world *world_of_thread;

struct mc_world *mc_world_current(void)
{
	return world_of_thread;
}

void mc_world_enter(struct mc_world *w)
{
	world_of_thread = w;
}
