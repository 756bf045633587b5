/* SPDX-License-Identifier: Apache-2.0
 * daemon_data.c - puts and gets through the daemon.
 *
 * For memory that the daemon sees, requests only name ranges, and the bytes move once.  Other values are copied
 * to the bounce buffer for a put, and from the mapped object, checked, for a get. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/daemon/daemon_i.h"
#include "client/layout.h"
#include "common/cleanup.h"
#include "common/crc32c.h"
#include "common/fault.h"
#include "common/gpu/gpu.h"

#define WINDOW 256u		/* items in work at a time */
#define ROUNDS_MAX 16		/* attempts to read an object that changes */

/* The ranges of all items of a window. */
struct ranges {
	struct mcfs_ring_range *r;
	unsigned n, cap;
};

static int ranges_room(struct ranges *l, unsigned more)
{
	struct mcfs_ring_range *r;

	if (l->n + more <= l->cap)
		return 0;
	r = realloc(l->r, 2 * (size_t)(l->n + more) * sizeof(*r));
	if (!r)
		return -ENOMEM;
	l->r = r;
	l->cap = 2 * (l->n + more);
	return 0;
}

/* Add the ranges of an iov to the list if the daemon sees all of it: 1; 0: it does not; negative. */
static int ranges_add(struct mcs_daemon_conn *c, const struct iovec *iov, int iovcnt, struct ranges *l,
		      unsigned *ret_n)
{
	unsigned was = l->n;
	int r;

	if (iovcnt > (int)MCFS_RING_RANGES_MAX)
		return 0;
	r = ranges_room(l, (unsigned)iovcnt);
	if (r < 0)
		return r;
	for (int i = 0; i < iovcnt; i++) {
		if (!iov[i].iov_len)
			continue;
		if (!mcs_daemon_mem_find(c, iov[i].iov_base, iov[i].iov_len, &l->r[l->n])) {
			l->n = was;
			return 0;
		}
		l->n++;
	}
	*ret_n = l->n - was;
	return 1;
}

/* The list may have moved while it grew, so set the pointers of all requests now. */
static void ranges_bind(struct mcs_daemon_req *q, const unsigned *first, unsigned n, const struct ranges *l)
{
	for (unsigned i = 0; i < n; i++)
		q[i].range = l->r + first[i];
}

/* ---- put ---- */

struct put {
	struct mcs_daemon_conn *c;
	struct mcs_put_item **item;	/* in the window */
	struct mcs_daemon_req *q;
	unsigned *first;
	struct mcs_daemon_bounce *bounce;
	unsigned n;
	struct ranges l;
};

/* The memory may be a GPU's. */
static int put_gather(unsigned char *to, const struct iovec *iov, int iovcnt)
{
	int r = 0;

	for (int i = 0; i < iovcnt && r == 0; i++) {
		r = mc_gpu_memcpy(to, iov[i].iov_base, iov[i].iov_len);
		to += iov[i].iov_len;
	}
	return r;
}

/* Add one item to the window: 1; 0: run the window first, to release memory; negative: the item failed. */
static int put_add(struct put *p, struct mcs_put_item *item)
{
	struct mcs_daemon_req *q = &p->q[p->n];
	int64_t len = mcs_iov_len(item->iov, item->iovcnt);
	unsigned named = 0;
	int r;

	if (len < 0)
		return (int)len;
	r = mcs_key_check(item->key);
	if (r < 0)
		return r;
	if (item->group.len > MCP_GROUP_MAX)
		return mc_fail(-MC_EPARAM, "a group's name of %zu bytes", item->group.len);
	*q = (struct mcs_daemon_req){
		.op = MCFS_RING_PUT, .key = item->key, .group = item->group,
	};
	p->first[p->n] = p->l.n;
	p->bounce[p->n] = (struct mcs_daemon_bounce){ 0 };
	r = ranges_add(p->c, item->iov, item->iovcnt, &p->l, &named);
	if (r == 0) {
		r = ranges_room(&p->l, 1);
		if (r == 0)
			r = mcs_daemon_bounce_take(p->c, (uint64_t)len, !p->n, &p->bounce[p->n]);
		if (r == -ENOBUFS && p->n)
			return 0;
		if (r < 0)
			return r;
		r = put_gather(p->bounce[p->n].p, item->iov, item->iovcnt);
		if (r < 0) {
			mcs_daemon_bounce_give(p->c, &p->bounce[p->n], 0);
			return r;
		}
		p->l.r[p->l.n++] = p->bounce[p->n].range;
		named = 1;
	}
	if (r < 0)
		return r;
	q->nranges = named;
	p->item[p->n++] = item;
	return 1;
}

