/* SPDX-License-Identifier: Apache-2.0
 * meta_journal.c - the file of a metadata server.
 *
 * A first line that says what it is, then records: "P KEYLEN LEN TTL CRC\n" KEY TEXT "\n" for a text, "D KEYLEN 0
 * 0 CRC\n" KEY "\n" for one that is gone; CRC32C over key and text.  A record is there when it is complete; the
 * last one of a file may be torn and is cut off then.  Times are not kept: an owner has a whole TTL from the
 * restart on to refresh. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/crc32c.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "meta/server_store_i.h"

#define LOG "metadata"
#define MAGIC "mooncake metadata 1\n"
#define HEAD_MAX 64
#define FILE_MAX (8ull << 30)

struct record {
	char kind;
	unsigned long key_len, len;
	uint32_t ttl_s, crc;
	char *body;		/* key, text */
};

static int failed(const char *what, const char *path)
{
	int err = -errno;

	return mc_fail(err, "cannot %s %s: %s", what, path, mc_strerror(err));
}

/* ---- reading ----------------------------------------------------------------------------------- */

/* 1: a record; 0: the file ends, maybe inside one; -EINVAL: nonsense. */
static int read_record(FILE *f, struct record *rec)
{
	char head[HEAD_MAX];
	int end = 0;

	if (!fgets(head, sizeof(head), f) || !strchr(head, '\n'))
		return feof(f) ? 0 : -EINVAL;
	if (sscanf(head, "%c %lu %lu %u %x%n", &rec->kind, &rec->key_len, &rec->len, &rec->ttl_s,
		   &rec->crc, &end) != 5 || head[end] != '\n' || !strchr("PD", rec->kind) ||
	    !rec->key_len || rec->key_len > MCD_SERVER_KEY_MAX || rec->len > MCD_SERVER_TEXT_MAX ||
	    rec->ttl_s > MCD_SERVER_TTL_MAX)
		return -EINVAL;
	rec->body = malloc(rec->key_len + rec->len + 1);
	if (!rec->body)
		return mc_fail(-ENOMEM, "no memory for %lu bytes", rec->len);
	if (fread(rec->body, 1, rec->key_len + rec->len + 1, f) != rec->key_len + rec->len + 1)
		return 0;
	if (rec->body[rec->key_len + rec->len] != '\n' ||
	    mc_crc32c(rec->body, rec->key_len + rec->len) != rec->crc)
		return -EINVAL;
	return 1;
}

static int take_record(const struct record *rec,
		       int (*put)(void *arg, const char *key, const char *text, size_t len,
				  uint32_t ttl_s),
		       void (*del)(void *arg, const char *key), void *arg)
{
	char key[MCD_SERVER_KEY_MAX + 1];

	memcpy(key, rec->body, rec->key_len);
	key[rec->key_len] = '\0';
	if (rec->kind == 'P')
		return put(arg, key, rec->body + rec->key_len, rec->len, rec->ttl_s);
	del(arg, key);
	return 0;
}

/* A crash leaves a last record that is cut off, or whose bytes never reached the disk: nothing but zeros follows. */
static bool at_end(FILE *f)
{
	int c;

	do {
		c = fgetc(f);
	} while (c == 0);
	return c == EOF && !ferror(f);
}

static int read_all(struct mcd_journal *j, FILE *f,
		    int (*put)(void *arg, const char *key, const char *text, size_t len,
			       uint32_t ttl_s),
		    void (*del)(void *arg, const char *key), void *arg)
{
	struct record rec;
	int r;

	do {
		rec.body = NULL;
		r = read_record(f, &rec);
		if (r == 1)
			r = take_record(&rec, put, del, arg) ?: 1;
		free(rec.body);
		if (r == 1)
			j->size = (uint64_t)ftello(f);
	} while (r == 1);
	if (r == -EINVAL && at_end(f))
		r = 0;
	if (r == -EINVAL)
		return mc_fail(r, "%s is damaged at byte %llu; move it away to begin without it",
			       j->path, (unsigned long long)j->size);
	return r == 0 && ferror(f) ? failed("read", j->path) : r;
}

static int load(struct mcd_journal *j,
		int (*put)(void *arg, const char *key, const char *text, size_t len, uint32_t ttl_s),
		void (*del)(void *arg, const char *key), void *arg)
{
	char magic[sizeof(MAGIC)] = "";
	struct stat st;
	FILE *f;
	int fd, r;

	if (fstat(j->fd, &st) < 0)
		return failed("read", j->path);
	if (!S_ISREG(st.st_mode) || st.st_size > (off_t)FILE_MAX)
		return mc_fail(-EINVAL, "%s is not a metadata file", j->path);
	fd = dup(j->fd);
	f = fd < 0 ? NULL : fdopen(fd, "r");
	if (!f) {
		r = failed("read", j->path);
		if (fd >= 0)
			close(fd);
		return r;
	}
	/* A crash right after its making may have left a part of the first line. */
	r = 0;
	if (fread(magic, 1, sizeof(MAGIC) - 1, f) != sizeof(MAGIC) - 1)
		j->size = 0;
	else if (!strcmp(magic, MAGIC))
		j->size = sizeof(MAGIC) - 1;
	if (strncmp(magic, MAGIC, strlen(magic)))
		r = mc_fail(-EINVAL, "%s is not a metadata file", j->path);
	else if (j->size)
		r = read_all(j, f, put, del, arg);
	if (r == 0 && (uint64_t)st.st_size > j->size)
		mc_warn(LOG, "cutting a torn record off bytes=%llu file=%s",
			(unsigned long long)((uint64_t)st.st_size - j->size), j->path);
	fclose(f);
	return r;
}

