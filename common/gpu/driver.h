/* SPDX-License-Identifier: Apache-2.0
 * driver.h - the functions of a GPU vendor's driver that this project calls, as one table per vendor, complete.
 *
 * A driver library is used only when the program itself has loaded it: a process without GPU code gets no context
 * and no threads of a driver.  Every function may be called from any thread.  All that return int return 0 or a
 * negative error with a detail (mc_fail()): -ENOMEM, -MC_ENOTSUP where the driver or device lacks the function, or
 * -MC_ETRANSFER for everything else, also for an error of an earlier copy. */
#ifndef MC_GPU_DRIVER_H
#define MC_GPU_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MC_GPUS_MAX 64u
#define MC_GPU_BUS_MAX 32u

struct mc_gpu_stream;
struct mc_gpu_event;

enum mc_gpu_kind {
	MC_GPU_HOST,	/* memory of the process that the driver does not know */
	MC_GPU_PINNED,	/* host memory that the driver has allocated or pinned */
	MC_GPU_MANAGED,	/* both can access it; used as host memory */
	MC_GPU_DEVICE	/* on a GPU; the processor cannot access it */
};

struct mc_gpu_mem {
	enum mc_gpu_kind kind;
	int gpu;	/* number of the GPU, -1 for MC_GPU_HOST */
};

/* One copy; one of the two addresses is on the GPU. */
struct mc_gpu_span {
	void *dst;
	const void *src;
	size_t len;
};

struct mc_gpu_driver {
	const char *name;	/* in locations: "cuda" of "cuda:0" */
	/* Can the driver be used: has the program loaded its library (@load: it is loaded now), and is there a GPU?
	 * False with a detail.  gpu.c serializes the calls; the slots below are called after a call that returned
	 * true. */
	bool (*open)(bool load);
	/* Load the library, and write the PCI address of each GPU in sysfs' form ("0000:3b:00.0"; "": unknown) to @ret,
	 * in the numbers that programs use.  Returns the number of GPUs, 0 without a driver.  @dir: directory of the
	 * library, NULL: the linker's search path.  Uses no GPU memory, and needs no open(). */
	unsigned (*list)(const char *dir, char ret[MC_GPUS_MAX][MC_GPU_BUS_MAX]);
	/* Number of GPUs. */
	int (*count)(void);
	/* The kind of the memory at @p.  Does not fail: an address that the driver does not know is host memory. */
	void (*classify)(const void *p, struct mc_gpu_mem *ret);
	/* Device memory, for tools and tests. */
	int (*alloc)(int gpu, size_t len, void **ret);
	void (*free)(void *p);
	/* Pin host memory, whose copies are then asynchronous; page aligned.  @read_only: it is mapped so. */
	int (*pin)(void *p, size_t len, bool read_only);
	void (*unpin)(void *p);
	/* A stream that runs beside all others.  Close waits for its copies. */
	int (*stream_open)(int gpu, struct mc_gpu_stream **ret);
	void (*stream_close)(struct mc_gpu_stream *s);
	/* Wait until all copies of the stream have ended: after an error of an event, when no copy may go on. */
	void (*drain)(struct mc_gpu_stream *s);
	/* Copies that are added from now on begin after all work that the program has given to the GPU's default stream
	 * and to the streams that are ordered with it. */
	int (*follow)(struct mc_gpu_stream *s);
	/* Add @n copies, in one call where the driver can.  Host memory should be pinned; of memory that is not, the
	 * call returns only after the copy. */
	int (*copy)(struct mc_gpu_stream *s, const struct mc_gpu_span *spans, unsigned n);
	/* An event shows when the copies that were added before its record have ended. */
	int (*event_open)(struct mc_gpu_stream *s, struct mc_gpu_event **ret);
	void (*event_close)(struct mc_gpu_event *ev);
	int (*event_record)(struct mc_gpu_event *ev, struct mc_gpu_stream *s);
	/* Sleep until it has.  The error is that of the copies. */
	int (*event_wait)(struct mc_gpu_event *ev);
	/* Copy between any two kinds of memory, in the order of the default stream; returns after the copy. */
	int (*copy_now)(void *dst, const void *src, size_t len);
	/* A dma-buf of device memory, through which a NIC can register it; whole pages of one allocation. */
	int (*export_dmabuf)(const void *p, size_t len, int *ret_fd);
	/* Call @fn(@arg) when @stream, a handle of the vendor's (0: the default stream), gets there; the stream
	 * continues after its return.  @fn must not call the driver. */
	int (*call_on)(uintptr_t stream, void (*fn)(void *arg), void *arg);
};

/* The vendors; gpu.c has the list of them, and no other code names one. */
extern const struct mc_gpu_driver mc_gpu_cuda;	/* cuda.c: NVIDIA */

#endif
