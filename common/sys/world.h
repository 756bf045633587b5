/* SPDX-License-Identifier: Apache-2.0
 * world.h - the outside world of a process as a table: time, random numbers, threads, waits, the process's end.
 *
 * The functions of common/sys/ call the C library, unless the calling thread belongs to a simulated process.  A test
 * that simulates processes has one struct mc_world per process and runs their threads as fibers on one thread of the
 * system.  Product code does not use this header: it uses clock.h, lock.h, thread.h, random.h, process.h and file.h. */
#ifndef MC_SYS_WORLD_H
#define MC_SYS_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mc_file_ops;
struct mc_net;
struct mc_poller;
struct mc_world;

struct mc_world_ops {
	/* Monotonic time and time since the Unix epoch, in nanoseconds.  Time passes only while all threads wait. */
	uint64_t (*now_ns)(struct mc_world *w);
	uint64_t (*wall_ns)(struct mc_world *w);
	/* Fill @buf.  Cannot fail. */
	void (*random)(struct mc_world *w, void *buf, size_t len);
	/* Start a thread of this process.  @ret gets a handle for join or detach, and for comparison with self().
	 * 0 or -errno with a detail. */
	int (*thread_start)(struct mc_world *w, const char *name, void *(*fn)(void *arg), void *arg, void **ret);
	/* Wait until @thread has ended, and free its handle. */
	void (*thread_join)(struct mc_world *w, void *thread);
	/* The handle is freed when @thread has ended. */
	void (*thread_detach)(struct mc_world *w, void *thread);
	void *(*thread_self)(struct mc_world *w);
	/* Let other threads run until wake(@key) or @deadline (mc_now_ns() scale; MC_NEVER).  @key NULL: until another
	 * thread has run.  May return earlier: callers check their condition again. */
	void (*block)(struct mc_world *w, const void *key, uint64_t deadline);
	/* Let threads that wait for @key run again.  They run after the caller has blocked. */
	void (*wake)(struct mc_world *w, const void *key);
	/* A poller (common/net/poller.h) for streams and listeners of the process's net.  0 or -errno with a detail. */
	int (*poller_new)(struct mc_world *w, struct mc_poller **ret);
	/* End the process at once, without cleaning up.  Does not return. */
	void (*end)(struct mc_world *w, int status) __attribute__((noreturn));
};

/* A simulated process; embedded in the simulator's struct. */
struct mc_world {
	const struct mc_world_ops *ops;
	const struct mc_file_ops *files;	/* file.h */
	const struct mc_net *net;		/* common/net/stream.h */
};

/* Are there simulated processes in this Unix process?  Written by mc_world_simulate() only.  Hidden, so that a test of
 * it is one instruction with an address that is known at link time. */
extern bool mc_world_simulated __attribute__((visibility("hidden")));

/* For the simulator: simulated processes may start from now on, or have all ended. */
void mc_world_simulate(bool on);

/* The simulated process of the calling thread; NULL: the thread belongs to no simulated process. */
struct mc_world *mc_world_current(void);
/* For the simulator: the calling thread runs a thread of @w from now on (NULL: none). */
void mc_world_enter(struct mc_world *w);

/* Shortcut for the functions of common/sys/: the world to ask instead of the C library, or NULL. */
static inline struct mc_world *mc_world(void)
{
	return __builtin_expect(mc_world_simulated, 0) ? mc_world_current() : NULL;
}

/* A variable of one thread whose value must survive a wait.  Fibers share the thread-local variables of their thread,
 * so the simulator saves and restores the registered ones when it switches fibers.  Variables that are only caches
 * need no registration.  @at returns the address in the calling thread. */
struct mc_world_local {
	void *(*at)(void);
	size_t size;
	struct mc_world_local *next;
};
extern struct mc_world_local *mc_world_locals;

#define MC_WORLD_LOCAL(var)                                                                     \
	static void *mc_world_at_##var(void)                                                    \
	{                                                                                       \
		return &var;                                                                    \
	}                                                                                       \
	__attribute__((constructor)) static void mc_world_register_##var(void)                  \
	{                                                                                       \
		static struct mc_world_local local = { mc_world_at_##var, sizeof(var), NULL };  \
											        \
		local.next = mc_world_locals;                                                   \
		mc_world_locals = &local;                                                       \
	}

#endif
