/* SPDX-License-Identifier: Apache-2.0
 * buffer.c - the buffers of a medium, and the reads and writes that go through them.
 *
 * A read takes a buffer, or joins a read of the same blocks that has one; without a free buffer it waits its turn.
 * Writers get at most half of the buffers, so that reads always have some. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/metrics.h"
#include "common/sys/thread.h"
#include "tiers/ssd/ssd_i.h"

#define BYTES_DEFAULT (64ull << 20)
#define BUFFERS_MIN 4u
#define BUFFERS_MAX 4096u

MC_COUNTER(read_bytes, "mooncake_ssd_bytes_total", "op=\"read\"", "Bytes moved between SSDs and buffers")
MC_COUNTER(write_bytes, "mooncake_ssd_bytes_total", "op=\"write\"", "Bytes moved between SSDs and buffers")
MC_COUNTER(read_errors, "mooncake_ssd_errors_total", "op=\"read\"", "Transfers of SSDs that failed")
MC_COUNTER(write_errors, "mooncake_ssd_errors_total", "op=\"write\"", "Transfers of SSDs that failed")
MC_COUNTER(merged, "mooncake_ssd_merged_reads_total", "", "Reads that joined an equal one")

static struct mct_ssd *ssd_of(struct mct_medium *m)
{
	return (struct mct_ssd *)m;
}

unsigned mct_ssd_buffers_for(uint64_t bytes)
{
	uint64_t n = (bytes ? bytes : BYTES_DEFAULT) / MCT_PIECE_MAX;

	return n < BUFFERS_MIN ? BUFFERS_MIN : n > BUFFERS_MAX ? BUFFERS_MAX : (unsigned)n;
}

int mct_ssd_buffers_open(struct mct_ssd *d, unsigned n, void *mem)
{
	d->buffer = calloc(n, sizeof(*d->buffer));
	if (!d->buffer)
		return -ENOMEM;
	d->mem = mem;
	d->nbuffers = n;
	for (unsigned i = 0; i < d->nbuffers; i++) {
		d->buffer[i].d = d;
		d->buffer[i].mem = d->mem + (size_t)i * MCT_SSD_BUF;
		mc_list_init(&d->buffer[i].readers);
		mc_list_push_back(&d->free, &d->buffer[i].node);
	}
	return 0;
}

void mct_ssd_buffers_close(struct mct_ssd *d)
{
	free(d->buffer);
}

static struct mct_ssd_buffer *buffer_take_locked(struct mct_ssd *d)
{
	struct mct_ssd_buffer *b = mc_list_first(&d->free, struct mct_ssd_buffer, node);

	mc_list_remove(&b->node);
	b->loaded = false;
	b->refs = 0;
	return b;
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

static struct mct_ssd_buffer *read_same_locked(struct mct_ssd *d, const struct mct_read *r)
{
	struct mc_list *pos, *bucket = read_bucket(d, read_begin(r));

	mc_list_for_each(pos, bucket) {
		struct mct_ssd_buffer *b = mc_container_of(pos, struct mct_ssd_buffer, node);

		if (b->op.off == MCT_SSD_DATA_AT + read_begin(r) && b->op.len == read_blocks(r))
			return b;
	}
	return NULL;
}

static void read_ready(struct mct_read *r, const struct mct_ssd_buffer *b)
{
	r->status = 0;
	r->at = b->mem + (r->off - read_begin(r));
}

static void read_loaded(struct mct_io_op *op);

/* Begin the read or join one.  *ret_op: a transfer that the caller submits without the lock.  True: it has its bytes.
 * @r is on no list. */
