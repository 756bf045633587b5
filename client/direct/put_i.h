/* SPDX-License-Identifier: Apache-2.0
 * put_i.h - a request of puts and its steps; see put.c. */
#ifndef MCS_PUT_I_H
#define MCS_PUT_I_H

#include "client/attrs.h"
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
	int refused;			/* error of the last refused reservation */
	int broken;			/* state BROKEN: the reason */
	/* terms of the reservation; if its connection is not known, the state is BROKEN */
	uint64_t generation, epoch, fence;
	const struct mcp_replica *replica;
	unsigned n_replicas;
	struct mce_req *req;		/* one per replica */
	struct mcs_seg **seg;
	uint32_t crc;
	bool leaving;			/* state BROKEN: the background thread revokes it */
};

struct mcs_put_request {
	struct mcs_direct *s;
	struct mcs_scratch *sc;
	struct mcs_put_op *ops;
	unsigned n;
	unsigned flags, replicas;	/* as in mcs_put_opts */
	uint32_t soft_pin_ms;
	enum mcs_kind kind;
	enum mcs_soft_pin soft_pin;
	uint8_t data_type;
	struct mcs_key group;		/* eviction group of items without an own one */
	struct mcp_attrs attrs;		/* attributes of all items; set 0: none */
	const char *const *preferred;	/* NULL-ended */
	unsigned nof_replicas;		/* 0: none */
	const char *const *preferred_nof;	/* NULL-ended; NULL: none */
	uint64_t deadline;
	uint64_t granted_ns;		/* when the last reservation was sent */
	uint64_t fence;			/* the fence number then, or an older one */
	unsigned rounds, hopeless;	/* waits for space; those in a row without a chance */
	bool held;			/* the master says that waiting helps */
};

/* RESERVE -> WRITE (or COMMIT without bytes), DONE, or still RESERVE: no space now.  Negative: the
 * request failed. */
int mcs_put_reserve(struct mcs_put_request *b);
/* WRITE -> COMMIT or BROKEN: move the bytes to all replicas. */
void mcs_put_write(struct mcs_put_request *b);
/* Does a range reserved on connection @epoch still belong to its put?  Checks the connection if
 * it was last known good at @seen_ns (mc_now_ns()) and that is too long ago. */
bool mcs_put_owned(const struct mcs_direct *s, uint64_t epoch, uint64_t seen_ns);
/* Wait for writes to such ranges: as mce_batch_wait(), but cancel them when the ranges no longer
 * belong to the put: -MC_ESTALE_PUT. */
int mcs_put_wait(const struct mcs_direct *s, struct mce_batch *b, struct mce_req *reqs, unsigned n,
		 uint64_t epoch, uint64_t deadline);
/* COMMIT -> DONE or RESERVE; BROKEN -> revoke, then RESERVE or DONE. */
void mcs_put_commit(struct mcs_put_request *b);

/* Parts of a request that come from the caller's options. */
static inline enum mcs_soft_pin mcs_put_soft_pin(const struct mcs_put_opts *opts)
{
	return opts->flags & MCS_PUT_SOFT_PIN ? MCS_SOFT_PIN_ENABLE : opts->soft_pin;
}

/* The preferred segments; without any, this process's own segment first.  @own: memory for that list. */
static inline const char *const *mcs_put_preferred(const struct mcs_direct *s, const struct mcs_put_opts *opts,
						   const char *own[2])
{
	own[0] = s->has_memory ? mce_engine_endpoint(s->engine) : NULL;
	own[1] = NULL;
	return opts->preferred ? opts->preferred : own;
}

/* The attributes as a list for a message. */
static inline struct mcp_seq mcs_put_attrs(const struct mcp_attrs *attrs)
{
	return mcp_seq(attrs, attrs->set != 0);
}

void mcs_put_done(struct mcs_put_op *op, int result);
/* Is an item in this step? */
bool mcs_put_any(const struct mcs_put_request *b, enum mcs_put_step state);
/* The key has a value that this put must not replace. */
void mcs_put_lost(const struct mcs_put_request *b, struct mcs_put_op *op);
/* Try once more, or give up with @err. */
void mcs_put_again(struct mcs_put_op *op, int err);

#endif
