/* SPDX-License-Identifier: Apache-2.0
 * mapped.c - entries by key, and the memory of the copies. */
#include <config.h>

#include "node/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/hash.h"
#include "common/list.h"
#include "common/metrics.h"
#include "common/space.h"
#include "common/sys/clock.h"
#include "common/sys/lock.h"

#define BUCKETS 4096u
#define GRAIN 4096u
#define ENTRIES_MAX 65536u	/* without references */
#define SWEEP_MS_MIN 10

MC_COUNTER(hits, "mooncake_node_hot_hits_total", "", "objects mapped without a request to the master")
MC_COUNTER(fetched, "mooncake_node_fetched_bytes_total", "", "bytes of other nodes' objects copied "
	   "to this node to be mapped")
MC_GAUGE(entries, "mooncake_node_hot_entries", "", "objects mapped now or recently")

struct mcn_entry {
	/* constant */
	struct mcn_extent extent;
	mcs_object_t *object;		/* NULL: a copy in @base */
	uint64_t hash;
	/* guarded by the lock */
	struct mcn_entry *next;		/* in the bucket */
	bool listed;			/* in a bucket, so lookups find it */
	unsigned refs;
	uint64_t checked_ns;		/* last time at which it was known to be the current version */
	struct mc_list idle;		/* refs 0: ordered by idle time, longest first */
	size_t key_len;
	unsigned char key[];
};

struct mcn_mapped {
	/* constant */
	mcs_t *store;
	uint64_t age_ns;
	int fd;				/* for reading */
	unsigned char *base;
	uint64_t size;

	struct mc_mutex lock;
	/* with the lock held */
	struct mcn_entry *bucket[BUCKETS];
	struct mc_list idle;
	unsigned nidle;
	struct mc_space space;
};

/* ---- the memory of copies ---- */

static int copies_open(struct mcn_mapped *m, uint64_t size)
{
	auto_close int fd = -1;
	char path[64];

	m->size = size & ~(uint64_t)(GRAIN - 1);
	if (!m->size)
		return 0;
	fd = memfd_create("mooncake-hot", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || ftruncate(fd, (off_t)m->size) < 0)
		return mc_fail(-errno, "memory for %llu bytes: %s", (unsigned long long)m->size,
			       mc_strerror(errno));
	m->base = mmap(NULL, m->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m->base == MAP_FAILED) {
		m->base = NULL;
		return mc_fail(-errno, "memory for %llu bytes: %s", (unsigned long long)m->size,
			       mc_strerror(errno));
	}
	(void)madvise(m->base, m->size, MADV_HUGEPAGE);
	/* Receivers of the descriptor may neither write through it nor reopen it for writing. */
	(void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE);
	(void)fchmod(fd, 0400);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	m->fd = open(path, O_RDONLY | O_CLOEXEC);
	return m->fd < 0 ? mc_fail(-errno, "%s: %s", path, mc_strerror(errno)) : 0;
}

int mcn_mapped_new(mcs_t *store, uint64_t size, unsigned ms, struct mcn_mapped **ret)
{
	struct mcn_mapped *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return -ENOMEM;
	m->store = store;
	m->age_ns = ms * MC_NS_PER_MS;
	m->fd = -1;
	mc_mutex_init(&m->lock);
	mc_list_init(&m->idle);
	r = copies_open(m, size);
	if (r == 0)
		r = mc_space_init(&m->space, m->size, GRAIN);
	if (r < 0) {
		mcn_mapped_free(m);
		return r;
	}
	*ret = m;
	return 0;
}

int mcn_mapped_fd(const struct mcn_mapped *m)
{
	return m->fd;
}

uint64_t mcn_mapped_size(const struct mcn_mapped *m)
{
	return m->size;
}

/* ---- entries ---- */

/* Entries of the own segment and entries that are copies in any case have different hashes. */
static uint64_t entry_hash(struct mcs_key key, bool copied)
{
	return mc_hash(key.data, key.len, copied);
}

static struct mcn_entry **entry_find(struct mcn_mapped *m, uint64_t hash, struct mcs_key key)
{
	struct mcn_entry **p = &m->bucket[hash % BUCKETS];

