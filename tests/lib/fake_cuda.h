/* SPDX-License-Identifier: Apache-2.0
 * fake_cuda.h - a fake of NVIDIA's driver library (libcuda.so.1) for tests without a GPU.
 *
 * Its device memory is not accessible to the processor or the kernel: the address that cuMemAlloc() returns is mapped
 * PROT_NONE, and the fake copies through another mapping of the same pages.  Each stream has a thread, so copies are
 * asynchronous.  Functions, numbers and errors are those of the "CUDA Driver API" manual.
 *
 * Settings, from the environment or fake_cuda_set():
 *	FAKE_CUDA_DEVICES	number of GPUs, default 1; FAKE_CUDA_BUS: their PCI addresses, "0000:3B:00.0,-,..."
 *	FAKE_CUDA_COPY_US	how long each copy takes in addition
 *	FAKE_CUDA_NO_BYTES	not 0: copies move nothing, for measurements
 *	FAKE_CUDA_FAIL		"function:n:error,...": the n-th call from now on fails, or each with "*"; the function
 *				"copy": the copy itself, and everything after it
 *	FAKE_CUDA_NO		functions that return "not supported", separated by commas
 *	FAKE_CUDA_LOG		a file to which the counters are appended when the process ends
 *
 * A test program loads the library by its path; later dlopen("libcuda.so.1") finds it by its soname.  Scripts put
 * its directory into LD_LIBRARY_PATH.  fake_cuda_use.c has the functions below for test programs. */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stdint.h>

/* 0: the name is known. */
int fake_cuda_set(const char *name, const char *value);
/* Calls of a function, or "copies" (batches count once), "spans", "bytes_to_host", "bytes_to_device", "pageable"
 * (copies of host memory that was not pinned), or the number of "allocations", "registrations", "streams", "events". */
uint64_t fake_cuda_count(const char *name);
/* The same bytes as at a device address, for the processor; NULL: it is no device memory.  And the reverse; 0. */
void *fake_cuda_alias(uint64_t device);
uint64_t fake_cuda_device_of(const void *alias);
/* While @on is not 0, copies wait. */
void fake_cuda_hold(int on);

#endif
