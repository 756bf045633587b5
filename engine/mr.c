/* SPDX-License-Identifier: Apache-2.0
 * mr.c - the table of registered memory.
 *
 * A thread that touches a region on behalf of a peer holds a reference.  Unregister removes the
 * region from the table first, so that no new references appear, then makes the services drop theirs. */
#include <config.h>

#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/dax.h"
#include "common/err.h"
#include "common/metrics.h"
#include "common/process/fork.h"
#include "common/sys/random.h"
#include "engine/engine_i.h"
#include "engine/gpu/gpu_i.h"

/* In mce_mr.refs: unregister waits. */
#define WAITER (1u << 31)
/* The addresses of media are multiples of it. */
#define MEDIUM_GAP (1ull << 30)

MC_GAUGE(regions, "mooncake_transfer_regions", "", "Memory regions registered in this process")

static struct mce_mr **mr_bucket(struct mce_mr_table *t, uint64_t rkey)
{
	return &t->bucket[rkey % MCE_MR_BUCKETS];
}

int mce_mr_table_init(struct mce_mr_table *t)
{
	memset(t, 0, sizeof(*t));
	t->next_base = MCE_MEDIUM_BASE;
	return -mc_rwlock_init(&t->lock);
}

void mce_mr_table_clear(struct mce_mr_table *t)
{
	while (t->n)
		mce_mr_unregister(t->by_base[t->n - 1]);
}

void mce_mr_table_done(struct mce_mr_table *t)
{
	free(t->by_base);
	mc_rwlock_destroy(&t->lock);
}

int mce_range_check(uint64_t base, uint64_t room, uint64_t addr, uint64_t len)
{
	if (addr < base || addr - base > room || len > room - (addr - base))
		return -ERANGE;
	return 0;
}

/* ---- lookup ------------------------------------------------------------------------------------ */

