/* SPDX-License-Identifier: Apache-2.0
 * sim_net.h - connections between simulated processes: streams in memory, without descriptors.
 *
 * Bytes arrive after a delay that the seed chooses, in order, in pieces of random sizes.  A process that ends closes
 * its connections and listeners, as a kernel does. */
#ifndef MC_SIM_NET_H
#define MC_SIM_NET_H

#include "common/net/poller.h"
#include "common/net/stream.h"

struct mc_world;
struct sim;
struct sim_net;

/* @delay_min_ns, @delay_max_ns: how long bytes are on their way. */
struct sim_net *sim_net_new(struct sim *s, uint64_t delay_min_ns, uint64_t delay_max_ns);
/* All streams are closed, or their processes have ended. */
void sim_net_free(struct sim_net *n);

/* For the configuration of servers and clients.  Addresses are any strings; "HOST:0" gets a port. */
const struct mc_net *sim_net_maker(struct sim_net *n);

/* After sim_kill(@w): reset the connections of the process, and close its listeners. */
void sim_net_kill(struct sim_net *n, const struct mc_world *w);

#endif
