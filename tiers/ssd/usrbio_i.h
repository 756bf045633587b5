/* SPDX-License-Identifier: Apache-2.0
 * usrbio_i.h - shared by the files of USRBIO. */
#ifndef MCT_USRBIO_I_H
#define MCT_USRBIO_I_H

#include "common/sys/thread.h"
#include "tiers/ssd/hf3fs.h"
#include "tiers/ssd/io_i.h"

#define MCT_BOUNCES 16u
#define MCT_BOUNCE_LEN (1u << 20)

/* One transfer in a ring. */
struct mct_flight {
	struct mc_list node;	/* on mct_usrbio.free or mct_lane.air, or on none */
	struct mct_io_op *op;
	char *bounce;		/* NULL: the op's memory is in the pool */
	char *at;
	uint32_t len;
};

struct mct_lane {
	struct mct_io *io;
	bool write;
	struct mct_hf3fs_ior ring;
	bool has_ring;
	struct mc_thread feeder, reaper;
	bool feeds, reaps;	/* the threads run */
	/* guarded by mct_io.lock */
	struct mc_cond fed, flew;
	struct mc_list queue;	/* ops that are not in the ring */
	struct mc_list air;	/* flights in the ring */
	bool full;		/* the ring takes no flight until one of them ends */
	unsigned refused;
};

struct mct_usrbio {
	/* constant after start */
	struct mct_hf3fs lib;
	char mount_point[MCT_HF3FS_PATH];
	struct mct_hf3fs_iov iov;
	int fd;
	bool registered;
	struct mct_flight *flight;
	/* guarded by mct_io.lock */
	struct mct_lane lane[2];	/* reads, writes */
	struct mc_list free;	/* flights */
	char *bounce[MCT_BOUNCES];	/* free ones */
	unsigned bounces, flying;
	int gone;		/* error of all transfers: 3FS's daemon has ended */
};

/* usrbio_lane.c: the threads of a lane (struct mct_lane *). */
void *mct_usrbio_feeder(void *arg);
void *mct_usrbio_reaper(void *arg);
/* Wake the threads that can continue. */
void mct_usrbio_wake_locked(struct mct_io *io);

#endif
