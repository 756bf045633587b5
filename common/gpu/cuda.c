/* SPDX-License-Identifier: Apache-2.0
 * cuda.c - the driver of NVIDIA's GPUs: functions of libcuda.so.1, found at run time.
 *
 * Names, numbers and contracts are those of NVIDIA's "CUDA Driver API" manual.  Copies run in the primary context of
 * the GPU, which is the one of CUDA's runtime library and of PyTorch.  While another thread captures a graph, calls
 * are made in relaxed capture mode, so that they do not end its capture. */
#include <config.h>

#include "common/gpu/cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/log.h"

/* Copies of one call, from arrays on the stack. */
#define BATCH 64u

typedef int cu_result;		/* CUresult */
typedef uint64_t cu_ptr;	/* CUdeviceptr */
typedef struct cu_ctx *cu_ctx;
typedef struct cu_stream *cu_stream;
typedef struct cu_event *cu_event;

enum {
	CU_OK = 0, CU_OUT_OF_MEMORY = 2, CU_NO_DEVICE = 100, CU_NOT_SUPPORTED = 801,
	CU_POINTER_MEMORY_TYPE = 2, CU_POINTER_IS_MANAGED = 8, CU_POINTER_ORDINAL = 9,
	CU_MEMORY_HOST = 1, CU_MEMORY_DEVICE = 2,
	CU_STREAM_NON_BLOCKING = 1, CU_EVENT_BLOCKING_SYNC = 1, CU_EVENT_DISABLE_TIMING = 2,
	CU_HOST_PORTABLE = 1, CU_HOST_READ_ONLY = 8, CU_CAPTURE_RELAXED = 2,
	CU_SRC_ORDER_STREAM = 1, CU_RANGE_DMA_BUF_FD = 1,
};
#define CU_STREAM_LEGACY ((cu_stream)(uintptr_t)1)

struct cu_location {
	int type, id;
};
struct cu_copy_attributes {	/* CUmemcpyAttributes */
	int src_order;
	struct cu_location src_hint, dst_hint;
	unsigned flags;
};

/* Name in the library, name here, arguments.  An older library may lack optional ones, which old_NAME() replaces. */
#define FUNCTIONS(F, OPTIONAL) \
	F("cuInit", init, (unsigned flags)) \
	F("cuDeviceGetCount", device_count, (int *ret)) \
	F("cuDeviceGet", device_get, (int *ret, int ordinal)) \
	F("cuDevicePrimaryCtxRetain", ctx_retain, (cu_ctx *ret, int device)) \
	F("cuCtxPushCurrent_v2", ctx_push, (cu_ctx ctx)) \
	F("cuCtxPopCurrent_v2", ctx_pop, (cu_ctx *ret)) \
	F("cuCtxGetCurrent", ctx_current, (cu_ctx *ret)) \
	F("cuPointerGetAttributes", pointer_attributes, (unsigned n, const int *which, void **data, cu_ptr p)) \
	F("cuMemAlloc_v2", mem_alloc, (cu_ptr *ret, size_t len)) \
	F("cuMemFree_v2", mem_free, (cu_ptr p)) \
	F("cuMemHostRegister_v2", host_register, (void *p, size_t len, unsigned flags)) \
	F("cuMemHostUnregister", host_unregister, (void *p)) \
	F("cuMemcpy", copy_now, (cu_ptr dst, cu_ptr src, size_t len)) \
	F("cuMemcpyAsync", copy, (cu_ptr dst, cu_ptr src, size_t len, cu_stream stream)) \
	F("cuStreamCreate", stream_create, (cu_stream *ret, unsigned flags)) \
	F("cuStreamDestroy_v2", stream_destroy, (cu_stream stream)) \
	F("cuStreamSynchronize", stream_wait, (cu_stream stream)) \
	F("cuStreamWaitEvent", stream_follow, (cu_stream stream, cu_event event, unsigned flags)) \
	F("cuEventCreate", event_create, (cu_event *ret, unsigned flags)) \
	F("cuEventDestroy_v2", event_destroy, (cu_event event)) \
	F("cuEventRecord", event_record, (cu_event event, cu_stream stream)) \
	F("cuEventSynchronize", event_wait, (cu_event event)) \
	F("cuLaunchHostFunc", host_func, (cu_stream stream, void (*fn)(void *arg), void *arg)) \
	F("cuGetErrorName", error_name, (cu_result r, const char **ret)) \
	OPTIONAL("cuStreamIsCapturing", is_capturing, (cu_stream stream, int *ret)) \
	OPTIONAL("cuThreadExchangeStreamCaptureMode", capture_mode, (int *mode)) \
	OPTIONAL("cuMemGetHandleForAddressRange", range_handle, (void *ret, cu_ptr p, size_t len, int type, \
		uint64_t flags)) \
	OPTIONAL("cuMemcpyBatchAsync", copy_batch, (cu_ptr *dst, cu_ptr *src, size_t *len, size_t n, \
		struct cu_copy_attributes *attr, size_t *first, size_t nattr, size_t *ret_failed, cu_stream stream))

