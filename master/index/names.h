/* SPDX-License-Identifier: Apache-2.0
 * names.h - keys as paths: the keys and directories directly below "a/b/".
 *
 * A directory is a prefix that ends in '/' and has a key in or below it; the root is "".  A key that
 * itself ends in '/' (a marker) belongs to the directory of its own name, which exists as long as the
 * key does.  Directories know their children, so the cost of a listing depends on the listed children
 * only.  The rest of the master treats keys as opaque; a key "a" beside a directory "a/" is allowed.
 *
 * Levels below MCM_NAMES_DEPTH are not split: their keys are listed in the directory of that level,
 * with a name that contains slashes.
 *
 * Locks: the stripe of a directory guards its children; creating or destroying a directory also needs
 * tree_lock, taken first.  A caller that adds or removes an object holds its shard's lock; listing
 * needs no lock.  A directory moves with everything below it under the locks of all shards (names_tree.c). */
#ifndef MCM_NAMES_H
#define MCM_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sys/lock.h"

#include "master/index/index.h"

#define MCM_NAMES_STRIPES 64u
#define MCM_NAMES_DEPTH 128u

struct mcm_dir {
	uint32_t next;			/* hash chain in the stripe's table; free list */
	uint32_t hash;			/* hash of the whole path */
	uint32_t sibling;		/* hash chain in the parent's table of directories */
	uint32_t parent;
	uint32_t name;			/* last component with its '/', in the names' arena */
	uint16_t name_len;		/* 0: the root */
	uint16_t refs;			/* counted by mcm_names_dir_ref() */
	uint32_t marker;		/* the object whose key is this path, 0: none; atomic */
	struct mcm_table objects;	/* children, without the marker */
	struct mcm_table dirs;
	uint64_t changed_ms;		/* when a child or subdirectory came or went, Unix epoch; 0: never, or not since
					 * the last change of the marker's attributes; atomic */
};

struct mcm_names_stripe {
	struct mc_mutex lock;
	struct mcm_table table;		/* directories by path */
} __attribute__((aligned(64)));

struct mcm_names {
	struct mcm_index *ix;
	struct mcm_slab dirs;
	uint32_t root;
	/* for reading while a listing, or a question whether a directory exists, examines one; for writing while a
	 * directory moves, which these see as a whole */
	struct mc_rwlock move_lock;
	struct mc_mutex tree_lock;
	struct mcm_keys arena;		/* changed under tree_lock */
	uint32_t free;			/* under tree_lock */
	uint64_t count;			/* directories; under tree_lock.  mcm_index.count has them too, as weights */
	/* under tree_lock: while a directory moves, the weights of created and removed directories, which are added to
	 * mcm_index.count at the end: the same tree is not there twice */
	bool moves;
	int64_t moved_weight;
	struct mcm_names_stripe stripe[MCM_NAMES_STRIPES];
};

int mcm_names_init(struct mcm_names *nm, struct mcm_index *ix);	/* -ENOMEM */
void mcm_names_done(struct mcm_names *nm);

/* Bytes of memory that the directories have taken, without the tables of their children. */
uint64_t mcm_names_bytes(struct mcm_names *nm);

/* Add an object to its directory, which is created when needed.  -ENOMEM. */
int mcm_names_add(struct mcm_names *nm, uint32_t slot);
void mcm_names_remove(struct mcm_names *nm, uint32_t slot);
/* Object @to replaces @from; both have the same key.  A listing meets one of the two. */
void mcm_names_replace(struct mcm_names *nm, uint32_t from, uint32_t to);

/* The two halves of mcm_names_add(): find or create the directory of a key and reference it; then
 * link the object, which cannot fail and uses up the reference, or drop the reference. */
int mcm_names_dir_ref(struct mcm_names *nm, const char *key, uint32_t len, uint32_t *ret_dir);
void mcm_names_link(struct mcm_names *nm, uint32_t slot, uint32_t dir);
void mcm_names_dir_unref(struct mcm_names *nm, uint32_t dir);

/* ---- for many puts at a time ---- */

