/* SPDX-License-Identifier: Apache-2.0
 * version.c - states of a writer: stage, commit, revoke. */
#include <config.h>
#include "mcfs/write/version.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/sys/clock.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/hash.h"
#include "common/sys/thread.h"
#include "mcfs/keymap.h"
#include "mcfs/write/attrs.h"
#include "mcfs/reply.h"

/* A put of this many bytes gets COMMIT_RATE_MS more time than other operations. */
#define COMMIT_RATE ((uint64_t)32 << 20)
#define COMMIT_RATE_MS 1000

int mcfs_version_env_init(struct mcfs_version_env *env, mcs_t *store, struct mcfs_pool *pool)
{
	memset(env, 0, sizeof(*env));
	env->store = store;
	env->pool = pool;
	env->max_size = INT64_MAX;
	mc_list_init(&env->writers);
	env->writeback_pool = mcfs_writeback_pool_new(env);
	return -mc_mutex_init(&env->names);
}

void mcfs_version_env_done(struct mcfs_version_env *env)
{
	mcfs_writeback_pool_free(env->writeback_pool);
	mc_mutex_destroy(&env->names);
}

static void writer_show(struct mcfs_writer *w)
{
	unsigned pending = (w->dirty ? MCFS_PENDING_BYTES : 0) | (w->fresh ? MCFS_PENDING_NAME : 0);

	__atomic_store_n(&w->shown_size, w->stage.size, __ATOMIC_RELAXED);
	__atomic_store_n(&w->pending, w->revoked || w->unlinked ? 0 : pending, __ATOMIC_RELEASE);
}

/* A writer that opened the name later has published a version: this one no longer needs to create
 * it, nor does that version violate O_EXCL. */
static void writer_note_overtaken(struct mcfs_writer *w)
{
	if (mcfs_writer_overtaken(w) && !w->dirty)
		w->fresh = w->excl = false;
}

static void writer_touched(struct mcfs_writer *w)
{
	writer_note_overtaken(w);
	__atomic_fetch_and(&w->others, ~MCFS_OTHERS_LATER, __ATOMIC_RELAXED);
	w->dirty = true;
	w->flushed = false;
	mcfs_writer_attrs_touched(w);
	__atomic_store_n(&w->mtime_ms, mc_wall_ns() / MC_NS_PER_MS, __ATOMIC_RELAXED);
	writer_show(w);
}

int mcfs_writer_new(struct mcfs_version_env *env, const struct mcfs_writer_args *args,
		    struct mcfs_writer **ret)
{
	struct mcfs_writer *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return -ENOMEM;
	w->key = malloc(args->len ? args->len : 1);
	r = w->key ? -mc_mutex_init(&w->lock) : -ENOMEM;
	if (r < 0) {
		free(w->key);
		free(w);
		return r;
	}
	w->env = env;
	w->flags = args->flags;
	w->tid = args->tid;
	w->uid = args->uid;
	w->pid = mcfs_caller_process(args->tid);
	w->inode = args->inode;
	w->fresh = args->flags & MCFS_WRITER_FRESH;
	w->excl = args->flags & MCFS_WRITER_EXCL;
	w->base_generation = w->version = args->generation;
	mcfs_writer_attrs_init(w, args);
	w->refs = 1;
	memcpy(w->key, args->key, args->len);
	w->key_len = args->len;
	w->key_hash = mc_hash(args->key, args->len, 0);
	w->mtime_ms = mc_wall_ns() / MC_NS_PER_MS;
	mcfs_stage_init(&w->stage, env->pool);
	mcfs_writeback_init(w);
	(void)mc_cond_init(&w->hold_ended);
	if (args->base)
		mcfs_stage_begin(&w->stage, mcfs_object_ref(args->base));
	writer_show(w);
	mc_mutex_lock(&env->names);
	w->serial = ++env->serial;
	mc_list_push_front(&env->writers, &w->link);
	mc_mutex_unlock(&env->names);
	/* Once stored in a handle, other threads can find it. */
	__atomic_store_n(ret, w, __ATOMIC_RELEASE);
	return 0;
}

void mcfs_writer_ref(struct mcfs_writer *w)
{
	MC_LOCKED(&w->env->names);
	w->refs++;
}

