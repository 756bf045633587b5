/* SPDX-License-Identifier: Apache-2.0
 * journal.c - appending records of changes, and writing them to the file.
 *
 * Appending copies a record into a buffer under a lock of its own.  A thread that answers a client first writes
 * the buffer, with the records of all threads: one system call for many records.  The journal's thread writes
 * records that no answer waits for.  No thread waits for the disk under a lock of objects: when the buffer is
 * full or the disk fails, records are dropped, and the state on disk is discarded. */
#include <config.h>

#include <errno.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/file.h"
#include "common/sys/world.h"
#include "master/ha/feeder.h"
#include "master/index/attrs.h"
#include "master/journal/journal_i.h"
#include "master/mcm_i.h"
#include "proto/codec.h"

#define LOG "journal"
#define KICK_BYTES (4u << 20)	/* bytes in the buffer that wake the thread */

MC_COUNTER(bytes, "mooncake_master_journal_bytes_total", "", "Bytes written to journals")
MC_COUNTER(writes, "mooncake_master_journal_writes_total", "", "Writes to journals")
MC_COUNTER(losses, "mooncake_master_journal_losses_total", "",
	   "Times that changes could not be written and the state on disk was discarded")
MC_HISTOGRAM(sync_time, "mooncake_master_journal_sync_seconds", "", "Duration of a sync to disk", 1e-9)

/* LSN + 1 up to which the journal must be written before this thread's answers may leave; 0: none. */
static __thread uint64_t pending_lsn;
MC_WORLD_LOCAL(pending_lsn)

/* ---- appending ---- */

void mcm_journal_append(struct mcm_journal *j, const struct mcm_packer *p)
{
	bool full = false, kick = false;

	mc_mutex_lock(&j->lock);
	if (p->overflow || MCM_JOURNAL_BUFFER - j->len < p->len) {
		full = !j->lost;
		__atomic_store_n(&j->lost, true, __ATOMIC_RELAXED);
	}
	if (!j->lost) {
		kick = j->len < KICK_BYTES && j->len + p->len >= KICK_BYTES;
		memcpy(j->buf + j->len, p->bytes, p->len);
		j->len += p->len;
		__atomic_store_n(&j->appended, j->appended + p->len, __ATOMIC_RELAXED);
	}
	/* Also for a dropped record: then the state on disk must be removed before the answer leaves. */
	pending_lsn = j->appended + 1;
	mc_mutex_unlock(&j->lock);
	if (full || kick)
		mc_stop_kick(&j->stop);
}

void mcm_journal_depend(struct mcm *m)
{
	if (m->journal)
		pending_lsn = __atomic_load_n(&m->journal->appended, __ATOMIC_RELAXED) + 1;
}

/* @from: the object's old key, empty: it was not renamed. */
static void journal_object(struct mcm *m, struct mcp_bytes from, uint32_t slot)
{
	uint8_t mem[MCM_RECORD_OBJECT_MAX];
	struct mcm_packer p = { .bytes = mem, .cap = sizeof(mem) };
	struct mcm_object_record r;

	if (!m->journal)
		return;
	mcm_object_describe(m, slot, &r);
	if (from.len)
		mcm_pack_renamed(&p, from, &r);
	else
		mcm_pack_object(&p, &r);
	mcm_journal_append(m->journal, &p);
}

void mcm_journal_object(struct mcm *m, uint32_t slot)
{
	journal_object(m, (struct mcp_bytes){ 0 }, slot);
}

void mcm_journal_renamed(struct mcm *m, struct mcp_bytes from, uint32_t slot)
{
	if (m->journal && mcm_attrs_is_name(&m->index, slot, NULL))
		mcm_journal_renamed_name(m, from, slot);
	else
		journal_object(m, from, slot);
}

void mcm_journal_object_gone(struct mcm *m, uint32_t slot)
{
	uint8_t mem[MCM_RECORD_OBJECT_MAX];
	struct mcm_packer p = { .bytes = mem, .cap = sizeof(mem) };

	if (!m->journal)
		return;
	mcm_pack_object_gone(&p, mcp_bytes(mcm_shard_key(&m->index, slot),
					   mcm_object(&m->index, slot)->key_len));
	mcm_journal_append(m->journal, &p);
}

