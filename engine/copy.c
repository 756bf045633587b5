/* SPDX-License-Identifier: Apache-2.0
 * copy.c - copying between a transfer's iov and flat memory, with checksums.
 *
 * The checksum array is also the running state: the checksum of chunk i starts from 0 at its first byte, so a
 * fragment that is transferred again simply restarts its chunks. */
#include <config.h>

#include <string.h>

#include "common/crc32c.h"
#include "common/fault.h"
#include "engine/engine_i.h"
#include "engine/nt_copy.h"

uint64_t mce_tail_len(const struct mce_req *req)
{
	uint64_t n = mc_crc_chunks(req->crc_len);

	return req->crc_tail && n > 1 ? n * sizeof(uint32_t) : 0;
}

uint64_t mce_req_span(struct mce_req *req)
{
	uint64_t tail = mce_tail_len(req);

	return tail ? mce_tail_off(req) + tail : mce_reqx(req)->total;
}

/* Number of the @n bytes at @pos that belong to one checksum; *ret_crc is NULL when they belong to none. */
static size_t crc_run(const struct mce_req *req, uint64_t pos, size_t n, uint32_t **ret_crc)
{
	uint64_t room;

	*ret_crc = NULL;
	if (!req->crc || pos >= req->crc_len)
		return n;
	*ret_crc = &req->crc[pos / MC_CRC_CHUNK];
	if (pos % MC_CRC_CHUNK == 0)
		**ret_crc = 0;
	room = MC_CRC_CHUNK - pos % MC_CRC_CHUNK;
	if (room > req->crc_len - pos)
		room = req->crc_len - pos;
	return n < room ? n : (size_t)room;
}

void mce_crc_feed(struct mce_req *req, uint64_t pos, const void *p, size_t n)
{
	const char *at = p;
	uint32_t *crc;

	while (n) {
		size_t run = crc_run(req, pos, n, &crc);

		if (!crc)
			return;
		*crc = run == MC_CRC_CHUNK ? mce_crc_chunk(at) : mc_crc32c_add(*crc, at, run);
		at += run;
		pos += run;
		n -= run;
	}
}

static void copy_flat(struct mce_req *req, uint64_t pos, char *local, char *remote, size_t n)
{
	bool write = req->op == MCE_WRITE, nt = mce_reqx(req)->total >= MCE_NT_MIN;
	uint32_t *crc;

	while (n) {
		size_t run = crc_run(req, pos, n, &crc);
		char *dst = write ? remote : local, *src = write ? local : remote;

		if (crc && run == MC_CRC_CHUNK)
			*crc = mce_nt_copy_chunk(dst, src, nt);
		else if (crc)
			*crc = mc_crc32c_copy(*crc, dst, src, run);
		else
			mce_nt_copy(dst, src, run, nt);
		MC_FAULT_POINT("engine.copy.chunk");
		local += run;
		remote += run;
		pos += run;
		n -= run;
	}
}

void mce_copy_part(struct mce_req *req, uint64_t pos, const void *from, size_t n)
{
	const char *at = from;
	uint64_t begin = 0;

	for (unsigned i = 0; i < req->iovcnt && n; i++) {
		uint64_t end = begin + req->iov[i].iov_len;
		size_t run;

		if (pos < end) {
			run = end - pos < n ? (size_t)(end - pos) : n;
			/* In a READ, copy_flat() does not write to @from. */
			copy_flat(req, pos, (char *)req->iov[i].iov_base + (pos - begin), (char *)(uintptr_t)at, run);
			at += run;
			pos += run;
			n -= run;
		}
		begin = end;
	}
}

void mce_copy(struct mce_req *req, void *remote)
{
	uint64_t pos = 0, tail = mce_tail_len(req);

	for (unsigned i = 0; i < req->iovcnt; i++) {
		copy_flat(req, pos, req->iov[i].iov_base, (char *)remote + pos, req->iov[i].iov_len);
		pos += req->iov[i].iov_len;
	}
	if (tail)
		memcpy((char *)remote + mce_tail_off(req), req->crc, tail);
}
