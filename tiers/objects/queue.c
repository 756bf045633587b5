/* SPDX-License-Identifier: Apache-2.0
 * queue.c - the threads that call the store, whose functions block: one call of each thread at a time.
 *
 * After a call that the server did not answer, transfers fail at once for a short time: else each of many transfers
 * would wait for the same server as long as the first one.
 *
 * Reads precede writes, and writes precede deletes; writes and deletes get only a part of the threads, so that a store
 * that is slow to write can still be read.  When many ranges wait for their deletion, deletes get the whole part while
 * no write waits, and one thread in any case. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/clock.h"
#include "tiers/objects/objects_i.h"

#define WRITERS (MCT_OBJECTS_THREADS / 2)
#define DELETERS 2u
#define LONG 1024u		/* many deletes wait */
#define PAUSE_MS 1500

MC_COUNTER(read_bytes, "mooncake_s3_bytes_total", "op=\"read\"", "Bytes moved between S3 and the owner")
MC_COUNTER(write_bytes, "mooncake_s3_bytes_total", "op=\"write\"", "Bytes moved between S3 and the owner")
MC_COUNTER(read_errors, "mooncake_s3_errors_total", "op=\"read\"", "Transfers of S3 that failed")
MC_COUNTER(write_errors, "mooncake_s3_errors_total", "op=\"write\"", "Transfers of S3 that failed")
MC_COUNTER(delete_errors, "mooncake_s3_errors_total", "op=\"delete\"", "Transfers of S3 that failed")
MC_COUNTER(deleted, "mooncake_s3_deleted_total", "", "Names that were deleted because they are not in use")

struct mct_objects_delete {
	struct mc_list node;
	struct mct_objects_delete *next;	/* in its bucket */
	uint64_t folder;
	struct mct_objects_range range;
};

/* Did the server not answer? */
static bool queue_is_silence(int r)
{
	return r == -ETIMEDOUT || r == -MC_ETIMEDOUT || r == -ECONNREFUSED || r == -EHOSTUNREACH || r == -ENETUNREACH;
}

static int queue_check(const struct mct_objects *o)
{
	return mc_now_ns() < __atomic_load_n(&o->pause_ns, __ATOMIC_RELAXED) ?
		mc_fail(-MC_EUNAVAILABLE, "%s does not answer", o->path) : 0;
}

/* One line in the log when the store begins to fail, and one when it works again. */
static void queue_note(struct mct_objects *o, int r, const char *what)
{
	bool was;

	if (r == -MC_EUNAVAILABLE)
		return;
	if (queue_is_silence(r))
		__atomic_store_n(&o->pause_ns, mc_deadline_ms(PAUSE_MS), __ATOMIC_RELAXED);
	was = __atomic_exchange_n(&o->failing, r < 0, __ATOMIC_RELAXED);
	if (r < 0 && !was)
		mc_warn("s3", "%s: a %s has failed: %s", o->path, what, mc_err_detail(r));
	else if (r == 0 && was)
		mc_info("s3", "%s: works again", o->path);
}

/* ---- reads -------------------------------------------------------------------------------------- */

/* -EIO says that the bytes are lost, and the reader has the copy dropped. */
static int read_error(int r)
{
	return r == 0 ? 0 : r == -ENOENT || r == -ERANGE || r == -MC_ECHECKSUM ? -EIO : -MC_EUNAVAILABLE;
}

static int read_parts(struct mct_objects *o, uint64_t folder, const struct mct_objects_range *range, uint64_t pos,
		      char *buf, uint64_t len)
{
	char name[MCT_KEYED_NAME_MAX];
	int r = queue_check(o);

	if (r == 0)
		r = mc_fault("tiers.objects.read");
	for (uint64_t n; len && r == 0; pos += n, buf += n, len -= n) {
		uint64_t in = pos % MCT_OBJECTS_PART;

		n = MCT_OBJECTS_PART - in < len ? MCT_OBJECTS_PART - in : len;
		mct_objects_name(o, folder, range, pos / MCT_OBJECTS_PART, name);
		r = o->form->get(o, name, mct_objects_part_len(range, pos / MCT_OBJECTS_PART), in, buf, n);
	}
	return r;
}

/* A read of a range found no such name.  -ENOENT: in the store of this process.  Another one, as an empty directory
 * before its file system is mounted, says nothing about the range. */
