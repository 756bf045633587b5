/* SPDX-License-Identifier: Apache-2.0
 * cleanup.h - automatic release of local variables. */
#ifndef MC_CLEANUP_H
#define MC_CLEANUP_H

#include <stdlib.h>
#include <unistd.h>

#include "common/sys/lock.h"

static inline void mc_cleanup_free(void *p)
{
	free(*(void **)p);
}

static inline void mc_cleanup_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void mc_cleanup_unlock(struct mc_mutex **m)
{
	if (*m)
		mc_mutex_unlock(*m);
}

#define auto_free __attribute__((cleanup(mc_cleanup_free)))
#define auto_close __attribute__((cleanup(mc_cleanup_close)))

/* Hold @m until the end of the scope. */
#define MC_CONCAT_(a, b) a##b
#define MC_CONCAT(a, b) MC_CONCAT_(a, b)
#define MC_LOCKED(m) \
	struct mc_mutex *MC_CONCAT(mc_locked_, __LINE__) \
		__attribute__((cleanup(mc_cleanup_unlock), unused)) = (mc_mutex_lock(m), (m))

/* Pass on ownership of a pointer or descriptor: returns it and clears the variable. */
#define TAKE_PTR(p) ({ __typeof__(p) mc_taken = (p); (p) = NULL; mc_taken; })
#define TAKE_FD(fd) ({ int mc_taken = (fd); (fd) = -1; mc_taken; })

#endif
