/* SPDX-License-Identifier: Apache-2.0
 * test_proto_fixture.h - a server with simple handlers, for the tests of RPC. */
#ifndef TEST_PROTO_FIXTURE_H
#define TEST_PROTO_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "proto/rpc_client.h"
#include "proto/rpc_server.h"
#include "tests/lib/xor_net.h"

/* The handlers:
 *	EXIST		one byte per key: 1 if the key begins with 'y'
 *	RENAME		the number of this request in its session; @from "slow" passes the fault
 *			point "test.slow"; @from "gate" waits until the gate is opened
 *	LIST		a cursor of @limit bytes, all of them 'c'
 *	REMOVE_MATCH	-MC_ENOOBJECT
 *	UNMOUNT		returns without an answer
 *	RELEASE		one-way: adds its pins to a sum
 *	STATS		the sum of RELEASE, as objects
 *	HEARTBEAT	the lowest bit of the sequence
 * RENAME, RELEASE and HEARTBEAT are served on any channel. */
struct fixture {
	struct mcp_server *server;
	char dir[64];			/* directory of the unix socket */
	char path[96];			/* unix:... */
	const char *tcp;		/* bound address */
	int opened_result;
	uint32_t peer_roles;	/* of peers on sockets; 0: all */
	atomic_long opened, closed, pins, heartbeats;
	atomic_bool gate;
};

/* Start on a TCP port, a unix socket and as local:test.  @change may change the configuration. */
void fixture_start(struct fixture *f, void (*change)(struct mcp_server_conf *conf));
void fixture_stop(struct fixture *f);
/* A client; @addr NULL: over TCP. */
struct mcp_client *fixture_client(const char *addr);
/* A call of RENAME: its number in its session, or the error. */
int64_t fixture_rename(struct mcp_client *c, const char *from, int64_t ms);
/* Wait up to 10 s until @*value is @want; fails the test otherwise. */
void fixture_wait(const atomic_long *value, long want);

/* ---- raw frames ---- */

/* Streams of test_net(); raw_close() frees them.  Blocking reads and writes fail the test after 10 s. */
struct mc_stream *raw_connect(const char *addr);
struct mc_stream *raw_accept(struct mc_listener *l);
void raw_close(struct mc_stream *raw);
void raw_send(struct mc_stream *raw, const void *data, size_t len);
/* All @len bytes; false: the peer has closed. */
bool raw_recv(struct mc_stream *raw, void *data, size_t len);
/* Send a frame with the encoding of @msg (@d NULL: no body). */
void raw_send_frame(struct mc_stream *raw, struct mcp_frame f, const struct mcp_desc *d, const void *msg);
/* Receive a frame. True: its body is in memory of this thread; false: the peer has closed. */
bool raw_recv_frame(struct mc_stream *raw, struct mcp_frame *ret, const uint8_t **ret_body);
/* Connect and say hello. */
struct mc_stream *raw_hello(const char *addr, enum mcp_channel channel);
void raw_hello_fill(struct mcp_hello *hello, enum mcp_channel channel);

extern struct fixture fx;	/* the one that the handlers use */

#endif
