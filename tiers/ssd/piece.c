/* SPDX-License-Identifier: Apache-2.0
 * piece.c - the buffers of a medium, and the reads and writes that go through them.
 *
 * A read takes a buffer, or joins a read of the same blocks that has one; without a free buffer it waits its turn.
 * Writers get at most half of the buffers, so that reads always have some. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/metrics.h"
#include "common/sys/thread.h"
#include "tiers/ssd/ssd_i.h"

#define BUFFERS_DEFAULT (64ull << 20)
#define PIECES_MIN 4u
#define PIECES_MAX 4096u

MC_COUNTER(read_bytes, "mooncake_ssd_bytes_total", "op=\"read\"", "Bytes moved between SSDs and buffers")
MC_COUNTER(write_bytes, "mooncake_ssd_bytes_total", "op=\"write\"", "Bytes moved between SSDs and buffers")
MC_COUNTER(read_errors, "mooncake_ssd_errors_total", "op=\"read\"", "Transfers of SSDs that failed")
MC_COUNTER(write_errors, "mooncake_ssd_errors_total", "op=\"write\"", "Transfers of SSDs that failed")
MC_COUNTER(merged, "mooncake_ssd_merged_reads_total", "", "Reads that joined an equal one")

static struct mct_ssd *ssd_of(struct mct_medium *m)
{
	return (struct mct_ssd *)m;
}

int mct_ssd_pieces_open(struct mct_ssd *d, uint64_t bytes)
{
	uint64_t n = (bytes ? bytes : BUFFERS_DEFAULT) / MCT_PIECE_MAX;

	n = n < PIECES_MIN ? PIECES_MIN : n > PIECES_MAX ? PIECES_MAX : n;
	d->piece = calloc(n, sizeof(*d->piece));
	d->pool_len = n * MCT_SSD_BUF;
	d->pool = mmap(NULL, d->pool_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (d->pool == MAP_FAILED)
		d->pool = NULL;
	if (!d->piece || !d->pool)
		return mc_fail(-ENOMEM, "no memory for %llu buffers of 1 MiB", (unsigned long long)n);
	d->npieces = (unsigned)n;
	for (unsigned i = 0; i < d->npieces; i++) {
		d->piece[i].d = d;
		d->piece[i].buf = d->pool + (size_t)i * MCT_SSD_BUF;
		mc_list_init(&d->piece[i].readers);
		mc_list_push_back(&d->free, &d->piece[i].node);
	}
	return 0;
}

void mct_ssd_pieces_close(struct mct_ssd *d)
{
	if (d->pool)
		munmap(d->pool, d->pool_len);
	free(d->piece);
}

static struct mct_piece *piece_take_locked(struct mct_ssd *d)
{
	struct mct_piece *p = mc_list_first(&d->free, struct mct_piece, node);

	mc_list_remove(&p->node);
	p->loaded = false;
	p->refs = 0;
	return p;
}

/* ---- reads ------------------------------------------------------------------------------------- */

static uint64_t read_begin(const struct mct_read *r)
{
	return r->off - r->off % MCT_BLOCK;
}

static uint32_t read_blocks(const struct mct_read *r)
{
	uint64_t end = (r->off + r->len + MCT_BLOCK - 1) / MCT_BLOCK * MCT_BLOCK;

	return (uint32_t)(end - read_begin(r));
}

static struct mc_list *read_bucket(struct mct_ssd *d, uint64_t begin)
{
	return &d->bucket[begin / MCT_BLOCK * 0x9e3779b97f4a7c15ull >> 56];
}

static struct mct_piece *read_same_locked(struct mct_ssd *d, const struct mct_read *r)
{
	struct mc_list *pos, *bucket = read_bucket(d, read_begin(r));

	mc_list_for_each(pos, bucket) {
		struct mct_piece *p = mc_container_of(pos, struct mct_piece, node);

		if (p->op.off == MCT_SSD_DATA_AT + read_begin(r) && p->op.len == read_blocks(r))
			return p;
	}
	return NULL;
}

