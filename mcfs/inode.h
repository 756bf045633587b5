/* SPDX-License-Identifier: Apache-2.0
 * inode.h - inodes that the kernel has looked up.
 *
 * An inode is one version of one key. A name that gets a new version gets a new inode, so that
 * pages cached for the old version are never shown for the new one. Readers and writers do not
 * share an inode, and neither do two writers: the kernel keeps one size and one page cache per
 * inode. An open that would share one is answered with ESTALE. The kernel then looks the name up
 * once more, and that lookup gets a new inode (open_pins.h remembers the thread). */
#ifndef MCFS_INODE_H
#define MCFS_INODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "common/list.h"
#include "common/sys/lock.h"
#include "mcfs/life/compat.h"
#include "mcfs/keymap.h"
#include "mcfs/read/object.h"

struct mcfs_key {
	size_t len;
	char data[MCFS_KEY_MAX + 1];	/* not NUL-terminated; has room for a directory's '/' */
};

static inline struct mcs_key mcfs_key_of(const struct mcfs_key *k)
{
	return (struct mcs_key){ k->data, k->len };
}
static inline bool mcfs_key_equal(const struct mcfs_key *a, const struct mcfs_key *b)
{
	return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

struct mcfs_inode {
	/* st_ino; atomic: without a number among its attributes, that of a directory changes with its name, and a
	 * daemon that took over knows the number after its first question */
	uint64_t ino;
	/* constant */
	enum mcs_kind kind;
	/* the version, but attrs is not used; generation 0: no version committed yet, or a directory that is not a
	 * view */
	struct mcs_info info;
	bool implied;			/* a directory without a marker key */
	/* a file without a version: serial number of the writer that a lookup found, 0: none */
	uint64_t writer_serial;
	/* in the handoff table (handoff.h), 0: the kernel's node id is the address */
	uint64_t number;

	/* guarded by the inodes' lock */
	struct mc_list bucket;
	bool hashed;			/* lookups of the key find it */
	uint64_t nlookup;		/* references held by the kernel */
	unsigned refs;			/* references held by open handles and operations */
	unsigned readers, writers;	/* number of open handles */
	struct mcfs_object *object;	/* one reference while there are readers */
	uint64_t listed_ms;		/* start of the last listing cached by the kernel, 0: none */
	struct mcs_attrs attrs;		/* as the master last described them; known: it did, to this daemon */
	bool known, gone;		/* gone: the version has lost its name */
	/* After a rename of a file with readers: the version's present name and generation. NULL: key and info */
	char *moved_key;
	size_t moved_len;
	uint64_t moved_generation;
	struct mc_list moved;		/* in the list of such inodes, if there is a moved_key */
	/* the kernel's size may differ from a writer's size; never cleared */
	bool kernel_size_stale;
	size_t key_len;
	char *key;			/* a directory's ends in '/', except a view's; the root's is "" */
};

struct mcfs_inodes {
	struct mc_mutex lock;
	struct mc_list *bucket;
	size_t nbucket, count;
	struct mcfs_inode root;
	struct mc_list moved;		/* inodes that have a moved_key */
	/* renames of directories, changed under lock: numbers of those that have begun and ended, one after the other;
	 * number after which the inodes have their new keys, atomic */
	uint64_t moves_begun, moves_ended;
	uint64_t moves;
	struct mc_cond move_ended;
	/* stands for every node id that the handoff table does not contain; all operations on it fail */
	struct mcfs_inode lost;
};

int mcfs_inodes_init(struct mcfs_inodes *t);
void mcfs_inodes_done(struct mcfs_inodes *t);	/* frees all remaining inodes */
/* Recreate the inodes that the kernel knows from the previous daemon. The handoff table is loaded
 * and the mount does not serve yet. */
int mcfs_inodes_restore(struct mcfs_inodes *t);
size_t mcfs_inodes_count(struct mcfs_inodes *t);

/* st_ino of a file: the number among its attributes, which stays when it is renamed or written again, because programs
 * treat a file whose number changed as another file. Without one (an object of the store API, a directory without a
 * marker) it is a hash of the key (a directory's includes its '/'). Both are the same on all nodes. */
uint64_t mcfs_inode_number(struct mcs_key key, const struct mcs_attrs *attrs);
/* A number for a new file. */
uint64_t mcfs_inode_new_number(void);
static inline uint64_t mcfs_inode_ino(const struct mcfs_inode *in)
{
	return __atomic_load_n(&in->ino, __ATOMIC_RELAXED);
}
/* The kernel's node id of an inode, and the inode of a node id. */
fuse_ino_t mcfs_inode_nodeid(const struct mcfs_inodes *t, const struct mcfs_inode *in);
struct mcfs_inode *mcfs_inode_at(struct mcfs_inodes *t, fuse_ino_t node);

/* The inode of a version or directory, with one kernel lookup added. @own: a file gets a new inode
 * that is not shared. NULL: no memory. Its attributes become those of @info, unless @listed and it has later ones:
 * then @info gets them. */
struct mcfs_inode *mcfs_inode_lookup(struct mcfs_inodes *t, struct mcs_key key, struct mcs_info *info, bool listed,
				     bool implied, bool own);
/* The inode of the directory .mcfs/prefix/P, which lists the keys that begin with @key; as above. */
struct mcfs_inode *mcfs_inode_view(struct mcfs_inodes *t, struct mcs_key key);
static inline bool mcfs_inode_is_view(const struct mcfs_inode *in)
{
	return in->kind == MCS_DIR && in->info.generation;
}
/* A new inode that lookups do not find, for a file without a version (@info NULL) or with a new one; as above. */
struct mcfs_inode *mcfs_inode_private(struct mcfs_inodes *t, struct mcs_key key,
				      const struct mcs_info *info);
void mcfs_inode_forget(struct mcfs_inodes *t, struct mcfs_inode *in, uint64_t n);

/* Copy the attributes of the inode's file; *ret_gone: its name was removed. False: not known, because the inode is
 * older than this daemon. */
bool mcfs_inode_attrs(struct mcfs_inodes *t, const struct mcfs_inode *in, struct mcs_attrs *ret, bool *ret_gone);
void mcfs_inode_set_attrs(struct mcfs_inodes *t, struct mcfs_inode *in, const struct mcs_attrs *attrs);
/* The version has lost its name: it was removed or replaced. */
void mcfs_inode_set_gone(struct mcfs_inodes *t, struct mcfs_inode *in);
/* The name and generation under which the master has the inode's version; 0: a directory. */
uint64_t mcfs_inode_version(struct mcfs_inodes *t, const struct mcfs_inode *in, struct mcfs_key *ret);
/* Version @generation of file @from was renamed to @to and has generation @now. */
void mcfs_inode_move_file(struct mcfs_inodes *t, struct mcs_key from, uint64_t generation, struct mcs_key to,
			  uint64_t now);

/* Copy the inode's current key. */
void mcfs_inode_key(struct mcfs_inodes *t, const struct mcfs_inode *in, struct mcfs_key *ret);
/* The key under which the master has the inode's version, if directories were renamed since: they keep generations. */
void mcfs_inode_open_key(struct mcfs_inodes *t, const struct mcfs_inode *in, struct mcfs_key *ret);
/* The key of @name in directory @dir.  -ENAMETOOLONG, -EINVAL. */
int mcfs_inode_child_key(struct mcfs_inodes *t, const struct mcfs_inode *dir, const char *name,
			 struct mcfs_key *ret);

/* A handle is opened or closed. An open fails with -ESTALE if a writer would share the inode with a
 * reader or writer, and lookups then no longer find the inode. A reader gets a reference to the
 * open version, if there is one. */
int mcfs_inode_open_reader(struct mcfs_inodes *t, struct mcfs_inode *in, struct mcfs_object **ret_object);
/* @share: two writers may share the inode; the kernel then shows the size that was set last.
 * Returns 1 if they do: the kernel must not cache this writer's bytes. */
int mcfs_inode_open_writer(struct mcfs_inodes *t, struct mcfs_inode *in, bool share);
/* Store the version that a new reader opened, for the readers that follow. */
void mcfs_inode_share(struct mcfs_inodes *t, struct mcfs_inode *in, struct mcfs_object *o);
/* Count a handle that the previous daemon opened, before the mount serves. */
void mcfs_inode_reopen(struct mcfs_inodes *t, struct mcfs_inode *in, bool reader);
void mcfs_inode_close_reader(struct mcfs_inodes *t, struct mcfs_inode *in);
void mcfs_inode_close_writer(struct mcfs_inodes *t, struct mcfs_inode *in);
/* Keep the inode alive without counting as an open handle. */
void mcfs_inode_ref(struct mcfs_inodes *t, struct mcfs_inode *in);
void mcfs_inode_unref(struct mcfs_inodes *t, struct mcfs_inode *in);
/* Lookups no longer find the inode: its open handle shows other bytes than the name. */
void mcfs_inode_hide(struct mcfs_inodes *t, struct mcfs_inode *in);
/* The kernel's size of the inode may differ from the size that a writer of it has. */
void mcfs_inode_set_kernel_size_stale(struct mcfs_inodes *t, struct mcfs_inode *in);
bool mcfs_inode_is_kernel_size_stale(struct mcfs_inodes *t, const struct mcfs_inode *in);
/* Start time of the complete listing of an open directory that the kernel caches. */
void mcfs_inode_set_listed(struct mcfs_inodes *t, struct mcfs_inode *in, uint64_t began_ms);
uint64_t mcfs_inode_listed(struct mcfs_inodes *t, const struct mcfs_inode *in);
/* Call this pair around a request to the master that renames a directory, and mcfs_inode_move_dir(). The caller has the
 * tree of directories alone (tree.h). */
void mcfs_inode_move_begin(struct mcfs_inodes *t);
void mcfs_inode_move_end(struct mcfs_inodes *t);
/* Number of such renames so far.  A thread that reads it, copies a key and adds an inode with that key finds another
 * number afterwards if the key was outdated. */
static inline uint64_t mcfs_inode_moves(const struct mcfs_inodes *t)
{
	return __atomic_load_n(&t->moves, __ATOMIC_ACQUIRE);
}
/* The master does not know a key that was copied from an inode: did a directory get another name since @moves was
 * counted?  Waits for the end of a rename that has begun, not of later ones, until @deadline. */
bool mcfs_inode_moved_since(struct mcfs_inodes *t, uint64_t moves, uint64_t deadline);
/* Directory @from was renamed to @to, with everything below it; both keys end in '/'. The inodes get their new keys,
 * except files with handles: those with readers know the new one, as after mcfs_inode_move_file(). */
void mcfs_inode_move_dir(struct mcfs_inodes *t, struct mcs_key from, struct mcs_key to);

#endif