void mcfs_writer_unref(struct mcfs_writer *w)
{
	bool last;

	if (!w)
		return;
	mc_mutex_lock(&w->env->names);
	last = --w->refs == 0;
	if (last)
		mc_list_remove(&w->link);
	mc_mutex_unlock(&w->env->names);
	if (!last)
		return;
	mcfs_writeback_done(w);
	mcfs_stage_clear(&w->stage);
	mcfs_xattrs_clear(&w->xattrs);
	mc_cond_destroy(&w->hold_ended);
	mc_mutex_destroy(&w->lock);
	free(w->key);
	free(w);
}

struct mcfs_writer *mcfs_writer_next(struct mcfs_version_env *env, struct mcfs_writer *prev, struct mcs_key key)
{
	struct mcfs_writer *found = NULL;
	uint64_t hash;

	mc_mutex_lock(&env->names);
	if (!mc_list_empty(&env->writers)) {
		hash = mc_hash(key.data, key.len, 0);
		for (struct mc_list *pos = prev ? prev->link.next : env->writers.next; pos != &env->writers && !found;
		     pos = pos->next) {
			struct mcfs_writer *w = mc_container_of(pos, struct mcfs_writer, link);

			if (w->key_hash == hash && w->key_len == key.len && memcmp(w->key, key.data, key.len) == 0)
				found = w;
		}
		if (found)
			found->refs++;
	}
	mc_mutex_unlock(&env->names);
	mcfs_writer_unref(prev);
	return found;
}

struct mcfs_writer *mcfs_writer_next_below(struct mcfs_version_env *env, struct mcfs_writer *prev,
					   struct mcs_key prefix)
{
	struct mcfs_writer *found = NULL;

	mc_mutex_lock(&env->names);
	for (struct mc_list *pos = prev ? prev->link.next : env->writers.next; pos != &env->writers && !found;
	     pos = pos->next) {
		struct mcfs_writer *w = mc_container_of(pos, struct mcfs_writer, link);

		if (w->key_len > prefix.len && memcmp(w->key, prefix.data, prefix.len) == 0)
			found = w;
	}
	if (found)
		found->refs++;
	mc_mutex_unlock(&env->names);
	mcfs_writer_unref(prev);
	return found;
}

struct mcfs_writer *mcfs_writer_at(struct mcfs_version_env *env, uint64_t serial)
{
	struct mc_list *pos;

	MC_LOCKED(&env->names);
	mc_list_for_each(pos, &env->writers) {
		struct mcfs_writer *w = mc_container_of(pos, struct mcfs_writer, link);

		if (w->serial != serial)
			continue;
		w->refs++;
		return w;
	}
	return NULL;
}

int mcfs_writer_lock(struct mcfs_writer *w, uint64_t deadline)
{
	int r = mc_mutex_lock_until(&w->lock, deadline);

	return r < 0 ? mc_fail(r, "timed out waiting for a commit of the same file") : 0;
}

bool mcfs_writers_below(struct mcfs_version_env *env, const void *prefix, size_t len)
{
	struct mc_list *pos;

	MC_LOCKED(&env->names);
	mc_list_for_each(pos, &env->writers) {
		struct mcfs_writer *w = mc_container_of(pos, struct mcfs_writer, link);

		if (mcfs_writer_pending(w) && w->key_len > len && memcmp(w->key, prefix, len) == 0)
			return true;
	}
	return false;
}

/* Nothing is published any more: free the staging memory. */
static void writer_give_up(struct mcfs_writer *w)
{
	mcfs_writeback_stop(w);
	mcfs_stage_clear(&w->stage);
	w->dirty = w->fresh = false;
	writer_show(w);
}

static int writer_fail(struct mcfs_writer *w, int err)
{
	w->failed = err;
	return err;
}

static void writer_written_by(struct mcfs_writer *w, pid_t tid)
{
	w->mapped = w->abandoned = false;
	if (tid == w->last_tid)
		return;
	w->last_tid = tid;
	w->last_pid = mcfs_caller_process(tid);
}

/* Claim the answer as the last step before a change: all waiting without the lock is done, so that
 * even for a caller that is killed from now on, changes happen in the order of the lock. */
static bool writer_claim(struct mcfs_op *op)
{
	return mcfs_op_claim(op, MCFS_UNLESS_KILLED);
}

/* Lock with @op's deadline. Not for write(2), which may come from the page cache: the kernel sends
 * such bytes only once, so a commit must not miss them. */
static int writer_lock_for(struct mcfs_writer *w, const struct mcfs_op *op)
{
	if (op)
		return mcfs_writer_lock(w, op->deadline);
	mc_mutex_lock(&w->lock);
	return 0;
}

