/* SPDX-License-Identifier: Apache-2.0
 * hash.h - the one hash of keys (XXH3 64 bit, libxxhash): index shards, inodes, placement. */
#ifndef MC_HASH_H
#define MC_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t mc_hash(const void *p, size_t len, uint64_t seed);

#endif
