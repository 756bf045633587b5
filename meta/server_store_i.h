/* SPDX-License-Identifier: Apache-2.0
 * server_store_i.h - texts of a metadata server: a table in memory, and a journal in a file.
 *
 * Locks: write (serializes changes of table and file), then lock (the table, held briefly). */
#ifndef MCD_SERVER_STORE_I_H
#define MCD_SERVER_STORE_I_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/sys/lock.h"

#define MCD_SERVER_KEY_MAX 4096u
#define MCD_SERVER_TEXT_MAX (64u << 20)
#define MCD_SERVER_TTL_MAX (10u * 365 * 86400)

struct mcd_entry {
	struct mcd_entry *next;	/* next entry of its bucket */
	uint64_t hash, due_ns;	/* time of expiry, 0: never */
	uint32_t ttl_s;
	size_t key_len, len;
	char *text;
	char key[];
};

struct mcd_journal {
	char *path;		/* NULL: no file */
	int fd;
	uint64_t size;		/* bytes of whole records */
	bool broken;		/* the file ends in a torn record: rewrite it before the next record */
};

struct mcd_store {
	/* guarded by write */
	struct mc_mutex write;
	struct mcd_journal journal;
	size_t sweep;		/* next bucket to search for expired entries */
	/* changed under both, read under either */
	struct mc_mutex lock;
	struct mcd_entry **bucket;
	size_t nbuckets, n;
	uint64_t bytes, max_bytes;
	uint64_t max_keys;	/* 0: no limit; constant once the store is shared */
};

int mcd_store_open(const char *persist, uint64_t max_bytes, struct mcd_store **ret);
void mcd_store_close(struct mcd_store *s);

/* A malloc'ed copy with a final NUL; -ENOENT. */
int mcd_store_get(struct mcd_store *s, const char *key, char **ret, size_t *ret_len);
/* @ttl_s 0: never expires.  1: the same text was there; 0; -EEXIST: @once, and another text is there;
 * -ENOSPC. */
int mcd_store_put(struct mcd_store *s, const char *key, const char *text, size_t len,
		  uint32_t ttl_s, bool once);
int mcd_store_del(struct mcd_store *s, const char *key);
/* Delete all keys for which @match is true; their number, or negative. */
int mcd_store_del_if(struct mcd_store *s, bool (*match)(const char *key, const void *arg), const void *arg);

/* ---- the journal, under write ------------------------------------------------------------------ */

/* Open or create the file and call @put and @del for its records. */
int mcd_journal_open(struct mcd_journal *j, const char *path,
		     int (*put)(void *arg, const char *key, const char *text, size_t len, uint32_t ttl_s),
		     void (*del)(void *arg, const char *key), void *arg);
void mcd_journal_close(struct mcd_journal *j);
/* Append a record, durable if 0 is returned; @text NULL: the key is deleted. */
int mcd_journal_add(struct mcd_journal *j, const char *key, const char *text, size_t len, uint32_t ttl_s);
/* Replace the file by a new one with the content of @s. */
int mcd_journal_rewrite(struct mcd_journal *j, const struct mcd_store *s);

#endif
