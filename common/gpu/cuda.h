/* SPDX-License-Identifier: Apache-2.0
 * cuda.h - the parts of the table of NVIDIA's driver, shared by cuda.c and cuda_list.c. */
#ifndef MC_CUDA_H
#define MC_CUDA_H

#include "common/gpu/driver.h"

#define MC_CUDA_LIBRARY "libcuda.so.1"

/* cuda_list.c: mc_gpu_driver.list */
unsigned mc_cuda_list(const char *dir, char ret[MC_GPUS_MAX][MC_GPU_BUS_MAX]);

#endif