int mcfs_writer_write(struct mcfs_writer *w, uint64_t offset, const void *data, size_t len,
		      void **slot, pid_t tid, uint64_t deadline, struct mcfs_op *op)
{
	uint64_t max = __atomic_load_n(&w->env->max_size, __ATOMIC_RELAXED);
	bool fits;
	int r;

	MC_LOCKED(&w->lock);
	if (w->failed || w->revoked)
		return mc_fail(-EIO, "an earlier write of this file failed");
	if (offset == MCFS_AT_THE_END)
		offset = w->stage.size;
	fits = offset <= max && len <= max - offset;
	if (fits)
		mcfs_writeback_touch(w, offset < w->stage.size ? offset : w->stage.size, offset + len);
	if (!writer_claim(op))
		return -EINTR;
	if (!fits)
		return writer_fail(w, mc_fail(-EFBIG, "the file is larger than any object can be"));
	if (slot && *slot == data && mcfs_stage_adopts(&w->stage, offset, len))
		r = mcfs_stage_adopt(&w->stage, offset, len, slot, deadline);
	else
		r = mcfs_stage_write(&w->stage, offset, data, len, deadline);
	if (r < 0)
		return writer_fail(w, r);
	mcfs_writeback_wrote(w, offset, len);
	if (tid)
		writer_written_by(w, tid);
	else
		w->mapped = true;
	writer_touched(w);
	return 0;
}

int64_t mcfs_writer_read(struct mcfs_writer *w, uint64_t offset, void *buf, size_t len, uint64_t deadline)
{
	MC_LOCKED(&w->lock);
	if (w->revoked)
		return -EIO;
	/* Staged bytes may have been freed: an error, not an end of file. */
	if (w->failed)
		return mc_fail(-EIO, "an earlier write of this file failed");
	return mcfs_stage_read(&w->stage, offset, buf, len, deadline);
}

static int writer_set_size(struct mcfs_writer *w, uint64_t size, pid_t tid, struct mcfs_op *op)
{
	int r;

	if (size > __atomic_load_n(&w->env->max_size, __ATOMIC_RELAXED))
		return mc_fail(-EFBIG, "larger than any object can be");
	mcfs_writeback_cut(w, size);
	if (!writer_claim(op))
		return -EINTR;
	w->failed = 0;
	if (size > w->stage.size)
		w->writeback.hint = size;
	else if (w->writeback.hint > size)
		w->writeback.hint = 0;
	r = mcfs_stage_truncate(&w->stage, size);
	if (r < 0)
		return r;
	writer_written_by(w, tid);
	writer_touched(w);
	return 0;
}

static int writer_truncate_locked(struct mcfs_writer *w, uint64_t size, pid_t tid, struct mcfs_op *op)
{
	bool again = !size && (w->failed || w->abandoned);

	if (w->revoked)
		return -EIO;
	if (w->failed && size)
		return w->failed;
	if (!again && size == w->stage.size && !w->fresh)
		return 0;
	/* A truncation to 0 is how a program recovers from a full disk. It counts as a change even
	 * if nothing is staged: the name still has a version. */
	return writer_set_size(w, size, tid, op);
}

int mcfs_writer_truncate(struct mcfs_writer *w, uint64_t size, pid_t tid, struct mcfs_op *op)
{
	int r = writer_lock_for(w, op);

	if (r < 0)
		return r;
	r = writer_truncate_locked(w, size, tid, op);
	mc_mutex_unlock(&w->lock);
	return r;
}

int mcfs_writer_set_pin(struct mcfs_writer *w, unsigned put_flags, struct mcfs_op *op)
{
	int r = writer_lock_for(w, op);

	if (r < 0)
		return r;
	if (writer_claim(op))
		w->put_flags = put_flags;
	else
		r = -EINTR;
	mc_mutex_unlock(&w->lock);
	return r;
}

int mcfs_writer_set_replicas(struct mcfs_writer *w, unsigned replicas, struct mcfs_op *op)
{
	int r = writer_lock_for(w, op);

	if (r < 0)
		return r;
	if (writer_claim(op))
		w->replicas = replicas;
	else
		r = -EINTR;
	mc_mutex_unlock(&w->lock);
	return r;
}

static int writer_allocate_locked(struct mcfs_writer *w, uint64_t end, bool keep_size, pid_t tid,
				  struct mcfs_op *op)
{
	if (w->failed || w->revoked)
		return mc_fail(-EIO, "an earlier write of this file failed");
	if (end > __atomic_load_n(&w->env->max_size, __ATOMIC_RELAXED))
		return mc_fail(-EFBIG, "larger than any object can be");
	w->writeback.hint = end;
	return keep_size || end <= w->stage.size ? 0 : writer_set_size(w, end, tid, op);
}

