/* SPDX-License-Identifier: Apache-2.0
 * test_client_fake.h - a master that answers as it is told: right, too little, too much,
 * nonsense. */
#ifndef TEST_CLIENT_FAKE_H
#define TEST_CLIENT_FAKE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <pthread.h>

#include "proto/rpc_server.h"

#define FAKE_ADDR "local:fake"

/* What it does wrong; all zero: it behaves.  Set before the calls that are to meet it. */
struct fake {
	uint16_t fail_type;		/* requests of this type ... */
	unsigned fail_times;		/* ... so many times ... */
	int fail_err;			/* ... get this error */
	int grant_err;			/* PUT_START items get this error ... */
	unsigned grant_times;		/* ... so many times */
	int end_err;			/* PUT_END items get this error, and are forgotten ... */
	unsigned end_times;		/* ... so many times */
	unsigned short_lists;		/* leave out the last answer of lists, so many times */
	uint64_t add_offset;		/* to every replica */
	uint64_t add_size;		/* to every object */
	uint32_t flip_crc;		/* in every object */
	unsigned no_replicas;		/* grants and objects without any */
	unsigned unknown_segment;	/* replicas in a segment that nobody has */
	unsigned new_generation;	/* so many answers to GET carry a generation of their own */
	unsigned endpoint_bytes;	/* segments have an endpoint of so many bytes */
	unsigned odd_segment;		/* another one, whose endpoint is none, is told of first */
	uint64_t evictable;		/* said in STATS */
	unsigned reattach;		/* ask for it in so many answers to heartbeats */
	uint32_t heartbeat_ms;		/* asked for in answers to heartbeats */
	uint32_t ttl_ms;		/* of clients; 0: 10 s */

	/* counted */
	unsigned calls[64];		/* by type */
	unsigned open_puts, pins, revoked;
};
extern struct fake fake;
extern pthread_mutex_t fake_lock;	/* guards it */
unsigned fake_count(const unsigned *counter);

void fake_start(void);
void fake_stop(void);

#endif
