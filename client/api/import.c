/* SPDX-License-Identifier: Apache-2.0
 * import.c - put the objects of an S3 segment of another pool into this one.
 *
 * The bucket is only read.  The records of all ranges are read first, because of two versions of a key the newer one
 * counts; then threads take the objects in turn: the master decodes the object's description, the key is looked up, and
 * its bytes are read, compared and put.  So a second import of the same bucket reads records only. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/owner/disk_offer.h"
#include "client/owner/disk_read.h"
#include "client/layout.h"
#include "client/attrs.h"
#include "client/store_i.h"
#include "common/cleanup.h"
#include "common/sys/thread.h"
#include "tiers/objects/objects.h"
#include "tiers/ssd/record.h"

#define SIZE (1ull << 56)		/* the segment is opened with that size: any range is within it */
#define THREADS_MAX 64u
#define WHOLE (64u << 10)		/* ranges up to this are read at once, not only their record */
#define BIG (64u << 20)			/* one object above that is in memory at a time */
#define RETRY_MS 200
#define IMPATIENT_MS 2000		/* for space, after an object has found none */

struct tenant {
	struct tenant *next;
	mcs_t *store;
	char name[MCP_TENANT_MAX + 1];
};

/* An object that was imported, for the look at the end. */
struct imported {
	struct imported *next;
	mcs_t *store;
	uint64_t generation;
	size_t key_len;
	char key[];
};

struct import {
	/* constant while threads run */
	struct mcs *s;
	struct mcs_own_segment_offered from;
	const struct mct_found *found;
	size_t n;
	int64_t timeout_ms;
	mcs_import_fn fn;
	void *arg;
	struct mc_mutex big_lock;	/* held while a large object is in memory */
	/* atomic */
	bool full;			/* the pool had no space for the last object */
	/* guarded by lock */
	struct mc_mutex lock;
	size_t next;
	int error;			/* ends the import */
	struct tenant *tenants;
	struct imported *done;
	struct mcs_import sum;
};

/* One object, with the memory that belongs to it. */
struct object {
	const struct mct_found *f;
	char *bytes;			/* the range */
	struct mct_record rec;
	struct mcp_describe_reply d;
	struct mcp_reply mem;
	char tenant[MCP_TENANT_MAX + 1];
	struct mcs_key key;
	mcs_t *store;
	uint64_t generation;
};

/* ---- reading ------------------------------------------------------------------------------------ */

/* A server that does not answer may come back. */
static int import_read(const struct import *im, uint64_t off, void *buf, uint64_t len)
{
	uint64_t deadline = mc_deadline_ms((uint64_t)im->timeout_ms);
	int r;

	do
		r = mcs_disk_read(im->from.medium, off, buf, len);
	while (r == -MC_EUNAVAILABLE && mc_now_ns() < deadline && (mc_sleep_ms(RETRY_MS), true));
	if (r == -EIO)
		return mc_fail(r, "bytes of the object are missing in the bucket");
	return r < 0 ? mc_fail(r, "the server of the bucket does not answer: %s", mc_strerror(r)) : 0;
}

/* The record of the object, and the bytes before it if they are few. */
static int import_read_record(const struct import *im, struct object *o)
{
	const struct mct_found *f = o->f;
	uint64_t from = f->len > WHOLE ? f->len - MCT_BLOCK : 0;
	int r;

	o->bytes = malloc(f->len);
	if (!o->bytes)
		return mc_fail(-ENOMEM, "no memory for an object of %llu bytes", (unsigned long long)f->len);
	r = import_read(im, f->off + from, o->bytes + from, f->len - from);
	if (r < 0)
		return r;
	if (!mct_record_open(o->bytes + f->len - MCT_BLOCK, f->off + f->len, im->from.secret, &o->rec) ||
	    o->rec.order != f->order)
		return mc_fail(-EIO, "the record of the object is damaged");
	return 0;
}

static int import_read_rest(const struct import *im, struct object *o)
{
	uint64_t size = o->d.size;
	int r = 0;

	if (mcs_stored_size(size) > o->f->len)
		return mc_fail(-EIO, "the record of the object is damaged");
	if (o->f->len > WHOLE)
		r = import_read(im, o->f->off, o->bytes, o->f->len - MCT_BLOCK);
	if (r == 0 && mc_crc32c(o->bytes, size) != o->d.crc)
		r = mc_fail(-MC_ECHECKSUM, "the bytes in the bucket are not those of the object");
	return r;
}

static int import_describe(const struct import *im, struct object *o)
{
	const struct mcp_describe msg = { .record = mcp_bytes(o->rec.body, o->rec.body_len) };
	uint64_t deadline = mc_deadline_ms((uint64_t)im->timeout_ms);
	int r = mcs_call(im->s->session, MCP_DESCRIBE, &msg, &o->d, &o->mem, deadline);

	if (r < 0)
		return r;
	if (o->d.tenant.len > MCP_TENANT_MAX)
		return mc_fail(-MC_EPROTO, "protocol error: a tenant's name is too long");
	memcpy(o->tenant, o->d.tenant.data, o->d.tenant.len);
	o->key = (struct mcs_key){ o->d.key.data, o->d.key.len };
	return 0;
}

