/* SPDX-License-Identifier: Apache-2.0
 * fake_cuda_memory.c - the fake CUDA driver: device memory, pinned host memory, kinds of addresses. */
#include "tests/lib/fake_cuda_i.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GRAIN (2ull << 20)

struct registration {
	struct registration *next;
	char *base;
	size_t len;
	bool own;	/* cuMemHostAlloc() */
};

static struct allocation *allocations;
static struct registration *registrations;

struct allocation *fake_cuda_find_locked(const void *p, size_t len)
{
	const char *at = p;

	for (struct allocation *a = allocations; a; a = a->next)
		if (at >= a->base && at < a->base + a->len)
			return len <= (size_t)(a->base + a->len - at) ? a : NULL;
	return NULL;
}

char *fake_cuda_access_locked(const void *p, size_t len)
{
	struct allocation *a = fake_cuda_find_locked(p, len);

	if (a)
		return a->alias + ((const char *)p - a->base);
	return fake_cuda_find_locked(p, 0) ? NULL : (char *)(uintptr_t)p;
}

int fake_cuda_pinned_locked(const void *p, size_t len)
{
	const char *at = p;

	for (struct registration *r = registrations; r; r = r->next) {
		if (at + len <= r->base || at >= r->base + r->len)
			continue;
		return at >= r->base && at + len <= r->base + r->len ? 1 : -1;
	}
	return 0;
}

void *fake_cuda_alias(uint64_t device)
{
	char *p;

	pthread_mutex_lock(&fake_cuda_lock);
	p = fake_cuda_access_locked((void *)(uintptr_t)device, 1);
	pthread_mutex_unlock(&fake_cuda_lock);
	return p == (char *)(uintptr_t)device ? NULL : p;
}

uint64_t fake_cuda_device_of(const void *alias)
{
	const char *at = alias;
	uint64_t r = 0;

	pthread_mutex_lock(&fake_cuda_lock);
	for (struct allocation *a = allocations; a; a = a->next)
		if (at >= a->alias && at < a->alias + a->len)
			r = (uintptr_t)a->base + (uint64_t)(at - a->alias);
	pthread_mutex_unlock(&fake_cuda_lock);
	return r;
}

/* ---- device memory ----------------------------------------------------------------------------- */

static int allocate_locked(uint64_t *ret, size_t len, bool managed)
{
	struct allocation *a = calloc(1, sizeof(*a));
	char *room;

	if (!a || !len) {
		free(a);
		return len ? CU_OUT_OF_MEMORY : CU_INVALID_VALUE;
	}
	a->len = (len + GRAIN - 1) / GRAIN * GRAIN;
	a->fd = memfd_create("fake-gpu", MFD_CLOEXEC);
	a->device = fake_cuda_current()->device;
	a->managed = managed;
	/* Between allocations there is a gap. */
	room = mmap(NULL, a->len + 2 * GRAIN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (a->fd < 0 || ftruncate(a->fd, (off_t)a->len) || room == MAP_FAILED)
		abort();
	a->base = (char *)(((uintptr_t)room + GRAIN) & ~(GRAIN - 1));
	munmap(room, (size_t)(a->base - room));
	if (mmap(a->base, a->len, managed ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_SHARED | MAP_FIXED, a->fd, 0) ==
	    MAP_FAILED)
		abort();
	a->alias = managed ? a->base : mmap(NULL, a->len, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);
	if (a->alias == MAP_FAILED)
		abort();
	a->next = allocations;
	allocations = a;
	fake_cuda_add("allocations", 1);
	*ret = (uintptr_t)a->base;
	return CU_OK;
}

int cuMemAlloc_v2(uint64_t *ret, size_t len);
int cuMemAlloc_v2(uint64_t *ret, size_t len)
{
	int r = fake_cuda_enter("cuMemAlloc_v2", true);

	return fake_cuda_leave(r ? r : allocate_locked(ret, len, false));
}

int cuMemAllocManaged(uint64_t *ret, size_t len, unsigned flags);
int cuMemAllocManaged(uint64_t *ret, size_t len, unsigned flags)
{
	int r = fake_cuda_enter("cuMemAllocManaged", true);

	return fake_cuda_leave(r ? r : allocate_locked(ret, len, true));
}

/* Waits for all work, as the real one does. */
int cuMemFree_v2(uint64_t p);
int cuMemFree_v2(uint64_t p)
{
	int r = fake_cuda_enter("cuMemFree_v2", true);
	struct allocation **at, *a;

	fake_cuda_drain_locked();
	for (at = &allocations; *at && (uintptr_t)(*at)->base != p; at = &(*at)->next)
		;
	a = *at;
	if (!a)
		return fake_cuda_leave(r ? r : CU_INVALID_VALUE);
	*at = a->next;
	if (a->alias != a->base)
		munmap(a->alias, a->len);
	munmap(a->base, a->len);
	close(a->fd);
	free(a);
	fake_cuda_add("allocations", -1);
	return fake_cuda_leave(r);
}

/* A dma-buf of whole pages: the memory's file, whose position is where the range begins. */
int cuMemGetHandleForAddressRange(void *ret, uint64_t p, size_t len, int type, uint64_t flags);
int cuMemGetHandleForAddressRange(void *ret, uint64_t p, size_t len, int type, uint64_t flags)
{
	int r = fake_cuda_enter("cuMemGetHandleForAddressRange", true);
	struct allocation *a = fake_cuda_find_locked((void *)(uintptr_t)p, len);
	char path[64];
	int fd;

	if (!r && (!a || p % 4096 || len % 4096 || type != 1))
		r = CU_INVALID_VALUE;
	if (r)
		return fake_cuda_leave(r);
	/* Another open file, so that its position is its own. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", a->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || lseek(fd, (off_t)(p - (uintptr_t)a->base), SEEK_SET) < 0)
		abort();
	*(int *)ret = fd;
	return fake_cuda_leave(CU_OK);
}

int cuPointerGetAttributes(unsigned n, const int *which, void **data, uint64_t p);
int cuPointerGetAttributes(unsigned n, const int *which, void **data, uint64_t p)
{
	int r = fake_cuda_enter("cuPointerGetAttributes", false);
	struct allocation *a;
	bool pinned;

	if (r)
		return fake_cuda_leave(r);
	a = fake_cuda_find_locked((void *)(uintptr_t)p, 1);
	pinned = !a && fake_cuda_pinned_locked((void *)(uintptr_t)p, 1) == 1;
	for (unsigned i = 0; i < n; i++)
		switch (which[i]) {
		case 2:		/* memory type: host 1, device 2, 0 for an unknown address */
			*(unsigned *)data[i] = a ? 2 : pinned ? 1 : 0;
			break;
		case 8:		/* managed */
			*(unsigned *)data[i] = a && a->managed;
			break;
		case 9:		/* ordinal of the device */
			*(int *)data[i] = a ? a->device : pinned ? 0 : -2;
			break;
		default:
			r = CU_INVALID_VALUE;
		}
	return fake_cuda_leave(r);
}