/* Index of the first region that begins behind @base. */
static unsigned mr_position(const struct mce_mr_table *t, uint64_t base)
{
	unsigned lo = 0, hi = t->n;

	while (lo < hi) {
		unsigned mid = (lo + hi) / 2;

		if (t->by_base[mid]->base <= base)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

int mce_mr_find(struct mce_engine *e, uint64_t rkey, struct mce_mr **ret)
{
	struct mce_mr_table *t = &e->mrs;
	struct mce_mr *mr;

	mc_rwlock_rdlock(&t->lock);
	for (mr = *mr_bucket(t, rkey); mr && mr->rkey != rkey; mr = mr->next)
		;
	if (mr)
		__atomic_fetch_add(&mr->refs, 1, __ATOMIC_RELAXED);
	mc_rwlock_unlock(&t->lock);
	if (!mr)
		return -ESTALE;
	*ret = mr;
	return 0;
}

bool mce_mr_is_medium(struct mce_engine *e, uint64_t rkey)
{
	struct mce_mr *mr;
	bool medium;

	if (mce_mr_find(e, rkey, &mr) < 0)
		return false;
	medium = mr->medium != NULL;
	mce_mr_unref(mr);
	return medium;
}

int mce_mr_get(struct mce_engine *e, uint64_t rkey, uint64_t addr, uint64_t len, unsigned access,
	       struct mce_mr **ret)
{
	struct mce_mr *mr;
	int r;

	r = mce_mr_find(e, rkey, &mr);
	if (r < 0)
		return r;
	r = mce_range_check(mr->base, mr->len, addr, len);
	if (r == 0 && !(mr->access & access))
		r = -EACCES;
	if (r < 0) {
		mce_mr_unref(mr);
		return r;
	}
	*ret = mr;
	return 0;
}

int mce_mr_get_at(struct mce_engine *e, uint64_t addr, uint64_t len, unsigned access, struct mce_mr **ret)
{
	struct mce_mr_table *t = &e->mrs;
	struct mce_mr *mr = NULL;
	unsigned at;
	int r = -ERANGE;

	mc_rwlock_rdlock(&t->lock);
	at = mr_position(t, addr);
	if (at > 0) {
		mr = t->by_base[at - 1];
		r = mce_range_check(mr->base, mr->len, addr, len);
	}
	if (r == 0 && (len == 0 || (mr->access & access) != access))
		r = len ? -EACCES : -ERANGE;
	if (r == 0)
		__atomic_fetch_add(&mr->refs, 1, __ATOMIC_RELAXED);
	mc_rwlock_unlock(&t->lock);
	if (r == 0)
		*ret = mr;
	return r;
}

static int mr_ask_numa(struct mce_engine *e, const struct mce_mr *mr)
{
	int at = e->conf.numa_of(e->conf.numa_arg, (const void *)(uintptr_t)mr->base, mr->len);

	/* Pages are allocated at the first touch, so the answer may exist later. */
	if (at == -ENODATA)
		return MCE_NUMA_ASK;
	return at >= 0 && at < (int)e->numa_nodes ? at : MCE_NUMA_ANY;
}

int mce_mr_numa_node(struct mce_engine *e, uint64_t addr)
{
	struct mce_mr_table *t = &e->mrs;
	int numa = MCE_NUMA_ANY;
	unsigned at;

	if (!e->numa_nodes)
		return numa;
	mc_rwlock_rdlock(&t->lock);
	at = mr_position(t, addr);
	if (at > 0 && addr - t->by_base[at - 1]->base < t->by_base[at - 1]->len) {
		struct mce_mr *mr = t->by_base[at - 1];

		numa = __atomic_load_n(&mr->numa, __ATOMIC_RELAXED);
		if (numa == MCE_NUMA_ASK) {
			numa = mr_ask_numa(e, mr);
			__atomic_store_n(&mr->numa, numa, __ATOMIC_RELAXED);
		}
	}
	mc_rwlock_unlock(&t->lock);
	return numa < 0 ? MCE_NUMA_ANY : numa;
}

void mce_mr_unref(struct mce_mr *mr)
{
	/* The waiter may free the region as soon as only its own reference is left; after that only the
	 * address is used. */
	uint32_t *refs = &mr->refs;

	if (__atomic_sub_fetch(refs, 1, __ATOMIC_ACQ_REL) == (WAITER | 1))
		syscall(SYS_futex, refs, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* ---- register ---------------------------------------------------------------------------------- */

static int attr_check(const struct mce_engine *e, const struct mce_mr_attr *a)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	int64_t size;

	if (a->medium)
		return a->base || a->len == 0 || a->len > MCE_MEDIUM_BASE / 2 || a->access != MCE_ACCESS_READ ||
		       a->fd >= 0 ? mc_fail(-EINVAL, "a medium is registered without memory, for reading") : 0;
	if (!a->base || a->len == 0 || (uintptr_t)a->base + a->len < (uintptr_t)a->base)
		return mc_fail(-EINVAL, "memory region %p of %llu bytes is not valid", a->base,
			       (unsigned long long)a->len);
	if (a->numa > e->numa_nodes && a->numa)
		return mc_fail(-EINVAL, "NUMA node index %u is out of range", a->numa - 1);
	if (a->access & ~(MCE_ACCESS_READ | MCE_ACCESS_WRITE))
		return mc_fail(-EINVAL, "unknown access bits 0x%x", a->access);
	if (a->fd < 0)
		return 0;
	if (a->fd_offset % page || (uintptr_t)a->base % page)
		return mc_fail(-EINVAL, "a region with a descriptor begins on a page");
	size = mc_dax_mappable(a->fd);
	if (size < 0)
		return mc_fail((int)size, "descriptor of the region: %s", mc_strerror((int)size));
	/* A mapper that touches pages behind the end of the file would be killed. */
	if (mce_range_check(0, (uint64_t)size, a->fd_offset, a->len))
		return mc_fail(-EINVAL, "the region's file ends before the region");
	return 0;
}

static int mr_insert_locked(struct mce_mr_table *t, struct mce_mr *mr)
{
	unsigned at = mr_position(t, mr->base);

	if ((at > 0 && t->by_base[at - 1]->base + t->by_base[at - 1]->len > mr->base) ||
	    (at < t->n && mr->base + mr->len > t->by_base[at]->base))
		return mc_fail(-EEXIST, "memory region overlaps a registered one");
	if (t->n == t->cap) {
		unsigned cap = t->cap ? t->cap * 2 : 16;
		struct mce_mr **more = realloc(t->by_base, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		t->by_base = more;
		t->cap = cap;
	}
	memmove(t->by_base + at + 1, t->by_base + at, (t->n - at) * sizeof(*t->by_base));
	t->by_base[at] = mr;
	t->n++;
	mr->next = *mr_bucket(t, mr->rkey);
	*mr_bucket(t, mr->rkey) = mr;
	return 0;
}

static void mr_remove_locked(struct mce_mr_table *t, struct mce_mr *mr)
{
	unsigned at = mr_position(t, mr->base) - 1;
	struct mce_mr **pp;

	memmove(t->by_base + at, t->by_base + at + 1, (t->n - at - 1) * sizeof(*t->by_base));
	t->n--;
	for (pp = mr_bucket(t, mr->rkey); *pp != mr; pp = &(*pp)->next)
		;
	*pp = mr->next;
}

/* No peer reaches the memory after return; no reference is left. */
static void mr_free(struct mce_mr *mr)
{
	for (const struct mce_service *const *s = mce_services; *s; s++)
		(*s)->revoke_wait(mr);
	mce_pins_free(mr->pins);
	free(mr);
}

int mce_mr_register(struct mce_engine *e, const struct mce_mr_attr *a, struct mce_mr **ret)
{
	struct mce_mr *mr;
	int r;

	r = attr_check(e, a);
	if (r < 0)
		return r;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return -ENOMEM;
	mr->e = e;
	mr->base = (uintptr_t)a->base;
	mr->len = a->len;
	mr->medium = a->medium;
	mr->access = a->medium ? MCE_ACCESS_MEDIUM : a->access;
	mr->guarded = a->guarded && mce_proves_identities(e);
	r = mr->guarded ? mc_random_bytes(mr->cap_key, sizeof(mr->cap_key)) : 0;
	if (r < 0) {
		free(mr);
		return r;
	}
	mr->has_file = a->fd >= 0;
	mr->fd_offset = a->fd_offset;
	mr->gpu = a->medium ? -1 : mc_gpu_of(a->base);
	mr->numa = mr->gpu >= 0 ? MCE_NUMA_ANY : a->numa ? (int)a->numa - 1 : MCE_NUMA_ASK;
	mr->refs = 1;
	do
		mr->rkey = mc_random_u64();
	while (mr->rkey == 0);
	for (const struct mce_service *const *s = mce_services; *s; s++)
		(*s)->region_add(mr, a);
	mc_rwlock_wrlock(&e->mrs.lock);
	if (mr->medium) {
		mr->base = e->mrs.next_base;
		e->mrs.next_base += (mr->len | (MEDIUM_GAP - 1)) + 1;
	}
	r = mr_insert_locked(&e->mrs, mr);
	mc_rwlock_unlock(&e->mrs.lock);
	if (r < 0) {
		mr_free(mr);
		return r;
	}
	mc_metric_add(&regions, 1);
	*ret = mr;
	return 0;
}

void mce_mr_unregister(struct mce_mr *mr)
{
	struct mce_engine *e;
	uint32_t refs;

	/* In a forked child no thread would drop its references. */
	if (!mr || mc_fork_check(mr->e->fork_depth) < 0)
		return;
	e = mr->e;
	mc_rwlock_wrlock(&e->mrs.lock);
	mr_remove_locked(&e->mrs, mr);
	__atomic_store_n(&mr->dead, true, __ATOMIC_RELEASE);
	mc_rwlock_unlock(&e->mrs.lock);
	for (const struct mce_service *const *s = mce_services; *s; s++)
		(*s)->revoke_begin(mr);
	/* The remaining references are those of local copies in other threads, and of lookups. */
	refs = __atomic_or_fetch(&mr->refs, WAITER, __ATOMIC_ACQ_REL);
	while (refs != (WAITER | 1)) {
		syscall(SYS_futex, &mr->refs, FUTEX_WAIT_PRIVATE, refs, NULL, NULL, 0);
		refs = __atomic_load_n(&mr->refs, __ATOMIC_ACQUIRE);
	}
	mr_free(mr);
	mc_metric_add(&regions, -1);
}

uint64_t mce_mr_base(const struct mce_mr *mr)
{
	return mr->base;
}

bool mce_mr_capability_key(const struct mce_mr *mr, uint8_t ret[MC_CAPABILITY_KEY])
{
	if (mr->guarded)
		memcpy(ret, mr->cap_key, MC_CAPABILITY_KEY);
	return mr->guarded;
}

uint64_t mce_mr_rkey(const struct mce_mr *mr)
{
	return mr->rkey;
}
