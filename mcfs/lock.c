/* SPDX-License-Identifier: Apache-2.0
 * lock.c - file locks by key: held locks and queued requests, served in order of arrival. */
#include <config.h>
#include "mcfs/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/hash.h"
#include "mcfs/life/handoff.h"
#include "mcfs/handle.h"
#include "mcfs/mcfs.h"

/* longest chain of waiting owners that deadlock detection follows */
#define CHAIN_MAX 64
/* The errno of fcntl(2) for a failed lock service. EINTR would make the kernel repeat the request,
 * and would show programs the internal error 512 although no signal arrived. */
#define HUNG_UP (-ENOLCK)

struct lock_file {
	struct mc_list link;
	struct mc_list held;		/* struct held */
	struct mc_list waiting;		/* struct mcfs_lock_wait, oldest first */
	unsigned users;			/* threads that released the lock and will return to this file */
	uint64_t hash;
	size_t key_len;
	char key[];
};

struct held_lock {
	struct mc_list link;
	struct mcfs_lock_args a;
	const struct mcfs_handle *handle; /* the handle that acquired it */
	uint64_t number;		/* in the handoff table, 0: none */
};

void mcfs_locks_init(struct mcfs_locks *l, unsigned max_waiting)
{
	memset(l, 0, sizeof(*l));
	mc_mutex_init(&l->lock);
	l->max_waiting = max_waiting;
	for (unsigned i = 0; i < MCFS_LOCK_BUCKETS; i++)
		mc_list_init(&l->file[i]);
}

/* ---- files; from here on the lock is held ---- */

static struct lock_file *file_find(struct mcfs_locks *l, struct mcs_key key)
{
	uint64_t hash = mc_hash(key.data, key.len, 0);
	struct mc_list *pos;

	mc_list_for_each(pos, &l->file[hash % MCFS_LOCK_BUCKETS]) {
		struct lock_file *f = mc_container_of(pos, struct lock_file, link);

		if (f->hash == hash && f->key_len == key.len && memcmp(f->key, key.data, key.len) == 0)
			return f;
	}
	return NULL;
}

static struct lock_file *file_get(struct mcfs_locks *l, struct mcs_key key)
{
	struct lock_file *f = file_find(l, key);

	if (f)
		return f;
	f = malloc(sizeof(*f) + key.len);
	if (!f)
		return NULL;
	f->hash = mc_hash(key.data, key.len, 0);
	f->key_len = key.len;
	memcpy(f->key, key.data, key.len);
	f->users = 0;
	mc_list_init(&f->held);
	mc_list_init(&f->waiting);
	mc_list_push_back(&l->file[f->hash % MCFS_LOCK_BUCKETS], &f->link);
	return f;
}

static void file_drop_unused(struct lock_file *f)
{
	if (f->users || !mc_list_empty(&f->held) || !mc_list_empty(&f->waiting))
		return;
	mc_list_remove(&f->link);
	free(f);
}

/* ---- held locks ---- */

static void lock_note_handoff(struct held_lock *h)
{
	struct mcfs_handoff_entry e = {
		.type = MCFS_HANDOFF_LOCK, .handle = h->handle->number, .lock = h->a,
	};
	uint64_t old = h->number;

	if (!mcfs_handoff())
		return;
	/* Add the new entry before removing the old one: the table always contains at least one of them. */
	h->number = mcfs_handoff_add(&e, h);
	mcfs_handoff_remove(old);
}

static void lock_add(struct mcfs_locks *l, struct lock_file *f, struct held_lock *h)
{
	mc_list_push_back(&f->held, &h->link);
	__atomic_add_fetch(&l->n, 1, __ATOMIC_RELAXED);
}

static void lock_drop(struct mcfs_locks *l, struct held_lock *h)
{
	mcfs_handoff_remove(h->number);
	mc_list_remove(&h->link);
	__atomic_sub_fetch(&l->n, 1, __ATOMIC_RELAXED);
	free(h);
}

