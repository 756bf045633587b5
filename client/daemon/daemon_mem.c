/* SPDX-License-Identifier: Apache-2.0
 * daemon_mem.c - memory shared with the daemon: buffers of the program, the bounce buffer and the pool. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/daemon/daemon_i.h"
#include "common/cleanup.h"
#include "common/sys/thread.h"

#define GRAIN 4096u
/* Slots of mem[]: */
#define BOUNCE 0u
#define POOL 1u
#define FIRST 2u		/* first slot of the program's buffers and of larger bounce buffers */

static size_t page_up(uint64_t len)
{
	return (len + GRAIN - 1) & ~(uint64_t)(GRAIN - 1);
}

/* Make and map a memfd. */
static int mem_new(size_t len, struct mcs_daemon_mem *ret)
{
	auto_close int fd = memfd_create("mooncake-client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *p;

	if (fd < 0 || ftruncate(fd, (off_t)len) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
		return mc_fail(-errno, "memory of %zu bytes: %s", len, mc_strerror(errno));
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return mc_fail(-errno, "memory of %zu bytes: %s", len, mc_strerror(errno));
	(void)madvise(p, len, MADV_HUGEPAGE);
	*ret = (struct mcs_daemon_mem){ .base = p, .len = len, .fd = TAKE_FD(fd), .own = true };
	return 0;
}

static void mem_free(struct mcs_daemon_mem *m)
{
	if (!m->base)
		return;
	if (m->own)
		munmap(m->base, m->len);
	close(m->fd);
	*m = (struct mcs_daemon_mem){ .fd = -1 };
}

int mcs_daemon_mem_open(struct mcs_daemon *d)
{
	int r = mem_new(page_up(d->bounce_size), &d->mem[BOUNCE]);

	if (r == 0)
		r = mc_space_init(&d->bounce, d->mem[BOUNCE].len, GRAIN);
	if (r == 0 && d->pool_size)
		r = mem_new(page_up(d->pool_size), &d->mem[POOL]);
	if (r == 0)
		r = mc_space_init(&d->pool, d->mem[POOL].len, GRAIN);
	d->mem[BOUNCE].serial = ++d->serial;
	d->mem[POOL].serial = ++d->serial;
	return r;
}

/* Release ranges that no daemon uses any more (@all: all of them); the lock is held, or no other thread exists. */
static void mem_reclaim_locked(struct mcs_daemon *d, bool all)
{
	struct mcs_daemon_left **at = &d->left, *l;

	while ((l = *at)) {
		if (!all && !mcs_daemon_conn_over(l->conn)) {
			at = &l->next;
			continue;
		}
		*at = l->next;
		mc_space_give(&d->bounce, l->at, l->len);
		mcs_daemon_conn_put(l->conn);
		free(l);
	}
}

void mcs_daemon_mem_close(struct mcs_daemon *d)
{
	mem_reclaim_locked(d, true);
	for (unsigned i = 0; i < MCS_DAEMON_MEMS; i++)
		mem_free(&d->mem[i]);
	mc_space_done(&d->bounce);
	mc_space_done(&d->pool);
	free(d->pieces);
}

/* Does the daemon know the present contents of slot @i? */
static bool mem_told(const struct mcs_daemon_conn *c, unsigned i)
{
	const struct mcs_daemon_mem *m = &c->d->mem[i];

	return c->told[i] == (m->base ? m->serial : 0);
}

/* Send one request to get there.  Both locks are held; the daemon's lock is released during the request. */
static int mem_tell_locked(struct mcs_daemon_conn *c, unsigned i, uint64_t until)
{
	struct mcs_daemon *d = c->d;
	const struct mcs_daemon_mem m = d->mem[i];
	struct mcfs_msg msg = { .type = MCFS_MSG_UNBUFFER, .id = c->id[i] };
	bool back = c->told[i];
	auto_close int fd = -1;
	int r;

	c->told[i] = 0;
	c->id[i] = 0;
	if (!back) {
		/* The program may unregister the buffer meanwhile. */
		fd = fcntl(m.fd, F_DUPFD_CLOEXEC, 3);
		if (fd < 0)
			return mc_fail(-errno, "the buffer's descriptor: %s", mc_strerror(errno));
		msg = (struct mcfs_msg){ .type = MCFS_MSG_BUFFER, .size = m.fd_offset + m.len };
	}
	mc_mutex_unlock(&d->lock);
	r = mcs_daemon_conn_ask(c, &msg, fd, until, NULL);
	mc_mutex_lock(&d->lock);
	if (r == 0 && !back) {
		c->id[i] = msg.id;
		c->told[i] = m.serial;
	}
	return r;
}

/* Tell the daemon which buffer slot @i has now, or that it is free. */
static int mem_tell(struct mcs_daemon_conn *c, unsigned i, uint64_t until)
{
	int r = 0;

	if (mc_mutex_lock_until(&c->tell_lock, until) < 0)
		return mc_fail(-MC_ETIMEDOUT, "the node's daemon has not answered other threads yet");
	mc_mutex_lock(&c->d->lock);
	while (r == 0 && !mem_told(c, i))
		r = mem_tell_locked(c, i, until);
	mc_mutex_unlock(&c->d->lock);
	mc_mutex_unlock(&c->tell_lock);
	return r;
}

int mcs_daemon_mem_publish(struct mcs_daemon_conn *c, uint64_t until)
{
	struct mcs_daemon *d = c->d;
	unsigned i = 0;
	int r = 0;

	MC_LOCKED(&c->tell_lock);
	MC_LOCKED(&d->lock);
	/* Start again after each request: slots that were told before may have changed. */
	while (r == 0 && i < MCS_DAEMON_MEMS) {
		if (mem_told(c, i)) {
			i++;
			continue;
		}
		r = mem_tell_locked(c, i, until);
		i = 0;
	}
	if (r == 0)
		d->conn = mcs_daemon_conn_ref(c);
	return r;
}

bool mcs_daemon_mem_find(struct mcs_daemon_conn *c, const void *p, size_t len, struct mcfs_ring_range *ret)
{
	struct mcs_daemon *d = c->d;

	MC_LOCKED(&d->lock);
	for (unsigned i = 0; i < MCS_DAEMON_MEMS; i++) {
		const struct mcs_daemon_mem *m = &d->mem[i];
		size_t at = (size_t)((uintptr_t)p - (uintptr_t)m->base);

		if (!m->base || !mem_told(c, i) || (uintptr_t)p < (uintptr_t)m->base || at > m->len ||
		    len > m->len - at)
			continue;
		*ret = (struct mcfs_ring_range){ c->id[i], 0, m->fd_offset + at, len };
		return true;
	}
	return false;
}

/* The address of a range by the connection's ids; NULL: its buffer was unregistered. */
static unsigned char *mem_at(struct mcs_daemon_conn *c, const struct mcfs_ring_range *range)
{
	struct mcs_daemon *d = c->d;

	MC_LOCKED(&d->lock);
	for (unsigned i = 0; i < MCS_DAEMON_MEMS; i++)
		if (d->mem[i].base && mem_told(c, i) && c->id[i] == range->buffer)
			return (unsigned char *)d->mem[i].base + (range->at - d->mem[i].fd_offset);
	return NULL;
}

void mcs_daemon_mem_touch(struct mcs_daemon_conn *c, const struct mcfs_ring_range *range, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		unsigned char *p = mem_at(c, &range[i]);
		size_t before = (uintptr_t)p % GRAIN;

		/* Kernels before 5.14 know no MADV_POPULATE_READ. */
		if (p && madvise(p - before, range[i].len + before, MADV_POPULATE_READ) < 0 && errno == EINVAL)
			for (size_t at = 0; at < range[i].len + before; at += GRAIN)
				(void)*(volatile unsigned char *)(p - before + at);
	}
}

/* Store @m in a free slot; the lock is held. */
static int mem_add_locked(struct mcs_daemon *d, struct mcs_daemon_mem *m, unsigned *ret)
{
	unsigned i = FIRST;

	while (i < MCS_DAEMON_MEMS && d->mem[i].base)
		i++;
	if (i == MCS_DAEMON_MEMS)
		return mc_fail(-ENOBUFS, "%u buffers are registered", i - FIRST);
	m->serial = ++d->serial;
	d->mem[i] = *m;
	*ret = i;
	return 0;
}

/* Hand over the buffer @serial in slot @i; without a connection, the next connection does that.
 * Negative: the daemon refused it, and the slot is free. */
static int mem_hand_over(struct mcs_daemon *d, unsigned i, uint64_t serial)
{
	struct mcs_daemon_conn *c = NULL;
	int r = 0;

	mc_mutex_lock(&d->lock);
	if (d->conn)
		c = mcs_daemon_conn_ref(d->conn);
	mc_mutex_unlock(&d->lock);
	if (c)
		r = mem_tell(c, i, mcs_daemon_until(MC_NEVER));
	mcs_daemon_conn_put(c);
	if (r == 0 || r == -MC_ERPC)
		return 0;
	MC_LOCKED(&d->lock);
	if (d->mem[i].serial != serial)
		return 0;
	d->mem[i] = (struct mcs_daemon_mem){ .fd = -1 };
	return r;
}

static bool mem_overlaps_locked(const struct mcs_daemon *d, const void *buf, size_t len)
{
	uintptr_t at = (uintptr_t)buf;

	for (unsigned i = 0; i < MCS_DAEMON_MEMS; i++) {
		uintptr_t base = (uintptr_t)d->mem[i].base;

		if (base && at < base + d->mem[i].len && base < at + len)
			return true;
	}
	return false;
}

int mcs_daemon_register_memfd(struct mcs_backend *b, void *buf, size_t len, int fd, uint64_t fd_offset)
{
	struct mcs_daemon *d = mcs_daemon_of(b);
	struct mcs_daemon_mem m = { .base = buf, .len = len, .fd_offset = fd_offset };
	unsigned at = 0;
	int r;

	m.fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (m.fd < 0)
		return mc_fail(-errno, "the buffer's descriptor: %s", mc_strerror(errno));
	mc_mutex_lock(&d->lock);
	r = mem_overlaps_locked(d, buf, len) ? mc_fail(-EEXIST, "a buffer at %p is registered", buf) :
		mem_add_locked(d, &m, &at);
	mc_mutex_unlock(&d->lock);
	if (r == 0)
		r = mem_hand_over(d, at, m.serial);
	if (r < 0)
		close(m.fd);
	return r;
}

/* Free slot @i, and have the daemon release the buffer. */
static void mem_remove(struct mcs_daemon *d, unsigned i)
{
	struct mcs_daemon_conn *c = NULL;
	struct mcs_daemon_mem m;

	mc_mutex_lock(&d->lock);
	m = d->mem[i];
	d->mem[i] = (struct mcs_daemon_mem){ .fd = -1 };
	if (d->conn && d->conn->told[i])
		c = mcs_daemon_conn_ref(d->conn);
	mc_mutex_unlock(&d->lock);
	if (c)
		(void)mem_tell(c, i, mcs_daemon_until(mc_now_ns()));
	mcs_daemon_conn_put(c);
	mem_free(&m);
}

int mcs_daemon_unregister_buffer(struct mcs_backend *b, void *buf)
{
	struct mcs_daemon *d = mcs_daemon_of(b);
	unsigned i;

	mc_mutex_lock(&d->lock);
	for (i = FIRST; i < MCS_DAEMON_MEMS; i++)
		if (d->mem[i].base == buf && !d->mem[i].own)
			break;
	mc_mutex_unlock(&d->lock);
	if (i < MCS_DAEMON_MEMS)
		mem_remove(d, i);
	else if (!mcs_buffers_remove(&d->buffers, buf, false))
		return mc_fail(-MC_EPARAM, "no buffer is registered at %p", buf);
	return 0;
}

/* ---- the bounce buffer ---- */

/* Map memory for one value. */
static int bounce_new(struct mcs_daemon_conn *c, uint64_t len, struct mcs_daemon_bounce *ret)
{
	struct mcs_daemon *d = c->d;
	struct mcs_daemon_mem m;
	unsigned at = 0;
	int r = mem_new(page_up(len), &m);

	if (r < 0)
		return r;
	mc_mutex_lock(&d->lock);
	r = mem_add_locked(d, &m, &at);
	mc_mutex_unlock(&d->lock);
	if (r == 0)
		r = mem_hand_over(d, at, m.serial);
	if (r < 0) {
		mem_free(&m);
		return r;
	}
	*ret = (struct mcs_daemon_bounce){ .p = m.base, .at = at, .len = len, .own = m.base };
	if (mcs_daemon_mem_find(c, m.base, len, &ret->range))
		return 0;
	mcs_daemon_bounce_give(c, ret, 0);
	return mc_fail(-MC_ERPC, "the connection to the node's daemon has changed");
}

int mcs_daemon_bounce_take(struct mcs_daemon_conn *c, uint64_t len, bool last,
			   struct mcs_daemon_bounce *ret)
{
	struct mcs_daemon *d = c->d;
	bool less;
	int r;

	if (len > d->bounce.size)
		return bounce_new(c, len, ret);
	*ret = (struct mcs_daemon_bounce){ .len = len };
	mc_mutex_lock(&d->lock);
	mem_reclaim_locked(d, false);
	less = d->left;
	r = mc_space_take(&d->bounce, len, &ret->at);
	if (r == 0) {
		ret->p = d->mem[BOUNCE].base + ret->at;
		ret->range = (struct mcfs_ring_range){ c->id[BOUNCE], 0, ret->at, len };
	}
	mc_mutex_unlock(&d->lock);
	/* Other calls may release too little for it. */
	return r == -ENOBUFS && (less || last) ? bounce_new(c, len, ret) : r;
}

/* The daemon may still use the range of a lost connection: keep it allocated until the connection is over. */
static void bounce_leave(struct mcs_daemon_conn *c, const struct mcs_daemon_bounce *b)
{
	struct mcs_daemon_left *l = malloc(sizeof(*l));

	/* Without memory for the entry the range is never reused. */
	if (!l)
		return;
	MC_LOCKED(&c->d->lock);
	*l = (struct mcs_daemon_left){ c->d->left, mcs_daemon_conn_ref(c), b->at, b->len };
	c->d->left = l;
}

void mcs_daemon_bounce_give(struct mcs_daemon_conn *c, struct mcs_daemon_bounce *b, int err)
{
	/* Memory mapped for this value is freed; whatever the daemon still writes to the memfd,
	 * no program sees it. */
	if (b->own) {
		mem_remove(c->d, (unsigned)b->at);
	} else if (b->p && err == -MC_ETIMEDOUT && mcs_daemon_conn_is_lost(c)) {
		bounce_leave(c, b);
	} else if (b->p) {
		MC_LOCKED(&c->d->lock);
		mc_space_give(&c->d->bounce, b->at, b->len);
	}
	b->p = NULL;
	b->own = NULL;
}

/* ---- the pool ---- */

void *mcs_daemon_pool_alloc(struct mcs_backend *b, size_t len)
{
	struct mcs_daemon *d = mcs_daemon_of(b);
	uint64_t at;

	MC_LOCKED(&d->lock);
	if (!d->mem[POOL].base)
		return NULL;
	if (d->npieces == d->pieces_cap) {
		unsigned cap = d->pieces_cap ? 2 * d->pieces_cap : 64;
		struct mc_extent *more = realloc(d->pieces, cap * sizeof(*more));

		if (!more)
			return NULL;
		d->pieces = more;
		d->pieces_cap = cap;
	}
	if (mc_space_take(&d->pool, len, &at) < 0)
		return NULL;
	d->pieces[d->npieces++] = (struct mc_extent){ at, len };
	return d->mem[POOL].base + at;
}

void mcs_daemon_pool_free(struct mcs_backend *b, void *p)
{
	struct mcs_daemon *d = mcs_daemon_of(b);

	MC_LOCKED(&d->lock);
	for (unsigned i = 0; i < d->npieces; i++) {
		if (d->mem[POOL].base + d->pieces[i].at != p)
			continue;
		mc_space_give(&d->pool, d->pieces[i].at, d->pieces[i].len);
		d->pieces[i] = d->pieces[--d->npieces];
		return;
	}
}