static bool read_begin_locked(struct mct_ssd *d, struct mct_read *r, struct mct_io_op **ret_op)
{
	struct mct_ssd_buffer *b = read_same_locked(d, r);

	*ret_op = NULL;
	if (b) {
		mc_metric_add(&merged, 1);
	} else if (mc_list_empty(&d->free)) {
		mc_list_push_back(&d->waiting, &r->node);
		return false;
	} else {
		b = buffer_take_locked(d);
		b->op = (struct mct_io_op){
			.fd = d->fd, .off = MCT_SSD_DATA_AT + read_begin(r), .len = read_blocks(r), .buf = b->mem,
			.done = read_loaded,
		};
		mc_list_push_back(read_bucket(d, read_begin(r)), &b->node);
		mct_ssd_health_begin_locked(d);
		*ret_op = &b->op;
	}
	b->refs++;
	r->buffer = b;
	if (!b->loaded) {
		mc_list_push_back(&b->readers, &r->node);
		return false;
	}
	read_ready(r, b);
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

static void reads_done(struct mc_list *over)
{
	while (!mc_list_empty(over)) {
		struct mct_read *r = mc_list_first(over, struct mct_read, node);

		mc_list_remove(&r->node);
		r->done(r);
	}
}

/* The buffer is on no list and has no reader. */
static void buffer_free(struct mct_ssd *d, struct mct_ssd_buffer *b)
{
	mc_mutex_lock(&d->lock);
	mc_list_push_back(&d->free, &b->node);
	mc_cond_signal(&d->freed);
	mc_mutex_unlock(&d->lock);
	read_waiting(d);
}

void mct_ssd_read_over(struct mct_ssd *d, struct mct_ssd_buffer *b, int status)
{
	struct mc_list over;
	bool unused;

	mc_list_init(&over);
	mc_mutex_lock(&d->lock);
	while (!mc_list_empty(&b->readers)) {
		struct mct_read *r = mc_list_first(&b->readers, struct mct_read, node);

		mc_list_remove(&r->node);
		mc_list_push_back(&over, &r->node);
		read_ready(r, b);
		if (status < 0)
			r->status = status;
	}
	b->loaded = true;
	/* No reader joins a failed read. */
	if (status < 0) {
		mc_list_remove(&b->node);
		b->refs = 0;
	} else {
		d->health.good_off = b->op.off;
	}
	unused = b->refs == 0;
	mc_mutex_unlock(&d->lock);
	mc_metric_add(status < 0 ? &read_errors : &read_bytes, status < 0 ? 1 : b->op.len);
	if (unused)
		buffer_free(d, b);
	reads_done(&over);
}

static void read_loaded(struct mct_io_op *op)
{
	struct mct_ssd_buffer *b = mc_container_of(op, struct mct_ssd_buffer, op);
	struct mct_ssd *d = b->d;

	mc_mutex_lock(&d->lock);
	mct_ssd_health_end_locked(d);
	mc_mutex_unlock(&d->lock);
	if (op->status < 0)
		mct_ssd_health_doubt(d, b);
	else
		d->form->loaded(d, b);
}

/* Buffers that were loaded earlier get no more readers either: when the disk works again, another owner may have
 * written to it. */
void mct_ssd_reads_give_up(struct mct_ssd *d)
{
	struct mc_list over;

	mc_list_init(&over);
	mc_mutex_lock(&d->lock);
	mc_list_move(&over, &d->waiting);
	for (unsigned i = 0; i < d->nbuffers; i++) {
		struct mct_ssd_buffer *b = &d->buffer[i];

		if (!b->refs)
			continue;
		mc_list_remove(&b->node);
		if (b->loaded)
			continue;
		mc_list_move(&over, &b->readers);
		b->refs = 0;
	}
	mc_cond_broadcast(&d->freed);
	mc_mutex_unlock(&d->lock);
	for (struct mc_list *pos = over.next; pos != &over; pos = pos->next)
		mc_container_of(pos, struct mct_read, node)->status = -MC_EUNAVAILABLE;
	reads_done(&over);
}

void mct_ssd_read_start(struct mct_medium *m, struct mct_read *r)
{
	struct mct_ssd *d = ssd_of(m);
	uint64_t size = __atomic_load_n(&d->size, __ATOMIC_RELAXED);
	struct mct_io_op *op = NULL;
	bool ready, paused;

	mc_list_init(&r->node);
	if (r->len == 0 || r->len > MCT_PIECE_MAX || r->off > size || r->len > size - r->off) {
		r->status = -ERANGE;
		r->done(r);
		return;
	}
	mc_mutex_lock(&d->lock);
	paused = d->health.paused;
	ready = paused || read_begin_locked(d, r, &op);
	mc_mutex_unlock(&d->lock);
	if (paused)
		r->status = -MC_EUNAVAILABLE;
	if (op)
		mct_io_submit(d->io, op);
	if (ready)
		r->done(r);
}

void mct_ssd_read_end(struct mct_medium *m, struct mct_read *r)
{
	struct mct_ssd *d = ssd_of(m);
	struct mct_ssd_buffer *b = r->buffer;
	bool last;

	mc_mutex_lock(&d->lock);
	last = --b->refs == 0;
	if (last)
		mc_list_remove(&b->node);
	mc_mutex_unlock(&d->lock);
	if (last)
		buffer_free(d, b);
}

/* ---- writes ------------------------------------------------------------------------------------ */

int mct_ssd_buffer_get(struct mct_medium *m, uint64_t deadline, void **ret)
{
	struct mct_ssd *d = ssd_of(m);
	struct mct_ssd_buffer *b;

	MC_LOCKED(&d->lock);
	while (!d->health.paused && (mc_list_empty(&d->free) || d->writing >= d->nbuffers / 2))
		if (mc_cond_wait_until(&d->freed, &d->lock, deadline) < 0)
			return mc_fail(-MC_ETIMEDOUT, "no free buffer of %s: the disk is slow", d->path);
	if (d->health.paused)
		return mct_ssd_health_paused(d);
	b = buffer_take_locked(d);
	d->writing++;
	*ret = b->mem;
	return 0;
}

static struct mct_ssd_buffer *buffer_of(struct mct_ssd *d, const void *buf)
{
	return &d->buffer[((const char *)buf - d->mem) / MCT_SSD_BUF];
}

void mct_ssd_buffer_put(struct mct_medium *m, void *buf)
{
	struct mct_ssd *d = ssd_of(m);

	mc_mutex_lock(&d->lock);
	d->writing--;
	mc_mutex_unlock(&d->lock);
	buffer_free(d, buffer_of(d, buf));
}

/* Reads of these blocks that have begun show other bytes than later ones: no reader may join them. */
static void reads_part_locked(struct mct_ssd *d, const struct mct_io_op *op)
{
	for (unsigned i = 0; i < d->nbuffers; i++) {
		struct mct_ssd_buffer *b = &d->buffer[i];

		if (b->refs && b->op.off < op->off + op->len && op->off < b->op.off + b->op.len)
			mc_list_remove(&b->node);
	}
}

static void write_stored(struct mct_io_op *op)
{
	struct mct_ssd_write *o = mc_container_of(op, struct mct_ssd_write, op);
	struct mct_write *w = mc_container_of((uint64_t (*)[12])o, struct mct_write, priv);

	mc_mutex_lock(&o->d->lock);
	reads_part_locked(o->d, op);
	mct_ssd_health_end_locked(o->d);
	mc_mutex_unlock(&o->d->lock);
	w->status = op->status;
	o->d->form->stored(o->d, o);
	if (w->status < 0)
		mct_ssd_health_write_failed(o->d, w->status);
	mc_metric_add(w->status < 0 ? &write_errors : &write_bytes, w->status < 0 ? 1 : op->len);
	w->done(w);
}

void mct_ssd_write_start(struct mct_medium *m, struct mct_write *w)
{
	struct mct_ssd_write *o = (struct mct_ssd_write *)w->priv;
	struct mct_ssd *d = ssd_of(m);
	uint64_t size = __atomic_load_n(&d->size, __ATOMIC_RELAXED);
	bool paused;

	if (w->len == 0 || w->len > MCT_PIECE_MAX || w->len % MCT_BLOCK || w->off % MCT_BLOCK || w->off > size ||
	    w->len > size - w->off || (uintptr_t)w->buf % MCT_BLOCK) {
		w->status = -ERANGE;
		w->done(w);
		return;
	}
	*o = (struct mct_ssd_write){
		.op = {
			.fd = d->fd, .write = true, .off = MCT_SSD_DATA_AT + w->off, .len = (uint32_t)w->len,
			.buf = (void *)(uintptr_t)w->buf, .done = write_stored,
		},
		.d = d,
	};
	mc_mutex_lock(&d->lock);
	paused = d->health.paused;
	if (!paused) {
		reads_part_locked(d, &o->op);
		mct_ssd_health_begin_locked(d);
	}
	mc_mutex_unlock(&d->lock);
	if (!paused) {
		d->form->store(d, o);
		return;
	}
	w->status = -MC_EUNAVAILABLE;
	w->done(w);
}
