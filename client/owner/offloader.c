/* SPDX-License-Identifier: Apache-2.0
 * offloader.c - copies between memory, disks and S3, also of other owners' objects to NoF disks.
 *
 * To a disk: whole blocks are written straight from the segment's memory, which is pinned, and the rest through a
 * buffer.  The layout in the range is the one in memory (layout.h), so that a reader does not know the difference.
 * The CRC is not computed here: every read compares it.  At the end of the range is the object's record
 * (tiers/ssd/record.h), in the write of the object's last bytes.
 *
 * To a named medium, as S3: the same bytes in one write.  Objects of a disk are first read into memory of this process,
 * as are objects of other owners for a NoF disk, whose CRC is compared then.
 *
 * To memory: parts are read through the engine into memory of this thread and written as a put's are. */
#include <config.h>

#include "client/owner/offloader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/direct/capability.h"
#include "client/direct/put_i.h"
#include "client/layout.h"
#include "client/owner/copies.h"
#include "client/owner/disk_offer.h"
#include "client/owner/disk_read.h"
#include "client/owner/owner.h"
#include "common/cleanup.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/thread.h"
#include "tiers/ssd/record.h"

#define FETCH 64u
#define CALL_MS 5000
#define BYTES_PER_MS 50000u	/* at least, in reads of another owner's objects */
#define COPY_MS 30000		/* time for the copies of one round: a slow disk fails them */
#define LOADED_MAX (64u << 20)	/* bytes that were read from disks for one round, at a time */
#define PART (8u << 20)		/* bytes of an object that is copied to memory, at a time */
#define RENEW_MS 5000		/* between two looks for a newer secret */
/* Pause without work: the master is asked more seldom the longer there was none. */
#define NAP_MIN_MS 5u
#define NAP_MAX_MS 250u

MC_COUNTER(stored_bytes, "mooncake_client_offloaded_bytes_total", "",
	   "bytes copied from memory to disks of this process")
MC_COUNTER(loaded_bytes, "mooncake_client_promoted_bytes_total", "",
	   "bytes copied from disks of this process to memory")
MC_COUNTER(failed, "mooncake_client_offload_failures_total", "", "copies between memory and disks that failed")

/* Two threads: while the copies of one are being written, the other reports and fetches. */
struct worker {
	/* constant after start */
	struct mcs_direct *s;
	unsigned writer;	/* number in mcs_segments_write_begin() */
	struct mc_thread thread;
	struct mc_stop stop;
	bool runs;
	uint64_t renew_ms;	/* only its thread */
};

struct mcs_offloader {
	struct worker worker[MCS_SEGMENTS_WRITERS];
};

/* The copies of one round that are being written. */
struct round {
	struct mc_mutex lock;
	struct mc_cond ended;
	unsigned writes;	/* with the lock held */
	/* the last medium that was asked whether this process still holds it, and its answer */
	struct mct_medium *asked;
	int held;
};

struct job {
	uint64_t put, size, version, name;
	uint32_t crc;
	struct mcp_replica from, to;
	struct mcp_bytes record;	/* as long as the reply of the fetch */
	void *loaded;		/* the object's bytes, if they were read from a disk */
	int status;		/* with the round's lock, while writes run */
};

struct piece {
	struct mct_write w;
	struct mct_medium *medium;
	struct round *round;
	struct job *job;
	void *buffer;		/* to give back, NULL: none */
	void *tail;		/* to free */
};

/* ---- to a disk ---------------------------------------------------------------------------------- */

/* On a thread of the medium. */
static void piece_written(struct mct_write *w)
{
	struct piece *p = mc_container_of(w, struct piece, w);
	struct round *r = p->round;

	if (p->buffer)
		p->medium->ops->buffer_put(p->medium, p->buffer);
	free(p->tail);
	mc_mutex_lock(&r->lock);
	if (w->status < 0 && p->job->status == 0)
		p->job->status = w->status;
	if (--r->writes == 0)
		mc_cond_signal(&r->ended);
	mc_mutex_unlock(&r->lock);
	free(p);
}