#define DECLARE(symbol, name, args) cu_result (*name) args;
static struct {
	FUNCTIONS(DECLARE, DECLARE)
	cu_ctx ctx[MC_GPUS_MAX];	/* atomic: primary context, NULL: not used yet */
} cu;

struct mc_gpu_stream {
	int gpu;
	cu_stream stream;
	cu_event issued;	/* work of the default stream that cuda_follow() waits for */
};

struct mc_gpu_event {
	int gpu;
	cu_event event;
};

/* ---- functions that an older library lacks ------------------------------------------------------ */

static cu_result old_is_capturing(cu_stream stream, int *ret)
{
	*ret = 0;
	return CU_OK;
}

static cu_result old_capture_mode(int *mode)
{
	return CU_OK;
}

static cu_result old_range_handle(void *ret, cu_ptr p, size_t len, int type, uint64_t flags)
{
	return CU_NOT_SUPPORTED;
}

static cu_result old_copy_batch(cu_ptr *dst, cu_ptr *src, size_t *len, size_t n, struct cu_copy_attributes *attr,
				size_t *first, size_t nattr, size_t *ret_failed, cu_stream stream)
{
	return CU_NOT_SUPPORTED;
}

/* ---- errors and contexts ----------------------------------------------------------------------- */

static int cuda_failed(cu_result r, const char *what)
{
	const char *name = NULL;

	if (r == CU_OK)
		return 0;
	if (cu.error_name(r, &name) != CU_OK || !name)
		name = "unknown error";
	return mc_fail(r == CU_OUT_OF_MEMORY ? -ENOMEM : r == CU_NOT_SUPPORTED ? -MC_ENOTSUP : -MC_ETRANSFER,
		       "%s: %s (%d)", what, name, r);
}

/* The changes of enter() to this thread. */
struct scope {
	int capture;
	bool pushed;
};

static int scope_enter_ctx(struct scope *s, cu_ctx ctx)
{
	cu_result r;

	s->capture = CU_CAPTURE_RELAXED;
	(void)cu.capture_mode(&s->capture);
	r = ctx ? cu.ctx_push(ctx) : CU_OK;
	s->pushed = ctx && r == CU_OK;
	return cuda_failed(r, "the GPU's context");
}

/* Make the primary context of @gpu current; leave() follows also on failure. */
static int scope_enter(struct scope *s, int gpu)
{
	cu_ctx ctx = __atomic_load_n(&cu.ctx[gpu], __ATOMIC_ACQUIRE);
	cu_result r = CU_OK;
	int device;

	if (!ctx) {
		r = cu.device_get(&device, gpu);
		if (r == CU_OK)
			r = cu.ctx_retain(&ctx, device);
		if (r == CU_OK)
			__atomic_store_n(&cu.ctx[gpu], ctx, __ATOMIC_RELEASE);
		else
			ctx = NULL;
	}
	if (r != CU_OK) {
		(void)scope_enter_ctx(s, NULL);
		return cuda_failed(r, "the GPU's primary context");
	}
	return scope_enter_ctx(s, ctx);
}

static void scope_leave(struct scope *s)
{
	cu_ctx ignored;

	if (s->pushed)
		(void)cu.ctx_pop(&ignored);
	(void)cu.capture_mode(&s->capture);
}

/* ---- memory ------------------------------------------------------------------------------------ */

