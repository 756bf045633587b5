/* SPDX-License-Identifier: Apache-2.0
 * dummy.c - upstream's clients and the memory that they share. */
#include <config.h>

#include "node/upstream/dummy.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/list.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/clock.h"
#include "common/sys/thread.h"
#include "node/node_i.h"
#include "node/upstream/guard.h"
#include "node/upstream/local.h"

#define BUCKETS 256u
#define TOLD 4096u

MC_GAUGE(ndummies, "mooncake_node_upstream_clients", "", "upstream's clients that share memory")
MC_COUNTER(silent, "mooncake_node_upstream_dropped_total", "",
	   "upstream's clients dropped: silent, or their process ended")

struct mcn_up_shared {
	/* constant */
	uint64_t base, size;		/* in the client's address space */
	uid_t uid;
	int fd;
	dev_t dev;
	ino_t ino;			/* file */
	unsigned char *at;
	struct mcn_up_mapping *mapping;
	/* guarded by the lock */
	struct mc_list all, unused;
	unsigned refs;			/* one of the client, one per running operation */
};

struct dummy {
	struct mc_list link, bucket;
	struct mcn_up_uuid id;
	uid_t uid;
	pid_t pid;
	int process;			/* pidfd; -1: not available */
	uint64_t seen_ns;
	struct mcn_up_shared *memory[MCN_UP_DUMMY_MEMORIES];
	unsigned memories;
	struct mcn_up_shared *local;	/* one of them, or NULL */
	struct mcn_up_local *space;	/* its buffers */
};

struct mcn_up_dummies {
	struct mc_mutex lock;
	/* with the lock held */
	struct mc_list list, memories;
	struct mc_list unused;		/* memories without references, which the thread frees without the lock */
	struct mc_cond work;
	bool ends;
	struct mc_thread reaper;
	struct mc_list bucket[BUCKETS];
	unsigned n;
	struct mcn_up_locals locals;
	struct mcn_up_uuid told[TOLD];	/* clients that are unknown, and were told so */
};

static struct mc_list *dummy_bucket(struct mcn_up_dummies *all, struct mcn_up_uuid id)
{
	return &all->bucket[(id.first ^ id.second) % BUCKETS];
}

/* To another user a client must look unknown.  A request that names it is a sign of life. */
static struct dummy *dummy_find_locked(struct mcn_up_dummies *all, struct mcn_up_uuid id, uid_t uid)
{
	struct mc_list *pos;

	mc_list_for_each(pos, dummy_bucket(all, id)) {
		struct dummy *d = mc_container_of(pos, struct dummy, bucket);

		if (d->id.first != id.first || d->id.second != id.second)
			continue;
		if (uid && uid != d->uid)
			return NULL;
		d->seen_ns = mc_now_ns();
		return d;
	}
	return NULL;
}

static struct mcn_up_uuid *dummy_told(struct mcn_up_dummies *all, struct mcn_up_uuid id)
{
	return &all->told[(id.first ^ id.second) % TOLD];
}

static int dummy_unknown(void)
{
	return mc_fail(-MCS_EPARAM, "a client that shares no memory");
}

/* ---- memory ---- */

/* After the last reference the thread frees it: that takes long for large memory, and the loop must not wait. */
static void shared_unref_locked(struct mcn_up_dummies *all, struct mcn_up_shared *s)
{
	if (--s->refs)
		return;
	mc_list_push_back(&all->unused, &s->unused);
	mc_cond_signal(&all->work);
}

static void shared_unmap(struct mcn_up_shared *s)
{
	mcn_up_unmap(s->mapping);
	if (s->fd >= 0)
		close(s->fd);
}

static void *shared_reap(void *arg)
{
	struct mcn_up_dummies *all = arg;

	mc_mutex_lock(&all->lock);
	while (!mc_list_empty(&all->unused) || !all->ends) {
		struct mcn_up_shared *s;

		if (mc_list_empty(&all->unused)) {
			mc_cond_wait(&all->work, &all->lock);
			continue;
		}
		s = mc_list_first(&all->unused, struct mcn_up_shared, unused);
		mc_list_remove(&s->unused);
		mc_mutex_unlock(&all->lock);
		shared_unmap(s);
		mc_mutex_lock(&all->lock);
		mc_list_remove(&s->all);
		free(s);
	}
	mc_mutex_unlock(&all->lock);
	return NULL;
}

