/* SPDX-License-Identifier: Apache-2.0
 * mcbench_reference.h - speed of the machine without a store, measured in the same run. */
#ifndef MCBENCH_REFERENCE_H
#define MCBENCH_REFERENCE_H

#include <stddef.h>
#include <stdint.h>

/* Bytes per second of @threads that copy pieces of @size out of @total bytes, for @ms.  Negative errno
 * on failure, with a detail. */
int mcbench_reference_memcpy(size_t size, size_t total, unsigned threads, uint64_t ms,
			     double *ret_bytes_per_second);

/* Median time of a request of 64 bytes and a response of @size bytes over a TCP connection to another thread
 * of this process.  Negative errno on failure, with a detail. */
int mcbench_reference_socket(size_t size, uint64_t ms, uint64_t *ret_ns);

#endif
