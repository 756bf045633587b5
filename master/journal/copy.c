/* SPDX-License-Identifier: Apache-2.0
 * copy.c - the journal of another master, copied into this process's directory. */
#include <config.h>

#include "master/journal/copy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/sys/file.h"
#include "master/journal/journal_i.h"

#define LOG "standby"
#define FREE_SHARE 20u		/* this part of the file system stays free */
#define FREE_MAX (1ull << 30)	/* but not more than that many bytes */

struct file {
	int fd;			/* -1: none */
	uint64_t sequence, size;
};

struct mcm_copy {
	int dirfd, lockfd;
	char *path, *cluster;
	struct mcm_vault vault;
	uint64_t max_bytes, bytes;	/* limit (0: none) and size of all files of the copy */
	struct file checkpoint, journal;
	bool complete;
};

static void file_close(struct file *f)
{
	if (f->fd >= 0)
		mc_file_close(f->fd);
	f->fd = -1;
}

/* Is the file a checkpoint that a master of this cluster can read?  Errors of mcm_journal_belongs(); -MC_EPROTO. */
static int check_header(struct mcm_copy *c, const char *name, uint64_t sequence)
{
	auto_file int fd = mc_file_openat(c->dirfd, name, O_RDONLY | O_CLOEXEC, 0);
	uint8_t raw[2 * MCM_JOURNAL_HEAD_MAX], head[sizeof(raw)];
	ssize_t n = fd < 0 ? -1 : mc_file_pread(fd, raw, sizeof(raw), 0);
	struct mcm_header_record h;
	struct mcm_record rec;
	size_t at, len;
	int r;

	if (n < 0)
		return mc_fail(-errno, "cannot read %s/%s", c->path, name);
	r = mcm_vault_decode(&c->vault, raw, (size_t)n, head, &len);
	if (r < 0)
		return mc_fail(r, "cannot use %s/%s: %s", c->path, name, strdupa(mc_err_detail(r)));
	/* There are two copies of the header, of which one may be damaged. */
	at = mcm_record_next(head, len, &rec) ? 0 : mcm_record_resync(head, len, 8);
	if (!mcm_record_next(head + at, len - at, &rec))
		return mc_fail(-MC_EPROTO, "%s/%s has no header", c->path, name);
	r = mcm_unpack_header(&rec, &h);
	if (r < 0)
		return mc_fail(r, "%s/%s: %s", c->path, name, strdupa(mc_err_detail(r)));
	return mcm_journal_belongs(&h, c->path, name, c->cluster, sequence, true);
}

/* The newest checkpoint that can be read makes the directory a whole state, as mcm_restore() finds it. */
static int find_state(struct mcm_copy *c)
{
	struct mcm_journal_files found;
	char name[MCM_JOURNAL_NAME];
	int r = mcm_journal_files(c->dirfd, &found);

	if (r < 0)
		return r;
	for (size_t i = found.checkpoints; i-- > 0 && !c->complete && r == 0;) {
		mcm_journal_name(name, true, found.checkpoint[i]);
		r = check_header(c, name, found.checkpoint[i]);
		c->complete = r == 0;
		if (r == -MC_EPROTO) {
			mc_warn(LOG, "a checkpoint is not used: %s", mc_err_detail(r));
			r = 0;
		}
	}
	mcm_journal_files_done(&found);
	return r;
}

int mcm_copy_open(const struct mcm_copy_conf *conf, struct mcm_copy **ret)
{
	struct mcm_copy *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->dirfd = c->lockfd = c->checkpoint.fd = c->journal.fd = -1;
	c->path = strdup(conf->dir);
	c->cluster = strdup(conf->cluster);
	c->max_bytes = conf->max_bytes;
	mcm_vault_init(&c->vault, conf->security);
	r = c->path && c->cluster ? mcm_journal_dir_open(c->path, &c->dirfd, &c->lockfd) : -ENOMEM;
	if (r == 0)
		r = find_state(c);
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
		mc_file_close(c->dirfd);
	if (c->lockfd >= 0)
		mc_file_close(c->lockfd);
	free(c->path);
	free(c->cluster);
	free(c);
}