/* ---- pinned host memory ------------------------------------------------------------------------ */

static int register_locked(void *p, size_t len, bool own)
{
	struct registration *g;

	if (!len)
		return CU_INVALID_VALUE;
	if (fake_cuda_pinned_locked(p, len))
		return CU_ALREADY_REGISTERED;
	g = calloc(1, sizeof(*g));
	if (!g)
		return CU_OUT_OF_MEMORY;
	*g = (struct registration){ .next = registrations, .base = p, .len = len, .own = own };
	registrations = g;
	fake_cuda_add("registrations", 1);
	return CU_OK;
}

static int unregister_locked(const void *p, bool own)
{
	struct registration **at, *g;

	for (at = &registrations; *at && ((*at)->base != p || (*at)->own != own); at = &(*at)->next)
		;
	g = *at;
	if (!g)
		return CU_NOT_REGISTERED;
	*at = g->next;
	free(g);
	fake_cuda_add("registrations", -1);
	return CU_OK;
}

int cuMemHostRegister_v2(void *p, size_t len, unsigned flags);
int cuMemHostRegister_v2(void *p, size_t len, unsigned flags)
{
	int r = fake_cuda_enter("cuMemHostRegister_v2", true);

	return fake_cuda_leave(r ? r : register_locked(p, len, false));
}

int cuMemHostUnregister(void *p);
int cuMemHostUnregister(void *p)
{
	int r = fake_cuda_enter("cuMemHostUnregister", true), err = unregister_locked(p, false);

	return fake_cuda_leave(r ? r : err);
}

int cuMemHostAlloc(void **ret, size_t len, unsigned flags);
int cuMemHostAlloc(void **ret, size_t len, unsigned flags)
{
	int r = fake_cuda_enter("cuMemHostAlloc", true);

	if (r)
		return fake_cuda_leave(r);
	*ret = aligned_alloc(4096, (len + 4095) & ~4095ull);
	return fake_cuda_leave(*ret ? register_locked(*ret, len, true) : CU_OUT_OF_MEMORY);
}

int cuMemFreeHost(void *p);
int cuMemFreeHost(void *p)
{
	int r = fake_cuda_enter("cuMemFreeHost", true), err;

	fake_cuda_drain_locked();
	err = unregister_locked(p, true);
	if (!err)
		free(p);
	return fake_cuda_leave(r ? r : err);
}