int mcfs_writer_allocate(struct mcfs_writer *w, uint64_t end, bool keep_size, pid_t tid, struct mcfs_op *op)
{
	int r = writer_lock_for(w, op);

	if (r < 0)
		return r;
	r = writer_allocate_locked(w, end, keep_size, tid, op);
	mc_mutex_unlock(&w->lock);
	return r;
}

static int writer_put_once(struct mcfs_writer *w, const struct mcs_put_item *staged, const struct mcs_put_opts *opts,
			   uint64_t deadline)
{
	struct mcs_put_item item = *staged;

	(void)mcs_put_batch(w->env->store, &item, 1, opts, mc_deadline_left_ms(deadline));
	if (item.result == 0)
		mcfs_writer_attrs_sent(w, item.generation);
	return item.result;
}

static int writer_put_staged(struct mcfs_writer *w, struct mcs_key key, unsigned put_flags, uint64_t deadline)
{
	struct mcs_put_opts opts = {
		.flags = put_flags, .replicas = w->replicas, .kind = MCS_OBJECT,
		.attrs = mcfs_writer_attrs_put(w),
	};
	struct mcs_put_item item = { .key = key };
	struct iovec *iov = NULL;
	int n = 0, r;

	r = mcfs_stage_vectors(&w->stage, deadline, &iov, &n);
	if (r < 0)
		return r;
	item.iov = iov;
	item.iovcnt = n;
	r = writer_put_once(w, &item, &opts, deadline);
	/* Space that other writers reserved in advance is usable. */
	if (mcs_errno(r) == ENOSPC && mcfs_writeback_pool_yield(w->env->writeback_pool, w))
		r = writer_put_once(w, &item, &opts, deadline);
	if (r == -EPERM && mcfs_writer_attrs_owner_changed(w, deadline)) {
		opts.attrs = mcfs_writer_attrs_put(w);
		r = writer_put_once(w, &item, &opts, deadline);
	}
	free(iov);
	if (mcs_errno(r) == ENOENT && mcfs_key_is_shared(w->key, w->key_len))
		return mc_fail(-ESTALE, "all names of the file were removed, or it was evicted");
	return r == -EPERM ? mc_fail(r, "the name has a file of another user now") : r;
}

/* The name now has @w's version. Other writers under the name now write another file, and those
 * that opened it before @w are overtaken. */