	while (*p && ((*p)->hash != hash || (*p)->key_len != key.len ||
		      memcmp((*p)->key, key.data, key.len)))
		p = &(*p)->next;
	return p;
}

static void entry_unlist_locked(struct mcn_mapped *m, struct mcn_entry *e)
{
	struct mcn_entry **p = &m->bucket[e->hash % BUCKETS];

	if (!e->listed)
		return;
	while (*p != e)
		p = &(*p)->next;
	*p = e->next;
	e->listed = false;
}

/* Free an entry without references.  Returns its object, which the caller closes after the unlock. */
static mcs_object_t *entry_drop_locked(struct mcn_mapped *m, struct mcn_entry *e)
{
	mcs_object_t *o = e->object;

	entry_unlist_locked(m, e);
	if (!mc_list_empty(&e->idle)) {
		mc_list_remove(&e->idle);
		m->nidle--;
	}
	if (!o && e->extent.size)
		mc_space_give(&m->space, e->extent.offset, e->extent.size);
	mc_metric_add(&entries, -1);
	free(e);
	return o;
}

static void entry_ref_locked(struct mcn_mapped *m, struct mcn_entry *e)
{
	if (e->refs++)
		return;
	if (!mc_list_empty(&e->idle)) {
		mc_list_remove(&e->idle);
		m->nidle--;
	}
}

void mcn_mapped_ref(struct mcn_mapped *m, struct mcn_entry *e)
{
	MC_LOCKED(&m->lock);
	e->refs++;
}

int mcn_mapped_held(const struct mcn_entry *e)
{
	int r = mc_fault("node.held");

	if (r < 0)
		return r;
	/* The daemon owns its copies. */
	return e->object ? mcs_object_held(e->object) : 0;
}

void mcn_mapped_put(struct mcn_mapped *m, struct mcn_entry *e)
{
	mcs_object_t *o = NULL;

	if (!e)
		return;
	mc_mutex_lock(&m->lock);
	if (!--e->refs) {
		if (e->listed && m->nidle < ENTRIES_MAX) {
			mc_list_push_back(&m->idle, &e->idle);
			m->nidle++;
		} else {
			o = entry_drop_locked(m, e);
		}
	}
	mc_mutex_unlock(&m->lock);
	mcs_object_close(o);
}

static void key_drop_one(struct mcn_mapped *m, struct mcs_key key, uint64_t hash, bool pin, bool forget)
{
	mcs_object_t *o = NULL;
	struct mcn_entry *e;

	mc_mutex_lock(&m->lock);
	e = *entry_find(m, hash, key);
	if (e && !e->refs && (e->object || !pin))
		o = entry_drop_locked(m, e);
	else if (e && forget)
		entry_unlist_locked(m, e);
	mc_mutex_unlock(&m->lock);
	mcs_object_close(o);
}

/* Drop the entries of the key that have no references (@pin: and have a pin).  @forget: else lookups find them no
 * more. */
static void key_drop(struct mcn_mapped *m, struct mcs_key key, bool pin, bool forget)
{
	key_drop_one(m, key, entry_hash(key, false), pin, forget);
	key_drop_one(m, key, entry_hash(key, true), pin, forget);
}

void mcn_mapped_release(struct mcn_mapped *m, struct mcs_key key)
{
	key_drop(m, key, true, false);
}

void mcn_mapped_forget(struct mcn_mapped *m, struct mcs_key key)
{
	key_drop(m, key, false, true);
}

/* Release one expired object of the own segment; one per lock hold. */
static bool sweep_one(struct mcn_mapped *m, uint64_t before)
{
	mcs_object_t *o = NULL;
	struct mc_list *pos;

	mc_mutex_lock(&m->lock);
	mc_list_for_each(pos, &m->idle) {
		struct mcn_entry *e = mc_container_of(pos, struct mcn_entry, idle);

		if (e->object && e->checked_ns < before) {
			o = entry_drop_locked(m, e);
			break;
		}
	}
	mc_mutex_unlock(&m->lock);
	mcs_object_close(o);
	return o;
}