/* Run the window; items without an answer because the connection was lost keep -MC_ERPC. */
static int put_run(struct put *p, const struct mcs_put_opts *opts, uint64_t deadline)
{
	int r;

	ranges_bind(p->q, p->first, p->n, &p->l);
	r = mcs_daemon_run(p->c, p->q, p->n, opts, deadline);
	for (unsigned i = 0; i < p->n; i++) {
		int64_t one = p->q[i].c.result;

		p->item[i]->result = one < 0 ? one == -MC_ERPC && r < 0 ? r : (int)one : 0;
		p->item[i]->existed = one == 0;
		mcs_daemon_bounce_give(p->c, &p->bounce[i], r);
	}
	p->n = p->l.n = 0;
	return r;
}

static int put_all(struct put *p, struct mcs_put_item *items, unsigned n, const struct mcs_dedup *dedup,
		   const struct mcs_put_opts *opts, uint64_t deadline)
{
	int r = 0;

	for (unsigned i = 0; i < n && r == 0;) {
		int took = 0;

		if (!mcs_dedup_skip(dedup, &items[i])) {
			took = p->n < WINDOW ? put_add(p, &items[i]) : 0;
			if (took == 0) {
				r = put_run(p, opts, deadline);
				continue;
			}
			items[i].result = took < 0 ? took : -MC_ERPC;
			items[i].existed = 0;
		}
		i++;
	}
	if (p->n) {
		int last = put_run(p, opts, deadline);

		r = r < 0 ? r : last;
	}
	return r;
}

static int put_once(struct mcs_daemon *d, struct mcs_put_item *items, unsigned n,
		    const struct mcs_dedup *dedup, const struct mcs_put_opts *opts, uint64_t deadline)
{
	unsigned k = n < WINDOW ? n : WINDOW;
	struct put p = {
		.item = calloc(k, sizeof(struct mcs_put_item *)), .q = calloc(k, sizeof(*p.q)),
		.first = calloc(k, sizeof(*p.first)), .bounce = calloc(k, sizeof(*p.bounce)),
	};
	int r;

	for (unsigned i = 0; i < n; i++) {
		items[i].result = -MC_ERPC;
		items[i].existed = 0;
	}
	r = mcs_daemon_conn_get(d, deadline, &p.c);
	if (r == 0 && (!p.item || !p.q || !p.first || !p.bounce))
		r = -ENOMEM;
	if (r == 0)
		r = put_all(&p, items, n, dedup, opts, deadline);
	mcs_daemon_conn_put(p.c);
	free(p.item);
	free(p.q);
	free(p.first);
	free(p.bounce);
	free(p.l.r);
	return r;
}

int mcs_daemon_put_batch(struct mcs_backend *b, struct mcs_put_item *items, unsigned n,
			 const struct mcs_dedup *dedup, const struct mcs_put_opts *opts, uint64_t deadline)
{
	struct mcs_daemon *d = mcs_daemon_of(b);
	int r = 0;

	if (opts->attrs)
		return mc_fail(-MC_ENOTSUP, "a put through a daemon has no attributes");
	if (n)
		r = put_once(d, items, n, dedup, opts, deadline);
	/* A repeated put succeeds if the first attempt stored the value, except with EXCL. */
	if (r == -MC_ERPC && !(opts->flags & MCS_PUT_EXCL))
		r = put_once(d, items, n, dedup, opts, deadline);
	for (unsigned i = 0; i < n; i++)
		if (r < 0 && items[i].result == -MC_ERPC)
			items[i].result = r;
	mcs_dedup_settle(dedup, items);
	return r;
}

/* ---- get ---- */

struct get {
	struct mcs_daemon *d;
	struct mcs_daemon_conn *c;
	struct mcs_get_item *items;
	mcs_alloc_fn alloc;
	void *arg;
	uint64_t deadline;
};