static void read_ready(struct mct_read *r, const struct mct_piece *p)
{
	r->status = 0;
	r->at = p->buf + (r->off - read_begin(r));
}

static void read_loaded(struct mct_io_op *op);

/* Begin the read or join one.  *ret_op: a transfer that the caller submits without the lock.  True: it has its bytes.
 * @r is on no list. */
static bool read_begin_locked(struct mct_ssd *d, struct mct_read *r, struct mct_io_op **ret_op)
{
	struct mct_piece *p = read_same_locked(d, r);

	*ret_op = NULL;
	if (p) {
		mc_metric_add(&merged, 1);
	} else if (mc_list_empty(&d->free)) {
		mc_list_push_back(&d->waiting, &r->node);
		return false;
	} else {
		p = piece_take_locked(d);
		p->op = (struct mct_io_op){
			.fd = d->fd, .off = MCT_SSD_DATA_AT + read_begin(r), .len = read_blocks(r), .buf = p->buf,
			.done = read_loaded,
		};
		mc_list_push_back(read_bucket(d, read_begin(r)), &p->node);
		*ret_op = &p->op;
	}
	p->refs++;
	r->piece = p;
	if (!p->loaded) {
		mc_list_push_back(&p->readers, &r->node);
		return false;
	}
	read_ready(r, p);
	return true;
}

/* Give buffers to reads that wait for one. */
static void read_waiting(struct mct_ssd *d)
{
	struct mct_io_op *op;
	struct mct_read *r;
	bool ready;

	do {
		mc_mutex_lock(&d->lock);
		r = NULL;
		ready = false;
		op = NULL;
		if (!mc_list_empty(&d->waiting) && !mc_list_empty(&d->free)) {
			r = mc_list_first(&d->waiting, struct mct_read, node);
			mc_list_remove(&r->node);
			ready = read_begin_locked(d, r, &op);
		}
		mc_mutex_unlock(&d->lock);
		if (op)
			mct_io_submit(d->io, op);
		if (ready)
			r->done(r);
	} while (r);
}

/* The piece is on no list and has no reader. */
static void piece_free(struct mct_ssd *d, struct mct_piece *p)
{
	mc_mutex_lock(&d->lock);
	mc_list_push_back(&d->free, &p->node);
	mc_cond_signal(&d->freed);
	mc_mutex_unlock(&d->lock);
	read_waiting(d);
}

static void read_loaded(struct mct_io_op *op)
{
	struct mct_piece *p = mc_container_of(op, struct mct_piece, op);
	int status = mc_fault("tiers.ssd.read");
	struct mct_ssd *d = p->d;
	struct mc_list over;

	if (status == 0)
		status = op->status;
	mc_list_init(&over);
	mc_mutex_lock(&d->lock);
	while (!mc_list_empty(&p->readers)) {
		struct mct_read *r = mc_list_first(&p->readers, struct mct_read, node);

		mc_list_remove(&r->node);
		mc_list_push_back(&over, &r->node);
		read_ready(r, p);
		if (status < 0)
			r->status = status;
	}
	p->loaded = true;
	/* No reader joins a failed read. */
	if (status < 0) {
		mc_list_remove(&p->node);
		p->refs = 0;
	}
	mc_mutex_unlock(&d->lock);
	mc_metric_add(status < 0 ? &read_errors : &read_bytes, status < 0 ? 1 : op->len);
	if (status < 0)
		piece_free(d, p);
	while (!mc_list_empty(&over)) {
		struct mct_read *r = mc_list_first(&over, struct mct_read, node);

		mc_list_remove(&r->node);
		r->done(r);
	}
}

void mct_ssd_read_start(struct mct_medium *m, struct mct_read *r)
{
	struct mct_ssd *d = ssd_of(m);
	uint64_t size = __atomic_load_n(&d->size, __ATOMIC_RELAXED);
	struct mct_io_op *op = NULL;
	bool ready;

	mc_list_init(&r->node);
	if (r->len == 0 || r->len > MCT_PIECE_MAX || r->off > size || r->len > size - r->off) {
		r->status = -ERANGE;
		r->done(r);
		return;
	}
	mc_mutex_lock(&d->lock);
	ready = read_begin_locked(d, r, &op);
	mc_mutex_unlock(&d->lock);
	if (op)
		mct_io_submit(d->io, op);
	if (ready)
		r->done(r);
}