/* @buffer: the bytes are in this buffer of the medium, which is then given back. */
static int piece_write(struct round *r, struct job *j, struct mct_medium *m, const void *from, void *buffer,
		       uint64_t pos, uint64_t len)
{
	struct piece *p = malloc(sizeof(*p));

	if (!p)
		return -ENOMEM;
	*p = (struct piece){
		.w = { .off = j->to.offset + pos, .len = (uint32_t)len, .buf = from, .done = piece_written },
		.medium = m, .round = r, .job = j, .buffer = buffer,
	};
	mc_mutex_lock(&r->lock);
	r->writes++;
	mc_mutex_unlock(&r->lock);
	m->ops->write_start(m, &p->w);
	return 0;
}

/* Bytes of the range that are written: the object, and its record at the end. */
static uint64_t job_bytes(const struct job *j)
{
	uint64_t bytes = mcs_stored_size(j->size) + (j->record.len ? mct_record_size(j->record.len) : 0);

	return (bytes + MCT_BLOCK - 1) / MCT_BLOCK * MCT_BLOCK;
}

/* Fill @buf with the end of the range, from @pos on: the object's bytes, zeros, and the record. */
static void job_fill_end(struct mcs_direct *s, const struct job *j, char *buf, const char *data, uint64_t pos)
{
	uint64_t left = mcs_stored_size(j->size) - pos, len = job_bytes(j) - pos;
	const struct mct_record rec = {
		.off = j->to.offset, .len = job_bytes(j), .order = j->put, .generation = j->version, .name = j->name,
		.body = j->record.data, .body_len = j->record.len,
	};

	memcpy(buf, data + pos, left);
	memset(buf + left, 0, len - left);
	if (rec.body_len)
		mcs_segments_seal(mcs_owner_of(s)->segments, j->to.segment, buf + len - MCT_BLOCK, &rec);
}

/* The end of the range, from @pos on: less than a block of the object, or all of an object whose memory is not aligned,
 * and the record. */
static int job_store_end(struct mcs_direct *s, struct round *r, struct job *j, struct mct_medium *m, const char *data,
			 uint64_t pos, uint64_t deadline)
{
	uint64_t len = job_bytes(j) - pos;
	void *buf;
	int e;

	if (!len)
		return 0;
	e = m->ops->buffer_get(m, deadline, &buf);
	if (e < 0)
		return e;
	job_fill_end(s, j, buf, data, pos);
	e = piece_write(r, j, m, buf, buf, pos, len);
	if (e < 0)
		m->ops->buffer_put(m, buf);
	return e;
}

/* Once per round and medium. */
static int round_hold(struct mcs_direct *s, struct round *r, const struct job *j, struct mct_medium *m)
{
	if (r->asked != m) {
		r->held = mcs_segments_hold(mcs_owner_of(s)->segments, s->base.session, j->to.segment,
					    mc_deadline_ms(CALL_MS));
		r->asked = m;
	}
	return r->held;
}

static int job_store_blocks(struct mcs_direct *s, struct round *r, struct job *j, struct mct_medium *m,
			    const char *data, uint64_t deadline)
{
	uint64_t whole = mcs_stored_size(j->size) / MCT_BLOCK * MCT_BLOCK, len;
	int e = round_hold(s, r, j, m);

	/* The master aligns ranges of whole blocks, and those of 64 KiB and more. */
	if ((uintptr_t)data % MCT_BLOCK)
		whole = 0;
	for (uint64_t pos = 0; pos < whole && e == 0; pos += len) {
		len = whole - pos < MCT_PIECE_MAX ? whole - pos : MCT_PIECE_MAX;
		e = piece_write(r, j, m, data + pos, NULL, pos, len);
	}
	if (job_bytes(j) - whole > MCT_PIECE_MAX)
		return mc_fail(-MC_EPROTO, "protocol error: a copy's source is not aligned");
	return e < 0 ? e : job_store_end(s, r, j, m, data, whole, deadline);
}

/* The range as one write. */
static int job_store_named(struct mcs_direct *s, struct round *r, struct job *j, struct mct_medium *m, const char *data,
			   uint64_t deadline)
{
	uint64_t whole = mcs_stored_size(j->size) / MCT_BLOCK * MCT_BLOCK, tail = job_bytes(j) - whole;
	struct piece *p = malloc(sizeof(*p));
	char *buf = malloc(tail ? tail : 1);
	int e = p && buf ? round_hold(s, r, j, m) : -ENOMEM;

	if (e < 0) {
		free(p);
		free(buf);
		return e;
	}
	if (tail)
		job_fill_end(s, j, buf, data, whole);
	*p = (struct piece){
		.w = {
			.off = j->to.offset, .len = whole, .buf = data, .tail = buf, .tail_len = tail,
			.generation = j->version, .order = j->put, .deadline = deadline, .done = piece_written,
		},
		.medium = m, .round = r, .job = j, .tail = buf,
	};
	mc_mutex_lock(&r->lock);
	r->writes++;
	mc_mutex_unlock(&r->lock);
	m->ops->write_start(m, &p->w);
	return 0;
}

