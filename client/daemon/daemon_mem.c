/* SPDX-License-Identifier: Apache-2.0
 * node_mem.c - memory that the daemon sees too: handed over by programs, and our own. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/daemon/daemon_i.h"
#include "common/cleanup.h"
#include "common/thread.h"

#define GRAIN 4096u
#define BOUNCE 0u
#define POOL 1u
#define FIRST 2u

static size_t page_up(uint64_t len)
{
	return (len + GRAIN - 1) & ~(uint64_t)(GRAIN - 1);
}

/* A memfd of our own, mapped. */
static int make(size_t len, struct mcs_daemon_mem *ret)
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

static void unmake(struct mcs_daemon_mem *m)
{
	if (!m->base)
		return;
	if (m->own)
		munmap(m->base, m->len);
	close(m->fd);
	*m = (struct mcs_daemon_mem){ .fd = -1 };
}

int mcs_daemon_mem_open(struct mcs_daemon *n)
{
	int r = make(page_up(n->bounce_size), &n->mem[BOUNCE]);

	if (r == 0)
		r = mc_space_init(&n->bounce, n->mem[BOUNCE].len, GRAIN);
	if (r == 0 && n->pool_size)
		r = make(page_up(n->pool_size), &n->mem[POOL]);
	if (r == 0)
		r = mc_space_init(&n->pool, n->mem[POOL].len, GRAIN);
	n->mem[BOUNCE].serial = ++n->serial;
	n->mem[POOL].serial = ++n->serial;
	return r;
}

/* Take back what no daemon uses any more (@all: everything); the lock is held, or nobody else is there. */
static void take_back_locked(struct mcs_daemon *n, bool all)
{
	struct mcs_daemon_left **at = &n->left, *l;

	while ((l = *at)) {
		if (!all && !mcs_daemon_conn_over(l->conn)) {
			at = &l->next;
			continue;
		}
		*at = l->next;
		mc_space_give(&n->bounce, l->at, l->len);
		mcs_daemon_conn_put(l->conn);
		free(l);
	}
}

void mcs_daemon_mem_close(struct mcs_daemon *n)
{
	take_back_locked(n, true);
	for (unsigned i = 0; i < MCS_DAEMON_MEMS; i++)
		unmake(&n->mem[i]);
	mc_space_done(&n->bounce);
	mc_space_done(&n->pool);
	free(n->pieces);
}

static bool is_told(const struct mcs_daemon_conn *c, unsigned i)
{
	const struct mcs_daemon_mem *m = &c->n->mem[i];

	return c->told[i] == (m->base ? m->serial : 0);
}

/* One question to the daemon towards that; the locks are held, the node's not while it is asked. */
static int tell_locked(struct mcs_daemon_conn *c, unsigned i, uint64_t until)
{
	struct mcs_daemon *n = c->n;
	const struct mcs_daemon_mem m = n->mem[i];
	struct mcfs_msg msg = { .type = MCFS_MSG_UNBUFFER, .id = c->id[i] };
	bool back = c->told[i];
	auto_close int fd = -1;
	int r;

	c->told[i] = 0;
	c->id[i] = 0;
	if (!back) {
		/* Its owner may take it back meanwhile. */
		fd = fcntl(m.fd, F_DUPFD_CLOEXEC, 3);
		if (fd < 0)
			return mc_fail(-errno, "the buffer's descriptor: %s", mc_strerror(errno));
		msg = (struct mcfs_msg){ .type = MCFS_MSG_BUFFER, .size = m.fd_offset + m.len };
	}
	pthread_mutex_unlock(&n->lock);
	r = mcs_daemon_conn_ask(c, &msg, fd, until, NULL);
	pthread_mutex_lock(&n->lock);
	if (r == 0 && !back) {
		c->id[i] = msg.id;
		c->told[i] = m.serial;
	}
	return r;
}

/* Have the daemon know what is at place @i now, or that nothing is. */
static int tell(struct mcs_daemon_conn *c, unsigned i, uint64_t until)
{
	int r = 0;

	if (mc_lock_until(&c->tell_lock, until) < 0)
		return mc_fail(-MC_ETIMEDOUT, "the node's daemon has not answered others yet");
	pthread_mutex_lock(&c->n->lock);
	while (r == 0 && !is_told(c, i))
		r = tell_locked(c, i, until);
	pthread_mutex_unlock(&c->n->lock);
	pthread_mutex_unlock(&c->tell_lock);
	return r;
}

