/* SPDX-License-Identifier: Apache-2.0
 * calls.h - the functions that upstream's clients call. */
#ifndef MCN_UP_CALLS_H
#define MCN_UP_CALLS_H

#include "common/principal.h"
#include "node/upstream/dummy.h"
#include "node/upstream/wire.h"

/* One call that is carried out. */
struct mcn_up_run {
	mcs_t *store;
	struct mcn_up_dummies *dummies;
	uid_t uid;			/* the calling user */
	const struct mc_principal *identity;	/* the user's */
	uint64_t deadline;		/* ns; the client may use its memory otherwise afterwards */
	const struct mcn_up_call *call;
	struct mcn_up_arg arg[MCN_UP_ARGS];
	struct mcn_up_answer *answer;
};

struct mcn_up_call {
	const char *name;		/* after "mooncake::RealClient::" */
	uint32_t function;
	uint32_t asks, answers;		/* hashes of the request (0: it has no bytes) and of the answer, even */
	const char *types;		/* types of the arguments, as for mcn_up_decode() */
	bool quick;			/* does not ask the store, so it cannot wait; carried out also when late */
	void (*run)(struct mcn_up_run *r);	/* writes the answer */
	uint32_t roles;			/* MC_MAY_*: users with one of them may call it */
};

/* NULL: there is no such function. */
const struct mcn_up_call *mcn_up_call_find(uint32_t function);
/* All of them, ended by one without a name. */
extern const struct mcn_up_call mcn_up_calls[];

/* Decode the arguments and carry out the call; @a is the answer then, or an error of the protocol.  @r has all but
 * arg. */
void mcn_up_call_run(struct mcn_up_run *r, const void *data, size_t len);

int64_t mcn_up_left_ms(const struct mcn_up_run *r);
/* -MCS_EPARAM: no client of the caller has that name. */
int mcn_up_client_check(const struct mcn_up_run *r, struct mcn_up_uuid id);

/* calls_control.c */
void mcn_up_run_ready(struct mcn_up_run *r);
void mcn_up_run_ping(struct mcn_up_run *r);
void mcn_up_run_is_mapped(struct mcn_up_run *r);
void mcn_up_run_unmap(struct mcn_up_run *r);
void mcn_up_run_unregister(struct mcn_up_run *r);
void mcn_up_run_release(struct mcn_up_run *r);
void mcn_up_run_allocate(struct mcn_up_run *r);
/* calls_put.c; the upserts differ by the name of the call only */
void mcn_up_run_put(struct mcn_up_run *r);
void mcn_up_run_put_parts(struct mcn_up_run *r);
void mcn_up_run_put_batch(struct mcn_up_run *r);
void mcn_up_run_upsert(struct mcn_up_run *r);
void mcn_up_run_upsert_parts(struct mcn_up_run *r);
void mcn_up_run_upsert_batch(struct mcn_up_run *r);
void mcn_up_run_upsert_from(struct mcn_up_run *r);
void mcn_up_run_batch_put_from(struct mcn_up_run *r);
void mcn_up_run_batch_upsert_from(struct mcn_up_run *r);
void mcn_up_run_batch_put_multi(struct mcn_up_run *r);
void mcn_up_run_batch_upsert_multi(struct mcn_up_run *r);
/* calls_get.c */
void mcn_up_run_acquire(struct mcn_up_run *r);
void mcn_up_run_batch_acquire(struct mcn_up_run *r);
void mcn_up_run_get_range(struct mcn_up_run *r);
void mcn_up_run_get_ranges(struct mcn_up_run *r);
void mcn_up_run_batch_get(struct mcn_up_run *r);
void mcn_up_run_batch_get_multi(struct mcn_up_run *r);
/* calls_names.c */
void mcn_up_run_exist(struct mcn_up_run *r);
void mcn_up_run_batch_exist(struct mcn_up_run *r);
void mcn_up_run_size(struct mcn_up_run *r);
void mcn_up_run_remove(struct mcn_up_run *r);
void mcn_up_run_remove_regex(struct mcn_up_run *r);
void mcn_up_run_remove_all(struct mcn_up_run *r);
void mcn_up_run_batch_remove(struct mcn_up_run *r);
void mcn_up_run_copy_task(struct mcn_up_run *r);
void mcn_up_run_move_task(struct mcn_up_run *r);
void mcn_up_run_query_task(struct mcn_up_run *r);

/* Write a vector of results, as of mcn_up_put_result() or mcn_up_put_size().  NULL: there was no memory. */
void mcn_up_answer_results(struct mcn_up_run *r, const int *result, uint64_t n);
void mcn_up_answer_sizes(struct mcn_up_run *r, const int64_t *result, uint64_t n);

/* The addresses and lengths of several values in a client's memory, by "[u[u" or "[[u[[u".  @most: pieces of all. */
struct mcn_up_places {
	struct iovec *iov;
	unsigned *first;		/* iov of value i: first[i] to first[i + 1] */
	struct mcn_up_holds holds;
};
/* -MCS_EPARAM: the lists do not fit together or to @n keys, or a range is not the client's; -EFAULT; -ENOMEM.  Call
 * mcn_up_places_done() in any case. */
int mcn_up_places_flat(struct mcn_up_run *r, uint64_t n, unsigned addrs, unsigned sizes, struct mcn_up_uuid id,
		       struct mcn_up_places *ret);
int mcn_up_places_rows(struct mcn_up_run *r, uint64_t n, unsigned addrs, unsigned sizes, struct mcn_up_uuid id,
		       struct mcn_up_places *ret);
/* False: memory vanished, and bytes read from it or written to it are void. */
bool mcn_up_places_done(struct mcn_up_run *r, struct mcn_up_places *p);

/* opts.c: the options of a put of @n keys.  Upstream's rules: -MCS_EPARAM, -MCS_ENODFS; -ENOMEM.  *ret_lists is freed
 * by the caller. */
int mcn_up_opts(const struct mcn_up_config *c, uint64_t n, bool same_node, struct mcs_put_opts *ret,
		const char ***ret_lists);

#endif