/* The memory for the @size bytes of item @i: its iov, or memory from the provider. */
static int get_room(struct get *g, unsigned i, uint64_t size, struct iovec *one,
		    const struct iovec **ret, int *ret_n)
{
	struct mcs_get_item *item = &g->items[i];
	int64_t len;

	if (g->alloc) {
		*one = (struct iovec){ g->alloc(g->arg, i, size), size };
		*ret = one;
		*ret_n = 1;
		return one->iov_base ? 0 : -ENOMEM;
	}
	*ret = item->iov;
	*ret_n = item->iovcnt;
	len = mcs_iov_len(item->iov, item->iovcnt);
	if (len < 0)
		return (int)len;
	return (uint64_t)len < size ? -ENOBUFS : 0;
}

/* Copy @size bytes to an iov, which may be a GPU's; @crc: their CRC.  That of bytes for a GPU is computed after the
 * copy, because a range that is reused does not return to its old contents. */
static int get_scatter(const struct iovec *iov, int n, const unsigned char *from, uint64_t size, uint32_t *crc)
{
	int r = 0;

	for (int i = 0; i < n && size && r == 0; i++) {
		size_t len = iov[i].iov_len < size ? iov[i].iov_len : size;
		bool gpu = mc_gpu_of(iov[i].iov_base) >= 0;

		if (gpu || !crc)
			r = mc_gpu_memcpy(iov[i].iov_base, from, len);
		if (gpu && crc)
			*crc = mc_crc32c_add(*crc, from, len);
		else if (crc)
			*crc = mc_crc32c_copy(*crc, iov[i].iov_base, from, len);
		from += len;
		size -= len;
	}
	return r;
}

/* One try; *ret_changed: the object was replaced by one of another size. */
static int64_t get_bounced_once(struct get *g, unsigned i, bool *ret_changed)
{
	bool whole = g->items[i].whole || g->alloc;
	struct mcs_get_item *item = &g->items[i];
	struct mcs_daemon_req q = { .op = MCFS_RING_STAT, .key = item->key };
	struct mcs_daemon_bounce b = { 0 };
	const struct iovec *iov;
	struct iovec one;
	int64_t n, room;
	int r, iovcnt, copied = 0;

	r = mcs_daemon_run(g->c, &q, 1, NULL, g->deadline);
	r = r < 0 ? r : (int)q.c.result;
	if (r < 0)
		return r;
	room = (int64_t)q.c.size;
	if (whole) {
		r = get_room(g, i, q.c.size, &one, &iov, &iovcnt);
	} else {
		iov = item->iov;
		iovcnt = item->iovcnt;
		room = item->offset < q.c.size ? (int64_t)(q.c.size - item->offset) : 0;
		n = mcs_iov_len(iov, iovcnt);
		r = n < 0 ? (int)n : 0;
		room = n < room ? n : room;
	}
	if (r < 0 || !room)
		return r;
	MC_FAULT_POINT("client.node.after_stat");
	r = mcs_daemon_bounce_take(g->c, (uint64_t)room, true, &b);
	if (r < 0)
		return r;
	q = (struct mcs_daemon_req){
		.op = MCFS_RING_GET, .flags = whole ? MCFS_SQE_WHOLE : 0,
		.key = item->key, .offset = item->offset, .range = &b.range, .nranges = 1,
	};
	r = mcs_daemon_run(g->c, &q, 1, NULL, g->deadline);
	n = r < 0 ? r : q.c.result;
	if (n > 0)
		copied = get_scatter(iov, iovcnt, b.p, (uint64_t)n, NULL);
	mcs_daemon_bounce_give(g->c, &b, r);
	*ret_changed = whole && (n == -ENOBUFS || (n >= 0 && n != room));
	return copied < 0 ? copied : n;
}

/* Through the bounce buffer: objects that cannot be mapped, and parts of objects, which only the
 * daemon can check.  The provider made room for a size, so exactly that many bytes must arrive. */
static int64_t get_bounced(struct get *g, unsigned i)
{
	int64_t n = -MC_EREPLICA_GONE;
	bool changed = true;

	for (int rounds = 0; changed && rounds < ROUNDS_MAX; rounds++) {
		changed = false;
		n = get_bounced_once(g, i, &changed);
	}
	return changed ? mc_fail(-MC_EREPLICA_GONE, "the object changes all the time") : n;
}

