/* SPDX-License-Identifier: Apache-2.0
 * service.h - the owner's side of a transport: how peers reach this engine's registered memory.
 *
 * One const table per service, complete: a service that has nothing to do in a slot has a function that does nothing.
 * A service keeps its state in mce_engine.service[] and its part of a region in mce_mr.service[], at the path of its
 * transport; no other file uses these.  When a peer connects again, the service fences the peer's old connection
 * itself, before it answers the new one. */
#ifndef MCE_SERVICE_H
#define MCE_SERVICE_H

#include "engine/mce.h"

struct mc_stream;
struct mce_greeting;	/* tcp/tcp_wire.h */

struct mce_service {
	/* Allocate the state, with the I/O threads running; no peer gets in yet.  close() follows also on failure. */
	int (*open)(struct mce_engine *e);
	/* Let peers in.  All services are open, those before this one in the list have started.  @conf is the
	 * caller's: its strings are valid only now. */
	int (*start)(struct mce_engine *e, const struct mce_conf *conf);
	/* Free the state.  The I/O threads have ended, all regions are unregistered.  Open may have failed. */
	void (*close)(struct mce_engine *e);
	/* A region is being registered; peers cannot know its key yet.  A service that cannot serve it leaves its
	 * requests to the others.  fd_offset and access of @mr are valid, @attr has the caller's descriptor. */
	void (*region_add)(struct mce_mr *mr, const struct mce_mr_attr *attr);
	/* The region is dead and out of the table: drop every reference that the service holds, and use the memory no
	 * more.  Aborts requests in the middle.  Any thread but an I/O thread, like revoke_wait. */
	void (*revoke_begin)(struct mce_mr *mr);
	/* No reference is left: return when no peer accesses the memory by itself any more, and free the service's
	 * part of the region.  Called without revoke_begin for a region that did not get into the table. */
	void (*revoke_wait)(struct mce_mr *mr);
	/* Is a peer connected that greeted with @token?  It is the proof that another service asks for when the same
	 * peer comes to it.  @ret_nonce: of its engine.  @ret_who: the identity that it has proved; all roles if peers
	 * prove none. */
	bool (*knows_peer)(struct mce_engine *e, uint64_t token, uint8_t ret_nonce[16], struct mc_principal *ret_who);
	/* Bits of MCE_FEATURE_* that the greeting of our TCP connections offers for this service; 0: none.  All
	 * services that come before TCP have started. */
	uint64_t (*features)(const struct mce_engine *e);
	/* The TCP service has accepted a connection whose greeting @g asks for this service: take over
	 * *@s, and answer.  -MC_ENOTSUP: not this service's; any failure leaves it to the caller. */
	int (*take_connection)(struct mce_engine *e, const struct mc_stream *s, const struct mce_greeting *g);
	/* The engine's list of writers has a new entry (mce_engine_fence()): end the access of those that it names.
	 * 0: none of them writes through this service after return.  -EAGAIN: call again later.  Any thread but an
	 * I/O thread. */
	int (*fence)(struct mce_engine *e, const uint8_t nonce[16], uint64_t upto);
};

extern const struct mce_service mce_map_service, mce_rdma_service, mce_tcp_service;

/* In the order in which they open and start; ends with NULL. */
extern const struct mce_service *const mce_services[];

/* Open and start all.  mce_services_close() follows also on failure. */
int mce_services_open(struct mce_engine *e, const struct mce_conf *conf);
void mce_services_close(struct mce_engine *e);
/* Does any service know the peer? */
bool mce_services_know(struct mce_engine *e, uint64_t token, uint8_t ret_nonce[16], struct mc_principal *ret_who);
/* The features of all services. */
uint64_t mce_services_features(const struct mce_engine *e);
/* Offer the connection to all; -MC_ENOTSUP. */
int mce_services_take_connection(struct mce_engine *e, const struct mc_stream *s, const struct mce_greeting *g);
/* Fence in all services. */
int mce_services_fence(struct mce_engine *e, const uint8_t nonce[16], uint64_t upto);

/* For slots with nothing to do. */
void mce_no_region_add(struct mce_mr *mr, const struct mce_mr_attr *attr);
void mce_no_revoke(struct mce_mr *mr);
bool mce_no_peer(struct mce_engine *e, uint64_t token, uint8_t ret_nonce[16], struct mc_principal *ret_who);
uint64_t mce_no_features(const struct mce_engine *e);
int mce_no_connection(struct mce_engine *e, const struct mc_stream *s, const struct mce_greeting *g);

#endif
