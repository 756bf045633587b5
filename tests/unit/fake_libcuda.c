/* SPDX-License-Identifier: Apache-2.0
 * fake_libcuda.c - the four functions of the CUDA driver library that the topology calls, for
 * the GPUs that are listed in FAKE_CUDA_BUS ("0000:3B:00.0,..."); an entry "-" has no bus id. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cuInit(unsigned flags);
int cuDeviceGetCount(int *count);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetPCIBusId(char *buf, int len, int device);

static const char *list(void)
{
	const char *s = getenv("FAKE_CUDA_BUS");

	return s ? s : "";
}

int cuInit(unsigned flags)
{
	return *list() ? 0 : 100;	/* no device */
}

int cuDeviceGetCount(int *count)
{
	*count = 1;
	for (const char *p = list(); *p; p++)
		*count += *p == ',';
	return 0;
}

int cuDeviceGet(int *device, int ordinal)
{
	*device = ordinal + 10;
	return 0;
}

int cuDeviceGetPCIBusId(char *buf, int len, int device)
{
	const char *p = list();

	for (int i = 10; i < device; i++)
		p = strchr(p, ',') + 1;
	if (*p == '-')
		return 1;
	snprintf(buf, (size_t)len, "%.*s", (int)strcspn(p, ","), p);
	return 0;
}
