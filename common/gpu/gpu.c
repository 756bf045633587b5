/* SPDX-License-Identifier: Apache-2.0
 * gpu.c - the list of vendors, the driver that this process has, and whether memory is a GPU's. */
#include <config.h>

#include "common/gpu/gpu.h"
#include "common/sys/clock.h"
#include "common/sys/lock.h"

#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/process/fork.h"
#include "common/process/reachable.h"

/* Pause between looks of mc_gpu(): a look takes a lock of the dynamic loader.  The driver needs longer to start. */
#define LOOK_MS 20

/* The first that can be used is the driver of the process. */
static const struct mc_gpu_driver *const vendors[] = { &mc_gpu_cuda };
#define VENDORS (sizeof(vendors) / sizeof(vendors[0]))

static const struct mc_gpu_driver *driver;	/* atomic; set once */
static uint64_t next_look_ms;			/* atomic */
static struct mc_mutex lock = MC_MUTEX_INIT;
static unsigned long long looked;		/* guarded by lock: libraries loaded at the last look */

static int count_loaded(struct dl_phdr_info *info, size_t size, void *arg)
{
	*(unsigned long long *)arg = info->dlpi_adds;
	return 1;
}

MC_FORK_KEEP(lock, MC_FORK_LEAF)

static const struct mc_gpu_driver *driver_look(bool load)
{
	unsigned long long loaded = 0;
	const struct mc_gpu_driver *d;

	MC_LOCKED(&lock);
	d = __atomic_load_n(&driver, __ATOMIC_ACQUIRE);
	if (d && !load)
		return d;
	/* A device pointer comes from the driver's library, so that has been loaded before. */
	(void)dl_iterate_phdr(count_loaded, &loaded);
	if (!load && loaded == looked)
		return NULL;
	looked = loaded;
	for (unsigned i = 0; i < VENDORS; i++) {
		if (!vendors[i]->open(load))
			continue;
		__atomic_store_n(&driver, vendors[i], __ATOMIC_RELEASE);
		return vendors[i];
	}
	return NULL;
}

const struct mc_gpu_driver *mc_gpu(void)
{
	const struct mc_gpu_driver *d = __atomic_load_n(&driver, __ATOMIC_ACQUIRE);
	uint64_t now;

	if (d)
		return d;
	now = mc_now_ms();
	if (now < __atomic_load_n(&next_look_ms, __ATOMIC_RELAXED))
		return NULL;
	__atomic_store_n(&next_look_ms, now + LOOK_MS, __ATOMIC_RELAXED);
	return driver_look(false);
}

const struct mc_gpu_driver *mc_gpu_now(void)
{
	const struct mc_gpu_driver *d = __atomic_load_n(&driver, __ATOMIC_ACQUIRE);

	return d ? d : driver_look(false);
}

const struct mc_gpu_driver *mc_gpu_load(void)
{
	return driver_look(true);
}

unsigned mc_gpu_list(const char *dir, struct mc_gpu_place ret[MC_GPUS_MAX])
{
	char bus[MC_GPUS_MAX][MC_GPU_BUS_MAX];
	unsigned n = 0;

	for (unsigned i = 0; i < VENDORS; i++) {
		unsigned gpus = vendors[i]->list(dir, bus);

		for (unsigned k = 0; k < gpus && n < MC_GPUS_MAX; k++, n++) {
			snprintf(ret[n].location, sizeof(ret[n].location), "%s:%u", vendors[i]->name, k);
			memcpy(ret[n].bus, bus[k], sizeof(ret[n].bus));
		}
	}
	return n;
}

int mc_gpu_of(const void *p)
{
	const struct mc_gpu_driver *d = mc_gpu_now();
	struct mc_gpu_mem mem;

	if (!d)
		return -1;
	d->classify(p, &mem);
	return mem.kind == MC_GPU_DEVICE ? mem.gpu : -1;
}

int mc_gpu_of_iov(const struct iovec *iov, unsigned n)
{
	int gpu = -1;

	if (!mc_gpu_now())
		return -1;
	for (unsigned i = 0; i < n && gpu < 0; i++)
		if (iov[i].iov_len)
			gpu = mc_gpu_of(iov[i].iov_base);
	return gpu;
}

int mc_gpu_usable(const void *base, size_t len)
{
	int gpu = mc_gpu_of(base);

	if (gpu < 0)
		return mc_reachable(base, len);
	if (len && mc_gpu_of((const char *)base + len - 1) != gpu)
		return mc_fail(-EFAULT, "the %zu bytes of GPU memory at %p are not all memory of GPU %d", len, base,
			       gpu);
	return 0;
}

int mc_gpu_memcpy(void *dst, const void *src, size_t n)
{
	if (n == 0)
		return 0;
	if (mc_gpu_of(dst) >= 0 || mc_gpu_of(src) >= 0)
		return mc_gpu()->copy_now(dst, src, n);
	memcpy(dst, src, n);
	return 0;
}