static int cuda_count(void)
{
	int n = 0;

	return cu.device_count(&n) == CU_OK ? n : 0;
}

static void cuda_classify(const void *p, struct mc_gpu_mem *ret)
{
	static const int which[] = { CU_POINTER_MEMORY_TYPE, CU_POINTER_IS_MANAGED, CU_POINTER_ORDINAL };
	unsigned type = 0, managed = 0;
	int ordinal = -1;
	void *data[] = { &type, &managed, &ordinal };

	*ret = (struct mc_gpu_mem){ .kind = MC_GPU_HOST, .gpu = -1 };
	/* The attributes of memory that the driver does not know are 0.  Before the program has initialized the driver,
	 * the call fails, and there is no device memory. */
	if (cu.pointer_attributes(3, which, data, (uintptr_t)p) != CU_OK || type == 0)
		return;
	ret->kind = managed ? MC_GPU_MANAGED : type == CU_MEMORY_DEVICE ? MC_GPU_DEVICE : MC_GPU_PINNED;
	ret->gpu = ordinal >= 0 && ordinal < (int)MC_GPUS_MAX ? ordinal : 0;
}

static int cuda_alloc(int gpu, size_t len, void **ret)
{
	struct scope s;
	cu_ptr p = 0;
	int r;

	if (gpu < 0 || gpu >= cuda_count() || gpu >= (int)MC_GPUS_MAX)
		return mc_fail(-EINVAL, "there is no GPU %d: the driver has %d", gpu, cuda_count());
	r = scope_enter(&s, gpu);
	if (r == 0)
		r = cuda_failed(cu.mem_alloc(&p, len), "GPU memory");
	scope_leave(&s);
	*ret = (void *)(uintptr_t)p;
	return r;
}

static void cuda_free(void *p)
{
	struct mc_gpu_mem mem;
	struct scope s;

	cuda_classify(p, &mem);
	if (mem.kind == MC_GPU_HOST)
		return;
	if (scope_enter(&s, mem.gpu) == 0)
		(void)cu.mem_free((uintptr_t)p);
	scope_leave(&s);
}

/* Any context will do; a further one would take memory of its GPU. */
static int scope_enter_any(struct scope *s)
{
	cu_ctx ctx = NULL;

	if (cu.ctx_current(&ctx) == CU_OK && ctx)
		return scope_enter_ctx(s, NULL);
	for (int i = 0; i < (int)MC_GPUS_MAX; i++)
		if (__atomic_load_n(&cu.ctx[i], __ATOMIC_ACQUIRE))
			return scope_enter(s, i);
	return scope_enter(s, 0);
}

static int cuda_pin(void *p, size_t len, bool read_only)
{
	struct scope s;
	int r = scope_enter_any(&s);

	if (r == 0)
		r = cuda_failed(cu.host_register(p, len, CU_HOST_PORTABLE | (read_only ? CU_HOST_READ_ONLY : 0)),
				"pinning host memory");
	scope_leave(&s);
	return r;
}

static void cuda_unpin(void *p)
{
	struct scope s;

	if (scope_enter_any(&s) == 0)
		(void)cu.host_unregister(p);
	scope_leave(&s);
}

static int cuda_export(const void *p, size_t len, int *ret_fd)
{
	struct mc_gpu_mem mem;
	struct scope s;
	int r;

	cuda_classify(p, &mem);
	if (mem.kind != MC_GPU_DEVICE)
		return mc_fail(-MC_ENOTSUP, "only memory of a GPU has a dma-buf");
	r = scope_enter(&s, mem.gpu);
	if (r == 0)
		r = cuda_failed(cu.range_handle(ret_fd, (uintptr_t)p, len, CU_RANGE_DMA_BUF_FD, 0), "dma-buf");
	scope_leave(&s);
	return r;
}

/* ---- copies ------------------------------------------------------------------------------------ */

