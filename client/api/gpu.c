/* SPDX-License-Identifier: Apache-2.0
 * gpu.c - memory of GPUs, for programs that got an address from elsewhere. */
#include <config.h>

#include <mooncake/mcs.h>

#include "common/gpu/gpu.h"

int mcs_gpu_of(const void *p)
{
	return mc_gpu_of(p);
}

int mcs_gpu_memcpy(void *dst, const void *src, size_t n)
{
	return mc_gpu_memcpy(dst, src, n);
}