static bool lock_overlaps(const struct mcfs_lock_args *a, const struct mcfs_lock_args *b)
{
	return a->flock == b->flock && a->start <= b->end && b->start <= a->end;
}

static struct held_lock *lock_conflict(struct lock_file *f, const struct mcfs_lock_args *a)
{
	struct mc_list *pos;

	mc_list_for_each(pos, &f->held) {
		struct held_lock *h = mc_container_of(pos, struct held_lock, link);

		if (a->type != F_UNLCK && lock_overlaps(&h->a, a) && h->a.owner != a->owner &&
		    (h->a.type == F_WRLCK || a->type == F_WRLCK))
			return h;
	}
	return NULL;
}

/* Does the lock belong to an ended process that left its descriptor to a child? A reader's close is
 * not reported (ops/open.c). A writer's close was reported and ended the process's locks: a
 * remaining lock belongs to the open file (F_OFD_SETLK), which the child still has. */
static bool lock_is_orphan(const struct held_lock *h)
{
	return !h->a.flock && h->handle->type == MCFS_READ && mcfs_caller_ended(h->a.pid);
}

static struct held_lock *lock_conflict_living(struct mcfs_locks *l, struct lock_file *f,
					      const struct mcfs_lock_args *a)
{
	struct held_lock *h;

	while ((h = lock_conflict(f, a)) && lock_is_orphan(h))
		lock_drop(l, h);
	return h;
}

/* Cut the range of @a out of the owner's locks; *spare is used when one lock is split into two. */
static void lock_carve(struct mcfs_locks *l, struct lock_file *f, const struct mcfs_lock_args *a,
		       struct held_lock **spare)
{
	struct mc_list *pos, *tmp;

	mc_list_for_each_safe(pos, tmp, &f->held) {
		struct held_lock *h = mc_container_of(pos, struct held_lock, link);

		if (h->a.owner != a->owner || !lock_overlaps(&h->a, a))
			continue;
		if (h->a.start >= a->start && h->a.end <= a->end) {
			lock_drop(l, h);
			continue;
		}
		if (h->a.start < a->start && h->a.end > a->end) {
			struct held_lock *rest = TAKE_PTR(*spare);

			*rest = *h;
			rest->a.start = a->end + 1;
			rest->number = 0;
			lock_note_handoff(rest);
			lock_add(l, f, rest);
		}
		if (h->a.start < a->start)
			h->a.end = a->start - 1;
		else
			h->a.start = a->end + 1;
		lock_note_handoff(h);
	}
}

static bool lock_touches(const struct mcfs_lock_args *a, const struct mcfs_lock_args *b)
{
	return a->owner == b->owner && a->flock == b->flock && a->type == b->type &&
		(a->end == UINT64_MAX || a->end + 1 >= b->start) &&
		(b->end == UINT64_MAX || b->end + 1 >= a->start);
}

/* Merge adjacent locks of the same type: otherwise a program that locks byte by byte would fill the memory. */
static void lock_add_merged(struct mcfs_locks *l, struct lock_file *f, struct held_lock *n)
{
	const struct mcfs_lock_args as_asked = n->a;
	struct mc_list *pos, *tmp;

	mc_list_for_each(pos, &f->held) {
		const struct held_lock *h = mc_container_of(pos, struct held_lock, link);

		if (!lock_touches(&h->a, &as_asked))
			continue;
		n->a.start = h->a.start < n->a.start ? h->a.start : n->a.start;
		n->a.end = h->a.end > n->a.end ? h->a.end : n->a.end;
	}
	/* Add the merged lock to the handoff table before removing the old ones. */
	lock_note_handoff(n);
	mc_list_for_each_safe(pos, tmp, &f->held) {
		struct held_lock *h = mc_container_of(pos, struct held_lock, link);

		if (lock_touches(&h->a, &as_asked))
			lock_drop(l, h);
	}
	lock_add(l, f, n);
}

