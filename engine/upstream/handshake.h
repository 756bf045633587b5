/* SPDX-License-Identifier: Apache-2.0
 * handshake.h - upstream's handshake daemon and its clients: descriptors (P2PHANDSHAKE), notifications,
 * probes and RDMA connection setup, one TCP connection per call.
 *
 * A frame is u64 length (little-endian, bytes that follow), u8 type, JSON text.  Old peers send no type: if the
 * first byte is above 3, the frame is a connection setup, and its answer has no type either. */
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

struct mc_networks;
struct mce_handshake;

/* Callbacks run on the daemon's only thread, so they must not wait for peers.  Texts are NUL-terminated and
 * valid during the call; *ret_text is malloc'ed.  A negative result closes the connection without an answer. */
struct mce_handshake_conf {
	const char *host;	/* address to listen on; NULL: all */
	int port;		/* 0: a free port of the range, see port.h */
	const struct mc_networks *networks;	/* hosts that may connect; NULL: all; borrowed until close */
	void *arg;
	/* A peer sends its descriptor and asks for ours. */
	int (*metadata)(void *arg, const char *peer_text, size_t len, char **ret_text);
	int (*notify)(void *arg, const char *name, const char *msg);
	/* RDMA connection setup; NULL: answer that this node has no RDMA. */
	int (*connection)(void *arg, const char *text, size_t len, char **ret_text);
};

/* Listen, and serve in a thread of its own.  Stalled peers do not keep others from an answer: a
 * connection may take 5 s between two bytes, 60 s in total and MC_HANDSHAKE_MAX_LENGTH bytes (1 MiB);
 * if 256 connections are open, the one that has been silent longest is closed for a new one. */
int mce_handshake_open(const struct mce_handshake_conf *conf, struct mce_handshake **ret);
int mce_handshake_port(const struct mce_handshake *h);
void mce_handshake_close(struct mce_handshake *h);	/* NULL is fine; not from a callback */

/* Time limit of a call after connect; connect may take MC_HANDSHAKE_CONNECT_TIMEOUT, default 5 s. */
#define MCE_HANDSHAKE_ANSWER_MS 5000
/* The same for MCE_HANDSHAKE_CONNECTION: a node of upstream's that waits for the message that an earlier connection is
 * ready answers the next request only after 5 s. */
#define MCE_HANDSHAKE_SETUP_MS 12000
/* Recommended time limit of a whole call: the sum of both limits if that of connect is longer than
 * MCE_HANDSHAKE_ANSWER_MS, else MCE_HANDSHAKE_ANSWER_MS. */
int64_t mce_handshake_ask_ms(void);
/* Send a request to @host (IPv6 without brackets) and wait for the answer, malloc'ed.  -ECONNREFUSED,
 * -ETIMEDOUT, ...; -MC_EPROTO for an invalid answer. */
int mce_handshake_call(const char *host, int port, enum mce_handshake_type type, const char *json,
		       uint64_t deadline, char **ret_reply);
/* The same for notifications and probes, whose answers say only whether they succeeded. */
int mce_handshake_notify(const char *host, int port, const char *name, const char *msg, uint64_t deadline);
int mce_handshake_probe(const char *host, int port, uint64_t deadline);

#endif
