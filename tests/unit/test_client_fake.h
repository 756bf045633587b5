/* SPDX-License-Identifier: Apache-2.0
 * test_client_fake.h - a master whose replies the test determines: correct, too short, too long,
 * invalid. */
#ifndef TEST_CLIENT_FAKE_H
#define TEST_CLIENT_FAKE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "common/sys/lock.h"

#include "proto/rpc_server.h"

#define FAKE_ADDR "local:fake"

/* Deviations of the fake master; all zero: it behaves correctly. Set before the calls that they
 * affect. */
struct fake {
	uint16_t fail_type;		/* requests of this type ... */
	unsigned fail_times;		/* ... this many times ... */
	int fail_err;			/* ... get this error */
	int grant_err;			/* PUT_START items get this error ... */
	unsigned grant_times;		/* ... this many times */
	int end_err;			/* PUT_END items get this error, and the put is forgotten ... */
	unsigned end_times;		/* ... this many times */
	unsigned short_lists;		/* how many LIST replies omit the last entry */
	uint64_t add_offset;		/* to every replica */
	uint64_t add_size;		/* to every object */
	uint32_t flip_crc;		/* in every object */
	unsigned no_replicas;		/* grants and objects without replicas */
	unsigned unknown_segment;	/* replicas in an unknown segment */
	unsigned new_generation;	/* how many GET replies have a new generation */
	unsigned endpoint_bytes;	/* length of the endpoints of segments */
	unsigned odd_segment;		/* list an additional segment with an invalid endpoint first */
	uint64_t evictable;		/* in the reply to STATS */
	unsigned reattach;		/* how many heartbeat replies request it */
	uint32_t heartbeat_ms;		/* requested in heartbeat replies */
	uint32_t ttl_ms;		/* of clients; 0: 10 s */

	/* counted */
	unsigned calls[64];		/* by type */
	unsigned open_puts, pins, revoked;
};
extern struct fake fake;
extern struct mc_mutex fake_lock;	/* guards it */
unsigned fake_count(const unsigned *counter);

void fake_start(void);
void fake_stop(void);

#endif
