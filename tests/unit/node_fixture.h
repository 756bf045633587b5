/* SPDX-License-Identifier: Apache-2.0
 * node_fixture.h - a master, a store with memory and the node's daemon in this process; clients
 * that use the daemon through the library or through raw messages on its socket. */
#ifndef TEST_NODE_FIXTURE_H
#define TEST_NODE_FIXTURE_H

#include "node/node.h"
#include "tests/unit/test_client_fixture.h"

#define NODE_SEGMENT (64 * MIB)
#define NODE_HOT (8 * MIB)

extern const char *node_uids;	/* of the daemons that start from now on; NULL at first */

/* The daemon of a store with @segment bytes. */
void node_start(uint64_t segment);
void node_stop(void);
/* The same for a store that the caller has opened. */
void node_start_with(mcs_t *s);
/* The same, but the socket's directory stays: the daemon ends, and restarts at its old address. */
void node_down(void);
void node_up(uint64_t segment);
mcs_t *node_store(void);		/* the daemon's own */
struct mcn *node_daemon(void);
const char *node_address(void);		/* "unix:PATH" */
mcs_t *node_client(uint64_t buffer, uint64_t pool);	/* goes through the daemon */
/* For cmocka: set up everything, with a client that has 1 MiB of shared memory and a local pool of
 * 4 MiB; tear everything down, after checking that nothing is pinned any more. */
mcs_t *node_setup(void);
void node_teardown(mcs_t *c);
/* Wait up to 5 s until the pool has that many pins and connections. */
void node_wait_counts(uint64_t pins, uint64_t connections);

/* A client by hand. */
struct node_hand {
	int sock;
	struct mcfs_msg msg;		/* the last answer */
	uint64_t hello_clock_ns;
	struct mcfs_ring *ring;
	struct mcfs_sqe *sq;
	struct mcfs_cqe *cq;
	unsigned char *arena;
	size_t ring_len;
};
void hand_open(struct node_hand *h);	/* greeted */
void hand_close(struct node_hand *h);
/* Send one request and receive its response: the status, and the descriptor in *ret_fd if not
 * NULL. */
int hand_ask(struct node_hand *h, uint16_t type, uint32_t id, uint64_t size, int fd, int *ret_fd);
void hand_ring(struct node_hand *h, uint32_t entries, uint64_t arena);
/* Submit @e without waiting; read the next completion, which arrives within 10 s. */
void hand_give(struct node_hand *h, const struct mcfs_sqe *e);
struct mcfs_cqe hand_take(struct node_hand *h);
int hand_memfd(size_t size, unsigned char **ret);	/* a descriptor, and the address at which it is mapped */

#endif
