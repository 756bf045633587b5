/* SPDX-License-Identifier: Apache-2.0
 * put_i.h - the steps of a batch of puts; see put.c. */
#ifndef MCS_PUT_I_H
#define MCS_PUT_I_H

#include "client/direct/direct.h"

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
	/* of the reservation; one whose connection is not known is BROKEN */
	uint64_t generation, epoch;
	const struct mcp_replica *replica;
	unsigned n_replicas;
	struct mce_req *req;		/* one per replica */
	struct mcs_seg **seg;
	uint32_t crc;
};

struct mcs_put_request {
	struct mcs_direct *s;
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
	uint64_t granted_ns;		/* when the master was asked for the room that is written to */
	unsigned rounds, hopeless;	/* of waiting for room */
	bool held;			/* the master says that waiting helps */
};

/* RESERVE -> WRITE (or COMMIT without bytes), DONE, or still RESERVE: no room now.  Negative: the
 * master could not be asked. */
int mcs_put_reserve(struct mcs_put_request *b);
/* WRITE -> COMMIT or BROKEN: move the bytes to all replicas. */
void mcs_put_write(struct mcs_put_request *b);
/* Is the room of a put of connection @epoch still its own?  The connection is looked at when it
 * was not seen since @seen_ns (mc_now_ns()) for a while. */
bool mcs_put_owned(const struct mcs_direct *s, uint64_t epoch, uint64_t seen_ns);
/* Wait for writes to such room: mce_batch_wait(), but they are broken off when it is not the
 * put's any more: -MC_ESTALE_PUT. */
int mcs_put_wait(const struct mcs_direct *s, struct mce_batch *b, struct mce_req *reqs, unsigned n,
		 uint64_t epoch, uint64_t deadline);
/* COMMIT -> DONE or RESERVE, BROKEN -> revoked, then RESERVE or DONE. */
void mcs_put_commit(struct mcs_put_request *b);

/* Parts of a request that come from the caller's options. */
static inline enum mcs_soft_pin mcs_put_soft_pin(const struct mcs_put_opts *opts)
{
	return opts->flags & MCS_PUT_SOFT_PIN ? MCS_SOFT_PIN_ENABLE : opts->soft_pin;
}

/* The preferred segments; without any, this process's own segment first.  @own: memory for that
 * list. */
static inline const char *const *mcs_put_preferred(const struct mcs_direct *s, const struct mcs_put_opts *opts,
						   const char *own[2])
{
	own[0] = s->owner ? mce_engine_endpoint(s->engine) : NULL;
	own[1] = NULL;
	return opts->preferred ? opts->preferred : own;
}

void mcs_put_done(struct mcs_put_op *op, int result);
void mcs_put_lost(const struct mcs_put_request *b, struct mcs_put_op *op);
/* Try once more, or give up with @err. */
void mcs_put_again(struct mcs_put_op *op, int err);

#endif
