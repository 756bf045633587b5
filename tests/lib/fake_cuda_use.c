/* SPDX-License-Identifier: Apache-2.0
 * fake_cuda_use.c - the functions of fake_cuda.h for a program that loads the fake driver itself. */
#include "tests/lib/fake_cuda_use.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/gpu/gpu.h"

static struct {
	int (*set)(const char *name, const char *value);
	uint64_t (*count)(const char *name);
	void *(*alias)(uint64_t device);
	uint64_t (*device_of)(const void *alias);
	void (*hold)(int on);
} fake;

int fake_cuda_load(const char *path)
{
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		return -1;
	}
	*(void **)&fake.set = dlsym(lib, "fake_cuda_set");
	*(void **)&fake.count = dlsym(lib, "fake_cuda_count");
	*(void **)&fake.alias = dlsym(lib, "fake_cuda_alias");
	*(void **)&fake.device_of = dlsym(lib, "fake_cuda_device_of");
	*(void **)&fake.hold = dlsym(lib, "fake_cuda_hold");
	return fake.set && fake.count && fake.alias && fake.device_of && fake.hold ? 0 : -1;
}

void *fake_cuda_new(size_t len)
{
	void *p;

	if (mc_gpu()->alloc(0, len, &p) < 0)
		abort();
	return p;
}

void *fake_cuda_at(const void *p)
{
	return fake_cuda_alias((uintptr_t)p);
}

int fake_cuda_set(const char *name, const char *value)
{
	return fake.set(name, value);
}

uint64_t fake_cuda_count(const char *name)
{
	return fake.count(name);
}

void *fake_cuda_alias(uint64_t device)
{
	return fake.alias(device);
}

uint64_t fake_cuda_device_of(const void *alias)
{
	return fake.device_of(alias);
}

void fake_cuda_hold(int on)
{
	fake.hold(on);
}
