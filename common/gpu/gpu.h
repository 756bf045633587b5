/* SPDX-License-Identifier: Apache-2.0
 * gpu.h - memory of GPUs: recognising it, and copying it.  The driver's functions are in driver.h. */
#ifndef MC_GPU_H
#define MC_GPU_H

#include <sys/uio.h>

#include "common/gpu/driver.h"

/* The driver, NULL: this program uses no GPU (yet).  Cheap: looks from time to time whether the program has loaded the
 * driver.  Any thread. */
const struct mc_gpu_driver *mc_gpu(void);
/* The same, but looks now. */
const struct mc_gpu_driver *mc_gpu_now(void);
/* The same for a program that does not load the driver itself.  NULL with a detail. */
const struct mc_gpu_driver *mc_gpu_load(void);

/* A GPU of this machine. */
struct mc_gpu_place {
	char location[32];		/* "cuda:0" */
	char bus[MC_GPU_BUS_MAX];	/* its PCI address in sysfs, "": unknown */
};
/* List the GPUs of all vendors whose library can be loaded (mc_gpu_driver.list), and return their number. */
unsigned mc_gpu_list(const char *dir, struct mc_gpu_place ret[MC_GPUS_MAX]);

/* The number of the GPU whose memory @p is; -1: it is not device memory.  No range is checked. */
int mc_gpu_of(const void *p);
/* The GPU of the first buffer that is device memory, -1: none is. */
int mc_gpu_of_iov(const struct iovec *iov, unsigned n);

/* Can transfers use the @len bytes at @base?  Memory of the process must be accessible (mc_reachable()); device
 * memory must begin and end on one GPU.  0, or -EFAULT with a detail. */
int mc_gpu_usable(const void *base, size_t len);

/* memcpy() between any two kinds of memory: 0, or the error of the driver.  It returns after the copy. */
int mc_gpu_memcpy(void *dst, const void *src, size_t n);

#endif
