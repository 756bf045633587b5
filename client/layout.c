/* SPDX-License-Identifier: Apache-2.0
 * layout.c - arithmetic of checksum chunks and of lists of buffers. */
#include <config.h>

#include "client/layout.h"

#include <errno.h>

#include "common/err.h"

uint32_t mcs_crc_of_chunks(const uint32_t *crc, uint64_t size)
{
	uint64_t chunks = mc_crc_chunks(size);
	uint32_t whole = chunks ? crc[0] : 0;

	for (uint64_t i = 1; i < chunks; i++) {
		uint64_t left = size - i * MC_CRC_CHUNK;

		whole = mc_crc32c_combine(whole, crc[i], left < MC_CRC_CHUNK ? left : MC_CRC_CHUNK);
	}
	return whole;
}

int64_t mcs_iov_len(const struct iovec *iov, int iovcnt)
{
	uint64_t sum = 0;

	if (iovcnt < 0 || (iovcnt && !iov))
		return mc_fail(-EINVAL, "malformed list of buffers");
	for (int i = 0; i < iovcnt; i++) {
		if (iov[i].iov_len && !iov[i].iov_base)
			return mc_fail(-EINVAL, "buffer %d is NULL", i);
		if (iov[i].iov_len > MCS_SIZE_MAX - sum)
			return mc_fail(-EINVAL, "buffers hold 2^48 bytes or more");
		sum += iov[i].iov_len;
	}
	return (int64_t)sum;
}

unsigned mcs_iov_head(struct iovec *out, const struct iovec *iov, int iovcnt, uint64_t len)
{
	unsigned n = 0;

	for (int i = 0; i < iovcnt && len; i++) {
		if (!iov[i].iov_len)
			continue;
		out[n] = iov[i];
		if (out[n].iov_len > len)
			out[n].iov_len = len;
		len -= out[n++].iov_len;
	}
	return n;
}