static int shared_check_locked(struct mcn_up_dummies *all, uid_t uid, uint64_t size)
{
	uint64_t bytes = 0;
	unsigned n = 0;
	struct mc_list *pos;

	mc_list_for_each(pos, &all->memories) {
		struct mcn_up_shared *s = mc_container_of(pos, struct mcn_up_shared, all);

		n += s->uid == uid;
		bytes += s->uid == uid ? s->size : 0;
	}
	if (n >= MCN_UP_UID_MEMORIES)
		return mc_fail(-ENOBUFS, "user %u shares %u memories", (unsigned)uid, n);
	if (size > MCN_UP_UID_BYTES || bytes > MCN_UP_UID_BYTES - size)
		return mc_fail(-ENOBUFS, "user %u shares %llu bytes, the limit is %llu", (unsigned)uid,
			       (unsigned long long)bytes, (unsigned long long)MCN_UP_UID_BYTES);
	return 0;
}

static int shared_new(const struct mcn_up_share *s, int fd, struct mcn_up_shared **ret)
{
	struct mcn_up_shared *m = calloc(1, sizeof(*m));
	struct stat st = { 0 };
	int r;

	if (!m)
		return -ENOMEM;
	m->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	r = m->fd < 0 || fstat(m->fd, &st) < 0 ? mc_fail(-errno, "memory of a client: %s", mc_strerror(errno)) : 0;
	m->base = s->base;
	m->size = s->size;
	m->uid = s->uid;
	m->dev = st.st_dev;
	m->ino = st.st_ino;
	m->refs = 1;
	mc_list_init(&m->all);
	mc_list_init(&m->unused);
	if (r == 0)
		r = mcn_up_map(m->fd, m->size, &m->mapping, &m->at);
	if (r < 0) {
		shared_unmap(m);
		free(m);
		return r;
	}
	*ret = m;
	return 0;
}

static bool shared_is_same(const struct mcn_up_shared *a, const struct mcn_up_shared *b)
{
	return a->base == b->base && a->size == b->size && a->dev == b->dev && a->ino == b->ino;
}

static bool shared_overlaps(const struct mcn_up_shared *a, const struct mcn_up_shared *b)
{
	return a->base < b->base + b->size && b->base < a->base + a->size;
}

/* Touching a page that does not exist would charge it to the daemon.  mincore() also misses pages in swap; the file
 * knows those. */
static bool shared_present(const struct mcn_up_shared *m, uint64_t at, uint64_t len)
{
	off_t hole;

	if (mcn_memory_is_present(m->at + at, len))
		return true;
	hole = lseek(m->fd, (off_t)at, SEEK_HOLE);
	return hole >= 0 && (uint64_t)hole >= at + len;
}

/* ---- clients ---- */

static void dummy_free(struct dummy *d)
{
	if (d->process >= 0)
		close(d->process);
	free(d);
}

static struct dummy *dummy_new(const struct mcn_up_share *s)
{
	struct dummy *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->id = s->id;
	d->uid = s->uid;
	d->pid = s->pid;
	d->process = s->pid > 0 ? (int)syscall(SYS_pidfd_open, s->pid, 0) : -1;
	d->seen_ns = mc_now_ns();
	return d;
}

static int dummy_admit_locked(struct mcn_up_dummies *all, uid_t uid)
{
	struct mc_list *pos;
	unsigned n = 0;

	mc_list_for_each(pos, &all->list)
		n += mc_container_of(pos, struct dummy, link)->uid == uid;
	if (all->n >= MCN_UP_DUMMIES_MAX || n >= MCN_UP_UID_DUMMIES)
		return mc_fail(-ENOBUFS, "there are %u clients, %u of them of user %u", all->n, n, (unsigned)uid);
	return 0;
}

static bool dummy_has_ended(const struct dummy *d)
{
	struct pollfd p = { .fd = d->process, .events = POLLIN };

	return p.fd >= 0 && poll(&p, 1, 0) > 0;
}

