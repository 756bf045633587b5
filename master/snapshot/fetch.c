/* SPDX-License-Identifier: Apache-2.0
 * fetch.c - the newest good snapshot becomes the state of an empty journal directory.
 *
 * The mark of the state's origin is written before the state. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/sys/file.h"
#include "master/journal/journal_i.h"
#include "master/mcm_i.h"
#include "master/snapshot/snapshot_i.h"

#define LOG "snapshot"
/* As the text of the mark: an older master takes no objects from the state then. */
#define NOTES "notes"

/* ---- the pieces as a stream ---------------------------------------------------------------------- */

struct stream {
	struct mcm_snapshots *s;
	const char *id;
	const json_t *manifest;
	unsigned next;		/* piece */
	uint8_t *data;
	size_t len, at;
};

/* At most @max bytes, at least one. */
static int stream_take(struct stream *st, uint64_t max, const uint8_t **ret, size_t *ret_len)
{
	void *data = NULL;
	int r;

	if (st->at == st->len) {
		free(st->data);
		st->data = NULL;
		st->len = st->at = 0;
		r = mcm_piece_read(st->s, st->id, st->manifest, st->next++, &data, &st->len);
		if (r < 0)
			return r;
		st->data = data;
	}
	*ret = st->data + st->at;
	*ret_len = st->len - st->at < max ? st->len - st->at : (size_t)max;
	st->at += *ret_len;
	return 0;
}

static int file_fill(struct stream *st, int fd, uint64_t size)
{
	while (size) {
		const uint8_t *bytes;
		size_t len = 0;
		int r = stream_take(st, size, &bytes, &len);

		if (r == 0)
			r = mcm_journal_write(fd, bytes, len);
		if (r < 0)
			return r;
		size -= len;
	}
	return 0;
}

/* The snapshot is whole, whatever became of the machine that wrote its last journal. */
static int end_write(struct mcm *m, int fd)
{
	uint8_t mem[64];
	struct mcm_packer p = { .bytes = mem, .cap = sizeof(mem) };

	mcm_pack_number(&p, MCM_REC_END, 0);
	return mcm_vault_append_end(&m->journal->vault, fd, p.bytes, p.len);
}

/* The checkpoint gets its name last: without it there is no state. */
static int file_fetch(struct mcm *m, struct stream *st, int dirfd, const json_t *file, bool last)
{
	bool checkpoint = json_is_true(json_object_get(file, "checkpoint"));
	char name[MCM_JOURNAL_NAME], tmp[MCM_JOURNAL_NAME + 8];
	auto_file int fd = -1;
	int r;

	mcm_journal_name(name, checkpoint, (uint64_t)json_integer_value(json_object_get(file, "sequence")));
	snprintf(tmp, sizeof(tmp), "%s%s", name, checkpoint ? ".tmp" : "");
	fd = mc_file_openat(dirfd, tmp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return mc_fail(-errno, "cannot create %s in the journal's directory", tmp);
	r = file_fill(st, fd, (uint64_t)json_integer_value(json_object_get(file, "size")));
	if (r == 0 && last)
		r = end_write(m, fd);
	if (r == 0 && mc_file_fsync(fd) < 0)
		r = -errno;
	return r;
}

static int checkpoint_name(int dirfd, const json_t *file)
{
	char name[MCM_JOURNAL_NAME], tmp[MCM_JOURNAL_NAME + 8];

	mcm_journal_name(name, true, (uint64_t)json_integer_value(json_object_get(file, "sequence")));
	snprintf(tmp, sizeof(tmp), "%s.tmp", name);
	if (mc_file_fsync(dirfd) < 0 || mc_file_renameat(dirfd, tmp, dirfd, name) < 0 || mc_file_fsync(dirfd) < 0)
		return mc_fail(-errno, "cannot finish %s in the journal's directory", name);
	return 0;
}

/* ---- one snapshot -------------------------------------------------------------------------------- */

static int files_fetch(struct mcm *m, const char *id, const json_t *manifest, int dirfd)
{
	const json_t *files = json_object_get(manifest, "files");
	struct stream st = { .s = m->snapshots, .id = id, .manifest = manifest };
	size_t n = json_array_size(files);
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++)
		r = file_fetch(m, &st, dirfd, json_array_get(files, i), i == n - 1);
	free(st.data);
	MC_FAULT_POINT("snapshot.fetched");
	return r < 0 ? r : checkpoint_name(dirfd, json_array_get(files, 0));
}

static int snapshot_fetch(struct mcm *m, const char *id, int dirfd)
{
	char mark[32] = NOTES;
	json_t *manifest = NULL;
	int r = mcm_manifest_read(m->snapshots, id, &manifest);

	if (r < 0)
		return r;
	if (json_is_true(json_object_get(manifest, "last")))
		snprintf(mark, sizeof(mark), "last %s", json_string_value(json_object_get(manifest, "server")));
	r = mcm_origin_mark(dirfd, mark);
	if (r == 0)
		r = files_fetch(m, id, manifest, dirfd);
	if (r == 0)
		mc_info(LOG, "restoring a snapshot id=%s where=\"%s\" objects=%lld last=%d", id,
			mct_keyed_where(m->snapshots->blobs),
			(long long)json_integer_value(json_object_get(manifest, "objects")), strcmp(mark, NOTES) != 0);
	json_decref(manifest);
	return r;
}

static void drop_files(int dirfd)
{
	struct mcm_journal_files unfinished;

	(void)mcm_journal_remove_below(dirfd, UINT64_MAX);
	/* Removes unfinished files. */
	if (mcm_journal_files(dirfd, &unfinished) == 0)
		mcm_journal_files_done(&unfinished);
	(void)mcm_origin_write(dirfd, MCM_ORIGIN_JOURNAL);
}

static int fetch_any(struct mcm *m, int dirfd)
{
	char (*id)[MCM_SNAPSHOT_ID] = NULL, first[MCM_SNAPSHOT_ID];
	struct mcm_snapshots *s = m->snapshots;
	unsigned n = 0;
	int r = mcm_snapshot_chosen(s, first);

	if (r == 0)
		r = mcm_snapshot_ids(s, &id, &n);
	if (r == 0 && !n)
		mc_info(LOG, "there is no snapshot to restore where=\"%s\"", mct_keyed_where(s->blobs));
	for (unsigned i = 0; i < n; i++) {
		const char *next = *first ? first : id[i];

		r = snapshot_fetch(m, next, dirfd);
		if (r == 0) {
			/* The choice was for one start. */
			if (*first)
				r = mcm_snapshot_choose(m, "");
			break;
		}
		mc_err(LOG, "cannot restore a snapshot, trying the one before it id=%s: %s", next, mc_err_detail(r));
		drop_files(dirfd);
		/* The store, and not the snapshot: an older one must not be used because of that.  Nor if this master
		 * does not have the newest secret. */
		if (r != -MC_ECHECKSUM && r != -ENOENT && r != -EKEYREJECTED)
			break;
		r = 0;
		if (*first) {
			*first = '\0';
			i--;
		}
	}
	free(id);
	return r;
}

int mcm_snapshot_fetch(struct mcm *m, int dirfd)
{
	struct mcm_journal_files files;
	bool empty;
	int r = mcm_journal_files(dirfd, &files);

	if (r < 0)
		return r;
	empty = !files.checkpoints;
	mcm_journal_files_done(&files);
	if (empty && m->snapshots && m->conf.enable_snapshot_restore)
		r = fetch_any(m, dirfd);
	else if (empty)
		r = mcm_origin_write(dirfd, MCM_ORIGIN_JOURNAL);
	return r;
}
