/* SPDX-License-Identifier: Apache-2.0
 * checkpoint.c - writing the whole state to a file while it changes.
 *
 * First the journal switches to a new file.  Then everything is read, a few objects at a time under their lock.
 * Changes made before an object is read are in the checkpoint; later ones are in the new journal.  A change
 * that is in both does no harm, because a record always contains the whole state of its subject.  Finally the
 * journal is written up to this point, the checkpoint gets its name, and the older files are removed. */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/file.h"
#include "common/sys/thread.h"
#include "master/journal/journal_i.h"
#include "master/mcm_i.h"
#include "proto/codec.h"

#define LOG "journal"
#define OBJECTS_PER_STEP 64	/* most objects under one lock */
#define WRITE_BYTES (1u << 20)
#define TURN_NS (100 * 1000)	/* CPU time before the thread yields */

MC_COUNTER(checkpoints, "mooncake_master_checkpoints_total", "result=\"ok\"", "Checkpoints written")
MC_COUNTER(checkpoint_failures, "mooncake_master_checkpoints_total", "result=\"failed\"",
	   "Checkpoints written")
MC_HISTOGRAM(duration, "mooncake_master_checkpoint_seconds", "", "Duration of a checkpoint", 1e-9)
MC_HISTOGRAM(duration_ms, "master_snapshot_duration_ms", "", "Duration of a checkpoint in milliseconds", 1)
MC_HISTOGRAM(step_time, "mooncake_master_checkpoint_step_seconds", "",
	     "Longest time that each checkpoint held a lock of objects", 1e-9)

struct checkpoint_size {
	uint64_t records, bytes;
};

struct mcm_checkpoint {
	struct mcm *m;
	struct mcm_vault_file *file;
	uint8_t *buf;
	size_t len, cap;
	uint64_t records, bytes;
	int error;		/* the first one */
};

static void writer_flush(struct mcm_checkpoint *w)
{
	int r;

	if (!w->error && w->len) {
		r = mc_fault("checkpoint.write");
		if (r == 0)
			r = mcm_vault_write(w->file, w->buf, w->len);
		w->error = r;
		w->bytes += w->len;
	}
	w->len = 0;
}

/* Make room for a record of at most @max bytes.  Called under a lock, so it does no I/O, and
 * allocates only if keys are unusually long. */
static struct mcm_packer pack_begin(struct mcm_checkpoint *w, size_t max)
{
	if (w->cap - w->len < max) {
		uint8_t *more = realloc(w->buf, 2 * w->cap + max);

		if (!more) {
			w->error = -ENOMEM;
			w->len = 0;
		} else {
			w->buf = more;
			w->cap = 2 * w->cap + max;
		}
	}
	return (struct mcm_packer){ .bytes = w->buf + w->len, .cap = w->cap - w->len };
}

static void pack_end(struct mcm_checkpoint *w, const struct mcm_packer *p)
{
	if (p->overflow && !w->error)
		w->error = -EOVERFLOW;
	w->len += p->overflow ? 0 : p->len;
	w->records++;
}

static void write_object(void *arg, uint32_t slot)
{
	struct mcm_object_record r;
	struct mcm_checkpoint *w = arg;
	struct mcm_packer p = pack_begin(w, MCM_RECORD_OBJECT_MAX);

	mcm_object_describe(w->m, slot, &r);
	mcm_learn_describe(&w->m->learn, slot, &r.traits, &r.age);
	mcm_pack_object(&p, &r);
	pack_end(w, &p);
}

void mcm_checkpoint_objects(struct mcm *m, struct mcm_checkpoint *w)
{
	uint64_t pos = 0, began, longest = 0, took, turn = mc_now_ns(), cpu = mc_thread_cpu_ns(),
		cpu_took = 0;

	writer_flush(w);
	while (pos < MCM_TABLE_END && !w->error) {
		began = mc_now_ns();
		mcm_index_scan(&m->index, &pos, OBJECTS_PER_STEP, write_object, w);
		took = mc_now_ns() - began;
		if (took > longest) {
			longest = took;
			/* CPU time since the last yield: reading the clock before each step would
			 * cost more than a step. */
			cpu_took = mc_thread_cpu_ns() - cpu;
		}
		MC_FAULT_POINT("checkpoint.step");
		if (w->len >= WRITE_BYTES) {
			writer_flush(w);
			/* Write records of the evictor, or of a removal of many keys. */
			mcm_journal_flush(m);
			turn = 0;
		}
		/* Yield here, so that the scheduler need not preempt this thread while it holds a lock. */
		if (began + took - turn > TURN_NS) {
			mc_thread_yield();
			turn = mc_now_ns();
			cpu = mc_thread_cpu_ns();
		}
	}
	mc_metric_observe(&step_time, longest);
	m->journal->longest_ns = longest;
	m->journal->longest_cpu_ns = cpu_took;
}

