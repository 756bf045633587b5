/* SPDX-License-Identifier: Apache-2.0
 * meta_store_i.h - the texts of a metadata server: a table in memory, and a journal in a file.
 *
 * Locks: write (changes, one at a time, with the file), then lock (the table, short). */
#ifndef MCD_SERVER_STORE_I_H
#define MCD_SERVER_STORE_I_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MCD_SERVER_KEY_MAX 4096u
#define MCD_SERVER_TEXT_MAX (64u << 20)
#define MCD_SERVER_TTL_MAX (10u * 365 * 86400)

struct mcd_entry {
	struct mcd_entry *next;	/* of its bucket */
	uint64_t hash, due_ns;		/* 0: never */
	uint32_t ttl_s;
	size_t key_len, len;
	char *text;
	char key[];
};

struct mcd_journal {
	char *path;		/* NULL: no file */
	int fd;
	uint64_t size;		/* bytes of whole records */
	bool broken;		/* the file's end could not be mended: write it anew before the next */
};

struct mcd_store {
	/* guarded by write */
	pthread_mutex_t write;
	struct mcd_journal journal;
	size_t sweep;		/* bucket to look for expired ones in */
	/* changed under both, read under either */
	pthread_mutex_t lock;
	struct mcd_entry **bucket;
	size_t nbuckets, n;
	uint64_t bytes, max_bytes;
};

int mcd_store_open(const char *persist, uint64_t max_bytes, struct mcd_store **ret);
void mcd_store_close(struct mcd_store *s);

/* A copy, malloc'ed, with a NUL behind it; -ENOENT. */
int mcd_store_get(struct mcd_store *s, const char *key, char **ret, size_t *ret_len);
/* @ttl_s 0: for ever.  1: it was the same; 0; -EEXIST: @once, and it is there with another text; -ENOSPC. */
int mcd_store_put(struct mcd_store *s, const char *key, const char *text, size_t len,
		       uint32_t ttl_s, bool once);
int mcd_store_del(struct mcd_store *s, const char *key);
/* All keys that @match says yes to; their number, or negative. */
int mcd_store_del_if(struct mcd_store *s, bool (*match)(const char *key, const void *arg),
			  const void *arg);

/* ---- the journal, under write ------------------------------------------------------------------ */

/* Open or make the file and call @put and @del for its records. */
int mcd_journal_open(struct mcd_journal *j, const char *path,
			  int (*put)(void *arg, const char *key, const char *text, size_t len,
				     uint32_t ttl_s),
			  void (*del)(void *arg, const char *key), void *arg);
void mcd_journal_close(struct mcd_journal *j);
/* Durable when it returns 0; @text NULL: the key is gone. */
int mcd_journal_add(struct mcd_journal *j, const char *key, const char *text, size_t len,
			 uint32_t ttl_s);
/* Write the file anew with what @s has. */
int mcd_journal_rewrite(struct mcd_journal *j, const struct mcd_store *s);

#endif