int mcs_daemon_mem_publish(struct mcs_daemon_conn *c, uint64_t until)
{
	struct mcs_daemon *n = c->n;
	unsigned i = 0;
	int r = 0;

	MC_LOCKED(&c->tell_lock);
	MC_LOCKED(&n->lock);
	/* From the beginning after each: what was told before may have changed. */
	while (r == 0 && i < MCS_DAEMON_MEMS) {
		if (is_told(c, i)) {
			i++;
			continue;
		}
		r = tell_locked(c, i, until);
		i = 0;
	}
	if (r == 0)
		n->conn = mcs_daemon_conn_ref(c);
	return r;
}

bool mcs_daemon_mem_find(struct mcs_daemon_conn *c, const void *p, size_t len,
		       struct mcfs_ring_range *ret)
{
	struct mcs_daemon *n = c->n;

	MC_LOCKED(&n->lock);
	for (unsigned i = 0; i < MCS_DAEMON_MEMS; i++) {
		const struct mcs_daemon_mem *m = &n->mem[i];
		size_t at = (size_t)((uintptr_t)p - (uintptr_t)m->base);

		if (!m->base || !is_told(c, i) || (uintptr_t)p < (uintptr_t)m->base || at > m->len ||
		    len > m->len - at)
			continue;
		*ret = (struct mcfs_ring_range){ c->id[i], 0, m->fd_offset + at, len };
		return true;
	}
	return false;
}

/* A free place for @m; the lock is held. */
static int place_locked(struct mcs_daemon *n, struct mcs_daemon_mem *m, unsigned *ret)
{
	unsigned i = FIRST;

	while (i < MCS_DAEMON_MEMS && n->mem[i].base)
		i++;
	if (i == MCS_DAEMON_MEMS)
		return mc_fail(-ENOBUFS, "%u buffers are registered", i - FIRST);
	m->serial = ++n->serial;
	n->mem[i] = *m;
	*ret = i;
	return 0;
}

/* Hand over what stands at place @i as @serial; without a connection the next one does.  Negative: it stands there no
 * more, because the daemon does not take it. */
static int hand_over(struct mcs_daemon *n, unsigned i, uint64_t serial)
{
	struct mcs_daemon_conn *c = NULL;
	int r = 0;

	pthread_mutex_lock(&n->lock);
	if (n->conn)
		c = mcs_daemon_conn_ref(n->conn);
	pthread_mutex_unlock(&n->lock);
	if (c)
		r = tell(c, i, mcs_daemon_until(MC_NEVER));
	mcs_daemon_conn_put(c);
	if (r == 0 || r == -MC_ERPC)
		return 0;
	MC_LOCKED(&n->lock);
	if (n->mem[i].serial != serial)
		return 0;
	n->mem[i] = (struct mcs_daemon_mem){ .fd = -1 };
	return r;
}

static bool overlaps_locked(const struct mcs_daemon *n, const void *buf, size_t len)
{
	uintptr_t at = (uintptr_t)buf;

	for (unsigned i = 0; i < MCS_DAEMON_MEMS; i++) {
		uintptr_t base = (uintptr_t)n->mem[i].base;

		if (base && at < base + n->mem[i].len && base < at + len)
			return true;
	}
	return false;
}

int mcs_daemon_register(struct mcs_daemon *n, void *buf, size_t len, int fd, uint64_t fd_offset)
{
	struct mcs_daemon_mem m = { .base = buf, .len = len, .fd_offset = fd_offset };
	unsigned at;
	int r;

	m.fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (m.fd < 0)
		return mc_fail(-errno, "the buffer's descriptor: %s", mc_strerror(errno));
	pthread_mutex_lock(&n->lock);
	r = overlaps_locked(n, buf, len) ? mc_fail(-EEXIST, "a buffer at %p is registered", buf) :
		place_locked(n, &m, &at);
	pthread_mutex_unlock(&n->lock);
	if (r == 0)
		r = hand_over(n, at, m.serial);
	if (r < 0)
		close(m.fd);
	return r;
}

/* Take it out, and have the daemon let go of it. */
static void leave(struct mcs_daemon *n, unsigned i)
{
	struct mcs_daemon_conn *c = NULL;
	struct mcs_daemon_mem m;

	pthread_mutex_lock(&n->lock);
	m = n->mem[i];
	n->mem[i] = (struct mcs_daemon_mem){ .fd = -1 };
	if (n->conn && n->conn->told[i])
		c = mcs_daemon_conn_ref(n->conn);
	pthread_mutex_unlock(&n->lock);
	if (c)
		(void)tell(c, i, mcs_daemon_until(mc_now_ns()));
	mcs_daemon_conn_put(c);
	unmake(&m);
}

