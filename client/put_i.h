/* SPDX-License-Identifier: Apache-2.0
 * put_i.h - the steps of a batch of puts; see put.c. */
#ifndef MCS_PUT_I_H
#define MCS_PUT_I_H

#include "client/store_i.h"

/* Attempts per object for reasons other than a full pool. */
#define MCS_PUT_TRIES 3

enum mcs_put_step {
	MCS_STEP_RESERVE, MCS_STEP_WRITE, MCS_STEP_COMMIT, MCS_STEP_BROKEN, MCS_STEP_DONE
};

struct mcs_put_op {
	struct mcs_put_item *item;
	enum mcs_put_step state;
	uint64_t size;
	unsigned tries;
	int refused;			/* why there was no room */
	int broken;			/* state BROKEN: why */
	uint64_t generation, epoch;	/* of the reservation */
	const struct mcp_replica *replica;
	unsigned n_replicas;
	struct mce_req *req;		/* one per replica */
	struct mcs_seg **seg;
	uint32_t crc;
};

struct mcs_put_group {
	struct mcs *s;
	struct mcs_scratch *sc;
	struct mcs_put_op *ops;
	unsigned n;
	unsigned flags, replicas;	/* as of mcs_put_opts */
	uint32_t soft_pin_ms;
	enum mcs_kind kind;
	enum mcs_soft_pin soft_pin;
	uint8_t data_type;
	struct mcs_key group;
	const char *const *preferred;	/* NULL-ended */
	uint64_t deadline;
	unsigned rounds, hopeless;	/* of waiting for room */
};

/* RESERVE -> WRITE (or COMMIT without bytes), DONE, or still RESERVE: no room now.  Negative: the
 * master could not be asked. */
int mcs_put_reserve(struct mcs_put_group *b);
/* WRITE -> COMMIT or BROKEN: move the bytes to all replicas. */
void mcs_put_write(struct mcs_put_group *b);
/* COMMIT -> DONE or RESERVE, BROKEN -> revoked, then RESERVE or DONE. */
void mcs_put_commit(struct mcs_put_group *b);

void mcs_put_done(struct mcs_put_op *op, int result);
void mcs_put_lost(const struct mcs_put_group *b, struct mcs_put_op *op);
/* Try once more, or give up with @err. */
void mcs_put_again(struct mcs_put_op *op, int err);

#endif
