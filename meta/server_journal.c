/* SPDX-License-Identifier: Apache-2.0
 * server_journal.c - journal file of the metadata server.
 *
 * The first line names the format.  Records follow: "P KEYLEN LEN TTL CRC\n" KEY TEXT "\n" for a put, "D KEYLEN
 * 0 0 CRC\n" KEY "\n" for a deletion; CRC32C over key and text.  The last record may be torn and is cut off
 * then. Times are not stored: after a restart the owner of a text has a whole TTL to refresh it. */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/crc32c.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/sys/file.h"
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

static int journal_fail(const char *what, const char *path)
{
	int err = -errno;

	return mc_fail(err, "cannot %s %s: %s", what, path, mc_strerror(err));
}

/* ---- reading ----------------------------------------------------------------------------------- */

/* 1: a record; 0: end of file, maybe inside a record; -EINVAL: invalid bytes. */
static int record_read(FILE *f, struct record *rec)
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

static int record_apply(const struct record *rec,
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

/* True at the end of the file, or if only zeros follow: after a crash the last record may be cut off,
 * or its bytes may not have reached the disk. */
static bool journal_at_end(FILE *f)
{
	int c;

	do {
		c = fgetc(f);
	} while (c == 0);
	return c == EOF && !ferror(f);
}

static int journal_read(struct mcd_journal *j, FILE *f,
			int (*put)(void *arg, const char *key, const char *text, size_t len,
				   uint32_t ttl_s),
			void (*del)(void *arg, const char *key), void *arg)
{
	struct record rec;
	int r;

	do {
		rec.body = NULL;
		r = record_read(f, &rec);
		if (r == 1)
			r = record_apply(&rec, put, del, arg) ?: 1;
		free(rec.body);
		if (r == 1)
			j->size = (uint64_t)ftello(f);
	} while (r == 1);
	if (r == -EINVAL && journal_at_end(f))
		r = 0;
	if (r == -EINVAL)
		return mc_fail(r, "%s is damaged at byte %llu; move it away to start without it",
			       j->path, (unsigned long long)j->size);
	return r == 0 && ferror(f) ? journal_fail("read", j->path) : r;
}

/* A stream of a file from its beginning. */
struct reading {
	int fd;
	off_t at;
};

static ssize_t reading_next(void *cookie, char *buf, size_t len)
{
	struct reading *from = cookie;
	ssize_t n;

	do
		n = mc_file_pread(from->fd, buf, len, from->at);
	while (n < 0 && errno == EINTR);
	from->at += n > 0 ? n : 0;
	return n;
}

/* For ftello(), which asks where the buffer begins. */
static int reading_seek(void *cookie, off64_t *at, int whence)
{
	struct reading *from = cookie;

	if (whence == SEEK_END)
		return -1;
	*at += whence == SEEK_CUR ? from->at : 0;
	from->at = *at;
	return 0;
}

static int journal_load(struct mcd_journal *j,
			int (*put)(void *arg, const char *key, const char *text, size_t len, uint32_t ttl_s),
			void (*del)(void *arg, const char *key), void *arg)
{
	char magic[sizeof(MAGIC)] = "";
	struct reading from = { .fd = j->fd };
	struct stat st;
	FILE *f;
	int r;

	if (mc_file_fstat(j->fd, &st) < 0)
		return journal_fail("read", j->path);
	if (!S_ISREG(st.st_mode) || st.st_size > (off_t)FILE_MAX)
		return mc_fail(-EINVAL, "%s is not a metadata file", j->path);
	f = fopencookie(&from, "r", (cookie_io_functions_t){ .read = reading_next, .seek = reading_seek });
	if (!f)
		return journal_fail("read", j->path);
	/* A crash during creation may leave a part of the first line. */
	r = 0;
	if (fread(magic, 1, sizeof(MAGIC) - 1, f) != sizeof(MAGIC) - 1)
		j->size = 0;
	else if (!strcmp(magic, MAGIC))
		j->size = sizeof(MAGIC) - 1;
	if (strncmp(magic, MAGIC, strlen(magic)))
		r = mc_fail(-EINVAL, "%s is not a metadata file", j->path);
	else if (j->size)
		r = journal_read(j, f, put, del, arg);
	if (r == 0 && (uint64_t)st.st_size > j->size)
		mc_warn(LOG, "cutting off a torn record: bytes=%llu file=%s",
			(unsigned long long)((uint64_t)st.st_size - j->size), j->path);
	fclose(f);
	return r;
}

/* ---- writing ----------------------------------------------------------------------------------- */

static int journal_write(int fd, const char *p, size_t len)
{
	ssize_t n;
	int r;

	r = mc_fault("meta.journal.write");
	if (r < 0) {
		/* like a full disk: a part is written */
		n = mc_file_write(fd, p, len / 2);
		errno = -r;
		return -1;
	}
	while (len) {
		n = mc_file_write(fd, p, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

/* A whole record, malloc'ed. */
static char *record_make(const char *key, const char *text, size_t len, uint32_t ttl_s, size_t *ret_len)
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

int mcd_journal_add(struct mcd_journal *j, const char *key, const char *text, size_t len, uint32_t ttl_s)
{
	size_t n = 0;
	char *rec = record_make(key, text, len, ttl_s, &n);
	int r = 0;

	if (!rec)
		return mc_fail(-ENOMEM, "no memory for %zu bytes", len);
	if (journal_write(j->fd, rec, n) < 0 || mc_file_fdatasync(j->fd) < 0)
		r = journal_fail("write", j->path);
	free(rec);
	if (r == 0) {
		j->size += n;
		return 0;
	}
	/* Records after a torn one could not be read again, so cut it off. */
	if (mc_file_ftruncate(j->fd, (off_t)j->size) < 0 || mc_file_lseek(j->fd, (off_t)j->size, SEEK_SET) < 0)
		j->broken = true;
	return r;
}

static int journal_write_entries(int fd, const struct mcd_store *s, uint64_t *ret_size)
{
	uint64_t size = sizeof(MAGIC) - 1;
	size_t n;

	if (journal_write(fd, MAGIC, sizeof(MAGIC) - 1) < 0)
		return -1;
	for (size_t i = 0; i < s->nbuckets; i++)
		for (const struct mcd_entry *e = s->bucket[i]; e; e = e->next) {
			auto_free char *rec = record_make(e->key, e->text, e->len, e->ttl_s, &n);

			errno = ENOMEM;
			if (!rec || journal_write(fd, rec, n) < 0)
				return -1;
			size += n;
		}
	*ret_size = size;
	return mc_file_fsync(fd);
}

int mcd_journal_rewrite(struct mcd_journal *j, const struct mcd_store *s)
{
	auto_free char *tmp = NULL;
	auto_file int fd = -1;
	uint64_t size = 0;
	int r;

	if (asprintf(&tmp, "%s.new", j->path) < 0) {
		tmp = NULL;
		return mc_fail(-ENOMEM, "no memory to write %s", j->path);
	}
	fd = mc_file_open(tmp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	/* Lock before the rename, so that the file with the name is locked at all times. */
	if (fd < 0 || mc_file_flock(fd, LOCK_EX | LOCK_NB) < 0 || journal_write_entries(fd, s, &size) < 0 ||
	    mc_file_rename(tmp, j->path) < 0) {
		r = journal_fail("write", tmp);
		mc_file_unlink(tmp);
		return r;
	}
	(void)mc_file_sync_entry(j->path);
	mc_file_close(j->fd);
	j->fd = TAKE_FD(fd);
	j->size = size;
	j->broken = false;
	return 0;
}

/* ---- open and close ---------------------------------------------------------------------------- */

/* Open and lock the file.  Retry if another file was renamed to @path between open and lock. */
static int journal_open_locked(const char *path)
{
	struct stat a, b;
	int fd, r;

	for (;;) {
		fd = mc_file_open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
		if (fd < 0)
			return journal_fail("open", path);
		if (mc_file_flock(fd, LOCK_EX | LOCK_NB) < 0) {
			r = errno == EWOULDBLOCK ?
				mc_fail(-EBUSY, "another metadata server uses %s", path) :
				journal_fail("lock", path);
			mc_file_close(fd);
			return r;
		}
		if (mc_file_fstat(fd, &a) == 0 && mc_file_stat(path, &b) == 0 && a.st_ino == b.st_ino &&
		    a.st_dev == b.st_dev)
			return fd;
		mc_file_close(fd);
	}
}

int mcd_journal_open(struct mcd_journal *j, const char *path,
		     int (*put)(void *arg, const char *key, const char *text, size_t len, uint32_t ttl_s),
		     void (*del)(void *arg, const char *key), void *arg)
{
	int r;

	j->path = strdup(path);
	if (!j->path)
		return mc_fail(-ENOMEM, "no memory for a metadata server");
	r = j->fd = journal_open_locked(path);
	if (r >= 0)
		r = journal_load(j, put, del, arg);
	if (r < 0)
		return r;
	if (mc_file_ftruncate(j->fd, (off_t)j->size) < 0 || mc_file_lseek(j->fd, (off_t)j->size, SEEK_SET) < 0)
		return journal_fail("write", path);
	if (j->size)
		return 0;
	if (journal_write(j->fd, MAGIC, sizeof(MAGIC) - 1) < 0 || mc_file_fsync(j->fd) < 0)
		return journal_fail("write", path);
	r = mc_file_sync_entry(path);
	if (r < 0)
		return r;
	j->size = sizeof(MAGIC) - 1;
	return 0;
}

void mcd_journal_close(struct mcd_journal *j)
{
	if (j->fd >= 0)
		mc_file_close(j->fd);
	free(j->path);
	j->fd = -1;
	j->path = NULL;
}