/* Did the item fail because the connection was lost, so that it must be read again?  -MC_ERPC
 * may also be the daemon's own answer, when it cannot reach the master. */
static bool get_cut_off(const struct get *g, const struct mcs_get_item *item)
{
	return item->result == -MC_ERPC && mcs_daemon_conn_is_lost(g->c);
}

/* Copy a mapped object to the caller's memory.  Without a checksum the bytes are valid only if
 * the pin was still held afterwards: a pin is lost with the daemon's connection to the master,
 * and then the memory may be another object's. */
static int64_t get_mapped(struct get *g, unsigned i, const struct mcfs_cqe *e)
{
	bool verify = g->d->base.store->conf.verify;
	const struct iovec *iov;
	uint32_t crc = 0;
	const void *data;
	struct iovec one;
	int r, n;

	data = mcs_daemon_conn_at(g->c, e->segment, e->offset, e->size, g->deadline, &r);
	if (!data)
		return r;
	r = get_room(g, i, e->size, &one, &iov, &n);
	if (r < 0)
		return r;
	MC_FAULT_POINT("client.node.before_copy");
	r = get_scatter(iov, n, data, e->size, verify ? &crc : NULL);
	if (r < 0)
		return r;
	if (verify && crc != e->crc32c)
		return mc_fail(-MC_ECHECKSUM, "checksum mismatch in a mapped object");
	return (int64_t)e->size;
}

/* Was the item copied without a checksum?  Then its pin must be confirmed. */
static bool get_unchecked(const struct get *g, unsigned i, const struct mcs_daemon_req *pin)
{
	return !g->d->base.store->conf.verify && pin->c.pin && g->items[i].result >= 0;
}

/* Confirm the pins of items that were copied without a checksum; read those again whose pin was lost. */
static int get_confirm(struct get *g, const unsigned *index, const struct mcs_daemon_req *pin, unsigned n)
{
	struct mcs_daemon_req *q = calloc(n, sizeof(*q));
	unsigned asked = 0, answer = 0;
	int r;

	if (!q)
		return -ENOMEM;
	for (unsigned k = 0; k < n; k++)
		if (get_unchecked(g, index[k], &pin[k]))
			q[asked++] = (struct mcs_daemon_req){ .op = MCFS_RING_HELD, .pin = pin[k].c.pin };
	r = asked ? mcs_daemon_run(g->c, q, asked, NULL, g->deadline) : 0;
	for (unsigned k = 0; k < n && r == 0; k++)
		if (get_unchecked(g, index[k], &pin[k]) && q[answer++].c.result != 0) {
			g->items[index[k]].result = get_bounced(g, index[k]);
			if (get_cut_off(g, &g->items[index[k]]))
				r = -MC_ERPC;
		}
	free(q);
	return r;
}

/* Whole objects into memory that the daemon does not see: the @n items with the numbers @index. */
static int get_by_maps(struct get *g, const unsigned *index, unsigned n)
{
	struct mcs_daemon_req *q = calloc(n, sizeof(*q));
	unsigned pins = 0;
	int r;

	if (!q)
		return -ENOMEM;
	for (unsigned k = 0; k < n; k++)
		q[k] = (struct mcs_daemon_req){ .op = MCFS_RING_PIN, .key = g->items[index[k]].key };
	r = mcs_daemon_run(g->c, q, n, NULL, g->deadline);
	for (unsigned k = 0; k < n && r == 0; k++) {
		struct mcs_get_item *item = &g->items[index[k]];

		item->result = q[k].c.result;
		/* The daemon has no room for a copy of the object. */
		if (item->result == -ENOBUFS)
			item->result = get_bounced(g, index[k]);
		else if (item->result == 0)
			item->result = get_mapped(g, index[k], &q[k].c);
		/* Damaged, or the memory was reused: the daemon finds out and reads again. */
		if (item->result == -MC_ECHECKSUM)
			item->result = get_bounced(g, index[k]);
		if (get_cut_off(g, item))
			r = -MC_ERPC;
	}
	if (r == 0)
		r = get_confirm(g, index, q, n);
	for (unsigned k = 0; k < n && r == 0; k++)
		if (q[k].c.pin)
			q[pins++] = (struct mcs_daemon_req){
				.op = MCFS_RING_UNPIN, .pin = q[k].c.pin,
			};
	if (r == 0 && pins)
		(void)mcs_daemon_run(g->c, q, pins, NULL, mc_deadline_ms(1000));
	free(q);
	return r;
}