void mct_ssd_read_end(struct mct_medium *m, struct mct_read *r)
{
	struct mct_ssd *d = ssd_of(m);
	struct mct_piece *p = r->piece;
	bool last;

	mc_mutex_lock(&d->lock);
	last = --p->refs == 0;
	if (last)
		mc_list_remove(&p->node);
	mc_mutex_unlock(&d->lock);
	if (last)
		piece_free(d, p);
}

/* ---- writes ------------------------------------------------------------------------------------ */

int mct_ssd_buffer_get(struct mct_medium *m, uint64_t deadline, void **ret)
{
	struct mct_ssd *d = ssd_of(m);
	struct mct_piece *p;

	MC_LOCKED(&d->lock);
	while (mc_list_empty(&d->free) || d->writing >= d->npieces / 2)
		if (mc_cond_wait_until(&d->freed, &d->lock, deadline) < 0)
			return mc_fail(-MC_ETIMEDOUT, "no free buffer of %s: the disk is slow", d->path);
	p = piece_take_locked(d);
	d->writing++;
	*ret = p->buf;
	return 0;
}

static struct mct_piece *piece_of(struct mct_ssd *d, const void *buf)
{
	return &d->piece[((const char *)buf - d->pool) / MCT_SSD_BUF];
}

void mct_ssd_buffer_put(struct mct_medium *m, void *buf)
{
	struct mct_ssd *d = ssd_of(m);

	mc_mutex_lock(&d->lock);
	d->writing--;
	mc_mutex_unlock(&d->lock);
	piece_free(d, piece_of(d, buf));
}

/* Reads of these blocks that have begun show other bytes than later ones: no reader may join them. */
static void reads_part(struct mct_ssd *d, const struct mct_io_op *op)
{
	MC_LOCKED(&d->lock);
	for (unsigned i = 0; i < d->npieces; i++) {
		struct mct_piece *p = &d->piece[i];

		if (p->refs && p->op.off < op->off + op->len && op->off < p->op.off + p->op.len)
			mc_list_remove(&p->node);
	}
}

/* The transfer of a write, in its priv[]. */
struct __attribute__((may_alias)) write_op {
	struct mct_io_op op;
	struct mct_ssd *d;
};
_Static_assert(sizeof(struct write_op) <= sizeof(((struct mct_write *)0)->priv), "priv[] is too small");

static void write_stored(struct mct_io_op *op)
{
	struct write_op *o = mc_container_of(op, struct write_op, op);
	struct mct_write *w = mc_container_of((uint64_t (*)[12])o, struct mct_write, priv);

	reads_part(o->d, op);
	w->status = mc_fault("tiers.ssd.write");
	if (w->status == 0)
		w->status = op->status;
	mc_metric_add(w->status < 0 ? &write_errors : &write_bytes, w->status < 0 ? 1 : op->len);
	w->done(w);
}

void mct_ssd_write_start(struct mct_medium *m, struct mct_write *w)
{
	struct write_op *o = (struct write_op *)w->priv;
	struct mct_ssd *d = ssd_of(m);
	uint64_t size = __atomic_load_n(&d->size, __ATOMIC_RELAXED);

	if (w->len == 0 || w->len > MCT_PIECE_MAX || w->len % MCT_BLOCK || w->off % MCT_BLOCK || w->off > size ||
	    w->len > size - w->off || (uintptr_t)w->buf % MCT_BLOCK) {
		w->status = -ERANGE;
		w->done(w);
		return;
	}
	*o = (struct write_op){
		.op = {
			.fd = d->fd, .write = true, .off = MCT_SSD_DATA_AT + w->off, .len = w->len,
			.buf = (void *)(uintptr_t)w->buf, .done = write_stored,
		},
		.d = d,
	};
	reads_part(d, &o->op);
	mct_io_submit(d->io, &o->op);
}
