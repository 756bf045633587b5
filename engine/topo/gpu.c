/* SPDX-License-Identifier: Apache-2.0
 * gpu.c - list of GPUs from the CUDA driver's library, if it can be loaded: unlike sysfs, it numbers
 * GPUs as programs do.  The functions need no context, so they use no GPU memory. */
#include <config.h>

#include "engine/topo/topo_i.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>

struct driver {
	int (*init)(unsigned flags);
	int (*count)(int *ret);
	int (*device)(int *ret, int ordinal);
	int (*bus)(char *buf, int len, int device);
};

static void *library_open(const char *dir)
{
	char path[4096];

	if (!dir)
		return dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (snprintf(path, sizeof(path), "%s/libcuda.so.1", dir) >= (int)sizeof(path))
		return NULL;
	return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static bool driver_find(void *lib, struct driver *d)
{
	*(void **)&d->init = dlsym(lib, "cuInit");
	*(void **)&d->count = dlsym(lib, "cuDeviceGetCount");
	*(void **)&d->device = dlsym(lib, "cuDeviceGet");
	*(void **)&d->bus = dlsym(lib, "cuDeviceGetPCIBusId");
	return d->init && d->count && d->device && d->bus;
}

unsigned mce_topo_gpus(const char *dir, char ret[MCE_TOPO_GPUS_MAX][MCE_TOPO_BUS_MAX])
{
	void *lib = library_open(dir);
	struct driver d;
	int n = 0, dev;

	/* The library stays open: once initialized, the driver has threads of its own. */
	if (!lib || !driver_find(lib, &d) || d.init(0) || d.count(&n) || n <= 0)
		return 0;
	if (n > (int)MCE_TOPO_GPUS_MAX)
		n = MCE_TOPO_GPUS_MAX;
	for (int i = 0; i < n; i++) {
		ret[i][0] = 0;
		if (d.device(&dev, i) || d.bus(ret[i], MCE_TOPO_BUS_MAX, dev))
			ret[i][0] = 0;
		/* sysfs uses lower case. */
		for (char *p = ret[i]; *p; p++)
			*p = (char)tolower((unsigned char)*p);
	}
	return (unsigned)n;
}
