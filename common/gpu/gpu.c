/* SPDX-License-Identifier: Apache-2.0
 * gpu.c - the driver that this process has, and whether memory is a GPU's. */
#include <config.h>

#include "common/gpu/gpu.h"

#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/process/reachable.h"

static const struct mc_gpu_driver *driver;	/* atomic; set once */
static unsigned long long looked;		/* atomic: libraries loaded when the driver was last looked for */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int count_loaded(struct dl_phdr_info *info, size_t size, void *arg)
{
	*(unsigned long long *)arg = info->dlpi_adds;
	return 1;
}

static const struct mc_gpu_driver *look(bool load, unsigned long long loaded)
{
	const struct mc_gpu_driver *d;

	MC_LOCKED(&lock);
	d = __atomic_load_n(&driver, __ATOMIC_ACQUIRE);
	if (d && !load)
		return d;
	d = mc_gpu_cuda(load);
	if (!d && load)
		return NULL;
	__atomic_store_n(&driver, d, __ATOMIC_RELEASE);
	__atomic_store_n(&looked, loaded, __ATOMIC_RELAXED);
	return d;
}

const struct mc_gpu_driver *mc_gpu(void)
{
	const struct mc_gpu_driver *d = __atomic_load_n(&driver, __ATOMIC_ACQUIRE);
	unsigned long long loaded = 0;

	if (d)
		return d;
	/* A device pointer comes from the driver's library, so that has been loaded before. */
	(void)dl_iterate_phdr(count_loaded, &loaded);
	return loaded == __atomic_load_n(&looked, __ATOMIC_RELAXED) ? NULL : look(false, loaded);
}

const struct mc_gpu_driver *mc_gpu_load(void)
{
	return look(true, 0);
}

int mc_gpu_of(const void *p)
{
	const struct mc_gpu_driver *d = mc_gpu();
	struct mc_gpu_mem mem;

	if (!d)
		return -1;
	d->classify(p, &mem);
	return mem.kind == MC_GPU_DEVICE ? mem.gpu : -1;
}

int mc_gpu_of_iov(const struct iovec *iov, unsigned n)
{
	int gpu = -1;

	if (!mc_gpu())
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
