/* SPDX-License-Identifier: Apache-2.0
 * feed.c - the files of a running master's journal as a stream. */
#include <config.h>

#include "master/journal/feed.h"

#include <errno.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/sys/file.h"
#include "master/journal/journal_i.h"
#include "master/mcm_i.h"

struct mcm_feed {
	struct mcm *m;
	int checkpoint, journal;	/* descriptors; -1: none */
	uint64_t checkpoint_sequence;	/* number of the checkpoint that is being read, or was read last */
	uint64_t checkpoint_at;		/* bytes read of it */
	uint64_t journal_sequence, journal_at;
	uint64_t losses;		/* the journal's count of losses when the feed was opened */
};

static int file_open(const struct mcm_journal *j, bool checkpoint, uint64_t sequence)
{
	char name[MCM_JOURNAL_NAME];
	int fd;

	mcm_journal_name(name, checkpoint, sequence);
	fd = mc_file_openat(j->dirfd, name, O_RDONLY | O_CLOEXEC, 0);
	return fd < 0 ? -errno : fd;
}

/* The number of the newest checkpoint. */
static int newest_checkpoint(const struct mcm_journal *j, uint64_t *ret)
{
	struct mcm_journal_files files;
	int r = mcm_journal_files(j->dirfd, &files);

	if (r < 0)
		return r;
	r = files.checkpoints ? 0 : mc_fail(-ENOENT, "there is no checkpoint in %s", j->path);
	if (r == 0)
		*ret = files.checkpoint[files.checkpoints - 1];
	mcm_journal_files_done(&files);
	return r;
}

int mcm_feed_open(struct mcm *m, struct mcm_feed **ret)
{
	struct mcm_journal *j = m->journal;
	struct mcm_feed *f = calloc(1, sizeof(*f));
	int r;

	if (!f)
		return -ENOMEM;
	f->m = m;
	f->checkpoint = f->journal = -1;
	/* No checkpoint removes the files meanwhile. */
	MC_LOCKED(&j->checkpoint_lock);
	mc_mutex_lock(&j->file_lock);
	f->losses = j->losses;
	mc_mutex_unlock(&j->file_lock);
	r = newest_checkpoint(j, &f->checkpoint_sequence);
	if (r == 0)
		r = f->checkpoint = file_open(j, true, f->checkpoint_sequence);
	f->journal_sequence = f->checkpoint_sequence;
	if (r >= 0)
		r = f->journal = file_open(j, false, f->journal_sequence);
	if (r < 0) {
		mcm_feed_close(f);
		return r == -ENOENT ? mc_fail(r, "there is no checkpoint in %s", j->path) : r;
	}
	*ret = f;
	return 0;
}

void mcm_feed_close(struct mcm_feed *f)
{
	if (!f)
		return;
	if (f->checkpoint >= 0)
		mc_file_close(f->checkpoint);
	if (f->journal >= 0)
		mc_file_close(f->journal);
	free(f);
}

static ssize_t file_read(int fd, void *buf, size_t max, uint64_t at)
{
	ssize_t n;

	do
		n = mc_file_pread(fd, buf, max, (off_t)at);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

/* The checkpoint is complete before it gets its name. */
static int read_checkpoint(struct mcm_feed *f, void *buf, size_t max, struct mcm_feed_part *ret)
{
	struct stat st;
	ssize_t n = file_read(f->checkpoint, buf, max, f->checkpoint_at);

	if (n < 0)
		return (int)n;
	if (mc_file_fstat(f->checkpoint, &st) < 0)
		return -errno;
	*ret = (struct mcm_feed_part){
		.checkpoint = true, .sequence = f->checkpoint_sequence, .offset = f->checkpoint_at, .len = (size_t)n,
		.last = f->checkpoint_at + (uint64_t)n == (uint64_t)st.st_size,
	};
	f->checkpoint_at += (uint64_t)n;
	if (ret->last) {
		mc_file_close(f->checkpoint);
		f->checkpoint = -1;
	}
	return 1;
}

/* Where the written records end: the file and its size, and their LSN. */
struct end {
	uint64_t sequence, size, lsn;
};

static int journal_end(struct mcm_feed *f, struct end *ret)
{
	struct mcm_journal *j = f->m->journal;
	struct stat st;

	MC_LOCKED(&j->file_lock);
	if (j->losses != f->losses || j->discarded)
		return mc_fail(-ESTALE, "the journal's state was lost");
	if (mc_file_fstat(j->file.fd, &st) < 0)
		return -errno;
	*ret = (struct end){ j->sequence, (uint64_t)st.st_size, j->written };
	return 0;
}

/* The file is read to its end, and the master writes a later one. */
static int next_journal(struct mcm_feed *f)
{
	int fd = file_open(f->m->journal, false, f->journal_sequence + 1);

	if (fd < 0)
		return fd == -ENOENT ? mc_fail(-ESTALE, "the journal's files were removed before they were read") : fd;
	mc_file_close(f->journal);
	f->journal = fd;
	f->journal_sequence++;
	f->journal_at = 0;
	return 0;
}

static int read_journal(struct mcm_feed *f, void *buf, size_t max, struct mcm_feed_part *ret)
{
	struct end end = { 0 };
	ssize_t n;
	int r = journal_end(f, &end);

	if (r < 0)
		return r;
	/* Not beyond the end that has an LSN. */
	if (f->journal_sequence == end.sequence && max > end.size - f->journal_at)
		max = end.size - f->journal_at;
	n = max ? file_read(f->journal, buf, max, f->journal_at) : 0;
	if (n < 0)
		return (int)n;
	if (n == 0 && f->journal_sequence == end.sequence)
		return 0;
	*ret = (struct mcm_feed_part){
		.sequence = f->journal_sequence, .offset = f->journal_at, .len = (size_t)n, .last = n == 0,
	};
	f->journal_at += (uint64_t)n;
	if (f->journal_sequence == end.sequence && f->journal_at == end.size)
		ret->lsn = end.lsn;
	r = n == 0 ? next_journal(f) : 0;
	return r < 0 ? r : 1;
}

/* A checkpoint that is newer than the last one read, once all journals before it were read. */
static int find_checkpoint(struct mcm_feed *f)
{
	uint64_t sequence;
	int r;

	if (f->journal_sequence == f->checkpoint_sequence)
		return 0;
	r = newest_checkpoint(f->m->journal, &sequence);
	if (r < 0 || sequence == f->checkpoint_sequence || sequence > f->journal_sequence)
		return r == -ENOENT ? 0 : r;
	r = file_open(f->m->journal, true, sequence);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	f->checkpoint = r;
	f->checkpoint_sequence = sequence;
	f->checkpoint_at = 0;
	return 0;
}

int mcm_feed_read(struct mcm_feed *f, void *buf, size_t max, struct mcm_feed_part *ret)
{
	int r;

	/* Records before checkpoints: answers wait for them.  But the first checkpoint is the beginning. */
	if (f->checkpoint >= 0 && f->journal_at == 0 && f->journal_sequence == f->checkpoint_sequence)
		return read_checkpoint(f, buf, max, ret);
	r = read_journal(f, buf, max, ret);
	if (r != 0)
		return r;
	if (f->checkpoint < 0)
		r = find_checkpoint(f);
	return r == 0 && f->checkpoint >= 0 ? read_checkpoint(f, buf, max, ret) : r;
}
