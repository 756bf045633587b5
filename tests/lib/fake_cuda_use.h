/* SPDX-License-Identifier: Apache-2.0
 * fake_cuda_use.h - for test programs: load the fake CUDA driver before the code under test looks for libcuda.so.1. */
#ifndef FAKE_CUDA_USE_H
#define FAKE_CUDA_USE_H

#include <stddef.h>

#include "tests/lib/fake_cuda.h"

/* 0; -1 with a message. */
int fake_cuda_load(const char *path);
/* Device memory of the first GPU, and where the test finds its bytes. */
void *fake_cuda_new(size_t len);
void *fake_cuda_at(const void *p);

#endif
