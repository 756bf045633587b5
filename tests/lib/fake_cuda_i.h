/* SPDX-License-Identifier: Apache-2.0
 * fake_cuda_i.h - shared by the files of the fake CUDA driver. */
#ifndef FAKE_CUDA_I_H
#define FAKE_CUDA_I_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/lib/fake_cuda.h"

enum {
	CU_OK = 0, CU_INVALID_VALUE = 1, CU_OUT_OF_MEMORY = 2, CU_NOT_INITIALIZED = 3, CU_NO_DEVICE = 100,
	CU_INVALID_DEVICE = 101, CU_INVALID_CONTEXT = 201, CU_INVALID_HANDLE = 400, CU_NOT_READY = 600,
	CU_ILLEGAL_ADDRESS = 700, CU_ALREADY_REGISTERED = 712, CU_NOT_REGISTERED = 713, CU_NOT_SUPPORTED = 801,
};
#define DEVICES_MAX 16

struct context {
	int device;
	struct stream *legacy;
};

/* One lock for everything, and one condition that is broadcast at each change. */
extern pthread_mutex_t fake_cuda_lock;
extern pthread_cond_t fake_cuda_changed;
extern int fake_cuda_sticky;		/* error of a copy, which every later call returns */
extern uint64_t fake_cuda_copy_us;
extern bool fake_cuda_held, fake_cuda_no_bytes;

/* A call of @function begins: count it, and take the lock.  CU_OK, or the error that it has to return. */
int fake_cuda_enter(const char *function, bool needs_context);
int fake_cuda_leave(int result);	/* release the lock; @result */
struct context *fake_cuda_current(void);
void fake_cuda_add(const char *name, int64_t n);	/* to a counter */
int fake_cuda_fails_locked(const char *function);

/* fake_cuda_memory.c: the kind of an address, with the lock. */
struct allocation {
	struct allocation *next;
	char *base, *alias;
	size_t len;
	int fd, device;
	bool managed;
};
struct allocation *fake_cuda_find_locked(const void *p, size_t len);
/* The address through which the fake accesses @p; NULL: device memory that is not allocated. */
char *fake_cuda_access_locked(const void *p, size_t len);
/* Is host memory pinned?  1; 0; -1: partly. */
int fake_cuda_pinned_locked(const void *p, size_t len);

/* stream.c */
struct stream *fake_cuda_stream_new_locked(struct context *c, bool blocking, bool legacy);
void fake_cuda_drain_locked(void);	/* wait until all streams are idle */

#endif