void mcm_journal_put_trimmed(struct mcm *m, uint64_t generation, const struct mcm_extent *extent,
			     unsigned copies, uint64_t granules)
{
	uint8_t mem[256];
	struct mcm_packer p = { .bytes = mem, .cap = sizeof(mem) };
	struct mcm_put_record r;
	unsigned i;

	if (!m->journal || !copies)
		return;
	r = (struct mcm_put_record){ .generation = generation, .copies = (uint8_t)copies };
	for (i = 0; i < copies; i++) {
		r.extent[i] = mcm_extent_record_of(m, extent[i]);
		if (r.extent[i].len > granules)
			r.extent[i].len = granules;
	}
	mcm_pack_put(&p, &r);
	mcm_journal_append(m->journal, &p);
}

void mcm_journal_put(struct mcm *m, uint64_t generation, const struct mcm_extent *extent, unsigned copies)
{
	mcm_journal_put_trimmed(m, generation, extent, copies, UINT64_MAX);
}

static void journal_number(struct mcm *m, enum mcm_record_type type, uint64_t v)
{
	uint8_t mem[64];
	struct mcm_packer p = { .bytes = mem, .cap = sizeof(mem) };

	if (!m->journal)
		return;
	mcm_pack_number(&p, type, v);
	mcm_journal_append(m->journal, &p);
}

void mcm_journal_put_gone(struct mcm *m, uint64_t generation)
{
	journal_number(m, MCM_REC_PUT_GONE, generation);
}

void mcm_segment_describe_record(const struct mcm_segment *s, struct mcm_segment_record *ret)
{
	*ret = (struct mcm_segment_record){
		.index = s->index, .id = s->id, .client = s->client, .epoch = s->epoch,
		.base = s->base, .rkey = s->rkey, .size = s->size,
		.name = mcp_bytes(s->name, strlen(s->name)),
		.endpoint = mcp_bytes(s->endpoint, strlen(s->endpoint)),
		.protocol = mcp_bytes(s->protocol, strlen(s->protocol)),
		.medium = s->medium, .high = s->high, .low = s->low, .policy = s->own_policy,
		.unproven = s->unproven, .tenant = s->tenant,
	};
}

void mcm_journal_segment_grows(struct mcm *m, const struct mcm_segment *s, uint64_t size)
{
	uint8_t mem[4 * MCM_NAME_MAX];
	struct mcm_packer p = { .bytes = mem, .cap = sizeof(mem) };
	struct mcm_segment_record r;

	if (!m->journal)
		return;
	mcm_segment_describe_record(s, &r);
	r.size = size;
	mcm_pack_segment(&p, &r);
	mcm_journal_append(m->journal, &p);
}

void mcm_journal_segment(struct mcm *m, const struct mcm_segment *s)
{
	mcm_journal_segment_grows(m, s, s->size);
}

void mcm_journal_segment_gone(struct mcm *m, const struct mcm_segment *s)
{
	journal_number(m, MCM_REC_SEGMENT_GONE, s->index);
}

void mcm_journal_durable(struct mcm *m, const struct mcm_durable_record *r, bool gone)
{
	uint8_t mem[MCM_DURABLE_NAME_MAX + MCM_DURABLE_VALUE_MAX + 64];
	struct mcm_packer p = { .bytes = mem, .cap = sizeof(mem) };

	if (!m->journal)
		return;
	if (gone)
		mcm_pack_durable_gone(&p, r->kind, r->name);
	else
		mcm_pack_durable(&p, r);
	mcm_journal_append(m->journal, &p);
}

/* ---- writing ---- */