/* The client gives up one of its memories. */
static void dummy_lose_locked(struct mcn_up_dummies *all, struct dummy *d, unsigned i)
{
	if (d->memory[i] == d->local) {
		mcn_up_local_put(&all->locals, d->space, dummy_has_ended(d));
		d->local = NULL;
	}
	shared_unref_locked(all, d->memory[i]);
	d->memory[i] = d->memory[--d->memories];
}

/* Take the client out of the tables. */
static void dummy_remove_locked(struct mcn_up_dummies *all, struct dummy *d)
{
	mc_list_remove(&d->link);
	mc_list_remove(&d->bucket);
	all->n--;
	while (d->memories)
		dummy_lose_locked(all, d, 0);
	mc_metric_add(&ndummies, -1);
}

static unsigned dummy_index(const struct dummy *d, uint64_t base)
{
	unsigned i = 0;

	while (i < d->memories && d->memory[i]->base != base)
		i++;
	return i;
}

/* An address space has one memory at an address, so those of this client that were at the addresses of @m are gone,
 * without a word.  Returns 1 if @m itself is shared already. */
static int dummy_replace_locked(struct mcn_up_dummies *all, struct dummy *d, const struct mcn_up_share *s,
				const struct mcn_up_shared *m)
{
	for (unsigned i = 0; i < d->memories; ) {
		if (shared_is_same(d->memory[i], m) && (!s->local || d->memory[i] == d->local))
			return 1;
		if (shared_overlaps(d->memory[i], m))
			dummy_lose_locked(all, d, i);
		else
			i++;
	}
	return 0;
}

/* @d is new if it is on no list.  Returns 1 if the client has the memory already. */
static int dummy_add_locked(struct mcn_up_dummies *all, struct dummy *d, bool fresh, const struct mcn_up_share *s,
			    struct mcn_up_shared *m)
{
	int r;

	if (dummy_replace_locked(all, d, s, m))
		return 1;
	if (d->memories == MCN_UP_DUMMY_MEMORIES)
		return mc_fail(-ENOBUFS, "a client shares %u memories", d->memories);
	if (s->local && d->local)
		return mc_fail(-MCS_EEXISTS, "a client with two local memories");
	r = shared_check_locked(all, s->uid, s->size);
	if (r == 0 && fresh)
		r = dummy_admit_locked(all, s->uid);
	if (r == 0 && s->local)
		r = mcn_up_local_get(&all->locals, m->dev, m->ino, s->uid, s->size, &d->space);
	if (r < 0)
		return r;
	if (s->local)
		d->local = m;
	d->memory[d->memories++] = m;
	mc_list_push_back(&all->memories, &m->all);
	if (fresh) {
		mc_list_push_back(&all->list, &d->link);
		mc_list_push_back(dummy_bucket(all, d->id), &d->bucket);
		all->n++;
		*dummy_told(all, d->id) = (struct mcn_up_uuid){ 0 };
		mc_metric_add(&ndummies, 1);
	}
	return 0;
}

int mcn_up_dummy_share(struct mcn_up_dummies *all, const struct mcn_up_share *s, int fd, bool *ret_new)
{
	struct dummy *fresh = NULL, *d, *other;
	struct mcn_up_shared *m = NULL;
	int r;

	if (!s->base || s->size > UINT64_MAX - s->base)
		return mc_fail(-MCS_EPARAM, "memory of %llu bytes at %llx", (unsigned long long)s->size,
			       (unsigned long long)s->base);
	r = mcn_memory_check(fd, s->size, false);
	if (r == 0)
		r = shared_new(s, fd, &m);
	if (r < 0)
		return r;
	fresh = dummy_new(s);
	mc_mutex_lock(&all->lock);
	d = dummy_find_locked(all, s->id, s->uid);
	/* The name is another user's: it must not be taken over. */
	other = d ? NULL : dummy_find_locked(all, s->id, 0);
	if (other)
		r = mc_fail(-EACCES, "the client is one of user %u", (unsigned)other->uid);
	else if (!d && !fresh)
		r = -ENOMEM;
	else
		r = dummy_add_locked(all, d ? d : fresh, !d, s, m);
	mc_mutex_unlock(&all->lock);
	*ret_new = r == 0 && !d;
	if (fresh && !*ret_new)
		dummy_free(fresh);
	if (r) {
		shared_unmap(m);
		free(m);
	}
	return r < 0 ? r : 0;
}

