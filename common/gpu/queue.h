/* SPDX-License-Identifier: Apache-2.0
 * queue.h - asynchronous copies between host memory and one GPU, in order, with a function that is called at the end
 * of each. */
#ifndef MC_GPU_QUEUE_H
#define MC_GPU_QUEUE_H

#include "common/gpu/driver.h"
#include "common/list.h"

struct mc_gpu_queue;

/* A group of copies; embedded anywhere.  It and the memory must stay allocated until done() is called. */
struct mc_gpu_job {
	const struct mc_gpu_span *spans;	/* read only during mc_gpu_queue_add() */
	unsigned n;
	/* After all work that the program has given to the default stream when the job is added. */
	bool follow;
	/* Called once, on the queue's thread; may add further jobs, must not block on them.  @status: 0, or the error
	 * of the copies: then any part of the destination may be written, but none is written any more. */
	void (*done)(struct mc_gpu_job *job, int status);
	/* the queue's */
	struct mc_list node;
	struct mc_gpu_event *event;
	int status;
};

/* Needs a driver (mc_gpu()).  @name: of its thread. */
int mc_gpu_queue_open(int gpu, const char *name, struct mc_gpu_queue **ret);
/* Waits until all jobs are done.  NULL is fine. */
void mc_gpu_queue_close(struct mc_gpu_queue *q);
/* Any thread; does not wait for the copies.  Jobs are copied and done in the order in which they were added. */
void mc_gpu_queue_add(struct mc_gpu_queue *q, struct mc_gpu_job *job);

#endif