/* ---- writing ----------------------------------------------------------------------------------- */

static int write_all(int fd, const char *p, size_t len)
{
	ssize_t n;
	int r;

	r = mc_fault("proto.meta_journal.write");
	if (r < 0) {
		/* as a full disk does it: a part is there */
		n = write(fd, p, len / 2);
		errno = -r;
		return -1;
	}
	while (len) {
		n = write(fd, p, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

/* A record as one piece, malloc'ed. */
static char *make_record(const char *key, const char *text, size_t len, uint32_t ttl_s,
			 size_t *ret_len)
{
	size_t key_len = strlen(key);
	char *rec = malloc(HEAD_MAX + key_len + len + 1);
	uint32_t crc;
	int n;

	if (!rec)
		return NULL;
	crc = mc_crc32c(key, key_len);
	if (text)
		crc = mc_crc32c_add(crc, text, len);
	n = snprintf(rec, HEAD_MAX, "%c %zu %zu %u %08x\n", text ? 'P' : 'D', key_len, len, ttl_s, crc);
	memcpy(rec + n, key, key_len);
	if (text)
		memcpy(rec + n + key_len, text, len);
	rec[(size_t)n + key_len + len] = '\n';
	*ret_len = (size_t)n + key_len + len + 1;
	return rec;
}

int mcd_journal_add(struct mcd_journal *j, const char *key, const char *text, size_t len,
			 uint32_t ttl_s)
{
	size_t n = 0;
	char *rec = make_record(key, text, len, ttl_s, &n);
	int r = 0;

	if (!rec)
		return mc_fail(-ENOMEM, "no memory for %zu bytes", len);
	if (write_all(j->fd, rec, n) < 0 || fdatasync(j->fd) < 0)
		r = failed("write", j->path);
	free(rec);
	if (r == 0) {
		j->size += n;
		return 0;
	}
	/* What follows a half record could not be read again. */
	if (ftruncate(j->fd, (off_t)j->size) < 0 || lseek(j->fd, (off_t)j->size, SEEK_SET) < 0)
		j->broken = true;
	return r;
}

static int write_entries(int fd, const struct mcd_store *s, uint64_t *ret_size)
{
	uint64_t size = sizeof(MAGIC) - 1;
	size_t n;

	if (write_all(fd, MAGIC, sizeof(MAGIC) - 1) < 0)
		return -1;
	for (size_t i = 0; i < s->nbuckets; i++)
		for (const struct mcd_entry *e = s->bucket[i]; e; e = e->next) {
			auto_free char *rec = make_record(e->key, e->text, e->len, e->ttl_s, &n);

			errno = ENOMEM;
			if (!rec || write_all(fd, rec, n) < 0)
				return -1;
			size += n;
		}
	*ret_size = size;
	return fsync(fd);
}

static int sync_dir(const char *path)
{
	auto_free char *copy = strdup(path);
	auto_close int fd = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	return fd < 0 ? -1 : fsync(fd);
}

int mcd_journal_rewrite(struct mcd_journal *j, const struct mcd_store *s)
{
	auto_free char *tmp = NULL;
	auto_close int fd = -1;
	uint64_t size = 0;
	int r;

	if (asprintf(&tmp, "%s.new", j->path) < 0) {
		tmp = NULL;
		return mc_fail(-ENOMEM, "no memory to write %s", j->path);
	}
	fd = open(tmp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	/* Locked before it has the name, so that the name is locked at all times. */
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || write_entries(fd, s, &size) < 0 ||
	    rename(tmp, j->path) < 0) {
		r = failed("write", tmp);
		unlink(tmp);
		return r;
	}
	(void)sync_dir(j->path);
	close(j->fd);
	j->fd = TAKE_FD(fd);
	j->size = size;
	j->broken = false;
	return 0;
}

/* ---- open and close ---------------------------------------------------------------------------- */

/* The file, locked.  Its name may have got another file between open and lock. */
static int open_locked(const char *path)
{
	struct stat a, b;
	int fd, r;

	for (;;) {
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
		if (fd < 0)
			return failed("open", path);
		if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			r = errno == EWOULDBLOCK ?
				mc_fail(-EBUSY, "another metadata server has %s", path) :
				failed("lock", path);
			close(fd);
			return r;
		}
		if (fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_ino == b.st_ino &&
		    a.st_dev == b.st_dev)
			return fd;
		close(fd);
	}
}

int mcd_journal_open(struct mcd_journal *j, const char *path,
			  int (*put)(void *arg, const char *key, const char *text, size_t len,
				     uint32_t ttl_s),
			  void (*del)(void *arg, const char *key), void *arg)
{
	int r;

	j->path = strdup(path);
	if (!j->path)
		return mc_fail(-ENOMEM, "no memory for a metadata server");
	r = j->fd = open_locked(path);
	if (r >= 0)
		r = load(j, put, del, arg);
	if (r < 0)
		return r;
	if (ftruncate(j->fd, (off_t)j->size) < 0 || lseek(j->fd, (off_t)j->size, SEEK_SET) < 0)
		return failed("write", path);
	if (j->size)
		return 0;
	if (write_all(j->fd, MAGIC, sizeof(MAGIC) - 1) < 0 || fsync(j->fd) < 0)
		return failed("write", path);
	j->size = sizeof(MAGIC) - 1;
	return 0;
}

void mcd_journal_close(struct mcd_journal *j)
{
	if (j->fd >= 0)
		close(j->fd);
	free(j->path);
	j->fd = -1;
	j->path = NULL;
}