int mcn_up_dummy_unshare(struct mcn_up_dummies *all, struct mcn_up_uuid id, uid_t uid, uint64_t base)
{
	struct dummy *d;
	unsigned i;

	mc_mutex_lock(&all->lock);
	d = dummy_find_locked(all, id, uid);
	i = d ? dummy_index(d, base) : 0;
	if (!d || i == d->memories) {
		mc_mutex_unlock(&all->lock);
		return mc_fail(-MCS_EPARAM, "memory that no client shares");
	}
	dummy_lose_locked(all, d, i);
	mc_mutex_unlock(&all->lock);
	return 0;
}

int mcn_up_dummy_drop(struct mcn_up_dummies *all, struct mcn_up_uuid id, uid_t uid)
{
	struct dummy *d;

	mc_mutex_lock(&all->lock);
	d = dummy_find_locked(all, id, uid);
	if (d) {
		dummy_remove_locked(all, d);
		/* It asked for it, and has to be told nothing when it pings before its end. */
		*dummy_told(all, id) = id;
	}
	mc_mutex_unlock(&all->lock);
	if (!d)
		return dummy_unknown();
	dummy_free(d);
	return 0;
}

bool mcn_up_dummy_known(struct mcn_up_dummies *all, struct mcn_up_uuid id, uid_t uid)
{
	MC_LOCKED(&all->lock);
	return dummy_find_locked(all, id, uid) != NULL;
}

bool mcn_up_dummy_shares(struct mcn_up_dummies *all, struct mcn_up_uuid id, uid_t uid, uint64_t base)
{
	struct dummy *d;

	MC_LOCKED(&all->lock);
	d = dummy_find_locked(all, id, uid);
	return d && dummy_index(d, base) < d->memories;
}

bool mcn_up_dummy_ping(struct mcn_up_dummies *all, struct mcn_up_uuid id, uid_t uid)
{
	struct mcn_up_uuid *told = dummy_told(all, id);
	struct dummy *d;
	bool known;

	MC_LOCKED(&all->lock);
	d = dummy_find_locked(all, id, uid);
	known = d || (told->first == id.first && told->second == id.second);
	if (!d)
		*told = id;
	return known;
}

/* A process that lives may be stopped, and use its buffers later. */
static bool dummy_is_gone(const struct dummy *d, uint64_t now)
{
	return dummy_has_ended(d) || (d->process < 0 && now - d->seen_ns > MCN_UP_SILENCE_MS * MC_NS_PER_MS);
}

void mcn_up_dummies_sweep(struct mcn_up_dummies *all)
{
	uint64_t now = mc_now_ns();
	struct mc_list *pos, *tmp, gone;

	mc_list_init(&gone);
	mc_mutex_lock(&all->lock);
	mc_list_for_each_safe(pos, tmp, &all->list) {
		struct dummy *d = mc_container_of(pos, struct dummy, link);

		if (!dummy_is_gone(d, now))
			continue;
		dummy_remove_locked(all, d);
		mc_list_push_back(&gone, &d->link);
	}
	mc_mutex_unlock(&all->lock);
	while (!mc_list_empty(&gone)) {
		struct dummy *d = mc_list_first(&gone, struct dummy, link);

		mc_info("node", "upstream's client dropped: %s pid=%d", d->process < 0 ? "silent" : "its process ended",
			(int)d->pid);
		mc_metric_add(&silent, 1);
		mc_list_remove(&d->link);
		dummy_free(d);
	}
}

/* ---- operations ---- */

int mcn_up_hold(struct mcn_up_dummies *all, struct mcn_up_uuid id, uid_t uid, uint64_t addr, uint64_t len,
		struct mcn_up_holds *h, void **ret)
{
	struct mcn_up_shared *m = NULL;
	struct dummy *d;

