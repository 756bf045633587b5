/* SPDX-License-Identifier: Apache-2.0
 * fake_cuda_use.h - for test programs: load the fake CUDA driver before the code under test looks for libcuda.so.1. */
#ifndef FAKE_CUDA_USE_H
#define FAKE_CUDA_USE_H

#include "tests/lib/fake_cuda.h"

/* 0; -1 with a message. */
int fake_cuda_load(const char *path);

#endif