void mcm_checkpoint_segments(struct mcm *m, struct mcm_checkpoint *w)
{
	struct mcm_segments *ss = &m->segments;
	struct mcm_segment_record r;
	unsigned i;

	mc_rwlock_rdlock(&ss->lock);
	for (i = 0; i < ss->n_live; i++) {
		struct mcm_packer p = pack_begin(w, 4 * MCM_NAME_MAX);

		mcm_segment_describe_record(ss->at[ss->live[i]], &r);
		mcm_pack_segment(&p, &r);
		pack_end(w, &p);
	}
	/* Objects in them are still being removed, and this checkpoint may have their records. */
	for (i = 0; i < ss->top; i++) {
		struct mcm_packer p;

		if (mcm_segment_state(ss->at[i]) != MCP_SEG_UNMOUNTING)
			continue;
		p = pack_begin(w, 64);
		mcm_pack_number(&p, MCM_REC_SEGMENT_GONE, i);
		pack_end(w, &p);
	}
	mc_rwlock_unlock(&ss->lock);
}

void mcm_checkpoint_put(void *arg, const struct mcm_put_record *r)
{
	struct mcm_checkpoint *w = arg;
	struct mcm_packer p = pack_begin(w, 256);

	mcm_pack_put(&p, r);
	pack_end(w, &p);
}

static void write_durable(void *arg, const struct mcm_durable_record *r)
{
	struct mcm_checkpoint *w = arg;
	struct mcm_packer p = pack_begin(w, r->name.len + r->value.len + 64u);

	mcm_pack_durable(&p, r);
	pack_end(w, &p);
}

void mcm_checkpoint_values(struct mcm *m, struct mcm_checkpoint *w)
{
	mcm_durables_each(m, 0, write_durable, w);
}

static int write_contents(struct mcm *m, struct mcm_vault_file *file, struct checkpoint_size *ret)
{
	struct mcm_checkpoint w = { .m = m, .file = file, .cap = 2 * WRITE_BYTES };
	struct mcm_packer p;

	w.buf = malloc(w.cap);
	if (!w.buf)
		return -ENOMEM;
	for (unsigned i = 0; i < mcm_parts_n; i++)
		mcm_parts[i].save(m, &w);
	p = pack_begin(&w, 64);
	mcm_pack_number(&p, MCM_REC_END, w.records);
	pack_end(&w, &p);
	writer_flush(&w);
	free(w.buf);
	*ret = (struct checkpoint_size){ w.records, w.bytes };
	return w.error;
}

/* Give the finished file its name, unless records were lost meanwhile. */
static int checkpoint_publish(struct mcm *m, const char *tmp, uint64_t sequence, uint64_t losses)
{
	struct mcm_journal *j = m->journal;
	char name[MCM_JOURNAL_NAME];
	int r = 0;

	mcm_journal_name(name, true, sequence);
	/* The checkpoint may contain an object that was renamed meanwhile twice or not at all, and two objects
	 * that had the same memory one after the other.  The journal resolves that, so write it first. */
	mcm_journal_catch_up(m);
	MC_FAULT_POINT("checkpoint.rename");
	mc_mutex_lock(&j->file_lock);
	if (j->losses != losses)
		r = mc_fail(-EIO, "records were lost while the checkpoint was written");
	else if (mc_file_renameat(j->dirfd, tmp, j->dirfd, name) < 0)
		r = mc_fail(-errno, "cannot publish %s/%s", j->path, name);
	else
		__atomic_store_n(&j->based, true, __ATOMIC_RELAXED);
	mc_mutex_unlock(&j->file_lock);
	if (r < 0)
		return r;
	MC_FAULT_POINT("checkpoint.published");
	if (mc_file_fsync(j->dirfd) < 0)
		return mc_fail(-errno, "cannot sync %s", j->path);
	__atomic_store_n(&j->checkpoint_ms, mc_wall_ns() / MC_NS_PER_MS, __ATOMIC_RELAXED);
	return 0;
}

