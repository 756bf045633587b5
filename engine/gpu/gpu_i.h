/* SPDX-License-Identifier: Apache-2.0
 * gpu_i.h - transfers of GPU memory, shared inside engine/.
 *
 * The processor and the kernel cannot access device memory, so:
 *	direct.c  Between device memory and memory of this process (local, or mapped from a peer on this host) the GPU
 *		  copies directly, and the caller's thread waits.
 *	follow.c  On all other paths a request first waits for the program's work on the GPU, in a transport that then
 *		  offers it again.
 *	stage.c	  For all other paths a request goes through pinned slots of host memory: the transport "staged" takes
 *		  it, and hands its pieces to the peer's other transports as requests of host memory.
 *	serve.c	  The owner's side of a region of device memory: buffers for the bytes that peers move over TCP.
 *	../rdma	  A NIC that can access the device memory itself needs none of this (../rdma/gpu.c).
 *
 * Order: a copy begins after all work that the program has given to the default stream of the GPU, and to the streams
 * that are ordered with it, before the request was submitted; mce_req.ordered says that this is not needed.  That work
 * may itself wait for an ordered request (te/stream.c), so nothing that ordered requests need waits for it. */
#ifndef MCE_GPU_I_H
#define MCE_GPU_I_H

#include "common/gpu/gpu.h"
#include "common/gpu/queue.h"
#include "common/sys/lock.h"
#include "engine/engine_i.h"

#define MCE_GPUS_MAX 64u
/* Bytes of a slot: long enough that the start of a copy costs little, short enough that the pieces of one transfer
 * overlap. */
#define MCE_GPU_SLOT (1u << 20)

/* ---- copies that a thread waits for (copier.c) --------------------------------------------------- */

#define MCE_COPIER_EVENTS 8u
/* A stream that one thread uses at a time. */
struct mce_copier {
	struct mc_list node;
	int gpu;
	struct mc_gpu_stream *stream;
	struct mc_gpu_event *event[MCE_COPIER_EVENTS];
};
int mce_copier_take(struct mce_engine *e, int gpu, struct mce_copier **ret);
void mce_copier_give(struct mce_engine *e, struct mce_copier *c);
/* Copy and wait. */
int mce_copier_run(struct mce_copier *c, const struct mc_gpu_span *spans, unsigned n);

/* Wait until the GPU has done the work that the program has given to its default stream, as copies that follow it: for
 * accesses to device memory that the driver knows nothing of. */
int mce_gpu_wait_for_caller(struct mce_engine *e, int gpu);

/* A list of copies. */
struct mce_spans {
	struct mc_gpu_span *s;	/* malloc'ed */
	unsigned n, cap;
};
int mce_span_add(struct mce_spans *l, void *dst, const void *src, size_t len);	/* -ENOMEM */
/* Move the spans [@from, @from + @n) to index l->n, which is at most @from, and add @n to l->n. */
void mce_spans_keep(struct mce_spans *l, unsigned from, unsigned n);

/* Page-aligned host memory, pinned if possible; NULL: no memory. */
void *mce_pinned_new(size_t len);
void mce_pinned_free(void *p, size_t len);

/* Host memory that is pinned in windows, when they are first used; embedded by pointer in its owner. */
struct mce_pins;
/* Bytes from @at to the end of its window, pinned if possible.  *@pins is made at the first call.  @base, page aligned,
 * and @len: the memory; it stays mapped until mce_pins_free(). */
uint64_t mce_pins_reach(struct mce_pins **pins, void *base, uint64_t len, bool read_only, const void *at);
void mce_pins_free(struct mce_pins *pins);	/* NULL is fine */

/* ---- direct copies (direct.c) -------------------------------------------------------------------- */

/* A transfer between the iov of a request and memory that this process can address. */
struct mce_flat {
	struct mce_req *req;
	char *remote;
	int gpu;			/* the GPU of @remote; -1: host memory */
	struct mce_pins **pins;		/* host memory: its pinned windows */
	void *base;			/* the memory that contains @remote */
	uint64_t len;
	bool read_only;
	int status;			/* result */
	bool refused;			/* direct.c: the driver has refused a copy */
};
/* Copy each of the @n transfers as mce_copy() does.  Each transfer has device memory on at least one side. */
void mce_gpu_copy(struct mce_engine *e, struct mce_flat *flats, unsigned n);

/* Maximum number of transfers of one mce_gpu_copy(). */
#define MCE_GPU_RUN 128u
/* May @req be copied together with @first, which has device memory? */
bool mce_gpu_alike(const struct mce_req *first, struct mce_req *req);