/* A directory with a reference, until mcm_names_close(). */
struct mcm_names_dir {
	uint32_t dir;		/* 0: none */
	uint32_t len;
	const char *path;	/* points into the key for which it was opened */
};
/* Open the directory of a key, created when needed; none (dir 0) when there is no memory for it. */
void mcm_names_open(struct mcm_names *nm, const char *key, uint32_t len, struct mcm_names_dir *ret);
/* The directory of an object, without a reference: valid while the object is in it. */
struct mcm_names_dir mcm_names_dir_of(struct mcm_names *nm, uint32_t slot);
/* Whether a key belongs to the directory and is not its marker. */
bool mcm_names_dir_contains(const struct mcm_names_dir *at, const char *key, uint32_t len);
/* Prefetch the memory that linking objects with these hashes there will write to. */
void mcm_names_prefetch(struct mcm_names *nm, uint32_t dir, const uint32_t *hash, unsigned n);
/* The same for removing objects with these hashes, at most MCM_PREFETCH_MAX; objects of other
 * directories are not prefetched.  The caller makes sure that the directory stays. */
void mcm_names_prefetch_remove(struct mcm_names *nm, uint32_t dir, const uint32_t *hash, unsigned n);
/* Link an object that belongs to an open directory and is not its marker. */
void mcm_names_link_open(struct mcm_names *nm, uint32_t slot, uint32_t dir);
void mcm_names_close(struct mcm_names *nm, const struct mcm_names_dir *at);

/* Remove the marker @slot from its directory.  -MC_ENOTEMPTY when other keys are below it. */
int mcm_names_remove_marker(struct mcm_names *nm, uint32_t slot);

/* Whether the directory of this path, which ends in '/', has keys other than its marker. */
bool mcm_names_busy(struct mcm_names *nm, const char *path, uint32_t len);

/* A directory as mounts show it. */
struct mcm_names_stat {
	uint64_t changed_ms;		/* as in struct mcm_dir */
	uint32_t dirs;			/* subdirectories */
};
/* Whether the directory of this path, which ends in '/', exists with or without a marker.  *ret is zero if not. */
bool mcm_names_stat(struct mcm_names *nm, const char *path, uint32_t len, struct mcm_names_stat *ret);
/* changed_ms of the directory whose marker is @slot; 0 if @slot is no marker.  Its shard is locked, here and below. */
uint64_t mcm_names_changed(const struct mcm_names *nm, uint32_t slot);
/* Set it to @ms, unless a child came or went since it was @was.  Does nothing if @slot is no marker. */
void mcm_names_swap_changed(struct mcm_names *nm, uint32_t slot, uint64_t was, uint64_t ms);
/* All objects of an earlier master were added, whose changes of directories are not known: changed_ms becomes the
 * newest mtime of the objects and markers directly below, and of those below subdirectories without a marker; 0 if the
 * marker's attributes were changed after that.  No other thread runs. */
void mcm_names_restored(struct mcm_names *nm);
/* @slot replaced an object of the same name: its directory changed, or the one above if it is a marker.  Changes of
 * names.h itself do this on their own. */
void mcm_names_touch(struct mcm_names *nm, uint32_t slot);

/* ---- a directory with everything below it (names_tree.c) ---- */

/* A directory of the tree, and its objects slot[first .. first + count), the marker first. */
struct mcm_names_branch {
	uint32_t dir;		/* its record */
	uint32_t above;		/* number of the directory above, which is smaller */
	uint32_t path_len, depth;	/* length and depth of its path */
	uint32_t first, count;
	uint32_t to;		/* with a reference: the directory that its objects move to; 0: none yet */
	uint64_t changed_ms;
	bool marker;
};

struct mcm_names_tree {
	struct mcm_names_branch *branch;	/* the directory itself is the first */
	uint32_t *slot;
	uint32_t branches, branch_cap, slots, slot_cap;
};

/* Count the names below the directory of @path, and allocate memory for them: it need not be exact.  *ret_slots:
 * objects, 0 if the directory does not exist.  No locks.  -ENOMEM; -MC_ELIMIT above @max directories and objects. */