/* One transfer of @len bytes at @pos of an object of @size bytes, for the copy @put. */
struct part {
	uint64_t size, put;
	uint64_t pos, len;
	char *buf;
	uint32_t *crc;		/* CRCs of its chunks, NULL: not wanted */
};

static int part_move(struct mcs_direct *s, enum mce_op op, struct mcs_seg *seg, const struct mcp_replica *at,
		     const struct part *p, uint64_t epoch, uint64_t fence, uint64_t deadline)
{
	struct iovec iov = { p->buf, p->len };
	struct mc_capability cap;
	struct mce_req req = {
		.op = op, .peer = seg->peer, .addr = seg->base + at->offset + p->pos, .rkey = seg->rkey,
		.cap = mcs_capability(at, p->size, p->put, op == MCE_WRITE ? MC_CAPABILITY_WRITE : MC_CAPABILITY_READ,
				      &cap),
		.fence = fence, .iov = &iov, .iovcnt = 1, .crc = p->crc, .crc_len = p->crc ? p->len : 0,
	};
	struct mce_batch b;
	int r = 0;

	mce_batch_init(&b);
	if (op == MCE_WRITE && !mcs_put_owned(s, epoch, 0))
		return mc_fail(-MC_ESTALE_PUT, "the connection is gone");
	mce_submit(s->engine, &b, &req, 1);
	if (op == MCE_WRITE)
		r = mcs_put_wait(s, &b, &req, 1, epoch, deadline);
	else
		(void)mce_batch_wait(s->engine, &b, &req, 1, deadline);
	return r < 0 ? r : req.status < 0 ? mcs_transfer_error(req.status) : 0;
}

/* Are these the CRCs of the object?  Then they go behind it, as in a segment. */
static int job_sums(struct job *j, const uint32_t *crc)
{
	if (mcs_crc_of_chunks(crc, j->size) != j->crc)
		return -MC_ECHECKSUM;
	if (mcs_trailer_size(j->size))
		memcpy((char *)j->loaded + mcs_trailer_offset(j->size), crc, mcs_trailer_size(j->size));
	return 0;
}

/* Read an object of a disk of this process into memory. */
static int job_load(struct job *j, struct mct_medium *from, uint64_t stored)
{
	uint64_t chunks = mc_crc_chunks(j->size);
	auto_free uint32_t *crc = calloc(chunks ? chunks : 1, sizeof(*crc));
	int r = crc ? mcs_disk_read(from, j->from.offset, j->loaded, stored) : -ENOMEM;

	for (uint64_t i = 0; r == 0 && i < chunks; i++) {
		uint64_t at = i * MC_CRC_CHUNK, left = j->size - at;

		crc[i] = mc_crc32c((char *)j->loaded + at, left < MC_CRC_CHUNK ? left : MC_CRC_CHUNK);
	}
	if (r == 0)
		r = job_sums(j, crc);
	/* A copy of damaged bytes would let the good one elsewhere be evicted. */
	return r != -MC_ECHECKSUM ? r :
		mc_fail(-MC_EREPLICA_GONE, "an object on the disk is damaged, so it is not copied: %s", mc_strerror(r));
}

/* Read an object of another owner into memory, with the CRCs of its chunks behind it as in a segment. */
static int job_read(struct mcs_direct *s, struct job *j, uint64_t deadline)
{
	uint64_t chunks = mc_crc_chunks(j->size);
	auto_free uint32_t *crc = calloc(chunks ? chunks : 1, sizeof(*crc));
	struct part p = { .size = j->size, .put = j->put, .len = j->size, .buf = j->loaded, .crc = crc };
	struct mcs_seg *src = NULL;
	int r = crc ? 0 : -ENOMEM;

	if (r == 0)
		r = mcs_segmap_get(s->segmap, j->from.segment, deadline, &src);
	if (r == 0)
		r = part_move(s, MCE_READ, src, &j->from, &p, 0, 0, deadline);
	if (r == 0)
		r = job_sums(j, crc);
	if (r < 0 && src)
		mcs_segmap_forget(s->segmap, j->from.segment);
	mcs_seg_put(src);
	/* That the source cannot be read is not the disk's fault. */
	return r == 0 || r == -ENOMEM ? r :
		mc_fail(-MC_EREPLICA_GONE, "cannot read an object of another owner for a copy: %s", mc_strerror(r));
}