/* Entries expire after half of the lease time and are found at most a quarter of it later. */
unsigned mcn_mapped_sweep(struct mcn_mapped *m)
{
	uint64_t now = mc_now_ns(), lease = mcs_lease_ms(m->store) * MC_NS_PER_MS;
	uint64_t age = m->age_ns < lease / 2 ? m->age_ns : lease / 2;
	uint64_t every = m->age_ns / 2 < lease / 4 ? m->age_ns / 2 : lease / 4;

	while (sweep_one(m, now > age ? now - age : 0))
		;
	return every > SWEEP_MS_MIN * MC_NS_PER_MS ? (unsigned)(every / MC_NS_PER_MS) : SWEEP_MS_MIN;
}

void mcn_mapped_free(struct mcn_mapped *m)
{
	if (!m)
		return;
	while (!mc_list_empty(&m->idle))
		mcs_object_close(entry_drop_locked(m, mc_list_first(&m->idle, struct mcn_entry, idle)));
	mc_space_done(&m->space);
	if (m->base)
		munmap(m->base, m->size);
	if (m->fd >= 0)
		close(m->fd);
	mc_mutex_destroy(&m->lock);
	free(m);
}

/* ---- lookup and fetch ---- */

/* Allocate space for a copy; frees unreferenced copies, longest idle first, until there is enough. */
static int copies_take(struct mcn_mapped *m, uint64_t size, uint64_t *ret_at)
{
	struct mc_list *pos, *tmp;
	int r;

	if (size > m->size)
		return mc_fail(-ENOBUFS, "another node's object of %llu bytes cannot be mapped: "
			       "hot_cache_size is %llu",
			       (unsigned long long)size, (unsigned long long)m->size);
	MC_LOCKED(&m->lock);
	r = mc_space_take(&m->space, size, ret_at);
	mc_list_for_each_safe(pos, tmp, &m->idle) {
		struct mcn_entry *e = mc_container_of(pos, struct mcn_entry, idle);

		if (r != -ENOBUFS)
			break;
		if (e->object)
			continue;
		(void)entry_drop_locked(m, e);
		r = mc_space_take(&m->space, size, ret_at);
	}
	return r == -ENOBUFS ? mc_fail(r, "hot_cache_size is used up by mapped objects of other nodes") : r;
}

static void copies_give(struct mcn_mapped *m, uint64_t at, uint64_t size)
{
	MC_LOCKED(&m->lock);
	mc_space_give(&m->space, at, size);
}

static int entry_copy(struct mcn_mapped *m, mcs_object_t *o, uint64_t size, int64_t timeout_ms,
		     uint64_t *ret_at)
{
	struct iovec iov;
	int64_t n;
	int r = copies_take(m, size, ret_at);

	if (r < 0)
		return r;
	iov = (struct iovec){ m->base + *ret_at, size };
	n = mcs_object_read(o, 0, &iov, 1, timeout_ms);
	if (n == (int64_t)size) {
		mc_metric_add(&fetched, n);
		return 0;
	}
	copies_give(m, *ret_at, size);
	return n < 0 ? (int)n : mc_fail(-EIO, "short read of an object");
}

/* Create an entry for @o.  Takes ownership of @o: the entry keeps it, or it is closed here.  @copied: it is a copy also
 * if the object lies in the own segment. */
static int entry_make(struct mcn_mapped *m, struct mcs_key key, bool copied, mcs_object_t *o, int64_t timeout_ms,
		struct mcn_entry **ret)
{
	const struct mcs_info *info = mcs_object_info(o);
	struct mcn_entry *e = calloc(1, sizeof(*e) + key.len);
	int r = 0;

