/* SPDX-License-Identifier: Apache-2.0
 * fake_cuda.c - the fake CUDA driver: settings, counters, devices and contexts. */
#include "tests/lib/fake_cuda_i.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNTERS 128
#define FAILS 16
#define STACK 16

pthread_mutex_t fake_cuda_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_cuda_changed = PTHREAD_COND_INITIALIZER;
int fake_cuda_sticky;
uint64_t fake_cuda_copy_us;
bool fake_cuda_held, fake_cuda_no_bytes;

static struct counter {
	char name[48];
	int64_t n;
} counters[COUNTERS];
static struct fail {
	char function[48];
	long left;		/* calls until it fails, -1: each does */
	int error;
} fails[FAILS];
static char absent[512], bus[512], log_file[512];
static int devices = 1;
static pid_t initialized;
static struct context contexts[DEVICES_MAX];
static __thread struct context *stack[STACK];
static __thread int depth;

/* ---- settings ---------------------------------------------------------------------------------- */

static void fails_parse(const char *s)
{
	int i = 0;

	memset(fails, 0, sizeof(fails));
	while (s && *s && i < FAILS) {
		char n[16];

		if (sscanf(s, "%47[^:]:%15[^:]:%d", fails[i].function, n, &fails[i].error) == 3)
			fails[i++].left = *n == '*' ? -1 : strtol(n, NULL, 10);
		s = strchr(s, ',');
		s = s ? s + 1 : NULL;
	}
}

static int set_locked(const char *name, const char *value)
{
	if (!strcmp(name, "FAKE_CUDA_COPY_US"))
		fake_cuda_copy_us = strtoull(value, NULL, 10);
	else if (!strcmp(name, "FAKE_CUDA_NO_BYTES"))
		fake_cuda_no_bytes = atoi(value) != 0;
	else if (!strcmp(name, "FAKE_CUDA_FAIL"))
		fails_parse(value);
	else if (!strcmp(name, "FAKE_CUDA_NO"))
		snprintf(absent, sizeof(absent), ",%s,", value);
	else if (!strcmp(name, "FAKE_CUDA_DEVICES"))
		devices = atoi(value) < DEVICES_MAX ? atoi(value) : DEVICES_MAX;
	else if (!strcmp(name, "FAKE_CUDA_BUS"))
		snprintf(bus, sizeof(bus), "%s", value);
	else if (!strcmp(name, "FAKE_CUDA_LOG"))
		snprintf(log_file, sizeof(log_file), "%s", value);
	else
		return -1;
	return 0;
}

int fake_cuda_set(const char *name, const char *value)
{
	int r;

	pthread_mutex_lock(&fake_cuda_lock);
	r = set_locked(name, value);
	pthread_mutex_unlock(&fake_cuda_lock);
	return r;
}

static void settings_read_locked(void)
{
	static const char *const names[] = {
		"FAKE_CUDA_COPY_US", "FAKE_CUDA_NO_BYTES", "FAKE_CUDA_FAIL", "FAKE_CUDA_NO", "FAKE_CUDA_DEVICES",
		"FAKE_CUDA_BUS", "FAKE_CUDA_LOG",
	};

	*bus = 0;
	devices = 1;
	for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (getenv(names[i]))
			(void)set_locked(names[i], getenv(names[i]));
	if (!*bus)
		return;
	devices = 1;
	for (const char *p = bus; *p; p++)
		devices += *p == ',';
}

void fake_cuda_hold(int on)
{
	pthread_mutex_lock(&fake_cuda_lock);
	fake_cuda_held = on != 0;
	pthread_cond_broadcast(&fake_cuda_changed);
	pthread_mutex_unlock(&fake_cuda_lock);
}

/* ---- counters ---------------------------------------------------------------------------------- */

void fake_cuda_add(const char *name, int64_t n)
{
	for (int i = 0; i < COUNTERS; i++) {
		if (!*counters[i].name)
			snprintf(counters[i].name, sizeof(counters[i].name), "%s", name);
		if (strcmp(counters[i].name, name))
			continue;
		counters[i].n += n;
		return;
	}
	abort();
}

uint64_t fake_cuda_count(const char *name)
{
	uint64_t n = 0;

	pthread_mutex_lock(&fake_cuda_lock);
	for (int i = 0; i < COUNTERS; i++)
		if (!strcmp(counters[i].name, name))
			n = (uint64_t)counters[i].n;
	pthread_mutex_unlock(&fake_cuda_lock);
	return n;
}

__attribute__((destructor)) static void counters_log(void)
{
	FILE *f = *log_file && initialized == getpid() ? fopen(log_file, "a") : NULL;

	for (int i = 0; f && i < COUNTERS; i++)
		if (counters[i].n)
			fprintf(f, "%d %s %lld\n", (int)getpid(), counters[i].name, (long long)counters[i].n);
	if (f)
		fclose(f);
}

/* ---- calls ------------------------------------------------------------------------------------- */