/* ---- tenants ------------------------------------------------------------------------------------ */

/* The lock is held: a handle for objects of the tenant. */
static int import_tenant_locked(struct import *im, const char *name, mcs_t **ret)
{
	struct mcs_conf conf = im->s->conf;
	struct tenant *t;
	int r;

	for (t = im->tenants; t; t = t->next) {
		if (strcmp(t->name, name))
			continue;
		*ret = t->store;
		return 0;
	}
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	memcpy(t->name, name, strlen(name));
	conf.tenant = t->name;
	conf.http_addr = NULL;
	conf.segment_size = conf.segment_max = conf.far_size = 0;
	conf.ssd_path = conf.far_path = conf.root_fs_dir = conf.s3_path = NULL;
	r = mcs_open(&conf, &t->store);
	if (r < 0) {
		free(t);
		return mc_fail(r, "tenant \"%s\": %s", name, mcs_error_detail(r));
	}
	t->next = im->tenants;
	im->tenants = t;
	*ret = t->store;
	return 0;
}

static int import_tenant(struct import *im, struct object *o)
{
	const char *name = *o->tenant ? o->tenant : "default";
	const char *own = im->s->conf.tenant && *im->s->conf.tenant ? im->s->conf.tenant : "default";

	o->store = im->s;
	if (!strcmp(name, own))
		return 0;
	MC_LOCKED(&im->lock);
	return import_tenant_locked(im, name, &o->store);
}

/* ---- putting ------------------------------------------------------------------------------------ */

/* 1: the key has this value; 2: it has another one; 0: none. */
static int import_look(const struct import *im, const struct object *o)
{
	struct mcs_info info;
	int r = mcs_stat(o->store, o->key, &info, im->timeout_ms);

	if (r == -MC_ENOOBJECT)
		return 0;
	return r < 0 ? r : info.size == o->d.size && info.crc32c == o->d.crc ? 1 : 2;
}

static int import_put_xattrs(const struct import *im, const struct object *o)
{
	struct mcp_attrs attrs;
	struct mcp_xattr x;
	struct mcp_iter it;
	int r = 0;

	mcp_iter_init(&it, &o->d.attrs, &mcp_desc_attrs);
	if (!mcp_iter_next(&it, &attrs))
		return 0;
	mcp_iter_init(&it, &attrs.xattrs, &mcp_desc_xattr);
	while (r >= 0 && mcp_iter_next(&it, &x)) {
		const struct mcs_xattr xattr = {
			{ x.name.data, x.name.len }, { x.value.data, x.value.len },
		};

		r = mcs_set_attrs(o->store, o->key, o->generation, 0, NULL, NULL, &xattr, NULL, im->timeout_ms);
	}
	return r < 0 ? r : 0;
}

static int import_put(struct import *im, struct object *o)
{
	struct mcs_attrs attrs = mcs_attrs_decode(&o->d.attrs);
	const struct iovec iov = { o->bytes, o->d.size };
	const struct mcs_put_opts opts = {
		.flags = MCS_PUT_EXCL | (o->d.flags & MCP_OBJ_HARD_PIN ? MCS_PUT_HARD_PIN : 0) |
			 (o->d.flags & MCP_OBJ_SOFT_PIN ? MCS_PUT_SOFT_PIN : 0),
		.soft_pin_ms = o->d.soft_pin_ms, .kind = o->d.kind, .data_type = o->d.data_type,
		.group = { o->d.group.data, o->d.group.len }, .attrs = attrs.set ? &attrs : NULL,
	};
	struct mcs_put_item item = { .key = o->key, .iov = &iov, .iovcnt = 1 };
	int64_t timeout_ms = im->timeout_ms;
	int r;

	/* Names of other objects are not stored in S3: the object has its key only. */
	attrs.set &= ~MCS_ATTR_LINKED;
	if (__atomic_load_n(&im->full, __ATOMIC_RELAXED) && timeout_ms > IMPATIENT_MS)
		timeout_ms = IMPATIENT_MS;
	r = mcs_put_batch(o->store, &item, 1, &opts, timeout_ms);
	r = r < 0 ? r : item.result;
	o->generation = item.generation;
	__atomic_store_n(&im->full, r == -MC_ENOSPACE, __ATOMIC_RELAXED);
	return r < 0 ? r : import_put_xattrs(im, o);
}

/* The lock is held.  Without memory the object is not looked at again. */
static void import_remember_locked(struct import *im, const struct object *o)
{
	struct imported *d = malloc(sizeof(*d) + o->key.len);

	if (!d)
		return;
	*d = (struct imported){ im->done, o->store, o->generation, o->key.len };
	memcpy(d->key, o->key.data, o->key.len);
	im->done = d;
}

