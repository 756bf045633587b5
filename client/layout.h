/* SPDX-License-Identifier: Apache-2.0
 * layout.h - how an object is stored in its range of a segment: its bytes; then, if it has more than one chunk,
 * the trailer: the CRC32C of each chunk (little-endian u32), at the next multiple of 4. */
#ifndef MCS_LAYOUT_H
#define MCS_LAYOUT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "common/crc32c.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "trailers are stored little-endian");

/* Maximum size of an object, so that sums of sizes and offsets do not overflow; also the limit of the master. */
#define MCS_SIZE_MAX (((uint64_t)1 << 48) - 1)

static inline uint64_t mcs_trailer_offset(uint64_t size)
{
	return (size + 3) & ~(uint64_t)3;
}

/* Bytes of the trailer; 0 for an object of one chunk, whose CRC is that of the object. */
static inline uint64_t mcs_trailer_size(uint64_t size)
{
	uint64_t chunks = mc_crc_chunks(size);

	return chunks > 1 ? chunks * sizeof(uint32_t) : 0;
}

/* Bytes that an object takes in a segment. */
static inline uint64_t mcs_stored_size(uint64_t size)
{
	return mcs_trailer_size(size) ? mcs_trailer_offset(size) + mcs_trailer_size(size) : size;
}

/* CRC of @size bytes from the CRCs of their chunks. */
uint32_t mcs_crc_of_chunks(const uint32_t *crc, uint64_t size);

/* Sum of the lengths; -EINVAL when @iov is malformed (negative count, NULL with a length) or the
 * sum is over MCS_SIZE_MAX. */
int64_t mcs_iov_len(const struct iovec *iov, int iovcnt);

/* Copy the elements of @iov that hold its first @len bytes to @out (of @iovcnt elements), and
 * shorten the last one.  Number of elements. */
unsigned mcs_iov_head(struct iovec *out, const struct iovec *iov, int iovcnt, uint64_t len);

#endif