/* The items of a window by the way in which they are read. */
struct split {
	struct mcs_daemon_req q[WINDOW];
	unsigned first[WINDOW], direct[WINDOW], mapped[WINDOW], parts[WINDOW];
	unsigned ndirect, nmapped, nparts;
	struct ranges l;
};

static int get_divide(struct get *g, struct split *w, unsigned from, unsigned n)
{
	w->ndirect = w->nmapped = w->nparts = w->l.n = 0;
	for (unsigned i = from; i < from + n; i++) {
		struct mcs_get_item *item = &g->items[i];
		unsigned named = 0;
		int r = mcs_key_check(item->key);
		int64_t len = g->alloc ? 0 : mcs_iov_len(item->iov, item->iovcnt);

		item->result = r < 0 ? r : len < 0 ? len : -MC_ERPC;
		if (r < 0 || len < 0)
			continue;
		w->first[w->ndirect] = w->l.n;
		r = g->alloc ? 0 : ranges_add(g->c, item->iov, item->iovcnt, &w->l, &named);
		if (r < 0)
			return r;
		if (r > 0) {
			w->q[w->ndirect] = (struct mcs_daemon_req){
				.op = MCFS_RING_GET, .flags = item->whole ? MCFS_SQE_WHOLE : 0,
				.key = item->key, .offset = item->offset, .nranges = named,
			};
			w->direct[w->ndirect++] = i;
		} else if (item->whole || g->alloc) {
			w->mapped[w->nmapped++] = i;
		} else {
			w->parts[w->nparts++] = i;
		}
	}
	return 0;
}

static int get_window(struct get *g, struct split *w, unsigned from, unsigned n)
{
	int r = get_divide(g, w, from, n);

	if (r == 0 && w->ndirect) {
		ranges_bind(w->q, w->first, w->ndirect, &w->l);
		r = mcs_daemon_run(g->c, w->q, w->ndirect, NULL, g->deadline);
		for (unsigned k = 0; k < w->ndirect; k++)
			g->items[w->direct[k]].result = w->q[k].c.result;
	}
	if (r == 0 && w->nmapped)
		r = get_by_maps(g, w->mapped, w->nmapped);
	for (unsigned k = 0; k < w->nparts && r == 0; k++) {
		struct mcs_get_item *item = &g->items[w->parts[k]];

		item->result = get_bounced(g, w->parts[k]);
		if (get_cut_off(g, item))
			r = -MC_ERPC;
	}
	return r;
}

static int get_once(struct get *g, unsigned n)
{
	struct split *w = malloc(sizeof(*w));
	int r = w ? mcs_daemon_conn_get(g->d, g->deadline, &g->c) : -ENOMEM;

	if (r < 0) {
		free(w);
		return r;
	}
	w->l = (struct ranges){ 0 };
	for (unsigned i = 0; i < n && r == 0; i += WINDOW)
		r = get_window(g, w, i, n - i < WINDOW ? n - i : WINDOW);
	mcs_daemon_conn_put(g->c);
	free(w->l.r);
	free(w);
	return r;
}

int mcs_daemon_get_batch(struct mcs_backend *b, struct mcs_get_item *items, unsigned n, mcs_alloc_fn alloc,
			 void *arg, uint64_t deadline)
{
	struct get g = {
		.d = mcs_daemon_of(b), .items = items, .alloc = alloc, .arg = arg, .deadline = deadline,
	};
	int r;

	/* A handle tries its daemon first, so no item was read before.  The second attempt reads
	 * all items again, because unchecked copies of the first one were not confirmed. */
	r = get_once(&g, n);
	if (r == -MC_ERPC)
		r = get_once(&g, n);
	for (unsigned i = 0; i < n; i++)
		if (r < 0 && items[i].result == -MC_ERPC)
			items[i].result = r;
	return r;
}
