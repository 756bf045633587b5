/* SPDX-License-Identifier: Apache-2.0
 * cuda_list.c - list of NVIDIA's GPUs from the driver's library, if it can be loaded: unlike sysfs, it numbers GPUs as
 * programs do.  The functions need no context, so they use no GPU memory. */
#include <config.h>

#include "common/gpu/cuda.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>

struct lister {
	int (*init)(unsigned flags);
	int (*count)(int *ret);
	int (*device)(int *ret, int ordinal);
	int (*bus)(char *buf, int len, int device);
};

static void *library_open(const char *dir)
{
	char path[4096];

	if (!dir)
		return dlopen(MC_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (snprintf(path, sizeof(path), "%s/" MC_CUDA_LIBRARY, dir) >= (int)sizeof(path))
		return NULL;
	return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static bool lister_find(void *lib, struct lister *l)
{
	*(void **)&l->init = dlsym(lib, "cuInit");
	*(void **)&l->count = dlsym(lib, "cuDeviceGetCount");
	*(void **)&l->device = dlsym(lib, "cuDeviceGet");
	*(void **)&l->bus = dlsym(lib, "cuDeviceGetPCIBusId");
	return l->init && l->count && l->device && l->bus;
}

unsigned mc_cuda_list(const char *dir, char ret[MC_GPUS_MAX][MC_GPU_BUS_MAX])
{
	void *lib = library_open(dir);
	struct lister l;
	int n = 0, dev;

	/* The library stays open: once initialized, the driver has threads of its own. */
	if (!lib || !lister_find(lib, &l) || l.init(0) || l.count(&n) || n <= 0)
		return 0;
	if (n > (int)MC_GPUS_MAX)
		n = MC_GPUS_MAX;
	for (int i = 0; i < n; i++) {
		ret[i][0] = 0;
		if (l.device(&dev, i) || l.bus(ret[i], MC_GPU_BUS_MAX, dev))
			ret[i][0] = 0;
		/* sysfs uses lower case. */
		for (char *p = ret[i]; *p; p++)
			*p = (char)tolower((unsigned char)*p);
	}
	return (unsigned)n;
}