/* @had: as import_look(). */
static void import_note(struct import *im, const struct object *o, int had, int r)
{
	MC_LOCKED(&im->lock);
	im->sum.done_bytes += o->f->len;
	if (r < 0)
		im->sum.failed++;
	else if (had)
		*(had == 1 ? &im->sum.existed : &im->sum.differ) += 1;
	else
		im->sum.imported++;
	if (r == 0 && !had)
		import_remember_locked(im, o);
	/* The rest would fail as well, and each would wait. */
	if (r == -MC_EUNAVAILABLE || r == -MC_ERPC || r == -MC_ENOTSUP)
		im->error = r;
	if (im->fn)
		im->fn(im->arg, &im->sum, o->tenant, o->key, r);
}

static void import_object(struct import *im, const struct mct_found *f)
{
	struct object o = { .f = f };
	int had = 0, r = import_read_record(im, &o);

	if (r == 0)
		r = import_describe(im, &o);
	if (r == 0)
		r = import_tenant(im, &o);
	if (r == 0)
		r = had = import_look(im, &o);
	if (r == 0)
		r = import_read_rest(im, &o);
	if (r == 0 && !had)
		r = import_put(im, &o);
	/* Another client was faster. */
	if (r == -MC_EEXISTS)
		r = had = import_look(im, &o);
	import_note(im, &o, had, r < 0 ? r : 0);
	mcp_reply_done(&o.mem);
	free(o.bytes);
}

static void *import_main(void *arg)
{
	struct import *im = arg;

	for (;;) {
		const struct mct_found *f = NULL;
		bool big;

		mc_mutex_lock(&im->lock);
		if (im->error == 0 && im->next < im->n)
			f = &im->found[im->next++];
		mc_mutex_unlock(&im->lock);
		if (!f)
			return NULL;
		big = f->len > BIG;
		if (big)
			mc_mutex_lock(&im->big_lock);
		import_object(im, f);
		if (big)
			mc_mutex_unlock(&im->big_lock);
	}
}

/* ---- the import --------------------------------------------------------------------------------- */

static int import_open(struct import *im, const char *place)
{
	const struct mct_conf conf = { .path = place, .size = SIZE };
	uint64_t words[MCT_IDENTITY];
	int r = mct_objects_tier.open(&conf, &im->from.medium);

	if (r == 0)
		r = im->from.medium->ops->identity(im->from.medium, words);
	if (r < 0)
		return r;
	if (!words[0] && !words[1])
		return mc_fail(-ENOENT, "%s has no S3 segment: there is no object \"identity\"", place);
	im->from.size = SIZE;
	/* As client/owner/segment.c keeps them. */
	im->from.secret[0] = words[5];
	im->from.secret[1] = words[6];
	return 0;
}

static int import_run(struct import *im, unsigned threads)
{
	struct mc_thread thread[THREADS_MAX];
	unsigned n = 0;
	int r = 0;

	for (size_t i = 0; i < im->n; i++)
		im->sum.found_bytes += im->found[i].len;
	im->sum.found = im->n;
	for (; n < threads && r == 0; n += r == 0)
		r = mc_thread_start(&thread[n], "mcs-import", import_main, im);
	for (unsigned i = 0; i < n; i++)
		mc_thread_join(thread[i]);
	return n ? im->error : r;
}

/* Are the imported objects still in the pool? */
static void import_look_again(struct import *im)
{
	struct mcs_info info;

	for (const struct imported *d = im->done; d; d = d->next) {
		const struct mcs_key key = { d->key, d->key_len };

		im->sum.evicted += mcs_stat(d->store, key, &info, im->timeout_ms) == -MC_ENOOBJECT;
	}
}

static void import_free(struct import *im)
{
	struct imported *d;
	struct tenant *t;

	while ((d = im->done)) {
		im->done = d->next;
		free(d);
	}
	while ((t = im->tenants)) {
		im->tenants = t->next;
		mcs_close(t->store);
		free(t);
	}
	mct_medium_close(im->from.medium);
	mc_mutex_destroy(&im->big_lock);
	mc_mutex_destroy(&im->lock);
}

int mcs_import(mcs_t *s, const char *place, unsigned threads, int64_t timeout_ms, mcs_import_fn fn, void *arg,
	       struct mcs_import *ret)
{
	auto_free struct mct_found *found = NULL;
	struct import im = { .s = s, .fn = fn, .arg = arg };
	uint64_t unread = 0;
	struct mc_stop stop;
	int r = mcs_check_fork(s);

	if (r < 0)
		return r;
	im.timeout_ms = timeout_ms < 0 ? (int64_t)s->conf.timeout_ms : timeout_ms;
	threads = threads < 1 ? 1 : threads > THREADS_MAX ? THREADS_MAX : threads;
	r = mc_stop_init(&stop);
	if (r < 0)
		return r;
	mc_mutex_init(&im.lock);
	mc_mutex_init(&im.big_lock);
	r = import_open(&im, place);
	if (r == 0)
		r = mcs_disk_scan(&im.from, &stop, &found, &im.n, &unread);
	im.found = found;
	if (r == 0)
		r = import_run(&im, threads);
	if (r == 0)
		import_look_again(&im);
	*ret = im.sum;
	/* The block of a record for each object (data_next of the tier). */
	ret->failed += unread / MCT_BLOCK;
	import_free(&im);
	mc_stop_done(&stop);
	return r;
}