static int cuda_stream_open(int gpu, struct mc_gpu_stream **ret)
{
	struct mc_gpu_stream *m = calloc(1, sizeof(*m));
	struct scope s;
	int r;

	if (!m)
		return -ENOMEM;
	m->gpu = gpu;
	r = scope_enter(&s, gpu);
	if (r == 0)
		r = cuda_failed(cu.stream_create(&m->stream, CU_STREAM_NON_BLOCKING), "GPU stream");
	if (r == 0) {
		r = cuda_failed(cu.event_create(&m->issued, CU_EVENT_DISABLE_TIMING), "GPU event");
		if (r < 0)
			(void)cu.stream_destroy(m->stream);
	}
	scope_leave(&s);
	if (r < 0) {
		free(m);
		return r;
	}
	*ret = m;
	return 0;
}

static void cuda_stream_close(struct mc_gpu_stream *m)
{
	struct scope s;

	if (!m)
		return;
	if (scope_enter(&s, m->gpu) == 0) {
		(void)cu.stream_wait(m->stream);
		(void)cu.stream_destroy(m->stream);
		(void)cu.event_destroy(m->issued);
	}
	scope_leave(&s);
	free(m);
}

static void cuda_drain(struct mc_gpu_stream *m)
{
	struct scope s;

	if (scope_enter(&s, m->gpu) == 0)
		(void)cu.stream_wait(m->stream);
	scope_leave(&s);
}

static int cuda_follow(struct mc_gpu_stream *m)
{
	struct scope s;
	int r = scope_enter(&s, m->gpu);

	if (r == 0)
		r = cuda_failed(cu.event_record(m->issued, CU_STREAM_LEGACY), "the GPU's default stream");
	if (r == 0)
		r = cuda_failed(cu.stream_follow(m->stream, m->issued, 0), "GPU stream");
	scope_leave(&s);
	return r;
}

static cu_result copy_some(struct mc_gpu_stream *m, const struct mc_gpu_span *spans, size_t n)
{
	struct cu_copy_attributes attr = { .src_order = CU_SRC_ORDER_STREAM };
	cu_ptr dst[BATCH], src[BATCH];
	size_t len[BATCH], first = 0, bad = 0;

	for (size_t i = 0; i < n; i++) {
		dst[i] = (uintptr_t)spans[i].dst;
		src[i] = (uintptr_t)spans[i].src;
		len[i] = spans[i].len;
	}
	return cu.copy_batch(dst, src, len, n, &attr, &first, 1, &bad, m->stream);
}

static int cuda_copy(struct mc_gpu_stream *m, const struct mc_gpu_span *spans, unsigned n)
{
	bool batch = n > 1;
	cu_result r = CU_OK;
	struct scope s;
	int err = scope_enter(&s, m->gpu);

	for (unsigned i = 0, some; err == 0 && i < n && r == CU_OK; i += some) {
		some = batch ? n - i < BATCH ? n - i : BATCH : 1;
		if (batch)
			r = copy_some(m, spans + i, some);
		/* A driver may have the function, and the GPU may lack it. */
		if (batch && r == CU_NOT_SUPPORTED) {
			batch = false;
			some = 0;
			r = CU_OK;
		} else if (!batch) {
			r = cu.copy((uintptr_t)spans[i].dst, (uintptr_t)spans[i].src, spans[i].len, m->stream);
		}
	}
	scope_leave(&s);
	return err < 0 ? err : cuda_failed(r, "GPU copy");
}

static int cuda_event_open(struct mc_gpu_stream *m, struct mc_gpu_event **ret)
{
	struct mc_gpu_event *ev = calloc(1, sizeof(*ev));
	struct scope s;
	int r;

	if (!ev)
		return -ENOMEM;
	ev->gpu = m->gpu;
	r = scope_enter(&s, m->gpu);
	if (r == 0)
		r = cuda_failed(cu.event_create(&ev->event, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC),
				"GPU event");
	scope_leave(&s);
	if (r < 0) {
		free(ev);
		return r;
	}
	*ret = ev;
	return 0;
}

static void cuda_event_close(struct mc_gpu_event *ev)
{
	struct scope s;

	if (!ev)
		return;
	if (scope_enter(&s, ev->gpu) == 0)
		(void)cu.event_destroy(ev->event);
	scope_leave(&s);
	free(ev);
}

static int cuda_event_record(struct mc_gpu_event *ev, struct mc_gpu_stream *m)
{
	struct scope s;
	int r = scope_enter(&s, m->gpu);

	if (r == 0)
		r = cuda_failed(cu.event_record(ev->event, m->stream), "GPU event");
	scope_leave(&s);
	return r;
}

