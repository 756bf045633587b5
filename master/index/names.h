/* SPDX-License-Identifier: Apache-2.0
 * names.h - keys as paths: which keys and directories lie directly below "a/b/".
 *
 * A directory is a prefix that ends in '/' and has a key in or below it; the root is "".  A key that
 * itself ends in '/' lies in the directory of its own name and makes it exist while it is empty.
 * Directories know their children, so listing one costs its children only.  Keys are opaque to the
 * rest of the master; a key "a" beside a directory "a/" is nothing special here.
 * Levels below MCM_NAMES_DEPTH are not split further: such keys show up in the directory of that level
 * with a name that has slashes in it.
 *
 * Locks: the stripe of a directory guards its children; tree_lock, taken first, is needed in addition
 * to create or destroy a directory.  Callers hold the shard lock of the object that they add or
 * remove; listing needs none. */
#ifndef MCM_NAMES_H
#define MCM_NAMES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "master/index/index.h"

#define MCM_NAMES_STRIPES 64u
#define MCM_NAMES_DEPTH 128u

struct mcm_dir {
	uint32_t next;			/* chain of the stripe's table; free list */
	uint32_t hash;			/* of the whole path */
	uint32_t sibling;		/* chain in the parent's table of directories */
	uint32_t parent;
	uint32_t name;			/* last component with its '/', in the names' arena */
	uint16_t name_len;		/* the root's is 0 */
	uint16_t refs;			/* callers of mcm_names_dir_ref() */
	uint32_t marker;		/* the object whose key is this path, 0: none */
	struct mcm_table objects;	/* children, the marker not among them */
	struct mcm_table dirs;
};

struct mcm_names_stripe {
	pthread_mutex_t lock;
	struct mcm_table table;		/* directories by path */
} __attribute__((aligned(64)));

struct mcm_names {
	struct mcm_index *ix;
	struct mcm_slab dirs;
	uint32_t root;
	pthread_mutex_t tree_lock;
	struct mcm_keys arena;		/* tree_lock to change */
	uint32_t free;			/* tree_lock */
	uint64_t count;			/* directories; tree_lock */
	struct mcm_names_stripe stripe[MCM_NAMES_STRIPES];
};

int mcm_names_init(struct mcm_names *nm, struct mcm_index *ix);	/* -ENOMEM */
void mcm_names_done(struct mcm_names *nm);

/* Make an object a child of its directory, which is created when needed.  -ENOMEM. */
int mcm_names_add(struct mcm_names *nm, uint32_t slot);
void mcm_names_remove(struct mcm_names *nm, uint32_t slot);
/* @to takes @from's place; both have the same key.  A listing meets one of them. */
void mcm_names_replace(struct mcm_names *nm, uint32_t from, uint32_t to);

/* The two halves of mcm_names_add(): find or create the directory of a key and keep it, then link,
 * which cannot fail, or let go. */
int mcm_names_dir_ref(struct mcm_names *nm, const char *key, uint32_t len, uint32_t *ret_dir);
void mcm_names_link(struct mcm_names *nm, uint32_t slot, uint32_t dir);
void mcm_names_dir_unref(struct mcm_names *nm, uint32_t dir);

/* ---- for many puts at a time ---- */

/* A directory that is kept until it is closed. */
struct mcm_names_dir {
	uint32_t dir;		/* 0: none */
	uint32_t len;
	const char *path;	/* borrowed from the key that it was opened for */
};
/* The directory of a key, created when needed; none when there is no memory for it. */
void mcm_names_open(struct mcm_names *nm, const char *key, uint32_t len,
		    struct mcm_names_dir *ret);
/* The directory that an object lies in, kept by nothing but that. */
struct mcm_names_dir mcm_names_dir_of(struct mcm_names *nm, uint32_t slot);
/* Does a key lie in it, and is it not its marker? */
bool mcm_names_dir_contains(const struct mcm_names_dir *at, const char *key, uint32_t len);
/* Load what linking objects with these hashes there will touch. */
void mcm_names_prefetch(struct mcm_names *nm, uint32_t dir, const uint32_t *hash, unsigned n);
/* The same for removing objects with these hashes, MCM_PREFETCH_MAX at the most; those of other directories cost
 * what they cost.  Something keeps the directory. */
void mcm_names_prefetch_remove(struct mcm_names *nm, uint32_t dir, const uint32_t *hash, unsigned n);
/* Link an object that lies in an open directory and is not its marker. */
void mcm_names_link_open(struct mcm_names *nm, uint32_t slot, uint32_t dir);
void mcm_names_close(struct mcm_names *nm, const struct mcm_names_dir *at);

/* Remove the marker @slot from its directory unless other keys lie below: -MC_ENOTEMPTY. */
int mcm_names_remove_marker(struct mcm_names *nm, uint32_t slot);

/* Does anything but its marker lie in the directory of this path, which ends in '/'? */
bool mcm_names_busy(struct mcm_names *nm, const char *path, uint32_t len);

/* ---- listing (names_list.c) ---- */

/* Where a listing goes on: directories first, then objects, each in the order of hashes. */
struct mcm_names_cursor {
	bool objects;
	uint64_t pos;		/* MCM_TABLE_END: at the end */
};

struct mcm_names_item {
	size_t name;		/* offset in the page's text */
	uint32_t name_len;	/* a directory's without the '/' */
	uint32_t slot;		/* the object; 0: a directory */
	uint64_t size, generation, mtime_ms;
	uint8_t kind;
};

/* One step of a listing: whole groups of equal hashes only, so that the cursor needs nothing but a
 * hash.  @max bounds the items except that one group is always given whole. */
struct mcm_names_page {
	struct mcm_names_item *item;	/* owned, reused */
	unsigned count, cap;
	char *text;			/* owned, reused */
	size_t text_len, text_cap;
};
void mcm_names_page_done(struct mcm_names_page *pg);
/* Another entry, its name copied, all else zero; *ret_item is good until the next one.  -ENOMEM. */
int mcm_names_page_add(struct mcm_names_page *pg, const char *name, uint32_t len,
		       struct mcm_names_item **ret_item);

/* Append to @pg and move @cur, by @max entries at the most, or by the one group that is more than that; perhaps by
 * fewer though there are more.  @path is "" or ends in '/'.  A directory that does not exist is empty.  -ENOMEM. */
int mcm_names_list(struct mcm_names *nm, const char *path, uint32_t len, unsigned max,
		   struct mcm_names_cursor *cur, struct mcm_names_page *pg);

/* For names_list.c: the directory of @path, its stripe locked; 0, with the lock held, when absent. */
uint32_t mcm_names_lock_dir(struct mcm_names *nm, const char *path, uint32_t len,
			    pthread_mutex_t **ret_lock);
extern const struct mcm_table_type mcm_names_by_sibling, mcm_names_by_child;
static inline struct mcm_dir *mcm_dir(const struct mcm_names *nm, uint32_t id)
{
	return mcm_slab_at(&nm->dirs, id);
}

#endif
