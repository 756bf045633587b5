/* SPDX-License-Identifier: Apache-2.0
 * test_client_fixture.h - a master in this process, stores that use it, and object contents that
 * can be checked without a copy. */
#ifndef TEST_CLIENT_FIXTURE_H
#define TEST_CLIENT_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <mooncake/mcs.h>

#include "common/options/options.h"
#include "master/master.h"

#define MIB ((size_t)1 << 20)

/* Address of the master that fixture_master() started. */
#define FIXTURE_LOCAL "local:test"

/* Start the master; @tweak changes its configuration (NULL: the defaults, but with short times). */
void fixture_master(void (*tweak)(struct mcm_conf *conf));
void fixture_master_stop(void);
const char *fixture_master_addr(void);	/* over TCP */

/* A store that contributes @segment bytes; closed by the caller. */
mcs_t *fixture_store(uint64_t segment);
mcs_t *fixture_store_with(uint64_t segment, int force_tcp, const char *master);

struct mcs_key fixture_key(const char *text);

/* Bytes that depend on @seed and their position. */
void fixture_fill(void *buf, size_t len, uint64_t seed, size_t offset);
/* Whether these are the bytes from @offset on. */
int fixture_same(const void *buf, size_t len, uint64_t seed, size_t offset);

int fixture_put(mcs_t *s, const char *key, size_t len, uint64_t seed, unsigned flags);
void fixture_put_ok(mcs_t *s, const char *key, size_t len, uint64_t seed);
/* Check that the object exists and has exactly these bytes. */
void fixture_expect(mcs_t *s, const char *key, size_t len, uint64_t seed);
/* Used bytes of the pool; waits up to a second for @want. */
uint64_t fixture_wait_used(mcs_t *s, uint64_t want);

#endif