int mcs_daemon_unregister(struct mcs_daemon *n, void *buf)
{
	unsigned i;

	pthread_mutex_lock(&n->lock);
	for (i = FIRST; i < MCS_DAEMON_MEMS; i++)
		if (n->mem[i].base == buf && !n->mem[i].own)
			break;
	pthread_mutex_unlock(&n->lock);
	if (i == MCS_DAEMON_MEMS)
		return 0;
	leave(n, i);
	return 1;
}

/* ---- for values that lie elsewhere ---- */

static int own_piece(struct mcs_daemon_conn *c, uint64_t len, struct mcs_daemon_bounce *ret)
{
	struct mcs_daemon *n = c->n;
	struct mcs_daemon_mem m;
	unsigned at;
	int r = make(page_up(len), &m);

	if (r < 0)
		return r;
	pthread_mutex_lock(&n->lock);
	r = place_locked(n, &m, &at);
	pthread_mutex_unlock(&n->lock);
	if (r == 0)
		r = hand_over(n, at, m.serial);
	if (r < 0) {
		unmake(&m);
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
	struct mcs_daemon *n = c->n;
	bool less;
	int r;

	if (len > n->bounce.size)
		return own_piece(c, len, ret);
	*ret = (struct mcs_daemon_bounce){ .len = len };
	pthread_mutex_lock(&n->lock);
	take_back_locked(n, false);
	less = n->left;
	r = mc_space_take(&n->bounce, len, &ret->at);
	if (r == 0) {
		ret->p = n->mem[BOUNCE].base + ret->at;
		ret->range = (struct mcfs_ring_range){ c->id[BOUNCE], 0, ret->at, len };
	}
	pthread_mutex_unlock(&n->lock);
	/* Others may give back too little for it. */
	return r == -ENOBUFS && (less || last) ? own_piece(c, len, ret) : r;
}

static void leave_behind(struct mcs_daemon_conn *c, const struct mcs_daemon_bounce *b)
{
	struct mcs_daemon_left *l = malloc(sizeof(*l));

	/* Without memory to remember it, it is never used again. */
	if (!l)
		return;
	MC_LOCKED(&c->n->lock);
	*l = (struct mcs_daemon_left){ c->n->left, mcs_daemon_conn_ref(c), b->at, b->len };
	c->n->left = l;
}

void mcs_daemon_bounce_give(struct mcs_daemon_conn *c, struct mcs_daemon_bounce *b, int err)
{
	/* A piece of its own goes, and what a daemon does to it is seen by nobody. */
	if (b->own) {
		leave(c->n, (unsigned)b->at);
	} else if (b->p && err == -MC_ETIMEDOUT && mcs_daemon_conn_is_lost(c)) {
		leave_behind(c, b);
	} else if (b->p) {
		MC_LOCKED(&c->n->lock);
		mc_space_give(&c->n->bounce, b->at, b->len);
	}
	b->p = NULL;
	b->own = NULL;
}

/* ---- the pool ---- */

void *mcs_daemon_pool_alloc(struct mcs_daemon *n, size_t len)
{
	uint64_t at;

	MC_LOCKED(&n->lock);
	if (!n->mem[POOL].base)
		return NULL;
	if (n->npieces == n->pieces_cap) {
		unsigned cap = n->pieces_cap ? 2 * n->pieces_cap : 64;
		struct mc_extent *more = realloc(n->pieces, cap * sizeof(*more));

		if (!more)
			return NULL;
		n->pieces = more;
		n->pieces_cap = cap;
	}
	if (mc_space_take(&n->pool, len, &at) < 0)
		return NULL;
	n->pieces[n->npieces++] = (struct mc_extent){ at, len };
	return n->mem[POOL].base + at;
}

void mcs_daemon_pool_free(struct mcs_daemon *n, void *p)
{
	MC_LOCKED(&n->lock);
	for (unsigned i = 0; i < n->npieces; i++) {
		if (n->mem[POOL].base + n->pieces[i].at != p)
			continue;
		mc_space_give(&n->pool, n->pieces[i].at, n->pieces[i].len);
		n->pieces[i] = n->pieces[--n->npieces];
		return;
	}
}
