/* SPDX-License-Identifier: Apache-2.0
 * hash.c - hashes by libxxhash. */
#include <config.h>

#include "common/hash.h"

#include <xxhash.h>

uint64_t mc_hash(const void *p, size_t len, uint64_t seed)
{
	return XXH3_64bits_withSeed(p, len, seed);
}
