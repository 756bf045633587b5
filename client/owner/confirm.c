/* SPDX-License-Identifier: Apache-2.0
 * confirm.c - the owner compares its memory and its disks with the objects of a restored snapshot. */
#include <config.h>

#include "client/owner/confirm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/direct/put_i.h"
#include "client/layout.h"
#include "client/owner/owner.h"
#include "client/session/security.h"
#include "common/cleanup.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/security/capability.h"
#include "common/sys/thread.h"

#define CALL_MS 5000
#define READ_MS 30000
#define READS 3			/* attempts to read an object that the disk cannot read */
#define PART (8u << 20)		/* bytes that are compared between two looks at the stop */

MC_COUNTER(equal, "mooncake_client_confirmed_copies_total", "result=\"equal\"",
	   "copies of a restored snapshot that this process compared with its memory or disk")
MC_COUNTER(other, "mooncake_client_confirmed_copies_total", "result=\"other\"",
	   "copies of a restored snapshot that this process compared with its memory or disk")

/* The comparison of one object. */
struct comparison {
	struct mcs_direct *s;
	struct mc_stop *stop;
	struct mcp_id segment;
	struct mcp_confirm_item item;
	uint32_t *crc;		/* CRCs of its chunks */
	char *buf;		/* PART bytes; NULL: the segment is memory */
	struct mcs_seg *seg;	/* the segment if it is a disk */
};

/* The CRCs of the chunks at [@pos, @pos + @len). */
static int part_of_memory(const struct comparison *c, uint64_t pos, uint64_t len)
{
	const char *p = mcs_segments_at(mcs_owner_of(c->s)->segments, c->segment, c->item.offset + pos, len);

	for (uint64_t at = 0; p && at < len; at += MC_CRC_CHUNK)
		c->crc[(pos + at) / MC_CRC_CHUNK] =
			mc_crc32c(p + at, len - at < MC_CRC_CHUNK ? len - at : MC_CRC_CHUNK);
	return p ? 0 : mc_fail(-MC_EPROTO, "protocol error: an object behind the end of its segment");
}

/* @crc NULL: only the bytes, into c->buf. */
static int part_of_disk(const struct comparison *c, uint64_t pos, uint64_t len, uint32_t *crc)
{
	const struct mcs_segments *own = mcs_owner_of(c->s)->segments;
	uint64_t at = c->item.offset + pos, serial = mcs_security_serial(c->s->base.store->security);
	struct iovec iov = { c->buf, len };
	struct mc_capability cap;
	/* The engine goes over TCP if it must not copy itself (MC_STORE_MEMCPY=0). */
	struct mce_req req = {
		.op = MCE_READ, .peer = c->seg->peer, .addr = c->seg->base + at, .rkey = c->seg->rkey,
		.cap = mcs_segments_capability(own, c->segment, at, len, serial, &cap),
		.iov = &iov, .iovcnt = 1, .crc = crc, .crc_len = crc ? len : 0,
	};
	struct mce_batch b;

	mce_batch_init(&b);
	mce_submit(c->s->engine, &b, &req, 1);
	(void)mce_batch_wait(c->s->engine, &b, &req, 1, mc_deadline_ms(READ_MS));
	if (req.status == -EIO)
		return mc_fail(-EIO, "cannot read the disk");
	return req.status < 0 ? mcs_transfer_error(req.status) : 0;
}

/* The trailer is as long as the CRCs of the chunks. */
static int trailer_compare(const struct comparison *c, uint64_t at, uint64_t len)
{
	const char *want = (const char *)c->crc;
	int r = 0;

	for (uint64_t pos = 0, n; pos < len && r == 0; pos += n) {
		const char *p = c->buf;

		n = len - pos < PART ? len - pos : PART;
		if (c->buf)
			r = part_of_disk(c, at + pos, n, NULL);
		else
			p = mcs_segments_at(mcs_owner_of(c->s)->segments, c->segment, c->item.offset + at + pos, n);
		if (r == 0 && (!p || memcmp(p, want + pos, n) != 0))
			r = -MC_ECHECKSUM;
	}
	return r;
}

