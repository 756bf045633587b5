/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>
#include "tests/lib/fake_mcs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/crc32c.h"
#include "common/err.h"
#include "common/list.h"
#include "common/sys/lock.h"

struct version {
	unsigned refs;
	struct mcs_info info;
	char *data;
};

struct item {
	struct mc_list link;
	struct version *v;
	size_t len;
	char key[];
};

struct mcs {
	struct mc_mutex lock;
	struct mc_list items;
	uint64_t generation;
	unsigned stream_flags, fail_puts, fail_reads, fail_streams, puts, open, streamed, streams;
	uint64_t stream_bytes;
	int put_err, read_err, stream_err;
	void (*on_put)(void *arg);
	void *on_put_arg;
	void (*on_stream)(void *arg);
	void *on_stream_arg;
};

struct mcs_object {
	mcs_t *s;
	struct version *v;
};

mcs_t *fake_mcs_new(void)
{
	mcs_t *s = calloc(1, sizeof(*s));

	mc_mutex_init(&s->lock);
	mc_list_init(&s->items);
	return s;
}

static void version_unref(struct version *v)
{
	if (!v || --v->refs)
		return;
	free(v->data);
	free(v);
}

static void item_free(struct item *it)
{
	mc_list_remove(&it->link);
	version_unref(it->v);
	free(it);
}

void fake_mcs_free(mcs_t *s)
{
	if (s->open) {
		fprintf(stderr, "%u objects are still open\n", s->open);
		abort();
	}
	while (!mc_list_empty(&s->items))
		item_free(mc_list_first(&s->items, struct item, link));
	mc_mutex_destroy(&s->lock);
	free(s);
}

void fake_mcs_fail_puts(mcs_t *s, unsigned n, int err)
{
	s->fail_puts = n;
	s->put_err = err;
}

void fake_mcs_fail_reads(mcs_t *s, unsigned n, int err)
{
	s->fail_reads = n;
	s->read_err = err;
}

void fake_mcs_on_put(mcs_t *s, void (*fn)(void *arg), void *arg)
{
	s->on_put = fn;
	s->on_put_arg = arg;
}

void fake_mcs_on_stream(mcs_t *s, void (*fn)(void *arg), void *arg)
{
	s->on_stream = fn;
	s->on_stream_arg = arg;
}

unsigned fake_mcs_puts(const mcs_t *s)
{
	return s->puts;
}

unsigned fake_mcs_open_objects(const mcs_t *s)
{
	return s->open;
}

static struct item *find(mcs_t *s, struct mcs_key key)
{
	struct mc_list *pos;

	mc_list_for_each(pos, &s->items) {
		struct item *it = mc_container_of(pos, struct item, link);

		if (it->len == key.len && memcmp(it->key, key.data, key.len) == 0)
			return it;
	}
	return NULL;
}

static void set(mcs_t *s, struct mcs_key key, struct version *v)
{
	struct item *it = find(s, key);

	if (!it) {
		it = malloc(sizeof(*it) + key.len);
		it->len = key.len;
		it->v = NULL;
		memcpy(it->key, key.data, key.len);
		mc_list_push_back(&s->items, &it->link);
	}
	version_unref(it->v);
	it->v = v;
}

int mcs_put(mcs_t *s, struct mcs_key key, const struct iovec *iov, int iovcnt,
	    const struct mcs_put_opts *opts, int64_t timeout_ms)
{
	unsigned flags = opts ? opts->flags : 0;
	struct version *v = calloc(1, sizeof(*v));
	size_t at = 0;

	if (s->on_put)
		s->on_put(s->on_put_arg);
	for (int i = 0; i < iovcnt; i++)
		v->info.size += iov[i].iov_len;
	v->data = malloc(v->info.size + 1);
	for (int i = 0; i < iovcnt; i++) {
		memcpy(v->data + at, iov[i].iov_base, iov[i].iov_len);
		at += iov[i].iov_len;
	}
	v->refs = 1;
	v->info.crc32c = mc_crc32c(v->data, v->info.size);
	v->info.kind = opts ? opts->kind : MCS_OBJECT;
	v->info.replicas = 1;
	MC_LOCKED(&s->lock);
	if (s->fail_puts) {
		s->fail_puts--;
		version_unref(v);
		return s->put_err;
	}
	if (find(s, key) && !(flags & MCS_PUT_UPSERT)) {
		version_unref(v);
		return flags & MCS_PUT_EXCL ? -MCS_EEXISTS : 0;
	}
	v->info.generation = ++s->generation;
	s->puts++;
	set(s, key, v);
	return 0;
}