	if (!e) {
		mcs_object_close(o);
		return -ENOMEM;
	}
	e->extent = (struct mcn_extent){
		.size = info->size, .generation = info->generation, .mtime_ms = info->mtime_ms,
		.crc32c = info->crc32c, .flags = (uint8_t)info->flags,
		.kind = (uint8_t)((unsigned)info->kind | (unsigned)info->data_type << 4),
		.replicas = (uint8_t)info->replicas,
	};
	e->hash = entry_hash(key, copied);
	e->key_len = key.len;
	memcpy(e->key, key.data, key.len);
	mc_list_init(&e->idle);
	if (info->size && !copied && mcs_object_offset(o, &e->extent.offset) == 0) {
		e->object = o;
	} else {
		if (info->size) {
			e->extent.segment = 1;
			r = entry_copy(m, o, info->size, timeout_ms, &e->extent.offset);
		}
		mcs_object_close(o);
	}
	if (r < 0) {
		free(e);
		return r;
	}
	mc_metric_add(&entries, 1);
	*ret = e;
	return 0;
}

/* Look up the entry of a version and reference it.  With generation 0: the entry that was current after
 * @checked_after.  NULL: none. */
static struct mcn_entry *entry_known(struct mcn_mapped *m, struct mcs_key key, bool copied, uint64_t generation,
			       uint64_t checked_after, uint64_t now)
{
	struct mcn_entry *e;

	MC_LOCKED(&m->lock);
	e = *entry_find(m, entry_hash(key, copied), key);
	if (!e || (generation ? e->extent.generation != generation : e->checked_ns < checked_after))
		return NULL;
	if (now)
		e->checked_ns = now;
	entry_ref_locked(m, e);
	return e;
}

/* Publish @e as the entry of its key, unless another thread published this version first; that entry is returned. */
static struct mcn_entry *entry_publish(struct mcn_mapped *m, struct mcn_entry *e, uint64_t asked_ns)
{
	struct mcs_key key = { e->key, e->key_len };
	mcs_object_t *o = NULL;
	struct mcn_entry *old;

	mc_mutex_lock(&m->lock);
	old = *entry_find(m, e->hash, key);
	if (old && old->extent.generation == e->extent.generation && !old->object) {
		/* Two copies are equivalent.  Of two pins the newer one is certain to hold, so that one replaces. */
		o = entry_drop_locked(m, e);
		e = old;
	} else if (!old || old->extent.generation <= e->extent.generation) {
		if (old && !old->refs)
			o = entry_drop_locked(m, old);
		else if (old)
			entry_unlist_locked(m, old);
		e->next = m->bucket[e->hash % BUCKETS];
		m->bucket[e->hash % BUCKETS] = e;
		e->listed = true;
	}
	/* If a newer version was published meanwhile, @e stays unlisted: this caller uses it, lookups do not. */
	entry_ref_locked(m, e);
	e->checked_ns = e->checked_ns > asked_ns ? e->checked_ns : asked_ns;
	mc_mutex_unlock(&m->lock);
	mcs_object_close(o);
	return e;
}

/* The pin of an open object can be lost: then drop the entry. */
static struct mcn_entry *entry_still_held(struct mcn_mapped *m, struct mcs_key key, struct mcn_entry *e)
{
	if (!e || mcn_mapped_held(e) == 0)
		return e;
	mcn_mapped_forget(m, key);
	mcn_mapped_put(m, e);
	return NULL;
}

int mcn_mapped_get(struct mcn_mapped *m, struct mcs_key key, bool copied, bool hot, int64_t timeout_ms,
		struct mcn_entry **ret, struct mcn_extent *ret_extent)
{
	uint64_t now = mc_now_ns(), after = now > m->age_ns ? now - m->age_ns : 0;
	struct mcn_entry *e = hot && m->age_ns ? entry_known(m, key, copied, 0, after, 0) : NULL;
	mcs_object_t *o;
	int r;

	e = entry_still_held(m, key, e);
	if (e) {
		mc_metric_add(&hits, 1);
	} else {
		r = mcs_object_open(m->store, key, &o, timeout_ms);
		if (r < 0)
			return r;
		e = entry_still_held(m, key, entry_known(m, key, copied, mcs_object_info(o)->generation, 0, now));
		if (e) {
			mcs_object_close(o);
		} else {
			r = entry_make(m, key, copied, o, timeout_ms, &e);
			if (r < 0)
				return r;
			e = entry_publish(m, e, now);
		}
	}
	*ret_extent = e->extent;
	*ret = e;
	return 0;
}
