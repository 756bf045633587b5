/* SPDX-License-Identifier: Apache-2.0
 * segment.c - segments of other engines: their ids, and views of their registered memory.
 *
 * A view never changes: fetching the descriptor again makes a new view.  A batch keeps the old view,
 * and with it the peer, for the requests that use it, until the batch is freed. */
#include <config.h>

#include "engine/te/te_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/process/fork.h"
#include "common/sys/clock.h"

#define SEGMENTS_MAX (1u << 20)
/* A segment counts as silent if a request to it fails after at least this time. */
#define SILENT_MS (MCE_TE_ASK_MS / 2)

/* ---- views ------------------------------------------------------------------------------------- */

static struct mce_te_view *view_alloc(size_t n)
{
	struct mce_te_view *v = calloc(1, sizeof(*v) + n * sizeof(v->buf[0]));

	if (v)
		v->refs = 1;
	return v;
}

void mce_te_view_unref(struct mce_te_view *v)
{
	if (!v || __atomic_sub_fetch(&v->refs, 1, __ATOMIC_ACQ_REL))
		return;
	mce_peer_put(v->peer);
	free(v);
}

static struct mce_te_view *view_ref(struct mce_te_view *v)
{
	__atomic_add_fetch(&v->refs, 1, __ATOMIC_RELAXED);
	return v;
}

