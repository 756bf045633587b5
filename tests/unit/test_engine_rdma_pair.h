/* SPDX-License-Identifier: Apache-2.0
 * test_engine_rdma_pair.h - two engines of this process on fake NICs.  With RDMA_IWARP defined, all NICs are iWARP
 * NICs. */
#ifndef TEST_ENGINE_RDMA_PAIR_H
#define TEST_ENGINE_RDMA_PAIR_H

#include "test_engine_fixture.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/err.h"
#include "common/sys/clock.h"
#include "engine/engine_i.h"
#include "engine/rdma/rdma_i.h"
#include "tests/lib/fake_cm.h"
#include "tests/lib/fake_verbs.h"

#define REGION (32u << 20)

struct pair {
	struct side owner, user;
	struct mce_peer *peer;
	uint8_t nonce[16];
};

extern const struct mce_conf rdma_conf;

/* NICs fake0, ... */
void nics_new(unsigned nics);
/* Two engines; the user's memory is registered for local use. */
void pair_open_as(struct pair *p, const struct mce_conf *owner, const struct mce_conf *user);
/* The same on these NICs, which exist. */
void pair_open_on(struct pair *p, const char *owner_nics, const char *user_nics);
void pair_open(struct pair *p, unsigned nics);
/* No queue pair, memory region or other object of the NICs is left. */
void pair_close(struct pair *p);
struct mce_req req_of(struct pair *p, enum mce_op op, uint64_t off, struct iovec *iov, unsigned iovcnt);
int move(struct pair *p, enum mce_op op, uint64_t off, void *mem, uint64_t len, enum mce_path *ret_path);
/* Write and read @len bytes at @off, from and to @mem; the path of both. */
enum mce_path round_trip(struct pair *p, uint64_t off, char *mem, uint64_t len, uint64_t seed);
/* Wait until the next transfer goes over RDMA. */
void settle(struct pair *p);
uint64_t soon(void);

#endif
