/* SPDX-License-Identifier: Apache-2.0
 * cache.h - copies of whole object versions that this process read over a network several times.
 *
 * The cache never decides whether an object exists: the master is asked for each read as without a cache, and its
 * answer names the version.  A copy is used only for the same key, generation, size and CRC.  Its bytes are checked
 * before they are stored, and again before they are given out.  The memory of all copies together, with their
 * descriptions, is bounded; there is one version per key.  Copies that were not used for the longest time leave first;
 * those that a thread reads now stay.  Any thread. */
#ifndef MCS_CACHE_H
#define MCS_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include <mooncake/mcs.h>

struct mcs_cache;

struct mcs_cache_conf {
	uint64_t size;		/* maximum of its memory */
	uint64_t object_max;	/* larger objects are not stored */
	unsigned threshold;	/* an object is stored when it is read as often, 1 to 255 */
};

/* The variables MC_STORE_LOCAL_HOT_* (mcs(3)).  False: they ask for no cache. */
bool mcs_cache_wanted(struct mcs_cache_conf *ret);
/* NULL: there is no memory for it. */
struct mcs_cache *mcs_cache_new(const struct mcs_cache_conf *conf);
void mcs_cache_free(struct mcs_cache *c);	/* no thread may use it; NULL is fine */

/* Fill the first @len bytes of @iov with those at @offset of the version @info; they must be inside of it.
 * False: the version is not there, or @iov has device memory; the contents of @iov are undefined. */
bool mcs_cache_read(struct mcs_cache *c, struct mcs_key key, const struct mcs_info *info, uint64_t offset,
		    const struct iovec *iov, int iovcnt, uint64_t len);
/* @iov begins with all bytes of the version @info, which were just read over a network: count this, and perhaps store
 * them.  Without memory, and for device memory, nothing is stored. */
void mcs_cache_offer(struct mcs_cache *c, struct mcs_key key, const struct mcs_info *info, const struct iovec *iov,
		     int iovcnt);

#endif
