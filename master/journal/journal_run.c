/* SPDX-License-Identifier: Apache-2.0
 * journal_run.c - start and stop of the journal: options, open, threads, close. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/sys/file.h"
#include "master/journal/journal_i.h"
#include "master/mcm_i.h"
#include "proto/codec.h"

#define LOG "journal"
#define PERIOD_MS 50		/* between writes of records that no answer waits for */
#define RETRY_MS 1000		/* between attempts at a checkpoint that fails */

/* ---- options ---- */

static bool is_one_of(const char *value, const char *a, const char *b)
{
	return !*value || !strcmp(value, a) || !strcmp(value, b);
}

/* "auto" is a directory only after mcm_journal_auto(). */
static bool names_a_dir(const char *dir)
{
	return *dir && strcmp(dir, "none") != 0 && strcmp(dir, "auto") != 0;
}

static int check_cluster(const char *id)
{
	size_t len = strlen(id);

	if (!len || len > 128 || strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
					    "0123456789_.-") != len)
		return mc_fail(-EINVAL, "cluster_id=%s: use 1 to 128 letters, digits, '_', '.' or '-'", id);
	return 0;
}

int mcm_journal_wanted(const struct mcm_conf *c, const char **ret_dir)
{
	bool wanted = c->enable_snapshot || c->enable_snapshot_restore || c->enable_oplog;
	bool is_auto = !strcmp(c->journal_dir, "auto");
	int r = check_cluster(c->cluster_id);

	if (r < 0)
		return r;
	if (strcmp(c->journal_sync, "write") != 0 && strcmp(c->journal_sync, "fdatasync") != 0)
		return mc_fail(-EINVAL, "journal_sync=%s: unknown, use write or fdatasync",
			       c->journal_sync);
	if (!is_one_of(c->snapshot_catalog_store_type, "embedded", "payload") &&
	    strcmp(c->snapshot_catalog_store_type, "redis") != 0)
		return mc_fail(-EINVAL, "snapshot_catalog_store_type=%s: unknown, use embedded",
			       c->snapshot_catalog_store_type);
	/* Without a store of snapshots, their directory is that of the journal. */
	*ret_dir = wanted && is_auto && *c->snapshot_backup_dir && !*c->snapshot_object_store_type ?
		c->snapshot_backup_dir : c->journal_dir;
	if (wanted && !names_a_dir(*ret_dir) && !is_auto)
		return mc_fail(-EINVAL, "enable_snapshot, enable_snapshot_restore and enable_oplog "
			       "need a journal, but journal_dir=%s switches it off", c->journal_dir);
	return names_a_dir(*ret_dir);
}

/* ---- open and close ---- */