int mcs_put_batch(mcs_t *s, struct mcs_put_item *items, unsigned n, const struct mcs_put_opts *opts,
		  int64_t timeout_ms)
{
	int ok = 0;

	for (unsigned i = 0; i < n; i++) {
		struct mcs_put_item *p = &items[i];

		p->result = mcs_put(s, p->key, p->iov, p->iovcnt, opts, timeout_ms);
		p->existed = 0;
		p->generation = p->result ? 0 : s->generation;
		ok += !p->result;
	}
	return ok;
}

struct mcs_put_stream {
	mcs_t *s;
	uint64_t room;
	unsigned flags;
	char *data;
	size_t key_len;
	char key[];
};

unsigned fake_mcs_streamed(const mcs_t *s)
{
	return s->streamed;
}

unsigned fake_mcs_open_streams(mcs_t *s)
{
	MC_LOCKED(&s->lock);
	return s->streams;
}

uint64_t fake_mcs_stream_bytes(mcs_t *s)
{
	MC_LOCKED(&s->lock);
	return s->stream_bytes;
}

unsigned fake_mcs_stream_flags(mcs_t *s)
{
	MC_LOCKED(&s->lock);
	return s->stream_flags;
}

void fake_mcs_fail_streams(mcs_t *s, unsigned n, int err)
{
	MC_LOCKED(&s->lock);
	s->fail_streams = n;
	s->stream_err = err;
}

int mcs_stream_open(mcs_t *s, struct mcs_key key, uint64_t room, const struct mcs_put_opts *opts,
		    mcs_stream_t **ret, int64_t timeout_ms)
{
	mcs_stream_t *st = calloc(1, sizeof(*st) + key.len);

	st->s = s;
	st->room = room;
	st->flags = opts->flags;
	st->data = malloc(room);
	memset(st->data, 0xee, room);
	st->key_len = key.len;
	memcpy(st->key, key.data, key.len);
	MC_LOCKED(&s->lock);
	s->streams++;
	s->stream_flags = opts->flags;
	*ret = st;
	return 0;
}

int mcs_stream_write(mcs_stream_t *st, uint64_t offset, const struct iovec *iov, int iovcnt,
		     int64_t timeout_ms)
{
	if (st->s->on_stream)
		st->s->on_stream(st->s->on_stream_arg);
	MC_LOCKED(&st->s->lock);
	if (st->s->fail_streams) {
		st->s->fail_streams--;
		return st->s->stream_err;
	}
	for (int i = 0; i < iovcnt; i++) {
		if (iov[i].iov_len > st->room - offset)
			return -EINVAL;
		memcpy(st->data + offset, iov[i].iov_base, iov[i].iov_len);
		offset += iov[i].iov_len;
		st->s->stream_bytes += iov[i].iov_len;
	}
	return 0;
}

void mcs_stream_drop(mcs_stream_t *st, int64_t timeout_ms)
{
	if (!st)
		return;
	mc_mutex_lock(&st->s->lock);
	st->s->streams--;
	mc_mutex_unlock(&st->s->lock);
	free(st->data);
	free(st);
}

uint64_t mcs_stream_generation(const mcs_stream_t *st)
{
	MC_LOCKED(&st->s->lock);
	return st->s->generation + 1;
}

void mcs_stream_set_attrs(mcs_stream_t *st, const struct mcs_attrs *attrs)
{
}

int mcs_stream_commit(mcs_stream_t *st, uint64_t size, int64_t timeout_ms)
{
	struct mcs_put_opts opts = { .flags = st->flags };
	struct iovec iov = { st->data, size };
	int r = mcs_put(st->s, (struct mcs_key){ st->key, st->key_len }, &iov, 1, &opts, timeout_ms);

	st->s->streamed += r == 0;
	mcs_stream_drop(st, timeout_ms);
	return r;
}

int mcs_stat(mcs_t *s, struct mcs_key key, struct mcs_info *ret, int64_t timeout_ms)
{
	struct item *it;

	MC_LOCKED(&s->lock);
	it = find(s, key);
	if (!it)
		return -MCS_ENOOBJECT;
	*ret = it->v->info;
	return 0;
}

int64_t mcs_get_alloc(mcs_t *s, struct mcs_key key, void **ret_data, int64_t timeout_ms)
{
	struct item *it;

	MC_LOCKED(&s->lock);
	it = find(s, key);
	if (!it)
		return -MCS_ENOOBJECT;
	*ret_data = malloc(it->v->info.size + 1);
	memcpy(*ret_data, it->v->data, it->v->info.size);
	return (int64_t)it->v->info.size;
}

int mcs_object_open(mcs_t *s, struct mcs_key key, mcs_object_t **ret, int64_t timeout_ms)
{
	mcs_object_t *o;
	struct item *it;

	MC_LOCKED(&s->lock);
	it = find(s, key);
	if (!it)
		return -MCS_ENOOBJECT;
	o = calloc(1, sizeof(*o));
	o->s = s;
	o->v = it->v;
	o->v->refs++;
	s->open++;
	*ret = o;
	return 0;
}