static int read_absent(struct mct_objects *o)
{
	int r = mct_objects_identity_look(o, mc_now_ns());

	return r == 0 ? -ENOENT : r == -ENOENT ?
		mc_fail(-MC_EUNAVAILABLE, "%s has no object \"identity\", it may be another store", o->path) :
		mc_fail(-MC_EUNAVAILABLE, "cannot verify the identity in %s", o->path);
}

static void read_run(struct mct_objects *o, struct mct_read *r)
{
	const struct mct_objects_range *found;
	struct mct_objects_range range;
	char *buf = malloc(r->len);
	uint64_t folder;
	int e = -ENOMEM;

	mc_mutex_lock(&o->lock);
	found = mct_objects_index_have(&o->index, r->off, r->len);
	if (found)
		range = *found;
	folder = o->folder;
	mc_mutex_unlock(&o->lock);
	/* An earlier owner may have written the range after this process had built its index. */
	if (buf && !found)
		e = __atomic_load_n(&o->complete, __ATOMIC_RELAXED) ? -ENOENT : -MC_EUNAVAILABLE;
	if (buf && found) {
		e = read_parts(o, folder, &range, r->off - range.off, buf, r->len);
		if (e == -ENOENT)
			e = read_absent(o);
		/* The right store may have come back meanwhile. */
		if (e == -ENOENT)
			e = read_parts(o, folder, &range, r->off - range.off, buf, r->len);
		if (e == -ENOENT)
			e = read_absent(o);
		queue_note(o, read_error(e) == -EIO ? 0 : e, "read");
	}
	mc_metric_add(e < 0 ? &read_errors : &read_bytes, e < 0 ? 1 : r->len);
	if (e < 0)
		free(TAKE_PTR(buf));
	r->status = read_error(e);
	r->at = r->buffer = buf;
	r->done(r);
}

void mct_objects_read_start(struct mct_medium *m, struct mct_read *r)
{
	struct mct_objects *o = mct_objects_of(m);
	bool refused = r->len == 0 || r->len > MCT_PIECE_MAX;

	if (refused) {
		r->status = -ERANGE;
		r->done(r);
		return;
	}
	MC_LOCKED(&o->lock);
	mc_list_push_back(&o->reads, &r->node);
	mc_cond_signal(&o->work);
}

void mct_objects_read_end(struct mct_medium *m, struct mct_read *r)
{
	(void)m;
	free(r->buffer);
}

/* ---- writes ------------------------------------------------------------------------------------- */

static struct mct_write *write_of(struct mct_objects_write *w)
{
	return mc_container_of((uint64_t (*)[12])w, struct mct_write, priv);
}

/* The bytes [@pos, @pos + @len) of the range: where they are, or (*ret_copy) a copy of them. */
static const void *write_bytes_at(const struct mct_write *w, uint64_t pos, uint64_t len, char **ret_copy)
{
	uint64_t head = pos < w->len ? (w->len - pos < len ? w->len - pos : len) : 0;

	*ret_copy = NULL;
	if (head == len)
		return (const char *)w->buf + pos;
	if (!head)
		return (const char *)w->tail + (pos - w->len);
	*ret_copy = malloc(len);
	if (!*ret_copy)
		return NULL;
	memcpy(*ret_copy, (const char *)w->buf + pos, head);
	memcpy(*ret_copy + head, w->tail, len - head);
	return *ret_copy;
}

static int write_parts(struct mct_objects *o, uint64_t folder, const struct mct_objects_range *range,
		       const struct mct_write *w)
{
	char name[MCT_KEYED_NAME_MAX];
	int r = atomic_load(&o->taken) ? -ESTALE : queue_check(o);

	if (r == 0 && atomic_load(&o->strange))
		r = mc_fail(-MC_EUNAVAILABLE, "%s has no object \"identity\"", o->path);
	if (r == 0)
		r = mc_fault("tiers.objects.write");
	for (uint64_t part = 0; part < mct_objects_parts(range) && r == 0; part++) {
		uint64_t pos = part * MCT_OBJECTS_PART, len = mct_objects_part_len(range, part);
		auto_free char *copy = NULL;
		const void *data = write_bytes_at(w, pos, len, &copy);

		mct_objects_name(o, folder, range, part, name);
		r = w->deadline && mc_now_ns() >= w->deadline ?
			mc_fail(-MC_ETIMEDOUT, "%s is too slow for its writes", o->path) :
			data ? o->form->put(o, name, data, len) : mc_fail(-ENOMEM, "no memory for %s", name);
	}
	return r;
}

