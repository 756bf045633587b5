/* SPDX-License-Identifier: Apache-2.0
 * tls_gate.h - limits for peers of an accepting side that have not proved an identity yet.
 *
 * At most MC_TLS_UNPROVEN_MAX of their connections exist, or a quarter of the process's descriptors, and half of that
 * from one address.  For a further one the oldest is closed: of its address, or of the address that has the most.  An
 * address may begin MC_TLS_BURST handshakes at once and MC_TLS_RATE per second after that; a handshake that proves an
 * identity does not count, nor does a peer that has no address, as in tests.  The addresses of an IPv6 network of 64
 * bits are one.  Addresses share MC_TLS_SLOTS counters by a keyed hash, so the memory is fixed.
 *
 * All functions: any thread. */
#ifndef MC_TLS_GATE_H
#define MC_TLS_GATE_H

#include "common/list.h"
#include "common/net/stream.h"

#define MC_TLS_UNPROVEN_MAX 1024u
#define MC_TLS_BURST 4096u
#define MC_TLS_RATE 512u	/* per second */
#define MC_TLS_SLOTS 4096u

struct mc_tls_gate;

/* A connection in its handshake; all zero at first.  Guarded by the gate's lock. */
struct mc_tls_unproven {
	struct mc_list all, same;	/* lists of all, and of its slot; oldest first */
	struct mc_stream *stream;	/* NULL: it is in no list */
	uint16_t slot;
	bool counted;			/* its address has paid for it */
};

/* @service names it in the log; borrowed.  @seed: of the hash, 0: random. */
int mc_tls_gate_new(const char *service, uint64_t seed, struct mc_tls_gate **ret);
/* No connection may be in it.  NULL is fine. */
void mc_tls_gate_free(struct mc_tls_gate *g);

/* May the peer of the new stream begin a handshake?  *ret_slot: its address.  False: it may not, or the connection has
 * ended: the caller closes the stream. */
bool mc_tls_gate_admit(struct mc_tls_gate *g, const struct mc_stream *s, uint16_t *ret_slot);
/* The handshake of the admitted stream @s begins.  Until mc_tls_gate_leave() the stream can be shut down, and @u and @s
 * must stay. */
void mc_tls_gate_enter(struct mc_tls_gate *g, struct mc_tls_unproven *u, uint16_t slot, struct mc_stream *s);
/* The peer has @proved its identity, or the stream is about to be closed.  Nothing for a @u that was never entered. */
void mc_tls_gate_leave(struct mc_tls_gate *g, struct mc_tls_unproven *u, bool proved);

#endif