/* One dead owner must not use up the time of the whole round. */
static uint64_t job_read_deadline(const struct job *j, uint64_t round)
{
	uint64_t own = mc_deadline_ms(CALL_MS + (int64_t)(j->size / BYTES_PER_MS));

	return own < round ? own : round;
}

/* Where the object is in memory; an object of a disk, or of another owner, is read first.  NULL: an error in *ret. */
static const char *job_source(struct mcs_direct *s, struct job *j, uint64_t stored, uint64_t deadline, int *ret)
{
	const struct mcs_segments *own = mcs_owner_of(s)->segments;
	const char *data = mcs_segments_at(own, j->from.segment, j->from.offset, stored);
	struct mct_medium *from = data ? NULL : mcs_segments_medium(own, j->from.segment, j->from.offset, stored);

	*ret = 0;
	if (data)
		return data;
	if (posix_memalign(&j->loaded, MCT_BLOCK, stored ? stored : 1))
		*ret = -ENOMEM;
	else if (from)
		*ret = job_load(j, from, stored);
	else
		*ret = job_read(s, j, job_read_deadline(j, deadline));
	return *ret < 0 ? NULL : j->loaded;
}

static int job_store(struct mcs_direct *s, struct round *r, struct job *j, uint64_t deadline)
{
	struct mcs_segments *own = mcs_owner_of(s)->segments;
	struct mct_medium *m = mcs_segments_medium(own, j->to.segment, j->to.offset, job_bytes(j));
	const char *data;
	int e;

	if (!m || j->record.len > MCT_RECORD_BODY_MAX)
		return mc_fail(-MC_EPROTO, "protocol error: a copy is not for this process's disks");
	data = job_source(s, j, mcs_stored_size(j->size), deadline, &e);
	if (e < 0)
		return e;
	return (m->ops->named ? job_store_named : job_store_blocks)(s, r, j, m, data, deadline);
}

/* ---- to memory ---------------------------------------------------------------------------------- */

static int parts_copy(struct mcs_direct *s, struct mcs_seg *src, struct mcs_seg *dst, const struct mcp_replica *from,
		      const struct mcp_replica *to, uint64_t size, uint64_t put, uint64_t epoch, uint64_t fence,
		      uint64_t deadline, uint32_t *crc)
{
	uint64_t most = size < PART ? size : PART;
	auto_free char *buf = malloc(most);
	struct part p = { .size = size, .put = put, .buf = buf };
	int r = buf ? 0 : -ENOMEM;

	for (; p.pos < size && r == 0; p.pos += p.len) {
		p.len = size - p.pos < most ? size - p.pos : most;
		p.crc = crc + p.pos / MC_CRC_CHUNK;
		r = part_move(s, MCE_READ, src, from, &p, 0, 0, deadline);
		p.crc = NULL;
		if (r == 0)
			r = part_move(s, MCE_WRITE, dst, to, &p, epoch, fence, deadline);
	}
	if (r == 0 && mcs_trailer_size(size)) {
		p.pos = mcs_trailer_offset(size);
		p.len = mcs_trailer_size(size);
		p.buf = (char *)crc;
		r = part_move(s, MCE_WRITE, dst, to, &p, epoch, fence, deadline);
	}
	return r;
}

static bool segments_have(const struct mcs_segments *own, const struct mcp_replica *at, uint64_t len)
{
	return mcs_segments_medium(own, at->segment, at->offset, len) ||
	       mcs_segments_at(own, at->segment, at->offset, len);
}