int mcs_stat_open(mcs_t *s, const struct mcs_key *keys, unsigned n, struct mcs_info *infos,
		  int *results, mcs_object_t **ret, int64_t timeout_ms)
{
	*ret = NULL;
	for (unsigned i = 0; i < n; i++)
		results[i] = mcs_stat(s, keys[i], &infos[i], timeout_ms);
	if (results[0] == 0)
		results[0] = mcs_object_open(s, keys[0], ret, timeout_ms);
	return results[0] == 0;
}

const struct mcs_info *mcs_object_info(const mcs_object_t *o)
{
	return &o->v->info;
}

/* Inline, so that tests/perf/cost_mcfs.c counts the mount's instructions and not a choice of the compiler here. */
static inline __attribute__((always_inline)) int64_t object_read(mcs_object_t *o, uint64_t offset,
								 const struct iovec *iov, int iovcnt)
{
	int64_t done = 0;

	MC_LOCKED(&o->s->lock);
	if (o->s->fail_reads) {
		o->s->fail_reads--;
		return o->s->read_err;
	}
	for (int i = 0; i < iovcnt && offset < o->v->info.size; i++) {
		size_t n = iov[i].iov_len;

		if (n > o->v->info.size - offset)
			n = (size_t)(o->v->info.size - offset);
		memcpy(iov[i].iov_base, o->v->data + offset, n);
		offset += n;
		done += (int64_t)n;
	}
	return done;
}

int64_t mcs_object_read(mcs_object_t *o, uint64_t offset, const struct iovec *iov, int iovcnt,
			int64_t timeout_ms)
{
	return object_read(o, offset, iov, iovcnt);
}

int mcs_object_read_start(mcs_object_t *o, uint64_t offset, void *buf, size_t len,
			  int64_t timeout_ms, mcs_read_done_fn done, void *arg)
{
	struct iovec iov = { buf, len };

	done(arg, object_read(o, offset, &iov, 1));
	return 0;
}

int mcs_object_map(mcs_object_t *o, const void **ret_data, int64_t timeout_ms)
{
	return -MCS_ENOTSUP;
}

int mcs_object_offset(mcs_object_t *o, uint64_t *ret_offset)
{
	return -MCS_ENOTSUP;
}

int mcs_object_verify(mcs_object_t *o)
{
	return 0;
}

void mcs_object_close(mcs_object_t *o)
{
	mcs_t *s;

	if (!o)
		return;
	s = o->s;
	mc_mutex_lock(&s->lock);
	version_unref(o->v);
	s->open--;
	mc_mutex_unlock(&s->lock);
	free(o);
}

int mcs_remove(mcs_t *s, struct mcs_key key, unsigned flags, int64_t timeout_ms)
{
	struct item *it;

	MC_LOCKED(&s->lock);
	it = find(s, key);
	if (!it)
		return -MCS_ENOOBJECT;
	item_free(it);
	return 0;
}

int mcs_rename(mcs_t *s, struct mcs_key from, struct mcs_key to, unsigned flags, int64_t timeout_ms)
{
	struct version *v, *old;
	struct item *it;

	MC_LOCKED(&s->lock);
	it = find(s, from);
	if (!it)
		return -MCS_ENOOBJECT;
	if ((flags & MCS_RENAME_NOREPLACE) && find(s, to))
		return -MCS_EEXISTS;
	old = it->v;
	it->v = NULL;
	item_free(it);
	/* Readers of the old name keep their version, so the new one is a copy. */
	v = calloc(1, sizeof(*v));
	*v = *old;
	v->data = malloc(old->info.size + 1);
	memcpy(v->data, old->data, old->info.size);
	v->refs = 1;
	v->info.generation = ++s->generation;
	version_unref(old);
	set(s, to, v);
	return 0;
}

/* Attributes are not kept. */
int mcs_set_attrs(mcs_t *s, struct mcs_key key, uint64_t generation, unsigned flags, const struct mcs_attrs *seen,
		  const struct mcs_attrs *attrs, const struct mcs_xattr *xattr, struct mcs_info *ret,
		  int64_t timeout_ms)
{
	return -MCS_ENOTSUP;
}

int mcs_get_xattrs(mcs_t *s, struct mcs_key key, struct mcs_xattr **ret, unsigned *ret_n, struct mcs_info *ret_info,
		   int64_t timeout_ms)
{
	return -MCS_ENOTSUP;
}

int mcs_errno(int err)
{
	return mc_err_to_errno(err);
}

const char *mcs_strerror(int err)
{
	return mc_strerror(err);
}

const char *mcs_error_detail(int err)
{
	return mc_err_detail(err);
}

/* One master. */
unsigned mcs_takeover_ms(mcs_t *s)
{
	return 0;
}
