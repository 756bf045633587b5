/* SPDX-License-Identifier: Apache-2.0
 * futex.h - waiting on a word of memory that processes share. */
#ifndef MC_FUTEX_H
#define MC_FUTEX_H

#include <limits.h>
#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/sys/clock.h"

/* Returns when the word is woken, after @ns, or at once when the word is not @seen. */
static inline void mc_futex_wait(uint32_t *word, uint32_t seen, uint64_t ns)
{
	struct timespec ts = mc_timespec(ns);

	(void)syscall(SYS_futex, word, FUTEX_WAIT, seen, &ts, NULL, 0);
}

static inline void mc_futex_wake(uint32_t *word)
{
	(void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static inline void mc_cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
