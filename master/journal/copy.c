/* SPDX-License-Identifier: Apache-2.0
 * copy.c - the journal of another master, copied into this process's directory. */
#include <config.h>

#include "master/journal/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/err.h"
#include "master/journal/journal_i.h"

struct file {
	int fd;			/* -1: none */
	uint64_t sequence, size;
};

struct mcm_copy {
	int dirfd, lockfd;
	char *path;
	struct file checkpoint, journal;
	bool complete;
};

static void file_close(struct file *f)
{
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
}

int mcm_copy_open(const char *path, struct mcm_copy **ret)
{
	struct mcm_copy *c = calloc(1, sizeof(*c));
	struct mcm_journal_files found;
	int r;

	if (!c)
		return -ENOMEM;
	c->dirfd = c->lockfd = c->checkpoint.fd = c->journal.fd = -1;
	c->path = strdup(path);
	r = c->path ? mcm_journal_dir_open(path, &c->dirfd, &c->lockfd) : -ENOMEM;
	if (r == 0)
		r = mcm_journal_files(c->dirfd, &found);
	if (r == 0) {
		c->complete = found.checkpoints;
		mcm_journal_files_done(&found);
	}
	if (r < 0) {
		mcm_copy_close(c);
		return r;
	}
	*ret = c;
	return 0;
}

void mcm_copy_close(struct mcm_copy *c)
{
	if (!c)
		return;
	file_close(&c->checkpoint);
	file_close(&c->journal);
	if (c->dirfd >= 0)
		close(c->dirfd);
	if (c->lockfd >= 0)
		close(c->lockfd);
	free(c->path);
	free(c);
}

int mcm_copy_begin(struct mcm_copy *c)
{
	struct mcm_journal_files unfinished;
	int r;

	file_close(&c->checkpoint);
	file_close(&c->journal);
	c->complete = false;
	r = mcm_journal_remove_below(c->dirfd, UINT64_MAX);
	if (r == 0)
		r = mcm_snapshot_mark(c->dirfd, MCM_ORIGIN_JOURNAL);
	if (r < 0)
		return mc_fail(r, "cannot remove the old state in %s", c->path);
	/* Removes unfinished files. */
	r = mcm_journal_files(c->dirfd, &unfinished);
	if (r == 0)
		mcm_journal_files_done(&unfinished);
	return r;
}

bool mcm_copy_complete(const struct mcm_copy *c)
{
	return c->complete;
}

static void file_name(const struct mcm_feed_part *p, bool unfinished, char ret[MCM_JOURNAL_NAME + 4])
{
	mcm_journal_name(ret, p->checkpoint, p->sequence);
	if (unfinished)
		strcat(ret, ".tmp");
}

/* The file that the part belongs to; a new one for its first part. */
static int file_of(struct mcm_copy *c, const struct mcm_feed_part *p, struct file **ret)
{
	struct file *f = p->checkpoint ? &c->checkpoint : &c->journal;
	char name[MCM_JOURNAL_NAME + 4];

	if (p->offset == 0 && (f->fd < 0 || f->sequence != p->sequence)) {
		file_close(f);
		file_name(p, p->checkpoint, name);
		f->fd = openat(c->dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		if (f->fd < 0)
			return mc_fail(-errno, "cannot begin %s/%s", c->path, name);
		f->sequence = p->sequence;
		f->size = 0;
	}
	if (f->fd < 0 || f->sequence != p->sequence || f->size != p->offset)
		return mc_fail(-EINVAL, "a part of the leader's journal is missing: %s %llu, at %llu",
			       p->checkpoint ? "checkpoint" : "journal", (unsigned long long)p->sequence,
			       (unsigned long long)p->offset);
	*ret = f;
	return 0;
}

/* From here on the copy begins with this checkpoint. */
static int checkpoint_end(struct mcm_copy *c, const struct mcm_feed_part *p)
{
	char from[MCM_JOURNAL_NAME + 4], to[MCM_JOURNAL_NAME + 4];

	file_name(p, true, from);
	file_name(p, false, to);
	/* Its content must be there before its name is. */
	if (fdatasync(c->checkpoint.fd) < 0 || renameat(c->dirfd, from, c->dirfd, to) < 0 || fsync(c->dirfd) < 0)
		return mc_fail(-errno, "cannot finish %s/%s", c->path, to);
	file_close(&c->checkpoint);
	c->complete = true;
	return mcm_journal_remove_below(c->dirfd, p->sequence);
}

int mcm_copy_add(struct mcm_copy *c, const struct mcm_feed_part *p, const void *bytes)
{
	struct file *f = NULL;
	int r = file_of(c, p, &f);

	if (r == 0)
		r = mcm_journal_write(f->fd, bytes, p->len);
	if (r < 0)
		return r;
	f->size += p->len;
	return p->checkpoint && p->last ? checkpoint_end(c, p) : 0;
}

int mcm_copy_sync(struct mcm_copy *c)
{
	return c->journal.fd >= 0 && fdatasync(c->journal.fd) < 0 ? mc_fail(-errno, "cannot sync %s", c->path) : 0;
}