	mc_mutex_lock(&all->lock);
	d = dummy_find_locked(all, id, uid);
	for (unsigned i = 0; d && i < d->memories && !m; i++) {
		struct mcn_up_shared *s = d->memory[i];

		if (addr >= s->base && addr - s->base <= s->size && len <= s->size - (addr - s->base))
			m = s;
	}
	if (m && h->n < h->max) {
		m->refs++;
		h->v[h->n++] = m;
	} else {
		m = NULL;
	}
	mc_mutex_unlock(&all->lock);
	if (!m)
		return mc_fail(-MCS_EPARAM, "%llu bytes at %llx, which the client does not share",
			       (unsigned long long)len, (unsigned long long)addr);
	if (mcn_up_broken(m->mapping) || !shared_present(m, addr - m->base, len))
		return mc_fail(-EFAULT, "memory of a client from which pages were removed");
	*ret = m->at + (addr - m->base);
	return 0;
}

bool mcn_up_release(struct mcn_up_dummies *all, struct mcn_up_holds *h)
{
	bool whole = true;

	for (unsigned i = 0; i < h->n; i++)
		whole = whole && !mcn_up_broken(h->v[i]->mapping);
	mc_mutex_lock(&all->lock);
	for (unsigned i = 0; i < h->n; i++)
		shared_unref_locked(all, h->v[i]);
	mc_mutex_unlock(&all->lock);
	h->n = 0;
	return whole;
}

int mcn_up_buffer_alloc(struct mcn_up_dummies *all, struct mcn_up_uuid id, uid_t uid, uint64_t len,
			struct mcn_up_buffer *ret)
{
	struct dummy *d;
	uint64_t at = 0;
	int r;

	MC_LOCKED(&all->lock);
	d = dummy_find_locked(all, id, uid);
	if (!d || !d->local)
		return mc_fail(-MCS_EPARAM, "a client without local memory");
	r = mcn_up_local_alloc(&all->locals, d->space, len, &at, &ret->ticket);
	if (r == 0)
		ret->addr = d->local->base + at;
	return r;
}

int mcn_up_buffer_free(struct mcn_up_dummies *all, struct mcn_up_uuid id, uid_t uid, uint64_t addr)
{
	struct dummy *d;

	MC_LOCKED(&all->lock);
	d = dummy_find_locked(all, id, uid);
	if (!d)
		return dummy_unknown();
	if (d->local)
		mcn_up_local_free(d->space, addr - d->local->base);
	return 0;
}

void mcn_up_buffer_cancel(struct mcn_up_dummies *all, const struct mcn_up_buffer *b)
{
	MC_LOCKED(&all->lock);
	mcn_up_local_cancel(&all->locals, b->ticket);
}

/* ---- all ---- */

int mcn_up_dummies_new(struct mcn_up_dummies **ret)
{
	struct mcn_up_dummies *all = calloc(1, sizeof(*all));
	int r;

	if (!all)
		return -ENOMEM;
	mc_mutex_init(&all->lock);
	mc_list_init(&all->list);
	mc_list_init(&all->memories);
	mc_list_init(&all->unused);
	mc_list_init(&all->locals.list);
	for (unsigned i = 0; i < BUCKETS; i++)
		mc_list_init(&all->bucket[i]);
	(void)mc_cond_init(&all->work);
	r = mc_thread_start(&all->reaper, "mcn-unmap", shared_reap, all);
	if (r < 0) {
		mc_cond_destroy(&all->work);
		mc_mutex_destroy(&all->lock);
		free(all);
		return r;
	}
	*ret = all;
	return 0;
}

unsigned mcn_up_dummies_count(struct mcn_up_dummies *all)
{
	MC_LOCKED(&all->lock);
	return all->n;
}

void mcn_up_dummies_free(struct mcn_up_dummies *all)
{
	if (!all)
		return;
	while (!mc_list_empty(&all->list)) {
		struct dummy *d = mc_list_first(&all->list, struct dummy, link);

		mc_mutex_lock(&all->lock);
		dummy_remove_locked(all, d);
		mc_mutex_unlock(&all->lock);
		dummy_free(d);
	}
	mc_mutex_lock(&all->lock);
	all->ends = true;
	mc_cond_signal(&all->work);
	mc_mutex_unlock(&all->lock);
	mc_thread_join(all->reaper);
	mcn_up_locals_done(&all->locals);
	mc_cond_destroy(&all->work);
	mc_mutex_destroy(&all->lock);
	free(all);
}
