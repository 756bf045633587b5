/* SPDX-License-Identifier: Apache-2.0
 * journal_dir.c - the journal's directory: its lock file and the names of its files. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/sys/file.h"
#include "master/journal/journal_i.h"

#define LOCK_NAME "lock"

void mcm_journal_name(char ret[MCM_JOURNAL_NAME], bool checkpoint, uint64_t sequence)
{
	snprintf(ret, MCM_JOURNAL_NAME, "%s-%016" PRIx64, checkpoint ? "checkpoint" : "journal", sequence);
}

/* Process id in the lock file; for the error message only. */
static long lock_holder(int fd)
{
	char text[32];
	ssize_t n = mc_file_pread(fd, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = 0;
	return strtol(text, NULL, 10);
}

static int dir_lock(const char *path, int fd)
{
	char text[32];
	int n;

	if (mc_file_flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ?
			mc_fail(-EBUSY, "journal_dir=%s is in use by another master, process %ld", path,
				lock_holder(fd)) :
			mc_fail(-errno, "journal_dir=%s: cannot lock it", path);
	/* Writing the id may fail on a full disk; the lock is held nevertheless. */
	n = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
	if (mc_file_ftruncate(fd, 0) == 0)
		(void)!mc_file_pwrite(fd, text, (size_t)n, 0);
	return 0;
}

int mcm_journal_dir_open(const char *path, int *ret_dir, int *ret_lock)
{
	auto_file int dir = -1, fd = -1;
	bool created;
	int r;

	created = mc_file_mkdir(path, 0700) == 0;
	if (!created && errno != EEXIST)
		return mc_fail(-errno, "journal_dir=%s: cannot create it", path);
	/* The creator of an older directory is responsible for its entry, which this user may be unable to sync. */
	r = mc_file_sync_entry(path);
	if (r < 0 && created)
		return r;
	dir = mc_file_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (dir < 0)
		return mc_fail(-errno, "journal_dir=%s: cannot open it", path);
	fd = mc_file_openat(dir, LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return mc_fail(-errno, "journal_dir=%s: cannot write to it", path);
	r = dir_lock(path, fd);
	if (r < 0)
		return r;
	*ret_dir = TAKE_FD(dir);
	*ret_lock = TAKE_FD(fd);
	return 0;
}

/* ---- files ---- */

enum kind { OTHER, JOURNAL, CHECKPOINT, UNFINISHED };

/* Parse a name made by mcm_journal_name(), possibly with ".tmp" at its end for an unfinished file. */
static enum kind parse_name(const char *name, uint64_t *ret_sequence)
{
	char again[MCM_JOURNAL_NAME];
	const char *digits;
	enum kind kind;
	size_t len;

	if (!strncmp(name, "journal-", 8))
		kind = JOURNAL;
	else if (!strncmp(name, "checkpoint-", 11))
		kind = CHECKPOINT;
	else
		return OTHER;
	digits = strchr(name, '-') + 1;
	*ret_sequence = strtoull(digits, NULL, 16);
	mcm_journal_name(again, kind == CHECKPOINT, *ret_sequence);
	len = strlen(again);
	if (strncmp(name, again, len) != 0)
		return OTHER;
	if (!strcmp(name + len, ".tmp"))
		return UNFINISHED;
	return name[len] ? OTHER : kind;
}

static int sequence_add(uint64_t **list, size_t *n, uint64_t v)
{
	uint64_t *more = *n % 64 ? *list : realloc(*list, (*n + 64) * sizeof(**list));

	if (!more)
		return -ENOMEM;
	*list = more;
	more[(*n)++] = v;
	return 0;
}

static int sequence_compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

struct each {
	int (*fn)(void *arg, int dirfd, const char *name, enum kind kind, uint64_t sequence);
	void *arg;
	int dirfd, result;
};

static int each_entry(void *arg, const char *name)
{
	struct each *e = arg;
	uint64_t sequence = 0;
	enum kind kind = parse_name(name, &sequence);

	if (kind != OTHER)
		e->result = e->fn(e->arg, e->dirfd, name, kind, sequence);
	return e->result;
}

/* Call @fn for each file of the journal. */
static int each_file(int dirfd, int (*fn)(void *arg, int dirfd, const char *name, enum kind kind,
					  uint64_t sequence), void *arg)
{
	struct each e = { .fn = fn, .arg = arg, .dirfd = dirfd };

	if (mc_file_list(dirfd, each_entry, &e) < 0 && e.result == 0)
		return mc_fail(-errno, "cannot read the journal's directory");
	return e.result;
}

static int collect_file(void *arg, int dirfd, const char *name, enum kind kind, uint64_t sequence)
{
	struct mcm_journal_files *f = arg;

	(void)dirfd;
	(void)name;
	if (kind == UNFINISHED)
		return 0;
	return kind == CHECKPOINT ? sequence_add(&f->checkpoint, &f->checkpoints, sequence) :
		sequence_add(&f->journal, &f->journals, sequence);
}

static int remove_unfinished(void *arg, int dirfd, const char *name, enum kind kind, uint64_t sequence)
{
	(void)arg;
	(void)sequence;
	if (kind == UNFINISHED)
		(void)mc_file_unlinkat(dirfd, name, 0);
	return 0;
}

int mcm_journal_files(int dirfd, struct mcm_journal_files *ret)
{
	int r = each_file(dirfd, remove_unfinished, NULL);

	return r < 0 ? r : mcm_journal_list(dirfd, ret);
}

int mcm_journal_list(int dirfd, struct mcm_journal_files *ret)
{
	int r;

	*ret = (struct mcm_journal_files){ 0 };
	r = each_file(dirfd, collect_file, ret);
	if (r < 0) {
		mcm_journal_files_done(ret);
		return r;
	}
	if (ret->checkpoints)
		qsort(ret->checkpoint, ret->checkpoints, sizeof(*ret->checkpoint), sequence_compare);
	if (ret->journals)
		qsort(ret->journal, ret->journals, sizeof(*ret->journal), sequence_compare);
	return 0;
}

void mcm_journal_files_done(struct mcm_journal_files *f)
{
	free(f->checkpoint);
	free(f->journal);
	*f = (struct mcm_journal_files){ 0 };
}

struct removal {
	uint64_t below;
	bool checkpoints;
	int error;
};

static int remove_file(void *arg, int dirfd, const char *name, enum kind kind, uint64_t sequence)
{
	struct removal *rm = arg;

	if (kind == UNFINISHED || sequence >= rm->below || (kind == CHECKPOINT) != rm->checkpoints)
		return 0;
	if (mc_file_unlinkat(dirfd, name, 0) < 0 && errno != ENOENT)
		rm->error = -errno;
	return 0;
}

int mcm_journal_remove_below(int dirfd, uint64_t sequence)
{
	struct removal rm = { sequence, true, 0 };
	int r;

	/* Checkpoints first: journals without a checkpoint are never used as a state. */
	r = each_file(dirfd, remove_file, &rm);
	rm.checkpoints = false;
	if (r == 0)
		r = each_file(dirfd, remove_file, &rm);
	return r < 0 ? r : rm.error;
}

static int sync_file(void *arg, int dirfd, const char *name, enum kind kind, uint64_t sequence)
{
	auto_file int fd = kind == UNFINISHED ? -1 : mc_file_openat(dirfd, name, O_RDONLY | O_CLOEXEC, 0);

	(void)arg;
	(void)sequence;
	if (kind != UNFINISHED && (fd < 0 || mc_file_fsync(fd) < 0))
		return mc_fail(-errno, "cannot sync the journal's file %s", name);
	return 0;
}

int mcm_journal_sync_files(int dirfd)
{
	int r = each_file(dirfd, sync_file, NULL);

	if (r == 0 && mc_file_fsync(dirfd) < 0)
		r = mc_fail(-errno, "cannot sync the journal's directory");
	return r;
}