int mcm_names_tree_count(struct mcm_names *nm, const char *path, uint32_t len, uint32_t max, struct mcm_names_tree *t,
			 uint32_t *ret_slots);
/* Find the directories and objects.  All shards are locked, and move_lock is held for writing; also below.  Errors as
 * above. */
int mcm_names_tree_find(struct mcm_names *nm, const char *path, uint32_t len, uint32_t max, struct mcm_names_tree *t);
/* Create the directories of the same tree at @path.  On failure, and if nothing moves, call mcm_names_tree_settle(). */
int mcm_names_tree_make(struct mcm_names *nm, struct mcm_names_tree *t, const char *path, uint32_t len);
/* Link an object that was removed from its directory, and has its new key. */
void mcm_names_tree_link(struct mcm_names *nm, const struct mcm_names_branch *to, uint32_t slot, bool marker);
/* The objects have moved: give the directories their times, and drop the references.  @moved: false if nothing did. */
void mcm_names_tree_settle(struct mcm_names *nm, struct mcm_names_tree *t, bool moved);
void mcm_names_tree_free(struct mcm_names_tree *t);
/* The marker of the directory of @path, 0: none.  *ret_busy: it has children. */
uint32_t mcm_names_marker(struct mcm_names *nm, const char *path, uint32_t len, bool *ret_busy);

/* ---- listing (names_list.c) ---- */

/* Where a listing continues: directories first, then objects, each in the order of their hashes. */
struct mcm_names_cursor {
	bool objects;
	uint64_t pos;		/* MCM_TABLE_END: finished */
};

struct mcm_names_item {
	size_t name;		/* offset in the page's text */
	uint32_t name_len;	/* without the '/' of a directory */
	uint32_t slot;		/* slot of the object; 0: a directory */
	uint64_t size, generation, mtime_ms;
	uint8_t kind;
	uint8_t media;		/* bit per enum mcp_medium; a disk stands for all on which objects are not put */
	uint8_t attrs;		/* 1: the object has attributes */
};
/* Fill in the fields of an object, but not its name. */
void mcm_names_item_describe(const struct mcm_index *ix, uint32_t slot, struct mcm_names_item *ret);

/* One step of a listing.  It has only whole groups of equal hashes, so that a cursor needs nothing
 * but a hash.  @max limits the entries, except that one group is never split. */
struct mcm_names_page {
	struct mcm_names_item *item;	/* owned, reused */
	unsigned count, cap;
	char *text;			/* owned, reused */
	size_t text_len, text_cap;
};
void mcm_names_page_done(struct mcm_names_page *pg);
/* Append an entry with a copy of its name, all else zero; *ret_item is valid until the next call.
 * -ENOMEM. */
int mcm_names_page_add(struct mcm_names_page *pg, const char *name, uint32_t len,
		       struct mcm_names_item **ret_item);

/* Append to @pg at most @max entries, or one group of equal hashes if that is larger, and advance
 * @cur.  It may append fewer though more follow.  @path is "" or ends in '/'.  A directory that
 * does not exist is empty.  -ENOMEM. */
int mcm_names_list(struct mcm_names *nm, const char *path, uint32_t len, unsigned max,
		   struct mcm_names_cursor *cur, struct mcm_names_page *pg);

/* For names_list.c: the directory of @path, its stripe locked; 0, also locked, when it does not exist. */
uint32_t mcm_names_lock_dir(struct mcm_names *nm, const char *path, uint32_t len,
			    struct mc_mutex **ret_lock);
/* For names_tree.c: while a directory moves, count created and removed directories @later; the lock of the children of
 * @d; directory @dir got or lost a child at @ms. */
void mcm_names_count_later(struct mcm_names *nm, bool later);
struct mc_mutex *mcm_names_lock_of(struct mcm_names *nm, const struct mcm_dir *d);
void mcm_names_dir_changed(struct mcm_names *nm, uint32_t dir, uint64_t ms);
extern const struct mcm_table_type mcm_names_by_sibling, mcm_names_by_child;
static inline struct mcm_dir *mcm_dir(const struct mcm_names *nm, uint32_t id)
{
	return mcm_slab_at(&nm->dirs, id);
}

#endif
