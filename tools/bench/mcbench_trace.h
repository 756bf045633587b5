/* SPDX-License-Identifier: Apache-2.0
 * mcbench_trace.h - traces of inference requests: a JSON object on each line,
 *
 *	{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353]}
 *
 * ordered by time.  An id stands for a block of 512 tokens together with all tokens before it. */
#ifndef MCBENCH_TRACE_H
#define MCBENCH_TRACE_H

#include <stddef.h>
#include <stdint.h>

struct mcbench_request {
	uint64_t time_ms;		/* since the first request */
	size_t first;			/* its ids are ids[first] .. ids[first + n - 1] */
	uint32_t n;
};

struct mcbench_trace {
	struct mcbench_request *requests;
	size_t n_requests, requests_room;
	uint64_t *ids;
	size_t n_ids, ids_room;
	uint32_t max_blocks;		/* blocks of the longest request */
	size_t distinct;		/* different ids */
};

/* Read @path, at most @limit requests (0: all).  0, or negative with a detail that names file and
 * line; *ret is zeroed then. */
int mcbench_trace_load(const char *path, uint64_t limit, struct mcbench_trace *ret);
void mcbench_trace_free(struct mcbench_trace *t);

#endif