int mcm_copy_begin(struct mcm_copy *c)
{
	struct mcm_journal_files unfinished;
	int r;

	file_close(&c->checkpoint);
	file_close(&c->journal);
	c->complete = false;
	c->bytes = 0;
	r = mcm_journal_remove_below(c->dirfd, UINT64_MAX);
	if (r == 0)
		r = mcm_origin_write(c->dirfd, MCM_ORIGIN_JOURNAL);
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
		f->fd = mc_file_openat(c->dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
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

/* Bytes of the files that are left. */
static int count_bytes(struct mcm_copy *c)
{
	struct mcm_journal_files f;
	char name[MCM_JOURNAL_NAME];
	struct stat st;
	int r = mcm_journal_list(c->dirfd, &f);

	if (r < 0)
		return r;
	c->bytes = 0;
	for (size_t i = 0; i < f.checkpoints + f.journals; i++) {
		mcm_journal_name(name, i < f.checkpoints,
				 i < f.checkpoints ? f.checkpoint[i] : f.journal[i - f.checkpoints]);
		c->bytes += mc_file_fstatat(c->dirfd, name, &st, 0) < 0 ? 0 : (uint64_t)st.st_size;
	}
	mcm_journal_files_done(&f);
	return 0;
}

/* Make the finished checkpoint the beginning of the copy. */
static int checkpoint_end(struct mcm_copy *c, const struct mcm_feed_part *p)
{
	char from[MCM_JOURNAL_NAME + 4], to[MCM_JOURNAL_NAME + 4];
	int r;

	file_name(p, true, from);
	file_name(p, false, to);
	/* A state that this master could not lead with must not replace one that it can. */
	r = check_header(c, from, p->sequence);
	if (r < 0)
		return r;
	/* Its content must be there before its name is. */
	if (mc_file_fdatasync(c->checkpoint.fd) < 0 || mc_file_renameat(c->dirfd, from, c->dirfd, to) < 0 ||
	    mc_file_fsync(c->dirfd) < 0)
		return mc_fail(-errno, "cannot finish %s/%s", c->path, to);
	file_close(&c->checkpoint);
	c->complete = true;
	r = mcm_journal_remove_below(c->dirfd, p->sequence);
	return r < 0 ? r : count_bytes(c);
}

/* A feed without an end must not fill the disk. */
static int check_room(const struct mcm_copy *c, uint64_t len)
{
	struct statvfs st;
	uint64_t all, keep;

	if (c->max_bytes && c->bytes + len > c->max_bytes)
		return mc_fail(-ENOSPC, "the copy of the leader's journal in %s would have more than %llu bytes",
			       c->path, (unsigned long long)c->max_bytes);
	if (fstatvfs(c->dirfd, &st) < 0)
		return mc_fail(-errno, "cannot find the free space of %s", c->path);
	all = (uint64_t)st.f_blocks * st.f_frsize;
	keep = all / FREE_SHARE < FREE_MAX ? all / FREE_SHARE : FREE_MAX;
	if ((uint64_t)st.f_bavail * st.f_frsize < keep + len)
		return mc_fail(-ENOSPC, "the file system of %s has less than %llu bytes free", c->path,
			       (unsigned long long)(keep + len));
	return 0;
}

int mcm_copy_add(struct mcm_copy *c, const struct mcm_feed_part *p, const void *bytes)
{
	struct file *f = NULL;
	int r = check_room(c, p->len);

	if (r == 0)
		r = file_of(c, p, &f);
	if (r == 0)
		r = mcm_journal_write(f->fd, bytes, p->len);
	if (r < 0)
		return r;
	f->size += p->len;
	c->bytes += p->len;
	return p->checkpoint && p->last ? checkpoint_end(c, p) : 0;
}

int mcm_copy_sync(struct mcm_copy *c)
{
	if (c->journal.fd >= 0 && mc_file_fdatasync(c->journal.fd) < 0)
		return mc_fail(-errno, "cannot sync %s", c->path);
	return 0;
}