static int buf_by_addr(const void *a, const void *b)
{
	const struct mce_te_buf *x = a, *y = b;

	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

const struct mce_te_buf *mce_te_view_find(const struct mce_te_view *v, uint64_t addr, uint64_t len)
{
	unsigned lo = 0, hi = v->n;

	while (lo < hi) {
		unsigned mid = lo + (hi - lo) / 2;

		if (v->buf[mid].addr <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == 0 || mce_range_check(v->buf[lo - 1].addr, v->buf[lo - 1].len, addr, len))
		return NULL;
	return &v->buf[lo - 1];
}

/* ---- fetching ---------------------------------------------------------------------------------- */

/* The longer limit for connects (MC_HANDSHAKE_CONNECT_TIMEOUT) applies to handshakes only. */
static uint64_t server_deadline(uint64_t deadline)
{
	uint64_t latest = mc_deadline_ms(MCE_TE_ASK_MS);

	return deadline < latest ? deadline : latest;
}

int mce_te_rpc_address(struct mce_te *te, const char *name, uint64_t deadline, char host[MC_ADDR_MAX],
		       int *ret_port)
{
	struct mce_rpc_meta rpc;
	int r;

	if (!te->meta)
		return mc_addr_split(name, host, MC_ADDR_MAX, te->env.handshake_port, ret_port);
	r = mce_rpc_meta_get(te->meta, name, &rpc, server_deadline(deadline));
	if (r < 0)
		return r;
	if (strlen(rpc.host) >= MC_ADDR_MAX)
		return mc_fail(-EINVAL, "the address of segment %s is too long", name);
	strcpy(host, rpc.host);
	*ret_port = rpc.port;
	return 0;
}

/* Fetch the descriptor from the peer, which receives ours in the request. */
static int descriptor_from_peer(struct mce_te *te, const char *name, uint64_t deadline, char **ret)
{
	auto_free char *own = NULL;
	char host[MC_ADDR_MAX];
	int port, r;

	r = mce_te_rpc_address(te, name, deadline, host, &port);
	if (r == 0)
		r = mce_te_mem_describe(te, &own);
	if (r == 0)
		r = mce_handshake_call(host, port, MCE_HANDSHAKE_METADATA, own, deadline, ret);
	return r;
}

static int descriptor_from_server(struct mce_te *te, const char *name, uint64_t deadline, char **ret)
{
	char key[MCD_KEY_MAX];
	int r;

	r = mce_key_segment(name, key);
	return r < 0 ? r : mcd_get(te->meta, key, ret, server_deadline(deadline));
}

/* Upstream before 0.3.13 does not publish the host of its data port; it is the host of the handshake service. */
static int view_upstream_peer(struct mce_te *te, const char *name, const struct mce_segdesc *d,
			      uint64_t deadline, struct mce_peer **ret)
{
	unsigned version = te->env.proto_v1 ? 1 : d->tcp_proto_version;
	const char *at = d->tcp_data_host;
	char host[MC_ADDR_MAX];
	int port, r;

	if (d->tcp_data_port == 0)
		return mc_fail(-MC_ENOTSUP, "segment %s has no TCP data port", name);
	if (!*at) {
		r = mce_te_rpc_address(te, name, deadline, host, &port);
		if (r < 0)
			return r;
		at = host;
	}
	return mce_peer_get_upstream(te->engine, at, d->tcp_data_port, version, ret);
}

/* Join the pieces of a buffer that was published in pieces, so that a request may cross their borders. */
static void view_join(struct mce_te_view *v)
{
	unsigned n = 0;

	for (unsigned i = 0; i < v->n; i++) {
		struct mce_te_buf *last = n ? &v->buf[n - 1] : NULL, *b = &v->buf[i];

		if (last && b->rkey && last->rkey == b->rkey && b->addr - last->addr == last->len &&
		    last->len + b->len >= last->len)
			last->len += b->len;
		else
			v->buf[n++] = *b;
	}
	v->n = n;
}

/* A node of upstream's whose memory is reached over RDMA; its handshake service makes the connections. */
static int view_rdma_peer(struct mce_te *te, const char *name, const struct mce_segdesc *d, uint64_t deadline,
			  struct mce_te_view *v)
{
	char host[MC_ADDR_MAX];
	int port, r;

	r = mce_te_rpc_address(te, *d->rdma_server_name ? d->rdma_server_name : name, deadline, host, &port);
	return r < 0 ? r : mce_te_rdma_peer(te, d, host, port, v);
}

static int view_from(struct mce_te *te, const char *name, const struct mce_segdesc *d,
		     uint64_t deadline, struct mce_te_view **ret)
{
	const struct mce_te_buf *first;
	struct mce_te_view *v;
	int r;

	v = view_alloc(d->nbuffers);
	if (!v)
		return -ENOMEM;
	if (*d->endpoint)
		r = mce_peer_get(te->engine, d->endpoint, &v->peer);
	else if (mce_segdesc_speaks(d, "rdma") && d->ndevices)
		r = view_rdma_peer(te, name, d, deadline, v);
	else
		r = view_upstream_peer(te, name, d, deadline, &v->peer);
	if (r < 0) {
		free(v);
		return r;
	}
	for (size_t i = 0; i < d->nbuffers; i++) {
		v->buf[i].addr = d->buffers[i].addr;
		v->buf[i].len = d->buffers[i].length;
		v->buf[i].rkey = v->rdma ? d->buffers[i].addr : d->buffers[i].rkey;
	}
	v->n = (unsigned)d->nbuffers;
	qsort(v->buf, v->n, sizeof(v->buf[0]), buf_by_addr);
	view_join(v);
	first = mce_te_view_find(v, d->first, 1);
	if (first)
		v->first = *first;
	*ret = v;
	return 0;
}

static int segment_fetch(struct mce_te *te, const char *name, uint64_t deadline, struct mce_te_view **ret)
{
	struct mce_segdesc *d;
	auto_free char *text = NULL;
	int r;

	r = te->meta ? descriptor_from_server(te, name, deadline, &text) :
		       descriptor_from_peer(te, name, deadline, &text);
	if (r == 0)
		r = mce_segdesc_decode(text, strlen(text), &d);
	if (r < 0)
		return r;
	r = view_from(te, name, d, deadline, ret);
	mce_segdesc_free(d);
	return r;
}

/* ---- own segment ------------------------------------------------------------------------------- */

void mce_te_own_view_drop(struct mce_te *te)
{
	struct mce_te_view *old;

	mc_rwlock_wrlock(&te->seg_lock);
	old = te->own;
	te->own = NULL;
	mc_rwlock_unlock(&te->seg_lock);
	mce_te_view_unref(old);
}

static int own_view_make(struct mce_te *te, struct mce_te_view **ret)
{
	struct mce_te_view *v;
	int r;

	MC_LOCKED(&te->mem_lock);
	v = view_alloc(te->nmem);
	if (!v)
		return -ENOMEM;
	r = mce_peer_get(te->engine, mce_engine_endpoint(te->engine), &v->peer);
	if (r < 0) {
		free(v);
		return r;
	}
	v->n = te->nmem;
	for (unsigned i = 0; i < te->nmem; i++) {
		v->buf[i].addr = te->mem[i].addr;
		v->buf[i].len = te->mem[i].len;
		v->buf[i].rkey = mce_mr_rkey(te->mem[i].mr);
	}
	if (v->n)
		v->first = v->buf[0];
	qsort(v->buf, v->n, sizeof(v->buf[0]), buf_by_addr);
	/* Still with mem_lock, so that a later change of the memory finds and drops this view. */
	mc_rwlock_wrlock(&te->seg_lock);
	if (te->own)
		mce_te_view_unref(te->own);
	te->own = view_ref(v);
	mc_rwlock_unlock(&te->seg_lock);
	*ret = v;
	return 0;
}

static int own_view_get(struct mce_te *te, struct mce_te_view **ret)
{
	struct mce_te_view *v = NULL;

	mc_rwlock_rdlock(&te->seg_lock);
	if (te->own)
		v = view_ref(te->own);
	mc_rwlock_unlock(&te->seg_lock);
	if (!v)
		return own_view_make(te, ret);
	*ret = v;
	return 0;
}

/* ---- the table --------------------------------------------------------------------------------- */

static struct mce_te_segment *segment_find_locked(struct mce_te *te, const char *name)
{
	for (unsigned i = 0; i < te->nsegments; i++)
		if (!strcmp(te->segment[i]->name, name))
			return te->segment[i];
	return NULL;
}

static struct mce_te_segment *segment_by_id(struct mce_te *te, segment_id_t id)
{
	struct mce_te_segment *s = NULL;

	mc_rwlock_rdlock(&te->seg_lock);
	if (id > 0 && (unsigned)id <= te->nsegments)
		s = te->segment[id - 1];
	mc_rwlock_unlock(&te->seg_lock);
	return s;
}

static void segment_free(struct mce_te_segment *s)
{
	if (!s)
		return;
	mce_te_view_unref(s->view);
	mc_mutex_destroy(&s->reload_lock);
	free(s->name);
	free(s);
}

static int segment_add_locked(struct mce_te *te, struct mce_te_segment *s)
{
	unsigned cap = te->segments_cap ? te->segments_cap * 2 : 16;
	struct mce_te_segment **more;

	if (te->nsegments == SEGMENTS_MAX)
		return mc_fail(-MC_ELIMIT, "too many segments are open");
	if (te->nsegments == te->segments_cap) {
		more = realloc(te->segment, cap * sizeof(*more));
		if (!more)
			return -ENOMEM;
		te->segment = more;
		te->segments_cap = cap;
	}
	te->segment[te->nsegments++] = s;
	s->id = (segment_id_t)te->nsegments;
	return 0;
}

/* Ids are never freed, so a segment gets one only after its descriptor was fetched. */
static int segment_add(struct mce_te *te, const char *name, struct mce_te_view *v, segment_id_t *ret)
{
	struct mce_te_segment *s, *other;
	int r = 0;

	s = calloc(1, sizeof(*s));
	if (!s || !(s->name = strdup(name))) {
		free(s);
		mce_te_view_unref(v);
		return -ENOMEM;
	}
	mc_mutex_init(&s->reload_lock);
	s->view = v;
	mc_rwlock_wrlock(&te->seg_lock);
	other = segment_find_locked(te, name);
	if (!other)
		r = segment_add_locked(te, s);
	if (!other && r == 0)
		*ret = s->id;
	else if (other)
		*ret = other->id;
	mc_rwlock_unlock(&te->seg_lock);
	if (other || r < 0)
		segment_free(s);
	return r;
}

/* segment_fetch(), with the segment's reload_lock; @patient: also if the segment was silent a moment ago. */
static int segment_fetch_locked(struct mce_te *te, struct mce_te_segment *s, uint64_t deadline, bool patient,
				struct mce_te_view **ret)
{
	uint64_t began = mc_now_ns(), now;
	int r;

	if (!patient && began < s->silent_until)
		return mc_fail(-ETIMEDOUT, "segment %s did not answer the last request", s->name);
	r = segment_fetch(te, s->name, deadline, ret);
	now = mc_now_ns();
	if (r == 0)
		s->silent_until = 0;
	else if (now - began >= SILENT_MS * MC_NS_PER_MS)
		s->silent_until = now + MCE_TE_ASK_MS * MC_NS_PER_MS;
	return r;
}

/* With the segment's reload_lock. */
static int segment_reload_locked(struct mce_te *te, struct mce_te_segment *s, const struct mce_te_view *known,
				 uint64_t deadline, bool patient, struct mce_te_view **ret)
{
	struct mce_te_view *v, *old = NULL;
	bool replaced;
	int r;

	mc_rwlock_rdlock(&te->seg_lock);
	replaced = known && s->view != known;
	if (replaced)
		*ret = view_ref(s->view);
	mc_rwlock_unlock(&te->seg_lock);
	if (replaced)
		return 0;
	r = segment_fetch_locked(te, s, deadline, patient, &v);
	if (r < 0)
		return r;
	mc_rwlock_wrlock(&te->seg_lock);
	old = s->view;
	s->view = view_ref(v);
	mc_rwlock_unlock(&te->seg_lock);
	mce_te_view_unref(old);
	*ret = v;
	return 0;
}

static int segment_refetch(struct mce_te *te, segment_id_t id, const struct mce_te_view *known, uint64_t deadline,
			   bool patient, struct mce_te_view **ret)
{
	uint64_t latest = mce_te_ask_by(te);
	struct mce_te_segment *s;
	int r;

	if (id == LOCAL_SEGMENT)
		return own_view_get(te, ret);
	s = segment_by_id(te, id);
	if (!s)
		return mc_fail(-ENOENT, "no segment has the id %d", id);
	if (deadline > latest)
		deadline = latest;
	r = mc_mutex_lock_until(&s->reload_lock, deadline);
	if (r < 0)
		return mc_fail(r, "another thread is still fetching the descriptor of segment %s", s->name);
	r = segment_reload_locked(te, s, known, deadline, patient, ret);
	mc_mutex_unlock(&s->reload_lock);
	return r;
}

int mce_te_view_get(struct mce_te *te, segment_id_t id, uint64_t deadline, struct mce_te_view **ret)
{
	struct mce_te_segment *s;

	if (id == LOCAL_SEGMENT)
		return own_view_get(te, ret);
	if (te->env.no_metacache)
		return segment_refetch(te, id, NULL, deadline, true, ret);
	s = segment_by_id(te, id);
	if (!s)
		return mc_fail(-ENOENT, "no segment has the id %d", id);
	mc_rwlock_rdlock(&te->seg_lock);
	*ret = view_ref(s->view);
	mc_rwlock_unlock(&te->seg_lock);
	return 0;
}

int mce_te_view_refetch_by(struct mce_te *te, segment_id_t id, const struct mce_te_view *known,
			   uint64_t deadline, struct mce_te_view **ret)
{
	return segment_refetch(te, id, known, deadline, false, ret);
}

int mce_te_view_refetch(struct mce_te *te, segment_id_t id, const struct mce_te_view *known,
			struct mce_te_view **ret)
{
	return segment_refetch(te, id, known, MC_NEVER, true, ret);
}

int mce_te_segment_name(struct mce_te *te, segment_id_t id, char **ret)
{
	struct mce_te_segment *s;
	char *name;

	s = id == LOCAL_SEGMENT ? NULL : segment_by_id(te, id);
	if (id != LOCAL_SEGMENT && !s)
		return mc_fail(-ENOENT, "no segment has the id %d", id);
	name = strdup(s ? s->name : te->name);
	if (!name)
		return -ENOMEM;
	*ret = name;
	return 0;
}

const char *mce_te_name_of_locked(struct mce_te *te, const struct mce_peer *peer)
{
	if (te->own && te->own->peer == peer)
		return te->name;
	for (unsigned i = 0; i < te->nsegments; i++)
		if (te->segment[i]->view->peer == peer)
			return te->segment[i]->name;
	return NULL;
}

void mce_te_segments_done(struct mce_te *te)
{
	for (unsigned i = 0; i < te->nsegments; i++)
		segment_free(te->segment[i]);
	free(te->segment);
	mce_te_view_unref(te->own);
	te->own = NULL;
	mc_rwlock_destroy(&te->seg_lock);
}

/* ---- public ------------------------------------------------------------------------------------ */

int mce_te_open_segment(struct mce_te *te, const char *name, unsigned flags, segment_id_t *ret)
{
	struct mce_te_segment *s;
	struct mce_te_view *v;
	int r;

	r = mc_fork_check(te->fork_depth);
	if (r < 0)
		return r;
	if (!name || !*name)
		return mc_fail(-EINVAL, "a segment name is missing");
	if (!strcmp(name, te->name)) {
		*ret = LOCAL_SEGMENT;
		return 0;
	}
	mc_rwlock_rdlock(&te->seg_lock);
	s = segment_find_locked(te, name);
	mc_rwlock_unlock(&te->seg_lock);
	if (!s) {
		r = segment_fetch(te, name, mce_te_ask_by(te), &v);
		return r < 0 ? r : segment_add(te, name, v, ret);
	}
	if ((flags & MCE_TE_FRESH) || te->env.no_metacache) {
		r = mce_te_view_refetch(te, s->id, NULL, &v);
		if (r < 0)
			return r;
		mce_te_view_unref(v);
	}
	*ret = s->id;
	return 0;
}

int mce_te_first_buffer(struct mce_te *te, segment_id_t segment, uint64_t *ret_addr, uint64_t *ret_len)
{
	struct mce_te_view *v;
	int r;

	r = mc_fork_check(te->fork_depth);
	if (r < 0)
		return r;
	r = mce_te_view_get(te, segment, MC_NEVER, &v);
	/* The segment may have registered its first buffer after the view was made. */
	if (r == 0 && v->n == 0 && segment != LOCAL_SEGMENT) {
		struct mce_te_view *old = v;

		r = mce_te_view_refetch(te, segment, old, &v);
		mce_te_view_unref(old);
	}
	if (r < 0)
		return r;
	if (v->n) {
		*ret_addr = v->first.addr;
		*ret_len = v->first.len;
	}
	r = v->n ? 0 : mc_fail(-ENOENT, "segment %d has no registered memory", segment);
	mce_te_view_unref(v);
	return r;
}

int mce_te_sync(struct mce_te *te)
{
	struct mce_te_view *v;
	unsigned n;
	int r, err = 0;

	r = mc_fork_check(te->fork_depth);
	if (r < 0)
		return r;
	mc_rwlock_rdlock(&te->seg_lock);
	n = te->nsegments;
	mc_rwlock_unlock(&te->seg_lock);
	for (unsigned i = 1; i <= n; i++) {
		if (mce_te_stopping(te))
			return mc_fail(-ECANCELED, "the engine is being closed");
		r = mce_te_view_refetch(te, (segment_id_t)i, NULL, &v);
		if (r == 0)
			mce_te_view_unref(v);
		else if (err == 0)
			err = r;
	}
	return err;
}