/* 0, -EAGAIN or -ENOLCK. */
static int lock_set(struct mcfs_locks *l, struct lock_file *f, const struct mcfs_handle *by,
		    const struct mcfs_lock_args *a)
{
	struct held_lock *spare = NULL, *h = NULL;

	/* A flock changes its type by releasing the old lock first, as in the kernel: otherwise two
	 * holders of a shared lock that both request an exclusive one would deadlock. */
	if (a->flock && lock_conflict(f, a))
		lock_carve(l, f, a, &spare);
	if (lock_conflict_living(l, f, a))
		return -EAGAIN;
	if (a->type != F_UNLCK && __atomic_load_n(&l->n, __ATOMIC_RELAXED) >= MCFS_LOCKS_MAX)
		return mc_fail(-ENOLCK, "limit of locks reached limit=%u", MCFS_LOCKS_MAX);
	spare = malloc(sizeof(*spare));
	h = malloc(sizeof(*h));
	if (!spare || !h) {
		free(spare);
		free(h);
		return -ENOLCK;
	}
	lock_carve(l, f, a, &spare);
	free(spare);
	if (a->type == F_UNLCK) {
		free(h);
		return 0;
	}
	*h = (struct held_lock){ .a = *a, .handle = by };
	lock_add_merged(l, f, h);
	return 0;
}

/* ---- queued requests ---- */

/* Deadlock detection: follow the chain of lock owners that are waiting themselves; true if it leads
 * back to the owner of @a. */
static bool would_deadlock(struct mcfs_locks *l, struct lock_file *f, const struct mcfs_lock_args *a)
{
	const struct mcfs_lock_args *next = a;

	for (unsigned i = 0; i < CHAIN_MAX && next; i++) {
		const struct held_lock *h = lock_conflict(f, next);
		struct mc_list *file, *pos;

		if (!h)
			return false;
		if (i && h->a.owner == a->owner)
			return true;
		next = NULL;
		for (unsigned b = 0; b < MCFS_LOCK_BUCKETS && !next; b++) {
			mc_list_for_each(file, &l->file[b]) {
				struct lock_file *other = mc_container_of(file, struct lock_file, link);

				mc_list_for_each(pos, &other->waiting) {
					struct mcfs_lock_wait *w =
						mc_container_of(pos, struct mcfs_lock_wait, link);

					if (w->args.flock || w->args.owner != h->a.owner ||
					    mcfs_op_given_up(&w->op))
						continue;
					next = &w->args;
					f = other;
				}
			}
		}
	}
	return false;
}

static void lock_unwait(struct mcfs_locks *l, struct mcfs_lock_wait *w)
{
	mc_list_remove(&w->link);
	__atomic_store_n(&l->nwaiting, l->nwaiting - 1, __ATOMIC_RELAXED);
	__atomic_sub_fetch(&l->n, 1, __ATOMIC_RELAXED);
}

#define ANSWERS 16u
struct answer {
	struct mcfs_lock_wait *w;
	struct mcfs_lock_args args;
	int err;
	bool accepted;			/* the kernel accepted the answer */
};

/* Remove the queued requests of @f that can be answered now, up to ANSWERS of them. */
static unsigned lock_collect(struct mcfs_locks *l, struct lock_file *f, struct answer *ret)
{
	struct mc_list *pos, *tmp;
	unsigned n = 0;

	mc_list_for_each_safe(pos, tmp, &f->waiting) {
		struct mcfs_lock_wait *w = mc_container_of(pos, struct mcfs_lock_wait, link);
		int r;

		if (n == ANSWERS)
			break;
		r = mcfs_op_given_up(&w->op) ? -EINTR : l->hung_up ? HUNG_UP :
			lock_set(l, f, w->op.handle, &w->args);
		if (r == -EAGAIN)
			continue;
		lock_unwait(l, w);
		ret[n++] = (struct answer){ w, w->args, r, false };
	}
	return n;
}