/* ---- the owner's side (serve.c) ------------------------------------------------------------------ */

struct mce_gpus;
/* Reads of device memory for peers: into one of a few pinned buffers, for which a read waits in a queue. */
struct mce_gpu_read {
	const void *from;	/* device memory */
	uint32_t len;
	/* Called once, on any thread, maybe before mce_gpu_read_start() returns; must not block.  @status 0: the bytes
	 * are at r->at, until mce_gpu_read_end(), which follows only then. */
	void (*done)(struct mce_gpu_read *r, int status);
	void *at;
	/* serve.c */
	struct mce_gpus *gpus;
	int gpu;
	struct mc_list node;
	struct mc_gpu_job job;
	struct mc_gpu_span span;
};
#define MCE_GPU_READ_MAX (8u << 20)
#define MCE_GPU_READS 32u
struct mce_gpu_buffers {
	/* guarded by mce_gpus.lock */
	struct {
		void *mem;
		size_t len;
		bool used;
	} buf[MCE_GPU_READS];
	struct mc_list waiting;		/* struct mce_gpu_read.node */
	struct mc_gpu_queue *queue[MCE_GPUS_MAX];
};
void mce_gpu_read_start(struct mce_engine *e, int gpu, struct mce_gpu_read *r);
void mce_gpu_read_end(struct mce_gpu_read *r);
void mce_gpu_reads_close(struct mce_gpus *g);

/* WRITEs of one connection into device memory: their bytes are gathered in a slot, and copied together.  One thread
 * at a time. */
struct mce_gpu_inbox;
struct mce_gpu_inbox *mce_gpu_inbox_new(struct mce_engine *e);
void mce_gpu_inbox_free(struct mce_gpu_inbox *in);	/* NULL is fine; its bytes are lost */
/* Where the next bytes can be stored, *@ret_room of them; 0: flush first. */
uint8_t *mce_gpu_inbox_at(struct mce_gpu_inbox *in, size_t *ret_room);
/* @n bytes have been stored there, which belong to @to in the region @mr. */
void mce_gpu_inbox_put(struct mce_gpu_inbox *in, const struct mce_mr *mr, void *to, size_t n);
/* Does the inbox hold bytes for [@to, @to + @n)?  The copies of one flush have no order. */
bool mce_gpu_inbox_overlaps(const struct mce_gpu_inbox *in, const void *to, uint64_t n);
/* Copy all bytes to their places and wait for the copies.  The inbox is empty after return, even after a failure. */
int mce_gpu_inbox_flush(struct mce_gpu_inbox *in);

/* ---- the engine's part --------------------------------------------------------------------------- */

/* follow.c: requests that wait for the program's work on the GPU. */
struct mce_follower {
	struct mc_mutex lock;
	struct mc_cond changed;		/* `ending` decreased */
	/* guarded by lock */
	struct mc_list fresh, groups;	/* requests not flushed yet; groups under way */
	struct mc_gpu_queue *queue[MCE_GPUS_MAX];
	unsigned ending;		/* number of threads that are offering a request again */
};
void mce_follower_init(struct mce_follower *f);
void mce_follower_stop(struct mce_follower *f);	/* waits for the groups; no requests are left */
void mce_follower_done(struct mce_follower *f);

struct mce_stager;
struct mce_gpus {
	struct mce_engine *e;
	struct mc_mutex lock;
	/* guarded by lock */
	struct mc_list copiers;		/* copiers that no thread uses */
	struct mce_gpu_buffers reads;
	struct mce_follower follower;	/* has a lock of its own */
	struct mce_stager *stager;	/* made by the first staged request; constant then */
};
int mce_gpus_open(struct mce_engine *e);
/* The caller has ended all requests. */
void mce_gpus_stop(struct mce_engine *e);
/* The I/O threads have ended.  Without open it does nothing. */
void mce_gpus_close(struct mce_engine *e);
struct mce_stager *mce_stager_get(struct mce_engine *e);	/* NULL: no memory */
void mce_stager_free(struct mce_stager *st);			/* NULL is fine */

/* The GPU of @p, which may be registered; -1: host memory. */
int mce_gpu_of(struct mce_engine *e, const void *p);
/* The GPU of the first buffer of the request that is device memory; -1: none is. */
int mce_req_gpu(const struct mce_req *req);
/* A bit for each GPU whose memory the request has. */
uint64_t mce_req_gpus(const struct mce_req *req);

#endif