static int object_compare(struct comparison *c)
{
	uint64_t size = c->item.size, chunks = mc_crc_chunks(size);
	int r = mc_fault("client.confirm.read");

	if (size > MCS_SIZE_MAX)
		return mc_fail(-MC_EPROTO, "protocol error: an object of %llu bytes", (unsigned long long)size);
	c->crc = calloc(chunks ? chunks : 1, sizeof(*c->crc));
	if (!c->crc)
		return -ENOMEM;
	for (uint64_t pos = 0, len; pos < size && r == 0; pos += len) {
		len = size - pos < PART ? size - pos : PART;
		r = c->buf ? part_of_disk(c, pos, len, c->crc + pos / MC_CRC_CHUNK) : part_of_memory(c, pos, len);
		if (mc_stop_wait(c->stop, 0))
			r = -ECANCELED;
	}
	if (r == 0 && mcs_crc_of_chunks(c->crc, size) != c->item.crc)
		r = -MC_ECHECKSUM;
	if (r == 0)
		r = trailer_compare(c, mcs_trailer_offset(size), mcs_trailer_size(size));
	free(c->crc);
	c->crc = NULL;
	return r;
}

/* Does the error say that the copy is not there?  The master drops the copy then.  After another error, as of little
 * memory or a busy disk, the batch is compared again. */
static bool is_result(int r)
{
	return r == 0 || r == -MC_ECHECKSUM || r == -EIO || r == -MC_EPROTO;
}

static int item_compare(struct comparison *c, struct mcp_status *ret)
{
	int r = object_compare(c);

	for (unsigned reads = 1; r == -EIO && reads < READS; reads++)
		r = object_compare(c);
	if (!is_result(r))
		return r;
	mc_metric_add(r == 0 ? &equal : &other, 1);
	ret->status = mc_err_to_wire(r);
	return 0;
}

/* Results of the batch, which the caller frees. */
static int batch_compare(struct comparison *c, const struct mcp_seq *items, struct mcp_status **ret)
{
	struct mcp_status *result = calloc(items->count + 1, sizeof(*result));
	unsigned n = 0;
	struct mcp_iter it;
	int r = 0;

	if (!result)
		return -ENOMEM;
	mcp_iter_init(&it, items, &mcp_desc_confirm_item);
	while (r == 0 && n < items->count && mcp_iter_next(&it, &c->item))
		r = item_compare(c, &result[n++]);
	if (r == 0 && n < items->count)
		r = mc_fail(-MC_EPROTO, "protocol error: a batch that cannot be decoded");
	if (r < 0)
		free(result);
	else
		*ret = result;
	return r;
}

static int segment_confirm(struct comparison *c)
{
	struct mcp_confirm msg = { .segment = c->segment };
	auto_free struct mcp_status *result = NULL;
	struct mcp_confirm_reply reply;
	struct mcp_reply mem;
	int r;

	do {
		mem = (struct mcp_reply){ 0 };
		MC_FAULT_POINT("client.confirm.ask");
		r = mcs_call(c->s->base.session, MCP_CONFIRM, &msg, &reply, &mem, mc_deadline_ms(CALL_MS));
		if (r < 0)
			return r;
		free(TAKE_PTR(result));
		r = batch_compare(c, &reply.items, &result);
		msg.number = reply.number;
		msg.results = mcp_seq(result, r < 0 ? 0 : reply.items.count);
		mcp_reply_done(&mem);
	} while (r == 0 && reply.left);
	return r;
}

static int disk_confirm(struct comparison *c)
{
	auto_free char *buf = malloc(PART);
	int r = buf ? mcs_segmap_get(c->s->segmap, c->segment, mc_deadline_ms(CALL_MS), &c->seg) : -ENOMEM;

	c->buf = buf;
	if (r == 0)
		r = segment_confirm(c);
	mcs_seg_put(c->seg);
	return r;
}

bool mcs_confirm_wanted(struct mcs_direct *s)
{
	return mcs_segments_confirm(mcs_owner_of(s)->segments);
}

/* Not that of a master which does not know the segment any more. */
static bool worth_repeating(int r)
{
	return r < 0 && r != -MC_ENOSEGMENT && r != -MC_EOWNER;
}

int mcs_confirm(struct mcs_direct *s, struct mc_stop *stop)
{
	struct mcs_segments *segments = mcs_owner_of(s)->segments;
	bool addressable;
	struct mcp_id id;
	int r = 0;

	for (unsigned i = 0; !worth_repeating(r) && mcs_segments_confirm_take(segments, i, &id, &addressable); i++) {
		struct comparison c = { .s = s, .stop = stop, .segment = id };

		if (mcp_id_zero(id))
			continue;
		r = addressable ? segment_confirm(&c) : disk_confirm(&c);
		if (worth_repeating(r))
			mcs_segments_confirm_again(segments, i);
	}
	return worth_repeating(r) ? r : 0;
}