/* Releases the lock meanwhile: an answer may end an open file, which needs the lock. */
static void send_answers(struct mcfs_locks *l, struct lock_file *f, struct answer *a, unsigned n)
{
	f->users++;
	mc_mutex_unlock(&l->lock);
	for (unsigned i = 0; i < n; i++) {
		a[i].accepted = mcfs_reply_err(&a[i].w->op, a[i].err) == 0;
		free(a[i].w);
	}
	mc_mutex_lock(&l->lock);
	f->users--;
	for (unsigned i = 0; i < n; i++) {
		/* The caller never learned that it holds the lock, so release it. */
		if (!a[i].accepted && !a[i].err) {
			a[i].args.type = F_UNLCK;
			(void)lock_set(l, f, NULL, &a[i].args);
		}
	}
}

/* Answer the queued requests that can proceed after a change. Frees the file if nothing is left of it. */
static void lock_serve(struct mcfs_locks *l, struct lock_file *f)
{
	struct answer a[ANSWERS];
	unsigned n;

	while ((n = lock_collect(l, f, a)))
		send_answers(l, f, a, n);
	file_drop_unused(f);
}

/* ---- public functions, which acquire the lock ---- */

static int lock_wait(struct mcfs_locks *l, struct lock_file *f, struct mcfs_lock_wait *w)
{
	if (!w->args.flock && would_deadlock(l, f, &w->args))
		return mc_fail(-EDEADLK, "deadlock: the lock's owner waits for a lock of the caller");
	if (l->nwaiting >= l->max_waiting)
		return mc_fail(-ENOLCK, "limit of queued lock requests reached requests=%u", l->nwaiting);
	mc_list_push_back(&f->waiting, &w->link);
	__atomic_store_n(&l->nwaiting, l->nwaiting + 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&l->n, 1, __ATOMIC_RELAXED);
	mcfs_reply_attend();
	return 0;
}

void mcfs_lock_set(struct mcfs_locks *l, struct mcs_key key, struct mcfs_lock_wait *w, bool waits)
{
	struct answer a = { .w = w, .args = w->args };
	struct lock_file *f;

	mc_mutex_lock(&l->lock);
	f = file_get(l, key);
	if (!f) {
		mc_mutex_unlock(&l->lock);
		(void)mcfs_reply_err(&w->op, -ENOLCK);
		free(w);
		return;
	}
	a.err = l->hung_up ? HUNG_UP : lock_set(l, f, w->op.handle, &w->args);
	if (a.err == -EAGAIN && waits) {
		a.err = lock_wait(l, f, w);
		if (a.err == 0)
			a.w = NULL;
	}
	if (a.w)
		send_answers(l, f, &a, 1);
	lock_serve(l, f);
	mc_mutex_unlock(&l->lock);
}

bool mcfs_lock_test(struct mcfs_locks *l, struct mcs_key key, struct mcfs_lock_args *args)
{
	const struct held_lock *h;
	struct lock_file *f;

	MC_LOCKED(&l->lock);
	f = file_find(l, key);
	if (!f)
		return false;
	h = lock_conflict_living(l, f, args);
	if (h)
		*args = h->a;
	lock_serve(l, f);
	return h;
}

void mcfs_lock_flushed(struct mcfs_locks *l, struct mcs_key key, uint64_t owner)
{
	const struct mcfs_lock_args all = { .type = F_UNLCK, .end = UINT64_MAX, .owner = owner };
	struct lock_file *f;

	MC_LOCKED(&l->lock);
	f = file_find(l, key);
	if (!f)
		return;
	lock_carve(l, f, &all, NULL);
	lock_serve(l, f);
}