static void *map_buffer(void)
{
	void *p = mmap(NULL, MCM_JOURNAL_BUFFER, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* Identify the machine's current boot: data written but not synced during an earlier boot may be lost.
 * All zero: unknown (some sandboxes hide it), which is the same boot as no other. */
static void read_boot_id(uint8_t ret[MCM_BOOT_ID])
{
	auto_file int fd = mc_fault("journal.boot_id") < 0 ? -1 :
		mc_file_open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC, 0);
	char text[40];
	ssize_t n = fd < 0 ? 0 : mc_file_read(fd, text, sizeof(text) - 1);
	unsigned at = 0;

	memset(ret, 0, MCM_BOOT_ID);
	for (ssize_t i = 0; i < n && at < 2 * MCM_BOOT_ID; i++) {
		const char *digits = "0123456789abcdef", *d = strchr(digits, text[i]);

		if (!d || !*d)
			continue;
		ret[at / 2] |= (uint8_t)((unsigned)(d - digits) << (at % 2 ? 0 : 4));
		at++;
	}
	if (at < 2 * MCM_BOOT_ID)
		memset(ret, 0, MCM_BOOT_ID);
}

void mcm_journal_free(struct mcm_journal *j)
{
	if (!j)
		return;
	mcm_vault_close(&j->file);
	if (j->dirfd >= 0)
		mc_file_close(j->dirfd);
	if (j->lockfd >= 0)
		mc_file_close(j->lockfd);
	if (j->buf)
		munmap(j->buf, MCM_JOURNAL_BUFFER);
	if (j->spare)
		munmap(j->spare, MCM_JOURNAL_BUFFER);
	mc_stop_done(&j->sync_stop);
	mc_stop_done(&j->stop);
	mc_mutex_destroy(&j->checkpoint_lock);
	mc_mutex_destroy(&j->sync_lock);
	mc_mutex_destroy(&j->file_lock);
	mc_mutex_destroy(&j->lock);
	free(j->cluster);
	free(j->path);
	free(j);
}

int mcm_journal_new(const struct mcm *m, const char *path, struct mcm_journal **ret)
{
	const struct mcm_conf *conf = &m->conf;
	struct mcm_journal *j = calloc(1, sizeof(*j));
	int r;

	if (!j)
		return -ENOMEM;
	j->file.fd = j->dirfd = j->lockfd = -1;
	mcm_vault_init(&j->vault, m->security);
	mc_mutex_init(&j->lock);
	mc_mutex_init(&j->file_lock);
	mc_mutex_init(&j->sync_lock);
	mc_mutex_init(&j->checkpoint_lock);
	mc_stop_init(&j->stop);
	mc_stop_init(&j->sync_stop);
	j->path = strdup(path);
	j->cluster = strdup(conf->cluster_id);
	j->buf = map_buffer();
	j->spare = map_buffer();
	j->sync = !strcmp(conf->journal_sync, "fdatasync");
	j->checkpoint_bytes = conf->journal_checkpoint_size;
	j->interval_ms = conf->snapshot_interval_seconds;
	read_boot_id(j->boot);
	r = j->path && j->cluster && j->buf && j->spare ? 0 : -ENOMEM;
	if (r < 0)
		mcm_journal_free(j);
	else
		*ret = j;
	return r;
}

/* Begin the file that this start appends to; in a directory without a state also write an empty checkpoint. */
static int journal_begin(struct mcm *m, uint64_t sequence)
{
	struct mcm_journal *j = m->journal;
	char name[MCM_JOURNAL_NAME];
	int r;

	mcm_journal_name(name, false, sequence);
	r = mcm_journal_begin_file(m, false, name, sequence, &j->file);
	j->sequence = sequence;
	/* The restored state may come from a killed master that had not synced it. */
	if (r == 0 && j->sync)
		r = mcm_journal_sync_files(j->dirfd);
	if (r == 0 && !j->based)
		r = mcm_checkpoint(m);
	if (r != -ENOSPC && r != -EDQUOT && !j->discarded)
		return r;
	/* Treat a full disk at the start like one later: the master serves and retries. */
	mcm_journal_lose(m, r);
	return 0;
}

/* Make the restored state an ordinary one, except that segments are unproven, as their records say.  An older master
 * does not read that: the mark makes it treat all objects as unproven until the last segment is proven. */
static int journal_from_snapshot(struct mcm *m)
{
	struct mcm_journal *j = m->journal;
	const struct mcm_segments *ss = &m->segments;

	for (unsigned i = 0; i < mcm_parts_n; i++)
		mcm_parts[i].restored(m);
	m->from_snapshot = j->origin != MCM_ORIGIN_JOURNAL;
	if (!m->from_snapshot)
		return 0;
	for (unsigned i = 0; i < ss->n_live && j->origin == MCM_ORIGIN_SNAPSHOT; i++)
		mcm_journal_segment(m, ss->at[ss->live[i]]);
	mcm_journal_catch_up(m);
	j->origin = m->unproven ? MCM_ORIGIN_UNPROVEN : MCM_ORIGIN_JOURNAL;
	return mcm_origin_write(j->dirfd, j->origin);
}

static void warn_unknown_boot(const struct mcm_journal *j)
{
	static const uint8_t unknown[MCM_BOOT_ID];

	if (!j->sync && !memcmp(j->boot, unknown, MCM_BOOT_ID))
		mc_warn(LOG, "the machine's boot id is unknown: after a kill the index starts empty, unless "
			"journal_sync=fdatasync dir=%s", j->path);
}

int mcm_journal_open(struct mcm *m)
{
	const char *path;
	bool again = false;
	uint64_t next = 1;
	int r;

	r = mcm_journal_wanted(&m->conf, &path);
	if (r <= 0)
		return r;
	r = mcm_journal_new(m, path, &m->journal);
	if (r == 0)
		r = mcm_journal_dir_open(path, &m->journal->dirfd, &m->journal->lockfd);
	for (unsigned i = 0; i < mcm_parts_n && r == 0; i++)
		r = mcm_parts[i].prepare(m, m->journal->dirfd);
	if (r == 0)
		r = mcm_origin_read(m->journal->dirfd, &m->journal->origin, &m->snapshot_proof);
	if (r == 0)
		r = mcm_restore(m, &next, &again);
	if (r == 0)
		r = journal_begin(m, next);
	if (r == 0)
		r = journal_from_snapshot(m);
	if (r < 0) {
		mcm_journal_free(m->journal);
		m->journal = NULL;
		return r;
	}
	warn_unknown_boot(m->journal);
	m->journal->checkpoint_ns = mc_now_ns();
	m->journal->wanted = again;
	return 0;
}

void mcm_journal_close(struct mcm *m, bool clean)
{
	struct mcm_journal *j = m->journal;
	struct mcm_packer p;
	uint8_t mem[64];
	int r;

	if (!j)
		return;
	if (clean) {
		r = mcm_checkpoint(m);
		if (r < 0)
			mc_warn(LOG, "cannot write the last checkpoint, the journal is complete error=\"%s\"",
				mc_err_detail(r));
		mcm_journal_flush(m);
		/* An end record promises that everything before it was synced. */
		r = mcm_journal_sync_files(j->dirfd);
		if (r < 0)
			mc_warn(LOG, "cannot sync the journal, leaving out its end record error=\"%s\"",
				mc_err_detail(r));
		p = (struct mcm_packer){ .bytes = mem, .cap = sizeof(mem) };
		mcm_pack_number(&p, MCM_REC_END, 0);
		if (r == 0 && !j->lost && mcm_vault_write(&j->file, p.bytes, p.len) == 0)
			(void)mc_file_fsync(j->file.fd);
	}
	m->journal = NULL;
	mcm_journal_free(j);
}

/* ---- the thread ---- */

/* After the next rotation the secret of the files' keys is not accepted any more. */
static bool journal_is_aged(struct mcm_journal *j)
{
	MC_LOCKED(&j->file_lock);
	return mcm_vault_is_aged(&j->file);
}

static bool checkpoint_due(struct mcm_journal *j)
{
	uint64_t bytes = __atomic_load_n(&j->file_bytes, __ATOMIC_RELAXED);
	uint64_t half = __atomic_load_n(&j->last_bytes, __ATOMIC_RELAXED) / 2;
	uint64_t limit = half > j->checkpoint_bytes ? half : j->checkpoint_bytes;
	uint64_t now = mc_now_ns();

	if (now < j->retry_ns)
		return false;
	if (j->wanted || journal_is_aged(j) || !__atomic_load_n(&j->based, __ATOMIC_RELAXED) ||
	    __atomic_load_n(&j->lost, __ATOMIC_RELAXED))
		return true;
	return bytes > limit ||
	       (bytes && j->interval_ms && now - j->checkpoint_ns >= j->interval_ms * MC_NS_PER_MS);
}

static void *journal_main(void *arg)
{
	struct mcm *m = arg;
	struct mcm_journal *j = m->journal;
	bool failing = false;
	int r;

	while (!mc_stop_wait(&j->stop, PERIOD_MS)) {
		mcm_journal_flush(m);
		if (!checkpoint_due(j))
			continue;
		r = mcm_checkpoint(m);
		j->checkpoint_ns = mc_now_ns();
		if (r == 0) {
			if (failing)
				mc_info(LOG, "writing the journal again dir=%s", j->path);
			failing = j->wanted = false;
			continue;
		}
		if (!failing)
			mc_err(LOG, "cannot write a checkpoint, retrying error=\"%s\"", mc_err_detail(r));
		failing = true;
		j->retry_ns = j->checkpoint_ns + RETRY_MS * MC_NS_PER_MS;
	}
	return NULL;
}

int mcm_journal_start(struct mcm *m)
{
	struct mcm_journal *j = m->journal;
	int r;

	if (!j)
		return 0;
	r = mc_thread_start(&j->thread, "mc-journal", journal_main, m);
	j->runs = r == 0;
	return r;
}

void mcm_journal_stop(struct mcm *m)
{
	struct mcm_journal *j = m->journal;

	if (!j || !j->runs)
		return;
	mc_stop_set(&j->stop);
	mc_thread_join(j->thread);
	j->runs = false;
}

/* ---- the thread that syncs ---- */

static void *sync_main(void *arg)
{
	struct mcm *m = arg;
	struct mcm_journal *j = m->journal;
	uint64_t wanted;
	bool stop;

	do {
		stop = mc_stop_wait(&j->sync_stop, PERIOD_MS);
		wanted = __atomic_load_n(&j->sync_wanted, __ATOMIC_ACQUIRE);
		if (__atomic_load_n(&j->synced, __ATOMIC_ACQUIRE) < wanted)
			mcm_journal_sync_to(m, wanted);
		/* Report also if a checkpoint did the sync, and every period, in case an earlier
		 * report came before a session began to wait. */
		j->on_sync(m, __atomic_load_n(&j->synced, __ATOMIC_ACQUIRE) + 1);
	} while (!stop);
	return NULL;
}

int mcm_journal_sync_start(struct mcm *m, void (*fn)(struct mcm *m, uint64_t lsn))
{
	struct mcm_journal *j = m->journal;
	int r;

	if (!j || !j->sync)
		return 0;
	j->on_sync = fn;
	r = mc_thread_start(&j->sync_thread, "mc-sync", sync_main, m);
	if (r == 0)
		__atomic_store_n(&j->syncs, true, __ATOMIC_RELEASE);
	return r;
}

void mcm_journal_sync_stop(struct mcm *m)
{
	struct mcm_journal *j = m->journal;

	if (!j || !__atomic_load_n(&j->syncs, __ATOMIC_RELAXED))
		return;
	/* Answering threads now wait themselves; the thread syncs once more for answers
	 * that still wait. */
	__atomic_store_n(&j->syncs, false, __ATOMIC_RELEASE);
	mc_stop_set(&j->sync_stop);
	mc_thread_join(j->sync_thread);
}

void mcm_journal_stats(struct mcm *m, struct mcm_journal_stats *ret)
{
	struct mcm_journal *j = m->journal;

	*ret = (struct mcm_journal_stats){ 0 };
	if (!j)
		return;
	MC_LOCKED(&j->file_lock);
	*ret = (struct mcm_journal_stats){
		.on = true, .lost = __atomic_load_n(&j->lost, __ATOMIC_RELAXED) || !j->based,
		.sequence = j->sequence, .bytes = j->file_bytes, .checkpoint_ms = j->checkpoint_ms,
		.restored = j->restored,
	};
}