static void write_replaced(void *arg, const struct mct_objects_range *r)
{
	struct mct_objects *o = arg;

	mct_objects_delete_locked(o, o->folder, r);
}

/* The write has ended with @r.  A part that failed may still be stored later: then a sweep finds it. */
static int write_index_locked(struct mct_objects *o, uint64_t folder, const struct mct_objects_range *range, int r)
{
	if (r == 0)
		r = folder == o->folder ? mct_objects_index_add(&o->index, range, write_replaced, o) : -ESTALE;
	if (r < 0)
		mct_objects_delete_locked(o, folder, range);
	return r;
}

static void write_run(struct mct_objects *o, struct mct_objects_write *at, uint64_t folder)
{
	struct mct_write *w = write_of(at);
	const struct mct_objects_range range = { w->off, w->len + w->tail_len, w->generation, w->order };
	int r = write_parts(o, folder, &range, w);

	queue_note(o, r, "write");
	mc_mutex_lock(&o->lock);
	w->status = write_index_locked(o, folder, &range, r);
	mc_list_remove(&at->node);
	mc_mutex_unlock(&o->lock);
	mc_metric_add(w->status < 0 ? &write_errors : &write_bytes, w->status < 0 ? 1 : (int64_t)range.len);
	w->done(w);
}

void mct_objects_write_start(struct mct_medium *m, struct mct_write *w)
{
	struct mct_objects_write *at = (struct mct_objects_write *)w->priv;
	struct mct_objects *o = mct_objects_of(m);
	uint64_t len = w->len + w->tail_len, size = __atomic_load_n(&o->size, __ATOMIC_RELAXED);

	if (!len || len < w->len || len % MCT_BLOCK || w->off % MCT_BLOCK || w->off > size || len > size - w->off) {
		w->status = -ERANGE;
		w->done(w);
		return;
	}
	at->order = w->order;
	MC_LOCKED(&o->lock);
	mc_list_push_back(&o->writes, &at->node);
	mc_cond_signal(&o->work);
}

/* ---- deletes ------------------------------------------------------------------------------------ */

static unsigned delete_bucket(uint64_t folder, const struct mct_objects_range *r)
{
	return mc_hash(r, sizeof(*r), folder) % MCT_OBJECTS_BUCKETS;
}

bool mct_objects_is_deleted_locked(const struct mct_objects *o, uint64_t folder, const struct mct_objects_range *r)
{
	const struct mct_objects_delete *d = o->queued[delete_bucket(folder, r)];

	while (d && (d->folder != folder || memcmp(&d->range, r, sizeof(*r)) != 0))
		d = d->next;
	return d;
}

bool mct_objects_delete_locked(struct mct_objects *o, uint64_t folder, const struct mct_objects_range *r)
{
	struct mct_objects_delete *d, **bucket = &o->queued[delete_bucket(folder, r)];

	if (o->n_queued >= MCT_OBJECTS_DELETES_MAX || mct_objects_is_deleted_locked(o, folder, r))
		return false;
	d = malloc(sizeof(*d));
	if (!d)
		return false;
	*d = (struct mct_objects_delete){ .next = *bucket, .folder = folder, .range = *r };
	*bucket = d;
	o->n_queued++;
	mc_list_push_back(&o->deletes, &d->node);
	mc_cond_signal(&o->work);
	return true;
}

static void delete_end_locked(struct mct_objects *o, struct mct_objects_delete *d)
{
	struct mct_objects_delete **at = &o->queued[delete_bucket(d->folder, &d->range)];

	while (*at != d)
		at = &(*at)->next;
	*at = d->next;
	o->n_queued--;
	free(d);
}

