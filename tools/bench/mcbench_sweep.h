/* SPDX-License-Identifier: Apache-2.0
 * mcbench_sweep.h - one replay for each pair of pool size and eviction policy. */
#ifndef MCBENCH_SWEEP_H
#define MCBENCH_SWEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/bench/mcbench.h"

#define MCBENCH_POOLS_MAX 64u
#define MCBENCH_POLICIES_MAX 16u

struct mcbench_sweep_result {
	bool complete;
	double hit_ratio;		/* percent, of blocks that an engine can use */
};

struct mcbench_grid {
	uint64_t pools[MCBENCH_POOLS_MAX];	/* blocks */
	unsigned n_pools;
	const char *policies[MCBENCH_POLICIES_MAX];
	unsigned n_policies;
	struct mcbench_sweep_result *results;	/* pool i and policy j: results[i * n_policies + j] */
};

/* Whether @path has the name of a picture that mcbench_plot() can draw. */
bool mcbench_plot_name(const char *path);
/* Draw the complete results with gnuplot, else with matplotlib.  MCBENCH_OK with a message if there is neither;
 * MCBENCH_FAILED, reported, if one of them fails. */
int mcbench_plot(const struct mcbench_grid *g, const char *path);

#endif
