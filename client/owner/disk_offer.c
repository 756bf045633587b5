/* SPDX-License-Identifier: Apache-2.0
 * disk_offer.c - find the objects on a disk by their records, and offer them to the master. */
#include <config.h>

#include "client/owner/disk_offer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/owner/disk_notes.h"
#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/sys/clock.h"
#include "common/sys/lock.h"
#include "tiers/ssd/record.h"

#define DEPTH 16u		/* reads at one time: those of S3 take long */
#define CALL_MS 10000

/* ---- reads, several at a time, taken in their order ---------------------------------------------- */

struct offer_read {
	struct mct_read r;
	struct offer_reader *of;
	bool done;		/* with the lock */
};

struct offer_reader {
	struct mct_medium *medium;
	struct mc_stop *stop;
	struct mc_mutex lock;
	struct mc_cond cond;
	struct offer_read slot[DEPTH];
};

/* What to read, and what to do with it.  @at: the bytes; NULL: they cannot be read. */
struct offer_plan {
	bool (*next)(struct offer_plan *p, uint64_t *ret_off, uint32_t *ret_len);	/* false: no more */
	int (*take)(struct offer_plan *p, uint64_t off, uint32_t len, const char *at);
};

static void offer_read_done(struct mct_read *r)
{
	struct offer_read *o = mc_container_of(r, struct offer_read, r);

	mc_mutex_lock(&o->of->lock);
	o->done = true;
	mc_cond_signal(&o->of->cond);
	mc_mutex_unlock(&o->of->lock);
}

static void reader_start(struct offer_reader *of, struct offer_read *o, uint64_t off, uint32_t len)
{
	*o = (struct offer_read){ .r = { .off = off, .len = len, .done = offer_read_done }, .of = of };
	of->medium->ops->read_start(of->medium, &o->r);
}

static void reader_wait(struct offer_reader *of, const struct offer_read *o)
{
	MC_LOCKED(&of->lock);
	/* Every read of a medium ends. */
	while (!o->done)
		mc_cond_wait(&of->cond, &of->lock);
}

static int reader_run(struct mct_medium *medium, struct mc_stop *stop, struct offer_plan *p)
{
	struct offer_reader of = { .medium = medium, .stop = stop };
	unsigned begun = 0, taken = 0;
	uint32_t len;
	uint64_t off;
	int r = 0;

	mc_mutex_init(&of.lock);
	mc_cond_init(&of.cond);
	do {
		while (r == 0 && begun - taken < DEPTH && p->next(p, &off, &len))
			reader_start(&of, &of.slot[begun++ % DEPTH], off, len);
		if (begun != taken) {
			struct offer_read *o = &of.slot[taken++ % DEPTH];

			reader_wait(&of, o);
			/* Its objects cannot be told from lost ones. */
			if (r == 0 && o->r.status == -MC_EUNAVAILABLE)
				r = mc_fail(o->r.status, "the medium does not work now");
			if (r == 0)
				r = p->take(p, o->r.off, o->r.len, o->r.status < 0 ? NULL : o->r.at);
			if (o->r.status == 0)
				medium->ops->read_end(medium, &o->r);
		}
		if (r == 0 && mc_stop_wait(stop, 0))
			r = -ECANCELED;
	} while (begun != taken);
	mc_cond_destroy(&of.cond);
	mc_mutex_destroy(&of.lock);
	return r;
}

/* ---- finding ------------------------------------------------------------------------------------ */

struct offer_scan {
	struct offer_plan plan;
	const struct mcs_own_segment_offered *disk;
	uint64_t pos, unread;
	struct mct_found *found;
	size_t n, cap;
};

static bool scan_next(struct offer_plan *p, uint64_t *ret_off, uint32_t *ret_len)
{
	struct offer_scan *s = mc_container_of(p, struct offer_scan, plan);
	const struct mcs_own_segment_offered *d = s->disk;
	uint64_t end;

	s->pos = d->medium->ops->data_next(d->medium, s->pos, &end);
	s->pos -= s->pos % MCT_BLOCK;
	if (s->pos >= d->size)
		return false;
	*ret_off = s->pos;
	*ret_len = end - s->pos < MCT_PIECE_MAX ? (uint32_t)(end - s->pos) : MCT_PIECE_MAX;
	s->pos += *ret_len;
	return true;
}