static int cuda_event_wait(struct mc_gpu_event *ev)
{
	struct scope s;
	int r = scope_enter(&s, ev->gpu);

	if (r == 0)
		r = cuda_failed(cu.event_wait(ev->event), "GPU copy");
	scope_leave(&s);
	return r;
}

static int cuda_copy_now(void *dst, const void *src, size_t len)
{
	struct mc_gpu_mem mem;
	struct scope s;
	int r;

	cuda_classify(dst, &mem);
	if (mem.kind != MC_GPU_DEVICE)
		cuda_classify(src, &mem);
	r = scope_enter(&s, mem.gpu < 0 ? 0 : mem.gpu);
	if (r == 0)
		r = cuda_failed(cu.copy_now((uintptr_t)dst, (uintptr_t)src, len), "GPU copy");
	/* Some kinds of copies return before their end. */
	if (r == 0)
		r = cuda_failed(cu.stream_wait(CU_STREAM_LEGACY), "GPU copy");
	scope_leave(&s);
	return r;
}

static int cuda_call_on(uintptr_t stream, void (*fn)(void *arg), void *arg)
{
	int capturing = 0, r;
	struct scope s;

	/* The default stream is that of the caller's context. */
	r = scope_enter_any(&s);
	if (r == 0)
		r = cuda_failed(cu.is_capturing((cu_stream)stream, &capturing), "GPU stream");
	if (r == 0 && capturing)
		r = mc_fail(-MC_ENOTSUP, "a stream that captures a graph cannot have transfers");
	if (r == 0)
		r = cuda_failed(cu.host_func((cu_stream)stream, fn, arg), "GPU stream");
	scope_leave(&s);
	return r;
}

/* ---- loading ----------------------------------------------------------------------------------- */

static void *find_or(void *lib, const char *symbol, void *old)
{
	void *found = dlsym(lib, symbol);

	return found ? found : old;
}

/* NULL: all are there; else the name of one that is missing. */
static const char *find_functions(void *lib)
{
	const char *missing = NULL;

#define FIND(symbol, name, args) *(void **)&cu.name = dlsym(lib, symbol); if (!cu.name) missing = (symbol);
#define FIND_OPTIONAL(symbol, name, args) *(void **)&cu.name = find_or(lib, symbol, (void *)old_##name);
	FUNCTIONS(FIND, FIND_OPTIONAL)
	return missing;
}

static bool cuda_open(bool load)
{
	void *lib = dlopen(MC_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL | (load ? 0 : RTLD_NOLOAD));
	const char *missing;
	cu_result r;

	/* It stays open: once initialized, the driver has threads of its own. */
	if (!lib) {
		if (load)
			mc_fail(-MC_ENOTSUP, "the CUDA driver cannot be loaded: %s", dlerror());
		return false;
	}
	missing = find_functions(lib);
	if (missing) {
		mc_fail(-MC_ENOTSUP, "the CUDA driver is too old: it has no %s", missing);
		return false;
	}
	/* Otherwise the program initializes it, at a time of its choice: a process must not fork after that. */
	r = load ? cu.init(0) : CU_OK;
	if (r != CU_OK || (load && cuda_count() == 0)) {
		cuda_failed(r ? r : CU_NO_DEVICE, "the CUDA driver has no usable GPU");
		return false;
	}
	return true;
}

const struct mc_gpu_driver mc_gpu_cuda = {
	.name = "cuda",
	.open = cuda_open,
	.list = mc_cuda_list,
	.count = cuda_count,
	.classify = cuda_classify,
	.alloc = cuda_alloc,
	.free = cuda_free,
	.pin = cuda_pin,
	.unpin = cuda_unpin,
	.stream_open = cuda_stream_open,
	.stream_close = cuda_stream_close,
	.drain = cuda_drain,
	.follow = cuda_follow,
	.copy = cuda_copy,
	.event_open = cuda_event_open,
	.event_close = cuda_event_close,
	.event_record = cuda_event_record,
	.event_wait = cuda_event_wait,
	.copy_now = cuda_copy_now,
	.export_dmabuf = cuda_export,
	.call_on = cuda_call_on,
};