int mcs_disk_to_memory(struct mcs_direct *s, const struct mcp_replica *from, const struct mcp_replica *to,
		       uint64_t size, uint64_t put, uint64_t epoch, uint64_t fence, uint64_t deadline,
		       uint32_t *ret_crc, struct mcs_seg **ret_doubt)
{
	uint64_t chunks = mc_crc_chunks(size);
	auto_free uint32_t *crc = calloc(chunks ? chunks : 1, sizeof(*crc));
	struct mcs_seg *src = NULL, *dst = NULL;
	int r = crc ? 0 : -ENOMEM;

	*ret_doubt = NULL;
	if (r == 0 && !segments_have(mcs_owner_of(s)->segments, from, mcs_stored_size(size)))
		r = mc_fail(-MC_EPROTO, "protocol error: the source of a copy is not on this process's segments");
	if (r == 0)
		r = mcs_segmap_get(s->segmap, from->segment, deadline, &src);
	if (r == 0)
		r = mcs_segmap_reach(s->segmap, to->segment, to->offset + mcs_stored_size(size), deadline, &dst);
	if (r == 0) {
		r = parts_copy(s, src, dst, from, to, size, put, epoch, fence, deadline, crc);
		if (r < 0) {
			mcs_segmap_forget(s->segmap, to->segment);
			*ret_doubt = TAKE_PTR(dst);
		}
	}
	if (r == 0)
		*ret_crc = mcs_crc_of_chunks(crc, size);
	mcs_seg_put(src);
	mcs_seg_put(dst);
	return r;
}

/* ---- a round ------------------------------------------------------------------------------------ */

static void job_fail(struct round *r, struct job *j, int status)
{
	MC_LOCKED(&r->lock);
	if (j->status == 0)
		j->status = status;
}

/* Wait for the writes of these jobs, and free the memory of their sources. */
static void round_wait(struct round *r, struct job *jobs, unsigned n)
{
	mc_mutex_lock(&r->lock);
	while (r->writes)
		mc_cond_wait(&r->ended, &r->lock);
	mc_mutex_unlock(&r->lock);
	for (unsigned i = 0; i < n; i++)
		free(TAKE_PTR(jobs[i].loaded));
}

/* Begin all copies to disks, and wait for their end. */
static void offloader_store(struct worker *o, struct round *r, struct job *jobs, unsigned n, uint64_t fence)
{
	struct mcs_direct *s = o->s;
	uint64_t deadline = mc_deadline_ms(COPY_MS);
	bool may = mcs_segments_write_begin(mcs_owner_of(s)->segments, o->writer, fence);
	uint64_t loaded = 0;

	r->asked = NULL;
	for (unsigned i = 0; i < n; i++) {
		struct job *j = &jobs[i];
		int e;

		if (!mcp_medium_is(j->to.medium, MCP_TRAIT_BLOCKS))
			continue;
		e = may ? mc_fault("client.offload.write") : -MC_ESTALE_PUT;
		if (e == 0)
			e = job_store(s, r, j, deadline);
		if (e < 0)
			job_fail(r, j, e);
		loaded += j->loaded ? j->size : 0;
		if (loaded < LOADED_MAX)
			continue;
		round_wait(r, jobs, i + 1);
		loaded = 0;
	}
	/* Not shorter: the ranges are written to until then. */
	round_wait(r, jobs, n);
	mcs_segments_write_end(mcs_owner_of(s)->segments, o->writer);
}

static void job_report(const struct job *j, struct mcp_copied *ret)
{
	*ret = (struct mcp_copied){
		.put = j->put, .status = mc_err_to_wire(j->status), .crc = j->status == 0 ? j->crc : 0,
	};
	if (j->status < 0)
		mc_metric_add(&failed, 1);
	else
		mc_metric_add(mcp_medium_is(j->to.medium, MCP_TRAIT_BLOCKS) ? &stored_bytes : &loaded_bytes,
			      (int64_t)j->size);
}

