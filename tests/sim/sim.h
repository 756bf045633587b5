/* SPDX-License-Identifier: Apache-2.0
 * sim.h - simulated processes on one thread of the system.
 *
 * Each thread of a simulated process is a fiber.  One fiber runs at a time, until it waits through common/sys/; the
 * seed chooses the next one.  Time is virtual: it passes a little with each look at a clock, and else only while all
 * fibers wait.  The same seed gives the same order of events, whose hash is sim_trace(). */
#ifndef MC_SIM_H
#define MC_SIM_H

#include <stdbool.h>
#include <stdint.h>

struct mc_world;
struct sim;

struct sim *sim_new(uint64_t seed);
/* All fibers must have ended, or their processes. */
void sim_free(struct sim *s);

struct mc_net;
/* A process without threads.  @name: static, for messages.  Its files are the kernel's.  @net: NULL if it has no
 * connections. */
struct mc_world *sim_process(struct sim *s, const char *name, const struct mc_net *net);
/* Start a first thread in @w; nothing joins it. */
void sim_thread(struct mc_world *w, const char *name, void *(*fn)(void *arg), void *arg);

/* Run until all fibers have ended, or virtual time reaches @until (nanoseconds since sim_new()); the others stay where
 * they wait.  Fibers that wait for each other without a deadline are an error: the message lists them, and the program
 * aborts. */
void sim_run(struct sim *s, uint64_t until);
/* End the process at once, as SIGKILL: its fibers never run again.  Their memory stays allocated. */
void sim_kill(struct mc_world *w);
bool sim_has_ended(const struct mc_world *w);

uint64_t sim_now(const struct sim *s);
/* Random numbers of the simulation, not of a process. */
uint64_t sim_random(struct sim *s);
/* Hash of all events so far: switches, times, wake-ups. */
uint64_t sim_trace(const struct sim *s);
uint64_t sim_switches(const struct sim *s);
/* For simulated devices: as the slots of struct mc_world_ops, for any process.  sim_wake() also while no fiber runs. */
void sim_block(struct sim *s, const void *key, uint64_t deadline);
void sim_wake(struct sim *s, const void *key);
/* How processes get pollers: @fn(@arg). */
struct mc_poller;
void sim_set_pollers(struct sim *s, int (*fn)(void *arg, struct mc_poller **ret), void *arg);

/* Add an event of a simulated device or connection to the trace. */
void sim_event(struct sim *s, uint64_t event);

/* The simulation of the calling fiber. */
struct sim *sim_here(void);

#endif