void mcfs_lock_released(struct mcfs_locks *l, struct mcs_key key, const struct mcfs_handle *by)
{
	struct mc_list *pos, *tmp;
	struct lock_file *f;

	MC_LOCKED(&l->lock);
	f = file_find(l, key);
	if (!f)
		return;
	mc_list_for_each_safe(pos, tmp, &f->held) {
		struct held_lock *h = mc_container_of(pos, struct held_lock, link);

		if (h->handle == by)
			lock_drop(l, h);
	}
	lock_serve(l, f);
}

int mcfs_lock_restore(struct mcfs_locks *l, struct mcs_key key, struct mcfs_handle *by, uint64_t number,
		      const struct mcfs_lock_args *args)
{
	struct held_lock *h = malloc(sizeof(*h));
	struct lock_file *f;

	MC_LOCKED(&l->lock);
	f = h ? file_get(l, key) : NULL;
	if (!f) {
		free(h);
		return -ENOMEM;
	}
	*h = (struct held_lock){ .a = *args, .handle = by, .number = number };
	mcfs_handoff_bind(number, h);
	lock_add(l, f, h);
	return 0;
}

/* Has the file queued requests; @given_up: requests whose caller was interrupted? */
static bool file_is_waited_for(const struct lock_file *f, bool given_up)
{
	struct mc_list *pos;

	mc_list_for_each(pos, &f->waiting) {
		const struct mcfs_lock_wait *w = mc_container_of(pos, struct mcfs_lock_wait, link);

		if (!given_up || mcfs_op_given_up(&w->op))
			return true;
	}
	return false;
}

static struct lock_file *file_waited_for(struct mcfs_locks *l, bool given_up)
{
	struct mc_list *pos;

	for (unsigned i = 0; i < MCFS_LOCK_BUCKETS; i++) {
		mc_list_for_each(pos, &l->file[i]) {
			struct lock_file *f = mc_container_of(pos, struct lock_file, link);

			if (file_is_waited_for(f, given_up))
				return f;
		}
	}
	return NULL;
}

/* Find a file with queued requests and drop its locks of ended processes; NULL: there is no such file. */
static struct lock_file *file_drop_orphans(struct mcfs_locks *l)
{
	struct mc_list *file, *pos, *tmp;
	bool any = false;

	for (unsigned i = 0; i < MCFS_LOCK_BUCKETS; i++) {
		mc_list_for_each(file, &l->file[i]) {
			struct lock_file *f = mc_container_of(file, struct lock_file, link);

			if (mc_list_empty(&f->waiting))
				continue;
			mc_list_for_each_safe(pos, tmp, &f->held) {
				struct held_lock *h = mc_container_of(pos, struct held_lock, link);

				if (!lock_is_orphan(h))
					continue;
				lock_drop(l, h);
				any = true;
			}
			if (any)
				return f;
		}
	}
	return NULL;
}

void mcfs_locks_sweep(struct mcfs_locks *l)
{
	struct lock_file *f;

	MC_LOCKED(&l->lock);
	while ((f = file_waited_for(l, true)))
		lock_serve(l, f);
	while ((f = file_drop_orphans(l)))
		lock_serve(l, f);
}

void mcfs_locks_hang_up(struct mcfs_locks *l)
{
	struct lock_file *f;

	MC_LOCKED(&l->lock);
	l->hung_up = true;
	while ((f = file_waited_for(l, false)))
		lock_serve(l, f);
}

void mcfs_locks_done(struct mcfs_locks *l)
{
	for (unsigned i = 0; i < MCFS_LOCK_BUCKETS; i++) {
		while (!mc_list_empty(&l->file[i])) {
			struct lock_file *f = mc_container_of(l->file[i].next, struct lock_file, link);

			while (!mc_list_empty(&f->held)) {
				struct held_lock *h = mc_container_of(f->held.next, struct held_lock, link);

				mc_list_remove(&h->link);
				free(h);
			}
			mc_list_remove(&f->link);
			free(f);
		}
	}
	mc_mutex_destroy(&l->lock);
}