static int write_and_publish(struct mcm *m, uint64_t sequence, uint64_t losses, struct checkpoint_size *ret)
{
	struct mcm_journal *j = m->journal;
	char tmp[MCM_JOURNAL_NAME + 8], name[MCM_JOURNAL_NAME];
	struct mcm_vault_file file;
	int r;

	mcm_journal_name(name, true, sequence);
	snprintf(tmp, sizeof(tmp), "%s.tmp", name);
	r = mcm_journal_begin_file(m, true, tmp, sequence, &file);
	if (r < 0)
		return r;
	r = write_contents(m, &file, ret);
	MC_FAULT_POINT("checkpoint.sync");
	if (r == 0 && mc_file_fsync(file.fd) < 0)
		r = -errno;
	mcm_vault_close(&file);
	if (r < 0)
		mc_fail(r, "cannot write %s/%s", j->path, name);
	else
		r = checkpoint_publish(m, tmp, sequence, losses);
	if (r < 0)
		(void)mc_file_unlinkat(j->dirfd, tmp, 0);
	return r;
}

/* Begin a new journal, to which all later records are appended. */
static int next_journal(struct mcm *m, uint64_t *ret_sequence, uint64_t *ret_losses, uint64_t *ret_older)
{
	struct mcm_journal *j = m->journal;
	uint64_t sequence = j->sequence + 1;
	char name[MCM_JOURNAL_NAME];
	struct mcm_vault_file file;
	int r;

	mc_mutex_lock(&j->file_lock);
	*ret_losses = j->losses;
	mc_mutex_unlock(&j->file_lock);
	mcm_journal_name(name, false, sequence);
	r = mcm_journal_begin_file(m, false, name, sequence, &file);
	if (r < 0)
		return r;
	MC_FAULT_POINT("checkpoint.switch");
	r = mcm_journal_switch(m, &file, sequence, *ret_losses);
	if (r < 0) {
		mcm_vault_close(&file);
		(void)mc_file_unlinkat(j->dirfd, name, 0);
		return r;
	}
	mc_mutex_lock(&j->file_lock);
	*ret_older = j->file_bytes;
	mc_mutex_unlock(&j->file_lock);
	*ret_sequence = sequence;
	return 0;
}

static int checkpoint_locked(struct mcm *m, uint64_t *ret_sequence, struct checkpoint_size *ret)
{
	struct mcm_journal *j = m->journal;
	uint64_t losses, older;
	int r;

	r = next_journal(m, ret_sequence, &losses, &older);
	if (r < 0)
		return r;
	r = write_and_publish(m, *ret_sequence, losses, ret);
	if (r < 0)
		return r;
	MC_FAULT_POINT("checkpoint.remove");
	r = mcm_journal_remove_below(j->dirfd, *ret_sequence);
	if (r < 0)
		mc_warn(LOG, "cannot remove older files, continuing dir=%s error=\"%s\"", j->path,
			mc_err_detail(r));
	__atomic_fetch_sub(&j->file_bytes, older, __ATOMIC_RELAXED);
	return 0;
}

int mcm_checkpoint(struct mcm *m)
{
	struct mcm_journal *j = m->journal;
	uint64_t began = mc_now_ns(), sequence = 0;
	struct checkpoint_size size = { 0 };
	int r;

	MC_LOCKED(&j->checkpoint_lock);
	for (unsigned i = 0; i < mcm_parts_n; i++)
		mcm_parts[i].update(m);
	r = checkpoint_locked(m, &sequence, &size);
	mc_metric_add(r < 0 ? &checkpoint_failures : &checkpoints, 1);
	mc_metric_observe(&duration, mc_now_ns() - began);
	mc_metric_observe(&duration_ms, (mc_now_ns() - began) / MC_NS_PER_MS);
	if (r < 0)
		return r;
	__atomic_store_n(&j->last_bytes, size.bytes, __ATOMIC_RELAXED);
	mc_info(LOG, "checkpoint written sequence=%llu records=%llu bytes=%llu ms=%llu "
		"longest_lock_us=%llu longest_lock_cpu_us=%llu",
		(unsigned long long)sequence, (unsigned long long)size.records,
		(unsigned long long)size.bytes,
		(unsigned long long)((mc_now_ns() - began) / MC_NS_PER_MS),
		(unsigned long long)(j->longest_ns / 1000),
		(unsigned long long)(j->longest_cpu_ns / 1000));
	return 0;
}