static int scan_add(struct offer_scan *s, const struct mct_record *r)
{
	if (s->n == s->cap) {
		size_t cap = s->cap ? 2 * s->cap : 1024;
		struct mct_found *more = realloc(s->found, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		s->found = more;
		s->cap = cap;
	}
	s->found[s->n++] = (struct mct_found){ r->off, r->len, r->order, r->generation, r->name };
	return 0;
}

static int scan_take(struct offer_plan *p, uint64_t off, uint32_t len, const char *at)
{
	struct offer_scan *s = mc_container_of(p, struct offer_scan, plan);
	struct mct_record rec;
	int r = 0;

	s->unread += at ? 0 : len;
	for (uint32_t i = 0; at && i + MCT_BLOCK <= len && r == 0; i += MCT_BLOCK)
		if (mct_record_open(at + i, off + i + MCT_BLOCK, s->disk->secret, &rec))
			r = scan_add(s, &rec);
	return r;
}

/* ---- offering ----------------------------------------------------------------------------------- */

struct offer_batch {
	struct offer_plan plan;
	const struct mcs_own_segment_offered *disk;
	struct mcs_session *session;
	const struct mct_found *found;
	size_t n, pos;			/* read up to there */
	size_t at;			/* taken up to there */
	unsigned count;
	struct mcp_adopt_item item[MCP_ADOPT_MAX];
	char block[MCP_ADOPT_MAX][MCT_BLOCK];
	size_t adopted, refused;
	int why;			/* error of the last item that was refused */
};

static int batch_send(struct offer_batch *b, bool end)
{
	const struct mcp_adopt msg = {
		.segment = b->disk->segment, .epoch = b->disk->epoch, .items = mcp_seq(b->item, b->count), .end = end,
	};
	struct mcp_adopt_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_status st;
	struct mcp_iter it;
	int r = mc_fault("client.disk.offer");

	if (r == 0)
		r = mcs_call(b->session, MCP_ADOPT, &msg, &reply, &mem, mc_deadline_ms(CALL_MS));
	if (r < 0)
		return r;
	mcp_iter_init(&it, &reply.results, &mcp_desc_status);
	while (mcp_iter_next(&it, &st)) {
		if (st.status)
			b->why = mc_err_from_wire(st.status);
		*(st.status ? &b->refused : &b->adopted) += 1;
	}
	mcp_reply_done(&mem);
	b->count = 0;
	return 0;
}

/* The records are read again, because their bodies may be too many for the memory. */
static bool batch_next(struct offer_plan *p, uint64_t *ret_off, uint32_t *ret_len)
{
	struct offer_batch *b = mc_container_of(p, struct offer_batch, plan);

	if (b->pos == b->n)
		return false;
	*ret_off = b->found[b->pos].off + b->found[b->pos].len - MCT_BLOCK;
	*ret_len = MCT_BLOCK;
	b->pos++;
	return true;
}

static int batch_take(struct offer_plan *p, uint64_t off, uint32_t len, const char *at)
{
	struct offer_batch *b = mc_container_of(p, struct offer_batch, plan);
	const struct mct_found *f = &b->found[b->at++];
	char *block = b->block[b->count];
	struct mct_record rec;

	if (!at)
		return 0;
	memcpy(block, at, len);
	if (!mct_record_open(block, off + len, b->disk->secret, &rec) || rec.order != f->order)
		return 0;
	b->item[b->count++] = (struct mcp_adopt_item){
		.offset = rec.off, .length = rec.len, .order = rec.order, .record = mcp_bytes(rec.body, rec.body_len),
	};
	return b->count == MCP_ADOPT_MAX ? batch_send(b, false) : 0;
}

static int offer_found(struct mcs_session *s, const struct mcs_own_segment_offered *o, struct mc_stop *stop,
		       const struct mct_found *found, size_t n)
{
	struct offer_batch *b = calloc(1, sizeof(*b));
	int r;

	if (!b)
		return -ENOMEM;
	b->plan = (struct offer_plan){ batch_next, batch_take };
	b->disk = o;
	b->session = s;
	b->found = found;
	b->n = n;
	r = reader_run(o->medium, stop, &b->plan);
	if (r == 0)
		r = batch_send(b, true);
	if (r == 0)
		mc_info("client", "offered the objects of our disk to the new pool found=%zu taken=%zu refused=%zu%s%s",
			n, b->adopted, b->refused, b->refused ? " last reason: " : "",
			b->refused ? mc_strerror(b->why) : "");
	free(b);
	return r;
}

int mcs_disk_scan(const struct mcs_own_segment_offered *o, struct mc_stop *stop, struct mct_found **ret, size_t *ret_n,
		  uint64_t *ret_unread)
{
	struct offer_scan scan = { .plan = { scan_next, scan_take }, .disk = o };
	auto_free struct mct_note *note = NULL;
	size_t notes = 0;
	/* A named medium has no notes: the sweeper deletes the ranges of removed objects. */
	int r = o->medium->ops->named ? 0 : mcs_disk_notes_read(o->medium, o->secret, &note, &notes);

	if (r == 0)
		r = reader_run(o->medium, stop, &scan.plan);
	if (r < 0) {
		free(scan.found);
		return r;
	}
	*ret = scan.found;
	*ret_n = mct_records_live(scan.found, scan.n, note, notes);
	*ret_unread = scan.unread;
	return 0;
}

int mcs_disk_offer(struct mcs_session *s, const struct mcs_own_segment_offered *o, struct mc_stop *stop)
{
	auto_free struct mct_found *found = NULL;
	uint64_t unread = 0;
	size_t n = 0;
	int r = mcs_disk_scan(o, stop, &found, &n, &unread);

	if (unread)
		mc_warn("client", "parts of our disk cannot be read, so their objects are lost bytes=%llu",
			(unsigned long long)unread);
	return r < 0 ? r : offer_found(s, o, stop, found, n);
}