static void delete_run(struct mct_objects *o, const struct mct_objects_delete *d)
{
	char name[MCT_KEYED_NAME_MAX];
	/* A process whose prefix was taken over, and that does not know it yet, deletes nothing of its successor. */
	int r = o->medium.ops->hold(&o->medium);

	for (uint64_t part = 0; part < mct_objects_parts(&d->range) && r == 0; part++) {
		/* The next owner may have adopted the range. */
		if (atomic_load(&o->taken) || atomic_load(&o->stopping))
			break;
		mct_objects_name(o, d->folder, &d->range, part, name);
		r = mc_fault("tiers.objects.delete");
		if (r == 0)
			r = mct_keyed_delete(o->keyed, name);
		mc_metric_add(r < 0 ? &delete_errors : &deleted, 1);
	}
	if (r < 0)
		mc_debug("s3", "cannot delete, a sweep will: %s", mc_err_detail(r));
}

/* ---- threads ------------------------------------------------------------------------------------ */

static struct mc_list *queue_pop_locked(struct mc_list *list, bool may)
{
	struct mc_list *node = may && !mc_list_empty(list) ? list->next : NULL;

	if (node)
		mc_list_remove(node);
	return node;
}

/* Lock held, and again at return: delete one range, if fewer than @most threads do.  False: none. */
static bool queue_delete_locked(struct mct_objects *o, unsigned most)
{
	struct mc_list *node = queue_pop_locked(&o->deletes, o->deleting < most);
	struct mct_objects_delete *d;

	if (!node)
		return false;
	d = mc_container_of(node, struct mct_objects_delete, node);
	o->deleting++;
	mc_mutex_unlock(&o->lock);
	delete_run(o, d);
	mc_mutex_lock(&o->lock);
	o->deleting--;
	delete_end_locked(o, d);
	return true;
}

/* Lock held, and again at return: run one job.  False: there is none. */
static bool queue_run_locked(struct mct_objects *o)
{
	bool many = o->n_queued > LONG;
	uint64_t folder = o->folder;
	struct mc_list *node;

	if (many && queue_delete_locked(o, 1))
		return true;
	node = queue_pop_locked(&o->reads, true);
	if (node) {
		mc_mutex_unlock(&o->lock);
		read_run(o, mc_container_of(node, struct mct_read, node));
		mc_mutex_lock(&o->lock);
		return true;
	}
	node = queue_pop_locked(&o->writes, o->writing < WRITERS && o->writing + o->deleting < WRITERS + DELETERS);
	if (node) {
		o->writing++;
		mc_list_push_back(&o->running, node);
		mc_mutex_unlock(&o->lock);
		write_run(o, mc_container_of(node, struct mct_objects_write, node), folder);
		mc_mutex_lock(&o->lock);
		o->writing--;
		return true;
	}
	return queue_delete_locked(o, many && mc_list_empty(&o->writes) ? WRITERS + DELETERS - o->writing : DELETERS);
}

static void *queue_main(void *arg)
{
	struct mct_objects *o = arg;

	mc_mutex_lock(&o->lock);
	while (!atomic_load(&o->stopping))
		if (!queue_run_locked(o))
			mc_cond_wait(&o->work, &o->lock);
	mc_mutex_unlock(&o->lock);
	return NULL;
}

int mct_objects_queue_start(struct mct_objects *o)
{
	int r = 0;

	for (; o->nthreads < MCT_OBJECTS_THREADS && r == 0; o->nthreads += r == 0)
		r = mc_thread_start(&o->thread[o->nthreads], "mct-s3", queue_main, o);
	return r;
}

void mct_objects_queue_stop(struct mct_objects *o)
{
	struct mc_list *node;

	mc_mutex_lock(&o->lock);
	atomic_store(&o->stopping, true);
	mc_cond_broadcast(&o->work);
	mc_mutex_unlock(&o->lock);
	while (o->nthreads)
		mc_thread_join(o->thread[--o->nthreads]);
	while ((node = queue_pop_locked(&o->reads, true))) {
		struct mct_read *r = mc_container_of(node, struct mct_read, node);

		r->status = -MC_EUNAVAILABLE;
		r->done(r);
	}
	while ((node = queue_pop_locked(&o->writes, true))) {
		struct mct_write *w = write_of(mc_container_of(node, struct mct_objects_write, node));

		w->status = -MC_EUNAVAILABLE;
		w->done(w);
	}
	while ((node = queue_pop_locked(&o->deletes, true)))
		delete_end_locked(o, mc_container_of(node, struct mct_objects_delete, node));
}
