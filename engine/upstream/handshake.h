/* SPDX-License-Identifier: Apache-2.0
 * handshake.h - upstream's handshake daemon and its clients: descriptors (P2PHANDSHAKE), notifications,
 * probes and RDMA connection setup, one TCP connection per call.
 *
 * A frame is u64 length (little-endian, counts all that follows), u8 type, JSON text.  Old peers leave the
 * type out; a first byte above 3 tells, and it is a connection setup then, answered the same way. */
#ifndef MCE_HANDSHAKE_H
#define MCE_HANDSHAKE_H

#include <stddef.h>
#include <stdint.h>

enum mce_handshake_type {
	MCE_HANDSHAKE_CONNECTION,
	MCE_HANDSHAKE_METADATA,
	MCE_HANDSHAKE_NOTIFY,
	MCE_HANDSHAKE_PROBE,
};

struct mce_handshake;

/* Callbacks run on the daemon's one thread, so they must not wait for peers.  Texts are borrowed for the call
 * and NUL-terminated; *ret_text is malloc'ed.  A negative result closes the connection without an answer. */
struct mce_handshake_conf {
	const char *host;	/* to listen on; NULL: all addresses */
	int port;		/* 0: a free one of MC_MIN_RPC_PORT..MC_MAX_RPC_PORT, 15000 to 17000 */
	void *arg;
	/* A peer tells its descriptor and asks for ours. */
	int (*metadata)(void *arg, const char *peer_text, size_t len, char **ret_text);
	int (*notify)(void *arg, const char *name, const char *msg);
	/* NULL: peers are told that there is no RDMA here. */
	int (*connection)(void *arg, const char *text, size_t len, char **ret_text);
};

/* Listen and serve from a thread of its own.  However many peers stall half-way, the others are answered:
 * a connection has 5 s from one byte to the next and 60 s in all, MC_HANDSHAKE_MAX_LENGTH bytes (1 MiB), and
 * when 256 are open the one that has been silent longest goes. */
int mce_handshake_open(const struct mce_handshake_conf *conf, struct mce_handshake **ret);
int mce_handshake_port(const struct mce_handshake *h);
void mce_handshake_close(struct mce_handshake *h);	/* NULL is fine; not from a callback */

/* From the connection on; to connect may take MC_HANDSHAKE_CONNECT_TIMEOUT, 5 s. */
#define MCE_HANDSHAKE_ANSWER_MS 5000
/* What a call should be given: time for both where connecting may take longer than that, else for either. */
int64_t mce_handshake_ask_ms(void);
/* Ask @host (IPv6 without brackets) and wait for its answer, malloc'ed.  -ECONNREFUSED, -ETIMEDOUT, ...;
 * -MC_EPROTO for an answer that is none. */
int mce_handshake_call(const char *host, int port, enum mce_handshake_type type, const char *json,
		       uint64_t deadline, char **ret_reply);
/* The same for the two whose texts say little. */
int mce_handshake_notify(const char *host, int port, const char *name, const char *msg,
			 uint64_t deadline);
int mce_handshake_probe(const char *host, int port, uint64_t deadline);

/* MC_MIN_RPC_PORT and MC_MAX_RPC_PORT, or what holds when they make no sense. */
void mce_port_range(int *ret_min, int *ret_max);
/* Listen on a free port of MC_MIN_RPC_PORT..MC_MAX_RPC_PORT, chosen at random as upstream does, or on @port when
 * that is not 0.  The descriptor, or negative. */
int mce_port_listen(const char *host, int port, int backlog, int *ret_port);

#endif