static void writer_overtake(struct mcfs_writer *w)
{
	unsigned others = MCFS_OTHERS_ANY;
	struct mc_list *pos;

	MC_LOCKED(&w->env->names);
	/* newest first */
	mc_list_for_each(pos, &w->env->writers) {
		struct mcfs_writer *x = mc_container_of(pos, struct mcfs_writer, link);

		if (x == w)
			others |= MCFS_OTHERS_LATER;
		else if (x->key_hash == w->key_hash && x->key_len == w->key_len &&
			 memcmp(x->key, w->key, w->key_len) == 0)
			__atomic_fetch_or(&x->others, others, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&w->others, 0, __ATOMIC_RELAXED);
}

/* Store the staged bytes and publish them. */
static int writer_put(struct mcfs_writer *w, unsigned put_flags, uint64_t deadline)
{
	struct mcs_key key = { w->key, w->key_len };
	int r;

	deadline += w->stage.size / COMMIT_RATE * COMMIT_RATE_MS * MC_NS_PER_MS;
	put_flags |= w->put_flags;
	r = mc_fault("mcfs.version.put");
	if (r < 0)
		return r;
	mcfs_pool_put_begin(w->env->pool);
	r = mcfs_writeback_commit(w, key.data, key.len, put_flags, deadline);
	if (r == 0)
		r = writer_put_staged(w, key, put_flags, deadline);
	mcfs_pool_put_end(w->env->pool);
	if (r < 0)
		return r;
	__atomic_add_fetch(&w->env->commits[w->key_hash % MCFS_COMMITS], 1, __ATOMIC_RELEASE);
	writer_overtake(w);
	return 0;
}

uint32_t mcfs_commits(const struct mcfs_version_env *env, const void *key, size_t len)
{
	return __atomic_load_n(&env->commits[mc_hash(key, len, 0) % MCFS_COMMITS], __ATOMIC_ACQUIRE);
}

static void writer_report_failure(struct mcfs_writer *w, int err, const char *when)
{
	if (w->env->failed)
		w->env->failed(w->env, w->key, w->key_len, err, when, w->pid);
}

/* After a commit. The bytes are stored, so a failure does not change the writer's state. */
static int writer_finish(struct mcfs_writer *w, const char *when, uint64_t deadline)
{
	int r = mcfs_writer_send_xattrs(w, deadline);

	if (r < 0)
		writer_report_failure(w, r, when);
	return r;
}

static int writer_commit(struct mcfs_writer *w, const char *when, uint64_t deadline)
{
	int r;

	writer_note_overtaken(w);
	r = writer_put(w, w->excl ? MCS_PUT_EXCL : MCS_PUT_UPSERT, deadline);
	if (r < 0) {
		writer_report_failure(w, r, when);
		return writer_fail(w, r);
	}
	w->dirty = w->fresh = w->excl = w->mapped = w->abandoned = false;
	writer_show(w);
	return writer_finish(w, when, deadline);
}

/* Commit a file that was created or truncated but not written: it is empty, unless another put gave
 * the name a version meanwhile. */
static int writer_commit_untouched(struct mcfs_writer *w, uint64_t deadline)
{
	struct mcs_key key = { w->key, w->key_len };
	struct mcs_info info;
	int r;

	if (!w->base_generation) {
		/* EEXIST: the version is another node's, and overtakes no writer here. */
		r = writer_put(w, MCS_PUT_EXCL, deadline);
		if (mcs_errno(r) == EEXIST)
			r = mcfs_writer_attrs_lost(w);
	} else {
		r = mcs_stat(w->env->store, key, &info, mc_deadline_left_ms(deadline));
		if (r == 0 && info.generation == w->base_generation)
			r = writer_put(w, MCS_PUT_UPSERT, deadline);
		else if (mcs_errno(r) == ENOENT)
			r = 0;
	}
	w->fresh = false;
	writer_show(w);
	return r;
}

static int writer_commit_all(struct mcfs_writer *w, const char *when, uint64_t deadline)
{
	int r;

	writer_note_overtaken(w);
	if (w->dirty || (w->fresh && w->excl))
		return writer_commit(w, when, deadline);
	if (!w->fresh)
		return 0;
	r = writer_commit_untouched(w, deadline);
	if (r == -ESTALE) {
		writer_report_failure(w, r, when);
		return r;
	}
	if (r < 0) {
		writer_report_failure(w, r, when);
		return writer_fail(w, r);
	}
	return writer_finish(w, when, deadline);
}

/* Wait for a hold before any publication: the name may be about to change. */
static void writer_wait_for_name(struct mcfs_writer *w)
{
	while (w->holder)
		mc_cond_wait(&w->hold_ended, &w->lock);
}

/* A flush by another process: part of a pipeline, or a child that inherited the descriptor. It says
 * nothing about the file, unless that process wrote last and was killed. */
static int writer_flush_other(struct mcfs_writer *w, pid_t tid, enum mcfs_fate fate)
{
	if (fate == MCFS_DIED && w->dirty && mcfs_caller_is(w->last_pid, tid))
		w->abandoned = true;
	return 0;
}

/* The staged bytes may be incomplete. */
static int writer_fail_untrusted(void)
{
	return mc_fail(-EIO, "the process that wrote was killed");
}

static int writer_drop(struct mcfs_writer *w, int err)
{
	w->revoked = true;
	writer_give_up(w);
	return err;
}

int mcfs_writer_flush(struct mcfs_writer *w, pid_t tid, enum mcfs_fate fate, uint64_t deadline)
{
	bool dead = fate == MCFS_DIED || fate == MCFS_GONE;

	MC_LOCKED(&w->lock);
	writer_wait_for_name(w);
	w->flushed = true;
	if (!mcfs_caller_is(w->pid, tid))
		return writer_flush_other(w, tid, fate);
	w->closed = true;
	if (fate == MCFS_EXITED)
		w->exited = true;
	if (w->failed) {
		writer_give_up(w);
		return w->failed;
	}
	if (w->revoked)
		return dead ? 0 : -EIO;
	if (dead)
		return writer_drop(w, 0);
	if (w->abandoned)
		return writer_drop(w, writer_fail_untrusted());
	if (w->unlinked)
		return 0;
	if (fate == MCFS_EXITED)
		return writer_commit_all(w, "exit", deadline);
	if (w->dirty)
		return writer_commit(w, "close", deadline);
	return w->xattrs.n && mcfs_writer_is_apart(w) ? mcfs_writer_attrs_lost(w) : 0;
}

static int writer_sync_locked(struct mcfs_writer *w, const char *when, uint64_t deadline)
{
	if (w->failed)
		return w->failed;
	if (w->revoked)
		return -EIO;
	if (w->abandoned)
		return writer_fail_untrusted();
	return w->unlinked ? 0 : writer_commit_all(w, when, deadline);
}

int mcfs_writer_sync(struct mcfs_writer *w, uint64_t deadline)
{
	MC_LOCKED(&w->lock);
	writer_wait_for_name(w);
	return writer_sync_locked(w, "fsync", deadline);
}

int mcfs_writer_publish(struct mcfs_writer *w, uint64_t deadline)
{
	int before, r;

	MC_LOCKED(&w->lock);
	writer_wait_for_name(w);
	before = w->failed;
	/* Another thread's fsync(2), or the last close, may already have published. */
	r = before || mcfs_writer_pending(w) ? writer_sync_locked(w, "rename", deadline) : 0;
	w->failed = before;
	return r;
}

/* May the remaining bytes be published without a flush of the opener? If the opener had been killed
 * with the descriptor open, a flush would have shown it. Stores through a mapping continue after
 * the last close: then only the opener's fate shows a kill. */
static bool writer_is_trusted(const struct mcfs_writer *w, enum mcfs_fate fate)
{
	if (w->abandoned)
		return false;
	return !w->mapped || fate == MCFS_ALIVE || fate == MCFS_EXITED || w->exited;
}

static int writer_end(struct mcfs_writer *w, const char *when, bool publish, uint64_t deadline)
{
	int r = 0;

	if (publish && !w->failed && !w->revoked && !w->unlinked)
		r = writer_commit_all(w, when, deadline);
	w->revoked = true;
	writer_give_up(w);
	return r;
}

int mcfs_writer_release(struct mcfs_writer *w, enum mcfs_fate fate, uint64_t deadline)
{
	MC_LOCKED(&w->lock);
	writer_wait_for_name(w);
	return writer_end(w, "release", writer_is_trusted(w, fate), deadline);
}

/* Every close sends a flush, so a file that changed afterwards is still open. Even after a flush it
 * may be: shells close a duplicate before the program starts. While the opener is alive, only a new
 * empty file is published in spite of that. */
static bool writer_is_complete(const struct mcfs_writer *w, enum mcfs_fate fate)
{
	if (!w->flushed || !w->closed)
		return false;
	return fate != MCFS_ALIVE || (!w->dirty && !w->base_generation);
}

bool mcfs_writer_end(struct mcfs_writer *w, enum mcfs_fate fate, uint64_t deadline)
{
	bool pending, publish;

	MC_LOCKED(&w->lock);
	writer_wait_for_name(w);
	pending = mcfs_writer_pending(w);
	publish = writer_is_trusted(w, fate) && writer_is_complete(w, fate);
	(void)writer_end(w, "unmount", publish, deadline);
	return pending && !publish;
}

void mcfs_writer_revoke(struct mcfs_writer *w)
{
	MC_LOCKED(&w->lock);
	w->revoked = true;
	writer_give_up(w);
}

void mcfs_writer_unlink(struct mcfs_writer *w)
{
	MC_LOCKED(&w->lock);
	w->unlinked = true;
	writer_show(w);
	mc_mutex_lock(&w->env->names);
	w->gone = true;
	mc_mutex_unlock(&w->env->names);
}

void mcfs_writer_rebase(struct mcfs_writer *w, uint64_t generation, bool excl)
{
	MC_LOCKED(&w->lock);
	w->base_generation = generation;
	w->excl = excl && w->fresh;
}

int mcfs_writer_rename(struct mcfs_writer *w, const void *to, size_t len, uint64_t generation)
{
	char *key = malloc(len ? len : 1), *old;

	if (!key)
		return -ENOMEM;
	memcpy(key, to, len);
	MC_LOCKED(&w->lock);
	mc_mutex_lock(&w->env->names);
	old = w->key;
	w->key = key;
	w->key_len = len;
	w->key_hash = mc_hash(key, len, 0);
	/* A look at the old name in between did not find it. */
	if (w->version && generation) {
		w->version = generation;
		w->gone = false;
	}
	mc_mutex_unlock(&w->env->names);
	free(old);
	return 0;
}