/* Fetch some copies and carry them out.  Their number; 0: none. */
static int offloader_round(struct worker *o, struct round *round)
{
	struct mcs_direct *s = o->s;
	const struct mcp_task_fetch msg = { .max = FETCH, .disk = 1, .records = 1 };
	struct mcp_copied done[FETCH];
	struct mcp_replica from, to;
	struct mcs_copies fetched;
	struct job jobs[FETCH];
	unsigned n = 0, reported = 0;
	struct mcp_copy c;
	int r;

	r = mcs_copies_fetch(s, &msg, &fetched);
	if (r < 0)
		return r;
	while (n < FETCH && mcs_copies_next(&fetched, &c, &from, &to))
		jobs[n++] = (struct job){
			.put = c.put, .size = c.size, .crc = c.crc, .version = c.version, .name = c.name,
			.record = c.record, .from = from, .to = to,
		};
	mcs_segments_gone(mcs_owner_of(s)->segments, &fetched.reply.gone);
	if (n)
		offloader_store(o, round, jobs, n, fetched.fence);
	mcp_reply_done(&fetched.mem);
	if (n == 0)
		return 0;
	for (unsigned i = 0; i < n; i++) {
		struct mcs_seg *doubt = NULL;

		if (!mcp_medium_is(jobs[i].to.medium, MCP_TRAIT_BLOCKS))
			jobs[i].status = mcs_disk_to_memory(s, &jobs[i].from, &jobs[i].to, jobs[i].size, jobs[i].put,
							    fetched.epoch, fetched.fence, mc_deadline_ms(COPY_MS),
							    &jobs[i].crc, &doubt);
		job_report(&jobs[i], &done[reported]);
		reported += mcs_copies_settled(s, doubt);
		mcs_seg_put(doubt);
	}
	MC_FAULT_POINT("client.offload.before_report");
	r = mcs_copies_report(s, done, reported);
	return r < 0 ? r : (int)n;
}

/* Offer the objects of disks to a master that lost its journal: one thread does. */
static int offloader_offer(struct worker *o)
{
	struct mcs_own_segment_offered disk;
	int r = 0;

	while (o->writer == 0 && r == 0 && mcs_segments_offer_next(mcs_owner_of(o->s)->segments, &disk)) {
		r = mcs_disk_offer(o->s->base.session, &disk, &o->stop);
		if (r == 0)
			mcs_segments_offer_done(mcs_owner_of(o->s)->segments, &disk);
	}
	return r;
}

/* A rotation of the secret is noticed: one thread does. */
static void offloader_renew(struct worker *o)
{
	if (o->writer != 0 || mc_now_ms() < o->renew_ms)
		return;
	o->renew_ms = mc_now_ms() + RENEW_MS;
	mcs_segments_renew(mcs_owner_of(o->s)->segments, o->s->base.session, mc_deadline_ms(CALL_MS));
}

static void *offloader_main(void *arg)
{
	struct worker *o = arg;
	struct round round = { .writes = 0 };
	uint64_t nap = NAP_MIN_MS;
	bool was_good = true;
	int r;

	mc_thread_background();
	mc_mutex_init(&round.lock);
	mc_cond_init(&round.ended);
	while (!mc_stop_wait(&o->stop, nap)) {
		offloader_renew(o);
		r = offloader_offer(o);
		if (r == -ECANCELED)
			break;
		if (r < 0)
			mc_warn("client", "cannot offer the objects of our disk, will retry error=\"%s\"",
				mc_err_detail(r));
		do
			r = offloader_round(o, &round);
		while (r > 0 && (nap = NAP_MIN_MS) && !mc_stop_wait(&o->stop, 0));
		if (r < 0 && was_good)
			mc_warn("client", "copying between our segments failed, will retry error=\"%s\"",
				mc_err_detail(r));
		was_good = r >= 0;
		nap = nap * 2 < NAP_MAX_MS ? nap * 2 : NAP_MAX_MS;
	}
	mc_cond_destroy(&round.ended);
	mc_mutex_destroy(&round.lock);
	return NULL;
}

int mcs_offloader_start(struct mcs_direct *s, struct mcs_offloader **ret)
{
	struct mcs_offloader *o = calloc(1, sizeof(*o));
	int r = 0;

	if (!o)
		return -ENOMEM;
	for (unsigned i = 0; i < MCS_SEGMENTS_WRITERS && r == 0; i++) {
		struct worker *w = &o->worker[i];

		w->s = s;
		w->writer = i;
		r = mc_stop_start(&w->stop, &w->thread, "mcs-offload", offloader_main, w);
		w->runs = r == 0;
	}
	if (r < 0) {
		mcs_offloader_stop(o);
		return r;
	}
	*ret = o;
	return 0;
}

void mcs_offloader_stop(struct mcs_offloader *o)
{
	if (!o)
		return;
	for (unsigned i = 0; i < MCS_SEGMENTS_WRITERS; i++)
		if (o->worker[i].runs)
			mc_stop_join(&o->worker[i].stop, o->worker[i].thread);
	free(o);
}