int fake_cuda_fails_locked(const char *function)
{
	char name[64];

	for (int i = 0; i < FAILS; i++) {
		if (strcmp(fails[i].function, function) || !fails[i].left)
			continue;
		if (fails[i].left < 0 || --fails[i].left == 0)
			return fails[i].error;
	}
	snprintf(name, sizeof(name), ",%s,", function);
	return strstr(absent, name) ? CU_NOT_SUPPORTED : CU_OK;
}

int fake_cuda_enter(const char *function, bool needs_context)
{
	int r;

	pthread_mutex_lock(&fake_cuda_lock);
	fake_cuda_add(function, 1);
	if (initialized != getpid())
		return CU_NOT_INITIALIZED;
	if (needs_context && !depth)
		return CU_INVALID_CONTEXT;
	r = fake_cuda_fails_locked(function);
	return r ? r : fake_cuda_sticky;
}

int fake_cuda_leave(int result)
{
	pthread_mutex_unlock(&fake_cuda_lock);
	return result;
}

struct context *fake_cuda_current(void)
{
	return depth ? stack[depth - 1] : NULL;
}

/* ---- devices and contexts ---------------------------------------------------------------------- */

int cuInit(unsigned flags);
int cuInit(unsigned flags)
{
	pthread_mutex_lock(&fake_cuda_lock);
	fake_cuda_add("cuInit", 1);
	settings_read_locked();
	if (devices > 0)
		initialized = getpid();
	return fake_cuda_leave(devices > 0 ? CU_OK : CU_NO_DEVICE);
}

int cuDeviceGetCount(int *ret);
int cuDeviceGetCount(int *ret)
{
	int r = fake_cuda_enter("cuDeviceGetCount", false);

	*ret = r ? 0 : devices;
	return fake_cuda_leave(r);
}

/* A device is not its ordinal. */
int cuDeviceGet(int *ret, int ordinal);
int cuDeviceGet(int *ret, int ordinal)
{
	int r = fake_cuda_enter("cuDeviceGet", false);

	if (!r && (ordinal < 0 || ordinal >= devices))
		r = CU_INVALID_DEVICE;
	*ret = ordinal + 10;
	return fake_cuda_leave(r);
}

int cuDeviceGetPCIBusId(char *buf, int len, int device);
int cuDeviceGetPCIBusId(char *buf, int len, int device)
{
	int r = fake_cuda_enter("cuDeviceGetPCIBusId", false);
	const char *p = bus;

	for (int i = 10; i < device && p; i++) {
		p = strchr(p, ',');
		p = p ? p + 1 : NULL;
	}
	if (!r && (!p || !*p || *p == '-'))
		r = CU_INVALID_VALUE;
	if (!r)
		snprintf(buf, (size_t)len, "%.*s", (int)strcspn(p, ","), p);
	return fake_cuda_leave(r);
}

int cuDevicePrimaryCtxRetain(struct context **ret, int device);
int cuDevicePrimaryCtxRetain(struct context **ret, int device)
{
	int r = fake_cuda_enter("cuDevicePrimaryCtxRetain", false);

	if (!r && (device < 10 || device >= 10 + devices))
		r = CU_INVALID_DEVICE;
	if (r)
		return fake_cuda_leave(r);
	*ret = &contexts[device - 10];
	(*ret)->device = device - 10;
	if (!(*ret)->legacy)
		(*ret)->legacy = fake_cuda_stream_new_locked(*ret, true, true);
	return fake_cuda_leave(CU_OK);
}

int cuCtxPushCurrent_v2(struct context *c);
int cuCtxPushCurrent_v2(struct context *c)
{
	int r = fake_cuda_enter("cuCtxPushCurrent_v2", false);

	if (!r && (!c || depth == STACK))
		r = CU_INVALID_CONTEXT;
	if (!r)
		stack[depth++] = c;
	return fake_cuda_leave(r);
}

/* Also with the error of a copy, so that a caller can always restore the stack. */
int cuCtxPopCurrent_v2(struct context **ret);
int cuCtxPopCurrent_v2(struct context **ret)
{
	int r = fake_cuda_enter("cuCtxPopCurrent_v2", true);

	if (depth)
		*ret = stack[--depth];
	return fake_cuda_leave(r);
}

int cuCtxGetCurrent(struct context **ret);
int cuCtxGetCurrent(struct context **ret)
{
	int r = fake_cuda_enter("cuCtxGetCurrent", false);

	*ret = fake_cuda_current();
	return fake_cuda_leave(r);
}

int cuThreadExchangeStreamCaptureMode(int *mode);
int cuThreadExchangeStreamCaptureMode(int *mode)
{
	static __thread int now;
	int r = fake_cuda_enter("cuThreadExchangeStreamCaptureMode", false), was = now;

	now = *mode;
	*mode = was;
	return fake_cuda_leave(r);
}

int cuGetErrorName(int error, const char **ret);
int cuGetErrorName(int error, const char **ret)
{
	*ret = error == CU_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" :
		error == CU_NOT_SUPPORTED ? "CUDA_ERROR_NOT_SUPPORTED" : "CUDA_ERROR_OF_THE_FAKE";
	return CU_OK;
}
