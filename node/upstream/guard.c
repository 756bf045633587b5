/* SPDX-License-Identifier: Apache-2.0
 * guard.c - mappings of files that may shrink. */
#include <config.h>

#include "node/upstream/guard.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/err.h"
#include "common/sys/lock.h"

/* The handler reads base and end while other threads change entries: an entry that it finds is in use by the thread
 * that it interrupts, so it does not change.  end 0: free. */
struct mcn_up_mapping {
	uintptr_t base, end;
	int broken;
};

static struct mc_mutex lock = MC_MUTEX_INIT;
static struct mcn_up_mapping table[MCN_UP_MAPPINGS_MAX];
static unsigned next;
static bool handles;
static uintptr_t page;

/* Base and end of an entry that another thread changes may belong to different mappings: the end was 0 in between. */
static struct mcn_up_mapping *guard_find(uintptr_t at, uintptr_t *ret_end)
{
	for (unsigned i = 0; i < MCN_UP_MAPPINGS_MAX; i++) {
		struct mcn_up_mapping *m = &table[i];
		uintptr_t end = __atomic_load_n(&m->end, __ATOMIC_ACQUIRE);

		if (at < end && at >= __atomic_load_n(&m->base, __ATOMIC_ACQUIRE) &&
		    end == __atomic_load_n(&m->end, __ATOMIC_ACQUIRE)) {
			*ret_end = end;
			return m;
		}
	}
	return NULL;
}

/* mmap() is a plain system call here, and safe in a handler. */
static void guard_fault(int sig, siginfo_t *info, void *context)
{
	uintptr_t at = (uintptr_t)info->si_addr & ~(page - 1), end = 0;
	int saved = errno;
	struct mcn_up_mapping *m = info->si_code > 0 ? guard_find(at, &end) : NULL;

	(void)context;
	/* The page is gone, but not accessed yet. */
	if (info->si_code == BUS_MCEERR_AO)
		return;
	if (m) {
		__atomic_store_n(&m->broken, 1, __ATOMIC_RELEASE);
		if (mmap((void *)at, end - at, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED) {
			errno = saved;
			return;
		}
	}
	/* The access is repeated, and ends the process as it would have done without the handler.  A signal that a
	 * process sent is not repeated by itself. */
	(void)signal(sig, SIG_DFL);
	if (info->si_code <= 0)
		(void)raise(sig);
	errno = saved;
}

static int guard_begin_locked(void)
{
	struct sigaction act = { .sa_sigaction = guard_fault, .sa_flags = SA_SIGINFO | SA_NODEFER };

	if (handles)
		return 0;
	page = (uintptr_t)sysconf(_SC_PAGESIZE);
	(void)sigemptyset(&act.sa_mask);
	if (sigaction(SIGBUS, &act, NULL) < 0)
		return mc_fail(-errno, "the handler of SIGBUS cannot be set: %s", mc_strerror(errno));
	handles = true;
	return 0;
}

static struct mcn_up_mapping *guard_free_locked(void)
{
	for (unsigned i = 0; i < MCN_UP_MAPPINGS_MAX; i++) {
		struct mcn_up_mapping *m = &table[next++ % MCN_UP_MAPPINGS_MAX];

		if (!m->end)
			return m;
	}
	return NULL;
}

int mcn_up_map(int fd, uint64_t size, struct mcn_up_mapping **ret, unsigned char **ret_base)
{
	struct mcn_up_mapping *m;
	void *base;
	int r;

	if (!size || size > SIZE_MAX / 2)
		return mc_fail(-EINVAL, "memory of %llu bytes cannot be mapped", (unsigned long long)size);
	mc_mutex_lock(&lock);
	r = guard_begin_locked();
	m = r == 0 ? guard_free_locked() : NULL;
	if (r == 0 && !m)
		r = mc_fail(-ENOBUFS, "there are %u mappings of clients' memory", MCN_UP_MAPPINGS_MAX);
	if (r == 0) {
		base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (base == MAP_FAILED)
			r = mc_fail(-errno, "memory of %llu bytes cannot be mapped: %s", (unsigned long long)size,
				    mc_strerror(errno));
	}
	if (r == 0) {
		m->broken = 0;
		__atomic_store_n(&m->base, (uintptr_t)base, __ATOMIC_RELEASE);
		__atomic_store_n(&m->end, ((uintptr_t)base + size + page - 1) & ~(page - 1), __ATOMIC_RELEASE);
		*ret = m;
		*ret_base = base;
	}
	mc_mutex_unlock(&lock);
	return r;
}

void mcn_up_unmap(struct mcn_up_mapping *m)
{
	uintptr_t base, end;

	if (!m)
		return;
	base = m->base;
	end = m->end;
	/* First: from munmap() on, another mapping can get the addresses. */
	mc_mutex_lock(&lock);
	__atomic_store_n(&m->end, 0, __ATOMIC_RELEASE);
	mc_mutex_unlock(&lock);
	munmap((void *)base, end - base);
}

bool mcn_up_broken(const struct mcn_up_mapping *m)
{
	return __atomic_load_n(&m->broken, __ATOMIC_ACQUIRE);
}