int mcm_journal_write(int fd, const void *p, size_t len)
{
	const uint8_t *at = p;
	ssize_t n;

	while (len) {
		n = mc_file_write(fd, at, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

/* file_lock held.  The state on disk is no longer true: remove it, so that no start uses it. */
static void journal_discard(struct mcm_journal *j, int why)
{
	int r;

	j->discarded = true;
	__atomic_store_n(&j->based, false, __ATOMIC_RELAXED);
	j->losses++;
	mc_metric_add(&losses, 1);
	r = mcm_journal_remove_below(j->dirfd, UINT64_MAX);
	if (r == 0 && j->sync && mc_file_fsync(j->dirfd) < 0)
		r = -errno;
	mc_err(LOG, "cannot write the journal, continuing without it; a restart now loses the index "
		 "dir=%s error=\"%s\"", j->path, why < 0 ? mc_strerror(why) : "buffer full");
	if (r < 0)
		mc_err(LOG, "cannot remove outdated journal files: remove them before you restart the master "
			 "dir=%s error=\"%s\"", j->path, mc_strerror(r));
	/* A standby has every record that was answered for; nothing that was not is answered before this returns. */
	if (j->lead)
		j->lead->lost(j->lead->arg);
}

void mcm_journal_lose(struct mcm *m, int why)
{
	struct mcm_journal *j = m->journal;

	MC_LOCKED(&j->file_lock);
	mc_mutex_lock(&j->lock);
	__atomic_store_n(&j->lost, true, __ATOMIC_RELAXED);
	mc_mutex_unlock(&j->lock);
	if (!j->discarded)
		journal_discard(j, why);
}

/* file_lock held. */
static void journal_flush_locked(struct mcm_journal *j)
{
	uint8_t *full = j->buf;
	uint64_t end;
	size_t len;
	bool lost;
	int r;

	mc_mutex_lock(&j->lock);
	len = j->len;
	if (len) {
		j->buf = j->spare;
		j->spare = full;
		j->len = 0;
	}
	end = j->appended;
	lost = j->lost;
	mc_mutex_unlock(&j->lock);
	r = mc_fault("journal.write");
	if (r == 0 && len && !lost) {
		r = mcm_vault_write(&j->file, full, len);
		mc_metric_add(&writes, 1);
	}
	if (r < 0) {
		mc_mutex_lock(&j->lock);
		__atomic_store_n(&j->lost, true, __ATOMIC_RELAXED);
		j->len = 0;
		mc_mutex_unlock(&j->lock);
		lost = true;
	} else if (!lost) {
		mc_metric_add(&bytes, (int64_t)len);
		__atomic_fetch_add(&j->file_bytes, len, __ATOMIC_RELAXED);
	}
	if (lost && !j->discarded)
		journal_discard(j, r);
	__atomic_store_n(&j->written, end, __ATOMIC_RELEASE);
	MC_FAULT_POINT("journal.written");
}

void mcm_journal_flush(struct mcm *m)
{
	struct mcm_journal *j = m->journal;

	MC_LOCKED(&j->file_lock);
	journal_flush_locked(j);
}

void mcm_journal_sync_to(struct mcm *m, uint64_t end)
{
	struct mcm_journal *j = m->journal;
	uint64_t target, began;
	int fd, r;

	MC_LOCKED(&j->sync_lock);
	if (__atomic_load_n(&j->synced, __ATOMIC_ACQUIRE) >= end)
		return;
	mc_mutex_lock(&j->file_lock);
	/* One write and sync also covers later records of other threads. */
	journal_flush_locked(j);
	target = j->written;
	fd = j->file.fd;
	mc_mutex_unlock(&j->file_lock);
	began = mc_now_ns();
	r = mc_fault("journal.sync");
	if (r == 0 && mc_file_fdatasync(fd) < 0)
		r = -errno;
	mc_metric_observe(&sync_time, mc_now_ns() - began);
	if (r < 0)
		mcm_journal_lose(m, r);
	__atomic_store_n(&j->synced, target, __ATOMIC_RELEASE);
}

/* Return and clear this thread's pending_lsn. */
static uint64_t take_pending_lsn(struct mcm *m)
{
	uint64_t end = pending_lsn;

	pending_lsn = 0;
	if (!end || !m->journal)
		return 0;
	MC_FAULT_POINT("journal.settle");
	return end;
}

static void journal_wait_for(struct mcm *m, uint64_t end)
{
	struct mcm_journal *j = m->journal;

	if (__atomic_load_n(&j->written, __ATOMIC_ACQUIRE) < end ||
	    __atomic_load_n(&j->lost, __ATOMIC_RELAXED)) {
		mc_mutex_lock(&j->file_lock);
		if (j->written < end || !j->discarded)
			journal_flush_locked(j);
		mc_mutex_unlock(&j->file_lock);
	}
	if (j->sync)
		mcm_journal_sync_to(m, end);
}

void mcm_journal_catch_up(struct mcm *m)
{
	journal_wait_for(m, __atomic_load_n(&m->journal->appended, __ATOMIC_RELAXED));
}

void mcm_journal_wait(struct mcm *m)
{
	uint64_t end = take_pending_lsn(m);

	if (!end)
		return;
	journal_wait_for(m, end - 1);
	if (m->feeders)
		mcm_feeders_wait(m->feeders, end - 1);
}

/* With standbys: the answers may leave when these have the records. */
static uint64_t pending_at_standbys(struct mcm *m, uint64_t end)
{
	journal_wait_for(m, end - 1);
	return mcm_feeders_have(m->feeders, end - 1) ? 0 : end;
}

uint64_t mcm_journal_pending_lsn(struct mcm *m)
{
	struct mcm_journal *j = m->journal;
	uint64_t end = take_pending_lsn(m), wanted;

	if (m->feeders && !mcm_feeders_lead(m->feeders)) {
		end = end ? end : __atomic_load_n(&j->appended, __ATOMIC_RELAXED) + 1;
		(void)pending_at_standbys(m, end);
		return end;
	}
	if (!end)
		return 0;
	if (m->feeders)
		return pending_at_standbys(m, end);
	/* Without the sync thread, or when the state on disk must be discarded first, wait here. */
	if (!__atomic_load_n(&j->syncs, __ATOMIC_ACQUIRE) || __atomic_load_n(&j->lost, __ATOMIC_RELAXED)) {
		journal_wait_for(m, end - 1);
		return 0;
	}
	if (__atomic_load_n(&j->synced, __ATOMIC_ACQUIRE) >= end - 1)
		return 0;
	wanted = __atomic_load_n(&j->sync_wanted, __ATOMIC_RELAXED);
	while (wanted < end - 1 && !__atomic_compare_exchange_n(&j->sync_wanted, &wanted, end - 1, true,
					    __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
	mc_stop_kick(&j->sync_stop);
	return end;
}

static int switch_fail(const struct mcm_journal *j)
{
	return mc_fail(-EIO, "records were lost while %s switched to a new file", j->path);
}

int mcm_journal_switch(struct mcm *m, const struct mcm_vault_file *file, uint64_t sequence, uint64_t losses_then)
{
	struct mcm_journal *j = m->journal;
	struct mcm_vault_file old = { .fd = -1 };
	bool full;

	MC_LOCKED(&j->sync_lock);
	MC_LOCKED(&j->file_lock);
	journal_flush_locked(j);
	/* Sync the old file here for the threads that wait for its records. */
	if (j->sync && !j->discarded && mc_file_fdatasync(j->file.fd) < 0) {
		int why = -errno;

		mc_mutex_lock(&j->lock);
		__atomic_store_n(&j->lost, true, __ATOMIC_RELAXED);
		mc_mutex_unlock(&j->lock);
		journal_discard(j, why);
	}
	__atomic_store_n(&j->synced, j->written, __ATOMIC_RELEASE);
	if (j->losses != losses_then)
		return switch_fail(j);
	mc_mutex_lock(&j->lock);
	/* The buffer may have become full since the flush, without a discard so far. */
	full = j->lost && !j->discarded;
	if (!full) {
		/* Records appended since the flush belong to the new file, even if earlier ones were lost. */
		__atomic_store_n(&j->lost, false, __ATOMIC_RELAXED);
		j->discarded = false;
		old = j->file;
		j->file = *file;
		j->sequence = sequence;
	}
	mc_mutex_unlock(&j->lock);
	if (full) {
		journal_discard(j, 0);
		return switch_fail(j);
	}
	mcm_vault_close(&old);
	return 0;
}

int mcm_journal_begin_file(struct mcm *m, bool checkpoint, const char *name, uint64_t sequence,
			   struct mcm_vault_file *ret)
{
	const struct mcm_journal *j = m->journal;
	uint8_t mem[MCM_JOURNAL_HEAD_MAX / 2];
	struct mcm_packer p = { .bytes = mem, .cap = sizeof(mem) };
	struct mcm_header_record h = {
		.sequence = sequence, .wall_ms = mc_wall_ns() / MC_NS_PER_MS,
		.generation = mcm_generation_next(m, 0), .checkpoint = checkpoint,
		.synced = j->sync, .cluster = mcp_bytes(j->cluster, strlen(j->cluster)),
		.seed = m->index.seed,
	};
	struct mcm_vault_file f = { .fd = -1 };
	int r, fd;

	memcpy(h.boot, j->boot, sizeof(h.boot));
	mcm_pack_header(&p, &h);
	if (p.overflow)
		return mc_fail(-EINVAL, "cluster_id is too long");
	r = mc_fault("journal.create");
	fd = r < 0 ? -1 : mc_file_openat(j->dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (r == 0 && fd < 0)
		r = -errno;
	if (r == 0)
		r = mcm_vault_begin(&j->vault, fd, &f);
	for (unsigned i = 0; i < 2 && r == 0; i++)
		r = mcm_vault_write(&f, mem, p.len);
	/* Sync the header and the name: after a machine failure, a journal without them looks like
	 * one to which nothing was written. */
	if (r == 0 && !checkpoint && (mc_file_fsync(fd) < 0 || mc_file_fsync(j->dirfd) < 0))
		r = -errno;
	if (r < 0) {
		if (fd >= 0)
			(void)mc_file_unlinkat(j->dirfd, name, 0);
		mcm_vault_close(&f);
		return mc_fail(r, "cannot begin %s/%s", j->path, name);
	}
	*ret = f;
	return 0;
}
