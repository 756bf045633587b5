/* SPDX-License-Identifier: Apache-2.0
 * meta_store_i.h - the texts of a metadata server: a table in memory, and a journal in a file.
 *
 * Locks: write (changes, one at a time, with the file), then lock (the table, short). */
#ifndef MCP_META_STORE_I_H
#define MCP_META_STORE_I_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MCP_META_KEY_MAX 4096u
#define MCP_META_TEXT_MAX (64u << 20)
#define MCP_META_TTL_MAX (10u * 365 * 86400)

struct mcp_meta_entry {
	struct mcp_meta_entry *next;	/* of its bucket */
	uint64_t hash, due_ns;		/* 0: never */
	uint32_t ttl_s;
	size_t key_len, len;
	char *text;
	char key[];
};

struct mcp_meta_journal {
	char *path;		/* NULL: no file */
	int fd;
	uint64_t size;		/* bytes of whole records */
	bool broken;		/* the file's end could not be mended: write it anew before the next */
};

struct mcp_meta_store {
	/* guarded by write */
	pthread_mutex_t write;
	struct mcp_meta_journal journal;
	size_t sweep;		/* bucket to look for expired ones in */
	/* changed under both, read under either */
	pthread_mutex_t lock;
	struct mcp_meta_entry **bucket;
	size_t nbuckets, n;
	uint64_t bytes, max_bytes;
};

int mcp_meta_store_open(const char *persist, uint64_t max_bytes, struct mcp_meta_store **ret);
void mcp_meta_store_close(struct mcp_meta_store *s);

/* A copy, malloc'ed, with a NUL behind it; -ENOENT. */
int mcp_meta_store_get(struct mcp_meta_store *s, const char *key, char **ret, size_t *ret_len);
/* @ttl_s 0: for ever.  1: it was the same; 0; -EEXIST: @once, and it is there with another text; -ENOSPC. */
int mcp_meta_store_put(struct mcp_meta_store *s, const char *key, const char *text, size_t len,
		       uint32_t ttl_s, bool once);
int mcp_meta_store_del(struct mcp_meta_store *s, const char *key);
/* All keys that @match says yes to; their number, or negative. */
int mcp_meta_store_del_if(struct mcp_meta_store *s, bool (*match)(const char *key, const void *arg),
			  const void *arg);

/* ---- the journal, under write ------------------------------------------------------------------ */

/* Open or make the file and call @put and @del for its records. */
int mcp_meta_journal_open(struct mcp_meta_journal *j, const char *path,
			  int (*put)(void *arg, const char *key, const char *text, size_t len,
				     uint32_t ttl_s),
			  void (*del)(void *arg, const char *key), void *arg);
void mcp_meta_journal_close(struct mcp_meta_journal *j);
/* Durable when it returns 0; @text NULL: the key is gone. */
int mcp_meta_journal_add(struct mcp_meta_journal *j, const char *key, const char *text, size_t len,
			 uint32_t ttl_s);
/* Write the file anew with what @s has. */
int mcp_meta_journal_rewrite(struct mcp_meta_journal *j, const struct mcp_meta_store *s);

#endif
