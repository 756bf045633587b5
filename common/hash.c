/* SPDX-License-Identifier: Apache-2.0
 * hash.c - hashes by libxxhash and random numbers of the kernel. */
#include <config.h>

#include "common/hash.h"

#include <stdatomic.h>
#include <sys/random.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/sys/clock.h"

uint64_t mc_hash(const void *p, size_t len, uint64_t seed)
{
	return XXH3_64bits_withSeed(p, len, seed);
}

uint64_t mc_random_u64(void)
{
	static _Atomic uint64_t serial;
	uint64_t v;

	/* Up to 256 bytes are returned whole once the kernel's pool is seeded.  A seccomp filter
	 * may refuse the call: then ids must still be distinct; nonces only guard against mistakes. */
	if (getrandom(&v, sizeof(v), 0) == (ssize_t)sizeof(v))
		return v;
	uint64_t mix[4] = {
		mc_now_ns(), mc_wall_ns(), (uint64_t)getpid(), atomic_fetch_add(&serial, 1)
	};

	return XXH3_64bits(mix, sizeof(mix));
}
