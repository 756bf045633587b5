/* SPDX-License-Identifier: Apache-2.0
 * mcbench.h - declarations shared by the commands of mcbench. */
#ifndef MCBENCH_H
#define MCBENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <mooncake/mcs.h>

#include "common/options/options.h"

/* Exit status. */
enum mcbench_status {
	MCBENCH_OK = 0,
	MCBENCH_WRONG = 1,	/* some bytes differed from those that were put */
	MCBENCH_USAGE = 2,
	MCBENCH_FAILED = 3,	/* could not run: no master, no memory, no trace */
	MCBENCH_ERRORS = 4,	/* ran, and some requests failed */
};

/* Maximum number of wrong objects that are reported. */
#define MCBENCH_BLAMED_MAX 10u

struct mcbench_conf {
#define OPT(commands, ...) MC_OPT_FIELD(__VA_ARGS__)
#include "tools/bench/mcbench.def"
#undef OPT
};

struct mcbench {
	const struct mcbench_conf *conf;
	mcs_t *store;
	int argc;		/* arguments after the command */
	const char **argv;
};

/* The commands; they return an exit status. */
int mcbench_replay(struct mcbench *b);
int mcbench_micro(struct mcbench *b);
/* replay with --pool_blocks: on pools of its own, without b->store (mcbench_sweep.c). */
int mcbench_sweep(struct mcbench *b);

/* Connect to @master, with memory of this process; as mcs_open() (mcbench_pool.c). */
int mcbench_open(const struct mcbench_conf *conf, const char *master, uint64_t segment_size, mcs_t **ret);

/* ---- mcbench_end.c ---- */

/* After this call SIGINT and SIGTERM set mcbench_stopped(), so that the run ends and reports its results.  The
 * second signal kills the process. */
void mcbench_catch_signals(void);
bool mcbench_stopped(void);

/* "mcbench: <text>" on standard error; returns @status. */
int mcbench_complain(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
